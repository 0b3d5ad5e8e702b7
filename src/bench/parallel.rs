//! Asks several cases at a time, each in its own sequence.

use super::directory::{Plan, RunDirectory};
use super::run::{Answer, Answerer, Asked, Journal, Progress, read_format};
use super::suite::Case;
use crate::error::{Error, ErrorKind, Result};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Mutex, PoisonError};

/// Makes an answerer, on the thread that will use it.
pub(crate) type AnswererMaker = Box<dyn Fn() -> Result<Box<dyn Answerer>> + Sync>;

/// Answers several cases at a time.
pub(crate) struct Open {
    /// The largest number of answerers.
    pub at_a_time: usize,
    /// Makes an answerer.
    pub answerer: AnswererMaker,
}

/// How many waiting cases to search for one with the tools that a sequence has in its cache.
const LOOK_AHEAD: usize = 64;

/// One question: the indices of its configuration and its case, and the repeat.
#[derive(Clone, Copy)]
struct Task {
    configuration: usize,
    case: usize,
    /// Cases with the same number have the same tools.
    tools: usize,
    repeat: usize,
}

/// The answer to a question, and whether it was the first of its thread; or the error of an answerer that cannot be
/// made.
type Reported = Result<(Task, Result<Answer>, bool)>;

/// As [`run`](super::run::run), with up to `count` cases at a time. `open` is called once for the configurations that
/// share a session: with the index of the first of them in the plan, and with `count`, or with as many cases as are
/// left.
///
/// A thread prefers a case whose tools are in its sequence's cache.
///
/// # Errors
/// Those of [`run`](super::run::run).
pub(crate) fn run_parallel(
    directory: &mut RunDirectory,
    count: usize,
    open: &mut dyn FnMut(usize, usize) -> Result<Open>,
    on_progress: &mut dyn FnMut(Progress),
    cancel: &AtomicBool,
) -> Result<bool> {
    let plan = directory.plan.clone();
    let cases = directory.own_cases();
    let mut journal = Journal::new(directory, on_progress);
    let formats = plan.configurations.iter().map(read_format).collect::<Result<Vec<_>>>()?;
    let mut begin = 0;
    while begin < plan.configurations.len() {
        let (start, first) = (begin, &plan.configurations[begin]);
        begin += plan.configurations[begin..].iter().take_while(|one| one.shares_session(first)).count();
        let tasks = tasks(&plan, start..begin, &cases, &journal);
        if tasks.is_empty() {
            continue;
        }
        // Fewer cases may be left.
        let count = count.min(tasks.len());
        let opened = open(start, count)?;
        let round =
            Round { plan: &plan, cases: &cases, tasks: Mutex::new(tasks), stopped: AtomicBool::new(false), cancel };
        // Bounded: no thread gets far ahead of the journal.
        let (tell, reported) = mpsc::sync_channel(count);
        std::thread::scope(|scope| {
            for _ in 0..count.min(opened.at_a_time) {
                let (tell, opened, round) = (tell.clone(), &opened, &round);
                scope.spawn(move || round.answer(&*opened.answerer, &tell));
            }
            drop(tell);
            // The threads only answer; this thread writes the answers to the journal.
            let mut keep = |reported: Reported| {
                let (task, answer, warm_up) = reported?;
                let format = &formats[task.configuration];
                let (configuration, (_, case)) = (&plan.configurations[task.configuration], &cases[task.case]);
                let asked = Asked { case, configuration, format, repeat: task.repeat };
                journal.keep(&asked, answer, warm_up)
            };
            // If an answer cannot be written the channel closes, and the threads end.
            let result = reported.into_iter().try_for_each(&mut keep);
            round.stopped.store(result.is_err(), Ordering::Relaxed);
            result
        })?;
        let left = round.tasks.into_inner().unwrap_or_else(PoisonError::into_inner);
        if cancel.load(Ordering::Relaxed) {
            return Ok(false);
        }
        if !left.is_empty() {
            return Err(Error::new(ErrorKind::Engine, format!("{} cases were left without an answer", left.len())));
        }
    }
    Ok(true)
}

/// The questions of some configurations that the journal has no answers to.
fn tasks(plan: &Plan, configurations: Range<usize>, cases: &[(usize, Case)], journal: &Journal<'_>) -> VecDeque<Task> {
    let mut tasks = VecDeque::new();
    for configuration in configurations {
        for (place, (tools, case)) in cases.iter().enumerate() {
            for repeat in 0..plan.repeat {
                if journal.lacks(case, &plan.configurations[configuration], repeat) {
                    tasks.push_back(Task { configuration, case: place, tools: *tools, repeat });
                }
            }
        }
    }
    tasks
}

/// The questions of the configurations that share a session, which threads answer.
struct Round<'r> {
    plan: &'r Plan,
    cases: &'r [(usize, Case)],
    tasks: Mutex<VecDeque<Task>>,
    /// Whether an answer could not be kept.
    stopped: AtomicBool,
    cancel: &'r AtomicBool,
}

impl Round<'_> {
    /// Answers questions until there are none, on one thread.
    fn answer(&self, make: &dyn Fn() -> Result<Box<dyn Answerer>>, tell: &SyncSender<Reported>) {
        let mut answerer = match make() {
            Ok(answerer) => answerer,
            Err(error) => {
                let _ = tell.send(Err(error));
                return;
            }
        };
        let (mut tools, mut warm_up) = (None, true);
        while !self.stopped.load(Ordering::Relaxed)
            && !self.cancel.load(Ordering::Relaxed)
            && let Some(task) = self.next(tools)
        {
            tools = Some(task.tools);
            let configuration = &self.plan.configurations[task.configuration];
            let (_, case) = &self.cases[task.case];
            let answer = answerer.answer(case, configuration, configuration.seed(&case.id, task.repeat));
            let Some(answer) = answer.transpose() else { return };
            if tell.send(Ok((task, answer, std::mem::take(&mut warm_up)))).is_err() {
                return;
            }
        }
    }

    /// The next question for a thread whose last one had `tools`.
    fn next(&self, tools: Option<usize>) -> Option<Task> {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        let near = tasks.iter().take(LOOK_AHEAD).position(|task| Some(task.tools) == tools);
        tasks.remove(near.unwrap_or(0))
    }
}
