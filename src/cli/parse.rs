//! `callwright parse`: reads a model's text as the engine does.

use super::generation::OtherFormsArg;
use super::input::ToolsOptions;
use super::option_names::in_fields;
use super::stdin::{Source, batch};
use super::{DONE, notice};
use anyhow::Result;
use callwright::agent::exec::Executor;
use callwright::format::Format;
use callwright::message::{Arguments, Message, ToolCall};
use callwright::parse::auto::AutoParser;
use callwright::parse::event::{Event, InvalidCall};
use callwright::parse::{Parsed, Parser, ParserOptions, ReasoningOutput};
use callwright::template::ChatTemplate;
use callwright::{Tools, session};
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
    /// header
    #[arg(long, value_name = "TEXT", default_value = "")]
    prompt_tail: String,

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
    #[arg(long, value_name = "read|report|off", default_value = "read")]
    other_forms: OtherFormsArg,

    /// Print one message at the end (json), or each event as a line of JSON (events)
    #[arg(long, value_name = "FORM", default_value = "json")]
    output: Output,

    /// Read lines {"template" or "format", "tools", "prompt_tail", "input", "reasoning", "partial", "other_forms"} and
    /// answer each with a line
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

/// A line of `--batch`.
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
    other_forms: Option<OtherFormsArg>,
    #[serde(default)]
    partial: bool,
}

pub fn run(args: ParseArgs) -> Result<u8> {
    if args.batch {
        return batch(Source::open(args.file.as_deref(), "the batch")?, |case| one(case, &args));
    }
    let format = format(args.template.as_deref(), &args.format)?;
    let options = options(&args.prompt_tail, args.reasoning, args.repair, args.other_forms);
    let tools = args.tools.read(&mut Executor::default())?;
    let tools = (!args.tools.files.is_empty()).then(|| Arc::new(tools));
    let mut out = std::io::stdout();
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
        reader.push(&buffer[..count], &mut show)?;
    }
    if let Some(note) = reader.encoding.end(args.partial).filter(|_| args.output == Output::Events) {
        notice(&note.message);
    }
    let message = reader.end(args.partial, &mut show)?;
    if let Some(error) = failed {
        return Err(error.into());
    }
    if args.output == Output::Json {
        writeln!(out, "{message:#}")?;
    }
    Ok(DONE)
}

/// The format; `None` where it is detected from the text.
fn format(template: Option<&str>, format: &str) -> Result<Option<Format>> {
    match template {
        Some(template) => Ok(Some(Format::of_template(&ChatTemplate::load(template)?)?)),
        None if format == AUTO => Ok(None),
        None => Ok(Some(Format::load(format)?)),
    }
}

fn options(prompt_tail: &str, reasoning: Reasoning, repair: Repair, other_forms: OtherFormsArg) -> ParserOptions {
    let reasoning = match reasoning {
        Reasoning::Separate => ReasoningOutput::Separate,
        Reasoning::Text => ReasoningOutput::InText,
    };
    ParserOptions::default().with(|set| {
        set.repair = repair == Repair::On;
        set.prompt_tail = prompt_tail.to_owned();
        set.reasoning = reasoning;
        set.other_forms = other_forms.into();
    })
}

fn one(case: Case, args: &ParseArgs) -> Result<Value> {
    let format = format(case.template.as_deref(), case.format.as_ref().unwrap_or(&args.format))?;
    let mut tools = case.tools.as_ref().filter(|tools| !tools.is_null()).map(Tools::from_value).transpose()?;
    let notices = tools.as_mut().map(Tools::take_notices).unwrap_or_default();
    let reasoning = case.reasoning.unwrap_or(args.reasoning);
    let options = options(&case.prompt_tail, reasoning, args.repair, case.other_forms.unwrap_or(args.other_forms));
    let mut reader = Reader::new(format.as_ref(), tools.map(Arc::new), options)?;
    reader.push(case.input.as_bytes(), &mut |_| ())?;
    let mut message = reader.end(case.partial, &mut |_| ())?;
    if !notices.is_empty() {
        message["tools_notices"] = json!(notices);
    }
    Ok(message)
}

/// A parser, and the message that its events make.
struct Reader {
    parser: Either,
    encoding: Encoding,
    so_far: Message,
    /// Calls without a name.
    invalid: Vec<InvalidCall>,
}

