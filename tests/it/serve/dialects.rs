//! What agents and SDKs send besides messages and functions, and what they look for in answers and errors. Where the model's text
//! matters, a scripted model server writes it.

use super::api::{Server, weather, with};
use crate::engine::model_server::{Answer as Written, ModelServer};
use serde_json::{Value, json};
use std::io::{Read, Write};

/// A server before a scripted one, which writes these answers in turn.
fn scripted(answers: &[&'static str]) -> (ModelServer, Server) {
    let upstream = ModelServer::start(answers.iter().map(|text| Written::Pieces(vec![text], "stop")));
    let server = Server::proxy(&upstream.url, &["--template", "chatml"]);
    (upstream, server)
}

fn own(body: Value) -> Value {
    with(&body, json!({"callwright": {"format": "hermes", "constrain": "off", "trace": true}}))
}

fn notes(answer: &Value) -> String {
    answer["callwright"]["notes"].to_string()
}

const PATCH: &str = "<tool_call>\n{\"name\": \"apply_patch\", \"arguments\": {\"input\": \"*** Begin Patch\\n+\\\"x\\\"\"}}\n</tool_call>";
const LOOK: &str = "<tool_call>\n{\"name\": \"look\", \"arguments\": {\"at\": \"x\"}}\n</tool_call>";

/// Tools as agents send them: of all types.
fn tools() -> Value {
    json!([
        {"type": "web_search"}, {"type": "local_shell"}, {"type": "image_generation", "output_format": "png"},
        {"type": "of_next_year", "name": "x", "more": {"y": []}},
        {"type": "mcp", "server_label": "x", "server_url": "https://x.example"},
        {"type": "custom", "name": "apply_patch", "description": "Change files",
            "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/ start?"}},
        {"type": "namespace", "name": "eyes", "description": "Eyes", "tools": [
            {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}},
            {"type": "web_search"},
        ]},
        {"type": "function", "name": "look", "description": "Another one", "parameters": {"type": "object", "properties": {}}},
    ])
}

#[test]
fn tools_of_unknown_types_end_no_request() {
    let (upstream, server) = scripted(&["Hello.", "Hello."]);
    let whole =
        server.post("/v1/responses", &own(json!({"input": "Hi", "tools": tools(), "tool_choice": "auto"}))).json();
    assert_eq!(whole["output"][0]["content"][0]["text"], "Hello.");
    let left_out = "tools: left out, as only their vendor's servers run tools of these types: image_generation, local_shell, mcp, \
        of_next_year, web_search";
    assert!(notes(&whole).contains(left_out), "{}", notes(&whole));
    assert!(notes(&whole).contains("the grammar of the custom tool \\\"apply_patch\\\" is shown"), "{}", notes(&whole));
    let prompt = whole["callwright"]["trace"]["prompt"].as_str().unwrap();
    assert!(
        prompt.contains("apply_patch") && prompt.contains("start: /.+/") && prompt.contains("\"look\""),
        "{prompt}"
    );

    let only = json!({"input": "Hi", "tools": [{"type": "web_search"}], "tool_choice": "required"});
    assert_eq!(server.post("/v1/responses", &own(only)).status, 200);
    for choice in [
        json!({"type": "web_search"}),
        json!({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "mcp", "server_label": "x"}]}),
    ] {
        upstream.add(Written::Pieces(vec!["Hello."], "stop"));
        let answer =
            server.post("/v1/responses", &own(json!({"input": "Hi", "tools": tools(), "tool_choice": choice})));
        assert!(answer.status == 200 && notes(&answer.json()).contains("tool_choice is not used"), "{}", answer.text);
    }
    // Chat completions have the same tools.
    upstream.add(Written::Pieces(vec!["Hello."], "stop"));
    let chat = json!({"messages": [{"role": "user", "content": "Hi"}], "tools": [{"type": "web_search"}]});
    assert_eq!(server.chat(&own(chat)).status, 200);
}

