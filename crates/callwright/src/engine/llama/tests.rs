//! How a model is run changes the time, and not the answer: on the bundled model.

use super::*;
use crate::engine::LoraAdapter;
use crate::engine::PromptFolder;
use crate::engine::sampler::Sampling;
use crate::generate::{Generation, Limits, generate};
use crate::models::bundled;
use crate::models::gguf::tests::gguf_builder::GgufBuilder;
use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;

/// On the CPU also in a build for a GPU, which has other ways to be fast.
fn load(set: impl FnOnce(&mut LoadOptions)) -> LlamaEngine {
    let on_cpu = LoadOptions::default().with(|load| load.gpu_layers = Some(0));
    LlamaEngine::load(&bundled::path().unwrap(), on_cpu.with(set)).unwrap()
}

fn prompt(engine: &LlamaEngine, times: usize, end: &str) -> Vec<Token> {
    let beginning = "<|user|>Tell me a story about seven rivers, two mountains and the sea behind them. ".repeat(times);
    engine.tokenize(&[Piece { text: format!("{beginning}{end}<|end|><|assistant|>"), literal: false }]).unwrap()
}

fn write(engine: &mut dyn Engine, prompt: &[Token]) -> Generation {
    let cancel = AtomicBool::new(false);
    let limits = Limits::new(24, &cancel);
    generate(engine, prompt, &Sampling::default(), limits, None, &mut |_, _| ControlFlow::Continue(())).unwrap()
}

/// One that reads long prompts with flash attention; the bundled model is too small to do so by itself.
fn moving(set: impl FnOnce(&mut LoadOptions)) -> LlamaEngine {
    LlamaEngine { can_move: true, ..load(set) }
}

/// The logits after a prompt, and after a few tokens more.
fn logits(engine: &mut LlamaEngine, prompt: &[Token]) -> Vec<f32> {
    engine.reserve(prompt.len() + 8, prompt.len() + 8).unwrap();
    let last = prompt.len() - 1;
    engine.truncate(last);
    engine.decode(&prompt[engine.cached.len()..last]).unwrap();
    assert_eq!(engine.flash.is_some(), engine.can_move);
    engine.decode(&prompt[last..]).unwrap();
    let mut all = engine.logits(0).to_vec();
    for token in &prompt[..4] {
        engine.decode(&[*token]).unwrap();
        all.extend_from_slice(engine.logits(0));
    }
    all
}

fn spread(logits: &[f32]) -> f32 {
    logits.iter().copied().fold(f32::MIN, f32::max) - logits.iter().copied().fold(f32::MAX, f32::min)
}

#[test]
fn the_number_of_threads_does_not_change_a_bit_of_the_result() {
    let mut results = [1, 2, 3].map(|threads| {
        let mut engine = moving(|load| load.threads = Some(threads));
        let prompt = prompt(&engine, 40, "Be brief.");
        assert!(prompt.len() > 2 * FLASH_FROM, "long enough for flash attention, and for its division among threads");
        let result = logits(&mut engine, &prompt);
        assert!(engine.flash.is_none() && engine.can_move, "it reads with flash attention, and decodes without");
        result
    });
    results.sort_by(|one, other| one.partial_cmp(other).unwrap());
    assert!(results[0] == results[2]);
}

/// Where the engine decodes with flash attention, until the context grows.
fn short(engine: &mut LlamaEngine) -> Vec<Token> {
    let prompt = prompt(engine, 3, "Be brief.");
    assert!((PROMPT_BLOCK..SHORT_CONTEXT / 2).contains(&prompt.len()), "{}", prompt.len());
    prompt
}

#[test]
fn a_short_conversation_does_not_depend_on_threads_and_differs_by_rounding_only() {
    let run = |engine: &mut LlamaEngine| {
        let prompt = short(engine);
        engine.reserve(prompt.len(), 600).unwrap();
        engine.decode(&prompt).unwrap();
        let mut all = engine.logits(0).to_vec();
        // Up to the end of the short context, and beyond.
        engine.decode(&[&prompt[..], &prompt].concat()[..SHORT_CONTEXT - prompt.len() - 4]).unwrap();
        for token in &prompt[..8] {
            assert_eq!(engine.is_short(), engine.can_move && engine.cached().len() <= SHORT_CONTEXT);
            engine.decode(&[*token]).unwrap();
            all.extend_from_slice(engine.logits(0));
        }
        assert!(engine.cached().len() > SHORT_CONTEXT && !engine.is_short());
        all
    };
    let results = [1, 2, 3].map(|threads| run(&mut moving(|load| load.threads = Some(threads))));
    assert!(results[0] == results[1] && results[1] == results[2]);
    let full = run(&mut load(|_| ()));
    assert!(full != results[0], "it decodes with flash attention");
    let (spread, distance) = (spread(&full), distance(&full, &results[0]));
    assert!(distance < spread / 10.0, "{distance} of {spread}");
}

