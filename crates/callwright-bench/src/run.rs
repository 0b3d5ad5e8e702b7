//! Asks the cases, one after another or several at a time, and keeps each answer as soon as it is there.

use super::configuration::Configuration;
use super::directory::RunDirectory;
use super::outcome::Outcome;
use super::sample::{Failure, Finish, Sample, Timing, Turn, Verdict};
use super::score::score;
use super::suite::Case;
use callwright::decision::{CallProbability, Decided};
use callwright::error::{Error, ErrorKind, Result};
use callwright::format::Format;
use callwright::generate::Usage;
use callwright::hash::sha256;
use serde_json::Value;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};

/// Answers cases: a model in a session, or a substitute in tests.
pub trait Answerer: Send {
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
    /// Tokens of calls in another form that were taken back.
    pub rewritten_tokens: usize,
    /// What it cost.
    pub cost: f64,
    /// How likely a call was where the answer began.
    pub call_probability: Option<CallProbability>,
    /// What the thresholds decided because of that.
    pub decided: Option<Decided>,
    /// The turns of a case that has several.
    pub turns: Vec<Turn>,
    /// What became of it.
    pub verdict: Option<Verdict>,
    /// What failed after the first of them.
    pub failure: Option<Error>,
    /// The times.
    pub timing: Timing,
}

impl Answer {
    /// Adds what a model took.
    pub(crate) fn spend(&mut self, usage: &Usage) {
        self.prompt_tokens += usage.prompt_tokens;
        self.cached_tokens += usage.cached_tokens;
        self.forced_tokens += usage.forced_tokens;
        self.rewritten_tokens += usage.rewritten_tokens;
        self.cost += usage.cost;
        self.timing.first_token += usage.prompt_time.as_secs_f64();
        self.timing.generation += usage.completion_time.as_secs_f64();
    }
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
struct Journal<'a> {
    directory: &'a mut RunDirectory,
    /// The answers that the run already has, by case, configuration and repeat.
    kept: HashSet<(String, String, usize)>,
    progress: Progress,
    on_progress: &'a mut dyn FnMut(Progress),
}

impl<'a> Journal<'a> {
    fn new(directory: &'a mut RunDirectory, on_progress: &'a mut dyn FnMut(Progress)) -> Journal<'a> {
        let kept: HashSet<_> = directory
            .samples
            .iter()
            .map(|sample| (sample.case.clone(), sample.config.clone(), sample.repeat))
            .collect();
        let progress = Progress { done: kept.len(), total: directory.total(), fresh: 0, correct: 0 };
        on_progress(progress);
        Journal { directory, kept, progress, on_progress }
    }

    /// Returns whether this answer is missing.
    fn lacks(&self, question: &Question<'_>) -> bool {
        !self.kept.contains(&(question.case.id.clone(), question.configuration.id.clone(), question.repeat))
    }

    /// Writes an answer to the disk before it returns.
    fn keep(&mut self, (question, answer, warm_up): Answered<'_>) -> Result<()> {
        let (sample, prompt) = sample(&question, answer, warm_up);
        let Question { case, format, configuration, .. } = question;
        let correct = score(case, &sample, format, configuration)?.outcome == Outcome::Correct;
        self.directory.append(sample, &prompt)?;
        self.progress.done += 1;
        self.progress.fresh += 1;
        self.progress.correct += usize::from(correct);
        (self.on_progress)(self.progress);
        Ok(())
    }
}

/// A case, asked once.
#[derive(Clone, Copy)]
struct Question<'a> {
    case: &'a Case,
    /// Cases with the same number have the same tools.
    tools: usize,
    configuration: &'a Configuration,
    /// The format of the configuration's answers.
    format: &'a Format,
    repeat: usize,
}

impl Question<'_> {
    fn seed(&self) -> u64 {
        self.configuration.seed(&self.case.id, self.repeat)
    }
}

/// How many waiting questions to search for one with the tools that an answerer has in its cache.
const LOOK_AHEAD: usize = 64;

