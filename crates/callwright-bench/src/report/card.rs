//! The card of `callwright certify`: which files of a model call tools as well as the reference.

use super::{STYLE, curve, render};
use crate::certify::{Against, Figures, MARGIN, Verdict};
use crate::compare::Comparison;
use crate::stats::Proportion;
use crate::summary::ConfigurationSummary;
use crate::verdict::{p_value, sentence};
use callwright::error::{Error, ErrorKind, Result};
use minijinja::{Value, context};
use serde::Serialize;

/// A card; certify.json is one of these.
#[derive(Debug, Serialize)]
pub struct Card {
    /// The version of this description.
    pub callwright_certify: u32,
    /// The program's version.
    pub callwright: String,
    /// What the figures allow to say, the most important first.
    pub verdict: Vec<String>,
    /// The suite's name.
    pub suite: String,
    /// The command.
    pub command: String,
    /// The date.
    pub date: String,
    /// The seconds that it took.
    pub seconds: f64,
    /// A row for each file, the reference first.
    pub files: Vec<Row>,
}

/// What is known of one file.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// A short name, unique on the card.
    pub label: String,
    /// The file, as it was named.
    pub model: String,
    /// The file's size in bytes.
    pub file_size: u64,
    /// How its weights are stored.
    pub quantization: Option<String>,
    /// The type of the KV cache's keys and values, where that is what differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_type: Option<String>,
    /// Bytes of memory that it took, with the mapped file.
    pub memory: Option<u64>,
    /// The chat template's name.
    pub template: String,
    /// The tool-call format's name.
    pub format: String,
    /// What `template check` finds missing; nothing where the template is sound.
    pub faults: Vec<String>,
    /// What was measured without generation.
    pub figures: Figures,
    /// How that compares with the reference; `None` for the reference.
    pub against: Option<Against>,
    /// The share of correct answers, where answers were generated.
    pub correct: Option<Proportion>,
    /// The curve of the decision to call in these answers.
    #[serde(skip)]
    pub curve: Option<Value>,
    /// How these compare with the reference's, in words.
    pub answers: Option<String>,
    /// Whether they are significantly fewer.
    pub fewer_correct: bool,
    /// `reference`, `better`, `as good`, `worse` or `unknown`.
    pub word: &'static str,
    /// The same in a sentence.
    pub sentence: String,
}

impl Row {
    /// Returns whether it is worse than the reference by either measurement.
    pub fn is_worse(&self) -> bool {
        self.word == "worse"
    }

    /// Takes the figures of the generated answers.
    pub fn answered(&mut self, answers: &ConfigurationSummary<'_>) {
        self.correct = answers.scores.get("accuracy");
        self.curve = answers.calibration().map(curve::figures);
    }

    /// Compares the row with the reference by both measurements.
    pub fn judge(&mut self, reference: &str, against: Option<Against>, answers: Option<&Comparison>) {
        self.fewer_correct = answers.is_some_and(Comparison::is_drop);
        self.answers = answers.map(sentence);
        self.word = match against.as_ref().map(|one| one.verdict) {
            _ if self.fewer_correct => "worse",
            Some(Verdict::Worse) => "worse",
            Some(Verdict::Better) => "better",
            Some(Verdict::AsGood) => "as good",
            Some(Verdict::Unknown) | None => "unknown",
        };
        self.sentence = match &against {
            Some(one) => likelihood(&self.label, reference, one),
            None => format!("{} has no case in common with {reference}.", self.label),
        };
        if self.fewer_correct || against.as_ref().is_none_or(|one| one.verdict == Verdict::Unknown) {
            self.sentence.extend(self.answers.iter().map(|answers| format!(" {answers}")));
        }
        self.against = against;
    }
}

/// What the likelihood of right calls allows to say of a file.
fn likelihood(label: &str, reference: &str, one: &Against) -> String {
    let p = p_value(one.p_holm);
    let change = one.change;
    match one.verdict {
        Verdict::Worse => format!("{label} is worse than {reference}: a right call is {} ({p}).", times(change.mean)),
        Verdict::Better => format!("{label} is better than {reference}: a right call is {} ({p}).", times(change.mean)),
        Verdict::AsGood if change.low >= 0.0 => format!("{label} is as good as {reference}."),
        Verdict::AsGood => format!("{label} is as good as {reference}: a right call is at most {}.", times(change.low)),
        Verdict::Unknown => format!(
            "{label} may or may not be as good as {reference}: a right call may be {} or {}. A larger --limit says more.",
            times(change.low),
            times(change.high)
        ),
    }
}

/// A factor, from its logarithm, in words.
fn times(log: f64) -> String {
    let (factor, way) = (log.abs().exp(), if log < 0.0 { "less" } else { "more" });
    let change = if log < 0.0 { 1.0 - 1.0 / factor } else { factor - 1.0 };
    if factor < 3.0 {
        format!("{:.0}% {way} likely", 100.0 * change)
    } else {
        format!("{factor:.0} times {way} likely")
    }
}

/// The headline, and what follows from it for each file; `order` is a sentence that ranks the files, if there are several.
pub fn verdict(rows: &[Row], order: Option<String>) -> Vec<String> {
    let labels =
        |word: &str| rows.iter().filter(|row| row.word == word).map(|row| row.label.as_str()).collect::<Vec<_>>();
    let Some(reference) = rows.first() else { return Vec::new() };
    let mut parts = Vec::new();
    for (word, before) in [
        ("better", "Better than"),
        ("as good", "As good as"),
        ("worse", "Worse than"),
        ("unknown", "Too few cases to judge against"),
    ] {
        let named = labels(word);
        if !named.is_empty() {
            parts.push(format!("{before} {}: {}.", reference.label, named.join(", ")));
        }
    }
    let Figures { exact, token_probability, .. } = &reference.figures;
    let own = format!(
        "{} would write {:.0}% of the right calls to the letter, and finds each of their tokens {:.1}% likely, on average.",
        reference.label,
        100.0 * exact.share(),
        100.0 * token_probability
    );
    let mut sentences = if parts.is_empty() { Vec::new() } else { vec![parts.join(" ")] };
    sentences.push(own);
    sentences.extend(order);
    sentences.extend(rows.iter().skip(1).map(|row| row.sentence.clone()));
    for row in rows.iter().filter(|row| !row.faults.is_empty()) {
        sentences.push(format!("{}: its chat template is not sound: {}.", row.label, row.faults.join("; ")));
    }
    sentences
}

/// The files of a card with their names: certify.json, certify.md, certify.svg and certify.html.
///
/// # Errors
/// [`ErrorKind::Template`] when a template of the card fails, which would be a defect of this library.
pub fn files(card: &Card) -> Result<[(&'static str, String); 4]> {
    let json = serde_json::to_string_pretty(card)
        .map_err(|error| Error::new(ErrorKind::Template, format!("cannot write certify.json: {error}")))?;
    let figures = context! { margin => MARGIN, rows => card.files.len(), ..Value::from_serialize(card) };
    let drawing = render("certify.svg", include_str!("certify.svg.jinja"), figures.clone())?;
    let page = context! {
        style => Value::from_safe_string(STYLE.to_owned()),
        drawing => Value::from_safe_string(drawing.clone()),
        curves => card.files.iter().filter_map(|row| Some((&row.label, row.curve.clone()?))).collect::<Vec<_>>(),
        ..figures.clone()
    };
    Ok([
        ("certify.json", json + "\n"),
        ("certify.md", render("certify.md", include_str!("certify.md.jinja"), figures)?),
        ("certify.svg", drawing),
        ("certify.html", render("certify.html", include_str!("certify.html.jinja"), page)?),
    ])
}
