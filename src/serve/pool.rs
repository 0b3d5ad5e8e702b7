//! The models that are served: loaded when they are first asked for, released when others need their memory.

use super::embedding::Desk;
use super::job::Job;
use super::queue::{Full, Queue};
use super::refusal::Refusal;
use super::worker::{self, Shared};
use super::{ServeOptions, Server};
use axum::http::StatusCode;
use callwright::engine::{Engine, Token};
use callwright::error::nearest;
use callwright::models::{Gguf, Models, bundled};
use callwright::session::Session;
use callwright::{Model, ModelBuilder, Result};
use serde_json::Value;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// How long a request may wait until a loaded model that no longer fits is idle.
const WAIT_FOR_ROOM: Duration = Duration::from_secs(30);

/// All models that are served.
pub(super) struct Pool {
    slots: Vec<Slot>,
    began: Instant,
    /// Held while a model is loaded or released.
    loading: Mutex<()>,
}

/// One model, loaded or not.
pub(super) struct Slot {
    /// What clients call it.
    pub id: String,
    /// What it is opened by.
    name: String,
    /// When it was given, in seconds since 1970.
    pub created: u64,
    /// When it was last used, in milliseconds since the server began.
    used: AtomicU64,
    loaded: Mutex<Option<Loaded>>,
    /// What is known of it, once that was looked up.
    about: Mutex<Option<About>>,
}

/// What clients want to know of a model before they use it.
#[derive(Debug, Clone, Default)]
pub(super) struct About {
    pub architecture: String,
    /// Such as `Q4_K_M`.
    pub quantization: String,
    /// The context of a request, in tokens.
    pub context: Option<u64>,
    /// The context that it was trained for.
    pub trained: Option<u64>,
    /// The size of its file in bytes.
    pub size: u64,
    /// Whether it makes embeddings, and does not generate.
    pub embeds: bool,
}

/// A loaded model.
#[derive(Clone)]
enum Loaded {
    Chat(Arc<Host>),
    Embedder(Arc<Desk>),
}

/// A loaded model that generates, with its workers.
pub(super) struct Host {
    shared: Arc<Shared>,
    /// Knows the bytes of tokens. It does nothing that takes long.
    words: Mutex<Box<dyn Engine>>,
    /// A session without a place in the queue: it writes and counts prompts, and does not generate.
    desk: Mutex<Session>,
    /// The size of its file in bytes.
    size: u64,
    workers: Mutex<Vec<JoinHandle<()>>>,
}

impl Pool {
    /// The models by name; none is loaded yet.
    pub(super) fn new(options: &ServeOptions) -> Pool {
        let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let slot = |name: &String| Slot {
            id: id(name),
            name: name.clone(),
            created: seconds,
            used: AtomicU64::new(0),
            loaded: Mutex::default(),
            about: Mutex::default(),
        };
        let bundled = [bundled::NAME.to_owned()];
        let names = if options.models.is_empty() { &bundled[..] } else { &options.models };
        Pool { slots: names.iter().map(slot).collect(), began: Instant::now(), loading: Mutex::default() }
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.slots.iter().map(|slot| slot.id.clone()).collect()
    }

    pub(super) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Loads the first model, so that a server that is ready has one.
    ///
    /// # Errors
    /// Those of opening it.
    pub(super) fn load_first(&self, server: &Server) -> Result<()> {
        *lock(&self.slots[0].loaded) = Some(Loaded::open(&self.slots[0].name, server)?);
        Ok(())
    }

