//! Anthropic's messages.

use super::super::job::{Chat, ServerFields, Work};
use super::super::updates::{Answer, Finish, Update};
use super::prompts::{prompt, with_model};
use super::{Asked, Dialect, Refusal, Shared, Sse, Whole, ask, named, new_id, one, streamed};
use crate::message::Arguments;
use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

pub(super) async fn messages(State(server): Shared, request: Request) -> Response {
    let answered = async {
        let (running, stream) = ask(&server, request, |body| read(body, true)).await?;
        let form = Form { id: new_id("msg_"), model: running.model, blocks: 0, open: None };
        if stream {
            return streamed(running.inbox, 1, form).await;
        }
        let Whole { answer, .. } = one(running.inbox).await?;
        Ok(Json(form.whole(&answer)).into_response())
    };
    answered.await.unwrap_or_else(|refusal: Refusal| refusal.response(refusal.anthropic()))
}

/// How many tokens the prompt of a request has.
pub(super) async fn count_tokens(State(server): Shared, request: Request) -> Response {
    let counted = with_model(server, request, |body, host, server| {
        let (asked, _) = read(body, false)?;
        let Work::Chat(chat) = asked.work else { return Err(Refusal::invalid("there are no messages")) };
        prompt(*chat, host, server).map(|(_, tokens)| json!({"input_tokens": tokens}))
    });
    counted.await.map_or_else(|refusal| refusal.response(refusal.anthropic()), IntoResponse::into_response)
}

/// Reads a request as one of chat completions, and whether it is to be streamed.
fn read(mut body: Map<String, Value>, generates: bool) -> Result<(Asked, bool), Refusal> {
    let mut fields = ServerFields::take(&mut body)?;
    fields.one_answer()?;
    let mut take = |name: &str| body.shift_remove(name).filter(|value| !value.is_null());
    let mut messages = Vec::new();
    if let Some(system) = take("system") {
        messages.push(json!({"role": "system", "content": blocks_text(&system)}));
    }
    match take("messages") {
        Some(Value::Array(given)) => {
            for (at, message) in given.iter().enumerate() {
                add(&mut messages, message, at)?;
            }
        }
        _ => return Err(Refusal::invalid("messages is missing; expected a list of messages")),
    }
    if generates && !body.contains_key("max_tokens") {
        return Err(Refusal::invalid("max_tokens is missing; Anthropic's API requires it"));
    }
    let mut take = |name: &str| body.shift_remove(name).filter(|value| !value.is_null());
    let stop = take("stop_sequences");
    let thinking = take("thinking");
    let choice = take("tool_choice");
    let mut set = |name: &str, value: Value| {
        if !value.is_null() {
            body.insert(name.to_owned(), value);
        }
    };
    set("messages", Value::Array(messages));
    set("stop", stop.unwrap_or_default());
    if let Some(choice) = choice {
        if choice.get("disable_parallel_tool_use") == Some(&json!(true)) {
            set("parallel_tool_calls", json!(false));
        }
        set("tool_choice", tool_choice(&choice)?);
    }
    // It switches reasoning off in a template that has such a switch.
    if thinking.is_some_and(|thinking| thinking.get("type").is_some_and(|kind| kind == "disabled")) {
        set("reasoning_effort", json!("none"));
    }
    let model = body.get("model").and_then(Value::as_str).map(str::to_owned);
    let chat = Chat::read(body, std::mem::take(&mut fields.own))?;
    Ok((Asked::chat(chat, model), fields.stream))
}

/// The choice in OpenAI's form.
fn tool_choice(choice: &Value) -> Result<Value, Refusal> {
    match choice.get("type").and_then(Value::as_str) {
        Some("auto") => Ok(json!("auto")),
        Some("none") => Ok(json!("none")),
        Some("any") => Ok(json!("required")),
        Some("tool") => Ok(json!({"type": "function", "function": {"name": choice.get("name")}})),
        _ => Err(Refusal::invalid("tool_choice.type: expected auto, any, tool or none")),
    }
}

/// The text of a text or of a list of blocks.
fn blocks_text(content: &Value) -> Value {
    match content.as_array() {
        None => content.clone(),
        Some(blocks) => {
            let texts: Vec<&str> = blocks.iter().filter_map(|block| block.get("text")?.as_str()).collect();
            json!(texts.join("\n"))
        }
    }
}

