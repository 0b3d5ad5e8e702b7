//! What a client asks for, whatever the dialect of its request.

use super::bodies::Held;
use super::refusal::Refusal;
use super::updates::Outbox;
use axum::http::StatusCode;
use callwright::constraint::Mode;
use callwright::engine::Token;
use callwright::engine::sampler::Sampling;
use callwright::message::{Body, Conversation, Message, adopt, check_asked};
use callwright::models::{self, ModelEntry};
use callwright::session::{ContextPolicy, Options, ToolChoice};
use callwright::tool::Tools;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Instant;

/// One request, and where its answer goes.
pub(super) struct Job {
    pub work: Work,
    pub outbox: Outbox,
    /// When it is to be over.
    pub until: Instant,
    /// The room that its body takes.
    pub _held: Arc<Held>,
}

/// What is to be generated.
pub(super) enum Work {
    /// An answer in a conversation.
    Chat(Box<Chat>),
    /// The continuation of a text.
    Text(Box<Text>),
    /// Panics.
    #[cfg(test)]
    Panic,
}

/// The name of the body in messages about it.
const BODY: &str = "request body";

/// Limits of what a body may hold; beyond them a prompt is no work for a local model.
/// Values of JSON, whatever they are: each takes a hundred bytes, where two may write it.
const VALUES: usize = 500_000;
const MESSAGES: usize = 10_000;
const TOOLS: usize = 1_000;

/// An answer in a conversation.
pub(super) struct Chat {
    pub messages: Vec<Message>,
    pub tools: Tools,
    pub tool_choice: ToolChoice,
    pub body: Body,
    pub own: Own,
    /// See [`Options::prefill`].
    pub prefill: Option<String>,
    /// See [`Options::logprobs`].
    pub logprobs: Option<usize>,
    /// What is worth knowing about the request.
    pub notes: Vec<String>,
}

/// The continuation of a text.
pub(super) struct Text {
    pub prompt: String,
    pub body: Body,
    pub echo: bool,
    /// See [`Options::logprobs`].
    pub logprobs: Option<usize>,
}

/// The field `callwright` of a body: what other servers do not have.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Own {
    /// A built-in format in place of the template's.
    pub format: Option<String>,
    /// `off`, `auto` or `strict`.
    pub constrain: Option<Mode>,
    /// See [`Options::call_threshold`].
    pub call_threshold: Option<f64>,
    /// See [`Options::no_call_below`].
    pub no_call_below: Option<f64>,
    /// See [`Options::max_calls`].
    pub max_calls: Option<usize>,
    /// See [`Options::max_thinking`].
    pub max_thinking: Option<usize>,
    /// See [`Options::select_tools`].
    pub select_tools: Option<usize>,
    /// See [`Options::loop_guard`].
    pub loop_guard: Option<bool>,
    /// See [`Options::context`].
    pub context_policy: Option<ContextPolicy>,
    /// See [`Options::explain`].
    pub explain: bool,
    /// When a stream has the arguments of a call.
    pub stream_arguments: Option<StreamArguments>,
    /// Whether the response has the prompt, the model's own text, and the tokens of both.
    pub trace: bool,
}

/// When a stream has the arguments of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StreamArguments {
    /// Once the call is complete: a call that is cut off is not in the stream.
    Complete,
    /// While the model writes them.
    Written,
}

/// Fields that a server honours, and that are no part of an answer.
const OF_SERVERS: [&str; 12] = [
    "callwright",
    "logprobs",
    "metadata",
    "n",
    "prompt_cache_key",
    "safety_identifier",
    "service_tier",
    "store",
    "stream",
    "stream_options",
    "top_logprobs",
    "user",
];

/// Answers to one request, at most.
const ANSWERS: u64 = 16;

/// The fields that a server honours.
#[derive(Debug, Default)]
pub(super) struct ServerFields {
    pub stream: bool,
    /// How many answers are asked for.
    pub answers: usize,
    /// The number of likeliest tokens to report with each token.
    pub logprobs: Option<usize>,
    /// Whether a stream ends with the usage.
    pub include_usage: bool,
    pub own: Own,
}

impl ServerFields {
    /// Takes the fields out of a body.
    ///
    /// # Errors
    /// A refusal if one has a value that is not possible.
    pub(super) fn take(fields: &mut Map<String, Value>) -> Result<ServerFields, Refusal> {
        let mut taken: Map<String, Value> = Map::new();
        for name in OF_SERVERS {
            if let Some(value) = fields.shift_remove(name).filter(|value| !value.is_null()) {
                taken.insert(name.to_owned(), value);
            }
        }
        let flag = |value: Option<&Value>, name: &str| match value {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(other) => Err(Refusal::invalid(format!("{name} is {}; expected true or false", shown(other)))),
        };
        let answers = taken.get("n").map_or(Ok(1), answers)?;
        let own = match taken.get("callwright") {
            None => Own::default(),
            Some(value) => serde_json::from_value(value.clone())
                .map_err(|error| Refusal::invalid(format!("callwright: {error}")))?,
        };
        let include_usage = taken.get("stream_options").and_then(|options| options.get("include_usage"));
        Ok(ServerFields {
            stream: flag(taken.get("stream"), "stream")?,
            answers,
            logprobs: logprobs(&taken)?,
            include_usage: flag(include_usage, "stream_options.include_usage")?,
            own,
        })
    }

