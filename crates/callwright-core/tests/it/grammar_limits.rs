//! Schemas and grammars from outside: none ends the program or goes on without end, what is too large is said with its
//! place, and what a grammar accepts fits its schema.

use callwright_core::format::Format;
use callwright_core::grammar::{Begins, Effort, Grammar, LIMITS, Scope, budget, is_large, json_grammar, prepared};
use callwright_core::tool::Tool;
use callwright_core::{ErrorKind, Result};
use jsonschema::error::ValidationErrorKind;
use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities};
use llguidance::{ParserFactory, TokenParser};
use serde_json::{Map, Value, json};
use std::time::{Duration, Instant};

const ONE: Scope = Scope { begins: Begins::Answer, max_calls: Some(1), only_calls: true };
/// A format of each payload kind and notation.
const FORMATS: [&str; 6] = ["delimited", "qwen3-coder", "gemma-4", "lfm2", "minimax-m2", "functionary-v3.1"];

fn tool(schema: Value) -> Tool {
    let Value::Object(schema) = schema else { unreachable!() };
    Tool::new("f", "", Some(schema))
}

fn parser(lark: String) -> std::result::Result<TokenParser, String> {
    let env = ApproximateTokEnv::single_byte_env();
    let mut factory = ParserFactory::new(&env, InferenceCapabilities::default(), &[]).unwrap();
    factory.quiet();
    *factory.limits_mut() = LIMITS.engine();
    let grammar = prepared(TopLevelGrammar::from_lark(lark), Some(env))?;
    factory.create_parser_from_init_default(grammar).map_err(|error| error.to_string())
}

/// The grammar's parser over bytes, or why the engine refuses it or takes too long.
fn compiled(lark: &str) -> std::result::Result<TokenParser, String> {
    let grammar = lark.to_owned();
    budget::within(is_large(lark), move || parser(grammar)).map_err(|ended| ended.to_string())?
}

/// The same however long it takes.
fn patiently(lark: &str) -> std::result::Result<TokenParser, String> {
    let grammar = lark.to_owned();
    let thread = std::thread::Builder::new().stack_size(LIMITS.stack).spawn(move || parser(grammar));
    thread.unwrap().join().unwrap()
}

fn accepts(lark: &str, text: &str) -> bool {
    let mut parser = patiently(lark).unwrap();
    parser.start_without_prompt();
    let fits = text.bytes().all(|byte| parser.consume_token(u32::from(byte)).is_ok());
    fits && parser.is_accepting()
}

fn members(count: usize, member: &Value) -> Map<String, Value> {
    (0..count).map(|n| (format!("p{n}"), member.clone())).collect()
}

/// Definitions that lead to one another, in each of the ways that a schema can.
fn chains(length: usize) -> Vec<Value> {
    type Link = fn(Value) -> Value;
    let links: [Link; 13] = [
        |next| json!({"type": "array", "items": next}),
        |next| json!({"type": "array", "prefixItems": [next], "items": false}),
        |next| json!({"type": "object", "properties": {"x": next}}),
        |next| json!({"type": "object", "properties": {"x": next}, "required": ["x"]}),
        |next| json!({"type": "object", "additionalProperties": next}),
        |next| json!({"type": "object", "patternProperties": {"^x": next}, "additionalProperties": false}),
        |next| json!({"anyOf": [next, {"type": "null"}]}),
        |next| json!({"oneOf": [next, {"type": "null"}]}),
        |next| json!({"allOf": [next]}),
        |next| json!({"allOf": [next, {"description": "d"}]}),
        |next| next,
        |next| json!({"$ref": next["$ref"], "type": ["string", "array"]}),
        |next| json!({"type": ["array", "null"], "items": {"anyOf": [next, {"type": "integer"}]}}),
    ];
    let chain = |link: Link| {
        let mut definitions: Map<String, Value> =
            (0..length).map(|n| (format!("a{n}"), link(json!({"$ref": format!("#/$defs/a{}", n + 1)})))).collect();
        definitions.insert(format!("a{length}"), json!({"type": "string"}));
        json!({"type": "object", "properties": {"x": {"$ref": "#/$defs/a0"}}, "required": ["x"], "$defs": definitions})
    };
    links.into_iter().map(chain).collect()
}

