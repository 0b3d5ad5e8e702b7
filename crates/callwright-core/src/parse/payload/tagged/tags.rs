//! The text between the values of a call: the tags around arguments and their names.

use super::near::Near;
use super::{Arc, Calls, Did, KEY, KEYS, Kind, NAME, RepairKind, State, Stops, TEXT, TaggedPayload};
use crate::format::schema::{self, Step, Types};
use crate::format::typed;
use crate::parse::names;
use crate::parse::nearly::LEAST;
use crate::tool::CallProblem;

impl TaggedPayload {
    pub(super) fn between(&mut self, byte: u8, at: usize, calls: &mut Calls) -> Did {
        if self.held.is_empty() {
            match byte {
                b'\n' => {
                    self.line_start = true;
                    return Did::Taken;
                }
                b' ' | b'\t' | b'\r' => return Did::Taken,
                b'{' if self.count == 0
                    && self.frames.is_empty()
                    && self.text_at.is_none()
                    && !self.object_read
                    && self.output.report(RepairKind::JsonArguments, at..at + 1, calls) =>
                {
                    self.object_read = true;
                    self.state = State::Object;
                    return Did::Look;
                }
                _ => {}
            }
            self.held_at = at;
        }
        if self.frames.is_empty() && !self.object_read && self.plan.key_start.get(self.held.len()) == Some(&byte) {
            self.held.push(byte);
            if self.held.len() == self.plan.key_start.len() {
                self.held.clear();
                self.end_text(calls);
                self.begin_key(at + 1);
            }
            return Did::Taken;
        }
        self.held.push(byte);
        while !self.held.is_empty() {
            if let Some(depth) = self.frames.iter().rposition(|frame| frame.closing == self.held) {
                self.close_frames(depth, at, calls);
                self.held.clear();
                break;
            }
            if self.frames.iter().any(|frame| frame.closing.starts_with(&self.held)) {
                break;
            }
            if !self.object_read && self.held.starts_with(&self.plan.key_start) {
                let from = self.held_at + self.plan.key_start.len();
                self.held.clear();
                self.end_text(calls);
                self.begin_key(from);
                return if from > at { Did::Taken } else { Did::Again(from) };
            }
            if !self.object_read && self.plan.key_start.starts_with(&self.held) {
                break;
            }
            match self.near_tag() {
                Near::Begun => break,
                Near::Whole(key, kind) => {
                    self.near_key(key, &kind, at, calls);
                    return Did::Taken;
                }
                Near::No => {}
            }
            self.stray(self.held_at, calls);
            if self.strayed.len() < TEXT {
                self.strayed.push(self.held[0]);
            }
            self.strayed_at.get_or_insert(self.held_at);
            self.held.remove(0);
            self.held_at += 1;
        }
        Did::Taken
    }

    /// Whether the held bytes are an argument's tag with other attributes than declared.
    fn near_tag(&self) -> Near {
        let expected = self.repair && self.frames.is_empty() && !self.object_read;
        let near = self.plan.near.as_ref().filter(|_| expected);
        near.map_or(Near::No, |near| near.read(&self.held))
    }

    /// The held bytes are the tag of the argument `key`.
    fn near_key(&mut self, key: String, kind: &str, at: usize, calls: &mut Calls) {
        self.held.clear();
        self.end_text(calls);
        self.output.report(RepairKind::NearMissMarker, self.held_at..at + 1, calls);
        self.begin_key(self.held_at);
        self.word = self.plan.word(kind);
        self.key.extend_from_slice(key.as_bytes());
        self.key_read(key, calls);
    }

    /// A byte in place of an argument or the end marker.
    pub(super) fn stray(&mut self, at: usize, calls: &mut Calls) {
        if self.text_at.is_some() {
            return;
        }
        if self.line_start && self.repair && self.frames.is_empty() {
            self.text_at = Some(at);
        } else {
            self.output.report(RepairKind::StrayText, at..at + 1, calls);
        }
        self.line_start = false;
    }

    /// The call continues, so the text in between was not for the user.
    pub(super) fn end_text(&mut self, calls: &mut Calls) {
        if let Some(at) = self.text_at.take() {
            self.output.report(RepairKind::StrayText, at..at + 1, calls);
        }
    }

    /// Whether the text in place of an argument was one, with a damaged beginning.
    pub(super) fn check_strayed(&mut self, calls: &mut Calls) {
        if !self.strayed.is_empty() && self.plan.is_damaged_argument(&self.strayed) {
            calls.blame(CallProblem::UnnamedArgument);
        }
        self.strayed.clear();
    }

    pub(super) fn begin_key(&mut self, at: usize) {
        self.key.clear();
        self.key_at = at;
        self.state = State::Key;
    }

