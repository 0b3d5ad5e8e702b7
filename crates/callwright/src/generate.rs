//! The generation loop: decodes the part of the prompt that is not in the context, then samples until generation ends.

mod draft;
mod probabilities;

use crate::Result;
pub use crate::answer::{End, Generation, Usage};
use crate::constraint::{Constraint, Step};
use crate::decision::{Decided, Decision};
use crate::engine::prompt_cache::PROMPT_BLOCK;
use crate::engine::sampler::{Sampler, Sampling};
use crate::engine::{Engine, Prompt, Token, common};
use draft::Drafter;
pub use probabilities::Probabilities;
pub use probabilities::{Likely, TokenProbability};
use std::collections::VecDeque;
use std::ops::{ControlFlow, Range};
use std::slice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Prompt tokens decoded between two checks of the cancel flag.
pub(crate) const PROMPT_CHUNK: usize = 512;
/// After more pending tokens than this there is no draft: all must fit into one batch.
const DRAFT_BEHIND: usize = 256;
/// Tokens of an answer that have room from the start: a call has fewer.
const FIRST: usize = 128;

/// Bytes that a token of a server's model has, about: to the constraint each byte is a token.
const SERVER_UNITS: usize = 4;

/// Limits of one generation.
#[derive(Debug, Clone, Copy)]
pub struct Limits<'a> {
    /// Maximum number of tokens.
    pub max_tokens: usize,
    /// When set, generation ends before the next token.
    pub cancel: &'a AtomicBool,
    /// The deadline, after which no more tokens are generated: [`End::Late`].
    pub until: Option<Instant>,
}

impl<'a> Limits<'a> {
    /// Limits without a deadline.
    pub fn new(max_tokens: usize, cancel: &'a AtomicBool) -> Limits<'a> {
        Limits { max_tokens, cancel, until: None }
    }

    /// Why generation ends now, if it does.
    fn reached(&self) -> Option<End> {
        let cancelled = self.cancel.load(Ordering::Relaxed).then_some(End::Cancelled);
        cancelled.or_else(|| self.until.filter(|until| *until <= Instant::now()).map(|_| End::Late))
    }
}

/// Generates after `prompt`. Passes each token to `on_token` as it comes, and whether the grammar closes what is open
/// because the tokens run out.
///
/// The longest common prefix of `prompt` and the engine's context is not decoded again. The token that ends the model's
/// turn is not passed on.
///
/// # Errors
/// Those of [`Engine::decode`] and [`Engine::reserve`], and of a strict constraint.
pub fn generate(
    engine: &mut dyn Engine,
    prompt: &[Token],
    sampling: &Sampling,
    limits: Limits<'_>,
    constraint: Option<&mut Constraint<'_>>,
    on_token: &mut dyn FnMut(&[u8], bool) -> ControlFlow<()>,
) -> Result<Generation> {
    let guides = Guides { constraint, ..Guides::default() };
    generate_with(engine, prompt, Sampler::new(*sampling), limits, guides, on_token)
}

/// What has a say in which tokens an answer gets, or looks on.
#[derive(Default)]
pub struct Guides<'g, 'c> {
    /// Holds calls, or the whole answer, to a grammar.
    pub constraint: Option<&'g mut Constraint<'c>>,
    /// Measures how likely the answer begins with a call, and may decide for a call or for text.
    pub decision: Option<&'g mut Decision<'c>>,
    /// Gets the probability of each token; it has no say.
    pub probabilities: Option<&'g Probabilities>,
    /// Whether nothing is drafted, also where no constraint says so.
    pub no_drafts: bool,
}

/// Like [`generate`], with the caller's sampler and guides.
///
/// # Errors
/// Those of [`generate`].
pub fn generate_with(
    engine: &mut dyn Engine,
    prompt: &[Token],
    sampler: Sampler,
    limits: Limits<'_>,
    guides: Guides<'_, '_>,
    on_token: &mut OnToken<'_>,
) -> Result<Generation> {
    read(engine, prompt.into(), sampler, limits, 0, &mut |_, _| ())?.write(guides, on_token)
}

/// Decodes the part of a prompt that is not in the engine's context. There is room for `ahead` tokens that are decoded only to
/// measure. `on_prompt` is called before each batch, with the number of decoded tokens and the total; at the end, also after an
/// error, both are equal.
///
/// # Errors
/// Those of [`generate`].
pub(crate) fn read<'g>(
    engine: &'g mut dyn Engine,
    prompt: Prompt<'_>,
    sampler: Sampler,
    limits: Limits<'g>,
    ahead: usize,
    on_prompt: &mut dyn FnMut(usize, usize),
) -> Result<PromptRead<'g>> {
    let started = Instant::now();
    engine.begin(prompt, sampler.sampling())?;
    let prompt = prompt.tokens;
    let room = engine.context_limit().saturating_sub(prompt.len());
    let limits = Limits { max_tokens: limits.max_tokens.min(room), ..limits };
    reserve(engine, prompt.len(), limits.max_tokens.max(ahead))?;
    // The last prompt token's logits are needed, and the cache does not keep them.
    let cacheable = prompt.len().saturating_sub(1);
    engine.recall(prompt, cacheable);
    engine.truncate(common(engine.cached(), prompt).min(cacheable));
    // A token by itself is computed in another way than among others, which rounds differently, and the last one is decoded by itself.
    if engine.cached().len() + 2 == prompt.len() && !engine.can().truncate && engine.server().is_none() {
        engine.truncate(prompt.len().saturating_sub(3));
    }
    let cached = engine.cached().len();
    let came = decode_prompt(engine, prompt, &limits, on_prompt);
    on_prompt(prompt.len() - cached, prompt.len() - cached);
    let usage = Usage {
        prompt_tokens: prompt.len(),
        cached_tokens: cached,
        prompt_time: started.elapsed(),
        ..Usage::default()
    };
    Ok(PromptRead { engine, sampler, limits, usage, drafts: Drafts::new(prompt), end: came? })
}

