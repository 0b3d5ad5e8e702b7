//! The file that names the servers, in the shape that MCP clients share: `{"mcpServers": {"name": {…}}}`.
//!
//! A fault of one server leaves that server out and is reported; the others go on. Secrets need not be in the file:
//! `${NAME}` in a value is that variable of the environment.

use crate::error::nearest;
use crate::json;
use crate::{Error, ErrorKind, Result};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Keys of other clients that change nothing here.
const IGNORED: [&str; 3] = ["description", "name", "type"];
/// Keys of all servers.
const SHARED: [&str; 5] = ["autoApprove", "alwaysAllow", "timeout_s", "max_calls", "disabled"];

/// A server, as the file says it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ServerConfig {
    pub name: String,
    pub start: Start,
    pub approved: Approved,
    /// How long a call of its tools may take.
    pub timeout: Option<Duration>,
    /// How often a run may call its tools: each of them, or those that are named.
    pub max_calls: MaxCalls,
}

/// Limits of calls in a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct MaxCalls {
    all: Option<u64>,
    named: BTreeMap<String, u64>,
}

impl MaxCalls {
    /// The limit of the tool of that name on the server, if there is one.
    pub(super) fn of(&self, tool: &str) -> Option<u64> {
        self.named.get(tool).copied().or(self.all)
    }
}

/// How a server is reached.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Start {
    /// A program that talks on its standard input and output.
    Program { command: String, arguments: Vec<String>, env: BTreeMap<String, String>, cwd: Option<PathBuf> },
    /// Streamable HTTP.
    Address { url: String, headers: BTreeMap<String, String> },
}

/// Which tools of a server run without a question to the person.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) enum Approved {
    #[default]
    None,
    All,
    Named(Vec<String>),
}

impl ServerConfig {
    /// Remarks on names of tools that the server does not have.
    pub(super) fn unknown_tools(&self, tools: &[&str]) -> Vec<String> {
        let approved: &[String] = if let Approved::Named(names) = &self.approved { names } else { &[] };
        let approved = approved.iter().map(|name| ("autoApprove", name));
        let named = approved.chain(self.max_calls.named.keys().map(|name| ("max_calls", name)));
        let unknown = named.filter(|(_, name)| !tools.contains(&name.as_str()));
        let remark = |(key, name): (&str, &String)| {
            let meant = nearest(name, tools.iter().copied());
            let meant = meant.map_or_else(String::new, |meant| format!("; did you mean {meant:?}?"));
            format!("the MCP server {:?}: {key:?} names {name:?}, which is none of its tools{meant}", self.name)
        };
        unknown.map(remark).collect()
    }
}

impl Approved {
    /// Returns whether the tool of that name on the server is among them.
    pub(super) fn has(&self, tool: &str) -> bool {
        match self {
            Approved::None => false,
            Approved::All => true,
            Approved::Named(names) => names.iter().any(|name| name == tool),
        }
    }
}

/// The servers that a file names, and what is wrong with it.
pub(super) struct Config {
    pub servers: Vec<ServerConfig>,
    /// The names of servers that are left out, and why.
    pub faulty: Vec<(String, String)>,
    pub notices: Vec<String>,
}

impl Config {
    /// Reads what a file says; its paths are relative to `folder`.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] where it names no servers at all.
    pub(super) fn read(value: &Value, folder: &Path) -> Result<Config> {
        let wrong = |message: String| {
            Error::new(ErrorKind::Config, message)
                .hint(r#"expected {"mcpServers": {"name": {"command": "…", "args": […]} or {"url": "…"}}}"#)
        };
        let missing = || {
            let keys = value.as_object().into_iter().flatten().map(|(key, _)| key.as_str());
            let like = |key: &&str| nearest(&key.replace('_', "").to_lowercase(), ["mcpservers", "servers"]).is_some();
            let meant = keys.filter(like).map(|key| format!("; write it in place of {key:?}")).next();
            wrong(format!("there is no \"mcpServers\"{}", meant.unwrap_or_default()))
        };
        let servers = value.get("mcpServers").ok_or_else(missing)?;
        let Value::Object(servers) = servers else {
            return Err(wrong(format!("\"mcpServers\" is {}; expected an object", json::shown(servers))));
        };
        let mut config = Config { servers: Vec::new(), faulty: Vec::new(), notices: Vec::new() };
        for (name, server) in servers {
            let mut unknown = Vec::new();
            let mut reader = Reader { folder, unknown: &mut unknown };
            match reader.server(name, server) {
                Ok(read) => config.servers.extend(read),
                Err(why) => {
                    config.notices.push(format!("the MCP server {name:?} is left out: {why}"));
                    config.faulty.push((name.clone(), why));
                }
            }
            config.notices.extend(unknown.iter().map(|key| format!("the MCP server {name:?}: {key}")));
        }
        Ok(config)
    }
}

struct Reader<'a> {
    /// The folder of the file.
    folder: &'a Path,
    /// Remarks on keys that are not used.
    unknown: &'a mut Vec<String>,
}

