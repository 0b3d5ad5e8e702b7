//! What a grammar accepts, the parser reads back without a repair: random tools, random texts, every built-in format.

use crate::byte_tokens;
use callwright::constraint::{Calls, Compiler, Constraint, Mode, Rules};
use callwright::engine::vocabulary::{ReadVocabulary, Vocabulary};
use callwright::engine::{Engine, ModelInfo, Token};
use callwright::format::Format;
use callwright::generate::{Limits, generate};
use callwright::grammar::{Begins, Scope, json_grammar};
use callwright::message::{Arguments, ToolCall};
use callwright::parse::{Parser, ParserOptions};
use callwright::template::Piece;
use callwright::tool::Tool;
use callwright::{ErrorKind, Result, Tools};
use serde_json::{Map, Value, json};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Random numbers, the same on every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }
}

/// A model over bytes that wants something else at every step, markup and brackets most of all.
struct Babbler {
    info: ModelInfo,
    cached: Vec<Token>,
    logits: Vec<f32>,
    random: Random,
}

impl Babbler {
    fn new(seed: u64) -> Babbler {
        let info = ModelInfo { context_train: 100_000, ..ModelInfo::default() };
        Babbler { info, cached: Vec::new(), logits: vec![0.0; 257], random: Random(seed) }
    }
}

impl Engine for Babbler {
    fn model(&self) -> &ModelInfo {
        &self.info
    }
    fn tokenize(&self, prompt: &[Piece]) -> Result<Vec<Token>> {
        Ok(byte_tokens::tokenize(prompt))
    }
    fn token_bytes(&self, token: Token) -> &[u8] {
        byte_tokens::bytes(token)
    }
    fn is_end(&self, token: Token) -> bool {
        token.0 == 256
    }
    fn vocabulary(&self) -> Option<ReadVocabulary> {
        Some(Box::new(Vocabulary::of_bytes))
    }
    fn reserve(&mut self, _: usize, _: usize) -> Result<()> {
        Ok(())
    }
    fn context_limit(&self) -> usize {
        100_000
    }
    fn cached(&self) -> &[Token] {
        &self.cached
    }
    fn truncate(&mut self, len: usize) {
        self.cached.truncate(len);
    }
    fn decode(&mut self, tokens: &[Token]) -> Result<()> {
        self.cached.extend_from_slice(tokens);
        for (byte, logit) in self.logits.iter_mut().enumerate() {
            let structural = byte < 128 && b"\"\\{}[]<>/(),:=#|\n '-.0129etn_".contains(&(byte as u8));
            *logit = self.random.below(1000) as f32 / 100.0 + if structural { 4.0 } else { 0.0 };
        }
        Ok(())
    }
    fn logits(&self, _: usize) -> &[f32] {
        &self.logits
    }
}

fn schema(random: &mut Random, depth: usize) -> Value {
    let kinds = if depth == 0 { 21 } else { 26 };
    match random.below(kinds) {
        0 | 1 => json!({"type": "string"}),
        2 => json!({"type": "integer"}),
        3 => json!({"type": "number", "minimum": 0}),
        4 => json!({"type": "boolean"}),
        5 => json!({"type": "string", "enum": ["one", "two words", "3", "a\"b", "</tool_call>"]}),
        6 => json!({"type": "string", "minLength": 2, "maxLength": 6}),
        7 => json!({"type": ["integer", "null"], "maximum": 100}),
        8 => json!({"description": "anything"}),
        9 => json!({"enum": ["auto", "null", 7, false, "No"]}),
        10 => {
            json!({"anyOf": [{"const": "x"}, {"type": "string", "minLength": 2, "maxLength": 3}, {"enum": ["none", 1]}]})
        }
        11 => json!({"$ref": "#/$defs/Unit"}),
        12 => json!({"anyOf": [{"$ref": "#/$defs/Unit"}, {"type": "null"}], "default": null}),
        13 => json!({"allOf": [{"type": "string"}, {"maxLength": 4}]}),
        14 | 15 => json!({"anyOf": [{"type": "string"}, {"type": "null"}]}),
        16 => json!({"type": ["string", "integer", "boolean"], "maxLength": 5}),
        17 => json!({"anyOf": [{"$ref": "#/$defs/Point"}, {"type": "string"}]}),
        18 => json!({"allOf": [{"$ref": "#/$defs/Short"}], "description": "short"}),
        19 => json!({"allOf": [{"type": "string"}, {"anyOf": [{"minLength": 2}, {"pattern": "x"}]}]}),
        20 => json!({"oneOf": (0..70).map(|n| json!({"const": format!("c{n}")})).collect::<Vec<_>>()}),
        21 => json!({"type": "array", "items": schema(random, depth - 1), "minItems": random.below(2), "maxItems": 3}),
        22 => json!({"anyOf": [{"type": "string", "maxLength": 5}, {"type": "number"}]}),
        23 => json!({"type": "string", "pattern": "^[a-z]{2}[0-9]+$", "format": "nonsense"}),
        24 => json!({"type": ["string", "array"], "items": {"type": "integer"}, "maxItems": 3}),
        _ => object(random, depth - 1),
    }
}

