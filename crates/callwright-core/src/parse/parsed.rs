//! Options for parsing a text, and the result.

use super::OtherForms;
use super::duplicates;
use super::event::{Diagnostic, InvalidCall, Repair};
use crate::error::{Error, ErrorKind, Result};
use crate::message::{Arguments, Message, Role, ToolCall};
use crate::tool::CallProblem;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::ops::Range;

/// Parser options.
///
/// ```
/// use callwright_core::ParserOptions;
///
/// let options = ParserOptions::default().with(|set| set.prompt_tail = "<think>\n".to_owned());
/// assert!(options.repair);
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ParserOptions {
    /// Whether to repair departures from the format; otherwise they are only reported.
    pub repair: bool,
    /// Whether repairs include converting values to the types of the schema.
    pub coerce: bool,
    /// Whether repairs include a tool's name in different case or with different separators.
    pub normalize_names: bool,
    /// The part of the answer that is in the prompt, such as an opened `<think>` or the beginning of an answer to
    /// continue; the header of the assistant's turn may precede it. Reasoning, a section or a call that it leaves open
    /// is open when the model's text begins, and its text counts as the model's.
    pub prompt_tail: String,
    /// Where reasoning goes.
    pub reasoning: ReasoningOutput,
    /// What to do with calls in another form than the format's, such as JSON in a code fence.
    pub other_forms: OtherForms,
    /// What a session knows of the conversation and the grammar.
    pub session: SessionFacts,
}

/// What a session knows of the conversation and the grammar.
#[derive(Debug, Clone, Default)]
pub struct SessionFacts {
    /// The number of earlier calls, for new ids: `call00001` after none.
    pub earlier_calls: usize,
    /// Ids already used in the conversation.
    pub taken_ids: Vec<String>,
    /// Whether calls are forbidden: each call is then invalid.
    pub forbidden: bool,
    /// Whether a call with an integer beyond 64 bits is valid. The finished call cannot hold it exactly; the deltas
    /// have it as written.
    pub any_number: bool,
    /// Tool results and documents of the conversation. A call in another form is a quotation if one of them has it.
    pub sources: Vec<String>,
    /// Whether every call is meant, because a grammar makes the model call.
    pub trusted: bool,
    /// Whether a grammar holds calls from their beginning on. A call without markers then counts at the answer's beginning,
    /// whatever follows it.
    pub constrained: bool,
}

impl ParserOptions {
    /// These options after `set` has changed some.
    #[must_use]
    pub fn with(mut self, set: impl FnOnce(&mut Self)) -> Self {
        set(&mut self);
        self
    }

    /// These options for an answer to this conversation: sets [`SessionFacts::sources`].
    #[must_use]
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn answering(mut self, messages: &[Message]) -> Self {
        let results = messages.iter().filter(|message| message.role == Role::Tool);
        self.session.sources.extend(results.map(|message| message.content.clone()).filter(|text| !text.is_empty()));
        self
    }
}

impl Default for ParserOptions {
    fn default() -> ParserOptions {
        ParserOptions {
            repair: true,
            coerce: true,
            normalize_names: true,
            prompt_tail: String::new(),
            reasoning: ReasoningOutput::Separate,
            other_forms: OtherForms::default(),
            session: SessionFacts::default(),
        }
    }
}

/// Where reasoning goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReasoningOutput {
    /// Separate from the text: [`Event::Reasoning`](super::event::Event::Reasoning), [`Parsed::reasoning`].
    Separate,
    /// In the text, with its markers.
    InText,
}

/// A parsed call.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ParsedCall {
    /// The call's id: the model's own if it came in time and is unique.
    pub id: String,
    /// The tool's name as the model wrote it; empty if there was none.
    pub name: String,
    /// The arguments, repaired if possible.
    pub arguments: Arguments,
    /// What the model wrote for this call, markers included.
    pub raw: String,
    /// The byte range of `raw` in the model's text.
    pub range: Range<usize>,
    /// Whether the model wrote all of it. An incomplete call must not be executed.
    pub complete: bool,
    /// Whether name and arguments are well-formed and, if the tools are known, fit the tool's schema.
    pub valid: bool,
    /// Why the call is not valid.
    pub problems: Vec<CallProblem>,
    /// Whether a value contains a tag of the call's own format. The tag counts as text, because the layout, a quotation or
    /// an escape says so. Text from outside may have brought it, so the call needs approval before it is executed.
    pub tag_in_value: bool,
    /// The model wrote the call in another form than the format's. A program that changes something should be asked for
    /// approval first.
    pub other_form: bool,
}

impl ParsedCall {
    /// Returns whether the call may be handed to a program: it is complete, names a tool, and its arguments are a JSON
    /// object. It may still not fit that tool.
    pub fn is_whole(&self) -> bool {
        self.complete && !self.name.is_empty() && self.has_object()
    }

