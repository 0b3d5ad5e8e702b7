//! What a constraint costs and what it guarantees, with a model of random weights: whatever holds for it holds for any.
//!
//! `CALLWRIGHT_BENCH_MODEL=FILE.gguf CALLWRIGHT_BFCL=DIR cargo bench --bench constraint`; without a model, the bundled
//! one; without BFCL's cases, only a few tools of its own. `CALLWRIGHT_BENCH_CASES` limits the number of cases,
//! `CALLWRIGHT_BENCH_ONLY` names the parts to run: prepare, calls, formats, jump, canonical, outside, gbnf. The cases of
//! calls and formats that are in the file `CALLWRIGHT_BENCH_JOURNAL` are not run again, and new ones are added to it.

use callwright::constraint::{Calls, Compiler, Constraint, Mode, Rules};
use callwright::engine::sampler::Sampling;
use callwright::engine::vocabulary::Vocabulary;
use callwright::engine::{Engine, ModelInfo, Token};
use callwright::format::Format;
use callwright::generate::{Limits, generate};
use callwright::message::{Arguments, ToolCall};
use callwright::parse::{Parser, ParserOptions};
use callwright::template::Piece;
use callwright::tool::Tool;
use callwright::{Model, Result, Tools};
use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::model::params::LlamaModelParams;
use llama_cpp_2::sampling::LlamaSampler;
use llama_cpp_2::token::LlamaToken;
use llama_cpp_2::token::data::LlamaTokenData;
use llama_cpp_2::token::data_array::LlamaTokenDataArray;
use serde_json::{Map, Value};
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

const OWN: &str = r#"[{"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"},
    "days": {"type": "integer"}}, "required": ["city"]}}]"#;

/// One case: its tools, and a call that BFCL accepts, where there is one that fits the schema.
struct Case {
    tools: Tools,
    answer: Option<ToolCall>,
}

fn main() {
    let quick = !std::env::args().any(|argument| argument == "--bench");
    let limit = std::env::var("CALLWRIGHT_BENCH_CASES").ok().and_then(|n| n.parse().ok());
    let limit = limit.unwrap_or(if quick { 5 } else { 1000 });
    let model = std::env::var("CALLWRIGHT_BENCH_MODEL").unwrap_or_else(|_| "bundled".to_owned());
    let cases = cases();
    let cases = &cases[..limit.min(cases.len())];
    let model = Model::open(&model).expect("the model loads");
    let mut engine = model.engine();
    println!("{}, {} threads, {} cases", model.path().display(), model.threads(), cases.len());

    let vocabulary = engine.vocabulary().expect("a model has a vocabulary")();
    let mut compiler = compiler(&vocabulary, Format::delimited());
    let only = std::env::var("CALLWRIGHT_BENCH_ONLY").ok();
    let wanted = |part: &str| only.as_ref().is_none_or(|only| only.split(',').any(|one| one == part));
    if wanted("prepare") {
        let mut times: Vec<f64> = (0..5)
            .map(|_| {
                let started = on_cpu();
                self::compiler(&vocabulary, Format::delimited());
                ms(on_cpu() - started)
            })
            .collect();
        let median = median(&mut times);
        println!("preparing the model, once: {median:.0} ms of CPU, at best {:.0}", times[0]);
        for count in [10, 200] {
            println!("preparing {count} tools: {:.1} ms of CPU", ms(preparing(&mut compiler, cases, count)));
        }
    }

    if wanted("calls") || wanted("formats") {
        println!("random weights, calls required, 256 tokens:");
    }
    if wanted("calls") {
        sound(&mut *engine, &mut compiler, Format::delimited(), cases);
    }
    for name in Format::names().filter(|name| *name != "delimited" && wanted("formats")) {
        let format = Format::builtin(name).expect("its name is listed");
        let mut compiler = self::compiler(&vocabulary, format);
        sound(&mut *engine, &mut compiler, format, &cases[..cases.len().min(100)]);
    }

    if wanted("jump") {
        jump_forward(&mut *engine, &mut compiler, &vocabulary, cases);
    }
    if wanted("canonical") {
        canonical(&vocabulary, cases);
    }
    if wanted("outside") {
        outside(&mut *engine, &mut compiler, &vocabulary, &cases[0].tools);
    }
    if wanted("gbnf") {
        gbnf(model.path(), &vocabulary, &mut compiler, cases);
    }
}

