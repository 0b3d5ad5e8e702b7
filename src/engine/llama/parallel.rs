//! Several parallel generations of one model.
//!
//! Each has its own [`Engine`] on its own thread, and knows nothing of the others. It is a sequence of a context shared
//! with some of them. Its [`Engine::decode`] waits until every sequence that is in a turn has requested decoding. The
//! last one decodes for all, so that the weights pass through the processor once for a token of each. The beginning of
//! a prompt that another sequence has in the cache, or will have soon, is copied.
//!
//! How many share a context is measured: all or, with a model of a few megabytes, none. Such a model stays in the
//! processor's caches, so there is little to share, and llama.cpp's attention over several sequences costs more than
//! decoding them one by one; a context per core waits for no other core.

use super::threads::{BUDGET, median};
use super::{BATCH, LlamaEngine, LoadOptions, create_context, engine_error, one_token_steps};
use crate::engine::sampler::Sampling;
use crate::engine::vocabulary::Vocabulary;
use crate::engine::{Engine, ModelInfo, Token, common};
use crate::template::Piece;
use crate::{Error, ErrorKind, Result};
use llama_cpp_2::context::LlamaContext;
use llama_cpp_2::llama_batch::LlamaBatch;
use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::token::LlamaToken;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum sequences in one context: llama.cpp's LLAMA_MAX_SEQ.
pub(crate) const MAX_SEQUENCES: usize = 256;

/// Minimum number of prompt tokens for which to wait until another sequence has them.
const WORTH_SHARING: usize = 32;

/// Decoding a token of each of several sequences in one context must take less than this share of the time with
/// separate contexts: shared ones also wait for one another's prompts and samplers, which one-token steps do not
/// measure.
const WORTH_WAITING: f64 = 0.75;
/// Number of timings of both, unless [`BUDGET`] is spent earlier.
const ROUNDS: usize = 4;

/// Parallel generations: contexts, each with some sequences.
pub(crate) struct Sequences(Vec<Arc<Shared>>);

/// The distribution of sequences over contexts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Layout {
    /// Number of contexts that decode at the same time.
    pub contexts: usize,
    /// Sequences in each.
    pub each: usize,
    /// Threads of each.
    pub threads: usize,
}

impl Layout {
    /// One sequence, with `threads` threads.
    pub(super) fn alone(threads: usize) -> Layout {
        Layout { contexts: 1, each: 1, threads }
    }
}

struct Shared {
    // Before `model`, which the context points into.
    state: Mutex<State>,
    changed: Condvar,
    model: Arc<LlamaModel>,
    info: ModelInfo,
    layout: Layout,
    /// `--ctx`, if given.
    context: Option<usize>,
}

struct State {
    /// `None` until a sequence needs space.
    context: Option<LlamaContext<'static>>,
    /// Capacity of each sequence in tokens.
    room: usize,
    sequences: Vec<SequenceState>,
}

#[derive(Default)]
struct SequenceState {
    taken: bool,
    /// The tokens in its part of the KV cache.
    cached: Vec<Token>,
    /// The prompt of its turn, which will be in the cache soon.
    prompt: Vec<Token>,
    /// Whether it generates, so that the others wait for its decoding.
    in_turn: bool,
    /// The capacity that it waits for: no turn begins until it is available.
    wanted_room: usize,
    wanted: Option<Wanted>,
    /// The requested logits, or the error.
    answer: Option<Result<Vec<Vec<f32>>, String>>,
}

struct Wanted {
    tokens: Vec<Token>,
    /// Number of tokens that the sequence already has.
    from: usize,
    /// The first token that needs logits.
    first: usize,
}

impl Sequences {
    /// At most `count` parallel sequences with the model of `engine`. Their contexts grow as needed.
    ///
    /// # Errors
    /// [`ErrorKind::Engine`] if there are too many.
    pub(crate) fn new(engine: &LlamaEngine, count: usize) -> Result<Sequences> {
        if !(1..=MAX_SEQUENCES).contains(&count) {
            let message = format!("{count} sequences in one context; llama.cpp has 1 to {MAX_SEQUENCES}");
            return Err(Error::new(ErrorKind::Engine, message));
        }
        let layout = fastest_layout(engine, count);
        Ok(Sequences((0..layout.contexts).map(|_| Arc::new(Shared::new(engine, layout))).collect()))
    }

