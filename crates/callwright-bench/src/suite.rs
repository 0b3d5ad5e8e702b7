//! Suites: the cases of a benchmark, and the expected answers.
//!
//! A suite is lines of JSON: a user's file, the built-in one, or a checkout of the Berkeley Function-Calling
//! Leaderboard, whose cases are converted to such lines. A run's directory keeps its lines, so that it can be scored
//! again anywhere.

use super::bfcl;
use super::exact::Exact;
use super::task::{self, Task};
use callwright::error::{Error, ErrorKind, Location, Result};
use callwright::hash::sha256;
use callwright::message::{Conversation, Message, check_question};
use callwright::text_file;
use callwright::tool::Tools;
use serde_json::{Map, Number, Value};
use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;

const BUILTIN: &str = include_str!("builtin.jsonl");
const BUILTIN_TURNS: &str = include_str!("builtin-multi-turn.jsonl");
/// The path of a built-in suite, in place of a file's.
pub(super) const BUILTIN_FILE: &str = "<built-in suite>";

/// The suite that `callwright bench init` writes: it has every key, with comments.
pub const EXAMPLE: &str = include_str!("example.jsonl");
/// The suite of several turns that `callwright bench init --multi-turn` writes, and its world; the one names the other `WORLD`.
pub const EXAMPLE_TURNS: [&str; 2] =
    [include_str!("example-multi-turn.jsonl"), include_str!("example-multi-turn.toml")];

const CASE_KEYS: [&str; 8] = ["id", "category", "messages", "prompt", "tools", "expected", "cluster", "bfcl"];
const CALL_KEYS: [&str; 4] = ["name", "arguments", "accept", "optional"];

/// The cases to ask.
#[derive(Debug, Clone)]
pub struct Suite {
    /// The name by which it was opened.
    pub name: String,
    /// The cases, in order.
    pub cases: Vec<Case>,
}

/// One case.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Case {
    /// Its name, unique in the suite.
    pub id: String,
    /// The category.
    pub category: String,
    /// The conversation, up to the model's answer.
    pub messages: Vec<Message>,
    /// The tools.
    pub tools: Arc<Tools>,
    /// The expected answer.
    pub expected: Expected,
    /// Cases of one cluster are not independent evidence: intervals are wider for them.
    pub cluster: String,
    /// The leaderboard's own data, the input of its checker.
    pub bfcl: Option<bfcl::Gold>,
    /// What the case is about, if it has several turns: `expected` means nothing then.
    pub task: Option<Arc<Task>>,
    /// The case as a line of a suite.
    pub line: String,
}

/// The expected answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Expected {
    /// An answer without a call.
    NoCall,
    /// Any call.
    AnyCall,
    /// These calls, in any order.
    Calls(Vec<ExpectedCall>),
}

/// An expected call.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpectedCall {
    /// The tool's name.
    pub name: String,
    /// The expected arguments; any other is wrong.
    pub arguments: Vec<ExpectedArgument>,
}

/// An expected argument.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpectedArgument {
    /// Its name.
    pub name: String,
    /// The right values.
    pub accepted: Vec<Exact>,
    /// Whether it may be left out.
    pub optional: bool,
}

impl Case {
    /// The number of expected calls; `None` where any call is right.
    pub(crate) fn expected_calls(&self) -> Option<&[ExpectedCall]> {
        match &self.expected {
            Expected::NoCall => Some(&[]),
            Expected::AnyCall => None,
            Expected::Calls(calls) => Some(calls),
        }
    }

    /// Returns whether it is one of the leaderboard's.
    pub(crate) fn is_of_bfcl(&self) -> bool {
        self.bfcl.is_some() || self.task.as_ref().is_some_and(|task| !task.is_declared())
    }

    /// Returns whether a call is needed.
    pub(crate) fn needs_call(&self) -> bool {
        self.expected != Expected::NoCall
    }
}

impl Suite {
    /// The built-in suite.
    ///
    /// # Errors
    /// None: the tests read the built-in file.
    pub(crate) fn builtin() -> Result<Suite> {
        Suite::from_text("builtin", BUILTIN, Path::new(BUILTIN_FILE))
    }

