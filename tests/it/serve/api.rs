//! `callwright serve`, as its clients see it.

use crate::program::callwright;
use serde_json::{Map, Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running server.
pub(crate) struct Server {
    pub(crate) child: Child,
    /// Its address and port.
    pub(crate) at: String,
    home: tempfile::TempDir,
}

impl Server {
    /// A server of the bundled model with these options.
    pub(crate) fn start(options: &[&str]) -> Server {
        Server::start_in(tempfile::tempdir().unwrap(), options)
    }

    fn start_in(home: tempfile::TempDir, options: &[&str]) -> Server {
        // The number of threads is given, so that nothing is timed.
        Server::of(home, &[&["serve", "--port", "0", "--threads", "1", "--quiet"], options].concat())
    }

    /// A server before another one.
    pub(crate) fn proxy(upstream: &str, options: &[&str]) -> Server {
        let args = ["proxy", "--port", "0", "--quiet", "--upstream", upstream];
        Server::of(tempfile::tempdir().unwrap(), &[&args, options].concat())
    }

    pub(crate) fn of(home: tempfile::TempDir, args: &[&str]) -> Server {
        let mut command = program(home.path());
        command.args(args).env("NO_PROXY", "*");
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut first).unwrap();
        let at = first.trim().rsplit_once("http://").map(|(_, at)| at.to_owned());
        let at = at.unwrap_or_else(|| {
            let mut error = String::new();
            child.stderr.as_mut().unwrap().read_to_string(&mut error).unwrap();
            panic!("{error}")
        });
        Server { child, at, home }
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(path, &body.to_string(), &[])
    }

    pub(crate) fn send(&self, path: &str, body: &str, headers: &[(&str, &str)]) -> Answer {
        let mut request = agent().post(format!("http://{}{path}", self.at));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Answer::of(request.send(body).unwrap())
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        Answer::of(agent().get(format!("http://{}{path}", self.at)).call().unwrap())
    }

    pub(crate) fn chat(&self, body: &Value) -> Answer {
        self.post("/v1/chat/completions", body)
    }

    pub(crate) fn signal(&self) {
        let id = nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGTERM).unwrap();
    }

    /// How many requests are being answered.
    pub(crate) fn running(&self) -> u64 {
        let text = self.get("/metrics").text;
        let line = text.lines().find_map(|line| line.strip_prefix("callwright_requests_running{model=\"bundled\"} "));
        line.unwrap().parse().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn program(home: &Path) -> Command {
    let command = callwright(home);
    let mut plain = Command::new(command.get_program());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => plain.env(name, value),
            None => plain.env_remove(name),
        };
    }
    plain.env_remove("CALLWRIGHT_API_KEY");
    plain
}

fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder().http_status_as_error(false);
    config.timeout_global(Some(Duration::from_secs(120))).build().into()
}

/// A response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) text: String,
}

impl Answer {
    fn of(mut response: ureq::http::Response<ureq::Body>) -> Answer {
        let headers = response.headers().iter();
        let headers = headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect();
        let text = response.body_mut().with_config().limit(1 << 30).read_to_string().unwrap();
        Answer { status: response.status().as_u16(), headers, text }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The objects of a stream, in order, without the end.
    pub(crate) fn events(&self) -> Vec<Value> {
        let data = self.text.lines().filter_map(|line| line.strip_prefix("data: "));
        data.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).unwrap()).collect()
    }
}

/// The message that the chunks of a stream add up to, and the last finish reason.
fn added_up(events: &[Value]) -> (Value, Value) {
    let mut message = Map::new();
    let mut calls: Vec<Value> = Vec::new();
    let mut finish = Value::Null;
    let add = |text: &mut Value, more: &Value| {
        let joined = format!("{}{}", text.as_str().unwrap_or_default(), more.as_str().unwrap_or_default());
        *text = json!(joined);
    };
    for choice in events.iter().filter_map(|event| event["choices"].get(0)) {
        let delta = &choice["delta"];
        for name in ["content", "reasoning_content"] {
            if delta[name].is_string() {
                add(message.entry(name).or_insert(Value::Null), &delta[name]);
            }
        }
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            let index = usize::try_from(call["index"].as_u64().unwrap()).unwrap();
            if index == calls.len() {
                calls.push(json!({"id": call["id"], "type": "function", "function": call["function"]}));
            } else {
                add(&mut calls[index]["function"]["arguments"], &call["function"]["arguments"]);
            }
        }
        if !choice["finish_reason"].is_null() {
            finish = choice["finish_reason"].clone();
        }
    }
    let content = message.get("content").cloned().unwrap_or_default();
    let content = if content == "" && !calls.is_empty() { Value::Null } else { content };
    let mut whole = json!({"content": content});
    if !calls.is_empty() {
        whole["tool_calls"] = json!(calls);
    }
    (whole, finish)
}

