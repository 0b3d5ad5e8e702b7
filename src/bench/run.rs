//! Asks the cases one after another, and keeps each answer before it asks the next.

use super::configuration::Configuration;
use super::directory::RunDirectory;
use super::outcome::Outcome;
use super::sample::{Failure, Finish, Sample, Timing};
use super::score::score;
use super::suite::Case;
use crate::decision::{CallProbability, Decided};
use crate::error::{Error, ErrorKind, Result};
use crate::format::Format;
use crate::hash::sha256;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};

/// Answers cases: a model in a session, or a substitute in tests.
pub trait Answerer {
    /// Answers one case; `None` if it was interrupted.
    ///
    /// # Errors
    /// Any failure; it becomes the sample's outcome, and the run continues.
    fn answer(&mut self, case: &Case, configuration: &Configuration, seed: u64) -> Result<Option<Answer>>;
}

/// One answer.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Answer {
    /// The text of the prompt.
    pub prompt: String,
    /// The beginning of the answer that the prompt contains.
    pub prompt_tail: String,
    /// The model's text.
    pub raw: String,
    /// The byte from which the grammar closed the call because the tokens ran out.
    pub closed_from: Option<usize>,
    /// The tokens of the text.
    pub tokens: Vec<i32>,
    /// The parser's events.
    pub events: Vec<Value>,
    /// Whether the answer was cut off.
    pub cut_off: bool,
    /// Whether it was ended because it repeated itself.
    pub looped: bool,
    /// The prompt's tokens.
    pub prompt_tokens: usize,
    /// The prompt's tokens that were already in the KV cache.
    pub cached_tokens: usize,
    /// Tokens forced by a grammar.
    pub forced_tokens: usize,
    /// What it cost.
    pub cost: f64,
    /// How likely a call was where the answer began.
    pub call_probability: Option<CallProbability>,
    /// What the thresholds decided because of that.
    pub decided: Option<Decided>,
    /// The times.
    pub timing: Timing,
}

/// The progress of a run.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Progress {
    /// Answers so far, including those from before the run was resumed.
    pub done: usize,
    /// Answers in total.
    pub total: usize,
    /// Answers since the start or resumption.
    pub fresh: usize,
    /// The correct ones of these.
    pub correct: usize,
}

/// Keeps a run's answers and reports its progress.
pub(super) struct Journal<'a> {
    directory: &'a mut RunDirectory,
    /// The answers that the run already has, by case, configuration and repeat.
    kept: HashSet<(String, String, usize)>,
    progress: Progress,
    on_progress: &'a mut dyn FnMut(Progress),
}

impl<'a> Journal<'a> {
    pub(super) fn new(directory: &'a mut RunDirectory, on_progress: &'a mut dyn FnMut(Progress)) -> Journal<'a> {
        let kept: HashSet<_> = directory
            .samples
            .iter()
            .map(|sample| (sample.case.clone(), sample.config.clone(), sample.repeat))
            .collect();
        let progress = Progress { done: kept.len(), total: directory.total(), fresh: 0, correct: 0 };
        on_progress(progress);
        Journal { directory, kept, progress, on_progress }
    }

    /// Whether this answer is missing.
    pub(super) fn lacks(&self, case: &Case, configuration: &Configuration, repeat: usize) -> bool {
        !self.kept.contains(&(case.id.clone(), configuration.id.clone(), repeat))
    }

    /// Writes an answer to the disk before it returns.
    pub(super) fn keep(&mut self, asked: &Asked<'_>, answer: Result<Answer>, warm_up: bool) -> Result<()> {
        let (sample, prompt) = sample(asked, answer, warm_up);
        let correct = score(asked.case, &sample, asked.format, asked.configuration.repair)?.outcome == Outcome::Correct;
        self.directory.append(sample, &prompt)?;
        self.progress.done += 1;
        self.progress.fresh += 1;
        self.progress.correct += usize::from(correct);
        (self.on_progress)(self.progress);
        Ok(())
    }
}

/// A case, asked once.
pub(super) struct Asked<'a> {
    pub case: &'a Case,
    pub configuration: &'a Configuration,
    /// The format of the configuration's answers.
    pub format: &'a Format,
    pub repeat: usize,
}