fn object(random: &mut Random, depth: usize) -> Value {
    let (mut properties, mut required) = (Map::new(), Vec::new());
    for index in 0..random.below(4) {
        let name = format!("{}{index}", random.one(&["city", "n", "max_value", "x"]));
        properties.insert(name.clone(), schema(random, depth));
        if random.below(2) == 0 {
            required.push(name);
        }
    }
    json!({"type": "object", "properties": properties, "required": required})
}

fn tools(random: &mut Random) -> Tools {
    let tools = (0..1 + random.below(3)).map(|index| {
        let mut parameters = object(random, 2);
        parameters["$defs"] = json!({
            "Unit": {"type": "string", "enum": ["C", "F", "-1"]},
            "Short": {"type": ["string", "null"], "maxLength": 3},
            "Point": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}});
        let Value::Object(parameters) = parameters else { unreachable!() };
        let name = format!("{}_{index}", random.one(&["get", "get_all", "math.add", "f"]));
        Tool::new(name, "", if random.below(6) == 0 { None } else { Some(parameters) })
    });
    Tools::new(tools.collect::<Vec<_>>()).unwrap()
}

/// What is wrong with what one format's grammar let through.
fn trouble(format: &Format, seed: u64, budget: usize) -> Option<String> {
    let mut random = Random(seed);
    let tools = tools(&mut random);
    let mut rules = Rules::default();
    (rules.mode, rules.calls) = (Mode::Strict, Calls::Required);
    rules.max_calls = Some(1 + random.below(3));
    rules.jump = random.below(4) > 0;
    let mut compiler = Compiler::for_format(Vocabulary::of_bytes(), format).unwrap();
    let shown = tools.to_json().to_string();
    let mut constraint = match Constraint::new(&mut compiler, format, &tools, None, rules) {
        Ok(constraint) => constraint,
        Err(error) => return Some(format!("{error}\n{shown}")),
    };
    let cancel = AtomicBool::new(false);
    let limits = Limits::new(budget, &cancel);
    let sampling = crate::bundled::unfiltered(1.0, seed);
    let mut text = Vec::new();
    let mut engine = Babbler::new(seed);
    let made = generate(&mut engine, &[Token(65)], &sampling, limits, Some(&mut constraint), &mut |bytes, _| {
        text.extend_from_slice(bytes);
        ControlFlow::Continue(())
    });
    let notices = constraint.notices().to_vec();
    let text = String::from_utf8_lossy(&text).into_owned();
    if let Err(error) = made {
        return Some(format!("{error}\n{text}\n{shown}"));
    }
    let mut parser = Parser::new(format, Some(Arc::new(tools)), ParserOptions::default()).unwrap();
    parser.push(text.as_bytes(), &mut |_| ());
    let parsed = parser.finish(&mut |_| ());
    let fine = !parsed.calls.is_empty()
        && parsed.calls.iter().all(|call| call.complete && call.valid)
        && parsed.repairs.is_empty()
        && parsed.diagnostics.is_empty()
        && parsed.content.trim().is_empty();
    (!fine).then(|| {
        let problems: Vec<_> = parsed.calls.iter().flat_map(|call| &call.problems).collect();
        format!(
            "{notices:?} calls {} repairs {:?} diagnostics {:?} problems {problems:?} content {:?}\n{text:?}\n{shown}",
            parsed.calls.len(),
            parsed.repairs,
            parsed.diagnostics,
            parsed.content
        )
    })
}