    /// The suite that `spec` means: `builtin`, `builtin-multi-turn`, a file, or `bfcl:DIR[:CATEGORY,…]`.
    ///
    /// # Errors
    /// [`ErrorKind::Suite`] with file and line where a case is not usable, [`ErrorKind::Io`] where a file cannot be
    /// read.
    ///
    /// ```
    /// use callwright_bench::Suite;
    /// assert!(Suite::open("builtin")?.cases.len() > 100);
    /// # Ok::<(), callwright::Error>(())
    /// ```
    pub fn open(spec: &str) -> Result<Suite> {
        if let Some(folder) = spec.strip_prefix("bfcl:") {
            let mut cases = bfcl::read(folder)?;
            task::find_classes(spec, &mut cases);
            return Ok(Suite { name: spec.to_owned(), cases });
        }
        let path = Path::new(spec);
        match spec {
            "builtin" => return Suite::builtin(),
            "builtin-multi-turn" => return Suite::from_text(spec, BUILTIN_TURNS, Path::new(BUILTIN_FILE)),
            _ => {}
        }
        if !path.exists() {
            return Err(Error::new(ErrorKind::Suite, format!("there is no suite {spec:?}, and no such file"))
                .hint("builtin, builtin-multi-turn, a file of cases (`callwright bench init FILE` writes an example), or bfcl:DIR"));
        }
        Suite::from_text(spec, &text_file::read(path)?, path)
    }

    /// Reads a suite's lines; errors name `file`, and paths of tools are relative to its folder.
    ///
    /// # Errors
    /// Those of [`Suite::open`].
    pub(crate) fn from_text(name: &str, text: &str, file: &Path) -> Result<Suite> {
        let mut cases: Vec<Case> = Vec::new();
        let mut ids = HashSet::new();
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        for (index, whole) in text.lines().enumerate() {
            let line = whole.trim();
            if line.is_empty() || line.starts_with("//") {
                continue;
            }
            let at = |error: Error| at_line(error, file, index + 1);
            if line.starts_with('[') {
                return Err(at(wrong("a list begins here; a suite has a case a line, each an object")
                    .hint("`callwright bench init FILE` writes an example")));
            }
            // Parsed again at its place in the file, so that the excerpt has the line's number.
            let again = |_| case(&("\n".repeat(index) + whole), index + 1, file);
            let case = case(line, index + 1, file).or_else(again).map_err(at)?;
            if !ids.insert(case.id.clone()) {
                return Err(at(wrong(format!("there are two cases with the id {:?}", case.id))));
            }
            cases.push(case);
        }
        if cases.is_empty() {
            return Err(wrong("there are no cases in the suite").in_file(file));
        }
        task::find_classes(name, &mut cases);
        Ok(Suite { name: name.to_owned(), cases })
    }

    /// The same cases with `count` tools of other cases among those of each: always the same ones, in an order by hash.
    ///
    /// # Errors
    /// Those of [`Suite::open`].
    pub fn with_more_tools(self, count: usize) -> Result<Suite> {
        if let Some(case) = self.cases.iter().find(|case| case.task.is_some()) {
            return Err(wrong(format!("the case {:?} has several turns: nothing would execute more tools", case.id))
                .hint("--more-tools is for cases of one answer"));
        }
        let name_of =
            |tool: &Exact| tool.get("function").unwrap_or(tool).get("name").and_then(Exact::as_str).map(str::to_owned);
        let read: Vec<(Exact, Vec<(String, Exact)>)> = self
            .cases
            .iter()
            .map(|case| {
                let line = Exact::parse(&case.line)?;
                let tools = line.get("tools").and_then(Exact::elements).unwrap_or_default();
                let named = tools.iter().filter_map(|tool| Some((name_of(tool)?, tool.clone()))).collect();
                Ok((line, named))
            })
            .collect::<Result<_>>()?;
        let mut all: BTreeMap<&str, &Exact> = BTreeMap::new();
        for (name, tool) in read.iter().flat_map(|(_, tools)| tools) {
            all.entry(name).or_insert(tool);
        }
        let mut text = String::new();
        for ((line, own), case) in read.iter().zip(&self.cases) {
            let by_hash = |name: &str| sha256(format!("{}\n{name}", case.id));
            let mut others: Vec<(&str, &Exact)> = all.iter().map(|(name, tool)| (*name, *tool)).collect();
            others.retain(|(name, _)| own.iter().all(|(own, _)| own != name));
            others.sort_by_cached_key(|(name, _)| by_hash(name));
            others.truncate(count);
            let mut tools: Vec<(&str, &Exact)> = own.iter().map(|(name, tool)| (name.as_str(), tool)).collect();
            // A case without tools is about that.
            if !own.is_empty() {
                tools.extend(others);
            }
            tools.sort_by_cached_key(|(name, _)| by_hash(&format!("place of {name}")));
            let mut members = line.members().unwrap_or_default().to_vec();
            if let Some((_, place)) = members.iter_mut().find(|(key, _)| key == "tools") {
                *place = Exact::List(tools.into_iter().map(|(_, tool)| tool.clone()).collect());
            }
            text += &format!("{}\n", Exact::Object(members));
        }
        Suite::from_text(&format!("{} with {count} more tools", self.name), &text, Path::new(&self.name))
    }