/// Small schemas that multiply when they are combined.
fn bombs() -> Vec<Value> {
    let patterns = |count: usize| (0..count).map(|n| json!({"pattern": format!(".*{n}.*")})).collect::<Vec<_>>();
    let mut nested = vec![json!({"type": "string"}); 3];
    for keyword in ["oneOf", "anyOf", "allOf"] {
        let mut inner = json!({"type": "string"});
        for _ in 0..16 {
            inner = json!({keyword: [inner, {"type": "integer"}, {"type": "null"}]});
        }
        nested.push(inner);
        let mut inner = json!({"type": "string"});
        for _ in 0..16 {
            inner = json!({keyword: [{"type": "object", "properties": {"x": inner}}, {"type": "array"}, {"properties": {"x": {"type": "null"}}}]});
        }
        nested.push(inner);
    }
    let doubled = |keyword: &str, siblings: Value| {
        let next = |n: usize| json!({"$ref": format!("#/$defs/a{}", n + 1)});
        let link = |n: usize| {
            let mut link = siblings.clone();
            link[keyword] = json!([next(n), next(n), next(n)]);
            link
        };
        let mut definitions: Map<String, Value> = (0..16).map(|n| (format!("a{n}"), link(n))).collect();
        definitions.insert("a16".to_owned(), json!({"type": "string"}));
        json!({"$ref": "#/$defs/a0", "$defs": definitions})
    };
    nested.extend([
        json!({"type": "string", "allOf": patterns(18)}),
        json!({"type": "string", "anyOf": patterns(40)}),
        json!({"allOf": [{"anyOf": patterns(10)}, {"oneOf": patterns(10)}, {"pattern": "^x"}, {"format": "email"}]}),
        json!({"patternProperties": (0..60).map(|n| (format!(".*{n}.*"), json!(true))).collect::<Map<_, _>>()}),
        json!({"type": "string", "pattern": "((a{1,1000}){1,1000}){1,1000}"}),
        json!({"type": "string", "pattern": "(.*a){60}", "minLength": 900, "maxLength": 1000}),
        json!({"type": "string", "minLength": 1e9}),
        json!({"type": "array", "minItems": 1e9, "items": {"type": "string"}}),
        json!({"type": "number", "multipleOf": 1e-9}),
        json!({"type": "integer", "multipleOf": 999_999_937u64, "minimum": 1}),
        json!({"enum": (0..60_000).map(|n| format!("value {n}")).collect::<Vec<_>>()}),
        json!({"allOf": (0..400).map(|n| json!({"if": {"const": n}, "then": {"type": "null"}})).collect::<Vec<_>>()}),
        json!({"minProperties": 1, "properties": members(1500, &json!({"type": "string"})), "additionalProperties": false}),
        json!({"oneOf": (0..1500).map(|n| json!({"properties": {"k": {"const": n}}, "required": ["k"]})).collect::<Vec<_>>()}),
        doubled("oneOf", json!({})),
        doubled("anyOf", json!({"minLength": 1})),
        doubled("allOf", json!({"minLength": 1})),
        doubled("oneOf", json!({"type": "string"})),
    ]);
    nested
}

fn in_object(schema: &Value) -> Value {
    let mut whole = json!({"type": "object", "properties": {"x": schema}, "required": ["x"]});
    if let Some(definitions) = schema.get("$defs") {
        whole["$defs"] = definitions.clone();
    }
    whole
}

