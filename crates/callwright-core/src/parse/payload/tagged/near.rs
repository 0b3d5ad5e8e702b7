//! The tag before an argument with other attributes than declared: `<parameter name"city">`, `<parameter city>`.
//!
//! Only where an argument is expected, a tag with the declared word in it is one, whatever its equals signs and quotes.

use crate::format::TaggedCall;

/// Maximum length of a tag.
const LONGEST: usize = 160;
/// Words for the tag of an argument, the longer ones first.
const WORDS: [&str; 4] = ["parameter", "argument", "param", "arg"];
const AROUND: [char; 10] = [' ', '\t', '=', ':', '"', '\'', '`', '“', '”', '/'];

/// The declared tag.
#[derive(Debug)]
pub(super) struct NearTag {
    /// The letters before its word, and the word.
    before: String,
    word: String,
    /// The attribute with the word for the type, if there is one.
    kind: String,
}

/// What bytes are that begin like a tag.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Near {
    No,
    Begun,
    /// The argument's name, and the word for its type.
    Whole(String, String),
}

impl NearTag {
    /// `None` if the tag before an argument is not of this kind.
    pub(super) fn new(call: &TaggedCall) -> Option<NearTag> {
        let tag = call.key_start.trim();
        let tag = tag.strip_suffix("=\"").or_else(|| tag.strip_suffix('='))?.strip_prefix('<')?;
        let tag = tag.strip_suffix(" name").unwrap_or(tag);
        let fits = call.key_end.trim().ends_with('>') && call.value_start.is_empty() && !call.nested;
        let letters = letters(tag);
        let word = WORDS.into_iter().find(|word| letters.ends_with(word)).filter(|_| fits)?;
        let before = letters.strip_suffix(word)?.to_owned();
        let kind = self::letters(call.key_end.split('{').next().unwrap_or_default());
        Some(NearTag { before, word: word.to_owned(), kind })
    }

    /// Reads bytes that begin with `<`.
    pub(super) fn read(&self, text: &[u8]) -> Near {
        let Some((b'<', inner)) = text.split_first() else { return Near::No };
        let Ok(inner) = str::from_utf8(inner) else {
            return if text.len() < LONGEST { Near::Begun } else { Near::No };
        };
        let whole = inner.strip_suffix('>');
        let tag = whole.unwrap_or(inner);
        if tag.starts_with('/') || tag.contains(['<', '>', '\n']) || text.len() > LONGEST {
            return Near::No;
        }
        let Some(rest) = self.after_word(tag) else {
            let begun = letters(tag);
            let declared = || WORDS.into_iter().map(|word| format!("{}{word}", self.before));
            let may_be = whole.is_none() && declared().any(|tag| tag.starts_with(&begun));
            return if may_be { Near::Begun } else { Near::No };
        };
        if whole.is_none() {
            return Near::Begun;
        }
        match self.attributes(rest) {
            Some((key, kind)) => Near::Whole(key, kind),
            None => Near::No,
        }
    }

    /// The text after the declared word or a similar one.
    fn after_word<'t>(&self, tag: &'t str) -> Option<&'t str> {
        let mut rest = tag;
        for letter in self.before.chars() {
            rest = rest.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
            rest = rest.strip_prefix(|c: char| c.eq_ignore_ascii_case(&letter))?;
        }
        let rest = rest.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
        let words = std::iter::once(&*self.word).chain(WORDS);
        let mut after = words.filter_map(|word| {
            let (begin, rest) = rest.split_at_checked(word.len())?;
            begin.eq_ignore_ascii_case(word).then_some(rest)
        });
        after.find(|rest| rest.starts_with(AROUND))
    }

    /// The argument's name and the word for its type.
    fn attributes(&self, text: &str) -> Option<(String, String)> {
        let word = |text: &str| text.find(|c| AROUND.contains(&c)).unwrap_or(text.len());
        let text = text.trim_start_matches(AROUND);
        let named = text.strip_prefix("name").or_else(|| text.strip_prefix("key"));
        let named = named.filter(|rest| rest.starts_with(AROUND) && rest.contains(|c| !AROUND.contains(&c)));
        let text = named.unwrap_or(text).trim_start_matches(AROUND);
        let (key, rest) = text.split_at(word(text));
        let kind = rest.trim_start_matches(AROUND).strip_prefix(&*self.kind).unwrap_or_default();
        let kind = kind.trim_start_matches(AROUND);
        (!key.is_empty()).then(|| (key.to_owned(), kind[..word(kind)].to_owned()))
    }

    /// Splits a tag's text into the argument's name and the word for its type, whatever is around them.
    pub(super) fn split<'t>(&self, tag: &'t str) -> Option<(&'t str, &'t str)> {
        let at = tag.rfind(&self.kind).filter(|at| *at > 0 && !self.kind.is_empty())?;
        let (key, rest) = (tag[..at].strip_suffix(AROUND)?, &tag[at + self.kind.len()..]);
        Some((key.trim_end_matches(AROUND), rest.trim_matches(AROUND)))
    }

    /// Returns whether the letters of the declared tag are in the text.
    pub(super) fn is_in(&self, text: &[u8]) -> bool {
        letters(&String::from_utf8_lossy(text)).contains(&format!("{}{}", self.before, self.word))
    }
}

fn letters(text: &str) -> String {
    text.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Format, Payload};

    fn tag(name: &str) -> NearTag {
        match &Format::builtin(name).unwrap().payload {
            Payload::Tagged(call) => NearTag::new(call).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn attributes_are_read_without_their_punctuation() {
        let whole = |key: &str, kind: &str| Near::Whole(key.to_owned(), kind.to_owned());
        for (format, text, expected) in [
            ("minimax-m2", "<parameter name\"city\">", whole("city", "")),
            ("minimax-m2", "<parameter name city>", whole("city", "")),
            ("minimax-m2", "<parameter 'city'>", whole("city", "")),
            ("minimax-m2", "<parameter name: \"city\" >", whole("city", "")),
            ("minimax-m2", "<parameter name>", whole("name", "")),
            ("minimax-m2", "<param=city>", whole("city", "")),
            ("minimax-m2", "<parameter na", Near::Begun),
            ("minimax-m2", "<para", Near::Begun),
            ("minimax-m2", "<parade name=\"city\">", Near::No),
            ("minimax-m2", "<parameters>", Near::No),
            ("minimax-m2", "</parameter>", Near::No),
            ("qwen3-coder", "<parameter name=\"city\">", whole("city", "")),
            ("deepseek-v4", "<｜DSML｜parameter name=city string=true>", whole("city", "true")),
            ("deepseek-v4", "<|DSML|parameter name='city' string='false'>", whole("city", "false")),
            ("deepseek-v4", "<parameter name='city'>", Near::No),
        ] {
            assert_eq!(tag(format).read(text.as_bytes()), expected, "{format} {text}");
        }
        assert_eq!(tag("deepseek-v4").split("city\" string=true"), Some(("city", "true")));
        assert_eq!(tag("deepseek-v4").split("city"), None);
    }
}
