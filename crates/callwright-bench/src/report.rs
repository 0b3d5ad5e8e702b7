//! Reports: a run's figures for people, for programs and for continuous integration.
//!
//! | file | |
//! |---|---|
//! | `report.md` | the figures as Markdown |
//! | `report.json` | the same for programs; `json` describes it |
//! | `outcomes.jsonl` | the outcome of each answer, one a line |
//! | `junit.xml` | a test for each answer |
//! | `report.html` | one file for people: figures, and every answer with why it failed |
//!
//! `bench report --matrix` makes one page of several runs: see `matrix`. `callwright certify` adds `certify.md`, `certify.json`,
//! `certify.svg` and `certify.html`: see `card`.

pub mod card;
pub mod curve;
mod data;
mod histogram;
pub mod json;
mod junit;
pub mod matrix;

use super::bfcl::reachable;
use super::summary::{ConfigurationSummary, SCORES, Summary};
use super::verdict::advised;
use callwright::error::{Error, ErrorKind, Result};
use minijinja::{AutoEscape, Environment, UndefinedBehavior, Value, context};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::path::PathBuf;

pub(crate) use data::said;
pub(crate) use junit::junit;

const STYLE: &str = include_str!("report/style.css");

impl Summary<'_> {
    /// Writes all reports into the run's directory and returns their paths: report.html, report.md, report.json,
    /// outcomes.jsonl and junit.xml.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] when one cannot be written.
    pub fn write_reports(&self) -> Result<Vec<PathBuf>> {
        let files = [
            ("report.md", markdown(self)?),
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

/// report.md
///
/// # Errors
/// [`ErrorKind::Template`] when the report's own template fails, which would be a defect of this library.
pub(crate) fn markdown(summary: &Summary<'_>) -> Result<String> {
    render("report.md", include_str!("report/report.md.jinja"), figures(summary))
}

/// report.html
///
/// # Errors
/// Those of [`markdown`].
pub(crate) fn html(summary: &Summary<'_>) -> Result<String> {
    // In a script element nothing is escaped, and only this character could end it.
    let data = data::data(summary).to_string().replace('<', "\\u003c");
    let page = context! {
        style => Value::from_safe_string(STYLE.to_owned()),
        script => Value::from_safe_string(include_str!("report/script.js").to_owned()),
        data => Value::from_safe_string(data),
        axis => histogram::axis(summary).map(|(low, high)| (low.exp(), high.exp())),
        ..figures(summary)
    };
    render("report.html", include_str!("report/report.html.jinja"), page)
}

/// Renders a page or, without escaping and the lines of statements, a Markdown file.
fn render(name: &str, template: &str, page: Value) -> Result<String> {
    let plain = name.ends_with(".md");
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(move |_| if plain { AutoEscape::None } else { AutoEscape::Html });
    environment.set_trim_blocks(plain);
    environment.set_lstrip_blocks(plain);
    environment.set_keep_trailing_newline(plain);
    environment.add_filter("percent", percent);
    environment.add_filter("seconds", seconds);
    environment.add_filter("amount", amount);
    environment.add_filter("bytes", bytes);
    environment.add_filter("plain", |number: f64| number.to_string());
    environment.add_filter("fixed", |number: f64, digits: usize| format!("{number:.digits$}"));
    environment.add_filter("line", |text: &str| text.replace(char::is_control, " "));
    environment.add_filter("text", text);
    environment.add_filter("cell", |cell: &str| text(cell).replace('|', "\\|"));
    let parts = [
        ("curve.svg", include_str!("report/curve.svg.jinja")),
        ("cells.html", include_str!("report/cells.html.jinja")),
        (name, template),
    ];
    let added = parts.into_iter().try_for_each(|(name, text)| environment.add_template(name, text));
    let rendered = added.and_then(|()| environment.get_template(name)?.render(page));
    rendered.map_err(|error| Error::new(ErrorKind::Template, format!("cannot render {name}: {error:#}")))
}

/// A text in Markdown that may come from elsewhere, such as the name of a model or a case: on one line, and without HTML.
fn text(text: &str) -> String {
    text.replace(char::is_control, " ").replace('&', "&amp;").replace('<', "&lt;")
}

/// Returns what the templates take: all of report.json, and what only people need.
fn figures(summary: &Summary<'_>) -> Value {
    let plan = &summary.run.plan;
    let has = |key: &str| summary.configurations.iter().any(|one| one.scores.get(key).is_some());
    let axis = histogram::axis(summary);
    let report = json::figures(summary);
    let whole = |(one, figures): (&ConfigurationSummary<'_>, &serde_json::Value)| {
        context! {
            values => one.configuration.values(),
            select_tools => one.configuration.select_tools,
            repairs => one.repairs.iter().map(|(kind, count)| (kind.describe(), count)).collect::<Vec<_>>(),
            bars => one.latency.as_ref().zip(axis).map(|(latency, axis)| histogram::bars(&latency.totals, axis)),
            curve => one.calibration().map(curve::figures),
            ..Value::from_serialize(figures)
        }
    };
    let configurations = report["configurations"].as_array().into_iter().flatten();
    context! {
        command => if plan.command.is_empty() { String::new() } else { plan.command_line() },
        categories => summary.categories,
        definitions => SCORES,
        shown_scores => SCORES.iter().filter(|score| has(score.key)).collect::<Vec<_>>(),
        remarks => remarks(summary),
        advised => advised(summary),
        configurations => summary.configurations.iter().zip(configurations).map(whole).collect::<Vec<_>>(),
        ..Value::from_serialize(&report)
    }
}

/// A text as a part of an address.
pub(crate) fn escaped(text: &str) -> String {
    const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');
    utf8_percent_encode(text, RESERVED).to_string()
}

/// A share in per cent, for tables.
pub fn percent(share: f64) -> String {
    format!("{:.1}%", 100.0 * share)
}

/// Seconds, in a suitable unit.
pub fn seconds(seconds: f64) -> String {
    if seconds < 1.0 { format!("{:.0} ms", seconds * 1000.0) } else { format!("{seconds:.2} s") }
}

/// A size in decimal units, with about three digits.
pub fn bytes(count: u64) -> String {
    let (number, unit) = match count {
        0..1_000_000 => (count as f64 / 1e3, "kB"),
        1_000_000..1_000_000_000 => (count as f64 / 1e6, "MB"),
        _ => (count as f64 / 1e9, "GB"),
    };
    let digits = usize::from(number < 99.95);
    format!("{number:.digits$} {unit}")
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
