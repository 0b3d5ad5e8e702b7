//! Chooses the threshold of the decision to call: from how likely a call is where each case's answer begins.
//!
//! No answer is generated. The figures that are reported come from cases on which the threshold was not chosen: the
//! cases are divided into folds, and each fold is judged with the threshold of the others. Cases of one cluster share a
//! fold. The threshold to use is then chosen on all cases.

use super::run::in_order;
use super::stats::{Area, Proportion, area, clustered};
use super::suite::{Case, Suite, wrong};
use callwright::decision::CallProbability;
use callwright::error::{ErrorKind, Result};
use callwright::hash::sha256;
use callwright::message::Role;
use callwright::session::{ContextPolicy, Options, Session};
use callwright::tool::Tools;
use serde::Serialize;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The number of folds, where it is not chosen.
pub const FOLDS: usize = 10;
/// Points of a curve.
const MOST_POINTS: usize = 256;

/// How likely a call is in one case.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measured {
    /// The case's id.
    pub case: String,
    /// Its category.
    pub category: String,
    /// Cases of one cluster are not independent evidence.
    #[serde(skip)]
    pub cluster: String,
    /// Whether a call is needed.
    pub needs_call: bool,
    /// How likely a call is where the answer begins.
    pub call_probability: CallProbability,
}

impl Measured {
    /// Returns the figure that a threshold is compared with.
    fn value(&self) -> f64 {
        self.call_probability.value()
    }
}

/// What was measured of a suite.
#[derive(Debug, Default)]
pub struct Measurement {
    /// The cases in which the model decides.
    pub cases: Vec<Measured>,
    /// How many others there are: without tools, after a tool's result, or where reasoning precedes the answer.
    pub undecided: usize,
    /// How many prompts are too long for the context.
    pub too_long: usize,
    /// Whether it was interrupted.
    pub interrupted: bool,
}

/// Measures all cases; `on_progress` gets the number of those that are done.
///
/// # Errors
/// Those of [`Session::respond`], but not that a prompt is too long.
pub fn measure(
    session: &mut Session,
    suite: &Suite,
    now: &str,
    cancel: &Arc<AtomicBool>,
    on_progress: &mut dyn FnMut(usize),
) -> Result<Measurement> {
    let now = now.parse().map_err(|_| wrong(format!("{now:?} is no date and time")))?;
    *session.options_mut() = Options::default().with(|options| {
        options.context = ContextPolicy::Error;
        options.now = Some(now);
        options.cancel = Arc::clone(cancel);
    });
    let mut measurement = Measurement::default();
    let mut tools = None;
    for (done, (number, case)) in in_order(&suite.cases).into_iter().enumerate() {
        if cancel.load(Ordering::Relaxed) {
            measurement.interrupted = true;
            break;
        }
        if tools != Some(number) {
            session.set_tools(Tools::from_value(&case.tools.to_json())?);
            tools = Some(number);
        }
        // After a tool's result, no threshold applies.
        if !case.messages.last().is_some_and(|message| message.role == Role::User) {
            measurement.undecided += 1;
            on_progress(done + 1);
            continue;
        }
        session.set_messages(case.messages.clone())?;
        match session.call_probability() {
            Ok(Some(call_probability)) => measurement.cases.push(measured(&case, call_probability)),
            Ok(None) => measurement.undecided += 1,
            Err(error) if error.kind() == ErrorKind::ContextOverflow => measurement.too_long += 1,
            Err(error) => return Err(error),
        }
        on_progress(done + 1);
    }
    Ok(measurement)
}

/// A case with its probability.
pub(crate) fn measured(case: &Case, call_probability: CallProbability) -> Measured {
    Measured {
        case: case.id.clone(),
        category: case.category.clone(),
        cluster: case.cluster.clone(),
        needs_call: case.needs_call(),
        call_probability,
    }
}

/// What a threshold has to achieve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Goal {
    /// The greatest mean of recall and specificity.
    Balanced,
    /// The greatest recall where the specificity is at least this share.
    Specificity(f64),
}

