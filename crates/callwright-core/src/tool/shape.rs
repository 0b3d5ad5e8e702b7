//! The shapes of tool lists in programs and APIs, and the content of each tool.

use super::name;
use super::notice::Notices;
use super::{Policy, Tool, relax};
use crate::json::{kind, shown};
use serde_json::{Map, Value, json};

/// One tool in a file.
pub(super) struct Found<'v> {
    pub value: &'v Value,
    /// Its place in the file.
    pub path: String,
    /// Its key, if the file is an object of tools.
    pub key: Option<&'v str>,
    /// The objects around it.
    pub outer: Vec<&'v Map<String, Value>>,
}

/// Keys that may contain a list of tools, in order.
const LISTS: [&str; 7] =
    ["tools", "result", "functionDeclarations", "function_declarations", "functions", "toolConfig", "tool_config"];
/// Keys of a tool's schema.
const SCHEMAS: [&str; 7] = [
    "parameters",
    "input_schema",
    "inputSchema",
    "parametersJsonSchema",
    "parameters_json_schema",
    "args_schema",
    "schema",
];
/// Keys of wrappers around a tool.
const WRAPPERS: [&str; 3] = ["function", "toolSpec", "tool"];

/// The tools of a file in order; `None` if it has no place for tools.
pub(super) fn tools(value: &Value) -> Option<Vec<Found<'_>>> {
    let mut found = Vec::new();
    list(value, "tools", &[], &mut found).then_some(found)
}

/// Searches for tools in a list, or in an object that contains one; false if there is no place for them.
fn list<'v>(value: &'v Value, path: &str, outer: &[&'v Map<String, Value>], found: &mut Vec<Found<'v>>) -> bool {
    match value {
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                let path = format!("{path}[{index}]");
                match item {
                    Value::Object(object) if !is_tool(object) && inner_list(object).is_some() => {
                        list(item, &path, outer, found);
                    }
                    // Some programs write each tool in a separate list.
                    Value::Array(_) => drop(list(item, &path, outer, found)),
                    _ => found.push(Found { value: item, path, key: None, outer: outer.to_vec() }),
                }
            }
            true
        }
        Value::Object(object) => {
            let around: Vec<_> = outer.iter().copied().chain([object]).collect();
            if is_tool(object) {
                found.push(Found { value, path: format!("{path}[0]"), key: None, outer: outer.to_vec() });
                return true;
            }
            if let Some((key, inner)) = inner_list(object) {
                let path = if path == "tools" { key.to_owned() } else { format!("{path}.{key}") };
                return list(inner, &path, &around, found);
            }
            if named(object) {
                for (key, value) in object {
                    found.push(Found { value, path: format!("{path}.{key}"), key: Some(key), outer: around.clone() });
                }
                return true;
            }
            if outer.is_empty() {
                found.push(Found { value, path: format!("{path}[0]"), key: None, outer: outer.to_vec() });
            }
            outer.is_empty()
        }
        _ => false,
    }
}

/// Returns whether an object describes a tool itself.
fn is_tool(object: &Map<String, Value>) -> bool {
    object.contains_key("name") && !matches!(object.get("tools"), Some(Value::Array(_) | Value::Object(_)))
        || WRAPPERS.iter().any(|key| object.get(*key).is_some_and(Value::is_object))
}

fn inner_list(object: &Map<String, Value>) -> Option<(&'static str, &Value)> {
    LISTS.iter().find_map(|key| Some((*key, object.get(*key)?)))
}

/// Returns whether an object maps names to tools.
fn named(object: &Map<String, Value>) -> bool {
    let is_tool = |value: &Value| {
        let has = |key: &str| value.get(key).is_some();
        SCHEMAS.iter().any(|key| has(key)) || WRAPPERS.iter().any(|key| has(key))
    };
    !object.is_empty() && object.values().all(is_tool)
}

/// Reads one tool, and adds notices about its faults. The error says why it is unusable: what was found, and what to
/// write.
pub(super) fn tool(found: &Found<'_>, notices: &mut Notices, taken: &dyn Fn(&str) -> bool) -> Result<Tool, Fault> {
    let path = &found.path;
    let Value::Object(outermost) = found.value else {
        let message = format!("{path} is {}; expected a tool", kind(found.value));
        return Err(Fault::new("", message, "write an object with \"name\""));
    };
    let wrapper = WRAPPERS.iter().find(|key| outermost.contains_key(**key)).copied();
    if let Some(kind) = outermost.get("type").filter(|_| wrapper == Some("function"))
        && kind != "function"
    {
        let message = format!("{path}.type is {}; expected \"function\"", shown(kind));
        return Err(Fault::new("type", message, "write \"function\""));
    }
    let (function, path) = match wrapper.map(|key| (key, &outermost[key])) {
        Some((key, Value::Object(function))) => (function, format!("{path}.{key}")),
        Some((key, other)) => {
            let message = format!("{path}.{key} is {}; expected an object with \"name\"", kind(other));
            return Err(Fault::new(key, message, "write an object with \"name\""));
        }
        None => (outermost, path.clone()),
    };
    let own = match (function.get("name").or_else(|| outermost.get("name")), found.key) {
        (Some(Value::String(name)), _) => name.clone(),
        (Some(other), None) => {
            let message = format!("{path}.name is {}; expected a string", kind(other));
            return Err(Fault::new("name", message, "write a text"));
        }
        (_, Some(key)) => key.to_owned(),
        (None, None) => {
            let message = match outermost.get("type") {
                Some(Value::String(kind)) if kind != "function" => {
                    format!("{path} is a tool of type {kind:?} that its vendor runs, with no \"name\"")
                }
                _ => format!("{path} has no \"name\""),
            };
            return Err(Fault::new("name", message, "write a \"name\""));
        }
    };
    notices.tool = if own.trim().is_empty() { path.clone() } else { own.clone() };
    if own.trim().is_empty() {
        let message = format!("{path}: the tool's name is {own:?}; expected a word without spaces");
        return Err(Fault::new("name", message, "write a name"));
    }
    let alias = alias(&own, notices, taken);
    let description = description(function, notices);
    let mut parameters = schema_of(function, notices);
    if parameters.is_none() && wrapper.is_some() {
        parameters = schema_of(outermost, notices);
    }
    // Some programs write `{}` for "no parameters".
    let mut parameters = parameters.filter(|schema| !schema.is_empty());
    if let Some(schema) = &mut parameters {
        bare_properties(schema, notices);
        let outer: Vec<_> = [function, outermost].into_iter().chain(found.outer.iter().rev().copied()).collect();
        relax::parameters(schema, &outer, notices).map_err(|why| {
            Fault::new("parameters", format!("{path}: tool {own:?}: {why}"), "write a JSON Schema of type object")
        })?;
    }
    let parameters = parameters.filter(|schema| !schema.is_empty());
    let policy = Policy::of_json(&[function, outermost], notices);
    Ok(Tool { name: own, description, parameters, exec: None, alias, policy })
}

