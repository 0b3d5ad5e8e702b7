//! The figures of a run, for all reports.

use super::calibrate::{Calibration, FOLDS, Goal, Measured, measured};
use super::configuration::{Configuration, labels};
use super::directory::RunDirectory;
use super::outcome::{OUTCOMES, Outcome};
use super::run::read_format;
use super::sample::Sample;
use super::score::{SCORER, Scored, example_tool, score};
use super::stats::{Proportion, clustered, pass_hat, percentile};
use super::suite::{Case, wrong};
use callwright::error::Result;
use callwright::parse::event::RepairKind;
use serde::{Serialize, Serializer};
use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap};

/// With fewer cases of either kind, a report has no curve of the decision to call.
const FEWEST_FOLDS: usize = 5;

/// A scored run.
#[derive(Debug)]
#[non_exhaustive]
pub struct Summary<'a> {
    /// The run.
    pub run: &'a RunDirectory,
    /// One for each configuration, in the order of the plan.
    pub configurations: Vec<ConfigurationSummary<'a>>,
    /// The categories, in the suite's order.
    pub categories: Vec<&'a str>,
}

/// A sample with its outcome.
#[derive(Debug)]
pub struct ScoredSample<'a> {
    /// The case.
    pub case: &'a Case,
    /// The answer.
    pub sample: &'a Sample,
    /// The outcome.
    pub scored: Scored,
}

/// The figures of one configuration.
#[derive(Debug)]
#[non_exhaustive]
pub struct ConfigurationSummary<'a> {
    /// The configuration.
    pub configuration: &'a Configuration,
    /// Its label, unique in the run.
    pub label: String,
    /// Its answers, in the suite's order.
    pub samples: Vec<ScoredSample<'a>>,
    /// The number of answers with each outcome, in the table's order.
    pub outcomes: [usize; OUTCOMES.len()],
    /// The scores over all categories.
    pub scores: Scores,
    /// The scores of each of the run's categories.
    pub by_category: Vec<Scores>,
    /// The number of answers with each repair.
    pub repairs: BTreeMap<RepairKind, usize>,
    /// The number of answers with any repair.
    pub repaired: usize,
    /// The number of answers with text besides their calls.
    pub text_around: usize,
    /// The number of answers with a call in another form than their format's.
    pub other_form: usize,
    /// The number of answers that call a tool of the prompt's examples.
    pub example_tools: usize,
    /// Calls of tools that were not offered, by how the names differ.
    pub unknown_tools: BTreeMap<&'static str, usize>,
    /// With several answers to each case: pass^k for k from 1, and the share of cases with right and wrong answers.
    pub repeats: Option<Repeats>,
    /// The times; `None` where nothing was timed.
    pub latency: Option<Latency>,
    /// Generated tokens for each correct answer.
    pub tokens_per_correct: Option<f64>,
    /// What the answers cost; `None` where models.toml has no prices.
    pub cost: Option<Cost>,
    calibration: OnceCell<Option<Calibration>>,
}

impl ConfigurationSummary<'_> {
    /// Returns what a threshold of the decision to call would achieve, on the first answer to each case; `None` where
    /// too few answers have a probability.
    pub(crate) fn calibration(&self) -> Option<&Calibration> {
        let calibrate = || {
            let first = self.samples.iter().filter(|one| one.sample.repeat == 0);
            let cases: Vec<Measured> =
                first.filter_map(|one| Some(measured(one.case, one.sample.call_probability?))).collect();
            let needing = cases.iter().filter(|case| case.needs_call).count();
            // A run of 60 cases has 8 where no call is right.
            let folds = needing.min(cases.len() - needing).clamp(FEWEST_FOLDS, FOLDS);
            Calibration::new(&cases, folds, Goal::Balanced).ok()
        };
        self.calibration.get_or_init(calibrate).as_ref()
    }
}

/// What answers cost, in the currency of the prices.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Cost {
    /// All of them together.
    pub total: f64,
    /// One, on average.
    pub per_answer: f64,
    /// A correct one, on average; `None` if none is.
    pub per_correct: Option<f64>,
}

