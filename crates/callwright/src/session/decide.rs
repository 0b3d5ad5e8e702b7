//! Whether the model decides to call, and how likely it does.

use super::prompt::AnswerRequest;
use super::{Options, ToolChoice};
use crate::decision::{Decision, Opening, Thresholds};
use crate::engine::Engine;
use crate::engine::vocabulary::Vocabulary;
use crate::format::Format;
use crate::message::Role;
use crate::parse::OtherForms;
use std::cell::OnceCell;

/// What decisions need besides the session's engine.
#[derive(Default)]
pub(super) struct Deciding {
    /// How calls begin in the model's tokens, once that was asked for.
    opening: OnceCell<Option<Opening>>,
}

impl Deciding {
    /// How calls begin, where the model decides whether to call. Without a vocabulary, the engine's is read.
    pub(super) fn opening(
        &self,
        vocabulary: Option<&Vocabulary>,
        engine: &dyn Engine,
        format: &Format,
        request: &AnswerRequest,
    ) -> Option<&Opening> {
        if engine.server().is_some() || !decides(request) {
            return None;
        }
        self.known(vocabulary, engine, format)
    }

    fn known(&self, vocabulary: Option<&Vocabulary>, engine: &dyn Engine, format: &Format) -> Option<&Opening> {
        let read = || {
            let vocabulary = vocabulary.cloned().or_else(|| Some(engine.vocabulary()?()))?;
            Opening::new(&vocabulary, format)
        };
        self.opening.get_or_init(read).as_ref()
    }

    /// Returns whether the model, which has read the prompt, would begin with text rather than with a call.
    pub(super) fn prefers_text(&self, vocabulary: Option<&Vocabulary>, engine: &dyn Engine, format: &Format) -> bool {
        self.known(vocabulary, engine, format).is_some_and(|opening| !opening.is_likely(engine.logits(0)))
    }
}

/// Returns whether the model decides whether an answer has a call.
fn decides(request: &AnswerRequest) -> bool {
    let options = &request.options;
    !request.tools.is_empty() && options.tool_choice == ToolChoice::Auto && options.grammar.is_none()
}

/// How many tokens the decision of an answer decodes in advance, at most.
pub(super) fn ahead(format: &Format, request: &AnswerRequest) -> usize {
    let options = &request.options;
    let measures = measures(options) || options.call_threshold.is_some() || options.no_call_below.is_some();
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
    Decision::new(opening, (measures(options), reads_others(options)), thresholds, thinking)
}

/// Returns whether the probability of a call is asked for.
fn measures(options: &Options) -> bool {
    options.measure_call || options.explain
}

/// Returns whether calls in other forms than the format's are read.
pub(super) fn reads_others(options: &Options) -> bool {
    options.other_forms == OtherForms::Read
}
