//! Measures a schema, and leaves out what is too large in it, before anything recurses over it or compiles it.
//!
//! See [`limits`](super::limits) for the order. A schema within the limits is not changed.

use super::Unenforced;
use super::limits::LIMITS;
use crate::schema::{COMBINING, TABLES, children, each, resolve, restricts};
use serde_json::{Map, Value};
use std::collections::HashMap;

/// Keywords about other parts of a value, none of which a grammar enforces.
const CONDITIONS: [&str; 7] = ["if", "then", "else", "not", "dependencies", "dependentRequired", "dependentSchemas"];
/// Maximum number of parts that are noted one by one.
const NOTED: usize = 50;
/// References to follow from one value to the next; more are counted as too many patterns.
const FOLLOWED: usize = 64;
/// What the engine's pattern of a `format` counts as.
const FORMAT: u64 = 50;

/// A schema within the limits.
#[derive(Clone)]
pub(super) struct Fitted {
    pub schema: Value,
    /// What was left out.
    pub unenforced: Vec<Unenforced>,
    /// Whether to compile it on a thread with a large stack.
    pub large: bool,
}

/// Leaves out what is too large.
pub(super) fn fitted(mut schema: Value) -> Fitted {
    let mut fitting = Fitting::default();
    fitting.node(&mut schema, "$", 0);
    if fitting.conditions > LIMITS.conditions {
        let many = fitting.conditions;
        each(&mut schema, "$", &mut |object, _| object.retain(|keyword, _| !CONDITIONS.contains(&keyword.as_str())));
        let why = format!("there are {many} conditions in the schema, and at most {} are looked at", LIMITS.conditions);
        fitting.leave("$", "if", why);
    }
    if fitting.schemas > LIMITS.schemas {
        fitting.trim(&mut schema);
    }
    let mut most = 0.0;
    if fitting.combines {
        let root = schema.clone();
        let mut combining = Combining { root: &root, known: HashMap::new(), open: 0, total: 0.0, most: 0.0 };
        combining.node(&mut schema, "$", &mut fitting);
        most = combining.most;
    }
    if fitting.left > NOTED {
        let more = format!("this and {} more places are too large", fitting.left - NOTED);
        fitting.unenforced.push(Unenforced { limit: Some(more), ..Unenforced::at("$", "properties") });
    }
    let large = fitting.schemas > 64
        || fitting.deepest > 20
        || fitting.widest > 64
        || fitting.bytes > 64 << 10
        || fitting.patterns > 8
        || most > 500.0;
    Fitted { schema, unenforced: fitting.unenforced, large }
}

/// The same arguments with any values.
pub(super) fn names_only(schema: &Map<String, Value>) -> Map<String, Value> {
    let mut schema = schema.clone();
    schema.retain(|key, _| ["type", "properties", "required", "additionalProperties"].contains(&key.as_str()));
    if let Some(Value::Object(members)) = schema.get_mut("properties") {
        members.values_mut().for_each(|member| *member = Value::Bool(true));
    }
    if schema.get("additionalProperties").is_some_and(Value::is_object) {
        schema.insert("additionalProperties".to_owned(), Value::Bool(true));
    }
    schema
}

#[derive(Default)]
struct Fitting {
    unenforced: Vec<Unenforced>,
    /// Number of parts that were left out.
    left: usize,
    schemas: usize,
    deepest: usize,
    widest: usize,
    /// Bytes of all listed values and patterns.
    bytes: usize,
    patterns: usize,
    conditions: usize,
    /// Whether several schemas may apply to one value.
    combines: bool,
}

impl Fitting {
    fn leave(&mut self, path: &str, keyword: &str, why: String) {
        self.left += 1;
        if self.left <= NOTED {
            self.unenforced.push(Unenforced { limit: Some(why), ..Unenforced::at(path, keyword) });
        }
    }

