//! Texts of many model families, with the results that llama.cpp's own tests expect.
//!
//! The data is not part of the repository: see data.rs.

use crate::data::{conformance_rows, conformance_template};
use callwright_core::format::Format;
use callwright_core::parse::event::Event;
use callwright_core::parse::{Parser, ParserOptions, ReasoningOutput};
use callwright_core::tool::Tools;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Known differences, with reasons. Any change, better or worse, must be recorded here.
const KNOWN: &str = include_str!("../cases/parses-differences.toml");
/// The formats of the templates, as their authors would declare them.
const FORMATS: &str = include_str!("../cases/parses-formats.toml");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Differences {
    difference: Vec<Difference>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Difference {
    template: String,
    case: String,
    reason: String,
}

/// The result of a text, in the rows' notation.
#[derive(Debug, Default, Clone, PartialEq)]
struct Message {
    content: String,
    reasoning: String,
    /// Name, arguments, id.
    calls: Vec<(String, String, String)>,
}

impl Message {
    fn add(&mut self, event: Event) {
        match event {
            Event::Text { delta } => self.content += &delta,
            Event::Reasoning { delta } => self.reasoning += &delta,
            Event::CallStart { id, name } => self.calls.push((name, String::new(), id)),
            Event::CallArguments { id, delta } => {
                let call = self.calls.last_mut().expect("a call has begun");
                assert_eq!(call.2, id);
                call.1 += &delta;
            }
            _ => {}
        }
    }

    /// `None` if the row matches, else the difference.
    fn difference(&self, expected: &Value) -> Option<String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().trim().to_owned();
        for (what, ours, wanted) in [
            ("content", &self.content, text(&expected["content"])),
            ("reasoning", &self.reasoning, text(&expected["reasoning_content"])),
        ] {
            if ours.trim() != wanted {
                return Some(format!("{what} {ours:?} instead of {wanted:?}"));
            }
        }
        let none = Vec::new();
        let wanted = expected["tool_calls"].as_array().unwrap_or(&none);
        if self.calls.len() != wanted.len() {
            return Some(format!("calls {:?} instead of {wanted:?}", self.calls));
        }
        for (call, wanted) in self.calls.iter().zip(wanted) {
            let (name, id) = (wanted["name"].as_str().unwrap(), wanted["id"].as_str().unwrap_or_default());
            if call.0 != name || !id.is_empty() && call.2 != id {
                return Some(format!("call {call:?} instead of {wanted}"));
            }
            let Ok(arguments) = serde_json::from_str::<Value>(wanted["arguments"].as_str().unwrap()) else { continue };
            if serde_json::from_str::<Value>(&call.1).ok() != Some(arguments) {
                return Some(format!("arguments {:?} instead of {}", call.1, wanted["arguments"]));
            }
        }
        None
    }
}

/// The formats, and the templates that use them.
pub(crate) fn formats() -> Vec<(Format, Vec<String>)> {
    let table = toml::from_str::<toml::Table>(FORMATS).unwrap();
    let mut formats = Vec::new();
    for (name, value) in table {
        let templates = value["templates"].as_array().unwrap().iter();
        let templates = templates.map(|template| template.as_str().unwrap().to_owned()).collect();
        if value.get("builtin").is_some() {
            formats.push((Format::builtin(&name).unwrap().clone(), templates));
            continue;
        }
        let mut declaration = value["declaration"].as_table().unwrap().clone();
        declaration["format"].as_table_mut().unwrap().insert("name".into(), name.into());
        let block = format!("{{#--- callwright\n{}\n---#}}", toml::to_string(&declaration).unwrap());
        formats.push((Format::parse_declaration(&block).unwrap().unwrap(), templates));
    }
    formats
}

fn parser(format: &Format, row: &Value) -> Parser {
    let tools = row["tools"].as_array().filter(|tools| !tools.is_empty());
    let tools = tools.map(|_| Arc::new(Tools::from_value(&row["tools"]).unwrap()));
    let reasoning = if row["reasoning_format"] == "none" { ReasoningOutput::InText } else { ReasoningOutput::Separate };
    let prompt_tail = row["generation_prompt"].as_str().unwrap_or_default().to_owned();
    Parser::new(
        format,
        tools,
        ParserOptions::default().with(|set| {
            set.prompt_tail = prompt_tail;
            set.reasoning = reasoning;
        }),
    )
    .unwrap()
}

