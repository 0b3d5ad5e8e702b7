//! The decision to call: how likely an answer begins with a call, read off the model's distribution.
//!
//! The probability is that of the model itself: temperature 1, no penalties, no grammar. With `c₁ … cₙ` the tokens of the
//! format's start marker as the tokenizer writes it, it is the product over `i` of `mᵢ`: the probability, after
//! `c₁ … cᵢ₋₁`, of all tokens that continue the marker from there, be it with a part of it, with all of it, or with all
//! of it and more. So every tokenization counts in full at the place where it leaves the usual one, and is then taken to go
//! on as the usual one does. Before the marker there may be white space: with it in one token together with the
//! marker's beginning, or as one token of its own.
//!
//! A model may begin a call in another form, such as JSON in a code fence, and the program reads that, too. So the beginnings of the
//! usual other forms count in the same way, if their first token is likely enough.
//!
//! The first factor is known as soon as the prompt is read. The others take one more batch, of as many tokens as the marker
//! has, which is only decoded where it is asked for: see [`Options::measure_call`](crate::session::Options::measure_call).

use crate::Result;
pub use crate::answer::{CallProbability, Decided};
use crate::engine::vocabulary::Vocabulary;
use crate::engine::{Engine, Token};
use crate::format::{Format, Marker};
use std::cell::{Cell, OnceCell};
use std::rc::Rc;

/// A token of white space, or the first one of another form, that is less likely than this is not followed.
const LIKELY: f64 = 0.02;
/// How calls in other forms begin. JSON may have white space anywhere.
const OTHER_FORMS: [&str; 4] = ["{\"name\": \"", "[{\"name\": \"", "```json\n{\"name\": \"", "```json\n[{\"name\": \""];
/// The least logarithm of a probability that counts.
const LEAST_LOGARITHM: f64 = -50.0;
/// Above this probability, reasoning comes first, and the answer begins after it.
const REASONS: f64 = 0.5;

/// The probabilities of a call that decide about an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Thresholds {
    /// At or above this, the answer has to be a call.
    pub call: Option<f64>,
    /// Below this, it has no call.
    pub text: Option<f64>,
}

impl Thresholds {
    /// Returns whether there is any.
    pub(crate) fn any(&self) -> bool {
        self.call.is_some() || self.text.is_some()
    }

    /// Returns what they decide; `None` leaves it to the model.
    pub(crate) fn decide(&self, probability: f64) -> Option<Decided> {
        if self.call.is_some_and(|least| probability >= least) {
            return Some(Decided::Call);
        }
        self.text.is_some_and(|least| probability < least).then_some(Decided::Text)
    }
}

/// A text that a call begins with, in one model's tokens.
#[derive(Debug)]
struct Beginning {
    /// The text as the tokenizer writes it.
    path: Vec<Token>,
    /// For each token of the path: which tokens continue the text there.
    fits: Vec<Vec<usize>>,
}

/// How calls begin, in one model's tokens.
#[derive(Debug)]
pub(crate) struct Opening {
    /// With the format's marker.
    own: Beginning,
    /// In other forms. To find them takes many looks at the vocabulary, so that is done where they are asked for.
    others: OnceCell<Vec<Beginning>>,
    /// Tokens that calls in other forms may begin with, and the format's may not.
    other_first: OnceCell<Vec<usize>>,
    vocabulary: Vocabulary,
    /// What the format's calls begin with, where it has no marker.
    bare: Option<Vec<u8>>,
    /// Whether each token that may begin a call completes the marker.
    whole: bool,
    /// Tokens of white space only.
    spaces: Vec<usize>,
    /// Tokens that begin reasoning.
    reasons: Vec<usize>,
    reasoning_end: Vec<u8>,
    /// What begins a call where it has to be written.
    written: Vec<Token>,
}

