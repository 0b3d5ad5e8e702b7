//! The figures of report.html, as the template takes them.

use crate::bench::outcome::OUTCOMES;
use crate::bench::report::{amount, curve};
use crate::bench::stats::Proportion;
use crate::bench::summary::{ConfigurationSummary, Latency, SCORES, Summary};
use minijinja::{Value, context};
use std::collections::BTreeMap;

/// Bars of a latency histogram.
const BINS: usize = 40;

pub(super) fn figures(summary: &Summary<'_>) -> Value {
    let all = &summary.configurations;
    let repeats = all.iter().filter_map(|one| one.repeats.as_ref()).map(|repeats| repeats.pass_hat.len()).max();
    let shown_scores: Vec<_> =
        SCORES.iter().filter(|score| all.iter().any(|one| one.scores.get(score.key).is_some())).collect();
    let total = |index: usize| all.iter().map(|one| one.outcomes[index]).sum();
    context! {
        categories => summary.categories,
        rows => all.iter().map(row).collect::<Vec<_>>(),
        shown_scores => shown_scores,
        outcomes => outcomes(total),
        most_repeats => repeats.unwrap_or(0),
        latencies => latencies(summary),
        costs => costs(all),
        decisions => decisions(all),
    }
}

fn row(one: &ConfigurationSummary<'_>) -> Value {
    let scores: BTreeMap<_, _> = one.scores.iter().map(|(score, value)| (score.key, value.map(share))).collect();
    let by_category: Vec<_> = one.by_category.iter().map(|scores| scores.get("accuracy").map(share)).collect();
    let mut flags = Vec::new();
    if one.repaired > 0 {
        flags.push(format!("{} repaired", one.repaired));
    }
    if one.text_around > 0 {
        flags.push(format!("{} with text beside calls", one.text_around));
    }
    if one.example_tools > 0 {
        flags.push(format!("{} that call a tool of the prompt's examples", one.example_tools));
    }
    let repeats = one.repeats.as_ref();
    context! {
        label => one.label,
        answers => one.samples.len(),
        accuracy => one.scores.get("accuracy").map(share),
        scores => scores,
        by_category => by_category,
        outcomes => outcomes(|index| one.outcomes[index]),
        flags => flags,
        repeats => repeats.map(|it| context! { pass_hat => it.pass_hat, unstable => share(it.unstable) }),
    }
}

fn share(score: Proportion) -> Value {
    let Proportion { successes, trials, low, high } = score;
    context! { share => score.share(), low, high, successes, trials }
}

/// The outcomes that occur, the correct ones first.
fn outcomes(count: impl Fn(usize) -> usize) -> Vec<Value> {
    let counted = OUTCOMES.iter().rev().map(|row| (row.name, count(row.outcome as usize)));
    counted.filter(|(_, count)| *count > 0).map(|(name, count)| context! { name, count }).collect()
}

/// A histogram for each configuration, and the quantiles; `None` where nothing was timed.
fn latencies(summary: &Summary<'_>) -> Option<Value> {
    let timed = || summary.configurations.iter().filter_map(|one| Some((one, one.latency.as_ref()?)));
    let totals = || timed().flat_map(|(_, latency)| latency.totals.iter().copied()).filter(|total| *total > 0.0);
    let (low, high) = totals().fold((f64::MAX, 0.0f64), |(low, high), total| (low.min(total), high.max(total)));
    if high == 0.0 {
        return None;
    }
    // Latencies span orders of magnitude.
    let (low, high) = (low.ln(), high.ln().max(low.ln() + 0.01));
    let row = |(one, latency): (&ConfigurationSummary<'_>, &Latency)| {
        context! {
            label => one.label,
            bars => bars(&latency.totals, low, high),
            latency => context! {
                total => latency.total,
                p99 => latency.p99,
                first_token => latency.first_token,
                prefill_rate => latency.prefill_rate,
                decode_rate => latency.decode_rate,
            },
            tokens_per_correct => one.tokens_per_correct,
        }
    };
    Some(context! { rows => timed().map(row).collect::<Vec<_>>(), low => low.exp(), high => high.exp() })
}

/// What the answers cost, where there are prices.
fn costs(all: &[ConfigurationSummary<'_>]) -> Vec<Value> {
    let row = |one: &ConfigurationSummary<'_>| {
        let cost = one.cost?;
        let per_correct = cost.per_correct.map(amount);
        Some(
            context! { label => one.label, all => amount(cost.total), one => amount(cost.per_answer), correct => per_correct },
        )
    };
    all.iter().filter_map(row).collect()
}

/// The curves of the decision to call, where it was measured.
fn decisions(all: &[ConfigurationSummary<'_>]) -> Vec<Value> {
    let curve = |one: &ConfigurationSummary<'_>| {
        let figures = curve::figures(&one.calibration()?);
        Some(context! { label => one.label, curve => figures })
    };
    all.iter().filter_map(curve).collect()
}

/// The bars of a histogram whose axis goes from `low` to `high`, both logarithms.
fn bars(totals: &[f64], low: f64, high: f64) -> Vec<Value> {
    let mut bins = [0usize; BINS];
    for total in totals.iter().filter(|total| **total > 0.0) {
        let place = (total.ln() - low) / (high - low) * BINS as f64;
        bins[(place as usize).min(BINS - 1)] += 1;
    }
    let most = bins.iter().copied().max().unwrap_or(1).max(1);
    let filled = bins.iter().enumerate().filter(|(_, count)| **count > 0);
    let bar = |(index, count): (usize, &usize)| {
        context! { x => 4 * index, height => (30.0 * *count as f64 / most as f64).max(1.0) }
    };
    filled.map(bar).collect()
}
