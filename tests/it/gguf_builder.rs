//! Writes small GGUF files, in order or not. Tests in `src/models/gguf` share it.
#![allow(dead_code, unreachable_pub, reason = "each of the two uses a part")]

use std::path::{Path, PathBuf};

/// A value of the metadata.
#[derive(Clone)]
pub enum Val {
    U32(u32),
    I32(i32),
    Bool(bool),
    Str(String),
    Strs(Vec<Vec<u8>>),
    I32s(Vec<i32>),
    F32s(Vec<f32>),
    /// A type number and the bytes that follow it.
    Raw(u32, Vec<u8>),
}

impl From<&str> for Val {
    fn from(text: &str) -> Val {
        Val::Str(text.to_owned())
    }
}

impl From<u32> for Val {
    fn from(number: u32) -> Val {
        Val::U32(number)
    }
}

impl From<bool> for Val {
    fn from(value: bool) -> Val {
        Val::Bool(value)
    }
}

impl<const N: usize> From<[&str; N]> for Val {
    fn from(texts: [&str; N]) -> Val {
        Val::Strs(texts.iter().map(|text| text.as_bytes().to_vec()).collect())
    }
}

impl Val {
    fn write(&self, out: &mut Vec<u8>) {
        let array = |out: &mut Vec<u8>, kind: u32, count: usize| {
            out.extend(9u32.to_le_bytes());
            out.extend(kind.to_le_bytes());
            out.extend((count as u64).to_le_bytes());
        };
        match self {
            Val::U32(n) => out.extend([4u32.to_le_bytes(), n.to_le_bytes()].concat()),
            Val::I32(n) => out.extend([5u32.to_le_bytes(), n.to_le_bytes()].concat()),
            Val::Bool(value) => {
                out.extend(7u32.to_le_bytes());
                out.push(u8::from(*value));
            }
            Val::Str(text) => {
                out.extend(8u32.to_le_bytes());
                string(out, text.as_bytes());
            }
            Val::Strs(texts) => {
                array(out, 8, texts.len());
                texts.iter().for_each(|text| string(out, text));
            }
            Val::I32s(numbers) => {
                array(out, 5, numbers.len());
                numbers.iter().for_each(|n| out.extend(n.to_le_bytes()));
            }
            Val::F32s(numbers) => {
                array(out, 6, numbers.len());
                numbers.iter().for_each(|n| out.extend(n.to_le_bytes()));
            }
            Val::Raw(kind, bytes) => {
                out.extend(kind.to_le_bytes());
                out.extend(bytes);
            }
        }
    }
}

fn string(out: &mut Vec<u8>, text: &[u8]) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text);
}

/// A tensor as the header describes it.
#[derive(Clone)]
pub struct TensorInfo {
    pub name: String,
    pub shape: Vec<u64>,
    pub kind: u32,
    /// Where the header says it starts; its place in the data where not given.
    pub offset: Option<u64>,
    /// Bytes of it that are written.
    pub bytes: u64,
}

/// A GGUF to be written.
#[derive(Clone)]
pub struct GgufBuilder {
    pub magic: [u8; 4],
    pub version: [u8; 4],
    pub metadata: Vec<(String, Val)>,
    pub tensors: Vec<TensorInfo>,
    /// Whether the weights are numbers that a model can compute with.
    pub runs: bool,
}

impl GgufBuilder {
    /// A file without anything in it.
    pub fn new() -> GgufBuilder {
        GgufBuilder {
            magic: *b"GGUF",
            version: 3u32.to_le_bytes(),
            metadata: Vec::new(),
            tensors: Vec::new(),
            runs: false,
        }
    }

    /// A small model in order: 16 tokens, one tensor. It has no weights that llama.cpp could run.
    pub fn tiny() -> GgufBuilder {
        let tokens: Vec<String> = (0..12).map(|i| format!("t{i}")).collect();
        let mut tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
        tokens.extend(["<|start|>", "<|end|>", "Ġhello", "世界"]);
        GgufBuilder::new()
            .set("general.architecture", "qwen3")
            .set("general.name", "Tiny")
            .set("general.license", "mit")
            .set("general.file_type", 7)
            .set("qwen3.block_count", 2)
            .set("qwen3.context_length", 2048)
            .set("qwen3.embedding_length", 8)
            .set("tokenizer.ggml.model", "gpt2")
            .set("tokenizer.ggml.pre", "gpt-2")
            .set("tokenizer.ggml.tokens", Val::Strs(tokens.iter().map(|t| t.as_bytes().to_vec()).collect()))
            .set("tokenizer.ggml.token_type", Val::I32s(vec![1; 16]))
            .set("tokenizer.ggml.merges", ["t 0", "t 1"])
            .set("tokenizer.ggml.bos_token_id", 12)
            .set("tokenizer.ggml.eos_token_id", 13)
            .set("tokenizer.chat_template", "{% for m in messages %}{{ m.content }}{% endfor %}")
            .tensor("token_embd.weight", &[8, 16])
    }

