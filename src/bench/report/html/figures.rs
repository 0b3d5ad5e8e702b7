//! The figures of report.html, as HTML and SVG.

use super::escaped;
use crate::bench::outcome::OUTCOMES;
use crate::bench::report::{percent, seconds, with_interval};
use crate::bench::stats::Proportion;
use crate::bench::summary::{ConfigurationSummary, SCORES, Summary};

/// Bars of a latency histogram.
const BINS: usize = 40;

/// A line with a dot for each configuration.
pub(super) fn intervals(summary: &Summary<'_>) -> String {
    let mut text = String::from("<div class=\"intervals\">\n");
    for one in &summary.configurations {
        let Some(score) = one.scores.get("accuracy") else { continue };
        let (share, low, high) = (100.0 * score.share(), 100.0 * score.low, 100.0 * score.high);
        text += &format!(
            "<span class=\"label\">{}</span><svg viewBox=\"0 0 400 20\" preserveAspectRatio=\"none\" role=\"img\" \
             aria-label=\"{}\">",
            escaped(&one.label),
            with_interval(&score)
        );
        for tick in (0..=100).step_by(25) {
            let x = 4 * tick;
            text += &format!("<line class=\"grid\" x1=\"{x}\" x2=\"{x}\" y1=\"0\" y2=\"20\"/>");
        }
        text += &format!(
            "<line class=\"interval\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"10\" y2=\"10\"/>\
             <line class=\"point\" x1=\"{3:.1}\" x2=\"{3:.1}\" y1=\"{2}\" y2=\"16\"/></svg>\
             <span class=\"number\"><b>{4}</b> <small>{low:.1}–{high:.1}, {5} of {6}</small></span>\n",
            4.0 * low,
            4.0 * high,
            4,
            4.0 * share,
            percent(score.share()),
            score.successes,
            score.trials
        );
    }
    let mark = |share: u8| {
        let unit = if share == 100 { "%" } else { "" };
        format!("<span style=\"left:{share}%\">{share}{unit}</span>")
    };
    text +=
        &format!("<span></span><div class=\"axis\">{}</div><span></span>\n", [0, 25, 50, 75, 100].map(mark).concat());
    text + "</div>\n<p class=\"note\">The share of correct answers, with its 95% interval.</p>\n"
}

/// A cell whose colour is its share.
fn cell(score: Option<Proportion>) -> String {
    let Some(score) = score else { return "<td class=\"none\">–</td>".to_owned() };
    let share = 100.0 * score.share();
    format!(
        "<td style=\"--share:{share:.0}%\" title=\"{} of {}, {}\">{share:.0}</td>",
        score.successes,
        score.trials,
        with_interval(&score)
    )
}

/// Configurations by categories.
pub(super) fn heat_map(summary: &Summary<'_>) -> String {
    if summary.categories.len() < 2 {
        return String::new();
    }
    let mut text = String::from("<div class=\"wide\"><table class=\"heat\"><tr><th></th><th>all</th>");
    for category in &summary.categories {
        text += &format!("<th>{}</th>", escaped(category));
    }
    text += "</tr>\n";
    for one in &summary.configurations {
        text += &format!("<tr><th>{}</th>{}", escaped(&one.label), cell(one.scores.get("accuracy")));
        for scores in &one.by_category {
            text += &cell(scores.get("accuracy"));
        }
        text += "</tr>\n";
    }
    text + "</table></div>\n<p class=\"note\">Correct answers in per cent; point at a cell for counts and interval.</p>\n"
}

/// Configurations by scores.
pub(super) fn scores(summary: &Summary<'_>) -> String {
    let shown: Vec<_> = SCORES
        .iter()
        .filter(|score| summary.configurations.iter().any(|one| one.scores.get(score.key).is_some()))
        .collect();
    let mut text = String::from("<div class=\"wide\"><table class=\"heat\"><tr><th></th>");
    for score in &shown {
        text += &format!("<th title=\"{}\">{}</th>", escaped(score.meaning), score.title);
    }
    text += "</tr>\n";
    for one in &summary.configurations {
        text += &format!("<tr><th>{}</th>", escaped(&one.label));
        for score in &shown {
            text += &cell(one.scores.get(score.key));
        }
        text += "</tr>\n";
    }
    text + "</table></div>\n<p class=\"note\">In per cent; point at a heading for what is counted.</p>\n"
}

