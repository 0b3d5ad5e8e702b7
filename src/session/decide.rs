//! Whether the model decides to call, and how likely it does.

use super::answer::Ask;
use super::{Session, ToolChoice};
use crate::Result;
use crate::constraint::Compiler;
use crate::decision::{CallProbability, Decision, Opening, Thresholds};
use crate::engine::Engine;
use crate::engine::sampler::Sampler;
use crate::format::Format;
use crate::generate::{Guides, Limits, generate_with};
use crate::message::Role;
use std::cell::OnceCell;
use std::ops::ControlFlow;

/// How calls begin, where the model decides whether to call.
pub(super) fn opening<'o>(
    known: &'o OnceCell<Option<Opening>>,
    compiler: Option<&Compiler>,
    engine: &dyn Engine,
    format: &Format,
    ask: &Ask,
) -> Option<&'o Opening> {
    let options = &ask.options;
    if ask.tools.is_empty() || options.tool_choice != ToolChoice::Auto || options.grammar.is_some() {
        return None;
    }
    let read = || {
        let vocabulary = compiler.map(|compiler| compiler.vocabulary().clone()).or_else(|| engine.vocabulary())?;
        Opening::new(&vocabulary, format)
    };
    known.get_or_init(read).as_ref()
}

/// The decision of an answer. After a tool's result the model is left alone: it has to answer at last.
pub(super) fn decision<'o>(opening: &'o Opening, ask: &Ask, thinking: bool) -> Decision<'o> {
    let options = &ask.options;
    let to_user = ask.messages.last().is_some_and(|message| message.role == Role::User);
    let thresholds = match to_user {
        true => Thresholds { call: options.call_threshold, text: options.no_call_below },
        false => Thresholds::default(),
    };
    Decision::new(opening, options.measure_call, thresholds, thinking)
}

impl Session {
    /// How likely the next answer begins with a call, without generating it: the prompt is decoded, and the start marker.
    /// `None` where the model does not decide, the format does not say how calls begin, or the answer begins with reasoning
    /// (see [`Reply::call_probability`](super::Reply::call_probability)).
    ///
    /// # Errors
    /// Those of [`Session::respond`].
    pub fn call_probability(&mut self) -> Result<Option<CallProbability>> {
        let ask = self.turn()?;
        let (_, written, _) = self.fit(&ask)?;
        let compiler = self.compiler.as_ref();
        let Some(opening) = opening(&self.opening, compiler, &*self.engine, &self.format, &ask) else {
            return Ok(None);
        };
        let mut decision = Decision::new(opening, true, Thresholds::default(), written.thinking);
        let limits = Limits { max_tokens: 0, cancel: &ask.options.cancel, until: ask.until };
        let guides = Guides { constraint: None, decision: Some(&mut decision) };
        let mut unwatched: super::OnPrompt = Box::new(|_, _| ());
        let on_prompt = self.on_prompt.as_mut().unwrap_or(&mut unwatched);
        let sampler = Sampler::new(ask.options.sampling);
        let on_token = &mut |_: &[u8], _: bool| ControlFlow::Continue(());
        generate_with(&mut *self.engine, &written.tokens, sampler, limits, guides, on_prompt, on_token)?;
        Ok(decision.found().filter(|_| !decision.is_open()))
    }
}
