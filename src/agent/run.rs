//! A run: from the question to the answer, with tools executed on the way. [`Turn`] decides, this does.
//!
//! The conversation grows by whole steps only: an answer with calls joins it together with all of their results. So it
//! is valid whatever happens, and can be gone on with after an error or an interruption. Only calls that are left to the
//! caller ([`FailureKind::LeftOpen`]) have no result; the caller adds it before the next run.

use super::open::{Open, OpenCall};
use super::rescue::Fallbacks;
use super::tell;
use crate::agent::exec::{Executor, Failure, FailureKind, first_of_same};
use crate::agent::fallback::{Attempt, log_failure};
use crate::agent::turn::{Fault, FinishReason, Limits, Proposed, Ran, Reason, Status, Step, Told, Turn};
use crate::generate::Usage;
use crate::message::{Message, ToolCall};
use crate::parse::ParsedCall;
use crate::session::event::{Cut, Done, Event, ModelUsage, Note, Outcome, RetryStep, ToolResult, WithoutTools};
use crate::session::record::Entry;
use crate::session::{Session, ToolChoice};
use crate::tool::CallProblem;
use crate::{Error, ErrorKind, Result};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// What a run has at its disposal.
#[derive(Default)]
pub struct Agent {
    /// Runs the tools.
    pub executor: Executor,
    /// What the run may do. The number of fallback models is that of [`Agent::fallbacks`].
    pub limits: Limits,
    /// Models that help where a call keeps failing.
    pub fallbacks: Option<Fallbacks>,
    /// Where the attempts are written when a call was given up.
    pub failure_log: Option<PathBuf>,
}

impl Session {
    /// Adds a user message and runs: see [`Session::run`].
    ///
    /// # Errors
    /// Those of [`Session::run`]; where nothing was answered yet the conversation is then as it was.
    pub fn ask_and_run(&mut self, prompt: impl Into<String>, agent: &mut Agent) -> Result<Outcome> {
        let before = self.messages.len();
        self.push_message(Message::user(prompt));
        let outcome = self.run(agent, &mut |_| ());
        if outcome.is_err() && self.messages.len() == before + 1 {
            self.messages_mut().pop();
        }
        outcome
    }

    /// Lets the model speak, executes what it calls, and so on until it has answered.
    ///
    /// A call that is incomplete or invalid is never executed. The model gets the error of a failed call, and where that does
    /// not help, the call is recovered as [`crate::agent::turn`] says. Each answer with calls joins the conversation together with all of
    /// their results, so that the conversation is valid whatever happens. Where [`Executor::by_hand`] leaves calls to the
    /// caller, the run ends with [`Status::ToolCalls`], and the conversation waits for their results.
    ///
    /// # Errors
    /// Those of [`Session::respond`] where the first answer fails; the conversation is then as it was. An answer that
    /// fails later ends the run with [`Status::Error`]: what was executed before it is in the conversation, and the
    /// outcome carries the error. [`ErrorKind::Config`] where a recorded run is given fallback models.
    pub fn run(&mut self, agent: &mut Agent, on_event: &mut dyn FnMut(&Event)) -> Result<Outcome> {
        if self.recorder.is_some() && agent.fallbacks.is_some() {
            return Err(Error::new(ErrorKind::Config, "a run with fallback models cannot be recorded")
                .hint("a recording holds what one model says"));
        }
        let mut limits = agent.limits.clone();
        let own = self.engine.model().name.clone();
        limits.fallback_models = agent.fallbacks.as_ref().map_or(0, |fallbacks| fallbacks.count(&own));
        if let Some(recorder) = &mut self.recorder {
            recorder.beside(&Entry::Run(limits.clone()))?;
        }
        if let Some(fallbacks) = &mut agent.fallbacks {
            fallbacks.begin();
        }
        let mut run = Run {
            turn: Turn::new(limits),
            own,
            open: None,
            executed: false,
            failure: None,
            finish: FinishReason::Stop,
            cut: None,
            usage: Vec::new(),
            notes: Vec::new(),
            attempts: Vec::new(),
            asked: None,
            ladder: Vec::new(),
            session: self,
            agent,
            on_event,
        };
        let ended = match run.drive() {
            Ok(status) => Ok(run.stop(status)),
            Err(error) if run.usage.is_empty() => {
                (run.on_event)(&Event::failed(&error, Some(Status::Error)));
                Err(error)
            }
            Err(error) => Ok(run.fail(error)),
        };
        if let Some(fallbacks) = &mut agent.fallbacks {
            fallbacks.end();
        }
        ended
    }
}

