//! Replaces [`llama`](super::llama) in a build without the feature `llama`: the same names, but no engine.

pub use super::{LoadOptions, MAX_THREADS};

use super::{Engine, ModelInfo, Token};
use crate::template::Piece;
use crate::{Error, ErrorKind, Result};
use std::convert::Infallible;
use std::path::Path;

/// A loaded GGUF; it cannot exist.
pub struct LlamaEngine(Infallible);

impl LlamaEngine {
    /// There is nothing to start.
    pub fn start() {}

    /// Always fails: this build cannot run a GGUF.
    ///
    /// # Errors
    /// [`ErrorKind::Engine`], always.
    pub fn load(path: &Path, _options: LoadOptions) -> Result<LlamaEngine> {
        Err(no_llama(path))
    }

    /// An engine with a context of its own over the same weights.
    #[must_use]
    pub fn share(&self) -> LlamaEngine {
        match self.0 {}
    }

    /// How many threads decode.
    pub fn threads(&self) -> usize {
        match self.0 {}
    }
}

fn no_llama(path: &Path) -> Error {
    Error::new(ErrorKind::Engine, format!("this build cannot run {}: it has no llama.cpp", path.display()))
        .hint("build with the feature llama, which is on by default: `cargo install callwright`")
}

/// A model that makes embeddings; it cannot exist.
pub struct Embedder(Infallible);

impl Embedder {
    /// Always fails: this build cannot run a GGUF.
    ///
    /// # Errors
    /// [`ErrorKind::Engine`], always.
    pub fn load(path: &Path, _options: LoadOptions) -> Result<Embedder> {
        Err(no_llama(path))
    }

    /// Returns what the GGUF says of the model.
    pub fn info(&self) -> &ModelInfo {
        match self.0 {}
    }

    /// The most tokens that a text may have.
    pub fn limit(&self) -> usize {
        match self.0 {}
    }

    /// The tokens of a text.
    ///
    /// # Errors
    /// None: there is no such model.
    pub fn tokenize(&self, _text: &str, _cut: bool) -> Result<Vec<Token>> {
        match self.0 {}
    }

    /// The embedding of a text's tokens.
    ///
    /// # Errors
    /// None: there is no such model.
    pub fn embed(&mut self, _tokens: &[Token]) -> Result<Vec<f32>> {
        match self.0 {}
    }
}

impl Engine for LlamaEngine {
    fn model(&self) -> &ModelInfo {
        match self.0 {}
    }

    fn tokenize(&self, _prompt: &[Piece]) -> Result<Vec<Token>> {
        match self.0 {}
    }

    fn token_bytes(&self, _token: Token) -> &[u8] {
        match self.0 {}
    }

    fn is_end(&self, _token: Token) -> bool {
        match self.0 {}
    }

    fn reserve(&mut self, _now: usize, _most: usize) -> Result<()> {
        match self.0 {}
    }

    fn context_limit(&self) -> usize {
        match self.0 {}
    }

    fn cached(&self) -> &[Token] {
        match self.0 {}
    }

    fn truncate(&mut self, _len: usize) {
        match self.0 {}
    }

    fn decode(&mut self, _tokens: &[Token]) -> Result<()> {
        match self.0 {}
    }

    fn logits(&self, _row: usize) -> &[f32] {
        match self.0 {}
    }
}

/// The CPU features that llama.cpp was compiled to use: none.
pub fn cpu_features() -> Vec<String> {
    Vec::new()
}

/// The GPUs that llama.cpp has found: none.
pub fn gpu_devices() -> Vec<super::Device> {
    Vec::new()
}

/// The numbers of threads that are remembered: none.
pub fn measured_counts() -> Vec<super::MeasuredThreads> {
    Vec::new()
}

/// Returns whether this build can keep layers on a GPU: no.
pub fn has_gpu() -> bool {
    false
}

/// The process ends; there is nothing to leave to the system.
pub fn leave() {}

/// Ends the process.
pub fn exit_now(status: i32) -> ! {
    std::process::exit(status)
}

/// There is no llama.cpp that could fail.
pub fn report_failures() {}

/// Returns what to do about a build that leaves vector units of this CPU unused: nothing.
pub fn slow_build_notice() -> Option<String> {
    None
}

/// Storing weights with fewer bits.
pub mod quantize {
    use crate::{Error, ErrorKind, Result};
    use std::path::Path;

    /// The names of all kinds: none.
    pub fn kinds() -> impl Iterator<Item = &'static str> {
        std::iter::empty()
    }

    /// Always fails: this build has no llama.cpp.
    ///
    /// # Errors
    /// [`ErrorKind::Engine`], always.
    pub fn quantize(from: &Path, _to: &Path, _kind: &str, _threads: usize) -> Result<()> {
        let message = format!("this build cannot read the weights of {}: it has no llama.cpp", from.display());
        Err(Error::new(ErrorKind::Engine, message))
    }
}

/// Several parallel generations.
pub mod parallel {
    use super::LlamaEngine;
    use crate::Result;
    use crate::engine::Engine;
    use std::convert::Infallible;

    /// Maximum sequences in one context, as with llama.cpp.
    pub const MAX_SEQUENCES: usize = 256;

    /// Parallel generations; they cannot exist.
    pub struct Sequences(Infallible);

    impl Sequences {
        /// At most `count` parallel sequences with the model of `engine`.
        ///
        /// # Errors
        /// None: there is no such engine.
        pub fn new(engine: &LlamaEngine, _count: usize) -> Result<Sequences> {
            match engine.0 {}
        }

        /// The number of sequences.
        pub fn at_a_time(&self) -> usize {
            match self.0 {}
        }

        /// Takes one sequence, and the handle that ends its turns.
        ///
        /// # Errors
        /// None: there are none to take.
        pub fn take(&self) -> Result<(Box<dyn Engine>, TurnEnd)> {
            match self.0 {}
        }
    }

    /// Ends the turns of one sequence.
    pub struct TurnEnd(Infallible);

    impl TurnEnd {
        /// Ends the turn.
        pub fn end(&self) {
            match self.0 {}
        }
    }
}
