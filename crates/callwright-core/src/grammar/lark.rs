//! Reports errors in a user's Lark grammar, with line and column.

use crate::error::{Error, ErrorKind, Location, Result};
use crate::json::caret;
use llguidance::api::{GrammarInit, ParserLimits, TopLevelGrammar};

/// Returns the grammar unchanged if the grammar engine can parse it. Anything that depends on a model's vocabulary is
/// not checked.
///
/// # Errors
/// [`ErrorKind::Syntax`], with line and column if the engine reports them.
pub(super) fn checked(text: &str) -> Result<String> {
    let grammar = GrammarInit::Serialized(TopLevelGrammar::from_lark(text.to_owned()));
    let limits = ParserLimits { verbose_errors: false, ..ParserLimits::default() };
    match grammar.validate(None, limits).into_error() {
        Some(complaint) => Err(refused(text, &complaint)),
        None => Ok(text.to_owned()),
    }
}

fn refused(text: &str, complaint: &str) -> Error {
    let mut lines = complaint.lines();
    let first = lines.next().unwrap_or(complaint);
    let place = placed(first);
    let (message, at) = place.map_or((first, None), |(line, column, message)| (message, Some((line, column))));
    // The parser's message repeats the text at the error.
    let message = message.rsplit_once(" (at ").map_or(message, |(message, _)| message);
    let message = match lines.find_map(|line| line.strip_prefix("error: ")) {
        Some(reason) => format!("{} {reason}", message.trim_end()),
        None => message.to_owned(),
    };
    let error = Error::new(ErrorKind::Syntax, format!("the grammar cannot be used: {message}"))
        .hint("it has to be llguidance's Lark, or GBNF");
    let Some((line, column)) = at else { return error };
    let shown = text.lines().nth(line.saturating_sub(1)).unwrap_or_default();
    let before = column.saturating_sub(1).min(shown.chars().count());
    let location = Location { file: None, line: Some(line), column: Some(before + 1) };
    error.at(location).excerpt(caret(shown, line, before))
}

/// Splits `at 1(8): unknown name` into line, column and message.
fn placed(complaint: &str) -> Option<(usize, usize, &str)> {
    let (line, rest) = complaint.strip_prefix("at ").unwrap_or(complaint).split_once('(')?;
    let (column, message) = rest.split_once("): ")?;
    Some((line.parse().ok()?, column.parse().ok()?, message))
}
