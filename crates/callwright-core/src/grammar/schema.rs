//! Prepares a JSON Schema for a grammar: removes what the grammar engine cannot enforce, and reports it.
//!
//! Relaxing is local: a keyword that cannot be enforced is dropped in its place, and the rest of the schema stays in
//! force. After parsing, values are checked against the whole schema.

use super::lark::prepared;
use super::{Unenforced, budget};
use crate::schema::{COMBINING, Kind, TABLES, children, describes, each, kind_of, restricts, unsupported};
use llguidance::api::TopLevelGrammar;
use serde_json::{Map, Value, json};

/// Formats that the grammar engine supports.
const FORMATS: [&str; 10] =
    ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"];

/// Returns whether a schema's `type` includes `kind`.
pub(super) fn names_type(kinds: &Value, kind: &str) -> bool {
    match kinds {
        Value::Array(several) => several.iter().any(|one| one == kind),
        one => one == kind,
    }
}

pub(super) fn types_of_value(value: &Value) -> &'static [&'static str] {
    match value {
        Value::Null => &["null"],
        Value::Bool(_) => &["boolean"],
        Value::Number(number) if number.as_f64().is_some_and(|number| number.fract() == 0.0) => &["integer", "number"],
        Value::Number(_) => &["number"],
        Value::String(_) => &["string"],
        Value::Array(_) => &["array"],
        Value::Object(_) => &["object"],
    }
}

/// Minimum and maximum number of an array's items.
pub(super) fn item_counts(object: &Map<String, Value>) -> (u64, Option<u64>) {
    let count = |key: &str| object.get(key).and_then(Value::as_u64);
    (count("minItems").unwrap_or(0), count("maxItems"))
}

/// A schema without its definitions.
pub(super) fn without_definitions(object: &Map<String, Value>) -> Value {
    let kept = object.iter().filter(|(key, _)| !TABLES.contains(&key.as_str()));
    Value::Object(kept.map(|(key, value)| (key.clone(), value.clone())).collect())
}

/// The listed values that fit the schema in all other respects; `None` if it lists none.
pub(super) fn listed(schema: &Map<String, Value>, whole: &Map<String, Value>) -> Option<Vec<Value>> {
    let values = values(schema)?;
    // If only the type remains to check, no validator is needed.
    let is_plain = schema.keys().filter(|keyword| *keyword != "type" && restricts(keyword)).count() == 1;
    let alone = || super::tagged::with_definitions(&Value::Object(schema.clone()), whole);
    let validator = (!is_plain).then(|| jsonschema::validator_for(&alone()).ok()).flatten();
    let fits = |value: &Value| match (&validator, schema.get("type")) {
        (Some(validator), _) => validator.is_valid(value),
        (None, Some(kinds)) => types_of_value(value).iter().any(|kind| names_type(kinds, kind)),
        (None, None) => true,
    };
    Some(values.iter().filter(|value| fits(value)).cloned().collect())
}

/// The values that a schema lists, unchecked.
pub(super) fn values(schema: &Map<String, Value>) -> Option<&[Value]> {
    let listed = schema.get("enum").and_then(Value::as_array).map(Vec::as_slice);
    listed.or(schema.get("const").map(std::slice::from_ref))
}

/// Maximum nesting of a value that its schema does not describe.
const ANY_DEPTH: usize = 3;

/// Limit for numbers without bounds: a model that cannot stop writing digits would otherwise exceed the range that
/// programs can read.
pub(super) const LARGEST: f64 = 1e18;

/// Prepares a schema for generating. Dropped keywords are reported by path below `$`.
pub(super) fn prepare(schema: &Value) -> (Value, Vec<Unenforced>) {
    let composed = mentions(schema, "allOf");
    let (mut schema, unenforced) = without_unknown(schema);
    Preparing { composed }.node(&mut schema, true, true);
    (schema, unenforced)
}

/// Removes what the grammar engine refuses without narrowing anything; for checking texts.
pub(super) fn without_unknown(schema: &Value) -> (Value, Vec<Unenforced>) {
    let mut schema = schema.clone();
    let mut unenforced = Vec::new();
    each(&mut schema, "$", &mut |object, path| drop_unknown(object, path, &mut unenforced));
    (schema, unenforced)
}

