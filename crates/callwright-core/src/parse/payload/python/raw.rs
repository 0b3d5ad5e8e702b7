//! The arguments of a call whose template writes values as they are: `(code=ZX-41, note="so "it" was")`.
//!
//! Without quotes, or with quotes inside quotes, a value ends only where another argument or call begins, or the list
//! ends. So the arguments are collected, and each value that is no literal of Python is written as a string of it.

use crate::parse::repair::{Dialect, Stops, Transducer};
use serde_json::Value;

/// Maximum length of what follows a parenthesis, until it is known whether it closes the call.
const FOLLOWING: usize = 256;

/// Arguments from the opening parenthesis on, while they come.
#[derive(Debug, Default)]
pub(super) struct RawArguments {
    text: Vec<u8>,
    depth: usize,
    /// The quote of the open string, and whether it may have closed already.
    string: Option<u8>,
    closing: bool,
    escape: bool,
    /// The last byte that is not white space.
    last: u8,
    /// Positions of commas between arguments, and of a parenthesis that may close the call.
    commas: Vec<usize>,
    close: Option<usize>,
}

impl RawArguments {
    /// Takes one byte. If the call ends, returns how many bytes after its parenthesis were taken. `listed` is whether
    /// the call is in a list.
    pub(super) fn push(&mut self, byte: u8, listed: bool) -> Option<usize> {
        self.text.push(byte);
        self.step(byte);
        let close = self.close.filter(|close| close + 1 < self.text.len())?;
        match follows(&self.text[close + 1..], listed) {
            Some(true) => {
                let after = self.text.len() - close - 1;
                self.text.truncate(close + 1);
                Some(after)
            }
            Some(false) => {
                self.close = None;
                None
            }
            None => None,
        }
    }

    fn step(&mut self, byte: u8) {
        let at = self.text.len() - 1;
        let blank = byte.is_ascii_whitespace();
        let escaped = std::mem::take(&mut self.escape);
        if let Some(quote) = self.string {
            if self.closing && matches!(byte, b',' | b')' | b']' | b'}' | b':') {
                (self.string, self.closing) = (None, false);
            } else {
                // A quote that more text follows is part of it.
                self.closing = byte == quote && !escaped || self.closing && blank;
                self.escape = byte == b'\\' && !escaped;
                return;
            }
        }
        let begins = if self.depth > 0 { b",[{:".contains(&self.last) } else { matches!(self.last, b'=' | b'(') };
        match byte {
            b'"' | b'\'' if begins => self.string = Some(byte),
            b'[' | b'{' if begins || self.depth > 0 => self.depth += 1,
            b']' | b'}' => self.depth = self.depth.saturating_sub(1),
            b',' if self.depth == 0 => self.commas.push(at),
            b')' if self.depth == 0 => self.close = Some(at),
            _ => {}
        }
        if !blank {
            self.last = byte;
        }
    }

    /// The text ends: only brackets follow the last parenthesis of the call, unless it was cut off.
    pub(super) fn end(&mut self) {
        let end = self.text.iter().rposition(|byte| !byte.is_ascii_whitespace() && *byte != b']');
        if let Some(end) = end.filter(|end| self.text[*end] == b')') {
            self.text.truncate(end + 1);
        }
    }

    /// The arguments as Python writes them. `names` are those of the tool's parameters, empty if unknown.
    pub(super) fn quoted(&self, names: &[String]) -> String {
        let text = String::from_utf8_lossy(&self.text).into_owned();
        // Positions are those of the bytes.
        let Some(inner) = text.strip_prefix('(').filter(|_| text.len() == self.text.len()) else { return text };
        let (inner, end) = inner.strip_suffix(')').map_or((inner, ""), |inner| (inner, ")"));
        let key = |member: &str| {
            let key = member.split_once('=')?.0.trim();
            let word = !key.is_empty() && key.chars().all(|c| c.is_alphanumeric() || c == '_');
            (word && (names.is_empty() || names.iter().any(|name| name == key))).then_some(())
        };
        let mut members: Vec<&str> = Vec::new();
        let mut from = 0;
        for to in self.commas.iter().map(|comma| comma - 1).chain([inner.len()]).filter(|to| *to <= inner.len()) {
            if to < inner.len() && key(&inner[to + 1..]).is_none() {
                continue;
            }
            members.push(&inner[from..to]);
            from = (to + 1).min(inner.len());
        }
        let member = |member: &&str| match member.split_once('=').filter(|_| key(member).is_some()) {
            Some((key, value)) => format!("{key}={}", value_of(value.trim())),
            None => (*member).to_owned(),
        };
        format!("({}{end}", members.iter().map(member).collect::<Vec<_>>().join(","))
    }

