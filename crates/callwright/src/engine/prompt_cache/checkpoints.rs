//! Places that a sequence of a recurrent or hybrid model can go back to, or of one with sliding windows.
//!
//! Such a model has one state for all tokens that it has read, so llama.cpp cannot drop the last ones. A checkpoint is a copy of
//! that state after some tokens. What attention keeps of each token is not a part of it, so that a hybrid's checkpoints are small. Of layers
//! with a window, a checkpoint has the tokens in it: llama.cpp has overwritten them where a sequence is longer.
//! Prompts differ from earlier ones where a message begins: there, checkpoints are made.

use super::{PromptCache, reach};
use std::sync::Arc;

/// The most checkpoints of a sequence.
pub(super) const MOST: usize = 32;
/// The most of them that are written to disk.
const ON_DISK: usize = 8;
/// A longer part of a prompt has checkpoints within it: as many tokens as are decoded at a time.
const STRIDE: usize = 512;
/// So many tokens are between those at the end of a long first message.
const TAIL: usize = 128;

/// The recurrent part of a sequence's state after its first tokens, or the windows.
#[derive(Clone)]
pub(crate) struct Checkpoint {
    /// The number of tokens.
    pub at: usize,
    pub state: Arc<Vec<u8>>,
}

impl Checkpoint {
    /// Bytes of all their states.
    pub(crate) fn bytes(checkpoints: &[Checkpoint]) -> usize {
        checkpoints.iter().map(|checkpoint| checkpoint.state.len()).sum()
    }
}

/// The checkpoints of a sequence, in order, and those that its prompt will have.
#[derive(Clone, Default)]
pub(crate) struct Checkpoints {
    kept: Vec<Checkpoint>,
    planned: Vec<usize>,
    /// After the first message, where other conversations go on with the same tools; and before the last question.
    first: usize,
    question: usize,
}

/// What is known of a prompt before it is read.
pub(crate) struct Outline {
    /// The number of tokens.
    pub tokens: usize,
    /// Where messages begin, in order.
    pub messages: Vec<usize>,
    /// Where another prompt differed from it; 0 if none did.
    pub known: usize,
    /// Where the last question is; 0 if that is not known.
    pub question: usize,
    /// Checkpoints are at least so many tokens apart.
    pub apart: usize,
    /// Whether there is one after the whole prompt, too, beside that before its last token.
    pub whole: bool,
}

impl Checkpoints {
    /// Checkpoints that were kept with a prompt.
    pub(crate) fn of(kept: &[Checkpoint]) -> Checkpoints {
        Checkpoints { kept: kept.to_vec(), ..Checkpoints::default() }
    }

    pub(crate) fn kept(&self) -> &[Checkpoint] {
        &self.kept
    }

    /// Those that are worth writing to disk with a prompt of so many tokens.
    pub(crate) fn for_disk(&self, tokens: usize) -> Vec<Checkpoint> {
        let mut kept = self.kept.clone();
        while kept.len() > ON_DISK {
            let places: Vec<usize> = kept.iter().map(|kept| kept.at).collect();
            kept.remove(least(&places, tokens, self.first, &[self.question]));
        }
        kept
    }

    /// The last one within the first `len` tokens.
    pub(crate) fn last(&self, len: usize) -> Option<&Checkpoint> {
        self.kept.iter().rev().find(|checkpoint| checkpoint.at <= len)
    }

    /// Where a model that cannot truncate goes on, within the first `len` of so many tokens.
    pub(crate) fn reach(&self, tokens: usize, len: usize) -> usize {
        reach(tokens, self.kept.iter().map(|checkpoint| checkpoint.at), len)
    }

