//! The payload with arguments one by one between tags: `f><parameter=a>1</parameter>`.
//!
//! Values are not escaped and do not show their type: a value ends at its closing tag, and the tool's schema says
//! whether it is a string. This module reads the text between the values; [`ValueReader`] reads the values.

mod damage;
mod near;
mod output;
mod plan;
mod tags;
mod value;

use super::json::JsonPayload;
use super::{PayloadReader, Terminator, Then};
use crate::format::schema::{self, Step, Types};
use crate::parse::calls::{Calls, Ending};
use crate::parse::event::{DiagnosticKind, RepairKind};
use crate::parse::head::{HeadRead, HeadReader, HeadStep};
use crate::parse::markers::Context;
use crate::parse::repair::{Cut, Stops, Transducer};
use crate::tool::CallProblem;
use output::Output;
use std::sync::Arc;
use value::{ValueEnd, ValueReader};

pub(crate) use plan::TaggedPlan;

/// Usual length of a key.
const NAME: usize = 64;
/// Maximum length of a key.
const KEY: usize = 128;
/// Maximum number of keys to remember for finding duplicates.
const KEYS: usize = 64;
/// Maximum nesting of elements, so that serde_json can read the arguments.
const DEPTH: usize = 100;
/// Maximum text in place of an argument or the end marker. More than that is for the user.
const TEXT: usize = 256;

/// Reads one such call.
#[derive(Debug)]
pub(crate) struct TaggedPayload {
    plan: Arc<TaggedPlan>,
    repair: bool,
    state: State,
    head: HeadReader,
    key: Vec<u8>,
    key_at: usize,
    /// The whole tag of the key, if it has more than the key.
    tag: Vec<u8>,
    /// Whether the key has no end.
    key_open: bool,
    /// The types given by the argument's tag.
    word: Option<Types>,
    /// Bytes that may be part of a tag; the first has offset `held_at`.
    held: Vec<u8>,
    held_at: usize,
    value: ValueReader,
    /// The open elements around the current arguments.
    frames: Vec<Frame>,
    /// The path to the last argument read, through the open elements.
    path: Vec<Step>,
    /// Number of arguments so far, outside of elements.
    count: usize,
    /// Their names.
    given: Vec<String>,
    output: Output,
    shortened: bool,
    /// The arguments, if they are a JSON object instead, and whether there were any.
    object: Transducer,
    object_read: bool,
    /// The call, if it is a JSON object instead.
    json: Option<Box<JsonPayload>>,
    /// Start of text that is for the user unless the call continues.
    text_at: Option<usize>,
    /// The beginning of the text in place of an argument or the end marker.
    strayed: Vec<u8>,
    /// Where the text since the last argument begins.
    strayed_at: Option<usize>,
    line_start: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Head,
    /// An argument or the end marker is expected.
    Between,
    Key,
    /// Between an argument's name and its value, in a format with text there.
    ValueStart,
    Value,
    /// In arguments that are a JSON object.
    Object,
    /// Without a head; the rest is skipped.
    Lost,
}

/// What is around a value.
struct Around<'a> {
    /// The arguments that came.
    given: &'a [String],
    path: &'a [Step],
    frames: &'a [Frame],
}

/// An element that holds elements.
#[derive(Debug)]
struct Frame {
    /// Its closing tag.
    closing: Vec<u8>,
    types: Types,
    kind: Kind,
    count: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Decided by the first element in it.
    Open,
    Object,
    Array,
}

/// What to do with a byte.
enum Did {
    Taken,
    /// Read it again in the new state.
    Look,
    /// Scan all bytes from this offset on again.
    Again(usize),
}

impl TaggedPayload {
    pub(crate) fn new(plan: &Arc<TaggedPlan>, repair: bool) -> TaggedPayload {
        TaggedPayload {
            plan: Arc::clone(plan),
            repair,
            state: State::Head,
            head: HeadReader::new(&plan.head),
            key: Vec::new(),
            key_at: 0,
            tag: Vec::new(),
            key_open: false,
            word: None,
            held: Vec::new(),
            held_at: 0,
            value: ValueReader::new(plan, repair),
            frames: Vec::new(),
            path: Vec::new(),
            count: 0,
            given: Vec::new(),
            output: Output::default(),
            shortened: false,
            object: Transducer::new(repair),
            object_read: false,
            json: None,
            text_at: None,
            strayed: Vec::new(),
            strayed_at: None,
            line_start: false,
        }
    }

    /// One byte outside of values.
    fn step(&mut self, byte: u8, at: usize, stops: &Stops, calls: &mut Calls) -> Did {
        match self.state {
            State::Head => self.head(byte, at, stops, calls),
            State::Between => self.between(byte, at, calls),
            State::Key => self.key(byte, at, calls),
            State::ValueStart => self.value_start(byte, at, calls),
            State::Value | State::Object => Did::Look,
            State::Lost => Did::Taken,
        }
    }

