//! Embeddings, as OpenAI's API has them and as Ollama's has.

use super::super::embedding::{Embedded, Input, Wanted};
use super::super::job::object;
use super::super::line::Line;
use super::super::updates::Cancel;
use super::ollama::model;
use super::{Received, Refusal, Server, Shared, blocking, body};
use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use callwright::engine::Token;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Instant;

/// Texts in one request, as with OpenAI's API.
const INPUTS: usize = 2048;

/// An embedding as numbers, or their bytes as base64. A `Value` would have each number with the digits of 64 bits.
#[derive(Serialize)]
#[serde(untagged)]
enum Shown {
    Numbers(Vec<f32>),
    Base64(String),
}

#[derive(Serialize)]
struct Item {
    object: &'static str,
    index: usize,
    embedding: Shown,
}

#[derive(Serialize)]
pub(super) struct List {
    object: &'static str,
    data: Vec<Item>,
    model: String,
    usage: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    callwright: Option<Value>,
}

#[derive(Serialize)]
struct OllamaList {
    model: String,
    embeddings: Vec<Vec<f32>>,
    total_duration: u64,
    load_duration: u64,
    prompt_eval_count: usize,
}

#[derive(Serialize)]
struct OllamaOne {
    embedding: Vec<f32>,
}

/// What came of a request.
struct Done<D> {
    embedded: Embedded,
    model: String,
    /// What is worth knowing about the model that a request names.
    note: Option<String>,
    /// What the dialect has read of the body, too.
    more: D,
}

pub(super) async fn openai(State(server): Shared, request: Request) -> Result<Json<List>, Refusal> {
    let Done { embedded, model, note, more: (base64, unused) } = embed(&server, request, read_openai).await?;
    let shown = |embedding: Vec<f32>| match base64 {
        true => Shown::Base64(
            STANDARD.encode(embedding.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>()),
        ),
        false => Shown::Numbers(embedding),
    };
    let items = embedded.embeddings.into_iter().enumerate();
    let data = items.map(|(index, embedding)| Item { object: "embedding", index, embedding: shown(embedding) });
    let usage = json!({"prompt_tokens": embedded.tokens, "total_tokens": embedded.tokens});
    let notes: Vec<Value> =
        note.into_iter().chain(unused).map(|note| json!({"kind": "request", "message": note})).collect();
    let callwright = (!notes.is_empty()).then(|| json!({"notes": notes}));
    Ok(Json(List { object: "list", data: data.collect(), model, usage, callwright }))
}

pub(super) async fn ollama(State(server): Shared, request: Request) -> Response {
    let began = Instant::now();
    let answer = embed(&server, request, |body| read_ollama(body, "input")).await.map(|done| {
        let Embedded { embeddings, tokens } = done.embedded;
        let total_duration = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Json(OllamaList { model: done.model, embeddings, total_duration, load_duration: 0, prompt_eval_count: tokens })
    });
    answer.map_or_else(|refusal| refusal.response(refusal.ollama()), IntoResponse::into_response)
}

/// The older form, for one text.
pub(super) async fn ollama_one(State(server): Shared, request: Request) -> Response {
    let answer = embed(&server, request, |body| read_ollama(body, "prompt")).await;
    let answer =
        answer.map(|mut done| Json(OllamaOne { embedding: done.embedded.embeddings.pop().unwrap_or_default() }));
    answer.map_or_else(|refusal| refusal.response(refusal.ollama()), IntoResponse::into_response)
}

type Read<D> = Result<(Wanted, Option<String>, D), Refusal>;

