//! The options for how a model runs on this machine: threads, memory, caches.

use super::generation::one_of;
use super::input::{gpu_layers, positive, threads};
use super::{notice_once, size};
use callwright::engine::{CacheType, FlashAttention, LoadOptions, LoraAdapter, PromptFolder};
use callwright::machine::{cores, memory};
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use std::ffi::OsString;
use std::path::PathBuf;

/// How a model runs on this machine.
#[derive(Args, Clone)]
pub struct HardwareOptions {
    /// Add the LoRA adapter in FILE to the model; SCALE says how much of it, from 0 for nothing to 1 for all. May be repeated [default: the model's in models.toml]
    #[arg(long, value_name = "FILE[:SCALE]", help_heading = "Model", value_parser = adapter)]
    pub lora: Vec<LoraAdapter>,

    /// Decode with N threads [default: the number that was measured as the fastest on this machine]
    #[arg(short, long, value_name = "N", help_heading = "Hardware", value_parser = threads, allow_negative_numbers = true)]
    pub threads: Option<usize>,

    /// Read prompts with N threads [default: --threads, or all cores]
    #[arg(long, alias = "prompt-threads", value_name = "N", help_heading = "Hardware", value_parser = threads, allow_negative_numbers = true)]
    threads_batch: Option<usize>,

    /// Keep N layers on the GPU, in a build with GPU support; all or -1 keeps all [default: all]
    #[arg(long, alias = "n-gpu-layers", value_name = "N", help_heading = "Hardware", value_parser = gpu_layers, allow_negative_numbers = true)]
    pub gpu_layers: Option<u32>,

    /// Choose what is not given so that it fits into the free memory: the context and, with a GPU, the layers on it and how the KV cache stores numbers
    #[arg(long, value_name = "on|off", default_value = "on", action = clap::ArgAction::Set, value_parser = on_or_off(), help_heading = "Hardware")]
    fit: bool,

    /// Decode up to N tokens of a prompt at a time
    #[arg(long, alias = "batch-size", value_name = "N", default_value = "512", help_heading = "Hardware", value_parser = positive, allow_negative_numbers = true)]
    ubatch_size: usize,

    /// Use flash attention where it is faster (auto: for prompts), always, or never; with on, answers may depend on the number of threads
    #[arg(long, value_name = "auto|on|off", default_value = "auto", value_parser = flash_attention(), help_heading = "Hardware")]
    flash_attn: FlashAttention,

    /// Store the keys of the KV cache as this type; fewer bits need less memory and lose accuracy [default: f16, or what --fit chooses]
    #[arg(long, value_name = "TYPE", value_parser = cache_type(), help_heading = "Hardware")]
    cache_type_k: Option<CacheType>,

    /// Store the values of the KV cache as this type
    #[arg(long, value_name = "TYPE", value_parser = cache_type(), help_heading = "Hardware")]
    cache_type_v: Option<CacheType>,

    /// Read the model's file into memory instead of mapping it
    #[arg(long, help_heading = "Hardware")]
    no_mmap: bool,

    /// Keep the model in memory: the system must not move it to disk
    #[arg(long, help_heading = "Hardware")]
    mlock: bool,

    /// Keep prompts that take long to read on disk, for later runs that begin alike: in the cache folder (auto), or in DIR, with prompts that take less time, too; `callwright cache` shows them
    #[arg(long, value_name = "auto|off|DIR", default_value = "auto", help_heading = "Hardware")]
    prompt_cache: OsString,

    /// Keep up to SIZE of prompts on disk
    #[arg(long, value_name = "SIZE", default_value = "4G", value_parser = size, help_heading = "Hardware")]
    prompt_cache_size: u64,

    /// Keep up to SIZE of prompts that left the context in memory; 0 keeps none [default: a quarter of the free memory, at most 8G]
    #[arg(long, value_name = "SIZE", value_parser = size_or_none, help_heading = "Hardware")]
    cache_ram: Option<u64>,
}

