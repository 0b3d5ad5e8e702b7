//! How calls begin: their markers, and the grammar that goes with each.

use super::call::Call;
use super::compiler::{Compiler, Tokens};
use super::digits::{Digits, Notation};
use super::trigger::{Hit, Trigger, literal};
use super::{Calls, Mode, Rules};
use crate::Result;
use crate::format::{Format, Marker, NamedCall, Payload};
use crate::grammar::{Begins, Effort, Grammar, Scope, beyond, budget};
use crate::tool::{Tool, Tools};

/// The beginnings of calls in one answer.
pub(super) struct Openings {
    markers: Trigger,
    /// The grammars of the markers, in their order.
    grammars: Vec<Grammar>,
    /// Whether calls begin with their own text instead of a marker.
    bare: bool,
    /// The text that begins a call.
    pub text: String,
    /// The marker that begins a call or a section of calls.
    marker: String,
    /// Where the numbers of a call are.
    numbers: Notation,
    /// Whether the text has nothing but white space so far.
    blank: bool,
    /// What looks like a marker.
    misspellings: Vec<Marker>,
    /// Where these are looked for, once no call may begin.
    misspelled: Option<Trigger>,
}

impl Openings {
    /// The beginnings of calls of `tools`.
    ///
    /// # Errors
    /// Those of [`Constraint::new`](super::Constraint::new).
    pub(super) fn new(
        compiler: &mut Compiler,
        format: &Format,
        tools: &Tools,
        only: Option<&str>,
        rules: &Rules,
    ) -> Result<Openings> {
        let tools: Vec<&Tool> = tools.iter().filter(|tool| only.is_none_or(|only| tool.name == only)).collect();
        let own_text = Marker::Literal(format.opening(None));
        let markers: Vec<(&Marker, Begins)> = match (&format.section, &format.start) {
            (Some(section), Some(start)) => vec![(&section.start, Begins::Section), (start, Begins::Call)],
            (Some(section), None) => vec![(&section.start, Begins::Section)],
            (None, Some(start)) => vec![(start, Begins::Call)],
            (None, None) => vec![(&own_text, Begins::Call)],
        };
        let marker_text = markers.first().and_then(|(marker, _)| marker.text()).unwrap_or_default();
        let only_calls = rules.calls == Calls::Required && rules.mode == Mode::Strict;
        let mut build = |effort: &Effort| -> Result<(Vec<Grammar>, Result<()>)> {
            let scopes =
                markers.iter().map(|(_, begins)| Scope { begins: *begins, max_calls: rules.max_calls, only_calls });
            let grammars: Result<Vec<Grammar>> =
                scopes.map(|scope| format.build_grammar(&tools, scope, effort)).collect();
            let grammars = grammars?;
            let compiled = grammars.first().map_or(Ok(()), |first| compiler.matcher(&first.lark).map(|_| ()));
            Ok((grammars, compiled))
        };
        let mut grammars = Vec::new();
        if rules.calls != Calls::Forbidden {
            let made = budget::limited(|| match build(&Effort::Unchecked)? {
                (_, Err(_)) if budget::check().is_ok() => build(&Effort::Checked),
                made => Ok(made),
            })?;
            grammars = match made {
                (grammars, Ok(())) => grammars,
                // Rather the names alone than no grammar at all.
                (_, Err(error)) => {
                    let (grammars, compiled) = build(&Effort::NamesOnly(error.message().to_owned()))?;
                    compiled?;
                    grammars
                }
            };
        }
        if rules.mode == Mode::Strict {
            grammars.iter().try_for_each(|grammar| beyond(&grammar.unenforced))?;
        }
        let bare = format.start.is_none() && format.section.is_none();
        Ok(Openings {
            markers: Trigger::new(&markers.iter().map(|(marker, _)| *marker).collect::<Vec<_>>(), bare)?,
            grammars,
            bare,
            text: format.opening(None),
            marker: marker_text.trim().to_owned(),
            numbers: match &format.payload {
                Payload::Named(NamedCall { quote: Some(quote), .. }) => Notation::Quoted(quote.as_bytes().into()),
                Payload::Tagged(_) => Notation::Tagged(format.before_json(&tools).into()),
                _ => Notation::Call,
            },
            blank: true,
            misspellings: markers.iter().filter_map(|(marker, _)| misspelling(marker)).collect(),
            misspelled: None,
        })
    }

    /// For an answer that one grammar covers: no call begins in it.
    ///
    /// # Errors
    /// None: there are no markers.
    pub(super) fn none(grammar: Grammar) -> Result<Openings> {
        Ok(Openings {
            markers: Trigger::new(&[], false)?,
            grammars: vec![grammar],
            bare: false,
            text: String::new(),
            marker: String::new(),
            numbers: Notation::Call,
            blank: true,
            misspellings: Vec::new(),
            misspelled: None,
        })
    }

