//! Text that has the shape of a call of a known tool, in no form that is read.
//!
//! It stays text. But whoever expects a call should know that one may be there, so it is reported.

use super::{OtherForms, Parser};
use crate::parse::event::DiagnosticKind;
use crate::tool::Tools;
use std::ops::Range;

/// Maximum number of bytes of a text to search.
const SEARCHED: usize = 64 << 10;
/// Maximum distance from a bracket to the name.
const REACH: usize = 64;
/// Maximum number of places to remember.
const MARKS: usize = 64;

impl Parser {
    /// The text is interrupted at this offset.
    pub(super) fn mark(&mut self, offset: usize) {
        if self.marks.len() < MARKS {
            let blank = self.text.blank().map_or(0, <[u8]>::len);
            self.marks.push((self.text.len(), offset.saturating_sub(blank)));
        }
    }

    /// Reports what looks like a call, if there is no other call.
    pub(super) fn report_shape(&mut self) {
        let said =
            |kind: &DiagnosticKind| matches!(kind, DiagnosticKind::OtherForm { .. } | DiagnosticKind::NoCall { .. });
        let off = self.forms.mode == OtherForms::Off;
        if off || !self.calls.done.is_empty() || self.calls.diagnostics.iter().any(|diagnostic| said(&diagnostic.kind))
        {
            return;
        }
        let (text, _) = self.text.tail(SEARCHED);
        let from = self.text.len() - text.len();
        let Some((place, tool)) = self.calls.tools().and_then(|tools| find(text, &tools)) else { return };
        let kind = DiagnosticKind::OtherForm { form: "one that is not known", format: None, tool, read: false };
        let (start, end) = (from + place.start, from + place.end);
        let mark = self.marks.iter().find(|(length, _)| *length >= end).copied();
        let (length, offset) = mark.unwrap_or_else(|| {
            let blank = self.text.blank().map_or(0, <[u8]>::len);
            (self.text.len(), self.at.saturating_sub(blank))
        });
        // Bytes that are not UTF-8 are longer in the text.
        let place = (offset + start).saturating_sub(length)..(offset + end).saturating_sub(length);
        self.calls.diagnose(kind, place);
    }
}

/// The place of the first text that looks like a call, from its bracket to the name, and the tool.
fn find(text: &str, tools: &Tools) -> Option<(Range<usize>, String)> {
    let found = tools.iter().filter_map(|tool| {
        let mut places = memchr::memmem::find_iter(text.as_bytes(), tool.name.as_bytes());
        let place = places.find_map(|at| shape(text, at..at + tool.name.len()))?;
        Some((place, tool.name.clone()))
    });
    found.min_by_key(|(place, _)| place.start)
}

/// The place, if the name is next to brackets as in a call.
fn shape(text: &str, name: Range<usize>) -> Option<Range<usize>> {
    let (before, after) = (text.get(..name.start)?, text.get(name.end..)?);
    let in_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
    if before.ends_with(in_word) || after.starts_with(in_word) {
        return None;
    }
    let mut from = name.start.saturating_sub(REACH);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    let reach = &text[from..name.start];
    let start = from + opening(reach)?;
    let line = text[..start].rsplit('\n').next().unwrap_or_default();
    let quoted = line.ends_with('\'') || line.matches('`').count() % 2 == 1;
    let close = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '>' | ']' | '/' | ':' | ',');
    let rest = after.trim_start_matches(close);
    // `[f](x)` is a link.
    let listed = text[start..].starts_with('[') && !text[..name.start].ends_with(['"', '\'']);
    let brackets: &[char] = if listed { &['{'] } else { &['{', '[', '(', '<', '"'] };
    let member = after.strip_prefix(['"', '\'']).is_some_and(|rest| rest.trim_start().starts_with([',', ':', '}']));
    let attributes =
        || text[start..].starts_with('<') && rest.split(['>', '\n']).next().unwrap_or_default().contains('=');
    (!quoted && (rest.starts_with(brackets) || member || attributes())).then_some(start..name.end)
}

/// Where a bracket opens before a name: a tag with the name in it or right before it, or a JSON object.
fn opening(reach: &str) -> Option<usize> {
    let around = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '=' | ':');
    if let Some(tag) = reach.rfind('<')
        && !reach[tag..].contains(['>', '\n'])
        && !reach[tag..].starts_with("</")
    {
        return Some(tag);
    }
    let trimmed = reach.trim_end_matches(around);
    if trimmed.ends_with(['>', ']']) {
        let tag = trimmed.rfind(['<', '['])?;
        let word = trimmed[tag..].to_ascii_lowercase();
        return ["call", "tool", "function"].iter().any(|part| word.contains(part)).then_some(tag);
    }
    let quoted = reach.ends_with(['"', '\'']);
    let bracket = reach.rfind(['{', '['])?;
    let direct = reach[bracket + 1..].trim_matches(around).is_empty();
    let key = quoted && reach[bracket..].starts_with('{') && reach[bracket + 1..].contains(':');
    (direct && (quoted || reach[bracket..].starts_with('[')) || key).then_some(bracket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::Tool;

    #[test]
    fn the_shape_of_a_call_is_told_from_prose() {
        let tools = Tools::new([Tool::new("get_weather", "", None)]).unwrap();
        for (text, expected) in [
            ("<call tool=\"get_weather\"><arg city=\"Rome\"/></call>", Some("<call tool=\"get_weather")),
            ("Now <get_weather city=\"Rome\"/>", Some("<get_weather")),
            ("<get_weather>\n<city>Rome</city>\n</get_weather>", Some("<get_weather")),
            ("[[get_weather]] {\"city\": \"Rome\"}", Some("[get_weather")),
            ("<tool>get_weather</tool><city>Rome</city>", Some("<tool>get_weather")),
            ("{\"get_weather\": {\"city\": \"Rome\"}}", Some("{\"get_weather")),
            ("{\"use\": \"get_weather\", \"with\": 1}", Some("{\"use\": \"get_weather")),
            ("I use get_weather for that.", None),
            ("I use `get_weather(city)` for that.", None),
            ("Write `{\"a\": 1} {\"get_weather\": {}}` for that.", None),
            ("Use <b>get_weather</b>.", None),
            ("The tool [get_weather] is fine.", None),
            ("See [get_weather](http://example.org).", None),
            ("get_weathers", None),
        ] {
            let found = find(text, &tools).map(|(place, _)| &text[place]);
            assert_eq!(found, expected, "{text}");
        }
    }
}