/// What of a whole answer a stream adds up to.
fn comparable(answer: &Value) -> (Value, Value) {
    let choice = &answer["choices"][0];
    let mut whole = json!({"content": choice["message"]["content"]});
    if let Some(calls) = choice["message"].get("tool_calls") {
        whole["tool_calls"] = calls.clone();
    }
    (whole, choice["finish_reason"].clone())
}

fn tool(name: &str, description: &str, arguments: &[&str]) -> Value {
    let properties: Map<String, Value> =
        arguments.iter().map(|name| ((*name).to_owned(), json!({"type": "string"}))).collect();
    json!({"type": "function", "function": {"name": name, "description": description,
        "parameters": {"type": "object", "properties": properties, "required": arguments}}})
}

pub(crate) fn weather() -> Value {
    json!({
        "messages": [{"role": "user", "content": "What's the weather in Beijing tomorrow?"}],
        "tools": [tool("get_weather", "Get the weather", &["city", "date"])],
    })
}

pub(crate) fn with(body: &Value, more: Value) -> Value {
    let mut body = body.clone();
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// Generates until its limit.
pub(crate) fn endless() -> Value {
    json!({"prompt": "Once upon a time", "max_tokens": 2000, "stream": true, "callwright": {}})
}

#[test]
#[cfg(feature = "remote")]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn a_proxy_serves_the_models_of_another_server() {
    let upstream = Server::start(&[]);
    let proxy = Server::proxy(&format!("http://{}/v1", upstream.at), &[]);
    assert_eq!(proxy.get("/v1/models").json()["data"][0]["id"], "bundled");
    let body = json!({
        "temperature": 0,
        "messages": [{"role": "user", "content": "What's the weather in Beijing tomorrow?"}],
        "tools": [{"type": "function", "function": {"name": "get_weather", "description": "Get the weather forecast for a city",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "date": {"type": "string"}},
                "required": ["city"]}}}],
    });
    let [direct, through] = [&upstream, &proxy].map(|server| server.chat(&body).json()["choices"][0].clone());
    let call = |choice: &Value| choice["message"]["tool_calls"][0]["function"].clone();
    assert_eq!(call(&through), call(&direct), "{through}");
    assert_eq!(call(&through)["name"], "get_weather");
    let mut streamed = body.clone();
    streamed["stream"] = json!(true);
    let (message, finish) = added_up(&proxy.chat(&streamed).events());
    assert_eq!((&message["tool_calls"][0]["function"], finish), (&call(&through), json!("tool_calls")));
}