    fn node(&mut self, schema: &mut Value, path: &str, depth: usize) {
        self.schemas += 1;
        self.deepest = self.deepest.max(depth);
        let Value::Object(object) = schema else { return };
        if depth > LIMITS.depth {
            let keyword = first_keyword(object);
            self.leave(path, &keyword, format!("it is more than {} levels deep", LIMITS.depth));
            *schema = Value::Bool(true);
            return;
        }
        self.counts(object, path);
        self.values(object, path);
        self.patterns(object, path);
        self.members(object, path);
        self.conditions += CONDITIONS.iter().filter(|keyword| object.contains_key(**keyword)).count();
        self.combines |= COMBINING.iter().any(|keyword| object.contains_key(*keyword));
        for (key, child) in children(object) {
            self.node(child, &format!("{path}.{key}"), depth + 1);
        }
    }

    fn counts(&mut self, object: &mut Map<String, Value>, path: &str) {
        let least = |keyword: &str| match keyword {
            "minLength" => LIMITS.least_length,
            _ => LIMITS.least_items,
        };
        for keyword in ["minLength", "minItems", "minProperties"] {
            let (most, count) = (least(keyword), object.get(keyword).and_then(Value::as_f64));
            if let Some(count) = count.filter(|count| *count > most as f64) {
                object.shift_remove(keyword);
                self.leave(path, keyword, format!("it is {count}, and at most {most} is enforced"));
            }
        }
        // No answer is that long.
        for keyword in ["maxLength", "maxItems", "maxProperties"] {
            if object.get(keyword).and_then(Value::as_f64).is_some_and(|count| count > 1e6) {
                object.shift_remove(keyword);
            }
        }
    }

    fn values(&mut self, object: &mut Map<String, Value>, path: &str) {
        for keyword in ["enum", "const"] {
            let Some(value) = object.get(keyword) else { continue };
            let (count, bytes) = (value.as_array().map_or(1, Vec::len), size(value));
            self.bytes += bytes;
            let why = if keyword == "enum" && count > LIMITS.values {
                format!("there are {count} values, and at most {} are enforced", LIMITS.values)
            } else if bytes > LIMITS.value_bytes {
                format!("the values have {bytes} bytes, and at most {} are enforced", LIMITS.value_bytes)
            } else {
                continue;
            };
            object.shift_remove(keyword);
            self.leave(path, keyword, why);
        }
    }

    fn patterns(&mut self, object: &mut Map<String, Value>, path: &str) {
        if let Some(length) = object.get("pattern").and_then(Value::as_str).map(str::len) {
            self.patterns += 1;
            self.bytes += length;
            let why = if length > LIMITS.pattern_bytes {
                format!("it has {length} bytes, and at most {} are enforced", LIMITS.pattern_bytes)
            } else if self.patterns > LIMITS.patterns {
                format!("at most {} patterns of a schema are enforced", LIMITS.patterns)
            } else {
                return;
            };
            object.shift_remove("pattern");
            self.leave(path, "pattern", why);
        }
    }

    fn members(&mut self, object: &mut Map<String, Value>, path: &str) {
        if let Some(Value::Object(names)) = object.get("patternProperties") {
            self.patterns += names.len();
            self.bytes += names.keys().map(String::len).sum::<usize>();
            if names.len() > LIMITS.name_patterns || names.keys().any(|name| name.len() > LIMITS.pattern_bytes) {
                let why = format!(
                    "there are {} patterns of names, and at most {} are enforced",
                    names.len(),
                    LIMITS.name_patterns
                );
                object.shift_remove("patternProperties");
                object.shift_remove("additionalProperties");
                self.leave(path, "patternProperties", why);
            }
        }
        let required: Vec<String> = object
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(|name| name.as_str().map(str::to_owned))
            .collect();
        let Some(Value::Object(members)) = object.get_mut("properties") else { return };
        let count = members.len();
        self.widest = self.widest.max(count).max(required.len());
        if count > LIMITS.properties || required.len() > LIMITS.properties {
            // The required ones first: an object without them is of no use.
            let required: std::collections::HashSet<String> = required.into_iter().take(LIMITS.properties).collect();
            let mut room = LIMITS.properties.saturating_sub(required.len());
            members.retain(|name, _| {
                let kept = required.contains(name) || room > 0;
                room = room.saturating_sub(usize::from(!required.contains(name)));
                kept
            });
            let kept = required.into_iter().map(Value::from).collect();
            object.insert("required".to_owned(), Value::Array(kept));
            object.insert("additionalProperties".to_owned(), Value::Bool(true));
            let why = format!("there are {count} members, and at most {} are enforced", LIMITS.properties);
            self.leave(path, "properties", why);
            return;
        }
        for keyword in ["minProperties", "maxProperties"] {
            if count.saturating_sub(required.len()) > LIMITS.counted_properties
                && object.shift_remove(keyword).is_some()
            {
                let most = LIMITS.counted_properties;
                let why = format!("there are {count} members, and it is enforced for {most} optional ones");
                self.leave(path, keyword, why);
            }
        }
    }

