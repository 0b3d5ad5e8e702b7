//! Several generations at a time, of one model.
//!
//! Together: several sequences in a context. While the weights pass through the processor once, each sequence gets its
//! token. Whoever generates knows nothing of the others: each has an [`Engine`] of its own, on a thread of its own. Its
//! [`Engine::decode`] waits until all that are in a turn want something decoded; the last one to come decodes for all.
//!
//! Apart: a model of a few megabytes stays in the processor's caches, so there is little to share, and llama.cpp's
//! attention over several sequences costs more than decoding them one by one (a quarter more was measured for a token as
//! a whole). Such a model has as many contexts as the cores have room for, each with a generation of its own. Which of
//! the two is faster is measured.

use super::{BATCH, LlamaEngine, LoadOptions, create_context, engine_error, one_token_steps};
use crate::engine::sampler::Sampling;
use crate::engine::threads::{Threads, median};
use crate::engine::vocabulary::Vocabulary;
use crate::engine::{Engine, ModelInfo, Token};
use crate::template::Piece;
use crate::{Error, ErrorKind, Result};
use llama_cpp_2::context::LlamaContext;
use llama_cpp_2::llama_batch::LlamaBatch;
use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::token::LlamaToken;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The most sequences in one context: llama.cpp's LLAMA_MAX_SEQ.
pub const MAX_SEQUENCES: usize = 256;

/// What generates several at a time.
pub struct Sequences(Kind);

enum Kind {
    Together(Arc<Shared>),
    Apart(Apart),
}

/// Contexts of their own, made when they are taken.
struct Apart {
    model: Arc<LlamaModel>,
    info: ModelInfo,
    context: Option<usize>,
    /// Threads of each.
    threads: usize,
    count: usize,
    taken: AtomicUsize,
}

struct Shared {
    // Before `model`, into which the context points.
    state: Mutex<State>,
    changed: Condvar,
    model: Arc<LlamaModel>,
    info: ModelInfo,
    limit: usize,
    tokens_each: usize,
}

