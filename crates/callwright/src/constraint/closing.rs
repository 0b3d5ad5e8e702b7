//! Finds completions: a text that ends a call, from every state of its grammar.
//!
//! A matcher says which tokens may come next, not which of them lead to the end. A [`Closer`] follows the grammar in
//! parallel, byte by byte, and finds a text that ends it. Usually this is the rest of the previous completion.
//! Otherwise it searches the lexer's states within a token of the grammar, and between such tokens prefers closing to
//! opening.

use super::masks::Masks;
use crate::grammar::budget;
use llguidance::TokenParser;
use llguidance::derivre::{NextByte, StateID};
use llguidance::earley::{BiasComputer, Parser, ParserRecognizer};
use llguidance::panic_utils::catch_unwind;
use llguidance::toktrie::{Recognizer, SimpleVob, TokEnv, TokTrie};
use std::collections::{HashMap, HashSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

/// Maximum lexer states that a search visits after each token: about ten milliseconds.
pub(super) const EFFORT: usize = 1500;
/// The same for the first search of a grammar, whose result all others use: at worst a second, once.
pub(super) const FIRST_EFFORT: usize = 100_000;
/// Of these, the states within one token of the grammar: breadth first up to this number, then depth first. If that is
/// not enough either, the search continues from there.
const NEAR: usize = 120;
const FAR: usize = 600;
/// Texts that led on from a lexer state, to try when it occurs again.
const KNOWN: usize = 4;
/// Lexer states to visit after the first that leads on, in search of a better one.
const MORE: usize = 50;
/// Number of different continuations to keep after one token of the grammar.
const EXITS: usize = 12;
/// Number of completions that are found but too long, before the search ends.
const MISSES: usize = 3;
/// Number of places in one token of the grammar at which to try ending everything.
const ENDS: usize = 4;
/// Number of repetitions of a character that count as filler.
const FILLED: usize = 12;
/// A continuation that neither opens anything nor is only white space is preferred even if it is this much longer.
const OPENING: usize = 40;

/// The closing texts of a format, other than punctuation.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ends {
    /// The texts after a value.
    pub values: Vec<String>,
    /// The texts after a call, and after all calls.
    pub calls: Vec<String>,
}

/// Follows a grammar to find completions.
#[derive(Clone)]
pub(super) struct Closer {
    parser: Parser,
    tokens: TokEnv,
    ends: Arc<Ends>,
    /// Whether the grammar engine failed, so that nothing more is known.
    broken: bool,
}

/// How to search the lexer's states within one token of the grammar.
#[derive(Clone, Copy)]
enum Reach<'a> {
    /// Only visit the ends of these texts.
    Known(&'a [Vec<u8>]),
    /// Breadth first.
    Near,
    /// Depth first.
    Straight,
}

/// The continuations within one token of the grammar.
#[derive(Default)]
struct Expansion {
    /// Texts after which everything may end.
    ends: Vec<Vec<u8>>,
    /// Texts that end the token and begin another, with their costs.
    exits: Vec<(usize, Vec<u8>)>,
}

impl Closer {
    /// A closer at the beginning of a grammar; `None` for grammars (with `stop=` or `max_tokens=`) that cannot
    /// backtrack.
    pub(super) fn new(parser: &TokenParser, ends: Arc<Ends>) -> Option<Closer> {
        let (parser, tokens) = (parser.parser.clone(), parser.token_env.clone());
        parser.grammar().lexer_spec().can_rollback().then_some(Closer { parser, tokens, ends, broken: false })
    }