enum Either {
    Of(Box<Parser>),
    Auto(Box<AutoParser>),
}

impl Reader {
    fn new(format: Option<&Format>, tools: Option<Arc<Tools>>, options: ParserOptions) -> Result<Reader> {
        let parser = match format {
            Some(format) => Either::Of(Box::new(Parser::new(format, tools, options)?)),
            None => Either::Auto(Box::new(AutoParser::new(tools, options))),
        };
        Ok(Reader { parser, encoding: Encoding::default(), so_far: Message::assistant(""), invalid: Vec::new() })
    }

    fn push(&mut self, bytes: &[u8], show: &mut impl FnMut(&Event)) -> Result<()> {
        self.encoding.push(bytes);
        let (so_far, invalid) = (&mut self.so_far, &mut self.invalid);
        let mut hear = |event: Event| {
            show(&event);
            match event {
                Event::InvalidCall(call) => invalid.push(call),
                event => add(so_far, event),
            }
        };
        match &mut self.parser {
            Either::Of(parser) => parser.push(bytes, &mut hear),
            Either::Auto(parser) => parser.push(bytes, &mut hear)?,
        }
        Ok(())
    }

    /// The message in OpenAI's form, with its diagnostics.
    fn end(mut self, partial: bool, show: &mut impl FnMut(&Event)) -> Result<Value> {
        let broken = self.encoding.end(partial);
        let mut value = self.message(partial, show)?;
        if let (Some(note), Some(Value::Array(notes))) = (broken, value.get_mut("diagnostics")) {
            notes.insert(0, json!(note));
        }
        Ok(value)
    }

    fn message(self, partial: bool, show: &mut impl FnMut(&Event)) -> Result<Value> {
        if partial {
            let mut value = self.so_far.to_json();
            if !self.invalid.is_empty() {
                value["invalid_tool_calls"] = json!(self.invalid);
            }
            return Ok(with_notes(value, &[], None));
        }
        let mut hear = |event: Event| show(&event);
        let (parsed, origin): (Parsed, _) = match self.parser {
            Either::Of(parser) => (parser.finish(&mut hear), None),
            Either::Auto(parser) => {
                let (parsed, origin) = parser.finish(&mut hear)?;
                (parsed, Some(origin))
            }
        };
        Ok(with_notes(parsed.to_json(), &session::notes(&parsed), origin))
    }
}

fn with_notes(mut value: Value, notes: &[session::Note], origin: Option<&str>) -> Value {
    if let Some(origin) = origin {
        value["format"] = json!(origin);
    }
    value["diagnostics"] = notes.iter().map(|note| in_fields(json!(note), &["message"])).collect();
    value
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
        _ => {}
    }
}

/// Finds bytes that are not UTF-8 in a text that arrives in pieces.
#[derive(Default)]
struct Encoding {
    /// The first bytes of an incomplete character.
    begun: Vec<u8>,
    /// The number of bytes before it.
    at: usize,
    /// The first such place, and the number of places.
    broken: Option<(usize, usize)>,
}

impl Encoding {
    fn push(&mut self, bytes: &[u8]) {
        if self.begun.is_empty() && bytes.is_ascii() {
            self.at += bytes.len();
            return;
        }
        self.begun.extend_from_slice(bytes);
        loop {
            match std::str::from_utf8(&self.begun) {
                Ok(text) => return self.take(text.len()),
                Err(error) => {
                    self.take(error.valid_up_to());
                    let Some(length) = error.error_len() else { return };
                    self.found();
                    self.take(length);
                }
            }
        }
    }

    fn take(&mut self, count: usize) {
        self.begun.drain(..count);
        self.at += count;
    }

    fn found(&mut self) {
        self.broken.get_or_insert((self.at, 0)).1 += 1;
    }

    /// The note about it. An incomplete last character is allowed where the text is `partial`.
    fn end(&mut self, partial: bool) -> Option<session::Note> {
        if !partial && !std::mem::take(&mut self.begun).is_empty() {
            self.found();
        }
        let (at, count) = self.broken?;
        let more = match count {
            1 => String::new(),
            2 => ", and at one place more".to_owned(),
            count => format!(", and at {} places more", count - 1),
        };
        let message = format!("byte {at}: not valid UTF-8 here{more}; it is read as U+FFFD");
        Some(session::Note::plain("diagnostic", message))
    }
}
