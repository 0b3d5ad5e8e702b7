//! Declared worlds: a state, and what each tool does to it.
//!
//! Templates in Jinja say how: what a call sets or removes, when it fails, and what it answers. So a suite needs no
//! program, and the same call does the same everywhere.

use crate::exact::Exact;
use crate::suite::{short, to_value, wrong};
use crate::task::{Checks, Wanted};
use callwright::error::{Error, Result};
use callwright::text_file;
use callwright::tool::{Effect, Tool, Tools};
use minijinja::{Environment, UndefinedBehavior, context};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::path::Path;

/// What a template may cost.
const FUEL: u64 = 100_000;

/// The worlds of the built-in suite, by the names of their files.
const BUILTIN: [(&str, &str); 4] = [
    ("home.toml", include_str!("../worlds/home.toml")),
    ("calendar.toml", include_str!("../worlds/calendar.toml")),
    ("files.toml", include_str!("../worlds/files.toml")),
    ("shop.toml", include_str!("../worlds/shop.toml")),
];

/// A state and the tools that act on it.
#[derive(Debug)]
pub(crate) struct World {
    /// The state in which each case begins.
    pub state: Value,
    /// The tools.
    pub tools: Tools,
    /// The world as JSON.
    pub source: Value,
    acts: HashMap<String, Act>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    state: Map<String, Value>,
    tool: Vec<Act>,
}

/// A tool, and what a call of it does.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Act {
    name: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    parameters: Option<Map<String, Value>>,
    effect: String,
    #[serde(default)]
    repeat: bool,
    /// Renders to why the call fails, or to nothing.
    #[serde(default)]
    error: String,
    /// Values by JSON pointers; `-` is the end of a list.
    #[serde(default)]
    set: Map<String, Value>,
    /// JSON pointers of what is removed.
    #[serde(default)]
    remove: Vec<String>,
    /// The result.
    #[serde(default = "ok")]
    result: String,
}

fn ok() -> String {
    "ok".to_owned()
}

impl World {
    /// The world that a case names, or has.
    pub(super) fn find(named: Option<&Exact>, file: &Path) -> Result<World> {
        match named {
            Some(Exact::Text(name)) => {
                match BUILTIN.iter().find(|(known, _)| file == Path::new(crate::suite::BUILTIN_FILE) && known == name) {
                    Some((_, text)) => World::read(text),
                    None => {
                        let path = file.parent().unwrap_or(Path::new("")).join(name);
                        World::read(&text_file::read(&path)?).map_err(|error| error.in_file(path))
                    }
                }
            }
            Some(world @ Exact::Object(_)) => World::new(to_value(world)),
            Some(other) => Err(wrong(format!("\"world\" is {}; expected the path of a file", short(other)))),
            None => Err(wrong("a case with \"turns\" has a \"world\"")
                .hint("`callwright bench init --multi-turn FILE` writes an example")),
        }
    }

    /// Reads a world in TOML.
    fn read(text: &str) -> Result<World> {
        let value =
            toml::from_str(text).map_err(|error| wrong(format!("not a world: {}", error.to_string().trim())))?;
        World::new(value)
    }

    fn new(source: Value) -> Result<World> {
        let file: File =
            serde_json::from_value(source.clone()).map_err(|error| wrong(format!("not a world: {error}")))?;
        let mut tools = Vec::new();
        for act in &file.tool {
            let effect = Effect::from_word(&act.effect).ok_or_else(|| {
                let message = format!("the effect of {} is {:?}", act.name, act.effect);
                wrong(message).hint("an effect is \"read\", \"write\" or \"destructive\"")
            })?;
            let mut tool = Tool::new(&act.name, &act.description, act.parameters.clone()).effect(effect);
            tool.policy.repeat = act.repeat;
            tools.push(tool);
            let pointers = act.set.keys().chain(&act.remove);
            let values = act.set.values().flat_map(texts);
            for template in [&act.error, &act.result].into_iter().chain(pointers.clone()).chain(values) {
                let compiled = Environment::new().template_from_str(template).map(drop);
                compiled.map_err(|error| wrong(format!("{}: {template:?} is no template: {error}", act.name)))?;
            }
            if let Some(pointer) = pointers.into_iter().find(|pointer| !pointer.starts_with('/')) {
                return Err(wrong(format!("{}: {pointer:?} is no JSON pointer", act.name)).hint("it begins with a /"));
            }
        }
        Ok(World {
            state: Value::Object(file.state),
            tools: Tools::new(tools)?,
            source,
            acts: file.tool.into_iter().map(|act| (act.name.clone(), act)).collect(),
        })
    }

