//! The call that is being read: its name, and its arguments as deltas.

use super::ids::Ids;
use crate::parse::coerce::{Coercer, Coercion};
use crate::parse::event::{Event, RepairKind};
use crate::tool::CallProblem;
use std::ops::Range;

/// Maximum number of values per call to coerce. The others are unchanged.
const CHANGES: usize = 512;
/// Maximum size of their replacements.
const CHANGED: usize = 16 << 10;
/// Bytes of arguments to hold while waiting for an id that the format writes after them.
const WAITING: usize = 1024;

/// What an open call needs to send its events.
pub(super) struct Out<'a> {
    pub events: &'a mut Vec<Event>,
    pub ids: &'a mut Ids,
    /// Whether the text has ended; then nothing is sent before the call is known to be whole.
    pub text_ended: bool,
}

/// The call being read.
#[derive(Debug)]
pub(super) struct Open {
    pub start: usize,
    pub raw: Vec<u8>,
    /// Start of the payload in `raw`.
    pub payload: usize,
    pub id: Option<String>,
    pub name: Option<String>,
    /// Whether the call's start was sent.
    pub said: bool,
    /// Arguments that wait, with the call's start, for the id.
    pub waiting: String,
    /// Arguments that were only found at the end of the text.
    pub completed: String,
    pub seen: Vec<RepairKind>,
    /// Whether a departure was not repaired because repairs are off.
    pub refused: bool,
    /// Whether it was reported as broken beyond repair.
    pub broken: bool,
    /// The range of the arguments if their reader reads a translation of them: places in it are not places in the text.
    pub translated: Option<Range<usize>>,
    /// Problems that the payload's reader found.
    pub blamed: Vec<CallProblem>,
    /// Start of the arguments in the model's text, if they are passed on unchanged.
    pub arguments_at: Option<usize>,
    pub coercer: Option<Coercer>,
    /// Changes to the arguments: position, number of bytes, replacement.
    pub changes: Vec<(usize, usize, String)>,
    /// The first coerced value of each kind: its position in the arguments, and its text.
    pub coerced: Vec<(RepairKind, usize, String)>,
    /// Keys that were dropped.
    pub ignored: Vec<String>,
    /// Duplicate arguments and their places, as far as the payload's reader knows.
    pub again: Vec<(String, Range<usize>)>,
}

impl Open {
    /// A call that begins at offset `start`; `raw` is an empty buffer.
    pub fn new(start: usize, raw: Vec<u8>) -> Open {
        Open {
            start,
            raw,
            payload: 0,
            id: None,
            name: None,
            said: false,
            waiting: String::new(),
            completed: String::new(),
            seen: Vec::new(),
            refused: false,
            broken: false,
            translated: None,
            blamed: Vec::new(),
            arguments_at: None,
            coercer: None,
            changes: Vec::new(),
            coerced: Vec::new(),
            ignored: Vec::new(),
            again: Vec::new(),
        }
    }

    /// The byte range of the call so far.
    pub fn range(&self) -> Range<usize> {
        self.start..self.start + self.raw.len()
    }

    /// Where the arguments, or else the payload, begin in `raw`.
    pub fn arguments_from(&self) -> usize {
        self.arguments_at.map_or(self.payload, |at| at.saturating_sub(self.start)).min(self.raw.len())
    }

    fn is_named(&self) -> bool {
        self.name.as_ref().is_some_and(|name| !name.is_empty())
    }

    /// Gives the call an id if the model gave none.
    pub fn settle_id(&mut self, ids: &mut Ids) {
        self.id.get_or_insert_with(|| ids.generate());
    }

    /// Sends the call's start, and the arguments that waited for it. A call without a name is not sent.
    pub fn say_start(&mut self, out: &mut Out<'_>) {
        self.settle_id(out.ids);
        if self.said || !self.is_named() {
            return;
        }
        self.said = true;
        let (Some(id), Some(name)) = (&self.id, &self.name) else { return };
        out.events.push(Event::CallStart { id: id.clone(), name: name.clone() });
        let delta = std::mem::take(&mut self.waiting);
        if !delta.is_empty() {
            out.events.push(Event::CallArguments { id: id.clone(), delta });
        }
    }