    /// Leaves out the largest parts, until the rest is small enough.
    fn trim(&mut self, schema: &mut Value) {
        let Value::Object(object) = schema else { return };
        let mut parts: Vec<(usize, String)> =
            children(object).into_iter().map(|(key, child)| (count(child), key)).collect();
        parts.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
        let total = self.schemas;
        for (count, key) in parts {
            if self.schemas <= LIMITS.schemas {
                break;
            }
            let child = children(object).into_iter().find(|(other, _)| *other == key);
            let Some((_, child)) = child else { continue };
            let keyword = child.as_object().map_or_else(|| "type".to_owned(), first_keyword);
            *child = Value::Bool(true);
            self.schemas -= count.min(self.schemas);
            let most = LIMITS.schemas;
            let why = format!("it has {count} of {total} schemas, and at most {most} are enforced");
            self.leave(&format!("$.{key}"), &keyword, why);
        }
    }
}

/// The keyword to name for a schema that is left out as a whole.
fn first_keyword(object: &Map<String, Value>) -> String {
    let mut keywords = object.keys().filter(|keyword| restricts(keyword));
    keywords.next().map_or_else(|| "type".to_owned(), Clone::clone)
}

/// Number of schemas in a schema.
fn count(schema: &mut Value) -> usize {
    let Value::Object(object) = schema else { return 1 };
    1 + children(object).into_iter().map(|(_, child)| count(child)).sum::<usize>()
}

/// About the number of bytes of a value as JSON.
fn size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(|item| size(item) + 1).sum::<usize>() + 1,
        Value::Object(members) => members.iter().map(|(key, member)| key.len() + size(member) + 4).sum::<usize>() + 1,
        _ => 5,
    }
}

/// What becomes of the schemas that apply to one value, once they are combined.
#[derive(Debug, Clone, Copy)]
struct Joint {
    /// Alternatives.
    options: f64,
    /// Schemas.
    size: f64,
    /// The product of the patterns' lengths.
    patterns: f64,
}

impl Joint {
    const ONE: Joint = Joint { options: 1.0, size: 1.0, patterns: 1.0 };

    fn and(self, other: Joint) -> Joint {
        Joint {
            options: self.options * other.options,
            size: self.size * other.options + other.size * self.options,
            patterns: self.patterns * other.patterns,
        }
    }

    fn or(self, other: Joint) -> Joint {
        Joint {
            options: self.options + other.options,
            size: self.size + other.size,
            patterns: self.patterns.max(other.patterns),
        }
    }

    /// As much as the limits leave of it: what is more is left out where it is.
    fn limited(self) -> Joint {
        let most = LIMITS.combined as f64;
        Joint {
            options: self.options.min(most),
            size: self.size.min(most),
            patterns: self.patterns.min(LIMITS.pattern_product as f64),
        }
    }
}

/// Leaves out what multiplies too much where several schemas apply to one value.
struct Combining<'s> {
    root: &'s Value,
    /// What references lead to.
    known: HashMap<String, Joint>,
    /// Number of references that are being followed.
    open: usize,
    /// The sum of all sizes.
    total: f64,
    most: f64,
}

