//! An open call: its state in the grammar, and its completion.

use super::closing::{Closer, EFFORT, FIRST_EFFORT};
use super::compiler::{Begun, Tokens, id, is_complete, token};
use super::digits::Digits;
use super::forced::spell;
use super::masks::Masks;
use crate::engine::Token;
use llguidance::Matcher;
use llguidance::toktrie::{SimpleVob, TokenId, TokenizerEnv};

/// Allowance for forced text, which may take this many more tokens at a boundary with other text than counted.
pub(super) const SPARE: usize = 2;

/// An open call or section of calls.
pub(super) struct Call {
    pub matcher: Matcher,
    /// Index of its grammar.
    pub grammar: usize,
    closer: Option<Closer>,
    /// The digit counter, unless a schema lists longer numbers.
    digits: Option<Digits>,
    /// A completion from here, if one is known.
    completion: Option<Vec<u8>>,
    /// The completion from its beginning, which a following call may also need.
    first: Vec<u8>,
    /// Tokens left at the last failed search.
    failed_at: usize,
}

/// The result of taking a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    Yes,
    /// It fits the grammar, but the remaining tokens would not suffice for a completion.
    NoRoom,
}

impl Call {
    /// The call after a marker, fed with the bytes after it; `None` if the grammar does not allow them.
    pub(super) fn begin(
        begun: Begun,
        grammar: usize,
        tokens: &Tokens,
        following: &[u8],
        digits: Option<Digits>,
    ) -> Option<Call> {
        let Begun { mut matcher, closer, completion, .. } = begun;
        let ids: Vec<TokenId> = tokens.tokenize(following).iter().map(|token| id(*token)).collect();
        let fits = matcher.validate_tokens(&ids).is_ok_and(|count| count == ids.len());
        if !fits || matcher.consume_tokens(&ids).is_err() {
            return None;
        }
        let first = completion.clone().unwrap_or_default();
        let mut call = Call { matcher, grammar, closer, digits, completion, first, failed_at: usize::MAX };
        call.count(following);
        call.follow(following, FIRST_EFFORT);
        Some(call)
    }

    fn count(&mut self, bytes: &[u8]) {
        if let Some(digits) = &mut self.digits {
            digits.push(bytes);
        }
    }

    /// Takes bytes, and advances the known completion if they match it.
    fn follow(&mut self, bytes: &[u8], effort: usize) {
        if let Some(closer) = &mut self.closer {
            closer.push(bytes);
            let completion = self.completion.take();
            self.completion = match completion.as_deref().and_then(|completion| completion.strip_prefix(bytes)) {
                Some(rest) => Some(rest.to_vec()),
                None => {
                    completion.and_then(|completion| closer.completion(&completion, bytes.len(), effort, &|_| true))
                }
            };
        }
    }

    /// Takes a token that the grammar allows and that was not sampled.
    ///
    /// # Errors
    /// The grammar engine's message if it fails.
    pub(super) fn push(&mut self, token: Token, bytes: &[u8]) -> Result<(), String> {
        self.matcher.consume_token(id(token)).map_err(|error| error.to_string())?;
        self.count(bytes);
        if self.completion.is_some() {
            self.follow(bytes, EFFORT);
        } else if let Some(closer) = &mut self.closer {
            closer.push(bytes);
        }
        Ok(())
    }

    /// Takes a token that the grammar allows, unless no completion would fit into `left` tokens.
    ///
    /// # Errors
    /// The grammar engine's message if it fails.
    pub(super) fn take(&mut self, token: Token, left: usize, tokens: &Tokens, last: &[Token]) -> Result<Taken, String> {
        let bytes = tokens.vocabulary.bytes(token);
        let (Some(closer), Some(before)) = (&mut self.closer, &self.completion) else {
            self.push(token, bytes)?;
            self.seek(left, tokens, last);
            return Ok(Taken::Yes);
        };
        let last: Vec<Token> = last.last().into_iter().copied().chain([token]).collect();
        // A text has at most as many tokens as bytes, so most completions need not be tokenised.
        let fits = |completion: &[u8]| completion.len() <= left || spell(tokens, &last, completion).len() <= left;
        closer.push(bytes);
        let rest = before.strip_prefix(bytes).filter(|rest| fits(rest)).map(<[u8]>::to_vec);
        // After a call that may be the last, another one begins.
        let hint = if before.is_empty() { &self.first } else { before };
        let Some(completion) = rest.or_else(|| closer.completion(hint, bytes.len(), EFFORT, &fits)) else {
            closer.pop(bytes.len());
            return Ok(Taken::NoRoom);
        };
        self.completion = Some(completion);
        self.matcher.consume_token(id(token)).map_err(|error| error.to_string())?;
        self.count(bytes);
        Ok(Taken::Yes)
    }

