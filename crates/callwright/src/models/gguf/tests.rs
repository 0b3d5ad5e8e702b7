//! Reading and checking GGUF files.

#[path = "../../../../../tests/it/gguf_builder.rs"]
pub(crate) mod gguf_builder;

use std::fmt::Write as _;
use std::path::Path;

use crate::ErrorKind;
use crate::models::Gguf;
use crate::models::gguf::{Value, shard_of};
use proptest::prelude::*;

use gguf_builder::{GgufBuilder, Val};

fn open(bytes: &[u8]) -> crate::Result<Gguf> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, bytes).unwrap();
    let gguf = Gguf::open(&path)?;
    gguf.check().map(|()| gguf)
}

/// A snapshot's entry for each case: its name, and the message in full.
fn messages(cases: &[(&str, Vec<u8>)]) -> String {
    let mut shown = String::new();
    for (name, bytes) in cases {
        let error = open(bytes).err().unwrap_or_else(|| panic!("{name} was accepted"));
        assert_eq!(error.kind(), ErrorKind::Gguf, "{name}: {error}");
        let place = error.location().and_then(|at| at.file.clone()).unwrap_or_else(|| panic!("{name}: no file named"));
        let text = error.to_string().replace(&place.display().to_string(), "model.gguf");
        writeln!(shown, "--- {name}\n{text}").unwrap();
    }
    shown
}

#[test]
fn what_a_file_says_of_its_model() {
    let gguf = open(
        &GgufBuilder::tiny().set("tokenizer.chat_template.tool_use", "{% if tools %}{{ tools }}{% endif %}").build(),
    )
    .unwrap();
    assert_eq!(gguf.architecture(), Some("qwen3"));
    assert_eq!(gguf.name(), Some("Tiny"));
    assert_eq!(gguf.license(), Some("mit"));
    assert_eq!(gguf.context_length(), Some(2048));
    assert_eq!(gguf.quantization(), Some("Q8_0"));
    assert_eq!(gguf.parameters(), 128);
    assert_eq!(gguf.special_token("eos"), Some(13));
    assert_eq!(gguf.token_text(13).as_deref(), Some("<|end|>"));
    assert_eq!(gguf.token_types().unwrap().len(), 16);
    let tokens: Vec<&[u8]> = gguf.tokens().unwrap().iter().collect();
    assert_eq!(tokens[0], b"t0");
    assert_eq!(tokens[15], "世界".as_bytes());
    assert_eq!(gguf.tokens().unwrap().get(15), Some(tokens[15]));
    assert_eq!(gguf.tokens().unwrap().get(16), None);
    let templates: Vec<_> = gguf.chat_templates().iter().map(|t| (t.name, t.mentions_tools())).collect();
    assert_eq!(templates, [("default", false), ("tool_use", true)]);
    assert!(gguf.chat_template(None).unwrap().contains("messages"));
    assert_eq!(gguf.chat_template(Some("rag")), None);
}

#[test]
fn tensors_say_how_layers_look_back() {
    // A key and a value of 32 elements for each layer with attention, 2 bytes an element.
    for (architecture, layers, bytes) in
        [("llama", (2, 0, 2), 256), ("lfm2", (1, 3, 4), 128), ("qwen35", (1, 3, 4), 128), ("mamba", (0, 2, 2), 0)]
    {
        let attention = open(&GgufBuilder::random(architecture).build()).unwrap().attention();
        assert_eq!((attention.attention, attention.recurrent, attention.layers), layers, "{architecture}");
        assert_eq!((attention.bytes(1), attention.bytes(u64::MAX)), (Some(bytes), (bytes == 0).then_some(0)));
    }
    let of = |gguf: GgufBuilder| open(&gguf.build()).unwrap().attention();
    let windows = of(GgufBuilder::random("llama").set("llama.attention.sliding_window", 512));
    assert_eq!(windows.window, Some(512));
    // Queries, keys and values in one matrix; keys that are made from a latent; no value of its own.
    let with = |tensors: &[(&str, &[u64])]| {
        let gguf = GgufBuilder::tiny().tensor("blk.0.attn_output.weight", &[64, 8]);
        of(tensors.iter().fold(gguf, |gguf, (name, shape)| gguf.tensor(&format!("blk.0.{name}"), shape)))
    };
    assert_eq!(with(&[("attn_qkv.weight", &[8, 64 + 16 + 16])]).bytes(1), Some(64));
    assert_eq!(with(&[("attn_k.weight", &[8, 16])]).bytes(1), Some(64));
    assert_eq!(with(&[("attn_kv_a_mqa.weight", &[8, 16])]).bytes(1), None);
    assert_eq!(with(&[("attn_qkv.weight", &[8, 3])]).bytes(1), None);
    assert_eq!(windows.and(windows).bytes(1), Some(512));
}

