//! Chooses the next token: temperature, top-k, top-p, min-p, and a seeded generator.

mod penalties;

use super::Token;
use penalties::History;
use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng, SeedableRng};

pub use crate::answer::{Penalties, Sampling};

/// A logit and its token.
type Candidate = (f32, usize);

/// Chooses tokens one after another.
#[derive(Debug)]
pub struct Sampler {
    sampling: Sampling,
    random: Pcg64,
    /// Values to add to the logits of some tokens.
    bias: Vec<(Token, f32)>,
    /// The text that the penalties apply to.
    history: History,
    /// Whether a grammar constrains the next token, so that there are no penalties.
    held: bool,
    /// Kept between calls to save the allocation.
    candidates: Vec<Candidate>,
    /// Likewise.
    allowed: Vec<f32>,
}

impl Sampler {
    /// A sampler at the start of its random numbers.
    pub fn new(sampling: Sampling) -> Sampler {
        let random = Pcg64::seed_from_u64(sampling.seed);
        let (candidates, allowed) = (Vec::new(), Vec::new());
        let bias = Vec::new();
        Sampler { sampling, random, bias, history: History::default(), held: false, candidates, allowed }
    }

    /// Always adds these values to the logits of some tokens.
    #[must_use]
    pub fn biased(self, bias: &[(Token, f32)]) -> Sampler {
        Sampler { bias: bias.to_vec(), ..self }
    }

    /// How tokens are chosen.
    pub(crate) fn sampling(&self) -> &Sampling {
        &self.sampling
    }

    /// Sets whether a grammar constrains the next tokens. They are not penalised: keys, quotes and tool names have to
    /// recur. Earlier text is forgotten, so that another call is as likely to begin as the first.
    pub(crate) fn hold(&mut self, held: bool) {
        if held && !self.held {
            self.history.clear();
        }
        self.held = held;
    }

    /// Records a token of the answer for the penalties.
    pub(crate) fn wrote(&mut self, token: Token, bytes: &[u8]) {
        if !self.held && self.sampling.penalties.is_active() {
            self.history.push(token, bytes);
        }
    }

    /// Adds the bias and subtracts the penalties.
    fn adjust(&self, logits: &mut [f32]) {
        for (token, bias) in &self.bias {
            if let Some(logit) = usize::try_from(token.0).ok().and_then(|index| logits.get_mut(index)) {
                *logit += bias;
            }
        }
        if !self.held {
            self.sampling.penalties.apply(&self.history, logits);
        }
    }

    /// The next token for these logits; the lowest id among equals. NaN counts as impossible.
    ///
    /// The filters run in llama.cpp's order, top-k, top-p, min-p, on the probabilities before temperature.
    pub(crate) fn sample(&mut self, logits: &[f32]) -> Token {
        // Copying a large vocabulary's logits costs more than finding their maximum.
        if self.bias.is_empty() && (self.held || !self.sampling.penalties.is_active()) {
            return self.choose(logits);
        }
        let mut adjusted = std::mem::take(&mut self.allowed);
        adjusted.clear();
        adjusted.extend_from_slice(logits);
        self.adjust(&mut adjusted);
        let chosen = self.choose(&adjusted);
        self.allowed = adjusted;
        chosen
    }

