//! Tools that nothing runs: their results are given, asked for, or left to the caller.

use crate::agent::run::{call, fallbacks, prepared, weather};
use crate::program::{Ran, callwright, run};
use callwright::Tools;
use callwright::agent::turn::Status;
use callwright::message::{Message, Role, ToolCall, check_order, open_calls};
use callwright::session::{Event, FinishReason};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const QUESTION: &str = "What's the weather in New York and San Francisco?";
/// The tools of `examples/weather.toml`, without the program.
const TOOLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/weather.json");
const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/weather.toml");

fn execute(home: &Path, tools: &str, more: &[&str]) -> Ran {
    let asked = ["run", QUESTION, "--execute", "--tools", tools];
    run(callwright(home).env("XDG_STATE_HOME", home.join("state")).args(asked).args(more))
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn a_result_that_is_given_answers_every_call_of_the_tool() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("result.json");
    std::fs::write(&file, "{\"temp\": 5}\n").unwrap();
    let from_file = format!("get_weather=@{}", file.display());
    // The last: also where the tool has a program.
    for (tools, result) in [(TOOLS, "get_weather={\"temp\": 5}"), (TOOLS, &from_file), (PROGRAM, &from_file)] {
        let ran = execute(home.path(), tools, &["--tool-result", result]);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
        assert_eq!(ran.out.matches("← get_weather {\"temp\": 5}\n").count(), 2, "{}", ran.out);
    }
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn a_run_ends_with_the_calls_and_goes_on_with_their_results() {
    let home = tempfile::tempdir().unwrap();
    let record = home.path().join("run.jsonl");
    let ran = execute(home.path(), TOOLS, &["--output", "json", "--record", record.to_str().unwrap()]);
    assert_eq!(ran.code, 4, "{ran:?}");
    let said = "error: the run ended with calls that wait for their results: get_weather (call00001), get_weather \
                (call00002)\nhint: --tool-result NAME=TEXT gives";
    assert!(ran.err.starts_with(said), "{}", ran.err);
    let again = run(callwright(home.path()).args(["run", "--output", "json", "--replay"]).arg(&record));
    assert_eq!((again.code, &again.err), (4, &ran.err));
    let mut document: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((&document["status"], &document["finish_reason"]), (&"tool_calls".into(), &"tool_calls".into()));
    let waiting = home.path().join("waiting.json");
    std::fs::write(&waiting, &ran.out).unwrap();
    let more =
        ["run", "--execute", "--tools", TOOLS, "--output", "json", "--tool-result", "get_weather={\"temp\": 21}"];
    let given = run(callwright(home.path()).args(more).arg("--messages").arg(&waiting));
    assert_eq!((given.code, given.err.as_str()), (0, ""), "{given:?}");
    let given: Value = serde_json::from_str(&given.out).unwrap();
    let results: Vec<_> = given["messages"].as_array().unwrap().iter().filter(|one| one["role"] == "tool").collect();
    assert_eq!(results.len(), 2, "{given}");
    assert_eq!((&results[1]["tool_call_id"], &results[1]["content"]), (&"call00002".into(), &"{\"temp\": 21}".into()));
    let messages = document["messages"].as_array_mut().unwrap();
    assert_eq!((messages.len(), messages[1]["tool_calls"].as_array().unwrap().len()), (2, 2));
    for (id, temperature) in [("call00001", 21), ("call00002", 16)] {
        let content = json!({ "temp": temperature }).to_string();
        messages.push(json!({"role": "tool", "tool_call_id": id, "content": content}));
    }
    let answered = home.path().join("answered.json");
    std::fs::write(&answered, document.to_string()).unwrap();
    let more = ["run", "--execute", "--tools", TOOLS, "--output", "json", "--messages", answered.to_str().unwrap()];
    let ran = run(callwright(home.path()).args(more));
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
    let document: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(document["status"], "done");
    assert!(document["messages"][4]["content"].as_str().is_some_and(|text| text.contains("21")), "{document}");
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn a_chat_without_a_terminal_ends_with_the_calls_that_nothing_runs() {
    let home = tempfile::tempdir().unwrap();
    let saved = home.path().join("chat.json");
    let chat = |more: &[&str], lines: &str| {
        let mut command = callwright(home.path());
        command.env("XDG_STATE_HOME", home.path().join("state")).args(["chat", "--tools", TOOLS]).args(more);
        run(command.write_stdin(lines))
    };
    let lines = format!("{QUESTION}\n/template\n/save {}\nThank you\n/undo\n", saved.display());
    let ran = chat(&[], &lines);
    assert_eq!(ran.code, 4, "{ran:?}");
    assert!(ran.err.contains("the run ended with calls that wait for their results: get_weather"), "{}", ran.err);
    assert!(ran.err.contains("/save FILE writes the conversation") && !ran.err.contains("--output"), "{}", ran.err);
    // Commands are obeyed; a message is not taken for the next one of the conversation.
    assert!(ran.err.contains(", calls in the format ") && ran.err.contains("2 messages are in"), "{}", ran.err);
    let end = "error: the chat ends before \"Thank you\": the calls before it wait for their results";
    assert!(ran.err.contains(end) && !ran.err.contains("messages are left"), "{}", ran.err);
    let given = ["run", "--execute", "--tools", TOOLS, "--tool-result", "get_weather=mild", "--messages"];
    let on = run(callwright(home.path()).args(given).arg(&saved));
    assert_eq!(on.code, 0, "what was saved can be gone on with: {on:?}");

    assert_eq!(chat(&[], &format!("{QUESTION}\n")).code, 4);
    assert_eq!(chat(&[QUESTION], "").code, 4);
    assert_eq!(chat(&[], &format!("{QUESTION}\n/undo\n")).code, 0, "nothing waits any more");
    let ran = chat(&["--tool-result", "get_weather=mild"], &format!("{QUESTION}\nThank you\n"));
    assert!(ran.code == 0 && ran.out.contains("← get_weather mild"), "{ran:?}");
}

#[cfg(target_os = "linux")]
#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn a_person_is_asked_for_the_result_of_each_call() {
    use crate::cli::chat::terminal::Terminal;
    let home = tempfile::tempdir().unwrap();
    let more = [QUESTION, "--execute", "--tools", TOOLS];
    let Some(mut terminal) = Terminal::start(home.path(), "run", &more) else { return };
    terminal.wait_for("Result of get_weather {\"city\":\"New York\"}: ", 1);
    terminal.type_keys("21 degrees\r");
    terminal.wait_for("Result of get_weather {\"city\":\"San Francisco\"}: ", 1);
    terminal.type_keys("16 degrees\r");
    let shown = terminal.ends();
    assert!(shown.contains("← get_weather 21 degrees") && shown.contains("← get_weather 16 degrees"), "{shown}");
}

/// A session with the tool `weather`, which runs, and `clock`, which does not.
fn with_clock(
    answer: &str,
    by_hand: impl Fn(&ToolCall) -> Option<String> + Send + Sync + 'static,
) -> (callwright::session::Session, callwright::agent::Agent) {
    let (mut session, mut agent, _) = prepared([answer, "Good day."]);
    let clock = Tools::from_json(r#"[{"name": "clock", "parameters": {"type": "object"}}]"#, "clock.json").unwrap();
    session.set_tools(Tools::new(session.tools().iter().chain(clock.iter()).cloned()).unwrap());
    agent.executor.by_hand = Some(Box::new(by_hand));
    (session, agent)
}

#[test]
fn what_can_be_run_is_run_and_the_rest_left_open() {
    let answer = [weather("Rome"), call("clock", "{}"), call("weather", "{}")].join("\n");
    let (mut session, mut agent) = with_clock(&answer, |_| None);
    session.set_messages(vec![Message::user("?")]).unwrap();
    let mut reported = Vec::new();
    let outcome = session
        .run(&mut agent, &mut |event| {
            if let Event::ToolResult(result) = event {
                reported.push(result.name.clone());
            }
        })
        .unwrap();
    assert_eq!((outcome.status, outcome.finish_reason), (Status::ToolCalls, FinishReason::ToolCalls));
    assert_eq!(reported, ["weather"], "no result of the clock is reported");
    check_order(session.messages()).unwrap();
    let open: Vec<&str> = open_calls(session.messages()).unwrap().iter().map(|call| call.name.as_str()).collect();
    assert_eq!(open, ["clock"]);
    // The other call of weather does not fit its schema: its result says so.
    let results: Vec<&str> = session.messages()[2..].iter().map(|message| message.content.as_str()).collect();
    assert!(results.len() == 2 && results[0] == "sunny in Rome" && results[1].starts_with("error"), "{results:?}");
    let id = open_calls(session.messages()).unwrap()[0].id.clone().unwrap();
    let mut messages = session.messages().to_vec();
    messages.push(Message::tool(id, "clock", "12:00"));
    session.set_messages(messages).unwrap();
    let outcome = session.run(&mut agent, &mut |_| ()).unwrap();
    assert_eq!(outcome.status, Status::Done);
}

#[test]
fn a_hand_gives_results_and_may_be_interrupted() {
    let (mut session, mut agent) = with_clock(&call("clock", "{}"), |call| Some(format!("{} says 12:00", call.name)));
    let outcome = session.ask_and_run("?", &mut agent).unwrap();
    assert_eq!((outcome.status, session.messages()[2].content.as_str()), (Status::Done, "clock says 12:00"));

    let (mut session, mut agent) = with_clock(&call("clock", "{}"), |_| None);
    let cancel = Arc::clone(&session.options().cancel);
    agent.executor.by_hand = Some(Box::new(move |_| {
        cancel.store(true, Ordering::Relaxed);
        None
    }));
    let outcome = session.ask_and_run("?", &mut agent).unwrap();
    assert_eq!((outcome.status, session.messages()[2].role), (Status::Cancelled, Role::Tool));
    assert!(open_calls(session.messages()).unwrap().is_empty());
}

#[test]
fn a_call_that_a_fallback_model_corrected_is_left_open_in_its_corrected_form() {
    let (mut session, mut agent) = with_clock(&call("clock", "{}"), |_| None);
    let schema = r#"{"type": "object", "properties": {"zone": {"type": "string"}}, "required": ["zone"]}"#;
    let clock = format!(r#"[{{"name": "clock", "parameters": {schema}}}]"#);
    session.set_tools(Tools::from_json(&clock, "clock.json").unwrap());
    agent.limits.retry = false;
    let mended = "\", \"arguments\": {\"zone\": \"UTC\"}}\n### TOOL_CALL_END ###";
    agent.fallbacks = Some(fallbacks(&[("helper", &[mended])]));
    let outcome = session.ask_and_run("?", &mut agent).unwrap();
    assert_eq!((outcome.status, session.messages().len()), (Status::ToolCalls, 2), "{outcome:?}");
    let open = open_calls(session.messages()).unwrap();
    assert_eq!(open[0].arguments.to_text(), r#"{"zone":"UTC"}"#);
}

/// A result that is given is no program that runs: nobody is asked about it.
#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn nobody_is_asked_about_a_tool_whose_result_is_given() {
    let home = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(PROGRAM).unwrap();
    let tools = home.path().join("tools.toml");
    std::fs::write(&tools, text.replace("timeout_s = 5", "confirm = true")).unwrap();
    let ran = execute(home.path(), tools.to_str().unwrap(), &["--tool-result", "get_weather=mild"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
    assert_eq!(ran.out.matches("← get_weather mild\n").count(), 2, "{}", ran.out);
}

/// A library user who sets no way to type results in has the model informed, as before.
#[test]
fn without_results_by_hand_the_model_gets_an_error() {
    let (mut session, mut agent) = with_clock(&call("clock", "{}"), |_| None);
    agent.executor.by_hand = None;
    let outcome = session.ask_and_run("?", &mut agent).unwrap();
    assert_eq!(outcome.status, Status::Done);
    assert!(session.messages()[2].content.contains("nothing says how the tool clock is run"));
}
