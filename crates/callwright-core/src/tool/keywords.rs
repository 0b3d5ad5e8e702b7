//! The kind of value of each JSON Schema keyword.

/// The kind of a keyword's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
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

/// The kind of a keyword's value.
pub(super) fn kind_of(keyword: &str) -> Kind {
    match keyword {
        "items"
        | "additionalItems"
        | "additionalProperties"
        | "unevaluatedItems"
        | "unevaluatedProperties"
        | "not"
        | "contains"
        | "propertyNames"
        | "if"
        | "then"
        | "else"
        | "contentSchema" => Kind::Schema,
        "anyOf" | "oneOf" | "allOf" | "prefixItems" => Kind::Schemas,
        "properties" | "patternProperties" | "dependentSchemas" | "$defs" | "definitions" => Kind::Members,
        "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties" | "minContains"
        | "maxContains" => Kind::Count,
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" => Kind::Number,
        "uniqueItems" | "nullable" | "readOnly" | "writeOnly" | "deprecated" => Kind::Flag,
        "$ref" | "$id" | "$anchor" | "$comment" | "format" | "title" | "description" | "contentEncoding"
        | "contentMediaType" => Kind::Text,
        "pattern" => Kind::Pattern,
        "enum" | "examples" => Kind::Values,
        "required" => Kind::Required,
        "type" => Kind::Type,
        "$schema" => Kind::Draft,
        _ => Kind::Other,
    }
}
