//! Writes calls and results into a conversation whose chat template supports neither.

use super::{Declaration, Format, Head, JsonCall, Marker, NamedCall, Payload, TaggedCall};
use crate::message::{Arguments, ToolCall};
use crate::template::CallHistory;
use serde::Serialize;
use serde_json::Value;
use serde_json::ser::Formatter;
use std::io;

/// How past calls and results are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    /// The text between two calls; if it is white space, also between text and the first call. If each call has a
    /// section of its own, it closes and reopens the section.
    pub between: String,
    /// The result of a call, with `{name}`, `{id}` and `{content}`, if the chat template has no tool role.
    pub result: String,
}

impl Default for History {
    fn default() -> History {
        History {
            between: "\n".to_owned(),
            result: "### TOOL_RESULT_START {name} {id} ###\n{content}\n### TOOL_RESULT_END ###".to_owned(),
        }
    }
}

impl History {
    /// The markup around a result. It is reserved, because a tool that wrote it could fake other results.
    pub fn marks(&self) -> impl Iterator<Item = &str> {
        let literal = self.result.split('{').enumerate().map(|(index, part)| match part.split_once('}') {
            Some((_, after)) if index > 0 => after,
            _ => part,
        });
        // JSON's own punctuation appears in every other result.
        let is_sign = |c: char| c.is_ascii_punctuation() && !"{}\",:".contains(c);
        literal
            .flat_map(str::lines)
            .map(str::trim)
            .filter(move |part| part.starts_with(is_sign) && part.contains(char::is_alphanumeric))
    }
}

impl CallHistory for Format {
    /// Arguments that are not a JSON object are written unchanged, so that rendering a history never fails.
    fn assistant(&self, content: &str, calls: &[ToolCall]) -> String {
        let written = self.write_calls(calls);
        if content.is_empty() || written.is_empty() {
            return content.to_owned() + &written;
        }
        let between = &self.history.between;
        format!("{content}{}{written}", if between.trim().is_empty() { between } else { "\n" })
    }

    fn result(&self, name: &str, id: &str, content: &str) -> String {
        fill(&self.history.result, |part| match part {
            "name" => Some(name),
            "id" => Some(id),
            "content" => Some(content),
            _ => None,
        })
    }
}

impl Declaration {
    /// The calls of one answer in this format, with markers and section.
    pub fn write_calls(&self, calls: &[ToolCall]) -> String {
        if calls.is_empty() {
            return String::new();
        }
        let payloads = calls.iter().enumerate().map(|(index, call)| self.payload.write(call, index));
        let one = |payload: &str| format!("{}{payload}{}", written(&self.start), written(&self.end));
        let calls = match &self.payload {
            Payload::Json(JsonCall { array: true, .. }) | Payload::Python { list: true, .. } => {
                one(&format!("[{}]", payloads.collect::<Vec<_>>().join(", ")))
            }
            Payload::Python { list: false, .. } => one(&payloads.collect::<Vec<_>>().join("\n")),
            _ => payloads.map(|payload| one(&payload)).collect::<Vec<_>>().join(&self.history.between),
        };
        match &self.section {
            Some(section) => {
                format!("{}{calls}{}", section.start.text().unwrap_or_default(), section.end.text().unwrap_or_default())
            }
            None => calls,
        }
    }
}

impl Declaration {
    /// How an answer with a call begins; with `tool`, a call of that tool.
    ///
    /// It ends inside text that models learn as one token (the marker's line, or the name). If a model must continue
    /// after a space or a quote that it never saw as a separate token, its output degrades.
    pub fn opening(&self, tool: Option<&str>) -> String {
        let section = self.section.as_ref().and_then(|section| section.start.text()).unwrap_or_default();
        let bracket = match &self.payload {
            Payload::Json(JsonCall { array: true, .. }) | Payload::Python { list: true, .. } => "[",
            _ => "",
        };
        let opening = format!("{section}{}{bracket}", written(&self.start));
        match (&self.payload, tool) {
            (Payload::Json(JsonCall { keyed: true, .. }), Some(tool)) => {
                format!("{opening}{{{}", Value::from(tool).to_string().trim_end_matches('"'))
            }
            (Payload::Json(JsonCall { keyed: true, .. }), None) if self.start.is_none() => format!("{opening}{{\""),
            (Payload::Json(json), Some(tool)) => {
                let name = Value::from(tool).to_string();
                format!("{opening}{{{}: {}", Value::from(json.name.as_str()), name.trim_end_matches('"'))
            }
            (Payload::Json(json), None) if self.start.is_none() => {
                format!("{opening}{{{}:", Value::from(json.name.as_str()))
            }
            (Payload::Named(NamedCall { head, .. }) | Payload::Tagged(TaggedCall { head, .. }), Some(tool)) => {
                let form = head.forms.first().map_or("{name}", String::as_str);
                let form = if form.contains("{name}") { form } else { head.id.as_deref().unwrap_or_default() };
                let before = form.split("{name}").next().unwrap_or_default();
                format!("{opening}{before}{tool}")
            }
            (Payload::Python { .. }, Some(tool)) => opening + tool,
            _ => opening.trim_end().to_owned(),
        }
    }
}

