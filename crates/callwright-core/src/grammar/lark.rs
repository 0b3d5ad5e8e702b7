//! Reports errors in a user's Lark grammar, with line and column.

use super::budget;
use super::limits::{self, LIMITS};
use crate::error::{Error, ErrorKind, Location, Result, carets};
use llguidance::api::{GrammarInit, TopLevelGrammar};
use llguidance::toktrie::TokEnv;
use std::collections::HashMap;

/// Returns the grammar unchanged if the grammar engine can parse it. Anything that depends on a model's vocabulary is
/// not checked.
///
/// # Errors
/// [`ErrorKind::Syntax`], with line and column if the engine reports them.
pub(super) fn checked(text: &str) -> Result<String> {
    bounded(text)?;
    let grammar = TopLevelGrammar::from_lark(text.to_owned());
    match budget::within(is_large(text), move || prepared(grammar, None).map(drop)).map_err(limits::ended)? {
        Err(complaint) => Err(refused(text, &complaint)),
        Ok(()) => Ok(text.to_owned()),
    }
}

/// A grammar whose parser the engine creates in bounded time.
///
/// The engine limits its work on patterns by [`Limits::lexer_fuel`](super::Limits::lexer_fuel), except for the first byte
/// of each. So that is tried here, with the limit.
///
/// # Errors
/// The engine's message, or that the patterns take too much work.
pub fn prepared(grammar: TopLevelGrammar, tokens: Option<TokEnv>) -> Result<GrammarInit, String> {
    let engine = |error: &dyn std::fmt::Display| format!("{error:#}");
    let (grammar, lexer) =
        GrammarInit::Serialized(grammar).to_internal(tokens, LIMITS.engine()).map_err(|error| engine(&error))?;
    let mut patterns = lexer.to_regex_vec(&mut LIMITS.engine()).map_err(|error| engine(&error))?;
    patterns.set_fuel(LIMITS.lexer_fuel);
    let first = patterns.initial_state(&lexer.all_lexemes());
    for byte in 0..=u8::MAX {
        patterns.transition(first, byte);
        if patterns.has_error() {
            return Err("its patterns take too much work".to_owned());
        }
    }
    Ok(GrammarInit::Internal(grammar, lexer))
}

/// Refuses a grammar of more text, rules or nested brackets than the stack of [`LIMITS`] fits.
pub(super) fn bounded(text: &str) -> Result<()> {
    if text.len() > LIMITS.text {
        return Err(limits::refused(&format!("it has more than {} bytes", LIMITS.text)));
    }
    let (mut open, mut deepest) = (0usize, 0);
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' => open += 1,
            b')' | b']' => open = open.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(open);
    }
    if deepest.max(text.lines().count()) > LIMITS.rules {
        return Err(limits::refused(&format!("it has more than {} rules or brackets inside each other", LIMITS.rules)));
    }
    Ok(())
}

/// The length of a text in quotes, or of a pattern between slashes.
fn quoted(text: &[u8]) -> usize {
    let mut at = 1;
    while let Some(&byte) = text.get(at) {
        match byte {
            b'\\' => at += 2,
            byte if byte == text[0] => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

/// Returns whether a grammar is to be compiled on a thread with a large stack: the grammar engine recurses from rule to
/// rule, for each bracket, and for each member in a schema. The answer may be yes for one that does not need it.
pub fn is_large(lark: &str) -> bool {
    const BYTES: usize = 64 << 10;
    const LEVELS: usize = 100;
    const KEYWORDS: usize = 200;
    const BRACKETS: usize = 20;
    if lark.len() > BYTES {
        return true;
    }
    let (mut levels, mut most, mut ahead) = (HashMap::<&str, usize>::new(), 0, 0);
    let (mut keywords, mut patterns) = (0, 0);
    // The first rule, which leads to all others, is written before them.
    let mut lines: Vec<&str> = lark.lines().filter(|line| !line.is_empty()).collect();
    lines.rotate_left(usize::from(lark.starts_with("start:")));
    for line in lines {
        let (name, body) = line.split_once(':').unwrap_or(("", line));
        if let Some((_, schema)) = body.split_once("%json") {
            keywords += schema.bytes().filter(|byte| *byte == b':').count();
            patterns += schema.matches("\"pattern\"").count() + schema.matches("\"patternProperties\"").count();
        }
        let body = body.split("%json").next().unwrap_or_default();
        let (mut level, mut open, mut deepest) = (0, 0usize, 0);
        let mut at = 0;
        while let Some(&first) = body.as_bytes().get(at) {
            let rest = &body[at..];
            match first {
                b'"' | b'/' => at += quoted(rest.as_bytes()),
                b'(' | b'[' | b'{' => (open, at) = (open + 1, at + 1),
                b')' | b']' | b'}' => (open, at) = (open.saturating_sub(1), at + 1),
                first if first.is_ascii_alphabetic() || first == b'_' => {
                    let other = |byte: &u8| !byte.is_ascii_alphanumeric() && *byte != b'_' && *byte != b'-';
                    let word = &rest[..rest.bytes().position(|byte| other(&byte)).unwrap_or(rest.len())];
                    match levels.get(word) {
                        Some(known) => level = level.max(*known),
                        // It may be a rule that comes later.
                        None => ahead += usize::from(word.starts_with(|c: char| c.is_ascii_lowercase())),
                    }
                    at += word.len();
                }
                _ => at += rest.chars().next().map_or(1, char::len_utf8),
            }
            deepest = deepest.max(open);
        }
        if deepest > BRACKETS {
            return true;
        }
        most = most.max(level + 1);
        levels.insert(name.trim(), level + 1);
    }
    most * (1 + ahead) > LEVELS || keywords > KEYWORDS || patterns > 8
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
    error.at(location).excerpt(carets(shown, line, before, 1))
}

/// Splits `at 1(8): unknown name` into line, column and message.
fn placed(complaint: &str) -> Option<(usize, usize, &str)> {
    let (line, rest) = complaint.strip_prefix("at ").unwrap_or(complaint).split_once('(')?;
    let (column, message) = rest.split_once("): ")?;
    Some((line.parse().ok()?, column.parse().ok()?, message))
}
