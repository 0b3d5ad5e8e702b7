//! Whether the model decides to call, and how likely it does.

use super::answer::{Ask, Written};
use super::{Session, ToolChoice};
use crate::Result;
use crate::constraint::Compiler;
use crate::decision::{CallProbability, Decision, Opening, Question, Thresholds, place};
use crate::engine::Engine;
use crate::engine::sampler::Sampler;
use crate::format::Format;
use crate::generate::{Guides, Limits, generate_with};
use crate::message::Role;
use crate::tool::Tools;
use serde_json::json;
use std::cell::OnceCell;
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

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

/// A tool that says nothing about any question.
fn nothing() -> Arc<Tools> {
    static NOTHING: OnceLock<Arc<Tools>> = OnceLock::new();
    let tool = json!([{"name": "none", "description": "", "parameters": {"type": "object", "properties": {}}}]);
    Arc::clone(NOTHING.get_or_init(|| Arc::new(Tools::from_value(&tool).unwrap_or_default())))
}

/// Whether the weighted probability of a call decides about the answer.
fn weighs(ask: &Ask) -> bool {
    let options = &ask.options;
    options.call_weights.is_some() && (options.call_threshold.is_some() || options.no_call_below.is_some())
}

impl Session {
    /// The question of an answer, measured without the tools, where it has a say in the decision.
    pub(super) fn weighed_question(&mut self, ask: &Ask, written: &Written) -> Result<Option<Question>> {
        if weighs(ask) { self.question(ask, written) } else { Ok(None) }
    }

    /// The question of an answer, measured without the tools; `None` where there is none, or it cannot be measured.
    ///
    /// Another context decodes the conversation without tools, and keeps it for the next question.
    fn question(&mut self, ask: &Ask, written: &Written) -> Result<Option<Question>> {
        let Some(last) = ask.messages.last().filter(|message| message.role == Role::User) else { return Ok(None) };
        let (content, text) = (last.content.trim(), written.text.as_str());
        let decides = ask.options.tool_choice == ToolChoice::Auto && ask.options.grammar.is_none();
        let Some(at) = text.rfind(content).filter(|_| decides && !ask.tools.is_empty() && !content.is_empty()) else {
            return Ok(None);
        };
        if self.without_tools.is_none() && self.engine.can_draft() {
            self.without_tools = self.engine.sibling();
        }
        let mut plain = ask.clone();
        plain.tools = nothing();
        // A prompt that the template cannot write without tools cannot be compared.
        let Ok(without) = self.write(&plain) else { return Ok(None) };
        let Some(engine) = &mut self.without_tools else { return Ok(None) };
        let tokens = place(&**engine, &written.tokens, text.len() - at - content.len(), content.len());
        Question::new(&mut **engine, &written.tokens, &without.tokens, tokens)
    }

    /// How likely the next answer begins with a call, without generating it: the prompt is decoded, and the start marker.
    /// `None` where the model does not decide, the format does not say how calls begin, or the answer begins with reasoning
    /// (see [`Reply::call_probability`](super::Reply::call_probability)).
    ///
    /// # Errors
    /// Those of [`Session::respond`].
    pub fn call_probability(&mut self) -> Result<Option<CallProbability>> {
        let ask = self.turn()?;
        let (shown, written, _) = self.fit(&ask)?;
        let question = self.question(&shown, &written)?;
        let compiler = self.compiler.as_ref();
        let Some(opening) = opening(&self.opening, compiler, &*self.engine, &self.format, &ask) else {
            return Ok(None);
        };
        let mut decision = Decision::new(opening, true, Thresholds::default(), written.thinking)
            .weighing(ask.options.call_weights, question);
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