/// Time that this thread has run: other programs on the machine do not count.
fn on_cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(stat.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0))
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

fn quantiles(times: &mut [Duration]) -> String {
    times.sort();
    let at = |part: f64| times.get(((times.len() as f64 * part) as usize).min(times.len().saturating_sub(1)));
    let us = |part| at(part).map_or(f64::NAN, |time| time.as_secs_f64() * 1e6);
    format!("p50 {:.0} µs, p99 {:.0} µs, longest {:.0} µs, of {}", us(0.5), us(0.99), us(1.0), times.len())
}

fn compiler(vocabulary: &Vocabulary, format: &Format) -> Compiler {
    Compiler::for_format(vocabulary.clone(), format).expect("the vocabulary is usable")
}

fn rules(jump: bool, calls: Calls) -> Rules {
    let mode = if calls == Calls::Required { Mode::Strict } else { Mode::Auto };
    let mut rules = Rules::default();
    (rules.mode, rules.calls) = (mode, calls);
    (rules.max_calls, rules.jump) = (Some(1), jump);
    rules
}

/// The non-live cases that have answers.
fn cases() -> Vec<Case> {
    let folder = std::env::var_os("CALLWRIGHT_BFCL")
        .map(PathBuf::from)
        .unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/bfcl"));
    let mut cases = Vec::new();
    for category in ["simple_python", "multiple", "parallel", "parallel_multiple"] {
        let file = format!("BFCL_v4_{category}.json");
        let read = |path: PathBuf| std::fs::read_to_string(path).unwrap_or_default();
        let answers = read(folder.join("data/possible_answer").join(&file));
        for (line, answer) in read(folder.join("data").join(&file)).lines().zip(answers.lines()) {
            let case: Value = serde_json::from_str(line).expect("a case is JSON");
            let answer: Value = serde_json::from_str(answer).expect("an answer is JSON");
            let Ok(tools) = Tools::from_value(&case["function"]) else { continue };
            let answer = call(&tools, &answer["ground_truth"][0]);
            cases.push(Case { tools, answer });
        }
    }
    if cases.is_empty() {
        cases.push(Case { tools: Tools::from_json(OWN, "own").expect("its own tools are"), answer: None });
    }
    cases
}

/// The first accepted values of an expected call, in the schema's order; `None` where they break the schema.
fn call(tools: &Tools, expected: &Value) -> Option<ToolCall> {
    let (name, values) = expected.as_object()?.iter().next()?;
    let schema = tools.get(name)?.schema()?;
    let order = schema["properties"].as_object()?.keys();
    let given = order.filter_map(|key| Some((key.clone(), values.get(key)?.get(0)?.clone()))).filter(|(_, v)| v != "");
    let arguments: Map<String, Value> = given.collect();
    let nested = arguments.values().any(|value| value.to_string().contains(['{', '[']));
    let fits = !nested && tools.problems(name, &arguments).is_empty();
    let (name, arguments) = (name.clone(), Arguments::Object(arguments));
    fits.then(|| ToolCall { id: Some("abcdef123".to_owned()), name, arguments })
}

/// The time that the grammar of so many tools takes. The clock is a coarse one, so that it is the mean of many, each
/// with the tools in another order: the grammar of the same tools would not be made again.
fn preparing(compiler: &mut Compiler, cases: &[Case], count: usize) -> Duration {
    let mut tools: Vec<Tool> = Vec::new();
    for tool in cases.iter().flat_map(|case| case.tools.iter()) {
        if tools.len() < count && !tools.iter().any(|known| known.name == tool.name) {
            tools.push(tool.clone());
        }
    }
    let rounds = u32::try_from(4000 / count).unwrap_or(1).min(100);
    let mut spent = Duration::ZERO;
    for _ in 0..rounds {
        tools.rotate_left(1);
        let tools = Tools::new(tools.clone()).expect("the names differ");
        let started = on_cpu();
        Constraint::new(compiler, Format::delimited(), &tools, None, rules(true, Calls::Required))
            .expect("the tools have a grammar");
        spent += on_cpu() - started;
    }
    spent / rounds
}

