//! A tool's JSON Schema, read once into a typed form.
//!
//! Reading does not recurse, and each subschema becomes one `Node`, however often it is referred to: references are
//! ids of nodes, and cycles are normal. What may stand at a place of the arguments, the names of parameters, and how
//! much work a schema makes are questions to the nodes. The JSON itself is for prompts, validators and the grammar
//! engine.

pub(crate) mod dialect;
mod keywords;
mod measure;
mod parts;
mod types;

pub use keywords::says_nothing;
pub(crate) use keywords::{COMBINING, Kind, kind_of};
#[cfg(feature = "grammar")]
pub(crate) use keywords::{TABLES, concerns, describes, restricts, unsupported};
#[cfg(feature = "grammar")]
pub(crate) use parts::children;
pub(crate) use parts::{each, fragment, inner, pointer, resolve};
pub(crate) use types::Types;

use dialect::standard_type;
use serde_json::{Map, Value};
use std::collections::HashMap;

/// Limits on alternatives and depth, because schemas may refer to themselves.
const ALTERNATIVES: usize = 512;
const DEPTH: usize = 16;

/// Keywords that lead to other schemas for the same value, or list values.
const LEADING: [&str; 6] = ["$ref", "anyOf", "oneOf", "allOf", "enum", "const"];
/// Keywords that prescribe a text, or ask for a long one or for many items.
const ASKING: [&str; 5] = ["enum", "const", "pattern", "minLength", "minItems"];
/// Keywords that allow members which `properties` does not list.
const OPEN: [&str; 7] =
    ["additionalProperties", "patternProperties", "unevaluatedProperties", "$ref", "allOf", "anyOf", "oneOf"];

/// The place of a node.
type Id = usize;

/// A schema and everything that it refers to; the first node is the schema itself.
#[derive(Debug)]
pub struct Schema {
    nodes: Vec<Node>,
}

/// One subschema.
#[derive(Debug, Default)]
struct Node {
    /// Whether it is an object, and not `true`, `false` or anything else.
    is_object: bool,
    /// The value of a schema that is `true` or `false`.
    allowed: Option<bool>,
    /// The keywords that JSON Schema defines.
    keywords: Vec<&'static str>,
    /// What its own keywords say of the value's type, in the author's names.
    types: Types,
    /// Whether an object or an array may fit its own keywords, in the standard's names.
    takes: Types,
    reference: Option<Id>,
    all_of: Vec<Id>,
    any_of: Vec<Id>,
    one_of: Vec<Id>,
    /// Other schemas that are tried on the same value.
    beside: Vec<Id>,
    /// `properties`, each with its position.
    members: HashMap<String, (usize, Id)>,
    /// `additionalProperties`
    rest: Option<Id>,
    /// `items`, if it is one schema.
    items: Option<Id>,
    required: Vec<String>,
    /// Whether members may fit that `properties` does not list.
    open: bool,
}

impl Node {
    fn has(&self, keyword: &str) -> bool {
        self.keywords.contains(&keyword)
    }

    fn has_any(&self, keywords: &[&str]) -> bool {
        keywords.iter().any(|keyword| self.has(keyword))
    }

    /// The schemas for the same value whose alternatives the value has to fit.
    fn several(&self) -> impl Iterator<Item = Id> + '_ {
        [&self.any_of, &self.one_of, &self.all_of].into_iter().flatten().copied()
    }
}

/// A step of the path to a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// To a member of an object.
    Member(String),
    /// To an item of an array.
    Item,
}

impl Schema {
    /// Reads a schema, in time and memory proportional to its size.
    pub fn read(root: &Value) -> Schema {
        let mut reading = Reading { root, known: HashMap::new(), waiting: Vec::new(), anchors: None };
        reading.id(root);
        let mut nodes = Vec::new();
        while let Some(&schema) = reading.waiting.get(nodes.len()) {
            nodes.push(reading.node(schema));
        }
        Schema { nodes }
    }

    /// Returns whether a schema asks for a long text, or for many items, at a place of the value. `true` where that
    /// cannot be said without resolving references.
    pub fn asks(&self, path: &[Step]) -> bool {
        let mut here = Some(0);
        let composed = |id: Id| self.nodes[id].has_any(&COMBINING);
        for step in path {
            if here.is_some_and(composed) {
                return true;
            }
            here = here.and_then(|id| match step {
                Step::Member(name) => self.nodes[id].members.get(name).map(|(_, id)| *id),
                Step::Item => self.nodes[id].items,
            });
        }
        here.is_some_and(|id| composed(id) || self.nodes[id].has_any(&ASKING))
    }

