//! The events of an answer or a run, and its result.

use super::outcome::{FailureKind, Fault, PendingCall, Reason, Status};
use crate::Error;
use crate::decision::{CallProbability, Decided};
use crate::engine::Token;
use crate::generate::{TokenProbability, Usage};
use crate::message::Message;
use crate::parse::ParsedCall;
use crate::parse::event::Event as ParserEvent;
pub(crate) use crate::parse::{Note, NoteKind};
use crate::session::select::SelectedTools;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Range;

/// What happens during a turn, as it happens.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// The model wrote a token: see [`Options::logprobs`](super::Options::logprobs).
    Token(TokenProbability),
    /// The grammar intervened, or could not.
    Constraint(Notice),
    /// Tokens and times of an answer.
    Usage(UsageStep),
    /// A tool was executed.
    ToolResult(ToolResult),
    /// A call that needs approval was decided about.
    Approval(ApprovalStep),
    /// A call did not go well, and is tried again.
    Retry(RetryStep),
    /// A fallback model writes a call.
    Fallback(FallbackStep),
    /// The model is made to answer without tools.
    WithoutTools(WithoutTools),
    /// The conversation did not fit, and something was shortened or left out.
    Context(Notice),
    /// Other tools are in the prompt than before: see [`Options::select_tools`](super::Options::select_tools).
    Selected(SelectedTools),
    /// A server's tools are others than before.
    ToolsChanged(ToolsChange),
    /// The conversation was adapted for the chat template, or the template leaves something of it out.
    History(Notice),
    /// The turn is over.
    Done(Done),
    /// The model writes. Such an event has its own type.
    #[serde(untagged)]
    Parsed(ParserEvent),
}

impl Event {
    pub(crate) fn constraint(message: String) -> Event {
        Event::Constraint(Notice { message })
    }

    pub(crate) fn usage(usage: Usage, model: Option<String>) -> Event {
        Event::Usage(UsageStep { model, usage, call_probability: None, decided: None })
    }

    pub(crate) fn answered(usage: Usage, call_probability: Option<CallProbability>, decided: Option<Decided>) -> Event {
        Event::Usage(UsageStep { model: None, usage, call_probability, decided })
    }

    pub(crate) fn context(message: String) -> Event {
        Event::Context(Notice { message })
    }

    pub(crate) fn history(message: String) -> Event {
        Event::History(Notice { message })
    }

    /// The end of a turn that failed.
    pub(crate) fn failed(error: &Error, status: Option<Status>) -> Event {
        Event::Done(Done { finish_reason: FinishReason::Error, status, error: Some(error.to_string()) })
    }
}

/// Tokens and times of an answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct UsageStep {
    /// The model, where it is not the session's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Tokens and times.
    #[serde(flatten)]
    pub usage: Usage,
    /// How likely the answer began with a call, where the model decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_probability: Option<CallProbability>,
    /// What the thresholds decided because of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided: Option<Decided>,
}

/// The result of a call.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ToolResult {
    /// The call's id.
    pub id: String,
    /// The tool.
    pub name: String,
    /// Whether there is a result.
    pub ok: bool,
    /// What the model gets: the result, or what went wrong.
    pub content: String,
    /// What kind of thing went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureKind>,
    /// The id of the same call before it in the answer, which was executed; this one has its result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub same_as: Option<String>,
    /// Whether the call was executed before, and has the result of that time.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub already_done: bool,
    /// Seconds since the calls of the answer were started.
    pub seconds: f64,
}

/// A decision about a call that needs approval.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ApprovalStep {
    /// The call, and why it needs approval.
    #[serde(flatten)]
    pub call: PendingCall,
    /// What was decided.
    pub decision: Decision,
}

/// What was decided about a call that needs approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Decision {
    /// Somebody allowed this call.
    Given,
    /// All calls are allowed.
    Assumed,
    /// It must not be executed.
    Denied,
    /// The run waits for a decision.
    Pending,
}

/// A call that is tried again.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RetryStep {
    /// The call's id.
    pub id: String,
    /// The tool, as the call names it.
    pub tool: String,
    /// How.
    pub step: Retry,
    /// How the call failed, where the model got the error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
    /// How often the tool has failed in a row, if another call may repair it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failures: Option<usize>,
    /// The arguments that were generated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
    /// What was wrong.
    pub message: String,
}

/// How a call is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Retry {
    /// The model gets the error.
    Reported,
    /// The call alone was generated again under the grammar.
    Regenerated,
    /// The model learns that no other call of the tool would do better.
    Unavailable,
    /// The model learns that it made the call before.
    Repeated,
    /// The model learns that the call was executed before, and gets the result of that time.
    AlreadyDone,
    /// The answer does not count, because the result of each of its calls is known.
    Dropped,
}

