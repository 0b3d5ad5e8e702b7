//! Tokenises forced text as the tokenizer would in its context.

use super::compiler::{Tokens, token};
use crate::engine::Token;
use llguidance::Matcher;

/// The tokens that the grammar forces, tokenised after the last two tokens.
pub(super) fn jump(matcher: &mut Matcher, tokens: &Tokens, last: &[Token]) -> Vec<Token> {
    let forced: Vec<Token> = matcher.compute_ff_tokens().into_iter().map(token).collect();
    let bytes = matcher.compute_ff_bytes();
    if bytes.is_empty() || last.len() < 2 {
        return forced;
    }
    // The engine considers one previous token; two are more exact.
    let all = [tokens.vocabulary.text(last), bytes.clone()].concat();
    let whole = tokens.tokenize(&all);
    let Some(following) = whole.strip_prefix(last) else { return forced };
    // The engine leaves out a last token that what follows may change. That never changes a token for markup, and the model
    // must not be asked to spell it: after `>` in place of `</tool_call>` it cannot know that the call has ended.
    let is_apart = |token: &Token| tokens.vocabulary.word(*token).is_some_and(|word| word.apart);
    if let Some(markup) = following.iter().rposition(is_apart) {
        return following[..=markup].to_vec();
    }
    let run = up_to(tokens, &all, last.len(), all.len() - bytes.len() + tokens.vocabulary.text(&forced).len());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::constraint::closing::Ends;
    use crate::constraint::compiler::{Compiler, id};
    use crate::engine::vocabulary::{Vocabulary, Word};
    use std::sync::Arc;

    const END: &[u8] = b"</tool_call>";

    /// Bytes, `>` with a line break, and the closing tag, which is added for markup or made of merges like a word.
    fn vocabulary(apart: bool) -> Vocabulary {
        let of_bytes = Vocabulary::of_bytes();
        let more =
            [Word { bytes: (*b">\n").into(), ..Word::default() }, Word { bytes: END.into(), apart, ..Word::default() }];
        let words: Vec<Word> = of_bytes.words.iter().cloned().chain(more).collect();
        let longest: Vec<(Vec<u8>, Token)> = [(END.to_vec(), Token(258)), (b">\n".to_vec(), Token(257))].to_vec();
        Vocabulary::new(words, Arc::new(move |text| of_bytes.tokenize_with(text, &longest)))
    }

    #[test]
    fn a_closing_tag_is_the_token_that_the_model_knows_it_by() {
        let grammar = format!("start: \"{{}}\" {:?} /[ \\n]{{1,8}}/?", "\n</tool_call>");
        for (apart, expected) in [(true, vec![Token(10), Token(258)]), (false, vec![Token(10)])] {
            let ends = Ends { values: Vec::new(), calls: vec!["</tool_call>".to_owned()] };
            let mut compiler = Compiler::new(vocabulary(apart), &["</tool_call>"], ends).unwrap();
            let mut matcher = compiler.matcher(&grammar).unwrap();
            let last = [Token(i32::from(b'{')), Token(i32::from(b'}'))];
            matcher.consume_tokens(&last.map(id)).unwrap();
            assert_eq!(jump(&mut matcher, compiler.tokens(), &last), expected, "apart: {apart}");
        }
    }
}
