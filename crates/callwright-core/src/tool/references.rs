//! Repairs unresolvable references: searches for the definition in likely places, and drops the reference if there is
//! none.
//!
//! Some generators inline a property's schema together with its `$defs`, but keep references relative to the root;
//! others leave the definitions outside the tool's schema.

use super::relax::Relaxing;
use crate::json::shown;
use crate::schema::{fragment, inner, pointer};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use serde_json::{Map, Value};
use std::collections::HashSet;

/// Keys that contain referenced schemas.
const TABLES: [&str; 4] = ["$defs", "definitions", "schemas", "components"];
/// Maximum number of definitions to import into a schema.
const MOST: usize = 1000;

/// Makes every reference of a schema resolvable; `outer` are the objects around it in the file.
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

/// The pointers to all nested schemas.
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
    /// Imported definitions, by their new names.
    brought: &'s mut Vec<(String, Value)>,
}

/// The target of a reference.
enum Found {
    There,
    /// Another place in the schema.
    At(String),
    /// A definition outside the schema, which is imported under that pointer.
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
                    let message = format!("{} cannot be resolved and is left out", shown(&Value::from(reference)));
                    relaxing.notices.relaxed(path, "$ref", message, "add the definition under \"$defs\" of the schema");
                }
            }
        }
        for (path, child) in inner(object, path) {
            self.node(child, &path, relaxing);
        }
    }

    fn find(&mut self, reference: &str, path: &str) -> Found {
        let local = fragment(self.root, reference);
        if let Some(local) = &local {
            if self.places.contains(local) {
                return Found::There;
            }
            // Relative to the schema that was inlined.
            let mut around = path;
            while let Some((parent, _)) = around.rsplit_once('/') {
                let place = format!("{parent}{local}");
                if local.starts_with('/') && self.places.contains(&place) {
                    return Found::At(place);
                }
                around = parent;
            }
        }
        let name = name_of(reference);
        if name.is_empty() {
            return Found::Nowhere;
        }
        self.anchor(&name)
            .or_else(|| self.within(&name, path))
            .map_or_else(|| self.elsewhere(&name, local.as_deref()), Found::At)
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

    /// Imports a definition from an unusual place.
    fn elsewhere(&mut self, name: &str, pointer: Option<&str>) -> Found {
        let direct = pointer.and_then(|pointer| self.original.pointer(pointer));
        let outer = self.outer.iter().find_map(|object| in_tables(object, name, 0));
        let own = || self.original.as_object().and_then(|object| in_tables(object, name, 0));
        let Some(definition) = direct.filter(|value| value.is_object()).or_else(own).or(outer) else {
            return Found::Nowhere;
        };
        if !self.brought.iter().any(|(known, _)| known == name) {
            self.brought.push((name.to_owned(), definition.clone()));
        }
        Found::Outside(crate::schema::pointer("/$defs", name))
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

/// The last name of a reference: `Pet` for `#/components/schemas/Pet` and `schemas/Pet.json`.
fn name_of(reference: &str) -> String {
    let decoded = percent_decode_str(reference).decode_utf8_lossy();
    let last = decoded.rsplit(['/', '#']).next().unwrap_or_default();
    let last = last.strip_suffix(".json").unwrap_or(last);
    last.replace("~1", "/").replace("~0", "~")
}

/// Characters that must be escaped in a URI's fragment, in addition to control characters and non-ASCII.
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
