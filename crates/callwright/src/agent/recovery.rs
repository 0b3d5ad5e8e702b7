//! Recovery of a call that keeps failing: it is generated alone under the grammar, then by fallback models.

use super::call::CallState;
use super::messages;
use super::other_models::{alone, recent};
use super::run::{Run, fault};
use crate::agent::turn::{FallbackResult, Step};
use crate::constraint::Mode;
use crate::message::{Message, ToolCall};
use crate::parse::ParsedCall;
use crate::session::FinishReason;
use crate::session::ToolChoice;
use crate::session::event::{Event, Fallback, FallbackStep, Note, NoteKind, Reply, Retry, RetryStep};
use crate::session::prompt::AnswerRequest;

impl Run<'_> {
    /// Generates one call alone, under the grammar.
    pub(super) fn regenerate(&mut self, index: usize) -> Step {
        let Some((call, error)) = self.failing(index) else { return self.turn.regenerated(None) };
        let messages = self.with_answer(self.session.messages.to_vec());
        let request = self.forced(messages, &call.name);
        let on_event = &mut *self.on_event;
        // The call is reported when it is complete.
        let reply = self.session.answer(&request, &mut |event| {
            if !matches!(event, Event::Parsed(_)) {
                on_event(event);
            }
        });
        let parsed = match reply {
            Ok(reply) => {
                self.spent(None, reply.usage);
                self.notes.extend(reply.notes);
                if reply.finish_reason == FinishReason::Cancelled {
                    self.finish = FinishReason::Cancelled;
                    return self.turn.cancelled(Vec::new());
                }
                reply.calls.into_iter().next()
            }
            Err(error) => {
                self.note(NoteKind::Retry, format!("{} could not be called again: {error}", call.name));
                None
            }
        };
        let own = self.own.clone();
        let other = parsed.map(|parsed| self.other_call(index, &parsed, "regenerated", &own, &request));
        (self.on_event)(&Event::Retry(RetryStep {
            id: call.id.unwrap_or_default(),
            tool: call.name,
            step: Retry::Regenerated,
            fault: None,
            failures: None,
            arguments: other.as_ref().map(|other| other.call.arguments.to_text()),
            message: error,
        }));
        self.turn.regenerated(other)
    }

    /// Lets a fallback model write one call.
    pub(super) fn fall_back(&mut self, index: usize, place: usize, attempt: usize) -> Step {
        let Some((call, error)) = self.failing(index) else { return self.turn.fell_back(FallbackResult::NoCall) };
        let messages = self.with_answer(recent(&self.session.messages));
        let mut request = self.forced(messages, &call.name);
        let exhausted = FallbackResult::Exhausted;
        let Some(fallbacks) = &mut self.agent.fallbacks else { return self.turn.fell_back(exhausted) };
        if (place, attempt) == (0, 0) {
            // Once for a call: what is learned meanwhile must not change the order.
            self.order = fallbacks.order(&self.own, &call.name);
        }
        let Some(model) = self.order.get(place).cloned() else { return self.turn.fell_back(exhausted) };
        let step = |outcome, arguments, message| {
            Event::Fallback(FallbackStep {
                id: call.id.clone().unwrap_or_default(),
                tool: call.name.clone(),
                model: model.clone(),
                attempt: attempt + 1,
                outcome,
                arguments,
                message,
            })
        };
        if !fallbacks.exhausted() {
            (self.on_event)(&step(Fallback::Asked, None, error));
        }
        let reply = alone(&request.tools, &call.name).and_then(|tools| {
            request.tools = tools;
            fallbacks.answer(&model, request.clone())
        });
        let reply = match reply {
            Ok(Some(reply)) => reply,
            Ok(None) => {
                (self.on_event)(&step(Fallback::Exhausted, None, messages::EXHAUSTED.to_owned()));
                return self.turn.fell_back(exhausted);
            }
            Err(error) => {
                (self.on_event)(&step(Fallback::Unavailable, None, error.to_string()));
                self.note(NoteKind::Fallback, format!("{model}: {error}"));
                return self.turn.fell_back(FallbackResult::Unavailable);
            }
        };
        let finish = reply.finish_reason;
        let parsed = self.account(&model, reply);
        if finish == FinishReason::Cancelled {
            self.finish = FinishReason::Cancelled;
            return self.turn.cancelled(Vec::new());
        }
        let Some(parsed) = parsed else {
            (self.on_event)(&step(Fallback::Failed, None, messages::NO_CALL.to_owned()));
            return self.turn.fell_back(FallbackResult::NoCall);
        };
        let other = self.other_call(index, &parsed, "fallback", &model, &request);
        let outcome = if other.fault().is_none() { Fallback::Called } else { Fallback::Failed };
        (self.on_event)(&step(outcome, Some(other.call.arguments.to_text()), parsed.error_text()));
        if other.fault().is_none() {
            self.fallback = Some((model, call.name));
        } else if let Some(fallbacks) = &mut self.agent.fallbacks
            && let Err(error) = fallbacks.count_result(&model, &call.name, false)
        {
            self.note(NoteKind::Fallback, error.to_string());
        }
        self.turn.fell_back(FallbackResult::Called(other.into()))
    }

    /// Adds what a fallback model took and its notes to the run's, and returns its call.
    fn account(&mut self, model: &str, reply: Reply) -> Option<ParsedCall> {
        self.spent(Some(model), reply.usage);
        let of_model = |mut note: Note| {
            note.message.insert_str(0, &format!("{model}: "));
            note
        };
        self.notes.extend(reply.notes.into_iter().map(of_model));
        if !self.session.options.logit_bias.is_empty() {
            let message = format!("{model}: logit_bias is not used for it: its tokens have other ids");
            if !self.notes.iter().any(|note| note.message == message) {
                self.note(NoteKind::Fallback, message);
            }
        }
        reply.calls.into_iter().next()
    }

    /// The call that is to be recovered, and its error.
    fn failing(&mut self, index: usize) -> Option<(ToolCall, String)> {
        let state = self.turn.call_mut(index)?;
        state.keep_original();
        Some((state.call.clone(), state.content().to_owned()))
    }

    /// A call that was written in the place of a failing one. If it is wrong too, it is kept for the failure log.
    fn other_call(
        &mut self,
        index: usize,
        parsed: &ParsedCall,
        step: &'static str,
        model: &str,
        request: &AnswerRequest,
    ) -> CallState {
        let call =
            ToolCall { id: Some(parsed.id.clone()), name: parsed.name.clone(), arguments: parsed.arguments.clone() };
        let mut other = CallState::new(call).written_as(&parsed.raw);
        let Some(fault) = fault(parsed, &request.tools) else { return other };
        let error = messages::not_executed(parsed, fault);
        other = other.failed(fault, &*error);
        if let Some(state) = self.turn.calls().get(index) {
            let mut failed = state.clone();
            failed.replace_with(other.clone());
            self.attempt(&failed, error, model.to_owned(), step, &request.messages);
        }
        other
    }

    /// A request for one call of a tool and nothing else, or of any tool if none has this name.
    fn forced(&self, messages: Vec<Message>, tool: &str) -> AnswerRequest {
        let session = &self.session;
        let mut options = session.options.clone();
        let tools = session.shown_tools();
        options.tool_choice = match tools.get(tool) {
            Some(_) => ToolChoice::Tool(tool.to_owned()),
            None => ToolChoice::Required,
        };
        options.constrain = Mode::Strict;
        options.grammar = None;
        options.response_format = None;
        options.max_calls = Some(1);
        options.max_preamble = None;
        AnswerRequest::new(messages, tools, options)
    }
}
