//! Tokenises forced text as the tokenizer would in its context.

use super::compiler::{Tokens, token};
use crate::engine::Token;
use llguidance::Matcher;

/// The tokens that the grammar forces, tokenised after the last two tokens.
pub(super) fn jump(matcher: &mut Matcher, tokens: &Tokens, last: &[Token]) -> Vec<Token> {
    let forced: Vec<Token> = matcher.compute_ff_tokens().into_iter().map(token).collect();
    let bytes = tokens.vocabulary.text(&forced);
    if forced.is_empty() || last.len() < 2 {
        return forced;
    }
    // The engine considers one previous token; two are more exact.
    let all = [tokens.vocabulary.text(last), matcher.compute_ff_bytes()].concat();
    let whole = tokens.tokenize(&all);
    if !whole.starts_with(last) {
        return forced;
    }
    let run = up_to(tokens, &all, last.len(), all.len() - matcher.compute_ff_bytes().len() + bytes.len());
    if run.is_empty() { forced } else { run }
}

/// The tokens of a text from the one numbered `from` on that are within its first `most` bytes.
pub(super) fn up_to(tokens: &Tokens, text: &[u8], from: usize, most: usize) -> Vec<Token> {
    let mut length = 0;
    let whole = tokens.tokenize(text);
    let within = whole.iter().take_while(|token| {
        length += tokens.vocabulary.bytes(**token).len();
        length <= most
    });
    within.skip(from).copied().collect()
}

/// Tokenises a text that follows the last tokens.
pub(super) fn spell(tokens: &Tokens, last: &[Token], text: &[u8]) -> Vec<Token> {
    if text.is_empty() {
        return Vec::new();
    }
    let whole = tokens.tokenize(&[tokens.vocabulary.text(last).as_slice(), text].concat());
    whole.strip_prefix(last).map_or_else(|| tokens.tokenize(text), <[Token]>::to_vec)
}
