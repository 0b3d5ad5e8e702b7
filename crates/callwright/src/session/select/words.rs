//! The words of a text, as far as they say what it is about.

use rust_stemmers::{Algorithm, Stemmer};

/// Words that questions and descriptions have whatever they are about.
const COMMON: &str = "a about all also am an and any are as at be been but by can could d did do does for from get had has \
    have he her here him his how i if in into is it its just like ll m may me might my need no not of on or our out please \
    re s shall she should so some such t than that the their them then there these they this those to too up us use using \
    ve very via want was we were what when where which who why will with would you your";

/// Splits texts into words; inflected forms of an English word are one.
pub(super) struct Words {
    stemmer: Stemmer,
}

impl Words {
    pub(super) fn new() -> Words {
        Words { stemmer: Stemmer::create(Algorithm::English) }
    }

    /// The words of a text, in lower case and without their endings. A name such as `getUserID` or `get_user-id` is three.
    /// Where a script has no spaces between words, each pair of characters is one.
    pub(super) fn of(&self, text: &str) -> Vec<String> {
        let mut words = Vec::new();
        for word in split(text) {
            if word.chars().any(spaceless) {
                let characters: Vec<char> = word.chars().collect();
                match characters.len() {
                    1 => words.push(word),
                    _ => words.extend(characters.windows(2).map(|pair| pair.iter().collect::<String>())),
                }
                continue;
            }
            if !COMMON.split(' ').any(|common| common == word) {
                words.push(self.stemmer.stem(&word).into_owned());
            }
        }
        words
    }
}

/// Returns whether a character is of a script that is written without spaces.
fn spaceless(c: char) -> bool {
    matches!(c, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{0e00}'..='\u{0eff}')
}

/// A text's words in lower case, split at everything that is no letter or digit, and where a capital letter begins a
/// word within one.
fn split(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let characters: Vec<char> = text.chars().collect();
    for (index, &c) in characters.iter().enumerate() {
        if !c.is_alphanumeric() {
            words.extend((!word.is_empty()).then(|| std::mem::take(&mut word)));
            continue;
        }
        let before = index.checked_sub(1).and_then(|before| characters.get(before));
        let after = characters.get(index + 1);
        let begins = c.is_uppercase()
            && (before.is_some_and(|before| before.is_lowercase() || before.is_numeric())
                || before.is_some_and(|before| before.is_uppercase())
                    && after.is_some_and(|after| after.is_lowercase()));
        // The ideographs of a sentence are no part of the Latin word before them.
        let other_script = before.is_some_and(|before| before.is_alphanumeric() && spaceless(*before) != spaceless(c));
        if begins || other_script {
            words.extend((!word.is_empty()).then(|| std::mem::take(&mut word)));
        }
        word.extend(c.to_lowercase());
    }
    words.extend((!word.is_empty()).then_some(word));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_sentences_are_split_into_stems() {
        for (text, words) in [
            ("getUserID", "user id"),
            ("HTTPServer_find-movies", "http server find movi"),
            ("Find me a movie, please!", "find movi"),
            ("weather_api.Weather2Api", "weather api weather2 api"),
            ("北京天气 in Beijing", "北京 京天 天气 beij"),
            ("Zürich", "zürich"),
            ("", ""),
        ] {
            assert_eq!(Words::new().of(text).join(" "), words, "{text}");
        }
    }
}