    fn head(&mut self, byte: u8, at: usize, stops: &Stops, calls: &mut Calls) -> Did {
        if self.head.is_empty() && self.repair && matches!(byte, b'{' | b'[') {
            self.json = Some(JsonPayload::instead(None, self.plan.open_ended, at, stops, calls));
            return Did::Look;
        }
        match self.head.push(byte, at, calls.index(), &|name| calls.is_known_tool(name)) {
            HeadStep::More => {}
            HeadStep::Done(read) => {
                let bracket = read.stopped == Some(b'{');
                self.head_read(read, at, calls);
                if bracket {
                    return Did::Look;
                }
            }
            HeadStep::Lost => self.state = State::Lost,
        }
        Did::Taken
    }

    fn head_read(&mut self, read: HeadRead, at: usize, calls: &mut Calls) {
        // Only a tool's name contains white space: this is prose.
        let prose = read.name.contains(char::is_whitespace) && !calls.is_known_tool(&read.name);
        if prose || !read.exact && !calls.depart(RepairKind::NearMissMarker, read.range.clone()) {
            self.state = State::Lost;
            return;
        }
        if let Some(id) = read.id {
            calls.give_id(id);
        }
        if self.plan.is_argument_in_name(&read.name) {
            calls.blame(CallProblem::DamagedTag);
        }
        calls.start(read.name, read.range);
        self.state = State::Between;
        if read.stopped.is_some_and(|byte| byte != b'{') {
            self.begin_key(at + 1);
        }
    }

    fn begin_value(&mut self, calls: &mut Calls) {
        if self.frames.len() >= DEPTH {
            calls.blame(CallProblem::ArgumentsTooDeep);
        }
        let key = String::from_utf8(std::mem::take(&mut self.key)).unwrap_or_default();
        let (count, kind) = match self.frames.last() {
            Some(frame) => (frame.count, frame.kind),
            None => (self.count, Kind::Object),
        };
        let separator = match count {
            0 if self.frames.is_empty() => "{",
            0 => "",
            _ => ", ",
        };
        let schema = calls.schema();
        let types = schema.map_or_else(Types::default, |schema| schema::types(schema, &self.path));
        let types = match self.word.take() {
            Some(word) if word == Types::STRING => word,
            // JSON, whatever the schema says; the word gives the types.
            Some(word) if types.without(Types::STRING).is_unknown() => word,
            Some(_) => types.without(Types::STRING),
            None => types,
        };
        self.value.begin(&key, &self.tag, types, separator, kind == Kind::Object, self.frames.len());
        self.value.unstarted = self.key_open;
        self.tag.clear();
        self.key = key.into_bytes();
        self.state = State::Value;
    }

    /// The value, or its beginning, has ended; returns from where on to scan bytes again.
    fn value_ended(&mut self, end: ValueEnd, at: usize, stops: &Stops, calls: &mut Calls) -> Option<usize> {
        self.line_start = false;
        if let ValueEnd::Children(from) = end {
            self.value.push_prefix(&mut self.output);
            let closing = self.value.take_closing();
            self.frames.push(Frame { closing, types: self.value.types(), kind: Kind::Open, count: 0 });
            self.begin_key(from);
            return Some(from);
        }
        if let ValueEnd::Key { .. } | ValueEnd::Marker(_) = end {
            self.value.report_open(at, &mut self.output, calls);
        }
        if std::mem::take(&mut self.key_open) && self.value.is_blank() {
            let key = self.key_text();
            calls.blame(CallProblem::MissingValue { name: key.clone() });
        }
        let value_end = if let ValueEnd::ClosedBefore(from) = end { from } else { at };
        self.value.finish(value_end, stops, &mut self.output, calls);
        self.argument_ended();
        match end {
            ValueEnd::Closed | ValueEnd::Children(_) => None,
            ValueEnd::ClosedBefore(from) => Some(from),
            // Its tag has more than the key.
            ValueEnd::Key { at: key_at, .. } if !self.plan.words.is_empty() => {
                self.begin_key(key_at);
                Some(key_at)
            }
            ValueEnd::Key { key, at: key_at, end } => {
                self.key_at = key_at;
                self.key_read(key, calls);
                (end < at).then_some(end)
            }
            ValueEnd::Marker(from) => Some(from),
        }
    }

    fn key_text(&self) -> String {
        String::from_utf8_lossy(&self.key).into_owned()
    }

    fn argument_ended(&mut self) {
        self.strayed_at = None;
        match self.frames.last_mut() {
            Some(frame) => frame.count += 1,
            None => self.count += 1,
        }
        self.state = State::Between;
    }

