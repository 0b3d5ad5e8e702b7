//! What is worth knowing about an answer, in words.

use super::Parsed;
use super::event::{DiagnosticKind, Repair};
use crate::setting::Setting;
use serde::Serialize;

/// What a note is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NoteKind {
    /// The text of a call was repaired.
    Repair,
    /// A call, or an answer that has a schema, is not as it should be.
    Problem,
    /// A departure from the format was left as it is.
    Diagnostic,
    /// The conversation was changed for the chat template.
    History,
    /// The grammar left something out, or could not hold the model to all of the schema.
    Constraint,
    /// The answer repeats itself, or the same call came again and again.
    Loop,
    /// Why there may be no call.
    NoCall,
    /// Why the answer ended, or where its text comes from.
    Answer,
    /// Something of the conversation was shortened or left out.
    Context,
    /// A call could not be made again.
    Retry,
    /// The same call came more than once in an answer, and was executed once.
    Repeated,
    /// The calls of an answer had been executed before.
    AlreadyDone,
    /// Another model wrote a call, or could not.
    Fallback,
    /// A server's tools are others than before.
    Tools,
    /// Where the attempts at a call are, or why they could not be written down.
    FailureLog,
    /// The run could not be recorded.
    Record,
    /// The entry of models.toml that applies.
    Model,
    /// A part of the request that is not used.
    Request,
}

/// Something worth knowing about an answer: a repair, a problem with a call, a departure that was left.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Note {
    /// What it is about.
    pub kind: NoteKind,
    /// The call it is about, where it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// The repair, where it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repair: Option<Repair>,
    /// In words.
    pub message: String,
}

impl Note {
    /// A note that is about no call.
    pub fn plain(kind: NoteKind, message: String) -> Note {
        Note { kind, call: None, repair: None, message }
    }
}

/// Returns all that is worth knowing about a parsed answer.
pub fn notes(parsed: &Parsed) -> Vec<Note> {
    let repairs = parsed.repairs.iter().map(|repair| Note {
        repair: Some(repair.clone()),
        ..Note::plain(NoteKind::Repair, format!("byte {}: {}", repair.range.start, repair.kind.done()))
    });
    let diagnostics = parsed.diagnostics.iter().map(|diagnostic| {
        let mut message = diagnostic.to_string();
        if let DiagnosticKind::OtherForm { format: Some(_), .. } = diagnostic.kind {
            message += &format!(" ({} sets it)", Setting::Format);
        }
        Note::plain(NoteKind::Diagnostic, message)
    });
    let problems = parsed.calls.iter().flat_map(|call| {
        call.problems.iter().map(move |problem| Note {
            call: Some(call.id.clone()),
            ..Note::plain(NoteKind::Problem, format!("{} {}: {problem}", call.id, call.name))
        })
    });
    repairs.chain(diagnostics).chain(problems).collect()
}