    /// Drops those after `len` tokens.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.kept.retain(|checkpoint| checkpoint.at <= len);
    }

    /// Drops all, and plans none.
    pub(crate) fn clear(&mut self) {
        *self = Checkpoints::default();
    }

    /// Plans checkpoints for a prompt that is read from `from` tokens on.
    pub(crate) fn plan(&mut self, prompt: &Outline, from: usize) {
        let end = prompt.tokens.saturating_sub(1);
        let mut before = self.last(from).map_or(0, |last| last.at);
        let mut new: Vec<usize> = Vec::new();
        let mut add = |place: usize, apart: usize| {
            let reached = before.max(from);
            // Within a long message.
            new.extend((1..).map(|part| reached + part * STRIDE).take_while(|within| within + STRIDE <= place));
            if reached == 0 && place > STRIDE {
                // Tools are added at the end of the first one.
                new.extend((1..4).map(|part| place - part * TAIL));
            }
            if place > from && place >= before + apart {
                new.push(place);
                before = place;
            }
        };
        // A token by itself is computed in another way than among others, which rounds differently.
        for place in prompt.messages.iter().copied().filter(|place| *place + 2 <= end) {
            add(place, prompt.apart);
        }
        // A prompt that is asked again goes on before its last token, which is decoded by itself anyhow, and one with the answer in other words
        // after it.
        add(end, 1);
        if prompt.whole {
            add(prompt.tokens, 1);
        }
        let is_near = |place: &usize| place.abs_diff(prompt.known) < prompt.apart;
        if prompt.known > from + prompt.apart && !new.iter().any(is_near) {
            new.push(prompt.known);
        }
        new.sort_unstable();
        self.first = prompt.messages.iter().copied().find(|place| *place > 0).unwrap_or_default();
        self.question = prompt.question;
        let old = self.kept.iter().map(|kept| kept.at).filter(|at| *at <= from);
        let mut all: Vec<usize> = old.chain(new.iter().copied()).collect();
        while all.len() > MOST {
            all.remove(least(&all, end, self.first, &[self.question, prompt.known]));
        }
        new.retain(|place| all.contains(place));
        self.planned = new;
    }

    /// How many of the next `count` tokens come before the next planned checkpoint, if it is within them. It divides them into pieces
    /// of at least so many tokens.
    pub(crate) fn ahead(&self, read: usize, count: usize, least: usize) -> Option<usize> {
        let ahead = self.planned.iter().filter(|place| **place > read).map(|place| place - read);
        ahead.into_iter().find(|ahead| *ahead == count || (*ahead >= least && ahead + least <= count))
    }

    /// Returns whether one is planned after `len` tokens.
    pub(crate) fn is_planned(&self, len: usize) -> bool {
        self.planned.contains(&len)
    }

    /// The last place within the first `len` tokens that has a checkpoint, or will have one.
    pub(crate) fn coming(&self, len: usize) -> usize {
        let planned = self.planned.iter().copied().filter(|place| *place <= len).max();
        planned.max(self.last(len).map(|last| last.at)).unwrap_or_default()
    }

    /// Adds one at the end, within the memory for prompts.
    pub(crate) fn push(&mut self, at: usize, state: Vec<u8>, prompts: &PromptCache) {
        self.planned.retain(|place| *place != at);
        self.kept.retain(|old| old.at < at);
        let most = prompts.checkpoints(state.len());
        while !self.kept.is_empty() && self.kept.len() >= most {
            let places: Vec<usize> = self.kept.iter().map(|kept| kept.at).collect();
            self.kept.remove(least(&places, at, self.first, &[self.question]));
        }
        if let Some(state) = prompts.hold(state) {
            self.kept.push(Checkpoint { at, state });
        }
    }
}

/// Which of several checkpoints, in order, saves the least: the end of a prompt changes more often than its beginning, so there they are closer to one
/// another. What is at `first`, or next to one of `marked` on either side, is left.
fn least(places: &[usize], end: usize, first: usize, marked: &[usize]) -> usize {
    let marks = |index: usize| {
        if places[index] == first {
            return true;
        }
        let (place, next) = (places[index], places.get(index + 1).copied().unwrap_or(usize::MAX));
        let before = index.checked_sub(1).map_or(0, |before| places[before]);
        marked.iter().any(|mark| *mark > 0 && ((place..next).contains(mark) || (before..place).contains(mark)))
    };
    let cost = |index: usize| {
        let before = index.checked_sub(1).map_or(0, |before| places[before]);
        let next = places.get(index + 1).copied().unwrap_or(end.max(places[index] + 1));
        let (saved, likely) = (places[index] - before, next - places[index]);
        let cost = saved as f64 * likely as f64 / (end.saturating_sub(places[index]) + 1) as f64;
        if marks(index) { f64::INFINITY } else { cost }
    };
    // The last one stays: a prompt that is asked again goes on from it.
    let all = 0..places.len().saturating_sub(1);
    all.min_by(|one, other| cost(*one).total_cmp(&cost(*other))).unwrap_or_default()
}