    pub(super) fn len(&self) -> usize {
        self.text.len()
    }
}

/// Whether a call ends before `text`; `None` if that is unknown yet.
fn follows(text: &[u8], listed: bool) -> Option<bool> {
    let rest = text.trim_ascii_start();
    let Some((first, rest)) = rest.split_first() else {
        let ends_line = !listed && text.contains(&b'\n');
        return if ends_line { Some(true) } else { (text.len() > FOLLOWING).then_some(false) };
    };
    match first {
        b']' if listed => Some(true),
        b',' if listed => {
            let name = rest.trim_ascii_start();
            let length = name.iter().take_while(|byte| super::in_name(**byte)).count();
            match name.get(length) {
                Some(b'(') => Some(length > 0),
                None if rest.len() <= FOLLOWING => None,
                _ => Some(false),
            }
        }
        _ => Some(false),
    }
}

/// A value as Python writes it.
fn value_of(value: &str) -> String {
    let mut literal = Transducer::of(Dialect::PythonCall, false);
    let call = format!("(value={value})");
    let taken = literal.feed(call.as_bytes(), 0, Stops::plain(), false);
    let whole = taken == call.len() && literal.is_done() && literal.broken_at().is_none();
    if whole && literal.take_report().is_none() {
        return value.to_owned();
    }
    let mut quotes = ['"', '\''].into_iter();
    let inner = quotes.find_map(|quote| value.strip_prefix(quote)?.strip_suffix(quote));
    // JSON's escapes are also Python's.
    Value::from(inner.unwrap_or(value)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, listed: bool) -> (String, String) {
        let mut raw = RawArguments::default();
        let mut rest = String::new();
        for (at, byte) in text.bytes().enumerate() {
            if let Some(after) = raw.push(byte, listed) {
                text[at + 1 - after..].clone_into(&mut rest);
                break;
            }
        }
        raw.end();
        let names = ["a", "b"].map(str::to_owned);
        (raw.quoted(&names), rest)
    }

    #[test]
    fn values_end_at_the_next_argument_or_at_the_end_of_the_call() {
        for (text, quoted, rest) in [
            ("(a=ZX-41)]", r#"(a="ZX-41")"#, "]"),
            ("(a=True, b=-3)]", "(a=True, b=-3)", "]"),
            ("(a=x, y, b=(z), c=1), f(a=1)]", r#"(a="x, y", b="(z), c=1")"#, ", f(a=1)]"),
            ("(a=it's, b='so')]", r#"(a="it's", b='so')"#, "]"),
            (r#"(a="He said "go" now", b="x\" y")]"#, r#"(a="He said \"go\" now", b="x\" y")"#, "]"),
            ("(a=['x)', \"y]\"], b={'c': [1]})]", "(a=['x)', \"y]\"], b={'c': [1]})", "]"),
            ("(a=[x) y)]", r#"(a="[x) y")"#, ""),
            ("()]", "()", "]"),
            ("(a=x) , f ()]", r#"(a="x) , f (")"#, "]"),
            ("(a=\u{f6}\u{2191}, b=\u{f6})\n]", "(a=\"\u{f6}\u{2191}\", b=\"\u{f6}\")", "\n]"),
            ("(a=x", r#"(a="x""#, ""),
        ] {
            let (got, left) = read(text, true);
            assert_eq!((got.as_str(), left.as_str()), (quoted, rest), "{text}");
        }
        assert_eq!(read("(a=x)\nf(a=1)", false), (r#"(a="x")"#.to_owned(), "\nf(a=1)".to_owned()));
    }
}
