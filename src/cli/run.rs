//! `callwright run`: a question and tools in, text and tool calls out.

use super::input::{ConversationOptions, ModelOptions, positive, read_json};
use super::output::{Output, Printer};
use super::{DONE, INTERRUPTED, notice};
use anyhow::{Context, Result};
use callwright::engine::constraint::Mode;
use callwright::engine::sampler::Sampling;
use callwright::format::grammar::{Grammar, json_grammar};
use callwright::models::ModelEntry;
use callwright::session::{FinishReason, Options, Reply, Session};
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Ask a model, with tools at its hand
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    callwright run \"What's the weather in Beijing tomorrow?\" --tools tools.json\n  \
    callwright run -m qwen2.5-1.5b-instruct --messages conversation.json --output json")]
pub struct RunArgs {
    #[command(flatten)]
    conversation: ConversationOptions,

    #[command(flatten)]
    model: ModelOptions,

    #[command(flatten)]
    sampling: SamplingOptions,

    /// End the answer after the first call
    #[arg(long, overrides_with = "parallel", help_heading = "Conversation")]
    no_parallel: bool,

    /// Let the model make several calls in one answer, which is the default
    #[arg(long, help_heading = "Conversation")]
    parallel: bool,

    /// End the answer after this many calls
    #[arg(long, value_name = "N", help_heading = "Conversation", value_parser = positive, allow_negative_numbers = true)]
    max_calls: Option<usize>,

    #[command(flatten)]
    constraint: ConstraintOptions,

    /// The longest answer, in tokens
    #[arg(long, value_name = "N", default_value_t = 1024, help_heading = "Sampling", value_parser = positive, allow_negative_numbers = true)]
    max_tokens: usize,

    /// What standard output gets
    #[arg(long, value_name = "FORM", default_value = "text", help_heading = "Output")]
    output: Output,

    /// Keep the tokens of this run in FILE
    #[arg(long, value_name = "FILE", help_heading = "Output", conflicts_with = "replay")]
    record: Option<PathBuf>,

    /// Repeat a recorded run, without its model: only --output goes with it
    #[arg(long, value_name = "FILE", help_heading = "Output",
          conflicts_with_all = ["prompt", "tools", "messages", "system", "tool_choice", "model", "template", "format"])]
    replay: Option<PathBuf>,
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
                let grammar = json_grammar(&read_json(path)?, false).map_err(|error| error.in_file(path))?;
                grammar.unenforced.iter().for_each(|unenforced| notice(&unenforced.to_string()));
                Ok(Some(grammar))
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

fn temperature(text: &str) -> Result<f32, String> {
    number_in(text, 0.0..=100.0, "a number from 0 to 100")
}

fn share(text: &str) -> Result<f32, String> {
    number_in(text, 0.0..=1.0, "a number from 0 to 1")
}

fn number_in(text: &str, range: std::ops::RangeInclusive<f32>, wanted: &str) -> Result<f32, String> {
    text.parse().ok().filter(|number| range.contains(number)).ok_or_else(|| format!("not {wanted}"))
}

pub fn run(args: RunArgs) -> Result<u8> {
    let mut session = match &args.replay {
        Some(path) => Session::replay(path)?,
        None => open(&args)?,
    };
    // Not before: while a model is fetched or loaded nothing is there to be kept, and Ctrl-C ends the process at once.
    session.options_mut().cancel = cancel_on_signal()?;
    let mut printer = Printer::new(args.output);
    let stop = Arc::clone(&session.options().cancel);
    let reply = session.respond(&mut |event| {
        if !printer.event(event) {
            stop.store(true, Ordering::Relaxed);
        }
    })?;
    // First: an answer that ended because nobody could read it was not interrupted.
    printer.finish(&session, &reply)?;
    tell(&reply);
    Ok(if reply.finish_reason == FinishReason::Cancelled { INTERRUPTED } else { DONE })
}

fn open(args: &RunArgs) -> Result<Session> {
    // Before the model: what is wrong with the input should not take a model's loading to say.
    let (messages, tools, tool_choice) = args.conversation.read()?;
    let grammar = args.constraint.grammar()?;
    let (mut session, entry) = args.model.open(false)?;
    *session.options_mut() = Options {
        sampling: args.sampling.sampling(&entry),
        max_tokens: args.max_tokens,
        tool_choice,
        max_calls: if args.no_parallel { Some(1) } else { args.max_calls },
        constrain: args.constraint.mode(),
        grammar,
        max_preamble: args.constraint.max_preamble,
        max_thinking: args.constraint.max_thinking,
        jump: !args.constraint.no_jump,
        ..Options::default()
    };
    session.set_tools(tools);
    session.notices().iter().for_each(|text| notice(text));
    session.set_messages(messages)?;
    if let Some(path) = &args.record {
        session.record(path)?;
    }
    Ok(session)
}

/// What the reader of the text should know about it.
fn tell(reply: &Reply) {
    for note in &reply.notes {
        notice(&note.message);
    }
    match reply.finish_reason {
        FinishReason::Length => notice("the answer was cut off by --max-tokens or the end of the context"),
        FinishReason::Cancelled => notice("interrupted"),
        FinishReason::Stop | FinishReason::ToolCalls => {}
    }
    let usage = &reply.usage;
    tracing::debug!(
        prompt_tokens = usage.prompt_tokens,
        cached_tokens = usage.cached_tokens,
        completion_tokens = usage.completion_tokens,
        prompt_time = ?usage.prompt_time,
        completion_time = ?usage.completion_time,
        "usage"
    );
}

/// The flag that Ctrl-C raises; a second Ctrl-C does not wait.
fn cancel_on_signal() -> Result<Arc<AtomicBool>> {
    let cancel = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&cancel);
    ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(INTERRUPTED));
        }
    })
    .context("cannot listen for Ctrl-C")?;
    Ok(cancel)
}
