//! The arguments of a call in Python as a JSON object: `(a=1, b='x')` becomes `{"a": 1, "b": "x"}`.

use crate::tool::Tools;
use std::sync::Arc;

/// The parameters of the tool that is called.
#[derive(Debug, Default)]
pub(super) struct Parameters {
    /// Their names in order, for positional arguments, and how many were used.
    pub names: Vec<String>,
    pub used: usize,
    /// Whether the first one takes an object; if not, an object in its place contains all the arguments.
    pub takes_object: bool,
    pub wrapped: bool,
    /// A positional argument has no matching parameter.
    pub unnamed: bool,
    /// The tools, whose calls are no values, and the offset of a call that was found instead of one.
    pub tools: Option<Arc<Tools>>,
    pub called: Option<usize>,
    /// Where the last word ended.
    pub word_end: usize,
}

impl Parameters {
    /// The name of the next positional argument.
    pub(super) fn next(&self) -> Option<&str> {
        self.names.get(self.used).map(String::as_str)
    }

    /// Returns whether this is the name of a tool.
    pub(super) fn is_tool(&self, word: &str) -> bool {
        self.tools.as_ref().is_some_and(|tools| tools.get(word).is_some())
    }

    /// Returns whether a word may be the name of an argument: one of the tool's, if they are known.
    pub(super) fn may_be(&self, word: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|name| name == word)
    }
}

/// A Python literal in JSON.
pub(super) fn literal(word: &str) -> Option<&'static str> {
    match word {
        "True" => Some("true"),
        "False" => Some("false"),
        "None" => Some("null"),
        _ => None,
    }
}

/// The call at the end of a text before a quote, `name(argument=`: its name, and the text from there on.
pub(super) fn begun_call(before: &str) -> Option<(&str, &str)> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let argument = before.strip_suffix('=')?.trim_end_matches(word).strip_suffix('(')?;
    let from = argument.trim_end_matches(word).len();
    // The letter of an escaped line break.
    let from = if argument[..from].ends_with('\\') && from < argument.len() { from + 1 } else { from };
    Some((&argument[from..], &before[from..]))
}

/// Returns whether the text before a quote is what precedes a value: `, name=` or, in a list or an object, a separator.
pub(super) fn begins_value(before: &str, open: &[u8]) -> bool {
    let before = before.trim_ascii_end();
    match before.bytes().last() {
        Some(b'=') => {
            let name = before[..before.len() - 1].trim_ascii_end();
            let word = name.bytes().rev().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count();
            word > 0 && name[..name.len() - word].trim_ascii_end().ends_with([',', '('])
        }
        Some(b',' | b':' | b'[' | b'{') => matches!(open.last(), Some(b'[' | b'{')),
        _ => false,
    }
}