impl Reader<'_> {
    /// One server; `None` if the file turns it off.
    fn server(&mut self, name: &str, value: &Value) -> Result<Option<ServerConfig>, String> {
        let Value::Object(object) = value else {
            return Err(format!("it is {}; expected an object", json::shown(value)));
        };
        if object.get("disabled") == Some(&Value::Bool(true)) {
            return Ok(None);
        }
        let start = match (object.get("command"), object.get("url")) {
            (Some(_), Some(_)) => {
                return Err("it has a \"command\" and a \"url\"; one of them says what it is".to_owned());
            }
            (None, None) => {
                let meant = object.keys().find_map(|key| Some((nearest(key, ["command", "url"])?, key)));
                let meant = meant.map(|(meant, key)| format!("; write {meant:?} in place of {key:?}"));
                return Err(format!("it has neither a \"command\" nor a \"url\"{}", meant.unwrap_or_default()));
            }
            (Some(_), None) => self.program(object)?,
            (None, Some(_)) => address(object)?,
        };
        let own: &[&str] = match start {
            Start::Program { .. } => &["command", "args", "env", "cwd"],
            Start::Address { .. } => &["url", "headers"],
        };
        for key in object.keys().map(String::as_str) {
            match key {
                key if SHARED.contains(&key) || own.contains(&key) || IGNORED.contains(&key) => {}
                "timeout" => self.unknown.push(
                    "\"timeout\" is not used, as some programs count it in seconds and some in milliseconds; \
                     write \"timeout_s\""
                        .to_owned(),
                ),
                key => {
                    let meant = nearest(key, SHARED.into_iter().chain(own.iter().copied()));
                    let meant = meant.map_or_else(String::new, |meant| format!("; did you mean {meant:?}?"));
                    self.unknown.push(format!("{key:?} is not used{meant}"));
                }
            }
        }
        let timeout = match object.get("timeout_s") {
            None => None,
            Some(seconds) => match seconds.as_f64().filter(|seconds| *seconds > 0.0) {
                // About 30 years, so that a moment plus a timeout exists.
                Some(seconds) => Duration::try_from_secs_f64(seconds.min(1e9)).ok(),
                None => return Err(expected("timeout_s", seconds, "a positive number of seconds")),
            },
        };
        Ok(Some(ServerConfig {
            name: name.to_owned(),
            start,
            approved: approved(object)?,
            timeout,
            max_calls: max_calls(object)?,
        }))
    }

    fn program(&mut self, object: &Map<String, Value>) -> Result<Start, String> {
        let mut command = text(object, "command")?.unwrap_or_default();
        if command.is_empty() {
            return Err("\"command\" is empty".to_owned());
        }
        // As in tools files: a path is relative to the file.
        if command.contains('/') {
            command = self.folder.join(&command).display().to_string();
        }
        let arguments = match object.get("args") {
            None => Vec::new(),
            Some(Value::Array(list)) => {
                let one = |(index, value): (usize, &Value)| match value {
                    Value::String(text) => expanded(text),
                    other => Err(expected(&format!("args[{index}]"), other, "a string")),
                };
                list.iter().enumerate().map(one).collect::<Result<_, _>>()?
            }
            Some(other) => return Err(expected("args", other, "a list of strings")),
        };
        let cwd = text(object, "cwd")?.map(|cwd| self.folder.join(cwd));
        Ok(Start::Program { command, arguments, env: texts(object, "env")?, cwd })
    }
}

fn address(object: &Map<String, Value>) -> Result<Start, String> {
    if object.get("type").and_then(Value::as_str) == Some("sse") {
        return Err("its type is \"sse\", the transport before streamable HTTP, which is not supported".to_owned());
    }
    let url = text(object, "url")?.unwrap_or_default();
    if !url.starts_with("http://") && !url.starts_with("https://") {
        return Err(format!("\"url\" is {url:?}; expected an address that begins with http:// or https://"));
    }
    Ok(Start::Address { url, headers: texts(object, "headers")? })
}

fn approved(object: &Map<String, Value>) -> Result<Approved, String> {
    let key = if object.contains_key("autoApprove") { "autoApprove" } else { "alwaysAllow" };
    match object.get(key) {
        None | Some(Value::Bool(false)) => Ok(Approved::None),
        Some(Value::Bool(true)) => Ok(Approved::All),
        Some(Value::Array(names)) => {
            let name =
                |name: &Value| name.as_str().map(str::to_owned).ok_or_else(|| expected(key, name, "names of tools"));
            names.iter().map(name).collect::<Result<_, _>>().map(Approved::Named)
        }
        Some(other) => Err(expected(key, other, "true, false or a list of names of tools")),
    }
}

