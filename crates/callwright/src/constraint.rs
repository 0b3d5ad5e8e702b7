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
mod openings;
mod rules;
mod sampling;
mod tree;
mod trigger;

use crate::answer::Decided;
use crate::engine::Token;
use crate::engine::vocabulary::Vocabulary;
use crate::grammar::Unenforced;
use crate::message::Message;
use crate::parse::{Opening, Opens};
use crate::tool::Tools;
use crate::{Error, ErrorKind, Result};
use call::{Call, SPARE};
use compiler::{grammar_error, id, token};
use forced::{jump, up_to};
use openings::Openings;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use trigger::{Hit, Trigger};

pub use compiler::Compiler;
pub(crate) use rules::Step;
pub use rules::{Calls, Mode, Notice, Rules, Subject};

/// Text at the beginning of an answer, or after a call, that may be a call in another form than the format's.
struct OtherForm {
    begins: Opening,
    /// Number of tokens of it.
    tokens: usize,
    /// The context before it.
    before: Vec<Token>,
}

impl OtherForm {
    fn new(tools: Arc<Tools>, messages: Arc<Vec<Message>>) -> OtherForm {
        OtherForm { begins: Opening::new(tools, messages), tokens: 0, before: Vec::new() }
    }

    /// Begins again, after these tokens.
    fn reset(&mut self, before: &[Token]) {
        self.begins.reset();
        self.tokens = 0;
        self.before = before.to_vec();
    }

    fn push(&mut self, bytes: &[u8]) {
        self.begins.push(bytes);
        self.tokens += 1;
    }
}

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
    openings: Openings,
    /// What the answer begins with, if that may be a call in another form.
    other: Option<OtherForm>,
    thinking: Trigger,
    thinking_end: String,
    /// The grammar of the whole answer, while reasoning precedes it.
    after_reasoning: Option<Box<Call>>,
    called: bool,
    /// Whether a call is required or forbidden because of its probability, and not by the caller.
    by_threshold: bool,
    /// Whether the prompt begins the call.
    primed: bool,
    /// Raised where the answer repeats itself, so that it is closed at the next token.
    closer: Rc<Cell<bool>>,
    /// What is constrained.
    subject: Subject,
    /// The last two tokens, as context for the tokenizer.
    last: Vec<Token>,
    notices: Vec<Notice>,
    mask_times: Vec<Duration>,
}