pub(super) struct Run<'a> {
    pub session: &'a mut Session,
    pub agent: &'a mut Agent,
    pub on_event: &'a mut dyn FnMut(&Event),
    pub turn: Turn,
    pub own: String,
    pub open: Option<Open>,
    /// Whether a call was executed.
    executed: bool,
    pub finish: FinishReason,
    /// What cut the last answer off.
    cut: Option<Cut>,
    usage: Vec<ModelUsage>,
    pub notes: Vec<Note>,
    pub attempts: Vec<Attempt>,
    /// The fallback model whose call is being executed, and for which tool.
    pub asked: Option<(String, String)>,
    /// The fallback models in the order in which they are asked for the call at hand.
    pub ladder: Vec<String>,
    /// The original error of the call that was given up.
    failure: Option<String>,
}

impl Run<'_> {
    fn drive(&mut self) -> Result<Status> {
        let mut step = Step::Generate;
        loop {
            step = match step {
                Step::Generate => self.generate(None)?,
                Step::Retry(told) => {
                    self.tell(&told);
                    self.generate(None)?
                }
                Step::Answer(reason) => {
                    let message = match reason {
                        Reason::Loop => tell::LOOP.to_owned(),
                        Reason::ToolFailed => {
                            self.failure = self.open.as_ref().and_then(Open::failure);
                            self.failure.clone().unwrap_or_default()
                        }
                    };
                    (self.on_event)(&Event::without_tools(WithoutTools { reason, message }));
                    if reason == Reason::Loop {
                        self.note("loop", tell::LOOP.to_owned());
                    }
                    self.generate(Some(reason))?
                }
                Step::Execute(calls) => self.execute(&calls),
                Step::Regenerate(call) => self.regenerate(call),
                Step::FallBack { call, model, attempt } => self.fall_back(call, model, attempt),
                Step::Stop(status) => return Ok(status),
            };
        }
    }

    /// The model's next answer; without tools where there is a reason for that.
    fn generate(&mut self, without_tools: Option<Reason>) -> Result<Step> {
        self.commit();
        let mut request = self.session.request()?;
        let options = &mut request.options;
        options.max_calls.get_or_insert(self.agent.limits.max_calls);
        if without_tools.is_some() {
            options.tool_choice = ToolChoice::None;
        } else if self.executed && options.tool_choice != ToolChoice::None {
            // A call was required, and made; more would be required without end.
            options.tool_choice = ToolChoice::Auto;
        }
        let reply = self.session.answer(&request, self.on_event)?;
        self.spent(None, reply.usage);
        self.notes.extend(reply.notes);
        self.finish = reply.finish_reason;
        self.cut = reply.cut;
        let most = request.options.max_calls.unwrap_or(usize::MAX);
        if reply.calls.len() >= most && self.session.options.max_calls.is_none() {
            self.note("answer", format!("the answer was ended after {most} calls"));
        }
        let mut calls = Vec::with_capacity(reply.calls.len());
        let mut proposed = Vec::with_capacity(reply.calls.len());
        for (call, parsed) in reply.message.tool_calls.iter().zip(&reply.calls) {
            let forbidden = request.options.tool_choice == ToolChoice::None;
            let fault = if forbidden { Some(Fault::Tool) } else { fault(parsed, &request.tools) };
            let came = fault.map(|fault| Err(tell::not_executed(parsed, fault)));
            if let (Some(fault), Some(Err(error))) = (fault, &came) {
                let attempt = Attempt {
                    call: parsed.id.clone(),
                    tool: parsed.name.clone(),
                    model: self.own.clone(),
                    step: "answer",
                    written: parsed.raw.clone(),
                    fault,
                    error: error.clone(),
                    messages: kept(&self.agent.failure_log, &request.messages),
                };
                self.attempts.push(attempt);
            }
            proposed.push(Proposed { tool: parsed.name.clone(), arguments: parsed.arguments.to_text(), fault });
            calls.push(OpenCall {
                call: call.clone(),
                came,
                original: None,
                left_open: false,
                remark: None,
                written: parsed.raw.clone(),
            });
        }
        self.open = Some(Open { message: reply.message, calls, ran: Vec::new() });
        Ok(self.turn.generated(reply.finish_reason, proposed))
    }

    /// Executes calls of the open answer.
    fn execute(&mut self, indices: &[usize]) -> Step {
        let Some(open) = &mut self.open else { return self.turn.executed(Vec::new()) };
        let known = indices.iter().filter_map(|&index| Some((index, open.calls.get(index)?.call.clone())));
        let (indices, calls): (Vec<usize>, Vec<ToolCall>) = known.unzip();
        self.executed = true;
        let cancel = Arc::clone(&self.session.options.cancel);
        let started = Instant::now();
        let on_event = &mut *self.on_event;
        let first = first_of_same(&calls);
        let id = |index: usize| calls[index].id.clone().unwrap_or_default();
        // A regenerated call may be identical to another one of the answer, which has run.
        let before = match calls.as_slice() {
            [call] => open
                .ran
                .iter()
                .find(|(ran, _)| ran.id != call.id && ran.name == call.name && ran.arguments == call.arguments),
            _ => None,
        };
        let same_as = |index: usize| match before {
            Some((ran, _)) => Some(ran.id.clone().unwrap_or_default()),
            None => (first[index] != index).then(|| id(first[index])),
        };
        let mut show = |index: usize, result: &Result<String, Failure>| {
            if left_open(result) {
                return;
            }
            let call = &calls[index];
            let content = match result {
                Ok(text) => text.clone(),
                Err(failure) => tell::failed(failure),
            };
            on_event(&Event::tool_result(ToolResult {
                id: id(index),
                name: call.name.clone(),
                ok: result.is_ok(),
                content,
                failure: result.as_ref().err().map(|failure| failure.kind),
                same_as: same_as(index),
                seconds: started.elapsed().as_millis() as f64 / 1e3,
            }));
        };
        let results = match before {
            Some((_, result)) => {
                show(0, result);
                vec![result.clone()]
            }
            None => self.agent.executor.run(&self.session.tools, &calls, &cancel, &mut show),
        };
        for (index, call) in calls.iter().enumerate() {
            let Some(same_as) = same_as(index) else { continue };
            self.notes.push(Note {
                call: call.id.clone(),
                ..Note::plain(
                    "repeated",
                    format!("{} {}: the same call as {same_as}, which ran once for both", id(index), call.name),
                )
            });
        }
        let ran_before = before.is_some();
        if !ran_before
            && let Some(recorder) = &mut self.session.recorder
            && let Err(error) = recorder.beside(&Entry::Executed(results.clone()))
        {
            self.notes.push(Note::plain("record", error.to_string()));
        }
        let interrupted =
            |result: &Result<String, _>| matches!(result, Err(Failure { kind: FailureKind::Cancelled, .. }));
        let cancelled = cancel.load(Ordering::Relaxed) || results.iter().any(interrupted);
        let asked = self.asked.take();
        let (model, step) = match &asked {
            Some((model, _)) => (model.clone(), "fallback"),
            None => (self.own.clone(), "executed"),
        };
        let mut ran = Vec::with_capacity(results.len());
        let mut answered_by_the_caller = false;
        for (&index, result) in indices.iter().zip(results) {
            if !ran_before && !left_open(&result) {
                open.ran.push((open.calls[index].call.clone(), result.clone()));
            }
            let open = &mut open.calls[index];
            if left_open(&result) {
                open.left_open = true;
                answered_by_the_caller = true;
                continue;
            }
            if let (Some((model, tool)), Some(fallbacks)) = (&asked, &mut self.agent.fallbacks)
                && let Err(error) = fallbacks.learned(model, tool, result.is_ok())
            {
                self.notes.push(Note::plain("fallback", error.to_string()));
            }
            match result {
                Ok(result) => {
                    open.came = Some(Ok(result.clone()));
                    ran.push((index, Ran::Done(result)));
                }
                Err(failure) => {
                    self.attempts.push(Attempt {
                        call: open.call.id.clone().unwrap_or_default(),
                        tool: open.call.name.clone(),
                        model: model.clone(),
                        step,
                        written: open.written.clone(),
                        fault: failure.fault(),
                        error: failure.message.clone(),
                        messages: kept(&self.agent.failure_log, &self.session.messages),
                    });
                    open.came = Some(Err(tell::failed(&failure)));
                    ran.push((index, Ran::Failed(failure.fault())));
                }
            }
        }
        if cancelled {
            self.finish = FinishReason::Cancelled;
            return self.turn.cancelled();
        }
        if answered_by_the_caller {
            self.finish = FinishReason::ToolCalls;
            return self.turn.left_open();
        }
        self.turn.executed(ran)
    }

    /// Tells the model what to do differently; the advice is in the results.
    fn tell(&mut self, told: &[Told]) {
        let Some(open) = &mut self.open else { return };
        for told in told {
            let (index, step, failed, remark) = match told {
                Told::Failed { call, fault, failures } => (*call, "told", Some((*fault, *failures)), None),
                Told::Unavailable { call } => (*call, "unavailable", None, Some(tell::UNAVAILABLE)),
                Told::Repeated { call } => (*call, "repeated", None, Some(tell::REPEATED)),
            };
            let Some(call) = open.calls.get_mut(index) else { continue };
            call.remark = remark;
            (self.on_event)(&Event::retry(RetryStep {
                id: call.call.id.clone().unwrap_or_default(),
                tool: call.call.name.clone(),
                step,
                fault: failed.map(|(fault, _)| fault),
                failures: failed.map(|(_, failures)| failures),
                arguments: None,
                message: if step == "repeated" { tell::REPEATED.to_owned() } else { call.content() },
            }));
        }
    }

    /// The open answer joins the conversation, with the results of its calls.
    fn commit(&mut self) {
        let settled = self.open.take().into_iter().flat_map(Open::settled);
        self.session.messages_mut().extend(settled);
    }

    fn stop(&mut self, status: Status) -> Outcome {
        let failure = match status {
            Status::ToolFailed => self.failure.take().or_else(|| self.open.as_ref().and_then(Open::failure)),
            _ => None,
        };
        if status == Status::Done && self.open.as_ref().is_some_and(|open| open.message.content.trim().is_empty()) {
            self.note("answer", tell::EMPTY.to_owned());
        }
        self.commit();
        if let (Some(failure), Some(folder)) = (&failure, &self.agent.failure_log) {
            match log_failure(folder, failure, &self.attempts) {
                Ok(path) => self.note("failure_log", format!("what was tried is in {}", path.display())),
                Err(error) => self.note("failure_log", error.to_string()),
            }
        }
        (self.on_event)(&Event::done(Done { finish_reason: self.finish, status: Some(status), error: None }));
        self.outcome(status, failure, None)
    }

    /// The end of a run in which an answer could not be generated.
    fn fail(&mut self, error: Error) -> Outcome {
        self.finish = FinishReason::Error;
        (self.on_event)(&Event::failed(&error, Some(Status::Error)));
        self.outcome(Status::Error, Some(error.to_string()), Some(error))
    }

    fn outcome(&mut self, status: Status, failure: Option<String>, error: Option<Error>) -> Outcome {
        Outcome {
            status,
            finish_reason: self.finish,
            cut: self.cut,
            models: std::mem::take(&mut self.usage),
            notes: std::mem::take(&mut self.notes),
            failure,
            error,
        }
    }

    pub(super) fn note(&mut self, kind: &'static str, message: String) {
        self.notes.push(Note::plain(kind, message));
    }

    /// Counts what a model took.
    pub(super) fn spent(&mut self, model: Option<&str>, usage: Usage) {
        let name = model.unwrap_or(&self.own);
        if model.is_some() {
            (self.on_event)(&Event::usage(usage, Some(name.to_owned())));
        }
        match self.usage.iter_mut().find(|spent| spent.model == name) {
            Some(spent) => spent.add(usage),
            None => self.usage.push(ModelUsage { model: name.to_owned(), answers: 1, usage }),
        }
    }
}