/// Decodes the rest of a prompt; why it was not finished, if it was not.
fn decode_prompt(
    engine: &mut dyn Engine,
    prompt: &[Token],
    limits: &Limits<'_>,
    on_prompt: &mut dyn FnMut(usize, usize),
) -> Result<Option<End>> {
    let cached = engine.cached().len();
    for batch in batches(cached..prompt.len(), engine.border()) {
        if let Some(end) = limits.reached() {
            return Ok(Some(end));
        }
        on_prompt(batch.start - cached, prompt.len() - cached);
        engine.decode(&prompt[batch])?;
    }
    Ok(None)
}

/// Divides the tokens of a prompt into batches, of which none has tokens on both sides of the border. The last token, whose logits the answer
/// begins with, is a batch of its own, and the batch before it or the border is not small if that can be avoided: see [`PROMPT_BLOCK`].
fn batches(tokens: Range<usize>, border: usize) -> Vec<Range<usize>> {
    let last = tokens.end.saturating_sub(1).max(tokens.start);
    let (mut first, mut batches) = (tokens.start, Vec::new());
    while first < last {
        let end = if first < border { border.min(last) } else { last };
        let next = match end - first {
            left @ ..=PROMPT_CHUNK => first + left,
            left if left < PROMPT_CHUNK + PROMPT_BLOCK => first + PROMPT_CHUNK - PROMPT_BLOCK,
            _ => first + PROMPT_CHUNK,
        };
        batches.push(first..next);
        first = next;
    }
    batches.extend((last < tokens.end).then_some(last..tokens.end));
    batches
}

/// A prompt that was read, before its answer is written.
pub(crate) struct PromptRead<'g> {
    engine: &'g mut dyn Engine,
    sampler: Sampler,
    limits: Limits<'g>,
    usage: Usage,
    drafts: Drafts,
    /// Why the prompt was not finished, if it was not.
    end: Option<End>,
}

