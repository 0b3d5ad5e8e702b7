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

use super::context::{Context, Shape};
use super::threads::{BUDGET, Threads, median};
use super::weights::Weights;
use super::{BATCH, FLASH_FROM, LlamaEngine, LoadOptions, can_truncate, moves, one_token_steps};
use crate::engine::prompt_cache::{PromptCache, Reading, WORTH, Wanted as Sought};
use crate::engine::sampler::Sampling;
use crate::engine::vocabulary::Vocabulary;
use crate::engine::{Engine, ModelInfo, Token, common};
use crate::template::Piece;
use crate::{Error, ErrorKind, Result};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum sequences in one context: llama.cpp's LLAMA_MAX_SEQ.
pub(crate) const MAX_SEQUENCES: usize = 256;

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
        Shape { tokens, sequences, threads, prompt_threads, flash_attention: options.flash_attention(tokens) }
    }
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    model: Arc<Weights>,
    info: ModelInfo,
    layout: Layout,
    options: LoadOptions,
    threads: Arc<Threads>,
    prompts: Option<Arc<PromptCache>>,
}

struct State {
    /// `None` until a sequence needs space.
    context: Option<Context>,
    /// Where long pieces of a prompt are read, one at a time; it is empty between two.
    flash: Option<Context>,
    /// Whether sequences can be moved there and back.
    can_move: bool,
    /// Capacity of each sequence in tokens.
    room: usize,
    sequences: Vec<SequenceState>,
}

#[derive(Default)]
struct SequenceState {
    taken: bool,
    /// The tokens in its part of the KV cache.
    cached: Vec<Token>,
    /// How many of them were read as flash attention reads a prompt.
    read_with_flash: usize,
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

impl SequenceState {
    /// Nothing of it is in the context any more.
    fn forget(&mut self) {
        self.cached.clear();
        self.read_with_flash = 0;
    }
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
    let (threads, prompt_threads) = (engine.threads.decode(), engine.threads.prompt());
    let together = Layout { contexts: 1, each: count, threads, prompt_threads };
    let contexts = engine.contexts_at_a_time().min(count);
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
        let timed = || median(&mut one_token_steps(model, layout, options)?, Instant::now());
        let threads: Vec<_> = (0..layout.contexts).map(|_| scope.spawn(timed)).collect();
        threads.into_iter().map(|thread| thread.join().ok().flatten()).collect()
    });
    let slowest = steps?.into_iter().max()?;
    Some(slowest.div_f64((layout.contexts * layout.each) as f64))
}

