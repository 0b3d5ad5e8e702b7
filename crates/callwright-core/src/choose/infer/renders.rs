//! Renders conversations whose words occur in no template.

use super::texts::tags;
use crate::message::{Arguments, Message, ToolCall};
use crate::template::probe::probed;
use crate::template::{ChatTemplate, RenderRequest};
use crate::tool::Tool;
use serde_json::{Map, Value, json};

pub const USER: &str = "xquserqx";
pub const TEXT: &str = "xqanswerqx";
pub const THOUGHT: &str = "xqthoughtqx";
const OTHER_USER: &str = "xqotherqx";
const RESULT: &str = "xqresultqx";
/// A key inside an argument that is an object.
pub const INNER_KEY: &str = "xqinnerqx";
const INNER_VALUE: &str = "xqdeepqx";
/// An argument that is not a string.
pub const NUMBER: u32 = 104_729;

/// A call to search for. Its keys are sorted, because some templates sort them.
pub struct Sentinel {
    pub name: &'static str,
    /// Nine letters and digits: some templates refuse other ids.
    pub id: &'static str,
    pub arguments: &'static [(&'static str, &'static str)],
}

pub const FIRST: Sentinel =
    Sentinel { name: "xqtoolaqx", id: "xqid00001", arguments: &[("xqargaqx", "xqvalaqx"), ("xqargbqx", "xqvalbqx")] };
pub const SECOND: Sentinel =
    Sentinel { name: "xqtoolbqx", id: "xqid00002", arguments: &[("xqargcqx", "xqvalcqx"), ("xqargdqx", "xqvaldqx")] };

impl Sentinel {
    /// The arguments as an object.
    pub fn object(&self) -> Map<String, Value> {
        self.arguments.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect()
    }

    /// The call.
    pub fn call(&self) -> ToolCall {
        self.call_with(self.object())
    }

    fn call_with(&self, arguments: Map<String, Value>) -> ToolCall {
        ToolCall { id: Some(self.id.to_owned()), name: self.name.to_owned(), arguments: Arguments::Object(arguments) }
    }

    fn tool(&self) -> Value {
        let text = json!({"type": "string", "description": "text"});
        let properties: Map<String, Value> =
            self.arguments.iter().map(|(key, _)| ((*key).to_owned(), text.clone())).collect();
        let schema = json!({"type": "object", "properties": properties, "required": [self.arguments[0].0]});
        Tool::new(self.name, "does something", schema.as_object().cloned()).to_json()
    }
}

/// A template, and the tools passed to it.
pub struct Renders<'t> {
    template: &'t ChatTemplate,
    tools: Value,
    /// The header of the next answer, if the template writes it after every conversation.
    next: String,
}

