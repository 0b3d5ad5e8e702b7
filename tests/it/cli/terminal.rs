//! What the program writes for people never steers their terminal, wherever it is from.

use crate::gguf_builder::GgufBuilder;
use crate::program::{Ran, callwright, run};
use std::path::Path;

/// What clears a screen, sets a title, rings a bell and turns the direction of text.
const HOSTILE: &str = "\u{1b}[2J\u{1b}]0;title\u{7}\r\u{9b}2J\u{7f}\u{202e}";

/// What of a text could steer a terminal.
fn steers(text: &str) -> Vec<char> {
    text.chars().filter(|c| c.is_control() && !matches!(c, '\n' | '\t') || *c == '\u{202e}').collect()
}

fn is_clean(what: &str, ran: &Ran) {
    assert_eq!(steers(&ran.out), [] as [char; 0], "{what}: {:?}", ran.out);
    assert_eq!(steers(&ran.err), [] as [char; 0], "{what}: {:?}", ran.err);
    // Where the arguments are wrong, sequences that begin with an escape character are left out.
    let shown =
        ["\\u001b[2J", "\\u{1b}", "\\u202e"].iter().any(|code| ran.out.contains(code) || ran.err.contains(code));
    assert!(shown, "{what}: it is not shown at all: {ran:?}");
}

fn write(home: &Path, name: &str, text: &str) -> String {
    let path = home.join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn control_characters_from_anywhere_are_shown_as_text() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let toml = |text: &str| serde_json::to_string(text).unwrap().replace("\u{7f}", "\\u007f");
    let hostile = toml(HOSTILE);
    let name = format!("no{HOSTILE}");
    let tools = write(
        home,
        "tools.json",
        &serde_json::json!([{"name": name, "description": HOSTILE, "parameters": {"type": HOSTILE}}, {"name": name}])
            .to_string(),
    );
    let template = write(home, "bad.jinja", &format!("{{{{ raise_exception({hostile}) }}}}"));
    let syntax = write(home, "syntax.jinja", &format!("{{% if {HOSTILE}"));
    let models = write(home, "models.toml", &format!("[[model]]\nname = {hostile}\npath = \"a.gguf\"\n"));
    let wrong = write(home, "wrong.toml", &format!("[[model]]\nname = {hostile}\n"));
    let key = write(home, "key.toml", &format!("[[model]]\nname = \"a\"\npath = \"a\"\n{hostile} = 1\n"));
    let config = write(home, "config.toml", &format!("{hostile} = 1\n"));
    let messages = write(home, "messages.json", &serde_json::json!([{"role": HOSTILE, "content": "a"}]).to_string());
    let not_json = write(home, "not.json", &format!("{{\"a\": {HOSTILE}"));
    let tiny = GgufBuilder::tiny().set("general.name", HOSTILE).write(home, "tiny.gguf").display().to_string();
    let cases: Vec<(&str, Vec<&str>)> = vec![
        ("a name of a model", vec!["run", "a", "-m", &name]),
        ("an option", vec!["run", "a", &name, &name]),
        ("a command", vec![&name]),
        ("a file that is not there", vec!["parse", &name]),
        ("a tool", vec!["grammar", "--format", "hermes", "--tools", &tools]),
        ("tools with faults", vec!["run", "a", "--tools", &tools, "--tools-strict"]),
        ("a template's own error", vec!["template", "check", &template]),
        ("a template's syntax", vec!["template", "check", &syntax]),
        ("a list of models", vec!["model", "list", "--models", &models]),
        ("an entry of a model", vec!["model", "list", "--models", &wrong]),
        ("a key of a model", vec!["model", "list", "--models", &key]),
        ("a role", vec!["run", "--messages", &messages]),
        ("no JSON", vec!["run", "--messages", &not_json]),
        ("a model's file", vec!["model", "inspect", &tiny]),
        ("a format", vec!["parse", "--format", &name]),
        ("a choice", vec!["run", "a", "--tool-choice", &name]),
        ("an address", vec!["run", "a", "-m", "openai:http://127.0.0.1:1/\u{1b}[2J"]),
        ("a repository", vec!["run", "a", "-m", "hf:\u{1b}[2J/x"]),
    ];
    for (what, arguments) in cases {
        is_clean(what, &run(callwright(home).args(&arguments).env("HF_HUB_OFFLINE", "1").write_stdin("")));
    }
    is_clean(
        "a variable",
        &run(callwright(home).args(["run", "a"]).env("CALLWRIGHT_THREADS", HOSTILE).write_stdin("")),
    );
    is_clean(
        "a configuration",
        &run(callwright(home).args(["run", "a"]).env("CALLWRIGHT_CONFIG", &config).write_stdin("")),
    );
}

#[test]
fn data_for_other_programs_is_exact() {
    let home = tempfile::tempdir().unwrap();
    let ran = run(callwright(home.path()).args(["parse", "--format", "hermes"]).write_stdin("a\u{1b}[31mb\r\u{9b}"));
    assert!(ran.out.contains("a\\u001b[31mb\\r\u{9b}"), "{:?}", ran.out);
}

/// Reads what has no end with a limit of memory, so that a fault ends the test and not the machine.
#[test]
#[cfg(target_os = "linux")]
fn an_input_without_an_end_is_an_error() {
    for (arguments, given) in [
        (&["parse"][..], "/dev/zero"),
        (&["parse", "--batch"], "/dev/zero"),
        (&["run", "a", "--tools", "/dev/zero"], "/dev/null"),
        (&["run", "--messages", "/dev/zero"], "/dev/null"),
        (&["run", "-"], "/dev/zero"),
        (&["model", "list", "--models", "/dev/zero"], "/dev/null"),
        (&["template", "check", "/dev/zero"], "/dev/null"),
    ] {
        let home = tempfile::tempdir().unwrap();
        let program = assert_cmd::cargo::cargo_bin!("callwright").display().to_string();
        let command = format!("ulimit -v 4000000; exec timeout 60 {program} {} < {given}", arguments.join(" "));
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &command]);
        crate::program::at_home(&mut shell, home.path());
        let ran = shell.output().unwrap();
        let error = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(matches!(ran.status.code(), Some(1 | 2)) && error.contains("error: "), "{arguments:?}: {ran:?}");
        assert!(error.contains("more than 256 MiB"), "{arguments:?}: {error}");
    }
}
