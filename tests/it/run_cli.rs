//! `run --execute` and `chat` as programs, with the bundled model.

use crate::program::{Ran, callwright, run};
use serde_json::Value;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const QUESTION: &str = "What's the weather in New York and San Francisco?";
const TOOLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/weather.toml");

fn execute(home: &Path, more: &[&str]) -> Ran {
    run(callwright(home).env("XDG_STATE_HOME", home.join("state")).args(["run", QUESTION, "--execute"]).args(more))
}

/// A tools file with a `get_weather` that is run like this.
fn tools(home: &Path, command: &str) -> String {
    let path = home.join("tools.toml");
    let text = std::fs::read_to_string(TOOLS).unwrap();
    std::fs::write(&path, text.replace("command = [\"./tools/weather.sh\"]\ntimeout_s = 5", command)).unwrap();
    path.display().to_string()
}

#[test]
fn two_calls_two_results_one_answer() {
    let home = tempfile::tempdir().unwrap();
    let ran = execute(home.path(), &["--tools", TOOLS]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let lines: Vec<&str> = ran.out.lines().collect();
    assert_eq!(
        lines[..4],
        [
            "→ get_weather {\"city\": \"New York\"}",
            "→ get_weather {\"city\": \"San Francisco\"}",
            "← get_weather New York: 21 °C, sunny",
            "← get_weather San Francisco: 16 °C, fog",
        ]
    );
    assert!(lines.len() == 5 && !lines[4].is_empty(), "{}", ran.out);
}

#[test]
fn a_call_that_was_closed_for_want_of_tokens_is_not_executed() {
    let home = tempfile::tempdir().unwrap();
    let few = ["--max-tokens", "22", "--no-regenerate"];
    let ran = execute(home.path(), &[&["--tools", TOOLS, "--output", "events"], &few[..]].concat());
    assert!(ran.out.contains("the call was closed early"), "{}", ran.out);
    assert!(!ran.out.contains("tool_result"), "{}", ran.out);
    assert!(ran.out.contains("was not executed: the tokens ran out before its end"), "{}", ran.out);
    assert_eq!(ran.code, 1, "{}", ran.err);
}

#[test]
fn the_document_of_a_run_can_be_gone_on_with() {
    let home = tempfile::tempdir().unwrap();
    let ran = execute(home.path(), &["--tools", TOOLS, "--output", "json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let document: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((&document["status"], &document["finish_reason"]), (&"done".into(), &"stop".into()));
    let roles: Vec<&str> =
        document["messages"].as_array().unwrap().iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "tool", "assistant"]);
    assert_eq!(document["usage"]["models"][0]["answers"], 2);
    let path = home.path().join("earlier.json");
    std::fs::write(&path, &ran.out).unwrap();
    let again = run(callwright(home.path())
        .args(["run", "And in Beijing?", "--execute", "--tools", TOOLS, "--output", "json", "--messages"])
        .arg(&path));
    assert!(again.code <= 1, "{}", again.err);
    let document: Value = serde_json::from_str(&again.out).unwrap();
    assert!(document["messages"].as_array().unwrap().len() > 6);
}

#[test]
fn nothing_is_decoded_twice() {
    let home = tempfile::tempdir().unwrap();
    let ran = execute(home.path(), &["--tools", TOOLS, "--output", "events"]);
    let usages: Vec<Value> = ran
        .out
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|event| event["type"] == "usage")
        .collect();
    let number = |usage: &Value, key: &str| usage[key].as_u64().unwrap();
    assert_eq!(usages.len(), 2);
    assert_eq!(
        number(&usages[1], "cached_tokens"),
        number(&usages[0], "prompt_tokens") + number(&usages[0], "completion_tokens")
    );
}

