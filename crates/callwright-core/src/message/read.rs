//! OpenAI's JSON → messages. Every error and every note names the field by its path from the top of the file.

use super::{Arguments, Conversation, Message, Role, ToolCall, parts};
use crate::error::{Error, ErrorKind, Result, nearest};
use crate::{json, text_file};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashSet};
use std::path::Path;

const ROLES: [&str; 5] = ["system", "developer", "user", "assistant", "tool"];
/// Other programs' names of roles.
const OTHER_ROLES: [(&str, Role); 9] = [
    ("function", Role::Tool),
    ("ipython", Role::Tool),
    ("observation", Role::Tool),
    ("tool_response", Role::Tool),
    ("human", Role::User),
    ("ai", Role::Assistant),
    ("bot", Role::Assistant),
    ("gpt", Role::Assistant),
    ("model", Role::Assistant),
];
/// The name of a call without one: templates and programs require a name.
const NAMELESS: &str = "invalid_call";
/// The known fields of a message.
const FIELDS: [&str; 13] = [
    "role",
    "content",
    "refusal",
    "tool_calls",
    "function_call",
    "tool_call_id",
    "name",
    "reasoning_content",
    "reasoning",
    "thinking",
    // Fields that this program adds.
    "invalid_tool_calls",
    "diagnostics",
    "format",
];

impl Conversation {
    /// Reads a file of messages: a list, a whole request body with `messages` in it, a single message, or JSON Lines
    /// with a message in each line.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Conversation> {
        let path = path.as_ref();
        let text = text_file::read(path)?;
        Conversation::from_json(&text, path)
    }

    /// Reads JSON text; `name` is the file's name in errors.
    pub fn from_json(text: &str, name: impl AsRef<Path>) -> Result<Conversation> {
        let value = json::parse(text).or_else(|error| lines(text).unwrap_or(Err(error)));
        let read = value.and_then(Conversation::from_value).map_err(|error| error.in_file(name))?;
        Ok(Conversation { notes: super::twice::notes(text).into_iter().chain(read.notes).collect(), ..read })
    }

    /// Reads a list of messages, a request body, or a single message.
    pub fn from_value(value: Value) -> Result<Conversation> {
        match value {
            Value::Array(list) => {
                let (messages, notes) = messages(list)?;
                Ok(Conversation { messages, notes, ..Conversation::default() })
            }
            Value::Object(body) => request(body),
            other => Err(wrong("the file", "a list of messages, or an object with \"messages\"", &other)),
        }
    }
}

/// The messages of JSON Lines; `None` if the first line is not a message.
fn lines(text: &str) -> Option<Result<Value>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).peekable();
    let first: Value = serde_json::from_str(lines.peek()?.1).ok()?;
    first.get("role")?;
    let read = |(index, line): (usize, &str)| match serde_json::from_str(line) {
        Ok(value) => Ok(value),
        // Keep the file's line number in the error.
        Err(_) => json::parse(&("\n".repeat(index) + line)),
    };
    Some(lines.map(read).collect())
}

fn request(mut body: Map<String, Value>) -> Result<Conversation> {
    let list = match body.shift_remove("messages") {
        Some(Value::Array(list)) => list,
        Some(other) => return Err(wrong("messages", "a list of messages", &other)),
        None if body.contains_key("role") => {
            let (messages, notes) = messages(vec![Value::Object(body)])?;
            return Ok(Conversation { messages, notes, ..Conversation::default() });
        }
        None => return Err(Error::new(ErrorKind::Messages, "there are no \"messages\" in the object")),
    };
    let model = match body.shift_remove("model") {
        None | Some(Value::Null) => None,
        Some(Value::String(model)) => Some(model),
        Some(other) => return Err(wrong("model", "a string", &other)),
    };
    let parallel_tool_calls = match body.shift_remove("parallel_tool_calls") {
        None | Some(Value::Null) => None,
        Some(Value::Bool(parallel)) => Some(parallel),
        Some(other) => return Err(wrong("parallel_tool_calls", "true or false", &other)),
    };
    let (messages, mut notes) = messages(list)?;
    // The fields that preceded tools and tool_choice.
    let mut current = |name: &'static str, old: &'static str| {
        let old_value = body.shift_remove(old).filter(|value| !is_nothing(value));
        let value = body.shift_remove(name).filter(|value| !value.is_null());
        match (&value, &old_value) {
            (None, Some(_)) => notes.push(format!("{old} is the old form of {name}; it is read as that")),
            (Some(_), Some(_)) => notes.push(format!("{old} is not read, as there is {name}")),
            _ => {}
        }
        match value {
            Some(value) => Some((name, value)),
            None => Some((old, old_value?)),
        }
    };
    let (tools, tool_choice) = (current("tools", "functions"), current("tool_choice", "function_call"));
    let tools = match tools {
        Some((name, value)) if !value.is_array() && !value.is_object() => {
            return Err(wrong(name, "a list of tools", &value));
        }
        tools => tools.map(|(_, value)| value),
    };
    let tool_choice = match tool_choice {
        Some((name @ "function_call", value)) => {
            let is_named = value.get("name").is_some_and(Value::is_string);
            if !is_named && !value.as_str().is_some_and(|word| matches!(word, "auto" | "none")) {
                let expected = r#""auto", "none" or {"name": "…"}"#;
                let found = json::shown(&value);
                return Err(Error::new(ErrorKind::Messages, format!("{name} is {found}; expected {expected}")));
            }
            Some(value)
        }
        choice => choice.map(|(_, value)| value),
    };
    Ok(Conversation { messages, notes, tools, tool_choice, parallel_tool_calls, model, extra: body })
}

