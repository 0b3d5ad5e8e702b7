//! Answers held to a grammar: on a scripted engine whose tokens are bytes, and on the bundled model.

use callwright::constraint::{Calls, Compiler, Constraint, Mode, Rules};
use callwright::engine::sampler::Sampling;
use callwright::engine::scripted::ScriptedEngine;
use callwright::engine::vocabulary::Vocabulary;
use callwright::engine::{Engine, ModelInfo, Token};
use callwright::format::Format;
use callwright::generate::{End, Generation, Limits, generate};
use callwright::grammar::{Begins, Grammar, Scope};
use callwright::parse::event::DiagnosticKind;
use callwright::parse::{Parsed, Parser, ParserOptions};
use callwright::{ErrorKind, Session, Tools};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

const TOOLS: &str = r#"[
    {"name": "clock", "description": "The time", "parameters": {"type": "object",
        "properties": {"zone": {"type": "string"}}, "required": ["zone"]}},
    {"name": "weather", "description": "The weather", "parameters": {"type": "object",
        "properties": {"city": {"type": "string", "enum": ["Oslo", "Lima"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9},
            "units": {"type": "array", "items": {"type": "string"}}},
        "required": ["city", "days"]}}]"#;

fn tools() -> Tools {
    Tools::from_json(TOOLS, "tools.json").unwrap()
}

fn rules(mode: Mode, calls: Calls) -> Rules {
    let mut rules = Rules::default();
    (rules.mode, rules.calls) = (mode, calls);
    rules
}

fn write(
    engine: &mut dyn Engine,
    constraint: &mut Constraint<'_>,
    sampling: Sampling,
    max_tokens: usize,
) -> (Generation, String) {
    let cancel = AtomicBool::new(false);
    let limits = Limits::new(max_tokens, &cancel);
    let mut text = Vec::new();
    let prompt = [Token(1), Token(2), Token(3)];
    let generation = generate(engine, &prompt, &sampling, limits, Some(constraint), &mut |bytes, _| {
        text.extend_from_slice(bytes);
        ControlFlow::Continue(())
    });
    (generation.unwrap(), String::from_utf8(text).unwrap())
}

fn scripted(text: &str) -> ScriptedEngine {
    ScriptedEngine::from_texts(ModelInfo { context_train: 16_384, ..Default::default() }, [text])
}

/// What comes of a script under a constraint.
fn held(script: &str, mode: Mode, calls: Calls, max_tokens: usize) -> (String, Generation, Vec<String>) {
    let format = Format::delimited();
    let mut compiler = Compiler::for_format(Vocabulary::of_bytes(), format).unwrap();
    let mut constraint = Constraint::new(&mut compiler, format, &tools(), None, rules(mode, calls)).unwrap();
    let (generation, text) = write(&mut scripted(script), &mut constraint, Sampling::default(), max_tokens);
    let notices = constraint.notices().iter().map(ToString::to_string).collect();
    (text, generation, notices)
}

fn parse(text: &str, tools: Tools) -> Parsed {
    let mut parser = Parser::new(Format::delimited(), Some(Arc::new(tools)), ParserOptions::default()).unwrap();
    parser.push(text.as_bytes(), &mut |_| ());
    parser.finish(&mut |_| ())
}

#[test]
fn text_is_free_and_a_call_is_held_to_its_tool() {
    let script = "Let me see.\n### TOOL_CALL_START ###\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Lima\", \
                  \"days\": 3}}\n### TOOL_CALL_END ###\nSo much for that.";
    let (text, generation, notices) = held(script, Mode::Auto, Calls::Allowed, 1000);
    assert_eq!(text, script);
    let (text, _, _) = held(&script.replace("Lima", "Paris"), Mode::Auto, Calls::Allowed, 300);
    assert!(text.starts_with("Let me see.\n### TOOL_CALL_START ###\n{\"name\": \"weather\""), "{text}");
    let parsed = parse(&text, tools());
    assert!(parsed.calls.iter().all(|call| call.complete && call.valid), "{text}");
    assert!(parsed.repairs.is_empty() && notices.is_empty(), "{text} {notices:?}");
    assert!(generation.usage.forced_tokens > 50, "{:?}", generation.usage);
    assert_eq!(generation.end, End::EndOfTurn);
}