    /// The model that a request names, and a note where it is another one: a server of one model takes every name.
    pub(super) fn find(&self, asked: Option<&str>) -> std::result::Result<(&Slot, Option<String>), Refusal> {
        let first = &self.slots[0];
        let Some(asked) = asked.filter(|asked| !asked.is_empty()) else { return Ok((first, None)) };
        if let Some(slot) = self.slots.iter().find(|slot| slot.id == asked || slot.name == asked) {
            return Ok((slot, None));
        }
        if self.slots.len() == 1 {
            return Ok((first, Some(format!("this server has one model, {}, and not {asked:?}", first.id))));
        }
        let names = self.names();
        let meant = match nearest(asked, names.iter().map(String::as_str)) {
            Some(meant) => format!(" Did you mean {meant}?"),
            None => String::new(),
        };
        let message = format!("This server has no model {asked:?}.{meant} It has: {}", names.join(", "));
        Err(Refusal::new(StatusCode::NOT_FOUND, "model_not_found", message))
    }

    /// The loaded model, which generates; loads it where that is needed. Blocks.
    pub(super) fn host(&self, slot: &Slot, server: &Server) -> std::result::Result<Arc<Host>, Refusal> {
        match self.loaded(slot, server)? {
            Loaded::Chat(host) => Ok(host),
            Loaded::Embedder(_) => {
                let message = format!(
                    "the model {} makes embeddings, at /v1/embeddings, and does not generate text: name a model made for chat",
                    slot.id
                );
                Err(Refusal { param: Some("model"), ..Refusal::invalid(message) })
            }
        }
    }

    /// The loaded model, which makes embeddings; loads it where that is needed. Blocks.
    pub(super) fn embedder(&self, slot: &Slot, server: &Server) -> std::result::Result<Arc<Desk>, Refusal> {
        match self.loaded(slot, server)? {
            Loaded::Embedder(desk) => Ok(desk),
            Loaded::Chat(_) => {
                let message = format!(
                    "the model {} generates text and makes no embeddings: serve one that is made for them, such as \
                     nomic-embed-text (-m FILE.gguf), and name it as model",
                    slot.id
                );
                Err(Refusal { param: Some("model"), ..Refusal::invalid(message) })
            }
        }
    }

    fn loaded(&self, slot: &Slot, server: &Server) -> std::result::Result<Loaded, Refusal> {
        slot.used.store(self.began.elapsed().as_millis() as u64 + 1, Ordering::Relaxed);
        if let Some(loaded) = &*lock(&slot.loaded) {
            return Ok(loaded.clone());
        }
        let _loading = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        // Another request may have loaded it meanwhile.
        if let Some(loaded) = &*lock(&slot.loaded) {
            return Ok(loaded.clone());
        }
        self.make_room(slot, server)?;
        let loaded = Loaded::open(&slot.name, server)?;
        *lock(&slot.loaded) = Some(loaded.clone());
        Ok(loaded)
    }

    /// Releases the models that were not used for the longest time, until one more fits the budget.
    fn make_room(&self, wanted: &Slot, server: &Server) -> std::result::Result<(), Refusal> {
        let Some(budget) = server.options.memory_budget else { return Ok(()) };
        let size = file_of(&wanted.name, server).map_or(0, |path| size_of(&path));
        loop {
            let mut loaded: Vec<(&Slot, Loaded)> =
                self.slots.iter().filter_map(|slot| Some((slot, lock(&slot.loaded).clone()?))).collect();
            let total: u64 = loaded.iter().map(|(_, loaded)| loaded.size()).sum();
            if loaded.is_empty() || total + size <= budget {
                return Ok(());
            }
            loaded.sort_by_key(|(slot, _)| slot.used.load(Ordering::Relaxed));
            let idle = |(_, loaded): &&(&Slot, Loaded)| loaded.load() == (0, 0);
            let until = Instant::now() + WAIT_FOR_ROOM;
            let (slot, released) = loop {
                if let Some(found) = loaded.iter().find(idle) {
                    break found;
                }
                if Instant::now() >= until {
                    let message = "all loaded models are busy, and another one does not fit --memory-budget";
                    return Err(Refusal::unavailable(message));
                }
                std::thread::sleep(Duration::from_millis(20));
            };
            *lock(&slot.loaded) = None;
            released.close();
            tracing::debug!(model = slot.id, "released");
        }
    }

