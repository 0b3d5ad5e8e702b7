//! One conversation with a model.
//!
//! A session renders messages and tools with the chat template, generates, parses the text while it arrives, and adds
//! the answer to the conversation when, and only when, no error ended it.

pub(crate) mod answer;
mod builder;
mod constrain;
mod context;
mod count;
mod decide;
pub(crate) mod event;
mod explain;
mod ids;
mod listen;
mod options;
pub(crate) mod prompt;
mod reader;
pub(crate) mod record;
mod repeats;
pub(crate) mod select;
pub(crate) mod stop;
pub(crate) mod untrained;

#[cfg(doc)]
use crate::ErrorKind;
use crate::Result;
use crate::choose::{Choice, Clues, Origin, Writes, format_for};
use crate::constraint::Compiler;
use crate::decision::Opening;
use crate::engine::scripted::Recorder;
use crate::engine::{Engine, Token};
use crate::format::Format;
use crate::grammar::Unenforced;
use crate::message::{Message, adopt, check_asked};
use crate::model::Model;
use crate::template::{ChatTemplate, ChatTemplates, Prompt, RenderRequest, Reserved};
use crate::tool::Tools;
use prompt::{AnswerRequest, Prepared};
use record::Ended;
use serde_json::{Map, Value};
use std::cell::OnceCell;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

pub use self::{
    builder::SessionBuilder,
    event::{
        Cut, Done, Event, FallbackStep, FinishReason, ModelUsage, Note, Notice, Outcome, Reply, RetryStep, ToolResult,
        ToolsChange, UsageStep, WithoutTools,
    },
    options::{ContextPolicy, Options, ToolChoice},
    select::SelectedTools,
};
pub(crate) use event::notes;

/// A conversation with one model.
///
/// ```
/// use callwright::engine::{ModelInfo, scripted::ScriptedEngine};
/// use callwright::{Session, Tools};
///
/// // `Session::open("model.gguf")` loads a model; this one only repeats its script.
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
    pub(crate) engine: Box<dyn Engine>,
    pub(crate) templates: ChatTemplates,
    pub(crate) format: Arc<Format>,
    /// The format's tool section, for a chat template that does not write tools in this format by itself.
    section: Option<ChatTemplate>,
    /// Whether past calls are written as text, for a chat template that writes the tools, but no calls.
    calls_as_text: bool,
    /// What makes a chat template write the format, where it knows several.
    variables: Map<String, Value>,
    reserved: Reserved,
    /// Markers between the turns of a conversation that the vocabulary lacks: they end an answer as plain text.
    turn_markers: Vec<String>,
    /// Whether nothing suggests that the model was trained on conversations.
    base: bool,
    pub(crate) tools: Arc<Tools>,
    pub(crate) messages: Arc<Vec<Message>>,
    pub(crate) options: Options,
    pub(crate) recorder: Option<Recorder>,
    /// Whether the reading of calls is prepared.
    preparing: bool,
    /// How the answers ended that are being repeated.
    pub(crate) replayed: VecDeque<Ended>,
    pub(crate) notices: Vec<String>,
    compiler: Option<Compiler>,
    /// How calls begin in the model's tokens, once that was asked for.
    opening: OnceCell<Option<Opening>>,
    /// Decodes the conversation without tools, to compare; made when it is first needed.
    without_tools: Option<Box<dyn Engine>>,
    /// What was reported of what the grammar does not enforce.
    unenforced: Vec<Unenforced>,
    /// What is worth knowing once there are tools.
    tool_notices: Vec<String>,
    /// What of the conversation the model is not shown, for want of room.
    pub(crate) cuts: context::Cuts,
    /// What was reported already, of this conversation or of the options, and is not to be reported again.
    pub(crate) reported: HashSet<String>,
    /// The prompt of the next answer, if it is known.
    prepared: Option<Prepared>,
    /// The last answer's prompt, and whether the note that the chat template rewrites the past was given.
    last: context::Last,
    tails: prompt::Tails,
    /// Whether the chat template wants ids of nine letters and digits, once that was found out.
    short_ids: OnceCell<bool>,
    on_prompt: Option<OnPrompt>,
    /// Which tools are in the prompt, where not all are.
    selecting: select::Selecting,
    /// The selection that was reported last.
    selected: Option<SelectedTools>,
    /// Prices of a million tokens of the prompt and of the answer, if it has any.
    pub(crate) prices: Option<(f64, f64)>,
    /// How many answers of runs were begun.
    pub(crate) turns: usize,
}

