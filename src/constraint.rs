//! Constrains a model to a format's grammar while it generates.
//!
//! Text is free until a marker opens a call; from there to the call's end, a grammar decides. A token is sampled first
//! and checked after: only if it does not fit is the mask of all fitting tokens computed, and one of these sampled.
//! Text that the grammar forces is appended in one batch, without running the model. While a call is open, a completion
//! within the remaining tokens is always known. When the next token would make it impossible, the completion is written
//! instead, so that no call is ever cut off.

mod begin;
mod call;
mod closing;
mod compiler;
mod digits;
mod forced;
mod masks;
mod rules;
mod tree;
mod trigger;

use crate::decision::Decided;
use crate::engine::Token;
use crate::engine::sampler::Sampler;
use crate::grammar::{Grammar, Unenforced};
use crate::{Error, ErrorKind, Result};
use call::{Call, SPARE, Taken};
use compiler::{grammar_error, id, token};
use digits::Digits;
use forced::{jump, up_to};
use std::time::{Duration, Instant};
use trigger::{Hit, Trigger};

pub use compiler::Compiler;
pub(crate) use rules::Step;
pub use rules::{Calls, Mode, Notice, Rules, Subject};

/// Maximum number of tokens to try that the grammar allows but that leave no room for a completion, before the call is
/// closed.
const TRIES: usize = 4;

enum Phase {
    /// In reasoning, with its length in tokens.
    Thinking(usize),
    /// In text, with its length in tokens.
    Text(usize),
    /// In a call or a section of calls.
    Call(Box<Call>),
    /// Nothing more may come.
    Over,
    /// Constraining has ended.
    Off,
}

/// Constrains one answer.
pub struct Constraint<'c> {
    compiler: &'c mut Compiler,
    rules: Rules,
    phase: Phase,
    calls: Trigger,
    thinking: Trigger,
    /// The grammars of the markers in `calls`, in their order.
    grammars: Vec<Grammar>,
    /// Whether calls begin with their own text instead of a marker.
    bare: bool,
    opening: String,
    thinking_end: String,
    /// The grammar of the whole answer, while reasoning precedes it.
    after_reasoning: Option<Box<Call>>,
    called: bool,
    /// Maximum number of tokens of text before a call that the model may make, if limited.
    calls_within: Option<usize>,
    /// The marker that begins a call or a section of calls.
    marker: String,
    /// Whether a call is required because of its probability, and not by the caller.
    by_threshold: bool,
    /// Whether the prompt begins the call.
    primed: bool,
    /// What is constrained.
    subject: Subject,
    /// Whether calls are written as JSON.
    json: bool,
    draft: bool,
    /// The last two tokens, as context for the tokenizer.
    last: Vec<Token>,
    notices: Vec<Notice>,
    mask_times: Vec<Duration>,
}

