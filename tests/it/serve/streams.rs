//! What a stream shows is what the whole answer has, whatever the model writes: each recorded text is an answer of a scripted
//! model server, and is asked for through each API, whole and streamed.

use super::api::{Answer, Server};
use crate::data::{conformance, conformance_rows};
use crate::engine::model_server::{Answer as Written, ModelServer};
use callwright::format::Format;
use serde_json::{Value, json};
use std::path::Path;

/// A text of a model, and how it is read.
struct Case {
    name: String,
    format: String,
    tools: Value,
    text: String,
}

/// What a client gets.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    content: String,
    reasoning: String,
    calls: Vec<(String, Value)>,
    finish: String,
}

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn chat(answer: &Answer, stream: bool) -> Seen {
    let mut seen = Seen::default();
    if !stream {
        let whole = answer.json();
        let message = &whole["choices"][0]["message"];
        let call =
            |call: &Value| (text(&call["function"]["name"]).to_owned(), json_of(text(&call["function"]["arguments"])));
        seen.content = text(&message["content"]).to_owned();
        seen.reasoning = text(&message["reasoning_content"]).to_owned();
        seen.calls = list(&message["tool_calls"]).map(call).collect();
        seen.finish = text(&whole["choices"][0]["finish_reason"]).to_owned();
        return seen;
    }
    let mut calls: Vec<(String, String)> = Vec::new();
    for event in answer.events() {
        let choice = &event["choices"][0];
        seen.content += text(&choice["delta"]["content"]);
        seen.reasoning += text(&choice["delta"]["reasoning_content"]);
        for call in list(&choice["delta"]["tool_calls"]) {
            if call["id"].is_string() {
                calls.push((text(&call["function"]["name"]).to_owned(), String::new()));
            }
            calls.last_mut().unwrap().1 += text(&call["function"]["arguments"]);
        }
        if let Some(reason) = choice["finish_reason"].as_str() {
            seen.finish = reason.to_owned();
        }
    }
    seen.calls = calls.into_iter().map(|(name, arguments)| (name, json_of(&arguments))).collect();
    seen
}

fn messages(answer: &Answer, stream: bool) -> Seen {
    let mut seen = Seen::default();
    if !stream {
        let whole = answer.json();
        for block in list(&whole["content"]) {
            seen.content += text(&block["text"]);
            seen.reasoning += text(&block["thinking"]);
            if block["type"] == "tool_use" {
                seen.calls.push((text(&block["name"]).to_owned(), block["input"].clone()));
            }
        }
        seen.finish = text(&whole["stop_reason"]).to_owned();
        return seen;
    }
    let mut calls: Vec<(String, String)> = Vec::new();
    let mut last = Value::Null;
    for event in answer.events() {
        let delta = &event["delta"];
        seen.content += text(&delta["text"]);
        seen.reasoning += text(&delta["thinking"]);
        if event["content_block"]["type"] == "tool_use" {
            calls.push((text(&event["content_block"]["name"]).to_owned(), String::new()));
        }
        if let Some(json) = delta["partial_json"].as_str() {
            calls.last_mut().unwrap().1 += json;
        }
        if let Some(reason) = delta["stop_reason"].as_str() {
            seen.finish = reason.to_owned();
        }
        if event["type"] == "content_block_start" {
            last = Value::Null;
        }
        if event["type"] == "content_block_delta" {
            last = delta["type"].clone();
        }
        if event["type"] == "content_block_stop" {
            assert!(last != "thinking_delta", "reasoning ends with its signature");
        }
    }
    seen.calls = calls.into_iter().map(|(name, arguments)| (name, json_of(&arguments))).collect();
    seen
}

/// The items of a response, whole or from the last event of a stream, and what its deltas add up to.
fn responses(answer: &Answer, stream: bool) -> Seen {
    let mut seen = Seen::default();
    let items = |whole: &Value, seen: &mut Seen| {
        for item in list(&whole["output"]) {
            match text(&item["type"]) {
                "message" => seen.content += text(&item["content"][0]["text"]),
                "reasoning" => seen.reasoning += text(&item["content"][0]["text"]),
                _ => seen.calls.push((text(&item["name"]).to_owned(), json_of(text(&item["arguments"])))),
            }
        }
        seen.finish = text(&whole["status"]).to_owned();
    };
    if !stream {
        items(&answer.json(), &mut seen);
        return seen;
    }
    let (mut deltas, mut arguments) = (Seen::default(), String::new());
    for event in answer.events() {
        match text(&event["type"]) {
            "response.output_text.delta" => deltas.content += text(&event["delta"]),
            "response.reasoning_text.delta" => deltas.reasoning += text(&event["delta"]),
            "response.function_call_arguments.delta" => arguments += text(&event["delta"]),
            "response.output_item.done" if event["item"]["type"] == "function_call" => {
                let arguments = std::mem::take(&mut arguments);
                deltas.calls.push((text(&event["item"]["name"]).to_owned(), json_of(&arguments)));
            }
            "response.completed" | "response.incomplete" => items(&event["response"], &mut seen),
            _ => {}
        }
    }
    deltas.finish.clone_from(&seen.finish);
    assert_eq!(deltas, seen, "the deltas are the items");
    seen
}

