//! `callwright parse`: what a model wrote, read as the engine reads it.

use super::DONE;
use super::input::{ToolsOptions, batch, load_format, load_template_format, stdin_error, tell_of_stdin};
use anyhow::Result;
use callwright::exec::Executor;
use callwright::format::Format;
use callwright::format::event::Event;
use callwright::format::parser::{Parsed, Parser, ParserOptions, ReasoningOutput};
use callwright::message::{Arguments, Message, ToolCall};
use callwright::{Tools, session};
use clap::{Args, ValueEnum};
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::sync::Arc;

/// Read a model's text from standard input and print its calls
#[derive(Args)]
#[command(after_help = "Example:\n  callwright parse --tools tools.json < answer.txt")]
pub struct ParseArgs {
    /// Tool-call format: a built-in name or a file
    #[arg(long, value_name = "NAME|FILE", default_value = "delimited")]
    format: String,

    /// Take the format that this chat template declares, or is seen to write
    #[arg(long, value_name = "FILE", conflicts_with = "format")]
    template: Option<String>,

    #[command(flatten)]
    tools: ToolsOptions,

    /// What the prompt had already opened, such as a start marker or reasoning; the turn's header may stand before it
    #[arg(long, value_name = "TEXT", default_value = "")]
    prompt_tail: String,

    /// The text stops early: show what is known so far
    #[arg(long)]
    partial: bool,

    /// separate: reasoning apart from the text; text: left in it, with its markers
    #[arg(long, value_name = "WHERE", default_value = "separate")]
    reasoning: Reasoning,

    /// Whether departures from the format are mended, or only reported
    #[arg(long, value_name = "on|off", default_value = "on")]
    repair: Repair,

    /// json: one message at the end; events: one JSON object a line, as it is read
    #[arg(long, value_name = "FORM", default_value = "json")]
    output: Output,

    /// Each line is {"template" or "format", "tools", "prompt_tail", "input", "reasoning", "partial"}; each answer is a line
    #[arg(long, conflicts_with_all = ["template", "tools", "prompt_tail", "partial", "output"])]
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

/// One line of `--batch`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    template: Option<String>,
    format: Option<String>,
    tools: Option<Value>,
    #[serde(default)]
    prompt_tail: String,
    input: String,
    reasoning: Option<Reasoning>,
    #[serde(default)]
    partial: bool,
}

pub fn run(args: ParseArgs) -> Result<u8> {
    if args.batch {
        return batch(|case| one(case, &args));
    }
    let format = format(args.template.as_deref(), &args.format)?;
    let tools = args.tools.read(&mut Executor::new())?;
    let tools = (!args.tools.files.is_empty()).then(|| Arc::new(tools));
    let mut out = std::io::stdout();
    let mut failed = None;
    let mut reader = Reader::new(&format, tools, &args.prompt_tail, args.reasoning, args.repair)?;
    tell_of_stdin("the model's text");
    let mut stdin = std::io::stdin().lock();
    let mut buffer = vec![0; 64 * 1024];
    let mut show = |event: &Event| {
        if args.output == Output::Events && failed.is_none() {
            failed = serde_json::to_string(event).map_err(Into::into).and_then(|line| writeln!(out, "{line}")).err();
        }
    };
    loop {
        let count = stdin.read(&mut buffer).map_err(stdin_error)?;
        if count == 0 {
            break;
        }
        reader.push(&buffer[..count], &mut show);
    }
    let message = reader.end(args.partial, &mut show);
    if let Some(error) = failed {
        return Err(error.into());
    }
    if args.output == Output::Json {
        writeln!(out, "{message:#}")?;
    }
    Ok(DONE)
}

fn format(template: Option<&str>, format: &str) -> Result<Format> {
    template.map_or_else(|| Ok(load_format(format)?), load_template_format)
}

fn one(case: Case, args: &ParseArgs) -> Result<Value> {
    let format = format(case.template.as_deref(), case.format.as_ref().unwrap_or(&args.format))?;
    let mut tools = case.tools.as_ref().filter(|tools| !tools.is_null()).map(Tools::from_value).transpose()?;
    let notices = tools.as_mut().map(Tools::take_notices).unwrap_or_default();
    let reasoning = case.reasoning.unwrap_or(args.reasoning);
    let mut reader = Reader::new(&format, tools.map(Arc::new), &case.prompt_tail, reasoning, args.repair)?;
    reader.push(case.input.as_bytes(), &mut |_| ());
    let mut message = reader.end(case.partial, &mut |_| ());
    if !notices.is_empty() {
        message["tools_notices"] = json!(notices);
    }
    Ok(message)
}

/// A parser, and the message that its events have added up to.
struct Reader {
    parser: Parser,
    so_far: Message,
}

impl Reader {
    fn new(
        format: &Format,
        tools: Option<Arc<Tools>>,
        prompt_tail: &str,
        reasoning: Reasoning,
        repair: Repair,
    ) -> Result<Reader> {
        let reasoning = match reasoning {
            Reasoning::Separate => ReasoningOutput::Separate,
            Reasoning::Text => ReasoningOutput::InText,
        };
        let prompt_tail = prompt_tail.to_owned();
        let options =
            ParserOptions { repair: repair == Repair::On, prompt_tail, reasoning, ..ParserOptions::default() };
        Ok(Reader { parser: Parser::new(format, tools, options)?, so_far: Message::assistant("") })
    }

    fn push(&mut self, bytes: &[u8], show: &mut impl FnMut(&Event)) {
        let so_far = &mut self.so_far;
        self.parser.push(bytes, &mut |event| {
            show(&event);
            add(so_far, event);
        });
    }

    /// The message in OpenAI's form, with its diagnostics.
    fn end(self, partial: bool, show: &mut impl FnMut(&Event)) -> Value {
        let (message, notes) = if partial {
            (self.so_far, Vec::new())
        } else {
            let parsed: Parsed = self.parser.finish(&mut |event| show(&event));
            (parsed.message(), session::notes(&parsed))
        };
        let mut value = message.to_json();
        value["diagnostics"] = json!(notes);
        value
    }
}

/// Adds what an event says to the message so far.
fn add(message: &mut Message, event: Event) {
    match event {
        Event::Text { delta } => message.content += &delta,
        Event::Reasoning { delta } => *message.reasoning.get_or_insert_default() += &delta,
        Event::CallStart { id, name } => {
            message.tool_calls.push(ToolCall { id: Some(id), name, arguments: Arguments::Raw(String::new()) });
        }
        Event::CallArguments { delta, .. } => {
            if let Some(Arguments::Raw(text)) = message.tool_calls.last_mut().map(|call| &mut call.arguments) {
                *text += &delta;
            }
        }
        Event::CallEnd { .. } | Event::Repair(_) => {}
    }
}
