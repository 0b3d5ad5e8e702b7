//! Grammar of arguments in an almost-JSON notation: Python's, or one with its own quotes and keys.

use super::flat::{self, Flat};
use super::json::{impossible, possible, unless_impossible, unwritable};
use super::references::definition;
use super::rules::literal;
use super::tagged::{MEMBERS, properties, with_definitions};
use super::{Builder, Unenforced, schema};
use crate::error::Result;
use crate::schema::{Types, restricts};
use crate::tool::Tool;
use serde_json::{Map, Value, json};

/// Maximum nesting of a value that its schema does not describe.
const ANY_DEPTH: usize = 2;

/// Keywords about parts of a value: those of several schemas are not merged.
const STRUCTURE: [&str; 6] =
    ["properties", "patternProperties", "additionalProperties", "required", "items", "prefixItems"];
/// The parser does not read longer names.
const NAME: usize = 1024;

/// A notation of values.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dialect<'f> {
    quote: Option<&'f str>,
    bare_keys: bool,
    between_items: &'static str,
    after_key: &'static str,
    literals: [&'static str; 3],
}

impl<'f> Dialect<'f> {
    pub(super) fn of_format(quote: Option<&'f str>, bare_keys: bool) -> Dialect<'f> {
        Dialect { quote, bare_keys, between_items: ",", after_key: ":", literals: ["true", "false", "null"] }
    }

    const PYTHON: Dialect<'static> = Dialect {
        quote: None,
        bare_keys: false,
        between_items: ", ",
        after_key: ": ",
        literals: ["True", "False", "None"],
    };

    fn text(&self, text: &str) -> String {
        self.quote.map_or_else(|| Value::from(text).to_string(), |quote| format!("{quote}{text}{quote}"))
    }

    fn key(&self, key: &str) -> String {
        if self.bare_keys { key.to_owned() } else { self.text(key) }
    }

    fn write(&self, value: &Value) -> String {
        match value {
            Value::Bool(true) => self.literals[0].to_owned(),
            Value::Bool(false) => self.literals[1].to_owned(),
            Value::Null => self.literals[2].to_owned(),
            Value::Number(number) => number.to_string(),
            Value::String(text) => self.text(text),
            Value::Array(items) => {
                let items: Vec<String> = items.iter().map(|item| self.write(item)).collect();
                format!("[{}]", items.join(self.between_items))
            }
            Value::Object(object) => {
                let members: Vec<String> = object
                    .iter()
                    .map(|(key, v)| format!("{}{}{}", self.key(key), self.after_key, self.write(v)))
                    .collect();
                format!("{{{}}}", members.join(self.between_items))
            }
        }
    }

    /// Returns whether a value is read back unchanged: nothing is escaped between custom quotes, or in an unquoted key.
    fn can_write(&self, value: &Value) -> bool {
        match value {
            Value::String(text) => self.quote.is_none_or(|quote| !text.contains(quote)),
            Value::Array(items) => items.iter().all(|item| self.can_write(item)),
            Value::Object(object) => object.iter().all(|(key, value)| self.can_write_key(key) && self.can_write(value)),
            _ => true,
        }
    }

    fn can_write_key(&self, key: &str) -> bool {
        if !self.bare_keys {
            return self.can_write(&key.into());
        }
        let of_quote = self.quote.and_then(|quote| quote.chars().next());
        let plain = |c: char| c >= ' ' && !":,{}[]\"".contains(c) && Some(c) != of_quote;
        !key.is_empty() && key.len() <= NAME && key.trim() == key && !key.starts_with('\'') && key.chars().all(plain)
    }
}

/// Returns whether a name is valid as a Python keyword argument.
fn is_parameter(name: &str) -> bool {
    let begins = |c: char| c.is_ascii_alphabetic() || c == '_' || !c.is_ascii();
    name.len() <= NAME
        && name.starts_with(begins)
        && name.chars().all(|c| begins(c) || c.is_ascii_digit() || "$-.".contains(c))
}

