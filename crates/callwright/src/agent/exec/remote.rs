//! Tools that run in another place: their set may change while a run goes on.

use crate::agent::exec::Failure;
use crate::session::event::ToolsChange;
use crate::tool::{Effect, Tools};
use serde_json::{Map, Value};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// What a server has for a person to show to the model.
#[derive(Debug, Clone, PartialEq)]
pub struct Offer {
    /// The server.
    pub server: String,
    /// Its name there.
    pub name: String,
    /// What the server says of it.
    pub description: String,
    /// What it is used for.
    pub used: Use,
}

/// What it is used for.
#[derive(Debug, Clone, PartialEq)]
pub enum Use {
    /// A text, at this address.
    Resource(String),
    /// A question to the model, with arguments of these names; `true` for those that are required.
    Prompt(Vec<(String, bool)>),
}

/// Whom a server asks: gets the server's name, its message, and the schema of an answer. None if the person declines.
pub type Person = Arc<dyn Fn(&str, &str, &Value) -> Option<Map<String, Value>> + Send + Sync>;

/// Runs tools in another place.
pub trait Remote: Send + Sync {
    /// Returns whether it runs the tool of that name.
    fn has(&self, tool: &str) -> bool;

    /// Says what runs the tool, for a person.
    fn runs(&self, tool: &str) -> String;

    /// Says why a person has to be asked before the tool runs, where one has to.
    fn to_confirm(&self, tool: &str, effect: Effect) -> Option<&'static str>;

    /// Runs a tool. When `cancel` is raised or the time is over, it is told to stop, and not waited for.
    fn call(
        &self,
        tool: &str,
        arguments: Map<String, Value>,
        timeout: Duration,
        cancel: &AtomicBool,
    ) -> Result<String, Failure>;

    /// Returns what there is beside tools, and what is worth knowing about it.
    fn offers(&self) -> (Vec<Offer>, Vec<String>) {
        Default::default()
    }

    /// Returns the text of what is offered, or why there is none.
    fn take(&self, offer: &Offer, _arguments: Map<String, Value>) -> Result<String, String> {
        Err(format!("nothing has {:?}", offer.name))
    }

    /// Has servers ask a person. Without one they are told that the person declines.
    fn ask(&self, _person: &Person) {}

    /// Returns what has happened since the last look. `tools` are the session's, and `turn` is the number of the answer
    /// that comes next, which is the same when the session is repeated from a recording.
    fn look(&self, turn: usize, tools: &Tools) -> Look;
}

/// What has happened to the tools.
#[derive(Debug, Default)]
pub struct Look {
    /// All tools of the session, where that is another set than before.
    pub tools: Option<Tools>,
    /// What has changed.
    pub changes: Vec<ToolsChange>,
    /// What else is worth knowing.
    pub notes: Vec<String>,
}
