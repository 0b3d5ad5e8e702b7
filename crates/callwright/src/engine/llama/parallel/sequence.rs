//! One sequence of a shared context, as an engine.

use super::{SequenceState, Shared, State, Wanted};
use crate::engine::llama::words::Words;
use crate::engine::llama::{goes_back, outline};
use crate::engine::prompt_cache::{Checkpoint, Checkpoints, PROMPT_BLOCK, Reading, WORTH, Wanted as Sought};
use crate::engine::sampler::Sampling;
use crate::engine::vocabulary::ReadVocabulary;
use crate::engine::{Abilities, Engine, ModelInfo, Prompt, Token, common};
use crate::template::Piece;
use crate::{Error, ErrorKind, Result};
use std::sync::Arc;
use std::time::Duration;

/// One sequence of a shared context.
pub(super) struct Sequence {
    words: Words,
    pub(super) shared: Arc<Shared>,
    pub(super) index: usize,
    /// As in the state, or its last value before it was lost.
    cached: Vec<Token>,
    /// The logits after each of the last requested tokens.
    logits: Vec<Vec<f32>>,
    /// Where the last question of the next prompt is.
    question: usize,
}

impl Sequence {
    /// Claims a free sequence.
    pub(super) fn take(shared: &Arc<Shared>) -> Option<Sequence> {
        let mut state = shared.lock();
        let index = state.sequences.iter().position(|sequence| !sequence.taken)?;
        state.sequences[index].taken = true;
        drop(state);
        let words = Words::new(Arc::clone(&shared.model), shared.info.clone());
        Some(Sequence { words, shared: Arc::clone(shared), index, cached: Vec::new(), logits: Vec::new(), question: 0 })
    }

