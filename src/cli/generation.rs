//! The options for generating an answer.

use super::input::{Asked, positive, read_schema};
use super::notice;
use super::sampling::SamplingOptions;
use anyhow::Result;
use callwright::constraint::Mode;
use callwright::grammar::{Grammar, json_grammar};
use callwright::models::ModelEntry;
use callwright::parse::OtherForms;
use callwright::session::{ContextPolicy, Options, ToolChoice};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde::de::value::Error as NoSuchValue;
use serde::de::{DeserializeOwned, IntoDeserializer};
use std::path::PathBuf;

/// The options for generating an answer.
#[derive(Args)]
pub struct GenerationOptions {
    #[command(flatten)]
    sampling: SamplingOptions,

    /// End the answer after the first call
    #[arg(long, overrides_with = "parallel", help_heading = "Conversation")]
    no_parallel: bool,

    /// Let the model make several calls in one answer (the default)
    #[arg(long, help_heading = "Conversation")]
    parallel: bool,

    /// End the answer after this many calls [default: 16 with --execute; else no limit]
    #[arg(long, value_name = "N", help_heading = "Conversation", value_parser = positive, allow_negative_numbers = true)]
    max_calls: Option<usize>,

    /// Let the answer repeat itself: the same text without end, or a call that it has made before
    #[arg(long, help_heading = "Conversation")]
    no_loop_guard: bool,

    /// Let the model write text after its calls, which otherwise ends the answer
    #[arg(long, help_heading = "Conversation")]
    text_after_calls: bool,

    /// Report deviations from the format without repairing them: such a call is invalid
    #[arg(long, help_heading = "Conversation")]
    no_repair: bool,

    /// Report a value of a wrong type without converting it
    #[arg(long, help_heading = "Conversation")]
    no_coerce: bool,

    /// Report a tool's name in other case or with other separators without correcting it
    #[arg(long, help_heading = "Conversation")]
    no_normalize: bool,

    /// Read calls of known tools in other forms than the format's, such as JSON in a code fence (read), or only report them [default: read, but ask before such a call of a tool that changes something is executed]
    #[arg(long, value_name = "read|report|off", value_parser = other_forms(), help_heading = "Conversation")]
    other_forms: Option<OtherForms>,

    /// Shorten old results and turns if the conversation does not fit the context, or end with an error
    #[arg(long, value_name = "shorten|error", default_value = "shorten", value_parser = one_of::<ContextPolicy>(["shorten", "error"]), help_heading = "Conversation")]
    context_policy: ContextPolicy,

    #[command(flatten)]
    constraint: ConstraintOptions,
}

impl GenerationOptions {
    /// Returns whether calls in other forms are executed like those in the format.
    pub fn trusts_other_forms(&self) -> bool {
        self.other_forms == Some(OtherForms::Read)
    }

    /// The grammar of the whole answer, if any.
    pub fn grammar(&self) -> Result<Option<Grammar>> {
        self.constraint.grammar()
    }

    /// A session's options for this model and this request body. Reports which fields of the body are not used.
    pub fn options(
        &self,
        entry: &ModelEntry,
        choice: ToolChoice,
        mut asked: Asked,
        grammar: Option<Grammar>,
    ) -> Options {
        let replaced = &mut asked.replaced;
        let given = self.parallel || self.no_parallel || self.max_calls.is_some();
        let parallel =
            replaced.pick("parallel_tool_calls", given.then_some(!self.no_parallel), asked.body.parallel_tool_calls);
        let own_grammar = grammar.is_some().then_some(None);
        let response_format =
            replaced.pick("response_format", own_grammar, asked.body.response_format.take().map(Some)).flatten();
        let mut options = Options {
            tool_choice: choice,
            max_calls: if parallel == Some(false) { Some(1) } else { self.max_calls },
            loop_guard: !self.no_loop_guard,
            text_after_calls: self.text_after_calls,
            context: self.context_policy,
            constrain: self.constraint.constrain,
            call_threshold: self.constraint.call_threshold.or(entry.call_threshold),
            no_call_below: self.constraint.no_call_below.or(entry.no_call_below),
            grammar,
            response_format,
            max_preamble: self.constraint.max_preamble,
            max_thinking: self.constraint.max_thinking,
            jump: !self.constraint.no_jump,
            draft: !self.constraint.no_draft,
            repair: !self.no_repair,
            coerce: !self.no_coerce,
            normalize_names: !self.no_normalize,
            other_forms: self.other_forms.unwrap_or_default(),
            ..Options::default()
        };
        self.sampling.apply(&entry.sampling, &asked.body, replaced, &mut options);
        asked.replaced.tell();
        let held = options.grammar.is_some() || options.response_format.is_some();
        let in_vain = [
            (!options.stop.is_empty(), "stop texts"),
            (options.sampling.penalties.is_active(), "penalties for repetition"),
        ];
        let in_vain: Vec<&str> = in_vain.iter().filter(|(given, _)| *given).map(|(_, what)| *what).collect();
        if held && options.constrain != Mode::Off && !in_vain.is_empty() {
            notice(&format!("{} change nothing: a grammar holds the whole answer", in_vain.join(" and ")));
        }
        options
    }
}

