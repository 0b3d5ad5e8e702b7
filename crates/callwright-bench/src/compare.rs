//! Compares two runs case by case.

use super::configuration::{Configuration, labels};
use super::directory::RunDirectory;
use super::stats::{clustered_mcnemar, holm, paired_design_effect, paired_difference, pairs_needed};
use super::suite::wrong;
use super::summary::{ConfigurationSummary, Summary};
use callwright::error::Result;
use callwright::setting::Setting;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Display, Formatter};

/// The significance level.
pub(crate) const LEVEL: f64 = 0.05;

/// Why a configuration has no partner in the other run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alone {
    /// No configuration is like it.
    Nothing,
    /// Several are like it.
    Several,
}

impl Display for Alone {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Alone::Nothing => "not in the other run",
            Alone::Several => "several in the other run",
        })
    }
}

/// The change from one configuration to another. One without a partner has no cases.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// The first configuration's values.
    pub before: Result<String, Alone>,
    /// The second configuration's values.
    pub after: Result<String, Alone>,
    /// The number of cases that both answered.
    pub cases: usize,
    /// Cases that were right and are wrong, with their new outcomes.
    pub lost: Vec<(String, String)>,
    /// Cases that were wrong and are right, with their old outcomes.
    pub won: Vec<(String, String)>,
    /// The number of cases that were right and still are.
    pub kept: usize,
    /// How many cases would show the difference, if it is as large as it was seen; `None` where none was seen.
    pub needed: Option<usize>,
    /// The difference of the shares of right cases, and its 95% interval. Cases that share a cluster count as fewer.
    pub difference: (f64, f64, f64),
    /// How many cases count as one, where some share a cluster: 1 where none do.
    pub design_effect: f64,
    /// The exact McNemar test's p-value. Cases that share a cluster count as fewer.
    pub p: f64,
    /// The same after Holm's correction over all comparisons.
    pub p_holm: f64,
}

impl Comparison {
    /// Both sides in words.
    pub fn sides(&self) -> [String; 2] {
        [&self.before, &self.after].map(|side| side.as_ref().map_or_else(ToString::to_string, Clone::clone))
    }

    /// Returns whether chance does not explain the difference.
    pub(crate) fn is_significant(&self) -> bool {
        self.p_holm < LEVEL
    }

    /// Returns whether it became significantly worse.
    pub fn is_drop(&self) -> bool {
        self.difference.0 < 0.0 && self.is_significant()
    }

    /// The shares of right cases before and after.
    pub(crate) fn shares(&self) -> [f64; 2] {
        [&self.lost, &self.won].map(|changed| (self.kept + changed.len()) as f64 / self.cases.max(1) as f64)
    }
}

/// Compares run `b` with run `a`. A single configuration is compared with a single one; several are paired when they
/// are the same, differ only in the model, or have the same values as names. A case with several answers counts as
/// right when more than half of them are.
///
/// # Errors
/// [`ErrorKind::Suite`](callwright::ErrorKind::Suite) when the runs' cases or scorers differ, or no configurations belong
/// together.
pub fn compare(a: &RunDirectory, b: &RunDirectory) -> Result<Vec<Comparison>> {
    let name = |run: &RunDirectory| run.path().display().to_string();
    if a.plan.suite_sha256 != b.plan.suite_sha256 {
        return Err(wrong(format!("{} and {} have other cases", name(a), name(b)))
            .hint(format!("{} can be compared case by case", Setting::SameCases)));
    }
    if a.plan.scorer != b.plan.scorer {
        return Err(wrong(format!(
            "{} was scored by version {}, {} by version {}",
            name(a),
            a.plan.scorer,
            name(b),
            b.plan.scorer
        ))
        .hint("`callwright bench rescore DIR` scores a run anew"));
    }
    let (before, after) = (Summary::new(a)?, Summary::new(b)?);
    let names = names(&a.plan.configurations, &b.plan.configurations);
    let comparisons: Vec<Comparison> = pairs(&configurations(&before), &configurations(&after))
        .into_iter()
        .map(|(old, new)| {
            one(old.and_then(|old| measured(&before, old)), new.and_then(|new| measured(&after, new)), &names)
        })
        .collect();
    if comparisons.iter().all(|comparison| comparison.cases == 0) {
        return Err(wrong(format!("{} and {} have no configurations that belong together", name(a), name(b)))
            .hint("configurations belong together when template, format and options are the same"));
    }
    Ok(corrected(comparisons))
}

