//! The text that a server writes, byte by byte.
//!
//! The generation loop wants logits. A server sends text, so each byte is a token, and the logits say which byte comes
//! next. What the server sends at a time, usually one token of its model, is joined to one token again for everything
//! that counts tokens.

use super::http::{Item, Stream, Waited};
use crate::answer::{End, Usage};
use crate::engine::Token;
use crate::{Error, ErrorKind, Result};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// The token after the last byte.
pub(super) const END: Token = Token(256);
/// The bytes, and the end.
const TOKENS: usize = 257;
/// The first token that is several bytes.
const PIECES: i32 = 512;
/// The logit of a byte that the server did not send.
const UNLIKELY: f32 = -40.0;

/// What an item of a stream says.
#[derive(Default)]
pub(super) struct Said {
    /// More of the answer.
    pub text: String,
    /// Why the answer ended.
    pub end: Option<End>,
    /// What the server counted.
    pub counted: Option<Counted>,
    /// Why the server broke the answer off, if it did.
    pub failed: Option<String>,
}

/// How an answer ended by its finish reason: with an end, or with a failure.
pub(super) fn finish(reason: Option<&str>) -> (Option<End>, Option<String>) {
    match reason {
        None => (None, None),
        Some("length") => (Some(End::Length), None),
        Some("stop" | "tool_calls" | "function_call" | "eos" | "eos_token" | "stop_sequence" | "end_turn") => {
            (Some(End::EndOfTurn), None)
        }
        Some(other) => (Some(End::EndOfTurn), Some(format!("finish_reason {other:?}"))),
    }
}

/// Numbers of tokens.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counted {
    pub prompt: usize,
    pub cached: usize,
    pub completion: usize,
}

impl Counted {
    /// Reads OpenAI's `usage`.
    pub(super) fn read(value: &serde_json::Value) -> Option<Counted> {
        let usage = value.get("usage").filter(|usage| usage.is_object())?;
        let number =
            |value: Option<&serde_json::Value>| value.and_then(serde_json::Value::as_u64).unwrap_or(0) as usize;
        Some(Counted {
            prompt: number(usage.get("prompt_tokens")),
            cached: number(usage.get("prompt_tokens_details").and_then(|details| details.get("cached_tokens"))),
            completion: number(usage.get("completion_tokens")),
        })
    }
}

/// The text of one stream, as far as it was not taken yet.
pub(super) struct Feed {
    stream: Option<Stream>,
    /// What came, in pieces.
    pieces: VecDeque<VecDeque<u8>>,
    /// Whether a part of the first piece was taken.
    begun: bool,
    /// Why the answer ended, once it did.
    end: Option<End>,
    /// What the server counted.
    counted: Counted,
    cancel: Arc<AtomicBool>,
    until: Option<Instant>,
    logits: Vec<f32>,
    table: Table,
}

/// Tokens of several bytes, by their bytes.
#[derive(Default)]
struct Table {
    bytes: Vec<Vec<u8>>,
    known: HashMap<Vec<u8>, Token>,
}

impl Feed {
    pub(super) fn new() -> Feed {
        let mut table = Table::default();
        table.bytes.extend((0..=255).map(|byte| vec![byte]));
        table.bytes.resize(PIECES as usize, Vec::new());
        Feed {
            stream: None,
            pieces: VecDeque::new(),
            begun: false,
            end: None,
            counted: Counted::default(),
            cancel: Arc::default(),
            until: None,
            logits: vec![UNLIKELY; TOKENS],
            table,
        }
    }

    /// Forgets the last answer.
    pub(super) fn begin(&mut self, cancel: Arc<AtomicBool>, until: Option<Instant>) {
        self.stop();
        self.counted = Counted::default();
        (self.cancel, self.until) = (cancel, until);
    }

    /// Ends the stream: what comes of it is not wanted any more.
    pub(super) fn stop(&mut self) {
        (self.stream, self.end) = (None, None);
        self.pieces.clear();
        self.begun = false;
    }

    /// Goes on with this text in place of what the server wrote.
    pub(super) fn replace(&mut self, text: Vec<u8>) {
        self.stop();
        self.pieces.push_back(text.into());
    }

    /// Returns what comes next: a whole piece, or a byte within one; empty at the answer's end, `None` after an
    /// interruption.
    pub(super) fn next(&mut self) -> Option<Vec<u8>> {
        match self.pieces.front() {
            Some(piece) if self.begun => Some(piece.iter().take(1).copied().collect()),
            Some(piece) => Some(piece.iter().copied().collect()),
            None => self.end.is_some().then(Vec::new),
        }
    }