/// Called while a prompt is decoded: see [`Session::watch_prompt`].
type OnPrompt = Box<dyn FnMut(usize, usize) + Send>;

impl Session {
    /// Opens a model by name or path and starts a conversation with it; see [`Model::open`].
    ///
    /// # Errors
    /// Those of [`Model::open`]; [`ErrorKind::Template`] when the chat template does not compile.
    pub fn open(name: impl AsRef<str>) -> Result<Session> {
        Model::open(name.as_ref())?.session()
    }

    /// A conversation from parts, each of which has a default: the bundled model, its own template and format, no tools.
    ///
    #[cfg_attr(feature = "llama", doc = "```")]
    #[cfg_attr(not(feature = "llama"), doc = "```no_run")]
    /// use callwright::{Session, Tools};
    ///
    /// let tools = Tools::from_json(r#"[{"name": "get_date", "description": "Get the date of today"}]"#, "tools")?;
    /// let mut session = Session::builder().model("bundled").tools(tools).build()?;
    /// let reply = session.ask("What is the date today?")?;
    /// assert!(reply.runnable_calls().all(|call| call.name == "get_date"));
    /// # Ok::<(), callwright::Error>(())
    /// ```
    pub fn builder() -> SessionBuilder {
        SessionBuilder::default()
    }

    /// Starts a conversation on an engine.
    ///
    /// `template` replaces the model's own chat template, `format` the one that the template declares; it is an overlay
    /// of a template that does not write it by itself (see [`Format::native_in`]). Without a declaration it is inferred
    /// from what the template writes (see [`Format::infer`]), or it is the built-in format of the model's family (see
    /// [`format_for`]); if there is none, it is `delimited`.
    ///
    /// # Errors
    /// [`ErrorKind::Template`] or [`ErrorKind::Format`] when the template or its declaration is not usable.
    pub fn new(engine: Box<dyn Engine>, template: Option<ChatTemplate>, format: Option<Format>) -> Result<Session> {
        let model = engine.model();
        let templates = match template {
            Some(template) => ChatTemplates::single(template),
            None => ChatTemplates::from_model(&model.name, None, &model.templates)?,
        };
        Session::with_templates(engine, templates, format)
    }

