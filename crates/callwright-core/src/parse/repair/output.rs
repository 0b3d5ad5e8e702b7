//! The JSON that a transducer writes.

use super::PENDING;
use crate::parse::text::Utf8;

/// What was written; the end of it may still be dropped.
#[derive(Debug, Default)]
pub(super) struct Output {
    pub text: String,
    /// Length of the part that is final.
    pub stable: usize,
    pub utf8: Utf8,
}

impl Output {
    #[inline]
    pub(super) fn put(&mut self, byte: u8) {
        if byte.is_ascii() && self.utf8.is_empty() {
            self.text.push(char::from(byte));
        } else {
            self.utf8.push(&[byte], &mut self.text);
        }
    }

    #[inline]
    pub(super) fn put_all(&mut self, bytes: &[u8]) {
        self.utf8.push(bytes, &mut self.text);
    }

    /// White space between tokens; a run of it that waits for a token is bounded.
    #[inline]
    pub(super) fn put_blank(&mut self, byte: u8) {
        if self.pending() < PENDING {
            self.put(byte);
        }
    }

    /// A character of a string.
    pub(super) fn put_char(&mut self, character: char) {
        match character {
            '"' | '\\' => self.text.extend(['\\', character]),
            '\n' => self.text.push_str("\\n"),
            '\r' => self.text.push_str("\\r"),
            '\t' => self.text.push_str("\\t"),
            '\0'..' ' => self.text.push_str(&format!("\\u{:04x}", u32::from(character))),
            _ => self.text.push(character),
        }
    }

    /// An unfinished character stays incomplete.
    #[inline]
    pub(super) fn end_character(&mut self) {
        self.utf8.end(&mut self.text);
    }

    /// Everything is final.
    #[inline]
    pub(super) fn settle(&mut self) {
        self.stable = self.text.len();
    }

    /// Length of what is not final.
    #[inline]
    pub(super) fn pending(&self) -> usize {
        self.text.len() - self.stable
    }

    pub(super) fn drop_pending(&mut self) {
        self.text.truncate(self.stable);
    }
}
