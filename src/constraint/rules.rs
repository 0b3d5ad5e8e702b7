//! What holds for an answer, and what is told of how it went.

use crate::engine::Token;
use serde::{Deserialize, Serialize};

/// How far the model is held to the grammar.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Not at all.
    Off,
    /// Calls are held to it; a failure of the constraint itself is told, and the answer goes on without it.
    #[default]
    Auto,
    /// Calls are held to it, and where a call is required there is nothing else; a failure ends the answer.
    Strict,
}

/// Which calls an answer may or must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Calls {
    /// None.
    Forbidden,
    /// Any of the tools.
    Allowed,
    /// At least one, of any of the tools.
    Required,
}

/// What holds for one answer.
#[derive(Debug, Clone)]
pub struct Rules {
    /// How far the model is held to the grammar.
    pub mode: Mode,
    /// Which calls there may or must be.
    pub calls: Calls,
    /// At most this many calls.
    pub max_calls: Option<usize>,
    /// Where a call is required, at most this many tokens before it.
    pub max_preamble: usize,
    /// At most this many tokens of reasoning, if there is a limit.
    pub max_thinking: Option<usize>,
    /// Whether forced tokens are appended without asking the model.
    pub jump: bool,
    /// Whether the prompt has begun reasoning.
    pub thinking: bool,
}

/// What is held to a grammar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// Calls, each of them a whole.
    Call,
    /// The whole answer.
    Answer {
        /// Whether it is JSON that fits a schema, rather than a grammar of one's own.
        json: bool,
    },
}

/// Something the caller should know about how the constraint went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// The tokens ran out, and what was begun was closed on the shortest way that was found.
    ClosedEarly(Subject),
    /// Reasoning went on too long and was closed.
    ThinkingClosed,
    /// The constraint failed; the answer went on without it.
    Failed(String),
    /// The tokens left did not suffice for a call that the model began: the answer ends before it. What it would have
    /// taken, in words.
    NoRoomForCall(String),
    /// The tokens ran out within something to whose end no way was found.
    CutOff(Subject),
    /// The tokens ran out within the number that an answer is, or ends with: more digits would make it another one.
    NumberCutOff,
}

impl Subject {
    pub(super) fn name(self) -> &'static str {
        match self {
            Subject::Call => "call",
            Subject::Answer { .. } => "answer",
        }
    }
}

impl std::fmt::Display for Notice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Notice::ClosedEarly(subject) => {
                write!(
                    f,
                    "the tokens ran out: the {} was closed early, with the shortest values that fit (--max-tokens gives more)",
                    subject.name()
                )
            }
            Notice::ThinkingClosed => f.write_str("reasoning was closed at its limit (--max-thinking)"),
            Notice::Failed(why) => write!(f, "the grammar failed, and the answer went on without it: {why}"),
            Notice::NoRoomForCall(why) => write!(f, "the answer ends before a call: {why} (--max-tokens)"),
            Notice::CutOff(subject) => write!(
                f,
                "the tokens ran out within the {}: no way was found to close it in time (--max-tokens gives more)",
                subject.name()
            ),
            Notice::NumberCutOff => f.write_str(
                "the tokens ran out within a number, which may be another one with more digits (--max-tokens gives more)",
            ),
        }
    }
}

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Ask the model.
    Sample,
    /// Append these, which are all that may come, or close what is open.
    Forced(Vec<Token>),
    /// The answer is over.
    Finished,
}
