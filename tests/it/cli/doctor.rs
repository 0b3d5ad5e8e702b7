//! `doctor`, `completions` and `man`.

use crate::gguf_builder::GgufBuilder;
use crate::program::{callwright, run};
use assert_cmd::Command;
use serde_json::Value;

fn report(command: &mut Command, code: i32) -> Value {
    let ran = run(command.args(["--output", "json"]));
    assert_eq!((ran.code, ran.err.as_str()), (code, ""));
    serde_json::from_str(&ran.out).unwrap()
}

/// The command that helps where a problem has these words.
fn command_for<'a>(report: &'a Value, words: &str) -> Option<&'a str> {
    let advice = report["advice"].as_array().unwrap();
    let found = advice.iter().find(|one| one["problem"].as_str().unwrap().contains(words))?;
    found["command"].as_str()
}

#[test]
fn the_doctor_sees_what_is_there() {
    let home = tempfile::tempdir().unwrap();
    let before = report(callwright(home.path()).arg("doctor"), 0);
    assert_eq!(before["folders"]["hub"]["bytes"], 0);
    assert_eq!(before["folders"]["config"]["exists"], false);
    assert!(before["processor"]["cores"].as_u64().unwrap() > 0);
    assert_eq!(before["threads"].as_array().map(Vec::len), Some(0));
    if before["gpu"]["backends"] == serde_json::json!([]) {
        assert_eq!(before["gpu"]["used"], serde_json::json!([]), "a GPU without a backend");
    }
    let features = before["features"].as_array().unwrap();
    for (name, on) in [
        ("llama", cfg!(feature = "llama")),
        ("serve", cfg!(feature = "serve")),
        ("mcp", cfg!(feature = "mcp")),
        ("remote", cfg!(feature = "remote")),
        ("hub", cfg!(feature = "hub")),
    ] {
        assert_eq!(features.iter().any(|one| one == name), on, "{name}");
    }
    assert_eq!(command_for(&before, "no engine").is_some(), cfg!(not(feature = "llama")));
    assert_eq!(command_for(&before, "are not finished"), None);

    let config = home.path().join("config/callwright");
    std::fs::create_dir_all(&config).unwrap();
    let path = GgufBuilder::tiny().write(home.path(), "tiny-Q8_0.gguf");
    std::fs::write(config.join("models.toml"), format!("[[model]]\nname = \"own\"\npath = {path:?}\n")).unwrap();
    std::fs::write(config.join("config.toml"), "ctx = 4096\n").unwrap();
    let blobs = home.path().join("hf/hub/models--a--b/blobs");
    std::fs::create_dir_all(&blobs).unwrap();
    std::fs::write(blobs.join("1"), vec![0; 3000]).unwrap();
    std::fs::write(blobs.join("2.part"), vec![0; 500]).unwrap();
    std::fs::write(blobs.join("3.part"), vec![0; 500]).unwrap();
    let after = report(callwright(home.path()).arg("doctor"), 0);
    assert_eq!(after["folders"]["hub"]["bytes"], 4000);
    assert_eq!(after["folders"]["config"]["bytes"], 11);
    let own = after["models"].as_array().unwrap().iter().find(|model| model["name"] == "own").unwrap();
    assert_eq!(own["bytes"], std::fs::metadata(&path).unwrap().len());
    let helps = command_for(&after, "2 downloads are not finished").unwrap();
    assert!(helps.starts_with("callwright model pull"), "{helps}");
    assert_eq!(command_for(&after, "only the bundled model"), None);
}

#[test]
fn the_doctor_reports_broken_settings_and_goes_on() {
    let home = tempfile::tempdir().unwrap();
    let config = home.path().join("config/callwright");
    std::fs::create_dir_all(&config).unwrap();
    std::fs::write(config.join("config.toml"), "thraeds = 4\n").unwrap();
    std::fs::write(config.join("models.toml"), "[[model]]\nnam = 1\n").unwrap();
    let report = report(callwright(home.path()).arg("doctor"), 2);
    assert_eq!(
        command_for(&report, "did you mean `threads`?"),
        Some(&*format!("edit {}", config.join("config.toml").display()))
    );
    assert_eq!(
        command_for(&report, "unknown key \"nam\""),
        Some(&*format!("edit {}", config.join("models.toml").display()))
    );
}

