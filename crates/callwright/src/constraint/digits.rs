//! Limits the digits of a number.
//!
//! The grammar engine accepts any number of digits in a number with bounds, and a weak model then repeats a digit until
//! the tokens run out.

use std::sync::Arc;

/// Maximum number of consecutive digits, before and after the point.
const MOST: usize = 40;
/// Maximum number of digits of an exponent: with more, the number may be out of range.
const EXPONENT: usize = 2;

/// Follows a text with numbers, and counts the digits of the number at its end.
#[derive(Debug, Clone)]
pub(super) struct Digits {
    notation: Notation,
    place: Place,
    digits: usize,
    number: Number,
    /// The last bytes that may belong to a quote or a tag.
    tail: Vec<u8>,
}

/// Where the numbers are.
#[derive(Debug, Clone)]
pub(super) enum Notation {
    /// The text is JSON and nothing else.
    Json,
    /// JSON or Python with other text around it.
    Call,
    /// A call whose strings are between these quotes, without escapes.
    Quoted(Arc<[u8]>),
    /// JSON after one of these texts, up to the next tag.
    Tagged(Arc<[String]>),
}

/// Which part of a number a text ends in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Number {
    /// None, but a number may begin.
    None,
    /// None, in a word.
    Word,
    Digits,
    Exponent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Value,
    Text,
    Escape,
    /// Not in JSON: nothing is counted.
    Elsewhere,
}

impl Digits {
    /// A counter at the beginning of a text; `None` if the grammar contains a longer number, which is then one that a
    /// schema lists.
    pub(super) fn new(grammar: &str, notation: Notation) -> Option<Digits> {
        let longest = grammar.split(|c: char| !c.is_ascii_digit()).map(str::len).max().unwrap_or(0);
        let place = if matches!(notation, Notation::Tagged(_)) { Place::Elsewhere } else { Place::Value };
        (longest <= MOST).then_some(Digits { notation, place, digits: 0, number: Number::None, tail: Vec::new() })
    }

    /// Takes written bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.take(*byte));
    }

    /// Returns whether no number would be too long with these bytes.
    pub(super) fn allows(&self, bytes: &[u8]) -> bool {
        if !bytes.iter().any(u8::is_ascii_digit) {
            return true;
        }
        let mut after = self.clone();
        bytes.iter().all(|byte| {
            after.take(*byte);
            after.digits <= if after.number == Number::Exponent { EXPONENT } else { MOST }
        })
    }

    /// Returns whether any token could make a number too long; tokens have few digits.
    pub(super) fn is_near(&self) -> bool {
        self.digits * 2 > MOST || self.number == Number::Exponent
    }

    /// Returns whether the text ends in a number, which more digits would change.
    pub(super) fn in_number(&self) -> bool {
        self.digits > 0
    }

    fn take(&mut self, byte: u8) {
        self.digits = if self.place == Place::Value && byte.is_ascii_digit() { self.digits + 1 } else { 0 };
        self.number = match (self.number, byte) {
            _ if self.place != Place::Value => Number::None,
            (Number::Word, byte) if byte.is_ascii_alphanumeric() => Number::Word,
            (Number::Digits, b'e' | b'E') | (Number::Exponent, b'0'..=b'9' | b'+' | b'-') => Number::Exponent,
            (Number::None | Number::Digits, b'0'..=b'9') | (Number::Digits, b'.') => Number::Digits,
            (_, byte) if byte.is_ascii_alphanumeric() || byte == b'_' => Number::Word,
            _ => Number::None,
        };
        if let Notation::Quoted(quote) = &self.notation {
            let quote = Arc::clone(quote);
            if self.ends_with(byte, quote.len(), |tail| tail == &quote[..]) {
                self.place = if self.place == Place::Text { Place::Value } else { Place::Text };
            }
            return;
        }
        self.place = match (self.place, byte) {
            (Place::Value, b'"') | (Place::Escape, _) => Place::Text,
            (Place::Text, b'"') => Place::Value,
            (Place::Text, b'\\') => Place::Escape,
            (Place::Value, byte) if !matches!(self.notation, Notation::Call) && !may_be_json(byte) => Place::Elsewhere,
            (place, _) => place,
        };
        if let (Notation::Tagged(before), Place::Elsewhere) = (&self.notation, self.place) {
            let before = Arc::clone(before);
            let longest = before.iter().map(String::len).max().unwrap_or(0);
            if self.ends_with(byte, longest, |tail| before.iter().any(|tag| tail.ends_with(tag.as_bytes()))) {
                self.place = Place::Value;
            }
        }
    }

    /// Returns whether the text ends with what is sought in its last `length` bytes, which are then used up.
    fn ends_with(&mut self, byte: u8, length: usize, is_sought: impl Fn(&[u8]) -> bool) -> bool {
        if length == 0 {
            return false;
        }
        if self.tail.len() >= length {
            self.tail.drain(..=self.tail.len() - length);
        }
        self.tail.push(byte);
        let found = is_sought(&self.tail);
        if found {
            self.tail.clear();
        }
        found
    }
}