/// The conversation for the failure log, where there is one.
pub(super) fn kept(log: &Option<PathBuf>, messages: &[Message]) -> Vec<Message> {
    if log.is_some() { messages.to_vec() } else { Vec::new() }
}

/// Whether a call is left to the caller of the run.
fn left_open(result: &Result<String, Failure>) -> bool {
    matches!(result, Err(Failure { kind: FailureKind::LeftOpen, .. }))
}

/// What is wrong with a call, if anything is.
pub(super) fn fault(call: &ParsedCall, tools: &crate::Tools) -> Option<Fault> {
    if call.is_runnable() {
        return None;
    }
    Some(match call.problems.iter().any(CallProblem::is_schema_violation) {
        _ if !call.is_whole() => Fault::Format,
        // Also of a call whose arguments are broken, which the parser does not report as unknown.
        _ if tools.get(&call.name).is_none() => Fault::UnknownTool,
        true => Fault::Schema,
        false => Fault::Format,
    })
}

impl Outcome {
    /// The run as a result: an error where it did not end with an answer.
    ///
    /// # Errors
    /// What ended the run where an answer could not be generated; otherwise [`ErrorKind::Engine`] with the original
    /// error of the tool, or with what ended the run.
    pub fn ok(self) -> Result<Outcome> {
        if self.status == Status::Done {
            return Ok(self);
        }
        let message = self.failure.unwrap_or_else(|| self.status.to_string());
        Err(self.error.unwrap_or_else(|| Error::new(ErrorKind::Engine, message)))
    }
}
