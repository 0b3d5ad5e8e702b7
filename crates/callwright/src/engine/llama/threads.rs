//! How many threads decode fastest.
//!
//! llama.cpp's threads wait for one another many times in each step. With a thread per core on a busy machine, or with more
//! than one on a model of a few megabytes, each step waits for the slowest: six times slower was observed. So no more threads
//! are used than cores are free when the model is loaded. Of these, a few timed steps show the best number. They are timed
//! once, after the first answer, and remembered.

use super::{LLAMA, MAX_THREADS, SMALL};
use crate::cache;
use crate::engine::{LoadOptions, MeasuredThreads, ModelInfo};
use crate::machine::cores;
use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Timed steps per count; the median ignores one that was disturbed.
const STEPS: usize = 5;
/// Time after which steps are no longer repeated.
pub(super) const BUDGET: Duration = Duration::from_millis(300);
/// The file of the cache with what was measured.
const FILE: &str = "threads.json";

/// How many threads work on a model.
#[derive(Debug)]
pub(super) struct Threads {
    /// The number that decodes, once it is known.
    decode: OnceLock<usize>,
    /// Until then.
    guess: usize,
    prompt: usize,
    /// Cores that nobody else used when the model was loaded.
    free: usize,
    key: String,
    /// Whether one measures.
    measuring: Mutex<()>,
}

impl Threads {
    /// Returns what the options say, or was measured before for such a model on this machine; `size` is the size of its
    /// weights in bytes.
    pub(super) fn new(info: &ModelInfo, size: u64, options: &LoadOptions) -> Threads {
        if options.vocabulary_only {
            // Nothing is decoded.
            let (decode, key) = (OnceLock::from(1), String::new());
            return Threads { decode, guess: 1, prompt: 1, free: 1, key, measuring: Mutex::new(()) };
        }
        // More threads than processors wait for one another: a step of 64 threads on two was measured at minutes.
        let given = options.threads.map(|threads| threads.clamp(1, cores()));
        // Each adds products to a step.
        let adapters: String = options
            .lora
            .iter()
            .filter_map(|adapter| Some(format!(", an adapter of {} bytes,", adapter.file.metadata().ok()?.len())))
            .collect();
        let key = format!("{} of {size} bytes{adapters}{} {:?}", info.architecture, machine(), options.gpu_layers);
        let free = free_cores();
        let known = given.or_else(|| Some(remembered(&key)?.min(free)));
        let decode = known.map_or_else(OnceLock::new, OnceLock::from);
        let guess = if size < SMALL { 1 } else { free };
        let prompt = options.prompt_threads.or(given).unwrap_or(free).clamp(1, cores());
        Threads { decode, guess, prompt, free, key, measuring: Mutex::new(()) }
    }

    /// The number that decodes.
    pub(super) fn decode(&self) -> usize {
        self.decode.get().copied().unwrap_or(self.guess)
    }

    /// The number that reads prompts.
    pub(super) fn prompt(&self) -> usize {
        self.prompt
    }

    /// Measures the number that decodes, if it is not known; returns it, if it is another than before.
    pub(super) fn measure<S>(&self, start: impl Fn(usize) -> Option<S>) -> Option<usize>
    where
        S: FnMut() -> Option<Duration>,
    {
        let _measuring = self.measuring.try_lock().ok()?;
        // On a busy machine, nothing is learned for other days.
        if self.decode.get().is_some() || self.free < cores() {
            return None;
        }
        let threads = measured(start);
        remember(&self.key, threads);
        let _ = self.decode.set(threads);
        (threads != self.guess).then_some(threads)
    }

    /// Something else that was measured for the model on this machine, or is now.
    pub(super) fn once(&self, what: &str, measure: impl FnOnce() -> usize) -> usize {
        remembered(&self.key_of(what)).unwrap_or_else(|| {
            let found = measure();
            if self.free == cores() {
                remember(&self.key_of(what), found);
            }
            found
        })
    }