/// Reads a body, and has the model that it names make its embeddings.
async fn embed<D: Send + 'static>(
    server: &Arc<Server>,
    request: Request,
    read: impl FnOnce(Map<String, Value>) -> Read<D> + Send + 'static,
) -> Result<Done<D>, Refusal> {
    if server.is_ending() {
        return Err(Refusal::unavailable("the server is ending"));
    }
    let line = request.extensions().get::<Arc<Line>>().cloned();
    let Received { bytes, held } = body(server, request.into_body()).await?;
    let until = Instant::now() + server.options.timeout;
    // Dropped with this handler, when the client leaves.
    let cancel = Cancel::default();
    server.watch(&cancel);
    let (server, raised) = (Arc::clone(server), cancel.raised());
    blocking(move || {
        let _held = held;
        let (wanted, model, more) = read(object(&bytes)?)?;
        let (slot, note) = server.pool.find(model.as_deref())?;
        line.iter().for_each(|line| line.model(&slot.id));
        let embedded = server.pool.embedder(slot, &server)?.embed(wanted, &raised, until)?;
        line.iter().for_each(|line| line.read(embedded.tokens));
        Ok(Done { embedded, model: slot.id.clone(), note, more })
    })
    .await
}

/// A body of OpenAI's API: whether base64 is asked for, and a note on what is not used.
fn read_openai(mut body: Map<String, Value>) -> Read<(bool, Option<String>)> {
    let model = body.shift_remove("model").and_then(|model| model.as_str().map(str::to_owned));
    let base64 = match body.shift_remove("encoding_format") {
        None | Some(Value::Null) => false,
        Some(Value::String(format)) if format == "float" => false,
        Some(Value::String(format)) if format == "base64" => true,
        Some(_) => return Err(Refusal::of_field("encoding_format", "expected \"float\" or \"base64\"")),
    };
    let wanted = Wanted { inputs: inputs(&mut body, "input")?, dimensions: dimensions(&mut body)?, cut: false };
    body.shift_remove("user");
    let unused: Vec<&str> = body.keys().map(String::as_str).collect();
    let unused = (!unused.is_empty()).then(|| format!("not used in the request: {}", unused.join(", ")));
    Ok((wanted, model, (base64, unused)))
}

/// A body of Ollama's API, with its texts in the field `texts`.
fn read_ollama(mut body: Map<String, Value>, texts: &'static str) -> Read<()> {
    let cut = match body.get("truncate") {
        None | Some(Value::Null) => true,
        Some(Value::Bool(cut)) => *cut,
        Some(_) => return Err(Refusal::of_field("truncate", "expected true or false")),
    };
    let inputs = inputs(&mut body, texts)?;
    Ok((Wanted { inputs, dimensions: dimensions(&mut body)?, cut }, model(&body), ()))
}

fn dimensions(body: &mut Map<String, Value>) -> Result<Option<u64>, Refusal> {
    match body.shift_remove("dimensions") {
        None | Some(Value::Null) => Ok(None),
        // Ollama's clients write 0 for no number.
        Some(number) => match number.as_u64() {
            Some(number) => Ok(Some(number).filter(|number| *number > 0)),
            None => Err(Refusal::of_field("dimensions", "expected a number of dimensions")),
        },
    }
}

/// One text or several, each also as the ids of its tokens.
fn inputs(body: &mut Map<String, Value>, field: &'static str) -> Result<Vec<Input>, Refusal> {
    const EXPECTED: &str = "expected a text, a list of texts, a list of token ids, or a list of such lists";
    let tokens = |ids: &[Value]| -> Option<Vec<Token>> {
        ids.iter().map(|id| Some(Token(i32::try_from(id.as_i64()?).ok()?))).collect()
    };
    let one = |value: &Value| match value {
        Value::String(text) => Some(Input::Text(text.clone())),
        Value::Array(ids) if !ids.is_empty() => tokens(ids).map(Input::Tokens),
        _ => None,
    };
    match body.shift_remove(field) {
        None => Err(Refusal::of_field(field, &format!("missing; {EXPECTED}"))),
        Some(Value::Array(all)) if all.len() > INPUTS && !all[0].is_number() => {
            Err(Refusal::of_field(field, &format!("{} texts; {INPUTS} are the most in one request", all.len())))
        }
        Some(Value::Array(all)) if !all.is_empty() && !all[0].is_number() => {
            let inputs = all.iter().enumerate().map(|(index, value)| {
                one(value).ok_or_else(|| {
                    Refusal::of_field(field, &format!("item {index} is neither a text nor a list of token ids"))
                })
            });
            inputs.collect()
        }
        Some(value) => one(&value).map(|input| vec![input]).ok_or_else(|| Refusal::of_field(field, EXPECTED)),
    }
}
