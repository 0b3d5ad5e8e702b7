//! The arguments of a call that lost its special tokens, and with them the quotes of its strings:
//! `{content:hello,path:a.txt}`.
//!
//! The end of a string is only known at the next argument or at the closing brace, so the whole object is collected,
//! quoted, and passed on.

use crate::format::schema;
use crate::parse::calls::{Calls, Ending};
use crate::parse::markers::Context;
use crate::parse::payload::json::JsonPayload;
use crate::parse::payload::{PayloadReader, Terminator, Then};
use crate::parse::repair::{Dialect, Stops};
use std::sync::Arc;

/// The quotes of Gemma 4 and of FunctionGemma, and the character that replaces them as the end of a string.
const QUOTES: [(u8, &str); 2] = [(b'|', "<|\"|>"), (b'>', "<escape>")];

/// Reads the arguments of one such call, starting at the brace.
#[derive(Debug)]
pub(crate) struct BareArguments {
    json: JsonPayload,
    text: Vec<u8>,
    /// Start of the object in the model's text.
    start: usize,
    depth: usize,
    /// The end of the open string: a quote, or one of [`QUOTES`].
    string: Option<u8>,
    /// The last byte that is not white space, and whether the last byte escapes the next one.
    last: u8,
    escape: bool,
    /// Positions of the commas between members.
    commas: Vec<usize>,
    done: bool,
}

impl BareArguments {
    pub(crate) fn new(repair: bool) -> BareArguments {
        BareArguments {
            json: reader("", repair),
            text: Vec::new(),
            start: 0,
            depth: 0,
            string: None,
            last: b':',
            escape: false,
            commas: Vec::new(),
            done: false,
        }
    }

    fn step(&mut self, byte: u8) {
        self.text.push(byte);
        let escaped = std::mem::take(&mut self.escape);
        let own = QUOTES.iter().find(|(_, quote)| self.text.ends_with(quote.as_bytes())).map(|(end, _)| *end);
        match self.string {
            Some(b'|' | b'>') if self.string == own => self.string = None,
            Some(b'|' | b'>') => {}
            Some(_) if byte == b'\\' && !escaped => self.escape = true,
            Some(quote) if byte == quote && !escaped => self.string = None,
            Some(_) => {}
            None if own.is_some() => self.string = own,
            // A quote inside a text is part of it.
            None if matches!(byte, b'"' | b'\'') && b":,[{".contains(&self.last) => self.string = Some(byte),
            None => match byte {
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    self.done = self.depth == 0;
                }
                b',' if self.depth == 1 => self.commas.push(self.text.len() - 1),
                _ => {}
            },
        }
        if !byte.is_ascii_whitespace() {
            self.last = byte;
        }
    }

    /// The object with its strings in quotes.
    fn quoted(&self, calls: &Calls) -> String {
        let text = String::from_utf8_lossy(&self.text).into_owned();
        let whole = text.strip_prefix('{').and_then(|text| text.strip_suffix('}'));
        let (Some(whole), true) = (whole, text.len() == self.text.len()) else { return text };
        let names = calls.schema().map(schema::names).unwrap_or_default();
        let key = |member: &str| {
            let key = member.split_once(':')?.0.trim().trim_matches(['"', '\'']);
            let word = !key.is_empty() && key.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '$'));
            (word && (names.is_empty() || names.iter().any(|name| *name == key))).then(|| key.to_owned())
        };
        let mut members: Vec<String> = Vec::new();
        let mut from = 0;
        for to in self.commas.iter().map(|comma| comma - 1).chain([whole.len()]) {
            let member = &whole[from..to];
            match members.last_mut() {
                Some(last) if key(member).is_none() => *last = format!("{last},{member}"),
                _ => members.push(member.to_owned()),
            }
            from = to + 1;
        }
        let member = |member: String| match member.split_once(':') {
            Some((key, value)) => format!("{key}:{}", quoted(value)),
            None => member,
        };
        format!("{{{}}}", members.into_iter().map(member).collect::<Vec<_>>().join(","))
    }

    /// Passes the arguments on.
    fn pass_on(&mut self, stops: &Stops, calls: &mut Calls) {
        let text = self.quoted(calls);
        calls.translate(self.start..self.start + self.text.len());
        self.json = reader(&text, calls.repair);
        self.json.expect_arguments(false);
        self.json.feed(text.as_bytes(), self.start, stops, false, calls);
    }
}

fn reader(text: &str, repair: bool) -> JsonPayload {
    let quote = QUOTES.iter().find(|(_, quote)| text.contains(quote)).map(|(_, quote)| Arc::from(quote.as_bytes()));
    JsonPayload::arguments_only(&Dialect::Own { quote, bare_keys: true }, true, repair)
}

/// A value, quoted if it is unquoted text.
fn quoted(value: &str) -> String {
    let value = value.trim();
    if let Some((_, quote)) = QUOTES.iter().find(|(_, quote)| value.contains(quote)) {
        // Every second part is a string.
        let part = |(index, part): (usize, &str)| match index % 2 {
            0 => part.to_owned(),
            _ => serde_json::Value::from(part).to_string(),
        };
        return value.split(quote).enumerate().map(part).collect();
    }
    let whole = value.starts_with(['{', '[', '"', '\'']);
    if whole || serde_json::from_str::<serde_json::Value>(value).is_ok() {
        return value.to_owned();
    }
    serde_json::Value::from(value).to_string()
}

impl PayloadReader for BareArguments {
    fn read(&mut self, input: &[u8], at: usize, stops: &Stops, _: bool, calls: &mut Calls) -> (usize, Then) {
        if self.text.is_empty() {
            self.start = at;
        }
        for (index, byte) in input.iter().enumerate() {
            if self.done {
                return (index, Then::More);
            }
            self.step(*byte);
            if self.done {
                self.pass_on(stops, calls);
            }
        }
        (input.len(), Then::More)
    }

    fn flush(&mut self, calls: &mut Calls) {
        if self.done {
            self.json.flush(calls);
        }
    }

    fn context(&self) -> Context {
        Context::Raw
    }

    fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    fn is_closed(&self) -> bool {
        self.done
    }

    fn end(&mut self, by: Terminator, tail: &[u8], at: usize, stops: &Stops, calls: &mut Calls) -> Ending {
        if !self.done {
            self.pass_on(stops, calls);
        }
        self.json.end(by, tail, at, stops, calls)
    }

    fn next_call(&mut self) {
        self.reset();
    }

    fn reset(&mut self) {
        *self = BareArguments::new(true);
    }
}