impl PromptRead<'_> {
    /// The engine, with the prompt.
    pub(crate) fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    /// Generates the answer.
    ///
    /// # Errors
    /// Those of [`generate`].
    pub(crate) fn write(self, guides: Guides<'_, '_>, on_token: &mut OnToken<'_>) -> Result<Generation> {
        let PromptRead { engine, sampler, limits, usage, drafts, end } = self;
        let on_server = engine.server().is_some();
        let mut answer = Answer {
            engine,
            sampler: if on_server { Sampler::new(Sampling::default()) } else { sampler },
            limits,
            guides: Guides { probabilities: guides.probabilities.filter(|_| !on_server), ..guides },
            on_server,
            made: Generation {
                tokens: Vec::new(),
                end: End::Stopped,
                end_token: None,
                closed_from: None,
                forced: Vec::new(),
                usage,
            },
            pending: Vec::new(),
            part: Vec::new(),
            passed: 0,
            drafts,
            cut: false,
            measuring: Duration::ZERO,
        };
        match end {
            Some(end) => answer.made.end = end,
            None => answer.write(on_token)?,
        }
        Ok(answer.made)
    }
}

/// Makes room for a prompt and an answer of up to `most` tokens, within the context's limit.
///
/// # Errors
/// Those of [`Engine::reserve`].
pub(crate) fn reserve(engine: &mut dyn Engine, prompt: usize, most: usize) -> Result<()> {
    let most = most.min(engine.context_limit().saturating_sub(prompt));
    engine.reserve(prompt + most.min(FIRST), prompt + most)
}

/// Gets each token of an answer, and whether the grammar closes what is open.
type OnToken<'t> = dyn FnMut(&[u8], bool) -> ControlFlow<()> + 't;

/// An answer while it is generated.
struct Answer<'g, 'c> {
    engine: &'g mut dyn Engine,
    sampler: Sampler,
    /// With no more tokens than there is room for.
    limits: Limits<'g>,
    guides: Guides<'g, 'c>,
    /// Whether a server samples. What comes is sampled already then, and the probabilities are not known.
    on_server: bool,
    made: Generation,
    /// Tokens are decoded only when the model runs again, in one batch with the following forced tokens. At the end they
    /// are not decoded at all; the next turn's prompt contains them.
    pending: Vec<Token>,
    /// Tokens of the engine that are not a whole one of the model yet.
    part: Vec<Token>,
    /// How many of the tokens were passed on.
    passed: usize,
    drafts: Drafts,
    /// Whether the last tokens that the constraint forced were too many.
    cut: bool,
    /// The time that was spent only to measure, which does not belong to the answer.
    measuring: Duration,
}

/// What comes next in an answer.
enum Next {
    /// A token of the model.
    Sampled(Token),
    /// Tokens without a choice.
    Forced(Vec<Token>),
    /// Nothing.
    End(End),
}

impl Answer<'_, '_> {
    /// Generates tokens until something ends the answer.
    fn write(&mut self, on_token: &mut OnToken<'_>) -> Result<()> {
        let started = Instant::now();
        let end = loop {
            let next = self.next()?;
            let (generated, forced) = match &next {
                Next::Sampled(token) => (slice::from_ref(token), false),
                Next::Forced(tokens) => (tokens.as_slice(), true),
                Next::End(end) => break *end,
            };
            if let Some(end) = self.append(generated, forced, on_token) {
                break end;
            }
            let known = self.drafts.confirm(generated);
            if !forced {
                self.made.usage.drafted_tokens += known;
            }
            if known < generated.len() {
                self.drafts.forget(self.engine);
                self.pending.extend_from_slice(&generated[known..]);
            }
        };
        self.made.end = end;
        self.drafts.forget(self.engine);
        if let Some(constraint) = &mut self.guides.constraint
            && end == End::Length
        {
            constraint.out_of_tokens(self.cut);
        }
        if !self.part.is_empty() {
            let _ = self.join(false, on_token);
        }
        let _ = self.pass_on(self.made.tokens.len(), on_token);
        self.made.usage.completion_time = started.elapsed().saturating_sub(self.measuring);
        self.engine.remember(self.made.usage.prompt_time);
        self.count();
        Ok(())
    }

