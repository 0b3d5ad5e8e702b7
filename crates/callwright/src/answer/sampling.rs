//! How the next token is chosen.

use serde::{Deserialize, Serialize};

/// How to choose the next token.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sampling {
    /// 0 always takes the likeliest token; higher values vary more.
    pub temperature: f32,
    /// Only the `top_k` likeliest tokens; 0 is all.
    pub top_k: usize,
    /// Only the likeliest tokens that together reach this probability; 1 is all.
    pub top_p: f32,
    /// Only tokens at least this times as likely as the likeliest; 0 is all.
    pub min_p: f32,
    /// The seed of the random numbers.
    pub seed: u64,
    /// Penalties for tokens that have already occurred.
    #[serde(default, skip_serializing_if = "Penalties::is_default")]
    pub penalties: Penalties,
}

impl Sampling {
    /// This sampling after `set` has changed parts of it.
    #[must_use]
    pub fn with(mut self, set: impl FnOnce(&mut Self)) -> Self {
        set(&mut self);
        self
    }
}

impl Default for Sampling {
    /// Greedy: this engine is about exact formats, and greedy answers are reproducible.
    fn default() -> Sampling {
        let penalties = Penalties::default();
        Sampling { temperature: 0.0, top_k: 40, top_p: 0.95, min_p: 0.05, seed: 0, penalties }
    }
}

/// Penalties for tokens that the answer already contains. The default changes nothing.
///
/// Only the tokens of the answer's text count. Those of the prompt do not, so that the model may quote a tool's result,
/// nor do those of calls.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Penalties {
    /// Divides the logit of each token that has occurred, or multiplies it if it is negative; 1 changes nothing.
    pub repeat: f32,
    /// Subtracted from the logit of each token that has occurred.
    pub presence: f32,
    /// Subtracted from the logit for each occurrence of the token.
    pub frequency: f32,
    /// Number of the last tokens to which these three apply; -1 is all.
    pub last_n: i32,
    /// DRY: penalty of a token that would continue a repetition; 0 is off.
    pub dry_multiplier: f32,
}

impl Default for Penalties {
    fn default() -> Penalties {
        Penalties { repeat: 1.0, presence: 0.0, frequency: 0.0, last_n: 64, dry_multiplier: 0.0 }
    }
}

impl Penalties {
    /// Returns whether nothing differs from the default.
    pub(crate) fn is_default(&self) -> bool {
        *self == Penalties::default()
    }
}
