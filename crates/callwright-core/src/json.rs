//! Reads JSON from people and programs, with errors that show where the text breaks and what a field should be.

use crate::error::{Error, ErrorKind, Location, Result, carets};
use crate::text_file;
use serde_json::Value;
use std::path::Path;

/// Reads a JSON file.
///
/// # Errors
/// [`ErrorKind::Io`] when it cannot be read, [`ErrorKind::Syntax`] with line, column and a caret when it is not JSON.
pub fn from_file(path: impl AsRef<Path>) -> Result<Value> {
    let path = path.as_ref();
    parse(&text_file::read(path)?).map_err(|error| error.in_file(path))
}

/// Parses `text`; the error says where it stops being JSON and shows the line.
pub(crate) fn parse(text: &str) -> Result<Value> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    serde_json::from_str(text).map_err(|source| {
        let (line, column) = (source.line(), source.column());
        let message = source.to_string();
        // serde_json ends its messages with the position, which the location already says.
        let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(before, _)| before);
        let source_line = text.lines().nth(line.saturating_sub(1)).unwrap_or("");
        let before = &source_line.as_bytes()[..column.saturating_sub(1).min(source_line.len())];
        let characters = String::from_utf8_lossy(before).chars().count();
        Error::new(ErrorKind::Syntax, format!("not valid JSON: {message}"))
            .at(Location { file: None, line: Some(line), column: Some(characters + 1) })
            .excerpt(carets(source_line, line, characters, 1))
            .caused_by(source)
    })
}

/// The kind of a value, for an error message.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// A value for an error message: its JSON text, shortened if it is long.
pub fn shown(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= 60 { text } else { text.chars().take(57).collect::<String>() + "…" }
}
