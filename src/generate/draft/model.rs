//! Drafts of a smaller model that has the same tokens.
//!
//! It writes the tokens that it holds for the likeliest, one after the other, as long as it is sure enough of all of them. (Speculative
//! decoding: Leviathan, Kalman and Matias, 2023. What is proposed here is only compared with what the large model samples.)

use super::{FIRST, MOST, PATIENCE, WEIGHT, next_length};
use crate::Result;
use crate::engine::sampler::likeliest_token;
use crate::engine::{DraftModel, Engine, Token, common};
use crate::generate::{Limits, PROMPT_CHUNK};
use std::time::{Duration, Instant};

/// What a token of a prompt costs, as a part of a step, about: 0.36 with SmolLM2-135M on a CPU.
const READING: f32 = 0.35;
/// A prompt is read only after so many times the steps that this costs: most answers with calls are short, and would not pay for it.
const PATIENT: f32 = 4.0;
/// What a draft is taken to save before there was one, in steps of the large model.
const HOPED: f32 = 0.3;

/// Drafts of a model for one answer. Times are in steps of the large model.
pub(super) struct FromModel {
    /// Tokens proposed at a time, at most.
    length: usize,
    /// A moving average of what a draft saves.
    saves: f32,
    let_go: usize,
    /// Steps of the large model in which it could have proposed something.
    steps: usize,
    /// What the last draft cost to write and to check, until it is known how much of it was right.
    spent: Option<f32>,
    /// Time that it took to read the prompt.
    reading: Duration,
    /// Whether it cannot read this text.
    failed: bool,
}

impl Default for FromModel {
    fn default() -> FromModel {
        FromModel {
            length: FIRST,
            saves: HOPED,
            let_go: 0,
            steps: 0,
            spent: None,
            reading: Duration::ZERO,
            failed: false,
        }
    }
}

impl FromModel {
    /// Proposes at most `most` tokens after `text`; none while it does not pay.
    pub(super) fn propose(
        &mut self,
        DraftModel { engine: model, step, check, shared }: DraftModel<'_>,
        text: &[Token],
        limits: &Limits<'_>,
        most: usize,
    ) -> Vec<Token> {
        let most = self.length.min(most).min(model.context_limit().saturating_sub(text.len()));
        let unread = text.len() - common(model.cached(), text);
        let read = step * READING * unread as f32;
        self.steps += 1;
        if self.failed || most == 0 || step + check >= 1.0 || (self.steps as f32) < PATIENT * read {
            return Vec::new();
        }
        if self.saves < 0.0 && self.let_go < PATIENCE {
            self.let_go += 1;
            return Vec::new();
        }
        self.let_go = 0;
        let written = self.read(model, text, limits).and_then(|read| match read {
            true => write(model, most, (step, check), shared),
            false => Ok(Vec::new()),
        });
        let written = written.unwrap_or_else(|error| {
            tracing::warn!(%error, "the draft model proposes nothing more in this answer");
            self.failed = true;
            Vec::new()
        });
        // What a prompt cost is no part of this draft.
        let read = if unread > PROMPT_CHUNK { 0.0 } else { step * READING * unread.saturating_sub(1) as f32 };
        self.spent = Some(read + step * written.len().max(1) as f32 + check * written.len() as f32);
        written
    }

    /// Has the model read a text that will get longer; whether it came to the end.
    fn read(&mut self, model: &mut dyn Engine, text: &[Token], limits: &Limits<'_>) -> Result<bool> {
        let began = Instant::now();
        let most = limits.max_tokens.min(model.context_limit().saturating_sub(text.len()));
        model.reserve_from(text.len() + MOST.min(most), text.len() + most)?;
        // The logits after the last token are needed.
        let last = text.len().saturating_sub(1);
        if self.reading.is_zero() {
            model.recall(text, last);
        }
        model.truncate(common(model.cached(), text).min(last));
        let have = model.cached().len();
        for chunk in text[have..].chunks(PROMPT_CHUNK) {
            if limits.reached().is_some() {
                return Ok(false);
            }
            model.decode(chunk)?;
        }
        if self.reading.is_zero() {
            self.reading = began.elapsed();
        }
        Ok(true)
    }

    /// Records how many tokens of its last draft were proposed, and `right`; false if the last draft was not the model's.
    pub(super) fn learn(&mut self, proposed: usize, right: usize) -> bool {
        let Some(spent) = self.spent.take() else { return false };
        self.saves += WEIGHT * (right as f32 - spent - self.saves);
        if proposed > 0 {
            self.length = next_length(self.length, proposed, right);
        }
        true
    }

    /// The answer is over.
    pub(super) fn end(&self, model: &mut dyn Engine) {
        if !self.reading.is_zero() {
            model.remember(self.reading);
        }
    }
}

/// Writes at most `most` of the first `shared` tokens, while one more costs less than the probability that all are right: to check, and
/// to write.
fn write(model: &mut dyn Engine, most: usize, (step, check): (f32, f32), shared: usize) -> Result<Vec<Token>> {
    let (mut written, mut sure) = (Vec::new(), 1.0);
    loop {
        let (token, probability) = likeliest_token(model.logits());
        sure *= probability;
        let known = usize::try_from(token.0).is_ok_and(|id| id < shared);
        // Nothing is saved by an end that was expected.
        if sure < check || !known || model.is_end(token) {
            return Ok(written);
        }
        written.push(token);
        if written.len() == most || sure < step + check {
            return Ok(written);
        }
        model.decode(&[token])?;
    }
}
