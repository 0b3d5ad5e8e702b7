//! Arguments one by one between tags: values typed by the schema, strings as they are.

use super::json::unless_impossible;
use super::rules::literal;
use super::{Builder, Unenforced, schema};
use crate::error::Result;
use crate::format::{Marker, TaggedCall};
use crate::tool::Tool;
use serde_json::{Map, Value, json};

/// Keywords of objects whose members are written one by one, and only those that the schema names.
pub(super) const MEMBERS: [&str; 5] = ["type", "properties", "required", "additionalProperties", "patternProperties"];

/// Keywords of strings that a terminal can hold to.
const LENGTHS: [&str; 2] = ["minLength", "maxLength"];
/// Longer texts than this are not counted: the grammar engine gives up on a terminal that counts and looks out for a tag.
const COUNTED: u64 = 1000;

impl Builder<'_> {
    pub(super) fn tagged_arguments(&mut self, tool: &Tool, tagged: &TaggedCall) -> Result<String> {
        let Some(schema) = self.schema(tool)? else { return Ok(String::new()) };
        self.leave(&schema, &MEMBERS, "$");
        let mut parts = Vec::new();
        for (key, value, required) in properties(&schema) {
            let value = with_definitions(value, &schema);
            let argument = self.tagged_argument(&tool.name, &key, &value, tagged, &format!("$.properties.{key}"));
            let Some(argument) = unless_impossible(required, argument)? else { continue };
            parts.push(if required { argument } else { optional(&argument) });
        }
        Ok(self.rules.sequence(&parts))
    }

    fn tagged_argument(
        &mut self,
        tool: &str,
        key: &str,
        schema: &Value,
        tagged: &TaggedCall,
        path: &str,
    ) -> Result<String> {
        let before = literal(&format!("{}{key}{}{}", tagged.key_start, tagged.key_end, tagged.value_start));
        let end = tagged.value_end.replace("{key}", key);
        let value = self.tagged_value(tool, schema, &end, tagged, path)?;
        Ok(self.rules.sequence(&[before, value]))
    }

    /// A value and the tag that ends it.
    fn tagged_value(
        &mut self,
        tool: &str,
        schema: &Value,
        end: &str,
        tagged: &TaggedCall,
        path: &str,
    ) -> Result<String> {
        let kinds = kinds(schema);
        if tagged.nested
            && let Value::Object(object) = schema
        {
            if kinds == ["object"] && object.contains_key("properties") {
                self.leave(object, &MEMBERS, path);
                let mut parts = Vec::new();
                for (key, value, required) in properties(object) {
                    let value = with_definitions(value, object);
                    let member = self.tagged_argument(tool, &key, &value, tagged, &format!("{path}.properties.{key}"));
                    let Some(member) = unless_impossible(required, member)? else { continue };
                    parts.push(if required { member } else { optional(&member) });
                }
                parts.push(literal(end));
                return Ok(self.rules.sequence(&parts));
            }
            if kinds == ["array"] && object.get("items").is_some_and(Value::is_object) {
                self.leave(object, &["type", "items", "minItems", "maxItems"], path);
                let items = with_definitions(&object["items"], object);
                let item = self.tagged_argument(tool, "item", &items, tagged, &format!("{path}.items"))?;
                let count = |key: &str| object.get(key).and_then(Value::as_u64);
                let (least, most) = (count("minItems").unwrap_or(0), count("maxItems"));
                // Without an element it would be empty text, which is no array.
                let least = least.max(1);
                let several = format!("{item}{{{least},{}}}", most.unwrap_or(super::MANY as u64).max(least));
                return Ok(self.rules.sequence(&[several, literal(end)]));
            }
        }
        if kinds.is_empty() && !has_structure(schema) {
            // Nothing is said of the value: any text is one.
            return Ok(self.raw(&json!({}), end, path, ""));
        }
        // The parser takes for a string only what is nothing else: a first letter settles it.
        let only_text = !kinds.is_empty() && kinds.iter().all(|kind| kind == "string");
        let mut options = self.texts(schema, end, path, if only_text { "" } else { "[A-Z_]" });
        if !only_text {
            let json = self.json_value(&without_strings(schema), tool, path)?;
            options.push(self.rules.sequence(&[json, literal(end)]));
        }
        Ok(self.rules.alternatives(&options))
    }

    /// The texts that a schema allows, each with its end, or those of the alternatives in it.
    fn texts(&mut self, schema: &Value, end: &str, path: &str, begins: &str) -> Vec<String> {
        if !kinds(schema).iter().any(|kind| kind == "string") {
            return Vec::new();
        }
        if let Some(listed) = listed(schema) {
            let listed = listed.iter().filter_map(Value::as_str);
            let listed = listed.filter(|text| begins.is_empty() || is_only_text(text));
            return listed.map(|text| literal(&format!("{text}{end}"))).collect();
        }
        let options = ["anyOf", "oneOf"].iter().find_map(|key| Some((*key, schema.get(*key)?.as_array()?)));
        let Some((key, options)) = options.filter(|_| schema.get("type").is_none()) else {
            return vec![self.raw(schema, end, path, begins)];
        };
        if key == "oneOf" {
            self.unenforced.push(Unenforced { tool: None, path: path.to_owned(), keyword: key.to_owned() });
        }
        let options = options.iter().enumerate();
        options.flat_map(|(index, option)| self.texts(option, end, &format!("{path}.{key}[{index}]"), begins)).collect()
    }

    /// Text up to the tag that ends it, which is part of the terminal: where text ends, only the tag says.
    pub(super) fn raw(&mut self, schema: &Value, end: &str, path: &str, begins: &str) -> String {
        let mut conditions = vec!["/(?s:.*)/".to_owned()];
        if !begins.is_empty() {
            conditions.push(format!("/(?s:{begins}.*)/"));
        }
        for keyword in LENGTHS {
            if schema.get(keyword).and_then(Value::as_u64).is_some_and(|count| count > COUNTED) {
                self.unenforced.push(Unenforced { tool: None, path: path.to_owned(), keyword: keyword.to_owned() });
            }
        }
        let count = |key: &str| schema.get(key).and_then(Value::as_u64).filter(|count| *count <= COUNTED);
        let lengths = LENGTHS.iter().any(|key| count(key).is_some());
        if lengths {
            let most = count("maxLength").map_or(String::new(), |most| most.to_string());
            conditions.push(format!("/(?s:.{{{},{most}}})/", count("minLength").unwrap_or(0)));
        }
        let pattern = schema.get("pattern").and_then(Value::as_str);
        if pattern.is_some() || lengths {
            // White space at a value's edges may be the format's, and not count.
            conditions.push(r"/(?s:[^\s].*[^\s]|[^\s]?)/".to_owned());
        }
        let searched = pattern.and_then(searched);
        let unsaid = [("pattern", pattern.is_some() && searched.is_none()), ("format", schema.get("format").is_some())];
        let combined = ["anyOf", "oneOf", "allOf"].map(|keyword| (keyword, schema.get(keyword).is_some()));
        for (keyword, _) in unsaid.into_iter().chain(combined).filter(|(_, unsaid)| *unsaid) {
            self.unenforced.push(Unenforced { tool: None, path: path.to_owned(), keyword: keyword.to_owned() });
        }
        conditions.extend(searched);
        let forbidden = self.markup(end);
        conditions.push(format!("~(/(?s:.*)/ ({}) /(?s:.*)/)", forbidden.join(" | ")));
        let text = self.rules.terminal(&conditions.join(" & "));
        self.rules.terminal(&format!("{text} {}", literal(end)))
    }

    /// What must not stand in a text that ends at `end`: the format's own markup.
    fn markup(&self, end: &str) -> Vec<String> {
        let markers = [&self.format.start, &self.format.end];
        let section = self.format.section.iter().flat_map(|section| [&section.start, &section.end]);
        let markers = markers.into_iter().flatten().chain(section).filter_map(Marker::text);
        let mut texts: Vec<&str> = markers.chain([end]).collect();
        if let crate::format::Payload::Tagged(tagged) = &self.format.payload {
            texts.push(&tagged.key_start);
        }
        let mut forbidden: Vec<String> =
            texts.into_iter().map(str::trim).filter(|text| !text.is_empty()).map(literal).collect();
        forbidden.sort();
        forbidden.dedup();
        forbidden
    }
}