#[test]
fn a_short_prompt_leaves_nothing_that_a_longer_one_would_read_in_another_way() {
    let folder = tempfile::tempdir().unwrap();
    let open = |cached: bool| {
        moving(|load| {
            let mut kept = PromptFolder::new(folder.path());
            kept.always = true;
            load.prompt_cache = cached.then_some(kept);
            load.threads = Some(2);
        })
    };
    let first = short(&mut open(false));
    let long = prompt(&open(false), 40, "Who lives there?");
    let longer = [&first[..], &long].concat();
    let other = [&long[..40], &first].concat();
    // Each in a run of its own.
    for (prompt, is_kept) in
        [(&first, false), (&long, false), (&first, false), (&longer, true), (&other, false), (&long, true)]
    {
        let (mut engine, mut alone) = (open(true), open(false));
        let answer = write(&mut engine, prompt);
        assert_eq!(answer.usage.cached_tokens > 0, is_kept, "{} tokens", prompt.len());
        assert_eq!(answer.tokens, write(&mut alone, prompt).tokens);
        assert!(engine.logits(0) == alone.logits(0), "{} tokens", prompt.len());
    }
}

#[test]
fn after_a_short_prompt_long_ones_are_kept() {
    let mut engine = moving(|load| load.prompt_memory = 64 << 20);
    // It begins like the short one.
    let (first, long) = (short(&mut engine), prompt(&engine, 40, "Who lives there?"));
    assert!(common(&first, &long) > WORTH);
    for prompt in [&first, &long, &prompt(&engine, 0, "Nothing in common.")] {
        write(&mut engine, prompt);
    }
    assert_eq!(write(&mut engine, &long).usage.cached_tokens, long.len() - 1);
}

#[test]
fn flash_attention_differs_by_rounding_only() {
    let engines = [moving(|_| ()), load(|load| load.flash_attention = FlashAttention::On), load(|_| ())];
    let [auto, on, off] = engines.map(|mut engine| {
        let prompt = prompt(&engine, 40, "Be brief.");
        logits(&mut engine, &prompt)
    });
    let spread = spread(&off);
    for (one, other) in [(&auto, &on), (&auto, &off)] {
        assert!((0.0..spread / 10.0).contains(&distance(one, other)));
    }
    assert_ne!(auto, off, "prompts are read with flash attention");
}

#[test]
fn weights_that_stay_in_the_file_differ_by_rounding_only() {
    let [copied, in_place] = [false, true].map(|from_file| {
        let mut engine = load(|load| load.from_file = from_file);
        let prompt = prompt(&engine, 4, "Be brief.");
        logits(&mut engine, &prompt)
    });
    assert!((0.0..spread(&copied) / 10.0).contains(&distance(&copied, &in_place)));
}

#[test]
fn a_context_that_grows_keeps_what_it_has() {
    let mut engine = load(|_| ());
    let short = prompt(&engine, 4, "Be brief.");
    let written = write(&mut engine, &short);
    let size = engine.context.as_ref().unwrap().room();
    let longer = [&short[..], &written.tokens, &prompt(&engine, 30, "And then?")].concat();
    let grown = write(&mut engine, &longer);
    assert!(engine.context.as_ref().unwrap().room() > size);
    assert!(grown.usage.cached_tokens >= short.len());
    assert_eq!(grown.tokens, write(&mut load(|_| ()), &longer).tokens);
}

#[test]
fn a_context_that_grows_within_an_answer_changes_no_bit_of_it() {
    for moves in [false, true] {
        let open = || LlamaEngine { can_move: moves, ..load(|load| load.threads = Some(1)) };
        let (mut whole, mut growing) = (open(), open());
        let prompt = prompt(&whole, 40, "Be brief.");
        let most = prompt.len() + 600;
        whole.reserve(most, most).unwrap();
        growing.reserve(prompt.len(), most).unwrap();
        let size = growing.room();
        assert!(size < most && whole.room() >= most);
        for engine in [&mut whole, &mut growing] {
            engine.decode(&prompt).unwrap();
        }
        for (at, token) in (prompt.len()..most).zip(prompt.iter().cycle()) {
            whole.decode(&[*token]).unwrap();
            growing.decode(&[*token]).unwrap();
            assert!(whole.logits(0) == growing.logits(0), "token {at}, moves: {moves}");
        }
        assert!(growing.room() >= most && growing.cached().len() == most);
        assert!(growing.decode(&vec![prompt[0]; growing.room()]).is_err(), "more than was announced");
    }
}

