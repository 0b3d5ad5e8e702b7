//! The paths of the server, one file for each dialect.

mod anthropic;
mod chat;
mod completions;
mod embeddings;
mod ollama;
mod prompts;
mod responses;
mod server;
mod tools;

use super::bodies::Held;
use super::job::{Chat, Job, Work};
use super::line::Line;
use super::refusal::Refusal;
use super::updates::{Answer, Inbox, Update, channel};
use super::{Server, guard};
use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::sse::{Event as Sse, KeepAlive};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Router, middleware};
use callwright::generate::TokenProbability;
use futures_util::{Stream, StreamExt, stream};
use serde_json::{Map, Value};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// After this time a stream begins without its first update, so that proxies and clients see that it is alive.
const FIRST_UPDATE: Duration = Duration::from_secs(5);
/// How long a client may take for the body of a request.
const BODY: Duration = Duration::from_secs(60);

/// All paths.
pub(super) fn routes(server: Arc<Server>) -> Router {
    let paths = Router::new()
        .route("/", get(server::page))
        .route("/health", get(server::health))
        .route("/v1/health", get(server::health))
        .route("/metrics", get(server::metrics))
        .route("/v1/models", get(server::models))
        .route("/models", get(server::models))
        .route("/v1/models/{*id}", get(server::model))
        .route("/v1/chat/completions", post(chat::completions))
        .route("/chat/completions", post(chat::completions))
        .route("/v1/completions", post(completions::completions))
        .route("/v1/embeddings", post(embeddings::openai))
        .route("/embeddings", post(embeddings::openai))
        .route("/v1/responses", post(responses::responses).get(responses::no_socket))
        .route("/v1/responses/{id}", get(responses::remembered).delete(responses::forget))
        .route("/v1/messages", post(anthropic::messages))
        .route("/v1/messages/count_tokens", post(anthropic::count_tokens))
        .route("/callwright/formats", get(server::formats))
        .route("/callwright/tools", get(tools::list))
        .route("/callwright/call", post(tools::call))
        .route("/api/version", get(ollama::version))
        .route("/api/tags", get(ollama::tags))
        .route("/api/ps", get(ollama::running))
        .route("/api/show", post(ollama::show))
        .route("/api/chat", post(ollama::chat))
        .route("/api/generate", post(ollama::generate))
        .route("/api/embed", post(embeddings::ollama))
        .route("/api/embeddings", post(embeddings::ollama_one))
        .route("/api/v0/models", get(server::studio_models))
        .route("/api/v0/models/{*id}", get(server::studio_model))
        .route("/props", get(prompts::first_props).post(prompts::props))
        .route("/tokenize", post(prompts::tokenize))
        .route("/detokenize", post(prompts::detokenize))
        .route("/apply-template", post(prompts::apply_template))
        .fallback(server::unknown)
        .with_state(Arc::clone(&server));
    // Around all paths: only there has a response to a wrong method the header with the right ones.
    Router::new()
        .fallback_service(paths)
        .layer(middleware::from_fn(server::methods))
        .layer(middleware::from_fn_with_state(server, guard::check))
}

/// A whole body, and the room that it takes until it is dropped.
struct Received {
    bytes: Vec<u8>,
    held: Held,
}

/// The whole body of a request.
async fn body(server: &Server, body: Body) -> Result<Received, Refusal> {
    let Ok(read) = tokio::time::timeout(BODY, receive(server, body)).await else {
        let message = format!("the request body did not arrive within {} seconds", BODY.as_secs());
        return Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", message));
    };
    let whole = read?;
    if server.options.log_requests {
        // On one line: what is in a body must not look like another message.
        let text = String::from_utf8_lossy(&whole.bytes).replace('\n', "\\n");
        (server.options.notice)(&format!("request: {text}"));
    }
    Ok(whole)
}

