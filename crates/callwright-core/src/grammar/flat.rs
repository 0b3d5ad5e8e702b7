//! Flattens a schema into alternatives without references.
//!
//! Text between tags is one terminal, which must satisfy everything that the schema says about the text in different
//! places. The targets of `$ref`, `allOf`, `anyOf` and `oneOf` are therefore merged with the keywords next to them.

use super::references::definition;
use super::{Unenforced, schema};
use crate::schema::{COMBINING, TABLES, restricts};
use serde_json::{Map, Value, json};

/// Maximum number of referring schemas to visit: alternatives of alternatives multiply.
const PARTS: usize = 256;
/// Maximum number of separate alternatives.
const MANY: usize = 64;

/// One alternative.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Flat {
    pub schema: Map<String, Value>,
    /// Its place in the schema.
    pub path: String,
}

/// The alternatives of a schema that contains its definitions, and the parts that could not be merged. A value that
/// fits one of the alternatives fits the schema except for those parts.
pub(super) fn alternatives(whole: &Value, path: &str) -> (Vec<Flat>, Vec<Unenforced>) {
    let mut flattening = Flattening { whole, open: Vec::new(), left: PARTS, unenforced: Vec::new() };
    let found = flattening.alternatives(whole, path);
    (found, flattening.unenforced)
}

struct Flattening<'s> {
    whole: &'s Value,
    /// The references that are being followed.
    open: Vec<String>,
    left: usize,
    unenforced: Vec<Unenforced>,
}

impl Flattening<'_> {
    fn alternatives(&mut self, schema: &Value, path: &str) -> Vec<Flat> {
        let empty = Flat { schema: Map::new(), path: path.to_owned() };
        let Value::Object(object) = schema else {
            return if *schema == Value::Bool(false) { Vec::new() } else { vec![empty] };
        };
        let nothing_listed = object.get("enum").and_then(Value::as_array).is_some_and(Vec::is_empty);
        if nothing_listed {
            return Vec::new();
        }
        if COMBINING.iter().any(|key| object.contains_key(*key)) {
            let Some(left) = self.left.checked_sub(1) else {
                let restricting = object.keys().filter(|keyword| restricts(keyword));
                restricting.for_each(|keyword| self.leave(path, keyword));
                return vec![empty];
            };
            self.left = left;
        }
        let own =
            object.iter().filter(|(key, _)| !COMBINING.contains(&key.as_str()) && !TABLES.contains(&key.as_str()));
        let own = own.map(|(key, value)| (key.clone(), value.clone())).collect();
        let mut found = vec![Flat { schema: own, path: path.to_owned() }];
        if let Some(reference) = object.get("$ref").and_then(Value::as_str) {
            let referred = self.referred(reference, path);
            found = self.joined(found, &referred, path, "$ref");
        }
        let list = |key: &str| object.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        for (index, part) in list("allOf").iter().enumerate() {
            let part = self.alternatives(part, &format!("{path}.allOf[{index}]"));
            found = self.joined(found, &part, path, "allOf");
        }
        for key in ["anyOf", "oneOf"].into_iter().filter(|key| object.contains_key(*key)) {
            let options = list(key).iter().enumerate();
            let options: Vec<Flat> = options
                .flat_map(|(index, option)| self.alternatives(option, &format!("{path}.{key}[{index}]")))
                .collect();
            // `oneOf` exclusivity is not enforced for overlapping branches.
            let exclusive =
                || options.iter().enumerate().all(|(at, one)| options[..at].iter().all(|other| excludes(one, other)));
            if key == "oneOf" && (options.len() > MANY || !exclusive()) && !all_differ(&options) {
                self.leave(path, key);
            }
            found = self.joined(found, &merged(options), path, key);
        }
        found
    }

    fn leave(&mut self, path: &str, keyword: &str) {
        self.unenforced.push(Unenforced::at(path, keyword));
    }

    fn referred(&mut self, reference: &str, path: &str) -> Vec<Flat> {
        // A cycle adds no alternative.
        if self.open.iter().any(|open| open == reference) {
            return Vec::new();
        }
        let referred = self.whole.as_object().and_then(|whole| definition(whole, reference));
        self.open.push(reference.to_owned());
        let found = self.alternatives(referred.unwrap_or(&Value::Bool(true)), path);
        self.open.pop();
        found
    }

    /// Returns what fits both one of `some` and one of `others`, which come from `keyword`; just `some` if the
    /// combinations are too many.
    fn joined(&mut self, some: Vec<Flat>, others: &[Flat], path: &str, keyword: &str) -> Vec<Flat> {
        let mut found: Vec<Flat> = Vec::new();
        for (one, other) in some.iter().flat_map(|one| others.iter().map(move |other| (one, other))) {
            let Some(both) = self.both(one, other) else { continue };
            if found.iter().any(|known| known.schema == both.schema) {
                continue;
            }
            if found.len() == MANY {
                self.leave(path, keyword);
                return some;
            }
            found.push(both);
        }
        found
    }

    /// Returns what fits both; `None` if nothing does.
    fn both(&mut self, one: &Flat, other: &Flat) -> Option<Flat> {
        let mut both = one.clone();
        if !one.schema.keys().any(|keyword| restricts(keyword)) {
            both.path = other.path.clone();
        }
        for (keyword, value) in &other.schema {
            let Some(before) = both.schema.get(keyword).filter(|before| *before != value) else {
                both.schema.insert(keyword.clone(), value.clone());
                continue;
            };
            let number = |value: &Value| value.as_u64().unwrap_or(0);
            let joined = match keyword.as_str() {
                "type" => common_types(before, value)?,
                "enum" => common_values(before, value)?,
                "const" => return None,
                "minLength" => json!(number(before).max(number(value))),
                "maxLength" => json!(number(before).min(number(value))),
                "minimum" | "exclusiveMinimum" => either(before, value, f64::max),
                "maximum" | "exclusiveMaximum" => either(before, value, f64::min),
                keyword => {
                    if restricts(keyword) {
                        self.leave(&other.path, keyword);
                    }
                    continue;
                }
            };
            both.schema.insert(keyword.clone(), joined);
        }
        Some(both)
    }
}

