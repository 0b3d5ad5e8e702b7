//! The way to a call's end, for every state of its grammar.
//!
//! A matcher says which tokens may come next, not which of them lead out. A [`Closer`] follows the grammar beside it,
//! byte by byte, and finds a text that ends it: mostly what is left of the way that was known before, otherwise by a
//! search that goes through the lexer's states within a token of the grammar, and from one such token to the next
//! prefers what closes to what opens.

use llguidance::derivre::StateID;
use llguidance::earley::{Parser, ParserRecognizer};
use llguidance::panic_utils::catch_unwind;
use llguidance::toktrie::Recognizer;
use std::collections::{HashSet, VecDeque};
use std::panic::AssertUnwindSafe;

/// Lexer states that one search looks at, at most: some ten milliseconds.
const EFFORT: usize = 4000;
/// Different continuations kept behind one token of the grammar.
const EXITS: usize = 12;
/// Places in one token of the grammar at which it is tried whether all may end there.
const ENDS: usize = 4;
/// How much longer a way may be that opens nothing and is still preferred.
const OPENING: usize = 40;

/// Follows a grammar to know how it can be brought to its end.
#[derive(Clone)]
pub(super) struct Closer {
    parser: Parser,
    /// The grammar engine failed; nothing more is known.
    broken: bool,
}

/// Where one token of the grammar can lead.
struct Expansion {
    /// Texts behind which all may end.
    ends: Vec<Vec<u8>>,
    /// Texts that end the token and begin another, the best last.
    exits: Vec<Vec<u8>>,
}

impl Closer {
    /// A closer at the beginning of a grammar; none for the grammars (with `stop=` or `max_tokens=`) that cannot go
    /// back.
    pub(super) fn new(parser: &Parser) -> Option<Closer> {
        parser.grammar().lexer_spec().can_rollback().then(|| Closer { parser: parser.clone(), broken: false })
    }

    /// Takes bytes that the grammar allows.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.guarded(|closer| closer.apply(bytes).then_some(()));
    }

    /// Takes back the last bytes.
    pub(super) fn pop(&mut self, count: usize) {
        self.guarded(|closer| closer.parser.rollback(count).ok());
    }

    /// A text that ends the grammar, for which `fits` holds; `None` where none was found.
    ///
    /// `before` is the way that was known `taken` bytes ago. What is left of it is tried first: in a text that goes on
    /// all of it is still good, in one of a given length as much less as was written.
    pub(super) fn way(&mut self, before: &[u8], taken: usize, fits: &dyn Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
        self.guarded(|closer| {
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
            closer.search(before, fits)
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

    fn search(&mut self, before: &[u8], fits: &dyn Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
        let mut path = Vec::new();
        let found = self.descend(&mut path, before, fits);
        self.broken |= self.parser.rollback(path.len()).is_err();
        found
    }

    /// Depth first, from one token of the grammar to the next; `path` is what was taken.
    fn descend(&mut self, path: &mut Vec<u8>, before: &[u8], fits: &dyn Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
        let mut effort = EFFORT;
        // At each place on the path: what else may be tried from there, the best last, and how long the path is there.
        let mut places: Vec<(Vec<Vec<u8>>, usize)> = Vec::new();
        loop {
            if self.is_end() && fits(path) {
                return Some(path.clone());
            }
            let expansion = self.expand(&mut effort);
            let rests = (0..before.len()).rev().map(|skip| &before[skip..]);
            for rest in expansion.ends.iter().map(Vec::as_slice).chain(rests) {
                if self.leads_out(rest) {
                    let whole = [path, rest].concat();
                    if fits(&whole) {
                        return Some(whole);
                    }
                }
            }
            places.push((expansion.exits, path.len()));
            // On to the best that is left, here or further back.
            loop {
                let (exits, length) = places.last_mut()?;
                let surplus = path.len() - *length;
                if self.broken || effort == 0 || self.parser.rollback(surplus).is_err() {
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

    /// Breadth first through the lexer's states, up to the texts that end the token of the grammar in which it is.
    fn expand(&mut self, effort: &mut usize) -> Expansion {
        let mut exits: Vec<(usize, Vec<u8>)> = Vec::new();
        let mut ends = Vec::new();
        self.speculate(|grammar| {
            let mut reached: HashSet<StateID> = HashSet::new();
            let mut seen = HashSet::from([grammar.lexer_state()]);
            let mut queue = VecDeque::from([Vec::new()]);
            while let Some(way) = queue.pop_front() {
                if *effort == 0 || exits.len() >= EXITS {
                    break;
                }
                *effort -= 1;
                if !way.iter().all(|byte| grammar.try_push_byte(*byte)) {
                    break;
                }
                let state = grammar.lexer_state();
                if !way.is_empty() && ends.len() < ENDS && !grammar.lexer_mut().try_lexeme_end(state).is_error() {
                    ends.push(way.clone());
                }
                let mut any = false;
                for byte in bytes() {
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
                        exits.push((cost(&text), text));
                    } else if !ended && seen.insert(next) {
                        queue.push_back([way.as_slice(), &[byte]].concat());
                    }
                }
                grammar.pop_bytes(way.len());
            }
        });
        exits.sort_by_key(|(cost, _)| std::cmp::Reverse(*cost));
        Expansion { ends, exits: exits.into_iter().map(|(_, text)| text).collect() }
    }
}

/// The bytes that are tried, in this order: what ends things, letters and digits, the rest of ASCII, and, where none of
/// these fits, what can stand inside of a character.
fn bytes() -> impl Iterator<Item = u8> {
    const FIRST: &[u8] = b"\"}])>/0aA";
    let others = (b' '..=b'~').rev().chain([b'\n', b'\t', b'\r']).filter(|byte| !FIRST.contains(byte));
    FIRST.iter().copied().chain(others).chain(0x80..=0xF4)
}

/// How many tokens of the grammar were begun.
fn rows(grammar: &mut ParserRecognizer<'_>) -> usize {
    let stats = grammar.stats_mut();
    stats.rows + stats.cached_rows
}

/// What a text costs on the way out: its length, and more where it opens something.
fn cost(text: &[u8]) -> usize {
    let opens = |byte: Option<&u8>| byte.is_some_and(|byte| b"[{(,".contains(byte));
    let shown = text.trim_ascii();
    let tag = shown.first() == Some(&b'<') && !shown.contains(&b'/');
    text.len() + if opens(shown.first()) || opens(shown.last()) || tag { OPENING } else { 0 }
}