/// Writes counts such as `2.0` as integers.
pub(super) fn whole_counts(schema: &mut Value) {
    each(schema, "", &mut |object, _| {
        for (_, value) in object.iter_mut().filter(|(key, value)| value.is_f64() && kind_of(key) == Kind::Count) {
            if let Some(count) = value.as_f64().filter(|count| count.fract() == 0.0 && (0.0..LARGEST).contains(count)) {
                *value = json!(count as u64);
            }
        }
    });
}

/// Returns whether a schema has a keyword somewhere.
pub(super) fn mentions(schema: &Value, keyword: &str) -> bool {
    match schema {
        Value::Object(object) => object.contains_key(keyword) || object.values().any(|value| mentions(value, keyword)),
        Value::Array(items) => items.iter().any(|item| mentions(item, keyword)),
        _ => false,
    }
}

fn drop_unknown(object: &mut Map<String, Value>, path: &str, unenforced: &mut Vec<Unenforced>) {
    let mut dropped = |keyword: &str| {
        unenforced.push(Unenforced::at(path, keyword));
    };
    for keyword in unsupported() {
        let Some(value) = object.shift_remove(keyword) else { continue };
        // Keywords with no effect.
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
    // The engine limits numeric types to a certain size.
    let is_large = |value: &Value| value.as_f64().is_some_and(|number| number.abs() >= LARGEST);
    if values(object).is_some_and(|values| values.iter().any(is_large))
        && (is_type(object, "integer") || is_type(object, "number"))
        && let Some(kinds) = object.shift_remove("type")
        && let Some(Value::Array(values)) = object.get_mut("enum")
    {
        values.retain(|value| types_of_value(value).iter().any(|kind| names_type(&kinds, kind)));
    }
    // The grammar enforces it, but counts a repeated key twice.
    let least = object.get("minProperties").and_then(Value::as_u64).unwrap_or(0);
    let free = match object.get("additionalProperties") {
        Some(Value::Bool(false)) => object.contains_key("patternProperties"),
        Some(_) => true,
        None => object.contains_key("patternProperties") || !object.contains_key("properties"),
    };
    if least > 1 && free {
        unenforced.push(Unenforced::at(path, "minProperties"));
    }
}

struct Preparing {
    /// Whether the schema combines parts: a closed object could not be combined with others.
    composed: bool,
}

impl Preparing {
    /// `closable`: whether keys that the schema does not mention may be forbidden here.
    fn node(&self, schema: &mut Value, is_root: bool, closable: bool) {
        let Value::Object(object) = schema else {
            if *schema == Value::Bool(true) {
                *schema = any(ANY_DEPTH);
            }
            return;
        };
        object.retain(|key, _| !describes(key));
        if let Some(Value::Array(parts)) = object.get_mut("allOf") {
            // Hundreds of parts that say nothing would each be written as any value, and combined.
            let counts = |key: &String| restricts(key) || TABLES.contains(&key.as_str());
            parts.retain(|part| part.as_object().map_or(*part != true, |part| part.keys().any(counts)));
            if parts.is_empty() {
                object.shift_remove("allOf");
            }
        }
        if object.keys().all(|key| key == "$schema" || key == "$id") {
            *schema = any(ANY_DEPTH);
            return;
        }
        bound_numbers(object);
        let combined = COMBINING.iter().any(|key| object.contains_key(*key));
        let closable = closable && !self.composed;
        for (key, child) in children(object) {
            let alternative = key.starts_with("anyOf") || key.starts_with("oneOf");
            self.node(child, false, closable && !(alternative && is_root));
        }
        if closable && !combined && is_type(object, "object") {
            open_or_closed(object);
        }
        if is_type(object, "array") && !object.contains_key("items") && !object.contains_key("prefixItems") {
            object.insert("items".to_owned(), any(ANY_DEPTH - 1));
        }
    }
}

/// Restricts other members than the schema mentions: to none, or, if it mentions none, to small values.
fn open_or_closed(object: &mut Map<String, Value>) {
    let mentioned = object.get("properties").and_then(Value::as_object).is_some_and(|map| !map.is_empty());
    let open = matches!(object.get("additionalProperties"), None | Some(Value::Bool(true)));
    if object.contains_key("patternProperties") || !open {
        return;
    }
    let explicit = object.contains_key("additionalProperties");
    let closed = mentioned && !explicit;
    if closed {
        // Required members must be mentioned, because other keys are forbidden.
        let required: Vec<(String, bool)> =
            super::tagged::properties(object).into_iter().map(|(name, _, required)| (name, required)).collect();
        if let Some(Value::Object(declared)) = object.get_mut("properties") {
            for (name, _) in required.into_iter().filter(|(_, required)| *required) {
                declared.entry(name).or_insert_with(|| any(ANY_DEPTH - 1));
            }
        }
    }
    let rest = if closed { Value::Bool(false) } else { any(ANY_DEPTH - 1) };
    object.insert("additionalProperties".to_owned(), rest);
}

fn is_type(object: &Map<String, Value>, kind: &str) -> bool {
    match object.get("type") {
        Some(kinds @ (Value::String(_) | Value::Array(_))) => names_type(kinds, kind),
        _ => kind == "object" && object.contains_key("properties"),
    }
}

pub(super) fn bound_numbers(object: &mut Map<String, Value>) {
    // Listed values need no bounds, and may exceed them.
    let is_listed = object.contains_key("enum") || object.contains_key("const");
    if is_listed || !is_type(object, "integer") && !is_type(object, "number") {
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

/// Any value, nested at most `depth` deep: a model that only opens brackets would otherwise never end.
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

/// Compiles a schema with the grammar engine; the error is its message, or that the time is over.
pub(super) fn compile(schema: &Value) -> Result<(), String> {
    budget::check().map_err(|ended| ended.to_string())?;
    prepared(TopLevelGrammar::from_json_schema(schema.clone()), None).map(drop)
}

/// Returns whether the engine's message says that no value fits the schema.
pub(super) fn is_impossible(complaint: &str) -> bool {
    complaint.contains("Unsatisfiable schema")
}

/// The path to the innermost part of a schema that no value fits, and the keyword without which a value would fit.
pub(super) fn culprit(schema: &Value) -> (String, Option<String>) {
    let definitions = schema.as_object().map(definitions).unwrap_or_default();
    let impossible = |schema: &Value| compile_part(schema, &definitions).is_err_and(|why| is_impossible(&why));
    let (mut part, mut path) = (schema.clone(), "$".to_owned());
    'deeper: loop {
        let Value::Object(object) = &part else { return (path, None) };
        let count = children(&mut object.clone()).len();
        for index in 0..count {
            // Without this member, a value fits the whole.
            let mut without = object.clone();
            let Some((key, child)) = children(&mut without).into_iter().nth(index) else { continue };
            let taken = std::mem::replace(child, Value::Bool(true));
            let in_definitions = key.starts_with("$defs.") || key.starts_with("definitions.");
            if !in_definitions && impossible(&taken) && !impossible(&Value::Object(without)) {
                path = format!("{path}.{key}");
                part = taken;
                continue 'deeper;
            }
        }
        let keyword = object.keys().find(|key| {
            let mut without = object.clone();
            without.shift_remove(key.as_str());
            *key != "type" && !impossible(&Value::Object(without))
        });
        return (path, keyword.cloned());
    }
}

/// The schema's definitions.
pub(super) fn definitions(object: &Map<String, Value>) -> Map<String, Value> {
    TABLES.iter().filter_map(|key| Some(((*key).to_owned(), object.get(*key)?.clone()))).collect()
}

/// Like [`compile`] for a part of a schema, which may refer to the definitions of the whole.
fn compile_part(part: &Value, definitions: &Map<String, Value>) -> Result<(), String> {
    compile(&super::tagged::with_definitions(part, definitions))
}

/// Rewrites `{"not": {}}`, which no value fits, as `false`: generators use it for an absent value.
pub(super) fn plain_never(schema: &mut Value) {
    let Value::Object(object) = schema else { return };
    for (_, child) in children(object) {
        plain_never(child);
    }
    let fits_all = |schema: &Value| match schema {
        Value::Object(object) => !object.keys().any(|keyword| restricts(keyword)),
        other => *other == true,
    };
    match object.get("not") {
        Some(Value::Bool(false)) => drop(object.shift_remove("not")),
        Some(negated) if fits_all(negated) => *schema = Value::Bool(false),
        _ => {}
    }
}

/// Relaxes the nodes that the grammar engine refuses to compile, and no others.
pub(super) fn relax(schema: &mut Value, unenforced: &mut Vec<Unenforced>) {
    relax_alternatives(schema, unenforced);
    relax_definitions(schema, unenforced);
    let definitions = schema.as_object().map(definitions).unwrap_or_default();
    relax_node(schema, "$", &definitions, unenforced, &|_| true);
}

/// Relaxes `oneOf`: a grammar can require that one alternative fits, but can exclude the others only if they are
/// disjoint.
///
/// Each `oneOf` is tried separately, with the others replaced by `anyOf`. Otherwise a definition with a failing `oneOf`
/// would relax everything that refers to it.
fn relax_alternatives(schema: &mut Value, unenforced: &mut Vec<Unenforced>) {
    if !compile(schema).is_err_and(|why| why.contains("oneOf")) {
        return;
    }
    let mut relaxed = schema.clone();
    any_of(&mut relaxed);
    let definitions = relaxed.as_object().map(definitions).unwrap_or_default();
    relax_inexclusive(schema, "$", &definitions, unenforced);
}

fn relax_inexclusive(
    schema: &mut Value,
    path: &str,
    definitions: &Map<String, Value>,
    unenforced: &mut Vec<Unenforced>,
) {
    let Value::Object(object) = schema else { return };
    for (key, child) in children(object) {
        relax_inexclusive(child, &format!("{path}.{key}"), definitions, unenforced);
    }
    if !object.contains_key("oneOf") {
        return;
    }
    let mut alone = object.clone();
    alone.retain(|key, _| !TABLES.contains(&key.as_str()));
    for (_, child) in children(&mut alone) {
        any_of(child);
    }
    if compile_part(&Value::Object(alone), definitions).is_err_and(|why| why.contains("oneOf")) {
        one_as_any(object);
        unenforced.push(Unenforced::at(path, "oneOf"));
    }
}

/// Writes every `oneOf` as `anyOf`.
fn any_of(schema: &mut Value) {
    each(schema, "", &mut |object, _| one_as_any(object));
}

fn one_as_any(object: &mut Map<String, Value>) {
    let Some(options) = object.shift_remove("oneOf") else { return };
    if !object.contains_key("anyOf") {
        object.insert("anyOf".to_owned(), options);
        return;
    }
    if let Value::Array(parts) = object.entry("allOf").or_insert_with(|| json!([])) {
        parts.push(json!({"anyOf": options}));
    }
}

/// Relaxes each definition for its own keywords; what it refers to is relaxed in its own place.
fn relax_definitions(schema: &mut Value, unenforced: &mut Vec<Unenforced>) {
    let Value::Object(object) = schema else { return };
    let mut open = definitions(object);
    for table in open.values_mut().filter_map(Value::as_object_mut) {
        table.values_mut().for_each(|definition| *definition = Value::Bool(true));
    }
    for table in TABLES {
        let Some(Value::Object(defined)) = object.get_mut(table) else { continue };
        for (name, definition) in defined {
            // Whether alternatives are disjoint depends on the definitions that they refer to.
            relax_node(definition, &format!("$.{table}.{name}"), &open, unenforced, &|why| !why.contains("oneOf"));
        }
    }
}

/// `counts` decides whether a message is about this schema.
fn relax_node(
    schema: &mut Value,
    path: &str,
    definitions: &Map<String, Value>,
    unenforced: &mut Vec<Unenforced>,
    counts: &dyn Fn(&str) -> bool,
) {
    if budget::check().is_err() {
        return;
    }
    let complaint =
        |schema: &Value| compile_part(schema, definitions).err().filter(|why| !is_impossible(why) && counts(why));
    if complaint(schema).is_none() {
        return;
    }
    let Value::Object(object) = schema else { return };
    for (key, child) in children(object) {
        relax_node(child, &format!("{path}.{key}"), definitions, unenforced, counts);
    }
    if complaint(schema).is_some_and(|why| why.contains("oneOf"))
        && let Value::Object(object) = &mut *schema
        && object.contains_key("oneOf")
    {
        one_as_any(object);
        unenforced.push(Unenforced::at(path, "oneOf"));
    }
    // The keyword at fault is the one without which the rest compiles.
    while complaint(schema).is_some() {
        let Value::Object(object) = &mut *schema else { return };
        if budget::check().is_err() {
            return;
        }
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
                unenforced.push(Unenforced::at(path, "type"));
                *schema = any(ANY_DEPTH);
                return;
            }
        };
        object.shift_remove(&keyword);
        unenforced.push(Unenforced::at(path, &keyword));
    }
}
