//! `callwright model`, run as a program.

use std::path::Path;

use assert_cmd::Command;

use crate::gguf_builder::GgufBuilder;
use crate::models::hub_server::{HubServer, REPO, sha256};
use crate::program::{self, run};

fn callwright(home: &Path) -> Command {
    let mut command = program::callwright(home);
    command.arg("model");
    command
}

#[test]
fn list_shows_what_there_is_and_what_is_here() {
    let home = tempfile::tempdir().unwrap();
    let path = GgufBuilder::tiny().write(home.path(), "tiny-Q8_0.gguf");
    let size = std::fs::metadata(&path).unwrap().len();
    std::fs::create_dir_all(home.path().join("config/callwright")).unwrap();
    let own = format!("[[model]]\nname = \"own\"\npath = {:?}\nsampling = {{ temperature = 0.7 }}\n", path);
    std::fs::write(home.path().join("config/callwright/models.toml"), own).unwrap();

    let ran = run(callwright(home.path()).arg("list"));
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let shown = ran.out.replace(&home.path().display().to_string(), "<home>");
    let (bundled, named): (Vec<&str>, Vec<&str>) = shown.lines().partition(|line| line.starts_with("bundled "));
    assert_eq!(bundled.len(), usize::from(cfg!(feature = "bundled-model")));
    insta::assert_snapshot!(named.join("\n"));

    let ran = run(callwright(home.path()).args(["list", "--json"]));
    let list: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    let own = list.as_array().unwrap().iter().find(|entry| entry["name"] == "own").unwrap();
    assert_eq!(own["size"], size);
    assert_eq!(own["local"], true);
    assert_eq!(own["quantization"], "Q8_0");
    assert_eq!(own["sampling"]["temperature"], 0.7);
    let qwen = list.as_array().unwrap().iter().find(|entry| entry["name"] == "qwen3-0.6b").unwrap();
    assert_eq!(qwen["local"], false);
    assert_eq!(qwen["source"]["repo"], "Qwen/Qwen3-0.6B-GGUF");
}

#[test]
fn pull_prints_the_path_alone() {
    let home = tempfile::tempdir().unwrap();
    let content = GgufBuilder::tiny().build();
    let server = HubServer::start(&[("tiny.gguf", &content)]);
    server.change(|hub| hub.token = Some("hf_right".into()));
    let model = format!("hf:{REPO}/tiny.gguf");
    let pull = || {
        let mut command = callwright(home.path());
        command.args(["pull", &model]).env("HF_ENDPOINT", format!("{}/", server.endpoint));
        command
    };
    let ran = run(&mut pull());
    assert_eq!((ran.code, ran.out.as_str()), (1, ""));
    assert!(ran.err.contains("HF_TOKEN"), "{}", ran.err);

    let ran = run(pull().env("HF_TOKEN", "hf_right"));
    assert_eq!(ran.code, 0, "{}", ran.err);
    let path = Path::new(ran.out.strip_suffix('\n').unwrap());
    assert!(path.starts_with(home.path().join("hf/hub")), "{}", path.display());
    assert_eq!(std::fs::read(path).unwrap(), content);
    // No terminal, no bar.
    assert!(ran.err.starts_with("Downloading tiny.gguf ("), "{}", ran.err);
    assert!(!ran.err.contains('\r') && !ran.err.contains('\u{1b}'), "{}", ran.err);

    server.take_requests();
    for offline in [pull().arg("--offline"), pull().env("HF_HUB_OFFLINE", "1")] {
        let again = run(offline);
        assert_eq!((again.code, again.out), (0, ran.out.clone()));
    }
    let inspect = run(callwright(home.path()).args(["inspect", &model]));
    assert_eq!(inspect.code, 0, "{}", inspect.err);
    assert_eq!(server.take_requests(), [""; 0]);
}

