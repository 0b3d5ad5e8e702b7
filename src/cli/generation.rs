//! The options that say how an answer is generated.

use super::input::positive;
use anyhow::Result;
use callwright::engine::constraint::Mode;
use callwright::engine::sampler::Sampling;
use callwright::format::grammar::{Grammar, json_grammar};
use callwright::format::parser::OtherForms;
use callwright::json::from_file;
use callwright::models::ModelEntry;
use callwright::session::{ContextPolicy, Options, ToolChoice};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// How an answer is generated.
#[derive(Args)]
pub struct GenerationOptions {
    #[command(flatten)]
    sampling: SamplingOptions,

    /// End the answer after the first call
    #[arg(long, overrides_with = "parallel", help_heading = "Conversation")]
    no_parallel: bool,

    /// Let the model make several calls in one answer, which is the default
    #[arg(long, help_heading = "Conversation")]
    parallel: bool,

    /// End the answer after this many calls [default: 16 with --execute; else after 16 times the same call]
    #[arg(long, value_name = "N", help_heading = "Conversation", value_parser = positive, allow_negative_numbers = true)]
    max_calls: Option<usize>,

    /// Report what departs from the format, and do not mend it: such a call is invalid
    #[arg(long, help_heading = "Conversation")]
    no_repair: bool,

    /// Report a value of another type than the schema wants, and do not convert it
    #[arg(long, help_heading = "Conversation")]
    no_coerce: bool,

    /// Report a tool's name in other case or with other separators, and do not put it right
    #[arg(long, help_heading = "Conversation")]
    no_normalize: bool,

    /// Calls in another form than the format's, such as JSON in a code fence: read those of known tools, or report them only
    #[arg(long, value_name = "read|report|off", default_value = "read", help_heading = "Conversation")]
    other_forms: OtherFormsArg,

    /// Where the conversation does not fit the context: show the model less of old results and turns, or end
    #[arg(long, value_name = "shorten|error", default_value = "shorten", help_heading = "Conversation")]
    context_policy: Policy,

    #[command(flatten)]
    constraint: ConstraintOptions,

    /// The longest answer, in tokens
    #[arg(long, value_name = "N", default_value_t = 1024, help_heading = "Sampling", value_parser = positive, allow_negative_numbers = true)]
    max_tokens: usize,
}

/// What becomes of calls in another form than the format's.
#[derive(Clone, Copy, PartialEq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OtherFormsArg {
    Read,
    Report,
    Off,
}

