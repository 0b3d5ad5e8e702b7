//! The assistant's message in a server's response: OpenAI's chat completions and responses, whole or streamed,
//! Anthropic's messages, ollama's.

use super::{Arguments, Message, ToolCall};
use serde_json::{Map, Value};

/// Whether a text with this beginning may be a response.
pub(crate) fn may_begin(beginning: &[u8]) -> bool {
    let text = beginning.trim_ascii_start();
    let starts: [&[u8]; 3] = [b"data:", b"event:", b":"];
    text.first() == Some(&b'{') || starts.iter().any(|start| text.starts_with(start) || start.starts_with(text))
}

/// The message in a response, and the kind of response; `None` if the text is not one.
pub(crate) fn read(text: &str) -> Option<(Message, &'static str)> {
    if let Ok(value) = serde_json::from_str::<Value>(text) {
        return whole(&value);
    }
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut pieces = Vec::new();
    for line in lines {
        let data = match line.split_once(':') {
            Some(("data", data)) => data.trim(),
            Some(("event" | "id" | "retry" | "", _)) => continue,
            _ => line,
        };
        if data != "[DONE]" {
            pieces.push(serde_json::from_str::<Value>(data).ok()?);
        }
    }
    streamed(&pieces)
}

fn whole(value: &Value) -> Option<(Message, &'static str)> {
    let object = value.as_object()?;
    if let Some(choice) = object.get("choices").and_then(|choices| choices.get(0)) {
        return Some((message(choice.get("message")?.as_object()?), "chat completion"));
    }
    if let Some(output) = object.get("output").and_then(Value::as_array) {
        let parts = output.iter().filter_map(Value::as_object);
        return Some((of_parts(parts), "response"));
    }
    if let Some(inner) = object.get("response").filter(|response| response.get("output").is_some()) {
        return whole(inner);
    }
    if let Some(inner) = object.get("message").and_then(Value::as_object) {
        return Some((message(inner), "chat response"));
    }
    let assistant = object.get("role").is_some_and(|role| role == "assistant");
    let kind = if object.get("type").is_some_and(|kind| kind == "message") { "Anthropic message" } else { "message" };
    assistant.then(|| (message(object), kind))
}

/// A message object of any of these kinds.
fn message(object: &Map<String, Value>) -> Message {
    let mut message = Message::assistant("");
    match object.get("content") {
        Some(Value::String(text)) => message.content = text.clone(),
        Some(Value::Array(parts)) => message = of_parts(parts.iter().filter_map(Value::as_object)),
        _ => {}
    }
    let reasoning = ["reasoning_content", "reasoning", "thinking"].iter().find_map(|key| object.get(*key)?.as_str());
    add_reasoning(&mut message, reasoning.unwrap_or_default());
    for call in object.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
        message.tool_calls.extend(function_call(call.get("function").unwrap_or(call), call.get("id")));
    }
    message.tool_calls.extend(object.get("function_call").and_then(|call| function_call(call, None)));
    message
}

fn add_reasoning(message: &mut Message, text: &str) {
    if !text.is_empty() {
        *message.reasoning.get_or_insert_default() += text;
    }
}

fn function_call(call: &Value, id: Option<&Value>) -> Option<ToolCall> {
    let name = call.get("name")?.as_str()?.to_owned();
    let arguments = match call.get("arguments").or_else(|| call.get("input")) {
        Some(Value::Object(object)) => Arguments::Object(object.clone()),
        Some(Value::String(text)) => Arguments::from_text(text),
        None | Some(Value::Null) => Arguments::Object(Map::new()),
        Some(other) => Arguments::Raw(other.to_string()),
    };
    let id = id.and_then(Value::as_str).filter(|id| !id.is_empty()).map(str::to_owned);
    Some(ToolCall { id, name, arguments })
}