    /// Closes the connection. What is known of the answer stays.
    pub(super) fn close(&mut self) {
        self.stream = None;
    }

    /// Returns whether an answer is being read, or has ended.
    pub(super) fn is_open(&self) -> bool {
        self.stream.is_some() || self.end.is_some() || !self.pieces.is_empty()
    }

    pub(super) fn open(&mut self, stream: Stream) {
        self.stop();
        self.stream = Some(stream);
    }

    /// Takes a byte of the answer, and returns whether it is the one that the server wrote.
    ///
    /// # Errors
    /// Those of waiting for it.
    pub(super) fn take(&mut self, byte: u8, read: &mut dyn FnMut(Item) -> Result<Said>) -> Result<bool> {
        if self.peek(read)? != Some(byte) {
            return Ok(false);
        }
        if let Some(piece) = self.pieces.front_mut() {
            piece.pop_front();
            self.begun = !piece.is_empty();
            if !self.begun {
                self.pieces.pop_front();
            }
        }
        Ok(true)
    }

    /// The next byte, which is waited for; `None` at the answer's end, and after an interruption.
    ///
    /// # Errors
    /// [`ErrorKind::Server`] if the server fails, or ends the stream in the middle.
    fn peek(&mut self, read: &mut dyn FnMut(Item) -> Result<Said>) -> Result<Option<u8>> {
        loop {
            if let Some(byte) = self.pieces.front().and_then(VecDeque::front) {
                return Ok(Some(*byte));
            }
            let Some(stream) = &self.stream else { return Ok(None) };
            let item = match stream.wait(&self.cancel, self.until)? {
                Waited::Item(item) => item,
                Waited::Interrupted => {
                    self.stop();
                    return Ok(None);
                }
            };
            let over = !matches!(item, Item::Data(_));
            let said = read(item)?;
            if !said.text.is_empty() {
                self.pieces.push_back(said.text.into_bytes().into());
            }
            // The first counts: a stream may be closed twice.
            self.end = self.end.or(said.end);
            if let Some(counted) = said.counted {
                self.counted = counted;
            }
            if over {
                self.stream = None;
                if self.end.is_none() {
                    return Err(Error::new(ErrorKind::Server, "the server's stream ended in the middle of an answer")
                        .hint("the server or the network failed; ask again"));
                }
            }
        }
    }

    /// Sets the logits to those of the next byte.
    ///
    /// # Errors
    /// Those of waiting for it.
    pub(super) fn look(&mut self, read: &mut dyn FnMut(Item) -> Result<Said>) -> Result<()> {
        let next = self.peek(read)?.map_or(END, |byte| Token(i32::from(byte)));
        self.logits.fill(UNLIKELY);
        if let Some(logit) = usize::try_from(next.0).ok().and_then(|index| self.logits.get_mut(index)) {
            *logit = 0.0;
        }
        Ok(())
    }

    pub(super) fn logits(&self) -> &[f32] {
        &self.logits
    }

    pub(super) fn token_bytes(&self, token: Token) -> &[u8] {
        usize::try_from(token.0).ok().and_then(|index| self.table.bytes.get(index)).map_or(b"", Vec::as_slice)
    }

    /// One token for the bytes of `part`; none while the server's piece goes on after them.
    pub(super) fn join(&mut self, part: &[Token], more: bool) -> Option<Token> {
        let piece = self.pieces.front().filter(|piece| piece.len() > 1);
        let goes_on = part
            .last()
            .is_some_and(|last| piece.and_then(VecDeque::front).is_some_and(|next| i32::from(*next) == last.0));
        if more || goes_on {
            return None;
        }
        let bytes: Vec<u8> = part.iter().flat_map(|token| self.token_bytes(*token)).copied().collect();
        Some(self.table.token(bytes))
    }

    /// Why the answer ended, and what was counted.
    pub(super) fn ended(&self) -> (Option<End>, Usage) {
        let Counted { prompt, cached, completion } = self.counted;
        let usage =
            Usage { prompt_tokens: prompt, cached_tokens: cached, completion_tokens: completion, ..Usage::default() };
        (self.end.filter(|_| self.pieces.is_empty()), usage)
    }
}

impl Table {
    fn token(&mut self, bytes: Vec<u8>) -> Token {
        if let [byte] = bytes[..] {
            return Token(i32::from(byte));
        }
        let bytes_table = &mut self.bytes;
        *self.known.entry(bytes).or_insert_with_key(|bytes| {
            bytes_table.push(bytes.clone());
            Token(i32::try_from(bytes_table.len() - 1).unwrap_or(i32::MAX))
        })
    }
}
