//! `callwright model`: what models there are, getting one, looking into one.

use super::screen;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use super::input::find;
use anstyle::Style;
use anyhow::Result;
use callwright::choose::Choice;
use callwright::engine::LoadOptions;
use callwright::engine::llama::quantize::{kinds, quantize};
use callwright::format::Format;
use callwright::machine::{cores, memory};
use callwright::model::{FileKind, Sizes, tool_format};
use callwright::models::bundled;
use callwright::models::gguf::shard_of;
use callwright::models::{Attention, Gguf, Hub, ModelEntry, Models, Progress, ProgressEvent, Source, decimal};
use callwright::template::ChatTemplate;
use callwright::{Error, ErrorKind};
use indicatif::{DecimalBytes, ProgressBar, ProgressStyle};
use serde_json::{Value, json};

/// List, download and inspect models
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  callwright model pull qwen3-0.6b && callwright model inspect qwen3-0.6b")]
pub struct ModelArgs {
    #[command(subcommand)]
    command: Command,
    /// Add this models.toml to the built-in one and to $XDG_CONFIG_HOME/callwright/models.toml
    #[arg(long, global = true, value_name = "FILE")]
    models: Option<PathBuf>,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List the models that have names
    #[command(after_help = "Example:\n  callwright model list")]
    List {
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Download a model into the Hugging Face cache, and print its path
    #[command(after_help = "Examples:\n  callwright model pull qwen3-0.6b\n  \
            callwright model pull hf:Qwen/Qwen3-4B-GGUF/Qwen3-4B-Q4_K_M.gguf\n\n\
            A download that was cut off goes on where it stopped. HF_HOME, HF_TOKEN, HF_ENDPOINT and \
            HF_HUB_OFFLINE mean what they mean to every program that uses the hub.")]
    Pull {
        /// Download this model: a name from `callwright model list`, hf:ORG/REPO/FILE.gguf[@REVISION] or hf:ORG/REPO[:QUANT]
        model: String,
        /// Check what is in the cache; never access the network
        #[arg(long)]
        offline: bool,
    },
    /// Show what a GGUF contains, and whether it can be run
    #[command(after_help = "Examples:\n  callwright model inspect qwen3-0.6b\n  \
            callwright model inspect path/to/model.gguf --json")]
    Inspect {
        /// Inspect this model: a name from `callwright model list`, a path, hf:ORG/REPO/FILE.gguf[@REVISION] or
        /// hf:ORG/REPO[:QUANT]
        model: String,
        /// Print a JSON object
        #[arg(long)]
        json: bool,
    },
    /// Store a model's weights with fewer bits, in another file: smaller, faster, and less exact
    #[command(after_help = "Example:\n  callwright model quantize model-f16.gguf model-q4.gguf Q4_K_M\n\n\
            `callwright certify` says what that costs. A file whose weights have few bits already is a poor source: \
            what it lost stays lost.")]
    Quantize {
        /// Read this model: a name from `callwright model list`, a path, hf:ORG/REPO/FILE.gguf[@REVISION] or
        /// hf:ORG/REPO[:QUANT]
        model: String,
        /// Write this file, which must not exist
        out: PathBuf,
        /// Store the weights as TYPE, such as Q8_0, Q6_K, Q5_K_M, Q4_K_M, Q3_K_M or Q2_K
        #[arg(value_name = "TYPE", value_parser = kind)]
        kind: &'static str,
    },
}

/// The name of a kind of quantisation; without its size, the middle one.
fn kind(text: &str) -> Result<&'static str, String> {
    let name = text.to_uppercase();
    let middle = format!("{name}_M");
    let known = kinds().find(|known| *known == name).or_else(|| kinds().find(|known| *known == middle));
    known.ok_or_else(|| format!("not one of {}", kinds().collect::<Vec<_>>().join(", ")))
}

/// A model that is here, with what models.toml says of it.
pub fn open(models: &Models, model: &str, hub: &Hub) -> Result<(Gguf, ModelEntry)> {
    let mut entry = find(models, model, &Hub { offline: true, ..hub.clone() })?;
    let gguf = Gguf::open(entry.require_local(hub)?)?;
    if !entry.is_named() {
        models.recognize(&mut entry, &gguf, hub, &mut Bars::new())?;
    }
    Ok((gguf, entry))
}

