//! A program that is killed in the middle of a run, and goes on.

use crate::engine::model_server::{Answer, ModelServer};
use crate::program::at_home;
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const ITEMS: [&str; 3] = ["a", "b", "c"];

/// The model: a call, two calls at a time, and a text. What it answers depends on the conversation alone.
fn script(request: &Value) -> Answer {
    let messages = request["messages"].as_array().unwrap();
    let call = |index: usize| {
        let function = json!({"name": "note", "arguments": json!({"item": ITEMS[index]}).to_string()});
        json!({"index": index.saturating_sub(1), "id": format!("call_{}", ITEMS[index]), "type": "function", "function": function})
    };
    match messages.iter().filter(|message| message["role"] == "tool").count() {
        0 => Answer::Deltas(vec![json!({"tool_calls": [call(0)]})], "tool_calls"),
        1 => Answer::Deltas(vec![json!({"tool_calls": [call(1), call(2)]})], "tool_calls"),
        _ => Answer::Deltas(vec![json!({"content": "All is noted."})], "stop"),
    }
}

/// Runs the program, and kills it after some time, unless it has ended before.
fn run(home: &Path, url: &str, arguments: &[String], kill: Option<Duration>) -> Output {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("callwright"));
    at_home(&mut command, home);
    command.env("NO_PROXY", "*").args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if arguments[0] == "run" {
        command.args(["--model", &format!("openai-chat:{url}")]);
    }
    let mut child = command.spawn().unwrap();
    if let Some(after) = kill {
        std::thread::sleep(after);
        child.kill().unwrap();
    }
    child.wait_with_output().unwrap()
}

/// The decisions about the calls before which a run paused: what may have been executed is denied.
fn decide(said: &str, unknown: &mut Vec<String>) -> Vec<String> {
    let waits = said.lines().filter(|line| line.starts_with("  call_"));
    let mut options = Vec::new();
    for line in waits {
        let id = line.split_whitespace().next().unwrap();
        let begun = line.contains("may have been executed");
        if begun {
            assert!(said.contains(&format!("the call {id} had begun when the program ended")), "{said}");
            unknown.push(id.to_owned());
        }
        options.extend([if begun { "--deny" } else { "--approve" }.to_owned(), id.to_owned()]);
    }
    options
}

/// `CALLWRIGHT_KILLS` sets another number of runs.
#[test]
#[cfg(unix)]
fn a_run_that_is_killed_at_any_time_goes_on_and_does_nothing_twice() {
    let runs = std::env::var("CALLWRIGHT_KILLS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(20);
    let server = ModelServer::start([]).answering(script);
    let home = tempfile::tempdir().unwrap();
    let (log, journal, tools) =
        (home.path().join("log"), home.path().join("run.jsonl"), home.path().join("tools.toml"));
    let shell = format!(
        "item=$(cat | tr -dc abc | tail -c 1); sleep 0.01; echo $item >> {}; sleep 0.01; echo noted",
        log.display()
    );
    let schema =
        "parameters = { type = \"object\", required = [\"item\"], properties = { item = { type = \"string\" } } }";
    let text =
        format!("[[tool]]\nname = \"note\"\neffect = \"write\"\ncommand = [\"sh\", \"-c\", {shell:?}]\n{schema}\n");
    std::fs::write(&tools, text).unwrap();
    let first =
        ["run", "Note it.", "--execute", "--tools", tools.to_str().unwrap(), "--journal", journal.to_str().unwrap()];
    let begun = Instant::now();
    let whole = run(home.path(), &server.url, &first.map(str::to_owned), None);
    assert!(whole.status.success(), "{whole:?}");
    let longest = begun.elapsed().as_micros() as u64;
    let (mut random, mut kills, mut unknowns) = (42_u64, 0, 0);
    for number in 0..runs {
        let _ = std::fs::remove_file(&log);
        let _ = std::fs::remove_file(&journal);
        let (mut left, mut decisions, mut unknown) = (1 + number % 2, Vec::new(), Vec::new());
        loop {
            let lines = std::fs::read_to_string(&journal).unwrap_or_default();
            let goes_on = lines.contains('\n');
            assert!(goes_on || !log.exists(), "{number}: something was executed before the journal was begun");
            let resume = ["resume", journal.to_str().unwrap()].map(str::to_owned);
            let arguments =
                if goes_on { [&resume[..], &decisions].concat() } else { first.map(str::to_owned).to_vec() };
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let kill = (left > 0).then(|| Duration::from_micros((random >> 33) % longest));
            left -= i32::from(kill.is_some());
            let ran = run(home.path(), &server.url, &arguments, kill);
            let said = String::from_utf8_lossy(&ran.stderr);
            decisions.clear();
            match ran.status.code() {
                None => kills += 1,
                Some(0) => break,
                Some(4) => decisions = decide(&said, &mut unknown),
                // It was killed after its end.
                Some(2) if said.contains("the run has ended: done") => break,
                _ => panic!("{number}: {ran:?}"),
            }
        }
        let noted = std::fs::read_to_string(&log).unwrap_or_default();
        for item in ITEMS {
            let times = noted.lines().filter(|line| *line == item).count();
            let reported = unknown.contains(&format!("call_{item}"));
            assert!(times == 1 || times == 0 && reported, "{number}: {item} was noted {times} times");
        }
        let entries = std::fs::read_to_string(&journal).unwrap();
        let entries: Vec<Value> = entries.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let joined = entries.iter().filter_map(|entry| entry["beside"]["messages"].as_array()).flatten();
        let said: Vec<&Value> = joined.collect();
        let results = said.iter().filter(|message| message["role"] == "tool").count();
        assert_eq!((results, &said.last().unwrap()["content"]), (3, &json!("All is noted.")), "{number}");
        unknowns += unknown.len();
    }
    println!("{runs} runs, {kills} kills, {unknowns} calls reported as unknown");
    assert!(kills >= runs / 2, "{kills} kills in {runs} runs");
}