    /// For a path that writes one answer.
    ///
    /// # Errors
    /// A refusal if several are asked for.
    pub(super) fn one_answer(&self) -> Result<(), Refusal> {
        if self.answers == 1 {
            return Ok(());
        }
        Err(Refusal::invalid("n: only /v1/chat/completions writes several answers to one request"))
    }
}

impl Work {
    /// The same request for its answer with this number: a seed that is given is another one for each.
    pub(super) fn numbered(mut self, number: usize) -> Work {
        if let Work::Chat(chat) = &mut self {
            chat.body.seed = chat.body.seed.map(|seed| seed.wrapping_add(number as u64));
        }
        self
    }
}

/// How many answers `n` asks for.
fn answers(count: &Value) -> Result<usize, Refusal> {
    // Some clients write each number with a point.
    match count.as_f64() {
        Some(number) if number.fract() == 0.0 && (1.0..=ANSWERS as f64).contains(&number) => Ok(number as usize),
        _ => Err(Refusal::invalid(format!("n is {}; expected a number from 1 to {ANSWERS}", shown(count)))),
    }
}

/// How many of the likeliest tokens are asked for: of completions `logprobs` is the number, of chats `top_logprobs`.
fn logprobs(fields: &Map<String, Value>) -> Result<Option<usize>, Refusal> {
    let count = |name: &str, value: &Value| match value.as_u64() {
        Some(count @ 0..=20) => Ok(Some(count as usize)),
        _ => Err(Refusal::invalid(format!("{name} is {}; expected a number from 0 to 20", shown(value)))),
    };
    match (fields.get("logprobs"), fields.get("top_logprobs")) {
        (None | Some(Value::Bool(false)), _) => Ok(None),
        (Some(Value::Bool(true)), None) => Ok(Some(0)),
        (Some(Value::Bool(true)), Some(top)) => count("top_logprobs", top),
        (Some(number), _) => count("logprobs", number),
    }
}

fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

/// A body as a JSON object.
///
/// # Errors
/// A refusal that says where it is no JSON, or that it is no object.
pub(super) fn object(body: &[u8]) -> Result<Map<String, Value>, Refusal> {
    let text = std::str::from_utf8(body).map_err(|error| {
        Refusal::invalid(format!("the request body is not UTF-8: byte {} is wrong", error.valid_up_to()))
    })?;
    if text.trim().is_empty() {
        return Err(Refusal::invalid("the request body is empty; expected a JSON object"));
    }
    let values = values(body);
    if values > VALUES {
        let message =
            format!("the request body has {values} values of JSON; {VALUES} are the most that a request may have");
        return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", message));
    }
    match serde_json::from_str(text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(other) => Err(Refusal::invalid(format!("the request body is {}; expected a JSON object", shown(&other)))),
        Err(error) => Err(Refusal::invalid(format!("the request body is not JSON: {error}"))),
    }
}

/// How many values a text of JSON has at most.
fn values(text: &[u8]) -> usize {
    let (mut values, mut in_string, mut escaped) = (1, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_string,
            b'"' => in_string = !in_string,
            b',' | b'[' | b'{' if !in_string => values += 1,
            _ => {}
        }
    }
    values
}

impl Chat {
    /// Reads a body of OpenAI's chat completions, without the fields of [`ServerFields`].
    ///
    /// # Errors
    /// A refusal for what is not readable in it.
    pub(super) fn read(fields: Map<String, Value>, own: Own) -> Result<Chat, Refusal> {
        if !fields.contains_key("messages") {
            return Err(Refusal::invalid("messages is missing; expected a list of messages"));
        }
        let conversation = Conversation::from_value(Value::Object(fields)).map_err(|error| error.in_file(BODY))?;
        if conversation.messages.len() > MESSAGES {
            return Err(Refusal::invalid(format!("messages: more than {MESSAGES}")));
        }
        let mut body = Body::of(&conversation)?;
        body.unused.retain(|field| field.name != "model");
        let mut tools = match &conversation.tools {
            Some(tools) => Tools::from_value(tools)?,
            None => Tools::default(),
        };
        if tools.len() > TOOLS {
            return Err(Refusal::invalid(format!("tools: more than {TOOLS}")));
        }
        let choice = match &conversation.tool_choice {
            None => ToolChoice::Auto,
            Some(choice) => {
                let read = ToolChoice::from_json(choice, &tools)?;
                if let Some(allowed) = ToolChoice::allowed(choice, &tools)? {
                    tools = tools.only(&allowed);
                }
                read
            }
        };
        let (messages, adopted) = adopt(conversation.messages);
        check_asked(&messages)?;
        let unused = body.unused_note();
        let notes = conversation.notes.into_iter().chain(std::mem::take(&mut body.notes)).chain(unused).chain(adopted);
        let notes = notes.collect();
        Ok(Chat { messages, tools, tool_choice: choice, body, own, prefill: None, logprobs: None, notes })
    }