/// A threshold, and what it does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// At or above this probability, a call is made.
    pub threshold: f64,
    /// Of the cases that need a call, those at or above it.
    pub recall: Proportion,
    /// Of the cases that need none, those below it.
    pub specificity: Proportion,
}

impl Point {
    /// The mean of recall and specificity.
    pub fn balanced_accuracy(&self) -> f64 {
        (self.recall.share() + self.specificity.share()) / 2.0
    }
}

/// A threshold with the evidence for it.
#[derive(Debug, Clone, PartialEq)]
pub struct Calibration {
    /// The number of cases that need a call, and that need none.
    pub cases: (usize, usize),
    /// The probability that a case that needs a call has a higher probability than one that needs none.
    pub auc: Area,
    /// The same for the first token's probability alone.
    pub auc_first_token: Area,
    /// The thresholds that differ in what they do, from the lowest; a few hundred of them, where there are more.
    pub curve: Vec<Point>,
    /// The best threshold, chosen on all cases; its shares are those of the same cases, and so too good.
    pub best: Point,
    /// The number of folds.
    pub folds: usize,
    /// The threshold of each fold, chosen on the other folds.
    pub thresholds: Vec<f64>,
    /// Recall and specificity of the cases when each is judged with its fold's threshold.
    pub held_out: (Proportion, Proportion),
}

impl Calibration {
    /// Chooses a threshold, and estimates what it achieves with `folds` folds.
    ///
    /// # Errors
    /// [`ErrorKind::Suite`] where there are too few cases that need a call, or that need none; or where no threshold has the
    /// specificity.
    pub fn new(cases: &[Measured], folds: usize, goal: Goal) -> Result<Calibration> {
        let needs = cases.iter().filter(|case| case.needs_call).count();
        let counts = (needs, cases.len() - needs);
        for (count, what) in [(counts.0, "that need a call"), (counts.1, "that need none")] {
            if count < folds.max(2) {
                let message = format!("there are {count} cases {what}, too few for {folds} folds");
                return Err(
                    wrong(message).hint("name suites with both kinds of cases; --suite may be given several times")
                );
            }
        }
        let none = || wrong("no threshold reaches that specificity").hint("ask for less with --min-specificity");
        let fold = fold_of(cases, folds);
        let all: Vec<&Measured> = cases.iter().collect();
        let best = choose(&all, goal).ok_or_else(none)?;
        let mut thresholds = Vec::with_capacity(folds);
        // Each case as the other folds judge it.
        let mut held_out: Vec<(&Measured, bool)> = Vec::with_capacity(cases.len());
        for judged in 0..folds {
            let (own, others): (Vec<_>, Vec<_>) = cases.iter().zip(&fold).partition(|(_, fold)| **fold == judged);
            let others: Vec<&Measured> = others.into_iter().map(|(case, _)| case).collect();
            let threshold = choose(&others, goal).ok_or_else(none)?;
            held_out.extend(own.into_iter().map(|(case, _)| (case, case.value() >= threshold)));
            thresholds.push(threshold);
        }
        let judged = |needs_call: bool| {
            let those = held_out.iter().filter(move |(case, _)| case.needs_call == needs_call);
            clustered(those.map(|(case, called)| (case.cluster.as_str(), *called == needs_call)))
        };
        let sides = |value: &dyn Fn(&CallProbability) -> f64| {
            let sides =
                cases.iter().map(|case| (case.cluster.as_str(), case.needs_call, value(&case.call_probability)));
            area(&sides.collect::<Vec<_>>())
        };
        Ok(Calibration {
            cases: counts,
            auc: sides(&CallProbability::value),
            auc_first_token: sides(&|found| found.first_token),
            curve: thinned(candidates(&all)).map(|threshold| point(&all, threshold)).collect(),
            best: point(&all, best),
            folds,
            held_out: (judged(true), judged(false)),
            thresholds,
        })
    }