async fn receive(server: &Server, body: Body) -> Result<Received, Refusal> {
    let most = server.options.max_body;
    let too_large = || {
        let message = format!("the request body has more than {most} bytes (--max-body)");
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", message)
    };
    if body.size_hint().lower() > most as u64 {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    // The system gives the memory once it is written to.
    let announced = body.size_hint().exact().and_then(|length| usize::try_from(length).ok());
    if announced.is_some_and(|length| bytes.try_reserve_exact(length).is_err()) {
        return Err(no_memory());
    }
    let mut whole = Received { bytes, held: Held::none(&server.bodies) };
    let mut chunks = body.into_data_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| Refusal::invalid(format!("the request body cannot be read: {error}")))?;
        if whole.bytes.len() + chunk.len() > most {
            return Err(too_large());
        }
        if !whole.held.take(chunk.len()) {
            // A client that still sends when the connection is closed loses the answer.
            drop(whole);
            while let Some(Ok(_)) = chunks.next().await {}
            return Err(no_memory());
        }
        whole.bytes.extend_from_slice(&chunk);
    }
    Ok(whole)
}

fn no_memory() -> Refusal {
    Refusal::unavailable("the bodies of other requests take all the memory that there is for them; try again")
}

/// What a request is about, in any dialect.
struct Asked {
    work: Work,
    /// How many answers to it are asked for.
    answers: usize,
    /// The model that it names.
    model: Option<String>,
}

impl Asked {
    /// One answer in this conversation.
    fn chat(chat: Chat, model: Option<String>) -> Asked {
        Asked { work: Work::Chat(Box::new(chat)), answers: 1, model }
    }
}

/// A request that waits for its answers, or is being answered.
struct Running {
    inbox: Inbox,
    /// The name of the model that answers.
    model: String,
}

/// Reads a body and puts its request into the queue of its model.
async fn ask<D: Send + 'static>(
    server: &Arc<Server>,
    request: Request,
    read: impl Fn(Map<String, Value>) -> Result<(Asked, D), Refusal> + Send + 'static,
) -> Result<(Running, D), Refusal> {
    if server.is_ending() {
        return Err(Refusal::unavailable("the server is ending"));
    }
    let line = request.extensions().get::<Arc<Line>>().cloned();
    let Received { bytes, held } = body(server, request.into_body()).await?;
    let held = Arc::new(held);
    let until = Instant::now() + server.options.timeout;
    let server = Arc::clone(server);
    // Reading a large body and loading a model both take a while.
    blocking(move || {
        let fields = super::job::object(&bytes)?;
        // Each further answer reads them again.
        let bytes = if fields.contains_key("n") { bytes } else { Vec::new() };
        let (Asked { work, answers, model }, more) = read(fields)?;
        let (slot, note) = server.pool.find(model.as_deref())?;
        let host = server.pool.host(slot, &server)?;
        let (outbox, mut inbox) = channel();
        line.iter().for_each(|line| line.model(&slot.id));
        inbox.line = line;
        server.watch(&inbox.cancel);
        let mut first = Some(work);
        for number in 0..answers {
            let mut work = match first.take() {
                Some(work) => work,
                // What is read of a body belongs to one answer.
                None => read(super::job::object(&bytes)?)?.0.work.numbered(number),
            };
            if let (Work::Chat(chat), Some(note)) = (&mut work, &note) {
                chat.notes.push(note.clone());
            }
            host.push(Job { work, outbox: outbox.another(number), until, _held: Arc::clone(&held) })
                .map_err(Refusal::from)?;
        }
        Ok((Running { inbox, model: slot.id.clone() }, more))
    })
    .await
}

/// Does work that takes a while; a panic in it ends the request and nothing else.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Refusal> + Send + 'static) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| {
        let message = "reading this request ended with an error of this program";
        Err(Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", message))
    })
}

/// Why an answer has no end: its request was dropped while it waited.
const ENDED: &str = "the answer was ended before it began: the server is ending";

/// A whole answer, and its tokens where their probabilities are asked for.
#[derive(Default)]
struct Whole {
    answer: Answer,
    tokens: Vec<TokenProbability>,
}