impl<'t> Renders<'t> {
    pub fn new(template: &'t ChatTemplate) -> Renders<'t> {
        Renders::with(template, json!([FIRST.tool(), SECOND.tool()]))
    }

    fn with(template: &'t ChatTemplate, tools: Value) -> Renders<'t> {
        let renders = Renders { template, tools, next: String::new() };
        let unasked = renders.after_user(Vec::new(), false, &[]).filter(|text| !text.trim().is_empty());
        let Some(prompt) = unasked.filter(|text| renders.prompt(&[]).as_ref() == Some(text)) else { return renders };
        // The first of several tags ends the user's turn.
        let header = match tags(&prompt).as_slice() {
            [first, _, ..] => &prompt[first.end..],
            _ => &prompt,
        };
        Renders { next: header.trim().to_owned(), ..renders }
    }

    /// The same template without tools.
    pub fn without_tools(&self) -> Renders<'t> {
        Renders::with(self.template, Value::Null)
    }

    pub fn source(&self) -> &str {
        self.template.source()
    }

    fn after_user(&self, mut messages: Vec<Message>, generation: bool, variables: &[&str]) -> Option<String> {
        messages.insert(0, Message::user(USER));
        let variables = variables.iter().map(|name| ((*name).to_owned(), json!(true))).collect();
        self.written(&messages, generation, variables)
    }

    /// The text after the user's message; `None` if the template fails.
    fn written(&self, messages: &[Message], generation: bool, variables: Map<String, Value>) -> Option<String> {
        let request = RenderRequest { add_generation_prompt: generation, variables, ..RenderRequest::default() };
        let text = probed(self.template, &request, messages, &self.tools)?;
        // The last occurrence: some templates introduce the tools with the user's text.
        let at = text.rfind(USER)? + USER.len();
        let text = &text[at..];
        let asked = generation || self.next.is_empty();
        let answer = if asked { None } else { text.trim_end().strip_suffix(&self.next) };
        Some(answer.unwrap_or(text).to_owned())
    }

    /// The header of the assistant's turn at the end of a prompt.
    pub fn prompt(&self, variables: &[&str]) -> Option<String> {
        self.after_user(Vec::new(), true, variables)
    }

    /// A prompt without that header.
    pub fn unasked(&self) -> Option<String> {
        self.after_user(Vec::new(), false, &[])
    }

    /// Like `prompt`, with variables of any type.
    pub fn prompt_with(&self, variables: Map<String, Value>) -> Option<String> {
        self.written(&[Message::user(USER)], true, variables)
    }

    /// An answer in plain text.
    pub fn answer(&self, text: &str) -> Option<String> {
        self.after_user(vec![Message::assistant(text)], false, &[])
    }

    /// Like `answer`, followed by another user message; the text up to that message.
    pub fn past_answer(&self, text: &str) -> Option<String> {
        let text = self.after_user(vec![Message::assistant(text), Message::user(OTHER_USER)], false, &[])?;
        Some(text[..text.find(OTHER_USER)?].to_owned())
    }

    /// An answer with reasoning.
    pub fn reasoned(&self, text: &str, calls: &[&Sentinel]) -> Option<String> {
        self.after_user(vec![Message { reasoning: Some(THOUGHT.to_owned()), ..message(text, calls) }], false, &[])
    }

    /// An answer with reasoning as a part of its content.
    pub fn reasoned_in_parts(&self) -> Option<String> {
        let parts = json!([{"type": "thinking", "thinking": THOUGHT}, {"type": "text", "text": TEXT}]);
        let messages = json!([{"role": "user", "content": USER}, {"role": "assistant", "content": parts}]);
        self.written(&[], false, Map::from_iter([("messages".to_owned(), messages)]))
    }

    /// An answer with calls. If the template drops them in the last message, an answer followed by results.
    pub fn calls(&self, text: &str, calls: &[&Sentinel]) -> Option<String> {
        let shows = |text: &String| calls.iter().all(|call| call.arguments.iter().all(|(_, v)| text.contains(v)));
        let answer = message(text, calls);
        self.after_user(vec![answer.clone()], false, &[]).filter(shows).or_else(|| {
            let results = calls.iter().map(|call| Message::tool(call.id, call.name, RESULT));
            let messages = std::iter::once(answer).chain(results).collect();
            let text = self.after_user(messages, false, &[]).filter(shows)?;
            // Up to the result: where this turn ends and the result's begins is unknown.
            Some(text[..text.find(RESULT)?].to_owned())
        })
    }

    /// A call with an argument that is an object, and one that is a number.
    pub fn typed(&self) -> Option<String> {
        let [(first, _), (second, _)] = FIRST.arguments else { return None };
        let arguments = json!({*first: {INNER_KEY: INNER_VALUE}, *second: NUMBER}).as_object().cloned()?;
        let call = FIRST.call_with(arguments);
        self.after_user(vec![Message::calls(vec![call])], false, &[])
    }

    /// A call whose last argument is `value`.
    pub fn with_value(&self, value: Value) -> Option<String> {
        let [(first, text), (second, _)] = FIRST.arguments else { return None };
        let arguments = json!({*first: text, *second: value}).as_object().cloned()?;
        self.after_user(vec![Message::calls(vec![FIRST.call_with(arguments)])], false, &[])
    }
}

fn message(text: &str, calls: &[&Sentinel]) -> Message {
    Message { tool_calls: calls.iter().map(|call| call.call()).collect(), ..Message::assistant(text) }
}