    /// At most `limit` cases, with each category's share: always the same ones, in their order.
    #[must_use]
    pub fn limited(mut self, limit: usize) -> Suite {
        if limit >= self.cases.len() {
            return self;
        }
        let mut categories: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (index, case) in self.cases.iter().enumerate() {
            categories.entry(&case.category).or_default().push(index);
        }
        let total = self.cases.len();
        let mut shares: Vec<(usize, usize, &str)> = categories
            .iter()
            .map(|(name, cases)| (cases.len() * limit / total, cases.len() * limit % total, *name))
            .collect();
        // Cases that rounding left over go to the largest remainders; among equals, to the first names.
        let mut left = limit - shares.iter().map(|(share, ..)| share).sum::<usize>();
        shares.sort_by(|a, b| b.1.cmp(&a.1).then(a.2.cmp(b.2)));
        for share in &mut shares {
            let more = usize::from(left > 0);
            share.0 += more;
            left -= more;
        }
        let mut kept = HashSet::new();
        for (share, _, name) in shares {
            // Chosen by hash: the first lines of a file are often the easy ones.
            let mut chosen = categories[name].clone();
            chosen.sort_by_key(|index| sha256(&self.cases[*index].id));
            kept.extend(chosen.into_iter().take(share));
        }
        let mut index = 0;
        self.cases.retain(|_| {
            index += 1;
            kept.contains(&(index - 1))
        });
        self
    }

    /// A hash of all cases: two runs with the same hash asked the same cases.
    pub fn sha256(&self) -> String {
        let lines: Vec<&str> = self.cases.iter().map(|case| case.line.as_str()).collect();
        sha256(lines.join("\n"))
    }

    /// The suite's text as a file.
    pub(crate) fn to_text(&self) -> String {
        self.cases.iter().map(|case| case.line.clone() + "\n").collect()
    }
}

pub(super) fn wrong(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Suite, message)
}

/// As a serde_json value, in which numbers beyond 64 bits are doubles.
pub(super) fn to_value(exact: &Exact) -> Value {
    match exact {
        Exact::Null => Value::Null,
        Exact::Bool(value) => Value::Bool(*value),
        Exact::Int(digits) => {
            let small = digits.parse::<i64>().map(Number::from).or_else(|_| digits.parse::<u64>().map(Number::from));
            small.map_or_else(|_| exact.int_to_float().map_or(Value::Null, Value::from), Value::Number)
        }
        Exact::Float(float) => Value::from(*float),
        Exact::Text(text) => Value::String(text.clone()),
        Exact::List(elements) => elements.iter().map(to_value).collect(),
        Exact::Object(members) => {
            members.iter().map(|(key, value)| (key.clone(), to_value(value))).collect::<Map<_, _>>().into()
        }
    }
}