impl Opening {
    /// The beginning of a format's calls; `None` if the format does not say how they begin.
    pub(crate) fn new(vocabulary: &Vocabulary, format: &Format) -> Option<Opening> {
        let bare = format.section.is_none() && format.start.is_none();
        let markers = markers(format);
        let marker = markers.first()?.clone();
        let specials = vocabulary.specials(&[&marker, format.opening(None).as_bytes()]);
        let own = Beginning::new(vocabulary, vocabulary.tokenize_with(&marker, &specials), &markers, bare)?;
        let fits = &own.fits;
        let completes = |index: &usize| {
            vocabulary.words.get(*index).is_some_and(|word| word.bytes.trim_ascii_start().starts_with(&marker))
        };
        let reasoning = format.reasoning.as_ref();
        let start = reasoning.map(|around| text(&around.start)).unwrap_or_default();
        Some(Opening {
            whole: !bare && fits.first()?.iter().all(completes),
            spaces: indices(vocabulary, |bytes| bytes.trim_ascii_start().is_empty()),
            reasons: {
                // A beginning that both share, such as `<`, says nothing.
                let begin = indices(vocabulary, |bytes| continues(&start, bytes.trim_ascii_start()));
                begin.into_iter().filter(|index| !fits.first().is_some_and(|fits| fits.contains(index))).collect()
            },
            reasoning_end: reasoning.map(|around| text(&around.end)).unwrap_or_default(),
            written: vocabulary.tokenize_with(format.opening(None).as_bytes(), &specials),
            own,
            others: OnceCell::new(),
            other_first: OnceCell::new(),
            vocabulary: vocabulary.clone(),
            bare: bare.then_some(marker),
        })
    }

    /// What calls in other forms begin with.
    fn other_texts(&self) -> impl Iterator<Item = &'static [u8]> {
        let same = |text: &[u8]| self.bare.as_ref().is_some_and(|own| continues_loosely(own, text));
        OTHER_FORMS.iter().map(|text| text.as_bytes()).filter(move |text| !same(text))
    }

    fn others(&self) -> &[Beginning] {
        let begin = |text: &[u8]| {
            let path = self.vocabulary.tokenize_with(text, &[]);
            Beginning::new(&self.vocabulary, path, &[text.to_vec()], true)
        };
        self.others.get_or_init(|| self.other_texts().filter_map(begin).collect())
    }

    fn other_first(&self) -> &[usize] {
        self.other_first.get_or_init(|| {
            let texts: Vec<&[u8]> = self.other_texts().collect();
            // Most tokens begin with another byte.
            let begins = |bytes: &[u8]| {
                let first = bytes.trim_ascii_start().first();
                first.is_some_and(|first| texts.iter().any(|text| text.first() == Some(first)))
            };
            let fits = |bytes: &[u8]| begins(bytes) && texts.iter().any(|text| continues_loosely(text, bytes));
            let mut first = indices(&self.vocabulary, fits);
            first.retain(|index| !self.own.first().contains(index));
            first
        })
    }

    /// How many tokens a decision decodes in advance at most: white space and the marker, whose tokens have a byte or more.
    pub(crate) fn most_tokens(format: &Format) -> usize {
        let own = markers(format).first().map_or(0, |marker| marker.len() + 1);
        OTHER_FORMS.iter().map(|text| text.len() + 1).fold(own, usize::max)
    }

    /// The tokens that begin a call.
    pub(crate) fn written(&self) -> &[Token] {
        &self.written
    }

    /// Returns whether the model is more likely to begin an answer with a call than with text, by these logits.
    pub(crate) fn is_likely(&self, logits: &[f32]) -> bool {
        self.first(&Distribution::new(logits), false).first_token >= 0.5
    }

    /// The probability of the first token, of a call in the format or, if `others`, in any form.
    fn first(&self, distribution: &Distribution<'_>, others: bool) -> CallProbability {
        let own = distribution.of(self.own.first());
        let other = if others { distribution.of(self.other_first()) } else { 0.0 };
        let whole = self.whole && other < LIKELY;
        CallProbability { first_token: (own + other).min(1.0), marker: whole.then_some(own), other_forms: None }
    }

    /// The probability of all that a call may begin with, with what is decoded for it removed from the engine's context again; that of
    /// the first token alone if the engine cannot go back.
    fn follow(
        &self,
        engine: &mut dyn Engine,
        first: CallProbability,
        logits: &[f32],
        others: bool,
    ) -> Result<CallProbability> {
        let before = engine.cached().len();
        let other_forms: &[Beginning] = if others { self.others() } else { &[] };
        let longest = other_forms.iter().map(|other| other.path.len());
        let longest = longest.fold(self.own.path.len(), usize::max);
        if !engine.can().truncate || before + longest + 1 > engine.context_limit() {
            return Ok(first);
        }
        let distribution = Distribution::new(logits);
        let space = distribution.likeliest(&self.spaces).filter(|(_, probability)| *probability >= LIKELY);
        let mut own = distribution.of(self.own.first());
        if !self.whole {
            own *= self.own.rest(engine, None)?;
            engine.truncate(before);
        }
        if let Some((space, probability)) = space {
            own += probability * self.own.rest(engine, Some(space))?;
            engine.truncate(before);
        }
        let mut in_others = 0.0;
        for other in other_forms {
            let begun = distribution.of(other.first());
            if begun >= LIKELY {
                in_others += begun * other.rest(engine, None)?;
                engine.truncate(before);
            }
        }
        let other_forms = others.then_some(in_others.min(1.0));
        Ok(CallProbability { marker: Some(own.min(1.0)), other_forms, ..first })
    }
}

