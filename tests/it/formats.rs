//! The formats that are built in: what they write, and that it is read back.

use callwright::check::Subject;
use callwright::format::Format;
use callwright::format::parser::{Parsed, Parser, ParserOptions};
use callwright::message::{Arguments, ToolCall};
use callwright::template::{CallHistory, ChatTemplate};
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

/// All that is wrong with what was read; nothing for an answer of these calls and this text.
fn wrong(parsed: &Parsed, calls: &[ToolCall], content: &str, reasoning: Option<&str>) -> Option<String> {
    let read: Vec<_> = parsed.calls.iter().map(|call| (&*call.name, &call.arguments)).collect();
    let wrote: Vec<_> = calls.iter().map(|call| (&*call.name, &call.arguments)).collect();
    let sound = parsed.calls.iter().all(|call| call.complete && call.valid) && parsed.repairs.is_empty();
    let text = parsed.content.trim() == content && parsed.reasoning.as_deref().map(str::trim) == reasoning;
    (read != wrote || !sound || !text).then(|| format!("{parsed:#?}"))
}

#[test]
fn what_each_writes_is_read_back_as_it_was() {
    let mut report = String::new();
    for builtin in Format::builtins() {
        let format = builtin.format();
        for calls in [&calls()[..1], &calls()[1..2], &calls()[2..], &calls()[..]] {
            let text = format.write_calls(calls);
            for piece in [1, 7, text.len()] {
                if let Some(read) = wrong(&parse(format, &text, piece), calls, "", None) {
                    report += &format!("{} in pieces of {piece}\n{text}\nis read as {read}\n", builtin.name);
                    break;
                }
            }
        }
    }
    assert!(report.is_empty(), "{report}");
}

#[test]
fn text_before_calls_stays_text_and_reasoning_is_told_apart() {
    let mut report = String::new();
    for builtin in Format::builtins() {
        let format = builtin.format();
        let thought = match &format.reasoning {
            Some(around) => format!("{}Hm.{}", around.start.text().unwrap(), around.end.text().unwrap()),
            None => String::new(),
        };
        let text = thought + &format.assistant("Let me see.", &calls()[..2]);
        let reasoning = format.reasoning.as_ref().map(|_| "Hm.");
        for piece in [1, text.len()] {
            if let Some(read) = wrong(&parse(format, &text, piece), &calls()[..2], "Let me see.", reasoning) {
                report += &format!("{} in pieces of {piece}\n{text}\nis read as {read}\n", builtin.name);
                break;
            }
        }
    }
    assert!(report.is_empty(), "{report}");
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