    /// Starts a conversation with templates that are compiled.
    pub(crate) fn with_templates(
        engine: Box<dyn Engine>,
        templates: ChatTemplates,
        format: Option<Format>,
    ) -> Result<Session> {
        let model = engine.model();
        let mut notices = Vec::new();
        if templates.is_built_in() {
            notices.push(format!(
                "{} has no chat template; the prompt is written as ChatML (`ModelBuilder::template` gives another)",
                model.name
            ));
        }
        let plain = templates.choose(false);
        let messages = [Message::user("What is it?")];
        let request = RenderRequest::default().with(|set| {
            set.messages = &messages;
            set.bos_token = &model.bos;
            set.eos_token = &model.eos;
        });
        if plain.render(&request).is_ok_and(|prompt| !prompt.text().contains(&messages[0].content)) {
            notices.push(format!("{}: it leaves out what the user says", plain.name()));
        }
        let turns = untrained::Turns::of(&*engine, plain);
        notices.extend(turns.notice(&model.name));
        let template = templates.choose(true);
        let is_token = |text: &str| untrained::is_token(&*engine, text);
        let clues = Clues { architecture: &model.architecture, is_token: Some(&is_token) };
        let Choice { format, writes, origin, notices: mut tool_notices, .. } = format_for(template, format, clues)?;
        if templates.is_built_in() && origin == Origin::Default {
            // The notice above says so.
            tool_notices.clear();
        } else if origin == Origin::Default {
            tool_notices.iter_mut().for_each(|notice| notice.push_str(" (`ModelBuilder::format` gives another)"));
        }
        tool_notices.extend(untrained::notice(&*engine, &format));
        let section = match writes {
            Writes::Section => Some(ChatTemplate::new(format!("{}.jinja", format.name), format.source())?),
            _ => None,
        };
        let calls_as_text = writes == Writes::Calls;
        let variables = if let Writes::Template(variables) = writes { variables } else { Map::new() };

        // User-defined tokens are markup only where the template or the format writes them: others are mere
        // abbreviations, such as the HTML tags in some vocabularies.
        let written = |token: &&String| {
            template.source().contains(token.as_str()) || format.reserved().any(|marker| marker == token.as_str())
        };
        let user_defined: Vec<String> = model.user_defined_tokens.iter().filter(written).cloned().collect();
        let overlaid = section.is_some() || calls_as_text;
        let marks = overlaid.then(|| format.history.marks()).into_iter().flatten();
        let markers: Vec<String> = format.reserved().chain(marks).map(str::to_owned).collect();
        let reserved = Reserved::new(model.control_tokens.clone(), user_defined, markers)?;
        Ok(Session {
            engine,
            templates,
            format: Arc::new(format),
            section,
            calls_as_text,
            variables,
            reserved,
            base: turns.is_base(),
            turn_markers: turns.missing,
            tools: Arc::default(),
            messages: Arc::default(),
            options: Options::default(),
            recorder: None,
            preparing: false,
            replayed: VecDeque::new(),
            notices,
            compiler: None,
            opening: OnceCell::new(),
            without_tools: None,
            unenforced: Vec::new(),
            tool_notices,
            cuts: context::Cuts::default(),
            reported: HashSet::new(),
            prepared: None,
            last: context::Last::default(),
            tails: prompt::Tails::default(),
            short_ids: OnceCell::new(),
            on_prompt: None,
            selecting: select::Selecting::default(),
            selected: None,
            prices: None,
            turns: 0,
        })
    }

    /// Notices about how this session was set up and, once there are tools, about them.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// Gives the chat template variables, such as `reasoning_effort`. One that it does not read is reported in
    /// [`Session::notices`]. Where the template has only `enable_thinking`, a `reasoning_effort` of `none` sets that.
    pub fn set_variables(&mut self, mut variables: Map<String, Value>) {
        let sources = [false, true].map(|with_tools| self.templates.choose(with_tools).source());
        let reads = |name: &str| sources.iter().any(|text| text.contains(name));
        let (effort, switch) = ("reasoning_effort", "enable_thinking");
        let switched_off = variables.get(effort).is_some_and(|effort| effort == "none");
        if switched_off && !reads(effort) && reads(switch) {
            variables.shift_remove(effort);
            variables.entry(switch).or_insert(Value::Bool(false));
        }
        let unread: Vec<&str> = variables.keys().map(String::as_str).filter(|name| !reads(name)).collect();
        if !unread.is_empty() {
            let name = self.templates.choose(false).name();
            self.notices.push(format!("the chat template {name} does not use {}", unread.join(", ")));
        }
        self.prepared = None;
        self.tails.borrow_mut().clear();
        // The variables that make the template write the format must not change.
        for (name, value) in variables {
            self.variables.entry(name).or_insert(value);
        }
    }

