//! From a model's name to a conversation: what models.toml says of it, its file, its weights, its session.

mod fit;
mod kind;
mod session;

#[cfg_attr(feature = "unstable", visibility::make(pub))]
pub(crate) use self::{fit::Sizes, kind::FileKind};
pub use crate::engine::{LoadOptions, LoraAdapter, ModelInfo, PromptFolder};
pub use session::SessionBuilder;

use crate::engine::llama::parallel::{Sequences, TurnEnd};
use crate::engine::llama::{Embedder, LlamaEngine, gpu_devices};
use crate::engine::{Engine, templates_of};
use crate::machine;
use crate::models::{Found, Gguf, Hub, ModelEntry, Models, Progress, ServerModel};
#[cfg(feature = "remote")]
use crate::remote::Server;
use crate::session::prepare_reader;
use crate::{Error, ErrorKind, Result, Session};
use callwright_core::choose::{Choice, Clues, format_for};
use callwright_core::format::Format;
use callwright_core::template::{ChatTemplate, ChatTemplates};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// A loaded model; several sessions can share its weights.
///
#[cfg_attr(feature = "llama", doc = "```")]
#[cfg_attr(not(feature = "llama"), doc = "```no_run")]
/// use callwright::{Model, Tools};
///
/// let model = Model::open("bundled")?;
/// let mut session = model.session()?;
/// session.set_tools(Tools::from_json(r#"[{"name": "get_time", "description": "The time in a city", "parameters":
///     {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}]"#, "tools")?);
/// let reply = session.ask("What time is it in Oslo?")?;
/// for call in reply.runnable_calls() {
///     println!("{} {}", call.name, call.arguments.to_text());
/// }
/// # Ok::<(), callwright::Error>(())
/// ```
pub struct Model {
    weights: Weights,
    /// Whether only its vocabulary is loaded.
    vocabulary_only: bool,
    /// Whether the reading of calls is prepared already.
    reads_calls: bool,
    info: ModelInfo,
    entry: ModelEntry,
    path: PathBuf,
    /// What it takes of the memory, unless a server runs it or nothing was asked of the bundled model that may not fit.
    sizes: Option<Sizes>,
    /// The template in place of the model's own.
    template: Option<Arc<ChatTemplate>>,
    /// The format in place of the template's.
    format: Option<Format>,
    /// The model's own templates, once a session needed them.
    own: OnceLock<ChatTemplates>,
    notices: Vec<String>,
}

/// Bytes of a file of which the weights load about as fast as the vocabulary.
const SMALL: u64 = 32 << 20;

/// Where a model runs.
enum Weights {
    /// In this process. Engines are shared from this one, which decodes nothing itself. A lock, so that threads can share
    /// the model.
    Here(Box<Mutex<LlamaEngine>>),
    #[cfg(feature = "remote")]
    Server(Arc<Server>),
}

/// Engines that generate at the same time.
#[cfg_attr(feature = "unstable", visibility::make(pub))]
pub(crate) enum Parallel {
    /// Sequences of one context.
    Here(Sequences),
    #[cfg(feature = "remote")]
    /// As many requests to a server.
    Server(Arc<Server>, usize),
}

impl Parallel {
    /// How many there are.
    pub fn at_a_time(&self) -> usize {
        match self {
            Parallel::Here(sequences) => sequences.at_a_time(),
            #[cfg(feature = "remote")]
            Parallel::Server(_, count) => *count,
        }
    }

    /// Takes one, for the calling thread, and what ends its turns.
    ///
    /// # Errors
    /// [`ErrorKind::Engine`] if all are taken.
    pub fn take(&self) -> Result<(Box<dyn Engine>, Option<TurnEnd>)> {
        match self {
            Parallel::Here(sequences) => sequences.take().map(|(engine, end)| (engine, Some(end))),
            #[cfg(feature = "remote")]
            Parallel::Server(server, _) => Ok((server.engine(), None)),
        }
    }
}