fn prompt() -> Vec<Token> {
    (0..16).map(|i| Token(100 + i * 37 % 1000)).collect()
}

/// Calls of a model that writes at random: complete, read without a repair, and valid.
fn sound(engine: &mut dyn Engine, compiler: &mut Compiler, format: &Format, cases: &[Case]) {
    let journal = std::env::var_os("CALLWRIGHT_BENCH_JOURNAL").map(PathBuf::from);
    let written = journal.as_ref().and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
    let mut lines: Vec<String> = Vec::new();
    let (mut masks, mut shown) = (Vec::new(), 0);
    for (seed, case) in cases.iter().enumerate() {
        let key = format!("{}\t{seed}\t", format.name);
        if let Some(done) = written.lines().find(|line| line.starts_with(&key)) {
            lines.push(done.to_owned());
            continue;
        }
        let sampling = Sampling::default().with(|sampling| {
            sampling.temperature = 1.0;
            sampling.top_k = 1000;
            sampling.top_p = 1.0;
            sampling.min_p = 0.0;
            sampling.seed = seed as u64;
        });
        let tools = Arc::new(Tools::from_value(&case.tools.to_json()).expect("they were tools"));
        let mut text = Vec::new();
        let outcome =
            Constraint::new(compiler, format, &tools, None, rules(true, Calls::Required)).and_then(|mut c| {
                let cancel = AtomicBool::new(false);
                let limits = Limits::new(256, &cancel);
                let generation = generate(engine, &prompt(), &sampling, limits, Some(&mut c), &mut |bytes, _| {
                    text.extend_from_slice(bytes);
                    ControlFlow::Continue(())
                })?;
                masks.extend_from_slice(c.mask_times());
                Ok((generation.tokens.len(), !c.notices().is_empty()))
            });
        let mut parser =
            Parser::new(format, Some(tools), ParserOptions::default()).expect("a built-in format has a parser");
        parser.push(&text, &mut |_| ());
        let parsed = parser.finish(&mut |_| ());
        let fine = outcome.is_ok()
            && !parsed.calls.is_empty()
            && parsed.calls.iter().all(|call| call.complete && call.valid)
            && parsed.repairs.is_empty();
        if !fine && shown < 2 {
            shown += 1;
            let problems: Vec<_> = parsed.calls.iter().flat_map(|call| &call.problems).collect();
            let text = String::from_utf8_lossy(&text);
            let error = outcome.as_ref().err();
            println!("    case {seed}: {error:?} {:?} {:?} {problems:?} {text:?}", parsed.repairs, parsed.diagnostics);
        }
        let (tokens, early) = outcome.unwrap_or_default();
        let how = if fine { "sound" } else { "unsound" };
        let line = format!("{key}{how}\t{}\t{tokens}", if early { "early" } else { "ended" });
        if let Some(path) = &journal {
            let file = std::fs::File::options().create(true).append(true).open(path);
            file.and_then(|mut file| writeln!(file, "{line}")).expect("the journal can be written");
        }
        lines.push(line);
    }
    let with = |word: &str| lines.iter().filter(|line| line.split('\t').any(|field| field == word)).count();
    let tokens: usize = lines.iter().filter_map(|line| line.rsplit('\t').next()?.parse::<usize>().ok()).sum();
    let (name, sound, early, all) = (&format.name, with("sound"), with("early"), lines.len());
    println!(
        "  {name:18} {sound} of {all} sound; {early} closed early, {tokens} tokens; mask {}",
        quantiles(&mut masks)
    );
}

/// An engine with a script, which computes all the same where it has a model.
struct Dictated<'e> {
    model: Option<&'e mut dyn Engine>,
    info: ModelInfo,
    vocabulary: Vocabulary,
    text: Vec<Token>,
    prompt: usize,
    cached: Vec<Token>,
    logits: Vec<f32>,
    likeliest: usize,
    /// Whether it would rather end its turn, at every token.
    tired: bool,
}

