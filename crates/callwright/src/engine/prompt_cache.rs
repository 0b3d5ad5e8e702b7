//! What was read of earlier prompts, for prompts that begin alike: in memory, and on disk for later runs.
//!
//! An entry is a sequence of tokens and the engine's state after it. A model with ordinary attention can drop the end of it,
//! so any common beginning saves time. A recurrent or hybrid model, or one with sliding windows, can only go on from the whole of an entry, or from
//! one of its checkpoints.

mod checkpoints;
mod disk;

pub(crate) use checkpoints::Checkpoint;
#[cfg(any(feature = "llama", test))]
pub(crate) use checkpoints::{Checkpoints, Outline};
pub use disk::{Disk, Kept, clear, list};

use super::{Token, common};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
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
/// Bytes of checkpoints that a prompt has while it is read, for the disk, where no prompts are kept in memory.
const FOR_DISK: u64 = 64 << 20;

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
    /// Where else a model can go on that cannot truncate.
    pub checkpoints: Vec<Checkpoint>,
}

/// How the rest of a prompt is read. What comes from the cache must have been read in the same way, so that the answer is the
/// same to the bit as without a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    Full,
    Flash,
    /// In either way: the answer depends on what else is in the context anyhow.
    Any,
    /// With flash attention up to here, and in full from there on.
    Until(usize),
}

#[derive(Default)]
struct Memory {
    /// The least recently used first.
    entries: VecDeque<Entry>,
    /// All states that are in use, of entries and of sequences. Several may share one.
    states: Vec<Weak<Vec<u8>>>,
}

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
    /// How much of the prompt an entry saves, if that is worth the time; `flash` of its tokens were read with flash attention. `reach` says
    /// where a model that cannot truncate goes on, of the entry's first tokens.
    fn gain(&self, tokens: &[Token], flash: usize, reach: Option<&dyn Fn(usize) -> usize>) -> Option<usize> {
        let shared = common(tokens, self.prompt);
        let used = match self.reading {
            Reading::Full if flash > 0 => 0,
            Reading::Any | Reading::Full => shared.min(self.most),
            Reading::Until(border) => alike(shared.min(self.most), flash, border),
            Reading::Flash => match shared.min(flash).min(self.most) {
                all if all == self.most => all,
                // The rest must not be too short.
                used => used.min(self.most.saturating_sub(PROMPT_BLOCK)),
            },
        };
        let mut used = reach.map_or(used, |reach| reach(used));
        if let (Reading::Until(border), Some(reach)) = (self.reading, reach) {
            used = not_before(border, used, reach);
        }
        (used >= self.have + WORTH).then_some(used)
    }
}

/// How many of the tokens that a prompt shares with a sequence were read in the same way, if `flash` of the sequence and `border` of the prompt
/// are read with flash attention.
pub(crate) fn alike(shared: usize, flash: usize, border: usize) -> usize {
    if flash == border { shared } else { shared.min(flash).min(border) }
}

/// Goes back further where too few tokens are left before the border.
pub(crate) fn not_before(border: usize, place: usize, reach: impl Fn(usize) -> usize) -> usize {
    let few = place < border && place + PROMPT_BLOCK > border;
    if few { reach(border.saturating_sub(PROMPT_BLOCK)) } else { place }
}