    /// The points that show the curve: for each of some recalls, the highest threshold that reaches it.
    pub fn outline(&self) -> Vec<Point> {
        let reaching = |least: &f64| self.curve.iter().rev().find(|point| point.recall.share() >= *least).copied();
        let mut points: Vec<Point> =
            [0.99, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.6, 0.5, 0.25].iter().filter_map(reaching).collect();
        points.dedup_by(|a, b| a.threshold == b.threshold);
        points
    }
}

fn point(cases: &[&Measured], threshold: f64) -> Point {
    let share = |needs_call: bool| {
        let those = cases.iter().filter(move |case| case.needs_call == needs_call);
        clustered(those.map(|case| (case.cluster.as_str(), (case.value() >= threshold) == needs_call)))
    };
    Point { threshold, recall: share(true), specificity: share(false) }
}

/// All thresholds that differ in what they do, from 0, at which every answer is a call.
fn candidates(cases: &[&Measured]) -> Vec<f64> {
    let mut values: Vec<f64> = cases.iter().map(|case| case.value()).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    let between = values.windows(2).map(|pair| between(pair[0], pair[1]));
    std::iter::once(0.0).chain(between).collect()
}

/// At most [`MOST_POINTS`] of the thresholds, the first and the last among them.
fn thinned(thresholds: Vec<f64>) -> impl Iterator<Item = f64> {
    let count = thresholds.len().min(MOST_POINTS);
    let last = thresholds.len().saturating_sub(1);
    (0..count).map(move |index| thresholds[index * last / (count - 1).max(1)])
}

/// A number above `low` and at most `high`, with as few digits as possible, near the geometric mean: probabilities
/// differ by orders of magnitude.
fn between(low: f64, high: f64) -> f64 {
    let middle = if low > 0.0 { (low * high).sqrt() } else { high / 2.0 };
    let rounded = (0..17).map(|digits| format!("{middle:.digits$e}").parse().unwrap_or(middle));
    rounded.into_iter().find(|number| *number > low && *number <= high).unwrap_or(high)
}

/// The best threshold; of equally good ones the middle one.
fn choose(cases: &[&Measured], goal: Goal) -> Option<f64> {
    let count = |needs_call: bool| cases.iter().filter(|case| case.needs_call == needs_call).count() as f64;
    let (needs, needs_none) = (count(true), count(false));
    let mut sorted: Vec<(f64, bool)> = cases.iter().map(|case| (case.value(), case.needs_call)).collect();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    // With rising thresholds, cases fall below.
    let (mut missed, mut spared, mut at) = (0.0, 0.0, 0);
    let mut best: Vec<f64> = Vec::new();
    let mut best_value = f64::NEG_INFINITY;
    for threshold in candidates(cases) {
        while let Some((_, needs_call)) = sorted.get(at).filter(|(probability, _)| *probability < threshold) {
            if *needs_call {
                missed += 1.0
            } else {
                spared += 1.0
            }
            at += 1;
        }
        let (recall, specificity) = (1.0 - missed / needs, spared / needs_none);
        let value = match goal {
            Goal::Balanced => (recall + specificity) / 2.0,
            Goal::Specificity(least) if specificity < least => continue,
            // Of equal recalls, the one with the greatest specificity.
            Goal::Specificity(_) => recall + specificity * 1e-9,
        };
        if value > best_value {
            best_value = value;
            best.clear();
        }
        if value == best_value {
            best.push(threshold);
        }
    }
    best.get(best.len() / 2).copied()
}

