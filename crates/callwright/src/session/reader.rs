//! Reads an answer while it is written: parses it, follows where it ends, and reports what comes.

use super::event::Event;
use super::listen::Listener;
use crate::parse::{Parsed, Parser};

/// Reads one answer.
pub struct Reader<'a> {
    parser: Parser,
    listener: Listener<'a>,
    on_event: &'a mut dyn FnMut(&Event),
    closing: bool,
    /// The control tokens of the model that are in the format's markers.
    control_tokens: Vec<String>,
}

/// What was read.
pub struct Read {
    pub parsed: Parsed,
    /// Whether a stop text ended the answer.
    pub stopped: bool,
    /// That the answer was ended because it repeats itself.
    pub looped: Option<String>,
    /// That the answer was ended because it made the same call again.
    pub repetition: Option<String>,
    /// From which byte of the text on nothing is part of the answer.
    pub dropped_from: Option<usize>,
}

impl<'a> Reader<'a> {
    /// A reader that ends the answer where `listener` does.
    pub(super) fn new(parser: Parser, listener: Listener<'a>, on_event: &'a mut dyn FnMut(&Event)) -> Reader<'a> {
        Reader { parser, listener, on_event, closing: false, control_tokens: Vec::new() }
    }

    /// The same reader, which knows the control tokens in the format's markers.
    pub(super) fn with_control_tokens(mut self, control_tokens: Vec<String>) -> Reader<'a> {
        self.control_tokens = control_tokens;
        self
    }

    /// Reads text that the model did not write: what the prompt begins, or a marker that it left out.
    pub fn push(&mut self, bytes: &[u8]) {
        let Reader { parser, listener, on_event, .. } = self;
        parser.push(bytes, &mut |event| listener.hear(event, *on_event));
    }

    /// Reads a token of the model; whether the answer ends here.
    pub(super) fn token(&mut self, bytes: &[u8]) -> bool {
        if self.control_tokens.iter().any(|token| token.as_bytes() == bytes) {
            let Reader { parser, listener, on_event, .. } = self;
            parser.push_control(bytes, &mut |event| listener.hear(event, *on_event));
        } else {
            self.push(bytes);
        }
        if !self.closing {
            self.listener.token(bytes);
        }
        self.listener.is_over()
    }

    /// Passes on an event that is not the parser's.
    pub(super) fn report(&mut self, event: &Event) {
        (self.on_event)(event);
    }

    /// What comes is text, whatever it looks like.
    pub fn forbid_calls(&mut self) {
        self.parser.forbid_calls();
    }

    /// The grammar closes what is open.
    pub fn closing(&mut self) {
        self.closing = true;
        self.parser.closing();
    }

    /// Returns whether the answer was ended because it repeats itself.
    pub(super) fn is_looped(&self) -> bool {
        self.listener.looped().is_some()
    }

    /// The answer was cut off.
    pub fn cut_off(&mut self) {
        self.parser.cut_off();
    }

    /// The answer is over.
    pub fn finish(self) -> Read {
        let Reader { parser, mut listener, on_event, .. } = self;
        let mut parsed = parser.finish(&mut |event| listener.hear(event, on_event));
        let dropped_from = listener.finish(&mut parsed, on_event);
        Read {
            parsed,
            stopped: listener.stopped(),
            looped: listener.looped().map(ToString::to_string),
            repetition: listener.repetition(),
            dropped_from,
        }
    }
}