    /// The number of sequences.
    pub(crate) fn at_a_time(&self) -> usize {
        self.0.iter().map(|shared| shared.layout.each).sum()
    }

    /// Takes one sequence, for the calling thread, and the handle that ends its turns.
    ///
    /// # Errors
    /// [`ErrorKind::Engine`] if all are taken.
    pub(crate) fn take(&self) -> Result<(Box<dyn Engine>, TurnEnd)> {
        let sequence = self.0.iter().find_map(Sequence::take);
        let sequence = sequence.ok_or_else(|| Error::new(ErrorKind::Engine, "all sequences are taken"))?;
        let end = TurnEnd(Arc::clone(&sequence.shared), sequence.index);
        Ok((Box::new(sequence), end))
    }
}

/// The layout for at most `count` sequences that decodes the most tokens per second.
fn fastest_layout(engine: &LlamaEngine, count: usize) -> Layout {
    let together = Layout { contexts: 1, each: count, threads: engine.threads };
    let contexts = engine.contexts_at_a_time().min(count);
    if contexts == 1 {
        return together;
    }
    let apart = Layout { contexts, each: 1, threads: 1 };
    let (mut shared, mut alone) = (Duration::MAX, Duration::MAX);
    let began = Instant::now();
    // Alternately, and the best of each: other programs can only make a step longer.
    for _ in 0..ROUNDS {
        let times = (time_of_token(&engine.model, together), time_of_token(&engine.model, apart));
        let (Some(with_others), Some(by_itself)) = times else { return together };
        (shared, alone) = (shared.min(with_others), alone.min(by_itself));
        if began.elapsed() > BUDGET {
            break;
        }
    }
    tracing::debug!(?shared, ?alone, contexts, count, "timed a token in one context and in several");
    if shared < alone.mul_f64(WORTH_WAITING) { together } else { apart }
}

/// The time per token while all contexts of `layout` decode; `None` if one cannot.
fn time_of_token(model: &LlamaModel, layout: Layout) -> Option<Duration> {
    let steps: Option<Vec<Duration>> = std::thread::scope(|scope| {
        let timed = || median(&mut one_token_steps(model, layout)?, Instant::now());
        let threads: Vec<_> = (0..layout.contexts).map(|_| scope.spawn(timed)).collect();
        threads.into_iter().map(|thread| thread.join().ok().flatten()).collect()
    });
    let slowest = steps?.into_iter().max()?;
    Some(slowest.div_f64((layout.contexts * layout.each) as f64))
}

impl Shared {
    fn new(engine: &LlamaEngine, layout: Layout) -> Shared {
        let sequences = (0..layout.each).map(|_| SequenceState::default()).collect();
        Shared {
            state: Mutex::new(State { context: None, room: 0, sequences }),
            changed: Condvar::new(),
            model: Arc::clone(&engine.model),
            info: engine.info.clone(),
            layout,
            context: engine.options.context,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'s>(&self, state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    fn limit(&self) -> usize {
        self.context.unwrap_or(self.info.context_train)
    }

    /// Recreates the context with space for at least `needed` tokens of each sequence; its content is lost.
    fn grow(&self, state: &mut State, needed: usize) -> Result<()> {
        let wished = state.wanted_room().max(needed);
        // As for a single sequence, doubling avoids frequent growth.
        let doubled = wished.max(2 * state.room).min(self.limit().max(wished));
        state.lose_all();
        (state.context, state.room) = (None, 0);
        let make = |tokens| create_context(&self.model, tokens, BATCH, self.layout);
        // If there is not enough memory for what the others want, there may be for this one.
        let context = make(doubled).or_else(|_| make(wished)).or_else(|_| make(needed))?;
        // SAFETY: the context borrows the model, which lives in an `Arc` in the same struct. It is never replaced, and
        // is declared after the state, so that the context is dropped first.
        let context = unsafe { std::mem::transmute::<LlamaContext<'_>, LlamaContext<'static>>(context) };
        state.room = context.n_ctx() as usize / self.layout.each;
        state.context = Some(context);
        Ok(())
    }

    fn end_turn(&self, index: usize) {
        let mut state = self.lock();
        let sequence = &mut state.sequences[index];
        sequence.in_turn = false;
        sequence.wanted = None;
        sequence.prompt.clear();
        drop(state);
        self.changed.notify_all();
    }
}

/// Ends the turns of one sequence, so that the others of its context no longer wait for it.
pub(crate) struct TurnEnd(Arc<Shared>, usize);

impl TurnEnd {
    /// Ends the turn. To be called after each generation, successful or not.
    pub(crate) fn end(&self) {
        self.0.end_turn(self.1);
    }
}

/// One sequence of a shared context.
struct Sequence {
    /// The tokenizer of an engine; it has no context.
    words: LlamaEngine,
    shared: Arc<Shared>,
    index: usize,
    /// As in the state, or its last value before it was lost.
    cached: Vec<Token>,
    /// The logits after each of the last requested tokens.
    logits: Vec<Vec<f32>>,
}

impl Sequence {
    /// Claims a free sequence.
    fn take(shared: &Arc<Shared>) -> Option<Sequence> {
        let mut state = shared.lock();
        let index = state.sequences.iter().position(|sequence| !sequence.taken)?;
        state.sequences[index].taken = true;
        drop(state);
        let words = LlamaEngine::of(Arc::clone(&shared.model), shared.info.clone(), LoadOptions::default(), 1);
        Some(Sequence { words, shared: Arc::clone(shared), index, cached: Vec::new(), logits: Vec::new() })
    }

