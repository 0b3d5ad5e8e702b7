//! Ollama's API, for clients that speak nothing else: chat, text, and what they ask to find a model and its context.

use super::super::Server;
use super::super::job::{Chat, ServerFields, Text, Work, object};
use super::super::offered::arguments_of;
use super::super::pool::{About, Slot};
use super::super::updates::{Answer, Finish, Update, is_object};
use super::{Asked, Dialect, Inbox, Refusal, Running, Shared, ask, blocking, body, one, steps};
use axum::Json;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use callwright::hash::sha256;
use futures_util::StreamExt;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The version of Ollama's API that this follows. Clients refuse one that is too old.
const VERSION: &str = "0.13.4";

/// Options that a body of chat completions has by the same name.
const SAME: [&str; 11] = [
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "seed",
    "stop",
    "repeat_penalty",
    "repeat_last_n",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
];

pub(super) async fn version() -> Json<Value> {
    Json(json!({"version": VERSION, "callwright": env!("CARGO_PKG_VERSION")}))
}

/// The models, or only those that are loaded.
async fn list(server: Arc<Server>, only_loaded: bool) -> Response {
    let models = blocking(move || {
        let slots = server.pool.slots().iter().filter(|slot| !only_loaded || server.pool.is_loaded(slot));
        Ok(slots.map(|slot| entry(&server, slot)).collect::<Vec<Value>>())
    });
    answered(models.await.map(|models| Json(json!({"models": models})).into_response()))
}

pub(super) async fn tags(State(server): Shared) -> Response {
    list(server, false).await
}

pub(super) async fn running(State(server): Shared) -> Response {
    list(server, true).await
}

fn details(about: &About) -> Value {
    json!({"parent_model": "", "format": "gguf", "family": about.architecture, "families": [about.architecture],
        "parameter_size": "", "quantization_level": about.quantization})
}

fn entry(server: &Server, slot: &Slot) -> Value {
    let about = server.pool.about(slot, server);
    let since = Timestamp::from_second(i64::try_from(slot.created).unwrap_or(0)).unwrap_or_default();
    json!({"name": slot.id, "model": slot.id, "modified_at": since.to_string(), "size": about.size,
        "digest": sha256(&slot.id), "context_length": about.context, "details": details(&about)})
}

/// What a model is, and what it can do.
pub(super) async fn show(State(server): Shared, request: Request) -> Response {
    let shown = async {
        let received = body(&server, request.into_body()).await?;
        blocking(move || {
            let (slot, _) = server.pool.find(model(&object(&received.bytes)?).as_deref())?;
            let about = server.pool.about(slot, &server);
            // Of a model that generates, the template is known once it is loaded.
            let template = match about.embeds {
                true => String::new(),
                false => server.pool.host(slot, &server)?.at_desk(|session| session.template().source().to_owned()),
            };
            let about = server.pool.about(slot, &server);
            let arch = &about.architecture;
            Ok(Json(json!({
                "license": "", "modelfile": "", "parameters": format!("num_ctx {}", about.context.unwrap_or(0)),
                "details": details(&about), "capabilities": if about.embeds { json!(["embedding"]) } else { json!(["completion", "tools"]) },
                "model_info": {"general.architecture": arch, format!("{arch}.context_length"): about.context},
                "template": template,
            })))
        })
        .await
    };
    answered(shown.await.map(IntoResponse::into_response))
}

fn answered(answer: Result<Response, Refusal>) -> Response {
    answer.unwrap_or_else(|refusal| refusal.response(refusal.ollama()))
}

/// The model that a body names. A tag that the client has added says nothing here.
pub(super) fn model(body: &Map<String, Value>) -> Option<String> {
    let name = body.get("model").or_else(|| body.get("name"))?.as_str()?;
    Some(name.strip_suffix(":latest").unwrap_or(name).to_owned())
}

pub(super) async fn chat(State(server): Shared, request: Request) -> Response {
    respond(server, request, true).await
}

pub(super) async fn generate(State(server): Shared, request: Request) -> Response {
    respond(server, request, false).await
}

async fn respond(server: Arc<Server>, request: Request, chat: bool) -> Response {
    let began = Instant::now();
    let asked = ask(&server, request, move |body| if chat { read_chat(body) } else { read_text(body) }).await;
    let (Running { inbox, model }, stream) = match asked {
        Ok(asked) => asked,
        Err(refusal) => return refusal.response(refusal.ollama()),
    };
    let form = Form { model, chat, began, calls: Vec::new() };
    answered(if stream { lines(inbox, form).await } else { whole(inbox, form).await })
}

