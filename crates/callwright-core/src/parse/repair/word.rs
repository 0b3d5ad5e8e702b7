//! Values without quotes: literals, numbers, and texts that should have been strings.
//!
//! Where such a text ends is only known at the next comma, closing bracket or line break, so it is held until then.

use super::state::State;
use super::{Dialect, PENDING, ROUND, Transducer, python, quoted_json};
use crate::parse::event::RepairKind;

/// Length of a number from which on it is shown as it comes, and can no longer be the beginning of a text.
const LONG: usize = 64;

/// Names of values that JSON cannot write.
const UNWRITABLE: [&str; 4] = ["NaN", "Infinity", "-Infinity", "undefined"];

impl Transducer {
    pub(super) fn begin_word(&mut self, byte: u8, key: bool) -> bool {
        self.state = State::Word { key };
        self.continue_word(byte, key);
        true
    }

    /// Holds another byte of a word. A number that can no longer be the beginning of a text is shown so far; `unit` is the
    /// end of that part.
    fn continue_word(&mut self, byte: u8, key: bool) {
        self.held.push(byte);
        let length = self.held.len();
        if key || self.dialect != Dialect::PythonCall && length < LONG {
            return;
        }
        // A long number is not read again for each digit.
        let goes_on = length > LONG && self.unit + 1 == length && byte.is_ascii_digit();
        if goes_on || length <= PENDING && number(&self.held) == length {
            self.out.put_all(&self.held[self.unit..]);
            self.out.settle();
            // More digits of a number without end would say nothing new.
            self.held.truncate(PENDING);
            self.unit = self.held.len();
        }
    }

    /// Returns whether a value without quotes may begin with this byte.
    pub(super) fn begins_word(&self, byte: u8) -> bool {
        match self.dialect {
            Dialect::PythonCall => byte.is_ascii_alphanumeric() || b"+-.".contains(&byte),
            _ => byte.is_ascii_alphanumeric() || byte >= 0x80 || b"_$@#/~.+-%&".contains(&byte),
        }
    }

    /// Returns whether the byte belongs to the held word, which is a key if `key`.
    fn in_word(&self, key: bool, byte: u8) -> bool {
        let word = byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'-' | b'.');
        match self.dialect {
            Dialect::Own { bare_keys: true, .. } if key => self.in_bare_key(byte),
            Dialect::PythonCall if key => word || byte >= 0x80,
            Dialect::PythonCall if self.held[0].is_ascii_alphabetic() => word,
            Dialect::PythonCall => match byte {
                b'+' | b'-' => matches!(self.held.last(), Some(b'e' | b'E')),
                _ => byte.is_ascii_digit() || matches!(byte, b'_' | b'.' | b'e' | b'E'),
            },
            _ if key => word,
            _ => {
                // What came before these is no text without quotes.
                !self.ends_text(byte)
                    && !matches!(byte, b'"' | b'{' | b'[' | b'`' | b'<' | b'|')
                    && !self.begins_quote(byte)
            }
        }
    }

    fn ends_text(&self, byte: u8) -> bool {
        matches!(byte, b',' | b'}' | b']' | b'\n' | b'\r') || byte == b')' && self.stack.contains(&ROUND)
    }

    pub(super) fn in_bare_key(&self, byte: u8) -> bool {
        byte >= b' ' && !b":=,{}[]\"".contains(&byte) && !self.begins_quote(byte)
    }

    /// A byte in or after a word.
    pub(super) fn word(&mut self, key: bool, byte: u8, at: usize) -> bool {
        // A number may be of any length.
        let too_long = self.held.len() > PENDING && (key || !byte.is_ascii_digit());
        if self.in_word(key, byte) && !too_long {
            self.continue_word(byte, key);
            return true;
        }
        let python = self.dialect == Dialect::PythonCall;
        match byte {
            b'"' | b'\'' if python => return self.prefixed(key, byte, at),
            _ if !key && !python && self.ends_text(byte) => self.end_text(at),
            _ if key && too_long || !key && !self.is_scalar() => self.give_up(),
            _ => self.end_word(key, at),
        }
        false
    }

    pub(super) fn end_word(&mut self, key: bool, at: usize) {
        if !key {
            return self.end_text(at);
        }
        self.parameters.word_end = at;
        self.state = State::Colon;
        if self.at_call() {
            return;
        }
        let word = String::from_utf8_lossy(&self.held).into_owned();
        let bare = matches!(self.dialect, Dialect::Own { bare_keys: true, .. });
        if bare || self.depart(RepairKind::UnquotedKey, at.saturating_sub(word.len())) {
            self.held.clear();
            self.out.text.push_str(&quoted_json(word.trim_end()));
        }
    }

    /// Returns whether the held word is a literal or a number.
    pub(super) fn is_scalar(&self) -> bool {
        self.is_json_scalar() || self.scalar(String::from_utf8_lossy(&self.held).trim_ascii_end()).is_some()
    }

    /// Returns whether it is one of JSON, as it usually is.
    fn is_json_scalar(&self) -> bool {
        matches!(&self.held[..], b"true" | b"false" | b"null") || number(&self.held) == self.held.len()
    }

    /// The word in JSON, if it is a literal or a number, and whether that is a repair.
    pub(super) fn scalar(&self, word: &str) -> Option<(Option<RepairKind>, String)> {
        if matches!(word, "true" | "false" | "null") || is_number(word) {
            return Some((None, word.to_owned()));
        }
        match python::literal(word) {
            Some(literal) => Some((self.is_json().then_some(RepairKind::PythonLiteral), literal.to_owned())),
            None if self.dialect == Dialect::PythonCall => Some((None, python_number(word)?)),
            None => None,
        }
    }

    /// The held value has ended before offset `at`.
    pub(super) fn end_text(&mut self, at: usize) {
        if self.is_json_scalar() {
            self.out.put_all(&self.held[std::mem::take(&mut self.unit)..]);
            self.held.clear();
            return self.end_value();
        }
        let written = String::from_utf8_lossy(&self.held).into_owned();
        let word = written.trim_ascii_end();
        let is_text = || self.dialect != Dialect::PythonCall && self.unit == 0 && is_text(word);
        let text = || is_text().then(|| (Some(RepairKind::UnquotedString), quoted_json(word)));
        let Some((kind, text)) = self.scalar(word).or_else(text) else { return self.give_up() };
        if kind.is_none_or(|kind| self.depart(kind, at.saturating_sub(written.len()))) {
            self.held.clear();
            self.out.text.push_str(&text[std::mem::take(&mut self.unit)..]);
            self.out.text.push_str(&written[word.len()..]);
            self.end_value();
        }
    }
}

