//! The arguments of a call in Python as a JSON object: `(a=1, b='x')` becomes `{"a": 1, "b": "x"}`.

use super::number::Number;
use super::string::{Quote, Quoted};
use super::{CALL, State, Transducer, python_literal, quoted_json};
use crate::parse::event::RepairKind;

/// White space to keep between two literals that may be one string.
const BLANK: usize = 64;
/// Maximum length of a word that waits for `=`.
const WORD: usize = 64;

impl Transducer {
    /// The parameters' names in order, for positional arguments, and whether the first takes an object.
    pub(crate) fn name_parameters(&mut self, names: Vec<String>, takes_object: bool) {
        (self.names, self.takes_object) = (names, takes_object);
    }

    /// Whether the arguments were in one object, `f({"a": 1})`.
    pub(crate) fn is_wrapped(&self) -> bool {
        self.wrapped
    }

    /// Whether a positional argument had no matching parameter.
    pub(crate) fn is_unnamed(&self) -> bool {
        self.unnamed
    }

    /// Whether the position is directly between a call's parentheses, in no other bracket.
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
            b'{' if self.state == State::FirstKey && !self.takes_object => {
                if self.depart(RepairKind::ExtraWrapping, at) {
                    self.stack.clear();
                    self.stack.push(byte);
                    self.wrapped = true;
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
    fn positional(&mut self, at: usize) -> bool {
        let Some(name) = self.names.get(self.positional).map(|name| quoted_json(name)) else {
            self.unnamed = true;
            return self.refuse();
        };
        if !self.depart(RepairKind::PositionalArgument, at) {
            return false;
        }
        self.positional += 1;
        self.out.push_str(&name);
        self.out.push_str(": ");
        self.state = State::Value;
        true
    }

    /// The byte after an argument's first word: if the word is not a name, it is a value.
    pub(super) fn equals(&mut self, byte: u8, at: usize) -> bool {
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => true,
            b'=' => {
                self.out.push_str(": ");
                self.state = State::Value;
                true
            }
            b':' => {
                if self.depart(RepairKind::OtherPunctuation, at) {
                    self.out.push_str(": ");
                    self.state = State::Value;
                }
                true
            }
            _ => {
                let word = self.out[self.mark..].trim_matches('"');
                let literal = match word {
                    "true" | "false" | "null" => Some(word.to_owned()),
                    _ => python_literal(word).map(str::to_owned),
                };
                let Some(literal) = literal else { return self.refuse() };
                self.out.truncate(self.mark);
                if self.positional(at) {
                    self.out.push_str(&literal);
                    self.end_value();
                }
                false
            }
        }
    }

    /// A quote right after a word: `r"…"` and similar, but not `f"…"`, whose value is computed.
    pub(super) fn prefixed(&mut self, key: bool, byte: u8, at: usize) -> bool {
        self.utf8.end(&mut self.out);
        let word = &self.out[self.mark..];
        if word.len() > 2 || !word.bytes().all(|b| b"rRbBuU".contains(&b)) {
            self.end_word(key, at);
            return false;
        }
        let raw = word.contains(['r', 'R']);
        self.out.truncate(self.mark);
        let positional = key && self.at_call();
        if positional && !self.positional(at) {
            return false;
        }
        self.begin_python(byte, key && !positional, raw);
        true
    }

    pub(super) fn begin_python(&mut self, byte: u8, key: bool, raw: bool) {
        let quoted = Quoted { quote: Quote::Python { single: byte == b'\'', triple: false, raw }, key };
        self.put(b'"');
        self.state = State::String(quoted);
        self.settle_string(quoted);
        self.state = State::Opening(quoted, 1);
    }

    /// After one or two quotes: three begin a triple-quoted string.
    pub(super) fn opening(&mut self, quoted: Quoted, count: u8, byte: u8) -> bool {
        let Quote::Python { single, raw, .. } = quoted.quote else { return self.refuse() };
        let again = byte == quote(single);
        match (count, again) {
            (1, true) => self.state = State::Opening(quoted, 2),
            (1, false) => self.state = State::String(quoted),
            (_, true) => {
                let quote = Quote::Python { single, triple: true, raw };
                self.state = State::String(Quoted { quote, ..quoted });
            }
            (_, false) => self.close_quotes(quoted),
        }
        again
    }

    /// A quote that ends the string, unless it is part of it or another literal follows.
    pub(super) fn close_quotes(&mut self, quoted: Quoted) {
        self.utf8.end(&mut self.out);
        self.mark = self.out.len();
        self.put(b'"');
        self.state = State::QuoteEnd(quoted);
    }

    /// After one or two of the quotes that end a triple-quoted string.
    pub(super) fn closing(&mut self, quoted: Quoted, count: u8, byte: u8) -> bool {
        let Quote::Python { single, .. } = quoted.quote else { return self.refuse() };
        if byte != quote(single) {
            (0..count).for_each(|_| self.put_char(char::from(quote(single))));
            self.state = State::String(quoted);
            self.settle_string(quoted);
            return false;
        }
        if count == 2 {
            self.close_quotes(quoted);
        } else {
            self.state = State::Closing(quoted, count + 1);
        }
        true
    }

    /// A quote, a backslash or a control character in a string.
    pub(super) fn python_special(&mut self, quoted: Quoted, single: bool, triple: bool, byte: u8, at: usize) -> bool {
        match byte {
            b'"' | b'\'' if byte == quote(single) => {
                self.utf8.end(&mut self.out);
                if triple {
                    self.state = State::Closing(quoted, 1);
                } else {
                    self.close_quotes(quoted);
                }
                return true;
            }
            b'\\' => {
                self.utf8.end(&mut self.out);
                self.mark = self.out.len();
                self.put(b'\\');
                self.state = State::Escape(quoted);
                return true;
            }
            b'\n' | b'\r' if !triple && !self.depart(RepairKind::UnescapedControl, at) => return false,
            0..0x20 => self.escape_control(byte),
            b'"' => self.put_char('"'),
            _ => self.put(byte),
        }
        self.settle_string(quoted);
        true
    }

    /// The byte after a backslash, except `u`, which is as in JSON.
    pub(super) fn python_escape(&mut self, quoted: Quoted, raw: bool, byte: u8) -> bool {
        if raw {
            self.literal_backslash(quoted);
            let taken = matches!(byte, b'"' | b'\'' | b'\\');
            if taken {
                self.put_char(char::from(byte));
                self.settle_string(quoted);
            }
            return taken;
        }
        match byte {
            b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't' => {
                self.put(byte);
                self.settle_string(quoted);
            }
            b'\'' => self.put_escaped(quoted, u32::from(byte)),
            b'a' => self.put_escaped(quoted, 0x07),
            b'v' => self.put_escaped(quoted, 0x0B),
            // A line continuation.
            b'\n' => {
                self.out.truncate(self.mark);
                self.settle_string(quoted);
            }
            b'0'..=b'7' => {
                self.put(byte);
                self.state = State::Octal(quoted, 1, u16::from(byte - b'0'));
            }
            b'x' | b'U' => {
                self.put(byte);
                self.state = State::Hex(quoted, if byte == b'x' { 2 } else { 8 }, 0);
            }
            // Python keeps the backslash.
            _ => {
                self.literal_backslash(quoted);
                return false;
            }
        }
        true
    }

    pub(super) fn octal(&mut self, quoted: Quoted, count: u8, value: u16, byte: u8) -> bool {
        let digit = matches!(byte, b'0'..=b'7');
        if !digit {
            self.put_escaped(quoted, u32::from(value));
            return false;
        }
        let value = value << 3 | u16::from(byte - b'0');
        if count == 2 {
            self.put_escaped(quoted, u32::from(value));
        } else {
            self.put(byte);
            self.state = State::Octal(quoted, count + 1, value);
        }
        true
    }

    pub(super) fn hex(&mut self, quoted: Quoted, missing: u8, value: u32, byte: u8, at: usize) -> bool {
        let Some(digit) = char::from(byte).to_digit(16) else {
            if self.depart(RepairKind::InvalidEscape, at) {
                self.literal_backslash(quoted);
            }
            return false;
        };
        self.put(byte);
        let value = value << 4 | digit;
        if missing > 1 {
            self.state = State::Hex(quoted, missing - 1, value);
        } else {
            self.put_escaped(quoted, value);
        }
        true
    }

    /// Replaces the escape at the mark by the character.
    fn put_escaped(&mut self, quoted: Quoted, code: u32) {
        self.out.truncate(self.mark);
        self.put_char(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
        self.state = State::String(quoted);
        self.settle_string(quoted);
    }

    /// A character of a string.
    fn put_char(&mut self, character: char) {
        match character {
            '"' | '\\' => self.out.extend(['\\', character]),
            '\0'..' ' => self.escape_control(character as u8),
            _ => self.out.push(character),
        }
    }

    /// After a quote that closes a string. If another literal follows, it continues the string; before a word and `=`,
    /// a comma is missing; before any other word, the quote was part of the string.
    pub(super) fn python_quote_end(&mut self, quoted: Quoted, byte: u8, at: usize) -> bool {
        let Quote::Python { single, .. } = quoted.quote else { return self.refuse() };
        let waiting = self.out[self.mark + 1..].trim_ascii_start();
        let (word, count) = (waiting.trim_ascii_end(), waiting.len());
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'0'..=b'9'
                if self.at_call()
                    && !quoted.key
                    && (count > 0 || !byte.is_ascii_digit())
                    && word.len() == count
                    && count < WORD =>
            {
                self.put(byte);
                return true;
            }
            b' ' | b'\t' | b'\r' | b'\n' if (1..WORD).contains(&count) => {
                self.put(byte);
                return true;
            }
            b'=' if count > 0 && self.is_parameter(word) => {
                let name = quoted_json(word);
                if self.depart(RepairKind::MissingComma, at - count) {
                    self.out.truncate(self.mark + 1);
                    self.end_string(quoted);
                    self.out.push_str(", ");
                    self.out.push_str(&name);
                    self.state = State::Colon;
                }
                return false;
            }
            _ => {}
        }
        if count > 0 {
            return self.unescaped_quote(quoted, single, at - count);
        }
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => {
                if self.out.len() - self.mark < BLANK {
                    self.put(byte);
                }
                true
            }
            b'"' | b'\'' => {
                self.out.truncate(self.mark);
                let quote = Quote::Python { single: byte == b'\'', triple: false, raw: false };
                self.state = State::Opening(Quoted { quote, ..quoted }, 1);
                true
            }
            b',' | b':' | b'}' | b']' | b')' => {
                if self.at_call() {
                    self.out.truncate(self.mark + 1);
                }
                self.end_string(quoted);
                false
            }
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | 0x80.. => self.unescaped_quote(quoted, single, at),
            _ => self.refuse(),
        }
    }

