//! Translates minijinja's errors for the template's author: line, column, caret, and the template's own notation.

use super::budget::TooLong;
use super::desugar::Desugared;
use super::environment::Raised;
use crate::error::{Error, ErrorKind, Location};
use minijinja::ErrorKind as Kind;

/// The messages of renderings that end at a limit.
const BOUNDS: [&str; 7] = [STEPS, LENGTH, DEPTH, COPIES, NESTING, VALUES, TIME];
const STEPS: &str = "the template takes too many steps";
const LENGTH: &str = "the template writes more than";
const DEPTH: &str = "the template's macros call each other too deeply";
pub(in crate::template) const COPIES: &str = "the template copies too much text";
pub(in crate::template) const NESTING: &str = "the template nests values too deeply";
pub(in crate::template) const VALUES: &str = "the template makes lists of too many values";
pub(in crate::template) const TIME: &str = "the template takes too long";

/// Whether a rendering ended at a limit, so that another one will too.
pub(in crate::template) fn is_bound(error: &Error) -> bool {
    error.kind() == ErrorKind::Template && BOUNDS.iter().any(|bound| error.message().starts_with(bound))
}

/// The source that an error refers to.
pub(in crate::template) struct Source<'a> {
    pub name: &'a str,
    pub text: &'a str,
    pub desugared: &'a Desugared,
}

impl Source<'_> {
    pub(in crate::template) fn error(&self, error: minijinja::Error) -> Error {
        let (message, hint) = explained(&error);
        let offset = match error.range() {
            Some(range) => Some(self.desugared.original_offset(range.start.min(self.desugared.source.len()))),
            None => error.line().map(|line| self.line_start(line)),
        };
        let converted = Error::new(ErrorKind::Template, message).caused_by(error);
        let converted = match offset {
            Some(offset) => self.located(converted, offset),
            None => converted.at(Location::file(self.name)),
        };
        match hint {
            Some(hint) => converted.hint(hint),
            None => converted,
        }
    }

    /// An error at an offset of the text.
    pub(in crate::template) fn located(&self, error: Error, offset: usize) -> Error {
        error.marked(self.text, offset..offset).in_file(self.name)
    }

    fn line_start(&self, line: usize) -> usize {
        let before: usize = self.text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
        let rest = &self.text[before.min(self.text.len())..];
        before + (rest.len() - rest.trim_start_matches([' ', '\t']).len())
    }
}

fn explained(error: &minijinja::Error) -> (String, Option<String>) {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(current) = cause {
        if let Some(Raised(message)) = current.downcast_ref::<Raised>() {
            return (message.clone(), Some("the chat template itself raises this error".to_owned()));
        }
        // An error from the output is wrapped twice.
        let inner = current.downcast_ref::<std::io::Error>().and_then(|error| error.get_ref());
        let inner = inner.and_then(|error| error.downcast_ref::<TooLong>());
        if let Some(TooLong { limit }) = current.downcast_ref::<TooLong>().or(inner) {
            return (format!("{LENGTH} {}", bytes(*limit)), None);
        }
        cause = current.source();
    }
    let detail = error.detail().unwrap_or_default();
    match error.kind() {
        Kind::OutOfFuel => (STEPS.to_owned(), Some("is there an endless loop?".to_owned())),
        _ if detail == "recursion limit exceeded" => (DEPTH.to_owned(), None),
        Kind::UndefinedError if detail.is_empty() => ("a member of an undefined value is used".to_owned(), None),
        kind if detail.is_empty() => (kind.to_string(), None),
        // minijinja repeats the kind in most details.
        _ => (detail.to_owned(), None),
    }
}

fn bytes(count: usize) -> String {
    if count.is_multiple_of(1 << 20) { format!("{} MiB", count >> 20) } else { format!("{count} bytes") }
}
