//! The options that `run` and `render` share: which model, which conversation.

use super::hardware::HardwareOptions;
use super::model::Bars;
use super::sampling::Replaced;
use super::stdin::{ask, beside, read_stdin, without_mark};
use super::{notice, notice_once, unused_fields};
use anyhow::Result;
use callwright::agent::OpenModel;
use callwright::agent::exec::{BUILTIN, Executor};
use callwright::engine::llama::{LlamaEngine, LoadOptions, MAX_THREADS, has_gpu};
use callwright::grammar::says_nothing;
#[cfg(feature = "mcp")]
use callwright::mcp::Servers;
use callwright::message::{Body, Conversation, Message, Role, adopt, check_asked, check_text_only, open_calls};
use callwright::models::{Gguf, Hub, ModelEntry, Models};
use callwright::session::{Session, ToolChoice};
use callwright::text_file;
use callwright::{Error, ErrorKind, Model, ModelBuilder, Tools};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What -m means when it is not given.
const BUNDLED: &str = callwright::models::bundled::NAME;

/// Which model, how it is prompted and how it samples.
#[derive(Args, Clone)]
pub struct ModelOptions {
    /// Use this model: a name from `callwright model list`, a path, hf:ORG/REPO/FILE.gguf[@REVISION] or hf:ORG/REPO[:QUANT] [default: the bundled model]
    #[arg(short, long, value_name = "MODEL", help_heading = "Model")]
    pub model: Option<String>,

    /// Add this models.toml to the built-in one and to $XDG_CONFIG_HOME/callwright/models.toml
    #[arg(long, value_name = "FILE", help_heading = "Model")]
    pub models: Option<PathBuf>,

    /// Ignore the model's entry in models.toml: its sampling, template, format, context, adapters, thresholds and fallbacks. An entry applies to its file also where that is named by a path
    #[arg(long, help_heading = "Model")]
    pub no_entry: bool,

    /// Use only local files; never access the network
    #[arg(long, help_heading = "Model")]
    pub offline: bool,

    /// Use this chat template: a built-in name or a Jinja file [default: the model's own]
    #[arg(long, value_name = "NAME|FILE", help_heading = "Model")]
    pub template: Option<String>,

    /// Use this tool-call format: a built-in name or a file [default: the template's own, or delimited]
    #[arg(long, value_name = "NAME|FILE", help_heading = "Model")]
    pub format: Option<String>,

    /// Use a context of N tokens [default: what the prompt and --max-tokens need]
    #[arg(short, long, alias = "ctx-size", value_name = "N", help_heading = "Model", value_parser = positive, allow_negative_numbers = true)]
    pub ctx: Option<usize>,

    #[command(flatten)]
    pub hardware: HardwareOptions,
}

/// What to do with parts of messages that are no text.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Images {
    /// A placeholder says what is missing.
    Placeholder,
    /// The conversation is refused.
    Error,
}

/// What to say to the model.
#[derive(Args)]
pub struct ConversationOptions {
    /// Ask this question; after --messages it is the next user message. Piped standard input follows it, or is the question if PROMPT is - or missing
    prompt: Option<String>,

