//! Several parallel generations of one model.
//!
//! Each has its own [`Engine`] on its own thread, and knows nothing of the others. It is a sequence of a context shared
//! with some of them. Its [`Engine::decode`] waits until every sequence that is in a turn has requested decoding. The
//! last one decodes for all, so that the weights pass through the processor once for a token of each. The beginning of
//! a prompt that another sequence has in the cache, or will have soon, is copied.

mod sequence;

use super::context::{Context, Pool, Shape};
use super::layout::{self, Layout};
use super::weights::Weights;
use super::{BATCH, FLASH_FROM, LlamaEngine, LoadOptions, can_truncate, has_state};
use crate::engine::prompt_cache::{Checkpoints, PromptCache, WORTH, alike, not_before};
use crate::engine::{Engine, ModelInfo, Token, common};
use crate::{Error, ErrorKind, Result};
use sequence::Sequence;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Maximum sequences in one context: llama.cpp's LLAMA_MAX_SEQ.
pub const MAX_SEQUENCES: usize = 256;

/// Parallel generations: contexts, each with some sequences.
pub struct Sequences(Vec<Arc<Shared>>);

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    model: Arc<Weights>,
    info: ModelInfo,
    layout: Layout,
    options: LoadOptions,
    /// The threads of both contexts, of which one computes at a time.
    pool: Pool,
    prompts: Option<Arc<PromptCache>>,
}

struct State {
    /// `None` until a sequence needs space.
    context: Option<Context>,
    /// Where long pieces of a prompt are read, one at a time; it is empty between two.
    flash: Option<Context>,
    /// Whether sequences can be moved there and back.
    can_move: bool,
    /// Whether a sequence can drop any number of its last tokens.
    can_truncate: bool,
    /// Whether it has a recurrent state, so that it can drop none.
    has_state: bool,
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
    /// How much of the prompt of a hybrid is read with flash attention.
    border: usize,
    /// Where it can go back to, if the model cannot truncate.
    checkpoints: Checkpoints,
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
        self.checkpoints.clear();
        self.read_with_flash = 0;
    }

    /// How many of the first `len` tokens it can go on from.
    fn reach(&self, len: usize, can_truncate: bool) -> usize {
        if can_truncate { len } else { self.checkpoints.reach(self.cached.len(), len) }
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
        let layout = layout::fastest(engine, count);
        let wanted = engine.options.context.unwrap_or(engine.words.info.context_train);
        if let Some(room) = engine.options.room.map(|room| room / count).filter(|room| *room < wanted) {
            tracing::warn!(
                "{count} conversations at a time have room for {room} tokens each in the free memory, of {wanted}; fewer have room for more"
            );
        }
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

impl Shared {
    fn new(engine: &LlamaEngine, layout: Layout) -> Shared {
        let sequences = (0..layout.each).map(|_| SequenceState::default()).collect();
        let can_move = engine.can_move;
        let (can_truncate, has_state) = (can_truncate(&engine.model), has_state(&engine.model));
        let pool = Pool::default();
        let (context, flash, room) = (None, None, 0);
        Shared {
            state: Mutex::new(State { context, flash, can_move, can_truncate, has_state, room, sequences }),
            changed: Condvar::new(),
            model: Arc::clone(&engine.model),
            info: engine.words.info.clone(),
            layout,
            options: engine.options.again(),
            pool,
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
        self.options.limit(&self.info, self.layout.contexts * self.layout.each)
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
        let make =
            |tokens| Context::new(&self.model, self.layout.shape(tokens, &self.options), &self.options, &self.pool);
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
            if !old.is_some_and(|old| context.take_state(index, old)) {
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
        let State { context: Some(context), flash, room, can_move, has_state, sequences, .. } = state else {
            return None;
        };
        let faster = match has_state {
            true => wanted.from < sequences[index].border,
            false => wanted.tokens.len() >= FLASH_FROM,
        };
        let movable = *can_move && context.is_full_attention() && (wanted.from == 0 || context.has_states());
        if !movable || !faster {
            return None;
        }
        if flash.is_none() {
            let flash_attention = llama_cpp_sys_2::LLAMA_FLASH_ATTN_TYPE_ENABLED;
            let shape =
                Shape { tokens: *room, sequences: 1, flash_attention, ..self.layout.shape(*room, &self.options) };
            *flash = Context::new(&self.model, shape, &self.options, &self.pool).ok();
        }
        let flash = flash.as_mut()?;
        let mut read = || {
            if wanted.from > 0 && !context.state(index).is_some_and(|before| flash.take_state(0, before)) {
                return None;
            }
            let request = Wanted { tokens: wanted.tokens.clone(), ..*wanted };
            let logits = batches(flash, &[(0, request)]).ok()?.pop()?;
            let after = flash.state(0)?;
            context.take_state(index, after).then_some(logits)
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
pub struct TurnEnd(Arc<Shared>, usize);

impl TurnEnd {
    /// Ends the turn. To be called after each generation, successful or not.
    pub fn end(&self) {
        self.0.end_turn(self.1);
    }
}

impl State {
    /// Returns whether every sequence that is in a turn waits.
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

    /// How many of its first `len` tokens a sequence can go on from.
    fn reach(&self, index: usize, len: usize) -> usize {
        let context = self.context.as_ref();
        let can = !self.has_state && context.is_none_or(|context| context.can_truncate(index, len));
        self.sequences[index].reach(len, can)
    }

    /// How much of a prompt with this border a sequence can go on from, up to `most` tokens.
    fn prefix(&self, index: usize, prompt: &[Token], most: usize, border: usize) -> usize {
        let one = &self.sequences[index];
        let shared = common(&one.cached, prompt).min(most);
        match self.has_state {
            true => {
                let reach = |len| self.reach(index, len);
                not_before(border, reach(alike(shared, one.read_with_flash, border)), reach)
            }
            false => self.reach(index, shared),
        }
    }

    /// The sequence with the longest prefix of `prompt` that others can go on from, and its length: up to `most` tokens. A copy cannot move
    /// to where the beginning of a hybrid's prompt is read.
    fn longest_prefix(&self, prompt: &[Token], most: usize, border: usize) -> (usize, usize) {
        let prefix = |one: &SequenceState| {
            let shared = common(&one.cached, prompt).min(most);
            let same = if self.has_state { alike(shared, one.read_with_flash, border) } else { shared };
            one.reach(same, self.can_truncate)
        };
        let prefixes = self.sequences.iter().map(prefix).map(|length| if length < border { 0 } else { length });
        prefixes.enumerate().max_by_key(|(_, length)| *length).unwrap_or_default()
    }

    /// Returns whether a generating sequence will soon have a longer prefix of `prompt` than any has now.
    fn prefix_is_coming(&self, prompt: &[Token], border: usize) -> bool {
        let coming = |one: &SequenceState| {
            let shared = common(&one.prompt, prompt);
            if self.can_truncate { shared } else { one.checkpoints.coming(shared) }
        };
        let coming = self.sequences.iter().filter(|one| one.in_turn).map(coming).max();
        let longest = || self.longest_prefix(prompt, prompt.len(), border).1;
        coming.is_some_and(|coming| coming >= border && coming >= longest() + WORTH)
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

#[cfg(test)]
mod tests;
