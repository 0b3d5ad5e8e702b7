//! Penalties for tokens that an answer already contains, as in llama.cpp's samplers.

use super::Token;
use crate::answer::Penalties;
use std::collections::HashMap;

/// DRY: growth of the penalty with each token of a longer repetition.
const DRY_BASE: f32 = 1.75;
/// DRY: shorter repetitions are not penalised.
const DRY_ALLOWED: usize = 2;
/// DRY: these end a repetition, since they recur in any text.
const DRY_BREAKERS: &[u8] = b"\n:\"*";
/// DRY: maximum length of a repetition to consider, at which the penalty has long been decisive.
const DRY_LONGEST: usize = 64;

impl Penalties {
    /// Returns whether any penalty is set.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn is_active(&self) -> bool {
        self.counts() || self.dry_multiplier > 0.0
    }

    fn counts(&self) -> bool {
        self.last_n != 0 && (self.repeat != 1.0 || self.presence != 0.0 || self.frequency != 0.0)
    }

    /// Penalises the tokens that may follow `text`.
    pub(super) fn apply(&self, text: &History, logits: &mut [f32]) {
        if self.counts() {
            let first = usize::try_from(self.last_n).map_or(0, |last| text.tokens.len().saturating_sub(last));
            let mut times: HashMap<Token, usize> = HashMap::new();
            text.tokens[first..].iter().for_each(|token| *times.entry(*token).or_default() += 1);
            for (token, times) in times {
                if let Some(logit) = logit(logits, token) {
                    *logit = if *logit <= 0.0 { *logit * self.repeat } else { *logit / self.repeat };
                    *logit -= self.presence + self.frequency * times as f32;
                }
            }
        }
        if self.dry_multiplier > 0.0 {
            for (token, length) in text.continued() {
                if let Some(logit) = logit(logits, token) {
                    *logit -= self.dry_multiplier * DRY_BASE.powi((length - DRY_ALLOWED) as i32);
                }
            }
        }
    }
}

fn logit(logits: &mut [f32], token: Token) -> Option<&mut f32> {
    logits.get_mut(usize::try_from(token.0).ok()?)
}

/// The text of an answer so far.
#[derive(Debug, Default)]
pub(super) struct History {
    tokens: Vec<Token>,
    /// For each token, whether it ends a repetition.
    breaks: Vec<bool>,
}

impl History {
    pub(super) fn push(&mut self, token: Token, bytes: &[u8]) {
        self.tokens.push(token);
        self.breaks.push(bytes.iter().any(|byte| DRY_BREAKERS.contains(byte)));
    }

    pub(super) fn clear(&mut self) {
        self.tokens.clear();
        self.breaks.clear();
    }

    /// The tokens that would continue a repetition, with the length of the longest one.
    fn continued(&self) -> HashMap<Token, usize> {
        let mut continued: HashMap<Token, usize> = HashMap::new();
        let end = self.tokens.len();
        for before in 1..end {
            // Length of the text's end that also precedes this token.
            let same = (1..=before.min(DRY_LONGEST))
                .take_while(|back| {
                    let (one, other) = (before - back, end - back);
                    self.tokens[one] == self.tokens[other] && !self.breaks[one]
                })
                .count();
            if same >= DRY_ALLOWED {
                let longest = continued.entry(self.tokens[before]).or_default();
                *longest = same.max(*longest);
            }
        }
        continued
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Sampler, Sampling};
    use super::*;

    /// The penalties of eight tokens after `text`, with logits of 4.
    fn taken(penalties: Penalties, text: &[i32]) -> Vec<f32> {
        let mut history = History::default();
        text.iter().for_each(|token| history.push(Token(*token), if *token == 7 { b"\n" } else { b"a" }));
        let mut logits = vec![4.0; 8];
        penalties.apply(&history, &mut logits);
        logits.iter().map(|logit| 4.0 - logit).collect()
    }

    #[test]
    fn each_penalty_takes_what_llama_cpp_takes() {
        let none = Penalties::default();
        assert_eq!(taken(none, &[1, 2, 1]), [0.0; 8]);
        assert_eq!(taken(Penalties { repeat: 2.0, ..none }, &[1, 2, 1])[..4], [0.0, 2.0, 2.0, 0.0]);
        assert_eq!(taken(Penalties { presence: 0.5, ..none }, &[1, 2, 1])[..4], [0.0, 0.5, 0.5, 0.0]);
        assert_eq!(taken(Penalties { frequency: 0.5, ..none }, &[1, 2, 1])[..4], [0.0, 1.0, 0.5, 0.0]);
        let mut negative = [-1.0, -1.0];
        let mut history = History::default();
        history.push(Token(1), b"a");
        Penalties { repeat: 2.0, ..none }.apply(&history, &mut negative);
        assert_eq!(negative, [-1.0, -2.0], "a negative logit is multiplied");
    }

    #[test]
    fn only_the_last_tokens_count() {
        let presence = Penalties { presence: 1.0, ..Penalties::default() };
        assert_eq!(taken(Penalties { last_n: 2, ..presence }, &[1, 2, 3])[..4], [0.0, 0.0, 1.0, 1.0]);
        assert_eq!(taken(Penalties { last_n: -1, ..presence }, &[1, 2, 3])[..4], [0.0, 1.0, 1.0, 1.0]);
        assert_eq!(taken(Penalties { last_n: 0, ..presence }, &[1, 2, 3]), [0.0; 8]);
    }

    #[test]
    fn dry_penalises_what_would_continue_a_repetition() {
        let dry = Penalties { dry_multiplier: 1.0, ..Penalties::default() };
        // 1 2 came before 3, and is at the end.
        assert_eq!(taken(dry, &[1, 2, 3, 1, 2])[3], 1.0);
        assert_eq!(taken(dry, &[0, 1, 2, 3, 0, 1, 2])[3], DRY_BASE);
        assert_eq!(taken(dry, &[2, 3, 0, 2]), [0.0; 8], "one token is no repetition");
        assert_eq!(taken(dry, &[1, 7, 3, 1, 7]), [0.0; 8], "a line break ends one");
        assert!(taken(dry, &[1; 200])[1] > 1e6, "however long it is");
    }

    #[test]
    fn a_repetition_is_left_and_held_text_is_not_touched() {
        let penalties = Penalties { presence: 1.0, ..Penalties::default() };
        let mut sampler = Sampler::new(Sampling { penalties, ..Sampling::default() });
        let logits = [1.0, 1.5, 0.0];
        assert_eq!(sampler.sample(&logits), Token(1));
        sampler.wrote(Token(1), b"a");
        assert_eq!(sampler.sample(&logits), Token(0));
        sampler.hold(true);
        assert_eq!(sampler.sample(&logits), Token(1));
        assert_eq!(sampler.sample_among(&logits, &[0b110]), Token(1));
        sampler.hold(false);
        assert_eq!(sampler.sample_among(&logits, &[0b110]), Token(1));
        assert_eq!(sampler.sample_without(&logits, &[Token(0)]), Token(1));
    }

    #[test]
    fn a_bias_is_added_everywhere() {
        let mut sampler =
            Sampler::new(Sampling::default()).biased(&[(Token(2), 5.0), (Token(99), 1.0), (Token(-1), 1.0)]);
        let logits = [1.0, 1.5, 0.0];
        assert_eq!(sampler.sample(&logits), Token(2));
        sampler.hold(true);
        assert_eq!(sampler.sample(&logits), Token(2));
        assert_eq!(sampler.sample_among(&logits, &[0b011]), Token(1));
    }
}
