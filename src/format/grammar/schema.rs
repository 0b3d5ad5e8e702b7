//! A JSON Schema made fit for a grammar: what the grammar engine cannot enforce is taken out of it, and said.
//!
//! Relaxing is always local: a keyword that cannot be enforced is dropped where it stands and the rest of the schema
//! stays in force. What was dropped is checked after parsing, against the whole schema.

use super::Unenforced;
use crate::tool::dialect::children;
use llguidance::api::ParserLimits;
use llguidance::{GrammarBuilder, JsonCompileOptions};
use serde_json::{Map, Value, json};

/// Keywords of JSON Schema that say something about a value and that the grammar engine does not know.
const UNKNOWN: [&str; 18] = [
    "not",
    "if",
    "then",
    "else",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "contains",
    "minContains",
    "maxContains",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
    "uniqueItems",
    "$dynamicRef",
    "$recursiveRef",
    "contentSchema",
    "extends",
];

/// Formats that the grammar engine knows.
const FORMATS: [&str; 10] =
    ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"];

/// Keywords that only describe.
const DESCRIPTIONS: [&str; 10] = [
    "title",
    "description",
    "default",
    "examples",
    "example",
    "$comment",
    "deprecated",
    "readOnly",
    "writeOnly",
    "optional",
];

/// Keywords that say what a schema is, and nothing about a value.
const META: [&str; 8] =
    ["$schema", "$id", "$anchor", "$defs", "definitions", "$vocabulary", "contentMediaType", "contentEncoding"];

/// Whether a keyword says something about a value.
pub(super) fn restricts(keyword: &str) -> bool {
    !META.contains(&keyword) && !DESCRIPTIONS.contains(&keyword) && !keyword.starts_with("x-")
}

/// How deep a value may be nested that its schema says nothing about.
const ANY_DEPTH: usize = 3;

/// Numbers without bounds of their own stay below this: a model that cannot stop writing digits would otherwise leave
/// the range of what a program can read.
pub(super) const LARGEST: f64 = 1e18;

/// A schema for generating: what it cannot enforce is reported by path below `$`.
pub(super) fn prepare(schema: &Value) -> (Value, Vec<Unenforced>) {
    let mut preparing = Preparing { composed: mentions(schema, "allOf"), unenforced: Vec::new() };
    let mut schema = schema.clone();
    preparing.node(&mut schema, "$", true);
    (schema, preparing.unenforced)
}

/// Takes out what the grammar engine refuses, without narrowing anything: for checking texts.
pub(super) fn without_unknown(schema: &Value) -> (Value, Vec<Unenforced>) {
    let mut schema = schema.clone();
    let mut unenforced = Vec::new();
    drop_unknown(&mut schema, "$", &mut unenforced);
    (schema, unenforced)
}

fn mentions(schema: &Value, keyword: &str) -> bool {
    match schema {
        Value::Object(object) => object.contains_key(keyword) || object.values().any(|value| mentions(value, keyword)),
        Value::Array(items) => items.iter().any(|item| mentions(item, keyword)),
        _ => false,
    }
}

fn drop_unknown(schema: &mut Value, path: &str, unenforced: &mut Vec<Unenforced>) {
    let Value::Object(object) = schema else { return };
    let mut dropped = |keyword: &str| {
        unenforced.push(Unenforced { tool: None, path: path.to_owned(), keyword: keyword.to_owned() });
    };
    for keyword in UNKNOWN {
        let Some(value) = object.shift_remove(keyword) else { continue };
        // Said, but saying nothing.
        if !matches!((keyword, &value), ("uniqueItems", Value::Bool(false)) | ("then" | "else", _)) {
            dropped(keyword);
        }
    }
    if let Some(format) = object.get("format")
        && !format.as_str().is_some_and(|format| FORMATS.contains(&format))
    {
        object.shift_remove("format");
        dropped("format");
    }
    if let Some(pattern) = object.get("pattern")
        && compile(&json!({"type": "string", "pattern": pattern})).is_err_and(|why| !is_impossible(&why))
    {
        object.shift_remove("pattern");
        dropped("pattern");
    }
    // It stays in force, but a grammar counts a key that is written twice as two.
    let least = object.get("minProperties").and_then(Value::as_u64).unwrap_or(0);
    let free = match object.get("additionalProperties") {
        Some(Value::Bool(false)) => object.contains_key("patternProperties"),
        Some(_) => true,
        None => object.contains_key("patternProperties") || !object.contains_key("properties"),
    };
    if least > 1 && free {
        unenforced.push(Unenforced { tool: None, path: path.to_owned(), keyword: "minProperties".to_owned() });
    }
    for (key, child) in children(object) {
        drop_unknown(child, &format!("{path}.{key}"), unenforced);
    }
}

