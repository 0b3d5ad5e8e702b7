//! Tools files: JSON in the common shapes, and TOML.

use super::notice::Notices;
use super::{Change, Effect, Policy, Tool, Tools, relax, shape};
use crate::error::{Error, ErrorKind, Location, Result};
use crate::{json, text_file};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

const TOOL_KEYS: [&str; 13] = [
    "name",
    "description",
    "parameters",
    "effect",
    "repeat",
    "max_calls",
    "command",
    "timeout_s",
    "max_output_bytes",
    "env",
    "cwd",
    "confirm",
    "output",
];

/// The place of "command": the keys after it are for a tool that has one.
const COMMAND: usize = 6;

/// How to run a tool; only in TOML files.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Exec {
    /// Program and arguments; no shell is involved.
    pub command: Vec<String>,
    /// Timeout in seconds.
    pub timeout_s: Option<f64>,
    /// Bytes of output to keep.
    pub max_output_bytes: Option<usize>,
    /// Environment variables: with a value, or inherited from this process.
    pub env: Vec<(String, Option<String>)>,
    /// The working directory.
    pub cwd: Option<PathBuf>,
    /// Whether to ask a person first.
    pub confirm: bool,
    /// The kind of its output.
    pub output: Output,
}

impl Exec {
    /// The timeout, if there is one.
    pub fn timeout(&self) -> Option<Duration> {
        // Clamped to about 30 years, so that `Instant + timeout` cannot overflow.
        self.timeout_s.and_then(|seconds| Duration::try_from_secs_f64(seconds.min(1e9)).ok())
    }
}

/// The kind of a tool's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Output {
    /// Any text.
    #[default]
    Text,
    /// JSON; anything else is an error of the tool.
    Json,
}

impl Tools {
    /// Reads a tools file: `.json` or `.toml`, else by content.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Tools> {
        let path = path.as_ref();
        let text = text_file::read(path)?;
        let extension = path.extension().and_then(|extension| extension.to_str()).map(str::to_ascii_lowercase);
        match extension.as_deref() {
            Some("toml") => Tools::from_toml(&text, path),
            Some("json") => Tools::from_json(&text, path),
            _ if looks_like_json(&text) => Tools::from_json(&text, path),
            _ => Tools::from_toml(&text, path),
        }
    }

    /// Reads JSON; `name` is the file's name in errors.
    pub fn from_json(text: &str, name: impl AsRef<Path>) -> Result<Tools> {
        json::parse(text).and_then(|value| Tools::from_value(&value)).map_err(|error| error.in_file(name))
    }

    /// Reads tools in any common shape: a list, one tool, or an object with either, such as an MCP server's answer to
    /// `tools/list`.
    ///
    /// An unusable tool is left out, and faults of a schema are relaxed in place: [`Tools::notices`] lists both.
    ///
    /// # Errors
    /// [`ErrorKind::Tools`] if there is no list, or none of its tools is usable.
    pub fn from_value(value: &Value) -> Result<Tools> {
        let list = match value {
            Value::Object(body) if body.get("tools").is_some_and(|list| !list.is_array() && !list.is_object()) => {
                return Err(wrong("tools", "a list of tools", &body["tools"]));
            }
            value => shape::tools(value).ok_or_else(|| wrong("the file", "a list of tools", value))?,
        };
        let mut tools = Tools::default();
        let mut first = None;
        for found in &list {
            let mut notices = Notices::of(found.path.clone());
            // A later tool's name takes precedence over an alias.
            let names =
                || list.iter().filter_map(|other| other.value.get("function").unwrap_or(other.value).get("name"));
            let is_taken = |name: &str| tools.is_taken(name) || names().any(|other| other == name);
            let read = shape::tool(found, &mut notices, &is_taken);
            let read = read.map_err(|fault| (fault.keyword, fault.message, fault.instead, None));
            let entered = read.and_then(|tool| {
                tools.insert(tool, &found.path).map_err(|error| {
                    let instead = error.hint_text().unwrap_or("write another name").to_owned();
                    ("name".to_owned(), error.message().to_owned(), instead, Some(error))
                })
            });
            if let Err((keyword, message, instead, error)) = entered {
                notices.list.retain(|notice| notice.change != Change::Renamed);
                notices.left_out(&keyword, message.clone(), instead);
                first.get_or_insert_with(|| error.unwrap_or_else(|| Error::new(ErrorKind::Tools, message)));
            }
            tools.notices.append(&mut notices.list);
        }
        match first {
            Some(error) if tools.is_empty() => Err(error),
            _ => Ok(tools),
        }
    }

    /// Reads TOML: a `[[tool]]` for each tool; `name` is the file's name in errors.
    ///
    /// A program with a slash in its name, and a working directory, are relative to the file's folder.
    pub fn from_toml(text: &str, name: impl AsRef<Path>) -> Result<Tools> {
        let folder = name.as_ref().parent().unwrap_or(Path::new(""));
        Toml { text, folder }.tools().map_err(|error| error.in_file(name))
    }
}

