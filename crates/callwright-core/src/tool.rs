//! Tools: what the model may call, and whether a call's arguments fit.
//!
//! A tools file is JSON in one of the common shapes (OpenAI's, Anthropic's, Gemini's, bare functions, the answer of an
//! MCP server), or TOML, which may also say how to run the tools. Problems are found when the file is read, not during
//! a conversation. A fault is relaxed at the narrowest place, or its tool is left out; [`Tools::notices`] lists each
//! change, and [`Tools::strict`] refuses them.
//!
//! ```
//! use callwright_core::tool::Tools;
//!
//! let tools = Tools::from_json(r#"[{"name": "add", "parameters": {"type": "object",
//!     "properties": {"a": {"type": "integer"}}, "required": ["a"]}}]"#, "tools.json")?;
//! let arguments = serde_json::from_str(r#"{"a": "one"}"#).unwrap();
//! let problems = tools.problems("add", &arguments);
//! assert_eq!(problems[0].to_string(), r#""a" is "one"; expected an integer"#);
//! assert_eq!(problems[0].kind(), "wrong_value");
//! # Ok::<(), callwright_core::Error>(())
//! ```

#[cfg(feature = "validate")]
mod checker;
#[cfg(not(feature = "validate"))]
#[path = "tool/unchecked.rs"]
mod checker;
mod effect;
mod name;
mod notice;
mod pattern;
mod problem;
mod read;
mod references;
mod relax;
mod shape;
mod types;

#[cfg_attr(feature = "unstable", visibility::make(pub))]
pub(crate) use self::{
    effect::{EffectSource, Policy},
    notice::{Change, Notice},
    read::{Exec, Output},
};
#[cfg(feature = "validate")]
#[cfg_attr(feature = "unstable", visibility::make(pub))]
pub(crate) use checker::misfits;
pub use effect::Effect;
pub use problem::CallProblem;

use crate::error::{Error, ErrorKind, Result, nearest};
use crate::schema::Schema;
use notice::Notices;
use serde_json::{Map, Value, json};
use std::collections::HashMap;

/// One tool: a function with a JSON Schema for its parameters.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tool {
    /// The tool's name.
    pub name: String,
    /// Its description, for the model.
    pub description: String,
    /// JSON Schema of the arguments object; `None` for a tool without parameters.
    pub parameters: Option<Map<String, Value>>,
    /// How to run it, if its file says so.
    pub exec: Option<Exec>,
    /// The name for the model, if the model cannot write the tool's own.
    pub alias: Option<String>,
    /// What a run may do with it.
    pub policy: Policy,
}

impl Tool {
    /// A tool; `parameters` is the JSON Schema of its arguments.
    pub fn new(
        name: impl Into<String>,
        description: impl Into<String>,
        parameters: Option<Map<String, Value>>,
    ) -> Tool {
        Tool { name: name.into(), description: description.into(), parameters, ..Tool::default() }
    }

    /// Returns the tool with this effect.
    ///
    /// ```
    /// use callwright_core::tool::{Effect, Tool};
    /// let tool = Tool::new("delete_file", "Deletes a file", None).effect(Effect::Destructive);
    /// assert_eq!(tool.policy.effect, Effect::Destructive);
    /// ```
    #[must_use]
    pub fn effect(mut self, effect: Effect) -> Tool {
        self.policy = Policy { repeat: self.policy.repeat, max_calls: self.policy.max_calls, ..Policy::new(effect) };
        self
    }

    /// The name in prompts and in what the model writes.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn called(&self) -> &str {
        self.alias.as_deref().unwrap_or(&self.name)
    }

    /// OpenAI's form. A tool without parameters gets the schema of an empty object, which chat templates rely on.
    pub fn to_json(&self) -> Value {
        let parameters = match &self.parameters {
            Some(schema) => Value::Object(schema.clone()),
            None => json!({"type": "object", "properties": {}}),
        };
        json!({
            "type": "function",
            "function": {"name": self.name, "description": self.description, "parameters": parameters},
        })
    }

    /// The schema of the arguments, translated to JSON Schema.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn schema(&self) -> Option<Value> {
        let mut schema = Value::Object(self.parameters.clone()?);
        crate::schema::dialect::standard(&mut schema);
        Some(schema)
    }

    /// Reads and compiles the schema, whose standard form is given; the error says which part of it is invalid.
    fn compile(&self, standard: &Value, in_file: &str) -> Result<(Schema, checker::Checker)> {
        let schema = Schema::read(&Value::Object(self.parameters.clone().unwrap_or_default()));
        if let Some(why) = schema.multiplies() {
            return Err(Error::new(ErrorKind::Tools, format!("{in_file}tool {:?}: parameters: {why}", self.name)));
        }
        let checker = checker::Checker::new(standard, schema.explained_levels()).map_err(|refusal| {
            let message = format!("{in_file}tool {:?}: {}", self.name, refusal.sentence("parameters"));
            refusal.error(message)
        })?;
        Ok((schema, checker))
    }
}

