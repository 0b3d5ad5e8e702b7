//! Reads an answer while it is written: parses it, counts its calls, looks for stop texts and reports what comes.

use super::count::CallCount;
use super::event::Event;
use super::stop::Stops;
use crate::parse::event::Event as ParserEvent;
use crate::parse::{Parsed, Parser};

/// Reads one answer.
pub(super) struct Reader<'a> {
    parser: Parser,
    output: Output<'a>,
}

/// Reports the parser's events until the answer ends.
struct Output<'a> {
    calls: CallCount,
    stops: Stops<'a>,
    on_event: &'a mut dyn FnMut(&Event),
}

/// What was read.
pub(super) struct Read {
    pub parsed: Parsed,
    /// Whether a stop text ended the answer.
    pub stopped: bool,
    /// That the answer was ended because it made the same call again and again.
    pub repetition: Option<String>,
}

impl<'a> Reader<'a> {
    /// A reader that ends the answer after `max_calls` calls or before a text of `stops`.
    pub(super) fn new(
        parser: Parser,
        max_calls: Option<usize>,
        stops: &'a [String],
        on_event: &'a mut dyn FnMut(&Event),
    ) -> Reader<'a> {
        let output = Output { calls: CallCount::new(max_calls), stops: Stops::new(stops), on_event };
        Reader { parser, output }
    }

    /// Reads more of the answer; whether the answer ends here.
    pub(super) fn push(&mut self, bytes: &[u8]) -> bool {
        let mut ended = false;
        let output = &mut self.output;
        self.parser.push(bytes, &mut |event| ended = output.take(event));
        ended
    }

    /// What comes is text, whatever it looks like.
    pub(super) fn forbid_calls(&mut self) {
        self.parser.forbid_calls();
    }

    /// The grammar closes what is open.
    pub(super) fn closing(&mut self) {
        self.parser.closing();
    }

    /// The answer was cut off.
    pub(super) fn cut_off(&mut self) {
        self.parser.cut_off();
    }

    /// The answer is over.
    pub(super) fn finish(self) -> Read {
        let Reader { parser, mut output } = self;
        let mut parsed = parser.finish(&mut |event| {
            output.take(event);
        });
        parsed.keep_calls(output.calls.most());
        let stopped = output.stops.found();
        if stopped {
            parsed.content.truncate(output.stops.shown());
            parsed.calls.truncate(output.calls.begun());
        } else {
            output.release();
        }
        Read { parsed, stopped, repetition: output.calls.repetition() }
    }
}

impl Output<'_> {
    /// Reports an event that still belongs to the answer; whether the answer ends here.
    fn take(&mut self, event: ParserEvent) -> bool {
        if let ParserEvent::Text { delta } = &event {
            let delta = self.stops.push(delta);
            self.text(delta);
        } else if !self.stops.found() && self.calls.take(&event) {
            if !matches!(event, ParserEvent::Repair(_)) {
                self.release();
            }
            (self.on_event)(&Event::Parsed(event));
        }
        self.calls.enough() || self.stops.found()
    }

    /// Reports text that was held back as the possible beginning of a stop text.
    fn release(&mut self) {
        let held = self.stops.release();
        self.text(held);
    }

    fn text(&mut self, delta: String) {
        if !delta.is_empty() {
            (self.on_event)(&Event::Parsed(ParserEvent::Text { delta }));
        }
    }
}
