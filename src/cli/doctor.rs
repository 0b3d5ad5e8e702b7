//! `callwright doctor`: what this machine and this build have, what is slow, and the command that helps.

use super::agent::state_folder;
use super::config::{self, Form, Settings};
use super::model::{self, Facts};
use super::{Cli, DONE, USAGE, screen};
use anstyle::{AnsiColor, Style};
use anyhow::Result;
use callwright::engine::llama::{cpu_features, gpu_devices, measured_counts};
use callwright::engine::{Device, MeasuredThreads};
use callwright::machine::{self, Memory, load, memory, processor};
use callwright::models::gguf::that_fits;
use callwright::models::{Gguf, Hub, Models, Source, bundled};
use clap::CommandFactory;
use indicatif::DecimalBytes;
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Folders with more files than this are not counted to the end.
const MOST_FILES: usize = 200_000;
/// A download that is not finished.
const PART: &str = "part";

/// Show what this machine and this build have, what is slow, and which command helps
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  callwright doctor\n  callwright doctor --output json\n  \
    callwright doctor -m qwen3-0.6b\n\nExit status: 0, or 2 if a file of settings cannot be read.")]
pub struct DoctorArgs {
    /// Say also whether this model fits here, and what of it is slow: a name from `callwright model list`, a path, hf:ORG/REPO/FILE.gguf[@REVISION] or
    /// hf:ORG/REPO[:QUANT]
    #[arg(short, long, value_name = "MODEL")]
    model: Option<String>,
    /// Print a report, or a JSON object
    #[arg(long, value_name = "FORM", default_value = "text")]
    output: Form,
}

/// Runs `callwright doctor`.
pub fn run(args: &DoctorArgs) -> Result<u8> {
    let mut report = Report::new();
    if let Some(model) = &args.model {
        let (gguf, entry) = model::open(&Models::load(None)?, model, &Hub::from_env())?;
        report.look_at(model, &gguf, &Facts::of(&gguf, &entry)?);
    }
    let mut out = screen::stdout();
    match args.output {
        Form::Json => writeln!(out, "{:#}", report.json())?,
        Form::Text => report.print(&mut out)?,
    }
    Ok(if report.broken() { USAGE } else { DONE })
}

/// A folder or file of the program.
struct Place {
    what: &'static str,
    /// How it is named in JSON.
    key: &'static str,
    path: Option<PathBuf>,
    size: Size,
    /// Why it cannot be used.
    error: Option<String>,
}

/// What a folder holds.
#[derive(Default, Clone, Copy)]
struct Size {
    exists: bool,
    bytes: u64,
    /// Downloads that are not finished.
    parts: usize,
}

impl Place {
    fn new(what: &'static str, key: &'static str, path: Option<PathBuf>) -> Place {
        let size = path.as_deref().map(size).unwrap_or_default();
        Place { what, key, path, size, error: None }
    }

    fn describe(&self) -> String {
        let Some(path) = &self.path else { return "none: no home folder is known".to_owned() };
        match (&self.error, self.size) {
            (Some(_), _) => format!("{} (cannot be used)", path.display()),
            (None, Size { exists: false, .. }) => format!("{} (not there)", path.display()),
            (None, Size { bytes, .. }) => format!("{} ({})", path.display(), DecimalBytes(bytes)),
        }
    }

    fn json(&self) -> Value {
        json!({"path": self.path, "exists": self.size.exists, "bytes": self.size.bytes, "error": self.error})
    }
}

/// A model that can be used at once.
struct Here {
    name: String,
    bytes: u64,
}

/// Something that can be better.
struct Advice {
    /// What is slow or wrong.
    problem: String,
    /// What helps.
    command: String,
}

