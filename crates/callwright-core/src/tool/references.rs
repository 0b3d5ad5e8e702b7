//! References that lead nowhere: the definition is looked for where it may have been meant, and the reference is left
//! out where there is none.
//!
//! Generators put a property's own schema in place with its `$defs` inside, and leave its references to the root; others
//! leave the definitions outside of the tool's schema.

use super::relax::{Relaxing, inner, pointer};
use crate::json::shown;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use serde_json::{Map, Value};
use std::collections::HashSet;

/// Where schemas that are referred to are kept.
const TABLES: [&str; 4] = ["$defs", "definitions", "schemas", "components"];
/// Definitions from elsewhere that a schema may bring in.
const MOST: usize = 1000;

/// Makes every reference of a schema lead somewhere; `outer` are the objects around it in the file.
pub(super) fn repair(schema: &mut Value, outer: &[&Map<String, Value>], relaxing: &mut Relaxing<'_>) {
    let mut brought: Vec<(String, Value)> = Vec::new();
    let original = schema.clone();
    let mut copies = 0;
    loop {
        let root = schema.clone();
        let mut places = HashSet::new();
        collect(&mut schema.clone(), "", &mut places);
        let mut finding = Finding { root: &root, original: &original, outer, places, brought: &mut brought };
        finding.node(schema, "", relaxing);
        if brought.is_empty() || copies > MOST {
            return;
        }
        for (name, mut definition) in brought.drain(..) {
            copies += 1;
            let at = pointer("/$defs", &name);
            relaxing.node(&mut definition, &at);
            let Value::Object(object) = &mut *schema else { return };
            let table = object.entry("$defs").or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(table) = table {
                table.insert(name, definition);
            }
        }
    }
}

/// The pointers to all schemas inside of one.
fn collect(schema: &mut Value, path: &str, places: &mut HashSet<String>) {
    places.insert(path.to_owned());
    let Value::Object(object) = schema else { return };
    for (path, child) in inner(object, path) {
        collect(child, &path, places);
    }
}

struct Finding<'s> {
    root: &'s Value,
    original: &'s Value,
    outer: &'s [&'s Map<String, Value>],
    places: HashSet<String>,
    /// Definitions from elsewhere, by the names that they get.
    brought: &'s mut Vec<(String, Value)>,
}

/// Where a reference leads.
enum Found {
    There,
    /// To another place of the schema.
    At(String),
    /// To a definition outside of it, which is brought in under that pointer.
    Outside(String),
    Nowhere,
}

