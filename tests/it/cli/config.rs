//! Defaults of options from a file and from the environment, and what shows them.

use crate::program::{Ran, callwright, run};
use assert_cmd::Command;
use serde_json::Value;
use std::path::Path;

/// The program with this file of defaults.
fn with(home: &Path, text: &str) -> Command {
    let folder = home.join("config/callwright");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("config.toml"), text).unwrap();
    callwright(home)
}

/// The rows of `config show COMMAND`, by option: value, kind of source, place.
fn shown(mut command: Command, words: &[&str]) -> Vec<(String, String, String, Option<String>)> {
    let ran = run(command.args(["config", "show"]).args(words).args(["--output", "json"]));
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let rows: Vec<Value> = serde_json::from_str(&ran.out).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    rows.iter()
        .map(|row| {
            (text(&row["option"]), text(&row["value"]), text(&row["from"]), row["place"].as_str().map(str::to_owned))
        })
        .collect()
}

fn value<'a>(rows: &'a [(String, String, String, Option<String>)], option: &str) -> (&'a str, &'a str) {
    let row = rows.iter().find(|row| row.0 == option).unwrap_or_else(|| panic!("no {option} in {rows:?}"));
    (&row.1, &row.2)
}

/// The message of a file that cannot be used, with the folder's name removed.
fn refused(home: &Path, text: &str) -> String {
    let Ran { code, out, err } = run(with(home, text).args(["parse", "--format", "hermes"]).write_stdin(""));
    assert_eq!((code, out.as_str()), (2, ""), "{err}");
    err.replace(&home.display().to_string(), "<home>")
}

#[test]
fn a_file_sets_the_defaults_of_options() {
    let home = tempfile::tempdir().unwrap();
    let text = "<tool_call>{\"name\": \"clock\", \"arguments\": {}}</tool_call>";
    let calls = |ran: Ran| {
        assert_eq!(ran.code, 0, "{}", ran.err);
        serde_json::from_str::<Value>(&ran.out).unwrap().get("tool_calls").is_some()
    };
    // The built-in format of `parse` is another one.
    assert!(!calls(run(callwright(home.path()).args(["parse", "--other-forms", "off"]).write_stdin(text))));
    let file = "format = \"hermes\"\nother-forms = \"off\"\n";
    assert!(calls(run(with(home.path(), file).arg("parse").write_stdin(text))));
    // The command line, a variable, the command's table, the top of the file.
    assert!(!calls(run(with(home.path(), file).args(["parse", "--format", "mistral"]).write_stdin(text))));
    assert!(!calls(run(with(home.path(), file).env("CALLWRIGHT_FORMAT", "mistral").arg("parse").write_stdin(text))));
    let both = "format = \"mistral\"\n[parse]\nformat = \"hermes\"\nother_forms = \"off\"\n";
    assert!(calls(run(with(home.path(), both).arg("parse").write_stdin(text))));
    // A template declares its format, and a default does not replace it.
    let ran = run(with(home.path(), file).args(["parse", "--template", "chatml"]).write_stdin(text));
    assert!(ran.err.contains("no tool-call format can be read off the template"), "{}", ran.err);
}

#[test]
fn show_says_where_each_value_comes_from() {
    let home = tempfile::tempdir().unwrap();
    let file = "# defaults\nctx = 8192\nmodel = \"qwen3-0.6b\"\nno-parallel = true\nformat = \"hermes\"\n\n[run]\ntemp = 0.7\n\n[bench]\nmodel = [\"a\", \"b\"]\n";
    let command = || {
        let mut command = with(home.path(), file);
        command.env("CALLWRIGHT_THREADS", "3");
        command
    };
    let rows = shown(command(), &[]);
    assert_eq!(value(&rows, "ctx"), ("8192", "file"));
    assert_eq!(value(&rows, "temp"), ("0.7", "file"));
    assert_eq!(value(&rows, "no-parallel"), ("true", "file"));
    assert_eq!(value(&rows, "threads"), ("3", "environment"));
    assert_eq!(value(&rows, "output"), ("text", "built in"));
    let place = |option: &str| rows.iter().find(|row| row.0 == option).unwrap().3.clone();
    assert_eq!(place("ctx"), Some(format!("{}/config/callwright/config.toml:2", home.path().display())));
    assert_eq!(place("threads").as_deref(), Some("CALLWRIGHT_THREADS"));
    assert_eq!(place("output"), None);
    assert_eq!(value(&shown(command(), &["bench"]), "model"), ("a b", "file"));
    let render = shown(command(), &["render"]);
    assert_eq!(value(&render, "model"), ("qwen3-0.6b", "file"));
    assert!(render.iter().all(|row| row.0 != "temp"), "{render:?}");

    let ran = run(command().args(["config", "show", "grammar"]));
    let table = ran.out.replace(&home.path().display().to_string(), "<home>");
    insta::assert_snapshot!(table);
}