/// A fallback model that writes a call.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct FallbackStep {
    /// The call's id, which stays.
    pub id: String,
    /// The tool, as the call names it.
    pub tool: String,
    /// The model.
    pub model: String,
    /// The number of its attempts at this call, including this one.
    pub attempt: usize,
    /// What came of it.
    pub outcome: Fallback,
    /// The arguments that the model wrote.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
    /// What was wrong.
    pub message: String,
}

/// What came of asking a fallback model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Fallback {
    /// It is asked now.
    Asked,
    /// It wrote a call that fits.
    Called,
    /// It wrote none, or one that does not fit.
    Failed,
    /// It cannot be loaded, or failed.
    Unavailable,
    /// No more may be spent on fallback models.
    Exhausted,
}

/// The model is made to answer without tools.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct WithoutTools {
    /// Why.
    pub reason: Reason,
    /// The original error of the call that was given up, or that the model called the same again and again.
    pub message: String,
}

/// Tools of a server that are others than before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolsChange {
    /// The server.
    pub server: String,
    /// The tools that are new.
    pub added: Vec<String>,
    /// Those that are gone.
    pub removed: Vec<String>,
    /// Those with another description or schema.
    pub changed: Vec<String>,
}

impl fmt::Display for ToolsChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [("new", &self.added), ("gone", &self.removed), ("changed", &self.changed)];
        let parts = parts.iter().filter(|(_, names)| !names.is_empty());
        let parts: Vec<String> = parts.map(|(what, names)| format!("{what}: {}", names.join(", "))).collect();
        write!(f, "the MCP server {:?} has other tools now; {}", self.server, parts.join("; "))
    }
}

/// The end of a turn.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Done {
    /// Why.
    pub finish_reason: FinishReason,
    /// How a run ended, where tools are executed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// What failed, where that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A report in words.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Notice {
    /// What happened.
    pub message: String,
}

/// One turn of the model.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Reply {
    /// The message that joined the conversation.
    pub message: Message,
    /// Its calls, with what the parser knows of each; only `complete` and `valid` ones may be executed.
    pub calls: Vec<ParsedCall>,
    /// Why it ended.
    pub finish_reason: FinishReason,
    /// What cut it off, where its finish reason is `length`.
    pub cut: Option<Cut>,
    /// What it took.
    pub usage: Usage,
    /// Repairs, problems and departures.
    pub notes: Vec<Note>,
    /// The prompt, with the beginning of the answer if the tool choice determines it.
    pub prompt: String,
    /// What the model wrote, as it is before it is parsed, with what the prompt began of it.
    pub raw: Vec<u8>,
    /// From which byte of it on the grammar closed what was open, because the tokens ran out.
    pub closed_from: Option<usize>,
    /// From which byte of it on nothing is part of the answer: text after its calls, or a call that it had made before.
    pub dropped_from: Option<usize>,
    /// The tokens of it that the model wrote.
    pub tokens: Vec<Token>,
    /// Which of these tokens were forced, by index; none in a replay.
    pub forced: Vec<Range<usize>>,
    /// What the prompt wrote of the answer before that (see
    /// [`ParserOptions::prompt_tail`](crate::parse::ParserOptions::prompt_tail)).
    pub prompt_tail: String,
    /// How likely it began with a call, where there were tools and the model decided. After reasoning that the prompt does
    /// not begin, it is that of the answer after it. `None` also where the format does not say how its calls begin, and in a
    /// replay of a session that was recorded without it.
    pub call_probability: Option<CallProbability>,
    /// What the thresholds decided because of that.
    pub decided: Option<Decided>,
}

impl Reply {
    /// The calls that may be executed: they are complete and fit their tool.
    pub fn runnable_calls(&self) -> impl Iterator<Item = &ParsedCall> {
        self.calls.iter().filter(|call| call.is_runnable())
    }
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The model ended its answer.
    Stop,
    /// The model waits for the results of its calls.
    ToolCalls,
    /// The token limit or the end of the context.
    Length,
    /// It repeats itself.
    Loop,
    /// The caller ended it.
    Cancelled,
    /// There is none: generating it failed.
    Error,
}

/// What cut an answer off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cut {
    /// [`Options::max_tokens`](super::Options::max_tokens).
    MaxTokens,
    /// The end of the context.
    Context,
    /// A limit of the server; or the server gave no finish reason.
    Server,
    /// The time that a run may take.
    Time,
    /// The constraint, which left out or closed early what there were no tokens for; a note says what.
    Constraint,
}
