//! Finds a format's markers in text that arrives in pieces.
//!
//! `contains(marker)` on the text so far costs the whole text at every token, and on the newest token it misses a
//! marker that two tokens share. Here the markers of a format, and what models write in their stead, become one
//! automaton per context, taken over from regex-automata into a flat table. It is stepped one byte at a time, and
//! only from a byte that can begin a marker until none can be under way any more; the bytes in between are all that
//! is ever held back. The automaton of regex-automata is not stepped itself because it tells a match one byte late:
//! a call would seem open until the model writes on after its end marker.

mod begins;
mod lazy;
pub(super) mod patterns;
mod plain;
mod table;

use super::bytes::ByteSet;
use super::other_forms::{self, BEGINS, Own, THRICE};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Declaration, Marker};
use begins::Begins;
use lazy::{Lazy, Made};
use patterns::{Patterns, bare_call, near_end, near_section, near_start, start_in_reasoning, syntax_config};
use regex_automata::dfa::{Automaton as _, StartKind, dense};
use regex_automata::nfa::thompson;
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input, MatchKind};
use std::sync::{MutexGuard, OnceLock};
use table::Table;

pub(crate) use plain::Candidate;

/// What a match means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sign {
    pub side: Side,
    /// Whether it is the marker as declared, or something that resembles it.
    pub exact: bool,
    pub(super) lookahead: Lookahead,
}

/// How much of the payload a match takes in, to tell a marker from prose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lookahead {
    None,
    /// White space and brackets, or the beginning of a code fence.
    Brackets,
    /// The first letter of a name, and what stands before it.
    Letter,
    /// All that stands behind the start marker's text.
    Head,
    /// The start marker that follows.
    Start,
    /// All of the match is payload.
    All,
}

/// Which marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Start,
    End,
    SectionStart,
    SectionEnd,
    ReasoningStart,
    ReasoningEnd,
    Markup,
    /// What begins text that nobody is shown.
    Hidden,
    /// A call in a format without a start marker.
    Bare,
    /// The beginning of a call in another form, by its number.
    Other(u8),
    /// What ends a section in another form.
    OtherEnd,
    /// A code fence.
    Fence,
}

/// Where the bytes stand: what counts as a marker differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Context {
    /// Outside of calls.
    Text,
    /// The same, where calls in other forms count, too.
    AnyForm,
    /// In reasoning.
    Reasoning,
    /// In a call, outside of strings.
    Structure,
    /// In a call, inside a JSON string.
    String,
    /// In a call, where no marker counts: the payload's machine looks for the end itself.
    Raw,
}

/// The marker automata of one format.
#[derive(Debug)]
pub(crate) struct Markers {
    text: Scanner,
    reasoning: Later,
    structure: Later,
    string: Later,
    raw: Scanner,
    any: AnyForm,
}

/// The automaton for text where calls in other forms count. It is begun where a text first has a byte that may begin one.
#[derive(Debug)]
struct AnyForm {
    /// What another form's markers must not be: the format's own.
    own: Own,
    patterns: Vec<(Sign, String)>,
    begins: Begins,
    /// `None` where it would be too large.
    scanner: OnceLock<Option<Scanner>>,
}

/// An automaton that is built where the text first needs it: each takes milliseconds, and many texts have no call.
#[derive(Debug)]
struct Later {
    patterns: Vec<(Sign, String)>,
    start: Vec<u8>,
    scanner: OnceLock<Scanner>,
}

/// Up to how many bytes of literal markers, as regular expressions, automata are sure to be small: they need not be
/// built to know that they can be.
const TAME: usize = 16 << 10;

/// One automaton: what steps forward, and regex-automata's own to find where a match began.
#[derive(Debug)]
pub(crate) struct Scanner {
    forward: Forward,
    /// Bytes that leave the start state: those that can begin a marker.
    pub begins: ByteSet,
    /// How many bytes a match may have; brackets before it that exceed that were let go.
    pub longest: usize,
    patterns: Vec<String>,
    /// For each pattern what finds where a match began, built where it is needed; none where that would be too large.
    reverse: Vec<OnceLock<Option<dense::DFA<Vec<u32>>>>>,
    signs: Vec<Sign>,
    /// The text of the start marker, where a match takes in what follows it.
    start: Vec<u8>,
    /// The length of each pattern, where all its matches have the same.
    lengths: Vec<Option<usize>>,
}

