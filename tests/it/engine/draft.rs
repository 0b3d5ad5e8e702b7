//! Drafts from the prompt: they change how often the model is asked, and nothing else.

use crate::bundled::one_thread;
use crate::byte_tokens;
use callwright::constraint::{Calls, Compiler, Constraint, Mode, Rules};
use callwright::engine::sampler::Sampling;
use callwright::engine::vocabulary::Vocabulary;
use callwright::engine::{Abilities, Engine, ModelInfo, Token};
use callwright::format::Format;
use callwright::generate::{Generation, Limits, generate};
use callwright::template::Piece;
use callwright::{Result, Session, Tools};
use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;

const TOOLS: &str = r#"[{"name": "weather", "description": "The weather in a city", "parameters": {"type": "object",
    "properties": {"city": {"type": "string"}, "note": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city", "note"]}}]"#;

/// A model over bytes whose logits follow from the last three of them: what it wrote once it is likely to write again.
struct Repeater {
    info: ModelInfo,
    cached: Vec<Token>,
    rows: Vec<Vec<f32>>,
    /// Tokens decoded, and calls that decoded them.
    decoded: (usize, usize),
    drafts: bool,
}

impl Repeater {
    fn new(drafts: bool) -> Repeater {
        let info = ModelInfo { context_train: 100_000, ..ModelInfo::default() };
        let (cached, rows) = (Vec::new(), Vec::new());
        Repeater { info, cached, rows, decoded: (0, 0), drafts }
    }
}

impl Engine for Repeater {
    fn model(&self) -> &ModelInfo {
        &self.info
    }
    fn tokenize(&self, prompt: &[Piece]) -> Result<Vec<Token>> {
        Ok(byte_tokens::tokenize(prompt))
    }
    fn token_bytes(&self, token: Token) -> &[u8] {
        byte_tokens::bytes(token)
    }
    fn is_end(&self, token: Token) -> bool {
        token.0 == 256
    }
    fn reserve(&mut self, _: usize, _: usize) -> Result<()> {
        Ok(())
    }
    fn context_limit(&self) -> usize {
        self.info.context_train
    }
    fn cached(&self) -> &[Token] {
        &self.cached
    }
    fn truncate(&mut self, len: usize) {
        self.cached.truncate(len);
    }
    fn decode(&mut self, tokens: &[Token]) -> Result<()> {
        self.decode_all(tokens, tokens.len() - 1)
    }
    fn can(&self) -> Abilities {
        Abilities { truncate: self.drafts, go_back: self.drafts, draft: self.drafts }
    }
    fn decode_all(&mut self, tokens: &[Token], first: usize) -> Result<()> {
        self.decoded = (self.decoded.0 + tokens.len(), self.decoded.1 + 1);
        self.rows.clear();
        for (index, token) in tokens.iter().enumerate() {
            self.cached.push(*token);
            if index < first {
                continue;
            }
            let last = &self.cached[self.cached.len().saturating_sub(3)..];
            let mut state = last.iter().fold(7_u64, |hash, token| hash * 1_000_003 + token.0 as u64);
            let logits = (0..257).map(|byte| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let letter = byte == 32 || (97..123).contains(&byte);
                (state >> 40) as f32 / (1 << 21) as f32 + if letter { 3.0 } else { 0.0 }
            });
            self.rows.push(logits.collect());
        }
        Ok(())
    }
    fn logits(&self, row: usize) -> &[f32] {
        &self.rows[row]
    }
}

fn write(
    engine: &mut dyn Engine,
    compiler: &mut Compiler,
    format: &Format,
    prompt: &[Token],
    sampling: Sampling,
    draft: bool,
) -> Generation {
    let tools = Tools::from_json(TOOLS, "tools.json").unwrap();
    let mut rules = Rules::default();
    (rules.mode, rules.calls) = (Mode::Strict, Calls::Required);
    (rules.max_calls, rules.draft) = (Some(2), draft);
    let mut constraint = Constraint::new(compiler, format, &tools, None, rules).unwrap();
    let cancel = AtomicBool::new(false);
    let limits = Limits::new(300, &cancel);
    let made =
        generate(engine, prompt, &sampling, limits, Some(&mut constraint), &mut |_, _| ControlFlow::Continue(()));
    made.unwrap()
}