#[test]
fn a_required_call_comes_at_once_and_nothing_else() {
    let (text, generation, _) = held("No, I won't.", Mode::Strict, Calls::Required, 300);
    assert!(text.starts_with("### TOOL_CALL_START ###\n{\"name\": \""), "{text}");
    let parsed = parse(&text, tools());
    assert!(parsed.calls.len() == 1 && parsed.calls[0].valid && parsed.content.is_empty(), "{text}");
    assert!(generation.tokens.len() <= 300, "{text}");
}

#[test]
fn a_forbidden_call_is_not_begun() {
    let (text, _, _) = held("### TOOL_CALL_START ###\n{\"name\": \"clock\"", Mode::Strict, Calls::Forbidden, 60);
    assert!(!text.contains("### TOOL_CALL_START ###"), "{text}");
}

#[test]
fn no_call_is_cut_off_whatever_the_budget() {
    let long = "x".repeat(500);
    let script = format!(
        "### TOOL_CALL_START ###\n{{\"name\": \"weather\", \"arguments\": {{\"city\": \"Oslo\", \"days\": 3, \
         \"units\": [\"{long}\", \"{long}\"]}}}}\n### TOOL_CALL_END ###"
    );
    for budget in (1..400).step_by(13) {
        let (text, generation, notices) = held(&script, Mode::Auto, Calls::Allowed, budget);
        let parsed = parse(&text, tools());
        assert!(parsed.calls.iter().all(|call| call.complete && call.valid), "{budget}: {text}");
        assert!(generation.tokens.len() <= budget);
        if budget > 150 {
            assert_eq!(parsed.calls.len(), 1, "{budget}: {text}");
        }
        if parsed.calls.is_empty() {
            assert!(budget < 40 || notices.iter().any(|n| n.contains("tokens are left")), "{budget}: {notices:?}");
        }
    }
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn a_model_that_writes_at_random_makes_calls_that_fit() {
    let mut engine = crate::bundled::one_thread();
    let format = Format::delimited();
    let mut compiler = Compiler::for_format(engine.vocabulary().unwrap()(), format).unwrap();
    let tools = tools();
    for seed in 0..20 {
        let sampling = crate::bundled::unfiltered(5.0, seed);
        let mut constraint =
            Constraint::new(&mut compiler, format, &tools, None, rules(Mode::Strict, Calls::Required)).unwrap();
        let (generation, text) = write(&mut *engine, &mut constraint, sampling, 120);
        let parsed = parse(&text, self::tools());
        // A text may have a marker in it.
        let reported = parsed.diagnostics.iter().any(|said| said.kind != DiagnosticKind::TagInValue);
        assert!(!parsed.calls.is_empty() && parsed.repairs.is_empty() && !reported, "{text}");
        assert!(parsed.calls.iter().all(|call| call.complete && call.valid), "{seed} {:?} {text}", generation.end);
    }
}

#[test]
fn a_schema_that_nothing_fits_is_an_error_before_the_model_runs() {
    let tools = Tools::from_json(
        r#"[{"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "integer", "enum": [1], "minimum": 5}}, "required": ["a"]}}]"#,
        "tools.json",
    )
    .unwrap();
    let tool: Vec<_> = tools.iter().collect();
    let scope = Scope { begins: Begins::Call, max_calls: None, only_calls: true };
    let error = Format::delimited().grammar(&tool, scope).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Tools);
    insta::assert_snapshot!(error);
}

