//! Measures how many threads decode fastest.
//!
//! llama.cpp's threads spin at barriers. With a thread per core on a busy machine, or with more than one on a model of
//! a few megabytes, each step waits for the slowest thread: six times slower was observed. The number of cores cannot
//! show this; a few timed steps can.

use std::time::{Duration, Instant};

/// Timed steps per count; the median ignores one that was disturbed.
const STEPS: usize = 5;
/// Time after which steps are no longer repeated.
pub(super) const BUDGET: Duration = Duration::from_millis(300);

/// The fastest number of threads, out of all cores and repeated halves.
///
/// `start` prepares a count and returns the closure that times one step. If either returns `None`, the count is
/// skipped.
pub(super) fn measured<S: FnMut() -> Option<Duration>>(start: impl Fn(usize) -> Option<S>) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let counts = std::iter::successors(Some(cores), |count| (*count > 1).then_some(count / 2));
    let began = Instant::now();
    let mut timed: Vec<(Duration, usize)> = Vec::new();
    for count in counts {
        let Some(median) = start(count).and_then(|mut step| median(&mut step, began)) else { continue };
        tracing::debug!(threads = count, ?median, "timed decoding steps");
        timed.push((median, count));
        // Fewer threads are clearly slower, so even fewer will be too.
        if timed.iter().min().is_some_and(|(least, _)| median > least.mul_f64(1.5)) {
            break;
        }
    }
    timed.iter().min().map_or(1, |(_, count)| *count)
}

/// The median time of a few steps: at least one, and no more once [`BUDGET`] is spent since `began`.
pub(super) fn median(step: &mut impl FnMut() -> Option<Duration>, began: Instant) -> Option<Duration> {
    // The first step also warms up pages and caches.
    step()?;
    let left = |taken: &usize| *taken == 0 || began.elapsed() < BUDGET;
    let mut times: Vec<Duration> = (0..STEPS).take_while(left).map_while(|_| step()).collect();
    times.sort_unstable();
    times.get(times.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_median_wins_and_one_disturbed_step_does_not_matter() {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let chosen = measured(|count| {
            let mut calls = 0;
            Some(move || {
                calls += 1;
                let disturbed = if calls == 3 { 50 } else { 1 };
                Some(Duration::from_micros(100 * count as u64 * disturbed))
            })
        });
        assert_eq!(chosen, 1);
        let chosen = measured(|count| Some(move || Some(Duration::from_micros(1000 / count as u64))));
        assert_eq!(chosen, cores);
    }

    #[test]
    fn slow_steps_are_not_repeated_beyond_the_budget() {
        let mut steps = 0;
        let mut step = || {
            steps += 1;
            std::thread::sleep(BUDGET / 3);
            Some(BUDGET / 3)
        };
        assert_eq!(median(&mut step, Instant::now()), Some(BUDGET / 3));
        assert!(steps < 1 + STEPS, "{steps} steps");
    }

    #[test]
    fn failing_counts_are_skipped() {
        assert_eq!(measured(|_| None::<fn() -> Option<Duration>>), 1);
        assert_eq!(measured(|_| Some(|| None)), 1);
    }
}