    /// Copies the beginning of `prompt` from another sequence of the context that has more of it.
    fn take_prefix(&mut self, state: &mut State, prompt: &[Token], most: usize) {
        let border = state.sequences[self.index].border;
        let (other, length) = state.longest_prefix(prompt, most, border);
        let mine = state.prefix(self.index, prompt, most, border);
        if length < mine + WORTH {
            if state.has_state {
                self.keep_first(state, mine);
            }
            return;
        }
        let Some(context) = &mut state.context else { return };
        if !context.copy(other, self.index) {
            self.cached.clear();
            state.sequences[self.index].forget();
            return;
        }
        self.cached.clone_from(&state.sequences[other].cached);
        let checkpoints = Checkpoints::of(state.sequences[other].checkpoints.kept());
        let read_with_flash = state.sequences[other].read_with_flash;
        let sequence = &mut state.sequences[self.index];
        sequence.cached.clone_from(&self.cached);
        (sequence.checkpoints, sequence.read_with_flash) = (checkpoints, read_with_flash);
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
            let checkpoints = sequences[self.index].checkpoints.kept();
            prompts.keep(&self.cached, flash, checkpoints, || context.state(self.index));
        }
    }

    /// Drops all but the first `len` tokens or, if the model cannot drop only the last ones, as many more as it has to.
    fn keep_first(&mut self, state: &mut State, len: usize) {
        let State { context: Some(context), sequences, .. } = state else { return };
        let sequence = &mut sequences[self.index];
        let kept = match sequence.checkpoints.last(len) {
            _ if len >= self.cached.len() => return,
            _ if context.truncate(self.index, len) => len,
            Some(checkpoint) if context.go_back(self.index, checkpoint) => checkpoint.at,
            // Recurrent models cannot drop a part, but can always drop everything.
            _ => 0,
        };
        if kept == 0 {
            context.truncate(self.index, 0);
        }
        self.cached.truncate(kept);
        sequence.cached.truncate(kept);
        sequence.checkpoints.truncate(kept);
        sequence.read_with_flash = sequence.read_with_flash.min(kept);
    }

    /// Keeps where the sequence is now, so that it can go back.
    fn add_checkpoint(&self, state: &mut State) {
        let State { context: Some(context), sequences, .. } = state else { return };
        let sequence = &mut sequences[self.index];
        if let Some(prompts) = &self.shared.prompts
            && sequence.cached.len() == self.cached.len()
            && let Some(state) = context.checkpoint(self.index)
        {
            sequence.checkpoints.push(self.cached.len(), state, prompts);
        }
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

impl Engine for Sequence {
    fn model(&self) -> &ModelInfo {
        &self.words.info
    }

    fn tokenize(&self, prompt: &[Piece]) -> Result<Vec<Token>> {
        Ok(self.words.tokenize(prompt))
    }

    fn token_bytes(&self, token: Token) -> &[u8] {
        self.words.bytes(token)
    }

    fn longest_token(&self) -> Option<usize> {
        self.words.longest()
    }

    fn vocabulary(&self) -> Option<ReadVocabulary> {
        Some(Box::new(self.words.vocabulary()))
    }

    fn is_end(&self, token: Token) -> bool {
        self.words.is_end(token)
    }

    fn begin(&mut self, Prompt { tokens: prompt, question }: Prompt<'_>, _sampling: &Sampling) -> Result<()> {
        self.question = question;
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        let border = if state.has_state && state.can_move { self.words.border(prompt) } else { 0 };
        state.sequences[self.index].border = border;
        while !state.sequences[self.index].in_turn
            && (state.wanted_room() > state.room || state.prefix_is_coming(prompt, border))
        {
            state = shared.wait(state);
        }
        self.notice_losses(&state);
        let plans = !state.can_truncate && shared.prompts.is_some();
        let mine = &mut state.sequences[self.index];
        mine.in_turn = true;
        mine.prompt = prompt.to_vec();
        if plans {
            // So that others know what is coming.
            mine.checkpoints.plan(&outline(&self.words, &shared.options, prompt, 0, self.question), 0);
        }
        Ok(())
    }

    fn recall(&mut self, prompt: &[Token], most: usize) {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        self.notice_losses(&state);
        self.set_aside(&mut state, prompt);
        let kept = common(&self.cached, prompt);
        let border = state.sequences[self.index].border;
        let mine = state.prefix(self.index, prompt, most, border);
        let have = mine.max(state.longest_prefix(prompt, most, border).1);
        let reading = if state.has_state { Reading::Until(border) } else { Reading::Any };
        let known = match &shared.prompts {
            Some(prompts) if !state.can_truncate => prompts.known(prompt).max(kept).min(most),
            _ => 0,
        };
        let State { context: Some(context), sequences, room, .. } = &mut *state else { return };
        // An entry may be longer than what was reserved for this prompt.
        let sought = Sought { prompt, have, most, reading };
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
                sequence.checkpoints = Checkpoints::of(&entry.checkpoints);
                sequence.read_with_flash = entry.flash;
            }
            self.keep_first(&mut state, gain);
        } else {
            self.take_prefix(&mut state, prompt, most);
        }
        if !state.can_truncate && shared.prompts.is_some() {
            let from = state.reach(self.index, common(&self.cached, prompt).min(most));
            let sequence = &mut state.sequences[self.index];
            let question = std::mem::take(&mut self.question);
            sequence.checkpoints.plan(&outline(&self.words, &shared.options, prompt, known, question), from);
        }
    }

    fn border(&self) -> usize {
        self.shared.lock().sequences[self.index].border
    }

    fn remember(&mut self, reading: Duration) {
        let shared = Arc::clone(&self.shared);
        let Some(prompts) = shared.prompts.as_deref() else { return };
        let mut state = shared.lock();
        self.notice_losses(&state);
        let State { context: Some(context), sequences, .. } = &mut *state else { return };
        let sequence = &sequences[self.index];
        let checkpoints = sequence.checkpoints.for_disk(self.cached.len());
        let bytes = || context.state_size(self.index) + Checkpoint::bytes(&checkpoints);
        if !prompts.is_worth_writing(&self.cached, reading, bytes) {
            return;
        }
        if let Some(state) = context.state(self.index) {
            prompts.write(&self.cached, sequence.read_with_flash, &checkpoints, state);
        }
    }

    fn reserve(&mut self, _now: usize, tokens: usize) -> Result<()> {
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
        let shared = Arc::clone(&self.shared);
        let mut rest = tokens;
        while !rest.is_empty() {
            let (read, border) = (self.cached.len(), self.border());
            let (most, least) = if read < border { (border - read, PROMPT_BLOCK) } else { (rest.len(), 1) };
            let most = most.min(rest.len());
            let ahead = shared.lock().sequences[self.index].checkpoints.ahead(read, most, least);
            let count = ahead.unwrap_or(most);
            self.decode_all(&rest[..count], count - 1)?;
            rest = &rest[count..];
            if ahead.is_some() {
                self.add_checkpoint(&mut shared.lock());
                // A sequence may wait for it.
                shared.changed.notify_all();
            }
        }
        Ok(())
    }

    fn can(&self) -> Abilities {
        let can = goes_back(&self.shared.model, &self.shared.options);
        // llama.cpp decodes sequences with different numbers of tokens one after the other.
        Abilities { truncate: can, go_back: can, draft: can && self.shared.layout.each == 1 }
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

    fn logits(&self, row: usize) -> &[f32] {
        self.logits.get(row).filter(|_| !self.cached.is_empty()).map_or(&[], Vec::as_slice)
    }
}