#[test]
fn pull_goes_on_after_its_process_was_killed() {
    let home = tempfile::tempdir().unwrap();
    let content = vec![5; 400_000];
    let server = HubServer::start(&[("big.gguf", &content)]);
    server.change(|hub| (hub.cuts, hub.stall) = (vec![250_000], true));
    let arguments = ["model", "pull", "hf:org/model-GGUF/big.gguf"];
    let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin!("callwright"))
        .args(arguments)
        .env("HF_HOME", home.path().join("hf"))
        .env("HF_ENDPOINT", &server.endpoint)
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let blobs = home.path().join("hf/hub/models--org--model-GGUF/blobs");
    let part = blobs.join(sha256(&content)).with_extension("part");
    while std::fs::metadata(&part).map_or(0, |metadata| metadata.len()) < 250_000 {
        assert_eq!(child.try_wait().unwrap(), None, "the download ended");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    // While it runs, another process keeps its hands off the same file.
    let other = run(callwright(home.path()).args(&arguments[1..]).env("HF_ENDPOINT", &server.endpoint));
    assert_eq!(other.code, 1);
    assert!(other.err.contains("another process is downloading it"), "{}", other.err);
    child.kill().unwrap();
    child.wait().unwrap();
    server.take_requests();

    let ran = run(callwright(home.path()).args(&arguments[1..]).env("HF_ENDPOINT", &server.endpoint));
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(server.take_ranges(), ["bytes=250000-"]);
    assert_eq!(std::fs::read(ran.out.trim_end()).unwrap(), content);
}

#[test]
fn pull_offline_says_what_is_missing() {
    let home = tempfile::tempdir().unwrap();
    let ran = run(callwright(home.path()).args(["pull", "qwen3-0.6b", "--offline"]));
    assert_eq!((ran.code, ran.out.as_str()), (2, ""));
    assert!(ran.err.contains("Qwen3-0.6B-Q8_0.gguf of Qwen/Qwen3-0.6B-GGUF is not in the cache"), "{}", ran.err);
}

#[test]
fn of_a_repository_the_file_of_a_usual_quantization_is_used() {
    let home = tempfile::tempdir().unwrap();
    let content = GgufBuilder::tiny().build();
    let files = ["mmproj-tiny-Q4_K_M.gguf", "tiny-F16.gguf", "tiny-Q4_0.gguf", "tiny-Q8_0.gguf"];
    let server = HubServer::start(&files.map(|file| (file, content.as_slice())));
    let ask = |args: &[&str]| run(program::callwright(home.path()).args(args).env("HF_ENDPOINT", &server.endpoint));
    let (any, half) = (format!("hf:{REPO}"), format!("hf:{REPO}:f16"));
    let note = format!("note: {any} names no file: {any}/tiny-Q8_0.gguf is used\n");
    let ran = ask(&["model", "pull", &any]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.ends_with("/tiny-Q8_0.gguf\n") && ran.err.starts_with(&note), "{ran:?}");

    // What is here is used without asking.
    server.take_requests();
    let again = ask(&["model", "pull", "--offline", &any]);
    assert_eq!((again.code, again.out), (0, ran.out));
    assert_eq!(server.take_requests(), [""; 0]);

    let ran = ask(&["model", "pull", &half]);
    assert!(ran.code == 0 && ran.out.ends_with("/tiny-F16.gguf\n"), "{ran:?}");
    let ran = ask(&["run", "-hf", &format!("{REPO}:Q5_K_M"), "-p", "Hello"]);
    assert_ne!(ran.code, 0);
    assert!(ran.err.contains(&format!("{REPO} at main has no file of the quantization Q5_K_M")), "{ran:?}");
    assert!(ran.err.contains("it has tiny-F16.gguf, tiny-Q4_0.gguf, tiny-Q8_0.gguf\n"), "{ran:?}");
    let ran = ask(&["run", "--offline", "-hf", "org/other", "-p", "Hello"]);
    assert!(ran.code != 0 && ran.err.contains("no file of org/other is in the cache"), "{ran:?}");
    let ran = ask(&["run", "-hf", "org/other", "-p", "Hello"]);
    assert!(ran.code != 0 && ran.err.contains("there is no org/other at main"), "{ran:?}");

    let server = HubServer::start(&[("mmproj-tiny-F16.gguf", content.as_slice()), ("model.safetensors", b"")]);
    let home = tempfile::tempdir().unwrap();
    let ran = run(program::callwright(home.path()).args(["model", "pull", &any]).env("HF_ENDPOINT", &server.endpoint));
    assert!(ran.code != 0 && ran.err.contains(&format!("{REPO} at main has no model in GGUF form")), "{ran:?}");
}