/// How consistent the answers to one case are.
#[derive(Debug, Clone, PartialEq)]
pub struct Repeats {
    /// pass^1, pass^2, …
    pub pass_hat: Vec<f64>,
    /// Cases with right and wrong answers.
    pub unstable: Proportion,
}

/// The times without the warm-up, in seconds, and the rates in tokens per second.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Latency {
    /// The number of timed answers.
    pub samples: usize,
    /// Time to the first token.
    pub first_token_p50: f64,
    /// The same.
    pub first_token_p95: f64,
    /// Time of the whole answer.
    pub total_p50: f64,
    /// The same.
    pub total_p95: f64,
    /// The same, with at least 100 answers.
    pub total_p99: Option<f64>,
    /// Prompt tokens decoded per second, without those in the cache.
    pub prefill_rate: Option<f64>,
    /// Tokens generated per second.
    pub decode_rate: Option<f64>,
    /// The most bytes that the process had in memory after an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// The times of the whole answers, sorted.
    #[serde(skip)]
    pub totals: Vec<f64>,
}

/// A score's name, key and meaning.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ScoreDefinition {
    /// Its name in files and for `--fail-under`.
    pub key: &'static str,
    /// Its name in tables.
    pub title: &'static str,
    /// What it counts, among what.
    pub meaning: &'static str,
}

const fn definition(key: &'static str, title: &'static str, meaning: &'static str) -> ScoreDefinition {
    ScoreDefinition { key, title, meaning }
}

/// All scores, the main one first.
pub const SCORES: [ScoreDefinition; 10] = [
    definition(
        "accuracy",
        "correct",
        "answers with the outcome correct, among all; what broke (infra_error) counts for no score",
    ),
    definition(
        "delivered",
        "delivered",
        "answers all of whose calls reach a program, as run and serve hand them over: read in any form, repaired, complete \
         and valid; among those that attempt a call",
    ),
    definition("in_format", "in the format", "the same, if the model wrote them in its format and not in another form"),
    definition("as_written", "as written", "the same as delivered, without those that had to be repaired"),
    definition("decision_recall", "recall", "answers with a call, among the cases that need one"),
    definition(
        "decision_specificity",
        "specificity",
        "clean abstentions (ended, some text, no trace of a call), among the cases where no call is right",
    ),
    definition(
        "tool_selection",
        "tools",
        "the expected tools in the expected number, among answers with the call that is needed",
    ),
    definition("arguments", "arguments", "correct answers, among those with the expected tools"),
    definition(
        "made",
        "made",
        "tasks of several turns after which the right calls were executed and the state is right, however the answers \
         ended, among all of them",
    ),
    definition("bfcl", "BFCL", "answers that BFCL's checker accepts, among all of its cases"),
];

/// The scores of some answers, in the order of `SCORES`. Without trials there is no score.
#[derive(Debug, Clone, PartialEq)]
pub struct Scores([Proportion; SCORES.len()]);

impl Scores {
    /// The score with that key, if it exists and has trials.
    pub fn get(&self, key: &str) -> Option<Proportion> {
        let index = SCORES.iter().position(|score| score.key == key)?;
        self.iter().nth(index).and_then(|(_, score)| score)
    }

    /// All scores.
    pub fn iter(&self) -> impl Iterator<Item = (&'static ScoreDefinition, Option<Proportion>)> {
        SCORES.iter().zip(self.0).map(|(definition, score)| (definition, Some(score).filter(|score| score.trials > 0)))
    }

    fn of<'s>(samples: impl Iterator<Item = &'s ScoredSample<'s>> + Clone) -> Scores {
        Scores(SCORES.map(|definition| {
            clustered(samples.clone().filter_map(|one| Some((one.case.cluster.as_str(), one.counts(definition.key)?))))
        }))
    }
}

/// By key; a score without trials is left out.
impl Serialize for Scores {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter().filter_map(|(definition, score)| Some((definition.key, score?))))
    }
}

