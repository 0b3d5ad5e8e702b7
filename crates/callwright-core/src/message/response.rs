//! The assistant's message in a server's response, whole or streamed: OpenAI's chat completions, responses and
//! completions, Anthropic's messages, ollama's, Gemini's, Cohere's, and Bedrock's Converse.

mod streamed;

use super::{Arguments, Message, ToolCall};
use serde_json::{Map, Value};
use streamed::Stream;

/// A response.
#[derive(Debug)]
pub(crate) struct Response {
    /// Its message. Arguments that may have been cut off are not an object.
    pub message: Message,
    /// The kind of response.
    pub kind: &'static str,
}

/// Keys that contain a response in the output of a batch or in a log.
const WRAPPERS: [&str; 4] = ["response", "body", "result", "data"];

/// Maximum nesting of them.
const DEPTH: usize = 4;

/// Returns whether a text with this beginning may be a response.
pub(crate) fn may_begin(beginning: &[u8]) -> bool {
    let text = beginning.trim_ascii_start();
    let starts: [&[u8]; 3] = [b"data:", b"event:", b":"];
    let list = text.strip_prefix(b"[").map(<[u8]>::trim_ascii_start);
    let objects = list.is_some_and(|items| items.is_empty() || items[0] == b'{');
    text.first() == Some(&b'{')
        || objects
        || starts.iter().any(|start| text.starts_with(start) || start.starts_with(text))
}

/// The response in a text; `None` if the text is not one.
pub(crate) fn read(text: &str) -> Option<Response> {
    if let Ok(value) = serde_json::from_str::<Value>(text) {
        return whole(&value, DEPTH);
    }
    let mut stream = Stream::default();
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty()).peekable();
    while let Some(line) = lines.next() {
        let data = match line.split_once(':') {
            Some(("data", data)) => data.trim(),
            Some(("event" | "id" | "retry" | "", _)) => continue,
            _ => line,
        };
        match serde_json::from_str::<Value>(data) {
            _ if data == "[DONE]" => stream.end(),
            Ok(piece) => stream.push(&piece),
            // A stream that was cut off.
            Err(error) if error.is_eof() && lines.peek().is_none() => {}
            Err(_) => return None,
        }
    }
    stream.finish()
}

fn whole(value: &Value, depth: usize) -> Option<Response> {
    let object = match value {
        Value::Object(object) => object,
        Value::Array(items) => return list(items, depth),
        _ => return None,
    };
    let response = |message, kind| Some(Response { message, kind });
    if let Some(choice) = object.get("choices").and_then(|choices| choices.get(0)) {
        return match (choice.get("message").and_then(Value::as_object), choice.get("text")) {
            (Some(inner), _) => response(message(inner), "chat completion"),
            (None, Some(Value::String(text))) => response(Message::assistant(text), "completion"),
            _ => Stream::of(std::slice::from_ref(value)),
        };
    }
    if let Some(content) = object.get("candidates").and_then(|candidates| candidates.get(0)?.get("content")) {
        return response(message(content.as_object()?), "Gemini response");
    }
    match object.get("output") {
        Some(Value::Array(items)) if items.iter().any(|item| item.get("type").is_some()) => {
            return response(of_parts(items.iter().filter_map(Value::as_object)), "response");
        }
        Some(Value::Object(output)) if output.contains_key("message") => {
            return response(message(output.get("message")?.as_object()?), "Converse response");
        }
        _ => {}
    }
    if let Some(Value::Object(inner)) = object.get("message")
        && ["role", "content", "tool_calls"].iter().any(|key| inner.contains_key(*key))
    {
        return response(message(inner), "chat response");
    }
    if let Some(calls) = object.get("required_action").and_then(|action| action.get("submit_tool_outputs")) {
        return response(message(calls.as_object()?), "run");
    }
    let is = |key: &str, expected: &str| object.get(key).is_some_and(|value| value == expected);
    if is("role", "assistant") || is("role", "model") {
        return response(message(object), if is("type", "message") { "Anthropic message" } else { "message" });
    }
    if let Some(text) = completion(object) {
        let mut message = message(object);
        message.content = text.to_owned();
        return response(message, "completion");
    }
    // Calls alone are left to the reader of text, which knows their place.
    let calls = object.get("tool_calls").and_then(Value::as_array).filter(|calls| !calls.is_empty());
    let is_call = |call: &Value| call.get("function").unwrap_or(call).get("name").is_some();
    if object.len() > 1 && calls.is_some_and(|calls| calls.iter().all(is_call)) {
        return response(message(object), "message");
    }
    let inner = WRAPPERS.iter().filter_map(|key| object.get(*key));
    let found = depth.checked_sub(1).and_then(|depth| inner.into_iter().find_map(|inner| whole(inner, depth)));
    found.or_else(|| list(std::slice::from_ref(value), 0))
}

