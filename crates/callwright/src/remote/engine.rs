//! The engine that lets a server answer.

use super::chat::{self, Writer};
use super::feed::{END, Feed, Said};
use super::http::{Item, Path};
use super::raw;
use super::server::Server;
use crate::answer::Options;
use crate::answer::{End, Usage};
use crate::engine::sampler::{Sampler, Sampling};
use crate::engine::vocabulary::{ReadVocabulary, Vocabulary};
use crate::engine::{Engine, ModelInfo, ModelServer, Prompt, Token};
use crate::template::Piece;
use crate::{Error, ErrorKind, Result};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The first token of a prompt. Those of an answer have lower ids.
const PROMPT: i32 = 1 << 24;
/// About so many bytes are a token, where nobody counts.
const BYTES_PER_TOKEN: usize = 4;

/// Lets a server answer.
pub(super) struct ServerEngine {
    server: Arc<Server>,
    feed: Feed,
    options: Options,
    until: Option<Instant>,
    /// The prompt of the answer, as text: that is what most servers take.
    text: String,
    sampling: Sampling,
    /// Chooses among the server's likeliest tokens.
    sampler: Sampler,
    prompt: Vec<Token>,
    /// What was decoded: the prompt, and the bytes of the answer.
    cached: Vec<Token>,
    /// Tokens of this answer so far.
    written: usize,
    /// Requests that were sent for it.
    requests: usize,
    /// Writes an answer of chat mode as text.
    writer: Writer,
}

impl ServerEngine {
    pub(super) fn new(server: Arc<Server>) -> ServerEngine {
        ServerEngine {
            server,
            feed: Feed::new(),
            options: Options::default(),
            until: None,
            text: String::new(),
            sampling: Sampling::default(),
            sampler: Sampler::new(Sampling::default()),
            prompt: Vec::new(),
            cached: Vec::new(),
            written: 0,
            requests: 0,
            writer: Writer::default(),
        }
    }

    /// Asks the server to answer, or to go on after what there is of an answer.
    fn ask(&mut self) -> Result<()> {
        let late = self.until.is_some_and(|until| until <= Instant::now());
        if late || self.options.cancel.load(Ordering::Relaxed) {
            return Ok(());
        }
        let (path, body) = self.request()?;
        tracing::debug!(after_tokens = self.written, "asking the server");
        self.requests += 1;
        self.feed.open(self.server.http.stream(path, &body));
        Ok(())
    }

    /// The request for the answer, or for what follows what there is of it.
    ///
    /// # Errors
    /// Those of [`chat::request`].
    fn request(&self) -> Result<(Path, Value)> {
        let Server { model, named, .. } = &*self.server;
        Ok(if named.chat {
            let most = self.options.max_tokens.min(self.server.context);
            chat::request(&self.text, model, most, &self.options, &self.sampling)?
        } else {
            let answer = self.cached.get(self.prompt.len()..).unwrap_or_default();
            let answer: Vec<u8> = answer.iter().filter_map(|token| u8::try_from(token.0).ok()).collect();
            let answer = String::from_utf8_lossy(&answer);
            let room = self.server.context.saturating_sub(self.prompt.len());
            let left = self.options.max_tokens.saturating_sub(self.written).min(room).max(1);
            if self.server.is_llama {
                let prompt = self.prompt.iter().map(|token| token.0 & !PROMPT);
                let info = &self.server.info;
                // The end of the turn is no text.
                let special = info.control_tokens.iter().filter(|token| **token != info.eos);
                raw::llama_request(prompt, &answer, special, left, &self.sampling)
            } else {
                raw::request(&format!("{}{answer}", self.text), model, left, &self.sampling)
            }
        })
    }

    /// A prompt as text.
    fn written(&self, prompt: &[Piece]) -> String {
        match self.server.named.chat {
            true => prompt.iter().map(|piece| piece.text.as_str()).collect(),
            false => raw::plain(prompt),
        }
    }

    /// About the tokens of a text.
    fn estimated(text: &str) -> Vec<Token> {
        let mut tokens = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let mut end = rest.len().min(BYTES_PER_TOKEN);
            while !rest.is_char_boundary(end) {
                end += 1;
            }
            let (part, after) = rest.split_at(end);
            tokens.push(prompt_token(part.bytes().fold(0, |number, byte| number * 257 + i64::from(byte))));
            rest = after;
        }
        tokens
    }
}

/// A token of a prompt by the server's number of it.
fn prompt_token(number: i64) -> Token {
    Token(PROMPT | i32::try_from(number & 0xff_ffff).unwrap_or_default())
}

/// Returns what an item of the stream says.
fn reader<'a>(server: &'a Server, writer: &'a mut Writer) -> impl FnMut(Item) -> Result<Said> + 'a {
    let mut read = |value: &Value| if server.named.chat { writer.read(value) } else { raw::read(value) };
    move |item| match item {
        Item::Data(value) => {
            let said = read(&value);
            match said.failed {
                Some(why) => Err(Error::new(ErrorKind::Server, format!("{} ended the answer: {why}", server.named))),
                None => Ok(said),
            }
        }
        // Without a finish reason before it, nothing says that the model had finished.
        Item::Complete => Ok(read(&json!({"choices": [{"finish_reason": "length"}]}))),
        Item::Closed => Ok(Said::default()),
        Item::Failed(error) => Err(error),
    }
}

