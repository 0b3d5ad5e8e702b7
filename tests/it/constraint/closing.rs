//! No call is cut off: whatever the schema, the format, the number of tokens and the model.

use callwright::constraint::{Calls, Compiler, Constraint, Mode, Rules};
use callwright::engine::sampler::Sampling;
use callwright::engine::scripted::ScriptedEngine;
use callwright::engine::vocabulary::Vocabulary;
use callwright::engine::{Engine, ModelInfo, Token};
use callwright::format::Format;
use callwright::generate::{End, Limits, generate};
use callwright::grammar::{Begins, Grammar, Scope, json_grammar};
use callwright::message::{Arguments, ToolCall};
use callwright::parse::{Parsed, Parser, ParserOptions};
use callwright::session::{FinishReason, ToolChoice};
use callwright::tool::Tool;
use callwright::{ErrorKind, Session, Tools};
use serde_json::{Map, Value};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// One schema, and arguments that a model goes on about.
struct Case {
    name: String,
    tools: Tools,
    arguments: String,
}

fn cases() -> Vec<Case> {
    read(include_str!("../../cases/constraint/closing.json"))
}

fn read(cases: &str) -> Vec<Case> {
    let cases: Vec<Map<String, Value>> = serde_json::from_str(cases).unwrap();
    let case = |mut case: Map<String, Value>| {
        let name = case.remove("name").unwrap().as_str().unwrap().to_owned();
        let arguments = case.remove("arguments").unwrap().as_str().unwrap().to_owned();
        case.insert("type".into(), "object".into());
        Case { name, tools: Tools::new(vec![Tool::new("f", "", Some(case))]).unwrap(), arguments }
    };
    cases.into_iter().map(case).collect()
}

fn rules(mode: Mode, calls: Calls) -> Rules {
    let mut rules = Rules::default();
    (rules.mode, rules.calls) = (mode, calls);
    rules
}

/// What came of a generation: the text, the notices, and how it ended; nothing else where a required call has no room.
struct Written {
    text: Vec<u8>,
    reported: Vec<String>,
    end: End,
    closed: bool,
}

fn write(engine: &mut dyn Engine, constraint: &mut Constraint<'_>, sampling: Sampling, max_tokens: usize) -> Written {
    let cancel = AtomicBool::new(false);
    let limits = Limits::new(max_tokens, &cancel);
    let mut text = Vec::new();
    let made = generate(engine, &[Token(65), Token(66)], &sampling, limits, Some(constraint), &mut |bytes, _| {
        text.extend_from_slice(bytes);
        ControlFlow::Continue(())
    });
    let made = match made {
        Err(error) if error.message().contains("tokens are left") && text.is_empty() => {
            assert_eq!(error.kind(), ErrorKind::Constraint);
            return Written { text, reported: vec![error.message().to_owned()], end: End::Stopped, closed: false };
        }
        made => made.unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&text))),
    };
    assert!(made.tokens.len() <= max_tokens);
    let reported = constraint.notices().iter().map(ToString::to_string).collect();
    Written { text, reported, end: made.end, closed: made.closed_from.is_some() }
}

fn parse(format: &Format, tools: &Tools, text: &[u8]) -> Parsed {
    let tools = Arc::new(Tools::from_value(&tools.to_json()).unwrap());
    let mut parser = Parser::new(format, Some(tools), ParserOptions::default()).unwrap();
    parser.push(text, &mut |_| ());
    parser.finish(&mut |_| ())
}

fn is_sound(parsed: &Parsed) -> bool {
    parsed.calls.iter().all(|call| call.complete && call.valid) && parsed.repairs.is_empty()
}

