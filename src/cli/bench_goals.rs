//! What a run of the benchmark has to reach: thresholds, and a baseline that it is not worse than.

use super::bench::tell_lacking;
use super::bench_table::comparison;
use super::{DONE, FAILED, THRESHOLD, notice, say};
use anyhow::Result;
use callwright::error::nearest;
use callwright::{Error, ErrorKind};
use callwright_bench::compare::{belong, compare};
use callwright_bench::directory::{Plan, RunDirectory};
use callwright_bench::report::percent;
use callwright_bench::score::SCORER;
use callwright_bench::suite::Suite;
use callwright_bench::summary::{SCORES, Summary};
use clap::Args;
use std::path::{Path, PathBuf};

/// What a run has to reach.
#[derive(Args)]
pub struct Goals {
    /// Exit with 3 if a configuration's score is below SHARE; the score is accuracy, or one of report.json's keys
    #[arg(long, value_name = "SHARE[:SCORE]", value_parser = threshold, help_heading = "Output")]
    pub fail_under: Vec<(f64, &'static str)>,

    /// Exit with 3 if a configuration is significantly worse than in the run in DIR
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub baseline: Option<PathBuf>,
}

/// `0.95` or `0.95:delivered`.
fn threshold(text: &str) -> Result<(f64, &'static str), String> {
    let (share, key) = text.split_once(':').unwrap_or((text, "accuracy"));
    let share =
        share.parse().ok().filter(|share| (0.0..=1.0).contains(share)).ok_or("the share is no number from 0 to 1")?;
    let keys = || SCORES.iter().map(|score| score.key);
    let known = keys().find(|known| *known == key);
    Ok((
        share,
        known.ok_or_else(|| match nearest(key, keys()) {
            Some(near) => format!("there is no score {key:?}; did you mean {near}?"),
            None => format!("there is no score {key:?}; the scores are {}", keys().collect::<Vec<_>>().join(", ")),
        })?,
    ))
}

/// The exit status of a complete run.
pub fn judged(goals: &Goals, baseline: Option<&RunDirectory>, summary: &Summary<'_>) -> Result<u8> {
    let met = thresholds(goals, summary) & against(baseline, summary.run)?;
    let whole = tell_broken(summary.run);
    Ok(match (met, whole) {
        (false, _) => THRESHOLD,
        (true, false) => FAILED,
        (true, true) => DONE,
    })
}

/// Reports answers that failed; true if none did.
fn tell_broken(directory: &RunDirectory) -> bool {
    let broken = directory.samples.iter().filter(|sample| sample.broke());
    let Some(first) = broken.clone().next() else { return true };
    let reason = first.failure.as_ref().map_or("", |failure| failure.message.as_str());
    let (count, case, out) = (broken.count(), &first.case, directory.path().display());
    notice(&format!(
        "{count} of {} answers broke, which says nothing of the model: no score counts them; the first, to {case}: {reason}; \
         `callwright bench --resume {out}` asks for them again",
        directory.samples.len()
    ));
    false
}

/// Returns whether all configurations reach the thresholds of --fail-under.
fn thresholds(goals: &Goals, summary: &Summary<'_>) -> bool {
    let mut met = true;
    for (wanted, key) in &goals.fail_under {
        for one in &summary.configurations {
            let score = one.scores.get(key);
            if score.is_none_or(|score| score.share() < *wanted) {
                // Rounded, both may look equal.
                let reached = score.map_or("nothing to count".to_owned(), |score| {
                    format!("{} ({} of {})", percent(score.share()), score.successes, score.trials)
                });
                notice(&format!("{}: {key} is below {}: {reached}", one.label, percent(*wanted)));
                met = false;
            }
        }
    }
    met
}

fn no_baseline(path: &Path, what: &str) -> Error {
    Error::new(ErrorKind::Suite, format!("the run in {} {what}", path.display()))
}

/// Opens the run in --baseline, and fails early where [`compare`] would fail.
pub fn baseline(path: &Path, suite: &Suite) -> Result<RunDirectory> {
    let run = RunDirectory::open(path)?;
    let wrong = |what: &str| no_baseline(path, what);
    if run.plan.suite_sha256 != suite.sha256() {
        return Err(wrong("has other cases: it is no baseline for these")
            .hint("a baseline is a run of the same suite with the same --limit")
            .into());
    }
    if run.plan.scorer != SCORER {
        return Err(wrong("was scored by another version")
            .hint("`callwright bench rescore DIR` scores it anew")
            .into());
    }
    Ok(run)
}

/// Checks that some configurations of a plan can be compared with a baseline.
pub fn check_baseline(baseline: Option<&RunDirectory>, plan: &Plan) -> Result<()> {
    match baseline.filter(|run| !belong(&run.plan.configurations, &plan.configurations)) {
        None => Ok(()),
        Some(baseline) => Err(no_baseline(baseline.path(), "has no configurations that belong to these")
            .hint("configurations belong together when template, format and options are the same")
            .into()),
    }
}

/// Prints the comparison with the baseline; true if nothing is significantly worse.
fn against(baseline: Option<&RunDirectory>, run: &RunDirectory) -> Result<bool> {
    let Some(baseline) = baseline else { return Ok(true) };
    let comparisons = compare(baseline, run)?;
    tell_lacking(baseline);
    for one in &comparisons {
        say(format_args!("{}", comparison(one)));
    }
    Ok(!comparisons.iter().any(|one| one.is_drop()))
}
