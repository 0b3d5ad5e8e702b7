//! What a chat template can write, determined by rendering conversations whose words occur in no template.

use super::variables::{self, CallShape, variables};
use super::{ChatTemplate, RenderRequest};
use crate::message::{Arguments, Message, ToolCall};
use crate::tool::Tool;
use jiff::civil::{DateTime, date};
use serde_json::{Map, Value, json};

/// What a chat template can write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The text of a system message.
    pub system: bool,
    /// The tools it is given.
    pub tools: bool,
    /// The calls of an assistant message, names and arguments.
    pub calls: bool,
    /// The result of a call, in a tool message.
    pub results: bool,
    /// The form of calls that it expects.
    pub(super) shape: CallShape,
}

impl Capabilities {
    /// Returns whether it supports a conversation with tools natively. If not, it needs an [`Overlay`](super::Overlay).
    pub fn native_tools(&self) -> bool {
        self.lacking().is_empty()
    }

    /// Returns what it lacks for that, in words.
    pub fn lacking(&self) -> Vec<&'static str> {
        let needed = [(self.tools, "the tools"), (self.calls, "calls"), (self.results, "the results of calls")];
        needed.into_iter().filter(|(there, _)| !there).map(|(_, what)| what).collect()
    }
}

/// The roles that a template accepts for plain text.
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
const VARIABLE: &str = "xqvariableqx";
/// Nine letters and digits: some templates refuse other ids.
const ID: &str = "xqid00001";
const SECOND_ID: &str = "xqid00002";
const CLOCK: DateTime = date(2026, 1, 15).at(12, 0, 0, 0);

pub(super) fn roles(template: &ChatTemplate) -> Roles {
    let result = |id: &str, text: &str| Message::tool(id, TOOL, text);
    let plain = |messages: &[Message]| render(template, messages, None, CallShape::default());
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
    let base = render(template, &[Message::user(USER)], tools.clone(), CallShape::default());
    // A tool named in the tool section is not a call: only text after the user's message counts.
    let section = base.clone().unwrap_or_default();
    let called = |shape| {
        let text = render(template, &conversation(), tools.clone(), shape)?;
        let common = section.bytes().zip(text.bytes()).take_while(|(a, b)| a == b).count();
        Some((String::from_utf8_lossy(&text.as_bytes()[common..]).into_owned(), shape))
    };
    let mut best: Option<(String, CallShape)> = None;
    for (text_arguments, null_content) in [(false, false), (false, true), (true, false), (true, true)] {
        let Some((text, shape)) = called(CallShape { text_arguments, null_content }) else { continue };
        // An unsuitable shape drops the call, or adds to it: an empty turn, quotes around JSON.
        let better = best.as_ref().is_none_or(|(other, other_shape)| {
            let (seen, found) = (rank(&text), rank(other));
            let shorter = other_shape.text_arguments == text_arguments && text.len() < other.len();
            seen > found || seen == found && shorter
        });
        if better {
            best = Some((text, shape));
        }
    }
    let (text, shape) = best.unwrap_or_default();
    let instructed = || render(template, &[Message::system(SYSTEM), Message::user(USER)], tools.clone(), shape);
    Capabilities {
        system: writes_system(template),
        // Some templates write them only next to a system message.
        tools: shows(base, &[TOOL, ARGUMENT]) || shows(instructed(), &[TOOL, ARGUMENT]),
        calls: [TOOL, ARGUMENT, VALUE].iter().all(|word| text.contains(word)),
        results: text.contains(RESULT),
        shape,
    }
}

/// How well a call was written: not at all, as Python prints it, or properly.
fn rank(text: &str) -> u8 {
    let written = [TOOL, ARGUMENT, VALUE].iter().all(|word| text.contains(word));
    let python = [TOOL, ARGUMENT].iter().any(|word| text.contains(&format!("'{word}'")));
    let escaped = text.contains(&format!("\\\"{ARGUMENT}"));
    match written {
        false => 0,
        true if python || escaped => 1,
        true => 2,
    }
}

