//! Whether files of one model call tools equally well, measured without generation.
//!
//! The model reads the prompt of a case and then the right calls, as its history would have them, and says how likely it
//! finds each token ("teacher forcing"). That is thousands of tokens of evidence without the noise of sampling. Two files
//! with the same tokenizer are compared token by token.

use super::run::in_order;
use super::stats::{Mean, Proportion, clustered, holm, mean_difference};
use super::suite::{Case, Suite, to_value, wrong};
pub use callwright::engine::{Engine, Token, common};
use callwright::error::{Error, ErrorKind, Result};
use callwright::hash::sha256;
use callwright::message::{Arguments, ToolCall};
use callwright::models::Gguf;
use callwright::session::{ContextPolicy, Options, Session};
use callwright::tool::Tools;
use serde::Serialize;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The most likely tokens that are kept of each distribution. The divergence is that of these and of the others together,
/// which is at most the one of all tokens.
const KEPT: usize = 256;
/// Tokens of an answer that are decoded at a time: fewer than the smallest batch of an engine.
const AT_A_TIME: usize = 256;
/// Tokens that are decoded one by one, to measure the speed.
const TIMED: usize = 24;
/// A right call that is less likely by at most this share is as good.
pub(crate) const MARGIN: f64 = 0.05;
/// The significance level of a comparison.
pub const LEVEL: f64 = 0.05;

/// The most likely tokens at one place, with the logarithms of their probabilities.
type Likely = Vec<(Token, f32)>;

/// The right calls of a case, as a model sees them.
#[derive(Debug, Clone, PartialEq)]
pub struct Forced {
    /// The case.
    pub case: String,
    /// Its cluster.
    pub cluster: String,
    /// The tokens of the calls, without their frame.
    pub tokens: Vec<Token>,
    /// The natural logarithm of the probability of each.
    pub logs: Vec<f64>,
    /// Whether each is the most likely one.
    pub firsts: Vec<bool>,
    /// The most likely tokens at each place, with their logarithms.
    likely: Vec<Likely>,
}

impl Forced {
    /// The logarithm of the probability of the calls.
    fn log(&self) -> f64 {
        self.logs.iter().sum()
    }

    /// Returns whether the model would write exactly these calls at temperature 0.
    fn is_first(&self) -> bool {
        self.firsts.iter().all(|first| *first)
    }

    /// The Kullback-Leibler divergence of another model's distributions from these, summed over the tokens.
    fn divergence(&self, other: &Forced) -> f64 {
        let rest = |known: f64| (1.0 - known).max(1e-9);
        let at = |(own, others): (&Likely, &Likely)| {
            let others: HashMap<Token, f64> = others.iter().map(|(token, log)| (*token, f64::from(*log))).collect();
            // Only tokens that are kept of both have a place of their own.
            let both = own.iter().filter_map(|(token, log)| Some((f64::from(*log), *others.get(token)?)));
            let (mut sum, mut p_known, mut q_known) = (0.0, 0.0, 0.0);
            for (p, q) in both {
                sum += p.exp() * (p - q);
                p_known += p.exp();
                q_known += q.exp();
            }
            (sum + rest(p_known) * (rest(p_known) / rest(q_known)).ln()).max(0.0)
        };
        self.likely.iter().zip(&other.likely).map(at).sum()
    }
}

/// What was measured of one file.
#[derive(Debug, Default)]
pub struct Measured {
    /// Each case that has right calls and fits.
    pub cases: Vec<Forced>,
    /// Cases that were left out: no certain call is right, or the prompt does not fit.
    pub left_out: usize,
    /// Tokens of prompts that were read, and the time for it.
    pub read: (usize, Duration),
    /// Tokens that were decoded one by one, and the time for it.
    pub decoded: (usize, Duration),
    /// Whether it was interrupted.
    pub interrupted: bool,
}

/// The cases of a suite that have right calls, in the order in which they are measured.
pub fn cases(suite: &Suite) -> Vec<(usize, Case)> {
    let mut cases = in_order(&suite.cases);
    cases.retain(|(_, case)| case.expected_calls().is_some_and(|calls| !calls.is_empty()));
    cases
}

