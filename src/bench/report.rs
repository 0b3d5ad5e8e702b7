//! Reports: a run's figures for people, for programs and for continuous integration.
//!
//! | file | |
//! |---|---|
//! | `report.md` | the figures as Markdown |
//! | `report.json` | the same for programs; `json` describes it |
//! | `outcomes.jsonl` | the outcome of each answer, one a line |
//! | `junit.xml` | a test for each answer |
//! | `report.html` | one file for people: figures, and every answer with why it failed |

pub(crate) mod curve;
mod html;
pub(crate) mod json;
mod junit;
mod markdown;

use super::bfcl::reachable;
use super::summary::Summary;
use crate::error::Result;
use std::path::PathBuf;

pub(crate) use html::html;
pub(crate) use junit::junit;
pub(crate) use markdown::markdown;

impl Summary<'_> {
    /// Writes all reports into the run's directory and returns their paths: report.html, report.md, report.json,
    /// outcomes.jsonl and junit.xml.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) when one cannot be written.
    pub fn write_reports(&self) -> Result<Vec<PathBuf>> {
        let files = [
            ("report.md", markdown(self)),
            ("report.json", json::report(self)),
            ("outcomes.jsonl", json::outcomes(self)),
            ("junit.xml", junit(self)),
            ("report.html", html(self)?),
        ];
        files
            .into_iter()
            .map(|(name, text)| {
                self.run.write(name, &text)?;
                Ok(self.run.path().join(name))
            })
            .collect()
    }
}

/// A share in per cent, for tables.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1}%", 100.0 * share)
}

/// Seconds, in a suitable unit.
pub(crate) fn seconds(seconds: f64) -> String {
    if seconds < 1.0 { format!("{:.0} ms", seconds * 1000.0) } else { format!("{seconds:.2} s") }
}

/// A cost with three significant digits, at least two of them after the point.
pub(crate) fn amount(cost: f64) -> String {
    let places = if cost > 0.0 { (2.0 - cost.log10().floor()).clamp(2.0, 12.0) as usize } else { 2 };
    format!("{cost:.places$}")
}

/// Remarks that a reader of the figures needs.
fn remarks(summary: &Summary<'_>) -> Vec<String> {
    let mut remarks = vec![
        "Intervals are Wilson's at 95%. Where cases share a cluster (several answers to one case, real users' cases with \
         the same tools) they count as fewer: by the variance between clusters."
            .to_owned(),
        "Latencies leave the first answer of each session out. A prompt whose beginning was in the KV cache took less \
         time; the prefill rate counts only the tokens that were not."
            .to_owned(),
    ];
    let at_a_time = summary.run.plan.parallel_cases;
    if at_a_time > 1 {
        remarks.push(format!(
            "Up to {at_a_time} cases were asked at a time: latencies are those of an answer among others, and \
             sums in another order may now and then choose another token than a case asked alone."
        ));
    }
    let of_bfcl = || summary.run.suite.cases.iter().filter(|case| case.bfcl.is_some());
    let unreachable: Vec<&str> = of_bfcl().filter(|case| !reachable(case)).map(|case| case.id.as_str()).collect();
    if !unreachable.is_empty() {
        let all = of_bfcl().count();
        remarks.push(format!(
            "{} of BFCL's {all} cases accept only answers that break the tool's own schema ({}): whoever is held to the \
             schemas reaches {} at most.",
            unreachable.len(),
            unreachable.join(", "),
            percent((all - unreachable.len()) as f64 / all as f64)
        ));
    }
    if let Some(shard) = summary.run.plan.shard {
        remarks.push(format!("This is {shard}: it has {} of the cases.", summary.run.own_cases().len()));
    }
    if summary.run.lacking() > 0 {
        remarks.push(format!("The run is not complete: {} answers are missing.", summary.run.lacking()));
    }
    remarks
}