/// How a model is found and loaded; what is not set is what models.toml says, or a default.
#[derive(Default)]
#[must_use]
pub struct ModelBuilder {
    models: Option<PathBuf>,
    hub: Option<Hub>,
    template: Option<String>,
    format: Option<String>,
    load: LoadOptions,
    /// Whether to load all of a small model where only the vocabulary is wanted.
    small_whole: bool,
    no_entry: bool,
    reads_calls: bool,
    on_download: Option<Box<dyn Progress>>,
}

impl Model {
    /// Opens a model by a name in models.toml, by the path of a GGUF, by its place on the Hugging Face hub
    /// (`hf:ORG/REPO/FILE.gguf[@REVISION]` or `hf:ORG/REPO[:QUANT]`), or by the address of a server that runs it
    /// (`openai:http://HOST:PORT/v1#MODEL`; with `openai-chat:`, the server writes the prompt and reads the calls). `bundled`
    /// is the model that comes with the library.
    ///
    /// A file on the hub is downloaded at first use.
    ///
    /// # Errors
    /// Those of [`ModelBuilder::open`].
    pub fn open(name: &str) -> Result<Model> {
        Model::builder().open(name)
    }

    /// Options for opening a model.
    pub fn builder() -> ModelBuilder {
        ModelBuilder::default()
    }

    /// A conversation with this model: with the template, the format and the sampling that belong to it, and a context
    /// of its own. The weights are shared.
    ///
    /// # Errors
    /// [`ErrorKind::Template`] or [`ErrorKind::Format`] when the
    /// template or the format is not usable.
    pub fn session(&self) -> Result<Session> {
        self.session_on(self.engine())
    }

    /// The same on another engine with this model, such as one of [`Model::sequences`].
    ///
    /// # Errors
    /// Those of [`Model::session`].
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn session_on(&self, engine: Box<dyn Engine>) -> Result<Session> {
        self.start_on(engine, None, None)
    }

    /// The same with a template and a format in place of those that belong to the model, where they are given.
    pub(crate) fn start(&self, template: Option<ChatTemplate>, format: Option<Format>) -> Result<Session> {
        self.start_on(self.engine(), template, format)
    }