#[test]
fn several_answers_to_one_request_are_those_with_the_next_seeds() {
    let server = Server::start(&[]);
    let poem = |more: Value| {
        let body = json!({"messages": [{"role": "user", "content": "Write a line about the sea."}], "temperature": 1.5, "max_tokens": 12});
        server.chat(&with(&body, more))
    };
    let alone = [7, 8, 9].map(|seed| poem(json!({"seed": seed})).json());
    let together = poem(json!({"seed": 7, "n": 3})).json();
    let content = |choice: &Value| choice["message"]["content"].clone();
    let choices = together["choices"].as_array().unwrap();
    assert_eq!(
        choices.iter().map(content).collect::<Vec<_>>(),
        alone.each_ref().map(|one| content(&one["choices"][0]))
    );
    assert_ne!(content(&choices[0]), content(&choices[1]), "another seed, another answer");
    assert_eq!(choices.iter().map(|choice| choice["index"].as_u64()).collect::<Vec<_>>(), [Some(0), Some(1), Some(2)]);
    assert!(choices.iter().all(|choice| choice["callwright"]["seed"].is_u64()), "{together}");
    let tokens = |one: &Value| one["usage"]["completion_tokens"].as_u64().unwrap();
    assert_eq!(tokens(&together), alone.iter().map(tokens).sum::<u64>());
    assert_eq!(together["usage"]["prompt_tokens"], alone[0]["usage"]["prompt_tokens"]);

    let more = json!({"seed": 7, "n": 3, "stream": true, "stream_options": {"include_usage": true}});
    let streamed = poem(more);
    let events = streamed.events();
    for (number, choice) in choices.iter().enumerate() {
        let of_it = events.iter().filter(|event| event["choices"][0]["index"] == number);
        let text: String = of_it.clone().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect();
        assert_eq!(json!(text), content(choice));
        assert_eq!(of_it.filter(|event| event["choices"][0]["finish_reason"].is_string()).count(), 1);
    }
    assert_eq!(tokens(events.last().unwrap()), tokens(&together));
    assert_eq!(streamed.text.matches("[DONE]").count(), 1);

    assert_eq!(poem(json!({"n": 1.0})).json()["choices"].as_array().unwrap().len(), 1);
    let refused = |n: Value| poem(json!({"n": n}));
    for n in [json!(0), json!(17), json!("two"), json!(1.5)] {
        let refusal = refused(n);
        assert_eq!(refusal.status, 400);
        assert!(refusal.text.contains("expected a number from 1 to 16"), "{}", refusal.text);
    }
    let elsewhere = server.post("/v1/responses", &json!({"input": "Hello", "n": 2}));
    assert!(elsewhere.status == 400 && elsewhere.text.contains("only /v1/chat/completions"), "{}", elsewhere.text);
}

#[test]
fn a_call_is_made_its_result_given_and_answered() {
    let server = Server::start(&[]);
    let answer = server.chat(&weather());
    assert_eq!(answer.status, 200);
    let whole = answer.json();
    let message = &whole["choices"][0]["message"];
    assert_eq!(message["tool_calls"][0]["function"]["name"], "get_weather");
    let arguments: Value =
        serde_json::from_str(message["tool_calls"][0]["function"]["arguments"].as_str().unwrap()).unwrap();
    assert_eq!(arguments, json!({"city": "Beijing", "date": "tomorrow"}));
    assert_eq!(comparable(&whole).1, "tool_calls");

    let streamed = server.chat(&with(&weather(), json!({"stream": true, "stream_options": {"include_usage": true}})));
    assert_eq!(streamed.header("content-type"), Some("text/event-stream"));
    assert_eq!(added_up(&streamed.events()), comparable(&whole));
    let usage = streamed.events().pop().unwrap()["usage"].take();
    assert_eq!(usage["completion_tokens"], whole["usage"]["completion_tokens"]);
    assert!(usage["prompt_tokens_details"]["cached_tokens"].as_u64() > Some(0), "{usage}");
    assert!(streamed.text.ends_with("data: [DONE]\n\n"));

    let mut next = weather();
    let messages = next["messages"].as_array_mut().unwrap();
    messages.push(message.clone());
    messages.push(json!({"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "21 C, sunny"}));
    let answered = server.chat(&next).json();
    assert!(answered["choices"][0]["message"]["content"].as_str().unwrap().contains("21 C"), "{answered}");
    assert_eq!(comparable(&answered).1, "stop");
}

#[test]
fn the_responses_api_has_the_same_items_whole_and_streamed() {
    let server = Server::start(&[]);
    let body = json!({
        "instructions": "You help.", "input": "What's the weather in Beijing tomorrow?",
        "tools": [{"type": "function", "name": "get_weather", "description": "Get the weather",
            "parameters": weather()["tools"][0]["function"]["parameters"]}],
    });
    let whole = server.post("/v1/responses", &body).json();
    assert_eq!((&whole["status"], &whole["output"][0]["type"]), (&json!("completed"), &json!("function_call")));
    assert_eq!(whole["output"][0]["name"], "get_weather");

    let events = server.post("/v1/responses", &with(&body, json!({"stream": true}))).events();
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds[..3], ["response.created", "response.in_progress", "response.output_item.added"]);
    assert_eq!(kinds.last(), Some(&"response.completed"));
    let numbers: Vec<u64> = events.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..events.len() as u64).collect::<Vec<_>>());
    let deltas: String = events
        .iter()
        .filter(|event| event["type"] == "response.function_call_arguments.delta")
        .map(|event| event["delta"].as_str().unwrap())
        .collect();
    assert_eq!(whole["output"][0]["arguments"], deltas);

    let call = &whole["output"][0];
    let input = json!([{"role": "user", "content": "What's the weather in Beijing tomorrow?"}, call,
        {"type": "function_call_output", "call_id": call["call_id"], "output": "21 C, sunny"}]);
    let answered = server.post("/v1/responses", &with(&body, json!({"input": input}))).json();
    assert_eq!(answered["output"][0]["type"], "message");
    assert!(answered["output"][0]["content"][0]["text"].as_str().unwrap().contains("21 C"), "{answered}");
}

