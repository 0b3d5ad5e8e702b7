//! Converts schemas of authors and generators to ones that a validator accepts.
//!
//! Other dialects are read as JSON Schema's newest draft. Unreadable keywords are dropped, and the rest of the schema
//! stays in force. Every change is reported with its place.
//!
//! What [`dialect`] translates (`dict`, `nullable`) is reported but not changed, because the model sees it in that
//! form.

mod refused;
mod values;

use super::dialect;
use super::keywords::{Kind, kind_of};
use super::notice::Notices;
use super::{pattern, references, types};
use crate::error::nearest;
use crate::json::shown;
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

/// A pointer to a member of the value at `path`.
pub(super) fn pointer(path: &str, key: &str) -> String {
    format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"))
}

/// The direct subschemas of a schema, with their pointers.
pub(super) fn inner<'s>(object: &'s mut Map<String, Value>, path: &str) -> Vec<(String, &'s mut Value)> {
    let mut found = Vec::new();
    for (key, value) in object {
        let at = pointer(path, key);
        match (kind_of(key), value) {
            (Kind::Schema, value @ (Value::Object(_) | Value::Bool(_))) => found.push((at, value)),
            (Kind::Schemas | Kind::Schema, Value::Array(list)) => {
                found.extend(list.iter_mut().enumerate().map(|(index, item)| (format!("{at}/{index}"), item)));
            }
            (Kind::Members, Value::Object(map)) => {
                found.extend(map.iter_mut().map(|(name, item)| (pointer(&at, name), item)));
            }
            _ => {}
        }
    }
    found
}

