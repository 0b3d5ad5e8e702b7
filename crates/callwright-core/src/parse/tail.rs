//! The part of an answer that is in the prompt.
//!
//! A prompt ends with the header of the assistant's turn, and sometimes with more: an opened `<think>`, a forced start
//! marker, the beginning of an answer to continue. Only what follows the header belongs to the answer. If the chat
//! template is known, so is its header; otherwise it is recognised by its text.

mod header;

use crate::format::{Format, Marker};

/// The part of a prompt's tail that belongs to the answer.
pub(super) fn of_answer<'t>(tail: &'t str, format: &Format) -> &'t str {
    let answer = format
        .headers()
        .iter()
        .find_map(|header| after_known(tail, header))
        .unwrap_or_else(|| after_recognised(tail, format));
    // The header may end with what belongs to the answer: the start marker of its first call.
    let opened = format.opened.as_deref().map(str::trim_end).unwrap_or_default();
    let header = tail[..tail.len() - answer.len()].trim_end();
    if !opened.is_empty() && header.ends_with(opened) { &tail[header.len() - opened.len()..] } else { answer }
}

/// The answer after `header`; the tail may contain only the header's end.
fn after_known<'t>(tail: &'t str, header: &str) -> Option<&'t str> {
    let end_of_header = |from: usize| {
        let end = &header[from..];
        let rest = end.contains(char::is_alphanumeric).then(|| tail.strip_prefix(end))?;
        // Some templates write less white space at the end of a prompt.
        rest.or_else(|| (tail == end.trim_end()).then_some(""))
    };
    let starts = header.char_indices().map(|(at, _)| at);
    // A tail that is a longer part of the prompt contains the whole header.
    starts.clone().find_map(end_of_header).or_else(|| Some(&tail[tail.rfind(header)? + header.len()..]))
}

/// The answer after text that looks like a header.
fn after_recognised<'t>(tail: &'t str, format: &Format) -> &'t str {
    // A marker may itself look like a header; it then begins the answer.
    let around = [&format.section, &format.reasoning].into_iter().flatten().flat_map(|a| [&a.start, &a.end]);
    let markers = format.start.iter().chain(around).filter_map(Marker::text).map(str::trim);
    let opened = markers.filter(|marker| !marker.is_empty()).filter_map(|marker| tail.find(marker)).min();
    let marker = opened.unwrap_or(tail.len());
    &tail[header::length(&tail[..marker])..]
}

/// The part that begins with reasoning that it leaves open; otherwise empty.
pub(super) fn open_reasoning<'t>(tail: &'t str, format: &Format) -> &'t str {
    let Some(reasoning) = &format.reasoning else { return tail };
    let last = |marker: &Marker| marker.text().map(str::trim).and_then(|text| tail.rfind(text));
    match (last(&reasoning.start), last(&reasoning.end)) {
        (Some(start), end) if end.is_none_or(|end| end < start) => &tail[start..],
        (_, Some(end)) => tail[end..].strip_prefix(reasoning.end.text().unwrap_or_default().trim()).unwrap_or_default(),
        _ => tail,
    }
}
