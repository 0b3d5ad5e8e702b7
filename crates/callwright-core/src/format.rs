//! Tool-call formats: how a model's text represents a call.
//!
//! A format is data: markers, a payload kind, and how calls are written back into the history. The prompt's tool
//! section, the streaming parser and the history all derive from that declaration. Built-in formats are files under
//! `templates/`, like a user's own.

mod builtin;
mod declaration;
pub(crate) mod history;
pub(crate) mod typed;
mod written;

use crate::error::{Error, ErrorKind, Result};
use crate::parse::machinery::Machinery;
use crate::text_file;
use std::collections::VecDeque;
use std::ops::Deref;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

pub(crate) use crate::schema;
pub(crate) use builtin::BUILTIN;
pub use builtin::Builtin;
pub use history::History;
pub(crate) use history::spaced_json;

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
    pub styles: Vec<(String, serde_json::Map<String, serde_json::Value>)>,
}

/// The name of a format whose declaration has none, and that is no built-in one.
const UNNAMED: &str = "declared";

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

/// A valid declaration, with its source file and the automata that read it.
#[derive(Debug, Clone)]
pub struct Format {
    declaration: Declaration,
    source: String,
    /// The headers with which the chat template begins an answer, if known.
    headers: Arc<[String]>,
    machinery: OnceLock<Result<Arc<Machinery>>>,
}

impl Deref for Format {
    type Target = Declaration;

    fn deref(&self) -> &Declaration {
        &self.declaration
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

impl Format {
    /// The built-in formats; the first is the default.
    pub fn builtins() -> &'static [Builtin] {
        &BUILTIN
    }

    /// The names of the built-in formats.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Format::builtins().iter().map(|builtin| builtin.name)
    }