struct Preparing {
    /// Whether parts of the schema are combined: an object that is closed could then not be combined with others.
    composed: bool,
    unenforced: Vec<Unenforced>,
}

impl Preparing {
    /// `closable`: whether keys that the schema does not mention may be forbidden here.
    fn node(&mut self, schema: &mut Value, path: &str, closable: bool) {
        if path == "$" {
            drop_unknown(schema, path, &mut self.unenforced);
        }
        let Value::Object(object) = schema else {
            if *schema == Value::Bool(true) {
                *schema = any(ANY_DEPTH);
            }
            return;
        };
        object.retain(|key, _| !DESCRIPTIONS.contains(&key.as_str()));
        if object.keys().all(|key| key == "$schema" || key == "$id") {
            *schema = any(ANY_DEPTH);
            return;
        }
        bound_numbers(object);
        let combined = ["allOf", "anyOf", "oneOf", "$ref"].iter().any(|key| object.contains_key(*key));
        let closable = closable && !self.composed;
        for (key, child) in children(object) {
            let alternative = key.starts_with("anyOf") || key.starts_with("oneOf");
            self.node(child, &format!("{path}.{key}"), if alternative { closable && path != "$" } else { closable });
        }
        if closable && !combined && is_type(object, "object") {
            open_or_closed(object);
        }
        if is_type(object, "array") && !object.contains_key("items") && !object.contains_key("prefixItems") {
            object.insert("items".to_owned(), any(ANY_DEPTH - 1));
        }
    }
}

/// What may stand in an object beside what its schema mentions: nothing, or, where it mentions nothing, anything small.
fn open_or_closed(object: &mut Map<String, Value>) {
    let mentioned = object.get("properties").and_then(Value::as_object).is_some_and(|map| !map.is_empty());
    let open = matches!(object.get("additionalProperties"), None | Some(Value::Bool(true)));
    if object.contains_key("patternProperties") || !open {
        return;
    }
    let asked_for = object.contains_key("additionalProperties");
    let rest = if mentioned && !asked_for { Value::Bool(false) } else { any(ANY_DEPTH - 1) };
    object.insert("additionalProperties".to_owned(), rest);
}

fn is_type(object: &Map<String, Value>, kind: &str) -> bool {
    match object.get("type") {
        Some(Value::String(one)) => one == kind,
        Some(Value::Array(several)) => several.iter().any(|one| one == kind),
        _ => kind == "object" && object.contains_key("properties"),
    }
}

fn bound_numbers(object: &mut Map<String, Value>) {
    if !is_type(object, "integer") && !is_type(object, "number") {
        return;
    }
    let bounded = |keys: [&str; 2]| keys.iter().any(|key| object.get(*key).is_some_and(Value::is_number));
    let (below, above) = (bounded(["minimum", "exclusiveMinimum"]), bounded(["maximum", "exclusiveMaximum"]));
    let number = |key: &str| object.get(key).and_then(Value::as_f64).unwrap_or(0.0);
    let beyond = number("minimum").max(number("exclusiveMinimum")) >= LARGEST
        || number("maximum").min(number("exclusiveMaximum")) <= -LARGEST;
    if !below && !beyond {
        object.insert("minimum".to_owned(), json!(-LARGEST));
    }
    if !above && !beyond {
        object.insert("maximum".to_owned(), json!(LARGEST));
    }
}

