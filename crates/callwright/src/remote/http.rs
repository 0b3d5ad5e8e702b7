//! Requests to a server: retries, errors, and streams of events.

use crate::models::ServerModel;
use crate::{Error, ErrorKind, Result};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use ureq::http::Response;
use ureq::{Agent, Body};

/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(10);
/// How long a request that generates nothing may take.
const QUICK: Duration = Duration::from_secs(30);
/// After this time nobody waits for an answer any more.
const LONGEST_ANSWER: Duration = Duration::from_secs(6 * 3600);
/// How often a request is sent before its failure is reported.
const ATTEMPTS: u32 = 5;
/// The pause before the second attempt; each is twice as long as the one before.
const PAUSE: Duration = Duration::from_millis(500);
/// The longest pause that a server may ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The longest line of a stream, in bytes: nothing that a model writes is longer.
const LONGEST_LINE: u64 = 16 << 20;
/// How often a wait looks for Ctrl-C and the deadline.
const LOOK: Duration = Duration::from_millis(50);

/// A server's API.
#[derive(Clone)]
pub(super) struct Http {
    agent: Agent,
    /// The address of the API, which ends in `/v1` with most servers.
    api: String,
    /// The address above it, where servers have what is not OpenAI's.
    root: String,
    key: Option<String>,
    silence: Duration,
}

/// What came of a stream.
pub(super) enum Item {
    /// The data of an event.
    Data(Value),
    /// The server says that the stream is complete.
    Complete,
    /// The stream ended without saying so.
    Closed,
    Failed(Error),
}

/// The answer of a server, while it arrives. Dropping it closes the connection, and the server stops.
pub(super) struct Stream {
    items: Receiver<Item>,
    silence: Duration,
    server: String,
}

/// What a wait for the next item ends with.
pub(super) enum Waited {
    Item(Item),
    /// The user or the deadline ended it.
    Interrupted,
}

