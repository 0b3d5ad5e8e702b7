//! Tool-call formats: how a call looks in a model's text.
//!
//! A format is data: markers, a payload kind, and how calls are written back into the history. From that one
//! declaration come the prompt's tool section, the streaming parser and the history. The formats that are built in
//! are files under `templates/`, as a user's own is.

mod builtin;
mod declaration;
pub(crate) mod history;
pub mod schema;
pub mod typed;
mod written;

use crate::error::{Error, ErrorKind, Result};
use crate::parse::machinery::Machinery;
use crate::text_file;
use std::ops::Deref;
use std::path::Path;
use std::sync::{Arc, OnceLock};

pub(crate) use builtin::BUILTIN;
pub use builtin::Builtin;
pub use history::History;
pub(crate) use history::spaced_json;

/// How calls look in a model's text, as data.
///
/// The texts are what is *written*, white space included; when a model's text is read, white space at their edges
/// does not matter. One answer with calls reads
/// `text · section start · (start · payload · end) · between · (start · payload · end) … · section end`.
#[derive(Debug, Clone, PartialEq)]
pub struct Declaration {
    /// What the format is called.
    pub name: String,
    /// What stands around all calls that follow one another, if anything does.
    pub section: Option<Around>,
    /// What begins a call; `None` for JSON without any marker.
    pub start: Option<Marker>,
    /// What ends a call; `None` where the end of the payload does.
    pub end: Option<Marker>,
    /// What stands between the two.
    pub payload: Payload,
    /// What stands around reasoning, if the format knows any.
    pub reasoning: Option<Around>,
    /// Whether prompts open the reasoning, so that an answer begins inside it where its prompt is not known.
    pub reasoning_open: bool,
    /// What begins text that is neither reasoning nor answer, such as code for a tool of the model's own. It ends as
    /// reasoning does.
    pub hidden: Vec<Marker>,
    /// Markup in the text that is neither text for the user nor part of a call.
    pub markup: Vec<Marker>,
    /// How calls and results are written back into a conversation.
    pub history: History,
    /// Formats that the same chat template writes when it is given these variables.
    pub styles: Vec<(String, serde_json::Map<String, serde_json::Value>)>,
}

impl Default for Declaration {
    /// JSON objects without markers.
    fn default() -> Declaration {
        Declaration {
            name: "declared".to_owned(),
            section: None,
            start: None,
            end: None,
            payload: Payload::Json(JsonCall::default()),
            reasoning: None,
            reasoning_open: false,
            hidden: Vec::new(),
            markup: Vec::new(),
            history: History::default(),
            styles: Vec::new(),
        }
    }
}

impl Declaration {
    pub(crate) fn markers(&self) -> impl Iterator<Item = &Marker> {
        let around = [&self.section, &self.reasoning].into_iter().flatten().flat_map(|a| [&a.start, &a.end]);
        self.start.iter().chain(&self.end).chain(around).chain(&self.hidden).chain(&self.markup)
    }
}

/// A declaration that is in order, with the file that it came from and the automata that read it.
#[derive(Debug, Clone)]
pub struct Format {
    declaration: Declaration,
    source: String,
    /// How the chat template that it is used with begins an answer, where that is known.
    headers: Arc<[String]>,
    machinery: OnceLock<Arc<Machinery>>,
}

impl Deref for Format {
    type Target = Declaration;

    fn deref(&self) -> &Declaration {
        &self.declaration
    }
}

/// The markers around something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Around {
    /// What begins it.
    pub start: Marker,
    /// What ends it.
    pub end: Marker,
}

/// What begins or ends a call, a section or reasoning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Marker {
    /// Just this text.
    Literal(String),
    /// What a regular expression matches; its length must be bounded.
    Pattern {
        /// The regular expression.
        pattern: String,
        /// How the marker is written, where it has to be written.
        text: Option<String>,
    },
}

impl Marker {
    /// How the marker is written, white space at its edges included.
    pub fn text(&self) -> Option<&str> {
        match self {
            Marker::Literal(text) => Some(text),
            Marker::Pattern { text, .. } => text.as_deref(),
        }
    }
}