/// Asks all cases that have no answer yet. `open` makes the answerer for the plan's configuration with that index and
/// for those that share its session.
///
/// Cases with the same tools are asked one after another, so that the beginning of their prompts is in the KV cache.
/// Returns false if `cancel` was set before the end.
///
/// # Errors
/// [`ErrorKind::Io`] when an answer cannot be written, and the errors of `open`.
pub fn run(
    directory: &mut RunDirectory,
    open: &mut dyn FnMut(usize) -> Result<Box<dyn Answerer>>,
    on_progress: &mut dyn FnMut(Progress),
    cancel: &AtomicBool,
) -> Result<bool> {
    let plan = directory.plan.clone();
    let cases = directory.own_cases();
    let mut journal = Journal::new(directory, on_progress);
    let mut session: Option<(Box<dyn Answerer>, &Configuration)> = None;
    for (index, configuration) in plan.configurations.iter().enumerate() {
        let format = read_format(configuration)?;
        for (_, case) in &cases {
            for repeat in 0..plan.repeat {
                if !journal.lacks(case, configuration, repeat) {
                    continue;
                }
                if cancel.load(Ordering::Relaxed) {
                    return Ok(false);
                }
                // The first answer of a session also pays for one-time work.
                let mut warm_up = false;
                let (answerer, _) = match &mut session {
                    Some(same) if same.1.shares_session(configuration) => same,
                    _ => {
                        // First: two models may not fit into the memory.
                        session = None;
                        warm_up = true;
                        session.insert((open(index)?, configuration))
                    }
                };
                let answer = match answerer.answer(case, configuration, configuration.seed(&case.id, repeat)) {
                    Ok(None) => return Ok(false),
                    Ok(Some(answer)) => Ok(answer),
                    Err(error) => Err(error),
                };
                let asked = Asked { case, configuration, format: &format, repeat };
                journal.keep(&asked, answer, warm_up)?;
            }
        }
    }
    Ok(true)
}

/// The format of a configuration's answers.
pub(super) fn read_format(configuration: &Configuration) -> Result<Format> {
    Format::parse_declaration(&configuration.format_declaration)?.ok_or_else(|| {
        Error::new(ErrorKind::Format, format!("the run does not declare the format {}", configuration.format))
    })
}

/// The cases grouped by their tools, with a number for each set of tools; otherwise their order is kept.
pub(super) fn in_order(cases: &[Case]) -> Vec<(usize, Case)> {
    let mut numbers: HashMap<String, usize> = HashMap::new();
    let mut keyed: Vec<(usize, Case)> = Vec::new();
    for case in cases {
        let next = numbers.len();
        keyed.push((*numbers.entry(case.tools.to_json().to_string()).or_insert(next), case.clone()));
    }
    keyed.sort_by_key(|(number, _)| *number);
    keyed
}

/// The journal's line for an answer, and the prompt's text.
fn sample(asked: &Asked<'_>, answer: Result<Answer>, warm_up: bool) -> (Sample, String) {
    let Asked { case, configuration, repeat, .. } = asked;
    let (answer, failure) = match answer {
        Ok(answer) => (answer, None),
        Err(error) => {
            let prompt_too_long = error.kind() == ErrorKind::ContextOverflow;
            (Answer::default(), Some(Failure { prompt_too_long, message: error.message().to_owned() }))
        }
    };
    let finish = match &failure {
        Some(_) => Finish::Failed,
        None if answer.cut_off => Finish::Length,
        None if answer.looped => Finish::Loop,
        None => Finish::Stop,
    };
    let sample = Sample {
        case: case.id.clone(),
        config: configuration.id.clone(),
        repeat: *repeat,
        seed: configuration.seed(&case.id, *repeat),
        prompt_sha256: sha256(&answer.prompt),
        prompt_tail: answer.prompt_tail,
        raw: answer.raw,
        closed_from: answer.closed_from,
        tokens: answer.tokens,
        events: answer.events,
        finish,
        failure,
        prompt_tokens: answer.prompt_tokens,
        cached_tokens: answer.cached_tokens,
        forced_tokens: answer.forced_tokens,
        cost: answer.cost,
        call_probability: answer.call_probability,
        decided: answer.decided,
        timing: Timing { warm_up, ..answer.timing },
    };
    (sample, answer.prompt)
}
