//! Whether the model decides to call, and how likely it does.

use super::prompt::{AnswerRequest, Written};
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
    request: &AnswerRequest,
) -> Option<&'o Opening> {
    let options = &request.options;
    let measurable = !engine.samples();
    if !measurable || request.tools.is_empty() || options.tool_choice != ToolChoice::Auto || options.grammar.is_some() {
        return None;
    }
    let read = || {
        let vocabulary = compiler.map(|compiler| compiler.vocabulary().clone()).or_else(|| engine.vocabulary())?;
        Opening::new(&vocabulary, format)
    };
    known.get_or_init(read).as_ref()
}

/// The decision of an answer. After a tool's result the model is left alone: it has to answer at last.
pub(super) fn decision<'o>(opening: &'o Opening, request: &AnswerRequest, thinking: bool) -> Decision<'o> {
    let options = &request.options;
    let to_user = request.messages.last().is_some_and(|message| message.role == Role::User);
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
fn weighs(request: &AnswerRequest) -> bool {
    let options = &request.options;
    options.call_weights.is_some() && (options.call_threshold.is_some() || options.no_call_below.is_some())
}

impl Session {
    /// The question of an answer, measured without the tools, where it has a say in the decision.
    pub(super) fn weighed_question(&mut self, request: &AnswerRequest, written: &Written) -> Result<Option<Question>> {
        if weighs(request) { self.question(request, written) } else { Ok(None) }
    }

    /// The question of an answer, measured without the tools; `None` where there is none, or it cannot be measured.
    ///
    /// Another context decodes the conversation without tools, and keeps it for the next question.
    fn question(&mut self, request: &AnswerRequest, written: &Written) -> Result<Option<Question>> {
        let Some(last) = request.messages.last().filter(|message| message.role == Role::User) else { return Ok(None) };
        let (content, text) = (last.content.trim(), written.text.as_str());
        let decides = request.options.tool_choice == ToolChoice::Auto && request.options.grammar.is_none();
        let Some(at) = text.rfind(content).filter(|_| decides && !request.tools.is_empty() && !content.is_empty())
        else {
            return Ok(None);
        };
        if self.without_tools.is_none() && self.engine.can_truncate() {
            self.without_tools = self.engine.sibling();
        }
        if self.without_tools.is_none() {
            return Ok(None);
        }
        let mut plain = request.clone();
        plain.tools = nothing();
        // A prompt that the template cannot write without tools cannot be compared.
        let Ok(without) = self.write(&plain, self.shown(&plain)) else { return Ok(None) };
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
        let request = self.request()?;
        let (written, _) = self.fit(&request)?;
        let question = self.question(&request, &written)?;
        let compiler = self.compiler.as_ref();
        let Some(opening) = opening(&self.opening, compiler, &*self.engine, &self.format, &request) else {
            return Ok(None);
        };
        let mut decision = Decision::new(opening, true, Thresholds::default(), written.thinking)
            .weighing(request.options.call_weights, question);
        let limits = Limits { max_tokens: 0, cancel: &request.options.cancel, until: request.until };
        let guides = Guides { decision: Some(&mut decision), ..Guides::default() };
        let mut unwatched: super::OnPrompt = Box::new(|_, _| ());
        let on_prompt = self.on_prompt.as_mut().unwrap_or(&mut unwatched);
        let sampler = Sampler::new(request.options.sampling);
        let on_token = &mut |_: &[u8], _: bool| ControlFlow::Continue(());
        generate_with(&mut *self.engine, &written.tokens, sampler, limits, guides, on_prompt, on_token)?;
        Ok(decision.found().filter(|_| !decision.is_open()))
    }
}
