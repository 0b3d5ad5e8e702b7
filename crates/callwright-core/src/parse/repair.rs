//! Passes JSON through while it streams, and corrects what models get wrong about it.
//!
//! Repairing a finished text means waiting for it; repairing it again at every token takes back what was already
//! shown. This machine writes corrected JSON as the bytes come. Valid JSON leaves it byte for byte as it came (but
//! for half surrogate pairs, which no string can hold, and more than [`PENDING`] bytes of white space in a row).
//!
//! The output has a *stable* part, which closing brackets alone can complete, and a pending rest (a comma, a key, half
//! an escape) that a later byte may still change and that is dropped when the text is cut off there. Only the stable
//! part is for showing.

mod end;
mod escapes;
mod lane;
mod number;
mod own;
mod python;
mod stops;
mod string;
mod tokens;

use super::event::RepairKind;
use super::text::Utf8;
use escapes::{Escapes, Opening};
use number::Number;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use string::Quoted;

pub(crate) use stops::Stops;

/// The words that stand for values.
const LITERALS: [&str; 6] = ["true", "false", "null", "True", "False", "None"];
/// How deep values may nest, as in serde_json.
const DEPTH: usize = 120;
/// Up to which size a buffer is kept for the next value.
const SPARE: usize = 16 << 10;
/// How many bytes may wait for a later byte to decide on them.
const PENDING: usize = 1024;

/// How a value ended that was cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// It was whole.
    Whole,
    /// Brackets or quotes were missing.
    Closed,
    /// Brackets or quotes were missing, and an unfinished member at the end was left out.
    Shortened,
    /// It cannot be completed.
    Broken,
}

/// How the value is written that comes out as JSON. What belongs to the dialect is no departure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Dialect {
    Json,
    /// The arguments of a call in Python, parentheses included: `(a=1, b=["x", None])`.
    PythonCall,
    /// JSON with quotes of its own, between which nothing is escaped, and with keys without quotes.
    Own {
        quote: Option<Arc<[u8]>>,
        bare_keys: bool,
    },
}

/// The machine, for one value.
#[derive(Debug)]
pub(crate) struct Transducer {
    dialect: Dialect,
    out: String,
    stable: usize,
    utf8: Utf8,
    stack: Vec<u8>,
    state: State,
    /// Start in `out` of what is being decided on: a word, an escape, a closing quote. Never before `stable`.
    mark: usize,
    /// Start in `out` of the first half of a surrogate pair.
    surrogate: Option<usize>,
    /// What the backslashes of the string being read are, and what it begins with.
    escapes: Escapes,
    opening: Opening,
    repair: bool,
    /// Offset of the byte being looked at.
    at: usize,
    broken: Option<usize>,
    /// A key too long to wait for its value was shown already.
    key_shown: bool,
    reports: Vec<(RepairKind, Range<usize>)>,
    /// The names of a Python call's parameters, for arguments without one, and how many were used.
    names: Vec<String>,
    positional: usize,
    /// Whether the first parameter takes an object: otherwise an object in its place is all the arguments.
    takes_object: bool,
    wrapped: bool,
    /// An argument had no name, and none could be found.
    unnamed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// A value must follow: at the start, or after a colon.
    Value,
    /// An element must follow a comma.
    Element,
    /// After `[`.
    FirstElement,
    /// After `{`.
    FirstKey,
    /// A key must follow a comma.
    Key,
    Colon,
    /// After an `=` in place of a colon, which may be the beginning of `=>`.
    Arrow,
    AfterValue,
    String(Quoted),
    Escape(Quoted),
    /// In `\uXXXX`, with the digits so far.
    Unicode(Quoted, u8, u16),
    /// After what closes a string in single quotes unless more of the string follows.
    QuoteEnd(Quoted),
    /// After so many quotes that may begin a string in Python.
    Opening(Quoted, u8),
    /// After so many quotes that may end one in three quotes.
    Closing(Quoted, u8),
    /// In Python's `\123`, with the digits so far.
    Octal(Quoted, u8, u16),
    /// In Python's `\x41` or `\U00000041`: how many digits are missing, and what those so far say.
    Hex(Quoted, u8, u32),
    /// After so many bytes of the dialect's own quote, before a string or key.
    OwnOpening(Quoted, usize),
    /// The same inside one.
    OwnClosing(Quoted, usize),
    Number(Number),
    /// A word without quotes: a literal, or a key.
    Word {
        key: bool,
    },
    /// Beyond repair: everything passes as it is, until the brackets opened so far have closed.
    Loose {
        depth: usize,
        string: bool,
        escape: bool,
    },
    Done,
}

