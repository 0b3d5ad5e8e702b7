//! What could be saved beside the model's steps: drafts from the prompt, a batch beside a step and answers with and
//! without; and the time that masks take.
//!
//! `CALLWRIGHT_BENCH_MODEL=FILE.gguf cargo bench --bench draft`; without a model, the bundled one. The answers are
//! always the bundled model's: random weights repeat nothing.

use callwright::constraint::{Calls, Compiler, Constraint, Mode, Rules};
use callwright::engine::sampler::Sampling;
use callwright::engine::{Engine, LoadOptions, Token};
use callwright::format::Format;
use callwright::generate::{Limits, generate};
use callwright::message::Message;
use callwright::{Model, Session, Tools};
use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

const DEPTH: usize = 512;
const TOOLS: &str = r#"[
    {"name": "send_message", "description": "Send a message to somebody", "parameters": {"type": "object", "properties":
        {"to": {"type": "string"}, "text": {"type": "string"}}, "required": ["to", "text"]}},
    {"name": "weather", "description": "The weather in a city", "parameters": {"type": "object", "properties":
        {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}},
    {"name": "translate", "description": "Translate a text", "parameters": {"type": "object", "properties":
        {"text": {"type": "string"}, "language": {"type": "string"}}, "required": ["text", "language"]}}]"#;
const QUESTIONS: [&str; 6] = [
    "Tell Margaret Blackwood that the train from Edinburgh is two hours late.",
    "Send Tom the text: please bring the red folder and the spare keys to the office on Friday.",
    "What will the weather be like in Villefranche-sur-Saone over the next 3 days?",
    "Translate \"the early bird catches the worm, but the second mouse gets the cheese\" to Portuguese.",
    "Tell Priya that the meeting moved to Tuesday at half past four in the large room.",
    "How do you say \"where is the nearest railway station\" in Japanese?",
];

fn main() {
    let model = std::env::var("CALLWRIGHT_BENCH_MODEL").unwrap_or_else(|_| "bundled".to_owned());
    let mut engine = load(&model);
    println!("{}, one thread, times of CPU", model);
    batches(&mut *engine);
    masks(&mut *engine);
    drop(engine);
    answers();
}

/// Time that this thread has run: other programs on the machine do not count. One thread decodes, which is this one.
fn on_cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(f64::NAN) / 1e9
}