    /// Finds what comes next.
    fn next(&mut self) -> Result<Next> {
        if let Some(end) = self.limits.reached() {
            return Ok(Next::End(end));
        }
        let opening = self.decide()?;
        // To the constraint, a token of a server's model is several.
        let units = if self.on_server { SERVER_UNITS } else { 1 };
        let left = (self.limits.max_tokens - self.made.tokens.len()).saturating_mul(units);
        if left == 0 {
            return Ok(Next::End(End::Length));
        }
        let next = match opening {
            Some(opening) => Next::Forced(opening),
            None => self.sample(left)?,
        };
        match next {
            Next::Forced(mut run) => {
                run.truncate(left);
                self.made.usage.forced_tokens += run.len();
                Ok(Next::Forced(run))
            }
            Next::Sampled(_) if self.on_server => {
                // The reason why nothing came.
                let length = || self.server_end().filter(|end| *end == End::Length);
                Ok(self.limits.reached().or_else(length).map_or(next, Next::End))
            }
            next => Ok(next),
        }
    }

    /// Measures how likely the answer begins with a call, if that is due, and applies what the thresholds decide; returns the
    /// tokens that begin a call where no grammar writes them.
    fn decide(&mut self) -> Result<Option<Vec<Token>>> {
        let Guides { constraint, decision, .. } = &mut self.guides;
        let Some(decision) = decision.as_deref_mut().filter(|decision| decision.is_due()) else { return Ok(None) };
        let began = Instant::now();
        self.drafts.decode(self.engine, &mut self.pending, Vec::new())?;
        let logits = self.drafts.logits(self.engine).to_vec();
        let (decided, moved) = decision.decide(self.engine, &logits)?;
        if moved {
            self.drafts.kept = Some(logits);
        }
        let mut taken = |decided| constraint.as_deref_mut().is_some_and(|constraint| constraint.decide(decided));
        let taken = decided.is_none_or(&mut taken);
        if decision.only_measures() {
            self.measuring += began.elapsed();
        }
        Ok((!taken && decided == Some(Decided::Call)).then(|| decision.opening().to_vec()))
    }

    /// Samples a token as far as the constraint allows, with `left` tokens to go.
    fn sample(&mut self, left: usize) -> Result<Next> {
        let mut step = match &mut self.guides.constraint {
            Some(constraint) => constraint.next(left)?,
            None => Step::Sample,
        };
        if step == Step::Sample {
            let draft = self.draft(left);
            self.drafts.decode(self.engine, &mut self.pending, draft)?;
        }
        let Answer { engine, sampler, drafts, .. } = self;
        let Some(constraint) = &mut self.guides.constraint else {
            return Ok(Next::Sampled(sampler.sample(drafts.logits(&**engine))));
        };
        let mut sampled = None;
        if step == Step::Sample {
            if constraint.holds()
                && let Some(server) = engine.server_mut()
            {
                server.reconsider(&mut |text| constraint.fits(text))?;
            }
            match constraint.sample(sampler, drafts.logits(&**engine), left)? {
                Ok(token) => sampled = Some(token),
                Err(instead) => step = instead,
            }
        }
        if let Step::Instead(dropped, run) = step {
            self.take_back(dropped)?;
            return Ok(Next::Forced(run));
        }
        if constraint.is_closing() {
            self.made.closed_from.get_or_insert(self.made.tokens.len());
        }
        Ok(match (step, sampled) {
            (_, Some(token)) => Next::Sampled(token),
            (Step::Forced(run), None) => {
                self.cut = run.len() > left;
                Next::Forced(run)
            }
            (Step::Finished | Step::Sample | Step::Instead(..), None) => Next::End(End::Stopped),
        })
    }

