//! Grammar of arguments as JSON.

use super::fit::{self, Fitted};
use super::limits::{beyond, ended};
use super::references::{self, definition};
use super::rules::{Rules, literal};
use super::tagged::{properties, with_definitions};
use super::{Begins, Builder, Effort, Grammar, MANY, Scope, Unenforced, budget, schema};
use crate::error::{Error, ErrorKind, Result};
use crate::format::Format;
use crate::schema::TABLES;
use crate::tool::Tool;
use serde_json::{Map, Value, json};

/// White space is fixed. If the model can choose it, weak models repeat line breaks, and no text is ever forced.
fn with_fixed_space(mut value: Value) -> Value {
    if let Value::Object(object) = &mut value {
        object.insert(
            "x-guidance".to_owned(),
            json!({"whitespace_flexible": false, "key_separator": ": ", "item_separator": ", "}),
        );
    }
    value
}

impl Builder<'_> {
    pub(super) fn json_arguments(&mut self, tool: &Tool) -> Result<String> {
        match self.schema(tool)? {
            Some(parameters) => self.json_value(&Value::Object(parameters), &tool.name, "$"),
            None => Ok(literal("{}")),
        }
    }

    /// A JSON value that fits a part of a tool's schema, at `path`.
    pub(super) fn json_value(&mut self, value: &Value, tool: &str, path: &str) -> Result<String> {
        let (mut prepared, mut unenforced) = schema::prepare(value);
        if self.check
            && let Err(complaint) = schema::compile(&prepared)
        {
            if schema::is_impossible(&complaint) {
                let (place, keyword) = schema::culprit(&prepared);
                return Err(impossible(Some(tool), &place.replacen('$', path, 1), keyword.as_deref(), &complaint));
            }
            schema::relax(&mut prepared, &mut unenforced);
        }
        self.unenforced.extend(
            unenforced.into_iter().map(|dropped| Unenforced { path: dropped.path.replacen('$', path, 1), ..dropped }),
        );
        // Rules written before the engine refused a part are discarded.
        let before = self.check.then(|| self.rules.clone());
        let whole = prepared.as_object().cloned().unwrap_or_default();
        let rules = std::mem::take(&mut self.rules);
        let mut values = Values { rules, check: self.check, whole, ruled: Vec::new() };
        let rule = values.value(&prepared);
        self.rules = match (&rule, before) {
            (None, Some(before)) => before,
            _ => values.rules,
        };
        Ok(rule.unwrap_or_else(|| self.rules.json(&with_fixed_space(prepared))))
    }
}

/// Writes a prepared schema as separate rules as far as it is simple, and leaves the rest to the grammar engine.
///
/// Most of what tools use (unbounded numbers, texts, lists of them) is then compiled once for all tools. The engine
/// alone compiles each number's range anew, which takes ten times as long.
struct Values {
    rules: Rules,
    /// Whether to compile the engine's parts first.
    check: bool,
    /// The schema whose definitions the parts may refer to.
    whole: Map<String, Value>,
    /// Definitions that have a rule.
    ruled: Vec<(String, String)>,
}

