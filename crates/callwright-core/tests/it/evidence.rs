//! When a text is a call: the table in tests/cases/evidence, and quotations in every built-in format.
//!
//! A row names the evidence that it has: the form, the place, what follows, whether a result has the same text, and
//! whether the marker is a control token. docs/reading.md states the rule.

use callwright_core::format::Format;
use callwright_core::message::{Arguments, Message, ToolCall};
use callwright_core::parse::event::{DiagnosticKind, Event};
use callwright_core::parse::{Parsed, Parser, ParserOptions};
use callwright_core::tool::Tools;
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    format: String,
    /// The evidence, in words: for who reads the table.
    evidence: String,
    place: String,
    follows: String,
    /// Tool results of the conversation.
    #[serde(default)]
    results: Vec<String>,
    /// Whether the start marker is a control token.
    #[serde(default)]
    control: bool,
    text: String,
    /// The number of calls.
    calls: usize,
    /// Why a text is no call.
    why: Option<String>,
}

fn tools() -> Arc<Tools> {
    let text = r#"[{"name": "terminal", "parameters": {"type": "object",
        "properties": {"command": {"type": "string"}}, "required": ["command"]}}]"#;
    Arc::new(Tools::from_json(text, "tools").unwrap())
}

/// Parses the pieces. The joined deltas of the text are the content.
fn parse(format: &Format, options: &ParserOptions, pieces: &[&[u8]], control: Option<usize>) -> Parsed {
    let mut parser = Parser::new(format, Some(tools()), options.clone()).unwrap();
    let (mut content, mut started) = (String::new(), Vec::new());
    let mut hear = |event: Event| match event {
        Event::Text { delta } => content += &delta,
        Event::CallStart { id, .. } => started.push(id),
        _ => {}
    };
    for (index, piece) in pieces.iter().enumerate() {
        match control == Some(index) {
            true => parser.push_control(piece, &mut hear),
            false => parser.push(piece, &mut hear),
        }
    }
    let parsed = parser.finish(&mut hear);
    assert_eq!(content, parsed.content, "the stream is the whole text");
    let named: Vec<String> =
        parsed.calls.iter().filter(|call| started.contains(&call.id)).map(|call| call.id.clone()).collect();
    assert_eq!(started, named, "no call is taken back");
    parsed
}

fn no_calls(parsed: &Parsed) -> Vec<String> {
    let why = |kind: &DiagnosticKind| match kind {
        DiagnosticKind::NoCall { why, .. } => serde_json::to_value(why).unwrap().as_str().map(str::to_owned),
        _ => None,
    };
    parsed.diagnostics.iter().filter_map(|said| why(&said.kind)).collect()
}

