//! Recording a session, and restoring it.

use super::constrain::Shortage;
use super::prompt::Written;
use super::{ContextPolicy, Options, Session, ToolChoice};
use crate::constraint::Mode;
use crate::decision::{CallProbability, Decided};
use crate::engine::Engine;
use crate::engine::sampler::Sampling;
use crate::engine::scripted::{Recorder, ScriptedEngine};
use crate::error::Location;
use crate::format::Format;
use crate::generate::{End, Generation};
use crate::message::{Conversation, ResponseFormat, messages_to_json};
use crate::template::ChatTemplate;
use crate::tool::Tools;
use crate::{Error, ErrorKind, Result};
use jiff::civil::DateTime;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};

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

/// The command that began a run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Invocation {
    /// Its arguments, without the program.
    pub arguments: Vec<String>,
    /// The folder that its paths are relative to.
    pub folder: PathBuf,
}

/// What a session does for recordings: it makes one, or repeats one.
#[derive(Default)]
pub(crate) struct Recording {
    pub(crate) recorder: Option<Recorder>,
    /// The command that begins a run, for those who go on with it.
    pub(crate) invocation: Option<Invocation>,
    /// What a run does, if a journal is kept.
    pub(crate) journal: Option<Recorder>,
    /// How the answers ended that are being repeated.
    pub(crate) repeated: VecDeque<Ended>,
}

impl Recording {
    /// Returns whether one is made.
    pub(crate) fn is_made(&self) -> bool {
        self.recorder.is_some()
    }

    /// Writes what happens, if a recording is made.
    pub(crate) fn entry<T: Serialize>(&mut self, entry: impl FnOnce() -> T) -> Result<()> {
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
        recorder.beside(&json!({"ended": ended}))?;
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

/// Returns the session that `request` describes, before its first turn.
///
/// # Errors
/// [`ErrorKind::Replay`] where the request is not one of a recording.
pub(crate) fn restore(engine: ScriptedEngine, request: Value, path: &Path) -> Result<Session> {
    let request: Request = serde_json::from_value(request).map_err(|error| {
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
    Ok(session)
}