/// All answers to a request, in the order of their numbers.
async fn whole(mut inbox: Inbox, answers: usize) -> Result<Vec<Whole>, Refusal> {
    let mut all: Vec<Whole> = (0..answers).map(|_| Whole::default()).collect();
    let mut left = answers;
    while left > 0 {
        let (number, update) = inbox.next().await.ok_or_else(|| Refusal::unavailable(ENDED))?;
        match update {
            Update::Token(token) => all[number].tokens.push(token),
            Update::Done(answer) => {
                all[number].answer = *answer;
                left -= 1;
            }
            Update::Failed(refusal) => return Err(refusal),
            _ => {}
        }
    }
    Ok(all)
}

/// The answer to a request for one.
async fn one(inbox: Inbox) -> Result<Whole, Refusal> {
    Ok(whole(inbox, 1).await?.pop().unwrap_or_default())
}

/// How a dialect writes a stream of events.
trait Dialect: Send + 'static {
    /// Returns whether a request that gets no answer is told so in a stream, and not by its status.
    fn streams(&self, _refusal: &Refusal) -> bool {
        false
    }
    /// What is sent at a time.
    type Event: Send;
    /// Returns what is sent before the first update.
    fn begin(&mut self) -> Vec<Self::Event>;
    /// Returns what is sent for an update of the answer with this number; nothing follows the last one's end.
    fn update(&mut self, number: usize, update: Update) -> Vec<Self::Event>;
}

/// What is sent of as many answers. The first update is waited for, so that a request which cannot be answered gets an HTTP error,
/// but not for long.
async fn steps<D: Dialect>(
    mut inbox: Inbox,
    mut left: usize,
    mut dialect: D,
) -> Result<impl Stream<Item = D::Event> + Send + 'static, Refusal> {
    let first = match tokio::time::timeout(FIRST_UPDATE, inbox.next()).await {
        Ok(Some((_, Update::Failed(refusal)))) if !dialect.streams(&refusal) => return Err(refusal),
        Ok(Some(update)) => Some(update),
        Ok(None) => return Err(Refusal::unavailable(ENDED)),
        Err(_) => None,
    };
    let mut ready: VecDeque<D::Event> = dialect.begin().into();
    let left_after = |left: usize, update: &Update| match update {
        Update::Done(_) => left - 1,
        // The others end with it.
        Update::Failed(_) => 0,
        _ => left,
    };
    if let Some((number, update)) = first {
        left = left_after(left, &update);
        ready.extend(dialect.update(number, update));
    }
    Ok(stream::unfold((inbox, dialect, ready, left), move |(mut inbox, mut dialect, mut ready, mut left)| async move {
        loop {
            if let Some(event) = ready.pop_front() {
                return Some((event, (inbox, dialect, ready, left)));
            }
            if left == 0 {
                return None;
            }
            let ended = || (0, Update::Failed(Refusal::unavailable(ENDED)));
            let (number, update) = inbox.next().await.unwrap_or_else(ended);
            left = left_after(left, &update);
            ready.extend(dialect.update(number, update));
        }
    }))
}

/// Streams as many answers as server-sent events.
async fn streamed(inbox: Inbox, left: usize, dialect: impl Dialect<Event = Sse>) -> Result<Response, Refusal> {
    let events = steps(inbox, left, dialect).await?.map(Ok::<Sse, Infallible>);
    let sse = axum::response::sse::Sse::new(events).keep_alive(KeepAlive::new().interval(Duration::from_secs(10)));
    let mut response = sse.into_response();
    // Some proxies collect a response otherwise.
    response.headers_mut().insert("x-accel-buffering", axum::http::HeaderValue::from_static("no"));
    Ok(response)
}

/// An event with JSON, without a name.
fn data(value: &Value) -> Sse {
    Sse::default().data(value.to_string())
}

/// An event with JSON and the name that is its type.
fn named(value: &Value) -> Sse {
    Sse::default().event(value["type"].as_str().unwrap_or_default()).data(value.to_string())
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// An id that no other object of this server has.
fn new_id(prefix: &str) -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let nanoseconds =
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    format!("{prefix}{nanoseconds:016x}{number:06x}")
}

/// The state that handlers get.
type Shared = State<Arc<Server>>;
