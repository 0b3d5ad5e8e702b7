//! The options for how a model runs on this machine: threads, memory, caches.

use super::input::{gpu_layers, positive, threads};
use super::{notice_once, size};
use callwright::engine::{CacheType, FlashAttention, LoadOptions, LoraAdapter, PromptFolder};
use callwright::machine::{cores, memory};
use clap::{Args, ValueEnum};
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

    /// Decode up to N tokens of a prompt at a time
    #[arg(long, alias = "batch-size", value_name = "N", default_value = "512", help_heading = "Hardware", value_parser = positive, allow_negative_numbers = true)]
    ubatch_size: usize,

    /// Use flash attention where it is faster (auto: for prompts), always, or never; with on, answers may depend on the number of threads
    #[arg(long, value_name = "auto|on|off", default_value = "auto", help_heading = "Hardware")]
    flash_attn: FlashAttentionArg,

    /// Store the keys of the KV cache as this type; fewer bits need less memory and lose accuracy
    #[arg(long, value_name = "TYPE", default_value = "f16", help_heading = "Hardware")]
    cache_type_k: CacheTypeArg,

    /// Store the values of the KV cache as this type
    #[arg(long, value_name = "TYPE", default_value = "f16", help_heading = "Hardware")]
    cache_type_v: CacheTypeArg,

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

/// Where flash attention is used.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum FlashAttentionArg {
    Auto,
    #[value(aliases = ["1", "true"])]
    On,
    #[value(aliases = ["0", "false"])]
    Off,
}

impl From<FlashAttentionArg> for FlashAttention {
    fn from(given: FlashAttentionArg) -> FlashAttention {
        match given {
            FlashAttentionArg::Auto => FlashAttention::Auto,
            FlashAttentionArg::On => FlashAttention::On,
            FlashAttentionArg::Off => FlashAttention::Off,
        }
    }
}

/// How the KV cache stores a number, by llama.cpp's names.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum CacheTypeArg {
    F32,
    F16,
    Bf16,
    #[value(name = "q8_0")]
    Q8_0,
    #[value(name = "q5_1")]
    Q5_1,
    #[value(name = "q5_0")]
    Q5_0,
    #[value(name = "q4_1")]
    Q4_1,
    #[value(name = "q4_0")]
    Q4_0,
    #[value(name = "iq4_nl")]
    Iq4Nl,
}

impl From<CacheTypeArg> for CacheType {
    fn from(given: CacheTypeArg) -> CacheType {
        match given {
            CacheTypeArg::F32 => CacheType::F32,
            CacheTypeArg::F16 => CacheType::F16,
            CacheTypeArg::Bf16 => CacheType::Bf16,
            CacheTypeArg::Q8_0 => CacheType::Q8_0,
            CacheTypeArg::Q5_1 => CacheType::Q5_1,
            CacheTypeArg::Q5_0 => CacheType::Q5_0,
            CacheTypeArg::Q4_1 => CacheType::Q4_1,
            CacheTypeArg::Q4_0 => CacheType::Q4_0,
            CacheTypeArg::Iq4Nl => CacheType::Iq4Nl,
        }
    }
}

impl HardwareOptions {
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
            load.flash_attention = self.flash_attn.into();
            load.cache_type_k = Some(self.cache_type_k.into());
            load.cache_type_v = Some(self.cache_type_v.into());
            load.no_mmap = self.no_mmap;
            load.mlock = self.mlock;
            load.prompt_memory = self.cache_ram.unwrap_or_else(memory_for_prompts);
            load.prompt_cache = self.prompt_folder();
        })
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
    Some(crate::cache::folder()?.join("prompts"))
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