#[test]
fn anthropics_messages_have_the_same_blocks_whole_and_streamed() {
    let server = Server::start(&[]);
    let body = json!({
        "max_tokens": 200, "system": "You help.",
        "messages": [{"role": "user", "content": "What's the weather in Beijing tomorrow?"}],
        "tools": [{"name": "get_weather", "description": "Get the weather",
            "input_schema": weather()["tools"][0]["function"]["parameters"]}],
    });
    let whole = server.post("/v1/messages", &body).json();
    let call = &whole["content"][0];
    assert_eq!((&whole["stop_reason"], &call["type"]), (&json!("tool_use"), &json!("tool_use")));
    assert_eq!(call["input"], json!({"city": "Beijing", "date": "tomorrow"}));
    let count = server.post("/v1/messages/count_tokens", &body).json();
    let usage = &whole["usage"];
    let read = usage["input_tokens"].as_u64().unwrap() + usage["cache_read_input_tokens"].as_u64().unwrap();
    assert_eq!(count["input_tokens"], read);

    let events = server.post("/v1/messages", &with(&body, json!({"stream": true}))).events();
    let json: String = events.iter().filter_map(|event| event["delta"]["partial_json"].as_str()).collect();
    assert_eq!(serde_json::from_str::<Value>(&json).unwrap(), call["input"]);
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds.first(), Some(&"message_start"));
    assert_eq!(kinds[kinds.len() - 3..], ["content_block_stop", "message_delta", "message_stop"]);

    let messages = json!([body["messages"][0], {"role": "assistant", "content": whole["content"]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call["id"], "content": "21 C, sunny"}]}]);
    let answered = server.post("/v1/messages", &with(&body, json!({"messages": messages}))).json();
    assert!(answered["content"][0]["text"].as_str().unwrap().contains("21 C"), "{answered}");
    let refused = server.post("/v1/messages", &json!({"messages": []}));
    assert_eq!((refused.status, &refused.json()["type"]), (400, &json!("error")));
}

#[test]
fn a_call_that_is_cut_off_is_in_no_tool_calls() {
    let server = Server::start(&[]);
    for limit in 1..40 {
        let body = with(&weather(), json!({"max_tokens": limit}));
        let whole = server.chat(&body).json();
        let streamed = server.chat(&with(&body, json!({"stream": true})));
        assert_eq!(added_up(&streamed.events()), comparable(&whole), "{limit}");
        let (message, finish) = comparable(&whole);
        if finish == "tool_calls" {
            assert!(limit > 10 && message["tool_calls"][0]["function"]["arguments"].as_str().unwrap().ends_with('}'));
            continue;
        }
        assert_eq!((&finish, message.get("tool_calls")), (&json!("length"), None), "{limit}");
    }
    // Where a client wants the arguments while they are written, those of a cut call are no JSON.
    let body = json!({"max_tokens": 20, "stream": true,
        "callwright": {"stream_arguments": "written", "constrain": "off"}, "logit_bias": {}});
    let streamed = server.chat(&with(&weather(), body)).events();
    let (message, finish) = added_up(&streamed);
    assert_eq!(finish, "length");
    let arguments = message["tool_calls"][0]["function"]["arguments"].as_str().unwrap();
    assert!(serde_json::from_str::<Value>(arguments).is_err(), "{arguments}");
    let more = &streamed.last().unwrap()["callwright"]["invalid_tool_calls"][0];
    assert_eq!(more["name"], "get_weather");
}

