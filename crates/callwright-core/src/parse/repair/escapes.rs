//! Whether a string's backslashes begin escapes, or are the backslashes of a path or a pattern that nobody escaped.
//!
//! `{"path": "C:\bin\app.exe"}` is no JSON, for `\a` is no escape. To correct `\a` alone would leave a backspace for
//! `\b`, in a call that looks valid. So one escape that JSON does not know decides about the whole string: all of its
//! backslashes are literal (`\"` aside, without which the string would end). A path of a drive shows itself even where
//! every escape is possible, as in `C:\new\table`. A UNC path does by its first escape that is none.
//!
//! What was shown cannot be taken back, so the string is held back from its first escape that may be a letter after a
//! backslash, but not for long:
//!
//! - `\n`, `\r` and `\t` for [`SHORT`] bytes. An ordinary text of several lines waits once, at its first line break.
//! - `\b` and `\f`, which hardly anybody means, a drive, and `\\` at the very beginning for [`LONG`] bytes.
//!
//! The string ends the wait, and so does what only a writer of JSON writes: `\\` further on, `\/`, `\u00e9`. After it,
//! escapes are escapes, and one that JSON does not know is a backslash and no more: source code of several lines with
//! `\d` in a pattern keeps its line breaks. Valid JSON is never changed, but for the path of a drive with single
//! backslashes.

use super::Transducer;
use crate::parse::event::RepairKind;

/// For how many bytes of the string an escape is held back.
pub(super) const SHORT: usize = 64;
const LONG: usize = 1024;
/// How many spaces a name in a path may have.
const SPACES: usize = 3;

/// What the backslashes of the string being read are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Escapes {
    /// Nothing speaks for either yet.
    Fresh,
    /// Undecided; nothing is shown from the first escape on.
    Held(Held),
    /// They begin escapes.
    Settled,
    /// They are backslashes.
    Literal,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Held {
    /// Where the first escape stands in the output.
    pub from: usize,
    /// How many bytes of the string came since, that escape included.
    count: usize,
    limit: usize,
    /// Whether the string begins like a path of a drive; where its backslash stands in the text.
    drive: Option<usize>,
}

/// What the string begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opening {
    Start,
    Letter,
    /// A letter and a colon.
    Drive,
    Other,
}

impl Opening {
    /// After these bytes, too.
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
    /// A string of JSON begins. Without repairs, and in a key, escapes are escapes.
    pub(super) fn begin_escapes(&mut self, key: bool) {
        self.escapes = if key || !self.repair { Escapes::Settled } else { Escapes::Fresh };
        self.opening = Opening::Start;
    }

    /// Bytes of the string that are in no escape.
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

    /// What only a writer of JSON writes.
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

    /// What follows a backslash where all of them are literal; `None` where it is an escape all the same.
    pub(super) fn after_literal_backslash(&mut self, byte: u8) -> Option<&'static str> {
        match (self.escapes, byte) {
            (Escapes::Literal, b'"' | b'\'') => None,
            // Both at once: a quote after them ends the string.
            (Escapes::Literal, b'\\') => Some("\\\\\\"),
            (Escapes::Literal, _) => Some(""),
            _ => None,
        }
    }

    /// An escape that JSON does not know, whose backslash is at the mark.
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

    /// The string has ended, or its text: what is held back may be a path.
    pub(super) fn end_escapes(&mut self) {
        let Escapes::Held(held) = std::mem::replace(&mut self.escapes, Escapes::Settled) else { return };
        let Some(at) = held.drive.filter(|_| is_path(&self.out[held.from..])) else { return };
        if self.depart(RepairKind::InvalidEscape, at) {
            let text = literal(&self.out[held.from..]);
            self.out.replace_range(held.from.., &text);
        }
    }

    /// The text ends inside of the string: what is held back is whole up to an escape that is not.
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

/// The output with its backslashes as such.
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

/// Whether what follows the colon of a drive is a path, and no text of several lines: `\new\table`. The closing quote may
/// stand behind it.
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
