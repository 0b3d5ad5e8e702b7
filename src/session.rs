//! One conversation with a model: the public way in.
//!
//! A session renders messages and tools with the chat template, generates, parses what comes while it comes, and adds
//! the answer to the conversation when, and only when, the turn has ended well.

use crate::engine::generate::{End, Generation, Limits, Usage, generate};
use crate::engine::llama::{LlamaEngine, LoadOptions};
use crate::engine::sampler::Sampling;
use crate::engine::scripted::Recorder;
use crate::engine::{Engine, Token};
use crate::format::event::{Event, Repair};
use crate::format::parser::{ParsedCall, Parser, ParserOptions};
use crate::format::{Format, Payload};
use crate::message::{Message, Role, ToolCall};
use crate::template::overlay::Overlay;
use crate::template::reserved::Reserved;
use crate::template::{ChatTemplate, Prompt, RenderRequest};
use crate::tool::Tools;
use crate::{Error, ErrorKind, Result};
use serde::Serialize;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Whether and what the model must call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// No calls: the tools are not shown.
    None,
    /// At least one call: the answer is begun with the start marker.
    Required,
    /// A call of this tool: the answer is begun with the start marker and the name.
    Tool(String),
}

/// What a session does with each turn.
#[derive(Debug, Clone)]
pub struct Options {
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// The longest answer, in tokens.
    pub max_tokens: usize,
    /// Whether and what the model must call.
    pub tool_choice: ToolChoice,
    /// The answer ends after this many calls.
    pub max_calls: Option<usize>,
    /// Whether the parser mends what departs from the format, or only reports it.
    pub repair: bool,
    /// Raised to end a generation, from a signal handler or another thread.
    pub cancel: Arc<AtomicBool>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            sampling: Sampling::default(),
            max_tokens: 1024,
            tool_choice: ToolChoice::Auto,
            max_calls: None,
            repair: true,
            cancel: Arc::default(),
        }
    }
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The model had said all.
    Stop,
    /// The model waits for the results of its calls.
    ToolCalls,
    /// The token limit or the end of the context.
    Length,
    /// The caller raised [`Options::cancel`].
    Cancelled,
}

/// One turn of the model.
#[derive(Debug, Clone)]
pub struct Reply {
    /// The message that joined the conversation.
    pub message: Message,
    /// Its calls, with what the parser knows of each; only `complete` and `valid` ones may be executed.
    pub calls: Vec<ParsedCall>,
    /// Why it ended.
    pub finish_reason: FinishReason,
    /// What it took.
    pub usage: Usage,
    /// What departed from the format and was understood all the same.
    pub repairs: Vec<Repair>,
    /// What else is worth knowing, in sentences.
    pub diagnostics: Vec<String>,
}

/// A conversation with one model.
///
/// ```
/// use callwright::engine::{ModelInfo, scripted::ScriptedEngine};
/// use callwright::{Session, Tools};
///
/// // `Session::open("model.gguf")` loads a model; this one only says what it was told to.
/// let call = "### TOOL_CALL_START ###\n{\"name\": \"clock\", \"arguments\": {}}\n### TOOL_CALL_END ###";
/// let engine = ScriptedEngine::from_texts(ModelInfo { context_train: 8192, ..Default::default() }, [call]);
///
/// let mut session = Session::new(Box::new(engine), None, None)?;
/// session.set_tools(Tools::from_json(r#"[{"name": "clock", "description": "The time now"}]"#)?);
/// let reply = session.ask("What time is it?")?;
/// assert_eq!(reply.calls[0].name, "clock");
/// # Ok::<(), callwright::Error>(())
/// ```
pub struct Session {
    engine: Box<dyn Engine>,
    template: ChatTemplate,
    format: Arc<Format>,
    /// How tools and calls reach a chat template that does not write them itself.
    overlay: Option<Overlay>,
    reserved: Reserved,
    tools: Arc<Tools>,
    messages: Vec<Message>,
    options: Options,
    recorder: Option<Recorder>,
    notices: Vec<String>,
}
