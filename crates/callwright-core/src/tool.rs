//! Tools: what the model may call, and whether a call's arguments fit.
//!
//! A tools file is JSON in any of the shapes that are around (OpenAI's, Anthropic's, Gemini's, bare functions, what an
//! MCP server answers), or TOML, whose tools may also say how they are run. Everything that would only show in the middle
//! of a conversation is found when the file is read. A fault is relaxed at the narrowest place, or its tool is left out;
//! [`Tools::notices`] has each change, and [`Tools::strict`] refuses them.
//!
//! ```
//! use callwright_core::tool::Tools;
//!
//! let tools = Tools::from_json(r#"[{"name": "add", "parameters": {"type": "object",
//!     "properties": {"a": {"type": "integer"}}, "required": ["a"]}}]"#, "tools.json")?;
//! let arguments = serde_json::from_str(r#"{"a": "one"}"#).unwrap();
//! assert_eq!(tools.problems("add", &arguments), [r#""a" is "one"; expected an integer"#]);
//! # Ok::<(), callwright_core::Error>(())
//! ```

pub(crate) mod dialect;
mod keywords;
mod name;
mod notice;
mod pattern;
mod problem;
mod read;
mod references;
mod relax;
mod shape;
mod types;

pub use notice::{Change, Notice};

use crate::error::{Error, ErrorKind, Result, nearest};
use notice::Notices;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

/// How a tool is run: only TOML files say it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Exec {
    /// Program and arguments; no shell is involved.
    pub command: Vec<String>,
    /// Seconds it may take.
    pub timeout_s: Option<f64>,
    /// Bytes of output that are kept.
    pub max_output_bytes: Option<usize>,
    /// Environment variables: with a value, or passed on from this process's own environment.
    pub env: Vec<(String, Option<String>)>,
    /// Where it runs.
    pub cwd: Option<PathBuf>,
    /// Whether a person is asked first.
    pub confirm: bool,
    /// What it prints.
    pub output: Output,
}

impl Exec {
    /// How long it may take, where it says so.
    pub fn timeout(&self) -> Option<Duration> {
        // Some 30 years are as good as for ever, and can be reckoned with.
        self.timeout_s.and_then(|seconds| Duration::try_from_secs_f64(seconds.min(1e9)).ok())
    }
}

/// What a tool prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Output {
    /// Any text.
    #[default]
    Text,
    /// JSON; anything else is a failure of the tool.
    Json,
}

/// One tool: a function with a JSON Schema for its parameters.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tool {
    /// The name the model calls it by.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// JSON Schema of the arguments object; `None` for a tool without parameters.
    pub parameters: Option<Map<String, Value>>,
    /// How it is run, where its file says so.
    pub exec: Option<Exec>,
    /// The name that the model knows it by, where it cannot write the tool's own.
    pub alias: Option<String>,
}

impl Tool {
    /// A tool; `parameters` is the JSON Schema of its arguments.
    pub fn new(
        name: impl Into<String>,
        description: impl Into<String>,
        parameters: Option<Map<String, Value>>,
    ) -> Tool {
        Tool { name: name.into(), description: description.into(), parameters, exec: None, alias: None }
    }

    /// The name in prompts and in what the model writes.
    pub fn called(&self) -> &str {
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

    /// The schema of the arguments as JSON Schema, whatever dialect its author wrote.
    pub fn schema(&self) -> Option<Value> {
        let mut schema = Value::Object(self.parameters.clone()?);
        dialect::standard(&mut schema);
        Some(schema)
    }

    /// The compiled schema; `Err` says which part of it cannot be.
    fn compile(&self, in_file: &str) -> Result<Option<jsonschema::Validator>> {
        let Some(schema) = self.schema() else { return Ok(None) };
        jsonschema::validator_for(&schema).map(Some).map_err(|error| {
            let message = format!("{in_file}tool {:?}: {}", self.name, problem::schema_sentence(&error, "parameters"));
            Error::new(ErrorKind::Tools, message)
        })
    }
}

/// A set of tools with distinct names.
///
/// Order is kept: it is the order in which the model reads them.
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
    // Compiled when the tool is added, which takes some 35 µs: an invalid schema must not come to light in a call.
    checker: Option<problem::Checker>,
}

