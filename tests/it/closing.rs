//! No call is cut off: whatever the schema, the format, the number of tokens and the model.

use callwright::engine::constraint::{Calls, Compiler, Constraint, Mode, Rules};
use callwright::engine::generate::{End, Limits, generate};
use callwright::engine::llama::{LlamaEngine, LoadOptions};
use callwright::engine::sampler::Sampling;
use callwright::engine::scripted::ScriptedEngine;
use callwright::engine::vocabulary::Vocabulary;
use callwright::engine::{Engine, ModelInfo, Token};
use callwright::format::Format;
use callwright::format::grammar::Grammar;
use callwright::format::parser::{Parsed, Parser, ParserOptions};
use callwright::models::bundled;
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
    let cases: Vec<Map<String, Value>> =
        serde_json::from_str(include_str!("../cases/constraint/closing.json")).unwrap();
    let case = |mut case: Map<String, Value>| {
        let name = case.remove("name").unwrap().as_str().unwrap().to_owned();
        let arguments = case.remove("arguments").unwrap().as_str().unwrap().to_owned();
        case.insert("type".into(), "object".into());
        Case { name, tools: Tools::new(vec![Tool::new("f", "", Some(case))]).unwrap(), arguments }
    };
    cases.into_iter().map(case).collect()
}

fn rules(mode: Mode, calls: Calls) -> Rules {
    Rules { mode, calls, max_calls: None, max_preamble: 0, max_thinking: None, jump: true, thinking: false }
}

/// What came of a generation: the text, what was told, and whether the tokens ran out.
fn write(
    engine: &mut dyn Engine,
    constraint: &mut Constraint<'_>,
    sampling: Sampling,
    max_tokens: usize,
) -> (Vec<u8>, Vec<String>, End) {
    let cancel = AtomicBool::new(false);
    let limits = Limits { max_tokens, cancel: &cancel };
    let mut text = Vec::new();
    let made = generate(engine, &[Token(65), Token(66)], &sampling, limits, Some(constraint), &mut |bytes| {
        text.extend_from_slice(bytes);
        ControlFlow::Continue(())
    });
    let made = made.unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&text)));
    assert!(made.tokens.len() <= max_tokens);
    (text, constraint.notices().iter().map(ToString::to_string).collect(), made.end)
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
            let (text, notices, _) = write(&mut engine, &mut constraint, Sampling::default(), budget);
            let shown = String::from_utf8_lossy(&text);
            let parsed = parse(format, &case.tools, &text);
            made += parsed.calls.len();
            let told = parsed.calls.len() == 1 || budget < 30 || notices.iter().any(|n| n.contains("tokens left"));
            let closed = budget < script.len() || notices.is_empty() && shown == script;
            if !is_sound(&parsed) || !told || !closed {
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
fn whatever_the_format_a_model_that_writes_at_random_closes_its_calls() {
    let rounds = std::env::var("CALLWRIGHT_CLOSING_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let mut engine =
        LlamaEngine::load(&bundled::path().unwrap(), LoadOptions { threads: Some(1), ..Default::default() }).unwrap();
    let vocabulary = engine.vocabulary().unwrap();
    let cases = cases();
    let (mut wrong, mut calls, mut seed) = (Vec::new(), 0, 0);
    for name in Format::names() {
        let format = Format::builtin(name).unwrap();
        let mut compiler = Compiler::for_format(vocabulary.clone(), format).unwrap();
        for budget in (0..rounds).flat_map(|_| [64, 96, 128, 256]) {
            let case = &cases[seed as usize % cases.len()];
            let temperature = 1.0 + (seed % 2) as f32;
            let sampling = Sampling { temperature, top_k: 0, top_p: 1.0, min_p: 0.0, seed };
            seed += 1;
            let rules = rules(Mode::Strict, Calls::Required);
            let mut constraint = Constraint::new(&mut compiler, format, &case.tools, None, rules).unwrap();
            let (text, notices, _) = write(&mut engine, &mut constraint, sampling, budget);
            let parsed = parse(format, &case.tools, &text);
            calls += parsed.calls.len();
            let told = !parsed.calls.is_empty() || notices.iter().any(|n| n.contains("tokens left"));
            if !is_sound(&parsed) || !told {
                let shown = String::from_utf8_lossy(&text);
                wrong.push(format!("{name}, {}, {budget} tokens, seed {}: {notices:?} {shown}", case.name, seed - 1));
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong\n{}", wrong.len(), wrong[..wrong.len().min(5)].join("\n"));
    assert!(calls as u64 > seed / 2, "{calls} calls");
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
    session.options_mut().grammar = Some(Grammar { lark, unenforced: Vec::new() });
    session.options_mut().max_tokens = 20;
    let reply = session.ask("Go on.").unwrap();
    assert_eq!(reply.finish_reason, FinishReason::Length);
    let notes: Vec<&str> = reply.notes.iter().map(|note| &*note.message).collect();
    insta::assert_snapshot!(notes.join("\n"));
}
