//! What the packages for Python and JavaScript share: texts and JSON values in, JSON values out.
//!
//! The names in the JSON are those of the program's output: `callwright parse`, `callwright template check --json` and
//! `callwright template list --json`. Each package only converts between JSON and its language's values.
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

mod check;
mod parse;
mod render;
mod source;

pub use check::{CheckOptions, check_template};
pub use parse::{ParseOptions, Stream, parse};
pub use render::{RenderOptions, Rendered, render, render_variables};
pub use source::{formats, tools};

use callwright_core::{Error, ErrorKind};
use serde_json::{Value, json};

/// An error as JSON: its kind, its message, what to do, and where it is.
pub fn error_json(error: &Error) -> Value {
    let place = error.location();
    json!({
        "kind": kind(error.kind()),
        "message": error.message(),
        "hint": error.hint_text(),
        "file": place.and_then(|place| place.file.as_ref()).map(|file| file.display().to_string()),
        "line": place.and_then(|place| place.line),
        "column": place.and_then(|place| place.column),
    })
}

/// The kind of an error in one word.
fn kind(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Io => "io",
        ErrorKind::Syntax => "syntax",
        ErrorKind::Tools => "tools",
        ErrorKind::Messages => "messages",
        ErrorKind::Template => "template",
        ErrorKind::Format => "format",
        _ => "config",
    }
}