#[test]
fn every_type_of_number_is_read() {
    let numbers: [(u32, Vec<u8>, Value); 12] = [
        (0, vec![200], Value::U8(200)),
        (1, vec![0xff], Value::I8(-1)),
        (2, vec![1, 2], Value::U16(513)),
        (3, vec![0xfe, 0xff], Value::I16(-2)),
        (4, vec![1, 0, 0, 0x80], Value::U32(0x8000_0001)),
        (5, (-3i32).to_le_bytes().to_vec(), Value::I32(-3)),
        (6, 1.5f32.to_le_bytes().to_vec(), Value::F32(1.5)),
        (7, vec![2], Value::Bool(true)),
        (10, u64::MAX.to_le_bytes().to_vec(), Value::U64(u64::MAX)),
        (11, i64::MIN.to_le_bytes().to_vec(), Value::I64(i64::MIN)),
        (12, (-0.25f64).to_le_bytes().to_vec(), Value::F64(-0.25)),
        (8, b"\x02\0\0\0\0\0\0\0ok".to_vec(), Value::String("ok".into())),
    ];
    for (kind, bytes, expected) in numbers {
        let gguf = open(&GgufBuilder::tiny().set("x", Val::Raw(kind, bytes)).build()).unwrap();
        assert_eq!(gguf.get("x"), Some(&expected));
    }
}

#[test]
fn a_word_in_a_template_is_not_the_tools_variable() {
    let says = |template: &str| {
        let gguf = open(&GgufBuilder::tiny().set("tokenizer.chat_template", template).build()).unwrap();
        gguf.chat_templates()[0].mentions_tools()
    };
    assert!(says("{%- if tools -%}"));
    assert!(says("{{ tools|tojson }}"));
    assert!(!says("{% set mytools_list = 1 %}"));
    assert!(!says("{{ xtools }}{{ toolset }}"));
}

