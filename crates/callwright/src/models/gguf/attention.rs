//! Which layers of a model look back at earlier tokens, and what is kept of a token for them. The tensors say so, whatever the
//! architecture.

use super::{Gguf, Tensor};
use std::collections::BTreeMap;

/// How a model's layers look back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Attention {
    /// Layers with attention.
    pub attention: u64,
    /// Layers with a recurrent state of a fixed size. A layer may have both.
    pub recurrent: u64,
    /// All layers.
    pub layers: u64,
    /// How many tokens some of the layers look back, where that is limited.
    pub window: Option<u64>,
    /// Elements that are kept of each token; `None` if the tensors do not say.
    elements: Option<u64>,
}

impl Attention {
    /// Both together, as in the shards of one model.
    pub fn and(self, other: Attention) -> Attention {
        Attention {
            attention: self.attention + other.attention,
            recurrent: self.recurrent + other.recurrent,
            layers: self.layers + other.layers,
            window: self.window.or(other.window),
            elements: self.elements.zip(other.elements).and_then(|(one, other)| one.checked_add(other)),
        }
    }

    /// Bytes of the KV cache for so many tokens, stored as F16. Layers with a window are counted in full, because the file
    /// does not say which they are: with a [window](Attention::window), it is an upper bound.
    pub fn bytes(&self, tokens: u64) -> Option<u64> {
        self.elements?.checked_mul(2)?.checked_mul(tokens)
    }
}

/// The tensors of a layer that matter.
#[derive(Default)]
struct Layer {
    key: Option<u64>,
    value: Option<u64>,
    query_key_value: Option<u64>,
    /// What the attention's output is made from: as long as all queries.
    output: Option<u64>,
    latent: bool,
    recurrent: bool,
}

impl Gguf {
    /// How the layers in this file look back; for a sharded model, those in this shard.
    pub fn attention(&self) -> Attention {
        let mut layers: BTreeMap<u64, Layer> = BTreeMap::new();
        for tensor in &self.tensors {
            let Some((number, name)) = tensor.name.strip_prefix("blk.").and_then(|name| name.split_once('.')) else {
                continue;
            };
            let Ok(number) = number.parse() else { continue };
            layers.entry(number).or_default().add(name, tensor);
        }
        let with_attention = |layer: &&Layer| layer.output.is_some();
        let window = self.hyperparameter("attention.sliding_window").and_then(|window| window.as_u64());
        Attention {
            attention: layers.values().filter(with_attention).count() as u64,
            recurrent: layers.values().filter(|layer| layer.recurrent).count() as u64,
            layers: layers.len() as u64,
            window: window.filter(|window| *window > 0),
            elements: layers
                .values()
                .filter(with_attention)
                .try_fold(0_u64, |sum, layer| sum.checked_add(layer.elements()?)),
        }
    }
}

impl Layer {
    fn add(&mut self, name: &str, tensor: &Tensor) {
        let (input, output) = (tensor.shape.first().copied(), tensor.shape.get(1).copied());
        match name {
            "attn_k.weight" => self.key = output,
            "attn_v.weight" => self.value = output,
            "attn_qkv.weight" => self.query_key_value = output,
            "attn_output.weight" => self.output = input,
            _ => {}
        }
        self.latent |= name.starts_with("attn_kv_a");
        self.recurrent |= ["ssm_", "shortconv.", "time_mix_"].iter().any(|start| name.starts_with(start));
    }

    /// Elements of a key and a value.
    fn elements(&self) -> Option<u64> {
        match self {
            Layer { latent: true, .. } => None,
            Layer { key: Some(key), value, .. } => key.checked_add(value.unwrap_or(*key)),
            Layer { query_key_value: Some(all), output: Some(queries), .. } => all.checked_sub(*queries),
            _ => None,
        }
    }
}