async fn whole(inbox: Inbox, form: Form) -> Result<Response, Refusal> {
    let answer = one(inbox).await?.answer;
    let calls =
        answer.calls.iter().enumerate().map(|(index, call)| self::call(index, &call.id, &call.name, &call.arguments));
    let mut last = form.last(&answer);
    form.said(&mut last, "content", &answer.content);
    if let Some(reasoning) = &answer.reasoning {
        form.said(&mut last, "thinking", reasoning);
    }
    let calls: Vec<Value> = calls.collect();
    if form.chat && !calls.is_empty() {
        last["message"]["tool_calls"] = json!(calls);
    }
    Ok(Json(last).into_response())
}

/// An answer in lines of JSON.
async fn lines(inbox: Inbox, form: Form) -> Result<Response, Refusal> {
    let lines = steps(inbox, 1, form).await?.map(|line: Value| Ok::<String, Infallible>(format!("{line}\n")));
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response())
}

/// Reads a request for an answer in a conversation, and whether it is to be streamed.
fn read_chat(mut body: Map<String, Value>) -> Result<(Asked, bool), Refusal> {
    let mut messages = match body.shift_remove("messages") {
        Some(Value::Array(messages)) => messages,
        Some(_) => return Err(Refusal::invalid("messages: expected a list of messages")),
        None => return Err(Refusal::invalid("messages is missing; expected a list of messages")),
    };
    messages.iter_mut().for_each(message);
    read(body, messages)
}

/// A message in OpenAI's form.
fn message(message: &mut Value) {
    let Some(fields) = message.as_object_mut() else { return };
    if let Some(thinking) = fields.shift_remove("thinking") {
        fields.insert("reasoning_content".to_owned(), thinking);
    }
    if let Some(name) = fields.shift_remove("tool_name") {
        fields.insert("name".to_owned(), name);
    }
    let images = fields.shift_remove("images").and_then(|images| images.as_array().map(Vec::len)).unwrap_or(0);
    if images > 0 {
        let text = fields.get("content").cloned().unwrap_or_default();
        let image = json!({"type": "image"});
        let parts = [json!({"type": "text", "text": text})].into_iter().chain(std::iter::repeat_n(image, images));
        fields.insert("content".to_owned(), parts.collect());
    }
}

/// Reads a request for a text.
fn read_text(mut body: Map<String, Value>) -> Result<(Asked, bool), Refusal> {
    let prompt = match body.shift_remove("prompt") {
        Some(Value::String(prompt)) => prompt,
        Some(_) => return Err(Refusal::invalid("prompt: expected a text")),
        None => return Err(Refusal::invalid("prompt is missing; expected a text")),
    };
    let system = body.shift_remove("system").filter(|system| !system.is_null() && system != "");
    Refusal::unless(system.as_ref().is_none_or(Value::is_string), "system", "a text")?;
    let raw = body.shift_remove("raw").filter(|raw| !raw.is_null());
    Refusal::unless(raw.as_ref().is_none_or(Value::is_boolean), "raw", "true or false")?;
    if raw == Some(json!(true)) {
        let (stream, model) = (streams(&mut body)?, model(&body));
        let mut fields = Map::from_iter([("prompt".to_owned(), json!(prompt))]);
        options(&mut body, &mut fields)?;
        let work = Work::Text(Box::new(Text::read(fields).map_err(in_own_words)?));
        return Ok((Asked { work, answers: 1, model }, stream));
    }
    let system = system.map(|text| json!({"role": "system", "content": text}));
    read(body, system.into_iter().chain([json!({"role": "user", "content": prompt})]).collect())
}

/// Whether an answer is to be streamed, which it is where nothing is said.
fn streams(body: &mut Map<String, Value>) -> Result<bool, Refusal> {
    match body.shift_remove("stream") {
        None | Some(Value::Null) => Ok(true),
        Some(Value::Bool(stream)) => Ok(stream),
        Some(_) => Err(Refusal::invalid("stream: expected true or false")),
    }
}

