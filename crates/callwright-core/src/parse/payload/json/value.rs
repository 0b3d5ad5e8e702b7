//! The values of a call's object: the key, the reading and the use of each.

use super::held::{Held, drop_held};
use super::{JsonPayload, NAME, NAME_ALIASES, Slot, State, Step};
use crate::parse::calls::Calls;
use crate::parse::event::{DiagnosticKind, RepairKind};
use crate::parse::markers::Context;
use crate::parse::other_forms::ARGUMENT_KEYS;
use crate::parse::payload::PayloadReader;
use crate::parse::repair::{Cut, Stops, closer};
use crate::tool::CallProblem;
use std::borrow::Cow;

/// Keys next to name and arguments, or around them.
const OTHER_KEYS: [&str; 4] = ["function", "tool_call", "id", "type"];

impl JsonPayload {
    /// Where a key may begin, or the object end.
    pub(super) fn before_key(&mut self, byte: u8, at: usize, stops: &Stops, calls: &mut Calls) -> Step {
        match byte {
            b'"' | b'\'' => {
                self.key_at = at;
                self.state = State::KeyText;
                return Step::Again;
            }
            b'}' if self.state == State::Key && !self.depart(RepairKind::TrailingComma, at, calls) => {}
            b'}' => self.end_object(stops, calls),
            // The next call in the list: brackets are missing before the comma.
            b'{' if self.state == State::Key && self.array && self.repair => {
                self.depart(RepairKind::MissingBrackets, at, calls);
                self.level = 1;
                self.end_object(stops, calls);
                return Step::Again;
            }
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'$' => {
                self.key_at = at;
                if self.depart(RepairKind::UnquotedKey, at, calls) {
                    self.key.clear();
                    self.state = State::KeyWord;
                    return Step::Again;
                }
            }
            _ => self.lose(at, calls),
        }
        self.taken()
    }

    /// After the value of a key.
    pub(super) fn after_value(&mut self, byte: u8, at: usize, stops: &Stops, calls: &mut Calls) -> Step {
        match byte {
            b',' => self.state = State::Key,
            b'}' => self.end_object(stops, calls),
            b';' if self.depart(RepairKind::OtherPunctuation, at, calls) => self.state = State::Key,
            b'"' | b'\'' => {
                if self.depart(RepairKind::MissingComma, at, calls) {
                    self.state = State::Key;
                    return Step::Again;
                }
            }
            b'`' if self.trailing.fenced && self.depart(RepairKind::MissingBrackets, at, calls) => {
                self.level = 1;
                self.end_object(stops, calls);
                return Step::Again;
            }
            b']' if self.array && self.repair => {
                self.depart(RepairKind::MissingBrackets, at, calls);
                self.level = 1;
                self.end_object(stops, calls);
                return Step::Again;
            }
            _ if self.open_ended && self.repair => {
                // Without its arguments, a call that goes on in an unknown way is not whole.
                self.shortened |= !self.argued && self.arguments.is_empty() && self.held_arguments.is_none();
                self.over = true;
            }
            _ => {
                self.depart(RepairKind::StrayText, at, calls);
            }
        }
        self.taken()
    }

    /// Handles what the active transducer did: reports, the end of a value. True if there was a report.
    pub(super) fn settle(&mut self, stops: &Stops, calls: &mut Calls) -> bool {
        match self.state {
            State::Reading(Slot::ArgumentsText) => self.pass_on(stops, calls),
            // What was read before a departure may be too long already: it comes before the report of that.
            State::Reading(Slot::MaybeArguments) => self.commit(stops, calls),
            _ => {}
        }
        let mut reported = false;
        while let Some((kind, place)) = self.active_mut().take_report() {
            reported = true;
            // What follows where a call was lost is not looked at.
            if !matches!(self.state, State::Lost { .. }) {
                self.report(kind, place, calls);
            }
        }
        match self.state {
            State::Reading(Slot::Name | Slot::MaybeName | Slot::Id) if self.value.stable().len() > NAME => {
                self.state = State::Reading(Slot::Ignored);
            }
            State::KeyText if self.value.stable().len() > NAME => self.shorten_key(),
            _ => {}
        }
        if self.active().is_done() {
            self.end_value(calls);
        } else if matches!(self.state, State::Reading(Slot::Ignored | Slot::Skipped)) {
            self.value.take_stable();
        }
        reported
    }

    /// Keeps only the beginning of a key that is too long.
    fn shorten_key(&mut self) {
        let text = self.value.take_stable();
        if !std::mem::replace(&mut self.long_key, true) {
            self.key.clear();
            self.key.extend(text.chars().skip(1).take(NAME / 4));
        }
    }