/// The repository is resolved in one place, whichever command names it.
#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn a_repository_names_a_model_in_every_command() {
    let home = tempfile::tempdir().unwrap();
    let content = std::fs::read("models/callwright-tiny.gguf").unwrap();
    let server = HubServer::start(&[("tiny-F16.gguf", b"other".as_slice()), ("tiny-Q8_0.gguf", content.as_slice())]);
    let model = format!("hf:{REPO}:q8_0");
    let note = format!("note: {model} names no file: hf:{REPO}/tiny-Q8_0.gguf is used\n");
    let ask = |args: &[&str]| {
        let ran = run(program::callwright(home.path()).args(args).env("HF_ENDPOINT", &server.endpoint));
        assert_eq!(ran.err.matches(&note).count(), 1, "{args:?}: {ran:?}");
        ran
    };
    let ran = ask(&["template", "check", "hermes", "--model", &model]);
    assert!(ran.code == 0 && ran.out.contains("What it costs in tokens of"), "{ran:?}");
    assert!(ran.err.contains("Downloading tiny-Q8_0.gguf"), "{ran:?}");

    // The file is here now, and nothing is downloaded again.
    server.take_requests();
    let ran = ask(&["model", "inspect", &model]);
    assert!(ran.code == 0 && ran.out.contains("tiny-Q8_0.gguf"), "{ran:?}");
    let out = home.path().join("bench");
    let ran = ask(&["bench", "--limit", "1", "--model", &model, "--out", out.to_str().unwrap()]);
    assert!(ran.code == 0 && out.join("report.json").exists(), "{ran:?}");
    let question =
        ["run", "Calculate 2 + 2", "--tools", "builtin", "--execute", "--model", "models/callwright-tiny.gguf"];
    let ran = ask(&[question.as_slice(), &["--fallback-tool-models", &model]].concat());
    assert!(ran.code < 2, "{ran:?}");
    assert_eq!(server.take_requests(), [""; 0]);
}

/// The thresholds of an entry decide, unless the command line has its own.
#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn an_entry_can_forbid_calls_that_are_not_probable() {
    let home = tempfile::tempdir().unwrap();
    let file = std::path::absolute("models/callwright-tiny.gguf").unwrap();
    let models = home.path().join("models.toml");
    std::fs::write(&models, format!("[[model]]\nname = \"mine\"\npath = {file:?}\nno_call_below = 1.0\n")).unwrap();
    let question = ["run", "What's the weather in Oslo?", "--tools", "examples/weather.json", "-m", "mine", "--models"];
    let calls = |more: &[&str]| {
        let ran = run(program::callwright(home.path()).args(question).arg(&models).args(more));
        ran.out.matches("get_weather").count()
    };
    assert_eq!(calls(&[]), 0);
    assert_eq!(calls(&["--no-call-below", "0"]), 1);
    assert_eq!(calls(&["--format", "delimited"]), 1, "it was measured with the entry's own format");
}

#[test]
fn inspect_shows_what_a_model_is() {
    let home = tempfile::tempdir().unwrap();
    let tiny = GgufBuilder::tiny()
        .set("tokenizer.chat_template.tool_use", "{{ tools }}")
        .set("general.name", "Tiny\u{1b}[31m");
    let path = tiny.write(home.path(), "tiny.gguf");
    let ran = run(callwright(home.path()).arg("inspect").arg(&path));
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let (facts, features) = ran.out.rsplit_once("llama.cpp uses  ").unwrap();
    insta::assert_snapshot!(facts.replace(&home.path().display().to_string(), "<home>"));
    // Built from the repository, llama.cpp uses the vector units of the machine.
    #[cfg(target_arch = "x86_64")]
    assert_eq!(features.split_whitespace().any(|name| name == "AVX2"), std::is_x86_feature_detected!("avx2"));

    let ran = run(callwright(home.path()).args(["inspect", "--json"]).arg(&path));
    let facts: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(facts["parameters"], 128);
    assert_eq!(facts["eos"]["text"], "<|end|>");
    assert_eq!(facts["chat_templates"][1]["name"], "tool_use");
    assert_eq!(facts["problem"], serde_json::Value::Null);
}

