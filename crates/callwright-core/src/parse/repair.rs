//! Repairs JSON while it streams.
//!
//! Repairing a finished text means waiting for it, and repairing it again at every token revises what was already
//! shown. This machine writes corrected JSON as the bytes come. Valid JSON passes unchanged (except half surrogate
//! pairs, which no string can hold, and runs of more than [`PENDING`] bytes of white space).
//!
//! The output has a *stable* part, which only closing brackets are needed to complete, and a pending rest (a comma, a
//! key), which is dropped if the text is cut there. Only the stable part may be shown. Bytes whose meaning a later byte
//! decides (a word, half an escape) are held as they came, and read once they are whole.

mod escapes;
mod lane;
mod output;
mod python;
mod state;
mod stops;
mod string;
mod tokens;
mod word;

use super::event::RepairKind;
use super::nearly::ends_nearly;
use crate::tool::Tools;
use escapes::{Escapes, Meaning};
use output::Output;
use python::Parameters;
use state::{Quote, Quoted, State};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

pub(crate) use stops::Stops;

/// Maximum nesting of values, as in serde_json.
const DEPTH: usize = 120;
/// Maximum size of a buffer to keep for the next value.
const SPARE: usize = 16 << 10;
/// Maximum bytes that may wait for a later byte.
const PENDING: usize = 1024;

/// The state of a value that was cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// It was complete.
    Whole,
    /// Brackets or quotes were missing.
    Closed,
    /// Brackets or quotes were missing, and an unfinished member at the end was dropped.
    Shortened,
    /// It cannot be completed.
    Broken,
}

/// The notation of the input; the output is JSON. The dialect's own notation is not a departure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Dialect {
    Json,
    /// The arguments of a call in Python, parentheses included: `(a=1, b=["x", None])`.
    PythonCall,
    /// JSON with custom quotes, between which nothing is escaped, and with unquoted keys.
    Own {
        quote: Option<Arc<[u8]>>,
        bare_keys: bool,
    },
}

/// The machine for one value.
#[derive(Debug)]
pub(crate) struct Transducer {
    dialect: Dialect,
    out: Output,
    stack: Vec<u8>,
    state: State,
    /// Bytes whose meaning is not decided. Those of a string before `unit` are whole characters and escapes, and those of a
    /// number were written.
    held: Vec<u8>,
    unit: usize,
    escapes: Escapes,
    repair: bool,
    /// Offset of the current byte.
    at: usize,
    broken: Option<usize>,
    /// Whether a key too long to wait for its value was already shown.
    key_shown: bool,
    reports: Vec<(RepairKind, Range<usize>)>,
    /// Of a call in Python.
    parameters: Parameters,
    /// The unescaped quotes of the current string, if the first one is at its beginning.
    quotes: usize,
    odd_quotes: bool,
}

impl Transducer {
    /// A new machine; with `repair` off nothing is corrected.
    pub(crate) fn new(repair: bool) -> Transducer {
        Transducer::of(Dialect::Json, repair)
    }

    /// A machine for a value in another notation than JSON.
    pub(crate) fn of(dialect: Dialect, repair: bool) -> Transducer {
        Transducer {
            dialect,
            out: Output::default(),
            stack: Vec::new(),
            state: State::Value,
            held: Vec::new(),
            unit: 0,
            escapes: Escapes::default(),
            repair,
            at: 0,
            broken: None,
            key_shown: false,
            reports: Vec::new(),
            parameters: Parameters::default(),
            quotes: 0,
            odd_quotes: false,
        }
    }

    /// Prepares for another value.
    pub(crate) fn reset(&mut self) {
        let mut text = std::mem::take(&mut self.out.text);
        text.clear();
        text.shrink_to(SPARE);
        let mut stack = std::mem::take(&mut self.stack);
        stack.clear();
        let out = Output { text, ..Output::default() };
        *self = Transducer { out, stack, ..Transducer::of(self.dialect.clone(), self.repair) };
    }

    /// The parameters' names in order, for positional arguments, and whether the first takes an object.
    pub(crate) fn name_parameters(&mut self, names: Vec<String>, takes_object: bool) {
        (self.parameters.names, self.parameters.takes_object) = (names, takes_object);
    }

