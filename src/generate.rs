//! The generation loop: decodes the part of the prompt that is not in the context, then samples until generation ends.

mod draft;
mod probabilities;

use crate::Result;
use crate::constraint::{Constraint, Step};
use crate::decision::{Decided, Decision, batches};
use crate::engine::sampler::{Sampler, Sampling};
use crate::engine::{Engine, Token, common};
use draft::Drafter;
pub(crate) use probabilities::Probabilities;
pub use probabilities::{Likely, TokenProbability};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::ops::{AddAssign, ControlFlow, Range};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Prompt tokens decoded between two checks of the cancel flag.
pub(crate) const PROMPT_CHUNK: usize = 512;
/// After more pending tokens than this there is no draft: all must fit into one batch.
const DRAFT_BEHIND: usize = 256;

/// Bytes that a token of a server's model has, about: to the constraint each byte is a token.
const SERVER_UNITS: usize = 4;

/// Why generation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum End {
    /// The model ended its turn.
    EndOfTurn,
    /// The token limit, or the end of the context.
    Length,
    /// The caller stopped it.
    Stopped,
    /// The deadline has passed.
    Late,
    /// The cancel flag was raised.
    Cancelled,
}

/// The result of one generation.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Generation {
    /// The tokens generated, without the one that ended the turn.
    pub tokens: Vec<Token>,
    /// Why generation ended.
    pub end: End,
    /// The token that ended the turn, if one did.
    pub end_token: Option<Token>,
    /// The first token that the grammar wrote to close what was open, because the tokens ran out.
    pub closed_from: Option<usize>,
    /// Which of the tokens were forced.
    pub forced: Vec<Range<usize>>,
    /// Tokens and times.
    pub usage: Usage,
}

/// Tokens and times of one generation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Prompt tokens that were already in the KV cache.
    pub cached_tokens: usize,
    /// Tokens generated, without the one that ended the turn.
    pub completion_tokens: usize,
    /// Generated tokens that a grammar forced, without running the model.
    pub forced_tokens: usize,
    /// Generated tokens that were decoded in advance, as a draft from earlier text.
    pub drafted_tokens: usize,
    /// All tokens decoded as a draft, whether or not the model then wrote them.
    pub proposed_tokens: usize,
    /// What the answer cost, if models.toml has the server's prices, in their currency.
    #[serde(skip_serializing_if = "is_free")]
    pub cost: f64,
    /// Time until the prompt was decoded.
    #[serde(rename = "prompt_seconds", serialize_with = "seconds")]
    pub prompt_time: Duration,
    /// Time for generating.
    #[serde(rename = "completion_seconds", serialize_with = "seconds")]
    pub completion_time: Duration,
}

impl AddAssign for Usage {
    fn add_assign(&mut self, more: Usage) {
        self.prompt_tokens += more.prompt_tokens;
        self.cached_tokens += more.cached_tokens;
        self.completion_tokens += more.completion_tokens;
        self.forced_tokens += more.forced_tokens;
        self.drafted_tokens += more.drafted_tokens;
        self.proposed_tokens += more.proposed_tokens;
        self.cost += more.cost;
        self.prompt_time += more.prompt_time;
        self.completion_time += more.completion_time;
    }
}

pub(crate) fn is_free(cost: &f64) -> bool {
    *cost == 0.0
}

fn seconds<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    // The clock is not more exact than microseconds.
    serializer.serialize_f64(duration.as_micros() as f64 / 1e6)
}

/// Limits of one generation.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
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
    generate_with(engine, prompt, Sampler::new(*sampling), limits, guides, &mut |_, _| (), on_token)
}

/// What has a say in which tokens an answer gets, or looks on.
#[derive(Default)]
pub(crate) struct Guides<'g, 'c> {
    /// Holds calls, or the whole answer, to a grammar.
    pub constraint: Option<&'g mut Constraint<'c>>,
    /// Measures how likely the answer begins with a call, and may decide for a call or for text.
    pub decision: Option<&'g mut Decision<'c>>,
    /// Gets the probability of each token; it has no say.
    pub probabilities: Option<&'g Probabilities>,
}

