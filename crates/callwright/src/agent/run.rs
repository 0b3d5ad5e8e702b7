//! A run: from the question to the answer, with tools executed on the way. [`Turn`] decides, this does.
//!
//! The conversation grows by whole steps only: an answer with calls joins it together with all of their results. So it
//! is valid whatever happens, and can be continued after an error or an interruption. Only calls that are left to the
//! caller ([`CallOutcome::LeftOpen`](super::CallOutcome::LeftOpen)) have no result; the caller adds it before the next
//! run.

use super::call::{self, CallState};
use super::failure_log::{Attempt, log_failure};
use super::ledger::Ledger;
use super::messages;
use super::other_models::Fallbacks;
use super::record::Entry;
use crate::agent::exec::remote::Look;
use crate::agent::exec::{Executor, Failure};
use crate::agent::turn::{Advice, Fault, Limits, Reason, Status, Step, Turn};
use crate::generate::Usage;
use crate::message::{Message, Role, ToolCall, messages_to_json, open_calls};
use crate::parse::ParsedCall;
use crate::parse::event::Event as ParserEvent;
use crate::session::event::{NoteKind, Retry};
use crate::session::prompt::AnswerRequest;
use crate::session::{Cut, Done, Event, ModelUsage, Note, Outcome, PendingCall, Reply, RetryStep, WithoutTools};
use crate::session::{FinishReason, Session, ToolChoice};
use crate::tool::{CallProblem, Tool, Tools};
use crate::{Error, ErrorKind, Result};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Display;
use std::path::PathBuf;

/// What a run may use: tools, limits and fallback models.
#[derive(Default)]
#[non_exhaustive]
pub struct Agent {
    /// The tools that are Rust functions: see [`Agent::function`].
    pub(super) functions: Vec<Tool>,
    /// Runs the tools.
    pub executor: Executor,
    /// What the run may do. The number of fallback models is that of [`Agent::fallbacks`].
    pub limits: Limits,
    /// Models that write a call which keeps failing.
    pub fallbacks: Option<Fallbacks>,
    /// Where the attempts are written when a call was given up.
    pub failure_log: Option<PathBuf>,
    /// Executes calls in another form than the format's without approval, also where they change something.
    pub trust_other_forms: bool,
    /// The ids of calls that had begun when an earlier process ended: they may have been executed.
    pub unknown: Vec<String>,
    /// The calls before which a recorded run paused.
    pub(crate) paused: Vec<PendingCall>,
    /// What to say where a recorded run goes on beyond its recording.
    pub(crate) over: Option<Error>,
}

impl Agent {
    /// Gives the model a tool that is a Rust function, and returns it, to be changed: for example its `policy`.
    ///
    /// A [run](Session::run) adds it to the session's tools, where there is none of that name. Its schema is that of the
    /// function's argument. A string is a result as it is, anything else as JSON. A function that does not end in time is
    /// not waited for, but cannot be stopped: it goes on in its thread.
    pub fn function<A, R, E>(
        &mut self,
        name: &str,
        description: &str,
        function: impl Fn(A) -> std::result::Result<R, E> + Send + Sync + 'static,
    ) -> &mut Tool
    where
        A: DeserializeOwned + JsonSchema,
        R: Serialize,
        E: Display,
    {
        let tool = self.executor.function(name, description, function);
        self.functions.push(tool);
        let last = self.functions.len() - 1;
        &mut self.functions[last]
    }
}

impl Session {
    /// Adds a user message and runs: see [`Session::run`].
    ///
    /// # Errors
    /// Those of [`Session::run`]; where nothing was answered yet the conversation is then as it was.
    pub fn ask_and_run(&mut self, prompt: impl Into<String>, agent: &mut Agent) -> Result<Outcome> {
        let before = self.messages.len();
        self.push(Message::user(prompt));
        let outcome = self.run(agent, &mut |_| ());
        if outcome.is_err() && self.messages.len() == before + 1 {
            self.messages_mut().pop();
        }
        outcome
    }