/// Returns whether a byte may occur in JSON outside strings.
fn may_be_json(byte: u8) -> bool {
    byte.is_ascii_digit() || b" \t\r\n[]{},:\"+-.eEtrufalsn".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(text: &str, notation: Notation) -> Digits {
        let mut digits = Digits::new("", notation).unwrap();
        digits.push(text.as_bytes());
        digits
    }

    #[test]
    fn digits_are_counted_in_numbers_only() {
        let many = "1".repeat(MOST);
        for (text, allowed) in [
            (format!("[0.{many}"), false),
            (format!("[{many}"), false),
            (format!("[{many}."), true),
            (format!("[0.{}", &many[1..]), true),
            (format!("[\"0.{many}"), true),
            (format!("[\"\\\"{many}"), true),
            (format!("[\"\\\"\", {many}"), false),
            (format!("<value>{many}"), true),
            ("[1e29".to_owned(), false),
            ("[1.5e-2".to_owned(), true),
            ("{\"1e29".to_owned(), true),
        ] {
            assert_eq!(after(&text, Notation::Json).allows(b"7"), allowed, "{text}");
        }
        assert!(!after(&format!("get_weather {{\"a\": {many}"), Notation::Call).allows(b"7"));
        assert!(!after(&format!("[f(a=\"1\", b={many}"), Notation::Call).allows(b"7"));
        assert!(after(&format!("[f(a=\"{many}"), Notation::Call).allows(b"7"));
        assert!(after("[tool_1e29", Notation::Call).allows(b"7"), "a name");
        assert!(after("0.5", Notation::Json).in_number() && !after("[0.5]", Notation::Json).in_number());
        assert!(Digits::new(&format!("start: \"0.{many}1\""), Notation::Json).is_none());
    }

    #[test]
    fn other_quotes_surround_text_and_tags_surround_values() {
        let many = "1".repeat(MOST);
        let quoted = || Notation::Quoted(Arc::from(*b"<|\"|>"));
        assert!(!after(&format!("f{{a:<|\"|>x \" y<|\"|>,b:{many}"), quoted()).allows(b"7"));
        assert!(after(&format!("f{{a:<|\"|>x<|\"|>,b:<|\"|>{many}"), quoted()).allows(b"7"));
        let tagged = || Notation::Tagged(Arc::from(["<p=days>".to_owned(), "<p=list>".to_owned()]));
        for (text, allowed) in [
            (format!("f><p=days>{many}"), false),
            (format!("f><p=city>{many}"), true),
            (format!("f><p=days>1</p><p=city>{many}"), true),
            (format!("f><p=city>1</p><p=days>-0.{many}"), false),
            (format!("f><p=list>[1, {many}"), false),
            (format!("f><p=list>[\"{many}"), true),
        ] {
            assert_eq!(after(&text, tagged()).allows(b"7"), allowed, "{text}");
        }
        assert!(after(&format!("f><p=city>{many}"), Notation::Tagged(Arc::from([]))).allows(b"7"), "only text");
    }
}
