//! Skips text in which calls in other forms count but none begins.
//!
//! Brackets and code occur all over ordinary text. A byte that may begin a call is tried on the automaton in place:
//! most return to the start state within a few bytes, so that nothing is held back and the text passes in one piece.

use super::{Markers, START, Walk};

/// The role of a byte that may begin a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Candidate {
    /// It is text.
    Text,
    /// The automaton has to decide.
    Unknown,
    /// The text before it has to be checked.
    Stop,
}

impl Markers {
    /// Returns whether `held` and the bytes of `input` before the last one are skipped in a whole text: they begin a call
    /// only three times in a row.
    pub(crate) fn are_skipped(&self, held: &[u8], input: &[u8]) -> bool {
        let mut bytes = held.iter().chain(input).rev();
        let (next, first) = (bytes.next(), bytes.next());
        let fewer = held.len() + input.len() <= 3 && first.is_some_and(|first| self.any.begins.is_thrice(*first));
        fewer && next != first && bytes.all(|byte| Some(byte) == first)
    }

    /// Number of bytes at the beginning that are text, whatever follows. `look` gives the role of the byte at an offset
    /// that may begin a call.
    pub(crate) fn plain_in_any_form(&self, bytes: &[u8], mut look: impl FnMut(u8, usize) -> Candidate) -> usize {
        let mut places = self.any.begins.places(bytes);
        let mut walk: Option<(Walk<'_>, usize)> = None;
        let mut from = 0;
        while let Some(at) = places.next_from(from) {
            match look(bytes[at], at) {
                Candidate::Stop => return at,
                Candidate::Text => from = at + 1,
                // The usual case needs no automaton.
                Candidate::Unknown if self.any.starts.iter().any(|start| bytes[at..].starts_with(start)) => return at,
                Candidate::Unknown => {
                    let (walk, longest) = walk.get_or_insert_with(|| {
                        let scanner = self.any.get(&self.text.start).unwrap_or(&self.text);
                        (scanner.walk(), scanner.longest.min(self.text.longest))
                    });
                    match walk.lead_back(&bytes[at..], *longest) {
                        Some(length) => from = at + length,
                        None => return at,
                    }
                }
            }
        }
        bytes.len()
    }

    /// Returns whether the byte may begin one of the format's own markers.
    pub(crate) fn begins_own(&self, byte: u8) -> bool {
        self.text.begins.has(byte)
    }
}

impl Walk<'_> {
    /// Number of bytes after which no marker is possible any more. `None` if one is found or still possible, or if this
    /// is unknown after `most` bytes.
    fn lead_back(&mut self, bytes: &[u8], most: usize) -> Option<usize> {
        let bytes = &bytes[..bytes.len().min(most)];
        let mut state = START;
        for (index, &byte) in bytes.iter().enumerate() {
            state = self.step(state, byte);
            if self.matched(state).is_some() {
                return None;
            }
            if state == START {
                return Some(index + 1);
            }
        }
        None
    }
}