impl<'c> Constraint<'c> {
    /// Whether earlier text may be proposed as a call's continuation; this is the default.
    ///
    /// It does not change the result, only how often the model runs.
    #[must_use]
    pub fn drafting(mut self, draft: bool) -> Constraint<'c> {
        self.draft = draft;
        self
    }

    /// Constrains nothing until [`Constraint::decide`] is called.
    #[must_use]
    pub(crate) fn dormant(mut self) -> Constraint<'c> {
        self.phase = Phase::Off;
        self
    }

    /// Requires or forbids calls in an answer that has not begun; false if it cannot, because its calls have no grammar.
    pub(crate) fn decide(&mut self, decided: Decided) -> bool {
        match (decided, &self.phase) {
            (Decided::Call, Phase::Text(_)) => {
                self.rules.calls = Calls::Required;
                self.by_threshold = true;
            }
            (Decided::Text, Phase::Text(_) | Phase::Off) => {
                self.rules.calls = Calls::Forbidden;
                self.phase = Phase::Text(0);
            }
            _ => return false,
        }
        true
    }

    /// Lets a call that is allowed, but not required, only begin within the first `most` tokens of the text; by default,
    /// it may begin anywhere. Further calls may follow the first.
    #[must_use]
    pub fn calls_within(mut self, most: Option<usize>) -> Constraint<'c> {
        self.calls_within = most;
        self
    }

    /// The parts of the tools' schemas that are only checked after parsing.
    pub(crate) fn unenforced(&self) -> &[Unenforced] {
        self.grammars.first().map_or(&[], |grammar| &grammar.unenforced)
    }

    /// The diagnostics of the constraint.
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }

    /// The time for each computed mask.
    pub fn mask_times(&self) -> &[Duration] {
        &self.mask_times
    }

    /// Takes the beginning of the answer that is already in the prompt.
    ///
    /// # Errors
    /// [`ErrorKind::Constraint`] in strict mode, if the grammar does not allow it.
    pub(crate) fn prime(&mut self, text: &[u8]) -> Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        self.primed = true;
        self.read(text)
    }

    /// The next step, with `left` tokens remaining.
    ///
    /// # Errors
    /// [`ErrorKind::Constraint`] in strict mode, if the grammar engine fails; in every mode, if the remaining tokens do
    /// not suffice for a required call.
    pub(crate) fn next(&mut self, left: usize) -> Result<Step> {
        match &mut self.phase {
            Phase::Over => Ok(Step::Finished),
            Phase::Off => Ok(Step::Sample),
            Phase::Thinking(length) => {
                if self.rules.max_thinking.is_some_and(|most| *length >= most) && !self.thinking_end.is_empty() {
                    self.notices.push(Notice::ThinkingClosed);
                    let run = self.compiler.tokens().tokenize(self.thinking_end.as_bytes());
                    return self.forced(run);
                }
                Ok(Step::Sample)
            }
            Phase::Text(length) => {
                let due = self.rules.calls == Calls::Required && !self.called && *length >= self.rules.max_preamble;
                if due { self.begin_call(left) } else { Ok(Step::Sample) }
            }
            Phase::Call(call) => {
                if call.is_over() {
                    self.leave();
                    return self.next(left);
                }
                if let Some(error) = call.matcher.get_error() {
                    self.fail(&error)?;
                    return Ok(Step::Sample);
                }
                let tokens = self.compiler.tokens();
                if std::mem::take(&mut self.primed) {
                    let needed = call.completion(tokens, &self.last).map(|completion| completion.len());
                    // For a user's grammar, not every text has a known completion.
                    let unknown = needed.is_none() && self.subject == Subject::Answer { json: false };
                    if !unknown && needed.is_none_or(|needed| needed > left) {
                        return Err(too_few(self.subject, needed, left));
                    }
                }
                if call.is_due(left, tokens, &self.last) {
                    return self.close(left);
                }
                if self.rules.jump {
                    let run = jump(&mut call.matcher, tokens, &self.last);
                    if !run.is_empty() {
                        return self.forced(run);
                    }
                }
                Ok(Step::Sample)
            }
        }
    }

    /// Begins a call: its marker and the text that the grammar forces after it, tokenised together.
    fn begin_call(&mut self, left: usize) -> Result<Step> {
        let opening = self.opening.clone();
        let call = match self.calls.look(opening.as_bytes()) {
            Some(hit) => self.open(hit, opening.as_bytes())?,
            None => None,
        };
        let tokens = self.compiler.tokens();
        let mut run = tokens.tokenize(opening.as_bytes());
        if let Some(mut call) = call {
            let needed = call.completion(tokens, &run).map(|completion| run.len() + completion.len());
            if needed.is_none_or(|needed| needed + SPARE > left) {
                return self.no_room(needed, left);
            }
            if self.rules.jump {
                // Of the forced bytes, only as many as no token could extend into the free text.
                let settled: Vec<Token> = call.matcher.compute_ff_tokens().into_iter().map(token).collect();
                let most = opening.len() + tokens.vocabulary.text(&settled).len();
                let text = [opening.as_bytes(), &call.matcher.compute_ff_bytes()].concat();
                let longer = up_to(tokens, &text, 0, most);
                if tokens.vocabulary.text(&longer).len() >= opening.len() {
                    run = longer;
                }
            }
        }
        self.forced(run)
    }

    /// Takes tokens that were not sampled.
    fn forced(&mut self, run: Vec<Token>) -> Result<Step> {
        self.take(&run)?;
        Ok(Step::Forced(run))
    }

    fn take(&mut self, run: &[Token]) -> Result<()> {
        run.iter().try_for_each(|token| self.commit(*token))
    }

    /// Ends the answer before a call that needs `needed` tokens, if that is known.
    ///
    /// # Errors
    /// [`ErrorKind::Constraint`] if it is the first required call, or the mode is strict.
    fn no_room(&mut self, needed: Option<usize>, left: usize) -> Result<Step> {
        let required = self.rules.calls == Calls::Required && !self.by_threshold;
        let demanded = required || self.rules.mode == Mode::Strict;
        if demanded && !self.called {
            return Err(too_few(self.subject, needed, left));
        }
        self.notices.push(Notice::NoRoomForCall(too_few(self.subject, needed, left).message().to_owned()));
        self.phase = Phase::Over;
        Ok(Step::Finished)
    }

    /// Writes the completion.
    fn close(&mut self, left: usize) -> Result<Step> {
        let Phase::Call(call) = &self.phase else { return Ok(Step::Sample) };
        match call.completion(self.compiler.tokens(), &self.last) {
            Some(run) if !run.is_empty() => {
                self.closes_early();
                self.forced(run)
            }
            // All calls are closed, and there is no room for another one.
            _ if self.subject == Subject::Call => self.no_room(None, left),
            completion => {
                match completion {
                    Some(_) => self.closes_early(),
                    None => self.notices.push(Notice::CutOff(self.subject)),
                }
                self.phase = Phase::Over;
                Ok(Step::Finished)
            }
        }
    }

    /// From here on, the text differs from what the model would have written with more tokens.
    fn closes_early(&mut self) {
        if !self.is_closing() {
            self.notices.push(Notice::ClosedEarly(self.subject));
        }
    }

    /// Whether the current text is a completion, or omits something for lack of room, because the tokens run out.
    pub(crate) fn is_closing(&self) -> bool {
        self.notices.contains(&Notice::ClosedEarly(self.subject))
    }

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
            if let Phase::Call(call) = &mut self.phase
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
                if self.must_go_on() {
                    banned.push(chosen);
                    continue;
                }
                return Ok(Ok(chosen));
            }
            match self.accept(chosen, left)? {
                Accepted::Yes => return Ok(Ok(chosen)),
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

    /// Records that the tokens have run out, and whether some forced ones are `missing`.
    pub(super) fn out_of_tokens(&mut self, missing: bool) {
        let Phase::Call(call) = &mut self.phase else { return };
        if missing || !call.may_end() {
            self.notices.push(Notice::CutOff(self.subject));
        } else if call.ends_in_number() && !call.is_over() {
            self.notices.push(Notice::NumberCutOff);
        }
    }

    /// Number of tokens of a draft that the grammar allows inside a call; 0 elsewhere.
    pub(super) fn allowed(&mut self, draft: &[Token]) -> usize {
        match &mut self.phase {
            Phase::Call(call) if self.draft => {
                let ids: Vec<_> = draft.iter().map(|token| id(*token)).collect();
                call.matcher.validate_tokens(&ids).unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// Whether a grammar constrains the next token.
    pub(super) fn holds(&self) -> bool {
        matches!(self.phase, Phase::Call(_))
    }

    /// Whether the next tokens may be drafted.
    pub(super) fn may_draft(&self) -> bool {
        self.draft && matches!(self.phase, Phase::Call(_))
    }

    fn is_end(&self, token: Token) -> bool {
        let words = &self.compiler.tokens().vocabulary.words;
        usize::try_from(token.0).ok().and_then(|index| words.get(index)).is_some_and(|word| word.end)
    }

    /// Whether the answer must not end yet, although no grammar requires this.
    fn must_go_on(&self) -> bool {
        matches!(self.phase, Phase::Text(_) | Phase::Thinking(_)) && self.rules.calls == Calls::Required && !self.called
    }

    /// Whether the answer may only contain calls.
    fn only_calls(&self) -> bool {
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
                let Some(hit) = self.calls.look(tokens.vocabulary.bytes(chosen)) else {
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

    /// Whether so much text has been written that no call may begin.
    fn is_too_late(&self) -> bool {
        let (Phase::Text(length), Some(most)) = (&self.phase, self.calls_within) else { return false };
        // The tokens of the marker itself are no text before it, except the one that completes it.
        let marker = self.compiler.tokens().tokenize(self.marker.as_bytes()).len().saturating_sub(1);
        self.rules.calls == Calls::Allowed && !self.called && length.saturating_sub(marker) > most
    }

    fn remember(&mut self, token: Token) {
        if self.last.len() == 2 {
            self.last.remove(0);
        }
        self.last.push(token);
    }

    /// Takes a token.
    fn commit(&mut self, token: Token) -> Result<()> {
        self.remember(token);
        let bytes = self.compiler.tokens().vocabulary.bytes(token);
        match &mut self.phase {
            Phase::Call(call) => match call.push(token, bytes) {
                Ok(()) => Ok(()),
                Err(error) => self.fail(&error),
            },
            Phase::Thinking(_) | Phase::Text(_) if self.calls.look(bytes).is_some() => {
                let bytes = bytes.to_vec();
                self.read(&bytes)
            }
            Phase::Thinking(_) | Phase::Text(_) => {
                self.calls.push(bytes);
                let hit = self.thinking.look(bytes);
                self.thinking.push(bytes);
                match (&mut self.phase, hit.map(|hit| hit.which)) {
                    (Phase::Thinking(_), Some(0)) => {
                        self.phase = self.after_reasoning.take().map_or(Phase::Text(0), Phase::Call);
                        self.calls.reset();
                    }
                    (Phase::Text(_), Some(1)) => self.phase = Phase::Thinking(0),
                    (Phase::Thinking(length) | Phase::Text(length), _) => *length += 1,
                    _ => {}
                }
                Ok(())
            }
            Phase::Over | Phase::Off => Ok(()),
        }
    }

    /// Scans text in which a call may begin.
    fn read(&mut self, text: &[u8]) -> Result<()> {
        let Some(hit) = self.calls.look(text) else {
            self.calls.push(text);
            return Ok(());
        };
        match self.open(hit, text)? {
            Some(call) => self.enter(call),
            None if matches!(self.phase, Phase::Off) => {}
            None => self.fail("the grammar does not allow the text after a call's marker")?,
        }
        Ok(())
    }

    /// Opens the call after a marker and feeds it the bytes after the marker; `None` if the grammar does not allow
    /// them.
    fn open(&mut self, hit: Hit, bytes: &[u8]) -> Result<Option<Call>> {
        let Some(grammar) = self.grammars.get(hit.which) else { return Ok(None) };
        let begun = match self.compiler.begin(&grammar.lark) {
            Ok(begun) => begun,
            Err(error) => {
                self.failed(&error)?;
                return Ok(None);
            }
        };
        // A call without a marker begins with its own text, which was matched as the marker.
        let mut following = Vec::new();
        if self.bare {
            following.extend_from_slice(self.opening.as_bytes());
        }
        following.extend_from_slice(&bytes[bytes.len().saturating_sub(hit.following)..]);
        let digits = if self.json { Digits::new(&grammar.lark, false) } else { None };
        Ok(Call::begin(begun, hit.which, self.compiler.tokens(), &following, digits))
    }

    fn enter(&mut self, call: Call) {
        self.called = true;
        self.phase = Phase::Call(Box::new(call));
    }

    /// After the calls.
    fn leave(&mut self) {
        self.phase = if self.only_calls() { Phase::Over } else { Phase::Text(0) };
        self.calls.reset();
        self.thinking.reset();
    }

    /// The constraint cannot continue: an error in strict mode, otherwise constraining ends.
    fn fail(&mut self, why: &str) -> Result<()> {
        if let Phase::Call(call) = &self.phase
            && let Some(grammar) = self.grammars.get(call.grammar)
        {
            self.compiler.forget(&grammar.lark);
        }
        self.failed(&grammar_error(why))
    }

    fn failed(&mut self, error: &Error) -> Result<()> {
        self.phase = Phase::Off;
        if self.rules.mode == Mode::Strict {
            return Err(Error::new(ErrorKind::Constraint, format!("while generating: {}", error.message())));
        }
        self.notices.push(Notice::Failed(error.message().to_owned()));
        Ok(())
    }
}

/// The error that nothing is begun that needs `needed` tokens, if that is known, with `left` remaining.
fn too_few(subject: Subject, needed: Option<usize>, left: usize) -> Error {
    let what = subject.name();
    let tokens = if left == 1 { "1 token is".to_owned() } else { format!("{left} tokens are") };
    match needed {
        Some(needed) => {
            let message =
                format!("{tokens} left, too few for a complete {what}: the shortest one found takes {needed}");
            Error::new(ErrorKind::Constraint, message).hint("raise `Options::max_tokens` or `LoadOptions::context`")
        }
        None => {
            let message = format!("{tokens} left, and no {what} is known to fit");
            Error::new(ErrorKind::Constraint, message)
                .hint("raise `Options::max_tokens`, make the schema simpler, or set `Options::constrain` to off")
        }
    }
}

enum Accepted {
    Yes,
    No,
    Instead(Step),
}
