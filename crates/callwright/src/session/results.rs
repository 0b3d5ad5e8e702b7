//! What a prompt shows of a result that is too large for it, and the tool that reads the rest.
//!
//! A result is shown as its beginning and its end, in whole lines or whole elements of JSON, because a record that is cut
//! in two misleads a model. The conversation keeps the whole result, so a resumed run can read it, too.

use super::context::Shown;
use super::remarks;
use super::select::FIND_TOOLS;
use crate::message::{Arguments, Message, Role, ToolCall};
use crate::tool::{Effect, EffectSource, Tool, Tools};
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// The tool that reads results; a number follows where a tool has this name.
const READ_RESULT: &str = "read_result";
/// A context of fewer tokens has no room for that tool.
const LEAST_CONTEXT: usize = 2048;
/// Into pieces of how many bytes a long line is divided.
const PIECE: usize = 400;
/// In how deep arrays and objects elements are counted.
const DEEPEST: usize = 8;
/// How many results are listed for a call that names none.
const LISTED: usize = 10;
/// What asks for an answer.
const ANSWER_NOW: &str = "Now answer the question in words, with these results.";
/// How much is repeated of the text that a call looks for.
const ECHOED: usize = 80;

/// Asks for an answer after results, for models that overlook them where their template has them, and make the same calls again.
///
/// After a call that is known to change something they see that it is done, and what is left to do would be left out. Tools that were found
/// are to be called. After an error they would make up an answer.
pub(super) fn ask_for_answers(shown: &mut Shown, tools: &Tools) {
    let goes_on = |call: &ToolCall| {
        let policy = tools.get(&call.name).map(|tool| &tool.policy);
        let changes =
            policy.is_some_and(|policy| policy.effect != Effect::Read && policy.source != EffectSource::Default);
        changes || call.name == FIND_TOOLS
    };
    let mut informs = false;
    let mut ends = Vec::new();
    for (index, message) in shown.messages.iter().enumerate() {
        match message.role {
            Role::Assistant => informs = !message.tool_calls.iter().all(goes_on),
            Role::Tool => informs &= !is_error(&message.content),
            _ => continue,
        }
        let ends_here = shown.messages.get(index + 1).is_none_or(|next| next.role != Role::Tool);
        if message.role == Role::Tool && ends_here && informs {
            ends.push(index + 1);
        }
    }
    for (added, end) in ends.into_iter().enumerate() {
        Arc::make_mut(&mut shown.messages).insert(end + added, Message::user(ANSWER_NOW));
        if let Some(place) = shown.places.get(end + added - 1).copied() {
            shown.places.insert(end + added, place);
        }
    }
}

/// Returns whether a result is an error, as far as its text says so.
fn is_error(result: &str) -> bool {
    let has_error = |value: Value| value.get("error").is_some_and(|error| !error.is_null());
    result.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("error"))
        || serde_json::from_str(result).is_ok_and(has_error)
}

/// The name of the tool that reads results, beside these tools.
pub(crate) fn reader_name(tools: &Tools) -> String {
    let is_taken = |name: &String| tools.iter().any(|tool| tool.name == *name || tool.called() == name);
    let numbered = (2_usize..).map(|number| format!("{READ_RESULT}_{number}"));
    std::iter::once(READ_RESULT.to_owned()).chain(numbered).find(|name| !is_taken(name)).unwrap_or_default()
}

/// The tool that reads results.
pub(super) fn reader(name: &str) -> Tool {
    let number = |about: &str| json!({"type": "integer", "description": about});
    let schema = json!({
        "type": "object",
        "properties": {
            "id": number("The id of the result"),
            "from": number("The number of the first line or element"),
            "lines": number("How many lines or elements"),
            "query": {"type": "string", "description": "Only those that contain this text"},
        },
        "required": ["id"],
    });
    let about = "Read what was left out of a tool's result";
    Tool::new(name, about, schema.as_object().cloned()).effect(Effect::Read)
}

/// Returns whether a context has room for the tool that reads results.
pub(super) fn has_room(context: usize) -> bool {
    context >= LEAST_CONTEXT
}

/// The longest line or element, in bytes: so that one alone fits what a call may read, whatever its tokens are.
fn longest(context: usize) -> usize {
    (context / 5).max(64)
}

/// The results that can be read, by their places in a conversation. The id of each is its number here, from 1. Those of the
/// tool that reads are parts of others.
fn readable(messages: &[Message], reader: &str) -> Vec<usize> {
    let own = |id: &Option<String>| {
        let mut calls = messages.iter().flat_map(|message| &message.tool_calls);
        id.is_some() && calls.any(|call| call.name == reader && call.id == *id)
    };
    let is_result = |message: &Message| message.role == Role::Tool && !own(&message.tool_call_id);
    (0..messages.len()).filter(|&index| is_result(&messages[index])).collect()
}