    /// Returns a name that is not among the properties of a schema that does not mention additional ones.
    pub fn unlisted<'n>(&self, mut names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
        let root = &self.nodes[0];
        names.find(|name| root.has("properties") && !root.open && !root.members.contains_key(*name))
    }

    /// Returns whether the schema itself lists its properties, and says nothing of others.
    pub(crate) fn is_declared(&self) -> bool {
        self.nodes[0].has("properties") && !self.nodes[0].has("additionalProperties")
    }

    /// The schema itself, its references and its alternatives.
    fn expand(&self, id: Id, depth: usize, found: &mut Vec<Id>) {
        if depth > DEPTH || found.len() >= ALTERNATIVES || !self.nodes[id].is_object {
            return;
        }
        found.push(id);
        let node = &self.nodes[id];
        node.reference.into_iter().chain(node.several()).for_each(|part| self.expand(part, depth + 1, found));
    }

    fn expanded(&self, here: &[Id]) -> Vec<Id> {
        let mut around = Vec::new();
        here.iter().for_each(|id| self.expand(*id, 0, &mut around));
        around
    }

    /// The schemas of the value that `path` leads to.
    fn at<'p>(&self, path: impl IntoIterator<Item = &'p Step>) -> Vec<Id> {
        let inner = |id: &Id, step: &Step| {
            let node = &self.nodes[*id];
            let found = match step {
                Step::Member(name) => {
                    let named = node.members.get(name).map(|(_, id)| *id);
                    named.or_else(|| node.rest.filter(|_| !node.has("patternProperties")))
                }
                // The schema of an item depends on its position.
                Step::Item => node.items.filter(|_| !node.has("prefixItems")),
            };
            found.filter(|id| self.nodes[*id].is_object)
        };
        path.into_iter()
            .fold(vec![0], |here, step| self.expanded(&here).iter().filter_map(|id| inner(id, step)).collect())
    }

    /// Returns what a schema says of the type together with its references and alternatives.
    fn said(&self, id: Id, depth: usize, left: &mut usize) -> Said {
        let node = &self.nodes[id];
        if depth > DEPTH || *left == 0 || !node.is_object {
            return Said::Nothing;
        }
        *left -= 1;
        let conjoined = node.reference.iter().chain(&node.all_of);
        let mut all = conjoined.fold(Said::of(node.types), |all, part| all.and(self.said(*part, depth + 1, left)));
        for options in [&node.any_of, &node.one_of] {
            let (mut types, mut open) = (Types::default(), false);
            for &option in options {
                let node = &self.nodes[option];
                open |= node.allowed.unwrap_or_default();
                match self.said(option, depth + 1, left) {
                    Said::Types(more) => types = types.or(more),
                    Said::Anything => open = true,
                    // An alternative that only leads back to others does not count.
                    Said::Nothing => open |= node.is_object && *left > 0 && !node.has_any(&LEADING),
                }
            }
            all = all.and(if open { Said::Anything } else { Said::of(types) });
        }
        all
    }
}

/// Returns the types of the value that `path` leads to from the arguments object; none if the schema does not say.
pub(crate) fn types<'p>(schema: &Schema, path: impl IntoIterator<Item = &'p Step>) -> Types {
    let mut left = ALTERNATIVES;
    let said: Vec<Said> = schema.at(path).into_iter().map(|id| schema.said(id, 0, &mut left)).collect();
    if said.contains(&Said::Anything) {
        return Types::default();
    }
    said.into_iter().fold(Types::default(), |types, said| match said {
        Said::Types(more) => types.or(more),
        Said::Nothing | Said::Anything => types,
    })
}

/// Returns the names of the parameters, in the schema's order.
pub(crate) fn names(schema: &Schema) -> Vec<String> {
    let names = schema.expanded(&[0]).into_iter().flat_map(|id| {
        let mut members: Vec<_> = schema.nodes[id].members.iter().collect();
        members.sort_by_key(|(_, (position, _))| *position);
        members.into_iter().map(|(name, _)| name.clone())
    });
    names.collect()
}

/// Returns whether the schema knows a parameter of that name.
pub(crate) fn knows(schema: &Schema, name: &str) -> bool {
    schema.expanded(&[0]).iter().any(|id| schema.nodes[*id].members.contains_key(name))
}