#[test]
fn the_doctor_says_whether_a_model_fits_and_what_of_it_is_slow() {
    let home = tempfile::tempdir().unwrap();
    let path = GgufBuilder::random("lfm2").write(home.path(), "small.gguf");
    let small = report(callwright(home.path()).args(["doctor", "-m", path.to_str().unwrap()]), 0);
    assert_eq!(small["model"]["bytes"], std::fs::metadata(&path).unwrap().len());
    assert_eq!((&small["model"]["bytes_per_token"], &small["model"]["quantization"]), (&128.into(), &"F32".into()));
    assert_eq!(command_for(&small, "of memory are free"), None);
    if small["gpu"]["used"] == serde_json::json!([]) {
        assert!(command_for(&small, "its weights are F32").unwrap().contains("OUT.gguf Q8_0"));
        assert!(command_for(&small, "it is a hybrid").unwrap().contains("--flash-attn on"));
    }
    let none = run(callwright(home.path()).args(["doctor", "-m", "no-such-model"]));
    assert!(none.code != 0 && none.err.contains("no-such-model"), "{none:?}");
}

/// The labels of the report, whose values differ from machine to machine.
#[test]
fn the_report_has_a_line_for_each_fact() {
    let home = tempfile::tempdir().unwrap();
    let ran = run(callwright(home.path()).arg("doctor"));
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let (facts, advice) = ran.out.split_once("\n\n").unwrap();
    let mut labels: Vec<&str> = facts.lines().map(|line| line.split("  ").next().unwrap()).collect();
    // Only in a build with a GPU backend.
    labels.retain(|label| *label != "GPUs used");
    insta::assert_snapshot!(labels.join("\n"));
    for line in advice.lines().filter(|line| line.starts_with(' ')) {
        assert!(line.starts_with("  → "), "{line}");
    }
    assert!(!advice.trim().is_empty());
}

#[test]
fn completions_name_commands_and_options() {
    let home = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let ran = run(callwright(home.path()).args(["completions", shell]));
        assert_eq!((ran.code, ran.err.as_str()), (0, ""));
        for word in ["parse", "other-forms", "calibrate", "doctor"] {
            assert!(ran.out.contains(word), "{shell}: {word}");
        }
    }
    let ran = run(callwright(home.path()).args(["completions", "csh"]));
    assert!(ran.code == 2 && ran.err.contains("possible values: bash"), "{}", ran.err);
}

/// bash's own answer, where there is a bash.
#[test]
fn bash_completes_a_command() {
    let home = tempfile::tempdir().unwrap();
    let script = home.path().join("callwright.bash");
    std::fs::write(&script, run(callwright(home.path()).args(["completions", "bash"])).out).unwrap();
    let typed = "source \"$1\"; COMP_WORDS=(callwright parse --other); COMP_CWORD=2; \
        _callwright callwright --other parse; printf '%s\\n' \"${COMPREPLY[@]}\"";
    let ran = std::process::Command::new("bash").args(["-c", typed, "bash"]).arg(&script).output();
    let Ok(ran) = ran else { return };
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "--other-forms\n", "{}", String::from_utf8_lossy(&ran.stderr));
}

#[test]
fn each_command_has_a_manual_page() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("man/man1");
    let ran = run(callwright(home.path()).arg("man").arg(&folder));
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "", ""));
    let page =
        |name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(page("callwright.1").contains("Reliable tool calls"));
    assert!(page("callwright-parse.1").contains("other\\-forms"));
    assert!(page("callwright-bench-calibrate.1").contains("calibrate"));
    let ran = run(callwright(home.path()).args(["man", "/dev/null/x"]));
    assert!(ran.code == 2 && ran.err.contains("cannot create"), "{}", ran.err);
}
