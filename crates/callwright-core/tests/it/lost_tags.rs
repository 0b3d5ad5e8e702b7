//! A closing tag, bracket or quote that is missing costs one call at most: the next call is read, and no value of the
//! damaged call has markup in it.

use crate::parse::{Setup, check_splits};
use callwright_core::format::{Format, Payload};
use callwright_core::message::{Arguments, ToolCall};
use callwright_core::parse::ParsedCall;
use callwright_core::tool::Tools;
use serde_json::{Value, json};
use std::sync::Arc;

fn tools() -> Arc<Tools> {
    let text = r#"[
        {"name": "get_weather", "parameters": {"type": "object", "required": ["city"], "properties": {
            "city": {"type": "string"}, "days": {"type": "integer"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "place": {"type": "object", "properties": {"name": {"type": "string"}}}}}},
        {"name": "get_time", "parameters": {"type": "object", "required": ["zone"], "properties": {
            "zone": {"type": "string"}}}}
    ]"#;
    Arc::new(Tools::from_json(text, "tools").unwrap())
}

fn call(id: &str, name: &str, arguments: Value) -> ToolCall {
    let arguments = Arguments::Object(arguments.as_object().unwrap().clone());
    ToolCall { id: Some(id.into()), name: name.into(), arguments }
}

/// The markup of a format, as pieces that can be lost.
fn markup(format: &Format) -> Vec<String> {
    let mut texts: Vec<String> = format.reserved().map(|text| text.trim().to_owned()).collect();
    match &format.payload {
        Payload::Tagged(tagged) => {
            texts.extend([&tagged.value_end, &tagged.key_end, &tagged.value_start].map(|text| text.trim().to_owned()));
        }
        Payload::Named(named) => texts.extend(named.quote.clone()),
        _ => {}
    }
    texts.retain(|text| text.len() > 1);
    texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
    texts
}

/// The places of the pieces in the text from the end of the first call's last value to the second call.
fn pieces(format: &Format, text: &str, from: usize, to: usize) -> Vec<(usize, usize)> {
    let markup = markup(format);
    let mut pieces = Vec::new();
    let mut at = from;
    while at < to {
        let rest = &text[at..to];
        let nested = rest.strip_prefix("]<]minimax[>[</").and_then(|rest| rest.find('>').map(|end| end + 16));
        let tag = nested.or_else(|| markup.iter().find(|tag| rest.starts_with(&***tag)).map(String::len));
        let length = tag.unwrap_or_else(|| rest.chars().next().map_or(1, char::len_utf8));
        let word = length == 1 && rest.starts_with(|c: char| c.is_alphanumeric() || c.is_whitespace() || c == ',');
        if !word {
            pieces.push((at, at + length));
        }
        at += length;
    }
    pieces
}

/// What is wrong with the calls of a damaged text.
fn fault(calls: &[ParsedCall], markup: &[String], wanted: &Value) -> Option<String> {
    let second = calls.iter().find(|call| call.name == "get_time");
    let Some(second) = second.filter(|call| call.is_runnable()) else { return Some("the second call is lost".into()) };
    if second.arguments.to_text() != r#"{"zone":"CET"}"# {
        return Some(format!("the second call is {}", second.arguments.to_text()));
    }
    let first = calls.iter().find(|call| call.name == "get_weather").filter(|call| call.is_runnable())?;
    let arguments = first.arguments.to_text();
    // JSON escapes the rest of a tag.
    let begins = |tag: &&String| {
        tag.split(['"', '\n']).next().filter(|text| text.len() > 2).is_some_and(|text| arguments.contains(text))
    };
    if markup.iter().find(begins).is_some() || arguments.contains("get_time") {
        return Some(format!("the first call is {arguments}"));
    }
    let read: Value = serde_json::from_str(&arguments).unwrap();
    // The line of a lost tag stays empty.
    let trimmed: Value = serde_json::from_str(&arguments.replace("\\n\"", "\"")).unwrap();
    (read != *wanted && trimmed != *wanted).then(|| format!("the first call is {arguments}"))
}