    /// Lets the model answer, executes its calls, and so on until an answer has none.
    ///
    /// A call that is incomplete or invalid is never executed. The model gets the error of a failed call, and if that does
    /// not help, the call is recovered as [`crate::agent`] says. Each answer with calls joins the conversation
    /// together with all of their results, so that the conversation is valid whatever happens. If
    /// [`Executor::by_hand`] leaves calls to the caller, the run ends with [`Status::ToolCalls`], and the conversation
    /// waits for their results.
    ///
    /// # Errors
    /// Those of [`Session::respond`] where the first answer fails; the conversation is then as it was. An answer that
    /// fails later ends the run with [`Status::Error`]: what was executed before it is in the conversation, and the
    /// outcome carries the error. [`ErrorKind::Config`] where a recorded run is given fallback models.
    pub fn run(&mut self, agent: &mut Agent, on_event: &mut dyn FnMut(&Event)) -> Result<Outcome> {
        if self.recording.is_made() && agent.fallbacks.is_some() {
            return Err(Error::new(ErrorKind::Config, "a run with fallback models cannot be recorded")
                .hint("a recording holds what one model says"));
        }
        let more: Vec<&Tool> = agent.functions.iter().filter(|tool| self.tools.get(&tool.name).is_none()).collect();
        if !more.is_empty() {
            self.set_tools(Tools::new(self.tools.iter().chain(more).cloned())?);
        }
        let mut limits = agent.limits.clone();
        let own = &self.engine.model().name;
        limits.fallback_models = agent.fallbacks.as_ref().map_or(0, |fallbacks| fallbacks.number(own));
        self.recording.entry(|| Entry::Run(limits.clone()))?;
        if let Some(fallbacks) = &mut agent.fallbacks {
            fallbacks.begin();
        }
        self.prompts.reads = true;
        let mut run = Run::new(self, agent, limits, on_event);
        let ended = match run.drive() {
            Ok(status) => Ok(run.stop(status)),
            Err(error) if run.usage.is_empty() => {
                (run.on_event)(&Event::failed(&error, Some(Status::Error)));
                Err(error)
            }
            Err(error) => Ok(run.fail(error)),
        };
        self.prompts.reads = false;
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
    /// Decides, and keeps the state of the answer's calls.
    pub turn: Turn,
    pub own: String,
    /// The answer whose calls have no results yet.
    pub answer: Option<OpenAnswer>,
    /// Whether a call was executed.
    pub executed: bool,
    pub finish: FinishReason,
    /// What cut the last answer off.
    cut: Option<Cut>,
    usage: Vec<ModelUsage>,
    pub notes: Vec<Note>,
    pub attempts: Vec<Attempt>,
    /// The fallback model whose call is executed, and the tool.
    pub fallback: Option<(String, String)>,
    /// The order of the fallback models for the call that is recovered.
    pub order: Vec<String>,
    /// The original error of the call that was given up.
    failure: Option<String>,
    /// What was executed since the user's last message.
    pub ledger: Ledger,
    /// The calls that wait for approval.
    pub pending: Vec<PendingCall>,
    /// The ids of calls in answers that were dropped.
    dropped: Vec<String>,
}

/// How the model is asked for an answer.
#[derive(Debug, Clone, Copy)]
enum Ask {
    Freely,
    /// With the results once more.
    Restated,
    WithoutTools(Reason),
}

/// An answer that is not in the conversation yet.
pub(super) struct OpenAnswer {
    message: Message,
    /// The calls that were executed, as they were then, and their results.
    pub ran: Vec<(ToolCall, Result<String, Failure>)>,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        session: &'a mut Session,
        agent: &'a mut Agent,
        limits: Limits,
        on_event: &'a mut dyn FnMut(&Event),
    ) -> Run<'a> {
        Run {
            turn: Turn::new(limits),
            own: session.engine.model().name.clone(),
            ledger: Ledger::of(&session.messages, &session.tools),
            pending: Vec::new(),
            dropped: Vec::new(),
            answer: None,
            executed: false,
            failure: None,
            finish: FinishReason::Stop,
            cut: None,
            usage: Vec::new(),
            notes: Vec::new(),
            attempts: Vec::new(),
            fallback: None,
            order: Vec::new(),
            session,
            agent,
            on_event,
        }
    }

    fn drive(&mut self) -> Result<Status> {
        let mut step = self.open_calls().unwrap_or(Step::Generate);
        loop {
            step = match step {
                Step::Generate => self.generate(Ask::Freely)?,
                Step::Retry(advice) => {
                    self.advise(&advice);
                    self.generate(Ask::Freely)?
                }
                Step::Restate => {
                    self.drop_answer();
                    self.generate(Ask::Restated)?
                }
                Step::Answer(reason) => {
                    let message = match reason {
                        Reason::Loop => messages::LOOP.to_owned(),
                        Reason::AlreadyDone => messages::ONLY_REPEATS.to_owned(),
                        Reason::ToolFailed => {
                            self.failure = call::failure(self.turn.calls());
                            self.failure.clone().unwrap_or_default()
                        }
                    };
                    (self.on_event)(&Event::WithoutTools(WithoutTools { reason, message }));
                    match reason {
                        Reason::Loop => self.note(NoteKind::Loop, messages::LOOP.to_owned()),
                        Reason::AlreadyDone => self.note(NoteKind::AlreadyDone, messages::ONLY_REPEATS.to_owned()),
                        Reason::ToolFailed => {}
                    }
                    self.generate(Ask::WithoutTools(reason))?
                }
                Step::Execute(calls) => self.execute(&calls)?,
                Step::Regenerate(call) => self.regenerate(call),
                Step::FallBack { call, model, attempt } => self.fall_back(call, model, attempt),
                Step::Stop(status) => return Ok(status),
            };
        }
    }

    /// Takes up calls at the end of the conversation that have no results yet; `None` if there are none.
    fn open_calls(&mut self) -> Option<Step> {
        let messages = &self.session.messages;
        let last = messages.iter().rposition(|message| message.role != Role::Tool)?;
        let open = open_calls(&messages[last..]).ok().filter(|open| !open.is_empty())?;
        let open: Vec<Option<String>> = open.into_iter().map(|call| call.id.clone()).collect();
        let mut kept = self.session.messages_mut().split_off(last).into_iter();
        let message = kept.next()?;
        let results: Vec<Message> = kept.collect();
        let unknown = &self.agent.unknown;
        let reader = self.session.reader_name();
        let calls = message.tool_calls.iter().map(|call| {
            let mut state = CallState::new(call.clone());
            let begun = call.id.as_ref().is_some_and(|id| unknown.contains(id));
            // Whether its text was in doubt is no longer known.
            state.doubt = Some(if begun { UNKNOWN } else { TAKEN_UP });
            if begun {
                return state;
            }
            if !open.contains(&call.id) {
                let result = results.iter().find(|result| result.tool_call_id == call.id);
                return state.with_result(result.map_or("", |result| &result.content));
            }
            if call.name == reader {
                return state;
            }
            let problems = match call.arguments.as_object() {
                Some(arguments) => self.session.tools.problems(&call.name, arguments),
                None => vec![CallProblem::ArgumentsNotObject],
            };
            match problems.first() {
                None => state,
                Some(problem) => state.failed(
                    if self.session.tools.get(&call.name).is_none() { Fault::UnknownTool } else { Fault::Schema },
                    format!("{}{} was not executed: {problem}", messages::ERROR, call.name),
                ),
            }
        });
        let calls = calls.collect();
        self.answer = Some(OpenAnswer { message, ran: Vec::new() });
        Some(self.turn.resumed(calls))
    }

    /// The model's next answer.
    fn generate(&mut self, ask: Ask) -> Result<Step> {
        self.commit();
        self.look_at_tools()?;
        let mut request = self.session.request()?;
        request.dropped.clone_from(&self.dropped);
        let options = &mut request.options;
        options.max_calls.get_or_insert(self.agent.limits.max_calls);
        if matches!(ask, Ask::WithoutTools(_)) {
            options.tool_choice = ToolChoice::None;
        } else if self.executed && options.tool_choice != ToolChoice::None {
            // A call was required, and made; more would be required without end.
            options.tool_choice = ToolChoice::Auto;
        }
        let reply = self.reply(&request, ask)?;
        // The answer's prompt may have the tool that reads results.
        request.tools = self.session.shown_tools();
        self.spent(None, reply.usage);
        self.notes.extend(reply.notes);
        self.finish = reply.finish_reason;
        self.cut = reply.cut;
        let most = request.options.max_calls.unwrap_or(usize::MAX);
        if reply.calls.len() >= most && self.session.options.max_calls.is_none() {
            self.note(
                NoteKind::Answer,
                format!("the answer was ended after {most} {}", if most == 1 { "call" } else { "calls" }),
            );
        }
        let forbidden = request.options.tool_choice == ToolChoice::None;
        let mut calls = Vec::with_capacity(reply.calls.len());
        for (call, parsed) in reply.message.tool_calls.iter().zip(&reply.calls) {
            let mut call = CallState::new(call.clone()).written_as(&parsed.raw);
            call.doubt = doubt(parsed);
            call.known = self.ledger.has_read(&request.tools, &call.call);
            let fault = if forbidden { Some(Fault::Tool) } else { fault(parsed, &request.tools) };
            if let Some(fault) = fault {
                let error = messages::not_executed(parsed, fault);
                call = call.failed(fault, &*error);
                let own = self.own.clone();
                self.attempt(&call, error, own, "answer", &request.messages);
            }
            calls.push(call);
        }
        let called = !calls.is_empty();
        let step = self.turn.generated(reply.finish_reason, calls);
        if called && step != Step::Restate {
            // Before anything is executed, and where that fails nothing is.
            self.session.recording.step(|| Entry::Answer(messages_to_json(std::slice::from_ref(&reply.message))))?;
        }
        self.answer = Some(OpenAnswer { message: reply.message, ran: Vec::new() });
        Ok(step)
    }

    /// Lets the model write an answer, with the results once more where it has overlooked them.
    fn reply(&mut self, request: &AnswerRequest, ask: Ask) -> Result<Reply> {
        let overlooked = matches!(ask, Ask::Restated | Ask::WithoutTools(Reason::Loop | Reason::AlreadyDone));
        if overlooked {
            let mut messages = request.messages.to_vec();
            messages.push(messages::restated(&self.session.prompts.shown(&request.messages)));
            let mut restated = AnswerRequest { messages: messages.into(), ..request.clone() };
            // They decide about first answers.
            (restated.options.call_threshold, restated.options.no_call_below) = (None, None);
            match self.session.answer(&restated, self.on_event) {
                // There is no room for it, or the template cannot write it.
                Err(error) if matches!(error.kind(), ErrorKind::Template | ErrorKind::ContextOverflow) => {}
                answer => return answer,
            }
        }
        self.session.answer(request, self.on_event)
    }

    /// Drops an answer that only repeats calls whose results are known.
    fn drop_answer(&mut self) {
        self.answer = None;
        for call in self.turn.take_calls() {
            self.dropped.push(call.id());
            (self.on_event)(&Event::Retry(RetryStep {
                id: call.id(),
                tool: call.call.name.clone(),
                step: Retry::Dropped,
                fault: None,
                failures: None,
                arguments: None,
                message: messages::RESTATED.to_owned(),
            }));
        }
    }

    /// Takes over tools that have changed in another place.
    fn look_at_tools(&mut self) -> Result<()> {
        let turn = self.session.turns;
        self.session.turns += 1;
        let Some(remote) = self.agent.executor.remote.clone() else { return Ok(()) };
        let Look { tools, changes, notes } = remote.look(turn, &self.session.tools);
        for change in &changes {
            (self.on_event)(&Event::ToolsChanged(change.clone()));
            self.note(NoteKind::Tools, change.to_string());
        }
        notes.into_iter().for_each(|note| self.note(NoteKind::Tools, note));
        let Some(tools) = tools else { return Ok(()) };
        self.session.recording.entry(|| Entry::Tools { turn, tools: tools.to_json_with_policies(), changes })?;
        self.session.replace_tools(tools);
        Ok(())
    }

    /// Reports to the model what to do differently; the advice is in the results.
    fn advise(&mut self, advice: &[Advice]) {
        for advice in advice {
            let (index, step, failed, text) = match advice {
                Advice::Failed { call, fault, failures } => (*call, Retry::Reported, Some((*fault, *failures)), None),
                Advice::Unavailable { call } => (*call, Retry::Unavailable, None, Some(messages::UNAVAILABLE)),
                Advice::Repeated { call } => (*call, Retry::Repeated, None, Some(messages::REPEATED)),
                Advice::AlreadyDone { call } => (*call, Retry::AlreadyDone, None, Some(messages::ALREADY_DONE)),
            };
            let Some(call) = self.turn.call_mut(index) else { continue };
            call.advice = text;
            (self.on_event)(&Event::Retry(RetryStep {
                id: call.id(),
                tool: call.call.name.clone(),
                step,
                fault: failed.map(|(fault, _)| fault),
                failures: failed.map(|(_, failures)| failures),
                arguments: None,
                message: match step {
                    Retry::Repeated => messages::REPEATED,
                    Retry::AlreadyDone => messages::ALREADY_DONE,
                    _ => call.content(),
                }
                .to_owned(),
            }));
        }
    }

    /// Keeps an attempt at a call for the failure log.
    pub(super) fn attempt(
        &mut self,
        call: &CallState,
        error: String,
        model: String,
        step: &'static str,
        conversation: &[Message],
    ) {
        let messages = if self.agent.failure_log.is_some() { conversation.to_vec() } else { Vec::new() };
        self.attempts.push(Attempt { call: call.clone(), error, model, step, messages });
    }

    /// The conversation with the open answer and the results of its calls as they are now.
    pub(super) fn with_answer(&self, mut messages: Vec<Message>) -> Vec<Message> {
        if let Some(answer) = &self.answer {
            messages.extend(call::so_far(&answer.message, self.turn.calls()));
        }
        messages
    }

    /// The open answer joins the conversation, with the results of its calls.
    fn commit(&mut self) {
        let Some(answer) = self.answer.take() else { return };
        let settled = call::settled(&answer.message, self.turn.take_calls());
        // Calls that wait are taken up from the answer itself.
        if self.pending.is_empty() {
            self.step(|| Entry::Messages(messages_to_json(&settled)));
        }
        self.session.messages_mut().extend(settled);
    }

    /// Writes to the journal. A full disk must not end a run between a call and its result, so it is only noted.
    fn step(&mut self, entry: impl FnOnce() -> Entry) {
        if let Err(error) = self.session.recording.step(entry) {
            self.note(NoteKind::Record, error.to_string());
        }
    }

    fn stop(&mut self, status: Status) -> Outcome {
        let failure = match status {
            Status::ToolFailed => self.failure.take().or_else(|| call::failure(self.turn.calls())),
            Status::Loop if self.finish == FinishReason::Loop => {
                self.notes.iter().rev().find(|note| note.kind == NoteKind::Loop).map(|note| note.message.clone())
            }
            _ => None,
        };
        if status == Status::Done {
            self.say_something();
        }
        self.commit();
        if let (Some(failure), Some(folder)) = (&failure, &self.agent.failure_log) {
            match log_failure(folder, failure, &self.attempts) {
                Ok(path) => self.note(NoteKind::FailureLog, format!("what was tried is in {}", path.display())),
                Err(error) => self.note(NoteKind::FailureLog, error.to_string()),
            }
        }
        if status == Status::Pending {
            let pending = self.pending.clone();
            self.step(|| Entry::Pending(pending));
        }
        self.step(|| Entry::Finished(status.to_string()));
        (self.on_event)(&Event::Done(Done { finish_reason: self.finish, status: Some(status), error: None }));
        self.outcome(status, failure, None)
    }

    /// Puts the results of the calls in the place of an empty answer, or of one that only repeats calls.
    fn say_something(&mut self) {
        let Some(answer) = &mut self.answer else { return };
        answer.message.tool_calls.clear();
        self.turn.take_calls();
        if !answer.message.content.trim().is_empty() && self.finish != FinishReason::Loop {
            return;
        }
        let summary = messages::summary(&self.session.prompts.shown(&self.session.messages));
        if summary.is_empty() {
            self.note(NoteKind::Answer, messages::EMPTY.to_owned());
            return;
        }
        let delta = if answer.message.content.is_empty() { summary.clone() } else { format!("\n{summary}") };
        answer.message.content += &delta;
        (self.on_event)(&Event::Parsed(ParserEvent::Text { delta }));
        self.finish = FinishReason::Stop;
        self.note(NoteKind::Answer, messages::SUMMARY.to_owned());
    }

    /// The end of a run in which an answer could not be generated.
    fn fail(&mut self, error: Error) -> Outcome {
        self.finish = FinishReason::Error;
        (self.on_event)(&Event::failed(&error, Some(Status::Error)));
        self.outcome(Status::Error, Some(error.to_string()), Some(error))
    }

    fn outcome(&mut self, status: Status, failure: Option<String>, error: Option<Error>) -> Outcome {
        let last = self.session.messages.last().filter(|message| message.role == Role::Assistant);
        Outcome {
            answer: last.map(|message| message.content.clone()).unwrap_or_default(),
            status,
            finish_reason: self.finish,
            cut: self.cut,
            models: std::mem::take(&mut self.usage),
            notes: std::mem::take(&mut self.notes),
            failure,
            error,
            pending: std::mem::take(&mut self.pending),
        }
    }

    pub(super) fn note(&mut self, kind: NoteKind, message: String) {
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

/// The doubt about a call in another form than the format's: the model may only quote it.
pub(super) const OTHER_FORM: &str = "the model wrote it in another form than its format's";

/// The doubt about a call that had begun when an earlier process ended.
const UNKNOWN: &str = "it had begun when the program ended, and may have been executed";

/// The doubt about a call that a conversation ends with.
const TAKEN_UP: &str = "the conversation ends with it, and nobody has allowed it yet";

/// Why the text of a call makes it need approval, if it does.
pub(super) fn doubt(call: &ParsedCall) -> Option<&'static str> {
    match (call.tag_in_value, call.other_form) {
        (true, _) => Some("a value has markup of the call's own format"),
        (false, true) => Some(OTHER_FORM),
        (false, false) => None,
    }
}

/// Returns what is wrong with a call, if anything is.
pub(super) fn fault(call: &ParsedCall, tools: &crate::Tools) -> Option<Fault> {
    if call.is_runnable() {
        return None;
    }
    Some(match call.problems.iter().any(CallProblem::is_schema_violation) {
        _ if !call.complete || call.name.is_empty() => Fault::Format,
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