impl Tools {
    /// A set made in code; fails where a name is empty or there twice, or a schema is not one.
    pub fn new(tools: impl IntoIterator<Item = Tool>) -> Result<Tools> {
        let mut set = Tools::default();
        for tool in tools {
            set.push(tool)?;
        }
        Ok(set)
    }

    /// Adds a tool at the end; the same checks as [`Tools::new`].
    pub fn push(&mut self, tool: Tool) -> Result<()> {
        self.insert(tool, "")
    }

    /// `place` says where in a file the tool stands.
    fn insert(&mut self, tool: Tool, place: &str) -> Result<()> {
        let place = if place.is_empty() { String::new() } else { format!("{place}: ") };
        if tool.called().is_empty() || tool.called().chars().any(char::is_whitespace) {
            let message = format!("{place}the tool's name is {:?}; expected a word without spaces", tool.name);
            return Err(Error::new(ErrorKind::Tools, message));
        }
        if self.by_name.contains_key(&tool.name) {
            return Err(Error::new(ErrorKind::Tools, format!("{place}there are two tools named {:?}", tool.name)));
        }
        if let Some(schema) = tool.schema() {
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
        let validator = tool.compile(&place)?;
        let checker = validator.zip(tool.schema()).map(|(validator, schema)| problem::Checker::new(validator, &schema));
        self.enter(Entry { tool, checker });
        Ok(())
    }

    fn enter(&mut self, entry: Entry) {
        self.by_name.insert(entry.tool.name.clone(), self.tools.len());
        if let Some(alias) = &entry.tool.alias {
            self.by_alias.insert(alias.clone(), self.tools.len());
        }
        self.tools.push(entry);
    }

    /// What was changed while the tools were read, each change once; empty for tools made in code.
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }

    /// The notices, which are then reported: a session will not report them again.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// The tools, where nothing was changed while they were read.
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

    /// Adds the tools of another set at the end; a name that is in both is an error.
    pub fn merge(&mut self, other: Tools) -> Result<()> {
        if let Some(entry) = other.tools.iter().find(|entry| self.by_name.contains_key(&entry.tool.name)) {
            let message = format!("there are two tools named {:?}", entry.tool.name);
            return Err(Error::new(ErrorKind::Tools, message).hint("a tool of that name is in an earlier --tools file"));
        }
        self.append(other);
        Ok(())
    }

