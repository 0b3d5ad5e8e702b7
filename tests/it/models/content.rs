//! An entry of models.toml applies to its file however that is named.

use crate::gguf_builder::GgufBuilder;
use crate::models::hub_server::sha256;
use crate::program::{callwright, run};
use callwright::models::Hub;
use callwright::{ErrorKind, Model};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const BUNDLED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/models/callwright-tiny.gguf");
const TOOLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/weather.json");

/// What settings do, and what they are in an entry.
const SETTINGS: &str = "sampling = { temperature = 0.5, top_k = 30 }\ncall_threshold = 0.25\nno_call_below = 0.125\n";

/// A file with these entries.
fn models(folder: &Path, name: &str, entries: &[String]) -> PathBuf {
    let text: String = entries.iter().map(|entry| format!("[[model]]\n{entry}\n")).collect();
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

/// A copy of the bundled model.
fn copy(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::copy(BUNDLED, &path).unwrap();
    path
}

fn inspected(home: &Path, models: &Path, model: &Path) -> Value {
    let mut command = callwright(home);
    let ran = run(command.args(["model", "--models"]).arg(models).args(["inspect", "--json"]).arg(model));
    assert_eq!(ran.code, 0, "{}", ran.err);
    serde_json::from_str(&ran.out).unwrap()
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn a_file_has_the_settings_of_its_entry_wherever_it_lies() {
    let home = tempfile::tempdir().unwrap();
    let [here, there] = ["here.gguf", "there.gguf"].map(|name| copy(home.path(), name));
    let other = GgufBuilder::random("llama").write(home.path(), "other.gguf");
    let toml = models(home.path(), "models.toml", &[format!("name = \"mine\"\npath = \"here.gguf\"\n{SETTINGS}")]);
    let open = |model: &str| {
        let builder = Model::builder().models_file(&toml).hub(Hub::new(home.path()));
        builder.open(model).unwrap().session().unwrap().options().clone()
    };
    for model in ["mine", here.to_str().unwrap(), there.to_str().unwrap(), "bundled"] {
        let options = open(model);
        assert_eq!((options.call_threshold, options.no_call_below), (Some(0.25), Some(0.125)), "{model}");
        assert_eq!((options.sampling.temperature, options.sampling.top_k), (0.5, 30), "{model}");
    }
    assert_eq!(open(other.to_str().unwrap()).call_threshold, None);

    for model in ["mine", there.to_str().unwrap()] {
        let bare = Model::builder().models_file(&toml).no_entry().open(model).unwrap().session().unwrap();
        assert_eq!((bare.options().call_threshold, bare.options().sampling.temperature), (None, 0.0), "{model}");
    }
    // A threshold is one of the entry's own format.
    let format = Model::builder().models_file(&toml).format("hermes").open(there.to_str().unwrap()).unwrap();
    let options = format.session().unwrap().options().clone();
    assert_eq!((options.call_threshold, options.sampling.temperature), (None, 0.5));
    // The entry's template is read before the model is loaded.
    models(home.path(), "models.toml", &["name = \"mine\"\npath = \"here.gguf\"\ntemplate = \"no.jinja\"".to_owned()]);
    let missing = Model::builder().models_file(&toml).open(there.to_str().unwrap()).map(|_| ()).unwrap_err();
    assert!(missing.kind() == ErrorKind::Io && missing.to_string().contains("no.jinja"), "{missing}");
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn a_prompt_asks_for_an_answer_after_a_result_if_the_entry_says_so() {
    let home = tempfile::tempdir().unwrap();
    copy(home.path(), "here.gguf");
    let call = |id: &str| json!({"id": id, "type": "function", "function": {"name": "warmth", "arguments": "{}"}});
    let changing = json!({"id": "e", "type": "function", "function": {"name": "heat", "arguments": "{}"}});
    let finding = json!({"id": "f", "type": "function", "function": {"name": "find_tools", "arguments": "{}"}});
    let tools = json!([{"name": "warmth"}, {"name": "heat", "x-effect": "write"}]);
    std::fs::write(home.path().join("tools.json"), tools.to_string()).unwrap();
    let result = |id: &str, text: &str| json!({"role": "tool", "tool_call_id": id, "content": text});
    let conversation = json!([
        {"role": "user", "content": "Is it warm?"},
        {"role": "assistant", "content": null, "tool_calls": [call("a"), call("b")]},
        result("a", "3 degrees"), result("b", "4 degrees"),
        {"role": "assistant", "content": "No."},
        {"role": "user", "content": "And now?"},
        {"role": "assistant", "content": null, "tool_calls": [call("c")]}, result("c", "5 degrees"),
        {"role": "assistant", "content": null, "tool_calls": [call("d")]}, result("d", "{\"error\": \"no network\"}"),
        {"role": "assistant", "content": null, "tool_calls": [changing]}, result("e", "6 degrees"),
        {"role": "assistant", "content": null, "tool_calls": [finding]}, result("f", "call heat"),
    ]);
    std::fs::write(home.path().join("messages.json"), conversation.to_string()).unwrap();
    let prompt = |settings: &str| {
        let toml = models(home.path(), "models.toml", &[format!("name = \"mine\"\npath = \"here.gguf\"\n{settings}")]);
        let mut command = callwright(home.path());
        let ran = run(command
            .current_dir(home.path())
            .args(["render", "-m", "here.gguf", "--messages", "messages.json", "--tools", "tools.json", "--models"])
            .arg(toml));
        assert_eq!(ran.code, 0, "{}", ran.err);
        ran.out
    };
    // After an error it would be wrong; a change, and tools that were found, may be followed by another call.
    let asked = prompt("ask_for_answers = true");
    let results: Vec<&str> = asked.split("Now answer the question in words, with these results.").collect();
    assert_eq!(results.len(), 3, "{asked}");
    assert!(results[0].contains("4 degrees") && results[1].contains("5 degrees"), "{asked}");
    assert!(results[2].contains("no network") && results[2].contains("6 degrees"), "{asked}");
    assert!(!prompt("").contains("Now answer the question"));
}

#[test]
fn of_several_entries_the_users_own_is_first() {
    let home = tempfile::tempdir().unwrap();
    let file = GgufBuilder::tiny().write(home.path(), "tiny.gguf");
    let fingerprint = inspected(home.path(), &models(home.path(), "none.toml", &[]), &file)["fingerprint"].clone();
    let entry =
        |name: &str| format!("name = {name:?}\npath = \"/absent.gguf\"\nfingerprint = {fingerprint}\n{SETTINGS}");
    let own = models(home.path(), "own.toml", &[entry("first"), entry("second")]);
    assert_eq!(inspected(home.path(), &own, &file)["entry"], "first");
    // The file that is given comes before the one that is always read.
    let config = home.path().join("config/callwright");
    std::fs::create_dir_all(&config).unwrap();
    models(&config, "models.toml", &[entry("always")]);
    assert_eq!(inspected(home.path(), &own, &file)["entry"], "first");
    assert_eq!(inspected(home.path(), &home.path().join("none.toml"), &file)["entry"], "always");
    // Other metadata, another fingerprint.
    let other = GgufBuilder::tiny().set("general.name", "Other").write(home.path(), "other.gguf");
    assert_eq!(inspected(home.path(), &own, &other)["entry"], Value::Null);
}

#[test]
fn a_file_of_the_hub_is_known_by_its_hash() {
    let home = tempfile::tempdir().unwrap();
    let path = GgufBuilder::tiny().write(home.path(), "copy.gguf");
    let content = std::fs::read(&path).unwrap();
    let entry = |sum: &str, size: usize| {
        format!("name = \"known\"\nrepo = \"org/repo\"\nfile = \"m.gguf\"\nsha256 = {sum:?}\nsize = {size}\n{SETTINGS}")
    };
    let right = models(home.path(), "right.toml", &[entry(&sha256(&content), content.len())]);
    for _ in 0..2 {
        // The second time, the hash comes from the cache.
        assert_eq!(inspected(home.path(), &right, &path)["entry"], "known");
    }
    let mut changed = content.clone();
    *changed.last_mut().unwrap() ^= 1;
    std::fs::write(&path, &changed).unwrap();
    assert_eq!(inspected(home.path(), &right, &path)["entry"], Value::Null);
    // In the hub's cache, a file's name is its hash.
    let blob = home.path().join(sha256(&content));
    std::fs::write(&blob, &content).unwrap();
    let unsized_entry = entry(&sha256(&content), 1);
    let by_name = models(home.path(), "by-name.toml", &[unsized_entry]);
    assert_eq!(inspected(home.path(), &by_name, &blob)["entry"], "known");
}

#[test]
fn a_fingerprint_that_is_none_is_a_mistake() {
    let home = tempfile::tempdir().unwrap();
    for (entry, expected) in [
        ("name = \"a\"\npath = \"a.gguf\"\nfingerprint = \"12\"", "a sha256 has 64 hexadecimal digits"),
        ("name = \"a\"\nurl = \"http://host/v1\"\nfingerprint = \"12\"", "has both \"url\" and \"fingerprint\""),
    ] {
        let toml = models(home.path(), "models.toml", &[entry.to_owned()]);
        let ran = run(callwright(home.path()).args(["model", "list", "--models"]).arg(&toml));
        assert!(ran.code == 2 && ran.err.contains(expected), "{}", ran.err);
    }
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn a_run_is_the_same_by_path_and_by_name() {
    let home = tempfile::tempdir().unwrap();
    let path = copy(home.path(), "elsewhere.gguf");
    let toml = models(home.path(), "models.toml", &[format!("name = \"mine\"\npath = \"here.gguf\"\n{SETTINGS}")]);
    copy(home.path(), "here.gguf");
    let ask = |arguments: &[&str]| {
        let mut command = callwright(home.path());
        command.args(["run", "--output", "json", "--tools", TOOLS, "--seed", "1", "-n", "60"]);
        let ran = run(command.args(arguments).arg("What's the weather in Oslo tomorrow?"));
        assert_eq!(ran.code, 0, "{}", ran.err);
        let mut document: Value = serde_json::from_str(&ran.out).unwrap();
        for time in ["prompt_seconds", "completion_seconds"] {
            document["usage"][time] = Value::Null;
        }
        document
    };
    let toml = toml.to_str().unwrap();
    let by_name = ask(&["--models", toml, "-m", "mine"]);
    assert_eq!(by_name["decided"], "call", "{by_name}");
    assert_eq!(by_name["diagnostics"][0]["message"], format!("the entry mine of {toml} applies"));
    let path = path.to_str().unwrap();
    assert_eq!(ask(&["--models", toml, "-m", path]), by_name);
    // Without an entry a copy is the bundled model.
    let bare = ask(&["--models", toml, "-m", path, "--no-entry"]);
    assert_eq!(bare["decided"], Value::Null, "{bare}");
    assert_eq!(ask(&[]), bare);
    assert_eq!(ask(&["-m", path]), bare);
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn a_benchmark_is_the_same_by_path_and_by_name() {
    let home = tempfile::tempdir().unwrap();
    let path = copy(home.path(), "elsewhere.gguf");
    copy(home.path(), "here.gguf");
    let toml = models(home.path(), "models.toml", &[format!("name = \"mine\"\npath = \"here.gguf\"\n{SETTINGS}")]);
    let bench = |model: &str| {
        let out = home.path().join(format!("run-{}", model.len()));
        let mut command = callwright(home.path());
        command.args(["bench", "--limit", "3", "--max-tokens", "40", "-m", model, "--models"]).arg(&toml);
        let ran = run(command.arg("--out").arg(&out));
        assert_eq!(ran.code, 0, "{}", ran.err);
        let plan: Value = serde_json::from_str(&std::fs::read_to_string(out.join("run.json")).unwrap()).unwrap();
        let samples = std::fs::read_to_string(out.join("samples.jsonl")).unwrap();
        let answers: Vec<[Value; 4]> = samples
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap())
            .map(|sample| ["case", "seed", "raw", "decided"].map(|key| sample[key].clone()))
            .collect();
        let configuration = &plan["configurations"][0];
        (["call_threshold", "no_call_below", "sampling"].map(|key| configuration[key].clone()), answers)
    };
    let by_name = bench("mine");
    assert_eq!((by_name.0[0].as_f64(), by_name.1.len()), (Some(0.25), 3));
    assert_eq!(bench(path.to_str().unwrap()), by_name);
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn a_threshold_that_was_found_with_a_path_is_found_again_after_the_file_moved() {
    let home = tempfile::tempdir().unwrap();
    let path = copy(home.path(), "qwen3-0.6b.gguf");
    let toml = home.path().join("found.toml");
    let calibrate = |path: &Path| {
        let mut command = callwright(home.path());
        command.args(["bench", "calibrate", "--limit", "24", "--folds", "2", "--write"]).arg(&toml).arg("-m").arg(path);
        let ran = run(&mut command);
        assert_eq!(ran.code, 0, "{}", ran.err);
        std::fs::read_to_string(&toml).unwrap()
    };
    let once = calibrate(&path);
    let fingerprint = inspected(home.path(), &toml, &path)["fingerprint"].as_str().unwrap().to_owned();
    // The file's name is that of another, built-in model, which keeps its entry.
    let name = format!("qwen3-0.6b-{}", &fingerprint[..8]);
    assert!(once.contains(&format!("name = \"{name}\"")) && once.contains(&fingerprint), "{once}");
    let moved = home.path().join("moved.gguf");
    std::fs::rename(&path, &moved).unwrap();
    assert_eq!(inspected(home.path(), &toml, &moved)["entry"], *name);
    let model = Model::builder().models_file(&toml).open(moved.to_str().unwrap()).unwrap();
    let threshold = model.session().unwrap().options().call_threshold.unwrap();
    assert!(once.contains(&format!("call_threshold = {threshold:?}")), "{once}");
    let mut again = callwright(home.path());
    again.args(["bench", "calibrate", "--limit", "24", "--folds", "2", "--models"]).arg(&toml);
    let ran = run(again.arg("--write").arg(&toml).arg("-m").arg(&moved));
    assert_eq!(ran.code, 0, "{}", ran.err);
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
    let twice = std::fs::read_to_string(&toml).unwrap();
    assert_eq!((lines(&twice), twice.lines().count()), (lines(&once), once.lines().count()), "the same entry");
}
