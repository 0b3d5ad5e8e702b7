//! What was read of earlier prompts, for prompts that begin alike: in memory, and on disk for later runs.
//!
//! An entry is a sequence of tokens and the engine's state after it. A model with ordinary attention can drop the end of it,
//! so any common beginning saves time. A recurrent model can only go on from the whole of an entry.

mod disk;

pub use disk::{Disk, Kept, clear, list};

use super::{Token, common};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Fewer tokens are decoded in the time that a state takes to copy.
pub(crate) const WORTH: usize = 32;
/// From this many tokens at a time on, llama.cpp's flash attention computes each token in the same way, however many come at a
/// time. Fewer are computed in another way, which rounds differently.
pub(crate) const PROMPT_BLOCK: usize = 64;
/// A prompt that took less time to read is not kept on disk.
const WORTH_WRITING: Duration = Duration::from_millis(500);
/// Nor is one whose state has more bytes for each second that it took. States were read from disk into a GPU's memory at twice this
/// rate (docs/figures.md).
const BYTES_PER_SECOND: f64 = 0.5e9;

/// Prompts that were read, of one model in one kind of context.
pub(crate) struct PromptCache {
    memory: Mutex<Memory>,
    /// Bytes of states in memory.
    budget: u64,
    disk: Option<Disk>,
    /// Whether the model can drop the end of an entry.
    can_truncate: bool,
}

/// Some tokens, and the state after them.
#[derive(Clone)]
pub(crate) struct Entry {
    pub tokens: Arc<[Token]>,
    /// How many of them were read as flash attention reads a prompt.
    pub flash: usize,
    pub state: Arc<Vec<u8>>,
}

/// How the rest of a prompt is read. What comes from the cache must have been read in the same way, so that the answer is the
/// same to the bit as without a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    Full,
    Flash,
    /// In either way: the answer depends on what else is in the context anyhow.
    Any,
}

/// The least recently used first.
#[derive(Default)]
struct Memory(VecDeque<Entry>);

/// What is searched for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'p> {
    pub prompt: &'p [Token],
    /// As much of the prompt is already in the context.
    pub have: usize,
    /// More is of no use.
    pub most: usize,
    pub reading: Reading,
}

impl Wanted<'_> {
    /// How much of the prompt an entry saves, if that is worth the time; `flash` of its tokens were read with flash attention.
    fn gain(&self, tokens: &[Token], flash: usize, can_truncate: bool) -> Option<usize> {
        let shared = common(tokens, self.prompt);
        let used = match self.reading {
            _ if !can_truncate => shared,
            Reading::Any => shared.min(self.most),
            Reading::Full if flash > 0 => 0,
            Reading::Full => shared.min(self.most),
            Reading::Flash => match shared.min(flash).min(self.most) {
                all if all == self.most => all,
                // The rest must not be too short.
                used => used.min(self.most.saturating_sub(PROMPT_BLOCK)),
            },
        };
        let whole = shared == tokens.len() && shared <= self.most;
        ((can_truncate || whole) && used >= self.have + WORTH).then_some(used)
    }
}

impl PromptCache {
    /// A cache with `budget` bytes in memory, and a folder on disk, for a model that can drop the end of a sequence or
    /// cannot.
    pub(crate) fn new(budget: u64, disk: Option<Disk>, can_truncate: bool) -> PromptCache {
        PromptCache { memory: Mutex::default(), budget, disk, can_truncate }
    }

    /// The entry that saves the most of a prompt, and how many of its tokens are of use.
    pub(crate) fn find(&self, wanted: Wanted<'_>) -> Option<(usize, Entry)> {
        let in_memory = self.lock().find(&wanted, self.can_truncate);
        let have = in_memory.as_ref().map_or(wanted.have, |(gain, _)| *gain);
        let on_disk = self.disk.as_ref().and_then(|disk| disk.find(&Wanted { have, ..wanted }, self.can_truncate));
        on_disk.or(in_memory)
    }

    /// How much of a prompt the tokens of some entry begin with, whether or not the engine can go on from there.
    pub(crate) fn known(&self, prompt: &[Token]) -> usize {
        let in_memory = self.lock().0.iter().map(|entry| common(&entry.tokens, prompt)).max();
        in_memory.max(self.disk.as_ref().map(|disk| disk.known(prompt))).unwrap_or_default()
    }

    /// Keeps in memory what is about to leave the context, unless that is known already.
    pub(crate) fn keep(&self, tokens: &[Token], flash: usize, state: impl FnOnce() -> Option<Vec<u8>>) {
        if self.budget == 0 || tokens.len() < WORTH || self.lock().covers(tokens, self.can_truncate) {
            return;
        }
        if let Some(state) = state() {
            self.lock().insert(Entry::new(tokens, flash, state), self.budget, self.can_truncate);
        }
    }

    /// Keeps, in memory and on disk, a beginning that prompts have in common.
    pub(crate) fn keep_beginning(&self, tokens: &[Token], flash: usize, state: Vec<u8>) {
        let entry = Entry::new(tokens, flash, state);
        if let Some(disk) = &self.disk {
            disk.write(entry.clone(), self.can_truncate);
        }
        self.lock().insert(entry, self.budget, self.can_truncate);
    }

    /// Whether a prompt that took this long to read is worth keeping on disk, with a state of so many bytes.
    pub(crate) fn is_worth_writing(&self, tokens: &[Token], reading: Duration, bytes: impl FnOnce() -> usize) -> bool {
        let Some(disk) = &self.disk else { return false };
        let pays = || reading >= WORTH_WRITING && reading.as_secs_f64() >= bytes() as f64 / BYTES_PER_SECOND;
        (disk.always() || pays()) && tokens.len() >= disk.known(tokens) + WORTH
    }

    /// Keeps on disk what is in the context. The file is written while the program goes on.
    pub(crate) fn write(&self, tokens: &[Token], flash: usize, state: Vec<u8>) {
        if let Some(disk) = &self.disk {
            disk.write(Entry::new(tokens, flash, state), self.can_truncate);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Memory {
    fn find(&mut self, wanted: &Wanted<'_>, can_truncate: bool) -> Option<(usize, Entry)> {
        let gain = |entry: &Entry| wanted.gain(&entry.tokens, entry.flash, can_truncate);
        let gains = self.0.iter().enumerate().filter_map(|(place, entry)| Some((gain(entry)?, place)));
        let (gain, place) = gains.max_by_key(|(gain, _)| *gain)?;
        let entry = self.0.remove(place)?;
        self.0.push_back(entry.clone());
        Some((gain, entry))
    }

    /// Returns whether an entry does what one of `tokens` would.
    fn covers(&self, tokens: &[Token], can_truncate: bool) -> bool {
        self.0
            .iter()
            .any(|entry| entry.tokens.starts_with(tokens) && (can_truncate || entry.tokens.len() == tokens.len()))
    }

    fn insert(&mut self, entry: Entry, budget: u64, can_truncate: bool) {
        // The beginnings of a conversation that goes on.
        self.0.retain(|old| !entry.tokens.starts_with(&old.tokens) || (!can_truncate && old.tokens != entry.tokens));
        self.0.push_back(entry);
        while self.0.iter().map(Entry::size).sum::<u64>() > budget && self.0.pop_front().is_some() {}
    }
}

impl Entry {
    fn new(tokens: &[Token], flash: usize, state: Vec<u8>) -> Entry {
        Entry { tokens: tokens.into(), flash, state: Arc::new(state) }
    }

    fn size(&self) -> u64 {
        (self.state.len() + size_of_val::<[Token]>(&self.tokens)) as u64
    }
}

#[cfg(test)]
mod tests;