    /// Ask this question; the same as the argument PROMPT
    #[arg(
        short = 'p',
        long = "prompt",
        value_name = "PROMPT",
        conflicts_with = "prompt",
        help_heading = "Conversation",
        allow_hyphen_values = true
    )]
    prompt_option: Option<String>,

    #[command(flatten, next_help_heading = "Conversation")]
    pub tools: ToolsOptions,

    /// Start the MCP servers that FILE names, {"mcpServers": {"name": {"command", "args"} or {"url"}}}, and add their tools
    #[arg(long, value_name = "FILE", help_heading = "Conversation")]
    mcp: Option<PathBuf>,

    /// Show the model only the N tools that fit the question best, and with --execute the tool find_tools, which brings in others; or all tools [default: all, but 8 for run and chat where there are more than 12]
    #[arg(long, value_name = "N|all", help_heading = "Conversation", value_parser = shown, allow_negative_numbers = true)]
    pub select_tools: Option<Shown>,

    /// Continue this conversation: OpenAI's JSON messages, a whole request body, or JSON Lines; - reads standard input
    #[arg(long, value_name = "FILE|-", help_heading = "Conversation")]
    pub messages: Option<PathBuf>,

    /// Use this system message, in place of the one in --messages
    #[arg(long, value_name = "TEXT", help_heading = "Conversation")]
    pub system: Option<String>,

    /// Replace images and other parts that are not text by a placeholder, or refuse them with an error
    #[arg(
        long,
        value_name = "placeholder|error",
        help_heading = "Conversation",
        default_value = "placeholder",
        hide_possible_values = true
    )]
    pub images: Images,

    /// Let the model decide (auto), forbid calls (none), or require a call: of any tool (required), or of the named one [default: auto]
    #[arg(long, value_name = "CHOICE", help_heading = "Conversation")]
    pub tool_choice: Option<String>,
}

/// How many of the tools are in the prompt; `None` for all.
#[derive(Clone, Copy, PartialEq)]
pub struct Shown(pub Option<usize>);

pub fn shown(text: &str) -> Result<Shown, String> {
    let none = Shown(None);
    if text == "all" { Ok(none) } else { positive(text).map(|most| Shown(Some(most))).map_err(|why| why + ", or all") }
}

/// So many tools are all shown, unless something else is asked for. docs/many-tools.md has the measurement.
const FEW: usize = 12;
/// So many of more tools are shown.
const SELECTED: usize = 8;

/// What the files and options say.
pub struct Input {
    pub messages: Vec<Message>,
    pub tools: Tools,
    pub tool_choice: ToolChoice,
    /// Runs the tools, the built-in ones among them.
    pub executor: Executor,
    pub asked: Asked,
}

/// What a request body asks for beside messages and tools, and what of that the command line replaces.
#[derive(Default)]
pub struct Asked {
    pub body: Body,
    pub replaced: Replaced,
}

impl ConversationOptions {
    /// Decides how many of a session's tools the model sees.
    pub fn select(&self, session: &mut Session) {
        let all = session.tools().len();
        // A server may run a large model, which needs no selection.
        let many = all > FEW && session.engine().server().is_none();
        let most = self.select_tools.map_or(many.then_some(SELECTED), |shown| shown.0);
        session.options_mut().select_tools = most;
        if let Some(most) = most.filter(|_| self.select_tools.is_none()) {
            let finds = if session.options().find_tools { "; it finds others with find_tools" } else { "" };
            notice(&format!(
                "{all} tools are too many for a small model: it sees the {most} that fit the question best{finds}; \
                 --select-tools all shows all"
            ));
        }
    }

    /// The question as it is given.
    pub fn question(&self) -> Option<&str> {
        self.prompt.as_deref().or(self.prompt_option.as_deref())
    }

    /// Returns whether there may be tools, as far as is known before any file is read.
    pub fn may_have_tools(&self) -> bool {
        !self.tools.files.is_empty() || self.mcp.is_some() || self.messages.is_some()
    }