fn looks_like_json(text: &str) -> bool {
    let text = text.trim_start_matches('\u{feff}').trim_start();
    // TOML may also begin with a bracket, but then a table's name follows, and a quoted name is not a list of tools.
    text.starts_with('{')
        || text.strip_prefix('[').is_some_and(|rest| matches!(rest.trim_start().chars().next(), Some('{' | ']')))
}

fn wrong(path: &str, expected: &str, found: &Value) -> Error {
    Error::new(ErrorKind::Tools, format!("{path} is {}; expected {expected}", json::kind(found)))
}

/// A TOML text, with the conversion of its values to tools.
struct Toml<'a> {
    text: &'a str,
    folder: &'a Path,
}

type Table<'a> = DeTable<'a>;
type Item<'a> = Spanned<DeValue<'a>>;

impl Toml<'_> {
    fn tools(&self) -> Result<Tools> {
        let root = DeTable::parse(self.text).map_err(|error| {
            let offset = error.span().map_or(0, |span| span.start);
            let message = format!("not valid TOML: {}", error.message().replace('\n', "; "));
            self.error(offset, message, ErrorKind::Syntax).caused_by(error)
        })?;
        let root = root.get_ref();
        self.check_keys(root, &["tool"], "")?;
        let Some(list) = root.get("tool") else {
            return Err(Error::new(ErrorKind::Tools, "there is no [[tool]]"));
        };
        let DeValue::Array(list) = list.get_ref() else {
            return Err(self.wrong(list, "tool", "a list").hint("write [[tool]] above each tool"));
        };
        let mut tools = Tools::default();
        let mut first = None;
        for (index, item) in list.iter().enumerate() {
            let path = format!("tool[{index}]");
            let mut notices = Notices::of(path.clone());
            if let Err(error) = self.one(item, &path, &mut tools, &mut notices) {
                let line = Location::of_offset(self.text, item.span().start).line.unwrap_or(1);
                notices.list.retain(|notice| notice.change != Change::Renamed);
                let message = format!("line {line}: {}", error.message());
                notices.left_out("tool", message, error.hint_text().unwrap_or("correct this line"));
                first.get_or_insert(error);
            }
            tools.notices.append(&mut notices.list);
        }
        match first {
            Some(error) if tools.is_empty() => Err(error),
            _ => Ok(tools),
        }
    }

    /// Reads one tool and adds it.
    fn one(&self, item: &Item<'_>, path: &str, tools: &mut Tools, notices: &mut Notices) -> Result<()> {
        let DeValue::Table(table) = item.get_ref() else { return Err(self.wrong(item, path, "a table")) };
        let mut tool = self.tool(table, item, path)?;
        let here = |error: Error| error.at(Location::of_offset(self.text, item.span().start));
        notices.tool.clone_from(&tool.name);
        tool.alias = shape::alias(&tool.name, notices, &|name| tools.is_taken(name));
        if let Some(schema) = &mut tool.parameters {
            relax::parameters(schema, &[], notices)
                .map_err(|why| here(Error::new(ErrorKind::Tools, format!("{path}: tool {:?}: {why}", tool.name))))?;
        }
        tools.insert(tool, path).map_err(here)
    }

    fn tool(&self, table: &Table<'_>, item: &Item<'_>, path: &str) -> Result<Tool> {
        self.check_keys(table, &TOOL_KEYS, path)?;
        let Some(name) = self.string(table, "name", path)? else {
            return Err(self.error(item.span().start, format!("{path} has no \"name\""), ErrorKind::Tools));
        };
        let parameters = match table.get("parameters") {
            None => None,
            Some(schema) => match to_json(schema.get_ref()) {
                Value::Object(schema) => Some(schema).filter(|schema| !schema.is_empty()),
                _ => return Err(self.wrong(schema, &format!("{path}.parameters"), "a table with a JSON Schema")),
            },
        };
        Ok(Tool {
            name,
            description: self.string(table, "description", path)?.unwrap_or_default(),
            parameters,
            exec: self.exec(table, path)?,
            alias: None,
            policy: self.policy(table, path)?,
        })
    }

    fn policy(&self, table: &Table<'_>, path: &str) -> Result<Policy> {
        let mut policy = match table.get("effect") {
            None => Policy::default(),
            Some(item) => match item.get_ref().as_str().and_then(Effect::from_word) {
                Some(effect) => Policy::new(effect),
                None => {
                    let expected = "\"read\", \"write\" or \"destructive\"";
                    return Err(self.wrong(item, &format!("{path}.effect"), expected));
                }
            },
        };
        policy.repeat = self.boolean(table, "repeat", path)?;
        if let Some(item) = table.get("max_calls") {
            match to_json(item.get_ref()).as_u64().filter(|most| *most > 0) {
                Some(most) => policy.max_calls = Some(usize::try_from(most).unwrap_or(usize::MAX)),
                None => return Err(self.wrong(item, &format!("{path}.max_calls"), "a positive number of calls")),
            }
        }
        Ok(policy)
    }

    fn boolean(&self, table: &Table<'_>, key: &str, path: &str) -> Result<bool> {
        match table.get(key) {
            None => Ok(false),
            Some(item) => match item.get_ref() {
                DeValue::Boolean(value) => Ok(*value),
                _ => Err(self.wrong(item, &format!("{path}.{key}"), "true or false")),
            },
        }
    }

    fn exec(&self, table: &Table<'_>, path: &str) -> Result<Option<Exec>> {
        let Some(command) = table.get("command") else {
            return match TOOL_KEYS[COMMAND + 1..].iter().find_map(|key| table.get_key_value(*key)) {
                Some((key, _)) => {
                    let message = format!("{path}.{} is for a tool with a \"command\"", key.get_ref());
                    Err(self.error(key.span().start, message, ErrorKind::Tools))
                }
                None => Ok(None),
            };
        };
        let mut command = self.strings(command, &format!("{path}.command"))?;
        if command.first().is_none_or(|program| program.is_empty()) {
            let offset = table.get("command").map_or(0, |command| command.span().start);
            let message = format!("{path}.command is empty; expected a program and its arguments");
            return Err(self.error(offset, message, ErrorKind::Tools));
        }
        if let Some(program) = command.first_mut().filter(|program| program.contains('/')) {
            *program = self.folder.join(&*program).display().to_string();
        }
        let timeout_s = match table.get("timeout_s") {
            None => None,
            Some(item) => match to_json(item.get_ref()).as_f64().filter(|seconds| *seconds > 0.0) {
                Some(seconds) => Some(seconds),
                None => return Err(self.wrong(item, &format!("{path}.timeout_s"), "a positive number of seconds")),
            },
        };
        let max_output_bytes = match table.get("max_output_bytes") {
            None => None,
            Some(item) => match to_json(item.get_ref()).as_u64() {
                Some(bytes) => Some(bytes as usize),
                None => return Err(self.wrong(item, &format!("{path}.max_output_bytes"), "a number of bytes")),
            },
        };
        let confirm = self.boolean(table, "confirm", path)?;
        let env = match table.get("env") {
            None => Vec::new(),
            Some(item) => self.env(item, &format!("{path}.env"))?,
        };
        let cwd = self.string(table, "cwd", path)?.map(|cwd| self.folder.join(cwd));
        let output = match table.get("output").map(|item| (item, item.get_ref().as_str())) {
            None | Some((_, Some("text"))) => Output::Text,
            Some((_, Some("json"))) => Output::Json,
            Some((item, _)) => return Err(self.wrong(item, &format!("{path}.output"), "\"text\" or \"json\"")),
        };
        Ok(Some(Exec { command, timeout_s, max_output_bytes, env, cwd, confirm, output }))
    }

    fn env(&self, item: &Item<'_>, path: &str) -> Result<Vec<(String, Option<String>)>> {
        match item.get_ref() {
            DeValue::Array(_) => Ok(self.strings(item, path)?.into_iter().map(|name| (name, None)).collect()),
            DeValue::Table(table) => table
                .iter()
                .map(|(name, value)| match value.get_ref() {
                    DeValue::String(text) => Ok((name.get_ref().to_string(), Some(text.to_string()))),
                    _ => Err(self.wrong(value, &format!("{path}.{}", name.get_ref()), "a string")),
                })
                .collect(),
            _ => Err(self.wrong(item, path, "a table of variables, or a list of names to pass on")),
        }
    }

    fn string(&self, table: &Table<'_>, key: &str, path: &str) -> Result<Option<String>> {
        match table.get(key) {
            None => Ok(None),
            Some(item) => match item.get_ref() {
                DeValue::String(text) => Ok(Some(text.to_string())),
                _ => Err(self.wrong(item, &format!("{path}.{key}"), "a string")),
            },
        }
    }

    fn strings(&self, item: &Item<'_>, path: &str) -> Result<Vec<String>> {
        let DeValue::Array(list) = item.get_ref() else { return Err(self.wrong(item, path, "a list of strings")) };
        list.iter()
            .enumerate()
            .map(|(index, item)| match item.get_ref() {
                DeValue::String(text) => Ok(text.to_string()),
                _ => Err(self.wrong(item, &format!("{path}[{index}]"), "a string")),
            })
            .collect()
    }

    fn check_keys(&self, table: &Table<'_>, known: &[&str], path: &str) -> Result<()> {
        for key in table.keys() {
            let name: &str = key.get_ref();
            if !known.contains(&name) {
                let place = if path.is_empty() { String::new() } else { format!("{path}: ") };
                let error = self.error(key.span().start, format!("{place}unknown key {name:?}"), ErrorKind::Tools);
                return Err(error.suggest(name, known.iter().copied(), &format!("known keys: {}", known.join(", "))));
            }
        }
        Ok(())
    }

    fn wrong(&self, item: &Item<'_>, path: &str, expected: &str) -> Error {
        let found = json::shown(&to_json(item.get_ref()));
        self.error(item.span().start, format!("{path} is {found}; expected {expected}"), ErrorKind::Tools)
    }

    fn error(&self, offset: usize, message: String, kind: ErrorKind) -> Error {
        Error::new(kind, message).marked(self.text, offset..offset)
    }
}

/// TOML → JSON; a date becomes its text.
fn to_json(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Integer(integer) => {
            i64::from_str_radix(integer.as_str(), integer.radix()).map_or(Value::Null, Value::from)
        }
        DeValue::Float(float) => float.as_str().parse::<f64>().map_or(Value::Null, Value::from),
        DeValue::Boolean(boolean) => Value::Bool(*boolean),
        DeValue::Datetime(date) => Value::String(date.to_string()),
        DeValue::Array(list) => list.iter().map(|item| to_json(item.get_ref())).collect(),
        DeValue::Table(table) => {
            let entries = table.iter().map(|(key, item)| (key.get_ref().to_string(), to_json(item.get_ref())));
            Value::Object(entries.collect::<Map<_, _>>())
        }
    }
}