/// The grammars of an answer and of calls, and how long they took.
fn grammars(schema: &Value, formats: &[&str]) -> (Vec<(String, Result<Grammar>)>, Duration) {
    let began = Instant::now();
    let mut made = vec![("answer".to_owned(), json_grammar(schema, false))];
    let tool = tool(in_object(schema));
    for name in formats {
        made.push(((*name).to_owned(), Format::builtin(name).unwrap().grammar(&[&tool], ONE)));
    }
    // The engine may refuse one, or on a busy machine take too long; what matters is that it ends.
    for (_, grammar) in &made {
        let _ = grammar.as_ref().map(|grammar| compiled(&grammar.lark).map(|_| ()));
    }
    (made, began.elapsed())
}

#[test]
fn a_tool_with_a_thousand_members_is_enforced_whole() {
    for required in [0, 3, 1000] {
        let names: Vec<String> = (0..required).map(|n| format!("p{n}")).collect();
        let schema =
            json!({"type": "object", "properties": members(1000, &json!({"type": "string"})), "required": names});
        let tool = tool(schema.clone());
        for name in FORMATS {
            let grammar = Format::builtin(name).unwrap().build_grammar(&[&tool], ONE, &Effort::Unchecked).unwrap();
            assert_eq!(grammar.unenforced, [], "{name}");
            patiently(&grammar.lark).unwrap();
        }
        if required < 1000 {
            let format = Format::builtin("hermes").unwrap();
            let grammar = format.build_grammar(&[&tool], ONE, &Effort::Unchecked).unwrap();
            let first = if required == 3 { r#""p0": "a", "p1": "a", "p2": "a", "# } else { "" };
            let call = |members: &str| {
                format!("<tool_call>\n{{\"name\": \"f\", \"arguments\": {{{first}{members}}}}}\n</tool_call>")
            };
            assert!(accepts(&grammar.lark, &call(r#""p7": "a", "p500": "b", "p999": "c""#)));
            assert!(!accepts(&grammar.lark, &call(r#""p7": "a", "p500": 7"#)));
            assert!(!accepts(&grammar.lark, &call(r#""p500": "a", "p7": "b""#)));
        }
        match json_grammar(&schema, false) {
            Ok(grammar) => drop(patiently(&grammar.lark).unwrap()),
            // On a busy machine.
            Err(error) => assert!(error.message().contains("takes more than"), "{error}"),
        }
    }
}

#[test]
fn chains_of_definitions_overflow_no_stack() {
    for length in [30, 200, 3000] {
        for schema in chains(length) {
            let formats = if length == 200 { &FORMATS[..] } else { &FORMATS[..1] };
            grammars(&schema["properties"]["x"], &[]);
            let tool = tool(schema.clone());
            for name in formats {
                let grammar = Format::builtin(name).unwrap().grammar(&[&tool], ONE);
                let _ = grammar.map(|grammar| compiled(&grammar.lark).map(|_| ()));
            }
            let _ = json_grammar(&schema, false).map(|grammar| compiled(&grammar.lark).map(|_| ()));
        }
    }
}

#[test]
fn what_multiplies_is_left_out_with_its_place() {
    bombs().iter().for_each(|schema| drop(grammars(schema, &FORMATS)));
    let patterns: Vec<Value> = (0..18).map(|n| json!({"pattern": format!(".*{n}.*")})).collect();
    let schema =
        json!({"type": "object", "properties": {"x": {"type": "string", "allOf": patterns}}, "required": ["x"]});
    let error = json_grammar(&schema, false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Constraint);
    insta::assert_snapshot!(error);
    let grammar = Format::delimited().grammar(&[&tool(schema)], ONE).unwrap();
    insta::assert_snapshot!(grammar.unenforced[0]);
}

#[test]
fn grammars_of_users_overflow_no_stack() {
    let chain: String = (0..20_000).map(|n| format!("r{n}: \"a\" r{}\n", n + 1)).collect();
    let deep = format!("start: {}\"a\"{}\n", "(".repeat(5000), ")".repeat(5000));
    for text in [format!("start: r0\n{chain}r20000: \"b\"\n"), deep, "start: \"a\"".repeat(1 << 20)] {
        let _ = Grammar::from_text(&text);
        let _ = Grammar::from_text(&text.replace(": ", " ::= "));
    }
}

/// Random numbers, the same on every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

/// A schema with parts that are nested, wide, or multiply.
fn schema(random: &mut Random, depth: usize, definitions: usize) -> Value {
    const NAMES: [&str; 4] = ["a", "b b", "c\"", "$"];
    const PATTERNS: [&str; 8] =
        ["^a+$", "x", ".*b.*", "^[a-z]{2,40}$", "(a|b|ab)*c", "^(.*a){9}$", "\\d{3}-\\d", "^\\p{L}{1,200}$"];
    let wide = |random: &mut Random| if random.below(60) == 0 { 300 + random.below(1500) } else { random.below(4) };
    let leaf = depth == 0;
    match random.below(if leaf { 14 } else { 30 }) {
        0 => json!({"type": "string"}),
        1 => json!({"type": "integer", "minimum": random.below(5), "maximum": 5 + random.below(1000)}),
        2 => json!({"type": "number", "multipleOf": ([0.5, 3.0, 1e-7, 7e6][random.below(4)])}),
        3 => json!({"type": ["boolean", "null"]}),
        4 => json!({"enum": (0..=wide(random) * 5).map(|n| json!(format!("v{n}"))).collect::<Vec<_>>()}),
        5 => json!({"const": {"a": [1, "x"]}}),
        6 | 7 => json!({"type": "string", "pattern": PATTERNS[random.below(PATTERNS.len())]}),
        8 => {
            json!({"type": "string", "minLength": ([0, 3, 400, 1_000_000_000][random.below(4)]), "maxLength": ([5, 500, 2_000_000_000usize][random.below(3)])})
        }
        9 => json!({"type": "string", "format": (["date", "email", "uuid", "nonsense"][random.below(4)])}),
        10 => json!(random.below(8) > 0),
        11..=13 if definitions > 0 => json!({"$ref": format!("#/$defs/d{}", random.below(definitions))}),
        11 => json!({}),
        12 | 13 => json!({"type": "object"}),
        14..=19 => {
            let count = wide(random);
            let depth = if count > 10 { 0 } else { depth - 1 };
            let mut members = Map::new();
            for n in 0..count {
                members.insert(format!("{}{n}", NAMES[random.below(4)]), schema(random, depth, definitions));
            }
            let required: Vec<String> = members.keys().filter(|_| random.below(3) == 0).cloned().collect();
            let mut object = json!({"type": "object", "properties": members, "required": required});
            match random.below(8) {
                0 => object["additionalProperties"] = schema(random, depth.saturating_sub(1), definitions),
                1 => object["additionalProperties"] = json!(false),
                2 => object["minProperties"] = json!(random.below(4)),
                3 => object["patternProperties"] = json!({PATTERNS[random.below(6)]: {"type": "integer"}, "^q": true}),
                _ => {}
            }
            object
        }
        20..=22 => {
            json!({"type": "array", "items": schema(random, depth - 1, definitions), "minItems": random.below(3), "maxItems": ([2, 5, 100, 100_000][random.below(4)])})
        }
        23 => {
            let count = wide(random).min(200);
            json!({"type": "array", "prefixItems": (0..=count).map(|_| schema(random, depth - 1, definitions)).collect::<Vec<_>>()})
        }
        24..=27 => {
            let keyword = ["anyOf", "oneOf", "allOf"][random.below(3)];
            let (count, depth) = match random.below(30) {
                0 => (20 + random.below(30), 0),
                _ => (1 + random.below(3), depth - 1),
            };
            let mut one = json!({keyword: (0..count).map(|_| schema(random, depth, definitions)).collect::<Vec<_>>()});
            match random.below(4) {
                0 => one["anyOf"] = (0..3).map(|_| schema(random, depth, definitions)).collect(),
                1 => one["minLength"] = json!(2),
                _ => {}
            }
            one
        }
        28 => json!({"if": schema(random, depth - 1, definitions), "then": {"type": "string"}, "not": {"const": 1}}),
        _ => {
            let mut inner = schema(random, 0, definitions);
            for _ in 0..random.below(50) {
                inner = json!({"type": "array", "items": inner});
            }
            inner
        }
    }
}

fn with_definitions(random: &mut Random) -> Value {
    let definitions = [0, 2, 5, 40][random.below(4)];
    let depth = 1 + random.below(5);
    let mut whole = schema(random, depth, definitions);
    if let Value::Object(object) = &mut whole
        && definitions > 0
    {
        let defined: Map<String, Value> =
            (0..definitions).map(|n| (format!("d{n}"), schema(random, 2, definitions))).collect();
        object.insert("$defs".to_owned(), Value::Object(defined));
    }
    whole
}

/// A text that the grammar accepts, if one ends soon.
fn babbled(lark: &str, random: &mut Random) -> Option<String> {
    let mut parser = compiled(lark).ok()?;
    parser.start_without_prompt();
    let mut text = Vec::new();
    for _ in 0..400 {
        if parser.is_accepting() && random.below(3) > 0 {
            return String::from_utf8(text).ok();
        }
        let mask = parser.compute_mask().ok()?;
        let mut allowed: Vec<u8> = (0..=255).filter(|byte| mask.is_allowed(u32::from(*byte))).collect();
        let closing: Vec<u8> = allowed.iter().copied().filter(|byte| b"\"]}0e".contains(byte)).collect();
        if !closing.is_empty() && random.below(3) > 0 {
            allowed = closing;
        }
        if allowed.is_empty() {
            return parser.is_accepting().then(|| String::from_utf8(text).ok()).flatten();
        }
        let byte = allowed[random.below(allowed.len())];
        parser.consume_token(u32::from(byte)).ok()?;
        text.push(byte);
    }
    None
}

#[test]
fn generated_schemas_end_and_their_grammars_accept_what_fits() {
    let seeds: u64 = std::env::var("CALLWRIGHT_SCHEMAS").ok().and_then(|n| n.parse().ok()).unwrap_or(30);
    let first: u64 = std::env::var("CALLWRIGHT_FIRST_SCHEMA").ok().and_then(|n| n.parse().ok()).unwrap_or(0);
    let (mut slowest, mut checked, mut wrong) = (Vec::new(), 0, Vec::new());
    for seed in first..first + seeds {
        let mut random = Random(seed);
        let schema = with_definitions(&mut random);
        let format = FORMATS[random.below(FORMATS.len())];
        let (made, took) = grammars(&schema, &[format]);
        slowest.push((took, seed));
        let Some((_, Ok(grammar))) = made.into_iter().next() else { continue };
        let Ok(validator) = jsonschema::validator_for(&schema) else { continue };
        for _ in 0..3 {
            let Some(text) = babbled(&grammar.lark, &mut random) else { continue };
            let value = match serde_json::from_str::<Value>(&text) {
                Ok(value) => value,
                // It is JSON, with a number that no processor's number can be.
                Err(error) if error.to_string().starts_with("number out of range") => continue,
                Err(error) => {
                    wrong.push(format!("{seed}: {text:?} is no JSON: {error}"));
                    continue;
                }
            };
            checked += 1;
            // A name that is written twice is one member for JSON, and two for a grammar.
            let counts_names = |kind: &ValidationErrorKind| matches!(kind, ValidationErrorKind::MinProperties { .. });
            if grammar.unenforced.is_empty() && validator.iter_errors(&value).any(|error| !counts_names(error.kind())) {
                wrong.push(format!("{seed}: {text:?} does not fit {schema}"));
            }
        }
    }
    slowest.sort();
    let (longest, seed) = slowest.last().copied().unwrap_or_default();
    eprintln!("{checked} texts, at most {longest:?} for the grammars of one schema (seed {seed})");
    assert!(wrong.is_empty(), "{} of {checked}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(checked > 0 && longest < Duration::from_secs(60), "{longest:?}, seed {seed}");
}
