//! Decoding speed against llama.cpp's bare loop, in one run.
//!
//! `llama-bench` measures generation by calling `llama_decode` with one token after another, without choosing them.
//! Its source is not in the llama-cpp-sys-2 crate, so the same loop is here, on the same compiled library, at the same
//! depth and with the same threads; the engine's loop also samples, detokenises and keeps its books. The two take turns,
//! and the ratio is the median of the pairs'.
//!
//! `CALLWRIGHT_BENCH_MODEL=FILE.gguf cargo bench --bench engine`; without it, the bundled model.

use callwright::Model;
use callwright::engine::sampler::Sampling;
use callwright::engine::{Engine, Token};
use callwright::generate::{Limits, generate};
use llama_cpp_sys_2 as sys;
use std::ffi::CString;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

const DEPTH: usize = 128;
const TOKENS: usize = 64;
const ROUNDS: usize = 11;

fn main() {
    // `cargo test --benches` only wants to know that it runs.
    let rounds = if std::env::args().any(|argument| argument == "--bench") { ROUNDS } else { 1 };
    let model = std::env::var("CALLWRIGHT_BENCH_MODEL").unwrap_or_else(|_| "bundled".to_owned());
    let model = Model::open(&model).expect("the model loads");
    let mut engine = model.engine();
    let threads = model.threads();
    println!("{}, {threads} threads", model.path().display());
    let prompt: Vec<Token> = (0..DEPTH).map(|i| Token(100 + (i * 37 % 1000) as i32)).collect();
    let mut bare = Bare::load(model.path(), threads);
    // Nearly uniform, so that no end of turn is likely to come early.
    let varied = Sampling::default().with(|sampling| sampling.temperature = 20.0);
    let samplings = [("greedy", Sampling::default()), ("top-k, top-p, min-p", varied)];
    let mut bare_rates = Vec::new();
    let mut rates = [const { Vec::new() }; 2];
    let mut ratios = [const { Vec::new() }; 2];
    for _ in 0..rounds {
        for (i, (_, sampling)) in samplings.iter().enumerate() {
            let (rate, bare_rate) = (engine_rate(&mut *engine, &prompt, *sampling), bare.rate(&prompt));
            rates[i].push(rate);
            bare_rates.push(bare_rate);
            ratios[i].push(rate / bare_rate);
        }
    }
    println!("{:20}  {:7.1} tokens/s", "bare llama_decode", median(&mut bare_rates));
    for (i, (name, _)) in samplings.iter().enumerate() {
        println!("{name:20}  {:7.1} tokens/s, ratio {:.3}", median(&mut rates[i]), median(&mut ratios[i]));
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Tokens per second of the engine's own loop, after the prompt.
fn engine_rate(engine: &mut dyn Engine, prompt: &[Token], sampling: Sampling) -> f64 {
    engine.truncate(0);
    let cancel = AtomicBool::new(false);
    let limits = Limits::new(TOKENS, &cancel);
    let generation = generate(engine, prompt, &sampling, limits, None, &mut |bytes, _| {
        std::hint::black_box(bytes);
        ControlFlow::Continue(())
    });
    let usage = generation.expect("generation works").usage;
    // The last token is not decoded.
    (usage.completion_tokens - 1) as f64 / usage.completion_time.as_secs_f64()
}

/// llama.cpp's model and context without anything of ours.
struct Bare {
    context: *mut sys::llama_context,
    vocabulary: usize,
}

impl Bare {
    fn load(path: &Path, threads: usize) -> Bare {
        let path = CString::new(path.to_str().expect("a path in UTF-8")).expect("a path without NUL");
        // SAFETY: the backend was initialised by the engine; the model outlives the context, both until the process
        // ends.
        unsafe {
            let model = sys::llama_load_model_from_file(path.as_ptr(), sys::llama_model_default_params());
            assert!(!model.is_null());
            let mut params = sys::llama_context_default_params();
            params.n_ctx = (DEPTH + TOKENS) as u32;
            params.n_threads = threads as i32;
            params.n_threads_batch = threads as i32;
            params.flash_attn_type = sys::LLAMA_FLASH_ATTN_TYPE_DISABLED;
            let context = sys::llama_new_context_with_model(model, params);
            assert!(!context.is_null());
            let vocabulary = sys::llama_vocab_n_tokens(sys::llama_model_get_vocab(model)) as usize;
            Bare { context, vocabulary }
        }
    }

    fn rate(&mut self, prompt: &[Token]) -> f64 {
        let mut tokens: Vec<i32> = prompt.iter().map(|token| token.0).collect();
        // SAFETY: the context is valid, the pointer is to `len` tokens of the vocabulary that outlive the call.
        let decode = |tokens: &mut [i32]| unsafe {
            let batch = sys::llama_batch_get_one(tokens.as_mut_ptr(), tokens.len() as i32);
            assert_eq!(sys::llama_decode(self.context, batch), 0);
            sys::llama_synchronize(self.context);
        };
        decode(&mut tokens);
        let started = Instant::now();
        for i in 1..TOKENS {
            decode(&mut [(i * 7919 % self.vocabulary) as i32]);
        }
        let rate = (TOKENS - 1) as f64 / started.elapsed().as_secs_f64();
        // SAFETY: as above.
        unsafe { sys::llama_memory_clear(sys::llama_get_memory(self.context), true) };
        rate
    }
}
