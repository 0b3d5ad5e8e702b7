//! Models that a server runs, against a scripted server.

use crate::engine::model_server::{Answer, ModelServer};
use crate::program::{Ran, callwright, run};
use serde_json::{Value, json};
use std::path::Path;

const TOOLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/weather.json");
const EXECUTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/weather.toml");
/// A call in the format delimited, in pieces as a server sends them.
const CALL: [&str; 7] = [
    "### TOOL_CALL",
    "_START ###\n",
    "{\"name\": \"get_weather\",",
    " \"arguments\": {\"city\":",
    " \"Beijing\"",
    "}}",
    "\n### TOOL_CALL_END ###",
];

fn ask(server: &ModelServer, more: &[&str]) -> Ran {
    let home = tempfile::tempdir().unwrap();
    ask_at(home.path(), &format!("openai:{}", server.url), &[&["--template", "chatml"], more].concat())
}

fn chat(server: &ModelServer, more: &[&str]) -> Ran {
    let home = tempfile::tempdir().unwrap();
    ask_at(home.path(), &format!("openai-chat:{}", server.url), more)
}

fn ask_at(home: &Path, model: &str, more: &[&str]) -> Ran {
    let mut command = callwright(home);
    command.env_remove("CALLWRIGHT_UPSTREAM_KEY").env("NO_PROXY", "*").env("XDG_STATE_HOME", home.join("state"));
    run(command.args(["run", "What's the weather in Beijing?", "-m", model]).args(more))
}

fn words(text: &'static str) -> Answer {
    Answer::Pieces(vec![text], "stop")
}

