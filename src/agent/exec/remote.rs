//! Tools that run in another place: their set may change while a run goes on.

use super::Failure;
use crate::session::event::ToolsChange;
use crate::tool::Tools;
use serde_json::{Map, Value};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Runs tools in another place.
pub(crate) trait Remote: Send + Sync {
    /// Whether it runs the tool of that name.
    fn has(&self, tool: &str) -> bool;

    /// What runs the tool, in words, where a person has to be asked first.
    fn to_confirm(&self, tool: &str) -> Option<String>;

    /// Runs a tool. When `cancel` is raised or the time is over, it is told to stop, and not waited for.
    fn call(
        &self,
        tool: &str,
        arguments: Map<String, Value>,
        timeout: Duration,
        cancel: &AtomicBool,
    ) -> Result<String, Failure>;

    /// What has happened since the last look. `tools` are the session's, and `turn` is the number of the answer that
    /// comes next, which is the same when the session is repeated from a recording.
    fn look(&self, turn: usize, tools: &Tools) -> Look;
}

/// What has happened to the tools.
#[derive(Debug, Default)]
pub(crate) struct Look {
    /// All tools of the session, where that is another set than before.
    pub tools: Option<Tools>,
    pub changes: Vec<ToolsChange>,
    /// What else is worth knowing.
    pub notes: Vec<String>,
}
