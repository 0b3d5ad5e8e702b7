//! A run split over machines: each process asks the cases of its shard, and the shards are merged into one run.
//!
//! Seeds depend on the case, the configuration and the repeat alone, so it does not matter which process asks a case.

use super::configuration::{Configuration, DIMENSIONS};
use super::directory::{Plan, RunDirectory};
use super::run::in_order;
use super::sample::Sample;
use super::suite::{Case, Suite, wrong};
use callwright::error::Result;
use callwright::hash::sha256;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// Cases with the same tools stay in one shard, for the KV cache, up to this part of a shard. More would make shards of
/// different sizes.
const PART_OF_SHARD: usize = 4;

/// One of the parts that a run is split into, written as `2/4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Shard {
    /// From 1.
    index: usize,
    count: usize,
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Shard, String> {
        let number = |text: &str| text.parse::<usize>().ok().filter(|number| *number > 0);
        let both = text.split_once('/').and_then(|(index, count)| Some((number(index)?, number(count)?)));
        let (index, count) = both.ok_or("not I/N, such as 1/4 for the first of four shards")?;
        if index > count {
            return Err(format!("there is no shard {index} of {count}; the last one is {count}/{count}"));
        }
        Ok(Shard { index, count })
    }
}

impl TryFrom<String> for Shard {
    type Error = String;

    fn try_from(text: String) -> Result<Shard, String> {
        text.parse()
    }
}

impl From<Shard> for String {
    fn from(shard: Shard) -> String {
        format!("{}/{}", shard.index, shard.count)
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shard {} of {}", self.index, self.count)
    }
}

impl Shard {
    /// Checks that each shard has a case.
    ///
    /// # Errors
    /// [`ErrorKind::Suite`](callwright::ErrorKind::Suite) when there are fewer cases than shards.
    pub fn check(self, suite: &Suite) -> Result<()> {
        let (cases, count) = (suite.cases.len(), self.count);
        if cases < count {
            return Err(wrong(format!("{cases} cases are too few for {count} shards"))
                .hint("a run has at most as many shards as cases"));
        }
        Ok(())
    }

    /// The shard's cases, in the order in which they are asked; each with the number of its tools.
    pub(super) fn cases(self, all: &[Case]) -> Vec<(usize, Case)> {
        let ordered = in_order(all);
        let most = (ordered.len() / (PART_OF_SHARD * self.count)).max(1);
        let mut sizes = vec![0; self.count];
        let mut own = Vec::new();
        for same_tools in ordered.chunk_by(|(one, _), (other, _)| one == other) {
            for part in same_tools.chunks(most) {
                // To the shard with the fewest cases; the first of several.
                let Some(place) = (0..self.count).min_by_key(|place| sizes[*place]) else { continue };
                sizes[place] += part.len();
                if place + 1 == self.index {
                    own.extend_from_slice(part);
                }
            }
        }
        own
    }
}

/// A property in which two plans differ, with its value in each.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    pub name: &'static str,
    pub values: [String; 2],
}

/// The properties in which two plans differ, in the words of the command line.
pub fn differences(plans: [&Plan; 2]) -> Vec<Difference> {
    let [mut a, mut b] = plans.map(properties);
    if plans[0].suite_sha256 != plans[1].suite_sha256 {
        // The same cases may have another path on another machine.
        a.push(("suite", plans[0].suite.clone()));
        b.push(("suite", plans[1].suite.clone()));
    }
    let pairs = a.into_iter().zip(b).filter(|((_, a), (_, b))| a != b);
    pairs.map(|((name, a), (_, b))| Difference { name, values: [a, b] }).collect()
}