#[test]
fn a_tool_that_fails_is_an_honest_failure() {
    let home = tempfile::tempdir().unwrap();
    let tools = tools(home.path(), "command = [\"sh\", \"-c\", \"echo no service >&2; exit 7\"]");
    let log = home.path().join("failures");
    let ran =
        execute(home.path(), &["--tools", &tools, "--max-tool-failures", "1", "--failure-log", log.to_str().unwrap()]);
    assert_eq!(ran.code, 1, "{ran:?}");
    let complaint = "error: a tool failed, and nothing helped: get_weather failed with exit status 7: no service";
    assert!(ran.err.contains(complaint), "{}", ran.err);
    assert!(ran.out.contains("← get_weather error: get_weather failed with exit status 7: no service"), "{}", ran.out);
    assert!(ran.err.contains("note: what was tried is in "), "{}", ran.err);
    assert_eq!(std::fs::read_dir(log).unwrap().count(), 1);
}

#[test]
fn another_model_writes_the_call_that_keeps_failing() {
    let home = tempfile::tempdir().unwrap();
    // It complains of the first call of each city, and is content with the second.
    let script = "read -r line; name=$(echo \"$line\" | cksum | cut -d' ' -f1); test -e $name || { touch $name; echo 'ask another way' >&2; exit 1; }; echo fine";
    let command = format!(
        "command = [\"sh\", \"-c\", {}]\ncwd = \".\"",
        toml::Value::from(script.replace("read -r line", "line=$(cat)"))
    );
    let tools = tools(home.path(), &command);
    let ran = execute(
        home.path(),
        &[
            "--tools",
            &tools,
            "--max-tool-failures",
            "1",
            "--fallback-tool-models",
            "bundled",
            "--learn-fallbacks",
            "--output",
            "events",
        ],
    );
    assert_eq!(ran.code, 0, "{ran:?}");
    let events: Vec<Value> = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let steps: Vec<&str> = events
        .iter()
        .filter(|event| event["type"] == "fallback")
        .map(|event| event["outcome"].as_str().unwrap())
        .collect();
    assert_eq!(steps[..2], ["asked", "called"], "{}", ran.out);
    assert!(events.iter().any(|event| event["type"] == "usage" && event["model"] == "bundled"));
    let rates = std::fs::read_to_string(home.path().join("state/callwright/fallbacks.json")).unwrap();
    assert!(rates.contains("get_weather"), "{rates}");
}

#[test]
fn what_cannot_be_executed_is_said_before_the_model_is_loaded() {
    let home = tempfile::tempdir().unwrap();
    let json = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/weather.json");
    let mut report = String::new();
    for args in [
        vec!["run", "?", "--execute"],
        vec!["run", "?", "--execute", "--tools", json],
        vec!["run", "?", "--tools", TOOLS, "--max-turns", "3"],
        vec!["run", "?", "--tools", TOOLS, "--no-fallback-tool"],
        vec!["run", "?", "--execute", "--tools", TOOLS, "--fallback-tool-models", "no-such-model"],
        vec!["run", "?", "--execute", "--tools", "builtin:clock,abacus"],
        vec!["run", "?", "--execute", "--tools", TOOLS, "--max-turns", "0"],
        vec!["chat", "--tools", json],
    ] {
        let ran = run(callwright(home.path()).args(&args));
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{args:?} {ran:?}");
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/");
        report += &format!("$ callwright {}\n{}\n", args.join(" "), ran.err).replace(root, "");
    }
    insta::assert_snapshot!("execution_that_is_refused", report);
}

