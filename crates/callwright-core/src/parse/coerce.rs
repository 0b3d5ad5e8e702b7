//! Coerces values whose type does not match the tool's schema: `"5"` for `5`, `5` for `"5"`, an array in a string. Also
//! drops empty arguments: an optional one that is `null` or `""` if the schema does not allow that.
//!
//! The arguments stream, and events are never revised. A value whose beginning does not match the schema is therefore
//! held until it ends, if it is short. A key is held until its value is known to be neither `null` nor `""`. All other
//! text passes at once.

use super::event::RepairKind;
use super::repair::{Dialect, Stops, Transducer};
use crate::format::schema::{self, Step, Types};
use crate::tool::CallProblem;
use crate::tool::Tools;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Maximum length of a held value.
const WAITING: usize = 4096;
/// Maximum number of dropped arguments per call.
const LEFT_OUT: usize = 64;

/// Reads the JSON of a call's arguments as it streams.
#[derive(Debug)]
pub(crate) struct Coercer {
    tools: Arc<Tools>,
    tool: String,
    path: Vec<Step>,
    /// For each open array, the types of its elements; `None` for an object.
    open: Vec<Option<Types>>,
    state: State,
    key: Vec<u8>,
    /// The held text.
    held: String,
    /// Start of the value in `held`.
    value_at: usize,
    /// Whether a member of an object is held, with the comma before it.
    member: bool,
    /// The key of the last member.
    name: String,
    /// For each open object, whether none of its members was passed on yet.
    bare: Vec<bool>,
    /// How the held text ended, if it did.
    ended: Option<Ended>,
    /// A comma after a dropped member.
    comma: bool,
    /// Number of members considered for dropping.
    looked_at: usize,
    /// The types that the schema allows for the current value.
    types: Types,
    /// Number of argument bytes read.
    at: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before a value.
    Value,
    /// Before a key or the end of an object.
    Key,
    KeyText {
        escape: bool,
    },
    Colon,
    /// In a string that passes.
    Text {
        escape: bool,
    },
    /// In a held string.
    HeldText {
        escape: bool,
    },
    /// In a number or a word that passes or is held.
    Word {
        held: bool,
    },
    AfterValue,
    /// Not JSON, or at its end: everything passes.
    Done,
}

#[derive(Debug, Clone, Copy)]
struct Ended {
    /// Whether it is a whole member.
    member: bool,
    /// Whether the schema requires another type.
    unwanted: bool,
}

/// A value that fits the schema better in another type, or arguments that fit better without it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Coercion {
    pub kind: RepairKind,
    /// Position in the arguments.
    pub start: usize,
    pub written: String,
    pub wanted: String,
}

impl Coercer {
    /// `None` if the tool is unknown or takes no arguments.
    pub(crate) fn new(tools: &Arc<Tools>, tool: &str) -> Option<Coercer> {
        tools.schema(tool)?;
        Some(Coercer {
            tools: Arc::clone(tools),
            tool: tool.to_owned(),
            path: Vec::new(),
            open: Vec::new(),
            state: State::Value,
            key: Vec::new(),
            held: String::new(),
            value_at: 0,
            member: false,
            name: String::new(),
            bare: Vec::new(),
            ended: None,
            comma: false,
            looked_at: 0,
            types: Types::default(),
            at: 0,
        })
    }

    /// Takes text of the arguments and writes what is decided to `out`; returns how much it took. It stops after a
    /// value to coerce.
    pub(crate) fn push(&mut self, text: &str, out: &mut String) -> (usize, Option<Coercion>) {
        let bytes = text.as_bytes();
        // The text before `from` was written or is held.
        let (mut from, mut i) = (0, 0);
        while i < bytes.len() {
            match self.state {
                State::Done => i = bytes.len(),
                State::Text { escape: false } if !self.member => {
                    i += bytes[i..].iter().position(|b| matches!(b, b'"' | b'\\')).unwrap_or(bytes.len() - i);
                }
                _ => {}
            }
            let Some(&byte) = bytes.get(i) else { break };
            let held = self.is_holding();
            if self.state == State::Value {
                self.value_at = if held { self.held.len() + i - from } else { 0 };
            }
            // Released text ends before this byte, which may be inside a character.
            let taken = self.step(byte) && !(held && self.state == State::Done);
            let end = i + usize::from(taken);
            if std::mem::take(&mut self.comma) {
                out.push_str(&text[from..i]);
                self.at += end;
                let (written, wanted) = (",".to_owned(), String::new());
                return (end, Some(Coercion { kind: RepairKind::EmptyArgument, start: self.at - 1, written, wanted }));
            }
            match (held, self.is_holding()) {
                (false, true) => {
                    out.push_str(&text[from..i]);
                    from = i;
                }
                (true, false) => {
                    self.held.push_str(&text[from..end]);
                    from = end;
                    if let Some((kind, written, wanted)) = self.settle(out) {
                        self.at += end;
                        return (end, Some(Coercion { kind, start: self.at - written.len(), written, wanted }));
                    }
                }
                (true, true) if self.held.len() + end - from > WAITING && text.is_char_boundary(end) => {
                    self.held.push_str(&text[from..end]);
                    from = end;
                    self.let_go(out);
                }
                _ => {}
            }
            i = end;
        }
        if self.is_holding() {
            self.held.push_str(&text[from..]);
        } else {
            out.push_str(&text[from..]);
        }
        self.at += bytes.len();
        (bytes.len(), None)
    }