fn writes_system(template: &ChatTemplate) -> bool {
    let messages = [Message::system(SYSTEM), Message::user(USER)];
    let rendered = |tools| render(template, &messages, tools, CallShape::default());
    // Some templates for tools fail without any.
    shows(rendered(None).or_else(|| rendered(Some(json!([tool().to_json()])))), &[SYSTEM, USER])
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

fn render(template: &ChatTemplate, messages: &[Message], tools: Option<Value>, shape: CallShape) -> Option<String> {
    rendered(template, &RenderRequest::default(), messages, tools, shape)
}

fn rendered(
    template: &ChatTemplate,
    request: &RenderRequest,
    messages: &[Message],
    tools: Option<Value>,
    shape: CallShape,
) -> Option<String> {
    let request = RenderRequest { bos_token: "<s>", eos_token: "</s>", ..request.clone() };
    let mut context = variables(&request, messages, tools, shape);
    template.supply(&mut context, Some(CLOCK));
    for (name, value) in template.demanded.get_or_init(|| demanded(template)) {
        context.entry(name).or_insert_with(|| value.clone());
    }
    // Another field name for reasoning, which some templates use.
    for message in context.get_mut("messages").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(reasoning) = message.get("reasoning_content").cloned() {
            message["reasoning"] = reasoning;
        }
    }
    let render = |context: &Value| template.trial(|| template.render_vars(context, None)).ok();
    render(&Value::Object(context.clone())).or_else(|| {
        let listed = template.list_no_tools(&mut context);
        listed.then(|| render(&Value::Object(context)))?
    })
}

/// A conversation with a tool, a call and its result, as the template writes it; empty if it fails.
pub(crate) fn written_with_tools(template: &ChatTemplate) -> String {
    probed(template, &RenderRequest::default(), &conversation(), &json!([tool().to_json()])).unwrap_or_default()
}

/// A prompt with a question and a tool; empty if it fails.
pub(crate) fn prompt_with_tools(template: &ChatTemplate) -> String {
    let tools = json!([tool().to_json()]);
    probed(template, &RenderRequest::default(), &[Message::user(USER)], &tools).unwrap_or_default()
}

/// The template's output for a synthetic conversation, with calls in the expected shape; `None` if it fails.
pub(crate) fn probed(
    template: &ChatTemplate,
    request: &RenderRequest,
    messages: &[Message],
    tools: &Value,
) -> Option<String> {
    rendered(template, request, messages, Some(tools.clone()), template.capabilities().shape)
}

/// Variables without which the template writes nothing: texts, or lists of tools where it takes those.
pub(super) fn demanded(template: &ChatTemplate) -> Map<String, Value> {
    let plain = |tools: Value, more: &Map<String, Value>| {
        let mut context =
            variables(&RenderRequest::default(), &[Message::user(USER)], Some(tools), CallShape::default());
        context.extend(more.clone());
        template.trial(|| template.render_vars(&Value::Object(context), None)).is_ok()
    };
    let tools = || json!([tool().to_json()]);
    if plain(Value::Null, &Map::new()) || plain(tools(), &Map::new()) {
        return Map::new();
    }
    let missing = missing_variables(template);
    let lists = missing.iter().map(|name| {
        let of_tools = variables::demanded(name, &Value::Null, true, CLOCK).is_some_and(|value| value.is_null());
        (name.clone(), if of_tools { tools() } else { json!(VARIABLE) })
    });
    let texts = missing.iter().map(|name| (name.clone(), json!(VARIABLE)));
    [lists.collect(), texts.collect()].into_iter().find(|missing| plain(tools(), missing)).unwrap_or_default()
}

/// The variables that the template reads and nothing sets, apart from those that every template gets.
pub(super) fn missing_variables(template: &ChatTemplate) -> Vec<String> {
    let given = variables(&RenderRequest::default(), &[], None, CallShape::default());
    template.jinja.undeclared_variables().into_iter().filter(|name| !given.contains_key(name)).collect()
}

fn shows(text: Option<String>, words: &[&str]) -> bool {
    text.is_some_and(|text| words.iter().all(|word| text.contains(word)))
}
