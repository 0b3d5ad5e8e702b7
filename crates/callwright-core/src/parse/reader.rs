//! A text read to its message: in a known format or an unknown one, with what is known of the message at any time.
//!
//! The program and the packages for other languages read texts with this, so that they say the same of one text.

use super::auto::AutoParser;
use super::event::{Event, InvalidCall};
use super::{Note, NoteKind, Parsed, Parser, ParserOptions, notes};
use crate::error::Result;
use crate::format::Format;
use crate::message::{Arguments, Message, ToolCall};
use crate::tool::Tools;
use serde_json::{Value, json};
use std::sync::Arc;

/// A parser, and the message that its events make.
#[derive(Debug)]
pub struct Reader {
    parser: Either,
    encoding: Encoding,
    so_far: Message,
    /// Calls without a name.
    invalid: Vec<InvalidCall>,
}

#[derive(Debug)]
enum Either {
    Of(Box<Parser>),
    Auto(Box<AutoParser>),
}

/// A text that was read to its end.
#[derive(Debug)]
pub struct Finished {
    /// The result.
    pub parsed: Parsed,
    /// A sentence about bytes that are not UTF-8.
    pub broken: Option<String>,
}

impl Reader {
    /// A reader of a text in `format`; without one, the format is detected from the text.
    ///
    /// # Errors
    /// As for [`Parser::new`].
    pub fn new(format: Option<&Format>, tools: Option<Arc<Tools>>, options: ParserOptions) -> Result<Reader> {
        let parser = match format {
            Some(format) => Either::Of(Box::new(Parser::new(format, tools, options)?)),
            None => Either::Auto(Box::new(AutoParser::new(tools, options)?)),
        };
        Ok(Reader { parser, encoding: Encoding::default(), so_far: Message::assistant(""), invalid: Vec::new() })
    }

    /// Takes the next bytes, and passes their events to `emit`.
    pub fn push(&mut self, bytes: &[u8], emit: &mut impl FnMut(Event)) {
        self.encoding.push(bytes);
        let (so_far, invalid) = (&mut self.so_far, &mut self.invalid);
        let mut hear = |event: Event| {
            match &event {
                Event::InvalidCall(call) => invalid.push(call.clone()),
                event => add(so_far, event),
            }
            emit(event);
        };
        match &mut self.parser {
            Either::Of(parser) => parser.push(bytes, &mut hear),
            Either::Auto(parser) => parser.push(bytes, &mut hear),
        }
    }

    /// Returns the message so far, in OpenAI's form with its diagnostics.
    pub fn to_json(&self) -> Value {
        let mut value = self.so_far.to_json();
        if !self.invalid.is_empty() {
            value["invalid_tool_calls"] = json!(self.invalid);
        }
        with_notes(value, None, self.broken_so_far(), Vec::new())
    }

    /// A sentence about bytes so far that are not UTF-8.
    pub fn broken_so_far(&self) -> Option<String> {
        self.encoding.sentence()
    }

    /// Ends the text.
    pub fn finish(mut self, emit: &mut impl FnMut(Event)) -> Finished {
        self.encoding.end();
        let broken = self.encoding.sentence();
        let parsed = match self.parser {
            Either::Of(parser) => parser.finish(emit),
            Either::Auto(parser) => parser.finish(emit),
        };
        Finished { parsed, broken }
    }
}

impl Finished {
    /// Returns the message in OpenAI's form, with the format that was detected and the message's diagnostics.
    pub fn to_json(&self) -> Value {
        with_notes(self.parsed.to_json(), self.parsed.origin, self.broken.clone(), notes(&self.parsed))
    }
}

fn with_notes(mut message: Value, origin: Option<&str>, broken: Option<String>, notes: Vec<Note>) -> Value {
    if let Some(origin) = origin {
        message["format"] = json!(origin);
    }
    let broken = broken.map(|broken| Note::plain(NoteKind::Diagnostic, broken));
    message["diagnostics"] = broken.into_iter().chain(notes).map(|note| json!(note)).collect();
    message
}

/// Adds what an event says to the message so far.
fn add(message: &mut Message, event: &Event) {
    match event {
        Event::Text { delta } => message.content += delta,
        Event::Reasoning { delta } => *message.reasoning.get_or_insert_default() += delta,
        Event::CallStart { id, name } => message.tool_calls.push(ToolCall {
            id: Some(id.clone()),
            name: name.clone(),
            arguments: Arguments::Raw(String::new()),
        }),
        Event::CallArguments { delta, .. } => {
            if let Some(Arguments::Raw(text)) = message.tool_calls.last_mut().map(|call| &mut call.arguments) {
                *text += delta;
            }
        }
        _ => {}
    }
}

/// Finds bytes that are not UTF-8 in a text that arrives in pieces.
#[derive(Debug, Default)]
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

    /// Ends the text: what is begun stays incomplete.
    fn end(&mut self) {
        if !std::mem::take(&mut self.begun).is_empty() {
            self.found();
        }
    }

    fn sentence(&self) -> Option<String> {
        let (at, count) = self.broken?;
        let more = match count {
            1 => String::new(),
            2 => ", and at one place more".to_owned(),
            count => format!(", and at {} places more", count - 1),
        };
        Some(format!("byte {at}: not valid UTF-8 here{more}; it is read as U+FFFD"))
    }
}
