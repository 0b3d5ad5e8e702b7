//! Checks for what makes llama.cpp abort, or fail without a reason.
//!
//! The conditions follow llama.cpp's `llama_vocab::impl::load`, `llama_model_base::load_hparams` and the loader. Those
//! marked "aborts" are assertions there, or exceptions outside its `try` blocks.

use std::collections::HashMap;
use std::path::PathBuf;

use super::{Array, Gguf, Strings, Tensor, Value, ValueType, shard_of};
use crate::error::{Error, ErrorKind, Result};

/// llama.cpp's `LLAMA_MAX_LAYERS`.
const MAX_LAYERS: u64 = 512;
/// llama.cpp's `LLAMA_MAX_EXPERTS`.
const MAX_EXPERTS: u64 = 1024;

/// Architectures that do not generate text token by token, beside those that are made for embeddings.
const NOT_GENERATING: [(&str, &str); 6] = [
    ("t5", "is an encoder-decoder model"),
    ("t5encoder", "makes embeddings"),
    ("wavtokenizer-dec", "makes sound"),
    ("dream", "is a diffusion model"),
    ("llada", "is a diffusion model"),
    ("llada-moe", "is a diffusion model"),
];

/// llama.cpp's tokenizers: the name, and the default ids of begin and end of text.
const TOKENIZERS: [(&str, Option<u64>, Option<u64>); 7] = [
    ("llama", Some(1), Some(2)),
    ("gpt2", Some(11), Some(11)),
    ("gemma4", None, None),
    ("rwkv", None, None),
    ("plamo2", Some(1), Some(2)),
    ("hybriddna", Some(11), Some(11)),
    ("whitespace", Some(11), Some(11)),
];
/// Those that only models for embeddings have.
const EMBEDDER_TOKENIZERS: [(&str, Option<u64>, Option<u64>); 2] = [("bert", Some(101), None), ("t5", None, Some(1))];

const SPECIAL_TOKENS: [&str; 17] = [
    "bos",
    "eos",
    "eot",
    "eom",
    "unknown",
    "seperator",
    "padding",
    "mask",
    "fim_pre",
    "fim_suf",
    "fim_mid",
    "fim_pad",
    "fim_rep",
    "fim_sep",
    "prefix",
    "suffix",
    "middle",
];

fn refuse(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Gguf, message)
}

const CONVERTED_WRONGLY: &str = "the file was converted wrongly: convert the model again, or fetch another GGUF of it";

impl Gguf {
    fn fail<T>(&self, error: Error) -> Result<T> {
        Err(error.in_file(&self.path))
    }

    /// Refuses files that are no whole model.
    pub(super) fn check_kind(&self) -> Result<()> {
        match self.text("general.type") {
            Some("adapter") => {
                return self.fail(
                    refuse("an adapter (LoRA), not a model").hint("give the base model, and the adapter with --lora"),
                );
            }
            Some("imatrix") => {
                return self.fail(refuse("an importance matrix for quantising, not a model"));
            }
            _ => {}
        }
        let Some(architecture) = self.architecture() else {
            return self.fail(refuse("general.architecture is missing").hint(CONVERTED_WRONGLY));
        };
        if architecture == "clip" || self.text("general.type") == Some("mmproj") {
            return self.fail(
                refuse("the image or sound part (mmproj) of a model, not its language part")
                    .hint("give the model file that lies next to it"),
            );
        }
        Ok(())
    }

    /// Refuses models that do not generate text.
    pub(super) fn check_generates(&self) -> Result<()> {
        let architecture = self.architecture().unwrap_or_default();
        let does = if self.makes_embeddings() {
            Some("makes embeddings")
        } else if self.is_of_embedders() {
            Some("ranks texts")
        } else {
            NOT_GENERATING.iter().find(|(name, _)| *name == architecture).map(|(_, does)| *does)
        };
        match does {
            Some(does) => self.fail(
                refuse(format!("a model of architecture {architecture} {does}, it does not generate text"))
                    .hint("give a model made for chat, often named \"instruct\""),
            ),
            None => Ok(()),
        }
    }

    /// Refuses a vocabulary that llama.cpp would abort over.
    pub(super) fn check_vocabulary(&self) -> Result<()> {
        self.vocabulary_error().or_else(|e| self.fail(e))
    }