/// The context, which one thread at a time uses: the one that holds the lock.
struct Context(LlamaContext<'static>);

// SAFETY: llama.cpp keeps nothing of a context in thread-local storage; it only must not be used by two threads at a
// time, and the mutex around the state sees to that.
unsafe impl Send for Context {}

struct State {
    context: Context,
    sequences: Vec<SequenceState>,
    /// How often everything in the context was lost.
    losses: usize,
}

#[derive(Default)]
struct SequenceState {
    taken: bool,
    /// Whether it generates, so that the others wait for what it wants decoded.
    in_turn: bool,
    wanted: Option<Wanted>,
    /// The logits behind the last token, or why there are none.
    answer: Option<Result<Vec<f32>, String>>,
}

struct Wanted {
    tokens: Vec<Token>,
    /// How many tokens the sequence has already.
    from: usize,
}

impl Sequences {
    /// At most `count` at a time with the model of `engine`. Sequences that share a context have room for
    /// `tokens_each()`; contexts apart grow as they need.
    ///
    /// # Errors
    /// [`ErrorKind::Engine`] when there are too many, or the memory cannot be had; those of `tokens_each`.
    pub fn new(engine: &LlamaEngine, count: usize, tokens_each: impl FnOnce() -> Result<usize>) -> Result<Sequences> {
        if !(1..=MAX_SEQUENCES).contains(&count) {
            let message = format!("{count} sequences in one context; llama.cpp has 1 to {MAX_SEQUENCES}");
            return Err(Error::new(ErrorKind::Engine, message));
        }
        let contexts = engine.contexts_at_a_time().min(count);
        if contexts > 1 && is_faster_apart(engine, contexts, count) {
            return Ok(Sequences(Kind::Apart(Apart {
                model: Arc::clone(&engine.model),
                info: engine.info.clone(),
                context: engine.options.context,
                threads: engine.threads.thriftiest,
                count: contexts,
                taken: AtomicUsize::new(0),
            })));
        }
        Shared::new(engine, count, tokens_each()?).map(|shared| Sequences(Kind::Together(Arc::new(shared))))
    }

    /// How many can be taken.
    pub fn at_a_time(&self) -> usize {
        match &self.0 {
            Kind::Together(shared) => shared.lock().sequences.len(),
            Kind::Apart(apart) => apart.count,
        }
    }

    /// One of them, for the thread that calls this, and what ends its turns.
    ///
    /// # Errors
    /// [`ErrorKind::Engine`] when all are taken.
    pub fn take(&self) -> Result<(Box<dyn Engine>, TurnEnd)> {
        let all_taken = || Error::new(ErrorKind::Engine, "all sequences are taken");
        match &self.0 {
            Kind::Together(shared) => {
                let sequence = Sequence::take(shared).ok_or_else(all_taken)?;
                let end = TurnEnd(Some((Arc::clone(shared), sequence.index)));
                Ok((Box::new(sequence), end))
            }
            Kind::Apart(apart) => {
                if apart.taken.fetch_add(1, Ordering::Relaxed) >= apart.count {
                    return Err(all_taken());
                }
                let options = LoadOptions { context: apart.context, ..LoadOptions::default() };
                let threads = Threads::of(apart.threads);
                let engine = LlamaEngine::of(Arc::clone(&apart.model), apart.info.clone(), options, threads);
                Ok((Box::new(engine), TurnEnd(None)))
            }
        }
    }
}

/// Whether `contexts` at a time with one token each decode more tokens than one context with `count` sequences does.
fn is_faster_apart(engine: &LlamaEngine, contexts: usize, count: usize) -> bool {
    let Threads { fastest, thriftiest } = engine.threads;
    let began = Instant::now();
    let time = |threads, sequences| median(&mut one_token_steps(&engine.model, threads, sequences)?, began);
    let (Some(alone), Some(together)) = (time(thriftiest, 1), time(fastest, count)) else { return false };
    tracing::debug!(?alone, ?together, contexts, count, "timed decoding steps apart and together");
    alone.as_secs_f64() / (contexts as f64) < together.as_secs_f64() / (count as f64)
}

impl Shared {
    /// A context for `count` sequences.
    fn new(engine: &LlamaEngine, count: usize, tokens_each: usize) -> Result<Shared> {
        let model = Arc::clone(&engine.model);
        let context = create_context(&model, tokens_each, BATCH, engine.threads.fastest, count)?;
        // SAFETY: the context borrows the model, which lives in an `Arc` beside it that is never replaced and that is
        // declared behind the state, so that the context is dropped first.
        let context = Context(unsafe { std::mem::transmute::<LlamaContext<'_>, LlamaContext<'static>>(context) });
        let sequences = (0..count).map(|_| SequenceState::default()).collect();
        Ok(Shared {
            state: Mutex::new(State { context, sequences, losses: 0 }),
            changed: Condvar::new(),
            model,
            info: engine.info.clone(),
            limit: engine.context_limit(),
            tokens_each,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end_turn(&self, index: usize) {
        let mut state = self.lock();
        state.sequences[index].in_turn = false;
        state.sequences[index].wanted = None;
        drop(state);
        self.changed.notify_all();
    }
}

/// Ends the turns of one sequence: the others of its context wait for it no longer.
pub struct TurnEnd(Option<(Arc<Shared>, usize)>);

impl TurnEnd {
    /// What generated has all that it wanted. To be called after each generation, well ended or not.
    pub fn end(&self) {
        if let Some((shared, index)) = &self.0 {
            shared.end_turn(*index);
        }
    }
}

/// One sequence of a shared context.
struct Sequence {
    /// The tokenizer's side of an engine; it has no context.
    words: LlamaEngine,
    shared: Arc<Shared>,
    index: usize,
    losses: usize,
    cached: Vec<Token>,
    logits: Vec<f32>,
}

impl Sequence {
    /// One that nobody has.
    fn take(shared: &Arc<Shared>) -> Option<Sequence> {
        let mut state = shared.lock();
        let index = state.sequences.iter().position(|sequence| !sequence.taken)?;
        state.sequences[index].taken = true;
        let losses = state.losses;
        drop(state);
        let words =
            LlamaEngine::of(Arc::clone(&shared.model), shared.info.clone(), LoadOptions::default(), Threads::of(1));
        Some(Sequence { words, shared: Arc::clone(shared), index, losses, cached: Vec::new(), logits: Vec::new() })
    }

    fn number(&self) -> u32 {
        u32::try_from(self.index).unwrap_or(u32::MAX)
    }
}

impl Drop for Sequence {
    fn drop(&mut self) {
        self.truncate(0);
        self.shared.end_turn(self.index);
        self.shared.lock().sequences[self.index] = SequenceState::default();
    }
}

impl State {
    /// Whether all that are in a turn wait.
    fn is_complete(&self) -> bool {
        self.sequences.iter().all(|sequence| !sequence.in_turn || sequence.wanted.is_some())
    }

    /// Decodes what is wanted.
    fn decode(&mut self) {
        let wanted: Vec<(usize, Wanted)> = self
            .sequences
            .iter_mut()
            .enumerate()
            .filter_map(|(index, sequence)| Some((index, sequence.wanted.take()?)))
            .collect();
        match batches(&mut self.context.0, &wanted) {
            Ok(answers) => {
                for ((index, _), answer) in wanted.iter().zip(answers) {
                    self.sequences[*index].answer = Some(Ok(answer));
                }
            }
            Err(error) => {
                self.context.0.clear_kv_cache();
                self.losses += 1;
                for (index, _) in wanted {
                    self.sequences[index].answer = Some(Err(error.message().to_owned()));
                }
            }
        }
    }
}

/// Decodes all that is wanted, in batches that llama.cpp takes; the logits behind the last token of each.
fn batches(context: &mut LlamaContext<'_>, wanted: &[(usize, Wanted)]) -> Result<Vec<Vec<f32>>> {
    let mut answers = vec![Vec::new(); wanted.len()];
    let mut batch = LlamaBatch::new(BATCH, 1);
    // Which rows of the batch are the last ones of which wanted sequence.
    let mut ends: Vec<(i32, usize)> = Vec::new();
    let mut flush = |batch: &mut LlamaBatch, ends: &mut Vec<(i32, usize)>| -> Result<()> {
        if batch.n_tokens() > 0 {
            context.decode(batch).map_err(engine_error)?;
            for (row, place) in ends.drain(..) {
                answers[place] = context.get_logits_ith(row).to_vec();
            }
            batch.clear();
        }
        Ok(())
    };
    for (place, (index, wanted)) in wanted.iter().enumerate() {
        let sequence = i32::try_from(*index).unwrap_or(i32::MAX);
        for (i, token) in wanted.tokens.iter().enumerate() {
            if usize::try_from(batch.n_tokens()).is_ok_and(|tokens| tokens >= BATCH) {
                flush(&mut batch, &mut ends)?;
            }
            let position = i32::try_from(wanted.from + i).unwrap_or(i32::MAX);
            let last = i + 1 == wanted.tokens.len();
            if last {
                ends.push((batch.n_tokens(), place));
            }
            batch.add(LlamaToken(token.0), position, &[sequence], last).map_err(engine_error)?;
        }
    }
    flush(&mut batch, &mut ends)?;
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

    fn begin(&mut self, _prompt: &[Token], _sampling: &Sampling) -> Result<()> {
        let mut state = self.shared.lock();
        state.sequences[self.index].in_turn = true;
        if state.losses != self.losses {
            self.losses = state.losses;
            self.cached.clear();
        }
        Ok(())
    }

    fn reserve(&mut self, tokens: usize) -> Result<()> {
        if tokens <= self.shared.tokens_each {
            return Ok(());
        }
        let message = format!("{tokens} tokens do not fit into a sequence of {}", self.shared.tokens_each);
        Err(Error::new(ErrorKind::Engine, message))
    }

    fn context_limit(&self) -> usize {
        self.shared.limit
    }

    fn cached(&self) -> &[Token] {
        &self.cached
    }

    fn truncate(&mut self, len: usize) {
        if len >= self.cached.len() {
            return;
        }
        let number = self.number();
        let mut state = self.shared.lock();
        let context = &mut state.context.0;
        let kept = match context.clear_kv_cache_seq(Some(number), u32::try_from(len).ok(), None) {
            Ok(true) => len,
            // Recurrent models and sliding windows cannot forget a part; the whole they always can.
            _ => {
                let _ = context.clear_kv_cache_seq(Some(number), None, None);
                0
            }
        };
        drop(state);
        self.cached.truncate(kept);
    }

    fn decode(&mut self, tokens: &[Token]) -> Result<()> {
        let vocabulary = self.shared.model.n_vocab();
        if let Some(stranger) = tokens.iter().find(|token| !(0..vocabulary).contains(&token.0)) {
            return Err(Error::new(ErrorKind::Engine, format!("token {} is not in the vocabulary", stranger.0)));
        }
        self.reserve(self.cached.len() + tokens.len())?;
        let mut state = self.shared.lock();
        state.sequences[self.index].in_turn = true;
        state.sequences[self.index].wanted = Some(Wanted { tokens: tokens.to_vec(), from: self.cached.len() });
        let answer = loop {
            if let Some(answer) = state.sequences[self.index].answer.take() {
                break answer;
            }
            if state.is_complete() {
                state.decode();
                self.shared.changed.notify_all();
                continue;
            }
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        };
        drop(state);
        self.logits = answer.map_err(|message| {
            self.cached.clear();
            Error::new(ErrorKind::Engine, message)
        })?;
        self.cached.extend_from_slice(tokens);
        Ok(())
    }

    fn logits(&self) -> &[f32] {
        if self.cached.is_empty() { &[] } else { &self.logits }
    }
}
