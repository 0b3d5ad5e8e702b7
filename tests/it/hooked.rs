//! A script that a test watches, or changes while it is read.

use callwright::Result;
use callwright::engine::sampler::Sampling;
use callwright::engine::scripted::ScriptedEngine;
use callwright::engine::vocabulary::ReadVocabulary;
use callwright::engine::{Abilities, Engine, ModelInfo, Prompt, Token};
use callwright::template::Piece;

/// What a test does before an answer begins; it may replace the script.
type Begin = Box<dyn FnMut(&mut ScriptedEngine, &[Token]) -> Result<()> + Send>;

/// Passes everything on to a script, after what the test does itself.
pub struct Hooked {
    pub script: ScriptedEngine,
    pub on_tokenize: Box<dyn Fn() + Send>,
    pub on_decode: Box<dyn Fn() + Send>,
    pub on_begin: Begin,
}

impl Hooked {
    pub fn new(script: ScriptedEngine) -> Hooked {
        Hooked { script, on_tokenize: Box::new(|| ()), on_decode: Box::new(|| ()), on_begin: Box::new(|_, _| Ok(())) }
    }
}

impl Engine for Hooked {
    fn model(&self) -> &ModelInfo {
        self.script.model()
    }
    fn tokenize(&self, prompt: &[Piece]) -> Result<Vec<Token>> {
        (self.on_tokenize)();
        self.script.tokenize(prompt)
    }
    fn token_bytes(&self, token: Token) -> &[u8] {
        self.script.token_bytes(token)
    }
    fn vocabulary(&self) -> Option<ReadVocabulary> {
        self.script.vocabulary()
    }
    fn is_end(&self, token: Token) -> bool {
        self.script.is_end(token)
    }
    fn reserve(&mut self, now: usize, most: usize) -> Result<()> {
        self.script.reserve(now, most)
    }
    fn context_limit(&self) -> usize {
        self.script.context_limit()
    }
    fn cached(&self) -> &[Token] {
        self.script.cached()
    }
    fn truncate(&mut self, len: usize) {
        self.script.truncate(len);
    }
    fn decode(&mut self, tokens: &[Token]) -> Result<()> {
        (self.on_decode)();
        self.script.decode(tokens)
    }
    fn decode_all(&mut self, tokens: &[Token], first: usize) -> Result<()> {
        self.script.decode_all(tokens, first)
    }
    fn logits(&self, row: usize) -> &[f32] {
        self.script.logits(row)
    }
    fn can(&self) -> Abilities {
        self.script.can()
    }
    fn begin(&mut self, prompt: Prompt<'_>, sampling: &Sampling) -> Result<()> {
        (self.on_begin)(&mut self.script, prompt.tokens)?;
        self.script.begin(prompt, sampling)
    }
}