/// The options for constraining the model.
#[derive(Args)]
struct ConstraintOptions {
    /// Constrain calls to the format and the tools' schemas; strict: end with an error if that is impossible
    #[arg(long, value_name = "off|auto|strict", default_value = "auto", value_parser = mode(), help_heading = "Constraint")]
    constrain: Mode,

    /// Require a call in an answer to the user where the probability of one is at least P, from 0 to 1; below it, the
    /// model decides [default: the model's in models.toml, or never]
    #[arg(long, value_name = "P", value_parser = probability, help_heading = "Constraint", allow_negative_numbers = true)]
    call_threshold: Option<f64>,

    /// Forbid calls in an answer to the user where the probability of one is below P
    #[arg(long, value_name = "P", value_parser = probability, help_heading = "Constraint", allow_negative_numbers = true)]
    no_call_below: Option<f64>,

    /// Allow up to N tokens of text before the first call; then force a required call, or suppress an optional one
    /// [default: 0 before a required call; else no limit]
    #[arg(long, value_name = "N", help_heading = "Constraint", allow_negative_numbers = true)]
    max_preamble: Option<usize>,

    /// End reasoning after N tokens
    #[arg(long, value_name = "N", help_heading = "Constraint", allow_negative_numbers = true)]
    max_thinking: Option<usize>,

    /// Evaluate the model even where the grammar leaves no choice
    #[arg(long, help_heading = "Constraint")]
    no_jump: bool,

    /// Turn off drafts: of text that a call may repeat from the conversation
    #[arg(long, help_heading = "Constraint")]
    no_draft: bool,

    /// Constrain the whole answer to a grammar, in llguidance's Lark or in GBNF
    #[arg(long, value_name = "FILE", help_heading = "Constraint", conflicts_with_all = ["json_schema", "tools"])]
    grammar: Option<PathBuf>,

    /// Constrain the whole answer to JSON that fits a schema
    #[arg(long, value_name = "FILE", help_heading = "Constraint", conflicts_with = "tools")]
    json_schema: Option<PathBuf>,
}

/// Reads a value of the library's by one of the names that serde gives its values.
pub fn one_of<T>(names: impl Into<PossibleValuesParser>) -> impl TypedValueParser<Value = T>
where
    T: DeserializeOwned + Clone + Send + Sync + 'static,
{
    names.into().try_map(|name| T::deserialize(IntoDeserializer::<NoSuchValue>::into_deserializer(name)))
}

/// Reads how strictly calls are constrained to the format.
pub fn mode() -> impl TypedValueParser<Value = Mode> {
    one_of(["off", "auto", "strict"])
}

/// Reads how to treat calls in other forms than the format's.
pub fn other_forms() -> impl TypedValueParser<Value = OtherForms> {
    one_of(["read", "report", "off"])
}

/// A probability, of a call.
pub fn probability(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.0..=1.0).contains(number));
    number.ok_or_else(|| "not a probability from 0 to 1".to_owned())
}

impl ConstraintOptions {
    fn grammar(&self) -> Result<Option<Grammar>> {
        match (&self.grammar, &self.json_schema) {
            (Some(path), _) => Ok(Some(Grammar::from_file(path)?)),
            (None, Some(path)) => {
                Ok(Some(json_grammar(&read_schema(path)?, false).map_err(|error| error.in_file(path))?))
            }
            (None, None) => Ok(None),
        }
    }
}
