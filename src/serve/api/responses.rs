//! OpenAI's responses. This server keeps no conversations: a request has all that the model is to read.

use super::super::job::{Chat, ServerFields};
use super::super::updates::{Answer, Finish, Update};
use super::{Asked, Dialect, Refusal, Running, Shared, Sse, ask, named, new_id, now, streamed};
use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

pub(super) async fn responses(State(server): Shared, request: Request) -> Result<Response, Refusal> {
    let (Running { mut inbox, model }, asked) = ask(&server, request, read).await?;
    let mut output = Output::new(model, asked.shown);
    if asked.stream {
        return streamed(inbox, 1, output).await;
    }
    // The same steps as in a stream, so that both have the same items.
    while let Some((_, update)) = inbox.next().await {
        match update {
            Update::Failed(refusal) => return Err(refusal),
            Update::Done(answer) => {
                output.end_item();
                return Ok(Json(output.response(&answer)).into_response());
            }
            update => output.step(update),
        }
    }
    Err(Refusal::unavailable(super::ENDED))
}

/// What a request says beside its conversation.
struct Fields {
    stream: bool,
    /// The fields that a response repeats.
    shown: Map<String, Value>,
}

/// Fields that a response repeats, and what they are where the request does not say.
fn repeated() -> [(&'static str, Value); 9] {
    [
        ("instructions", Value::Null),
        ("max_output_tokens", Value::Null),
        ("metadata", json!({})),
        ("parallel_tool_calls", json!(true)),
        ("temperature", Value::Null),
        ("text", json!({"format": {"type": "text"}})),
        ("tool_choice", json!("auto")),
        ("tools", json!([])),
        ("top_p", Value::Null),
    ]
}

/// Reads a request as one of chat completions.
fn read(mut body: Map<String, Value>) -> Result<(Asked, Fields), Refusal> {
    let given = |(name, default): (&str, Value)| (name.to_owned(), body.get(name).cloned().unwrap_or(default));
    let shown: Map<String, Value> = repeated().into_iter().map(given).collect();
    let mut fields = ServerFields::take(&mut body)?;
    fields.one_answer()?;
    let mut take = |name: &str| body.shift_remove(name).filter(|value| !value.is_null());
    for name in ["previous_response_id", "conversation", "prompt"] {
        if take(name).is_some() {
            return Err(Refusal::invalid(format!(
                "{name}: this server keeps no conversations; send all messages as input"
            )));
        }
    }
    if take("background").is_some_and(|background| background == json!(true)) {
        return Err(Refusal::invalid("background: this server answers at once"));
    }
    let mut messages = Vec::new();
    if let Some(instructions) = take("instructions") {
        messages.push(json!({"role": "system", "content": instructions}));
    }
    match take("input") {
        Some(Value::String(text)) => messages.push(json!({"role": "user", "content": text})),
        Some(Value::Array(items)) => {
            for (at, item) in items.into_iter().enumerate() {
                add(&mut messages, item, at)?;
            }
        }
        None => return Err(Refusal::invalid("input is missing; expected a text or a list of items")),
        Some(_) => return Err(Refusal::invalid("input: expected a text or a list of items")),
    }
    for name in ["include", "truncation"] {
        take(name);
    }
    let limit = take("max_output_tokens");
    let format = take("text").and_then(|text| text.get("format").cloned());
    let effort = take("reasoning").and_then(|reasoning| reasoning.get("effort").cloned());
    if let Some(tools) = body.get_mut("tools").and_then(Value::as_array_mut) {
        for tool in tools.iter() {
            if let Some(kind) = tool.get("type").and_then(Value::as_str).filter(|kind| *kind != "function") {
                return Err(Refusal::invalid(format!("tools: this server runs no tools of its own, such as {kind:?}")));
            }
        }
    }
    let mut set = |name: &str, value: Option<Value>| {
        if let Some(value) = value.filter(|value| !value.is_null()) {
            body.insert(name.to_owned(), value);
        }
    };
    set("messages", Some(Value::Array(messages)));
    set("max_tokens", limit);
    set("response_format", format);
    set("reasoning_effort", effort);
    let model = body.get("model").and_then(Value::as_str).map(str::to_owned);
    let chat = Chat::read(body, std::mem::take(&mut fields.own))?;
    Ok((Asked::chat(chat, model), Fields { stream: fields.stream, shown }))
}

/// Adds an item of the input to the messages.
fn add(messages: &mut Vec<Value>, item: Value, at: usize) -> Result<(), Refusal> {
    let text = |name: &str| item.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let assistant = |messages: &mut Vec<Value>| -> usize {
        // Reasoning, text and calls of one answer are one message.
        if messages.last().is_none_or(|last| last["role"] != "assistant") {
            messages.push(json!({"role": "assistant", "content": null}));
        }
        messages.len() - 1
    };
    match text("type").as_str() {
        "" | "message" => {
            let content = item.get("content").cloned().unwrap_or_default();
            if text("role") == "assistant" {
                let last = assistant(messages);
                if messages[last]["content"].is_null() && messages[last].get("tool_calls").is_none() {
                    messages[last]["content"] = content;
                } else {
                    messages.push(json!({"role": "assistant", "content": content}));
                }
            } else {
                messages.push(json!({"role": text("role"), "content": content}));
            }
        }
        "function_call" => {
            let arguments = item.get("arguments").cloned().unwrap_or_default();
            let call = json!({"id": text("call_id"), "type": "function",
                "function": {"name": text("name"), "arguments": arguments}});
            let last = assistant(messages);
            match messages[last].get_mut("tool_calls").and_then(Value::as_array_mut) {
                Some(calls) => calls.push(call),
                None => messages[last]["tool_calls"] = json!([call]),
            }
        }
        "function_call_output" => {
            let output = item.get("output").cloned().unwrap_or_default();
            messages.push(json!({"role": "tool", "tool_call_id": text("call_id"), "content": output}));
        }
        "reasoning" => {
            let said = ["content", "summary"].iter().find_map(|name| item.get(*name)?.as_array());
            let said: String = said.into_iter().flatten().filter_map(|part| part.get("text")?.as_str()).collect();
            messages.push(json!({"role": "assistant", "content": null, "reasoning_content": said}));
        }
        other => {
            return Err(Refusal::invalid(format!(
                "input[{at}]: items of type {other:?} are not known; expected message, function_call, \
                 function_call_output or reasoning"
            )));
        }
    }
    Ok(())
}

/// A response while it is written.
struct Output {
    id: String,
    created: u64,
    model: String,
    shown: Map<String, Value>,
    items: Vec<Value>,
    /// Whether the last item goes on.
    open: bool,
    /// The events that are not sent yet.
    events: Vec<Value>,
    sequence: usize,
}

impl Output {
    fn new(model: String, shown: Map<String, Value>) -> Output {
        let (id, created) = (new_id("resp_"), now());
        Output { id, created, model, shown, items: Vec::new(), open: false, events: Vec::new(), sequence: 0 }
    }

    fn event(&mut self, kind: &str, fields: Value) {
        let mut event = json!({"type": kind, "sequence_number": self.sequence});
        if let (Some(event), Value::Object(fields)) = (event.as_object_mut(), fields) {
            event.extend(fields);
        }
        self.sequence += 1;
        self.events.push(event);
    }

    fn flush(&mut self) -> Vec<Sse> {
        std::mem::take(&mut self.events).iter().map(named).collect()
    }

    /// The last item, if it goes on and is of this type; else a new one.
    fn item(&mut self, kind: &str, new: impl FnOnce() -> Value) -> usize {
        if !(self.open && self.items.last().is_some_and(|last| last["type"] == kind)) {
            self.end_item();
            let item = new();
            self.event("response.output_item.added", json!({"output_index": self.items.len(), "item": item}));
            self.items.push(item);
            self.open = true;
        }
        self.items.len() - 1
    }

    /// The place of an item, for its events.
    fn place(&self, at: usize, more: Value) -> Value {
        let mut place = json!({"item_id": self.items[at]["id"], "output_index": at});
        if let (Some(place), Value::Object(more)) = (place.as_object_mut(), more) {
            place.extend(more);
        }
        place
    }

    fn append(&mut self, at: usize, pointer: &str, delta: &str) {
        if let Some(Value::String(text)) = self.items[at].pointer_mut(pointer) {
            text.push_str(delta);
        }
    }

    fn step(&mut self, update: Update) {
        match update {
            Update::Text(delta) => {
                let at = self.item("message", || {
                    json!({"type": "message", "id": new_id("msg_"), "status": "in_progress", "role": "assistant",
                        "content": []})
                });
                if self.items[at]["content"].as_array().is_some_and(Vec::is_empty) {
                    let part = json!({"type": "output_text", "text": "", "annotations": [], "logprobs": []});
                    let place = self.place(at, json!({"content_index": 0, "part": part}));
                    self.event("response.content_part.added", place);
                    self.items[at]["content"] = json!([part]);
                }
                self.append(at, "/content/0/text", &delta);
                let place = self.place(at, json!({"content_index": 0, "delta": delta, "logprobs": []}));
                self.event("response.output_text.delta", place);
            }
            Update::Reasoning(delta) => {
                let at = self.item("reasoning", || {
                    json!({"type": "reasoning", "id": new_id("rs_"), "summary": [],
                        "content": [{"type": "reasoning_text", "text": ""}]})
                });
                self.append(at, "/content/0/text", &delta);
                let place = self.place(at, json!({"content_index": 0, "delta": delta}));
                self.event("response.reasoning_text.delta", place);
            }
            Update::Call { id, name, .. } => {
                self.end_item();
                self.item("function_call", || {
                    json!({"type": "function_call", "id": new_id("fc_"), "call_id": id, "name": name,
                        "arguments": "", "status": "in_progress"})
                });
            }
            Update::Arguments { delta, .. } => {
                let at = self.items.len().saturating_sub(1);
                if self.open {
                    self.append(at, "/arguments", &delta);
                    let place = self.place(at, json!({"delta": delta}));
                    self.event("response.function_call_arguments.delta", place);
                }
            }
            Update::CallEnd => self.end_item(),
            Update::Token(_) | Update::Done(_) | Update::Failed(_) => {}
        }
    }

    /// Ends the last item.
    fn end_item(&mut self) {
        if !std::mem::take(&mut self.open) {
            return;
        }
        let at = self.items.len() - 1;
        match self.items[at]["type"].as_str() {
            Some("message") => {
                self.items[at]["status"] = json!("completed");
                let part = self.items[at]["content"][0].clone();
                let done = self.place(at, json!({"content_index": 0, "text": part["text"], "logprobs": []}));
                self.event("response.output_text.done", done);
                let place = self.place(at, json!({"content_index": 0, "part": part}));
                self.event("response.content_part.done", place);
            }
            Some("function_call") => {
                self.items[at]["status"] = json!("completed");
                let fields = json!({"name": self.items[at]["name"], "arguments": self.items[at]["arguments"]});
                let place = self.place(at, fields);
                self.event("response.function_call_arguments.done", place);
            }
            _ => {
                let place = self.place(at, json!({"content_index": 0, "text": self.items[at]["content"][0]["text"]}));
                self.event("response.reasoning_text.done", place);
            }
        }
        let item = self.items[at].clone();
        self.event("response.output_item.done", json!({"output_index": at, "item": item}));
    }

    /// The response as it is before its answer.
    fn object(&self, status: &str) -> Value {
        let mut response = json!({
            "id": self.id, "object": "response", "created_at": self.created, "status": status, "model": self.model,
            "output": [], "error": null, "incomplete_details": null, "usage": null, "previous_response_id": null,
            "store": false, "truncation": "disabled",
        });
        if let Some(response) = response.as_object_mut() {
            response.extend(self.shown.clone());
        }
        response
    }

    /// The response with its answer. A call that was cut off is not in it.
    fn response(&self, answer: &Answer) -> Value {
        let cut = answer.finish == Finish::Length;
        let mut response = self.object(if cut { "incomplete" } else { "completed" });
        let whole = |item: &&Value| {
            item["type"] != "function_call" || answer.calls.iter().any(|call| item["call_id"] == call.id)
        };
        response["output"] = self.items.iter().filter(whole).cloned().collect();
        if cut {
            response["incomplete_details"] = json!({"reason": "max_output_tokens"});
        }
        let usage = &answer.usage;
        response["usage"] = json!({
            "input_tokens": usage.prompt_tokens,
            "input_tokens_details": {"cached_tokens": usage.cached_tokens},
            "output_tokens": usage.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        });
        response["callwright"] = json!(answer.more);
        response
    }
}

impl Dialect for Output {
    fn begin(&mut self) -> Vec<Sse> {
        let response = self.object("in_progress");
        self.event("response.created", json!({"response": response}));
        self.event("response.in_progress", json!({"response": response}));
        self.flush()
    }

    fn update(&mut self, _: usize, update: Update) -> Vec<Sse> {
        match update {
            Update::Done(answer) => {
                self.end_item();
                let response = self.response(&answer);
                let kind = if answer.finish == Finish::Length { "response.incomplete" } else { "response.completed" };
                self.event(kind, json!({"response": response}));
            }
            Update::Failed(refusal) => {
                self.end_item();
                let mut response = self.object("failed");
                let code = if refusal.status == StatusCode::BAD_REQUEST { "invalid_prompt" } else { "server_error" };
                response["error"] = json!({"code": code, "message": refusal.message});
                self.event("response.failed", json!({"response": response}));
            }
            update => self.step(update),
        }
        self.flush()
    }
}