    /// Checks that the calls of a check are of these tools.
    pub(super) fn check(&self, checks: &Checks) -> Result<()> {
        for wanted in
            checks.calls.iter().chain(checks.changes.iter().flatten()).chain(&checks.never).chain(&checks.tried)
        {
            let tool = self.tools.get(&wanted.name).ok_or_else(|| {
                let error = wrong(format!("{:?} is none of the world's tools", wanted.name));
                hinted(error, &wanted.name, self.tools.iter().map(|tool| tool.name.as_str()))
            })?;
            let properties = tool.parameters.as_ref().and_then(|schema| schema.get("properties")?.as_object());
            let names: Vec<&str> = properties.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
            if let Some(key) = wanted.arguments.keys().find(|key| !names.contains(&key.as_str())) {
                let error = wrong(format!("{} has no parameter {key:?}", wanted.name));
                return Err(hinted(error, key, names.iter().copied()));
            }
        }
        Ok(())
    }

    /// Checks that the wanted changes can be made, turn by turn, and lead to the state of the whole case.
    pub(super) fn check_path<'c>(
        &self,
        parts: impl Iterator<Item = &'c Checks> + Clone,
        whole: &'c Checks,
    ) -> Result<()> {
        let by_turn = parts.clone().any(|checks| checks.changes.is_some());
        let is_still = |checks: &Checks| checks.changes.is_some() || checks.state.as_ref().is_some_and(Map::is_empty);
        let of_whole = whole.changes.iter().filter(|_| !by_turn).flatten();
        let changes: Vec<&Wanted> =
            parts.clone().flat_map(|checks| checks.changes.iter().flatten()).chain(of_whole).collect();
        let Some(state) = self.changed(changes.iter().copied()).transpose()? else { return Ok(()) };
        let is_known = if by_turn { parts.clone().all(is_still) } else { whole.changes.is_some() };
        match whole.state.as_ref().filter(|_| is_known).map(|expected| differences(&state, &self.after(expected))) {
            Some(found) if !found.is_empty() => {
                Err(wrong(format!("the wanted changes do not lead to the state: {}", found.join("; "))))
            }
            _ => Ok(()),
        }
    }

    /// The state after these changes; `None` where one leaves arguments open, and cannot be tried.
    pub(super) fn changed<'c>(&self, changes: impl Iterator<Item = &'c Wanted> + Clone) -> Option<Result<Value>> {
        let is_whole = |wanted: &Wanted| self.tools.problems(&wanted.name, &wanted.arguments).is_empty();
        changes.clone().all(is_whole).then(|| {
            let mut state = self.state.clone();
            for wanted in changes {
                let done = self.call(&mut state, &wanted.name, &wanted.arguments).and_then(|done| done);
                done.map_err(|why| wrong(format!("the wanted change {wanted} cannot be made: {why}")))?;
            }
            Ok(state)
        })
    }

    /// The state at the beginning with these differences.
    pub(super) fn after(&self, differences: &Map<String, Value>) -> Value {
        let mut state = self.state.clone();
        for (pointer, value) in differences {
            let path: Vec<String> = pointer.split('/').skip(1).map(plain).collect();
            match value {
                Value::Null => remove(&mut state, &path),
                value => set(&mut state, &path, value.clone()),
            }
        }
        state
    }

    /// Executes a call; the inner error is what the tool says, the outer one what is wrong with the world.
    pub(super) fn call(
        &self,
        state: &mut Value,
        name: &str,
        arguments: &Map<String, Value>,
    ) -> Result<Result<String, String>, String> {
        let act = self.acts.get(name).ok_or_else(|| format!("the world has no tool {name}"))?;
        let failed = |error: minijinja::Error| format!("the world's tool {name}: {error:#}");
        let renders = Renders { state: state.clone(), arguments };
        let error = renders.text(&act.error).map_err(failed)?;
        if !error.trim().is_empty() {
            return Ok(Err(error.trim().to_owned()));
        }
        for (pointer, value) in &act.set {
            set(state, &renders.path(pointer).map_err(failed)?, renders.value(value).map_err(failed)?);
        }
        for pointer in &act.remove {
            remove(state, &renders.path(pointer).map_err(failed)?);
        }
        let after = Renders { state: state.clone(), arguments };
        Ok(Ok(after.text(&act.result).map_err(failed)?))
    }
}

fn hinted<'n>(error: Error, name: &str, known: impl Iterator<Item = &'n str> + Clone) -> Error {
    error.suggest(name, known.clone(), &format!("there are {}", known.collect::<Vec<_>>().join(", ")))
}