#[test]
fn what_was_kept_is_found_by_a_prompt_that_has_less_room_at_first() {
    let mut engine = load(|load| load.prompt_memory = 64 << 20);
    let short = prompt(&engine, 2, "Be brief.");
    // A long answer is a part of what is kept.
    engine.reserve(short.len() + 400, short.len() + 400).unwrap();
    engine.decode(&short).unwrap();
    short.iter().cycle().take(400).for_each(|token| engine.decode(&[*token]).unwrap());
    let other = prompt(&engine, 0, "Who lives there?");
    write(&mut engine, &other);
    engine.context = None;
    engine.forget();
    let cancel = AtomicBool::new(false);
    let read = |engine: &mut LlamaEngine| {
        let limits = Limits::new(500, &cancel);
        generate(engine, &short, &Sampling::default(), limits, None, &mut |_, _| ControlFlow::Break(())).unwrap()
    };
    assert_eq!(read(&mut engine).usage.cached_tokens, short.len() - 1);
}

#[test]
fn what_left_the_context_comes_back_from_memory() {
    for moves in [false, true] {
        let load = |set: &dyn Fn(&mut LoadOptions)| LlamaEngine { can_move: moves, ..load(set) };
        let mut engine = load(&|load| load.prompt_memory = 64 << 20);
        // They have nothing in common.
        let prompts =
            ["Be brief.", "Who lives there?"].map(|end| [prompt(&engine, 0, end), prompt(&engine, 30, end)].concat());
        let first = prompts.each_ref().map(|prompt| write(&mut engine, prompt));
        for (prompt, first) in prompts.iter().zip(&first) {
            assert_eq!(first.tokens, write(&mut load(&|_| ()), prompt).tokens);
            let again = write(&mut engine, prompt);
            assert_eq!(again.usage.cached_tokens, prompt.len() - 1);
            assert_eq!(again.tokens, first.tokens);
        }
    }
}

#[test]
fn a_prompt_from_disk_has_the_same_answer_bit_for_bit() {
    let kinds = [(FlashAttention::Auto, true), (FlashAttention::On, false), (FlashAttention::Off, false)];
    for (flash, moves) in kinds {
        let folder = tempfile::tempdir().unwrap();
        let open = |cached: bool| LlamaEngine {
            can_move: moves,
            ..load(|load| {
                let mut kept = PromptFolder::new(folder.path());
                kept.always = true;
                load.prompt_cache = cached.then_some(kept);
                (load.flash_attention, load.threads) = (flash, Some(2));
            })
        };
        let mut engine = open(true);
        let long = prompt(&engine, 40, "Be brief.");
        let first = write(&mut engine, &long);
        let logits = engine.logits(0).to_vec();
        assert_eq!(first.usage.cached_tokens, 0);
        drop(engine);
        let mut engine = open(true);
        let again = write(&mut engine, &long);
        assert_eq!(again.usage.cached_tokens, long.len() - 1);
        assert_eq!(again.tokens, first.tokens, "{flash:?}");
        assert!(engine.logits(0) == logits, "{flash:?}");
        // Another question after the same beginning.
        let mut engine = open(true);
        let other = prompt(&engine, 40, "Who lives there?");
        let went_on = write(&mut engine, &other);
        let shared = common(&long, &other);
        let left = if flash == FlashAttention::Off { 0 } else { PROMPT_BLOCK };
        assert_eq!(went_on.usage.cached_tokens, shared.min(other.len() - 1 - left));
        let mut alone = open(false);
        assert_eq!(went_on.tokens, write(&mut alone, &other).tokens);
        assert!(engine.logits(0) == alone.logits(0), "{flash:?}");
    }
}

#[test]
fn values_of_fewer_bits_are_computed_with_flash_attention() {
    let mut engine =
        load(|load| (load.cache_type_k, load.cache_type_v) = (Some(CacheType::Q8_0), Some(CacheType::Q8_0)));
    let prompt = prompt(&engine, 4, "Be brief.");
    write(&mut engine, &prompt);
    assert!(!engine.context.as_ref().unwrap().is_full_attention());
}