impl From<OtherFormsArg> for OtherForms {
    fn from(given: OtherFormsArg) -> OtherForms {
        match given {
            OtherFormsArg::Read => OtherForms::Read,
            OtherFormsArg::Report => OtherForms::Report,
            OtherFormsArg::Off => OtherForms::Off,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum Policy {
    Shorten,
    Error,
}

impl GenerationOptions {
    /// The grammar of the whole answer, if there is one.
    pub fn grammar(&self) -> Result<Option<Grammar>> {
        self.constraint.grammar()
    }

    /// A session's options for this model.
    pub fn options(&self, entry: &ModelEntry, tool_choice: ToolChoice, grammar: Option<Grammar>) -> Options {
        Options {
            sampling: self.sampling.sampling(entry),
            max_tokens: self.max_tokens,
            tool_choice,
            max_calls: if self.no_parallel { Some(1) } else { self.max_calls },
            context: match self.context_policy {
                Policy::Shorten => ContextPolicy::Shorten,
                Policy::Error => ContextPolicy::Error,
            },
            constrain: self.constraint.mode(),
            grammar,
            max_preamble: self.constraint.max_preamble,
            max_thinking: self.constraint.max_thinking,
            jump: !self.constraint.no_jump,
            draft: !self.constraint.no_draft,
            repair: !self.no_repair,
            coerce: !self.no_coerce,
            normalize_names: !self.no_normalize,
            other_forms: self.other_forms.into(),
            ..Options::default()
        }
    }
}

/// How the model is held to the format.
#[derive(Args)]
struct ConstraintOptions {
    /// Hold calls to the format and the tools' schemas; strict: end with an error rather than go on without
    #[arg(long, value_name = "off|auto|strict", default_value = "auto", help_heading = "Constraint")]
    constrain: Constrain,

    /// Where a call is required, let the model write up to N tokens before it
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Constraint", allow_negative_numbers = true)]
    max_preamble: usize,

    /// Close reasoning after N tokens
    #[arg(long, value_name = "N", help_heading = "Constraint", allow_negative_numbers = true)]
    max_thinking: Option<usize>,

    /// Ask the model even where the grammar leaves no choice
    #[arg(long, help_heading = "Constraint")]
    no_jump: bool,

    /// Do not decode ahead what a call may repeat of the conversation
    #[arg(long, help_heading = "Constraint")]
    no_draft: bool,

    /// Hold the whole answer to a grammar, in llguidance's Lark or in GBNF
    #[arg(long, value_name = "FILE", help_heading = "Constraint", conflicts_with_all = ["json_schema", "tools"])]
    grammar: Option<PathBuf>,

    /// Hold the whole answer to JSON that fits a schema
    #[arg(long, value_name = "FILE", help_heading = "Constraint", conflicts_with = "tools")]
    json_schema: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Constrain {
    Off,
    Auto,
    Strict,
}

impl ConstraintOptions {
    fn mode(&self) -> Mode {
        match self.constrain {
            Constrain::Off => Mode::Off,
            Constrain::Auto => Mode::Auto,
            Constrain::Strict => Mode::Strict,
        }
    }

    fn grammar(&self) -> Result<Option<Grammar>> {
        match (&self.grammar, &self.json_schema) {
            (Some(path), _) => Ok(Some(Grammar::from_file(path)?)),
            (None, Some(path)) => {
                Ok(Some(json_grammar(&from_file(path)?, false).map_err(|error| error.in_file(path))?))
            }
            (None, None) => Ok(None),
        }
    }
}

/// How tokens are chosen.
#[derive(Args)]
struct SamplingOptions {
    /// Temperature; 0 always takes the likeliest token [default: the model's in models.toml, or 0]
    #[arg(long, value_name = "X", help_heading = "Sampling", value_parser = temperature, allow_negative_numbers = true)]
    temp: Option<f32>,

    /// Choose among the likeliest tokens that together reach this probability [default: 0.95]
    #[arg(long, value_name = "X", help_heading = "Sampling", value_parser = share, allow_negative_numbers = true)]
    top_p: Option<f32>,

    /// Choose among this many of the likeliest tokens; 0 is all [default: 40]
    #[arg(long, value_name = "N", help_heading = "Sampling", allow_negative_numbers = true)]
    top_k: Option<usize>,

    /// Choose among tokens at least this times as likely as the likeliest [default: 0.05]
    #[arg(long, value_name = "X", help_heading = "Sampling", value_parser = share, allow_negative_numbers = true)]
    min_p: Option<f32>,

    /// Where the random numbers start
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Sampling", allow_negative_numbers = true)]
    seed: u64,
}

impl SamplingOptions {
    fn sampling(&self, entry: &ModelEntry) -> Sampling {
        let (default, makers) = (Sampling::default(), &entry.sampling);
        Sampling {
            temperature: self.temp.or(makers.temperature).unwrap_or(default.temperature),
            top_k: self.top_k.or(makers.top_k.map(|k| k as usize)).unwrap_or(default.top_k),
            top_p: self.top_p.or(makers.top_p).unwrap_or(default.top_p),
            min_p: self.min_p.or(makers.min_p).unwrap_or(default.min_p),
            seed: self.seed,
        }
    }
}

pub fn temperature(text: &str) -> Result<f32, String> {
    number_in(text, 0.0..=100.0, "a number from 0 to 100")
}

fn share(text: &str) -> Result<f32, String> {
    number_in(text, 0.0..=1.0, "a number from 0 to 1")
}

fn number_in(text: &str, range: std::ops::RangeInclusive<f32>, wanted: &str) -> Result<f32, String> {
    text.parse().ok().filter(|number| range.contains(number)).ok_or_else(|| format!("not {wanted}"))
}
