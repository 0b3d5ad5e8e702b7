//! Executes calls of an answer.

use super::call::CallOutcome;
use super::messages;
use super::run::Run;
use crate::agent::exec::{Failure, FailureKind, first_of_same};
use crate::agent::turn::Step;
use crate::message::ToolCall;
use crate::session::FinishReason;
use crate::session::event::{Event, Note, ToolResult};
use crate::session::record::Entry;
use crate::session::select::FIND_TOOLS;
use crate::{Error, ErrorKind, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// The calls to execute, and which of them are executed once for several.
struct Batch {
    calls: Vec<ToolCall>,
    /// For each call the id of the same call that is executed in its place, if there is one.
    same_as: Vec<Option<String>>,
    /// The result of the only call, if the same call was executed before.
    known: Option<Result<String, Failure>>,
}

impl Batch {
    /// `ran` are the calls of the answer that were executed before.
    fn new(calls: Vec<ToolCall>, ran: &[(ToolCall, Result<String, Failure>)]) -> Batch {
        // A regenerated call may be identical to another one of the answer, which has run.
        let before = match calls.as_slice() {
            [call] => ran
                .iter()
                .find(|(ran, _)| ran.id != call.id && ran.name == call.name && ran.arguments == call.arguments),
            _ => None,
        };
        let id = |call: &ToolCall| call.id.clone().unwrap_or_default();
        let first = first_of_same(&calls);
        let same_as = match before {
            Some((ran, _)) => vec![Some(id(ran))],
            None => (0..calls.len()).map(|index| (first[index] != index).then(|| id(&calls[first[index]]))).collect(),
        };
        Batch { known: before.map(|(_, result)| result.clone()), calls, same_as }
    }

    /// The event of a result.
    fn event(&self, index: usize, result: &Result<String, Failure>, started: Instant) -> Event {
        let call = &self.calls[index];
        let content = match result {
            Ok(text) => text.clone(),
            Err(failure) => messages::failed(failure),
        };
        Event::ToolResult(ToolResult {
            id: call.id.clone().unwrap_or_default(),
            name: call.name.clone(),
            ok: result.is_ok(),
            content,
            failure: result.as_ref().err().map(|failure| failure.kind),
            same_as: self.same_as[index].clone(),
            seconds: started.elapsed().as_millis() as f64 / 1e3,
        })
    }
}

impl Run<'_> {
    /// Executes calls of the answer.
    ///
    /// # Errors
    /// [`ErrorKind::Engine`] if the answer has no call of that index.
    pub(super) fn execute(&mut self, indices: &[usize]) -> Result<Step> {
        let call = |&index: &usize| {
            let state = self.turn.calls().get(index).ok_or_else(|| {
                Error::new(ErrorKind::Engine, format!("the answer has no call {index}, which is to be executed"))
            })?;
            Ok(state.call.clone())
        };
        let calls = indices.iter().map(call).collect::<Result<Vec<_>>>()?;
        self.executed = true;
        let cancel = Arc::clone(&self.session.options.cancel);
        let started = Instant::now();
        let batch = Batch::new(calls, self.answer.as_ref().map_or(&[], |answer| answer.ran.as_slice()));
        if let Some(finder) = self.session.finder() {
            self.agent.executor.add(FIND_TOOLS, finder);
        }
        let on_event = &mut *self.on_event;
        let mut show = |index: usize, result: &Result<String, Failure>| {
            if !left_open(result) {
                on_event(&batch.event(index, result, started));
            }
        };
        let results = match &batch.known {
            Some(result) => {
                show(0, result);
                vec![result.clone()]
            }
            None => self.agent.executor.run(&self.session.tools, &batch.calls, &cancel, &mut show),
        };
        self.note_repeated(&batch);
        if batch.known.is_none()
            && let Err(error) = self.session.recording.entry(|| Entry::Executed(results.clone()))
        {
            self.note("record", error.to_string());
        }
        let interrupted =
            |result: &Result<String, _>| matches!(result, Err(Failure { kind: FailureKind::Cancelled, .. }));
        let cancelled = cancel.load(Ordering::Relaxed) || results.iter().any(interrupted);
        if batch.known.is_none()
            && let Some(answer) = &mut self.answer
        {
            let ran = batch.calls.iter().zip(&results).filter(|(_, result)| !left_open(result));
            answer.ran.extend(ran.map(|(call, result)| (call.clone(), result.clone())));
        }
        let outcomes = self.outcomes(indices, results);
        if cancelled {
            self.finish = FinishReason::Cancelled;
            return Ok(self.turn.cancelled(outcomes));
        }
        if outcomes.iter().any(|(_, outcome)| *outcome == CallOutcome::LeftOpen) {
            self.finish = FinishReason::ToolCalls;
        }
        Ok(self.turn.executed(outcomes))
    }

    /// The outcomes of calls from their results. Failures are kept for the failure log, and the success of a fallback
    /// model is counted.
    fn outcomes(&mut self, indices: &[usize], results: Vec<Result<String, Failure>>) -> Vec<(usize, CallOutcome)> {
        let fallback = self.fallback.take();
        let (model, step) = match &fallback {
            Some((model, _)) => (model.clone(), "fallback"),
            None => (self.own.clone(), "executed"),
        };
        let mut outcomes = Vec::with_capacity(results.len());
        for (&index, result) in indices.iter().zip(results) {
            if left_open(&result) {
                outcomes.push((index, CallOutcome::LeftOpen));
                continue;
            }
            if let (Some((model, tool)), Some(fallbacks)) = (&fallback, &mut self.agent.fallbacks)
                && let Err(error) = fallbacks.count_result(model, tool, result.is_ok())
            {
                self.note("fallback", error.to_string());
            }
            let outcome = match result {
                Ok(text) => CallOutcome::Done(text),
                Err(failure) => {
                    let error = messages::failed(&failure);
                    if let Some(call) = self.turn.calls().get(index) {
                        let failed = call.clone().failed(failure.fault(), &*error);
                        let conversation = Arc::clone(&self.session.messages);
                        self.attempt(&failed, failure.message.clone(), model.clone(), step, &conversation);
                    }
                    CallOutcome::failed(failure.fault(), error)
                }
            };
            outcomes.push((index, outcome));
        }
        outcomes
    }

    /// Notes the calls that were executed once for several.
    fn note_repeated(&mut self, batch: &Batch) {
        for (call, same_as) in batch.calls.iter().zip(&batch.same_as) {
            let Some(same_as) = same_as else { continue };
            let id = call.id.as_deref().unwrap_or_default();
            let text = format!("{id} {}: the same call as {same_as}, which ran once for both", call.name);
            let mut note = Note::plain("repeated", text);
            note.call.clone_from(&call.id);
            self.notes.push(note);
        }
    }
}

/// Whether a call is left to the caller of the run.
fn left_open(result: &Result<String, Failure>) -> bool {
    matches!(result, Err(Failure { kind: FailureKind::LeftOpen, .. }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::Agent;
    use crate::agent::turn::Limits;
    use crate::engine::ModelInfo;
    use crate::engine::scripted::ScriptedEngine;
    use crate::session::Session;

    #[test]
    fn a_call_that_the_answer_does_not_have_is_an_error_and_no_other_call_runs() {
        let engine = ScriptedEngine::from_texts(ModelInfo { context_train: 4096, ..ModelInfo::default() }, []);
        let mut session = Session::builder().engine(engine).build().unwrap();
        let (mut agent, mut events) = (Agent::default(), Vec::new());
        let mut on_event = |event: &Event| events.push(event.clone());
        let mut run = Run::new(&mut session, &mut agent, Limits::default(), &mut on_event);
        let error = run.execute(&[0]).expect_err("there are no calls");
        assert_eq!(error.message(), "the answer has no call 0, which is to be executed");
        assert!(!run.executed && events.is_empty());
    }
}