/// A result, and the remarks after it: that it was cut before, that the call was made before.
fn without_remarks(content: &str) -> (&str, &str) {
    let (unremarked, _) = remarks::without_advice(content);
    content.split_at(remarks::without_marks(unremarked).0.len())
}

/// A result as parts that are shown whole or not at all; one after the other they are the text.
struct Parts<'t> {
    text: &'t str,
    /// Where each ends.
    ends: Vec<usize>,
    /// What they are called.
    unit: &'static str,
}

impl<'t> Parts<'t> {
    /// The elements of JSON, or the lines of another text. What has more than `longest` bytes is divided.
    fn of(text: &'t str, longest: usize) -> Parts<'t> {
        let mut parts = Parts { text, ends: Vec::new(), unit: "lines" };
        if text.trim_start().starts_with(['[', '{']) && serde_json::from_str::<IgnoredAny>(text).is_ok() {
            parts.unit = "elements";
            let commas = commas(text);
            parts.divide(0..text.len(), &commas, longest);
        } else {
            for line in text.split_inclusive('\n') {
                let start = parts.start(parts.ends.len());
                parts.whole_or_pieces(start..start + line.len(), longest);
            }
        }
        parts
    }

    /// Adds a range of JSON, divided at its outermost commas, and what is long of that again. Each time one level deeper,
    /// which ends at [`DEEPEST`].
    fn divide(&mut self, range: Range<usize>, commas: &[(usize, usize)], longest: usize) {
        let commas = &commas[commas.partition_point(|(at, _)| *at <= range.start)..];
        let commas = &commas[..commas.partition_point(|(at, _)| *at < range.end)];
        let Some(depth) = commas.iter().map(|(_, depth)| *depth).min() else {
            return self.whole_or_pieces(range, longest);
        };
        let outermost = commas.iter().filter(|(_, of)| *of == depth).map(|(at, _)| *at);
        let mut start = range.start;
        for end in outermost.chain([range.end]) {
            if end - start > longest {
                self.unit = "parts";
                self.divide(start..end, commas, longest);
            } else {
                self.ends.push(end);
            }
            start = end;
        }
    }

    /// Adds a range as one part, or in pieces if it is long.
    fn whole_or_pieces(&mut self, range: Range<usize>, longest: usize) {
        let mut at = range.start;
        if range.len() > longest {
            self.unit = "parts";
            while range.end - at > PIECE.min(longest) {
                at = floor(self.text, at + PIECE.min(longest));
                self.ends.push(at);
            }
        }
        self.ends.push(range.end);
    }

    fn len(&self) -> usize {
        self.ends.len()
    }

    fn start(&self, part: usize) -> usize {
        part.checked_sub(1).map_or(0, |before| self.ends[before])
    }

    fn text(&self, parts: Range<usize>) -> &'t str {
        &self.text[self.start(parts.start)..self.start(parts.end)]
    }

    /// The parts that are left out where at most so many bytes are shown of the beginning and the end.
    fn left_out(&self, most: usize) -> Range<usize> {
        let (mut out, mut shown) = (0..self.len(), [0, 0]);
        while !out.is_empty() {
            let next = [self.text(out.start..out.start + 1).len(), self.text(out.end - 1..out.end).len()];
            let fits = |side: usize| shown[0] + shown[1] + next[side] <= most;
            let side = usize::from(shown[0] > shown[1]);
            let Some(side) = [side, 1 - side].into_iter().find(|&side| fits(side)) else { break };
            shown[side] += next[side];
            if side == 0 { out.start += 1 } else { out.end -= 1 }
        }
        out
    }

    /// Names parts by their numbers, from 1: `lines 3 to 7 of 9`.
    fn named(&self, parts: &Range<usize>) -> String {
        let (unit, all) = (self.unit, self.len());
        match parts.len() {
            1 => format!("{} {} of {all}", unit.trim_end_matches('s'), parts.end),
            _ => format!("{unit} {} to {} of {all}", parts.start + 1, parts.end),
        }
    }