    /// The built-in format of that name.
    pub fn builtin(name: &str) -> Option<&'static Format> {
        BUILTIN.iter().find(|builtin| builtin.name == name).map(Builtin::format)
    }

    /// Reads the declaration block of a file.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] or [`ErrorKind::Syntax`] when the file cannot be read, [`ErrorKind::Format`] when it declares
    /// no format or an invalid one.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Format> {
        let path = path.as_ref();
        let declared = Format::parse_declaration(&text_file::read(path)?).map_err(|error| error.in_file(path))?;
        declared.ok_or_else(|| {
            Error::new(ErrorKind::Format, "the file declares no tool-call format")
                .in_file(path)
                .hint("begin it with a comment that holds the declaration in TOML: a line {#--- callwright, the TOML, a line ---#}")
        })
    }

    /// The name of the built-in format with the same markup, if there is one.
    pub(crate) fn known_as(&self) -> Option<&'static str> {
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

    /// Finds a start marker of another built-in format in `text`, and that format's name. A prompt that does not
    /// declare its format can make the model write such calls, which this format does not read.
    ///
    /// ```
    /// use callwright_core::format::Format;
    /// let text = "<tool_call>\n{\"name\": \"clock\"}\n</tool_call>";
    /// assert_eq!(Format::delimited().other_call_in(text), Some(("hermes", "<tool_call>")));
    /// assert_eq!(Format::builtin("hermes").unwrap().other_call_in(text), None);
    /// ```
    #[doc(hidden)]
    pub fn other_call_in(&self, text: &str) -> Option<(&'static str, &'static str)> {
        let own: Vec<&str> = self.reserved().collect();
        Format::builtins().iter().find_map(|builtin| {
            let marker = builtin.format().start_of_calls().and_then(Marker::text)?.trim();
            // Shorter markers occur in ordinary text.
            let telling = marker.len() >= 6 && !own.contains(&marker);
            (telling && text.contains(marker)).then_some((builtin.name, marker))
        })
    }

    pub(crate) fn delimited_name() -> &'static str {
        BUILTIN[0].name
    }

    /// The default format: plain markers around a JSON object.
    pub fn delimited() -> &'static Format {
        BUILTIN[0].format()
    }

    /// Reads the declaration block at the beginning of a Jinja file; `None` if there is no such block.
    ///
    /// # Errors
    /// If the block is not closed, is not TOML, has unknown or missing keys, or if its markers are not searchable. The
    /// error names line and column.
    pub fn parse_declaration(source: &str) -> Result<Option<Format>> {
        declaration::parse(source)
    }

    /// A format without a declaration file.
    ///
    /// # Errors
    /// If a marker is not a valid regular expression, or its length is not bounded.
    pub fn new(declaration: Declaration) -> Result<Format> {
        Format::with_source(declaration, String::new())
    }

    fn with_source(declaration: Declaration, source: String) -> Result<Format> {
        let mut format = Format { source, ..Format::unchecked(declaration) };
        if format.name == UNNAMED
            && let Some(known) = format.known_as()
        {
            format.declaration.name = known.to_owned();
        }
        // The automata of most formats are built for the first text: building them takes milliseconds.
        if !Machinery::cannot_fail(&format.declaration) {
            format.machinery()?;
        }
        Ok(format)
    }

    /// A format whose automata are built for the first text, because building them takes longer than inferring the
    /// format.
    pub(crate) fn unchecked(declaration: Declaration) -> Format {
        Format { declaration, source: String::new(), headers: Arc::default(), machinery: OnceLock::new() }
    }

    /// Adds these reasoning markers if the format has none.
    pub(crate) fn with_reasoning(self, reasoning: Option<Around>) -> Format {
        if self.reasoning.is_some() || reasoning.is_none() {
            return self;
        }
        let declaration = Declaration { reasoning, ..self.declaration.clone() };
        // If the markers are not searchable, drop the reasoning.
        let headers = Arc::clone(&self.headers);
        Format::with_source(declaration, self.source.clone()).map_or(self, |format| Format { headers, ..format })
    }

    /// The same format with these texts as markup, unless they have a meaning already.
    pub(crate) fn with_markup<'t>(self, texts: impl Iterator<Item = &'t str>) -> Format {
        let new: Vec<&str> = texts.filter(|text| !self.reserved().any(|own| own == *text)).collect();
        if new.is_empty() {
            return self;
        }
        let mut declaration = self.declaration.clone();
        declaration.markup.extend(new.into_iter().map(|text| Marker::Literal(text.to_owned())));
        let headers = Arc::clone(&self.headers);
        Format::with_source(declaration, self.source.clone()).map_or(self, |format| Format { headers, ..format })
    }

    /// The same format for prompts whose assistant turns begin with one of these headers. The headers are not part of
    /// an answer.
    pub(crate) fn with_headers(self, headers: Arc<[String]>) -> Format {
        // Where reasoning and answers begin with the same tag, a template seems to write it as a part of the header.
        let start = self.reasoning.as_ref().and_then(|reasoning| reasoning.start.text()).unwrap_or_default().trim();
        let shared = |header: &str| {
            let ends = start.match_indices('>').map(|(at, _)| at + 1).filter(|&end| end < start.len());
            ends.rev().find(|&end| header.ends_with(&start[..end])).unwrap_or_default()
        };
        if headers.iter().all(|header| shared(header) == 0) {
            return Format { headers, ..self };
        }
        let headers = headers.iter().map(|header| header[..header.len() - shared(header)].to_owned()).collect();
        Format { headers, ..self }
    }

    /// The headers with which the chat template begins an answer, if known.
    pub(crate) fn headers(&self) -> &[String] {
        &self.headers
    }

    /// The file that declares the format: its declaration block, and the Jinja that writes the tool section.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The literal text that is reserved for markup, without white space at its edges.
    pub fn reserved(&self) -> impl Iterator<Item = &str> {
        self.markers().filter_map(Marker::text).map(str::trim).filter(|text| !text.is_empty())
    }

    /// Builds what reading a call needs, which the first call would wait for otherwise: some 20 milliseconds.
    #[doc(hidden)]
    pub fn prepare(&self) {
        // A format that cannot be read is an error for whoever reads.
        if let Ok(machinery) = self.machinery() {
            machinery.prepare();
        }
    }

    /// The automata, built once for formats with the same declaration.
    pub(crate) fn machinery(&self) -> Result<Arc<Machinery>> {
        let build = || Machinery::new(&self.declaration).map(Arc::new);
        // Threads that need it at the same time wait for the first.
        self.machinery.get_or_init(|| recent(&self.declaration).get_or_init(build).clone()).clone()
    }
}

/// The automata of a declaration, or the reason why there are none.
type Automata = Arc<OnceLock<Result<Arc<Machinery>>>>;

/// How many declarations keep their automata, which take milliseconds to build and megabytes of memory.
const RECENT: usize = 8;

/// The automata of a declaration, shared by the formats that were made of it lately: a model's format is made anew for each
/// session, and may be prepared before the first one.
fn recent(declaration: &Declaration) -> Automata {
    static KNOWN: Mutex<VecDeque<(Declaration, Automata)>> = Mutex::new(VecDeque::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let there = known.iter().position(|(other, _)| other == declaration).and_then(|place| known.remove(place));
    let (declaration, automata) = there.unwrap_or_else(|| (declaration.clone(), Automata::default()));
    known.truncate(RECENT - 1);
    known.push_front((declaration, Arc::clone(&automata)));
    automata
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
    fn formats_with_the_same_declaration_share_their_automata() {
        let made = |start: &str| {
            let start = Some(Marker::Literal(start.to_owned()));
            Format::unchecked(Declaration { start, ..Format::delimited().declaration.clone() })
        };
        let [one, same, other] =
            ["<<<call>>>", "<<<call>>>", "<<<invoke>>>"].map(|start| made(start).machinery().unwrap());
        assert!(Arc::ptr_eq(&one, &same));
        assert!(!Arc::ptr_eq(&one, &other));
    }

    #[test]
    fn every_built_in_format_declares_its_name() {
        for builtin in Format::builtins() {
            assert_eq!(builtin.format().name, builtin.name);
        }
    }
}