fn messages(list: Vec<Value>) -> Result<(Vec<Message>, Vec<String>)> {
    let answered = list.iter().filter_map(|value| value.get("tool_call_id")?.as_str().map(str::to_owned)).collect();
    let mut reader = Reader { answered, ..Reader::default() };
    let read = list.into_iter().enumerate().map(|(index, value)| reader.message(&value, &format!("messages[{index}]")));
    let messages = read.collect::<Result<_>>()?;
    let unread = reader.unread.iter().map(|(field, (place, more))| match more {
        0 => format!("{place}.{field} is not read"),
        more => format!("{place}.{field} is not read, nor is that of {more} more"),
    });
    let notes = reader.notes.iter().cloned().chain(unread).collect();
    Ok((messages, notes))
}

/// Reads messages, and collects what was read in another form.
#[derive(Default)]
struct Reader {
    notes: Vec<String>,
    /// Unread fields: the first message that has each, and how many others have it.
    unread: BTreeMap<String, (String, usize)>,
    /// The ids of calls that have a result.
    answered: HashSet<String>,
}

impl Reader {
    fn message(&mut self, value: &Value, path: &str) -> Result<Message> {
        let Value::Object(fields) = value else {
            return Err(wrong(path, "an object with \"role\" and \"content\"", value));
        };
        let role = self.role(fields.get("role"), path)?;
        let mut content = match fields.get("content") {
            Some(content) => parts::content(content, &format!("{path}.content"), role),
            None => parts::Content::default(),
        };
        if !fields.contains_key("content") && role != Role::Assistant {
            self.notes.push(format!("{path} has no \"content\"; it is read as empty"));
        }
        self.notes.append(&mut content.notes);
        if let Some(refusal) = self.text(fields, "refusal", path).filter(|text| !text.is_empty()) {
            self.notes.push(format!("{path}.refusal is read as text"));
            append(&mut content.text, &refusal);
        }
        let mut tool_calls = self.tool_calls(fields, path);
        if role != Role::Assistant && !tool_calls.is_empty() {
            self.notes.push(format!(
                "{path} has tool_calls, but its role is {}: only an assistant message calls tools; they are read as text",
                role.as_str()
            ));
            for call in tool_calls.drain(..) {
                append(&mut content.text, &call.to_json().to_string());
            }
        }
        if role == Role::Assistant {
            add_invalid(fields.get("invalid_tool_calls"), &self.answered, &mut tool_calls, &mut content.text);
        }
        let mut reasoning = content.reasoning.take().filter(|text| !text.is_empty());
        for key in ["reasoning_content", "reasoning", "thinking"] {
            let found = self.text(fields, key, path).filter(|text| !text.is_empty());
            reasoning = reasoning.or(found);
        }
        for (field, value) in fields {
            if !FIELDS.contains(&field.as_str()) && !is_nothing(value) {
                self.unread(field, path);
            }
        }
        Ok(Message {
            role,
            content: content.text,
            parts: content.unshown.and(fields.get("content").cloned()),
            reasoning,
            tool_calls,
            tool_call_id: self.text(fields, "tool_call_id", path),
            name: self.text(fields, "name", path),
        })
    }

    fn role(&mut self, value: Option<&Value>, path: &str) -> Result<Role> {
        let name = match value {
            Some(Value::String(name)) => name.as_str(),
            Some(other) => return Err(wrong(&format!("{path}.role"), "a string", other)),
            None => return Err(Error::new(ErrorKind::Messages, format!("{path} has no \"role\""))),
        };
        if let Some(role) = known_role(name) {
            return Ok(role);
        }
        let lower = name.trim().to_lowercase();
        let other = OTHER_ROLES.iter().find(|(other, _)| *other == lower).map(|(_, role)| *role);
        let meant = || known_role(&lower).or_else(|| known_role(nearest(&lower, ROLES)?));
        let role = other.or_else(meant).unwrap_or(Role::User);
        self.notes.push(format!("{path}.role is {name:?}; it is read as {:?}", role.as_str()));
        Ok(role)
    }

