//! The arguments as they are written, and how much of them was sent.

use crate::parse::calls::Calls;
use crate::parse::event::RepairKind;
use std::ops::Range;

/// All of it is final.
#[derive(Debug, Default)]
pub(super) struct Output {
    pub text: String,
    sent: usize,
}

impl Output {
    pub(super) fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Sends the new part, if the call's name is known.
    pub(super) fn flush(&mut self, calls: &mut Calls) {
        if calls.has_name() {
            calls.delta(&self.text[self.sent..]);
            self.sent = self.text.len();
        }
    }

    /// Reports a departure, after sending what precedes it; false if it must not be repaired.
    pub(super) fn report(&mut self, kind: RepairKind, place: Range<usize>, calls: &mut Calls) -> bool {
        if calls.is_news(kind) {
            self.flush(calls);
        }
        calls.depart(kind, place)
    }

    /// Takes the whole text, and how much was sent; the next one goes into `fresh`.
    pub(super) fn take(&mut self, fresh: String) -> (String, usize) {
        let sent = std::mem::take(&mut self.sent);
        (std::mem::replace(&mut self.text, fresh), sent)
    }

    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.sent = 0;
    }
}