    /// Messages, tools and choice from files and options. The prompt is asked for where there is neither; what is piped
    /// in joins it.
    pub fn read(&self) -> Result<Input> {
        let given = self.question().map(str::to_owned);
        let piped = given.as_deref() == Some("-");
        let messages_piped = self.messages.as_ref().is_some_and(|path| path.as_os_str() == "-");
        if piped && messages_piped {
            return Err(Error::new(ErrorKind::Config, "standard input is either the question or --messages")
                .hint("give one of them in another way")
                .into());
        }
        let mut input = self.read_files()?;
        let (prompt, document) = match given {
            None if self.messages.is_none() => (Some(ask()?), String::new()),
            Some(_) if piped => (Some(read_stdin("the question")?.trim_end().to_owned()), String::new()),
            prompt if messages_piped => (prompt, String::new()),
            None => (Some(beside()?).filter(|piped| !piped.is_empty()), String::new()),
            prompt => (prompt, beside()?),
        };
        if let Some(mut prompt) = prompt {
            // Empty is what an unset variable of a shell expands to.
            if prompt.trim().is_empty() && !document.is_empty() {
                return Err(Error::new(
                    ErrorKind::Messages,
                    "there is no prompt: the question is empty, and standard input has text",
                )
                .hint("leave the question out to ask what standard input says, or write what to do with it")
                .into());
            }
            if prompt.trim().is_empty() {
                return Err(Error::new(ErrorKind::Messages, "there is no prompt")
                    .hint(
                        "give the question as an argument or on standard input, or a conversation with --messages FILE",
                    )
                    .into());
            }
            if !document.is_empty() {
                prompt = format!("{prompt}\n\n{document}");
            }
            let all_answered = open_calls(&input.messages).is_ok_and(|open| open.is_empty());
            input.messages.push(Message::user(prompt));
            if !all_answered {
                // The prompt may be the result of a call.
                let (messages, notices) = adopt(input.messages);
                notices.iter().for_each(|text| notice(text));
                input.messages = messages;
            }
        }
        // Before the model is loaded.
        check_asked(&input.messages).map_err(|error| self.in_messages(error))?;
        Ok(input)
    }

    /// The same without the prompt.
    pub fn read_files(&self) -> Result<Input> {
        let conversation = match &self.messages {
            None => Conversation::default(),
            Some(path) if path.as_os_str() == "-" => {
                let text = read_stdin("the conversation")?;
                Conversation::from_json(&text, "<standard input>")?
            }
            Some(path) => Conversation::from_file(path)?,
        };
        let mut tools = match &conversation.tools {
            Some(value) => {
                let tools = Tools::from_value(value).and_then(|tools| self.tools.reported(tools));
                tools.map_err(|error| self.in_messages(error))?
            }
            None => Tools::default(),
        };
        let mut executor = Executor::default();
        tools.append(self.tools.unreported(&mut executor)?);
        if let Some(path) = &self.mcp {
            add_servers(path, &mut tools, &mut executor)?;
        }
        let mut tools = self.tools.reported(tools)?;
        let mut asked = Asked {
            body: Body::of(&conversation).map_err(|error| self.in_messages(error))?,
            replaced: Replaced::default(),
        };
        let choice = match (&self.tool_choice, &conversation.tool_choice) {
            (Some(choice), body) => {
                if body.is_some() {
                    asked.replaced.note("tool_choice");
                }
                ToolChoice::from_name(choice, &tools)?
            }
            (None, Some(value)) => {
                let choice = ToolChoice::from_json(value, &tools).map_err(|error| self.in_messages(error))?;
                let allowed = ToolChoice::allowed(value, &tools).map_err(|error| self.in_messages(error))?;
                if let Some(allowed) = allowed {
                    let all = tools.len();
                    tools = tools.only(&allowed);
                    if tools.len() < all {
                        let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
                        notice(&format!(
                            "tool_choice allows only {}: the model is not shown the other tools",
                            names.join(", ")
                        ));
                    }
                }
                choice
            }
            (None, None) => ToolChoice::Auto,
        };
        // Here, where the file's name is known, and before the system message is replaced.
        if self.images == Images::Error {
            check_text_only(&conversation.messages).map_err(|error| self.in_messages(error))?;
        }
        let (mut messages, notices) = adopt(conversation.messages);
        let notes = conversation.notes.iter().chain(&asked.body.notes);
        notes.chain(&unused_fields::unused_note(&asked.body)).chain(&notices).for_each(|text| notice(text));
        if let Some(system) = &self.system {
            messages.retain(|message| message.role != Role::System);
            messages.insert(0, Message::system(system));
        }
        Ok(Input { messages, tools, tool_choice: choice, executor, asked })
    }

