//! JSON with exact numbers: integers of any size, and a distinction between integers and floats.
//!
//! The leaderboard's checker is Python, where `5` and `5.0` have different types and integers have no bounds.
//! serde_json's own values turn integers beyond 64 bits into doubles and refuse `1e400`; its feature
//! `arbitrary_precision` would change numbers in the whole program. So serde_json checks the text, and this module
//! converts its raw parts.

use callwright::error::{Error, ErrorKind, Result};
use indexmap::IndexMap;
use serde_json::value::RawValue;

/// How deeply lists and objects may be nested.
const DEPTH: usize = 200;

/// A JSON value, as Python's `json` module reads it.
#[derive(Debug, Clone, PartialEq)]
pub enum Exact {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number without fraction and exponent: its digits, with a `-` before them where it is negative.
    Int(String),
    /// Any other number.
    Float(f64),
    /// A string.
    Text(String),
    /// A list.
    List(Vec<Exact>),
    /// An object; a repeated key has its first position and its last value.
    Object(Vec<(String, Exact)>),
}

impl Exact {
    /// Reads JSON text.
    ///
    /// # Errors
    /// [`ErrorKind::Syntax`] with line, column and a caret.
    pub fn parse(text: &str) -> Result<Exact> {
        let raw: &RawValue = serde_json::from_str(text).map_err(|source| syntax(text, 0, &source))?;
        read(raw.get(), text, 0)
    }

    /// The member with that name, if this is an object that has one.
    pub fn get(&self, key: &str) -> Option<&Exact> {
        self.members()?.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// The members of an object.
    pub(crate) fn members(&self) -> Option<&[(String, Exact)]> {
        match self {
            Exact::Object(members) => Some(members),
            _ => None,
        }
    }

    /// The elements of a list.
    pub(crate) fn elements(&self) -> Option<&[Exact]> {
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

    /// The double nearest to an integer; `None` where it would be infinite, and for other values.
    pub(crate) fn int_to_float(&self) -> Option<f64> {
        match self {
            Exact::Int(digits) => digits.parse().ok().filter(|double: &f64| double.is_finite()),
            _ => None,
        }
    }

    /// Python's equality: numbers by value, `true` is 1, objects in any order.
    pub(crate) fn equals(&self, other: &Exact) -> bool {
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

/// All digits of a double that is a whole number: Rust prints doubles exactly.
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

/// Converts `text`, a part of `whole` that serde_json found to be one value.
fn read(text: &str, whole: &str, depth: usize) -> Result<Exact> {
    // `text` is a slice of `whole`.
    let offset = text.as_ptr() as usize - whole.as_ptr() as usize;
    if depth > DEPTH {
        return Err(error(whole, offset, "too deep"));
    }
    let failed = |source: serde_json::Error| syntax(whole, offset, &source);
    let inner = |raw: &RawValue| read(raw.get(), whole, depth + 1);
    Ok(match text.as_bytes().first() {
        Some(b'{') => {
            let members: IndexMap<String, &RawValue> = serde_json::from_str(text).map_err(failed)?;
            Exact::Object(members.into_iter().map(|(key, raw)| Ok((key, inner(raw)?))).collect::<Result<_>>()?)
        }
        Some(b'[') => {
            let elements: Vec<&RawValue> = serde_json::from_str(text).map_err(failed)?;
            Exact::List(elements.into_iter().map(inner).collect::<Result<_>>()?)
        }
        Some(b'"') => Exact::Text(serde_json::from_str(text).map_err(failed)?),
        Some(b'n') => Exact::Null,
        Some(b't' | b'f') => Exact::Bool(text == "true"),
        _ if text == "-0" => Exact::Int("0".to_owned()),
        _ if text.contains(['.', 'e', 'E']) => {
            Exact::Float(text.parse().map_err(|_| error(whole, offset, "not a number"))?)
        }
        _ => Exact::Int(text.to_owned()),
    })
}

/// serde_json's error about the part of `whole` from `offset` on.
fn syntax(whole: &str, offset: usize, source: &serde_json::Error) -> Error {
    let message = source.to_string();
    // The message ends with the position, which the location has.
    let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(before, _)| before);
    let lines = whole[offset..].split_inclusive('\n').take(source.line().saturating_sub(1));
    let at = match source.is_eof() {
        true => whole.len(),
        false => offset + lines.map(str::len).sum::<usize>() + source.column().saturating_sub(1),
    };
    error(whole, (0..=at.min(whole.len())).rev().find(|at| whole.is_char_boundary(*at)).unwrap_or(0), message)
}

fn error(whole: &str, at: usize, message: &str) -> Error {
    Error::new(ErrorKind::Syntax, format!("not valid JSON: {message}")).marked(whole, at..at)
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