#[test]
fn a_tool_that_is_to_be_asked_about_is_not_run_where_nobody_can_be_asked() {
    let home = tempfile::tempdir().unwrap();
    let tools = tools(home.path(), "command = [\"sh\", \"-c\", \"echo 21 degrees\"]\nconfirm = true");
    let ran = execute(home.path(), &["--tools", &tools, "--max-tool-failures", "1"]);
    assert_eq!(ran.code, 1);
    assert!(ran.out.contains("runs sh only after the user was asked, and nobody can be"), "{}", ran.out);
    let ran = execute(home.path(), &["--tools", &tools, "--yes"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("← get_weather 21 degrees"), "{}", ran.out);
}

#[test]
fn ctrl_c_kills_the_tools_and_keeps_the_conversation() {
    let home = tempfile::tempdir().unwrap();
    let mark = home.path().join("running");
    let script = format!("echo $$ > {}; sleep 60; echo late", mark.display());
    let tools = tools(home.path(), &format!("command = [\"sh\", \"-c\", {script:?}]"));
    let child = Command::new(assert_cmd::cargo::cargo_bin!("callwright"))
        .args(["run", QUESTION, "--execute", "--output", "json", "--tools", &tools])
        .env("HOME", home.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let started = Instant::now();
    while !std::fs::read_to_string(&mark).is_ok_and(|id| id.ends_with('\n'))
        && started.elapsed() < Duration::from_secs(60)
    {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert!(started.elapsed() < Duration::from_secs(50));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["status"], "cancelled");
    let messages = document["messages"].as_array().unwrap();
    assert_eq!(messages.iter().filter(|message| message["role"] == "tool").count(), 2);
    assert!(messages[2]["content"].as_str().unwrap().contains("the user interrupted get_weather"), "{messages:?}");
    let id = std::fs::read_to_string(&mark).unwrap();
    let state = std::fs::read_to_string(format!("/proc/{}/stat", id.trim())).unwrap_or_default();
    assert!(state.is_empty() || state.contains(") Z "), "the tool lives on: {state}");
}

#[test]
fn a_chat_is_saved_undone_and_loaded() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("chat.json");
    let broken = home.path().join("broken.json");
    let lines_file = home.path().join("lines.json");
    std::fs::write(&broken, "[{\"role\": \"nobody\", \"content\": \"\"}]").unwrap();
    let lines = [
        "/help".to_owned(),
        "/tools".to_owned(),
        "/template".to_owned(),
        "/undo".to_owned(),
        QUESTION.to_owned(),
        format!("/save {}", file.display()),
        "/undo".to_owned(),
        "/undo".to_owned(),
        format!("/load {}", file.display()),
        format!("/load {}", broken.display()),
        "/load".to_owned(),
        "/sing".to_owned(),
        "What's the weather in Beijing \\".to_owned(),
        "tomorrow?".to_owned(),
        format!("/save {}", lines_file.display()),
        "/quit".to_owned(),
        "never read".to_owned(),
    ];
    let mut child = callwright(home.path())
        .args(["chat", "--tools", TOOLS])
        .env("XDG_STATE_HOME", home.path().join("state"))
        .stdin_piped();
    child.stdin.take().unwrap().write_all((lines.join("\n") + "\n").as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(0), "{err}");
    assert!(out.contains("← get_weather New York: 21 °C, sunny\n← get_weather San Francisco: 16 °C, fog\n"), "{out}");
    for said in [
        "/undo             forget the last question",
        "get_weather: Get the weather forecast for a city",
        ", calls as ",
        "there is no question",
        "5 messages are in ",
        "0 messages are left",
        "5 messages\n",
        "messages[0].role is \"nobody\"",
        "/load FILE",
        "there is no /sing; /help says what there is",
    ] {
        assert!(err.contains(said), "{said:?} is not in {err}");
    }
    let asked: Value = serde_json::from_str(&std::fs::read_to_string(&lines_file).unwrap()).unwrap();
    assert_eq!(asked["messages"][5]["content"], "What's the weather in Beijing \ntomorrow?");
    let saved: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(saved["messages"].as_array().unwrap().len(), 5);
    assert_eq!(saved["tools"][0]["function"]["name"], "get_weather");
    let history = std::fs::read_to_string(home.path().join("state/callwright/chat_history")).unwrap();
    assert!(history.contains(QUESTION) && !history.contains("never read"), "{history}");
}

/// `assert_cmd` hands no running process out.
trait Piped {
    fn stdin_piped(&mut self) -> std::process::Child;
}

impl Piped for assert_cmd::Command {
    fn stdin_piped(&mut self) -> std::process::Child {
        let mut command = Command::new(self.get_program());
        command.args(self.get_args());
        for (name, value) in self.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }
}
