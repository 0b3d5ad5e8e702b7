//! A loaded model that makes embeddings. Each text is computed by itself, so that requests with many texts do not keep others waiting.

use super::queue::Full;
use super::refusal::Refusal;
use callwright::engine::Token;
use callwright::{Embedder, Result};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// A text, or its tokens.
pub(super) enum Input {
    Text(String),
    Tokens(Vec<Token>),
}

/// What is asked for.
pub(super) struct Wanted {
    pub inputs: Vec<Input>,
    /// Whether the end of a text is left out that does not fit.
    pub cut: bool,
    /// How many numbers an embedding is to have, if that is said.
    pub dimensions: Option<u64>,
}

/// The embeddings of the texts, in their order, and how many tokens those have.
#[derive(Default)]
pub(super) struct Embedded {
    pub embeddings: Vec<Vec<f32>>,
    pub tokens: usize,
}

/// A loaded model, and the requests for it.
pub(super) struct Desk {
    embedder: Mutex<Embedder>,
    /// Requests that wait or run.
    requests: AtomicUsize,
    /// How many there may be.
    limit: usize,
    /// The size of its file in bytes.
    pub size: u64,
}

impl Desk {
    pub(super) fn new(embedder: Embedder, limit: usize, size: u64) -> Desk {
        Desk { embedder: Mutex::new(embedder), requests: AtomicUsize::new(0), limit, size }
    }

    /// Does something with the model, once nobody else does.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Embedder) -> T) -> T {
        work(&mut self.embedder.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// How many requests wait, and how many run.
    pub(super) fn load(&self) -> (usize, usize) {
        let requests = self.requests.load(Ordering::Relaxed);
        (requests.saturating_sub(1), requests.min(1))
    }

    /// Answers a request, unless it is cancelled. Blocks.
    pub(super) fn embed(
        &self,
        wanted: Wanted,
        cancel: &AtomicBool,
        until: Instant,
    ) -> std::result::Result<Embedded, Refusal> {
        let _place = Place::take(&self.requests, self.limit)?;
        let mut done = Embedded::default();
        let one_of_many = wanted.inputs.len() > 1;
        for (index, input) in wanted.inputs.into_iter().enumerate() {
            if Instant::now() >= until {
                return Err(Refusal::unavailable("the embeddings took until the request's time was over (--timeout)"));
            }
            if cancel.load(Ordering::Relaxed) {
                return Err(Refusal::unavailable("the request was ended before it was answered: the server is ending"));
            }
            let (embedding, tokens) = self.with(|embedder| one(embedder, input, wanted.cut)).map_err(|error| {
                let refusal = Refusal::from(error);
                let place = if one_of_many { format!("text {index}: ") } else { String::new() };
                Refusal { message: place + &refusal.message, ..refusal }
            })?;
            let size = embedding.len();
            if let Some(asked) = wanted.dimensions.filter(|asked| *asked != size as u64) {
                let message = format!("dimensions is {asked}; the embeddings of this model have {size} numbers");
                return Err(Refusal { param: Some("dimensions"), ..Refusal::invalid(message) });
            }
            done.embeddings.push(embedding);
            done.tokens += tokens;
        }
        Ok(done)
    }
}

fn one(embedder: &mut Embedder, input: Input, cut: bool) -> Result<(Vec<f32>, usize)> {
    let tokens = match input {
        Input::Text(text) => embedder.tokenize(&text, cut)?,
        Input::Tokens(tokens) => tokens,
    };
    Ok((embedder.embed(&tokens)?, tokens.len()))
}

/// A request that is counted, until it is dropped.
struct Place<'a>(&'a AtomicUsize);

impl Place<'_> {
    fn take(requests: &AtomicUsize, limit: usize) -> std::result::Result<Place<'_>, Refusal> {
        let place = Place(requests);
        match requests.fetch_add(1, Ordering::Relaxed) {
            before if before < limit => Ok(place),
            _ => Err(Full { seconds: 1 }.into()),
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