    /// The next token for final logits.
    fn choose(&mut self, logits: &[f32]) -> Token {
        if self.sampling.temperature <= 0.0 {
            return token(greedy(logits));
        }
        let candidates = &mut self.candidates;
        likeliest(logits, self.sampling.top_k, candidates);
        candidates.sort_unstable_by(likelier);
        let Some(&(best, first)) = candidates.first() else { return token(greedy(logits)) };

        if self.sampling.top_p < 1.0 {
            let total: f32 = candidates.iter().map(|(logit, _)| (logit - best).exp()).sum();
            let mut reached = 0.0;
            let kept = candidates.iter().position(|(logit, _)| {
                reached += (logit - best).exp() / total;
                reached >= self.sampling.top_p
            });
            candidates.truncate(kept.map_or(candidates.len(), |last| last + 1));
        }
        if self.sampling.min_p > 0.0 {
            let least = best + self.sampling.min_p.ln();
            candidates.retain(|(logit, id)| *logit >= least || *id == first);
        }

        let weight = |logit: f32| f64::from((logit - best) / self.sampling.temperature).exp();
        let total: f64 = candidates.iter().map(|(logit, _)| weight(*logit)).sum();
        // 53 random bits: every double in [0, 1) that is a multiple of 2^-53, each as likely as the others.
        let mut point = (self.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64 * total;
        for (logit, id) in candidates.iter() {
            point -= weight(*logit);
            if point < 0.0 {
                return token(*id);
            }
        }
        // Rounding may leave a remainder of `point`; it belongs to the last candidate.
        token(candidates.last().map_or(first, |(_, id)| *id))
    }

    /// The next token among those whose bits are set in `mask`, 32 to a word; the first of them if the logits allow
    /// none.
    pub(crate) fn sample_among(&mut self, logits: &[f32], mask: &[u32]) -> Token {
        let mut allowed = std::mem::take(&mut self.allowed);
        allowed.clear();
        allowed.resize(logits.len(), f32::NEG_INFINITY);
        let mut first = None;
        for (word, bits) in mask.iter().enumerate() {
            let mut bits = *bits;
            while bits != 0 {
                let index = word * 32 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                if let Some(logit) = logits.get(index) {
                    allowed[index] = *logit;
                    first.get_or_insert(index);
                }
            }
        }
        self.adjust(&mut allowed);
        let chosen = self.choose(&allowed);
        let possible = usize::try_from(chosen.0).ok().and_then(|index| allowed.get(index));
        let possible = possible.is_some_and(|logit| *logit > f32::NEG_INFINITY);
        self.allowed = allowed;
        if possible { chosen } else { token(first.unwrap_or(0)) }
    }

    /// The next token, but none of `banned`.
    pub(crate) fn sample_without(&mut self, logits: &[f32], banned: &[Token]) -> Token {
        let mut allowed = std::mem::take(&mut self.allowed);
        allowed.clear();
        allowed.extend_from_slice(logits);
        self.adjust(&mut allowed);
        for token in banned {
            if let Some(logit) = usize::try_from(token.0).ok().and_then(|index| allowed.get_mut(index)) {
                *logit = f32::NEG_INFINITY;
            }
        }
        let chosen = self.choose(&allowed);
        self.allowed = allowed;
        chosen
    }
}

fn token(index: usize) -> Token {
    Token(i32::try_from(index).unwrap_or(i32::MAX))
}

fn likelier(a: &Candidate, b: &Candidate) -> std::cmp::Ordering {
    b.0.total_cmp(&a.0).then(a.1.cmp(&b.1))
}

/// The `k` likeliest tokens, in no order; all possible ones if `k` is 0.
fn likeliest(logits: &[f32], k: usize, into: &mut Vec<Candidate>) {
    into.clear();
    if k == 0 {
        into.extend(logits.iter().enumerate().filter(|(_, l)| **l > f32::NEG_INFINITY).map(|(i, l)| (*l, i)));
        return;
    }
    // Collected up to twice the wanted number, then halved: soon almost no logit exceeds the least of the best, and a
    // vocabulary of 150,000 costs one comparison each.
    let mut least = f32::NEG_INFINITY;
    for (index, &logit) in logits.iter().enumerate() {
        if logit > least {
            into.push((logit, index));
            if into.len() >= 2 * k {
                into.select_nth_unstable_by(k - 1, likelier);
                into.truncate(k);
                least = into[k - 1].0;
            }
        }
    }
    if into.len() > k {
        into.select_nth_unstable_by(k - 1, likelier);
        into.truncate(k);
    }
}

/// The index of the maximum logit; 0 if there is none.
fn greedy(logits: &[f32]) -> usize {
    // Blocks let the compiler keep the maximum in vector registers; the index is then searched in one block only.
    let mut best = (f32::NEG_INFINITY, 0);
    for (block, values) in logits.chunks(512).enumerate() {
        let greatest = values.iter().fold(f32::NEG_INFINITY, |a, &b| if b > a { b } else { a });
        if greatest > best.0 {
            best = (greatest, block);
        }
    }
    let block = logits.chunks(512).nth(best.1).unwrap_or_default();
    best.1 * 512 + block.iter().position(|&v| v == best.0).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(sampling: Sampling, logits: &[f32]) -> Vec<usize> {
        let mut sampler = Sampler::new(sampling);
        let mut counts = vec![0; logits.len()];
        for _ in 0..10_000 {
            counts[sampler.sample(logits).0 as usize] += 1;
        }
        counts
    }

    #[test]
    fn greedy_takes_the_first_of_the_greatest_and_survives_nan() {
        let mut sampler = Sampler::new(Sampling::default());
        assert_eq!(sampler.sample(&[0.0, 3.0, f32::NAN, 3.0]), Token(1));
        let mut long = vec![-1.0; 5000];
        long[4321] = 2.0;
        assert_eq!(sampler.sample(&long), Token(4321));
        assert_eq!(sampler.sample(&[]), Token(0));
        assert_eq!(sampler.sample(&[f32::NAN]), Token(0));
    }

    #[test]
    fn frequencies_follow_the_probabilities() {
        let all = Sampling { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed: 7, ..Sampling::default() };
        let counts = histogram(all, &[0.7f32.ln(), 0.2f32.ln(), 0.1f32.ln(), f32::NEG_INFINITY]);
        for (count, expected) in counts.iter().zip([7000.0f64, 2000.0, 1000.0, 0.0]) {
            // Five standard deviations of a binomial count.
            let deviation = 5.0 * f64::sqrt(expected * (1.0 - expected / 10_000.0));
            assert!((*count as f64 - expected).abs() <= deviation, "{counts:?}");
        }
    }

    #[test]
    fn each_filter_keeps_the_right_tokens() {
        let logits = [0.5f32.ln(), 0.3f32.ln(), 0.15f32.ln(), 0.05f32.ln()];
        let all = Sampling { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed: 1, ..Sampling::default() };
        let left = |sampling| histogram(sampling, &logits).iter().filter(|count| **count > 0).count();
        assert_eq!(left(all), 4);
        assert_eq!(left(Sampling { top_k: 3, ..all }), 3);
        assert_eq!(left(Sampling { top_p: 0.75, ..all }), 2);
        assert_eq!(left(Sampling { min_p: 0.2, ..all }), 3);
        assert_eq!(left(Sampling { temperature: 0.01, ..all }), 1);
    }

    #[test]
    fn the_likeliest_are_those_that_sorting_finds() {
        let logits: Vec<f32> = (0..5000).map(|i| ((i * 7919 % 613) as f32 * 0.1).sin()).collect();
        let mut sorted: Vec<Candidate> = logits.iter().enumerate().map(|(i, l)| (*l, i)).collect();
        sorted.sort_by(likelier);
        for k in [1, 2, 40, 613, 5000, 9000] {
            let mut found = Vec::new();
            likeliest(&logits, k, &mut found);
            found.sort_by(likelier);
            assert_eq!(found, sorted[..k.min(5000)], "{k}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_tokens() {
        let logits: Vec<f32> = (0..100).map(|i| (i as f32 * 0.37).sin()).collect();
        let run = |seed| {
            let mut sampler = Sampler::new(Sampling { temperature: 1.0, seed, ..Sampling::default() });
            (0..50).map(|_| sampler.sample(&logits)).collect::<Vec<_>>()
        };
        assert_eq!(run(3), run(3));
        assert_ne!(run(3), run(4));
    }
}