    /// A model whose 26 letters are its tokens, with random weights, of this architecture: `llama`, the recurrent `mamba`, the hybrids
    /// `lfm2` and `qwen35`, or `gemma3` with windows of 64 tokens. The last three have a token with which a message begins.
    pub fn random(architecture: &str) -> GgufBuilder {
        let letters: Vec<String> = ('a'..='z').map(String::from).collect();
        let is_hybrid = matches!(architecture, "lfm2" | "qwen35");
        let markup = ["<end>", "<start>"].map(|token| token.as_bytes().to_vec());
        let markup = &markup[..if is_hybrid || architecture == "gemma3" { 2 } else { 1 }];
        let tokens: Vec<Vec<u8>> =
            letters.iter().map(|letter| letter.as_bytes().to_vec()).chain(markup.iter().cloned()).collect();
        let (count, blocks) = (tokens.len() as u64, if is_hybrid { 4 } else { 2 });
        let kinds = (0..tokens.len()).map(|index| if index >= 26 { 3 } else { 1 }).collect();
        let key = |name: &str| format!("{architecture}.{name}");
        let epsilon = Val::Raw(6, 1e-5f32.to_le_bytes().to_vec());
        let norm = if architecture == "lfm2" { "token_embd_norm.weight" } else { "output_norm.weight" };
        let mut gguf = GgufBuilder::new()
            .set("general.architecture", architecture)
            .set(&key("block_count"), blocks)
            .set(&key("context_length"), 4096)
            .set(&key("embedding_length"), 64)
            .set(&key("attention.layer_norm_rms_epsilon"), epsilon)
            .set("tokenizer.ggml.model", "gpt2")
            .set("tokenizer.ggml.pre", "gpt-2")
            .set("tokenizer.ggml.tokens", Val::Strs(tokens))
            .set("tokenizer.ggml.token_type", Val::I32s(kinds))
            .set("tokenizer.ggml.merges", ["a b"])
            .set("tokenizer.ggml.eos_token_id", 26)
            .set("tokenizer.ggml.add_bos_token", false)
            .tensor("token_embd.weight", &[64, count])
            .tensor(norm, &[64]);
        let attention: &[(&str, u32)] = &[("attention.head_count", 2), ("feed_forward_length", 128)];
        let numbers: &[(&str, u32)] = match architecture {
            "mamba" => {
                &[("ssm.conv_kernel", 4), ("ssm.inner_size", 128), ("ssm.state_size", 16), ("ssm.time_step_rank", 4)]
            }
            "lfm2" => &[("shortconv.l_cache", 3), ("vocab_size", 28)],
            "qwen35" => &[
                ("attention.head_count_kv", 1),
                ("attention.key_length", 32),
                ("attention.value_length", 32),
                ("rope.dimension_count", 32),
                ("ssm.conv_kernel", 4),
                ("ssm.inner_size", 64),
                ("ssm.state_size", 32),
                ("ssm.time_step_rank", 2),
                ("ssm.group_count", 1),
                ("full_attention_interval", 4),
            ],
            "gemma3" => &[
                ("attention.head_count_kv", 1),
                ("attention.key_length", 32),
                ("attention.value_length", 32),
                ("attention.sliding_window", 64),
                ("attention.sliding_window_pattern", 2),
            ],
            _ => &[("attention.head_count_kv", 1)],
        };
        for (name, number) in numbers.iter().chain(if architecture == "mamba" { &[] } else { attention }) {
            gguf = gguf.set(&key(name), *number);
        }
        // A hybrid's last block is one of attention.
        let is_attention = |block: u32| !is_hybrid || block == 3;
        if architecture == "lfm2" {
            let heads = (0..blocks).map(|block| i32::from(is_attention(block))).collect();
            gguf = gguf.set("lfm2.attention.head_count_kv", Val::I32s(heads));
        }
        if architecture == "qwen35" {
            gguf = gguf.set("qwen35.rope.dimension_sections", Val::I32s(vec![6, 5, 5, 0]));
        }
        let mamba: &[(&str, &[u64])] = &[
            ("attn_norm.weight", &[64]),
            ("ssm_in.weight", &[64, 256]),
            ("ssm_conv1d.weight", &[4, 128]),
            ("ssm_conv1d.bias", &[128]),
            ("ssm_x.weight", &[128, 36]),
            ("ssm_dt.weight", &[4, 128]),
            ("ssm_dt.bias", &[128]),
            ("ssm_a", &[16, 128]),
            ("ssm_d", &[128]),
            ("ssm_out.weight", &[128, 64]),
        ];
        let convolution: &[(&str, &[u64])] = &[
            ("shortconv.conv.weight", &[3, 64]),
            ("shortconv.in_proj.weight", &[64, 192]),
            ("shortconv.out_proj.weight", &[64, 64]),
        ];
        let delta: &[(&str, &[u64])] = &[
            ("attn_qkv.weight", &[64, 128]),
            ("attn_gate.weight", &[64, 64]),
            ("ssm_conv1d.weight", &[4, 128]),
            ("ssm_dt.bias", &[2]),
            ("ssm_a", &[2]),
            ("ssm_beta.weight", &[64, 2]),
            ("ssm_alpha.weight", &[64, 2]),
            ("ssm_norm.weight", &[32]),
            ("ssm_out.weight", &[64, 64]),
        ];
        let queries = if architecture == "qwen35" { 128 } else { 64 };
        let attention: &[(&str, &[u64])] = &[
            ("attn_q.weight", &[64, queries]),
            ("attn_k.weight", &[64, 32]),
            ("attn_v.weight", &[64, 32]),
            ("attn_output.weight", &[64, 64]),
        ];
        let normed: &[(&str, &[u64])] = &[("attn_q_norm.weight", &[32]), ("attn_k_norm.weight", &[32])];
        let after = if architecture == "qwen35" { "post_attention_norm.weight" } else { "ffn_norm.weight" };
        let around: &[(&str, &[u64])] = &[
            ("attn_norm.weight", &[64]),
            (after, &[64]),
            ("ffn_gate.weight", &[64, 128]),
            ("ffn_up.weight", &[64, 128]),
            ("ffn_down.weight", &[128, 64]),
        ];
        let after_each: &[(&str, &[u64])] = &[("post_attention_norm.weight", &[64]), ("post_ffw_norm.weight", &[64])];
        for block in 0..blocks {
            let tensors = match architecture {
                "mamba" => mamba.to_vec(),
                _ if is_hybrid && is_attention(block) => [around, attention, normed].concat(),
                "lfm2" => [around, convolution].concat(),
                "qwen35" => [around, delta].concat(),
                "gemma3" => [around, attention, normed, after_each].concat(),
                _ => [around, attention].concat(),
            };
            for (name, shape) in tensors {
                gguf = gguf.tensor(&format!("blk.{block}.{name}"), shape);
            }
        }
        GgufBuilder { runs: true, ..gguf }
    }

