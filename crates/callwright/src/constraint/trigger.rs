//! Finds in a stream of bytes where something begins: a call, a section, the end of reasoning.

use crate::format::Marker;
use crate::{Error, ErrorKind, Result};
use regex_automata::dfa::{Automaton, StartKind, dense};
use regex_automata::util::primitives::StateID;
use regex_automata::{Anchored, MatchKind, nfa::thompson, util::start, util::syntax};

/// Markers to search for together, in one automaton that runs byte by byte.
pub(super) struct Trigger {
    dfa: Option<dense::DFA<Vec<u32>>>,
    start: StateID,
    state: StateID,
    /// Only match at the beginning, after white space.
    anchored: bool,
}

/// A match: which marker, and how many of the last bytes follow it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hit {
    pub which: usize,
    pub following: usize,
}

impl Trigger {
    /// Searches for any of `markers`; the earliest wins. `anchored` finds them only at the beginning.
    pub(super) fn new(markers: &[&Marker], anchored: bool) -> Result<Trigger> {
        let failed = |error: &dyn std::fmt::Display| {
            Error::new(ErrorKind::Format, format!("the markers cannot be searched for: {error}"))
        };
        if markers.is_empty() {
            return Ok(Trigger { dfa: None, start: StateID::ZERO, state: StateID::ZERO, anchored });
        }
        let lead = if anchored { r"(?-u:[ \t\n\x0C\r])*" } else { "" };
        let patterns: Vec<String> = markers.iter().map(|marker| format!("{lead}(?:{})", pattern(marker))).collect();
        let (kind, anchor) = match anchored {
            true => (StartKind::Anchored, Anchored::Yes),
            false => (StartKind::Unanchored, Anchored::No),
        };
        let dfa = dense::Builder::new()
            .syntax(syntax::Config::new().utf8(false))
            .thompson(thompson::Config::new().utf8(false))
            .configure(dense::Config::new().match_kind(MatchKind::LeftmostFirst).start_kind(kind))
            .build_many(&patterns)
            .map_err(|error| failed(&error))?;
        let start = dfa.start_state(&start::Config::new().anchored(anchor)).map_err(|error| failed(&error))?;
        Ok(Trigger { dfa: Some(dfa), start, state: start, anchored })
    }

    /// The marker that these bytes would complete.
    pub(super) fn look(&self, bytes: &[u8]) -> Option<Hit> {
        let dfa = self.dfa.as_ref()?;
        let mut state = self.state;
        let mut found = None;
        // A match is reported one step late: at the byte after it, or at the end.
        for (at, byte) in bytes.iter().enumerate() {
            state = dfa.next_state(state, *byte);
            if dfa.is_match_state(state) && at > 0 {
                found = Some((state, at));
            } else if dfa.is_dead_state(state) {
                break;
            }
        }
        let end = dfa.next_eoi_state(state);
        if dfa.is_match_state(end) && !bytes.is_empty() {
            found = Some((end, bytes.len()));
        }
        found.map(|(state, at)| Hit { which: dfa.match_pattern(state, 0).as_usize(), following: bytes.len() - at })
    }

    /// Takes the bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let Some(dfa) = &self.dfa else { return };
        for byte in bytes {
            self.state = dfa.next_state(self.state, *byte);
            if dfa.is_dead_state(self.state) && !self.anchored {
                self.state = self.start;
            }
        }
    }

    /// Resets to the beginning.
    pub(super) fn reset(&mut self) {
        self.state = self.start;
    }
}

fn pattern(marker: &Marker) -> String {
    match marker {
        Marker::Literal(text) => literal(text.trim()),
        Marker::Pattern { pattern, .. } => pattern.clone(),
    }
}

/// A text as a pattern.
pub(super) fn literal(text: &str) -> String {
    text.bytes().map(|byte| format!("(?-u:\\x{byte:02x})")).collect()
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
                    found.push(hit.following + (text.len() - cut) * usize::from(part.len() == cut && cut < text.len()));
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
        assert_eq!(trigger.look(b"me\": \""), Some(Hit { which: 0, following: 2 }));
        trigger.reset();
        trigger.push(b"So ");
        assert_eq!(trigger.look(b"{\"name\":"), None);
    }
}
