//! What becomes of an answer: a table of answers in tests/cases/bench.

use super::fake::{configuration, sample};
use crate::ask::options;
use crate::configuration::Configuration;
use crate::directory::RunDirectory;
use crate::outcome::Stage;
use crate::run::read_format;
use crate::sample::{Failure, Finish, Sample};
use crate::score::{example_tool, score};
use crate::suite::{Case, Suite};
use callwright::decision::Decided;
use callwright::engine::ModelInfo;
use callwright::engine::scripted::ScriptedEngine;
use callwright::format::Format;
use callwright::session::{Event, Options, Session};
use callwright::tool::Tools;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::Path;

const CASES: &str = include_str!("../../../../tests/cases/bench/cases.jsonl");
const OUTCOMES: &str = include_str!("../../../../tests/cases/bench/outcomes.jsonl");

pub(crate) fn cases() -> Suite {
    Suite::from_text("cases", CASES, Path::new("cases.jsonl")).unwrap()
}

#[test]
fn answers_come_to_their_outcomes() {
    let suite = cases();
    let cases: HashMap<&str, &Case> = suite.cases.iter().map(|case| (case.id.as_str(), case)).collect();
    let mut wrong = String::new();
    let mut seen = Vec::new();
    for line in OUTCOMES.lines().filter(|line| !line.starts_with("//")) {
        let row: Value = serde_json::from_str(line).unwrap();
        let raw = row["raw"].as_str().unwrap();
        let raw = raw.replace('«', "### TOOL_CALL_START ###\n").replace('»', "\n### TOOL_CALL_END ###");
        let mut sample = sample(row["case"].as_str().unwrap(), &raw);
        if row["finish"] == "length" {
            sample.finish = Finish::Length;
        }
        let configuration = Configuration { repair: row["repair"] != false, ..configuration("none", 0.0) };
        let scored = score(cases[sample.case.as_str()], &sample, Format::delimited(), &configuration).unwrap();
        let scored = serde_json::to_value(&scored).unwrap();
        seen.push(scored["outcome"].clone());
        for (key, expected) in row.as_object().unwrap() {
            if !matches!(key.as_str(), "case" | "raw" | "finish" | "repair" | "cut_end") && scored[key] != *expected {
                wrong += &format!("{line}\n  {key}: {}, {}\n", scored[key], scored["detail"]);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    for row in crate::outcome::OUTCOMES[2..].iter().filter(|row| row.stage != Stage::Task) {
        assert!(seen.contains(&json!(row.name)), "no answer comes to {}", row.name);
    }
}

/// All answers of the runs that are kept, as `run` and `serve` read them.
#[test]
fn a_score_has_the_calls_that_a_session_hands_over() {
    let runs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/runs");
    let mut compared = 0;
    let mut wrong = Vec::new();
    let folders = std::fs::read_dir(runs).unwrap().map(|entry| entry.unwrap().path());
    for folder in folders.filter(|path| path.is_dir()) {
        let run = RunDirectory::open(&folder).unwrap();
        let cases: HashMap<&str, &Case> = run.suite.cases.iter().map(|case| (case.id.as_str(), case)).collect();
        for configuration in &run.plan.configurations {
            let format = read_format(configuration).unwrap();
            let engine = ScriptedEngine::from_texts(ModelInfo::default(), [""]);
            let mut session = Session::builder().engine(engine).format(format.clone()).build().unwrap();
            for sample in run.samples.iter().filter(|sample| sample.config == configuration.id) {
                let case = cases[sample.case.as_str()];
                session.set_tools(Tools::from_value(&case.tools.to_json()).unwrap());
                session.set_messages(case.messages.clone()).unwrap();
                // An answer that a session ended at a repeated call is kept without it; the oldest runs have some whole.
                *session.options_mut() = Options { loop_guard: false, ..options(case, configuration) };
                let handed_over = read(&mut session, sample);
                let scored = score(case, sample, &format, configuration).unwrap();
                let valid = scored.calls.iter().filter(|call| call.valid);
                let counted: Vec<(String, Value)> = valid.map(|call| written(&call.name, &call.arguments)).collect();
                compared += counted.len();
                if counted != handed_over {
                    wrong.push(format!("{} {}: {counted:?}, {handed_over:?}", run.path().display(), sample.raw));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {compared}\n{}", wrong.len(), wrong.join("\n"));
    assert!(compared > 1000, "{compared}");
}

/// The calls that a session makes of an answer's text.
fn read(session: &mut Session, sample: &Sample) -> Vec<(String, Value)> {
    let request = session.request().unwrap();
    let mut nobody = |_: &Event| ();
    let mut reader = session.reader(&request, &sample.prompt_tail, &[], &mut nobody).unwrap();
    if sample.decided == Some(Decided::Text) {
        reader.forbid_calls();
    }
    let raw = sample.raw.as_bytes();
    let (by_the_model, by_the_grammar) = raw.split_at(sample.closed_from.unwrap_or(raw.len()).min(raw.len()));
    reader.push(by_the_model);
    if sample.closed_from.is_some() {
        reader.closing();
        reader.push(by_the_grammar);
    }
    if matches!(sample.finish, Finish::Length | Finish::Loop) {
        reader.cut_off();
    }
    let calls = reader.finish().parsed.calls;
    calls.iter().filter(|call| call.is_runnable()).map(|call| written(&call.name, &call.arguments.to_text())).collect()
}

fn written(name: &str, arguments: &str) -> (String, Value) {
    (name.to_owned(), serde_json::from_str(arguments).unwrap())
}

/// What a grammar wrote because the tokens ran out is nothing that the model has shown it can.
#[test]
fn a_call_that_was_closed_early_is_not_whole() {
    let suite = cases();
    let raw = "### TOOL_CALL_START ###\n{\"name\": \"book_table\", \"arguments\": {\"people\": 4, \"place\": \"Mario's\"}}\n### TOOL_CALL_END ###";
    let mut answer = sample("call", raw);
    answer.finish = Finish::Length;
    for from in [raw.find("\"}}").unwrap(), 5, 0, raw.len() + 9] {
        answer.closed_from = Some(from);
        let scored = score(&suite.cases[0], &answer, Format::delimited(), &configuration("none", 0.0)).unwrap();
        assert_eq!(scored.outcome.name(), "truncated");
        // All of it was written before the end of it was.
        let whole = from > raw.len();
        assert_eq!((scored.attempted, scored.delivered), (true, whole), "{from}: {:?}", scored.calls);
    }
}

#[test]
fn failures_are_outcomes() {
    let suite = cases();
    for (prompt_too_long, outcome) in [(true, "prompt_too_long"), (false, "infra_error")] {
        let mut failed = sample("call", "");
        failed.failure = Some(Failure { prompt_too_long, message: "it broke".to_owned() });
        let scored = score(&suite.cases[0], &failed, Format::delimited(), &configuration("none", 0.0)).unwrap();
        assert_eq!((scored.outcome.name(), scored.detail.as_str()), (outcome, "it broke"));
    }
}

/// BFCL's checker takes what could not be read for a decision not to call; an answer that never was decided nothing.
#[test]
fn no_answer_is_not_correct_where_no_call_is() {
    let case = r#"{"id": "i_0", "prompt": "2 to the 80th?", "tools": [{"name": "power"}],
        "bfcl": {"category": "irrelevance", "function": [{"name": "power"}], "ground_truth": []}}"#;
    let suite = Suite::from_text("cases", &case.replace('\n', " "), Path::new("cases.jsonl")).unwrap();
    let score = |sample: &Sample| {
        score(&suite.cases[0], sample, Format::delimited(), &configuration("none", 0.0)).unwrap().bfcl
    };
    let mut sample = sample("i_0", "I cannot do that.");
    assert_eq!(score(&sample), Some(None));
    for prompt_too_long in [true, false] {
        sample.failure = Some(Failure { prompt_too_long, message: "it broke".to_owned() });
        assert_eq!(score(&sample), Some(Some("no_answer")));
    }
}

/// It is not executed, so nobody gets what it asks for.
#[test]
fn a_call_in_an_answer_that_was_held_to_text_is_no_call() {
    let suite = cases();
    let case = suite.cases.iter().find(|case| case.id == "call").unwrap();
    let call = r#"{"name": "book_table", "arguments": {"place": "Roma", "people": 4}}"#;
    let raw = format!("### TOOL_CALL_START ###\n{call}\n### TOOL_CALL_END ###");
    let mut sample = sample("call", &raw);
    let free = score(case, &sample, Format::delimited(), &configuration("none", 0.0)).unwrap();
    assert!(free.delivered && free.tools_right, "{free:?}");
    sample.decided = Some(Decided::Text);
    let held = score(case, &sample, Format::delimited(), &configuration("none", 0.0)).unwrap();
    assert_eq!(held.outcome.name(), "no_call_when_needed");
    assert_eq!(held.detail, "book_table is called in an answer that was held to text, and not executed");
    assert_eq!((held.attempted, held.delivered, held.tools_right), (true, false, false));
}

/// A model that copies the tool section calls tools that were never there.
#[test]
fn a_call_of_the_prompts_example_is_a_fault_of_its_own() {
    let suite = cases();
    let case = suite.cases.iter().find(|case| case.id == "call").unwrap();
    let prompt = "Tools: book_table. Write {\"name\": \"TOOL_NAME\"}, such as {\"name\": \"example_clock\"} or [example_weather()].";
    let example = |name: &str| {
        let raw =
            format!("### TOOL_CALL_START ###\n{{\"name\": \"{name}\", \"arguments\": {{}}}}\n### TOOL_CALL_END ###");
        let scored = score(case, &sample("call", &raw), Format::delimited(), &configuration("none", 0.0)).unwrap();
        example_tool(case, &scored.calls, prompt)
    };
    for name in ["example_clock", "example_weather", "TOOL_NAME"] {
        assert_eq!(example(name).as_deref(), Some(name));
    }
    // An offered tool, an invented one, and words of the prompt that no example calls.
    for name in ["book_table", "order_pizza", "example", "Tools"] {
        assert_eq!(example(name), None, "{name}");
    }
}
