//! What the parser says while the model writes, and what it noticed when all is said.

use serde::Serialize;
use std::fmt;
use std::ops::Range;

/// One step of a parsed stream.
///
/// Events are monotone: nothing that was said is taken back. The `delta`s of one call, joined, are exactly the
/// arguments of the finished call, whatever the pieces in which the model's text arrived. (Read as JSON: of a key that
/// the model wrote twice the last value counts, which is told by [`RepairKind::DuplicateKey`].)
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
    /// More of a call's arguments: JSON text. Where the text ends inside of them they are left as they were written, so that
    /// the deltas of a call that was cut are no whole JSON.
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
    /// A call without a tool's name has ended: no [`Event::CallStart`] could announce it.
    InvalidCall(InvalidCall),
    /// The text departed from the format and was understood all the same.
    Repair(Repair),
}

/// A call that must not be executed: it was not written to its end, or it names no tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InvalidCall {
    /// The call's id, unique in the conversation.
    pub id: String,
    /// The tool's name as far as the model wrote it, which may be cut off; empty where there is none.
    pub name: String,
    /// The arguments as far as they were written, where they could be told apart.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub arguments: String,
    /// What the model wrote for the call, markers included.
    pub raw: String,
    /// What is wrong with it.
    pub error: String,
    /// Where `raw` stands in the model's text, in bytes.
    pub position: Range<usize>,
}

/// A departure from the format that was still understood.
///
/// A call reports each kind once, with the place where it first occurs.
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
    /// A marker in other case, with other spaces or another number of `#`, or with one letter wrong.
    NearMissMarker,
    /// The payload stood in a code fence.
    CodeFence,
    /// Text between the markers that is no part of the call.
    StrayText,
    /// Several calls between one pair of markers.
    SeveralCalls,
    /// A comma before a closing bracket.
    TrailingComma,
    /// No comma between two members.
    MissingComma,
    /// A key that stands twice in one object, or an argument given twice; the last value counts. All of it is in the
    /// arguments' deltas, where a reader of JSON takes the last one, too.
    DuplicateKey,
    /// Strings in single quotes.
    SingleQuotes,
    /// An object key without quotes.
    UnquotedKey,
    /// A control character inside a string, such as a line break, that JSON wants escaped.
    UnescapedControl,
    /// A quote inside a string, not escaped.
    UnescapedQuote,
    /// A backslash before a character that JSON does not let one escape, or half a surrogate pair.
    InvalidEscape,
    /// Brackets or quotes left open.
    MissingBrackets,
    /// A string in other quotes than the format's own.
    OtherQuotes,
    /// `=` or `=>` in place of a colon, or parentheses in place of braces.
    OtherPunctuation,
    /// `True`, `False` or `None`.
    PythonLiteral,
    /// An argument without a name, which got that of the tool's parameter in its place.
    PositionalArgument,
    /// The arguments stood in a string.
    ArgumentsAsString,
    /// The arguments were one JSON object where the format has tags.
    JsonArguments,
    /// The call was wrapped once too often, as in `{"function": {…}}` or `[{…}]`.
    ExtraWrapping,
    /// `parameters` for `arguments`, or another alias of a key.
    KeyAlias,
    /// A value of another type than the tool's schema demands, such as `"5"` for `5`.
    ValueType,
    /// `null` or `""` for an optional argument whose schema does not allow it; the argument is left out.
    EmptyArgument,
    /// The tool's name in other case, with other separators, a namespace before it, or a counter or markup after it.
    ToolName,
    /// The call is in another form than the format's, such as a JSON object in a code fence; a diagnostic
    /// ([`DiagnosticKind::OtherForm`]) names the form.
    OtherForm,
}

impl RepairKind {
    /// The kind in words, fit to follow "the call has".
    pub fn describe(self) -> &'static str {
        match self {
            RepairKind::MissingEndMarker => "no end marker",
            RepairKind::DoubledMarker => "a marker written twice",
            RepairKind::NearMissMarker => "a marker that is not written exactly",
            RepairKind::CodeFence => "a code fence around it",
            RepairKind::StrayText => "text between the markers that is no part of it",
            RepairKind::SeveralCalls => "another call between the same markers",
            RepairKind::TrailingComma => "a comma before a closing bracket",
            RepairKind::MissingComma => "no comma between two members",
            RepairKind::DuplicateKey => "a key twice in one object",
            RepairKind::SingleQuotes => "a string in single quotes",
            RepairKind::UnquotedKey => "a key without quotes",
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
            RepairKind::OtherForm => "another form than the format's",
        }
    }
}

