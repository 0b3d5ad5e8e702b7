//! One conversation with a model: the public way in.
//!
//! A session renders messages and tools with the chat template, generates, parses what comes while it comes, and adds
//! the answer to the conversation when, and only when, the turn has ended well.

mod constrain;
mod record;

use crate::engine::constraint::{Compiler, Mode, Notice};
use crate::engine::generate::{End, Limits, Usage, generate};
use crate::engine::llama::{LlamaEngine, LoadOptions};
use crate::engine::sampler::Sampling;
use crate::engine::scripted::Recorder;
use crate::engine::{Engine, Token};
use crate::format::event::{Diagnostic, Event as ParserEvent, Repair};
use crate::format::grammar::{Grammar, Unenforced};
use crate::format::parser::{Parsed, ParsedCall, Parser, ParserOptions};
use crate::format::{Format, Marker};
use crate::message::{Message, Role, check_order, open_calls};
use crate::models::Gguf;
use crate::template::{ChatTemplate, ChatTemplates, Overlay, Piece, Prompt, RenderRequest, Reserved};
use crate::tool::Tools;
use crate::{Error, ErrorKind, Result};
use jiff::civil::DateTime;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Whether and what the model must call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
    /// `auto`, `none`, `required`, or a tool's name.
    ///
    /// # Errors
    /// [`ErrorKind::Tools`] when there is no such tool, or none at all to be required.
    pub fn from_name(name: &str, tools: &Tools) -> Result<ToolChoice> {
        match name {
            "auto" => Ok(ToolChoice::Auto),
            "none" => Ok(ToolChoice::None),
            "required" if tools.is_empty() => {
                Err(Error::new(ErrorKind::Tools, "a tool call is required, but there are no tools")
                    .hint("give some with --tools FILE"))
            }
            "required" => Ok(ToolChoice::Required),
            name if tools.get(name).is_some() => Ok(ToolChoice::Tool(name.to_owned())),
            name => {
                let known: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
                Err(Error::new(ErrorKind::Tools, format!("the tool choice {name:?} is none of the tools"))
                    .hint(format!("auto, none, required or one of: {}", known.join(", "))))
            }
        }
    }

    /// OpenAI's `tool_choice`: a word, or `{"type": "function", "function": {"name": …}}`.
    ///
    /// # Errors
    /// [`ErrorKind::Tools`] when it is neither, or names no tool.
    pub fn from_json(choice: &Value, tools: &Tools) -> Result<ToolChoice> {
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
}

fn bad_choice(choice: &Value) -> Error {
    Error::new(ErrorKind::Tools, format!("tool_choice is {choice}"))
        .hint(r#"expected "auto", "none", "required" or {"type": "function", "function": {"name": "…"}}"#)
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
    /// How far the model is held to the format's grammar.
    pub constrain: Mode,
    /// The grammar of the whole answer, in place of the format's.
    pub grammar: Option<Grammar>,
    /// Where a call is required, at most this many tokens before it.
    pub max_preamble: usize,
    /// At most this many tokens of reasoning, if there is a limit; the constraint closes it then.
    pub max_thinking: Option<usize>,
    /// Whether what the grammar forces is appended without asking the model.
    pub jump: bool,
    /// Whether the parser mends what departs from the format, or only reports it.
    pub repair: bool,
    /// What the chat template's clock reads; the time now, if `None`.
    pub now: Option<DateTime>,
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
            constrain: Mode::default(),
            grammar: None,
            max_preamble: 0,
            max_thinking: None,
            jump: true,
            repair: true,
            now: None,
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

/// What happens during a turn, as it happens.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Event {
    /// The model writes.
    Parsed(ParserEvent),
    /// The grammar intervened, or could not.
    Constraint(Tagged<Told>),
    /// What the turn took.
    Usage(Tagged<Usage>),
    /// The turn is over.
    Done(Tagged<Done>),
}

/// A value that says in its JSON which event it is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tagged<T> {
    r#type: &'static str,
    #[serde(flatten)]
    value: T,
}

/// The end of a turn.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Done {
    /// Why.
    pub finish_reason: FinishReason,
}

/// Something to tell, in words.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Told {
    /// What happened.
    pub message: String,
}

/// Something worth knowing about an answer: a repair, a problem with a call, a departure that was left.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Note {
    /// Which kind: `repair`, `problem`, `diagnostic` or `constraint`.
    pub kind: &'static str,
    /// The call it is about, where it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// The repair, where it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repair: Option<Repair>,
    /// In words.
    pub message: String,
}