    /// The marker that these bytes would complete.
    pub(super) fn look(&self, bytes: &[u8]) -> Option<Hit> {
        self.markers.look(bytes)
    }

    /// Also looks for what looks like a marker, from now on.
    pub(super) fn forbid(&mut self) {
        self.misspelled = Trigger::new(&self.misspellings.iter().collect::<Vec<_>>(), false).ok();
    }

    /// Returns whether the text would begin like the marker, or look like one, after [`Openings::forbid`].
    pub(super) fn is_forbidden(&self, bytes: &[u8]) -> bool {
        let Some(misspelled) = &self.misspelled else { return false };
        if misspelled.look(bytes).is_some() {
            return true;
        }
        let (begun, marker) = (bytes.trim_ascii(), self.marker.as_bytes());
        let alike = marker.starts_with(begun) || begun.starts_with(marker);
        self.blank && alike && !begun.is_empty() && !marker.is_empty()
    }

    /// Text outside of calls.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.markers.push(bytes);
        self.misspelled.iter_mut().for_each(|misspelled| misspelled.push(bytes));
        self.blank &= bytes.trim_ascii().is_empty();
    }

    /// Text begins again.
    pub(super) fn reset(&mut self) {
        self.markers.reset();
        self.misspelled.iter_mut().for_each(Trigger::reset);
        self.blank = true;
    }

    /// The grammar of a marker.
    pub(super) fn grammar(&self, which: usize) -> Option<&Grammar> {
        self.grammars.get(which)
    }

    /// Number of tokens of the marker.
    pub(super) fn marker_tokens(&self, tokens: &Tokens) -> usize {
        tokens.tokenize(self.marker.as_bytes()).len()
    }

    /// The call after a marker, with the bytes after the marker; `None` if the grammar does not allow them.
    ///
    /// # Errors
    /// [`ErrorKind::Constraint`](crate::ErrorKind::Constraint) if the grammar is refused.
    pub(super) fn open(&self, compiler: &mut Compiler, hit: Hit, bytes: &[u8]) -> Result<Option<Call>> {
        let Some(grammar) = self.grammars.get(hit.which) else { return Ok(None) };
        let begun = compiler.begin(&grammar.lark)?;
        // A call without a marker begins with its own text, which was matched as the marker.
        let mut following = Vec::new();
        if self.bare {
            following.extend_from_slice(self.text.as_bytes());
        }
        following.extend_from_slice(&bytes[bytes.len().saturating_sub(hit.following)..]);
        let digits = Digits::new(&grammar.lark, self.numbers.clone());
        Ok(Call::begin(begun, hit.which, compiler.tokens(), &following, digits))
    }
}

/// Returns what looks like the beginning of a marker: the sign before its first word, the word, and the first letter of
/// the next one.
///
/// A model that wants to call, and must not, goes around the marker: with more signs, another case, spaces between the words, or fewer
/// letters in the later ones.
fn misspelling(marker: &Marker) -> Option<Marker> {
    /// With fewer letters, something else may be meant.
    const LETTERS: usize = 6;
    let text = marker.text()?.trim();
    let words: Vec<&str> = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
    if words.concat().len() < LETTERS {
        return None;
    }
    let sign = text[..text.find(words[0])?].trim_end().chars().last();
    let sign = sign.map_or_else(String::new, |sign| format!(r"{}[ \t]{{0,4}}", literal(&sign.to_string())));
    let next = words.get(1).map_or_else(String::new, |word| format!(r"[_\- \t]{{0,4}}{}", &word[..1]));
    let pattern = format!(r"(?i-u:{sign}{}{next})", words[0]);
    Some(Marker::Pattern { pattern, text: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_a_marker_is_found_and_other_text_is_not() {
        let found = |marker: &str, text: &str| {
            let misspelling = misspelling(&Marker::Literal(marker.to_owned()));
            misspelling.is_some_and(|pattern| Trigger::new(&[&pattern], false).unwrap().look(text.as_bytes()).is_some())
        };
        let delimited = "### TOOL_CALL_START ###\n";
        for text in ["# TOOL_CALL", "#### TOOL_CALL_ START ###", "##tool call", "### Tool - Call", "# TOOL_CAL_START"] {
            assert!(found(delimited, text), "{text}");
        }
        for text in ["a tool call", "TOOL_CALL_START", "# Tools", "# The tool call", "# Tool"] {
            assert!(!found(delimited, text), "{text}");
        }
        assert!(found("<tool_call>", "<Tool call") && !found("<tool_call>", "a tool call, <b>"));
        assert!(found("<|tool_calls_section_begin|>", "| tool_calls_section"));
        assert!(found("functools", "functools") && !found("functools", "functions"));
        for marker in ["[", "{\"a\":", "<f>", "", "→"] {
            assert!(!found(marker, marker), "{marker}");
        }
    }
}