#[derive(Debug)]
enum Forward {
    Table(Table),
    Lazy(Box<Lazy>),
}

/// Steps through an automaton.
pub(crate) enum Walk<'s> {
    Table(&'s Table),
    Lazy(&'s Lazy, MutexGuard<'s, Made>),
}

#[derive(Debug, Clone, Copy, Default)]
struct StateInfo {
    matched: Option<u8>,
    matched_at_end: Option<u8>,
    /// Whether a match with precedence over those seen can still come.
    live: bool,
}

/// Where a scan stands. `0` is the start: no marker can be under way.
pub(crate) type State = u16;

pub(crate) const START: State = 0;

/// How much a match may take in around the marker itself.
const AROUND: usize = 32;

/// How many bytes the beginning of a call may have that shows it to be one, in a format without start marker.
const BARE: usize = 512;

/// How long a name may be that shows a call.
const NAME: usize = 64;

/// A marker found in the bytes held back: `[..start]` is before it, `[start..end]` the marker, the rest after it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    pub sign: Sign,
    pub start: usize,
    pub end: usize,
}

impl Markers {
    pub(crate) fn new(declaration: &Declaration) -> Result<Markers> {
        let exact = Patterns::exact(declaration);
        let start_near = near_start(declaration);

        let mut text = exact.all();
        text.extend(start_near.clone());
        text.extend(bare_call(declaration));
        text.extend(near_section(declaration, Side::SectionStart));
        text.extend(near_section(declaration, Side::SectionEnd));

        let mut reasoning = exact.of(&[Side::ReasoningEnd]);
        reasoning.extend(start_in_reasoning(declaration));
        reasoning.extend(start_near.clone().filter(|(sign, _)| sign.lookahead == Lookahead::Brackets));

        let calls = [Side::End, Side::Start, Side::SectionEnd, Side::SectionStart];
        let mut structure = exact.of(&calls);
        structure.extend(near_end(declaration));
        structure.extend(start_near);
        structure.extend(near_section(declaration, Side::SectionEnd));

        // A string may quote a marker. JSON has no raw line break in a string and no string that the text's end
        // cuts, so a marker at either of them proves that a quote is missing; valid JSON is never affected. Closing
        // brackets right before it are held with it: they may be structure that the missing quote swallowed.
        // (No bound on their run: a bounded repetition that can begin anew at each of its signs needs 2^n states.)
        let closers = r"[}\]][}\] \t\r\n]*";
        let mut string = Vec::new();
        for (sign, marker) in exact.of(&calls[..3]) {
            string.push((sign, format!("(?:{closers})?\\r?\\n[ \\t]{{0,8}}(?:{marker})")));
            // What takes in a call's beginning does not end at a line's end.
            if sign.lookahead == Lookahead::None {
                string.push((sign, format!("(?:{closers})?(?:{marker})[ \\t]{{0,8}}(?:\\r?\\n|\\z)")));
            }
        }
        let start = declaration.start.as_ref().and_then(Marker::text).unwrap_or_default().trim().as_bytes().to_vec();
        let reasoning = if declaration.reasoning.is_some() { reasoning } else { Vec::new() };
        let later = |patterns| Later { patterns, start: start.clone(), scanner: OnceLock::new() };
        let plain = Scanner::new(&text, &start)?;
        let any = AnyForm {
            own: Own::of(declaration),
            begins: {
                let thrice: Vec<u8> = THRICE.iter().copied().filter(|byte| !plain.begins.has(*byte)).collect();
                Begins::new(|byte| plain.begins.has(byte) || BEGINS.contains(&byte), &thrice)
            },
            patterns: text,
            scanner: OnceLock::new(),
        };
        let markers = Markers {
            text: plain,
            any,
            reasoning: later(reasoning),
            structure: later(structure),
            string: later(string),
            raw: Scanner::nothing(),
        };
        let later = [&markers.reasoning, &markers.structure, &markers.string];
        let size = later.iter().flat_map(|later| &later.patterns).map(|(_, pattern)| pattern.len()).sum::<usize>();
        if size > TAME || !declaration.markers().all(|marker| matches!(marker, Marker::Literal(_))) {
            for later in later {
                later.build()?.check()?;
            }
            markers.text.check()?;
        }
        Ok(markers)
    }

