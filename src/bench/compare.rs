//! Two runs beside each other, paired by case.

use super::directory::RunDirectory;
use super::stats::{holm, mcnemar, paired_difference};
use super::suite::wrong;
use super::summary::{ConfigurationSummary, Summary};
use crate::error::Result;
use std::collections::BTreeMap;

/// The level at which a difference counts as one.
pub const LEVEL: f64 = 0.05;

/// What changed from one configuration to another.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// What was before.
    pub before: String,
    /// What is now.
    pub after: String,
    /// Cases that both have answers to.
    pub cases: usize,
    /// Cases that were right and are wrong, with what they are now.
    pub lost: Vec<(String, String)>,
    /// Cases that were wrong and are right, with what they were.
    pub won: Vec<(String, String)>,
    /// The difference of the shares of right cases, and its 95% interval.
    pub difference: (f64, f64, f64),
    /// The exact McNemar test's p-value.
    pub p: f64,
    /// The same after Holm's correction over all comparisons.
    pub p_holm: f64,
}

impl Comparison {
    /// Whether it became worse, beyond what chance explains.
    pub fn is_drop(&self) -> bool {
        self.difference.0 < 0.0 && self.p_holm < LEVEL
    }
}

/// Compares run `b` with run `a`: configurations that are the same but for the model, where there is more than one; a
/// single one with a single one. A case with several answers counts as right where more than half of them are.
///
/// # Errors
/// [`ErrorKind::Suite`](crate::ErrorKind::Suite) when the runs' cases or scorers differ, or no configurations belong
/// together.
pub fn compare(a: &RunDirectory, b: &RunDirectory) -> Result<Vec<Comparison>> {
    let name = |run: &RunDirectory| run.path().display().to_string();
    if a.plan.suite_sha256 != b.plan.suite_sha256 {
        return Err(wrong(format!("{} and {} have other cases", name(a), name(b)))
            .hint("only runs of the same suite with the same --limit can be compared case by case"));
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
    let mut comparisons: Vec<Comparison> = pairs(&before, &after)
        .into_iter()
        .map(|(before, after)| one(before, after))
        .filter(|comparison| comparison.cases > 0)
        .collect();
    if comparisons.is_empty() {
        return Err(wrong(format!("{} and {} have no configurations that belong together", name(a), name(b)))
            .hint("configurations belong together when template, format and options are the same"));
    }
    let adjusted = holm(&comparisons.iter().map(|comparison| comparison.p).collect::<Vec<_>>());
    for (comparison, p) in comparisons.iter_mut().zip(adjusted) {
        comparison.p_holm = p;
    }
    Ok(comparisons)
}

type Pair<'s, 'a> = (&'s ConfigurationSummary<'a>, &'s ConfigurationSummary<'a>);

fn pairs<'s, 'a>(before: &'s Summary<'a>, after: &'s Summary<'a>) -> Vec<Pair<'s, 'a>> {
    if let ([before], [after]) = (before.configurations.as_slice(), after.configurations.as_slice()) {
        return vec![(before, after)];
    }
    let values = |one: &ConfigurationSummary<'_>| one.configuration.values();
    let models = |summary: &Summary<'_>| {
        let mut models: Vec<String> = summary.configurations.iter().map(|one| values(one)[0].clone()).collect();
        models.dedup();
        models.len()
    };
    // With one model each, the models are what is compared.
    let from = usize::from(models(before) == 1 && models(after) == 1);
    let mut found = Vec::new();
    for one in &before.configurations {
        let partner = after.configurations.iter().find(|other| values(one)[from..] == values(other)[from..]);
        found.extend(partner.map(|other| (one, other)));
    }
    found
}

/// By case: whether it counts as right, and the outcome that most tells why.
fn cases<'a>(one: &ConfigurationSummary<'a>) -> BTreeMap<&'a str, (bool, &'static str)> {
    let mut counts: BTreeMap<&str, (usize, usize, &'static str)> = BTreeMap::new();
    for sample in &one.samples {
        let correct = sample.counts("accuracy") == Some(true);
        let (right, all, outcome) = counts.entry(&sample.case.id).or_insert((0, 0, "correct"));
        *right += usize::from(correct);
        *all += 1;
        if !correct {
            *outcome = sample.scored.outcome.name();
        }
    }
    counts.into_iter().map(|(case, (right, all, outcome))| (case, (2 * right > all, outcome))).collect()
}

fn one(before: &ConfigurationSummary<'_>, after: &ConfigurationSummary<'_>) -> Comparison {
    let (old, new) = (cases(before), cases(after));
    let mut comparison = Comparison {
        before: before.label.clone(),
        after: after.label.clone(),
        cases: 0,
        lost: Vec::new(),
        won: Vec::new(),
        difference: (0.0, 0.0, 0.0),
        p: 1.0,
        p_holm: 1.0,
    };
    for (case, (was_right, was)) in &old {
        let Some((is_right, is)) = new.get(case) else { continue };
        comparison.cases += 1;
        match (was_right, is_right) {
            (true, false) => comparison.lost.push(((*case).to_owned(), (*is).to_owned())),
            (false, true) => comparison.won.push(((*case).to_owned(), (*was).to_owned())),
            _ => {}
        }
    }
    let (b, c) = (comparison.lost.len(), comparison.won.len());
    comparison.difference = paired_difference(b, c, comparison.cases);
    comparison.p = mcnemar(b, c);
    comparison
}
