//! OpenAI's JSON → messages. Every error names the field by its path from the top of the file.

use super::{Arguments, Conversation, Message, Role, ToolCall};
use crate::error::{Error, ErrorKind, Result, nearest};
use crate::{json, text_file};
use serde_json::{Map, Value};
use std::collections::HashSet;
use std::path::Path;

const ROLES: [&str; 5] = ["system", "developer", "user", "assistant", "tool"];

impl Conversation {
    /// Reads a file of messages: a list, a whole request body with `messages` in it, a single message, or JSON Lines
    /// with a message in each line.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Conversation> {
        let path = path.as_ref();
        let text = text_file::read(path)?;
        Conversation::from_json(&text, path)
    }

    /// Reads JSON text; `name` stands for the file in errors.
    pub fn from_json(text: &str, name: impl AsRef<Path>) -> Result<Conversation> {
        let value = json::parse(text).or_else(|error| lines(text).unwrap_or(Err(error)));
        value.and_then(Conversation::from_value).map_err(|error| error.in_file(name))
    }

    /// Reads a list of messages, a request body, or a single message.
    pub fn from_value(value: Value) -> Result<Conversation> {
        match value {
            Value::Array(list) => Ok(Conversation { messages: messages(list, "messages")?, ..Conversation::default() }),
            Value::Object(body) => request(body),
            other => Err(wrong("the file", "a list of messages, or an object with \"messages\"", &other)),
        }
    }
}

/// The messages of JSON Lines; `None` where the text does not begin with a line that is one.
fn lines(text: &str) -> Option<Result<Value>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).peekable();
    let first: Value = serde_json::from_str(lines.peek()?.1).ok()?;
    first.get("role")?;
    let read = |(index, line): (usize, &str)| match serde_json::from_str(line) {
        Ok(value) => Ok(value),
        // The error is to name the line in the file.
        Err(_) => json::parse(&("\n".repeat(index) + line)),
    };
    Some(lines.map(read).collect())
}

fn request(mut body: Map<String, Value>) -> Result<Conversation> {
    let list = match body.shift_remove("messages") {
        Some(Value::Array(list)) => list,
        Some(other) => return Err(wrong("messages", "a list of messages", &other)),
        None if body.contains_key("role") => {
            let messages = messages(vec![Value::Object(body)], "messages")?;
            return Ok(Conversation { messages, ..Conversation::default() });
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
    Ok(Conversation {
        messages: messages(list, "messages")?,
        tools: body.shift_remove("tools").filter(|tools| !tools.is_null()),
        tool_choice: body.shift_remove("tool_choice").filter(|choice| !choice.is_null()),
        parallel_tool_calls,
        model,
        extra: body,
    })
}

fn messages(list: Vec<Value>, path: &str) -> Result<Vec<Message>> {
    let ids = list.iter().filter_map(|value| value.get("tool_call_id")?.as_str().map(str::to_owned));
    let answered: HashSet<String> = ids.collect();
    let read = |(index, value)| message(value, &answered, &format!("{path}[{index}]"));
    list.into_iter().enumerate().map(read).collect()
}

fn message(value: Value, answered: &HashSet<String>, path: &str) -> Result<Message> {
    let Value::Object(fields) = value else {
        return Err(wrong(path, "an object with \"role\" and \"content\"", &value));
    };
    let role = role(fields.get("role"), path)?;
    if fields.get("function_call").is_some_and(|call| !call.is_null()) {
        return Err(Error::new(ErrorKind::Messages, format!("{path}.function_call is the old form of a call"))
            .hint("write it as tool_calls: [{\"id\": …, \"type\": \"function\", \"function\": {…}}]"));
    }
    let mut tool_calls = match fields.get("tool_calls") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(calls)) => {
            let path = format!("{path}.tool_calls");
            calls.iter().enumerate().map(|(i, call)| tool_call(call, &format!("{path}[{i}]"))).collect::<Result<_>>()?
        }
        Some(other) => return Err(wrong(&format!("{path}.tool_calls"), "a list of calls", other)),
    };
    if role != Role::Assistant && !tool_calls.is_empty() {
        let message =
            format!("{path} has tool_calls, but its role is {}: only an assistant message calls tools", role.as_str());
        return Err(Error::new(ErrorKind::Messages, message));
    }
    let mut content = match fields.get("content") {
        None if role == Role::Assistant => String::new(),
        None => return Err(Error::new(ErrorKind::Messages, format!("{path} has no \"content\""))),
        Some(content) => content_text(content, &format!("{path}.content"))?,
    };
    if role == Role::Assistant {
        add_invalid(fields.get("invalid_tool_calls"), answered, &mut tool_calls, &mut content);
    }
    let mut reasoning = None;
    for key in ["reasoning_content", "reasoning", "thinking"] {
        let found = optional_text(&fields, key, path)?.filter(|text| !text.is_empty());
        reasoning = reasoning.or(found);
    }
    Ok(Message {
        role,
        content,
        reasoning,
        tool_calls,
        tool_call_id: optional_text(&fields, "tool_call_id", path)?,
        name: optional_text(&fields, "name", path)?,
    })
}

