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
    /// Undecided; the string is held from the first escape on.
    Held {
        /// Number of bytes of the string since then, including that escape.
        count: usize,
        limit: usize,
        /// If the string begins like a path with a drive, the position of its backslash in the text.
        drive: Option<usize>,
    },
    /// They are escapes.
    Settled,
    /// They are backslashes.
    Literal,
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

    #[inline]
    pub(super) fn is_held(&self) -> bool {
        matches!(self.meaning, Meaning::Held { .. })
    }

    /// Bytes of the string outside escapes.
    #[inline]
    pub(super) fn pass(&mut self, bytes: &[u8]) {
        self.opening = self.opening.after(bytes);
        self.count(bytes.len());
    }

    #[inline]
    fn count(&mut self, bytes: usize) {
        if let Meaning::Held { count, limit, .. } = &mut self.meaning {
            *count += bytes;
            if count > limit {
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

    /// A part of the string, read as one, which begins at offset `at`.
    pub(super) fn weigh(&mut self, part: &[u8], at: usize) {
        match *part {
            [b'\\', b'u', ..] | [..0x20] => self.settle(),
            [b'\\', byte, ..] => self.escape(byte, at),
            [b'\\'] => self.impossible(),
            _ => self.pass(part),
        }
    }

    /// An escape of one character, whose backslash is at offset `at`.
    fn escape(&mut self, byte: u8, at: usize) {
        let opening = std::mem::replace(&mut self.opening, Opening::Other);
        let hold = |limit, drive| Meaning::Held { count: 2, limit, drive };
        match (&mut self.meaning, byte) {
            (Meaning::Settled | Meaning::Literal, _) | (_, b'\'') => {}
            (_, b'"') => self.count(2),
            (Meaning::Fresh, b'\\') if opening == Opening::Start => self.meaning = hold(LONG, None),
            (_, b'\\' | b'/') => self.settle(),
            (Meaning::Fresh, _) => {
                let drive = (opening == Opening::Drive).then_some(at);
                let long = drive.is_some() || matches!(byte, b'b' | b'f');
                self.meaning = hold(if long { LONG } else { SHORT }, drive);
            }
            (Meaning::Held { limit, .. }, _) => {
                if matches!(byte, b'b' | b'f') {
                    *limit = LONG;
                }
                self.count(2);
            }
        }
    }

    /// An invalid escape.
    fn impossible(&mut self) {
        self.opening = Opening::Other;
        if self.meaning != Meaning::Settled {
            self.meaning = Meaning::Literal;
        }
    }

    /// The string or its text has ended. If the held text is a path, returns the place of its drive's backslash.
    #[inline]
    pub(super) fn end(&mut self, held: &[u8]) -> Option<usize> {
        let Meaning::Held { drive, .. } = std::mem::replace(&mut self.meaning, Meaning::Settled) else { return None };
        drive.filter(|_| is_path(&String::from_utf8_lossy(held)))
    }
}

/// Returns whether the text after the drive's colon is a path rather than several lines: `\new\table`.
fn is_path(text: &str) -> bool {
    text.trim_ascii_end().split('\\').skip(1).all(|name| {
        let strange = name.contains([':', '*', '?', '"', '<', '>', '|']) || name.matches(' ').count() > SPACES;
        // A line break before an empty or indented line.
        let blank = matches!(name, "n" | "r" | "t") || name.chars().nth(1) == Some(' ');
        !strange && !blank
    })
}