impl Transducer {
    /// A machine before its value; with `repair` off nothing is corrected.
    pub(crate) fn new(repair: bool) -> Transducer {
        Transducer::of(Dialect::Json, repair)
    }

    /// A machine for a value that is written in another way than JSON's.
    pub(crate) fn of(dialect: Dialect, repair: bool) -> Transducer {
        Transducer {
            dialect,
            out: String::new(),
            stable: 0,
            utf8: Utf8::default(),
            stack: Vec::new(),
            state: State::Value,
            mark: 0,
            surrogate: None,
            escapes: Escapes::Settled,
            opening: Opening::Other,
            repair,
            at: 0,
            broken: None,
            key_shown: false,
            reports: Vec::new(),
            names: Vec::new(),
            positional: 0,
            takes_object: false,
            wrapped: false,
            unnamed: false,
        }
    }

    /// Gets ready for another value.
    pub(crate) fn reset(&mut self) {
        let mut out = std::mem::take(&mut self.out);
        out.clear();
        out.shrink_to(SPARE);
        let mut stack = std::mem::take(&mut self.stack);
        stack.clear();
        *self = Transducer { out, stack, ..Transducer::of(self.dialect.clone(), self.repair) };
    }

    /// The text of the string that the value is, once it has ended.
    pub(crate) fn string(&self) -> Option<Cow<'_, str>> {
        let inner = self.out.strip_prefix('"')?.strip_suffix('"')?;
        if self.broken.is_none() && !inner.contains('\\') {
            return Some(Cow::Borrowed(inner));
        }
        serde_json::from_str(&self.out).ok().map(Cow::Owned)
    }

    /// The output so far that will not change any more.
    pub(crate) fn stable(&self) -> &str {
        &self.out[..self.stable]
    }

    /// Takes the stable output away, so that it does not pile up.
    pub(crate) fn take_stable(&mut self) -> String {
        let rest = self.out.split_off(self.stable);
        self.mark = self.mark.saturating_sub(self.stable);
        self.surrogate = self.surrogate.map(|at| at.saturating_sub(self.stable));
        if let Escapes::Held(held) = &mut self.escapes {
            held.from = held.from.saturating_sub(self.stable);
        }
        self.stable = 0;
        std::mem::replace(&mut self.out, rest)
    }

    /// The whole output, once the value has ended; resets the machine, which goes on with the buffer `fresh`.
    pub(crate) fn take_text(&mut self, fresh: String) -> String {
        let text = std::mem::replace(&mut self.out, fresh);
        self.reset();
        text
    }

    /// Takes a whole value over that another machine wrote.
    pub(crate) fn adopt(&mut self, text: String, broken: Option<usize>) {
        self.stable = text.len();
        (self.out, self.broken, self.state) = (text, broken, State::Done);
    }

    /// Whether what comes out is written like what goes in.
    pub(crate) fn is_json(&self) -> bool {
        self.dialect == Dialect::Json
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Whether no byte of the value has come.
    pub(crate) fn is_empty(&self) -> bool {
        self.state == State::Value && self.stack.is_empty()
    }

    /// Where the value turned out to be beyond repair.
    pub(crate) fn broken_at(&self) -> Option<usize> {
        self.broken
    }

    pub(crate) fn in_string(&self) -> bool {
        matches!(
            self.state,
            State::String(_)
                | State::Escape(_)
                | State::Unicode(..)
                | State::Opening(_, 1)
                | State::Closing(..)
                | State::Octal(..)
                | State::Hex(..)
                | State::OwnClosing(..)
                | State::Loose { string: true, .. }
        )
    }

    /// Whether the text stands in a string that is a value, and which brackets are open around it.
    pub(crate) fn open_string(&self) -> Option<&[u8]> {
        matches!(self.state, State::String(Quoted { key: false, .. })).then_some(&self.stack)
    }

    /// Ends the string that [`Transducer::open_string`] speaks of.
    pub(crate) fn close_string(&mut self) {
        if let State::String(quoted) = self.state {
            self.end_surrogate(self.at);
            self.put(b'"');
            self.end_string(quoted);
        }
    }

    /// What was repaired, and the byte at which it showed.
    pub(crate) fn take_report(&mut self) -> Option<(RepairKind, Range<usize>)> {
        if self.reports.is_empty() { None } else { Some(self.reports.remove(0)) }
    }

    /// Takes bytes of the text, the first of which has offset `at`; says how many it took.
    ///
    /// It stops before a byte after the value, after a byte that it has to report on, and, with `stops`, before a
    /// byte that may begin a marker.
    pub(crate) fn feed(&mut self, input: &[u8], at: usize, flags: &Stops, markers: bool) -> usize {
        let mut i = 0;
        while i < input.len() && self.reports.is_empty() {
            let run = self.lane(&input[i..], at + i, flags, markers);
            if run > 0 {
                i += run;
                continue;
            }
            if let State::String(quoted) = self.state {
                let mut mask = quoted.quote.stops();
                if markers {
                    mask |= Stops::STRING_MARKER;
                }
                let rest = &input[i..];
                // What is reported of a byte must not depend on how many came with it.
                let most = if self.surrogate.is_some() { 1 } else { rest.len() };
                let run = flags.run(rest, mask).min(most);
                if run > 0 {
                    self.plain(quoted, &rest[..run], at + i);
                    i += run;
                    continue;
                }
            } else if self.is_done() {
                break;
            }
            let byte = input[i];
            if markers && if self.in_string() { flags.in_string(byte) } else { flags.in_structure(byte) } {
                break;
            }
            if self.step(byte, at + i) {
                i += 1;
            }
        }
        i
    }

    fn put(&mut self, byte: u8) {
        if byte.is_ascii() && self.utf8.is_empty() {
            self.out.push(char::from(byte));
        } else {
            self.utf8.push(&[byte], &mut self.out);
        }
    }

    fn put_stable(&mut self, byte: u8) {
        self.put(byte);
        self.stable = self.out.len();
    }

    /// White space between tokens; a run of it that waits for a token is not let grow without end.
    fn put_blank(&mut self, byte: u8) {
        if self.out.len() - self.stable < PENDING {
            self.put(byte);
        }
    }

    /// Notes a departure; false if it may not be repaired, and then the value is broken.
    fn depart(&mut self, kind: RepairKind, at: usize) -> bool {
        self.reports.push((kind, at..at + 1));
        if !self.repair {
            self.give_up();
        }
        self.repair
    }

    fn give_up(&mut self) {
        let string = self.in_string();
        self.broken = Some(self.at);
        self.surrogate = None;
        self.escapes = Escapes::Settled;
        self.state = State::Loose { depth: self.stack.len(), string, escape: false };
        self.stable = self.out.len();
    }

    fn end_value(&mut self) {
        self.key_shown = false;
        self.stable = self.out.len();
        self.state = if self.stack.is_empty() { State::Done } else { State::AfterValue };
    }

    fn open(&mut self, byte: u8) -> bool {
        if self.stack.len() >= DEPTH {
            self.give_up();
            return false;
        }
        self.stack.push(byte);
        self.key_shown = false;
        let object = matches!(byte, b'{' | CALL | ROUND);
        self.put_stable(if object { b'{' } else { b'[' });
        self.state = if object { State::FirstKey } else { State::FirstElement };
        true
    }

    /// A closing bracket; brackets left open inside the one it closes are closed too.
    fn close(&mut self, byte: u8, at: usize) -> bool {
        let Some(index) = self.stack.iter().rposition(|&open| closer(open) == byte) else {
            // A bracket around the call, whose own is missing.
            if self.dialect != Dialect::PythonCall || byte != b']' {
                return self.refuse();
            }
            if self.depart(RepairKind::MissingBrackets, at) {
                self.out.truncate(self.stable);
                self.close_down_to(0);
                self.end_value();
            }
            return false;
        };
        if index + 1 < self.stack.len() {
            if !self.depart(RepairKind::MissingBrackets, at) {
                return false;
            }
            self.close_down_to(index + 1);
        }
        self.close_down_to(index);
        self.end_value();
        true
    }

    fn close_down_to(&mut self, depth: usize) {
        while self.stack.len() > depth {
            if let Some(open) = self.stack.pop() {
                self.put(if matches!(open, b'{' | CALL | ROUND) { b'}' } else { b']' });
            }
        }
    }

    fn trailing_comma(&mut self, byte: u8, at: usize) -> bool {
        if self.dialect != Dialect::PythonCall && !self.depart(RepairKind::TrailingComma, at) {
            return false;
        }
        self.out.truncate(self.stable);
        self.close(byte, at)
    }

    /// One byte; false if it is to be looked at again in the state that it led to.
    fn step(&mut self, byte: u8, at: usize) -> bool {
        self.at = at;
        match self.state {
            State::Value | State::Element | State::FirstElement => self.value(byte, at),
            State::FirstKey | State::Key => self.key(byte, at),
            State::Colon if self.at_call() => self.equals(byte, at),
            State::Colon => match byte {
                b' ' | b'\t' | b'\r' | b'\n' => self.blank(byte),
                b':' => {
                    self.put(byte);
                    self.state = State::Value;
                    true
                }
                b'=' => {
                    if self.depart(RepairKind::OtherPunctuation, at) {
                        self.put(b':');
                        self.state = State::Arrow;
                    }
                    true
                }
                _ => self.refuse(),
            },
            State::Arrow => {
                self.state = State::Value;
                byte == b'>'
            }
            State::AfterValue => self.after_value(byte, at),
            State::String(quoted) => self.special(quoted, byte, at),
            State::Escape(quoted) => self.escape(quoted, byte, at),
            State::Unicode(quoted, count, digits) => self.unicode(quoted, count, digits, byte, at),
            State::QuoteEnd(quoted) => self.quote_end(quoted, byte, at),
            State::Opening(quoted, count) => self.opening(quoted, count, byte),
            State::Closing(quoted, count) => self.closing(quoted, count, byte),
            State::Octal(quoted, count, value) => self.octal(quoted, count, value, byte),
            State::Hex(quoted, missing, value) => self.hex(quoted, missing, value, byte, at),
            State::OwnOpening(quoted, count) => self.own_opening(quoted, count, byte),
            State::OwnClosing(quoted, count) => self.own_closing(quoted, count, byte),
            State::Number(number) => match number.next(byte) {
                Some(next) => {
                    self.put(byte);
                    if next.is_whole() {
                        self.stable = self.out.len();
                    }
                    self.state = State::Number(next);
                    true
                }
                None if self.dialect == Dialect::PythonCall => self.python_number(number, byte),
                None if number.is_whole() => {
                    self.end_value();
                    false
                }
                None => self.refuse(),
            },
            State::Word { key } => {
                if self.in_word(key, byte) {
                    if self.out.len() - self.mark > PENDING {
                        return self.refuse();
                    }
                    self.put(byte);
                    return true;
                }
                match byte {
                    b'"' | b'\'' if self.dialect == Dialect::PythonCall => self.prefixed(key, byte, at),
                    _ => {
                        self.end_word(key, at);
                        false
                    }
                }
            }
            State::Loose { .. } => self.loose(&[byte]) > 0,
            State::Done => false,
        }
    }

    fn refuse(&mut self) -> bool {
        self.give_up();
        false
    }
}

/// Stands for the parenthesis of a call among the brackets that are open.
const CALL: u8 = b'=';

/// Stands for a parenthesis in place of an object's brace.
const ROUND: u8 = b'~';

/// The bracket that closes `open`.
pub(crate) fn closer(open: u8) -> u8 {
    match open {
        b'{' => b'}',
        b'[' => b']',
        _ => b')',
    }
}

/// A literal of Python, as JSON writes it.
fn python_literal(word: &str) -> Option<&'static str> {
    match word {
        "True" => Some("true"),
        "False" => Some("false"),
        "None" => Some("null"),
        _ => None,
    }
}

/// A text as a JSON string.
fn quoted_json(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
