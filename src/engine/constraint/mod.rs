//! Holds a model to a format's grammar while it generates.
//!
//! Text is free until a marker opens a call; from there a grammar decides, up to the call's end. A token is sampled
//! first and then looked at: only where it does not fit is the set of all that fit computed, and one of these sampled.
//! What the grammar leaves no choice about is appended without asking the model, in one batch. While a call is open,
//! a way to close it within the remaining tokens is always known: when the model is about to take the last of them,
//! that way is gone, so that no call is ever cut off.

mod call;
mod closing;
mod compiler;
mod forced;
mod rules;
mod trigger;

use super::Token;
use super::sampler::Sampler;
use crate::format::grammar::{Begins, Grammar, Scope, Unenforced};
use crate::format::{Format, Marker, Payload};
use crate::tool::{Tool, Tools};
use crate::{Error, ErrorKind, Result};
use call::{Call, Taken};
use compiler::{grammar_error, id, token};
use forced::{jump, up_to};
use std::time::{Duration, Instant};
use trigger::{Hit, Trigger};

pub use closing::Ends;
pub use compiler::Compiler;
pub use rules::{Calls, Mode, Notice, Rules, Step};

/// How many tokens are tried that the grammar allows, and for which there is no room any more, before the call is closed.
const TRIES: usize = 4;

enum Phase {
    /// Reasoning, this many tokens long.
    Thinking(usize),
    /// Text, this many tokens long.
    Text(usize),
    /// A call or a section of them.
    Call(Box<Call>),
    /// Nothing more may come.
    Over,
    /// Nothing is constrained any more.
    Off,
}

/// Constrains one answer.
pub struct Constraint<'c> {
    compiler: &'c mut Compiler,
    rules: Rules,
    phase: Phase,
    calls: Trigger,
    thinking: Trigger,
    /// The grammars behind the markers that `calls` looks for, in their order.
    grammars: Vec<Grammar>,
    /// Whether calls are begun by their own text, not by a marker.
    bare: bool,
    opening: String,
    thinking_end: String,
    called: bool,
    /// Whether the prompt begins the call.
    primed: bool,
    draft: bool,
    /// The last two tokens, for tokenising what follows.
    last: Vec<Token>,
    notices: Vec<Notice>,
    mask_times: Vec<Duration>,
}

impl Compiler {
    /// The compiler for a format's calls.
    ///
    /// # Errors
    /// Those of [`Compiler::new`].
    pub fn for_format(vocabulary: super::vocabulary::Vocabulary, format: &Format) -> Result<Compiler> {
        let values = match &format.payload {
            // A tag that repeats the key ends differently for each; its beginning is enough.
            Payload::Tagged(tagged) => {
                let end = tagged.value_end.split("{key}").next().unwrap_or_default();
                vec![end.to_owned(), end.trim_start().to_owned()]
            }
            Payload::Named(named) => named.quote.iter().cloned().collect(),
            Payload::Json(_) | Payload::Python { .. } => Vec::new(),
        };
        let calls = format.section.iter().map(|section| &section.end).chain(&format.end).filter_map(Marker::text);
        let ends = Ends { values, calls: calls.map(str::to_owned).collect() };
        Compiler::new(vocabulary, &format.texts(), ends)
    }
}