struct Report {
    features: Vec<&'static str>,
    optimized: bool,
    processor: Option<String>,
    cores: usize,
    load: Option<f64>,
    used: Vec<String>,
    left: Vec<&'static str>,
    memory: Option<Memory>,
    backends: Vec<&'static str>,
    gpus: Vec<&'static str>,
    /// The GPUs that llama.cpp uses.
    devices: Vec<Device>,
    /// Numbers of threads that were measured.
    threads: Vec<MeasuredThreads>,
    places: Vec<Place>,
    models: Vec<Here>,
    /// The number of models with names.
    named: usize,
    advice: Vec<Advice>,
    /// The model that was asked about, in rows and in JSON.
    model: Vec<(&'static str, String)>,
    model_json: Value,
}

impl Report {
    fn new() -> Report {
        let hub = Hub::from_env();
        let folders = directories::ProjectDirs::from("", "", "callwright");
        let mut settings = Place::new("defaults of options", "config", config::path());
        settings.error = Settings::read(&Cli::command()).err().map(|error| error.to_string());
        let mut own = Place::new("your models", "models", Models::user_file());
        let (mut here, mut named) = (Vec::new(), 0);
        match Models::load(None) {
            Ok(models) => {
                named = models.entries().len();
                let local = models.entries().iter().filter_map(|entry| {
                    let path = entry.local(&hub)?;
                    let bytes = match &entry.source {
                        Source::Hub(_) => entry.size,
                        Source::File(_) | Source::Server(_) => None,
                    };
                    let bytes = bytes.or_else(|| std::fs::metadata(path).ok().map(|file| file.len()));
                    Some(Here { name: entry.name.clone(), bytes: bytes.unwrap_or(0) })
                });
                here.extend(local);
            }
            Err(error) => own.error = Some(error.to_string()),
        }
        if let Some(bytes) = bundled::size() {
            here.insert(0, Here { name: bundled::NAME.to_owned(), bytes });
        }
        let mut report = Report {
            features: features(),
            optimized: !cfg!(debug_assertions),
            processor: processor(),
            cores: machine::cores(),
            load: load(),
            used: cpu_features(),
            left: Vec::new(),
            memory: memory(),
            backends: backends(),
            gpus: gpus(),
            devices: gpu_devices(),
            threads: measured_counts(),
            places: vec![
                settings,
                own,
                Place::new("downloaded models", "hub", Some(hub.cache)),
                Place::new("cache", "cache", folders.as_ref().map(|dirs| dirs.cache_dir().to_owned())),
                Place::new("state", "state", state_folder()),
            ],
            models: here,
            named,
            advice: Vec::new(),
            model: Vec::new(),
            model_json: Value::Null,
        };
        report.left = left(&report.used);
        report.advice = report.advice();
        report
    }

    fn broken(&self) -> bool {
        self.places.iter().any(|place| place.error.is_some())
    }

    fn advice(&self) -> Vec<Advice> {
        let mut list = Vec::new();
        let mut add = |problem: String, command: &str| list.push(Advice { problem, command: command.to_owned() });
        for place in &self.places {
            if let Some(error) = &place.error {
                let edit = format!("edit {}", place.path.as_deref().unwrap_or(Path::new("")).display());
                add(error.clone(), &edit);
            }
        }
        if !self.features.contains(&"llama") {
            add("this build has no engine: it cannot run models".to_owned(), "cargo install callwright --force");
        } else if !self.left.is_empty() {
            let message =
                format!("llama.cpp does not use all vector units of the processor: {} left", self.left.join(", "));
            add(message, "make install (in the repository: a build for this machine)");
        }
        if !self.optimized {
            add("this is a build for debugging: everything but llama.cpp is slow".to_owned(), "cargo build --release");
        }
        if let (Some(gpu), true) = (self.gpus.first(), self.backends.is_empty()) {
            let feature = match *gpu {
                "NVIDIA" => "cuda",
                "AMD" => "rocm",
                "Apple" => "metal",
                _ => "vulkan",
            };
            let message = format!("there is a GPU ({}), and this build does not use it", self.gpus.join(", "));
            add(message, &format!("cargo install callwright --force --features {feature}"));
        }
        if let Some(load) = self.load.filter(|load| *load > self.cores as f64) {
            let message = format!("the machine is busy: {load:.1} processes want to run on {}", cores(self.cores));
            add(message, "callwright run … --threads N (fewer threads than cores wait less for one another)");
        }
        if let Some(memory) = self.memory
            && let Some(large) =
                self.models.iter().filter(|model| model.bytes > memory.available).max_by_key(|model| model.bytes)
        {
            let message = format!(
                "{} has {}, and {} of memory are free: it is read from the disk again and again",
                large.name,
                DecimalBytes(large.bytes),
                DecimalBytes(memory.available)
            );
            add(message, "callwright model list (a smaller model, or one with a smaller quantization)");
        }
        let parts: usize = self.places.iter().map(|place| place.size.parts).sum();
        if parts > 0 {
            let message = match parts {
                1 => "a download is not finished".to_owned(),
                count => format!("{count} downloads are not finished"),
            };
            add(message, "callwright model pull MODEL (it goes on where it stopped)");
        }
        if self.models.iter().all(|model| model.name == bundled::NAME) && self.features.contains(&"hub") {
            let message = "only the bundled model is here, which is small and makes mistakes".to_owned();
            let message = if self.models.is_empty() { "no model is here".to_owned() } else { message };
            add(message, "callwright model pull qwen3-0.6b");
        }
        list
    }