/// Adds what this program keeps apart from `tool_calls`. A call that a message answers is a call. Any other is no more
/// than text that the model wrote: nobody can answer it.
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

fn role(value: Option<&Value>, path: &str) -> Result<Role> {
    let name = match value {
        Some(Value::String(name)) => name.as_str(),
        Some(other) => return Err(wrong(&format!("{path}.role"), "a string", other)),
        None => return Err(Error::new(ErrorKind::Messages, format!("{path} has no \"role\""))),
    };
    Ok(match name {
        "system" | "developer" => Role::System,
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "tool" => Role::Tool,
        _ => {
            let error = Error::new(
                ErrorKind::Messages,
                format!("{path}.role is {name:?}; expected one of {}", ROLES.join(", ")),
            );
            return Err(match nearest(name, ROLES) {
                Some(role) => error.hint(format!("did you mean {role:?}?")),
                None => error,
            });
        }
    })
}

fn content_text(value: &Value, path: &str) -> Result<String> {
    let parts = match value {
        Value::Null => return Ok(String::new()),
        Value::String(text) => return Ok(text.clone()),
        Value::Array(parts) => parts,
        other => return Err(wrong(path, "a string, null or a list of text parts", other)),
    };
    let mut texts = Vec::with_capacity(parts.len());
    for (index, part) in parts.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let fields = match part {
            Value::String(text) => {
                texts.push(text.as_str());
                continue;
            }
            Value::Object(fields) => fields,
            other => return Err(wrong(&path, "a text part", other)),
        };
        match fields.get("type") {
            None => {}
            Some(Value::String(kind)) if kind == "text" || kind == "input_text" || kind == "output_text" => {}
            Some(Value::String(kind)) => {
                let message = format!("{path} is a part of type {kind:?}; only text can be read");
                return Err(Error::new(ErrorKind::Messages, message));
            }
            Some(other) => return Err(wrong(&format!("{path}.type"), "a string", other)),
        }
        match fields.get("text") {
            Some(Value::String(text)) => texts.push(text),
            Some(other) => return Err(wrong(&format!("{path}.text"), "a string", other)),
            None => return Err(Error::new(ErrorKind::Messages, format!("{path} has no \"text\""))),
        }
    }
    Ok(texts.join("\n"))
}

fn tool_call(value: &Value, path: &str) -> Result<ToolCall> {
    let Value::Object(call) = value else { return Err(wrong(path, "an object with \"function\"", value)) };
    match call.get("type") {
        None | Some(Value::Null) => {}
        Some(Value::String(kind)) if kind == "function" => {}
        Some(other) => return Err(wrong_value(&format!("{path}.type"), "\"function\"", other)),
    }
    // Some programs save a call without the inner object.
    let (function, path_of_function) = match call.get("function") {
        Some(Value::Object(function)) => (function, format!("{path}.function")),
        Some(other) => {
            return Err(wrong(&format!("{path}.function"), "an object with \"name\" and \"arguments\"", other));
        }
        None if call.contains_key("name") => (call, path.to_owned()),
        None => return Err(Error::new(ErrorKind::Messages, format!("{path} has no \"function\""))),
    };
    let name = match function.get("name") {
        Some(Value::String(name)) if !name.trim().is_empty() => name.clone(),
        Some(other) => return Err(wrong_value(&format!("{path_of_function}.name"), "the tool's name", other)),
        None => return Err(Error::new(ErrorKind::Messages, format!("{path_of_function} has no \"name\""))),
    };
    let arguments = match function.get("arguments") {
        None | Some(Value::Null) => Arguments::Object(Map::new()),
        Some(Value::String(text)) => Arguments::from_text(text),
        Some(Value::Object(map)) => Arguments::Object(map.clone()),
        Some(other) => {
            return Err(wrong(&format!("{path_of_function}.arguments"), "an object, or JSON text in a string", other));
        }
    };
    Ok(ToolCall { id: optional_text(call, "id", path)?.filter(|id| !id.is_empty()), name, arguments })
}

fn optional_text(fields: &Map<String, Value>, key: &str, path: &str) -> Result<Option<String>> {
    match fields.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(other) => Err(wrong(&format!("{path}.{key}"), "a string", other)),
    }
}

fn wrong(path: &str, expected: &str, found: &Value) -> Error {
    Error::new(ErrorKind::Messages, format!("{path} is {}; expected {expected}", json::kind(found)))
}

fn wrong_value(path: &str, expected: &str, found: &Value) -> Error {
    Error::new(ErrorKind::Messages, format!("{path} is {}; expected {expected}", json::shown(found)))
}