impl Beginning {
    /// A text with this path; the first token may also begin another one of `texts`. `loose`: white space may be anywhere.
    fn new(vocabulary: &Vocabulary, path: Vec<Token>, texts: &[Vec<u8>], loose: bool) -> Option<Beginning> {
        let text = texts.first()?;
        let mut fits = Vec::with_capacity(path.len());
        let mut at = 0;
        for (place, token) in path.iter().enumerate() {
            let rest = text.get(at..)?;
            at += vocabulary.bytes(*token).len();
            let fit = |bytes: &[u8]| match (place, loose) {
                (0, true) => texts.iter().any(|text| continues_loosely(text, bytes)),
                (0, false) => texts.iter().any(|text| continues(text, bytes.trim_ascii_start())),
                (_, true) => bytes.trim_ascii().is_empty() || continues_loosely(rest, bytes),
                (_, false) => continues(rest, bytes),
            };
            fits.push(indices(vocabulary, fit));
        }
        Some(Beginning { path, fits })
    }

    /// The tokens that it may begin with.
    fn first(&self) -> &[usize] {
        self.fits.first().map_or(&[], Vec::as_slice)
    }

    /// The probability of the text after white space, or of all but its first token.
    fn rest(&self, engine: &mut dyn Engine, space: Option<Token>) -> Result<f64> {
        // After the last token nothing more is asked.
        let known = &self.path[..self.path.len().saturating_sub(1)];
        let tokens: Vec<Token> = space.into_iter().chain(known.iter().copied()).collect();
        if tokens.is_empty() {
            return Ok(1.0);
        }
        engine.decode_all(&tokens, 0)?;
        let asked = &self.fits[usize::from(space.is_none())..];
        let factor = |(row, fits): (usize, &Vec<usize>)| Distribution::new(engine.logits(row)).of(fits);
        Ok(asked.iter().enumerate().map(factor).product())
    }
}

/// The markers that begin calls, the first one first; what calls begin with where there is none.
fn markers(format: &Format) -> Vec<Vec<u8>> {
    let section = format.section.iter().map(|section| text(&section.start));
    let mut markers: Vec<Vec<u8>> = section.chain(format.start.iter().map(text)).collect();
    if markers.is_empty() {
        markers.push(format.opening(None).into_bytes());
    }
    markers.retain(|marker| !marker.is_empty());
    markers
}

/// A marker without white space around it; empty if it is a pattern.
fn text(marker: &Marker) -> Vec<u8> {
    marker.text().unwrap_or_default().trim().as_bytes().to_vec()
}

