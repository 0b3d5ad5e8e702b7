//! Models: names and settings (models.toml), files on the hub and in its cache, and GGUF headers.
//!
//! A MODEL is a name from models.toml, a path, `hf:ORG/REPO/FILE.gguf[@REVISION]`, or a server, `openai:URL#MODEL`. [`Models::resolve`] turns it into
//! a [`ModelEntry`] without network access; [`ModelEntry::ensure`] downloads the file if necessary.
//!
//! ```
//! use callwright::models::{Hub, Models};
//!
//! let models = Models::builtin()?;
//! let entry = models.resolve("qwen3-0.6b")?;
//! match entry.require_local(&Hub::from_env()) {
//!     Ok(path) => println!("{} is at {}", entry.name, path.display()),
//!     Err(missing) => println!("{missing}"),
//! }
//! # Ok::<(), callwright::Error>(())
//! ```

pub mod bundled;
mod content;
#[cfg(feature = "hub")]
mod download;
mod file;
pub mod gguf;
pub(crate) mod hub;
mod lora;
mod repo;
mod server;
mod write;

use std::path::{Path, PathBuf};

pub use gguf::{Attention, Gguf};
pub use hub::{Hub, HubFile, Progress, ProgressEvent};
pub use lora::LoraAdapter;
pub(crate) use repo::HubRepo;
pub use server::ServerModel;
pub use write::{decimal, with_call_threshold};

use crate::error::{Error, ErrorKind, Location, Result, nearest};

const BUILTIN: &str = include_str!("../models.toml");
const BUILTIN_NAME: &str = "<built-in models.toml>";

/// Where a model's file comes from.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// A file on this machine.
    File(PathBuf),
    /// A file on the hub.
    Hub(HubFile),
    /// A server that runs the model.
    Server(ServerModel),
}

/// Sampling parameters that a model's makers recommend; the caller chooses the rest.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a table such as { temperature = 0.7 }")]
pub struct Sampling {
    /// Temperature; 0 is greedy.
    #[serde(deserialize_with = "file::to_100")]
    pub temperature: Option<f32>,
    /// Number of the likeliest tokens to choose among.
    #[serde(deserialize_with = "file::positive")]
    pub top_k: Option<u32>,
    /// Cumulative probability of the tokens to choose among, above 0 and up to 1.
    #[serde(deserialize_with = "file::share")]
    pub top_p: Option<f32>,
    /// Minimum probability relative to the likeliest token's, 0 to 1.
    #[serde(deserialize_with = "file::share")]
    pub min_p: Option<f32>,
    /// Divides the logit of each token that has occurred; 1 changes nothing.
    #[serde(deserialize_with = "file::repeat_penalty")]
    pub repeat_penalty: Option<f32>,
    /// Subtracted from the logit of each token that has occurred.
    #[serde(deserialize_with = "file::penalty")]
    pub presence_penalty: Option<f32>,
    /// Subtracted from the logit for each occurrence of a token.
    #[serde(deserialize_with = "file::penalty")]
    pub frequency_penalty: Option<f32>,
    /// Number of the last tokens to which these three apply; -1 is all.
    #[serde(deserialize_with = "file::last_n")]
    pub repeat_last_n: Option<i32>,
    /// Penalty of a token that would continue a repetition; 0 is off.
    #[serde(deserialize_with = "file::to_100")]
    pub dry_multiplier: Option<f32>,
}

impl Sampling {
    /// These parameters, with `other` for the missing ones.
    #[must_use]
    pub fn or(self, other: &Sampling) -> Sampling {
        Sampling {
            temperature: self.temperature.or(other.temperature),
            top_k: self.top_k.or(other.top_k),
            top_p: self.top_p.or(other.top_p),
            min_p: self.min_p.or(other.min_p),
            repeat_penalty: self.repeat_penalty.or(other.repeat_penalty),
            presence_penalty: self.presence_penalty.or(other.presence_penalty),
            frequency_penalty: self.frequency_penalty.or(other.frequency_penalty),
            repeat_last_n: self.repeat_last_n.or(other.repeat_last_n),
            dry_multiplier: self.dry_multiplier.or(other.dry_multiplier),
        }
    }
}