    pub(crate) fn scanner(&self, context: Context) -> &Scanner {
        match context {
            Context::Text => &self.text,
            Context::AnyForm => self.any.get(&self.text.start).unwrap_or(&self.text),
            Context::Reasoning => self.reasoning.get(),
            Context::Structure => self.structure.get(),
            Context::String => self.string.get(),
            Context::Raw => &self.raw,
        }
    }
}

impl Markers {
    /// The form of a call with a start marker that is not the format's own, by its number.
    pub(crate) fn other_form(&self, text: &[u8]) -> Option<u8> {
        self.any.own.other(text)
    }
}

impl AnyForm {
    fn get(&self, start: &[u8]) -> Option<&Scanner> {
        let build = || {
            let (before, after) = other_forms::patterns(&self.own);
            let patterns: Vec<_> = before.into_iter().chain(self.patterns.iter().cloned()).chain(after).collect();
            Scanner::lazy(&patterns, start).ok()
        };
        self.scanner.get_or_init(build).as_ref()
    }
}

impl Later {
    fn build(&self) -> Result<&Scanner> {
        if self.scanner.get().is_none() {
            let scanner = Scanner::new(&self.patterns, &self.start)?;
            return Ok(self.scanner.get_or_init(|| scanner));
        }
        Ok(self.get())
    }

    /// The automaton. What may be too large for one was built when the format was read.
    fn get(&self) -> &Scanner {
        let build = || Scanner::new(&self.patterns, &self.start).unwrap_or_else(|_| Scanner::nothing());
        self.scanner.get_or_init(build)
    }
}

fn thompson_config() -> thompson::Config {
    thompson::Config::new().utf8(false)
}

/// What finds a match at the beginning of a text.
pub(super) fn beginning(pattern: &str) -> Result<dense::DFA<Vec<u32>>> {
    let config = dense::Config::new().match_kind(MatchKind::LeftmostFirst).start_kind(StartKind::Anchored);
    dense(&[pattern.to_owned()], config, false)
}

/// The automaton of regex-automata for these patterns.
fn dense(patterns: &[String], config: dense::Config, reverse: bool) -> Result<dense::DFA<Vec<u32>>> {
    let config = config.dfa_size_limit(Some(8 << 20)).determinize_size_limit(Some(16 << 20));
    let thompson = thompson_config().reverse(reverse);
    let mut builder = dense::Builder::new();
    builder.configure(config).syntax(syntax_config()).thompson(thompson);
    builder
        .build_many(patterns)
        .map_err(|e| Error::new(ErrorKind::Format, format!("the markers are too complicated: {e}")))
}

impl Scanner {
    /// `start` is the text of the start marker.
    fn new(patterns: &[(Sign, String)], start: &[u8]) -> Result<Scanner> {
        if patterns.is_empty() {
            return Ok(Scanner::nothing());
        }
        Scanner::with(patterns, start, |patterns| {
            let config = dense::Config::new().match_kind(MatchKind::LeftmostFirst).start_kind(StartKind::Unanchored);
            Ok(Forward::Table(Table::take_over(&dense(patterns, config, false)?)?))
        })
    }

    /// The same, with states that are made when a text reaches them.
    fn lazy(patterns: &[(Sign, String)], start: &[u8]) -> Result<Scanner> {
        Scanner::with(patterns, start, |patterns| Ok(Forward::Lazy(Box::new(Lazy::new(patterns)?))))
    }