#[test]
fn custom_tools_and_namespaces_are_called() {
    let (upstream, server) = scripted(&[PATCH, PATCH, LOOK]);
    let body = own(json!({"input": "Change it", "tools": tools(), "store": false}));
    let input = "*** Begin Patch\n+\"x\"";
    let whole = server.post("/v1/responses", &body).json();
    let call = &whole["output"][0];
    assert_eq!(
        (&call["type"], &call["name"], &call["input"]),
        (&json!("custom_tool_call"), &json!("apply_patch"), &json!(input))
    );
    let events = server.post("/v1/responses", &with(&body, json!({"stream": true}))).events();
    let of = |kind: &str| events.iter().find(|event| event["type"] == kind).unwrap_or_else(|| panic!("{kind}")).clone();
    assert_eq!(of("response.output_item.added")["item"]["input"], "");
    assert_eq!(of("response.custom_tool_call_input.delta")["delta"], input);
    assert_eq!(of("response.custom_tool_call_input.done")["input"], input);
    assert_eq!(of("response.output_item.done")["item"]["input"], input);
    assert_eq!(of("response.completed")["response"]["output"][0]["input"], input);

    let whole = server.post("/v1/responses", &body).json();
    let look = &whole["output"][0];
    assert_eq!((&look["name"], &look["namespace"]), (&json!("look"), &json!("eyes")));

    // What was called is shown to the model as it called it.
    upstream.add(Written::Pieces(vec!["Done."], "stop"));
    let input = json!([{"role": "user", "content": "Change it"}, call,
        {"type": "custom_tool_call_output", "call_id": call["call_id"], "output": "changed 1 file"}, look,
        {"type": "function_call_output", "call_id": look["call_id"], "output": [{"type": "input_text", "text": "I see"}]}]);
    let answer = server.post("/v1/responses", &with(&body, json!({"input": input}))).json();
    let prompt = answer["callwright"]["trace"]["prompt"].as_str().unwrap();
    for shown in ["*** Begin Patch\\n+", "changed 1 file", "I see"] {
        assert!(prompt.contains(shown), "{shown}: {prompt}");
    }

    // In chat completions.
    let custom = json!({"type": "custom", "custom": {"name": "apply_patch", "description": "Change files"}});
    let body = own(json!({"messages": [{"role": "user", "content": "Change it"}], "tools": [custom]}));
    for stream in [false, true] {
        upstream.add(Written::Pieces(vec![PATCH], "stop"));
        let answer = server.chat(&with(&body, json!({"stream": stream})));
        let custom = if stream {
            let events = answer.events();
            let calls = events.iter().filter_map(|event| event["choices"][0]["delta"]["tool_calls"][0].get("custom"));
            json!({"name": "apply_patch", "input": calls.filter_map(|call| call["input"].as_str()).collect::<String>()})
        } else {
            let call = answer.json()["choices"][0]["message"]["tool_calls"][0].take();
            assert_eq!(call["type"], "custom");
            call["custom"].clone()
        };
        assert_eq!(custom, json!({"name": "apply_patch", "input": "*** Begin Patch\n+\"x\""}));
    }
    upstream.add(Written::Pieces(vec!["Done."], "stop"));
    let messages = json!([{"role": "user", "content": "Change it"}, {"role": "assistant", "tool_calls": [
        {"id": "c1", "type": "custom", "custom": {"name": "apply_patch", "input": "*** End"}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "changed"}]);
    let answer = server.chat(&with(&body, json!({"messages": messages}))).json();
    assert!(answer["callwright"]["trace"]["prompt"].as_str().unwrap().contains("*** End"), "{answer}");
}

#[test]
fn the_pattern_of_a_custom_tool_is_enforced() {
    let server = Server::start(&[]);
    let tools = json!([{"type": "custom", "name": "set_date", "description": "Set the date",
        "format": {"type": "grammar", "syntax": "regex", "definition": "20[0-9]{2}-(0[1-9]|1[0-2])"}}]);
    let choice = json!({"type": "custom", "name": "set_date"});
    let body = json!({"input": "Set the date to May 2031", "tools": tools, "tool_choice": choice});
    let answer = server.post("/v1/responses", &body).json();
    let date = answer["output"][0]["input"].as_str().unwrap_or_else(|| panic!("{answer}"));
    assert!(date.len() == 7 && date.starts_with("20") && date.as_bytes()[4] == b'-', "{date}");
}

#[test]
fn items_of_other_servers_are_text_or_left_out() {
    let (_upstream, server) = scripted(&["Hello.", "Hello."]);
    let input = json!([
        {"role": "user", "content": "Look around"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "rust news"}},
        {"type": "local_shell_call", "id": "l_1", "call_id": "c1", "status": "completed",
            "action": {"type": "exec", "command": ["ls", "-l"], "env": {}}},
        {"type": "function_call_output", "call_id": "c1", "output": "Cargo.toml"},
        {"type": "mcp_call", "id": "m1", "name": "roll", "server_label": "dice", "arguments": "{\"sides\": 6}", "output": "four"},
        {"type": "image_generation_call", "id": "i1", "status": "completed", "result": "A".repeat(5000)},
        {"type": "shell_call_output", "call_id": "c9", "output": [{"stdout": "all well", "stderr": "", "outcome": {"type": "exit"}}]},
        {"type": "of_next_year", "id": "n1", "what": "a new thing"},
        {"type": "compaction", "encrypted_content": "gAAAA"},
        {"type": "item_reference", "id": "msg_unknown"},
        {"type": "additional_tools", "role": "developer", "tools": [{"type": "function", "name": "added", "parameters": {}}]},
        {"role": "user", "content": "And now?"},
    ]);
    let answer = server.post("/v1/responses", &own(json!({"input": input})));
    assert_eq!(answer.status, 200, "{}", answer.text);
    let answer = answer.json();
    let prompt = answer["callwright"]["trace"]["prompt"].as_str().unwrap();
    for shown in
        ["rust news", "ls", "Cargo.toml", "roll", "four", "all well", "a new thing", "(5000 bytes, not shown)", "added"]
    {
        assert!(prompt.contains(shown), "{shown}: {prompt}");
    }
    assert!(!prompt.contains("gAAAA") && !prompt.contains("AAAAAA"), "{prompt}");
    let note = "input: items that say nothing to this model are left out: 1 compaction, 1 item_reference";
    assert!(notes(&answer).contains(note), "{}", notes(&answer));
}

#[test]
fn codex_gets_a_summary_in_place_of_its_conversation() {
    let summary = "Ann asked for the time in Oslo.";
    let (_upstream, server) = scripted(&[summary, summary, "It is noon."]);
    let input =
        json!([{"role": "user", "content": "I am Ann. What time is it in Oslo?"}, {"type": "compaction_trigger"}]);
    let body = own(json!({"input": input, "tools": tools(), "tool_choice": "auto"}));
    let whole = server.post("/v1/responses", &body).json();
    let item = &whole["output"][0];
    assert_eq!((whole["output"].as_array().unwrap().len(), &item["type"]), (1, &json!("compaction")), "{whole}");
    let events = server.post("/v1/responses", &with(&body, json!({"stream": true}))).events();
    let done: Vec<&Value> = events.iter().filter(|event| event["type"] == "response.output_item.done").collect();
    assert_eq!((done.len(), &done[0]["item"]["encrypted_content"]), (1, &item["encrypted_content"]), "{events:?}");
    assert_eq!(events.last().unwrap()["type"], "response.completed");

    let next = own(json!({"input": [item, {"role": "user", "content": "And now?"}]}));
    let answer = server.post("/v1/responses", &next).json();
    let prompt = answer["callwright"]["trace"]["prompt"].as_str().unwrap();
    assert!(prompt.contains(summary) && !notes(&answer).contains("left out"), "{answer}");
}

#[test]
fn a_client_that_asks_for_a_websocket_goes_on_without_one() {
    let server = Server::start(&[]);
    let status = |headers: &str| {
        let mut stream = std::net::TcpStream::connect(&server.at).unwrap();
        let request = format!("GET /v1/responses HTTP/1.1\r\nHost: {}\r\n{headers}\r\n", server.at);
        stream.write_all(request.as_bytes()).unwrap();
        let mut line = [0; 12];
        stream.read_exact(&mut line).unwrap();
        String::from_utf8_lossy(&line).into_owned()
    };
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n";
    assert_eq!((status(upgrade).as_str(), status("").as_str()), ("HTTP/1.1 426", "HTTP/1.1 405"));
}

#[test]
fn responses_are_remembered_unless_the_client_does_not_want_it() {
    let (upstream, server) = scripted(&["I am Tom.", "As I said, Tom."]);
    let ask = |body: Value| server.post("/v1/responses", &own(body));
    let first = ask(json!({"input": "My name is Ann. Who are you?", "instructions": "Be brief."})).json();
    assert_eq!(first["store"], true);
    let second = ask(json!({"input": "What was your name?", "previous_response_id": first["id"]})).json();
    let prompt = second["callwright"]["trace"]["prompt"].as_str().unwrap();
    assert!(
        prompt.contains("My name is Ann") && prompt.contains("I am Tom.") && !prompt.contains("Be brief"),
        "{prompt}"
    );
    assert_eq!(second["previous_response_id"], first["id"]);

    let path = |id: &Value| format!("/v1/responses/{}", id.as_str().unwrap());
    assert_eq!(server.get(&path(&first["id"])).json()["output"], first["output"]);
    upstream.add(Written::Pieces(vec!["Tom!"], "stop"));
    let reference =
        json!([{"type": "item_reference", "id": first["output"][0]["id"]}, {"role": "user", "content": "Again?"}]);
    let third = ask(json!({"input": reference, "store": false})).json();
    assert!(third["callwright"]["trace"]["prompt"].as_str().unwrap().contains("I am Tom."), "{third}");
    assert_eq!((&third["store"], server.get(&path(&third["id"])).status), (&json!(false), 404));

    let missing = ask(json!({"input": "Hi", "previous_response_id": "resp_none"}));
    let error = &missing.json()["error"];
    assert_eq!((missing.status, &error["code"]), (404, &json!("previous_response_not_found")));
    assert_eq!((&error["param"], &error["type"]), (&json!("previous_response_id"), &json!("invalid_request_error")));
    assert_eq!(error["message"], "Previous response with id 'resp_none' not found.");
}

#[test]
fn anthropics_agents_get_what_they_expect() {
    let (upstream, server) = scripted(&["<think>\nHm.\n</think>\n\nHello.", "Paris, of course.", "Hello."]);
    let question = json!([{"role": "user", "content": "Where is the Louvre?"}]);
    let body = own(json!({"max_tokens": 50, "messages": question}));

    // Reasoning ends with a signature.
    let events = server.post("/v1/messages", &with(&body, json!({"stream": true}))).events();
    let kinds: Vec<String> = events
        .iter()
        .map(|event| {
            format!("{} {}", event["type"].as_str().unwrap(), event["delta"]["type"].as_str().unwrap_or_default())
        })
        .collect();
    let at = kinds
        .iter()
        .position(|kind| kind == "content_block_delta signature_delta")
        .unwrap_or_else(|| panic!("{kinds:?}"));
    assert_eq!(kinds[at + 1], "content_block_stop ");

    // A last message of the assistant is continued, and only what is new is in the answer.
    let messages = json!([question[0], {"role": "assistant", "content": "The city is "}]);
    let whole = server.post("/v1/messages", &with(&body, json!({"messages": messages}))).json();
    assert_eq!(whole["content"][0]["text"], "Paris, of course.");
    assert!(whole["callwright"]["trace"]["prompt"].as_str().unwrap().ends_with("The city is "), "{whole}");

    // Tools that Anthropic runs are left out.
    let tools = json!([{"type": "web_search_20250305", "name": "web_search", "max_uses": 5}, {"type": "bash_20250124", "name": "bash"},
        {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"}, {"type": "custom", "name": "look", "input_schema": {"type": "object"}}]);
    let document = |source: Value| json!({"type": "document", "title": "Notes", "source": source});
    let content = json!([
        document(json!({"type": "text", "media_type": "text/plain", "data": "The key is under the mat."})),
        document(json!({"type": "content", "content": [{"type": "text", "text": "The cat is in the house."}]})),
        {"type": "text", "text": "Where is the key?"},
    ]);
    let more = json!({"tools": tools, "tool_choice": {"type": "tool", "name": "bash"}, "messages": [{"role": "user", "content": content}]});
    let whole = server.post("/v1/messages", &with(&body, more)).json();
    let prompt = whole["callwright"]["trace"]["prompt"].as_str().unwrap_or_else(|| panic!("{whole}"));
    assert!(!prompt.contains("web_search") && prompt.contains("\"look\""), "{prompt}");
    assert!(
        prompt.contains("Notes\nThe key is under the mat.") && prompt.contains("The cat is in the house."),
        "{prompt}"
    );
    assert!(notes(&whole).contains("bash_20250124, text_editor_20250728, web_search_20250305"), "{}", notes(&whole));

    // What is no path has an error in their form.
    for answer in [
        server.get("/v1/messages"),
        server.get("/v1/messages/batches"),
        server.post("/v1/messages/count_tokens", &json!({})),
    ] {
        assert_eq!(answer.json()["type"], "error", "{}", answer.text);
    }
    drop(upstream);
}

#[test]
fn an_answer_that_repeats_itself_does_not_look_like_one_at_its_limit() {
    let looping = || Written::Pieces(vec!["I look again. "; 80], "stop");
    let upstream = ModelServer::start([looping()]);
    let server = Server::proxy(&upstream.url, &["--template", "chatml"]);
    let body = own(json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 10_000}));
    let whole = server.post("/v1/messages", &body).json();
    assert_eq!((&whole["stop_reason"], &whole["callwright"]["finish_reason"]), (&json!("end_turn"), &json!("loop")));
    assert!(
        notes(&whole).contains("repeats itself") && notes(&whole).contains("callwright.loop_guard"),
        "{}",
        notes(&whole)
    );
    assert!(!notes(&whole).contains("::"), "{}", notes(&whole));
    upstream.add(looping());
    assert_eq!(server.chat(&body).json()["choices"][0]["finish_reason"], "stop");
    upstream.add(looping());
    let whole = server.post("/v1/responses", &own(json!({"input": "Hi"}))).json();
    assert_eq!((&whole["status"], &whole["incomplete_details"]), (&json!("completed"), &Value::Null));
    // It may go on where the client wants that.
    upstream.add(looping());
    let own = json!({"callwright": {"format": "hermes", "constrain": "off", "loop_guard": false}});
    let content = server.chat(&with(&body, own)).json()["choices"][0]["message"]["content"].take();
    assert_eq!(content.as_str().unwrap().matches("again").count(), 80);
}

#[test]
fn the_context_is_where_clients_look_for_it() {
    let server = Server::start(&["--ctx", "512"]);
    let model = &server.get("/v1/models").json()["data"][0];
    for place in [&model["context_length"], &model["max_model_len"], &model["meta"]["n_ctx"]] {
        assert_eq!(*place, 512, "{model}");
    }
    assert_eq!(server.get("/props").json()["default_generation_settings"]["n_ctx"], 512);
    let studio = &server.get("/api/v0/models").json()["data"][0];
    assert_eq!((&studio["max_context_length"], &studio["state"]), (&json!(512), &json!("loaded")));
    assert_eq!(server.get("/api/v0/models/bundled").json()["id"], "bundled");
    let tags = &server.get("/api/tags").json()["models"][0];
    assert_eq!((&tags["name"], &tags["details"]["format"]), (&json!("bundled"), &json!("gguf")));
    let shown = server.post("/api/show", &json!({"model": "bundled:latest"})).json();
    let arch = shown["model_info"]["general.architecture"].as_str().unwrap();
    assert_eq!(shown["model_info"][format!("{arch}.context_length")], 512);
    assert!(shown["capabilities"].as_array().unwrap().contains(&json!("tools")));
    let version = server.get("/api/version").json()["version"].as_str().unwrap().to_owned();
    assert!(version.split('.').count() == 3, "{version}");

    // A prompt that does not fit, in the words of each family.
    let long = "word ".repeat(2000);
    let messages = json!([{"role": "user", "content": long}]);
    let refused = server.chat(&json!({"messages": messages}));
    let error = &refused.json()["error"];
    assert_eq!(
        (refused.status, &error["code"], &error["n_ctx"]),
        (400, &json!("context_length_exceeded"), &json!(512))
    );
    let tokens = error["n_prompt_tokens"].as_u64().unwrap();
    assert!(tokens > 512, "{error}");
    for words in [
        "maximum context length is 512 tokens".to_owned(),
        format!("your messages resulted in {tokens} tokens"),
        format!("request ({tokens} tokens) exceeds the available context size (512 tokens)"),
        "Please reduce the length of the messages".to_owned(),
    ] {
        assert!(error["message"].as_str().unwrap().contains(&words), "{words}: {error}");
    }
    let refused = server.post("/v1/messages", &json!({"messages": messages, "max_tokens": 10}));
    let message = format!("prompt is too long: {tokens} tokens > 512 maximum");
    assert_eq!(
        (refused.status, refused.json()),
        (400, json!({"type": "error", "error": {"type": "invalid_request_error", "message": message}}))
    );
    let counted = server.post("/v1/messages/count_tokens", &json!({"messages": messages})).json();
    assert_eq!(counted["input_tokens"], tokens);
    // Codex reads it from a stream, and other clients from the status.
    let body = json!({"input": messages});
    assert_eq!(server.post("/v1/responses", &body).status, 400);
    let streamed = server.post("/v1/responses", &with(&body, json!({"stream": true})));
    let last = streamed.events().pop().unwrap();
    assert_eq!((streamed.status, &last["type"]), (200, &json!("response.failed")));
    assert_eq!(last["response"]["error"]["code"], "context_length_exceeded");
    let refused = server.post("/api/chat", &json!({"messages": messages}));
    assert!(refused.status == 400 && refused.json()["error"].as_str().unwrap().contains("maximum context length"));
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn ollamas_chat_makes_a_call_and_answers_its_result() {
    let server = Server::start(&[]);
    let body = with(
        &weather(),
        json!({"model": "bundled:latest", "options": {"temperature": 0, "num_ctx": 4096, "num_gpu": 1}}),
    );
    let whole = server.post("/api/chat", &with(&body, json!({"stream": false}))).json();
    let call = &whole["message"]["tool_calls"][0]["function"];
    assert_eq!(
        (&call["name"], &call["arguments"]),
        (&json!("get_weather"), &json!({"city": "Beijing", "date": "tomorrow"}))
    );
    assert_eq!(
        (&whole["done"], &whole["done_reason"], &whole["model"]),
        (&json!(true), &json!("stop"), &json!("bundled"))
    );
    assert!(whole["eval_count"].as_u64() > Some(0) && whole["prompt_eval_count"].as_u64() > Some(0), "{whole}");
    assert!(
        notes(&whole).contains("not used in options: num_ctx (the server's --ctx") && notes(&whole).contains("num_gpu"),
        "{}",
        notes(&whole)
    );

    // Streamed unless the request says otherwise.
    let streamed = server.post("/api/chat", &body);
    assert_eq!(streamed.header("content-type"), Some("application/x-ndjson"));
    let lines_of_it = lines(&streamed.text);
    assert_eq!(lines_of_it[0]["message"]["tool_calls"], whole["message"]["tool_calls"]);
    assert!(lines_of_it.iter().rev().skip(1).all(|line| line["done"] == false));
    let last = lines_of_it.last().unwrap();
    assert_eq!((&last["done"], &last["eval_count"]), (&json!(true), &whole["eval_count"]));

    let mut next = body.clone();
    let messages = next["messages"].as_array_mut().unwrap();
    messages.push(whole["message"].clone());
    messages.push(json!({"role": "tool", "tool_name": "get_weather", "content": "21 C, sunny"}));
    let answered = lines(&server.post("/api/chat", &next).text);
    let said: String = answered.iter().filter_map(|line| line["message"]["content"].as_str()).collect();
    assert!(said.contains("21 C"), "{said}");

    let schema = json!({"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": false});
    let body = json!({"messages": [{"role": "user", "content": "Is it well?"}], "format": schema, "stream": false});
    let answer = server.post("/api/chat", &body).json();
    let value: Value = serde_json::from_str(answer["message"]["content"].as_str().unwrap()).unwrap();
    assert!(value["ok"].is_boolean(), "{answer}");

    let limited = json!({"prompt": "Tell me a story", "options": {"num_predict": 3}, "stream": false});
    let answer = server.post("/api/generate", &limited).json();
    assert_eq!((&answer["done_reason"], &answer["eval_count"]), (&json!("length"), &json!(3)));
    let raw = server.post("/api/generate", &with(&limited, json!({"raw": true, "stream": true})));
    assert_eq!(lines(&raw.text).last().unwrap()["eval_count"], 3);
}

#[test]
fn ollamas_chat_has_the_reasoning_where_it_is_asked_for() {
    let (_upstream, server) = scripted(&["<think>\nHm.\n</think>\n\nHello.", "<think>\nHm.\n</think>\n\nHello."]);
    let body = own(json!({"messages": [{"role": "user", "content": "Hi"}], "think": true}));
    let whole = server.post("/api/chat", &with(&body, json!({"stream": false}))).json();
    assert_eq!((&whole["message"]["thinking"], &whole["message"]["content"]), (&json!("Hm."), &json!("Hello.")));
    let streamed = lines(&server.post("/api/chat", &body).text);
    let joined = |name: &str| streamed.iter().filter_map(|line| line["message"][name].as_str()).collect::<String>();
    assert_eq!((joined("thinking"), joined("content")), ("Hm.".to_owned(), "Hello.".to_owned()));
}

#[test]
fn ids_of_calls_are_those_of_no_other_turn() {
    let (upstream, server) = scripted(&[LOOK, LOOK]);
    let look = json!([{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}}}]);
    let ask = |text: &str| {
        let body = own(json!({"messages": [{"role": "user", "content": text}], "tools": look}));
        server.chat(&body).json()["choices"][0]["message"]["tool_calls"][0]["id"].as_str().unwrap().to_owned()
    };
    // A client may leave out what came before.
    let (one, other) = (ask("One"), ask("Two"));
    assert!(one != other && one.len() == 9 && one.chars().all(|c| c.is_ascii_alphanumeric()), "{one} {other}");
    upstream.add(Written::Pieces(vec![LOOK], "stop"));
    assert_eq!(ask("One"), one, "the same request has the same answer");
}

#[test]
fn each_request_is_a_line_on_standard_error() {
    for quiet in [false, true] {
        let home = tempfile::tempdir().unwrap();
        let args = ["serve", "--port", "0", "--threads", "1", "--quiet"];
        let mut server = Server::of(home, &args[..if quiet { 6 } else { 5 }]);
        let answer = server.chat(&weather()).json();
        server.get("/nothing");
        server.get("/health");
        server.signal();
        let mut error = String::new();
        server.child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
        let usage = &answer["usage"];
        let line = format!(
            "POST /v1/chat/completions bundled 200, {} + {} tokens, ",
            usage["prompt_tokens"], usage["completion_tokens"]
        );
        assert_eq!((error.contains(&line), error.contains("GET /nothing 404, ")), (!quiet, !quiet), "{error}");
        assert!(!error.contains("/health"), "{error}");
    }
}

#[test]
fn json_is_the_answer_to_a_result_where_the_model_would_have_written_text() {
    let server = Server::start(&[]);
    let schema = json!({"type": "object", "properties": {"summary": {"type": "string"}}, "required": ["summary"], "additionalProperties": false});
    let format = json!({"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}});
    let first = server.chat(&weather()).json();
    let call = &first["choices"][0]["message"];
    let mut next = with(&weather(), json!({"response_format": format}));
    let messages = next["messages"].as_array_mut().unwrap();
    messages.push(call.clone());
    messages.push(json!({"role": "tool", "tool_call_id": call["tool_calls"][0]["id"], "content": "21 C, sunny"}));
    let answer = server.chat(&next).json();
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "stop", "{answer}");
    let value: Value = serde_json::from_str(choice["message"]["content"].as_str().unwrap()).unwrap();
    assert!(value["summary"].is_string(), "{answer}");
}
