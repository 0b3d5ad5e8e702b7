//! The interface to a model: tokens in, logits out.
//!
//! llama.cpp runs a GGUF, and a server answers over HTTP: see [`Model`](crate::Model). [`scripted::ScriptedEngine`] replays recorded or hand-written tokens, so that
//! everything above can be tested, and a run repeated, without a model. One loop, `generate`,
//! drives either.

#[cfg_attr(not(feature = "llama"), path = "engine/without_llama.rs")]
pub mod llama;
#[cfg_attr(not(feature = "llama"), allow(dead_code))]
pub mod prompt_cache;
pub mod sampler;
pub mod scripted;
pub mod vocabulary;

pub use crate::answer::Token;
use crate::answer::{End, Options, Usage};
pub use crate::models::LoraAdapter;
use crate::template::{ChatTemplates, Piece};
use crate::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Maximum number of threads: ggml's `GGML_MAX_N_THREADS`.
pub const MAX_THREADS: usize = 512;

/// How a model is loaded.
#[derive(Default)]
pub struct LoadOptions {
    /// The context's size in tokens; by default what each prompt needs, up to what the model was trained for.
    pub context: Option<usize>,
    /// Threads that decode, at most as many as there are cores; by default the number that was measured as the fastest on this machine.
    pub threads: Option<usize>,
    /// Threads that read prompts, at most as many as there are cores; by default `threads`, or else all cores.
    pub prompt_threads: Option<usize>,
    /// Layers to keep on the GPU; by default all, if the build has a GPU backend.
    pub gpu_layers: Option<u32>,
    /// Tokens of a prompt that are decoded at a time; by default 512.
    pub batch: Option<usize>,
    /// How attention is computed.
    pub flash_attention: FlashAttention,
    /// How the keys in the KV cache are stored; by default in 16 bits.
    pub cache_type_k: Option<CacheType>,
    /// How the values in the KV cache are stored; by default in 16 bits.
    pub cache_type_v: Option<CacheType>,
    /// Read the file into memory instead of mapping it.
    pub no_mmap: bool,
    /// Keep the weights in memory: the system must not move them to disk.
    pub mlock: bool,
    /// Take the context and the layers on the GPU as they are given, whether or not they fit into the memory.
    pub no_fit: bool,
    /// How many tokens all sequences may have together; by default as many as the memory has room for. [`LoadOptions::context`] may be more.
    pub room: Option<usize>,
    /// Compute with the weights as they are in the mapped file, without a faster copy of them: for a model that is larger than the memory,
    /// which is recognised unless [`LoadOptions::no_fit`] is set.
    pub from_file: bool,
    /// Where prompts that were read are kept on disk, and for later; by default nowhere.
    pub prompt_cache: Option<PromptFolder>,
    /// Bytes of memory for prompts that are no longer in a context; by default none.
    pub prompt_memory: u64,
    /// LoRA adapters, which are added to the weights; by default those that models.toml names.
    pub lora: Vec<LoraAdapter>,
    /// Only the vocabulary: enough to render and count, not to decode.
    pub vocabulary_only: bool,
    /// Called with the loaded share, from 0 to 1.
    pub on_progress: Option<Box<dyn FnMut(f32) + Send + Sync>>,
}

impl LoadOptions {
    /// These options after `set` has changed some.
    #[must_use]
    pub fn with(mut self, set: impl FnOnce(&mut Self)) -> Self {
        set(&mut self);
        self
    }

    /// Returns whether layers are on a GPU.
    pub(crate) fn is_on_gpu(&self) -> bool {
        self.gpu_layers != Some(0) && llama::has_gpu()
    }

    /// The same options for another load, which reports no progress.
    #[cfg(feature = "llama")]
    #[must_use]
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn again(&self) -> LoadOptions {
        let (prompt_cache, lora) = (self.prompt_cache.clone(), self.lora.clone());
        LoadOptions { prompt_cache, lora, on_progress: None, ..*self }
    }
}

/// A folder with prompts that were read, for later runs that begin alike. Several programs may share it.
///
/// Its files have what users wrote, and are readable by their owner alone.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PromptFolder {
    /// The folder; it is made when it is needed.
    pub folder: PathBuf,
    /// Bytes to keep; what was not used for the longest time is removed.
    pub budget: u64,
    /// Keep prompts that took less than half a second to read, too.
    pub always: bool,
}

impl PromptFolder {
    /// A folder with up to 4 GiB.
    pub fn new(folder: impl Into<PathBuf>) -> PromptFolder {
        PromptFolder { folder: folder.into(), budget: 4 << 30, always: false }
    }
}

/// How attention is computed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum FlashAttention {
    /// On the CPU, flash attention for long prompts and for up to 256 tokens in all, and full attention for other answers: each is the
    /// faster one there, and the number of threads does not change the result. On a GPU, and beyond 16,384 tokens, as llama.cpp
    /// decides.
    #[default]
    Auto,
    /// Always flash attention. On the CPU, the number of threads then changes the last bits of the result.
    On,
    /// Never, up to 16,384 tokens; a prompt takes longer, and needs less memory while it is read.
    Off,
}