/// Adds a message in OpenAI's form, or several: results are messages of their own there.
fn add(messages: &mut Vec<Value>, message: &Value, at: usize) -> Result<(), Refusal> {
    let role = message.get("role").cloned().unwrap_or_default();
    let Some(blocks) = message.get("content").and_then(Value::as_array) else {
        messages.push(json!({"role": role, "content": message.get("content")}));
        return Ok(());
    };
    let (mut parts, mut calls, mut reasoning) = (Vec::new(), Vec::new(), String::new());
    for (number, block) in blocks.iter().enumerate() {
        let text = |name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default();
        match text("type") {
            "tool_use" => calls.push(json!({"id": text("id"), "type": "function",
                "function": {"name": text("name"), "arguments": block.get("input").cloned().unwrap_or(json!({}))}})),
            "tool_result" => {
                let mut content = block.get("content").cloned().unwrap_or(json!(""));
                if block.get("is_error") == Some(&json!(true)) {
                    content = json!(format!("error: {}", blocks_text(&content).as_str().unwrap_or_default()));
                }
                messages.push(json!({"role": "tool", "tool_call_id": text("tool_use_id"), "content": content}));
            }
            "thinking" => reasoning.push_str(text("thinking")),
            "redacted_thinking" => {}
            "" => {
                return Err(Refusal::invalid(format!("messages[{at}].content[{number}] has no type")));
            }
            _ => parts.push(block.clone()),
        }
    }
    if parts.is_empty() && calls.is_empty() && reasoning.is_empty() {
        return Ok(());
    }
    let mut read = json!({"role": role, "content": if parts.is_empty() { Value::Null } else { json!(parts) }});
    if !calls.is_empty() {
        read["tool_calls"] = json!(calls);
    }
    if !reasoning.is_empty() {
        read["reasoning_content"] = json!(reasoning);
    }
    messages.push(read);
    Ok(())
}

/// A block that is being streamed.
#[derive(Clone, Copy, PartialEq)]
enum Block {
    Text,
    Thinking,
    Call,
}

/// What all parts of a response have in common.
struct Form {
    id: String,
    model: String,
    /// How many blocks have ended.
    blocks: usize,
    open: Option<Block>,
}

fn stop_reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "end_turn",
        Finish::ToolCalls => "tool_use",
        Finish::Length => "max_tokens",
    }
}

fn usage(answer: &Answer) -> Value {
    let usage = &answer.usage;
    json!({
        "input_tokens": usage.prompt_tokens - usage.cached_tokens.min(usage.prompt_tokens),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
    })
}

impl Form {
    fn message(&self) -> Value {
        json!({
            "id": self.id, "type": "message", "role": "assistant", "model": self.model, "content": [],
            "stop_reason": null, "stop_sequence": null,
            "usage": {"input_tokens": 0, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 0},
        })
    }

    fn whole(&self, answer: &Answer) -> Value {
        let mut content = Vec::new();
        if let Some(reasoning) = &answer.reasoning {
            content.push(json!({"type": "thinking", "thinking": reasoning, "signature": ""}));
        }
        if !answer.content.is_empty() {
            content.push(json!({"type": "text", "text": answer.content}));
        }
        for call in &answer.calls {
            let input = match Arguments::from_text(&call.arguments) {
                Arguments::Object(object) => json!(object),
                // An input is an object. This is how the API's own documentation shows another text to a model.
                Arguments::Raw(text) => json!({"INVALID_JSON": text}),
            };
            content.push(json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input}));
        }
        let mut message = self.message();
        message["content"] = json!(content);
        message["stop_reason"] = json!(stop_reason(answer.finish));
        message["usage"] = usage(answer);
        message["callwright"] = json!(answer.more);
        message
    }

    /// The events that end the open block, and begin one unless it goes on.
    fn block(&mut self, block: Block, start: &Value) -> Vec<Sse> {
        if self.open == Some(block) && block != Block::Call {
            return Vec::new();
        }
        let mut events = self.end_block();
        self.open = Some(block);
        events.push(named(&json!({"type": "content_block_start", "index": self.blocks, "content_block": start})));
        events
    }

    fn end_block(&mut self) -> Vec<Sse> {
        if self.open.take().is_none() {
            return Vec::new();
        }
        self.blocks += 1;
        vec![named(&json!({"type": "content_block_stop", "index": self.blocks - 1}))]
    }

    fn delta(&self, delta: &Value) -> Sse {
        named(&json!({"type": "content_block_delta", "index": self.blocks, "delta": delta}))
    }
}

impl Dialect for Form {
    fn begin(&mut self) -> Vec<Sse> {
        vec![named(&json!({"type": "message_start", "message": self.message()}))]
    }

    fn update(&mut self, _: usize, update: Update) -> Vec<Sse> {
        match update {
            Update::Text(text) => {
                let mut events = self.block(Block::Text, &json!({"type": "text", "text": ""}));
                events.push(self.delta(&json!({"type": "text_delta", "text": text})));
                events
            }
            Update::Reasoning(text) => {
                let start = json!({"type": "thinking", "thinking": "", "signature": ""});
                let mut events = self.block(Block::Thinking, &start);
                events.push(self.delta(&json!({"type": "thinking_delta", "thinking": text})));
                events
            }
            Update::Call { id, name, .. } => {
                self.block(Block::Call, &json!({"type": "tool_use", "id": id, "name": name, "input": {}}))
            }
            Update::Arguments { delta, .. } => {
                vec![self.delta(&json!({"type": "input_json_delta", "partial_json": delta}))]
            }
            Update::CallEnd => self.end_block(),
            Update::Token(_) => Vec::new(),
            Update::Done(answer) => {
                let mut events = self.end_block();
                events.push(named(&json!({
                    "type": "message_delta",
                    "delta": {"stop_reason": stop_reason(answer.finish), "stop_sequence": null},
                    "usage": usage(&answer),
                    "callwright": answer.more,
                })));
                events.push(named(&json!({"type": "message_stop"})));
                events
            }
            Update::Failed(refusal) => vec![named(&refusal.anthropic())],
        }
    }
}
