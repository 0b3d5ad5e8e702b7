//! What is said of templates that do well and of those that do not, in the library and on the command line.

use crate::program::{callwright, run};
use callwright::Tools;
use callwright::check::{Outcome, Subject};
use callwright::engine::ModelInfo;
use callwright::engine::scripted::ScriptedEngine;
use callwright::format::Format;
use callwright::message::Message;
use callwright::session::Session;
use callwright::template::ChatTemplate;
use serde_json::Value;
use std::path::{Path, PathBuf};

fn case(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/check").join(name)
}

fn template(name: &str) -> ChatTemplate {
    ChatTemplate::new(name, std::fs::read_to_string(case(name)).unwrap()).unwrap()
}

#[test]
fn a_sound_template_and_a_careless_one() {
    let home = tempfile::tempdir().unwrap();
    let mut shown = String::new();
    for (name, code) in [("sound.jinja", 0), ("careless.jinja", 3)] {
        let ran = run(callwright(home.path()).current_dir(case("")).args(["template", "check", name]));
        assert_eq!((ran.code, ran.err.as_str()), (code, ""), "{}", ran.out);
        shown += &format!("$ callwright template check {name}\n{}\n", ran.out);
    }
    insta::assert_snapshot!(shown);
}

/// The check is of the template alone; `run` completes it.
#[test]
fn a_template_that_a_run_completes_fails_the_check_unless_the_overlay_is_named() {
    let home = tempfile::tempdir().unwrap();
    let source = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:";
    std::fs::write(home.path().join("plain.jinja"), source).unwrap();
    let check = |more: &[&str]| {
        run(callwright(home.path()).current_dir(home.path()).args(["template", "check", "plain.jinja"]).args(more))
    };
    let alone = check(&[]);
    let said = "`run` adds it with the overlay delimited; `--format delimited` checks the template with it.";
    assert!(alone.code == 3 && alone.out.contains(said), "{alone:?}");
    let completed = check(&["--format", "delimited"]);
    assert!(completed.code == 0 && completed.out.contains("It has all that tool calls need."), "{completed:?}");
}

#[test]
fn what_ends_at_a_bound_is_not_tried_again() {
    let home = tempfile::tempdir().unwrap();
    for (name, source, why) in [
        ("endless.jinja", std::fs::read_to_string(case("endless.jinja")).unwrap(), "the template takes too many steps"),
        (
            "long.jinja",
            "{% for i in range(90000) %}{{ 'x' * 9000 }}{% endfor %}".to_owned(),
            "the template writes more than",
        ),
        ("deep.jinja", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}".to_owned(), "call each other too deeply"),
    ] {
        std::fs::write(home.path().join(name), source).unwrap();
        let ran = run(callwright(home.path()).current_dir(home.path()).args(["template", "check", name]));
        assert_eq!(ran.code, 3, "{}", ran.out);
        assert!(ran.out.contains("not tried: another conversation ended with: "), "{}", ran.out);
        assert!(ran.out.contains(why) && ran.out.contains("as above"), "{}", ran.out);
    }
}