    /// Takes the start of an argument, or the rest of it, if all of it is in the input, as it usually is; returns its
    /// length.
    pub(super) fn whole_tag(
        &mut self,
        bytes: &[u8],
        at: usize,
        stops: &Stops,
        markers: bool,
        calls: &mut Calls,
    ) -> usize {
        let plan = &self.plan;
        match self.state {
            State::Between if self.held.is_empty() && self.frames.is_empty() => {
                let expected = !self.object_read && self.text_at.is_none() && stops.key_start_is_clear;
                let length = plan.key_start.len();
                if !expected || length == 0 || !bytes.starts_with(&plan.key_start) {
                    return 0;
                }
                self.begin_key(at + length);
                length
            }
            State::Key if self.key.is_empty() && !plan.tag_end.is_empty() => {
                let is_end = |at: &usize| bytes[*at] == plan.tag_end[0] && bytes[*at..].starts_with(&plan.tag_end);
                let end = (0..bytes.len().min(NAME)).find(is_end);
                let Some(tag) = end.and_then(|end| bytes.get(..end + plan.tag_end.len())) else { return 0 };
                let name = &tag[..tag.len() - plan.tag_end.len()];
                let unclosed = name.iter().any(|byte| matches!(byte, b'<' | b'>' | b'\n')) || name.starts_with(b"/");
                if unclosed || markers && tag.iter().any(|&byte| stops.in_structure(byte)) {
                    return 0;
                }
                self.key.extend_from_slice(tag);
                self.key_ended(at + tag.len(), calls);
                tag.len()
            }
            _ => 0,
        }
    }

    pub(super) fn key(&mut self, byte: u8, at: usize, calls: &mut Calls) -> Did {
        self.key.push(byte);
        if self.plan.tag_end.last() == Some(&byte) && self.key.ends_with(&self.plan.tag_end) {
            return self.key_ended(at, calls);
        } else if let Some(length) = self.unclosed_key() {
            return self.key_unclosed(length, at, calls);
        } else if self.key.len() > KEY + self.plan.key_end.len() + self.plan.tag_end.len() {
            self.state = State::Between;
            self.shortened = true;
            self.output.report(RepairKind::StrayText, self.key_at..at, calls);
        }
        Did::Taken
    }

    /// Length of the key if something other than the format's text ends it: a tag or, inside a tag, the end of the
    /// line.
    fn unclosed_key(&self) -> Option<usize> {
        let lines = !self.plan.key_start.ends_with(b">");
        let ends = |byte: &u8| matches!(byte, b'<' | b'>') || lines && *byte == b'\n';
        let at = self.key.iter().position(ends).filter(|_| self.repair)?;
        let may_end = (0..=at).any(|from| self.plan.tag_end.starts_with(&self.key[from..]));
        (!may_end).then_some(at)
    }

    /// The key ends after `length` bytes, and the value follows. Without a name, no value follows.
    fn key_unclosed(&mut self, length: usize, at: usize, calls: &mut Calls) -> Did {
        // A closing bracket is the rest of the key's end.
        let from = self.key_at + length + usize::from(self.key[length] == b'>');
        let tag = String::from_utf8_lossy(&self.key[..length]).into_owned();
        let key = self.take_type(&tag, length, calls).trim().to_owned();
        if key.is_empty() || key.starts_with('/') {
            if key.is_empty() {
                calls.blame(CallProblem::UnnamedArgument);
            }
            self.state = State::Between;
            self.stray(self.key_at, calls);
        } else {
            self.output.report(RepairKind::MissingBrackets, from..from, calls);
            self.key_open = true;
            if !self.plan.words.is_empty() && self.word.is_none() {
                // What follows the word may be a part of the value.
                calls.blame(CallProblem::InvalidArgumentName { name: tag.clone() });
            }
            let mut key = key.lines().next().unwrap_or_default().trim_end();
            if !self.is_parameter(key, calls) {
                key = key.trim_matches(['"', '\'']);
                if !names::is_plain(key) || self.plan.ends_with_damaged_key_end(key.as_bytes()) {
                    calls.blame(CallProblem::InvalidArgumentName { name: key.to_owned() });
                }
            }
            self.key_read(key.to_owned(), calls);
        }
        if from > at { Did::Taken } else { Did::Again(from) }
    }

    pub(super) fn key_ended(&mut self, at: usize, calls: &mut Calls) -> Did {
        let length = self.key.len() - self.plan.tag_end.len();
        if !self.plan.words.is_empty() {
            self.tag.clear();
            self.tag.extend_from_slice(&self.plan.key_start);
            self.tag.extend_from_slice(&self.key);
        }
        let written = std::mem::take(&mut self.key);
        let tag = String::from_utf8_lossy(&written[..length]);
        let key = self.take_type(&tag, length, calls).trim().to_owned();
        drop(tag);
        self.key = written;
        if self.plan.escaped_keys && !key.contains(['"', '<', '>']) {
            self.key_read(typed::unescape(&key), calls);
            return Did::Taken;
        }
        // A closing tag whose element is not open.
        if key.is_empty() || key.starts_with('/') {
            if let Some(from) = self.value_before(&key, at, calls) {
                self.key_read(key[1..].to_owned(), calls);
                return Did::Again(from);
            }
            self.check_strayed(calls);
            (self.state, self.strayed_at) = (State::Between, None);
            self.stray(self.key_at, calls);
            return Did::Taken;
        }
        let plain = key.trim_matches(['"', '\'', '=']);
        let quoted = plain.len() < key.len() && names::is_plain(plain) && !self.is_parameter(&key, calls);
        if quoted && self.output.report(RepairKind::OtherQuotes, self.key_at..self.key_at + length, calls) {
            self.key_read(plain.to_owned(), calls);
            return Did::Taken;
        }
        if !names::is_plain(&key) && !self.is_parameter(&key, calls) {
            calls.blame(CallProblem::InvalidArgumentName { name: key.clone() });
        }
        self.key_read(key, calls);
        Did::Taken
    }

