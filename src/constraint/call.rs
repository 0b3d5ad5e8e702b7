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
    /// The digit counter, if it is JSON.
    digits: Option<Digits>,
    /// A completion from here, if one is known.
    way: Option<Vec<u8>>,
    /// The completion from its beginning, which a following call may also need.
    first: Vec<u8>,
    /// Tokens left at the last failed search.
    sought: usize,
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
        behind: &[u8],
        digits: Option<Digits>,
    ) -> Option<Call> {
        let Begun { mut matcher, closer, way, .. } = begun;
        let ids: Vec<TokenId> = tokens.tokenize(behind).iter().map(|token| id(*token)).collect();
        let fits = matcher.validate_tokens(&ids).is_ok_and(|count| count == ids.len());
        if !fits || matcher.consume_tokens(&ids).is_err() {
            return None;
        }
        let first = way.clone().unwrap_or_default();
        let mut call = Call { matcher, grammar, closer, digits, way, first, sought: usize::MAX };
        call.count(behind);
        call.follow(behind, FIRST_EFFORT);
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
            let way = self.way.take();
            self.way = match way.as_deref().and_then(|way| way.strip_prefix(bytes)) {
                Some(rest) => Some(rest.to_vec()),
                None => way.and_then(|way| closer.way(&way, bytes.len(), effort, &|_| true)),
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
        if self.way.is_some() {
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
        let (Some(closer), Some(before)) = (&mut self.closer, &self.way) else {
            self.push(token, bytes)?;
            self.seek(left, tokens, last);
            return Ok(Taken::Yes);
        };
        let last: Vec<Token> = last.last().into_iter().copied().chain([token]).collect();
        // A text has at most as many tokens as bytes, so most completions need not be tokenised.
        let fits = |way: &[u8]| way.len() <= left || spell(tokens, &last, way).len() <= left;
        closer.push(bytes);
        let rest = before.strip_prefix(bytes).filter(|rest| fits(rest)).map(<[u8]>::to_vec);
        // After a call that may be the last, another one begins.
        let hint = if before.is_empty() { &self.first } else { before };
        let Some(way) = rest.or_else(|| closer.way(hint, bytes.len(), EFFORT, &fits)) else {
            closer.pop(bytes.len());
            return Ok(Taken::NoRoom);
        };
        self.way = Some(way);
        self.matcher.consume_token(id(token)).map_err(|error| error.to_string())?;
        self.count(bytes);
        Ok(Taken::Yes)
    }

    /// Searches for a completion if none is known, but not at every token: a failing search takes long.
    fn seek(&mut self, left: usize, tokens: &Tokens, last: &[Token]) {
        if left <= self.sought / 4 * 3 {
            self.sought = left;
            let fits = |way: &[u8]| spell(tokens, last, way).len() <= left;
            self.way = self.closer.as_mut().and_then(|closer| closer.way(&[], 0, EFFORT, &fits));
        }
    }

    /// The completion in tokens, if one is known.
    pub(super) fn way(&self, tokens: &Tokens, last: &[Token]) -> Option<Vec<Token>> {
        self.way.as_ref().map(|way| spell(tokens, last, way))
    }

    /// Whether it has to be closed now, with `left` tokens remaining.
    pub(super) fn is_due(&self, left: usize, tokens: &Tokens, last: &[Token]) -> bool {
        let Some(way) = self.way.as_ref().filter(|way| !way.is_empty()) else { return false };
        way.len() + SPARE > left && spell(tokens, last, way).len() + SPARE > left
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

    /// Whether a token fits; a token that `ends` the turn fits if the call may end here.
    pub(super) fn fits(&mut self, token: Token, ends: bool, tokens: &Tokens) -> bool {
        let short = |digits: &Digits| digits.allows(tokens.vocabulary.bytes(token));
        match ends {
            true => self.may_end(),
            false if !self.digits.as_ref().is_none_or(short) => false,
            false => self.matcher.validate_tokens(&[id(token)]).is_ok_and(|count| count == 1),
        }
    }

    /// Whether it may end here.
    pub(super) fn may_end(&mut self) -> bool {
        is_complete(&mut self.matcher)
    }

    /// Whether it is JSON that ends in a number, which more digits would change.
    pub(super) fn ends_in_number(&self) -> bool {
        self.digits.as_ref().is_some_and(Digits::in_number)
    }

    /// Whether nothing more can follow.
    pub(super) fn is_over(&self) -> bool {
        self.matcher.is_stopped() && self.matcher.stop_reason().is_ok()
    }
}
