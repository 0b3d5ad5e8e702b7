//! The way to a call's end, for every state of its grammar.
//!
//! A matcher says which tokens may come next, not which of them lead out. A [`Closer`] follows the grammar beside it,
//! byte by byte, and finds a text that ends it: mostly what is left of the way that was known before, otherwise by a
//! search that goes through the lexer's states within a token of the grammar, and from one such token to the next
//! prefers what closes to what opens.

use super::masks::Masks;
use llguidance::TokenParser;
use llguidance::derivre::{NextByte, StateID};
use llguidance::earley::{BiasComputer, Parser, ParserRecognizer};
use llguidance::panic_utils::catch_unwind;
use llguidance::toktrie::{Recognizer, SimpleVob, TokEnv, TokTrie};
use std::collections::{HashMap, HashSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

/// Lexer states that a search behind each token looks at, at most: some ten milliseconds.
pub(super) const EFFORT: usize = 1500;
/// The same for the first search of a grammar, which all others go by: a second at the very worst, once.
pub(super) const FIRST_EFFORT: usize = 100_000;
/// Of these, the ones within one token of the grammar: all that are near, then, where that does not suffice, straight
/// on. Where that is not far enough either, the search goes on from there.
const NEAR: usize = 120;
const FAR: usize = 600;
/// Texts that led on from a state of the lexer, and are tried where it comes up again.
const KNOWN: usize = 4;
/// Lexer states that are looked at behind the first that leads on, for a better one.
const MORE: usize = 50;
/// Different continuations kept behind one token of the grammar.
const EXITS: usize = 12;
/// Ways that are found and do not fit, before no other is sought.
const MISSES: usize = 3;
/// Places in one token of the grammar at which it is tried whether all may end there.
const ENDS: usize = 4;
/// How often a character has to stand for it to be taken for something that fills up.
const FILLED: usize = 12;
/// How much longer a way may be that neither opens anything nor is mere white space, and is still preferred.
const OPENING: usize = 40;

/// What ends things in a format, where that is more than punctuation.
#[derive(Debug, Clone, Default)]
pub struct Ends {
    /// What stands behind a value.
    pub values: Vec<String>,
    /// What stands behind a call, and behind all calls.
    pub calls: Vec<String>,
}

/// Follows a grammar to know how it can be brought to its end.
#[derive(Clone)]
pub(super) struct Closer {
    parser: Parser,
    tokens: TokEnv,
    ends: Arc<Ends>,
    /// The grammar engine failed; nothing more is known.
    broken: bool,
}

/// How the lexer's states within one token of the grammar are gone through.
#[derive(Clone, Copy)]
enum Reach<'a> {
    /// Only the ends of these texts are looked at.
    Known(&'a [Vec<u8>]),
    /// Breadth first.
    Near,
    /// Straight on and back.
    Straight,
}

/// Where one token of the grammar can lead.
#[derive(Default)]
struct Expansion {
    /// Texts behind which all may end.
    ends: Vec<Vec<u8>>,
    /// Texts that end the token and begin another, and what each costs.
    exits: Vec<(usize, Vec<u8>)>,
}

impl Closer {
    /// A closer at the beginning of a grammar; none for the grammars (with `stop=` or `max_tokens=`) that cannot go
    /// back.
    pub(super) fn new(parser: &TokenParser, ends: Arc<Ends>) -> Option<Closer> {
        let (parser, tokens) = (parser.parser.clone(), parser.token_env.clone());
        parser.grammar().lexer_spec().can_rollback().then_some(Closer { parser, tokens, ends, broken: false })
    }

    /// Takes bytes that the grammar allows.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.guarded(|closer| closer.apply(bytes).then_some(()));
    }

    /// Takes back the last bytes.
    pub(super) fn pop(&mut self, count: usize) {
        self.guarded(|closer| closer.parser.rollback(count).ok());
    }

    /// A text that ends the grammar, for which `fits` holds; `None` where none was found with this `effort`.
    ///
    /// Shorter ways are preferred, but the shortest need not be found. `before` is the way that was known `taken` bytes
    /// ago. What is left of it is tried first: in a text that goes on all of it is still good, in one of a given length
    /// as much less as was written.
    pub(super) fn way(
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

    /// The same way with other text where it is filled up, which takes fewer tokens.
    pub(super) fn denser(&mut self, way: Vec<u8>, fillers: &[Vec<u8>], tokens: &dyn Fn(&[u8]) -> usize) -> Vec<u8> {
        let runs: Vec<&[u8]> = way.chunk_by(|a, b| a == b).collect();
        if runs.iter().all(|run| run.len() < FILLED) {
            return way;
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
        best.filter(|best| tokens(best) < tokens(&way)).unwrap_or(way)
    }

    /// The grammar engine limits the work on the lexer between two masks, shared by all that follow a grammar, and fails
    /// for good where it is used up. Beginning a mask renews it.
    fn refuel(&mut self) {
        self.parser.invalidate_bias_cache();
        self.parser.compute_bias(&NoMask(self.tokens.clone()), b"");
        self.parser.invalidate_bias_cache();
    }

    /// The tokens that may come next; `None` where the grammar engine has failed.
    pub(super) fn mask(&mut self, masks: &Masks) -> Option<SimpleVob> {
        self.guarded(|closer| {
            let mask = closer.parser.compute_bias(masks, b"");
            closer.broken |= closer.parser.get_error().is_some();
            (!closer.broken).then_some(mask)
        })
    }

    /// Runs what may fail inside of the grammar engine; a panic there ends this closer, not the program.
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
        // The token's number matters only where a grammar asks for tokens by number.
        let applied = bytes.is_empty() || self.parser.apply_token(bytes, 0).is_ok_and(|back| back == 0);
        self.broken |= !applied || self.parser.get_error().is_some();
        !self.broken
    }

    fn is_end(&mut self) -> bool {
        self.parser.is_accepting()
    }

    fn leads_out(&mut self, way: &[u8]) -> bool {
        let fits = self.speculate(|grammar| way.iter().all(|byte| grammar.try_push_byte(*byte)));
        if !fits || !self.apply(way) {
            return false;
        }
        let ends = self.is_end();
        self.broken |= self.parser.rollback(way.len()).is_err();
        ends && !self.broken
    }

    /// Tries bytes without taking them.
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

    /// Depth first, from one token of the grammar to the next; `path` is what was taken.
    fn descend(
        &mut self,
        path: &mut Vec<u8>,
        before: &[u8],
        mut effort: usize,
        fits: &dyn Fn(&[u8]) -> bool,
    ) -> Option<Vec<u8>> {
        let mut misses = 0;
        // What led on from a state of the lexer: in a list each item begins in the same one.
        let mut known: HashMap<StateID, Vec<Vec<u8>>> = HashMap::new();
        // At each place on the path: what else may be tried from there, the best last, and how long the path is there.
        let mut places: Vec<(Vec<Vec<u8>>, usize)> = Vec::new();
        loop {
            effort = effort.saturating_sub(1);
            // The empty rest first: it may be the end already.
            let mut rests = (0..=before.len()).rev().map(|skip| &before[skip..]);
            let mut way = rests.find(|rest| self.leads_out(rest)).map(<[u8]>::to_vec);
            let mut expansion = Expansion::default();
            if way.is_none() {
                self.refuel();
                self.end_value(&mut expansion);
                let state = self.speculate(|grammar| grammar.lexer_state());
                let stems = known.get(&state).cloned().unwrap_or_default();
                for reach in [Reach::Known(&stems), Reach::Near, Reach::Straight] {
                    if expansion.exits.is_empty() && expansion.ends.is_empty() {
                        self.expand(reach, &mut effort, &mut expansion);
                        self.refuel();
                    }
                }
                expansion.exits.sort_by_key(|(cost, _)| *cost);
                if stems.is_empty() {
                    let exits = expansion.exits.iter().map(|(_, text)| &text[..text.len().saturating_sub(1)]);
                    let stems = exits.chain(expansion.ends.iter().map(Vec::as_slice));
                    known.insert(state, stems.take(KNOWN).map(<[u8]>::to_vec).collect());
                }
                way = expansion.ends.iter().find(|end| self.leads_out(end)).cloned();
            }
            if let Some(way) = way {
                let whole = [path.as_slice(), &way].concat();
                if fits(&whole) {
                    return Some(whole);
                }
                misses += 1;
            }
            places.push((expansion.exits.into_iter().rev().map(|(_, text)| text).collect(), path.len()));
            // On to the best that is left, here or further back.
            loop {
                let (exits, length) = places.last_mut()?;
                let surplus = path.len() - *length;
                if self.broken || effort == 0 || misses >= MISSES || self.parser.rollback(surplus).is_err() {
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

    /// Ends a value in the format's own way, filled up where it is too short. In some formats a value and its end are
    /// one intricate token of the grammar, in which each state takes long to work out.
    fn end_value(&mut self, found: &mut Expansion) {
        let ends = Arc::clone(&self.ends);
        self.speculate(|grammar| {
            for end in ends.values.iter().filter(|end| !end.is_empty()) {
                for filled in std::iter::once(0).chain((0..9).map(|power| 1 << power)) {
                    let fill = std::iter::repeat_n(b'a', filled).chain(end.bytes());
                    let rows = rows(grammar);
                    let pushed = fill.clone().take_while(|byte| grammar.try_push_byte(*byte)).count();
                    let ended = self::rows(grammar) != rows;
                    grammar.pop_bytes(pushed);
                    if pushed == filled + end.len() && ended {
                        let text: Vec<u8> = fill.collect();
                        found.exits.push((0, text));
                        return;
                    }
                    if pushed < filled {
                        break;
                    }
                }
            }
        });
    }

    /// Goes through the lexer's states up to the texts that end the token of the grammar in which it is.
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
            // Where the grammar stands.
            let mut at: Vec<u8> = Vec::new();
            let mut farthest = Vec::new();
            while let Some(way) = if straight { queue.pop_back() } else { queue.pop_front() } {
                if *effort == 0 || left == 0 || exits.len() >= EXITS {
                    break;
                }
                (*effort, left) = (*effort - 1, left - 1);
                let common = at.iter().zip(&way).take_while(|(a, b)| a == b).count();
                grammar.pop_bytes(at.len() - common);
                at.truncate(common);
                at.extend(way[common..].iter().take_while(|byte| grammar.try_push_byte(**byte)));
                if at != way {
                    continue;
                }
                let state = grammar.lexer_state();
                if !way.is_empty() && ends.len() < ENDS && !grammar.lexer_mut().try_lexeme_end(state).is_error() {
                    ends.push(way.clone());
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
                        let text = [way.as_slice(), &[byte]].concat();
                        if exits.is_empty() {
                            left = left.min(MORE);
                        }
                        exits.push((cost(&text, &format), text));
                    } else if !ended && !matches!(reach, Reach::Known(_)) && seen.insert(next) {
                        onward.push([way.as_slice(), &[byte]].concat());
                    }
                }
                if straight {
                    onward.reverse();
                    if way.len() > farthest.len() {
                        farthest = way;
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

/// Begins a mask, and makes none.
struct NoMask(TokEnv);

impl BiasComputer for NoMask {
    fn compute_bias(&self, _: &mut ParserRecognizer<'_>, _: &[u8]) -> SimpleVob {
        self.trie().alloc_token_set()
    }

    fn trie(&self) -> &TokTrie {
        self.0.tok_trie()
    }
}

/// The bytes that are tried, in this order: what ends things or fills them, the rest of ASCII, and, where none of
/// these fits, what can stand inside of a character.
fn bytes() -> impl Iterator<Item = u8> {
    const FIRST: &[u8] = b"\"a0}])>/A";
    let others = (b' '..=b'~').rev().chain([b'\n', b'\t', b'\r']).filter(|byte| !FIRST.contains(byte));
    FIRST.iter().copied().chain(others).chain(0x80..=0xF4)
}

/// How many tokens of the grammar were begun.
fn rows(grammar: &mut ParserRecognizer<'_>) -> usize {
    let stats = grammar.stats_mut();
    stats.rows + stats.cached_rows
}

/// What a text costs on the way out: its length, and more where it opens something, nothing where it ends a call.
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
