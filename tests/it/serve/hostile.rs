//! `callwright serve` among clients that mean harm, or do nothing: others are served meanwhile, and it ends on request.

use crate::serve::api::{Server, begun, endless, weather, with};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// More than the server has places for.
const MANY: usize = 1100;

/// Sends a request as it is written here, and returns the answer.
fn raw(server: &Server, request: &str) -> String {
    let mut stream = connect(server);
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(&server.at).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

fn post(path: &str, body: &Value) -> String {
    let body = body.to_string();
    format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or("none")
}

/// The most memory that the server has had, in MB.
fn peak(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

/// That the server ends within this time after a signal.
fn ends(server: &mut Server, most: Duration) {
    server.signal();
    let began = Instant::now();
    while server.child.try_wait().unwrap().is_none() {
        assert!(began.elapsed() < most, "it does not end within {most:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// How many connections this process may have for one test, once it is allowed as many as the system lets it.
fn allow_many() -> usize {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, 8192.min(most), most).unwrap();
    MANY.min(usize::try_from(most).unwrap() - 200)
}

#[test]
fn http_2_is_refused() {
    let server = Server::start(&[]);
    let answer = raw(&server, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer:?}");
    let upgraded = raw(
        &server,
        "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n",
    );
    assert_eq!(status(&upgraded), "200", "{upgraded}");
}

#[test]
fn a_host_or_an_origin_that_is_not_known_is_refused() {
    let server = Server::start(&["--allow-host", "models.example"]);
    let ask = |line: &str, headers: &str| {
        let answer = raw(&server, &format!("GET {line} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n"));
        status(&answer).to_owned()
    };
    let port = server.at.rsplit_once(':').unwrap().1;
    for host in ["localhost", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:80", "[::1]", "[::1]:8080", "models.example:80"] {
        assert_eq!(ask("/health", &format!("Host: {host}\r\n")), "200", "{host}");
    }
    let hostile = [
        "",
        " ",
        ":80",
        "evil.com",
        "[::1].evil.com",
        "[::1]evil.com",
        "[::1",
        "[evil.com]",
        "[]",
        "[::1]:80.evil.com",
        "127.0.0.1.evil.com",
        "127.0.0.1:80@evil.com",
        "localhost:80:evil",
        "localhost.evil.com",
        "localhost:evil",
        "user@localhost",
        "b\u{e9}",
    ];
    for host in hostile {
        let got = ask("/health", &format!("Host: {host}\r\n"));
        assert!(matches!(got.as_str(), "403" | "400"), "{host}: {got}");
    }
    for headers in ["", "Host: localhost\r\nHost: evil.com\r\n", "Host: evil.com\r\nHost: localhost\r\n"] {
        let got = ask("/health", headers);
        assert!(matches!(got.as_str(), "403" | "400"), "{headers:?}: {got}");
    }
    let got = ask("http://evil.com/health", "Host: localhost\r\n");
    assert!(matches!(got.as_str(), "403" | "400"), "{got}");

    let origin = |origin: &str| ask("/health", &format!("Host: localhost:{port}\r\nOrigin: {origin}\r\n"));
    assert_eq!(origin(&format!("http://localhost:{port}")), "200");
    for hostile in
        ["", "null", "http://evil.com", "http://localhost:1", "evil://localhost", "b\u{e9}", "http://localhost"]
    {
        let got = origin(hostile);
        assert!(matches!(got.as_str(), "403" | "400"), "{hostile}: {got}");
    }
}

#[test]
fn the_scheme_of_a_key_is_written_in_any_case() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("key");
    std::fs::write(&file, "abc").unwrap();
    let server = Server::start(&["--api-key-file", file.to_str().unwrap()]);
    for (given, expected) in [
        ("Bearer abc", 200),
        ("bearer abc", 200),
        ("BEARER  abc", 200),
        ("Basic abc", 401),
        ("bearerabc", 401),
        ("Bearer", 401),
    ] {
        assert_eq!(
            server.send("/tokenize", r#"{"content": "a"}"#, &[("authorization", given)]).status,
            expected,
            "{given}"
        );
    }
}

#[test]
fn clients_that_do_nothing_keep_nobody_out() {
    let most = allow_many();
    let header = "GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: ";
    let body = "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{";
    // Their answers are larger than what the system takes in for them.
    let unread = post("/tokenize", &json!({"content": "1".repeat(400_000), "with_pieces": true}));
    for (what, sent) in
        [("idle", ""), ("half a header", header), ("half a body", body), ("an answer not read", &unread)]
    {
        let mut server = Server::start(&[]);
        let many = if sent.len() > 1000 { 40 } else { most };
        let clients: Vec<TcpStream> = (0..many)
            .map(|_| {
                let mut stream = connect(&server);
                // The server may have closed it already, for another.
                let _ = stream.write_all(sent.as_bytes());
                stream
            })
            .collect();
        assert_eq!(server.get("/health").status, 200, "{what}");
        assert_eq!(server.chat(&weather()).status, 200, "{what}");
        // Half a body may still come, within the time for running answers.
        ends(&mut server, Duration::from_secs(60));
        drop(clients);
    }
}

#[test]
fn a_client_that_closes_its_sending_half_gets_its_answer() {
    let server = Server::start(&[]);
    for path in ["/v1/chat/completions", "/v1/completions", "/nothing"] {
        let body = if path == "/v1/completions" { json!({"prompt": "Once", "max_tokens": 300}) } else { weather() };
        for version in ["1.1", "1.0"] {
            let mut stream = connect(&server);
            let request = post(path, &body).replace("HTTP/1.1", &format!("HTTP/{version}"));
            stream.write_all(request.as_bytes()).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with(&format!("HTTP/{version} ")), "{answer}");
            assert_eq!(status(&answer), if path == "/nothing" { "404" } else { "200" }, "{answer}");
            let (_, json) = answer.split_once("\r\n\r\n").unwrap();
            assert!(serde_json::from_str::<Value>(json).is_ok(), "{answer}");
        }
    }
}

#[test]
fn an_answer_that_nobody_waits_for_ends_whether_or_not_it_is_streamed() {
    let server = Server::start(&["--parallel", "1"]);
    for streamed in [true, false] {
        let body = with(&endless(), json!({"stream": streamed, "max_tokens": 200_000, "ignore_eos": true}));
        let mut stream = connect(&server);
        stream.write_all(post("/v1/completions", &body).as_bytes()).unwrap();
        let wait = |running: u64| {
            let began = Instant::now();
            while server.running() != running {
                assert!(began.elapsed() < Duration::from_secs(60), "{running} {streamed}");
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        wait(1);
        drop(stream);
        wait(0);
    }
}

#[test]
fn a_second_signal_ends_it_at_once() {
    for options in [&["--grace", "600"][..], &["--grace", "600", "--threads", "64"]] {
        let home = tempfile::tempdir().unwrap();
        let mut server = Server::of(home, &[&["serve", "--port", "0"], options].concat());
        let _answer = begun(&server, "/v1/completions", &with(&endless(), json!({"max_tokens": 200_000})));
        server.signal();
        std::thread::sleep(Duration::from_millis(300));
        assert!(server.child.try_wait().unwrap().is_none(), "an answer is running");
        ends(&mut server, Duration::from_secs(60));
    }
}

#[test]
fn the_first_signal_ends_it_after_the_grace_in_every_state() {
    let long = "word ".repeat(200_000);
    let states: [(&str, Vec<String>); 5] = [
        ("idle", vec![]),
        ("a large text", vec![post("/tokenize", &json!({"content": long, "with_pieces": true}))]),
        ("a long prompt", vec![post("/v1/completions", &json!({"prompt": "word ".repeat(3000), "max_tokens": 1000}))]),
        (
            "a full queue",
            (0..40).map(|_| post("/v1/completions", &json!({"prompt": "Once", "max_tokens": 5000}))).collect(),
        ),
        (
            "a body that does not come",
            vec!["POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{".to_owned()],
        ),
    ];
    for (what, requests) in states {
        println!("{what}");
        let mut server = Server::start(&["--grace", "1"]);
        let clients: Vec<TcpStream> = requests
            .iter()
            .map(|request| {
                let mut stream = connect(&server);
                stream.write_all(request.as_bytes()).unwrap();
                stream
            })
            .collect();
        std::thread::sleep(Duration::from_millis(200));
        // It takes the grace of a second; a busy machine takes longer.
        ends(&mut server, Duration::from_secs(60));
        drop(clients);
    }
}

#[test]
fn bodies_share_one_budget() {
    let server = Server::start(&[]);
    let part =
        format!("POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{{\"content\": \"", 16 << 20);
    let most = "x".repeat((16 << 20) - 1000);
    let mut clients: Vec<TcpStream> = Vec::new();
    for _ in 0..4 {
        let mut stream = connect(&server);
        stream.write_all(part.as_bytes()).unwrap();
        stream.write_all(most.as_bytes()).unwrap();
        clients.push(stream);
    }
    std::thread::sleep(Duration::from_millis(500));
    let refused = server.post("/tokenize", &json!({"content": "x".repeat(1 << 20)}));
    assert_eq!(refused.status, 503, "{}", refused.text);
    assert!(
        refused.header("retry-after").is_some() && refused.text.contains("bodies of other requests"),
        "{}",
        refused.text
    );
    drop(clients);
    // What has arrived of a request that is cut off may still be read, for a few seconds.
    let until = Instant::now() + Duration::from_secs(60);
    while server.post("/tokenize", &json!({"content": "x".repeat(1 << 20)})).status != 200 {
        assert!(Instant::now() < until, "the room of clients that are gone is not given back");
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(peak(&server) < 400, "{} MB", peak(&server));
}

#[test]
fn what_a_request_costs_follows_its_size() {
    let server = Server::start(&[]);
    server.chat(&weather());
    let before = peak(&server);
    let pieces = server.post("/tokenize", &json!({"content": "1".repeat(1 << 20), "with_pieces": true}));
    assert_eq!(pieces.status, 200);
    let tokens = pieces.json()["tokens"].as_array().unwrap().clone();
    let text: String = tokens.iter().map(|token| token["piece"].as_str().unwrap()).collect();
    assert_eq!(text.len(), 1 << 20);
    let after = peak(&server);
    assert!(after - before < 150, "{before} and {after} MB");

    for (path, body) in [
        ("/v1/completions", json!({"prompt": "1".repeat(15 << 20)})),
        ("/v1/chat/completions", json!({"messages": [{"role": "user", "content": "1".repeat(8 << 20)}]})),
    ] {
        let refused = server.post(path, &body);
        assert_eq!((refused.status, &refused.json()["error"]["code"]), (400, &json!("context_length_exceeded")));
        assert!(refused.text.contains("the context holds"), "{}", refused.text);
    }
    let many = format!(
        "{{\"messages\": [{{\"role\": \"user\", \"content\": \"a\"}}], \"other\": [{}0]}}",
        "[],".repeat(1_000_000)
    );
    let refused = server.send("/v1/chat/completions", &many, &[]);
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (413, &json!("request_too_large")));
    assert!(refused.text.contains("values of JSON"), "{}", refused.text);
    assert!(peak(&server) - before < 300, "{before} and {} MB", peak(&server));
}

#[test]
fn what_is_logged_of_a_request_cannot_steer_a_terminal() {
    let mut server = Server::start(&["--log-requests"]);
    server.send("/tokenize", "{\"content\": \"a\u{1b}]0;t\u{7}\n\u{9b}\"}\r", &[]);
    server.signal();
    let mut error = String::new();
    server.child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
    assert!(error.contains("a\\u001b]0;t\\u0007\\n\\u009b"), "{error:?}");
    assert!(!error.contains('\u{1b}') && !error.contains('\u{9b}') && !error.contains('\r'), "{error:?}");
}
