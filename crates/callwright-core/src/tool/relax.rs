//! Converts schemas of authors and generators to ones that a validator accepts.
//!
//! Other dialects are read as JSON Schema's newest draft. Unreadable keywords are dropped, and the rest of the schema
//! stays in force. Every change is reported with its place.
//!
//! What [`dialect`] translates (`dict`, `nullable`) is reported but not changed, because the model sees it in that
//! form.

mod refused;
mod values;

use super::notice::Notices;
use super::{pattern, references, types};
use crate::error::nearest;
use crate::json::shown;
use crate::schema::dialect;
use crate::schema::{COMBINING, Kind, inner, kind_of, pointer};
use crate::tool::checker;
use serde_json::{Map, Number, Value, json};
use values::{flag, is_known, is_set, list_of, named_members, whole};

const TYPES: [&str; 7] = ["string", "integer", "number", "boolean", "object", "array", "null"];

/// Fixes the schema of a tool's arguments. `outer` are the objects around it in the file, which may contain the
/// definitions. The error says why the schema is unusable.
pub(super) fn parameters(
    schema: &mut Map<String, Value>,
    outer: &[&Map<String, Value>],
    notices: &mut Notices,
) -> Result<(), String> {
    let mut whole = Value::Object(std::mem::take(schema));
    let draft = Draft::of(&whole);
    let mut relaxing = Relaxing { draft, notices };
    relaxing.node(&mut whole, "");
    references::repair(&mut whole, outer, &mut relaxing);
    relaxing.top(&mut whole);
    if relaxing.draft == Draft::Old
        && let Value::Object(object) = &mut whole
    {
        object.shift_remove("$schema");
    }
    let compiled = refused::dropped(&mut whole, relaxing.notices);
    if let Value::Object(object) = whole {
        *schema = object;
    }
    compiled
}

/// The draft of JSON Schema that a schema uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Draft {
    /// Unknown.
    Unknown,
    /// 3 or 4: `exclusiveMinimum` is a boolean. It is read as the newest draft.
    Old,
    /// 6 to 2019-09: `items` may be a list.
    Middle,
    /// 2020-12.
    New,
}

impl Draft {
    fn of(schema: &Value) -> Draft {
        let name = schema.get("$schema").and_then(Value::as_str).unwrap_or_default();
        let is = |drafts: &[&str]| drafts.iter().any(|draft| name.contains(draft));
        match () {
            () if is(&["draft-03", "draft-04"]) => Draft::Old,
            () if is(&["draft-06", "draft-07", "2019-09"]) => Draft::Middle,
            () if is(&["2020-12"]) => Draft::New,
            () => Draft::Unknown,
        }
    }
}

/// What to do with a keyword.
enum Fate {
    Keep,
    Drop,
    Become(Value),
    /// The same, which is yet to be reported.
    Read(Value),
}

/// What to do with a keyword, or what to write instead if its value cannot be read.
type Reading = Result<Fate, &'static str>;

pub(super) struct Relaxing<'n> {
    draft: Draft,
    pub(super) notices: &'n mut Notices,
}