/// Something in the model's text that was neither markup nor repaired, with its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// What was found.
    #[serde(flatten)]
    pub kind: DiagnosticKind,
    /// Which bytes of the model's text it concerns.
    pub range: Range<usize>,
}

/// What a [`Diagnostic`] is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "diagnostic", rename_all = "snake_case")]
#[non_exhaustive]
pub enum DiagnosticKind {
    /// An end marker where no call was open; it stays in the text.
    StrayEndMarker,
    /// A departure that was left alone, because repairs are off.
    NotRepaired {
        /// The repair that would have been made.
        repair: RepairKind,
    },
    /// The call's JSON is broken beyond repair from here on.
    BrokenJson,
    /// A key beside name and arguments, left out.
    IgnoredKey {
        /// The key.
        key: String,
    },
    /// The call's Python is broken beyond repair from here on.
    BrokenCall,
    /// An argument, or a key in one, that came twice. The last one counts; without repairs all of it is left as it is.
    DuplicateKey {
        /// The argument's name, or the key.
        key: String,
    },
    /// The call names no tool.
    MissingName,
    /// There is nothing between the markers.
    EmptyCall,
    /// A section for calls with no call in it; what stands there is text.
    EmptySection,
    /// Text for a recipient that is neither the user nor a tool is left out.
    HiddenText,
    /// The text ended, or another call began, before the call was written out.
    CutOff,
    /// A call in another form than the format's.
    OtherForm {
        /// The form, in words.
        form: &'static str,
        /// The built-in format that such calls are in, if there is one.
        #[serde(skip_serializing_if = "Option::is_none")]
        format: Option<&'static str>,
        /// The tool that it names.
        tool: String,
        /// Whether it was read as a call; otherwise it is text.
        read: bool,
    },
    /// There were more diagnostics than are kept.
    LeftOut {
        /// How many are not listed.
        count: usize,
    },
}

impl DiagnosticKind {
    /// Whether it says why arguments are no JSON.
    pub(crate) fn tells_of_arguments(&self) -> bool {
        !matches!(
            self,
            DiagnosticKind::IgnoredKey { .. }
                | DiagnosticKind::CutOff
                | DiagnosticKind::HiddenText
                | DiagnosticKind::OtherForm { .. }
        )
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {}: ", self.range.start)?;
        match &self.kind {
            DiagnosticKind::StrayEndMarker => f.write_str("an end marker where no call is open"),
            DiagnosticKind::NotRepaired { repair } => write!(f, "the call has {} (repairs are off)", repair.describe()),
            DiagnosticKind::BrokenJson => f.write_str("the call's JSON is broken beyond repair"),
            DiagnosticKind::BrokenCall => f.write_str("the call is broken beyond repair"),
            DiagnosticKind::DuplicateKey { key } => {
                write!(f, "the key {key:?} is there twice in the call's arguments")
            }
            DiagnosticKind::IgnoredKey { key } => write!(f, "the call's key {key:?} is ignored"),
            DiagnosticKind::MissingName => f.write_str("the call names no tool"),
            DiagnosticKind::EmptyCall => f.write_str("there is nothing between the call's markers"),
            DiagnosticKind::EmptySection => f.write_str("a section for calls has no call in it"),
            DiagnosticKind::HiddenText => f.write_str("text for neither the user nor a tool is left out"),
            DiagnosticKind::CutOff => f.write_str("the call was not written out"),
            DiagnosticKind::OtherForm { form, format, tool, read } => {
                match read {
                    true => write!(f, "the call of {tool} is in another form: {form}")?,
                    false => write!(f, "what looks like a call of {tool} is text, as it is in another form: {form}")?,
                }
                format.map_or(Ok(()), |format| write!(f, "; --format {format} fits it"))
            }
            DiagnosticKind::LeftOut { count } => write!(f, "{count} more diagnostics are not listed"),
        }
    }
}
