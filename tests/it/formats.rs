//! The formats that are built in: what they write, and that it is read back.

use callwright::check::Subject;
use callwright::format::Format;
use callwright::format::parser::{Parsed, Parser, ParserOptions};
use callwright::message::{Arguments, ToolCall};
use callwright::template::ChatTemplate;
use callwright::tool::Tools;
use serde_json::{Value, json};
use std::sync::Arc;

fn call(id: &str, name: &str, arguments: Value) -> ToolCall {
    let arguments = Arguments::Object(arguments.as_object().unwrap().clone());
    ToolCall { id: Some(id.into()), name: name.into(), arguments }
}

fn tools() -> Arc<Tools> {
    let text = r#"[
        {"name": "note", "parameters": {"type": "object", "properties": {
            "text": {"type": "string"}, "count": {"type": "integer"}, "share": {"type": "number"},
            "done": {"type": "boolean"}, "tags": {"type": "array", "items": {"type": "string"}},
            "place": {"type": "object", "properties": {"lat": {"type": "number"}, "name": {"type": "string"}}}
        }}},
        {"name": "clock-2.now"}
    ]"#;
    Arc::new(Tools::from_json(text, "tools").unwrap())
}

fn calls() -> Vec<ToolCall> {
    let every_type = json!({
        "text": "One \"two\"\n\tthree, {four} [five] <six> & 'seven' – acht",
        "count": -7, "share": 0.25, "done": false, "tags": ["a", "b c"], "place": {"lat": 64.1, "name": "Vík"},
    });
    vec![
        call("call00001", "note", json!({"text": "plain"})),
        call("call00002", "clock-2.now", json!({})),
        call("call00003", "note", every_type),
    ]
}

fn parse(format: &Format, text: &str, piece: usize) -> Parsed {
    let mut parser = Parser::new(format, Some(tools()), ParserOptions::default()).unwrap();
    text.as_bytes().chunks(piece).for_each(|piece| parser.push(piece, &mut |_| ()));
    parser.finish(&mut |_| ())
}

#[test]
fn what_each_writes_is_read_back_as_it_was() {
    for builtin in Format::builtins() {
        let format = builtin.format();
        for calls in [&calls()[..1], &calls()[1..2], &calls()[2..], &calls()[..]] {
            let text = format.write_calls(calls);
            for piece in [1, 7, text.len()] {
                let parsed = parse(format, &text, piece);
                let read: Vec<_> = parsed.calls.iter().map(|call| (&*call.name, &call.arguments)).collect();
                let wrote: Vec<_> = calls.iter().map(|call| (&*call.name, &call.arguments)).collect();
                assert_eq!(read, wrote, "{} writes\n{text}", builtin.name);
                let sound = parsed.calls.iter().all(|call| call.complete && call.valid);
                assert!(sound && parsed.repairs.is_empty(), "{} {parsed:#?}", builtin.name);
                assert_eq!((parsed.content.as_str(), parsed.reasoning), ("", None), "{}", builtin.name);
            }
        }
    }
}

#[test]
fn text_before_calls_stays_text_and_reasoning_is_told_apart() {
    for builtin in Format::builtins() {
        let format = builtin.format();
        let thought = match &format.reasoning {
            Some(around) => format!("{}Hm.{}", around.start.text().unwrap(), around.end.text().unwrap()),
            None => String::new(),
        };
        let answer = callwright::template::CallHistory::assistant(format, "Let me see.", &calls()[..2]);
        for piece in [1, usize::MAX] {
            let parsed = parse(format, &(thought.clone() + &answer), piece.min(answer.len()));
            assert_eq!(parsed.content.trim(), "Let me see.", "{}", builtin.name);
            assert_eq!(parsed.calls.len(), 2, "{} {parsed:#?}", builtin.name);
            let reasoning = parsed.reasoning.as_deref().map(str::trim);
            assert_eq!(reasoning, format.reasoning.as_ref().map(|_| "Hm."), "{}", builtin.name);
        }
    }
}

#[test]
fn the_examples_in_each_prompt_are_what_the_format_writes() {
    let weather = call("call00001", "example_weather", json!({"city": "Oslo", "day": "tomorrow"}));
    let clock = |id, city| call(id, "example_clock", json!({"city": city}));
    let clocks = [clock("call00001", "Lima"), clock("call00002", "Cairo")];
    for builtin in Format::builtins() {
        let format = builtin.format();
        for calls in [std::slice::from_ref(&weather), &clocks] {
            // Ids that the format does not write leave no trace.
            let written = format.write_calls(calls);
            assert!(format.source().contains(&written), "{} lacks\n{written}", builtin.name);
        }
    }
}

#[test]
fn each_can_be_laid_over_a_plain_template() {
    let template = ChatTemplate::builtin("chatml").unwrap().unwrap();
    for builtin in Format::builtins() {
        let section = ChatTemplate::new(builtin.name, builtin.format().source()).unwrap();
        let mut subject = Subject::new(&template, Some(builtin.format()));
        subject.section = Some(&section);
        let report = subject.check(None).unwrap();
        assert!(report.sound(), "{} {report:#?}", builtin.name);
        assert_eq!(report.round_trips.len(), 5);
        assert!(report.turns.iter().all(|turn| turn.differs.is_none()));
    }
}

#[test]
fn the_readme_names_them_all() {
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
    for builtin in Format::builtins() {
        let row = format!("| `{}` | {} |", builtin.name, builtin.models);
        assert!(readme.contains(&row), "the README lacks {row}");
    }
}