    /// Adds the tools of another set at the end; one whose name is taken is left out, with a notice.
    pub fn append(&mut self, other: Tools) {
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
            // An alias gives way to the name of another tool.
            if self.is_taken(entry.tool.called()) {
                entry.tool.alias = name::free(entry.tool.called(), |name| self.is_taken(name));
            }
            self.enter(entry);
        }
    }

    /// Those of the tools that have one of these names.
    #[must_use]
    pub fn only(self, names: &[String]) -> Tools {
        let mut kept = Tools { notices: self.notices, ..Tools::default() };
        let named = |entry: &Entry| names.iter().any(|name| *name == entry.tool.name || name == entry.tool.called());
        self.tools.into_iter().filter(named).for_each(|entry| kept.enter(entry));
        kept
    }

    /// Whether a tool is called so.
    fn is_taken(&self, name: &str) -> bool {
        self.by_name.contains_key(name) || self.by_alias.contains_key(name)
    }

    /// The tool of that name, its own or the one that the model knows it by.
    pub fn get(&self, name: &str) -> Option<&Tool> {
        self.index(name).map(|index| &self.tools[index].tool)
    }

    fn index(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).or_else(|| self.by_alias.get(name)).copied()
    }

    /// Whether the model knows a tool by another name than its own.
    pub(crate) fn has_aliases(&self) -> bool {
        !self.by_alias.is_empty()
    }

    /// The name that the model knows a tool by; the same where no tool has it.
    pub(crate) fn called<'n>(&'n self, name: &'n str) -> &'n str {
        self.by_name.get(name).map_or(name, |&index| self.tools[index].tool.called())
    }

    /// The tool's own name, where `name` is the one that the model knows it by.
    pub(crate) fn own_name(&self, name: &str) -> Option<&str> {
        let index = self.by_alias.get(name).filter(|_| !self.by_name.contains_key(name))?;
        Some(&self.tools[*index].tool.name)
    }

    /// OpenAI's form for a prompt: with the names that the model knows the tools by.
    pub(crate) fn for_model(&self) -> Value {
        let with_alias = |tool: &Tool| {
            let mut value = tool.to_json();
            value["function"]["name"] = tool.called().into();
            value
        };
        self.iter().map(with_alias).collect()
    }

    /// The one tool that `name` is but for case and separators, if `name` itself is none.
    pub(crate) fn resembling(&self, name: &str) -> Option<&str> {
        if self.is_taken(name) {
            return None;
        }
        let mut fitting = self.iter().map(|tool| tool.name.as_str()).filter(|tool| plain(tool).eq(plain(name)));
        fitting.next().filter(|_| plain(name).next().is_some() && fitting.next().is_none())
    }

    /// Whether a tool's name begins like this, but for case and separators.
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

    /// How many there are.
    pub fn len(&self) -> usize {
        self.tools.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// OpenAI's form: a JSON array.
    pub fn to_json(&self) -> Value {
        self.iter().map(Tool::to_json).collect()
    }

    /// What is wrong with calling `name` with `arguments`; empty when nothing is.
    ///
    /// Each problem is a sentence that names the place in the arguments and says what was expected, fit to be told
    /// to the model.
    pub fn problems(&self, name: &str, arguments: &Map<String, Value>) -> Vec<String> {
        let Some(index) = self.index(name) else { return vec![self.unknown(name)] };
        let Some(checker) = &self.tools[index].checker else { return Vec::new() };
        checker.sentences(&Value::Object(arguments.clone()))
    }

    fn unknown(&self, name: &str) -> String {
        let mut names: Vec<&str> = self.iter().take(10).map(|tool| tool.name.as_str()).collect();
        if self.len() > names.len() {
            names.push("…");
        }
        match nearest(name, self.iter().map(|tool| tool.name.as_str())) {
            _ if names.is_empty() => format!("there is no tool named {name:?}; there are no tools"),
            Some(near) => format!("there is no tool named {name:?}; did you mean {near:?}?"),
            None => format!("there is no tool named {name:?}; the tools are: {}", names.join(", ")),
        }
    }
}

/// What is wrong with a value that is to fit a schema; empty when nothing is.
///
/// # Errors
/// [`ErrorKind::Tools`] when the schema is none.
pub fn misfits(schema: &Value, value: &Value) -> Result<Vec<String>> {
    // What the newest draft does not know (a list of `items`) may be an older one's.
    let validator =
        jsonschema::validator_for(schema).or_else(|error| jsonschema::draft7::new(schema).map_err(|_| error));
    let validator = validator.map_err(|error| {
        let message = format!("the schema is not one: {}", problem::schema_sentence(&error, "$"));
        Error::new(ErrorKind::Tools, message)
    })?;
    // At the top it speaks of what a tool is called with.
    let of_value = |sentence: String| match sentence.strip_prefix("the arguments") {
        Some(rest) => format!("the value{rest}"),
        None => sentence,
    };
    Ok(problem::Checker::new(validator, schema).sentences(value).into_iter().map(of_value).collect())
}

/// The letters and digits of a name, all in lower case.
fn plain(name: &str) -> impl Iterator<Item = char> + '_ {
    name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase)
}