/// Like [`generate`], with the caller's sampler and guides, and with `on_prompt` called before each batch of the prompt with the
/// number of decoded tokens and the total. At the end, also after an error, both numbers are equal.
///
/// # Errors
/// Those of [`generate`].
pub(crate) fn generate_with(
    engine: &mut dyn Engine,
    prompt: &[Token],
    mut sampler: Sampler,
    limits: Limits<'_>,
    guides: Guides<'_, '_>,
    on_prompt: &mut dyn FnMut(usize, usize),
    on_token: &mut dyn FnMut(&[u8], bool) -> ControlFlow<()>,
) -> Result<Generation> {
    let Guides { mut constraint, mut decision, probabilities } = guides;
    // What a server does not send is not known.
    let probabilities = probabilities.filter(|_| !engine.samples());
    let units = if engine.samples() { SERVER_UNITS } else { 1 };
    let started = Instant::now();
    let mut tokens = Vec::new();
    let mut usage = Usage { prompt_tokens: prompt.len(), ..Usage::default() };
    let room = engine.context_limit().saturating_sub(prompt.len());
    let max_tokens = limits.max_tokens.min(room);
    engine.begin(prompt, sampler.sampling())?;
    if engine.samples() {
        // What comes is sampled already.
        sampler = Sampler::new(Sampling::default());
    }
    let ahead = decision.as_ref().map_or(0, |decision| decision.reserve().min(room));
    engine.reserve(prompt.len() + max_tokens.max(ahead))?;

    let mut question = decision.as_deref_mut().and_then(Decision::question);
    // The last prompt token's logits are needed, and the question's, and the cache does not keep them.
    let cacheable = question.as_ref().map_or(prompt.len().saturating_sub(1), |question| question.cacheable());
    engine.recall(prompt, cacheable);
    engine.truncate(common(engine.cached(), prompt).min(cacheable));
    usage.cached_tokens = engine.cached().len();

    let ended = || {
        let cancelled = limits.cancel.load(Ordering::Relaxed).then_some(End::Cancelled);
        cancelled.or_else(|| limits.until.filter(|until| *until <= Instant::now()).map(|_| End::Late))
    };
    let (cached, unread) = (usage.cached_tokens, prompt.len() - usage.cached_tokens);
    let mut read = || {
        let nowhere = 0..0;
        let batches = match &question {
            Some(question) => question.batches(cached, prompt.len(), PROMPT_CHUNK),
            None => batches(cached, prompt.len(), PROMPT_CHUNK, &nowhere),
        };
        for batch in batches {
            if let Some(end) = ended() {
                return Ok(Some(end));
            }
            on_prompt(batch.tokens.start - cached, unread);
            match &mut question {
                Some(question) => question.decode(engine, prompt, batch)?,
                None => engine.decode(&prompt[batch.tokens])?,
            }
        }
        Ok(None)
    };
    let came = read();
    on_prompt(unread, unread);
    usage.prompt_time = started.elapsed();
    if let Some(end) = came? {
        return Ok(Generation { tokens, end, end_token: None, closed_from: None, forced: Vec::new(), usage });
    }

    let started = Instant::now();
    let mut generated = Vec::new();
    // Tokens are decoded only when the model runs again, in one batch with the following forced tokens. At the end they
    // are not decoded at all; the next turn's prompt contains them.
    let mut pending = Vec::new();
    let mut end_token = None;
    let mut cut = false;
    let mut closed_from = None;
    let mut runs: Vec<Range<usize>> = Vec::new();
    // Tokens of the engine that are not a whole one of the model yet.
    let mut part = Vec::new();
    let mut drafts = Drafts::new(prompt);
    // The time that was spent only to measure, which does not belong to the answer.
    let mut measuring = Duration::ZERO;
    let end = 'answer: loop {
        if let Some(end) = ended() {
            break end;
        }
        let mut opening = None;
        if let Some(decision) = decision.as_deref_mut().filter(|decision| decision.is_due()) {
            let began = Instant::now();
            opening = decide(decision, engine, constraint.as_deref_mut(), &mut drafts, &mut pending)?;
            measuring += if decision.only_measures() { began.elapsed() } else { Duration::ZERO };
        }
        let left = (max_tokens - tokens.len()).saturating_mul(units);
        if left == 0 {
            break End::Length;
        }
        generated.clear();
        let mut forced = false;
        match &mut constraint {
            _ if opening.is_some() => {
                generated.extend(opening.into_iter().flatten().take(left));
                usage.forced_tokens += generated.len();
                forced = true;
            }
            None => {
                drafts.decode(engine, &mut pending, Vec::new())?;
                generated.push(sampler.sample(drafts.logits(engine)));
            }
            Some(constraint) => {
                let step = match constraint.next(left)? {
                    Step::Sample => {
                        if !pending.is_empty() {
                            let mut draft = Vec::new();
                            if constraint.may_draft() && engine.can_draft() && pending.len() <= DRAFT_BEHIND {
                                draft = drafts.drafter.propose(left - 1);
                                draft.truncate(constraint.allowed(&draft));
                            }
                            usage.proposed_tokens += draft.len();
                            drafts.decode(engine, &mut pending, draft)?;
                        }
                        if constraint.holds() {
                            engine.reconsider(&mut |text| constraint.fits(text))?;
                        }
                        match constraint.sample(&mut sampler, drafts.logits(engine), left)? {
                            Ok(token) => {
                                generated.push(token);
                                Step::Sample
                            }
                            Err(instead) => instead,
                        }
                    }
                    step => step,
                };
                if constraint.is_closing() {
                    closed_from.get_or_insert(tokens.len());
                }
                match step {
                    Step::Sample => {}
                    Step::Finished => break End::Stopped,
                    Step::Forced(run) => {
                        cut = run.len() > left;
                        generated.extend(run.into_iter().take(left));
                        usage.forced_tokens += generated.len();
                        forced = true;
                    }
                }
            }
        }
        if engine.samples() && !forced {
            // The reason why nothing came.
            let length = || engine.ended().0.filter(|end| *end == End::Length);
            if let Some(end) = ended().or_else(length) {
                break end;
            }
        }
        runs.extend(forced.then_some(tokens.len()..usize::MAX));
        for (index, token) in generated.iter().enumerate() {
            if engine.is_end(*token) {
                end_token = Some(*token);
                break 'answer engine.ended().0.unwrap_or(End::EndOfTurn);
            }
            if let Some(probabilities) = probabilities {
                probabilities.add(engine, *token, (!forced).then(|| drafts.logits(engine)));
            }
            drafts.drafter.push(*token);
            if !forced {
                sampler.hold(constraint.as_ref().is_some_and(|constraint| constraint.holds()));
                sampler.wrote(*token, engine.token_bytes(*token));
            }
            if let Some(decision) = decision.as_deref_mut() {
                decision.wrote(engine.token_bytes(*token));
            }
            part.push(*token);
            let Some(whole) = engine.join(&part, forced && index + 1 < generated.len()) else { continue };
            part.clear();
            tokens.push(whole);
            if on_token(engine.token_bytes(whole), closed_from.is_some()).is_break() {
                break 'answer End::Stopped;
            }
        }
        if let Some(run) = runs.last_mut().filter(|_| forced) {
            run.end = tokens.len();
        }
        let known = drafts.confirm(&generated);
        if !forced {
            usage.drafted_tokens += known;
        }
        if known < generated.len() {
            drafts.forget(engine);
            pending.extend_from_slice(&generated[known..]);
        }
    };
    drafts.forget(engine);
    if let Some(constraint) = &mut constraint
        && end == End::Length
    {
        constraint.out_of_tokens(cut);
    }
    if let Some(whole) = (!part.is_empty()).then(|| engine.join(&part, false)).flatten() {
        tokens.push(whole);
        let _ = on_token(engine.token_bytes(whole), closed_from.is_some());
    }
    usage.completion_time = started.elapsed().saturating_sub(measuring);
    usage.completion_tokens = tokens.len();
    engine.remember(usage.prompt_time);
    // The answer may have ended inside the last run.
    runs.iter_mut().for_each(|run| run.end = run.end.min(tokens.len()));
    runs.retain(|run| !run.is_empty());
    if engine.samples() {
        let (_, counted) = engine.ended();
        let Usage { prompt_tokens, cached_tokens, completion_tokens, .. } = counted;
        usage.prompt_tokens = if prompt_tokens == 0 { usage.prompt_tokens } else { prompt_tokens };
        (usage.cached_tokens, usage.completion_tokens) = (cached_tokens, completion_tokens);
        usage.forced_tokens = runs.iter().map(Range::len).sum();
    }
    Ok(Generation { tokens, end, end_token, closed_from, forced: runs, usage })
}

