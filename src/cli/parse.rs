//! `callwright parse`: reads a model's text as the engine does.

use super::generation::other_forms;
use super::input::ToolsOptions;
use super::output::in_fields;
use super::stdin::{Source, batch};
use super::{DONE, notice, screen};
use anyhow::Result;
use callwright::Tools;
use callwright::agent::exec::Executor;
use callwright::choose::Reading;
use callwright::format::Format;
use callwright::message::Conversation;
use callwright::parse::event::Event;
use callwright::parse::reader::Reader;
use callwright::parse::{OtherForms, ParserOptions, ReasoningOutput};
use callwright::template::ChatTemplate;
use clap::{Args, ValueEnum};
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

/// The value of `--format` that detects the format.
const AUTO: &str = "auto";

/// Read a model's text and print its calls
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    callwright parse answer.txt --tools tools.json\n  \
    callwright parse --format auto < response.json")]
pub struct ParseArgs {
    /// Read the text from FILE; - or no FILE reads standard input
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    /// Use this tool-call format: a built-in name or a file; auto: detect the text's, or read a server's response as
    /// JSON
    #[arg(long, value_name = "NAME|FILE", default_value = "delimited")]
    format: String,

    /// Use the format that this chat template declares or writes
    #[arg(long, value_name = "FILE", conflicts_with = "format")]
    template: Option<String>,

    #[command(flatten)]
    tools: ToolsOptions,

    /// Assume that the prompt ended with this text, such as a start marker or reasoning, with or without the turn's
    /// header [default: what --template writes there]
    #[arg(long, value_name = "TEXT")]
    prompt_tail: Option<String>,

    /// Show what is known of a text that stops early
    #[arg(long)]
    partial: bool,

    /// Separate the reasoning from the text, or leave it in the text with its markers
    #[arg(long, value_name = "WHERE", default_value = "separate")]
    reasoning: Reasoning,

    /// Repair deviations from the format, or only report them
    #[arg(long, value_name = "on|off", default_value = "on")]
    repair: Repair,

    /// Read calls of known tools in other forms than the format's, such as JSON in a code fence, or only report them
    #[arg(long, value_name = "read|report|off", default_value = "read", value_parser = other_forms())]
    other_forms: OtherForms,

    /// Read the conversation from a file: a call in another form that a tool's result has is a quotation
    #[arg(long, value_name = "FILE")]
    messages: Option<PathBuf>,

    /// Print one message at the end (json), or each event as a line of JSON (events)
    #[arg(long, value_name = "FORM", default_value = "json")]
    output: Output,

    /// Read lines {"template" or "format", "tools", "prompt_tail", "input", "reasoning", "partial", "other_forms",
    /// "messages"} and answer each with a line
    #[arg(long, conflicts_with_all = ["template", "tools", "prompt_tail", "partial", "output", "messages"])]
    batch: bool,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Repair {
    On,
    Off,
}

#[derive(Clone, Copy, PartialEq, ValueEnum, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Reasoning {
    Separate,
    Text,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Output {
    Json,
    Events,
}

/// A line of `--batch`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    template: Option<String>,
    format: Option<String>,
    tools: Option<Value>,
    prompt_tail: Option<String>,
    input: String,
    reasoning: Option<Reasoning>,
    other_forms: Option<OtherForms>,
    #[serde(default)]
    partial: bool,
    messages: Option<Value>,
}

pub fn run(args: ParseArgs) -> Result<u8> {
    if args.batch {
        return batch(Source::open(args.file.as_deref(), "the batch")?, |case| one(case, &args));
    }
    let (format, tail) = format(args.template.as_deref(), &args.format)?;
    let tail = args.prompt_tail.as_deref().unwrap_or(&tail);
    let messages = args.messages.as_ref().map(Conversation::from_file).transpose()?;
    let messages = messages.map(|conversation| conversation.messages).unwrap_or_default();
    let options = options(tail, args.reasoning, args.repair, args.other_forms).answering(&messages);
    let tools = args.tools.read(&mut Executor::default())?;
    let tools = (!args.tools.files.is_empty()).then(|| Arc::new(tools));
    let mut out = screen::data();
    let mut failed = None;
    let mut reader = Reader::new(format.as_ref(), tools, options)?;
    let mut text = Source::open(args.file.as_deref(), "the model's text")?;
    let mut buffer = vec![0; 64 * 1024];
    let mut show = |event: &Event| {
        if args.output == Output::Events && failed.is_none() {
            failed = serde_json::to_string(event).map_err(Into::into).and_then(|line| writeln!(out, "{line}")).err();
        }
    };
    loop {
        let count = text.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        reader.push(&buffer[..count], &mut |event| show(&event));
    }
    let (message, broken) = if args.partial {
        (shown(reader.to_json()), reader.broken_so_far())
    } else {
        let finished = reader.finish(&mut |event| show(&event));
        (shown(finished.to_json()), finished.broken)
    };
    if let Some(broken) = broken.filter(|_| args.output == Output::Events) {
        notice(&broken);
    }
    if let Some(error) = failed {
        return Err(error.into());
    }
    if args.output == Output::Json {
        writeln!(out, "{message:#}")?;
    }
    Ok(DONE)
}

/// The format, `None` where it is detected from the text; and the end of the template's prompts.
fn format(template: Option<&str>, format: &str) -> Result<(Option<Format>, String)> {
    if let Some(template) = template {
        let Reading { format, prompt_tail, .. } = Reading::of_template(&ChatTemplate::load(template)?)?;
        return Ok((Some(format), prompt_tail));
    }
    let format = if format == AUTO { None } else { Some(Format::load(format)?) };
    Ok((format, String::new()))
}

fn options(prompt_tail: &str, reasoning: Reasoning, repair: Repair, other_forms: OtherForms) -> ParserOptions {
    let reasoning = match reasoning {
        Reasoning::Separate => ReasoningOutput::Separate,
        Reasoning::Text => ReasoningOutput::InText,
    };
    ParserOptions::default().with(|set| {
        set.repair = repair == Repair::On;
        set.prompt_tail = prompt_tail.to_owned();
        set.reasoning = reasoning;
        set.other_forms = other_forms;
    })
}

fn one(case: Case, args: &ParseArgs) -> Result<Value> {
    let (format, tail) = format(case.template.as_deref(), case.format.as_ref().unwrap_or(&args.format))?;
    let mut tools = case.tools.as_ref().filter(|tools| !tools.is_null()).map(Tools::from_value).transpose()?;
    let notices = tools.as_mut().map(Tools::take_notices).unwrap_or_default();
    let reasoning = case.reasoning.unwrap_or(args.reasoning);
    let tail = case.prompt_tail.unwrap_or(tail);
    let options = options(&tail, reasoning, args.repair, case.other_forms.unwrap_or(args.other_forms));
    let messages = case.messages.map(Conversation::from_value).transpose()?;
    let options = options.answering(&messages.map(|conversation| conversation.messages).unwrap_or_default());
    let mut reader = Reader::new(format.as_ref(), tools.map(Arc::new), options)?;
    reader.push(case.input.as_bytes(), &mut |_| ());
    let mut message = match case.partial {
        true => shown(reader.to_json()),
        false => shown(reader.finish(&mut |_| ()).to_json()),
    };
    if !notices.is_empty() {
        message["tools_notices"] = json!(notices);
    }
    Ok(message)
}

/// A message whose diagnostics have the names of the command line's options.
fn shown(mut message: Value) -> Value {
    for note in message["diagnostics"].as_array_mut().into_iter().flatten() {
        *note = in_fields(note.take(), &["message"]);
    }
    message
}
