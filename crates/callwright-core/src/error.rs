//! The library's error type: what failed, in which phase, where, and what to do about it.
//!
//! A message is a sentence that names the file, line or field at fault. A hint names the edit that fixes it.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The kind of failure, which determines the program's exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A file could not be read or written.
    Io,
    /// The text is not JSON or TOML.
    Syntax,
    /// The tools are unusable: a duplicate name, an invalid schema, a missing field.
    Tools,
    /// The conversation is invalid: an unknown role, a result that answers no call.
    Messages,
    /// A chat template does not compile, or failed while rendering.
    Template,
    /// A tool-call format's declaration is invalid.
    Format,
    /// A models.toml is invalid, or options contradict each other.
    Config,
    /// There is no such model.
    ModelNotFound,
    /// The file is not a GGUF that llama.cpp can load.
    Gguf,
    /// A download failed.
    Hub,
    /// The prompt does not fit the context.
    ContextOverflow,
    /// llama.cpp failed.
    Engine,
    /// A server that runs a model failed, or could not be reached.
    Server,
    /// A grammar cannot be used, or failed while generating.
    Constraint,
    /// A recording does not belong to this run, or is damaged.
    Replay,
    /// A benchmark's suite or run directory is unusable.
    Suite,
}

impl ErrorKind {
    /// Returns whether the caller's input is at fault, rather than the run: the program exits with 2 instead of 1.
    pub fn is_input(self) -> bool {
        !matches!(self, ErrorKind::Hub | ErrorKind::Engine | ErrorKind::Server | ErrorKind::Constraint)
    }
}

/// Where in the input the error is: a file, and a position in it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Location {
    /// The file, or a name for other input (`<standard input>`).
    pub file: Option<PathBuf>,
    /// Line, from 1.
    pub line: Option<usize>,
    /// Column in characters, from 1.
    pub column: Option<usize>,
}

impl Location {
    /// A file, without a position in it.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn file(path: impl AsRef<Path>) -> Location {
        Location { file: Some(path.as_ref().to_owned()), ..Location::default() }
    }

    /// The position of byte `offset` in `text`.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn of_offset(text: &str, offset: usize) -> Location {
        let before = &text.as_bytes()[..offset.min(text.len())];
        let line_start = before.iter().rposition(|&b| b == b'\n').map_or(0, |i| i + 1);
        let column = String::from_utf8_lossy(&before[line_start..]).chars().count() + 1;
        let line = before.iter().filter(|&&b| b == b'\n').count() + 1;
        Location { file: None, line: Some(line), column: Some(column) }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.file, self.line) {
            (Some(file), _) => write!(f, "{}", file.display())?,
            (None, Some(_)) => f.write_str("line ")?,
            (None, None) => return Ok(()),
        }
        if let Some(line) = self.line {
            if self.file.is_some() {
                f.write_str(":")?;
            }
            write!(f, "{line}")?;
            if let Some(column) = self.column {
                write!(f, ":{column}")?;
            }
        }
        Ok(())
    }
}

/// The library's error.
///
/// Its `Display` is complete, over several lines if that helps: place and message, then the excerpt it points
/// at, then a hint. [`source`](std::error::Error::source) is the error of the file system, or of the library that read
/// the input, if there is one; the message already says what it says.
#[derive(Debug, Clone, PartialEq)]
pub struct Error(Box<Inner>);

