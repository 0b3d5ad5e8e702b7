//! A fast path for valid JSON, and for strings in Python: regular tokens pass in one piece.
//!
//! Most of what models write needs no repair, and the output equals the input. Here it is only scanned and copied once;
//! anything irregular is left to the byte-by-byte machine.

use super::escapes::{Meaning, Opening, SHORT as WAIT};
use super::state::{Quote, Quoted, State};
use super::word::number;
use super::{DEPTH, Dialect, PENDING, Stops, Transducer};

/// A string that is a value.
const VALUE: Quoted = Quoted { quote: Quote::Double, key: false };

/// Maximum length of a key, and of what waits before it.
const SHORT: usize = PENDING / 8;

/// The fast path of a machine through a piece of text.
struct Lane<'l> {
    machine: &'l mut Transducer,
    input: &'l [u8],
    flags: &'l Stops,
    markers: bool,
    i: usize,
    /// End of the final output; `None` if it has not moved.
    stable: Option<usize>,
}

/// Takes the part of `input` that can only be valid JSON, up to an incomplete token other than a string; returns
/// its length. Stops where [`Transducer::feed`] does.
pub(super) fn run(machine: &mut Transducer, input: &[u8], at: usize, flags: &Stops, markers: bool) -> usize {
    let plain =
        !machine.stack.is_empty() && machine.held.is_empty() && machine.out.utf8.is_empty() && !machine.key_shown;
    let other_string =
        matches!(machine.state, State::String(quoted) if quoted.key || !matches!(quoted.quote, Quote::Double));
    let escapes = matches!(machine.escapes.meaning, Meaning::Fresh | Meaning::Settled);
    if !plain || !escapes || other_string || !matches!(machine.dialect, Dialect::Json) {
        return 0;
    }
    let waiting = machine.out.pending();
    let mut lane = Lane { machine, input, flags, markers, i: 0, stable: None };
    while let Some(&byte) = input.get(lane.i) {
        // Waiting text is bounded, and invalid characters grow when they are replaced.
        let pending = lane.stable.map_or(waiting + lane.i, |stable| lane.i - stable);
        let taken = pending < SHORT && lane.token(byte);
        if !taken || matches!(lane.machine.state, State::Done) {
            break;
        }
    }
    let Lane { machine, i, stable: end, .. } = lane;
    if i > 0 {
        let (stable, rest) = input[..i].split_at(end.unwrap_or(0));
        machine.out.put_all(stable);
        if end.is_some() {
            machine.out.settle();
        }
        machine.out.put_all(rest);
        machine.at = at + i - 1;
    }
    i
}

impl Lane<'_> {
    /// Takes the token that begins with `byte`; false if it, or the rest of it, is not for the fast path.
    fn token(&mut self, byte: u8) -> bool {
        if matches!(self.machine.state, State::String(_)) {
            return self.rest_of_string();
        }
        if self.markers && self.flags.in_structure(byte) {
            return false;
        }
        if matches!(byte, b' ' | b'\t' | b'\r' | b'\n') {
            match self.machine.state {
                State::AfterValue => self.stable = Some(self.i + 1),
                State::Value | State::Element | State::FirstElement => {}
                State::FirstKey | State::Key | State::Colon => {}
                _ => return false,
            }
            self.i += 1;
            return true;
        }
        let next = match (self.machine.state, byte) {
            (State::FirstKey | State::Key, b'"') => {
                let (length, whole) = string(&self.input[self.i + 1..], self.flags, self.markers, None);
                if !whole || length > SHORT {
                    return false;
                }
                self.i += length + 1;
                State::Colon
            }
            (State::Colon, b':') => State::Value,
            (State::Value | State::Element | State::FirstElement, b'"') => {
                self.i += 1;
                self.machine.state = State::String(VALUE);
                self.machine.begin_escapes(false);
                self.stable = Some(self.i);
                self.rest_of_string();
                return true;
            }
            (State::Value | State::Element | State::FirstElement, b'{' | b'[') if self.machine.stack.len() < DEPTH => {
                self.machine.stack.push(byte);
                self.stable = Some(self.i + 1);
                if byte == b'{' { State::FirstKey } else { State::FirstElement }
            }
            (State::Value | State::Element | State::FirstElement, b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => {
                let rest = &self.input[self.i..];
                let length = if byte.is_ascii_alphabetic() { literal(rest) } else { number(rest) };
                // What follows shows where it ends, unless that may begin a marker: it is then not known to be JSON.
                let stops = |&byte: &u8| self.markers && self.flags.in_structure(byte);
                let blank = rest[length..].iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
                let ends = rest.get(length + blank).is_some_and(|next| b",]}\r\n".contains(next));
                if length == 0 || !ends || rest[..=length + blank].iter().any(stops) {
                    return false;
                }
                self.i += length;
                self.stable = Some(self.i);
                self.machine.state = State::AfterValue;
                return true;
            }
            (State::AfterValue, b',') => match self.machine.stack.last() {
                Some(b'[') => State::Element,
                _ => State::Key,
            },
            (State::AfterValue | State::FirstKey, b'}') | (State::AfterValue | State::FirstElement, b']') => {
                let open = if byte == b'}' { b'{' } else { b'[' };
                if self.machine.stack.pop_if(|last| *last == open).is_none() {
                    return false;
                }
                self.stable = Some(self.i + 1);
                if self.machine.stack.is_empty() { State::Done } else { State::AfterValue }
            }
            _ => return false,
        };
        self.i += 1;
        self.machine.state = next;
        true
    }

    /// Takes bytes of the open string; false if it did not end.
    fn rest_of_string(&mut self) -> bool {
        let rest = &self.input[self.i..];
        let (length, whole) = match self.machine.escapes.meaning {
            Meaning::Fresh => {
                let mut fresh = Fresh { opening: self.machine.escapes.opening, first: None, settled: false };
                let (length, whole) = string(rest, self.flags, self.markers, Some(&mut fresh));
                let length = if whole { length } else { fresh.certain(length) };
                self.machine.escapes.opening = self.machine.escapes.opening.after(&rest[..length]);
                if fresh.settled {
                    self.machine.escapes.meaning = Meaning::Settled;
                }
                (length, whole)
            }
            _ => string(rest, self.flags, self.markers, None),
        };
        self.i += length + usize::from(whole);
        if length > 0 || whole {
            self.stable = Some(self.i);
        }
        if whole {
            self.machine.state = State::AfterValue;
        }
        whole
    }
}

