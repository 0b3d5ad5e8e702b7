//! Finds the markers around reasoning.

use super::renders::{FIRST, Renders, TEXT, THOUGHT};
use super::texts::{common_prefix, tags, whole_tags};
use std::ops::Range;

/// Switches that templates have for reasoning; templates without them ignore them.
const THINK: [&str; 2] = ["enable_thinking", "thinking"];
/// How many markers of the source to try.
const TRIES: usize = 4;
/// Maximum length of a marker taken from the source.
const LONGEST: usize = 64;

/// The markers around reasoning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reasoning {
    pub start: String,
    pub end: String,
    /// What follows the end marker before the text: the header of another turn.
    pub rest: String,
}

/// `heads` are the texts before other answers.
pub fn read(renders: &Renders, prompt: &str, answer: &str) -> Option<Reasoning> {
    shown(renders, prompt, answer).or_else(|| hidden(renders, answer))
}

/// The markers of a template that writes past reasoning.
fn shown(renders: &Renders, prompt: &str, answer: &str) -> Option<Reasoning> {
    let tries: [&dyn Fn() -> (Option<String>, &'static str); 4] = [
        &|| (renders.reasoned(TEXT, &[]), TEXT),
        &|| (renders.reasoned(TEXT, &[&FIRST]), TEXT),
        &|| (renders.reasoned("", &[&FIRST]), FIRST.name),
        // A template that prints the list as it is does not support parts.
        &|| (renders.reasoned_in_parts().filter(|text| !text.contains(['\'', '"'])), TEXT),
    ];
    tries.iter().find_map(|written| {
        let (written, next) = written();
        let written = written?;
        let (before, rest) = written.split_once(THOUGHT)?;
        let between = &rest[..rest.find(next)?];
        if next == TEXT && between.contains(FIRST.name) {
            return None;
        }
        let end = closing(between);
        let rest = if next == TEXT { between[end.len()..].trim() } else { "" };
        let start = start(before, &[prompt, answer])?;
        let marker = !start.trim().is_empty() && !end.trim().is_empty();
        marker.then(|| Reasoning { start: start.to_owned(), end: end.to_owned(), rest: rest.to_owned() })
    })
}

/// The start of reasoning, separated from the turn's header.
fn start<'a>(before: &'a str, heads: &[&str]) -> Option<&'a str> {
    let heads = heads.iter().filter(|head| !head.trim().is_empty());
    let head = heads.map(|head| whole_tags(common_prefix(before, head)).len()).min().unwrap_or(0);
    if !before[head..].trim().is_empty() {
        return Some(&before[head..]);
    }
    // Every header opens reasoning, even if only to close it again.
    let tags = tags(before);
    let last = tags.last()?;
    let named = tags.iter().rev().nth(1).filter(|tag| is_word(&before[tag.end..last.start]));
    let start = named.map_or(last.start, |tag| tag.start);
    (with_space(before, last.clone()).end == before.len()).then(|| &before[start..])
}

/// The end of reasoning: the first tag between it and the text, or `<close>word<sep>`.
fn closing(between: &str) -> &str {
    let tags = tags(between);
    let Some(first) = tags.first() else { return between };
    let named = tags.get(1).filter(|tag| is_word(&between[first.end..tag.start]));
    let last = named.unwrap_or(first);
    &between[..with_space(between, last.clone()).end]
}

pub fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(char::is_alphanumeric)
}

/// A tag with the white space that follows it.
fn with_space(text: &str, tag: Range<usize>) -> Range<usize> {
    let rest = &text[tag.end..];
    tag.start..tag.end + rest.len() - rest.trim_start().len()
}

/// The markers of a template that only strips reasoning from content: it splits the content at a text and drops
/// everything before.
fn hidden(renders: &Renders, answer: &str) -> Option<Reasoning> {
    let source = renders.source();
    let end = split_texts(source).into_iter().find(|marker| {
        let text = renders.past_answer(&format!("{THOUGHT}{marker}{TEXT}"));
        text.is_some_and(|text| text.contains(TEXT) && !text.contains(THOUGHT))
    })?;
    let prompt = renders.prompt(&THINK)?;
    let head = whole_tags(common_prefix(&prompt, answer));
    let opened = &prompt[head.len()..];
    // The prompt does not show the start, so derive it from the end tag.
    let opening = end.replacen("</", "<", 1).replacen("[/", "[", 1);
    let start = if !opened.trim().is_empty() && !opened.contains(&end) {
        opened.to_owned()
    } else if opening != end && (source.contains(&opening) || prompt.contains(&opening)) {
        opening
    } else {
        return None;
    };
    Some(Reasoning { start, end, rest: String::new() })
}

/// The texts that the source splits other texts at.
fn split_texts(source: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for (at, call) in source.match_indices(".split(") {
        let rest = source[at + call.len()..].trim_start();
        let Some(quote) = rest.chars().next().filter(|quote| matches!(quote, '\'' | '"')) else { continue };
        let Some(text) = rest[1..].split(quote).next() else { continue };
        let marker = text.len() <= LONGEST && text.trim().len() > 2 && !text.contains(['\\', '\n']);
        if marker && found.len() < TRIES && !found.iter().any(|other| other == text) {
            found.push(text.to_owned());
        }
    }
    found
}

impl Reasoning {
    /// The text without reasoning at its beginning that was opened and closed, or only closed.
    pub fn strip<'a>(&self, text: &'a str) -> &'a str {
        let (start, end) = (self.start.trim(), self.end.trim());
        let trimmed = text.trim_start();
        let closed = trimmed.strip_prefix(start).unwrap_or(trimmed).trim_start().strip_prefix(end);
        closed.unwrap_or(text)
    }
}
