//! References of a schema: normalises them, and checks whether the described values are finite.
//!
//! A grammar is written from parts of a schema, and a part has access only to its definitions. A reference to any other
//! place (`#`, `#/properties/a`) is therefore turned into a definition. No value fits an object that requires itself.
//! It is removed if it is optional, and reported as an error otherwise, before a model reaches it.

use super::Unenforced;
use crate::schema::{TABLES, each, resolve, restricts};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Maximum number of references to follow at the root.
const DEPTH: usize = 8;

/// A schema whose references all lead to definitions that some value fits, and the unresolvable references, which are
/// dropped.
///
/// # Errors
/// The place in the schema that refers to itself without end.
pub(super) fn resolved(schema: Value) -> Result<(Value, Vec<Unenforced>), String> {
    if !super::schema::mentions(&schema, "$ref") {
        return Ok((schema, Vec::new()));
    }
    let mut schema = schema;
    let root = schema.clone();
    let mut resolving = Resolving { root: &root, moved: BTreeMap::new(), unenforced: Vec::new() };
    each(&mut schema, "$", &mut |object, path| resolving.rewrite(object, path));
    let Resolving { moved, unenforced, .. } = resolving;
    let copies: Vec<(String, Value)> = moved
        .into_iter()
        .filter_map(|(pointer, name)| {
            let mut copy = schema.pointer(&pointer)?.clone();
            if let Value::Object(object) = &mut copy {
                object.retain(|key, _| !TABLES.contains(&key.as_str()));
            }
            Some((name, copy))
        })
        .collect();
    if let Value::Object(object) = &mut schema
        && !copies.is_empty()
        && let Value::Object(table) = object.entry("$defs").or_insert_with(|| json!({}))
    {
        table.extend(copies);
    }
    let ending = Ending::of(&schema);
    if !ending.ends(&schema) {
        return Err(ending.culprit(&schema, "$"));
    }
    each(&mut schema, "$", &mut |object, _| ending.prune(object));
    Ok((schema, unenforced))
}

/// Returns the definition that a resolved reference leads to.
pub(super) fn definition<'s>(whole: &'s Map<String, Value>, reference: &str) -> Option<&'s Value> {
    let (table, name) = reference.strip_prefix("#/")?.split_once('/')?;
    TABLES.contains(&table).then(|| whole.get(table)?.get(name))?
}

/// A schema of arguments that is a reference, with the members of the definition in its place: formats that write
/// arguments one by one need their names.
pub(super) fn with_own_members(mut schema: Map<String, Value>) -> Map<String, Value> {
    // References may lead in a circle.
    for _ in 0..DEPTH {
        let alone = schema.keys().all(|key| ["$ref", "type"].contains(&key.as_str()) || !restricts(key));
        let reference = schema.get("$ref").and_then(Value::as_str).filter(|_| alone);
        let defined = reference.and_then(|reference| definition(&schema, reference));
        let Some(Value::Object(definition)) = defined.cloned() else { break };
        schema.shift_remove("$ref");
        for (key, value) in definition {
            schema.entry(key).or_insert(value);
        }
    }
    schema
}

/// Calls `found` with each reference in a schema.
fn mentioned<'s>(schema: &'s Value, found: &mut impl FnMut(&'s str)) {
    match schema {
        Value::Object(object) => {
            object.get("$ref").and_then(Value::as_str).into_iter().for_each(&mut *found);
            object.values().for_each(|value| mentioned(value, found));
        }
        Value::Array(items) => items.iter().for_each(|item| mentioned(item, found)),
        _ => {}
    }
}

/// Rewrites references.
struct Resolving<'s> {
    root: &'s Value,
    /// Referenced places that are not definitions, and the definition that each becomes.
    moved: BTreeMap<String, String>,
    unenforced: Vec<Unenforced>,
}

impl Resolving<'_> {
    fn rewrite(&mut self, object: &mut Map<String, Value>, path: &str) {
        let Some(Value::String(reference)) = object.get("$ref") else { return };
        match self.target(reference) {
            Some(reference) => object["$ref"] = reference.into(),
            None => {
                object.shift_remove("$ref");
                self.unenforced.push(Unenforced::at(path, "$ref"));
            }
        }
    }

    /// The equivalent reference to a definition; `None` if the target does not exist.
    fn target(&mut self, reference: &str) -> Option<String> {
        let (pointer, _) = resolve(self.root, reference)?;
        let parts: Vec<&str> = pointer.split('/').skip(1).collect();
        if let [table, name] = parts[..]
            && TABLES.contains(&table)
            && !name.contains(['~', '%'])
        {
            return Some(format!("#/{table}/{name}"));
        }
        let count = self.moved.len();
        let name = self.moved.entry(pointer).or_insert_with(|| {
            let taken = |name: &str| self.root.get("$defs").is_some_and(|table| table.get(name).is_some());
            let mut name = format!("place{count}");
            while taken(&name) {
                name.push('_');
            }
            name
        });
        Some(format!("#/$defs/{name}"))
    }
}