/// A list of chunks, of responses, or of the parts of a message.
fn list(items: &[Value], depth: usize) -> Option<Response> {
    if let Some(streamed) = Stream::of(items) {
        return Some(streamed);
    }
    let parts = || items.iter().filter_map(Value::as_object);
    let calls = |part: &Map<String, Value>| {
        let keys = ["functionCall", "function_call", "toolUse"];
        keys.iter().any(|key| part.get(*key).is_some_and(Value::is_object))
            || part.get("type").is_some_and(|kind| kind == "tool_use")
    };
    if parts().any(calls) {
        return Some(Response { message: of_parts(parts()), kind: "message" });
    }
    match (items, depth.checked_sub(1)) {
        ([one], Some(depth)) => whole(one, depth),
        _ => None,
    }
}

/// The text of a completion, which has no messages. Other objects may have the same keys, so a second one is required.
fn completion(object: &Map<String, Value>) -> Option<&str> {
    const TEXTS: [(&str, &[&str]); 6] = [
        ("text", &["generation_id", "response_id", "finish_reason", "chat_history"]),
        ("response", &["done"]),
        ("content", &["stop", "tokens_predicted"]),
        ("generation", &["stop_reason"]),
        ("outputText", &["completionReason"]),
        ("generated_text", &[]),
    ];
    let has = |others: &[&str]| others.is_empty() || others.iter().any(|key| object.contains_key(*key));
    TEXTS.iter().filter(|(_, others)| has(others)).find_map(|(key, _)| object.get(*key)?.as_str())
}

/// A message object of any of these kinds.
fn message(object: &Map<String, Value>) -> Message {
    let mut message = Message::assistant("");
    match object.get("content").or_else(|| object.get("parts")) {
        Some(Value::String(text)) => message.content = text.clone(),
        Some(Value::Array(parts)) => message = of_parts(parts.iter().filter_map(Value::as_object)),
        _ => {}
    }
    let keys = ["reasoning_content", "reasoning", "thinking", "tool_plan"];
    add_reasoning(&mut message, keys.iter().find_map(|key| object.get(*key)?.as_str()).unwrap_or_default());
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
    let arguments = match ["arguments", "input", "args", "parameters"].iter().find_map(|key| call.get(*key)) {
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
            "thinking" => {
                add_reasoning(&mut message, text("thinking"));
                add_texts(&mut message, part.get("thinking"));
            }
            "reasoning" => {
                add_texts(&mut message, ["content", "summary"].iter().find_map(|key| part.get(*key)));
            }
            "tool_use" | "function_call" | "custom_tool_call" => {
                let id = part.get("call_id").or_else(|| part.get("id"));
                message.tool_calls.extend(function_call(&Value::Object(part.clone()), id));
            }
            "message" => {
                let inner = part.get("content").and_then(Value::as_array).into_iter().flatten();
                let inner = of_parts(inner.filter_map(Value::as_object));
                message.content += &inner.content;
                message.tool_calls.extend(inner.tool_calls);
            }
            _ => of_untyped(part, &mut message),
        }
    }
    message
}

/// A part that is named by its key.
fn of_untyped(part: &Map<String, Value>, message: &mut Message) {
    if let Some(Value::String(text)) = part.get("text") {
        match part.get("thought") {
            Some(Value::Bool(true)) => add_reasoning(message, text),
            _ => message.content += text,
        }
    }
    let thought = part.get("reasoningContent").and_then(|content| content.get("reasoningText")?.get("text")?.as_str());
    add_reasoning(message, thought.unwrap_or_default());
    for (key, id) in [("functionCall", "id"), ("function_call", "id"), ("toolUse", "toolUseId")] {
        message.tool_calls.extend(part.get(key).and_then(|call| function_call(call, call.get(id))));
    }
}

/// Adds a list of texts to the reasoning.
fn add_texts(message: &mut Message, list: Option<&Value>) {
    for one in list.and_then(Value::as_array).into_iter().flatten() {
        add_reasoning(message, one.get("text").and_then(Value::as_str).unwrap_or_default());
    }
}