    /// Ends the arguments: held text is written unchanged.
    pub(crate) fn finish(&mut self, out: &mut String) {
        if self.is_holding() {
            out.push_str(&self.held);
        }
        self.state = State::Done;
    }

    fn is_holding(&self) -> bool {
        self.is_unwanted() || self.member && self.state != State::Done
    }

    /// Returns whether the beginning of the current value does not match the schema.
    fn is_unwanted(&self) -> bool {
        matches!(self.state, State::HeldText { .. } | State::Word { held: true })
    }

    /// Releases the held text: writes the part that is right, and returns the replacement of its end.
    fn settle(&mut self, out: &mut String) -> Option<(RepairKind, String, String)> {
        let mut written = std::mem::take(&mut self.held);
        if let Some(ended) = self.ended.take() {
            let value = written.get(self.value_at..).unwrap_or_default();
            if ended.member && matches!(value, "null" | "\"\"") && self.is_nothing(value) {
                return Some((RepairKind::EmptyArgument, written, String::new()));
            }
            if ended.member {
                self.release();
            }
            if let Some(wanted) = coerced(value, self.types).filter(|_| ended.unwanted) {
                let value = written.split_off(self.value_at);
                out.push_str(&written);
                return Some((RepairKind::ValueType, value, wanted));
            }
        }
        out.push_str(&written);
        None
    }

    /// Returns whether the last member is optional and its schema does not allow `value`.
    fn is_nothing(&mut self, value: &str) -> bool {
        let Some(root) = self.tools.schema(&self.tool) else { return false };
        self.looked_at += 1;
        if self.looked_at > LEFT_OUT || !schema::is_optional(root, &self.path, &self.name) {
            return false;
        }
        let value = if value == "null" { Value::Null } else { json!("") };
        let with = self.problems(Value::from_iter([(self.name.clone(), value)]));
        let without = self.problems(json!({}));
        with.iter().any(|problem| !without.contains(problem))
    }

    /// The problems of arguments that consist of this object at the current path.
    fn problems(&self, object: Value) -> Vec<CallProblem> {
        let around = |value, step: &Step| match step {
            Step::Member(key) => Value::from_iter([(key.clone(), value)]),
            Step::Item => json!([value]),
        };
        let arguments = match self.path.iter().rev().fold(object, around) {
            Value::Object(arguments) => arguments,
            _ => Map::new(),
        };
        self.tools.problems(&self.tool, &arguments)
    }

    /// Passes the held member on.
    fn release(&mut self) {
        self.member = false;
        if let Some(bare) = self.bare.last_mut() {
            *bare = false;
        }
    }

    /// Releases text that has become too long.
    fn let_go(&mut self, out: &mut String) {
        out.push_str(&self.held);
        self.held.clear();
        if self.member {
            self.release();
        }
        self.state = match self.state {
            State::HeldText { escape } => State::Text { escape },
            State::Word { .. } => State::Word { held: false },
            state => state,
        };
    }

    /// Takes one byte; false if it has to be looked at again in the new state.
    fn step(&mut self, byte: u8) -> bool {
        let blank = matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
        self.state = match self.state {
            state @ (State::Value | State::Key | State::Colon | State::AfterValue) if blank => state,
            State::Value => return self.value(byte),
            State::Key => match byte {
                b'"' => {
                    self.key.clear();
                    self.member = true;
                    State::KeyText { escape: false }
                }
                b'}' => return self.close(),
                b',' => State::Key,
                _ => State::Done,
            },
            State::KeyText { escape } => match byte {
                b'"' if !escape => {
                    let key = String::from_utf8_lossy(&self.key);
                    let read: Result<String, _> = serde_json::from_str(&format!("\"{key}\""));
                    self.name = read.unwrap_or_else(|_| key.into_owned());
                    self.path.push(Step::Member(self.name.clone()));
                    State::Colon
                }
                _ => {
                    // No parameter has such a long name.
                    if self.key.len() < WAITING {
                        self.key.push(byte);
                    }
                    State::KeyText { escape: !escape && byte == b'\\' }
                }
            },
            State::Colon if byte == b':' => State::Value,
            State::Text { escape } => match byte {
                b'"' if !escape => return self.end_value(true),
                _ if self.member => {
                    self.release();
                    return false;
                }
                _ => State::Text { escape: !escape && byte == b'\\' },
            },
            State::HeldText { escape } => match byte {
                b'"' if !escape => return self.end_value(true),
                _ => State::HeldText { escape: !escape && byte == b'\\' },
            },
            State::Word { .. } if blank || matches!(byte, b',' | b'}' | b']') => return self.end_value(false),
            state @ State::Word { .. } => state,
            State::AfterValue => match (byte, self.open.last()) {
                (b',', Some(None)) => {
                    self.comma = self.bare.last() == Some(&true);
                    self.member = !self.comma;
                    State::Key
                }
                (b',', Some(Some(_))) => State::Value,
                (b'}' | b']', Some(_)) => return self.close(),
                _ => State::Done,
            },
            State::Colon | State::Done => State::Done,
        };
        true
    }

