//! The parser's events while the model writes, and its reports at the end.

use super::evidence::NoCall;
use crate::tool::CallProblem;
use serde::{Serialize, Serializer};
use std::fmt;
use std::ops::Range;

/// One step of a parsed stream.
///
/// Events are never revised. The joined `delta`s of one call are exactly the arguments of the finished call, however
/// the model's text was split. (They are equal as JSON: of a duplicate key the last value counts, which
/// [`RepairKind::DuplicateKey`] reports.)
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// Text for the user.
    Text {
        /// The new piece.
        delta: String,
    },
    /// Reasoning, not for the user.
    Reasoning {
        /// The new piece.
        delta: String,
    },
    /// A call begins; its name is known.
    CallStart {
        /// The call's id, unique in the conversation.
        id: String,
        /// The tool's name as the model wrote it.
        name: String,
    },
    /// More of a call's arguments, as JSON text. If the text ends inside them they are left as written, so that the
    /// deltas of a cut call are not whole JSON.
    CallArguments {
        /// The call's id.
        id: String,
        /// The new piece.
        delta: String,
    },
    /// A call has ended.
    CallEnd {
        /// The call's id.
        id: String,
        /// Whether the model wrote all of it. An incomplete call must not be executed.
        complete: bool,
        /// Whether name and arguments are well-formed and, if the tools are known, fit the tool's schema.
        valid: bool,
    },
    /// A call without a tool name has ended, so there was no [`Event::CallStart`] for it.
    InvalidCall(InvalidCall),
    /// The text departed from the format, but was understood.
    Repair(Repair),
}

/// A call that must not be executed: it is cut off, names no tool, or its arguments are no JSON object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct InvalidCall {
    /// The call's id, unique in the conversation.
    pub id: String,
    /// The tool's name as far as it was written; empty if there is none.
    pub name: String,
    /// The arguments as far as they were written, if they could be separated.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub arguments: String,
    /// What the model wrote for the call, markers included.
    pub raw: String,
    /// What is wrong with the call; as JSON, sentences under `error`.
    #[serde(rename = "error", serialize_with = "sentences")]
    pub problems: Vec<CallProblem>,
    /// The byte range of `raw` in the model's text.
    pub position: Range<usize>,
}

fn sentences<S: Serializer>(problems: &[CallProblem], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&CallProblem::sentences(problems))
}

/// A departure from the format that was repaired.
///
/// A call reports each kind once, with its first place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Repair {
    /// What was wrong.
    pub kind: RepairKind,
    /// The byte range in the model's text.
    pub range: Range<usize>,
}

/// The departures that can be repaired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RepairKind {
    /// The call's end marker is missing.
    MissingEndMarker,
    /// A marker was written twice.
    DoubledMarker,
    /// A marker in different case, with different spaces or number of `#`, or with one wrong letter.
    NearMissMarker,
    /// The payload was in a code fence.
    CodeFence,
    /// Text between the markers that is not part of the call.
    StrayText,
    /// Several calls between one pair of markers.
    SeveralCalls,
    /// A comma before a closing bracket.
    TrailingComma,
    /// No comma between two members.
    MissingComma,
    /// A duplicate key in an object, or a duplicate argument; the last value counts. The arguments' deltas contain all
    /// of them, and JSON readers also take the last one.
    DuplicateKey,
    /// Strings in single quotes.
    SingleQuotes,
    /// An object key without quotes.
    UnquotedKey,
    /// A string without quotes.
    UnquotedString,
    /// An unescaped control character inside a string, such as a line break.
    UnescapedControl,
    /// An unescaped quote inside a string.
    UnescapedQuote,
    /// An escape that JSON does not have, or half a surrogate pair.
    InvalidEscape,
    /// Brackets or quotes are not closed.
    MissingBrackets,
    /// A string in quotes other than the format's own.
    OtherQuotes,
    /// `=` or `=>` instead of a colon, or parentheses instead of braces.
    OtherPunctuation,
    /// `True`, `False` or `None`.
    PythonLiteral,
    /// A positional argument; it got the name of the tool's parameter in that position.
    PositionalArgument,
    /// The arguments were in a string.
    ArgumentsAsString,
    /// The arguments were one JSON object, but the format uses tags.
    JsonArguments,
    /// The call had an extra wrapper, as in `{"function": {…}}` or `[{…}]`.
    ExtraWrapping,
    /// `parameters` instead of `arguments`, or another alias of a key.
    KeyAlias,
    /// A value whose type does not match the tool's schema, such as `"5"` for `5`.
    ValueType,
    /// `null` or `""` for an optional argument whose schema does not allow it; the argument is dropped.
    EmptyArgument,
    /// The tool's name in different case, with different separators, a namespace before it, or a counter or markup
    /// after it.
    ToolName,
    /// A tag of the format in a value, which counts as text of the value.
    TagInValue,
    /// The call is in another form than the format's, such as a JSON object in a code fence; a diagnostic
    /// ([`DiagnosticKind::OtherForm`]) names the form.
    OtherForm,
}