type Api = (&'static str, fn(&Answer, bool) -> Seen);

const APIS: [Api; 3] = [("/v1/chat/completions", chat), ("/v1/messages", messages), ("/v1/responses", responses)];

/// Asks for each text through each API, whole and streamed.
fn drive(cases: &[Case]) {
    let upstream = ModelServer::start([]);
    let server = Server::proxy(&upstream.url, &["--template", "chatml"]);
    let mut different = Vec::new();
    for case in cases {
        // In pieces that end anywhere.
        let chars: Vec<char> = case.text.chars().collect();
        let pieces: Vec<&'static str> =
            chars.chunks(5).map(|piece| &*piece.iter().collect::<String>().leak()).collect();
        let mut all = Vec::new();
        for (path, read) in APIS {
            let [whole, streamed] = [false, true].map(|stream| {
                upstream.add(Written::Pieces(pieces.clone(), "stop"));
                let question = json!([{"role": "user", "content": "What now?"}]);
                let body = json!({
                    "messages": question, "input": question, "max_tokens": 100_000, "stream": stream,
                    "tools": case.tools, "callwright": {"format": case.format, "constrain": "off"},
                });
                let mut body = body;
                let other = if path == "/v1/responses" { "messages" } else { "input" };
                body.as_object_mut().unwrap().remove(other);
                if path == "/v1/responses" {
                    body.as_object_mut().unwrap().remove("max_tokens");
                }
                let answer = server.post(path, &body);
                assert_eq!(answer.status, 200, "{}: {}", case.name, answer.text);
                read(&answer, stream)
            });
            if whole != streamed {
                different.push(format!("{} {path}\n  whole    {whole:?}\n  streamed {streamed:?}", case.name));
            }
            all.push(Seen { finish: String::new(), ..whole });
        }
        for other in &all[1..] {
            if all[0] != *other {
                different.push(format!("{}\n  {:?}\n  {other:?}", case.name, all[0]));
            }
        }
    }
    assert!(different.is_empty(), "{} of {} texts:\n{}", different.len(), cases.len(), different.join("\n"));
}

/// Tools in the form that all three APIs read.
fn flat(tools: &Value) -> Value {
    let tools = list(tools).filter_map(|tool| {
        let function = tool.get("function").unwrap_or(tool);
        let name = function.get("name")?;
        let schema = ["parameters", "input_schema", "inputSchema"].iter().find_map(|key| function.get(*key));
        let schema = schema.filter(|schema| schema.is_object()).cloned().unwrap_or(json!({"type": "object"}));
        Some(json!({"name": name, "description": text(&function["description"]), "parameters": schema}))
    });
    let tools: Vec<Value> = tools.collect();
    if tools.is_empty() { weather() } else { json!(tools) }
}

fn weather() -> Value {
    json!([{"name": "get_weather", "description": "Get the weather", "parameters": {"type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}}])
}

/// The texts of the parser's tests, in the format that their folder names, or in one that most models have.
fn repository() -> Vec<Case> {
    let mut cases = Vec::new();
    let root = Path::new("crates/callwright-core/tests/cases/parse");
    let mut folders: Vec<_> = std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    for folder in folders.into_iter().filter(|folder| folder.is_dir()) {
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        let format = if Format::builtin(&name).is_some() { &name } else { "hermes" };
        let tools = std::fs::read_to_string(folder.join("tools.json"));
        let tools = tools.map_or_else(|_| weather(), |tools| flat(&json_of(&tools)));
        let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        for file in files.into_iter().filter(|file| file.extension().is_some_and(|kind| kind == "txt")) {
            let Ok(text) = std::fs::read_to_string(&file) else { continue };
            let text = text.strip_suffix('\n').unwrap_or(&text).to_owned();
            cases.push(Case {
                name: file.display().to_string(),
                format: format.to_owned(),
                tools: tools.clone(),
                text,
            });
        }
    }
    cases
}

#[test]
fn streams_add_up_to_the_whole_answer() {
    let cases = repository();
    assert!(cases.len() > 500, "{}", cases.len());
    drive(&cases);
}

#[test]
#[ignore = "needs the data of other projects: see data.rs"]
fn conformance_streams_add_up_to_the_whole_answer() {
    let declared: toml::Table =
        std::fs::read_to_string("crates/callwright-core/tests/cases/parses-formats.toml").unwrap().parse().unwrap();
    let format = |template: &str| {
        let has = |table: &toml::Value| {
            let templates = table.get("templates").and_then(toml::Value::as_array);
            templates.into_iter().flatten().any(|name| name.as_str() == Some(template))
        };
        let found = declared.iter().find(|(name, table)| has(table) && Format::builtin(name).is_some());
        found.map_or("hermes".to_owned(), |(name, _)| name.clone())
    };
    let mut cases = Vec::new();
    for (_, row) in conformance_rows("parses.jsonl") {
        let name = format!("{} {}", text(&row["template"]), text(&row["case"]));
        let (format, tools) = (format(text(&row["template"])), flat(&row["tools"]));
        cases.push(Case { name, format, tools, text: text(&row["input"]).to_owned() });
    }
    // Cases after reports, where they are beside the data.
    let beside = conformance().join("../reports");
    for file in std::fs::read_dir(beside).into_iter().flatten().filter_map(Result::ok) {
        for line in std::fs::read_to_string(file.path()).unwrap_or_default().lines() {
            let row = json_of(line);
            let words: Vec<&str> = text(&row["command"]).split(' ').collect();
            let named = words.windows(2).find(|pair| pair[0] == "--format").map(|pair| pair[1]);
            let (Some(format), Some(written)) = (named, row["files"]["input.txt"].as_str()) else { continue };
            let format = if Format::builtin(format).is_some() { format } else { "hermes" };
            cases.push(Case {
                name: text(&row["id"]).to_owned(),
                format: format.to_owned(),
                tools: flat(&row["files"]["tools.json"]),
                text: written.to_owned(),
            });
        }
    }
    drive(&cases);
}
