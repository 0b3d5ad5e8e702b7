//! What a turn says while it happens, and what it came to.

use crate::engine::generate::Usage;
use crate::format::event::{Diagnostic, Event as ParserEvent, Repair};
use crate::format::parser::{Parsed, ParsedCall};
use crate::message::Message;
use serde::Serialize;

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The model had said all.
    Stop,
    /// The model waits for the results of its calls.
    ToolCalls,
    /// The token limit or the end of the context.
    Length,
    /// The caller raised [`Options::cancel`].
    Cancelled,
}

/// What happens during a turn, as it happens.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Event {
    /// The model writes.
    Parsed(ParserEvent),
    /// The grammar intervened, or could not.
    Constraint(Tagged<Told>),
    /// What the turn took.
    Usage(Tagged<Usage>),
    /// The turn is over.
    Done(Tagged<Done>),
}

impl Event {
    pub(super) fn constraint(message: String) -> Event {
        Event::Constraint(Tagged { r#type: "constraint", value: Told { message } })
    }

    pub(super) fn usage(usage: Usage) -> Event {
        Event::Usage(Tagged { r#type: "usage", value: usage })
    }

    pub(super) fn done(done: Done) -> Event {
        Event::Done(Tagged { r#type: "done", value: done })
    }
}

/// A value that says in its JSON which event it is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tagged<T> {
    r#type: &'static str,
    #[serde(flatten)]
    value: T,
}

/// The end of a turn.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Done {
    /// Why.
    pub finish_reason: FinishReason,
}

/// Something to tell, in words.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Told {
    /// What happened.
    pub message: String,
}

/// Something worth knowing about an answer: a repair, a problem with a call, a departure that was left.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Note {
    /// Which kind: `repair`, `problem`, `diagnostic` or `constraint`.
    pub kind: &'static str,
    /// The call it is about, where it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// The repair, where it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repair: Option<Repair>,
    /// In words.
    pub message: String,
}

/// All that is worth knowing about a parsed answer.
pub fn notes(parsed: &Parsed) -> Vec<Note> {
    let plain = |kind, message| Note { kind, call: None, repair: None, message };
    let repairs = parsed.repairs.iter().map(|repair| Note {
        repair: Some(repair.clone()),
        ..plain("repair", format!("byte {}: repaired {}", repair.range.start, repair.kind.describe()))
    });
    let diagnostics =
        parsed.diagnostics.iter().map(|diagnostic: &Diagnostic| plain("diagnostic", diagnostic.to_string()));
    let problems = parsed.calls.iter().flat_map(|call| {
        call.problems.iter().map(move |problem| Note {
            call: Some(call.id.clone()),
            ..plain("problem", format!("{} {}: {problem}", call.id, call.name))
        })
    });
    repairs.chain(diagnostics).chain(problems).collect()
}

/// One turn of the model.
#[derive(Debug, Clone)]
pub struct Reply {
    /// The message that joined the conversation.
    pub message: Message,
    /// Its calls, with what the parser knows of each; only `complete` and `valid` ones may be executed.
    pub calls: Vec<ParsedCall>,
    /// Why it ended.
    pub finish_reason: FinishReason,
    /// What it took.
    pub usage: Usage,
    /// Repairs, problems and departures.
    pub notes: Vec<Note>,
}