    /// A model for embeddings with random weights, whose words are letters, in a context of 96 tokens.
    pub fn bert() -> GgufBuilder {
        let letters = ('a'..='z').flat_map(|letter| [format!("\u{2581}{letter}"), letter.to_string()]);
        let tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"].map(String::from).into_iter().chain(letters);
        let tokens: Vec<Vec<u8>> = tokens.map(String::into_bytes).collect();
        let kinds = (0..tokens.len()).map(|index| if index < 4 { 3 } else { 1 }).collect();
        let count = tokens.len() as u64;
        let mut gguf = GgufBuilder::new()
            .set("general.architecture", "bert")
            .set("bert.block_count", 2)
            .set("bert.context_length", 96)
            .set("bert.embedding_length", 64)
            .set("bert.feed_forward_length", 128)
            .set("bert.attention.head_count", 2)
            .set("bert.attention.layer_norm_epsilon", Val::Raw(6, 1e-5f32.to_le_bytes().to_vec()))
            .set("bert.attention.causal", false)
            .set("bert.pooling_type", 1)
            .set("tokenizer.ggml.model", "bert")
            .set("tokenizer.ggml.tokens", Val::Strs(tokens))
            .set("tokenizer.ggml.token_type", Val::I32s(kinds))
            .set("tokenizer.ggml.token_type_count", 2)
            .tensor("token_embd.weight", &[64, count])
            .tensor("token_types.weight", &[64, 2])
            .tensor("position_embd.weight", &[64, 96]);
        for (name, id) in [("padding", 0), ("unknown", 1), ("bos", 2), ("seperator", 3)] {
            gguf = gguf.set(&format!("tokenizer.ggml.{name}_token_id"), id);
        }
        let norm = |gguf: GgufBuilder, name: &str| {
            gguf.tensor(&format!("{name}.weight"), &[64]).tensor(&format!("{name}.bias"), &[64])
        };
        gguf = norm(gguf, "token_embd_norm");
        for block in (0..2).map(|block| format!("blk.{block}")) {
            for name in ["attn_q", "attn_k", "attn_v", "attn_output"] {
                gguf = gguf.tensor(&format!("{block}.{name}.weight"), &[64, 64]);
            }
            gguf = norm(gguf, &format!("{block}.attn_output_norm"));
            gguf = gguf.tensor(&format!("{block}.ffn_up.weight"), &[64, 128]);
            gguf = gguf.tensor(&format!("{block}.ffn_down.weight"), &[128, 64]);
            gguf = norm(gguf, &format!("{block}.layer_output_norm"));
        }
        GgufBuilder { runs: true, ..gguf }
    }