#[test]
fn what_a_grammar_accepts_the_parser_reads() {
    let rounds: u64 = std::env::var("CALLWRIGHT_GRAMMAR_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(12);
    let only = std::env::var("CALLWRIGHT_GRAMMAR_FORMAT").ok();
    let mut wrong = Vec::new();
    for name in Format::names().filter(|name| only.as_deref().is_none_or(|only| only == *name)) {
        let format = Format::builtin(name).unwrap();
        let failed: Vec<String> =
            (0..rounds).filter_map(|seed| Some(format!("seed {seed}: {}", trouble(format, seed, 900)?))).collect();
        if let Some(first) = failed.first() {
            wrong.push(format!("== {name}: {} of {rounds}\n{first}", failed.len()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// Rows that differ, and why: `engine<TAB>name<TAB>reason`. A change for better or worse fails until it says so.
const KNOWN: &str = include_str!("../../cases/grammar/schemas-differences.tsv");

#[test]
#[ignore = "needs the conformance data: CALLWRIGHT_CONFORMANCE=… cargo test -- --ignored conformance"]
fn conformance_schemas_accept_and_reject_what_they_should() {
    let folder = crate::data::conformance();
    let rows = std::fs::read_to_string(folder.join("schemas.jsonl")).unwrap();
    let mut compiler = Compiler::for_format(Vocabulary::of_bytes(), Format::delimited()).unwrap();
    let mut found = Vec::new();
    for row in rows.lines() {
        let row: Value = serde_json::from_str(row).unwrap();
        let key = format!("{}\t{}", row["engine"].as_str().unwrap(), row["name"].as_str().unwrap());
        let grammar = match json_grammar(&row["schema"], true) {
            Ok(grammar) => grammar,
            Err(error) => {
                found.push(format!("{key}\t{error}"));
                continue;
            }
        };
        let mut wrong = |list: &str, accept: bool| {
            let texts = row[list].as_array().unwrap();
            let text = texts.iter().map(|text| text.as_str().unwrap());
            let mut odd = text.filter(|text| compiler.check(&grammar.lark, text).unwrap().is_none() != accept);
            odd.next().map(|text| format!("{key}\t{list} {text:?}"))
        };
        found.extend(wrong("accept", true).or_else(|| wrong("reject", false)));
    }
    let known: Vec<&str> = KNOWN.lines().filter(|line| !line.starts_with('#')).collect();
    let listed = |row: &String| known.iter().any(|k| row.starts_with(k.rsplit_once('\t').map_or(*k, |(key, _)| key)));
    let (expected, unexpected): (Vec<_>, Vec<_>) = found.iter().partition(|row| listed(row));
    assert!(unexpected.is_empty(), "{unexpected:#?}");
    assert_eq!(expected.len(), known.len(), "a listed row is as it should be");
}

#[test]
fn keywords_that_are_not_enforced_are_reported_and_the_others_are_enforced() {
    let schema = json!({"type": "object", "properties": {
        "a": {"type": "string", "pattern": "^(?!x)[a-z]+$", "maxLength": 4},
        "b": {"type": "array", "items": {"type": "integer"}, "uniqueItems": true},
        "c": {"oneOf": [{"type": "integer", "minimum": 3}, {"type": "integer", "maximum": 5}]},
        "d": {"type": "string", "format": "colour"}},
        "required": ["a"], "additionalProperties": false});
    let grammar = json_grammar(&schema, true).unwrap();
    let said: Vec<String> = grammar.unenforced.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(said.join("\n"));
    let mut compiler = Compiler::for_format(Vocabulary::of_bytes(), Format::delimited()).unwrap();
    let mut accepts = |text: &str| compiler.check(&grammar.lark, text).unwrap().is_none();
    assert!(accepts(r#"{"a": "xyz", "b": [1, 1], "c": 4, "d": "red"}"#));
    assert!(
        !accepts(r#"{"a": "vwxyz"}"#) && !accepts(r#"{"a": "x", "b": ["1"]}"#) && !accepts(r#"{"a": "x", "c": "4"}"#)
    );
}

#[test]
fn schemas_in_other_dialects_are_understood() {
    let tools = Tools::from_json(
        r#"[{"name": "f", "parameters": {"type": "dict", "properties": {"a": {"type": "float"}, "b": {"type": "tuple",
            "items": {"type": "integer"}}, "c": {"type": "any"}, "d": {"type": "string", "nullable": true}},
            "required": ["a"]}}]"#,
        "tools.json",
    )
    .unwrap();
    let scope = Scope { begins: Begins::Answer, max_calls: Some(1), only_calls: true };
    let grammar = Format::builtin("hermes").unwrap().grammar(&tools.iter().collect::<Vec<_>>(), scope).unwrap();
    let mut compiler = Compiler::for_format(Vocabulary::of_bytes(), Format::builtin("hermes").unwrap()).unwrap();
    let mut check = |arguments: &str| {
        let text = format!("<tool_call>\n{{\"name\": \"f\", \"arguments\": {arguments}}}\n</tool_call>");
        compiler.check(&grammar.lark, &text).unwrap()
    };
    assert_eq!(check(r#"{"a": 1.5, "b": [1, 2], "c": {"x": []}, "d": null}"#), None);
    assert_eq!(check(r#"{"a": "1"}"#), Some(45), "the byte where it fails is named");
    assert_eq!(tools.problems("f", json!({"a": 1, "d": null}).as_object().unwrap()), []);
}

/// A schema of what tools mostly have, and now and then something else.
fn plain_schema(random: &mut Random, depth: usize) -> Value {
    let nested = |random: &mut Random| plain_schema(random, depth.saturating_sub(1));
    match random.below(if depth == 0 { 10 } else { 16 }) {
        0 => json!({"type": "string", "description": "a text", "default": "x"}),
        1 => json!({"type": "integer", "title": "N"}),
        2 => json!({"type": "number"}),
        3 => json!({"type": "boolean"}),
        4 => json!({"type": "integer", "minimum": random.below(3)}),
        5 => json!({"type": "number", "minimum": 0, "maximum": 50}),
        6 => json!({"enum": ["a", "b c", 1, null]}),
        7 => json!({"type": ["integer", "null"], "maximum": 5}),
        8 => json!({"type": ["string", "number"]}),
        9 => json!({"$ref": random.one(&["#/$defs/Leaf", "#/$defs/Tree", "#/$defs/Count"])}),
        10 => json!({"anyOf": [nested(random), {"type": "null"}], "default": null}),
        11 => json!({"type": "array", "items": nested(random)}),
        12 => json!({"type": "array", "items": nested(random), "minItems": 1, "maxItems": 1 + random.below(3)}),
        13 => json!({"type": "array", "items": nested(random), "minItems": 2}),
        14 => json!({"type": "object", "additionalProperties": nested(random)}),
        _ => {
            let (one, two) = (nested(random), nested(random));
            let required: &[&str] = [&[] as &[&str], &["b"], &["a", "description"]][random.below(3)];
            let properties = json!({"a": one, "b": two, "description": {"type": "string"}});
            json!({"type": "object", "properties": properties, "required": required})
        }
    }
}

/// A value that may fit.
fn value_for(schema: &Value, whole: &Value, random: &mut Random) -> Value {
    if random.below(12) == 0 {
        return [json!("x"), json!(-1), json!(2.5), json!(null), json!([]), json!({}), json!(true)][random.below(7)]
            .clone();
    }
    if let Some(place) = schema["$ref"].as_str() {
        return value_for(whole.pointer(&place[1..]).unwrap(), whole, random);
    }
    if let Some(options) = schema["enum"].as_array().or(schema["anyOf"].as_array()) {
        let one = &options[random.below(options.len())];
        return if schema.get("enum").is_some() { one.clone() } else { value_for(one, whole, random) };
    }
    let kind = match &schema["type"] {
        Value::Array(kinds) => kinds[random.below(kinds.len())].as_str().unwrap(),
        kind => kind.as_str().unwrap_or("string"),
    };
    match kind {
        "integer" => json!([0, 1, -7, 3, 12_345][random.below(5)]),
        "number" => [json!(0), json!(-0.5), json!(49.99), json!(50), json!(1_000)][random.below(5)].clone(),
        "boolean" => json!(true),
        "null" => Value::Null,
        "array" => (0..random.below(4)).map(|_| value_for(&schema["items"], whole, random)).collect(),
        "object" => {
            let mut members = Map::new();
            if let Some(rest @ Value::Object(_)) = schema.get("additionalProperties") {
                (0..random.below(3))
                    .for_each(|i| drop(members.insert(format!("k{i}"), value_for(rest, whole, random))));
            }
            for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
                if random.below(4) > 0 {
                    members.insert(name.clone(), value_for(schema, whole, random));
                }
            }
            members.into()
        }
        _ => json!(random.one(&["", "x", "a \"b\"", "ü\n", "12"])),
    }
}

/// JSON with a space after commas and colons.
fn spaced(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("[{}]", items.iter().map(spaced).collect::<Vec<_>>().join(", ")),
        Value::Object(members) => {
            let members =
                members.iter().map(|(key, value)| format!("{}: {}", Value::from(key.as_str()), spaced(value)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
        }
        scalar => scalar.to_string(),
    }
}

#[test]
fn a_grammar_accepts_the_arguments_that_fit_the_schema_and_no_others() {
    let format = Format::delimited();
    let mut compiler = Compiler::for_format(Vocabulary::of_bytes(), format).unwrap();
    let scope = Scope { begins: Begins::Answer, max_calls: Some(1), only_calls: true };
    let (mut fitting, mut others) = (0, 0);
    for seed in 0..120 {
        let mut random = Random(seed);
        let mut parameters = json!({"type": "object", "properties": {"x": plain_schema(&mut random, 2), "y": plain_schema(&mut random, 1)},
            "required": ["x"], "$defs": {
                "Leaf": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
                "Tree": {"type": "object", "properties": {"leaf": {"$ref": "#/$defs/Leaf"},
                    "children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}}, "required": ["leaf"]},
                "Count": {"type": "integer", "minimum": 0}}});
        if random.below(5) == 0 {
            // An object whose parts are combined is left as it is.
            parameters["properties"]["z"] = json!({"allOf": [{"type": "integer"}, {"minimum": 3}]});
        }
        let Value::Object(object) = parameters.clone() else { unreachable!() };
        let tools = Tools::new([Tool::new("f", "", Some(object))]).unwrap();
        let grammar = format.grammar(&tools.iter().collect::<Vec<_>>(), scope).unwrap();
        for _ in 0..12 {
            let arguments = value_for(&parameters, &parameters, &mut random);
            let Value::Object(members) = &arguments else { continue };
            let fits = tools.problems("f", members).is_empty();
            let text = format!(
                "### TOOL_CALL_START ###\n{{\"name\": \"f\", \"arguments\": {}}}\n### TOOL_CALL_END ###",
                spaced(&arguments)
            );
            let accepted = compiler.check(&grammar.lark, &text).unwrap().is_none();
            assert_eq!(accepted, fits, "seed {seed}: {text}\n{parameters}\n{}", grammar.lark);
            *(if fits { &mut fitting } else { &mut others }) += 1;
        }
    }
    assert!(fitting > 300 && others > 100, "{fitting} {others}");
}

#[test]
fn what_no_value_fits_is_left_out_where_it_may_be_and_refused_where_not() {
    for name in ["delimited", "qwen3-coder", "gemma-4", "lfm2", "minimax-m2", "functionary-v3.1"] {
        let format = Format::builtin(name).unwrap();
        let scope = Scope { begins: Begins::Answer, max_calls: Some(1), only_calls: true };
        for impossible in [
            json!({"type": "integer", "minimum": 5, "maximum": 1}),
            json!({"enum": []}),
            json!({"anyOf": [{"enum": []}, {"type": "integer", "minimum": 5, "maximum": 1}]}),
        ] {
            let schema = |required: &str| {
                let properties = json!({"a": impossible, "b": {"anyOf": [impossible, {"type": "boolean"}]}});
                let Value::Object(schema) = json!({"type": "object", "properties": properties, "required": [required]})
                else {
                    unreachable!()
                };
                Tool::new("f", "", Some(schema))
            };
            let error = format.grammar(&[&schema("a")], scope).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Tools, "{name}");
            assert!(error.to_string().starts_with("tool \"f\": no value fits the schema"), "{name}: {error}");
            let grammar = format.grammar(&[&schema("b")], scope).unwrap();
            let arguments = Arguments::Object(json!({"b": true}).as_object().unwrap().clone());
            let call = ToolCall { id: Some("abcdef123".into()), name: "f".into(), arguments };
            let mut compiler = Compiler::for_format(Vocabulary::of_bytes(), format).unwrap();
            let text = format.write_calls(&[call]);
            assert_eq!(compiler.check(&grammar.lark, &text).unwrap(), None, "{name}: {text}\n{}", grammar.lark);
        }
    }
}

#[test]
fn the_program_shows_grammars_and_checks_strings() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let tools = write(
        "tools.json",
        r#"[{"name": "clock", "parameters": {"type": "object", "properties": {"zone": {"type": "string", "not": {"const": "x"}}}}}]"#,
    );
    let schema = write("schema.json", r#"{"type": "array", "items": {"type": "integer"}}"#);
    let strings = write("strings.txt", "\"[1, 2]\"\n\"[1, x]\"\n\"[1,\"\n");
    let run = |arguments: &[&str]| {
        let output = crate::program::callwright(folder.path()).arg("grammar").args(arguments).output().unwrap();
        let text = |bytes: Vec<u8>| {
            String::from_utf8(bytes).unwrap().replace(&folder.path().display().to_string(), "<folder>")
        };
        format!("== exit {:?}\n{}{}", output.status.code(), text(output.stdout), text(output.stderr))
    };
    let shown = [
        run(&["--tools", &tools]),
        run(&["--json-schema", &schema, "--check", &strings]),
        run(&["--json-schema", &schema, "--check", &strings, "--json"]),
        run(&["--tools", &tools, "--tool-choice", "clocks"]),
        run(&["--tools", &tools, "--tool-choice", "auto"]),
        run(&["--tools", &tools, "--tool-choice", "none"]),
    ];
    insta::assert_snapshot!(shown.join("\n"));

    let lines = "{\"schema\": {\"type\": \"integer\"}, \"text\": \"12\"}\n{\"schema\": {\"type\": \"integer\"}, \"text\": \"1x\"}\n";
    let mut batch = crate::program::callwright(folder.path());
    let output = batch.args(["grammar", "--batch"]).write_stdin(lines).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "{\"accepted\":true}\n{\"accepted\":false,\"byte\":1}\n");
}

#[test]
fn text_between_tags_may_contain_its_closing_tag_before_other_text() {
    let folder = tempfile::tempdir().unwrap();
    let tools = folder.path().join("tools.json");
    let note = r#"[{"name": "note", "parameters": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}}]"#;
    std::fs::write(&tools, note).unwrap();
    for (format, tag) in [("glm-4", "</arg_value>"), ("minimax-m2", "</parameter>"), ("qwen3-coder", "</parameter>")] {
        let write = |text: &str| {
            let arguments = json!({"text": text}).as_object().cloned().unwrap();
            let arguments = Arguments::Object(arguments);
            Format::builtin(format).unwrap().write_calls(&[ToolCall { id: None, name: "note".to_owned(), arguments }])
        };
        let cases =
            [("Use {} twice.", true), ("{}, then.", true), ("a {}<b", false), ("a {}", false), ("{}  b", false)];
        for (text, accepted) in cases {
            let text = text.replace("{}", tag);
            let answer = write(&text);
            let strings = folder.path().join("strings.txt");
            std::fs::write(&strings, json!(answer).to_string()).unwrap();
            let mut command = crate::program::callwright(folder.path());
            command.arg("grammar").arg("--format").arg(format).arg("--tools").arg(&tools).arg("--check").arg(&strings);
            let ran = crate::program::run(command.args(["--tool-choice", "required", "--json"]));
            assert_eq!(ran.out.contains("\"accepted\":true"), accepted, "{format}: {answer}\n{ran:?}");
            let tools = Some(Arc::new(Tools::from_file(&tools).unwrap()));
            let mut parser = Parser::new(Format::builtin(format).unwrap(), tools, ParserOptions::default()).unwrap();
            parser.push(answer.as_bytes(), &mut |_| ());
            let parsed = parser.finish(&mut |_| ());
            let read = parsed.calls[0].arguments.as_object().and_then(|object| object["text"].as_str());
            assert!(!accepted || read == Some(&text) && parsed.calls[0].valid, "{format}: {read:?} for {text:?}");
        }
    }
}