fn max_calls(object: &Map<String, Value>) -> Result<MaxCalls, String> {
    let number = |key: &str, value: &Value| {
        value.as_u64().filter(|most| *most > 0).ok_or_else(|| expected(key, value, "a positive number of calls"))
    };
    match object.get("max_calls") {
        None => Ok(MaxCalls::default()),
        Some(Value::Object(tools)) => {
            let one =
                |(tool, value): (&String, &Value)| Ok((tool.clone(), number(&format!("max_calls.{tool}"), value)?));
            Ok(MaxCalls { all: None, named: tools.iter().map(one).collect::<Result<_, String>>()? })
        }
        Some(value) => Ok(MaxCalls { all: Some(number("max_calls", value)?), named: BTreeMap::new() }),
    }
}

fn expected(key: &str, found: &Value, expected: &str) -> String {
    format!("\"{key}\" is {}; expected {expected}", json::shown(found))
}

/// A string, with its variables filled in.
fn text(object: &Map<String, Value>, key: &str) -> Result<Option<String>, String> {
    match object.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => expanded(text).map(Some),
        Some(other) => Err(expected(key, other, "a string")),
    }
}

/// An object of strings. Numbers and booleans are taken as they are written.
fn texts(object: &Map<String, Value>, key: &str) -> Result<BTreeMap<String, String>, String> {
    match object.get(key) {
        None | Some(Value::Null) => Ok(BTreeMap::new()),
        Some(Value::Object(values)) => {
            let one = |(name, value): (&String, &Value)| match value {
                Value::String(text) => Ok((name.clone(), expanded(text)?)),
                Value::Number(_) | Value::Bool(_) => Ok((name.clone(), value.to_string())),
                other => Err(expected(&format!("{key}.{name}"), other, "a string")),
            };
            values.iter().map(one).collect()
        }
        Some(other) => Err(expected(key, other, "an object of strings")),
    }
}

/// Fills in `${NAME}` and `${NAME:-default}` from the environment.
fn expanded(text: &str) -> Result<String, String> {
    filled_in(text, &|name| std::env::var(name).ok())
}

