//! Translates the schema dialects of real tools to JSON Schema.
//!
//! BFCL's files write `dict` for an object, OpenAPI 3.0 has `nullable`. The model sees the author's version; checks and
//! constraints use the standard form.

use serde_json::{Map, Value, json};

/// Keywords whose value is a schema.
const ONE: [&str; 8] =
    ["items", "additionalProperties", "additionalItems", "not", "contains", "propertyNames", "if", "then"];
/// Keywords whose value is a list of schemas.
const LIST: [&str; 5] = ["anyOf", "oneOf", "allOf", "prefixItems", "items"];
/// Keywords whose value is an object of schemas.
const MAP: [&str; 4] = ["properties", "patternProperties", "$defs", "definitions"];

/// The direct subschemas of a schema, with their paths.
pub(crate) fn children(schema: &mut Map<String, Value>) -> Vec<(String, &mut Value)> {
    let mut found = Vec::new();
    for (key, value) in schema {
        match value {
            Value::Object(_) if ONE.contains(&key.as_str()) || key == "else" => found.push((key.clone(), value)),
            Value::Array(list) if LIST.contains(&key.as_str()) => {
                found.extend(list.iter_mut().enumerate().map(|(index, item)| (format!("{key}[{index}]"), item)));
            }
            Value::Object(map) if MAP.contains(&key.as_str()) => {
                found.extend(map.iter_mut().map(|(name, item)| (format!("{key}.{name}"), item)));
            }
            _ => {}
        }
    }
    found
}

/// Translates other dialects; everything else is unchanged.
pub(crate) fn standard(schema: &mut Value) {
    let Value::Object(object) = schema else { return };
    match object.get_mut("type") {
        Some(Value::String(kind)) => match standard_type(kind) {
            Some(kind) => object["type"] = kind.into(),
            None => drop(object.shift_remove("type")),
        },
        Some(Value::Array(kinds)) => {
            let known: Option<Vec<Value>> =
                kinds.iter().map(|kind| standard_type(kind.as_str()?).map(Value::from)).collect();
            match known {
                Some(known) => object["type"] = known.into(),
                None => drop(object.shift_remove("type")),
            }
        }
        _ => {}
    }
    if object.get("nullable") == Some(&Value::Bool(true)) {
        match object.get("type") {
            Some(Value::String(kind)) => object["type"] = json!([kind, "null"]),
            Some(Value::Array(kinds)) if !kinds.contains(&json!("null")) => {
                let all: Vec<Value> = kinds.iter().cloned().chain([json!("null")]).collect();
                object["type"] = all.into();
            }
            _ => {}
        }
        if let Some(Value::Array(options)) = object.get_mut("enum")
            && !options.contains(&Value::Null)
        {
            options.push(Value::Null);
        }
    }
    // `"required": true` on a property, as in early drafts and some generators.
    if matches!(object.get("required"), Some(Value::Bool(_))) {
        object.shift_remove("required");
    }
    for (_, child) in children(object) {
        standard(child);
    }
}

/// The standard's name of a type; `None` for a type that allows everything. Unknown names are unchanged and reported.
pub(super) fn standard_type(kind: &str) -> Option<&str> {
    match kind {
        "dict" | "map" | "Object" | "OBJECT" => Some("object"),
        "float" | "double" | "NUMBER" | "Number" => Some("number"),
        "tuple" | "list" | "ARRAY" | "Array" => Some("array"),
        "str" | "STRING" | "String" => Some("string"),
        "int" | "long" | "INTEGER" | "Integer" => Some("integer"),
        "bool" | "BOOLEAN" | "Boolean" => Some("boolean"),
        "None" => Some("null"),
        "any" => None,
        kind => Some(kind),
    }
}
