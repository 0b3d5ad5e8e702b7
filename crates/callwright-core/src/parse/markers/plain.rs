//! Text in which calls in other forms count, passed over where it begins none.
//!
//! Brackets, signs and code are all over ordinary text. A byte that may begin a call is tried on the automaton where it
//! stands: most lead back to its start within a few bytes, so that nothing has to be held back, and the text goes on in
//! one piece.

use super::lazy::Made;
use super::{Markers, START, State, Walk};

/// What a byte is that may begin a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Candidate {
    /// It is text.
    Text,
    /// The automaton is to tell.
    Unknown,
    /// It is to be looked at with what stands before it.
    Stop,
}

impl Markers {
    /// How many bytes at the beginning of a text are text, whatever follows. `look` says what the byte at an offset is that
    /// may begin a call.
    pub(crate) fn plain_in_any_form(&self, bytes: &[u8], mut look: impl FnMut(u8, usize) -> Candidate) -> usize {
        let mut places = self.any.begins.places(bytes);
        let mut walk: Option<(Walk<'_>, usize)> = None;
        let mut from = 0;
        while let Some(at) = places.next_from(from) {
            match look(bytes[at], at) {
                Candidate::Stop => return at,
                Candidate::Text => from = at + 1,
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

    /// Whether the byte may begin one of the format's own markers.
    pub(crate) fn begins_own(&self, byte: u8) -> bool {
        self.text.begins.has(byte)
    }
}

impl Walk<'_> {
    /// After how many bytes no marker is under way any more. `None` where one is found, or may yet be, or where that is not
    /// known within `most` bytes.
    fn lead_back(&mut self, bytes: &[u8], most: usize) -> Option<usize> {
        let bytes = &bytes[..bytes.len().min(most)];
        match self {
            Walk::Table(table) => lead_back(bytes, |state, byte| {
                let next = table.step(state, byte);
                (next, table.states[usize::from(next)].matched.is_some())
            }),
            Walk::Lazy(lazy, made) => {
                let made: &mut Made = made;
                lead_back(bytes, |state, byte| {
                    let next = lazy.step(made, state, byte);
                    (next, made.info(next).matched.is_some())
                })
            }
        }
    }
}

/// `step` says which state follows, and whether a marker has ended there.
#[inline]
fn lead_back(bytes: &[u8], mut step: impl FnMut(State, u8) -> (State, bool)) -> Option<usize> {
    let mut state = START;
    for (index, &byte) in bytes.iter().enumerate() {
        let (next, matched) = step(state, byte);
        if matched || next == START {
            return (!matched).then_some(index + 1);
        }
        state = next;
    }
    None
}