/// Parts of a content, or items of an output.
fn of_parts<'v>(parts: impl Iterator<Item = &'v Map<String, Value>>) -> Message {
    let mut message = Message::assistant("");
    for part in parts {
        let text = |key: &str| part.get(key).and_then(Value::as_str).unwrap_or_default();
        match text("type") {
            "text" | "output_text" => message.content += text("text"),
            "refusal" => message.content += text("refusal"),
            "thinking" => add_reasoning(&mut message, text("thinking")),
            "reasoning" => {
                let said =
                    ["content", "summary"].iter().find_map(|key| part.get(*key)?.as_array()).into_iter().flatten();
                for one in said.filter_map(|one| one.get("text")?.as_str()) {
                    add_reasoning(&mut message, one);
                }
            }
            "tool_use" | "function_call" => {
                let id = part.get("call_id").or_else(|| part.get("id"));
                message.tool_calls.extend(function_call(&Value::Object(part.clone()), id));
            }
            "message" => {
                let inner = part.get("content").and_then(Value::as_array).into_iter().flatten();
                let inner = of_parts(inner.filter_map(Value::as_object));
                message.content += &inner.content;
                message.tool_calls.extend(inner.tool_calls);
            }
            _ => {}
        }
    }
    message
}

/// A call assembled from chunks.
#[derive(Default)]
struct Building {
    index: u64,
    id: Option<String>,
    name: String,
    arguments: String,
}

/// Joins the chunks of a stream.
fn streamed(pieces: &[Value]) -> Option<(Message, &'static str)> {
    let kind = |piece: &Value| piece.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    if let Some(done) = pieces.iter().find(|piece| kind(piece) == "response.completed") {
        return whole(done);
    }
    let mut message = Message::assistant("");
    let mut calls: Vec<Building> = Vec::new();
    let mut found = None;
    for piece in pieces {
        if let Some(choices) = piece.get("choices") {
            found = Some("chat completion");
            if let Some(delta) = choices.get(0).and_then(|choice| choice.get("delta")) {
                chat_delta(delta, &mut message, &mut calls);
            }
        } else if let Some(delta) = piece.get("message").filter(|_| piece.get("done").is_some()) {
            found = Some("chat response");
            let more = self::message(delta.as_object()?);
            message.content += &more.content;
            add_reasoning(&mut message, more.reasoning.as_deref().unwrap_or_default());
            message.tool_calls.extend(more.tool_calls);
        } else if kind(piece).starts_with("message_") || kind(piece).starts_with("content_block_") {
            found = Some("Anthropic message");
            block_delta(piece, &kind(piece), &mut message, &mut calls);
        }
    }
    message.tool_calls.extend(calls.into_iter().map(|call| ToolCall {
        id: call.id,
        name: call.name,
        arguments: Arguments::from_text(&call.arguments),
    }));
    found.map(|kind| (message, kind))
}

fn building(calls: &mut Vec<Building>, index: u64) -> &mut Building {
    let at = calls.iter().position(|call| call.index == index).unwrap_or_else(|| {
        calls.push(Building { index, ..Building::default() });
        calls.len() - 1
    });
    &mut calls[at]
}

fn chat_delta(delta: &Value, message: &mut Message, calls: &mut Vec<Building>) {
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    message.content += &text(delta, "content");
    let reasoning = Some(text(delta, "reasoning_content")).filter(|text| !text.is_empty());
    add_reasoning(message, &reasoning.unwrap_or_else(|| text(delta, "reasoning")));
    for (place, call) in delta.get("tool_calls").and_then(Value::as_array).into_iter().flatten().enumerate() {
        let index = call.get("index").and_then(Value::as_u64).unwrap_or(place as u64);
        let open = building(calls, index);
        if let Some(id) = call.get("id").and_then(Value::as_str).filter(|id| !id.is_empty()) {
            open.id = Some(id.to_owned());
        }
        if let Some(function) = call.get("function") {
            open.name += &text(function, "name");
            match function.get("arguments") {
                Some(Value::Object(object)) => open.arguments += &Value::Object(object.clone()).to_string(),
                _ => open.arguments += &text(function, "arguments"),
            }
        }
    }
}

fn block_delta(piece: &Value, kind: &str, message: &mut Message, calls: &mut Vec<Building>) {
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let index = piece.get("index").and_then(Value::as_u64).unwrap_or_default();
    let block = piece.get("content_block").filter(|block| block.get("type").is_some_and(|kind| kind == "tool_use"));
    if let Some(block) = block.filter(|_| kind == "content_block_start") {
        let open = building(calls, index);
        (open.id, open.name) = (Some(text(block, "id")), text(block, "name"));
    }
    if let Some(delta) = piece.get("delta").filter(|_| kind == "content_block_delta") {
        message.content += &text(delta, "text");
        add_reasoning(message, &text(delta, "thinking"));
        let json = text(delta, "partial_json");
        if !json.is_empty() {
            building(calls, index).arguments += &json;
        }
    }
}