/// A bar for each configuration, divided by outcomes; the correct ones first.
pub(super) fn outcomes(summary: &Summary<'_>) -> String {
    let rows = || OUTCOMES.iter().rev();
    let occurs = |index: usize| summary.configurations.iter().any(|one| one.outcomes[index] > 0);
    let mut text = String::from("<div class=\"bars\">\n");
    for one in &summary.configurations {
        text += &format!("<span class=\"label\">{}</span><div class=\"bar\">", escaped(&one.label));
        for row in rows() {
            let count = one.outcomes[row.outcome as usize];
            if count > 0 {
                text += &format!(
                    "<i style=\"flex-grow:{count};background:var(--{0})\" title=\"{0}: {count} of {1}\"></i>",
                    row.name,
                    one.samples.len()
                );
            }
        }
        text += &format!("</div><span class=\"number\"><small>{}</small></span>\n", flags(one));
    }
    text += "</div>\n<p class=\"legend\">";
    for row in rows().filter(|row| occurs(row.outcome as usize)) {
        let total: usize = summary.configurations.iter().map(|one| one.outcomes[row.outcome as usize]).sum();
        text += &format!("<span><i class=\"swatch\" style=\"background:var(--{0})\"></i>{0} {total}</span> ", row.name);
    }
    text + "</p>\n"
}

fn flags(one: &ConfigurationSummary<'_>) -> String {
    let mut flags = Vec::new();
    if one.repaired > 0 {
        flags.push(format!("{} repaired", one.repaired));
    }
    if one.text_around > 0 {
        flags.push(format!("{} with text beside calls", one.text_around));
    }
    flags.join(", ")
}

/// pass^k and unstable cases.
pub(super) fn repeats(summary: &Summary<'_>) -> String {
    let most = summary.configurations.iter().filter_map(|one| one.repeats.as_ref()).map(|r| r.pass_hat.len()).max();
    let Some(most) = most else { return String::new() };
    let mut text = String::from("<div class=\"wide\"><table class=\"figures\"><tr><th></th>");
    (1..=most).for_each(|k| text += &format!("<th>pass^{k}</th>"));
    text += "<th>unstable cases</th></tr>\n";
    for one in &summary.configurations {
        let Some(repeats) = &one.repeats else { continue };
        text += &format!("<tr><th>{}</th>", escaped(&one.label));
        for k in 0..most {
            text += &format!("<td>{}</td>", repeats.pass_hat.get(k).map_or("–".to_owned(), |share| percent(*share)));
        }
        text += &format!("<td>{}</td></tr>\n", with_interval(&repeats.unstable));
    }
    text + "</table></div>\n<p class=\"note\">pass^k: the estimated probability that k answers to a case are all correct. \
            Unstable: cases with right and wrong answers.</p>\n"
}

/// A histogram for each configuration, and the quantiles.
pub(super) fn latencies(summary: &Summary<'_>) -> String {
    let timed = || summary.configurations.iter().filter_map(|one| Some((one, one.latency.as_ref()?)));
    let totals = || timed().flat_map(|(_, latency)| latency.totals.iter().copied()).filter(|total| *total > 0.0);
    let (low, high) = totals().fold((f64::MAX, 0.0f64), |(low, high), total| (low.min(total), high.max(total)));
    if high == 0.0 {
        return String::new();
    }
    // Latencies span orders of magnitude.
    let (low, high) = (low.ln(), high.ln().max(low.ln() + 0.01));
    let mut text = String::from(
        "<div class=\"wide\"><table class=\"figures\"><tr><th></th><th>end to end</th><th>p50</th><th>p95</th><th>p99</th>\
         <th>first token p50</th><th>p95</th><th>prefill</th><th>decode</th><th>tokens per correct</th></tr>\n",
    );
    for (one, latency) in timed() {
        let mut bins = [0usize; BINS];
        for total in latency.totals.iter().filter(|total| **total > 0.0) {
            let place = (total.ln() - low) / (high - low) * BINS as f64;
            bins[(place as usize).min(BINS - 1)] += 1;
        }
        let most = bins.iter().copied().max().unwrap_or(1).max(1);
        let mut bars = String::new();
        for (index, count) in bins.iter().enumerate().filter(|(_, count)| **count > 0) {
            let height = (30.0 * *count as f64 / most as f64).max(1.0);
            bars +=
                &format!("<rect x=\"{}\" y=\"{:.1}\" width=\"3.4\" height=\"{height:.1}\"/>", 4 * index, 30.0 - height);
        }
        let rate = |rate: Option<f64>| rate.map_or("–".to_owned(), |rate| format!("{rate:.0}/s"));
        text += &format!(
            "<tr><th>{}</th><td><svg class=\"histogram\" viewBox=\"0 0 160 30\" role=\"img\" aria-label=\"distribution\">\
             {bars}</svg></td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
            escaped(&one.label),
            seconds(latency.total.0),
            seconds(latency.total.1),
            latency.p99.map_or("–".to_owned(), seconds),
            seconds(latency.first_token.0),
            seconds(latency.first_token.1),
            rate(latency.prefill_rate),
            rate(latency.decode_rate),
            one.tokens_per_correct.map_or("–".to_owned(), |tokens| format!("{tokens:.1}")),
        );
    }
    text + &format!(
        "</table></div>\n<p class=\"note\">The distributions share an axis, from {} to {}, logarithmic. Rates are tokens.</p>\n",
        seconds(low.exp()),
        seconds(high.exp())
    )
}