/// Returns whether `bytes` are a part of the marker from its beginning, or all of it and perhaps more.
fn continues(marker: &[u8], bytes: &[u8]) -> bool {
    !bytes.is_empty() && !marker.is_empty() && (marker.starts_with(bytes) || bytes.starts_with(marker))
}

/// The same, white space aside.
fn continues_loosely(marker: &[u8], bytes: &[u8]) -> bool {
    let mut letters = [marker, bytes].map(|text| text.iter().filter(|byte| !byte.is_ascii_whitespace()).peekable());
    let [marker, bytes] = &mut letters;
    marker.peek().is_some() && bytes.peek().is_some() && marker.zip(bytes).all(|(one, other)| one == other)
}

fn indices(vocabulary: &Vocabulary, fit: impl Fn(&[u8]) -> bool) -> Vec<usize> {
    let words = vocabulary.words.iter().enumerate();
    words.filter(|(_, word)| !word.end && !word.bytes.is_empty() && fit(&word.bytes)).map(|(index, _)| index).collect()
}

/// A model's distribution of the next token.
pub(crate) struct Distribution<'l> {
    logits: &'l [f32],
    greatest: f64,
    total: f64,
}

impl Distribution<'_> {
    pub(crate) fn new(logits: &[f32]) -> Distribution<'_> {
        let greatest = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        let total = logits.iter().map(|logit| (f64::from(*logit) - greatest).exp()).filter(|p| p.is_finite()).sum();
        Distribution { logits, greatest, total }
    }

    fn at(&self, index: usize) -> f64 {
        let share = self.logits.get(index).map_or(0.0, |logit| (f64::from(*logit) - self.greatest).exp() / self.total);
        if share.is_finite() { share } else { 0.0 }
    }

    /// The logarithm of a token's probability.
    pub(crate) fn logarithm(&self, token: Token) -> f64 {
        let index = usize::try_from(token.0).unwrap_or(usize::MAX);
        let logit = self.logits.get(index).map_or(f64::NEG_INFINITY, |logit| f64::from(*logit));
        let logarithm = logit - self.greatest - self.total.ln();
        if logarithm.is_nan() { LEAST_LOGARITHM } else { logarithm.max(LEAST_LOGARITHM) }
    }

    /// The probability of these tokens together.
    fn of(&self, indices: &[usize]) -> f64 {
        indices.iter().map(|index| self.at(*index)).sum::<f64>().min(1.0)
    }

    /// The `count` likeliest tokens, the first one first.
    pub(crate) fn best(&self, count: usize) -> Vec<Token> {
        let by_logit = |a: &usize, b: &usize| self.logits[*b].total_cmp(&self.logits[*a]).then(a.cmp(b));
        let mut order: Vec<usize> = (0..self.logits.len()).collect();
        if count < order.len() {
            order.select_nth_unstable_by(count, by_logit);
            order.truncate(count);
        }
        order.sort_unstable_by(by_logit);
        order.into_iter().filter_map(|index| i32::try_from(index).ok().map(Token)).collect()
    }

    fn likeliest(&self, indices: &[usize]) -> Option<(Token, f64)> {
        let best = indices.iter().max_by(|a, b| self.at(**a).total_cmp(&self.at(**b)))?;
        Some((Token(i32::try_from(*best).ok()?), self.at(*best)))
    }
}

/// The decision of one answer.
pub struct Decision<'o> {
    opening: &'o Opening,
    /// Whether the whole marker is asked for.
    follow: bool,
    /// Whether calls in other forms count.
    others: bool,
    thresholds: Thresholds,
    place: Place,
    /// The end of the text, while it is reasoning.
    tail: Vec<u8>,
    found: Option<CallProbability>,
    decided: Rc<Cell<Option<Decided>>>,
}

/// Where in an answer the decision is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The answer begins.
    Here,
    /// The answer begins after reasoning.
    Reasoning,
    /// The answer has begun.
    Past,
}

