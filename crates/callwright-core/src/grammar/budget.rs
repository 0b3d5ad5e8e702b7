//! The time, the stack and the end of compiling a grammar.
//!
//! What is large is compiled on a thread of its own, with a stack that fits the [`Limits`](super::Limits). The caller
//! waits for it, and stops waiting when the time is over or the answer is cancelled. The thread notices that between
//! two steps of the engine. A step that never ends is not known, because schemas are measured before; if there is one,
//! its thread keeps running, and [`Limits::abandoned`](super::Limits::abandoned) bounds how many there are.

use super::limits::LIMITS;
use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Why compiling ended before it was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Ended {
    /// It took more than [`Limits::time`](super::Limits::time).
    Late,
    /// The answer was cancelled.
    Cancelled,
    /// Too many others that were late have not ended yet, or no thread can be started.
    Busy,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Late => write!(f, "compiling it takes more than {} seconds", LIMITS.time.as_secs()),
            Ended::Cancelled => f.write_str("the answer was cancelled"),
            Ended::Busy => f.write_str("no further grammar of this size can be compiled now"),
        }
    }
}

/// How often a waiting caller looks whether the answer was cancelled.
const LOOK: Duration = Duration::from_millis(10);
/// How much longer than its time a thread gets to notice that it is over.
const GRACE: Duration = Duration::from_millis(500);

static ABANDONED: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// What ends the work of this thread.
    static CURRENT: RefCell<Option<Budget>> = const { RefCell::new(None) };
}

#[derive(Clone, Default)]
struct Budget {
    until: Option<Instant>,
    cancelled: Option<Arc<AtomicBool>>,
    /// Who was first: the thread that is done, or the caller that waits no longer.
    first: Arc<AtomicU8>,
}

const DONE: u8 = 1;
const LEFT: u8 = 2;

impl Budget {
    fn check(&self) -> Result<(), Ended> {
        if self.first.load(Ordering::Relaxed) == LEFT || self.until.is_some_and(|until| Instant::now() > until) {
            return Err(Ended::Late);
        }
        match &self.cancelled {
            Some(cancelled) if cancelled.load(Ordering::Relaxed) => Err(Ended::Cancelled),
            _ => Ok(()),
        }
    }
}

/// Runs `work` with this budget on this thread, and restores the one before.
fn on_this_thread<T>(budget: Budget, work: impl FnOnce() -> T) -> T {
    struct Restore(Option<Budget>);
    impl Drop for Restore {
        fn drop(&mut self) {
            CURRENT.replace(self.0.take());
        }
    }
    let _restore = Restore(CURRENT.replace(Some(budget)));
    work()
}

/// Everything that is compiled in `work` ends when `cancelled` is set.
pub fn cancelled_by<T>(cancelled: &Arc<AtomicBool>, work: impl FnOnce() -> T) -> T {
    let mut budget = CURRENT.with_borrow(|current| current.clone().unwrap_or_default());
    budget.cancelled = Some(Arc::clone(cancelled));
    on_this_thread(budget, work)
}

/// Everything that is compiled in `work` has to end within [`Limits::time`](super::Limits::time) together.
pub fn limited<T>(work: impl FnOnce() -> T) -> T {
    let mut budget = CURRENT.with_borrow(|current| current.clone().unwrap_or_default());
    budget.until.get_or_insert_with(|| Instant::now() + LIMITS.time);
    on_this_thread(budget, work)
}

/// Runs `work` within [`Limits::time`](super::Limits::time): here, or if it is `large`, on a thread with a stack for it.
///
/// # Errors
/// [`Ended`] if it is not done in time. If it runs here, it has to [`check`] that itself.
pub fn within<T: Send + 'static>(large: bool, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Ended> {
    let mut budget = CURRENT.with_borrow(|current| current.clone().unwrap_or_default());
    budget.check()?;
    let until = *budget.until.get_or_insert_with(|| Instant::now() + LIMITS.time);
    // The stack of a thread that was made for this is large already.
    if !large || IS_LARGE.get() {
        return Ok(on_this_thread(budget, work));
    }
    if ABANDONED.load(Ordering::Relaxed) >= LIMITS.abandoned {
        return Err(Ended::Busy);
    }
    budget.first = Arc::default();
    let (sender, receiver) = channel();
    let theirs = budget.clone();
    let thread = move || {
        /// Also where the work panics.
        struct Done(Arc<AtomicU8>);
        impl Drop for Done {
            fn drop(&mut self) {
                if self.0.swap(DONE, Ordering::AcqRel) == LEFT {
                    ABANDONED.fetch_sub(1, Ordering::Relaxed);
                }
            }
        }
        let _done = Done(Arc::clone(&theirs.first));
        IS_LARGE.set(true);
        // Nobody waits any more if it was too late.
        let _ = sender.send(on_this_thread(theirs, work));
    };
    let thread = std::thread::Builder::new().name("grammar".to_owned()).stack_size(LIMITS.stack).spawn(thread);
    let Ok(thread) = thread else { return Err(Ended::Busy) };
    loop {
        match receiver.recv_timeout(LOOK) {
            Ok(done) => return Ok(done),
            // It panicked, and the panic is the caller's.
            Err(RecvTimeoutError::Disconnected) => match thread.join() {
                Err(panic) => std::panic::resume_unwind(panic),
                Ok(()) => return Err(Ended::Busy),
            },
            Err(RecvTimeoutError::Timeout) => {}
        }
        match budget.check() {
            Err(Ended::Late) if Instant::now() < until + GRACE => {}
            Err(ended) => {
                ABANDONED.fetch_add(1, Ordering::Relaxed);
                if budget.first.swap(LEFT, Ordering::AcqRel) == DONE {
                    ABANDONED.fetch_sub(1, Ordering::Relaxed);
                }
                return Err(ended);
            }
            Ok(()) => {}
        }
    }
}

thread_local! {
    /// Whether this thread has the stack of [`Limits::stack`](super::Limits::stack).
    static IS_LARGE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Whether compiling may go on; it may where there is no budget.
///
/// # Errors
/// [`Ended`] if it may not.
pub fn check() -> Result<(), Ended> {
    CURRENT.with_borrow(|current| current.as_ref().map_or(Ok(()), Budget::check))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_too_long_is_left_behind_and_counted_until_it_ends() {
        let cancelled = Arc::new(AtomicBool::new(false));
        assert_eq!(cancelled_by(&cancelled, || within(true, check)), Ok(Ok(())));
        let (release, wait) = channel::<()>();
        let flag = Arc::clone(&cancelled);
        let ended = cancelled_by(&cancelled, || {
            within(true, move || {
                flag.store(true, Ordering::Relaxed);
                let _ = wait.recv();
                check()
            })
        });
        assert_eq!(ended, Err(Ended::Cancelled));
        assert!(ABANDONED.load(Ordering::Relaxed) > 0);
        release.send(()).unwrap();
        while ABANDONED.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
        assert_eq!(cancelled_by(&cancelled, || within(true, || ())), Err(Ended::Cancelled));
        assert_eq!(within(true, || within(true, || 7)), Ok(Ok(7)));
    }

    #[test]
    fn a_large_thread_has_a_stack_for_the_limits_and_passes_panics_on() {
        fn deep(levels: usize) -> usize {
            let levels_left = std::hint::black_box([levels; 500]);
            if levels == 0 { 0 } else { 1 + deep(levels_left[7] - 1) }
        }
        assert_eq!(within(true, || deep(20_000)), Ok(20_000));
        assert!(std::panic::catch_unwind(|| within(true, || panic!("for the caller"))).is_err());
    }
}
