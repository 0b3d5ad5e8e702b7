//! The built-in format of a model's family, found by its markers in a chat template or a vocabulary.
//!
//! No model is named here: the distinguishing markers come from the formats' declarations.

use super::infer::texts::tags;
use crate::format::{Around, Builtin, Format, Marker, Payload};
use crate::message::{Arguments, ToolCall};
use serde_json::json;
use std::cmp::Reverse;

/// Shorter texts without brackets may occur in any template.
const SHORTEST_TEXT: usize = 8;

/// The texts of a format.
struct Markers {
    builtin: &'static Builtin,
    /// Required for a call.
    call: Vec<String>,
    /// Around results.
    other: Vec<String>,
    /// Around turns and other parts, which models with other formats may have too.
    turns: Vec<String>,
}

impl Markers {
    fn all(&self) -> impl Iterator<Item = &String> {
        self.call.iter().chain(&self.other)
    }
}

/// The format whose markers all appear, or two of those that no other format has; and three of them, in words.
pub(super) fn by_markers(is_there: &dyn Fn(&str) -> bool) -> Option<(&'static Builtin, String)> {
    let all = all_markers();
    let shared = |marker: &String| all.iter().filter(|other| other.all().any(|m| m == marker)).count() > 1;
    let found = all.iter().enumerate().filter_map(|(order, markers)| {
        let call: Vec<&String> = markers.call.iter().filter(|marker| is_there(marker)).collect();
        let own: Vec<&String> = markers.all().filter(|marker| is_there(marker) && !shared(marker)).collect();
        let whole = !call.is_empty() && call.len() == markers.call.len();
        let other = markers.other.iter().chain(&markers.turns).filter(|marker| is_there(marker)).count();
        let rank = (whole, call.len(), own.len(), other, Reverse(order));
        let shown = if whole { call } else { own };
        (whole || shown.len() > 1).then_some((rank, markers.builtin, shown))
    });
    let (_, builtin, shown) = found.max_by_key(|(rank, ..)| *rank)?;
    Some((builtin, list(&shown)))
}

/// The format whose call markers are all tokens of a vocabulary, or two of those that no other format has.
pub(super) fn by_tokens(is_token: &dyn Fn(&str) -> bool) -> Option<(&'static Builtin, String)> {
    let all = all_markers();
    let is_there = |marker: &String| is_special(marker) && is_token(marker);
    let shared = |marker: &String| all.iter().filter(|other| other.all().any(|m| m == marker)).count() > 1;
    let found = all.iter().enumerate().filter_map(|(order, markers)| {
        let call: Vec<&String> = markers.call.iter().filter(|marker| is_there(marker)).collect();
        let whole = !call.is_empty() && call.len() == markers.call.len();
        let own = call.iter().filter(|marker| !shared(marker)).count();
        let other = markers.other.iter().chain(&markers.turns).filter(|marker| is_there(marker)).count();
        let rank = (call.len(), whole, other, Reverse(order));
        (whole || own > 1).then_some((rank, markers.builtin, call))
    });
    let (_, builtin, shown) = found.max_by_key(|(rank, ..)| *rank)?;
    Some((builtin, list(&shown)))
}

/// Returns whether the format writes calls as the `inferred` one does, and knows all of its other markers.
pub(super) fn explains(format: &Format, inferred: &Format) -> bool {
    let call = |arguments: serde_json::Value| {
        let arguments = Arguments::Object(arguments.as_object().cloned().unwrap_or_default());
        ToolCall { id: Some("call00001".to_owned()), name: "find_ferries".to_owned(), arguments }
    };
    let every_type = json!({"a": "one", "b": 2, "c": 0.5, "d": true, "e": null, "f": ["g", "h"], "i": {"j": "k"}});
    let calls = [call(every_type), call(json!({"a": "one"}))];
    let text = |marker: &Marker| marker.text().unwrap_or_default().trim().to_owned();
    // The inferred format takes markup that is always around calls for a part of their markers.
    let markup: Vec<String> = format.markup.iter().map(text).filter(|text| !text.is_empty()).collect();
    let bare = |text: &str| markup.iter().fold(text.to_owned(), |text, marker| text.replace(marker, ""));
    let same = |calls: &[ToolCall]| bare(&format.write_calls(calls)) == bare(&inferred.write_calls(calls));
    let around = |around: &Around| (text(&around.start), text(&around.end));
    let reasons = inferred.reasoning.as_ref().map(around);
    let reasons = reasons.is_none() || reasons == format.reasoning.as_ref().map(around);
    same(&calls[..1]) && same(&calls) && reasons && inferred.markup.iter().all(|marker| bare(&text(marker)).is_empty())
}