    /// Closes the open elements from `depth` on.
    fn close_frames(&mut self, depth: usize, at: usize, calls: &mut Calls) {
        if depth + 1 < self.frames.len() {
            self.output.report(RepairKind::MissingBrackets, at..at, calls);
        }
        while self.frames.len() > depth {
            let Some(frame) = self.frames.pop() else { break };
            self.output.push(match frame.kind {
                Kind::Object => "}",
                Kind::Array => "]",
                Kind::Open if frame.types.has(Types::ARRAY) => "[]",
                Kind::Open => "{}",
            });
            self.argument_ended();
        }
    }

    /// Takes bytes of arguments that are a JSON object.
    ///
    /// Returns how many, and whether there was a report.
    fn object(&mut self, input: &[u8], at: usize, stops: &Stops, markers: bool, calls: &mut Calls) -> (usize, bool) {
        let taken = self.object.feed(input, at, stops, markers);
        let reported = self.pass_object(calls);
        if self.object.is_done() {
            if let Some(at) = self.object.broken_at() {
                calls.diagnose(DiagnosticKind::BrokenJson, at..at + 1);
            }
            self.count += 1;
            self.state = State::Between;
        }
        (taken, reported)
    }

    fn pass_object(&mut self, calls: &mut Calls) -> bool {
        self.output.push(&self.object.take_stable());
        let mut reported = false;
        while let Some((kind, place)) = self.object.take_report() {
            reported = true;
            self.output.report(kind, place, calls);
        }
        reported
    }

    /// Closes what is open at the end of the payload; returns whether the call is nevertheless complete.
    fn end_open(&mut self, by: Terminator, tail: &[u8], at: usize, stops: &Stops, calls: &mut Calls) -> bool {
        // If nothing shows that the call has ended, more arguments may have followed.
        let end_is_known = by != Terminator::Text || self.plan.open_ended && !calls.cut_off;
        let mut whole = self.state == State::Between && end_is_known;
        // Its beginning may have been written twice.
        whole &= !(by == Terminator::Start && self.count == 0 && self.frames.is_empty());
        match self.state {
            State::Head if by == Terminator::End && !self.head.is_empty() => {
                match self.head.end(at, calls.index(), &|name| calls.is_known_tool(name)) {
                    HeadStep::Done(read) => self.head_read(read, at, calls),
                    _ => self.state = State::Lost,
                }
            }
            State::Head => self.state = State::Lost,
            State::Value => {
                whole = self.value.ends_with_marker() && !calls.cut_off;
                if !whole {
                    self.shortened = true;
                    self.value.cut();
                }
                self.value.report_open(at, &mut self.output, calls);
                self.value.finish(at, stops, &mut self.output, calls);
                self.argument_ended();
            }
            State::Key | State::ValueStart => {
                self.shortened = true;
                self.output.report(RepairKind::MissingBrackets, at..at, calls);
            }
            State::Object => {
                self.object(tail.trim_ascii_end(), at - tail.len(), stops, false, calls);
                if self.state == State::Object {
                    let string = self.object.in_string();
                    let cut = self.object.cut(at);
                    self.shortened |= string || matches!(cut, Cut::Shortened | Cut::Broken);
                    self.pass_object(calls);
                    if let Some(at) = self.object.broken_at() {
                        calls.diagnose(DiagnosticKind::BrokenJson, at..at + 1);
                    }
                    self.count += 1;
                    whole = by == Terminator::End;
                }
            }
            State::Between | State::Lost => {}
        }
        if !self.frames.is_empty() {
            self.output.report(RepairKind::MissingBrackets, at..at, calls);
            self.close_frames(0, at, calls);
        }
        whole
    }
}

impl PayloadReader for TaggedPayload {
    fn as_json(&mut self) -> Option<&mut JsonPayload> {
        self.json.as_deref_mut()
    }

    fn read(&mut self, input: &[u8], at: usize, stops: &Stops, markers: bool, calls: &mut Calls) -> (usize, Then) {
        let mut i = 0;
        while i < input.len() && self.json.is_none() {
            match self.state {
                State::Value => {
                    let around = Around { given: &self.given, path: &self.path, frames: &self.frames };
                    let (taken, end) = self.value.feed(&input[i..], at + i, stops, &mut self.output, &around, calls);
                    i += taken;
                    let again = end.and_then(|end| self.value_ended(end, at + i, stops, calls));
                    if let Some(from) = again {
                        return (i, Then::Again(from));
                    }
                }
                State::Object => {
                    let (taken, reported) = self.object(&input[i..], at + i, stops, markers, calls);
                    i += taken;
                    if taken == 0 && !reported && self.state == State::Object {
                        break;
                    }
                }
                _ => {
                    let taken = match self.state {
                        State::Head => self.head.go_on(&input[i..], |byte| markers && stops.in_structure(byte)),
                        _ => self.whole_tag(&input[i..], at + i, stops, markers, calls),
                    };
                    if taken > 0 {
                        i += taken;
                        continue;
                    }
                    if markers && (stops.in_structure(input[i]) || self.is_over(at + i)) {
                        break;
                    }
                    match self.step(input[i], at + i, stops, calls) {
                        Did::Taken => i += 1,
                        Did::Look => {}
                        Did::Again(from) => return (i + 1, Then::Again(from)),
                    }
                }
            }
        }
        (i, Then::More)
    }