    /// Passes on arguments from a string, unescaped.
    pub(super) fn pass_on(&mut self, stops: &Stops, calls: &mut Calls) {
        let done = self.value.is_done();
        let taken = self.value.take_stable();
        let at = match self.string_at {
            Some(at) => at,
            None => return,
        };
        let mut chunk = taken.as_str();
        if self.undecided {
            let Some(rest) = chunk.strip_prefix('"') else { return };
            chunk = rest;
            self.undecided = false;
        }
        if done {
            chunk = chunk.strip_suffix('"').unwrap_or(chunk);
        }
        let decoded = serde_json::from_str(&format!("\"{chunk}\"")).unwrap_or_else(|_| chunk.to_owned());
        self.feed_arguments(decoded.as_bytes(), at, stops, calls);
    }

    /// Feeds arguments from a string at offset `at`.
    pub(super) fn feed_arguments(&mut self, mut rest: &[u8], at: usize, stops: &Stops, calls: &mut Calls) {
        while !rest.is_empty() && !self.arguments.is_done() {
            let taken = self.arguments.feed(rest, at, stops, false);
            rest = &rest[taken..];
            self.report_arguments(at, calls);
        }
        if self.arguments.is_done() && !rest.trim_ascii().is_empty() {
            self.report(RepairKind::StrayText, at..at + 1, calls);
        }
    }

    pub(super) fn report_arguments(&mut self, at: usize, calls: &mut Calls) {
        while let Some((kind, _)) = self.arguments.take_report() {
            self.report(kind, at..at + 1, calls);
        }
    }

    /// The value being read, or a key, has ended.
    pub(super) fn end_value(&mut self, calls: &mut Calls) {
        let State::Reading(slot) = self.state else {
            match self.value.string() {
                _ if std::mem::take(&mut self.long_key) => self.state = State::Colon,
                Some(key) => {
                    self.key.clear();
                    self.key.push_str(&key);
                    self.state = State::Colon;
                }
                None => self.lose(self.key_at, calls),
            }
            self.value.reset();
            return;
        };
        self.state = if self.bare { State::After } else { State::AfterValue };
        if slot == Slot::Arguments {
            if self.undecided {
                self.undecided = false;
                if self.arguments.stable() == "null" {
                    self.arguments.reset();
                }
            }
            if let Some(at) = self.arguments.broken_at() {
                calls.diagnose(DiagnosticKind::BrokenJson, at..at + 1);
            }
            return;
        }
        match slot {
            Slot::Name => match self.value.string() {
                Some(name) => {
                    let place = self.value_at..self.at;
                    calls.start(name.into_owned(), place);
                    self.flush(calls);
                }
                None => self.ignore(calls),
            },
            Slot::MaybeName => match self.value.string().map(Cow::into_owned) {
                Some(name) => {
                    let held = self.hold(name);
                    let before = self.held_name.replace(held);
                    drop_held(before, calls);
                }
                None => self.ignore(calls),
            },
            Slot::MaybeArguments => {
                let text = self.value.stable().to_owned();
                let held = self.hold(text);
                let before = self.held_arguments.replace(held);
                drop_held(before, calls);
            }
            Slot::Id => {
                self.flush(calls);
                if !self.value.string().is_some_and(|id| calls.give_id(id.into_owned())) {
                    self.ignore(calls);
                }
            }
            Slot::ArgumentsText => self.end_arguments_text(calls),
            Slot::Ignored => self.ignore(calls),
            Slot::Arguments | Slot::Wrapper | Slot::Skipped | Slot::Keyed => {}
        }
        self.value.reset();
    }

    pub(super) fn end_arguments_text(&mut self, calls: &mut Calls) {
        let at = self.string_at.take().unwrap_or(self.key_at);
        if self.arguments.is_empty() {
            return;
        }
        if self.arguments.cut(at) == Cut::Shortened {
            self.shortened = true;
        }
        self.report_arguments(at, calls);
        if self.arguments.broken_at().is_some() {
            calls.diagnose(DiagnosticKind::BrokenJson, at..at + 1);
        }
    }

    /// Returns whether the key just read may be the name of the tool, with the arguments as its value.
    fn is_keyed(&self, calls: &Calls) -> bool {
        let key = self.key.as_str();
        let other = NAME_ALIASES.contains(&key) || ARGUMENT_KEYS.contains(&key) || OTHER_KEYS.contains(&key);
        let waiting = self.held_name.is_some() || self.held_arguments.is_some() || !self.arguments.is_empty();
        self.keys.keyed && self.level == 1 && !calls.has_name() && !waiting && (!other || calls.has_tool(key))
    }

    /// The use of the value of the key just read.
    pub(super) fn slot(&self, calls: &Calls) -> Slot {
        if self.is_keyed(calls) { Slot::Keyed } else { self.plain_slot(calls) }
    }

