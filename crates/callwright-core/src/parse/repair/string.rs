//! The strings of the transducer: quotes, escapes, control characters, surrogate pairs. Python's may have three quotes, and
//! a dialect's own quotes are several bytes long, between which nothing is escaped.

use super::state::{Quote, Quoted, State};
use super::{Dialect, PENDING, Transducer, escapes, python, quoted_json};
use crate::parse::event::RepairKind;
use std::sync::Arc;

/// White space to keep between two literals of Python that may be one string.
const BLANK: usize = 64;
/// Maximum length of a word after a string that waits for `=`.
const WORD: usize = 64;

impl Transducer {
    /// Plain bytes of a string.
    pub(super) fn plain(&mut self, quoted: Quoted, bytes: &[u8], at: usize) {
        self.at = at;
        self.end_surrogate(at);
        if !matches!(self.state, State::String(_)) {
            self.loose(bytes);
            return;
        }
        self.out.put_all(bytes);
        self.escapes.pass(bytes);
        self.settle_string(quoted);
    }

    pub(super) fn settle_string(&mut self, quoted: Quoted) {
        // Such a long key is no mistake: it is released, and can no longer be dropped.
        let long_key = quoted.key && self.out.pending() > PENDING;
        let held = self.escapes.is_held() || self.surrogate.is_some();
        if !held && (!quoted.key || long_key || self.key_shown) {
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
        let quoted = Quoted { quote: if byte == b'\'' { Quote::Single } else { Quote::Double }, key };
        self.out.put(b'"');
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
            0..0x20 => self.escapes.settle(),
            _ => self.escapes.pass(&[byte]),
        }
        match byte {
            b'\'' if single => {
                self.out.set_mark();
                self.out.put(b'"');
                self.state = State::QuoteEnd(quoted);
            }
            b'"' if !single => {
                self.out.put(b'"');
                self.end_string(quoted);
            }
            b'"' => {
                self.out.end_character();
                self.out.text.push_str("\\\"");
                self.settle_string(quoted);
            }
            b'\\' => {
                self.out.set_mark();
                self.out.put(b'\\');
                self.state = State::Escape(quoted);
            }
            0..0x20 => {
                if !self.depart(RepairKind::UnescapedControl, at) {
                    return false;
                }
                self.out.put_control(byte);
                self.settle_string(quoted);
            }
            _ => {
                self.out.put(byte);
                self.settle_string(quoted);
            }
        }
        true
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
        if let Some(text) = self.escapes.after_literal_backslash(byte) {
            self.out.text.push_str(text);
            if text.is_empty() {
                self.literal_backslash(quoted);
            } else {
                self.settle_string(quoted);
            }
            return !text.is_empty();
        }
        match byte {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => {
                self.escapes.weigh(byte, self.out.mark, at.saturating_sub(1));
                self.out.put(byte);
                self.settle_string(quoted);
                true
            }
            b'u' => {
                self.out.put(byte);
                self.state = State::Unicode(quoted, 0, 0);
                true
            }
            b'\'' if quoted.quote == Quote::Single => {
                self.out.drop_marked();
                self.out.put(byte);
                self.settle_string(quoted);
                true
            }
            _ => {
                if self.depart(RepairKind::InvalidEscape, at) {
                    self.escapes.impossible(&mut self.out);
                    self.literal_backslash(quoted);
                }
                false
            }
        }
    }

    /// Makes the backslash at the mark, and the byte after it, plain text.
    pub(super) fn literal_backslash(&mut self, quoted: Quoted) {
        self.out.text.insert(self.out.mark, '\\');
        self.state = State::String(quoted);
        self.settle_string(quoted);
    }