/// Compares the first configuration of a run with each of its others.
///
/// # Errors
/// [`ErrorKind::Suite`](callwright::ErrorKind::Suite) when the run has only one, or was scored by another version.
pub fn compare_within(run: &RunDirectory) -> Result<Vec<Comparison>> {
    let summary = Summary::new(run)?;
    let comparisons = within(&summary);
    if comparisons.is_empty() {
        return Err(wrong(format!(
            "the run in {} has one configuration: nothing to compare it with",
            run.path().display()
        ))
        .hint("name another run, or give `callwright bench` an option of the matrix more than once"));
    }
    Ok(comparisons)
}

/// Compares the first configuration of a run with each of its others, if it has any.
pub fn within(summary: &Summary<'_>) -> Vec<Comparison> {
    let [first, others @ ..] = summary.configurations.as_slice() else { return Vec::new() };
    // Labels are unique within a run.
    let names = BTreeMap::new();
    corrected(others.iter().map(|other| one(Ok(first), Ok(other), &names)).collect())
}

/// Applies Holm's correction, and says how many cases would be enough with it.
fn corrected(mut comparisons: Vec<Comparison>) -> Vec<Comparison> {
    let level = LEVEL / comparisons.iter().filter(|one| one.cases > 0).count().max(1) as f64;
    for one in comparisons.iter_mut().filter(|one| one.cases > 0) {
        one.needed = pairs_needed(one.lost.len(), one.won.len(), one.cases, one.design_effect, level);
    }
    let mut tested: Vec<&mut Comparison> = comparisons.iter_mut().filter(|one| one.cases > 0).collect();
    let adjusted = holm(&tested.iter().map(|comparison| comparison.p).collect::<Vec<_>>());
    for (comparison, p) in tested.iter_mut().zip(adjusted) {
        comparison.p_holm = p;
    }
    comparisons
}

/// Distinct labels for the configurations of two runs, by id.
fn names(before: &[Configuration], after: &[Configuration]) -> BTreeMap<String, String> {
    let mut all: Vec<Configuration> = Vec::new();
    for one in before.iter().chain(after) {
        if all.iter().all(|other| other.id != one.id) {
            all.push(one.clone());
        }
    }
    all.iter().map(|one| one.id.clone()).zip(labels(&all)).collect()
}

fn configurations<'a>(summary: &Summary<'a>) -> Vec<&'a Configuration> {
    summary.configurations.iter().map(|one| one.configuration).collect()
}

/// Returns whether these configurations allow a comparison.
pub fn belong(before: &[Configuration], after: &[Configuration]) -> bool {
    let (before, after): (Vec<_>, Vec<_>) = (before.iter().collect(), after.iter().collect());
    pairs(&before, &after).iter().any(|(before, after)| before.is_ok() && after.is_ok())
}

/// A configuration, or the reason why there is none.
type Side<'c> = Result<&'c Configuration, Alone>;

