//! Holds a model to a format's grammar while it generates.
//!
//! Text is free until a marker opens a call; from there a grammar decides, up to the call's end. A token is sampled
//! first and then looked at: only where it does not fit is the set of all that fit computed, and one of these sampled.
//! What the grammar leaves no choice about is appended without asking the model, in one batch. While a call is open,
//! a way to close it within the remaining tokens is always known: when the model is about to take the last of them,
//! that way is gone, so that no call is ever cut off.

mod compiler;
mod trigger;

use super::Token;
use super::sampler::Sampler;
use crate::format::grammar::{Begins, Grammar, Scope, Unenforced};
use crate::format::{Format, Marker, Payload};
use crate::tool::{Tool, Tools};
use crate::{Error, ErrorKind, Result};
use compiler::{Tokens, grammar_error, id, is_complete, token};
use llguidance::Matcher;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};
use trigger::Trigger;

pub use compiler::Compiler;

/// How far the model is held to the grammar.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Not at all.
    Off,
    /// Calls are held to it; a failure of the constraint itself is told, and the answer goes on without it.
    #[default]
    Auto,
    /// Calls are held to it, and where a call is required there is nothing else; a failure ends the answer.
    Strict,
}

/// Which calls an answer may or must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Calls {
    /// None.
    Forbidden,
    /// Any of the tools.
    Allowed,
    /// At least one, of any of the tools.
    Required,
}

/// What holds for one answer.
#[derive(Debug, Clone)]
pub struct Rules {
    /// How far the model is held to the grammar.
    pub mode: Mode,
    /// Which calls there may or must be.
    pub calls: Calls,
    /// At most this many calls.
    pub max_calls: Option<usize>,
    /// Where a call is required, at most this many tokens before it.
    pub max_preamble: usize,
    /// At most this many tokens of reasoning, if there is a limit.
    pub max_thinking: Option<usize>,
    /// Whether forced tokens are appended without asking the model.
    pub jump: bool,
    /// Whether the prompt has begun reasoning.
    pub thinking: bool,
}

/// Something the caller should know about how the constraint went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// The tokens ran out, and the call was closed on the shortest way that was found.
    ClosedEarly,
    /// Reasoning went on too long and was closed.
    ThinkingClosed,
    /// The constraint failed; the answer went on without it.
    Failed(String),
    /// The tokens left did not suffice for a call that the model began: the answer ends before it.
    NoRoomForCall,
}

impl std::fmt::Display for Notice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Notice::ClosedEarly => {
                f.write_str("the tokens ran out: the call was closed early, with the shortest values that fit")
            }
            Notice::ThinkingClosed => f.write_str("reasoning was closed at its limit (--max-thinking)"),
            Notice::Failed(why) => write!(f, "the grammar failed, and the answer went on without it: {why}"),
            Notice::NoRoomForCall => {
                f.write_str("the answer ends before a call for which the tokens left do not suffice (--max-tokens)")
            }
        }
    }
}

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Ask the model.
    Sample,
    /// Append these, which are all that may come.
    Forced(Vec<Token>),
    /// The answer is over.
    Finished,
}

enum Phase {
    /// Reasoning, this many tokens long.
    Thinking(usize),
    /// Text, this many tokens long.
    Text(usize),
    /// A call or a section of them.
    Call(Box<Open>),
    /// Nothing more may come.
    Over,
    /// Nothing is constrained any more.
    Off,
}

