//! Limits the digits of a JSON number.
//!
//! The grammar engine accepts any number of digits in a number with bounds, and a weak model then repeats a digit until
//! the tokens run out.

/// Maximum number of consecutive digits, before and after the point.
const MOST: usize = 40;

/// Follows JSON text, and counts the digits of the number at its end.
#[derive(Debug, Clone)]
pub(super) struct Digits {
    place: Place,
    digits: usize,
    /// Whether the text is only JSON. In a call, other text may surround the JSON.
    only_json: bool,
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
    pub(super) fn new(grammar: &str, only_json: bool) -> Option<Digits> {
        let longest = grammar.split(|c: char| !c.is_ascii_digit()).map(str::len).max().unwrap_or(0);
        (longest <= MOST).then_some(Digits { place: Place::Value, digits: 0, only_json })
    }

    /// Takes written bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.take(*byte));
    }

    /// Whether no number would be too long with these bytes.
    pub(super) fn allows(&self, bytes: &[u8]) -> bool {
        let mut after = self.clone();
        bytes.iter().all(|byte| {
            after.take(*byte);
            after.digits <= MOST
        })
    }

    /// Whether any token could make a number too long; tokens have few digits.
    pub(super) fn is_near(&self) -> bool {
        self.digits * 2 > MOST
    }

    /// Whether the text ends in a number, which more digits would change.
    pub(super) fn in_number(&self) -> bool {
        self.digits > 0
    }

    fn take(&mut self, byte: u8) {
        self.digits = if self.place == Place::Value && byte.is_ascii_digit() { self.digits + 1 } else { 0 };
        self.place = match (self.place, byte) {
            (Place::Value, b'"') | (Place::Escape, _) => Place::Text,
            (Place::Text, b'"') => Place::Value,
            (Place::Text, b'\\') => Place::Escape,
            (Place::Value, byte) if self.only_json && !may_be_json(byte) => Place::Elsewhere,
            (place, _) => place,
        };
    }
}

/// Whether a byte may occur in JSON outside strings.
fn may_be_json(byte: u8) -> bool {
    byte.is_ascii_digit() || b" \t\r\n[]{},:\"+-.eEtrufalsn".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(text: &str, only_json: bool) -> Digits {
        let mut digits = Digits::new("", only_json).unwrap();
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
        ] {
            assert_eq!(after(&text, true).allows(b"7"), allowed, "{text}");
        }
        assert!(!after(&format!("get_weather {{\"a\": {many}"), false).allows(b"7"));
        assert!(after("0.5", true).in_number() && !after("[0.5]", true).in_number());
        assert!(Digits::new(&format!("start: \"0.{many}1\""), true).is_none());
    }
}
