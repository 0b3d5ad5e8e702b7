//! What a session does with each turn: options, and whether the model must call.

use super::{Sampling, Token};
use crate::grammar::Grammar;
use crate::message::ResponseFormat;
use crate::parse::OtherForms;
use crate::setting::Setting;
use crate::tool::Tools;
use crate::{Error, ErrorKind, Result};
use jiff::civil::DateTime;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// How strictly the model is constrained.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Not at all.
    Off,
    /// Calls are constrained. If the constraint itself fails, this is reported and the answer continues without it.
    #[default]
    Auto,
    /// Calls are constrained, and a required call may not be preceded by text; if the constraint fails, the answer
    /// ends.
    Strict,
}

/// Whether and what the model must call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
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

impl ToolChoice {
    /// Returns `auto`, `none`, `required`, or the tool's name.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn name(&self) -> &str {
        match self {
            ToolChoice::Auto => "auto",
            ToolChoice::None => "none",
            ToolChoice::Required => "required",
            ToolChoice::Tool(name) => name,
        }
    }

    /// Reads `auto`, `none`, `required`, or a tool's name.
    ///
    /// # Errors
    /// [`ErrorKind::Tools`] when there is no such tool, or none at all to be required.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn from_name(name: &str, tools: &Tools) -> Result<ToolChoice> {
        match name {
            "auto" => Ok(ToolChoice::Auto),
            "none" => Ok(ToolChoice::None),
            "required" if tools.is_empty() => {
                Err(Error::new(ErrorKind::Tools, "a tool call is required, but there are no tools")
                    .hint(Setting::SomeTools))
            }
            "required" => Ok(ToolChoice::Required),
            name if tools.get(name).is_some() => Ok(ToolChoice::Tool(name.to_owned())),
            name => Err(no_such_tool(name, tools)),
        }
    }

    /// OpenAI's `tool_choice`: a word, or `{"type": "function", "function": {"name": …}}`. One of type `allowed_tools`
    /// is what its mode says; see [`ToolChoice::allowed`].
    ///
    /// # Errors
    /// [`ErrorKind::Tools`] when it is none of these, or names no tool.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn from_json(choice: &Value, tools: &Tools) -> Result<ToolChoice> {
        if let Some(allowed) = allowed_tools(choice) {
            return match allowed.get("mode") {
                None | Some(Value::Null) => Ok(ToolChoice::Auto),
                Some(Value::String(mode)) if mode == "auto" || mode == "required" => ToolChoice::from_name(mode, tools),
                Some(_) => Err(bad_choice(choice)),
            };
        }
        match choice {
            Value::String(word) if matches!(word.as_str(), "auto" | "none" | "required") => {
                ToolChoice::from_name(word, tools)
            }
            Value::Object(object) => match object.get("function").unwrap_or(choice).get("name") {
                Some(Value::String(name)) if tools.get(name).is_some() => Ok(ToolChoice::Tool(name.clone())),
                Some(Value::String(name)) => ToolChoice::from_name(name, tools),
                _ => Err(bad_choice(choice)),
            },
            _ => Err(bad_choice(choice)),
        }
    }

    /// The names of the only tools that a `tool_choice` of type `allowed_tools` allows; `None` for any other.
    ///
    /// # Errors
    /// [`ErrorKind::Tools`] when one of them is none of the tools, or there is no list.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn allowed(choice: &Value, tools: &Tools) -> Result<Option<Vec<String>>> {
        let Some(allowed) = allowed_tools(choice) else { return Ok(None) };
        let listed = allowed.get("tools").and_then(Value::as_array).filter(|list| !list.is_empty());
        let name = |tool: &Value| match tool.get("function").unwrap_or(tool).get("name") {
            Some(Value::String(name)) if tools.get(name).is_some() => Ok(name.clone()),
            Some(Value::String(name)) => Err(no_such_tool(name, tools)),
            _ => Err(bad_choice(choice)),
        };
        listed.ok_or_else(|| bad_choice(choice))?.iter().map(name).collect::<Result<_>>().map(Some)
    }
}

/// Returns what says which tools are allowed: of the Responses API the choice itself.
fn allowed_tools(choice: &Value) -> Option<&Value> {
    let flat = || choice.get("type").is_some_and(|kind| kind == "allowed_tools").then_some(choice);
    choice.get("allowed_tools").or_else(flat)
}

fn no_such_tool(name: &str, tools: &Tools) -> Error {
    let known: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
    Error::new(ErrorKind::Tools, format!("the tool choice {name:?} is none of the tools"))
        .hint(format!("auto, none, required or one of: {}", known.join(", ")))
}

fn bad_choice(choice: &Value) -> Error {
    let error = Error::new(ErrorKind::Tools, format!("tool_choice is {}", crate::json::shown(choice)));
    match choice.get("type").unwrap_or(choice).as_str() {
        Some("any") => error.hint("write \"required\" for a call of any tool"),
        _ if allowed_tools(choice).is_some() => error.hint(
            r#"expected {"type": "allowed_tools", "allowed_tools": {"mode": "auto" or "required", "tools": [{"type": "function", "function": {"name": "…"}}]}}"#,
        ),
        _ => error.hint(r#"expected "auto", "none", "required" or {"type": "function", "function": {"name": "…"}}"#),
    }
}

/// What happens where prompt and answer do not fit the context.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ContextPolicy {
    /// What the model is shown of results is shortened, and old turns are left out; each is reported. The
    /// conversation itself stays whole.
    #[default]
    Shorten,
    /// A prompt that does not fit is an error.
    Error,
}

