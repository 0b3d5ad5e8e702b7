//! Translates the schema dialects of real tools to JSON Schema.
//!
//! BFCL's files write `dict` for an object, OpenAPI 3.0 has `nullable`. The model sees the author's version; checks and
//! constraints use the standard form.

use crate::schema::each;
use serde_json::{Map, Value, json};

/// Translates other dialects; everything else is unchanged.
pub(crate) fn standard(schema: &mut Value) {
    each(schema, "", &mut |object, _| standard_keywords(object));
}

fn standard_keywords(object: &mut Map<String, Value>) {
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
}

/// The standard's name of a type; `None` for a type that allows everything. Unknown names are unchanged and reported.
pub(crate) fn standard_type(kind: &str) -> Option<&str> {
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