/// Where a model that cannot truncate goes on, within the first `len` of so many tokens with such checkpoints.
fn reach(tokens: usize, checkpoints: impl DoubleEndedIterator<Item = usize>, len: usize) -> usize {
    if tokens <= len { tokens } else { checkpoints.rev().find(|at| *at <= len).unwrap_or_default() }
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
        if let Some((_, entry)) = &on_disk {
            let mut memory = self.lock();
            memory.states.extend(entry.checkpoints.iter().map(|checkpoint| Arc::downgrade(&checkpoint.state)));
            memory.fit(self.budget);
        }
        on_disk.or(in_memory)
    }

    /// How much of a prompt the tokens of some entry begin with, whether or not the engine can go on from there.
    pub(crate) fn known(&self, prompt: &[Token]) -> usize {
        let in_memory = self.lock().entries.iter().map(|entry| common(&entry.tokens, prompt)).max();
        in_memory.max(self.disk.as_ref().map(|disk| disk.known(prompt))).unwrap_or_default()
    }

    /// Keeps in memory what is about to leave the context, unless that is known already.
    pub(crate) fn keep(
        &self,
        tokens: &[Token],
        flash: usize,
        checkpoints: &[Checkpoint],
        state: impl FnOnce() -> Option<Vec<u8>>,
    ) {
        if self.budget == 0 || tokens.len() < WORTH || self.lock().covers(tokens, self.can_truncate) {
            return;
        }
        if let Some(state) = state() {
            self.lock().insert(Entry::new(tokens, flash, checkpoints, state), self.budget, self.can_truncate);
        }
    }

    /// How many checkpoints of so many bytes a sequence may have: a quarter of the memory for all prompts, but one in any case.
    pub(crate) fn checkpoints(&self, bytes: usize) -> usize {
        let most = self.room() / 4 / (bytes.max(1) as u64);
        usize::try_from(most).unwrap_or(usize::MAX).clamp(1, checkpoints::MOST)
    }

    /// Holds the state of a sequence's checkpoint in memory; `None` if there is no room for it.
    pub(crate) fn hold(&self, state: Vec<u8>) -> Option<Arc<Vec<u8>>> {
        let mut memory = self.lock();
        let state = Arc::new(state);
        memory.states.push(Arc::downgrade(&state));
        memory.fit(self.room()).then_some(state)
    }

    /// Bytes for prompts and checkpoints in memory.
    fn room(&self) -> u64 {
        self.budget.max(if self.disk.is_some() { FOR_DISK } else { 0 })
    }

    /// Whether a prompt that took this long to read is worth keeping on disk, with a state of so many bytes.
    pub(crate) fn is_worth_writing(&self, tokens: &[Token], reading: Duration, bytes: impl FnOnce() -> usize) -> bool {
        let Some(disk) = &self.disk else { return false };
        let pays = || reading >= WORTH_WRITING && reading.as_secs_f64() >= bytes() as f64 / BYTES_PER_SECOND;
        (disk.always() || pays()) && tokens.len() >= disk.known(tokens) + WORTH
    }

    /// Keeps on disk what is in the context. The file is written while the program goes on.
    pub(crate) fn write(&self, tokens: &[Token], flash: usize, checkpoints: &[Checkpoint], state: Vec<u8>) {
        if let Some(disk) = &self.disk {
            disk.write(Entry::new(tokens, flash, checkpoints, state), self.can_truncate);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Memory {
    fn find(&mut self, wanted: &Wanted<'_>, can_truncate: bool) -> Option<(usize, Entry)> {
        let gain = |entry: &Entry| {
            let reach = |len: usize| entry.reach(len);
            wanted.gain(&entry.tokens, entry.flash, if can_truncate { None } else { Some(&reach) })
        };
        let gains = self.entries.iter().enumerate().filter_map(|(place, entry)| Some((gain(entry)?, place)));
        let (gain, place) = gains.max_by_key(|(gain, _)| *gain)?;
        let entry = self.entries.remove(place)?;
        self.entries.push_back(entry.clone());
        Some((gain, entry))
    }

    /// Returns whether an entry does what one of `tokens` would.
    fn covers(&self, tokens: &[Token], can_truncate: bool) -> bool {
        self.entries.iter().any(|entry| entry.covers(tokens, can_truncate))
    }

    fn insert(&mut self, entry: Entry, budget: u64, can_truncate: bool) {
        // The beginnings of a conversation that goes on.
        self.entries.retain(|old| !entry.covers(&old.tokens, can_truncate));
        self.states.push(Arc::downgrade(&entry.state));
        self.entries.push_back(entry);
        self.fit(budget);
    }

    /// Drops what was not used for the longest time, and returns whether the rest fits.
    fn fit(&mut self, budget: u64) -> bool {
        while self.size() > budget {
            if self.entries.pop_front().is_none() {
                return false;
            }
        }
        true
    }

    fn size(&mut self) -> u64 {
        self.states.retain(|state| state.strong_count() > 0);
        let states: usize = self.states.iter().filter_map(Weak::upgrade).map(|state| state.len()).sum();
        let tokens: usize = self.entries.iter().map(|entry| size_of_val::<[Token]>(&entry.tokens)).sum();
        (states + tokens) as u64
    }
}

impl Entry {
    fn new(tokens: &[Token], flash: usize, checkpoints: &[Checkpoint], state: Vec<u8>) -> Entry {
        Entry { tokens: tokens.into(), flash, state: Arc::new(state), checkpoints: checkpoints.to_vec() }
    }

    /// Where a model that cannot truncate goes on, within the first `len` tokens.
    fn reach(&self, len: usize) -> usize {
        reach(self.tokens.len(), self.checkpoints.iter().map(|checkpoint| checkpoint.at), len)
    }

    /// Returns whether it does what an entry of `tokens` would, but for a few tokens.
    fn covers(&self, tokens: &[Token], can_truncate: bool) -> bool {
        let as_much = || self.reach(tokens.len()) + WORTH > tokens.len();
        self.tokens.starts_with(tokens) && (can_truncate || as_much())
    }

    fn size(&self) -> u64 {
        (self.state.len() + Checkpoint::bytes(&self.checkpoints) + size_of_val::<[Token]>(&self.tokens)) as u64
    }
}

#[cfg(test)]
mod tests;
