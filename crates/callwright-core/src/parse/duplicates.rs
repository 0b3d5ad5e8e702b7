//! Duplicate keys in one object of a call's arguments.
//!
//! JSON allows them, and readers differ in which value they take. Here it is the last one, as in Python and in
//! JavaScript, and each such key is reported: a call must not silently run with an argument that the model did not
//! settle on.

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::map::Entry;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::ops::Range;

/// Maximum number of duplicate keys to report.
const MOST: usize = 128;

/// Number of members to reserve space for.
const MEMBERS: usize = 4;

/// Properties of a JSON object found while reading it.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Duplicate keys in it or in nested objects.
    pub again: Vec<String>,
    /// Whether a number was converted to a double.
    pub double: bool,
}

/// Reads the JSON object in `text`, and its properties.
pub(super) fn read_object(text: &str) -> serde_json::Result<(Map<String, Value>, Seen)> {
    let mut seen = Seen::default();
    let mut json = serde_json::Deserializer::from_str(text);
    let object = json.deserialize_map(Object(&mut seen))?;
    json.end()?;
    Ok((object, seen))
}

/// Reads an object and records its properties.
struct Object<'a>(&'a mut Seen);

impl<'de> Visitor<'de> for Object<'_> {
    type Value = Map<String, Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Map<String, Value>, A::Error> {
        let mut object = Map::with_capacity(MEMBERS);
        while let Some(key) = entries.next_key::<String>()? {
            let value = entries.next_value_seed(Any(self.0))?;
            match object.entry(key) {
                Entry::Vacant(entry) => {
                    entry.insert(value);
                }
                Entry::Occupied(mut entry) => {
                    if self.0.again.len() < MOST {
                        self.0.again.push(entry.key().clone());
                    }
                    entry.insert(value);
                }
            }
        }
        Ok(object)
    }
}

/// The same for any value.
struct Any<'a>(&'a mut Seen);

impl<'de> DeserializeSeed<'de> for Any<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Value, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Any<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        self.0.double = true;
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Any(self.0))? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<Value, A::Error> {
        Object(self.0).visit_map(entries).map(Value::Object)
    }
}

/// Integers with fewer digits are kept exactly.
const DIGITS: usize = 19;

/// The first integer in JSON text that is too large to be kept exactly.
pub(super) fn inexact_number(text: &str) -> Option<&str> {
    let source = text.as_bytes();
    // So many digits in a row have one at such a place.
    if !source.iter().skip(DIGITS - 1).step_by(DIGITS).any(u8::is_ascii_digit) {
        return None;
    }
    let in_number = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-');
    let mut i = 0;
    while i < source.len() {
        let start = i;
        if source[i] == b'"' {
            i = string_end(source, i);
        } else if in_number(&source[i]) {
            i += source[i..].iter().take_while(|byte| in_number(byte)).count();
            let number = &text[start..i];
            let whole = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
            let kept = || number.parse::<f64>().is_ok_and(|double| format!("{double:.0}") == number);
            if whole && number.parse::<i64>().is_err() && number.parse::<u64>().is_err() && !kept() {
                return Some(number);
            }
        } else {
            i += 1;
        }
    }
    None
}

/// Places of duplicate keys in a model's text, in objects and among the arguments of a Python call. They are only used
/// for reporting, so broken text may be read inexactly.
pub(super) fn places(source: &[u8]) -> HashMap<String, VecDeque<Range<usize>>> {
    let mut found: HashMap<String, VecDeque<Range<usize>>> = HashMap::new();
    let mut open: Vec<HashSet<Cow<'_, str>>> = vec![HashSet::new()];
    let mut i = 0;
    while i < source.len() {
        let start = i;
        match source[i] {
            b'"' | b'\'' => i = string_end(source, i),
            b'{' | b'[' | b'(' => {
                open.push(HashSet::new());
                i += 1;
            }
            b'}' | b']' | b')' => {
                if open.len() > 1 {
                    open.pop();
                }
                i += 1;
            }
            byte if in_word(byte) => i += source[i..].iter().take_while(|&&byte| in_word(byte)).count(),
            _ => i += 1,
        }
        let next = source[i..].iter().find(|byte| !byte.is_ascii_whitespace());
        let Some(key) = key(&source[start..i]).filter(|_| matches!(next, Some(b':' | b'='))) else { continue };
        if let Some(keys) = open.last_mut()
            && !keys.insert(key.clone())
        {
            found.entry(key.into_owned()).or_default().push_back(start..i);
        }
    }
    found
}

/// The key in a string or a word.
fn key(written: &[u8]) -> Option<Cow<'_, str>> {
    let text = std::str::from_utf8(written).ok()?;
    match written.first()? {
        b'"' => String::deserialize(&mut serde_json::Deserializer::from_str(text)).ok().map(Cow::Owned),
        b'\'' => Some(Cow::Borrowed(text.trim_matches('\''))),
        &byte => in_word(byte).then_some(Cow::Borrowed(text)),
    }
}

fn in_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'-') || byte >= 0x80
}

/// End of the string that begins at `start`.
fn string_end(source: &[u8], start: usize) -> usize {
    let mut i = start + 1;
    while let Some(&byte) = source.get(i) {
        i += if byte == b'\\' { 2 } else { 1 };
        if byte == source[start] {
            break;
        }
    }
    i.min(source.len())
}
