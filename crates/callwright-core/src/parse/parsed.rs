//! How a text is parsed, and what it comes to.

use super::{OtherForms, ParsedCall};
use crate::message::{Message, Role, ToolCall};
use crate::parse::event::{Diagnostic, Repair};
use serde_json::{Value, json};

/// How to parse.
#[derive(Debug, Clone)]
pub struct ParserOptions {
    /// Whether departures from the format are repaired; otherwise they are only reported.
    pub repair: bool,
    /// Whether, where departures are repaired, values of another type than the schema wants are converted.
    pub coerce: bool,
    /// Whether, where departures are repaired, a tool's name in other case or with other separators is put right.
    pub normalize_names: bool,
    /// The number of the first call: ids are minted from it, `call00001` for 1.
    pub first_call: usize,
    /// Ids that the conversation has already given to calls.
    pub taken_ids: Vec<String>,
    /// What the prompt wrote of the answer already, such as an opened `<think>`, or the beginning of an answer that is
    /// to be continued; the header of the assistant's turn may stand before it. Reasoning, a section or a call that
    /// it leaves open is open when the model's text begins, and its text counts as the model's.
    pub prompt_tail: String,
    /// Where reasoning goes.
    pub reasoning: ReasoningOutput,
    /// Whether the model may not call anything: each call is then invalid.
    pub forbidden: bool,
    /// Whether a call is valid that has a whole number beyond 64 bits in it, which the finished call cannot hold to the
    /// last digit; the deltas have it as it was written.
    pub any_number: bool,
    /// What becomes of calls in another form than the format's, such as JSON in a code fence.
    pub other_forms: OtherForms,
}

impl Default for ParserOptions {
    fn default() -> ParserOptions {
        ParserOptions {
            repair: true,
            coerce: true,
            normalize_names: true,
            first_call: 1,
            taken_ids: Vec::new(),
            prompt_tail: String::new(),
            reasoning: ReasoningOutput::Separate,
            forbidden: false,
            any_number: false,
            other_forms: OtherForms::default(),
        }
    }
}

/// Where reasoning goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReasoningOutput {
    /// Apart from the text: [`Event::Reasoning`], [`Parsed::reasoning`].
    Separate,
    /// It stays in the text, with its markers.
    InText,
}

/// What a model's text came to.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Parsed {
    /// The text for the user.
    pub content: String,
    /// The reasoning, if there was any.
    pub reasoning: Option<String>,
    /// The calls, in the order in which they were written.
    pub calls: Vec<ParsedCall>,
    /// Departures that were understood.
    pub repairs: Vec<Repair>,
    /// What else is worth knowing.
    pub diagnostics: Vec<Diagnostic>,
}

impl Parsed {
    /// Leaves out the calls behind the first `most` that name a tool, and what there is to say of them.
    pub fn keep_calls(&mut self, most: usize) {
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

    /// The message as JSON. Calls that are cut off or name no tool are apart from the others, as
    /// [`message_to_json`] writes them.
    pub fn to_json(&self) -> Value {
        message_to_json(&self.message(), &self.calls)
    }

    /// The assistant message that this text is.
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

/// OpenAI's form of `message`, the calls of which are `calls`.
///
/// Who runs what stands in `tool_calls` must not run half a call: those that are not [whole](ParsedCall::is_whole) are
/// in `invalid_tool_calls` instead, each an [`InvalidCall`](super::event::InvalidCall). Calls that are whole but do not
/// fit their tool stay in `tool_calls`.
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
