//! Options as users of llama.cpp and others type them.

use crate::program::{callwright, run};

#[test]
fn short_options_are_those_of_llama_cpp() {
    let home = tempfile::tempdir().unwrap();
    let options = ["-p", "Tell me all.", "-n", "3", "-c", "512", "-t", "1", "-ngl", "0", "--temperature", "0"];
    let ran = run(callwright(home.path()).arg("run").args(options));
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.err.contains("cut off by --max-tokens 3"), "{ran:?}");
    let long = ["--prompt", "Tell me all.", "--n-predict", "3", "--ctx-size", "512", "--n-gpu-layers", "0"];
    assert_eq!(run(callwright(home.path()).arg("run").args(long)).out, ran.out);
    let negative = run(callwright(home.path()).args(["render", "-p", "-1 + 1 = ?"]));
    assert!(negative.code == 0 && negative.out.contains("-1 + 1 = ?"), "{negative:?}");
    let twice = run(callwright(home.path()).args(["run", "Hello", "-p", "Hello"]));
    assert!(twice.code == 2 && twice.err.contains("cannot be used with"), "{twice:?}");
}

#[test]
fn an_option_of_another_program_is_answered_with_the_one_that_means_it() {
    let home = tempfile::tempdir().unwrap();
    for (typed, meant) in [
        ("--predict", "--max-tokens"),
        ("--num_predict", "--max-tokens"),
        ("--max-new-tokens", "--max-tokens"),
        ("--num_ctx", "--ctx"),
        ("--system-prompt", "--system"),
        ("--repetition_penalty", "--repeat-penalty"),
        ("--max-tokns", "--max-tokens"),
    ] {
        let ran = run(callwright(home.path()).args(["run", "Hello", typed, "5"]));
        assert!(
            ran.code == 2 && ran.err.contains(&format!("a similar argument exists: '{meant}'")),
            "{typed}: {ran:?}"
        );
    }
    let other = run(callwright(home.path()).args(["model", "list", "--num_predict", "5"]));
    assert!(other.code == 2 && !other.err.contains("--max-tokens"), "{other:?}");
}
