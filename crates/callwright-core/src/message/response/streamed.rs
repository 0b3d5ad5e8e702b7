//! A response in chunks.

use super::{DEPTH, Response, add_reasoning, message, whole};
use crate::message::{Arguments, Message, ToolCall};
use serde_json::{Map, Value};

/// A call assembled from chunks.
#[derive(Debug, Default)]
struct Building {
    index: u64,
    id: Option<String>,
    name: String,
    arguments: String,
    /// Whether the server said that it has ended.
    ended: bool,
}

/// Joins the chunks of a stream.
#[derive(Debug)]
pub(super) struct Stream {
    message: Message,
    calls: Vec<Building>,
    kind: Option<&'static str>,
    /// The whole response, which some streams end with.
    whole: Option<Response>,
    /// Whether the stream said that it has ended.
    ended: bool,
}

impl Default for Stream {
    fn default() -> Stream {
        Stream { message: Message::assistant(""), calls: Vec::new(), kind: None, whole: None, ended: false }
    }
}

impl Stream {
    /// The response whose chunks these are.
    pub(super) fn of(pieces: &[Value]) -> Option<Response> {
        let mut stream = Stream::default();
        pieces.iter().for_each(|piece| stream.push(piece));
        stream.finish()
    }

    /// The stream ends properly.
    pub(super) fn end(&mut self) {
        self.ended = true;
    }

    pub(super) fn finish(self) -> Option<Response> {
        if self.whole.is_some() {
            return self.whole;
        }
        let mut message = self.message;
        let last = self.calls.len().saturating_sub(1);
        message.tool_calls.extend(self.calls.into_iter().enumerate().map(|(place, call)| {
            let arguments = match call.arguments.is_empty() && !self.ended && !call.ended && place == last {
                true => Arguments::Raw(String::new()),
                false => Arguments::from_text(&call.arguments),
            };
            ToolCall { id: call.id, name: call.name, arguments }
        }));
        self.kind.map(|kind| Response { message, kind })
    }

    pub(super) fn push(&mut self, piece: &Value) {
        let Value::Object(object) = piece else { return };
        let kind = ["type", "event_type"].iter().find_map(|key| object.get(*key)?.as_str()).unwrap_or_default();
        let text = |key: &str| object.get(key).and_then(Value::as_str);
        if let Some(choices) = object.get("choices") {
            if let Some(choice) = choices.get(0).filter(|choice| choice.get("message").is_none()) {
                self.choice(choice);
            }
        } else if let Some(Value::Object(candidate)) = object.get("candidates").and_then(|all| all.get(0)) {
            self.candidate(candidate);
        } else if let Some(Value::Object(inner)) = object.get("message").filter(|_| object.contains_key("done")) {
            self.kind = Some("chat response");
            self.add(message(inner));
            self.ended |= object.get("done") == Some(&Value::Bool(true));
        } else if let Some(text) = text("response").filter(|_| object.contains_key("done")) {
            self.kind = Some("completion");
            self.message.content += text;
        } else if kind.starts_with("message_") || kind.starts_with("content_block_") {
            self.anthropic(object, kind);
        } else if kind.starts_with("response.") {
            self.openai(piece, object, kind);
        } else if kind.contains('-') {
            self.cohere(object, kind);
        } else if let Some((key, block)) = object.iter().find(|(key, _)| is_converse(key)) {
            self.converse(key, block, object);
        }
    }

    /// Adds the message of a chunk that has whole parts.
    fn add(&mut self, more: Message) {
        self.message.content += &more.content;
        add_reasoning(&mut self.message, more.reasoning.as_deref().unwrap_or_default());
        self.message.tool_calls.extend(more.tool_calls);
    }

    fn building(&mut self, index: u64) -> &mut Building {
        let at = self.calls.iter().position(|call| call.index == index).unwrap_or_else(|| {
            self.calls.push(Building { index, ..Building::default() });
            self.calls.len() - 1
        });
        &mut self.calls[at]
    }

    fn choice(&mut self, choice: &Value) {
        self.kind = Some("chat completion");
        self.ended |= !text(choice, "finish_reason").is_empty();
        let Some(delta) = choice.get("delta") else {
            self.message.content += text(choice, "text");
            return;
        };
        self.message.content += text(delta, "content");
        let keys = ["reasoning_content", "reasoning"];
        let reasoning = keys.iter().map(|key| text(delta, key)).find(|text| !text.is_empty());
        add_reasoning(&mut self.message, reasoning.unwrap_or_default());
        let calls = delta.get("tool_calls").and_then(Value::as_array).into_iter().flatten();
        for (place, call) in calls.enumerate() {
            let index = call.get("index").and_then(Value::as_u64).unwrap_or(place as u64);
            self.chat_call(index, call.get("id"), call.get("function"));
        }
        if let Some(call) = delta.get("function_call") {
            self.chat_call(0, None, Some(call));
        }
    }

    fn chat_call(&mut self, index: u64, id: Option<&Value>, function: Option<&Value>) {
        let open = self.building(index);
        if let Some(id) = id.and_then(Value::as_str).filter(|id| !id.is_empty()) {
            open.id = Some(id.to_owned());
        }
        if let Some(function) = function {
            open.name += text(function, "name");
            match function.get("arguments") {
                Some(object @ Value::Object(_)) => open.arguments += &object.to_string(),
                _ => open.arguments += text(function, "arguments"),
            }
        }
    }