/// The right calls of a case, with the first value that is accepted of each argument.
pub(crate) fn right_calls(case: &Case) -> Vec<ToolCall> {
    let call = |(index, call): (usize, &super::suite::ExpectedCall)| {
        let value = |argument: &super::suite::ExpectedArgument| {
            Some((argument.name.clone(), to_value(argument.accepted.first()?)))
        };
        ToolCall {
            // As the strictest templates want them.
            id: Some(format!("call{index:05}")),
            name: call.name.clone(),
            arguments: Arguments::Object(call.arguments.iter().filter_map(value).collect()),
        }
    };
    case.expected_calls().unwrap_or_default().iter().enumerate().map(call).collect()
}

/// Measures how likely a model finds the right calls of `cases`; `on_progress` gets the number of cases that are done.
///
/// # Errors
/// Those of the session and its engine, but not that a prompt is too long.
pub fn measure(
    session: &mut Session,
    cases: &[(usize, Case)],
    now: &str,
    cancel: &Arc<AtomicBool>,
    on_progress: &mut dyn FnMut(usize),
) -> Result<Measured> {
    let now = now.parse().map_err(|_| wrong(format!("{now:?} is no date and time")))?;
    *session.options_mut() = Options { context: ContextPolicy::Error, now: Some(now), ..Options::default() };
    let mut measured = Measured::default();
    let mut tools = None;
    let mut last = Vec::new();
    for (done, (number, case)) in cases.iter().enumerate() {
        if cancel.load(Ordering::Relaxed) {
            measured.interrupted = true;
            return Ok(measured);
        }
        if tools != Some(number) {
            session.set_tools(Tools::from_value(&case.tools.to_json())?);
            tools = Some(number);
        }
        session.set_messages(case.messages.clone())?;
        match session.with_calls(&right_calls(case)) {
            Ok((prompt, answer)) if prompt.len() + answer.len() <= session.engine().context_limit() => {
                if let Some(forced) = force(session.engine_mut(), case, &prompt, &answer, &mut measured)? {
                    measured.cases.push(forced);
                    last = answer;
                }
            }
            Ok(_) => measured.left_out += 1,
            Err(error) if error.kind() == ErrorKind::ContextOverflow => measured.left_out += 1,
            Err(error) => return Err(error),
        }
        on_progress(done + 1);
    }
    let markers: Vec<String> = session.format().reserved().map(|marker| marker.trim().to_owned()).collect();
    let engine = session.engine();
    leave_out_frame(&mut measured.cases, &|token| {
        let text = String::from_utf8_lossy(engine.token_bytes(token));
        engine.is_end(token) || markers.iter().any(|marker| marker == text.trim())
    });
    let began = Instant::now();
    let few = last.len().min(TIMED);
    let engine = session.engine_mut();
    engine.truncate(engine.cached().len().saturating_sub(few));
    for token in &last[last.len() - few..] {
        let tokens = engine.cached().len() + 1;
        engine.reserve(tokens, tokens)?;
        engine.decode(&[*token])?;
    }
    measured.decoded = (few, began.elapsed());
    Ok(measured)
}

/// Leaves out what is the same in all calls, and the markers. The grammar writes that, however unlikely a model finds it: one that
/// was trained on another form finds a marker so unlikely that nothing else would count.
fn leave_out_frame(cases: &mut Vec<Forced>, is_marker: &dyn Fn(Token) -> bool) {
    let Some((first, others)) = cases.split_first() else { return };
    let all = if others.is_empty() { 0 } else { first.tokens.len() };
    let (mut head, mut tail) = (all, all);
    for other in others {
        head = head.min(common(&first.tokens, &other.tokens));
        let backwards = first.tokens.iter().rev().zip(other.tokens.iter().rev());
        tail = tail.min(backwards.take_while(|(one, other)| one == other).count());
    }
    for one in cases.iter_mut() {
        let end = one.tokens.len().saturating_sub(tail);
        let inside: Vec<bool> =
            one.tokens.iter().enumerate().map(|(at, token)| at >= head && at < end && !is_marker(*token)).collect();
        one.retain(&inside);
    }
    cases.retain(|one| !one.tokens.is_empty());
}