impl<'c> Constraint<'c> {
    /// Constrains nothing until [`Constraint::decide`] is called.
    #[must_use]
    pub(crate) fn dormant(mut self) -> Constraint<'c> {
        self.phase = Phase::Off;
        self
    }

    /// Takes back what begins a call of `tools` in another form than the format's, where the answer begins or after a call, and begins
    /// the call in the format's form. What tool results of the conversation have is left as it is.
    #[must_use]
    pub(crate) fn rewriting(mut self, tools: &Arc<Tools>, messages: &Arc<Vec<Message>>) -> Constraint<'c> {
        self.other = Some(OtherForm::new(Arc::clone(tools), Arc::clone(messages)));
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
                self.by_threshold = true;
                self.openings.forbid();
                self.phase = Phase::Text(0);
            }
            _ => return false,
        }
        true
    }

    /// The parts of the tools' schemas that are only checked after parsing.
    pub(crate) fn unenforced(&self) -> &[Unenforced] {
        self.openings.grammar(0).map_or(&[], |grammar| &grammar.unenforced)
    }

    /// The vocabulary of the model that it holds.
    pub(crate) fn vocabulary(&self) -> &Vocabulary {
        self.compiler.vocabulary()
    }

    /// The diagnostics of the constraint.
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }

    /// Returns what is raised to close the answer at the next token, because it repeats itself.
    pub(crate) fn closer(&self) -> Rc<Cell<bool>> {
        Rc::clone(&self.closer)
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
        if matches!(self.phase, Phase::Text(_)) && !text.trim_ascii().is_empty() {
            // What follows is not the beginning of the answer.
            self.other = None;
        }
        self.read(text)
    }

    /// The next step, with `left` tokens remaining.
    ///
    /// # Errors
    /// [`ErrorKind::Constraint`] in strict mode, if the grammar engine fails; in every mode, if the remaining tokens do
    /// not suffice for a required call.
    pub(crate) fn next(&mut self, left: usize) -> Result<Step> {
        if self.opens() == Some(Opens::Call) {
            return self.begin_instead(left);
        }
        let is_closing = self.is_closing();
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
                let due = self.rules.calls == Calls::Required
                    && !self.called
                    && *length >= self.rules.max_preamble.unwrap_or(0);
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
                        return Err(self.subject.too_few(needed, left));
                    }
                }
                let repeats = self.closer.get() && call.is_due(0, tokens, &self.last);
                if repeats && !is_closing {
                    self.notices.push(Notice::ClosedLoop(self.subject));
                    return self.close(left);
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

    /// What the text begins with, while it may be a call in another form.
    fn opens(&self) -> Option<Opens> {
        let other = self.other.as_ref().filter(|_| matches!(self.phase, Phase::Text(_)))?;
        (self.rules.calls != Calls::Forbidden).then(|| other.begins.found())
    }

    /// Number of the last tokens that may be taken back: nobody should have seen them.
    pub(super) fn held_back(&self) -> usize {
        let other = self.other.as_ref().filter(|_| self.opens().is_some_and(|opens| opens != Opens::Text));
        other.map_or(0, |other| other.tokens)
    }

    /// Begins a call in the format's form in place of the one that the model has begun.
    fn begin_instead(&mut self, left: usize) -> Result<Step> {
        let Some(other) = &self.other else { return Ok(Step::Sample) };
        let dropped = other.tokens;
        self.last.clone_from(&other.before);
        self.restart();
        match self.begin_call(left + dropped)? {
            Step::Forced(run) => Ok(Step::Instead(dropped, run)),
            step => Ok(step),
        }
    }

    /// Text begins: at the beginning of the answer, or after reasoning or calls.
    fn restart(&mut self) {
        self.openings.reset();
        if let Some(other) = &mut self.other {
            other.reset(&self.last);
        }
    }

    /// Begins a call: its marker and the text that the grammar forces after it, tokenised together.
    fn begin_call(&mut self, left: usize) -> Result<Step> {
        let opening = self.openings.text.clone();
        let call = match self.openings.look(opening.as_bytes()) {
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
            return Err(self.subject.too_few(needed, left));
        }
        self.notices.push(Notice::NoRoomForCall(self.subject.too_few(needed, left).message().to_owned()));
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

    /// Returns whether the current text is a completion, or omits something for lack of room, because the tokens run
    /// out.
    pub(crate) fn is_closing(&self) -> bool {
        let closed = [Notice::ClosedEarly(self.subject), Notice::ClosedLoop(self.subject)];
        self.notices.iter().any(|notice| closed.contains(notice))
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
            Phase::Call(call) => {
                let ids: Vec<_> = draft.iter().map(|token| id(*token)).collect();
                call.matcher.validate_tokens(&ids).unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// Returns whether a grammar constrains the next token.
    pub(super) fn holds(&self) -> bool {
        matches!(self.phase, Phase::Call(_))
    }

    /// Returns whether tokens may be drafted.
    pub(super) fn may_draft(&self) -> bool {
        self.rules.draft
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
            Phase::Thinking(_) | Phase::Text(_) if self.openings.look(bytes).is_some() => {
                let bytes = bytes.to_vec();
                self.read(&bytes)
            }
            Phase::Thinking(_) | Phase::Text(_) => {
                self.openings.push(bytes);
                if let (Phase::Text(_), Some(other)) = (&self.phase, &mut self.other) {
                    other.push(bytes);
                }
                let hit = self.thinking.look(bytes);
                self.thinking.push(bytes);
                match (&mut self.phase, hit.map(|hit| hit.which)) {
                    (Phase::Thinking(_), Some(0)) => {
                        self.phase = self.after_reasoning.take().map_or(Phase::Text(0), Phase::Call);
                        self.restart();
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
        let Some(hit) = self.openings.look(text) else {
            self.openings.push(text);
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
        match self.openings.open(self.compiler, hit, bytes) {
            Ok(call) => Ok(call),
            Err(error) => self.failed(&error).map(|()| None),
        }
    }

    fn enter(&mut self, call: Call) {
        self.called = true;
        self.phase = Phase::Call(Box::new(call));
    }

    /// After the calls.
    fn leave(&mut self) {
        self.phase = if self.only_calls() { Phase::Over } else { Phase::Text(0) };
        self.restart();
        self.thinking.reset();
    }

    /// The model has left the grammar where more than one text would fit: the rest is taken as it is, and the parser judges
    /// it.
    fn give_up(&mut self) {
        self.phase = Phase::Off;
        self.notices.push(Notice::Left(self.subject));
    }

    /// The constraint cannot continue: an error in strict mode, otherwise constraining ends.
    fn fail(&mut self, why: &str) -> Result<()> {
        if let Phase::Call(call) = &self.phase
            && let Some(grammar) = self.openings.grammar(call.grammar)
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
