//! Anthropic's messages.

use super::super::job::{Chat, ServerFields, Work};
use super::super::offered::{Offered, arguments_of};
use super::super::updates::{Answer, Finish, Update};
use super::prompts::{prompt, with_model};
use super::{Asked, Dialect, Refusal, Shared, Sse, Whole, ask, named, new_id, one, streamed};
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
        let counted = match prompt(*chat, host, server) {
            Ok((_, tokens)) => tokens as u64,
            // Whether they fit is not what was asked.
            Err(Refusal { tokens: Some((tokens, _)), .. }) => tokens,
            Err(refusal) => return Err(refusal),
        };
        Ok(json!({"input_tokens": counted}))
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
        Refusal::unless(system.is_string() || system.is_array(), "system", "a text or a list of blocks")?;
        messages.push(json!({"role": "system", "content": blocks_text(&system)}));
    }
    match take("messages") {
        Some(Value::Array(given)) => {
            for (at, message) in given.iter().enumerate() {
                add(&mut messages, message, at)?;
            }
        }
        Some(_) => return Err(Refusal::invalid("messages: expected a list of messages")),
        None => return Err(Refusal::invalid("messages is missing; expected a list of messages")),
    }
    if generates && !body.contains_key("max_tokens") {
        return Err(Refusal::invalid("max_tokens is missing; Anthropic's API requires it"));
    }
    let mut take = |name: &str| body.shift_remove(name).filter(|value| !value.is_null());
    let stop = take("stop_sequences");
    let thinking = take("thinking");
    Refusal::unless(thinking.as_ref().is_none_or(Value::is_object), "thinking", "an object")?;
    let choice = take("tool_choice");
    let format = take("output_format").or_else(|| take("output_config")?.get("format").cloned());
    let (tools, mut left_out) = (take("tools"), Offered::default());
    let mut set = |name: &str, value: Value| {
        if !value.is_null() {
            body.insert(name.to_owned(), value);
        }
    };
    if let Some(tools) = tools {
        set("tools", own_tools(tools, &mut left_out));
    }
    let prefill = continued(&mut messages);
    set("messages", Value::Array(messages));
    set("stop", stop.unwrap_or_default());
    if let Some(choice) = choice {
        if choice.get("disable_parallel_tool_use") == Some(&json!(true)) {
            set("parallel_tool_calls", json!(false));
        }
        if let Some(choice) = left_out.choice(&tool_choice(&choice)?) {
            set("tool_choice", choice);
        }
    }
    if let Some(schema) = format.as_ref().and_then(|format| format.get("schema")) {
        set("response_format", json!({"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}));
    }
    // It switches reasoning off in a template that has such a switch.
    if thinking.is_some_and(|thinking| thinking.get("type").is_some_and(|kind| kind == "disabled")) {
        set("reasoning_effort", json!("none"));
    }
    let model = body.get("model").and_then(Value::as_str).map(str::to_owned);
    let chat = Chat::read(body, std::mem::take(&mut fields.own));
    let mut chat = chat.map_err(|refusal| refusal.naming("stop", "stop_sequences"))?;
    chat.notes.extend(left_out.into_notes());
    chat.prefill = prefill;
    Ok((Asked::chat(chat, model), fields.stream))
}

/// The tools that a client runs. Those of another type than `custom` are Anthropic's own, which have no schema in a request.
fn own_tools(tools: Value, left_out: &mut Offered) -> Value {
    let Value::Array(tools) = tools else { return tools };
    let mut own = |tool: &Value| match tool.get("type").and_then(Value::as_str) {
        None | Some("custom" | "function") => true,
        Some(kind) => {
            left_out.leave_out(kind, tool.get("name").and_then(Value::as_str));
            false
        }
    };
    let tools: Vec<Value> = tools.into_iter().filter(|tool| own(tool)).collect();
    left_out.functions.clone_from(&tools);
    if tools.is_empty() { Value::Null } else { json!(tools) }
}

/// The text of a last message of the assistant, which the model continues. The message is taken out.
fn continued(messages: &mut Vec<Value>) -> Option<String> {
    let last = messages.last().filter(|last| last["role"] == "assistant" && last.get("tool_calls").is_none())?;
    let text = blocks_text(&last["content"]);
    let text = text.as_str().filter(|text| !text.is_empty())?.to_owned();
    messages.pop();
    Some(text)
}

/// The choice in OpenAI's form.
fn tool_choice(choice: &Value) -> Result<Value, Refusal> {
    match choice.get("type").and_then(Value::as_str) {
        Some("auto") => Ok(json!("auto")),
        Some("none") => Ok(json!("none")),
        Some("any") => Ok(json!("required")),
        Some("tool") if choice.get("name").is_some_and(Value::is_string) => {
            Ok(json!({"type": "function", "function": {"name": choice["name"]}}))
        }
        Some("tool") => Err(Refusal::invalid("tool_choice.name is missing; expected the name of a tool")),
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

/// A document or a search result as a block of text; any other block as it is.
fn as_text(block: &Value) -> Value {
    let field = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let text = match field(block, "type").as_deref() {
        Some("document") => {
            let source = block.get("source").cloned().unwrap_or_default();
            match field(&source, "type").as_deref() {
                Some("text") => field(&source, "data"),
                Some("content") => {
                    source.get("content").and_then(|content| blocks_text(content).as_str().map(str::to_owned))
                }
                _ => None,
            }
        }
        Some("search_result") => {
            block.get("content").and_then(|content| blocks_text(content).as_str().map(str::to_owned))
        }
        _ => None,
    };
    let Some(text) = text else { return block.clone() };
    let about = ["title", "context", "source"].iter().filter_map(|name| field(block, name));
    json!({"type": "text", "text": about.chain([text]).collect::<Vec<_>>().join("\n")})
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
                let mut content = match block.get("content") {
                    Some(Value::Array(blocks)) => blocks.iter().map(as_text).collect(),
                    content => content.cloned().unwrap_or(json!("")),
                };
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
            _ => parts.push(as_text(block)),
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

/// The signature of reasoning. Clients give it back, and leave out reasoning without one.
const SIGNATURE: &str = "callwright";

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
            content.push(json!({"type": "thinking", "thinking": reasoning, "signature": SIGNATURE}));
        }
        if !answer.content.is_empty() {
            content.push(json!({"type": "text", "text": answer.content}));
        }
        for call in &answer.calls {
            let input = arguments_of(&call.arguments);
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
        let Some(open) = self.open.take() else { return Vec::new() };
        let mut events = Vec::new();
        if open == Block::Thinking {
            events.push(self.delta(&json!({"type": "signature_delta", "signature": SIGNATURE})));
        }
        self.blocks += 1;
        events.push(named(&json!({"type": "content_block_stop", "index": self.blocks - 1})));
        events
    }

    fn delta(&self, delta: &Value) -> Sse {
        named(&json!({"type": "content_block_delta", "index": self.blocks, "delta": delta}))
    }
}

impl Dialect for Form {
    type Event = Sse;

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