    pub(super) fn unicode(&mut self, quoted: Quoted, count: u8, digits: u16, byte: u8, at: usize) -> bool {
        let Some(digit) = char::from(byte).to_digit(16) else {
            self.end_surrogate(at);
            if self.broken.is_none() && self.depart(RepairKind::InvalidEscape, at) {
                self.escapes.impossible(&mut self.out);
                self.literal_backslash(quoted);
            }
            return false;
        };
        self.out.put(byte);
        let digits = digits << 4 | digit as u16;
        if count < 3 {
            self.state = State::Unicode(quoted, count + 1, digits);
            return true;
        }
        self.state = State::String(quoted);
        self.escapes.settle();
        match digits {
            0xD800..0xDC00 => {
                self.end_surrogate(at);
                self.surrogate = Some(self.out.mark);
            }
            0xDC00..0xE000 if self.surrogate.is_some() => self.surrogate = None,
            0xDC00..0xE000 => {
                self.surrogate = Some(self.out.mark);
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
            self.out.text.replace_range(start..start + 6, "\\ufffd");
        }
    }

    /// After a single quote: it closes the string only if structure follows; otherwise it is an apostrophe.
    pub(super) fn quote_end(&mut self, quoted: Quoted, byte: u8, at: usize) -> bool {
        if self.dialect == Dialect::PythonCall {
            return self.python_quote_end(quoted, byte, at);
        }
        let waited = self.out.marked().len();
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' if waited < 64 => {
                self.out.put(byte);
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
        let tail = self.out.text.split_off(self.out.mark);
        self.out.text.push_str(if quote == b'"' { "\\\"" } else { "'" });
        for byte in tail.bytes().skip(1) {
            if byte.is_ascii_control() {
                self.escapes.settle();
                self.out.put_control(byte);
            } else {
                self.out.text.push(char::from(byte));
            }
        }
        self.state = State::String(quoted);
        self.settle_string(quoted);
    }

    /// A JSON string begins. Without repairs, and in a key, escapes are always escapes.
    #[inline]
    pub(super) fn begin_escapes(&mut self, key: bool) {
        self.escapes.begin(key || !self.repair);
    }

    /// The string or its text has ended: the held text may be a path.
    #[inline]
    fn end_escapes(&mut self) {
        if let Some((from, at)) = self.escapes.end(&self.out)
            && self.depart(RepairKind::InvalidEscape, at)
        {
            let text = escapes::literal(&self.out.text[from..]);
            self.out.text.replace_range(from.., &text);
        }
    }

    /// The text ends inside the string: the held text is whole up to an unfinished escape.
    pub(super) fn cut_escapes(&mut self, whole: usize) {
        if self.escapes.is_held() {
            let rest = self.out.text.split_off(whole);
            self.end_escapes();
            self.out.settle();
            self.out.mark = self.out.stable;
            self.out.text.push_str(&rest);
        }
    }

    /// A quote right after a word: `r"…"` and similar, but not `f"…"`, whose value is computed.
    pub(super) fn prefixed(&mut self, key: bool, byte: u8, at: usize) -> bool {
        self.out.end_character();
        let word = &self.out.marked();
        if word.len() > 2 || !word.bytes().all(|b| b"rRbBuU".contains(&b)) {
            self.end_word(key, at);
            return false;
        }
        let raw = word.contains(['r', 'R']);
        self.out.drop_marked();
        let positional = key && self.at_call();
        if positional && !self.positional(at) {
            return false;
        }
        self.begin_python(byte, key && !positional, raw);
        true
    }

    pub(super) fn begin_python(&mut self, byte: u8, key: bool, raw: bool) {
        let quoted = Quoted { quote: Quote::Python { single: byte == b'\'', triple: false, raw }, key };
        self.out.put(b'"');
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
        self.out.set_mark();
        self.out.put(b'"');
        self.state = State::QuoteEnd(quoted);
    }

    /// After one or two of the quotes that end a triple-quoted string.
    pub(super) fn closing(&mut self, quoted: Quoted, count: u8, byte: u8) -> bool {
        let Quote::Python { single, .. } = quoted.quote else { return self.refuse() };
        if byte != quote(single) {
            (0..count).for_each(|_| self.out.put_char(char::from(quote(single))));
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
                self.out.end_character();
                if triple {
                    self.state = State::Closing(quoted, 1);
                } else {
                    self.close_quotes(quoted);
                }
                return true;
            }
            b'\\' => {
                self.out.set_mark();
                self.out.put(b'\\');
                self.state = State::Escape(quoted);
                return true;
            }
            b'\n' | b'\r' if !triple && !self.depart(RepairKind::UnescapedControl, at) => return false,
            0..0x20 => self.out.put_control(byte),
            b'"' => self.out.put_char('"'),
            _ => self.out.put(byte),
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
                self.out.put_char(char::from(byte));
                self.settle_string(quoted);
            }
            return taken;
        }
        match byte {
            b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't' => {
                self.out.put(byte);
                self.settle_string(quoted);
            }
            b'\'' => self.put_escaped(quoted, u32::from(byte)),
            b'a' => self.put_escaped(quoted, 0x07),
            b'v' => self.put_escaped(quoted, 0x0B),
            // A line continuation.
            b'\n' => {
                self.out.drop_marked();
                self.settle_string(quoted);
            }
            b'0'..=b'7' => {
                self.out.put(byte);
                self.state = State::Octal(quoted, 1, u16::from(byte - b'0'));
            }
            b'x' | b'U' => {
                self.out.put(byte);
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
            self.out.put(byte);
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
        self.out.put(byte);
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
        self.out.drop_marked();
        self.out.put_char(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
        self.state = State::String(quoted);
        self.settle_string(quoted);
    }

    /// After a quote that closes a string. If another literal follows, it continues the string; before a word and `=`,
    /// a comma is missing; before any other word, the quote was part of the string.
    pub(super) fn python_quote_end(&mut self, quoted: Quoted, byte: u8, at: usize) -> bool {
        let Quote::Python { single, .. } = quoted.quote else { return self.refuse() };
        let waiting = self.out.text[self.out.mark + 1..].trim_ascii_start();
        let (word, count) = (waiting.trim_ascii_end(), waiting.len());
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'0'..=b'9'
                if self.at_call()
                    && !quoted.key
                    && (count > 0 || !byte.is_ascii_digit())
                    && word.len() == count
                    && count < WORD =>
            {
                self.out.put(byte);
                return true;
            }
            b' ' | b'\t' | b'\r' | b'\n' if (1..WORD).contains(&count) => {
                self.out.put(byte);
                return true;
            }
            b'(' if count > 0 && self.repair && self.parameters.is_tool(word) => {
                return self.end_before_call(at - count);
            }
            b'=' if count > 0 && self.parameters.may_be(word) => {
                let name = quoted_json(word);
                if self.depart(RepairKind::MissingComma, at - count) {
                    self.out.text.truncate(self.out.mark + 1);
                    self.end_string(quoted);
                    self.out.text.push_str(", ");
                    self.out.text.push_str(&name);
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
                if self.out.marked().len() < BLANK {
                    self.out.put(byte);
                }
                true
            }
            b'"' | b'\'' => {
                self.out.drop_marked();
                let quote = Quote::Python { single: byte == b'\'', triple: false, raw: false };
                self.state = State::Opening(Quoted { quote, ..quoted }, 1);
                true
            }
            b',' | b':' | b'}' | b']' | b')' => {
                if self.at_call() {
                    self.out.text.truncate(self.out.mark + 1);
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
        let before = &self.out.text[..self.out.mark];
        if let Some((name, text)) = python::begun_call(before)
            && self.repair
            && self.parameters.is_tool(name)
        {
            // The quote that begins an argument of the next call.
            let waiting = &self.out.marked()[1..];
            let quote = at - (waiting.len() - waiting.trim_ascii_start().len() + 1);
            return self.end_before_call(quote.saturating_sub(text.len()));
        }
        if python::begins_value(before, &self.stack) {
            return self.refuse();
        }
        if self.depart(RepairKind::UnescapedQuote, at) {
            let before = &self.out.text[..self.out.mark];
            let first = before.ends_with('"') && !before.ends_with("\\\"");
            self.quotes = if first { 1 } else { self.quotes + usize::from(self.quotes > 0) };
            self.unclose(quoted, quote(single));
        }
        false
    }

    pub(super) fn begins_quote(&self, byte: u8) -> bool {
        matches!(&self.dialect, Dialect::Own { quote: Some(quote), .. } if quote.first() == Some(&byte))
    }

    fn own_quote(&self) -> Arc<[u8]> {
        match &self.dialect {
            Dialect::Own { quote: Some(quote), .. } => Arc::clone(quote),
            _ => Arc::from([]),
        }
    }

    pub(super) fn begin_own(&mut self, key: bool) -> bool {
        let quoted = Quoted { quote: Quote::Own, key };
        self.state = State::OwnOpening(quoted, 1);
        self.own_opened(quoted, 1);
        true
    }

    pub(super) fn own_opening(&mut self, quoted: Quoted, count: usize, byte: u8) -> bool {
        if self.own_quote().get(count) != Some(&byte) {
            return self.refuse();
        }
        self.state = State::OwnOpening(quoted, count + 1);
        self.own_opened(quoted, count + 1);
        true
    }

    /// Begins the string if `count` bytes are the whole quote.
    fn own_opened(&mut self, quoted: Quoted, count: usize) {
        if count == self.own_quote().len() {
            self.out.put(b'"');
            self.state = State::String(quoted);
            self.settle_string(quoted);
        }
    }

    /// A byte of such a string that may end it, or that JSON requires to be escaped.
    pub(super) fn own_special(&mut self, quoted: Quoted, byte: u8) -> bool {
        if self.begins_quote(byte) {
            self.out.end_character();
            return self.own_closing(quoted, 0, byte);
        }
        self.own_text(byte);
        self.settle_string(quoted);
        true
    }

    /// After `count` bytes that may end the string.
    pub(super) fn own_closing(&mut self, quoted: Quoted, mut count: usize, byte: u8) -> bool {
        let quote = self.own_quote();
        while quote.get(count) != Some(&byte) {
            self.state = State::String(quoted);
            if count == 0 {
                self.settle_string(quoted);
                return false;
            }
            // The part of these bytes that may still begin the quote.
            let kept = (0..count).rev().find(|&kept| quote[..count].ends_with(&quote[..kept])).unwrap_or(0);
            quote[..count - kept].iter().for_each(|&byte| self.own_text(byte));
            self.settle_string(quoted);
            count = kept;
        }
        if count + 1 == quote.len() {
            self.out.end_character();
            self.out.put(b'"');
            self.end_string(quoted);
        } else {
            self.state = State::OwnClosing(quoted, count + 1);
        }
        true
    }

    fn own_text(&mut self, byte: u8) {
        match byte {
            b'"' | b'\\' => {
                self.out.end_character();
                self.out.text.push('\\');
                self.out.text.push(char::from(byte));
            }
            0..0x20 => self.out.put_control(byte),
            _ => self.out.put(byte),
        }
    }
}

fn quote(single: bool) -> u8 {
    if single { b'\'' } else { b'"' }
}
