//! One stored answer: all that is needed to score it, now or with a newer parser.

use super::outcome::Outcome;
use callwright::decision::{CallProbability, Decided};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// How an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The model ended its turn.
    Stop,
    /// The token limit or the end of the context cut it off.
    Length,
    /// It repeated itself, and was ended.
    Loop,
    /// There is no answer: see [`Sample::failure`].
    Failed,
}

/// The reason why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Whether the prompt was too long; otherwise something failed.
    pub prompt_too_long: bool,
    /// The error's text.
    pub message: String,
}

/// One turn of a case that has several: what the user said, and all that followed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// The messages in OpenAI's form: the user's, the model's answers, and the results of its calls.
    pub messages: Value,
    /// How it ended, in the words of `run --output json`.
    pub status: String,
    /// How many answers the model gave.
    pub answers: usize,
    /// The tokens that it wrote.
    pub tokens: usize,
    /// The calls that were executed, in order. Those that were refused are in the messages alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub executed: Vec<Executed>,
}

/// A call that was executed, so that it can be executed again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Executed {
    /// The tool.
    pub name: String,
    /// Its arguments.
    pub arguments: Map<String, Value>,
    /// The result, or the tool's own error.
    pub result: String,
}

/// What became of a case of several turns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The outcome.
    pub outcome: Outcome,
    /// The turn, from 0, in which it went wrong, if that is one turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<usize>,
    /// The reason; empty where all is right.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// Where the state is then not that of the right calls, if the reason does not say it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub difference: Vec<String>,
    /// Whether the right calls were executed and the state is right, however the answers ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<bool>,
    /// What BFCL's checker says of a case of BFCL: an empty text, or the error type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bfcl: Option<String>,
}

/// How long an answer took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Timing {
    /// Seconds until the prompt was decoded and the first token chosen.
    pub first_token: f64,
    /// Seconds after that.
    pub generation: f64,
    /// Whether this was the first answer of a session; latencies leave it out.
    pub warm_up: bool,
    /// Bytes of the process in memory after it, with the mapped file; 0 where that is not known.
    #[serde(default, skip_serializing_if = "no_bytes")]
    pub memory: u64,
}

fn no_bytes(bytes: &u64) -> bool {
    *bytes == 0
}

/// One answer: a line of samples.jsonl.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The case's id.
    pub case: String,
    /// The configuration's id: a hash of all its fields, including the hashes of the GGUF and the chat template.
    pub config: String,
    /// The number of the answer to this case, from 0.
    pub repeat: usize,
    /// The seed.
    pub seed: u64,
    /// The hash of the prompt's text, its key in prompts.jsonl.
    pub prompt_sha256: String,
    /// The beginning of the answer that the prompt contains, for the parser.
    pub prompt_tail: String,
    /// The model's text; bytes that are not UTF-8 are replaced.
    pub raw: String,
    /// The byte from which the grammar closed the call because the tokens ran out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed_from: Option<usize>,
    /// The tokens of the text.
    pub tokens: Vec<i32>,
    /// The parser's events, with adjacent pieces joined.
    pub events: Vec<Value>,
    /// How it ended.
    pub finish: Finish,
    /// The reason why there is no answer, if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// The prompt's tokens.
    pub prompt_tokens: usize,
    /// The prompt's tokens that were already in the KV cache.
    pub cached_tokens: usize,
    /// The tokens forced by a grammar.
    pub forced_tokens: usize,
    /// The tokens of calls in another form that were taken back.
    #[serde(default, skip_serializing_if = "is_default")]
    pub rewritten_tokens: usize,
    /// What it cost, if models.toml has the server's prices, in their currency.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cost: f64,
    /// How likely a call was where the answer began; absent where the model did not decide, or nothing says how calls begin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_probability: Option<CallProbability>,
    /// What the thresholds decided because of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided: Option<Decided>,
    /// The turns of a case that has several; `raw` and `tokens` are then empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub turns: Vec<Turn>,
    /// What became of such a case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// The times.
    pub timing: Timing,
}

impl Sample {
    /// The number of tokens that the model wrote.
    pub(crate) fn written(&self) -> usize {
        self.tokens.len() + self.turns.iter().map(|turn| turn.tokens).sum::<usize>()
    }

    /// Case, configuration and repeat, which identify a sample.
    pub(crate) fn key(&self) -> (&str, &str, usize) {
        (&self.case, &self.config, self.repeat)
    }

    /// Returns whether a threshold decided that it has no call. What looks like one was not executed.
    pub(crate) fn is_held_to_text(&self) -> bool {
        self.decided == Some(Decided::Text)
    }

    /// Returns whether something failed: another attempt may give an answer.
    pub fn broke(&self) -> bool {
        self.failure.as_ref().is_some_and(|failure| !failure.prompt_too_long)
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