/// Reads a prompt, and then an answer with the probability of each of its tokens.
fn force(
    engine: &mut dyn Engine,
    case: &Case,
    prompt: &[Token],
    answer: &[Token],
    measured: &mut Measured,
) -> Result<Option<Forced>> {
    let (Some((last, before)), false) = (prompt.split_last(), answer.is_empty()) else {
        measured.left_out += 1;
        return Ok(None);
    };
    let tokens = prompt.len() + answer.len();
    engine.reserve(tokens, tokens)?;
    let began = Instant::now();
    engine.truncate(common(engine.cached(), before));
    let known = engine.cached().len();
    if known < before.len() {
        engine.decode(&before[known..])?;
    }
    measured.read.0 += before.len() - known;
    measured.read.1 += began.elapsed();
    let mut forced = Forced {
        case: case.id.clone(),
        cluster: case.cluster.clone(),
        tokens: answer.to_vec(),
        logs: Vec::new(),
        firsts: Vec::new(),
        likely: Vec::new(),
    };
    // What comes before each token of the answer.
    let inputs: Vec<Token> = std::iter::once(*last).chain(answer[..answer.len() - 1].iter().copied()).collect();
    for (inputs, wanted) in inputs.chunks(AT_A_TIME).zip(answer.chunks(AT_A_TIME)) {
        if engine.can().truncate {
            engine.decode_all(inputs, 0)?;
            for (row, token) in wanted.iter().enumerate() {
                forced.add(engine.logits(row), *token)?;
            }
        } else {
            for (input, token) in inputs.iter().zip(wanted) {
                engine.decode(&[*input])?;
                forced.add(engine.logits(0), *token)?;
            }
        }
    }
    Ok(Some(forced))
}

impl Forced {
    /// Keeps the tokens where `keep` is true.
    fn retain(&mut self, keep: &[bool]) {
        fn kept<T>(all: &mut Vec<T>, keep: &[bool]) {
            let mut keep = keep.iter();
            all.retain(|_| keep.next().is_some_and(|keep| *keep));
        }
        kept(&mut self.tokens, keep);
        kept(&mut self.logs, keep);
        kept(&mut self.firsts, keep);
        kept(&mut self.likely, keep);
    }

    /// Adds the next token, with the logits of all tokens at its place.
    fn add(&mut self, logits: &[f32], token: Token) -> Result<()> {
        let place = usize::try_from(token.0).ok().and_then(|at| logits.get(at)).copied();
        let Some(own) = place else {
            return Err(Error::new(ErrorKind::Engine, format!("the model has no logit for the token {}", token.0)));
        };
        let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = logits.iter().map(|logit| f64::from(logit - most).exp()).sum();
        let norm = f64::from(most) + sum.ln();
        self.logs.push(f64::from(own) - norm);
        self.firsts.push(own >= most);
        let mut order: Vec<(Token, f32)> = (0..).map(Token).zip(logits.iter().copied()).collect();
        if order.len() > KEPT {
            order.select_nth_unstable_by(KEPT, |a, b| b.1.total_cmp(&a.1));
            order.truncate(KEPT);
            // A vocabulary for each token would fill the memory.
            order.shrink_to_fit();
        }
        order.iter_mut().for_each(|(_, logit)| *logit -= norm as f32);
        self.likely.push(order);
        Ok(())
    }
}

/// The figures of one file.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    /// The cases and the tokens of their right calls.
    pub cases: usize,
    /// The same.
    pub tokens: usize,
    /// The probability of a token of the right calls: the geometric mean.
    pub token_probability: f64,
    /// Cases whose right calls the model would write at temperature 0, to the letter.
    pub exact: Proportion,
    /// The tokens that are read, and decoded, in a second.
    pub prefill_rate: Option<f64>,
    /// The same.
    pub decode_rate: Option<f64>,
}

impl Figures {
    pub fn of(measured: &Measured) -> Figures {
        let tokens: usize = measured.cases.iter().map(|one| one.tokens.len()).sum();
        let log: f64 = measured.cases.iter().map(Forced::log).sum();
        let rate = |(count, time): (usize, Duration)| (count > 0).then(|| count as f64 / time.as_secs_f64().max(1e-9));
        Figures {
            cases: measured.cases.len(),
            tokens,
            token_probability: (log / tokens.max(1) as f64).exp(),
            exact: clustered(measured.cases.iter().map(|one| (one.cluster.as_str(), one.is_first()))),
            prefill_rate: rate(measured.read),
            decode_rate: rate(measured.decoded),
        }
    }
}

