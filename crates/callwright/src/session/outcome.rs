//! What a run can come to, and what can go wrong in it.

use super::event::{Cut, FinishReason, Note};
use crate::Error;
use crate::generate::Usage;
use crate::hash::sha256;
use crate::message::ToolCall;
use crate::setting::Setting;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fmt;

/// Why the model is made to answer without tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// It makes the same call again and again.
    Loop,
    /// A call was given up.
    ToolFailed,
    /// It only repeats calls that have done what they were to do.
    AlreadyDone,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The model has answered.
    Done,
    /// The answer was cut off at the token limit or the end of the context.
    Length,
    /// A tool failed, and no recovery succeeded; the answer, if there is one, was given without it.
    ToolFailed,
    /// The model kept making the same call, despite the errors, or its answer repeats itself
    /// ([`FinishReason::Loop`]).
    Loop,
    /// There were as many answers as are allowed, and the last one still called tools.
    MaxTurns,
    /// There are calls that nothing runs; the caller answers them.
    ToolCalls,
    /// There are calls that need approval, and nobody could be asked: none of the answer's calls was executed.
    Pending,
    /// The caller ended it.
    Cancelled,
    /// An answer could not be generated.
    Error,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Status::Length => {
                return write!(f, "the answer was cut off by {} or the end of the context", Setting::MaxTokens);
            }
            Status::MaxTurns => return write!(f, "the model still calls tools after {} answers", Setting::MaxTurns),
            Status::Done => "done",
            Status::ToolFailed => "a tool failed, and nothing helped",
            Status::Loop => "the model makes the same call again and again",
            Status::ToolCalls => "calls wait for their results",
            Status::Pending => "calls wait for approval",
            Status::Cancelled => "interrupted",
            Status::Error => "an answer could not be generated",
        })
    }
}

/// What is wrong with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// It is not well-formed, or not written out.
    Format,
    /// There is no such tool.
    UnknownTool,
    /// Its arguments do not fit the tool's schema.
    Schema,
    /// The tool ran and failed; with other arguments it may not.
    Execution,
    /// The tool could not be run, did not end in time, or was not allowed to run: no other call of it would do better.
    Tool,
}

impl Fault {
    /// Returns whether it is how the model wrote the call that is at fault.
    pub(crate) fn is_the_models(self) -> bool {
        matches!(self, Fault::Format | Fault::UnknownTool | Fault::Schema)
    }

    /// Returns whether another call in its place may go well.
    pub(crate) fn is_recoverable(self) -> bool {
        self != Fault::Tool
    }
}

/// Why there is no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FailureKind {
    /// The tool says so: its exit status, or its error.
    Reported,
    /// It died of a signal, or panicked.
    Crashed,
    /// What it printed is not the JSON that it promised.
    NotJson,
    /// It took too long and was stopped.
    TimedOut,
    /// It could not be started, or nothing says how.
    NotRunnable,
    /// The person refused, or the tool was called as often as a run may.
    Refused,
    /// The run was interrupted.
    Cancelled,
    /// Nothing runs it and nobody gave its result: the caller answers the call.
    LeftOpen,
}

/// What a run took of one model.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ModelUsage {
    /// The model.
    pub model: String,
    /// How many answers it wrote.
    pub answers: usize,
    /// Tokens and times of them together.
    #[serde(flatten)]
    pub usage: Usage,
}

impl ModelUsage {
    pub(crate) fn add(&mut self, more: Usage) {
        self.answers += 1;
        self.usage += more;
    }
}

/// The result of a run; its messages are in the session.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Outcome {
    /// The text of the last answer.
    pub answer: String,
    /// How it ended.
    pub status: Status,
    /// Why the last answer ended.
    pub finish_reason: FinishReason,
    /// What cut the last answer off, where its finish reason is `length`.
    pub cut: Option<Cut>,
    /// What it took, by model, in the order of their first answers.
    pub models: Vec<ModelUsage>,
    /// Repairs, problems and departures, in the order in which they happened.
    pub notes: Vec<Note>,
    /// The original error, where a call was given up; what failed, where that ended the run.
    pub failure: Option<String>,
    /// What ended the run, with [`Status::Error`].
    pub error: Option<Error>,
    /// The calls that need approval, with [`Status::Pending`].
    pub pending: Vec<PendingCall>,
}

/// A call that needs approval before it is executed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PendingCall {
    /// The call's id.
    pub id: String,
    /// The tool.
    pub name: String,
    /// The JSON text of the arguments.
    pub arguments: String,
    /// A hash of the tool and the arguments, to which an approval is bound.
    pub hash: String,
    /// Why it needs approval.
    pub why: String,
}

impl PendingCall {
    /// Describes a call that waits, and why.
    pub(crate) fn new(call: &ToolCall, why: &str) -> PendingCall {
        PendingCall {
            id: call.id.clone().unwrap_or_default(),
            name: call.name.clone(),
            arguments: call.arguments.to_text(),
            hash: call_hash(call),
            why: why.to_owned(),
        }
    }
}

/// Returns a short hash of a call's tool and arguments.
pub fn call_hash(call: &ToolCall) -> String {
    let mut hash = sha256(format!("{}\n{}", call.name, call.arguments.to_text()));
    hash.truncate(12);
    hash
}

impl Outcome {
    /// Returns what all models took together, and each of them.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn usage(&self) -> Value {
        let mut total = ModelUsage { model: String::new(), answers: 0, usage: Usage::default() };
        self.models.iter().for_each(|spent| total.add(spent.usage));
        let mut usage = json!(total.usage);
        usage["models"] = json!(self.models);
        usage
    }
}