impl Relaxing<'_> {
    /// Fixes a schema and its subschemas.
    pub(super) fn node(&mut self, schema: &mut Value, path: &str) {
        if !matches!(schema, Value::Object(_) | Value::Bool(_)) {
            self.no_schema(schema, path);
        }
        let Value::Object(object) = schema else { return };
        self.required_in_members(object, path);
        let keys: Vec<String> = object.keys().cloned().collect();
        for key in keys {
            let Some(value) = object.get(&key) else { continue };
            match self.keyword(&key, value, path) {
                Fate::Keep => {}
                Fate::Drop => drop(object.shift_remove(&key)),
                Fate::Become(value) | Fate::Read(value) => object[&key] = value,
            }
        }
        self.kind(object, path);
        self.tuple(object, path);
        self.exclusive(object, path);
        self.contradictions(object, path);
        self.nullable(schema, path);
        let Value::Object(object) = schema else { return };
        for (path, child) in inner(object, path) {
            self.node(child, &path);
        }
    }

    /// A value that is not a schema but is used as one.
    fn no_schema(&mut self, schema: &mut Value, path: &str) {
        let (parent, key) = path.rsplit_once('/').unwrap_or_default();
        let key = key.replace("~1", "/").replace("~0", "~");
        let named = schema.as_str().and_then(types::schema_of);
        match named {
            Some(named) => {
                let named = Value::Object(named);
                self.notices.read(parent, &key, format!("{} is read as {named}", shown(schema)), "write that");
                *schema = named;
            }
            None => {
                let message = format!("{} is not a schema; any value fits", shown(schema));
                self.notices.relaxed(parent, &key, message, "write an object with a \"type\"");
                *schema = json!({});
            }
        }
    }

    /// Draft 3 marks a property as required on the property itself.
    fn required_in_members(&mut self, object: &mut Map<String, Value>, path: &str) {
        let Some(Value::Object(members)) = object.get("properties") else { return };
        let at = pointer(path, "properties");
        for (name, member) in members {
            if member.get("required") == Some(&Value::Bool(true)) {
                let message = "true is not enforced: it belongs in a list on the object";
                let instead = format!("write \"required\": [{}] next to \"properties\"", Value::from(name.as_str()));
                self.notices.relaxed(&pointer(&at, name), "required", message, instead);
            }
        }
    }

    /// Converts a keyword's value to its kind.
    fn keyword(&mut self, key: &str, value: &Value, path: &str) -> Fate {
        let kind = kind_of(key);
        if value.is_null() && !matches!(kind, Kind::Other | Kind::Type) {
            self.notices.read(path, key, "null is read as not given", "leave it out");
            return Fate::Drop;
        }
        let read = match kind {
            Kind::Other | Kind::Type => Ok(Fate::Keep),
            Kind::Required => required(value),
            Kind::Pattern => self.pattern(value, path),
            Kind::Draft => Ok(self.draft_name(key, value, path)),
            Kind::Schema | Kind::Schemas | Kind::Members => self.schemas(kind, key, value, path),
            Kind::Count | Kind::Number | Kind::Flag | Kind::Text | Kind::Values => plain(kind, key, value),
        };
        match read {
            Ok(Fate::Read(to)) => {
                let message = format!("{} is read as {}", shown(value), shown(&to));
                self.notices.read(path, key, message, "write that");
                Fate::Become(to)
            }
            Ok(fate) => fate,
            Err(wanted) => {
                self.notices.relaxed(path, key, format!("{} is left out", shown(value)), format!("write {wanted}"));
                Fate::Drop
            }
        }
    }

    /// A keyword whose value has schemas.
    fn schemas(&mut self, kind: Kind, key: &str, value: &Value, path: &str) -> Reading {
        match (kind, value) {
            (Kind::Schema, Value::Object(_) | Value::Bool(_)) => Ok(Fate::Keep),
            (Kind::Schema, Value::Array(list))
                if key == "items" && list.iter().all(|item| item.is_object() || item.is_boolean()) =>
            {
                Ok(Fate::Keep)
            }
            (Kind::Schema, value) => {
                let text = value.as_str().ok_or("a schema")?;
                let read = flag(text).map(Value::Bool).or_else(|| types::schema_of(text).map(Value::Object));
                read.map(Fate::Read).ok_or("a schema")
            }
            (Kind::Schemas, Value::Array(list)) if !list.is_empty() => Ok(Fate::Keep),
            (Kind::Schemas, Value::Object(_)) => Ok(Fate::Read(json!([value]))),
            (Kind::Schemas, _) => Err("a list of schemas that is not empty"),
            (_, Value::Object(_)) => Ok(self.members(key, value, path)),
            (_, Value::Array(list)) if list.is_empty() => {
                self.notices.read(path, key, "[] is read as {}", "write {}");
                Ok(Fate::Become(json!({})))
            }
            (_, Value::Array(list)) => {
                let members = named_members(list).ok_or("an object of schemas")?;
                self.notices.read(path, key, "a list is read as an object, by each \"name\"", "write an object");
                Ok(Fate::Become(members))
            }
            _ => Err("an object of schemas"),
        }
    }

    fn draft_name(&mut self, key: &str, value: &Value, path: &str) -> Fate {
        if value.is_string() && (!path.is_empty() || Draft::of(&json!({"$schema": value})) != Draft::Unknown) {
            return Fate::Keep;
        }
        let message = format!("{} names no known draft; it is read as 2020-12", shown(value));
        self.notices.read(path, key, message, "leave it out");
        Fate::Drop
    }

    fn pattern(&mut self, value: &Value, path: &str) -> Reading {
        let text = value.as_str().ok_or("a text")?;
        Ok(match self.expression(text) {
            Some(same) if same == text => Fate::Keep,
            Some(other) => Fate::Read(other.into()),
            None => {
                let message = format!("{} is not a regular expression and is left out", shown(value));
                self.notices.relaxed(path, "pattern", message, "write one of ECMA 262, as JavaScript has them");
                Fate::Drop
            }
        })
    }

    /// A regular expression that a validator accepts.
    fn expression(&self, text: &str) -> Option<String> {
        let other = pattern::standard(text);
        [other, text.to_owned()].into_iter().find(|text| checker::is_pattern(text))
    }

    /// The names in `patternProperties` are also patterns.
    fn members(&mut self, key: &str, value: &Value, path: &str) -> Fate {
        let Value::Object(map) = value else { return Fate::Keep };
        if key != "patternProperties" {
            return Fate::Keep;
        }
        let at = pointer(path, key);
        let mut members = Map::new();
        for (name, member) in map {
            match self.expression(name) {
                Some(read) => {
                    if read != *name {
                        self.notices.read(&at, name, format!("it is read as {read:?}"), "write that");
                    }
                    members.insert(read, member.clone());
                }
                None => {
                    let instead = "write one of ECMA 262, as JavaScript has them";
                    self.notices.relaxed(&at, name, "it is not a regular expression and is left out", instead);
                }
            }
        }
        Fate::Become(Value::Object(members))
    }

    /// Reads `type`.
    fn kind(&mut self, object: &mut Map<String, Value>, path: &str) {
        let Some(written) = object.get("type").cloned() else { return };
        let read = match &written {
            Value::String(name) => {
                if self.is_alias(name, path) {
                    return;
                }
                types::schema_of(name)
            }
            Value::Array(names) if names.iter().all(|name| name.as_str().is_some_and(is_known)) => {
                names.iter().filter_map(Value::as_str).for_each(|name| {
                    self.is_alias(name, path);
                });
                match names.is_empty() {
                    false if is_set(names) => return,
                    _ => list_of(names),
                }
            }
            Value::Array(names) => list_of(names),
            // A schema instead of a type.
            Value::Object(inner) => Some(inner.clone()),
            _ => None,
        };
        object.shift_remove("type");
        let Some(read) = read else {
            let message = format!("{} is not a type; a value of any type fits", shown(&written));
            let near = written.as_str().and_then(|name| nearest(name, TYPES));
            let instead = match near {
                Some(near) => format!("write \"{near}\"?"),
                None => "write one of JSON Schema's types, or leave it out".to_owned(),
            };
            self.notices.relaxed(path, "type", message, instead);
            return;
        };
        let as_schema = Value::Object(read.clone());
        let to = if read.len() == 1 { read.get("type").unwrap_or(&as_schema) } else { &as_schema };
        self.notices.read(path, "type", format!("{} is read as {to}", shown(&written)), "write that");
        for (key, value) in read {
            // What the author wrote next to it is more exact.
            if !object.contains_key(&key) {
                object.insert(key, value);
            }
        }
    }

    /// Returns whether a type's name is JSON Schema's, or one that [`dialect`] translates.
    fn is_alias(&mut self, name: &str, path: &str) -> bool {
        if TYPES.contains(&name) {
            return true;
        }
        match dialect::standard_type(name) {
            Some(standard) if standard != name => {
                self.notices.read(path, "type", format!("{name:?} is read as {standard:?}"), "write that");
                true
            }
            None => {
                self.notices.read(path, "type", format!("{name:?} is read as no type"), "leave it out");
                true
            }
            Some(_) => false,
        }
    }

    /// A list as `items` is what older drafts call `prefixItems`.
    fn tuple(&mut self, object: &mut Map<String, Value>, path: &str) {
        if !object.get("items").is_some_and(Value::is_array) || matches!(self.draft, Draft::Middle) {
            return;
        }
        let Some(items) = object.shift_remove("items") else { return };
        let rest = object.shift_remove("additionalItems");
        if self.draft != Draft::Old {
            let instead = "write \"prefixItems\", or \"$schema\" with the draft";
            self.notices.read(path, "items", "a list is read as \"prefixItems\"", instead);
        }
        if items.as_array().is_some_and(|items| !items.is_empty()) {
            object.entry("prefixItems").or_insert(items);
        }
        if let Some(rest) = rest {
            object.insert("items".to_owned(), rest);
        }
    }

    /// In draft 4 a flag says whether a bound is exclusive.
    fn exclusive(&mut self, object: &mut Map<String, Value>, path: &str) {
        for (key, bound) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")] {
            let Some(Value::Bool(exclusive)) = object.get(key) else { continue };
            let exclusive = *exclusive;
            object.shift_remove(key);
            let limit = if exclusive { object.shift_remove(bound) } else { None };
            let declared = self.draft == Draft::Old;
            match (exclusive, limit) {
                (true, Some(limit)) => {
                    let message = format!("true next to {bound:?} is read as {limit}");
                    object.insert(key.to_owned(), limit);
                    if !declared {
                        self.notices.read(path, key, message, format!("write the number, without {bound:?}"));
                    }
                }
                (true, None) => {
                    let message = format!("true is left out: there is no {bound:?}");
                    self.notices.relaxed(path, key, message, "write the number");
                }
                (false, _) if declared => {}
                (false, _) => self.notices.read(path, key, "false is read as not given", "leave it out"),
            }
        }
    }

    /// Bounds that no value fits.
    fn contradictions(&mut self, object: &mut Map<String, Value>, path: &str) {
        const PAIRS: [(&str, &str); 4] = [
            ("minimum", "maximum"),
            ("minLength", "maxLength"),
            ("minItems", "maxItems"),
            ("minProperties", "maxProperties"),
        ];
        for (least, most) in PAIRS {
            let number = |key: &str| object.get(key).and_then(Value::as_f64);
            let (Some(low), Some(high)) = (number(least), number(most)) else { continue };
            if low > high {
                let message = format!("{low} is more than {most:?}, {high}; both are left out");
                self.notices.relaxed(path, least, message, "write the smaller one here");
                object.shift_remove(least);
                object.shift_remove(most);
            }
        }
    }

    /// [`dialect`] handles `nullable` next to a type; next to alternatives it is one more.
    fn nullable(&mut self, schema: &mut Value, path: &str) {
        let Value::Object(object) = &mut *schema else { return };
        if object.get("nullable") != Some(&Value::Bool(true)) {
            return;
        }
        let instead = "write \"null\" as one of the types";
        if object.contains_key("type") || object.contains_key("enum") {
            self.notices.read(path, "nullable", "true is read as one more type, \"null\"", instead);
            return;
        }
        if !COMBINING.iter().any(|key| object.contains_key(*key)) || path.is_empty() {
            return;
        }
        object.shift_remove("nullable");
        let described = object.shift_remove("description");
        let rest = std::mem::take(object);
        object.extend(described.map(|text| ("description".to_owned(), text)));
        object.insert("anyOf".to_owned(), json!([rest, {"type": "null"}]));
        self.notices.read(path, "nullable", "true is read as one more alternative, null", instead);
    }

    /// Arguments are an object.
    fn top(&mut self, schema: &mut Value) {
        let Value::Object(object) = schema else { return };
        let Some(kind) = object.get("type") else { return };
        let names = |kind: &Value| kind.as_str().and_then(dialect::standard_type) == Some("object");
        match kind {
            kind if names(kind) => {}
            Value::Array(kinds) if kinds.iter().any(names) => {
                self.notices.read("", "type", format!("{} is read as \"object\"", shown(kind)), "write \"object\"");
                object["type"] = "object".into();
            }
            kind => {
                let message = format!("{} is read as \"object\": arguments are one", shown(kind));
                self.notices.relaxed("", "type", message, "write \"object\", with one property for each parameter");
                object["type"] = "object".into();
            }
        }
    }
}

