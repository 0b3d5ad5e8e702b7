//! Which models make embeddings, and how.

use super::{Gguf, Value};
use crate::error::{Error, ErrorKind, Result};

/// Architectures that are made for embeddings. Their attention sees a text as a whole.
const EMBEDDERS: [&str; 10] = [
    "bert",
    "modern-bert",
    "nomic-bert",
    "nomic-bert-moe",
    "neo-bert",
    "jina-bert-v2",
    "jina-bert-v3",
    "eurobert",
    "gemma-embedding",
    "llama-embed",
];

/// How a model makes embeddings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Embedding {
    pub pooling: Pooling,
    /// Whether all tokens of a text have to be computed in one step.
    pub whole: bool,
}

/// How the vectors of a text's tokens become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pooling {
    Mean,
    First,
    Last,
}

impl Gguf {
    /// Returns whether the model makes embeddings, and does not generate text: because of its architecture, or because the file
    /// says how the vectors of a text's tokens become one.
    pub fn makes_embeddings(&self) -> bool {
        self.embedding().is_some()
    }

    /// How the model makes embeddings, if it is made for them.
    pub(crate) fn embedding(&self) -> Option<Embedding> {
        let whole = self.is_of_embedders();
        let pooling = match self.hyperparameter("pooling_type").and_then(Value::as_u64) {
            None | Some(0) if whole => Pooling::Mean,
            Some(1) => Pooling::Mean,
            Some(2) => Pooling::First,
            Some(3) => Pooling::Last,
            // It ranks texts, or is made for something else.
            _ => return None,
        };
        // The mean is of the tokens of one step.
        Some(Embedding { pooling, whole: whole || pooling != Pooling::Last })
    }

    pub(super) fn is_of_embedders(&self) -> bool {
        self.architecture().is_some_and(|name| EMBEDDERS.contains(&name))
    }

    /// Refuses a file that llama.cpp cannot load, or that makes no embeddings.
    ///
    /// # Errors
    /// [`ErrorKind::Gguf`], with the reason.
    pub(crate) fn check_embedder(&self) -> Result<()> {
        self.check_kind()?;
        if !self.makes_embeddings() {
            let error = Error::new(ErrorKind::Gguf, "the model is not made for embeddings");
            return Err(error.hint("give one that is, such as nomic-embed-text").in_file(&self.path));
        }
        self.check_parts()
    }
}
