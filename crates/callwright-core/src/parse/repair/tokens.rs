//! Tokens other than strings: brackets, commas, words, and the starts of values and keys.

use super::number::Number;
use super::{CALL, Dialect, ROUND, State, Transducer, python_literal, quoted_json};
use crate::parse::event::RepairKind;

impl Transducer {
    pub(super) fn value(&mut self, byte: u8, at: usize) -> bool {
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => {
                if self.stack.is_empty() {
                    true
                } else {
                    self.blank(byte)
                }
            }
            _ if self.begins_quote(byte) => self.begin_own(false),
            b'"' | b'\'' => self.begin_string(byte, false, at),
            b'{' | b'[' => self.open(byte),
            b'(' if self.dialect == Dialect::PythonCall => self.open(if self.stack.is_empty() { CALL } else { byte }),
            b'(' if self.stack.is_empty() && self.depart(RepairKind::OtherPunctuation, at) => self.open(ROUND),
            b'+' | b'.' if self.dialect == Dialect::PythonCall => self.signed(byte),
            b'-' | b'0'..=b'9' => {
                let number = match byte {
                    b'-' => Number::Minus,
                    b'0' => Number::Zero,
                    _ => Number::Integer,
                };
                self.put(byte);
                if number.is_whole() {
                    self.stable = self.out.len();
                }
                self.state = State::Number(number);
                true
            }
            b'a'..=b'z' | b'A'..=b'Z' => {
                self.mark = self.out.len();
                self.put(byte);
                self.state = State::Word { key: false };
                true
            }
            b']' | b')' if self.state == State::FirstElement => self.close(byte, at),
            b']' | b'}' | b')' if self.state == State::Element => self.trailing_comma(byte, at),
            _ => self.refuse(),
        }
    }

    pub(super) fn key(&mut self, byte: u8, at: usize) -> bool {
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => self.blank(byte),
            _ if self.at_call() => self.parameter(byte, at),
            _ if self.begins_quote(byte) => self.begin_own(true),
            b'"' | b'\'' => self.begin_string(byte, true, at),
            b'}' | b')' if self.state == State::FirstKey => self.close(byte, at),
            b'}' | b']' | b')' if self.state == State::Key => self.trailing_comma(byte, at),
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'$' => self.begin_key(byte),
            b'0'..=b'9' | b'-' if self.dialect == Dialect::PythonCall => self.begin_key(byte),
            _ if matches!(self.dialect, Dialect::Own { bare_keys: true, .. }) && self.in_word(true, byte) => {
                self.begin_key(byte)
            }
            _ => self.refuse(),
        }
    }

    pub(super) fn begin_key(&mut self, byte: u8) -> bool {
        self.mark = self.out.len();
        self.put(byte);
        self.state = State::Word { key: true };
        true
    }

    pub(super) fn after_value(&mut self, byte: u8, at: usize) -> bool {
        let in_object = matches!(self.stack.last(), Some(b'{' | &CALL | &ROUND));
        let next = if in_object { State::Key } else { State::Element };
        let begins = match byte {
            b'"' | b'\'' => true,
            b'{' | b'[' => !in_object,
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => self.at_call(),
            _ => self.begins_quote(byte),
        };
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => {
                if !self.at_call() {
                    self.put_stable(byte);
                }
                true
            }
            b',' => {
                self.out.push_str(if self.at_call() { ", " } else { "," });
                self.state = next;
                true
            }
            b'}' | b']' => self.close(byte, at),
            b')' if self.dialect == Dialect::PythonCall || self.stack.contains(&ROUND) => self.close(byte, at),
            // The end of a code fence: brackets are missing before it.
            b'`' => {
                if self.depart(RepairKind::MissingBrackets, at) {
                    self.close_down_to(0);
                    self.end_value();
                }
                false
            }
            _ if begins => {
                if self.depart(RepairKind::MissingComma, at) {
                    self.out.push_str(if self.at_call() { ", " } else { "," });
                    self.state = next;
                }
                false
            }
            _ => self.refuse(),
        }
    }

    pub(super) fn end_word(&mut self, key: bool, at: usize) {
        self.utf8.end(&mut self.out);
        let word = self.out[self.mark..].to_owned();
        let (kind, text) = match word.as_str() {
            _ if key && self.dialect != Dialect::Json => {
                let bare = self.at_call() || matches!(self.dialect, Dialect::Own { bare_keys: true, .. });
                ((!bare).then_some(RepairKind::UnquotedKey), quoted_json(word.trim_end()))
            }
            _ if key => (Some(RepairKind::UnquotedKey), format!("\"{word}\"")),
            "true" | "false" | "null" => (None, word),
            _ => match python_literal(&word) {
                Some(text) => ((self.dialect == Dialect::Json).then_some(RepairKind::PythonLiteral), text.to_owned()),
                None => return self.give_up(),
            },
        };
        if let Some(kind) = kind
            && !self.depart(kind, at - (self.out.len() - self.mark))
        {
            return;
        }
        self.out.truncate(self.mark);
        self.out.push_str(&text);
        if key {
            self.state = State::Colon;
        } else {
            self.end_value();
        }
    }

    /// Whether the byte belongs to a word, or to a key if `key`.
    pub(super) fn in_word(&self, key: bool, byte: u8) -> bool {
        match self.dialect {
            Dialect::Own { bare_keys: true, .. } if key => {
                byte >= b' ' && !b":=,{}[]\"".contains(&byte) && !self.begins_quote(byte)
            }
            Dialect::PythonCall if key && byte >= 0x80 => true,
            _ => byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'-' | b'.'),
        }
    }

    pub(super) fn blank(&mut self, byte: u8) -> bool {
        if !self.at_call() {
            self.put_blank(byte);
        }
        true
    }
}