impl Engine for ServerEngine {
    fn model(&self) -> &ModelInfo {
        &self.server.info
    }

    fn tokenize(&self, prompt: &[Piece]) -> Result<Vec<Token>> {
        if self.server.is_llama {
            let read = prompt.iter().map(|piece| self.server.tokens(&piece.text, !piece.literal));
            return Ok(read.collect::<Result<Vec<_>>>()?.concat().into_iter().map(prompt_token).collect());
        }
        let text = self.written(prompt);
        Ok(match self.server.tokenizes {
            true => self.server.tokens(&text, true)?.into_iter().map(prompt_token).collect(),
            false => ServerEngine::estimated(&text),
        })
    }

    fn token_bytes(&self, token: Token) -> &[u8] {
        self.feed.token_bytes(token)
    }

    /// Bytes, so that a constraint checks the text as it arrives. In chat mode nothing can be constrained here.
    fn vocabulary(&self) -> Option<ReadVocabulary> {
        (!self.server.named.chat).then(|| Box::new(Vocabulary::of_bytes) as ReadVocabulary)
    }

    fn is_end(&self, token: Token) -> bool {
        token == END
    }

    fn reserve(&mut self, _now: usize, _most: usize) -> Result<()> {
        Ok(())
    }

    fn context_limit(&self) -> usize {
        self.server.context
    }

    fn cached(&self) -> &[Token] {
        &self.cached
    }

    fn truncate(&mut self, len: usize) {
        self.cached.truncate(len);
    }

    fn decode(&mut self, tokens: &[Token]) -> Result<()> {
        let ServerEngine { server, feed, writer, cached, prompt, .. } = self;
        let mut read = reader(server, writer);
        for token in tokens {
            if cached.len() >= prompt.len() && feed.is_open() {
                let same = match u8::try_from(token.0) {
                    Ok(byte) => feed.take(byte, &mut read)?,
                    Err(_) => false,
                };
                if !same {
                    // The constraint wrote something else, so the answer has to go on from there.
                    feed.stop();
                }
            }
            cached.push(*token);
        }
        drop(read);
        if self.cached.len() < self.prompt.len() {
            return Ok(());
        }
        if !self.feed.is_open() {
            self.ask()?;
        }
        let ServerEngine { server, feed, writer, .. } = self;
        feed.look(&mut reader(server, writer))
    }

    fn logits(&self, _row: usize) -> &[f32] {
        self.feed.logits()
    }

    /// The answer is over: the server need not go on.
    fn remember(&mut self, _reading: Duration) {
        self.feed.close();
    }

    fn begin(&mut self, prompt: Prompt<'_>, sampling: &Sampling) -> Result<()> {
        self.feed.begin(Arc::clone(&self.options.cancel), self.until);
        (self.sampling, self.sampler) = (*sampling, Sampler::new(*sampling));
        self.prompt = prompt.tokens.to_vec();
        self.cached.clear();
        (self.written, self.requests, self.writer) = (0, 0, Writer::default());
        Ok(())
    }

    fn server(&self) -> Option<&dyn ModelServer> {
        Some(self)
    }

    fn server_mut(&mut self) -> Option<&mut dyn ModelServer> {
        Some(self)
    }
}

impl ModelServer for ServerEngine {
    /// Asks the server for the likeliest next tokens, and chooses among those that fit.
    fn reconsider(&mut self, fits: &mut dyn FnMut(&[u8]) -> bool) -> Result<()> {
        let Some(next) = self.feed.next() else { return Ok(()) };
        if fits(&next) {
            return Ok(());
        }
        let (path, body) = self.request()?;
        let mut found = self.server.likeliest(path, body, fits)?;
        let logits: Vec<f32> = found.iter().map(|(_, logprob)| *logprob).collect();
        if logits.is_empty() {
            return Ok(());
        }
        let chosen = usize::try_from(self.sampler.sample(&logits).0).unwrap_or_default();
        tracing::debug!(
            of = logits.len(),
            "what the server wrote does not fit; chose among its likeliest tokens that do"
        );
        self.requests += 1;
        self.feed.replace(found.swap_remove(chosen).0.into_bytes());
        let ServerEngine { server, feed, writer, .. } = self;
        feed.look(&mut reader(server, writer))
    }

    fn can_begin_answer(&self) -> bool {
        !self.server.named.chat
    }

    fn prepare(&mut self, prompt: &[Piece], options: &Options, until: Option<Instant>) {
        self.text = self.written(prompt);
        (self.options, self.until) = (options.clone(), until);
    }

    fn join(&mut self, part: &[Token], more: bool) -> Option<Token> {
        let joined = self.feed.join(part, more);
        self.written += usize::from(joined.is_some());
        joined
    }

    fn ended(&self) -> (Option<End>, Usage) {
        let (end, mut usage) = self.feed.ended();
        // Of several requests for one answer, each counts its own part.
        if self.requests > 1 || usage.completion_tokens == 0 {
            usage.completion_tokens = self.written;
        }
        (end, usage)
    }
}