#[test]
fn a_lost_piece_costs_one_call_at_most() {
    let mut report = String::new();
    let mut tried = 0;
    let most: usize = std::env::var("LOST").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    for builtin in Format::builtins() {
        let format = builtin.format();
        let setup =
            Setup { format: Some(Arc::new(format.clone())), repair: true, tools: Some(tools()), prompt_tail: "" };
        for (arguments, last) in [
            (json!({"city": "Rome"}), "Rome"),
            (json!({"city": "Rome", "days": 31}), "31"),
            (json!({"city": "Rome", "tags": ["a", "xyz"]}), "xyz"),
            (json!({"city": "Rome", "place": {"name": "Forum"}}), "Forum"),
        ] {
            let calls = [
                call("call00001", "get_weather", arguments.clone()),
                call("call00002", "get_time", json!({"zone": "CET"})),
            ];
            let text = format.write_calls(&calls);
            let whole = check_splits(&setup, text.as_bytes()).1;
            assert_eq!(fault(&whole.calls, &markup(format), &arguments), None, "{text}");
            let from = text.find(last).unwrap() + last.len();
            // The start marker of the second call, and what precedes its name, stays.
            let name = from + text[from..].find("get_time").unwrap();
            let start = format.start.as_ref().and_then(|start| start.text()).unwrap_or_default().trim().to_owned();
            let to = if start.is_empty() { name } else { text[from..name].rfind(&start).map_or(name, |at| from + at) };
            let to = match &format.section {
                Some(section) => {
                    let begin = section.start.text().unwrap_or_default().trim();
                    text[from..to].find(begin).map_or(to, |at| from + at)
                }
                None => to,
            };
            // The brackets of the second call are its own.
            let to = from + text[from..to].trim_end_matches(|c: char| c.is_whitespace() || "{[\"'".contains(c)).len();
            let to = if text[from..to].ends_with("name\":") { from + text[from..to].rfind('{').unwrap() } else { to };
            let pieces = pieces(format, &text, from, to);
            for begin in 0..pieces.len() {
                for end in begin + 1..=pieces.len().min(begin + most) {
                    let damaged = format!("{}{}", &text[..pieces[begin].0], &text[pieces[end - 1].1..]);
                    let (_, parsed) = check_splits(&setup, damaged.as_bytes());
                    tried += 1;
                    // What begins their next call is a message's header, which is text in a string and in a value.
                    let known = match builtin.name {
                        "gpt-oss" | "inkling" => damaged.matches('"').count() % 2 == 1,
                        "muse-glimmer" => !damaged.contains("Rome</atem:parameter>"),
                        _ => false,
                    };
                    if let Some(fault) = fault(&parsed.calls, &markup(format), &arguments)
                        && !known
                    {
                        let piece = &text[pieces[begin].0..pieces[end - 1].1];
                        report += &format!("{} without {piece:?}: {fault}\n  {damaged:?}\n", builtin.name);
                    }
                }
            }
        }
    }
    assert!(report.is_empty(), "{} of {tried}:\n{report}", report.lines().count() / 2);
}

/// Parses a text in a built-in format, at every split.
fn read(format: &str, text: &str) -> Vec<ParsedCall> {
    let format = Some(Arc::new(Format::builtin(format).unwrap().clone()));
    let setup = Setup { format, repair: true, tools: Some(tools()), prompt_tail: "" };
    check_splits(&setup, text.as_bytes()).1.calls
}

#[test]
fn a_call_with_a_tag_in_a_value_is_marked() {
    let inline = "<tool_call>\n<function=get_weather>\n<parameter=city>\nIt says </parameter></function><tool_call>\
        <function=get_time><parameter=zone>CET</parameter></function></tool_call> there.\n</parameter>\n</function>\n\
        </tool_call>";
    for (format, text) in [
        ("qwen3-coder", inline.to_owned()),
        (
            "hermes",
            r#"<tool_call>{"name": "get_weather", "arguments": {"city": "a <tool_call> b"}}</tool_call>"#.into(),
        ),
        ("mistral", r#"[TOOL_CALLS]get_weather[ARGS]{"city": "[TOOL_CALLS]get_time[ARGS]{}"}"#.into()),
        ("lfm2", r#"<|tool_call_start|>[get_weather(city="<|tool_call_end|>")]<|tool_call_end|>"#.into()),
        (
            "glm-5",
            "<tool_call>get_weather<arg_key>city</arg_key><arg_value>`<tool_call>get_time`</arg_value></tool_call>"
                .into(),
        ),
    ] {
        let calls = read(format, &text);
        assert!(calls.len() == 1 && calls[0].is_runnable() && calls[0].tag_in_value, "{format} {text}: {calls:#?}");
    }
    let plain = r#"<tool_call>{"name": "get_weather", "arguments": {"city": "a < b"}}</tool_call>"#;
    assert!(!read("hermes", plain)[0].tag_in_value);
}

/// A text in the layout of lines ends where another call begins in a line of its own.
#[test]
fn a_call_in_lines_of_its_own_ends_the_value_before_it() {
    for (format, text) in [
        (
            "qwen3-coder",
            "<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</tool_call>\n<tool_call>\n\
             <function=get_time>\n<parameter=zone>\nCET\n</parameter>\n</function>\n</tool_call>",
        ),
        (
            "glm-4",
            "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Rome<tool_call>get_time\n\
             <arg_key>zone</arg_key>\n<arg_value>CET</arg_value>\n</tool_call>",
        ),
        (
            "minimax-m2",
            "<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">Rome\n\
             <invoke name=\"get_time\">\n<parameter name=\"zone\">CET</parameter>\n</invoke>\n</minimax:tool_call>",
        ),
    ] {
        let calls = read(format, text);
        let [first, second] = &calls[..] else { panic!("{format}: {calls:#?}") };
        assert!(second.is_runnable() && second.name == "get_time", "{format}: {calls:#?}");
        assert!(!first.is_runnable() || first.arguments.to_text() == r#"{"city":"Rome"}"#, "{format}: {calls:#?}");
    }
}

/// Where no line break follows the opening tag, one at the end of the value is part of it.
#[test]
fn a_line_break_between_compact_tags_is_part_of_the_value() {
    let text = "<tool_call><function=get_weather><parameter=city>x\n</parameter></function></tool_call>";
    assert_eq!(read("qwen3-coder", text)[0].arguments.to_text(), r#"{"city":"x\n"}"#);
}