impl Values {
    /// The rule of a value. With `check`, `None` if the engine refuses a part by itself; it may accept it as a part of
    /// the whole, for example as an optional member that no value fits.
    fn value(&mut self, schema: &Value) -> Option<String> {
        let Value::Object(object) = schema else { return self.engine(schema) };
        let has_only = |keys: &[&str]| {
            object.keys().all(|key| keys.contains(&key.as_str()) || key == "$schema" || TABLES.contains(&key.as_str()))
        };
        if let Some(terminal) = plain_number(object).filter(|_| has_only(&["type", "minimum", "maximum"])) {
            return Some(self.rules.terminal(terminal));
        }
        match object.get("type").and_then(Value::as_str) {
            Some("object") if has_only(&["type", "properties", "required", "additionalProperties"]) => {
                self.object(schema, object)
            }
            Some("array") if has_only(&["type", "items", "minItems", "maxItems"]) => self.array(schema, object),
            Some(_) => self.engine(schema),
            None => match (object.get("type"), object.get("anyOf"), object.get("$ref")) {
                (None, Some(Value::Array(options)), None) if has_only(&["anyOf"]) && !options.is_empty() => {
                    let possible = options.iter().filter(|option| **option != false);
                    let options = possible.map(|option| self.value(option)).collect::<Option<Vec<_>>>()?;
                    if options.is_empty() { self.engine(schema) } else { Some(self.rules.alternatives(&options)) }
                }
                (None, None, Some(Value::String(reference))) if has_only(&["$ref"]) => {
                    self.definition(schema, reference)
                }
                // Bounds do not apply to other types.
                (Some(Value::Array(kinds)), None, None) if has_only(&["type", "minimum", "maximum"]) => {
                    let options = kinds.iter().map(|kind| {
                        let mut one = object.clone();
                        if kind != "integer" && kind != "number" {
                            one.retain(|key, _| key == "type");
                        }
                        one.insert("type".to_owned(), kind.clone());
                        self.value(&Value::Object(one))
                    });
                    let options = options.collect::<Option<Vec<_>>>()?;
                    Some(self.rules.alternatives(&options))
                }
                _ => self.engine(schema),
            },
        }
    }

    fn object(&mut self, schema: &Value, object: &Map<String, Value>) -> Option<String> {
        let closed = object.get("additionalProperties") == Some(&Value::Bool(false));
        let declared = object.get("properties").and_then(Value::as_object);
        let members = properties(object);
        if !closed || members.len() != declared.map_or(0, Map::len) {
            return self.engine(schema);
        }
        let mut items = Vec::new();
        for (name, value, required) in members {
            let value = self.value(value)?;
            let key = literal(&format!("{}: ", Value::from(name)));
            items.push((self.rules.sequence(&[key, value]), required));
        }
        let listed = self.rules.ordered(&items, ", ");
        Some(self.rules.sequence(&[literal("{"), listed, literal("}")]))
    }

    fn array(&mut self, schema: &Value, object: &Map<String, Value>) -> Option<String> {
        let count = |key: &str| match object.get(key) {
            None => Some(None),
            Some(count) => count.as_u64().filter(|count| *count <= MANY as u64).map(Some),
        };
        let (Some(items), Some(least), Some(most)) = (object.get("items"), count("minItems"), count("maxItems")) else {
            return self.engine(schema);
        };
        let least = least.unwrap_or(0);
        if most.is_some_and(|most| most < least.max(1)) {
            return self.engine(schema);
        }
        let item = self.value(items)?;
        let next = self.rules.sequence(&[literal(", "), item.clone()]);
        let more = match most {
            Some(1) => String::new(),
            Some(most) => format!("{next}{{{},{}}}", least.saturating_sub(1), most - 1),
            None if least > 1 => format!("{next}{{{},}}", least - 1),
            None => format!("{next}*"),
        };
        let list = self.rules.sequence(&[item, more]);
        let list = if least == 0 { format!("{list}?") } else { list };
        Some(self.rules.sequence(&[literal("["), list, literal("]")]))
    }

    fn definition(&mut self, schema: &Value, reference: &str) -> Option<String> {
        if let Some((_, rule)) = self.ruled.iter().find(|(known, _)| known == reference) {
            return Some(rule.clone());
        }
        let Some(defined) = definition(&self.whole, reference).cloned() else { return self.engine(schema) };
        let rule = self.rules.reserve();
        self.ruled.push((reference.to_owned(), rule.clone()));
        let body = self.value(&defined)?;
        self.rules.complete(&rule, &body);
        Some(rule)
    }

    /// The rule of a part that the engine compiles.
    fn engine(&mut self, schema: &Value) -> Option<String> {
        let schema = match schema::mentions(schema, "$ref") {
            true => with_definitions(schema, &self.whole),
            false => schema.clone(),
        };
        let scalar = ["string", "boolean", "null", "integer", "number"]
            .iter()
            .any(|kind| schema.get("type").is_some_and(|one| one == kind));
        let schema = if scalar { schema } else { with_fixed_space(schema) };
        // What has a rule was compiled for it: a thousand members may all be texts.
        if self.check && !self.rules.has_json(&schema) && schema::compile(&schema).is_err() {
            return None;
        }
        Some(self.rules.json(&schema))
    }
}

