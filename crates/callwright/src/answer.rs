//! What is asked of an answer, and how it went: the data that all stages share.

pub(crate) mod options;
mod sampling;

use crate::Result;
use serde::{Deserialize, Serialize};
use std::ops::{AddAssign, Range};
use std::time::Duration;

pub use options::{ContextPolicy, Mode, Options, ToolChoice};
pub use sampling::{Penalties, Sampling};

/// A token's id in the model's vocabulary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(pub i32);

/// Why generation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The model ended its turn.
    EndOfTurn,
    /// The token limit, or the end of the context.
    Length,
    /// The caller stopped it.
    Stopped,
    /// The deadline has passed.
    Late,
    /// The cancel flag was raised.
    Cancelled,
}

/// The result of one generation.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Generation {
    /// The tokens generated, without the one that ended the turn.
    pub tokens: Vec<Token>,
    /// Why generation ended.
    pub end: End,
    /// The token that ended the turn, if one did.
    pub end_token: Option<Token>,
    /// The first token that the grammar wrote to close what was open, because the tokens ran out.
    pub closed_from: Option<usize>,
    /// Which of the tokens were forced.
    pub forced: Vec<Range<usize>>,
    /// Tokens and times.
    pub usage: Usage,
}

/// Tokens and times of one generation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Prompt tokens that were already in the KV cache.
    pub cached_tokens: usize,
    /// Tokens generated, without the one that ended the turn.
    pub completion_tokens: usize,
    /// Generated tokens that a grammar forced, without running the model.
    pub forced_tokens: usize,
    /// Generated tokens that were decoded in advance, as a draft from earlier text.
    pub drafted_tokens: usize,
    /// Tokens of calls that the model began in another form, and that were taken back for the format's; the answer does not have them.
    #[serde(skip_serializing_if = "is_default")]
    pub rewritten_tokens: usize,
    /// All tokens decoded as a draft, whether or not the model then wrote them.
    pub proposed_tokens: usize,
    /// What the answer cost, if models.toml has the server's prices, in their currency.
    #[serde(skip_serializing_if = "is_default")]
    pub cost: f64,
    /// Time until the prompt was decoded.
    #[serde(rename = "prompt_seconds", serialize_with = "seconds")]
    pub prompt_time: Duration,
    /// Time for generating.
    #[serde(rename = "completion_seconds", serialize_with = "seconds")]
    pub completion_time: Duration,
}

impl AddAssign for Usage {
    fn add_assign(&mut self, more: Usage) {
        self.prompt_tokens += more.prompt_tokens;
        self.cached_tokens += more.cached_tokens;
        self.completion_tokens += more.completion_tokens;
        self.forced_tokens += more.forced_tokens;
        self.drafted_tokens += more.drafted_tokens;
        self.proposed_tokens += more.proposed_tokens;
        self.rewritten_tokens += more.rewritten_tokens;
        self.cost += more.cost;
        self.prompt_time += more.prompt_time;
        self.completion_time += more.completion_time;
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn seconds<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    // The clock is not more exact than microseconds.
    serializer.serialize_f64(duration.as_micros() as f64 / 1e6)
}

/// The probability that an answer begins with a call.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CallProbability {
    /// That of the first token: of all tokens that a call may begin with. Other text may begin with some of them, too, so
    /// it is an upper bound where no white space precedes the call.
    pub first_token: f64,
    /// That of the whole start marker, if it was followed, or is a single token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub marker: Option<f64>,
    /// That of the beginnings of calls in other forms together, where the marker was followed and such calls are read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_forms: Option<f64>,
}

impl CallProbability {
    /// What thresholds are compared with: the probability of a call in any form if it is known, or else that of the first token.
    pub fn value(&self) -> f64 {
        self.whole().unwrap_or(self.first_token)
    }

    /// The probability of a call in any form, if it is known.
    pub(crate) fn whole(&self) -> Option<f64> {
        self.marker.map(|marker| (marker + self.other_forms.unwrap_or(0.0)).min(1.0))
    }
}

/// What thresholds decide about an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decided {
    /// It has to be a call.
    Call,
    /// It has no call.
    Text,
}