fn written(marker: &Option<Marker>) -> &str {
    marker.as_ref().and_then(Marker::text).unwrap_or_default()
}

impl Payload {
    /// One call, without its markers; `index` counts the calls of an answer from 0.
    fn write(&self, call: &ToolCall, index: usize) -> String {
        match self {
            Payload::Json(json) => json.write(call),
            Payload::Named(named) => {
                let arguments = match &call.arguments {
                    Arguments::Object(object) => named.value(&Value::Object(object.clone())),
                    Arguments::Raw(text) => text.clone(),
                };
                format!("{}{arguments}{}", named.head.write(call, index), named.tail)
            }
            Payload::Tagged(tagged) => {
                let mut text = tagged.head.write(call, index);
                match &call.arguments {
                    Arguments::Object(object) => {
                        object.iter().for_each(|(key, value)| tagged.write_argument(key, value, &mut text));
                    }
                    Arguments::Raw(raw) => text.push_str(raw),
                }
                text
            }
            Payload::Python { .. } => {
                let arguments = match &call.arguments {
                    Arguments::Object(object) => object
                        .iter()
                        .map(|(key, value)| format!("{key}={}", python(value)))
                        .collect::<Vec<_>>()
                        .join(", "),
                    Arguments::Raw(text) => text.clone(),
                };
                format!("{}({arguments})", call.name)
            }
        }
    }
}

impl JsonCall {
    fn write(&self, call: &ToolCall) -> String {
        let key = |key: &str| Value::from(key).to_string();
        let name = Value::from(call.name.as_str());
        let arguments = match &call.arguments {
            Arguments::Object(object) => spaced_json(object),
            Arguments::Raw(text) => text.clone(),
        };
        if self.keyed {
            return format!("{{{name}: {arguments}}}");
        }
        let id = match (&self.id, &call.id) {
            (Some(id_key), Some(id)) => format!(", {}: {}", key(id_key), Value::from(id.as_str())),
            _ => String::new(),
        };
        format!("{{{}: {name}, {}: {arguments}{id}}}", key(&self.name), key(&self.arguments))
    }
}

impl Head {
    fn write(&self, call: &ToolCall, index: usize) -> String {
        let (index, number) = (index.to_string(), (index + 1).to_string());
        let plain = |part: &str| match part {
            "name" => Some(call.name.as_str()),
            "index" => Some(index.as_str()),
            "number" => Some(number.as_str()),
            _ => None,
        };
        let id = match &self.id {
            Some(pattern) => fill(pattern, plain),
            None => call.id.clone().unwrap_or_default(),
        };
        let form = self.forms.first().map_or("{name}", String::as_str);
        fill(form, |part| if part == "id" { Some(&id) } else { plain(part) })
    }
}

impl NamedCall {
    fn value(&self, value: &Value) -> String {
        if self.quote.is_none() && !self.bare_keys {
            return spaced_json(value);
        }
        let quote = self.quote.as_deref();
        let text = |text: &str| quote.map_or_else(|| Value::from(text).to_string(), |q| format!("{q}{text}{q}"));
        match value {
            Value::String(string) => text(string),
            Value::Array(items) => {
                format!("[{}]", items.iter().map(|item| self.value(item)).collect::<Vec<_>>().join(","))
            }
            Value::Object(object) => {
                let key = |key: &str| if self.bare_keys { key.to_owned() } else { text(key) };
                let members = object.iter().map(|(name, value)| format!("{}:{}", key(name), self.value(value)));
                format!("{{{}}}", members.collect::<Vec<_>>().join(","))
            }
            other => other.to_string(),
        }
    }
}

impl TaggedCall {
    fn write_argument(&self, key: &str, value: &Value, text: &mut String) {
        text.extend([&*self.key_start, &self.write_key(key), &self.key_end_of(value), &self.value_start]);
        match value {
            Value::Object(object) if self.nested => {
                object.iter().for_each(|(key, value)| self.write_argument(key, value, text));
            }
            Value::Array(items) if self.nested => {
                items.iter().for_each(|item| self.write_argument("item", item, text));
            }
            Value::String(string) => text.push_str(string),
            value => text.push_str(&spaced_json(value)),
        }
        text.push_str(&fill(&self.value_end, |part| (part == "key").then_some(key)));
    }
}

/// A value as a Python literal. Strings are written as JSON, which Python reads the same.
fn python(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Array(items) => format!("[{}]", items.iter().map(python).collect::<Vec<_>>().join(", ")),
        Value::Object(object) => {
            let members = object.iter().map(|(key, value)| format!("{}: {}", Value::from(key.as_str()), python(value)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

/// Fills in the `{parts}` of a pattern once: inserted text is not scanned again.
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
pub(crate) fn parts(pattern: &str) -> impl Iterator<Item = &str> {
    pattern.split('{').skip(1).filter_map(|after| after.split_once('}').map(|(part, _)| part))
}

/// JSON on one line with a space after `:` and `,`, as chat templates and the models trained on them write it.
pub(crate) fn spaced_json(value: &impl Serialize) -> String {
    let mut bytes = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, Spaced);
    // Writing a JSON value to memory cannot fail.
    value.serialize(&mut serializer).ok();
    String::from_utf8_lossy(&bytes).into_owned()
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