/// The model's name for the tool, if it is not the tool's own.
pub(super) fn alias(own: &str, notices: &mut Notices, taken: &dyn Fn(&str) -> bool) -> Option<String> {
    let alias = name::for_model(own, taken)?;
    let message = format!("the model is shown the name {alias:?}, and its calls of that name get the tool's own");
    let instead = "to avoid this, use at most 64 letters, digits, _, - and .";
    notices.add(super::Change::Renamed, "", "name", message, instead);
    Some(alias)
}

/// Why a tool is unusable.
pub(super) struct Fault {
    pub keyword: String,
    pub message: String,
    pub instead: String,
}

impl Fault {
    pub(super) fn new(keyword: &str, message: impl Into<String>, instead: &str) -> Fault {
        Fault { keyword: keyword.to_owned(), message: message.into(), instead: instead.to_owned() }
    }
}

fn description(function: &Map<String, Value>, notices: &mut Notices) -> String {
    match function.get("description") {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(lines)) if lines.iter().all(Value::is_string) => {
            notices.read("", "description", "the texts of a list are read as lines", "write one text");
            lines.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("\n")
        }
        Some(other) => {
            notices.relaxed("", "description", format!("{} is left out", shown(other)), "write a text");
            String::new()
        }
    }
}

/// The schema, under any of its keys.
fn schema_of(function: &Map<String, Value>, notices: &mut Notices) -> Option<Map<String, Value>> {
    let (key, value) = SCHEMAS.iter().find_map(|key| {
        let value = function.get(*key).filter(|value| !value.is_null())?;
        Some((*key, value))
    })?;
    match value {
        // In Amazon's Converse the schema is one level deeper.
        Value::Object(schema) if schema.len() == 1 => match schema.get("json") {
            Some(Value::Object(inner)) if !inner.contains_key("json") && function.contains_key("inputSchema") => {
                Some(inner.clone())
            }
            _ => Some(schema.clone()),
        },
        Value::Object(schema) => Some(schema.clone()),
        Value::Array(list) if list.is_empty() => {
            notices.read("", key, "[] is read as {}: no parameters", "write {}");
            None
        }
        // Hand-written lists of parameters.
        Value::Array(list) if list.iter().all(|one| one.get("name").is_some_and(Value::is_string)) => {
            let properties = json!({"properties": list});
            notices.read(
                "",
                key,
                "a list is read as \"properties\", by each \"name\"",
                "write a JSON Schema of type object",
            );
            properties.as_object().cloned()
        }
        Value::String(text) => match serde_json::from_str(text) {
            Ok(Value::Object(schema)) => {
                notices.read("", key, "the JSON in a text is read", "write the object itself");
                Some(schema)
            }
            _ => no_schema(key, value, notices),
        },
        _ => no_schema(key, value, notices),
    }
}

fn no_schema(key: &str, value: &Value, notices: &mut Notices) -> Option<Map<String, Value>> {
    let message = format!("{} is not a schema; any arguments fit", shown(value));
    notices.relaxed("", key, message, "write a JSON Schema of type object");
    None
}

/// An object of parameters instead of a schema with `properties`.
fn bare_properties(schema: &mut Map<String, Value>, notices: &mut Notices) {
    const KEYWORDS: [&str; 9] = [
        "type",
        "properties",
        "$ref",
        "anyOf",
        "oneOf",
        "allOf",
        "required",
        "additionalProperties",
        "patternProperties",
    ];
    let is_schema = |value: &Value| {
        value.as_object().is_some_and(|object| {
            ["type", "description", "enum", "$ref", "anyOf", "items"].iter().any(|key| object.contains_key(*key))
        })
    };
    let bare = schema.keys().all(|key| !key.starts_with('$'))
        && schema.values().all(is_schema)
        && !KEYWORDS.iter().any(|key| *key != "type" && schema.contains_key(*key));
    if bare && !schema.is_empty() {
        let properties = std::mem::take(schema);
        schema.insert("type".to_owned(), "object".into());
        schema.insert("properties".to_owned(), Value::Object(properties));
        notices.read(
            "",
            "properties",
            "the parameters themselves are read as \"properties\"",
            "write them under \"properties\"",
        );
    }
}