    fn with(
        patterns: &[(Sign, String)],
        start: &[u8],
        forward: impl FnOnce(&[String]) -> Result<Forward>,
    ) -> Result<Scanner> {
        let (signs, patterns): (Vec<Sign>, Vec<String>) = patterns.iter().cloned().unzip();
        let bounds: Vec<(Option<usize>, Option<usize>)> = patterns
            .iter()
            .map(|pattern| {
                let hir = syntax::parse_with(pattern, &syntax_config());
                hir.map_or((None, None), |hir| (hir.properties().minimum_len(), hir.properties().maximum_len()))
            })
            .collect();
        let lengths: Vec<Option<usize>> = bounds.iter().map(|(least, most)| least.filter(|_| least == most)).collect();
        let longest = bounds.iter().filter_map(|(_, most)| *most).max().unwrap_or(0);
        let around = match () {
            _ if signs.iter().any(|sign| sign.lookahead == Lookahead::All) => BARE,
            _ if signs.iter().any(|sign| sign.lookahead == Lookahead::Head) => AROUND + NAME,
            _ => AROUND,
        };
        // Those without a bound have a bounded marker in them.
        let least = bounds.iter().filter_map(|(least, _)| *least).max().unwrap_or(0) + around;
        let forward = forward(&patterns)?;
        let mut scanner = Scanner {
            forward,
            begins: ByteSet::new(|_| false),
            longest: longest.max(least),
            reverse: patterns.iter().map(|_| OnceLock::new()).collect(),
            patterns,
            signs,
            start: start.to_vec(),
            lengths,
        };
        let mut walk = scanner.walk();
        let begins: Vec<u8> = (0..=255).filter(|&byte| walk.step(START, byte) != START).collect();
        drop(walk);
        scanner.begins = ByteSet::new(|byte| begins.contains(&byte));
        Ok(scanner)
    }

    /// Whether all that may be built later can be.
    fn check(&self) -> Result<()> {
        let varied = (0..self.patterns.len()).filter(|&pattern| self.lengths[pattern].is_none());
        varied.into_iter().try_for_each(|pattern| Scanner::backward(&self.patterns[pattern]).map(drop))
    }

    /// What finds where a match of the pattern began.
    fn backward(pattern: &str) -> Result<dense::DFA<Vec<u32>>> {
        let config = dense::Config::new().match_kind(MatchKind::All).start_kind(StartKind::Anchored);
        dense(&[pattern.to_owned()], config, true)
    }

    /// Finds nothing.
    fn nothing() -> Scanner {
        Scanner {
            forward: Forward::Table(Table::nothing()),
            begins: ByteSet::new(|_| false),
            longest: 0,
            patterns: Vec::new(),
            reverse: Vec::new(),
            signs: Vec::new(),
            start: Vec::new(),
            lengths: Vec::new(),
        }
    }

    pub(crate) fn walk(&self) -> Walk<'_> {
        match &self.forward {
            Forward::Table(table) => Walk::Table(table),
            Forward::Lazy(lazy) => Walk::Lazy(lazy, lazy.made()),
        }
    }

    /// How many bytes at the beginning cannot begin a marker.
    pub(crate) fn plain(&self, bytes: &[u8]) -> usize {
        self.begins.run(bytes)
    }

    /// Whether no marker is, or begins in, `text`.
    pub(crate) fn is_clear_of(&self, text: &[u8]) -> bool {
        let mut walk = self.walk();
        let end = text.iter().try_fold(START, |state, &byte| {
            let next = walk.step(state, byte);
            walk.matched(next).is_none().then_some(next)
        });
        end == Some(START)
    }

    /// The place of the match of `pattern` that ends at `end` in `held`; `None` where its beginning was let go, being too
    /// long for what it may be.
    pub(crate) fn locate(&self, held: &[u8], pattern: u8, end: usize) -> Option<Found> {
        let pattern = usize::from(pattern);
        let sign = self.signs[pattern];
        let start = match self.lengths[pattern] {
            Some(length) => end.checked_sub(length)?,
            None => {
                let reverse = self.reverse[pattern].get_or_init(|| Scanner::backward(&self.patterns[pattern]).ok());
                let input = Input::new(held).span(0..end).anchored(Anchored::Yes);
                let found = reverse.as_ref().and_then(|reverse| reverse.try_search_rev(&input).ok().flatten());
                match found {
                    Some(half) => half.offset(),
                    None if sign.lookahead == Lookahead::None => 0,
                    None => return None,
                }
            }
        };
        let count = |end: usize, of: &[u8]| held[start..end].iter().rev().take_while(|b| of.contains(b)).count();
        let end = match sign.lookahead {
            Lookahead::None => end,
            Lookahead::Brackets => end - count(end, b"{[` \t\r\n"),
            Lookahead::Letter => end - 1 - count(end - 1, b"[ \t\r\n"),
            Lookahead::Head => {
                let marker = self.start.len();
                let at = held[start..end].windows(marker.max(1)).rposition(|text| text == &*self.start);
                at.map_or(end, |at| start + at + marker)
            }
            Lookahead::Start => {
                let marker = self.start.len().max(1);
                let at = held[start..end].windows(marker).rposition(|text| text == &*self.start);
                at.map_or(end, |at| start + at)
            }
            Lookahead::All => start,
        };
        Some(Found { sign, start, end })
    }

    /// How many states there are.
    #[cfg(test)]
    fn len(&self) -> usize {
        match &self.forward {
            Forward::Table(table) => table.states.len(),
            Forward::Lazy(lazy) => lazy.made().len(),
        }
    }
}