    /// Takes bytes that the grammar allows.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.guarded(|closer| closer.apply(bytes).then_some(()));
    }

    /// Undoes the last bytes.
    pub(super) fn pop(&mut self, count: usize) {
        self.guarded(|closer| closer.parser.rollback(count).ok());
    }

    /// A text that ends the grammar and for which `fits` holds; `None` if none was found with this `effort`.
    ///
    /// Shorter completions are preferred, but the shortest may be missed. `before` is the completion that was known
    /// `taken` bytes ago. Suffixes of it are tried first: in text of any length all of it is still valid, in text of a
    /// fixed length the written part has to be removed.
    pub(super) fn completion(
        &mut self,
        before: &[u8],
        taken: usize,
        effort: usize,
        fits: &dyn Fn(&[u8]) -> bool,
    ) -> Option<Vec<u8>> {
        self.guarded(|closer| {
            closer.refuel();
            if closer.is_end() {
                return Some(Vec::new());
            }
            let taken = taken.min(before.len());
            let rest = (0..=taken).rev().chain(taken + 1..before.len()).map(|skip| &before[skip..]);
            for rest in rest {
                if !rest.is_empty() && closer.leads_out(rest) && fits(rest) {
                    return Some(rest.to_vec());
                }
            }
            let found = closer.search(before, effort, fits);
            closer.refuel();
            found
        })
    }

    /// The same completion with other fillers, which take fewer tokens.
    pub(super) fn denser(
        &mut self,
        completion: Vec<u8>,
        fillers: &[Vec<u8>],
        tokens: &dyn Fn(&[u8]) -> usize,
    ) -> Vec<u8> {
        let runs: Vec<&[u8]> = completion.chunk_by(|a, b| a == b).collect();
        if runs.iter().all(|run| run.len() < FILLED) {
            return completion;
        }
        let filled = |filler: &Vec<u8>| -> Vec<u8> {
            let text = |run: &&[u8]| -> Vec<u8> {
                if run.len() < FILLED { run.to_vec() } else { filler.iter().copied().cycle().take(run.len()).collect() }
            };
            runs.iter().flat_map(text).collect()
        };
        let others = fillers.iter().map(filled).filter(|other| {
            self.guarded(|closer| {
                closer.refuel();
                closer.leads_out(other).then_some(())
            })
            .is_some()
        });
        let best = others.min_by_key(|other| tokens(other));
        best.filter(|best| tokens(best) < tokens(&completion)).unwrap_or(completion)
    }

    /// The grammar engine limits the work on the lexer between two masks, for all that follow a grammar, and fails
    /// permanently when it is used up. Beginning a mask renews it.
    fn refuel(&mut self) {
        self.parser.invalidate_bias_cache();
        self.parser.compute_bias(&NoMask(self.tokens.clone()), b"");
        self.parser.invalidate_bias_cache();
    }

    /// The mask of the next tokens; `None` if the grammar engine has failed.
    pub(super) fn mask(&mut self, masks: &Masks) -> Option<SimpleVob> {
        self.guarded(|closer| {
            let mask = closer.parser.compute_bias(masks, b"");
            closer.broken |= closer.parser.get_error().is_some();
            (!closer.broken).then_some(mask)
        })
    }

    /// Runs code that may fail in the grammar engine; a panic there ends this closer, not the program.
    fn guarded<T>(&mut self, work: impl FnOnce(&mut Closer) -> Option<T>) -> Option<T> {
        if self.broken {
            return None;
        }
        match catch_unwind(AssertUnwindSafe(|| Ok(work(self)))) {
            Ok(found) => found,
            Err(_) => {
                self.broken = true;
                None
            }
        }
    }

    fn apply(&mut self, bytes: &[u8]) -> bool {
        // The token's id only matters if a grammar refers to tokens by id.
        let applied = bytes.is_empty() || self.parser.apply_token(bytes, 0).is_ok_and(|back| back == 0);
        self.broken |= !applied || self.parser.get_error().is_some();
        !self.broken
    }

    fn is_end(&mut self) -> bool {
        self.parser.is_accepting()
    }

    fn leads_out(&mut self, completion: &[u8]) -> bool {
        let fits = self.speculate(|grammar| completion.iter().all(|byte| grammar.try_push_byte(*byte)));
        if !fits || !self.apply(completion) {
            return false;
        }
        let ends = self.is_end();
        self.broken |= self.parser.rollback(completion.len()).is_err();
        ends && !self.broken
    }

    /// Tries bytes, and undoes them.
    fn speculate<T>(&mut self, work: impl FnOnce(&mut ParserRecognizer<'_>) -> T) -> T {
        self.parser.with_recognizer(|grammar| {
            grammar.trie_started("closing");
            let found = work(grammar);
            grammar.trie_finished();
            found
        })
    }

    fn search(&mut self, before: &[u8], effort: usize, fits: &dyn Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
        let mut path = Vec::new();
        let found = self.descend(&mut path, before, effort, fits);
        self.broken |= self.parser.rollback(path.len()).is_err();
        found
    }

    /// Depth first, from one token of the grammar to the next; `path` is the text so far.
    fn descend(
        &mut self,
        path: &mut Vec<u8>,
        before: &[u8],
        mut effort: usize,
        fits: &dyn Fn(&[u8]) -> bool,
    ) -> Option<Vec<u8>> {
        let mut misses = 0;
        // Texts that led on from a lexer state: in a list each item begins in the same one.
        let mut known: HashMap<StateID, Vec<Vec<u8>>> = HashMap::new();
        // For each place on the path: the remaining continuations, the best last, and the path's length.
        let mut places: Vec<(Vec<Vec<u8>>, usize)> = Vec::new();
        loop {
            effort = effort.saturating_sub(1);
            // The empty rest first: the grammar may already be at its end.
            let mut rests = (0..=before.len()).rev().map(|skip| &before[skip..]);
            let mut completion = rests.find(|rest| self.leads_out(rest)).map(<[u8]>::to_vec);
            let mut expansion = Expansion::default();
            if completion.is_none() {
                self.refuel();
                self.end_value(&mut expansion, false);
                let state = self.speculate(|grammar| grammar.lexer_state());
                let stems = known.get(&state).cloned().unwrap_or_default();
                for reach in [Reach::Known(&stems), Reach::Near, Reach::Straight] {
                    if expansion.exits.is_empty() && expansion.ends.is_empty() {
                        self.expand(reach, &mut effort, &mut expansion);
                        self.refuel();
                    }
                }
                if expansion.exits.is_empty() && expansion.ends.is_empty() {
                    self.end_value(&mut expansion, true);
                }
                expansion.exits.sort_by_key(|(cost, _)| *cost);
                if stems.is_empty() {
                    let exits = expansion.exits.iter().map(|(_, text)| &text[..text.len().saturating_sub(1)]);
                    let stems = exits.chain(expansion.ends.iter().map(Vec::as_slice));
                    known.insert(state, stems.take(KNOWN).map(<[u8]>::to_vec).collect());
                }
                completion = expansion.ends.iter().find(|end| self.leads_out(end)).cloned();
            }
            if let Some(completion) = completion {
                let whole = [path.as_slice(), &completion].concat();
                if fits(&whole) {
                    return Some(whole);
                }
                misses += 1;
            }
            places.push((expansion.exits.into_iter().rev().map(|(_, text)| text).collect(), path.len()));
            // Continue with the best one left, here or further back.
            loop {
                let (exits, length) = places.last_mut()?;
                let surplus = path.len() - *length;
                let over = effort == 0 || budget::check().is_err();
                if self.broken || over || misses >= MISSES || self.parser.rollback(surplus).is_err() {
                    return None;
                }
                path.truncate(*length);
                if let Some(next) = exits.pop() {
                    if !self.apply(&next) {
                        return None;
                    }
                    path.extend(next);
                    break;
                }
                places.pop();
            }
        }
    }

    /// Ends a value with the format's closing text, filled up if it is too short. In some formats a value and its end
    /// are one complex token of the grammar, in which each state takes long to compute. The grammar engine may notice that such a
    /// token is over only `with_next`, the byte after it.
    fn end_value(&mut self, found: &mut Expansion, with_next: bool) {
        let ends = Arc::clone(&self.ends);
        self.speculate(|grammar| {
            for end in ends.values.iter().filter(|end| !end.is_empty()) {
                for filled in std::iter::once(0).chain((0..9).map(|power| 1 << power)) {
                    let fill = std::iter::repeat_n(b'a', filled).chain(end.bytes());
                    let rows = rows(grammar);
                    let pushed = fill.clone().take_while(|byte| grammar.try_push_byte(*byte)).count();
                    let (whole, ended) = (pushed == filled + end.len(), self::rows(grammar) != rows);
                    let mut ends = |byte: &u8| {
                        let rows = self::rows(grammar);
                        let pushed = grammar.try_push_byte(*byte);
                        let ended = pushed && self::rows(grammar) != rows;
                        grammar.pop_bytes(usize::from(pushed));
                        ended
                    };
                    let next = if whole && with_next { bytes().find(&mut ends) } else { None };
                    grammar.pop_bytes(pushed);
                    if whole && (ended || next.is_some()) {
                        found.exits.push((0, fill.chain(next).collect()));
                        return;
                    }
                    if pushed < filled {
                        break;
                    }
                }
            }
        });
    }

    /// Searches the lexer's states up to the texts that end the current token of the grammar.
    fn expand(&mut self, reach: Reach<'_>, effort: &mut usize, found: &mut Expansion) {
        let Expansion { ends, exits } = found;
        let format = Arc::clone(&self.ends);
        let straight = matches!(reach, Reach::Straight);
        let (mut left, begin) = match reach {
            Reach::Known(texts) => (texts.len(), texts.to_vec()),
            Reach::Near => (NEAR, vec![Vec::new()]),
            Reach::Straight => (FAR, vec![Vec::new()]),
        };
        self.speculate(|grammar| {
            let mut reached: HashSet<StateID> = HashSet::new();
            let mut seen = HashSet::from([grammar.lexer_state()]);
            let mut queue = VecDeque::from(begin);
            // The current position in the grammar.
            let mut at: Vec<u8> = Vec::new();
            let mut farthest = Vec::new();
            while let Some(completion) = if straight { queue.pop_back() } else { queue.pop_front() } {
                if *effort == 0 || left == 0 || exits.len() >= EXITS {
                    break;
                }
                (*effort, left) = (*effort - 1, left - 1);
                let common = at.iter().zip(&completion).take_while(|(a, b)| a == b).count();
                grammar.pop_bytes(at.len() - common);
                at.truncate(common);
                at.extend(completion[common..].iter().take_while(|byte| grammar.try_push_byte(**byte)));
                if at != completion {
                    continue;
                }
                let state = grammar.lexer_state();
                if !completion.is_empty() && ends.len() < ENDS && !grammar.lexer_mut().try_lexeme_end(state).is_error()
                {
                    ends.push(completion.clone());
                }
                let forced = match grammar.lexer_mut().next_byte(state) {
                    NextByte::ForcedByte(byte) => Some(byte),
                    _ => None,
                };
                let mut onward = Vec::new();
                let mut any = false;
                for byte in bytes().filter(|byte| forced.is_none_or(|forced| forced == *byte)) {
                    if byte >= 0x80 && any {
                        break;
                    }
                    let rows = rows(grammar);
                    if !grammar.try_push_byte(byte) {
                        continue;
                    }
                    any = true;
                    let (next, ended) = (grammar.lexer_state(), self::rows(grammar) != rows);
                    grammar.pop_bytes(1);
                    if ended && reached.insert(next) {
                        let text = [completion.as_slice(), &[byte]].concat();
                        if exits.is_empty() {
                            left = left.min(MORE);
                        }
                        exits.push((cost(&text, &format), text));
                    } else if !ended && !matches!(reach, Reach::Known(_)) && seen.insert(next) {
                        onward.push([completion.as_slice(), &[byte]].concat());
                    }
                }
                if straight {
                    onward.reverse();
                    if completion.len() > farthest.len() {
                        farthest = completion;
                    }
                }
                queue.extend(onward);
            }
            grammar.pop_bytes(at.len());
            if straight && left == 0 && exits.is_empty() && ends.is_empty() {
                exits.push((farthest.len(), farthest));
            }
        });
    }
}