/// Any value, nested at most `depth` deep: a model that only opens brackets would otherwise never be done.
pub(super) fn any(depth: usize) -> Value {
    let number = json!({"type": "number", "minimum": -LARGEST, "maximum": LARGEST});
    let scalars = json!({"type": ["string", "boolean", "null"]});
    match depth.checked_sub(1) {
        None => json!({"anyOf": [scalars, number]}),
        Some(depth) => json!({"anyOf": [
            scalars, number,
            {"type": "array", "items": any(depth)},
            {"type": "object", "additionalProperties": any(depth)},
        ]}),
    }
}

/// Whether the grammar engine takes a schema; else its complaint.
pub(super) fn compile(schema: &Value) -> Result<(), String> {
    let limits = ParserLimits { verbose_errors: false, ..ParserLimits::default() };
    let options = JsonCompileOptions::default();
    let compiled = options.json_to_llg_with_overrides(GrammarBuilder::new(None, limits), schema.clone());
    compiled.map(|_| ()).map_err(|error| format!("{error:#}"))
}

/// Whether a complaint says that no value fits the schema.
pub(super) fn is_impossible(complaint: &str) -> bool {
    complaint.contains("Unsatisfiable schema")
}

/// Relaxes the nodes that the grammar engine refuses to compile, and only these.
pub(super) fn relax(schema: &mut Value, unenforced: &mut Vec<Unenforced>) {
    let definitions: Map<String, Value> = match &*schema {
        Value::Object(object) => ["$defs", "definitions"]
            .iter()
            .filter_map(|key| Some(((*key).to_owned(), object.get(*key)?.clone())))
            .collect(),
        _ => Map::new(),
    };
    relax_node(schema, "$", &definitions, unenforced);
}

fn relax_node(schema: &mut Value, path: &str, definitions: &Map<String, Value>, unenforced: &mut Vec<Unenforced>) {
    let complaint = |schema: &Value| {
        let mut alone = schema.clone();
        if let Value::Object(object) = &mut alone {
            for (key, value) in definitions {
                object.entry(key.as_str()).or_insert_with(|| value.clone());
            }
        }
        compile(&alone).err().filter(|why| !is_impossible(why))
    };
    if complaint(schema).is_none() {
        return;
    }
    let Value::Object(object) = schema else { return };
    for (key, child) in children(object) {
        relax_node(child, &format!("{path}.{key}"), definitions, unenforced);
    }
    // Which of several alternatives fits, a grammar can say; that the others do not, only where they exclude each other.
    if complaint(schema).is_some_and(|why| why.contains("oneOf"))
        && let Value::Object(object) = &mut *schema
        && let Some(options) = object.shift_remove("oneOf")
    {
        object.insert("anyOf".to_owned(), options);
        unenforced.push(Unenforced { tool: None, path: path.to_owned(), keyword: "oneOf".to_owned() });
    }
    // The keyword at fault is the one without which the rest compiles.
    while complaint(schema).is_some() {
        let Value::Object(object) = &mut *schema else { return };
        let keys: Vec<String> =
            object.keys().filter(|key| !["type", "properties"].contains(&key.as_str())).cloned().collect();
        let culprit = keys.iter().find(|key| {
            let mut without = object.clone();
            without.shift_remove(key.as_str());
            complaint(&Value::Object(without)).is_none()
        });
        let keyword = match culprit.or(keys.first()) {
            Some(keyword) => keyword.clone(),
            None => {
                unenforced.push(Unenforced { tool: None, path: path.to_owned(), keyword: "type".to_owned() });
                *schema = any(ANY_DEPTH);
                return;
            }
        };
        object.shift_remove(&keyword);
        unenforced.push(Unenforced { tool: None, path: path.to_owned(), keyword });
    }
}