    /// Drops the last tokens of the answer, which nobody has seen.
    fn take_back(&mut self, count: usize) -> Result<()> {
        let kept = self.made.tokens.len().saturating_sub(count);
        self.made.tokens.truncate(kept);
        self.made.usage.rewritten_tokens += count;
        let kept = self.made.usage.prompt_tokens + kept;
        let decoded = self.engine.cached().len();
        self.pending.truncate(kept.saturating_sub(decoded));
        if decoded > kept {
            let tokens = self.engine.cached()[..kept].to_vec();
            self.engine.truncate(kept);
            // An engine may have dropped more.
            if let Some(rest) = tokens.get(self.engine.cached().len()..).filter(|rest| !rest.is_empty()) {
                self.engine.decode(rest)?;
            }
        }
        self.drafts.kept = None;
        if let Some(probabilities) = self.guides.probabilities {
            probabilities.drop_last(count);
        }
        Ok(())
    }

    /// A draft to decode with the tokens that were written since the model last ran, with `left` tokens to go.
    fn draft(&mut self, left: usize) -> Vec<Token> {
        let Answer { engine, drafts, pending, guides, .. } = self;
        let forbidden =
            guides.no_drafts || guides.constraint.as_ref().is_some_and(|constraint| !constraint.may_draft());
        if forbidden || pending.is_empty() || pending.len() > DRAFT_BEHIND || !engine.can().draft {
            return Vec::new();
        }
        let call = guides.constraint.as_mut().filter(|constraint| constraint.holds());
        let Some(call) = call else { return Vec::new() };
        let mut draft = drafts.drafter.repeat(left - 1);
        draft.truncate(call.allowed(&draft));
        self.made.usage.proposed_tokens += draft.len();
        draft
    }

    /// Adds tokens to the answer; why it ends with them, if it does.
    fn append(&mut self, generated: &[Token], forced: bool, on_token: &mut OnToken<'_>) -> Option<End> {
        self.made.forced.extend(forced.then_some(self.made.tokens.len()..usize::MAX));
        for (index, token) in generated.iter().enumerate() {
            if self.engine.is_end(*token) {
                self.made.end_token = Some(*token);
                return Some(self.server_end().unwrap_or(End::EndOfTurn));
            }
            let Guides { constraint, decision, probabilities, .. } = &mut self.guides;
            if let Some(probabilities) = probabilities {
                probabilities.add(self.engine, *token, (!forced).then(|| self.drafts.logits(self.engine)));
            }
            self.drafts.drafter.push(*token);
            if !forced {
                self.sampler.hold(constraint.as_ref().is_some_and(|constraint| constraint.holds()));
                self.sampler.wrote(*token, self.engine.token_bytes(*token));
            }
            if let Some(decision) = decision {
                decision.wrote(self.engine.token_bytes(*token));
            }
            self.part.push(*token);
            if self.join(forced && index + 1 < generated.len(), on_token).is_break() {
                return Some(End::Stopped);
            }
        }
        if let Some(run) = self.made.forced.last_mut().filter(|_| forced) {
            run.end = self.made.tokens.len();
        }
        None
    }

    /// Passes the last tokens of the engine on, if they are a whole one of the model. `more` follow without a choice.
    fn join(&mut self, more: bool, on_token: &mut OnToken<'_>) -> ControlFlow<()> {
        let whole = match self.engine.server_mut() {
            Some(server) => server.join(&self.part, more),
            None => self.part.last().copied(),
        };
        let Some(whole) = whole else { return ControlFlow::Continue(()) };
        self.part.clear();
        self.made.tokens.push(whole);
        let held_back = self.guides.constraint.as_ref().map_or(0, |constraint| constraint.held_back());
        self.pass_on(self.made.tokens.len().saturating_sub(held_back), on_token)
    }

    /// Passes the tokens up to that one on.
    fn pass_on(&mut self, until: usize, on_token: &mut OnToken<'_>) -> ControlFlow<()> {
        let closed = self.made.closed_from.is_some();
        while let Some(token) = self.made.tokens[..until].get(self.passed) {
            self.passed += 1;
            on_token(self.engine.token_bytes(*token), closed)?;
        }
        ControlFlow::Continue(())
    }