/// Returns what determines a run.
fn properties(plan: &Plan) -> Vec<(&'static str, String)> {
    let all = |value: &dyn Fn(&Configuration) -> String| {
        let values: BTreeSet<String> = plan.configurations.iter().map(value).collect();
        values.into_iter().collect::<Vec<_>>().join(", ")
    };
    let given = |value: Option<String>| value.unwrap_or_else(|| "not given".to_owned());
    let short = |hash: &str| hash.get(..12).unwrap_or(hash).to_owned();
    let dimension = |index: usize, name| match name {
        "model" => all(&|one| one.model.clone()),
        "template" => all(&|one| one.template.clone()),
        _ => all(&|one| one.values()[index].clone()),
    };
    let mut properties: Vec<(&'static str, String)> =
        DIMENSIONS.into_iter().enumerate().map(|(index, name)| (name, dimension(index, name))).collect();
    properties.extend([
        ("the model's SHA-256", all(&|one| short(&one.model_sha256))),
        ("the template's SHA-256", all(&|one| short(&one.template_sha256))),
        ("the format's SHA-256", all(&|one| short(&sha256(&one.format_declaration)))),
        ("lora", all(&|one| given(Some(one.lora.join(" and ")).filter(|lora| !lora.is_empty())))),
        ("max-tokens", all(&|one| one.max_tokens.to_string())),
        ("repeat", plan.repeat.to_string()),
        ("exact", plan.exact.to_string()),
        ("seed", all(&|one| one.sampling.seed.to_string())),
        ("the other sampling options", all(&|one| sampling(one))),
        ("call-threshold", all(&|one| given(one.call_threshold.map(|value| value.to_string())))),
        ("no-call-below", all(&|one| given(one.no_call_below.map(|value| value.to_string())))),
        ("other-forms", all(&|one| format!("{:?}", one.other_forms).to_lowercase())),
        ("ctx", all(&|one| given(one.context.map(|context| context.to_string())))),
    ]);
    properties
}

/// The sampling options that have no option of the benchmark.
fn sampling(one: &Configuration) -> String {
    let mut value = serde_json::to_value(one.sampling).unwrap_or_default();
    if let Some(map) = value.as_object_mut() {
        map.remove("temperature");
        map.remove("seed");
    }
    value.to_string()
}

/// Merges the shards of one run into the run that a single process would have made, in `out`. `command` makes its
/// command line from that of a shard.
///
/// # Errors
/// [`ErrorKind::Suite`](callwright::ErrorKind::Suite) when a run is no shard, the shards are not of the same run, or a shard is missing, there
/// twice, or not finished; [`ErrorKind::Io`](callwright::ErrorKind::Io).
pub fn merge(
    runs: &[RunDirectory],
    out: &Path,
    command: impl FnOnce(&[String]) -> Vec<String>,
) -> Result<RunDirectory> {
    let Some(first) = runs.first() else { return Err(wrong("there are no shards to merge")) };
    RunDirectory::check_free(out)?;
    for run in runs {
        same_run(first, run)?;
    }
    all_there(runs)?;
    if let Some(run) = runs.iter().find(|run| run.lacking() > 0) {
        let (path, lacking, all) = (run.path().display(), run.lacking(), run.total());
        return Err(wrong(format!("the run in {path} lacks {lacking} of its {all} answers"))
            .hint(format!("`callwright bench --resume {path}` asks for them")));
    }
    let mut plan = Plan { shard: None, command: command(&first.plan.command), ..first.plan.clone() };
    plan.parallel_cases = runs.iter().map(|run| run.plan.parallel_cases).max().unwrap_or(1);
    let texts: HashMap<&String, &String> = runs.iter().flat_map(|run| &run.prompts).collect();
    let samples = in_run_order(runs, &plan, &first.suite);
    let mut whole = RunDirectory::start(out, plan, &first.suite, false)?;
    for sample in samples {
        whole.append(sample.clone(), texts.get(&sample.prompt_sha256).map_or("", |text| text))?;
    }
    Ok(whole)
}

/// Returns what must not change between shards, and may change where a run is resumed.
fn versions(plan: &Plan) -> [(&'static str, String); 3] {
    [
        ("callwright's version", plan.callwright.clone()),
        ("the scorer's version", plan.scorer.to_string()),
        ("the time in prompts", plan.now.clone()),
    ]
}

/// Checks that two runs are shards of one.
fn same_run(first: &RunDirectory, run: &RunDirectory) -> Result<()> {
    let (here, there) = (run.path().display(), first.path().display());
    let (Some(shard), Some(other)) = (run.plan.shard, first.plan.shard) else {
        let whole = if run.plan.shard.is_none() { here } else { there };
        return Err(wrong(format!("the run in {whole} is no shard")).hint("a shard was begun with --shard I/N"));
    };
    let mut differing: Vec<String> = differences([&first.plan, &run.plan])
        .into_iter()
        .map(|Difference { name, values: [a, b] }| format!("{name} is {a} in {there} and {b} in {here}"))
        .collect();
    for ((name, a), (_, b)) in versions(&first.plan).into_iter().zip(versions(&run.plan)) {
        if a != b {
            differing.push(format!("{name} is {a} in {there} and {b} in {here}"));
        }
    }
    if shard.count != other.count {
        differing.push(format!("there are {} shards in {there} and {} in {here}", other.count, shard.count));
    }
    if first.plan.suite_sha256 != run.plan.suite_sha256 {
        differing.push(other_cases([&first.suite, &run.suite]));
    }
    let ids = |run: &RunDirectory| run.plan.configurations.iter().map(|one| one.id.clone()).collect::<Vec<_>>();
    if differing.is_empty() && ids(first) != ids(run) {
        differing.push("the configurations are in another order".to_owned());
    }
    match differing.is_empty() {
        true => Ok(()),
        false => {
            Err(wrong(format!("the runs in {there} and {here} are not shards of one run: {}", differing.join("; ")))
                .hint("all shards are begun with the same options, models and version; only --shard and --out differ"))
        }
    }
}

/// How the cases of two suites differ.
pub fn other_cases(suites: [&Suite; 2]) -> String {
    let [a, b] = suites.map(|suite| &suite.cases);
    match a.iter().zip(b).find(|(a, b)| a.line != b.line) {
        _ if a.len() != b.len() => format!("one has {} cases, the other {}", a.len(), b.len()),
        Some((case, _)) => format!("the case {} is another", case.id),
        None => "the cases differ".to_owned(),
    }
}

/// Checks that each shard is there once.
fn all_there(runs: &[RunDirectory]) -> Result<()> {
    let mut places: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    let mut count = 0;
    for (shard, run) in runs.iter().filter_map(|run| Some((run.plan.shard?, run))) {
        count = shard.count;
        places.entry(shard.index).or_default().push(run.path().display().to_string());
    }
    if let Some((index, paths)) = places.iter().find(|(_, paths)| paths.len() > 1) {
        return Err(wrong(format!(
            "shard {index} of {count} is there {} times: in {}",
            paths.len(),
            paths.join(" and ")
        ))
        .hint("name each shard once"));
    }
    let missing: Vec<String> =
        (1..=count).filter(|index| !places.contains_key(index)).map(|one| one.to_string()).collect();
    match missing.as_slice() {
        [] => Ok(()),
        [one] => Err(wrong(format!("shard {one} of {count} is missing"))),
        several => Err(wrong(format!("the shards {} of {count} are missing", several.join(", ")))),
    }
}

/// All answers, in the order in which a single process writes them.
fn in_run_order<'r>(runs: &'r [RunDirectory], plan: &Plan, suite: &Suite) -> Vec<&'r Sample> {
    let cases: HashMap<String, usize> =
        in_order(&suite.cases).into_iter().enumerate().map(|(place, (_, case))| (case.id, place)).collect();
    let configuration = |id: &str| plan.configurations.iter().position(|one| one.id == id);
    let mut samples: Vec<&Sample> = runs.iter().flat_map(|run| &run.samples).collect();
    samples.sort_by_cached_key(|sample| (configuration(&sample.config), cases.get(&sample.case), sample.repeat));
    samples
}
