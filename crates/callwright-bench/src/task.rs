//! Cases of several turns: a list of user messages, tools that act on something, and checks.
//!
//! The tools act on an [`Environment`]: a declared world, or the classes of the Berkeley leaderboard. The run in
//! [`super::act`] asks, and the environment says what became of it.

mod played;
pub(crate) mod world;

use super::bfcl::{self, Classes};
use super::exact::Exact;
use super::sample::{Turn, Verdict};
use super::suite::{Case, Expected, known, text, to_value, tools, wrong};
use callwright::error::Result;
use callwright::message::{Message, ToolCall};
use callwright::tool::{Effect, Tool};
use played::Played;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use world::{World, same};

const KEYS: [&str; 8] = ["id", "category", "cluster", "world", "turns", "tools", "bfcl", "approve"];
const CHECKS: [&str; 9] = ["calls", "changes", "tried", "never", "state", "text", "no_text", "may_give_up", "user"];

/// What a case of several turns is about.
#[derive(Debug, Clone)]
pub struct Task {
    /// The turns.
    pub(crate) turns: Vec<Part>,
    /// What the tools act on.
    pub(crate) ground: Ground,
}

/// What the tools of a case act on, and what is expected.
#[derive(Debug, Clone)]
pub(crate) enum Ground {
    /// A declared world, the checks of the whole case, and the calls that a person approves besides those that are wanted.
    World(Arc<World>, Checks, Vec<Wanted>),
    /// The leaderboard's classes: its data of the case, and the folder of the package.
    Bfcl(Exact, Option<PathBuf>),
}

/// One turn: what the user says.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    pub user: String,
    /// Tools that are there from this turn on.
    pub tools: Vec<Tool>,
    pub checks: Checks,
}

/// What has to hold after a turn, or at the end.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Checks {
    /// Calls that have to be executed, in this order; others may be between them.
    pub calls: Vec<Wanted>,
    /// The calls that change something, in any order: exactly these.
    pub changes: Option<Vec<Wanted>>,
    /// Calls that the model has to write, also where they are denied or fail.
    pub tried: Vec<Wanted>,
    /// Calls that must not be executed.
    pub never: Vec<Wanted>,
    /// All that is different from the beginning, by JSON pointer; null is for what is gone.
    pub state: Option<Map<String, Value>>,
    /// Texts that the last answer has, in any case.
    pub text: Vec<String>,
    /// Texts that it must not have.
    pub no_text: Vec<String>,
    /// Whether the model may give a call up, such as one of a tool that cannot succeed.
    pub may_give_up: bool,
}

/// A call, as checks name it: arguments that it does not list may have any value.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "Value")]
pub(crate) struct Wanted {
    pub name: String,
    pub arguments: Map<String, Value>,
}

impl TryFrom<Value> for Wanted {
    type Error = String;

    fn try_from(value: Value) -> Result<Wanted, String> {
        let named = |name: &Value, arguments: Value| match (name.as_str(), arguments) {
            (Some(name), Value::Object(arguments)) => Some(Wanted { name: name.to_owned(), arguments }),
            _ => None,
        };
        let wanted = match &value {
            Value::String(_) => named(&value, Value::Object(Map::new())),
            Value::Object(call) if call.keys().all(|key| key == "name" || key == "arguments") => {
                let arguments = call.get("arguments").cloned().unwrap_or_else(|| Value::Object(Map::new()));
                call.get("name").and_then(|name| named(name, arguments))
            }
            _ => None,
        };
        wanted
            .ok_or_else(|| format!("{value} is no call: write a tool's name, or {{\"name\": …, \"arguments\": {{…}}}}"))
    }
}

impl std::fmt::Display for Wanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}({})", self.name, named(&self.arguments))
    }
}

/// Arguments for people.
fn named(arguments: &Map<String, Value>) -> String {
    arguments.iter().map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>().join(", ")
}

impl Wanted {
    /// Returns whether a call is this one: texts in any case, numbers by value.
    fn is(&self, name: &str, arguments: &Map<String, Value>) -> bool {
        self.name == name
            && self.arguments.iter().all(|(key, value)| arguments.get(key).is_some_and(|given| same(value, given)))
    }
}

/// What the tools of one run of a case act on.
pub(crate) trait Environment: Send {
    /// A turn begins.
    fn begin_turn(&mut self);

    /// Executes a call; an error is the tool's own, and goes to the model.
    fn call(&mut self, name: &str, arguments: &Map<String, Value>) -> Result<String, String>;

    /// What failed in the environment itself, which says nothing about the model.
    fn broken(&self) -> Option<String>;