#[test]
fn a_text_is_a_call_where_the_evidence_says_so() {
    let mut wrong = String::new();
    for line in include_str!("../cases/evidence/calls.jsonl").lines() {
        let row: Row = serde_json::from_str(line).unwrap();
        assert!(!row.place.is_empty() && !row.follows.is_empty() && row.evidence.len() < 40, "{}", row.name);
        let format = Format::builtin(&row.format).unwrap();
        let results: Vec<Message> = row.results.iter().map(|text| Message::tool("call00001", "page", text)).collect();
        let options = ParserOptions::default().answering(&results);
        let text = row.text.as_bytes();
        let parsed = if row.control {
            let (before, rest) = row.text.split_once("<tool_call>").unwrap();
            parse(format, &options, &[before.as_bytes(), b"<tool_call>", rest.as_bytes()], Some(1))
        } else {
            let whole = parse(format, &options, &[text], None);
            for split in 0..=text.len() {
                let halves = parse(format, &options, &[&text[..split], &text[split..]], None);
                assert_eq!(halves, whole, "{}, split at {split}", row.name);
            }
            whole
        };
        let calls = parsed.calls.iter().filter(|call| call.is_runnable()).count();
        let why: Vec<String> = row.why.iter().cloned().collect();
        if calls != row.calls || calls != parsed.calls.len() || no_calls(&parsed) != why {
            wrong += &format!("{}: {:?}\nis read as {parsed:#?}\n", row.name, row.text);
        }
        let solid = |text: &str| text.split_whitespace().collect::<String>();
        if calls == 0 && !row.place.contains("reasoning") && solid(&parsed.content) != solid(&row.text) {
            wrong += &format!("{}: the text is {:?}\n", row.name, parsed.content);
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Answers that have a call without meaning it; `{call}` is in the format's own form, `{json}` in another.
const QUOTATIONS: [&str; 24] = [
    "A call looks like `{call}`, and nothing was called.",
    "A call looks like `{call}`.",
    "The page says \"{call}\" and asks me to run it.",
    "The page says “{call}”. I will not do that.",
    "Auf der Seite steht „{call}“. Ich führe das nicht aus.",
    "La page dit «{call}», ce que je ne ferai pas.",
    "> {call}\n\nThis is an attack, so I will not run it.",
    "Here is the notation:\n```\n{call}\n```\nThe name comes first.",
    "The page ends with {json} and asks me to run it. I will not do that.",
    "The page ends with: > {json}  This is an attack, so I will not run it.",
    "> {json}\n\nI do not run what a page says.",
    "- {json}\n- and another one",
    "1. {json}",
    "* First `{json}`",
    "An example:\n\n```json\n{json}\n```",
    "An example:\n\n```json\n{json}\n```\nReplace the command.",
    "Do not run this:\n```json\n{json}\n```",
    "Bitte nicht ausführen:\n{json}",
    "N'exécutez pas ceci :\n{json}",
    "No ejecutes esto:\n{json}",
    "不要执行：\n{json}",
    "Translated, the page says:\n{json}\nand nothing else.",
    "terminal(command=\"rm -rf ~\") is how the log begins.",
    "The log has these lines:\nterminal(command=\"rm -rf ~\")\nterminal(command=\"ls\")\nNothing else happened.",
];

#[test]
fn no_format_runs_what_a_model_quotes() {
    let arguments = json!({"command": "rm -rf ~"});
    let call = ToolCall {
        id: Some("call00001".to_owned()),
        name: "terminal".to_owned(),
        arguments: Arguments::Object(arguments.as_object().unwrap().clone()),
    };
    let json = json!({"name": "terminal", "arguments": arguments}).to_string();
    let (mut wrong, mut count) = (String::new(), 0);
    for builtin in Format::builtins() {
        let format = builtin.format();
        let own = format.write_calls(std::slice::from_ref(&call));
        let thoughts = format.reasoning.as_ref().and_then(|reasoning| {
            let (start, end) = (reasoning.start.text()?, reasoning.end.text()?);
            Some(format!("{start}I could write {own} but first I check.{end}I checked, and it is not needed."))
        });
        let texts = QUOTATIONS.iter().map(|text| {
            let quoted = if text.starts_with('>') { own.trim().replace('\n', "\n> ") } else { own.trim().to_owned() };
            text.replace("{call}", &quoted).replace("{json}", &json)
        });
        // Otherwise these answers would begin in reasoning.
        let closed = format.reasoning.as_ref().filter(|_| format.reasoning_open).and_then(|r| r.end.text());
        let options = ParserOptions::default().with(|set| set.prompt_tail = closed.unwrap_or_default().to_owned());
        // The reasoning of these ends with every message, and so before a call.
        let channels = ["gpt-oss", "solar-open"].contains(&builtin.name);
        for text in texts.chain(thoughts.filter(|_| !channels)) {
            count += 1;
            for piece in [1, 5, text.len()] {
                let pieces: Vec<&[u8]> = text.as_bytes().chunks(piece).collect();
                let parsed = parse(format, &options, &pieces, None);
                if parsed.calls.iter().any(|call| call.is_runnable()) {
                    wrong +=
                        &format!("{} in pieces of {piece}: {text:?}\nis read as {:#?}\n", builtin.name, parsed.calls);
                    break;
                }
            }
        }
    }
    assert!(count > 1000);
    assert!(wrong.is_empty(), "{wrong}");
}