/// Runs `callwright model`. `cpu_features` is what llama.cpp was compiled to use, where that is known.
pub fn run(args: ModelArgs, cpu_features: Option<&[String]>) -> Result<u8> {
    let models = Models::load(args.models.as_deref())?;
    let hub = Hub::from_env();
    match args.command {
        Command::List { json } => list(&models, &hub, json),
        Command::Pull { model, offline } => {
            let hub = Hub { offline: hub.offline || offline, ..hub };
            pull(&find(&models, &model, &hub)?, &hub)
        }
        Command::Inspect { model, json } => {
            let (gguf, entry) = open(&models, &model, &hub)?;
            inspect(&gguf, &entry, json, cpu_features)
        }
        Command::Quantize { model, out, kind } => {
            let entry = find(&models, &model, &Hub { offline: true, ..hub.clone() })?;
            let gguf = Gguf::open(entry.require_local(&hub)?)?;
            gguf.check()?;
            quantized(&gguf, &out, kind)
        }
    }
}

/// Writes a model's weights as another kind. The file is complete, or it is not there.
fn quantized(gguf: &Gguf, out: &Path, kind: &str) -> Result<u8> {
    if out.exists() {
        let message = format!("{} exists already", out.display());
        return Err(Error::new(ErrorKind::Config, message).hint("name another file").into());
    }
    let was = gguf.quantization().unwrap_or("not said");
    if !["F32", "F16", "BF16"].contains(&was) {
        super::notice(&format!(
            "the weights of {} have few bits already ({was}): a file that is made of those with 16 bits is more exact",
            gguf.path().display()
        ));
    }
    super::say(format_args!("Storing {} parameters as {kind}\n", count(gguf.parameters())));
    let mut part = out.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    let made = quantize(gguf.path(), &part, kind, cores())
        .and_then(|()| std::fs::rename(&part, out).map_err(|error| Error::io("write", out, &error)));
    if made.is_err() {
        // Nobody needs a part of it.
        let _ = std::fs::remove_file(&part);
    }
    made?;
    let size = std::fs::metadata(out).map_or(0, |data| data.len());
    let (was, is) = (DecimalBytes(gguf.file_size()), DecimalBytes(size));
    writeln!(screen::data(), "{}: {kind}, {is} of {was}", out.display())?;
    Ok(super::DONE)
}

fn list(models: &Models, hub: &Hub, json: bool) -> Result<u8> {
    let mut out = screen::stdout();
    if json {
        let all: Vec<Value> = models.entries().iter().map(|entry| entry_json(entry, hub)).collect();
        writeln!(out, "{:#}", Value::Array(all))?;
        return Ok(super::DONE);
    }
    let header = ["NAME", "SIZE", "QUANT", "HERE", "FROM"].map(str::to_owned);
    let rows = models.entries().iter().map(|entry| {
        let size = entry.size.or_else(|| file_size(entry, hub)).map_or("-".to_owned(), |n| DecimalBytes(n).to_string());
        let here = if entry.local(hub).is_some() { "yes" } else { "no" };
        let from = match &entry.source {
            Source::File(path) => path.display().to_string(),
            Source::Hub(file) => file.repo.clone(),
            Source::Server(server) => server.to_string(),
        };
        [entry.name.clone(), size, quantization(entry).unwrap_or("-".to_owned()), here.to_owned(), from]
    });
    let bundled = bundled::size()
        .map(|size| [bundled::NAME, &DecimalBytes(size).to_string(), "Q8_0", "yes", "this program"].map(str::to_owned));
    let rows: Vec<[String; 5]> = std::iter::once(header).chain(bundled).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 5] = std::array::from_fn(width);
    let bold = Style::new().bold();
    for (index, [name, size, quant, here, from]) in rows.iter().enumerate() {
        let [w0, w1, w2, w3, _] = widths;
        let line = format!("{name:w0$}  {size:>w1$}  {quant:w2$}  {here:w3$}  {from}");
        if index == 0 { writeln!(out, "{bold}{line}{bold:#}")? } else { writeln!(out, "{line}")? }
    }
    Ok(super::DONE)
}

