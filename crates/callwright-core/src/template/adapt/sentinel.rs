//! What a template leaves out, seen by rendering the same conversation with words in it that no template has.
//!
//! The words of the conversation itself would not do: a template may trim or escape them, and "a" is everywhere.

use crate::message::{Arguments, Message, Role};
use crate::template::{ChatTemplate, RenderRequest};
use crate::tool::{Tool, Tools};
use serde_json::{Map, json};
use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::{Mutex, PoisonError};

/// How many conversations are remembered.
const REMEMBERED: usize = 256;
const TOOL: &str = "xqtoolqx";

/// Something that is not in the prompt.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Missing {
    /// In which message; meaningless for the tools.
    pub index: usize,
    pub what: What,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum What {
    /// What a message says.
    Message,
    /// A call of a message.
    Call(usize),
    /// What a message with calls says beside them.
    Beside,
    /// The speaker's name.
    Name,
    /// The tools.
    Tools,
}

/// What is missing, by the shape of the conversation.
#[derive(Debug, Default)]
pub(in crate::template) struct Runs(Mutex<HashMap<u64, Vec<Missing>>>);

impl ChatTemplate {
    /// What the template leaves out of a conversation of this shape; nothing where that cannot be seen.
    pub(super) fn missing(&self, request: &RenderRequest<'_>, messages: &[Message]) -> Vec<Missing> {
        let key = shape(request, messages);
        let known = |runs: &HashMap<u64, Vec<Missing>>| runs.get(&key).cloned();
        if let Some(missing) = known(&self.runs.0.lock().unwrap_or_else(PoisonError::into_inner)) {
            return missing;
        }
        let missing = self.find_missing(request, messages);
        let mut runs = self.runs.0.lock().unwrap_or_else(PoisonError::into_inner);
        if runs.len() >= REMEMBERED {
            runs.clear();
        }
        runs.insert(key, missing.clone());
        missing
    }

    fn find_missing(&self, request: &RenderRequest<'_>, messages: &[Message]) -> Vec<Missing> {
        let Some(text) = self.marked(request, messages) else { return Vec::new() };
        let mut missing = Vec::new();
        for (index, message) in messages.iter().enumerate() {
            let mut look = |word: &str, what: What| {
                if !text.contains(word) {
                    missing.push(Missing { index, what });
                }
            };
            if !message.content.is_empty() {
                let what = if message.tool_calls.is_empty() { What::Message } else { What::Beside };
                look(&content(index), what);
            }
            for call in 0..message.tool_calls.len() {
                look(&argument(index, call), What::Call(call));
            }
            if message.role != Role::Tool && message.name.is_some() {
                look(&name(index), What::Name);
            }
        }
        // A template that never writes tools is another matter.
        let question = [Message::user("?")];
        let has_tools = request.tools.is_some_and(|tools| !tools.is_empty());
        if has_tools && !text.contains(TOOL) && self.marked(request, &question).is_some_and(|text| text.contains(TOOL))
        {
            missing.push(Missing { index: 0, what: What::Tools });
        }
        missing
    }

    /// The prompt of the same conversation with sentinels in place of what it says.
    fn marked(&self, request: &RenderRequest<'_>, messages: &[Message]) -> Option<String> {
        let messages: Vec<Message> =
            messages.iter().enumerate().map(|(index, message)| sentinels(index, message)).collect();
        let tool = Tool::new(TOOL, "does something", None);
        let tools = request.tools.filter(|tools| !tools.is_empty()).and_then(|_| Tools::new([tool]).ok());
        let request = RenderRequest { messages: &messages, tools: tools.as_ref(), ..request.clone() };
        self.trial(|| self.render(&request)).ok().map(|prompt| prompt.text())
    }
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

/// What decides whether a template writes all of a conversation, but for its words.
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
