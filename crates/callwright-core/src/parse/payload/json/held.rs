//! Values under alias keys: they are held, and used if the canonical keys are missing.

use super::{JsonPayload, NAMELESS, Slot, State, WAITING};
use crate::parse::calls::Calls;
use crate::parse::event::{DiagnosticKind, RepairKind};
use crate::parse::payload::PayloadReader;
use crate::parse::repair::Stops;

/// The place of a value. The canonical place is the least, and a lesser one is preferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub alias: bool,
    pub wrapped: bool,
}

/// A value under an alias while the canonical key may still come.
#[derive(Debug)]
pub(super) struct Held {
    pub place: Place,
    pub key: String,
    pub key_at: usize,
    /// Start and end of the value.
    pub at: usize,
    pub end: usize,
    /// The name, or the JSON of the arguments.
    pub text: String,
    pub broken: Option<usize>,
}

impl JsonPayload {
    pub(super) fn hold(&self, text: String) -> Held {
        let (key, key_at, at) = (self.key.clone(), self.key_at, self.value_at);
        Held { place: self.place(), key, key_at, at, end: self.at, text, broken: self.value.broken_at() }
    }

    /// The place of the value of the key just read.
    pub(super) fn place(&self) -> Place {
        Place { alias: self.key != self.keys.name && self.key != self.keys.arguments, wrapped: self.level > 1 }
    }

    /// The object or its text has ended: uses values under aliases if the canonical keys are missing.
    pub(super) fn use_held(&mut self, stops: &Stops, calls: &mut Calls) {
        if let Some(held) = self.held_name.take() {
            if calls.has_name() {
                drop_held(Some(held), calls);
            } else if self.admit(&held, calls) {
                calls.start(held.text, held.at..held.end);
                self.flush(calls);
            }
        }
        if let Some(held) = self.held_arguments.take() {
            if self.argued {
                drop_held(Some(held), calls);
            } else if self.admit(&held, calls) {
                self.take_arguments(held, stops, calls);
            }
        }
    }

    /// Reports the wrong place of a value; false if it must not be repaired.
    pub(super) fn admit(&mut self, held: &Held, calls: &mut Calls) -> bool {
        !matches!(self.state, State::Lost { .. })
            && (!held.place.wrapped || self.depart(RepairKind::ExtraWrapping, self.wrapper_at, calls))
            && (!held.place.alias || self.depart(RepairKind::KeyAlias, held.key_at, calls))
    }

    pub(super) fn take_arguments(&mut self, held: Held, stops: &Stops, calls: &mut Calls) {
        if let Ok(text) = serde_json::from_str::<String>(&held.text) {
            self.depart(RepairKind::ArgumentsAsString, held.at, calls);
            self.feed_arguments(text.as_bytes(), held.at, stops, calls);
            self.string_at = Some(held.at);
            self.end_arguments_text(calls);
        } else if held.text != "null" {
            if let Some(at) = held.broken {
                calls.diagnose(DiagnosticKind::BrokenJson, at..at + 1);
            }
            calls.begin_arguments(held.at);
            self.arguments.adopt(held.text, held.broken);
        }
    }

    /// Uses arguments under an alias that are too long to hold: they stream from here on, or once the name is known.
    pub(super) fn commit(&mut self, stops: &Stops, calls: &mut Calls) {
        let most = if calls.has_name() { WAITING } else { NAMELESS };
        let (text, string) = (self.value.stable(), self.value.stable().starts_with('"'));
        let fits = text.len() > most && (string || text.starts_with(['{', '[']));
        if !fits || !self.arguments.is_empty() {
            return;
        }
        let held = self.hold(String::new());
        if !self.admit(&held, calls) {
            return;
        }
        self.argued = true;
        if string {
            self.begin_arguments_text(held.at, calls);
            self.pass_on(stops, calls);
        } else {
            std::mem::swap(&mut self.value, &mut self.arguments);
            self.state = State::Reading(Slot::Arguments);
            calls.begin_arguments(held.at);
        }
    }
}

/// Drops a held value that is not needed.
pub(super) fn drop_held(held: Option<Held>, calls: &mut Calls) {
    if let Some(held) = held {
        calls.ignored_key(&held.key, held.key_at);
    }
}
