//! Reads headers of GGUF files: which model it is, and whether llama.cpp can load it safely.
//!
//! llama.cpp aborts the process for some malformed files, and fails for others with "failed to load model". To avoid
//! both, the header is first read here, by code that treats the file as hostile, and [`Gguf::check`] says in a sentence
//! what is wrong. Only the header is read: a model of 5 GB opens as fast as one of 5 MB.

#[cfg_attr(not(feature = "llama"), allow(dead_code))]
mod adapter;
mod attention;
mod check;
#[cfg_attr(not(feature = "llama"), allow(dead_code))]
mod embedding;
mod looks_like;
mod read;
mod shards;
mod tensor;
mod value;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

pub use attention::Attention;
#[cfg(feature = "llama")]
pub(crate) use embedding::{Embedding, Pooling};
pub use shards::shard_of;
pub(crate) use tensor::Tensor;
pub use tensor::that_fits;
pub(crate) use value::{Array, Strings, Value, ValueType};

use crate::error::{Error, Result};
use crate::hash::sha256_of;

/// The header of a GGUF file.
#[derive(Debug, Clone)]
pub struct Gguf {
    path: PathBuf,
    file_size: u64,
    /// Bytes of the metadata and the table of tensors.
    header_size: u64,
    data_offset: u64,
    metadata: Vec<(String, Value)>,
    tensors: Vec<Tensor>,
}

/// A chat template in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChatTemplate<'a> {
    /// `default`, or the name of a variant such as `tool_use`.
    pub name: &'a str,
    /// The Jinja source.
    pub source: &'a str,
}

impl ChatTemplate<'_> {
    /// Returns whether the template mentions tools.
    pub fn mentions_tools(&self) -> bool {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        self.source.match_indices("tools").any(|(at, found)| {
            let before = self.source[..at].chars().next_back();
            let after = self.source[at + found.len()..].chars().next();
            !before.is_some_and(word) && !after.is_some_and(word)
        })
    }
}

impl Gguf {
    /// Reads the header of the file at `path`.
    ///
    /// [`Gguf::check`] checks whether llama.cpp would accept it.
    ///
    /// # Errors
    /// [`ErrorKind::Gguf`](crate::ErrorKind::Gguf) if the header is invalid, with what the file is instead if it is not
    /// a GGUF; [`ErrorKind::Io`](crate::ErrorKind::Io) if it cannot be read.
    pub fn open(path: impl AsRef<Path>) -> Result<Gguf> {
        read::read(path.as_ref())
    }

    /// Refuses files that llama.cpp cannot load or that would abort the process: an invalid vocabulary or
    /// hyperparameters, missing tensor data, a kind of model that does not generate text. Checks every shard of a
    /// sharded model.
    ///
    /// # Errors
    /// [`ErrorKind::Gguf`](crate::ErrorKind::Gguf), with the reason.
    pub fn check(&self) -> Result<()> {
        self.check_kind()?;
        self.check_generates()?;
        self.check_parts()
    }

    /// Refuses a file of which llama.cpp cannot use a part.
    fn check_parts(&self) -> Result<()> {
        self.check_vocabulary()?;
        self.check_hyperparameters()?;
        self.check_weights()
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file's size in bytes.
    pub fn file_size(&self) -> u64 {
        self.file_size
    }

    /// The SHA-256 of the metadata and the table of tensors, which tells models apart in milliseconds: hashing the weights, too,
    /// would take seconds.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) if the file cannot be read.
    pub fn fingerprint(&self) -> Result<String> {
        let header = File::open(&self.path).map(|file| file.take(self.header_size));
        header.and_then(|header| sha256_of(header, &mut |_| ())).map_err(|error| Error::io("read", &self.path, &error))
    }

    /// The value of a metadata key.
    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.metadata.iter().find(|(k, _)| k == key).map(|(_, value)| value)
    }

    /// The text of a metadata key; `None` if it is empty.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.get(key).and_then(Value::as_str).filter(|text| !text.is_empty())
    }

    /// A hyperparameter, such as `context_length`, whose key starts with the architecture.
    pub(crate) fn hyperparameter(&self, name: &str) -> Option<&Value> {
        let key = format!("{}.{name}", self.architecture()?);
        self.get(&key)
    }

    /// The architecture, such as `qwen3`.
    pub fn architecture(&self) -> Option<&str> {
        self.text("general.architecture")
    }

    /// The model's name.
    pub fn name(&self) -> Option<&str> {
        self.text("general.name")
    }

    /// The licence, as the file names it.
    pub fn license(&self) -> Option<&str> {
        self.text("general.license").or_else(|| self.text("general.license.name"))
    }

    /// The context, in tokens, that the model was trained for.
    pub fn context_length(&self) -> Option<u64> {
        self.hyperparameter("context_length")?.as_u64()
    }

    /// The quantisation of most of the weights, such as `Q4_K_M`.
    pub fn quantization(&self) -> Option<&str> {
        let declared = self.get("general.file_type").and_then(Value::as_u64).and_then(tensor::file_type_name);
        declared.or_else(|| {
            let mut bytes: Vec<(&'static str, u64)> = Vec::new();
            for tensor in &self.tensors {
                match bytes.iter_mut().find(|(name, _)| *name == tensor.kind.name) {
                    Some((_, total)) => *total = total.saturating_add(tensor.bytes),
                    None => bytes.push((tensor.kind.name, tensor.bytes)),
                }
            }
            bytes.into_iter().max_by_key(|(_, total)| *total).map(|(name, _)| name)
        })
    }

    /// The number of weights in this file; for a sharded model, in this shard.
    pub fn parameters(&self) -> u64 {
        self.tensors.iter().fold(0, |sum, tensor| sum.saturating_add(tensor.elements()))
    }

    /// The vocabulary: the bytes of each token, by its id.
    pub fn tokens(&self) -> Option<&Strings> {
        self.get("tokenizer.ggml.tokens")?.as_array()?.strings()
    }

    /// The type of each token (1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte).
    pub(crate) fn token_types(&self) -> Option<Vec<i32>> {
        let array = self.get("tokenizer.ggml.token_type")?.as_array()?;
        Some(array.numbers().map(|n| if let Value::I32(n) = n { n } else { 0 }).collect())
    }

    /// The id of a special token, by llama.cpp's name: `bos`, `eos`, `eot`, `unknown`, `padding`, …
    pub fn special_token(&self, name: &str) -> Option<u32> {
        let id = self.get(&format!("tokenizer.ggml.{name}_token_id"))?.as_u64()?;
        id.try_into().ok()
    }

    /// The text of a token.
    pub fn token_text(&self, id: u32) -> Option<String> {
        self.tokens()?.get(id as usize).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    /// The chat templates in the file, the default first.
    pub fn chat_templates(&self) -> Vec<ChatTemplate<'_>> {
        const KEY: &str = "tokenizer.chat_template";
        let default = self.text(KEY).map(|source| ChatTemplate { name: "default", source });
        let named = self.metadata.iter().filter_map(|(key, value)| {
            let name = key.strip_prefix(KEY)?.strip_prefix('.')?;
            Some(ChatTemplate { name, source: value.as_str().filter(|source| !source.is_empty())? })
        });
        default.into_iter().chain(named).collect()
    }

    /// The chat template of that name; `None` or `default` is the default one.
    pub fn chat_template(&self, name: Option<&str>) -> Option<&str> {
        let name = name.unwrap_or("default");
        self.chat_templates().into_iter().find(|template| template.name == name).map(|template| template.source)
    }
}

#[cfg(test)]
pub(crate) mod tests;
