//! What is piped in: a question, a document that goes with one, a text to be read. And what is checked before a model is
//! loaded.

use crate::program::{Ran, callwright, run};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn render(home: &Path, args: &[&str], piped: &str) -> Ran {
    run(callwright(home).arg("render").args(args).write_stdin(piped))
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn what_is_piped_in_is_the_question_or_goes_with_it() {
    let home = tempfile::tempdir().unwrap();
    let messages = home.path().join("messages.json");
    std::fs::write(&messages, r#"[{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]"#)
        .unwrap();
    let messages = messages.to_str().unwrap();
    for (args, piped, prompt) in [
        (&[][..], "A question\nof two lines\n", "<|user|>A question\nof two lines<|end|>"),
        (&["-"], "A question\n", "<|user|>A question<|end|>"),
        (&["Summarise"], "A document\n", "<|user|>Summarise\n\nA document<|end|>"),
        (&["Summarise"], " \n", "<|user|>Summarise<|end|>"),
        (&["--messages", messages], "And?\n", "<|assistant|>Hello<|end|><|user|>And?<|end|>"),
        (&["And?", "--messages", messages], "Text", "<|user|>And?\n\nText<|end|>"),
    ] {
        let ran = render(home.path(), args, piped);
        assert!(ran.code == 0 && ran.out.contains(prompt), "{args:?} {ran:?}");
    }
    let ran = render(home.path(), &["--messages", "-", "And?"], r#"[{"role": "user", "content": "Hi"}]"#);
    assert!(ran.out.contains("Hi") && ran.out.contains("And?<|end|>"), "{ran:?}");
    for (args, piped, error) in [
        (&[][..], &b""[..], "there is no prompt"),
        (&[" "], b"A document", "there is no prompt"),
        (&["What is it?"], b"\xff\xd8", "cannot read standard input: invalid utf-8 sequence of 1 bytes from index 0"),
    ] {
        let ran = run(callwright(home.path()).arg("run").args(args).write_stdin(piped));
        assert!(ran.code == 2 && ran.err.contains(error), "{args:?} {ran:?}");
    }
}

/// As programs leave it open that start others.
#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn a_pipe_that_nobody_writes_to_is_not_waited_for() {
    let home = tempfile::tempdir().unwrap();
    let started = Instant::now();
    let mut child = Command::new(assert_cmd::cargo::cargo_bin!("callwright"))
        .args(["render", "Hello"])
        .env("HOME", home.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let open = child.stdin.take();
    let output = child.wait_with_output().unwrap();
    drop(open);
    assert!(started.elapsed() < Duration::from_secs(60));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("note: nothing came from standard input within 5 s: the question is asked without it"),
        "{said}"
    );
    assert!(String::from_utf8(output.stdout).unwrap().contains("<|user|>Hello<|end|>"));
}

#[test]
fn parse_takes_a_file() {
    let home = tempfile::tempdir().unwrap();
    let (file, lines) = (home.path().join("answer.txt"), home.path().join("lines.jsonl"));
    std::fs::write(&file, "Just text").unwrap();
    std::fs::write(&lines, "{\"input\": \"One\"}\n{\"input\": 5}\n").unwrap();
    let read = run(callwright(home.path()).arg("parse").arg(&file));
    assert!(read.code == 0 && read.out.contains("\"content\": \"Just text\""), "{read:?}");
    let piped = run(callwright(home.path()).args(["parse", "-"]).write_stdin("Just text"));
    assert_eq!(piped.out, read.out);
    let batch = run(callwright(home.path()).args(["parse", "--batch"]).arg(&lines));
    assert!(batch.code == 2 && batch.out.contains("One") && batch.out.contains("line 2: "), "{batch:?}");
    let missing = run(callwright(home.path()).args(["parse", "nowhere.txt"]));
    assert!(missing.code == 2 && missing.err.contains("cannot read nowhere.txt"), "{missing:?}");
}

/// A file whose header is whole and whose weights are not: whatever is said of other things was said before loading them.
#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn errors_are_reported_before_the_weights_are_loaded() {
    let home = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        std::fs::write(home.path().join(name), text).unwrap();
    };
    write("broken.jinja", "{% if %}");
    write("refuses.jinja", "{{ raise_exception('no questions, please') }}");
    write("format.jinja", "{#--- callwright\n[format]\nname = 5\n---#}");
    write("tools.json", "[{\"name\": ");
    write("messages.json", "[{\"role\": 5}]");
    write(
        "impossible.json",
        r#"[{"name": "f", "parameters": {"type": "object", "properties": {"a": false}, "required": ["a"]}}]"#,
    );
    write("grammar.lark", "start: nothing");
    // As large as a model whose weights take time to load.
    let large = home.path().join("large.gguf");
    std::fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/models/callwright-tiny.gguf"), &large).unwrap();
    std::fs::OpenOptions::new().write(true).open(&large).unwrap().set_len(40 << 20).unwrap();
    let large = large.display().to_string();
    for (args, said) in [
        (&["--template", "broken.jinja"][..], "broken.jinja"),
        (&["--template", "refuses.jinja"], "no questions, please"),
        (&["--format", "format.jinja"], "format.jinja"),
        (&["--tools", "tools.json"], "tools.json"),
        (&["--messages", "messages.json"], "messages.json"),
        (&["--tools", "impossible.json", "--tool-choice", "f"], "no value fits"),
        (&["--grammar", "grammar.lark"], "nothing"),
    ] {
        let started = |trace: &str| {
            let mut command = callwright(home.path());
            command.current_dir(home.path()).env("RUST_LOG", "callwright=debug");
            command.args(["run", "Hello", "-m", &large]).args(args);
            let ran = run(&mut command);
            assert!(ran.code != 0 && ran.err.contains(said), "{args:?} {ran:?}");
            ran.err.matches(trace).count()
        };
        // One for the vocabulary at most; the weights would be the second.
        assert!(started("loaded ") <= 1, "{args:?}");
    }
    // A small model is loaded once.
    for (model, loaded) in [(large.as_str(), 2), ("bundled", 1)] {
        let mut command = callwright(home.path());
        command.env("RUST_LOG", "callwright=debug").args(["run", "Hello", "--max-tokens", "1", "-m", model]);
        let whole = run(&mut command);
        assert_eq!(whole.err.matches("loaded ").count(), loaded, "{}", whole.err);
    }
}

