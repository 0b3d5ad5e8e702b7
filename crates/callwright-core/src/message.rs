//! Roles, messages, calls and results. OpenAI's JSON is the input and output form.
//!
//! Histories come from many programs, and the parser accepts whatever a person could read. [`Conversation::notes`]
//! lists what was read in another form, `adopt` fixes ids and results, and `complete` gives the order that chat
//! templates need. Only a file that is not a conversation is refused. `check_text_only` refuses images and other
//! parts that are not text, for callers that want this.
//!
//! ```
//! use callwright_core::message::Conversation;
//!
//! let text = r#"[{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi."}]"#;
//! let conversation = Conversation::from_json(text, "history.json")?;
//! assert_eq!(conversation.messages[1].content, "Hi.");
//! # Ok::<(), callwright_core::Error>(())
//! ```

mod adopt;
mod body;
mod complete;
mod order;
mod parts;
mod read;
pub(crate) mod response;
mod twice;

#[cfg_attr(feature = "unstable", visibility::make(pub))]
pub(crate) use self::{
    adopt::adopt,
    body::{Body, DRY_MULTIPLIER, NO_LIMIT, PENALTY, REPEAT_PENALTY, ResponseFormat, SHARE, TEMPERATURE, UnusedField},
    complete::{Placed, complete},
    order::{check_answered, check_asked, check_order, check_question, open_calls},
};
pub(crate) use complete::{are_in_call_order, as_text, in_call_order};

use crate::error::{Error, ErrorKind, Result};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Instructions to the model; OpenAI's `developer` is read as this too.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
    /// The result of a tool call.
    Tool,
}

impl Role {
    /// The role's name in JSON.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        }
    }
}

/// A call's arguments.
///
/// A model may write anything, and a history must keep what it wrote: arguments that are not a JSON object are kept as
/// text.
#[derive(Debug, Clone, PartialEq)]
pub enum Arguments {
    /// A JSON object.
    Object(Map<String, Value>),
    /// Text that is not a JSON object.
    Raw(String),
}

impl Arguments {
    /// Parses arguments: an object if `text` is one, else the text. Empty text is `{}`.
    pub fn from_text(text: &str) -> Arguments {
        if text.trim().is_empty() {
            return Arguments::Object(Map::new());
        }
        match serde_json::from_str(text) {
            Ok(Value::Object(map)) => Arguments::Object(map),
            _ => Arguments::Raw(text.to_owned()),
        }
    }

    /// JSON text for an object; other arguments unchanged.
    pub fn to_text(&self) -> String {
        match self {
            Arguments::Object(map) => Value::Object(map.clone()).to_string(),
            Arguments::Raw(text) => text.clone(),
        }
    }

    /// The object, if the arguments are one.
    pub fn as_object(&self) -> Option<&Map<String, Value>> {
        match self {
            Arguments::Object(map) => Some(map),
            Arguments::Raw(_) => None,
        }
    }
}

/// One tool call of an assistant message.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// The id that the result refers to; imported histories may lack it.
    pub id: Option<String>,
    /// The tool's name.
    pub name: String,
    /// The arguments.
    pub arguments: Arguments,
}

impl ToolCall {
    /// OpenAI's form: `{"id", "type": "function", "function": {"name", "arguments"}}`, the arguments as a string.
    pub fn to_json(&self) -> Value {
        let mut call = Map::new();
        if let Some(id) = &self.id {
            call.insert("id".into(), json!(id));
        }
        call.insert("type".into(), json!("function"));
        call.insert("function".into(), json!({"name": self.name, "arguments": self.arguments.to_text()}));
        Value::Object(call)
    }
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// The speaker.
    pub role: Role,
    /// The text; empty if the message only has calls. Each part that is not text is replaced by a placeholder.
    pub content: String,
    /// The original content, if it has parts that are not text, such as images.
    pub parts: Option<Value>,
    /// The reasoning before the answer.
    pub reasoning: Option<String>,
    /// The calls of an assistant message.
    pub tool_calls: Vec<ToolCall>,
    /// Which call a tool message answers.
    pub tool_call_id: Option<String>,
    /// The name of the tool that a tool message comes from, or of the speaker.
    pub name: Option<String>,
}

impl Message {
    /// A message with text only.
    pub fn new(role: Role, content: impl Into<String>) -> Message {
        Message {
            role,
            content: content.into(),
            parts: None,
            reasoning: None,
            tool_calls: Vec::new(),
            tool_call_id: None,
            name: None,
        }
    }

