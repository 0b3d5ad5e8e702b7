//! Continuations looked up in what was written before.
//!
//! A call often repeats the question, an earlier call or a tool's result. Where the last tokens stand there too, what
//! followed them then is decoded in one batch with the token at hand: wherever the model, asked as always, says the
//! same, its step is already done. The rest is forgotten. (Prompt lookup decoding: Saxena, 2023.)

use crate::engine::Token;

/// The longest and the shortest run of tokens that is looked up. Behind two that were seen before, such as a key's end
/// and a quote, too often something else follows: with them fewer than half of the proposed tokens were right.
const LONGEST: usize = 4;
const SHORTEST: usize = 3;
/// Tokens proposed at a time: at first, and at most.
const FIRST: usize = 3;
const MOST: usize = 12;
/// A proposed token costs about half of a step on a CPU (`benches/draft.rs`), much less on a GPU; a smaller share of right
/// ones does not pay.
const BREAK_EVEN: f32 = 0.5;
/// How much one draft counts in the moving average.
const WEIGHT: f32 = 0.2;
/// After so many opportunities let go, one is taken again.
const PATIENCE: usize = 16;

/// Proposes continuations, and less of them the less comes true.
///
/// It goes by what came true alone, not by the clock: batches of different sizes may differ in the last bits of their
/// logits, and what a seed gives should not depend on how busy the machine is.
pub(super) struct Drafter {
    /// All that was written so far.
    text: Vec<Token>,
    length: usize,
    /// A moving average of the share of proposed tokens that came true.
    right: f32,
    let_go: usize,
}

impl Drafter {
    pub(super) fn new(text: &[Token]) -> Drafter {
        Drafter { text: text.to_vec(), length: FIRST, right: 1.5 * BREAK_EVEN, let_go: 0 }
    }

    /// Takes what was written.
    pub(super) fn push(&mut self, token: Token) {
        self.text.push(token);
    }

    /// What may follow, `most` tokens at most; nothing while it does not pay.
    pub(super) fn propose(&mut self, most: usize) -> Vec<Token> {
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

    /// Takes note that of `proposed` tokens `right` came true.
    pub(super) fn learn(&mut self, proposed: usize, right: usize) {
        if proposed == 0 {
            return;
        }
        self.right += WEIGHT * (right as f32 / proposed as f32 - self.right);
        self.length = if right == proposed { (2 * self.length).min(MOST) } else { right.max(FIRST) };
    }
}

/// Behind the last place at which the last `run` tokens stand before the end.
fn seen(text: &[Token], run: usize) -> Option<usize> {
    let (earlier, last) = text.split_at_checked(text.len().checked_sub(run)?)?;
    // Its last token may be the one before the end.
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
            let proposed = drafter.propose(most);
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
    fn what_never_comes_true_is_proposed_seldom_and_what_does_at_length() {
        let text = tokens("abcdefghijklmnopqrstuvwxyz abc");
        let mut drafter = Drafter::new(&text);
        let mut tried = 0;
        for _ in 0..200 {
            let proposed = drafter.propose(20).len();
            tried += usize::from(proposed > 0);
            drafter.learn(proposed, 0);
        }
        assert!((5..25).contains(&tried), "{tried}");
        let mut drafter = Drafter::new(&text);
        let lengths: Vec<usize> = (0..4)
            .map(|_| {
                let proposed = drafter.propose(20).len();
                drafter.learn(proposed, proposed);
                proposed
            })
            .collect();
        assert_eq!(lengths, [3, 6, 12, 12]);
    }
}
