//! Prefers what the user wrote in the values of a call.
//!
//! A small model often begins a value with the user's words and goes on with others, or invents one. So tokens that
//! continue a passage of the conversation are made likelier, and where a passage is whole, so are those that end the
//! value. The passages are looked up in a tree of all tokens, so the cost depends on the text and not on the vocabulary.

use super::digits::Open;
use crate::message::{Message, Role};
use llguidance::toktrie::{TokTrie, TokenId, TrieNode};

/// Longest text of the conversation to look into, in bytes: its end counts.
const LONGEST: usize = 1 << 16;

/// The passages that values may copy.
#[derive(Debug, Clone)]
pub(crate) struct Copying {
    /// What a copying token gets, in nats.
    pub bias: f32,
    text: Vec<u8>,
    /// Where words begin.
    starts: Vec<usize>,
    /// Numbers as JSON writes them.
    numbers: Vec<Vec<u8>>,
}

impl Copying {
    /// The passages of the messages of the user and of tools.
    pub(crate) fn new(bias: f32, messages: &[Message]) -> Copying {
        let mut text = Vec::new();
        for message in messages.iter().filter(|message| matches!(message.role, Role::User | Role::Tool)) {
            text.extend_from_slice(message.content.as_bytes());
            text.push(b'\n');
        }
        text.drain(..text.len().saturating_sub(LONGEST));
        let starts = (0..text.len()).filter(|at| begins(&text, *at)).collect();
        let numbers = numbers(&text);
        Copying { bias, text, starts, numbers }
    }