    /// Ends all workers once they have answered.
    pub(super) fn close(&self) {
        for slot in &self.slots {
            if let Some(loaded) = lock(&slot.loaded).take() {
                loaded.close();
            }
        }
    }

    /// How many requests wait and run, for each loaded model.
    pub(super) fn load(&self) -> Vec<(String, usize, usize)> {
        let load = |slot: &Slot| {
            let (waiting, running) = lock(&slot.loaded).as_ref()?.load();
            Some((slot.id.clone(), waiting, running))
        };
        self.slots.iter().filter_map(load).collect()
    }

    /// What is known of a model: what it says once it is loaded, or else the header of its file. Blocks.
    pub(super) fn about(&self, slot: &Slot, server: &Server) -> About {
        let loaded = lock(&slot.loaded).clone();
        let mut known = lock(&slot.about);
        if let Some(about) = &*known {
            return about.clone();
        }
        let Some(loaded) = loaded else {
            // It may still be downloaded.
            return About::of_file(&slot.name, server);
        };
        let about = match loaded {
            Loaded::Chat(host) => host.about(),
            Loaded::Embedder(desk) => {
                let context = desk.with(|embedder| embedder.limit());
                About { context: Some(context as u64), ..About::of_file(&slot.name, server) }
            }
        };
        known.insert(about).clone()
    }

    /// Returns whether a model is loaded.
    pub(super) fn is_loaded(&self, slot: &Slot) -> bool {
        lock(&slot.loaded).is_some()
    }
}

impl Loaded {
    fn open(name: &str, server: &Server) -> Result<Loaded> {
        let options = &server.options;
        let builder = Model::builder().hub(options.hub.clone()).load_options(options.load.again());
        let builder = options.models_file.iter().fold(builder, |builder, file| builder.models_file(file));
        let found = Models::load(options.models_file.as_deref())?.find(name, &options.hub)?;
        if found.entry.server().is_none() {
            let path = found.entry.ensure(&options.hub, &mut ())?;
            if Gguf::open(&path)?.makes_embeddings() {
                let desk = Desk::new(builder.open_embedder(name)?, options.queue.saturating_add(1), size_of(&path));
                return Ok(Loaded::Embedder(Arc::new(desk)));
            }
        }
        Host::open(builder, name, server).map(|host| Loaded::Chat(Arc::new(host)))
    }

    fn size(&self) -> u64 {
        match self {
            Loaded::Chat(host) => host.size,
            Loaded::Embedder(desk) => desk.size,
        }
    }

    /// How many requests wait, and how many run.
    fn load(&self) -> (usize, usize) {
        match self {
            Loaded::Chat(host) => host.shared.queue.load(),
            Loaded::Embedder(desk) => desk.load(),
        }
    }

    /// Ends its workers once they have answered.
    fn close(&self) {
        match self {
            Loaded::Chat(host) => host.close(),
            // Its requests hold it.
            Loaded::Embedder(_) => {}
        }
    }
}

impl Host {
    fn open(builder: ModelBuilder, name: &str, server: &Server) -> Result<Host> {
        let options = &server.options;
        let builder = if options.no_entry { builder.no_entry() } else { builder };
        let builder = options.template.iter().fold(builder, callwright::ModelBuilder::template);
        let builder = options.format.iter().fold(builder, callwright::ModelBuilder::format);
        let model = Arc::new(builder.open(name)?);
        model.notices().iter().for_each(|text| (options.notice)(text));
        let words = Mutex::new(model.engine());
        let desk = model.session()?;
        desk.notices().iter().for_each(|text| (options.notice)(text));
        let sequences = model.sequences(options.parallel)?;
        let count = sequences.at_a_time();
        let size = size_of(model.path());
        let shared = Arc::new(Shared {
            model,
            queue: Queue::new(options.queue, count),
            sequences,
            defaults: options.defaults.clone(),
            max_tokens: options.max_tokens,
            seed: options.seed,
            stream_arguments: options.stream_arguments,
            metrics: server.metrics.clone(),
        });
        let start = |number: usize| {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new().name(format!("answers-{number}")).spawn(move || worker::work(&shared, number))
        };
        let workers = (0..count).map(start).collect::<std::io::Result<Vec<_>>>().map_err(|error| {
            callwright::Error::new(callwright::ErrorKind::Engine, format!("cannot start a thread for answers: {error}"))
        })?;
        Ok(Host { shared, words, desk: Mutex::new(desk), size, workers: Mutex::new(workers) })
    }

