//! JSON whose numbers keep what was written: integers of any size, and whether a number is an integer or a float.
//!
//! The leaderboard's checker is Python, where `5` and `5.0` are of different types and integers have no bounds.
//! serde_json makes a double of what does not fit 64 bits, which is another number, and refuses `1e400`. Its feature
//! `arbitrary_precision` would keep them, but for the whole program, where nobody else wants it.

use crate::error::{Error, ErrorKind, Location, Result};
use crate::json::caret;
use std::collections::HashMap;

/// How deep lists and objects may stand in one another.
const DEPTH: usize = 200;

/// A JSON value, as Python's `json` module reads it.
#[derive(Debug, Clone, PartialEq)]
pub enum Exact {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number without fraction and exponent: its digits, without leading zeros, behind a `-` where it is negative.
    Int(String),
    /// Any other number.
    Float(f64),
    /// A string.
    Text(String),
    /// A list.
    List(Vec<Exact>),
    /// An object; a key that came twice stands where it came first, with the value that came last.
    Object(Vec<(String, Exact)>),
}

impl Exact {
    /// Reads JSON text.
    ///
    /// # Errors
    /// [`ErrorKind::Syntax`] with line, column and a caret.
    pub fn parse(text: &str) -> Result<Exact> {
        let mut reader = Reader { text, at: 0 };
        let value = reader.value(0).and_then(|value| {
            reader.space();
            if reader.at < text.len() { Err("something stands behind the value") } else { Ok(value) }
        });
        value.map_err(|message| reader.error(message))
    }

    /// The member of that name, if this is an object that has it.
    pub fn get(&self, key: &str) -> Option<&Exact> {
        self.members()?.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// The members of an object.
    pub fn members(&self) -> Option<&[(String, Exact)]> {
        match self {
            Exact::Object(members) => Some(members),
            _ => None,
        }
    }

    /// The elements of a list.
    pub fn elements(&self) -> Option<&[Exact]> {
        match self {
            Exact::List(elements) => Some(elements),
            _ => None,
        }
    }

    /// A string's text.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Exact::Text(text) => Some(text),
            _ => None,
        }
    }

    /// An integer as the double nearest to it; `None` where that would be infinite, and for other values.
    pub fn int_to_float(&self) -> Option<f64> {
        match self {
            Exact::Int(digits) => digits.parse().ok().filter(|double: &f64| double.is_finite()),
            _ => None,
        }
    }

    /// Equality as Python has it: numbers by value, `true` is 1, objects in any order.
    pub fn equals(&self, other: &Exact) -> bool {
        match (self, other) {
            (Exact::Null, Exact::Null) => true,
            (Exact::Text(a), Exact::Text(b)) => a == b,
            (Exact::List(a), Exact::List(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.equals(b)),
            (Exact::Object(a), Exact::Object(b)) => {
                a.len() == b.len() && a.iter().all(|(key, value)| other.get(key).is_some_and(|to| value.equals(to)))
            }
            _ => match (self.number(), other.number()) {
                (Some(Number::Int(a)), Some(Number::Int(b))) => a == b,
                (Some(Number::Float(a)), Some(Number::Float(b))) => a == b,
                (Some(Number::Int(int)), Some(Number::Float(float)))
                | (Some(Number::Float(float)), Some(Number::Int(int))) => {
                    whole(float).is_some_and(|digits| digits == int)
                }
                _ => false,
            },
        }
    }

    fn number(&self) -> Option<Number<'_>> {
        match self {
            Exact::Bool(true) => Some(Number::Int("1")),
            Exact::Bool(false) => Some(Number::Int("0")),
            Exact::Int(digits) => Some(Number::Int(digits)),
            Exact::Float(float) => Some(Number::Float(*float)),
            _ => None,
        }
    }
}

enum Number<'a> {
    Int(&'a str),
    Float(f64),
}

/// The digits of a double that is a whole number: all of them, for doubles are printed exactly.
fn whole(float: f64) -> Option<String> {
    (float.is_finite() && float.fract() == 0.0)
        .then(|| if float == 0.0 { "0".to_owned() } else { format!("{float:.0}") })
}

/// JSON text, on one line.
impl std::fmt::Display for Exact {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Exact::Null => f.write_str("null"),
            Exact::Bool(value) => write!(f, "{value}"),
            Exact::Int(digits) => f.write_str(digits),
            Exact::Float(float) if float.is_finite() => write!(f, "{float:?}"),
            Exact::Float(float) => f.write_str(if *float > 0.0 { "1e999" } else { "-1e999" }),
            Exact::Text(text) => write!(f, "{}", serde_json::Value::from(text.as_str())),
            Exact::List(elements) => {
                f.write_str("[")?;
                for (index, element) in elements.iter().enumerate() {
                    write!(f, "{}{element}", if index > 0 { ", " } else { "" })?;
                }
                f.write_str("]")
            }
            Exact::Object(members) => {
                f.write_str("{")?;
                for (index, (key, value)) in members.iter().enumerate() {
                    let key = serde_json::Value::from(key.as_str());
                    write!(f, "{}{key}: {value}", if index > 0 { ", " } else { "" })?;
                }
                f.write_str("}")
            }
        }
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

type Read<T> = Result<T, &'static str>;