impl Walk<'_> {
    pub(crate) fn step(&mut self, state: State, byte: u8) -> State {
        match self {
            Walk::Table(table) => table.step(state, byte),
            Walk::Lazy(lazy, made) => lazy.step(made, state, byte),
        }
    }

    fn info(&self, state: State) -> StateInfo {
        match self {
            Walk::Table(table) => table.states[usize::from(state)],
            Walk::Lazy(_, made) => made.info(state),
        }
    }

    /// The pattern that ends in this state, whatever follows.
    pub(crate) fn matched(&self, state: State) -> Option<u8> {
        self.info(state).matched
    }

    /// The pattern that ends in this state if the text ends too.
    pub(crate) fn matched_at_end(&self, state: State) -> Option<u8> {
        self.info(state).matched_at_end
    }

    /// Whether a match that takes precedence over the ones so far can still come.
    pub(crate) fn can_go_on(&mut self, state: State) -> bool {
        match self {
            Walk::Table(table) => table.states[usize::from(state)].live,
            Walk::Lazy(lazy, made) => lazy.can_go_on(made, state),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn markers(start: &str, end: &str) -> Markers {
        let [start, end] = [start, end].map(|text| Some(Marker::Literal(text.into())));
        Markers::new(&Declaration { start, end, ..Declaration::default() }).unwrap()
    }

    fn delimited() -> Markers {
        markers("### TOOL_CALL_START ###", "### TOOL_CALL_END ###")
    }

    #[test]
    fn only_the_bytes_of_a_marker_leave_the_start() {
        let markers = delimited();
        let begins = |context| (0..=255u8).filter(|&b| markers.scanner(context).begins.has(b)).collect::<Vec<_>>();
        assert_eq!(begins(Context::Text), b"#");
        assert_eq!(begins(Context::Structure), b"#");
        assert_eq!(begins(Context::String), b"\n\r#]}");
        let text = markers.scanner(Context::Text);
        let state = b"# Title".iter().fold(START, |state, &b| text.walk().step(state, b));
        assert_eq!(state, START, "a heading lets go of what was held");
        for context in [Context::Text, Context::Structure, Context::String] {
            let scanner = markers.scanner(context);
            assert!(scanner.len() < 2000 && scanner.longest < 128, "{context:?}: {} states", scanner.len());
        }
    }

    #[test]
    fn what_begins_a_call_three_times_in_a_row_does_not_do_so_by_itself() {
        for format in crate::format::Format::builtins().iter().map(|builtin| builtin.format()) {
            let markers = Markers::new(format).unwrap();
            let scanner = markers.any.get(&markers.text.start).unwrap();
            for first in THRICE.into_iter().filter(|byte| !markers.text.begins.has(*byte)) {
                let after = |text: &[u8]| text.iter().fold(START, |state, &byte| scanner.walk().step(state, byte));
                for next in (0..=255).filter(|next| *next != first) {
                    assert_eq!(after(&[first, next]), after(&[next]), "{}: {first} {next}", format.name);
                    assert_eq!(after(&[first, first, next]), after(&[next]), "{}: {first} {next}", format.name);
                }
            }
        }
    }

    #[test]
    fn an_exact_marker_is_known_with_its_last_byte() {
        let markers = delimited();
        let text = markers.scanner(Context::Text);
        let state = b"so: ### TOOL_CALL_START ###".iter().fold(START, |state, &b| text.walk().step(state, b));
        assert!(text.walk().matched(state).is_some());
        assert!(!text.walk().can_go_on(state));
    }

    #[test]
    fn a_marker_without_bound_is_refused() {
        let error = Marker::Pattern { pattern: "<call.*>".into(), text: None }.longest();
        assert_eq!(error.unwrap_err().to_string(), "a marker can grow without end; write `[ ]{0,3}` for `[ ]*`");
    }
}
