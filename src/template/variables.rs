//! What a template sees: the variables that transformers passes.

use super::RenderRequest;
use crate::message::{Arguments, Message};
use serde_json::{Map, Value, json};

/// How a template wants the arguments of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ArgumentsAs {
    /// An object, as transformers' documentation has it.
    Object,
    /// JSON text in a string, as OpenAI's API has it.
    Text,
}

pub(super) fn variables(
    request: &RenderRequest<'_>,
    messages: &[Message],
    tools: Option<Value>,
    arguments: ArgumentsAs,
) -> Map<String, Value> {
    let mut variables = Map::new();
    variables.insert("messages".into(), messages.iter().map(|message| message_value(message, arguments)).collect());
    variables.insert("tools".into(), tools.unwrap_or_default());
    variables.insert("documents".into(), Value::Null);
    variables.insert("add_generation_prompt".into(), json!(request.add_generation_prompt));
    variables.insert("bos_token".into(), json!(request.bos_token));
    variables.insert("eos_token".into(), json!(request.eos_token));
    variables.extend(request.variables.clone());
    variables
}

/// A message as templates expect it: `content` always there and always text, because many templates test it with
/// `in` or `split`, and reasoning under both names in use.
fn message_value(message: &Message, arguments: ArgumentsAs) -> Value {
    let mut value = Map::new();
    value.insert("role".into(), json!(message.role));
    value.insert("content".into(), json!(message.content));
    if let Some(reasoning) = &message.reasoning {
        value.insert("reasoning_content".into(), json!(reasoning));
        value.insert("thinking".into(), json!(reasoning));
    }
    if !message.tool_calls.is_empty() {
        let calls = message.tool_calls.iter().map(|call| {
            let mut value = call.to_json();
            if let (Arguments::Object(map), ArgumentsAs::Object) = (&call.arguments, arguments) {
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