    /// The options of the answer: the request's, or else the model's, or else the server's.
    pub(super) fn options(&self, entry: &ModelEntry, defaults: &Options, max_tokens: usize) -> Options {
        let mut options = options(&self.body, entry, defaults, max_tokens);
        let own = &self.own;
        options.logprobs = self.logprobs;
        options.tool_choice = self.tool_choice.clone();
        options.max_calls = match self.body.parallel_tool_calls {
            Some(false) => Some(1),
            _ => own.max_calls.or(options.max_calls),
        };
        options.response_format.clone_from(&self.body.response_format);
        if own.format.is_none() {
            options.call_threshold = options.call_threshold.or(entry.call_threshold);
            options.no_call_below = options.no_call_below.or(entry.no_call_below);
        }
        options.call_threshold = own.call_threshold.or(options.call_threshold);
        options.no_call_below = own.no_call_below.or(options.no_call_below);
        options.constrain = own.constrain.unwrap_or(options.constrain);
        options.max_thinking = own.max_thinking.or(options.max_thinking);
        options.select_tools = own.select_tools.or(options.select_tools);
        options.loop_guard = own.loop_guard.unwrap_or(options.loop_guard);
        options.context = own.context_policy.unwrap_or(options.context);
        options.explain |= own.explain;
        options.prefill.clone_from(&self.prefill);
        options
    }

    /// Returns whether a call is streamed only once it is complete.
    pub(super) fn holds_calls(&self, default: StreamArguments) -> bool {
        self.own.stream_arguments.unwrap_or(default) == StreamArguments::Complete
    }
}

impl Text {
    /// Reads a body of OpenAI's completions, without the fields of [`ServerFields`].
    ///
    /// # Errors
    /// A refusal for what is not readable in it.
    pub(super) fn read(mut fields: Map<String, Value>) -> Result<Text, Refusal> {
        let prompt = match fields.shift_remove("prompt") {
            Some(Value::String(prompt)) => prompt,
            Some(Value::Array(prompts)) if prompts.len() == 1 && prompts[0].is_string() => {
                prompts[0].as_str().unwrap_or_default().to_owned()
            }
            None => return Err(Refusal::invalid("prompt is missing; expected a text")),
            Some(other) => {
                return Err(Refusal::invalid(format!("prompt is {}; expected one text", shown(&other))));
            }
        };
        let echo = fields.shift_remove("echo").filter(|echo| !echo.is_null());
        Refusal::unless(echo.as_ref().is_none_or(Value::is_boolean), "echo", "true or false")?;
        let echo = echo == Some(Value::Bool(true));
        let mut conversation = Conversation::default();
        conversation.extra = fields;
        conversation.extra.shift_remove("model");
        let body = Body::of(&conversation)?;
        Ok(Text { prompt, body, echo, logprobs: None })
    }

    /// The options of the answer.
    pub(super) fn options(&self, entry: &ModelEntry, defaults: &Options, max_tokens: usize) -> Options {
        options(&self.body, entry, defaults, max_tokens)
    }
}

/// The options that a body, a model and a server have in common.
fn options(body: &Body, entry: &ModelEntry, defaults: &Options, max_tokens: usize) -> Options {
    let sampling = models::Sampling {
        temperature: body.temperature,
        top_k: body.top_k,
        top_p: body.top_p,
        min_p: body.min_p,
        repeat_penalty: body.repeat_penalty,
        presence_penalty: body.presence_penalty,
        frequency_penalty: body.frequency_penalty,
        repeat_last_n: body.repeat_last_n,
        dry_multiplier: body.dry_multiplier,
    };
    Options {
        sampling: Sampling::from(sampling.or(&entry.sampling)),
        max_tokens: body.max_tokens.unwrap_or(max_tokens),
        stop: body.stop.clone(),
        logit_bias: body.logit_bias.iter().map(|(id, bias)| (Token(*id), *bias)).collect(),
        ..defaults.clone()
    }
}
