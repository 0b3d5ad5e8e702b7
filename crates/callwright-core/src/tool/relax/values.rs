//! Values of keywords as authors write them in place of JSON Schema's.

use super::TYPES;
use crate::schema::dialect;
use crate::tool::types;
use serde_json::{Map, Value, json};

/// Converts a list of members that each have a name to an object.
pub(super) fn named_members(list: &[Value]) -> Option<Value> {
    let members: Option<Map<String, Value>> = list
        .iter()
        .map(|member| {
            let mut member = member.as_object()?.clone();
            let Some(Value::String(name)) = member.shift_remove("name") else { return None };
            Some((name, Value::Object(member)))
        })
        .collect();
    members.map(Value::Object)
}

pub(super) fn is_known(name: &str) -> bool {
    TYPES.contains(&name) || dialect::standard_type(name) != Some(name)
}

/// Returns whether no type is duplicate, by its standard name.
pub(super) fn is_set(names: &[Value]) -> bool {
    let standard: Vec<_> = names.iter().filter_map(Value::as_str).map(dialect::standard_type).collect();
    standard.iter().enumerate().all(|(at, name)| !standard[..at].contains(name))
}

/// A list of types, with schemas among them.
pub(super) fn list_of(names: &[Value]) -> Option<Map<String, Value>> {
    if names.iter().all(Value::is_string) {
        let names: Vec<&str> = names.iter().filter_map(Value::as_str).collect();
        return types::schema_of(&names.join(" | "));
    }
    let options: Option<Vec<Value>> = names
        .iter()
        .map(|one| match one {
            Value::String(name) => types::schema_of(name).map(Value::Object),
            Value::Null => Some(json!({"type": "null"})),
            Value::Object(_) => Some(one.clone()),
            _ => None,
        })
        .collect();
    let options = options.filter(|options| !options.is_empty())?;
    Some(Map::from_iter([("anyOf".to_owned(), options.into())]))
}

pub(super) fn flag(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

/// A count that may be written as text or with a zero fraction.
pub(super) fn whole(value: &Value) -> Option<u64> {
    let number = match value {
        Value::Number(_) => value.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    number.filter(|n| *n >= 0.0 && n.fract() == 0.0 && *n < 1e15).map(|n| n as u64)
}
