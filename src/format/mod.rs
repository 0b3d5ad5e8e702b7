//! Tool-call formats: how a call looks in a model's text.
//!
//! A format is data: markers, a payload kind, and how calls are written back into the history. From that one
//! declaration come the prompt's tool section, the streaming parser and the history. The formats that are built in
//! are files under `templates/`, as a user's own is.

mod calls;
mod declaration;
pub mod event;
mod history;
mod json;
mod markers;
pub mod parser;
mod repair;
mod text;

use crate::error::{Error, ErrorKind, Result};
use crate::text_file;
use markers::Markers;
use repair::Stops;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, LazyLock, OnceLock};

pub use history::History;

/// How a call looks in a model's text.
#[derive(Debug, Clone)]
pub struct Format {
    /// What the format is called.
    pub name: String,
    /// What begins a call.
    pub start: Marker,
    /// What ends it.
    pub end: Marker,
    /// What stands between the two.
    pub payload: Payload,
    /// How calls and results are written back into a conversation.
    pub history: History,
    /// The file that declares the format, its declaration block included: Jinja that writes the tool section.
    pub source: String,
    machinery: OnceLock<Arc<Machinery>>,
}

/// What begins or ends a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Marker {
    /// Just this text.
    Literal(String),
    /// What this regular expression matches; its length must be bounded.
    Pattern(String),
}

/// What stands between a call's markers.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Payload {
    /// A JSON object with the tool's name and the arguments.
    Json(JsonKeys),
}

/// What the parts of a JSON call are called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonKeys {
    /// The key of the tool's name.
    pub name: String,
    /// The key of the arguments.
    pub arguments: String,
}

impl Default for JsonKeys {
    fn default() -> JsonKeys {
        JsonKeys { name: "name".to_owned(), arguments: "arguments".to_owned() }
    }
}

/// What the parsers of one format share.
struct Machinery {
    markers: Markers,
    stops: Stops,
}

impl fmt::Debug for Machinery {
    /// Without the automata, whose tables are megabytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machinery").finish_non_exhaustive()
    }
}

/// The files of the formats that are built in.
const BUILTIN: [(&str, &str); 1] = [("delimited", include_str!("../../templates/delimited.jinja"))];

static BUILTIN_FORMATS: LazyLock<Vec<Format>> = LazyLock::new(|| {
    BUILTIN.iter().filter_map(|(_, source)| Format::parse_declaration(source).ok().flatten()).collect()
});

impl Format {
    /// The names of the formats that are built in.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILTIN.iter().map(|(name, _)| *name)
    }

    /// The format of that name, if it is built in.
    pub fn builtin(name: &str) -> Option<&'static Format> {
        BUILTIN_FORMATS.iter().find(|format| format.name == name)
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

    /// The default: plain markers around a JSON object.
    pub fn delimited() -> &'static Format {
        // A test sees to it that the built-in declarations are in order.
        &BUILTIN_FORMATS[0]
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
    pub fn new(name: &str, start: Marker, end: Marker, payload: Payload) -> Result<Format> {
        let format = Format {
            name: name.to_owned(),
            start,
            end,
            payload,
            history: History::default(),
            source: String::new(),
            machinery: OnceLock::new(),
        };
        format.machinery()?;
        Ok(format)
    }

    /// The text that is reserved for markup, where the markers are literal.
    pub fn reserved(&self) -> impl Iterator<Item = &str> {
        [&self.start, &self.end].into_iter().filter_map(|marker| match marker {
            Marker::Literal(text) => Some(text.as_str()),
            Marker::Pattern(_) => None,
        })
    }

    /// The automata, built once for a format.
    fn machinery(&self) -> Result<Arc<Machinery>> {
        if let Some(machinery) = self.machinery.get() {
            return Ok(Arc::clone(machinery));
        }
        let Payload::Json(_) = &self.payload;
        let markers = Markers::new(&self.start, &self.end, r"\{|```|\[[ \t\r\n]{0,8}\{")?;
        let stops = Stops::new(&markers);
        Ok(Arc::clone(self.machinery.get_or_init(|| Arc::new(Machinery { markers, stops }))))
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
        for (name, source) in BUILTIN {
            let format = Format::parse_declaration(source).unwrap().expect("it begins with a declaration");
            assert_eq!(format.name, name);
            assert!(Format::builtin(name).is_some());
        }
    }
}
