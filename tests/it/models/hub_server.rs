//! A hub on this machine: as much of huggingface.co as a download needs, with faults to order.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use sha2::{Digest, Sha256};

pub const REPO: &str = "org/model-GGUF";
pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// Answers a request in place of the hub: given its path and its headers, with all that is sent.
pub type Answering = Box<dyn FnMut(&str, &HashMap<String, String>) -> Option<String> + Send>;

/// How the hub behaves; may be changed while it runs.
#[derive(Default)]
pub struct Behaviour {
    /// Files of [`REPO`], by name.
    pub files: HashMap<String, Vec<u8>>,
    /// The tag a file is given instead of its sha256.
    pub etags: HashMap<String, String>,
    /// What every request must carry.
    pub token: Option<String>,
    /// After how many bytes of content each of the next downloads breaks off.
    pub cuts: Vec<usize>,
    /// Answers every request for content with this status.
    pub content_status: Option<u16>,
    /// Answers every request with this status.
    pub status: Option<u16>,
    /// Answers every request with this page.
    pub page: Option<&'static str>,
    /// Leaves a connection that breaks off open, without another byte.
    pub stall: bool,
    /// Ends content early, as if it were whole.
    pub lie_about_length: bool,
    /// Answers some requests in its own way.
    pub answering: Option<Answering>,
}

/// A running hub.
pub struct HubServer {
    pub endpoint: String,
    pub behaviour: Arc<Mutex<Behaviour>>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl HubServer {
    pub fn start(files: &[(&str, &[u8])]) -> HubServer {
        let files = files.iter().map(|(name, bytes)| ((*name).to_owned(), bytes.to_vec())).collect();
        let behaviour = Arc::new(Mutex::new(Behaviour { files, ..Behaviour::default() }));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let (served, log, base) = (behaviour.clone(), requests.clone(), endpoint.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (served, log, base) = (served.clone(), log.clone(), base.clone());
                std::thread::spawn(move || answer(stream, &served, &log, &base));
            }
        });
        HubServer { endpoint, behaviour, requests }
    }

    pub fn change(&self, change: impl FnOnce(&mut Behaviour)) {
        change(&mut self.behaviour.lock().unwrap());
    }

    /// The requests so far: path, and the range that was asked for.
    pub fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut *self.requests.lock().unwrap())
    }

    /// The ranges of content that were asked for since the last call.
    pub fn take_ranges(&self) -> Vec<String> {
        let content = |line: String| line.strip_prefix("/content/").map(str::to_owned);
        let ranges = self.take_requests().into_iter().filter_map(content);
        ranges.filter_map(|line| Some(line.split_once(' ')?.1.to_owned())).filter(|r| r != "bytes=0-0").collect()
    }
}

pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn answer(mut stream: TcpStream, behaviour: &Mutex<Behaviour>, log: &Mutex<Vec<String>>, endpoint: &str) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
    let Some(request) = lines.next() else { return };
    let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
    let headers: HashMap<String, String> = lines
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_once(':').map(|(k, v)| (k.to_lowercase(), v.trim().to_owned())))
        .collect();
    let range = headers.get("range").cloned().unwrap_or_default();
    log.lock().unwrap().push(format!("{path} {range}"));

    let mut behaviour = behaviour.lock().unwrap();
    if let Some(answer) = behaviour.answering.as_mut().and_then(|answering| answering(&path, &headers)) {
        let _ = stream.write_all(answer.as_bytes());
        return finish(stream);
    }
    if let Some(page) = behaviour.page {
        return respond(&mut stream, "200 OK", &[("Content-Type", "text/html")], page.as_bytes());
    }
    let status = |code: u16| format!("{code} Status");
    if let Some(code) = behaviour.status {
        return respond(&mut stream, &status(code), &[], b"");
    }
    let expected = behaviour.token.as_ref().map(|token| format!("Bearer {token}"));
    if expected.is_some() && headers.get("authorization") != expected.as_ref() {
        return respond(&mut stream, &status(401), &[], b"");
    }
    if path == format!("/api/models/{REPO}/revision/main") {
        let files: Vec<_> = behaviour.files.keys().map(|name| serde_json::json!({"rfilename": name})).collect();
        let body = serde_json::json!({"siblings": files, "sha": COMMIT}).to_string();
        return respond(&mut stream, "200 OK", &[("Content-Type", "application/json")], body.as_bytes());
    }
    let resolve = |revision: &str| path.strip_prefix(&format!("/{REPO}/resolve/{revision}/")).map(str::to_owned);
    if let Some(name) = resolve("main").or_else(|| resolve(COMMIT)) {
        let Some(bytes) = behaviour.files.get(&name) else { return respond(&mut stream, &status(404), &[], b"") };
        let etag = behaviour.etags.get(&name).cloned().unwrap_or_else(|| sha256(bytes));
        let (etag, location) = (format!("\"{etag}\""), format!("{endpoint}/content/{name}"));
        let headers = [("x-repo-commit", COMMIT), ("x-linked-etag", &etag), ("Location", &location)];
        return respond(&mut stream, "302 Found", &headers, b"");
    }
    let Some(bytes) = path.strip_prefix("/content/").and_then(|name| behaviour.files.get(name)).cloned() else {
        return respond(&mut stream, &status(404), &[], b"");
    };
    let (start, end) = range.strip_prefix("bytes=").and_then(|range| range.split_once('-')).unwrap_or(("0", ""));
    let start: usize = start.parse().unwrap_or(0);
    let end = end.parse().map_or(bytes.len(), |end: usize| end + 1);
    if start >= bytes.len() {
        return respond(&mut stream, &status(416), &[], b"");
    }
    let content = &bytes[start..end.min(bytes.len())];
    let range_header = format!("bytes {start}-{}/{}", start + content.len() - 1, bytes.len());
    let probe = range == "bytes=0-0";
    if let Some(code) = behaviour.content_status.filter(|_| !probe) {
        return respond(&mut stream, &status(code), &[], b"");
    }
    let cut =
        if probe || behaviour.cuts.is_empty() { content.len() } else { behaviour.cuts.remove(0).min(content.len()) };
    let length = if behaviour.lie_about_length { cut } else { content.len() };
    let stall = behaviour.stall && cut < content.len();
    drop(behaviour);
    let head = format!(
        "HTTP/1.1 206 Partial Content\r\nContent-Range: {range_header}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    let _ = stream.write_all(head.as_bytes());
    let _ = stream.write_all(&content[..cut]);
    if stall {
        // Returns when the other side is gone.
        let _ = stream.read(&mut [0; 1]);
    }
    finish(stream);
}

fn respond(stream: &mut TcpStream, status: &str, headers: &[(&str, &str)], body: &[u8]) {
    let headers: String = headers.iter().map(|(key, value)| format!("{key}: {value}\r\n")).collect();
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n");
    let _ = stream.write_all(head.as_bytes());
    let _ = stream.write_all(body);
    if let Ok(stream) = stream.try_clone() {
        finish(stream);
    }
}

/// Lets the other side read what was sent before the connection closes.
fn finish(mut stream: TcpStream) {
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let _ = stream.set_read_timeout(Some(std::time::Duration::from_secs(5)));
    let _ = stream.read(&mut [0; 64]);
}
