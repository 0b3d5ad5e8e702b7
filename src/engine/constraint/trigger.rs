//! Finds in a stream of bytes where something begins: a call, a section, the end of reasoning.

use crate::format::Marker;
use crate::{Error, ErrorKind, Result};
use regex_automata::dfa::regex::Regex;
use regex_automata::dfa::{StartKind, dense};
use regex_automata::{MatchKind, nfa::thompson, util::syntax};

/// Markers that are looked for together.
pub(super) struct Trigger {
    regex: Option<Regex>,
    longest: usize,
    /// The end of what was seen, in which a marker may have begun.
    recent: Vec<u8>,
    /// Whether nothing but white space was seen.
    at_start: bool,
    /// Only at the beginning of what is seen.
    anchored: bool,
}

/// A marker that was found: which one, and how many of the bytes just given lie behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hit {
    pub which: usize,
    pub behind: usize,
}

impl Trigger {
    /// Looks for any of `markers`; those that begin earlier win. `anchored` finds them only at the beginning.
    pub(super) fn new(markers: &[&Marker], anchored: bool) -> Result<Trigger> {
        let patterns: Vec<String> = markers.iter().map(|marker| pattern(marker)).collect();
        let longest = markers.iter().map(|marker| longest(marker)).max().unwrap_or(0);
        let regex = match patterns.is_empty() {
            true => None,
            false => Some(
                Regex::builder()
                    .syntax(syntax::Config::new().utf8(false))
                    .thompson(thompson::Config::new().utf8(false))
                    .dense(dense::Config::new().match_kind(MatchKind::LeftmostFirst).start_kind(StartKind::Both))
                    .build_many(&patterns)
                    .map_err(|error| {
                        Error::new(ErrorKind::Format, format!("the markers cannot be searched for: {error}"))
                    })?,
            ),
        };
        Ok(Trigger { regex, longest, recent: Vec::new(), at_start: true, anchored })
    }

    /// The marker that these bytes complete, were they next.
    pub(super) fn look(&self, bytes: &[u8]) -> Option<Hit> {
        let regex = self.regex.as_ref()?;
        if self.anchored && !self.at_start {
            return None;
        }
        let text = [self.recent.as_slice(), bytes].concat();
        let at = if self.anchored { text.len() - text.trim_ascii_start().len() } else { 0 };
        let found = regex.find(&text[at..])?;
        let end = at + found.end();
        // What ended before was found before, and was not meant.
        let fresh = end > self.recent.len() && (!self.anchored || found.start() == 0);
        fresh.then(|| Hit { which: found.pattern().as_usize(), behind: text.len() - end })
    }

    /// Remembers the bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.recent.extend_from_slice(bytes);
        if self.anchored {
            let lead = self.recent.len() - self.recent.trim_ascii_start().len();
            self.at_start = self.at_start && self.recent.len() - lead < self.longest;
        }
        let surplus = self.recent.len().saturating_sub(self.longest.saturating_sub(1));
        if !self.anchored || !self.at_start {
            self.recent.drain(..surplus);
        }
    }

    /// Starts anew.
    pub(super) fn reset(&mut self) {
        self.recent.clear();
        self.at_start = true;
    }
}

fn pattern(marker: &Marker) -> String {
    match marker {
        Marker::Literal(text) => text.trim().bytes().map(|byte| format!("(?-u:\\x{byte:02x})")).collect(),
        Marker::Pattern { pattern, .. } => pattern.clone(),
    }
}

fn longest(marker: &Marker) -> usize {
    match marker {
        Marker::Literal(text) => text.trim().len(),
        // The declaration was refused if it can match more than this.
        Marker::Pattern { pattern, .. } => regex_automata::util::syntax::parse(pattern)
            .ok()
            .and_then(|hir| hir.properties().maximum_len())
            .unwrap_or(256),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_is_found_wherever_the_pieces_are_cut() {
        let marker = Marker::Literal("<call>\n".into());
        let text = b"a <ca <call>\n{";
        for cut in 0..text.len() {
            let mut trigger = Trigger::new(&[&marker], false).unwrap();
            let mut found = Vec::new();
            for part in [&text[..cut], &text[cut..]] {
                if let Some(hit) = trigger.look(part) {
                    found.push(hit.behind + (text.len() - cut) * usize::from(part.len() == cut && cut < text.len()));
                }
                trigger.push(part);
            }
            assert_eq!(found.len(), 1, "{cut}");
        }
    }

    #[test]
    fn a_call_without_marker_is_found_only_at_the_beginning() {
        let marker = Marker::Literal("{\"name\":".into());
        let mut trigger = Trigger::new(&[&marker], true).unwrap();
        trigger.push(b"\n {\"na");
        assert_eq!(trigger.look(b"me\": \""), Some(Hit { which: 0, behind: 2 }));
        trigger.reset();
        trigger.push(b"So ");
        assert_eq!(trigger.look(b"{\"name\":"), None);
    }
}