fn filled_in(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let (mut filled, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once("${") {
        filled += before;
        let Some((inside, after)) = after.split_once('}') else {
            rest = &rest[before.len()..];
            break;
        };
        let (name, default) = inside.split_once(":-").map_or((inside, None), |(name, default)| (name, Some(default)));
        let name = name.strip_prefix("env:").unwrap_or(name);
        match variable(name).or_else(|| default.map(str::to_owned)) {
            Some(value) => filled += &value,
            None => return Err(format!("there is no environment variable {name}, which it needs")),
        }
        rest = after;
    }
    Ok(filled + rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Config {
        Config::read(&serde_json::from_str(text).unwrap(), Path::new("folder")).unwrap()
    }

    #[test]
    fn programs_and_addresses_are_read_with_paths_relative_to_the_file() {
        let config = read(
            r#"{"mcpServers": {
                "a": {"command": "bin/a", "args": ["-x"], "env": {"N": 1}, "cwd": "data", "autoApprove": ["one"], "timeout_s": 2},
                "b": {"type": "http", "url": "https://b.example/mcp", "headers": {"Authorization": "Bearer x"}},
                "c": {"command": "c", "disabled": true}}}"#,
        );
        let Start::Program { command, arguments, env, cwd } = &config.servers[0].start else { panic!() };
        assert_eq!((command.as_str(), arguments.as_slice()), ("folder/bin/a", &["-x".to_owned()][..]));
        assert_eq!((env["N"].as_str(), cwd.as_deref()), ("1", Some(Path::new("folder/data"))));
        assert!(config.servers[0].approved.has("one") && !config.servers[0].approved.has("two"));
        assert_eq!(config.servers[0].timeout, Some(Duration::from_secs(2)));
        assert!(
            matches!(&config.servers[1].start, Start::Address { headers, .. } if headers["Authorization"] == "Bearer x")
        );
        assert_eq!((config.servers.len(), config.notices), (2, Vec::<String>::new()));
        let config = read(
            r#"{"mcpServers": {"a": {"command": "a", "max_calls": 3}, "b": {"command": "b", "max_calls": {"x": 2}}}}"#,
        );
        let limits = |server: usize| ["x", "y"].map(|tool| config.servers[server].max_calls.of(tool));
        assert_eq!((limits(0), limits(1)), ([Some(3), Some(3)], [Some(2), None]));
    }

    #[test]
    fn a_faulty_server_is_left_out_and_named() {
        for (server, notice) in [
            ("3", r#"is left out: it is 3; expected an object"#),
            ("{}", r#"is left out: it has neither a "command" nor a "url""#),
            (
                r#"{"comand": "a"}"#,
                r#"is left out: it has neither a "command" nor a "url"; write "command" in place of "comand""#,
            ),
            (
                r#"{"command": "a", "url": "b"}"#,
                r#"is left out: it has a "command" and a "url"; one of them says what it is"#,
            ),
            (r#"{"command": "a", "args": "b"}"#, r#"is left out: "args" is "b"; expected a list of strings"#),
            (
                r#"{"url": "b"}"#,
                r#"is left out: "url" is "b"; expected an address that begins with http:// or https://"#,
            ),
            (
                r#"{"url": "http://b", "type": "sse"}"#,
                r#"is left out: its type is "sse", the transport before streamable HTTP, which is not supported"#,
            ),
            (
                r#"{"command": "${NO_SUCH_VARIABLE_HERE}"}"#,
                "is left out: there is no environment variable NO_SUCH_VARIABLE_HERE, which it needs",
            ),
            (
                r#"{"command": "a", "timeout_s": 0}"#,
                r#"is left out: "timeout_s" is 0; expected a positive number of seconds"#,
            ),
            (
                r#"{"command": "a", "max_calls": {"x": "many"}}"#,
                r#"is left out: "max_calls.x" is "many"; expected a positive number of calls"#,
            ),
        ] {
            let config = read(&format!(r#"{{"mcpServers": {{"bad": {server}, "good": {{"command": "true"}}}}}}"#));
            assert_eq!(config.notices, [format!("the MCP server \"bad\" {notice}")], "{server}");
            assert_eq!(config.servers.len(), 1, "{server}");
        }
    }

    #[test]
    fn keys_that_are_not_used_are_named() {
        let config = read(r#"{"mcpServers": {"a": {"command": "a", "timeout": 3, "headers": {}}}}"#);
        assert!(config.notices[0].contains("\"timeout\" is not used, as some programs count it in seconds"));
        assert_eq!(config.notices[1], "the MCP server \"a\": \"headers\" is not used");
        let config = read(r#"{"mcpServers": {"a": {"command": "a", "timeouts": 3, "autoaprove": true, "color": 1}}}"#);
        let notice = |key: &str, meant: &str| format!("the MCP server \"a\": {key:?} is not used{meant}");
        assert_eq!(config.notices[0], notice("timeouts", "; did you mean \"timeout_s\"?"));
        assert_eq!(config.notices[1], notice("autoaprove", "; did you mean \"autoApprove\"?"));
        assert_eq!(config.notices[2], notice("color", ""));
    }

    #[test]
    fn names_of_tools_that_the_server_does_not_have_are_reported() {
        let config = read(
            r#"{"mcpServers": {"a": {"command": "a", "autoApprove": ["get_tme", "other"], "max_calls": {"get_time": 1, "st": 2}}}}"#,
        );
        let remarks = config.servers[0].unknown_tools(&["get_time", "set"]);
        let remark = |key: &str, rest: &str| format!("the MCP server \"a\": {key:?} names {rest}");
        assert_eq!(
            remarks[0],
            remark("autoApprove", "\"get_tme\", which is none of its tools; did you mean \"get_time\"?")
        );
        assert_eq!(remarks[1], remark("autoApprove", "\"other\", which is none of its tools"));
        assert_eq!(remarks[2], remark("max_calls", "\"st\", which is none of its tools; did you mean \"set\"?"));
        assert_eq!(remarks.len(), 3);
    }

    #[test]
    fn a_file_without_servers_is_an_error() {
        for (text, message) in [
            ("{}", "there is no \"mcpServers\""),
            (r#"{"mcp_servers": {}}"#, "there is no \"mcpServers\"; write it in place of \"mcp_servers\""),
            (r#"{"mcpServers": []}"#, "\"mcpServers\" is []; expected an object"),
        ] {
            let value = serde_json::from_str(text).unwrap();
            let error = Config::read(&value, Path::new("")).err().unwrap();
            assert_eq!((error.kind(), error.message()), (ErrorKind::Config, message));
        }
    }

    #[test]
    fn variables_are_filled_in() {
        let variable = |name: &str| (name == "KEY").then(|| "secret".to_owned());
        let filled = |text: &str| filled_in(text, &variable);
        assert_eq!(filled("Bearer ${KEY}!").as_deref(), Ok("Bearer secret!"));
        assert_eq!(filled("${env:KEY}${NONE:-x}").as_deref(), Ok("secretx"));
        assert_eq!(filled("$KEY ${open").as_deref(), Ok("$KEY ${open"));
        assert!(filled("${NONE}").is_err());
    }
}
