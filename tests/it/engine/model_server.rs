//! A scripted model server: it sends the answers and the faults that a test lists.

use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// The answer to one request for text.
#[derive(Clone)]
pub enum Answer {
    /// Completes with these pieces, and ends for this reason.
    Pieces(Vec<&'static str>, &'static str),
    /// Answers a chat with these deltas, and ends for this reason.
    Deltas(Vec<Value>, &'static str),
    /// These pieces, and then the connection ends.
    Cut(Vec<&'static str>),
    /// These pieces, and then nothing, with the connection open.
    Silent(Vec<&'static str>),
    /// This body, of this type.
    Body(&'static str, &'static str),
    /// This status, with further headers.
    Status(u16, &'static str),
}

/// A running server.
pub struct ModelServer {
    /// The address of its API.
    pub url: String,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    models: Vec<&'static str>,
    key: Option<&'static str>,
    answers: VecDeque<Answer>,
    script: Option<fn(&Value) -> Answer>,
    requests: Vec<Value>,
    likeliest: VecDeque<Value>,
    most: u64,
}

impl ModelServer {
    /// A server of the model `tiny`, which gives these answers in turn.
    pub fn start(answers: impl IntoIterator<Item = Answer>) -> ModelServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let answers = answers.into_iter().collect();
        let state = Arc::new(Mutex::new(State { models: vec!["tiny"], answers, ..State::default() }));
        let served = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let served = Arc::clone(&served);
                std::thread::spawn(move || answer(stream, &served));
            }
        });
        ModelServer { url, state }
    }

    pub fn with_models(self, models: &[&'static str]) -> ModelServer {
        self.state.lock().unwrap().models = models.to_vec();
        self
    }

    pub fn with_key(self, key: &'static str) -> ModelServer {
        self.state.lock().unwrap().key = Some(key);
        self
    }

    /// Says the probabilities of the next tokens, one time for each of these, for at most `most` tokens.
    pub fn with_likeliest(self, most: u64, likeliest: impl IntoIterator<Item = Value>) -> ModelServer {
        let mut state = self.state.lock().unwrap();
        (state.most, state.likeliest) = (most, likeliest.into_iter().collect());
        drop(state);
        self
    }

    /// Gives the answers that this chooses by the request.
    pub fn answering(self, script: fn(&Value) -> Answer) -> ModelServer {
        self.state.lock().unwrap().script = Some(script);
        self
    }

    /// Gives one more answer.
    pub fn add(&self, answer: Answer) {
        self.state.lock().unwrap().answers.push_back(answer);
    }

    /// The bodies of the requests for text so far.
    pub fn requests(&self) -> Vec<Value> {
        self.state.lock().unwrap().requests.clone()
    }
}

fn answer(stream: TcpStream, state: &Mutex<State>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    // A client may keep its connection for another request.
    loop {
        let mut request = String::new();
        if !matches!(reader.read_line(&mut request), Ok(read) if read > 0) {
            return;
        }
        let (mut length, mut key) = (0, String::new());
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).is_err() || line.trim().is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').unwrap_or_default();
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.trim().parse().unwrap(),
                "authorization" => key = value.trim().to_owned(),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let path = request.split_whitespace().nth(1).unwrap_or_default().to_owned();
        if !respond(&stream, &path, &key, &body, state) {
            return;
        }
    }
}

/// Answers one request; whether the connection stays open.
fn respond(out: &TcpStream, path: &str, key: &str, body: &[u8], state: &Mutex<State>) -> bool {
    let whole = |status: &str, more: &str, kind: &str, body: &str| {
        let mut out = out;
        let length = body.len();
        let head = format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n{more}\r\n");
        out.write_all(format!("{head}{body}").as_bytes()).is_ok()
    };
    let mut known = state.lock().unwrap();
    if known.key.is_some_and(|wanted| key != format!("Bearer {wanted}")) {
        let refused = r#"{"error": {"message": "wrong key"}}"#;
        return whole("401 Unauthorized", "", "application/json", refused);
    }
    if path == "/v1/models" {
        let models: Vec<Value> = known.models.iter().map(|id| json!({"id": id, "max_model_len": 4096})).collect();
        return whole("200 OK", "", "application/json", &json!({"data": models}).to_string());
    }
    if path == "/v1/traces" {
        known.requests.push(serde_json::from_slice(body).unwrap());
        return whole("200 OK", "", "application/json", "{}");
    }
    if !matches!(path, "/v1/completions" | "/v1/chat/completions") {
        return whole("404 Not Found", "", "application/json", r#"{"detail": "Not Found"}"#);
    }
    let request: Value = serde_json::from_slice(body).unwrap();
    if let Some(most) = request["logprobs"].as_u64() {
        let refused = r#"{"error": {"message": "too many"}}"#;
        return match known.likeliest.front().filter(|_| most <= known.most).cloned() {
            Some(tokens) => {
                known.likeliest.pop_front();
                let answer = json!({"choices": [{"text": "", "logprobs": {"top_logprobs": [tokens]}}]});
                whole("200 OK", "", "application/json", &answer.to_string())
            }
            None => whole("400 Bad Request", "", "application/json", refused),
        };
    }
    let chosen = known.script.map(|script| script(&request));
    known.requests.push(request);
    let answer = chosen.or_else(|| known.answers.pop_front()).unwrap_or(Answer::Status(500, ""));
    drop(known);
    let choice = |text: &str| json!({"choices": [{"index": 0, "text": text}]});
    let (events, reason) = match answer {
        Answer::Status(status, more) => {
            let body = r#"{"error": {"message": "not now"}}"#;
            return whole(&format!("{status} Status"), more, "application/json", body);
        }
        Answer::Body(kind, body) => return whole("200 OK", "", kind, body),
        Answer::Pieces(pieces, reason) => (pieces.into_iter().map(choice).collect(), Some(Some(reason))),
        Answer::Deltas(deltas, reason) => {
            let choice = |delta| json!({"choices": [{"index": 0, "delta": delta}]});
            (deltas.into_iter().map(choice).collect(), Some(Some(reason)))
        }
        Answer::Cut(pieces) => (pieces.into_iter().map(choice).collect(), Some(None)),
        Answer::Silent(pieces) => (pieces.into_iter().map(choice).collect::<Vec<Value>>(), None),
    };
    let send = |text: &str| {
        let mut out = out;
        let chunk = format!("{:x}\r\n{text}\r\n", text.len());
        out.write_all(chunk.as_bytes()).and_then(|()| out.flush()).is_ok()
    };
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let mut stream = out;
    let mut going = stream.write_all(head.as_bytes()).is_ok();
    for event in &events {
        going = going && send(&format!("data: {event}\n\n"));
    }
    match reason {
        Some(Some(reason)) => {
            let last = json!({"choices": [{"index": 0, "text": "", "delta": {}, "finish_reason": reason}],
                "usage": {"prompt_tokens": 30, "completion_tokens": 7}});
            going
                && send(&format!("data: {last}\n\n"))
                && send("data: [DONE]\n\n")
                && stream.write_all(b"0\r\n\r\n").is_ok()
        }
        Some(None) => {
            let _ = out.shutdown(std::net::Shutdown::Both);
            false
        }
        None => {
            std::thread::sleep(std::time::Duration::from_secs(60));
            false
        }
    }
}
