//! The keywords of JSON Schema: the one table of what their values are, and of what they restrict.

/// The kind of a keyword's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A schema; for `items` also a list of schemas.
    Schema,
    /// A list of schemas.
    Schemas,
    /// An object of schemas.
    Members,
    /// A non-negative integer.
    Count,
    /// A number.
    Number,
    /// True or false.
    Flag,
    /// A text.
    Text,
    /// A regular expression.
    Pattern,
    /// A list of values.
    Values,
    /// A list of names.
    Required,
    /// The name of a type, or a list of them.
    Type,
    /// The name of a draft.
    Draft,
    /// Anything, or an unknown keyword.
    Other,
}

/// What a keyword is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum About {
    /// Values of any type.
    Any,
    /// Values of this type.
    Type(&'static str),
    /// A reader: it only describes.
    Reader,
    /// The schema itself.
    Schema,
}

/// Whether grammars enforce a keyword.
const ENFORCED: bool = true;

use About::{Any, Reader, Schema, Type};

/// Keywords by the kind of their value, what they are about, and whether grammars enforce them.
const TABLE: [(Kind, About, bool, &[&str]); 37] = [
    // What is not enforced is reported in this order.
    (Kind::Schema, Any, !ENFORCED, &["not", "if", "then", "else"]),
    (Kind::Other, Type("object"), !ENFORCED, &["dependencies", "dependentRequired"]),
    (Kind::Members, Type("object"), !ENFORCED, &["dependentSchemas"]),
    (Kind::Schema, Type("array"), !ENFORCED, &["contains"]),
    (Kind::Count, Type("array"), !ENFORCED, &["minContains", "maxContains"]),
    (Kind::Schema, Type("object"), !ENFORCED, &["propertyNames"]),
    (Kind::Schema, Type("array"), !ENFORCED, &["unevaluatedItems"]),
    (Kind::Schema, Type("object"), !ENFORCED, &["unevaluatedProperties"]),
    (Kind::Flag, Type("array"), !ENFORCED, &["uniqueItems"]),
    (Kind::Other, Any, !ENFORCED, &["$dynamicRef", "$recursiveRef"]),
    (Kind::Schema, Any, !ENFORCED, &["contentSchema"]),
    (Kind::Other, Any, !ENFORCED, &["extends"]),
    (Kind::Type, Any, ENFORCED, &["type"]),
    (Kind::Values, Any, ENFORCED, &["enum"]),
    (Kind::Other, Any, ENFORCED, &["const"]),
    (Kind::Text, Any, ENFORCED, &["$ref"]),
    (Kind::Schemas, Any, ENFORCED, &["anyOf", "oneOf", "allOf"]),
    (Kind::Flag, Any, ENFORCED, &["nullable"]),
    (Kind::Count, Type("string"), ENFORCED, &["minLength", "maxLength"]),
    (Kind::Pattern, Type("string"), ENFORCED, &["pattern"]),
    (Kind::Text, Type("string"), ENFORCED, &["format"]),
    (
        Kind::Number,
        Type("number"),
        ENFORCED,
        &["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"],
    ),
    (Kind::Schema, Type("array"), ENFORCED, &["items", "additionalItems"]),
    (Kind::Schemas, Type("array"), ENFORCED, &["prefixItems"]),
    (Kind::Count, Type("array"), ENFORCED, &["minItems", "maxItems"]),
    (Kind::Members, Type("object"), ENFORCED, &["properties", "patternProperties"]),
    (Kind::Required, Type("object"), ENFORCED, &["required"]),
    (Kind::Schema, Type("object"), ENFORCED, &["additionalProperties"]),
    (Kind::Count, Type("object"), ENFORCED, &["minProperties", "maxProperties"]),
    (Kind::Text, Reader, ENFORCED, &["title", "description", "$comment"]),
    (Kind::Values, Reader, ENFORCED, &["examples"]),
    (Kind::Flag, Reader, ENFORCED, &["deprecated", "readOnly", "writeOnly"]),
    (Kind::Other, Reader, ENFORCED, &["default", "example", "optional"]),
    (Kind::Draft, Schema, ENFORCED, &["$schema"]),
    (Kind::Other, Schema, ENFORCED, &["$vocabulary"]),
    (Kind::Text, Schema, ENFORCED, &["$id", "$anchor", "contentMediaType", "contentEncoding"]),
    (Kind::Members, Schema, ENFORCED, &TABLES),
];

/// Keywords that lead to other schemas for the same value.
pub(crate) const COMBINING: [&str; 4] = ["allOf", "anyOf", "oneOf", "$ref"];
/// The tables of definitions.
pub(crate) const TABLES: [&str; 2] = ["$defs", "definitions"];

fn find(keyword: &str) -> Option<(Kind, About, &'static str)> {
    TABLE.iter().find_map(|(kind, about, _, names)| {
        let name = names.iter().find(|name| **name == keyword)?;
        Some((*kind, *about, *name))
    })
}

/// Returns the kind of a keyword's value.
pub(crate) fn kind_of(keyword: &str) -> Kind {
    find(keyword).map_or(Kind::Other, |(kind, ..)| kind)
}

/// Returns the name of a keyword that is in the table.
pub(super) fn known(keyword: &str) -> Option<&'static str> {
    find(keyword).map(|(_, _, name)| name)
}

/// Returns whether a document has members, but none that JSON Schema defines. It is then probably not a schema, and any
/// value fits it.
pub fn says_nothing(schema: &serde_json::Value) -> bool {
    let defined = |key: &String| find(key).is_some_and(|(_, about, _)| about != Reader);
    schema.as_object().is_some_and(|object| !object.is_empty() && !object.keys().any(defined))
}

/// Returns whether a keyword restricts a value.
#[cfg(feature = "grammar")]
pub(crate) fn restricts(keyword: &str) -> bool {
    !matches!(find(keyword), Some((_, Reader | Schema, _))) && !keyword.starts_with("x-")
}

/// Returns whether a keyword only describes.
#[cfg(feature = "grammar")]
pub(crate) fn describes(keyword: &str) -> bool {
    matches!(find(keyword), Some((_, Reader, _)))
}

/// Returns whether a keyword applies to values of a type.
#[cfg(feature = "grammar")]
pub(crate) fn concerns(keyword: &str, kind: &str) -> bool {
    let kind = if kind == "integer" { "number" } else { kind };
    keyword != "type" && !matches!(find(keyword), Some((_, Type(of), _)) if of != kind)
}

/// Returns the keywords that restrict a value and that the grammar engine does not support.
#[cfg(feature = "grammar")]
pub(crate) fn unsupported() -> impl Iterator<Item = &'static str> {
    TABLE.iter().filter(|(_, _, enforced, _)| !enforced).flat_map(|(.., names)| names.iter().copied())
}