    /// The tokens that continue or end the value that a call ends in, if they copy.
    pub(super) fn tokens(&self, open: &Open<'_>, trie: &TokTrie) -> Vec<TokenId> {
        let mut found = Vec::new();
        match *open {
            Open::Text(value, quote) => {
                let mut whole = false;
                for start in &self.starts {
                    let Some(rest) = self.text[*start..].strip_prefix(value) else { continue };
                    whole |= !value.is_empty() && ends(&self.text, start + value.len());
                    let end = rest.iter().position(|byte| stops(*byte)).unwrap_or(rest.len());
                    prefixes(trie, &rest[..end], &mut found);
                }
                if whole {
                    closing(trie, quote, &mut found);
                }
            }
            Open::Number(value) => {
                let mut whole = false;
                for number in &self.numbers {
                    let Some(rest) = number.strip_prefix(value) else { continue };
                    whole |= rest.is_empty();
                    prefixes(trie, rest, &mut found);
                }
                if whole {
                    [b",", b"}", b"]", b")"].iter().for_each(|end| closing(trie, &end[..], &mut found));
                }
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// Whether a byte belongs to a word.
fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte >= 0x80
}

/// Whether a passage cannot go on with this byte, because a string would have it in another form.
fn stops(byte: u8) -> bool {
    matches!(byte, b'"' | b'\\' | 0..=0x1F | 0x7F)
}

/// Whether a word begins here.
fn begins(text: &[u8], at: usize) -> bool {
    let before = at.checked_sub(1).map_or(b' ', |before| text[before]);
    let spaced = before.is_ascii_whitespace() || matches!(before, b'"' | b'\'' | b'(' | b'[' | b'`');
    !text[at].is_ascii_whitespace() && !stops(text[at]) && (spaced || is_word(text[at]) && !is_word(before))
}

/// Whether a word ends before this byte.
fn ends(text: &[u8], at: usize) -> bool {
    let within = |at: usize| text.get(at).is_some_and(|byte| is_word(*byte));
    at.checked_sub(1).is_some_and(within) && !within(at)
}

/// The numbers of a text, without separators of thousands.
fn numbers(text: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let before = at.checked_sub(1).map_or(b' ', |before| text[before]);
        if !text[at].is_ascii_digit() || is_word(before) {
            at += 1;
            continue;
        }
        let mut number = Vec::new();
        if before == b'-' && at.checked_sub(2).is_none_or(|at| text[at].is_ascii_whitespace()) {
            number.push(b'-');
        }
        let digit = |at: usize| text.get(at).is_some_and(u8::is_ascii_digit);
        let mut point = false;
        while digit(at) || text.get(at).is_some_and(|byte| matches!(byte, b',' | b'.') && !point) && digit(at + 1) {
            match text[at] {
                b',' if !(digit(at + 2) && digit(at + 3) && !digit(at + 4)) => break,
                b',' => {}
                byte => {
                    point |= byte == b'.';
                    number.push(byte);
                }
            }
            at += 1;
        }
        found.push(number);
    }
    found
}

/// The tokens that a text begins with.
fn prefixes(trie: &TokTrie, text: &[u8], found: &mut Vec<TokenId>) {
    let mut node = trie.root();
    for byte in text {
        let Some(next) = trie.child_at_byte(node, *byte) else { return };
        node = next;
        found.extend(node.token_id());
    }
}

/// The tokens that begin with a text or that it begins with.
fn closing(trie: &TokTrie, text: &[u8], found: &mut Vec<TokenId>) {
    prefixes(trie, text, found);
    if let Some(node) = trie.child_at_bytes(trie.root(), text) {
        below(trie, node, found);
    }
}

fn below(trie: &TokTrie, node: &TrieNode, found: &mut Vec<TokenId>) {
    for child in trie.node_children(node) {
        found.extend(child.token_id());
        below(trie, child, found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use llguidance::toktrie::TokRxInfo;

    const WORDS: [&str; 17] =
        ["N", "New", " York", " Yorks", "ew", " in", "\"", "\"}", ",", "}", "3", "5", "0", ".", "-", "what", "s"];

    /// The tokens that are preferred after this beginning of a string or, without a quote, of a number.
    fn preferred(question: &str, open: &str) -> Vec<&'static str> {
        let words: Vec<Vec<u8>> =
            WORDS.iter().map(|word| word.as_bytes().to_vec()).chain([b"<end>".to_vec()]).collect();
        let trie = TokTrie::from(&TokRxInfo::new(u32::try_from(words.len()).unwrap(), 17), &words);
        let messages = [Message::new(Role::System, "Yorks"), Message::user(question)];
        let copying = Copying::new(1.0, &messages);
        let open = match open.strip_prefix('"') {
            Some(text) => Open::Text(text.as_bytes(), b"\""),
            None => Open::Number(open.as_bytes()),
        };
        copying.tokens(&open, &trie).into_iter().map(|id| WORDS[id as usize]).collect()
    }

    #[test]
    fn a_value_begins_with_a_word_and_goes_on_as_the_passage_does() {
        let question = "what's on in New York? Newark, 5 New\n Yorks";
        assert_eq!(preferred(question, "\""), ["N", "New", "5", "what", "s"]);
        assert_eq!(preferred(question, "\"New"), [" York", "\"", "\"}"]);
        assert_eq!(preferred(question, "\"New York"), ["\"", "\"}"]);
        // Within a word the value does not end, and in other text nothing is preferred.
        assert_eq!(preferred(question, "\"N"), ["ew"]);
        for other in ["\"York is", "\"ork", "\"x", "\"Yorks of"] {
            assert_eq!(preferred(question, other), [""; 0], "{other}");
        }
    }

    #[test]
    fn a_number_is_that_of_the_text_without_separators() {
        let question = "Take 5,300 or -3.5 of A30, not 3-0.";
        assert_eq!(preferred(question, ""), ["3", "5", "0", "-"]);
        assert_eq!(preferred(question, "5"), ["3"]);
        assert_eq!(preferred(question, "5300"), [",", "}"]);
        assert_eq!(preferred(question, "-3"), ["."]);
        assert_eq!(preferred(question, "-3.5"), [",", "}"]);
        assert_eq!(preferred(question, "30"), [""; 0]);
        assert_eq!(
            numbers(b"1,2 3, 4.5.6 2024-01-05 1,000,000"),
            [&b"1"[..], b"2", b"3", b"4.5", b"6", b"2024", b"01", b"05", b"1000000"]
        );
    }
}
