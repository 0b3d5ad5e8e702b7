//! All tokens of a vocabulary as a tree of their bytes, in a layout for occasional walks.
//!
//! Between two masks, a model's weights replace the processor's caches, so a walk reads the tree from memory. The
//! grammar engine's tree is in depth-first order: if only a few of the first bytes fit, each of the others costs a
//! cache miss. Here the children of a node are adjacent, so that those that do not fit are read together with the one
//! that does.

use llguidance::toktrie::{Recognizer, SimpleVob, TokTrie, TokenId, TrieNode};

/// No token ends here.
const NONE: TokenId = TokenId::MAX;

struct Node {
    /// The token that ends here.
    token: TokenId,
    /// Start of the children; 0 if there are none, since only the root's children begin there.
    below: u32,
    byte: u8,
    /// Whether it is the last of its siblings.
    last: bool,
}

pub(super) struct Tree(Vec<Node>);

impl Tree {
    pub(super) fn new(tokens: &TokTrie) -> Tree {
        let mut tree = Tree(Vec::new());
        tree.lay(tokens, tokens.root());
        tree
    }

    /// Adds the children of a node, then their descendants.
    fn lay(&mut self, tokens: &TokTrie, parent: &TrieNode) {
        let first = self.0.len();
        let children = || tokens.node_children(parent);
        self.0.extend(children().map(|child| Node {
            token: child.token_id().unwrap_or(NONE),
            below: 0,
            byte: child.byte(),
            last: false,
        }));
        if let Some(last) = self.0[first..].last_mut() {
            last.last = true;
        }
        for (child, place) in children().zip(first..) {
            if child.subtree_size() > 1 {
                // The grammar engine's trees have at most four million nodes.
                self.0[place].below = u32::try_from(self.0.len()).unwrap_or(0);
                self.lay(tokens, child);
            }
        }
    }

    /// Adds the tokens that a grammar allows to a mask.
    pub(super) fn allow(&self, grammar: &mut impl Recognizer, mask: &mut SimpleVob) {
        grammar.trie_started("tree");
        // The ancestors of the current node.
        let mut above = Vec::new();
        let mut at = 0;
        'walk: while let Some(node) = self.0.get(at) {
            if grammar.try_push_byte(node.byte) {
                if node.token != NONE {
                    mask.allow_token(node.token);
                }
                if node.below != 0 {
                    above.push(at);
                    at = node.below as usize;
                    continue;
                }
                grammar.pop_bytes(1);
            }
            while self.0[at].last {
                let Some(parent) = above.pop() else { break 'walk };
                grammar.pop_bytes(1);
                at = parent;
            }
            at += 1;
        }
        grammar.trie_finished();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use llguidance::toktrie::TokRxInfo;

    /// Allows every text except those with certain bytes, which `unfit` lists by position.
    struct Places<'p> {
        unfit: &'p [&'p [u8]],
        text: Vec<u8>,
    }

    impl Recognizer for Places<'_> {
        fn pop_bytes(&mut self, count: usize) {
            self.text.truncate(self.text.len().checked_sub(count).unwrap());
        }
        fn collapse(&mut self) {}
        fn trie_finished(&mut self) {
            assert!(self.text.is_empty());
        }
        fn try_push_byte(&mut self, byte: u8) -> bool {
            let fits = self.unfit.get(self.text.len()).is_none_or(|unfit| !unfit.contains(&byte));
            if fits {
                self.text.push(byte);
            }
            fits
        }
    }

    #[test]
    fn allows_what_the_grammar_engines_tree_does() {
        let texts = [b"a" as &[u8], b"ab", b"abc", b"", b"b", b"bcd", b"ab", b"\xff<end>", b"cc", b"c", b"ab", b"abd"];
        let words: Vec<Vec<u8>> = texts.iter().map(|text| text.to_vec()).collect();
        let trie = TokTrie::from(&TokRxInfo::new(u32::try_from(words.len()).unwrap(), 7), &words);
        let cases: [(&[&[u8]], usize); 6] = [
            (&[], 11),
            (&[b"abc\xff"], 0),
            (&[b"a"], 5),
            (&[b"", b"b"], 6),
            (&[b"bc\xff", b"", b"c"], 5),
            (&[b"", b"", b"cd"], 8),
        ];
        for (unfit, count) in cases {
            let (mut ours, mut theirs) = (trie.alloc_token_set(), trie.alloc_token_set());
            Tree::new(&trie).allow(&mut Places { unfit, text: Vec::new() }, &mut ours);
            trie.add_bias(&mut Places { unfit, text: Vec::new() }, &mut theirs, b"");
            assert_eq!(ours.to_list(), theirs.to_list(), "{unfit:?}");
            assert_eq!(ours.num_set(), count, "{unfit:?}");
        }
    }

    #[test]
    fn no_tokens_give_an_empty_mask() {
        let trie = TokTrie::from(&TokRxInfo::new(1, 0), &[Vec::new()]);
        let mut mask = trie.alloc_token_set();
        Tree::new(&trie).allow(&mut Places { unfit: &[], text: Vec::new() }, &mut mask);
        assert!(mask.is_zero());
    }
}
