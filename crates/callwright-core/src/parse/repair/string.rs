//! The strings of the transducer: quotes, escapes, control characters, surrogate pairs. Python's may have three quotes, and
//! a dialect's own quotes are several bytes long, between which nothing is escaped.
//!
//! Bytes are held until they are known to be a whole [`Unit`], which is then read in one piece.

use super::escapes::Meaning;
use super::state::{Quote, Quoted, State};
use super::{Dialect, PENDING, Transducer, python};
use crate::parse::event::RepairKind;

/// White space to keep between two literals of Python that may be one string.
const BLANK: usize = 64;
/// Maximum length of a word after a string that waits for `=`.
const WORD: usize = 64;

/// What the unread bytes of a string begin with.
enum Unit {
    /// More bytes decide.
    More,
    /// The quote that ends the string.
    End,
    /// Text of this length, and whether it departs from the notation.
    Text(usize, Written, Option<RepairKind>),
}

/// What JSON writes for it.
enum Written {
    Same,
    Char(char),
    Text(&'static str),
}

impl Transducer {
    /// Plain bytes of a string.
    pub(super) fn plain(&mut self, quoted: Quoted, bytes: &[u8], at: usize) {
        self.at = at;
        self.escapes.pass(bytes);
        if self.held.is_empty() && !self.escapes.is_held() {
            self.out.put_all(bytes);
            self.settle_string(quoted);
            return;
        }
        self.held.extend_from_slice(bytes);
        self.unit = self.held.len();
        if !self.escapes.is_held() {
            self.write_held(quoted);
        }
    }