    /// More of the arguments; the name is known. `coerce` is whether values may be coerced.
    pub fn delta(&mut self, delta: &str, coerce: bool, out: &mut Out<'_>) {
        let Some(mut coercer) = self.coercer.take() else { return self.say_delta(delta, out) };
        let mut rest = delta;
        while !rest.is_empty() {
            let mut known = String::new();
            let (taken, coercion) = coercer.push(rest, &mut known);
            rest = &rest[taken..];
            self.say_delta(&known, out);
            if let Some(coercion) = coercion {
                self.coerce(coercion, coerce, out);
            }
        }
        self.coercer = Some(coercer);
    }

    /// Records a coercion. It is reported when the call ends, when its place is known.
    fn coerce(&mut self, coercion: Coercion, coerce: bool, out: &mut Out<'_>) {
        let Coercion { kind, start, written, wanted } = coercion;
        let size: usize = self.changes.iter().map(|(.., wanted)| wanted.len()).sum();
        let repair = coerce && self.changes.len() < CHANGES && size < CHANGED;
        self.say_delta(if repair { &wanted } else { &written }, out);
        if repair {
            self.changes.push((start, written.len(), wanted));
        }
        if !self.coerced.iter().any(|(other, ..)| *other == kind) {
            self.coerced.push((kind, start, written));
        }
    }

    /// The place in the model's text of a value that was coerced.
    pub fn place_of(&self, start: usize, written: &str) -> Range<usize> {
        let from = self.arguments_from();
        let find = |text: &[u8]| {
            let found = self.raw[from..].windows(text.len().max(1)).position(|window| window == text);
            found.map(|at| from + at..from + at + text.len())
        };
        let as_written = self.raw[from..].get(start..).is_some_and(|rest| rest.starts_with(written.as_bytes()));
        let place = if as_written {
            Some(from + start..from + start + written.len())
        } else {
            // Other repairs moved it, or its quotes differed.
            find(written.as_bytes()).or_else(|| find(written.trim_matches('"').as_bytes()))
        };
        let place = place.unwrap_or(0..self.raw.len());
        self.start + place.start..self.start + place.end
    }

    fn say_delta(&mut self, delta: &str, out: &mut Out<'_>) {
        if delta.is_empty() {
            return;
        }
        if out.text_ended {
            self.completed.push_str(delta);
        } else if !self.said && self.is_named() {
            self.waiting.push_str(delta);
            if self.waiting.len() > WAITING {
                self.say_start(out);
            }
        } else if let Some(id) = self.id.as_ref().filter(|_| self.said) {
            out.events.push(Event::CallArguments { id: id.clone(), delta: delta.to_owned() });
        }
    }

    /// Sends the arguments that were only found at the end of the text.
    pub fn say_completed(&mut self, events: &mut Vec<Event>) {
        let delta = std::mem::take(&mut self.completed);
        if let Some(id) = self.id.as_ref().filter(|_| self.said && !delta.is_empty()) {
            events.push(Event::CallArguments { id: id.clone(), delta });
        }
    }

    /// The arguments are complete, and all but their first `sent` bytes are new; returns their final text.
    pub fn end_arguments(&mut self, text: String, sent: usize, coerce: bool, out: &mut Out<'_>) -> String {
        self.delta(&text[sent..], coerce, out);
        let mut rest = String::new();
        if let Some(coercer) = &mut self.coercer {
            coercer.finish(&mut rest);
        }
        self.say_delta(&rest, out);
        let changes = std::mem::take(&mut self.changes);
        if changes.is_empty() {
            return text;
        }
        let mut changed = String::with_capacity(text.len());
        let mut from = 0;
        for (start, length, wanted) in changes {
            changed.push_str(&text[from..start]);
            changed.push_str(&wanted);
            from = start + length;
        }
        changed + &text[from..]
    }
}
