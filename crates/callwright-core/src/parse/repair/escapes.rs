//! Decides whether a string's backslashes are escapes, or belong to a path or a pattern that was not escaped.
//!
//! `{"path": "C:\bin\app.exe"}` is not JSON, because `\a` is not an escape. Correcting only `\a` would leave a
//! backspace for `\b`, in a call that looks valid. So one invalid escape decides for the whole string: all of its
//! backslashes are literal (except `\"`, without which the string would end). A path with a drive is recognised even if
//! every escape is valid, as in `C:\new\table`. A UNC path is recognised by its first invalid escape.
//!
//! Shown text cannot be revised, so the string is held from its first escape that may be a backslash and a letter, but
//! not for long:
//!
//! - `\n`, `\r` and `\t` for [`SHORT`] bytes. Ordinary text with several lines waits once, at its first line break.
//! - `\b` and `\f`, which are rarely intended, a drive, and `\\` at the very beginning for [`LONG`] bytes.
//!
//! The wait ends with the string, or with an escape that only a JSON writer produces: a later `\\`, `\/`, `\u00e9`.
//! After that, escapes are escapes, and an invalid one is just a backslash: source code of several lines with `\d` in a
//! pattern keeps its line breaks. Valid JSON is never changed, except the path of a drive with single backslashes.

use super::Transducer;
use crate::parse::event::RepairKind;

/// Number of bytes of the string for which an escape is held.
pub(super) const SHORT: usize = 64;
const LONG: usize = 1024;
/// Maximum number of spaces in a name of a path.
const SPACES: usize = 3;

/// The meaning of the current string's backslashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Escapes {
    /// No evidence yet.
    Fresh,
    /// Undecided; nothing is shown from the first escape on.
    Held(Held),
    /// They are escapes.
    Settled,
    /// They are backslashes.
    Literal,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Held {
    /// Position of the first escape in the output.
    pub from: usize,
    /// Number of bytes of the string since then, including that escape.
    count: usize,
    limit: usize,
    /// Whether the string begins like a path with a drive, and the position of its backslash in the text.
    drive: Option<usize>,
}

/// The beginning of the string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opening {
    Start,
    Letter,
    /// A letter and a colon.
    Drive,
    Other,
}

impl Opening {
    /// The state after these bytes.
    pub(super) fn after(mut self, bytes: &[u8]) -> Opening {
        for &byte in bytes {
            self = match (self, byte) {
                (Opening::Other, _) => break,
                (Opening::Start, b'a'..=b'z' | b'A'..=b'Z') => Opening::Letter,
                (Opening::Letter, b':') => Opening::Drive,
                _ => Opening::Other,
            };
        }
        self
    }
}

impl Transducer {
    /// A JSON string begins. Without repairs, and in a key, escapes are always escapes.
    pub(super) fn begin_escapes(&mut self, key: bool) {
        self.escapes = if key || !self.repair { Escapes::Settled } else { Escapes::Fresh };
        self.opening = Opening::Start;
    }

    /// Bytes of the string outside escapes.
    pub(super) fn pass_unescaped(&mut self, bytes: &[u8]) {
        self.opening = self.opening.after(bytes);
        self.count_held(bytes.len());
    }

    fn count_held(&mut self, bytes: usize) {
        if let Escapes::Held(held) = &mut self.escapes {
            held.count += bytes;
            if held.count > held.limit {
                self.escapes = Escapes::Settled;
            }
        }
    }

    /// Only a JSON writer writes this, so escapes are escapes.
    pub(super) fn settle_escapes(&mut self) {
        self.opening = Opening::Other;
        if self.escapes != Escapes::Literal {
            self.escapes = Escapes::Settled;
        }
    }

    /// An escape of one character, whose backslash is at the mark in the output and at `at` in the text.
    pub(super) fn weigh_escape(&mut self, byte: u8, at: usize) {
        let opening = std::mem::replace(&mut self.opening, Opening::Other);
        match (&mut self.escapes, byte) {
            (Escapes::Settled | Escapes::Literal, _) => {}
            (_, b'"') => self.count_held(2),
            (Escapes::Fresh, b'\\') if opening == Opening::Start => self.hold_escapes(LONG, None),
            (_, b'\\' | b'/') => self.settle_escapes(),
            (Escapes::Fresh, _) => {
                let drive = (opening == Opening::Drive).then_some(at);
                let long = drive.is_some() || matches!(byte, b'b' | b'f');
                self.hold_escapes(if long { LONG } else { SHORT }, drive);
            }
            (Escapes::Held(held), _) => {
                if matches!(byte, b'b' | b'f') {
                    held.limit = LONG;
                }
                self.count_held(2);
            }
        }
    }

    fn hold_escapes(&mut self, limit: usize, drive: Option<usize>) {
        self.escapes = Escapes::Held(Held { from: self.mark, count: 2, limit, drive });
    }

    /// The output for the byte after a literal backslash; `None` if it is an escape nevertheless.
    pub(super) fn after_literal_backslash(&mut self, byte: u8) -> Option<&'static str> {
        match (self.escapes, byte) {
            (Escapes::Literal, b'"' | b'\'') => None,
            // Both at once: a quote after them ends the string.
            (Escapes::Literal, b'\\') => Some("\\\\\\"),
            (Escapes::Literal, _) => Some(""),
            _ => None,
        }
    }

    /// An invalid escape, whose backslash is at the mark.
    pub(super) fn impossible_escape(&mut self) {
        self.opening = Opening::Other;
        match self.escapes {
            Escapes::Settled | Escapes::Literal => {}
            Escapes::Fresh => self.escapes = Escapes::Literal,
            Escapes::Held(held) => {
                let text = literal(&self.out[held.from..self.mark]);
                self.out.replace_range(held.from..self.mark, &text);
                self.mark = held.from + text.len();
                self.escapes = Escapes::Literal;
            }
        }
    }

    /// The string or its text has ended: the held text may be a path.
    pub(super) fn end_escapes(&mut self) {
        let Escapes::Held(held) = std::mem::replace(&mut self.escapes, Escapes::Settled) else { return };
        let Some(at) = held.drive.filter(|_| is_path(&self.out[held.from..])) else { return };
        if self.depart(RepairKind::InvalidEscape, at) {
            let text = literal(&self.out[held.from..]);
            self.out.replace_range(held.from.., &text);
        }
    }

    /// The text ends inside the string: the held text is whole up to an unfinished escape.
    pub(super) fn cut_escapes(&mut self, whole: usize) {
        if matches!(self.escapes, Escapes::Held(_)) {
            let rest = self.out.split_off(whole);
            self.end_escapes();
            self.stable = self.out.len();
            self.mark = self.stable;
            self.out.push_str(&rest);
        }
    }
}

/// The output with literal backslashes.
fn literal(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        out.push(character);
        if character == '\\' {
            match characters.next() {
                Some('"') => out.push('"'),
                Some('\\') => out.push_str("\\\\\\"),
                other => out.extend(['\\'].into_iter().chain(other)),
            }
        }
    }
    out
}

/// Whether the text after the drive's colon is a path rather than several lines: `\new\table`. The closing quote may
/// follow it.
fn is_path(text: &str) -> bool {
    let text = text.trim_ascii_end();
    let text = text.strip_suffix('"').unwrap_or(text);
    text.split('\\').skip(1).all(|name| {
        let strange = name.contains([':', '*', '?', '"', '<', '>', '|']) || name.matches(' ').count() > SPACES;
        // A line break before an empty or indented line.
        let blank = matches!(name, "n" | "r" | "t") || name.chars().nth(1) == Some(' ');
        !strange && !blank
    })
}