    /// Adds whether a model fits, and what of it is slow.
    fn look_at(&mut self, name: &str, gguf: &Gguf, facts: &Facts<'_>) {
        let mut add = |problem: String, command: String| self.advice.push(Advice { problem, command });
        let (bytes, quantization) = (facts.sizes.bytes, gguf.quantization().unwrap_or_default());
        if let Err(error) = gguf.check() {
            add(error.message().to_owned(), "callwright model pull MODEL (another file, or another model)".to_owned());
        }
        let on_gpu: u64 = self.devices.iter().map(|device| device.free).sum();
        let free = self.memory.map(|memory| memory.available);
        let fits = free.map(|free| bytes <= free);
        let size = DecimalBytes(bytes);
        if let (Some(free), Some(false)) = (free, fits) {
            let command = match that_fits(facts.sizes.parameters, free) {
                Some((kind, size)) => {
                    format!("callwright model quantize {name} OUT.gguf {kind} (about {})", DecimalBytes(size))
                }
                None => "callwright model list (a smaller model)".to_owned(),
            };
            let free = DecimalBytes(free);
            add(
                format!("it has {size}, and {free} of memory are free: it is read from the disk again and again"),
                command,
            );
        } else if let (Some(trained), Some(fitting)) = (gguf.context_length(), facts.fitting())
            && fitting < trained
        {
            let message =
                format!("{fitting} tokens of context fit beside it, of the {trained} that it was trained for");
            add(
                message,
                format!(
                    "callwright run -m {name} --ctx {fitting} … (or --cache-type-k q8_0 --cache-type-v q8_0, for half the memory)"
                ),
            );
        }
        if !self.devices.is_empty() && bytes > on_gpu {
            let message =
                format!("it has {size}, and {} of GPU memory are free: not all layers fit", DecimalBytes(on_gpu));
            add(
                message,
                format!(
                    "callwright run -m {name} --gpu-layers N … (fewer layers than the model's {})",
                    facts.sizes.attention.layers
                ),
            );
        } else if self.devices.is_empty() && ["F32", "F16", "BF16"].contains(&quantization) {
            let message =
                format!("its weights are {quantization}: the processor reads {size} for each token of an answer");
            add(message, format!("callwright model quantize {name} OUT.gguf Q8_0 (about half as much, or less)"));
        }
        if facts.sizes.attention.recurrent > 0 && facts.sizes.attention.attention > 0 && self.devices.is_empty() {
            let message = "it is a hybrid: after its beginning, a prompt is read with full attention, which is slower";
            let command = format!(
                "callwright run -m {name} --flash-attn on … (answers may then depend on the number of threads)"
            );
            add(message.to_owned(), command);
        }
        let fit = match (fits, free) {
            (Some(fits), Some(free)) => {
                format!("{}: {size} of {} that are free", if fits { "yes" } else { "no" }, DecimalBytes(free))
            }
            _ => format!("not known: {size}"),
        };
        self.model = vec![
            ("model", gguf.path().display().to_string()),
            ("weights", quantization.to_owned()),
            ("fits here", fit),
        ];
        self.model.push(("attention", facts.layers()));
        self.model.push(("KV cache", facts.context_memory(gguf).unwrap_or_else(|| "not known".to_owned())));
        self.model_json = json!({
            "path": gguf.path(), "bytes": bytes, "quantization": gguf.quantization(), "fits": fits,
            "bytes_per_token": facts.sizes.attention.bytes(1), "tokens_that_fit": facts.fitting(),
        });
    }