#[test]
fn help_shows_the_defaults_in_force() {
    let home = tempfile::tempdir().unwrap();
    let ran = run(with(home.path(), "[parse]\nformat = \"hermes\"\n").args(["parse", "--help"]));
    assert!(ran.out.contains("[default: hermes]"), "{}", ran.out);
    // A broken file is not in the way of help.
    let ran = run(with(home.path(), "format =").args(["parse", "--help"]));
    assert!(ran.code == 0 && ran.out.contains("[default: delimited]"), "{}", ran.out);
}

#[test]
fn mistakes_in_the_file_are_shown_with_their_line() {
    let home = tempfile::tempdir().unwrap();
    let cases = [
        "ctx = 4096\nthraeds = 4\n",
        "n_ctx = 4096\n",
        "[chta]\nctx = 80\n",
        "[parse]\nctx = 5\n",
        "[bench.calibrte]\nseed = 1\n",
        "zzz = 1\n",
        "other-forms = \"maybe\"\n",
        "no-parallel = \"yes\"\n",
        "ctx = [1, 2]\n",
        "model = { name = \"x\" }\n",
        "format = \n",
        "äöü = 1 # ü\n",
    ];
    let all: Vec<String> =
        cases.iter().map(|text| format!("{}\n{}", text.trim_end(), refused(home.path(), text))).collect();
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn a_value_that_an_option_refuses_names_its_source() {
    let home = tempfile::tempdir().unwrap();
    let file = "format = \"hermes\"\n\n[run]\ntemp = 1000\n";
    let place = format!("--temp has this default from {}/config/callwright/config.toml:4", home.path().display());
    let ran = run(with(home.path(), file).args(["run", "Hi"]));
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("not a number from 0") && ran.err.contains(&place), "{}", ran.err);
    let ran = run(with(home.path(), file).args(["config", "show", "run"]));
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("not a number from 0") && ran.err.contains(&place), "{}", ran.err);
    // A value that was typed is the user's own mistake.
    let ran = run(with(home.path(), file).args(["run", "Hi", "--temp", "1001"]));
    assert!(ran.code == 2 && !ran.err.contains("has this default"), "{}", ran.err);
    let ran =
        run(callwright(home.path()).env("CALLWRIGHT_CONFIG", "").env("CALLWRIGHT_TEMP", "hot").args(["run", "Hi"]));
    assert!(ran.code == 2 && ran.err.contains("--temp has this default from CALLWRIGHT_TEMP"), "{}", ran.err);
}

#[test]
fn a_variable_names_another_file_or_none() {
    let home = tempfile::tempdir().unwrap();
    let other = home.path().join("other.toml");
    std::fs::write(&other, "ctx = 1024\n").unwrap();
    let path = |command: &mut Command| run(command.args(["config", "path"]));
    let ran = path(&mut callwright(home.path()));
    assert_eq!(ran.out, format!("{}/config/callwright/config.toml\n", home.path().display()));
    let ran = path(callwright(home.path()).env("CALLWRIGHT_CONFIG", &other));
    assert_eq!(ran.out, format!("{}\n", other.display()));
    let ran = path(callwright(home.path()).env("CALLWRIGHT_CONFIG", ""));
    assert!(
        ran.code == 2 && ran.err.contains("no file of defaults is read: CALLWRIGHT_CONFIG is empty"),
        "{}",
        ran.err
    );
    let mut command = with(home.path(), "ctx = 2048\n");
    command.env("CALLWRIGHT_CONFIG", &other);
    assert_eq!(value(&shown(command, &["run"]), "ctx"), ("1024", "file"));
    let mut command = with(home.path(), "ctx = 2048\n");
    command.env("CALLWRIGHT_CONFIG", "");
    assert!(shown(command, &["run"]).iter().all(|row| row.0 != "ctx"));
    let ran = run(callwright(home.path()).env("CALLWRIGHT_CONFIG", "/no/such.toml").args(["parse"]).write_stdin(""));
    assert!(ran.code == 2 && ran.err.contains("cannot read /no/such.toml"), "{}", ran.err);
    let ran = run(callwright(home.path()).args(["config", "show", "rnu"]));
    assert!(ran.code == 2 && ran.err.contains("did you mean `run`?"), "{}", ran.err);
}

/// `serve --parallel 4` is a number, and `run --parallel` a switch.
#[test]
#[cfg(feature = "serve")]
fn one_name_may_belong_to_different_options() {
    let home = tempfile::tempdir().unwrap();
    let has = |file: &str, command: &str, expected: &str| {
        let rows = shown(with(home.path(), file), &[command]);
        rows.iter().any(|row| row.0 == "parallel" && row.1 == expected)
    };
    assert!(has("parallel = 7\n", "serve", "7"));
    assert!(!has("parallel = 7\n", "run", "7"));
    assert!(has("parallel = true\n", "run", "true"));
    assert!(has("parallel = true\n", "serve", "4"));
}
