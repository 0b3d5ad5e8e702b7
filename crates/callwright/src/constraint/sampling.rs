//! Chooses tokens under a constraint: a sampled one if it fits, else one of those that the grammar allows.

use super::call::Taken;
use super::compiler::id;
use super::rules::{Calls, Mode, Step};
use super::{Constraint, Phase, Subject};
use crate::Result;
use crate::engine::Token;
use crate::engine::sampler::Sampler;
use std::time::Instant;

/// Maximum number of tokens to try that the grammar allows but that leave no room for a completion, before the call is
/// closed.
const TRIES: usize = 4;

enum Accepted {
    Yes,
    No,
    Instead(Step),
}

impl Constraint<'_> {
    /// Samples a fitting token, with `left` tokens remaining, and takes it; if none fits in the remaining tokens,
    /// returns what to do instead.
    ///
    /// # Errors
    /// [`ErrorKind::Constraint`] in strict mode, if the grammar engine fails.
    pub(crate) fn sample(
        &mut self,
        sampler: &mut Sampler,
        logits: &[f32],
        left: usize,
    ) -> Result<std::result::Result<Token, Step>> {
        let mut banned: Vec<Token> = Vec::new();
        loop {
            sampler.hold(self.holds());
            let mut chosen =
                if banned.is_empty() { sampler.sample(logits) } else { sampler.sample_without(logits, &banned) };
            let ends = self.is_end(chosen);
            if self.rules.sampled_elsewhere && !self.fits_or_forced(&mut chosen, ends)? {
                self.give_up();
                return Ok(Ok(chosen));
            }
            if !self.rules.sampled_elsewhere
                && let Phase::Call(call) = &mut self.phase
                && (banned.contains(&chosen) || !call.fits(chosen, ends, self.compiler.tokens()))
            {
                match self.masked(sampler, logits, &banned, left)? {
                    Some(Ok(token)) => chosen = token,
                    Some(Err(instead)) => return Ok(Err(instead)),
                    // The call may end here, and the model has ended it.
                    None => continue,
                }
            }
            if self.is_end(chosen) {
                if self.must_go_on() && !self.rules.sampled_elsewhere {
                    banned.push(chosen);
                    continue;
                }
                return Ok(Ok(chosen));
            }
            match self.accept(chosen, left)? {
                Accepted::Yes => return Ok(Ok(chosen)),
                Accepted::No if self.rules.sampled_elsewhere && matches!(self.phase, Phase::Call(_)) => {
                    return self.close(left).map(Err);
                }
                Accepted::No if self.rules.sampled_elsewhere => {
                    self.give_up();
                    return Ok(Ok(chosen));
                }
                Accepted::No => banned.push(chosen),
                Accepted::Instead(step) => return Ok(Err(step)),
            }
            if banned.len() >= TRIES && matches!(self.phase, Phase::Call(_)) {
                return self.close(left).map(Err);
            }
            if banned.len() > 64 {
                self.fail("the model excludes every token that fits")?;
            }
        }
    }

    /// Whether the token that a server sampled fits, or may be replaced by the only one that does. A call that may end here is
    /// left.
    fn fits_or_forced(&mut self, chosen: &mut Token, ends: bool) -> Result<bool> {
        let only_calls = self.only_calls();
        let Phase::Call(call) = &mut self.phase else { return Ok(true) };
        if call.fits(*chosen, ends, self.compiler.tokens()) {
            return Ok(true);
        }
        if !only_calls && call.may_end() {
            self.leave();
            return Ok(true);
        }
        let mask = match call.mask(self.compiler.masks(), self.compiler.tokens()) {
            Ok(mask) => mask,
            Err(error) => {
                self.fail(&error)?;
                return Ok(true);
            }
        };
        let only = if mask.num_set() == 1 { mask.first_bit_set() } else { None };
        let only = only.and_then(|index| i32::try_from(index).ok()).map(Token);
        if let Some(only) = only.filter(|only| !self.is_end(*only)) {
            *chosen = only;
            return Ok(true);
        }
        Ok(false)
    }

    /// Returns whether the answer may go on with a text, or end if it is empty.
    pub(crate) fn fits(&mut self, text: &[u8]) -> bool {
        let only_calls = self.only_calls();
        let Phase::Call(call) = &mut self.phase else { return true };
        let tokens = self.compiler.tokens();
        call.goes_on_with(&tokens.tokenize(text), tokens) || (!only_calls && call.may_end())
    }

    fn is_end(&self, token: Token) -> bool {
        let words = &self.compiler.tokens().vocabulary.words;
        usize::try_from(token.0).ok().and_then(|index| words.get(index)).is_some_and(|word| word.end)
    }

    /// Returns whether the answer must not end yet, although no grammar requires this.
    fn must_go_on(&self) -> bool {
        matches!(self.phase, Phase::Text(_) | Phase::Thinking(_)) && self.rules.calls == Calls::Required && !self.called
    }

    /// Returns whether the answer may only contain calls.
    pub(super) fn only_calls(&self) -> bool {
        // The grammars of an answer that a threshold decides about allow text after calls.
        self.rules.mode == Mode::Strict && self.rules.calls == Calls::Required && !self.by_threshold
    }

    /// Samples among the fitting tokens, or returns what to do if there are none; `None` if the call was ended instead,
    /// because it may end here.
    fn masked(
        &mut self,
        sampler: &mut Sampler,
        logits: &[f32],
        banned: &[Token],
        left: usize,
    ) -> Result<Option<std::result::Result<Token, Step>>> {
        let only_calls = self.only_calls();
        let Phase::Call(call) = &mut self.phase else { return Ok(None) };
        if !only_calls && call.may_end() {
            self.leave();
            return Ok(None);
        }
        let started = Instant::now();
        let mask = call.mask(self.compiler.masks(), self.compiler.tokens());
        self.mask_times.push(started.elapsed());
        match mask {
            Ok(mut mask) => {
                for token in banned {
                    mask.disallow_token(id(*token));
                }
                if mask.is_zero() {
                    return self.close(left).map(|instead| Some(Err(instead)));
                }
                Ok(Some(Ok(sampler.sample_among(logits, mask.as_slice()))))
            }
            Err(error) => {
                self.fail(&error)?;
                Ok(None)
            }
        }
    }

    /// Takes a token that the grammar allows, unless the remaining tokens do not suffice for a completion.
    fn accept(&mut self, chosen: Token, left: usize) -> Result<Accepted> {
        let tokens = self.compiler.tokens();
        match &mut self.phase {
            Phase::Text(_) | Phase::Thinking(_) => {
                // A model that wants to call misspells the marker if it may not write it.
                if self.openings.is_forbidden(tokens.vocabulary.bytes(chosen)) {
                    return Ok(Accepted::No);
                }
                let Some(hit) = self.openings.look(tokens.vocabulary.bytes(chosen)) else {
                    self.commit(chosen)?;
                    return Ok(Accepted::Yes);
                };
                if self.rules.calls == Calls::Forbidden || self.is_too_late() {
                    return Ok(Accepted::No);
                }
                let bytes = tokens.vocabulary.bytes(chosen).to_vec();
                let Some(call) = self.open(hit, &bytes)? else { return Ok(Accepted::No) };
                let last: Vec<Token> = self.last.last().into_iter().copied().chain([chosen]).collect();
                let needed = call.completion(self.compiler.tokens(), &last).map(|completion| completion.len() + 1);
                if needed.is_none_or(|needed| needed > left) {
                    return self.no_room(needed, left).map(Accepted::Instead);
                }
                self.enter(call);
                self.remember(chosen);
                Ok(Accepted::Yes)
            }
            Phase::Call(call) => match call.take(chosen, left - 1, tokens, &self.last) {
                Ok(Taken::Yes) => {
                    self.remember(chosen);
                    Ok(Accepted::Yes)
                }
                // The previous calls are whole.
                Ok(Taken::NoRoom) if self.subject == Subject::Call && call.may_end() => {
                    self.no_room(None, left).map(Accepted::Instead)
                }
                Ok(Taken::NoRoom) => {
                    self.closes_early();
                    Ok(Accepted::No)
                }
                Err(error) => {
                    self.fail(&error)?;
                    Ok(Accepted::Yes)
                }
            },
            Phase::Over | Phase::Off => Ok(Accepted::Yes),
        }
    }

    /// Returns whether so much text has been written that no call may begin.
    fn is_too_late(&self) -> bool {
        let (Phase::Text(length), Some(most)) = (&self.phase, self.rules.max_preamble) else { return false };
        // The tokens of the marker itself are no text before it, except the one that completes it.
        let marker = self.openings.marker_tokens(self.compiler.tokens()).saturating_sub(1);
        self.rules.calls == Calls::Allowed && !self.called && length.saturating_sub(marker) > most
    }
}