#[test]
fn parse_says_where_a_text_is_not_utf_8() {
    let home = tempfile::tempdir().unwrap();
    let parse = |args: &[&str], text: &[u8]| run(callwright(home.path()).arg("parse").args(args).write_stdin(text));
    let said = |text: &[u8]| {
        let ran = parse(&[], text);
        let message: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
        message["diagnostics"][0]["message"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(said("Gr\u{fc}n".as_bytes()), "");
    assert_eq!(said(b"Gr\xfcn"), "byte 2: not valid UTF-8 here; it is read as U+FFFD");
    assert_eq!(
        said(b"\xc3\xbc\xfc and \xff"),
        "byte 2: not valid UTF-8 here, and at one place more; it is read as U+FFFD"
    );
    assert_eq!(said(b"Gr\xc3"), "byte 2: not valid UTF-8 here; it is read as U+FFFD");
    let events = parse(&["--output", "events"], b"Gr\xfcn");
    assert_eq!(events.err, "note: byte 2: not valid UTF-8 here; it is read as U+FFFD\n");
    assert_eq!(parse(&["--partial"], b"Gr\xc3").out.matches("UTF-8").count(), 0, "the rest may come");
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn a_byte_order_mark_is_no_part_of_a_text() {
    let home = tempfile::tempdir().unwrap();
    let lines = home.path().join("lines.jsonl");
    std::fs::write(&lines, "\u{feff}{\"input\": \"One\"}\n").unwrap();
    for args in [&[][..], &["-"], &["Summarise"]] {
        let ran = render(home.path(), args, "\u{feff}A text\n");
        assert!(ran.code == 0 && ran.out.contains("A text<|end|>") && !ran.out.contains('\u{feff}'), "{ran:?}");
    }
    let batch = run(callwright(home.path()).args(["parse", "--batch"]).arg(&lines));
    assert!(batch.code == 0 && batch.out.contains("One"), "{batch:?}");
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn what_is_given_in_place_of_a_file_is_read_or_answered_in_words() {
    let home = tempfile::tempdir().unwrap();
    let tools = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/weather.json");
    let callwright = |args: &[&str], piped: &str| run(callwright(home.path()).args(args).write_stdin(piped));
    for (args, said) in [
        (&["render", ""][..], "the question is empty, and standard input has text\nhint: leave the question out"),
        (&["render", "Hi", "--tools", "-"], "--tools takes files, and does not read standard input\nhint: write"),
        (
            &["run", "Hi", "--execute", "--tools", tools, "--tool-result", "get_weather=@"],
            "--tool-result get_weather=@ names no file after the @\nhint: write get_weather=@FILE",
        ),
        (&["run", "Hi", "--json-schema", "{\"type\": "], "the text of --json-schema is no JSON: EOF"),
    ] {
        let ran = callwright(args, "A document");
        assert!(ran.code == 2 && ran.err.contains(said), "{args:?}: {ran:?}");
    }
    let schema =
        r#"{"type": "object", "properties": {"a": {"const": 7}}, "required": ["a"], "additionalProperties": false}"#;
    let ran = callwright(&["run", "Hi", "--json-schema", schema], "");
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "{\"a\": 7}\n", ""));
    let document = callwright(&["grammar", "--json-schema", r#"{"city": "Rome", "sky": "sunny"}"#], "");
    assert!(
        document.err.contains("the document has no keyword of JSON Schema, so that any JSON fits it"),
        "{document:?}"
    );
}
