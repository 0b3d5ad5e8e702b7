//! Schemas that a grammar enforces in part or not at all: what is refused, what is left out, and what is checked after.

use crate::program::{callwright, run};
use callwright::constraint::Compiler;
use callwright::engine::ModelInfo;
use callwright::engine::scripted::ScriptedEngine;
use callwright::engine::vocabulary::Vocabulary;
use callwright::format::Format;
use callwright::grammar::{Begins, Scope, json_grammar};
use callwright::message::{Arguments, ToolCall};
use callwright::parse::{Parser, ParserOptions};
use callwright::session::{Options, Reply};
use callwright::tool::Tool;
use callwright::{ErrorKind, Session, Tools};
use serde_json::{Value, json};
use std::sync::Arc;

const ONE: Scope = Scope { begins: Begins::Answer, max_calls: Some(1), only_calls: true };
/// A format of each payload kind and notation.
const FORMATS: [&str; 6] = ["delimited", "qwen3-coder", "gemma-4", "lfm2", "minimax-m2", "functionary-v3.1"];

fn tool(schema: Value) -> Tool {
    let Value::Object(schema) = schema else { unreachable!() };
    Tool::new("f", "", Some(schema))
}

#[test]
fn what_requires_itself_without_end_is_refused_or_left_out() {
    let node = json!({"type": "object", "properties": {"n": {"$ref": "#/$defs/node"}}, "required": ["n"]});
    for name in FORMATS {
        let format = Format::builtin(name).unwrap();
        let schema = |required: Value| {
            tool(json!({"type": "object", "$defs": {"node": node}, "required": required, "properties": {
                "tree": {"$ref": "#/$defs/node"}, "list": {"type": "array", "items": {"$ref": "#/$defs/node"}},
                "either": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "boolean"}]}}}))
        };
        let error = format.grammar(&[&schema(json!(["tree"]))], ONE).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Tools, "{name}");
        if name == "delimited" {
            insta::assert_snapshot!(error);
        }
        let grammar = format.grammar(&[&schema(json!(["either"]))], ONE).unwrap();
        let mut compiler = Compiler::for_format(Vocabulary::of_bytes(), format).unwrap();
        let arguments = Arguments::Object(json!({"either": true}).as_object().unwrap().clone());
        let call = ToolCall { id: Some("abcdef123".into()), name: "f".into(), arguments };
        let text = format.write_calls(&[call]);
        assert_eq!(compiler.check(&grammar.lark, &text).unwrap(), None, "{name}: {text}\n{}", grammar.lark);
        assert!(!grammar.lark.contains("tree"), "{name}: {}", grammar.lark);
    }
    let error = json_grammar(&json!({"$ref": "#/$defs/node", "$defs": {"node": node}}), false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Tools);
}

#[test]
fn a_reference_leads_where_it_says_in_every_notation() {
    let tool = tool(json!({"type": "object", "required": ["id", "kids"], "properties": {
        "id": {"type": "integer", "minimum": 0, "maximum": 9}, "other": {"$ref": "#/properties/id"},
        "kids": {"type": "array", "items": {"$ref": "#"}}}}));
    for name in FORMATS {
        let format = Format::builtin(name).unwrap();
        let grammar = format.grammar(&[&tool], ONE).unwrap();
        let mut compiler = Compiler::for_format(Vocabulary::of_bytes(), format).unwrap();
        let mut accepts = |arguments: Value| {
            let arguments = Arguments::Object(arguments.as_object().unwrap().clone());
            let call = ToolCall { id: Some("abcdef123".into()), name: "f".into(), arguments };
            compiler.check(&grammar.lark, &format.write_calls(&[call])).unwrap().is_none()
        };
        let deep =
            json!({"id": 3, "kids": [{"id": 4, "other": 5, "kids": [{"id": 1, "kids": [{"id": 2, "kids": []}]}]}]});
        assert!(accepts(json!({"id": 1, "other": 2, "kids": [deep]})), "{name}\n{}", grammar.lark);
        assert!(!accepts(json!({"id": 1, "other": 12, "kids": []})), "{name}");
        assert!(!accepts(json!({"id": 1, "kids": [{"id": 12, "kids": []}]})), "{name}");
    }
}

#[test]
fn keywords_that_a_notation_cannot_enforce_are_reported() {
    let tool = tool(json!({"type": "object", "minProperties": 2, "maxProperties": 3, "properties": {
        "map": {"type": "object", "minProperties": 2, "additionalProperties": {"type": "integer"}},
        "pair": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "uniqueItems": true},
        "one": {"enum": [1, 2, 3], "minimum": 2},
        "kind": {"oneOf": [{"type": "integer"}, {"type": "string"}], "not": {"const": 3}}}}));
    let said = FORMATS.map(|name| {
        let grammar = Format::builtin(name).unwrap().grammar(&[&tool], ONE).unwrap();
        let said: Vec<String> = grammar.unenforced.iter().map(|u| format!("{} {}", u.path, u.keyword)).collect();
        format!("{name}: {}", said.join(", "))
    });
    insta::assert_snapshot!(said.join("\n"));
}

