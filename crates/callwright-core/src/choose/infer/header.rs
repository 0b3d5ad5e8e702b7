//! The text that a template writes between the user's message and an answer: the header of the assistant's turn.
//!
//! A prompt may end with more: an opened `<think>`, or reasoning that is closed at once. The header is what the prompt
//! and a past answer have in common; the rest belongs to the answer.

use super::renders::{FIRST, Renders, THOUGHT};
use super::texts::{common_prefix, whole_tags};
use crate::format::Around;
use serde_json::{Map, Value, json};

/// Switches for reasoning. Some templates write a different prompt for each.
const SWITCHES: [(&str, bool); 5] =
    [("", true), ("enable_thinking", true), ("enable_thinking", false), ("thinking", true), ("thinking", false)];

/// The headers of a template, each from the end of the user's message on, longest first.
///
/// `answer` is what the template writes before a plain-text answer, from the same place on.
pub fn read(renders: &Renders, answer: &str, reasoning: Option<&Around>) -> Vec<String> {
    let before = |text: Option<String>, word: &str| text.and_then(|text| Some(text[..text.find(word)?].to_owned()));
    let answers = [
        Some(answer.to_owned()),
        before(renders.reasoned("", &[&FIRST]), THOUGHT),
        before(renders.calls("", &[&FIRST]), FIRST.name),
    ];
    let answers: Vec<String> = answers.into_iter().flatten().filter(|head| !head.trim().is_empty()).collect();
    let mut headers: Vec<String> = Vec::new();
    for (name, value) in SWITCHES {
        let variables: Map<String, Value> =
            Some((name.to_owned(), json!(value))).into_iter().filter(|(name, _)| !name.is_empty()).collect();
        let Some(prompt) = renders.prompt_with(variables) else { continue };
        let header = header(&prompt, &answers, reasoning);
        if !header.trim().is_empty() && !headers.iter().any(|known| known == header) {
            headers.push(header.to_owned());
        }
    }
    headers.sort_by_key(|header| std::cmp::Reverse(header.len()));
    headers
}

/// Returns what a prompt has in common with every answer, before reasoning is opened or closed.
fn header<'p>(prompt: &'p str, answers: &[String], reasoning: Option<&Around>) -> &'p str {
    let shared = answers.iter().map(|answer| whole_tags(common_prefix(prompt, answer)).len());
    // Inside a turn, an answer may be written without the header that the prompt has.
    let shared = shared.filter(|length| prompt[..*length].contains(char::is_alphanumeric)).min();
    let header = &prompt[..shared.unwrap_or(prompt.len())];
    let markers = reasoning.into_iter().flat_map(|around| [&around.start, &around.end]).filter_map(|m| m.text());
    let opened = markers.filter_map(|marker| header.find(marker.trim()).filter(|_| !marker.trim().is_empty())).min();
    &header[..opened.unwrap_or(header.len())]
}