/// What a file is called counts more than its chat template: base models have templates, too.
#[test]
fn inspect_says_whether_a_model_is_base_or_instruct_and_why() {
    const CHATML: &str = "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}<|end|>\n{% endfor %}";
    const FOREIGN: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}";
    let home = tempfile::tempdir().unwrap();
    let tiny = || GgufBuilder::tiny().set("tokenizer.chat_template", CHATML);
    let cases = [
        (
            tiny(),
            "a.gguf",
            "instruct, probably: its vocabulary has <|end|>, with which its chat template separates turns",
        ),
        (tiny().set("general.name", "Tiny 1B Base"), "a.gguf", "base: general.name says \"Base\""),
        (tiny().set("general.finetune", "Instruct-AWQ"), "a.gguf", "instruct: general.finetune says \"Instruct\""),
        (tiny(), "tiny-1b-it-Q8_0.gguf", "instruct: the file's name says \"it\""),
        (tiny().set("general.name", "Chat base"), "pt-1.gguf", "base: the file's name says \"pt\""),
        (
            tiny().set("tokenizer.chat_template", FOREIGN),
            "a.gguf",
            "base, probably: its vocabulary lacks <|im_end|>, with which its chat template separates turns",
        ),
        (tiny().remove("tokenizer.chat_template"), "a.gguf", "base, probably: it has no chat template"),
        (GgufBuilder::tiny(), "a.gguf", "unknown: neither names nor the chat template tell"),
        (GgufBuilder::adapter(1), "instruct.gguf", "adapter: general.type says so"),
    ];
    for (gguf, name, expected) in cases {
        let path = gguf.write(home.path(), name);
        let ran = run(callwright(home.path()).arg("inspect").arg(&path));
        let shown = ran.out.lines().find_map(|line| line.strip_prefix("kind ")).unwrap().trim_start();
        assert_eq!(shown, expected);
    }
}

/// A session with the entry's settings would choose it, so `run -v` says the same.
#[test]
fn inspect_knows_the_format_and_the_adapters_of_the_entry() {
    let home = tempfile::tempdir().unwrap();
    let path = GgufBuilder::tiny().write(home.path(), "tiny.gguf");
    let models = home.path().join("models.toml");
    let entry = format!("[[model]]\nname = \"mine\"\npath = {path:?}\nformat = \"hermes\"\nlora = [\"a.gguf:0.5\"]\n");
    std::fs::write(&models, entry).unwrap();
    let inspect = || {
        let mut command = callwright(home.path());
        command.args(["inspect", "mine", "--models"]).arg(&models);
        command
    };
    let ran = run(&mut inspect());
    assert!(ran.out.contains("\ntools and calls  format hermes, as requested\n"), "{}", ran.out);
    let ran = run(inspect().arg("--json"));
    let facts: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(facts["adapters"], serde_json::json!([home.path().join("a.gguf").display().to_string() + ":0.5"]));
}

#[test]
fn inspect_shows_a_broken_model_and_fails() {
    let home = tempfile::tempdir().unwrap();
    let path = GgufBuilder::tiny().set("tokenizer.ggml.eos_token_id", 99).write(home.path(), "broken.gguf");
    let ran = run(callwright(home.path()).arg("inspect").arg(&path));
    assert_eq!(ran.code, 2);
    assert!(ran.out.contains("qwen3"), "{}", ran.out);
    assert!(ran.err.contains("eos_token_id is 99, but the vocabulary has only 16 tokens"), "{}", ran.err);
    let ran = run(callwright(home.path()).args(["inspect", "--json"]).arg(&path));
    assert_eq!(ran.code, 2);
    let facts: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert!(facts["problem"].as_str().unwrap().contains("eos_token_id"));
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn a_broken_model_is_refused_under_the_name_of_the_bundled_one() {
    let home = tempfile::tempdir().unwrap();
    GgufBuilder::tiny().set("tokenizer.ggml.eos_token_id", 99).write(home.path(), "broken.gguf");
    std::fs::write(home.path().join("models.toml"), "[[model]]\nname = \"bundled\"\npath = \"broken.gguf\"\n").unwrap();
    let mut command = program::callwright(home.path());
    let ran = run(command.current_dir(home.path()).args(["run", "Hello", "-m", "bundled", "--models", "models.toml"]));
    assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{ran:?}");
    assert!(ran.err.contains("eos_token_id is 99, but the vocabulary has only 16 tokens"), "{}", ran.err);
}

#[test]
fn a_models_toml_with_a_mistake_is_wrong_input() {
    let home = tempfile::tempdir().unwrap();
    let ran = run(callwright(home.path()).args(["list", "--models", "tests/cases/models/bad/unknown-key.toml"]));
    assert_eq!((ran.code, ran.out.as_str()), (2, ""));
    assert!(ran.err.contains("tests/cases/models/bad/unknown-key.toml:4:1: unknown key"), "{}", ran.err);
}

#[test]
fn every_help_has_an_example() {
    let home = tempfile::tempdir().unwrap();
    for command in ["list", "pull", "inspect"] {
        let ran = run(callwright(home.path()).args([command, "--help"]));
        assert_eq!(ran.code, 0);
        assert!(ran.out.contains(&format!("\n  callwright model {command}")), "{}", ran.out);
    }
}