    /// An error in what --messages gave, with its file's name.
    fn in_messages(&self, error: Error) -> Error {
        match &self.messages {
            Some(path) if path.as_os_str() == "-" => error.in_file("<standard input>"),
            Some(path) => error.in_file(path),
            None => error,
        }
    }
}

/// Starts the servers of --mcp, and adds their tools.
#[cfg(feature = "mcp")]
pub fn add_servers(file: &Path, tools: &mut Tools, executor: &mut Executor) -> Result<()> {
    let mut servers = Servers::from_file(file)?;
    servers.add_to(tools, executor);
    servers.notices().iter().for_each(|text| notice(text));
    Ok(())
}

#[cfg(not(feature = "mcp"))]
pub fn add_servers(_: &Path, _: &mut Tools, _: &mut Executor) -> Result<()> {
    Err(Error::new(ErrorKind::Config, "this program was built without MCP servers")
        .hint("--mcp needs a build with the feature mcp")
        .into())
}

/// The built-in tools that `builtin` or `builtin:NAME,…` asks for in place of a file.
fn builtin(path: &Path, executor: &mut Executor) -> Option<Result<Tools>> {
    let names = match path.to_str()?.strip_prefix("builtin")? {
        "" => BUILTIN.join(","),
        names => names.strip_prefix(':')?.to_owned(),
    };
    let tools = names.split(',').map(|name| {
        executor.builtin(name).ok_or_else(|| {
            Error::new(ErrorKind::Tools, format!("there is no built-in tool {name:?}"))
                .hint(format!("there are: {}", BUILTIN.join(", ")))
        })
    });
    Some(tools.collect::<Result<Vec<_>, Error>>().and_then(Tools::new).map_err(Into::into))
}

/// Which tools.
#[derive(Args)]
pub struct ToolsOptions {
    /// Read the tools from FILE: JSON in any usual shape, or TOML; builtin[:NAME,…] has a clock and a calculator. May be repeated
    #[arg(id = "tools", long = "tools", value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// Refuse a tools file with a fault, instead of reading past it
    #[arg(id = "tools_strict", long = "tools-strict")]
    pub strict: bool,
}

impl ToolsOptions {
    /// The tools of all files, with what was changed in them reported; the built-in ones among them are made known to
    /// `executor`.
    pub fn read(&self, executor: &mut Executor) -> Result<Tools> {
        Ok(self.reported(self.unreported(executor)?)?)
    }

    /// The same, where the changes are still to be reported.
    pub fn unreported(&self, executor: &mut Executor) -> Result<Tools> {
        let mut tools = Tools::default();
        for path in &self.files {
            match builtin(path, executor) {
                Some(builtin) => tools.append(builtin?),
                None if path.as_os_str() == "-" => {
                    return Err(Error::new(ErrorKind::Config, "--tools takes files, and does not read standard input")
                        .hint("write the tools into a file; a request body with tools may come with --messages -")
                        .into());
                }
                None => tools.append(self.checked(Tools::from_file(path)?).map_err(|error| error.in_file(path))?),
            }
        }
        Ok(self.checked(tools)?)
    }

    fn checked(&self, tools: Tools) -> Result<Tools, Error> {
        let hint = "without --tools-strict they are used as far as they can be";
        if self.strict { tools.strict().map_err(|error| error.hint(hint)) } else { Ok(tools) }
    }

    /// Reports what was changed in tools; with --tools-strict that is an error.
    pub fn reported(&self, tools: Tools) -> Result<Tools, Error> {
        let mut tools = self.checked(tools)?;
        tools.take_notices().iter().for_each(|changed| notice(&changed.to_string()));
        Ok(tools)
    }
}

/// A file's text.
pub fn read_text(path: &Path) -> Result<String> {
    let text = text_file::read(path)?;
    Ok(without_mark(&text).to_owned())
}

