//! Whether the tools have to do with the question: how much more likely its words are where the tools are in the prompt.
//!
//! A language model expects words about weather after the description of a weather tool. So the likelihood of the question
//! says whether the tools fit it, and needs no training on tool calls. For each token of the question, the logarithm of its
//! probability is taken twice: with the tools in the prompt, and in the prompt without any. The differences above 0 are added
//! up. Tokens that the tools make less likely say nothing about the question: the tools cannot know its other words.
//!
//! What the prompt has around the tools belongs to the comparison: a model that reads how to call tools expects a request, and
//! one that reads nothing of them expects conversation. With a tool that says nothing in place of the others, only the tools
//! would be compared. That distinguishes requests from conversation less well.

use super::Distribution;
use crate::Result;
use crate::engine::prompt_cache::PROMPT_BLOCK;
use crate::engine::{Engine, Token, common};
use crate::generate::PROMPT_CHUNK;
use std::ops::Range;

/// The most tokens of a question that are looked at: its last ones.
pub(crate) const MOST: usize = 256;
/// How many tokens are decoded in one batch that keeps the logits of each.
const BATCH: usize = 32;

/// A question in a prompt, and how likely its tokens are.
#[derive(Debug)]
pub(crate) struct Question {
    /// The question's tokens in the prompt with the tools; it begins after the first one, and ends before the last.
    tokens: Range<usize>,
    /// The logarithm of each token's probability without the tools.
    without: Vec<f64>,
    /// The same with the tools, as far as the prompt is decoded.
    with: Vec<f64>,
}

impl Question {
    /// Measures the question without the tools: `engine` decodes the prompt that does not have them, whose last tokens are those of
    /// `prompt`. `None` where the prompts do not show the question as the same tokens.
    ///
    /// # Errors
    /// Those of [`Engine::decode`] and [`Engine::reserve`].
    pub(crate) fn new(
        engine: &mut dyn Engine,
        prompt: &[Token],
        without_tools: &[Token],
        question: Range<usize>,
    ) -> Result<Option<Question>> {
        let same = prompt.iter().rev().zip(without_tools.iter().rev()).take_while(|(a, b)| a == b).count();
        let start = question.start.max(prompt.len() - same).max(question.end.saturating_sub(MOST));
        let shift = prompt.len().checked_sub(without_tools.len());
        let Some(shift) = shift.filter(|shift| start > *shift && start < question.end && question.end < prompt.len())
        else {
            return Ok(None);
        };
        let tokens = start - shift..question.end - shift;
        let common = common(engine.cached(), without_tools);
        engine.reserve(without_tools.len())?;
        engine.truncate(common.min(tokens.start - 1));
        let mut without = Vec::with_capacity(tokens.len());
        let cached = engine.cached().len();
        for batch in batches(cached, tokens.end, PROMPT_CHUNK, &tokens) {
            decode(engine, without_tools, batch, &mut without)?;
        }
        Ok(Some(Question { tokens: start..question.end, without, with: Vec::new() }))
    }

    /// How many tokens of the prompt may be taken from the cache: the logits of the others are needed.
    pub(crate) fn cacheable(&self) -> usize {
        self.tokens.start - 1
    }

    /// The tokens of the prompt from `from` on in batches of at most `most`.
    pub(crate) fn batches(&self, from: usize, to: usize, most: usize) -> Vec<Batch> {
        batches(from, to, most, &self.tokens)
    }

    /// Decodes a batch of the prompt.
    ///
    /// # Errors
    /// Those of [`Engine::decode`].
    pub(crate) fn decode(&mut self, engine: &mut dyn Engine, prompt: &[Token], batch: Batch) -> Result<()> {
        decode(engine, prompt, batch, &mut self.with)
    }

    /// The relevance of the tools for the question, in nats; `None` until the prompt is decoded.
    pub(crate) fn relevance(&self) -> Option<f64> {
        (self.with.len() == self.without.len()).then(|| relevance(&self.with, &self.without))
    }
}