/// Returns whether the object at `path` has an optional parameter of that name, whatever its other members are.
pub(crate) fn is_optional(schema: &Schema, path: &[Step], name: &str) -> bool {
    const DEPENDS: [&str; 3] = ["dependentRequired", "dependentSchemas", "dependencies"];
    let here = schema.expanded(&schema.at(path));
    let mut nodes = here.iter().map(|id| &schema.nodes[*id]);
    nodes.clone().any(|node| node.members.contains_key(name))
        && !nodes.any(|node| node.required.iter().any(|other| other == name) || node.has_any(&DEPENDS))
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

/// Reads schemas in the order in which they are found.
struct Reading<'s> {
    root: &'s Value,
    /// Schemas that have an id, by address.
    known: HashMap<*const Value, Id>,
    /// The same in the order of their ids.
    waiting: Vec<&'s Value>,
    /// Schemas with a name of their own, once a reference needs one.
    anchors: Option<HashMap<&'s str, &'s Value>>,
}

impl<'s> Reading<'s> {
    fn id(&mut self, schema: &'s Value) -> Id {
        let waiting = &mut self.waiting;
        *self.known.entry(std::ptr::from_ref(schema)).or_insert_with(|| {
            waiting.push(schema);
            waiting.len() - 1
        })
    }

    fn ids(&mut self, schemas: impl IntoIterator<Item = &'s Value>) -> Vec<Id> {
        schemas.into_iter().map(|schema| self.id(schema)).collect()
    }

    fn node(&mut self, schema: &'s Value) -> Node {
        let Value::Object(object) = schema else {
            return Node { allowed: schema.as_bool(), ..Node::default() };
        };
        let mut node = Node {
            is_object: true,
            keywords: object.keys().filter_map(|key| keywords::known(key)).collect(),
            types: own_types(object),
            takes: takes(object),
            open: OPEN.iter().any(|key| object.get(*key).is_some_and(|value| *value != false)),
            ..Node::default()
        };
        for (key, value) in object {
            match (key.as_str(), value) {
                ("$ref", Value::String(reference)) => node.reference = self.referred(reference),
                ("$dynamicRef" | "$recursiveRef", Value::String(reference)) => {
                    node.beside.extend(self.referred(reference));
                }
                ("allOf", Value::Array(parts)) => node.all_of = self.ids(parts),
                ("anyOf", Value::Array(parts)) => node.any_of = self.ids(parts),
                ("oneOf", Value::Array(parts)) => node.one_of = self.ids(parts),
                ("not" | "if" | "then" | "else", part) => node.beside.push(self.id(part)),
                ("dependentSchemas" | "dependencies", Value::Object(parts)) => {
                    node.beside.extend(self.ids(parts.values()));
                }
                ("properties", Value::Object(members)) => {
                    let members = members.iter().enumerate();
                    node.members = members.map(|(at, (name, member))| (name.clone(), (at, self.id(member)))).collect();
                }
                ("additionalProperties", rest) => node.rest = Some(self.id(rest)),
                ("items", items @ Value::Object(_)) => node.items = Some(self.id(items)),
                ("required", Value::Array(names)) => {
                    node.required = names.iter().filter_map(Value::as_str).map(str::to_owned).collect();
                }
                (key, value) => match (kind_of(key), value) {
                    (Kind::Schema, Value::Object(_)) => drop(self.id(value)),
                    (Kind::Schema | Kind::Schemas, Value::Array(parts)) => drop(self.ids(parts)),
                    (Kind::Members, Value::Object(parts)) => drop(self.ids(parts.values())),
                    _ => {}
                },
            }
        }
        node
    }

    fn referred(&mut self, reference: &str) -> Option<Id> {
        let root = self.root;
        let found = match resolve(root, reference) {
            Some((_, found)) => Some(found),
            None => {
                let anchors = self.anchors.get_or_insert_with(|| anchors(root));
                anchors.get(reference.strip_prefix('#').unwrap_or(reference)).copied()
            }
        };
        found.map(|schema| self.id(schema))
    }
}

/// Returns what has an anchor or an id.
fn anchors(root: &Value) -> HashMap<&str, &Value> {
    let (mut found, mut left) = (HashMap::new(), vec![root]);
    while let Some(value) = left.pop() {
        for key in ["$anchor", "$dynamicAnchor", "$id"] {
            found.extend(value.get(key).and_then(Value::as_str).map(|name| (name, value)));
        }
        match value {
            Value::Object(members) => left.extend(members.values()),
            Value::Array(items) => left.extend(items),
            _ => {}
        }
    }
    found
}

