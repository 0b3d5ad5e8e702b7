//! Computes masks: the tokens that may come next in a state of a grammar.
//!
//! The grammar engine also computes masks, but keeps four copies of the tree of all tokens for them. That takes most of
//! the preparation of a model's vocabulary, and waits for memory on most reads. Here two trees in a special layout give
//! the same result.

use super::compiler::Tokens;
use super::tree::Tree;
use llguidance::earley::{BiasComputer, ParserRecognizer};
use llguidance::toktrie::{SimpleVob, TokTrie, TokenId, TokenizerEnv};
use std::sync::Arc;

/// Tokens that a JSON string contains unescaped: where any text may follow, they need not be checked one by one. The
/// grammar engine has more such sets by default, for white space and for strings of bounded length, but each takes
/// longer to prepare than it saves.
pub(super) const TEXTS: &str = r#"[^"\\\x00-\x1F\x7F]+"#;

/// Maximum work of the grammar engine, in its own unit, to find out whether any text may follow.
const SUBSUME: u64 = 1000;

/// Computes masks for one vocabulary.
pub(super) struct Masks {
    tokens: Arc<Tokens>,
    all: Tree,
    /// The tokens that match [`TEXTS`].
    texts: SimpleVob,
    /// All other tokens.
    others: Tree,
}

impl Masks {
    pub(super) fn new(tokens: Arc<Tokens>) -> Masks {
        let trie = tokens.tok_trie();
        let (mut texts, mut others) = (trie.alloc_token_set(), trie.alloc_token_set());
        for index in 0..TokenId::try_from(trie.vocab_size()).unwrap_or(TokenId::MAX) {
            let set = if is_text(trie.token(index)) { &mut texts } else { &mut others };
            set.allow_token(index);
        }
        let (all, others) = (Tree::new(trie), Tree::new(&trie.filter(&others)));
        Masks { tokens, all, texts, others }
    }
}

/// Returns whether a token matches [`TEXTS`].
fn is_text(bytes: &[u8]) -> bool {
    let plain = |byte: &u8| !matches!(byte, b'"' | b'\\' | 0..=0x1F | 0x7F);
    !bytes.is_empty() && bytes.iter().all(plain) && std::str::from_utf8(bytes).is_ok()
}

impl BiasComputer for Masks {
    fn compute_bias(&self, grammar: &mut ParserRecognizer<'_>, start: &[u8]) -> SimpleVob {
        let mut mask = self.trie().alloc_token_set();
        if !start.is_empty() {
            self.trie().add_bias(grammar, &mut mask, start);
            return mask;
        }
        let state = grammar.lexer_state();
        let lexer = grammar.lexer_mut();
        if lexer.subsume_possible(state) && lexer.check_subsume(state, 0, SUBSUME, None).unwrap_or(false) {
            mask.or(&self.texts);
            self.others.allow(grammar, &mut mask);
        } else {
            self.all.allow(grammar, &mut mask);
        }
        mask
    }

    fn trie(&self) -> &TokTrie {
        self.tokens.tok_trie()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_match_the_expression() {
        let mut expression = llguidance::derivre::Regex::new(TEXTS).unwrap();
        let others: [&[u8]; 9] =
            [b"", b"\"", b"a\\", b"\n", b"a\x7f", b"\xc3", b"\xa9", b"\xff<|end|>", b"\xed\xa0\x80"];
        let texts = ["a", " the", "é", "日本", "}]:,", "\u{85}", "🦀"].map(str::as_bytes);
        for bytes in others.iter().chain(&texts) {
            assert_eq!(is_text(bytes), expression.is_match_bytes(bytes), "{bytes:?}");
        }
        assert!(texts.into_iter().all(is_text) && !others.into_iter().any(is_text));
    }
}