    fn flush(&mut self, calls: &mut Calls) {
        match &mut self.json {
            Some(json) => json.flush(calls),
            None => self.output.flush(calls),
        }
    }

    fn context(&self) -> Context {
        match (&self.json, self.state) {
            (Some(json), _) => json.context(),
            (_, State::Value) => Context::Raw,
            (_, State::Object) if self.object.in_string() => Context::String,
            _ => Context::Structure,
        }
    }

    fn is_empty(&self) -> bool {
        self.state == State::Head && self.head.is_empty() && self.json.is_none()
    }

    fn is_closed(&self) -> bool {
        self.json.as_ref().is_some_and(|json| json.is_closed())
    }

    fn end(&mut self, by: Terminator, tail: &[u8], at: usize, stops: &Stops, calls: &mut Calls) -> Ending {
        if let Some(json) = &mut self.json {
            return json.end(by, tail, at, stops, calls);
        }
        let whole = self.end_open(by, tail, at, stops, calls);
        self.check_strayed(calls);
        let lost = self.state == State::Lost;
        if lost {
            calls.blame(CallProblem::NoToolName);
        }
        let root = calls.schema().filter(|_| self.value.has_end);
        if let Some(other) = root.and_then(|root| self.given.iter().find(|key| !schema::knows(root, key))) {
            // The rest of the value is another call, whose beginning is broken.
            calls.blame(CallProblem::SwallowedArgument { name: other.clone() });
        }
        self.output.flush(calls);
        if by == Terminator::End {
            self.end_text(calls);
        }
        if by == Terminator::Start {
            self.output.report(RepairKind::MissingEndMarker, at..at, calls);
        }
        let complete = match by {
            Terminator::End | Terminator::NextCall => !self.shortened,
            Terminator::Start | Terminator::Text => whole && !self.shortened && self.repair,
        };
        if !complete {
            calls.diagnose(DiagnosticKind::CutOff, at..at);
        }
        let arguments = (calls.has_name() && !lost).then(|| {
            if self.count == 0 {
                return ("{}".to_owned(), 0);
            }
            if !self.object_read {
                self.output.push("}");
            }
            self.output.take(std::mem::take(&mut calls.spare_text))
        });
        Ending { complete, broken: lost, arguments }
    }

    fn before_end(&mut self, at: usize, stops: &Stops, calls: &mut Calls) -> Option<usize> {
        if self.json.is_some() || self.state != State::Value {
            return None;
        }
        let end = self.value.end_text(stops, &mut self.output, calls)?;
        // At a token limit the value may have continued, unless the tag is on a line of its own.
        self.shortened |= calls.cut_off && !self.plan.lines;
        self.value_ended(ValueEnd::ClosedBefore(end), at, stops, calls)
    }

    fn text_at(&self) -> Option<usize> {
        self.json.as_ref().map_or(self.text_at, |json| json.text_at())
    }

    fn forget_text(&mut self, from: usize, calls: &mut Calls) {
        if let Some(json) = &mut self.json {
            json.forget_text(from, calls);
        } else if self.text_at.is_some_and(|at| at >= from) {
            self.end_text(calls);
        }
    }

    fn is_over(&self, at: usize) -> bool {
        match &self.json {
            Some(json) => json.is_over(at),
            None => self.text_at.is_some_and(|text| at >= text + TEXT),
        }
    }

    fn next_call(&mut self) {
        match &mut self.json {
            Some(json) => json.next_call(),
            None => self.reset(),
        }
    }

    fn reset(&mut self) {
        self.state = State::Head;
        self.head.reset();
        self.held.clear();
        self.key_open = false;
        self.tag.clear();
        self.value.reset();
        self.value.has_end = false;
        self.frames.clear();
        self.path.clear();
        self.count = 0;
        self.given.clear();
        self.output.clear();
        self.shortened = false;
        self.object.reset();
        self.object_read = false;
        self.json = None;
        self.text_at = None;
        self.strayed.clear();
        self.strayed_at = None;
        self.line_start = false;
    }
}
