//! What a tool's schema says about the types of its arguments. In a format that writes values without quotes, the
//! schema decides whether `5` is a number or a string.

use serde_json::{Map, Value};

/// Limits on alternatives and depth, because schemas may refer to themselves.
const ALTERNATIVES: usize = 512;
const DEPTH: usize = 16;

type Schema = Map<String, Value>;

/// The types that a value may have; empty if the schema does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Types(u8);

impl Types {
    pub(crate) const STRING: Types = Types(1);
    pub(crate) const INTEGER: Types = Types(2);
    pub(crate) const NUMBER: Types = Types(4);
    pub(crate) const BOOLEAN: Types = Types(8);
    pub(crate) const NULL: Types = Types(16);
    pub(crate) const OBJECT: Types = Types(32);
    pub(crate) const ARRAY: Types = Types(64);

    /// Whether the schema says nothing.
    pub(crate) fn is_unknown(self) -> bool {
        self.0 == 0
    }

    /// Whether the value may be one of `types`.
    pub(crate) fn has(self, types: Types) -> bool {
        self.0 & types.0 != 0
    }

    pub(crate) fn or(self, types: Types) -> Types {
        Types(self.0 | types.0)
    }

    /// These types without `types`.
    pub(crate) fn without(self, types: Types) -> Types {
        Types(self.0 & !types.0)
    }

    /// The types in both sets; if either set is empty, the other.
    fn common(self, types: Types) -> Types {
        // Every integer is a number.
        let is_whole = |one: Types, other: Types| one.has(Types::INTEGER) && other.has(Types::NUMBER);
        let whole = if is_whole(self, types) || is_whole(types, self) { Types::INTEGER.0 } else { 0 };
        let both = self.0 & types.0 | whole;
        if both == 0 { self.or(types) } else { Types(both) }
    }

    pub(crate) fn of_name(name: &str) -> Types {
        match name {
            "string" => Types::STRING,
            "integer" => Types::INTEGER,
            "number" => Types::NUMBER,
            "boolean" => Types::BOOLEAN,
            "null" => Types::NULL,
            "object" => Types::OBJECT,
            "array" => Types::ARRAY,
            _ => Types::default(),
        }
    }

    /// The type of a value.
    pub(crate) fn of(value: &Value) -> Types {
        match value {
            Value::Null => Types::NULL,
            Value::Bool(_) => Types::BOOLEAN,
            Value::Number(number) if number.is_f64() => Types::NUMBER,
            Value::Number(_) => Types::INTEGER.or(Types::NUMBER),
            Value::String(_) => Types::STRING,
            Value::Array(_) => Types::ARRAY,
            Value::Object(_) => Types::OBJECT,
        }
    }
}

/// A step of the path to a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    Member(String),
    Item,
}

/// The types of the value that `path` leads to from the arguments object, whose schema is `root`.
pub(crate) fn types<'p>(root: &Schema, path: impl IntoIterator<Item = &'p Step>) -> Types {
    let mut here = vec![root];
    for step in path {
        let mut around = Vec::new();
        here.iter().for_each(|schema| expand(root, schema, 0, &mut around));
        here = around.iter().filter_map(|schema| inner(schema, step)).collect();
    }
    let mut left = ALTERNATIVES;
    let said: Vec<Said> = here.iter().map(|schema| said(root, schema, 0, &mut left)).collect();
    if said.contains(&Said::Anything) {
        return Types::default();
    }
    said.into_iter().fold(Types::default(), |types, said| match said {
        Said::Types(more) => types.or(more),
        Said::Nothing | Said::Anything => types,
    })
}

/// What a schema says about a value's type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    /// Nothing.
    Nothing,
    /// One of these types.
    Types(Types),
    /// One of its alternatives allows any type.
    Anything,
}

impl Said {
    fn of(types: Types) -> Said {
        if types.is_unknown() { Said::Nothing } else { Said::Types(types) }
    }

    /// The conjunction of both.
    fn and(self, other: Said) -> Said {
        match (self, other) {
            (Said::Types(one), Said::Types(other)) => Said::Types(one.common(other)),
            (Said::Types(types), _) | (_, Said::Types(types)) => Said::Types(types),
            (Said::Anything, _) | (_, Said::Anything) => Said::Anything,
            (Said::Nothing, Said::Nothing) => Said::Nothing,
        }
    }
}