/// A schema's pattern as a terminal that matches the whole of a text it is found in; `None` where that is not plain.
fn searched(pattern: &str) -> Option<String> {
    let from_start = pattern.starts_with('^');
    let to_end = pattern.ends_with('$') && !pattern.ends_with("\\$");
    let inner = &pattern[usize::from(from_start)..pattern.len() - usize::from(to_end)];
    // With alternatives an anchor may belong to one of them only.
    if inner.contains(['^', '$', '|']) && (from_start || to_end || inner.contains(['^', '$'])) {
        return None;
    }
    let (before, behind) = (if from_start { "" } else { "(?s:.*)" }, if to_end { "" } else { "(?s:.*)" });
    let terminal = format!("/{before}({}){behind}/", llguidance::regex_to_lark(inner, "dw"));
    schema::compile(&json!({"type": "string", "pattern": pattern})).is_ok().then_some(terminal)
}

fn optional(rule: &str) -> String {
    if rule.is_empty() { String::new() } else { format!("{rule}?") }
}

/// The properties in order: name, schema, whether it is required. Names that the schema only requires come last.
pub(super) fn properties(schema: &Map<String, Value>) -> Vec<(String, &Value, bool)> {
    const ANY: &Value = &Value::Bool(true);
    let required: Vec<&str> =
        schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let declared = schema.get("properties").and_then(Value::as_object);
    let mut found: Vec<(String, &Value, bool)> = declared
        .into_iter()
        .flatten()
        .map(|(name, value)| (name.clone(), value, required.contains(&name.as_str())))
        .collect();
    for name in required {
        if !found.iter().any(|(known, _, _)| known == name) {
            found.push((name.to_owned(), ANY, true));
        }
    }
    found
}

