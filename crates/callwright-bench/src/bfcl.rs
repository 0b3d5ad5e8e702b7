//! Cases of the Berkeley Function-Calling Leaderboard, read from an unchanged checkout.
//!
//! <https://github.com/ShishirPatil/gorilla>, folder `berkeley-function-call-leaderboard/bfcl_eval/data`:
//! `BFCL_v4_CATEGORY.json` has a category's cases, one a line, and `possible_answer/` the right answers, one a line.

mod ceiling;
mod checker;
mod classes;
mod turns;

pub(crate) use ceiling::reachable;
pub use checker::{CRASH, check};
pub(crate) use classes::{Classes, TURN_ERRORS};

use super::exact::Exact;
use super::suite::{Case, Expected, ExpectedArgument, ExpectedCall, to_value, tools, wrong};
use callwright::error::{Error, Location, Result};
use callwright::hash::sha256;
use callwright::message::Conversation;
use callwright::text_file;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How the categories of several turns begin.
const TURNS: &str = "multi_turn_";
/// Where the package has the classes that those act on.
const CLASSES: &str = "eval_checker/multi_turn_eval/func_source_code";

/// The categories that can be read, in the leaderboard's order: those of one turn, by Python's rules, and those of several.
pub(crate) const CATEGORIES: [&str; 15] = [
    "simple_python",
    "multiple",
    "parallel",
    "parallel_multiple",
    "irrelevance",
    "live_simple",
    "live_multiple",
    "live_parallel",
    "live_parallel_multiple",
    "live_irrelevance",
    "live_relevance",
    "multi_turn_base",
    "multi_turn_miss_func",
    "multi_turn_miss_param",
    "multi_turn_long_context",
];

/// The input of the leaderboard's checker.
#[derive(Debug, Clone, PartialEq)]
pub struct Gold {
    /// The category; the rules depend on it.
    pub category: String,
    /// The case's `function`.
    pub tools: Exact,
    /// The right answers; an empty list where a category has none.
    pub ground_truth: Exact,
}

impl Gold {
    /// Reads what [`Gold::to_json`] wrote.
    pub(super) fn read(value: &Exact) -> Result<Gold> {
        let part = |key: &str| value.get(key).ok_or_else(|| wrong(format!("\"bfcl\" has no {key:?}")));
        let category = part("category")?.as_str().ok_or_else(|| wrong("the category in \"bfcl\" is no string"))?;
        Ok(Gold {
            category: category.to_owned(),
            tools: part("function")?.clone(),
            ground_truth: part("ground_truth")?.clone(),
        })
    }

    fn to_json(&self) -> Exact {
        Exact::Object(vec![
            ("category".to_owned(), Exact::Text(self.category.clone())),
            ("function".to_owned(), self.tools.clone()),
            ("ground_truth".to_owned(), self.ground_truth.clone()),
        ])
    }

    /// The verdict on decoded calls, `[{name: {parameter: value}}]`.
    ///
    /// # Errors
    /// The checker's error type.
    pub fn check(&self, answer: Option<&Exact>) -> Result<(), &'static str> {
        check(&self.category, &self.tools, &self.ground_truth, answer, false)
    }

    /// The expected calls, as far as they are known without the checker.
    pub(super) fn expected(&self) -> Result<Expected> {
        if self.category.contains("irrelevance") {
            return Ok(Expected::NoCall);
        }
        if self.category.contains("relevance") {
            return Ok(Expected::AnyCall);
        }
        let bad = || wrong("\"ground_truth\" is no list of {name: {parameter: [values]}}");
        let calls = self.ground_truth.elements().filter(|calls| !calls.is_empty()).ok_or_else(bad)?;
        let call = |call: &Exact| {
            let (name, parameters) = call.members().and_then(<[_]>::first)?;
            let argument = |(name, values): &(String, Exact)| {
                let accepted = values.elements().unwrap_or_default();
                let empty = |value: &Exact| value.as_str() == Some("");
                ExpectedArgument {
                    name: name.clone(),
                    optional: accepted.iter().any(empty),
                    accepted: accepted.iter().filter(|value| !empty(value)).cloned().collect(),
                }
            };
            Some(ExpectedCall { name: name.clone(), arguments: parameters.members()?.iter().map(argument).collect() })
        };
        let calls = calls.iter().map(call).collect::<Option<_>>();
        Ok(Expected::Calls(calls.ok_or_else(bad)?))
    }
}

/// Reads `DIR[:CATEGORY,…]`: all categories that are there, or those named.
pub(super) fn read(spec: &str) -> Result<Vec<Case>> {
    let (folder, categories) = split(spec)?;
    let data = data_folder(folder)?;
    let mut cases = Vec::new();
    for category in CATEGORIES {
        let path = data.join(format!("BFCL_v4_{category}.json"));
        match &categories {
            Some(asked) if !asked.contains(&category) => {}
            // Those of several turns need Python and take long: only who names them gets them.
            None if !path.exists() || category.starts_with(TURNS) => {}
            _ if category.starts_with(TURNS) => cases.extend(turns::read(&data, category)?),
            _ => cases.extend(read_category(&data, category)?),
        }
    }
    if cases.iter().any(|case| case.task.is_some()) {
        Classes::check(&package(spec).ok_or_else(|| no_classes(folder))?).map_err(wrong)?;
    }
    Ok(cases)
}

