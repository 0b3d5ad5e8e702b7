//! `run`, `render` and `parse`, run as a program; and every complaint that bad input gets.

use crate::gguf_builder::GgufBuilder;
use crate::program::{Ran, callwright, run};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

const QUESTION: &str = "What's the weather in Beijing tomorrow?";
const TOOLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/weather.json");
const ARROWS: &str = "{#--- callwright\n[format]\nname = 'arrows'\nstart = '<<'\nend = '>>'\npayload = 'json'\n---#}";

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn a_question_and_tools_in_a_call_out() {
    let home = tempfile::tempdir().unwrap();
    let ran = run(callwright(home.path()).args(["run", QUESTION, "--tools", TOOLS]));
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let arguments = ran.out.strip_prefix("→ get_weather ").unwrap_or_else(|| panic!("{}", ran.out));
    let arguments: Value = serde_json::from_str(arguments).unwrap();
    assert_eq!(arguments["city"], "Beijing");
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn of_many_tools_those_that_fit_are_shown_and_a_note_says_so() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("tools.json");
    let topics =
        ["weather", "road", "hotel", "recipe", "music", "map", "news", "stock", "mail", "train", "gift", "tax", "boat"];
    for (count, options, shown) in [(12, &[][..], None), (13, &[], Some(8)), (13, &["--select-tools", "all"], None)] {
        let tool =
            |topic: &&str| serde_json::json!({"name": format!("get_{topic}"), "description": format!("Get a {topic}")});
        std::fs::write(&path, Value::from_iter(topics[..count].iter().map(tool)).to_string()).unwrap();
        let mut command = callwright(home.path());
        command.args(["run", QUESTION, "-n", "8", "--output", "events", "--tools"]).arg(&path).args(options);
        let ran = run(&mut command);
        let events: Vec<Value> = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let selected = events.iter().find(|event| event["type"] == "selected").map(|event| &event["tools"]);
        assert_eq!(selected.map(|tools| tools.as_array().unwrap().len()), shown, "{ran:?}");
        assert!(selected.is_none_or(|tools| tools.as_array().unwrap().contains(&Value::from("get_weather"))));
        let noted = "note: 13 tools are too many for a small model: it sees the 8 that fit the question best; --select-tools all";
        assert_eq!(ran.err.matches(noted).count(), usize::from(shown.is_some()), "{}", ran.err);
    }
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn json_is_one_document_that_can_be_gone_on_with() {
    let home = tempfile::tempdir().unwrap();
    let ran = run(callwright(home.path()).args(["run", QUESTION, "--tools", TOOLS, "--output", "json"]));
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let mut document: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(document["finish_reason"], "tool_calls");
    assert!(document["usage"]["completion_tokens"].as_u64().unwrap() > 5);
    let call = document["messages"][1]["tool_calls"][0].clone();
    assert_eq!(call["function"]["name"], "get_weather");

    let result = serde_json::json!({"role": "tool", "tool_call_id": call["id"], "content": "21 °C, sunny"});
    document["messages"].as_array_mut().unwrap().push(result);
    let path = home.path().join("conversation.json");
    std::fs::write(&path, document.to_string()).unwrap();
    let ran = run(callwright(home.path()).args(["run", "--tools", TOOLS, "--output", "json", "--messages"]).arg(&path));
    assert_eq!(ran.code, 0, "{}", ran.err);
    let answer: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(answer["messages"].as_array().unwrap().len(), 4);
    let piped = run(callwright(home.path())
        .args(["run", "--tools", TOOLS, "--output", "json", "--messages", "-"])
        .write_stdin(std::fs::read_to_string(&path).unwrap()));
    let piped: Value = serde_json::from_str(&piped.out).unwrap();
    assert_eq!(piped["messages"], answer["messages"]);
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn events_are_lines_and_a_recording_repeats_them() {
    let home = tempfile::tempdir().unwrap();
    let record = home.path().join("run.jsonl");
    let ran = run(callwright(home.path())
        .args(["run", QUESTION, "--tools", TOOLS, "--output", "events", "--record"])
        .arg(&record));
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let events = |ran: &Ran| -> Vec<Value> {
        let all = ran.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let untimed = all.map(|mut event| {
            let time = event.as_object_mut().unwrap().shift_remove("time");
            assert!(time.and_then(|time| time.as_str()?.parse::<jiff::Timestamp>().ok()).is_some(), "{event}");
            event
        });
        untimed.filter(|event| event["type"] != "usage" && event["type"] != "summary").collect()
    };
    let sum: Value = serde_json::from_str(ran.out.lines().last().unwrap()).unwrap();
    assert_eq!((&sum["type"], &sum["finish_reason"]), (&"summary".into(), &"tool_calls".into()));
    assert!(sum["usage"]["prompt_tokens"].as_u64() > Some(20) && sum["seconds"].as_f64() > Some(0.0), "{sum}");
    let first = events(&ran);
    assert_eq!(first[0]["type"], "call_start");
    assert_eq!(first.last().unwrap()["type"], "done");

    let again = run(callwright(home.path()).args(["run", "--output", "events", "--replay"]).arg(&record));
    assert_eq!((again.code, again.err.as_str()), (0, ""));
    assert_eq!(events(&again), first);
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn colour_is_for_terminals() {
    let home = tempfile::tempdir().unwrap();
    let mut command = callwright(home.path());
    let ran = run(command.args(["run", QUESTION, "--tools", TOOLS]).env("CLICOLOR_FORCE", "1"));
    assert!(ran.out.contains("\u{1b}["), "{:?}", ran.out);
    let ran = run(command.env("NO_COLOR", "1"));
    assert!(!ran.out.contains("\u{1b}["), "{:?}", ran.out);
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn the_reason_why_an_answer_was_cut_off_is_reported() {
    let home = tempfile::tempdir().unwrap();
    for (limit, said) in [
        (["--max-tokens", "3"], "note: the answer was cut off by --max-tokens 3; a larger number lets it go on\n"),
        (
            ["--ctx", "64"],
            "note: the answer was cut off by the end of the context of 64 tokens; a larger --ctx lets it go on\n",
        ),
    ] {
        // Random tokens, which come to no end.
        let random = ["--temp", "50", "--top-k", "0", "--top-p", "1", "--min-p", "0"];
        let ran = run(callwright(home.path()).args(["run", "Tell me all."]).args(random).args(limit));
        assert_eq!((ran.code, ran.err.as_str()), (0, said), "{limit:?}");
        let tools = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/weather.toml");
        let execute = ["--execute", "--tools", tools, "--constrain", "off"];
        let ran = run(callwright(home.path()).args(["run", "Tell me all."]).args(random).args(limit).args(execute));
        assert!(ran.code == 0 && ran.err.ends_with(said), "{limit:?} {ran:?}");
    }
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn a_tool_choice_is_kept_to() {
    let home = tempfile::tempdir().unwrap();
    let named = run(callwright(home.path()).args(["run", "Hello", "--tools", TOOLS, "--tool-choice", "get_weather"]));
    assert!(named.out.contains("→ get_weather {"), "{named:?}");
    let none = run(callwright(home.path()).args(["run", QUESTION, "--tools", TOOLS, "--tool-choice", "none"]));
    assert!(!none.out.contains('→'), "{none:?}");
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn interrupting_keeps_what_was_written_and_exits_with_130() {
    let home = tempfile::tempdir().unwrap();
    // Random tokens go on for long: seconds, where the signal takes milliseconds.
    let mut child = Command::new(assert_cmd::cargo::cargo_bin!("callwright"))
        .args(["run", "Tell me all.", "--output", "events", "--max-tokens", "100000"])
        .args(["--temp", "50", "--top-k", "0", "--top-p", "1", "--min-p", "0", "--threads", "1"])
        .env("HOME", home.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut seen: Vec<String> = lines.by_ref().take(2).map(Result::unwrap).collect();
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    seen.extend(lines.map(Result::unwrap));
    let mut complaint = String::new();
    child.stderr.take().unwrap().read_to_string(&mut complaint).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{complaint}");
    let done = &seen[seen.len() - 2];
    assert!(done.starts_with(r#"{"type":"done","finish_reason":"cancelled","time":"#), "{done}");
    assert!(complaint.ends_with("note: interrupted\n"), "{complaint}");
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let home = tempfile::tempdir().unwrap();
    let mut child = Command::new(assert_cmd::cargo::cargo_bin!("callwright"))
        .args(["render", "word ".repeat(20_000).as_str()])
        .env("HOME", home.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut complaint = String::new();
    child.stderr.take().unwrap().read_to_string(&mut complaint).unwrap();
    assert_eq!((child.wait().unwrap().code(), complaint.as_str()), (Some(0), ""));
}

/// `/dev/full` is a disk without room; only Linux has one.
#[cfg(target_os = "linux")]
#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn output_that_cannot_be_written_is_an_error_and_messages_that_cannot_are_no_panic() {
    let home = tempfile::tempdir().unwrap();
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let ran = |args: &[&str], out: Stdio, err: Stdio| {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("callwright"));
        let command = command.args(args).env("HOME", home.path()).stdin(Stdio::null()).stdout(out).stderr(err);
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    for args in [
        &["run", "Hi"] as &[&str],
        &["run", "Hi", "--output", "json"],
        &["render", "Hi"],
        &["parse"],
        &["model", "list"],
    ] {
        let (code, complaint) = ran(args, full().into(), Stdio::piped());
        assert_eq!(code, Some(1), "{args:?}\n{complaint}");
        let said = "error: cannot write to standard output: No space left on device (os error 28)\n";
        assert_eq!(complaint, said, "{args:?}");
    }
    let short = &["run", "Hi", "--max-tokens", "1"];
    assert_eq!(ran(short, Stdio::piped(), full().into()).0, Some(0));
    assert_eq!(ran(&["render", "Hi"], Stdio::piped(), full().into()).0, Some(0));
    assert_eq!(ran(&["run", "Hi", "-m", "nowhere"], Stdio::piped(), full().into()).0, Some(2));
    assert_eq!(ran(&["run", "Hi", "--max-tokens", "1", "-vv"], Stdio::piped(), full().into()).0, Some(0));
}

#[cfg(unix)]
#[test]
fn a_signal_before_there_is_an_answer_ends_the_program_at_once() {
    let home = tempfile::tempdir().unwrap();
    let mut child = Command::new(assert_cmd::cargo::cargo_bin!("callwright"))
        .args(["run", "--messages", "-"])
        .env("HOME", home.path())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    // Not SIGINT, which a shell has its background jobs ignore, and the tests with them.
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    // What a shell shows as 143. Waiting for the input to end would take for ever.
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&child.wait().unwrap()), Some(15));
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn asking_for_more_context_threads_or_gpus_than_exist_is_reported() {
    let home = tempfile::tempdir().unwrap();
    let ran = run(callwright(home.path()).args(["run", "Hi", "--max-tokens", "1", "--ctx", "4096"]));
    assert_eq!(ran.code, 0);
    assert!(
        ran.err.contains("note: --ctx 4096 is more than the 2048 tokens that the model was trained for"),
        "{}",
        ran.err
    );
    let ran = run(callwright(home.path()).args(["render", "Hi", "--ctx", "1500"]));
    assert_eq!((ran.code, ran.err.contains("--ctx")), (0, false), "{}", ran.err);
    let refused =
        if cfg!(target_os = "linux") { "a context of 9000000000000 tokens needs" } else { "llama.cpp cannot make" };
    for (fit, said) in [("on", refused), ("off", "llama.cpp cannot make a context of 9000000000000 tokens")] {
        let asked = ["run", "Hi", "--max-tokens", "1", "--ctx", "9000000000000", "--fit", fit];
        let ran = run(callwright(home.path()).args(asked));
        assert_eq!((ran.code, ran.err.contains(said)), (1, true), "{}", ran.err);
    }
    let gpu = cfg!(any(feature = "cuda", feature = "metal", feature = "rocm", feature = "vulkan"));
    for (layers, said) in [("99", !gpu), ("0", false)] {
        let ran = run(callwright(home.path()).args(["run", "Hi", "--max-tokens", "1", "--gpu-layers", layers]));
        assert_eq!((ran.code, ran.err.contains("note: --gpu-layers is ignored")), (0, said), "{}", ran.err);
    }
    let cores = std::thread::available_parallelism().unwrap().get();
    let threads = (cores + 1).to_string();
    let ran = run(callwright(home.path()).args(["render", "Hi", "--threads", &threads]));
    assert!(
        ran.err.contains(&format!("note: --threads {threads} is more than this machine runs at a time")),
        "{}",
        ran.err
    );
    // A benchmark loads the model more than once, and says it once.
    let ran = run(callwright(home.path())
        .args([
            "bench",
            "--limit",
            "1",
            "--max-tokens",
            "1",
            "--threads",
            &threads,
            "--format",
            "delimited",
            "--format",
            "hermes",
        ])
        .arg("--out")
        .arg(home.path().join("run")));
    assert_eq!(ran.err.matches("is more than this machine runs at a time").count(), 1, "{}", ran.err);
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn render_prints_the_prompt_and_counts_its_tokens() {
    let home = tempfile::tempdir().unwrap();
    let ran = run(callwright(home.path()).args(["render", QUESTION, "--tools", TOOLS]));
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("get_weather(") && ran.out.contains(QUESTION), "{}", ran.out);
    let count: usize = ran.err.trim().strip_suffix(" tokens").unwrap().parse().unwrap();
    let json = run(callwright(home.path()).args(["render", QUESTION, "--tools", TOOLS, "--json"]));
    let json: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!((json["text"].as_str().unwrap(), json["tokens"].as_u64().unwrap()), (ran.out.as_str(), count as u64));
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn a_question_is_read_from_standard_input() {
    let home = tempfile::tempdir().unwrap();
    let piped = run(callwright(home.path()).args(["render", "-"]).write_stdin(format!("{QUESTION}\n")));
    let given = run(callwright(home.path()).args(["render", QUESTION]));
    assert_eq!((piped.code, piped.out, piped.err), (0, given.out, given.err));
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn an_image_becomes_a_placeholder_and_is_reported() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("messages.json");
    let content =
        serde_json::json!(["What is it?", {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}]);
    std::fs::write(&path, serde_json::json!([{"role": "user", "content": content}]).to_string()).unwrap();
    let ran = run(callwright(home.path()).args(["render", "--messages"]).arg(&path));
    assert!(ran.out.contains("What is it?\n[image not shown: image/png]"), "{}", ran.out);
    assert!(ran.err.contains("messages[0].content[1] is a part of type \"image\", which is not text"), "{}", ran.err);
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn a_prompt_is_printed_to_the_byte() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("messages.json");
    let odd = "a\u{0}b\u{1b}[31mc\u{7f}d\u{9b}e";
    std::fs::write(&path, serde_json::json!([{"role": "user", "content": odd}]).to_string()).unwrap();
    for form in [&["--json"] as &[&str], &[]] {
        let ran = run(callwright(home.path()).args(["render", "--messages"]).arg(&path).args(form));
        let json = serde_json::from_str::<Value>(&ran.out);
        let text = json.map_or(ran.out, |json| json["text"].as_str().unwrap().to_owned());
        assert!(text.contains(odd), "{text:?}");
    }
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn what_llama_cpp_refuses_is_reported_with_its_reason() {
    let home = tempfile::tempdir().unwrap();
    let bundled = concat!(env!("CARGO_MANIFEST_DIR"), "/models/callwright-tiny.gguf");
    let mut model = std::fs::read(bundled).unwrap();
    let at = model.windows(5).position(|bytes| bytes == b"gpt-2").unwrap();
    model[at..at + 5].copy_from_slice(b"gpt-x");
    let path = home.path().join("model.gguf");
    std::fs::write(&path, model).unwrap();
    let ran = run(callwright(home.path()).args(["run", "Hi", "-m"]).arg(&path));
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("llama.cpp cannot load") && ran.err.contains("gpt-x"), "{}", ran.err);
}

#[test]
fn render_with_variables_needs_no_model() {
    let home = tempfile::tempdir().unwrap();
    let template = home.path().join("t.jinja");
    let vars = home.path().join("vars.json");
    std::fs::write(&template, "{{ strftime_now('%d %b %Y') }} {{ x }} {{ y | tojson }}\n").unwrap();
    std::fs::write(&vars, r#"{"x": true, "y": {"é": 1e-7}}"#).unwrap();
    let ran = run(callwright(home.path())
        .args(["render", "--now", "2026-01-15T12:00:00", "-m", "/nowhere.gguf", "--template"])
        .arg(&template)
        .arg("--vars")
        .arg(&vars));
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "15 Jan 2026 True {\"é\": 1e-07}", ""));

    let case =
        |vars: &str| format!("{{\"template\": {template:?}, \"vars\": {vars}, \"now\": \"2026-01-15T12:00:00\"}}\n");
    let input = case(r#"{"x": 1, "y": 2}"#) + "\n" + &case("3") + "{\n";
    let ran = run(callwright(home.path()).args(["render", "--batch"]).write_stdin(input));
    let shown = ran.out.replace(&home.path().display().to_string(), "<home>");
    assert_eq!(ran.code, 2);
    insta::assert_snapshot!(shown);
}

#[test]
fn parse_reads_what_a_model_wrote() {
    let home = tempfile::tempdir().unwrap();
    let text = "Wait.\n### TOOL_CALL_START ###\n{'name': 'get_weather', 'arguments': {'city': 'Rome',}}\n### TOOL_CALL_END ###";
    let ran = run(callwright(home.path()).args(["parse", "--tools", TOOLS]).write_stdin(text));
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    insta::assert_snapshot!("parse_json", ran.out);
    let ran = run(callwright(home.path()).args(["parse", "--output", "events"]).write_stdin(text));
    insta::assert_snapshot!("parse_events", ran.out);
    let ran = run(callwright(home.path()).args(["parse", "--repair", "off"]).write_stdin(text));
    insta::assert_snapshot!("parse_strict", ran.out);
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn parse_takes_lines_tails_and_texts_that_stop_early() {
    let home = tempfile::tempdir().unwrap();
    let arrows = home.path().join("arrows.jinja");
    std::fs::write(&arrows, ARROWS).unwrap();
    let lines = [
        serde_json::json!({"format": "delimited", "input": "Hello"}),
        serde_json::json!({"template": arrows, "input": "<<{\"name\": \"a\", \"arguments\": {}}>>"}),
        serde_json::json!({"template": arrows, "prompt_tail": "<<{\"name\": \"a\", \"arguments\": ", "input": "{}}>>"}),
        serde_json::json!({"input": "### TOOL_CALL_START ###\n{\"name\": \"a\", \"arguments\": {\"x\": [1", "partial": true}),
        serde_json::json!({"input": "a", "inputs": "b"}),
        serde_json::json!({"format": "delimeted", "input": "a"}),
    ];
    let input: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let ran = run(callwright(home.path()).args(["parse", "--batch"]).write_stdin(input));
    assert_eq!((ran.code, ran.err.as_str()), (2, ""));
    insta::assert_snapshot!(ran.out);
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn half_a_call_is_kept_apart_and_read_again() {
    let home = tempfile::tempdir().unwrap();
    let text = "Wait.\n### TOOL_CALL_START ###\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n### TOOL_CALL_END ###\n\
                ### TOOL_CALL_START ###\n{\"arguments\": {}}\n### TOOL_CALL_END ###\n\
                ### TOOL_CALL_START ###\n{\"name\": \"g\", \"arguments\": {\"b\": [1";
    let parsed = |more: &[&str]| run(callwright(home.path()).arg("parse").args(more).write_stdin(text)).out;
    insta::assert_snapshot!("parse_half_a_call", parsed(&[]));
    insta::assert_snapshot!("parse_half_a_call_events", parsed(&["--output", "events"]));
    insta::assert_snapshot!("parse_half_a_call_so_far", parsed(&["--partial"]));
    // A message by itself, a list of them, and a line for each.
    let half = &text[text.rfind("###").unwrap() - "### TOOL_CALL_START ".len()..];
    let line = serde_json::json!({"input": format!("Wait.\n{half}")});
    let line = run(callwright(home.path()).args(["parse", "--batch"]).write_stdin(line.to_string())).out;
    let pretty = run(callwright(home.path()).arg("parse").write_stdin(format!("Wait.\n{half}"))).out;
    let path = home.path().join("earlier.json");
    for earlier in [pretty, format!("[{line}]"), line.clone(), format!("{line}\n{line}")] {
        std::fs::write(&path, &earlier).unwrap();
        let ran = run(callwright(home.path()).args(["render", "Go on.", "--messages"]).arg(&path));
        assert_eq!((ran.code, ran.out.contains("\"name\": \"g\"")), (0, true), "{earlier}: {}{}", ran.err, ran.out);
    }
    std::fs::write(&path, format!("{line}{{\n")).unwrap();
    let ran = run(callwright(home.path()).args(["render", "Go on.", "--messages"]).arg(&path));
    assert!(ran.code == 2 && ran.err.contains("earlier.json:2:"), "{}", ran.err);
}

/// A folder of inputs that are wrong in one way each, and what the program says to them.
#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn bad_input_is_named_with_its_place_and_the_way_out() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    let file = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    file("page.gguf", "<!DOCTYPE html><html>Not found</html>");
    let good = GgufBuilder::tiny();
    std::fs::write(folder.join("cut.gguf"), &good.build()[..900]).unwrap();
    good.set("tokenizer.ggml.eos_token_id", 99).write(folder, "ids.gguf");
    file("broken.json", "[{\"type\": \"function\",\n  \"function\": {\"name\": \"a\",}}]");
    file("broken.toml", "[[tool]]\nname = clock\n");
    file("twice.json", r#"[{"name": "clock"}, {"name": "clock"}]"#);
    file(
        "schema.json",
        r#"[{"name": "clock", "parameters": {"type": "object", "properties": {"at": {"type": "strin"}}}}]"#,
    );
    file("messages.json", r#"[{"role": "user", "content": "Hi"}, {"role": 3, "content": "Hi"}]"#);
    file("messages-cut.json", "[{\"role\": \"user\",\n");
    file(
        "image.json",
        r#"[{"role": "user", "content": ["What is it?", {"type": "image_url", "image_url": {"url": "data:"}}]}]"#,
    );
    file("models.toml", "[[model]]\nname = \"mine\"\npath = \"mine.gguf\"\ncontxt = 4096\n");
    file("raise.jinja", "{%- for m in messages %}\n{{ raise_exception('only ' ~ m.role) }}\n{%- endfor %}");
    file("syntax.jinja", "{% for m in messages %}\n{{ m.content }\n{% endfor %}");
    file("endless.jinja", "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}");
    file(
        "loops.jinja",
        "{% for a in range(99999) %}{% for b in range(99999) %}{% set c = b %}{% endfor %}{% endfor %}",
    );
    file("huge.jinja", "{% set s = 'x' * 1000000 %}{% for a in range(100000) %}{{ s }}{% endfor %}");
    file("format.jinja", "{#--- callwright\n[format]\nstrat = '<<'\n---#}");
    file("plain.jinja", "{{ messages }}");
    file("recording.jsonl", "{}");
    std::fs::write(folder.join("latin.jinja"), b"caf\xe9").unwrap();

    let long = "word ".repeat(5000);
    let cases: &[&[&str]] = &[
        &["run", "Hi", "-m", "qwen3-0.6"],
        &["run", "Hi", "-m", "nowhere/model.gguf"],
        &["run", "Hi", "-m", "page.gguf"],
        &["run", "Hi", "-m", "cut.gguf"],
        &["run", "Hi", "-m", "ids.gguf"],
        &["run", "Hi", "-m", "qwen3-0.6b", "--offline"],
        &["run", "Hi", "--tools", "nowhere.json"],
        &["run", "Hi", "--tools", "broken.json"],
        &["run", "Hi", "--tools", "broken.toml"],
        &["run", "Hi", "--tools-strict", "--tools", "twice.json"],
        &["run", "Hi", "--tools-strict", "--tools", "schema.json"],
        &["run", "--messages", "messages.json"],
        &["run", "--messages", "messages-cut.json"],
        &["run", "--messages", "image.json", "--images", "error"],
        &["run", "--messages", "image.json", "--images", "show"],
        &["run", "Hi", "--models", "models.toml"],
        &["run", &long],
        &["run", "Hi", "--ctx", "4"],
        &["run", "Hi", "--template", "raise.jinja"],
        &["run", "Hi", "--template", "syntax.jinja"],
        &["run", "Hi", "--template", "endless.jinja"],
        &["run", "Hi", "--template", "loops.jinja"],
        &["run", "Hi", "--template", "huge.jinja"],
        &["run", "Hi", "--template", "nowhere.jinja"],
        &["run", "Hi", "--template", "chat-ml"],
        &["run", "Hi", "--template", "hermes"],
        &["template", "check", "chat-ml"],
        &["template", "check", "plain.jinja", "-m", "qwen3-0.6b", "--offline"],
        &["run", "Hi", "--format", "delimted"],
        &["run", "Hi", "--format", "format.jinja"],
        &["run", "Hi", "--format", "plain.jinja"],
        &["run", "Hi", "--tool-choice", "required"],
        &["run", "Hi", "--tool-choice", "clock", "--tools", TOOLS],
        &["run"],
        &["run", " "],
        &["run", "-"],
        &["run", "-", "--messages", "-"],
        &["run", "Hi", "--record", "nowhere/run.jsonl"],
        &["run", "--replay", "recording.jsonl"],
        &["run", "Hi", "--replay", "recording.jsonl"],
        &["run", "Hi", "--temp", "warm"],
        &["run", "Hi", "--max-tokens", "0"],
        &["run", "Hi", "--top-p", "2"],
        &["run", "Hi", "--temp", "-1"],
        &["run", "Hi", "--ctx", "-1"],
        &["run", "Hi", "--threads", "1000"],
        &["run", "Hi", "-m", "/dev/null"],
        &["run", "Hi", "--format", "latin.jinja"],
        &["run", "Hi", "--template", "latin.jinja"],
        &["run", "Hi", "--models", "latin.jinja"],
        &["run", "--replay", "latin.jinja"],
        &["run", "Hi", "--max-token", "3"],
        &["run", "Hi", "--json-schema", "broken.json"],
        &["grammar", "--json-schema", "broken.json"],
        &["render", "--template", "plain.jinja", "--vars", "broken.json"],
        &["render", "--template", "plain.jinja", "--vars", "twice.json"],
        &["render", "Hi", "--now", "noon"],
        &["parse", "--format", "nowhere.jinja"],
    ];
    let mut said = String::new();
    for case in cases {
        let ran = run(callwright(folder).current_dir(folder).args(*case));
        let shown: Vec<&str> = case.iter().map(|word| if word.len() > 99 { "word word …" } else { word }).collect();
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{shown:?}\n{}", ran.err);
        let plain =
            ran.err.replace(&folder.display().to_string(), "<home>").replace(env!("CARGO_MANIFEST_DIR"), "<repo>");
        // How many tokens a text has is the model's affair.
        let plain = if plain.contains("the prompt has") {
            plain.split(|c: char| c.is_ascii_digit()).filter(|part| !part.is_empty()).collect::<Vec<_>>().join("N")
        } else {
            plain
        };
        said += &format!("$ callwright {}\n{}\n", shown.join(" ").replace(env!("CARGO_MANIFEST_DIR"), "<repo>"), plain);
    }
    insta::assert_snapshot!(said);
}

#[test]
fn every_help_has_an_example() {
    for command in [
        &["--help"] as &[&str],
        &["run", "--help"],
        &["render", "--help"],
        &["parse", "--help"],
        &["model", "pull", "--help"],
        &["template", "--help"],
        &["template", "list", "--help"],
        &["template", "show", "--help"],
        &["template", "check", "--help"],
    ] {
        let ran = run(callwright(Path::new("/")).args(command));
        assert_eq!(ran.code, 0);
        assert!(ran.out.contains("Example"), "{command:?}\n{}", ran.out);
    }
}

#[test]
fn the_short_help_fits_a_screen_and_the_long_one_has_everything() {
    for (command, seldom) in [("run", "--dry-multiplier"), ("chat", "--no-jump"), ("serve", "--cors")] {
        if command == "serve" && cfg!(not(feature = "serve")) {
            continue;
        }
        let help = |option| run(callwright(Path::new("/")).args([command, option])).out;
        let (short, long) = (help("-h"), help("--help"));
        assert!(short.lines().count() <= 50 && short.contains("--model"), "{short}");
        assert!(!short.contains(seldom) && long.contains(seldom), "{short}");
    }
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn the_examples_in_the_help_name_models_that_there_are() {
    let home = tempfile::tempdir().unwrap();
    let models = callwright::models::Models::builtin().unwrap();
    for command in ["run", "chat", "render", "bench", "template", "model"] {
        let ran = run(callwright(home.path()).args([command, "--help"]));
        for (_, after) in ran.out.match_indices("callwright ").map(|(at, _)| ran.out.split_at(at)) {
            let line = after.lines().next().unwrap();
            if let Some(model) = line.split(" -m ").nth(1).and_then(|rest| rest.split_whitespace().next()) {
                assert!(models.get(model).is_some(), "{line}");
            }
        }
    }
    let ran = run(callwright(home.path()).args(["run", "Calculate 12 * 7", "--tools", "builtin", "--execute"]));
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
    assert!(ran.out.contains("← calculator 84"), "{ran:?}");
}