#[test]
fn errors_in_a_request_are_reported() {
    let server = Server::start(&["--max-body", "10K"]);
    let chat = "/v1/chat/completions";
    let long = format!("{{\"messages\": \"{}\"}}", "x".repeat(20_000));
    let deep = format!("{{\"messages\": {}1{}}}", "[".repeat(4_000), "]".repeat(4_000));
    let user = r#""messages": [{"role": "user", "content": "Hi"}]"#;
    let more = |field: &str| format!("{{{user}, {field}}}");
    let mut table = String::new();
    for (path, body) in [
        (chat, ""),
        (chat, "[1, 2]"),
        (chat, "{\"messages\": [}"),
        (chat, "{}"),
        (chat, "{\"messages\": []}"),
        (chat, "{\"messages\": [{\"role\": \"alien\", \"content\": \"Hi\"}]}"),
        (chat, &more("\"n\": 0")),
        (chat, &more("\"stream\": \"yes\"")),
        (chat, &more("\"temperature\": \"hot\"")),
        (chat, &more("\"max_tokens\": 1e300")),
        (chat, &more("\"tool_choice\": \"required\"")),
        (chat, &more("\"tools\": 5")),
        (chat, &more("\"response_format\": {\"type\": \"xml\"}")),
        (chat, &more("\"callwright\": {\"format\": \"/etc/passwd\"}")),
        (chat, &more("\"callwright\": {\"speed\": 3}")),
        (chat, &long),
        (chat, &deep),
        ("/v1/completions", "{}"),
        ("/v1/completions", "{\"prompt\": \"Hi\", \"echo\": \"yes\"}"),
        ("/v1/responses", "{\"input\": \"Hi\", \"previous_response_id\": \"resp_1\"}"),
        ("/v1/responses", "{\"input\": [{\"content\": \"Hi\"}]}"),
        ("/v1/responses", "{\"input\": [\"Hi\"]}"),
        ("/v1/responses", "{\"input\": \"Hi\", \"tools\": 5}"),
        ("/v1/responses", "{\"input\": \"Hi\", \"max_output_tokens\": \"x\"}"),
        ("/v1/responses", "{\"input\": \"Hi\", \"text\": {\"format\": {\"type\": \"xml\"}}}"),
        ("/v1/responses", "{\"input\": \"Hi\", \"instructions\": 5}"),
        ("/v1/responses", "{\"input\": \"Hi\", \"reasoning\": \"high\"}"),
        ("/v1/messages", "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}"),
        ("/v1/messages", "{\"messages\": 5, \"max_tokens\": 5}"),
        ("/v1/messages", "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"max_tokens\": \"x\"}"),
        ("/v1/messages", &more("\"max_tokens\": 5, \"system\": 5")),
        ("/v1/messages", &more("\"max_tokens\": 5, \"thinking\": \"on\"")),
        ("/v1/messages", &more("\"max_tokens\": 5, \"stop_sequences\": 5")),
        ("/v1/messages/none", "{}"),
        ("/api/chat", "{\"messages\": 5}"),
        ("/api/chat", "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"format\": 5}"),
        ("/api/chat", "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"options\": {\"top_p\": 5}}"),
        ("/api/chat", &more("\"options\": {\"num_predict\": \"x\"}")),
        ("/api/generate", "{}"),
        ("/api/generate", "{\"prompt\": \"Hi\", \"raw\": \"yes\"}"),
        ("/api/generate", "{\"prompt\": \"Hi\", \"system\": 5}"),
        ("/api/none", "{}"),
        ("/tokenize", "{}"),
        ("/nothing", "{}"),
        ("/health", "{}"),
    ] {
        let answer = server.send(path, body, &[]);
        let shown: String = body.chars().take(70).collect();
        let error = answer.json()["error"].take();
        let said = error["message"].as_str().or(error.as_str()).unwrap_or("(an answer)").to_owned();
        let form = match path {
            _ if said == "(an answer)" => true,
            path if path.starts_with("/v1/messages") => answer.json()["type"] == "error",
            path if path.starts_with("/api") => error.is_string(),
            _ => error["type"].is_string() && error.get("code").is_some(),
        };
        assert!(form, "{path}: {}", answer.text);
        table += &format!("{path} {shown}\n  {} {said}\n", answer.status);
    }
    insta::assert_snapshot!(table);
    // It still answers.
    assert_eq!(server.chat(&weather()).status, 200);
}

