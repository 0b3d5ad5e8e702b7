//! The options for sampling and for the end of an answer, and the same fields of a request body.

use super::notice;
use callwright::engine::Token;
use callwright::engine::sampler::Sampling;
use callwright::message::{Body, DRY_MULTIPLIER, NO_LIMIT, PENALTY, REPEAT_PENALTY, SHARE, TEMPERATURE};
use callwright::models;
use callwright::session::Options;
use clap::Args;
use std::hash::{BuildHasher, RandomState};
use std::ops::RangeInclusive;

/// The default limit of an answer, in tokens.
const MAX_TOKENS: usize = 1024;

/// The options for sampling.
#[derive(Args)]
pub struct SamplingOptions {
    /// Sample with this temperature; 0 always takes the likeliest token [default: the model's in models.toml, or 0]
    #[arg(long, alias = "temperature", value_name = "X", help_heading = "Sampling", value_parser = temperature, allow_negative_numbers = true)]
    temp: Option<f32>,

    /// Sample from the likeliest tokens that together reach this probability [default: 0.95]
    #[arg(long, value_name = "X", help_heading = "Sampling", value_parser = share, allow_negative_numbers = true)]
    top_p: Option<f32>,

    /// Sample from this many of the likeliest tokens; 0 is all [default: 40]
    #[arg(long, value_name = "N", help_heading = "Sampling", value_parser = top_k, allow_negative_numbers = true)]
    top_k: Option<u32>,

    /// Sample from tokens with at least this fraction of the likeliest one's probability [default: 0.05]
    #[arg(long, value_name = "X", help_heading = "Sampling", value_parser = share, allow_negative_numbers = true)]
    min_p: Option<f32>,

    /// Divide the logits of tokens that are already in the answer's text; 1 is off [default: 1]
    #[arg(long, value_name = "X", help_heading = "Sampling", value_parser = repeat_penalty, allow_negative_numbers = true)]
    repeat_penalty: Option<f32>,

    /// Subtract X from the logits of tokens that are already in the answer's text [default: 0]
    #[arg(long, value_name = "X", help_heading = "Sampling", value_parser = penalty, allow_negative_numbers = true)]
    presence_penalty: Option<f32>,

    /// Subtract X from a token's logit for each time it is in the answer's text [default: 0]
    #[arg(long, value_name = "X", help_heading = "Sampling", value_parser = penalty, allow_negative_numbers = true)]
    frequency_penalty: Option<f32>,

    /// Penalize the last N tokens of the answer's text, not the prompt or calls; 0 is off, -1 all. Penalties do not
    /// apply where a grammar constrains the answer [default: 64]
    #[arg(long, value_name = "N", help_heading = "Sampling", value_parser = last_n, allow_negative_numbers = true)]
    repeat_last_n: Option<i32>,

    /// Penalize tokens that would continue a repetition in the answer's text (DRY); 0 is off [default: 0]
    #[arg(long, value_name = "X", help_heading = "Sampling", value_parser = dry_multiplier, allow_negative_numbers = true)]
    dry_multiplier: Option<f32>,

    /// Seed the random numbers with N; -1 chooses a seed and reports it [default: 0]
    #[arg(short, long, value_name = "N", help_heading = "Sampling", value_parser = seed, allow_negative_numbers = true)]
    seed: Option<Seed>,

    /// End the answer before TEXT, outside of calls and reasoning; may be repeated
    #[arg(long, value_name = "TEXT", help_heading = "Sampling", value_parser = some_text, allow_hyphen_values = true)]
    stop: Vec<String>,

    /// End the answer after N tokens; -1 is at the end of the context [default: 1024]
    #[arg(short = 'n', long, alias = "n-predict", value_name = "N", help_heading = "Sampling", value_parser = max_tokens, allow_negative_numbers = true)]
    max_tokens: Option<usize>,
}

/// The seed.
#[derive(Clone, Copy)]
enum Seed {
    At(u64),
    Random,
}

impl Seed {
    fn number(self) -> u64 {
        match self {
            Seed::At(seed) => seed,
            Seed::Random => {
                // The standard library's source of random numbers, as short as llama.cpp's.
                let seed = RandomState::new().hash_one(std::process::id()) & u64::from(u32::MAX);
                notice(&format!("the seed is chosen at random: --seed {seed} repeats this"));
                seed
            }
        }
    }
}