/// What comes of a script in the format hermes, which knows reasoning.
fn reasoned(script: &str, rules: Rules) -> (String, Vec<String>) {
    let format = Format::builtin("hermes").unwrap();
    let mut compiler = Compiler::for_format(Vocabulary::of_bytes(), format).unwrap();
    let mut constraint = Constraint::new(&mut compiler, format, &tools(), Some("clock"), rules).unwrap();
    let (_, text) = write(&mut scripted(script), &mut constraint, Sampling::default(), 300);
    (text, constraint.notices().iter().map(ToString::to_string).collect())
}

#[test]
fn a_required_call_waits_for_reasoning_which_has_a_limit() {
    let long = format!("{}</think>", "Let me think. ".repeat(10));
    let mut rules = rules(Mode::Strict, Calls::Required);
    rules.thinking = true;
    let (text, notices) = reasoned(&long, rules.clone());
    assert!(text.starts_with(&format!("{long}<tool_call>\n{{\"name\": \"clock\"")), "{text}");
    assert!(notices.iter().all(|notice| !notice.contains("reasoning")), "{notices:?}");
    rules.max_thinking = Some(20);
    let (text, notices) = reasoned(&long, rules);
    assert!(text.starts_with("Let me think. Let me") && text.contains("</think>"), "{text}");
    assert_eq!(text.find("</think>").map(|at| at < 25), Some(true), "{text}");
    assert!(notices.iter().any(|notice| notice.contains("`Options::max_thinking`")), "{notices:?}");
}

#[test]
fn text_before_a_required_call_is_bounded() {
    let mut rules = rules(Mode::Strict, Calls::Required);
    rules.max_preamble = Some(8);
    let (text, _) = reasoned("Of course, gladly.", rules);
    assert!(text.starts_with("Of cours<tool_call>\n{\"name\": \"clock\""), "{text}");
}

#[test]
fn no_call_begins_after_so_much_text() {
    let call = "<tool_call>\n{\"name\": \"clock\", \"arguments\": {\"zone\": \"UTC\"}}\n</tool_call>";
    let format = Format::builtin("hermes").unwrap();
    let script = format!("Of course.{call}");
    for (within, calls) in [(None, 1), (Some(10), 1), (Some(9), 0), (Some(0), 0)] {
        let mut compiler = Compiler::for_format(Vocabulary::of_bytes(), format).unwrap();
        let mut rules = rules(Mode::Auto, Calls::Allowed);
        rules.max_preamble = within;
        let mut constraint = Constraint::new(&mut compiler, format, &tools(), None, rules).unwrap();
        let (_, text) = write(&mut scripted(&script), &mut constraint, Sampling::default(), 300);
        assert_eq!(text.matches("<tool_call>").count(), calls, "{within:?}: {text}");
    }
    // Text between calls is not counted.
    let script = format!("{call}{}{call}", " ".repeat(20));
    let mut compiler = Compiler::for_format(Vocabulary::of_bytes(), format).unwrap();
    let mut rules = rules(Mode::Auto, Calls::Allowed);
    rules.max_preamble = Some(0);
    let mut constraint = Constraint::new(&mut compiler, format, &tools(), None, rules).unwrap();
    let (_, text) = write(&mut scripted(&script), &mut constraint, Sampling::default(), 300);
    assert_eq!(text.matches("<tool_call>").count(), 2, "{text}");
}

#[test]
fn the_whole_answer_follows_a_users_grammar() {
    let mut session = Session::new(Box::new(scripted("maybe")), None, None).unwrap();
    session.options_mut().grammar = Some(Grammar { lark: "start: \"yes\" | \"no\"\n".into(), ..Grammar::default() });
    let reply = session.ask("Well?").unwrap();
    assert!(["yes", "no"].contains(&reply.message.content.as_str()), "{reply:?}");

    session.set_messages(Vec::new()).unwrap();
    session.options_mut().grammar = Some(Grammar { lark: "start: nonsense\n".into(), ..Grammar::default() });
    let error = session.ask("Well?").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Syntax);
    insta::assert_snapshot!(error);
}