/// The texts in a value.
fn texts(value: &Value) -> Vec<&String> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(list) => list.iter().flat_map(texts).collect(),
        Value::Object(object) => object.values().flat_map(texts).collect(),
        _ => Vec::new(),
    }
}

/// Renders the templates of a call.
struct Renders<'a> {
    state: Value,
    arguments: &'a Map<String, Value>,
}

impl Renders<'_> {
    fn environment(&self) -> Environment<'static> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::SemiStrict);
        environment.set_fuel(Some(FUEL));
        environment
    }

    fn context(&self) -> minijinja::Value {
        context! { state => self.state, ..minijinja::Value::from_serialize(self.arguments) }
    }

    fn text(&self, template: &str) -> Result<String, minijinja::Error> {
        self.environment().render_str(template, self.context())
    }

    /// A pointer's parts. Each is rendered alone, so that a / in an argument is none of the pointer.
    fn path(&self, pointer: &str) -> Result<Vec<String>, minijinja::Error> {
        pointer.split('/').skip(1).map(|part| self.text(&plain(part))).collect()
    }

    /// A value; an expression alone keeps its type.
    fn value(&self, value: &Value) -> Result<Value, minijinja::Error> {
        Ok(match value {
            Value::String(text) => {
                let alone = text.trim().strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}"));
                match alone.filter(|inner| !inner.contains("{{")) {
                    Some(expression) => {
                        let result = self.environment().compile_expression(expression)?.eval(self.context())?;
                        serde_json::to_value(result).unwrap_or(Value::Null)
                    }
                    None => Value::String(self.text(text)?),
                }
            }
            Value::Array(list) => Value::Array(list.iter().map(|one| self.value(one)).collect::<Result<_, _>>()?),
            Value::Object(object) => {
                let one = |(key, value): (&String, &Value)| Ok((key.clone(), self.value(value)?));
                Value::Object(object.iter().map(one).collect::<Result<_, minijinja::Error>>()?)
            }
            other => other.clone(),
        })
    }
}

/// A part of a JSON pointer without its escapes.
fn plain(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}

/// Sets a value; objects on the way are made.
fn set(state: &mut Value, path: &[String], value: Value) {
    let Some((first, rest)) = path.split_first() else {
        *state = value;
        return;
    };
    if let Value::Array(list) = state {
        match first.parse::<usize>() {
            Ok(index) if index < list.len() => set(&mut list[index], rest, value),
            _ => {
                list.push(Value::Null);
                let last = list.len() - 1;
                set(&mut list[last], rest, value);
            }
        }
        return;
    }
    if !state.is_object() {
        *state = json!({});
    }
    if let Value::Object(object) = state {
        set(object.entry(first).or_insert(Value::Null), rest, value);
    }
}

fn remove(state: &mut Value, path: &[String]) {
    match (path, state) {
        ([last], Value::Object(object)) => drop(object.shift_remove(last)),
        ([last], Value::Array(list)) => {
            drop(last.parse().ok().filter(|at| *at < list.len()).map(|at: usize| list.remove(at)))
        }
        ([first, rest @ ..], Value::Object(object)) => {
            object.get_mut(first).into_iter().for_each(|inner| remove(inner, rest))
        }
        ([first, rest @ ..], Value::Array(list)) => {
            first.parse().ok().and_then(|at: usize| list.get_mut(at)).into_iter().for_each(|inner| remove(inner, rest));
        }
        _ => {}
    }
}

/// Returns whether values are equal: texts in any case, numbers by value.
pub(super) fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::String(a), Value::String(b)) => a.to_lowercase() == b.to_lowercase(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        (a, b) => a == b,
    }
}

/// Where a state is not as expected, in words.
pub(super) fn differences(state: &Value, expected: &Value) -> Vec<String> {
    fn find(state: Option<&Value>, expected: Option<&Value>, at: &str, found: &mut Vec<String>) {
        match (state, expected) {
            (Some(Value::Object(a)), Some(Value::Object(b))) => {
                let more = b.keys().filter(|key| !a.contains_key(*key));
                for key in a.keys().chain(more) {
                    let part = key.replace('~', "~0").replace('/', "~1");
                    find(a.get(key), b.get(key), &format!("{at}/{part}"), found);
                }
            }
            (Some(a), Some(b)) if same(a, b) => {}
            (Some(a), Some(b)) => found.push(format!("{at} is {a}; expected {b}")),
            (Some(a), None) => found.push(format!("{at} is {a}; expected nothing there")),
            (None, Some(b)) => found.push(format!("{at} is not there; expected {b}")),
            (None, None) => {}
        }
    }
    let mut found = Vec::new();
    find(Some(state), Some(expected), "", &mut found);
    found
}