    fn vocabulary_error(&self) -> Result<()> {
        let Some(model) = self.text("tokenizer.ggml.model") else {
            return Err(refuse("tokenizer.ggml.model is missing: the file has no tokenizer").hint(CONVERTED_WRONGLY));
        };
        let of_embedders = if self.makes_embeddings() { &EMBEDDER_TOKENIZERS[..] } else { &[] };
        let mut known = TOKENIZERS.iter().chain(of_embedders);
        let Some(&(_, default_bos, default_eos)) = known.find(|(name, ..)| *name == model) else {
            let known: Vec<&str> = TOKENIZERS.iter().map(|(name, ..)| *name).collect();
            return Err(refuse(format!("the tokenizer {model:?} is not one of a text-generating model"))
                .hint(format!("known are {}", known.join(", "))));
        };
        let tokens = self.check_tokens()?;
        let count = tokens.len() as u64;
        self.check_parallel("tokenizer.ggml.scores", &[ValueType::F32, ValueType::I32], count)?;
        self.check_parallel("tokenizer.ggml.token_type", &[ValueType::I32], count)?;
        self.check_merges(model)?;
        if model == "llama" {
            check_byte_tokens(tokens)?;
        }
        for name in SPECIAL_TOKENS {
            let key = format!("tokenizer.ggml.{name}_token_id");
            let Some(value) = self.get(&key) else { continue };
            let Some(id) = value.as_u64() else {
                return Err(refuse(format!("{key} is {value}, not a token id")).hint(CONVERTED_WRONGLY));
            };
            // Some converters write "none" as -1 in 32 bits.
            if id >= count && id != u64::from(u32::MAX) {
                return Err(refuse(format!("{key} is {id}, but the vocabulary has only {count} tokens"))
                    .hint(CONVERTED_WRONGLY));
            }
        }
        for (name, default, added_by_default) in [("bos", default_bos, model == "llama"), ("eos", default_eos, false)] {
            let added = match self.get(&format!("tokenizer.ggml.add_{name}_token")) {
                Some(Value::Bool(added)) => *added,
                _ => added_by_default,
            };
            let own = self.get(&format!("tokenizer.ggml.{name}_token_id")).and_then(Value::as_u64);
            if added && own.filter(|id| *id < count).or(default.filter(|id| *id < count)).is_none() {
                return Err(refuse(format!("the tokenizer adds a {name} token to every text, but there is none"))
                    .hint(CONVERTED_WRONGLY));
            }
        }
        Ok(())
    }

    fn check_tokens(&self) -> Result<&Strings> {
        let key = "tokenizer.ggml.tokens";
        let tokens = match self.get(key) {
            None => return Err(refuse(format!("{key} is missing: the file has no vocabulary")).hint(CONVERTED_WRONGLY)),
            Some(value) => value
                .as_array()
                .and_then(Array::strings)
                .ok_or_else(|| refuse(format!("{key} is {value}, not an array of strings")).hint(CONVERTED_WRONGLY))?,
        };
        if tokens.is_empty() {
            return Err(refuse("the vocabulary is empty").hint(CONVERTED_WRONGLY));
        }
        if tokens.len() > i32::MAX as usize {
            return Err(refuse(format!("the vocabulary has {} tokens, more than ids exist", tokens.len())));
        }
        // Aborts: llama.cpp asserts that texts and ids are one to one, after reading tokens as C strings.
        let mut ids: HashMap<&[u8], usize> = HashMap::with_capacity(tokens.len());
        let mut renamed = Vec::new();
        for (id, token) in tokens.iter().enumerate() {
            let text = token.split(|&b| b == 0).next().unwrap_or_default();
            if text.is_empty() {
                renamed.push((id, format!("[EMPTY_{id}]")));
            } else if let Some(first) = ids.insert(text, id) {
                return Err(duplicate(text, first, id));
            }
        }
        match renamed.iter().find_map(|(id, name)| Some((*id, name, *ids.get(name.as_bytes())?))) {
            Some((id, name, other)) => Err(duplicate(name.as_bytes(), id.min(other), id.max(other))),
            None => Ok(tokens),
        }
    }

    /// An optional array with an element for each token.
    fn check_parallel(&self, key: &str, kinds: &[ValueType], count: u64) -> Result<()> {
        match self.get(key) {
            None => Ok(()),
            Some(Value::Array(array @ Array::Numbers(kind, _))) if kinds.contains(kind) => {
                if (array.len() as u64) < count {
                    return Err(
                        refuse(format!("{key} has {} entries for {count} tokens", array.len())).hint(CONVERTED_WRONGLY)
                    );
                }
                Ok(())
            }
            Some(value) => Err(refuse(format!("{key} is {value}, of the wrong type")).hint(CONVERTED_WRONGLY)),
        }
    }