/// The fields of a request body that the command line replaces.
#[derive(Default)]
pub struct Replaced(Vec<&'static str>);

impl Replaced {
    /// The command line's value, or else the body's.
    pub fn pick<T>(&mut self, field: &'static str, given: Option<T>, body: Option<T>) -> Option<T> {
        if given.is_some() && body.is_some() {
            self.note(field);
        }
        given.or(body)
    }

    /// Records that the command line replaces a field.
    pub fn note(&mut self, field: &'static str) {
        self.0.push(field);
    }

    /// Reports the replaced fields.
    pub fn tell(self) {
        if !self.0.is_empty() {
            notice(&format!("options of the command line replace the request body's {}", self.0.join(", ")));
        }
    }
}

impl SamplingOptions {
    /// Sets the sampling and the end of an answer from the command line, or else the body, or else models.toml.
    pub fn apply(&self, model: &models::Sampling, body: &Body, replaced: &mut Replaced, options: &mut Options) {
        let sampling = models::Sampling {
            temperature: replaced.pick("temperature", self.temp, body.temperature),
            top_k: replaced.pick("top_k", self.top_k, body.top_k),
            top_p: replaced.pick("top_p", self.top_p, body.top_p),
            min_p: replaced.pick("min_p", self.min_p, body.min_p),
            repeat_penalty: replaced.pick("repeat_penalty", self.repeat_penalty, body.repeat_penalty),
            presence_penalty: replaced.pick("presence_penalty", self.presence_penalty, body.presence_penalty),
            frequency_penalty: replaced.pick("frequency_penalty", self.frequency_penalty, body.frequency_penalty),
            repeat_last_n: replaced.pick("repeat_last_n", self.repeat_last_n, body.repeat_last_n),
            dry_multiplier: replaced.pick("dry_multiplier", self.dry_multiplier, body.dry_multiplier),
        };
        let seed = replaced.pick("seed", self.seed.map(Seed::number), body.seed).unwrap_or_default();
        options.sampling = Sampling { seed, ..Sampling::from(sampling.or(model)) };
        options.max_tokens = replaced.pick("max_tokens", self.max_tokens, body.max_tokens).unwrap_or(MAX_TOKENS);
        let some = |texts: &Vec<String>| (!texts.is_empty()).then(|| texts.clone());
        options.stop = replaced.pick("stop", some(&self.stop), some(&body.stop)).unwrap_or_default();
        options.logit_bias = body.logit_bias.iter().map(|(id, bias)| (Token(*id), *bias)).collect();
    }
}

pub fn temperature(text: &str) -> Result<f32, String> {
    number_in(text, TEMPERATURE)
}

/// 0 and -1 mean all tokens, as in llama.cpp and others.
fn top_k(text: &str) -> Result<u32, String> {
    if text == "-1" {
        return Ok(0);
    }
    text.parse().map_err(|_| "not a whole number from 0 up, where 0 is all".to_owned())
}

fn seed(text: &str) -> Result<Seed, String> {
    match text {
        "-1" => Ok(Seed::Random),
        text => text
            .parse()
            .map(Seed::At)
            .map_err(|_| format!("not a whole number from 0 to {}, or -1 for one at random", u64::MAX)),
    }
}

/// -1 and -2 mean as many as fit the context, as in llama.cpp.
fn max_tokens(text: &str) -> Result<usize, String> {
    if matches!(text, "-1" | "-2") {
        return Ok(NO_LIMIT);
    }
    let count = text.parse().ok().filter(|count| *count > 0);
    count.ok_or_else(|| "not a whole number from 1 up, or -1 for as long as the context lasts".to_owned())
}

fn share(text: &str) -> Result<f32, String> {
    number_in(text, SHARE)
}

fn repeat_penalty(text: &str) -> Result<f32, String> {
    number_in(text, REPEAT_PENALTY)
}

fn penalty(text: &str) -> Result<f32, String> {
    number_in(text, PENALTY)
}

fn dry_multiplier(text: &str) -> Result<f32, String> {
    number_in(text, DRY_MULTIPLIER)
}

fn last_n(text: &str) -> Result<i32, String> {
    text.parse().ok().filter(|count| *count >= -1).ok_or_else(|| "not a whole number from -1 up".to_owned())
}

/// An unset variable of a shell expands to an empty value.
fn some_text(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("it is empty".to_owned()) } else { Ok(text.to_owned()) }
}

fn number_in(text: &str, range: RangeInclusive<f32>) -> Result<f32, String> {
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("not a number from {} to {}", range.start(), range.end()))
}