/// Which addresses a path belongs to.
#[derive(Clone, Copy)]
pub(super) enum Path {
    /// OpenAI's.
    Api(&'static str),
    /// The server's own.
    Own(&'static str),
}

impl Http {
    pub(super) fn new(server: &ServerModel) -> Result<Http> {
        // A thread reads a stream. Who waits for it has a limit of its own, and need not wait for the thread.
        let config = Agent::config_builder().http_status_as_error(false).timeout_connect(Some(CONNECT));
        let config = config.timeout_recv_response(Some(server.timeout)).timeout_recv_body(Some(LONGEST_ANSWER));
        let config = config.user_agent(concat!("callwright/", env!("CARGO_PKG_VERSION"))).build();
        let root = server.url.strip_suffix("/v1").unwrap_or(&server.url).to_owned();
        Ok(Http { agent: config.into(), api: server.url.clone(), root, key: server.key()?, silence: server.timeout })
    }

    fn address(&self, path: Path) -> String {
        match path {
            Path::Api(path) => format!("{}/{path}", self.api),
            Path::Own(path) => format!("{}/{path}", self.root),
        }
    }

    /// The JSON at an address; `None` if the server has nothing there.
    ///
    /// # Errors
    /// [`ErrorKind::Server`] if it cannot be reached, or refuses the key.
    pub(super) fn get(&self, path: Path) -> Result<Option<Value>> {
        let url = self.address(path);
        self.answer(&url, || {
            let request = self.agent.get(&url);
            let request = match &self.key {
                Some(key) => request.header("Authorization", format!("Bearer {key}")),
                None => request,
            };
            request.config().timeout_global(Some(QUICK)).build().call()
        })
    }

    /// The JSON that answers a request; `None` if the server does not know such requests.
    ///
    /// # Errors
    /// Those of [`Http::get`].
    pub(super) fn post(&self, path: Path, body: &Value) -> Result<Option<Value>> {
        let (url, body) = (self.address(path), body.to_string());
        self.answer(&url, || self.request(&url).config().timeout_global(Some(QUICK)).build().send(&body))
    }

    fn request(&self, url: &str) -> ureq::RequestBuilder<ureq::typestate::WithBody> {
        let request = self.agent.post(url).header("Content-Type", "application/json");
        match &self.key {
            Some(key) => request.header("Authorization", format!("Bearer {key}")),
            None => request,
        }
    }

    fn answer(&self, url: &str, ask: impl Fn() -> Result<Response<Body>, ureq::Error>) -> Result<Option<Value>> {
        // A server may close a connection that was kept for the next request, just when that is sent.
        let mut response = ask().or_else(|_| ask()).map_err(|error| unreachable(url, &error))?;
        let status = response.status().as_u16();
        let text = response.body_mut().read_to_string().unwrap_or_default();
        match status {
            200 => Ok(serde_json::from_str(&text).ok()),
            401 | 403 | 429 | 502..=504 => Err(refused(url, status, &text)),
            _ => Ok(None),
        }
    }

    /// Sends a request, and reads its stream of events on a thread of its own.
    pub(super) fn stream(&self, path: Path, body: &Value) -> Stream {
        let (send, items) = sync_channel(64);
        let (url, body) = (self.address(path), body.to_string());
        let (server, http, silence) = (url.clone(), self.clone(), self.silence);
        let read = move || {
            match http.send(&url, &body, &send) {
                Ok(Some(response)) => events(response, &url, &send),
                Ok(None) => {}
                Err(error) => drop(send.send(Item::Failed(error))),
            };
        };
        // If no thread can be started, the channel closes, which is reported as a closed stream.
        let _ = std::thread::Builder::new().name("server".to_owned()).spawn(read);
        Stream { items, silence, server }
    }

    /// Sends a request until it is accepted; `None` if nobody waits any more.
    fn send(&self, url: &str, body: &str, items: &SyncSender<Item>) -> Result<Option<Response<Body>>> {
        let (mut attempt, mut pause) = (0, PAUSE);
        loop {
            attempt += 1;
            let (error, wanted) = match self.request(url).send(body) {
                Ok(response) if response.status().is_success() => return Ok(Some(response)),
                Ok(mut response) => {
                    let status = response.status().as_u16();
                    let wanted = response.headers().get("retry-after").and_then(|value| value.to_str().ok());
                    let wanted = wanted.and_then(|text| text.trim().parse().ok()).map(Duration::from_secs);
                    let text = response.body_mut().read_to_string().unwrap_or_default();
                    let error = refused(url, status, &text);
                    if !matches!(status, 408 | 425 | 429 | 500 | 502 | 503 | 504) {
                        return Err(error);
                    }
                    (error, wanted)
                }
                // It leads to the same place each time.
                Err(error @ (ureq::Error::RedirectFailed | ureq::Error::TooManyRedirects)) => {
                    return Err(unreachable(url, &error));
                }
                Err(error) => (unreachable(url, &error), None),
            };
            if attempt >= ATTEMPTS {
                let (message, hint) = (error.message().to_owned(), error.hint_text().map(str::to_owned));
                let failed = Error::new(ErrorKind::Server, format!("{message} ({ATTEMPTS} attempts)"));
                return Err(hint.map_or(failed.clone(), |hint| failed.hint(hint)));
            }
            tracing::debug!("{error}; trying again");
            let until = Instant::now() + wanted.unwrap_or(pause).min(LONGEST_PAUSE);
            while let Some(left) = until.checked_duration_since(Instant::now()) {
                // An empty event only finds out whether somebody waits.
                if items.send(Item::Data(Value::Null)).is_err() {
                    return Ok(None);
                }
                std::thread::sleep(left.min(PAUSE));
            }
            pause *= 2;
        }
    }
}

impl Stream {
    /// Waits for what comes next.
    ///
    /// # Errors
    /// [`ErrorKind::Server`] if the server is silent for too long.
    pub(super) fn wait(&self, cancel: &AtomicBool, until: Option<Instant>) -> Result<Waited> {
        let began = Instant::now();
        loop {
            if cancel.load(Ordering::Relaxed) || until.is_some_and(|until| until <= Instant::now()) {
                return Ok(Waited::Interrupted);
            }
            match self.items.recv_timeout(LOOK) {
                Ok(Item::Data(Value::Null)) => {}
                Ok(item) => return Ok(Waited::Item(item)),
                Err(RecvTimeoutError::Disconnected) => return Ok(Waited::Item(Item::Closed)),
                Err(RecvTimeoutError::Timeout) if began.elapsed() >= self.silence => {
                    let seconds = self.silence.as_secs();
                    return Err(Error::new(
                        ErrorKind::Server,
                        format!("{} has sent nothing for {seconds} s", self.server),
                    )
                    .hint("`timeout` in models.toml sets how long it may take"));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

/// Passes on the events of a response, until the stream ends or nobody waits any more.
fn events(response: Response<Body>, url: &str, items: &SyncSender<Item>) {
    let kind = response.headers().get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if kind != "text/event-stream" {
        // A server that cannot stream answers with the whole.
        let mut response = response;
        let text = response.body_mut().read_to_string().unwrap_or_default();
        let item = match serde_json::from_str(&text) {
            Ok(value) if kind == "application/json" => event(value, url),
            _ => {
                let what =
                    if kind.is_empty() { "no content type".to_owned() } else { format!("content of type {kind}") };
                Item::Failed(garbage(url, &format!("{what}, which is no stream of events"), &text))
            }
        };
        let _ = items.send(item).and_then(|()| items.send(Item::Closed));
        return;
    }
    let mut lines = BufReader::new(response.into_body().into_reader());
    let (mut data, mut failed) = (String::new(), false);
    loop {
        let mut line = Vec::new();
        let item = match lines.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line) {
            Ok(0) => Item::Closed,
            Ok(read) if read as u64 == LONGEST_LINE => {
                Item::Failed(garbage(url, "a line of more than 16 MiB", &String::from_utf8_lossy(&line)))
            }
            Err(error) => {
                let message = format!("the connection to {url} broke in the middle of an answer: {error}");
                Item::Failed(Error::new(ErrorKind::Server, message).caused_by(error))
            }
            Ok(_) => {
                let line = String::from_utf8_lossy(&line);
                let line = line.trim_end_matches(['\n', '\r']);
                if let Some(name) = line.strip_prefix("event:") {
                    failed = name.trim() == "error";
                    continue;
                }
                if let Some(more) = line.strip_prefix("data:") {
                    if !data.is_empty() {
                        data.push('\n');
                    }
                    data.push_str(more.strip_prefix(' ').unwrap_or(more));
                    if (data.len() as u64) < LONGEST_LINE {
                        continue;
                    }
                    let _ = items.send(Item::Failed(garbage(url, "an event of more than 16 MiB", &data)));
                    return;
                }
                if !line.is_empty() || data.is_empty() {
                    // Comments, which keep the connection open, and names of events.
                    continue;
                }
                match (data.trim(), serde_json::from_str(&data)) {
                    ("[DONE]", _) => Item::Complete,
                    (text, value) if failed => {
                        let said = value.ok().map_or_else(
                            || excerpt(text),
                            |value: Value| text_of(value.get("error").unwrap_or(&value)),
                        );
                        Item::Failed(Error::new(ErrorKind::Server, format!("{url} reports: {said}")))
                    }
                    // It says nothing, as a comment does.
                    (_, Ok(Value::Null)) => {
                        data.clear();
                        continue;
                    }
                    (_, Ok(value)) => event(value, url),
                    (text, Err(_)) => Item::Failed(garbage(url, "an event that is no JSON", text)),
                }
            }
        };
        data.clear();
        let last = !matches!(item, Item::Data(_));
        if items.send(item).is_err() || last {
            return;
        }
    }
}

/// An event, or the error that it reports.
fn event(value: Value, url: &str) -> Item {
    match value.get("error").filter(|error| !error.is_null()) {
        Some(error) => Item::Failed(Error::new(ErrorKind::Server, format!("{url} reports: {}", text_of(error)))),
        None => Item::Data(value),
    }
}

/// Returns what a server says is wrong.
fn text_of(error: &Value) -> String {
    let text = error.get("message").unwrap_or(error);
    let text = text.as_str().map_or_else(|| text.to_string(), str::to_owned);
    excerpt(&text)
}

/// The beginning of a text, on one line.
fn excerpt(text: &str) -> String {
    const LONGEST: usize = 300;
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

fn garbage(url: &str, what: &str, text: &str) -> Error {
    Error::new(ErrorKind::Server, format!("{url} answered with {what}: {:?}", excerpt(text)))
        .hint("is this the address of the server's OpenAI API, which usually ends in /v1?")
}

/// A response that is no success.
fn refused(url: &str, status: u16, text: &str) -> Error {
    let body = serde_json::from_str::<Value>(text).ok();
    let said = body.as_ref().map(|body| text_of(body.get("error").or_else(|| body.get("detail")).unwrap_or(body)));
    let said = said.unwrap_or_else(|| excerpt(text));
    let said = if said.is_empty() { String::new() } else { format!(": {said}") };
    let error = Error::new(ErrorKind::Server, format!("{url} refused with status {status}{said}"));
    match status {
        401 | 403 => error.hint(
            "set CALLWRIGHT_UPSTREAM_KEY to the server's key, or name another variable with api_key_env in models.toml",
        ),
        404 => error.hint("is this the address of the server's OpenAI API, which usually ends in /v1?"),
        429 => error.hint("the server has too much to do; ask fewer cases at a time, or later"),
        _ => error,
    }
}

/// Sends JSON to an address, and heeds nothing of the answer but its status.
///
/// # Errors
/// [`ErrorKind::Server`] if it cannot be reached, or refuses.
pub fn post(url: &str, body: &Value) -> Result<()> {
    let config = Agent::config_builder().http_status_as_error(false).timeout_connect(Some(CONNECT));
    let agent: Agent = config.timeout_global(Some(QUICK)).build().into();
    let sent = agent.post(url).header("Content-Type", "application/json").send(&body.to_string());
    let mut response = sent.map_err(|error| unreachable(url, &error))?;
    let status = response.status();
    if status.is_success() {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Server,
        format!(
            "{url} refused with status {}: {}",
            status.as_u16(),
            excerpt(&response.body_mut().read_to_string().unwrap_or_default())
        ),
    ))
}

/// A server that does not answer at all.
fn unreachable(url: &str, error: &ureq::Error) -> Error {
    Error::new(ErrorKind::Server, format!("cannot reach {url}: {error}"))
        .hint("is the server running, and is this its address?")
}