    fn number(&self) -> u32 {
        u32::try_from(self.index).unwrap_or(u32::MAX)
    }

    /// Copies the beginning of `prompt` from another sequence of the context that has more of it.
    fn take_prefix(&mut self, state: &mut State, prompt: &[Token]) -> Result<()> {
        let (other, length) = state.longest_prefix(prompt);
        let Some(context) = &mut state.context else { return Ok(()) };
        if length < common(&self.cached, prompt) + WORTH_SHARING {
            return Ok(());
        }
        let (from, to) = (i32::try_from(other).unwrap_or(i32::MAX), i32::try_from(self.index).unwrap_or(i32::MAX));
        let _ = context.clear_kv_cache_seq(Some(self.number()), None, None);
        // With separate sequences, llama.cpp copies a whole one or nothing.
        context.copy_kv_cache_seq(from, to, None, None).map_err(engine_error)?;
        self.cached.clone_from(&state.sequences[other].cached);
        state.sequences[self.index].cached.clone_from(&self.cached);
        self.keep_first(state, length);
        Ok(())
    }

    /// Drops all but the first `len` tokens, or all of them.
    fn keep_first(&mut self, state: &mut State, len: usize) {
        let Some(context) = &mut state.context else { return };
        let number = Some(self.number());
        let kept = match context.clear_kv_cache_seq(number, u32::try_from(len).ok(), None) {
            Ok(true) => len,
            // Recurrent models and sliding windows cannot drop a part, but can always drop everything.
            _ => {
                let _ = context.clear_kv_cache_seq(number, None, None);
                0
            }
        };
        self.cached.truncate(kept);
        state.sequences[self.index].cached.truncate(kept);
    }

    /// Drops what was lost with the context.
    fn notice_losses(&mut self, state: &State) {
        if state.sequences[self.index].cached.len() < self.cached.len() {
            self.cached.clear();
            self.logits.clear();
        }
    }
}

impl Drop for Sequence {
    fn drop(&mut self) {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        self.keep_first(&mut state, 0);
        state.sequences[self.index] = SequenceState::default();
        drop(state);
        shared.changed.notify_all();
    }
}

impl State {
    /// Whether every sequence that is in a turn waits.
    fn is_complete(&self) -> bool {
        self.sequences.iter().all(|sequence| !sequence.in_turn || sequence.wanted.is_some())
    }

    fn nobody_is_in_turn(&self) -> bool {
        self.sequences.iter().all(|sequence| !sequence.in_turn)
    }

    /// The capacity that some sequence waits for.
    fn wanted_room(&self) -> usize {
        self.sequences.iter().map(|sequence| sequence.wanted_room).max().unwrap_or_default()
    }