    fn check_merges(&self, model: &str) -> Result<()> {
        let needed = matches!(model, "gpt2" | "hybriddna" | "whitespace" | "gemma4");
        let exempt = model != "gemma4" && self.text("tokenizer.ggml.pre") == Some("kimi-k2");
        match self.get("tokenizer.ggml.merges") {
            None if needed && !exempt => {
                Err(refuse("tokenizer.ggml.merges is missing: the tokenizer cannot work without it")
                    .hint(CONVERTED_WRONGLY))
            }
            Some(value) if needed && value.as_array().and_then(Array::strings).is_none() => {
                Err(refuse(format!("tokenizer.ggml.merges is {value}, not an array of strings"))
                    .hint(CONVERTED_WRONGLY))
            }
            _ => Ok(()),
        }
    }

    /// Refuses hyperparameters outside what llama.cpp asserts.
    pub(super) fn check_hyperparameters(&self) -> Result<()> {
        self.hyperparameter_error().or_else(|e| self.fail(e))
    }

    fn hyperparameter_error(&self) -> Result<()> {
        let number = |name: &str| self.hyperparameter(name).and_then(Value::as_u64);
        let wrong = |name: &str, value: u64, rule: &str| {
            let key = format!("{}.{name}", self.architecture().unwrap_or_default());
            Err(refuse(format!("{key} is {value}, {rule}")).hint(CONVERTED_WRONGLY))
        };
        if let Some(layers) = number("block_count") {
            if layers == 0 || layers > MAX_LAYERS {
                return wrong("block_count", layers, &format!("not between 1 and {MAX_LAYERS}"));
            }
            if let Some(extra) = number("nextn_predict_layers").filter(|&extra| extra > layers) {
                return wrong("nextn_predict_layers", extra, &format!("more than the {layers} layers there are"));
            }
        }
        for name in ["context_length", "embedding_length"] {
            if number(name) == Some(0) {
                return wrong(name, 0, "which no model can have");
            }
        }
        // Panics: the binding reads it as a signed number.
        if let Some(length) = number("context_length").filter(|&length| length > i32::MAX as u64) {
            return wrong("context_length", length, "more tokens than llama.cpp can count");
        }
        for name in ["layer_norm_epsilon", "layer_norm_rms_epsilon", "group_norm_epsilon"] {
            // Aborts: ggml asserts that it is at least 0, which NaN is not either.
            if let Some(Value::F32(epsilon)) = self.hyperparameter(&format!("attention.{name}"))
                && (epsilon.is_nan() || *epsilon < 0.0)
            {
                return Err(refuse(format!("attention.{name} is {epsilon}; expected a small number from 0 up"))
                    .hint(CONVERTED_WRONGLY));
            }
        }
        self.check_experts()?;
        if let Some(kind) = self.hyperparameter("rope.scaling.type").and_then(Value::as_str)
            && !["none", "linear", "yarn", "longrope"].contains(&kind)
        {
            return Err(refuse(format!("the rope scaling type {kind:?} is unknown")).hint(CONVERTED_WRONGLY));
        }
        Ok(())
    }

    fn check_experts(&self) -> Result<()> {
        let number = |name: &str| self.hyperparameter(name).and_then(Value::as_u64).unwrap_or(0);
        let used = match self.hyperparameter("expert_used_count") {
            Some(Value::Array(array)) => array.numbers().filter_map(|n| n.as_u64()).max().unwrap_or(0),
            Some(value) => value.as_u64().unwrap_or(0),
            None => 0,
        };
        let (experts, groups, groups_used) =
            (number("expert_count"), number("expert_group_count"), number("expert_group_used_count"));
        // Hunyuan's dense models say "one expert"; llama.cpp takes that for none.
        if experts <= 1 && self.architecture().is_some_and(|name| name.starts_with("hunyuan")) {
            return Ok(());
        }
        let fits = if experts == 0 {
            used == 0 && groups == 0
        } else {
            let grouped = groups <= 1 || (experts % groups == 0 && groups_used > 0 && groups_used < groups);
            experts <= MAX_EXPERTS && used > 0 && used <= experts && groups < experts && grouped
        };
        if fits {
            return Ok(());
        }
        Err(refuse(format!(
            "the numbers of experts do not go together: {experts} experts, {used} used, {groups} groups, {groups_used} used"
        ))
        .hint(CONVERTED_WRONGLY))
    }

