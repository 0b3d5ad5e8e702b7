//! Message content that is a list of parts: text is kept, and other parts are replaced by placeholders.

use super::Role;
use serde_json::{Map, Value};

/// Part types that are never text, by prefix, and their names in placeholders.
const MEDIA: [(&str, &str); 10] = [
    ("image", "image"),
    ("input_image", "image"),
    ("audio", "audio"),
    ("input_audio", "audio"),
    ("video", "video"),
    ("input_video", "video"),
    ("file", "file"),
    ("input_file", "file"),
    ("document", "file"),
    ("resource", "resource"),
];
/// Fields in which a part names its content: a name, a media type, an address.
const NAMES: [&str; 5] = ["filename", "file_name", "name", "title", "file_id"];
const MEDIA_TYPES: [&str; 4] = ["mimeType", "mime_type", "media_type", "format"];
const ADDRESSES: [&str; 4] = ["url", "uri", "image_url", "file_url"];
/// Longer details are omitted from a placeholder, and longer parts are not shown as JSON.
const LONGEST_DETAIL: usize = 80;
const LONGEST_JSON: usize = 2000;

/// The content of a message.
#[derive(Debug, Default)]
pub(super) struct Content {
    /// The text, with placeholders.
    pub text: String,
    /// The content of `thinking` parts.
    pub reasoning: Option<String>,
    /// Path and type of the first part that is not text.
    pub unshown: Option<(String, String)>,
    /// What differs from the original.
    pub notes: Vec<String>,
}

/// Reads a message's content of any form.
pub(super) fn content(value: &Value, path: &str, role: Role) -> Content {
    let mut read = Content::default();
    match value {
        Value::Null => {}
        Value::String(text) => read.text.clone_from(text),
        Value::Array(parts) if role != Role::Tool || parts.iter().any(is_part) || parts.is_empty() => {
            let mut texts = Vec::with_capacity(parts.len());
            for (index, part) in parts.iter().enumerate() {
                texts.extend(read.part(part, &format!("{path}[{index}]")));
            }
            read.text = texts.join("\n");
        }
        other => {
            read.notes.push(format!("{path} is {}; it is read as JSON text", crate::json::kind(other)));
            read.text = other.to_string();
        }
    }
    read
}

/// Returns whether a list with this element is a list of parts, rather than a result that is a list.
fn is_part(value: &Value) -> bool {
    match value {
        Value::String(_) => true,
        Value::Object(fields) => fields.get("text").or(fields.get("type")).is_some_and(Value::is_string),
        _ => false,
    }
}

impl Content {
    fn part(&mut self, part: &Value, path: &str) -> Option<String> {
        let fields = match part {
            Value::String(text) => return Some(text.clone()),
            Value::Object(fields) => fields,
            other => return Some(self.as_json(other, path)),
        };
        let kind = fields.get("type").and_then(Value::as_str).unwrap_or_default();
        let text = fields.get("text").and_then(Value::as_str);
        match kind {
            "text" | "input_text" | "output_text" | "" if text.is_some() => return text.map(str::to_owned),
            "refusal" => {
                if let Some(refusal) = fields.get("refusal").and_then(Value::as_str) {
                    self.notes.push(format!("{path} is a refusal; it is read as text"));
                    return Some(refusal.to_owned());
                }
            }
            "thinking" | "reasoning" => {
                if let Some(thought) = thought(fields) {
                    let reasoning = self.reasoning.get_or_insert_default();
                    if !reasoning.is_empty() {
                        reasoning.push('\n');
                    }
                    reasoning.push_str(&thought);
                    return None;
                }
            }
            // An embedded MCP resource may be text.
            "resource" => {
                let inner = fields.get("resource").and_then(|resource| resource.get("text"));
                if let Some(text) = inner.and_then(Value::as_str) {
                    return Some(text.to_owned());
                }
            }
            _ => {}
        }
        let media = MEDIA.iter().filter(|(start, _)| kind.starts_with(start)).max_by_key(|(start, _)| start.len());
        let json_length = part.to_string().len();
        match media {
            None if json_length <= LONGEST_JSON => Some(self.as_json(part, path)),
            _ => Some(self.placeholder(fields, path, media.map_or(kind, |(_, noun)| noun), text)),
        }
    }

    fn as_json(&mut self, value: &Value, path: &str) -> String {
        self.notes.push(format!("{path} is not a part of a known type; it is read as JSON text"));
        value.to_string()
    }

    fn placeholder(&mut self, fields: &Map<String, Value>, path: &str, noun: &str, text: Option<&str>) -> String {
        let noun = if noun.is_empty() || noun.len() > LONGEST_DETAIL { "part" } else { noun };
        let placeholder = match detail(fields) {
            Some(detail) => format!("[{noun} not shown: {detail}]"),
            None => format!("[{noun} not shown]"),
        };
        let kind = fields.get("type").and_then(Value::as_str).unwrap_or_default();
        self.notes.push(format!(
            "{path} is a part of type {kind:?}, which is not text; the prompt has {placeholder:?} instead"
        ));
        self.unshown.get_or_insert_with(|| (path.to_owned(), kind.to_owned()));
        match text.filter(|text| !text.is_empty()) {
            Some(text) => format!("{text}\n{placeholder}"),
            None => placeholder,
        }
    }
}

/// The text of a part that holds reasoning.
fn thought(fields: &Map<String, Value>) -> Option<String> {
    let value = ["thinking", "text", "reasoning", "summary"].iter().find_map(|key| fields.get(*key))?;
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(chunks) => {
            let texts = chunks.iter().filter_map(|chunk| chunk.as_str().or_else(|| chunk.get("text")?.as_str()));
            Some(texts.collect::<Vec<_>>().join("\n"))
        }
        _ => None,
    }
}

/// Returns what identifies a part: its file name, media type or address, but never its data.
fn detail(fields: &Map<String, Value>) -> Option<String> {
    let inner = fields.values().filter_map(Value::as_object);
    let objects: Vec<&Map<String, Value>> = std::iter::once(fields).chain(inner).collect();
    let find = |keys: &[&str]| {
        let texts = objects.iter().flat_map(|object| keys.iter().filter_map(|key| object.get(*key)?.as_str()));
        texts.filter_map(describe).next()
    };
    find(&NAMES).or_else(|| find(&MEDIA_TYPES)).or_else(|| find(&ADDRESSES))
}

fn describe(text: &str) -> Option<String> {
    let shown = match text.strip_prefix("data:") {
        Some(data) => data.split([';', ',']).next().unwrap_or_default(),
        None => text,
    };
    let printable = !shown.is_empty() && shown.len() <= LONGEST_DETAIL && !shown.contains(char::is_control);
    printable.then(|| shown.to_owned())
}