    /// Everything in the context is lost.
    fn lose_all(&mut self) {
        self.sequences.iter_mut().for_each(|sequence| sequence.cached.clear());
    }

    /// The sequence with the longest prefix of `prompt`, and its length.
    fn longest_prefix(&self, prompt: &[Token]) -> (usize, usize) {
        let prefixes = self.sequences.iter().map(|sequence| common(&sequence.cached, prompt)).enumerate();
        prefixes.max_by_key(|(_, length)| *length).unwrap_or_default()
    }

    /// Whether a generating sequence will soon have a longer prefix of `prompt` than any has now.
    fn prefix_is_coming(&self, prompt: &[Token]) -> bool {
        let coming = self.sequences.iter().filter(|one| one.in_turn).map(|one| common(&one.prompt, prompt)).max();
        coming.is_some_and(|coming| coming >= self.longest_prefix(prompt).1 + WORTH_SHARING)
    }

    /// Decodes all requests.
    fn decode(&mut self) {
        let wanted: Vec<(usize, Wanted)> = self
            .sequences
            .iter_mut()
            .enumerate()
            .filter_map(|(index, sequence)| Some((index, sequence.wanted.take()?)))
            .collect();
        let decoded = match &mut self.context {
            Some(context) => batches(context, &wanted),
            None => Err(Error::new(ErrorKind::Engine, "nothing to decode into: no room was reserved")),
        };
        match decoded {
            Ok(answers) => {
                for ((index, _), answer) in wanted.iter().zip(answers) {
                    self.sequences[*index].answer = Some(Ok(answer));
                }
            }
            Err(error) => {
                if let Some(context) = &mut self.context {
                    context.clear_kv_cache();
                }
                self.lose_all();
                for (index, _) in wanted {
                    self.sequences[index].answer = Some(Err(error.message().to_owned()));
                }
            }
        }
    }
}

/// Decodes all requests, in batches that llama.cpp accepts; returns the requested logits of each.
fn batches(context: &mut LlamaContext<'_>, wanted: &[(usize, Wanted)]) -> Result<Vec<Vec<Vec<f32>>>> {
    let mut answers = vec![Vec::new(); wanted.len()];
    let mut batch = LlamaBatch::new(BATCH, 1);
    // The rows of the batch with logits, and the request that each belongs to.
    let mut requests: Vec<(i32, usize)> = Vec::new();
    let mut flush = |batch: &mut LlamaBatch, requests: &mut Vec<(i32, usize)>| -> Result<()> {
        if batch.n_tokens() > 0 {
            context.decode(batch).map_err(engine_error)?;
            for (row, place) in requests.drain(..) {
                answers[place].push(context.get_logits_ith(row).to_vec());
            }
            batch.clear();
        }
        Ok(())
    };
    for (place, (index, wanted)) in wanted.iter().enumerate() {
        let sequence = i32::try_from(*index).unwrap_or(i32::MAX);
        for (i, token) in wanted.tokens.iter().enumerate() {
            if usize::try_from(batch.n_tokens()).is_ok_and(|tokens| tokens >= BATCH) {
                flush(&mut batch, &mut requests)?;
            }
            let position = i32::try_from(wanted.from + i).unwrap_or(i32::MAX);
            let asks = i >= wanted.first;
            if asks {
                requests.push((batch.n_tokens(), place));
            }
            batch.add(LlamaToken(token.0), position, &[sequence], asks).map_err(engine_error)?;
        }
    }
    flush(&mut batch, &mut requests)?;
    Ok(answers)
}

impl Engine for Sequence {
    fn model(&self) -> &ModelInfo {
        self.words.model()
    }

    fn tokenize(&self, prompt: &[Piece]) -> Result<Vec<Token>> {
        self.words.tokenize(prompt)
    }

    fn token_bytes(&self, token: Token) -> &[u8] {
        self.words.token_bytes(token)
    }

    fn vocabulary(&self) -> Option<Vocabulary> {
        self.words.vocabulary()
    }

    fn is_end(&self, token: Token) -> bool {
        self.words.is_end(token)
    }

