//! Embeddings: a text as one vector, by a model that was made for that.

use super::context::{Context, Pool, Shape};
use super::threads::Threads;
use super::weights::Weights;
use super::{BATCH, LoadOptions, open, words};
use crate::engine::{ModelInfo, Token};
use crate::models::Gguf;
use crate::models::gguf::Embedding;
use crate::{Error, ErrorKind, Result};
use llama_cpp_2::token::LlamaToken;
use llama_cpp_sys_2 as sys;
use std::path::Path;
use std::sync::Arc;

/// Few tokens stand for more bytes of a text. A longer text is not read to its end: each byte takes time and memory.
const LONGEST: usize = 64;
/// The tokenizer counts bytes in 32 bits.
const LONGEST_TEXT: usize = 1 << 28;

/// A model that makes embeddings; see [`ModelBuilder::open_embedder`](crate::ModelBuilder::open_embedder).
pub struct Embedder {
    /// For texts up to a length; a larger one takes its place when it is needed.
    context: Option<Context>,
    model: Arc<Weights>,
    info: ModelInfo,
    embedding: Embedding,
    options: LoadOptions,
    threads: Threads,
    pool: Pool,
    limit: usize,
}

impl Embedder {
    /// Loads the GGUF at `path`.
    ///
    /// # Errors
    /// [`ErrorKind::Gguf`] if it is not made for embeddings, or cannot be loaded.
    pub(crate) fn load(path: &Path, mut options: LoadOptions) -> Result<Embedder> {
        let gguf = Gguf::open(path)?;
        gguf.check_embedder()?;
        let no_embedder = || Error::new(ErrorKind::Gguf, "the model is not made for embeddings").in_file(path);
        let embedding = gguf.embedding().ok_or_else(no_embedder)?;
        // Adapters are made for models that generate.
        options.lora.clear();
        let model = open(path, &mut options)?;
        let info = words::describe(&model, path);
        let threads = Threads::new(&info, model.size(), &options);
        let limit = options.context.unwrap_or(usize::MAX).min(info.context_train).max(1);
        let model = Arc::new(Weights::new(model, &[])?);
        Ok(Embedder { context: None, model, info, embedding, options, threads, pool: Pool::default(), limit })
    }

    /// Returns what the GGUF says of the model.
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// The most tokens that a text may have.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// The tokens of a text, with those that the model has around one. Nothing in a text becomes a special token.
    ///
    /// # Errors
    /// [`ErrorKind::ContextOverflow`] if there are more than [`Embedder::limit`]; with `cut`, the end of the text is left out.
    pub fn tokenize(&self, text: &str, cut: bool) -> Result<Vec<Token>> {
        let most = self.limit.saturating_mul(LONGEST).min(LONGEST_TEXT);
        if text.len() > most && !cut {
            return Err(self.too_long(&format!("{} bytes", text.len())));
        }
        let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
        let read = &text[..end];
        let vocab = self.model.vocab();
        let tokens = vocab.tokenize(read.as_bytes(), true, false);
        let mut tokens: Vec<Token> = tokens.iter().map(|token| Token(token.0)).collect();
        let over = tokens.len().saturating_sub(self.limit);
        if over > 0 && !cut {
            return Err(self.too_long(&format!("{} tokens", tokens.len())));
        }
        // What the tokenizer puts at the end of a text stays there.
        let is_own = |token: &&Token| vocab.is_control(LlamaToken(token.0));
        let end = tokens.len() - tokens.iter().rev().take_while(is_own).count();
        tokens.drain(end.saturating_sub(over)..end);
        Ok(tokens)
    }

    fn too_long(&self, size: &str) -> Error {
        let message = format!("the text has {size}; the context holds {} tokens", self.limit);
        Error::new(ErrorKind::ContextOverflow, message).hint("divide the text")
    }

    /// The embedding of a text's tokens, of length 1.
    ///
    /// # Errors
    /// [`ErrorKind::Messages`] for tokens that the model does not have, or none; [`ErrorKind::ContextOverflow`] if there are more than
    /// [`Embedder::limit`]; [`ErrorKind::Engine`] if it cannot be computed.
    pub fn embed(&mut self, tokens: &[Token]) -> Result<Vec<f32>> {
        if tokens.is_empty() {
            return Err(Error::new(ErrorKind::Messages, "a text without tokens has no embedding"));
        }
        if tokens.len() > self.limit {
            return Err(self.too_long(&format!("{} tokens", tokens.len())));
        }
        let vocabulary = self.model.n_vocab();
        if let Some(stranger) = tokens.iter().find(|token| !(0..vocabulary).contains(&token.0)) {
            let message = format!("token {} is not in the vocabulary of {vocabulary} tokens", stranger.0);
            return Err(Error::new(ErrorKind::Messages, message));
        }
        let whole = self.embedding.whole;
        let context = self.context_for(tokens.len())?;
        context.clear();
        let step = if whole { tokens.len() } else { BATCH };
        for (number, part) in tokens.chunks(step).enumerate() {
            part.iter().zip(number * step..).for_each(|(token, place)| context.add(*token, place, 0, true));
            context.decode()?;
        }
        let embedding = context.embedding(0);
        let length = embedding.iter().map(|number| f64::from(*number).powi(2)).sum::<f64>().sqrt();
        if embedding.is_empty() || !length.is_finite() {
            return Err(Error::new(
                ErrorKind::Engine,
                "the model has no embedding for this text: its weights may be broken",
            ));
        }
        // One without a direction stays as it is.
        let scale = if length > 0.0 { 1.0 / length } else { 1.0 };
        Ok(embedding.iter().map(|number| (f64::from(*number) * scale) as f32).collect())
    }

    /// A context with room for so many tokens.
    fn context_for(&mut self, tokens: usize) -> Result<&mut Context> {
        let context = match self.context.take().filter(|context| context.room() >= tokens) {
            Some(context) => context,
            None => {
                let tokens = tokens.next_power_of_two().clamp(BATCH, self.limit.max(BATCH));
                let threads = self.threads.prompt();
                let shape = Shape {
                    tokens,
                    sequences: 1,
                    threads,
                    prompt_threads: threads,
                    flash_attention: sys::LLAMA_FLASH_ATTN_TYPE_AUTO,
                    embeds: Some((self.embedding.pooling, if self.embedding.whole { tokens } else { BATCH })),
                };
                Context::new(&self.model, shape, &self.options, &self.pool)?
            }
        };
        Ok(self.context.insert(context))
    }
}