/// A call that is being written.
struct Open {
    matcher: Matcher,
    lark: usize,
    /// Tokens that bring it to its end from here, where they are known.
    closing: Option<Vec<Token>>,
    /// How many tokens were left when a way to the end was last sought in vain.
    sought: usize,
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
    /// From this many remaining tokens on a way to close is kept at hand.
    horizon: usize,
    called: bool,
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
        let ends = match &format.payload {
            // A tag that repeats the key ends differently for each; its beginning is enough.
            Payload::Tagged(tagged) => {
                let end = tagged.value_end.split("{key}").next().unwrap_or_default();
                vec![end.to_owned(), end.trim_start().to_owned()]
            }
            Payload::Named(named) => named.quote.iter().cloned().collect(),
            Payload::Json(_) | Payload::Python { .. } => Vec::new(),
        };
        Compiler::new(vocabulary, &format.texts(), &ends)
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
            // A quarter of the grammar's length in bytes is more tokens than its required parts take.
            horizon: 128 + grammars.iter().map(|grammar| grammar.lark.len() / 4).max().unwrap_or(0),
            grammars,
            bare: is_bare,
            opening: format.opening(None),
            thinking_end: format.reasoning.as_ref().and_then(|r| r.end.text()).unwrap_or_default().to_owned(),
            compiler,
            rules,
            phase,
            called: false,
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
        let matcher = compiler.matcher(&grammar.lark)?;
        let open = Open { matcher, lark: 0, closing: None, sought: usize::MAX };
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
            phase: Phase::Call(Box::new(open)),
            calls: Trigger::new(&[], false)?,
            thinking: Trigger::new(&[], false)?,
            horizon: 128 + grammar.lark.len() / 4,
            grammars: vec![grammar],
            bare: false,
            opening: String::new(),
            thinking_end: String::new(),
            called: false,
            last: Vec::new(),
            notices: Vec::new(),
            mask_times: Vec::new(),
        })
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
        match self.calls.look(text) {
            Some(hit) => {
                let matcher = self.open(hit, text)?;
                match matcher {
                    Some(matcher) => self.enter(hit, matcher, None),
                    None => self.fail("the beginning of the answer is not what the grammar begins with")?,
                }
            }
            None => self.calls.push(text),
        }
        Ok(())
    }

    /// What to do next, with `left` tokens to go.
    ///
    /// # Errors
    /// [`ErrorKind::Constraint`] in strict mode, when the grammar engine fails.
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
                if due {
                    let run = self.begin_call()?;
                    return self.forced(run);
                }
                Ok(Step::Sample)
            }
            Phase::Call(open) => {
                if is_over(&mut open.matcher) {
                    self.leave();
                    return self.next(left);
                }
                if let Some(error) = open.matcher.get_error() {
                    self.fail(&error)?;
                    return Ok(Step::Sample);
                }
                // Where none is found the search is long: it is not repeated for every token.
                if left <= self.horizon && open.closing.is_none() && left <= open.sought / 4 * 3 {
                    open.closing = self.compiler.closing(&open.matcher, left);
                    open.sought = left;
                }
                if open.closing.as_ref().is_some_and(|closing| closing.len() >= left && !closing.is_empty()) {
                    return self.close();
                }
                if self.rules.jump {
                    let run = jump(&mut open.matcher, self.compiler.tokens(), &self.last);
                    if !run.is_empty() {
                        return self.forced(run);
                    }
                }
                Ok(Step::Sample)
            }
        }
    }

    /// How a call is begun, in tokens: its marker and what the grammar forces behind it, tokenised as one text.
    fn begin_call(&mut self) -> Result<Vec<Token>> {
        let opening = self.opening.clone();
        let matcher = match self.calls.look(opening.as_bytes()) {
            Some(hit) => self.open(hit, opening.as_bytes())?,
            None => None,
        };
        let tokens = self.compiler.tokens();
        let Some(mut matcher) = matcher.filter(|_| self.rules.jump) else {
            return Ok(tokens.tokenize(opening.as_bytes()));
        };
        // Of the forced bytes only as many as no token could carry on into what is free.
        let settled: Vec<Token> = matcher.compute_ff_tokens().into_iter().map(token).collect();
        let most = opening.len() + tokens.vocabulary.text(&settled).len();
        let run = up_to(tokens, &[opening.as_bytes(), &matcher.compute_ff_bytes()].concat(), 0, most);
        let reaches = tokens.vocabulary.text(&run).len() >= opening.len();
        Ok(if reaches { run } else { tokens.tokenize(opening.as_bytes()) })
    }

    /// Takes tokens that nobody sampled.
    fn forced(&mut self, run: Vec<Token>) -> Result<Step> {
        for token in &run {
            self.commit(*token)?;
        }
        Ok(Step::Forced(run))
    }

    /// Goes the way to the end.
    fn close(&mut self) -> Result<Step> {
        let Phase::Call(open) = &mut self.phase else { return Ok(Step::Sample) };
        let run = open.closing.take().unwrap_or_default();
        if run.is_empty() {
            // All calls are closed, and another one would not be.
            self.notices.push(Notice::NoRoomForCall);
            self.phase = Phase::Over;
            return Ok(Step::Finished);
        }
        self.notices.push(Notice::ClosedEarly);
        self.forced(run)
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
            if let Phase::Call(open) = &mut self.phase {
                let fits = match ends {
                    true => is_complete(&mut open.matcher),
                    false => open.matcher.validate_tokens(&[id(chosen)]).is_ok_and(|count| count == 1),
                };
                if !fits {
                    match self.masked(sampler, logits)? {
                        Some(token) => chosen = token,
                        // Where the call may end here, the model has left it.
                        None => continue,
                    }
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
            if banned.len() > 64 {
                self.fail("no token fits that the model would write")?;
            }
        }
    }

    fn is_end(&self, token: Token) -> bool {
        let words = &self.compiler.tokens().vocabulary.words;
        usize::try_from(token.0).ok().and_then(|index| words.get(index)).is_some_and(|word| word.end)
    }

    /// Whether the answer may not end yet, although no grammar says so.
    fn must_go_on(&self) -> bool {
        matches!(self.phase, Phase::Text(_) | Phase::Thinking(_)) && self.rules.calls == Calls::Required && !self.called
    }

    /// Samples among the tokens that fit; `None` when the call was left instead, as it may end here.
    fn masked(&mut self, sampler: &mut Sampler, logits: &[f32]) -> Result<Option<Token>> {
        let Phase::Call(open) = &mut self.phase else { return Ok(None) };
        let only_calls = self.rules.mode == Mode::Strict && self.rules.calls == Calls::Required;
        if !only_calls && is_complete(&mut open.matcher) {
            self.leave();
            return Ok(None);
        }
        let started = Instant::now();
        let mask = open.matcher.compute_mask();
        self.mask_times.push(started.elapsed());
        match mask {
            Ok(mask) => Ok(Some(sampler.sample_among(logits, mask.as_slice()))),
            Err(error) => {
                self.fail(&error.to_string())?;
                Ok(None)
            }
        }
    }

    /// Takes a token that the grammar allows, unless what is left does not suffice for what it begins.
    fn accept(&mut self, chosen: Token, left: usize) -> Result<Accepted> {
        match &mut self.phase {
            Phase::Text(_) | Phase::Thinking(_) => {
                let bytes = self.compiler.tokens().vocabulary.bytes(chosen).to_vec();
                let Some(hit) = self.calls.look(&bytes) else {
                    self.commit(chosen)?;
                    return Ok(Accepted::Yes);
                };
                if self.rules.calls == Calls::Forbidden {
                    return Ok(Accepted::No);
                }
                let Some(matcher) = self.open(hit, &bytes)? else { return Ok(Accepted::No) };
                let closing = self.compiler.closing(&matcher, left.saturating_sub(1));
                if closing.is_none() {
                    self.notices.push(Notice::NoRoomForCall);
                    self.phase = Phase::Over;
                    return Ok(Accepted::Instead(Step::Finished));
                }
                self.enter(hit, matcher, closing);
                self.remember(chosen);
                Ok(Accepted::Yes)
            }
            Phase::Call(open) if left <= self.horizon => {
                let mut next = open.matcher.clone();
                if let Err(error) = next.consume_token(id(chosen)) {
                    self.fail(&error.to_string())?;
                    return Ok(Accepted::Yes);
                }
                let known = open.closing.as_deref().unwrap_or_default();
                let rest = if known.first() == Some(&chosen) { &known[1..] } else { known };
                let closing = match leads_out(&next, rest) {
                    true => Some(rest.to_vec()),
                    false if open.closing.is_none() && open.sought != usize::MAX => None,
                    false => self.compiler.closing(&next, left - 1),
                };
                match closing.filter(|closing| closing.len() < left) {
                    Some(closing) => {
                        open.matcher = next;
                        open.closing = Some(closing);
                        self.remember(chosen);
                        Ok(Accepted::Yes)
                    }
                    None if open.closing.is_some() => self.close().map(Accepted::Instead),
                    // No way was known before either: better a call that goes on than none.
                    None => {
                        open.matcher = next;
                        self.remember(chosen);
                        Ok(Accepted::Yes)
                    }
                }
            }
            _ => {
                self.commit(chosen)?;
                Ok(Accepted::Yes)
            }
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
        let bytes = self.compiler.tokens().vocabulary.bytes(token).to_vec();
        match &mut self.phase {
            Phase::Call(open) => {
                open.closing =
                    open.closing.take().filter(|way| way.first() == Some(&token)).map(|way| way[1..].to_vec());
                if let Err(error) = open.matcher.consume_token(id(token)) {
                    self.fail(&error.to_string())?;
                }
            }
            Phase::Thinking(_) | Phase::Text(_) => {
                if let Some(hit) = self.calls.look(&bytes) {
                    match self.open(hit, &bytes)? {
                        Some(matcher) => self.enter(hit, matcher, None),
                        None => self.fail("the text behind a call's marker is not what the grammar begins with")?,
                    }
                    return Ok(());
                }
                self.calls.push(&bytes);
                let hit = self.thinking.look(&bytes);
                self.thinking.push(&bytes);
                match (&mut self.phase, hit.map(|hit| hit.which)) {
                    (Phase::Thinking(_), Some(0)) => {
                        self.phase = Phase::Text(0);
                        self.calls.reset();
                    }
                    (Phase::Text(_), Some(1)) => self.phase = Phase::Thinking(0),
                    (Phase::Thinking(length) | Phase::Text(length), _) => *length += 1,
                    _ => {}
                }
            }
            Phase::Over | Phase::Off => {}
        }
        Ok(())
    }

    /// The matcher of the grammar behind a marker, fed with what these bytes have behind it; `None` where the grammar
    /// does not allow that.
    fn open(&mut self, hit: trigger::Hit, bytes: &[u8]) -> Result<Option<Matcher>> {
        let Some(grammar) = self.grammars.get(hit.which) else { return Ok(None) };
        let lark = grammar.lark.clone();
        let mut matcher = self.compiler.matcher(&lark)?;
        // A call without a marker begins with its own text, which is the marker.
        let mut behind = Vec::new();
        if self.bare {
            behind.extend_from_slice(self.opening.as_bytes());
        }
        behind.extend_from_slice(&bytes[bytes.len().saturating_sub(hit.behind)..]);
        let tokens: Vec<_> = self.compiler.tokens().tokenize(&behind).iter().map(|token| id(*token)).collect();
        let fits = matcher.validate_tokens(&tokens).is_ok_and(|count| count == tokens.len());
        Ok((fits && matcher.consume_tokens(&tokens).is_ok()).then_some(matcher))
    }

    fn enter(&mut self, hit: trigger::Hit, matcher: Matcher, closing: Option<Vec<Token>>) {
        self.called = true;
        self.phase = Phase::Call(Box::new(Open { matcher, lark: hit.which, closing, sought: usize::MAX }));
    }

    /// Behind the calls.
    fn leave(&mut self) {
        let only_calls = self.rules.mode == Mode::Strict && self.rules.calls == Calls::Required;
        self.phase = if only_calls { Phase::Over } else { Phase::Text(0) };
        self.calls.reset();
        self.thinking.reset();
    }

    /// The constraint cannot go on: an error in strict mode, otherwise the end of constraining.
    fn fail(&mut self, why: &str) -> Result<()> {
        if let Phase::Call(open) = &self.phase
            && let Some(grammar) = self.grammars.get(open.lark)
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

/// Whether nothing more can follow.
fn is_over(matcher: &mut Matcher) -> bool {
    matcher.is_stopped() && matcher.stop_reason().is_ok()
}

/// Whether these tokens lead to the end of the grammar.
fn leads_out(matcher: &Matcher, way: &[Token]) -> bool {
    let mut matcher = matcher.clone();
    let ids: Vec<_> = way.iter().map(|token| id(*token)).collect();
    matcher.validate_tokens(&ids).is_ok_and(|count| count == ids.len())
        && matcher.consume_tokens(&ids).is_ok()
        && is_complete(&mut matcher)
}

/// The tokens that the grammar leaves no choice about, as the tokenizer would write them behind the last two tokens.
fn jump(matcher: &mut Matcher, tokens: &Tokens, last: &[Token]) -> Vec<Token> {
    let forced: Vec<Token> = matcher.compute_ff_tokens().into_iter().map(token).collect();
    let bytes = tokens.vocabulary.text(&forced);
    if forced.is_empty() || last.len() < 2 {
        return forced;
    }
    // The engine looked back one token; where two say otherwise, they are right.
    let all = [tokens.vocabulary.text(last), matcher.compute_ff_bytes()].concat();
    let whole = tokens.tokenize(&all);
    if !whole.starts_with(last) {
        return forced;
    }
    let run = up_to(tokens, &all, last.len(), all.len() - matcher.compute_ff_bytes().len() + bytes.len());
    if run.is_empty() { forced } else { run }
}

/// The tokens of a text from the one numbered `from` on, as far as they lie within its first `most` bytes.
fn up_to(tokens: &Tokens, text: &[u8], from: usize, most: usize) -> Vec<Token> {
    let mut length = 0;
    let whole = tokens.tokenize(text);
    let within = whole.iter().take_while(|token| {
        length += tokens.vocabulary.bytes(**token).len();
        length <= most
    });
    within.skip(from).copied().collect()
}
