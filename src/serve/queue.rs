//! The requests that wait for one model, in the order in which they came.

use super::job::Job;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// What a request has in common with others, so that a worker has the beginning of its prompt in the cache.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Kind {
    /// A hash of the tools.
    pub tools: u64,
    /// A hash of each message.
    pub messages: Vec<u64>,
}

impl Kind {
    /// How much two requests have in common.
    fn likeness(&self, other: &Kind) -> usize {
        let same = self.messages.iter().zip(&other.messages).take_while(|(one, other)| one == other).count();
        if self.tools == other.tools { 1 + same } else { 0 }
    }
}

/// A bounded queue with several workers.
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    /// How many may wait.
    limit: usize,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Job>,
    /// The idle workers, and the kind of the last request of each.
    idle: Vec<(usize, Kind)>,
    /// Jobs that were handed to a worker which has not taken them yet.
    handed: Vec<(usize, Job)>,
    running: usize,
    /// Workers that are about to ask for a request: each takes one that waits.
    coming: usize,
    /// Those of them that have just answered, and the kind of what they did.
    returning: Vec<(usize, Kind)>,
    closed: bool,
    /// How long a request took lately, in seconds.
    typical: f64,
}

/// The queue is full; it has room after about so many seconds.
#[derive(Debug)]
pub(super) struct Full {
    pub seconds: u64,
}

impl State {
    /// Takes the request that was handed to a worker.
    fn handed_to(&mut self, worker: usize) -> Option<Job> {
        let at = self.handed.iter().position(|(to, _)| *to == worker)?;
        Some(self.handed.swap_remove(at).1)
    }
}

impl Queue {
    /// A queue for so many workers, in which `limit` requests may wait.
    pub(super) fn new(limit: usize, workers: usize) -> Queue {
        let state = State { coming: workers, ..State::default() };
        Queue { state: Mutex::new(state), changed: Condvar::new(), limit }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a request. A worker takes it at once: the one whose last request was most like it, also if that has just answered and
    /// is not idle yet.
    pub(super) fn push(&self, job: Job, kind: &Kind) -> Result<(), Full> {
        let mut state = self.lock();
        if state.closed {
            return Err(Full { seconds: 1 });
        }
        // A client that has gone no longer waits.
        state.waiting.retain(|job| job.outbox.is_wanted());
        let likeness = |(_, known): &(usize, Kind)| known.likeness(kind);
        let best = |workers: &[(usize, Kind)]| {
            let best = workers.iter().enumerate().max_by_key(|(_, worker)| likeness(worker));
            best.map(|(at, worker)| (likeness(worker), at))
        };
        // What waits is before it.
        let returning = best(&state.returning).filter(|_| state.waiting.is_empty());
        let worker = match (best(&state.idle), returning) {
            (Some((idle, at)), returning) if returning.is_none_or(|(other, _)| other <= idle) => {
                Some(state.idle.remove(at))
            }
            (_, Some((_, at))) => Some(state.returning.remove(at)),
            _ => None,
        };
        if let Some((worker, _)) = worker {
            state.handed.push((worker, job));
            drop(state);
            self.changed.notify_all();
            return Ok(());
        }
        if state.waiting.len() >= self.limit.saturating_add(state.coming) {
            let ahead = state.waiting.len() as f64 / state.running.max(1) as f64;
            return Err(Full { seconds: (state.typical * ahead).ceil().clamp(1.0, 600.0) as u64 });
        }
        state.waiting.push_back(job);
        Ok(())
    }

    /// The next request for a worker; `None` once the queue is closed and empty. `known` is the kind of its last one.
    pub(super) fn next(&self, worker: usize, known: &Kind) -> Option<Job> {
        let mut state = self.lock();
        state.coming -= 1;
        state.returning.retain(|(other, _)| *other != worker);
        if let Some(job) = state.handed_to(worker).or_else(|| state.waiting.pop_front()) {
            state.running += 1;
            return Some(job);
        }
        if state.closed {
            return None;
        }
        state.idle.push((worker, known.clone()));
        loop {
            if let Some(job) = state.handed_to(worker) {
                state.running += 1;
                return Some(job);
            }
            if state.closed {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// That a worker is done with a request of a kind that it began then.
    pub(super) fn done(&self, worker: usize, known: &Kind, began: Instant) {
        let mut state = self.lock();
        state.running -= 1;
        state.coming += 1;
        state.returning.push((worker, known.clone()));
        let seconds = began.elapsed().as_secs_f64();
        state.typical = if state.typical == 0.0 { seconds } else { 0.8 * state.typical + 0.2 * seconds };
    }

    /// How many requests wait, and how many are being answered.
    pub(super) fn load(&self) -> (usize, usize) {
        let state = self.lock();
        (state.waiting.len() + state.handed.len(), state.running)
    }

    /// Lets no more requests in; the workers end once they have answered those that are there.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }
}