impl<'c> Constraint<'c> {
    /// A constraint at the beginning of an answer, which may call `tools`.
    ///
    /// # Errors
    /// [`ErrorKind::Tools`] when no arguments fit a tool, [`ErrorKind::Format`] when the format cannot be written,
    /// [`ErrorKind::Constraint`] when the grammar is refused.
    pub fn new(
        compiler: &'c mut Compiler,
        format: &Format,
        tools: &Tools,
        only: Option<&str>,
        rules: Rules,
    ) -> Result<Constraint<'c>> {
        let tools: Vec<&Tool> = tools.iter().filter(|tool| only.is_none_or(|only| tool.name == only)).collect();
        let bare = Marker::Literal(format.opening(None));
        let markers: Vec<(&Marker, Begins)> = match (&format.section, &format.start) {
            (Some(section), Some(start)) => vec![(&section.start, Begins::Section), (start, Begins::Call)],
            (Some(section), None) => vec![(&section.start, Begins::Section)],
            (None, Some(start)) => vec![(start, Begins::Call)],
            (None, None) => vec![(&bare, Begins::Call)],
        };
        let only_calls = rules.calls == Calls::Required && rules.mode == Mode::Strict;
        let build = |check: bool| -> Result<Vec<Grammar>> {
            let scopes =
                markers.iter().map(|(_, begins)| Scope { begins: *begins, max_calls: rules.max_calls, only_calls });
            scopes.map(|scope| format.build_grammar(&tools, scope, check)).collect()
        };
        let mut grammars = Vec::new();
        if rules.calls != Calls::Forbidden {
            grammars = build(false)?;
            let compiled = grammars.first().map_or(Ok(()), |first| compiler.matcher(&first.lark).map(|_| ()));
            if compiled.is_err() {
                grammars = build(true)?;
                grammars.first().map_or(Ok(()), |first| compiler.matcher(&first.lark).map(|_| ()))?;
            }
        }
        let is_bare = format.start.is_none() && format.section.is_none();
        let thinking_markers: Vec<&Marker> =
            format.reasoning.iter().flat_map(|around| [&around.end, &around.start]).collect();
        let calls = Trigger::new(&markers.iter().map(|(marker, _)| *marker).collect::<Vec<_>>(), is_bare)?;
        let phase = if rules.thinking { Phase::Thinking(0) } else { Phase::Text(0) };
        Ok(Constraint {
            calls,
            thinking: Trigger::new(&thinking_markers, false)?,
            grammars,
            bare: is_bare,
            opening: format.opening(None),
            thinking_end: format.reasoning.as_ref().and_then(|r| r.end.text()).unwrap_or_default().to_owned(),
            compiler,
            rules,
            phase,
            called: false,
            primed: false,
            draft: true,
            last: Vec::new(),
            notices: Vec::new(),
            mask_times: Vec::new(),
        })
    }

    /// A constraint that holds the whole answer to one grammar.
    ///
    /// # Errors
    /// [`ErrorKind::Constraint`] when the grammar is refused.
    pub fn whole(compiler: &'c mut Compiler, grammar: Grammar, jump: bool) -> Result<Constraint<'c>> {
        let begun = compiler.begin(&grammar.lark)?;
        let Some(call) = Call::begin(begun, 0, compiler.tokens(), b"") else {
            return Err(grammar_error("nothing fits it"));
        };
        Ok(Constraint {
            compiler,
            rules: Rules {
                mode: Mode::Strict,
                calls: Calls::Required,
                max_calls: None,
                max_preamble: 0,
                max_thinking: None,
                jump,
                thinking: false,
            },
            phase: Phase::Call(Box::new(call)),
            calls: Trigger::new(&[], false)?,
            thinking: Trigger::new(&[], false)?,
            grammars: vec![grammar],
            bare: false,
            opening: String::new(),
            thinking_end: String::new(),
            called: false,
            primed: true,
            draft: true,
            last: Vec::new(),
            notices: Vec::new(),
            mask_times: Vec::new(),
        })
    }

    /// Whether text that was written before may be proposed as a call's continuation, which it is by default.
    ///
    /// It changes no result, only how often the model is asked.
    #[must_use]
    pub fn drafting(mut self, draft: bool) -> Constraint<'c> {
        self.draft = draft;
        self
    }

    /// What of the tools' schemas is left to be checked after parsing.
    pub fn unenforced(&self) -> &[Unenforced] {
        self.grammars.first().map_or(&[], |grammar| &grammar.unenforced)
    }

    /// What the caller should know of how it went.
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }

    /// How long each mask took that had to be computed.
    pub fn mask_times(&self) -> &[Duration] {
        &self.mask_times
    }

    /// Takes the beginning of the answer that is already in the prompt.
    ///
    /// # Errors
    /// [`ErrorKind::Constraint`] in strict mode, when the grammar does not allow it.
    pub fn prime(&mut self, text: &[u8]) -> Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        self.primed = true;
        self.read(text)
    }

    /// What to do next, with `left` tokens to go.
    ///
    /// # Errors
    /// [`ErrorKind::Constraint`] in strict mode, when the grammar engine fails; in every mode when the prompt begins a
    /// call for which the tokens do not suffice.
    pub fn next(&mut self, left: usize) -> Result<Step> {
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
                    let shortest = call.way(tokens, &self.last).map_or(0, |way| way.len());
                    if shortest > left {
                        let message =
                            format!("the {left} tokens left are not enough for a call, which takes {shortest}");
                        return Err(Error::new(ErrorKind::Constraint, message).hint("raise --max-tokens or --ctx"));
                    }
                }
                if call.is_due(left, tokens, &self.last) {
                    return self.close();
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

    /// Begins a call: its marker and what the grammar forces behind it, tokenised as one text.
    fn begin_call(&mut self, left: usize) -> Result<Step> {
        let opening = self.opening.clone();
        let call = match self.calls.look(opening.as_bytes()) {
            Some(hit) => self.open(hit, opening.as_bytes())?,
            None => None,
        };
        let tokens = self.compiler.tokens();
        let mut run = tokens.tokenize(opening.as_bytes());
        if let Some(mut call) = call {
            if call.way(tokens, &run).is_some_and(|way| run.len() + way.len() > left) {
                return Ok(self.no_room());
            }
            if self.rules.jump {
                // Of the forced bytes only as many as no token could carry on into what is free.
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

    /// Takes tokens that nobody sampled.
    fn forced(&mut self, run: Vec<Token>) -> Result<Step> {
        for token in &run {
            self.commit(*token)?;
        }
        Ok(Step::Forced(run))
    }

    /// Ends the answer before a call.
    fn no_room(&mut self) -> Step {
        self.notices.push(Notice::NoRoomForCall);
        self.phase = Phase::Over;
        Step::Finished
    }

    /// Goes the way to the end.
    fn close(&mut self) -> Result<Step> {
        let Phase::Call(call) = &self.phase else { return Ok(Step::Sample) };
        match call.way(self.compiler.tokens(), &self.last) {
            Some(run) if !run.is_empty() => {
                self.notices.push(Notice::ClosedEarly);
                self.forced(run)
            }
            // All calls are closed, and another one would not be.
            _ => Ok(self.no_room()),
        }
    }

    /// Samples a token that fits, with `left` tokens to go, and takes it; where none fits in the tokens left, what to
    /// do instead.
    ///
    /// # Errors
    /// [`ErrorKind::Constraint`] in strict mode, when the grammar engine fails.
    pub fn sample(
        &mut self,
        sampler: &mut Sampler,
        logits: &[f32],
        left: usize,
    ) -> Result<std::result::Result<Token, Step>> {
        let mut banned: Vec<Token> = Vec::new();
        loop {
            let mut chosen =
                if banned.is_empty() { sampler.sample(logits) } else { sampler.sample_without(logits, &banned) };
            let ends = self.is_end(chosen);
            if let Phase::Call(call) = &mut self.phase
                && (banned.contains(&chosen) || !call.fits(chosen, ends))
            {
                match self.masked(sampler, logits, &banned)? {
                    Some(Ok(token)) => chosen = token,
                    Some(Err(instead)) => return Ok(Err(instead)),
                    // Where the call may end here, the model has left it.
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
                return self.close().map(Err);
            }
            if banned.len() > 64 {
                self.fail("no token fits that the model would write")?;
            }
        }
    }

    /// Takes note that the tokens have run out, and whether some that were forced are `missing`.
    pub(super) fn out_of_tokens(&mut self, missing: bool) {
        if let Phase::Call(call) = &mut self.phase
            && (missing || !call.may_end())
        {
            self.notices.push(Notice::CutOff);
        }
    }

    /// How much of a draft the grammar allows where a call is open; nothing elsewhere.
    pub(super) fn allowed(&mut self, draft: &[Token]) -> usize {
        match &mut self.phase {
            Phase::Call(call) if self.draft => {
                let ids: Vec<_> = draft.iter().map(|token| id(*token)).collect();
                call.matcher.validate_tokens(&ids).unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// Whether what comes next may be drafted.
    pub(super) fn may_draft(&self) -> bool {
        self.draft && matches!(self.phase, Phase::Call(_))
    }

    fn is_end(&self, token: Token) -> bool {
        let words = &self.compiler.tokens().vocabulary.words;
        usize::try_from(token.0).ok().and_then(|index| words.get(index)).is_some_and(|word| word.end)
    }

    /// Whether the answer may not end yet, although no grammar says so.
    fn must_go_on(&self) -> bool {
        matches!(self.phase, Phase::Text(_) | Phase::Thinking(_)) && self.rules.calls == Calls::Required && !self.called
    }

    /// Whether calls are all there is.
    fn only_calls(&self) -> bool {
        self.rules.mode == Mode::Strict && self.rules.calls == Calls::Required
    }

    /// Samples among the tokens that fit, or says what to do where none is left; `None` when the call was left instead,
    /// as it may end here.
    fn masked(
        &mut self,
        sampler: &mut Sampler,
        logits: &[f32],
        banned: &[Token],
    ) -> Result<Option<std::result::Result<Token, Step>>> {
        let only_calls = self.only_calls();
        let Phase::Call(call) = &mut self.phase else { return Ok(None) };
        if !only_calls && call.may_end() {
            self.leave();
            return Ok(None);
        }
        let started = Instant::now();
        let mask = call.matcher.compute_mask();
        self.mask_times.push(started.elapsed());
        match mask {
            Ok(mut mask) => {
                for token in banned {
                    mask.disallow_token(id(*token));
                }
                if mask.is_zero() {
                    return self.close().map(|instead| Some(Err(instead)));
                }
                Ok(Some(Ok(sampler.sample_among(logits, mask.as_slice()))))
            }
            Err(error) => {
                self.fail(&error.to_string())?;
                Ok(None)
            }
        }
    }

    /// Takes a token that the grammar allows, unless what is left does not suffice for what it begins.
    fn accept(&mut self, chosen: Token, left: usize) -> Result<Accepted> {
        let tokens = self.compiler.tokens();
        match &mut self.phase {
            Phase::Text(_) | Phase::Thinking(_) => {
                let Some(hit) = self.calls.look(tokens.vocabulary.bytes(chosen)) else {
                    self.commit(chosen)?;
                    return Ok(Accepted::Yes);
                };
                if self.rules.calls == Calls::Forbidden {
                    return Ok(Accepted::No);
                }
                let bytes = tokens.vocabulary.bytes(chosen).to_vec();
                let Some(call) = self.open(hit, &bytes)? else { return Ok(Accepted::No) };
                if call.way(self.compiler.tokens(), &[chosen]).is_some_and(|way| way.len() >= left) {
                    return Ok(Accepted::Instead(self.no_room()));
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
                Ok(Taken::NoRoom) => Ok(Accepted::No),
                Err(error) => {
                    self.fail(&error)?;
                    Ok(Accepted::Yes)
                }
            },
            Phase::Over | Phase::Off => Ok(Accepted::Yes),
        }
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
                        self.phase = Phase::Text(0);
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

    /// Reads text in which a call may begin.
    fn read(&mut self, text: &[u8]) -> Result<()> {
        let Some(hit) = self.calls.look(text) else {
            self.calls.push(text);
            return Ok(());
        };
        match self.open(hit, text)? {
            Some(call) => self.enter(call),
            None => self.fail("the text behind a call's marker is not what the grammar begins with")?,
        }
        Ok(())
    }

    /// The call behind a marker, gone on with what these bytes have behind it; `None` where the grammar does not allow
    /// that.
    fn open(&mut self, hit: Hit, bytes: &[u8]) -> Result<Option<Call>> {
        let Some(grammar) = self.grammars.get(hit.which) else { return Ok(None) };
        let begun = self.compiler.begin(&grammar.lark)?;
        // A call without a marker begins with its own text, which is the marker.
        let mut behind = Vec::new();
        if self.bare {
            behind.extend_from_slice(self.opening.as_bytes());
        }
        behind.extend_from_slice(&bytes[bytes.len().saturating_sub(hit.behind)..]);
        Ok(Call::begin(begun, hit.which, self.compiler.tokens(), &behind))
    }

    fn enter(&mut self, call: Call) {
        self.called = true;
        self.phase = Phase::Call(Box::new(call));
    }

    /// Behind the calls.
    fn leave(&mut self) {
        self.phase = if self.only_calls() { Phase::Over } else { Phase::Text(0) };
        self.calls.reset();
        self.thinking.reset();
    }

    /// The constraint cannot go on: an error in strict mode, otherwise the end of constraining.
    fn fail(&mut self, why: &str) -> Result<()> {
        if let Phase::Call(call) = &self.phase
            && let Some(grammar) = self.grammars.get(call.grammar)
        {
            self.compiler.forget(&grammar.lark);
        }
        self.phase = Phase::Off;
        let error = grammar_error(why);
        if self.rules.mode == Mode::Strict {
            return Err(Error::new(ErrorKind::Constraint, format!("while generating: {}", error.message())));
        }
        self.notices.push(Notice::Failed(error.message().to_owned()));
        Ok(())
    }
}

enum Accepted {
    Yes,
    No,
    Instead(Step),
}
