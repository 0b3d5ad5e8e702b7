//! Determines what a template drops by rendering the same conversation with words that occur in no template.
//!
//! The conversation's own words are not suitable: a template may trim or escape them, and "a" occurs everywhere.

use crate::message::{Arguments, Message, Role};
use crate::template::{ChatTemplate, RenderRequest};
use crate::tool::{Tool, Tools};
use serde_json::{Map, json};
use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::{Mutex, PoisonError};

/// Maximum number of cached conversations.
const REMEMBERED: usize = 256;
const TOOL: &str = "xqtoolqx";

/// Something missing in the prompt.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Missing {
    /// The message's index; unused for the tools.
    pub index: usize,
    pub what: What,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum What {
    /// A message's content.
    Message,
    /// A call of a message.
    Call(usize),
    /// The content of a message with calls.
    CallText,
    /// The speaker's name.
    Name,
    /// The tools.
    Tools,
}

/// What is missing, by the shape of the conversation.
#[derive(Debug, Default)]
pub(in crate::template) struct Runs(Mutex<HashMap<u64, Vec<Missing>>>);

/// Returns what the template drops from a conversation of this shape; empty if that cannot be determined.
pub(super) fn missing(template: &ChatTemplate, request: &RenderRequest<'_>, messages: &[Message]) -> Vec<Missing> {
    let key = shape(request, messages);
    let known = |runs: &HashMap<u64, Vec<Missing>>| runs.get(&key).cloned();
    if let Some(missing) = known(&template.runs.0.lock().unwrap_or_else(PoisonError::into_inner)) {
        return missing;
    }
    let missing = find_missing(template, request, messages);
    let mut runs = template.runs.0.lock().unwrap_or_else(PoisonError::into_inner);
    if runs.len() >= REMEMBERED {
        runs.clear();
    }
    runs.insert(key, missing.clone());
    missing
}

fn find_missing(template: &ChatTemplate, request: &RenderRequest<'_>, messages: &[Message]) -> Vec<Missing> {
    let Some(text) = marked(template, request, messages) else { return Vec::new() };
    let mut missing = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        let mut look = |word: &str, what: What| {
            if !text.contains(word) {
                missing.push(Missing { index, what });
            }
        };
        if !message.content.is_empty() {
            let what = if message.tool_calls.is_empty() { What::Message } else { What::CallText };
            look(&content(index), what);
        }
        for call in 0..message.tool_calls.len() {
            look(&argument(index, call), What::Call(call));
        }
        if message.role != Role::Tool && message.name.is_some() {
            look(&name(index), What::Name);
        }
    }
    // A template that never writes tools is handled elsewhere.
    let questions = [&[Message::user("?")][..], &[Message::system("?"), Message::user("?")]];
    let shows = |question: &[Message]| marked(template, request, question).is_some_and(|text| text.contains(TOOL));
    let has_tools = request.tools.is_some_and(|tools| !tools.is_empty());
    if has_tools && !text.contains(TOOL) && questions.into_iter().any(shows) {
        missing.push(Missing { index: 0, what: What::Tools });
    }
    missing
}

/// The prompt of the same conversation with sentinels as content.
fn marked(template: &ChatTemplate, request: &RenderRequest<'_>, messages: &[Message]) -> Option<String> {
    let messages: Vec<Message> =
        messages.iter().enumerate().map(|(index, message)| sentinels(index, message)).collect();
    let tool = Tool::new(TOOL, "does something", None);
    let tools = request.tools.filter(|tools| !tools.is_empty()).and_then(|_| Tools::new([tool]).ok());
    let request = RenderRequest { messages: &messages, tools: tools.as_ref(), ..request.clone() };
    template.trial(|| template.render(&request)).ok().map(|prompt| prompt.text())
}

fn content(index: usize) -> String {
    format!("xqm{index}qx")
}

fn argument(index: usize, call: usize) -> String {
    format!("xqc{index}x{call}qx")
}

fn name(index: usize) -> String {
    format!("xqn{index}qx")
}

fn sentinels(index: usize, message: &Message) -> Message {
    let mut marked = message.clone();
    if !marked.content.is_empty() {
        marked.content = content(index);
    }
    marked.reasoning = marked.reasoning.map(|_| format!("xqr{index}qx"));
    if marked.role != Role::Tool {
        marked.name = marked.name.map(|_| name(index));
    }
    for (position, call) in marked.tool_calls.iter_mut().enumerate() {
        let word = argument(index, position);
        call.arguments = match call.arguments {
            Arguments::Object(_) => Arguments::Object(Map::from_iter([("xqargumentqx".to_owned(), json!(word))])),
            Arguments::Raw(_) => Arguments::Raw(word),
        };
    }
    marked
}

/// Everything in a conversation that determines what a template writes, except its words.
fn shape(request: &RenderRequest<'_>, messages: &[Message]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for message in messages {
        let calls: Vec<bool> = message.tool_calls.iter().map(|call| call.arguments.as_object().is_some()).collect();
        let there = [
            message.content.is_empty(),
            message.reasoning.is_some(),
            message.name.is_some(),
            message.tool_call_id.is_some(),
        ];
        (message.role, there, calls).hash(&mut hasher);
    }
    (request.tools.is_some_and(|tools| !tools.is_empty()), request.add_generation_prompt).hash(&mut hasher);
    request.overlay.map(|overlay| overlay.section.map(ChatTemplate::source)).hash(&mut hasher);
    serde_json::Value::Object(request.variables.clone()).to_string().hash(&mut hasher);
    hasher.finish()
}