/// A part of a schema, with the definitions that it may refer to.
pub(super) fn with_definitions(part: &Value, whole: &Map<String, Value>) -> Value {
    let mut part = part.clone();
    if let Value::Object(object) = &mut part {
        for key in ["$defs", "definitions"] {
            if let Some(definitions) = whole.get(key) {
                object.entry(key).or_insert_with(|| definitions.clone());
            }
        }
    }
    part
}

/// The types that a schema allows; none where it does not say.
pub(super) fn kinds(schema: &Value) -> Vec<String> {
    let Value::Object(object) = schema else { return Vec::new() };
    let mut found = match object.get("type") {
        Some(Value::String(one)) => vec![one.clone()],
        Some(Value::Array(several)) => several.iter().filter_map(|kind| kind.as_str().map(str::to_owned)).collect(),
        _ => Vec::new(),
    };
    if found.is_empty() {
        let options = ["anyOf", "oneOf"].iter().filter_map(|key| object.get(*key)?.as_array()).flatten();
        let options: Vec<Vec<String>> = options.map(kinds).collect();
        if options.iter().all(|kinds| !kinds.is_empty()) {
            found = options.concat();
        }
    }
    if found.is_empty() {
        let values = object.get("enum").and_then(Value::as_array).map(Vec::as_slice);
        let values = values.or(object.get("const").map(std::slice::from_ref)).unwrap_or_default();
        found = values.iter().map(|value| kind(value).to_owned()).collect();
    }
    found.dedup();
    found
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The values that a schema lists, where it does.
fn listed(schema: &Value) -> Option<&[Value]> {
    match (schema.get("enum"), schema.get("const")) {
        (Some(Value::Array(values)), _) => Some(values),
        (None, Some(value)) => Some(std::slice::from_ref(value)),
        _ => None,
    }
}

/// Whether a text cannot be taken for a value of another kind.
fn is_only_text(text: &str) -> bool {
    const WORDS: [&str; 8] = ["true", "false", "null", "none", "nil", "nan", "inf", "infinity"];
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && !WORDS.contains(&&*text.to_ascii_lowercase())
}

fn has_structure(schema: &Value) -> bool {
    ["$ref", "allOf", "anyOf", "oneOf", "properties", "items", "enum", "const"]
        .iter()
        .any(|key| schema.get(*key).is_some())
}

/// What of a schema is no string.
fn without_strings(schema: &Value) -> Value {
    let mut schema = schema.clone();
    let Value::Object(object) = &mut schema else { return schema };
    if let Some(Value::Array(kinds)) = object.get_mut("type") {
        kinds.retain(|kind| kind != "string");
    }
    for key in ["anyOf", "oneOf"] {
        if let Some(Value::Array(options)) = object.get_mut(key) {
            options.retain(|option| kinds(option) != ["string"]);
            options.iter_mut().for_each(|option| *option = without_strings(option));
        }
    }
    if let Some(Value::Array(values)) = object.get_mut("enum") {
        values.retain(|value| !value.is_string());
    }
    schema
}
