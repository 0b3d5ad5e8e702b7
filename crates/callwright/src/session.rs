//! One conversation with a model.
//!
//! A session renders messages and tools with the chat template, generates, parses the text while it arrives, and adds
//! the answer to the conversation when, and only when, no error ended it.

pub(crate) mod answer;
mod compiling;
mod constrain;
mod context;
mod count;
mod decide;
pub(crate) mod event;
mod explain;
mod ids;
mod listen;
pub(crate) mod outcome;
pub(crate) mod prompt;
mod reader;
pub(crate) mod record;
pub(crate) mod remarks;
mod repeats;
mod results;
pub(crate) mod select;
pub(crate) mod untrained;

/// Public with the feature `unstable`.
#[path = "session"]
mod unstable {
    pub mod stop;
}

#[cfg(doc)]
use crate::ErrorKind;
use crate::Result;
#[cfg(doc)]
use crate::choose::format_for;
use crate::engine::{Engine, Token, common};
use crate::format::Format;
use crate::generate::reserve;
use crate::grammar::Unenforced;
use crate::message::{Message, ToolCall, adopt, check_asked};
use crate::template::{ChatTemplate, ChatTemplates, Piece, Prompt};
use crate::tool::Tools;
use compiling::Compiling;
use context::Prompts;
use decide::Deciding;
use jiff::Zoned;
use prompt::{Prepared, PromptWriter};
use record::Recording;
use results::Reading;
use select::{Finder, Selector};
use serde_json::{Map, Value};
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

pub use crate::answer::{ContextPolicy, Mode, Options, Penalties, Sampling, ToolChoice, Usage};
pub use crate::parse::{Note, NoteKind};
pub use event::{Done, Event, FinishReason, Reply, Retry, RetryStep, ToolResult};
pub use outcome::{FailureKind, ModelUsage, Outcome, PendingCall, Status};

#[cfg_attr(feature = "unstable", visibility::make(pub))]
pub(crate) use self::{
    answer::parser_options,
    event::{ApprovalStep, Cut, Decision, Fallback, FallbackStep, Notice, ToolsChange, UsageStep, WithoutTools},
    outcome::{Fault, Reason, call_hash},
    prompt::AnswerRequest,
    record::Invocation,
    select::{SelectedTools, fitting},
    unstable::*,
};
#[cfg_attr(feature = "unstable", visibility::make(pub))]
pub(crate) use crate::answer::{CallProbability, Decided};

/// A conversation with one model.
///
/// ```
/// use callwright::{ScriptedEngine, Session, Tools, model::ModelInfo};
///
/// // `Session::open("model.gguf")` loads a model; this one only repeats its script.
/// let call = "### TOOL_CALL_START ###\n{\"name\": \"clock\", \"arguments\": {}}\n### TOOL_CALL_END ###";
/// let engine = ScriptedEngine::from_texts(ModelInfo { context_train: 8192, ..Default::default() }, [call]);
///
/// let mut session = Session::builder().engine(engine).build()?;
/// session.set_tools(Tools::from_json(r#"[{"name": "clock", "description": "The time now"}]"#, "tools")?);
/// let reply = session.ask("What time is it?")?;
/// assert_eq!(reply.calls[0].name, "clock");
/// # Ok::<(), callwright::Error>(())
/// ```
pub struct Session {
    pub(crate) engine: Box<dyn Engine>,
    pub(crate) prompts: Prompts,
    /// Markers between the turns of a conversation that the vocabulary lacks: they end an answer as plain text.
    turn_markers: Vec<String>,
    /// Whether nothing suggests that the model was trained on conversations.
    base: bool,
    pub(crate) tools: Arc<Tools>,
    pub(crate) messages: Arc<Vec<Message>>,
    pub(crate) options: Options,
    pub(crate) recording: Recording,
    /// Whether the reading of calls is prepared.
    pub(crate) preparing: bool,
    pub(crate) notices: Vec<String>,
    /// Whether the chat template is the model's own.
    own_template: bool,
    /// What is worth knowing once there are tools.
    tool_notices: Vec<String>,
    /// What was reported already, of this conversation or of the options, and is not to be reported again.
    reported: HashSet<String>,
    compiling: Compiling,
    /// What was reported of what the grammar does not enforce.
    unenforced: Vec<Unenforced>,
    deciding: Deciding,
    /// Which tools are in the prompt, where not all are.
    selector: Selector,
    on_prompt: OnPrompt,
    /// Prices of a million tokens of the prompt and of the answer, if it has any.
    pub(crate) prices: Option<(f64, f64)>,
    /// Which entry of models.toml applies.
    pub(crate) applied: Option<String>,
    /// How many answers of runs were begun.
    pub(crate) turns: usize,
}

