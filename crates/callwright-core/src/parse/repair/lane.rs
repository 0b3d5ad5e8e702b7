//! A fast path for valid JSON: regular tokens pass in one piece.
//!
//! Most of what models write needs no repair, and the output equals the input. Here it is only scanned and copied once;
//! anything irregular is left to the byte-by-byte machine.

use super::escapes::{Escapes, Opening, SHORT as WAIT};
use super::number::Number;
use super::string::{Quote, Quoted};
use super::{DEPTH, Dialect, PENDING, State, Stops, Transducer};

/// A string that is a value.
const VALUE: Quoted = Quoted { quote: Quote::Double, key: false };

/// Maximum length of a key, and of what waits before it.
const SHORT: usize = PENDING / 8;

/// Progress of the fast path in its input.
struct Place {
    i: usize,
    /// End of the final output; `None` if it has not moved.
    stable: Option<usize>,
}

impl Transducer {
    /// Takes the part of `input` that can only be valid JSON, up to an incomplete token other than a string; returns
    /// its length. Stops where [`Transducer::feed`] does.
    pub(super) fn lane(&mut self, input: &[u8], at: usize, flags: &Stops, markers: bool) -> usize {
        let plain = !self.stack.is_empty() && self.surrogate.is_none() && self.utf8.is_empty() && !self.key_shown;
        let other_string =
            matches!(self.state, State::String(quoted) if quoted.key || !matches!(quoted.quote, Quote::Double));
        let escapes = matches!(self.escapes, Escapes::Fresh | Escapes::Settled);
        if !plain || !escapes || other_string || !matches!(self.dialect, Dialect::Json) {
            return 0;
        }
        let waiting = self.out.len() - self.stable;
        let mut place = Place { i: 0, stable: None };
        while let Some(&byte) = input.get(place.i) {
            // Waiting text is bounded, and invalid characters grow when they are replaced.
            let pending = place.stable.map_or(waiting + place.i, |stable| place.i - stable);
            let taken = pending < SHORT && self.token(byte, input, &mut place, flags, markers);
            if !taken || matches!(self.state, State::Done) {
                break;
            }
        }
        if place.i > 0 {
            let (stable, rest) = input[..place.i].split_at(place.stable.unwrap_or(0));
            self.utf8.push(stable, &mut self.out);
            if place.stable.is_some() {
                self.stable = self.out.len();
            }
            self.utf8.push(rest, &mut self.out);
            self.at = at + place.i - 1;
        }
        place.i
    }

    /// Takes the token that begins with `byte`; false if it, or the rest of it, is not for the fast path.
    fn token(&mut self, byte: u8, input: &[u8], place: &mut Place, flags: &Stops, markers: bool) -> bool {
        if matches!(self.state, State::String(_)) {
            return self.rest_of_string(input, place, flags, markers);
        }
        if markers && flags.in_structure(byte) {
            return false;
        }
        if matches!(byte, b' ' | b'\t' | b'\r' | b'\n') {
            match self.state {
                State::AfterValue => place.stable = Some(place.i + 1),
                State::Value | State::Element | State::FirstElement => {}
                State::FirstKey | State::Key | State::Colon => {}
                _ => return false,
            }
            place.i += 1;
            return true;
        }
        let next = match (self.state, byte) {
            (State::FirstKey | State::Key, b'"') => {
                let (length, whole) = string(&input[place.i + 1..], flags, markers, None);
                if !whole || length > SHORT {
                    return false;
                }
                place.i += length + 1;
                State::Colon
            }
            (State::Colon, b':') => State::Value,
            (State::Value | State::Element | State::FirstElement, b'"') => {
                place.i += 1;
                self.state = State::String(VALUE);
                self.begin_escapes(false);
                place.stable = Some(place.i);
                self.rest_of_string(input, place, flags, markers);
                return true;
            }
            (State::Value | State::Element | State::FirstElement, b'{' | b'[') if self.stack.len() < DEPTH => {
                self.stack.push(byte);
                place.stable = Some(place.i + 1);
                if byte == b'{' { State::FirstKey } else { State::FirstElement }
            }
            (State::Value | State::Element | State::FirstElement, b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => {
                let rest = &input[place.i..];
                let length = if byte.is_ascii_alphabetic() { literal(rest) } else { number(rest) };
                // The next byte shows where it ends, unless that may begin a marker: it is then not known to be JSON.
                let stops = |&byte: &u8| markers && flags.in_structure(byte);
                let ends = rest.get(length).is_some_and(|next| b",]} \t\r\n".contains(next));
                if length == 0 || !ends || rest[..=length].iter().any(stops) {
                    return false;
                }
                place.i += length;
                place.stable = Some(place.i);
                self.state = State::AfterValue;
                return true;
            }
            (State::AfterValue, b',') => match self.stack.last() {
                Some(b'[') => State::Element,
                _ => State::Key,
            },
            (State::AfterValue | State::FirstKey, b'}') | (State::AfterValue | State::FirstElement, b']') => {
                let open = if byte == b'}' { b'{' } else { b'[' };
                if self.stack.pop_if(|last| *last == open).is_none() {
                    return false;
                }
                place.stable = Some(place.i + 1);
                if self.stack.is_empty() { State::Done } else { State::AfterValue }
            }
            _ => return false,
        };
        place.i += 1;
        self.state = next;
        true
    }

    /// Takes bytes of the open string; false if it did not end.
    fn rest_of_string(&mut self, input: &[u8], place: &mut Place, flags: &Stops, markers: bool) -> bool {
        let rest = &input[place.i..];
        let (length, whole) = match self.escapes {
            Escapes::Fresh => {
                let mut fresh = Fresh { opening: self.opening, first: None, settled: false };
                let (length, whole) = string(rest, flags, markers, Some(&mut fresh));
                let length = if whole { length } else { fresh.certain(length) };
                self.opening = self.opening.after(&rest[..length]);
                if fresh.settled {
                    self.escapes = Escapes::Settled;
                }
                (length, whole)
            }
            _ => string(rest, flags, markers, None),
        };
        place.i += length + usize::from(whole);
        if length > 0 || whole {
            place.stable = Some(place.i);
        }
        if whole {
            self.state = State::AfterValue;
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

/// Length of the number at the beginning; 0 if it is incomplete.
fn number(bytes: &[u8]) -> usize {
    let mut number = match bytes[0] {
        b'-' => Number::Minus,
        b'0' => Number::Zero,
        _ => Number::Integer,
    };
    let mut length = 1;
    while let Some(next) = bytes.get(length).and_then(|&byte| number.next(byte)) {
        number = next;
        length += 1;
    }
    if number.is_whole() { length } else { 0 }
}

/// Length of the word at the beginning, if it is a JSON literal.
fn literal(bytes: &[u8]) -> usize {
    let words: [&[u8]; 3] = [b"true", b"false", b"null"];
    words.into_iter().find(|word| bytes.starts_with(word)).map_or(0, <[u8]>::len)
}