impl RepairKind {
    /// The kind in words that can follow "the call has".
    pub fn describe(self) -> &'static str {
        match self {
            RepairKind::MissingEndMarker => "no end marker",
            RepairKind::DoubledMarker => "a marker written twice",
            RepairKind::NearMissMarker => "a marker that is not written exactly",
            RepairKind::CodeFence => "a code fence around it",
            RepairKind::StrayText => "text between the markers that is not part of it",
            RepairKind::SeveralCalls => "another call between the same markers",
            RepairKind::TrailingComma => "a comma before a closing bracket",
            RepairKind::MissingComma => "no comma between two members",
            RepairKind::DuplicateKey => "a key twice in one object",
            RepairKind::SingleQuotes => "a string in single quotes",
            RepairKind::UnquotedKey => "a key without quotes",
            RepairKind::UnquotedString => "a string without quotes",
            RepairKind::UnescapedControl => "an unescaped control character in a string",
            RepairKind::UnescapedQuote => "an unescaped quote in a string",
            RepairKind::InvalidEscape => "an escape that JSON does not know",
            RepairKind::MissingBrackets => "brackets or quotes left open",
            RepairKind::OtherQuotes => "a string in other quotes than the format's",
            RepairKind::OtherPunctuation => "other punctuation than JSON's",
            RepairKind::PythonLiteral => "a Python literal",
            RepairKind::PositionalArgument => "an argument without a name",
            RepairKind::ArgumentsAsString => "its arguments in a string",
            RepairKind::JsonArguments => "its arguments as JSON",
            RepairKind::ExtraWrapping => "one level of wrapping too many",
            RepairKind::KeyAlias => "a key under another name",
            RepairKind::ValueType => "a value of another type than its tool wants",
            RepairKind::EmptyArgument => "null or an empty text for an optional argument that may not be empty",
            RepairKind::ToolName => "its tool's name in other case or with other separators",
            RepairKind::TagInValue => "a tag of the format in the text of a value",
            RepairKind::OtherForm => "another form than the format's",
        }
    }

    /// What was done, in words that can follow "byte 5:".
    pub fn done(self) -> &'static str {
        match self {
            RepairKind::MissingEndMarker => "added the missing end marker of the call",
            RepairKind::DoubledMarker => "dropped a marker that was written twice",
            RepairKind::NearMissMarker => "read a marker that is not written exactly",
            RepairKind::CodeFence => "removed the code fence around the call",
            RepairKind::StrayText => "dropped text between the markers that is not part of the call",
            RepairKind::SeveralCalls => "separated calls that are between one pair of markers",
            RepairKind::TrailingComma => "dropped a comma before a closing bracket",
            RepairKind::MissingComma => "added a missing comma between two members",
            RepairKind::DuplicateKey => "used the last value of a key that occurs twice",
            RepairKind::SingleQuotes => "read a string in single quotes as one in double quotes",
            RepairKind::UnquotedKey => "added the missing quotes around a key",
            RepairKind::UnquotedString => "added the missing quotes around a string",
            RepairKind::UnescapedControl => "escaped a control character, such as a line break, in a string",
            RepairKind::UnescapedQuote => "escaped a quote in a string",
            RepairKind::InvalidEscape => "replaced an escape that JSON does not have",
            RepairKind::MissingBrackets => "added missing brackets, quotes or tags",
            RepairKind::OtherQuotes => "read a string in other quotes than the format's",
            RepairKind::OtherPunctuation => "read other punctuation as JSON's, such as = for a colon",
            RepairKind::PythonLiteral => "read True, False or None as true, false or null",
            RepairKind::PositionalArgument => "named an argument without a name after the parameter in its place",
            RepairKind::ArgumentsAsString => "read arguments that are written as a string",
            RepairKind::JsonArguments => "read arguments that are written as JSON",
            RepairKind::ExtraWrapping => "removed one level of wrapping around the call",
            RepairKind::KeyAlias => "read a key with another name, such as parameters for arguments",
            RepairKind::ValueType => "changed a value to the type in the tool's schema",
            RepairKind::EmptyArgument => "dropped an optional argument whose value is empty",
            RepairKind::ToolName => "changed the name to that of a tool, which is written in another way",
            RepairKind::TagInValue => "kept a tag of the format as text of a value",
            RepairKind::OtherForm => "read a call in another form than the format's",
        }
    }
}

/// An irregularity in the model's text that is neither markup nor repaired, with its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Diagnostic {
    /// What was found.
    #[serde(flatten)]
    pub kind: DiagnosticKind,
    /// The byte range in the model's text.
    pub range: Range<usize>,
}