/// The bound that `choose` picks.
fn either(one: &Value, other: &Value, choose: fn(f64, f64) -> f64) -> Value {
    match (one.as_f64(), other.as_f64()) {
        (Some(a), Some(b)) if choose(a, b) == b => other.clone(),
        _ => one.clone(),
    }
}

/// The values that an alternative lists, if it says nothing else except their type.
fn only_listed(flat: &Flat) -> Option<Vec<Value>> {
    let restricting = flat.schema.keys().filter(|keyword| *keyword != "type" && restricts(keyword));
    if restricting.count() == 1 { schema::listed(&flat.schema, &Map::new()) } else { None }
}

/// Merges alternatives that only list values: there may be hundreds.
fn merged(options: Vec<Flat>) -> Vec<Flat> {
    let mut values: Vec<Value> = Vec::new();
    let mut found: Vec<Flat> = Vec::new();
    let mut place = None;
    for option in options {
        let Some(listed) = only_listed(&option) else {
            found.push(option);
            continue;
        };
        values.extend(listed);
        place.get_or_insert_with(|| (found.len(), option.path.clone()));
    }
    if let Some((at, path)) = place {
        let schema = Map::from_iter([("enum".to_owned(), Value::Array(values))]);
        found.insert(at, Flat { schema, path });
    }
    found
}

/// Returns whether all alternatives only list values, and no two list the same one.
fn all_differ(options: &[Flat]) -> bool {
    let mut known = std::collections::HashSet::new();
    options.iter().all(|option| {
        only_listed(option).is_some_and(|values| {
            let values: std::collections::HashSet<String> = values.iter().map(Value::to_string).collect();
            values.into_iter().all(|value| known.insert(value))
        })
    })
}

/// Returns whether no value fits both, judging by their types and listed values.
fn excludes(one: &Flat, other: &Flat) -> bool {
    let kinds = |flat: &Flat| match (flat.schema.get("type"), schema::values(&flat.schema)) {
        (Some(kinds), _) => Some(kinds.clone()),
        (None, Some(values)) => Some(values.iter().flat_map(schema::types_of_value).copied().collect()),
        (None, None) => None,
    };
    match (kinds(one), kinds(other)) {
        (Some(one), Some(other)) => common_types(&one, &other).is_none(),
        _ => false,
    }
}

fn common_types(one: &Value, other: &Value) -> Option<Value> {
    let list = |types: &Value| types.as_array().cloned().unwrap_or_else(|| vec![types.clone()]);
    let (one, other) = (list(one), list(other));
    let within =
        |kind: &Value, kinds: &[Value]| kinds.contains(kind) || kind == "integer" && kinds.contains(&json!("number"));
    let mut common: Vec<Value> = one.iter().filter(|kind| within(kind, &other)).cloned().collect();
    common.extend(other.iter().filter(|kind| within(kind, &one) && !one.contains(kind)).cloned());
    (!common.is_empty()).then_some(Value::Array(common))
}

fn common_values(one: &Value, other: &Value) -> Option<Value> {
    let (Value::Array(one), Value::Array(other)) = (one, other) else { return Some(one.clone()) };
    let common: Vec<Value> = one.iter().filter(|value| other.contains(value)).cloned().collect();
    (!common.is_empty()).then_some(Value::Array(common))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn referenced_schemas_are_merged_with_their_siblings() {
        let schema = json!({
            "description": "d",
            "minLength": 2,
            "anyOf": [{"$ref": "#/$defs/Unit"}, {"type": "null"}, false, {"$ref": "#/$defs/Loop"}],
            "allOf": [{"type": ["string", "null"], "minLength": 1}],
            "$defs": {
                "Unit": {"enum": ["C", "F"], "type": "string"},
                "Loop": {"oneOf": [{"$ref": "#/$defs/Loop"}, {"type": "integer"}, {"pattern": "^a"}]}
            }
        });
        let (found, unenforced) = alternatives(&schema, "$");
        let found: Vec<String> =
            found.iter().map(|flat| format!("{} {}", flat.path, Value::Object(flat.schema.clone()))).collect();
        assert_eq!(
            found,
            [
                r#"$ {"description":"d","minLength":2,"type":["string","null"],"enum":["C","F"]}"#,
                r#"$ {"description":"d","minLength":2,"type":["null"]}"#,
                r#"$ {"description":"d","minLength":2,"type":["string","null"],"pattern":"^a"}"#,
            ]
        );
        assert!(unenforced.iter().all(|unenforced| unenforced.keyword == "oneOf"));
    }
}