    /// A LoRA adapter with random weights for attention of the bundled model, in `blocks` of its blocks.
    pub fn adapter(blocks: usize) -> GgufBuilder {
        let empty = GgufBuilder::new()
            .set("general.architecture", "qwen3")
            .set("general.type", "adapter")
            .set("adapter.type", "lora")
            .set("adapter.lora.alpha", Val::Raw(6, 1f32.to_le_bytes().to_vec()));
        let all = (0..blocks).fold(empty, |gguf, block| gguf.pair(&format!("blk.{block}.attn_q.weight"), 192, 192, 2));
        GgufBuilder { runs: true, ..all }
    }

    /// Adds the two matrices of an adapter for a tensor.
    pub fn pair(self, name: &str, inputs: u64, outputs: u64, rank: u64) -> GgufBuilder {
        self.tensor(&format!("{name}.lora_a"), &[inputs, rank]).tensor(&format!("{name}.lora_b"), &[rank, outputs])
    }

    /// Sets a key, in its place if it is there already.
    pub fn set(mut self, key: &str, value: impl Into<Val>) -> GgufBuilder {
        match self.metadata.iter_mut().find(|(k, _)| k == key) {
            Some((_, known)) => *known = value.into(),
            None => self.metadata.push((key.to_owned(), value.into())),
        }
        self
    }

    /// Adds a key, even if it is there already.
    pub fn add(mut self, key: &str, value: impl Into<Val>) -> GgufBuilder {
        self.metadata.push((key.to_owned(), value.into()));
        self
    }

    pub fn remove(mut self, key: &str) -> GgufBuilder {
        let before = self.metadata.len();
        self.metadata.retain(|(k, _)| k != key);
        assert!(self.metadata.len() < before, "no key {key}");
        self
    }

    /// Adds a tensor of F32, with data.
    pub fn tensor(mut self, name: &str, shape: &[u64]) -> GgufBuilder {
        let bytes = shape.iter().product::<u64>() * 4;
        self.tensors.push(TensorInfo { name: name.to_owned(), shape: shape.to_vec(), kind: 0, offset: None, bytes });
        self
    }

    /// Changes the last tensor.
    pub fn last(mut self, change: impl FnOnce(&mut TensorInfo)) -> GgufBuilder {
        change(self.tensors.last_mut().expect("a tensor"));
        self
    }

    /// The header alone, padded up to the data.
    pub fn header(&self) -> Vec<u8> {
        let mut out = [self.magic, self.version].concat();
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.metadata.len() as u64).to_le_bytes());
        for (key, value) in &self.metadata {
            string(&mut out, key.as_bytes());
            value.write(&mut out);
        }
        let mut place = 0u64;
        for tensor in &self.tensors {
            string(&mut out, tensor.name.as_bytes());
            out.extend((tensor.shape.len() as u32).to_le_bytes());
            tensor.shape.iter().for_each(|n| out.extend(n.to_le_bytes()));
            out.extend(tensor.kind.to_le_bytes());
            out.extend(tensor.offset.unwrap_or(place).to_le_bytes());
            place += tensor.bytes.next_multiple_of(32);
        }
        out.resize(out.len().next_multiple_of(32), 0);
        out
    }

    pub fn build(&self) -> Vec<u8> {
        let mut out = self.header();
        let mut state = 1u64;
        for tensor in &self.tensors {
            if self.runs {
                let weight = |_| {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    let weight = (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5;
                    // A state that grows with each token soon is no number.
                    (if tensor.name.ends_with("ssm_a") { -weight.abs() } else { weight }).to_le_bytes()
                };
                out.extend((0..tensor.bytes / 4).flat_map(weight));
                out.resize(out.len().next_multiple_of(32), 0);
                continue;
            }
            out.resize(out.len() + tensor.bytes.next_multiple_of(32) as usize, 0x11);
        }
        out
    }

    pub fn write(&self, folder: &Path, name: &str) -> PathBuf {
        let path = folder.join(name);
        std::fs::write(&path, self.build()).expect("writable");
        path
    }
}