#[test]
fn web_pages_of_others_and_other_hosts_are_refused() {
    let server = Server::start(&["--cors", "http://app.example"]);
    let status = |headers: &[(&str, &str)]| {
        let answer = server.send("/v1/chat/completions", "{}", headers);
        (answer.status, answer.json()["error"]["code"].as_str().unwrap_or_default().to_owned())
    };
    let refused = |code: &str| (403, code.to_owned());
    let read = (400, "invalid_request".to_owned());
    assert_eq!(status(&[("host", "evil.example")]), refused("unknown_host"));
    assert_eq!(status(&[("host", "localhost:1234")]), read);
    assert_eq!(status(&[("origin", "http://evil.example")]), refused("origin_not_allowed"));
    assert_eq!(status(&[("origin", "null")]), refused("origin_not_allowed"));
    assert_eq!(status(&[("origin", "http://app.example")]), read);
    assert_eq!(status(&[("origin", &format!("http://{}", server.at))]), read);
    let own = server.send("/v1/chat/completions", "{}", &[("origin", "http://app.example")]);
    assert_eq!(own.header("access-control-allow-origin"), Some("http://app.example"));
    let plain = server.send("/v1/chat/completions", "{}", &[]);
    assert_eq!(plain.header("access-control-allow-origin"), None);
}