    /// What became of the case.
    ///
    /// # Errors
    /// What failed in the environment.
    fn verdict(&mut self, turns: &[Turn]) -> Result<Verdict, String>;
}

impl Task {
    /// Begins a run of the case.
    ///
    /// # Errors
    /// The environment cannot be started.
    pub(crate) fn begin(&self) -> Result<Box<dyn Environment>, String> {
        Ok(match &self.ground {
            Ground::World(world, checks, _) => {
                let parts = self.turns.iter().map(|part| part.checks.clone()).collect();
                Box::new(Played::new(world, parts, checks.clone(), self.approved()))
            }
            Ground::Bfcl(data, Some(package)) => Box::new(Classes::start(package, data)?),
            Ground::Bfcl(_, None) => {
                return Err("the suite does not say where the leaderboard's classes are".to_owned());
            }
        })
    }

    /// Returns whether it is one of a declared world.
    pub(crate) fn is_declared(&self) -> bool {
        matches!(self.ground, Ground::World(..))
    }

    /// The destructive calls that a person approves.
    fn approved(&self) -> Vec<Wanted> {
        let Ground::World(_, checks, approve) = &self.ground else { return Vec::new() };
        let all = self.turns.iter().map(|part| &part.checks).chain([checks]);
        let wanted = all.flat_map(|checks| checks.calls.iter().chain(checks.changes.iter().flatten()));
        wanted.chain(approve).cloned().collect()
    }

    /// Returns whether a person approves a call.
    pub(crate) fn approves(&self, call: &ToolCall, tool: &Tool) -> bool {
        // Whoever is asked because of the form of a call allows it.
        if !self.is_declared() || tool.policy.effect != Effect::Destructive {
            return true;
        }
        let empty = Map::new();
        let arguments = call.arguments.as_object().unwrap_or(&empty);
        self.approved().iter().any(|wanted| wanted.is(&call.name, arguments))
    }

    /// What is expected, for people.
    pub(crate) fn expected(&self) -> String {
        let (calls, at_the_end) = match &self.ground {
            Ground::Bfcl(data, _) => {
                let gold = data.get("ground_truth").and_then(Exact::elements).unwrap_or_default();
                let line = |turn: &Exact| {
                    let calls = turn.elements().unwrap_or_default().iter().filter_map(Exact::as_str);
                    calls.collect::<Vec<_>>().join("; ")
                };
                (gold.iter().map(line).collect(), None)
            }
            Ground::World(_, checks, _) => {
                (self.turns.iter().map(|part| part.checks.to_string()).collect::<Vec<_>>(), Some(checks.to_string()))
            }
        };
        let none = |text: &String| if text.is_empty() { "–".to_owned() } else { text.clone() };
        let lines = calls.iter().enumerate().map(|(turn, text)| format!("turn {}: {}", turn + 1, none(text)));
        lines
            .chain(at_the_end.filter(|text| !text.is_empty()).map(|text| format!("at the end: {text}")))
            .collect::<Vec<_>>()
            .join("\n")
    }
}

impl std::fmt::Display for Checks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let list = |calls: &[Wanted]| calls.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let mut parts = Vec::new();
        if !self.calls.is_empty() {
            parts.push(format!("calls {}", list(&self.calls)));
        }
        if let Some(changes) = &self.changes {
            parts.push(if changes.is_empty() {
                "no change".to_owned()
            } else {
                format!("exactly the changes {}", list(changes))
            });
        }
        if !self.tried.is_empty() {
            parts.push(format!("tries {}", list(&self.tried)));
        }
        if !self.never.is_empty() {
            parts.push(format!("never {}", list(&self.never)));
        }
        if let Some(state) = &self.state {
            parts.push(if state.is_empty() { "nothing else than before".to_owned() } else { named(state) });
        }
        parts.extend(self.text.iter().map(|text| format!("says {text:?}")));
        parts.extend(self.no_text.iter().map(|text| format!("does not say {text:?}")));
        f.write_str(&parts.join("; "))
    }
}