impl ScoredSample<'_> {
    /// Whether the sample is a success for a score; `None` where it does not count. An answer that failed counts for
    /// none, as it says nothing about the model.
    pub(crate) fn counts(&self, key: &str) -> Option<bool> {
        if self.sample.broke() {
            return None;
        }
        let (needed, scored) = (self.case.needs_call(), &self.scored);
        let called = needed && !scored.calls.is_empty() && !self.sample.is_held_to_text();
        let correct = scored.outcome == Outcome::Correct;
        if self.case.task.is_some() && !matches!(key, "accuracy" | "made" | "bfcl") {
            return None;
        }
        match key {
            "made" => scored.made,
            "accuracy" => Some(correct),
            "delivered" => scored.attempted.then_some(scored.delivered),
            "in_format" => scored.attempted.then_some(scored.delivered && !scored.other_form),
            "as_written" => scored.attempted.then_some(scored.delivered && scored.repairs.is_empty()),
            "decision_recall" => needed.then_some(called),
            "decision_specificity" => (!needed).then_some(scored.clean_abstention),
            "tool_selection" => called.then_some(scored.tools_right),
            "arguments" => (called && scored.tools_right).then_some(correct),
            "bfcl" => scored.bfcl.map(|verdict| verdict.is_none()),
            _ => None,
        }
    }
}

impl<'a> Summary<'a> {
    /// Scores a run.
    ///
    /// # Errors
    /// [`ErrorKind::Suite`](callwright::ErrorKind::Suite) when the run was scored by another version; score it again first.
    pub fn new(run: &'a RunDirectory) -> Result<Summary<'a>> {
        if run.plan.scorer != SCORER {
            let (run_scorer, path) = (run.plan.scorer, run.path().display());
            return Err(wrong(format!("the run in {path} was scored by version {run_scorer}, this one is {SCORER}"))
                .hint(format!("callwright bench rescore {path}")));
        }
        let mut categories: Vec<&str> = Vec::new();
        for case in &run.suite.cases {
            if !categories.contains(&case.category.as_str()) {
                categories.push(&case.category);
            }
        }
        let places: HashMap<&str, usize> =
            run.suite.cases.iter().enumerate().map(|(index, case)| (case.id.as_str(), index)).collect();
        let labels = labels(&run.plan.configurations);
        let mut configurations = Vec::new();
        for (configuration, label) in run.plan.configurations.iter().zip(labels) {
            let format = read_format(configuration)?;
            let mut own: Vec<(usize, &Sample)> = run
                .samples
                .iter()
                .filter(|sample| sample.config == configuration.id)
                .filter_map(|sample| Some((*places.get(sample.case.as_str())?, sample)))
                .collect();
            own.sort_by_key(|(place, sample)| (*place, sample.repeat));
            let samples = own
                .into_iter()
                .map(|(place, sample)| {
                    let case = &run.suite.cases[place];
                    let mut scored = score(case, sample, &format, configuration)?;
                    let prompt = run.prompts.get(&sample.prompt_sha256);
                    scored.example_tool = prompt.and_then(|prompt| example_tool(case, &scored.calls, prompt));
                    Ok(ScoredSample { case, sample, scored })
                })
                .collect::<Result<Vec<_>>>()?;
            configurations.push(ConfigurationSummary::new(configuration, label, samples, &categories));
        }
        Ok(Summary { run, configurations, categories })
    }
}

/// Marks a run as scored by this version: its reports are made anew from the raw text.
///
/// # Errors
/// [`ErrorKind::Io`](callwright::ErrorKind::Io) when run.json cannot be written.
pub fn rescored(run: &mut RunDirectory) -> Result<()> {
    run.plan.scorer = SCORER;
    run.write_plan()
}

impl<'a> ConfigurationSummary<'a> {
    fn new(
        configuration: &'a Configuration,
        label: String,
        samples: Vec<ScoredSample<'a>>,
        categories: &[&str],
    ) -> ConfigurationSummary<'a> {
        let mut outcomes = [0; OUTCOMES.len()];
        let mut repairs = BTreeMap::new();
        let mut unknown_tools = BTreeMap::new();
        for one in &samples {
            outcomes[one.scored.outcome as usize] += 1;
            one.scored.repairs.iter().for_each(|kind| *repairs.entry(*kind).or_default() += 1);
            one.scored.unknown_tool.iter().for_each(|how| *unknown_tools.entry(*how).or_default() += 1);
        }
        let scores = Scores::of(samples.iter());
        let of_category = |name: &&str| {
            let name = *name;
            Scores::of(samples.iter().filter(move |one| one.case.category == name))
        };
        let correct = outcomes[Outcome::Correct as usize];
        let tokens: usize = samples.iter().map(|one| one.sample.written()).sum();
        let cost: f64 = samples.iter().map(|one| one.sample.cost).sum();
        ConfigurationSummary {
            by_category: categories.iter().map(of_category).collect(),
            repaired: samples.iter().filter(|one| !one.scored.repairs.is_empty()).count(),
            text_around: samples.iter().filter(|one| one.scored.text_around).count(),
            other_form: samples.iter().filter(|one| one.scored.other_form).count(),
            example_tools: samples.iter().filter(|one| one.scored.example_tool.is_some()).count(),
            repeats: repeats(&samples),
            latency: latency(&samples),
            tokens_per_correct: (correct > 0 && tokens > 0).then(|| tokens as f64 / correct as f64),
            cost: (cost > 0.0).then(|| Cost {
                total: cost,
                per_answer: cost / samples.len() as f64,
                per_correct: (correct > 0).then(|| cost / correct as f64),
            }),
            calibration: OnceCell::new(),
            configuration,
            label,
            outcomes,
            scores,
            repairs,
            unknown_tools,
            samples,
        }
    }
}