    fn json(&self) -> Value {
        let places: serde_json::Map<String, Value> =
            self.places.iter().map(|place| (place.key.to_owned(), place.json())).collect();
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "target": target(),
            "features": self.features,
            "optimized": self.optimized,
            "processor": {
                "name": self.processor, "cores": self.cores, "load": self.load,
                "features": self.used, "features_left": self.left,
            },
            "memory": self.memory.map(|memory| json!({"total": memory.total, "available": memory.available})),
            "gpu": {"backends": self.backends, "devices": self.gpus, "used": self.devices},
            "threads": self.threads,
            "folders": places,
            "models": self.models.iter().map(|model| json!({"name": model.name, "bytes": model.bytes})).collect::<Value>(),
            "model": self.model_json,
            "advice": self.advice.iter().map(|one| json!({"problem": one.problem, "command": one.command})).collect::<Value>(),
        })
    }

    fn print(&self, out: &mut impl Write) -> Result<()> {
        let list = |items: &[&str], none: &str| if items.is_empty() { none.to_owned() } else { items.join(" ") };
        let used: Vec<&str> = self.used.iter().map(String::as_str).collect();
        let kind = if self.optimized { "" } else { ", for debugging" };
        let mut rows = vec![
            ("callwright", format!("{} for {}{kind}", env!("CARGO_PKG_VERSION"), target())),
            ("features", list(&self.features, "none")),
            ("processor", self.processor.clone().unwrap_or_else(|| "unknown".to_owned())),
            (
                "cores",
                match self.load {
                    Some(load) => format!("{}, load {load:.1}", self.cores),
                    None => self.cores.to_string(),
                },
            ),
            ("llama.cpp uses", list(&used, "the baseline only")),
            ("and leaves", list(&self.left, "nothing that it could use")),
            (
                "memory",
                match self.memory {
                    Some(Memory { total, available }) => {
                        format!("{}, {} free", DecimalBytes(total), DecimalBytes(available))
                    }
                    None => "unknown".to_owned(),
                },
            ),
            ("GPU backends", list(&self.backends, "none in this build")),
            ("GPUs seen", list(&self.gpus, "none")),
        ];
        if !self.backends.is_empty() {
            rows.push(("GPUs used", several(self.devices.iter().map(described))));
        }
        let threads = self.threads.iter().map(|one| format!("{} for {}", one.threads, one.model));
        rows.push(("threads measured", several(threads)));
        rows.extend(self.places.iter().map(|place| (place.what, place.describe())));
        let models: Vec<String> =
            self.models.iter().map(|model| format!("{} ({})", model.name, DecimalBytes(model.bytes))).collect();
        rows.push(("models here", if models.is_empty() { "none".to_owned() } else { models.join(", ") }));
        rows.push(("models with names", format!("{} (callwright model list)", self.named)));
        rows.extend(self.model.iter().cloned());
        let width = rows.iter().map(|(label, _)| label.len()).max().unwrap_or(0);
        let bold = Style::new().bold();
        for (label, value) in rows {
            writeln!(out, "{bold}{label:width$}{bold:#}  {value}")?;
        }
        writeln!(out)?;
        if self.advice.is_empty() {
            let good = AnsiColor::Green.on_default();
            writeln!(out, "{good}Nothing here is slower than it has to be.{good:#}")?;
        }
        let yellow = AnsiColor::Yellow.on_default();
        for Advice { problem, command } in &self.advice {
            writeln!(out, "{yellow}{problem}{yellow:#}\n  → {command}")?;
        }
        Ok(())
    }
}

fn cores(count: usize) -> String {
    if count == 1 { "1 core".to_owned() } else { format!("{count} cores") }
}

/// Several things in a row of the report.
fn several(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.collect();
    if items.is_empty() { "none".to_owned() } else { items.join("; ") }
}

