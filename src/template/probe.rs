//! What a chat template can write, found out by rendering conversations whose words are unlike any template's.

use super::variables::{ArgumentsAs, variables};
use super::{ChatTemplate, RenderRequest};
use crate::message::{Arguments, Message, ToolCall};
use crate::tool::Tool;
use serde_json::{Value, json};

/// What a chat template can write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// The text of a system message.
    pub system: bool,
    /// The tools it is given.
    pub tools: bool,
    /// The calls of an assistant message, names and arguments.
    pub calls: bool,
    /// The result of a call, in a tool message.
    pub results: bool,
    /// It writes arguments as they should be only when they are JSON text in a string.
    pub text_arguments: bool,
}

impl Capabilities {
    /// Whether it can carry a conversation with tools by itself. If not, it needs an
    /// [`Overlay`](super::Overlay).
    pub fn native_tools(&self) -> bool {
        self.tools && self.calls && self.results
    }
}

/// The roles that plain text can be said in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Roles {
    pub system: bool,
    /// A tool message after an assistant message that has text only.
    pub tool: bool,
    /// Two user messages in a row are refused.
    pub alternating: bool,
}

const SYSTEM: &str = "xqsystemqx";
const USER: &str = "xquserqx";
const SECOND_USER: &str = "xqotherqx";
const ASSISTANT: &str = "xqassistantqx";
const RESULT: &str = "xqresultqx";
const SECOND_RESULT: &str = "xqfindingqx";
const TOOL: &str = "xqtoolqx";
const ARGUMENT: &str = "xqargumentqx";
const VALUE: &str = "xqvalueqx";
/// Nine letters and digits: some templates refuse other ids.
const ID: &str = "xqid00001";
const SECOND_ID: &str = "xqid00002";

pub(super) fn roles(template: &ChatTemplate) -> Roles {
    let result = |id: &str, text: &str| Message::tool(id, TOOL, text);
    let plain = |messages: &[Message]| render(template, messages, None, ArgumentsAs::Object);
    let two_results =
        [Message::user(USER), Message::assistant(ASSISTANT), result(ID, RESULT), result(SECOND_ID, SECOND_RESULT)];
    let two_users = [Message::user(USER), Message::user(SECOND_USER)];
    Roles {
        system: writes_system(template),
        tool: shows(plain(&two_results), &[USER, ASSISTANT, RESULT, SECOND_RESULT]),
        alternating: !shows(plain(&two_users), &[USER, SECOND_USER]),
    }
}

pub(super) fn capabilities(template: &ChatTemplate) -> Capabilities {
    let tools = Some(json!([tool().to_json()]));
    let asked = [Message::user(USER)];
    let with_tools = render(template, &asked, tools.clone(), ArgumentsAs::Object);
    let called = |arguments| render(template, &conversation(), tools.clone(), arguments);
    let written = |text: &Option<String>| shows(text.clone(), &[TOOL, ARGUMENT, VALUE]);

    let as_object = called(ArgumentsAs::Object).and_then(|text| calls_only(template, &text, &tools));
    let as_text = called(ArgumentsAs::Text).and_then(|text| calls_only(template, &text, &tools));
    // An object that a template prints without `tojson` comes out as Python writes it: 'key' for "key".
    let python = as_object.as_ref().is_some_and(|text| text.contains(&format!("'{ARGUMENT}'")));
    let json = as_text.as_ref().is_some_and(|text| text.contains(&format!("\"{ARGUMENT}\"")));
    let text_arguments = written(&as_text) && json && (python || !written(&as_object));
    let best = if text_arguments { &as_text } else { &as_object };
    Capabilities {
        system: writes_system(template),
        tools: shows(with_tools, &[TOOL, ARGUMENT]),
        calls: written(best),
        results: shows(best.clone(), &[RESULT]),
        text_arguments,
    }
}

/// The rendering after the user's message, where the tools' own names do not count as calls.
fn calls_only(template: &ChatTemplate, text: &str, tools: &Option<Value>) -> Option<String> {
    let before = render(template, &[Message::user(USER)], tools.clone(), ArgumentsAs::Object).unwrap_or_default();
    let common = before.bytes().zip(text.bytes()).take_while(|(a, b)| a == b).count();
    let rest = String::from_utf8_lossy(&text.as_bytes()[common..]).into_owned();
    Some(rest)
}

fn writes_system(template: &ChatTemplate) -> bool {
    let messages = [Message::system(SYSTEM), Message::user(USER)];
    shows(render(template, &messages, None, ArgumentsAs::Object), &[SYSTEM, USER])
}

fn tool() -> Tool {
    let schema = json!({
        "type": "object",
        "properties": {ARGUMENT: {"type": "string", "description": "text"}},
        "required": [ARGUMENT],
    });
    Tool::new(TOOL, "does something", schema.as_object().cloned())
}

fn conversation() -> [Message; 4] {
    let arguments = json!({ARGUMENT: VALUE}).as_object().cloned().unwrap_or_default();
    let call = ToolCall { id: Some(ID.to_owned()), name: TOOL.to_owned(), arguments: Arguments::Object(arguments) };
    [Message::user(USER), Message::calls(vec![call]), Message::tool(ID, TOOL, RESULT), Message::assistant(ASSISTANT)]
}

fn render(
    template: &ChatTemplate,
    messages: &[Message],
    tools: Option<Value>,
    arguments: ArgumentsAs,
) -> Option<String> {
    let request = RenderRequest { bos_token: "<s>", eos_token: "</s>", ..RenderRequest::default() };
    template.render_vars(&Value::Object(variables(&request, messages, tools, arguments)), None).ok()
}

fn shows(text: Option<String>, words: &[&str]) -> bool {
    text.is_some_and(|text| words.iter().all(|word| text.contains(word)))
}