/// A JSON Schema from a file, or the text itself, as llama.cpp takes it; a note says where it is probably none.
pub fn read_schema(given: &Path) -> Result<Value> {
    let inline = given.to_str().filter(|text| text.trim_start().starts_with('{') && !given.exists());
    let schema: Value = match inline {
        Some(text) => serde_json::from_str(text)
            .map_err(|error| Error::new(ErrorKind::Syntax, format!("the text of --json-schema is no JSON: {error}")))?,
        None => callwright::json::from_file(given)?,
    };
    if says_nothing(&schema) {
        notice(
            "--json-schema: the document has no keyword of JSON Schema, so that any JSON fits it; is it an example of \
             the answer? A schema begins with {\"type\": \"object\", \"properties\": …}",
        );
    }
    Ok(schema)
}

impl ModelOptions {
    /// A session with the model's vocabulary, which does not take long to load: it can do everything but generate.
    pub fn open(&self) -> Result<(Session, Model)> {
        self.session(self.load_with(self.builder(true))?)
    }

    /// The same, for a session that gets its weights with [`ModelOptions::load_weights`], and perhaps tools.
    pub fn open_to_generate(&self, with_tools: bool) -> Result<(Session, Model)> {
        self.session(self.load_with(self.builder(true).small_whole().reads_calls(with_tools))?)
    }

    /// The same, and what `read` returns, which reads what the model is asked. An error of `read` comes first.
    pub fn open_beside<T: Send>(
        &self,
        with_tools: bool,
        read: impl FnOnce() -> Result<T> + Send,
    ) -> Result<(T, (Session, Model))> {
        // A model that has to be fetched, or takes long to load, is left alone until the input is known to be right.
        if self.model.as_deref().is_some_and(|model| model != BUNDLED) {
            return Ok((read()?, self.open_to_generate(with_tools)?));
        }
        std::thread::scope(|scope| {
            let reading = scope.spawn(|| {
                // Here rather than on a third thread, which would take the time of the two where there are two cores.
                LlamaEngine::start();
                read()
            });
            let opened = self.open_to_generate(with_tools);
            let read = reading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            Ok((read, opened?))
        })
    }

    fn session(&self, model: Model) -> Result<(Session, Model)> {
        self.check_machine();
        Ok((model.session()?, model))
    }

    /// Loads the model's weights for a session that was opened.
    pub fn load_weights(&self, model: &mut Model, session: &mut Session) -> Result<()> {
        if model.reload(self.load_options(false))? {
            session.swap_engine(&mut model.engine());
        }
        let trained = model.info().context_train;
        if let Some(context) = self.ctx.filter(|context| *context > trained) {
            notice_once(&format!(
                "--ctx {context} is more than the {trained} tokens that the model was trained for; \
                 what it writes beyond them may make no sense"
            ));
        }
        Ok(())
    }

    /// Reports options that do not suit this machine or this build.
    fn check_machine(&self) {
        if self.hardware.gpu_layers.is_some_and(|layers| layers > 0) && !has_gpu() {
            notice_once(
                "--gpu-layers is ignored: this build has no GPU support, or found no GPU; \
                 build it with the feature cuda, vulkan, rocm or metal",
            );
        }
        if let Some(text) = callwright::engine::llama::slow_build_notice() {
            notice_once(&text);
        }
    }

    /// Downloads and loads the model.
    pub fn load(&self) -> Result<Model, Error> {
        self.load_with(self.builder(false))
    }

    fn load_with(&self, builder: ModelBuilder) -> Result<Model, Error> {
        let builder = self.template.iter().fold(builder, ModelBuilder::template);
        let builder = self.format.iter().fold(builder, ModelBuilder::format);
        let model = builder.open(self.model.as_deref().unwrap_or(BUNDLED))?;
        model.notices().iter().for_each(|text| notice_once(text));
        Ok(model)
    }