/// Asks all cases that have no answer yet. `open` makes the answerers for the plan's configuration with that index and
/// for those that share its session: as many as are to answer at a time, and no more than the number of questions, which
/// is its second argument.
///
/// Cases with the same tools are asked one after another, so that the beginning of their prompts is in the KV cache.
/// Returns false if `cancel` was set before the end.
///
/// # Errors
/// [`ErrorKind::Io`] when an answer cannot be written, and the errors of `open`.
pub fn run(
    directory: &mut RunDirectory,
    open: &mut dyn FnMut(usize, usize) -> Result<Vec<Box<dyn Answerer>>>,
    on_progress: &mut dyn FnMut(Progress),
    cancel: &AtomicBool,
) -> Result<bool> {
    let plan = directory.plan.clone();
    let cases = directory.own_cases();
    let formats = plan.configurations.iter().map(read_format).collect::<Result<Vec<_>>>()?;
    let mut journal = Journal::new(directory, on_progress);
    let mut next = 0;
    for group in plan.configurations.chunk_by(Configuration::shares_session) {
        let first = next;
        next += group.len();
        let mut questions = VecDeque::new();
        for (configuration, format) in group.iter().zip(&formats[first..]) {
            for (tools, case) in &cases {
                let question = |repeat| Question { case, tools: *tools, configuration, format, repeat };
                questions.extend((0..plan.repeat).map(question).filter(|question| journal.lacks(question)));
            }
        }
        if questions.is_empty() {
            continue;
        }
        if cancel.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let answerers = open(first, questions.len())?;
        let round = Round {
            // One asks in order.
            look_ahead: if answerers.len() == 1 { 1 } else { LOOK_AHEAD },
            questions: Mutex::new(questions),
            interrupted: AtomicBool::new(false),
            cancel,
        };
        round.ask(answerers, &mut journal)?;
        let left = round.questions.into_inner().unwrap_or_else(PoisonError::into_inner);
        if round.interrupted.into_inner() || !left.is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The questions of the configurations that share a session.
struct Round<'r> {
    questions: Mutex<VecDeque<Question<'r>>>,
    /// How many of them to search for one with the tools that an answerer has in its cache.
    look_ahead: usize,
    /// Whether an answerer was interrupted.
    interrupted: AtomicBool,
    cancel: &'r AtomicBool,
}

/// A question, its answer, and whether that was the first one of its answerer, which also pays for one-time work.
type Answered<'r> = (Question<'r>, Result<Answer>, bool);

impl<'r> Round<'r> {
    /// Asks all questions. Several answerers have a thread each; this thread writes their answers to the journal.
    fn ask(&self, mut answerers: Vec<Box<dyn Answerer>>, journal: &mut Journal<'_>) -> Result<()> {
        if let [answerer] = &mut answerers[..] {
            return self.drain(&mut **answerer, &mut |answered| journal.keep(answered));
        }
        // Bounded: no thread gets far ahead of the journal.
        let (tell, answered) = mpsc::sync_channel(answerers.len());
        std::thread::scope(|scope| {
            for mut answerer in answerers {
                let tell = tell.clone();
                // If an answer cannot be written the channel closes, and the threads end.
                scope.spawn(move || self.drain(&mut *answerer, &mut |answered| tell.send(answered).map_err(drop)));
            }
            drop(tell);
            answered.into_iter().try_for_each(|answered| journal.keep(answered))
        })
    }

    /// Asks one answerer until there are no questions, or an answer cannot be kept.
    fn drain<E>(
        &self,
        answerer: &mut dyn Answerer,
        keep: &mut dyn FnMut(Answered<'r>) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut tools, mut first) = (None, true);
        while !self.interrupted.load(Ordering::Relaxed)
            && !self.cancel.load(Ordering::Relaxed)
            && let Some(question) = self.next(tools)
        {
            tools = Some(question.tools);
            match answerer.answer(question.case, question.configuration, question.seed()).transpose() {
                Some(answer) => keep((question, answer, std::mem::take(&mut first)))?,
                None => self.interrupted.store(true, Ordering::Relaxed),
            }
        }
        Ok(())
    }

    /// The next question for an answerer whose last one had `tools`.
    fn next(&self, tools: Option<usize>) -> Option<Question<'r>> {
        let mut questions = self.questions.lock().unwrap_or_else(PoisonError::into_inner);
        let near = questions.iter().take(self.look_ahead).position(|question| Some(question.tools) == tools);
        questions.remove(near.unwrap_or(0))
    }
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
fn sample(question: &Question<'_>, answer: Result<Answer>, warm_up: bool) -> (Sample, String) {
    let mut answer = answer.unwrap_or_else(|error| Answer { failure: Some(error), ..Answer::default() });
    let failure = answer.failure.take().map(|error| {
        let prompt_too_long = error.kind() == ErrorKind::ContextOverflow;
        Failure { prompt_too_long, message: error.message().to_owned() }
    });
    let finish = match &failure {
        Some(_) => Finish::Failed,
        None if answer.cut_off => Finish::Length,
        None if answer.looped => Finish::Loop,
        None => Finish::Stop,
    };
    let sample = Sample {
        case: question.case.id.clone(),
        config: question.configuration.id.clone(),
        repeat: question.repeat,
        seed: question.seed(),
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
        rewritten_tokens: answer.rewritten_tokens,
        cost: answer.cost,
        call_probability: answer.call_probability,
        decided: answer.decided,
        turns: answer.turns,
        verdict: answer.verdict,
        timing: Timing { warm_up, ..answer.timing },
    };
    (sample, answer.prompt)
}