#[test]
fn a_flood_of_headers_is_refused_with_a_message() {
    let server = Server::start(&[]);
    let names: Vec<String> = (0..5000).map(|number| format!("x-{number}")).collect();
    let headers = |count: usize| names.iter().take(count).map(|name| (name.as_str(), "y")).collect::<Vec<_>>();
    assert_eq!(server.send("/tokenize", r#"{"content": "Hi"}"#, &headers(60)).status, 200);
    let refused = server.send("/tokenize", r#"{"content": "Hi"}"#, &headers(5000));
    assert_eq!(refused.status, 431);
    let message = refused.json()["error"]["message"].to_string();
    assert!(message.contains("headers are more than the 100 of a request"), "{message}");
}

#[test]
fn a_key_is_required_where_there_is_one() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("key");
    std::fs::write(&file, "secret-key\n").unwrap();
    let server = Server::start_in(home, &["--api-key-file", file.to_str().unwrap()]);
    let status = |headers: &[(&str, &str)]| server.send("/v1/chat/completions", "{}", headers).status;
    assert_eq!(status(&[]), 401);
    assert_eq!(status(&[("authorization", "Bearer wrong-key!")]), 401);
    assert_eq!(status(&[("authorization", "Bearer secret-key")]), 400);
    assert_eq!(status(&[("x-api-key", "secret-key")]), 400);
    assert_eq!(server.get("/health").status, 200);
    assert_eq!(server.get("/v1/models").status, 401);
    let messages = server.send("/v1/messages", "{}", &[]);
    assert_eq!(messages.json()["error"]["type"], "authentication_error");
}

#[test]
fn other_machines_are_not_served_without_a_key() {
    let home = tempfile::tempdir().unwrap();
    let output = program(home.path()).args(["serve", "--host", "0.0.0.0", "--port", "0"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        error,
        "error: other machines could use the server at 0.0.0.0 without an API key\nhint: give a key with \
         --api-key-file FILE, or --no-auth if everybody may use it\n"
    );
}

#[test]
fn ten_streams_at_a_time_are_what_each_is_alone() {
    let server = Server::start(&["--parallel", "4"]);
    let formats = ["delimited", "hermes", "mistral", "llama3", "delimited"];
    let cities = ["Paris", "Oslo", "Rome", "Lima", "Cairo"];
    let bodies: Vec<Value> = (0..10)
        .map(|number| {
            let (format, city) = (formats[number % 5], cities[number / 2]);
            json!({
                "messages": [{"role": "user", "content": format!("What's the weather in {city} tomorrow?")}],
                "tools": [tool(&format!("get_weather_{number}"), "Get the weather", &["city", "date"])],
                "stream": true, "callwright": {"format": format}, "max_tokens": 100,
            })
        })
        .collect();
    let alone: Vec<_> = bodies.iter().map(|body| added_up(&server.chat(body).events())).collect();
    assert!(alone.iter().filter(|(message, _)| message.get("tool_calls").is_some()).count() >= 4, "{alone:#?}");
    let together: Vec<_> = std::thread::scope(|scope| {
        let started: Vec<_> = bodies.iter().map(|body| scope.spawn(|| added_up(&server.chat(body).events()))).collect();
        started.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(together, alone);
}

#[test]
fn a_model_is_served_alike_by_its_path_and_by_its_name() {
    let home = tempfile::tempdir().unwrap();
    let [path, here, toml] = ["elsewhere.gguf", "here.gguf", "models.toml"].map(|name| home.path().join(name));
    for copy in [&path, &here] {
        std::fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/models/callwright-tiny.gguf"), copy).unwrap();
    }
    std::fs::write(&toml, "[[model]]\nname = \"mine\"\npath = \"here.gguf\"\ncall_threshold = 0.25\n").unwrap();
    let [path, toml] = [&path, &toml].map(|path| path.to_str().unwrap().to_owned());
    let server = Server::start_in(home, &["-m", "mine", "-m", &path, "--models", &toml]);
    let [by_name, by_path] = ["mine", "elsewhere"].map(|model| {
        let answer = server.chat(&with(&weather(), json!({"model": model, "seed": 1}))).json();
        let own = answer["callwright"].clone();
        (
            answer["choices"][0]["message"]["tool_calls"][0]["function"].clone(),
            own["decided"].clone(),
            own["notes"].clone(),
        )
    });
    assert_eq!(by_name.1, "call");
    assert_eq!(by_name.2[0]["message"], format!("the entry mine of {toml} applies"));
    assert_eq!(by_path, by_name);
}

#[test]
fn tokens_have_their_probabilities() {
    let server = Server::start(&[]);
    let body = with(&weather(), json!({"logprobs": true, "top_logprobs": 2}));
    let whole = server.chat(&body).json();
    let tokens = whole["choices"][0]["logprobs"]["content"].as_array().unwrap().clone();
    assert_eq!(tokens.len() as u64, whole["usage"]["completion_tokens"].as_u64().unwrap());
    let text: String = tokens.iter().map(|token| token["token"].as_str().unwrap()).collect();
    assert!(text.contains("get_weather") && text.contains("Beijing"), "{text}");
    let sampled: Vec<&Value> = tokens.iter().filter(|token| token["top_logprobs"] != json!([])).collect();
    assert!(!sampled.is_empty() && sampled.len() < tokens.len());
    for token in sampled {
        let top = token["top_logprobs"].as_array().unwrap();
        let logprobs: Vec<f64> = top.iter().map(|token| token["logprob"].as_f64().unwrap()).collect();
        assert!(logprobs.len() == 2 && logprobs[0] >= logprobs[1] && logprobs[0] <= 0.0, "{token}");
    }
    let events = server.chat(&with(&body, json!({"stream": true}))).events();
    let streamed: Vec<Value> = events
        .iter()
        .filter_map(|event| event["choices"].get(0)?["logprobs"]["content"].as_array())
        .flatten()
        .cloned()
        .collect();
    assert_eq!(streamed, tokens);
    let text = server.post("/v1/completions", &json!({"prompt": "Once", "max_tokens": 5, "logprobs": 1})).json();
    let logprobs = &text["choices"][0]["logprobs"];
    let joined: String = logprobs["tokens"].as_array().unwrap().iter().map(|token| token.as_str().unwrap()).collect();
    assert_eq!(text["choices"][0]["text"], joined);
}

/// Sends a request and returns the connection once its answer has begun.
pub(crate) fn begun(server: &Server, path: &str, body: &Value) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(&server.at).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let body = body.to_string();
    write!(stream, "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while !line.starts_with("data:") {
        line.clear();
        assert!(reader.read_line(&mut line).unwrap() > 0);
    }
    reader
}

#[test]
fn a_client_that_hangs_up_frees_its_place() {
    let server = Server::start(&["--parallel", "1"]);
    let answer = begun(&server, "/v1/completions", &endless());
    assert_eq!(server.running(), 1);
    drop(answer);
    let began = Instant::now();
    while server.running() > 0 {
        assert!(began.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(server.chat(&weather()).status, 200);
}

#[test]
fn a_full_queue_refuses_and_says_when_to_try_again() {
    let server = Server::start(&["--parallel", "1", "--queue", "0"]);
    let answer = begun(&server, "/v1/completions", &endless());
    let refused = server.chat(&weather());
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (429, &json!("queue_full")));
    assert!(refused.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    drop(answer);
}

#[test]
fn a_signal_lets_running_answers_end() {
    let mut server = Server::start(&["--grace", "0.3"]);
    let mut answer = begun(&server, "/v1/completions", &endless());
    server.signal();
    let mut rest = String::new();
    answer.read_to_string(&mut rest).unwrap();
    // It was ended, and says so.
    assert!(rest.contains("\"finish_reason\":\"cancelled\"") && rest.contains("data: [DONE]"), "{rest}");
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
    assert!(TcpStream::connect(&server.at).is_err());
}

#[test]
fn what_users_write_is_logged_only_where_that_is_asked_for() {
    for (options, logged) in [(&["--log-requests"][..], true), (&["-v"], false)] {
        let mut server = Server::start(options);
        server.chat(&weather());
        server.signal();
        let mut error = String::new();
        server.child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
        assert_eq!(error.contains("Beijing"), logged, "{error}");
    }
}

#[test]
fn a_time_limit_ends_an_answer_with_what_was_written() {
    let server = Server::start(&["--timeout", "0.5"]);
    let body = with(&endless(), json!({"stream": false, "max_tokens": 100_000}));
    let answer = server.post("/v1/completions", &body).json();
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    assert!(!answer["choices"][0]["text"].as_str().unwrap().is_empty());
}

#[test]
fn several_models_are_loaded_when_they_are_asked_for() {
    let home = tempfile::tempdir().unwrap();
    let first = std::fs::read_dir("models").unwrap().filter_map(Result::ok).map(|entry| entry.path());
    let gguf = first.into_iter().find(|path| path.extension().is_some_and(|kind| kind == "gguf")).unwrap();
    let copy = home.path().join("other.gguf");
    std::fs::copy(gguf, &copy).unwrap();
    let server = Server::start_in(home, &["-m", "bundled", "-m", copy.to_str().unwrap(), "--memory-budget", "12M"]);
    let loaded = || -> Vec<bool> {
        let models = server.get("/v1/models").json();
        models["data"].as_array().unwrap().iter().map(|model| model["loaded"].as_bool().unwrap()).collect()
    };
    assert_eq!(loaded(), [true, false]);
    let answer = server.chat(&with(&weather(), json!({"model": "other"}))).json();
    assert_eq!(answer["model"], "other");
    // Both do not fit.
    assert_eq!(loaded(), [false, true]);
    assert_eq!(server.chat(&with(&weather(), json!({"model": "bundled"}))).json()["model"], "bundled");
    let unknown = server.chat(&with(&weather(), json!({"model": "othr"})));
    assert_eq!(unknown.status, 404);
    let message = "This server has no model \"othr\". Did you mean other? It has: bundled, other";
    assert_eq!(unknown.json()["error"]["message"], message);
    assert!(server.home.path().exists());
}

#[test]
fn prompts_and_tokens_are_there_without_an_answer() {
    let server = Server::start(&[]);
    let tokens = server.post("/tokenize", &json!({"content": "Hello there"})).json();
    let text = server.post("/detokenize", &tokens).json();
    assert_eq!(text["content"], "Hello there");
    let prompt = server.post("/apply-template", &weather()).json()["prompt"].as_str().unwrap().to_owned();
    assert!(prompt.contains("get_weather") && prompt.contains("Beijing"), "{prompt}");
    let trace = server.chat(&with(&weather(), json!({"callwright": {"trace": true}}))).json();
    assert_eq!(trace["callwright"]["trace"]["prompt"], prompt);
    assert!(trace["callwright"]["trace"]["raw"].as_str().unwrap().contains("get_weather"));
    let metrics = server.get("/metrics").text;
    for line in [
        "callwright_answers_total{finish_reason=\"tool_calls\"} 1",
        "callwright_tool_calls_total{state=\"valid\"} 1",
        "callwright_requests_running{model=\"bundled\"} 0",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
    assert_eq!(server.get("/v1/models/bundled").json()["id"], "bundled");
}