/// The definitions that a finite value fits.
struct Ending(HashSet<String>);

impl Ending {
    fn of(schema: &Value) -> Ending {
        let definitions: HashMap<String, &Value> = TABLES
            .iter()
            .filter_map(|table| Some((table, schema.get(*table)?.as_object()?)))
            .flat_map(|(table, definitions)| {
                definitions.iter().map(move |(name, value)| (format!("#/{table}/{name}"), value))
            })
            .collect();
        let mut users: HashMap<&str, Vec<&str>> = HashMap::new();
        for (reference, value) in &definitions {
            mentioned(value, &mut |used| users.entry(used).or_default().push(reference));
        }
        let mut ending = Ending(HashSet::new());
        let mut left: Vec<&str> = definitions.keys().map(String::as_str).collect();
        while let Some(reference) = left.pop() {
            let ends = definitions.get(reference).is_some_and(|value| ending.ends(value));
            if ends && ending.0.insert(reference.to_owned()) {
                left.extend(users.get(reference).into_iter().flatten());
            }
        }
        ending
    }

    /// Returns whether a finite value fits, as far as references are concerned. Other contradictions are not checked
    /// here.
    fn ends(&self, schema: &Value) -> bool {
        let Value::Object(object) = schema else { return true };
        if object.contains_key("enum") || object.contains_key("const") {
            return true;
        }
        let list = |key: &str| object.get(key).and_then(Value::as_array).filter(|options| !options.is_empty());
        object.get("$ref").and_then(Value::as_str).is_none_or(|reference| self.0.contains(reference))
            && ["anyOf", "oneOf"]
                .iter()
                .filter_map(|key| list(key))
                .all(|options| options.iter().any(|option| self.ends(option)))
            && list("allOf").is_none_or(|parts| parts.iter().all(|part| self.ends(part)))
            && (allows_scalar(object) || (self.required(object).iter().all(|(_, member)| self.ends(member))))
    }

    /// Returns what every value must contain, each with its path.
    fn required<'s>(&self, object: &'s Map<String, Value>) -> Vec<(String, &'s Value)> {
        let mut found = Vec::new();
        for (name, member, required) in super::tagged::properties(object) {
            if required {
                found.push((format!(".properties.{name}"), member));
            }
        }
        let least = object.get("minItems").and_then(Value::as_u64).unwrap_or(0);
        if least > 0
            && let Some(items) = object.get("items").filter(|items| items.is_object())
        {
            found.push((".items".to_owned(), items));
        }
        found
    }

    /// The place that a fitting value would have to repeat forever.
    fn culprit(&self, schema: &Value, path: &str) -> String {
        let Value::Object(object) = schema else { return path.to_owned() };
        if object.get("$ref").and_then(Value::as_str).is_some_and(|reference| !self.0.contains(reference)) {
            return path.to_owned();
        }
        let mut parts = self.required(object);
        for key in ["allOf", "anyOf", "oneOf"] {
            let options = object.get(key).and_then(Value::as_array).into_iter().flatten().enumerate();
            parts.extend(options.map(|(index, option)| (format!(".{key}[{index}]"), option)));
        }
        let first = parts.into_iter().find(|(_, part)| !self.ends(part));
        first.map_or_else(|| path.to_owned(), |(key, part)| self.culprit(part, &format!("{path}{key}")))
    }

    /// Removes optional parts that no value fits: a model that began one could not end it.
    fn prune(&self, object: &mut Map<String, Value>) {
        if let Some(Value::Object(members)) = object.get_mut("properties") {
            let before = members.len();
            members.retain(|_, member| self.ends(member));
            if members.len() < before {
                object.entry("additionalProperties").or_insert(Value::Bool(false));
            }
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(Value::Array(options)) = object.get_mut(key) {
                options.retain(|option| self.ends(option));
            }
        }
        if object.get("additionalProperties").is_some_and(|rest| !self.ends(rest)) {
            object.insert("additionalProperties".to_owned(), Value::Bool(false));
        }
        if object.get("items").is_some_and(|items| items.is_object() && !self.ends(items)) {
            object.shift_remove("items");
            object.insert("maxItems".to_owned(), json!(0));
        }
        // Remove references to infinite definitions.
        for table in TABLES {
            if let Some(Value::Object(definitions)) = object.get_mut(table) {
                definitions.retain(|name, _| self.0.contains(&format!("#/{table}/{name}")));
            }
        }
    }
}