impl Finding<'_> {
    fn node(&mut self, schema: &mut Value, path: &str, relaxing: &mut Relaxing<'_>) {
        let Value::Object(object) = schema else { return };
        if let Some(Value::String(reference)) = object.get("$ref").cloned() {
            match self.find(&reference, path) {
                Found::There => {}
                Found::At(place) => {
                    let place = format!("#{}", encoded(&place));
                    let message = format!("{reference:?} is read as {place:?}");
                    relaxing.notices.read(path, "$ref", message, "write that, or move the definitions there");
                    object["$ref"] = place.into();
                }
                Found::Outside(place) => {
                    let message = format!("{reference:?} is found outside of the places for definitions");
                    relaxing.notices.read(path, "$ref", message, "move the definition under \"$defs\" of the schema");
                    object["$ref"] = format!("#{}", encoded(&place)).into();
                }
                Found::Nowhere => {
                    object.shift_remove("$ref");
                    let message = format!("{} leads nowhere and is left out", shown(&Value::from(reference)));
                    relaxing.notices.relaxed(path, "$ref", message, "add the definition under \"$defs\" of the schema");
                }
            }
        }
        for (path, child) in inner(object, path) {
            self.node(child, &path, relaxing);
        }
    }

    fn find(&mut self, reference: &str, path: &str) -> Found {
        let id = self.root.get("$id").and_then(Value::as_str).unwrap_or_default();
        let local = reference.strip_prefix(id).unwrap_or(reference);
        let fragment = local.strip_prefix('#');
        if let Some(fragment) = fragment {
            let place = percent_decode_str(fragment).decode_utf8_lossy();
            if self.places.contains(&*place) {
                return Found::There;
            }
            // From the schema that it was written in, before it was put into this one.
            let mut around = path;
            while let Some((parent, _)) = around.rsplit_once('/') {
                let place = format!("{parent}{place}");
                if fragment.starts_with('/') && self.places.contains(&place) {
                    return Found::At(place);
                }
                around = parent;
            }
        }
        let name = name_of(local);
        if name.is_empty() {
            return Found::Nowhere;
        }
        self.anchor(&name)
            .or_else(|| self.within(&name, path))
            .map_or_else(|| self.elsewhere(&name, fragment), Found::At)
    }

    /// The place of a definition of that name, the nearest to `path` of several.
    fn within(&self, name: &str, path: &str) -> Option<String> {
        let is_definition = |place: &&String| {
            let mut parts = place.rsplit('/');
            let last = parts.next().map(|last| last.replace("~1", "/").replace("~0", "~"));
            last.as_deref() == Some(name) && parts.next().is_some_and(|table| TABLES.contains(&table))
        };
        let common = |place: &str| place.split('/').zip(path.split('/')).take_while(|(a, b)| a == b).count();
        let found = self.places.iter().filter(is_definition);
        found.max_by_key(|place| (common(place), std::cmp::Reverse((place.len(), (*place).clone())))).cloned()
    }

    fn anchor(&self, name: &str) -> Option<String> {
        let mut places: Vec<&String> = self.places.iter().collect();
        places.sort();
        let is_called = |place: &&&String| {
            let schema = self.root.pointer(place);
            ["$anchor", "$id", "id"].iter().any(|key| {
                let called = schema.and_then(|schema| schema.get(*key)).and_then(Value::as_str);
                called.is_some_and(|called| called.trim_start_matches('#') == name)
            })
        };
        places.iter().find(is_called).map(|place| (*place).clone())
    }

    /// Brings in a definition that stands in no place for schemas.
    fn elsewhere(&mut self, name: &str, fragment: Option<&str>) -> Found {
        let direct =
            fragment.and_then(|fragment| self.original.pointer(&percent_decode_str(fragment).decode_utf8_lossy()));
        let outer = self.outer.iter().find_map(|object| in_tables(object, name, 0));
        let own = || self.original.as_object().and_then(|object| in_tables(object, name, 0));
        let Some(definition) = direct.filter(|value| value.is_object()).or_else(own).or(outer) else {
            return Found::Nowhere;
        };
        if !self.brought.iter().any(|(known, _)| known == name) {
            self.brought.push((name.to_owned(), definition.clone()));
        }
        Found::Outside(pointer("/$defs", name))
    }
}

/// The definition of that name in the tables of an object.
fn in_tables<'o>(object: &'o Map<String, Value>, name: &str, depth: usize) -> Option<&'o Value> {
    if depth > 3 {
        return None;
    }
    TABLES.iter().filter_map(|table| object.get(*table)?.as_object()).find_map(|table| {
        table.get(name).filter(|value| value.is_object()).or_else(|| in_tables(table, name, depth + 1))
    })
}

/// The name that a reference ends with: `Pet` of `#/components/schemas/Pet` and of `schemas/Pet.json`.
fn name_of(reference: &str) -> String {
    let decoded = percent_decode_str(reference).decode_utf8_lossy();
    let last = decoded.rsplit(['/', '#']).next().unwrap_or_default();
    let last = last.strip_suffix(".json").unwrap_or(last);
    last.replace("~1", "/").replace("~0", "~")
}

/// What a URI's fragment does not have as it is, beside control characters and all that is not ASCII.
const RESERVED: &AsciiSet = &CONTROLS
    .add(b'%')
    .add(b' ')
    .add(b'"')
    .add(b'<')
    .add(b'>')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// A pointer as a URI's fragment.
fn encoded(pointer: &str) -> String {
    utf8_percent_encode(pointer, RESERVED).to_string()
}
