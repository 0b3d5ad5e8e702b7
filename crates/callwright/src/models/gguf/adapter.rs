//! Checks a LoRA adapter before llama.cpp reads it: it aborts, or computes with the wrong numbers, where these fail.
//!
//! The conditions follow llama.cpp's `llama_adapter_lora_init_impl`, `build_lora_mm` and `build_inp_embd`.

use super::check::computable;
use super::{Gguf, Tensor, Value};
use crate::error::{Error, ErrorKind, Result};
use std::collections::{BTreeMap, HashMap};

/// The table of embeddings; its matrices are the other way round.
const EMBEDDINGS: &str = "token_embd.weight";

const OF_ANOTHER_MODEL: &str = "the adapter was trained for another model";

fn refuse(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Gguf, message)
}

/// The two matrices that are added to a tensor as a product.
#[derive(Default)]
struct Pair<'g> {
    a: Option<&'g Tensor>,
    b: Option<&'g Tensor>,
}

impl Gguf {
    /// Refuses a file that is no LoRA adapter for `model`.
    ///
    /// # Errors
    /// [`ErrorKind::Gguf`], with the reason.
    pub(crate) fn check_adapter(&self, model: &Gguf) -> Result<()> {
        let checked =
            self.adapter_kind(model).and_then(|()| self.adapter_tensors(model)).and_then(|()| self.check_end());
        checked.map_err(|error| error.in_file(self.path()))
    }

    fn adapter_kind(&self, model: &Gguf) -> Result<()> {
        if self.text("general.type") != Some("adapter") {
            let what = if self.get("tokenizer.ggml.tokens").is_some() {
                "a model, and no LoRA adapter"
            } else {
                "no LoRA adapter"
            };
            return Err(refuse(what).hint("llama.cpp's convert_lora_to_gguf.py makes one from an adapter of PEFT"));
        }
        match self.text("adapter.type") {
            Some("lora") => {}
            Some(other) => return Err(refuse(format!("an adapter of the type {other:?}, and no LoRA adapter"))),
            None => return Err(refuse("adapter.type is missing: it does not say that it is a LoRA adapter")),
        }
        let name = |architecture: Option<&str>| architecture.unwrap_or("no architecture").to_owned();
        if self.architecture() != model.architecture() {
            let (of, needed) = (name(self.architecture()), name(model.architecture()));
            return Err(
                refuse(format!("an adapter for models of {of}, and the model is of {needed}")).hint(OF_ANOTHER_MODEL)
            );
        }
        if !matches!(self.get("adapter.lora.alpha"), None | Some(Value::F32(_))) {
            return Err(refuse("adapter.lora.alpha is no 32-bit number"));
        }
        if self.get("adapter.alora.invocation_tokens").is_some() {
            return Err(refuse("an activated LoRA adapter (aLoRA), which begins in the middle of a prompt")
                .hint("only adapters for whole prompts are supported"));
        }
        Ok(())
    }

    fn adapter_tensors(&self, model: &Gguf) -> Result<()> {
        let shards = model.files().iter().skip(1).map(Gguf::open).collect::<Result<Vec<_>>>()?;
        let weights: HashMap<&str, &Tensor> = std::iter::once(model)
            .chain(&shards)
            .flat_map(|shard| &shard.tensors)
            .map(|tensor| (tensor.name.as_str(), tensor))
            .collect();
        let mut pairs: BTreeMap<&str, Pair<'_>> = BTreeMap::new();
        for tensor in &self.tensors {
            if let Some(name) = tensor.name.strip_suffix(".lora_a") {
                pairs.entry(name).or_default().a = Some(tensor);
            } else if let Some(name) = tensor.name.strip_suffix(".lora_b") {
                pairs.entry(name).or_default().b = Some(tensor);
            } else if !tensor.name.ends_with("_norm.weight") {
                return Err(refuse(format!("tensor {:?} is no part of a LoRA adapter", tensor.name)));
            }
        }
        if pairs.is_empty() {
            return Err(refuse("the adapter has no tensors that change a model"));
        }
        for (name, pair) in pairs {
            let Pair { a: Some(a), b: Some(b) } = pair else {
                return Err(refuse(format!("the adapter has only one of the two tensors for {name:?}")));
            };
            // A product is not defined for all types.
            if let Some(tensor) = [a, b].into_iter().find(|tensor| !computable(tensor)) {
                let (name, kind) = (&tensor.name, tensor.kind.name);
                return Err(refuse(format!(
                    "tensor {name:?} has elements of type {kind}, which llama.cpp cannot compute with there"
                )));
            }
            let Some(weight) = weights.get(name) else {
                return Err(refuse(format!("the adapter changes {name:?}, which the model does not have"))
                    .hint(OF_ANOTHER_MODEL));
            };
            if name == EMBEDDINGS && !weights.contains_key("output.weight") {
                // Aborts: the matrices are the wrong way round for the output.
                return Err(refuse("the adapter changes the embeddings of a model that uses them for its output, too")
                    .hint("llama.cpp cannot compute that; merge the adapter into the model"));
            }
            if !fits(name, weight, a, b) {
                let shapes = [a, b, *weight].map(|tensor| format!("{:?}", tensor.shape));
                return Err(refuse(format!(
                    "the adapter's tensors for {name:?} have the shapes {} and {}, which do not fit {}",
                    shapes[0], shapes[1], shapes[2]
                ))
                .hint(OF_ANOTHER_MODEL));
            }
        }
        Ok(())
    }
}

/// Returns whether the product of two matrices has a tensor's shape.
fn fits(name: &str, weight: &Tensor, a: &Tensor, b: &Tensor) -> bool {
    let size = |tensor: &Tensor, dimension: usize| tensor.shape.get(dimension).copied().unwrap_or(1);
    // Experts: a matrix for each.
    let alike = (2..4).all(|dimension| {
        let wanted = size(weight, dimension);
        size(a, dimension) == wanted && size(b, dimension) == wanted
    });
    alike
        && match name {
            EMBEDDINGS => size(a, 1) == size(weight, 1) && size(b, 1) == size(weight, 0) && size(a, 0) == size(b, 0),
            _ => size(a, 0) == size(weight, 0) && size(b, 1) == size(weight, 1) && size(a, 1) == size(b, 0),
        }
}