#[test]
fn what_is_sampled_is_the_same_with_and_without_drafts() {
    let (mut drafted, mut saved) = (0, 0);
    for name in ["delimited", "hermes", "qwen3-coder", "lfm2"] {
        let format = Format::builtin(name).unwrap();
        let mut compiler = Compiler::for_format(Vocabulary::of_bytes(), format).unwrap();
        for seed in 0..12 {
            let temperature = (seed % 3) as f32;
            let sampling = crate::bundled::unfiltered(temperature, seed);
            // The prompt has what the model is likely to say.
            let first = write(&mut Repeater::new(false), &mut compiler, format, &[Token(65)], sampling, true);
            assert_eq!((first.usage.drafted_tokens, first.usage.proposed_tokens), (0, 0));
            let prompt = [first.tokens.as_slice(), &[Token(65)]].concat();

            let (mut plain, mut drafting) = (Repeater::new(true), Repeater::new(true));
            let without = write(&mut plain, &mut compiler, format, &prompt, sampling, false);
            let with = write(&mut drafting, &mut compiler, format, &prompt, sampling, true);
            assert_eq!(with.tokens, without.tokens, "{name} {seed}");
            assert_eq!(with.end, without.end);
            let usage = with.usage;
            assert_eq!(usage.forced_tokens, without.usage.forced_tokens);
            assert_eq!(without.usage.proposed_tokens, 0);
            assert!(usage.drafted_tokens <= usage.proposed_tokens);
            // No rejected draft is kept.
            let whole = [prompt.as_slice(), &with.tokens].concat();
            assert!(whole.starts_with(drafting.cached()), "{name} {seed}");
            drafted += usage.drafted_tokens;
            saved += plain.decoded.1.saturating_sub(drafting.decoded.1);
        }
    }
    // A token that is drafted before forced text saves no step: it would have been decoded together with that.
    assert!(drafted > 300 && saved * 2 > drafted, "{drafted} {saved}");
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn the_bundled_model_answers_the_same_with_and_without_drafts() {
    let questions = [
        "What is the weather in Beijing tomorrow?",
        "Weather for Villefranche-de-Rouergue, note: bring the blue umbrella with the broken handle",
        "How will the weather be in San Francisco in 5 days? Note that we arrive by train.",
    ];
    let mut answers = Vec::new();
    for draft in [false, true] {
        let mut session = Session::new(one_thread(), None, None).unwrap();
        session.set_tools(Tools::from_json(TOOLS, "tools.json").unwrap());
        session.options_mut().max_tokens = 120;
        session.options_mut().draft = draft;
        let mut said = Vec::new();
        for question in questions {
            session.set_messages(Vec::new()).unwrap();
            let reply = session.ask(question).unwrap();
            assert!(draft || reply.usage.proposed_tokens == 0);
            said.push((reply.message.content.clone(), format!("{:?}", reply.message.tool_calls)));
        }
        answers.push(said);
    }
    assert_eq!(answers[0], answers[1]);
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn a_batch_has_the_logits_after_each_of_its_tokens() {
    let tokens: Vec<Token> = (0..40).map(|i| Token(100 + i * 7 % 900)).collect();
    let (mut single, mut batch) = (one_thread(), one_thread());
    for engine in [&mut single, &mut batch] {
        engine.reserve(tokens.len(), tokens.len()).unwrap();
        engine.decode(&tokens[..30]).unwrap();
    }
    batch.decode_all(&tokens[30..], 3).unwrap();
    single.decode(&tokens[30..33]).unwrap();
    for (index, token) in tokens[33..].iter().enumerate() {
        single.decode(&[*token]).unwrap();
        let alone = single.logits(0);
        assert_eq!(alone.len(), batch.logits(index).len());
        let apart = alone.iter().zip(batch.logits(index)).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        // Sums in another order, of rounded numbers, are a little apart; those after another token are far apart.
        let range = alone.iter().copied().fold(f32::MIN, f32::max) - alone.iter().copied().fold(f32::MAX, f32::min);
        assert!(apart < 0.02 * range, "{index}: {apart} of {range}");
    }
    assert_eq!(batch.logits(7), [] as [f32; 0]);
    // What was decoded on trial can be forgotten.
    batch.truncate(32);
    batch.decode(&tokens[32..33]).unwrap();
    assert_eq!(batch.cached(), &tokens[..33]);
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn decoding_beyond_what_was_reserved_is_an_error_and_loses_nothing() {
    let mut engine = one_thread();
    let tokens: Vec<Token> = (0..300).map(|i| Token(100 + i)).collect();
    let error = engine.decode(&tokens[..1]).unwrap_err();
    assert_eq!(error.to_string(), "nothing to decode into: no room was reserved");
    engine.reserve(200, 200).unwrap();
    engine.decode(&tokens[..200]).unwrap();
    let error = engine.decode(&tokens[200..]).unwrap_err();
    assert_eq!(error.to_string(), "300 tokens do not fit into the 256 that were reserved");
    assert_eq!(engine.cached(), &tokens[..200]);
    let error = engine.decode_all(&[Token(5); 600], 0).unwrap_err();
    assert_eq!(error.kind(), callwright::ErrorKind::Engine);
}