    fn settle_string(&mut self, quoted: Quoted) {
        // Such a long key is no mistake: it is released, and can no longer be dropped.
        if !quoted.key || self.key_shown || self.out.pending() > PENDING {
            self.out.settle();
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
        self.open_quote(Quoted { quote: if byte == b'\'' { Quote::Single } else { Quote::Double }, key });
        self.begin_escapes(key);
        true
    }

    fn open_quote(&mut self, quoted: Quoted) {
        self.out.put(b'"');
        self.state = State::String(quoted);
        self.settle_string(quoted);
    }

    /// A byte of a string that may not be plain text, or follows one.
    pub(super) fn string_byte(&mut self, quoted: Quoted, byte: u8, at: usize) -> bool {
        self.held.push(byte);
        while self.unit < self.held.len() {
            match self.unit(self.unit, quoted.quote) {
                Unit::More => break,
                Unit::End => {
                    self.escapes.pass(&[byte]);
                    self.held.truncate(self.unit + 1);
                    if matches!(quoted.quote, Quote::Double | Quote::Own) {
                        self.close_quote(quoted);
                    } else {
                        self.state = State::QuoteEnd(quoted);
                    }
                    break;
                }
                Unit::Text(length, _, departure) => {
                    if let Some(kind) = departure {
                        self.held.pop();
                        if !self.depart(kind, at) {
                            return false;
                        }
                        self.held.push(byte);
                    }
                    let from = (at + 1).saturating_sub(self.held.len() - self.unit);
                    self.escapes.weigh(&self.held[self.unit..self.unit + length], from);
                    self.unit += length;
                    if !self.escapes.is_held() {
                        self.write_held(quoted);
                    }
                }
            }
        }
        true
    }

    /// Reads the held bytes from `from` on.
    fn unit(&self, from: usize, quote: Quote) -> Unit {
        let bytes = &self.held[from..];
        let own = self.own_quote();
        let length = bytes.iter().take(3).take_while(|byte| **byte == bytes[0]).count();
        match (quote, bytes[0]) {
            (Quote::Own, _) if bytes.starts_with(own) => return Unit::End,
            (Quote::Own, _) if own.starts_with(bytes) => return Unit::More,
            (Quote::Double, b'"') | (Quote::Single, b'\'') => return Unit::End,
            (Quote::Python { single, triple, .. }, byte) if byte == python_quote(single) => match length {
                _ if !triple => return Unit::End,
                3 => return Unit::End,
                _ if length == bytes.len() => return Unit::More,
                _ => {}
            },
            (Quote::Double | Quote::Single | Quote::Python { .. }, b'\\') => return self.escape(bytes, quote),
            _ => {}
        }
        let departs = match (quote, bytes[0]) {
            (Quote::Double | Quote::Single, 0..0x20) => true,
            (Quote::Python { triple, .. }, b'\n' | b'\r') => !triple,
            _ => false,
        };
        let written = match bytes[0] {
            byte @ (0..0x20 | b'"' | b'\\') => Written::Char(char::from(byte)),
            _ => Written::Same,
        };
        Unit::Text(1, written, departs.then_some(RepairKind::UnescapedControl))
    }

    /// Reads a backslash and what follows it.
    fn escape(&self, bytes: &[u8], quote: Quote) -> Unit {
        let backslash = |departure| Unit::Text(1, Written::Char('\\'), departure);
        let escaped = |written| Unit::Text(2, written, None);
        let python = matches!(quote, Quote::Python { .. });
        let Some(&byte) = bytes.get(1) else { return Unit::More };
        match byte {
            _ if matches!(quote, Quote::Python { raw: true, .. }) => match byte {
                b'"' => escaped(Written::Text("\\\\\\\"")),
                b'\'' => escaped(Written::Text("\\\\'")),
                b'\\' => escaped(Written::Text("\\\\\\\\")),
                _ => backslash(None),
            },
            // Both at once: a quote after them ends the string.
            b'\\' if self.escapes.meaning == Meaning::Literal => escaped(Written::Text("\\\\\\\\")),
            _ if self.escapes.meaning == Meaning::Literal && !matches!(byte, b'"' | b'\'') => backslash(None),
            b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't' => escaped(Written::Same),
            b'/' if !python => escaped(Written::Same),
            b'\'' if quote != Quote::Double => escaped(Written::Char('\'')),
            b'u' => unicode(bytes),
            b'a' if python => escaped(Written::Char('\x07')),
            b'v' if python => escaped(Written::Char('\x0b')),
            // A line continuation.
            b'\n' if python => escaped(Written::Text("")),
            b'0'..=b'7' if python => {
                let digits = bytes[1..].iter().take(3).take_while(|byte| matches!(byte, b'0'..=b'7'));
                let (count, code) =
                    digits.fold((0, 0), |(n, code), digit| (n + 1, code << 3 | u32::from(digit - b'0')));
                match bytes.len() {
                    length if count < 3 && length == 1 + count => Unit::More,
                    _ => Unit::Text(1 + count, Written::Char(character(code)), None),
                }
            }
            b'x' | b'U' if python => {
                let count = if byte == b'x' { 2 } else { 8 };
                match hex(&bytes[2..], count) {
                    Ok(code) => Unit::Text(2 + count, Written::Char(character(code)), None),
                    Err(unit) => unit,
                }
            }
            // Python keeps the backslash.
            _ => backslash((!python).then_some(RepairKind::InvalidEscape)),
        }
    }

    /// Writes the whole units that are held.
    fn write_held(&mut self, quoted: Quoted) {
        let mut from = 0;
        while from < self.unit {
            let plain = |byte: &&u8| **byte >= b' ' && !matches!(**byte, b'"' | b'\'' | b'\\');
            let run = self.held[from..self.unit].iter().take_while(plain).count();
            if run > 0 && quoted.quote != Quote::Own {
                self.out.put_all(&self.held[from..from + run]);
                from += run;
                continue;
            }
            // What looks like a quote here is text.
            let (length, written) = match self.unit(from, quoted.quote) {
                Unit::Text(length, written, _) => (length, written),
                _ => (1, Written::Char(char::from(self.held[from]))),
            };
            let bytes = &self.held[from..from + length];
            if !matches!(written, Written::Same) {
                self.out.end_character();
            }
            match written {
                Written::Same => self.out.put_all(bytes),
                Written::Char(character) => self.out.put_char(character),
                Written::Text(text) => self.out.text.push_str(text),
            }
            from += length;
        }
        self.held.drain(..self.unit);
        self.unit = 0;
        self.settle_string(quoted);
    }

    /// The text of the string has ended: what is held of it may be a path.
    pub(super) fn end_text_of(&mut self, quoted: Quoted) {
        if let Some(at) = self.escapes.end(&self.held[..self.unit])
            && self.depart(RepairKind::InvalidEscape, at)
        {
            self.escapes.meaning = Meaning::Literal;
        }
        self.write_held(quoted);
        self.escapes.meaning = Meaning::Settled;
    }

    /// The string has ended; its quote is held, perhaps with white space after it.
    pub(super) fn close_quote(&mut self, quoted: Quoted) {
        self.end_text_of(quoted);
        self.out.end_character();
        self.out.put(b'"');
        if !self.at_call() {
            self.out.put_all(self.held.get(1..).unwrap_or_default());
        }
        self.held.clear();
        self.odd_quotes |= std::mem::take(&mut self.quotes) % 2 == 1;
        if quoted.key {
            self.state = State::Colon;
        } else {
            self.end_value();
        }
    }

    /// After a quote: it closes the string only if structure follows; otherwise it is an apostrophe.
    pub(super) fn quote_end(&mut self, quoted: Quoted, byte: u8, at: usize) -> bool {
        if let Quote::Python { .. } = quoted.quote {
            return self.python_quote_end(quoted, byte, at);
        }
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' if self.held.len() - self.unit < 64 => {
                self.held.push(byte);
                return true;
            }
            b',' | b':' | b'}' | b']' => self.close_quote(quoted),
            _ => self.unclose(quoted),
        }
        false
    }

