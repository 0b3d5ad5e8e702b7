//! What is worth knowing about an answer, in words.

use super::Parsed;
use super::event::{DiagnosticKind, Repair};
use crate::setting::Setting;
use serde::Serialize;

/// Something worth knowing about an answer: a repair, a problem with a call, a departure that was left.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Note {
    /// Which kind: `repair`, `problem`, `diagnostic`, `history`, `constraint`, `loop` (it repeats itself), `no_call` (why
    /// there may be none) or `answer` (why it ended); in a run also `retry`, `repeated`, `fallback`, `context`, `tools` (of servers) or `failure_log`.
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

impl Note {
    /// A note that is about no call.
    #[doc(hidden)]
    pub fn plain(kind: &'static str, message: String) -> Note {
        Note { kind, call: None, repair: None, message }
    }
}

/// Returns all that is worth knowing about a parsed answer.
#[doc(hidden)]
pub fn notes(parsed: &Parsed) -> Vec<Note> {
    let repairs = parsed.repairs.iter().map(|repair| Note {
        repair: Some(repair.clone()),
        ..Note::plain("repair", format!("byte {}: {}", repair.range.start, repair.kind.done()))
    });
    let diagnostics = parsed.diagnostics.iter().map(|diagnostic| {
        let mut message = diagnostic.to_string();
        if let DiagnosticKind::OtherForm { format: Some(_), .. } = diagnostic.kind {
            message += &format!(" ({} sets it)", Setting::Format);
        }
        Note::plain("diagnostic", message)
    });
    let problems = parsed.calls.iter().flat_map(|call| {
        call.problems.iter().map(move |problem| Note {
            call: Some(call.id.clone()),
            ..Note::plain("problem", format!("{} {}: {problem}", call.id, call.name))
        })
    });
    repairs.chain(diagnostics).chain(problems).collect()
}
