//! Recording a session and repeating it without its model.

use super::constrain::Shortage;
use super::event::PendingCall;
use super::journal::Invocation;
use super::prompt::Written;
use super::{ContextPolicy, Options, Session, ToolChoice, ToolsChange};
use crate::agent::Agent;
use crate::agent::exec::remote::{Look, Remote};
use crate::agent::exec::{Executor, Failure, FailureKind, Results};
use crate::agent::turn::Limits;
use crate::constraint::Mode;
use crate::decision::{CallProbability, Decided};
use crate::engine::Engine;
use crate::engine::sampler::Sampling;
use crate::engine::scripted::{Recorder, ScriptedEngine};
use crate::error::Location;
use crate::format::Format;
use crate::generate::{End, Generation};
use crate::message::{Conversation, ResponseFormat, messages_to_json};
use crate::setting::Setting;
use crate::template::ChatTemplate;
use crate::tool::{Effect, Tools};
use crate::{Error, ErrorKind, Result};
use jiff::civil::DateTime;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// All that decides what a session asks its engine.
#[derive(Serialize, Deserialize)]
struct Request {
    messages: Value,
    tools: Value,
    tool_choice: ToolChoice,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    select_tools: Option<usize>,
    #[serde(default)]
    find_tools: bool,
    template: (String, String),
    /// The source of a format that is not the template's own.
    format: Option<String>,
    sampling: Sampling,
    max_tokens: usize,
    max_calls: Option<usize>,
    /// Not to constrain again, which the tokens were already, but because it decides how an answer is begun.
    #[serde(default)]
    constrain: Mode,
    #[serde(default)]
    max_preamble: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    response_format: Option<ResponseFormat>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    stop: Vec<String>,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    variables: Map<String, Value>,
    repair: bool,
    #[serde(default = "yes")]
    coerce: bool,
    #[serde(default = "yes")]
    normalize_names: bool,
    #[serde(default)]
    context: ContextPolicy,
    now: Option<DateTime>,
    /// Recordings of earlier versions were made without it.
    #[serde(default)]
    loop_guard: bool,
    #[serde(default = "yes")]
    text_after_calls: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    turn_markers: Vec<String>,
    /// The command that began the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    invocation: Option<Invocation>,
}

/// Returns what recordings that do not say it were made with.
fn yes() -> bool {
    true
}

/// What a recording holds in addition to the tokens.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Entry {
    /// A run begins, which may do this much.
    Run(Limits),
    /// How the next answer ended.
    Ended(Ended),
    /// What the calls of an answer came to.
    Executed(Results),
    /// The tools became others before an answer.
    Tools { turn: usize, tools: Value, changes: Vec<ToolsChange> },
    /// An answer with calls, which are executed from now on.
    Answer(Value),
    /// A call is executed from now on.
    Begun { id: String, name: String, arguments: String },
    /// A call has ended with this result.
    Called { id: String, result: String },
    /// Messages joined the conversation.
    Messages(Value),
    /// Calls wait for approval.
    Pending(Vec<PendingCall>),
    /// The run has ended.
    Finished(String),
}

/// Tools that change when they did in a recorded run. Their results are recorded, too, so that none is run.
struct Recorded(Mutex<VecDeque<(usize, Value, Vec<ToolsChange>)>>);

impl Remote for Recorded {
    fn has(&self, _: &str) -> bool {
        false
    }

    fn runs(&self, _: &str) -> String {
        String::new()
    }

    fn to_confirm(&self, _: &str, _: Effect) -> Option<&'static str> {
        None
    }

    fn call(
        &self,
        _: &str,
        _: Map<String, Value>,
        _: Duration,
        _: &AtomicBool,
    ) -> std::result::Result<String, Failure> {
        Err(Failure::new(FailureKind::NotRunnable, "a recorded tool is not run"))
    }

    fn look(&self, turn: usize, _: &Tools) -> Look {
        let mut changes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if changes.front().is_none_or(|(at, ..)| *at != turn) {
            return Look::default();
        }
        let (tools, changes) =
            changes.pop_front().map_or_else(Default::default, |(_, tools, changes)| (tools, changes));
        Look { tools: Tools::from_value(&tools).ok(), changes, notes: Vec::new() }
    }
}

/// How an answer ended, which its tokens do not say.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Ended {
    pub end: End,
    /// From which token on the grammar closed what was open.
    #[serde(default)]
    pub closed_from: Option<usize>,
    #[serde(flatten)]
    pub shortage: Shortage,
    /// The notices of the constraint.
    #[serde(default, rename = "told")]
    pub notices: Vec<String>,
    /// How likely a call was where the answer began, and what the thresholds decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_probability: Option<CallProbability>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided: Option<Decided>,
}

/// What a session does for recordings: it makes one, or repeats one.
#[derive(Default)]
pub(crate) struct Recording {
    pub(super) recorder: Option<Recorder>,
    /// The command that begins a run, for those who go on with it.
    pub(crate) invocation: Option<Invocation>,
    /// What a run does, if a journal is kept.
    pub(super) journal: Option<Recorder>,
    /// How the answers ended that are being repeated.
    repeated: VecDeque<Ended>,
}

impl Recording {
    /// Returns whether one is made.
    pub(crate) fn is_made(&self) -> bool {
        self.recorder.is_some()
    }

    /// Writes what happens, if a recording is made.
    pub(crate) fn entry(&mut self, entry: impl FnOnce() -> Entry) -> Result<()> {
        self.recorder.as_mut().map_or(Ok(()), |recorder| recorder.beside(&entry()))
    }