fn no_classes(folder: &Path) -> Error {
    wrong(format!("the leaderboard's classes (bfcl_eval/{CLASSES}) are not in {}", folder.display()))
        .hint("`make bfcl` fetches the package bfcl-eval, which has them")
}

/// The folder of the package `bfcl_eval` of a suite, if its classes are there.
pub(super) fn package(spec: &str) -> Option<PathBuf> {
    let data = std::fs::canonicalize(data_folder(split(spec).ok()?.0).ok()?).ok()?;
    let package = data.parent().filter(|package| package.join(CLASSES).is_dir())?;
    Some(package.parent()?.to_owned())
}

/// The folder, and the categories after a colon; a folder's name may contain one too.
fn split(spec: &str) -> Result<(&Path, Option<Vec<&str>>)> {
    let whole = Path::new(spec);
    let Some((folder, list)) = spec.rsplit_once(':').filter(|_| !whole.exists()) else { return Ok((whole, None)) };
    let categories: Vec<&str> = list.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    if let Some(unknown) = categories.iter().find(|name| !CATEGORIES.contains(name)) {
        let error = wrong(format!("there is no category {unknown:?}"));
        return Err(error.suggest(unknown, CATEGORIES, &format!("the categories are {}", CATEGORIES.join(", "))));
    }
    Ok((Path::new(folder), Some(categories).filter(|list| !list.is_empty())))
}

fn data_folder(folder: &Path) -> Result<PathBuf> {
    let below = ["", "data", "bfcl_eval/data", "berkeley-function-call-leaderboard/bfcl_eval/data"];
    let mut places = below.iter().map(|below| folder.join(below));
    let has_cases =
        |place: &PathBuf| CATEGORIES.iter().any(|category| place.join(format!("BFCL_v4_{category}.json")).is_file());
    places.find(has_cases).ok_or_else(|| {
        wrong(format!("there are no cases of BFCL (BFCL_v4_*.json) in {}", folder.display()))
            .hint("`make bfcl` fetches them: bfcl:target/bfcl; or name the folder of a checkout of the leaderboard")
    })
}

fn read_category(data: &Path, category: &str) -> Result<Vec<Case>> {
    let name = format!("BFCL_v4_{category}.json");
    let path = data.join(&name);
    let cases = lines(&path)?;
    let answers = if category.ends_with("relevance") { None } else { Some(answers(data, &name, cases.len())?) };
    let mut read = Vec::with_capacity(cases.len());
    for (index, case) in cases.iter().enumerate() {
        let at = |error: Error| error.at(Location { file: Some(path.clone()), line: Some(index + 1), column: None });
        // The leaderboard pairs them by line.
        let answer = answers.as_ref().map(|answers| &answers[index]);
        read.push(read_case(category, case, answer).map_err(at)?);
    }
    Ok(read)
}

/// The right answers to the cases of a file, one a line.
fn answers(data: &Path, name: &str, cases: usize) -> Result<Vec<Exact>> {
    let path = data.join("possible_answer").join(name);
    let answers = lines(&path)?;
    if answers.len() != cases {
        return Err(wrong(format!("there are {} answers to {cases} cases", answers.len())).in_file(path));
    }
    Ok(answers)
}

fn lines(path: &Path) -> Result<Vec<Exact>> {
    let text = text_file::read(path)?;
    let filled = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    filled
        .map(|(index, line)| {
            Exact::parse(line).map_err(|error| {
                let column = error.location().and_then(|location| location.column);
                error.at(Location { file: Some(path.to_owned()), line: Some(index + 1), column })
            })
        })
        .collect()
}

fn read_case(category: &str, case: &Exact, answer: Option<&Exact>) -> Result<Case> {
    let part = |of: &Exact, key: &str| of.get(key).cloned().ok_or_else(|| wrong(format!("there is no {key:?}")));
    let id = part(case, "id")?.as_str().ok_or_else(|| wrong("the id is no string"))?.to_owned();
    let turns = part(case, "question")?;
    let [turn] = turns.elements().unwrap_or_default() else {
        return Err(wrong("\"question\" is no list of one turn; only those can be asked"));
    };
    let functions = part(case, "function")?;
    let ground_truth = match answer {
        Some(answer) => part(answer, "ground_truth")?,
        None => Exact::List(Vec::new()),
    };
    let gold = Gold { category: category.to_owned(), tools: functions.clone(), ground_truth };
    // Real users' questions come in families that share tools: they are not independent evidence.
    let cluster = if category.starts_with("live_") {
        format!("tools-{}", &sha256(functions.to_string())[..12])
    } else {
        id.clone()
    };
    let line = Exact::Object(vec![
        ("id".to_owned(), Exact::Text(id.clone())),
        ("category".to_owned(), Exact::Text(category.to_owned())),
        ("cluster".to_owned(), Exact::Text(cluster.clone())),
        ("messages".to_owned(), turn.clone()),
        ("tools".to_owned(), functions.clone()),
        ("bfcl".to_owned(), gold.to_json()),
    ]);
    Ok(Case {
        id,
        category: category.to_owned(),
        messages: Conversation::from_value(to_value(turn))?.messages,
        tools: Arc::new(tools(&to_value(&functions))?),
        expected: gold.expected()?,
        cluster,
        bfcl: Some(gold),
        task: None,
        line: line.to_string(),
    })
}