/// Begins a mask without computing one.
struct NoMask(TokEnv);

impl BiasComputer for NoMask {
    fn compute_bias(&self, _: &mut ParserRecognizer<'_>, _: &[u8]) -> SimpleVob {
        self.trie().alloc_token_set()
    }

    fn trie(&self) -> &TokTrie {
        self.0.tok_trie()
    }
}

/// The bytes to try, in order: closing or filling ones, the rest of ASCII and, if none of these fits, bytes inside a
/// character.
fn bytes() -> impl Iterator<Item = u8> {
    const FIRST: &[u8] = b"\"a0}])>/A";
    let others = (b' '..=b'~').rev().chain([b'\n', b'\t', b'\r']).filter(|byte| !FIRST.contains(byte));
    FIRST.iter().copied().chain(others).chain(0x80..=0xF4)
}

/// Number of tokens of the grammar begun so far.
fn rows(grammar: &mut ParserRecognizer<'_>) -> usize {
    let stats = grammar.stats_mut();
    stats.rows + stats.cached_rows
}

/// Cost of a text in a completion: its length, more if it opens something, 0 if it ends a call.
fn cost(text: &[u8], ends: &Ends) -> usize {
    let shown = text.trim_ascii();
    let is_end = |end: &String| {
        let end = end.trim().as_bytes();
        !shown.is_empty() && (end.starts_with(shown) || !end.is_empty() && shown.starts_with(end))
    };
    if ends.calls.iter().any(is_end) {
        return 0;
    }
    let opens = |byte: Option<&u8>| byte.is_none_or(|byte| b"[{(,".contains(byte));
    let tag = shown.first() == Some(&b'<') && !shown.contains(&b'/');
    text.len() + if opens(shown.first()) || opens(shown.last()) || tag { OPENING } else { 0 }
}
