//! The outcomes: one table defines name, meaning and order. Documentation and reports are made from it.

use serde::{Deserialize, Serialize};

/// The outcome of one sample: the first of these, in this order, whose meaning fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    InfraError,
    PromptTooLong,
    Loop,
    Truncated,
    MissingEnd,
    InvalidJson,
    WrongEnvelope,
    CallWhenNoneNeeded,
    NoCallWhenNeeded,
    UnknownTool,
    WrongCallCount,
    WrongTool,
    MissingRequiredArg,
    UnknownArg,
    WrongType,
    EnumViolation,
    WrongValue,
    OmittedExpectedOptional,
    UnapprovedCall,
    RepeatedChange,
    ForbiddenCall,
    MissingCall,
    WrongState,
    GaveUp,
    WrongText,
    Correct,
}

/// The part of calling a tool that an outcome is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// The run, not the model.
    Run,
    /// The form of the call.
    Format,
    /// The decision to call or not.
    Decision,
    /// The choice of the tool.
    Tool,
    /// The arguments.
    Arguments,
    /// A task of several turns.
    Task,
    /// No error.
    Success,
}

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Definition {
    /// The outcome.
    pub outcome: Outcome,
    /// Its name in files and reports.
    pub name: &'static str,
    /// The part of calling a tool that it is about.
    pub stage: Stage,
    /// The condition, if no earlier outcome fits.
    pub meaning: &'static str,
}

const fn row(outcome: Outcome, name: &'static str, stage: Stage, meaning: &'static str) -> Definition {
    Definition { outcome, name, stage, meaning }
}

/// All outcomes in the order in which they are tried.
pub const OUTCOMES: [Definition; 26] = [
    row(
        Outcome::InfraError,
        "infra_error",
        Stage::Run,
        "the engine or the chat template failed; nothing is said of the model",
    ),
    row(Outcome::PromptTooLong, "prompt_too_long", Stage::Run, "the prompt does not fit the context"),
    row(
        Outcome::Loop,
        "loop",
        Stage::Format,
        "the answer ends in 4 or more copies of the same 1 to 16 tokens (inside a call that was closed they are its \
         payload), or was ended because it repeats itself, or makes one call at least 3 times more often than expected",
    ),
    row(Outcome::Truncated, "truncated", Stage::Format, "the token limit or the end of the context cut the answer off"),
    row(Outcome::MissingEnd, "missing_end", Stage::Format, "the answer ended in the middle of a call"),
    row(
        Outcome::InvalidJson,
        "invalid_json",
        Stage::Format,
        "a call's payload cannot be read, or only by repairs that are off",
    ),
    row(
        Outcome::WrongEnvelope,
        "wrong_envelope",
        Stage::Format,
        "a call without a name or arguments, under other keys than the format's, or whose arguments are no object",
    ),
    row(
        Outcome::CallWhenNoneNeeded,
        "call_when_none_needed",
        Stage::Decision,
        "no call is right, and there is one, or what looks like the attempt at one",
    ),
    row(Outcome::NoCallWhenNeeded, "no_call_when_needed", Stage::Decision, "a call is needed, and none could be read"),
    row(Outcome::UnknownTool, "unknown_tool", Stage::Tool, "a call of a tool that was not offered"),
    row(Outcome::WrongCallCount, "wrong_call_count", Stage::Tool, "more calls than expected, or fewer"),
    row(Outcome::WrongTool, "wrong_tool", Stage::Tool, "a call of another tool than expected"),
    row(
        Outcome::MissingRequiredArg,
        "missing_required_arg",
        Stage::Arguments,
        "an argument is missing that the tool's schema requires",
    ),
    row(
        Outcome::UnknownArg,
        "unknown_arg",
        Stage::Arguments,
        "an argument that the tool's schema does not list, where it lists any and does not allow others",
    ),
    row(
        Outcome::WrongType,
        "wrong_type",
        Stage::Arguments,
        "a value that the tool's schema does not allow for another reason than an enum, or that BFCL's checker finds to \
         be of the wrong type",
    ),
    row(Outcome::EnumViolation, "enum_violation", Stage::Arguments, "a value outside of the schema's enum or const"),
    row(Outcome::WrongValue, "wrong_value", Stage::Arguments, "an argument that is not what was asked for"),
    row(
        Outcome::OmittedExpectedOptional,
        "omitted_expected_optional",
        Stage::Arguments,
        "all is right, but an argument is missing that was asked for and the schema does not require",
    ),
    row(
        Outcome::UnapprovedCall,
        "unapproved_call",
        Stage::Task,
        "several turns: a destructive call was executed that nobody approved",
    ),
    row(
        Outcome::RepeatedChange,
        "repeated_change",
        Stage::Task,
        "several turns: a call that changes something was executed twice",
    ),
    row(Outcome::ForbiddenCall, "forbidden_call", Stage::Task, "several turns: a call was executed that must not be"),
    row(
        Outcome::MissingCall,
        "missing_call",
        Stage::Task,
        "several turns: a call was not executed that has to be, or not in its order, or without the result that it has to have",
    ),
    row(Outcome::WrongState, "wrong_state", Stage::Task, "several turns: what the tools act on is not as it has to be"),
    row(
        Outcome::GaveUp,
        "gave_up",
        Stage::Task,
        "several turns: the model still called tools in its last answer, or a call was given up",
    ),
    row(
        Outcome::WrongText,
        "wrong_text",
        Stage::Task,
        "several turns: an answer lacks a text that it has to have, or has one that it must not",
    ),
    row(
        Outcome::Correct,
        "correct",
        Stage::Success,
        "the expected calls in any order, or none where none is right (BFCL's cases: what its checker accepts); in a task \
         of several turns, all of its checks hold",
    ),
];

impl Outcome {
    /// The outcome's row.
    pub(crate) fn definition(self) -> &'static Definition {
        &OUTCOMES[self as usize]
    }

    /// Its name in files and reports.
    pub(crate) fn name(self) -> &'static str {
        self.definition().name
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_outcome_has_its_row_and_its_name() {
        for (index, row) in OUTCOMES.iter().enumerate() {
            assert_eq!(row.outcome as usize, index);
            assert_eq!(serde_json::to_value(row.outcome).unwrap(), row.name);
        }
    }
}