#[test]
fn a_server_completes_the_prompt_and_the_call_is_read_here() {
    let server = ModelServer::start([Answer::Pieces(CALL.to_vec(), "stop")]);
    let ran = ask(&server, &["--tools", TOOLS, "--output", "json"]);
    let answer: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(answer["messages"][1]["tool_calls"][0]["function"]["arguments"], r#"{"city":"Beijing"}"#);
    assert_eq!((&answer["usage"]["prompt_tokens"], &answer["usage"]["completion_tokens"]), (&json!(30), &json!(7)));
    let requests = server.requests();
    let prompt = requests[0]["prompt"].as_str().unwrap();
    assert!(prompt.contains("get_weather") && prompt.contains("<|im_start|>user\nWhat's the weather in Beijing?"));
    let sent = |key: &str| requests[0][key].clone();
    assert_eq!((sent("model"), sent("stream"), sent("max_tokens")), (json!("tiny"), json!(true), json!(1024)));
    // Markers are special tokens of many models.
    assert_eq!(sent("skip_special_tokens"), false);
    assert_eq!(requests.len(), 1, "nothing had to be corrected");
}

#[test]
fn text_from_outside_is_no_markup_on_a_server_either() {
    let server = ModelServer::start([words("Hello.")]);
    let home = tempfile::tempdir().unwrap();
    let messages = home.path().join("messages.json");
    std::fs::write(&messages, json!([{"role": "user", "content": "a<|im_end|>b"}]).to_string()).unwrap();
    let mut command = callwright(home.path());
    let model = format!("openai:{}", server.url);
    let ran = run(command
        .env("NO_PROXY", "*")
        .args(["run", "-m", &model, "--template", "chatml"])
        .args(["--messages".as_ref(), messages.as_os_str()]));
    assert_eq!((ran.code, ran.out.as_str()), (0, "Hello.\n"), "{}", ran.err);
    let requests = server.requests();
    assert!(requests[0]["prompt"].as_str().unwrap().contains("a<\u{2060}|im_end|>b"), "{}", requests[0]["prompt"]);
}

#[test]
fn what_does_not_fit_the_grammar_is_written_anew_from_where_it_fits() {
    let wrong = ["### TOOL_CALL_START ###\n{\"name\": \"get_weather\", \"arguments\": {\"town\"", ": \"Beijing\"}}"];
    let rest = ["Beijing\"", "}}\n### TOOL_CALL_END ###"];
    let server = ModelServer::start([Answer::Pieces(wrong.to_vec(), "stop"), Answer::Pieces(rest.to_vec(), "stop")]);
    let ran = ask(&server, &["--tools", TOOLS]);
    assert_eq!(ran.out, "→ get_weather {\"city\": \"Beijing\"}\n", "{}", ran.err);
    let prompts: Vec<String> =
        server.requests().iter().map(|request| request["prompt"].as_str().unwrap().to_owned()).collect();
    let added = prompts[1].strip_prefix(&prompts[0]).unwrap();
    assert_eq!(added, "### TOOL_CALL_START ###\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"");
}

/// What the model would have written in place of what does not fit is not known, so nothing is made up.
#[test]
fn no_value_is_invented() {
    let tools = json!([{"name": "set", "parameters": {"type": "object", "required": ["unit", "n"], "properties": {
        "unit": {"enum": ["celsius", "kelvin"]}, "n": {"type": "integer", "maximum": 100}, "s": {"type": "string"}}}}]);
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("tools.json");
    std::fs::write(&file, tools.to_string()).unwrap();
    let asked = |arguments: &'static str| {
        let text = format!(
            "### TOOL_CALL_START ###\n{{\"name\": \"set\", \"arguments\": {arguments}}}\n### TOOL_CALL_END ###"
        );
        let server = ModelServer::start([Answer::Pieces(vec![text.leak()], "stop")]);
        let ran = ask(&server, &["--tools", file.to_str().unwrap(), "--output", "json"]);
        let answer: Value = serde_json::from_str(&ran.out).unwrap();
        assert_eq!(server.requests().len(), 1, "{arguments}: nothing had to be written here");
        answer
    };
    let arguments = |answer: &Value| -> Value {
        let text = answer["messages"][1]["tool_calls"][0]["function"]["arguments"].as_str().unwrap().to_owned();
        serde_json::from_str(&text).unwrap()
    };
    // What the parser can repair, it repairs.
    let repaired = asked(r#"{"unit": "kelvin", "n": "42"}"#);
    assert_eq!(arguments(&repaired), json!({"unit": "kelvin", "n": 42}));
    let multiline = asked("{\"unit\": \"kelvin\", \"n\": 1, \"s\": \"one\ntwo\"}");
    assert_eq!(arguments(&multiline)["s"], "one\ntwo");
    // Otherwise the call is not valid.
    for (wrong, kept) in [
        (r#"{"unit": "Fahrenheit", "n": 1}"#, json!({"unit": "Fahrenheit", "n": 1})),
        (r#"{"unit": "kelvin", "n": 250}"#, json!({"unit": "kelvin", "n": 250})),
    ] {
        let answer = asked(wrong);
        assert_eq!(arguments(&answer), kept);
        let notes = answer["diagnostics"].to_string();
        assert!(notes.contains("does not fit the grammar") && notes.contains("\"problem\""), "{notes}");
    }
}

/// A server that says what else its model would write lets the grammar choose, as it does beside a model.
#[test]
fn the_likeliest_token_that_fits_replaces_what_does_not() {
    let tools = json!([{"name": "set", "parameters": {"type": "object", "required": ["unit", "n"], "properties": {
        "unit": {"enum": ["celsius", "kelvin"]}, "n": {"type": "integer", "maximum": 100}}}}]);
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("tools.json");
    std::fs::write(&file, tools.to_string()).unwrap();
    let wrong = vec!["### TOOL_CALL_START ###\n{\"name\": \"set\", \"arguments\": {\"unit\": ", "\"Fahr", "enheit\""];
    let after_unit = vec!["vin\", \"n\": ", "250", "}"];
    let server = ModelServer::start([
        Answer::Pieces(wrong, "stop"),
        Answer::Pieces(after_unit, "stop"),
        Answer::Pieces(vec!["5", "}}"], "stop"),
        // The end is left to the grammar.
        Answer::Pieces(vec!["\n### TOOL_CALL_END ###"], "stop"),
    ])
    .with_likeliest(20, [json!({"Fahr": -0.1, "kel": -2.5, "cel": -3.0}), json!({"250": -0.5, "2": -1.0, "25": -0.9})]);
    let ran = ask(&server, &["--tools", file.to_str().unwrap(), "--temperature", "0"]);
    assert_eq!(ran.out, "→ set {\"unit\": \"kelvin\", \"n\": 25}\n", "{}", ran.err);
}

/// A server that gives all of its vocabulary is asked for it where none of the likeliest tokens fits.
#[test]
fn an_unlikely_token_is_chosen_where_no_other_fits() {
    let tools = json!([{"name": "set", "parameters": {"type": "object", "required": ["on"], "properties": {
        "on": {"type": "boolean"}}}}]);
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("tools.json");
    std::fs::write(&file, tools.to_string()).unwrap();
    let server = ModelServer::start([
        Answer::Pieces(
            vec!["### TOOL_CALL_START ###\n{\"name\": \"set\", \"arguments\": {\"on\": ", "22", "}}"],
            "stop",
        ),
        Answer::Pieces(vec!["}}\n### TOOL_CALL_END ###"], "stop"),
    ])
    .with_likeliest(1 << 20, [json!({"22": -0.1, "1": -3.0}), json!({"22": -0.1, "true": -19.5, "false": -18.5})]);
    let ran = ask(&server, &["--tools", file.to_str().unwrap(), "--temperature", "0"]);
    assert_eq!(ran.out, "→ set {\"on\": false}\n", "{}", ran.err);
}

/// A model that ends within a string goes on with what it would have written otherwise.
#[test]
fn an_end_that_does_not_fit_is_replaced_too() {
    let begun = "### TOOL_CALL_START ###\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bei";
    let server = ModelServer::start([
        Answer::Pieces(vec![begun], "stop"),
        Answer::Pieces(vec!["\"}}\n### TOOL_CALL_END ###"], "stop"),
    ])
    .with_likeliest(5, [json!({"": -0.1, "jing": -1.5})]);
    let ran = ask(&server, &["--tools", TOOLS, "--temperature", "0"]);
    assert_eq!(ran.out, "→ get_weather {\"city\": \"Beijing\"}\n", "{}", ran.err);
}

#[test]
fn a_call_that_the_server_ends_in_a_string_is_incomplete() {
    let cut = "### TOOL_CALL_START ###\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Zü";
    let server = ModelServer::start([words(cut)]);
    let ran = ask(&server, &["--tools", TOOLS, "--output", "json"]);
    let answer: Value = serde_json::from_str(&ran.out).unwrap();
    assert!(answer["messages"][1].get("tool_calls").is_none(), "{answer}");
    assert_eq!(answer["messages"][1]["invalid_tool_calls"][0]["name"], "get_weather", "{answer}");
}

#[test]
fn an_answer_that_ends_abnormally_is_an_error() {
    for reason in ["content_filter", "abort"] {
        let server = ModelServer::start([Answer::Pieces(CALL.to_vec(), reason)]);
        let ran = ask(&server, &["--tools", EXECUTED, "--execute"]);
        assert!(
            ran.code == 1 && ran.err.contains(&format!("ended the answer: finish_reason \"{reason}\"")),
            "{}",
            ran.err
        );
        assert!(!ran.out.contains('←'), "{}", ran.out);
    }
    let server =
        ModelServer::start([Answer::Body("text/event-stream", "event: error\ndata: {\"message\": \"boom\"}\n\n")]);
    assert!(ask(&server, &[]).err.contains("reports: boom"));
}

#[test]
fn in_chat_mode_calls_without_an_index_are_distinguished() {
    let call = |id: &str, city: &str| {
        let function = json!({"name": "get_weather", "arguments": format!("{{\"city\": \"{city}\"}}")});
        json!({"tool_calls": [{"id": id, "function": function}]})
    };
    let numbered = |id: &str, city: &str| {
        let mut delta = call(id, city);
        delta["tool_calls"][0]["index"] = json!(0);
        delta
    };
    for deltas in [
        vec![call("a", "Oslo"), call("b", "Rome")],
        vec![numbered("a", "Oslo"), numbered("b", "Rome")],
        vec![call("", "Oslo"), call("", "Rome")],
    ] {
        let server = ModelServer::start([Answer::Deltas(deltas, "tool_calls")]);
        let ran = chat(&server, &["--tools", TOOLS]);
        assert_eq!(ran.out, "→ get_weather {\"city\": \"Oslo\"}\n→ get_weather {\"city\": \"Rome\"}\n", "{}", ran.err);
    }
}

#[test]
fn in_chat_mode_older_and_rarer_shapes_are_read() {
    let old = json!({"function_call": {"name": "get_weather", "arguments": "{\"city\": \"Oslo\"}"}});
    let server = ModelServer::start([
        Answer::Deltas(vec![old], "function_call"),
        Answer::Deltas(vec![json!({"content": [{"type": "text", "text": "Hello."}]})], "stop"),
        Answer::Deltas(vec![json!({"refusal": "I cannot."})], "stop"),
    ]);
    assert_eq!(chat(&server, &["--tools", TOOLS]).out, "→ get_weather {\"city\": \"Oslo\"}\n");
    assert_eq!(chat(&server, &[]).out, "Hello.\n");
    assert_eq!(chat(&server, &[]).out, "I cannot.\n");
}

#[test]
fn without_a_constraint_the_text_is_taken_as_it_comes() {
    let wrong =
        "### TOOL_CALL_START ###\n{\"name\": \"get_weather\", \"arguments\": {\"town\": 1}}\n### TOOL_CALL_END ###";
    let server = ModelServer::start([words(wrong)]);
    let ran = ask(&server, &["--tools", TOOLS, "--constrain", "off"]);
    assert!(ran.out.contains("\"town\": 1") && ran.err.contains("city"), "{} {}", ran.out, ran.err);
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn a_required_call_needs_no_support_by_the_server() {
    let rest = [" \"get_weather\", \"arguments\": {\"city\": \"Beijing\"}}\n### TOOL_CALL_END ###"];
    let server =
        ModelServer::start([Answer::Pieces(rest.to_vec(), "stop"), words("Beijing\"}}\n### TOOL_CALL_END ###")]);
    let ran = ask(&server, &["--tools", TOOLS, "--tool-choice", "required"]);
    assert_eq!(ran.out, "→ get_weather {\"city\": \"Beijing\"}\n", "{}", ran.err);
    let prompt = server.requests()[0]["prompt"].as_str().unwrap().to_owned();
    assert!(prompt.contains("### TOOL_CALL_START ###\n{\"name\":"), "{prompt}");
}

#[test]
fn the_loop_of_calls_and_results_runs_against_a_server() {
    let answer = words("It is sunny.");
    let server = ModelServer::start([Answer::Pieces(CALL.to_vec(), "stop"), answer.clone()]);
    let ran = ask(&server, &["--tools", EXECUTED, "--execute"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.ends_with("It is sunny.\n") && ran.out.contains("← get_weather"), "{}", ran.out);
    assert!(server.requests()[1]["prompt"].as_str().unwrap().contains("\"sky\": "));
}

#[test]
fn an_answer_that_the_network_cuts_is_an_error_and_nothing_of_it_runs() {
    for cut in [Answer::Cut(CALL[..5].to_vec()), Answer::Cut(Vec::new())] {
        let server = ModelServer::start([cut]);
        let ran = ask(&server, &["--tools", EXECUTED, "--execute"]);
        assert_eq!(ran.code, 1, "{} {}", ran.out, ran.err);
        assert!(ran.err.contains("in the middle of an answer"), "{}", ran.err);
        assert!(!ran.out.contains('←'), "{}", ran.out);
    }
}

#[test]
fn a_call_that_the_servers_limit_cuts_is_incomplete() {
    let server = ModelServer::start([Answer::Pieces(CALL[..5].to_vec(), "length"), words("I cannot tell.")]);
    let ran = ask(&server, &["--tools", TOOLS, "--output", "json"]);
    let answer: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(answer["finish_reason"], "length", "{answer}");
    assert!(answer["messages"][1].get("tool_calls").is_none(), "{answer}");
}

/// It may have ended at a limit, so what is open then is not closed.
#[test]
fn an_answer_without_a_finish_reason_counts_as_cut_off() {
    for (pieces, calls) in [(&CALL[..], 1), (&CALL[..5], 0)] {
        let events: String =
            pieces.iter().map(|piece| format!("data: {}\n\n", json!({"choices": [{"text": piece}]}))).collect();
        let body = events + "data: null\n\ndata: [DONE]\n\n";
        let server = ModelServer::start([Answer::Body("text/event-stream", body.leak())]);
        let ran = ask(&server, &["--tools", TOOLS, "--constrain", "off", "--output", "json"]);
        let answer: Value = serde_json::from_str(&ran.out).unwrap();
        assert_eq!(answer["finish_reason"], "length", "{answer}");
        let found = answer["messages"][1]["tool_calls"].as_array().map_or(0, Vec::len);
        assert!(ran.err.contains("cut off by the server, or it gave no finish reason"), "{}", ran.err);
        assert_eq!(found, calls, "{answer}");
    }
}

#[test]
fn a_busy_server_is_asked_again() {
    let busy = [Answer::Status(429, "retry-after: 0\r\n"), Answer::Status(503, "retry-after: 0\r\n")];
    let server = ModelServer::start(busy.into_iter().chain([words("Hello.")]));
    let ran = ask(&server, &[]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "Hello.\n"), "{}", ran.err);
    assert_eq!(server.requests().len(), 3);
}

#[test]
fn a_server_that_stays_busy_is_an_error() {
    let server = ModelServer::start(std::iter::repeat_n(Answer::Status(429, "retry-after: 0\r\n"), 9));
    let ran = ask(&server, &[]);
    let wanted = format!("error: {}/completions refused with status 429: not now (5 attempts)\n", server.url);
    assert_eq!(ran.code, 1);
    assert!(ran.err.starts_with(&wanted), "{}", ran.err);
    assert!(ran.err.contains("hint: the server has too much to do"), "{}", ran.err);
    assert_eq!(server.requests().len(), 5);
}

#[test]
fn a_request_that_the_server_refuses_is_not_repeated() {
    let server = ModelServer::start([Answer::Status(400, "")]);
    let ran = ask(&server, &[]);
    assert!(ran.code == 1 && ran.err.contains("refused with status 400: not now"), "{}", ran.err);
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn what_is_no_stream_of_events_is_an_error_that_shows_it() {
    let page = "<html><body>Welcome to nginx</body></html>";
    for (answer, wanted) in [
        (Answer::Body("text/html", page), "content of type text/html, which is no stream of events: \"<html>"),
        (Answer::Body("text/event-stream", "data: {oops\n\n"), "an event that is no JSON: \"{oops\""),
        (
            Answer::Body("text/event-stream", "data: {\"error\": {\"message\": \"out of memory\"}}\n\n"),
            "reports: out of memory",
        ),
        (Answer::Body("text/event-stream", ": nothing\n\n"), "in the middle of an answer"),
    ] {
        let server = ModelServer::start([answer]);
        let ran = ask(&server, &[]);
        assert!(ran.code == 1 && ran.err.contains(wanted), "{wanted}: {}", ran.err);
    }
}

#[test]
fn a_server_that_does_not_stream_may_answer_with_the_whole() {
    let whole = r#"{"choices": [{"text": "Hello.", "finish_reason": "stop"}]}"#;
    let server = ModelServer::start([Answer::Body("application/json", whole)]);
    let ran = ask(&server, &[]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "Hello.\n"), "{}", ran.err);
}

#[test]
fn a_server_that_falls_silent_is_an_error_after_its_timeout() {
    let server = ModelServer::start([Answer::Silent(vec!["Hel"])]);
    let home = tempfile::tempdir().unwrap();
    let models = models(home.path(), &server.url, "template = \"chatml\"\ntimeout = 1");
    let ran = ask_at(home.path(), "mine", &["--models", &models]);
    assert!(ran.code == 1 && ran.err.contains("has sent nothing for 1 s"), "{}", ran.err);
    assert!(ran.err.contains("hint: `timeout` in models.toml"), "{}", ran.err);
}

#[test]
fn what_an_answer_costs_is_in_its_usage() {
    let server = ModelServer::start([words("Hello.")]);
    let home = tempfile::tempdir().unwrap();
    let models = models(home.path(), &server.url, "template = \"chatml\"\ncost = { prompt = 2, answer = 10 }");
    let ran = ask_at(home.path(), "mine", &["--models", &models, "--output", "json"]);
    let answer: Value = serde_json::from_str(&ran.out).unwrap();
    // 30 tokens of the prompt and 7 of the answer.
    assert_eq!(answer["usage"]["cost"], 0.00013, "{answer}");
}

#[test]
fn of_many_tools_a_model_on_a_server_sees_all_unless_some_are_asked_for() {
    let home = tempfile::tempdir().unwrap();
    let tools: Vec<Value> = (1..=13).map(|count| json!({"name": format!("get_{count:02}")})).collect();
    let path = home.path().join("tools.json");
    std::fs::write(&path, json!(tools).to_string()).unwrap();
    for (options, shown) in [(&[][..], 13), (&["--select-tools", "3"], 3)] {
        let server = ModelServer::start([words("Hello.")]);
        let ran = ask(&server, &[&["--tools", path.to_str().unwrap()], options].concat());
        let prompt = server.requests()[0]["prompt"].as_str().unwrap().to_owned();
        let seen = (1..=13).filter(|count| prompt.contains(&format!("get_{count:02}"))).count();
        assert_eq!((ran.code, seen, ran.err.contains("too many")), (0, shown, false), "{ran:?}");
    }
}

/// The names of spans, and a value of one.
fn spans(document: &Value) -> Vec<&Value> {
    document["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().iter().collect()
}

fn attribute<'a>(span: &'a Value, key: &str) -> &'a Value {
    let attributes = span["attributes"].as_array().unwrap();
    attributes.iter().find(|one| one["key"] == key).map_or(&Value::Null, |one| &one["value"])
}

#[test]
fn a_run_is_one_trace() {
    let home = tempfile::tempdir().unwrap();
    let script = |request: &Value| match request["messages"].as_array().unwrap().len() {
        1 => Answer::Deltas(vec![delta(0, "get_weather", "{\"city\": \"Oslo\"}")], "tool_calls"),
        _ => Answer::Deltas(vec![json!({"content": "Sunny."})], "stop"),
    };
    let server = ModelServer::start([]).answering(script);
    let model = format!("openai-chat:{}", server.url);
    let tools = home.path().join("tools.toml");
    let text = std::fs::read_to_string(EXECUTED).unwrap();
    let run_as = "command = [\"echo\", \"21\"]";
    let text = text
        .replace("command = [\"./tools/weather.sh\"]", run_as)
        .replace("effect = \"read\"", "effect = \"destructive\"");
    assert!(text.contains(run_as) && text.contains("destructive"));
    std::fs::write(&tools, text).unwrap();
    let files = ["trace.json", "run.jsonl"].map(|name| home.path().join(name).display().to_string());
    let collector = server.url.strip_suffix("/v1").unwrap();
    let options = [
        "--tools",
        tools.to_str().unwrap(),
        "--execute",
        "--trace",
        &files[0],
        "--otlp",
        collector,
        "--stats",
        "--journal",
        &files[1],
    ];
    let paused = ask_at(home.path(), &model, &options);
    assert_eq!(paused.code, 4, "{paused:?}");
    let read = || -> Value { serde_json::from_str(&std::fs::read_to_string(&files[0]).unwrap()).unwrap() };
    let first = read();
    assert_eq!(server.requests().last().unwrap(), &first, "the collector gets what the file has");
    let all = spans(&first);
    assert_eq!(all.len(), 2, "{first}");
    let (chat, root) = (all[0], all[1]);
    assert!(chat["name"].as_str().unwrap().starts_with("chat ") && root["name"] == "invoke_agent", "{first}");
    assert!(chat["parentSpanId"] == root["spanId"] && chat["traceId"] == root["traceId"], "{first}");
    assert!(root.get("parentSpanId").is_none() && root["traceId"].as_str().unwrap().len() == 32, "{first}");
    assert_eq!(attribute(chat, "gen_ai.usage.input_tokens"), &json!({"intValue": "30"}));
    assert_eq!(attribute(chat, "gen_ai.usage.output_tokens"), &json!({"intValue": "7"}));
    let reasons = json!({"arrayValue": {"values": [{"stringValue": "tool_calls"}]}});
    assert_eq!(attribute(chat, "gen_ai.response.finish_reasons"), &reasons);
    assert_eq!(attribute(root, "callwright.status"), &json!({"stringValue": "pending"}));
    let approval =
        |event: &Value| (event["name"].clone(), attribute(event, "callwright.decision")["stringValue"].clone());
    assert_eq!(approval(&root["events"][0]), (json!("approval"), json!("pending")));

    let mut resume = callwright(home.path());
    let resumed = run(resume.env("NO_PROXY", "*").args(["resume", &files[1], "--yes"]));
    assert!(resumed.code == 0 && resumed.out.ends_with("Sunny.\n"), "{resumed:?}");
    assert!(resumed.err.contains("TOKENS/S") && resumed.err.contains(" 30 "), "{}", resumed.err);
    let second = read();
    let names: Vec<&str> = spans(&second).iter().map(|span| span["name"].as_str().unwrap()).collect();
    assert!(names[1..3] == ["invoke_agent", "execute_tool get_weather"] && names.len() == 5, "{names:?}");
    let tool = spans(&second)[2];
    assert_eq!(attribute(tool, "gen_ai.tool.name"), &json!({"stringValue": "get_weather"}));
    assert!(attribute(tool, "gen_ai.tool.call.id")["stringValue"].is_string(), "{tool}");
    let number = |span: &Value, key: &str| span[key].as_str().unwrap().parse::<u64>().unwrap();
    for span in spans(&second) {
        assert!(number(span, "startTimeUnixNano") <= number(span, "endTimeUnixNano"), "{span}");
    }
    assert_eq!(approval(&spans(&second)[4]["events"][0]), (json!("approval"), json!("assumed")));
    assert!(!second.to_string().contains("Oslo") && !second.to_string().contains("Sunny"), "no text is in the trace");
}

#[test]
fn a_collector_that_is_not_there_is_a_note() {
    let server = ModelServer::start([words("Hello.")]);
    let ran = ask(&server, &["--otlp", "http://127.0.0.1:1"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "Hello.\n"), "{ran:?}");
    assert!(
        ran.err.contains("note: the spans of the run were not taken: cannot reach http://127.0.0.1:1/v1/traces"),
        "{}",
        ran.err
    );
    let wrong = ask(&server, &["--otlp", "localhost"]);
    assert!(wrong.code == 2 && wrong.err.contains("not an address that begins with http"), "{wrong:?}");
    let wrong = ask(&server, &["--trace", "/no/such/folder/trace.json"]);
    assert!(wrong.code == 2 && wrong.err.contains("cannot write /no/such/folder/trace.json"), "{wrong:?}");
}

#[test]
fn a_fallback_model_on_a_server_needs_its_key_before_anything_is_sent() {
    let local = ModelServer::start([words("Hello.")]);
    let home = tempfile::tempdir().unwrap();
    let models = models(home.path(), "http://127.0.0.1:1/v1", "api_key_env = \"MY_KEY\"");
    let options = ["--models", &models, "--tools", EXECUTED, "--execute", "--fallback-tool-models", "mine"];
    let ran = ask(&local, &options);
    assert!(ran.code == 2 && ran.err.contains("the environment variable MY_KEY is not set"), "{}", ran.err);
    assert!(local.requests().is_empty());
}

/// A models.toml with the model `mine`.
fn models(home: &Path, url: &str, more: &str) -> String {
    let path = home.join("models.toml");
    std::fs::write(&path, format!("[[model]]\nname = \"mine\"\nurl = \"{url}\"\n{more}\n")).unwrap();
    path.display().to_string()
}

#[test]
fn a_server_that_is_not_there_is_an_error_with_its_address() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let home = tempfile::tempdir().unwrap();
    let ran = ask_at(home.path(), &format!("openai:http://127.0.0.1:{port}/v1"), &[]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.starts_with(&format!("error: cannot reach http://127.0.0.1:{port}/v1/models: ")), "{}", ran.err);
    assert!(ran.err.contains("hint: is the server running"), "{}", ran.err);
}

#[test]
fn a_server_without_a_certificate_is_not_trusted() {
    let server = ModelServer::start([]);
    let home = tempfile::tempdir().unwrap();
    let ran = ask_at(home.path(), &format!("openai:{}", server.url.replace("http:", "https:")), &[]);
    assert!(ran.code == 1 && ran.err.contains("cannot reach https://"), "{}", ran.err);
}

#[test]
fn the_key_comes_from_the_environment() {
    let server = ModelServer::start([words("Hello.")]).with_key("s3cret");
    let home = tempfile::tempdir().unwrap();
    let named = models(home.path(), &server.url, "template = \"chatml\"\napi_key_env = \"MY_KEY\"");
    let missing = ask_at(home.path(), "mine", &["--models", &named]);
    assert_eq!(missing.code, 2);
    let wanted = format!("error: openai:{}: the environment variable MY_KEY is not set\n", server.url);
    assert!(missing.err.starts_with(&wanted), "{}", missing.err);

    let wrong = ask(&server, &[]);
    assert!(wrong.err.contains("refused with status 401: wrong key"), "{}", wrong.err);
    assert!(wrong.err.contains("hint: set CALLWRIGHT_UPSTREAM_KEY to the server's key"), "{}", wrong.err);

    let mut command = callwright(home.path());
    let model = format!("openai:{}", server.url);
    let command = command.env("CALLWRIGHT_UPSTREAM_KEY", "s3cret").env("NO_PROXY", "*");
    let ran = run(command.args(["run", "Hi", "-m", &model, "--template", "chatml"]));
    assert_eq!((ran.code, ran.out.as_str()), (0, "Hello.\n"), "{}", ran.err);
    assert!(!ran.err.contains("s3cret"));
}

#[test]
fn a_model_that_the_server_does_not_have_is_named() {
    let server = ModelServer::start([]).with_models(&["qwen3-8b", "llama3-8b"]);
    let home = tempfile::tempdir().unwrap();
    let ran = |model: &str| ask_at(home.path(), &format!("openai:{}{model}", server.url), &["--template", "chatml"]);
    let misspelt = ran("#qwen3-8");
    assert_eq!(misspelt.code, 2);
    assert!(misspelt.err.contains("has no model \"qwen3-8\""), "{}", misspelt.err);
    assert!(misspelt.err.contains("hint: did you mean \"qwen3-8b\"?"), "{}", misspelt.err);
    let unnamed = ran("");
    assert!(unnamed.err.contains("has several models"), "{}", unnamed.err);
    assert!(unnamed.err.contains("hint: name one of them after #: qwen3-8b, llama3-8b"), "{}", unnamed.err);
}

#[test]
fn adapters_are_the_servers_own() {
    let server = ModelServer::start([]);
    let ran = ask(&server, &["--lora", "adapter.gguf"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("a LoRA adapter is loaded by the server that runs the model"), "{}", ran.err);
}

#[test]
fn a_server_that_does_not_say_its_template_needs_one() {
    let server = ModelServer::start([]);
    let home = tempfile::tempdir().unwrap();
    let ran = ask_at(home.path(), &format!("openai:{}", server.url), &[]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("does not say how its model's prompts are written"), "{}", ran.err);
    assert!(ran.err.contains("--template") && ran.err.contains("openai-chat:"), "{}", ran.err);
}

/// Deltas of a chat.
fn delta(index: u64, name: &str, arguments: &str) -> Value {
    match name {
        "" => json!({"tool_calls": [{"index": index, "function": {"arguments": arguments}}]}),
        name => json!({"tool_calls": [{"index": index, "id": format!("call_{index}"), "type": "function",
            "function": {"name": name, "arguments": arguments}}]}),
    }
}

#[test]
fn in_chat_mode_the_servers_calls_are_taken() {
    let deltas = vec![
        json!({"role": "assistant", "content": null}),
        json!({"reasoning_content": "They ask for"}),
        json!({"reasoning_content": " two cities."}),
        json!({"content": "I look."}),
        delta(0, "get_weather", ""),
        delta(1, "get_weather", ""),
        delta(0, "", "{\"city\": \"Beijing\"}"),
        delta(1, "", "{\"city\": "),
        delta(1, "", "\"Oslo\"}"),
    ];
    let server = ModelServer::start([
        Answer::Deltas(deltas, "tool_calls"),
        Answer::Deltas(vec![json!({"content": "Sunny."})], "stop"),
    ]);
    let ran = chat(&server, &["--tools", EXECUTED, "--execute", "--output", "json"]);
    let answer: Value = serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{} {}", ran.out, ran.err));
    let message = &answer["messages"][1];
    assert_eq!(
        (&message["content"], &message["reasoning_content"]),
        (&json!("I look."), &json!("They ask for two cities."))
    );
    let calls: Vec<(&str, &str)> = message["tool_calls"]
        .as_array()
        .unwrap()
        .iter()
        .map(|call| (call["id"].as_str().unwrap(), call["function"]["arguments"].as_str().unwrap()))
        .collect();
    assert_eq!(calls, [("call_0", r#"{"city":"Beijing"}"#), ("call_1", r#"{"city":"Oslo"}"#)]);
    let requests = server.requests();
    assert_eq!(requests[0]["tools"][0]["function"]["name"], "get_weather");
    assert_eq!(requests[0]["tool_choice"], "auto");
    let history = requests[1]["messages"].as_array().unwrap();
    assert_eq!(history[1]["tool_calls"][1]["function"]["arguments"], r#"{"city":"Oslo"}"#);
    assert_eq!((&history[2]["role"], &history[2]["tool_call_id"]), (&json!("tool"), &json!("call_0")));
}

#[test]
fn in_chat_mode_a_call_that_is_cut_off_is_incomplete() {
    for arguments in ["", "{\"city\": ", "{\"city\": \"Bei", "{\"city\": \"x}", "{\"city\": {\"x\": 1}"] {
        let server = ModelServer::start([Answer::Deltas(vec![delta(0, "get_weather", arguments)], "length")]);
        let ran = chat(&server, &["--tools", TOOLS, "--output", "json"]);
        let answer: Value = serde_json::from_str(&ran.out).unwrap();
        assert!(answer["messages"][1].get("tool_calls").is_none(), "{arguments}: {answer}");
        assert_eq!(answer["messages"][1]["invalid_tool_calls"][0]["name"], "get_weather", "{arguments}: {answer}");
    }
}

#[test]
fn in_chat_mode_a_call_that_the_server_did_not_read_is_reported() {
    let text = "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>";
    let server = ModelServer::start([Answer::Deltas(vec![json!({"content": text})], "stop")]);
    let ran = chat(&server, &["--tools", TOOLS]);
    assert_eq!(ran.out, "→ get_weather {\"city\": \"Oslo\"}\n", "{}", ran.err);
    assert!(ran.err.contains("hermes"), "{}", ran.err);
}

#[test]
fn in_chat_mode_the_request_names_the_required_call() {
    let deltas = vec![delta(0, "get_weather", "{\"city\": \"Oslo\"}")];
    let server = ModelServer::start([Answer::Deltas(deltas.clone(), "tool_calls"), Answer::Deltas(deltas, "stop")]);
    for (choice, sent) in [
        ("required", json!("required")),
        ("get_weather", json!({"type": "function", "function": {"name": "get_weather"}})),
    ] {
        let ran = chat(&server, &["--tools", TOOLS, "--tool-choice", choice]);
        assert_eq!(ran.out, "→ get_weather {\"city\": \"Oslo\"}\n", "{}", ran.err);
        assert_eq!(server.requests().last().unwrap()["tool_choice"], sent);
    }
}

#[test]
fn in_chat_mode_the_server_writes_the_prompt() {
    let server = ModelServer::start([]);
    for option in ["--template", "--format"] {
        let ran = chat(&server, &[option, if option == "--template" { "chatml" } else { "hermes" }]);
        assert_eq!(ran.code, 2);
        assert!(ran.err.contains("in chat mode the server writes the prompt and reads the calls"), "{}", ran.err);
    }
}

#[test]
fn an_end_of_turn_that_the_server_passes_on_as_text_ends_the_answer() {
    let server =
        ModelServer::start([Answer::Pieces(vec!["Hello.", "<|im_end|>", "\n<|im_start|>user\nAnd?"], "length")]);
    let ran = ask(&server, &[]);
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "Hello.\n", ""));
}

#[test]
fn a_threshold_cannot_be_found_on_a_server() {
    let server = ModelServer::start([]);
    let home = tempfile::tempdir().unwrap();
    let mut command = callwright(home.path());
    let model = format!("openai:{}", server.url);
    let ran = run(command.env("NO_PROXY", "*").args(["bench", "calibrate", "-m", &model, "--template", "chatml"]));
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("the probability of a call needs the model's logits"), "{}", ran.err);
}

#[test]
fn options_that_need_logits_are_named() {
    let server = ModelServer::start([words("Hello.")]);
    let ran = ask(&server, &["--tools", TOOLS, "--call-threshold", "0.5"]);
    assert!(ran.err.contains("a server does not send what is needed for --call-threshold"), "{}", ran.err);
    // Without a limit, the context is one.
    let server = ModelServer::start([words("Hello.")]);
    ask(&server, &["-n", "-1"]);
    assert!(server.requests()[0]["max_tokens"].as_u64().unwrap() < 4096, "{}", server.requests()[0]["max_tokens"]);
}

#[test]
fn a_benchmark_reports_what_its_answers_cost() {
    let server = ModelServer::start([words("Hello."), words("Hello.")]);
    let home = tempfile::tempdir().unwrap();
    let suite = home.path().join("suite.jsonl");
    let case =
        |id: &str| json!({"id": id, "messages": [{"role": "user", "content": "Hi"}], "tools": [], "expected": []});
    std::fs::write(&suite, format!("{}\n{}\n", case("one"), case("two"))).unwrap();
    let models = models(home.path(), &server.url, "template = \"chatml\"\ncost = { prompt = 2, answer = 10 }");
    let out = home.path().join("out");
    let mut command = callwright(home.path());
    let ran = run(command.env("NO_PROXY", "*").args(["bench", "-m", "mine", "--models", &models, "--suite"]).args([
        &suite,
        Path::new("--out"),
        &out,
    ]));
    assert_eq!(ran.code, 0, "{}", ran.err);
    let report: Value = serde_json::from_slice(&std::fs::read(out.join("report.json")).unwrap()).unwrap();
    let cost = &report["configurations"][0]["cost"];
    // 30 tokens of each prompt and 7 of each answer.
    assert_eq!(*cost, json!({"total": 0.00026, "per_answer": 0.00013, "per_correct": 0.00013}));
    let shown = "| mine | 0.000260 | 0.000130 | 0.000130 |";
    let markdown = std::fs::read_to_string(out.join("report.md")).unwrap();
    assert!(markdown.contains(shown), "{markdown}");
    assert!(std::fs::read_to_string(out.join("report.html")).unwrap().contains("<td>0.000260</td>"));
}

#[test]
fn a_benchmark_counts_no_answer_that_the_network_cut() {
    let server = ModelServer::start([Answer::Cut(vec!["Hel"]), words("Hello.")]);
    let home = tempfile::tempdir().unwrap();
    let suite = home.path().join("suite.jsonl");
    let case =
        |id: &str| json!({"id": id, "messages": [{"role": "user", "content": "Hi"}], "tools": [], "expected": []});
    std::fs::write(&suite, format!("{}\n{}\n", case("one"), case("two"))).unwrap();
    let out = home.path().join("out");
    let bench = |more: &[&str]| {
        let mut command = callwright(home.path());
        run(command.env("NO_PROXY", "*").arg("bench").args(more))
    };
    let (suite, out, model) =
        (suite.display().to_string(), out.display().to_string(), format!("openai:{}", server.url));
    let ran = bench(&["--suite", &suite, "-m", &model, "--template", "chatml", "--out", &out]);
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(ran.err.contains("1 of 2 answers broke, which says nothing of the model"), "{}", ran.err);
    // Only what broke is asked again.
    server.add(words("Hello."));
    let resumed = bench(&["--resume", &out]);
    assert_eq!((resumed.code, server.requests().len()), (0, 3), "{}", resumed.err);
}

#[test]
fn in_chat_mode_the_chosen_sampling_is_sent() {
    let server = ModelServer::start([
        Answer::Deltas(vec![json!({"content": "Hello."})], "stop"),
        Answer::Deltas(vec![json!({"content": "Hello."})], "stop"),
    ]);
    chat(&server, &["--temperature", "0.7", "--top-k", "20", "--min-p", "0.1", "--repeat-penalty", "1.1"]);
    chat(&server, &["--temperature", "0.7"]);
    let requests = server.requests();
    let sent = |index: usize| ["top_k", "min_p", "repetition_penalty"].map(|name| requests[index][name].clone());
    assert_eq!(sent(0), [json!(20), json!(0.1), json!(1.1)]);
    // OpenAI refuses what it does not know.
    assert_eq!(sent(1), [Value::Null, Value::Null, Value::Null]);
}