#[test]
fn whatever_the_schema_a_call_is_complete_or_not_begun() {
    let format = Format::delimited();
    let mut compiler = Compiler::for_format(Vocabulary::of_bytes(), format).unwrap();
    let mut wrong = Vec::new();
    for case in cases() {
        let script = format!(
            "### TOOL_CALL_START ###\n{{\"name\": \"f\", \"arguments\": {}}}\n### TOOL_CALL_END ###",
            case.arguments
        );
        let mut made = 0;
        // With all the room it needs the model is not interfered with.
        let budgets = (20..script.len()).step_by(7).chain([script.len() + 2]);
        for budget in budgets {
            let mut engine =
                ScriptedEngine::from_texts(ModelInfo { context_train: 16_384, ..Default::default() }, [&*script]);
            let mut constraint =
                Constraint::new(&mut compiler, format, &case.tools, None, rules(Mode::Auto, Calls::Allowed)).unwrap();
            let Written { text, reported: notices, closed, .. } =
                write(&mut engine, &mut constraint, Sampling::default(), budget);
            let shown = String::from_utf8_lossy(&text);
            let parsed = parse(format, &case.tools, &text);
            made += parsed.calls.len();
            let reported =
                parsed.calls.len() == 1 || budget < 30 || notices.iter().any(|n| n.contains("tokens are left"));
            // A call that is not what the model would have written says so.
            let marked = match budget < script.len() {
                true => closed || parsed.calls.is_empty(),
                false => !closed && notices.is_empty() && shown == script,
            };
            if !is_sound(&parsed) || !reported || !marked {
                wrong.push(format!("{}, {budget} tokens: {notices:?} {shown}", case.name));
            }
        }
        if made == 0 {
            wrong.push(format!("{}: no call", case.name));
        }
    }
    assert!(wrong.is_empty(), "{} wrong\n{}", wrong.len(), wrong[..wrong.len().min(5)].join("\n"));
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn whatever_the_format_a_model_that_writes_at_random_closes_its_calls() {
    let rounds = std::env::var("CALLWRIGHT_CLOSING_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let mut engine = crate::bundled::one_thread();
    let vocabulary = engine.vocabulary().unwrap()();
    let cases = cases();
    let (mut wrong, mut calls, mut seed) = (Vec::new(), 0, 0);
    for name in Format::names() {
        let format = Format::builtin(name).unwrap();
        let mut compiler = Compiler::for_format(vocabulary.clone(), format).unwrap();
        for budget in (0..rounds).flat_map(|_| [64, 96, 128, 256]) {
            let case = &cases[seed as usize % cases.len()];
            let temperature = 1.0 + (seed % 2) as f32;
            let sampling = crate::bundled::unfiltered(temperature, seed);
            seed += 1;
            let rules = rules(Mode::Strict, Calls::Required);
            let mut constraint = Constraint::new(&mut compiler, format, &case.tools, None, rules).unwrap();
            let Written { text, reported: notices, .. } = write(&mut *engine, &mut constraint, sampling, budget);
            let parsed = parse(format, &case.tools, &text);
            calls += parsed.calls.len();
            let reported = !parsed.calls.is_empty() || notices.iter().any(|n| n.contains("tokens are left"));
            if !is_sound(&parsed) || !reported {
                let shown = String::from_utf8_lossy(&text);
                wrong.push(format!("{name}, {}, {budget} tokens, seed {}: {notices:?} {shown}", case.name, seed - 1));
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong\n{}", wrong.len(), wrong[..wrong.len().min(5)].join("\n"));
    assert!(calls as u64 > seed / 2, "{calls} calls");
}

/// Arguments that are long even where they are as short as they may be.
fn long_cases() -> Vec<Case> {
    let cases = [
        ("150 items", r#"{"a": {"type": "array", "minItems": 150, "items": {"type": "integer"}}}"#),
        (
            "90 objects",
            r#"{"a": {"type": "array", "minItems": 90, "items": {"type": "object",
            "properties": {"k": {"type": "string", "enum": ["one", "three"]}}, "required": ["k"]}}}"#,
        ),
        ("5000 characters", r#"{"a": {"type": "string", "minLength": 5000}}"#),
        ("a pattern of 700", r#"{"a": {"type": "string", "pattern": "^[a-f]{700}$"}}"#),
        ("a constant of 780", r#"{"a": {"const": "CONSTANT"}}"#),
    ];
    let case = |(name, properties): (&str, &str)| {
        let properties = properties.replace("CONSTANT", &"All work and no play. ".repeat(36)[..780]);
        let schema = format!(r#"{{"type": "object", "properties": {properties}, "required": ["a"]}}"#);
        let tool = Tool::new("f", "", Some(serde_json::from_str(&schema).unwrap()));
        let arguments = match name {
            "150 items" => format!(r#"{{"a": [{}7]}}"#, "12345, ".repeat(200)),
            "90 objects" => format!(r#"{{"a": [{}{{"k": "one"}}]}}"#, r#"{"k": "three"}, "#.repeat(100)),
            "5000 characters" => format!(r#"{{"a": "{}"}}"#, "once upon a time ".repeat(350)),
            _ => r#"{"a": "#.to_owned(),
        };
        Case { name: name.to_owned(), tools: Tools::new(vec![tool]).unwrap(), arguments }
    };
    cases.into_iter().map(case).collect()
}

#[test]
fn a_call_that_must_be_long_is_whole_or_not_begun() {
    let format = Format::delimited();
    let mut wrong = Vec::new();
    for case in long_cases() {
        let mut compiler = Compiler::for_format(Vocabulary::of_bytes(), format).unwrap();
        let script = format!("### TOOL_CALL_START ###\n{{\"name\": \"f\", \"arguments\": {}", case.arguments);
        // Only just too little and only just enough are found by looking at what is whole.
        let mut calls_of = |mode: Mode, calls: Calls, budget: usize| {
            let info = ModelInfo { context_train: 16_384, ..Default::default() };
            let mut engine = ScriptedEngine::from_texts(info, [&*script]);
            let mut constraint = Constraint::new(&mut compiler, format, &case.tools, None, rules(mode, calls)).unwrap();
            let Written { text, reported, end, .. } = write(&mut engine, &mut constraint, Sampling::default(), budget);
            let parsed = parse(format, &case.tools, &text);
            let shown = String::from_utf8_lossy(&text).into_owned();
            let few = reported.iter().any(|reported| reported.contains("tokens are left"));
            if !is_sound(&parsed) || parsed.calls.is_empty() && !few {
                wrong.push(format!("{}, {mode:?}, {budget} tokens: {end:?} {reported:?} {shown}", case.name));
            }
            (parsed.calls.len(), reported.join(" "))
        };
        for (mode, calls) in
            [(Mode::Strict, Calls::Required), (Mode::Auto, Calls::Required), (Mode::Auto, Calls::Allowed)]
        {
            let (none, why) = calls_of(mode, calls.clone(), 400);
            let shortest: usize =
                why.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).max().unwrap();
            // What is left is what it is when the marker is written, all but its last token.
            let shortest = shortest + if calls == Calls::Allowed { "### TOOL_CALL_START ##".len() } else { 0 };
            assert!(none == 0 && shortest > 400, "{}: {why}", case.name);
            assert_eq!(calls_of(mode, calls.clone(), shortest - 1).0, 0, "{}", case.name);
            for more in if case.name == "5000 characters" { vec![2] } else { vec![2, 3, 20, 1000] } {
                assert!(calls_of(mode, calls.clone(), shortest + more).0 > 0, "{}: {shortest} + {more}", case.name);
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong\n{}", wrong.len(), wrong[..wrong.len().min(5)].join("\n"));
}

#[test]
fn in_every_format_a_required_call_is_whole() {
    let parameters = serde_json::json!({
        "type": "object",
        "properties": {
            "city": {"type": "string"}, "days": {"type": "integer"}, "units": {"enum": ["celsius", "kelvin"]},
            "tags": {"type": "array", "items": {"type": "string"}}, "alerts": {"type": "boolean"}
        },
        "required": ["city", "days"]
    });
    let schema = parameters.as_object().unwrap().clone();
    let tools = Tools::new(vec![Tool::new("get_weather", "The weather.", Some(schema))]).unwrap();
    let mut wrong = Vec::new();
    for name in Format::names() {
        let format = Format::builtin(name).unwrap();
        let mut compiler = Compiler::for_format(Vocabulary::of_bytes(), format).unwrap();
        for (mode, budget) in [(Mode::Strict, 2000), (Mode::Auto, 2000), (Mode::Strict, 400)] {
            let info = ModelInfo { context_train: 16_384, ..Default::default() };
            let mut engine = ScriptedEngine::from_texts(info, ["No."]);
            let mut constraint =
                Constraint::new(&mut compiler, format, &tools, None, rules(mode, Calls::Required)).unwrap();
            let Written { text, reported, .. } = write(&mut engine, &mut constraint, Sampling::default(), budget);
            let parsed = parse(format, &tools, &text);
            if !is_sound(&parsed) || parsed.calls.is_empty() {
                let shown = String::from_utf8_lossy(&text);
                wrong.push(format!("{name}, {mode:?}, {budget}: {} {shown:.100}", reported.join(" ")));
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn whatever_the_format_a_call_that_must_be_long_is_whole_or_not_begun() {
    // One of each kind of payload and notation.
    let (mut wrong, mut relaxed) = (Vec::new(), Vec::new());
    for name in ["qwen3-coder", "gemma-4", "lfm2", "minimax-m2", "mistral-old", "deepseek-v3.1"] {
        let format = Format::builtin(name).unwrap();
        // Text of 5000 characters takes a while with tokens of one byte: once in JSON, once between tags.
        let is_once = |case: &Case| case.name != "5000 characters" || ["qwen3-coder", "lfm2"].contains(&name);
        for case in long_cases().into_iter().filter(is_once) {
            let mut compiler = Compiler::for_format(Vocabulary::of_bytes(), format).unwrap();
            let mut write = |budget: usize| {
                let info = ModelInfo { context_train: 16_384, ..Default::default() };
                let mut engine = ScriptedEngine::from_texts(info, ["No."]);
                let rules = rules(Mode::Strict, Calls::Required);
                let mut constraint = Constraint::new(&mut compiler, format, &case.tools, None, rules)
                    .unwrap_or_else(|error| panic!("{name}, {}: {error}", case.name));
                let Written { text, reported, .. } = write(&mut engine, &mut constraint, Sampling::default(), budget);
                (parse(format, &case.tools, &text), reported.join(" "), String::from_utf8_lossy(&text).into_owned())
            };
            let (parsed, why, _) = write(250);
            let tools: Vec<&Tool> = case.tools.iter().collect();
            let scope = Scope { begins: Begins::Answer, max_calls: None, only_calls: true };
            if !format.grammar(&tools, scope).unwrap().unenforced.is_empty() {
                relaxed.push(format!("{name}, {}", case.name));
                continue;
            }
            let shortest: Option<usize> = why.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).max();
            let Some(shortest) = shortest.filter(|shortest| *shortest > 250 && parsed.calls.is_empty()) else {
                wrong.push(format!("{name}, {}: {why}", case.name));
                continue;
            };
            let (parsed, reported, text) = write(shortest + 40);
            if !is_sound(&parsed) || parsed.calls.is_empty() {
                wrong.push(format!("{name}, {}, {shortest} + 40: {reported} {text}", case.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong\n{}", wrong.len(), wrong.join("\n"));
    // Text between tags is not counted that far, which is reported.
    insta::assert_snapshot!(relaxed.join("\n"));
}

#[test]
fn a_second_call_is_begun_only_where_there_is_room_for_it() {
    let format = Format::delimited();
    let case = long_cases().remove(0);
    let mut compiler = Compiler::for_format(Vocabulary::of_bytes(), format).unwrap();
    let one = format!(
        "### TOOL_CALL_START ###\n{{\"name\": \"f\", \"arguments\": {}}}\n### TOOL_CALL_END ###",
        case.arguments
    );
    for (mode, calls) in [(Mode::Strict, Calls::Required), (Mode::Auto, Calls::Allowed)] {
        for (budget, whole) in [(one.len() + 3, 1), (one.len() + 300, 1), (one.len() + 700, 2), (2 * one.len() + 20, 2)]
        {
            let info = ModelInfo { context_train: 16_384, ..Default::default() };
            let mut engine = ScriptedEngine::from_texts(info, [format!("{one}\n{one}").as_str()]);
            let mut constraint =
                Constraint::new(&mut compiler, format, &case.tools, None, rules(mode, calls.clone())).unwrap();
            let Written { text, reported, end, .. } = write(&mut engine, &mut constraint, Sampling::default(), budget);
            let parsed = parse(format, &case.tools, &text);
            let shown = String::from_utf8_lossy(&text);
            assert!(
                is_sound(&parsed) && parsed.calls.len() == whole,
                "{mode:?} {budget}: {end:?} {reported:?} {shown}"
            );
        }
    }
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn text_of_a_given_length_is_reckoned_with_the_fewest_tokens() {
    let engine = crate::bundled::one_thread();
    let mut compiler = Compiler::for_format(engine.vocabulary().unwrap()(), Format::delimited()).unwrap();
    let mut needed = |schema: &str| {
        let tool = Tool::new("f", "", Some(serde_json::from_str(schema).unwrap()));
        let tools = Tools::new([tool]).unwrap();
        let rules = rules(Mode::Strict, Calls::Required);
        let mut constraint = Constraint::new(&mut compiler, Format::delimited(), &tools, None, rules).unwrap();
        let mut engine = ScriptedEngine::from_texts(ModelInfo { context_train: 16_384, ..Default::default() }, [""]);
        let cancel = AtomicBool::new(false);
        let limits = Limits::new(10, &cancel);
        let made = generate(&mut engine, &[], &Sampling::default(), limits, Some(&mut constraint), &mut |_, _| {
            ControlFlow::Continue(())
        });
        let error = made.unwrap_err().to_string();
        error.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).max().unwrap()
    };
    let short: usize =
        needed(r#"{"type": "object", "properties": {"a": {"type": "string", "minLength": 1}}, "required": ["a"]}"#);
    let long =
        needed(r#"{"type": "object", "properties": {"a": {"type": "string", "minLength": 1000}}, "required": ["a"]}"#);
    assert!(long < short + 300, "{short} {long}");
}

#[test]
fn an_answer_held_to_a_schema_is_whole_or_not_begun() {
    let schema = serde_json::json!({"type": "array", "minItems": 120, "items": {"type": "integer"}});
    let ask = |max_tokens| {
        let mut session = session(&format!("[{}", "1234567, ".repeat(200)));
        session.options_mut().grammar = Some(json_grammar(&schema, false).unwrap());
        session.options_mut().max_tokens = max_tokens;
        session.ask("Numbers?")
    };
    let error = ask(300).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Constraint);
    insta::assert_snapshot!(error);
    let reply = ask(500).unwrap();
    let numbers: Vec<i64> = serde_json::from_str(&reply.message.content).unwrap();
    assert!(numbers.len() >= 120);
    let notes: Vec<&str> = reply.notes.iter().map(|note| &*note.message).collect();
    insta::assert_snapshot!(notes.join("\n"));
}

fn session(text: &str) -> Session {
    let info = ModelInfo { context_train: 16_384, ..Default::default() };
    let mut session = Session::new(Box::new(ScriptedEngine::from_texts(info, [text])), None, None).unwrap();
    session.set_tools(Tools::from_json(r#"[{"name": "clock", "description": "The time"}]"#, "tools.json").unwrap());
    session
}

#[test]
fn a_required_call_for_which_the_tokens_do_not_suffice_is_an_error() {
    let mut session = session("");
    session.options_mut().tool_choice = ToolChoice::Required;
    session.options_mut().max_tokens = 30;
    let error = session.ask("What time is it?").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Constraint);
    insta::assert_snapshot!(error);
    assert!(session.messages().is_empty());
}

#[test]
fn a_grammar_to_whose_end_no_way_is_known_says_that_it_was_cut_off() {
    let mut session = session(&"on and ".repeat(10));
    // The grammar engine cannot go back in a grammar that counts tokens, so that no way can be sought.
    let lark = "start: text \"!\"\ntext[max_tokens=500]: /[a-z ]+/\n".into();
    session.options_mut().grammar = Some(Grammar { lark, ..Grammar::default() });
    session.options_mut().max_tokens = 20;
    let reply = session.ask("Go on.").unwrap();
    assert_eq!(reply.finish_reason, FinishReason::Length);
    let notes: Vec<&str> = reply.notes.iter().map(|note| &*note.message).collect();
    insta::assert_snapshot!(notes.join("\n"));
}

/// The grammar engine reads a number with bounds as one with as many digits as the model likes.
#[test]
fn a_number_has_no_more_digits_than_are_promised() {
    let number = serde_json::json!({"type": "number", "minimum": 0, "maximum": 1});
    let object = serde_json::json!({"type": "object", "properties": {"a": number}, "required": ["a"]});
    let digits = "3".repeat(400);
    let longest = |text: &str| text.split(|c: char| !c.is_ascii_digit()).map(str::len).max().unwrap_or(0);
    for (schema, text) in [
        (object.clone(), format!("{{\"a\": 0.{digits}}}")),
        (number, format!("0.{digits}")),
        (serde_json::json!({"type": "number"}), format!("0.{digits}")),
        (serde_json::json!({"type": "object"}), format!("{{\"a\": 0.{digits}}}")),
        (
            serde_json::json!({"type": "array", "items": {"type": "number", "exclusiveMinimum": 3}}),
            format!("[3.{digits}]"),
        ),
    ] {
        let mut session = session(&text);
        session.options_mut().grammar = Some(json_grammar(&schema, false).unwrap());
        // The script's digits go on in texts.
        session.options_mut().loop_guard = false;
        session.options_mut().max_tokens = 1000;
        let reply = session.ask("A number?").unwrap();
        let content = &reply.message.content;
        assert!(serde_json::from_str::<serde_json::Value>(content).is_ok(), "{schema}: {content}");
        // Behind the number a script goes on as it likes.
        assert_eq!(longest(content.split(',').next().unwrap()), 40, "{schema}: {content}");
    }
    let mut session =
        session(&format!("### TOOL_CALL_START ###\n{{\"name\": \"f\", \"arguments\": {{\"a\": 0.{digits}}}}}"));
    let tool = Tool::new("f", "", object.as_object().cloned());
    session.set_tools(Tools::new([tool]).unwrap());
    let reply = session.ask("A number?").unwrap();
    assert!(
        reply.calls[0].complete && longest(reply.calls[0].raw.split(',').nth(1).unwrap()) == 40,
        "{}",
        reply.calls[0].raw
    );
}

/// The same for numbers in tags, in Python and between other quotes than JSON's.
#[test]
fn a_number_has_no_more_digits_in_any_format() {
    let number = serde_json::json!({"type": "number", "minimum": 0, "maximum": 1});
    let schema = serde_json::json!({"type": "object", "properties": {"a": number}, "required": ["a"]});
    let tools = || Tools::new([Tool::new("f", "", schema.as_object().cloned())]).unwrap();
    let call = ToolCall {
        id: Some("call00001".into()),
        name: "f".into(),
        arguments: Arguments::Object(serde_json::json!({"a": 0.5}).as_object().cloned().unwrap()),
    };
    let longest = |text: &str| text.split(|c: char| !c.is_ascii_digit()).map(str::len).max().unwrap_or(0);
    let mut report = String::new();
    for builtin in Format::builtins() {
        let format = builtin.format();
        let text = format.write_calls(std::slice::from_ref(&call)).replace("0.5", &format!("0.{}", "3".repeat(400)));
        let info = ModelInfo { context_train: 16_384, ..Default::default() };
        let engine = ScriptedEngine::from_texts(info, [&*text]);
        let mut session = Session::new(Box::new(engine), None, Some(format.clone())).unwrap();
        session.set_tools(tools());
        session.options_mut().loop_guard = false;
        session.options_mut().max_tokens = 1000;
        let reply = session.ask("A number?").unwrap();
        match reply.calls.first() {
            Some(call) if call.complete && longest(&call.raw) == 40 => {}
            call => report += &format!("{}: {call:?}\n", builtin.name),
        }
    }
    assert!(report.is_empty(), "{report}");
}

#[test]
fn a_number_that_the_tokens_do_not_suffice_for_is_not_whole() {
    let mut session = session("314159265");
    session.options_mut().grammar = Some(json_grammar(&serde_json::json!({"type": "integer"}), false).unwrap());
    session.options_mut().max_tokens = 4;
    let reply = session.ask("Pi?").unwrap();
    let notes: Vec<&str> = reply.notes.iter().map(|note| &*note.message).collect();
    assert_eq!(
        notes,
        [
            "the answer is not whole",
            "the tokens ran out within a number, which may be another one with more digits (raise `Options::max_tokens`)"
        ]
    );
    assert_eq!(reply.finish_reason, FinishReason::Length);
}