impl Shared {
    fn new(engine: &LlamaEngine, layout: Layout) -> Shared {
        let sequences = (0..layout.each).map(|_| SequenceState::default()).collect();
        let can_move = moves(&engine.model, &engine.options);
        Shared {
            state: Mutex::new(State { context: None, flash: None, can_move, room: 0, sequences }),
            changed: Condvar::new(),
            model: Arc::clone(&engine.model),
            info: engine.info.clone(),
            layout,
            options: engine.options.again(),
            threads: Arc::clone(&engine.threads),
            prompts: engine.prompts.clone(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'s>(&self, state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    fn limit(&self) -> usize {
        self.options.context.unwrap_or(self.info.context_train)
    }

    /// Makes a context with space for at least `needed` tokens of each sequence, with what was in the old one.
    fn grow(&self, state: &mut State, needed: usize) -> Result<()> {
        let wished = state.wanted_room().max(needed);
        // As for a single sequence, doubling avoids frequent growth.
        let doubled = wished.max(2 * state.room).min(self.limit().max(wished));
        let State { context, sequences, .. } = state;
        let states: Vec<Option<Vec<u8>>> = match context {
            Some(context) => {
                let has = |sequence: &SequenceState| !sequence.cached.is_empty();
                sequences.iter().enumerate().map(|(i, one)| has(one).then(|| context.state(i)).flatten()).collect()
            }
            None => vec![None; sequences.len()],
        };
        (state.context, state.flash, state.room) = (None, None, 0);
        let make = |tokens| Context::new(&self.model, self.layout.shape(tokens, &self.options), &self.options);
        // If there is not enough memory for what the others want, there may be for this one.
        let made = make(doubled).or_else(|_| make(wished)).or_else(|_| make(needed));
        let mut context = match made {
            Ok(context) => context,
            Err(error) => {
                state.lose_all();
                return Err(error);
            }
        };
        for (index, (sequence, old)) in state.sequences.iter_mut().zip(states).enumerate() {
            if !old.is_some_and(|old| context.set_state(index, &old)) {
                sequence.forget();
            }
        }
        state.room = context.room();
        state.context = Some(context);
        Ok(())
    }

    /// Decodes all requests.
    fn decode(&self, state: &mut State) {
        let mut wanted: Vec<(usize, Wanted)> = Vec::new();
        for index in 0..state.sequences.len() {
            let Some(request) = state.sequences[index].wanted.take() else { continue };
            match self.read_with_flash(state, index, &request) {
                Some(logits) => {
                    let sequence = &mut state.sequences[index];
                    if sequence.read_with_flash == request.from {
                        sequence.read_with_flash += request.tokens.len();
                    }
                    sequence.answer = Some(Ok(logits));
                }
                None => wanted.push((index, request)),
            }
        }
        let decoded = match &mut state.context {
            Some(context) => batches(context, &wanted),
            None => Err(Error::new(ErrorKind::Engine, "nothing to decode into: no room was reserved")),
        };
        match decoded {
            Ok(answers) => {
                for ((index, _), answer) in wanted.iter().zip(answers) {
                    state.sequences[*index].answer = Some(Ok(answer));
                }
            }
            Err(error) => {
                if let Some(context) = &mut state.context {
                    context.clear();
                }
                state.lose_all();
                for (index, _) in wanted {
                    state.sequences[index].answer = Some(Err(error.message().to_owned()));
                }
            }
        }
    }

    /// Decodes a long piece of a prompt in a context with flash attention, and moves the sequence there and back; `None` if
    /// that is not faster, or not possible.
    fn read_with_flash(&self, state: &mut State, index: usize, wanted: &Wanted) -> Option<Vec<Vec<f32>>> {
        let State { context: Some(context), flash, room, can_move, .. } = state else { return None };
        let movable = *can_move && context.is_full_attention() && (wanted.from == 0 || context.has_states());
        if !movable || wanted.tokens.len() < FLASH_FROM {
            return None;
        }
        if flash.is_none() {
            let flash_attention = llama_cpp_sys_2::LLAMA_FLASH_ATTN_TYPE_ENABLED;
            let shape =
                Shape { tokens: *room, sequences: 1, flash_attention, ..self.layout.shape(*room, &self.options) };
            *flash = Context::new(&self.model, shape, &self.options).ok();
        }
        let flash = flash.as_mut()?;
        let mut read = || {
            if wanted.from > 0 && !context.state(index).is_some_and(|before| flash.set_state(0, &before)) {
                return None;
            }
            let request = Wanted { tokens: wanted.tokens.clone(), ..*wanted };
            let logits = batches(flash, &[(0, request)]).ok()?.pop()?;
            let after = flash.state(0)?;
            context.set_state(index, &after).then_some(logits)
        };
        let read: Option<Vec<Vec<f32>>> = read();
        flash.clear();
        // A state that cannot be moved once never can be.
        state.can_move = read.is_some();
        read
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
        let (model, threads) = (Arc::clone(&shared.model), Arc::clone(&shared.threads));
        let words = LlamaEngine::of(model, shared.info.clone(), LoadOptions::default(), threads);
        Some(Sequence { words, shared: Arc::clone(shared), index, cached: Vec::new(), logits: Vec::new() })
    }

    /// Copies the beginning of `prompt` from another sequence of the context that has more of it.
    fn take_prefix(&mut self, state: &mut State, prompt: &[Token]) {
        let (other, length) = state.longest_prefix(prompt);
        let Some(context) = &mut state.context else { return };
        if length < common(&self.cached, prompt) + WORTH {
            return;
        }
        context.copy(other, self.index);
        self.cached.clone_from(&state.sequences[other].cached);
        state.sequences[self.index].cached.clone_from(&self.cached);
        state.sequences[self.index].read_with_flash = state.sequences[other].read_with_flash;
        self.keep_first(state, length);
    }

    /// Keeps in memory what the prompt does not go on from.
    fn set_aside(&self, state: &mut State, prompt: &[Token]) {
        let Some(prompts) = &self.shared.prompts else { return };
        let State { context: Some(context), sequences, .. } = state else { return };
        let shared = common(&self.cached, prompt);
        let elsewhere =
            sequences.iter().enumerate().any(|(i, one)| i != self.index && one.cached.starts_with(&self.cached));
        let flash = sequences[self.index].read_with_flash;
        if self.cached.len() >= shared + WORTH && !elsewhere {
            prompts.keep(&self.cached, flash, || context.state(self.index));
        }
    }

    /// Drops all but the first `len` tokens, or all of them.
    fn keep_first(&mut self, state: &mut State, len: usize) {
        let Some(context) = &mut state.context else { return };
        // Recurrent models and sliding windows cannot drop a part, but can always drop everything.
        let kept = if context.truncate(self.index, len) { len } else { 0 };
        if kept == 0 {
            context.truncate(self.index, 0);
        }
        self.cached.truncate(kept);
        let sequence = &mut state.sequences[self.index];
        sequence.cached.truncate(kept);
        sequence.read_with_flash = sequence.read_with_flash.min(kept);
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
        self.sequences.iter_mut().for_each(SequenceState::forget);
    }

    /// The sequence with the longest prefix of `prompt`, and its length.
    fn longest_prefix(&self, prompt: &[Token]) -> (usize, usize) {
        let prefixes = self.sequences.iter().map(|sequence| common(&sequence.cached, prompt)).enumerate();
        prefixes.max_by_key(|(_, length)| *length).unwrap_or_default()
    }

    /// Whether a generating sequence will soon have a longer prefix of `prompt` than any has now.
    fn prefix_is_coming(&self, prompt: &[Token]) -> bool {
        let coming = self.sequences.iter().filter(|one| one.in_turn).map(|one| common(&one.prompt, prompt)).max();
        coming.is_some_and(|coming| coming >= self.longest_prefix(prompt).1 + WORTH)
    }
}

/// Decodes all requests, in batches that llama.cpp accepts; returns the requested logits of each.
fn batches(context: &mut Context, wanted: &[(usize, Wanted)]) -> Result<Vec<Vec<Vec<f32>>>> {
    let mut answers = vec![Vec::new(); wanted.len()];
    // The rows of the batch with logits, and the request that each belongs to.
    let mut requests: Vec<(usize, usize)> = Vec::new();
    let mut flush = |context: &mut Context, requests: &mut Vec<(usize, usize)>| -> Result<()> {
        if context.waiting() > 0 {
            context.decode()?;
            for (row, place) in requests.drain(..) {
                answers[place].push(context.logits(row).to_vec());
            }
        }
        Ok(())
    };
    for (place, (sequence, wanted)) in wanted.iter().enumerate() {
        for (i, token) in wanted.tokens.iter().enumerate() {
            if context.waiting() >= BATCH {
                flush(context, &mut requests)?;
            }
            let asks = i >= wanted.first;
            if asks {
                requests.push((context.waiting(), place));
            }
            context.add(*token, wanted.from + i, *sequence, asks);
        }
    }
    flush(context, &mut requests)?;
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
        Ok(())
    }

    fn recall(&mut self, prompt: &[Token], most: usize) {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        self.notice_losses(&state);
        self.set_aside(&mut state, prompt);
        let kept = common(&self.cached, prompt);
        let whole = kept == self.cached.len() && kept <= most;
        let mut have = if self.can_truncate() || whole { kept.min(most) } else { 0 };
        if self.can_truncate() {
            have = have.max(state.longest_prefix(prompt).1.min(most));
        }
        let State { context: Some(context), sequences, room, .. } = &mut *state else { return };
        // An entry may be longer than what was reserved for this prompt.
        let sought = Sought { prompt, have, most, reading: Reading::Any };
        if let Some((gain, entry)) = shared.prompts.as_ref().and_then(|prompts| prompts.find(sought))
            && entry.tokens.len() <= *room
            && context.has_states()
        {
            let sequence = &mut sequences[self.index];
            self.cached.clear();
            sequence.forget();
            if context.set_state(self.index, &entry.state) {
                self.cached.extend_from_slice(&entry.tokens);
                sequence.cached.clone_from(&self.cached);
                sequence.read_with_flash = entry.flash;
            }
            self.keep_first(&mut state, gain);
        } else if self.can_truncate() {
            self.take_prefix(&mut state, prompt);
        }
    }

    fn remember(&mut self, reading: Duration) {
        let shared = Arc::clone(&self.shared);
        let Some(prompts) = shared.prompts.as_ref().filter(|prompts| prompts.is_worth_writing(&self.cached, reading))
        else {
            return;
        };
        let mut state = shared.lock();
        self.notice_losses(&state);
        let flash = state.sequences[self.index].read_with_flash;
        if let Some(state) = state.context.as_mut().and_then(|context| context.state(self.index)) {
            prompts.write(&self.cached, flash, state);
        }
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
        let (model, info) = (Arc::clone(&self.shared.model), self.shared.info.clone());
        Some(Box::new(LlamaEngine::of(model, info, self.shared.options.again(), Arc::clone(&self.shared.threads))))
    }

    fn can_truncate(&self) -> bool {
        can_truncate(&self.shared.model)
    }

    fn can_draft(&self) -> bool {
        // llama.cpp decodes sequences with different numbers of tokens one after the other.
        self.shared.layout.each == 1 && self.can_truncate()
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
                shared.decode(&mut state);
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
