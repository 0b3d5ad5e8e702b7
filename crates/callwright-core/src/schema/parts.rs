//! Parts of a schema as JSON: its subschemas, and what its references lead to.

use super::keywords::{Kind, kind_of};
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

/// Returns the schema that a reference leads to, if it is within `root`, and the pointer to it.
pub(crate) fn resolve<'s>(root: &'s Value, reference: &str) -> Option<(String, &'s Value)> {
    let pointer = fragment(root, reference)?;
    let target = root.pointer(&pointer)?;
    Some((pointer, target))
}

/// Returns the part of a reference that says where in `root` it leads; `None` if it leads elsewhere.
pub(crate) fn fragment(root: &Value, reference: &str) -> Option<String> {
    let id = root.get("$id").and_then(Value::as_str).unwrap_or_default();
    let local = reference.strip_prefix(id).unwrap_or(reference);
    let fragment = local.strip_prefix('#').or_else(|| local.is_empty().then_some(""))?;
    Some(percent_decode_str(fragment).decode_utf8_lossy().into_owned())
}

/// The place of a subschema: its keyword, and its index or name where the keyword has several.
type Place<'s> = (&'s str, Option<Result<usize, &'s str>>);

/// Returns the direct subschemas of a schema.
fn parts(object: &mut Map<String, Value>) -> Vec<(Place<'_>, &mut Value)> {
    let mut found: Vec<(Place<'_>, &mut Value)> = Vec::new();
    for (key, value) in object {
        match (kind_of(key), value) {
            (Kind::Schema, value @ (Value::Object(_) | Value::Bool(_))) => found.push(((key, None), value)),
            (Kind::Schemas | Kind::Schema, Value::Array(list)) => {
                found.extend(list.iter_mut().enumerate().map(|(index, item)| ((key.as_str(), Some(Ok(index))), item)));
            }
            (Kind::Members, Value::Object(map)) => {
                found.extend(map.iter_mut().map(|(name, item)| ((key.as_str(), Some(Err(name.as_str()))), item)));
            }
            _ => {}
        }
    }
    found
}

/// Returns the direct subschemas with their paths (`properties.a`, `anyOf[0]`), except for single `true` and `false`.
pub(crate) fn children(object: &mut Map<String, Value>) -> Vec<(String, &mut Value)> {
    let counts = |(_, inner): &Place<'_>, schema: &Value| inner.is_some() || schema.is_object();
    let path = |(key, inner): Place<'_>| match inner {
        None => key.to_owned(),
        Some(Ok(index)) => format!("{key}[{index}]"),
        Some(Err(name)) => format!("{key}.{name}"),
    };
    let found = parts(object).into_iter().filter(|(place, schema)| counts(place, schema));
    found.map(|(place, schema)| (path(place), schema)).collect()
}

/// Changes a schema and all its subschemas, the outer ones first; each with its path.
pub(crate) fn each(schema: &mut Value, path: &str, change: &mut impl FnMut(&mut Map<String, Value>, &str)) {
    let Value::Object(object) = schema else { return };
    change(object, path);
    for (key, child) in children(object) {
        each(child, &format!("{path}.{key}"), change);
    }
}

/// Returns the direct subschemas with their JSON pointers, for the schema at `path`.
pub(crate) fn inner<'s>(object: &'s mut Map<String, Value>, path: &str) -> Vec<(String, &'s mut Value)> {
    let at = |(key, inner): Place<'_>| match inner {
        None => pointer(path, key),
        Some(Ok(index)) => format!("{}/{index}", pointer(path, key)),
        Some(Err(name)) => pointer(&pointer(path, key), name),
    };
    parts(object).into_iter().map(|(place, schema)| (at(place), schema)).collect()
}

/// Returns the pointer to a member of the value at `path`.
pub(crate) fn pointer(path: &str, key: &str) -> String {
    format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"))
}