    fn value(&mut self, byte: u8) -> bool {
        let types = match self.open.last() {
            Some(Some(types)) => *types,
            _ => self.types_at(),
        };
        self.types = types;
        let unwanted = |kinds: Types| !types.is_unknown() && !types.has(kinds);
        if self.member && !matches!(byte, b'"' | b'n') {
            self.release();
            return false;
        }
        self.state = match byte {
            b'"' if unwanted(Types::STRING) => State::HeldText { escape: false },
            b'"' => State::Text { escape: false },
            b'{' => {
                self.open.push(None);
                self.bare.push(true);
                State::Key
            }
            b'[' => {
                self.path.push(Step::Item);
                let items = self.types_at();
                self.open.push(Some(items));
                State::Value
            }
            b']' if self.open.last().is_some_and(Option::is_some) => return self.close(),
            b'-' | b'0'..=b'9' => {
                State::Word { held: types.has(Types::STRING) && unwanted(Types::NUMBER.or(Types::INTEGER)) }
            }
            b't' | b'f' => State::Word { held: types.has(Types::STRING) && unwanted(Types::BOOLEAN) },
            b'n' => State::Word { held: false },
            _ => State::Done,
        };
        true
    }

    /// The types of the value at the current path.
    fn types_at(&self) -> Types {
        let schema = self.tools.schema(&self.tool);
        schema.map_or(Types::default(), |schema| schema::types(schema, &self.path))
    }

    fn end_value(&mut self, taken: bool) -> bool {
        if self.is_holding() {
            self.ended = Some(Ended { member: self.member, unwanted: self.is_unwanted() });
            self.member = false;
        }
        self.state = State::AfterValue;
        // The path leads to the array, or to the object whose next key comes.
        match self.open.last() {
            Some(None) => drop(self.path.pop()),
            Some(Some(_)) => {}
            None => self.state = State::Done,
        }
        taken
    }

    fn close(&mut self) -> bool {
        match self.open.pop() {
            Some(Some(_)) => drop(self.path.pop()),
            Some(None) => drop(self.bare.pop()),
            None => {}
        }
        self.end_value(true)
    }
}

/// The value's JSON in one of the types that the schema allows, if it can be converted.
fn coerced(written: &str, types: Types) -> Option<String> {
    if !written.starts_with('"') {
        return Some(format!("\"{written}\""));
    }
    let text: String = serde_json::from_str(written).ok()?;
    let text = text.trim();
    let number = || match serde_json::from_str(text) {
        Ok(Value::Number(number)) => Some(number),
        _ => None,
    };
    if types.has(Types::INTEGER.or(Types::NUMBER))
        && let Some(number) = number()
    {
        let whole = number.is_i64() || number.is_u64();
        if whole || types.has(Types::NUMBER) {
            return Some(text.to_owned());
        }
        let (digits, rest) = text.split_once('.')?;
        return (rest.bytes().all(|b| b == b'0')).then(|| digits.to_owned());
    }
    if types.has(Types::BOOLEAN)
        && let Some(word) = ["true", "false"].into_iter().find(|word| text.eq_ignore_ascii_case(word))
    {
        return Some(word.to_owned());
    }
    if types.has(Types::NULL) && ["null", "none"].iter().any(|word| text.eq_ignore_ascii_case(word)) {
        return Some("null".to_owned());
    }
    let kind = match text.as_bytes().first() {
        Some(b'{') => Types::OBJECT,
        Some(b'[') => Types::ARRAY,
        _ => return None,
    };
    if !types.has(kind) {
        return None;
    }
    let is_json = |text: &str| serde_json::from_str::<Value>(text).is_ok();
    if is_json(text) { Some(text.to_owned()) } else { from_python(text).filter(|json| is_json(json)) }
}