/// A set of tools with distinct names.
///
/// The model sees them in this order.
#[derive(Debug, Default)]
pub struct Tools {
    tools: Vec<Entry>,
    by_name: HashMap<String, usize>,
    by_alias: HashMap<String, usize>,
    notices: Vec<Notice>,
}

#[derive(Debug)]
struct Entry {
    tool: Tool,
    // Compiled when the tool is added, in about 35 µs, so that an invalid schema is not first found in a call.
    schema: Option<(Schema, checker::Checker)>,
}

impl Tools {
    /// A set made in code; fails on an empty or duplicate name or an invalid schema.
    pub fn new(tools: impl IntoIterator<Item = Tool>) -> Result<Tools> {
        let mut set = Tools::default();
        for tool in tools {
            set.push(tool)?;
        }
        Ok(set)
    }

    /// Appends a tool, with the same checks as [`Tools::new`].
    pub fn push(&mut self, tool: Tool) -> Result<()> {
        self.insert(tool, "")
    }

    /// `place` is the tool's place in a file.
    fn insert(&mut self, tool: Tool, place: &str) -> Result<()> {
        let place = if place.is_empty() { String::new() } else { format!("{place}: ") };
        if tool.called().is_empty() || tool.called().chars().any(char::is_whitespace) {
            let message = format!("{place}the tool's name is {:?}; expected a word without spaces", tool.name);
            return Err(Error::new(ErrorKind::Tools, message));
        }
        if self.by_name.contains_key(&tool.name) {
            return Err(Error::new(ErrorKind::Tools, format!("{place}there are two tools named {:?}", tool.name)));
        }
        let standard = tool.schema();
        if let Some(schema) = &standard {
            match schema.get("type") {
                None => {}
                Some(Value::String(kind)) if kind == "object" => {}
                Some(other) => {
                    let message =
                        format!("{place}tool {:?}: parameters.type is {other}; expected \"object\"", tool.name);
                    return Err(Error::new(ErrorKind::Tools, message)
                        .hint("arguments are an object with one property for each parameter"));
                }
            }
        }
        let schema = standard.map(|standard| tool.compile(&standard, &place)).transpose()?;
        self.enter(Entry { tool, schema });
        Ok(())
    }

    fn enter(&mut self, entry: Entry) {
        self.by_name.insert(entry.tool.name.clone(), self.tools.len());
        if let Some(alias) = &entry.tool.alias {
            self.by_alias.insert(alias.clone(), self.tools.len());
        }
        self.tools.push(entry);
    }