    /// Writes that a prompt was measured.
    pub(super) fn measured(&mut self, prompt: &str, tokens: usize) -> Result<()> {
        self.recorder.as_mut().map_or(Ok(()), |recorder| recorder.measured(prompt, tokens))
    }

    /// Writes an answer.
    pub(super) fn answered(
        &mut self,
        engine: &dyn Engine,
        written: &Written,
        sampling: &Sampling,
        generation: &Generation,
        ended: &Ended,
    ) -> Result<()> {
        let Some(recorder) = &mut self.recorder else { return Ok(()) };
        recorder.beside(&Entry::Ended(ended.clone()))?;
        recorder.record(engine, &written.text, &written.tokens, sampling, generation)
    }

    /// How the next answer ended, if it is repeated.
    pub(super) fn next_end(&mut self) -> Option<Ended> {
        self.repeated.pop_front()
    }
}

/// Returns what records a session from now on in the file at `path`.
pub(super) fn recorder(session: &Session, path: &Path) -> Result<Recorder> {
    let options = &session.options;
    let template = session.template();
    let request = Request {
        messages: messages_to_json(&session.messages),
        tools: session.tools.to_json_with_policies(),
        tool_choice: options.tool_choice.clone(),
        select_tools: options.select_tools,
        find_tools: options.find_tools,
        template: (template.name().to_owned(), template.source().to_owned()),
        format: session.prompts.writer.section.is_some().then(|| session.format().source().to_owned()),
        sampling: options.sampling,
        max_tokens: options.max_tokens,
        max_calls: options.max_calls,
        constrain: options.constrain,
        max_preamble: options.max_preamble,
        response_format: options.response_format.clone(),
        stop: options.stop.clone(),
        variables: session.prompts.writer.variables.clone(),
        repair: options.repair,
        coerce: options.coerce,
        normalize_names: options.normalize_names,
        context: options.context,
        now: options.now,
        loop_guard: options.loop_guard,
        text_after_calls: options.text_after_calls,
        turn_markers: session.turn_markers.clone(),
        invocation: session.recording.invocation.clone(),
    };
    let request = serde_json::to_value(request)
        .map_err(|error| Error::new(ErrorKind::Replay, format!("the session cannot be recorded: {error}")))?;
    Recorder::create(path, &*session.engine, request)
}

/// The session that was recorded at `path`, and what repeats its run, if it was one.
///
/// # Errors
/// [`ErrorKind::Replay`] with the line when the file is no recording.
pub(super) fn replay(path: &Path) -> Result<(Session, Option<Agent>)> {
    let (engine, header) = ScriptedEngine::replay(path)?;
    if header.request.get("template").is_none() && header.request.get("invocation").is_some() {
        return Err(Error::new(ErrorKind::Replay, "a journal without a recording has no tokens to repeat")
            .hint(format!(
                "callwright resume {} goes on with the run; {} writes a recording",
                path.display(),
                Setting::Record
            ))
            .in_file(path));
    }
    let request: Request = serde_json::from_value(header.request).map_err(|error| {
        Error::new(ErrorKind::Replay, format!("not a recording that this version can read: {error}")).at(Location {
            file: Some(path.to_owned()),
            line: Some(1),
            column: None,
        })
    })?;
    let template = ChatTemplate::new(request.template.0, request.template.1)?;
    let format = request.format.map(|source| Format::parse_declaration(&source)).transpose()?.flatten();
    let mut session = Session::new(Box::new(engine), Some(template), format)?;
    // A recording of an earlier version has none: those that the format needs stay.
    session.prompts.writer.variables.extend(request.variables);
    session.turn_markers = request.turn_markers;
    session.set_tools(Tools::from_value(&request.tools)?);
    session.set_messages(Conversation::from_value(request.messages)?.messages)?;
    session.options = Options {
        sampling: request.sampling,
        max_tokens: request.max_tokens,
        tool_choice: request.tool_choice,
        select_tools: request.select_tools,
        find_tools: request.find_tools,
        max_calls: request.max_calls,
        constrain: request.constrain,
        max_preamble: request.max_preamble,
        response_format: request.response_format,
        stop: request.stop,
        repair: request.repair,
        coerce: request.coerce,
        normalize_names: request.normalize_names,
        context: request.context,
        now: request.now,
        loop_guard: request.loop_guard,
        text_after_calls: request.text_after_calls,
        ..Options::default()
    };
    let (mut limits, mut results, mut changes) = (None, Vec::new(), VecDeque::new());
    let mut paused = Vec::new();
    for (line, entry) in header.beside {
        let place = Location { file: Some(path.to_owned()), line: Some(line), column: None };
        let entry = serde_json::from_value(entry).map_err(|error| {
            Error::new(ErrorKind::Replay, format!("not a recording that this version can read: {error}")).at(place)
        })?;
        match entry {
            Entry::Run(first) => drop(limits.get_or_insert(first)),
            Entry::Ended(ended) => session.recording.repeated.push_back(ended),
            Entry::Executed(executed) => results.push(executed),
            Entry::Tools { turn, tools, changes: changed } => changes.push_back((turn, tools, changed)),
            Entry::Pending(calls) => paused = calls,
            // What a journal has beside.
            Entry::Answer(_) | Entry::Begun { .. } | Entry::Called { .. } | Entry::Messages(_) | Entry::Finished(_) => {
            }
        }
    }
    let mut executor = Executor::repeating(results);
    if !changes.is_empty() {
        executor.remote = Some(Arc::new(Recorded(Mutex::new(changes))));
    }
    let over = header.over;
    let agent = limits.map(|limits| Agent { executor, limits, paused, over, ..Agent::default() });
    Ok((session, agent))
}
