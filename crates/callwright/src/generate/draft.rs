//! Drafts continuations from earlier text.
//!
//! A call often repeats the question, an earlier call or a tool's result. If the last tokens occurred before, the
//! tokens that followed there are decoded in one batch with the current token. As long as the model samples the same
//! ones, their steps are already done; the rest is dropped. (Prompt lookup decoding: Saxena, 2023.)

use crate::engine::Token;

/// Maximum and minimum length of the run to look up. After two tokens that occurred before, such as a key's end and a
/// quote, something else follows too often: fewer than half of the proposed tokens were right.
const LONGEST: usize = 4;
const SHORTEST: usize = 3;
/// Number of tokens proposed at a time: initial and maximum.
const FIRST: usize = 3;
const MOST: usize = 12;
/// A proposed token costs about half of a step on a CPU (`benches/draft.rs`), much less on a GPU; a lower hit rate does
/// not pay.
const BREAK_EVEN: f32 = 0.5;
/// Weight of one draft in the moving average.
const WEIGHT: f32 = 0.2;
/// After this many skipped opportunities, one is used again.
const PATIENCE: usize = 16;

/// Proposes continuations.
///
/// Only hit rates count, not the time: batches of different sizes may differ in the last bits of their logits, and the result of a
/// seed should not depend on how busy the machine is.
pub(super) struct Drafter {
    /// The text so far.
    text: Vec<Token>,
    /// Tokens that are proposed at a time, of those that occurred before.
    length: usize,
    /// A moving average of the hit rate of these.
    right: f32,
    let_go: usize,
}

impl Drafter {
    pub(super) fn new(prompt: &[Token]) -> Drafter {
        Drafter { text: prompt.to_vec(), length: FIRST, right: 1.5 * BREAK_EVEN, let_go: 0 }
    }

    /// Takes a written token.
    pub(super) fn push(&mut self, token: Token) {
        self.text.push(token);
    }

    /// Proposes at most `most` tokens that occurred before; none while it does not pay.
    pub(super) fn repeat(&mut self, most: usize) -> Vec<Token> {
        let length = self.length.min(most);
        if length == 0 {
            return Vec::new();
        }
        if self.right < BREAK_EVEN && self.let_go < PATIENCE {
            self.let_go += 1;
            return Vec::new();
        }
        let Some(at) = (SHORTEST..=LONGEST).rev().find_map(|run| seen(&self.text, run)) else { return Vec::new() };
        self.let_go = 0;
        self.text[at..].iter().take(length).copied().collect()
    }

    /// Records that `right` of `proposed` tokens were correct.
    pub(super) fn learn(&mut self, proposed: usize, right: usize) {
        if proposed > 0 {
            self.right += WEIGHT * (right as f32 / proposed as f32 - self.right);
            self.length = next_length(self.length, proposed, right);
        }
    }
}

/// How many tokens to propose after `right` of `proposed` ones were correct, of which there were `length` at most.
fn next_length(length: usize, proposed: usize, right: usize) -> usize {
    if right == proposed { (2 * length).min(MOST) } else { right.max(FIRST) }
}

/// The position after the last earlier occurrence of the last `run` tokens.
fn seen(text: &[Token], run: usize) -> Option<usize> {
    let (earlier, last) = text.split_at_checked(text.len().checked_sub(run)?)?;
    // The occurrence may overlap the end, except for the last token.
    let all = &text[..earlier.len() + run - 1];
    all.windows(run).rposition(|window| window == last).map(|at| at + run)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Vec<Token> {
        text.bytes().map(|byte| Token(i32::from(byte))).collect()
    }

    #[test]
    fn the_latest_continuation_of_the_longest_run_is_proposed() {
        let propose = |before: &str, answer: &str, most| {
            let mut drafter = Drafter::new(&tokens(before));
            tokens(answer).into_iter().for_each(|token| drafter.push(token));
            let proposed = drafter.repeat(most);
            proposed.iter().map(|token| token.0 as u8 as char).collect::<String>()
        };
        assert_eq!(propose("city: Oslo. city: Lima.", "My city:", 10), " Li", "at first only a few");
        assert_eq!(propose("abcX bcY", "abc", 10), "X b");
        assert_eq!(propose("dabcX abcY", "dabc", 10), "X a");
        assert_eq!(propose("abcX", "abc", 1), "X");
        assert_eq!(propose("", "aaaa", 10), "a");
        for (before, answer) in [("abc", "de"), ("", ""), ("", "a"), ("xabY", "ab")] {
            assert_eq!(propose(before, answer, 10), "", "{before:?} {answer:?}");
        }
    }

    #[test]
    fn wrong_drafts_become_rare_and_right_ones_longer() {
        let text = tokens("abcdefghijklmnopqrstuvwxyz abc");
        let mut drafter = Drafter::new(&text);
        let mut tried = 0;
        for _ in 0..200 {
            let proposed = drafter.repeat(20).len();
            tried += usize::from(proposed > 0);
            drafter.learn(proposed, 0);
        }
        assert!((5..25).contains(&tried), "{tried}");
        let mut drafter = Drafter::new(&text);
        let lengths: Vec<usize> = (0..4)
            .map(|_| {
                let proposed = drafter.repeat(20).len();
                drafter.learn(proposed, proposed);
                proposed
            })
            .collect();
        assert_eq!(lengths, [3, 6, 12, 12]);
    }
}
