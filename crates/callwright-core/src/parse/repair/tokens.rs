//! Tokens other than strings: brackets, commas, words, and the starts of values and keys.

use super::state::{Quote, Quoted, State};
use super::{CALL, Dialect, ROUND, Transducer, quoted_json};
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
            _ if self.begins_quote(byte) => self.own_opening(Quoted { quote: Quote::Own, key: false }, byte),
            b'"' | b'\'' => self.begin_string(byte, false, at),
            b'{' | b'[' => self.open(byte),
            b'(' if self.dialect == Dialect::PythonCall => self.open(if self.stack.is_empty() { CALL } else { byte }),
            b'(' if self.stack.is_empty() && self.depart(RepairKind::OtherPunctuation, at) => self.open(ROUND),
            _ if self.begins_word(byte) => self.begin_word(byte, false),
            b']' | b')' if self.state == State::FirstElement => self.close(byte, at),
            b']' | b'}' | b')' if self.state == State::Element => self.trailing_comma(byte, at),
            _ => self.refuse(),
        }
    }

    pub(super) fn key(&mut self, byte: u8, at: usize) -> bool {
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => self.blank(byte),
            _ if self.at_call() => self.parameter(byte, at),
            _ if self.begins_quote(byte) => self.own_opening(Quoted { quote: Quote::Own, key: true }, byte),
            b'"' | b'\'' => self.begin_string(byte, true, at),
            b'}' | b')' if self.state == State::FirstKey => self.close(byte, at),
            b'}' | b']' | b')' if self.state == State::Key => self.trailing_comma(byte, at),
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'$' => self.begin_word(byte, true),
            b'0'..=b'9' | b'-' if self.dialect == Dialect::PythonCall => self.begin_word(byte, true),
            _ if matches!(self.dialect, Dialect::Own { bare_keys: true, .. }) && self.in_bare_key(byte) => {
                self.begin_word(byte, true)
            }
            _ => self.refuse(),
        }
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
                    self.out.put(byte);
                    self.out.settle();
                }
                true
            }
            b',' => {
                self.out.text.push_str(if self.at_call() { ", " } else { "," });
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
                    self.out.text.push_str(if self.at_call() { ", " } else { "," });
                    self.state = next;
                }
                false
            }
            _ => self.refuse(),
        }
    }

    pub(super) fn blank(&mut self, byte: u8) -> bool {
        if !self.at_call() {
            self.out.put_blank(byte);
        }
        true
    }

    /// Returns whether the position is directly between a call's parentheses, in no other bracket.
    pub(super) fn at_call(&self) -> bool {
        self.stack.last() == Some(&CALL)
    }

    /// The first byte of an argument that is not white space.
    pub(super) fn parameter(&mut self, byte: u8, at: usize) -> bool {
        match byte {
            b')' | b']' if self.state == State::FirstKey => self.close(byte, at),
            b')' | b']' => self.trailing_comma(byte, at),
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | 0x80.. => self.begin_word(byte, true),
            b'*' => self.refuse(),
            b'{' if self.state == State::FirstKey && !self.parameters.takes_object => {
                if self.depart(RepairKind::ExtraWrapping, at) {
                    self.stack.clear();
                    self.stack.push(byte);
                    self.parameters.wrapped = true;
                }
                true
            }
            _ => {
                self.positional(at);
                false
            }
        }
    }

    /// Names the argument that begins here after the next parameter; false if there is none.
    pub(super) fn positional(&mut self, at: usize) -> bool {
        let Some(name) = self.parameters.next().map(quoted_json) else {
            self.parameters.unnamed = true;
            return self.refuse();
        };
        if !self.depart(RepairKind::PositionalArgument, at) {
            return false;
        }
        self.parameters.used += 1;
        self.out.text.push_str(&name);
        self.out.text.push_str(": ");
        self.state = State::Value;
        true
    }

    /// The byte after an argument's first word, which is held: if the word is not a name, it is a value.
    pub(super) fn equals(&mut self, byte: u8, at: usize) -> bool {
        if byte.is_ascii_whitespace() {
            return true;
        }
        let word = String::from_utf8_lossy(&self.held).into_owned();
        match byte {
            b'=' | b':' => {
                if byte == b'=' || self.depart(RepairKind::OtherPunctuation, at) {
                    self.held.clear();
                    self.out.text.push_str(&quoted_json(&word));
                    self.out.text.push_str(": ");
                    self.state = State::Value;
                }
                true
            }
            b'(' if self.repair && self.parameters.is_tool(&word) => {
                self.end_before_call(self.parameters.word_end.saturating_sub(word.len()))
            }
            _ => {
                let Some((None, literal)) = self.scalar(&word) else { return self.refuse() };
                if self.positional(at) {
                    self.held.clear();
                    self.out.text.push_str(&literal);
                    self.end_value();
                }
                false
            }
        }
    }
}