    /// The held quote is part of the string, and so is the text after it: white space, perhaps a word.
    fn unclose(&mut self, quoted: Quoted) {
        if self.held[self.unit..].iter().any(u8::is_ascii_control) {
            self.escapes.settle();
        }
        self.unit = self.held.len();
        self.state = State::String(quoted);
        if !self.escapes.is_held() {
            self.write_held(quoted);
        }
    }

    /// A JSON string begins. Without repairs, and in a key, escapes are always escapes.
    #[inline]
    pub(super) fn begin_escapes(&mut self, key: bool) {
        self.escapes.begin(key || !self.repair);
    }

    /// A quote right after a word: `r"…"` and similar, but not `f"…"`, whose value is computed.
    pub(super) fn prefixed(&mut self, key: bool, byte: u8, at: usize) -> bool {
        if self.held.len() > 2 || !self.held.iter().all(|b| b"rRbBuU".contains(b)) {
            self.end_word(key, at);
            return false;
        }
        let raw = self.held.iter().any(|b| b"rR".contains(b));
        let positional = key && self.at_call();
        if positional && !self.positional(at) {
            return false;
        }
        self.begin_python(byte, key && !positional, raw);
        true
    }

    fn begin_python(&mut self, byte: u8, key: bool, raw: bool) {
        let quoted = Quoted { quote: Quote::Python { single: byte == b'\'', triple: false, raw }, key };
        self.open_quote(quoted);
        self.begin_literal(quoted, byte);
    }

    /// The first quote of a literal, which may be one of several of a string.
    fn begin_literal(&mut self, quoted: Quoted, byte: u8) {
        self.held.clear();
        self.held.push(byte);
        self.unit = 0;
        self.state = State::Opening(quoted);
    }

    /// After one or two quotes: three begin a triple-quoted string.
    pub(super) fn opening(&mut self, quoted: Quoted, byte: u8) -> bool {
        let Quote::Python { single, raw, .. } = quoted.quote else { return self.refuse() };
        let again = byte == self.held[0];
        match (self.held.len(), again) {
            (1, true) => self.held.push(byte),
            (1, false) => {
                self.held.clear();
                self.state = State::String(quoted);
            }
            (_, true) => {
                self.held.clear();
                self.state = State::String(Quoted { quote: Quote::Python { single, triple: true, raw }, ..quoted });
            }
            (_, false) => {
                self.held.truncate(1);
                self.state = State::QuoteEnd(quoted);
            }
        }
        again
    }