impl Dictated<'_> {
    fn new<'e>(model: Option<&'e mut dyn Engine>, vocabulary: &Vocabulary, text: Vec<Token>) -> Dictated<'e> {
        let logits = vec![f32::NEG_INFINITY; vocabulary.words.len()];
        let info = ModelInfo { context_train: 32_768, ..ModelInfo::default() };
        Dictated {
            model,
            info,
            vocabulary: vocabulary.clone(),
            text,
            prompt: prompt().len(),
            cached: Vec::new(),
            logits,
            likeliest: 0,
            tired: false,
        }
    }
}

impl Engine for Dictated<'_> {
    fn model(&self) -> &ModelInfo {
        &self.info
    }
    fn tokenize(&self, _: &[Piece]) -> Result<Vec<Token>> {
        Ok(Vec::new())
    }
    fn token_bytes(&self, token: Token) -> &[u8] {
        self.vocabulary.bytes(token)
    }
    fn is_end(&self, token: Token) -> bool {
        usize::try_from(token.0).is_ok_and(|index| self.vocabulary.words[index].end)
    }
    fn reserve(&mut self, now: usize, most: usize) -> Result<()> {
        self.model.as_mut().map_or(Ok(()), |model| model.reserve(now, most))
    }
    fn context_limit(&self) -> usize {
        32_768
    }
    fn cached(&self) -> &[Token] {
        &self.cached
    }
    fn truncate(&mut self, len: usize) {
        self.cached.truncate(len);
        if let Some(model) = &mut self.model {
            model.truncate(len);
        }
    }
    fn decode(&mut self, tokens: &[Token]) -> Result<()> {
        self.cached.extend_from_slice(tokens);
        let said = self.cached.len().saturating_sub(self.prompt);
        let end = self.vocabulary.words.iter().position(|word| word.end).unwrap_or(0);
        let next = self.text.get(said).and_then(|token| usize::try_from(token.0).ok()).unwrap_or(end);
        self.logits[self.likeliest] = f32::NEG_INFINITY;
        self.logits[next] = 0.0;
        if self.tired {
            self.logits[end] = 1.0;
        }
        self.likeliest = next;
        self.model.as_mut().map_or(Ok(()), |model| model.decode(tokens))
    }
    fn logits(&self, row: usize) -> &[f32] {
        if let Some(model) = &self.model {
            std::hint::black_box(model.logits(row));
        }
        &self.logits
    }
}

/// What an engine with a script writes, and how long that took.
fn say(engine: &mut Dictated<'_>, constraint: Option<&mut Constraint<'_>>) -> (Vec<Token>, Duration) {
    let cancel = AtomicBool::new(false);
    let limits = Limits::new(1024, &cancel);
    engine.truncate(0);
    let generation =
        generate(engine, &prompt(), &Sampling::default(), limits, constraint, &mut |_, _| ControlFlow::Continue(()));
    let generation = generation.expect("generation works");
    (generation.tokens, generation.usage.completion_time)
}

/// The same calls with forced tokens appended, and with the model asked for each.
fn jump_forward(engine: &mut dyn Engine, compiler: &mut Compiler, vocabulary: &Vocabulary, cases: &[Case]) {
    let format = Format::delimited();
    let mut ratios = Vec::new();
    let mut seconds = [0.0; 2];
    for (index, case) in cases.iter().filter(|case| case.answer.is_some()).take(50).enumerate() {
        let Some(answer) = &case.answer else { continue };
        let text = vocabulary.tokenize(format.write_calls(std::slice::from_ref(answer)).as_bytes());
        let mut times = [0.0; 2];
        // Each goes first every other time: neither is to profit from what else the machine does.
        for jump in if index % 2 == 0 { [false, true] } else { [true, false] } {
            let rules = rules(jump, Calls::Required);
            let mut constraint = Constraint::new(compiler, format, &case.tools, None, rules).expect("it has a grammar");
            let (_, time) =
                say(&mut Dictated::new(Some(&mut *engine), vocabulary, text.clone()), Some(&mut constraint));
            times[usize::from(jump)] = time.as_secs_f64();
        }
        ratios.push(times[1] / times[0]);
        seconds.iter_mut().zip(&mut times).for_each(|(sum, time)| *sum += *time);
    }
    let whole = seconds[1] / seconds[0];
    println!(
        "the same {} calls with jump-forward ÷ without: median {:.2}, sum {whole:.2}",
        ratios.len(),
        median(&mut ratios)
    );
}

