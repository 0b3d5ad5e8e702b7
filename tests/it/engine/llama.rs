//! The llama.cpp engine on the bundled model.

use crate::bundled::{load, one_thread};
use callwright::engine::sampler::Sampling;
use callwright::engine::{Engine, LoadOptions, Token};
use callwright::generate::{End, Generation, Limits, generate};
use callwright::template::Piece;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

fn piece(text: &str, literal: bool) -> Piece {
    Piece { text: text.to_owned(), literal }
}

fn prompt(engine: &dyn Engine) -> Vec<Token> {
    engine.tokenize(&[piece("<|user|>Tell me a story about seven rivers.<|end|><|assistant|>", false)]).unwrap()
}

fn write(engine: &mut dyn Engine, prompt: &[Token], sampling: Sampling, max_tokens: usize) -> Generation {
    let cancel = AtomicBool::new(false);
    let limits = Limits::new(max_tokens, &cancel);
    generate(engine, prompt, &sampling, limits, None, &mut |_, _| ControlFlow::Continue(())).unwrap()
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn greedy_and_seeded_runs_can_be_had_again() {
    let varied = crate::bundled::unfiltered(8.0, 11);
    for sampling in [Sampling::default(), varied] {
        let (mut first, mut second) = (one_thread(), one_thread());
        let prompt = prompt(&*first);
        let tokens = write(&mut *first, &prompt, sampling, 40).tokens;
        assert_eq!(tokens, write(&mut *second, &prompt, sampling, 40).tokens);
        if sampling.temperature > 0.0 {
            let other = sampling.with(|sampling| sampling.seed = 12);
            assert_ne!(tokens, write(&mut *second, &prompt, other, 40).tokens);
        }
    }
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn the_longest_common_prefix_is_not_decoded_again() {
    let mut engine = one_thread();
    let first = prompt(&*engine);
    let answer = write(&mut *engine, &first, Sampling::default(), 8);
    assert_eq!(answer.usage.cached_tokens, 0);

    let mut second = [first.as_slice(), &answer.tokens].concat();
    let known = second.len() - 1; // the last token of an answer is not decoded
    second.extend(engine.tokenize(&[piece("<|end|><|user|>And then?<|end|><|assistant|>", false)]).unwrap());
    let reused = write(&mut *engine, &second, Sampling::default(), 8);
    assert_eq!(reused.usage.cached_tokens, known);
    assert_eq!(reused.tokens, write(&mut *one_thread(), &second, Sampling::default(), 8).tokens);

    // The very same prompt again: all but its last token, whose logits are needed.
    let again = write(&mut *engine, &second, Sampling::default(), 8);
    assert_eq!((again.usage.cached_tokens, again.tokens), (second.len() - 1, reused.tokens));
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn the_number_of_threads_changes_no_result() {
    let tokens: Vec<Token> = (0..800).map(|i| Token(100 + i * 7 % 900)).collect();
    let logits = |threads| {
        let mut engine = load(LoadOptions::default().with(|options| options.threads = Some(threads)));
        engine.reserve(tokens.len(), tokens.len()).unwrap();
        engine.decode(&tokens[..799]).unwrap();
        engine.decode(&tokens[799..]).unwrap();
        engine.logits(0).iter().map(|logit| logit.to_bits()).collect::<Vec<u32>>()
    };
    assert!(logits(1) == logits(2));
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn literal_text_never_becomes_a_special_token() {
    let engine = one_thread();
    let info = engine.model().clone();
    let special: Vec<&String> = info.control_tokens.iter().chain(&info.user_defined_tokens).collect();
    assert!(special.iter().any(|text| *text == "<|end|>"), "{special:?}");
    for text in special {
        let token = engine.tokenize(&[piece(text, false)]).unwrap();
        assert_eq!(token.len(), 1, "{text}");
        let plain = engine.tokenize(&[piece(text, true)]).unwrap();
        assert!(!plain.contains(&token[0]), "{text}");
        let bytes: Vec<u8> = plain.iter().flat_map(|token| engine.token_bytes(*token).to_vec()).collect();
        assert_eq!(String::from_utf8(bytes).unwrap(), *text);
    }
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn generation_stops_at_the_limit_the_caller_and_the_flag() {
    let mut engine = one_thread();
    let prompt = prompt(&*engine);
    let varied = crate::bundled::unfiltered(5.0, 1);
    let limited = write(&mut *engine, &prompt, varied, 3);
    assert_eq!((limited.end, limited.tokens.len()), (End::Length, 3));

    let cancel = AtomicBool::new(false);
    let limits = Limits::new(50, &cancel);
    let mut count = 0;
    let stopped = generate(&mut *engine, &prompt, &varied, limits, None, &mut |_, _| {
        count += 1;
        if count == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(stopped.map(|generation| (generation.end, generation.tokens.len())).unwrap(), (End::Stopped, 2));

    let cancelled = generate(&mut *engine, &prompt, &varied, limits, None, &mut |_, _| {
        cancel.store(true, Ordering::Relaxed);
        ControlFlow::Continue(())
    });
    assert_eq!(cancelled.map(|generation| (generation.end, generation.tokens.len())).unwrap(), (End::Cancelled, 1));
    // The flag is still up: not even the prompt is decoded.
    engine.truncate(0);
    let at_once =
        generate(&mut *engine, &prompt, &varied, limits, None, &mut |_, _| ControlFlow::Continue(())).unwrap();
    assert_eq!((at_once.end, at_once.tokens.len(), engine.cached().len()), (End::Cancelled, 0, 0));
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn a_conversation_may_outgrow_its_context_but_not_its_limit() {
    let mut engine = load(LoadOptions::default().with(|options| {
        options.context = Some(300);
        options.threads = Some(1);
    }));
    assert_eq!(engine.context_limit(), 300);
    let long: Vec<Token> = (0..298).map(|i| Token(100 + i % 50)).collect();
    let varied = crate::bundled::unfiltered(5.0, 1);
    let generation = write(&mut *engine, &long, varied, 50);
    assert!(generation.tokens.len() <= 2, "{generation:?}");

    let mut engine = one_thread();
    write(&mut *engine, &long[..200], varied, 10);
    let grown = write(&mut *engine, &long, varied, 600);
    assert_eq!(grown.usage.prompt_tokens, 298);
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn what_is_no_token_is_refused_before_llama_cpp_sees_it() {
    let mut engine = one_thread();
    for stranger in [-1, i32::MAX] {
        let error = engine.decode(&[Token(stranger)]).unwrap_err();
        assert_eq!(error.to_string(), format!("token {stranger} is not in the vocabulary"));
        assert_eq!(engine.token_bytes(Token(stranger)), b"");
        assert!(!engine.is_end(Token(stranger)));
    }
    let mut vocabulary = load(LoadOptions::default().with(|options| options.vocabulary_only = true));
    let error = vocabulary.decode(&[Token(5)]).unwrap_err();
    assert_eq!(error.to_string(), "only the vocabulary was loaded: there is nothing to decode with");
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn loading_reports_its_progress() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let options = LoadOptions::default()
        .with(|options| options.on_progress = Some(Box::new(move |part| sender.send(part).unwrap())));
    let engine = load(options);
    drop(engine);
    let parts: Vec<f32> = receiver.iter().collect();
    assert!(parts.is_sorted() && parts.last() == Some(&1.0), "{parts:?}");
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn the_bundled_model_carries_the_chat_template_of_the_repository() {
    let file = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/models/chat_template.jinja")).unwrap();
    let engine = load(LoadOptions::default().with(|options| options.vocabulary_only = true));
    assert_eq!(engine.model().templates, [("default".to_owned(), file)]);
}