    /// Sets what the model may call.
    pub fn set_tools(&mut self, tools: Tools) {
        if !tools.is_empty() {
            self.notices.append(&mut self.tool_notices);
            self.prepare_reader();
        }
        let mut tools = tools;
        self.notices.extend(tools.take_notices().iter().map(ToString::to_string));
        self.tools = Arc::new(tools);
        let request = AnswerRequest::new(Vec::new(), Arc::clone(&self.tools), self.options.clone());
        if self.one_call(&request) {
            let name = self.templates.choose(true).name();
            self.notices.push(format!("{name}: it writes one call a turn; each answer is held to one call"));
        }
        if let Some(notice) = self.missing_tools() {
            self.notices.push(notice);
        }
    }

    /// Prepares the reading of calls on another thread, while the weights are loaded and the prompt is read.
    fn prepare_reader(&mut self) {
        if !std::mem::replace(&mut self.preparing, true) {
            let format = Arc::clone(&self.format);
            // Without a thread, the first call does it.
            let _ = std::thread::Builder::new().name("reader".to_owned()).spawn(move || format.prepare());
        }
    }

    /// Continues with other tools, which were reported.
    pub(crate) fn replace_tools(&mut self, tools: Tools) {
        self.tools = Arc::new(tools);
    }

    /// Reports that the prompt has nothing of the tools in it, if that is so.
    fn missing_tools(&self) -> Option<String> {
        if self.tools.is_empty() {
            return None;
        }
        // Some templates write them only next to a system message.
        let conversations = [vec![Message::user("?")], vec![Message::system("?"), Message::user("?")]];
        let options = Options { tool_choice: ToolChoice::Auto, ..self.options.clone() };
        let request = AnswerRequest::new(Vec::new(), Arc::clone(&self.tools), options);
        let prompts = conversations.iter().filter_map(|messages| {
            Some(self.templates.choose(true).render(&self.render_request(&request, messages)).ok()?.text())
        });
        let mut prompts = prompts.peekable();
        let has_tools = |prompt: String| self.tools.iter().any(|tool| prompt.contains(tool.called()));
        let missing = prompts.peek().is_some() && !prompts.any(has_tools);
        missing.then(|| match &self.section {
            Some(section) => format!(
                "{}: the prompt does not have the tools: the section that writes them, below the declaration, has none",
                section.name()
            ),
            None => format!("{}: it does not tell the model of the tools", self.templates.choose(true).name()),
        })
    }

    /// Replaces the conversation. What other programs leave out or write otherwise is put in order, as
    /// [`adopt`] says, and reported in [`Session::notices`]. What the chat template cannot write as it is, such as a
    /// call without a result, is adapted in the prompt; the conversation itself stays as it is.
    ///
    /// # Errors
    /// None at present: every list of messages is taken.
    pub fn set_messages(&mut self, messages: Vec<Message>) -> Result<()> {
        let (messages, notices) = adopt(messages);
        self.notices.extend(notices);
        self.set_adopted_messages(messages);
        Ok(())
    }

    /// Replaces the conversation with messages in which nothing has to be put in order: those that [`adopt`] returned,
    /// or a part of [`Session::messages`].
    pub(crate) fn set_adopted_messages(&mut self, messages: Vec<Message>) {
        if !messages.starts_with(&self.messages) {
            self.cuts = context::Cuts::default();
            self.reported.clear();
        }
        *self.messages_mut() = messages;
    }

    /// Adds a message to the conversation, such as the result of a call.
    pub(crate) fn push_message(&mut self, message: Message) {
        self.messages_mut().push(message);
    }

    /// The conversation, to be changed. The prompt that was prepared for it is dropped, so that nothing shares it.
    pub(crate) fn messages_mut(&mut self) -> &mut Vec<Message> {
        self.prepared = None;
        Arc::make_mut(&mut self.messages)
    }

    /// The conversation so far.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// What the model may call.
    pub fn tools(&self) -> &Tools {
        &self.tools
    }

    /// What writes the prompts.
    pub fn template(&self) -> &ChatTemplate {
        self.templates.choose(!self.tools.is_empty())
    }

    /// How calls are written.
    pub fn format(&self) -> &Format {
        &self.format
    }