impl Reader<'_> {
    fn error(&self, message: &str) -> Error {
        let location = Location::of_offset(self.text, self.at);
        let (line, column) = (location.line.unwrap_or(1), location.column.unwrap_or(1));
        let shown = caret(self.text.lines().nth(line - 1).unwrap_or(""), line, column - 1);
        Error::new(ErrorKind::Syntax, format!("not valid JSON: {message}")).at(location).excerpt(shown)
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        let there = self.peek() == Some(byte);
        self.at += usize::from(there);
        there
    }

    fn value(&mut self, depth: usize) -> Read<Exact> {
        if depth > DEPTH {
            return Err("too deep");
        }
        self.space();
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.list(depth),
            Some(b'"') => self.string().map(Exact::Text),
            Some(b'-' | b'0'..=b'9') => self.read_number(),
            Some(_) => {
                let words = [("null", Exact::Null), ("true", Exact::Bool(true)), ("false", Exact::Bool(false))];
                let rest = &self.text[self.at..];
                let (word, value) =
                    words.into_iter().find(|(word, _)| rest.starts_with(word)).ok_or("expected a value")?;
                self.at += word.len();
                Ok(value)
            }
            None => Err("the text ends where a value is expected"),
        }
    }

    fn object(&mut self, depth: usize) -> Read<Exact> {
        self.at += 1;
        let mut members: Vec<(String, Exact)> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        self.space();
        if self.take(b'}') {
            return Ok(Exact::Object(members));
        }
        loop {
            self.space();
            if self.peek() != Some(b'"') {
                return Err("expected a key in quotes");
            }
            let key = self.string()?;
            self.space();
            if !self.take(b':') {
                return Err("expected a colon");
            }
            let value = self.value(depth + 1)?;
            match places.get(&key) {
                Some(place) => members[*place].1 = value,
                None => {
                    places.insert(key.clone(), members.len());
                    members.push((key, value));
                }
            }
            self.space();
            if self.take(b'}') {
                return Ok(Exact::Object(members));
            }
            if !self.take(b',') {
                return Err("expected a comma or the object's end");
            }
        }
    }

    fn list(&mut self, depth: usize) -> Read<Exact> {
        self.at += 1;
        let mut elements = Vec::new();
        self.space();
        if self.take(b']') {
            return Ok(Exact::List(elements));
        }
        loop {
            elements.push(self.value(depth + 1)?);
            self.space();
            if self.take(b']') {
                return Ok(Exact::List(elements));
            }
            if !self.take(b',') {
                return Err("expected a comma or the list's end");
            }
        }
    }

    /// A string; what may stand in one is serde_json's to say.
    fn string(&mut self) -> Read<String> {
        let bytes = self.text.as_bytes();
        let mut end = self.at + 1;
        loop {
            match bytes.get(end) {
                Some(b'"') => break,
                Some(b'\\') => end += 2,
                Some(_) => end += 1,
                None => return Err("a string is not closed"),
            }
        }
        let text = self.text.get(self.at..=end).ok_or("a string is not closed")?;
        let read = serde_json::from_str(text).map_err(|_| "a string has a bad escape or a control character")?;
        self.at = end + 1;
        Ok(read)
    }

    fn digits(&mut self) -> Read<()> {
        let from = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at == from { Err("expected a digit") } else { Ok(()) }
    }

    fn read_number(&mut self) -> Read<Exact> {
        let from = self.at;
        let negative = self.take(b'-');
        let first = self.at;
        self.digits()?;
        if self.text[first..self.at].len() > 1 && self.text[first..].starts_with('0') {
            return Err("a number begins with 0");
        }
        let integer = self.at;
        if self.take(b'.') {
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            let _ = self.take(b'+') || self.take(b'-');
            self.digits()?;
        }
        if self.at > integer {
            return self.text[from..self.at].parse().map(Exact::Float).map_err(|_| "not a number");
        }
        let digits = &self.text[first..self.at];
        Ok(Exact::Int(if negative && digits != "0" { format!("-{digits}") } else { digits.to_owned() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn equal(a: &str, b: &str) -> bool {
        Exact::parse(a).unwrap().equals(&Exact::parse(b).unwrap())
    }

    #[test]
    fn numbers_are_equal_by_value_however_large() {
        let googol = format!("1{}", "0".repeat(100));
        let cases = [
            ("5", "5.0", true),
            ("-0", "0", true),
            ("-0.0", "0", true),
            ("true", "1", true),
            ("false", "0.0", true),
            ("\"1\"", "1", false),
            ("null", "0", false),
            // 2^53 is a double, 2^53 + 1 is not.
            ("9007199254740992", "9007199254740992.0", true),
            ("9007199254740993", "9007199254740992.0", false),
            (googol.as_str(), googol.as_str(), true),
            // The double nearest to 10^100 is another number.
            (googol.as_str(), "1e100", false),
            ("[1, {\"a\": 2, \"b\": 3}]", "[1.0, {\"b\": 3, \"a\": 2}]", true),
            ("{\"a\": 1, \"a\": 2}", "{\"a\": 2}", true),
        ];
        for (a, b, expected) in cases {
            assert_eq!(equal(a, b), expected, "{a} {b}");
            assert_eq!(equal(b, a), expected, "{b} {a}");
        }
    }

    #[test]
    fn what_was_written_is_written_again() {
        for text in ["-12345678901234567890123", "5", "5.0", "[1, \"a\\n\", {\"k\": null}]", "{}", "1e999", "true"] {
            assert_eq!(Exact::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_json_says_where() {
        let deep = "[".repeat(100_000);
        for text in [
            "",
            "{",
            "[1,]",
            "{\"a\" 1}",
            "01",
            "1.",
            "-",
            "1 2",
            "\"\\x\"",
            "\"open",
            "\"\\",
            "nul",
            "{a: 1}",
            "[1 2]",
            "1e",
            "\"a\nb\"",
            "{\"a\": 1",
            &deep,
        ] {
            let error = Exact::parse(text).unwrap_err().to_string();
            assert!(error.starts_with("line 1:") && error.contains("not valid JSON"), "{text:.20}: {error:.200}");
        }
    }
}