/// What to do with a keyword.
enum Fate {
    Keep,
    Drop,
    Become(Value),
}

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
                Fate::Become(value) => object[&key] = value,
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
        let fate = match kind {
            Kind::Other | Kind::Type => Ok(Fate::Keep),
            Kind::Required => Ok(self.required(key, value, path)),
            Kind::Pattern => Ok(self.pattern(value, path)),
            Kind::Draft => Ok(self.draft_name(key, value, path)),
            Kind::Schema | Kind::Schemas | Kind::Members => self.schemas(kind, key, value, path),
            Kind::Count | Kind::Number | Kind::Flag | Kind::Text | Kind::Values => self.plain(kind, key, value, path),
        };
        fate.unwrap_or_else(|wanted| {
            self.notices.relaxed(path, key, format!("{} is left out", shown(value)), format!("write {wanted}"));
            Fate::Drop
        })
    }

    /// A keyword whose value has schemas; if its value cannot be read, what to write.
    fn schemas(&mut self, kind: Kind, key: &str, value: &Value, path: &str) -> Result<Fate, &'static str> {
        match (kind, value) {
            (Kind::Schema, Value::Object(_) | Value::Bool(_)) => Ok(Fate::Keep),
            (Kind::Schema, Value::Array(list))
                if key == "items" && list.iter().all(|item| item.is_object() || item.is_boolean()) =>
            {
                Ok(Fate::Keep)
            }
            (Kind::Schema, Value::String(text)) if flag(text).is_some() => Ok(self.flag(key, value, path)),
            (Kind::Schema, Value::String(text)) => match types::schema_of(text) {
                Some(named) => Ok(self.become_read(key, value, Value::Object(named), path)),
                None => Err("a schema"),
            },
            (Kind::Schema, _) => Err("a schema"),
            (Kind::Schemas, Value::Array(list)) if !list.is_empty() => Ok(Fate::Keep),
            (Kind::Schemas, Value::Object(_)) => Ok(self.become_read(key, value, json!([value]), path)),
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

    /// A keyword whose value has no schemas; if its value cannot be read, what to write.
    fn plain(&mut self, kind: Kind, key: &str, value: &Value, path: &str) -> Result<Fate, &'static str> {
        let fits = |number: &Number| key != "multipleOf" || number.as_f64().is_some_and(|n| n > 0.0);
        match (kind, value) {
            (Kind::Count, _) => match whole(value) {
                Some(count) if value.is_number() && json!(count) == *value => Ok(Fate::Keep),
                Some(_) if value.is_f64() => Ok(Fate::Keep),
                Some(count) => Ok(self.become_read(key, value, json!(count), path)),
                None => Err("a whole number from 0 up"),
            },
            (Kind::Number, Value::Bool(_)) if key.starts_with("exclusive") => Ok(Fate::Keep),
            (Kind::Number, Value::Number(number)) if fits(number) => Ok(Fate::Keep),
            (Kind::Number, Value::String(text)) => {
                let number = serde_json::from_str::<Number>(text.trim()).ok().filter(fits).ok_or("a number")?;
                Ok(self.become_read(key, value, Value::Number(number), path))
            }
            (Kind::Number, _) => Err(if key == "multipleOf" { "a number above 0" } else { "a number" }),
            (Kind::Flag, Value::Bool(_)) | (Kind::Text, Value::String(_)) => Ok(Fate::Keep),
            (Kind::Flag, Value::String(text)) if flag(text).is_some() => Ok(self.flag(key, value, path)),
            (Kind::Flag, _) => Err("true or false"),
            (Kind::Text, _) => Err("a text"),
            (_, Value::Array(list)) if key != "enum" || !list.is_empty() => Ok(Fate::Keep),
            (_, Value::Object(map)) if key == "enum" && !map.is_empty() => {
                let values: Vec<Value> = map.keys().map(|key| key.as_str().into()).collect();
                Ok(self.become_read(key, value, values.into(), path))
            }
            (_, Value::Array(_) | Value::Object(_)) => Err("a list that is not empty"),
            _ => Err("a list"),
        }
    }

    fn become_read(&mut self, key: &str, from: &Value, to: Value, path: &str) -> Fate {
        self.notices.read(path, key, format!("{} is read as {}", shown(from), shown(&to)), "write that");
        Fate::Become(to)
    }

    fn flag(&mut self, key: &str, value: &Value, path: &str) -> Fate {
        let flag = value.as_str().and_then(flag).unwrap_or_default();
        self.become_read(key, value, Value::Bool(flag), path)
    }

    fn draft_name(&mut self, key: &str, value: &Value, path: &str) -> Fate {
        if value.is_string() && (!path.is_empty() || Draft::of(&json!({"$schema": value})) != Draft::Unknown) {
            return Fate::Keep;
        }
        let message = format!("{} names no known draft; it is read as 2020-12", shown(value));
        self.notices.read(path, key, message, "leave it out");
        Fate::Drop
    }

    fn required(&mut self, key: &str, value: &Value, path: &str) -> Fate {
        match value {
            // The object reports it, and `dialect` removes it.
            Value::Bool(_) => Fate::Keep,
            Value::Array(list) => {
                let mut names: Vec<Value> = Vec::new();
                list.iter().filter(|name| name.is_string()).for_each(|name| {
                    if !names.contains(name) {
                        names.push(name.clone());
                    }
                });
                match names.len() == list.len() {
                    true => Fate::Keep,
                    false => self.become_read(key, value, names.into(), path),
                }
            }
            Value::String(text) if flag(text).is_some() => {
                self.notices.relaxed(path, key, format!("{} is left out", shown(value)), "write a list of names");
                Fate::Drop
            }
            Value::String(_) => self.become_read(key, value, json!([value]), path),
            Value::Object(map) if map.is_empty() => self.become_read(key, value, json!([]), path),
            _ => {
                self.notices.relaxed(path, key, format!("{} is left out", shown(value)), "write a list of names");
                Fate::Drop
            }
        }
    }

    fn pattern(&mut self, value: &Value, path: &str) -> Fate {
        let Value::String(text) = value else {
            self.notices.relaxed(path, "pattern", format!("{} is left out", shown(value)), "write a text");
            return Fate::Drop;
        };
        match self.expression(text) {
            Some(same) if same == *text => Fate::Keep,
            Some(other) => self.become_read("pattern", value, other.into(), path),
            None => {
                let message = format!("{} is not a regular expression and is left out", shown(value));
                self.notices.relaxed(path, "pattern", message, "write one of ECMA 262, as JavaScript has them");
                Fate::Drop
            }
        }
    }

    /// A regular expression that a validator accepts.
    fn expression(&self, text: &str) -> Option<String> {
        let takes = |text: &str| jsonschema::validator_for(&json!({"pattern": text})).is_ok();
        let other = pattern::standard(text);
        [other, text.to_owned()].into_iter().find(|text| takes(text))
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

    /// Whether a type's name is JSON Schema's, or one that [`dialect`] translates.
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
        if !["$ref", "anyOf", "oneOf", "allOf"].iter().any(|key| object.contains_key(*key)) || path.is_empty() {
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
