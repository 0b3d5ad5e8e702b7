//! Finds a format's markers in text that arrives in pieces.
//!
//! `contains(marker)` on the text so far costs the whole text at every token, and on the newest token it misses a
//! marker that spans two tokens. Here the markers of a format, and their usual misspellings, become one automaton per
//! context. It runs byte by byte, only from a byte that can begin a marker until no marker is possible; only the bytes in
//! between are ever held back. Its states are created when a text first reaches them. The automaton of regex-automata is
//! not used directly because it reports a match one byte late: a call would seem open until the model continues after
//! its end marker.

mod begins;
mod lazy;
pub(super) mod patterns;
mod plain;
mod stray;

use super::bytes::ByteSet;
use super::other_forms::{self, BEGINS, Own, Signs, THRICE};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Declaration, Marker};
use begins::Begins;
use lazy::{Lazy, Made};
use patterns::{
    Patterns, bare_call, call_in_string, near_attribute, near_end, near_recipient, near_section, near_start,
    start_in_reasoning, start_in_reasoning_with_other_suffix, syntax_config, with_other_suffix,
};
use regex_automata::dfa::{Automaton as _, StartKind, dense};
use regex_automata::nfa::thompson;
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input, MatchKind};
use std::collections::HashSet;
use std::sync::{MutexGuard, OnceLock};

pub(crate) use plain::Candidate;

/// The meaning of a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sign {
    pub side: Side,
    /// Whether it is the marker as declared, or a near miss.
    pub exact: bool,
    pub(super) lookahead: Lookahead,
}

impl Sign {
    /// Returns whether the match includes the beginning of a call.
    pub(crate) fn is_head(self) -> bool {
        self.exact && self.lookahead == Lookahead::Head
    }

    /// Returns whether it is a marker only if the name of a known tool follows.
    pub(crate) fn needs_tool(self) -> bool {
        matches!(self.lookahead, Lookahead::Attribute | Lookahead::Recipient)
    }
}

/// How much of the payload a match includes, to distinguish a marker from prose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lookahead {
    None,
    /// White space and brackets, or the beginning of a code fence.
    Brackets,
    /// The text up to and including the first letter of a name.
    Letter,
    /// The name after an attribute, and the end of its tag.
    Attribute,
    /// The name after an equals sign, and the end of the header.
    Recipient,
    /// Everything after the start marker's text.
    Head,
    /// The next start marker, whose first byte occurs so many times before it.
    Start(u8),
    /// The beginning of a call's object.
    Object,
    /// The whole match is payload.
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
    /// Start of hidden text.
    Hidden,
    /// A call in a format without a start marker.
    Bare,
    /// The beginning of a call in another form, by its number.
    Other(u8),
    /// End of a section in another form.
    OtherEnd,
    /// Markup without a call; exact where text may follow.
    Stray,
    /// Tags around calls, without any.
    EmptySection,
    /// A code fence.
    Fence,
}

/// The context of the bytes, which determines the possible markers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Context {
    /// Outside of calls.
    Text,
    /// Outside calls, with calls in other forms.
    AnyForm,
    /// In reasoning.
    Reasoning,
    /// In a call, outside of strings.
    Structure,
    /// In a call, inside a JSON string.
    String,
    /// In a call without markers: the payload's reader looks for the end itself.
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

/// The automaton for text with calls in other forms. It is started at the first byte of a text that may begin one.
#[derive(Debug)]
struct AnyForm {
    /// The format's own markers, which other forms must not match.
    own: Own,
    /// The text of the format's own start markers.
    starts: Vec<Vec<u8>>,
    patterns: Vec<(Sign, String)>,
    /// Markup without a call, before and after the format's own markers.
    stray: (Signs, Signs),
    begins: Begins,
    /// `None` if it would be too large.
    scanner: OnceLock<Option<Scanner>>,
}

/// An automaton that is built on first use: many texts have no call.
#[derive(Debug)]
struct Later {
    patterns: Vec<(Sign, String)>,
    start: Vec<u8>,
    scanner: OnceLock<Scanner>,
}

/// If literal markers have at most this many bytes as regular expressions, their automata are certainly small enough,
/// and need not be built whole to check this.
const TAME: usize = 16 << 10;

/// Maximum number of states of a format's own markers: all that a [`State`] can number.
const OWN_STATES: usize = State::MAX as usize;

/// Maximum number of states that texts create of all other forms together.
const OTHER_STATES: usize = 16 << 10;

