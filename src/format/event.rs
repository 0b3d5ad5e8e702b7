//! What the parser says while the model writes.

use serde::Serialize;
use std::ops::Range;

/// One step of a parsed stream.
///
/// Events are monotone: nothing that was said is taken back. The `delta`s of one call, joined, are exactly the
/// arguments of the finished call, whatever the pieces in which the model's text arrived.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    /// Text for the user.
    Text {
        /// The piece that is new.
        delta: String,
    },
    /// Reasoning, not for the user.
    Reasoning {
        /// The piece that is new.
        delta: String,
    },
    /// A call begins: its name is known.
    CallStart {
        /// The call's id, unique in the conversation.
        id: String,
        /// The tool's name as the model wrote it.
        name: String,
    },
    /// More of a call's arguments: JSON text.
    CallArguments {
        /// The call's id.
        id: String,
        /// The piece that is new.
        delta: String,
    },
    /// A call has ended.
    CallEnd {
        /// The call's id.
        id: String,
        /// Whether the model wrote all of it. An incomplete call must not be executed.
        complete: bool,
        /// Whether name and arguments are well-formed and, where the tools are known, fit the tool's schema.
        valid: bool,
    },
    /// The text departed from the format and was understood all the same.
    Repair(Repair),
}

/// A departure from the format that was still understood.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Repair {
    /// What was wrong.
    pub kind: RepairKind,
    /// Which bytes of the model's text it concerns.
    pub range: Range<usize>,
}

/// The departures that are understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RepairKind {
    /// The call's end marker is missing.
    MissingEndMarker,
    /// A marker was written twice.
    DoubledMarker,
    /// A marker in other case, or with other spaces or another number of `#`.
    NearMissMarker,
    /// The payload stood in a code fence.
    CodeFence,
    /// A comma before a closing bracket.
    TrailingComma,
    /// Strings in single quotes.
    SingleQuotes,
    /// An object key without quotes.
    UnquotedKey,
    /// A control character inside a string, such as a line break, that JSON wants escaped.
    UnescapedControl,
    /// Brackets or quotes left open.
    MissingBrackets,
    /// `True`, `False` or `None`.
    PythonLiteral,
    /// The arguments stood in a string.
    ArgumentsAsString,
    /// The call was wrapped once too often, as in `{"function": {…}}`.
    ExtraWrapping,
    /// `parameters` for `arguments`, or another alias of a key.
    KeyAlias,
}
