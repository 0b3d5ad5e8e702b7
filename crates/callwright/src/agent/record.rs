//! Recording a run, and repeating it without its model and its tools.

use super::exec::remote::{Look, Remote};
use super::exec::{Executor, Failure, FailureKind, Results};
use super::run::Agent;
use super::turn::Limits;
use crate::engine::scripted::ScriptedEngine;
use crate::error::Location;
use crate::session::record::{self, Ended};
use crate::session::{PendingCall, Session, ToolsChange};
use crate::setting::Setting;
use crate::tool::{Effect, Tools};
use crate::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

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

/// The session that was recorded at `path`, and what repeats its run, if it was one.
///
/// # Errors
/// [`ErrorKind::Replay`] with the line when the file is no recording.
fn replay(path: &Path) -> Result<(Session, Option<Agent>)> {
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
    let mut session = record::restore(engine, header.request, path)?;
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

impl Session {
    /// The session that was recorded at `path`, before its first turn: no model is needed to repeat it.
    ///
    /// # Errors
    /// [`ErrorKind::Replay`] with the line when the file is no recording.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn replay(path: impl AsRef<Path>) -> Result<Session> {
        Ok(Session::replay_run(path)?.0)
    }

    /// The same, and where a [run](Session::run) was recorded, what repeats it: no tool is executed, each call gets the
    /// result that it got.
    ///
    /// # Errors
    /// Those of [`Session::replay`].
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn replay_run(path: impl AsRef<Path>) -> Result<(Session, Option<Agent>)> {
        replay(path.as_ref())
    }
}
