//! The bundled model and the Python that makes it: neither may drift from what the engine does.

use crate::program::{callwright, run};
use callwright::engine::LoadOptions;
use callwright::template::Piece;
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const TEMPLATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/models/chat_template.jinja");

/// What `python -m …` does in the repository.
fn python(arguments: &[&str]) -> Output {
    let venv = Path::new(ROOT).join("target/training-venv/bin/python");
    let program = if venv.exists() { venv.as_path() } else { Path::new("python3") };
    let mut command = Command::new(program);
    let ran = command.arg("-m").args(arguments).current_dir(ROOT).env("PYTHONDONTWRITEBYTECODE", "1").output();
    ran.unwrap_or_else(|error| panic!("cannot start {}: {error}", program.display()))
}

fn passes(tests: &str) {
    let ran = python(&["unittest", "-v", tests]);
    let report = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{report}");
    // Says what was skipped, such as all that needs torch.
    println!("{report}");
}

#[test]
#[ignore = "needs Python 3: cargo test -- --ignored python"]
fn the_generator_passes_its_python_tests() {
    passes("lab.training.test_data");
}

#[test]
#[ignore = "needs Python 3: cargo test -- --ignored python"]
fn the_tokenizer_and_the_export_pass_their_python_tests_where_torch_is_installed() {
    passes("lab.training.test_model");
}

#[test]
#[ignore = "needs Python 3: cargo test -- --ignored python"]
fn training_in_python_reads_what_the_engine_renders() {
    let ran = python(&["lab.training", "render", "--scenes", "64", "--seed", "7"]);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let lines = String::from_utf8(ran.stdout).unwrap();
    let rows: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(rows.len() >= 200, "{}", rows.len());
    for style in ["delimited", "hermes"] {
        assert!(rows.iter().filter(|row| row["vars"]["tool_style"] == style).count() >= 50);
    }

    let input: String =
        rows.iter().map(|row| json!({"template": TEMPLATE, "vars": row["vars"]}).to_string() + "\n").collect();
    let home = tempfile::tempdir().unwrap();
    let rendered = run(callwright(home.path()).args(["render", "--batch"]).write_stdin(input));
    assert_eq!((rendered.code, rendered.err.as_str()), (0, ""));
    let answers: Vec<&str> = rendered.out.lines().collect();
    assert_eq!(answers.len(), rows.len());
    for (answer, row) in answers.iter().zip(&rows) {
        let answer: Value = serde_json::from_str(answer).unwrap();
        assert_eq!(answer["text"], row["text"]);
    }
}

#[test]
fn any_schema_becomes_a_signature() {
    let tool = |schema: Value| json!({"name": "f", "parameters": schema});
    let object = |properties: Value| json!({"type": "object", "properties": properties, "required": ["a"]});
    let cases = [
        (object(json!({"a": {"type": "string"}, "b": {"type": "integer"}})), "f(a,b?:integer)"),
        (object(json!({"a": {"type": "array", "items": {"type": "number"}}})), "f(a:[number])"),
        (object(json!({"a": {"enum": ["x", "y z", 1, null]}})), "f(a:x|\"y z\"|1|null)"),
        (object(json!({"a": object(json!({"a": {}, "c": true}))})), "f(a:{a:any,c?:any})"),
        (
            object(json!({"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "b": {"type": ["integer", "null"]}})),
            "f(a:string|null,b?:integer|null)",
        ),
        (object(json!({"two words": {"const": "k"}, "items": {"type": "array"}})), "f(\"two words\"?:k,items?:[any])"),
        (
            json!({"properties": {"n": {"$ref": "#/$defs/N"}, "m": {"$ref": "#/$defs/M"}},
                "$defs": {"N": {"type": "object", "properties": {"v": {"type": "boolean"}}}}}),
            "f(n?:{v?:boolean},m?:M)",
        ),
        (json!({}), "f()"),
        (Value::Null, "f()"),
    ];
    let endless = json!({"properties": {"n": {"$ref": "#/$defs/N"}},
        "$defs": {"N": {"properties": {"n": {"$ref": "#/$defs/N"}}}}});
    let schemas = cases.iter().map(|(schema, _)| schema).chain([&endless]);
    let input: String = schemas
        .map(|schema| {
            json!({"template": TEMPLATE, "vars": {"messages": [], "tools": [tool(schema.clone())]}}).to_string() + "\n"
        })
        .collect();
    let home = tempfile::tempdir().unwrap();
    let rendered = run(callwright(home.path()).args(["render", "--batch"]).write_stdin(input));
    assert_eq!((rendered.code, rendered.err.as_str()), (0, ""));
    let texts: Vec<Value> =
        rendered.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["text"].clone()).collect();
    for ((_, signature), text) in cases.iter().zip(&texts) {
        assert_eq!(text, &format!("<|system|>1 {signature}<|end|>"));
    }
    let text = texts.last().unwrap().as_str().unwrap();
    assert!(text.starts_with("<|system|>1 f(n?:{n?:{n?:") && text.len() < 100, "{text}");
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn token_ids_are_those_that_training_used() {
    let options = LoadOptions::default().with(|options| options.vocabulary_only = true);
    let engine = crate::bundled::load(options);
    let rows = include_str!("../../cases/model/token-ids.jsonl");
    assert_eq!(rows.lines().count(), 1000);
    for row in rows.lines() {
        let row: Value = serde_json::from_str(row).unwrap();
        let text = row["text"].as_str().unwrap().to_owned();
        let tokens = engine.tokenize(&[Piece { text: text.clone(), literal: false }]).unwrap();
        let ids: Vec<i32> = tokens.iter().map(|token| token.0).collect();
        assert_eq!(json!(ids), row["ids"], "{text:?}");
    }
}