/// What a session does with each turn.
///
/// ```
/// use callwright::session::Options;
/// let options = Options::default().with(|options| options.max_tokens = 200);
/// ```
#[derive(Debug, Clone)]
pub struct Options {
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// What is added to the logits of some tokens, calls and all.
    pub logit_bias: Vec<(Token, f32)>,
    /// The longest answer, in tokens.
    pub max_tokens: usize,
    /// Texts that end the answer, which ends before them. They are looked for in its text: not in calls, in reasoning,
    /// nor where a grammar holds the whole answer.
    pub stop: Vec<String>,
    /// Whether and what the model must call.
    pub tool_choice: ToolChoice,
    /// The beginning of the answer's text, which the model continues. It is part of the answer, and has no effect where a call is
    /// required.
    pub prefill: Option<String>,
    /// Where there are more tools than this, the prompt has only so many, those that fit the question best, and in addition
    /// those that the conversation has calls of.
    pub select_tools: Option<usize>,
    /// Whether the prompt then also has the tool `find_tools`, which brings in others. A [run](crate::Session::run) executes
    /// its calls; otherwise [`Session::find_tools`](crate::Session::find_tools) has their results.
    pub find_tools: bool,
    /// Where the model decides whether to call, the least probability of a call at which the answer
    /// has to be one, from 0 to 1. It applies to an answer to the user: after a tool's result the model is left alone.
    pub call_threshold: Option<f64>,
    /// Likewise, the probability of a call below which the answer has none.
    pub no_call_below: Option<f64>,
    /// Whether the probability of a call is that of the whole start marker, which takes one more batch, and not only that of
    /// the first token. A threshold measures the whole marker anyway.
    pub measure_call: bool,
    /// Whether events report each token with its probability, and with that of so many of the likeliest tokens in its
    /// place.
    pub logprobs: Option<usize>,
    /// The answer ends after this many calls.
    pub max_calls: Option<usize>,
    /// Whether an answer that repeats itself is ended: at a text that comes again and again, with the finish reason
    /// [`Loop`](crate::session::FinishReason::Loop), and at a call that the answer has made before.
    pub loop_guard: bool,
    /// Whether the model may write text after its calls. Otherwise that ends the answer and is not part of it, unless the
    /// format allows it or nothing is constrained.
    pub text_after_calls: bool,
    /// Whether an answer without a call has a note that says in full what may be the reason; otherwise there is a short
    /// one, only where something suggests that a call was meant or the model is not able to call.
    pub explain: bool,
    /// How far the model is held to the format's grammar.
    pub constrain: Mode,
    /// The grammar of the whole answer, in place of the format's.
    pub grammar: Option<Grammar>,
    /// What an answer without a call has to be, where no [`Options::grammar`] says so.
    pub response_format: Option<ResponseFormat>,
    /// At most this many tokens of text before a call. A required call begins then; where the model decides, no call
    /// begins any more. By default a required call begins at once, and any other at any time.
    pub max_preamble: Option<usize>,
    /// At most this many tokens of reasoning, if there is a limit; the constraint closes it then.
    pub max_thinking: Option<usize>,
    /// Whether what the grammar forces is appended without asking the model.
    pub jump: bool,
    /// Whether tokens may be drafted from the conversation, which changes no result; see
    /// [`Usage::drafted_tokens`](crate::generate::Usage::drafted_tokens).
    pub draft: bool,
    /// Whether the parser repairs departures from the format, or only reports them.
    pub repair: bool,
    /// Whether repairs convert values of another type than the schema wants.
    pub coerce: bool,
    /// Whether repairs correct a tool's name in another case or with other separators.
    pub normalize_names: bool,
    /// What becomes of calls in another form than the format's. Where a grammar holds the whole answer, they are text.
    pub other_forms: OtherForms,
    /// What to do where the conversation does not fit the context.
    pub context: ContextPolicy,
    /// What the chat template's clock reads; the time now, if `None`.
    pub now: Option<DateTime>,
    /// Raised to end a generation, from a signal handler or another thread.
    pub cancel: Arc<AtomicBool>,
}

impl Options {
    /// These options after `set` has changed some.
    #[must_use]
    pub fn with(mut self, set: impl FnOnce(&mut Self)) -> Self {
        set(&mut self);
        self
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            sampling: Sampling::default(),
            logit_bias: Vec::new(),
            max_tokens: 1024,
            stop: Vec::new(),
            tool_choice: ToolChoice::Auto,
            prefill: None,
            select_tools: None,
            find_tools: false,
            call_threshold: None,
            no_call_below: None,
            measure_call: false,
            logprobs: None,
            max_calls: None,
            loop_guard: true,
            text_after_calls: false,
            explain: false,
            constrain: Mode::default(),
            grammar: None,
            response_format: None,
            max_preamble: None,
            max_thinking: None,
            jump: true,
            draft: true,
            repair: true,
            coerce: true,
            normalize_names: true,
            other_forms: OtherForms::default(),
            context: ContextPolicy::default(),
            now: None,
            cancel: Arc::default(),
        }
    }
}
