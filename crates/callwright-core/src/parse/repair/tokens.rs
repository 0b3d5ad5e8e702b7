//! Tokens other than strings: brackets, commas, words, and the starts of values and keys.

use super::number::Number;
use super::state::State;
use super::word::LONG;
use super::{CALL, Dialect, ROUND, Transducer, python, quoted_json};
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
            b'-' | b'0'..=b'9' => self.begin_number(byte),
            _ if self.begins_word(byte) => {
                self.out.set_mark();
                self.out.put(byte);
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
        self.out.mark = self.out.text.len();
        self.out.put(byte);
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
                    self.out.put_stable(byte);
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

    pub(super) fn end_word(&mut self, key: bool, at: usize) {
        self.out.end_character();
        if !key {
            return if self.is_scalar() { self.end_text(at) } else { self.give_up() };
        }
        self.parameters.word_end = at;
        let word = self.out.marked().to_owned();
        let bare = self.at_call() || matches!(self.dialect, Dialect::Own { bare_keys: true, .. });
        if !bare && !self.depart(RepairKind::UnquotedKey, at - word.len()) {
            return;
        }
        self.out.drop_marked();
        self.out.text.push_str(&quoted_json(word.trim_end()));
        self.state = State::Colon;
    }

    /// Returns whether the byte belongs to a word, or to a key if `key`.
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
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | 0x80.. => self.begin_key(byte),
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

    /// The byte after an argument's first word: if the word is not a name, it is a value.
    pub(super) fn equals(&mut self, byte: u8, at: usize) -> bool {
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => true,
            b'=' => {
                self.out.text.push_str(": ");
                self.state = State::Value;
                true
            }
            b':' => {
                if self.depart(RepairKind::OtherPunctuation, at) {
                    self.out.text.push_str(": ");
                    self.state = State::Value;
                }
                true
            }
            b'(' if self.repair && self.parameters.is_tool(self.out.marked().trim_matches('"')) => {
                self.end_before_call(self.parameters.word_end.saturating_sub(self.out.marked().len().saturating_sub(2)))
            }
            _ => {
                let word = self.out.marked().trim_matches('"');
                let literal = match word {
                    "true" | "false" | "null" => Some(word.to_owned()),
                    _ => python::literal(word).map(str::to_owned),
                };
                let Some(literal) = literal else { return self.refuse() };
                self.out.drop_marked();
                if self.positional(at) {
                    self.out.text.push_str(&literal);
                    self.end_value();
                }
                false
            }
        }
    }

    /// After a sign or a point with which JSON numbers cannot begin.
    pub(super) fn signed(&mut self, byte: u8) -> bool {
        if byte == b'.' {
            self.out.text.push_str("0.");
            self.state = State::Number(Number::Point, LONG);
        } else {
            self.state = State::Number(Number::Minus, LONG);
        }
        true
    }

    /// A byte that cannot continue a JSON number.
    pub(super) fn python_number(&mut self, number: Number, byte: u8) -> bool {
        match (number, byte) {
            (Number::Integer | Number::Fraction, b'_') => true,
            (Number::Minus, b'.') => self.signed(byte),
            (Number::Point, _) => {
                self.out.put(b'0');
                self.end_value();
                false
            }
            _ if number.is_whole() => {
                self.end_value();
                false
            }
            _ => self.refuse(),
        }
    }
}