/// What a schema says together with its references and alternatives.
fn said(root: &Schema, schema: &Schema, depth: usize, left: &mut usize) -> Said {
    if depth > DEPTH || *left == 0 {
        return Said::Nothing;
    }
    *left -= 1;
    let parts = |key: &str| schema.get(key).and_then(Value::as_array).into_iter().flatten();
    let referred = schema.get("$ref").and_then(Value::as_str).and_then(|reference| resolve(root, reference));
    let conjoined = referred.into_iter().chain(parts("allOf").filter_map(Value::as_object));
    let mut all = conjoined.fold(Said::of(own(schema)), |all, part| all.and(said(root, part, depth + 1, left)));
    for key in ["anyOf", "oneOf"].into_iter().filter(|key| schema.contains_key(*key)) {
        let mut types = Types::default();
        let mut open = false;
        for alternative in parts(key) {
            match alternative {
                Value::Bool(allowed) => open |= allowed,
                Value::Object(alternative) => match said(root, alternative, depth + 1, left) {
                    Said::Types(more) => types = types.or(more),
                    Said::Anything => open = true,
                    // An alternative that only leads back to others does not count.
                    Said::Nothing => open |= *left > 0 && !leads(alternative),
                },
                _ => {}
            }
        }
        all = all.and(if open { Said::Anything } else { Said::of(types) });
    }
    all
}

/// Whether the schema only refers to other schemas, or lists no values at all.
fn leads(schema: &Schema) -> bool {
    ["$ref", "anyOf", "oneOf", "allOf", "enum", "const"].iter().any(|key| schema.contains_key(*key))
}

/// The names of the parameters, in the schema's order.
pub(crate) fn names(root: &Schema) -> Vec<String> {
    let mut schemas = Vec::new();
    expand(root, root, 0, &mut schemas);
    let properties = schemas.iter().filter_map(|schema| schema.get("properties")?.as_object());
    properties.flat_map(|properties| properties.keys().cloned()).collect()
}

/// Whether the schema knows a parameter of that name.
pub(crate) fn knows(root: &Schema, name: &str) -> bool {
    let mut schemas = Vec::new();
    expand(root, root, 0, &mut schemas);
    schemas.iter().any(|schema| schema.get("properties").is_some_and(|properties| properties.get(name).is_some()))
}

/// Whether the object at `path` has an optional parameter of that name, whatever its other members are.
pub(crate) fn is_optional(root: &Schema, path: &[Step], name: &str) -> bool {
    let mut here = vec![root];
    for step in path.iter().map(Some).chain([None]) {
        let mut around = Vec::new();
        here.iter().for_each(|schema| expand(root, schema, 0, &mut around));
        here = match step {
            Some(step) => around.iter().filter_map(|schema| inner(schema, step)).collect(),
            None => around,
        };
    }
    let lists = |schema: &&Schema| {
        let required = schema.get("required").and_then(Value::as_array);
        required.is_some_and(|names| names.iter().any(|other| other == name))
    };
    let depends = |schema: &&Schema| {
        ["dependentRequired", "dependentSchemas", "dependencies"].iter().any(|key| schema.contains_key(*key))
    };
    let has = |schema: &&Schema| schema.get("properties").is_some_and(|properties| properties.get(name).is_some());
    here.iter().any(has) && !here.iter().any(|schema| lists(schema) || depends(schema))
}

fn inner<'s>(schema: &'s Schema, step: &Step) -> Option<&'s Schema> {
    match step {
        Step::Member(key) => {
            let named = schema.get("properties").and_then(|properties| properties.get(key));
            let patterns = schema.contains_key("patternProperties");
            named.or_else(|| schema.get("additionalProperties").filter(|_| !patterns))?.as_object()
        }
        // The schema of an item depends on its position.
        Step::Item => schema.get("items").filter(|_| !schema.contains_key("prefixItems"))?.as_object(),
    }
}

/// The schema itself, its references and its alternatives.
fn expand<'s>(root: &'s Schema, schema: &'s Schema, depth: usize, found: &mut Vec<&'s Schema>) {
    if depth > DEPTH || found.len() >= ALTERNATIVES {
        return;
    }
    found.push(schema);
    let referred = schema.get("$ref").and_then(Value::as_str).and_then(|reference| resolve(root, reference));
    if let Some(referred) = referred {
        expand(root, referred, depth + 1, found);
    }
    let several = ["anyOf", "oneOf", "allOf"].iter().filter_map(|key| schema.get(*key)?.as_array());
    for alternative in several.flatten().filter_map(Value::as_object) {
        expand(root, alternative, depth + 1, found);
    }
}