fn answer(schema: &Value, says: &str) -> Reply {
    let info = ModelInfo { context_train: 16_384, ..ModelInfo::default() };
    let mut session = Session::new(Box::new(ScriptedEngine::from_texts(info, [says])), None, None).unwrap();
    *session.options_mut() =
        Options::default().with(|options| options.grammar = Some(json_grammar(schema, false).unwrap()));
    session.ask("Well?").unwrap()
}

#[test]
fn an_answer_is_checked_for_what_its_grammar_does_not_enforce() {
    let schema =
        json!({"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2, "uniqueItems": true});
    let notes = |says| {
        let reply = answer(&schema, says);
        assert_eq!(reply.message.content, says);
        reply.notes.iter().map(|note| format!("{:?}: {}", note.kind, note.message)).collect::<Vec<_>>().join("\n")
    };
    insta::assert_snapshot!([notes("[7, 8]"), notes("[7, 7]")].join("\n--\n"));
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn the_program_fails_where_an_answer_does_not_fit_or_cannot_be_whole() {
    let folder = tempfile::tempdir().unwrap();
    let tried = [
        ("never.json", r#"{"const": true, "not": {"type": "boolean"}}"#),
        ("long.json", r#"{"type": "array", "items": {"type": "boolean"}, "minItems": 200}"#),
        ("banana.json", r#"{"type": "object", "properties": {"a": {"type": "banana"}}}"#),
        ("nowhere.json", r##"{"type": "object", "properties": {"a": {"$ref": "#/$defs/none"}}}"##),
        ("endless.json", r##"{"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}"##),
        ("broken.lark", "start: nonsense\n"),
        ("bracket.lark", "start: word\n\nword: \"a\" (\"b\"\n"),
        ("class.lark", "start: /ü/ /[a-/\n"),
        ("nowhere.lark", "word: \"a\"\n"),
        ("endless.lark", "start: \"on and \" start\n"),
    ];
    let shown = tried.map(|(name, text)| {
        std::fs::write(folder.path().join(name), text).unwrap();
        let option = if name.ends_with("json") { "--json-schema" } else { "--grammar" };
        let mut command = callwright(folder.path());
        command.current_dir(folder.path());
        let ran = run(command.args(["run", "Well?", option, name, "--max-tokens", "30", "--temp", "0"]));
        format!("== {name}: exit {}\n{}", ran.code, ran.err.trim())
    });
    insta::assert_snapshot!(shown.join("\n"));
}

/// How a format writes a call of `f`.
fn call(format: &Format, arguments: &Value) -> String {
    let Value::Object(arguments) = arguments.clone() else { unreachable!() };
    let arguments = Arguments::Object(arguments);
    format.write_calls(&[ToolCall { id: Some("abcdef123".into()), name: "f".into(), arguments }])
}

/// What is read of a call, where that is what was written, without a repair.
fn reads_back(format: &Format, tool: &Tool, text: &str, arguments: &Value) -> bool {
    let tools = Tools::new([tool.clone()]).unwrap();
    let mut parser = Parser::new(format, Some(Arc::new(tools)), ParserOptions::default()).unwrap();
    parser.push(text.as_bytes(), &mut |_| ());
    let parsed = parser.finish(&mut |_| ());
    let [read] = parsed.calls.as_slice() else { return false };
    let Value::Object(arguments) = arguments else { unreachable!() };
    let same = match &read.arguments {
        Arguments::Object(read) => read == arguments,
        Arguments::Raw(_) => false,
    };
    same && read.complete && parsed.repairs.is_empty()
}

/// Each case is a property's schema (or all `parameters`), and the values that a grammar `accepts` and `rejects` (or
/// whole `calls` and those `refused`), or that it is an error. What is not enforced is a part of the snapshot.
#[test]
fn every_notation_accepts_what_fits_and_reads_it_back() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("../../cases/grammar/notations.json")).unwrap();
    let mut reported = Vec::new();
    let mut wrong = Vec::new();
    for case in &cases {
        let known =
            ["why", "formats", "schema", "defs", "parameters", "accepts", "rejects", "calls", "refused", "error"];
        let unknown = case.as_object().unwrap().keys().find(|key| !known.contains(&key.as_str()));
        assert_eq!(unknown, None, "{case}");
        let why = case["why"].as_str().unwrap();
        let list = |key: &str| case[key].as_array().cloned().unwrap_or_default();
        let formats: Vec<&str> = match case["formats"].as_array() {
            Some(formats) => formats.iter().map(|name| name.as_str().unwrap()).collect(),
            None => FORMATS.iter().copied().chain(["glm-4"]).collect(),
        };
        let tool = match case.get("parameters") {
            Some(parameters) => tool(parameters.clone()),
            None => tool(json!({"type": "object", "properties": {"a": case["schema"]}, "required": ["a"],
                "$defs": case.get("defs").cloned().unwrap_or(json!({}))})),
        };
        let of_a = |values: Vec<Value>| values.into_iter().map(|value| json!({"a": value})).collect::<Vec<_>>();
        for name in formats {
            let format = Format::builtin(name).unwrap();
            let grammar = match format.grammar(&[&tool], ONE) {
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Tools, "{why}");
                    reported.push(format!("{why} ({name}): {error}"));
                    if case.get("error").is_none() {
                        wrong.push(format!("{why} ({name}): {error}"));
                    }
                    continue;
                }
                Ok(grammar) => grammar,
            };
            if case.get("error").is_some() {
                wrong.push(format!("{why} ({name}): no error\n{}", grammar.lark));
                continue;
            }
            let left: Vec<String> = grammar.unenforced.iter().map(|u| format!("{} {}", u.path, u.keyword)).collect();
            if !left.is_empty() {
                reported.push(format!("{why} ({name}): not enforced: {}", left.join(", ")));
            }
            let mut compiler = Compiler::for_format(Vocabulary::of_bytes(), format).unwrap();
            let mut check = |arguments: &Value, accept: bool| {
                let text = call(format, arguments);
                let accepted = compiler.check(&grammar.lark, &text).unwrap().is_none();
                if accepted != accept || accept && !reads_back(format, &tool, &text, arguments) {
                    wrong.push(format!("{why} ({name}): accepted {accepted}: {text}\n{}", grammar.lark));
                }
            };
            [of_a(list("accepts")), list("calls")].concat().iter().for_each(|arguments| check(arguments, true));
            [of_a(list("rejects")), list("refused")].concat().iter().for_each(|arguments| check(arguments, false));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    insta::assert_snapshot!(reported.join("\n"));
}

#[test]
fn a_number_that_is_listed_may_be_large() {
    let mut compiler = Compiler::for_format(Vocabulary::of_bytes(), Format::delimited()).unwrap();
    let large = 10_000_000_000_000_000_000_u64;
    for schema in [json!({"type": "integer", "const": large}), json!({"type": "number", "enum": [large]})] {
        for flexible in [true, false] {
            let grammar = json_grammar(&schema, flexible).unwrap();
            assert_eq!(compiler.check(&grammar.lark, &large.to_string()).unwrap(), None, "{}", grammar.lark);
            assert!(compiler.check(&grammar.lark, "7").unwrap().is_some(), "{schema}");
        }
    }
}

/// Short texts of what numbers and words are made of, with white space around them.
fn short_texts() -> Vec<String> {
    let letters = ["0", "1", "-", "+", ".", "e", "E", "_", " ", "x"];
    let mut texts = vec![String::new()];
    let mut last = texts.clone();
    for _ in 0..3 {
        last = last.iter().flat_map(|text| letters.iter().map(move |letter| format!("{text}{letter}"))).collect();
        texts.extend(last.iter().cloned());
    }
    for word in
        ["null", "None", "true", "False", "NONE", "nan", "Infinity", "undefined", "2024-01-01", "1e5", "1_000.5"]
    {
        texts.extend((1..=word.len()).map(|end| word[..end].to_owned()));
        texts.extend([format!(" {word}"), format!("{word}\n\n"), format!("{word} {word}"), format!("{word}x")]);
    }
    texts.extend(["{", "[", "{}", "[1]", " {x", "\"x\"", "'x'", "<![CDATA[x]]>"].map(String::from));
    texts
}

#[test]
fn a_text_beside_other_types_is_any_that_is_read_as_one() {
    let mut left_out = Vec::new();
    for name in ["qwen3-coder", "glm-4", "minimax-m2"] {
        let format = Format::builtin(name).unwrap();
        for kinds in [&[][..], &["null"], &["number"], &["integer"], &["boolean"], &["object"], &["array", "null"]] {
            let kinds: Vec<&str> = kinds.iter().chain(&["string"]).copied().collect();
            let tool = tool(json!({"type": "object", "properties": {"a": {"type": kinds}}, "required": ["a"]}));
            let grammar = format.grammar(&[&tool], ONE).unwrap();
            let mut compiler = Compiler::for_format(Vocabulary::of_bytes(), format).unwrap();
            for text in short_texts() {
                let arguments = json!({"a": text});
                let written = call(format, &arguments);
                let accepted = compiler.check(&grammar.lark, &written).unwrap().is_none();
                let as_json = serde_json::from_str(&text)
                    .is_ok_and(|value: Value| reads_back(format, &tool, &written, &json!({"a": value})));
                let read = reads_back(format, &tool, &written, &arguments);
                assert!(!accepted || read || as_json, "{name} {kinds:?}: {text:?} is not read back");
                // In any case they look like what they are not.
                let is = |words: [&str; 2]| words.iter().any(|word| text.trim().eq_ignore_ascii_case(word));
                let odd = kinds.contains(&"null") && is(["null", "none"])
                    || kinds.contains(&"boolean") && is(["true", "false"]);
                // What begins like JSON may be repaired to it.
                let brackets = kinds.contains(&"object") || kinds.contains(&"array");
                let bracket = brackets && text.trim().starts_with(['{', '[']);
                if read && !accepted && !odd && !bracket {
                    left_out.push(format!("{name} {kinds:?}: {text:?}"));
                }
            }
        }
    }
    assert!(left_out.is_empty(), "{}", left_out.join("\n"));
}