/// The terminal of a number that has only the bounds from [`schema::prepare`], or is not negative.
fn plain_number(object: &Map<String, Value>) -> Option<&'static str> {
    let bound = |key: &str| object.get(key).and_then(Value::as_f64);
    if bound("maximum")? != schema::LARGEST {
        return None;
    }
    let lowest = bound("minimum")?;
    match object.get("type")?.as_str()? {
        "integer" if lowest == -schema::LARGEST => Some("/-?(0|[1-9][0-9]{0,17})/"),
        "integer" if lowest == 0.0 => Some("/0|[1-9][0-9]{0,17}/"),
        "integer" if lowest == 1.0 => Some("/[1-9][0-9]{0,17}/"),
        "number" if lowest == -schema::LARGEST => Some(r"/-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,40})?/"),
        "number" if lowest == 0.0 => Some(r"/(0|[1-9][0-9]{0,17})(\.[0-9]{1,40})?/"),
        _ => None,
    }
}

/// The terminal of a number that a schema allows, and the bounds that it enforces.
pub(super) fn number(kind: &str, schema: &Map<String, Value>) -> (&'static str, &'static [&'static str]) {
    const BOUNDS: [&str; 2] = ["minimum", "maximum"];
    let with = |bounds: &[&str]| {
        let bounds = bounds.iter().filter_map(|key| Some(((*key).to_owned(), schema.get(*key)?.clone())));
        let mut object: Map<String, Value> = bounds.collect();
        object.insert("type".to_owned(), kind.into());
        schema::bound_numbers(&mut object);
        plain_number(&object)
    };
    match with(&BOUNDS) {
        Some(terminal) => (terminal, &BOUNDS),
        None => (with(&[]).unwrap_or_default(), &[]),
    }
}

/// `None` for an optional member that no value fits.
pub(super) fn unless_impossible(required: bool, made: Result<String>) -> Result<Option<String>> {
    match made {
        Err(error) if !required && error.kind() == ErrorKind::Tools => Ok(None),
        made => made.map(Some),
    }
}

/// The alternatives that some value fits.
///
/// # Errors
/// The first error, if no value fits any alternative.
pub(super) fn possible(made: impl Iterator<Item = Result<String>>) -> Result<Vec<String>> {
    let (mut fitting, mut refused) = (Vec::new(), None);
    for one in made {
        match one {
            Ok(rule) => fitting.push(rule),
            Err(error) if error.kind() == ErrorKind::Tools => refused = refused.or(Some(error)),
            Err(error) => return Err(error),
        }
    }
    match refused {
        Some(error) if fitting.is_empty() => Err(error),
        _ => Ok(fitting),
    }
}

/// The schema of an arguments object; it may omit `type`.
pub(super) fn as_object(mut parameters: Value) -> Value {
    if let Value::Object(object) = &mut parameters
        && !object.contains_key("type")
    {
        object.insert("type".to_owned(), "object".into());
    }
    parameters
}

/// The error that no value fits the schema at `path`, because of `keyword` if one is at fault.
pub(super) fn impossible(tool: Option<&str>, path: &str, keyword: Option<&str>, complaint: &str) -> Error {
    let reason = complaint.rsplit("Unsatisfiable schema: ").next().unwrap_or(complaint);
    let reason = reason.lines().next().unwrap_or(reason);
    let whose = tool.map_or(String::new(), |tool| format!("tool {tool:?}: "));
    let keyword = keyword.map_or(String::new(), |keyword| format!("{keyword:?} "));
    Error::new(ErrorKind::Tools, format!("{whose}no value fits the schema: {reason}, {keyword}at {path}"))
}

/// The error that a format cannot write the name of a property.
pub(super) fn unwritable(tool: &str, name: &str, path: &str, format: &str) -> Error {
    let message =
        format!("tool {tool:?}: the format {format} cannot write the name {name:?} of the property at {path}");
    Error::new(ErrorKind::Tools, message).hint("rename it, or use a format that writes arguments as JSON: delimited")
}

/// The error that a schema refers to itself without end.
pub(super) fn endless(place: &str, path: &str) -> Error {
    let message = format!("{place}no value fits the schema: what {path} refers to requires itself, without end");
    Error::new(ErrorKind::Tools, message).hint("make it optional somewhere, or let it be null or an empty array")
}

/// The grammar of a JSON value that fits `schema`.
///
/// With `flexible`, white space is free as in JSON, and nothing is narrowed: this is for checking texts. Without it,
/// this is what a model is constrained to: one form of white space, numbers of a size that programs can read, and only
/// keys that the schema mentions.
///
/// # Errors
/// [`ErrorKind::Tools`] if no value fits the schema, or if it is not a schema.
pub fn json_grammar(value: &Value, flexible: bool) -> Result<Grammar> {
    let (prepared, unenforced) = prepared(value, flexible)?;
    let mut rules = Rules::default();
    let start = rules.json(&prepared);
    Ok(Grammar { lark: rules.finish(&start), unenforced, schema: Some(value.clone()) })
}

/// The schema prepared for the grammar engine, and the parts that are not enforced.
///
/// # Errors
/// Also [`ErrorKind::Constraint`] if the schema is beyond the limits: it is all that there is to enforce.
fn prepared(value: &Value, flexible: bool) -> Result<(Value, Vec<Unenforced>)> {
    let Fitted { schema, unenforced, large } = fit::fitted(value.clone());
    beyond(&unenforced)?;
    budget::within(large, move || prepared_within(schema, flexible)).unwrap_or_else(|why| Err(ended(why)))
}

fn prepared_within(mut schema: Value, flexible: bool) -> Result<(Value, Vec<Unenforced>)> {
    crate::tool::misfits(&schema, &Value::Null)?;
    schema::plain_never(&mut schema);
    schema::whole_counts(&mut schema);
    let (resolved, dropped) = references::resolved(schema).map_err(|place| endless("", &place))?;
    let prepare = if flexible { schema::without_unknown } else { schema::prepare };
    let (mut prepared, mut unenforced) = prepare(&resolved);
    unenforced.extend(dropped);
    if let Err(complaint) = schema::compile(&prepared) {
        if schema::is_impossible(&complaint) {
            let (place, keyword) = schema::culprit(&prepared);
            return Err(impossible(None, &place, keyword.as_deref(), &complaint));
        }
        schema::relax(&mut prepared, &mut unenforced);
        let relaxed = schema::compile(&prepared);
        budget::check().map_err(ended)?;
        if let Err(complaint) = relaxed {
            let first = complaint.lines().next().unwrap_or_default();
            return Err(Error::new(ErrorKind::Tools, format!("the schema is not one that can be enforced: {first}")));
        }
    }
    Ok((if flexible { prepared } else { with_fixed_space(prepared) }, unenforced))
}

impl Format {
    /// The grammar of a whole answer that is either calls of `tools` or JSON that fits `schema`.
    ///
    /// # Errors
    /// Those of [`Format::grammar`] and [`json_grammar`].
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn calls_or_json(&self, tools: &[&Tool], max_calls: Option<usize>, schema: &Value) -> Result<Grammar> {
        let (json, unenforced) = prepared(schema, false)?;
        let scope = Scope { begins: Begins::Answer, max_calls, only_calls: true };
        let (grammar, mut all) = self.within_limits(tools, &Effort::Checked, move |builder, tools| {
            let calls = builder.calls(tools)?;
            let calls = builder.answer(&calls, scope)?;
            let json = builder.rules.json(&json);
            let start = builder.rules.alternatives(&[calls, json]);
            Ok(Grammar { lark: std::mem::take(&mut builder.rules).finish(&start), ..Grammar::default() })
        })?;
        all.extend(unenforced);
        Ok(Grammar { unenforced: all, schema: Some(schema.clone()), ..grammar })
    }
}
