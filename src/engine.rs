//! The interface to a model: tokens in, logits out.
//!
//! llama.cpp runs a GGUF: see [`Model`](crate::Model). [`scripted::ScriptedEngine`] replays recorded or hand-written tokens, so that
//! everything above can be tested, and a run repeated, without a model. [`generate()`](crate::generate::generate) is
//! the one loop that drives either.

#[cfg_attr(not(feature = "llama"), path = "engine/without_llama.rs")]
pub(crate) mod llama;
pub mod sampler;
pub mod scripted;
pub mod vocabulary;

use crate::Result;
use crate::template::Piece;
use serde::{Deserialize, Serialize};

/// Maximum number of threads: ggml's `GGML_MAX_N_THREADS`.
pub(crate) const MAX_THREADS: usize = 512;

/// How a model is loaded.
#[derive(Default)]
#[non_exhaustive]
pub struct LoadOptions {
    /// The context's size in tokens; by default what each prompt needs, up to what the model was trained for.
    pub context: Option<usize>,
    /// Threads, at most 512; by default the fastest of a few measured counts.
    pub threads: Option<usize>,
    /// Layers to keep on the GPU; by default all, if the build has a GPU backend.
    pub gpu_layers: Option<u32>,
    /// Only the vocabulary: enough to render and count, not to decode.
    pub vocabulary_only: bool,
    /// Called with the loaded share, from 0 to 1.
    pub on_progress: Option<Box<dyn FnMut(f32) + Send>>,
}

impl LoadOptions {
    /// These options after `set` has changed some.
    #[must_use]
    pub fn with(mut self, set: impl FnOnce(&mut Self)) -> Self {
        set(&mut self);
        self
    }
}

/// A token's id in the model's vocabulary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(pub i32);

/// Length of the common prefix.
pub(crate) fn common(one: &[Token], other: &[Token]) -> usize {
    one.iter().zip(other).take_while(|(a, b)| a == b).count()
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

/// A model with one sequence in its context.
pub trait Engine: Send {
    /// Information about the model.
    fn model(&self) -> &ModelInfo;

    /// Turns a rendered prompt into tokens. Literal pieces become plain text, never special tokens.
    fn tokenize(&self, prompt: &[Piece]) -> Result<Vec<Token>>;

    /// The bytes of a token; may end inside a character.
    fn token_bytes(&self, token: Token) -> &[u8];

    /// All tokens and the tokenizer, for a constraint; `None` if the engine only knows what was recorded.
    fn vocabulary(&self) -> Option<vocabulary::Vocabulary> {
        None
    }

    /// Another context over the same model, for a second text beside the first; `None` if the engine has one only.
    fn sibling(&self) -> Option<Box<dyn Engine>> {
        None
    }

    /// Whether a token ends the model's turn.
    fn is_end(&self, token: Token) -> bool;

    /// Reserves space for `tokens` in total. Decoded tokens may be lost: see [`Engine::cached`].
    ///
    /// # Errors
    /// [`ErrorKind::Engine`](crate::ErrorKind::Engine) if there is not enough memory.
    fn reserve(&mut self, tokens: usize) -> Result<()>;

    /// Maximum number of tokens: `--ctx`, or what the model was trained for.
    fn context_limit(&self) -> usize;

    /// The tokens in the context, in order.
    fn cached(&self) -> &[Token];

    /// Drops all but the first `len` tokens or, if the model cannot drop a part, all of them.
    fn truncate(&mut self, len: usize);

    /// Appends at least one token; afterwards [`Engine::logits`] are those of the last one.
    ///
    /// # Errors
    /// [`ErrorKind::Engine`](crate::ErrorKind::Engine); the context is then cleared.
    fn decode(&mut self, tokens: &[Token]) -> Result<()>;

    /// One logit for each token of the vocabulary, for the token after the last decoded one.
    fn logits(&self) -> &[f32];

    /// Whether [`Engine::truncate`] can drop only the last tokens, so that some may be decoded to be measured.
    fn can_truncate(&self) -> bool {
        self.can_draft()
    }

    /// Whether tokens may be decoded as a draft: they can be dropped, and it is worth the time.
    fn can_draft(&self) -> bool {
        false
    }

    /// Appends at most a few hundred tokens, and keeps the logits after each, from the one numbered `first` on: see
    /// [`Engine::logits_at`]. Only called if [`Engine::can_truncate`] is true.
    ///
    /// # Errors
    /// Those of [`Engine::decode`].
    fn decode_all(&mut self, tokens: &[Token], _first: usize) -> Result<()> {
        self.decode(tokens)
    }

    /// The logits after one of the tokens that [`Engine::decode_all`] appended last, counted from its `first`.
    fn logits_at(&self, _index: usize) -> &[f32] {
        self.logits()
    }

    /// Called before each generation, for an engine that replays a record.
    ///
    /// # Errors
    /// [`ErrorKind::Replay`](crate::ErrorKind::Replay) if the record differs at this point.
    fn begin(&mut self, _prompt: &[Token], _sampling: &sampler::Sampling) -> Result<()> {
        Ok(())
    }
}