/// Returns what one schema says of the type by itself.
fn own_types(schema: &Map<String, Value>) -> Types {
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

/// Which of objects and arrays may fit a schema, judging by its own keywords.
fn takes(schema: &Map<String, Value>) -> Types {
    let all = Types::OBJECT.or(Types::ARRAY);
    let named = |name: &Value| match name.as_str() {
        Some(name) => standard_type(name).map_or(all, Types::of_name),
        None => all,
    };
    let union = |types: &mut dyn Iterator<Item = Types>| types.fold(Types::default(), Types::or);
    let limits = [
        match schema.get("type") {
            Some(name @ Value::String(_)) => named(name),
            Some(Value::Array(names)) => union(&mut names.iter().map(named)),
            _ => all,
        },
        schema.get("const").map_or(all, Types::of),
        schema.get("enum").and_then(Value::as_array).map_or(all, |values| union(&mut values.iter().map(Types::of))),
    ];
    limits.into_iter().fold(all, |left, limit| left.without(all.without(limit)))
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
        let schema = &Schema::read(&schema);
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

    #[test]
    fn references_are_followed_once_and_hostile_schemas_end() {
        let read = |schema: Value| Schema::read(&schema);
        let cases = [
            // A pointer, percent encoding, an id, an anchor, the root, a place that is no definition, nothing.
            (json!({"$ref": "#/$defs/a", "$defs": {"a": {"type": "null"}}}), Types::NULL),
            (json!({"$ref": "#/$defs/a%20b", "$defs": {"a b": {"type": "null"}}}), Types::NULL),
            (json!({"$id": "x:y", "$ref": "x:y#/$defs/a", "$defs": {"a": {"type": "null"}}}), Types::NULL),
            (json!({"$ref": "#here", "$defs": {"a": {"$anchor": "here", "type": "null"}}}), Types::NULL),
            (json!({"$ref": "#/anyOf/1", "anyOf": [{"$ref": "#"}, {"type": "null"}]}), Types::NULL),
            (json!({"$ref": "#/other/a", "other": {"a": {"type": "null"}}}), Types::NULL),
            (json!({"$ref": "#/$defs/none", "type": "null"}), Types::NULL),
            (json!({"$ref": "https://example.com", "type": "null"}), Types::NULL),
        ];
        for (schema, expected) in cases {
            assert_eq!(types(&read(schema.clone()), []), expected, "{schema}");
        }
        let doubled: Map<String, Value> = (0..40)
            .map(|n| (format!("a{n}"), json!({"allOf": [{"$ref": format!("#/$defs/a{}", n + 1)}, {"$ref": format!("#/$defs/a{}", n + 1)}]})))
            .collect();
        let doubled = read(json!({"$ref": "#/$defs/a0", "$defs": doubled}));
        assert!(doubled.multiplies().is_some() && types(&doubled, []).is_unknown());
        // One node for each subschema, however often it is referred to.
        assert_eq!(doubled.nodes.len(), 1 + 40 * 3);
        let mut deep = json!({"type": "string"});
        for _ in 0..500 {
            deep = json!({"items": deep});
        }
        let schema = read(deep);
        assert_eq!((schema.nodes.len(), schema.multiplies(), schema.explained_levels()), (501, None, None));
    }

    #[test]
    fn what_a_schema_asks_for_and_does_not_list() {
        let schema = json!({"properties": {
            "long": {"minLength": 9}, "list": {"items": {"enum": ["a"]}}, "one": {"$ref": "#"}, "free": {}
        }});
        let asks = |path: &[&str]| {
            let step = |name: &&str| if *name == "*" { Step::Item } else { Step::Member((*name).to_owned()) };
            Schema::read(&schema).asks(&path.iter().map(step).collect::<Vec<_>>())
        };
        for (path, expected) in [
            (&["long"][..], true),
            (&["list"], false),
            (&["list", "*"], true),
            (&["one"], true),
            (&["one", "free"], true),
            (&["free"], false),
            (&["none", "long"], false),
            (&[], false),
        ] {
            assert_eq!(asks(path), expected, "{path:?}");
        }
        let unlisted = |schema: Value| Schema::read(&schema).unlisted(["long", "x"].into_iter()).map(str::to_owned);
        assert_eq!(unlisted(schema.clone()), Some("x".to_owned()));
        assert_eq!(unlisted(json!({"properties": {}, "additionalProperties": true})), None);
        assert_eq!(unlisted(json!({"type": "object"})), None);
    }
}
