//! Text that nobody chooses, in the tokens that the tokenizer would make of it where it stands.

use super::compiler::{Tokens, token};
use crate::engine::Token;
use llguidance::Matcher;

/// The tokens that the grammar leaves no choice about, as the tokenizer would write them behind the last two tokens.
pub(super) fn jump(matcher: &mut Matcher, tokens: &Tokens, last: &[Token]) -> Vec<Token> {
    let forced: Vec<Token> = matcher.compute_ff_tokens().into_iter().map(token).collect();
    let bytes = tokens.vocabulary.text(&forced);
    if forced.is_empty() || last.len() < 2 {
        return forced;
    }
    // The engine looked back one token; where two say otherwise, they are right.
    let all = [tokens.vocabulary.text(last), matcher.compute_ff_bytes()].concat();
    let whole = tokens.tokenize(&all);
    if !whole.starts_with(last) {
        return forced;
    }
    let run = up_to(tokens, &all, last.len(), all.len() - matcher.compute_ff_bytes().len() + bytes.len());
    if run.is_empty() { forced } else { run }
}

/// The tokens of a text from the one numbered `from` on, as far as they lie within its first `most` bytes.
pub(super) fn up_to(tokens: &Tokens, text: &[u8], from: usize, most: usize) -> Vec<Token> {
    let mut length = 0;
    let whole = tokens.tokenize(text);
    let within = whole.iter().take_while(|token| {
        length += tokens.vocabulary.bytes(**token).len();
        length <= most
    });
    within.skip(from).copied().collect()
}

/// A text in tokens, as it would be written behind the last ones.
pub(super) fn spell(tokens: &Tokens, last: &[Token], text: &[u8]) -> Vec<Token> {
    if text.is_empty() {
        return Vec::new();
    }
    let whole = tokens.tokenize(&[tokens.vocabulary.text(last).as_slice(), text].concat());
    whole.strip_prefix(last).map_or_else(|| tokens.tokenize(text), <[Token]>::to_vec)
}