/// Reads where flash attention is used; llama.cpp also has numbers and truth values for it.
fn flash_attention() -> impl TypedValueParser<Value = FlashAttention> {
    let named = |name, others: [&'static str; 2]| PossibleValue::new(name).aliases(others);
    let names = [PossibleValue::new("auto"), named("on", ["1", "true"]), named("off", ["0", "false"])];
    PossibleValuesParser::new(names).map(|name| match name.as_str() {
        "on" | "1" | "true" => FlashAttention::On,
        "off" | "0" | "false" => FlashAttention::Off,
        _ => FlashAttention::Auto,
    })
}

fn on_or_off() -> impl TypedValueParser<Value = bool> {
    PossibleValuesParser::new(["on", "off"]).map(|value| value == "on")
}

/// Reads how the KV cache stores a number, by llama.cpp's names.
pub fn cache_type() -> impl TypedValueParser<Value = CacheType> {
    one_of(["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"])
}

impl HardwareOptions {
    /// The same with keys and values of the KV cache as this type.
    pub fn with_cache_type(self, cache_type: CacheType) -> HardwareOptions {
        let cache_type = Some(cache_type);
        HardwareOptions { cache_type_k: cache_type, cache_type_v: cache_type, ..self }
    }

    /// How a model is loaded with these options.
    pub fn load_options(&self) -> LoadOptions {
        let cores = cores();
        for (option, threads) in [("--threads", self.threads), ("--threads-batch", self.threads_batch)] {
            if let Some(threads) = threads.filter(|threads| *threads > cores) {
                notice_once(&format!(
                    "{option} {threads} is more than this machine runs at a time: {cores} threads are used"
                ));
            }
        }
        LoadOptions::default().with(|load| {
            load.lora = self.lora.clone();
            load.threads = self.threads;
            load.prompt_threads = self.threads_batch;
            load.gpu_layers = self.gpu_layers;
            load.batch = Some(self.ubatch_size);
            load.flash_attention = self.flash_attn;
            load.cache_type_k = self.cache_type_k;
            load.cache_type_v = self.cache_type_v;
            load.no_fit = !self.fit;
            load.no_mmap = self.no_mmap;
            load.mlock = self.mlock;
            load.prompt_memory = self.cache_ram.unwrap_or_else(memory_for_prompts);
            load.prompt_cache = self.prompt_folder();
        })
    }

    /// The same without prompts that are kept for later.
    pub fn without_caches(self) -> HardwareOptions {
        HardwareOptions { prompt_cache: "off".into(), cache_ram: Some(0), ..self }
    }

    fn prompt_folder(&self) -> Option<PromptFolder> {
        let mut kept = match self.prompt_cache.to_str() {
            Some("off") => return None,
            Some("auto") => PromptFolder::new(prompt_cache_folder()?),
            _ => {
                let mut kept = PromptFolder::new(&self.prompt_cache);
                kept.always = true;
                kept
            }
        };
        kept.budget = self.prompt_cache_size;
        Some(kept)
    }
}

/// The prompts in the cache folder.
pub fn prompt_cache_folder() -> Option<PathBuf> {
    Some(callwright::cache::folder()?.join("prompts"))
}

/// A quarter of the memory that is free now, and at most 8 GiB.
fn memory_for_prompts() -> u64 {
    const MOST: u64 = 8 << 30;
    // Less than any machine has that runs a model.
    const UNKNOWN: u64 = 512 << 20;
    memory().map_or(UNKNOWN, |memory| (memory.available / 4).min(MOST))
}

fn adapter(text: &str) -> Result<LoraAdapter, String> {
    LoraAdapter::parse(text, |file| PathBuf::from(file))
}

fn size_or_none(text: &str) -> Result<u64, String> {
    if text == "0" { Ok(0) } else { size(text) }
}