/// The state shared by the rules of one tool's values.
struct Notation<'a> {
    dialect: Dialect<'a>,
    tool: &'a str,
    definitions: Map<String, Value>,
    /// Definitions that have a rule.
    ruled: Vec<(String, String)>,
}

impl Builder<'_> {
    /// `key=value, …` as in Python.
    pub(super) fn python_arguments(&mut self, tool: &Tool) -> Result<String> {
        let Some(whole) = self.schema(tool)? else { return Ok(String::new()) };
        self.leave_for(Some("object"), &whole, &MEMBERS, "$");
        let mut notation = Notation::new(Dialect::PYTHON, tool, &whole);
        let mut items = Vec::new();
        for (name, value, required) in properties(&whole) {
            let path = format!("$.properties.{name}");
            let value = match is_parameter(&name) {
                true => self.native(&with_definitions(value, &whole), &mut notation, &path),
                false => Err(unwritable(&tool.name, &name, &path, &self.format.name)),
            };
            let Some(value) = unless_impossible(required, value)? else { continue };
            items.push((self.rules.sequence(&[literal(&format!("{name}=")), value]), required));
        }
        Ok(self.rules.ordered(&items, ", "))
    }

    /// An object in a format's own notation.
    pub(super) fn native_arguments(&mut self, tool: &Tool, dialect: Dialect<'_>) -> Result<String> {
        let Some(whole) = self.schema(tool)? else { return Ok(literal("{}")) };
        let mut notation = Notation::new(dialect, tool, &whole);
        self.object(&whole, &mut notation, "$")
    }

    fn native(&mut self, schema: &Value, notation: &mut Notation<'_>, path: &str) -> Result<String> {
        let object = match schema {
            Value::Object(object) => object,
            Value::Bool(false) => return Err(impossible(Some(notation.tool), path, None, "nothing is allowed")),
            _ => return Ok(self.anything(notation, ANY_DEPTH)),
        };
        let several = object.keys().filter(|keyword| restricts(keyword)).count() > 1;
        match object.get("allOf") {
            Some(Value::Array(parts)) if parts.len() == 1 && !several => {
                return self.native(&parts[0], notation, &format!("{path}.allOf[0]"));
            }
            Some(_) => {}
            None if several && ["$ref", "anyOf", "oneOf"].iter().any(|key| object.contains_key(*key)) => {}
            None => return self.plain(object, notation, path),
        }
        let whole = with_definitions(schema, &notation.definitions);
        let (alternatives, dropped) = flat::alternatives(&whole, path);
        let is_structured = |flat: &Flat| STRUCTURE.iter().any(|keyword| flat.schema.contains_key(*keyword));
        if alternatives.iter().any(is_structured) {
            return self.plain(object, notation, path);
        }
        self.unenforced.extend(dropped);
        let options = alternatives.iter().map(|flat| self.plain(&flat.schema, notation, &flat.path));
        let options = possible(options)?;
        if options.is_empty() {
            return Err(impossible(Some(notation.tool), path, None, "nothing is allowed"));
        }
        Ok(self.rules.alternatives(&options))
    }

    /// The rule of a value described in one place.
    fn plain(&mut self, object: &Map<String, Value>, notation: &mut Notation<'_>, path: &str) -> Result<String> {
        if let Some(Value::String(reference)) = object.get("$ref") {
            self.leave(object, &["$ref"], path);
            return self.definition(reference, notation, path);
        }
        if let Some(values) = schema::listed(object, &notation.definitions) {
            let values = values.iter().filter(|value| notation.dialect.can_write(value));
            let options: Vec<String> = values.map(|value| literal(&notation.dialect.write(value))).collect();
            if options.is_empty() {
                let keyword = if object.contains_key("enum") { "enum" } else { "const" };
                return Err(impossible(Some(notation.tool), path, Some(keyword), "no listed value fits"));
            }
            return Ok(self.rules.alternatives(&options));
        }
        for key in ["anyOf", "oneOf"] {
            // Keywords about an object's members cannot be merged with alternatives, so they are dropped.
            if let Some(Value::Array(options)) = object.get(key).filter(|_| !object.contains_key("properties")) {
                if options.is_empty() {
                    return Err(impossible(Some(notation.tool), path, Some(key), "there is no alternative"));
                }
                // `oneOf` exclusivity is dropped.
                self.leave(object, &["anyOf"], path);
                let options = options
                    .iter()
                    .enumerate()
                    .map(|(index, option)| self.native(option, notation, &format!("{path}.{key}[{index}]")));
                let options = possible(options)?;
                return Ok(self.rules.alternatives(&options));
            }
        }
        match object.get("type") {
            Some(Value::String(kind)) => self.of_type(kind, object, notation, path),
            Some(Value::Array(kinds)) => {
                let kinds = kinds.iter().filter_map(Value::as_str);
                let options = possible(kinds.map(|kind| self.of_type(kind, object, notation, path)))?;
                Ok(self.rules.alternatives(&options))
            }
            _ if object.contains_key("properties") => self.object(object, notation, path),
            _ => {
                self.leave(object, &[], path);
                Ok(self.anything(notation, ANY_DEPTH))
            }
        }
    }

    fn definition(&mut self, reference: &str, notation: &mut Notation<'_>, path: &str) -> Result<String> {
        if let Some((_, rule)) = notation.ruled.iter().find(|(known, _)| known == reference) {
            return Ok(rule.clone());
        }
        let Some(defined) = definition(&notation.definitions, reference).cloned() else {
            self.unenforced.push(Unenforced::at(path, "$ref"));
            return Ok(self.anything(notation, ANY_DEPTH));
        };
        let rule = self.rules.reserve();
        notation.ruled.push((reference.to_owned(), rule.clone()));
        let body = self.native(&defined, notation, path);
        if body.is_err() {
            // Other references to the definition must also report this.
            notation.ruled.retain(|(_, known)| *known != rule);
        }
        self.rules.complete(&rule, &body?);
        Ok(rule)
    }

    fn of_type(
        &mut self,
        kind: &str,
        object: &Map<String, Value>,
        notation: &mut Notation<'_>,
        path: &str,
    ) -> Result<String> {
        match kind {
            "boolean" | "null" => {
                let mut listed = only(object, kind);
                listed["enum"] = if kind == "null" { json!([null]) } else { json!([true, false]) };
                self.native(&listed, notation, path)
            }
            "array" => self.array(object, notation, path),
            "object" => self.object(object, notation, path),
            "string" => match notation.dialect.quote {
                Some(quote) => {
                    let text = self.raw(object, quote, path, Types::STRING);
                    Ok(self.rules.sequence(&[literal(quote), text]))
                }
                None => self.json_value(&only(object, kind), notation.tool, path),
            },
            _ => self.json_value(&only(object, kind), notation.tool, path),
        }
    }

    fn array(&mut self, object: &Map<String, Value>, notation: &mut Notation<'_>, path: &str) -> Result<String> {
        let (least, most) = schema::item_counts(object);
        if let Some(most) = most.filter(|most| *most < least) {
            let why = format!("minItems ({least}) is greater than maxItems ({most})");
            return Err(impossible(Some(notation.tool), path, Some("minItems"), &why));
        }
        let is_tuple = object.contains_key("prefixItems") || object.get("items").is_some_and(Value::is_array);
        let mut heeded = vec!["type", "minItems", "maxItems"];
        let item = match object.get("items").filter(|_| !is_tuple) {
            Some(items) => {
                heeded.push("items");
                let item = self.native(items, notation, &format!("{path}.items"));
                unless_impossible(least > 0, item)?
            }
            None => Some(self.anything(notation, ANY_DEPTH - 1)),
        };
        self.leave_for(Some("array"), object, &heeded, path);
        let most = most.unwrap_or(least.max(super::MANY as u64));
        let list = item.map_or(String::new(), |item| self.list(&item, notation.dialect, least, most));
        Ok(self.rules.sequence(&[literal("["), list, literal("]")]))
    }

    /// A list of `least` to `most` items, with separators.
    fn list(&mut self, item: &str, dialect: Dialect<'_>, least: u64, most: u64) -> String {
        if most == 0 {
            return String::new();
        }
        let next = self.rules.sequence(&[literal(dialect.between_items), item.to_owned()]);
        let more = format!("{next}{{{},{}}}", least.saturating_sub(1), most - 1);
        let list = self.rules.sequence(&[item.to_owned(), more]);
        if least == 0 { format!("{list}?") } else { list }
    }

    fn object(&mut self, object: &Map<String, Value>, notation: &mut Notation<'_>, path: &str) -> Result<String> {
        self.leave_for(Some("object"), object, &MEMBERS, path);
        let dialect = notation.dialect;
        let declared = properties(object);
        let is_open = declared.is_empty();
        let mut items = Vec::new();
        for (name, value, required) in declared {
            let path = format!("{path}.properties.{name}");
            let value = match dialect.can_write_key(&name) {
                true => self.native(value, notation, &path),
                false => Err(unwritable(notation.tool, &name, &path, &self.format.name)),
            };
            let Some(value) = unless_impossible(required, value)? else { continue };
            let key = literal(&format!("{}{}", dialect.key(&name), dialect.after_key));
            items.push((self.rules.sequence(&[key, value]), required));
        }
        let members = match object.get("additionalProperties") {
            Some(Value::Bool(false)) => String::new(),
            _ if !is_open => String::new(),
            Some(rest @ Value::Object(_)) => {
                let value = self.native(rest, notation, &format!("{path}.additionalProperties"));
                let value = unless_impossible(false, value)?;
                value.map_or(String::new(), |value| self.members(&value, dialect))
            }
            _ => {
                let value = self.anything(notation, ANY_DEPTH - 1);
                self.members(&value, dialect)
            }
        };
        let listed = self.rules.ordered(&items, dialect.between_items);
        Ok(self.rules.sequence(&[literal("{"), listed, members, literal("}")]))
    }

    /// Members with any names, and values of one kind.
    fn members(&mut self, value: &str, dialect: Dialect<'_>) -> String {
        let name = self.rules.terminal("/[a-zA-Z_][a-zA-Z0-9_]{0,30}/");
        let quote = if dialect.bare_keys { "" } else { dialect.quote.unwrap_or("\"") };
        let after = format!("{quote}{}", dialect.after_key);
        let member = self.rules.sequence(&[literal(quote), name, literal(&after), value.to_owned()]);
        self.list(&member, dialect, 0, 8)
    }

    fn anything(&mut self, notation: &Notation<'_>, depth: usize) -> String {
        let dialect = notation.dialect;
        let mut options: Vec<String> = dialect.literals.iter().map(|text| literal(text)).collect();
        let (number, _) = schema::prepare(&json!({"type": "number"}));
        options.push(self.rules.json(&number));
        options.push(match dialect.quote {
            Some(quote) => {
                let text = self.raw(&Map::new(), quote, "$", Types::STRING);
                self.rules.sequence(&[literal(quote), text])
            }
            None => self.rules.json(&json!({"type": "string"})),
        });
        if let Some(depth) = depth.checked_sub(1) {
            let inner = self.anything(notation, depth);
            let list = self.list(&inner, dialect, 0, 8);
            options.push(self.rules.sequence(&[literal("["), list, literal("]")]));
            let members = self.members(&inner, dialect);
            options.push(self.rules.sequence(&[literal("{"), members, literal("}")]));
        }
        self.rules.alternatives(&options)
    }
}

impl<'a> Notation<'a> {
    fn new(dialect: Dialect<'a>, tool: &'a Tool, whole: &Map<String, Value>) -> Notation<'a> {
        Notation { dialect, tool: &tool.name, definitions: schema::definitions(whole), ruled: Vec::new() }
    }
}

/// A schema restricted to one of its types.
fn only(object: &Map<String, Value>, kind: &str) -> Value {
    let mut one = object.clone();
    one.insert("type".to_owned(), kind.into());
    Value::Object(one)
}