    fn candidate(&mut self, candidate: &Map<String, Value>) {
        self.kind = Some("Gemini response");
        if let Some(Value::Object(content)) = candidate.get("content") {
            self.add(message(content));
        }
    }

    fn anthropic(&mut self, object: &Map<String, Value>, kind: &str) {
        self.kind = Some("Anthropic message");
        let index = object.get("index").and_then(Value::as_u64).unwrap_or_default();
        let delta = object.get("delta").unwrap_or(&Value::Null);
        match kind {
            "content_block_start" => {
                let block = object.get("content_block").unwrap_or(&Value::Null);
                if text(block, "type") == "tool_use" {
                    let open = self.building(index);
                    (open.id, open.name) = (Some(text(block, "id").to_owned()), text(block, "name").to_owned());
                }
            }
            "content_block_delta" => {
                self.message.content += text(delta, "text");
                add_reasoning(&mut self.message, text(delta, "thinking"));
                let json = text(delta, "partial_json");
                if !json.is_empty() {
                    self.building(index).arguments += json;
                }
            }
            "content_block_stop" => self.end_call(index),
            "message_stop" => self.end(),
            _ => {}
        }
    }

    fn end_call(&mut self, index: u64) {
        if let Some(open) = self.calls.iter_mut().find(|call| call.index == index) {
            open.ended = true;
        }
    }

    /// OpenAI's responses.
    fn openai(&mut self, piece: &Value, object: &Map<String, Value>, kind: &str) {
        self.kind = Some("response");
        let index = object.get("output_index").and_then(Value::as_u64).unwrap_or_default();
        let said = |key: &str| text(piece, key);
        match kind {
            "response.completed" | "response.incomplete" => self.whole = whole(piece, DEPTH),
            "response.output_text.delta" | "response.refusal.delta" => self.message.content += said("delta"),
            "response.reasoning_text.delta" | "response.reasoning_summary_text.delta" => {
                add_reasoning(&mut self.message, said("delta"));
            }
            "response.output_item.added" => {
                let item = object.get("item").unwrap_or(&Value::Null);
                if text(item, "type") == "function_call" {
                    let open = self.building(index);
                    (open.id, open.name) = (Some(text(item, "call_id").to_owned()), text(item, "name").to_owned());
                }
            }
            "response.function_call_arguments.delta" => self.building(index).arguments += said("delta"),
            "response.output_item.done" => self.end_call(index),
            _ => {}
        }
    }

    fn cohere(&mut self, object: &Map<String, Value>, kind: &str) {
        let index = object.get("index").and_then(Value::as_u64).unwrap_or_default();
        let said = object.get("delta").and_then(|delta| delta.get("message")).unwrap_or(&Value::Null);
        match kind {
            "message-start" => {}
            "content-delta" => {
                let content = said.get("content").unwrap_or(&Value::Null);
                self.message.content += text(content, "text");
                add_reasoning(&mut self.message, text(content, "thinking"));
            }
            "tool-plan-delta" => add_reasoning(&mut self.message, text(said, "tool_plan")),
            "tool-call-start" | "tool-call-delta" => {
                let call = said.get("tool_calls").unwrap_or(&Value::Null);
                self.chat_call(index, call.get("id"), call.get("function"));
            }
            "tool-call-end" => self.end_call(index),
            "message-end" => self.end(),
            "text-generation" => self.message.content += object.get("text").and_then(Value::as_str).unwrap_or_default(),
            "stream-end" => self.whole = object.get("response").and_then(|response| whole(response, DEPTH)),
            _ => return,
        }
        self.kind = Some("chat response");
    }

    /// Bedrock's Converse.
    fn converse(&mut self, key: &str, block: &Value, object: &Map<String, Value>) {
        self.kind = Some("Converse response");
        let index = block.get("contentBlockIndex").or_else(|| object.get("contentBlockIndex"));
        let index = index.and_then(Value::as_u64).unwrap_or_default();
        match key {
            "contentBlockStart" => {
                if let Some(call) = block.get("start").and_then(|start| start.get("toolUse")) {
                    let open = self.building(index);
                    (open.id, open.name) = (Some(text(call, "toolUseId").to_owned()), text(call, "name").to_owned());
                }
            }
            "contentBlockDelta" => {
                let delta = block.get("delta").unwrap_or(&Value::Null);
                self.message.content += text(delta, "text");
                let reasoning = delta.get("reasoningContent").map_or("", |content| text(content, "text"));
                add_reasoning(&mut self.message, reasoning);
                if let Some(call) = delta.get("toolUse") {
                    self.building(index).arguments += text(call, "input");
                }
            }
            "contentBlockStop" => self.end_call(index),
            "messageStop" => self.end(),
            _ => {}
        }
    }
}

fn is_converse(key: &str) -> bool {
    ["messageStart", "contentBlockStart", "contentBlockDelta", "contentBlockStop", "messageStop"].contains(&key)
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}