/// A model, and how to use it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ModelEntry {
    /// Its name in models.toml, or the requested MODEL.
    pub name: String,
    /// The source of its file; for a sharded model, of the first shard.
    pub source: Source,
    /// Total size of its files in bytes, if known.
    pub size: Option<u64>,
    /// What tells the model's file apart from others, wherever it lies: the SHA-256 of its metadata and its table of tensors.
    /// `callwright model inspect` shows it. Several, where the settings are right for several files.
    pub fingerprints: Vec<String>,
    /// The chat template to use instead of the model's own: a name, or the path of a file.
    pub template: Option<String>,
    /// The tool-call format: a name, or the path of a file.
    pub format: Option<String>,
    /// The largest context, in tokens, to use.
    pub context: Option<u32>,
    /// The sampling its makers recommend.
    pub sampling: Sampling,
    /// The probability of a call at or above which an answer has to be one, with this template and format.
    pub call_threshold: Option<f64>,
    /// Likewise, the probability of a call below which an answer has none.
    pub no_call_below: Option<f64>,
    /// Whether prompts ask for an answer after a result: the model overlooks results in the place that its template gives them, and
    /// makes the calls again.
    pub ask_for_answers: bool,
    /// LoRA adapters that belong to the model.
    pub lora: Vec<LoraAdapter>,
    /// The names of fallback models in models.toml, in order of preference.
    pub fallbacks: Vec<String>,
    /// The name of the entry in models.toml whose settings these are.
    pub applied: Option<String>,
    /// The entry's place in models.toml.
    pub(crate) place: Option<Location>,
}

impl ModelEntry {
    fn new(name: &str, source: Source) -> ModelEntry {
        ModelEntry {
            name: name.to_owned(),
            source,
            size: None,
            fingerprints: Vec::new(),
            template: None,
            format: None,
            context: None,
            sampling: Sampling::default(),
            call_threshold: None,
            no_call_below: None,
            ask_for_answers: false,
            lora: Vec::new(),
            fallbacks: Vec::new(),
            applied: None,
            place: None,
        }
    }

    /// The path of the model's file, if it is on this machine. Uses no network.
    pub fn local(&self, hub: &Hub) -> Option<PathBuf> {
        match &self.source {
            Source::File(path) => path.is_file().then(|| path.clone()),
            Source::Hub(file) => hub.cached(file),
            Source::Server(_) => None,
        }
    }

    /// The server that runs the model, if one does.
    pub fn server(&self) -> Option<&ServerModel> {
        match &self.source {
            Source::Server(server) => Some(server),
            Source::File(_) | Source::Hub(_) => None,
        }
    }

    /// Returns whether it is the bundled model, whose file has been compared with the program's: it needs no check.
    pub(crate) fn is_bundled(&self) -> bool {
        self.name == bundled::NAME && self.place.is_none()
    }

    /// The path of the model's file, which is downloaded if necessary.
    ///
    /// A file in the hub's cache is used without a request.
    ///
    /// # Errors
    /// [`ErrorKind::ModelNotFound`] if a local file is missing; else those of [`Hub::pull`].
    pub fn ensure(&self, hub: &Hub, progress: &mut dyn Progress) -> Result<PathBuf> {
        if let Some(path) = self.local(hub) {
            return Ok(path);
        }
        match &self.source {
            Source::File(path) => Err(self.missing_file(path)),
            Source::Hub(file) => hub.pull(file, progress),
            Source::Server(server) => Err(no_file(server)),
        }
    }

    /// The path of the model's file, without a download.
    ///
    /// # Errors
    /// [`ErrorKind::ModelNotFound`], with the command that downloads it.
    pub fn require_local(&self, hub: &Hub) -> Result<PathBuf> {
        self.local(hub).ok_or_else(|| match &self.source {
            Source::File(path) => self.missing_file(path),
            Source::Hub(_) => {
                Error::new(ErrorKind::ModelNotFound, format!("the model {} is not on this machine yet", self.name))
                    .hint(format!("download it: callwright model pull {}", self.name))
            }
            Source::Server(server) => no_file(server),
        })
    }

    fn missing_file(&self, path: &Path) -> Error {
        let error = Error::new(
            ErrorKind::ModelNotFound,
            format!("the file of the model {:?} is missing: {}", self.name, path.display()),
        );
        match &self.place {
            Some(place) => error.at(place.clone()),
            None => error,
        }
    }
}

/// The error that a model on a server is no file.
fn no_file(server: &ServerModel) -> Error {
    Error::new(ErrorKind::ModelNotFound, format!("{server} is a server, and its model no file on this machine"))
}

/// The named models.
#[derive(Debug, Clone)]
pub struct Models {
    entries: Vec<ModelEntry>,
    /// The files that were added to the built-in one, in order.
    files: Vec<PathBuf>,
}

/// A model that was found.
#[derive(Debug, Clone)]
pub struct Found {
    /// What models.toml says of it, and its file.
    pub entry: ModelEntry,
    /// Which file of a repository is used, if the name left it open.
    pub notice: Option<String>,
}

