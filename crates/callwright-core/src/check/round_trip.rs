//! Whether the calls that a template writes are read back unchanged.

use super::script::{self, question};
use super::{Subject, common};
use crate::Result;
use crate::format::Format;
use crate::message::{Arguments, Message};
use crate::parse::{Parsed, Parser, ParserOptions};
use serde::Serialize;
use serde_json::json;
use std::sync::Arc;

/// An answer with calls, written by the template and read with its format.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RoundTrip {
    /// What the answer contains.
    pub what: &'static str,
    /// What the template wrote, from the end of the prompt on.
    pub written: String,
    /// How the result differs from the original, if it does.
    pub problem: Option<String>,
    /// The first departure from the format, if the parser had to repair one.
    pub repair: Option<&'static str>,
    /// The calls as the format writes them, if the template writes them differently, for example with other white
    /// space. They are read correctly, but the history then differs from what the model generated.
    pub declared: Option<String>,
}

/// Checks the answers that the template can write. Parts that it refuses or drops are reported by `renders`.
pub(super) fn round_trips(subject: &Subject<'_>, format: &Format) -> Result<Vec<RoundTrip>> {
    let every_type = json!({
        "entry": "Fog.\nThen \"sun\", <b>{ice}</b> and a \\ – all at once",
        "depth": 12.5,
        "miles": -3,
        "calm": true,
        "crew": ["Jón", "Sigga"],
        "wind": {"from": "north", "knots": 30},
    });
    let spoken = Message { content: script::TEXT.to_owned(), ..Message::calls(vec![script::first_call()]) };
    let cases = [
        ("one call", "Heimaey", Message::calls(vec![script::first_call()])),
        ("two calls", "Flatey", Message::calls(vec![script::first_call(), script::second_call()])),
        ("text and a call", script::TEXT, spoken),
        ("no arguments", "drop_anchor", Message::calls(vec![script::call(script::ID, "drop_anchor", json!({}))])),
        (
            "arguments of every type",
            "north",
            Message::calls(vec![script::call(script::ID, "keep_logbook", every_type)]),
        ),
    ];
    let tools = Arc::new(script::all()?);
    let mut trips = Vec::new();
    for (what, word, answer) in cases {
        let prompt = |messages: &[Message], generation| subject.prompt(messages, Some(&tools), generation);
        let results = answer
            .tool_calls
            .iter()
            .map(|call| Message::tool(call.id.clone().unwrap_or_default(), call.name.as_str(), script::RESULT));
        let history: Vec<Message> = [question(), answer.clone()].into_iter().chain(results).collect();
        // Some templates write a call only if its result follows.
        let (Ok(prompted), Ok(whole)) = (prompt(&[question()], true), prompt(&history, false)) else { continue };
        let start = start(format, &prompted, &whole);
        let end = whole[start..].find(script::RESULT).map_or(whole.len(), |at| start + at);
        let turn = &whole[start..end];
        if !turn.contains(word) || !turn.contains(&answer.tool_calls[0].name) {
            continue;
        }
        // What the prompt opens in the turn, such as reasoning, unless the history continues differently.
        let unopened = prompt(&[question()], false).map_or(0, |unopened| common(&unopened, &whole));
        let opened = whole.get(unopened..start).filter(|_| start == prompted.len()).unwrap_or_default();
        let options = ParserOptions { prompt_tail: opened.to_owned(), ..ParserOptions::default() };
        let mut parser = Parser::new(format, Some(Arc::clone(&tools)), options)?;
        parser.push(turn.as_bytes(), &mut |_| ());
        let parsed = parser.finish(&mut |_| ());
        let declared = Some(format.write_calls(&answer.tool_calls)).filter(|calls| !whole.contains(calls));
        let repair = parsed.repairs.first().map(|repair| repair.kind.describe());
        let problem = problem(&answer, &parsed);
        trips.push(RoundTrip { what, written: turn.to_owned(), problem, repair, declared });
    }
    Ok(trips)
}

/// Where the history continues after the prompt.
fn start(format: &Format, prompted: &str, whole: &str) -> usize {
    let mut start = common(prompted, whole);
    // The prompt may have opened reasoning with a prefix of the marker that closes it in the history.
    for marker in format.reserved() {
        let from = start.saturating_sub(marker.len());
        let from = (from..=start).find(|&at| whole.is_char_boundary(at)).unwrap_or(start);
        if let Some(at) = whole[from..].find(marker).map(|at| from + at).filter(|&at| at < start) {
            start = at;
        }
    }
    start
}

/// How the parsed calls differ from the original ones.
fn problem(answer: &Message, parsed: &Parsed) -> Option<String> {
    let (wrote, read) = (&answer.tool_calls, &parsed.calls);
    if read.len() < wrote.len() {
        return Some(format!("{} of {} calls are found", read.len(), wrote.len()));
    }
    if let Some(more) = read.get(wrote.len()) {
        return Some(format!("a call of {:?} is read that was not made", more.name));
    }
    for (wrote, read) in wrote.iter().zip(read) {
        if read.name != wrote.name {
            return Some(format!("the call of {} is read as one of {:?}", wrote.name, read.name));
        }
        if read.arguments != wrote.arguments {
            return Some(difference(&wrote.arguments, &read.arguments));
        }
        if !read.complete || !read.valid {
            let why = read.error_text();
            return Some(format!("the call of {} is taken for an unfinished or invalid one: {why}", wrote.name));
        }
    }
    // Some templates write the text before a call as reasoning: gpt-oss has an analysis channel there.
    let as_reasoning = parsed.reasoning.as_ref().is_some_and(|reasoning| reasoning.contains(&answer.content));
    if !parsed.content.contains(&answer.content) && !as_reasoning {
        return Some(format!("the text is read as {:?}", parsed.content));
    }
    None
}

/// The first argument that changed.
fn difference(wrote: &Arguments, read: &Arguments) -> String {
    let (Some(wrote), Some(read)) = (wrote.as_object(), read.as_object()) else {
        return format!("the arguments are not read as a JSON object: {}", short(&read.to_text()));
    };
    match wrote.iter().find(|(name, value)| read.get(*name) != Some(value)) {
        Some((name, value)) => match read.get(name) {
            Some(other) => format!("{name:?}: {} is read as {}", short(&value.to_string()), short(&other.to_string())),
            None => format!("{name:?}: {} is not found", short(&value.to_string())),
        },
        None => "extra arguments are read".to_owned(),
    }
}

fn short(text: &str) -> String {
    let shown: String = text.chars().take(60).collect();
    if shown.len() < text.len() { shown + "…" } else { shown }
}
