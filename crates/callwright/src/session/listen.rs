//! Follows an answer while it is written: passes its events on, and says where it ends.

use super::Options;
use super::count::CallCount;
use super::event::Event;
use super::repeats::{Loop, Repeats};
use super::stop::Stops;
use crate::parse::Parsed;
use crate::parse::event::Event as ParserEvent;

/// Listens to an answer.
pub(super) struct Listener<'a> {
    stops: Stops<'a>,
    calls: CallCount,
    /// Looks for repetitions, where they end the answer.
    repeats: Option<Repeats<'a>>,
    looped: Option<Loop>,
    /// Whether text after a call ends the answer.
    ends_after_calls: bool,
    /// Length of the text so far.
    text: usize,
    /// Length of the text when a call had ended.
    text_at_call: Option<usize>,
    /// Whether text came after a call, which ends the answer.
    ended_by_text: bool,
}

impl<'a> Listener<'a> {
    /// For an answer that ends at these texts, and as the options say; at text after a call, where `ends_after_calls`.
    pub(super) fn new(
        stops: &'a [String],
        options: &Options,
        repeats: Option<Repeats<'a>>,
        ends_after_calls: bool,
    ) -> Listener<'a> {
        Listener {
            stops: Stops::new(stops),
            calls: CallCount::new(options.max_calls, options.loop_guard),
            repeats,
            looped: None,
            ends_after_calls,
            text: 0,
            text_at_call: None,
            ended_by_text: false,
        }
    }

    /// Takes an event of the parser, and passes on what is part of the answer.
    pub(super) fn hear(&mut self, event: ParserEvent, on_event: &mut dyn FnMut(&Event)) {
        if let Some(repeats) = &mut self.repeats {
            repeats.event(&event);
        }
        if self.ended_by_text {
            return;
        }
        if let ParserEvent::Text { delta } = &event {
            if self.text_at_call.is_some() && !delta.trim().is_empty() {
                self.ended_by_text = true;
                return;
            }
            self.text += delta.len();
            text(self.stops.push(delta), on_event);
        } else if !self.stops.found() {
            for event in self.calls.take(event) {
                if matches!(event, ParserEvent::CallEnd { complete: true, .. }) && self.ends_after_calls {
                    self.text_at_call = Some(self.text);
                }
                if !matches!(event, ParserEvent::Repair(_)) {
                    text(self.stops.release(), on_event);
                }
                on_event(&Event::Parsed(event));
            }
        }
    }

    /// Takes a token that the model wrote, after its events.
    pub(super) fn token(&mut self, bytes: &[u8]) {
        if let Some(repeats) = &mut self.repeats
            && self.looped.is_none()
        {
            self.looped = repeats.push(bytes);
        }
    }

    /// Returns whether the answer ends here.
    pub(super) fn is_over(&self) -> bool {
        self.calls.enough() || self.stops.found() || self.ended_by_text || self.looped.is_some()
    }

    /// The repetition that ended the answer.
    pub(super) fn looped(&self) -> Option<&Loop> {
        self.looped.as_ref()
    }

    /// Returns whether a stop text ended the answer.
    pub(super) fn stopped(&self) -> bool {
        self.stops.found()
    }

    /// That the answer was ended at a call that it had made before.
    pub(super) fn repetition(&self) -> Option<String> {
        self.calls.repetition()
    }

    /// Drops what is not part of the answer, once it was parsed to its end. Returns the byte of the model's text from which
    /// on it was dropped: text after the calls, or a call that was made before.
    pub(super) fn finish(&mut self, parsed: &mut Parsed, on_event: &mut dyn FnMut(&Event)) -> Option<usize> {
        parsed.keep_calls(self.calls.most());
        if self.stops.found() {
            parsed.content.truncate(self.stops.shown());
            parsed.calls.truncate(self.calls.begun());
        } else {
            text(self.stops.release(), on_event);
        }
        if let Some(length) = self.text_at_call.filter(|_| self.ended_by_text) {
            parsed.content.truncate(length);
            parsed.calls.truncate(self.calls.begun());
        }
        let end = parsed.calls.last().filter(|_| self.ended_by_text || self.calls.dropped())?.range.end;
        parsed.repairs.retain(|repair| repair.range.start < end);
        parsed.diagnostics.retain(|diagnostic| diagnostic.range.start < end);
        Some(end)
    }
}

/// Passes text on, if there is any.
fn text(delta: String, on_event: &mut dyn FnMut(&Event)) {
    if !delta.is_empty() {
        on_event(&Event::Parsed(ParserEvent::Text { delta }));
    }
}
