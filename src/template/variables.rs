//! What a template sees: the variables that transformers passes, with reserved text taken out of them.

use super::RenderRequest;
use super::reserved::{Author, Neutraliser};
use crate::message::{Arguments, Message, Role, ToolCall};
use serde_json::{Map, Value, json};

pub(super) fn variables(request: &RenderRequest<'_>, neutraliser: &Neutraliser<'_>) -> Map<String, Value> {
    let messages: Value = request.messages.iter().map(|message| message_value(message, neutraliser)).collect();
    let tools = match request.tools {
        Some(tools) if !tools.is_empty() => neutraliser.value(&tools.to_json(), Author::Outside),
        _ => Value::Null,
    };
    let mut variables = Map::new();
    variables.insert("messages".into(), messages);
    variables.insert("tools".into(), tools);
    variables.insert("documents".into(), Value::Null);
    variables.insert("add_generation_prompt".into(), json!(request.add_generation_prompt));
    variables.insert("bos_token".into(), json!(request.bos_token));
    variables.insert("eos_token".into(), json!(request.eos_token));
    variables.extend(request.variables.clone());
    variables
}

/// A message as templates expect it: `content` always there and always text, arguments as an object where they are
/// one, reasoning under both names in use.
pub(super) fn message_value(message: &Message, neutraliser: &Neutraliser<'_>) -> Value {
    let author = if message.role == Role::Assistant { Author::Model } else { Author::Outside };
    let mut value = Map::new();
    value.insert("role".into(), json!(message.role));
    value.insert("content".into(), neutraliser.text(&message.content, author).into());
    if let Some(reasoning) = &message.reasoning {
        let reasoning = neutraliser.text(reasoning, author);
        value.insert("reasoning_content".into(), json!(reasoning));
        value.insert("thinking".into(), json!(reasoning));
    }
    if !message.tool_calls.is_empty() {
        let calls = message.tool_calls.iter().map(|call| call_value(call, neutraliser)).collect();
        value.insert("tool_calls".into(), calls);
    }
    for (key, text) in [("tool_call_id", &message.tool_call_id), ("name", &message.name)] {
        if let Some(text) = text {
            value.insert(key.into(), neutraliser.text(text, Author::Outside).into());
        }
    }
    Value::Object(value)
}

fn call_value(call: &ToolCall, neutraliser: &Neutraliser<'_>) -> Value {
    let arguments = match &call.arguments {
        Arguments::Object(map) => Value::Object(neutraliser.object(map, Author::Outside)),
        Arguments::Raw(text) => neutraliser.text(text, Author::Outside).into(),
    };
    let mut value = Map::new();
    if let Some(id) = &call.id {
        value.insert("id".into(), neutraliser.text(id, Author::Outside).into());
    }
    value.insert("type".into(), json!("function"));
    value.insert("function".into(), json!({"name": neutraliser.text(&call.name, Author::Outside), "arguments": arguments}));
    Value::Object(value)
}