fn entry_json(entry: &ModelEntry, hub: &Hub) -> Value {
    let source = match &entry.source {
        Source::File(path) => json!({"path": path}),
        Source::Server(server) => json!({
            "url": server.url, "model": server.model, "mode": if server.chat { "chat" } else { "raw" },
            "api_key_env": server.api_key_env,
        }),
        Source::Hub(file) => {
            json!({"repo": file.repo, "file": file.file, "revision": file.revision, "sha256": file.sha256})
        }
    };
    let local = entry.local(hub);
    let sampling = entry.sampling;
    json!({
        "name": entry.name,
        "source": source,
        "size": entry.size.or_else(|| file_size(entry, hub)),
        "fingerprints": entry.fingerprints,
        "quantization": quantization(entry),
        "local": local.is_some(),
        "path": local,
        "template": entry.template,
        "format": entry.format,
        "context": entry.context,
        "sampling": {
            "temperature": sampling.temperature.map(decimal), "top_k": sampling.top_k,
            "top_p": sampling.top_p.map(decimal), "min_p": sampling.min_p.map(decimal),
        },
        "fallbacks": entry.fallbacks,
    })
}

fn file_size(entry: &ModelEntry, hub: &Hub) -> Option<u64> {
    std::fs::metadata(entry.local(hub)?).ok().map(|metadata| metadata.len())
}

/// The quantisation, by the custom of naming it in the file's name.
fn quantization(entry: &ModelEntry) -> Option<String> {
    let name = match &entry.source {
        Source::File(path) => path.file_name()?.to_string_lossy().into_owned(),
        Source::Hub(file) => file.file.rsplit('/').next()?.to_owned(),
        Source::Server(_) => return None,
    };
    let stem = match shard_of(&name) {
        Some(shard) => shard.prefix,
        None => name.strip_suffix(".gguf")?.to_owned(),
    };
    let last = stem.rsplit(['-', '.']).next()?.to_uppercase();
    let digit = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
    let known = ["IQ", "TQ", "BF", "Q", "F"].iter().any(|kind| last.strip_prefix(kind).is_some_and(digit));
    known.then_some(last)
}

fn pull(entry: &ModelEntry, hub: &Hub) -> Result<u8> {
    let path = match &entry.source {
        Source::File(_) | Source::Server(_) => entry.require_local(hub)?,
        Source::Hub(file) => hub.pull(file, &mut Bars::new())?,
    };
    writeln!(screen::data(), "{}", path.display())?;
    Ok(super::DONE)
}

/// Draws a bar on a terminal; elsewhere writes a line for each file.
pub struct Bars {
    bar: Option<(String, ProgressBar)>,
    terminal: bool,
}

impl Bars {
    pub fn new() -> Bars {
        Bars { bar: None, terminal: std::io::stderr().is_terminal() }
    }

    fn show(&mut self, doing: &str, file: &str, done: u64, total: u64) {
        let name = file.rsplit('/').next().unwrap_or(file);
        let label = format!("{doing} {name}");
        if self.bar.as_ref().is_none_or(|(current, _)| *current != label) {
            self.clear();
            let bar = if self.terminal {
                ProgressBar::new(total)
            } else {
                super::say(format_args!("{label} ({})\n", DecimalBytes(total)));
                ProgressBar::hidden()
            };
            let style = "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
            bar.set_style(ProgressStyle::with_template(style).unwrap_or(ProgressStyle::default_bar()));
            bar.set_message(label.clone());
            if done > 0 && doing == "Downloading" {
                bar.println(format!("Going on at {} of {}", DecimalBytes(done), DecimalBytes(total)));
            }
            bar.set_position(done);
            bar.reset_eta();
            self.bar = Some((label, bar));
        }
        if let Some((_, bar)) = &self.bar {
            bar.set_position(done);
        }
    }