#[test]
fn what_a_template_lacks_is_named_with_the_format_of_its_calls() {
    let ask = |source: String| {
        let engine = Box::new(ScriptedEngine::from_texts(ModelInfo::default(), ["Hello."]));
        let template = ChatTemplate::new("mine.jinja", source).unwrap();
        let mut session = Session::new(engine, Some(template), None).unwrap();
        session.set_tools(Tools::from_json(r#"[{"name": "clock"}]"#, "tools").unwrap());
        session.notices().join("\n")
    };
    let source = std::fs::read_to_string(case("toolless.jinja")).unwrap();
    let own = source.replace("tool_call>", "do>");
    insta::assert_snapshot!([ask(source.clone()), ask(own)].join("\n"));
}

#[test]
fn json_says_the_same() {
    let home = tempfile::tempdir().unwrap();
    let ran = run(callwright(home.path()).args(["template", "check", "--json"]).arg(case("careless.jinja")));
    assert_eq!(ran.code, 3);
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((&report["format"], &report["sound"]), (&"careless".into(), &false.into()));
    let parallel = report["renders"].as_array().unwrap().iter().find(|render| render["what"] == "parallel calls");
    let parallel = parallel.unwrap();
    assert_eq!(parallel["outcome"], "fail");
    assert!(parallel["error"].as_str().unwrap().contains("One call at a time!"), "{parallel}");
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn a_model_counts_tokens() {
    let home = tempfile::tempdir().unwrap();
    let mut command = callwright(home.path());
    let ran = run(command.args(["template", "check", "-m", "bundled", "--json"]).arg(case("sound.jinja")));
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    let tokens = |list: &str, key: &str, name: &str| {
        let found = report[list].as_array().unwrap().iter().find(|entry| entry[key] == name);
        found.unwrap_or_else(|| panic!("{name} in {report:#}"))["tokens"].as_i64().unwrap()
    };
    assert!(tokens("markers", "marker", "<call>") > 1, "no token of this vocabulary");
    // The section has a tool's JSON and nothing else.
    let (tool, json) =
        (tokens("costs", "what", "a tool with two parameters"), tokens("costs", "what", "of these, its JSON"));
    assert!(json > 10 && (tool - json).abs() < 12, "{tool} {json}");
    assert!(tokens("costs", "what", "a call, without name and arguments") > 5);

    let model = run(callwright(home.path()).args(["template", "check", "-m", "bundled"]));
    assert_eq!((model.code, model.err.as_str()), (0, ""), "{}", model.out);
    assert!(model.out.contains("What it costs in tokens of"), "{}", model.out);
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn the_formats_are_listed_and_shown() {
    let home = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| run(callwright(home.path()).arg("template").args(arguments));
    let list = run(&["list"]);
    assert_eq!((list.code, list.err.as_str()), (0, ""));
    let json: Value = serde_json::from_str(&run(&["list", "--json"]).out).unwrap();
    let formats = json.as_array().unwrap();
    assert_eq!(formats.len(), Format::builtins().len());
    for format in formats {
        let name = format["name"].as_str().unwrap();
        assert!(list.out.contains(&format!("\n{name} ")), "{name} in\n{}", list.out);
        let first = format["sample"].as_str().unwrap().lines().next().unwrap();
        assert!(list.out.contains(&format!("\n    {first}\n")), "{first} in\n{}", list.out);
        assert_eq!(run(&["show", name]).out, Format::builtin(name).unwrap().source());
    }
    assert!(run(&["show", "chatml"]).out.contains("im_start"));
    let unknown = run(&["show", "hermse"]);
    assert_eq!((unknown.code, unknown.out.as_str()), (2, ""));
    assert!(unknown.err.contains("did you mean `hermes`?"), "{}", unknown.err);
    let unknown = run(&["check", "hermse"]);
    assert_eq!((unknown.code, unknown.out.as_str()), (2, ""));
    assert!(unknown.err.contains("did you mean the built-in `hermes`?"), "{}", unknown.err);
}

#[test]
fn a_format_file_is_checked_on_a_plain_template() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("mine.jinja");
    std::fs::write(&path, Format::builtin("hermes").unwrap().source().replace("tool_call", "mine")).unwrap();
    let ran = run(callwright(home.path()).args(["template", "check"]).arg(&path));
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    assert!(ran.out.starts_with("templates/chatml.jinja, with the overlay hermes\n"), "{}", ran.out);
}

#[test]
fn a_style_is_written_natively() {
    let info = ModelInfo { name: "scripted".into(), context_train: 16_384, ..ModelInfo::default() };
    let call = "<tool_call>\n{\"name\": \"clock\", \"arguments\": {}}\n</tool_call>";
    let engine = Box::new(ScriptedEngine::from_texts(info, [call]));
    let hermes = Format::builtin("hermes").unwrap().clone();
    let mut session = Session::new(engine, Some(template("styles.jinja")), Some(hermes)).unwrap();
    session.set_tools(Tools::from_json(r#"[{"name": "clock"}]"#, "tools").unwrap());
    session.set_messages(vec![Message::user("What time is it?")]).unwrap();
    let prompt = session.prompt().unwrap().0.text();
    assert!(prompt.starts_with("Call so: <tool_call>\n{\"name\": …"), "{prompt}");
    let reply = session.respond(&mut |_| ()).unwrap();
    assert_eq!(reply.calls[0].name, "clock");
}

#[test]
fn a_format_is_native_where_the_template_writes_what_it_reads() {
    let native =
        |format: &str, template: &ChatTemplate| Format::builtin(format).unwrap().native_in(template).unwrap().is_some();
    let styles = template("styles.jinja");
    assert!(native("hermes", &styles) && !native("delimited", &styles));
    // The same template, which says nothing of its format.
    let silent = styles.source().split_once("---#}").unwrap().1.replace("<call>", "<tool_call>");
    let silent = ChatTemplate::new("silent", silent.replace("</call>", "</tool_call>")).unwrap();
    assert!(native("hermes", &silent) && !native("mistral", &silent) && !native("qwen3-coder", &silent));
    // Somebody's own format that has the name of one that the template writes, but other markers.
    for name in ["hermes", "plain"] {
        let own = Format::builtin("hermes").unwrap().source().replace("<tool_call>", "<own>").replace("hermes", name);
        let own = Format::parse_declaration(&own).unwrap().unwrap();
        assert!(own.name == name && own.native_in(&styles).unwrap().is_none(), "{name}");
    }
    let report = Subject::new(&silent, Format::builtin("hermes")).check(None).unwrap();
    assert!(report.sound(), "{report:#?}");
    let results = report.renders.iter().find(|render| render.what == "tool result").unwrap();
    assert_eq!(results.outcome, Outcome::Pass);
}

#[test]
fn the_report_says_what_a_template_without_a_declaration_writes() {
    let home = tempfile::tempdir().unwrap();
    let source = template("styles.jinja").source().split_once("---#}").unwrap().1.to_owned();
    let path = home.path().join("silent.jinja");
    std::fs::write(&path, &source).unwrap();
    let ran = run(callwright(home.path()).current_dir(home.path()).args(["template", "check", "silent.jinja"]));
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    let (_, block) =
        ran.out.split_once("as a declaration for its beginning\n").unwrap_or_else(|| panic!("{}", ran.out));
    let block = block.lines().take_while(|line| line.starts_with("  "));
    let block: String = block.map(|line| format!("{}\n", &line[2..])).collect();
    // What is printed can be pasted.
    std::fs::write(&path, block + source.trim_start()).unwrap();
    let ran = run(callwright(home.path()).current_dir(home.path()).args(["template", "check", "silent.jinja"]));
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    assert!(ran.out.starts_with("silent.jinja, which writes the format inferred\n"), "{}", ran.out);
}

/// A pipe can be read only once. What may be a slip is said, and is no fault.
#[test]
fn a_template_from_a_pipe_is_checked() {
    let home = tempfile::tempdir().unwrap();
    let source = std::fs::read_to_string(case("sound.jinja")).unwrap();
    let source = format!("{source}{{% if enable_thinkin %}}{{% endif %}}");
    let ran = run(callwright(home.path()).args(["template", "check", "/dev/stdin"]).write_stdin(source));
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    assert!(ran.out.contains("Nothing sets `enable_thinkin`, unless it is given with the variables."), "{}", ran.out);
}

/// What other people's templates write is read back, as far as they write calls.
#[test]
#[ignore = "needs the conformance data: CALLWRIGHT_CONFORMANCE=… cargo test -- --ignored conformance"]
fn conformance_templates_are_read_back() {
    let folder = crate::data::conformance();
    let (mut checked, mut wrong) = (0, String::new());
    for entry in std::fs::read_dir(folder.join("templates")).unwrap() {
        let template = ChatTemplate::from_file(entry.unwrap().path()).unwrap();
        let inference = Format::infer(&template);
        let report = Subject::new(&template, inference.format.as_ref()).check(None).unwrap();
        assert_eq!(report.renders.len(), 13);
        checked += 1;
        for trip in &report.round_trips {
            if let Some(problem) = &trip.problem {
                wrong += &format!("{}, {}: {problem}\n{}\n", template.name(), trip.what, trip.written);
            }
        }
    }
    assert!(checked > 40 && wrong.is_empty(), "{checked} templates\n{wrong}");
}