fn load(model: &str) -> Box<dyn Engine> {
    let options = LoadOptions::default().with(|options| options.threads = Some(1));
    Model::builder().load_options(options).open(model).expect("the model loads").engine()
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The time of a batch with all its logits, in steps of one token.
fn batches(engine: &mut dyn Engine) {
    let tokens: Vec<Token> = (0..DEPTH).map(|i| Token(100 + (i * 37 % 900) as i32)).collect();
    engine.reserve(DEPTH + 64, DEPTH + 64).expect("there is memory");
    engine.decode(&tokens).expect("decoding works");
    let sizes = [1, 2, 3, 4, 6, 8, 13];
    let mut times = vec![Vec::new(); sizes.len()];
    // Alternating, so that other programs disturb all alike.
    for _ in 0..5 {
        for (size, times) in sizes.iter().zip(&mut times) {
            let started = on_cpu();
            let mut rounds = 0;
            // The clock goes in steps of a few milliseconds.
            while on_cpu() - started < 0.1 {
                engine.decode_all(&tokens[..*size], 0).expect("decoding works");
                std::hint::black_box(engine.logits(size - 1));
                engine.truncate(DEPTH);
                rounds += 1;
            }
            times.push((on_cpu() - started) / f64::from(rounds));
        }
    }
    let medians: Vec<f64> = times.iter_mut().map(|times| median(times)).collect();
    for (size, time) in sizes.iter().zip(&medians) {
        let extra = if *size > 1 { (time / medians[0] - 1.0) / (*size as f64 - 1.0) } else { 0.0 };
        println!("  {size:2} tokens: {:.2} ms, {:.2} steps; each more {extra:.2}", time * 1e3, time / medians[0]);
    }
}

/// How much of the time goes into masks, with the model's calls chosen nearly at random, so that many are needed: all
/// that could be gained by computing them while the model decodes.
fn masks(engine: &mut dyn Engine) {
    let vocabulary = engine.vocabulary().expect("a model has a vocabulary")();
    let format = Format::delimited();
    let mut compiler = Compiler::for_format(vocabulary, format).expect("the vocabulary is usable");
    let tools = Tools::from_json(TOOLS, "tools").expect("they are tools");
    let (mut masks, mut total, mut tokens) = (Vec::new(), 0.0, 0);
    for seed in 0..8 {
        let mut rules = Rules::default();
        (rules.mode, rules.calls) = (Mode::Strict, Calls::Required);
        rules.max_calls = Some(1);
        let sampling = Sampling::default().with(|sampling| {
            sampling.temperature = 1.0;
            sampling.top_k = 1000;
            sampling.top_p = 1.0;
            sampling.min_p = 0.0;
            sampling.seed = seed;
        });
        let mut constraint = Constraint::new(&mut compiler, format, &tools, None, rules).expect("it has a grammar");
        let cancel = AtomicBool::new(false);
        let limits = Limits::new(96, &cancel);
        let prompt: Vec<Token> = (0..64).map(|i| Token(100 + i * 37 % 900)).collect();
        let started = on_cpu();
        let made =
            generate(engine, &prompt, &sampling, limits, Some(&mut constraint), &mut |_, _| ControlFlow::Continue(()));
        let usage = made.expect("generation works").usage;
        total += on_cpu() - started;
        tokens += usage.completion_tokens;
        masks.extend(constraint.mask_times().iter().map(Duration::as_secs_f64));
    }
    let sum: f64 = masks.iter().sum();
    println!(
        "  {} masks for {tokens} tokens, median {:.0} µs; {:.2}% of the {:.1} s that the answers took",
        masks.len(),
        median(&mut masks) * 1e6,
        100.0 * sum / total,
        total
    );
}

/// Answers of the bundled model, with drafts and without: to a question, and to the same again after its call.
fn answers() {
    let mut session = Session::new(load("bundled"), None, None).expect("it has a template");
    session.set_tools(Tools::from_json(TOOLS, "tools").expect("they are tools"));
    for again in [false, true] {
        let (mut seconds, mut counts, mut same) = ([0.0; 2], [0; 4], 0);
        for question in QUESTIONS {
            session.options_mut().draft = false;
            session.set_messages(Vec::new()).expect("it is in order");
            session.ask(question).expect("the model answers");
            let mut messages = vec![Message::user(question)];
            if again {
                messages = session.messages().to_vec();
                for call in messages.clone().iter().flat_map(|message| &message.tool_calls) {
                    messages.push(Message::tool(call.id.clone().unwrap_or_default(), &*call.name, "failed: timeout"));
                }
                messages.push(Message::user(format!("Once more, please. {question}")));
            }
            let mut said = Vec::new();
            for draft in [false, true] {
                session.options_mut().draft = draft;
                for round in 0..6 {
                    session.set_messages(messages.clone()).expect("it is in order");
                    let started = on_cpu();
                    let reply = session.respond(&mut |_| ()).expect("the model answers");
                    // The prompt is in the context from the second time on.
                    if round > 0 {
                        seconds[usize::from(draft)] += on_cpu() - started;
                        continue;
                    }
                    let usage = reply.usage;
                    if draft {
                        let more =
                            [usage.completion_tokens, usage.forced_tokens, usage.drafted_tokens, usage.proposed_tokens];
                        counts.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
                    }
                    said.push(format!("{:?}", reply.message));
                }
            }
            same += usize::from(said[0] == said[1]);
        }
        let [tokens, forced, drafted, proposed] = counts;
        println!(
            "  {}: {same} of {} answers are the same; {tokens} tokens, {forced} forced, {drafted} of {proposed} proposed \
             were right; time with drafts ÷ without: {:.2}",
            if again { "the question again, after its call" } else { "a question" },
            QUESTIONS.len(),
            seconds[1] / seconds[0]
        );
    }
}
