//! Finds one call in rendered text, and its kind.

use super::renders::Sentinel;
use serde_json::{Map, Value};
use std::ops::Range;

/// A call found in rendered text.
#[derive(Debug, Clone)]
pub struct Reading {
    /// From the first variable part of the call (an object's brace, the name, the id) to the last.
    pub unit: Range<usize>,
    /// The kind of call.
    pub kind: Kind,
    /// Whether the arguments are printed as a Python dict.
    pub python_literals: bool,
}

/// How a call is written.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// One JSON object.
    Json { name: String, arguments: String, id: Option<String>, arguments_are_text: bool, wrapped: bool },
    /// One JSON object whose key is the name.
    Keyed,
    /// The name, then an object.
    Named { head: String, quote: Option<String>, bare_keys: bool, arguments_are_text: bool },
    /// The name, then tags; from the first key, the texts before, between and after keys and values.
    Tagged { head: String, key_to_value: String, value_to_key: String },
    /// `name(key=value)`.
    Python,
}

impl Kind {
    /// Returns whether the name is in a text before the arguments.
    pub fn has_head(&self) -> bool {
        matches!(self, Kind::Named { .. } | Kind::Tagged { .. })
    }

    /// Returns whether the arguments are in a string.
    pub fn arguments_are_text(&self) -> bool {
        matches!(self, Kind::Json { arguments_are_text: true, .. } | Kind::Named { arguments_are_text: true, .. })
    }
}

/// Finds the call in `text`, starting at `from`. The caller determines the end of a tagged call.
pub fn read(text: &str, from: usize, call: &Sentinel) -> Option<Reading> {
    let [(first_key, first), (second_key, second)] = call.arguments else { return None };
    let value = from + text[from..].find(first)?;
    let last = value + text[value..].find(second)?;
    // In an object, the name may come after the arguments.
    let name = text[from..value].rfind(call.name).map(|at| from + at);
    if let Some(reading) = json_object(text, from, value, call) {
        return Some(reading);
    }
    let name = name?;
    let after_name = name + call.name.len();
    let before_arguments = &text[after_name..value];
    let id_before = text[from..name].rfind(call.id).map(|at| from + at);
    let start = id_before.unwrap_or(name);
    let head = |end: usize| text[start..end].replacen(call.name, "{name}", 1).replacen(call.id, "{id}", 1);
    let found = |end: usize, kind| Reading { unit: start..end, kind, python_literals: false };

    let openings = ['{', '"'].into_iter().filter_map(|opening| before_arguments.find(opening));
    for brace in openings.map(|at| after_name + at) {
        let Some((object, length, python_literals)) = value_at(&text[brace..]) else { continue };
        if arguments(&object).is_some_and(|object| object == call.object()) {
            let arguments_are_text = object.is_string();
            let kind = Kind::Named { head: head(brace), quote: None, bare_keys: false, arguments_are_text };
            return Some(Reading { python_literals, ..found(brace + length, kind) });
        }
    }
    let brace = before_arguments.find('{').map(|at| after_name + at);
    let own = brace.and_then(|brace| Some((brace, dialect(&text[brace..], first_key, first)?)));
    if let Some((brace, (quote, bare_keys))) = own {
        let after = last + second.len() + quote.len();
        let end = after + text.get(after..)?.find('}')? + 1;
        let quote = Some(quote).filter(|quote| quote != "\"");
        return Some(found(end, Kind::Named { head: head(brace), quote, bare_keys, arguments_are_text: false }));
    }
    let key = after_name + before_arguments.find(first_key)?;
    if text[after_name..key].trim() == "(" && text[key + first_key.len()..value].trim_start().starts_with('=') {
        let end = last + second.len();
        return Some(found(end + text[end..].find(')')? + 1, Kind::Python));
    }
    let value_end = value + first.len();
    let next = value_end + text.get(value_end..last)?.find(second_key)?;
    let kind = Kind::Tagged {
        head: head(key),
        key_to_value: text[key + first_key.len()..value].to_owned(),
        value_to_key: text[value_end..next].replace(first_key, "{key}"),
    };
    Some(found(last + second.len(), kind))
}

/// The innermost object around the call's parts that has the name as a member.
fn json_object(text: &str, from: usize, value: usize, call: &Sentinel) -> Option<Reading> {
    let mut end = value;
    while let Some(brace) = text[from..end].rfind('{').map(|at| from + at) {
        end = brace;
        let Some((parsed, length, python_literals)) = value_at(&text[brace..]) else { continue };
        let Some(object) = parsed.as_object() else { continue };
        let key = |wanted: &dyn Fn(&Value) -> bool| object.iter().find(|(_, v)| wanted(v)).map(|(key, _)| key.clone());
        let expected = call.object();
        let keyed = object.get(call.name).and_then(Value::as_object);
        if object.len() == 1 && keyed == Some(&expected) {
            return Some(Reading { unit: brace..brace + length, kind: Kind::Keyed, python_literals });
        }
        let Some(name) = key(&|value| value == call.name) else { continue };
        let Some(arguments) = key(&|value| arguments(value).is_some_and(|found| found == expected)) else { continue };
        let arguments_are_text = object[&arguments].is_string();
        let mut id = key(&|value| value == call.id);
        let mut unit = brace..brace + length;
        let outer = enclosing(&text[from..], unit.start - from, &parsed);
        if let Some((span, object)) = &outer {
            unit = from + span.start..from + span.end;
            id = id.or_else(|| object.iter().find(|(_, value)| *value == call.id).map(|(key, _)| key.clone()));
        }
        // The template may number calls itself.
        let number = |value: &Value| value.as_str().is_some_and(|text| text.parse::<u32>().is_ok());
        let id = id.or_else(|| key(&number));
        let kind = Kind::Json { name, arguments, id, arguments_are_text, wrapped: outer.is_some() };
        return Some(Reading { unit, kind, python_literals });
    }
    None
}

/// The object that has the one at `inner` as a member.
fn enclosing(text: &str, inner: usize, member: &Value) -> Option<(Range<usize>, Map<String, Value>)> {
    let brace = text[..inner].rfind('{')?;
    let (Value::Object(object), length, _) = value_at(&text[brace..])? else { return None };
    object.values().any(|value| value == member).then_some((brace..brace + length, object))
}

/// An object, or one encoded in a string.
fn arguments(value: &Value) -> Option<Map<String, Value>> {
    match value {
        Value::Object(object) => Some(object.clone()),
        Value::String(text) => serde_json::from_str(text).ok(),
        _ => None,
    }
}

/// The JSON value at the beginning of a text and its length, or the value that Python prints like this.
fn value_at(text: &str) -> Option<(Value, usize, bool)> {
    let first = |text: &str| {
        let mut stream = serde_json::Deserializer::from_str(text).into_iter::<Value>();
        let value = stream.next()?.ok()?;
        Some((value, stream.byte_offset()))
    };
    if let Some((value, length)) = first(text) {
        return Some((value, length, false));
    }
    // Sentinels contain no quotes, so the lengths are equal.
    let (value, length) = first(&text.replace('\'', "\""))?;
    Some((value, length, true))
}

/// The quote of an object at the beginning of the text, and whether its keys are unquoted.
fn dialect(text: &str, key: &str, value: &str) -> Option<(String, bool)> {
    let (before, rest) = text[1..].trim_start().split_once(key)?;
    let (between, rest) = rest.split_once(value)?;
    let quote = between.trim_start().strip_prefix(before)?.trim_start().strip_prefix([':', '='])?.trim_start();
    (rest.starts_with(quote) && (before.is_empty() || before == quote)).then(|| (quote.to_owned(), before.is_empty()))
}