/// The text under a key, if there is the key.
pub(super) fn text(fields: &Exact, key: &str) -> Result<Option<String>> {
    match fields.get(key) {
        None => Ok(None),
        Some(Exact::Text(text)) => Ok(Some(text.clone())),
        Some(other) => Err(wrong(format!("{key:?} is {}; expected a string", short(other)))),
    }
}

/// A case's tools. A few cases of the leaderboard offer one name twice; the first tool counts.
pub(super) fn tools(list: &Value) -> Result<Tools> {
    let mut names = HashSet::new();
    let name =
        |tool: &Value| tool.get("function").unwrap_or(tool).get("name").and_then(Value::as_str).map(str::to_owned);
    let distinct: Vec<Value> = match list {
        Value::Array(list) => {
            list.iter().filter(|tool| name(tool).is_none_or(|name| names.insert(name))).cloned().collect()
        }
        _ => return Err(wrong("\"tools\" is no list")),
    };
    Tools::from_value(&Value::Array(distinct))
}

fn case(line: &str, number: usize, file: &Path) -> Result<Case> {
    let fields = Exact::parse(line)?;
    let members = fields.members().ok_or_else(|| wrong("the line is no object"))?;
    let several = fields.get("turns").is_some();
    if !several {
        known(members, &CASE_KEYS, "the case")?;
    }
    let text = |key: &str| text(&fields, key);
    let id = text("id")?.unwrap_or_else(|| format!("line-{number}"));
    if id.is_empty() {
        return Err(wrong("\"id\" is empty").hint("without an \"id\" a case is named after its line"));
    }
    if several {
        return task::case(&fields, members, id, file);
    }
    let messages = match (fields.get("messages"), text("prompt")?) {
        (Some(messages), None) => plain(Conversation::from_value(to_value(messages))?)?,
        (None, Some(prompt)) => vec![Message::user(prompt)],
        _ => return Err(wrong("a case has either \"messages\" or \"prompt\"")),
    };
    check_question(&messages)?;
    let tools = match fields.get("tools") {
        None => Tools::default(),
        Some(Exact::Text(path)) => Tools::from_file(file.parent().unwrap_or(Path::new("")).join(path))?,
        Some(list) => tools(&to_value(list))?,
    };
    let line = whole(line, members, &id, &tools)?;
    let gold = fields.get("bfcl").map(bfcl::Gold::read).transpose()?;
    let expected = match (fields.get("expected"), &gold) {
        (None, Some(gold)) => gold.expected()?,
        (Some(Exact::Text(any)), None) if any == "any" && tools.is_empty() => {
            return Err(wrong("\"any\" call is expected, and the case has no tools"));
        }
        (Some(Exact::Text(any)), None) if any == "any" => Expected::AnyCall,
        (Some(Exact::List(calls)), None) if calls.is_empty() => Expected::NoCall,
        (Some(Exact::List(calls)), None) => {
            Expected::Calls(calls.iter().map(|call| expected_call(call, &tools)).collect::<Result<_>>()?)
        }
        (Some(_), Some(_)) => return Err(wrong("a case has either \"expected\" or \"bfcl\"")),
        _ => {
            return Err(wrong("\"expected\" is missing, or no list")
                .hint("a list of calls, [] where none is right, or \"any\" where any call will do"));
        }
    };
    Ok(Case {
        category: text("category")?.unwrap_or_else(|| "all".to_owned()),
        cluster: text("cluster")?.unwrap_or_else(|| id.clone()),
        messages,
        tools: Arc::new(tools),
        expected,
        bfcl: gold,
        task: None,
        line,
        id,
    })
}

/// A case's line that is valid in any file: with an id, and with the tools that it names by path.
fn whole(line: &str, members: &[(String, Exact)], id: &str, tools: &Tools) -> Result<String> {
    let by_path = members.iter().position(|(key, value)| key == "tools" && value.as_str().is_some());
    let nameless = members.iter().all(|(key, _)| key != "id");
    if by_path.is_none() && !nameless {
        return Ok(line.to_owned());
    }
    let mut members = members.to_vec();
    if let Some(place) = by_path {
        members[place].1 = Exact::parse(&tools.to_json().to_string())?;
    }
    if nameless {
        members.insert(0, ("id".to_owned(), Exact::Text(id.to_owned())));
    }
    Ok(Exact::Object(members).to_string())
}