    /// The changes made while reading the tools, each once; empty for tools made in code.
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }

    /// Takes the notices, so that a session does not report them again.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// The tools, if nothing was changed while reading them.
    ///
    /// # Errors
    /// [`ErrorKind::Tools`] with each change.
    pub fn strict(self) -> Result<Tools> {
        match self.notices.as_slice() {
            [] => Ok(self),
            [one] => Err(Error::new(ErrorKind::Tools, one.to_string())),
            several => {
                let listed: Vec<String> = several.iter().map(|notice| format!("\n  {notice}")).collect();
                let message = format!("{} things are not as they should be:{}", several.len(), listed.concat());
                Err(Error::new(ErrorKind::Tools, message))
            }
        }
    }

    /// Appends the tools of another set; a duplicate name is an error.
    pub fn merge(&mut self, other: Tools) -> Result<()> {
        if let Some(entry) = other.tools.iter().find(|entry| self.by_name.contains_key(&entry.tool.name)) {
            let message = format!("there are two tools named {:?}", entry.tool.name);
            return Err(Error::new(ErrorKind::Tools, message).hint("a tool of that name is in an earlier file"));
        }
        self.append(other);
        Ok(())
    }

    /// Appends the tools of another set; one with a duplicate name is left out, with a notice.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn append(&mut self, other: Tools) {
        self.notices.extend(other.notices);
        for mut entry in other.tools {
            let own = entry.tool.name.clone();
            if self.by_name.contains_key(&own) {
                let mut notices = Notices::of(own);
                notices.left_out(
                    "name",
                    "a tool of that name is in an earlier file; this one is left out",
                    "rename one",
                );
                self.notices.extend(notices.list);
                continue;
            }
            // Another tool's name takes precedence over an alias.
            if self.is_taken(entry.tool.called()) {
                entry.tool.alias = name::free(entry.tool.called(), |name| self.is_taken(name));
            }
            self.enter(entry);
        }
    }

    /// The tools with one of these names.
    #[must_use]
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn only(self, names: &[String]) -> Tools {
        let mut kept = Tools { notices: self.notices, ..Tools::default() };
        let named = |entry: &Entry| names.iter().any(|name| *name == entry.tool.name || name == entry.tool.called());
        self.tools.into_iter().filter(named).for_each(|entry| kept.enter(entry));
        kept
    }

    /// Returns whether a tool has this name or alias.
    fn is_taken(&self, name: &str) -> bool {
        self.by_name.contains_key(name) || self.by_alias.contains_key(name)
    }

    /// The tool of that name or alias.
    pub fn get(&self, name: &str) -> Option<&Tool> {
        self.index(name).map(|index| &self.tools[index].tool)
    }

    /// The schema of the arguments of the tool of that name or alias, as it was read.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn schema(&self, name: &str) -> Option<&Schema> {
        self.tools[self.index(name)?].schema.as_ref().map(|(schema, _)| schema)
    }

    fn index(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).or_else(|| self.by_alias.get(name)).copied()
    }

    /// Returns whether a tool has an alias.
    pub(crate) fn has_aliases(&self) -> bool {
        !self.by_alias.is_empty()
    }

    /// The model's name for a tool; `name` itself if no tool has it.
    pub(crate) fn called<'n>(&'n self, name: &'n str) -> &'n str {
        self.by_name.get(name).map_or(name, |&index| self.tools[index].tool.called())
    }

    /// The tool's own name, if `name` is its alias.
    pub(crate) fn own_name(&self, name: &str) -> Option<&str> {
        let index = self.by_alias.get(name).filter(|_| !self.by_name.contains_key(name))?;
        Some(&self.tools[*index].tool.name)
    }

    /// OpenAI's form for a prompt, with aliases.
    pub(crate) fn for_model(&self) -> Value {
        let with_alias = |tool: &Tool| {
            let mut value = tool.to_json();
            value["function"]["name"] = tool.called().into();
            value
        };
        self.iter().map(with_alias).collect()
    }

    /// The only tool that equals `name` except for case and separators, if `name` itself is not a tool.
    pub(crate) fn resembling(&self, name: &str) -> Option<&str> {
        if self.is_taken(name) {
            return None;
        }
        let mut fitting = self.iter().map(|tool| tool.name.as_str()).filter(|tool| plain(tool).eq(plain(name)));
        fitting.next().filter(|_| plain(name).next().is_some() && fitting.next().is_none())
    }

    /// Returns whether a tool's name begins like this, ignoring case and separators.
    pub(crate) fn may_begin(&self, begun: &str) -> bool {
        self.iter().any(|tool| {
            let mut name = plain(&tool.name);
            plain(begun).all(|c| name.next() == Some(c))
        })
    }

    /// The tools in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Tool> + Clone {
        self.tools.iter().map(|entry| &entry.tool)
    }

    /// The number of tools.
    pub fn len(&self) -> usize {
        self.tools.len()
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// OpenAI's form: a JSON array.
    pub fn to_json(&self) -> Value {
        self.iter().map(Tool::to_json).collect()
    }

    /// Returns the same with each tool's policy, as [`Tools::from_value`] reads it: `x-effect`, `x-repeat`, `x-max-calls`.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn to_json_with_policies(&self) -> Value {
        let with_policy = |tool: &Tool| {
            let mut json = tool.to_json();
            if let Some(object) = json.as_object_mut() {
                tool.policy.write_into(object);
            }
            json
        };
        self.iter().map(with_policy).collect()
    }

    /// The problems of a call of `name` with `arguments`; empty if it is valid.
    ///
    /// A problem's `Display` is a sentence for the model that names the place in the arguments and what was expected.
    /// Without the feature `validate`, arguments are not compared with the schema; only an unknown tool is a problem.
    pub fn problems(&self, name: &str, arguments: &Map<String, Value>) -> Vec<CallProblem> {
        let Some(index) = self.index(name) else { return vec![self.unknown(name)] };
        let Some((_, checker)) = &self.tools[index].schema else { return Vec::new() };
        checker.problems(&Value::Object(arguments.clone()))
    }

    fn unknown(&self, name: &str) -> CallProblem {
        const LISTED: usize = 10;
        CallProblem::UnknownTool {
            name: name.to_owned(),
            nearest: nearest(name, self.iter().map(|tool| tool.name.as_str())).map(str::to_owned),
            tools: self.iter().take(LISTED).map(|tool| tool.name.clone()).collect(),
            more: self.len().saturating_sub(LISTED),
        }
    }
}

/// The letters and digits of a name, in lower case.
fn plain(name: &str) -> impl Iterator<Item = char> + '_ {
    name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase)
}
