//! A run: from the question to the answer, with tools executed on the way. [`Turn`] decides, this does.
//!
//! The conversation grows by whole steps only: an answer with calls joins it together with all of their results. So it
//! is valid whatever happens, and can be gone on with after an error or an interruption.

use super::answer::Ask;
use super::event::{Done, Event, FallbackStep, ModelUsage, Note, Outcome, Reply, RetryStep, ToolResult, WithoutTools};
use super::open::{Open, OpenCall};
use super::rescue::{Fallbacks, alone, recent};
use super::{Session, ToolChoice, tell};
use crate::engine::constraint::Mode;
use crate::engine::generate::Usage;
use crate::exec::Executor;
use crate::fallback::{Attempt, log_failure};
use crate::format::parser::ParsedCall;
use crate::message::{Message, ToolCall};
use crate::turn::{Fault, Fell, FinishReason, Limits, Proposed, Ran, Reason, Status, Step, Told, Turn};
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
        self.messages.push(Message::user(prompt));
        let outcome = self.run(agent, &mut |_| ());
        if outcome.is_err() && self.messages.len() == before + 1 {
            self.messages.pop();
        }
        outcome
    }

    /// Lets the model speak, executes what it calls, and so on until it has answered.
    ///
    /// A call that is incomplete or invalid is never executed. What failed is told to the model, and where that does
    /// not help, mended as [`crate::turn`] says. Each answer with calls joins the conversation together with all of
    /// their results, so that the conversation is valid whatever happens.
    ///
    /// # Errors
    /// Those of [`Session::respond`]. What had joined the conversation before stays there.
    pub fn run(&mut self, agent: &mut Agent, on_event: &mut dyn FnMut(&Event)) -> Result<Outcome> {
        let mut limits = agent.limits.clone();
        let own = self.engine.model().name.clone();
        limits.fallback_models = agent.fallbacks.as_ref().map_or(0, |fallbacks| fallbacks.count(&own));
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
            usage: Vec::new(),
            notes: Vec::new(),
            attempts: Vec::new(),
            asked: None,
            ladder: Vec::new(),
            session: self,
            agent,
            on_event,
        };
        let ended = run.drive();
        if let Some(fallbacks) = &mut agent.fallbacks {
            fallbacks.end();
        }
        ended
    }
}

struct Run<'a> {
    session: &'a mut Session,
    agent: &'a mut Agent,
    on_event: &'a mut dyn FnMut(&Event),
    turn: Turn,
    own: String,
    open: Option<Open>,
    /// Whether a call was executed.
    executed: bool,
    finish: FinishReason,
    usage: Vec<ModelUsage>,
    notes: Vec<Note>,
    attempts: Vec<Attempt>,
    /// The fallback model whose call is being executed, and for which tool.
    asked: Option<(String, String)>,
    /// The fallback models in the order in which they are asked for the call at hand.
    ladder: Vec<String>,
    /// The original error of the call that was given up.
    failure: Option<String>,
}