fn pairs<'c>(before: &[&'c Configuration], after: &[&'c Configuration]) -> Vec<(Side<'c>, Side<'c>)> {
    if let ([before], [after]) = (before, after) {
        return vec![(Ok(before), Ok(after))];
    }
    let one_model = |side: &[&Configuration]| side.iter().map(|one| &one.model).collect::<BTreeSet<_>>().len() == 1;
    // With one model each, the models are compared.
    let from = usize::from(one_model(before) && one_model(after));
    let id = |one: &Configuration| one.id.clone();
    let all_but_the_model = |one: &Configuration| {
        let model = one.values()[..1 - from].concat();
        let (id, model_sha256, template) = (String::new(), String::new(), String::new());
        serde_json::to_string(&Configuration { id, model, model_sha256, template, ..one.clone() }).unwrap_or_default()
    };
    let values = |one: &Configuration| one.values()[from..].join("\n");
    let mut left = (before.to_vec(), after.to_vec());
    let mut partners: BTreeMap<&str, &Configuration> = BTreeMap::new();
    let keys: [&dyn Fn(&Configuration) -> String; 3] = [&id, &all_but_the_model, &values];
    for key in keys {
        let with = |side: &[&'c Configuration], wanted: &str| {
            side.iter().copied().filter(|one| key(one) == wanted).collect::<Vec<_>>()
        };
        let (old, new) = left.clone();
        for one in &old {
            let key = key(one);
            if let ([one], [other]) = (with(&old, &key).as_slice(), with(&new, &key).as_slice()) {
                partners.insert(&one.id, other);
                left.0.retain(|left| left.id != one.id);
                left.1.retain(|left| left.id != other.id);
            }
        }
    }
    let why = |one: &Configuration, side: &[&Configuration]| {
        let alike = side.iter().any(|other| values(one) == values(other));
        if alike { Alone::Several } else { Alone::Nothing }
    };
    let partner = |one: &Configuration| partners.get(one.id.as_str()).copied().ok_or_else(|| why(one, &left.1));
    let found = before.iter().map(|one| (Ok(*one), partner(one)));
    found.chain(left.1.iter().map(|other| (Err(why(other, &left.0)), Ok(*other)))).collect()
}

/// For each case whether it counts as right, the outcome that explains it best, and the cluster.
fn cases<'a>(one: &ConfigurationSummary<'a>) -> BTreeMap<&'a str, (bool, &'static str, &'a str)> {
    let mut counts: BTreeMap<&str, (usize, usize, &'static str, &str)> = BTreeMap::new();
    for sample in &one.samples {
        let Some(correct) = sample.counts("accuracy") else { continue };
        let (right, all, outcome, _) = counts.entry(&sample.case.id).or_insert((0, 0, "correct", &sample.case.cluster));
        *right += usize::from(correct);
        *all += 1;
        if !correct {
            *outcome = sample.scored.outcome.name();
        }
    }
    let decided = |(right, all, outcome, cluster)| (2 * right > all, outcome, cluster);
    counts.into_iter().map(|(case, counts)| (case, decided(counts))).collect()
}

/// A configuration's results, or the reason why there are none.
type Measured<'s, 'a> = Result<&'s ConfigurationSummary<'a>, Alone>;

fn measured<'s, 'a>(summary: &'s Summary<'a>, configuration: &Configuration) -> Measured<'s, 'a> {
    summary.configurations.iter().find(|one| one.configuration.id == configuration.id).ok_or(Alone::Nothing)
}

fn one(before: Measured<'_, '_>, after: Measured<'_, '_>, names: &BTreeMap<String, String>) -> Comparison {
    let (old, new) = (before.map(cases).unwrap_or_default(), after.map(cases).unwrap_or_default());
    let label = |side: Measured<'_, '_>| side.map(|one| names.get(&one.configuration.id).unwrap_or(&one.label).clone());
    let mut comparison = Comparison {
        before: label(before),
        after: label(after),
        cases: 0,
        lost: Vec::new(),
        won: Vec::new(),
        kept: 0,
        needed: None,
        difference: (0.0, 0.0, 0.0),
        design_effect: 1.0,
        p: 1.0,
        p_holm: 1.0,
    };
    let mut changes = Vec::new();
    for (case, (was_right, was, cluster)) in &old {
        let Some((is_right, is, _)) = new.get(case) else { continue };
        comparison.cases += 1;
        changes.extend((was_right != is_right).then_some((*cluster, *is_right)));
        match (was_right, is_right) {
            (true, false) => comparison.lost.push(((*case).to_owned(), (*is).to_owned())),
            (false, true) => comparison.won.push(((*case).to_owned(), (*was).to_owned())),
            (both, _) => comparison.kept += usize::from(*both),
        }
    }
    let (b, c) = (comparison.lost.len(), comparison.won.len());
    comparison.design_effect = paired_design_effect(changes);
    comparison.difference = paired_difference(b, c, comparison.cases, comparison.design_effect);
    comparison.p = clustered_mcnemar(b, c, comparison.design_effect);
    comparison
}