    /// After a quote that closes a string. If another literal follows, it continues the string; before a word and `=`,
    /// a comma is missing; before any other word, the quote was part of the string.
    fn python_quote_end(&mut self, quoted: Quoted, byte: u8, at: usize) -> bool {
        let waiting = self.word_after_quote();
        let (word, count) = (waiting.trim_ascii_end(), waiting.len());
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'0'..=b'9'
                if self.at_call()
                    && !quoted.key
                    && (count > 0 || !byte.is_ascii_digit())
                    && word.len() == count
                    && count < WORD =>
            {
                self.held.push(byte);
                return true;
            }
            b' ' | b'\t' | b'\r' | b'\n' if (1..WORD).contains(&count) => {
                self.held.push(byte);
                return true;
            }
            b'(' if count > 0 && self.repair && self.parameters.is_tool(word) => {
                return self.end_before_call(at.saturating_sub(count));
            }
            b'=' if count > 0 && self.parameters.may_be(word) => {
                let word = word.as_bytes().to_vec();
                if self.depart(RepairKind::MissingComma, at.saturating_sub(count)) {
                    self.close_quote(quoted);
                    self.out.text.push_str(", ");
                    self.held = word;
                    self.state = State::Colon;
                }
                return false;
            }
            _ if count > 0 => return self.unescaped_quote(quoted, at.saturating_sub(count)),
            b' ' | b'\t' | b'\r' | b'\n' => {
                if self.held.len() < BLANK {
                    self.held.push(byte);
                }
                return true;
            }
            b'"' | b'\'' => {
                let quote = Quote::Python { single: byte == b'\'', triple: false, raw: false };
                self.begin_literal(Quoted { quote, ..quoted }, byte);
                return true;
            }
            b',' | b':' | b'}' | b']' | b')' => self.close_quote(quoted),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | 0x80.. => return self.unescaped_quote(quoted, at),
            _ => return self.refuse(),
        }
        false
    }

    /// What is held after a quote of Python, without the white space before it.
    pub(super) fn word_after_quote(&self) -> &str {
        std::str::from_utf8(&self.held[1..]).unwrap_or_default().trim_ascii_start()
    }

    /// The held quote is followed by text. It is part of the string, unless it begins another one: then an earlier quote
    /// is missing, and where the string was to end is unknown.
    fn unescaped_quote(&mut self, quoted: Quoted, at: usize) -> bool {
        let before = &self.out.text;
        if let Some((name, text)) = python::begun_call(before)
            && self.repair
            && self.parameters.is_tool(name)
        {
            // The quote that begins an argument of the next call.
            let quote = at.saturating_sub(self.held.len() - self.word_after_quote().len());
            return self.end_before_call(quote.saturating_sub(text.len()));
        }
        if python::begins_value(before, &self.stack) {
            return self.refuse();
        }
        if self.depart(RepairKind::UnescapedQuote, at) {
            let first = self.out.text.ends_with('"') && !self.out.text.ends_with("\\\"");
            self.quotes = if first { 1 } else { self.quotes + usize::from(self.quotes > 0) };
            self.unclose(quoted);
        }
        false
    }

    pub(super) fn begins_quote(&self, byte: u8) -> bool {
        self.own_quote().first() == Some(&byte)
    }

    fn own_quote(&self) -> &[u8] {
        match &self.dialect {
            Dialect::Own { quote: Some(quote), .. } => quote,
            _ => &[],
        }
    }

    /// A byte of the dialect's own quote before a string or key.
    pub(super) fn own_opening(&mut self, quoted: Quoted, byte: u8) -> bool {
        if self.own_quote().get(self.held.len()) != Some(&byte) {
            return self.refuse();
        }
        self.held.push(byte);
        self.state = State::OwnOpening(quoted);
        if self.held == self.own_quote() {
            self.held.clear();
            self.open_quote(quoted);
        }
        true
    }
}

/// Reads `\uXXXX`, or a pair of them.
fn unicode(bytes: &[u8]) -> Unit {
    let lone = Unit::Text(6, Written::Text("\\ufffd"), Some(RepairKind::InvalidEscape));
    match hex(&bytes[2..], 4) {
        Ok(0xD800..0xDC00) => match &bytes[6..] {
            [] | [b'\\'] => Unit::More,
            [b'\\', b'u', digits @ ..] => match hex(digits, 4) {
                Ok(0xDC00..0xE000) => Unit::Text(12, Written::Same, None),
                Err(Unit::More) => Unit::More,
                _ => lone,
            },
            _ => lone,
        },
        Ok(0xDC00..0xE000) => lone,
        Ok(_) => Unit::Text(6, Written::Same, None),
        Err(unit) => unit,
    }
}

/// Reads this many digits of an escape.
fn hex(bytes: &[u8], count: usize) -> Result<u32, Unit> {
    let digits: Vec<u32> = bytes.iter().take(count).map_while(|byte| char::from(*byte).to_digit(16)).collect();
    match digits.len() {
        length if length == count => Ok(digits.into_iter().fold(0, |code, digit| code << 4 | digit)),
        length if length == bytes.len() => Err(Unit::More),
        _ => Err(Unit::Text(1, Written::Char('\\'), Some(RepairKind::InvalidEscape))),
    }
}

fn character(code: u32) -> char {
    char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
}

fn python_quote(single: bool) -> u8 {
    if single { b'\'' } else { b'"' }
}