/// Reads the fields that all requests have, as those of chat completions.
fn read(mut body: Map<String, Value>, messages: Vec<Value>) -> Result<(Asked, bool), Refusal> {
    let (stream, model) = (streams(&mut body)?, model(&body));
    let mut fields = Map::from_iter([("messages".to_owned(), Value::Array(messages))]);
    let mut own = ServerFields::take(&mut body)?;
    let notes = options(&mut body, &mut fields)?;
    for name in ["model", "name", "keep_alive"] {
        body.shift_remove(name);
    }
    let format = match body.shift_remove("format") {
        None | Some(Value::Null) => None,
        Some(Value::String(word)) if word.is_empty() => None,
        Some(Value::String(word)) if word == "json" => Some(json!({"type": "json_object"})),
        Some(schema @ Value::Object(_)) => {
            Some(json!({"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}))
        }
        Some(_) => return Err(Refusal::invalid("format: expected \"json\" or a JSON Schema")),
    };
    fields.extend(format.map(|format| ("response_format".to_owned(), format)));
    let (name, value) = match body.shift_remove("think") {
        None | Some(Value::Null) => ("think", Value::Null),
        Some(Value::Bool(false)) => ("reasoning_effort", json!("none")),
        Some(Value::Bool(true)) => ("chat_template_kwargs", json!({"enable_thinking": true})),
        Some(effort @ Value::String(_)) => ("reasoning_effort", effort),
        Some(_) => return Err(Refusal::invalid("think: expected true, false or a level, such as \"low\"")),
    };
    if !value.is_null() {
        fields.insert(name.to_owned(), value);
    }
    // What else there is means what it means in chat completions, or is named in a note.
    fields.extend(body);
    let mut chat = Chat::read(fields, std::mem::take(&mut own.own)).map_err(in_own_words)?;
    chat.notes.extend(notes);
    Ok((Asked::chat(chat, model), stream))
}

/// A refusal with the names that Ollama's API has.
fn in_own_words(refusal: Refusal) -> Refusal {
    refusal.naming("max_tokens", "options.num_predict").naming("response_format", "format")
}

/// Takes the options over into a body of chat completions, and says which are not used.
fn options(body: &mut Map<String, Value>, fields: &mut Map<String, Value>) -> Result<Option<String>, Refusal> {
    let options = match body.shift_remove("options") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Object(options)) => options,
        Some(_) => return Err(Refusal::invalid("options: expected an object")),
    };
    let mut unused = Vec::new();
    for (name, value) in options {
        match name.as_str() {
            // No limit, and as much as the context holds.
            "num_predict" if value.as_i64().is_some_and(|count| count < 0) => {
                fields.insert("max_tokens".to_owned(), json!(-1));
            }
            "num_predict" => drop(fields.insert("max_tokens".to_owned(), value)),
            "num_ctx" => unused.push("num_ctx (the server's --ctx is the context of each request)".to_owned()),
            same if SAME.contains(&same) => drop(fields.insert(name, value)),
            _ => unused.push(name),
        }
    }
    Ok((!unused.is_empty()).then(|| format!("not used in options: {}", unused.join(", "))))
}

/// What all parts of a response have in common.
struct Form {
    model: String,
    chat: bool,
    began: Instant,
    /// The calls that are being streamed: index, id, name and arguments.
    calls: Vec<(usize, String, String, String)>,
}

fn call(index: usize, id: &str, name: &str, arguments: &str) -> Value {
    json!({"id": id, "function": {"index": index, "name": name, "arguments": arguments_of(arguments)}})
}

impl Form {
    fn part(&self) -> Value {
        let mut part = json!({"model": self.model, "created_at": Timestamp::now().to_string()});
        match self.chat {
            true => part["message"] = json!({"role": "assistant", "content": ""}),
            false => part["response"] = json!(""),
        }
        part["done"] = json!(false);
        part
    }

    fn said(&self, part: &mut Value, what: &str, text: &str) {
        match (self.chat, what) {
            (true, _) => part["message"][what] = json!(text),
            (false, "content") => part["response"] = json!(text),
            (false, _) => part[what] = json!(text),
        }
    }

    /// The end of an answer.
    fn last(&self, answer: &Answer) -> Value {
        let usage = &answer.usage;
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let mut last = self.part();
        last["done"] = json!(true);
        last["done_reason"] = json!(if answer.finish == Finish::Length { "length" } else { "stop" });
        last["total_duration"] = json!(nanoseconds(self.began.elapsed()));
        last["load_duration"] = json!(0);
        last["prompt_eval_count"] = json!(usage.prompt_tokens);
        last["prompt_eval_duration"] = json!(nanoseconds(usage.prompt_time));
        last["eval_count"] = json!(usage.completion_tokens);
        last["eval_duration"] = json!(nanoseconds(usage.completion_time));
        last["callwright"] = json!(answer.more);
        last
    }
}

impl Dialect for Form {
    type Event = Value;

    fn begin(&mut self) -> Vec<Value> {
        Vec::new()
    }

    fn update(&mut self, _: usize, update: Update) -> Vec<Value> {
        let mut part = self.part();
        match update {
            Update::Text(text) => self.said(&mut part, "content", &text),
            Update::Reasoning(text) => self.said(&mut part, "thinking", &text),
            Update::Call { index, id, name } => {
                self.calls.push((index, id, name, String::new()));
                return Vec::new();
            }
            Update::Arguments { index, delta } => {
                if let Some(call) = self.calls.iter_mut().find(|call| call.0 == index) {
                    call.3 += &delta;
                }
                return Vec::new();
            }
            Update::CallEnd => {
                let Some((index, id, name, arguments)) = self.calls.pop() else { return Vec::new() };
                // Arguments are an object here, so those that are cut off cannot be shown.
                if !self.chat || !is_object(&arguments) {
                    return Vec::new();
                }
                part["message"]["tool_calls"] = json!([call(index, &id, &name, &arguments)]);
            }
            Update::Token(_) => return Vec::new(),
            Update::Done(answer) => return vec![self.last(&answer)],
            Update::Failed(refusal) => return vec![refusal.ollama()],
        }
        vec![part]
    }
}