    /// How models are found and loaded, whichever it is.
    fn builder(&self, vocabulary_only: bool) -> ModelBuilder {
        let builder = Model::builder().hub(self.hub()).on_download(Bars::new());
        let builder = builder.load_options(self.load_options(vocabulary_only));
        let builder = if self.no_entry { builder.no_entry() } else { builder };
        self.models.iter().fold(builder, ModelBuilder::models_file)
    }

    fn load_options(&self, vocabulary_only: bool) -> LoadOptions {
        self.hardware.load_options().with(|load| {
            load.context = self.ctx;
            load.vocabulary_only = vocabulary_only;
            load.on_progress = loading_bar();
        })
    }

    /// Returns what models.toml says of the model.
    pub fn entry(&self) -> Result<ModelEntry> {
        let (models, hub) = (Models::load(self.models.as_deref())?, self.hub());
        let mut entry = find(&models, self.model.as_deref().unwrap_or(BUNDLED), &hub)?;
        if self.no_entry {
            return Ok(entry.bare());
        }
        if let Some(path) = entry.local(&hub).filter(|_| !entry.is_named()) {
            models.recognize(&mut entry, &Gguf::open(path)?, &hub, &mut ())?;
        }
        Ok(entry)
    }

    /// Where models are, and whether others may be fetched.
    pub fn hub(&self) -> Hub {
        let mut hub = Hub::from_env();
        hub.offline |= self.offline;
        hub
    }

    /// Loads other models by name, with their own templates, formats, contexts and sampling.
    pub fn opener(&self) -> OpenModel {
        let mut options = ModelOptions { ctx: None, template: None, format: None, no_entry: false, ..self.clone() };
        options.hardware.lora.clear();
        Box::new(move |name| {
            let model = options.builder(false).open(name)?;
            let size = std::fs::metadata(model.path()).map_or(0, |data| data.len());
            Ok((model.session()?, size))
        })
    }
}

/// Finds a model; reports which file is used if only a repository on the hub is named.
pub fn find(models: &Models, model: &str, hub: &Hub) -> Result<ModelEntry> {
    let found = models.find(model, hub)?;
    found.notice.iter().for_each(|text| notice_once(text));
    Ok(found.entry)
}

/// Shows how far loading is, on a terminal and once it takes a noticeable time.
fn loading_bar() -> Option<Box<dyn FnMut(f32) + Send + Sync>> {
    if !std::io::stderr().is_terminal() {
        return None;
    }
    let started = Instant::now();
    let mut bar: Option<ProgressBar> = None;
    Some(Box::new(move |part| {
        if part >= 1.0 {
            if let Some(bar) = bar.take() {
                bar.finish_and_clear();
            }
        } else if started.elapsed() > Duration::from_millis(300) {
            let bar = bar.get_or_insert_with(|| {
                let style = ProgressStyle::with_template("Loading the model {wide_bar} {percent}%");
                ProgressBar::new(1000).with_style(style.unwrap_or(ProgressStyle::default_bar()))
            });
            bar.set_position((part * 1000.0) as u64);
        }
    }))
}

pub fn threads(text: &str) -> Result<usize, String> {
    let count = positive(text).ok().filter(|count| *count <= MAX_THREADS);
    count.ok_or_else(|| format!("not a whole number from 1 to {MAX_THREADS}"))
}

/// More than any model has.
const ALL_LAYERS: u32 = 9999;

/// As llama.cpp takes it: a number, or a word for all that there is room for, which is what is tried.
pub fn gpu_layers(text: &str) -> Result<u32, String> {
    match text {
        "all" | "auto" | "-1" => Ok(ALL_LAYERS),
        text => text.parse().map_err(|_| "not a whole number from 0 up, or all".to_owned()),
    }
}

/// A count that is at least one.
pub fn positive(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|count| *count > 0).ok_or_else(|| "not a whole number from 1 up".to_owned())
}
