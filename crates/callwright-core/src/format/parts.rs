//! What a declaration says of a format.

use super::History;
use serde_json::{Map, Value};

/// How a model's text represents calls, as data.
///
/// The texts are what is *written*, white space included. When a model's text is read, white space at their edges is
/// ignored. An answer with calls reads `text · section start · (start · payload · end) · between · (start · payload ·
/// end) … · section end`.
#[derive(Debug, Clone, PartialEq)]
pub struct Declaration {
    /// The format's name.
    pub name: String,
    /// Text at the end of each tag that differs between the models of a family: `:opensource` in
    /// `<tool_call:opensource>`. Calls with another suffix, or with none, are read as well.
    pub suffix: Option<String>,
    /// The markers around a run of consecutive calls, if any.
    pub section: Option<Around>,
    /// Start marker of a call; `None` for JSON without any marker.
    pub start: Option<Marker>,
    /// End marker of a call; `None` if the payload's end is enough.
    pub end: Option<Marker>,
    /// The part between the two markers.
    pub payload: Payload,
    /// The markers around reasoning, if the format has them.
    pub reasoning: Option<Around>,
    /// Whether prompts open the reasoning: an answer whose prompt is unknown then begins inside it.
    pub reasoning_open: bool,
    /// Whether reasoning may also begin after other text.
    pub reasoning_interleaved: bool,
    /// Start markers of text that is neither reasoning nor answer, such as code for a built-in tool. It ends where
    /// reasoning ends.
    pub hidden: Vec<Marker>,
    /// Markup in the text that is neither text for the user nor part of a call.
    pub markup: Vec<Marker>,
    /// The beginning of an answer that prompts write, such as the first call's start marker. It is assumed where the
    /// prompt is unknown.
    pub opened: Option<String>,
    /// Whether text may follow the calls of an answer.
    pub text_after_calls: bool,
    /// How calls and results are written back into a conversation.
    pub history: History,
    /// Formats that the same chat template writes when it is given these variables.
    pub styles: Vec<(String, Map<String, Value>)>,
}

/// The name of a format whose declaration has none, and that is no built-in one.
pub(super) const UNNAMED: &str = "declared";

impl Default for Declaration {
    /// JSON objects without markers.
    fn default() -> Declaration {
        Declaration {
            name: UNNAMED.to_owned(),
            suffix: None,
            section: None,
            start: None,
            end: None,
            payload: Payload::Json(JsonCall::default()),
            reasoning: None,
            reasoning_open: false,
            reasoning_interleaved: false,
            hidden: Vec::new(),
            markup: Vec::new(),
            opened: None,
            text_after_calls: false,
            history: History::default(),
            styles: Vec::new(),
        }
    }
}

impl Declaration {
    /// All markers, those around calls first.
    pub fn markers(&self) -> impl Iterator<Item = &Marker> {
        let around = [&self.section, &self.reasoning].into_iter().flatten().flat_map(|a| [&a.start, &a.end]);
        self.start.iter().chain(&self.end).chain(around).chain(&self.hidden).chain(&self.markup)
    }

    /// The start marker, unless it also begins text, as the header of a turn does, which other models have as well.
    pub(crate) fn start_of_calls(&self) -> Option<&Marker> {
        self.start.as_ref().filter(|start| !self.markup.contains(start))
    }
}

/// A pair of markers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Around {
    /// Start marker.
    pub start: Marker,
    /// End marker.
    pub end: Marker,
}

/// Text that begins or ends a call, a section or reasoning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Marker {
    /// Exactly this text.
    Literal(String),
    /// What a regular expression matches; its length must be bounded.
    Pattern {
        /// The regular expression.
        pattern: String,
        /// The text to write for it, if it has to be written.
        text: Option<String>,
    },
}

impl Marker {
    /// The text to write, white space at its edges included.
    pub fn text(&self) -> Option<&str> {
        match self {
            Marker::Literal(text) => Some(text),
            Marker::Pattern { text, .. } => text.as_deref(),
        }
    }
}

/// The part between a call's markers. The set is closed: prompt, parser, grammar and history know each kind.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Payload {
    /// A JSON object with the tool's name and the arguments, or an array of such objects.
    Json(JsonCall),
    /// The tool's name, then the arguments as JSON.
    Named(NamedCall),
    /// The tool's name, then the arguments one by one between tags; the tool's schema gives their types, or the tags do.
    Tagged(TaggedCall),
    /// Calls as Python writes them: `name(key=value, …)`.
    Python {
        /// Whether the calls are in a list, `[f(a=1), g()]`.
        list: bool,
        /// Whether past calls have their values as they are, without quotes or without escapes. Calls are still
        /// written with both.
        raw: bool,
    },
}

/// The parts of a call that is one JSON object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonCall {
    /// The key of the tool's name.
    pub name: String,
    /// The key of the arguments.
    pub arguments: String,
    /// The key of the call's id, if the format writes ids.
    pub id: Option<String>,
    /// Whether the calls are in an array between one pair of markers.
    pub array: bool,
    /// Whether the key is the tool's name and its value the arguments: `{"clock": {"city": "Lima"}}`.
    pub keyed: bool,
}

impl Default for JsonCall {
    fn default() -> JsonCall {
        JsonCall { name: "name".to_owned(), arguments: "arguments".to_owned(), id: None, array: false, keyed: false }
    }
}

/// The text before a call's arguments, with the parts `{name}`, `{id}`, `{index}`, `{number}` and `{header}`.
///
/// `{index}` counts the calls of an answer from 0, `{number}` from 1. `{header}` is any other text, such as the channel
/// of the turn, in forms that are only read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// Accepted forms of the head. The first one is written.
    pub forms: Vec<String>,
    /// How the id is built from the other parts, if the head has no `{id}`.
    pub id: Option<String>,
}

/// The parts of a call that writes its name before JSON arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedCall {
    /// The text before the arguments.
    pub head: Head,
    /// The text after the arguments, before the end marker.
    pub tail: String,
    /// The quote of strings, if it is not `"`; nothing is escaped between two of them.
    pub quote: Option<String>,
    /// Whether object keys are unquoted.
    pub bare_keys: bool,
}

/// The parts of a call whose arguments are between tags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaggedCall {
    /// The text before the arguments.
    pub head: Head,
    /// The text before an argument's name.
    pub key_start: String,
    /// The text between name and value (with `value_start`); `{type}` is the word for the value's type.
    pub key_end: String,
    /// The words for types, if `key_end` has one: `("string", "true")`, `("other", "false")`.
    pub types: Vec<(String, String)>,
    /// Whether argument names are escaped like XML attributes.
    pub escaped_keys: bool,
    /// The text right before the value; empty if `key_end` is right before it.
    pub value_start: String,
    /// The text after the value; `{key}` is the argument's name.
    pub value_end: String,
    /// Whether objects and arrays have tags of their own, with an array's elements as `item`.
    pub nested: bool,
}
