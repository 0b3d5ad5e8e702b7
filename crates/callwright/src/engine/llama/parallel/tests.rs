//! Several generations at a time, on the bundled model.

use crate::engine::llama::parallel::{MAX_SEQUENCES, Sequences};
use crate::engine::llama::{LlamaEngine, LoadOptions};
use crate::engine::sampler::Sampling;
use crate::engine::{Engine, Token};
use crate::generate::{Generation, Limits, generate};
use crate::models::bundled;
use crate::template::Piece;
use std::ops::ControlFlow;
use std::sync::Barrier;
use std::sync::atomic::AtomicBool;

/// A number of threads is for one context, which all then share.
fn load() -> LlamaEngine {
    let options =
        LoadOptions { threads: Some(1), prompt_memory: 64 << 20, gpu_layers: Some(0), ..LoadOptions::default() };
    LlamaEngine::load(&bundled::path().unwrap(), options).unwrap()
}

fn tokens(engine: &LlamaEngine, text: &str) -> Vec<Token> {
    engine.tokenize(&[Piece { text: text.to_owned(), literal: false }]).unwrap()
}

/// A prompt that begins as all do, for `times` as long, and ends as no other.
fn prompt(engine: &LlamaEngine, times: usize, end: &str) -> Vec<Token> {
    let beginning = "<|user|>Tell me a story about seven rivers, two mountains and the sea behind them. ".repeat(times);
    tokens(engine, &format!("{beginning}{end}<|end|><|assistant|>"))
}

fn write(engine: &mut dyn Engine, prompt: &[Token], max_tokens: usize) -> Generation {
    let cancel = AtomicBool::new(false);
    let limits = Limits::new(max_tokens, &cancel);
    generate(engine, prompt, &Sampling::default(), limits, None, &mut |_, _| ControlFlow::Continue(())).unwrap()
}

fn common(one: &[Token], other: &[Token]) -> usize {
    one.iter().zip(other).take_while(|(a, b)| a == b).count()
}

#[test]
fn what_another_has_of_a_prompt_is_taken_over() {
    let mut alone = load();
    let sequences = Sequences::new(&alone, 3).unwrap();
    assert_eq!(sequences.at_a_time(), 3);
    let (mut first, first_end) = sequences.take().unwrap();
    let (mut second, second_end) = sequences.take().unwrap();
    let (one, other) = (prompt(&alone, 4, "Be brief."), prompt(&alone, 4, "Who lives there?"));

    let read = write(&mut *first, &one, 12);
    first_end.end();
    assert_eq!(read.usage.cached_tokens, 0);
    assert_eq!(read.tokens, write(&mut alone, &one, 12).tokens);

    // The first one goes on generating with what it has: its part is copied, not taken away.
    let taken_over = write(&mut *second, &other, 12);
    second_end.end();
    assert_eq!(taken_over.usage.cached_tokens, common(&one, &other));
    assert_eq!(taken_over.tokens, write(&mut alone, &other, 12).tokens);
    let again = write(&mut *first, &one, 12);
    first_end.end();
    assert_eq!((again.usage.cached_tokens, again.tokens), (one.len() - 1, read.tokens));

    // A few tokens are not worth it.
    let (mut third, third_end) = sequences.take().unwrap();
    let short = tokens(&alone, "<|user|>Tell me more.<|end|><|assistant|>");
    assert!((1..32).contains(&common(&short, &one)));
    assert_eq!(write(&mut *third, &short, 4).usage.cached_tokens, 0);
    third_end.end();
    assert_eq!(sequences.take().err().unwrap().message(), "all sequences are taken");
}