    fn key_of(&self, what: &str) -> String {
        format!("{}: {what}", self.key)
    }
}

/// How many of these no other program uses now; at least one. All where the system does not say.
fn free_cores() -> usize {
    let own_before = own_running();
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    // What has begun or ended meanwhile is not another program's either.
    let own = own_before.max(own_running());
    let all = stat.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu ")).count();
    let running = stat.lines().find_map(|line| line.strip_prefix("procs_running ")?.trim().parse::<usize>().ok());
    let others = running.unwrap_or_default().saturating_sub(own);
    if all == 0 { cores() } else { all.saturating_sub(others).clamp(1, cores()) }
}

/// How many threads of this process run now. What they prepare is short, and done before the model decodes.
fn own_running() -> usize {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let runs = |stat: String| stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('R'));
    threads.filter(|thread| std::fs::read_to_string(thread.path().join("stat")).is_ok_and(runs)).count()
}

/// Returns what the counts of this machine and this version are remembered by; it follows the model.
fn machine() -> String {
    let cpu = crate::machine::processor().unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    format!(" on {} cores of {cpu}, llama.cpp {LLAMA}, {}", cores(), env!("CARGO_PKG_VERSION"))
}

/// The counts that are remembered for this machine and this version.
pub fn measured_counts() -> Vec<MeasuredThreads> {
    counts_in(cache::read_json(FILE).unwrap_or_default())
}

fn counts_in(known: BTreeMap<String, usize>) -> Vec<MeasuredThreads> {
    let machine = machine();
    let counts = known.into_iter().filter_map(|(key, threads)| {
        let (model, rest) = key.split_once(&machine)?;
        // A number of contexts is remembered in the same file.
        (!rest.contains(": ")).then(|| MeasuredThreads { model: model.to_owned(), threads })
    });
    counts.collect()
}

fn remembered(key: &str) -> Option<usize> {
    let known: BTreeMap<String, usize> = cache::read_json(FILE)?;
    known.get(key).copied().filter(|count| (1..=MAX_THREADS).contains(count))
}

fn remember(key: &str, count: usize) {
    // Threads of this process take turns; what another process writes at the same time may be lost, and is measured again.
    static WRITING: Mutex<()> = Mutex::new(());
    let _writing = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut known: BTreeMap<String, usize> = cache::read_json(FILE).unwrap_or_default();
    known.insert(key.to_owned(), count);
    cache::write_json(FILE, &known);
}

/// The fastest number of threads, out of all cores and repeated halves.
///
/// `start` prepares a count and returns the closure that times one step. If either returns `None`, the count is
/// skipped.
fn measured<S: FnMut() -> Option<Duration>>(start: impl Fn(usize) -> Option<S>) -> usize {
    let counts = std::iter::successors(Some(cores()), |count| (*count > 1).then_some(count / 2));
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
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    #[cfg(target_os = "linux")]
    fn threads_of_this_process_are_not_those_of_other_programs() {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            // It may have to wait for its first moment.
            let seen = (0..1000).any(|_| {
                std::thread::sleep(Duration::from_millis(1));
                own_running() >= 2
            });
            done.store(true, Ordering::Relaxed);
            assert!(seen);
        });
    }

    #[test]
    fn the_least_median_wins_and_one_disturbed_step_does_not_matter() {
        let cores = cores();
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
    fn the_counts_of_this_machine_are_those_that_are_used() {
        let info = ModelInfo { architecture: "qwen3".to_owned(), ..ModelInfo::default() };
        let key = Threads::new(&info, 1000, &LoadOptions::default()).key;
        let elsewhere = key.replace(" cores of ", " cores of another ");
        let known = [(key.clone(), 3), (format!("{key}: contexts for 8 sequences"), 2), (elsewhere, 7)];
        let counts = counts_in(known.into());
        assert_eq!(counts, [MeasuredThreads { model: "qwen3 of 1000 bytes".to_owned(), threads: 3 }]);
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