    /// The parts that contain a text, in which letters of ASCII may be large or small.
    fn containing(&self, query: &str) -> Vec<usize> {
        let text = self.text.to_ascii_lowercase();
        // JSON may have the text with escapes.
        let escaped = Value::from(query).to_string();
        let escaped = &escaped[1..escaped.len() - 1];
        let unicode = |c: char| match c.is_ascii() {
            true => c.to_string(),
            false => c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect(),
        };
        let mut found = Vec::new();
        for query in [query.to_owned(), escaped.to_owned(), escaped.chars().map(unicode).collect()] {
            for (at, query) in text.match_indices(&query.to_ascii_lowercase()) {
                // It may begin in one part and end in another.
                let part = |at: usize| self.ends.partition_point(|end| *end <= at);
                found.extend(part(at)..=part(at + query.len() - 1));
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// The places after commas between elements of JSON, with the number of arrays and objects around each.
fn commas(json: &str) -> Vec<(usize, usize)> {
    let (mut commas, mut depth, mut in_string, mut escaped) = (Vec::new(), 0_usize, false, false);
    for (at, byte) in json.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            b',' if depth <= DEEPEST => commas.push((at + 1, depth)),
            _ => {}
        }
    }
    commas
}

/// The last boundary of characters up to a byte.
fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

/// What a prompt shows of a result.
#[derive(Debug, Clone)]
pub(super) struct Shortened {
    /// At most so many bytes of the result.
    pub most: usize,
    /// The content of the message.
    pub content: String,
    /// What is left out.
    pub left_out: String,
}

/// Two are equal if they show the same.
impl PartialEq for Shortened {
    fn eq(&self, other: &Shortened) -> bool {
        self.content == other.content
    }
}

/// Shortens results of a conversation.
pub(super) struct Shortener<'m> {
    messages: &'m [Message],
    longest: usize,
    /// Those that the model can read, and the name of the tool for that.
    reads: Option<(Vec<usize>, String)>,
    parts: BTreeMap<usize, Parts<'m>>,
}

impl<'m> Shortener<'m> {
    /// `reader`: the name of the tool that reads results, if the model has it.
    pub(super) fn new(messages: &'m [Message], context: usize, reader: Option<String>) -> Shortener<'m> {
        let reads = reader.map(|name| (readable(messages, &name), name));
        Shortener { messages, longest: longest(context), reads, parts: BTreeMap::new() }
    }

    /// The beginning and the end of a result, of at most so many bytes together, and a sentence about what is between them. The
    /// remarks after the result are kept. `None` if it would not be shorter.
    pub(super) fn shorten(&mut self, index: usize, most: usize) -> Option<Shortened> {
        let content = self.messages[index].content.as_str();
        let (text, remarks) = without_remarks(content);
        let parts = self.parts.entry(index).or_insert_with(|| Parts::of(text, self.longest));
        let out = parts.left_out(most);
        if out.is_empty() {
            return None;
        }
        let (mut begin, end) = (parts.text(0..out.start).to_owned(), parts.text(out.end..parts.len()));
        // The beginning of a long line says more than nothing.
        if begin.is_empty() && (parts.unit == "parts" || parts.unit == "lines" && end.is_empty()) {
            begin = format!("{}…", &text[..floor(text, most - end.len())]);
        }
        let left_out = parts.named(&out);
        let (is, them) = if out.len() == 1 { ("is", "it") } else { ("are", "them") };
        let how = self.reads.as_ref().and_then(|(readable, reader)| {
            let id = readable.iter().position(|place| *place == index)? + 1;
            Some(format!("; {reader} with id {id} reads {them}"))
        });
        let how = how.unwrap_or_default();
        let [before, after] = [&*begin, end].map(|text| if text.is_empty() { "" } else { "\n" });
        let begin = begin.trim_end_matches('\n');
        let shown = format!("{begin}{before}[{left_out} {is} left out here{how}]{after}{end}{remarks}");
        (shown.len() < content.len()).then_some(Shortened { most, content: shown, left_out })
    }
}

/// Answers the calls of the tool that reads results.
pub(crate) struct Reading<'m> {
    pub messages: &'m [Message],
    /// The tool's name.
    pub reader: &'m str,
    /// Of how many tokens the context is.
    pub context: usize,
    /// Says whether a text is short enough to be a result.
    pub fits: &'m dyn Fn(&str) -> bool,
}

impl Reading<'_> {
    /// The result of a call. Whatever is wrong with its arguments, it says what there is.
    pub(crate) fn answer(&self, call: &ToolCall) -> String {
        let none = Map::new();
        let arguments = match &call.arguments {
            Arguments::Object(arguments) => arguments,
            Arguments::Raw(_) => &none,
        };
        let asked = |name: &str| arguments.get(name).filter(|value| !value.is_null());
        let readable = readable(self.messages, self.reader);
        let id = asked("id").and_then(number);
        let found = id.and_then(|id| usize::try_from(id).ok()?.checked_sub(1).and_then(|place| readable.get(place)));
        let Some(&index) = found else {
            return format!("there is no such result; {}", self.listed(&readable));
        };
        let parts = Parts::of(without_remarks(&self.messages[index].content).0, longest(self.context));
        let (unit, all) = (parts.unit, parts.len());
        let from = asked("from").map_or(Some(1), number);
        let most = asked("lines").map_or(Some(i64::MAX), number);
        let first = from.and_then(|from| usize::try_from(from).ok()?.checked_sub(1)).filter(|first| *first < all);
        let most = most.and_then(|most| usize::try_from(most).ok()).filter(|most| *most > 0);
        let (Some(first), Some(most)) = (first, most) else {
            let id = id.unwrap_or_default();
            return match all {
                0 => format!("result {id} is empty"),
                _ => format!("there is nothing to read there; result {id} has the {unit} 1 to {all}"),
            };
        };
        match asked("query").and_then(Value::as_str).filter(|query| !query.is_empty()) {
            Some(query) => self.search(&parts, query, first, most),
            None => self.page(&parts, first, most),
        }
    }

