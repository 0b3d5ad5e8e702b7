//! Prompts, as a chat template writes them.

use crate::source;
use callwright_core::choose::{Clues, Writes, format_for};
use callwright_core::message::{Conversation, Message, adopt};
use callwright_core::template::{ChatTemplate, Overlay, RenderRequest};
use callwright_core::{Error, ErrorKind, Result, Tools};
use jiff::civil::DateTime;
use serde::Deserialize;
use serde_json::{Map, Value};

/// How to render a conversation.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct RenderOptions {
    /// A format for calls: `auto` chooses as the program does, a name or a declaration sets one.
    pub format: Option<String>,
    /// Whether the prompt ends with the header of the assistant's turn.
    pub add_generation_prompt: bool,
    /// The text of the token that begins a sequence.
    pub bos_token: String,
    /// The text of the token that ends one.
    pub eos_token: String,
    /// More variables of the template, such as `enable_thinking`.
    pub variables: Map<String, Value>,
    /// The template's clock, as `2026-01-15T12:00:00`.
    pub now: Option<String>,
}

impl Default for RenderOptions {
    fn default() -> RenderOptions {
        RenderOptions {
            format: None,
            add_generation_prompt: true,
            bos_token: String::new(),
            eos_token: String::new(),
            variables: Map::new(),
            now: None,
        }
    }
}

/// A prompt, and what a parser of its answer has to know.
#[derive(Debug, Clone, PartialEq)]
pub struct Rendered {
    /// The prompt.
    pub text: String,
    /// The name of the format in which the model is to write calls.
    pub format: String,
    /// The end of the prompt that follows the conversation: the header of the assistant's turn, and what it opens.
    pub prompt_tail: String,
    /// How the conversation was adapted for the template, and what is unusual in it.
    pub notes: Vec<String>,
}

/// Renders a conversation: a list of messages in OpenAI's form, or a request body.
///
/// # Errors
/// Of the template, the messages, the tools or an option.
pub fn render(given: &str, messages: Value, tools: Option<Tools>, options: &RenderOptions) -> Result<Rendered> {
    let template = source::template(given)?;
    let conversation = Conversation::from_value(messages)?;
    let tools = match (tools, &conversation.tools) {
        (Some(tools), _) => Some(tools),
        (None, Some(own)) => source::tools(own)?,
        (None, None) => None,
    };
    let requested = options.format.as_deref().map(source::format).transpose()?.flatten();
    let choice = format_for(&template, requested, Clues::default())?;
    let has_calls = conversation.messages.iter().any(|message| !message.tool_calls.is_empty());
    let needed = has_calls || tools.as_ref().is_some_and(|tools| !tools.is_empty());
    let section = match choice.writes {
        Writes::Section if needed => {
            Some(ChatTemplate::new(format!("{}.jinja", choice.format.name), choice.format.source())?)
        }
        _ => None,
    };
    let overlay = match choice.writes {
        Writes::Section | Writes::Calls if needed => {
            Some(Overlay { section: section.as_ref(), history: &choice.format })
        }
        _ => None,
    };
    let mut variables = match &choice.writes {
        Writes::Template(variables) => variables.clone(),
        _ => Map::new(),
    };
    variables.extend(options.variables.clone());
    let now = clock(options.now.as_deref())?;
    let (messages, adopted) = adopt(conversation.messages);
    let request = RenderRequest::default().with(|set| {
        set.messages = &messages;
        set.tools = tools.as_ref();
        set.add_generation_prompt = options.add_generation_prompt;
        set.bos_token = &options.bos_token;
        set.eos_token = &options.eos_token;
        set.variables = variables;
        set.now = now;
        set.overlay = overlay;
    });
    let adapted = template.render_adapted(&request, &[])?;
    let text = adapted.prompt.text();
    let prompt_tail = match options.add_generation_prompt {
        true => tail(&template, request.clone(), adapted.messages.as_deref().unwrap_or(&messages), &text),
        false => String::new(),
    };
    let mut notes = conversation.notes;
    notes.extend(tools.iter().flat_map(Tools::notices).map(ToString::to_string));
    notes.extend(adopted);
    notes.extend(choice.notices.into_iter().filter(|_| needed));
    notes.extend(adapted.notes);
    Ok(Rendered { text, format: choice.format.name.clone(), prompt_tail, notes })
}

/// Renders a template with exactly these variables, as `callwright render --vars` does.
///
/// # Errors
/// Of the template or an option.
pub fn render_variables(given: &str, variables: &Value, now: Option<&str>) -> Result<String> {
    source::template(given)?.render_vars(variables, clock(now)?)
}

/// Returns what the generation prompt adds to the conversation.
fn tail(template: &ChatTemplate, request: RenderRequest<'_>, messages: &[Message], text: &str) -> String {
    let request = RenderRequest::default().with(|set| {
        set.messages = messages;
        set.add_generation_prompt = false;
        (set.tools, set.overlay, set.now) = (request.tools, request.overlay, request.now);
        (set.bos_token, set.eos_token) = (request.bos_token, request.eos_token);
        set.variables = request.variables;
    });
    let Ok(without) = template.render(&request) else { return String::new() };
    let without = without.text();
    let differs = text.char_indices().zip(without.chars()).find(|((_, a), b)| a != b).map(|((at, _), _)| at);
    text[differs.unwrap_or(without.len().min(text.len()))..].to_owned()
}

fn clock(now: Option<&str>) -> Result<Option<DateTime>> {
    let read = |text: &str| {
        text.parse().map_err(|_| {
            Error::new(ErrorKind::Config, format!("now is {text:?}, which is no time"))
                .hint("write it as 2026-01-15T12:00:00")
        })
    };
    now.map(read).transpose()
}