impl Run<'_> {
    fn drive(&mut self) -> Result<Outcome> {
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
                Step::Stop(status) => return self.stop(status),
            };
        }
    }

    /// The model's next answer; without tools where there is a reason for that.
    fn generate(&mut self, without_tools: Option<Reason>) -> Result<Step> {
        self.commit();
        let mut ask = self.session.turn()?;
        let options = &mut ask.options;
        options.max_calls.get_or_insert(self.agent.limits.max_calls);
        if without_tools.is_some() {
            options.tool_choice = ToolChoice::None;
        } else if self.executed && options.tool_choice != ToolChoice::None {
            // A call was required, and made; more would be required without end.
            options.tool_choice = ToolChoice::Auto;
        }
        let reply = distrust(self.session.answer(&ask, self.on_event)?);
        self.spent(None, reply.usage);
        self.notes.extend(reply.notes);
        self.finish = reply.finish_reason;
        let most = ask.options.max_calls.unwrap_or(usize::MAX);
        if reply.calls.len() >= most && self.session.options.max_calls.is_none() {
            self.note("answer", format!("the answer was ended after {most} calls"));
        }
        let mut calls = Vec::with_capacity(reply.calls.len());
        let mut proposed = Vec::with_capacity(reply.calls.len());
        for (call, parsed) in reply.message.tool_calls.iter().zip(&reply.calls) {
            let fault = fault(parsed, &ask.tools);
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
                    messages: kept(&self.agent.failure_log, &ask.messages),
                };
                self.attempts.push(attempt);
            }
            proposed.push(Proposed { tool: parsed.name.clone(), arguments: parsed.arguments.to_text(), fault });
            calls.push(OpenCall {
                call: call.clone(),
                came,
                original: None,
                remark: None,
                written: parsed.raw.clone(),
            });
        }
        self.open = Some(Open { message: reply.message, calls });
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
        let results = self.agent.executor.run(&self.session.tools, &calls, &cancel, &mut |index, result| {
            let call = &calls[index];
            let content = match result {
                Ok(text) => text.clone(),
                Err(failure) => tell::failed(failure),
            };
            on_event(&Event::tool_result(ToolResult {
                id: call.id.clone().unwrap_or_default(),
                name: call.name.clone(),
                ok: result.is_ok(),
                content,
                failure: result.as_ref().err().map(|failure| failure.kind),
                seconds: started.elapsed().as_millis() as f64 / 1e3,
            }));
        });
        let asked = self.asked.take();
        let (model, step) = match &asked {
            Some((model, _)) => (model.clone(), "fallback"),
            None => (self.own.clone(), "executed"),
        };
        let mut ran = Vec::with_capacity(results.len());
        for (&index, result) in indices.iter().zip(results) {
            let open = &mut open.calls[index];
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
        if cancel.load(Ordering::Relaxed) {
            self.finish = FinishReason::Cancelled;
            return self.turn.cancelled();
        }
        self.turn.executed(ran)
    }

    /// Generates one call alone, under the grammar.
    fn regenerate(&mut self, index: usize) -> Step {
        let failing = self.open.as_mut().and_then(|open| open.failing(index));
        let Some((call, error)) = failing else { return self.turn.regenerated(None) };
        let messages = self.with_open(self.session.messages.clone());
        let ask = self.forced(messages, &call.name);
        let on_event = &mut *self.on_event;
        // What is written for the call is told when it is whole.
        let reply = self.session.answer(&ask, &mut |event| {
            if !matches!(event, Event::Parsed(_)) {
                on_event(event);
            }
        });
        let parsed = match reply {
            Ok(reply) => {
                let reply = distrust(reply);
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
        let proposed = parsed.map(|parsed| self.replace(index, &parsed, "regenerated", &self.own.clone(), &ask));
        let id = call.id.unwrap_or_default();
        (self.on_event)(&Event::retry(RetryStep {
            id,
            tool: call.name,
            step: "regenerated",
            failures: None,
            arguments: proposed.as_ref().map(|proposed| proposed.arguments.clone()),
            message: error,
        }));
        self.turn.regenerated(proposed)
    }

    /// Asks a fallback model for one call.
    fn fall_back(&mut self, index: usize, place: usize, attempt: usize) -> Step {
        let failing = self.open.as_mut().and_then(|open| open.failing(index));
        let Some((call, error)) = failing else { return self.turn.fell_back(Fell::Nothing) };
        let messages = self.with_open(recent(&self.session.messages));
        let mut ask = self.forced(messages, &call.name);
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
        if fallbacks.exhausted() {
            (self.on_event)(&step("exhausted", None, tell::EXHAUSTED.to_owned()));
            return self.turn.fell_back(Fell::Exhausted);
        }
        (self.on_event)(&step("asked", None, error));
        let reply = alone(&ask.tools, &call.name).and_then(|tools| {
            ask.tools = tools;
            fallbacks.ask(&model, ask.clone())
        });
        let reply = match reply {
            Ok(reply) => distrust(reply),
            Err(error) => {
                (self.on_event)(&step("unavailable", None, error.to_string()));
                self.notes.push(Note::plain("fallback", format!("{model}: {error}")));
                return self.turn.fell_back(Fell::Unavailable);
            }
        };
        self.spent(Some(&model), reply.usage);
        if reply.finish_reason == FinishReason::Cancelled {
            self.finish = FinishReason::Cancelled;
            return self.turn.cancelled();
        }
        let Some(parsed) = reply.calls.into_iter().next() else {
            (self.on_event)(&step("failed", None, tell::NO_CALL.to_owned()));
            return self.turn.fell_back(Fell::Nothing);
        };
        let proposed = self.replace(index, &parsed, "fallback", &model, &ask);
        let outcome = if proposed.fault.is_none() { "called" } else { "failed" };
        (self.on_event)(&step(outcome, Some(proposed.arguments.clone()), parsed.problems.join("; ")));
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
    fn replace(&mut self, index: usize, parsed: &ParsedCall, step: &'static str, model: &str, ask: &Ask) -> Proposed {
        let fault = fault(parsed, &ask.tools);
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
                    messages: kept(&self.agent.failure_log, &ask.messages),
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
    fn forced(&self, messages: Vec<Message>, tool: &str) -> Ask {
        let session = &self.session;
        let mut options = session.options.clone();
        options.tool_choice = match session.tools.get(tool) {
            Some(_) => ToolChoice::Tool(tool.to_owned()),
            None => ToolChoice::Required,
        };
        options.constrain = Mode::Strict;
        options.grammar = None;
        options.max_calls = Some(1);
        options.max_preamble = 0;
        Ask { messages, tools: Arc::clone(&session.tools), options }
    }

    /// Tells the model what to do otherwise; what it is told stands in the results.
    fn tell(&mut self, told: &[Told]) {
        let Some(open) = &mut self.open else { return };
        for told in told {
            let (index, failures) = match told {
                Told::Failed { call, failures } => (*call, Some(*failures)),
                Told::Repeated { call } => (*call, None),
            };
            let Some(call) = open.calls.get_mut(index) else { continue };
            if failures.is_none() {
                call.remark = Some(tell::REPEATED);
            }
            let message = if failures.is_some() { call.content() } else { tell::REPEATED.to_owned() };
            (self.on_event)(&Event::retry(RetryStep {
                id: call.call.id.clone().unwrap_or_default(),
                tool: call.call.name.clone(),
                step: if failures.is_some() { "told" } else { "repeated" },
                failures,
                arguments: None,
                message,
            }));
        }
    }

    /// The open answer joins the conversation, with the results of its calls.
    fn commit(&mut self) {
        self.session.messages.extend(self.open.take().into_iter().flat_map(Open::settled));
    }

    fn stop(&mut self, status: Status) -> Result<Outcome> {
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
        (self.on_event)(&Event::done(Done { finish_reason: self.finish, status: Some(status) }));
        Ok(Outcome {
            status,
            finish_reason: self.finish,
            models: std::mem::take(&mut self.usage),
            notes: std::mem::take(&mut self.notes),
            failure,
        })
    }

    fn note(&mut self, kind: &'static str, message: String) {
        self.notes.push(Note::plain(kind, message));
    }

    /// Counts what a model took.
    fn spent(&mut self, model: Option<&str>, usage: Usage) {
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
fn kept(log: &Option<PathBuf>, messages: &[Message]) -> Vec<Message> {
    if log.is_some() { messages.to_vec() } else { Vec::new() }
}

/// A call that was closed because the tokens ran out fits its schema, but its values may be cut off: it is not whole.
fn distrust(mut reply: Reply) -> Reply {
    if reply.closed_early
        && let Some(call) = reply.calls.last_mut()
    {
        call.complete = false;
        call.problems.push(tell::CLOSED_EARLY.to_owned());
    }
    reply
}

/// What is wrong with a call, if anything is.
fn fault(call: &ParsedCall, tools: &crate::Tools) -> Option<Fault> {
    if call.complete && call.valid {
        return None;
    }
    Some(match call.arguments.as_object() {
        _ if !call.complete || call.name.is_empty() => Fault::Format,
        _ if tools.get(&call.name).is_none() => Fault::UnknownTool,
        Some(arguments) if !tools.problems(&call.name, arguments).is_empty() => Fault::Schema,
        _ => Fault::Format,
    })
}

impl Outcome {
    /// The run as a result: an error where it did not end with an answer.
    ///
    /// # Errors
    /// [`ErrorKind::Engine`] with the original error of the tool, or with what ended the run.
    pub fn ok(self) -> Result<Outcome> {
        match self.status {
            Status::Done => Ok(self),
            status => Err(Error::new(ErrorKind::Engine, self.failure.clone().unwrap_or_else(|| status.to_string()))),
        }
    }
}
