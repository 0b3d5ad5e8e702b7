//! The variables that a template gets, as in transformers.

use super::RenderRequest;
use crate::message::{Arguments, Message};
use jiff::civil::DateTime;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// The form in which a template expects calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct CallShape {
    /// Arguments as JSON text in a string, as in OpenAI's API, rather than as an object.
    pub text_arguments: bool,
    /// `content` is null, rather than empty, if a message has calls and no text.
    pub null_content: bool,
}

pub(super) fn variables(
    request: &RenderRequest<'_>,
    messages: &[Message],
    tools: Option<Value>,
    shape: CallShape,
) -> Map<String, Value> {
    let messages = messages.iter().map(|message| message_value(message, shape)).collect();
    let mut variables = minijinja_transformers::variables(messages, tools, request.add_generation_prompt);
    variables.insert("bos_token".into(), json!(request.bos_token));
    variables.insert("eos_token".into(), json!(request.eos_token));
    variables.extend(request.variables.clone());
    variables
}

/// A message as templates expect it. `content` is present and is text unless the template expects otherwise, because
/// many test it with `in` or `split`; reasoning is present under both common names.
fn message_value(message: &Message, shape: CallShape) -> Value {
    let mut value = Map::new();
    value.insert("role".into(), json!(message.role));
    let silent = shape.null_content && message.content.is_empty() && !message.tool_calls.is_empty();
    value.insert("content".into(), if silent { Value::Null } else { json!(message.content) });
    if let Some(reasoning) = &message.reasoning {
        value.insert("reasoning_content".into(), json!(reasoning));
        value.insert("thinking".into(), json!(reasoning));
    }
    if !message.tool_calls.is_empty() {
        let calls = message.tool_calls.iter().map(|call| {
            let mut value = call.to_json();
            if let (Arguments::Object(map), false) = (&call.arguments, shape.text_arguments) {
                value["function"]["arguments"] = Value::Object(map.clone());
            }
            value
        });
        value.insert("tool_calls".into(), calls.collect());
    }
    for (key, text) in [("tool_call_id", &message.tool_call_id), ("name", &message.name)] {
        if let Some(text) = text {
            value.insert(key.into(), json!(text));
        }
    }
    Value::Object(value)
}

/// The value of a variable that a template cannot do without, as its name says; `None` if it says nothing. `list` is
/// whether the template takes a list of tools, rather than JSON text.
pub(super) fn demanded(name: &str, tools: &Value, list: bool, now: DateTime) -> Option<Value> {
    let name = name.to_ascii_lowercase();
    let has = |word: &str| name.contains(word);
    // As in the instructions for Firefunction: `json.dumps(functions, indent=4)`.
    let functions = || -> Value {
        let tools = tools.as_array().map(Vec::as_slice).unwrap_or_default();
        tools.iter().map(|tool| tool.get("function").unwrap_or(tool).clone()).collect()
    };
    Some(match () {
        () if (has("function") || has("tool")) && list => tools.clone(),
        () if has("function") || has("tool") => json!(indented(&functions())),
        () if has("time") => json!(now.strftime("%Y-%m-%d %H:%M:%S").to_string()),
        () if has("date") || has("today") => json!(now.strftime("%d %b %Y").to_string()),
        () => return None,
    })
}

fn indented(value: &Value) -> String {
    let mut text = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    // A value without strange keys is written always.
    let written = value.serialize(&mut serde_json::Serializer::with_formatter(&mut text, formatter));
    written.map_or_else(|_| value.to_string(), |()| String::from_utf8_lossy(&text).into_owned())
}