    /// The tools whose calls may follow.
    pub(crate) fn know_tools(&mut self, tools: Option<Arc<Tools>>) {
        self.parameters.tools = tools;
    }

    /// The offset of another call that was found in place of an argument.
    pub(crate) fn called(&self) -> Option<usize> {
        self.parameters.called
    }

    /// Returns whether the arguments were in one object, `f({"a": 1})`.
    pub(crate) fn is_wrapped(&self) -> bool {
        self.parameters.wrapped
    }

    /// Returns whether a positional argument had no matching parameter.
    pub(crate) fn is_unnamed(&self) -> bool {
        self.parameters.unnamed
    }

    /// The value's text, if it is a string that has ended.
    pub(crate) fn string(&self) -> Option<Cow<'_, str>> {
        let inner = self.out.text.strip_prefix('"')?.strip_suffix('"')?;
        if self.broken.is_none() && !inner.contains('\\') {
            return Some(Cow::Borrowed(inner));
        }
        serde_json::from_str(&self.out.text).ok().map(Cow::Owned)
    }

    /// The final part of the output so far.
    pub(crate) fn stable(&self) -> &str {
        &self.out.text[..self.out.stable]
    }

    /// Takes the final output, so that it does not accumulate.
    pub(crate) fn take_stable(&mut self) -> String {
        let rest = self.out.text.split_off(self.out.stable);
        self.out.stable = 0;
        std::mem::replace(&mut self.out.text, rest)
    }

    /// The whole output, once the value has ended; resets the machine, which continues with the buffer `fresh`.
    pub(crate) fn take_text(&mut self, fresh: String) -> String {
        let text = std::mem::replace(&mut self.out.text, fresh);
        self.reset();
        text
    }

    /// Adopts a whole value from another machine.
    pub(crate) fn adopt(&mut self, text: String, broken: Option<usize>) {
        self.out.stable = text.len();
        (self.out.text, self.broken, self.state) = (text, broken, State::Done);
    }

    /// Returns whether output and input have the same notation.
    pub(crate) fn is_json(&self) -> bool {
        self.dialect == Dialect::Json
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Returns whether no byte of the value has come.
    pub(crate) fn is_empty(&self) -> bool {
        self.state == State::Value && self.stack.is_empty()
    }

    /// Where the value became irreparable.
    pub(crate) fn broken_at(&self) -> Option<usize> {
        self.broken
    }

    pub(crate) fn in_string(&self) -> bool {
        match self.state {
            State::String(_) | State::Loose { string: true, .. } => true,
            State::Opening(_) => self.held.len() == 1,
            _ => false,
        }
    }

    /// Returns whether the position is between two characters of a string.
    fn is_in_text(&self) -> bool {
        matches!(self.state, State::String(_)) && self.unit == self.held.len()
    }

    /// The open brackets around the current string value, if the position is in one.
    pub(crate) fn open_string(&self) -> Option<&[u8]> {
        let value = matches!(self.state, State::String(Quoted { key: false, .. }));
        (value && self.is_in_text()).then_some(&self.stack)
    }

    /// Returns whether the quote that ends the open string is damaged: it is unknown where the string was to end.
    pub(crate) fn is_misquoted(&self) -> bool {
        let State::String(quoted) = self.state else { return false };
        if !self.is_in_text() && quoted.quote != Quote::Own {
            return false;
        }
        let text = format!("{}{}", self.out.text, String::from_utf8_lossy(&self.held[..self.unit]));
        let text = text.trim_end();
        match quoted.quote {
            Quote::Single => true,
            Quote::Double => {
                let own = text.rfind('"').map_or(text, |at| &text[at..]);
                // The end of a code fence around the value.
                text.ends_with("```") || text.ends_with('\'') && own.matches('\'').count() % 2 == 1
            }
            Quote::Own => {
                let Dialect::Own { quote: Some(quote), .. } = &self.dialect else { return false };
                ends_nearly(text.replace("\\\"", "\"").as_bytes(), quote)
            }
            Quote::Python { .. } => false,
        }
    }

    /// Returns whether a string began or ended with two quotes, one of which belongs to nothing.
    pub(crate) fn has_odd_quotes(&self) -> bool {
        self.odd_quotes
    }

    /// Ends the string of [`Transducer::open_string`].
    pub(crate) fn close_string(&mut self) {
        if let State::String(quoted) = self.state {
            self.close_quote(quoted);
        }
    }

    /// Takes the last repair, and the byte at which it was found.
    pub(crate) fn take_report(&mut self) -> Option<(RepairKind, Range<usize>)> {
        if self.reports.is_empty() { None } else { Some(self.reports.remove(0)) }
    }

    /// Takes bytes of the text, the first of which has offset `at`; returns how many it took.
    ///
    /// It stops before a byte after the value, after a byte with a report and, with `markers`, before a byte that may
    /// begin a marker.
    pub(crate) fn feed(&mut self, input: &[u8], at: usize, flags: &Stops, markers: bool) -> usize {
        let mut i = 0;
        while i < input.len() && self.reports.is_empty() {
            let run = lane::run(self, &input[i..], at + i, flags, markers);
            if run > 0 {
                i += run;
                continue;
            }
            if let State::String(quoted) = self.state
                && self.is_in_text()
            {
                let mut mask = quoted.quote.stops();
                if markers {
                    mask |= Stops::STRING_MARKER;
                }
                let rest = &input[i..];
                let run = match quoted {
                    Quoted { quote: Quote::Python { raw: false, .. }, key: false } => {
                        lane::python(rest, flags, mask, markers)
                    }
                    _ => flags.run(rest, mask),
                };
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

    /// Reports a departure; false if it must not be repaired, and the value is then broken.
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
        let written = match self.state {
            State::Word { .. } => self.unit,
            State::QuoteEnd(_) => {
                self.held[self.unit] = b'"';
                0
            }
            _ => 0,
        };
        self.out.put_all(&self.held[written..]);
        self.held.clear();
        self.unit = 0;
        self.escapes.meaning = Meaning::Settled;
        self.state = State::Loose { depth: self.stack.len(), string, escape: false };
        self.out.settle();
    }

    fn end_value(&mut self) {
        self.key_shown = false;
        self.out.settle();
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
        self.out.put(if object { b'{' } else { b'[' });
        self.out.settle();
        self.state = if object { State::FirstKey } else { State::FirstElement };
        true
    }

    /// A closing bracket; also closes brackets left open inside the one it closes.
    fn close(&mut self, byte: u8, at: usize) -> bool {
        let Some(index) = self.stack.iter().rposition(|&open| closer(open) == byte) else {
            // A bracket around the call, whose own parenthesis is missing.
            if self.dialect != Dialect::PythonCall || byte != b']' {
                return self.refuse();
            }
            if self.depart(RepairKind::MissingBrackets, at) {
                self.out.drop_pending();
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
                self.out.put(if matches!(open, b'{' | CALL | ROUND) { b'}' } else { b']' });
            }
        }
    }

    fn trailing_comma(&mut self, byte: u8, at: usize) -> bool {
        if self.dialect != Dialect::PythonCall && !self.depart(RepairKind::TrailingComma, at) {
            return false;
        }
        self.out.drop_pending();
        self.close(byte, at)
    }

    /// Takes one byte; false if it has to be read again in the new state.
    fn step(&mut self, byte: u8, at: usize) -> bool {
        self.at = at;
        match self.state {
            State::Value | State::Element | State::FirstElement => self.value(byte, at),
            State::FirstKey | State::Key => self.key(byte, at),
            State::Colon if self.at_call() => self.equals(byte, at),
            State::Colon => match byte {
                b' ' | b'\t' | b'\r' | b'\n' => self.blank(byte),
                b':' => {
                    self.out.put(byte);
                    self.state = State::Value;
                    true
                }
                b'=' => {
                    if self.depart(RepairKind::OtherPunctuation, at) {
                        self.out.put(b':');
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
            State::String(quoted) => self.string_byte(quoted, byte, at),
            State::QuoteEnd(quoted) => self.quote_end(quoted, byte, at),
            State::Opening(quoted) => self.opening(quoted, byte),
            State::OwnOpening(quoted) => self.own_opening(quoted, byte),
            State::Word { key } => self.word(key, byte, at),
            State::Loose { .. } => self.loose(&[byte]) > 0,
            State::Done => false,
        }
    }

    /// Another call, which began at offset `call`, comes where this one should go on: a parenthesis or a quote is missing.
    fn end_before_call(&mut self, call: usize) -> bool {
        self.parameters.called = Some(call);
        self.give_up();
        self.end_loose();
        false
    }

    fn refuse(&mut self) -> bool {
        self.give_up();
        false
    }

    /// Beyond repair: takes bytes unchanged, up to the value's probable end.
    pub(super) fn loose(&mut self, bytes: &[u8]) -> usize {
        let round = self.dialect == Dialect::PythonCall;
        for (index, &byte) in bytes.iter().enumerate() {
            let State::Loose { mut depth, mut string, mut escape } = self.state else { return index };
            if string {
                // A string ends at a line break, so that unpaired quotes have no effect beyond it.
                string = byte != b'\n' && (escape || byte != b'"');
                escape = !escape && byte == b'\\';
            } else {
                match byte {
                    b'"' => string = true,
                    b'{' | b'[' => depth += 1,
                    b'(' if round => depth += 1,
                    b'}' | b']' | b',' if depth == 0 => {
                        self.end_loose();
                        return index;
                    }
                    b'}' | b']' => depth -= 1,
                    b')' if round => depth = depth.saturating_sub(1),
                    _ => {}
                }
            }
            self.state = State::Loose { depth, string, escape };
            self.out.put(byte);
            self.out.settle();
            if depth == 0 && !string && (matches!(byte, b'}' | b']') || round && byte == b')') {
                self.end_loose();
                return index + 1;
            }
        }
        bytes.len()
    }

    pub(super) fn end_loose(&mut self) {
        self.out.end_character();
        self.out.settle();
        self.state = State::Done;
    }

    /// The text ends inside the value or after it.
    pub(crate) fn cut(&mut self, at: usize) -> Cut {
        self.out.end_character();
        self.at = at;
        let mut dropped = match self.state {
            State::Word { .. } | State::Colon => !self.held.is_empty(),
            State::String(Quoted { quote: Quote::Own, .. }) => false,
            State::String(_) => !self.is_in_text() && self.held[self.unit] == b'\\',
            // An unfinished word after it, whose meaning is unknown.
            State::QuoteEnd(_) => self.at_call() && !self.word_after_quote().is_empty(),
            _ => false,
        };
        match self.state {
            State::String(quoted) if self.escapes.is_held() => self.end_text_of(quoted),
            State::Word { key: false } if self.is_scalar() => {
                dropped = false;
                self.end_text(at);
            }
            State::Word { key: false } if self.stack.is_empty() => self.give_up(),
            State::QuoteEnd(quoted) => self.close_quote(quoted),
            State::Opening(quoted) if self.held.len() > 1 => {
                self.held.truncate(1);
                self.close_quote(quoted);
            }
            _ => {}
        }
        if self.broken.is_some() {
            self.out.settle();
            self.state = State::Done;
            return Cut::Broken;
        }
        if self.state == State::Done {
            return Cut::Whole;
        }
        self.reports.push((RepairKind::MissingBrackets, at..at));
        if !self.repair || self.key_shown || (self.stack.is_empty() && !self.in_string()) {
            self.give_up();
            self.state = State::Done;
            return Cut::Broken;
        }
        let string =
            matches!(self.state, State::String(Quoted { key: false, .. }) | State::Opening(Quoted { key: false, .. }));
        self.held.clear();
        self.unit = 0;
        dropped |= !self.out.text[self.out.stable..].trim_matches([',', ' ', '\t', '\r', '\n']).is_empty();
        self.out.drop_pending();
        if string {
            self.out.text.push('"');
        }
        self.close_down_to(0);
        self.out.settle();
        self.state = State::Done;
        if dropped { Cut::Shortened } else { Cut::Closed }
    }
}

/// A call's parenthesis in the stack of open brackets.
const CALL: u8 = b'=';

/// A parenthesis instead of an object's brace.
const ROUND: u8 = b'~';

/// The bracket that closes `open`.
pub(crate) fn closer(open: u8) -> u8 {
    match open {
        b'{' => b'}',
        b'[' => b']',
        _ => b')',
    }
}

/// A text as a JSON string.
fn quoted_json(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
