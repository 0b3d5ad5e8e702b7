//! Arguments whose tag names their type in an attribute: `<parameter name="a" string="true">`.
//!
//! `{type}` in the text after an argument's name is a placeholder for a word, and the declaration maps words to types.
//! A value whose word means text is taken literally; any other is JSON.

use super::TaggedCall;
use super::schema::Types;
use serde_json::Value;

/// The placeholder in [`TaggedCall::key_end`] for the word.
pub(crate) const PART: &str = "{type}";

/// The names of types in a declaration; `other` covers the rest.
pub(crate) const KINDS: [&str; 8] = ["string", "number", "integer", "boolean", "null", "object", "array", "other"];

/// The names of JSON's types, which are the default words.
pub(crate) const DEFAULT: [&str; 6] = ["string", "number", "boolean", "null", "object", "array"];

impl TaggedCall {
    /// The text before and after the word, if the format writes one.
    pub(crate) fn around_type(&self) -> Option<(&str, &str)> {
        self.key_end.split_once(PART)
    }

    /// The word for values of the type `kind`, one of [`KINDS`].
    fn word(&self, kind: &str) -> Option<&str> {
        let find = |wanted: &str| self.types.iter().find(|(kind, _)| kind == wanted).map(|(_, word)| word.as_str());
        let number = || (kind == "integer").then(|| find("number")).flatten();
        find(kind).or_else(number).or_else(|| find("other"))
    }

    /// A JSON type that has no word.
    pub(super) fn untyped(&self) -> Option<&'static str> {
        DEFAULT.into_iter().find(|kind| self.word(kind).is_none())
    }

    /// Returns whether the word for text also means other types.
    pub(super) fn shares_text_word(&self) -> bool {
        self.words().iter().any(|(_, types)| types.has(Types::STRING) && *types != Types::STRING)
    }

    /// The words, each with the types it means.
    pub(crate) fn words(&self) -> Vec<(String, Types)> {
        let mut words: Vec<(String, Types)> = Vec::new();
        for kind in &KINDS[..7] {
            let Some(word) = self.word(kind) else { continue };
            let types = Types::of_name(kind);
            match words.iter_mut().find(|(known, _)| known == word) {
                Some((_, known)) => *known = known.or(types),
                None => words.push((word.to_owned(), types)),
            }
        }
        words
    }

    /// The text between an argument's name and `value`, without `value_start`.
    pub(crate) fn key_end_of(&self, value: &Value) -> String {
        let kind = match value {
            Value::String(_) => "string",
            Value::Number(number) if number.is_f64() => "number",
            Value::Number(_) => "integer",
            Value::Bool(_) => "boolean",
            Value::Null => "null",
            Value::Object(_) => "object",
            Value::Array(_) => "array",
        };
        self.key_end_with(self.word(kind).unwrap_or_default())
    }

    /// Like `key_end_of`, for values with this word.
    pub(crate) fn key_end_with(&self, word: &str) -> String {
        self.key_end.replacen(PART, word, 1)
    }

    /// An argument's name as the format writes it.
    pub(crate) fn write_key(&self, key: &str) -> String {
        if !self.escaped_keys {
            return key.to_owned();
        }
        key.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;").replace('>', "&gt;")
    }
}

/// Unescapes an argument's name that is escaped like an XML attribute.
pub(crate) fn unescape(key: &str) -> String {
    const NAMED: [(&str, char); 5] = [("amp", '&'), ("quot", '"'), ("lt", '<'), ("gt", '>'), ("apos", '\'')];
    let mut text = String::with_capacity(key.len());
    let mut rest = key;
    while let Some(at) = rest.find('&') {
        text.push_str(&rest[..at]);
        rest = &rest[at..];
        let reference = rest.find(';').and_then(|end| {
            let name = &rest[1..end];
            let number = name.strip_prefix('#').and_then(|number| match number.strip_prefix(['x', 'X']) {
                Some(hex) => u32::from_str_radix(hex, 16).ok(),
                None => number.parse().ok(),
            });
            let named = NAMED.iter().find(|(known, _)| *known == name).map(|(_, char)| *char);
            Some((end, named.or_else(|| number.and_then(char::from_u32))?))
        });
        let (end, char) = reference.unwrap_or((0, '&'));
        text.push(char);
        rest = &rest[end + 1..];
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::unescape;

    #[test]
    fn references_become_characters_and_other_text_is_unchanged() {
        assert_eq!(unescape("q&amp;a &quot;x&quot; &#39;&#x41;&apos;"), "q&a \"x\" 'A'");
        assert_eq!(unescape("a & b; &; &what; &amp"), "a & b; &; &what; &amp");
        assert_eq!(unescape("&amp;lt;"), "&lt;");
    }
}