fn parse<'a>(format: &Format, row: &Value, pieces: impl IntoIterator<Item = &'a [u8]>, partial: bool) -> Message {
    let mut parser = parser(format, row);
    let mut message = Message::default();
    parser.push(b"", &mut |event| message.add(event));
    for piece in pieces {
        parser.push(piece, &mut |event| message.add(event));
    }
    if !partial {
        let parsed = parser.finish(&mut |event| message.add(event));
        let ids: Vec<&str> = parsed.calls.iter().map(|call| &*call.id).collect();
        assert_eq!(message.calls.iter().map(|call| &*call.2).collect::<Vec<_>>(), ids);
    }
    message
}

/// Byte by byte: the output so far always equals a parse of the text so far, and at the end that of the whole text.
fn check_stream(format: &Format, row: &Value, input: &[u8], partial: bool, whole: &Message) {
    let mut stream = parser(format, row);
    let mut so_far = Message::default();
    stream.push(b"", &mut |event| so_far.add(event));
    for (at, byte) in input.chunks(1).enumerate() {
        stream.push(byte, &mut |event| so_far.add(event));
        assert_eq!(so_far, parse(format, row, [&input[..=at]], true), "{} at {at}", row["case"]);
    }
    if !partial {
        stream.finish(&mut |event| so_far.add(event));
    }
    assert_eq!(&so_far, whole, "{}", row["case"]);
    let mut random = 17u64;
    for _ in 0..20 {
        let mut pieces = Vec::new();
        let mut rest = input;
        while !rest.is_empty() {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (piece, after) = rest.split_at(rest.len().min((random >> 33) as usize % 9));
            pieces.push(piece);
            rest = after;
        }
        assert_eq!(&parse(format, row, pieces, partial), whole, "{}", row["case"]);
    }
}

/// The rows with a known difference.
pub fn known() -> std::collections::BTreeSet<(String, String)> {
    let known: Differences = toml::from_str(KNOWN).unwrap();
    known.difference.into_iter().map(|row| (row.template, row.case)).collect()
}

/// The difference of a row in this format.
pub fn difference(format: &Format, row: &Value) -> Option<String> {
    let partial = row["partial"] == true;
    parse(format, row, [row["input"].as_str().unwrap().as_bytes()], partial).difference(&row["expected"])
}

#[test]
#[ignore = "needs the conformance data: CALLWRIGHT_CONFORMANCE=… cargo test -- --ignored conformance"]
fn conformance_texts_are_read_as_by_llama_cpp() {
    let formats = formats();
    let known: Differences = toml::from_str(KNOWN).unwrap();
    let known = known.difference.into_iter().filter(|row| conformance_template(&row.template).is_some());
    let mut known: BTreeMap<(String, String), String> =
        known.map(|row| ((row.template, row.case), row.reason)).collect();
    let allowed = known.len();
    let mut report = String::new();
    let mut count = 0;
    for (_, row) in conformance_rows("parses.jsonl") {
        let (template, case) = (row["template"].as_str().unwrap(), row["case"].as_str().unwrap());
        let format = formats.iter().find(|(_, templates)| templates.iter().any(|known| known == template));
        let (format, _) = format.unwrap_or_else(|| panic!("no format is declared for {template}"));
        let input = row["input"].as_str().unwrap().as_bytes();
        let partial = row["partial"] == true;
        let whole = parse(format, &row, [input], partial);
        check_stream(format, &row, input, partial, &whole);
        let difference = whole.difference(&row["expected"]);
        count += 1;
        match (known.remove(&(template.to_owned(), case.to_owned())), difference) {
            (Some(reason), Some(_)) => assert!(!reason.trim().is_empty(), "{template} {case} differs without a reason"),
            (Some(_), None) => report += &format!("{template} {case}: no longer differs, take it off the list\n"),
            (None, Some(difference)) => report += &format!("{template} {case}: {difference}\n"),
            (None, None) => {}
        }
    }
    assert!(report.is_empty(), "{} rows of {count}:\n{report}", report.lines().count());
    assert!(count > 200, "only {count} rows");
    assert!(known.is_empty(), "no such rows: {:?}", known.keys());
    assert!(allowed * 20 <= count, "{allowed} of {count} rows differ");
}
