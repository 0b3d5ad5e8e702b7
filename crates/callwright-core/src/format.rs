//! Tool-call formats: how a model's text represents a call.
//!
//! A format is data: markers, a payload kind, and how calls are written back into the history. The prompt's tool
//! section, the streaming parser and the history all derive from that declaration. Built-in formats are files under
//! `templates/`, like a user's own.

mod builtin;
mod declaration;
pub(crate) mod history;
mod parts;
pub(crate) mod typed;
mod written;

use crate::error::{Error, ErrorKind, Result};
use crate::parse::machinery::Machinery;
use crate::text_file;
use std::collections::VecDeque;
use std::ops::Deref;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

#[cfg_attr(feature = "unstable", visibility::make(pub))]
pub(crate) use self::{
    builtin::Builtin,
    history::History,
    parts::{Around, Declaration, Head, JsonCall, Marker, NamedCall, Payload, TaggedCall},
};
pub(crate) use crate::schema;
pub(crate) use builtin::BUILTIN;
pub(crate) use history::spaced_json;
use parts::UNNAMED;

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

impl Format {
    /// The built-in formats; the first is the default.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn builtins() -> &'static [Builtin] {
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
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn other_call_in(&self, text: &str) -> Option<(&'static str, &'static str)> {
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
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn delimited() -> &'static Format {
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
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn new(declaration: Declaration) -> Result<Format> {
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
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn reserved(&self) -> impl Iterator<Item = &str> {
        self.markers().filter_map(Marker::text).map(str::trim).filter(|text| !text.is_empty())
    }

    /// Builds what reading a call needs, which the first call would wait for otherwise: some 20 milliseconds.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn prepare(&self) {
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