#[test]
fn those_that_begin_at_once_read_what_they_share_once() {
    let mut alone = load();
    let ends = ["Be brief.", "Who lives there?", "Why seven?", "Begin with the sea."];
    let prompts = ends.map(|end| prompt(&alone, 5, end));
    let expected = prompts.clone().map(|prompt| write(&mut alone, &prompt, 12).tokens);
    let sequences = Sequences::new(&alone, prompts.len()).unwrap();
    let together = Barrier::new(prompts.len());
    let written: Vec<Generation> = std::thread::scope(|scope| {
        let threads = prompts.iter().map(|prompt| {
            let (sequences, together) = (&sequences, &together);
            scope.spawn(move || {
                let (mut engine, end) = sequences.take().unwrap();
                together.wait();
                let written = write(&mut *engine, prompt, 12);
                end.end();
                // What a sequence has is gone with it.
                together.wait();
                written
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let shared = common(&prompts[0], &prompts[1]);
    let read: usize = written.iter().map(|one| one.usage.prompt_tokens - one.usage.cached_tokens).sum();
    let whole: usize = prompts.iter().map(Vec::len).sum();
    assert_eq!(read, whole - (prompts.len() - 1) * shared);
    assert_eq!(written.into_iter().map(|one| one.tokens).collect::<Vec<_>>(), expected);
}

#[test]
fn a_context_grows_while_others_generate() {
    let mut alone = load();
    let ends = ["Be brief.", "Who lives there?", "Why seven?"];
    // Each has a prompt that is longer than all before at another time than the others.
    let lengths = [[1, 2, 20, 3], [12, 1, 1, 30], [1, 24, 2, 6]];
    let prompts: Vec<Vec<Vec<Token>>> = ends
        .iter()
        .zip(lengths)
        .map(|(end, lengths)| lengths.iter().map(|times| prompt(&alone, *times, end)).collect())
        .collect();
    let write_all = |engine: &mut dyn Engine, prompts: &[Vec<Token>], after: &dyn Fn()| {
        let written = prompts.iter().map(|prompt| {
            let written = write(engine, prompt, 16);
            after();
            written.tokens
        });
        written.collect::<Vec<_>>()
    };
    let expected: Vec<_> = prompts.iter().map(|prompts| write_all(&mut alone, prompts, &|| ())).collect();
    let sequences = Sequences::new(&alone, ends.len()).unwrap();
    let written: Vec<_> = std::thread::scope(|scope| {
        let threads = prompts.iter().map(|prompts| {
            let (sequences, write_all) = (&sequences, &write_all);
            scope.spawn(move || {
                let (mut engine, end) = sequences.take().unwrap();
                write_all(&mut *engine, prompts, &|| end.end())
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(written, expected);
}

#[test]
fn what_does_not_fit_is_an_error_that_the_others_do_not_share() {
    let alone = load();
    let sequences = Sequences::new(&alone, 2).unwrap();
    let (mut first, first_end) = sequences.take().unwrap();
    let (mut second, second_end) = sequences.take().unwrap();
    let prompt = prompt(&alone, 1, "Be brief.");
    write(&mut *first, &prompt, 4);
    first_end.end();
    let error = second.reserve(usize::MAX / 2, usize::MAX / 2).unwrap_err();
    assert!(error.message().contains("that is more than it can count"), "{error}");
    second_end.end();
    let error = second.decode(&prompt).unwrap_err();
    assert!(error.message().contains("tokens do not fit into the 0 that were reserved"), "{error}");
    second_end.end();
    // What the first one had is lost; it begins anew.
    assert_eq!(write(&mut *first, &prompt, 4).usage.cached_tokens, 0);
    first_end.end();
    let error = second.decode(&[Token(-1)]).unwrap_err();
    assert_eq!(error.message(), "token -1 is not in the vocabulary");

    // Whoever waits for room at the same time gets what it needs itself.
    drop((first, second));
    let expected = write(&mut load(), &prompt, 4).tokens;
    let together = Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut greedy, end) = sequences.take().unwrap();
            together.wait();
            for _ in 0..20 {
                assert!(greedy.reserve(usize::MAX / 2, usize::MAX / 2).is_err());
                end.end();
            }
        });
        let (mut modest, end) = sequences.take().unwrap();
        together.wait();
        for _ in 0..20 {
            assert_eq!(write(&mut *modest, &prompt, 4).tokens, expected);
            end.end();
        }
    });

    for count in [0, MAX_SEQUENCES + 1] {
        let error = Sequences::new(&alone, count).err().unwrap();
        assert!(error.message().contains("llama.cpp has 1 to 256"), "{error}");
    }
}
