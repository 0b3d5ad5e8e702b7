//! LoRA adapters, which are added to a model.

use crate::gguf_builder::{GgufBuilder, Val};
use crate::program::{callwright, run};
use serde_json::Value;
use std::path::Path;

/// An adapter that changes the bundled model's answers.
fn strong() -> GgufBuilder {
    GgufBuilder::adapter(9).set("adapter.lora.alpha", Val::Raw(6, 8f32.to_le_bytes().to_vec()))
}

fn bundled() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("models/callwright-tiny.gguf").display().to_string()
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn a_file_that_is_no_adapter_for_the_model_says_why() {
    let home = tempfile::tempdir().unwrap();
    let refused = |given: &str| {
        let ran =
            run(callwright(home.path()).current_dir(home.path()).args(["run", "-n", "4", "--lora", given, "Hello"]));
        assert!(ran.code == 2 && ran.out.is_empty(), "{given}: {}\n{}", ran.code, ran.err);
        ran.err
    };
    let adapter = || GgufBuilder::adapter(1);
    let embeddings =
        adapter().tensor("token_embd.weight.lora_a", &[2, 8192]).tensor("token_embd.weight.lora_b", &[2, 192]);
    let cases = [
        ("model", GgufBuilder::tiny(), "a model, and no LoRA adapter"),
        ("empty", GgufBuilder::new().set("general.architecture", "qwen3"), ": no LoRA adapter"),
        ("vector", adapter().set("adapter.type", "vector"), "an adapter of the type \"vector\", and no LoRA adapter"),
        ("untyped", adapter().remove("adapter.type"), "adapter.type is missing"),
        ("numbered", adapter().set("adapter.type", 7), "adapter.type is missing"),
        (
            "llama",
            adapter().set("general.architecture", "llama"),
            "an adapter for models of llama, and the model is of qwen3",
        ),
        ("none", adapter().remove("general.architecture"), "an adapter for models of no architecture"),
        ("alpha", adapter().set("adapter.lora.alpha", "one"), "adapter.lora.alpha is no 32-bit number"),
        (
            "later",
            adapter().set("adapter.alora.invocation_tokens", Val::I32s(vec![1])),
            "an activated LoRA adapter (aLoRA)",
        ),
        ("nothing", GgufBuilder { tensors: Vec::new(), ..adapter() }, "the adapter has no tensors that change a model"),
        (
            "other",
            adapter().tensor("blk.0.attn_q.weight", &[192, 192]),
            "tensor \"blk.0.attn_q.weight\" is no part of a LoRA adapter",
        ),
        (
            "single",
            adapter().tensor("blk.1.attn_q.weight.lora_a", &[192, 2]),
            "only one of the two tensors for \"blk.1.attn_q.weight\"",
        ),
        (
            "deeper",
            adapter().pair("blk.9.attn_q.weight", 192, 192, 2),
            "the adapter changes \"blk.9.attn_q.weight\", which the model does not have",
        ),
        (
            "wider",
            adapter().pair("blk.1.attn_q.weight", 256, 192, 2),
            "have the shapes [256, 2] and [2, 192], which do not fit [192, 192]",
        ),
        (
            "ranks",
            adapter().tensor("blk.1.attn_q.weight.lora_a", &[192, 2]).tensor("blk.1.attn_q.weight.lora_b", &[4, 192]),
            "do not fit",
        ),
        (
            "whole",
            adapter().pair("blk.1.attn_q.weight", 192, 192, 2).last(|tensor| tensor.kind = 26),
            "tensor \"blk.1.attn_q.weight.lora_b\" has elements of type I32, which llama.cpp cannot compute with",
        ),
        ("embeddings", embeddings, "the adapter changes the embeddings of a model that uses them for its output"),
        (
            "short",
            adapter().pair("blk.1.attn_q.weight", 192, 192, 2).last(|tensor| tensor.bytes = 0),
            "the file is cut off",
        ),
    ];
    for (name, gguf, message) in cases {
        let file = format!("{name}.gguf");
        gguf.write(home.path(), &file);
        let error = refused(&file);
        assert!(error.contains(message) && error.contains(&file), "{name}: {error}");
    }
    assert!(refused("missing.gguf").contains("cannot read missing.gguf"), "{}", refused("missing.gguf"));
    std::fs::write(home.path().join("text.gguf"), "This is no GGUF.").unwrap();
    assert!(refused("text.gguf").contains("not a GGUF"), "{}", refused("text.gguf"));
    adapter().write(home.path(), "good.gguf");
    for scale in ["half", "nan", "inf", ""] {
        let error = refused(&format!("good.gguf:{scale}"));
        assert!(error.contains(&format!("the scale {scale:?} is no number; FILE:0.5")), "{error}");
    }
    // llama.cpp reads past the weights of norms, which a trained adapter may have.
    let norm = adapter().tensor("blk.0.attn_norm.weight", &[192]).last(|tensor| (tensor.kind, tensor.bytes) = (1, 384));
    norm.write(home.path(), "norm.gguf");
    let ran =
        run(callwright(home.path()).current_dir(home.path()).args(["run", "-n", "4", "--lora", "norm.gguf", "Hi"]));
    assert_eq!(ran.code, 0, "{}", ran.err);
    // Another name for the option, by llama.cpp.
    let ran = run(callwright(home.path()).args(["run", "--lora-scaled", "good.gguf", "Hello"]));
    assert!(ran.code == 2 && ran.err.contains("--lora"), "{}", ran.err);
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn an_adapter_changes_the_answer_and_its_scale_says_how_much() {
    let home = tempfile::tempdir().unwrap();
    strong().write(home.path(), "adapter.gguf");
    strong().write(home.path(), "a:b.gguf");
    let answer = |options: &[&str]| {
        let mut command = callwright(home.path());
        command
            .current_dir(home.path())
            .args(["run", "--temp", "0", "-n", "24", "Tell me about rivers."])
            .args(options);
        let ran = run(&mut command);
        assert!(ran.code == 0 || ran.code == 1, "{}", ran.err);
        ran.out
    };
    let plain = answer(&[]);
    assert_eq!(answer(&["--lora", "adapter.gguf:0"]), plain);
    let adapted = answer(&["--lora", "adapter.gguf"]);
    assert_ne!(adapted, plain);
    assert_eq!(answer(&["--lora", "adapter.gguf:1.0"]), adapted);
    assert_eq!(answer(&["--lora", "a:b.gguf"]), adapted);
    assert_eq!(answer(&["--lora", "a:b.gguf:1"]), adapted);
    assert_eq!(answer(&["--lora", "adapter.gguf:1", "--lora", "a:b.gguf:-1"]), plain);
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn a_models_toml_names_the_adapters_of_a_model() {
    let home = tempfile::tempdir().unwrap();
    let below = home.path().join("mine");
    std::fs::create_dir_all(&below).unwrap();
    strong().write(&below, "adapter.gguf");
    let entry = |lora: &str| {
        let text = format!("[[model]]\nname = \"mine\"\npath = {:?}\nlora = {lora}\n", bundled());
        std::fs::write(below.join("models.toml"), text).unwrap();
    };
    let answer = |options: &[&str]| {
        let mut command = callwright(home.path());
        command.args(["run", "--temp", "0", "-n", "24", "Tell me about rivers.", "--models"]);
        run(command.arg(below.join("models.toml")).args(options))
    };
    entry(r#"["adapter.gguf"]"#);
    // The entry applies to the file by whatever name.
    let plain = answer(&["--no-entry"]).out;
    assert_eq!(answer(&["-m", &bundled()]).out, answer(&["-m", "mine"]).out);
    let adapted = answer(&["-m", "mine"]).out;
    assert_ne!(adapted, plain);
    entry(r#"["adapter.gguf:0"]"#);
    assert_eq!(answer(&["-m", "mine"]).out, plain);
    // The command line replaces what the entry has.
    let file = below.join("adapter.gguf");
    assert_eq!(answer(&["-m", "mine", "--lora", file.to_str().unwrap()]).out, adapted);
    for (lora, message) in [
        (r#""adapter.gguf""#, "expected a list"),
        (r#"[1]"#, "invalid type: integer `1`, expected a string"),
        (r#"["adapter.gguf:x"]"#, "the scale \"x\" is no number"),
    ] {
        entry(lora);
        let ran = answer(&["-m", "mine"]);
        assert!(ran.code == 2 && ran.err.contains(message) && ran.err.contains("models.toml:4"), "{}", ran.err);
    }
    entry(r#"["gone.gguf"]"#);
    assert!(answer(&["-m", "mine"]).err.contains("gone.gguf"), "{}", answer(&["-m", "mine"]).err);
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn prompts_on_disk_belong_to_the_adapters_that_they_were_read_with() {
    let home = tempfile::tempdir().unwrap();
    let kept = home.path().join("kept");
    let file = strong().write(home.path(), "adapter.gguf");
    let question = "Tell me a story about seven rivers, two mountains and the sea behind them. ".repeat(8);
    let ask = |lora: Option<&str>| {
        let mut command = callwright(home.path());
        command.args(["run", "--temp", "0", "-n", "16", &question, "--output", "json", "--prompt-cache"]).arg(&kept);
        let scaled = lora.map(|scale| format!("{}:{scale}", file.display()));
        let ran = run(command.args(scaled.iter().flat_map(|lora| ["--lora", lora])));
        let answer: Value = serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{}{}", ran.out, ran.err));
        let folders = std::fs::read_dir(&kept).unwrap().filter(|entry| entry.as_ref().unwrap().path().is_dir()).count();
        (answer["usage"]["cached_tokens"].as_u64().unwrap() > 0, folders)
    };
    assert_eq!(ask(None), (false, 1));
    assert_eq!(ask(None), (true, 1));
    assert_eq!(ask(Some("1")), (false, 2));
    assert_eq!(ask(Some("1")), (true, 2));
    assert_eq!(ask(Some("0.5")), (false, 3));
    // Nothing of an adapter is no adapter.
    assert_eq!(ask(Some("0")), (true, 3));
    // Another adapter in the same place.
    GgufBuilder::adapter(8).write(home.path(), "adapter.gguf");
    assert_eq!(ask(Some("1")), (false, 4));
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn a_benchmark_says_which_adapters_it_measured() {
    let home = tempfile::tempdir().unwrap();
    let bench = |arguments: &[&str]| {
        run(callwright(home.path())
            .current_dir(home.path())
            .args(["bench", "--limit", "2", "--max-tokens", "64"])
            .args(arguments))
    };
    GgufBuilder::adapter(2).write(home.path(), "adapter.gguf");
    let ran = bench(&["--lora", "adapter.gguf:0.01", "--out", "adapted"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let read = |name: &str| std::fs::read_to_string(home.path().join(name)).unwrap();
    let report: Value = serde_json::from_str(&read("adapted/report.json")).unwrap();
    let adapter = report["configurations"][0]["lora"][0].as_str().unwrap().to_owned();
    assert!(
        adapter.starts_with("adapter.gguf:0.01 (") && adapter.len() == "adapter.gguf:0.01 ()".len() + 64,
        "{adapter}"
    );
    assert!(read("adapted/report.md").contains(&format!("adapter {adapter}, ")));
    assert_eq!(bench(&["--out", "plain"]).code, 0);
    let report: Value = serde_json::from_str(&read("plain/report.json")).unwrap();
    assert!(report["configurations"][0].get("lora").is_none());
    let compared = run(callwright(home.path()).current_dir(home.path()).args(["bench", "compare", "plain", "adapted"]));
    assert!(compared.code == 0 && compared.out.contains("over 2 cases"), "{}{}", compared.out, compared.err);
    let other = run(callwright(home.path()).current_dir(home.path()).args([
        "bench",
        "--resume",
        "adapted",
        "--lora",
        "adapter.gguf",
    ]));
    assert!(
        other.code == 2 && other.err.contains("--lora adapter.gguf:0.01, not --lora adapter.gguf"),
        "{}",
        other.err
    );
    // Its file has changed since.
    GgufBuilder::adapter(1).write(home.path(), "adapter.gguf");
    let other = run(callwright(home.path()).current_dir(home.path()).args(["bench", "--resume", "adapted"]));
    assert!(other.code == 2 && other.err.contains("lora was adapter.gguf:0.01 ("), "{}", other.err);
}

#[test]
#[cfg_attr(not(feature = "serve"), ignore = "needs serve")]
fn a_server_of_several_models_takes_adapters_from_models_toml() {
    let home = tempfile::tempdir().unwrap();
    let ran = run(callwright(home.path()).args(["serve", "-m", "bundled", "-m", "other", "--lora", "adapter.gguf"]));
    assert!(ran.code == 2 && ran.err.contains("--lora is for one model, and several are served"), "{}", ran.err);
    assert!(ran.err.contains("lora = [\"FILE\"]"), "{}", ran.err);
}