    /// The quote at the mark is followed by text. It is part of the string, unless it begins another one: then an
    /// earlier quote is missing, and where the string was to end is unknown.
    fn unescaped_quote(&mut self, quoted: Quoted, single: bool, at: usize) -> bool {
        if self.begins_value() {
            return self.refuse();
        }
        if self.depart(RepairKind::UnescapedQuote, at) {
            let before = &self.out[..self.mark];
            let first = before.ends_with('"') && !before.ends_with("\\\"");
            self.quotes = if first { 1 } else { self.quotes + usize::from(self.quotes > 0) };
            self.unclose(quoted, quote(single));
        }
        false
    }

    /// Whether the text before the mark is what precedes a value: `, name=` or, in a list or an object, a separator.
    fn begins_value(&self) -> bool {
        let before = self.out[..self.mark].trim_ascii_end();
        let in_brackets = matches!(self.stack.last(), Some(b'[' | b'{'));
        match before.bytes().last() {
            Some(b'=') => {
                let name = before[..before.len() - 1].trim_ascii_end();
                let word = name.bytes().rev().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count();
                word > 0 && name[..name.len() - word].trim_ascii_end().ends_with([',', '('])
            }
            Some(b',' | b':' | b'[' | b'{') => in_brackets,
            _ => false,
        }
    }

    /// Whether a word may be the name of an argument: one of the tool's, if they are known.
    fn is_parameter(&self, word: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|name| name == word)
    }

    /// After a sign or a point with which JSON numbers cannot begin.
    pub(super) fn signed(&mut self, byte: u8) -> bool {
        if byte == b'.' {
            self.out.push_str("0.");
            self.state = State::Number(Number::Point);
        } else {
            self.state = State::Number(Number::Minus);
        }
        true
    }

    /// A byte that cannot continue a JSON number.
    pub(super) fn python_number(&mut self, number: Number, byte: u8) -> bool {
        match (number, byte) {
            (Number::Integer | Number::Fraction, b'_') => true,
            (Number::Minus, b'.') => self.signed(byte),
            (Number::Point, _) => {
                self.put(b'0');
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

fn quote(single: bool) -> u8 {
    if single { b'\'' } else { b'"' }
}