    fn clear(&mut self) {
        if let Some((_, bar)) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Progress for Bars {
    fn event(&mut self, event: ProgressEvent<'_>) {
        match event {
            ProgressEvent::Download { file, done, total } => self.show("Downloading", file, done, total),
            ProgressEvent::Verify { file, done, total } => self.show("Verifying", file, done, total),
            ProgressEvent::Retry { reason, .. } => {
                self.clear();
                super::say(format_args!("The connection broke ({reason}); going on where it stopped\n"));
            }
            _ => self.clear(),
        }
    }
}

fn inspect(gguf: &Gguf, entry: &ModelEntry, json: bool, cpu_features: Option<&[String]>) -> Result<u8> {
    let problem = gguf.check().err();
    let facts = Facts::of(gguf, entry)?;
    let mut out = screen::stdout();
    if json {
        writeln!(out, "{:#}", facts.json(gguf, problem.as_ref(), cpu_features))?;
    } else {
        facts.print(gguf, cpu_features, &mut out)?;
    }
    out.flush()?;
    match problem {
        Some(error) => Err(error.into()),
        None => Ok(super::DONE),
    }
}

/// What is known of a model's file.
pub struct Facts<'a> {
    /// What is summed over the shards.
    pub sizes: Sizes,
    fingerprint: String,
    entry: &'a ModelEntry,
    kind: FileKind,
    /// The format that a session with the entry's settings would choose.
    choice: Option<Choice>,
}

impl Facts<'_> {
    /// What the file says, and its other shards.
    pub fn of<'a>(gguf: &Gguf, entry: &'a ModelEntry) -> Result<Facts<'a>> {
        let template = entry.template.as_ref().map(|name| ChatTemplate::load(name)).transpose()?;
        let format = entry.format.as_ref().map(|name| Format::load(name)).transpose()?;
        let choice = tool_format(gguf, template.as_ref(), format);
        let (sizes, fingerprint) = (Sizes::of(gguf), gguf.fingerprint()?);
        Ok(Facts { sizes, fingerprint, entry, kind: FileKind::of(gguf), choice })
    }

    fn print(&self, gguf: &Gguf, cpu_features: Option<&[String]>, out: &mut impl Write) -> Result<()> {
        let unknown = || "not said".to_owned();
        let text = |text: Option<&str>| text.map_or_else(unknown, str::to_owned);
        let token = |name: &str| match gguf.special_token(name) {
            Some(id) => format!("{id} {}", gguf.token_text(id).map_or(String::new(), |text| format!("{text:?}"))),
            None => unknown(),
        };
        let files = if self.sizes.files > 1 { format!(" in {} files", self.sizes.files) } else { String::new() };
        let tokens = gguf.tokens().map_or(0, |tokens| tokens.len());
        let tokenizer = gguf.text("tokenizer.ggml.model").unwrap_or("no tokenizer");
        let without = || Some(format!("the entry {}, which sets nothing", self.entry.applied.as_ref()?));
        let adapters: Vec<String> = self.entry.lora.iter().map(ToString::to_string).collect();
        let mut rows = vec![
            ("file", gguf.path().display().to_string()),
            ("size", format!("{}{files}", DecimalBytes(self.sizes.bytes))),
            ("fingerprint", self.fingerprint.clone()),
            ("models.toml", self.entry.about().or_else(without).unwrap_or("no entry".to_owned())),
            ("adapters", if adapters.is_empty() { "none in models.toml".to_owned() } else { adapters.join(", ") }),
            ("name", text(gguf.name())),
            ("kind", self.kind.to_string()),
            ("licence", text(gguf.license())),
            ("architecture", text(gguf.architecture())),
            ("parameters", count(self.sizes.parameters)),
            ("quantization", text(gguf.quantization())),
            ("context", gguf.context_length().map_or_else(unknown, |n| format!("{n} tokens"))),
            ("attention", self.layers()),
            ("KV cache", self.context_memory(gguf).unwrap_or_else(|| "not known".to_owned())),
            ("vocabulary", format!("{tokens} tokens ({tokenizer})")),
            ("begin of text", token("bos")),
            ("end of text", token("eos")),
        ];
        if gguf.chat_templates().is_empty() {
            rows.push(("chat template", "none".to_owned()));
        }
        for template in gguf.chat_templates() {
            let tools = if template.mentions_tools() { "mentions tools" } else { "does not mention tools" };
            let value = format!("{}, {} characters, {tools}", template.name, template.source.chars().count());
            rows.push(("chat template", value));
        }
        // As `run -v` says it.
        rows.push(("tools and calls", self.choice.as_ref().map_or_else(|| "not known".to_owned(), Choice::describe)));
        rows.extend(self.choice.iter().flat_map(|choice| choice.notices.clone()).map(|notice| ("", notice)));
        if let Some(features) = cpu_features {
            let features = if features.is_empty() { "the baseline only".to_owned() } else { features.join(" ") };
            rows.push(("llama.cpp uses", features));
        }
        let width = rows.iter().map(|(label, _)| label.len()).max().unwrap_or(0);
        let bold = Style::new().bold();
        for (label, value) in rows {
            writeln!(out, "{bold}{label:width$}{bold:#}  {}", screen::one_line(&value))?;
        }
        Ok(())
    }

    /// In which layers the model looks back.
    pub fn layers(&self) -> String {
        let Attention { attention, recurrent, layers, window, .. } = self.sizes.attention;
        let place = match (attention, recurrent) {
            (0, 0) => return "not known".to_owned(),
            (0, _) => return format!("in none of {layers} layers: the model is recurrent"),
            (_, 0) => format!("in all {layers} layers"),
            _ => format!("in {attention} of {layers} layers; {recurrent} have a recurrent state (hybrid)"),
        };
        let window = window.map(|window| format!("; in some of them to the last {window} tokens only"));
        place + &window.unwrap_or_default()
    }

    /// The most tokens whose KV cache fits into the free memory beside the model.
    pub fn fitting(&self) -> Option<u64> {
        self.sizes.fitting(memory()?.available, &LoadOptions::default())
    }

    /// What a context takes, and how much of it fits here.
    pub fn context_memory(&self, gguf: &Gguf) -> Option<String> {
        let of = |tokens| self.sizes.attention.bytes(tokens).map(|bytes| DecimalBytes(bytes).to_string());
        let trained = gguf.context_length()?;
        match (self.sizes.attention.attention, self.sizes.attention.recurrent) {
            (0, 0) => return None,
            (0, _) => return Some("none: the state has one size".to_owned()),
            _ => {}
        }
        let fits = match self.fitting() {
            None => String::new(),
            Some(fitting) if fitting >= trained => ", which fits here".to_owned(),
            Some(fitting) => format!("; here {fitting} tokens fit beside the model"),
        };
        let most = if self.sizes.attention.window.is_some() { "at most " } else { "" };
        Some(format!("{most}{} for 1000 tokens, {} for {trained}{fits}", of(1000)?, of(trained)?))
    }

    fn json(&self, gguf: &Gguf, problem: Option<&callwright::Error>, cpu_features: Option<&[String]>) -> Value {
        let templates: Vec<Value> = gguf
            .chat_templates()
            .iter()
            .map(|t| json!({"name": t.name, "characters": t.source.chars().count(), "mentions_tools": t.mentions_tools()}))
            .collect();
        let token = |name: &str| {
            let id = gguf.special_token(name)?;
            Some(json!({"id": id, "text": gguf.token_text(id)}))
        };
        json!({
            "path": gguf.path(),
            "file_size": self.sizes.bytes,
            "files": self.sizes.files,
            "fingerprint": self.fingerprint,
            "entry": self.entry.applied,
            "adapters": self.entry.lora.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "name": gguf.name(),
            "kind": self.kind.name,
            "kind_judged_by": self.kind.by,
            "license": gguf.license(),
            "architecture": gguf.architecture(),
            "parameters": self.sizes.parameters,
            "quantization": gguf.quantization(),
            "context_length": gguf.context_length(),
            "attention": {
                "layers": self.sizes.attention.layers,
                "attention_layers": self.sizes.attention.attention,
                "recurrent_layers": self.sizes.attention.recurrent,
                "window": self.sizes.attention.window,
                "bytes_per_token": self.sizes.attention.bytes(1),
                "tokens_that_fit": self.fitting(),
            },
            "vocabulary": gguf.tokens().map(|tokens| tokens.len()),
            "tokenizer": gguf.text("tokenizer.ggml.model"),
            "bos": token("bos"),
            "eos": token("eos"),
            "chat_templates": templates,
            "tool_calls": self.choice.as_ref().map(Choice::describe),
            "cpu_features": cpu_features,
            "problem": problem.map(|error| error.message()),
        })
    }
}

/// 494,032,768 is written 494 M.
fn count(number: u64) -> String {
    let scaled = |unit: f64, name: &str| {
        format!("{:.3}", number as f64 / unit).trim_end_matches('0').trim_end_matches('.').to_owned() + name
    };
    match number {
        0 => "none".to_owned(),
        1..1_000 => number.to_string(),
        1_000..1_000_000 => scaled(1e3, " K"),
        1_000_000..1_000_000_000 => scaled(1e6, " M"),
        _ => scaled(1e9, " B"),
    }
}