/// How a file compares with the reference.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Against {
    /// The change of the logarithm of the probability of a case's right calls.
    pub change: Mean,
    /// The p-value after Holm's correction over the files.
    pub p_holm: f64,
    /// The divergence from the reference for each token; `None` where the calls have other tokens.
    pub divergence: Option<f64>,
    /// What that allows to say.
    pub verdict: Verdict,
}

/// What the figures allow to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It finds right calls more likely.
    Better,
    /// Right calls are less likely by `MARGIN` at most.
    AsGood,
    /// It finds right calls less likely.
    Worse,
    /// There are too few cases.
    Unknown,
}

fn by_case(measured: &Measured) -> HashMap<&str, &Forced> {
    measured.cases.iter().map(|one| (one.case.as_str(), one)).collect()
}

/// Compares files with a reference, case by case; `None` where no two cases are the same.
pub fn against(reference: &Measured, others: &[&Measured]) -> Vec<Option<Against>> {
    let known = by_case(reference);
    let mut found: Vec<Option<Against>> = others
        .iter()
        .map(|other| {
            let pairs: Vec<(&Forced, &Forced)> =
                other.cases.iter().filter_map(|one| Some((*known.get(one.case.as_str())?, one))).collect();
            let change = mean_difference(pairs.iter().map(|(was, is)| (is.cluster.as_str(), is.log() - was.log())))?;
            let tokens: usize = pairs.iter().map(|(was, _)| was.tokens.len()).sum();
            let same = pairs.iter().all(|(was, is)| was.tokens == is.tokens);
            let divergence =
                same.then(|| pairs.iter().map(|(was, is)| was.divergence(is)).sum::<f64>() / tokens.max(1) as f64);
            Some(Against { change, p_holm: change.p, divergence, verdict: Verdict::Unknown })
        })
        .collect();
    let p_values: Vec<f64> = found.iter().flatten().map(|one| one.change.p).collect();
    for (one, p) in found.iter_mut().flatten().zip(holm(&p_values)) {
        one.p_holm = p;
        let significant = p < LEVEL;
        one.verdict = match one.change {
            Mean { low, .. } if low > (1.0 - MARGIN).ln() && !(significant && low > 0.0) => Verdict::AsGood,
            Mean { mean, .. } if significant && mean > 0.0 => Verdict::Better,
            Mean { .. } if significant => Verdict::Worse,
            _ => Verdict::Unknown,
        };
    }
    found
}

/// Returns by how much further `far` departs from the reference than `near`, in nats for each case; `None` where no case
/// was measured of all three. What a model lost shows here before right calls become less likely.
pub fn further(reference: &Measured, near: &Measured, far: &Measured) -> Option<Mean> {
    let (near, far) = (by_case(near), by_case(far));
    mean_difference(reference.cases.iter().filter_map(|was| {
        let (near, far) = (near.get(was.case.as_str())?, far.get(was.case.as_str())?);
        let same = was.tokens == near.tokens && was.tokens == far.tokens;
        same.then(|| (was.cluster.as_str(), was.divergence(far) - was.divergence(near)))
    }))
}

/// A hash of all that turns text into tokens.
pub(crate) fn tokenizer(gguf: &Gguf) -> String {
    let mut text = String::new();
    for key in ["tokenizer.ggml.model", "tokenizer.ggml.pre"] {
        text += gguf.text(key).unwrap_or_default();
        text.push('\n');
    }
    let count = gguf.tokens().map_or(0, |tokens| tokens.len());
    for id in 0..u32::try_from(count).unwrap_or(u32::MAX) {
        text += &gguf.token_text(id).unwrap_or_default();
        text.push('\n');
    }
    sha256(text)
}

