//! Reading a model's text, at once or as a stream.

use crate::source;
use callwright_core::choose::{Clues, format_for};
use callwright_core::parse::event::Event;
use callwright_core::parse::reader::{Finished, Reader};
use callwright_core::parse::{OtherForms, ParserOptions, ReasoningOutput};
use callwright_core::setting::Setting;
use callwright_core::tool::Notice;
use callwright_core::{Error, ErrorKind, Format, Result, Tools};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// How to read a text.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct ParseOptions {
    /// A format's name, its declaration or its file; `auto` detects the format.
    pub format: Option<String>,
    /// A chat template, in place of a format: its format is used.
    pub template: Option<String>,
    /// How the prompt ended.
    pub prompt_tail: String,
    /// `separate` or `text`.
    pub reasoning: String,
    /// Whether to repair deviations from the format.
    pub repair: bool,
    /// `read`, `report` or `off`.
    pub other_forms: String,
    /// Whether the text may go on.
    pub partial: bool,
}

impl Default for ParseOptions {
    fn default() -> ParseOptions {
        ParseOptions {
            format: None,
            template: None,
            prompt_tail: String::new(),
            reasoning: "separate".to_owned(),
            repair: true,
            other_forms: "read".to_owned(),
            partial: false,
        }
    }
}

impl ParseOptions {
    fn format(&self) -> Result<Option<Format>> {
        match (&self.template, self.format.as_deref().filter(|format| *format != source::AUTO)) {
            (Some(_), Some(format)) => {
                let message = format!("both a template and the format {format:?} are given");
                Err(Error::new(ErrorKind::Config, message).hint("leave one out: a template says its format"))
            }
            // The one that `render` writes into a prompt, also where the template writes none.
            (Some(template), None) => {
                Ok(Some(format_for(&source::template(template)?, None, Clues::default())?.format))
            }
            (None, format) => source::format(format.unwrap_or(source::AUTO)),
        }
    }

    fn parser(&self) -> Result<ParserOptions> {
        let reasoning = one_of(
            "reasoning",
            &self.reasoning,
            &[("separate", ReasoningOutput::Separate), ("text", ReasoningOutput::InText)],
        )?;
        let other_forms = one_of(
            "other_forms",
            &self.other_forms,
            &[("read", OtherForms::Read), ("report", OtherForms::Report), ("off", OtherForms::Off)],
        )?;
        Ok(ParserOptions::default().with(|set| {
            set.repair = self.repair;
            set.prompt_tail.clone_from(&self.prompt_tail);
            set.reasoning = reasoning;
            set.other_forms = other_forms;
        }))
    }
}

fn one_of<T: Copy>(option: &str, given: &str, known: &[(&str, T)]) -> Result<T> {
    known.iter().find(|(name, _)| *name == given).map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        Error::new(ErrorKind::Config, format!("{option} is {given:?}; expected one of: {}", names.join(", ")))
    })
}

/// A text that is read while it arrives.
#[derive(Debug)]
pub struct Stream {
    state: State,
    notices: Vec<Notice>,
}

#[derive(Debug)]
enum State {
    Open(Box<Reader>),
    /// The message.
    Ended(Value),
}

impl Stream {
    /// Begins a text. Without tools nothing is checked against a schema.
    ///
    /// # Errors
    /// Of an option, a format or a template.
    pub fn new(tools: Option<Tools>, options: &ParseOptions) -> Result<Stream> {
        let mut tools = tools;
        let notices = tools.as_mut().map(Tools::take_notices).unwrap_or_default();
        let reader = Reader::new(options.format()?.as_ref(), tools.map(Arc::new), options.parser()?)?;
        Ok(Stream { state: State::Open(Box::new(reader)), notices })
    }

    /// Reads the next piece, and returns its events.
    ///
    /// # Errors
    /// After the end.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Vec<Event>> {
        let mut events = Vec::new();
        match &mut self.state {
            State::Open(reader) => reader.push(bytes, &mut |event| events.push(event)),
            State::Ended(_) => {
                let error = Error::new(ErrorKind::Config, "the text has ended: a parser reads one answer");
                return Err(error.hint("make a new parser for each answer"));
            }
        }
        Ok(events)
    }

    /// Ends the text, and returns the last events. A second end does nothing.
    pub fn finish(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        let state = std::mem::replace(&mut self.state, State::Ended(Value::Null));
        self.state = State::Ended(match state {
            State::Open(reader) => {
                let finished = reader.finish(&mut |event| events.push(event));
                with_notices(with_runnable(&finished), &self.notices)
            }
            State::Ended(message) => message,
        });
        events
    }

    /// The calls that may be executed: complete ones that fit their tools. None before the end.
    pub fn runnable_calls(&self) -> Vec<Value> {
        let State::Ended(message) = &self.state else { return Vec::new() };
        let calls = message["tool_calls"].as_array().into_iter().flatten();
        calls.filter(|call| call["runnable"] == true).cloned().collect()
    }

    /// The message in OpenAI's form: so far, or with its diagnostics after the end.
    pub fn message(&self) -> Value {
        match &self.state {
            State::Open(reader) => with_notices(reader.to_json(), &self.notices),
            State::Ended(message) => message.clone(),
        }
    }
}

/// Reads a whole text to its message.
///
/// # Errors
/// As for [`Stream::new`].
pub fn parse(text: &[u8], tools: Option<Tools>, options: &ParseOptions) -> Result<Value> {
    let mut stream = Stream::new(tools, options)?;
    stream.feed(text)?;
    if !options.partial {
        stream.finish();
    }
    Ok(stream.message())
}

/// The message with a flag on each complete call: whether it may be executed.
fn with_runnable(finished: &Finished) -> Value {
    let mut message = finished.to_json();
    let runnable = |id: &Value| finished.parsed.calls.iter().any(|call| *id == call.id && call.is_runnable());
    for call in message.get_mut("tool_calls").and_then(Value::as_array_mut).into_iter().flatten() {
        call["runnable"] = json!(runnable(&call["id"]));
    }
    message
}

/// The message with what was changed of the tools. A departure names the option of these packages.
fn with_notices(mut message: Value, notices: &[Notice]) -> Value {
    for note in message["diagnostics"].as_array_mut().into_iter().flatten() {
        if let Value::String(text) = &mut note["message"] {
            *text = text.replace(Setting::Format.name(), "the option `format`");
        }
    }
    if !notices.is_empty() {
        message["tools_notices"] = json!(notices);
    }
    message
}