impl Combining<'_> {
    fn node(&mut self, schema: &mut Value, path: &str, fitting: &mut Fitting) {
        let Value::Object(object) = schema else { return };
        for (key, child) in children(object) {
            self.node(child, &format!("{path}.{key}"), fitting);
        }
        while COMBINING.iter().any(|keyword| object.contains_key(*keyword)) {
            let joint = self.joint(object);
            let (product, combined) = (LIMITS.pattern_product as f64, LIMITS.combined as f64);
            let too_many = joint.patterns > product;
            if !too_many && joint.size <= combined && self.total + joint.size <= 4.0 * combined {
                self.total += joint.size;
                self.most = self.most.max(joint.size).max(joint.patterns / 100.0);
                return;
            }
            let weight = |joint: Joint| if too_many { joint.patterns } else { joint.size * joint.options };
            let parts = COMBINING.into_iter().filter_map(|keyword| Some((self.part(object, keyword)?, keyword)));
            let parts: Vec<(Joint, &str)> = parts.collect();
            let largest = parts.into_iter().max_by(|(a, _), (b, _)| weight(*a).total_cmp(&weight(*b)));
            let Some((_, keyword)) = largest else { return };
            object.shift_remove(keyword);
            let why = match too_many {
                true => "the patterns that apply to one text are too many to be enforced together".to_owned(),
                false => format!("more than {} schemas result from combining its alternatives", LIMITS.combined),
            };
            fitting.leave(path, keyword, why);
        }
    }

    fn joint(&mut self, object: &Map<String, Value>) -> Joint {
        let mut joint = Joint { size: 1.0 + nested(object) as f64, patterns: pattern(object), ..Joint::ONE };
        for keyword in COMBINING {
            if let Some(part) = self.part(object, keyword) {
                joint = joint.and(part);
            }
        }
        joint
    }

    fn part(&mut self, object: &Map<String, Value>, keyword: &str) -> Option<Joint> {
        let of = |combining: &mut Self, schema: &Value| match schema {
            Value::Object(object) => combining.joint(object),
            _ => Joint::ONE,
        };
        match (keyword, object.get(keyword)?) {
            ("$ref", Value::String(reference)) => Some(self.referred(reference)),
            ("allOf", Value::Array(parts)) => Some(parts.iter().fold(Joint::ONE, |all, part| all.and(of(self, part)))),
            ("anyOf" | "oneOf", Value::Array(options)) => {
                let none = Joint { options: 0.0, size: 0.0, patterns: 1.0 };
                let any = options.iter().fold(none, |all, option| all.or(of(self, option)));
                // The engine compares each two alternatives of `oneOf`.
                let compared = if keyword == "oneOf" { 1.0 + options.len() as f64 / 50.0 } else { 1.0 };
                Some(Joint { size: any.size * compared, ..any })
            }
            _ => None,
        }
    }

    fn referred(&mut self, reference: &str) -> Joint {
        if let Some(known) = self.known.get(reference) {
            return *known;
        }
        let most = Joint { options: f64::MAX.sqrt(), size: f64::MAX.sqrt(), patterns: f64::MAX.sqrt() }.limited();
        if self.open >= FOLLOWED {
            return most;
        }
        let Some((_, Value::Object(target))) = resolve(self.root, reference) else {
            return Joint::ONE;
        };
        // What refers to itself.
        self.known.insert(reference.to_owned(), Joint::ONE);
        self.open += 1;
        let joint = self.joint(target).limited();
        self.open -= 1;
        self.known.insert(reference.to_owned(), joint);
        joint
    }
}

/// Number of schemas of parts of the value, without definitions.
fn nested(object: &Map<String, Value>) -> usize {
    let parts = object
        .iter()
        .filter(|(key, _)| !COMBINING.contains(&key.as_str()) && !TABLES.contains(&key.as_str()) && restricts(key));
    parts.map(|(key, value)| parts_of(key, value)).sum()
}

/// Number of schemas in the value of a keyword.
fn parts_of(key: &str, value: &Value) -> usize {
    let whole = |schema: &Value| match schema {
        Value::Object(object) => 1 + object.iter().map(|(key, value)| parts_of(key, value)).sum::<usize>(),
        _ => 1,
    };
    match (key, value) {
        ("properties" | "patternProperties", Value::Object(members)) => members.values().map(whole).sum(),
        ("items" | "prefixItems" | "anyOf" | "oneOf" | "allOf", Value::Array(parts)) => parts.iter().map(whole).sum(),
        ("items" | "additionalProperties" | "additionalItems", Value::Object(_)) => whole(value),
        _ => 0,
    }
}