    /// Returns whether the arguments are a JSON object. It may have numbers or duplicate keys that
    /// [`Arguments::Object`] cannot hold.
    fn has_object(&self) -> bool {
        match &self.arguments {
            Arguments::Object(_) => true,
            Arguments::Raw(text) => duplicates::read_object(text).is_ok(),
        }
    }

    /// Returns whether the call may be executed: it is whole and fits its tool.
    pub fn is_runnable(&self) -> bool {
        self.is_whole() && self.valid
    }

    /// Reads the arguments into a type of your own.
    ///
    /// # Errors
    /// [`ErrorKind::Syntax`] where they do not fit it.
    ///
    /// ```
    /// use callwright_core::{Format, Parser, ParserOptions};
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Place { city: String }
    ///
    /// let text = "### TOOL_CALL_START ###\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}\n### TOOL_CALL_END ###";
    /// let mut parser = Parser::new(Format::delimited(), None, ParserOptions::default())?;
    /// parser.push(text.as_bytes(), &mut |_| ());
    /// let place: Place = parser.finish(&mut |_| ()).calls[0].arguments_as()?;
    /// assert_eq!(place.city, "Rome");
    /// # Ok::<(), callwright_core::Error>(())
    /// ```
    pub fn arguments_as<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_str(&self.arguments.to_text()).map_err(|error| {
            Error::new(ErrorKind::Syntax, format!("the arguments of {} cannot be read: {error}", self.name))
                .caused_by(error)
        })
    }

    /// Why the call is not valid, in sentences for the model; empty if it is valid.
    pub fn error_text(&self) -> String {
        CallProblem::sentences(&self.problems)
    }

    /// The call as it is reported where it is not whole.
    pub(crate) fn invalid(&self) -> InvalidCall {
        InvalidCall {
            id: self.id.clone(),
            name: self.name.clone(),
            arguments: self.arguments.to_text(),
            raw: self.raw.clone(),
            problems: self.problems.clone(),
            position: self.range.clone(),
        }
    }
}

/// The result of parsing a model's text.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct Parsed {
    /// The text for the user.
    pub content: String,
    /// The reasoning, if there was any.
    pub reasoning: Option<String>,
    /// The calls, in the order in which they were written.
    pub calls: Vec<ParsedCall>,
    /// Departures that were repaired.
    pub repairs: Vec<Repair>,
    /// Other irregularities.
    pub diagnostics: Vec<Diagnostic>,
    /// The built-in format, or the kind of a server's response, that [`AutoParser`](super::auto::AutoParser) has detected.
    pub origin: Option<&'static str>,
}

impl Parsed {
    /// Drops the calls after the first `most` that name a tool, and their repairs and diagnostics.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn keep_calls(&mut self, most: usize) {
        let mut named = self.calls.iter().enumerate().filter(|(_, call)| !call.name.is_empty());
        if let Some((last, call)) = most.checked_sub(1).and_then(|last| named.nth(last))
            && last + 1 < self.calls.len()
        {
            let end = call.range.end;
            self.repairs.retain(|repair| repair.range.start < end);
            self.diagnostics.retain(|diagnostic| diagnostic.range.start < end);
            self.calls.truncate(last + 1);
        }
    }

    /// The message as JSON. Calls that are not [whole](ParsedCall::is_whole) are in `invalid_tool_calls`.
    pub fn to_json(&self) -> Value {
        message_to_json(&self.message(), &self.calls)
    }

    /// This text as an assistant message.
    pub fn message(&self) -> Message {
        let call = |call: &ParsedCall| ToolCall {
            id: Some(call.id.clone()),
            name: call.name.clone(),
            arguments: call.arguments.clone(),
        };
        Message {
            role: Role::Assistant,
            content: self.content.clone(),
            parts: None,
            reasoning: self.reasoning.clone(),
            tool_calls: self.calls.iter().map(call).collect(),
            tool_call_id: None,
            name: None,
        }
    }
}

/// OpenAI's form of `message`, whose calls are `calls`.
///
/// A program that runs everything in `tool_calls` must not run half a call, or find arguments that it cannot read. Calls
/// that are not [whole](ParsedCall::is_whole) are therefore in `invalid_tool_calls`, each an
/// [`InvalidCall`](super::event::InvalidCall). Whole calls that do not fit their tool stay in `tool_calls`.
pub fn message_to_json(message: &Message, calls: &[ParsedCall]) -> Value {
    let invalid: Vec<&ParsedCall> = calls.iter().filter(|call| !call.is_whole()).collect();
    if invalid.is_empty() {
        return message.to_json();
    }
    let mut whole = message.clone();
    whole.tool_calls.retain(|call| !invalid.iter().any(|other| call.id.as_ref() == Some(&other.id)));
    let mut json = whole.to_json();
    json["invalid_tool_calls"] = invalid.into_iter().map(|call| json!(call.invalid())).collect();
    json
}
