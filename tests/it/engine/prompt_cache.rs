//! Prompts that come back from disk: the answer is the same as without, on every kind of model.

use crate::gguf_builder::GgufBuilder;
use crate::program::{callwright, run};
use callwright::Model;
use callwright::engine::sampler::Sampling;
use callwright::engine::{Engine, LoadOptions, PromptFolder};
use callwright::generate::{Generation, Limits, generate};
use callwright::template::Piece;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::AtomicBool;

fn open(gguf: &Path, cache: Option<&Path>, threads: usize) -> Box<dyn Engine> {
    let load = LoadOptions::default().with(|load| {
        load.threads = Some(threads);
        load.prompt_cache = cache.map(|folder| {
            let mut kept = PromptFolder::new(folder);
            kept.always = true;
            kept
        });
    });
    Model::builder().load_options(load).open(gguf.to_str().unwrap()).unwrap().engine()
}

fn write(mut engine: Box<dyn Engine>, text: &str) -> Generation {
    let prompt = engine.tokenize(&[Piece { text: text.to_owned(), literal: false }]).unwrap();
    let cancel = AtomicBool::new(false);
    let limits = Limits::new(40, &cancel);
    generate(&mut *engine, &prompt, &Sampling::default(), limits, None, &mut |_, _| ControlFlow::Continue(())).unwrap()
}

/// Letters in no order.
fn letters(count: usize, seed: usize) -> String {
    let letter = |index: usize| char::from(b'a' + ((index * index + index * seed + seed) % 26) as u8);
    (0..count).map(letter).collect()
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn answers_are_the_same_with_and_without_the_cache_on_every_architecture() {
    let folder = tempfile::tempdir().unwrap();
    for architecture in ["llama", "mamba"] {
        let gguf = GgufBuilder::random(architecture).write(folder.path(), &format!("{architecture}.gguf"));
        let cache = folder.path().join(architecture);
        let beginning = letters(700, 3);
        let prompts = [5, 7, 11].map(|seed| format!("{beginning}{}", letters(150, seed)));
        for (round, text) in prompts.iter().chain(&prompts).enumerate() {
            let alone = write(open(&gguf, None, 1), text);
            let cached = write(open(&gguf, Some(&cache), 2), text);
            assert_eq!(alone.tokens, cached.tokens, "{architecture}, round {round}");
            // What two prompts have in common is known to a recurrent model once it has read the second one.
            let least = match (architecture, round) {
                (_, 0) | ("mamba", 1) => 0,
                (_, 1..=2) | ("mamba", _) => 700,
                _ => 849,
            };
            let used = cached.usage.cached_tokens;
            assert!(used >= least && (least > 0 || used == 0), "{architecture}, round {round}: {used} tokens");
        }
    }
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn the_program_lists_and_clears_what_it_keeps() {
    let home = tempfile::tempdir().unwrap();
    let cache = home.path().join("kept");
    let ask = |question: &str| {
        let ran = run(callwright(home.path())
            .args(["run", question, "--output", "json", "-n", "8", "-t", "1", "--gpu-layers", "0", "--prompt-cache"])
            .arg(&cache));
        assert_eq!(ran.code, 0, "{ran:?}");
        let answer: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
        (
            answer["messages"][1]["content"].as_str().unwrap().to_owned(),
            answer["usage"]["cached_tokens"].as_u64().unwrap(),
        )
    };
    let question = "Tell me of seven rivers, two mountains and the sea behind them, and of all who live there.";
    let (first, none) = ask(question);
    let (again, cached) = ask(question);
    assert!(first == again && none == 0 && cached > 20, "{first} {again} {cached}");

    let list = || run(callwright(home.path()).args(["cache", "list", "--prompt-cache"]).arg(&cache));
    let listed = list();
    assert!(listed.code == 0 && listed.out.contains("MODEL") && listed.out.contains(" tokens "), "{listed:?}");
    let json = run(callwright(home.path()).args(["cache", "list", "--output", "json", "--prompt-cache"]).arg(&cache));
    let json: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(json[0]["prompts"], 1);
    let cleared = run(callwright(home.path()).args(["cache", "clear", "--prompt-cache"]).arg(&cache));
    assert!(cleared.code == 0 && cleared.out.starts_with("removed 1 prompt, "), "{cleared:?}");
    let empty = list();
    assert!(empty.out.is_empty() && empty.err.contains("no prompts are kept in"), "{empty:?}");
    assert_eq!(ask(question).1, 0);
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn the_cache_is_off_where_that_is_asked_for_and_short_prompts_are_not_kept() {
    let home = tempfile::tempdir().unwrap();
    for more in [&[][..], &["--prompt-cache", "off"]] {
        let ran = run(callwright(home.path()).args(["run", "Hello", "-n", "4"]).args(more));
        assert_eq!(ran.code, 0, "{ran:?}");
        let listed = run(callwright(home.path()).args(["cache", "list"]));
        assert!(listed.err.contains("no prompts are kept in"), "{listed:?}");
    }
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn options_for_this_machine_are_taken_or_refused_in_words() {
    let home = tempfile::tempdir().unwrap();
    let ask = |more: &[&str]| run(callwright(home.path()).args(["run", "Hello", "-n", "4"]).args(more));
    let plain = ask(&[]);
    for more in [
        &["--no-mmap"][..],
        &["--flash-attn", "off"],
        &["-ub", "64", "-tb", "1"],
        &["--cache-ram", "0", "--prompt-cache-size", "1M"],
    ] {
        assert_eq!((ask(more).code, ask(more).out), (0, plain.out.clone()), "{more:?}");
    }
    for more in [&["-ctk", "q8_0", "-ctv", "q8_0"][..], &["--cache-type-k", "f32", "-fa"], &["-ctv", "bf16"]] {
        assert_eq!(ask(more).code, 0, "{more:?}: {:?}", ask(more));
    }
    let wrong = ask(&["--cache-type-k", "q3"]);
    assert!(wrong.code == 2 && wrong.err.contains("possible values: f32, f16"), "{wrong:?}");
    let size = ask(&["--cache-ram", "much"]);
    assert!(size.code == 2 && size.err.contains("not a size, such as 512M or 8G"), "{size:?}");
}