    /// Refuses a file or a set of shards with incomplete tensor data.
    pub(super) fn check_weights(&self) -> Result<()> {
        let count = self.get("split.count").and_then(Value::as_u64).unwrap_or(0);
        if count <= 1 {
            if self.tensors.is_empty() {
                return self.fail(refuse("a vocabulary without weights: there is nothing to run"));
            }
            return self.check_data();
        }
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let Some(shard) = shard_of(&name).filter(|shard| u64::from(shard.count) == count) else {
            return self.fail(
                refuse(format!("one of {count} parts of a model, but its name does not say which"))
                    .hint(format!("name the files NAME-00001-of-{count:05}.gguf and so on, as they were published")),
            );
        };
        if shard.index != 1 {
            return self.fail(
                refuse(format!("part {} of {count} of a model", shard.index))
                    .hint(format!("give the first part, {}", shard.file_name(1))),
            );
        }
        self.check_data()?;
        for index in 2..=shard.count {
            let path = self.path.with_file_name(shard.file_name(index));
            if !path.exists() {
                return self.fail(
                    refuse(format!("part {index} of {count} is missing: {}", path.display()))
                        .hint("all parts of a model must lie in one folder"),
                );
            }
            Gguf::open(&path)?.check_data()?;
        }
        Ok(())
    }

    fn check_data(&self) -> Result<()> {
        if let Some(tensor) = self.tensors.iter().find(|tensor| !computable(tensor)) {
            let (name, kind) = (&tensor.name, tensor.kind.name);
            return self.fail(
                refuse(format!(
                    "tensor {name:?} has elements of type {kind}, which llama.cpp cannot compute with there"
                ))
                .hint(CONVERTED_WRONGLY),
            );
        }
        self.check_end()
    }

    /// Refuses a file that is cut off.
    pub(super) fn check_end(&self) -> Result<()> {
        let Some(last) = self.tensors.last() else { return Ok(()) };
        let end = self.data_offset.saturating_add(last.offset).saturating_add(last.bytes);
        if end <= self.file_size {
            return Ok(());
        }
        let missing = end - self.file_size;
        self.fail(
            refuse(format!("the file is cut off: {missing} of its {end} bytes are missing"))
                .hint("fetch the file again: a download was probably interrupted"),
        )
    }

    /// The files of the model: this one, or all shards.
    pub fn files(&self) -> Vec<PathBuf> {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        match shard_of(&name) {
            Some(shard) if self.get("split.count").is_some() => {
                shard.file_names().map(|name| self.path.with_file_name(name)).collect()
            }
            _ => vec![self.path.clone()],
        }
    }
}

/// Returns whether ggml supports the operation for a tensor of this name and type.
///
/// Aborts, or reads past the end: products are defined for floating point and the quantisations of weights, sums and
/// norms only for 32 bits. The loader checks neither.
pub(super) fn computable(tensor: &Tensor) -> bool {
    match tensor.kind.name {
        "F32" => true,
        // A table of experts by token, without weights.
        "I32" => tensor.name.contains("tid2eid"),
        "I8" | "I16" | "I64" | "F64" | "Q8_1" | "Q8_K" => false,
        _ => tensor.shape.len() > 1 && !tensor.name.ends_with("_norm.weight"),
    }
}

fn duplicate(text: &[u8], first: usize, second: usize) -> Error {
    let text = String::from_utf8_lossy(text);
    refuse(format!("the vocabulary has the token {text:?} twice, as {first} and as {second}")).hint(CONVERTED_WRONGLY)
}

/// Aborts: a character without a token is spelled in byte tokens, and a missing one is an uncaught exception.
fn check_byte_tokens(tokens: &Strings) -> Result<()> {
    let mut found = [false; 256];
    for token in tokens.iter() {
        match token {
            [b'<', b'0', b'x', hex @ .., b'>'] if hex.len() == 2 => {
                let digits = std::str::from_utf8(hex).ok().filter(|d| *d == d.to_ascii_uppercase());
                if let Some(byte) = digits.and_then(|d| u8::from_str_radix(d, 16).ok()) {
                    found[usize::from(byte)] = true;
                }
            }
            [byte] => found[usize::from(*byte)] = true,
            _ => {}
        }
    }
    match found.iter().position(|found| !found) {
        Some(byte) => Err(refuse(format!(
            "the vocabulary has no token for the byte 0x{byte:02X}: a text with an unusual character could not be written"
        ))
        .hint(CONVERTED_WRONGLY)),
        None => Ok(()),
    }
}