impl Models {
    /// The built-in models.
    ///
    /// # Errors
    /// None: a test reads them.
    pub fn builtin() -> Result<Models> {
        let mut models = Models { entries: Vec::new(), files: Vec::new() };
        models.extend(file::parse(BUILTIN, Path::new(BUILTIN_NAME), Path::new(""))?);
        models.check_fallbacks()?;
        Ok(models)
    }

    /// The built-in models, extended by `Models::user_file` if it exists, and then by `extra`.
    ///
    /// # Errors
    /// Those of [`Models::with_file`].
    pub fn load(extra: Option<&Path>) -> Result<Models> {
        let user = Models::user_file().filter(|path| path.exists());
        user.as_deref().into_iter().chain(extra).try_fold(Models::builtin()?, Models::with_file)
    }

    /// These models, extended by the models.toml at `path`: its models replace those of the same name.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if it cannot be read, [`ErrorKind::Syntax`] if it is not TOML, [`ErrorKind::Config`] with the
    /// line if a field is unknown or a fallback is not one of the models.
    pub fn with_file(mut self, path: impl AsRef<Path>) -> Result<Models> {
        self.extend(file::read(path.as_ref())?);
        self.files.push(path.as_ref().to_owned());
        self.check_fallbacks()?;
        Ok(self)
    }

    /// The path of the user's models.toml: `$XDG_CONFIG_HOME/callwright/models.toml`, or the platform's equivalent.
    pub fn user_file() -> Option<PathBuf> {
        let dirs = directories::ProjectDirs::from("", "", "callwright")?;
        Some(dirs.config_dir().join("models.toml"))
    }

    /// All models, in the order of the files.
    pub fn entries(&self) -> &[ModelEntry] {
        &self.entries
    }

    /// The model of that name.
    pub fn get(&self, name: &str) -> Option<&ModelEntry> {
        self.entries.iter().find(|entry| entry.name == name)
    }

    /// Finds a model: by its name, its path, or its place on the hub, where `hf:ORG/REPO[:QUANT]` is enough.
    ///
    /// A file on the hub may not be downloaded yet.
    ///
    /// # Errors
    /// Those of [`Models::resolve`], and those of `Hub::choose` if only a repository is named.
    pub fn find(&self, model: &str, hub: &Hub) -> Result<Found> {
        let Some(wanted) = HubRepo::parse(model).filter(|_| self.get(model).is_none()) else {
            return Ok(Found { entry: self.resolve(model)?, notice: None });
        };
        let file = hub.choose(&wanted)?.to_string();
        let notice = Some(format!("{model} names no file: {file} is used"));
        Ok(Found { entry: self.resolve(&file)?, notice })
    }

    /// Finds a model without asking the hub and without looking into files: by its name, its path, or `hf:ORG/REPO/FILE.gguf[@REVISION]`.
    ///
    /// A file on the hub may not be downloaded yet. [`Model::open`](crate::Model::open) also takes a repository without a file.
    ///
    /// # Errors
    /// [`ErrorKind::ModelNotFound`] if it is neither a name nor an existing file, with the name that may be meant;
    /// [`ErrorKind::Config`] if the text after `hf:` names no file; [`ErrorKind::Io`] if the bundled model cannot be unpacked.
    pub fn resolve(&self, model: &str) -> Result<ModelEntry> {
        if let Some(entry) = self.get(model) {
            return Ok(entry.clone());
        }
        if model == bundled::NAME {
            return Ok(ModelEntry::new(model, Source::File(bundled::path()?)));
        }
        if let Some(rest) = model.strip_prefix("hf:") {
            let file = HubFile::parse(rest)
                .map_err(|why| Error::new(ErrorKind::Config, format!("{model:?} names no file on the hub: {why}")))
                .map_err(|e| e.hint("write hf:ORG/REPO/FILE.gguf[@REVISION], or hf:ORG/REPO[:QUANT]"))?;
            // Settings in models.toml for the same file apply.
            let same = |entry: &&ModelEntry| matches!(&entry.source, Source::Hub(known) if known.same_file(&file));
            return Ok(match self.entries.iter().find(same) {
                Some(known) => ModelEntry { name: model.to_owned(), ..known.clone() },
                None => ModelEntry::new(model, Source::Hub(file)),
            });
        }
        if let Some(server) = ServerModel::parse(model) {
            return Ok(ModelEntry::new(model, Source::Server(server?)));
        }
        let path = Path::new(model);
        if path.is_file() {
            return Ok(ModelEntry::new(model, Source::File(path.to_owned())));
        }
        Err(self.not_found(model, path))
    }

