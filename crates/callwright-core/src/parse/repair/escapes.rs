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

use super::output::Output;

/// Number of bytes of the string for which an escape is held.
pub(super) const SHORT: usize = 64;
const LONG: usize = 1024;
/// Maximum number of spaces in a name of a path.
const SPACES: usize = 3;

/// The backslashes of the current string.
#[derive(Debug)]
pub(super) struct Escapes {
    pub meaning: Meaning,
    pub opening: Opening,
}

/// What they mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
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

impl Default for Escapes {
    fn default() -> Escapes {
        Escapes { meaning: Meaning::Settled, opening: Opening::Other }
    }
}

impl Escapes {
    /// A JSON string begins, whose escapes may be `certain` to be escapes.
    #[inline]
    pub(super) fn begin(&mut self, certain: bool) {
        self.meaning = if certain { Meaning::Settled } else { Meaning::Fresh };
        self.opening = Opening::Start;
    }

    /// Returns whether nothing of the string is held.
    #[inline]
    pub(super) fn is_held(&self) -> bool {
        matches!(self.meaning, Meaning::Held(_))
    }

    /// Bytes of the string outside escapes.
    #[inline]
    pub(super) fn pass(&mut self, bytes: &[u8]) {
        self.opening = self.opening.after(bytes);
        self.count(bytes.len());
    }

    #[inline]
    fn count(&mut self, bytes: usize) {
        if let Meaning::Held(held) = &mut self.meaning {
            held.count += bytes;
            if held.count > held.limit {
                self.meaning = Meaning::Settled;
            }
        }
    }

    /// Only a JSON writer writes this, so escapes are escapes.
    #[inline]
    pub(super) fn settle(&mut self) {
        self.opening = Opening::Other;
        if self.meaning != Meaning::Literal {
            self.meaning = Meaning::Settled;
        }
    }

    /// An escape of one character, whose backslash is at `mark` in the output and at `at` in the text.
    #[inline]
    pub(super) fn weigh(&mut self, byte: u8, mark: usize, at: usize) {
        let hold = |limit, drive| Meaning::Held(Held { from: mark, count: 2, limit, drive });
        let opening = std::mem::replace(&mut self.opening, Opening::Other);
        match (&mut self.meaning, byte) {
            (Meaning::Settled | Meaning::Literal, _) => {}
            (_, b'"') => self.count(2),
            (Meaning::Fresh, b'\\') if opening == Opening::Start => self.meaning = hold(LONG, None),
            (_, b'\\' | b'/') => self.settle(),
            (Meaning::Fresh, _) => {
                let drive = (opening == Opening::Drive).then_some(at);
                let long = drive.is_some() || matches!(byte, b'b' | b'f');
                self.meaning = hold(if long { LONG } else { SHORT }, drive);
            }
            (Meaning::Held(held), _) => {
                if matches!(byte, b'b' | b'f') {
                    held.limit = LONG;
                }
                self.count(2);
            }
        }
    }

    /// The output for the byte after a literal backslash; `None` if it is an escape nevertheless.
    pub(super) fn after_literal_backslash(&self, byte: u8) -> Option<&'static str> {
        match (self.meaning, byte) {
            (Meaning::Literal, b'"' | b'\'') => None,
            // Both at once: a quote after them ends the string.
            (Meaning::Literal, b'\\') => Some("\\\\\\"),
            (Meaning::Literal, _) => Some(""),
            _ => None,
        }
    }

    /// An invalid escape, whose backslash is at the mark.
    pub(super) fn impossible(&mut self, out: &mut Output) {
        self.opening = Opening::Other;
        match self.meaning {
            Meaning::Settled | Meaning::Literal => {}
            Meaning::Fresh => self.meaning = Meaning::Literal,
            Meaning::Held(held) => {
                let text = literal(&out.text[held.from..out.mark]);
                out.text.replace_range(held.from..out.mark, &text);
                out.mark = held.from + text.len();
                self.meaning = Meaning::Literal;
            }
        }
    }

    /// The string or its text has ended. If the held text is a path, returns where it is in the output, and the backslash of
    /// the drive in the text.
    #[inline]
    pub(super) fn end(&mut self, out: &Output) -> Option<(usize, usize)> {
        let Meaning::Held(held) = std::mem::replace(&mut self.meaning, Meaning::Settled) else { return None };
        let at = held.drive.filter(|_| is_path(&out.text[held.from..]))?;
        Some((held.from, at))
    }
}

/// The output with literal backslashes.
pub(super) fn literal(text: &str) -> String {
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

/// Returns whether the text after the drive's colon is a path rather than several lines: `\new\table`. The closing
/// quote may follow it.
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