#[derive(Debug, Clone)]
struct Inner {
    kind: ErrorKind,
    message: String,
    location: Option<Location>,
    excerpt: Option<String>,
    hint: Option<String>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

/// Equal errors report the same. Their sources cannot be compared.
impl PartialEq for Inner {
    fn eq(&self, other: &Inner) -> bool {
        let Inner { kind, message, location, excerpt, hint, source: _ } = self;
        (kind, message, location) == (&other.kind, &other.message, &other.location)
            && (excerpt, hint) == (&other.excerpt, &other.hint)
    }
}

/// `Result` with the library's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error of `kind`; `message` is a sentence without a full stop.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        let message = message.into();
        Error(Box::new(Inner { kind, message, location: None, excerpt: None, hint: None, source: None }))
    }

    /// A file that could not be read or written: `doing` is the verb, as in "cannot *read* x".
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn io(doing: &str, path: impl AsRef<Path>, source: &std::io::Error) -> Error {
        // It cannot be cloned.
        let copy = match source.raw_os_error() {
            Some(code) => std::io::Error::from_raw_os_error(code),
            None => std::io::Error::new(source.kind(), source.to_string()),
        };
        Error::new(ErrorKind::Io, format!("cannot {doing} {}: {source}", path.as_ref().display())).caused_by(copy)
    }

    /// Sets the place of the error.
    #[must_use]
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn at(mut self, location: Location) -> Error {
        self.0.location = Some(location);
        self
    }

    /// Sets the file of an error that has none.
    #[must_use]
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn in_file(mut self, path: impl AsRef<Path>) -> Error {
        self.0.location.get_or_insert_with(Location::default).file.get_or_insert_with(|| path.as_ref().to_owned());
        self
    }

    /// Adds the lines that the error points at, caret included.
    #[must_use]
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn excerpt(mut self, excerpt: impl Into<String>) -> Error {
        self.0.excerpt = Some(excerpt.into());
        self
    }

    /// Sets the hint: what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Error {
        self.0.hint = Some(hint.into());
        self
    }

    /// Sets the hint: the entry of `known` that a mistyped `word` most likely means, else `otherwise`, if that is not empty.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    #[must_use]
    pub(crate) fn suggest<'a>(self, word: &str, known: impl IntoIterator<Item = &'a str>, otherwise: &str) -> Error {
        match nearest(word, known) {
            Some(near) => self.hint(format!("did you mean `{near}`?")),
            None if otherwise.is_empty() => self,
            None => self.hint(otherwise),
        }
    }

    /// Sets the error that caused this one.
    #[must_use]
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn caused_by(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Error {
        self.0.source = Some(Arc::new(source));
        self
    }

    /// Sets the place of the error to the bytes `span` of `text`, and adds their line with carets below them.
    #[must_use]
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn marked(self, text: &str, span: Range<usize>) -> Error {
        let place = Location::of_offset(text, span.start);
        let (line, column) = (place.line.unwrap_or(1), place.column.unwrap_or(1));
        let marked = text.get(span).and_then(|marked| marked.lines().next()).unwrap_or_default();
        let shown = text.lines().nth(line - 1).unwrap_or_default();
        self.excerpt(carets(shown, line, column - 1, marked.chars().count())).at(place)
    }

    /// An error of TOML in `text`, at its place, with what may be meant by an unknown name.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn of_toml(kind: ErrorKind, text: &str, error: toml::de::Error) -> Error {
        let message = error.message().trim();
        // serde says all known names in the same sentence.
        let unknown = message.split_once(", expected ").filter(|(said, _)| said.starts_with("unknown "));
        let said = unknown.map_or_else(
            // serde's words for TOML's lists and tables.
            || message.replace("a sequence", "a list").replace("a map", "a table").replace("type: map", "type: table"),
            |(said, _)| said.replace("unknown field", "unknown key").replace('`', "\""),
        );
        let shown = Error::new(kind, said).marked(text, error.span().unwrap_or(text.len()..text.len()));
        let Some((said, known)) = unknown else { return shown.caused_by(error) };
        let known: Vec<&str> = known.split('`').skip(1).step_by(2).collect();
        let word = said.split('`').nth(1).unwrap_or_default();
        shown.suggest(word, known.iter().copied(), &format!("known are {}", known.join(", "))).caused_by(error)
    }

    /// The kind of failure.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The sentence alone, without place, excerpt and hint.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns what to do about it.
    pub fn hint_text(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// Where the error is, if it is in the input.
    pub fn location(&self) -> Option<&Location> {
        self.0.location.as_ref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.location {
            Some(location) if *location != Location::default() => write!(f, "{location}: ")?,
            _ => {}
        }
        f.write_str(&self.0.message)?;
        if let Some(excerpt) = &self.0.excerpt {
            write!(f, "\n{}", excerpt.trim_end())?;
        }
        if let Some(hint) = &self.0.hint {
            write!(f, "\nhint: {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

/// The entry of `known` that a mistyped `word` most likely means, for "did you mean".
#[cfg_attr(feature = "unstable", visibility::make(pub))]
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(word, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= 1 + candidate.len() / 4)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Line `number` of a file with carets under `length` characters from its character `at` (from 0), long lines cut around it.
pub(crate) fn carets(line: &str, number: usize, at: usize, length: usize) -> String {
    const WIDTH: usize = 100;
    let line = line.trim_end_matches(['\r', '\n']);
    let start = if at > WIDTH * 3 / 4 { at - WIDTH / 2 } else { 0 };
    let shown: String = line.chars().skip(start).take(WIDTH).map(|c| if c.is_control() { ' ' } else { c }).collect();
    let (head, tail) = (if start > 0 { "…" } else { "" }, if line.chars().count() > start + WIDTH { "…" } else { "" });
    let margin = " ".repeat(number.to_string().len());
    let indent = " ".repeat(at - start + head.chars().count());
    let carets = "^".repeat(length.clamp(1, (start + WIDTH).saturating_sub(at).max(1)));
    format!("{number} | {head}{shown}{tail}\n{margin} | {indent}{carets}")
}