/// How the KV cache stores a number. Fewer bits need less memory, and lose some accuracy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
#[non_exhaustive]
pub enum CacheType {
    F32,
    #[default]
    F16,
    Bf16,
    Q8_0,
    Q5_1,
    Q5_0,
    Q4_1,
    Q4_0,
    Iq4Nl,
}

/// A GPU that llama.cpp has found.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Device {
    /// llama.cpp's name of it, such as `CUDA0`.
    pub name: String,
    /// What it is, in words.
    pub description: String,
    /// Bytes of memory.
    pub total: u64,
    /// Bytes of memory that nothing uses.
    pub free: u64,
}

/// A number of threads that was measured as the fastest for models of a kind and size.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct MeasuredThreads {
    /// Such as `qwen3 of 9437184 bytes`.
    pub model: String,
    /// The number of threads.
    pub threads: usize,
}

/// Length of the common prefix.
pub fn common(one: &[Token], other: &[Token]) -> usize {
    one.iter().zip(other).take_while(|(a, b)| a == b).count()
}

/// Whether a text may fit into the context of an engine, as far as its length says: tokens are not counted yet, because that takes time
/// and memory for each byte.
///
/// # Errors
/// [`ErrorKind::ContextOverflow`] if there is no room, whatever its tokens are.
pub fn check_length(engine: &dyn Engine, bytes: usize) -> Result<()> {
    /// Few vocabularies have no longer token.
    const USUAL: usize = 16;
    let limit = engine.context_limit();
    if bytes / USUAL < limit {
        return Ok(());
    }
    match engine.longest_token().map(|longest| bytes / longest.max(1)).filter(|tokens| *tokens > limit) {
        Some(tokens) => {
            let message = format!("the prompt has {bytes} bytes, at least {tokens} tokens; the context holds {limit}");
            Err(Error::new(ErrorKind::ContextOverflow, message).hint("shorten the prompt"))
        }
        None => Ok(()),
    }
}

/// What an engine says about its model: everything that the other modules need to know.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelInfo {
    /// The model's name, or its file's.
    pub name: String,
    /// The architecture in the model's file; empty if unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub architecture: String,
    /// Chat templates by name; the main one is `default`.
    pub templates: Vec<(String, String)>,
    /// The text of the beginning-of-sequence token; empty if there is none.
    pub bos: String,
    /// The text of the end-of-sequence token; empty if there is none.
    pub eos: String,
    /// The longest context that the model was trained for, in tokens.
    pub context_train: usize,
    /// Texts of the control tokens, which a detokenizer usually hides.
    pub control_tokens: Vec<String>,
    /// Texts of the markup tokens that the model's makers added, which a detokenizer prints.
    pub user_defined_tokens: Vec<String>,
}

impl ModelInfo {
    /// The model's chat templates. A model that has none is asked in ChatML or, where its vocabulary has no token of ChatML, in plain
    /// text: see [`ChatTemplates::plain`].
    ///
    /// # Errors
    /// [`ErrorKind::Template`] if a template of the model is not usable.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn chat_templates(&self) -> Result<ChatTemplates> {
        let tokens = self.control_tokens.iter().chain(&self.user_defined_tokens);
        templates_of(&self.name, &self.templates, tokens.map(String::as_str))
    }
}

/// The chat templates of the model `name` with these special tokens; without its own, one for its tokens.
pub(crate) fn templates_of<'t>(
    name: &str,
    own: &[(String, String)],
    tokens: impl Iterator<Item = &'t str>,
) -> Result<ChatTemplates> {
    let mut tokens = tokens.peekable();
    let none = own.is_empty() && tokens.peek().is_some();
    if none && !tokens.any(|token| token.starts_with("<|im_")) {
        return ChatTemplates::plain();
    }
    ChatTemplates::from_model(name, None, own)
}

/// A model with one sequence in its context.
pub trait Engine: Send {
    /// Information about the model.
    fn model(&self) -> &ModelInfo;

    /// Turns a rendered prompt into tokens. Literal pieces become plain text, never special tokens.
    fn tokenize(&self, prompt: &[Piece]) -> Result<Vec<Token>>;

    /// The bytes of a token; may end inside a character.
    fn token_bytes(&self, token: Token) -> &[u8];

    /// The bytes of the longest token, where no token represents more of a text; `None` where that is not known.
    fn longest_token(&self) -> Option<usize> {
        None
    }

    /// Reads all tokens and the tokenizer, for a constraint, on whichever thread has the time; `None` if the engine only knows what was
    /// recorded.
    fn vocabulary(&self) -> Option<vocabulary::ReadVocabulary> {
        None
    }

