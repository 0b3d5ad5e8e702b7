//! What a prompt wrote of the answer already.
//!
//! A prompt ends with the header of the assistant's turn, and sometimes with more: an opened `<think>`, a forced start
//! marker, the beginning of an answer that is to be continued. Only what stands behind the header is the answer's.

use super::{Format, Marker};

/// What those who write an answer are called in headers.
const ROLES: [&str; 5] = ["assistant", "model", "ai", "bot", "gpt"];

/// The part of a prompt's tail that belongs to the answer: what stands behind the last special token that is no
/// marker of the format, and behind the role in its line.
pub(super) fn of_answer<'t>(tail: &'t str, format: &Format) -> &'t str {
    // A marker may itself look like a header: what follows its beginning is the answer.
    let marker = format.reserved().filter_map(|marker| tail.find(marker)).min().unwrap_or(tail.len());
    let mut start = 0;
    for (at, token) in special_tokens(&tail[..marker]) {
        start = at + token.len();
    }
    let rest = &tail[start..];
    let word = rest.trim_start_matches(['\r', '\n', ' ']);
    let role = ROLES.iter().find_map(|role| {
        let head = word.get(..role.len()).filter(|head| head.eq_ignore_ascii_case(role))?;
        let after = &word[head.len()..];
        (start > 0 && (after.starts_with(['\n', '\r', ':']) || after.is_empty())).then_some(after)
    });
    match role {
        Some(after) => after.trim_start_matches([':', '\r', '\n']),
        None if start > 0 => rest.trim_start_matches(['\r', '\n']),
        None => rest,
    }
}

/// The part of it that begins with reasoning which it leaves open, or nothing.
pub(super) fn open_reasoning<'t>(tail: &'t str, format: &Format) -> &'t str {
    let Some(reasoning) = &format.reasoning else { return tail };
    let last = |marker: &Marker| marker.text().map(str::trim).and_then(|text| tail.rfind(text));
    match (last(&reasoning.start), last(&reasoning.end)) {
        (Some(start), end) if end.is_none_or(|end| end < start) => &tail[start..],
        (_, Some(end)) => tail[end..].strip_prefix(reasoning.end.text().unwrap_or_default().trim()).unwrap_or_default(),
        _ => tail,
    }
}

/// What looks like a special token, with its place: `<|…|>`, `<｜…｜>`, `<…_…>`, `[/INST]`, `]~b]`.
fn special_tokens(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let brackets = [("<|", "|>"), ("<｜", "｜>"), ("<", ">"), ("[", "]"), ("]~", "]")];
    text.char_indices().filter_map(move |(at, _)| {
        brackets.iter().find_map(|(open, close)| {
            let inner = text[at..].strip_prefix(open)?;
            let inner = &inner[..inner.find(close)?];
            let plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '/' | '▁' | '-');
            let known = match *open {
                "<" => inner.contains('_') || inner.starts_with(|c: char| c.is_uppercase()),
                "[" => inner == "/INST" || inner == "INST",
                _ => true,
            };
            let fits = known && !inner.is_empty() && inner.len() <= 40 && inner.chars().all(plain);
            fits.then(|| (at, &text[at..at + open.len() + inner.len() + close.len()]))
        })
    })
}
