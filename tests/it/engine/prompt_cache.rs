//! Prompts that come back from disk: the answer is the same as without, on every kind of model.

use crate::gguf_builder::GgufBuilder;
use crate::program::{callwright, run};
use callwright::Model;
use callwright::engine::sampler::{Sampler, Sampling};
use callwright::engine::{Engine, LoadOptions, PromptFolder, Token};
use callwright::generate::{Generation, Guides, Limits, generate, generate_with};
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
            // What two prompts have in common is known to a recurrent model once it has read the second one; before, it has a place near.
            let least = match (architecture, round) {
                (_, 0) => 0,
                ("mamba", 1) => 512,
                (_, 1..=2) | ("mamba", _) => 700,
                _ => 849,
            };
            let used = cached.usage.cached_tokens;
            assert!(used >= least && (least > 0 || used == 0), "{architecture}, round {round}: {used} tokens");
        }
    }
}

/// How many tokens of `text` are not read again, and the answer with its logits.
fn ask(engine: &mut dyn Engine, text: &str) -> (usize, Vec<Token>, Vec<f32>) {
    let prompt = engine.tokenize(&[Piece { text: text.to_owned(), literal: false }]).unwrap();
    let cancel = AtomicBool::new(false);
    // A draft is computed in one batch, which rounds differently, where an engine has any.
    let guides = Guides { no_drafts: true, ..Guides::default() };
    let (limits, sampler) = (Limits::new(6, &cancel), Sampler::new(Sampling::default()));
    let on_token = &mut |_: &[u8], _| ControlFlow::Continue(());
    let written = generate_with(engine, &prompt, sampler, limits, guides, on_token).unwrap();
    let logits = engine.logits(0).to_vec();
    assert!(!logits.is_empty() && logits.iter().all(|logit| logit.is_finite()));
    (written.usage.cached_tokens, written.tokens, logits)
}

fn in_memory(gguf: &Path, bytes: u64) -> Model {
    let load = LoadOptions::default().with(|load| {
        (load.threads, load.gpu_layers, load.prompt_memory) = (Some(1), Some(0), bytes);
        // A window and as many tokens more are what layers with a window keep: less than most conversations have.
        load.batch = gguf.ends_with("gemma3.gguf").then_some(64);
    });
    Model::builder().load_options(load).open(gguf.to_str().unwrap()).unwrap()
}

/// Messages of a conversation with the beginning of the next one, in tokens of one letter each and two of markup.
fn prompt(messages: &[String]) -> String {
    let message = |message: &String| format!("<start>{message}<end>");
    messages.iter().map(message).collect::<String>() + "<start>z"
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn a_changed_end_costs_the_tokens_after_the_message_before() {
    let folder = tempfile::tempdir().unwrap();
    for architecture in ["lfm2", "qwen35"] {
        let gguf = GgufBuilder::random(architecture).write(folder.path(), &format!("{architecture}.gguf"));
        for count in [0, 1, 3] {
            let model = in_memory(&gguf, 64 << 20);
            let sequences = model.sequences(count.max(1)).unwrap();
            let (mut engine, end) = if count == 0 { (model.engine(), None) } else { sequences.take().unwrap() };
            let mut cached = |messages: &[String]| {
                let cached = ask(&mut *engine, &prompt(messages)).0;
                end.iter().for_each(|end| end.end());
                cached
            };
            let name = format!("{architecture}, {count} sequences");
            let message = |length: usize, seed: usize| letters(length, seed);
            let system = message(300, 3);
            let mut messages = vec![system.clone(), message(60, 5)];
            assert_eq!(cached(&messages), 0, "{name}");
            // The same again: only the last token.
            assert_eq!(cached(&messages), 302 + 62 + 1);
            // An answer that comes back in other words, and a result.
            messages.extend([format!("z{}", message(19, 7)), message(100, 9)]);
            assert!(cached(&messages) >= 302 + 62 + 2, "{name}");
            // The result is edited.
            messages[3] = message(100, 11);
            assert_eq!(cached(&messages), 302 + 62 + 22);
            // The answer before it is, from its beginning.
            messages[2] = message(10, 13);
            assert_eq!(cached(&messages), 302 + 62 + 1);
            // New conversations with the same beginning.
            for seed in [17, 19, 23] {
                assert_eq!(cached(&[system.clone(), message(80, seed)]), 302, "{name}");
            }
            // The first one comes back.
            messages.push(message(30, 29));
            assert_eq!(cached(&messages), 302 + 62 + 12 + 102 + 1, "{name}");
            // Another sequence of a context takes over what it can.
            if count > 1 {
                let (mut other, end) = sequences.take().unwrap();
                assert_eq!(ask(&mut *other, &prompt(&[system, message(40, 31)])).0, 302, "{name}");
                end.iter().for_each(|end| end.end());
            }
        }
    }
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn answers_are_the_same_after_any_edits_of_a_conversation() {
    // More of them: CALLWRIGHT_EDITS=500
    let edits = std::env::var("CALLWRIGHT_EDITS").ok().and_then(|count| count.parse().ok()).unwrap_or(24);
    let folder = tempfile::tempdir().unwrap();
    for architecture in ["llama", "mamba", "lfm2", "qwen35", "gemma3"] {
        let gguf = GgufBuilder::random(architecture).write(folder.path(), &format!("{architecture}.gguf"));
        // What is kept in memory is enough for a few conversations, or for a few checkpoints.
        for (memory, count) in [(8 << 20, 1), (200 << 10, 1), (8 << 20, 2)] {
            let model = in_memory(&gguf, memory);
            let sequences = model.sequences(count).unwrap();
            let mut engines: Vec<_> = (0..count).map(|_| sequences.take().unwrap()).collect();
            if count == 1 {
                engines.push((model.engine(), None));
            }
            let without = in_memory(&gguf, 0);
            let mut random = edits as u64 * 1000 + memory + count as u64;
            let mut next = |below: usize| {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (random >> 33) as usize % below
            };
            // No message begins as an answer does: its tokens were computed one by one, which rounds numbers of 32 bits differently.
            let message = |length: usize, seed: usize| format!("a{}", letters(length, seed));
            let first = || vec![letters(150, 3), letters(30, 5)];
            let mut conversations = [first(), first(), first()];
            let (mut read, mut all) = (0, 0);
            for edit in 0..edits {
                let messages = &mut conversations[next(3)];
                let place = next(messages.len());
                match next(8) {
                    0 => messages[place] = message(next(60), next(100)),
                    1 => drop(messages.pop()),
                    2 => *messages = first(),
                    3 => messages.truncate(place + 1),
                    4 => {}
                    _ => messages.push(message(next(90), next(100))),
                }
                if messages.is_empty() || messages.iter().map(String::len).sum::<usize>() > 1500 {
                    *messages = first();
                }
                let text = prompt(messages);
                let which = next(engines.len());
                let (engine, end) = &mut engines[which];
                let (cached, tokens, logits) = ask(&mut **engine, &text);
                end.iter().for_each(|end| end.end());
                let alone = ask(&mut *without.engine(), &text);
                let place = format!(
                    "{architecture}, {memory} bytes, engine {which} of {count}, edit {edit}, {cached} cached: {text}"
                );
                assert_eq!(tokens, alone.1, "{place}");
                // Where sequences share a context, what else is in it changes how sums are rounded.
                assert!(logits == alone.2 || count > 1, "{place}");
                (read, all) = (read + text.len() - cached, all + text.len());
            }
            assert!(memory < 1 << 20 || read < all, "{architecture}: {read} of {all} were read");
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