/// What stands between a call's markers. The set is closed: prompt, parser, grammar and history know each of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload {
    /// A JSON object with the tool's name and the arguments, or an array of such objects.
    Json(JsonCall),
    /// The tool's name, then the arguments as JSON.
    Named(NamedCall),
    /// The tool's name, then the arguments one by one between tags; the tool's schema gives their types, or the tags do.
    Tagged(TaggedCall),
    /// Calls as Python writes them: `name(key=value, …)`.
    Python {
        /// Whether the calls stand in a list, `[f(a=1), g()]`.
        list: bool,
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
    /// Whether the calls stand in an array between one pair of markers.
    pub array: bool,
    /// Whether the tool's name is itself the key of the arguments: `{"clock": {"city": "Lima"}}`.
    pub keyed: bool,
}

impl Default for JsonCall {
    fn default() -> JsonCall {
        JsonCall { name: "name".to_owned(), arguments: "arguments".to_owned(), id: None, array: false, keyed: false }
    }
}

/// What stands before a call's arguments: text with the parts `{name}`, `{id}`, `{index}`, `{number}` and `{header}`.
///
/// `{index}` counts the calls of an answer from 0, `{number}` from 1. `{header}` is any other text, such as the channel
/// of the turn, in forms that are only read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// How a head may look. The first is how it is written.
    pub forms: Vec<String>,
    /// How the id is made of the other parts, where the head has no part `{id}` of its own.
    pub id: Option<String>,
}

/// The parts of a call that writes its name before JSON arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedCall {
    /// What stands before the arguments.
    pub head: Head,
    /// What stands after the arguments, before the end marker.
    pub tail: String,
    /// What strings stand in, where that is not `"`; nothing is escaped between two of them.
    pub quote: Option<String>,
    /// Whether the keys of objects stand without quotes.
    pub bare_keys: bool,
}

/// The parts of a call whose arguments stand between tags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaggedCall {
    /// What stands before the arguments.
    pub head: Head,
    /// What stands before an argument's name.
    pub key_start: String,
    /// What stands between the name and the value (with `value_start`); `{type}` is the word for the value's type.
    pub key_end: String,
    /// The words for types, where `key_end` has one: `("string", "true")`, `("other", "false")`.
    pub types: Vec<(String, String)>,
    /// Whether names of arguments are escaped as in an attribute of XML.
    pub escaped_keys: bool,
    /// What stands right before the value; empty where `key_end` does.
    pub value_start: String,
    /// What stands after the value; `{key}` is the argument's name.
    pub value_end: String,
    /// Whether objects and arrays are written with tags of their own, an array's elements as `item`.
    pub nested: bool,
}