/// A string whose backslashes are undecided; see [`super::escapes`].
struct Fresh {
    opening: Opening,
    /// Position of the first escape that may be literal.
    first: Option<usize>,
    settled: bool,
}

impl Fresh {
    /// An escape after `before`; false if it has to be read byte by byte.
    fn weigh(&mut self, byte: u8, before: &[u8]) -> bool {
        if self.certain(before.len()) == before.len() && self.settled {
            return true;
        }
        match byte {
            b'"' => {}
            b'b' | b'f' => return false,
            b'/' => self.settled = true,
            b'\\' if before.is_empty() && self.opening == Opening::Start => return false,
            b'\\' => self.settled = true,
            _ if self.opening.after(before) == Opening::Drive => return false,
            _ => {
                self.first.get_or_insert(before.len());
            }
        }
        true
    }

    /// How many of `length` bytes are final.
    fn certain(&mut self, length: usize) -> usize {
        match self.first {
            Some(first) if !self.settled && length - first <= WAIT => first,
            Some(_) => {
                self.settled = true;
                length
            }
            None => length,
        }
    }
}

/// Number of bytes of a string before its closing quote or before a byte to be read separately, and whether the closing
/// quote is there.
///
/// `fresh` is the undecided state of its escapes, if they are undecided.
fn string(bytes: &[u8], flags: &Stops, markers: bool, mut fresh: Option<&mut Fresh>) -> (usize, bool) {
    let mask = if markers { Stops::DOUBLE | Stops::STRING_MARKER } else { Stops::DOUBLE };
    let mut i = 0;
    loop {
        i += flags.run(&bytes[i..], mask);
        let stops = |byte: u8| markers && flags.in_string(byte);
        match bytes[i..] {
            [b'"', ..] => return (i, !stops(b'"')),
            [b'\\', byte @ (b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't'), ..]
                if !stops(b'\\') && !stops(byte) =>
            {
                if let Some(fresh) = fresh.as_deref_mut().filter(|fresh| !fresh.settled)
                    && !fresh.weigh(byte, &bytes[..i])
                {
                    return (i, false);
                }
                i += 2;
            }
            _ => return (i, false),
        }
    }
}

/// Number of bytes of a string in Python that JSON writes in the same way, up to a byte in `mask`.
pub(super) fn python(bytes: &[u8], flags: &Stops, mask: u8, markers: bool) -> usize {
    let stops = |byte: u8| markers && flags.in_string(byte);
    let mut i = 0;
    loop {
        i += flags.run(&bytes[i..], mask);
        match bytes[i..] {
            [b'\\', byte @ (b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't'), ..] if !stops(b'\\') && !stops(byte) => {
                i += 2;
            }
            _ => return i,
        }
    }
}

/// Length of the word at the beginning, if it is a JSON literal.
fn literal(bytes: &[u8]) -> usize {
    let words: [&[u8]; 3] = [b"true", b"false", b"null"];
    words.into_iter().find(|word| bytes.starts_with(word)).map_or(0, <[u8]>::len)
}