#[test]
fn tokens_that_come_together_may_be_more_than_are_computed_at_a_time() {
    for size in [1, 3, 16] {
        let (mut whole, mut parts) = (load(|_| ()), load(|load| load.batch = Some(size)));
        let prompt = prompt(&whole, 2, "Be brief.");
        let (beginning, draft) = prompt.split_at(prompt.len() - 8);
        for engine in [&mut whole, &mut parts] {
            engine.reserve(prompt.len(), prompt.len()).unwrap();
            engine.decode(beginning).unwrap();
            engine.decode_all(draft, 2).unwrap();
            assert_eq!(engine.cached(), prompt);
        }
        for row in 0..6 {
            // Of logits of about 20.
            assert!(distance(whole.logits(row), parts.logits(row)) < 1.0, "{size}, {row}");
        }
        let sequences = parallel::Sequences::new(&parts, 2).unwrap();
        let (mut sequence, end) = sequences.take().unwrap();
        let written = write(&mut *sequence, &prompt);
        end.end();
        assert_eq!(written.tokens, write(&mut parts, &prompt).tokens, "{size}");
    }
}

#[test]
fn the_version_of_llama_cpp_is_the_one_that_is_built() {
    let lock = include_str!("../../../../../Cargo.lock");
    assert!(lock.contains(&format!("name = \"llama-cpp-sys-2\"\nversion = \"{LLAMA}\"")));
}

fn distance(one: &[f32], other: &[f32]) -> f32 {
    assert!(one.len() == other.len() && one.iter().all(|logit| logit.is_finite()));
    one.iter().zip(other).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn an_adapter_changes_the_logits_by_as_much_as_its_scale_says() {
    let folder = tempfile::tempdir().unwrap();
    let file = GgufBuilder::adapter(9).write(folder.path(), "adapter.gguf");
    let with = |scales: &[f32]| {
        let lora = scales.iter().map(|scale| LoraAdapter { scale: *scale, ..LoraAdapter::new(&file) }).collect();
        let mut engine = load(|load| (load.lora, load.threads) = (lora, Some(1)));
        let prompt = prompt(&engine, 2, "Be brief.");
        logits(&mut engine, &prompt)
    };
    let without = with(&[]);
    assert!(with(&[0.0]) == without, "nothing of an adapter is no adapter, bit for bit");
    let (all, half, halves) = (with(&[1.0]), with(&[0.5]), with(&[0.5, 0.5]));
    let [effect, rest, same] = [&without, &half, &halves].map(|other| distance(&all, other));
    assert!(effect > 1.0 && rest > 0.5 && distance(&half, &without) > 0.5, "{effect}, {rest}");
    // Not zero: some CPUs round the activations to eight bits.
    assert!(same < rest / 4.0, "{same} of {rest}, {effect}");
    assert!(with(&[1.0]) == all);
}

#[test]
fn every_context_of_a_model_has_its_adapters() {
    let folder = tempfile::tempdir().unwrap();
    let file = GgufBuilder::adapter(9).write(folder.path(), "adapter.gguf");
    let adapt = |load: &mut LoadOptions| (load.lora, load.threads) = (vec![LoraAdapter::new(&file)], Some(1));
    let mut plain = moving(|_| ());
    let prompt = prompt(&plain, 40, "Be brief.");
    let without = logits(&mut plain, &prompt);
    let adapted = logits(&mut load(adapt), &prompt);
    // One that reads the prompt with flash attention, and a second one over the same weights.
    let mut flash = moving(adapt);
    let mut shared = LlamaEngine { can_move: true, ..flash.share() };
    let other = distance(&without, &adapted);
    for engine in [&mut flash, &mut shared] {
        let logits = logits(engine, &prompt);
        assert!(distance(&logits, &adapted) < other / 10.0, "{} of {other}", distance(&logits, &adapted));
    }
    let sequences = parallel::Sequences::new(&load(adapt), 2).unwrap();
    let (mut sequence, end) = sequences.take().unwrap();
    let written = write(&mut *sequence, &prompt);
    end.end();
    assert_eq!(written.tokens, write(&mut load(adapt), &prompt).tokens);
    assert_ne!(written.tokens, write(&mut load(|_| ()), &prompt).tokens);
}

#[test]
fn a_foreign_checkpoint_is_ignored_and_the_answer_is_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let [file, other] =
        ["lfm2", "qwen35"].map(|name| GgufBuilder::random(name).write(folder.path(), &format!("{name}.gguf")));
    let open = |file: &Path| {
        let on_cpu = LoadOptions::default().with(|load| (load.gpu_layers, load.threads) = (Some(0), Some(1)));
        LlamaEngine::load(file, LoadOptions { prompt_memory: 1 << 20, ..on_cpu }).unwrap()
    };
    let text = |engine: &LlamaEngine, end: &str| {
        let text = format!("<start>{}<end><start>{end}", "abcdefghij".repeat(9));
        engine.tokenize(&[Piece { text, literal: false }]).unwrap()
    };
    let (mut engine, mut foreign) = (open(&file), open(&other));
    let (first, second) = (text(&engine, "klmnop"), text(&engine, "uvwxyz"));
    let expected = write(&mut open(&file), &second);
    write(&mut foreign, &first);
    let of_another = foreign.checkpoints.kept()[0].state.to_vec();
    write(&mut engine, &first);
    let own = engine.checkpoints.kept()[0].clone();
    assert_eq!(write(&mut engine, &second).usage.cached_tokens, own.at);
    let cut = own.state[..own.state.len() / 2].to_vec();
    for bad in [of_another, cut, Vec::new(), vec![0xff; own.state.len()]] {
        let mut engine = open(&file);
        write(&mut engine, &first);
        engine.checkpoints = Checkpoints::of(&[Checkpoint { at: own.at, state: bad.into() }]);
        let answer = write(&mut engine, &second);
        assert_eq!((answer.usage.cached_tokens, answer.tokens), (0, expected.tokens.clone()));
    }
}

