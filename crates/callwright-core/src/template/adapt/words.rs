//! Finds the conversation's own words in the prompt, which shows without another rendering that nothing was dropped.
//!
//! Only words that can come from nowhere else count: they are not short, and occur neither in the template nor in the
//! tools. They are looked for in the order of the messages, each after the one before, so that a message that quotes
//! another one does not hide that the other one is missing. Templates may trim words or write them as JSON. If they
//! change them in another way or in another order, nothing is certain.

use crate::message::{Arguments, Message, Role, ToolCall};
use crate::template::{ChatTemplate, RenderRequest};
use serde_json::{Map, Value};

/// Minimum length of words, in bytes.
const SHORTEST: usize = 4;
/// What templates write of a message in addition to its text.
const ROLES: &str = "system user assistant tool";

/// Returns whether the prompt certainly has all messages, calls, names and the tools of the request.
pub(super) fn shows_all(template: &ChatTemplate, request: &RenderRequest<'_>, prompt: &str) -> bool {
    let tools = match request.tools.filter(|tools| !tools.is_empty()) {
        Some(tools) => tools.for_model().to_string(),
        None => String::new(),
    };
    let section = request.overlay.and_then(|overlay| overlay.section).map_or("", |section| section.source());
    let words = Words { prompt, elsewhere: [template.source(), section, tools.as_str()] };
    let described = || request.tools.is_some_and(|tools| tools.iter().any(|tool| words.of_tool(&tool.description)));
    let mut at = 0;
    (tools.is_empty() || described()) && request.messages.iter().all(|message| words.shown(message, &mut at))
}

struct Words<'a> {
    prompt: &'a str,
    /// What else a template writes.
    elsewhere: [&'a str; 3],
}

impl Words<'_> {
    /// Returns whether a message is in the prompt after `at`, which moves to its end.
    fn shown(&self, message: &Message, at: &mut usize) -> bool {
        let named = message.role == Role::Tool || message.name.as_ref().is_none_or(|name| self.find(name, at));
        // Templates may drop reasoning. If they write it, it must not be where an earlier message was found.
        let reasoning = message.reasoning.as_deref().unwrap_or_default().trim();
        let reasoned = reasoning.is_empty() || self.advance(reasoning, at) || !self.prompt.contains(reasoning);
        let content = message.content.trim();
        named
            && reasoned
            && (content.is_empty() || self.find(content, at))
            && message.tool_calls.iter().all(|call| self.find_call(call, at))
    }

    /// Finds words after `at`, as they are or as JSON.
    fn find(&self, words: &str, at: &mut usize) -> bool {
        self.is_distinct(words) && (self.advance(words, at) || self.advance(&in_json(words), at))
    }

    /// Finds the arguments of a call: all of them as JSON, or each text.
    fn find_call(&self, call: &ToolCall, at: &mut usize) -> bool {
        let object = match &call.arguments {
            Arguments::Object(object) => object,
            Arguments::Raw(text) => return self.find(text.trim(), at),
        };
        if [spaced(object), call.arguments.to_text()].iter().any(|json| self.find(json, at)) {
            return true;
        }
        let mut texts = object.values().filter_map(Value::as_str).peekable();
        texts.peek().is_some() && texts.all(|text| self.find(text.trim(), at))
    }

    fn advance(&self, words: &str, at: &mut usize) -> bool {
        let Some(found) = self.prompt[*at..].find(words) else { return false };
        *at += found + words.len();
        true
    }

    /// Returns whether words occur only where they were written from the conversation. Numbers may be counted or be a
    /// date.
    fn is_distinct(&self, words: &str) -> bool {
        words.len() >= SHORTEST
            && words.contains(char::is_alphabetic)
            && !self.elsewhere.iter().any(|text| text.contains(words))
            && !ROLES.contains(words)
    }

    /// Returns whether the description of a tool is in the prompt, where no template has it.
    fn of_tool(&self, description: &str) -> bool {
        let [template, section, _] = self.elsewhere;
        let description = description.trim();
        description.len() >= SHORTEST
            && ![template, section].iter().any(|text| text.contains(description))
            && (self.prompt.contains(description) || self.prompt.contains(&in_json(description)))
    }
}

/// The inside of a JSON string.
fn in_json(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// An object as Python's `json.dumps` writes it, if its values are not nested.
fn spaced(object: &Map<String, Value>) -> String {
    let entries: Vec<String> =
        object.iter().map(|(key, value)| format!("{}: {value}", Value::from(key.as_str()))).collect();
    format!("{{{}}}", entries.join(", "))
}