/// Reads a case with `turns`.
///
/// # Errors
/// [`ErrorKind::Suite`](callwright::ErrorKind::Suite) where the case is not usable; errors of the world's file.
pub(super) fn case(fields: &Exact, members: &[(String, Exact)], id: String, file: &Path) -> Result<Case> {
    known(members, &[&KEYS[..], &CHECKS[..CHECKS.len() - 1]].concat(), "the case")?;
    let turns = fields.get("turns").and_then(Exact::elements).filter(|turns| !turns.is_empty());
    let turns = turns.ok_or_else(|| wrong("\"turns\" is no list of what the user says"))?;
    let mut line = members.to_vec();
    if fields.get("id").is_none() {
        line.insert(0, ("id".to_owned(), Exact::Text(id.clone())));
    }
    let turns = turns
        .iter()
        .enumerate()
        .map(|(index, turn)| part(turn).map_err(|error| wrong(format!("turn {}: {}", index + 1, error.message()))));
    let turns = turns.collect::<Result<Vec<Part>>>()?;
    let (tools, ground) = match fields.get("bfcl") {
        Some(data) => {
            let list = fields.get("tools").ok_or_else(|| wrong("\"tools\" is missing"))?;
            (tools(&to_value(list))?, Ground::Bfcl(data.clone(), None))
        }
        None => {
            let found = World::find(fields.get("world"), file)?;
            for (key, value) in line.iter_mut().filter(|(key, _)| key == "world") {
                // A case in a run's directory has all that it needs.
                *value = Exact::parse(&found.source.to_string()).map_err(|error| wrong(format!("{key}: {error}")))?;
            }
            let approve = fields.get("approve").map_or(Ok(Vec::new()), |list| {
                serde_json::from_value(to_value(list)).map_err(|error| wrong(format!("\"approve\": {error}")))
            })?;
            let checks = checks(members, &KEYS)?;
            let tools = callwright::Tools::new(found.tools.iter().cloned())?;
            let all = turns.iter().map(|part| &part.checks).chain([&checks]);
            all.clone().try_for_each(|checks| found.check(checks))?;
            found.check_path(turns.iter().map(|part| &part.checks), &checks)?;
            if all.flat_map(|checks| checks.to_string().into_bytes()).next().is_none() {
                return Err(wrong("the case checks nothing")
                    .hint(format!("a case or one of its turns has one of {}", CHECKS[..CHECKS.len() - 2].join(", "))));
            }
            (tools, Ground::World(Arc::new(found), checks, approve))
        }
    };
    let task = Task { turns, ground };
    Ok(Case {
        category: text(fields, "category")?.unwrap_or_else(|| "all".to_owned()),
        cluster: text(fields, "cluster")?.unwrap_or_else(|| id.clone()),
        messages: vec![Message::user(task.turns[0].user.clone())],
        tools: Arc::new(tools),
        expected: Expected::AnyCall,
        bfcl: None,
        task: Some(Arc::new(task)),
        line: Exact::Object(line).to_string(),
        id,
    })
}

/// Reads a turn: what the user says, or an object with that and with checks.
fn part(turn: &Exact) -> Result<Part> {
    let empty = |user: &str| Part { user: user.to_owned(), tools: Vec::new(), checks: Checks::default() };
    if let Some(user) = turn.as_str() {
        return Ok(empty(user));
    }
    let members = turn.members().ok_or_else(|| wrong("it is neither what the user says nor an object"))?;
    known(members, &[&CHECKS[..], &["tools"]].concat(), "a turn")?;
    let user = turn.get("user").and_then(Exact::as_str).ok_or_else(|| wrong("\"user\" is missing, or no string"))?;
    let more = turn.get("tools").map_or(Ok(callwright::Tools::default()), |list| tools(&to_value(list)))?;
    Ok(Part { tools: more.iter().cloned().collect(), checks: checks(members, &["user", "tools"])?, ..empty(user) })
}

/// The checks among the members of an object, which are those that have another name.
fn checks(members: &[(String, Exact)], others: &[&str]) -> Result<Checks> {
    let own = members.iter().filter(|(key, _)| !others.contains(&key.as_str()));
    let own: Map<String, Value> = own.map(|(key, value)| (key.clone(), to_value(value))).collect();
    let read = |members| serde_json::from_value::<Checks>(Value::Object(members));
    // One at a time first, so that an error names its key.
    for (key, value) in &own {
        let one = Map::from_iter([(key.clone(), value.clone())]);
        read(one).map_err(|error| wrong(format!("{key:?}: {error}")))?;
    }
    read(own).map_err(|error| wrong(error.to_string()))
}

/// Tells the cases of a suite where the leaderboard's classes are.
pub(super) fn find_classes(suite: &str, cases: &mut [Case]) {
    let package = suite.strip_prefix("bfcl:").and_then(bfcl::package);
    for case in cases {
        if let Some(Ground::Bfcl(_, place)) = case.task.as_mut().map(|task| &mut Arc::make_mut(task).ground) {
            place.clone_from(&package);
        }
    }
}
