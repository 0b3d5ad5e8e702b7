//! What a prompt wrote of the answer already.
//!
//! A prompt ends with the header of the assistant's turn, and sometimes with more: an opened `<think>`, a forced start
//! marker, the beginning of an answer that is to be continued. Only what follows the header is the answer's. Where the
//! chat template is known, so is its header; otherwise it is recognised by its text.

mod header;

use crate::format::{Format, Marker};

/// The part of a prompt's tail that belongs to the answer.
pub(super) fn of_answer<'t>(tail: &'t str, format: &Format) -> &'t str {
    format
        .headers()
        .iter()
        .find_map(|header| after_known(tail, header))
        .unwrap_or_else(|| after_recognised(tail, format))
}

/// The answer after `header`, of which the tail may have the end only.
fn after_known<'t>(tail: &'t str, header: &str) -> Option<&'t str> {
    let end_of_header = |from: usize| {
        let end = &header[from..];
        let rest = end.contains(char::is_alphanumeric).then(|| tail.strip_prefix(end))?;
        // Some templates write less white space where they leave the answer to the model.
        rest.or_else(|| (tail == end.trim_end()).then_some(""))
    };
    let starts = header.char_indices().map(|(at, _)| at);
    // A tail that is a longer part of the prompt has the whole header in it.
    starts.clone().find_map(end_of_header).or_else(|| Some(&tail[tail.rfind(header)? + header.len()..]))
}

/// The answer after what looks like a header.
fn after_recognised<'t>(tail: &'t str, format: &Format) -> &'t str {
    // A marker may itself look like a header: it begins the answer.
    let around = [&format.section, &format.reasoning].into_iter().flatten().flat_map(|a| [&a.start, &a.end]);
    let markers = format.start.iter().chain(around).filter_map(Marker::text).map(str::trim);
    let opened = markers.filter(|marker| !marker.is_empty()).filter_map(|marker| tail.find(marker)).min();
    let marker = opened.unwrap_or(tail.len());
    &tail[header::length(&tail[..marker])..]
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