    /// The same on another engine.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn start_on(
        &self,
        engine: Box<dyn Engine>,
        template: Option<ChatTemplate>,
        format: Option<Format>,
    ) -> Result<Session> {
        let own = template.is_none() && format.is_none();
        let templates = match template {
            Some(template) => ChatTemplates::single(template),
            None => self.templates()?,
        };
        let mut session = Session::with_templates(engine, templates, format.or_else(|| self.format.clone()))?;
        session.prices = self.entry.server().and_then(|server| server.cost);
        session.applied = self.entry.about();
        session.options_mut().sampling = self.entry.sampling.into();
        session.options_mut().call_threshold = self.entry.call_threshold.filter(|_| own);
        session.options_mut().no_call_below = self.entry.no_call_below.filter(|_| own);
        session.prompts.asks_for_answers = self.entry.ask_for_answers;
        session.preparing = own && self.reads_calls;
        Ok(session)
    }

    /// The chat templates of sessions with this model, which share them.
    fn templates(&self) -> Result<ChatTemplates> {
        if let Some(template) = &self.template {
            return Ok(ChatTemplates::single(Arc::clone(template)));
        }
        if let Some(own) = self.own.get() {
            return Ok(own.clone());
        }
        let own = self.info.chat_templates()?;
        Ok(self.own.get_or_init(|| own).clone())
    }

    /// Loads the weights after the vocabulary, and returns whether they were not there. Sessions keep the engines that they have;
    /// see `Session::swap_engine`.
    ///
    /// # Errors
    /// [`ErrorKind::Engine`] when it cannot be loaded.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn reload(&mut self, options: LoadOptions) -> Result<bool> {
        if self.entry.server().is_some() || !self.vocabulary_only {
            return Ok(false);
        }
        self.vocabulary_only = options.vocabulary_only;
        if self.sizes.is_none() && options.context.is_some() {
            self.sizes = Some(Sizes::of(&Gguf::open(&self.path)?));
        }
        let engine = load(&self.path, &self.entry, self.sizes, options)?;
        // Without the weights, the length of the context is not known.
        self.info = engine.model().clone();
        self.weights = Weights::Here(Box::new(Mutex::new(engine)));
        Ok(true)
    }

    /// Returns whether there is more than the vocabulary.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn is_whole(&self) -> bool {
        !self.vocabulary_only
    }

    /// An engine with a context of its own over the same weights.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn engine(&self) -> Box<dyn Engine> {
        match &self.weights {
            Weights::Here(engine) => Box::new(lock(engine).share()),
            #[cfg(feature = "remote")]
            Weights::Server(server) => server.engine(),
        }
    }

    /// Engines that generate at the same time, at most `count`.
    ///
    /// # Errors
    /// [`ErrorKind::Engine`] when there are too many.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn sequences(&self, count: usize) -> Result<Parallel> {
        match &self.weights {
            Weights::Here(engine) => Sequences::new(&lock(engine), count).map(Parallel::Here),
            #[cfg(feature = "remote")]
            Weights::Server(server) => {
                Ok(Parallel::Server(Arc::clone(server), count.min(crate::engine::llama::parallel::MAX_SEQUENCES)))
            }
        }
    }

    /// Returns what the GGUF says of the model.
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// Returns what models.toml says of it.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn entry(&self) -> &ModelEntry {
        &self.entry
    }

    /// The GGUF; empty if a server runs the model.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// How many threads decode; see [`LoadOptions::threads`]. None do if a server runs the model.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn threads(&self) -> usize {
        match &self.weights {
            Weights::Here(engine) => lock(engine).threads(),
            #[cfg(feature = "remote")]
            Weights::Server(_) => 0,
        }
    }

    /// Returns what a user should know about how the model was found.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }
}

impl ModelBuilder {
    /// A models.toml that adds to the built-in one and to the user's.
    pub fn models_file(mut self, file: impl Into<PathBuf>) -> ModelBuilder {
        self.models = Some(file.into());
        self
    }

