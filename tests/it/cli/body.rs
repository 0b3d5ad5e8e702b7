//! `--messages` with a whole request body: what of it is used, and what is reported.

use crate::program::{Ran, callwright, run};
use serde_json::{Value, json};
use std::path::Path;

const WEATHER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/weather.toml");

/// Runs the program with a body that has these fields beside a question.
fn ask(home: &Path, fields: Value, options: &[&str]) -> Ran {
    let path = home.join("body.json");
    let mut body = json!({"messages": [{"role": "user", "content": "What's the weather in Beijing tomorrow?"}]});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    std::fs::write(&path, body.to_string()).unwrap();
    run(callwright(home).arg("run").arg("--messages").arg(path).args(options))
}

fn tool(name: &str) -> Value {
    let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    json!({"name": name, "description": format!("{name} of a city"), "parameters": parameters})
}

fn functions(names: &[&str]) -> Value {
    names.iter().map(|name| json!({"type": "function", "function": tool(name)})).collect()
}

fn notes(ran: &Ran) -> Vec<&str> {
    ran.err.lines().filter(|line| line.starts_with("note: ")).collect()
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn a_response_format_is_enforced() {
    let home = tempfile::tempdir().unwrap();
    let schema = json!({"type": "object", "properties": {"sky": {"enum": ["sunny", "foggy"]}}, "required": ["sky"],
        "additionalProperties": false});
    let format = json!({"type": "json_schema", "json_schema": {"name": "sky", "schema": schema, "strict": true}});
    let ran = ask(home.path(), json!({"response_format": format}), &[]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let answer: Value = serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {}", ran.out));
    assert!(answer["sky"] == "sunny" || answer["sky"] == "foggy", "{answer}");

    // With tools the answer is a call, or it fits the schema.
    let both = json!({"response_format": format, "tools": functions(&["get_weather"])});
    let ran = ask(home.path(), both, &["--output", "json"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let document: Value = serde_json::from_str(&ran.out).unwrap();
    let message = document["messages"].as_array().unwrap().last().unwrap();
    let content = message["content"].as_str().unwrap_or_default();
    let fits = serde_json::from_str::<Value>(content).is_ok_and(|answer| answer["sky"].is_string());
    assert!(fits || message["tool_calls"][0]["function"]["name"] == "get_weather", "{document}");

    let off = ask(home.path(), json!({"response_format": format}), &["--constrain", "off", "--max-tokens", "8"]);
    assert!(off.err.contains("response_format is not enforced: --constrain is off"), "{off:?}");
    assert_eq!(off.code, 1, "an answer that does not fit is a failure: {off:?}");
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn what_is_not_used_is_one_note() {
    let home = tempfile::tempdir().unwrap();
    let fields = json!({"model": "gpt-4o", "stream": true, "n": 2, "user": "me", "temprature": 1, "max_tokens": 4,
        "logprobs": false});
    let ran = ask(home.path(), fields, &[]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let unused: Vec<&str> = notes(&ran).into_iter().filter(|note| note.contains("not used")).collect();
    assert_eq!(
        unused,
        ["note: not used in the request body: model (-m chooses one, not \"gpt-4o\"), \
            stream (--output events writes while the model does), n (one answer is written), user, \
            temprature (did you mean temperature?)"]
    );
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn the_command_line_replaces_the_body_with_one_note() {
    let home = tempfile::tempdir().unwrap();
    let fields = json!({"max_tokens": 300, "temperature": 50, "seed": 3, "top_p": 1.0});
    let ran = ask(home.path(), fields, &["--max-tokens", "3", "--temp", "0"]);
    let replaced = "note: options of the command line replace the request body's temperature, max_tokens";
    let cut = "note: the answer was cut off by --max-tokens 3; a larger number lets it go on";
    assert_eq!((ran.code, notes(&ran)), (0, vec![replaced, cut]));
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn a_call_that_the_body_limits_is_never_executed_in_part() {
    let home = tempfile::tempdir().unwrap();
    let fields = json!({"tool_choice": {"type": "function", "function": {"name": "get_weather"}},
        "max_completion_tokens": 5});
    let ran = ask(home.path(), fields, &["--tools", WEATHER, "--execute", "--no-regenerate", "--output", "events"]);
    assert!(!ran.out.contains("tool_result") && !ran.out.contains(r#""complete":true"#), "{ran:?}");
    assert_eq!(ran.code, 1, "{ran:?}");
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn a_tool_choice_of_the_body_is_read() {
    let home = tempfile::tempdir().unwrap();
    let tools = functions(&["get_time", "get_weather"]);
    let named = json!({"tools": tools, "tool_choice": {"type": "function", "function": {"name": "get_time"}}});
    assert!(ask(home.path(), named, &[]).out.starts_with("→ get_time {"));

    let any = ask(home.path(), json!({"tools": tools, "tool_choice": "any"}), &[]);
    assert_eq!(any.code, 2);
    assert!(any.err.contains("tool_choice is \"any\"") && any.err.contains("write \"required\""), "{}", any.err);
    let none = ask(home.path(), json!({"tools": tools, "tool_choice": {"type": "function"}}), &[]);
    assert!(none.code == 2 && none.err.contains("body.json") && none.err.contains("expected \"auto\""), "{none:?}");

    let allowed = json!({"mode": "required", "tools": [{"type": "function", "function": {"name": "get_time"}}]});
    let choice = json!({"type": "allowed_tools", "allowed_tools": allowed});
    let ran = ask(home.path(), json!({"tools": tools, "tool_choice": choice}), &[]);
    assert!(ran.out.starts_with("→ get_time {"), "{ran:?}");
    assert_eq!(notes(&ran), ["note: tool_choice allows only get_time: the model is not shown the other tools"]);
    let unknown = json!({"mode": "auto", "tools": [{"type": "function", "function": {"name": "get_tine"}}]});
    let choice = json!({"type": "allowed_tools", "allowed_tools": unknown});
    let ran = ask(home.path(), json!({"tools": tools, "tool_choice": choice}), &[]);
    assert!(ran.code == 2 && ran.err.contains("\"get_tine\" is none of the tools"), "{ran:?}");
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn functions_are_read_as_tools() {
    let home = tempfile::tempdir().unwrap();
    let old = json!({"functions": [tool("get_weather"), tool("get_time")], "function_call": {"name": "get_time"}});
    let ran = ask(home.path(), old, &[]);
    assert!(ran.out.starts_with("→ get_time {"), "{ran:?}");
    assert_eq!(
        notes(&ran),
        [
            "note: functions is the old form of tools; it is read as that",
            "note: function_call is the old form of tool_choice; it is read as that",
        ]
    );
    let both =
        json!({"functions": [tool("get_weather")], "tools": functions(&["get_time"]), "tool_choice": "required"});
    let ran = ask(home.path(), both, &[]);
    assert!(ran.out.starts_with("→ get_time {"), "{ran:?}");
    assert_eq!(notes(&ran), ["note: functions is not read, as there is tools"]);
}

#[test]
fn a_value_that_cannot_be_is_an_error_that_says_what_can() {
    let home = tempfile::tempdir().unwrap();
    for (fields, said) in [
        (json!({"temperature": "hot"}), "temperature is \"hot\"; expected a number from 0 to 100"),
        (json!({"top_k": -2}), "top_k is -2; expected a whole number from -1 up"),
        (json!({"stop": 3}), "stop is 3; expected a string or a list of strings"),
        (json!({"logit_bias": {"the": 1}}), "expected an object of token ids and numbers from -100 to 100"),
        (json!({"response_format": {"type": "xml"}}), "response_format.type is \"xml\"; expected text, json_object"),
        (json!({"reasoning_effort": 3}), "reasoning_effort is 3; expected a string"),
    ] {
        let ran = ask(home.path(), fields, &[]);
        assert!(ran.code == 2 && ran.err.contains(said) && ran.err.contains("body.json"), "{said}: {ran:?}");
    }
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn variables_that_the_template_does_not_use_are_reported() {
    let home = tempfile::tempdir().unwrap();
    let fields = json!({"reasoning_effort": "none", "max_tokens": 4, "chat_template_kwargs": {"shout": true}});
    let ran = ask(home.path(), fields, &[]);
    let note = notes(&ran).into_iter().find(|note| note.contains("does not use")).unwrap_or_default();
    assert!(note.ends_with("does not use reasoning_effort, shout"), "{ran:?}");

    let template = home.path().join("thinks.jinja");
    let source = "{% for m in messages %}{{ m.content }}{% endfor %}{% if enable_thinking is false %}<off>{% endif %}";
    std::fs::write(&template, source).unwrap();
    let path = home.path().join("body.json");
    std::fs::write(
        &path,
        json!({"messages": [{"role": "user", "content": "Hello"}], "reasoning_effort": "none"}).to_string(),
    )
    .unwrap();
    let ran = run(callwright(home.path()).arg("render").arg("--messages").arg(path).arg("--template").arg(template));
    assert!(ran.out.contains("Hello<off>") && !ran.err.contains("does not use"), "{ran:?}");
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn stop_texts_and_penalties_in_vain_are_reported() {
    let home = tempfile::tempdir().unwrap();
    let fields =
        json!({"response_format": {"type": "json_object"}, "stop": "}", "presence_penalty": 1, "max_tokens": 40});
    let ran = ask(home.path(), fields, &[]);
    let note = "note: stop texts and penalties for repetition change nothing: a grammar holds the whole answer";
    assert!(notes(&ran).contains(&note), "{ran:?}");
}

#[test]
fn what_cannot_be_read_is_named_by_its_own_field() {
    let home = tempfile::tempdir().unwrap();
    for (fields, said) in [
        (json!({"tools": "x"}), "tools is a string; expected a list of tools"),
        (json!({"functions": 5}), "functions is a number; expected a list of tools"),
        (
            json!({"functions": [tool("clock")], "function_call": 5}),
            "function_call is 5; expected \"auto\", \"none\" or {\"name\"",
        ),
        (json!({"seed": 1e30}), "expected a whole number from -9223372036854775808 to 18446744073709551615"),
    ] {
        let ran = ask(home.path(), fields, &[]);
        assert!(ran.code == 2 && ran.err.contains(said) && ran.err.contains("body.json"), "{said}: {ran:?}");
    }
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn allowed_tools_are_read_in_the_shape_of_the_responses_api() {
    let home = tempfile::tempdir().unwrap();
    let tools = functions(&["get_time", "get_weather"]);
    let named = json!([{"type": "function", "name": "get_time"}]);
    let choice = json!({"type": "allowed_tools", "mode": "required", "tools": named});
    let ran = ask(home.path(), json!({"tools": tools, "tool_choice": choice}), &[]);
    assert!(ran.code == 0 && ran.out.starts_with("→ get_time {"), "{ran:?}");
    assert_eq!(notes(&ran), ["note: tool_choice allows only get_time: the model is not shown the other tools"]);
    let choice = json!({"type": "allowed_tools", "mode": "any", "tools": named});
    let ran = ask(home.path(), json!({"tools": tools, "tool_choice": choice}), &[]);
    assert!(ran.code == 2 && ran.err.contains("\"mode\": \"auto\" or \"required\""), "{ran:?}");
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn fields_that_are_there_twice_or_ask_for_no_answer_are_reported() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("twice.json");
    let body = r#"{"messages": [{"role": "user", "content": "One", "content": "Two"}], "seed": 1, "seed": 2, "n": 0, "n_predict": 5}"#;
    std::fs::write(&path, body).unwrap();
    let ran = run(callwright(home.path()).arg("render").arg("--messages").arg(&path));
    assert!(ran.code == 0 && ran.out.contains("Two"), "{ran:?}");
    assert_eq!(
        notes(&ran),
        [
            "note: messages[0].content occurs twice; the last value is used",
            "note: seed occurs twice; the last value is used",
            "note: not used in the request body: n (one answer is written), n_predict (write max_tokens)",
        ]
    );
}