/// Reads a keyword whose value has no schemas.
fn plain(kind: Kind, key: &str, value: &Value) -> Reading {
    let fits = |number: &Number| key != "multipleOf" || number.as_f64().is_some_and(|n| n > 0.0);
    match (kind, value) {
        (Kind::Count, _) => match whole(value).ok_or("a whole number from 0 up")? {
            count if value.is_f64() || json!(count) == *value => Ok(Fate::Keep),
            count => Ok(Fate::Read(json!(count))),
        },
        (Kind::Number, Value::Bool(_)) if key.starts_with("exclusive") => Ok(Fate::Keep),
        (Kind::Number, Value::Number(number)) if fits(number) => Ok(Fate::Keep),
        (Kind::Number, Value::String(text)) => {
            let number = serde_json::from_str::<Number>(text.trim()).ok().filter(fits).ok_or("a number")?;
            Ok(Fate::Read(Value::Number(number)))
        }
        (Kind::Number, _) => Err(if key == "multipleOf" { "a number above 0" } else { "a number" }),
        (Kind::Flag, Value::Bool(_)) | (Kind::Text, Value::String(_)) => Ok(Fate::Keep),
        (Kind::Flag, _) => {
            let flag = value.as_str().and_then(flag).ok_or("true or false")?;
            Ok(Fate::Read(Value::Bool(flag)))
        }
        (Kind::Text, _) => Err("a text"),
        (_, Value::Array(list)) if key != "enum" || !list.is_empty() => Ok(Fate::Keep),
        (_, Value::Object(map)) if key == "enum" && !map.is_empty() => {
            Ok(Fate::Read(map.keys().map(|key| Value::from(key.as_str())).collect()))
        }
        (_, Value::Array(_) | Value::Object(_)) => Err("a list that is not empty"),
        _ => Err("a list"),
    }
}

/// Reads `required`.
fn required(value: &Value) -> Reading {
    match value {
        // The object reports it, and `dialect` removes it.
        Value::Bool(_) => Ok(Fate::Keep),
        Value::Array(list) => {
            let mut names: Vec<Value> = Vec::new();
            list.iter().filter(|name| name.is_string()).for_each(|name| {
                if !names.contains(name) {
                    names.push(name.clone());
                }
            });
            Ok(if names.len() == list.len() { Fate::Keep } else { Fate::Read(names.into()) })
        }
        Value::String(text) if flag(text).is_none() => Ok(Fate::Read(json!([value]))),
        Value::Object(map) if map.is_empty() => Ok(Fate::Read(json!([]))),
        _ => Err("a list of names"),
    }
}