/// The kind of a [`Diagnostic`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "diagnostic", rename_all = "snake_case")]
#[non_exhaustive]
pub enum DiagnosticKind {
    /// An end marker without an open call; it stays in the text.
    StrayEndMarker,
    /// A departure that was not repaired, because repairs are off.
    NotRepaired {
        /// The repair that would have been made.
        repair: RepairKind,
    },
    /// The call's JSON is broken beyond repair from here on.
    BrokenJson,
    /// A key other than name and arguments was dropped.
    IgnoredKey {
        /// The key.
        key: String,
    },
    /// The call's Python is broken beyond repair from here on.
    BrokenCall,
    /// A duplicate argument, or a duplicate key in one. The last one counts; without repairs the text is unchanged.
    DuplicateKey {
        /// The argument's name, or the key.
        key: String,
    },
    /// The call names no tool.
    MissingName,
    /// There is only white space between the markers.
    EmptyCall,
    /// A section without a call; its content is text.
    EmptySection,
    /// Markup without a call, or the end of a turn, is dropped: it is at the end of the text, or right after a call.
    StrayMarkup,
    /// Text for a recipient that is neither the user nor a tool is dropped.
    HiddenText,
    /// The text ended, or another call began, before the call was complete.
    CutOff,
    /// A call in another form than the format's.
    OtherForm {
        /// The form, in words.
        form: &'static str,
        /// The built-in format of such calls, if there is one.
        #[serde(skip_serializing_if = "Option::is_none")]
        format: Option<&'static str>,
        /// The tool's name.
        tool: String,
        /// Whether it was read as a call; otherwise it is text.
        read: bool,
    },
    /// What looks like a call is text, because the model does not mean it.
    NoCall {
        /// The tool's name.
        tool: String,
        /// The reason.
        why: NoCall,
    },
    /// The call is in reasoning that is not closed.
    InReasoning {
        /// The tool's name.
        tool: String,
    },
    /// A value of the call contains a tag of the format; see [`ParsedCall::tag_in_value`](super::ParsedCall::tag_in_value).
    TagInValue,
    /// There were more diagnostics than the limit.
    LeftOut {
        /// How many are not listed.
        count: usize,
    },
}

impl DiagnosticKind {
    /// Returns whether it explains why the arguments are not JSON.
    pub(crate) fn tells_of_arguments(&self) -> bool {
        !matches!(
            self,
            DiagnosticKind::IgnoredKey { .. }
                | DiagnosticKind::CutOff
                | DiagnosticKind::HiddenText
                | DiagnosticKind::TagInValue
                | DiagnosticKind::OtherForm { .. }
                | DiagnosticKind::NoCall { .. }
                | DiagnosticKind::InReasoning { .. }
        )
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {}: ", self.range.start)?;
        match &self.kind {
            DiagnosticKind::StrayEndMarker => f.write_str("an end marker without an open call"),
            DiagnosticKind::NotRepaired { repair } => write!(f, "the call has {} (repairs are off)", repair.describe()),
            DiagnosticKind::BrokenJson => f.write_str("the call's JSON is broken beyond repair"),
            DiagnosticKind::BrokenCall => f.write_str("the call is broken beyond repair"),
            DiagnosticKind::DuplicateKey { key } => {
                write!(f, "the key {key:?} occurs twice in the call's arguments")
            }
            DiagnosticKind::IgnoredKey { key } => write!(f, "the call's key {key:?} is ignored"),
            DiagnosticKind::MissingName => f.write_str("the call names no tool"),
            DiagnosticKind::EmptyCall => f.write_str("there is nothing between the call's markers"),
            DiagnosticKind::EmptySection => f.write_str("a section for calls has no call in it"),
            DiagnosticKind::StrayMarkup => f.write_str("markup that belongs to no call is left out"),
            DiagnosticKind::HiddenText => f.write_str("text for neither the user nor a tool is left out"),
            DiagnosticKind::TagInValue => f.write_str("a value of the call contains a tag of the format"),
            DiagnosticKind::CutOff => f.write_str("the call was not written out"),
            DiagnosticKind::OtherForm { form, format, tool, read } => {
                match read {
                    true => write!(f, "the call of {tool} is in another form: {form}")?,
                    false => write!(f, "what looks like a call of {tool} is text, as it is in another form: {form}")?,
                }
                format.map_or(Ok(()), |format| write!(f, "; the format {format} fits it"))
            }
            DiagnosticKind::NoCall { tool, why } => {
                let of = if tool.is_empty() { String::new() } else { format!(" of {tool}") };
                write!(f, "what looks like a call{of} is text: {}", why.describe())
            }
            DiagnosticKind::InReasoning { tool } => {
                write!(f, "the call of {tool} counts although it is in the reasoning, which is not closed before it")
            }
            DiagnosticKind::LeftOut { count } => write!(f, "{count} more diagnostics are not listed"),
        }
    }
}
