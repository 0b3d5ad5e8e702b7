//! Options as users of llama.cpp and others type them.

use crate::program::{callwright, run};

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
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

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn options_of_several_letters_are_used_or_ignored_or_refused_in_words() {
    let home = tempfile::tempdir().unwrap();
    let ran =
        run(callwright(home.path()).args(["render", "-p", "Hi", "-sys", "Be brief.", "-np", "4", "-fa", "on", "-cb"]));
    assert!(ran.code == 0 && ran.out.contains("Be brief.") && ran.out.contains("<|user|>Hi<|end|>"), "{ran:?}");
    let note = "note: -np, -cb are options of llama.cpp without a counterpart here; they would not change the answer";
    assert!(ran.err.contains(note), "{ran:?}");
    for (option, hint) in
        [("-cnv", "hint: callwright chat"), ("-sysf", "--system \"$(cat FILE)\""), ("-mu", "download the file")]
    {
        let ran = run(callwright(home.path()).args(["run", option, "x", "-p", "Hi"]));
        let said = format!("error: {option} is an option of llama.cpp that has no counterpart here");
        assert!(ran.code == 2 && ran.err.contains(&said) && ran.err.contains(hint), "{option}: {ran:?}");
    }
    let unknown = run(callwright(home.path()).args(["run", "--frobnicate", "Hi"]));
    assert!(
        unknown.code == 2 && unknown.err.contains("--frobnicate") && !unknown.err.contains("as a value"),
        "{unknown:?}"
    );
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn numbers_that_mean_something_in_llama_cpp_mean_that() {
    let home = tempfile::tempdir().unwrap();
    let question = ["run", "-p", "Tell me all.", "-c", "512"];
    let ask = |more: &[&str]| run(callwright(home.path()).args(question).args(more));
    let random = ask(&["-n", "4", "-s", "-1", "-ngl", "all", "--top-k", "-1", "--temp", "1"]);
    let seed =
        random.err.split("--seed ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap_or_default().to_owned();
    assert!(random.code == 0 && random.err.contains("the seed is chosen at random: --seed "), "{random:?}");
    assert_eq!(ask(&["-n", "4", "-s", &seed, "--top-k", "0", "--temp", "1"]).out, random.out);
    for layers in ["-1", "auto", "99"] {
        assert_eq!(ask(&["-n", "2", "-ngl", layers]).code, 0, "{layers}");
    }
    let grammar = home.path().join("endless.lark");
    std::fs::write(&grammar, "start: /(on and )+/\n").unwrap();
    let endless = ask(&["-n", "-1", "--grammar", grammar.to_str().unwrap()]);
    assert!(endless.err.contains("--ctx") && !endless.err.contains("cut off by --max-tokens"), "{endless:?}");
    for (option, value, said) in [
        ("-s", "-2", "or -1 for one at random"),
        ("-n", "0", "or -1 for as long as the context lasts"),
        ("-ngl", "most", "not a whole number from 0 up, or all"),
        ("--top-k", "-5", "where 0 is all"),
    ] {
        let ran = ask(&[option, value]);
        assert!(ran.code == 2 && ran.err.contains(said), "{option} {value}: {ran:?}");
    }
}