    /// Where files of the hub are, and whether others may be downloaded; by default as the environment says.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn hub(mut self, hub: Hub) -> ModelBuilder {
        self.hub = Some(hub);
        self
    }

    /// Ignores the entry of models.toml for the model: its sampling, template, format, context, adapters and thresholds. An entry
    /// applies to its file however that is named, also by a path.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn no_entry(mut self) -> ModelBuilder {
        self.no_entry = true;
        self
    }

    /// A chat template in place of the model's own: a built-in name or a Jinja file.
    pub fn template(mut self, name: impl Into<String>) -> ModelBuilder {
        self.template = Some(name.into());
        self
    }

    /// A tool-call format in place of the template's: a built-in name or a file that declares one.
    pub fn format(mut self, name: impl Into<String>) -> ModelBuilder {
        self.format = Some(name.into());
        self
    }

    /// How the GGUF is loaded: context, threads, layers on the GPU, LoRA adapters. A context and adapters that are not set are
    /// what models.toml says.
    pub fn load_options(mut self, options: LoadOptions) -> ModelBuilder {
        self.load = options;
        self
    }

    /// Loads all of a small model at once, also where [`LoadOptions::vocabulary_only`] is set: twice takes longer.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn small_whole(mut self) -> ModelBuilder {
        self.small_whole = true;
        self
    }

    /// Prepares the reading of calls on another thread, while the model is loaded.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn reads_calls(mut self, reads_calls: bool) -> ModelBuilder {
        self.reads_calls = reads_calls;
        self
    }

    /// Called while a file is downloaded.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn on_download(mut self, progress: impl Progress + 'static) -> ModelBuilder {
        self.on_download = Some(Box::new(progress));
        self
    }

    /// Finds the model, downloads its file where that is not here, checks it, and loads it.
    ///
    /// # Errors
    /// [`ErrorKind::ModelNotFound`] for an unknown name,
    /// [`ErrorKind::Template`] or [`ErrorKind::Format`] for an
    /// unknown template or format, [`ErrorKind::Gguf`] for a file that llama.cpp cannot run,
    /// [`ErrorKind::Server`] for a server that cannot be reached, and what a download can fail
    /// with.
    pub fn open(mut self, name: &str) -> Result<Model> {
        let hub = self.hub.take().unwrap_or_else(Hub::from_env);
        let models = Models::load(self.models.as_deref())?;
        let Found { mut entry, notice } = models.find(name, &hub)?;
        if self.no_entry {
            entry = entry.bare();
        }
        let notices: Vec<String> = notice.into_iter().collect();
        let own = OnceLock::new();
        if let Some(named) = entry.server().cloned() {
            let (template, format) = self.written_with(&mut entry)?;
            refuse_files(&named, &entry, &self.load)?;
            let context = self.load.context.or(entry.context.map(|context| context as usize));
            let (weights, info) = connect(&named, context, template.as_deref(), format.as_ref())?;
            return Ok(Model {
                weights,
                vocabulary_only: false,
                reads_calls: false,
                info,
                path: PathBuf::new(),
                sizes: None,
                entry,
                template,
                format,
                own,
                notices,
            });
        }
        let progress = &mut *self.on_download.take().unwrap_or_else(|| Box::new(()));
        let recognizes = !self.no_entry && !entry.is_named();
        let ((template, format), path, checked) = std::thread::scope(|scope| -> Result<_> {
            if entry.is_bundled() && !(recognizes && models.has_own()) {
                return Ok((self.written_with(&mut entry)?, entry.ensure(&hub, progress)?, None));
            }
            // While the file is found and checked. Without a thread, loading does it.
            let _ = std::thread::Builder::new().spawn_scoped(scope, LlamaEngine::start);
            let here = entry.local(&hub).map(Gguf::open).transpose()?;
            if let Some(gguf) = here.as_ref().filter(|_| recognizes) {
                models.recognize(&mut entry, gguf, &hub, progress)?;
            }
            // Before a download.
            let mut written = self.written_with(&mut entry)?;
            let path = entry.ensure(&hub, progress)?;
            let gguf = match here {
                Some(gguf) => gguf,
                None => {
                    let gguf = Gguf::open(&path)?;
                    if recognizes {
                        models.recognize(&mut entry, &gguf, &hub, progress)?;
                        written = self.written_with(&mut entry)?;
                    }
                    gguf
                }
            };
            gguf.check()?;
            Ok((written, path, Some(gguf)))
        })?;
        if let Some(about) = entry.about() {
            tracing::info!("{about}");
        }
        let sizes = match &checked {
            Some(gguf) => Some(Sizes::of(gguf)),
            None if self.load.context.is_some() => Some(Sizes::of(&Gguf::open(&path)?)),
            None => None,
        };
        let reads_calls = self.reads_calls;
        if reads_calls {
            let (path, template, format) = (path.clone(), template.clone(), format.clone());
            // The session will find it done, or wait for it.
            prepare_reader(move || {
                let Some(gguf) = checked.or_else(|| Gguf::open(path).ok()) else { return };
                if let Some(choice) = tool_format(&gguf, template.as_deref(), format) {
                    choice.format.prepare();
                }
            });
        }
        let small = || std::fs::metadata(&path).is_ok_and(|data| data.len() <= SMALL);
        let vocabulary_only = self.load.vocabulary_only && !(self.small_whole && small());
        let engine = load(&path, &entry, sizes, LoadOptions { vocabulary_only, ..self.load })?;
        let (info, weights) = (engine.model().clone(), Weights::Here(Box::new(Mutex::new(engine))));
        Ok(Model { weights, vocabulary_only, reads_calls, info, entry, path, sizes, template, format, own, notices })
    }

    /// The same for a model that makes embeddings, such as `nomic-embed-text`. It has no chat template and no format.
    ///
    /// ```no_run
    /// let mut embedder = callwright::Model::builder().open_embedder("nomic-embed-text-v1.5.Q8_0.gguf")?;
    /// let tokens = embedder.tokenize("search_query: ferries in Oslo", false)?;
    /// let vector: Vec<f32> = embedder.embed(&tokens)?;
    /// # Ok::<(), callwright::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of finding and downloading it, and [`ErrorKind::Gguf`] if it is not made for embeddings.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn open_embedder(mut self, name: &str) -> Result<Embedder> {
        let hub = self.hub.take().unwrap_or_else(Hub::from_env);
        let entry = Models::load(self.models.as_deref())?.find(name, &hub)?.entry;
        if let Some(server) = entry.server() {
            let message = format!("{server}: embeddings of a model on another server are not supported");
            return Err(Error::new(ErrorKind::Config, message).hint("ask that server for them"));
        }
        let path = entry.ensure(&hub, &mut *self.on_download.take().unwrap_or_else(|| Box::new(())))?;
        let context = self.load.context.or(entry.context.map(|context| context as usize));
        Embedder::load(&path, LoadOptions { context, ..self.load })
    }

    /// The template and the format that were given, or those of the entry.
    fn written_with(&self, entry: &mut ModelEntry) -> Result<(Option<Arc<ChatTemplate>>, Option<Format>)> {
        if self.template.is_some() || self.format.is_some() || !self.load.lora.is_empty() {
            // They are probabilities under the entry's own template, format and adapters.
            entry.call_threshold = None;
            entry.no_call_below = None;
        }
        let template = self.template.as_ref().or(entry.template.as_ref());
        let template = template.map(|name| ChatTemplate::load(name)).transpose()?.map(Arc::new);
        let format = self.format.as_ref().or(entry.format.as_ref()).map(|name| Format::load(name)).transpose()?;
        Ok((template, format))
    }
}