    fn plain_slot(&self, calls: &Calls) -> Slot {
        let key = self.key.as_str();
        let named = calls.has_name();
        let argued = self.argued && !self.arguments.is_empty();
        let place = self.place();
        let proper = !place.alias && !place.wrapped;
        let preferred = |held: &Option<Held>| held.as_ref().is_none_or(|held| place < held.place);
        if key == self.keys.name || place.alias && NAME_ALIASES.contains(&key) {
            match proper {
                _ if named => Slot::Ignored,
                true => Slot::Name,
                false if preferred(&self.held_name) => Slot::MaybeName,
                false => Slot::Ignored,
            }
        } else if key == self.keys.arguments || place.alias && ARGUMENT_KEYS.contains(&key) {
            match proper {
                true if !argued => Slot::Arguments,
                false if !self.argued && preferred(&self.held_arguments) => Slot::MaybeArguments,
                _ => Slot::Ignored,
            }
        } else {
            match key {
                "function" | "tool_call" | "function_call" if !self.wrapped && !named && !argued => Slot::Wrapper,
                _ if self.keys.id.as_deref().unwrap_or("id") == key => Slot::Id,
                "type" => Slot::Skipped,
                _ => Slot::Ignored,
            }
        }
    }

    /// The first byte of a value determines how to read it.
    pub(super) fn begin_value(&mut self, slot: Slot, byte: u8, at: usize, calls: &mut Calls) -> Step {
        let string = matches!(byte, b'"' | b'\'');
        let slot = match slot {
            Slot::Keyed if byte == b'{' || byte == b'n' && calls.has_tool(&self.key) => {
                calls.start(self.key.clone(), self.key_at..self.key_at + self.key.len() + 2);
                Slot::Arguments
            }
            Slot::Keyed => self.plain_slot(calls),
            slot => slot,
        };
        let slot = match slot {
            // `tool` may be the name, or an object around it.
            Slot::MaybeName if byte == b'{' && self.key == "tool" && !self.wrapped && self.arguments.is_empty() => {
                return self.begin_value(Slot::Wrapper, byte, at, calls);
            }
            Slot::Wrapper if byte == b'{' => {
                (self.wrapped, self.wrapper_at) = (true, self.key_at);
                self.level += 1;
                self.state = State::FirstKey;
                return Step::Taken;
            }
            Slot::Wrapper if string => Slot::MaybeName,
            Slot::Name | Slot::MaybeName if string || self.repair && byte.is_ascii_alphabetic() => slot,
            Slot::Wrapper | Slot::Name | Slot::MaybeName => Slot::Ignored,
            Slot::Id if !string => Slot::Ignored,
            slot => slot,
        };
        self.state = State::Reading(slot);
        self.value_at = at;
        if slot == Slot::Arguments {
            self.argued = true;
            if self.arguments.is_json() {
                calls.begin_arguments(at);
            }
            self.undecided = matches!(byte, b'n' | b'N');
            if string && self.repair {
                self.begin_arguments_text(at, calls);
            }
        }
        Step::Again
    }

    /// The arguments are in the string that begins at offset `at`.
    pub(super) fn begin_arguments_text(&mut self, at: usize, calls: &mut Calls) {
        self.depart(RepairKind::ArgumentsAsString, at, calls);
        self.string_at = Some(at);
        self.undecided = true;
        self.state = State::Reading(Slot::ArgumentsText);
    }

    /// Decides about closing brackets between an open string and a marker.
    ///
    /// If they close exactly the open brackets, from the arguments outwards, only the quote is missing; otherwise they
    /// are part of the string.
    pub(super) fn end_string(&mut self, tail: &[u8], at: usize, stops: &Stops, calls: &mut Calls) {
        if tail.is_empty() || self.context() != Context::String {
            return;
        }
        let brackets: Vec<u8> = tail.iter().copied().filter(|b| matches!(b, b'}' | b']')).collect();
        if let (State::Reading(_), Some(open)) = (self.state, self.active().open_string()) {
            let around = std::iter::repeat_n(b'}', self.level).chain(self.array.then_some(b']'));
            let expected: Vec<u8> = open.iter().rev().map(|&open| closer(open)).chain(around).collect();
            let quote_missing = !brackets.is_empty() && brackets.len() >= open.len() && expected.starts_with(&brackets);
            if quote_missing && self.repair {
                self.depart(RepairKind::MissingBrackets, at, calls);
                if self.active().is_misquoted() {
                    calls.blame(CallProblem::UnclosedString);
                }
                self.active_mut().close_string();
                self.settle(stops, calls);
            }
        }
        self.feed(tail.trim_ascii_end(), at, stops, false, calls);
    }
}