/// Length of the JSON number at the beginning; 0 if it is incomplete.
pub(super) fn number(bytes: &[u8]) -> usize {
    let digits = |from: usize| bytes.iter().skip(from).take_while(|byte| byte.is_ascii_digit()).count();
    let minus = usize::from(bytes.first() == Some(&b'-'));
    let integer = if bytes.get(minus) == Some(&b'0') { 1 } else { digits(minus) };
    let (mut at, mut whole) = (minus + integer, integer > 0);
    if bytes.get(at) == Some(&b'.') {
        whole &= digits(at + 1) > 0;
        at += 1 + digits(at + 1);
    }
    if whole && matches!(bytes.get(at), Some(b'e' | b'E')) {
        at += 1 + usize::from(matches!(bytes.get(at + 1), Some(b'+' | b'-')));
        whole = digits(at) > 0;
        at += digits(at);
    }
    if whole { at } else { 0 }
}

fn is_number(word: &str) -> bool {
    !word.is_empty() && number(word.as_bytes()) == word.len()
}

/// A number of Python in JSON.
fn python_number(word: &str) -> Option<String> {
    let (minus, word) = match word.strip_prefix('-') {
        Some(word) => ("-", word),
        None => ("", word.strip_prefix('+').unwrap_or(word)),
    };
    let zero = |missing| if missing { "0" } else { "" };
    // It would be a name.
    if word.starts_with('_') {
        return None;
    }
    let digits = word.replace('_', "");
    let number = format!("{minus}{}{digits}{}", zero(digits.starts_with('.')), zero(digits.ends_with('.')));
    is_number(&number).then_some(number)
}

/// Returns whether the word may be a text. Code, a comment, another member, an unfinished number or a quote without its
/// partner shows that something else was meant, or that it is unknown where the text ends.
fn is_text(word: &str) -> bool {
    let called = word.as_bytes().windows(2).any(|pair| pair[0].is_ascii_alphanumeric() && pair[1] == b'(');
    let member = word.ends_with(':') || word.contains(": ") || word.contains(":\t");
    let other = word.ends_with('\'') || word.starts_with("//") || word.starts_with("/*") || UNWRITABLE.contains(&word);
    let unfinished = is_number(&format!("{word}0"));
    word.contains(char::is_alphanumeric) && !called && !member && !other && !unfinished
}