impl<'o> Decision<'o> {
    /// A decision at the beginning of an answer; `thinking` if that begins with reasoning. `follow` asks for the whole
    /// marker; any threshold does, too. Calls in `others` count if they are read.
    pub(crate) fn new(
        opening: &'o Opening,
        (follow, others): (bool, bool),
        thresholds: Thresholds,
        thinking: bool,
    ) -> Decision<'o> {
        let place = if thinking { Place::Reasoning } else { Place::Here };
        let follow = follow || thresholds.any();
        Decision { opening, follow, others, thresholds, place, tail: Vec::new(), found: None, decided: Rc::default() }
    }

    /// The probability, once the answer has begun.
    pub(crate) fn found(&self) -> Option<CallProbability> {
        self.found
    }

    /// Returns what the thresholds decided.
    pub(crate) fn decided(&self) -> Option<Decided> {
        self.decided.get()
    }

    /// The same, to be read while the answer is generated.
    pub(crate) fn watched(&self) -> Rc<Cell<Option<Decided>>> {
        Rc::clone(&self.decided)
    }

    /// Returns whether reasoning comes first, so that the decision is still to be taken.
    pub(crate) fn is_open(&self) -> bool {
        self.place != Place::Past
    }

    pub(crate) fn is_due(&self) -> bool {
        self.place == Place::Here
    }

    /// Returns whether only the probability is asked for, so that the time does not belong to the answer's.
    pub(crate) fn only_measures(&self) -> bool {
        !self.thresholds.any()
    }

    /// The tokens that begin a call.
    pub(crate) fn opening(&self) -> &'o [Token] {
        self.opening.written()
    }

    /// Takes the distribution at the beginning of the answer; returns what the thresholds decide, and whether the
    /// engine's logits are now others.
    pub(crate) fn decide(&mut self, engine: &mut dyn Engine, logits: &[f32]) -> Result<(Option<Decided>, bool)> {
        let distribution = Distribution::new(logits);
        let mut found = self.opening.first(&distribution, self.others);
        if distribution.of(&self.opening.reasons) >= REASONS && !self.opening.reasoning_end.is_empty() {
            self.found = Some(found);
            self.place = Place::Reasoning;
            return Ok((None, false));
        }
        let mut moved = false;
        if self.follow {
            found = self.opening.follow(engine, found, logits, self.others)?;
            moved = true;
        }
        self.place = Place::Past;
        self.found = Some(found);
        self.decided.set(self.thresholds.decide(found.value()));
        Ok((self.decided(), moved))
    }

    /// Takes what was written.
    pub(crate) fn wrote(&mut self, bytes: &[u8]) {
        let end = &self.opening.reasoning_end;
        if self.place != Place::Reasoning || end.is_empty() {
            return;
        }
        self.tail.extend_from_slice(bytes);
        if self.tail.windows(end.len()).any(|window| window == end) {
            self.place = Place::Here;
        }
        let kept = self.tail.len().min(end.len());
        self.tail.drain(..self.tail.len() - kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::ModelInfo;
    use crate::engine::scripted::ScriptedEngine;
    use crate::engine::vocabulary::Word;
    use std::sync::Arc;

    /// A vocabulary of these words; texts are tokenized into the longest that fit.
    fn vocabulary(words: &[&str]) -> Vocabulary {
        let list: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        let known = list.clone();
        let tokenize = move |text: &[u8]| {
            let mut rest = text;
            let mut tokens = Vec::new();
            while !rest.is_empty() {
                let fit = known.iter().enumerate().filter(|(_, word)| rest.starts_with(word));
                let Some((index, word)) = fit.max_by_key(|(_, word)| word.len()) else { break };
                tokens.push(Token(index as i32));
                rest = &rest[word.len()..];
            }
            tokens
        };
        let words = list.into_iter().map(|bytes| Word { bytes: bytes.into(), ..Word::default() }).collect();
        Vocabulary::new(words, Arc::new(tokenize))
    }

    #[test]
    fn every_beginning_of_the_marker_counts_and_nothing_else() {
        let words =
            ["###", "#", " ###", "\n", "### TO", "## ", "Hi", "####", " TOOL", "_CALL_START", " ###\n", "_", "T"];
        let opening = Opening::new(&vocabulary(&words), Format::delimited()).unwrap();
        let texts = |fits: &[usize]| fits.iter().map(|index| words[*index]).collect::<Vec<_>>();
        assert_eq!(texts(opening.own.first()), ["###", "#", " ###", "### TO"]);
        assert_eq!(opening.spaces, [3]);
        assert!(!opening.whole);
    }

    #[test]
    fn a_distribution_is_the_softmax_of_its_logits() {
        let logits = [0.5f32.ln(), 0.25f32.ln(), 0.25f32.ln(), f32::NEG_INFINITY, f32::NAN];
        let distribution = Distribution::new(&logits);
        assert!((distribution.of(&[0, 2]) - 0.75).abs() < 1e-6);
        assert_eq!(distribution.of(&[3, 4, 99]), 0.0);
        assert_eq!(distribution.likeliest(&[1, 0, 3]).map(|(token, _)| token), Some(Token(0)));
        assert_eq!(Distribution::new(&[]).of(&[0]), 0.0);
    }

    #[test]
    fn the_whole_marker_differs_from_a_heading_that_begins_alike() {
        let opening = Opening::new(&Vocabulary::of_bytes(), Format::delimited()).unwrap();
        for (text, first, marker) in [
            ("### TOOL_CALL_START ###\n{", 1.0, 1.0),
            ("### Heading", 1.0, 0.0),
            ("Hello", 0.0, 0.0),
            ("\n### TOOL_CALL_START ###", 0.0, 1.0),
        ] {
            let mut engine =
                ScriptedEngine::from_texts(ModelInfo { context_train: 4096, ..ModelInfo::default() }, [text]);
            engine.begin([Token(65)][..].into(), &Default::default()).unwrap();
            engine.decode(&[Token(65)]).unwrap();
            let logits = engine.logits(0).to_vec();
            let mut decision = Decision::new(&opening, (true, true), Thresholds::default(), false);
            decision.decide(&mut engine, &logits).unwrap();
            let found = decision.found().unwrap();
            assert_eq!((found.first_token, found.marker), (first, Some(marker)), "{text}");
            assert_eq!(engine.cached(), [Token(65)], "{text}");
        }
    }

    #[test]
    fn a_call_in_another_form_counts_where_it_is_read() {
        let opening = Opening::new(&Vocabulary::of_bytes(), Format::delimited()).unwrap();
        for (text, expected) in [
            ("{\"name\": \"f\"", 1.0),
            ("```json\n{\"name\": \"f\"", 1.0),
            ("```json\n[{\"name\": \"f\"", 1.0),
            ("```python\nprint()", 0.0),
            ("{\"city\": \"Oslo\"}", 0.0),
            ("### TOOL_CALL_START ###\n{", 0.0),
        ] {
            for others in [true, false] {
                let info = ModelInfo { context_train: 4096, ..ModelInfo::default() };
                let mut engine = ScriptedEngine::from_texts(info, [text]);
                engine.begin([Token(65)][..].into(), &Default::default()).unwrap();
                engine.decode(&[Token(65)]).unwrap();
                let logits = engine.logits(0).to_vec();
                let mut decision = Decision::new(&opening, (true, others), Thresholds::default(), false);
                decision.decide(&mut engine, &logits).unwrap();
                let found = decision.found().unwrap();
                assert_eq!(found.other_forms, others.then_some(expected), "{text}");
                assert_eq!(engine.cached(), [Token(65)], "{text}");
            }
        }
    }

    #[test]
    fn thresholds_decide_for_a_call_at_and_for_text_below() {
        let thresholds = Thresholds { call: Some(0.5), text: Some(0.1) };
        let decided = [0.0, 0.0999, 0.1, 0.4999, 0.5, 1.0].map(|probability| thresholds.decide(probability));
        assert_eq!(
            decided,
            [Some(Decided::Text), Some(Decided::Text), None, None, Some(Decided::Call), Some(Decided::Call)]
        );
        assert_eq!(Thresholds::default().decide(1.0), None);
    }
}