    /// Searches for a completion if none is known, but not at every token: a failing search takes long.
    fn seek(&mut self, left: usize, tokens: &Tokens, last: &[Token]) {
        if left <= self.failed_at / 4 * 3 {
            self.failed_at = left;
            let fits = |completion: &[u8]| spell(tokens, last, completion).len() <= left;
            self.completion = self.closer.as_mut().and_then(|closer| closer.completion(&[], 0, EFFORT, &fits));
        }
    }

    /// The completion in tokens, if one is known.
    pub(super) fn completion(&self, tokens: &Tokens, last: &[Token]) -> Option<Vec<Token>> {
        self.completion.as_ref().map(|completion| spell(tokens, last, completion))
    }

    /// Returns whether it has to be closed now, with `left` tokens remaining.
    pub(super) fn is_due(&self, left: usize, tokens: &Tokens, last: &[Token]) -> bool {
        let Some(completion) = self.completion.as_ref().filter(|completion| !completion.is_empty()) else {
            return false;
        };
        completion.len() + SPARE > left && spell(tokens, last, completion).len() + SPARE > left
    }

    /// The mask of the next tokens, including those that end a turn if it may end here.
    ///
    /// # Errors
    /// The grammar engine's message if it fails.
    pub(super) fn mask(&mut self, masks: &Masks, tokens: &Tokens) -> Result<SimpleVob, String> {
        let mut mask = self.grammar_mask(masks, tokens)?;
        if let Some(digits) = self.digits.as_ref().filter(|digits| digits.is_near()) {
            let too_long: Vec<TokenId> =
                mask.iter().filter(|id| !digits.allows(tokens.vocabulary.bytes(token(*id)))).collect();
            too_long.into_iter().for_each(|id| mask.disallow_token(id));
        }
        Ok(mask)
    }

    fn grammar_mask(&mut self, masks: &Masks, tokens: &Tokens) -> Result<SimpleVob, String> {
        let Some(closer) = &mut self.closer else {
            return self.matcher.compute_mask().map_err(|error| error.to_string());
        };
        // Forced text has only one tokenisation, the tokenizer's.
        if let Some(first) = self.matcher.compute_ff_tokens().first() {
            return Ok(tokens.tok_trie().singleton_token_set(*first));
        }
        let mut mask = closer.mask(masks).ok_or("the state of the grammar is lost")?;
        if is_complete(&mut self.matcher) {
            tokens.ends.iter().for_each(|end| mask.allow_token(*end));
        }
        Ok(mask)
    }

    /// Returns whether a token fits; a token that `ends` the turn fits if the call may end here.
    pub(super) fn fits(&mut self, token: Token, ends: bool, tokens: &Tokens) -> bool {
        let short = |digits: &Digits| digits.allows(tokens.vocabulary.bytes(token));
        match ends {
            true => self.may_end(),
            false if !self.digits.as_ref().is_none_or(short) => false,
            false => self.matcher.validate_tokens(&[id(token)]).is_ok_and(|count| count == 1),
        }
    }

    /// Returns whether all these tokens fit, one after the other.
    pub(super) fn goes_on_with(&mut self, run: &[Token], tokens: &Tokens) -> bool {
        if let [token] = *run {
            return self.fits(token, false, tokens);
        }
        let ids: Vec<TokenId> = run.iter().map(|token| id(*token)).collect();
        !ids.is_empty() && self.matcher.validate_tokens(&ids).is_ok_and(|count| count == ids.len())
    }

    /// Returns whether it may end here.
    pub(super) fn may_end(&mut self) -> bool {
        is_complete(&mut self.matcher)
    }

    /// Returns whether it ends in a number, which more digits would change.
    pub(super) fn ends_in_number(&self) -> bool {
        self.digits.as_ref().is_some_and(Digits::in_number)
    }

    /// Returns whether nothing more can follow.
    pub(super) fn is_over(&self) -> bool {
        self.matcher.is_stopped() && self.matcher.stop_reason().is_ok()
    }
}
