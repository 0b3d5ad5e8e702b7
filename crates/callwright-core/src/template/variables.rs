//! The variables that a template gets, as in transformers.

use super::RenderRequest;
use crate::message::{Arguments, Message};
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
    let mut variables = Map::new();
    variables.insert("messages".into(), messages.iter().map(|message| message_value(message, shape)).collect());
    variables.insert("tools".into(), tools.unwrap_or_default());
    variables.insert("documents".into(), Value::Null);
    variables.insert("add_generation_prompt".into(), json!(request.add_generation_prompt));
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
