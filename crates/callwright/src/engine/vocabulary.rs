//! A model's vocabulary and tokenizer, shared with everything that needs the tokens of a text.

use super::Token;
use std::fmt;
use std::sync::Arc;

/// Turns plain text into tokens, never into special tokens.
pub(crate) type Tokenize = dyn Fn(&[u8]) -> Vec<Token> + Send + Sync;

/// Reads a [`Vocabulary`], which takes some milliseconds.
pub type ReadVocabulary = Box<dyn FnOnce() -> Vocabulary + Send>;

/// One token of a [`Vocabulary`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Word {
    /// Its bytes.
    pub bytes: Box<[u8]>,
    /// Whether it is a control token, which text never contains.
    pub control: bool,
    /// Whether it ends the model's turn.
    pub end: bool,
}

/// All tokens of a model, and its tokenizer.
#[derive(Clone)]
pub struct Vocabulary {
    /// The tokens, by id.
    pub words: Arc<[Word]>,
    tokenize: Arc<Tokenize>,
}

impl fmt::Debug for Vocabulary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vocabulary").field("words", &self.words.len()).finish_non_exhaustive()
    }
}

impl Vocabulary {
    /// A vocabulary; `tokenize` turns plain text into tokens, and must never look for special ones.
    pub fn new(words: Vec<Word>, tokenize: Arc<Tokenize>) -> Vocabulary {
        Vocabulary { words: words.into(), tokenize }
    }

    /// The 256 bytes as tokens, and one that ends the turn.
    pub fn of_bytes() -> Vocabulary {
        let bytes = (0..=255u8).map(|byte| Word { bytes: [byte].into(), ..Word::default() });
        let end = Word { bytes: (*b"<end>").into(), control: true, end: true };
        let words = bytes.chain([end]).collect();
        Vocabulary::new(words, Arc::new(|text| text.iter().map(|&byte| Token(i32::from(byte))).collect()))
    }

    /// The bytes of a token; empty if it is not in the vocabulary.
    pub fn bytes(&self, token: Token) -> &[u8] {
        usize::try_from(token.0).ok().and_then(|index| self.words.get(index)).map_or(b"", |word| &word.bytes)
    }

    /// The bytes of several tokens.
    pub(crate) fn text(&self, tokens: &[Token]) -> Vec<u8> {
        tokens.iter().flat_map(|token| self.bytes(*token)).copied().collect()
    }

    /// The tokens of a plain text that continues other text.
    ///
    /// They spell the text exactly, even if the tokenizer would change it: SentencePiece models put a space before a
    /// text, and some normalise it.
    pub fn tokenize(&self, text: &[u8]) -> Vec<Token> {
        if text.is_empty() {
            return Vec::new();
        }
        let tokens = (self.tokenize)(text);
        if self.spells(&tokens, text) {
            return tokens;
        }
        // After a character that no merge crosses, the text is not at a beginning, and gets no space.
        let (lead, whole) = ((self.tokenize)(b"\n"), (self.tokenize)(&[b"\n", text].concat()));
        if let Some(rest) = whole.strip_prefix(lead.as_slice()).filter(|rest| self.spells(rest, text)) {
            return rest.to_vec();
        }
        self.spell(text)
    }

    /// The control tokens in some texts, the longest first.
    pub(crate) fn specials(&self, texts: &[&[u8]]) -> Vec<(Vec<u8>, Token)> {
        let within = |text: &&[u8], word: &Word| text.windows(word.bytes.len()).any(|window| *window == *word.bytes);
        let control =
            self.words.iter().enumerate().filter(|(_, word)| word.control && !word.end && !word.bytes.is_empty());
        let there = control.filter(|(_, word)| texts.iter().any(|text| within(text, word)));
        let token = |(index, word): (usize, &Word)| Some((word.bytes.to_vec(), Token(i32::try_from(index).ok()?)));
        let mut specials: Vec<(Vec<u8>, Token)> = there.filter_map(token).collect();
        specials.sort_by_key(|(bytes, _)| std::cmp::Reverse(bytes.len()));
        specials
    }

    /// The tokens of a text, with these control tokens where they are in it; the first that fits counts.
    pub(crate) fn tokenize_with(&self, text: &[u8], specials: &[(Vec<u8>, Token)]) -> Vec<Token> {
        let (mut tokens, mut plain, mut at) = (Vec::new(), 0, 0);
        while at < text.len() {
            let Some((bytes, token)) = specials.iter().find(|(bytes, _)| text[at..].starts_with(bytes)) else {
                at += 1;
                continue;
            };
            tokens.extend(self.tokenize(&text[plain..at]));
            tokens.push(*token);
            at += bytes.len();
            plain = at;
        }
        tokens.extend(self.tokenize(&text[plain..]));
        tokens
    }

    fn spells(&self, tokens: &[Token], text: &[u8]) -> bool {
        let mut rest = text;
        tokens.iter().all(|token| rest.strip_prefix(self.bytes(*token)).map(|left| rest = left).is_some())
            && rest.is_empty()
    }

    /// The text in single-byte tokens; bytes without a token are dropped.
    fn spell(&self, text: &[u8]) -> Vec<Token> {
        let single = |byte: &u8| self.words.iter().position(|word| *word.bytes == [*byte] && !word.control);
        text.iter().filter_map(single).filter_map(|index| i32::try_from(index).ok()).map(Token).collect()
    }
}

/// The texts that look like special tokens, in their order: `<|im_end|>`, `</s>`, `[INST]`.
pub(crate) fn special_looking(text: &str) -> Vec<String> {
    const LONGEST: usize = 40;
    let mut found: Vec<String> = Vec::new();
    for (at, c) in text.char_indices() {
        let close = match c {
            '<' => '>',
            '[' => ']',
            _ => continue,
        };
        let Some(end) = text[at..].find(close) else { continue };
        let inside = &text[at + 1..at + end];
        let plain = !inside.contains(|c: char| c.is_whitespace() || c == '<' || c == '[');
        let upper = close == '>' || !inside.contains(char::is_lowercase);
        let marker = &text[at..=at + end];
        if plain && upper && inside.contains(char::is_alphabetic) && inside.len() <= LONGEST {
            found.push(marker.to_owned());
        }
    }
    found
}