    fn not_found(&self, model: &str, path: &Path) -> Error {
        let fail = |message: String| Error::new(ErrorKind::ModelNotFound, message);
        if path.is_dir() {
            let hint = match first_gguf(path) {
                Some(file) => format!("name the file in it, such as {}", file.display()),
                None => "name a .gguf file".to_owned(),
            };
            return fail(format!("{model:?} is a folder, not a model file")).hint(hint);
        }
        if path.exists() {
            return fail(format!("{model:?} is not a regular file")).hint("llama.cpp needs the whole file on a disk");
        }
        if let Some(rest) = model.strip_prefix("https://").or_else(|| model.strip_prefix("http://")) {
            let hint = match HubFile::from_url(rest) {
                Some(file) => format!("for a file on the hub, write {file}"),
                None if rest.ends_with(".gguf") => {
                    "download the file and give its path, or name it as hf:ORG/REPO/FILE.gguf".to_owned()
                }
                None => format!("a server that runs a model is written openai:{model}#MODEL"),
            };
            return fail(format!("{model:?} is an address, not a model")).hint(hint);
        }
        if model.contains(['/', '\\']) || model.ends_with(".gguf") {
            let error = fail(format!("there is no file {model:?}"));
            let known = self.entries.iter().find(|entry| match &entry.source {
                Source::Hub(file) => file.file == model || file.repo == model,
                Source::File(_) | Source::Server(_) => false,
            });
            return match known {
                Some(entry) => {
                    error.hint(format!("download it by name: callwright model pull {0}, then -m {0}", entry.name))
                }
                None => error.hint("a file on the hub is written hf:ORG/REPO/FILE.gguf"),
            };
        }
        let names = self.entries.iter().map(|entry| entry.name.as_str());
        let hint = match nearest(&model.to_lowercase(), names) {
            Some(name) => format!("did you mean {name}? To get it: callwright model pull {name}"),
            None => "callwright model list shows the names; a path or hf:ORG/REPO/FILE.gguf also works".to_owned(),
        };
        fail(format!("there is no model {model:?}, and no file of that name")).hint(hint)
    }

    fn extend(&mut self, entries: Vec<ModelEntry>) {
        for entry in entries {
            match self.entries.iter_mut().find(|known| known.name == entry.name) {
                Some(known) => *known = entry,
                None => self.entries.push(entry),
            }
        }
    }

    fn check_fallbacks(&self) -> Result<()> {
        for entry in &self.entries {
            for fallback in &entry.fallbacks {
                if *fallback != entry.name && self.get(fallback).is_some() {
                    continue;
                }
                let name = &entry.name;
                let message = if fallback == name {
                    format!("the model {name:?} falls back to itself")
                } else {
                    format!("the model {name:?} falls back to {fallback:?}, which no models.toml names")
                };
                let mut error = Error::new(ErrorKind::Config, message);
                if let Some(place) = &entry.place {
                    error = error.at(place.clone());
                }
                let others = self.entries.iter().map(|e| e.name.as_str()).filter(|name| *name != entry.name);
                return Err(error.suggest(fallback, others, ""));
            }
        }
        Ok(())
    }
}

fn first_gguf(folder: &Path) -> Option<PathBuf> {
    let files = std::fs::read_dir(folder).ok()?.filter_map(|entry| entry.ok()).map(|entry| entry.path());
    files.filter(|path| path.extension().is_some_and(|e| e == "gguf")).min()
}

impl From<Sampling> for crate::answer::Sampling {
    /// The sampling that a model's makers recommend, with defaults for the rest.
    fn from(given: Sampling) -> crate::answer::Sampling {
        let default = crate::answer::Sampling::default();
        crate::answer::Sampling {
            temperature: given.temperature.unwrap_or(default.temperature),
            top_k: given.top_k.map_or(default.top_k, |k| k as usize),
            top_p: given.top_p.unwrap_or(default.top_p),
            min_p: given.min_p.unwrap_or(default.min_p),
            seed: default.seed,
            penalties: crate::answer::Penalties {
                repeat: given.repeat_penalty.unwrap_or(default.penalties.repeat),
                presence: given.presence_penalty.unwrap_or(default.penalties.presence),
                frequency: given.frequency_penalty.unwrap_or(default.penalties.frequency),
                last_n: given.repeat_last_n.unwrap_or(default.penalties.last_n),
                dry_multiplier: given.dry_multiplier.unwrap_or(default.penalties.dry_multiplier),
            },
        }
    }
}
