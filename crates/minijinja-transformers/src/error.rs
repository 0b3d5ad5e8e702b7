//! Translates minijinja's errors for the template's author: line, column, and the template's own notation.

use crate::budget::TooLong;
use crate::desugar::Desugared;
use crate::environment::Raised;
use minijinja::ErrorKind as Kind;
use std::fmt;

const STEPS: &str = "the template takes too many steps";
const LENGTH: &str = "the template writes more than";
const DEPTH: &str = "the template's macros call each other too deeply";
pub(crate) const COPIES: &str = "the template copies too much text";
pub(crate) const NESTING: &str = "the template nests values too deeply";
pub(crate) const VALUES: &str = "the template makes lists of too many values";
pub(crate) const TIME: &str = "the template takes too long";

/// Why a template failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The template does not compile.
    Syntax,
    /// The template itself refuses the conversation, with `raise_exception`.
    Raised,
    /// The rendering ended at a limit of time or memory, so that another one will too.
    Limit,
    /// Something in the template failed while it was rendered.
    Render,
}

impl ErrorKind {
    /// The kind of an error that is the source of an [`Error`].
    pub fn of(error: &minijinja::Error) -> ErrorKind {
        explained(error).0
    }
}

/// A template that does not compile, or failed while it was rendered.
///
/// Its `Display` is one line: the place, the message, and the hint in brackets. Places are those of the template as it was
/// given.
#[derive(Debug)]
#[non_exhaustive]
pub struct Error {
    /// Why it failed.
    pub kind: ErrorKind,
    /// A sentence without a full stop; that of the template if it raised the error.
    pub message: String,
    /// What may be the reason.
    pub hint: Option<&'static str>,
    /// Line, from 1.
    pub line: Option<usize>,
    /// Column in characters, from 1.
    pub column: Option<usize>,
    /// The same place as a byte of the source.
    pub offset: Option<usize>,
    /// The error of minijinja. `message` already says what it says.
    pub source: Option<minijinja::Error>,
}

impl Error {
    /// An error at a byte of the source.
    pub(crate) fn syntax(message: String, source: &str, offset: usize) -> Error {
        let error = Error {
            kind: ErrorKind::Syntax,
            message,
            hint: None,
            line: None,
            column: None,
            offset: None,
            source: None,
        };
        error.at(source, offset)
    }

    /// What minijinja says of a rewritten source, with the place in the original.
    pub(crate) fn of(error: minijinja::Error, source: &str, desugared: &Desugared) -> Error {
        let (kind, message, hint) = explained(&error);
        let offset = match error.range() {
            Some(range) => Some(desugared.original_offset(range.start.min(desugared.source.len()))),
            None => error.line().map(|line| line_start(source, line)),
        };
        let error = Error { kind, message, hint, line: None, column: None, offset: None, source: Some(error) };
        match offset {
            Some(offset) => error.at(source, offset),
            None => error,
        }
    }

    fn at(self, source: &str, offset: usize) -> Error {
        let before = String::from_utf8_lossy(&source.as_bytes()[..offset.min(source.len())]);
        let line = before.rsplit('\n').next().unwrap_or_default();
        Error {
            line: Some(before.matches('\n').count() + 1),
            column: Some(line.chars().count() + 1),
            offset: Some(offset),
            ..self
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (Some(line), Some(column)) = (self.line, self.column) {
            write!(f, "line {line}, column {column}: ")?;
        }
        f.write_str(&self.message)?;
        match self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}

fn line_start(source: &str, line: usize) -> usize {
    let before: usize = source.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    let rest = &source[before.min(source.len())..];
    before + (rest.len() - rest.trim_start_matches([' ', '\t']).len())
}

fn explained(error: &minijinja::Error) -> (ErrorKind, String, Option<&'static str>) {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(current) = cause {
        if let Some(Raised(message)) = current.downcast_ref::<Raised>() {
            return (ErrorKind::Raised, message.clone(), Some("the chat template itself raises this error"));
        }
        // An error from the output is wrapped twice.
        let inner = current.downcast_ref::<std::io::Error>().and_then(|error| error.get_ref());
        let inner = inner.and_then(|error| error.downcast_ref::<TooLong>());
        if let Some(TooLong { limit }) = current.downcast_ref::<TooLong>().or(inner) {
            return (ErrorKind::Limit, format!("{LENGTH} {}", bytes(*limit)), None);
        }
        cause = current.source();
    }
    let detail = error.detail().unwrap_or_default();
    match error.kind() {
        Kind::OutOfFuel => (ErrorKind::Limit, STEPS.to_owned(), Some("is there an endless loop?")),
        _ if detail == "recursion limit exceeded" => (ErrorKind::Limit, DEPTH.to_owned(), None),
        _ if [COPIES, NESTING, VALUES, TIME].contains(&detail) => (ErrorKind::Limit, detail.to_owned(), None),
        Kind::UndefinedError if detail.is_empty() => {
            (ErrorKind::Render, "a member of an undefined value is used".to_owned(), None)
        }
        kind => {
            let class = if kind == Kind::SyntaxError { ErrorKind::Syntax } else { ErrorKind::Render };
            // minijinja repeats the kind in most details.
            (class, if detail.is_empty() { kind.to_string() } else { detail.to_owned() }, None)
        }
    }
}

fn bytes(count: usize) -> String {
    if count.is_multiple_of(1 << 20) { format!("{} MiB", count >> 20) } else { format!("{count} bytes") }
}
