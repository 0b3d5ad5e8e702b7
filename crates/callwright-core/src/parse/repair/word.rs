//! Values without quotes: literals, numbers, and texts that should have been strings.
//!
//! Where such a text ends is only known at the next comma, closing bracket or line break, so it is held until then.

use super::number::Number;
use super::state::State;
use super::{Dialect, PENDING, ROUND, Transducer, python, quoted_json};
use crate::parse::event::RepairKind;

/// Length of a number from which on it is sent as it comes, and can no longer be the beginning of a text.
pub(super) const LONG: u8 = 64;

/// Names of values that JSON cannot write.
const UNWRITABLE: [&str; 4] = ["NaN", "Infinity", "-Infinity", "undefined"];

impl Transducer {
    /// A digit or a minus begins a number; in Python nothing else.
    pub(super) fn begin_number(&mut self, byte: u8) -> bool {
        let number = match byte {
            b'-' => Number::Minus,
            b'0' => Number::Zero,
            _ => Number::Integer,
        };
        self.out.set_mark();
        let length = if self.dialect == Dialect::PythonCall { LONG } else { 1 };
        self.put_number(number, length, byte);
        true
    }

    /// A byte in or after a number.
    pub(super) fn number(&mut self, number: Number, length: u8, byte: u8) -> bool {
        match number.next(byte) {
            Some(next) => {
                self.put_number(next, length.saturating_add(1).min(LONG), byte);
                true
            }
            None if self.dialect == Dialect::PythonCall => self.python_number(number, byte),
            None if length < LONG && !self.ends_word(byte) && !self.breaks_word(byte) => {
                self.out.put(byte);
                self.state = State::Word { key: false };
                true
            }
            None if number.is_whole() => {
                self.end_value();
                false
            }
            None => self.refuse(),
        }
    }

    fn put_number(&mut self, number: Number, length: u8, byte: u8) {
        self.out.put(byte);
        if length == LONG && number.is_whole() {
            self.out.settle();
        }
        self.state = State::Number(number, length);
    }

    /// Returns whether a value without quotes may begin with this byte.
    pub(super) fn begins_word(&self, byte: u8) -> bool {
        match self.dialect {
            Dialect::PythonCall => byte.is_ascii_alphabetic(),
            _ => byte.is_ascii_alphanumeric() || byte >= 0x80 || b"_$@#/~.+%&".contains(&byte),
        }
    }

    /// Returns whether the byte ends a value without quotes.
    fn ends_word(&self, byte: u8) -> bool {
        matches!(byte, b',' | b'}' | b']' | b'\n' | b'\r') || byte == b')' && self.stack.contains(&ROUND)
    }

    /// Returns whether the byte shows that what came is no text without quotes.
    fn breaks_word(&self, byte: u8) -> bool {
        matches!(byte, b'"' | b'{' | b'[' | b'`' | b'<' | b'|') || self.begins_quote(byte)
    }

    /// A byte of a value without quotes.
    pub(super) fn word(&mut self, byte: u8, at: usize) -> bool {
        if self.ends_word(byte) {
            self.end_text(at);
            return false;
        }
        let too_long = self.out.marked().len() > PENDING;
        if too_long || self.breaks_word(byte) {
            if self.is_scalar() {
                self.end_text(at);
                return false;
            }
            return self.refuse();
        }
        self.out.put(byte);
        true
    }

    /// Returns whether the held word is a literal or a number.
    pub(super) fn is_scalar(&self) -> bool {
        let word = self.out.marked().trim_ascii_end();
        matches!(word, "true" | "false" | "null") || python::literal(word).is_some() || is_number(word)
    }

    /// The held value has ended before offset `at`.
    pub(super) fn end_text(&mut self, at: usize) {
        self.out.end_character();
        let written = self.out.marked().to_owned();
        let word = written.trim_ascii_end();
        if matches!(word, "true" | "false" | "null") || is_number(word) {
            return self.end_value();
        }
        let (kind, text) = match python::literal(word) {
            Some(literal) => (RepairKind::PythonLiteral, literal.to_owned()),
            None if is_text(word) => (RepairKind::UnquotedString, quoted_json(word)),
            None => return self.give_up(),
        };
        if (kind == RepairKind::UnquotedString || self.is_json())
            && !self.depart(kind, at.saturating_sub(written.len()))
        {
            return;
        }
        self.out.drop_marked();
        self.out.text.push_str(&text);
        self.out.text.push_str(&written[word.len()..]);
        self.end_value();
    }
}

/// Returns whether this is a number in JSON.
fn is_number(word: &str) -> bool {
    let begin = match word.as_bytes() {
        [b'-', ..] => Number::Minus,
        [b'0', ..] => Number::Zero,
        [b'1'..=b'9', ..] => Number::Integer,
        _ => return false,
    };
    word.bytes().skip(1).try_fold(begin, Number::next).is_some_and(Number::is_whole)
}

/// Returns whether the word may be a text. Code, a comment, another member or a quote without its partner shows that
/// something else was meant, or that it is unknown where the text ends.
fn is_text(word: &str) -> bool {
    let called = word.as_bytes().windows(2).any(|pair| pair[0].is_ascii_alphanumeric() && pair[1] == b'(');
    let member = word.ends_with(':') || word.contains(": ") || word.contains(":\t");
    let other = word.ends_with('\'') || word.starts_with("//") || word.starts_with("/*") || UNWRITABLE.contains(&word);
    word.contains(char::is_alphanumeric) && !called && !member && !other
}