fn described(device: &Device) -> String {
    let Device { name, description, total, free } = device;
    format!("{name}: {description}, {} with {} free", DecimalBytes(*total), DecimalBytes(*free))
}

fn target() -> String {
    format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS)
}

/// The features of this build that users choose.
fn features() -> Vec<&'static str> {
    let all = [
        ("llama", cfg!(feature = "llama")),
        ("serve", cfg!(feature = "serve")),
        ("mcp", cfg!(feature = "mcp")),
        ("remote", cfg!(feature = "remote")),
        ("hub", cfg!(feature = "hub")),
        ("bundled-model", cfg!(feature = "bundled-model")),
        ("portable", cfg!(feature = "portable")),
    ];
    all.into_iter().filter(|(_, on)| *on).map(|(name, _)| name).collect()
}

fn backends() -> Vec<&'static str> {
    let all = [
        ("cuda", cfg!(feature = "cuda")),
        // llama.cpp has it in each of its builds for macOS.
        ("metal", cfg!(all(feature = "llama", any(feature = "metal", target_os = "macos")))),
        ("vulkan", cfg!(feature = "vulkan")),
        ("rocm", cfg!(feature = "rocm")),
    ];
    all.into_iter().filter(|(_, on)| *on).map(|(name, _)| name).collect()
}

/// GPUs whose drivers are loaded.
fn gpus() -> Vec<&'static str> {
    let apple = cfg!(all(target_os = "macos", target_arch = "aarch64"));
    let mut seen = if apple { vec!["Apple"] } else { Vec::new() };
    for (file, maker) in [("/dev/nvidiactl", "NVIDIA"), ("/dev/kfd", "AMD")] {
        if Path::new(file).exists() {
            seen.push(maker);
        }
    }
    if seen.is_empty() && Path::new("/dev/dri/renderD128").exists() {
        seen.push("one with a DRM driver");
    }
    seen
}

/// Vector units of this processor that llama.cpp could use, and does not.
fn left(used: &[String]) -> Vec<&'static str> {
    #[cfg(target_arch = "x86_64")]
    let units = [
        ("AVX", std::is_x86_feature_detected!("avx")),
        ("AVX2", std::is_x86_feature_detected!("avx2")),
        ("FMA", std::is_x86_feature_detected!("fma")),
        ("F16C", std::is_x86_feature_detected!("f16c")),
        ("AVX512", std::is_x86_feature_detected!("avx512f")),
        ("AVX512_VNNI", std::is_x86_feature_detected!("avx512vnni")),
        ("AVX512_BF16", std::is_x86_feature_detected!("avx512bf16")),
    ];
    #[cfg(target_arch = "aarch64")]
    let units = [
        ("DOTPROD", std::arch::is_aarch64_feature_detected!("dotprod")),
        ("MATMUL_INT8", std::arch::is_aarch64_feature_detected!("i8mm")),
        ("SVE", std::arch::is_aarch64_feature_detected!("sve")),
    ];
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let units: [(&str, bool); 0] = [];
    if !cfg!(feature = "llama") {
        return Vec::new();
    }
    let there = units.into_iter().filter(|(_, there)| *there).map(|(name, _)| name);
    there.filter(|name| !used.iter().any(|used| used == name)).collect()
}

/// The size of a file, or of all files below a folder. Links are not followed: the hub's cache links to its own files.
fn size(path: &Path) -> Size {
    let mut size = Size { exists: path.exists(), ..Size::default() };
    let (mut folders, mut files) = (vec![path.to_owned()], 0);
    if let Ok(metadata) = std::fs::metadata(path)
        && metadata.is_file()
    {
        size.bytes = metadata.len();
        return size;
    }
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(folder) else { continue };
        for entry in entries.flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            files += 1;
            if metadata.is_dir() {
                folders.push(entry.path());
            } else if metadata.is_file() {
                size.bytes += metadata.len();
                size.parts += usize::from(entry.path().extension().is_some_and(|end| end == PART));
            }
        }
        if files > MOST_FILES {
            break;
        }
    }
    size
}