/// Whether forced and sampled tokens together are what the tokenizer makes of the text.
fn canonical(vocabulary: &Vocabulary, cases: &[Case]) {
    let (mut count, mut same, mut other) = (0, 0, 0);
    for name in Format::names() {
        let Some(format) = Format::builtin(name) else { continue };
        let mut compiler = compiler(vocabulary, format);
        let mut shown = 0;
        for case in cases {
            let Some(answer) = &case.answer else { continue };
            let written = format.write_calls(std::slice::from_ref(answer));
            let text = vocabulary.tokenize(written.as_bytes());
            let rules = rules(true, Calls::Required);
            let Ok(mut constraint) = Constraint::new(&mut compiler, format, &case.tools, None, rules) else { continue };
            let (said, _) = say(&mut Dictated::new(None, vocabulary, text.clone()), Some(&mut constraint));
            // Where the grammar writes something else (an id, another notation of a number), the script
            // of the engine does not fit, and what it writes is no tokenizer's work.
            if !said.iter().flat_map(|token| vocabulary.bytes(*token)).eq(written.as_bytes()) {
                other += 1;
                continue;
            }
            let own = text.clone();
            count += 1;
            same += usize::from(said == own);
            if said != own && shown < 1 {
                shown += 1;
                let words = |tokens: &[Token]| -> Vec<String> {
                    tokens.iter().map(|t| String::from_utf8_lossy(vocabulary.bytes(*t)).into_owned()).collect()
                };
                let at = said.iter().zip(&own).take_while(|(a, b)| a == b).count();
                let near = |tokens: &[Token]| words(&tokens[at.saturating_sub(2)..tokens.len().min(at + 4)]);
                println!("    {name}: {:?} instead of {:?}", near(&said), near(&own));
            }
        }
    }
    println!("canonical: {same} of {count} calls; {other} are written differently by the grammar");
}

/// What the constraint takes for a token of text, in addition to the model's own time.
fn outside(engine: &mut dyn Engine, compiler: &mut Compiler, vocabulary: &Vocabulary, tools: &Tools) {
    // More than `say` lets it write.
    let mut dictated =
        Dictated::new(None, vocabulary, vocabulary.tokenize("It is a fine day. ".repeat(500).as_bytes()));
    let mut time = |constraint: Option<&mut Constraint<'_>>| {
        let (tokens, time) = say(&mut dictated, constraint);
        time / tokens.len() as u32
    };
    // Alternating, the least of each: other programs only add to it.
    let (mut with, mut without) = (Duration::MAX, Duration::MAX);
    for _ in 0..50 {
        let rules = rules(true, Calls::Allowed);
        let mut constraint =
            Constraint::new(compiler, Format::delimited(), tools, None, rules).expect("it has a grammar");
        with = with.min(time(Some(&mut constraint)));
        without = without.min(time(None));
    }
    let cancel = AtomicBool::new(false);
    let limits = Limits::new(64, &cancel);
    let sampling = Sampling::default().with(|sampling| sampling.temperature = 20.0);
    let plain = generate(engine, &prompt(), &sampling, limits, None, &mut |_, _| ControlFlow::Continue(()));
    let usage = plain.expect("generation works").usage;
    let step = usage.completion_time / usage.completion_tokens.max(1) as u32;
    let extra = with.saturating_sub(without);
    println!(
        "outside of a call: {extra:?} a token ({with:?} with, {without:?} without), {:.2}% of a step of {step:?}",
        100.0 * extra.as_secs_f64() / step.as_secs_f64()
    );
}