    /// Where the text before a closing tag begins, if it is the value of the argument that the tag names: only the tag
    /// before it, or its end, is missing.
    fn value_before(&mut self, tag: &str, at: usize, calls: &mut Calls) -> Option<usize> {
        let name = tag.strip_prefix('/').filter(|_| self.plan.value_end.1.is_some() && self.frames.is_empty())?;
        let from = self.strayed_at.filter(|_| self.repair && self.is_parameter(name, calls))?;
        if self.given.iter().any(|given| given == name)
            || !self.output.report(RepairKind::MissingBrackets, from..at, calls)
        {
            return None;
        }
        let strayed = std::mem::take(&mut self.strayed);
        let begun = self.plan.key_start.iter().zip(&strayed).take_while(|(tag, text)| tag == text).count();
        Some(if begun >= LEAST { from + begun } else { from })
    }

    /// Returns whether the tool has a parameter of exactly this name.
    fn is_parameter(&self, key: &str, calls: &Calls) -> bool {
        calls.schema().is_some_and(|schema| schema::knows(schema, key))
    }

    /// The key in a tag of `length` bytes that may have a word for the value's type after it. The word is stored.
    fn take_type<'t>(&mut self, tag: &'t str, length: usize, calls: &mut Calls) -> &'t str {
        self.word = None;
        if self.plan.words.is_empty() {
            return tag;
        }
        let plan = Arc::clone(&self.plan);
        let exact = tag.rsplit_once(&*String::from_utf8_lossy(&plan.key_end));
        self.word = exact.and_then(|(_, word)| plan.word(word));
        let near = plan.near.as_ref().and_then(|near| near.split(tag)).filter(|_| exact.is_none() && self.repair);
        let near = near.filter(|(_, word)| plan.word(word).is_some());
        if let Some((key, word)) = near {
            self.output.report(RepairKind::NearMissMarker, self.key_at..self.key_at + length, calls);
            self.word = plan.word(word);
            return key;
        }
        let key = exact.map_or(tag, |(key, _)| key);
        if self.word.is_none() && !key.trim().is_empty() && !key.starts_with('/') {
            self.output.report(RepairKind::NearMissMarker, self.key_at..self.key_at + length, calls);
        }
        key
    }

    pub(super) fn key_read(&mut self, key: String, calls: &mut Calls) {
        self.check_strayed(calls);
        if let Some(frame) = self.frames.last_mut() {
            if frame.kind == Kind::Open {
                let (array, object) = (frame.types.has(Types::ARRAY), frame.types.has(Types::OBJECT));
                frame.kind =
                    if array && !object || key == "item" && (array || !object) { Kind::Array } else { Kind::Object };
                self.output.push(if frame.kind == Kind::Array { "[" } else { "{" });
            }
        } else if self.given.contains(&key) {
            // Invalid bytes are longer in the key than in the model's text.
            let length = key.len().min(self.key.len());
            calls.duplicate_key(&key, self.key_at..self.key_at + length);
        } else if self.given.len() < KEYS {
            self.given.push(key.clone());
        }
        let item = self.frames.last().is_some_and(|frame| frame.kind == Kind::Array);
        self.path.truncate(self.frames.len());
        self.path.push(if item { Step::Item } else { Step::Member(key.clone()) });
        self.key = key.into_bytes();
        if self.plan.value_start.is_empty() {
            self.begin_value(calls);
        } else {
            self.state = State::ValueStart;
        }
    }

    pub(super) fn value_start(&mut self, byte: u8, at: usize, calls: &mut Calls) -> Did {
        if self.held.is_empty() {
            if byte.is_ascii_whitespace() {
                return Did::Taken;
            }
            self.held_at = at;
        }
        self.held.push(byte);
        if self.repair && self.plan.tag_end.starts_with(&self.held) && self.held.len() > 1 {
            if self.held == self.plan.tag_end {
                let place = self.held_at..at + 1;
                self.held.clear();
                self.output.report(RepairKind::DoubledMarker, place, calls);
            }
            return Did::Taken;
        }
        if self.held == self.plan.value_start {
            self.held.clear();
            self.begin_value(calls);
        } else if self.held == self.plan.key_start {
            self.held.clear();
            let key = self.key_text();
            calls.blame(CallProblem::MissingValue { name: key.clone() });
            self.begin_key(at + 1);
        } else if !self.plan.value_start.starts_with(&self.held) && !self.plan.key_start.starts_with(&self.held) {
            self.held.clear();
            self.output.report(RepairKind::MissingBrackets, self.held_at..self.held_at, calls);
            self.begin_value(calls);
            self.value.unstarted = true;
            return Did::Again(self.held_at);
        }
        Did::Taken
    }
}