    fn about(&self) -> About {
        let (context, info) =
            self.at_desk(|session| (session.engine().context_limit(), session.engine().model().clone()));
        About {
            architecture: info.architecture,
            quantization: Gguf::open(self.shared.model.path())
                .ok()
                .map_or_else(String::new, |gguf| quantization(&gguf)),
            context: Some(context as u64),
            trained: Some(info.context_train as u64),
            size: self.size,
            embeds: false,
        }
    }

    pub(super) fn model(&self) -> &Model {
        &self.shared.model
    }

    /// Adds a request to the queue.
    pub(super) fn push(&self, job: Job) -> std::result::Result<(), Full> {
        let kind = worker::kind(&job.work);
        self.shared.queue.push(job, &kind)
    }

    /// Does something with the session that does not generate.
    pub(super) fn at_desk<T>(&self, work: impl FnOnce(&mut Session) -> T) -> T {
        work(&mut lock(&self.desk))
    }

    /// Writes tokens with their texts as JSON, separated by commas, the first of all without one before it.
    pub(super) fn write_pieces(&self, tokens: &[Token], mut first: bool, into: &mut String) {
        let words = lock(&self.words);
        for token in tokens {
            into.push_str(if std::mem::take(&mut first) { "" } else { "," });
            let piece = Value::from(String::from_utf8_lossy(words.token_bytes(*token)));
            let _ = write!(into, "{{\"id\":{},\"piece\":{piece}}}", token.0);
        }
    }

    fn close(&self) {
        self.shared.queue.close();
        for worker in std::mem::take(&mut *lock(&self.workers)) {
            // A worker catches what happens in a request.
            let _ = worker.join();
        }
    }
}

/// The file of a model, if it is here.
fn file_of(name: &str, server: &Server) -> Option<PathBuf> {
    let models = Models::load(server.options.models_file.as_deref());
    let found = models.and_then(|models| models.find(name, &server.options.hub)).ok()?;
    found.entry.local(&server.options.hub)
}

/// The size of a file, if it is here.
fn size_of(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |data| data.len())
}

fn quantization(gguf: &Gguf) -> String {
    gguf.quantization().unwrap_or_default().to_owned()
}

impl About {
    /// What the header of a model's file says; nothing if it is not here.
    fn of_file(name: &str, server: &Server) -> About {
        let Some(path) = file_of(name, server) else { return About::default() };
        let Ok(gguf) = Gguf::open(&path) else { return About::default() };
        let trained = gguf.context_length();
        let wanted = server.options.load.context.map(|context| context as u64);
        About {
            architecture: gguf.architecture().unwrap_or_default().to_owned(),
            quantization: quantization(&gguf),
            context: wanted.map_or(trained, |wanted| Some(trained.map_or(wanted, |trained| trained.min(wanted)))),
            trained,
            size: size_of(&path),
            embeds: gguf.makes_embeddings(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns what clients call a model: its name, or the name of its file.
fn id(name: &str) -> String {
    if let Some((_, model)) =
        name.split_once('#').filter(|(address, model)| address.contains("://") && !model.is_empty())
    {
        // What its own server calls it.
        return model.to_owned();
    }
    let path = Path::new(name);
    match path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf")) {
        true => path.file_stem().map_or(name.to_owned(), |stem| stem.to_string_lossy().into_owned()),
        false => name.to_owned(),
    }
}