/// An automaton that steps forward, and regex-automata's own to find where a match began.
#[derive(Debug)]
pub(crate) struct Scanner {
    /// `None` if there is nothing to find.
    forward: Option<Box<Lazy>>,
    /// Bytes that leave the start state: those that can begin a marker.
    pub begins: ByteSet,
    /// Maximum length of a match; longer runs of brackets before it were released.
    pub longest: usize,
    patterns: Vec<String>,
    /// For each pattern, an automaton that finds where a match began, built on first use; `None` if that would be too
    /// large.
    reverse: Vec<OnceLock<Option<dense::DFA<Vec<u32>>>>>,
    signs: Vec<Sign>,
    /// The text of the start marker, if a match includes what follows it.
    start: Vec<u8>,
    /// The length of each pattern, if all its matches have the same.
    lengths: Vec<Option<usize>>,
}

/// Steps through an automaton.
pub(crate) struct Walk<'s>(Option<(&'s Lazy, MutexGuard<'s, Made>)>);

#[derive(Debug, Clone, Copy, Default)]
struct StateInfo {
    matched: Option<u8>,
    matched_at_end: Option<u8>,
}

/// State of a scan. `0` is the start: no marker has begun.
pub(crate) type State = u16;

pub(crate) const START: State = 0;

/// Maximum text around a marker that a match may include.
const AROUND: usize = 32;

/// Maximum length of the beginning that identifies a call in a format without start marker.
const BARE: usize = 512;

/// Maximum length of a name that identifies a call.
const NAME: usize = 64;

/// A marker in the held bytes: `[..start]` is before it, `[start..end]` the marker, the rest after it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    pub sign: Sign,
    pub start: usize,
    pub end: usize,
}

/// The patterns of a format in each context.
struct Contexts {
    text: Vec<(Sign, String)>,
    reasoning: Vec<(Sign, String)>,
    structure: Vec<(Sign, String)>,
    string: Vec<(Sign, String)>,
}

impl Contexts {
    fn of(declaration: &Declaration) -> Contexts {
        let exact = Patterns::exact(declaration);
        let start_near = near_start(declaration).into_iter();
        let start_near = start_near.chain(near_attribute(declaration)).chain(near_recipient(declaration));

        let mut text = exact.all();
        let other_suffix = with_other_suffix(declaration);
        text.extend(other_suffix.clone());
        text.extend(start_near.clone());
        text.extend(bare_call(declaration));
        text.extend(near_section(declaration, Side::SectionStart));
        text.extend(near_section(declaration, Side::SectionEnd));

        let mut reasoning = exact.of(&[Side::ReasoningEnd]);
        reasoning.extend(start_in_reasoning(declaration));
        reasoning.extend(other_suffix.into_iter().filter(|(sign, _)| sign.side == Side::ReasoningEnd));
        reasoning.extend(start_in_reasoning_with_other_suffix(declaration));
        reasoning.extend(start_near.clone().filter(|(sign, _)| sign.lookahead != Lookahead::Letter));

        let calls = [Side::End, Side::Start, Side::SectionEnd, Side::SectionStart];
        let mut structure = exact.of(&calls);
        structure.extend(near_end(declaration));
        structure.extend(start_near);
        structure.extend(near_section(declaration, Side::SectionEnd));

        // A string may quote a marker. JSON has no raw line break in a string and no string cut by the end of the text,
        // so a marker next to either proves that a quote is missing; valid JSON is never affected. Closing brackets
        // right before it are held with it: they may be structure inside the unclosed string. (Their number is
        // unbounded: a bounded repetition that can restart at each bracket needs 2^n states.)
        let closers = r"[}\]][}\] \t\r\n]*";
        let mut string = Vec::new();
        for (sign, marker) in exact.of(&calls[..3]) {
            string.push((sign, format!("(?:{closers})?\\r?\\n[ \\t]{{0,8}}(?:{marker})")));
            // A match that includes a call's beginning does not end at a line's end.
            if sign.lookahead == Lookahead::None {
                string.push((sign, format!("(?:{closers})?(?:{marker})[ \\t]{{0,8}}(?:\\r?\\n|\\z)")));
            }
        }
        string.extend(call_in_string(declaration));
        let reasoning = if declaration.reasoning.is_some() { reasoning } else { Vec::new() };
        Contexts { text, reasoning, structure, string }
    }

    /// Returns whether the automata are small enough, which need not be built whole to know it.
    fn are_tame(&self, declaration: &Declaration) -> bool {
        let all = [&self.text, &self.reasoning, &self.structure, &self.string];
        let size: usize = all.into_iter().flatten().map(|(_, pattern)| pattern.len()).sum();
        size <= TAME && declaration.markers().all(|marker| matches!(marker, Marker::Literal(_)))
    }
}

impl Markers {
    /// Returns whether [`Markers::new`] is known not to fail.
    pub(crate) fn are_tame(declaration: &Declaration) -> bool {
        Contexts::of(declaration).are_tame(declaration)
    }