/// The JSON of a list or an object that Python printed: templates write arguments so that are no texts.
fn from_python(text: &str) -> Option<String> {
    let call = format!("(value={text})");
    let mut reader = Transducer::of(Dialect::PythonCall, false);
    let taken = reader.feed(call.as_bytes(), 0, Stops::plain(), false);
    let whole = taken == call.len() && reader.is_done() && reader.broken_at().is_none();
    let json = reader.take_text(String::new());
    let value = json.strip_prefix("{\"value\": ").and_then(|json| json.strip_suffix('}'));
    value.filter(|_| whole).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tools() -> Arc<Tools> {
        let tools = json!([{"name": "f", "parameters": {"type": "object", "properties": {
            "n": {"type": "integer"}, "x": {"type": ["number", "null"]}, "b": {"type": "boolean"},
            "s": {"type": "string"}, "any": {}, "list": {"type": "array", "items": {"type": "integer"}},
            "point": {"type": "object", "properties": {"x": {"type": "number"}, "name": {"type": "string"}}}
        }}}]);
        Arc::new(Tools::from_value(&tools).unwrap())
    }

    fn coerce(pieces: &[&str]) -> (String, Vec<Coercion>) {
        let mut coercer = Coercer::new(&tools(), "f").unwrap();
        let (mut out, mut found) = (String::new(), Vec::new());
        for piece in pieces {
            let mut rest = *piece;
            loop {
                let (taken, coercion) = coercer.push(rest, &mut out);
                rest = &rest[taken..];
                let Some(coercion) = coercion else { break };
                out.push_str(&coercion.wanted);
                found.push(coercion);
            }
        }
        coercer.finish(&mut out);
        (out, found)
    }

    #[test]
    fn values_of_the_wrong_type() {
        for (written, wanted) in [
            (r#"{"n": "5", "s": "5", "any": "5"}"#, r#"{"n": 5, "s": "5", "any": "5"}"#),
            (r#"{"n": "5.0", "x": " 1e3 "}"#, r#"{"n": 5, "x": 1e3}"#),
            (r#"{"n": "five", "b": "yes", "x": ""}"#, r#"{"n": "five", "b": "yes"}"#),
            (r#"{"n": null, "s": "", "x": null}"#, r#"{ "s": "", "x": null}"#),
            (r#"{"n": null, "b": "", "s": null}"#, r#"{  }"#),
            (r#"{"s": null, "n": "5", "point": {"x": "", "name": null}, "b": null}"#, r#"{ "n": 5, "point": { }}"#),
            (r#"{"point": {"name": "a", "x": null}, "any": null}"#, r#"{"point": {"name": "a"}, "any": null}"#),
            (r#"{"list": ["", null], "unknown": null}"#, r#"{"list": ["", null], "unknown": null}"#),
            (r#"{"b": "True", "x": "none"}"#, r#"{"b": true, "x": null}"#),
            (r#"{"s": 5, "any": 5}"#, r#"{"s": "5", "any": 5}"#),
            (r#"{"s": true, "n": 1}"#, r#"{"s": "true", "n": 1}"#),
            (r#"{"list": ["1", 2, "a\"b"]}"#, r#"{"list": [1, 2, "a\"b"]}"#),
            (
                r#"{"list": "[1, '2', None, \"a\"]", "point": "{'x': True}"}"#,
                r#"{"list": [1, "2", null, "a"], "point": {"x": true}}"#,
            ),
            (r#"{"list": "[1, 2", "point": "{x: 1}"}"#, r#"{"list": "[1, 2", "point": "{x: 1}"}"#),
            (r#"{"list": "[1, 2]", "point": "{}"}"#, r#"{"list": [1, 2], "point": {}}"#),
            (r#"{"point": {"x": "1.5", "name": 7}, "n": "1"}"#, r#"{"point": {"x": 1.5, "name": "7"}, "n": 1}"#),
            (r#"{"list": [], "point": {}, "n": "1"}"#, r#"{"list": [], "point": {}, "n": 1}"#),
            (r#"{"s": "é\u00e9 \"", "ü": 1, "n": "é"}"#, r#"{"s": "é\u00e9 \"", "ü": 1, "n": "é"}"#),
            (r#"[1, "2"}, {"n": "3"}"#, r#"[1, "2"}, {"n": "3"}"#),
            (r#"{"n": "5"#, r#"{"n": "5"#),
        ] {
            let whole = coerce(&[written]);
            assert_eq!(whole.0, wanted, "{written}");
            for coercion in &whole.1 {
                assert!(written[coercion.start..].starts_with(&coercion.written));
            }
            for (at, _) in written.char_indices() {
                assert_eq!(coerce(&[&written[..at], &written[at..]]), whole, "{written}");
            }
        }
    }

    #[test]
    fn a_long_value_does_not_wait() {
        let long = format!(r#"{{"n": "{}"}}"#, "5".repeat(10_000));
        assert_eq!(coerce(&[&long]), (long.clone(), Vec::new()));
    }
}
