//! The probability of each token, where that is asked for.

use crate::decision::Distribution;
use crate::engine::{Engine, Token};
use serde::Serialize;
use std::cell::RefCell;

/// A token of an answer, and how likely it was.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TokenProbability {
    /// The token.
    #[serde(flatten)]
    pub token: Likely,
    /// The likeliest tokens in its place, the first one first; none for a token that a grammar forced.
    pub top_logprobs: Vec<Likely>,
}

/// A token that might come next.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Likely {
    /// Its text; may have a replacement character, where it is a part of a character.
    pub token: String,
    /// The natural logarithm of its probability, before temperature and penalties; 0 for a token that a grammar forced.
    pub logprob: f64,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// Collects the probabilities of an answer's tokens.
pub struct Probabilities {
    likeliest: usize,
    /// Those that nobody has taken yet.
    found: RefCell<Vec<TokenProbability>>,
}

impl Probabilities {
    /// Collects, with each token, this number of the likeliest in its place.
    pub fn new(likeliest: usize) -> Probabilities {
        Probabilities { likeliest, found: RefCell::default() }
    }

    /// Adds a token that was sampled from these logits, or forced where there are none.
    pub(super) fn add(&self, engine: &dyn Engine, token: Token, logits: Option<&[f32]>) {
        let likely = |token: Token, logprob: f64| {
            let bytes = engine.token_bytes(token).to_vec();
            Likely { token: String::from_utf8_lossy(&bytes).into_owned(), logprob, bytes }
        };
        let mut logprob = 0.0;
        let mut top_logprobs = Vec::new();
        if let Some(logits) = logits {
            let distribution = Distribution::new(logits);
            logprob = distribution.logarithm(token);
            let best = distribution.best(self.likeliest);
            top_logprobs = best.into_iter().map(|token| likely(token, distribution.logarithm(token))).collect();
        }
        self.found.borrow_mut().push(TokenProbability { token: likely(token, logprob), top_logprobs });
    }

    /// Removes the last `count`, whose tokens were dropped.
    pub(super) fn drop_last(&self, count: usize) {
        let mut found = self.found.borrow_mut();
        let kept = found.len().saturating_sub(count);
        found.truncate(kept);
    }

    /// Returns what was added since the last time.
    pub fn take(&self) -> Vec<TokenProbability> {
        self.found.take()
    }
}