fn lock(engine: &Mutex<LlamaEngine>) -> MutexGuard<'_, LlamaEngine> {
    engine.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Refuses files that the server of a model would load.
fn refuse_files(named: &ServerModel, entry: &ModelEntry, load: &LoadOptions) -> Result<()> {
    if load.lora.is_empty() && entry.lora.is_empty() {
        return Ok(());
    }
    let message = format!("{named}: a LoRA adapter is loaded by the server that runs the model");
    Err(Error::new(ErrorKind::Config, message).hint("give it to that server"))
}

/// Opens a model that a server runs.
#[cfg(feature = "remote")]
fn connect(
    named: &ServerModel,
    context: Option<usize>,
    template: Option<&ChatTemplate>,
    format: Option<&Format>,
) -> Result<(Weights, ModelInfo)> {
    if named.chat && (template.is_some() || format.is_some()) {
        let message = format!("{named}: in chat mode the server writes the prompt and reads the calls");
        return Err(Error::new(ErrorKind::Config, message)
            .hint("a template and a format of your own need raw mode: openai: in place of openai-chat:"));
    }
    let server = Server::open(named, context, template)?;
    let info = server.info().clone();
    Ok((Weights::Server(Arc::new(server)), info))
}

/// Fails: this build knows no servers.
#[cfg(not(feature = "remote"))]
fn connect(
    named: &ServerModel,
    _: Option<usize>,
    _: Option<&ChatTemplate>,
    _: Option<&Format>,
) -> Result<(Weights, ModelInfo)> {
    Err(Error::new(ErrorKind::Config, format!("this build cannot ask {named}: it has no remote models"))
        .hint("build with the feature remote, which is on by default"))
}

