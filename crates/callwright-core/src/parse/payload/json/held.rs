//! Values under other keys than the format's own: they count where the proper ones are missing, so they wait.

use super::{JsonPayload, NAMELESS, Slot, State, WAITING};
use crate::parse::calls::Calls;
use crate::parse::event::{DiagnosticKind, RepairKind};
use crate::parse::payload::PayloadReader;
use crate::parse::repair::Stops;

/// Where a value stands; the proper place is the least, and a lesser one is preferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub alias: bool,
    pub wrapped: bool,
}

/// A value under another key than the proper one, which may still come.
#[derive(Debug)]
pub(super) struct Held {
    pub place: Place,
    pub key: String,
    pub key_at: usize,
    /// Where the value begins, and where it ends.
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

    /// The place of the value whose key was just read.
    pub(super) fn place(&self) -> Place {
        Place { alias: self.key != self.keys.name && self.key != self.keys.arguments, wrapped: self.level > 1 }
    }

    /// The object has ended, or the text inside it: what stood under other keys counts where the proper ones are
    /// missing.
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

    /// Notes what is wrong with the place of a value; false if that may not be repaired.
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

    /// Arguments under another key that are too long to wait for the proper one are taken for what they are: they
    /// stream from here on, or once the name is there.
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

/// A value that was held back is not needed.
pub(super) fn drop_held(held: Option<Held>, calls: &mut Calls) {
    if let Some(held) = held {
        calls.ignored_key(&held.key, held.key_at);
    }
}
