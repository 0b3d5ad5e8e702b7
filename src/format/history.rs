//! How a format writes calls and results back into a conversation whose chat template knows neither.

use super::{Format, Marker, Payload};
use crate::message::{Arguments, ToolCall};
use serde::Serialize;
use serde_json::ser::Formatter;
use serde_json::{Map, Value};
use std::io;

/// The patterns by which calls and results are written; `{start}` and the like stand for the parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    /// One call, of `{start}`, `{call}` and `{end}`.
    pub call: String,
    /// What stands between two calls, and between text and the first.
    pub between: String,
    /// The result of a call, of `{name}`, `{id}` and `{content}`, where the chat template has no tool role.
    pub result: String,
}

impl Default for History {
    fn default() -> History {
        History {
            call: "{start}\n{call}\n{end}".to_owned(),
            between: "\n".to_owned(),
            result: "### TOOL_RESULT_START {name} {id} ###\n{content}\n### TOOL_RESULT_END ###".to_owned(),
        }
    }
}

impl Format {
    /// Text and calls of an assistant message as the model would have written them.
    ///
    /// Arguments that are no JSON object are written as they are, so that a history never fails for what a model
    /// once wrote.
    pub fn write_assistant(&self, content: &str, calls: &[ToolCall]) -> String {
        let parts = calls.iter().map(|call| self.write_call(call));
        let content = if content.is_empty() { None } else { Some(content.to_owned()) };
        content.into_iter().chain(parts).collect::<Vec<_>>().join(&self.history.between)
    }

    fn write_call(&self, call: &ToolCall) -> String {
        let Payload::Json(keys) = &self.payload;
        let key = |key: &str| Value::from(key).to_string();
        let arguments = match &call.arguments {
            Arguments::Object(object) => spaced_json(object),
            Arguments::Raw(text) => text.clone(),
        };
        let name = Value::from(call.name.as_str());
        let json = format!("{{{}: {name}, {}: {arguments}}}", key(&keys.name), key(&keys.arguments));
        fill(&self.history.call, |part| match part {
            "start" => literal(&self.start),
            "call" => Some(&json),
            "end" => literal(&self.end),
            _ => None,
        })
    }

    /// A tool's result, marked as such, for chat templates without a tool role.
    pub fn write_result(&self, name: &str, id: &str, content: &str) -> String {
        fill(&self.history.result, |part| match part {
            "name" => Some(name),
            "id" => Some(id),
            "content" => Some(content),
            _ => None,
        })
    }
}

fn literal(marker: &Marker) -> Option<&str> {
    match marker {
        Marker::Literal(text) => Some(text),
        Marker::Pattern(_) => None,
    }
}

/// Fills the `{parts}` of a pattern in, once: what is filled in is not looked at again.
fn fill<'a>(pattern: &'a str, part: impl Fn(&str) -> Option<&'a str>) -> String {
    let mut filled = String::new();
    let mut rest = pattern;
    while let Some(open) = rest.find('{') {
        filled.push_str(&rest[..open]);
        rest = &rest[open..];
        let known = rest.find('}').and_then(|close| Some((close, part(&rest[1..close])?)));
        let (close, text) = known.unwrap_or((0, "{"));
        filled.push_str(text);
        rest = &rest[close + 1..];
    }
    filled + rest
}

/// The names in braces of a pattern.
pub(super) fn parts(pattern: &str) -> impl Iterator<Item = &str> {
    pattern.split('{').skip(1).filter_map(|after| after.split_once('}').map(|(part, _)| part))
}

/// JSON on one line with a space after `:` and `,`, as chat templates and the models trained on them write it.
fn spaced_json(object: &Map<String, Value>) -> String {
    let mut bytes = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, Spaced);
    match object.serialize(&mut serializer) {
        Ok(()) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(_) => Value::Object(object.clone()).to_string(),
    }
}

struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        writer.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        writer.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}