#[test]
fn files_that_are_no_gguf() {
    let safetensors = [&80u64.to_le_bytes()[..], br#"{"__metadata__":{"format":"pt"}}"#].concat();
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("empty", vec![]),
        ("three bytes of it", b"GGU".to_vec()),
        ("git-LFS pointer", b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n".to_vec()),
        ("web page", b"\n<!DOCTYPE html><html><head>".to_vec()),
        ("safetensors", safetensors),
        ("PyTorch", b"PK\x03\x04\x14\0\0\0".to_vec()),
        ("old GGML", b"tjgg\x03\0\0\0".to_vec()),
        ("JSON", b"{\"model_type\": \"qwen3\"}".to_vec()),
        ("zeros", vec![0; 4096]),
        ("something else", b"\x7fELF\x02\x01\x01\0\0".to_vec()),
        ("version 1", GgufBuilder { version: [1, 0, 0, 0], ..GgufBuilder::tiny() }.build()),
        ("version 9", GgufBuilder { version: [9, 0, 0, 0], ..GgufBuilder::tiny() }.build()),
        ("big-endian", GgufBuilder { version: [0, 0, 0, 3], ..GgufBuilder::tiny() }.build()),
    ];
    insta::assert_snapshot!(messages(&cases));
}

#[test]
fn headers_that_are_not_in_order() {
    let tiny = GgufBuilder::tiny;
    let huge = |kind: u32| {
        let count = (1u64 << 60).to_le_bytes();
        Val::Raw(9, [&kind.to_le_bytes()[..], &count].concat())
    };
    let mut counts = tiny().build();
    counts[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
    let mut entries = tiny().build();
    entries[16..24].copy_from_slice(&(1u64 << 40).to_le_bytes());
    let whole = tiny().build();
    let cases = vec![
        ("cut off in the header", whole[..100].to_vec()),
        ("cut off in the data", whole[..whole.len() - 200].to_vec()),
        ("absurd number of tensors", counts),
        ("absurd number of metadata entries", entries),
        ("absurd string", tiny().set("x", Val::Raw(8, u64::MAX.to_le_bytes().to_vec())).build()),
        ("absurd array of strings", tiny().set("x", huge(8)).build()),
        ("absurd array of numbers", tiny().set("x", huge(12)).build()),
        ("array of arrays", tiny().set("x", huge(9)).build()),
        ("unknown value type", tiny().set("x", Val::Raw(77, vec![0; 8])).build()),
        ("empty key", tiny().add("", 1).build()),
        ("key twice", tiny().add("general.name", "again").build()),
        ("alignment of 3", tiny().set("general.alignment", 3).build()),
        ("alignment as text", tiny().set("general.alignment", "32").build()),
        ("long tensor name", tiny().tensor(&"x".repeat(64), &[1]).build()),
        ("tensor twice", tiny().tensor("token_embd.weight", &[1]).build()),
        ("five dimensions", tiny().last(|t| t.shape = vec![1; 5]).build()),
        ("negative dimension", tiny().last(|t| t.shape = vec![u64::MAX]).build()),
        ("overflowing shape", tiny().last(|t| t.shape = vec![1 << 40, 1 << 40]).build()),
        ("more bytes than numbers can count", tiny().last(|t| (t.kind, t.shape) = (28, vec![1 << 62])).build()),
        (
            "data without an end",
            tiny()
                .last(|t| t.shape = vec![1 << 61])
                .tensor("second", &[1])
                .last(|t| (t.shape, t.offset) = (vec![1 << 61], Some(1 << 63)))
                .build(),
        ),
        ("unknown element type", tiny().last(|t| t.kind = 4).build()),
        ("broken block", tiny().last(|t| (t.kind, t.shape) = (8, vec![33])).build()),
        ("tensor out of place", tiny().last(|t| t.offset = Some(64)).build()),
    ];
    insta::assert_snapshot!(messages(&cases));
}

#[test]
fn vocabularies_that_llama_cpp_would_abort_over() {
    let tiny = GgufBuilder::tiny;
    let bytes = |skip: u8| {
        let tokens = (0..=255u8).filter(|b| *b != skip).map(|b| format!("<0x{b:02X}>").into_bytes());
        let named = [b"<unk>".to_vec(), b"<s>".to_vec(), b"</s>".to_vec(), b"x".to_vec()];
        Val::Strs(named.into_iter().chain(tokens).collect())
    };
    let spm = |tokens: Val| {
        tiny()
            .set("tokenizer.ggml.model", "llama")
            .set("tokenizer.ggml.tokens", tokens)
            .remove("tokenizer.ggml.token_type")
    };
    // The letter replaces its byte token.
    open(&spm(bytes(b'x')).build()).unwrap();
    let tokens = |texts: &[&[u8]]| {
        let vocabulary = Val::Strs(texts.iter().map(|t| t.to_vec()).collect());
        tiny()
            .set("tokenizer.ggml.tokens", vocabulary)
            .remove("tokenizer.ggml.bos_token_id")
            .remove("tokenizer.ggml.eos_token_id")
    };
    open(&tokens(&[b"a", b"", b"b", b""]).build()).unwrap();
    let cases = vec![
        ("duplicate token", tokens(&[b"a", "zwei\n".as_bytes(), b"c", b"zwei\n"]).build()),
        ("duplicate up to a zero byte", tokens(&[b"a", b"a\0b"]).build()),
        ("duplicate of the name of an empty token", tokens(&[b"a", b"", b"[EMPTY_1]"]).build()),
        ("no tokens", tokens(&[]).build()),
        ("no vocabulary", tiny().remove("tokenizer.ggml.tokens").build()),
        ("vocabulary of numbers", tiny().set("tokenizer.ggml.tokens", Val::I32s(vec![1, 2])).build()),
        ("no tokenizer", tiny().remove("tokenizer.ggml.model").build()),
        ("no_vocab", tiny().set("tokenizer.ggml.model", "no_vocab").build()),
        ("bos out of range", tiny().set("tokenizer.ggml.bos_token_id", 16).build()),
        ("negative eos", tiny().set("tokenizer.ggml.eos_token_id", Val::I32(-1)).build()),
        ("padding out of range", tiny().set("tokenizer.ggml.padding_token_id", 99).build()),
        ("too few types", tiny().set("tokenizer.ggml.token_type", Val::I32s(vec![1; 15])).build()),
        ("types as floats", tiny().set("tokenizer.ggml.token_type", Val::F32s(vec![1.0; 16])).build()),
        ("too few scores", tiny().set("tokenizer.ggml.scores", Val::F32s(vec![])).build()),
        ("scores as text", tiny().set("tokenizer.ggml.scores", "1").build()),
        ("no merges", tiny().remove("tokenizer.ggml.merges").build()),
        ("merges as numbers", tiny().set("tokenizer.ggml.merges", Val::I32s(vec![1])).build()),
        ("no token for a byte", spm(bytes(0x0a)).build()),
        ("adds a token that is not there", tokens(&[b"a", b"b"]).set("tokenizer.ggml.add_bos_token", true).build()),
    ];
    insta::assert_snapshot!(messages(&cases));
    // 2³² - 1 is "none", and a shorter vocabulary than a default id has no such token.
    open(&tiny().set("tokenizer.ggml.padding_token_id", u32::MAX).build()).unwrap();
    open(&tokens(&[b"a", b"b"]).build()).unwrap();
}

#[test]
fn models_that_cannot_be_run() {
    let tiny = GgufBuilder::tiny;
    let moe = |experts: u32, used: u32| tiny().set("qwen3.expert_count", experts).set("qwen3.expert_used_count", used);
    open(&moe(8, 2).build()).unwrap();
    let cases = vec![
        ("no architecture", tiny().remove("general.architecture").build()),
        ("embeddings", tiny().set("general.architecture", "bert").build()),
        ("embeddings of an architecture that also generates", tiny().set("qwen3.pooling_type", 3).build()),
        ("ranking", tiny().set("general.architecture", "bert").set("bert.pooling_type", 4).build()),
        ("image part", tiny().set("general.architecture", "clip").build()),
        ("LoRA", tiny().set("general.type", "adapter").build()),
        ("importance matrix", tiny().set("general.type", "imatrix").build()),
        ("no weights", GgufBuilder { tensors: vec![], ..tiny() }.build()),
        ("no layers", tiny().set("qwen3.block_count", 0).build()),
        ("513 layers", tiny().set("qwen3.block_count", 513).build()),
        ("more extra layers than layers", tiny().set("qwen3.nextn_predict_layers", 3).build()),
        ("no context", tiny().set("qwen3.context_length", 0).build()),
        ("too long a context", tiny().set("qwen3.context_length", 1 << 31).build()),
        ("unknown rope scaling", tiny().set("qwen3.rope.scaling.type", "spiral").build()),
        ("more experts used than there are", moe(8, 9).build()),
        ("experts used, but none there", moe(0, 1).build()),
        ("groups that do not divide the experts", moe(8, 2).set("qwen3.expert_group_count", 3).build()),
        ("an epsilon below 0", tiny().set("qwen3.attention.layer_norm_rms_epsilon", f32_value(-1.0)).build()),
        (
            "an epsilon that is no number",
            tiny().set("qwen3.attention.layer_norm_rms_epsilon", f32_value(f32::NAN)).build(),
        ),
        (
            "whole numbers for weights",
            tiny().tensor("blk.0.attn_q.weight", &[32, 2]).last(|t| (t.kind, t.bytes) = (24, 64)).build(),
        ),
        ("a quantised norm", tiny().tensor("output_norm.weight", &[32]).last(|t| (t.kind, t.bytes) = (8, 34)).build()),
        ("a quantised bias", tiny().tensor("blk.0.attn_q.bias", &[32]).last(|t| (t.kind, t.bytes) = (8, 34)).build()),
    ];
    insta::assert_snapshot!(messages(&cases));
    let table = tiny().tensor("blk.0.ffn_gate_tid2eid.weight", &[2, 16]).last(|t| t.kind = 26);
    open(&table.build()).unwrap().check().unwrap();
}

fn f32_value(number: f32) -> Val {
    Val::Raw(6, number.to_le_bytes().to_vec())
}

#[test]
fn a_model_in_shards_is_checked_as_a_whole() {
    let folder = tempfile::tempdir().unwrap();
    let split = |no: u32| Val::Raw(2, (no as u16).to_le_bytes().to_vec());
    let first = GgufBuilder::tiny().set("split.count", split(2)).set("split.no", split(0));
    let second = GgufBuilder::new().set("split.count", split(2)).set("split.no", split(1)).tensor("b", &[8]);
    let path = first.write(folder.path(), "m-00001-of-00002.gguf");
    let check = |path: &Path| Gguf::open(path).unwrap().check().map_err(|e| e.message().to_owned());

    assert!(check(&path).unwrap_err().starts_with("part 2 of 2 is missing"));
    let bytes = second.build();
    let other = folder.path().join("m-00002-of-00002.gguf");
    std::fs::write(&other, &bytes[..bytes.len() - 8]).unwrap();
    assert!(check(&path).unwrap_err().contains("cut off: 8 of its"));
    std::fs::write(&other, &bytes).unwrap();
    assert_eq!(check(&path), Ok(()));
    assert_eq!(Gguf::open(&path).unwrap().files(), [path.clone(), other.clone()]);

    let renamed = first.write(folder.path(), "renamed.gguf");
    assert_eq!(check(&renamed).unwrap_err(), "one of 2 parts of a model, but its name does not say which");
    let alone = first.write(folder.path(), "n-00002-of-00002.gguf");
    assert_eq!(check(&alone).unwrap_err(), "part 2 of 2 of a model");
}

#[test]
fn names_of_shards() {
    let shard = shard_of("a-b-00002-of-00012.gguf").unwrap();
    assert_eq!((shard.prefix.as_str(), shard.index, shard.count), ("a-b", 2, 12));
    assert_eq!(shard.file_name(1), "a-b-00001-of-00012.gguf");
    for name in ["a-0002-of-0012.gguf", "a-00003-of-00002.gguf", "a-00000-of-00002.gguf", "a.gguf", "a-00001-of-00002"]
    {
        assert_eq!(shard_of(name), None, "{name}");
    }
}

#[test]
fn only_the_header_of_a_large_file_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.gguf");
    let bytes = 6u64 << 30;
    let builder = GgufBuilder::tiny().last(|t| (t.shape, t.bytes) = (vec![bytes / 4], bytes));
    let header = builder.header();
    std::fs::write(&path, &header).unwrap();
    // A hole, which takes no space on the disk; reading it would take gigabytes of memory.
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(header.len() as u64 + bytes).unwrap();
    let gguf = Gguf::open(&path).unwrap();
    gguf.check().unwrap();
    assert_eq!(gguf.parameters(), bytes / 4);
}

#[test]
fn a_header_without_an_end_is_not_read_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long.gguf");
    let length = 400u64 << 20;
    let mut bytes = GgufBuilder::new().header();
    bytes[16] = 1;
    bytes.truncate(24);
    bytes.extend(length.to_le_bytes());
    std::fs::write(&path, &bytes).unwrap();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(2 * length).unwrap();
    let error = Gguf::open(&path).unwrap_err();
    assert_eq!(error.message(), "the header is larger than 256 MiB: metadata key 0 at byte 32 says so");
}

#[test]
fn what_is_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let error = Gguf::open(folder.path()).unwrap_err();
    assert!(error.message().ends_with("is a folder, not a GGUF file"), "{error}");
    let error = Gguf::open(folder.path().join("absent.gguf")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.message().contains("absent.gguf"));
}

proptest! {
    #[test]
    fn damage_never_panics(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        number in prop::option::of((any::<prop::sample::Index>(), any::<u64>())),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = GgufBuilder::tiny().build();
        for (at, byte) in flips {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some((at, number)) = number {
            let at = at.index(bytes.len() - 8);
            bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Err(error) = open(&bytes) {
            prop_assert_eq!(error.kind(), ErrorKind::Gguf);
            prop_assert!(!error.message().is_empty());
        }
    }
}
