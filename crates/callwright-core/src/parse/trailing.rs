//! The text between a call's payload and its end marker: white space, the rest of a code fence, or stray text.

use super::event::RepairKind;

/// Maximum text between a call's payload and its end marker. More than that is for the user.
const TEXT: usize = 256;

/// Reads the bytes after a payload.
#[derive(Debug, Default)]
pub(crate) struct Trailing {
    /// Whether the payload began with a code fence that is still open.
    pub fenced: bool,
    ticks: u8,
    /// Start of text that is for the user unless an end marker follows.
    text_at: Option<usize>,
    /// Whether only white space has followed the last line break; `None` on the payload's own line.
    line_start: Option<bool>,
    /// Whether there was stray text.
    strayed: bool,
}

/// The meaning of a byte after the payload.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TrailingByte {
    /// Nothing to report.
    Nothing,
    /// A departure, detected at this offset.
    Departure(RepairKind, usize),
    /// The bracket that begins another call, and the start of text before it.
    NextCall(Option<usize>),
}

impl Trailing {
    /// Takes a byte at offset `at`. Without `repair`, it never begins text or another call.
    pub(crate) fn step(&mut self, byte: u8, at: usize, repair: bool) -> TrailingByte {
        let line_start = self.line_start;
        self.pass(byte);
        if self.text_at.is_some() && (byte != b'{' || line_start != Some(true)) {
            return TrailingByte::Nothing;
        }
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => TrailingByte::Nothing,
            b'{' if repair => TrailingByte::NextCall(self.text_at.take()),
            b'`' if self.fenced => {
                self.ticks += 1;
                self.fenced = self.ticks < 3;
                TrailingByte::Nothing
            }
            b'`' if self.ticks > 0 => TrailingByte::Nothing,
            b'`' => {
                self.ticks = 3;
                TrailingByte::Departure(RepairKind::CodeFence, at)
            }
            _ if repair && line_start == Some(true) && !b"}])>,;'\"<".contains(&byte) => {
                self.text_at = Some(at);
                TrailingByte::Nothing
            }
            _ => {
                self.strayed = true;
                TrailingByte::Departure(RepairKind::StrayText, at)
            }
        }
    }

    /// Returns whether nothing but white space has come.
    pub(crate) fn is_empty(&self) -> bool {
        self.text_at.is_none() && self.ticks == 0 && !self.strayed
    }

    /// Takes a byte that belongs to the payload's brackets.
    pub(crate) fn pass(&mut self, byte: u8) {
        self.line_start = match byte {
            b'\n' => Some(true),
            b' ' | b'\t' | b'\r' => self.line_start,
            _ => self.line_start.map(|_| false),
        };
    }

    pub(crate) fn text_at(&self) -> Option<usize> {
        self.text_at
    }

    /// Forgets text that began at offset `from` or later; returns its start.
    pub(crate) fn forget_text(&mut self, from: usize) -> Option<usize> {
        self.text_at.take_if(|at| *at >= from)
    }

    /// Returns whether the text up to offset `at` is too long to expect an end marker.
    pub(crate) fn is_over(&self, at: usize) -> bool {
        self.text_at.is_some_and(|text| at >= text + TEXT)
    }
}
