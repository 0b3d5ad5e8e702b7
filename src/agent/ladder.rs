//! The ladder of a call that keeps failing: generated alone under the grammar, asked of fallback models.

use super::open::Open;
use super::rescue::{Asked, alone, recent};
use super::run::{Run, fault, kept};
use super::tell;
use crate::agent::fallback::Attempt;
use crate::agent::turn::{Fell, FinishReason, Proposed, Step};
use crate::constraint::Mode;
use crate::message::Message;
use crate::parse::ParsedCall;
use crate::session::ToolChoice;
use crate::session::event::{Event, FallbackStep, Note, RetryStep};
use crate::session::prompt::AnswerRequest;
use std::sync::Arc;

impl Run<'_> {
    /// Generates one call alone, under the grammar.
    pub(super) fn regenerate(&mut self, index: usize) -> Step {
        let failing = self.open.as_mut().and_then(|open| open.failing(index));
        let Some((call, error)) = failing else { return self.turn.regenerated(None) };
        let messages = self.with_open(self.session.messages.to_vec());
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
                    return self.turn.cancelled();
                }
                reply.calls.into_iter().next()
            }
            Err(error) => {
                self.note("retry", format!("{} could not be called again: {error}", call.name));
                None
            }
        };
        let proposed = parsed.map(|parsed| self.replace(index, &parsed, "regenerated", &self.own.clone(), &request));
        let id = call.id.unwrap_or_default();
        (self.on_event)(&Event::retry(RetryStep {
            id,
            tool: call.name,
            step: "regenerated",
            fault: None,
            failures: None,
            arguments: proposed.as_ref().map(|proposed| proposed.arguments.clone()),
            message: error,
        }));
        self.turn.regenerated(proposed)
    }

    /// Asks a fallback model for one call.
    pub(super) fn fall_back(&mut self, index: usize, place: usize, attempt: usize) -> Step {
        let failing = self.open.as_mut().and_then(|open| open.failing(index));
        let Some((call, error)) = failing else { return self.turn.fell_back(Fell::Nothing) };
        let messages = self.with_open(recent(&self.session.messages));
        let mut request = self.forced(messages, &call.name);
        let Some(fallbacks) = &mut self.agent.fallbacks else { return self.turn.fell_back(Fell::Exhausted) };
        if (place, attempt) == (0, 0) {
            // Once for a call: what is learned on the way must not change whose turn it is.
            self.ladder = fallbacks.order(&self.own, &call.name);
        }
        let Some(model) = self.ladder.get(place).cloned() else { return self.turn.fell_back(Fell::Exhausted) };
        let step = |outcome, arguments, message| {
            Event::fallback(FallbackStep {
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
            (self.on_event)(&step("asked", None, error));
        }
        let asked = alone(&request.tools, &call.name).and_then(|tools| {
            request.tools = tools;
            fallbacks.ask(&model, request.clone())
        });
        let reply = match asked {
            Ok(Asked::Answered(reply)) => *reply,
            Ok(Asked::Exhausted) => {
                (self.on_event)(&step("exhausted", None, tell::EXHAUSTED.to_owned()));
                return self.turn.fell_back(Fell::Exhausted);
            }
            Err(error) => {
                (self.on_event)(&step("unavailable", None, error.to_string()));
                self.notes.push(Note::plain("fallback", format!("{model}: {error}")));
                return self.turn.fell_back(Fell::Unavailable);
            }
        };
        self.spent(Some(&model), reply.usage);
        let of_model = |note: Note| Note { message: format!("{model}: {}", note.message), ..note };
        self.notes.extend(reply.notes.into_iter().map(of_model));
        if !self.session.options.logit_bias.is_empty() {
            let message = format!("{model}: logit_bias is not used for it: its tokens have other ids");
            if !self.notes.iter().any(|note| note.message == message) {
                self.note("fallback", message);
            }
        }
        if reply.finish_reason == FinishReason::Cancelled {
            self.finish = FinishReason::Cancelled;
            return self.turn.cancelled();
        }
        let Some(parsed) = reply.calls.into_iter().next() else {
            (self.on_event)(&step("failed", None, tell::NO_CALL.to_owned()));
            return self.turn.fell_back(Fell::Nothing);
        };
        let proposed = self.replace(index, &parsed, "fallback", &model, &request);
        let outcome = if proposed.fault.is_none() { "called" } else { "failed" };
        (self.on_event)(&step(outcome, Some(proposed.arguments.clone()), parsed.error_text()));
        if proposed.fault.is_none() {
            self.asked = Some((model, call.name));
        } else if let Some(fallbacks) = &mut self.agent.fallbacks
            && let Err(error) = fallbacks.learned(&model, &call.name, false)
        {
            self.notes.push(Note::plain("fallback", error.to_string()));
        }
        self.turn.fell_back(Fell::Called(proposed))
    }

    /// Puts another call in the place of a failing one; its id stays.
    fn replace(
        &mut self,
        index: usize,
        parsed: &ParsedCall,
        step: &'static str,
        model: &str,
        request: &AnswerRequest,
    ) -> Proposed {
        let fault = fault(parsed, &request.tools);
        let error = fault.map(|fault| tell::not_executed(parsed, fault));
        if let Some(open) = self.open.as_mut().and_then(|open| open.calls.get_mut(index)) {
            open.written.clone_from(&parsed.raw);
            open.call.arguments = parsed.arguments.clone();
            if fault.is_none() {
                open.call.name.clone_from(&parsed.name);
            }
            if let Some((fault, error)) = fault.zip(error) {
                self.attempts.push(Attempt {
                    call: open.call.id.clone().unwrap_or_default(),
                    tool: open.call.name.clone(),
                    model: model.to_owned(),
                    step,
                    written: parsed.raw.clone(),
                    fault,
                    error: error.clone(),
                    messages: kept(&self.agent.failure_log, &request.messages),
                });
                open.came = Some(Err(error));
            }
        }
        Proposed { tool: parsed.name.clone(), arguments: parsed.arguments.to_text(), fault }
    }

    /// A conversation with the open answer and what its calls have come to.
    fn with_open(&self, mut messages: Vec<Message>) -> Vec<Message> {
        messages.extend(self.open.iter().flat_map(Open::so_far));
        messages
    }

    /// One call of a tool and nothing else, or of any tool where there is none of that name.
    fn forced(&self, messages: Vec<Message>, tool: &str) -> AnswerRequest {
        let session = &self.session;
        let mut options = session.options.clone();
        options.tool_choice = match session.tools.get(tool) {
            Some(_) => ToolChoice::Tool(tool.to_owned()),
            None => ToolChoice::Required,
        };
        options.constrain = Mode::Strict;
        options.grammar = None;
        options.response_format = None;
        options.max_calls = Some(1);
        options.max_preamble = 0;
        AnswerRequest::new(messages, Arc::clone(&session.tools), options)
    }
}