    /// Instructions to the model.
    pub fn system(content: impl Into<String>) -> Message {
        Message::new(Role::System, content)
    }

    /// A user's message.
    pub fn user(content: impl Into<String>) -> Message {
        Message::new(Role::User, content)
    }

    /// A model's answer.
    pub fn assistant(content: impl Into<String>) -> Message {
        Message::new(Role::Assistant, content)
    }

    /// The model's calls, without text.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn calls(tool_calls: Vec<ToolCall>) -> Message {
        Message { tool_calls, ..Message::new(Role::Assistant, "") }
    }

    /// The result of the call `id` of the tool `name`.
    pub fn tool(id: impl Into<String>, name: impl Into<String>, content: impl Into<String>) -> Message {
        Message { tool_call_id: Some(id.into()), name: Some(name.into()), ..Message::new(Role::Tool, content) }
    }

    /// OpenAI's form. `content` is null if there are calls and no text; `reasoning_content` is present only if there is
    /// reasoning.
    ///
    /// ```
    /// use callwright_core::message::Message;
    /// assert_eq!(Message::user("Hi").to_json().to_string(), r#"{"role":"user","content":"Hi"}"#);
    /// ```
    pub fn to_json(&self) -> Value {
        let mut message = Map::new();
        message.insert("role".into(), json!(self.role));
        if let Some(name) = &self.name {
            message.insert("name".into(), json!(name));
        }
        if let Some(id) = &self.tool_call_id {
            message.insert("tool_call_id".into(), json!(id));
        }
        if let Some(reasoning) = &self.reasoning {
            message.insert("reasoning_content".into(), json!(reasoning));
        }
        let content = match &self.parts {
            Some(parts) => parts.clone(),
            None if self.content.is_empty() && !self.tool_calls.is_empty() => Value::Null,
            None => json!(self.content),
        };
        message.insert("content".into(), content);
        if !self.tool_calls.is_empty() {
            message.insert("tool_calls".into(), self.tool_calls.iter().map(ToolCall::to_json).collect());
        }
        Value::Object(message)
    }
}

/// A history, and the other fields of a request body.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct Conversation {
    /// The messages, oldest first.
    pub messages: Vec<Message>,
    /// The body's `tools`, unchanged; see [`Tools::from_value`](crate::tool::Tools::from_value).
    pub tools: Option<Value>,
    /// The body's `tool_choice`.
    pub tool_choice: Option<Value>,
    /// The body's `parallel_tool_calls`.
    pub parallel_tool_calls: Option<bool>,
    /// The body's `model`.
    pub model: Option<String>,
    /// All other fields of the body, such as `temperature` or `chat_template_kwargs`.
    pub extra: Map<String, Value>,
    /// What was read in another form, or ignored, each with its place.
    pub notes: Vec<String>,
}

impl Conversation {
    /// OpenAI's form: a request body with `messages` and the other fields that are set.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn to_json(&self) -> Value {
        let mut body = Map::new();
        if let Some(model) = &self.model {
            body.insert("model".into(), json!(model));
        }
        body.insert("messages".into(), messages_to_json(&self.messages));
        if let Some(tools) = &self.tools {
            body.insert("tools".into(), tools.clone());
        }
        if let Some(choice) = &self.tool_choice {
            body.insert("tool_choice".into(), choice.clone());
        }
        if let Some(parallel) = self.parallel_tool_calls {
            body.insert("parallel_tool_calls".into(), json!(parallel));
        }
        body.extend(self.extra.clone());
        Value::Object(body)
    }
}

/// A list of messages in OpenAI's form.
#[cfg_attr(feature = "unstable", visibility::make(pub))]
pub(crate) fn messages_to_json(messages: &[Message]) -> Value {
    messages.iter().map(Message::to_json).collect()
}

/// Checks that the messages contain text only.
///
/// # Errors
/// [`ErrorKind::Messages`] with the place and type of the first part that is not text.
#[cfg_attr(feature = "unstable", visibility::make(pub))]
pub(crate) fn check_text_only(messages: &[Message]) -> Result<()> {
    for (index, message) in messages.iter().enumerate() {
        let Some(parts) = &message.parts else { continue };
        let read = parts::content(parts, &format!("messages[{index}].content"), message.role);
        if let Some((path, kind)) = read.unshown {
            let text = format!("{path} is a part of type {kind:?}; only text can be read");
            return Err(Error::new(ErrorKind::Messages, text));
        }
    }
    Ok(())
}
