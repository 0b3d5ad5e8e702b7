//! One answer as it is kept: all that scoring it needs, now or with a newer parser.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The model ended its turn.
    Stop,
    /// The token limit, or the end of the context.
    Length,
    /// There is no answer: see [`Sample::failure`].
    Failed,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Whether the prompt was too long; otherwise something broke.
    pub prompt_too_long: bool,
    /// The error's text.
    pub message: String,
}

/// What an answer took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// Seconds until the prompt was decoded, when the first token is chosen.
    pub first_token: f64,
    /// Seconds from there on.
    pub generation: f64,
    /// Whether this was the first answer of a session, which is left out of the latencies.
    pub warm_up: bool,
}

/// One answer: a line of samples.jsonl.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The case's id.
    pub case: String,
    /// The configuration's id: a hash of all that it is, with those of the GGUF and the chat template.
    pub config: String,
    /// Which of the answers to this case, from 0.
    pub repeat: usize,
    /// Where the random numbers started.
    pub seed: u64,
    /// The hash of the prompt's text, by which prompts.jsonl has it.
    pub prompt_sha256: String,
    /// What the prompt wrote of the answer already, for the parser.
    pub prompt_tail: String,
    /// What the model wrote; bytes that are not UTF-8 are replaced.
    pub raw: String,
    /// From which byte of it on the grammar closed what was open, because the tokens ran out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed_from: Option<usize>,
    /// The tokens that it is made of.
    pub tokens: Vec<i32>,
    /// What the parser said while the model wrote, adjacent pieces joined.
    pub events: Vec<Value>,
    /// How it ended.
    pub finish: Finish,
    /// Why there is no answer, where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Of these, the ones that were in the KV cache already.
    pub cached_tokens: usize,
    /// Of the tokens, the ones that a grammar forced.
    pub forced_tokens: usize,
    /// What it took.
    pub timing: Timing,
}

impl Sample {
    /// Case, configuration and repeat: what tells a sample from others.
    pub fn key(&self) -> (&str, &str, usize) {
        (&self.case, &self.config, self.repeat)
    }

    /// Whether something broke: asked again, there may be an answer.
    pub fn broke(&self) -> bool {
        self.failure.as_ref().is_some_and(|failure| !failure.prompt_too_long)
    }
}
