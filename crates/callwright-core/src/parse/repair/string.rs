//! The strings of the transducer: quotes, escapes, control characters, surrogate pairs.

use super::escapes::Escapes;
use super::{Dialect, PENDING, State, Stops, Transducer};
use crate::parse::event::RepairKind;

/// What kind of string it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Quoted {
    pub quote: Quote,
    /// Whether it is the key of an object.
    pub key: bool,
}

/// The kind of quotes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quote {
    Double,
    Single,
    /// Python's, perhaps three of them; a raw string has no escapes.
    Python {
        single: bool,
        triple: bool,
        raw: bool,
    },
    /// The dialect's own.
    Own,
}

impl Quote {
    /// Which bytes end a run of plain bytes.
    pub(super) fn stops(self) -> u8 {
        match self {
            Quote::Double | Quote::Python { single: false, .. } => Stops::DOUBLE,
            Quote::Single | Quote::Python { single: true, .. } => Stops::SINGLE,
            Quote::Own => Stops::DOUBLE | Stops::OWN,
        }
    }
}

impl Transducer {
    /// Plain bytes of a string.
    pub(super) fn plain(&mut self, quoted: Quoted, bytes: &[u8], at: usize) {
        self.at = at;
        self.end_surrogate(at);
        if !matches!(self.state, State::String(_)) {
            self.loose(bytes);
            return;
        }
        self.utf8.push(bytes, &mut self.out);
        self.pass_unescaped(bytes);
        self.settle_string(quoted);
    }

    pub(super) fn settle_string(&mut self, quoted: Quoted) {
        // Such a long key is no mistake: it is released, and can no longer be dropped.
        let long_key = quoted.key && self.out.len() - self.stable > PENDING;
        let held = matches!(self.escapes, Escapes::Held(_)) || self.surrogate.is_some();
        if !held && (!quoted.key || long_key || self.key_shown) {
            self.stable = self.out.len();
            self.key_shown = quoted.key;
        }
    }

    pub(super) fn begin_string(&mut self, byte: u8, key: bool, at: usize) -> bool {
        let departure = match (byte, &self.dialect) {
            (_, Dialect::PythonCall) => {
                self.begin_python(byte, key, false);
                return true;
            }
            (b'\'', _) => Some(RepairKind::SingleQuotes),
            (_, Dialect::Own { quote: Some(_), .. }) => Some(RepairKind::OtherQuotes),
            _ => None,
        };
        if departure.is_some_and(|kind| !self.depart(kind, at)) {
            return false;
        }
        let quoted = Quoted { quote: if byte == b'\'' { Quote::Single } else { Quote::Double }, key };
        self.put(b'"');
        self.state = State::String(quoted);
        self.begin_escapes(key);
        self.settle_string(quoted);
        true
    }

    /// A quote, a backslash or a control character in a string.
    pub(super) fn special(&mut self, quoted: Quoted, byte: u8, at: usize) -> bool {
        if byte != b'\\' {
            self.end_surrogate(at);
            if !matches!(self.state, State::String(_)) {
                return false;
            }
        }
        match quoted.quote {
            Quote::Python { single, triple, .. } => return self.python_special(quoted, single, triple, byte, at),
            Quote::Own => return self.own_special(quoted, byte),
            Quote::Double | Quote::Single => {}
        }
        let single = quoted.quote == Quote::Single;
        match byte {
            b'\\' => {}
            // A writer that does not escape line breaks does not write `\n` either.
            0..0x20 => self.settle_escapes(),
            _ => self.pass_unescaped(&[byte]),
        }
        match byte {
            b'\'' if single => {
                self.utf8.end(&mut self.out);
                self.mark = self.out.len();
                self.put(b'"');
                self.state = State::QuoteEnd(quoted);
            }
            b'"' if !single => {
                self.put(b'"');
                self.end_string(quoted);
            }
            b'"' => {
                self.utf8.end(&mut self.out);
                self.out.push_str("\\\"");
                self.settle_string(quoted);
            }
            b'\\' => {
                self.utf8.end(&mut self.out);
                self.mark = self.out.len();
                self.put(b'\\');
                self.state = State::Escape(quoted);
            }
            0..0x20 => {
                if !self.depart(RepairKind::UnescapedControl, at) {
                    return false;
                }
                self.escape_control(byte);
                self.settle_string(quoted);
            }
            _ => {
                self.put(byte);
                self.settle_string(quoted);
            }
        }
        true
    }

    pub(super) fn escape_control(&mut self, byte: u8) {
        self.utf8.end(&mut self.out);
        match byte {
            b'\n' => self.out.push_str("\\n"),
            b'\r' => self.out.push_str("\\r"),
            b'\t' => self.out.push_str("\\t"),
            _ => self.out.push_str(&format!("\\u{byte:04x}")),
        }
    }