/// Checks that a file has the tokenizer of the reference.
///
/// # Errors
/// [`ErrorKind::Config`] with what differs.
pub fn check_tokenizer(reference: &Gguf, other: &Gguf) -> Result<()> {
    if tokenizer(reference) == tokenizer(other) {
        return Ok(());
    }
    let about = |gguf: &Gguf| {
        let kind = gguf.text("tokenizer.ggml.pre").or(gguf.text("tokenizer.ggml.model")).unwrap_or("unknown");
        format!("{kind}, {} tokens", gguf.tokens().map_or(0, |tokens| tokens.len()))
    };
    let message = format!(
        "{} has another tokenizer ({}) than the reference {} ({}): their tokens cannot be compared",
        other.path().display(),
        about(other),
        reference.path().display(),
        about(reference)
    );
    Err(Error::new(ErrorKind::Config, message)
        .hint("certify compares files of one model; `callwright bench -m A -m B` compares models by their answers"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forced(case: &str, logits: &[[f32; 3]], answer: &[i32]) -> Forced {
        let mut one = Forced {
            case: case.to_owned(),
            cluster: case.to_owned(),
            tokens: answer.iter().copied().map(Token).collect(),
            logs: Vec::new(),
            firsts: Vec::new(),
            likely: Vec::new(),
        };
        for (logits, token) in logits.iter().zip(answer) {
            one.add(logits, Token(*token)).unwrap();
        }
        one
    }

    fn measured(shift: f32) -> Measured {
        let case = |i: i32| {
            let noise = 0.01 * (i % 7) as f32;
            forced(&format!("c{i}"), &[[1.0 + shift + noise, 0.0, -1.0], [0.0, 2.0 + shift, noise]], &[0, 1])
        };
        Measured { cases: (0..40).map(case).collect(), ..Measured::default() }
    }

    #[test]
    fn probabilities_and_divergences_are_those_of_the_softmax() {
        let one = forced("a", &[[2f32.ln(), 0.0, 0.0]], &[0]);
        assert!((one.log() - 0.5f64.ln()).abs() < 1e-6 && one.is_first());
        assert!(one.divergence(&one).abs() < 1e-6);
        // By hand: 1/2 ln(1/2 / 1/3) + 2 · 1/4 ln(1/4 / 1/3).
        let other = forced("a", &[[0.0, 0.0, 0.0]], &[0]);
        let expected = 0.5 * 1.5f64.ln() + 0.5 * 0.75f64.ln();
        assert!((one.divergence(&other) - expected).abs() < 1e-5, "{}", one.divergence(&other));
        assert!(!forced("a", &[[0.0, 1.0, 0.0]], &[0]).is_first());
        let error = one.clone().add(&[0.0], Token(5)).unwrap_err();
        assert_eq!(error.message(), "the model has no logit for the token 5");
    }

    #[test]
    fn the_frame_of_calls_says_nothing() {
        let even = [[0.0, 0.0, 0.0]; 5];
        let mut cases = vec![forced("a", &even, &[2, 0, 1, 2, 1]), forced("b", &even[..4], &[2, 1, 0, 1])];
        leave_out_frame(&mut cases, &|token| token.0 == 2);
        assert_eq!(cases[0].tokens, [Token(0), Token(1)]);
        assert_eq!((cases[0].logs.len(), cases[0].firsts.len(), cases[0].likely.len()), (2, 2, 2));
        assert_eq!(cases[1].tokens, [Token(1), Token(0)]);
        leave_out_frame(&mut cases, &|token| token.0 == 1);
        assert_eq!(cases.len(), 2);
        let mut alone = vec![forced("a", &even, &[0, 1, 0, 1, 0])];
        leave_out_frame(&mut alone, &|_| false);
        assert_eq!(alone[0].tokens.len(), 5);
    }

    #[test]
    fn files_are_told_from_the_reference_by_how_likely_right_calls_are() {
        let reference = measured(0.0);
        let [worse, same, better] = [measured(-1.0), measured(-0.001), measured(1.0)];
        let found = against(&reference, &[&worse, &same, &better]);
        let verdicts: Vec<Verdict> = found.iter().flatten().map(|one| one.verdict).collect();
        assert_eq!(verdicts, [Verdict::Worse, Verdict::AsGood, Verdict::Better]);
        assert!(found[0].as_ref().unwrap().p_holm < 1e-6 && found[0].as_ref().unwrap().divergence > Some(0.05));
        assert_eq!(against(&Measured::default(), &[&same]), [None]);
        // Two cases are no evidence.
        let mut few = measured(-1.0);
        few.cases.truncate(2);
        few.cases[1].logs[0] += 1.5;
        assert_eq!(against(&reference, &[&few])[0].as_ref().unwrap().verdict, Verdict::Unknown);
        let figures = Figures::of(&worse);
        assert_eq!((figures.cases, figures.tokens, figures.exact.trials), (40, 80, 40));
        assert!(figures.token_probability > Figures::of(&measured(-2.0)).token_probability);
    }
}