    /// The results that there are.
    fn listed(&self, readable: &[usize]) -> String {
        let about = |(place, &index): (usize, &usize)| {
            let message = &self.messages[index];
            let parts = Parts::of(without_remarks(&message.content).0, longest(self.context));
            let name = message.name.as_deref().unwrap_or("a tool");
            format!("{} (of {name}, {} {})", place + 1, parts.len(), parts.unit)
        };
        let last = readable.len().saturating_sub(LISTED);
        let listed: Vec<String> = readable.iter().enumerate().skip(last).map(about).collect();
        if listed.is_empty() { "there are none".to_owned() } else { format!("the ids are {}", listed.join(", ")) }
    }

    /// Parts one after another.
    fn page(&self, parts: &Parts<'_>, first: usize, most: usize) -> String {
        let text = |count: usize| {
            let shown = first..first + count;
            let on = go_on((shown.end < parts.len()).then_some(shown.end));
            format!("[{}{on}]\n{}", parts.named(&shown), parts.text(shown))
        };
        self.longest(most.min(parts.len() - first), text)
    }

    /// The parts that contain a text.
    fn search(&self, parts: &Parts<'_>, query: &str, first: usize, most: usize) -> String {
        let found: Vec<usize> = parts.containing(query).into_iter().filter(|part| *part >= first).collect();
        let (unit, all) = (parts.unit, parts.len());
        let query: String = query.chars().take(ECHOED).collect();
        let among = if first == 0 { format!("{all} {unit}") } else { format!("{unit} {} to {all}", first + 1) };
        if found.is_empty() {
            return format!("[none of the {among} contains {query:?}]");
        }
        let text = |count: usize| {
            let on = go_on(found.get(count).copied());
            let mut lines = String::new();
            let mut before = None;
            for &part in &found[..count] {
                let text = parts.text(part..part + 1).trim_end_matches(['\n', '\r']);
                // What is looked for may begin in one piece of a line and end in the next.
                match before == Some(part) && parts.unit == "parts" {
                    true => lines += text,
                    false => lines += &format!("\n{}: {}", part + 1, text.trim_start_matches(['\n', '\r'])),
                }
                before = Some(part + 1);
            }
            let have = if found.len() == 1 { "contains" } else { "contain" };
            let first =
                if count < found.len() { format!(", of which the first {count} follow") } else { String::new() };
            format!("[{} of the {among} {have} {query:?}{first}{on}]{lines}", found.len())
        };
        self.longest(most.min(found.len()), text)
    }

    /// The longest text that fits, of at most so many parts and at least one.
    fn longest(&self, most: usize, text: impl Fn(usize) -> String) -> String {
        let (mut count, mut step) = (1, 1);
        // From below: all of it may be far too much to be tokenised.
        while count + step <= most && (self.fits)(&text(count + step)) {
            (count, step) = (count + step, step * 2);
        }
        let mut over = (count + step).min(most + 1);
        while over - count > 1 {
            let middle = count + (over - count) / 2;
            if (self.fits)(&text(middle)) { count = middle } else { over = middle }
        }
        text(count)
    }
}

/// Says where to read on.
fn go_on(next: Option<usize>) -> String {
    next.map_or_else(String::new, |next| format!("; from {} goes on", next + 1))
}

/// A whole number, also one that is written as text.
fn number(value: &Value) -> Option<i64> {
    let float = match value {
        Value::String(text) => text.trim().parse().ok(),
        value => value.as_f64(),
    };
    // A number that is too large becomes the largest one.
    value.as_i64().or(float.filter(|float| !float.is_nan()).map(|float| float as i64))
}