/// Tokens to decode at once, and whether the logits after each are kept.
pub(crate) struct Batch {
    pub tokens: Range<usize>,
    kept: bool,
}

/// Batches of the tokens in `from..to`: those before which a token of the question comes are small, and keep their logits.
///
/// The prompt's last token, whose logits the answer begins with, is a batch of its own, and the batch before it is not small if
/// that can be avoided: see [`PROMPT_BLOCK`].
pub(crate) fn batches(from: usize, to: usize, most: usize, question: &Range<usize>) -> Vec<Batch> {
    let (start, end) =
        (question.start.saturating_sub(1).clamp(from, to), question.end.saturating_sub(1).clamp(from, to));
    let last = to.saturating_sub(1).max(end);
    let mut batches = Vec::new();
    for (part, most, kept) in
        [(from..start, most, false), (start..end, BATCH, true), (end..last, most, false), (last..to, most, false)]
    {
        let mut first = part.start;
        while first < part.end {
            let left = part.end - first;
            let short = !kept && (most + 1..most + PROMPT_BLOCK).contains(&left);
            let next = first + if short { most - PROMPT_BLOCK } else { most.min(left) };
            batches.push(Batch { tokens: first..next, kept });
            first = next;
        }
    }
    batches
}

fn decode(engine: &mut dyn Engine, prompt: &[Token], batch: Batch, logarithms: &mut Vec<f64>) -> Result<()> {
    let tokens = prompt.get(batch.tokens.clone()).unwrap_or_default();
    if !batch.kept {
        return engine.decode(tokens);
    }
    engine.decode_all(tokens, 0)?;
    let next = prompt.get(batch.tokens.start + 1..batch.tokens.end + 1).unwrap_or_default();
    logarithms
        .extend(next.iter().enumerate().map(|(row, next)| Distribution::new(engine.logits_at(row)).logarithm(*next)));
    Ok(())
}

fn relevance(with: &[f64], without: &[f64]) -> f64 {
    with.iter().zip(without).map(|(with, without)| (with - without).max(0.0)).sum()
}

/// Where a text that the prompt ends with, but for `after` bytes, is among the prompt's tokens.
pub(crate) fn place(engine: &dyn Engine, prompt: &[Token], after: usize, length: usize) -> Range<usize> {
    let (mut bytes, mut end, mut start) = (0, prompt.len(), prompt.len());
    while start > 0 && bytes < after + length {
        start -= 1;
        bytes += engine.token_bytes(prompt[start]).len();
        if bytes <= after {
            end = start;
        }
    }
    start..end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(batches: Vec<Batch>) -> Vec<(Range<usize>, bool)> {
        batches.into_iter().map(|batch| (batch.tokens, batch.kept)).collect()
    }

    #[test]
    fn only_batches_that_precede_the_question_keep_their_logits() {
        assert_eq!(ranges(batches(0, 10, 512, &(4..7))), [(0..3, false), (3..6, true), (6..9, false), (9..10, false)]);
        assert_eq!(
            ranges(batches(3, 700, 512, &(4..70))),
            [(3..35, true), (35..67, true), (67..69, true), (69..581, false), (581..699, false), (699..700, false)]
        );
        assert_eq!(ranges(batches(0, 514, 512, &(0..0))), [(0..448, false), (448..513, false), (513..514, false)]);
        assert_eq!(ranges(batches(8, 10, 512, &(4..7))), [(8..9, false), (9..10, false)]);
        assert_eq!(ranges(batches(0, 7, 512, &(4..8))), [(0..3, false), (3..7, true)]);
        assert_eq!(ranges(batches(0, 0, 512, &(0..0))), []);
    }

    #[test]
    fn only_words_that_the_tools_make_likelier_count() {
        assert_eq!(relevance(&[-1.0, -5.0, -0.5], &[-3.0, -1.0, -1.0]), 2.5);
        assert_eq!(relevance(&[], &[]), 0.0);
    }
}