/// llama.cpp's own grammar sampler on calls of the same tools: the time to filter one set of candidates; and the time
/// that a mask takes here at every token of the same calls.
fn gbnf(path: &Path, vocabulary: &Vocabulary, compiler: &mut Compiler, cases: &[Case]) {
    // The engine has started llama.cpp; this is only the token that says so, and must not stop it.
    let backend = std::mem::ManuallyDrop::new(llama_cpp_2::llama_backend::LlamaBackend {});
    let params = LlamaModelParams::default().with_vocab_only(true);
    let Ok(model) = LlamaModel::load_from_file(&backend, path, &params) else { return };
    let (mut times, mut masks) = (Vec::new(), Vec::new());
    let candidates: Vec<LlamaTokenData> =
        (0..vocabulary.words.len()).map(|i| LlamaTokenData::new(LlamaToken(i as i32), 0.0, 0.0)).collect();
    for case in cases.iter().filter(|case| case.answer.is_some()).take(20) {
        let Some(answer) = &case.answer else { continue };
        let Ok(mut sampler) = LlamaSampler::grammar(&model, &calls_gbnf(&case.tools), "root") else { continue };
        let text = Format::delimited().write_calls(std::slice::from_ref(answer));
        let rules = rules(false, Calls::Required);
        let mut constraint =
            Constraint::new(compiler, Format::delimited(), &case.tools, None, rules).expect("it has a grammar");
        let mut dictated = Dictated::new(None, vocabulary, vocabulary.tokenize(text.as_bytes()));
        dictated.tired = true;
        say(&mut dictated, Some(&mut constraint));
        masks.extend_from_slice(constraint.mask_times());
        let payload = text.lines().nth(1).unwrap_or_default();
        for token in vocabulary.tokenize(payload.as_bytes()) {
            let mut array = LlamaTokenDataArray::new(candidates.clone(), false);
            let started = Instant::now();
            sampler.apply(&mut array);
            times.push(started.elapsed());
            let allowed = array.data.iter().any(|c| c.id().0 == token.0 && c.logit() > f32::NEG_INFINITY);
            if !allowed {
                break;
            }
            sampler.accept(LlamaToken(token.0));
        }
    }
    println!("a mask at every token of 20 calls: {}", quantiles(&mut masks));
    println!("llama.cpp's grammar sampler, the same calls: {}", quantiles(&mut times));
}

/// A call of any of the tools in llama.cpp's notation; nested values are any JSON.
fn calls_gbnf(tools: &Tools) -> String {
    let quoted = |text: &str| Value::from(text).to_string();
    let calls: Vec<String> = tools
        .iter()
        .map(|tool| {
            let schema = tool.schema().unwrap_or_default();
            let empty = Map::new();
            let properties = schema["properties"].as_object().unwrap_or(&empty);
            let required: Vec<&str> =
                schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            let mut members = String::new();
            for (index, (key, value)) in properties.iter().enumerate() {
                let kind = match (value.get("enum").and_then(Value::as_array), value["type"].as_str()) {
                    (Some(options), _) => {
                        let options: Vec<String> = options.iter().map(|option| quoted(&option.to_string())).collect();
                        format!("({})", options.join(" | "))
                    }
                    (None, Some("string")) => "string".to_owned(),
                    (None, Some("integer" | "number")) => "number".to_owned(),
                    (None, Some("boolean")) => "(\"true\" | \"false\")".to_owned(),
                    _ => "value".to_owned(),
                };
                let comma = if index == 0 { "" } else { ", " };
                let member = format!("{} {kind}", quoted(&format!("{comma}{}: ", quoted(key))));
                let optional = !required.contains(&key.as_str());
                members += &if optional { format!(" ({member})?") } else { format!(" {member}") };
            }
            let before = format!("{{\"name\": {}, \"arguments\": {{", quoted(&tool.name));
            format!("{} {members} \"}}}}\"", quoted(&before))
        })
        .collect();
    format!(
        "root ::= {}\nstring ::= \"\\\"\" ([^\"\\\\\\x7F\\x00-\\x1F] | \"\\\\\" ([\"\\\\bfnrt] | \"u\" [0-9a-fA-F]{{4}}))* \"\\\"\"\n\
         number ::= \"-\"? ([0-9] | [1-9] [0-9]{{0,15}}) (\".\" [0-9]+)?\n\
         value ::= string | number | \"true\" | \"false\" | \"null\" | \"[\" (value (\", \" value)*)? \"]\" | \
         \"{{\" (string \": \" value (\", \" string \": \" value)*)? \"}}\"\n",
        calls.join(" | ")
    )
}