    /// Why a server ended the answer, if the model is on one.
    fn server_end(&self) -> Option<End> {
        self.engine.server()?.ended().0
    }

    /// Counts what was generated.
    fn count(&mut self) {
        let Generation { tokens, forced, usage, .. } = &mut self.made;
        usage.completion_tokens = tokens.len();
        // The answer may have ended inside the last run.
        forced.iter_mut().for_each(|run| run.end = run.end.min(tokens.len()));
        forced.retain(|run| !run.is_empty());
        if let Some(server) = self.engine.server() {
            let (_, Usage { prompt_tokens, cached_tokens, completion_tokens, .. }) = server.ended();
            usage.prompt_tokens = if prompt_tokens == 0 { usage.prompt_tokens } else { prompt_tokens };
            (usage.cached_tokens, usage.completion_tokens) = (cached_tokens, completion_tokens);
            usage.forced_tokens = forced.iter().map(Range::len).sum();
        }
    }
}

/// Tokens decoded ahead of the answer.
struct Drafts {
    drafter: Drafter,
    /// Tokens in the engine's context that the answer has not reached yet.
    ahead: VecDeque<Token>,
    /// The row of the last batch that has the logits after the answer.
    row: usize,
    /// These logits, while the engine's are those after something that was decoded to measure.
    kept: Option<Vec<f32>>,
    proposed: usize,
}

impl Drafts {
    fn new(prompt: &[Token]) -> Drafts {
        Drafts { drafter: Drafter::new(prompt), ahead: VecDeque::new(), row: 0, kept: None, proposed: 0 }
    }

    /// The logits after the answer so far.
    fn logits<'e>(&'e self, engine: &'e dyn Engine) -> &'e [f32] {
        self.kept.as_deref().unwrap_or_else(|| engine.logits(self.row))
    }

    /// Number of the answer's new tokens that were drafted, and are thus decoded.
    fn confirm(&mut self, generated: &[Token]) -> usize {
        let known = generated.iter().zip(&self.ahead).take_while(|(token, drafted)| token == drafted).count();
        self.ahead.drain(..known);
        self.row += known;
        known
    }

    /// Removes rejected draft tokens from the engine's context.
    fn forget(&mut self, engine: &mut dyn Engine) {
        self.drafter.learn(self.proposed, self.proposed - self.ahead.len());
        self.proposed = 0;
        if !self.ahead.is_empty() {
            engine.truncate(engine.cached().len() - self.ahead.len());
            self.ahead.clear();
        }
    }

    /// Decodes the tokens written since the model last ran, and a draft of following ones.
    fn decode(&mut self, engine: &mut dyn Engine, pending: &mut Vec<Token>, draft: Vec<Token>) -> Result<()> {
        if pending.is_empty() {
            return Ok(());
        }
        (self.kept, self.row) = (None, 0);
        if draft.is_empty() {
            engine.decode(pending)?;
        } else {
            // No logits are needed after tokens where nothing is sampled.
            engine.decode_all(&[pending.as_slice(), &draft].concat(), pending.len() - 1)?;
            self.proposed = draft.len();
            self.ahead = draft.into();
        }
        pending.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_token_of_a_prompt_is_a_batch_after_a_large_one() {
        assert_eq!(batches(0..514, 0), [0..448, 448..513, 513..514]);
        assert_eq!(batches(3..700, 0), [3..515, 515..699, 699..700]);
        assert_eq!(batches(8..10, 0), [8..9, 9..10]);
        assert_eq!(batches(0..1, 0), std::slice::from_ref(&(0..1)));
        assert!(batches(0..0, 0).is_empty());
        assert_eq!(batches(0..600, 530), [0..448, 448..530, 530..599, 599..600]);
        assert_eq!(batches(90..200, 199), [90..199, 199..200]);
    }
}