    pub(super) fn end_string(&mut self, quoted: Quoted) {
        self.end_escapes();
        self.odd_quotes |= std::mem::take(&mut self.quotes) % 2 == 1;
        if quoted.key {
            self.state = State::Colon;
        } else {
            self.end_value();
        }
    }

    /// The byte after a backslash.
    pub(super) fn escape(&mut self, quoted: Quoted, byte: u8, at: usize) -> bool {
        if byte != b'u' && self.surrogate.is_some() {
            self.end_surrogate(at);
            if self.broken.is_some() {
                return false;
            }
        }
        self.state = State::String(quoted);
        if let Quote::Python { raw, .. } = quoted.quote
            && (raw || byte != b'u')
        {
            return self.python_escape(quoted, raw, byte);
        }
        if let Some(text) = self.after_literal_backslash(byte) {
            self.out.push_str(text);
            if text.is_empty() {
                self.literal_backslash(quoted);
            } else {
                self.settle_string(quoted);
            }
            return !text.is_empty();
        }
        match byte {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => {
                self.weigh_escape(byte, at.saturating_sub(1));
                self.put(byte);
                self.settle_string(quoted);
                true
            }
            b'u' => {
                self.put(byte);
                self.state = State::Unicode(quoted, 0, 0);
                true
            }
            b'\'' if quoted.quote == Quote::Single => {
                self.out.truncate(self.mark);
                self.put(byte);
                self.settle_string(quoted);
                true
            }
            _ => {
                if self.depart(RepairKind::InvalidEscape, at) {
                    self.impossible_escape();
                    self.literal_backslash(quoted);
                }
                false
            }
        }
    }

    /// Makes the backslash at the mark, and the byte after it, plain text.
    pub(super) fn literal_backslash(&mut self, quoted: Quoted) {
        self.out.insert(self.mark, '\\');
        self.state = State::String(quoted);
        self.settle_string(quoted);
    }

    pub(super) fn unicode(&mut self, quoted: Quoted, count: u8, digits: u16, byte: u8, at: usize) -> bool {
        let Some(digit) = char::from(byte).to_digit(16) else {
            self.end_surrogate(at);
            if self.broken.is_none() && self.depart(RepairKind::InvalidEscape, at) {
                self.impossible_escape();
                self.literal_backslash(quoted);
            }
            return false;
        };
        self.put(byte);
        let digits = digits << 4 | digit as u16;
        if count < 3 {
            self.state = State::Unicode(quoted, count + 1, digits);
            return true;
        }
        self.state = State::String(quoted);
        self.settle_escapes();
        match digits {
            0xD800..0xDC00 => {
                self.end_surrogate(at);
                self.surrogate = Some(self.mark);
            }
            0xDC00..0xE000 if self.surrogate.is_some() => self.surrogate = None,
            0xDC00..0xE000 => {
                self.surrogate = Some(self.mark);
                self.end_surrogate(at);
            }
            _ => self.end_surrogate(at),
        }
        if self.broken.is_none() {
            self.settle_string(quoted);
        }
        true
    }

    /// Replaces an unpaired surrogate.
    pub(super) fn end_surrogate(&mut self, at: usize) {
        let Some(start) = self.surrogate.take() else { return };
        if self.depart(RepairKind::InvalidEscape, at) {
            self.out.replace_range(start..start + 6, "\\ufffd");
        }
    }

    /// After a single quote: it closes the string only if structure follows; otherwise it is an apostrophe.
    pub(super) fn quote_end(&mut self, quoted: Quoted, byte: u8, at: usize) -> bool {
        if self.dialect == Dialect::PythonCall {
            return self.python_quote_end(quoted, byte, at);
        }
        let waited = self.out.len() - self.mark;
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' if waited < 64 => {
                self.put(byte);
                true
            }
            b',' | b':' | b'}' | b']' => {
                self.end_string(quoted);
                false
            }
            _ => {
                self.unclose(quoted, b'\'');
                false
            }
        }
    }

    /// The quote at the mark is part of the string, and so is the text after it: white space, perhaps a word.
    pub(super) fn unclose(&mut self, quoted: Quoted, quote: u8) {
        let tail = self.out.split_off(self.mark);
        self.out.push_str(if quote == b'"' { "\\\"" } else { "'" });
        for byte in tail.bytes().skip(1) {
            if byte.is_ascii_control() {
                self.settle_escapes();
                self.escape_control(byte);
            } else {
                self.out.push(char::from(byte));
            }
        }
        self.state = State::String(quoted);
        self.settle_string(quoted);
    }
}
