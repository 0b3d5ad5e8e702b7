//! Roles, messages, calls and results. OpenAI's JSON is the interchange form, in and out.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Instructions to the model.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
    /// The result of a tool call.
    Tool,
}

/// A call's arguments.
///
/// A model may write anything, and a history has to carry what it wrote: arguments that are not a JSON object are
/// kept as their text.
#[derive(Debug, Clone, PartialEq)]
pub enum Arguments {
    /// A JSON object.
    Object(Map<String, Value>),
    /// Text that is no JSON object.
    Raw(String),
}

/// One tool call of an assistant message.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// The id that the result answers; imported histories may lack it.
    pub id: Option<String>,
    /// The tool's name.
    pub name: String,
    /// What it is called with.
    pub arguments: Arguments,
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said; empty where the message only carries calls.
    pub content: String,
    /// What a reasoning model thought before it spoke.
    pub reasoning: Option<String>,
    /// The calls of an assistant message.
    pub tool_calls: Vec<ToolCall>,
    /// Which call a tool message answers.
    pub tool_call_id: Option<String>,
    /// The name of the tool that a tool message comes from, or of the speaker.
    pub name: Option<String>,
}
