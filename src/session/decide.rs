//! Whether the model decides to call, and how likely it does.

use super::ToolChoice;
use super::context::Prompts;
use super::prompt::{AnswerRequest, Written};
use crate::Result;
use crate::decision::{Decision, Opening, Question, Thresholds, place};
use crate::engine::Engine;
use crate::engine::vocabulary::Vocabulary;
use crate::format::Format;
use crate::message::Role;
use std::cell::OnceCell;
use std::sync::Arc;

/// What decisions need besides the session's engine.
#[derive(Default)]
pub(super) struct Deciding {
    /// How calls begin in the model's tokens, once that was asked for.
    opening: OnceCell<Option<Opening>>,
    /// Decodes the conversation without tools, to compare; made when it is first needed.
    without_tools: Option<Box<dyn Engine>>,
}

impl Deciding {
    /// The session continues with another engine.
    pub(super) fn forget_engine(&mut self) {
        self.without_tools = None;
    }

    /// How calls begin, where the model decides whether to call. Without a vocabulary, the engine's is read.
    pub(super) fn opening(
        &self,
        vocabulary: Option<&Vocabulary>,
        engine: &dyn Engine,
        format: &Format,
        request: &AnswerRequest,
    ) -> Option<&Opening> {
        if engine.samples() || !decides(request) {
            return None;
        }
        let read = || {
            let vocabulary = vocabulary.cloned().or_else(|| engine.vocabulary())?;
            Opening::new(&vocabulary, format)
        };
        self.opening.get_or_init(read).as_ref()
    }

    /// The question of an answer, measured without the tools; `None` where there is none, or it cannot be measured.
    ///
    /// Another context decodes the conversation without tools, and keeps it for the next question.
    pub(super) fn question(
        &mut self,
        prompts: &Prompts,
        engine: &dyn Engine,
        request: &AnswerRequest,
        written: &Written,
    ) -> Result<Option<Question>> {
        let Some(last) = request.messages.last().filter(|message| message.role == Role::User) else { return Ok(None) };
        let (content, text) = (last.content.trim(), written.text.as_str());
        let Some(at) = text.rfind(content).filter(|_| decides(request) && !content.is_empty()) else {
            return Ok(None);
        };
        if self.without_tools.is_none() && engine.can_truncate() {
            self.without_tools = engine.sibling();
        }
        let Some(other) = &mut self.without_tools else { return Ok(None) };
        // A prompt that the template cannot write without tools cannot be compared.
        let Ok(without) = prompts.write(engine, &request.with_tools(Arc::default())) else { return Ok(None) };
        let tokens = place(&**other, &written.tokens, text.len() - at - content.len(), content.len());
        Question::new(&mut **other, &written.tokens, &without.tokens, tokens)
    }
}

/// Whether the model decides whether an answer has a call.
fn decides(request: &AnswerRequest) -> bool {
    let options = &request.options;
    !request.tools.is_empty() && options.tool_choice == ToolChoice::Auto && options.grammar.is_none()
}

/// How many tokens the decision of an answer decodes in advance, at most.
pub(super) fn ahead(format: &Format, request: &AnswerRequest) -> usize {
    let options = &request.options;
    let measures = options.measure_call || options.call_threshold.is_some() || options.no_call_below.is_some();
    if decides(request) && measures { Opening::most_tokens(format) } else { 0 }
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

/// Whether the weighted probability of a call decides about the answer.
pub(super) fn weighs(request: &AnswerRequest) -> bool {
    let options = &request.options;
    options.call_weights.is_some() && (options.call_threshold.is_some() || options.no_call_below.is_some())
}
