//! Stop texts, which end an answer before them.

/// Looks for stop texts in the text of an answer, which comes in pieces. Text that may be the beginning of a stop text
/// is held back, so that none of it is shown.
pub struct Stops<'a> {
    stops: &'a [String],
    /// Text that may be the beginning of a stop text.
    held: String,
    /// How many bytes of the text came before the stop text; of all of it, where there is none.
    shown: usize,
    found: bool,
}

impl<'a> Stops<'a> {
    /// Looks for these texts.
    pub fn new(stops: &'a [String]) -> Stops<'a> {
        Stops { stops, held: String::new(), shown: 0, found: false }
    }

    /// Returns whether the answer has ended at a stop text.
    pub fn found(&self) -> bool {
        self.found
    }

    /// How many bytes of the text may be shown in all.
    pub(crate) fn shown(&self) -> usize {
        self.shown
    }

    /// Returns what may be shown once `delta` has come. Of several stop texts the one that is complete first ends the
    /// answer, so that it does not matter in which pieces the text comes.
    pub fn push(&mut self, delta: &str) -> String {
        if self.found {
            return String::new();
        }
        self.held.push_str(delta);
        let places = self.stops.iter().filter_map(|stop| self.held.find(stop.as_str()).map(|at| (at + stop.len(), at)));
        if let Some((_, at)) = places.min() {
            self.found = true;
            self.held.truncate(at);
            return self.release();
        }
        let begins = |at: &usize| self.stops.iter().any(|stop| stop.starts_with(&self.held[*at..]));
        let from = self.held.char_indices().map(|(at, _)| at).find(begins).unwrap_or(self.held.len());
        let held = self.held.split_off(from);
        let shown = self.release();
        self.held = held;
        shown
    }

    /// Returns what was held back, where no more text follows it at once: the text has ended, or a call begins.
    pub fn release(&mut self) -> String {
        self.shown += self.held.len();
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what is shown of a text, and whether a stop text ended it.
    fn shown(stops: &[&str], pieces: impl IntoIterator<Item = impl AsRef<str>>) -> (String, bool) {
        let stops: Vec<String> = stops.iter().map(|stop| (*stop).to_owned()).collect();
        let mut found = Stops::new(&stops);
        let mut text: String = pieces.into_iter().map(|piece| found.push(piece.as_ref())).collect();
        text.push_str(&found.release());
        assert_eq!(found.shown(), text.len());
        (text, found.found())
    }

    #[test]
    fn a_stop_text_ends_the_text_however_it_is_cut() {
        let cases: [(&[&str], &str, &str, bool); 8] = [
            (&["END"], "one END two", "one ", true),
            (&["END"], "one EN two", "one EN two", false),
            (&["END"], "one EENDD", "one E", true),
            (&["\n\n"], "one\n", "one\n", false),
            (&["aab"], "aaab", "a", true),
            (&["abcd", "b"], "abcd", "a", true),
            (&["é."], "caf\u{e9}. Yes", "caf", true),
            (&[], "one", "one", false),
        ];
        for (stops, text, expected, ends) in cases {
            assert_eq!(shown(stops, [text]), (expected.to_owned(), ends), "{text}");
            assert_eq!(shown(stops, text.chars().map(String::from)), (expected.to_owned(), ends), "{text}");
        }
    }

    #[test]
    fn only_what_may_begin_a_stop_text_is_held_back() {
        let stops = ["END".to_owned()];
        let mut found = Stops::new(&stops);
        assert_eq!(found.push("one E"), "one ");
        assert_eq!(found.push("x"), "Ex");
        assert_eq!(found.push("EN"), "");
        assert_eq!(found.push("D two"), "");
        assert_eq!(found.push("three"), "");
    }
}