/// Resolves a reference within the same schema.
fn resolve<'s>(root: &'s Schema, reference: &str) -> Option<&'s Schema> {
    let mut segments = reference.strip_prefix('#')?.split('/').skip(1).peekable();
    if segments.peek().is_none() {
        return Some(root);
    }
    segments.try_fold(root, |schema, segment| schema.get(&segment.replace("~1", "/").replace("~0", "~"))?.as_object())
}

/// What one schema says by itself.
fn own(schema: &Schema) -> Types {
    let nullable = schema.get("nullable") == Some(&Value::Bool(true));
    let more = if nullable { Types::NULL } else { Types::default() };
    let union = |types: &mut dyn Iterator<Item = Types>| types.fold(more, Types::or);
    match (schema.get("type"), schema.get("enum"), schema.get("const")) {
        (Some(Value::String(name)), ..) => Types::of_name(name).or(more),
        (Some(Value::Array(names)), ..) => union(&mut names.iter().filter_map(Value::as_str).map(Types::of_name)),
        (_, Some(Value::Array(values)), _) => union(&mut values.iter().map(Types::of)),
        (_, _, Some(value)) => Types::of(value).or(more),
        _ if schema.contains_key("properties") => Types::OBJECT.or(more),
        _ if schema.contains_key("items") => Types::ARRAY.or(more),
        _ => more,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn types_of_every_kind_of_schema() {
        let schema = json!({
            "properties": {
                "s": {"type": "string"},
                "either": {"type": ["integer", "null"]},
                "any": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/point"}]},
                "color": {"enum": ["red", 3]},
                "maybe": {"type": "number", "nullable": true},
                "points": {"items": {"$ref": "#/$defs/point"}},
                "loop": {"$ref": "#/$defs/loop"},
                "free": {"additionalProperties": {"type": "boolean"}, "type": "object"},
                "odd": {},
                "open": {"anyOf": [{"type": "integer"}, {"minLength": 1}]},
                "refined": {"type": "string", "anyOf": [{"minLength": 2}, {"pattern": "x"}]},
                "apart": {"allOf": [{"$ref": "#/$defs/point"}, {"oneOf": [{"minProperties": 1}, {"title": "none"}]}]},
                "whole": {"type": ["integer", "string"], "allOf": [{"type": "number"}]},
                "clash": {"$ref": "#/$defs/point", "nullable": true},
                "pair": {"prefixItems": [{"type": "string"}], "items": {"type": "integer"}},
                "tagged": {"patternProperties": {"^s_": {"type": "string"}}, "additionalProperties": {"type": "integer"}}
            },
            "$defs": {
                "point": {"properties": {"x": {"type": "number"}}},
                "loop": {"anyOf": [{"$ref": "#/$defs/loop"}, {"type": "array", "items": {"$ref": "#/$defs/loop"}}]}
            }
        });
        let schema = schema.as_object().unwrap();
        let types = |path: &[&str]| {
            let step = |name: &&str| if *name == "*" { Step::Item } else { Step::Member((*name).to_owned()) };
            types(schema, &path.iter().map(step).collect::<Vec<_>>())
        };
        assert_eq!(types(&["s"]), Types::STRING);
        assert_eq!(types(&["either"]), Types::INTEGER.or(Types::NULL));
        assert_eq!(types(&["any"]), Types::STRING.or(Types::OBJECT));
        assert_eq!(types(&["any", "x"]), Types::NUMBER);
        assert_eq!(types(&["color"]), Types::STRING.or(Types::INTEGER).or(Types::NUMBER));
        assert_eq!(types(&["maybe"]), Types::NUMBER.or(Types::NULL));
        assert_eq!(types(&["points", "*", "x"]), Types::NUMBER);
        assert_eq!(types(&["loop", "*", "*"]), Types::ARRAY);
        assert_eq!(types(&["free", "whatever"]), Types::BOOLEAN);
        assert!(types(&["odd"]).is_unknown() && types(&["none"]).is_unknown() && types(&["s", "x"]).is_unknown());
        assert!(types(&["open"]).is_unknown() && types(&["pair", "*"]).is_unknown());
        assert!(types(&["tagged", "s_a"]).is_unknown());
        assert_eq!((types(&["refined"]), types(&["apart"])), (Types::STRING, Types::OBJECT));
        assert_eq!((types(&["whole"]), types(&["clash"])), (Types::INTEGER, Types::OBJECT.or(Types::NULL)));
        assert_eq!(names(schema).len(), 16);
        assert!(knows(schema, "odd") && !knows(schema, "x"));
    }
}