    fn begin(&mut self, prompt: &[Token], _sampling: &Sampling) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        // A model that cannot drop only its last tokens cannot share a prefix.
        let shares = self.can_truncate();
        while !state.sequences[self.index].in_turn
            && (state.wanted_room() > state.room || shares && state.prefix_is_coming(prompt))
        {
            state = shared.wait(state);
        }
        self.notice_losses(&state);
        let mine = &mut state.sequences[self.index];
        mine.in_turn = true;
        mine.prompt = prompt.to_vec();
        if shares {
            self.take_prefix(&mut state, prompt)?;
        }
        Ok(())
    }

    fn reserve(&mut self, tokens: usize) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        let mut made = Ok(());
        if tokens > state.room {
            // Generating sequences need what is in the context; those that also wait for space do not.
            let was_in_turn = std::mem::take(&mut state.sequences[self.index].in_turn);
            state.sequences[self.index].wanted_room = tokens;
            shared.changed.notify_all();
            while tokens > state.room && made.is_ok() {
                if state.nobody_is_in_turn() {
                    made = shared.grow(&mut state, tokens);
                    shared.changed.notify_all();
                } else {
                    state = shared.wait(state);
                }
            }
            state.sequences[self.index].wanted_room = 0;
            state.sequences[self.index].in_turn = was_in_turn;
            shared.changed.notify_all();
        }
        self.notice_losses(&state);
        made
    }

    fn context_limit(&self) -> usize {
        self.shared.limit()
    }

    fn cached(&self) -> &[Token] {
        &self.cached
    }

    fn truncate(&mut self, len: usize) {
        if len >= self.cached.len() {
            return;
        }
        let shared = Arc::clone(&self.shared);
        self.keep_first(&mut shared.lock(), len);
    }

    fn decode(&mut self, tokens: &[Token]) -> Result<()> {
        self.decode_all(tokens, tokens.len().saturating_sub(1))
    }

    fn sibling(&self) -> Option<Box<dyn Engine>> {
        let options = LoadOptions { context: self.shared.context, ..LoadOptions::default() };
        let (model, info) = (Arc::clone(&self.shared.model), self.shared.info.clone());
        Some(Box::new(LlamaEngine::of(model, info, options, self.shared.layout.threads)))
    }

    fn can_truncate(&self) -> bool {
        self.words.can_draft()
    }

    fn can_draft(&self) -> bool {
        // llama.cpp decodes sequences with different numbers of tokens one after the other.
        self.shared.layout.each == 1 && self.words.can_draft()
    }

    fn decode_all(&mut self, tokens: &[Token], first: usize) -> Result<()> {
        let vocabulary = self.shared.model.n_vocab();
        if let Some(stranger) = tokens.iter().find(|token| !(0..vocabulary).contains(&token.0)) {
            return Err(Error::new(ErrorKind::Engine, format!("token {} is not in the vocabulary", stranger.0)));
        }
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        let (needed, room) = (self.cached.len() + tokens.len(), state.room);
        if needed > room {
            let message = format!("{needed} tokens do not fit into the {room} that were reserved");
            return Err(Error::new(ErrorKind::Engine, message));
        }
        state.sequences[self.index].in_turn = true;
        state.sequences[self.index].wanted = Some(Wanted { tokens: tokens.to_vec(), from: self.cached.len(), first });
        let answer = loop {
            if let Some(answer) = state.sequences[self.index].answer.take() {
                break answer;
            }
            if state.sequences[self.index].wanted.is_none() {
                break Err("the turn was ended while it decoded".to_owned());
            }
            if state.is_complete() {
                state.decode();
                shared.changed.notify_all();
                continue;
            }
            state = shared.wait(state);
        };
        self.notice_losses(&state);
        self.logits = answer.map_err(|message| Error::new(ErrorKind::Engine, message))?;
        self.cached.extend_from_slice(tokens);
        state.sequences[self.index].cached.extend_from_slice(tokens);
        // A sequence may wait for this prefix.
        shared.changed.notify_all();
        Ok(())
    }

    fn logits_at(&self, index: usize) -> &[f32] {
        self.logits.get(index).map_or(&[], Vec::as_slice)
    }

    fn logits(&self) -> &[f32] {
        match self.logits.last() {
            Some(logits) if !self.cached.is_empty() => logits,
            _ => &[],
        }
    }
}

#[cfg(test)]
mod tests;