/// Adds the line of `file` to an error. An error in another file, such as one that the line names, has its own
/// location.
fn at_line(error: Error, file: &Path, line: usize) -> Error {
    match error.location() {
        Some(Location { file: Some(_), .. }) => error.hint(format!("{}:{line} names this file", file.display())),
        location => {
            let column = location.and_then(|location| location.column);
            error.at(Location { file: Some(file.to_owned()), line: Some(line), column })
        }
    }
}

fn expected_call(call: &Exact, tools: &Tools) -> Result<ExpectedCall> {
    let members = call.members().ok_or_else(|| wrong(format!("an expected call is {}", short(call))))?;
    known(members, &CALL_KEYS, "an expected call")?;
    let name = call.get("name").and_then(Exact::as_str).ok_or_else(|| wrong("an expected call has no \"name\""))?;
    if tools.get(name).is_none() {
        let error = wrong(format!("the expected call is of {name:?}, which is none of the case's tools"));
        return Err(error.suggest(name, tools.iter().map(|tool| tool.name.as_str()), ""));
    }
    let empty = Exact::Object(Vec::new());
    let object = |key: &str| {
        let value = call.get(key).unwrap_or(&empty);
        value.members().ok_or_else(|| wrong(format!("{key:?} of {name} is {}; expected an object", short(value))))
    };
    let mut arguments: Vec<ExpectedArgument> = object("arguments")?
        .iter()
        .map(|(name, value)| ExpectedArgument { name: name.clone(), accepted: vec![value.clone()], optional: false })
        .collect();
    for (key, values) in object("accept")? {
        let values = values
            .elements()
            .ok_or_else(|| wrong(format!("\"accept\" of {key} is {}; expected a list of values", short(values))))?;
        match arguments.iter_mut().find(|argument| argument.name == *key) {
            Some(argument) => argument.accepted.extend_from_slice(values),
            None => arguments.push(ExpectedArgument { name: key.clone(), accepted: values.to_vec(), optional: false }),
        }
    }
    let optional = call.get("optional").map_or(Some(&[][..]), Exact::elements);
    for key in optional.ok_or_else(|| wrong("\"optional\" is no list of argument names"))? {
        match arguments.iter_mut().find(|argument| Some(argument.name.as_str()) == key.as_str()) {
            Some(argument) => argument.optional = true,
            None => return Err(wrong(format!("\"optional\" names {}, which \"arguments\" has not", short(key)))),
        }
    }
    let first = |argument: &ExpectedArgument| Some((argument.name.clone(), to_value(argument.accepted.first()?)));
    // A call that violates the tool's schema is always invalid.
    if let Some(problem) = tools.problems(name, &arguments.iter().filter_map(first).collect()).into_iter().next() {
        return Err(wrong(format!("no model can make the expected call of {name}: {problem}")));
    }
    Ok(ExpectedCall { name: name.to_owned(), arguments })
}

pub(super) fn known(members: &[(String, Exact)], keys: &[&str], of: &str) -> Result<()> {
    let Some((key, _)) = members.iter().find(|(key, _)| !keys.contains(&key.as_str())) else { return Ok(()) };
    let error = wrong(format!("{of} has the unknown key {key:?}"));
    Err(error.suggest(key, keys.iter().copied(), &format!("known keys: {}", keys.join(", "))))
}

/// A value for an error message.
pub(super) fn short(value: &Exact) -> String {
    let text = value.to_string();
    if text.chars().count() <= 60 { text } else { text.chars().take(57).collect::<String>() + "…" }
}

/// The messages; a note about them is an error, as nobody reads the notes of a benchmark.
fn plain(conversation: Conversation) -> Result<Vec<Message>> {
    match conversation.notes.into_iter().next() {
        Some(note) => {
            Err(Error::new(ErrorKind::Config, note).hint("a case has messages in OpenAI's form, with text only"))
        }
        None => Ok(conversation.messages),
    }
}