/// Prepares the reading of calls on another thread. Without a thread, the first call does it.
pub(crate) fn prepare_reader(prepare: impl FnOnce() + Send + 'static) {
    let _ = std::thread::Builder::new().name("reader".to_owned()).spawn(prepare);
}

/// Called while a prompt is decoded: see [`Session::watch_prompt`].
type OnPrompt = Box<dyn FnMut(usize, usize) + Send>;

impl Session {
    /// Starts a conversation on an engine.
    ///
    /// `template` replaces the model's own chat template, `format` the one that the template declares; it is an overlay
    /// of a template that does not write it by itself (see [`Format::native_in`]). Without a declaration it is inferred
    /// from what the template writes (see [`Format::infer`]), or it is the built-in format of the model's family (see
    /// [`format_for`]); if there is none, it is `delimited`.
    ///
    /// # Errors
    /// [`ErrorKind::Template`] or [`ErrorKind::Format`] when the template or its declaration is not usable.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn new(
        engine: Box<dyn Engine>,
        template: Option<ChatTemplate>,
        format: Option<Format>,
    ) -> Result<Session> {
        let model = engine.model();
        let templates = match template {
            Some(template) => ChatTemplates::single(template),
            None => model.chat_templates()?,
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
        let turns = untrained::Turns::of(&*engine, templates.choose(false));
        let mut notices = prompt::notices(model, &templates);
        // A template from elsewhere says nothing of how the model was trained.
        let own_template = model.templates.iter().any(|(_, source)| source == templates.choose(false).source());
        let base = (own_template || model.templates.is_empty()) && turns.is_base();
        notices.extend(turns.notice(&model.name).filter(|_| base));
        let (writer, tool_notices) = PromptWriter::new(&*engine, templates, format)?;
        Ok(Session {
            engine,
            prompts: Prompts::new(writer),
            base,
            turn_markers: turns.missing,
            tools: Arc::default(),
            messages: Arc::default(),
            options: Options::default(),
            recording: Recording::default(),
            preparing: false,
            notices,
            own_template,
            tool_notices,
            reported: HashSet::new(),
            compiling: Compiling::default(),
            unenforced: Vec::new(),
            deciding: Deciding::default(),
            selector: Selector::default(),
            on_prompt: Box::new(|_, _| ()),
            prices: None,
            applied: None,
            turns: 0,
        })
    }

    /// Notices about how this session was set up and, once there are tools, about them.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// Returns the notices and forgets them.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn take_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    /// Returns the engine that answers.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    /// Returns the engine that answers, to decode with it.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn engine_mut(&mut self) -> &mut dyn Engine {
        &mut *self.engine
    }

    /// Returns the name of the entry of models.toml that applies to the model.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn entry(&self) -> Option<&str> {
        self.applied.as_deref()
    }

    /// Gives the chat template variables, such as `reasoning_effort`. One that it does not read is reported in
    /// [`Session::notices`]. Where the template has only `enable_thinking`, a `reasoning_effort` of `none` sets that.
    pub fn set_variables(&mut self, variables: Map<String, Value>) {
        self.notices.extend(self.prompts.writer.set_variables(variables));
        self.prompts.prepared = None;
    }

    /// Sets what the model may call.
    pub fn set_tools(&mut self, tools: Tools) {
        if !tools.is_empty() {
            let about = std::mem::take(&mut self.tool_notices);
            self.note_of_template(about);
            self.prepare_reader();
        }
        let mut tools = tools;
        self.notices.extend(tools.take_notices().iter().map(ToString::to_string));
        self.tools = Arc::new(tools);
        let request = AnswerRequest::new(Vec::new(), Arc::clone(&self.tools), self.options.clone());
        if self.prompts.writer.one_call(&request) {
            let name = self.prompts.writer.template(true).name();
            let about = format!("{name}: it writes one call a turn; each answer is held to one call");
            self.note_of_template(vec![about]);
        }
        self.notices.extend(self.prompts.writer.missing_tools(&self.tools, &self.options));
    }

    /// Notes what a template lacks. That of the model itself is the same in each run, so it is only in the log.
    fn note_of_template(&mut self, notes: Vec<String>) {
        match self.own_template {
            true => notes.iter().for_each(|note| tracing::info!("{note}")),
            false => self.notices.extend(notes),
        }
    }

    /// Prepares the reading of calls while the weights are loaded and the prompt is read.
    fn prepare_reader(&mut self) {
        if !std::mem::replace(&mut self.preparing, true) {
            let format = Arc::clone(&self.prompts.writer.format);
            prepare_reader(move || format.prepare());
        }
    }

    /// Continues with other tools, which were reported.
    pub(crate) fn replace_tools(&mut self, tools: Tools) {
        self.tools = Arc::new(tools);
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
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn set_adopted_messages(&mut self, messages: Vec<Message>) {
        if !messages.starts_with(&self.messages) {
            self.prompts.begin();
            self.reported.clear();
        }
        *self.messages_mut() = messages;
    }

    /// Adds a message to the conversation, such as the result of a call.
    pub fn push(&mut self, message: Message) {
        self.messages_mut().push(message);
    }

    /// The conversation, to be changed. The prompt that was prepared for it is dropped, so that nothing shares it.
    pub(crate) fn messages_mut(&mut self) -> &mut Vec<Message> {
        self.prompts.prepared = None;
        Arc::make_mut(&mut self.messages)
    }

    /// The conversation so far.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Returns what the model may call.
    pub fn tools(&self) -> &Tools {
        &self.tools
    }

    /// Returns what writes the prompts.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn template(&self) -> &ChatTemplate {
        self.prompts.writer.template(!self.tools.is_empty())
    }

    /// How calls are written.
    pub fn format(&self) -> &Format {
        &self.prompts.writer.format
    }

    /// How many tokens the context holds, and whether the model was trained for more.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
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
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn watch_prompt(&mut self, on_prompt: impl FnMut(usize, usize) + Send + 'static) {
        self.on_prompt = Box::new(on_prompt);
    }

    /// Adds a user message and lets the model answer.
    ///
    /// # Errors
    /// Those of [`Session::respond`]; the conversation is then as it was.
    pub fn ask(&mut self, prompt: impl Into<String>) -> Result<Reply> {
        self.push(Message::user(prompt));
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
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn prompt_with_notes(&self) -> Result<(Prompt, Vec<Token>, Vec<String>)> {
        let written = self.prompts.write(&*self.engine, &self.request()?)?;
        Ok((written.prompt, written.tokens, written.adapted))
    }

    /// The tokens of the next turn's prompt, and those of an answer that makes these calls, as the conversation would have it
    /// later, up to the end of the turn if the chat template writes one.
    ///
    /// # Errors
    /// Those of [`Session::prompt`].
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn with_calls(&self, calls: &[ToolCall]) -> Result<(Vec<Token>, Vec<Token>)> {
        let request = self.request()?;
        let written = self.prompts.write(&*self.engine, &request)?;
        let text = self.prompts.writer.written_calls(&request, &written, calls);
        let mut pieces = written.prompt.pieces;
        pieces.push(Piece { text, literal: false });
        let mut prompt = self.engine.tokenize(&pieces)?;
        // A token may have the end of the prompt and the beginning of the answer.
        let mut answer = prompt.split_off(common(&prompt, &written.tokens));
        if let Some(end) = answer.iter().position(|token| self.engine.is_end(*token)) {
            answer.truncate(end + 1);
        }
        Ok((prompt, answer))
    }

    /// Checks what can be wrong before the model takes its turn: that the chat template writes the conversation, and that
    /// there is a grammar for the tools. An engine without the model's weights is enough for it.
    ///
    /// # Errors
    /// [`ErrorKind::Template`] when the chat template fails, [`ErrorKind::Tools`] when no arguments fit a tool that has to
    /// be called, and what [`Session::respond`] finds in a grammar.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn check(&mut self) -> Result<()> {
        self.check_prompt()?;
        let request = AnswerRequest::new(Arc::clone(&self.messages), self.shown_tools(), self.options.clone());
        let Session { compiling, engine, prompts, .. } = self;
        constrain::begin(compiling, &**engine, &prompts.writer.format, &request, (b"", false)).map(|_| ())
    }

    /// Checks that the chat template writes the conversation. The grammar for the tools is made meanwhile, and until the answer's
    /// prompt is read; what is wrong with it, the answer finds.
    ///
    /// # Errors
    /// [`ErrorKind::Template`] when the chat template fails.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn check_prompt(&mut self) -> Result<()> {
        let request = self.request();
        let tools = self.shown_tools();
        let Session { compiling, engine, prompts, options, .. } = self;
        compiling.start(&**engine, &prompts.writer.format, &tools, options);
        // A conversation that is still to be begun is written when there is something to write.
        if let Ok(request) = request {
            let written = prompts.write(&**engine, &request)?;
            // Without the weights there is no room. With them, the answer reports that there is none.
            let _ = reserve(&mut **engine, written.tokens.len(), options.max_tokens);
            prompts.prepared = Some(Prepared { request, written });
        }
        Ok(())
    }

    /// Continues with another engine of the same model: for example one that has its weights, after one that has only the
    /// vocabulary.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn swap_engine(&mut self, engine: &mut Box<dyn Engine>) {
        std::mem::swap(&mut self.engine, engine);
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
        self.push(reply.message.clone());
        Ok(reply)
    }

    /// The request for the next answer.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn request(&self) -> Result<AnswerRequest> {
        check_asked(&self.messages)?;
        Ok(AnswerRequest::new(Arc::clone(&self.messages), self.shown_tools(), self.options.clone()))
    }

    /// Makes the prompt of an answer fit, and keeps it for [`Session::answer`]. Returns its number of tokens.
    pub(crate) fn prepare(&mut self, request: &AnswerRequest) -> Result<usize> {
        let mut request = request.clone();
        let (written, _) = self.prompts.fit(&*self.engine, &mut self.recording, &mut request, &self.tools)?;
        let tokens = written.tokens.len();
        self.prompts.prepared = Some(Prepared { request, written });
        Ok(tokens)
    }

    /// The tools of the next prompt.
    pub(crate) fn shown_tools(&self) -> Arc<Tools> {
        let shown = self.selector.select(&self.tools, &self.messages, &self.options);
        self.prompts.with_reader(shown, &self.tools, self.engine.context_limit())
    }

    /// The name of the tool that reads results.
    pub(crate) fn reader_name(&self) -> String {
        results::reader_name(&self.tools)
    }

    /// What the calls of the tool that reads results come to: together at most a quarter of the context.
    pub(crate) fn read_results(&self, calls: &[&ToolCall]) -> Vec<String> {
        let context = self.engine.context_limit();
        let most = context / 4 / calls.len().max(1);
        let fits = |text: &str| {
            let piece = Piece { text: text.to_owned(), literal: true };
            // A token has at least a byte.
            self.engine.tokenize(&[piece]).map_or(text.len(), |tokens| tokens.len()) <= most
        };
        let reader = &self.reader_name();
        let reading = Reading { messages: &self.messages, reader, context, fits: &fits };
        calls.iter().map(|call| reading.answer(call)).collect()
    }

    /// Returns what answers calls of `find_tools`, if the prompt has it.
    pub(crate) fn finder(&self) -> Option<Finder> {
        select::finds_tools(&self.tools, &self.options).then(|| self.selector.finder(&self.tools))
    }

    /// The result of a call of `find_tools`: the tools that fit these words best, which the next prompt has.
    ///
    /// A [run](Session::run) answers such calls itself; whoever executes calls in another way answers them with this.
    pub fn find_tools(&self, words: &str) -> String {
        self.selector.finder(&self.tools).find(words)
    }

    /// From now on writes every generation to `path`, so that [`Session::replay`] can repeat it, and of a run the tools'
    /// results, too, so that [`Session::replay_run`] can.
    ///
    /// The chat template's clock stops here: a prompt with another time in it would not be the recorded one.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] when the file cannot be written.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn record(&mut self, path: impl AsRef<Path>) -> Result<()> {
        self.options.now.get_or_insert_with(|| Zoned::now().datetime());
        self.recording.recorder = Some(record::recorder(self, path.as_ref())?);
        Ok(())
    }
}