/// Returns what the patterns of one schema count as. Where a part is repeated, each repetition has its own states.
fn pattern(object: &Map<String, Value>) -> f64 {
    let format = if object.contains_key("format") { FORMAT as f64 } else { 1.0 };
    let Some(pattern) = object.get("pattern").and_then(Value::as_str) else { return format };
    let repeated = pattern.split('{').skip(1).filter_map(|rest| {
        let counts = rest.split('}').next()?;
        counts.split(',').filter_map(|count| count.trim().parse::<f64>().ok()).reduce(f64::max)
    });
    let repeated: f64 = repeated.map(|count| count.clamp(1.0, 1e4)).product();
    (format * pattern.len().max(1) as f64 * repeated.min(1e6)).min(LIMITS.pattern_product as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn left(schema: Value) -> Vec<String> {
        fitted(schema).unenforced.iter().map(|left| format!("{} {}", left.path, left.keyword)).collect()
    }

    #[test]
    fn each_limit_leaves_out_what_is_beyond_it_and_nothing_else() {
        let patterns = |count: usize| json!({"allOf": (0..count).map(|n| json!({"pattern": format!(".*{n}.*")})).collect::<Vec<_>>()});
        let members =
            |count: usize| (0..count).map(|n| (format!("p{n}"), json!({"type": "string"}))).collect::<Map<_, _>>();
        let mut deep = json!({"type": "string"});
        for _ in 0..100 {
            deep = json!({"items": deep});
        }
        let doubled: Map<String, Value> = (0..20)
            .map(|n| (format!("a{n}"), json!({"allOf": [{"$ref": format!("#/$defs/a{}", n + 1)}, {"anyOf": [{"$ref": format!("#/$defs/a{}", n + 1)}, {"type": "null"}]}]})))
            .collect();
        let cases = [
            (json!({"minLength": 1e9, "maxLength": 1e9}), "$ minLength"),
            (json!({"minItems": 1_000_000}), "$ minItems"),
            (json!({"enum": (0..20_000).collect::<Vec<_>>()}), "$ enum"),
            (json!({"items": {"enum": ["x".repeat(1 << 20)]}}), "$.items enum"),
            (json!({"pattern": "a".repeat(5000)}), "$ pattern"),
            (json!({"properties": {"x": patterns(18)}}), "$.properties.x allOf"),
            (json!({"properties": members(5000)}), "$ properties"),
            (json!({"minProperties": 1, "properties": members(500)}), "$ minProperties"),
            (
                json!({"allOf": (0..300).map(|_| json!({"if": {"type": "null"}, "then": false})).collect::<Vec<_>>()}),
                "$ if",
            ),
            (
                json!({"items": {"anyOf": (0..12_000).map(|_| json!({"type": "null"})).collect::<Vec<_>>()}}),
                "$.items anyOf",
            ),
            (
                json!({"patternProperties": (0..20).map(|n| (format!("^{n}"), json!(true))).collect::<Map<_, _>>()}),
                "$ patternProperties",
            ),
        ];
        for (schema, expected) in cases {
            let found = left(schema);
            assert_eq!(found, [expected]);
        }
        assert_eq!(left(deep), [format!("$.{} items", vec!["items"; LIMITS.depth + 1].join("."))]);
        assert!(!left(json!({"$ref": "#/$defs/a0", "$defs": doubled})).is_empty());
        let fine = [
            patterns(3),
            json!({"type": "object", "properties": members(1000)}),
            json!({"enum": (0..5000).collect::<Vec<_>>(), "maxLength": 2_147_483_647u64}),
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "null"}]}}}),
        ];
        for schema in fine {
            assert_eq!(left(schema), [""; 0]);
        }
    }

    #[test]
    fn notes_do_not_grow_with_the_schema() {
        let members: Map<String, Value> = (0..1000).map(|n| (format!("p{n}"), json!({"minLength": 1e9}))).collect();
        let found = left(json!({"properties": members}));
        assert_eq!((found.len(), found.last().map(String::as_str)), (NOTED + 1, Some("$ properties")));
    }
}
