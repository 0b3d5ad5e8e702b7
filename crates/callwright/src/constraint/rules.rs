//! Rules for a constrained answer, and the diagnostics it produces.

pub use crate::answer::Mode;
use crate::answer::Token;
use crate::setting::Setting;
use crate::{Error, ErrorKind};

/// Which calls an answer may or must contain.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Calls {
    /// No calls.
    Forbidden,
    /// Any of the tools.
    Allowed,
    /// At least one, of any of the tools.
    Required,
}

/// The rules for one answer.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Rules {
    /// How strictly the model is constrained.
    pub mode: Mode,
    /// Which calls the answer may or must contain.
    pub calls: Calls,
    /// Maximum number of calls.
    pub max_calls: Option<usize>,
    /// Maximum number of tokens of text before the first call. A required call begins then; by default, it begins at once.
    /// A call that is only allowed does not begin later; by default, it may begin anywhere.
    pub max_preamble: Option<usize>,
    /// Maximum number of tokens of reasoning, if limited.
    pub max_thinking: Option<usize>,
    /// Whether forced tokens are appended without running the model.
    pub jump: bool,
    /// Whether earlier text may propose how the answer goes on. It does not change the result, only how often
    /// the model runs.
    pub draft: bool,
    /// Whether a server samples: what does not fit, and was not replaced before, is taken as it is.
    pub(crate) sampled_elsewhere: bool,
    /// Whether the prompt has begun reasoning.
    pub thinking: bool,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            mode: Mode::default(),
            calls: Calls::Allowed,
            max_calls: None,
            max_preamble: None,
            max_thinking: None,
            jump: true,
            draft: true,
            sampled_elsewhere: false,
            thinking: false,
        }
    }
}

/// What is constrained by a grammar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Subject {
    /// Each call.
    Call,
    /// The whole answer.
    Answer {
        /// Whether it is JSON that fits a schema, rather than a user's grammar.
        json: bool,
    },
}

/// A diagnostic of the constraint.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// The tokens ran out, and the rest was closed with the shortest completion found.
    ClosedEarly(Subject),
    /// What was written repeated itself, and the rest was closed with the shortest completion found.
    ClosedLoop(Subject),
    /// Reasoning was too long and was closed.
    ThinkingClosed,
    /// The constraint failed; the answer continued without it.
    Failed(String),
    /// A model on a server wrote what does not fit; the answer continued without the constraint.
    Left(Subject),
    /// The remaining tokens did not suffice for a call that the model began, so the answer ends before it. The text
    /// says how many it needed.
    NoRoomForCall(String),
    /// The tokens ran out inside something without a known completion.
    CutOff(Subject),
    /// The tokens ran out inside a number at the end of an answer, which more digits would change.
    NumberCutOff,
}

impl Subject {
    pub(super) fn name(self) -> &'static str {
        match self {
            Subject::Call => "call",
            Subject::Answer { .. } => "answer",
        }
    }

    /// The error that nothing is begun that needs `needed` tokens, if that is known, with `left` remaining.
    pub(super) fn too_few(self, needed: Option<usize>, left: usize) -> Error {
        let what = self.name();
        let tokens = if left == 1 { "1 token is".to_owned() } else { format!("{left} tokens are") };
        match needed {
            Some(needed) => {
                let message =
                    format!("{tokens} left, too few for a complete {what}: the shortest one found takes {needed}");
                Error::new(ErrorKind::Constraint, message).hint(format!(
                    "raise {} or {}",
                    Setting::MaxTokens,
                    Setting::Context
                ))
            }
            None => {
                let message = format!("{tokens} left, and no {what} is known to fit");
                Error::new(ErrorKind::Constraint, message).hint(format!(
                    "raise {}, make the schema simpler, or {}",
                    Setting::MaxTokens,
                    Setting::ConstrainOff
                ))
            }
        }
    }
}

impl std::fmt::Display for Notice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let more = Setting::MaxTokens;
        match self {
            Notice::ClosedEarly(subject) => {
                write!(
                    f,
                    "the tokens ran out: the {} was closed early, with the shortest values that fit (raise {more})",
                    subject.name()
                )
            }
            Notice::ClosedLoop(subject) => write!(
                f,
                "the {} repeated itself, and was closed early, with the shortest values that fit",
                subject.name()
            ),
            Notice::ThinkingClosed => write!(f, "reasoning was closed at its limit ({})", Setting::MaxThinking),
            Notice::Failed(why) => write!(f, "the grammar failed, and the answer continued without it: {why}"),
            Notice::Left(subject) => write!(
                f,
                "the {} does not fit the grammar, and the server names no likely token that does, so it was taken as it is",
                subject.name()
            ),
            Notice::NoRoomForCall(why) => write!(f, "the answer ends before a call: {why} (raise {more})"),
            Notice::CutOff(subject) => write!(
                f,
                "the tokens ran out within the {}: no completion was found in time (raise {more})",
                subject.name()
            ),
            Notice::NumberCutOff => write!(
                f,
                "the tokens ran out within a number, which may be another one with more digits (raise {more})"
            ),
        }
    }
}

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Run the model.
    Sample,
    /// Append these tokens: they are forced, or close what is open.
    Forced(Vec<Token>),
    /// Drop this number of tokens, and append these instead.
    Instead(usize, Vec<Token>),
    /// The answer is over.
    Finished,
}
