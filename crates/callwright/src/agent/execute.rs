//! Executes calls of an answer.

use super::call::CallOutcome;
use super::ledger::Ledger;
use super::messages;
use super::record::Entry;
use super::run::{OTHER_FORM, Run};
use crate::agent::exec::{Approval, Failure, FailureKind, Function, first_of_same, refusal};
use crate::agent::turn::Step;
use crate::message::{Arguments, ToolCall};
use crate::session::event::{Decision, NoteKind};
use crate::session::select::FIND_TOOLS;
use crate::session::{ApprovalStep, Event, Note, PendingCall, ToolResult};
use crate::session::{FinishReason, Session};
use crate::tool::Tools;
use crate::{Error, ErrorKind, Result};
use serde_json::{Map, Value};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// The calls to execute, and which of them have a result without that.
struct Batch {
    calls: Vec<ToolCall>,
    /// For each call the id of the same call that is executed in its place, if there is one.
    same_as: Vec<Option<String>>,
    /// For each call the result of the same call that was executed before.
    known: Vec<Option<Result<String, Failure>>>,
    /// Whether a call's known result is of another answer.
    already_done: Vec<bool>,
}

impl Batch {
    /// `ran` are the calls of the answer that were executed before, and `ledger` has those of the answers before it.
    fn new(calls: Vec<ToolCall>, ran: &[(ToolCall, Result<String, Failure>)], ledger: &Ledger, tools: &Tools) -> Batch {
        let id = |call: &ToolCall| call.id.clone().unwrap_or_default();
        let first = first_of_same(&calls);
        let mut batch = Batch { same_as: Vec::new(), known: Vec::new(), already_done: Vec::new(), calls };
        for (index, call) in batch.calls.iter().enumerate() {
            // A regenerated call may be identical to another one of the answer, which has run.
            let same = |ran: &ToolCall| ran.id != call.id && ran.name == call.name && ran.arguments == call.arguments;
            let here = ran.iter().find(|(ran, _)| batch.calls.len() == 1 && same(ran));
            let earlier = ledger.earlier(tools, call).filter(|_| here.is_none());
            batch.same_as.push(match here {
                Some((ran, _)) => Some(id(ran)),
                None => (first[index] != index).then(|| id(&batch.calls[first[index]])),
            });
            batch.known.push(here.map(|(_, result)| result.clone()).or(earlier.map(|text| Ok(text.to_owned()))));
            batch.already_done.push(earlier.is_some());
        }
        batch
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
            already_done: self.already_done[index],
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
        let ran = self.answer.as_ref().map_or(&[][..], |answer| answer.ran.as_slice());
        let batch = Batch::new(calls, ran, &self.ledger, &self.session.tools);
        if let Some(finder) = self.session.finder() {
            self.agent.executor.add(FIND_TOOLS, finder);
        }
        let reader = self.session.reader_name();
        let reads: Vec<&ToolCall> = batch.calls.iter().filter(|call| call.name == reader).collect();
        if !reads.is_empty() && !self.agent.executor.repeats() {
            let results = self.session.read_results(&reads);
            let arguments = reads.iter().map(|call| call.arguments.clone());
            let known: Vec<(Arguments, String)> = arguments.zip(results).collect();
            self.agent.executor.add(reader, Known(known));
        }
        if batch.known.iter().any(Option::is_none) && self.agent.executor.is_over() {
            // The recorded run had no results yet.
            self.pending = std::mem::take(&mut self.agent.paused);
            self.finish = FinishReason::ToolCalls;
            return match self.agent.over.clone().filter(|_| self.pending.is_empty()) {
                Some(over) => Err(over),
                None => Ok(self.turn.paused(indices)),
            };
        }
        let Some(refusals) = self.refusals(indices, &batch) else { return Ok(self.turn.paused(indices)) };
        let on_event = &mut *self.on_event;
        let mut show = |index: usize, result: &Result<String, Failure>| {
            if !left_open(result) {
                on_event(&batch.event(index, result, started));
            }
        };
        let mut results = batch.known.clone();
        let to_run: Vec<usize> = (0..batch.calls.len()).filter(|&index| results[index].is_none()).collect();
        batch.known.iter().enumerate().for_each(|(index, known)| known.iter().for_each(|known| show(index, known)));
        if !to_run.is_empty() {
            let calls: Vec<ToolCall> = to_run.iter().map(|&index| batch.calls[index].clone()).collect();
            let refusals: Vec<Option<Failure>> = to_run.iter().map(|&index| refusals[index].clone()).collect();
            let Session { recording, tools, .. } = &mut *self.session;
            let executes =
                |call: &ToolCall| tools.get(&call.name).is_some_and(|tool| self.agent.executor.executes(tool));
            let begun = calls.iter().zip(&refusals).filter(|(call, refusal)| refusal.is_none() && executes(call));
            for (call, _) in begun {
                recording.step(|| Entry::Begun {
                    id: call.id.clone().unwrap_or_default(),
                    name: call.name.clone(),
                    arguments: call.arguments.to_text(),
                })?;
            }
            let mut unwritten = None;
            let mut show = |index: usize, result: &_| {
                if !left_open(result) {
                    let entry = || Entry::Called {
                        id: calls[index].id.clone().unwrap_or_default(),
                        result: result.clone().unwrap_or_else(|failure| messages::failed(&failure)),
                    };
                    unwritten = recording.step(entry).err().or(unwritten.take());
                }
                show(to_run[index], result);
            };
            let executed = self.agent.executor.run_approved(tools, &calls, &refusals, &cancel, &mut show);
            if let Some(error) = unwritten {
                self.note(NoteKind::Record, error.to_string());
            }
            if let Err(error) = self.session.recording.entry(|| Entry::Executed(executed.clone())) {
                self.note(NoteKind::Record, error.to_string());
            }
            for (call, result) in calls.iter().zip(&executed) {
                match result {
                    Ok(text) => self.ledger.succeeded(&self.session.tools, call, text),
                    Err(failure) if failure.kind == FailureKind::Refused => continue,
                    Err(_) => {}
                }
                self.ledger.count(call);
            }
            if let Some(answer) = &mut self.answer {
                let ran = calls.into_iter().zip(executed.iter().cloned()).filter(|(_, result)| !left_open(result));
                answer.ran.extend(ran);
            }
            to_run.iter().zip(executed).for_each(|(&index, result)| results[index] = Some(result));
        }
        for (&index, done) in indices.iter().zip(&batch.already_done) {
            if let Some(call) = self.turn.call_mut(index) {
                call.already_done = *done;
            }
        }
        self.note_repeated(&batch);
        let missing = || Err(Failure::new(FailureKind::NotRunnable, "the call has no result"));
        let results: Vec<_> = results.into_iter().map(|result| result.unwrap_or_else(missing)).collect();
        let interrupted =
            |result: &Result<String, _>| matches!(result, Err(Failure { kind: FailureKind::Cancelled, .. }));
        let cancelled = cancel.load(Ordering::Relaxed) || results.iter().any(interrupted);
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

    /// Asks about the calls that need approval. Returns why each call must not be executed, where it must not; `None` if
    /// the run has to wait for an approval.
    fn refusals(&mut self, indices: &[usize], batch: &Batch) -> Option<Vec<Option<Failure>>> {
        let (executor, tools) = (&self.agent.executor, &self.session.tools);
        let mut refusals: Vec<Option<Failure>> = Vec::with_capacity(batch.calls.len());
        let mut pending = Vec::new();
        let mut counted = self.ledger.clone();
        for (position, call) in batch.calls.iter().enumerate() {
            if batch.known[position].is_some() || batch.same_as[position].is_some() {
                refusals.push(None);
                continue;
            }
            let doubt = self.turn.calls().get(indices[position]).and_then(|call| call.doubt);
            let doubt = doubt.filter(|doubt| *doubt != OTHER_FORM || !self.agent.trust_other_forms);
            let (approval, why) = executor.approval(tools, call, doubt);
            let seen = approval == Approval::Given;
            let decision = match &approval {
                Approval::Given => Decision::Given,
                Approval::Assumed => Decision::Assumed,
                Approval::Denied(_) => Decision::Denied,
                Approval::Undecided => Decision::Pending,
            };
            if !why.is_empty() {
                let call = PendingCall::new(call, why);
                pending.extend(Some(&call).filter(|_| approval == Approval::Undecided).cloned());
                (self.on_event)(&Event::Approval(ApprovalStep { call, decision }));
            }
            let limit = tools.get(&call.name).filter(|_| !executor.repeats());
            let limit = limit.and_then(|tool| counted.limit(tool, seen, self.agent.limits.max_calls_per_run));
            let refusal = limit.map(|most| too_many(call, most)).or_else(|| refusal(call, approval));
            if refusal.is_none() {
                counted.count(call);
            }
            refusals.push(refusal);
        }
        if pending.is_empty() {
            return Some(refusals);
        }
        self.pending = pending;
        self.finish = FinishReason::ToolCalls;
        None
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
                self.note(NoteKind::Fallback, error.to_string());
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
            let mut note = Note::plain(NoteKind::Repeated, text);
            note.call.clone_from(&call.id);
            self.notes.push(note);
        }
    }
}

/// Results that are known before the calls are executed, by their arguments.
struct Known(Vec<(Arguments, String)>);

impl Function for Known {
    fn call(&self, arguments: Map<String, Value>) -> std::result::Result<String, String> {
        let arguments = Arguments::Object(arguments);
        let known = self.0.iter().find(|(of, _)| *of == arguments);
        Ok(known.map(|(_, result)| result.clone()).unwrap_or_default())
    }
}

/// The failure of a call beyond the number of calls that a run may make.
fn too_many(call: &ToolCall, most: usize) -> Failure {
    let times = if most == 1 { "once" } else { "often enough" };
    let message = format!("{} was not executed: it was called {times} in this run (at most {most})", call.name);
    Failure::new(FailureKind::Refused, message)
}

/// Returns whether a call is left to the caller of the run.
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