    fn tool_calls(&mut self, fields: &Map<String, Value>, path: &str) -> Vec<ToolCall> {
        let mut calls = match fields.get("tool_calls") {
            Some(Value::Array(calls)) => {
                let path = format!("{path}.tool_calls");
                calls.iter().enumerate().map(|(i, call)| self.tool_call(call, &format!("{path}[{i}]"))).collect()
            }
            Some(Value::Object(call)) if !call.is_empty() => {
                self.notes.push(format!("{path}.tool_calls is an object; it is read as one call"));
                vec![self.tool_call(&Value::Object(call.clone()), &format!("{path}.tool_calls"))]
            }
            Some(other) if !is_nothing(other) => {
                self.unread("tool_calls", path);
                Vec::new()
            }
            _ => Vec::new(),
        };
        if let Some(old) = fields.get("function_call").filter(|call| !is_nothing(call)) {
            self.notes.push(format!("{path}.function_call is the old form of a call; it is read as one"));
            calls.push(self.tool_call(old, &format!("{path}.function_call")));
        }
        calls
    }

    /// A call in any form. What cannot be read as one becomes the arguments of a call without a name.
    fn tool_call(&mut self, value: &Value, path: &str) -> ToolCall {
        let Value::Object(call) = value else {
            self.notes.push(format!("{path} is {}; it is read as a call named {NAMELESS:?}", json::kind(value)));
            return ToolCall { id: None, name: NAMELESS.to_owned(), arguments: arguments(Some(value)) };
        };
        // Some programs omit the inner object; a call of type "custom" has a different one.
        let (function, path_of_function) = match (call.get("function"), call.get("custom")) {
            (Some(Value::Object(function)), _) => (function, format!("{path}.function")),
            (_, Some(Value::Object(custom))) => (custom, format!("{path}.custom")),
            _ => (call, path.to_owned()),
        };
        let kind = call.get("type").filter(|kind| !kind.is_null() && *kind != "function");
        if let Some(kind) = kind {
            self.notes.push(format!("{path}.type is {}; it is read as \"function\"", json::shown(kind)));
        }
        let named = function.get("name").or_else(|| call.get("function"));
        let name = match named.and_then(Value::as_str).filter(|name| !name.trim().is_empty()) {
            Some(name) => name.to_owned(),
            None => {
                self.notes.push(format!("{path_of_function} has no \"name\"; the call is named {NAMELESS:?}"));
                NAMELESS.to_owned()
            }
        };
        let given = ["arguments", "parameters", "input"].iter().find_map(|key| function.get(*key));
        ToolCall { id: self.text(call, "id", path).filter(|id| !id.is_empty()), name, arguments: arguments(given) }
    }

    /// A text field; a number is converted, anything else is ignored.
    fn text(&mut self, fields: &Map<String, Value>, key: &str, path: &str) -> Option<String> {
        match fields.get(key)? {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => {
                self.notes.push(format!("{path}.{key} is a number; it is read as text"));
                Some(number.to_string())
            }
            other => {
                if !is_nothing(other) {
                    self.unread(key, path);
                }
                None
            }
        }
    }

    fn unread(&mut self, field: &str, path: &str) {
        match self.unread.get_mut(field) {
            Some((_, more)) => *more += 1,
            None => drop(self.unread.insert(field.to_owned(), (path.to_owned(), 0))),
        }
    }
}

fn known_role(name: &str) -> Option<Role> {
    match name {
        "system" | "developer" => Some(Role::System),
        "user" => Some(Role::User),
        "assistant" => Some(Role::Assistant),
        "tool" => Some(Role::Tool),
        _ => None,
    }
}

/// Arguments in any form: an object, JSON text in a string, or any other JSON.
fn arguments(value: Option<&Value>) -> Arguments {
    match value {
        None | Some(Value::Null) => Arguments::Object(Map::new()),
        Some(Value::String(text)) => Arguments::from_text(text),
        Some(Value::Object(map)) => Arguments::Object(map.clone()),
        Some(other) => Arguments::Raw(other.to_string()),
    }
}

/// Returns whether a field is empty: some programs write every field.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

fn append(text: &mut String, more: &str) {
    if !text.is_empty() {
        text.push('\n');
    }
    text.push_str(more);
}

fn wrong(path: &str, expected: &str, found: &Value) -> Error {
    Error::new(ErrorKind::Messages, format!("{path} is {}; expected {expected}", json::kind(found)))
}

/// Adds the calls that this program keeps apart from `tool_calls`, but only those that a message answers. The others
/// are just text of the model, and nobody can answer them.
fn add_invalid(list: Option<&Value>, answered: &HashSet<String>, tool_calls: &mut Vec<ToolCall>, content: &mut String) {
    for call in list.and_then(Value::as_array).into_iter().flatten() {
        let text = |key: &str| call.get(key).and_then(Value::as_str).unwrap_or_default();
        let (id, name) = (text("id"), text("name").trim());
        if !name.is_empty() && answered.contains(id) {
            let arguments = Arguments::from_text(text("arguments"));
            tool_calls.push(ToolCall { id: Some(id.to_owned()), name: name.to_owned(), arguments });
            continue;
        }
        if !content.is_empty() && !content.ends_with('\n') {
            content.push('\n');
        }
        content.push_str(text("raw"));
    }
}
