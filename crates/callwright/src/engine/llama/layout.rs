//! How many sequences share a context: all or, with a model of a few megabytes, none. It is measured.
//!
//! Such a model stays in the processor's caches, so there is little to share, and llama.cpp's attention over several sequences
//! costs more than decoding them one by one; a context per core waits for no other core.

use super::context::{Context, Pool, Shape};
use super::threads::{BUDGET, median};
use super::weights::Weights;
use super::{LlamaEngine, LoadOptions};
use crate::engine::Token;
use crate::machine::cores;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Decoding a token of each of several sequences in one context must take less than this share of the time with
/// separate contexts: shared ones also wait for one another's prompts and samplers, which one-token steps do not
/// measure.
const WORTH_WAITING: f64 = 0.75;
/// Number of timings of both, unless [`BUDGET`] is spent earlier.
const ROUNDS: usize = 4;

/// The distribution of sequences over contexts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Layout {
    /// Number of contexts that decode at the same time.
    pub contexts: usize,
    /// Sequences in each.
    pub each: usize,
    /// Threads that decode in each.
    pub threads: usize,
    /// Threads that read prompts in each.
    pub prompt_threads: usize,
}

impl Layout {
    /// One sequence, with `threads` threads.
    pub(super) fn alone(threads: usize) -> Layout {
        Layout { contexts: 1, each: 1, threads, prompt_threads: threads }
    }

    /// One of its contexts, whose sequences have up to `tokens` each.
    pub(super) fn shape(self, tokens: usize, options: &LoadOptions) -> Shape {
        let Layout { each: sequences, threads, prompt_threads, .. } = self;
        Shape {
            tokens,
            sequences,
            threads,
            prompt_threads,
            flash_attention: options.flash_attention(tokens),
            embeds: None,
        }
    }
}

/// The layout for at most `count` sequences that decodes the most tokens per second.
pub(super) fn fastest(engine: &LlamaEngine, count: usize) -> Layout {
    let (threads, prompt_threads) = (engine.threads.decode(), engine.threads.prompt());
    let together = Layout { contexts: 1, each: count, threads, prompt_threads };
    let contexts = contexts_at_a_time(&engine.options).min(count);
    if contexts == 1 {
        return together;
    }
    let apart = Layout { contexts, each: 1, threads: 1, prompt_threads: 1 };
    let measure = || if faster(engine, together, apart) == together { 1 } else { contexts };
    match engine.threads.once(&format!("contexts for {count} sequences"), measure) {
        1 => together,
        _ => apart,
    }
}

/// Which of two layouts decodes the most tokens per second.
fn faster(engine: &LlamaEngine, together: Layout, apart: Layout) -> Layout {
    let (mut shared, mut alone) = (Duration::MAX, Duration::MAX);
    let began = Instant::now();
    // Alternately, and the best of each: other programs can only make a step longer.
    for _ in 0..ROUNDS {
        let times = (time_of_token(engine, together), time_of_token(engine, apart));
        let (Some(with_others), Some(by_itself)) = times else { return together };
        (shared, alone) = (shared.min(with_others), alone.min(by_itself));
        if began.elapsed() > BUDGET {
            break;
        }
    }
    tracing::debug!(?shared, ?alone, ?together, ?apart, "timed a token in one context and in several");
    if shared < alone.mul_f64(WORTH_WAITING) { together } else { apart }
}

/// The time per token while all contexts of `layout` decode; `None` if one cannot.
fn time_of_token(engine: &LlamaEngine, layout: Layout) -> Option<Duration> {
    let (model, options) = (&engine.model, &engine.options);
    let steps: Option<Vec<Duration>> = std::thread::scope(|scope| {
        let timed = || median(&mut steps(model, layout, options, &[1])?, Instant::now());
        let threads: Vec<_> = (0..layout.contexts).map(|_| scope.spawn(timed)).collect();
        threads.into_iter().map(|thread| thread.join().ok().flatten()).collect()
    });
    let slowest = steps?.into_iter().max()?;
    Some(slowest.div_f64((layout.contexts * layout.each) as f64))
}

/// The number of contexts that can decode in parallel, each with one thread.
fn contexts_at_a_time(options: &LoadOptions) -> usize {
    if options.is_on_gpu() || options.threads.is_some() { 1 } else { cores() }
}

/// A closure that decodes so many tokens of each sequence of one context, with all their logits, and returns the time.
pub(super) fn steps(
    model: &Arc<Weights>,
    layout: Layout,
    options: &LoadOptions,
    sizes: &'static [usize],
) -> Option<impl FnMut() -> Option<Duration> + use<>> {
    let mut context = Context::new(model, layout.shape(1, options), options, &Pool::default()).ok()?;
    let (mut position, mut sizes) = (0, sizes.iter().cycle());
    Some(move || {
        let tokens = *sizes.next()?;
        for at in position..position + tokens {
            (0..layout.each).for_each(|sequence| context.add(Token(0), at, sequence, true));
        }
        position += tokens;
        let started = Instant::now();
        context.decode().ok()?;
        context.finish();
        Some(started.elapsed())
    })
}