#[test]
fn a_hybrid_reads_the_beginning_with_flash_attention_and_answers_as_without_a_cache() {
    // More of them: CALLWRIGHT_EDITS=500
    let edits = std::env::var("CALLWRIGHT_EDITS").ok().and_then(|count| count.parse().ok()).unwrap_or(24);
    let folder = tempfile::tempdir().unwrap();
    for architecture in ["lfm2", "qwen35"] {
        let file = GgufBuilder::random(architecture).write(folder.path(), &format!("{architecture}.gguf"));
        let open = |memory: u64| {
            let on_cpu = LoadOptions::default().with(|load| (load.gpu_layers, load.threads) = (Some(0), Some(1)));
            let engine = LlamaEngine::load(&file, LoadOptions { prompt_memory: memory, ..on_cpu }).unwrap();
            LlamaEngine { can_move: true, ..engine }
        };
        let mut alone = open(8 << 20);
        let sequences = parallel::Sequences::new(&open(8 << 20), 1).unwrap();
        let (mut sequence, end) = sequences.take().unwrap();
        let mut random = 7_u64;
        let mut next = |below: usize| {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (random >> 33) as usize % below
        };
        // No message begins as an answer does: see `answers_are_the_same_after_any_edits_of_a_conversation`.
        let message = |length: usize, seed: usize| -> String {
            let letters = (0..length).map(|place| char::from(b'a' + ((place * place + seed * place) % 23) as u8));
            std::iter::once('a').chain(letters).collect()
        };
        let first = |seed: usize| vec![message(60, 1), message(240, seed), message(30, 5)];
        let mut conversations = [first(3), first(3), first(4)];
        let (mut read, mut all, mut flash) = (0, 0, 0);
        for edit in 0..edits {
            let messages = &mut conversations[next(3)];
            let place = next(messages.len());
            match next(7) {
                0 => messages[place] = message(next(300), next(100)),
                1 => messages.truncate(place + 1),
                2 => *messages = first(next(2) + 3),
                3 => {}
                _ => messages.push(message(next(150), next(100))),
            }
            if messages.iter().map(String::len).sum::<usize>() > 1500 {
                *messages = first(3);
            }
            let text: String = messages.iter().map(|message| format!("<start>{message}<end>")).collect();
            let text = text + "<start>z";
            let prompt = alone.tokenize(&[Piece { text: text.clone(), literal: false }]).unwrap();
            let mut without = open(0);
            let expected = write(&mut without, &prompt);
            assert_eq!(without.read_with_flash, without.border, "{text}");
            flash += without.border;
            for (name, engine) in [("alone", &mut alone as &mut dyn Engine), ("sequence", &mut *sequence)] {
                let written = write(engine, &prompt);
                let place =
                    format!("{architecture}, {name}, edit {edit}, {} cached: {text}", written.usage.cached_tokens);
                assert_eq!(written.tokens, expected.tokens, "{place}");
                assert!(engine.logits(0) == without.logits(0), "{place}");
                (read, all) = (read + prompt.len() - written.usage.cached_tokens, all + prompt.len());
            }
            end.end();
        }
        assert!(read < all / 2, "{architecture}: {read} of {all} were read");
        assert!(flash * 4 > all / 2, "{architecture}: {flash} tokens with flash attention");
    }
}