/// The format of the models with this architecture: `lfm2moe` is LFM2's.
pub(super) fn by_architecture(architecture: &str) -> Option<&'static Builtin> {
    let plain = |text: &str| text.chars().filter(|c| c.is_alphanumeric()).collect::<String>().to_lowercase();
    let wanted = plain(architecture);
    let wanted = wanted.strip_suffix("moe").unwrap_or(&wanted);
    Format::builtins().iter().find(|builtin| {
        let named = builtin.models.split([',', ';', '(']).flat_map(|names| names.split(" and "));
        !wanted.is_empty() && named.map(plain).any(|name| name == wanted)
    })
}

/// Returns whether a text looks like a special token: `<|…|>`, `<｜…｜>`, `<tool_call>`, `[TOOL_CALLS]`.
fn is_special(text: &str) -> bool {
    let angle = text.len() > 2 && text.starts_with('<') && text.ends_with('>');
    let square = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let capital = |inner: &str| inner.len() > 1 && inner.chars().all(|c| c.is_uppercase() || matches!(c, '_' | '/'));
    !text.contains(char::is_whitespace) && (angle || square.is_some_and(capital))
}

/// The special tokens in the markers of calls.
pub fn special_tokens(format: &Format) -> Vec<String> {
    let around = format.section.iter().flat_map(|section| [&section.start, &section.end]);
    let markers = around.chain(&format.start).chain(&format.end).filter_map(|marker| marker.text());
    let head = match &format.payload {
        Payload::Named(named) => named.head.forms.first(),
        Payload::Tagged(tagged) => tagged.head.forms.first(),
        Payload::Json(_) | Payload::Python { .. } => None,
    };
    let mut tokens: Vec<String> = Vec::new();
    for text in markers.chain(head.map(String::as_str)) {
        let found = tags(text).into_iter().map(|tag| &text[tag]).filter(|tag| is_reserved(tag));
        for token in found {
            if !tokens.iter().any(|known| known == token) {
                tokens.push(token.to_owned());
            }
        }
    }
    tokens
}

/// Returns whether only a special token looks like this: `<tool_call>` may also be plain text.
fn is_reserved(text: &str) -> bool {
    is_special(text)
        && (text.starts_with('[') || text.starts_with("<|") || text.starts_with("<｜") || text.ends_with("|>"))
}

/// The parts of a format's texts that could be tokens, or that are unlikely in any other text.
fn all_markers() -> Vec<Markers> {
    let mut all = Vec::new();
    for builtin in Format::builtins() {
        let format = builtin.format();
        let mut call = Vec::new();
        call_texts(format).iter().for_each(|text| add(&mut call, text));
        let (mut other, mut turns) = (Vec::new(), Vec::new());
        format.history.marks().for_each(|text| add(&mut other, text));
        format.markup.iter().filter_map(Marker::text).for_each(|text| add(&mut turns, text));
        other.retain(|marker| !call.contains(marker));
        turns.retain(|marker| !call.contains(marker) && !other.contains(marker));
        all.push(Markers { builtin, call, other, turns });
    }
    all
}

fn call_texts(format: &Format) -> Vec<&str> {
    let around = format.section.iter().flat_map(|section| [&section.start, &section.end]);
    let markers = around.chain(format.start_of_calls()).chain(&format.end).filter_map(Marker::text);
    let inside: Vec<&str> = match &format.payload {
        Payload::Named(named) => vec![named.head.forms.first().map_or("", String::as_str), &named.tail],
        Payload::Tagged(tagged) => vec![
            tagged.head.forms.first().map_or("", String::as_str),
            &tagged.key_start,
            &tagged.key_end,
            &tagged.value_start,
            &tagged.value_end,
        ],
        Payload::Json(_) | Payload::Python { .. } => Vec::new(),
    };
    markers.chain(inside).collect()
}

/// Adds the tags of a text. If it only opens one, or is long and has none, adds the text.
fn add(markers: &mut Vec<String>, text: &str) {
    let found = tags(text);
    let rest = found.last().map_or(text, |tag| &text[tag.end..]).trim();
    let opens = rest.starts_with(['<', '[']) && rest.len() > 2;
    let whole = found.is_empty() && rest.len() >= SHORTEST_TEXT && !rest.contains('{');
    let rest = (opens || whole).then_some(rest);
    for marker in found.into_iter().map(|tag| &text[tag]).chain(rest) {
        if !markers.iter().any(|known| known == marker) {
            markers.push(marker.to_owned());
        }
    }
}

/// The first three, joined for a sentence.
fn list(markers: &[&String]) -> String {
    let more = if markers.len() > 3 { ", …" } else { "" };
    let shown: Vec<&str> = markers.iter().take(3).map(|marker| marker.as_str()).collect();
    format!("{}{more}", shown.join(", "))
}
