//! Schemas that a grammar enforces in part or not at all: what is refused, what is left out, and what is checked after.

use crate::program::{callwright, run};
use callwright::engine::ModelInfo;
use callwright::engine::constraint::Compiler;
use callwright::engine::scripted::ScriptedEngine;
use callwright::engine::vocabulary::Vocabulary;
use callwright::format::Format;
use callwright::format::grammar::{Begins, Scope, json_grammar};
use callwright::message::{Arguments, ToolCall};
use callwright::session::{Options, Reply};
use callwright::tool::Tool;
use callwright::{ErrorKind, Session};
use serde_json::{Value, json};

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
fn what_a_notation_cannot_hold_to_is_said() {
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
    *session.options_mut() = Options { grammar: Some(json_grammar(schema, false).unwrap()), ..Options::default() };
    session.ask("Well?").unwrap()
}

#[test]
fn an_answer_is_checked_for_what_its_grammar_does_not_enforce() {
    let schema =
        json!({"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2, "uniqueItems": true});
    let notes = |says| {
        let reply = answer(&schema, says);
        assert_eq!(reply.message.content, says);
        reply.notes.iter().map(|note| format!("{}: {}", note.kind, note.message)).collect::<Vec<_>>().join("\n")
    };
    insta::assert_snapshot!([notes("[7, 8]"), notes("[7, 7]")].join("\n--\n"));
}

#[test]
fn the_program_fails_where_an_answer_does_not_fit_or_cannot_be_whole() {
    let folder = tempfile::tempdir().unwrap();
    let tried = [
        ("never.json", r#"{"type": "boolean", "not": {"type": "boolean"}}"#),
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
