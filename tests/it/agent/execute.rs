//! `run --execute` and `chat` as programs, with the bundled model.

use crate::program::{Ran, callwright, run};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const QUESTION: &str = "What's the weather in New York and San Francisco?";
const TOOLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/weather.toml");

fn execute(home: &Path, more: &[&str]) -> Ran {
    execute_question(home, QUESTION, more)
}

fn execute_question(home: &Path, question: &str, more: &[&str]) -> Ran {
    run(callwright(home).env("XDG_STATE_HOME", home.join("state")).args(["run", question, "--execute"]).args(more))
}

/// A tools file with a `get_weather` that is run like this.
fn tools(home: &Path, command: &str) -> String {
    let path = home.join("tools.toml");
    let text = std::fs::read_to_string(TOOLS).unwrap();
    let text = if command.contains("effect") { text.replace("effect = \"read\"\n", "") } else { text };
    std::fs::write(&path, text.replace("command = [\"./tools/weather.sh\"]\ntimeout_s = 5", command)).unwrap();
    path.display().to_string()
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
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
            "← get_weather {\"temp\": 21, \"sky\": \"sunny\"}",
            "← get_weather {\"temp\": 16, \"sky\": \"foggy\"}",
        ]
    );
    assert!(lines.len() == 5 && !lines[4].is_empty(), "{}", ran.out);
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn a_call_that_was_closed_for_want_of_tokens_is_not_executed() {
    let home = tempfile::tempdir().unwrap();
    let few = ["--max-tokens", "22", "--no-regenerate"];
    let ran = execute(home.path(), &[&["--tools", TOOLS, "--output", "events"], &few[..]].concat());
    assert!(ran.out.contains("the call was closed early"), "{}", ran.out);
    assert!(ran.out.contains(r#""complete":false"#) && !ran.out.contains(r#""complete":true"#), "{}", ran.out);
    assert!(!ran.out.contains("tool_result"), "{}", ran.out);
    assert!(ran.out.contains("was not executed: the tokens ran out before its end"), "{}", ran.out);
    // The answer in words that came of it was cut off, too, which is a note wherever it happens.
    assert!(ran.code == 0 && ran.err.contains("the answer was cut off by --max-tokens 22"), "{}", ran.err);
}

/// Whoever executes the calls has nothing but what is said of them.
#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn a_call_closed_at_the_token_limit_is_not_reported_as_complete() {
    let home = tempfile::tempdir().unwrap();
    let record = home.path().join("run.jsonl");
    let few = ["--max-tokens", "22", "--output", "json"];
    let asked = [&["run", QUESTION, "--tools", TOOLS, "--record", record.to_str().unwrap()][..], &few].concat();
    let first = run(callwright(home.path()).args(asked));
    let again = run(callwright(home.path()).args(["run", "--replay", record.to_str().unwrap(), "--output", "json"]));
    for ran in [first, again] {
        let document: Value = serde_json::from_str(&ran.out).unwrap_or_else(|e| panic!("{e}: {}{}", ran.out, ran.err));
        assert_eq!(document["finish_reason"], "length", "{document}");
        assert!(ran.out.contains("the tokens ran out before its end"), "{}", ran.out);
        let answer = document["messages"].as_array().unwrap().last().unwrap();
        assert_eq!(answer["tool_calls"], Value::Null, "{document}");
        assert_eq!(answer["invalid_tool_calls"][0]["name"], "get_weather", "{document}");
        let path = home.path().join("earlier.json");
        std::fs::write(&path, &ran.out).unwrap();
        let more = ["run", "Go on.", "--output", "json", "--messages"];
        let more = run(callwright(home.path()).args(more).arg(&path));
        assert_eq!(more.code, 0, "{}", more.err);
        let more: Value = serde_json::from_str(&more.out).unwrap();
        let said = more["messages"][1]["content"].as_str().unwrap();
        assert!(said.contains("get_weather"), "the history holds what was said: {more}");
    }
}

/// Few tokens may also turn an argument into another one, long before the last of them.
#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn whatever_the_limit_a_call_is_what_it_would_be_or_not_whole() {
    let home = tempfile::tempdir().unwrap();
    let question =
        ["run", "What's the weather in Beijing tomorrow?", "--tools", "examples/weather.json", "--temp", "0"];
    let calls = |limit: usize| {
        let ran = run(callwright(home.path())
            .args(question)
            .args(["--output", "json", "--max-tokens", &limit.to_string()])
            .current_dir(env!("CARGO_MANIFEST_DIR")));
        let document: Value = serde_json::from_str(&ran.out).unwrap_or_else(|e| panic!("{e}: {}{}", ran.out, ran.err));
        let whole = !ran.out.contains("the tokens ran out") && document["finish_reason"] == "tool_calls";
        (whole, document["messages"].as_array().unwrap().last().unwrap()["tool_calls"].clone(), ran.out)
    };
    let (whole, free, out) = calls(200);
    assert!(whole && free.as_array().is_some_and(|calls| calls.len() == 1), "{out}");
    let mut closed = 0;
    for limit in 16..=34 {
        let (whole, made, out) = calls(limit);
        closed += usize::from(!whole);
        assert!(!whole || made[0]["function"] == free[0]["function"], "{limit}: {out}");
    }
    assert!(closed > 3 && calls(34).0, "{closed}");
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
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
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
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
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
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
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn another_model_writes_the_call_that_keeps_failing() {
    let home = tempfile::tempdir().unwrap();
    // It complains of the first call, and is content with the second.
    let script = "read -r line; name=$(echo \"$line\" | cksum | cut -d' ' -f1); test -e $name || { touch $name; echo 'ask another way' >&2; exit 1; }; echo fine";
    let command = format!(
        "command = [\"sh\", \"-c\", {}]\ncwd = \".\"",
        toml::Value::from(script.replace("read -r line", "line=$(cat)"))
    );
    let tools = tools(home.path(), &command);
    // For one city: which of two a call is for that another model writes anew is up to the model.
    let ran = execute_question(
        home.path(),
        "What's the weather in New York?",
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
fn tools_that_cannot_be_executed_are_reported_before_the_model_is_loaded() {
    let home = tempfile::tempdir().unwrap();
    let json = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/weather.json");
    let missing = tools(home.path(), "command = [\"./nothere.sh\"]");
    let mut report = String::new();
    for args in [
        vec!["run", "?", "--execute"],
        vec!["run", "?", "--execute", "--tools", json, "--tool-result", "get_wether=21"],
        vec!["run", "?", "--execute", "--tools", json, "--tool-result", "get_weather"],
        vec!["run", "?", "--execute", "--tools", json, "--tool-result", "get_weather=@/nowhere/result.txt"],
        vec![
            "run",
            "?",
            "--execute",
            "--tools",
            json,
            "--tool-result",
            "get_weather=1",
            "--tool-result",
            "get_weather=2",
        ],
        vec!["run", "?", "--tools", json, "--tool-result", "get_weather=21"],
        vec!["run", "?", "--tools", TOOLS, "--max-turns", "3"],
        vec!["run", "?", "--tools", TOOLS, "--no-fallback-tool"],
        vec!["run", "?", "--execute", "--tools", TOOLS, "--fallback-tool-models", "no-such-model"],
        vec!["run", "?", "--execute", "--tools", "builtin:clock,abacus"],
        vec!["run", "?", "--execute", "--tools", TOOLS, "--max-turns", "0"],
        vec!["run", "?", "--execute", "--tools", &missing],
        vec!["run", "?", "--execute", "--tools", TOOLS, "--failure-log", "/dev/null/failures"],
        vec!["run", "--replay", "run.jsonl", "--max-turns", "3"],
        vec!["run", "--replay", "run.jsonl", "--execute"],
        vec!["run", "?", "--execute", "--tools", TOOLS, "--record", "run.jsonl", "--fallback-tool-models", "bundled"],
        vec!["chat", "--tool-result", "get_weather=21"],
    ] {
        let ran = run(callwright(home.path()).args(&args));
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{args:?} {ran:?}");
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/");
        report += &format!("$ callwright {}\n{}\n", args.join(" "), ran.err)
            .replace(root, "")
            .replace(&home.path().display().to_string(), "<home>");
    }
    insta::assert_snapshot!("execution_that_is_refused", report);
}

/// A script that was just written has no such right, and the model could not do anything about it.
#[test]
#[cfg(unix)]
fn a_program_without_the_right_to_be_executed_is_named_before_the_model_is_loaded() {
    let home = tempfile::tempdir().unwrap();
    let script = home.path().join("weather.sh");
    std::fs::write(&script, "#!/bin/sh\necho sunny\n").unwrap();
    let tools = tools(home.path(), "command = [\"./weather.sh\"]");
    let ran = run(callwright(home.path()).args(["run", "?", "--execute", "--tools", &tools]));
    assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{ran:?}");
    let script = script.display();
    let expected = format!(
        "error: the program of the tool \"get_weather\" may not be executed: {script}\nhint: chmod +x {script}\n"
    );
    assert_eq!(ran.err, expected);
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn a_tool_that_is_to_be_asked_about_is_not_run_where_nobody_can_be_asked() {
    let home = tempfile::tempdir().unwrap();
    let tools = tools(home.path(), "command = [\"sh\", \"-c\", \"echo 21 degrees\"]\nconfirm = true");
    let ran = execute(home.path(), &["--tools", &tools]);
    assert_eq!(ran.code, 4, "{ran:?}");
    assert!(ran.err.contains("the run paused before calls that need approval"), "{}", ran.err);
    assert!(ran.err.contains("it has `confirm = true`"), "{}", ran.err);
    let ran = execute(home.path(), &["--tools", &tools, "--yes"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("← get_weather 21 degrees"), "{}", ran.out);
}

/// The program while it answers the question with these tools.
fn executing(home: &Path, tools: &str) -> std::process::Child {
    Command::new(assert_cmd::cargo::cargo_bin!("callwright"))
        .args(["run", QUESTION, "--execute", "--output", "json", "--tools", tools])
        .env("HOME", home)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn ctrl_c_kills_the_tools_and_keeps_the_conversation() {
    let home = tempfile::tempdir().unwrap();
    let mark = home.path().join("running");
    let script = format!("echo $$ > {}; sleep 600; echo late", mark.display());
    let tools = tools(home.path(), &format!("command = [\"sh\", \"-c\", {script:?}]"));
    let child = executing(home.path(), &tools);
    let started = Instant::now();
    while !std::fs::read_to_string(&mark).is_ok_and(|id| id.ends_with('\n'))
        && started.elapsed() < Duration::from_secs(60)
    {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
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
#[cfg(target_os = "linux")]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn no_process_of_a_tool_survives_a_program_that_is_killed() {
    let home = tempfile::tempdir().unwrap();
    let mark = home.path().join("running");
    let script = format!("sleep 600 & echo $! > {0}.part; echo $$ >> {0}.part; mv {0}.part {0}; wait", mark.display());
    let tools = tools(home.path(), &format!("command = [\"sh\", \"-c\", {script:?}]"));
    let mut child = executing(home.path(), &tools);
    let started = Instant::now();
    while !mark.exists() {
        assert!(started.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    for id in std::fs::read_to_string(&mark).unwrap().lines() {
        let runs = || std::fs::read_to_string(format!("/proc/{id}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
        let killed = Instant::now();
        while runs() {
            assert!(killed.elapsed() < Duration::from_secs(60), "process {id} lives on");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn an_overflow_in_the_middle_prints_what_was_done() {
    let home = tempfile::tempdir().unwrap();
    let tools = tools(home.path(), "command = [\"sh\", \"-c\", \"yes sunny | head -c 3000\"]");
    let small = ["--tools", &tools, "--ctx", "512", "--context-policy", "error"];
    let with = |output: &str| execute(home.path(), &[&small[..], &["--output", output]].concat());

    let ran = with("json");
    assert_eq!(ran.code, 1, "{ran:?}");
    let overflow = "the prompt has ";
    assert!(ran.err.starts_with(&format!("error: {overflow}")), "{}", ran.err);
    let document: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((&document["status"], &document["finish_reason"]), (&"error".into(), &"error".into()));
    assert!(document["error"].as_str().unwrap().starts_with(overflow), "{document}");
    assert_eq!(document["usage"]["models"][0]["answers"], 1);
    let roles: Vec<&str> =
        document["messages"].as_array().unwrap().iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "tool"]);
    assert!(document["messages"][2]["content"].as_str().unwrap().starts_with("sunny\nsunny\n"), "{document}");

    let ran = with("events");
    assert_eq!(ran.code, 1, "{ran:?}");
    let events: Vec<Value> = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events.iter().filter(|event| event["type"] == "tool_result").count(), 2);
    let (done, sum) = (&events[events.len() - 2], &events[events.len() - 1]);
    assert_eq!((&done["type"], &done["status"]), (&"done".into(), &"error".into()));
    assert_eq!((&sum["type"], &sum["status"]), (&"summary".into(), &"error".into()));
    assert!(done["error"].as_str().unwrap().starts_with(overflow), "{done}");

    let ran = with("text");
    assert_eq!((ran.code, ran.out.matches("← get_weather sunny sunny").count()), (1, 2), "{ran:?}");
    assert!(ran.err.contains(&format!("error: {overflow}")), "{}", ran.err);

    // Where already the first prompt does not fit, nothing was done, and the input is at fault.
    let ran =
        execute(home.path(), &["--tools", &tools, "--ctx", "16", "--context-policy", "error", "--output", "events"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    let done: Value = serde_json::from_str(ran.out.trim()).unwrap();
    assert_eq!((&done["type"], &done["finish_reason"]), (&"done".into(), &"error".into()));
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn a_run_is_recorded_and_repeated_without_its_tools() {
    let home = tempfile::tempdir().unwrap();
    let (recording, mark) = (home.path().join("run.jsonl"), home.path().join("ran"));
    let tools = tools(home.path(), &format!("command = [\"sh\", \"-c\", \"echo x >> {0}; cat {0}\"]", mark.display()));
    let file = recording.to_str().unwrap();
    let ran = execute(home.path(), &["--tools", &tools, "--tool-jobs", "1", "--record", file]);
    let executed = std::fs::read_to_string(&mark).unwrap();
    assert!(ran.out.contains("← get_weather x\n← get_weather x x\n"), "{ran:?}");
    let again = run(callwright(home.path()).args(["run", "--replay", file]));
    assert_eq!((again.code, again.out), (ran.code, ran.out));
    assert_eq!(std::fs::read_to_string(&mark).unwrap(), executed, "a tool was executed");
    // What a crash leaves before the first tool is executed.
    let text = std::fs::read_to_string(file).unwrap();
    let begun = text.find("{\"beside\":{\"begun\"").unwrap();
    std::fs::write(file, &text[..begun + 9]).unwrap();
    let again = run(callwright(home.path()).args(["run", "--replay", file]));
    assert!(
        again.code == 1 && again.err.contains("the recording ends after 1 answer, because it was interrupted"),
        "{again:?}"
    );
    assert!(again.err.contains(&format!("hint: callwright resume {file} goes on with the run")), "{again:?}");
    std::fs::remove_file(&mark).unwrap();
    let resumed = run(callwright(home.path()).args(["resume", file, "--yes"]));
    assert!(resumed.code == 0 && std::fs::read_to_string(&mark).unwrap() == executed, "{resumed:?}");
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn a_pause_is_repeated_and_a_journal_has_nothing_to_repeat() {
    let home = tempfile::tempdir().unwrap();
    let tools = tools(home.path(), "command = [\"echo\", \"21\"]\neffect = \"destructive\"");
    let files = ["run.jsonl", "journal.jsonl"].map(|name| home.path().join(name).display().to_string());
    let options = ["--tools", &tools, "--record", &files[0], "--journal", &files[1]];
    let ran = execute_question(home.path(), "What's the weather in Rome?", &options);
    let paused = |ran: &Ran| ran.err.lines().find(|line| line.contains("it is destructive")).map(str::to_owned);
    let again = run(callwright(home.path()).args(["run", "--replay", &files[0]]));
    assert!(again.code == 4 && paused(&again).is_some() && paused(&again) == paused(&ran), "{again:?}");
    assert!(again.err.contains("hint: callwright resume goes on with the recorded run"), "{again:?}");
    let journal = run(callwright(home.path()).args(["run", "--replay", &files[1]]));
    assert!(
        journal.code == 2 && journal.err.contains("a journal without a recording has no tokens to repeat"),
        "{journal:?}"
    );
    assert!(journal.err.contains(&format!("callwright resume {} goes on with the run", files[1])), "{journal:?}");
}

#[test]
fn a_run_is_repeated_as_it_was_recorded() {
    let home = tempfile::tempdir().unwrap();
    let help = run(callwright(home.path()).args(["run", "--help"])).out;
    let options = help.lines().filter_map(|line| line.trim_start().strip_prefix('-')).filter_map(|line| {
        let mut words = line[line.find("--").map_or(0, |at| at + 1)..].split_whitespace();
        Some((format!("-{}", words.next()?.trim_end_matches('.')), words.next()))
    });
    let mut refused = 0;
    for (option, value) in options {
        if !option.starts_with("--") || ["--output", "--replay", "--help", "--verbose"].contains(&option.as_str()) {
            continue;
        }
        let mut command = callwright(home.path());
        command.args(["run", "--replay", "run.jsonl", &option]);
        if value.is_some_and(|value| value.starts_with('<')) {
            command.arg(match option.as_str() {
                "--constrain" | "--other-forms" | "--flash-attn" | "--fit" => "off",
                "--cache-type-k" | "--cache-type-v" => "f16",
                "--context-policy" | "--images" => "error",
                "--tool-result" => "get_weather=1",
                "--otlp" => "http://127.0.0.1:1",
                _ => "1",
            });
        }
        let ran = run(&mut command);
        let said = ran.err.contains("cannot be used with");
        assert!(ran.code == 2 && said && ran.err.contains(&option), "{option}: {ran:?}");
        refused += 1;
    }
    assert!(refused > 40, "{refused}");
}

#[test]
fn a_conversation_that_cannot_be_answered_is_refused_before_the_model_is_loaded() {
    let home = tempfile::tempdir().unwrap();
    let mut report = String::new();
    for (what, conversation) in [("empty", "[]"), ("system", r#"[{"role": "system", "content": "Be brief."}]"#)] {
        let path = home.path().join(format!("{what}.json"));
        std::fs::write(&path, conversation).unwrap();
        let file = path.to_str().unwrap();
        let ran = run(callwright(home.path()).args(["run", "--messages", file, "-m", "no-such-model.gguf"]));
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{what} {ran:?}");
        report += &format!("$ callwright run --messages {file}\n{}\n", ran.err)
            .replace(&home.path().display().to_string(), "<home>");
    }
    insta::assert_snapshot!("conversations_that_are_refused", report);
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn a_run_that_pauses_goes_on_with_the_approval_of_exactly_this_call() {
    let home = tempfile::tempdir().unwrap();
    let script = format!("echo x >> {}; echo 21 degrees", home.path().join("ran").display());
    let tools = tools(home.path(), &format!("command = [\"sh\", \"-c\", {script:?}]\neffect = \"destructive\""));
    let journal = home.path().join("run.jsonl");
    let journal = journal.to_str().unwrap();
    let ran = execute_question(home.path(), "What's the weather in Rome?", &["--tools", &tools, "--save", journal]);
    assert_eq!(ran.code, 4, "{ran:?}");
    assert!(ran.err.contains(&format!("hint: callwright resume {journal} --approve ID")), "{}", ran.err);
    assert!(ran.err.contains("--yes executes such calls without asking"), "{}", ran.err);
    let pending = ran.err.lines().find(|line| line.contains("it is destructive")).expect("the call that waits");
    let (id, hash) = (pending.split_whitespace().next().unwrap(), pending.split("hash ").nth(1).unwrap());
    let hash = hash.split(')').next().unwrap();
    let resume = |options: &[&str]| run(callwright(home.path()).args(["resume", journal]).args(options));
    let count = || std::fs::read_to_string(home.path().join("ran")).unwrap_or_default().lines().count();
    for (options, message) in [
        (vec!["--approve", "call99999"], "no call \"call99999\" waits for approval\nhint: these wait: "),
        (vec!["--approve", &format!("{id}=0123")], &format!("the call {id} has the hash {hash}, not 0123")),
        (vec!["--approve", id, "--deny", id], &format!("the call {id} is named twice")),
    ] {
        let refused = resume(&options);
        assert!(refused.code == 2 && refused.err.contains(message), "{refused:?}");
    }
    // Without a decision it pauses again.
    assert_eq!((resume(&[]).code, count()), (4, 0));
    let exact = format!("{id}={hash}");
    let went_on = resume(&["--approve", &exact]);
    assert!(went_on.code == 0 && went_on.out.contains("← get_weather 21 degrees"), "{went_on:?}");
    assert_eq!(count(), 1);
    let ended = resume(&["--approve", id]);
    assert!(ended.code == 2 && ended.err.contains("no call"), "{ended:?}");
    assert!(resume(&[]).err.contains("the run has ended: done"));
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn a_journal_that_nobody_named_goes_when_the_run_has_ended() {
    let home = tempfile::tempdir().unwrap();
    let tools = tools(home.path(), "command = [\"echo\", \"21 degrees\"]\neffect = \"destructive\"");
    let ran = execute_question(home.path(), "What's the weather in Rome?", &["--tools", &tools]);
    let hint = ran.err.split("callwright resume ").nth(1).expect("a pause names its journal");
    let journal = hint.split(" --approve").next().unwrap();
    assert!(Path::new(journal).starts_with(home.path().join("state")), "{ran:?}");
    let state = home.path().join("state");
    let resume = |option: &str| {
        run(callwright(home.path())
            .env("XDG_STATE_HOME", &state)
            .args(["resume", journal])
            .args(option.split_terminator(' ')))
    };
    assert!(resume("").code == 4 && Path::new(journal).exists());
    let ended = resume("--yes");
    assert!(ended.code == 0 && !Path::new(journal).exists(), "{ended:?}");
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn calls_at_the_end_of_a_conversation_are_executed() {
    let home = tempfile::tempdir().unwrap();
    let tools = tools(home.path(), "command = [\"echo\", \"21 degrees\"]\neffect = \"destructive\"");
    let call = serde_json::json!({"id": "a", "type": "function", "function": {"name": "get_weather", "arguments": "{\"city\": \"Rome\"}"}});
    let messages = serde_json::json!([
        {"role": "user", "content": "What's the weather in Rome?"},
        {"role": "assistant", "content": null, "tool_calls": [call]},
    ]);
    let file = home.path().join("messages.json");
    std::fs::write(&file, messages.to_string()).unwrap();
    let execute = |options: &[&str]| {
        let file = file.to_str().unwrap();
        run(callwright(home.path()).args(["run", "--messages", file, "--tools", &tools, "--execute"]).args(options))
    };
    assert_eq!(execute(&[]).code, 4);
    let ran = execute(&["--yes"]);
    assert!(ran.code == 0 && ran.out.contains("← get_weather 21 degrees"), "{ran:?}");
}