    pub(crate) fn new(declaration: &Declaration) -> Result<Markers> {
        let contexts = Contexts::of(declaration);
        let tame = contexts.are_tame(declaration);
        let Contexts { text, reasoning, structure, string } = contexts;
        let start = declaration.start.as_ref().and_then(Marker::text).unwrap_or_default().trim().as_bytes().to_vec();
        let later = |patterns| Later { patterns, start: start.clone(), scanner: OnceLock::new() };
        let plain = Scanner::new(&text, &start)?;
        let any = AnyForm {
            own: Own::of(declaration),
            starts: {
                let section = declaration.section.as_ref().map(|section| &section.start);
                let starts = [section, declaration.start.as_ref()].into_iter().flatten().filter_map(Marker::text);
                starts.map(|text| text.trim().as_bytes().to_vec()).filter(|text| !text.is_empty()).collect()
            },
            begins: {
                let thrice: Vec<u8> = THRICE.iter().copied().filter(|byte| !plain.begins.has(*byte)).collect();
                Begins::new(|byte| plain.begins.has(byte) || BEGINS.contains(&byte), &thrice)
            },
            patterns: text,
            stray: stray::patterns(declaration),
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
        if !tame {
            for later in [&markers.reasoning, &markers.structure, &markers.string] {
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
    /// The number of the form of a call whose start marker is not the format's own.
    pub(crate) fn other_form(&self, text: &[u8]) -> Option<u8> {
        self.any.own.other(text)
    }
}

impl AnyForm {
    fn get(&self, start: &[u8]) -> Option<&Scanner> {
        let build = || {
            let (before, after) = other_forms::patterns(&self.own);
            let (first, last) = self.stray.clone();
            let own = self.patterns.iter().cloned();
            let patterns: Vec<_> = first.into_iter().chain(before).chain(own).chain(after).chain(last).collect();
            Scanner::of(&patterns, start, OTHER_STATES).ok()
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

    /// The automaton. One that may be too large was checked when the format was read.
    fn get(&self) -> &Scanner {
        let build = || Scanner::new(&self.patterns, &self.start).unwrap_or_else(|_| Scanner::nothing());
        self.scanner.get_or_init(build)
    }
}

fn is_in_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_.:/-".contains(&byte)
}

fn thompson_config() -> thompson::Config {
    thompson::Config::new().utf8(false)
}

/// An automaton that matches at the beginning of a text.
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
        .map_err(|e| Error::new(ErrorKind::Format, format!("the markers are too complicated: {e}")).caused_by(e))
}

impl Scanner {
    /// A scanner for a format's own markers. `start` is the text of the start marker.
    fn new(patterns: &[(Sign, String)], start: &[u8]) -> Result<Scanner> {
        Scanner::of(patterns, start, OWN_STATES)
    }

    /// The same with at most `most` states.
    fn of(patterns: &[(Sign, String)], start: &[u8], most: usize) -> Result<Scanner> {
        if patterns.is_empty() {
            return Ok(Scanner::nothing());
        }
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
            _ if signs.iter().any(|sign| matches!(sign.lookahead, Lookahead::Head | Lookahead::Object)) => {
                AROUND + NAME
            }
            _ => AROUND,
        };
        // Unbounded patterns contain a bounded marker.
        let least = bounds.iter().filter_map(|(least, _)| *least).max().unwrap_or(0) + around;
        let forward = Some(Box::new(Lazy::new(&patterns, most)?));
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

    /// Checks that there will be room for all states, and that every automaton can be built later.
    fn check(&self) -> Result<()> {
        if self.states()? > OWN_STATES {
            return Err(Error::new(ErrorKind::Format, "the markers are too complicated: more than 65,535 states"));
        }
        let varied = (0..self.patterns.len()).filter(|&pattern| self.lengths[pattern].is_none());
        varied.into_iter().try_for_each(|pattern| Scanner::backward(&self.patterns[pattern]).map(drop))
    }

    /// The number of states that a text can reach.
    fn states(&self) -> Result<usize> {
        if self.patterns.is_empty() {
            return Ok(1);
        }
        let config = dense::Config::new().match_kind(MatchKind::LeftmostFirst).start_kind(StartKind::Unanchored);
        let whole = dense(&self.patterns, config, false)?;
        let start = whole.start_state_forward(&Input::new("")).map_err(|e| {
            Error::new(ErrorKind::Format, format!("the markers cannot be searched for: {e}")).caused_by(e)
        })?;
        let mut found = HashSet::from([start]);
        let mut open = vec![start];
        while let Some(state) = open.pop() {
            let next = whole.byte_classes().representatives(..).filter_map(|unit| unit.as_u8());
            open.extend(next.map(|byte| whole.next_state(state, byte)).filter(|next| found.insert(*next)));
        }
        Ok(found.len())
    }

    /// An automaton that finds where a match of the pattern began.
    fn backward(pattern: &str) -> Result<dense::DFA<Vec<u32>>> {
        let config = dense::Config::new().match_kind(MatchKind::All).start_kind(StartKind::Anchored);
        dense(&[pattern.to_owned()], config, true)
    }

    /// Finds nothing.
    fn nothing() -> Scanner {
        Scanner {
            forward: None,
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
        Walk(self.forward.as_deref().map(|lazy| (lazy, lazy.made())))
    }

    /// Number of bytes at the beginning that cannot begin a marker.
    pub(crate) fn plain(&self, bytes: &[u8]) -> usize {
        self.begins.run(bytes)
    }

    /// Returns whether no marker is in `text` or begins in it.
    pub(crate) fn is_clear_of(&self, text: &[u8]) -> bool {
        let mut walk = self.walk();
        let end = text.iter().try_fold(START, |state, &byte| {
            let next = walk.step(state, byte);
            walk.matched(next).is_none().then_some(next)
        });
        end == Some(START)
    }

    /// The match of `pattern` that ends at `end` in `held`; `None` if its beginning was released because it was too
    /// long.
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
            Lookahead::Start(before) => {
                let first = |(_, byte): &(usize, &u8)| self.start.first() == Some(*byte);
                let mut places = held[start..end].iter().enumerate().filter(first);
                places.nth(usize::from(before)).map_or(end, |(at, _)| start + at)
            }
            Lookahead::Attribute => {
                let end = end - count(end, b">/ \t\"'`");
                end - held[start..end].iter().rev().take_while(|&&byte| is_in_name(byte)).count()
            }
            Lookahead::Recipient => {
                let at = held[start..end].iter().rposition(|byte| *byte == b'=').map_or(end, |at| start + at + 1);
                at + held[at..end].iter().take_while(|byte| **byte == b' ').count()
            }
            Lookahead::Object => held[start..end].iter().position(|byte| *byte == b'{').map_or(end, |at| start + at),
            Lookahead::All => start,
        };
        Some(Found { sign, start, end })
    }
}

impl Walk<'_> {
    pub(crate) fn step(&mut self, state: State, byte: u8) -> State {
        match &mut self.0 {
            Some((lazy, made)) => lazy.step(made, state, byte),
            None => START,
        }
    }

    fn info(&self, state: State) -> StateInfo {
        self.0.as_ref().map_or_else(StateInfo::default, |(_, made)| made.info(state))
    }

    /// The pattern that ends in this state, whatever follows.
    pub(crate) fn matched(&self, state: State) -> Option<u8> {
        self.info(state).matched
    }

    /// The pattern that ends in this state at the end of the text.
    pub(crate) fn matched_at_end(&self, state: State) -> Option<u8> {
        self.info(state).matched_at_end
    }

    /// Returns whether a match with precedence over those seen is still possible.
    pub(crate) fn can_go_on(&mut self, state: State) -> bool {
        self.0.as_mut().is_some_and(|(lazy, made)| lazy.can_go_on(made, state))
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
            let states = scanner.states().unwrap();
            assert!(states < 2000 && scanner.longest < 128, "{context:?}: {states} states");
        }
    }

    #[test]
    fn a_single_byte_of_a_triple_does_not_begin_a_call() {
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
    fn markers_with_more_states_than_there_is_room_for_are_refused() {
        let start = |pattern: &str| Some(Marker::Pattern { pattern: pattern.to_owned(), text: None });
        let new = |pattern| Markers::new(&Declaration { start: start(pattern), ..Declaration::default() });
        // Where such a marker began is one of 2^n cases.
        let error = new("a[ab]{16}x").unwrap_err();
        assert_eq!(error.to_string(), "the markers are too complicated: more than 65,535 states");

        // One that is not refused is found even after a text that has reached tens of thousands of states.
        let markers = new("a[ab]{13}x").unwrap();
        let text = markers.scanner(Context::Text);
        let (mut walk, mut state, mut random) = (text.walk(), START, 1u32);
        for _ in 0..400_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state = walk.step(state, if random >> 31 == 0 { b'a' } else { b'b' });
            assert_eq!(walk.matched(state), None);
        }
        let end = b"aaaaaaaaaaaaaax".iter().fold(state, |state, &byte| walk.step(state, byte));
        assert!(walk.matched(end).is_some());
        assert!(text.states().unwrap() > OTHER_STATES);
    }

    #[test]
    fn a_marker_without_bound_is_refused() {
        let error = Marker::Pattern { pattern: "<call.*>".into(), text: None }.longest();
        assert_eq!(error.unwrap_err().to_string(), "a marker can grow without end; write `[ ]{0,3}` for `[ ]*`");
    }
}