impl Format {
    /// The formats that are built in; the first is the default.
    pub fn builtins() -> &'static [Builtin] {
        &BUILTIN
    }

    /// The names of the formats that are built in.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Format::builtins().iter().map(|builtin| builtin.name)
    }

    /// The format of that name, if it is built in.
    pub fn builtin(name: &str) -> Option<&'static Format> {
        BUILTIN.iter().find(|builtin| builtin.name == name).map(Builtin::format)
    }

    /// Reads the declaration block of a file.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] or [`ErrorKind::Syntax`] when the file cannot be read, [`ErrorKind::Format`] when it declares
    /// no format, or not one that can be used.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Format> {
        let path = path.as_ref();
        let declared = Format::parse_declaration(&text_file::read(path)?).map_err(|error| error.in_file(path))?;
        declared.ok_or_else(|| {
            Error::new(ErrorKind::Format, "the file declares no tool-call format")
                .in_file(path)
                .hint("it begins with a comment {#--- callwright … ---#} that holds the declaration in TOML")
        })
    }

    /// The name of the built-in format that looks like this one in a model's text, if there is one.
    pub fn known_as(&self) -> Option<&'static str> {
        let text =
            |marker: &Option<Marker>| marker.as_ref().and_then(Marker::text).unwrap_or_default().trim().to_owned();
        let same = |other: &Format| {
            let section = |format: &Format| format.section.as_ref().map(|section| text(&Some(section.start.clone())));
            text(&self.start) == text(&other.start)
                && text(&self.end) == text(&other.end)
                && section(self) == section(other)
                && self.payload == other.payload
        };
        BUILTIN.iter().find(|builtin| same(builtin.format())).map(|builtin| builtin.name)
    }

    /// A start marker of another built-in format in `text`, with that format's name: a model that was not told of it writes
    /// calls that this format does not read.
    ///
    /// ```
    /// use callwright_core::format::Format;
    /// let text = "<tool_call>\n{\"name\": \"clock\"}\n</tool_call>";
    /// assert_eq!(Format::delimited().other_call_in(text), Some(("hermes", "<tool_call>")));
    /// assert_eq!(Format::builtin("hermes").unwrap().other_call_in(text), None);
    /// ```
    pub fn other_call_in(&self, text: &str) -> Option<(&'static str, &'static str)> {
        let own: Vec<&str> = self.reserved().collect();
        Format::builtins().iter().find_map(|builtin| {
            let marker = builtin.format().start.as_ref().and_then(Marker::text)?.trim();
            // Shorter ones are found in ordinary text.
            let telling = marker.len() >= 6 && !own.contains(&marker);
            (telling && text.contains(marker)).then_some((builtin.name, marker))
        })
    }

    pub(crate) fn delimited_name() -> &'static str {
        BUILTIN[0].name
    }

    /// The default: plain markers around a JSON object.
    pub fn delimited() -> &'static Format {
        BUILTIN[0].format()
    }

    /// Reads the declaration block at the beginning of a Jinja file; `None` if there is no such block.
    ///
    /// # Errors
    /// If the block is not closed, is not TOML, has unknown keys or lacks one, or if its markers cannot be searched
    /// for. The error names line and column.
    pub fn parse_declaration(source: &str) -> Result<Option<Format>> {
        declaration::parse(source)
    }

    /// A format without a declaration file.
    ///
    /// # Errors
    /// If a marker is no regular expression, or its length is not bounded.
    pub fn new(declaration: Declaration) -> Result<Format> {
        Format::with_source(declaration, String::new())
    }

    fn with_source(declaration: Declaration, source: String) -> Result<Format> {
        let format = Format { source, ..Format::unchecked(declaration) };
        format.machinery()?;
        Ok(format)
    }

    /// A format whose automata are built for the first text that is read: that takes longer than inferring it.
    pub(crate) fn unchecked(declaration: Declaration) -> Format {
        Format { declaration, source: String::new(), headers: Arc::default(), machinery: OnceLock::new() }
    }

    /// The same format, with these markers around reasoning if it knows none.
    pub(crate) fn with_reasoning(self, reasoning: Option<Around>) -> Format {
        if self.reasoning.is_some() || reasoning.is_none() {
            return self;
        }
        let declaration = Declaration { reasoning, ..self.declaration.clone() };
        // What cannot be searched for is left out.
        let headers = Arc::clone(&self.headers);
        Format::with_source(declaration, self.source.clone()).map_or(self, |format| Format { headers, ..format })
    }

    /// The same format for answers to prompts whose assistant turns begin with one of these headers: such a header is no
    /// part of an answer.
    pub(crate) fn with_headers(self, headers: Arc<[String]>) -> Format {
        Format { headers, ..self }
    }

    /// How the chat template that it is used with begins an answer, where that is known.
    pub(crate) fn headers(&self) -> &[String] {
        &self.headers
    }

    /// The file that declares the format, its declaration block included: Jinja that writes the tool section.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The text that is reserved for markup, where it is known as text: without white space at its edges.
    pub fn reserved(&self) -> impl Iterator<Item = &str> {
        self.markers().filter_map(Marker::text).map(str::trim).filter(|text| !text.is_empty())
    }

    /// The automata, built once for a format.
    pub(crate) fn machinery(&self) -> Result<Arc<Machinery>> {
        if let Some(machinery) = self.machinery.get() {
            return Ok(Arc::clone(machinery));
        }
        let machinery = Machinery::new(&self.declaration)?;
        Ok(Arc::clone(self.machinery.get_or_init(|| Arc::new(machinery))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_is_shown_without_its_automata() {
        let shown = format!("{:?}", Format::delimited());
        assert!(shown.contains("TOOL_CALL_START") && shown.len() < 8192, "{} bytes", shown.len());
    }

    #[test]
    fn every_built_in_format_declares_its_name() {
        for builtin in Format::builtins() {
            assert_eq!(builtin.format().name, builtin.name);
        }
    }
}