/// Loads a GGUF; a context that is not set is what models.toml says, and so are adapters.
///
/// # Errors
/// [`ErrorKind::Engine`] if it does not fit into the memory, and those of [`LlamaEngine::load`].
fn load(path: &Path, entry: &ModelEntry, sizes: Option<Sizes>, mut options: LoadOptions) -> Result<LlamaEngine> {
    if options.is_on_gpu() {
        // llama.cpp's estimate takes as long as reading the vocabulary, which a small model does without.
        let free = gpu_devices().iter().fold(0, |sum: u64, device| sum.saturating_add(device.free));
        options.no_fit |= sizes.is_none_or(|sizes| sizes.bytes < free / 4);
    } else if let (Some(sizes), Some(memory)) = (sizes, machine::memory())
        && !options.no_fit
        && !options.vocabulary_only
    {
        let fit = sizes.fit(memory.available, &options).map_err(|error| error.in_file(path))?;
        if let Some(notice) = fit.notice {
            tracing::warn!("{}: {notice}", path.display());
        }
        options.from_file |= fit.from_file;
        options.room = options.room.or(fit.room);
    }
    let room = options.room.unwrap_or(usize::MAX);
    options.context = options.context.or(entry.context.map(|context| room.min(context as usize)));
    if options.lora.is_empty() {
        options.lora.clone_from(&entry.lora);
    }
    LlamaEngine::load(path, options)
}

/// The format that a session with the model would choose, with this template and format in place of the model's; `None` where
/// the chat template is not in order.
#[cfg_attr(feature = "unstable", visibility::make(pub))]
pub(crate) fn tool_format(gguf: &Gguf, template: Option<&ChatTemplate>, format: Option<Format>) -> Option<Choice> {
    let special = special_tokens(gguf);
    let is_token = |text: &str| special.contains(text);
    let clues = Clues { architecture: gguf.architecture().unwrap_or_default(), is_token: Some(&is_token) };
    let own = if template.is_none() { Some(own_template(gguf)?) } else { None };
    format_for(template.or(own.as_deref())?, format, clues).ok()
}

fn special_tokens(gguf: &Gguf) -> HashSet<String> {
    const CONTROL: i32 = 3;
    const USER_DEFINED: i32 = 4;
    let types = gguf.token_types().unwrap_or_default();
    let special = types.iter().zip(0..).filter(|(kind, _)| matches!(**kind, CONTROL | USER_DEFINED));
    special.filter_map(|(_, id)| gguf.token_text(id)).collect()
}

/// The file's chat template for conversations with tools; `None` where it is not in order.
fn own_template(gguf: &Gguf) -> Option<Arc<ChatTemplate>> {
    let named: Vec<(String, String)> =
        gguf.chat_templates().iter().map(|template| (template.name.to_owned(), template.source.to_owned())).collect();
    let special = special_tokens(gguf);
    Some(templates_of("the model", &named, special.iter().map(String::as_str)).ok()?.into_chosen(true))
}

#[cfg(all(test, feature = "llama"))]
mod tests {
    use super::*;

    /// A given template and format are read once, when the model is opened.
    #[test]
    fn the_files_of_a_model_are_read_when_it_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let [template, format] = ["chat.jinja", "mine.jinja"].map(|name| folder.path().join(name));
        std::fs::write(&template, "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}").unwrap();
        std::fs::write(&format, Format::builtin("hermes").unwrap().source()).unwrap();
        let vocabulary = LoadOptions { vocabulary_only: true, ..LoadOptions::default() };
        let builder = Model::builder().template(template.to_str().unwrap()).format(format.to_str().unwrap());
        let mut model = builder.load_options(vocabulary).open("bundled").unwrap();
        drop(folder);
        let sessions = [model.session().unwrap(), model.session().unwrap()];
        assert!(std::ptr::eq(sessions[0].template(), sessions[1].template()), "they share it");
        model.reload(LoadOptions::default()).unwrap();
        let mut session = model.session().unwrap();
        assert!(session.template().name().ends_with("chat.jinja"));
        session.options_mut().max_tokens = 1;
        session.ask("Hello").unwrap();
    }
}
