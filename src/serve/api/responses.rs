//! OpenAI's responses.

mod input;

use super::super::Server;
use super::super::job::{Chat, ServerFields};
use super::super::offered::{Names, Offered, input_of};
use super::super::refusal::CONTEXT_LENGTH;
use super::super::updates::{Answer, Call, Finish, Update};
use super::{Asked, Dialect, Refusal, Running, Shared, Sse, ask, named, new_id, now, streamed};
use axum::Json;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use input::{Input, SUMMARY};
use serde_json::{Map, Value, json};
use std::sync::Arc;

pub(super) async fn responses(State(server): Shared, request: Request) -> Result<Response, Refusal> {
    let memory = Arc::clone(&server);
    let read = move |body| read(&memory, body);
    let (Running { mut inbox, model }, asked) = ask(&server, request, read).await?;
    let stream = asked.stream;
    let mut output = Output::new(model, asked, server);
    if stream {
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

/// Codex asks for a WebSocket first. This status has it go on over HTTP at once, and any other only after several attempts.
pub(super) async fn no_socket(uri: Uri, headers: HeaderMap) -> Response {
    if !headers.contains_key(header::UPGRADE) {
        return (StatusCode::METHOD_NOT_ALLOWED, [(header::ALLOW, "POST")]).into_response();
    }
    let message = format!("{} speaks no WebSocket; send a POST request", uri.path());
    Refusal::new(StatusCode::UPGRADE_REQUIRED, "no_websocket", message).into_response()
}

/// A response that is remembered.
pub(super) async fn remembered(State(server): Shared, Path(id): Path<String>) -> Result<Json<Value>, Refusal> {
    let stored = server.memory.get(&id).and_then(|stored| serde_json::from_str(&stored.response).ok());
    stored.map(Json).ok_or_else(|| unknown(&id))
}

/// Forgets a response.
pub(super) async fn forget(State(server): Shared, Path(id): Path<String>) -> Result<Json<Value>, Refusal> {
    match server.memory.remove(&id) {
        true => Ok(Json(json!({"id": id, "object": "response", "deleted": true}))),
        false => Err(unknown(&id)),
    }
}

fn unknown(id: &str) -> Refusal {
    let message = format!(
        "Response with id '{id}' not found: this server remembers the last ones that were not sent with store false"
    );
    Refusal::new(StatusCode::NOT_FOUND, "response_not_found", message)
}

/// What a request says beside its conversation.
struct Fields {
    stream: bool,
    /// The fields that a response repeats.
    shown: Map<String, Value>,
    /// What its tools are for the client.
    names: Names,
    /// The items of the conversation, where the response is to be remembered.
    items: Option<Vec<Value>>,
    /// Whether the answer is a summary, in place of what was said so far.
    compacts: bool,
}

/// Fields that a response repeats, and what they are where the request does not say.
fn repeated() -> [(&'static str, Value); 10] {
    [
        ("instructions", Value::Null),
        ("max_output_tokens", Value::Null),
        ("metadata", json!({})),
        ("parallel_tool_calls", json!(true)),
        ("previous_response_id", Value::Null),
        ("temperature", Value::Null),
        ("text", json!({"format": {"type": "text"}})),
        ("tool_choice", json!("auto")),
        ("tools", json!([])),
        ("top_p", Value::Null),
    ]
}

/// Reads a request as one of chat completions.
fn read(server: &Server, mut body: Map<String, Value>) -> Result<(Asked, Fields), Refusal> {
    let given = |(name, default): (&str, Value)| {
        (name.to_owned(), body.get(name).filter(|value| !value.is_null()).cloned().unwrap_or(default))
    };
    let mut shown: Map<String, Value> = repeated().into_iter().map(given).collect();
    let store = body.get("store") != Some(&json!(false));
    shown.insert("store".to_owned(), json!(store));
    complete_tools(&mut shown["tools"]);
    let mut fields = ServerFields::take(&mut body)?;
    fields.one_answer()?;
    let mut take = |name: &str| body.shift_remove(name).filter(|value| !value.is_null());
    for name in ["conversation", "prompt"] {
        if take(name).is_some() {
            return Err(Refusal::invalid(format!(
                "{name}: this server keeps none; send all messages as input, or previous_response_id"
            )));
        }
    }
    if take("background").is_some_and(|background| background == json!(true)) {
        return Err(Refusal::invalid("background: this server answers at once"));
    }
    let mut items = match take("previous_response_id") {
        None => Vec::new(),
        Some(Value::String(id)) => server.memory.get(&id).ok_or_else(|| not_found(&id))?.items(),
        Some(_) => return Err(Refusal::invalid("previous_response_id: expected the id of a response")),
    };
    let earlier = items.len();
    match take("input") {
        Some(Value::String(text)) => items.push(json!({"type": "message", "role": "user", "content": text})),
        Some(Value::Array(given)) => items.extend(given),
        None => return Err(Refusal::invalid("input is missing; expected a text or a list of items")),
        Some(_) => return Err(Refusal::invalid("input: expected a text or a list of items")),
    }
    for item in items.iter_mut().filter(|item| item["type"] == "item_reference") {
        if let Some(found) = item["id"].as_str().and_then(|id| server.memory.item(id)) {
            *item = found;
        }
    }
    let tools = take("tools");
    let mut offered = Offered::default();
    match &tools {
        Some(Value::Array(tools)) => offered.add(tools),
        None => {}
        Some(_) => return Err(Refusal::invalid("tools: expected a list of tools")),
    }
    input::tools(&items).for_each(|tools| offered.add(tools));
    let choice = take("tool_choice").and_then(|choice| offered.choice(&choice));
    let mut messages = Vec::new();
    if let Some(instructions) = take("instructions") {
        Refusal::unless(instructions.is_string() || instructions.is_array(), "instructions", "a text")?;
        messages.push(json!({"role": "system", "content": instructions}));
    }
    let mut input = Input::new(&offered.names, messages);
    for (at, item) in items.iter().enumerate() {
        input.add(item, at.saturating_sub(earlier))?;
    }
    let compacts = items.last().is_some_and(|item| item["type"] == "compaction_trigger");
    if compacts {
        input.ask_for_summary();
    }
    let (messages, note) = input.finish();
    for name in ["include", "truncation", "client_metadata"] {
        take(name);
    }
    let limit = take("max_output_tokens");
    let (text, reasoning) = (take("text"), take("reasoning"));
    Refusal::unless(text.as_ref().is_none_or(Value::is_object), "text", "an object")?;
    Refusal::unless(reasoning.as_ref().is_none_or(Value::is_object), "reasoning", "an object")?;
    let format = text.and_then(|text| text.get("format").cloned());
    let effort = reasoning.and_then(|reasoning| reasoning.get("effort").cloned());
    let mut set = |name: &str, value: Option<Value>| {
        if let Some(value) = value.filter(|value| !value.is_null()) {
            body.insert(name.to_owned(), value);
        }
    };
    set("messages", Some(Value::Array(messages)));
    set("tools", Some(json!(std::mem::take(&mut offered.functions))).filter(|tools| *tools != json!([])));
    set("tool_choice", if compacts { Some(json!("none")) } else { choice });
    set("max_tokens", limit);
    set("response_format", format);
    set("reasoning_effort", effort);
    let model = body.get("model").and_then(Value::as_str).map(str::to_owned);
    let in_own_words =
        |refusal: Refusal| refusal.naming("max_tokens", "max_output_tokens").naming("response_format", "text.format");
    let mut chat = Chat::read(body, std::mem::take(&mut fields.own)).map_err(in_own_words)?;
    let names = std::mem::take(&mut offered.names);
    chat.notes.extend(offered.into_notes().into_iter().chain(note));
    let items = store.then_some(items);
    Ok((Asked::chat(chat, model), Fields { stream: fields.stream, shown, names, items, compacts }))
}

fn not_found(id: &str) -> Refusal {
    let message = format!("Previous response with id '{id}' not found.");
    Refusal {
        param: Some("previous_response_id"),
        ..Refusal::new(StatusCode::NOT_FOUND, "previous_response_not_found", message)
    }
}

/// Adds the fields that clients expect of each function.
fn complete_tools(tools: &mut Value) {
    let functions = tools.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut);
    for function in functions.filter(|tool| tool.get("type").is_some_and(|kind| kind == "function")) {
        function.entry("parameters").or_insert(Value::Null);
        function.entry("strict").or_insert(json!(false));
    }
}

/// A response while it is written.
struct Output {
    id: String,
    created: u64,
    model: String,
    shown: Map<String, Value>,
    names: Names,
    /// The items that are remembered before those of the answer, and where.
    kept: Option<(Arc<Server>, Vec<Value>)>,
    compacts: bool,
    items: Vec<Value>,
    /// Whether the last item goes on.
    open: bool,
    /// The arguments of a call that takes free text, which is in them once they are whole.
    arguments: String,
    /// The events that are not sent yet.
    events: Vec<Value>,
    sequence: usize,
}

impl Output {
    fn new(model: String, asked: Fields, server: Arc<Server>) -> Output {
        Output {
            id: new_id("resp_"),
            created: now(),
            model,
            shown: asked.shown,
            names: asked.names,
            kept: asked.items.map(|items| (server, items)),
            compacts: asked.compacts,
            items: Vec::new(),
            open: false,
            arguments: String::new(),
            events: Vec::new(),
            sequence: 0,
        }
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
            Update::Text(delta) if self.compacts => {
                let new = || json!({"type": "compaction", "id": new_id("cmp_"), "encrypted_content": SUMMARY});
                let at = self.item("compaction", new);
                self.append(at, "/encrypted_content", &delta);
            }
            // The answer to such a request has one item.
            _ if self.compacts => {}
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
                let named = self.names.of(&name).cloned();
                let custom = named.as_ref().is_some_and(|named| named.custom);
                let kind = if custom { "custom_tool_call" } else { "function_call" };
                self.arguments.clear();
                self.item(kind, || {
                    let id_of_item = new_id(if custom { "ctc_" } else { "fc_" });
                    let mut item = json!({"type": kind, "id": id_of_item, "call_id": id, "name": name,
                        "status": "in_progress"});
                    item[if custom { "input" } else { "arguments" }] = json!("");
                    if let Some(named) = named {
                        item["name"] = json!(named.name);
                        item["namespace"] = json!(named.namespace);
                    }
                    item
                });
            }
            Update::Arguments { delta, .. } => {
                let at = self.items.len().saturating_sub(1);
                if self.open && self.items[at]["type"] == "custom_tool_call" {
                    self.arguments.push_str(&delta);
                } else if self.open {
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
            Some("custom_tool_call") => {
                let input = input_of(&self.arguments);
                self.items[at]["status"] = json!("completed");
                self.items[at]["input"] = json!(input);
                let place = self.place(at, json!({"delta": input}));
                self.event("response.custom_tool_call_input.delta", place);
                let place = self.place(at, json!({"input": input}));
                self.event("response.custom_tool_call_input.done", place);
            }
            Some("compaction") => {}
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
            "output": [], "error": null, "incomplete_details": null, "usage": null, "truncation": "disabled",
        });
        if let Some(response) = response.as_object_mut() {
            response.extend(self.shown.clone());
        }
        response
    }

    /// Whether the answer is not whole. A summary that reached its limit is one all the same.
    fn is_cut(&self, answer: &Answer) -> bool {
        answer.finish == Finish::Length && !self.compacts
    }

    /// The response with its answer, which is remembered. A call that was cut off is not in it.
    fn response(&mut self, answer: &Answer) -> Value {
        let cut = self.is_cut(answer);
        let mut response = self.object(if cut { "incomplete" } else { "completed" });
        let whole = |item: &&Value| {
            let is_call = item.get("call_id").is_some();
            !is_call || answer.calls.iter().any(|call: &Call| item["call_id"] == call.id)
        };
        response["output"] = self.items.iter().filter(whole).cloned().collect();
        if cut {
            response["incomplete_details"] = json!({"reason": "max_output_tokens"});
        }
        let usage = &answer.usage;
        response["usage"] = json!({
            "input_tokens": usage.prompt_tokens,
            "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
            "output_tokens": usage.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        });
        response["callwright"] = json!(answer.more);
        if let Some((server, mut items)) = self.kept.take() {
            items.extend(response["output"].as_array().cloned().unwrap_or_default());
            server.memory.put(&self.id, &response, &items);
        }
        response
    }
}

impl Dialect for Output {
    type Event = Sse;

    /// Codex compacts a conversation that is too long where a stream says so, and not where the status does.
    fn streams(&self, refusal: &Refusal) -> bool {
        refusal.code == CONTEXT_LENGTH
    }

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
                let kind = if self.is_cut(&answer) { "response.incomplete" } else { "response.completed" };
                self.event(kind, json!({"response": response}));
            }
            Update::Failed(refusal) => {
                self.end_item();
                let mut response = self.object("failed");
                let code = match refusal.status {
                    StatusCode::BAD_REQUEST if refusal.code == CONTEXT_LENGTH => CONTEXT_LENGTH,
                    StatusCode::BAD_REQUEST => "invalid_prompt",
                    _ => "server_error",
                };
                response["error"] = json!({"code": code, "message": refusal.message});
                self.event("response.failed", json!({"response": response}));
            }
            update => self.step(update),
        }
        self.flush()
    }
}