/// All that is worth knowing about a parsed answer.
pub fn notes(parsed: &Parsed) -> Vec<Note> {
    let plain = |kind, message| Note { kind, call: None, repair: None, message };
    let repairs = parsed.repairs.iter().map(|repair| Note {
        repair: Some(repair.clone()),
        ..plain("repair", format!("byte {}: repaired {}", repair.range.start, repair.kind.describe()))
    });
    let diagnostics =
        parsed.diagnostics.iter().map(|diagnostic: &Diagnostic| plain("diagnostic", diagnostic.to_string()));
    let problems = parsed.calls.iter().flat_map(|call| {
        call.problems.iter().map(move |problem| Note {
            call: Some(call.id.clone()),
            ..plain("problem", format!("{} {}: {problem}", call.id, call.name))
        })
    });
    repairs.chain(diagnostics).chain(problems).collect()
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
    /// Repairs, problems and departures.
    pub notes: Vec<Note>,
    /// What the model wrote, as it is before it is parsed, with what the prompt began of it.
    pub raw: Vec<u8>,
    /// The tokens of it that the model wrote.
    pub tokens: Vec<Token>,
    /// What the prompt wrote of the answer before that (see [`ParserOptions::prompt_tail`]).
    pub prompt_tail: String,
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
/// session.set_tools(Tools::from_json(r#"[{"name": "clock", "description": "The time now"}]"#, "tools")?);
/// let reply = session.ask("What time is it?")?;
/// assert_eq!(reply.calls[0].name, "clock");
/// # Ok::<(), callwright::Error>(())
/// ```
pub struct Session {
    engine: Box<dyn Engine>,
    templates: ChatTemplates,
    format: Arc<Format>,
    /// The format's tool section, for a chat template that does not write tools in this format by itself.
    section: Option<ChatTemplate>,
    /// What makes a chat template write the format, where it knows several.
    variables: Map<String, Value>,
    reserved: Reserved,
    tools: Arc<Tools>,
    messages: Vec<Message>,
    options: Options,
    recorder: Option<Recorder>,
    notices: Vec<String>,
    compiler: Option<Compiler>,
    /// What was said already of what the grammar does not enforce.
    told: Vec<Unenforced>,
    /// What is worth knowing once there are tools.
    tool_notices: Vec<String>,
}

/// The tool-call format of a conversation.
struct Chosen {
    format: Format,
    /// The variables with which the chat template writes it by itself, if it does.
    native: Option<Map<String, Value>>,
    notices: Vec<String>,
}

impl Chosen {
    /// What is asked for, or else what the template declares, or what it is seen to write, or what can be laid over it.
    fn new(template: &ChatTemplate, asked: Option<Format>) -> Result<Chosen> {
        if let Some(format) = asked {
            let native = format.native_in(template)?;
            return Ok(match native {
                Some(_) => Chosen { format, native, notices: Vec::new() },
                None => Chosen::overlay(template, format),
            });
        }
        let declared = Format::parse_declaration(template.source()).map_err(|error| error.in_file(template.name()))?;
        if let Some(format) = declared {
            return Ok(Chosen { format, native: Some(Map::new()), notices: Vec::new() });
        }
        let inference = Format::infer(template);
        let name = template.name();
        let written = inference.format.as_ref().filter(|_| template.capabilities().native_tools());
        if let Some(format) = written {
            let notices = inference.notes.iter().map(|note| format!("{name}: {note}")).collect();
            return Ok(Chosen { format: format.clone(), native: Some(Map::new()), notices });
        }
        let mut chosen = Chosen::overlay(template, Format::delimited().clone());
        let why = match inference.notes.as_slice() {
            [] => "it does not write tools, calls and results".to_owned(),
            notes => notes.join("; "),
        };
        chosen.notices.push(format!(
            "{name}: {why}; tools and calls are written in the format {} (--format NAME|FILE gives another)",
            chosen.format.name
        ));
        Ok(chosen)
    }

    /// The format laid over the template, whose way of reasoning stays what it is.
    fn overlay(template: &ChatTemplate, format: Format) -> Chosen {
        let reasoning = match &format.reasoning {
            None => Format::infer(template).reasoning.clone(),
            Some(_) => None,
        };
        Chosen { format: format.with_reasoning(reasoning), native: None, notices: Vec::new() }
    }
}

impl Session {
    /// Loads a GGUF and starts a conversation with its own chat template.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] or [`ErrorKind::Gguf`] when there is no usable model at `path`, [`ErrorKind::Template`]
    /// when its chat template does not compile.
    pub fn open(path: impl AsRef<Path>) -> Result<Session> {
        let path = path.as_ref();
        Gguf::open(path)?.check()?;
        Session::new(Box::new(LlamaEngine::load(path, LoadOptions::default())?), None, None)
    }

    /// Starts a conversation on an engine.
    ///
    /// `template` replaces the model's own chat template, `format` the one that the template declares; it is laid over
    /// a template that does not write it by itself (see [`Format::native_in`]). Without a declaration it is read off
    /// what the template writes (see [`Format::infer`]); if that is nothing, it is `delimited`.
    ///
    /// # Errors
    /// [`ErrorKind::Template`] or [`ErrorKind::Format`] when the template or its declaration is not usable.
    pub fn new(engine: Box<dyn Engine>, template: Option<ChatTemplate>, format: Option<Format>) -> Result<Session> {
        let model = engine.model();
        let templates = match template {
            Some(template) => ChatTemplates::single(template),
            None => ChatTemplates::from_model(&model.name, None, &model.templates)?,
        };
        let mut notices = Vec::new();
        if templates.is_built_in() {
            notices.push(format!(
                "{} has no chat template; the prompt is written as ChatML (--template NAME|FILE gives another)",
                model.name
            ));
        }
        let template = templates.choose(true);
        let mut chosen = Chosen::new(template, format)?;
        if templates.is_built_in() {
            // That has been said.
            chosen.notices.clear();
        }
        let Chosen { format, native, notices: tool_notices } = chosen;
        let section = match native {
            Some(_) => None,
            None => Some(ChatTemplate::new(format!("{}.jinja", format.name), format.source())?),
        };

        // User-defined tokens are markup only where the template or the format writes them: others are mere
        // abbreviations, such as the HTML tags in some vocabularies.
        let written = |token: &&String| {
            template.source().contains(token.as_str()) || format.reserved().any(|marker| marker == token.as_str())
        };
        let user_defined: Vec<String> = model.user_defined_tokens.iter().filter(written).cloned().collect();
        let markers: Vec<String> = format.reserved().map(str::to_owned).collect();
        let reserved = Reserved::new(model.control_tokens.clone(), user_defined, markers)?;
        Ok(Session {
            engine,
            templates,
            format: Arc::new(format),
            section,
            variables: native.unwrap_or_default(),
            reserved,
            tools: Arc::default(),
            messages: Vec::new(),
            options: Options::default(),
            recorder: None,
            notices,
            compiler: None,
            told: Vec::new(),
            tool_notices,
        })
    }

    /// What the user should know about how this session was set up; once there are tools, about them too.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// How calls are written.
    pub fn format(&self) -> &Format {
        &self.format
    }

    /// The chat template of a conversation with tools.
    pub fn template(&self) -> &ChatTemplate {
        self.templates.choose(true)
    }

    /// What the model may call from now on.
    pub fn set_tools(&mut self, tools: Tools) {
        if !tools.is_empty() {
            self.notices.append(&mut self.tool_notices);
        }
        self.tools = Arc::new(tools);
    }

    /// Replaces the conversation.
    ///
    /// # Errors
    /// [`ErrorKind::Messages`] with the message's index when results and calls do not match.
    pub fn set_messages(&mut self, messages: Vec<Message>) -> Result<()> {
        check_order(&messages)?;
        self.messages = messages;
        Ok(())
    }

    /// The conversation so far.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// How turns are generated.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Changes how turns are generated.
    pub fn options_mut(&mut self) -> &mut Options {
        &mut self.options
    }

    /// Adds a user message and lets the model answer.
    ///
    /// # Errors
    /// Those of [`Session::respond`]; the conversation is then as it was.
    pub fn ask(&mut self, prompt: impl Into<String>) -> Result<Reply> {
        self.messages.push(Message::user(prompt));
        let reply = self.respond(&mut |_| ());
        if reply.is_err() {
            self.messages.pop();
        }
        reply
    }

    /// The prompt of the next turn, and its tokens.
    ///
    /// # Errors
    /// [`ErrorKind::Template`] when the chat template fails.
    pub fn prompt(&self) -> Result<(Prompt, Vec<Token>)> {
        if let Some(call) = open_calls(&self.messages)?.first() {
            let message = format!("the call of {} has no result yet", call.name);
            return Err(Error::new(ErrorKind::Messages, message)
                .hint("add a message of role tool with its tool_call_id before the model speaks again"));
        }
        let prompt = self.render(&self.messages, self.shown_tools())?;
        let tokens = self.engine.tokenize(&prompt.pieces)?;
        Ok((prompt, tokens))
    }

    /// Lets the model take its turn, telling `on_event` what it writes while it does.
    ///
    /// # Errors
    /// [`ErrorKind::ContextOverflow`] when the prompt does not fit, [`ErrorKind::Template`], [`ErrorKind::Engine`].
    /// The conversation is then as it was.
    pub fn respond(&mut self, on_event: &mut dyn FnMut(&Event)) -> Result<Reply> {
        let (prompt, tokens) = self.prompt()?;
        let limit = self.engine.context_limit();
        if tokens.len() >= limit {
            return Err(self.overflow(tokens.len(), limit));
        }
        let taken_ids: Vec<String> =
            self.messages.iter().flat_map(|m| &m.tool_calls).filter_map(|call| call.id.clone()).collect();
        let options = ParserOptions {
            repair: self.options.repair,
            first_call: taken_ids.len() + 1,
            taken_ids,
            prompt_tail: self.prompt_tail(&prompt),
            ..ParserOptions::default()
        };
        let prompt_tail = options.prompt_tail.clone();
        let tools = self.shown_tools().cloned();
        let mut parser = Parser::new(&self.format, tools, options)?;
        let mut calls_ended = 0;
        let mut emit = |event: ParserEvent| {
            calls_ended += usize::from(matches!(event, ParserEvent::CallEnd { .. }));
            on_event(&Event::Parsed(event));
            calls_ended
        };
        // What the prompt opened is the beginning of what the model says.
        let prefill = self.prefill(&prompt.text());
        parser.push(prefill.as_bytes(), &mut |event| {
            emit(event);
        });
        let max_calls = self.options.max_calls.unwrap_or(usize::MAX);
        let thinking = self.opens_reasoning(&prompt.text());
        let (mut constraint, mut told) = constrain::begin(
            &mut self.compiler,
            &*self.engine,
            &self.format,
            self.tools.as_ref(),
            &self.options,
            (prefill.as_bytes(), thinking),
        )?;
        let limits = Limits { max_tokens: self.options.max_tokens, cancel: &self.options.cancel };
        let mut generation =
            generate(&mut *self.engine, &tokens, &self.options.sampling, limits, constraint.as_mut(), &mut |bytes| {
                let mut ended = 0;
                parser.push(bytes, &mut |event| ended = emit(event));
                if ended >= max_calls { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
        // In some formats the token that ends the turn is the one that ends the call.
        if let Some(token) = generation.end_token
            && let Some(marker) = self.format.end.as_ref().and_then(Marker::text)
            && self.engine.token_bytes(token) == marker.trim().as_bytes()
        {
            parser.push(marker.as_bytes(), &mut |event| {
                emit(event);
            });
            generation.tokens.push(token);
        }
        let mut no_room = false;
        if let Some(constraint) = &constraint {
            no_room = constraint.notices().contains(&Notice::NoRoomForCall);
            told.extend(constraint.notices().iter().map(ToString::to_string));
            for unenforced in constraint.unenforced() {
                if !self.told.contains(unenforced) {
                    told.push(unenforced.to_string());
                    self.told.push(unenforced.clone());
                }
            }
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.record(&*self.engine, &prompt.text(), &tokens, &self.options.sampling, &generation)?;
        }
        let parsed = parser.finish(&mut |event| {
            emit(event);
        });
        let finish_reason = match generation.end {
            End::Cancelled => FinishReason::Cancelled,
            End::Length => FinishReason::Length,
            _ if no_room && parsed.calls.is_empty() => FinishReason::Length,
            End::EndOfTurn | End::Stopped if parsed.calls.is_empty() => FinishReason::Stop,
            End::EndOfTurn | End::Stopped => FinishReason::ToolCalls,
        };
        for message in &told {
            let value = Told { message: message.clone() };
            on_event(&Event::Constraint(Tagged { r#type: "constraint", value }));
        }
        on_event(&Event::Usage(Tagged { r#type: "usage", value: generation.usage }));
        on_event(&Event::Done(Tagged { r#type: "done", value: Done { finish_reason } }));
        let message = parsed.message();
        self.messages.push(message.clone());
        let mut notes = notes(&parsed);
        notes.extend(told.into_iter().map(|message| Note { kind: "constraint", call: None, repair: None, message }));
        let mut raw = prefill.into_bytes();
        raw.extend(generation.tokens.iter().flat_map(|token| self.engine.token_bytes(*token)));
        let (calls, usage, tokens) = (parsed.calls, generation.usage, generation.tokens);
        Ok(Reply { message, calls, finish_reason, usage, notes, raw, tokens, prompt_tail })
    }

    /// The tools that the model is told of.
    fn shown_tools(&self) -> Option<&Arc<Tools>> {
        (!self.tools.is_empty() && self.options.tool_choice != ToolChoice::None).then_some(&self.tools)
    }

    /// What the prompt writes of the answer: the head of the assistant's turn, and reasoning that it opens.
    fn prompt_tail(&self, prompt: &Prompt) -> String {
        if self.format.reasoning.is_none() {
            return String::new();
        }
        let tools = self.shown_tools();
        let request = RenderRequest { add_generation_prompt: false, ..self.request(&self.messages, tools) };
        let Ok(without) = self.templates.choose(tools.is_some()).render(&request) else { return String::new() };
        let without = without.text();
        let text = prompt.text();
        let text = text.strip_suffix(self.prefill(&text).as_str()).unwrap_or(&text);
        let same = text.char_indices().zip(without.chars()).find(|((_, a), b)| a != b).map(|((at, _), _)| at);
        let tail = &text[same.unwrap_or(without.len().min(text.len()))..];
        if !tail.is_empty() {
            return tail.to_owned();
        }
        // A template that takes no notice of what is asked for may always write the head: behind the last message.
        let last = self.messages.last().map_or("", |message| message.content.trim());
        let behind = text.rsplit_once(last).filter(|_| !last.is_empty());
        behind.map_or_else(String::new, |(_, tail)| tail.to_owned())
    }

    fn request<'a>(&'a self, messages: &'a [Message], tools: Option<&'a Arc<Tools>>) -> RenderRequest<'a> {
        let model = self.engine.model();
        RenderRequest {
            messages,
            tools: tools.map(|tools| &**tools),
            bos_token: &model.bos,
            eos_token: &model.eos,
            now: self.options.now,
            reserved: Some(&self.reserved),
            overlay: self.section.as_ref().map(|section| Overlay { section, history: &*self.format }),
            variables: self.variables.clone(),
            ..RenderRequest::default()
        }
    }

    fn render(&self, messages: &[Message], tools: Option<&Arc<Tools>>) -> Result<Prompt> {
        let mut prompt = self.templates.choose(tools.is_some()).render(&self.request(messages, tools))?;
        let prefill = self.prefill(&prompt.text());
        if !prefill.is_empty() {
            prompt.pieces.push(Piece { text: prefill, literal: false });
        }
        Ok(prompt)
    }

    /// The beginning of an answer that the tool choice leaves no doubt about.
    ///
    /// Where the model may reason or talk first, the constraint writes it when the time has come.
    fn prefill(&self, prompt: &str) -> String {
        let constrained = self.options.constrain != Mode::Off;
        if constrained && (self.options.max_preamble > 0 || self.opens_reasoning(prompt)) {
            return String::new();
        }
        match &self.options.tool_choice {
            ToolChoice::Auto | ToolChoice::None => String::new(),
            ToolChoice::Required => self.format.opening(None),
            ToolChoice::Tool(name) => self.format.opening(Some(name)),
        }
    }

    /// Whether a prompt ends where reasoning has just begun.
    fn opens_reasoning(&self, prompt: &str) -> bool {
        let start = self.format.reasoning.as_ref().and_then(|around| around.start.text()).unwrap_or_default().trim();
        !start.is_empty() && prompt.trim_end().ends_with(start)
    }

    /// Says how many tokens do not fit, and what takes them.
    fn overflow(&self, tokens: usize, limit: usize) -> Error {
        // Each part is what the prompt is shorter by without it; a template may refuse to do without.
        let without = |messages: &[Message], tools: Option<&Arc<Tools>>| {
            let prompt = self.render(messages, tools).ok()?;
            let left = self.engine.tokenize(&prompt.pieces).ok()?.len();
            tokens.checked_sub(left).filter(|taken| *taken > 0)
        };
        let tools = self.shown_tools();
        let (system, others): (Vec<Message>, Vec<Message>) =
            self.messages.iter().cloned().partition(|message| message.role == Role::System);
        let question = others.iter().rposition(|message| message.role == Role::User).unwrap_or(0);
        let parts = [
            ("tools", without(&self.messages, None)),
            ("system message", without(&others, tools)),
            ("history", without(&[system.as_slice(), &others[question..]].concat(), tools)),
        ];
        let parts: Vec<String> =
            parts.iter().filter_map(|(name, taken)| Some(format!("{name} {}", (*taken)?))).collect();
        let mut message = format!("the prompt has {tokens} tokens; the context holds {limit}");
        if !parts.is_empty() {
            message += &format!(" (of these: {})", parts.join(", "));
        }
        let hint = if limit < self.engine.model().context_train {
            "a larger --ctx gives more room, up to what the model was trained for"
        } else {
            "fewer tools, shorter descriptions or a shorter history make room"
        };
        Error::new(ErrorKind::ContextOverflow, message).hint(hint)
    }
}