/// The fold of each case: always the same one. Cases of a cluster share it, and each fold has its part of the clusters
/// that need a call.
fn fold_of(cases: &[Measured], folds: usize) -> Vec<usize> {
    let mut needs: HashMap<&str, bool> = HashMap::new();
    for case in cases {
        *needs.entry(&case.cluster).or_default() |= case.needs_call;
    }
    let sorted: BTreeSet<_> = needs.iter().map(|(cluster, needs)| (*needs, sha256(cluster), *cluster)).collect();
    let places: HashMap<&str, usize> =
        sorted.iter().enumerate().map(|(place, (_, _, cluster))| (*cluster, place)).collect();
    cases.iter().map(|case| places.get(case.cluster.as_str()).copied().unwrap_or(0) % folds).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(index: usize, needs_call: bool, probability: f64) -> Measured {
        Measured {
            case: format!("{needs_call}-{index}"),
            category: "all".to_owned(),
            cluster: format!("{needs_call}-{index}"),
            needs_call,
            call_probability: CallProbability { first_token: probability, marker: None, other_forms: None },
        }
    }

    /// 20 cases that need a call, at 0.10, 0.11, …, and 20 that need none, at 0, 0.01, ….
    fn cases(overlap: f64) -> Vec<Measured> {
        let needs = (0..20).map(|i| case(i, true, 0.2 - overlap + i as f64 / 100.0));
        needs.chain((0..20).map(|i| case(i, false, i as f64 / 100.0))).collect()
    }

    #[test]
    fn what_can_be_told_apart_is_told_apart_on_cases_held_out() {
        let calibration = Calibration::new(&cases(0.0), 5, Goal::Balanced).unwrap();
        assert_eq!((calibration.cases, calibration.auc.value), ((20, 20), 1.0));
        assert!(calibration.best.threshold > 0.19 && calibration.best.threshold <= 0.2);
        assert_eq!(calibration.best.balanced_accuracy(), 1.0);
        let (recall, specificity) = calibration.held_out;
        assert!(recall.share() >= 0.95 && specificity.share() >= 0.95, "{recall:?} {specificity:?}");
        assert_eq!(calibration.thresholds.len(), 5);
        // Every threshold once, from the one at which every answer is a call.
        assert_eq!(calibration.curve.len(), 40);
        assert_eq!((calibration.curve[0].recall.share(), calibration.curve[0].specificity.share()), (1.0, 0.0));
    }

    #[test]
    fn what_says_nothing_reaches_no_more_than_chance() {
        let same: Vec<Measured> = (0..40).map(|i| case(i, i % 2 == 0, 0.3)).collect();
        let calibration = Calibration::new(&same, 4, Goal::Balanced).unwrap();
        assert_eq!((calibration.auc.value, calibration.best.balanced_accuracy()), (0.5, 0.5));
    }

    #[test]
    fn a_least_specificity_is_kept() {
        let overlapping = cases(0.1);
        let calibration = Calibration::new(&overlapping, 5, Goal::Specificity(0.9)).unwrap();
        assert!(calibration.best.specificity.share() >= 0.9);
        assert!(calibration.best.recall.share() < 1.0);
        let balanced = Calibration::new(&overlapping, 5, Goal::Balanced).unwrap();
        assert!(balanced.best.balanced_accuracy() >= calibration.best.balanced_accuracy());
        let none = vec![case(0, true, 0.1), case(1, true, 0.1), case(2, false, 0.9), case(3, false, 0.9)];
        let error = Calibration::new(&none, 2, Goal::Specificity(0.5)).unwrap_err();
        assert_eq!(error.message(), "no threshold reaches that specificity");
    }

    #[test]
    fn both_kinds_of_cases_are_needed() {
        let error = Calibration::new(&cases(0.0)[..22], 5, Goal::Balanced).unwrap_err();
        assert_eq!(error.message(), "there are 2 cases that need none, too few for 5 folds");
    }

    #[test]
    fn folds_keep_clusters_together_and_do_not_change() {
        let mut list = cases(0.0);
        list.iter_mut().for_each(|case| case.cluster.truncate(case.cluster.len() - 1));
        let folds = fold_of(&list, 3);
        for (one, fold) in list.iter().zip(&folds) {
            assert!(list.iter().zip(&folds).all(|(other, at)| other.cluster != one.cluster || at == fold));
        }
        assert_eq!(folds, fold_of(&list, 3));
    }

    #[test]
    fn a_threshold_is_written_with_few_digits() {
        assert_eq!(between(0.0101, 0.0399), 0.02);
        assert_eq!(between(0.0, 0.5), 0.2);
        assert_eq!(between(0.123456, 0.123457), 0.1234565);
        let (low, high) = (1e-300, f64::from_bits(1e-300f64.to_bits() + 1));
        assert_eq!(between(low, high), high);
    }
}