    /// How many tokens the context holds, and whether the model was trained for more.
    pub(crate) fn context_limit(&self) -> (usize, bool) {
        let limit = self.engine.context_limit();
        (limit, limit < self.engine.model().context_train)
    }

    /// How turns are generated.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Changes how turns are generated.
    pub fn options_mut(&mut self) -> &mut Options {
        &mut self.options
    }

    /// Has `on_prompt` called before each batch of a prompt, with how many of its tokens were decoded and how many are to
    /// be decoded in all; both are equal when that is over.
    pub fn watch_prompt(&mut self, on_prompt: impl FnMut(usize, usize) + Send + 'static) {
        self.on_prompt = Some(Box::new(on_prompt));
    }

    /// Adds a user message and lets the model answer.
    ///
    /// # Errors
    /// Those of [`Session::respond`]; the conversation is then as it was.
    pub fn ask(&mut self, prompt: impl Into<String>) -> Result<Reply> {
        self.push_message(Message::user(prompt));
        let reply = self.respond(&mut |_| ());
        if reply.is_err() {
            self.messages_mut().pop();
        }
        reply
    }

    /// The prompt of the next turn, and its tokens.
    ///
    /// # Errors
    /// [`ErrorKind::Template`] when the chat template fails.
    pub fn prompt(&self) -> Result<(Prompt, Vec<Token>)> {
        self.prompt_with_notes().map(|(prompt, tokens, _)| (prompt, tokens))
    }

    /// The same, and how the conversation was adapted for the chat template.
    ///
    /// # Errors
    /// Those of [`Session::prompt`].
    pub(crate) fn prompt_with_notes(&self) -> Result<(Prompt, Vec<Token>, Vec<String>)> {
        let request = self.request()?;
        let written = self.write(&request, self.shown(&request))?;
        Ok((written.prompt, written.tokens, written.adapted))
    }

    /// Checks what can be wrong before the model takes its turn: that the chat template writes the conversation, and that
    /// there is a grammar for the tools. An engine without the model's weights is enough for it.
    ///
    /// # Errors
    /// [`ErrorKind::Template`] when the chat template fails, [`ErrorKind::Tools`] when no arguments fit a tool that has to
    /// be called, and what [`Session::respond`] finds in a grammar.
    #[doc(hidden)]
    pub fn check(&mut self) -> Result<()> {
        // A conversation that is still to be begun is written when there is something to write.
        if let Ok(request) = self.request() {
            let written = self.write(&request, self.shown(&request))?;
            self.prepared = Some(Prepared::new(request, written));
        }
        let tools = self.shown_tools();
        let Session { compiler, engine, format, options, .. } = self;
        constrain::begin(compiler, &**engine, format, &tools, options, (b"", false)).map(|_| ())
    }

    /// Continues with another engine of the same model: for example one that has its weights, after one that has only the
    /// vocabulary.
    pub(crate) fn set_engine(&mut self, engine: Box<dyn Engine>) {
        self.engine = engine;
        self.without_tools = None;
    }

    /// Lets the model answer. `on_event` gets each event when it happens.
    ///
    /// # Errors
    /// [`ErrorKind::ContextOverflow`] when the prompt does not fit, [`ErrorKind::Messages`] when there is nothing to
    /// answer, [`ErrorKind::Template`], [`ErrorKind::Engine`]. The conversation is then as it was.
    pub fn respond(&mut self, on_event: &mut dyn FnMut(&Event)) -> Result<Reply> {
        let reply = self.request().and_then(|request| self.answer(&request, on_event));
        let reply = reply.inspect_err(|error| on_event(&Event::failed(error, None)))?;
        on_event(&Event::Done(Done { finish_reason: reply.finish_reason, status: None, error: None }));
        self.push_message(reply.message.clone());
        Ok(reply)
    }

    /// The request for the next answer.
    pub(crate) fn request(&self) -> Result<AnswerRequest> {
        check_asked(&self.messages)?;
        Ok(AnswerRequest::new(Arc::clone(&self.messages), self.shown_tools(), self.options.clone()))
    }
}