fn repeats(samples: &[ScoredSample<'_>]) -> Option<Repeats> {
    let mut cases: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    let mut clusters: BTreeMap<&str, &str> = BTreeMap::new();
    for one in samples {
        let Some(correct) = one.counts("accuracy") else { continue };
        clusters.insert(&one.case.id, &one.case.cluster);
        let (right, all) = cases.entry(&one.case.id).or_default();
        *right += usize::from(correct);
        *all += 1;
    }
    let most = cases.values().map(|(_, all)| *all).min().filter(|all| *all > 1)?;
    let mean = |k| {
        let each: Vec<f64> = cases.values().filter_map(|(right, all)| pass_hat(k, *right, *all)).collect();
        each.iter().sum::<f64>() / each.len() as f64
    };
    let unstable = clustered(cases.iter().map(|(case, (right, all))| (clusters[case], *right > 0 && right < all)));
    Some(Repeats { pass_hat: (1..=most).map(mean).collect(), unstable })
}

fn latency(samples: &[ScoredSample<'_>]) -> Option<Latency> {
    let timed: Vec<&Sample> = samples
        .iter()
        .map(|one| one.sample)
        .filter(|sample| sample.failure.is_none() && !sample.timing.warm_up)
        .filter(|sample| sample.timing.first_token + sample.timing.generation > 0.0)
        .collect();
    let sorted = |value: fn(&Sample) -> f64| {
        let mut values: Vec<f64> = timed.iter().map(|sample| value(sample)).collect();
        values.sort_by(f64::total_cmp);
        values
    };
    let firsts = sorted(|sample| sample.timing.first_token);
    let totals = sorted(|sample| sample.timing.first_token + sample.timing.generation);
    let rate = |tokens: usize, seconds: f64| (tokens > 0 && seconds > 0.0).then(|| tokens as f64 / seconds);
    let sum = |value: fn(&Sample) -> f64| timed.iter().map(|sample| value(sample)).sum::<f64>();
    let fresh: usize =
        timed.iter().map(|sample| sample.prompt_tokens - sample.cached_tokens.min(sample.prompt_tokens)).sum();
    Some(Latency {
        samples: timed.len(),
        first_token_p50: percentile(&firsts, 0.5)?,
        first_token_p95: percentile(&firsts, 0.95)?,
        total_p50: percentile(&totals, 0.5)?,
        total_p95: percentile(&totals, 0.95)?,
        total_p99: (totals.len() >= 100).then(|| percentile(&totals, 0.99)).flatten(),
        prefill_rate: rate(fresh, sum(|sample| sample.timing.first_token)),
        decode_rate: rate(timed.iter().map(|sample| sample.written()).sum(), sum(|sample| sample.timing.generation)),
        memory: timed.iter().map(|sample| sample.timing.memory).max().filter(|bytes| *bytes > 0),
        totals,
    })
}
