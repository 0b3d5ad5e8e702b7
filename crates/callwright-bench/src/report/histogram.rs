//! The histograms of latencies in report.html.

use crate::summary::Summary;
use minijinja::{Value, context};

/// The bars of a histogram.
const BINS: usize = 40;

/// The axis of all configurations' histograms, as logarithms, because latencies span orders of magnitude; `None` where
/// nothing was timed.
pub(super) fn axis(summary: &Summary<'_>) -> Option<(f64, f64)> {
    let timed = summary.configurations.iter().filter_map(|one| one.latency.as_ref());
    let totals = timed.flat_map(|latency| &latency.totals).filter(|total| **total > 0.0);
    let (low, high) = totals.fold((f64::MAX, 0.0f64), |(low, high), total| (low.min(*total), high.max(*total)));
    (high > 0.0).then(|| (low.ln(), high.ln().max(low.ln() + 0.01)))
}

/// The bars of one configuration.
pub(super) fn bars(totals: &[f64], (low, high): (f64, f64)) -> Vec<Value> {
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