    /// Returns whether a token ends the model's turn.
    fn is_end(&self, token: Token) -> bool;

    /// Reserves space for `now` tokens in total, of up to `most` that will come. An engine that can grow while it generates may leave
    /// the rest for later. Decoded tokens may be lost: see [`Engine::cached`].
    ///
    /// # Errors
    /// [`ErrorKind::Engine`] if there is not enough memory.
    fn reserve(&mut self, now: usize, most: usize) -> Result<()>;

    /// Maximum number of tokens: `--ctx`, or what the model was trained for.
    fn context_limit(&self) -> usize;

    /// The tokens in the context, in order.
    fn cached(&self) -> &[Token];

    /// Drops all but the first `len` tokens or, if the model cannot drop only the last ones, as many more as it has to: see
    /// [`Engine::cached`].
    fn truncate(&mut self, len: usize);

    /// Appends at least one token, and keeps the logits after the last one.
    ///
    /// # Errors
    /// [`ErrorKind::Engine`]; the context is then cleared.
    fn decode(&mut self, tokens: &[Token]) -> Result<()>;

    /// Appends at most a few hundred tokens, and keeps the logits after each, from the one numbered `first` on. Only called if the
    /// engine [can](Engine::can) truncate.
    ///
    /// # Errors
    /// Those of [`Engine::decode`].
    fn decode_all(&mut self, tokens: &[Token], _first: usize) -> Result<()> {
        self.decode(tokens)
    }

    /// One logit for each token of the vocabulary, for the token after one of those decoded last. Row 0 is the only one after
    /// [`Engine::decode`], and that of `first` after [`Engine::decode_all`].
    fn logits(&self, row: usize) -> &[f32];

    /// What can be done to the end of the context.
    fn can(&self) -> Abilities {
        Abilities::default()
    }

    /// Called before a prompt is read.
    ///
    /// # Errors
    /// [`ErrorKind::Replay`] if the engine replays a record that differs at this point.
    fn begin(&mut self, _prompt: Prompt<'_>, _sampling: &sampler::Sampling) -> Result<()> {
        Ok(())
    }

    /// Looks for what was read of earlier prompts, and continues from the longest beginning of `prompt` that is worth it,
    /// in place of what is in the context. No more than `most` tokens are of use.
    fn recall(&mut self, _prompt: &[Token], _most: usize) {}

    /// Where in the recalled prompt the way changes in which it is read: a batch ends there.
    fn border(&self) -> usize {
        0
    }

    /// Called after each generation: what is in the context now may be kept for later prompts. Reading the prompt took
    /// `reading`.
    fn remember(&mut self, _reading: Duration) {}

    /// The model's server, if the model is on one. It samples by itself: the logits only say which token came, and probabilities
    /// cannot be measured.
    fn server(&self) -> Option<&dyn ModelServer> {
        None
    }

    /// Like [`Engine::server`], to change it.
    fn server_mut(&mut self) -> Option<&mut dyn ModelServer> {
        None
    }
}

/// What an engine can do to the end of its context.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Abilities {
    /// [`Engine::truncate`] can drop only the last tokens, so that some may be decoded to be measured.
    pub truncate: bool,
    /// A part of an answer may be dropped, and another one written in its place.
    pub go_back: bool,
    /// Tokens may be decoded as a draft: they can be dropped, and it is worth the time.
    pub draft: bool,
}

/// A prompt in tokens.
#[derive(Debug, Clone, Copy)]
pub struct Prompt<'p> {
    /// All of it.
    pub tokens: &'p [Token],
    /// How many of the tokens come before the end of the last question: a later prompt may begin with as many, and then go on in
    /// another way. 0 where that is not known.
    pub question: usize,
}

impl<'p> From<&'p [Token]> for Prompt<'p> {
    fn from(tokens: &'p [Token]) -> Prompt<'p> {
        Prompt { tokens, question: 0 }
    }
}

/// A server that has the model of an [`Engine`], and samples by itself.
pub trait ModelServer {
    /// Returns whether a prompt may end with the beginning of the answer. A server that writes prompts itself takes none.
    fn can_begin_answer(&self) -> bool;

    /// Called before each answer with its prompt, its options, and when it has to be complete.
    fn prepare(&mut self, prompt: &[Piece], options: &Options, until: Option<Instant>);

    /// Has the next text chosen anew if it does not fit, among what the model would write otherwise, if the server says that.
    ///
    /// # Errors
    /// [`ErrorKind::Server`] if it cannot be asked.
    fn reconsider(&mut self, fits: &mut dyn FnMut(&[u8]) -> bool) -> Result<()>;

    /// One token for the last tokens of an answer, where several are one to the model; `None` while it goes on. `more` follow
    /// without a choice.
    fn join(&mut self, part: &[Token], more: bool) -> Option<Token>;

    /// Why the answer ended, if its last token came, and the tokens that were counted.
    fn ended(&self) -> (Option<End>, Usage);
}