/// Returns whether a value that is neither an object nor an array may fit.
fn allows_scalar(object: &Map<String, Value>) -> bool {
    let is_scalar = |kind: &Value| !matches!(kind.as_str(), Some("object" | "array"));
    match object.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().any(is_scalar),
        Some(kind) => is_scalar(kind),
        // Without a type, the grammar takes anything with members or items for an object or an array.
        None => !["properties", "items"].iter().any(|key| object.contains_key(*key)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(schema: Value) -> String {
        match resolved(schema) {
            Ok((schema, unenforced)) => {
                let paths: Vec<&str> = unenforced.iter().map(|dropped| dropped.path.as_str()).collect();
                format!("{schema} {}", paths.join(" "))
            }
            Err(place) => place,
        }
    }

    #[test]
    fn references_lead_to_definitions_or_are_dropped() {
        let cases = [
            (json!({"type": "integer"}), r#"{"type":"integer"} "#),
            (
                json!({"properties": {"kids": {"type": "array", "items": {"$ref": "#"}}}}),
                r##"{"properties":{"kids":{"type":"array","items":{"$ref":"#/$defs/place0"}}},"$defs":{"place0":{"properties":{"kids":{"type":"array","items":{"$ref":"#/$defs/place0"}}}}}} "##,
            ),
            (
                json!({"properties": {"a b": {"type": "null"}, "c": {"$ref": "#/properties/a%20b"}}}),
                r##"{"properties":{"a b":{"type":"null"},"c":{"$ref":"#/$defs/place0"}},"$defs":{"place0":{"type":"null"}}} "##,
            ),
            (
                json!({"anyOf": [{"$ref": "#/$defs/none"}, {"$ref": "https://example.com/x"}]}),
                r#"{"anyOf":[{},{}]} $.anyOf[0] $.anyOf[1]"#,
            ),
        ];
        for (schema, expected) in cases {
            assert_eq!(said(schema), expected);
        }
    }

    #[test]
    fn a_root_that_is_a_reference_has_the_members_of_its_definition() {
        let root = |schema: Value| Value::Object(with_own_members(schema.as_object().cloned().unwrap())).to_string();
        let definitions = json!({"a": {"$ref": "#/$defs/b"}, "b": {"properties": {"x": {"$ref": "#/$defs/a"}}}});
        assert_eq!(
            root(json!({"$ref": "#/$defs/a", "type": "object", "$defs": definitions})),
            format!(r##"{{"type":"object","$defs":{definitions},"properties":{{"x":{{"$ref":"#/$defs/a"}}}}}}"##)
        );
        let combined = json!({"$ref": "#/$defs/a", "required": ["y"], "$defs": definitions});
        assert_eq!(root(combined.clone()), combined.to_string());
        assert_eq!(
            root(json!({"$ref": "#/$defs/c", "$defs": {"c": {"$ref": "#/$defs/c"}}})),
            r##"{"$defs":{"c":{"$ref":"#/$defs/c"}},"$ref":"#/$defs/c"}"##
        );
    }

    #[test]
    fn infinite_schemas_are_dropped_or_reported() {
        let node = json!({"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}, "required": ["next"]});
        let with = |schema: Value| {
            let mut schema = schema;
            schema["$defs"] = json!({"node": node});
            said(schema)
        };
        let required = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/node"}}, "required": ["a"]});
        assert_eq!(with(required), "$.properties.a");
        assert_eq!(with(json!({"type": "array", "items": {"$ref": "#/$defs/node"}, "minItems": 1})), "$.items");
        assert_eq!(
            with(json!({"anyOf": [{"$ref": "#/$defs/node"}, {"allOf": [{"$ref": "#/$defs/node"}]}]})),
            "$.anyOf[0]"
        );
        assert_eq!(
            with(json!({"properties": {"a": {"$ref": "#/$defs/node"}}})),
            r#"{"properties":{},"$defs":{},"additionalProperties":false} "#
        );
        assert_eq!(
            with(json!({"type": "array", "items": {"$ref": "#/$defs/node"}})),
            r#"{"type":"array","$defs":{},"maxItems":0} "#
        );
        assert_eq!(
            with(json!({"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]})),
            r#"{"anyOf":[{"type":"null"}],"$defs":{}} "#
        );
    }
}