/// Measures how likely the answer begins with a call, and applies what the thresholds decide; returns the tokens that
/// begin a call where no grammar writes them.
fn decide(
    decision: &mut Decision<'_>,
    engine: &mut dyn Engine,
    constraint: Option<&mut Constraint<'_>>,
    drafts: &mut Drafts,
    pending: &mut Vec<Token>,
) -> Result<Option<Vec<Token>>> {
    drafts.decode(engine, pending, Vec::new())?;
    let logits = drafts.logits(engine).to_vec();
    let (decided, moved) = decision.decide(engine, &logits)?;
    if moved {
        drafts.kept = Some(logits);
    }
    let taken = decided.is_none_or(|decided| constraint.is_some_and(|constraint| constraint.decide(decided)));
    Ok((!taken && decided == Some(Decided::Call)).then(|| decision.opening().to_vec()))
}

/// Tokens decoded ahead of the answer.
struct Drafts {
    drafter: Drafter,
    /// Tokens in the engine's context that the answer has not reached yet.
    ahead: VecDeque<Token>,
    /// The row of the last batch that has the logits after the answer, if there are several.
    row: Option<usize>,
    /// These logits, while the engine's are those after something that was decoded to measure.
    kept: Option<Vec<f32>>,
    proposed: usize,
}

impl Drafts {
    fn new(prompt: &[Token]) -> Drafts {
        Drafts { drafter: Drafter::new(prompt), ahead: VecDeque::new(), row: None, kept: None, proposed: 0 }
    }

    /// The logits after the answer so far.
    fn logits<'e>(&'e self, engine: &'e dyn Engine) -> &'e [f32] {
        if let Some(kept) = &self.kept {
            return kept;
        }
        self.row.map_or_else(|| engine.logits(), |row| engine.logits_at(row))
    }

    /// Number of the answer's new tokens that were drafted, and are thus decoded.
    fn confirm(&mut self, generated: &[Token]) -> usize {
        let known = generated.iter().zip(&self.ahead).take_while(|(token, drafted)| token == drafted).count();
        self.ahead.drain(..known);
        self.row = self.row.map(|row| row + known);
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
        self.kept = None;
        if draft.is_empty() {
            self.row = None;
            engine.decode(pending)?;
        } else {
            // No logits are needed after tokens where nothing is sampled.
            engine.decode_all(&[pending.as_slice(), &draft].concat(), pending.len() - 1)?;
            self.row = Some(0);
            self.proposed = draft.len();
            self.ahead = draft.into();
        }
        pending.clear();
        Ok(())
    }
}
