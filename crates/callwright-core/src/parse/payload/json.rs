//! The JSON object payload, `{"name": …, "arguments": {…}}`. It reads the object around a call's parts and passes each
//! part to a [`Transducer`]; the output of the one for the arguments is streamed.
//!
//! Models write the keys in either order or under other names, wrap the object in another one, put it into an array or
//! a code fence, and send the arguments as a string. One pass reads all of that.

mod held;
mod value;

use super::{PayloadReader, Terminator, Then};
use crate::format::JsonCall;
use crate::parse::calls::{Calls, Ending};
use crate::parse::event::{DiagnosticKind, RepairKind};
use crate::parse::markers::Context;
use crate::parse::repair::{Cut, Dialect, Stops, Transducer};
use crate::parse::trailing::{Trailing, TrailingByte};
use crate::tool::CallProblem;
use held::Held;
use std::ops::Range;
use std::sync::Arc;

const NAME_ALIASES: [&str; 7] = ["name", "tool_name", "function_name", "tool", "toolName", "func", "action"];

/// Bytes of arguments under an alias to hold for the canonical key, and for the name.
const WAITING: usize = 1024;
const NAMELESS: usize = 16 << 10;
/// Maximum length of a name, an id or a key. Longer ones are ignored.
const NAME: usize = 4096;

/// Reads the calls between one pair of markers.
#[derive(Debug)]
pub(crate) struct JsonPayload {
    keys: Arc<JsonCall>,
    /// Whether the format has no end marker, so that the call ends with the payload.
    open_ended: bool,
    repair: bool,
    state: State,
    /// Offset after the last byte read.
    at: usize,
    /// Number of open objects around name and arguments: 1, or 2 with a wrapper.
    level: usize,
    wrapped: bool,
    array: bool,
    /// Whether text after the payload has come, in a format without end marker.
    over: bool,
    /// Whether a comma came right after the arguments, and then the beginning of another one.
    comma: bool,
    goes_on: bool,
    /// The place of a comma right after the arguments, in a format without end marker: it may be the text's.
    comma_at: Option<usize>,
    /// Whether to read only the arguments, without an object around them.
    bare: bool,
    /// Whether to stop after the payload, for the format's following text.
    pause: bool,
    junk: bool,
    /// Whether the call was lost and has ended.
    lost: bool,
    key: String,
    /// Whether there was an `=` instead of a colon.
    arrow: bool,
    /// Whether the current key is too long; its beginning is in `key`.
    long_key: bool,
    key_at: usize,
    value: Transducer,
    arguments: Transducer,
    /// Length of the arguments already sent.
    sent: usize,
    /// Whether the arguments may still turn out to be `null` (none), so that nothing can be sent.
    undecided: bool,
    /// Start of the value of the current key.
    value_at: usize,
    /// Start of the string that contains the arguments.
    string_at: Option<usize>,
    shortened: bool,
    /// Whether the canonical key of the arguments has come.
    argued: bool,
    /// Position of the wrapper's key.
    wrapper_at: usize,
    /// Values under alias keys, used if the canonical key never appears.
    held_name: Option<Held>,
    held_arguments: Option<Held>,
    trailing: Trailing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before the object.
    Start,
    /// In the first line of a code fence.
    Fence,
    FirstKey,
    Key,
    KeyText,
    KeyWord,
    Colon,
    Value(Slot),
    Reading(Slot),
    AfterValue,
    /// After the object.
    After,
    /// Beyond repair: the rest is skipped. In a list of calls, the brackets that are open show where the next call may
    /// begin.
    Lost {
        string: bool,
        escape: bool,
        depth: usize,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slot {
    Name,
    Id,
    Arguments,
    /// The arguments, if the value is an object: the key is the tool's name.
    Keyed,
    /// The arguments, in a string.
    ArgumentsText,
    /// The name or the arguments, if the canonical key never appears.
    MaybeName,
    MaybeArguments,
    /// An object around name and arguments, or the name itself under that key.
    Wrapper,
    Ignored,
    /// Skipped without a report.
    Skipped,
}

/// What to do with a byte.
enum Step {
    Taken,
    /// Read it again in the new state.
    Again,
    /// It begins another call.
    NextCall,
    /// It is after the end of the payload.
    Over,
    /// The payload ended before this offset.
    OverBefore(usize),
}

impl JsonPayload {
    pub(crate) fn new(keys: &Arc<JsonCall>, open_ended: bool, repair: bool) -> JsonPayload {
        JsonPayload {
            keys: Arc::clone(keys),
            open_ended,
            repair,
            state: State::Start,
            at: 0,
            level: 0,
            wrapped: false,
            array: false,
            over: false,
            comma: false,
            goes_on: false,
            comma_at: None,
            bare: false,
            pause: false,
            junk: false,
            lost: false,
            key: String::new(),
            arrow: false,
            long_key: false,
            key_at: 0,
            value: Transducer::new(repair),
            arguments: Transducer::new(repair),
            sent: 0,
            undecided: false,
            value_at: 0,
            string_at: None,
            shortened: false,
            argued: false,
            wrapper_at: 0,
            held_name: None,
            held_arguments: None,
            trailing: Trailing::default(),
        }
    }

    /// A reader for calls that are JSON objects, from offset `at` on, in another kind of format; `array_at` is the
    /// start of a list of them.
    pub(crate) fn instead(
        array_at: Option<usize>,
        open_ended: bool,
        at: usize,
        stops: &Stops,
        calls: &mut Calls,
    ) -> Box<JsonPayload> {
        calls.depart(RepairKind::ExtraWrapping, at..at + 1);
        let keys = Arc::new(JsonCall { array: array_at.is_some(), ..JsonCall::default() });
        let mut json = JsonPayload::new(&keys, open_ended, calls.repair);
        if let Some(at) = array_at {
            json.feed(b"[", at, stops, false, calls);
        }
        Box::new(json)
    }

    /// A reader for arguments without an object around them.
    pub(crate) fn arguments_only(dialect: &Dialect, open_ended: bool, repair: bool) -> JsonPayload {
        let arguments = Transducer::of(dialect.clone(), repair);
        JsonPayload { arguments, ..JsonPayload::new(&Arc::default(), open_ended, repair) }
    }

    /// The arguments begin here; with `pause` the reader stops after them.
    pub(crate) fn expect_arguments(&mut self, pause: bool) {
        (self.bare, self.pause) = (true, pause);
        self.state = State::Value(Slot::Arguments);
    }

    /// A whole call begins here: the model writes JSON around name and arguments.
    pub(crate) fn expect_call(&mut self) {
        self.state = State::Start;
    }

    /// The payload is in a code fence.
    pub(crate) fn in_fence(&mut self) {
        self.trailing.fenced = true;
    }

    /// Returns whether the reader stopped after the payload.
    pub(crate) fn is_paused(&self) -> bool {
        self.pause && self.state == State::After
    }

    /// The format's text after the payload has ended.
    pub(crate) fn go_on(&mut self) {
        self.pause = false;
    }

    fn active(&self) -> &Transducer {
        if self.state == State::Reading(Slot::Arguments) { &self.arguments } else { &self.value }
    }

    fn active_mut(&mut self) -> &mut Transducer {
        if self.state == State::Reading(Slot::Arguments) { &mut self.arguments } else { &mut self.value }
    }

    fn ignore(&self, calls: &mut Calls) {
        calls.ignored_key(&self.key, self.key_at);
    }

    fn lose(&mut self, at: usize, calls: &mut Calls) {
        calls.diagnose(DiagnosticKind::BrokenJson, at..at + 1);
        self.state = State::Lost { string: false, escape: false, depth: self.level };
    }

    /// Reports a departure, after sending what precedes it.
    fn report(&mut self, kind: RepairKind, place: Range<usize>, calls: &mut Calls) -> bool {
        if calls.is_news(kind) {
            self.flush(calls);
        }
        calls.depart(kind, place)
    }

    /// Reports a departure found at the end of the payload.
    fn note(&mut self, kind: RepairKind, at: usize, calls: &mut Calls) {
        self.report(kind, at..at, calls);
    }

    /// A departure at one byte; without repairs the payload is lost.
    fn depart(&mut self, kind: RepairKind, at: usize, calls: &mut Calls) -> bool {
        let repaired = self.report(kind, at..at + 1, calls);
        if !repaired {
            self.lose(at, calls);
        }
        repaired
    }

    fn step(&mut self, byte: u8, at: usize, stops: &Stops, calls: &mut Calls) -> Step {
        let blank = matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
        match self.state {
            State::Start => return self.before(byte, at, calls),
            State::Fence => match byte {
                b'{' | b'[' => {
                    self.state = State::Start;
                    return Step::Again;
                }
                b'\n' => self.state = State::Start,
                _ => {}
            },
            State::FirstKey | State::Key if blank => {}
            State::FirstKey | State::Key => return self.before_key(byte, at, stops, calls),
            State::KeyWord => {
                if (byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'-')) && self.key.len() < 64 {
                    self.key.push(char::from(byte));
                } else {
                    self.state = State::Colon;
                    return Step::Again;
                }
            }
            State::Colon => match byte {
                _ if blank => {}
                b'=' if !self.arrow && self.depart(RepairKind::OtherPunctuation, at, calls) => {
                    self.arrow = true;
                }
                _ if self.arrow && byte != b'>' => {
                    self.state = State::Value(self.slot_of_key(calls));
                    return Step::Again;
                }
                b':' | b'>' if self.arrow == (byte == b'>') => self.state = State::Value(self.slot_of_key(calls)),
                _ => self.lose(at, calls),
            },
            State::Value(_) if blank => {}
            State::Value(slot) => return self.begin_value(slot, byte, at, calls),
            State::AfterValue if blank => {}
            State::AfterValue => return self.after_value(byte, at, stops, calls),
            State::After => return self.after(byte, at, calls),
            // As in the transducer, a line break ends a string.
            State::Lost { .. } if self.open_ended && byte == b'\n' => self.over = true,
            State::Lost { string, escape, depth } => {
                let depth = match byte {
                    b'{' | b'[' if !string => depth + 1,
                    b'}' | b']' if !string => depth.saturating_sub(1),
                    _ => depth,
                };
                self.state = State::Lost {
                    string: if string { byte != b'\n' && (escape || byte != b'"') } else { byte == b'"' },
                    escape: string && !escape && byte == b'\\',
                    depth,
                };
                if depth == 0 && byte == b'}' && self.array {
                    (self.lost, self.state) = (true, State::After);
                }
            }
            // The transducers handle these states; their bytes never get here.
            State::KeyText | State::Reading(_) => {}
        }
        self.taken()
    }

    /// Returns what taking a byte comes to.
    fn taken(&self) -> Step {
        if self.over { Step::Over } else { Step::Taken }
    }

    /// The use of the value of the key just read.
    fn slot_of_key(&mut self, calls: &mut Calls) -> Slot {
        self.arrow = false;
        let slot = self.slot(calls);
        // The first value was already sent and cannot be revised.
        if slot == Slot::Ignored && (self.key == self.keys.name || self.key == self.keys.arguments) {
            calls.blame(CallProblem::DuplicateKey { key: self.key.clone() });
        }
        if slot == Slot::Ignored && self.keys.keyed && self.level == 1 {
            calls.blame(CallProblem::ConflictingKey { key: self.key.clone() });
        }
        slot
    }

    fn before(&mut self, byte: u8, at: usize, calls: &mut Calls) -> Step {
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => {}
            b'{' => {
                self.level = 1;
                self.state = State::FirstKey;
            }
            b'[' if !self.array => {
                if self.keys.array || self.depart(RepairKind::ExtraWrapping, at, calls) {
                    self.array = true;
                }
            }
            b']' if self.array => {
                self.array = false;
                self.state = State::After;
            }
            b'`' => {
                if self.depart(RepairKind::CodeFence, at, calls) {
                    self.trailing.fenced = true;
                    self.state = State::Fence;
                }
            }
            _ => {
                self.junk = true;
                self.depart(RepairKind::StrayText, at, calls);
            }
        }
        Step::Taken
    }

    fn after(&mut self, byte: u8, at: usize, calls: &mut Calls) -> Step {
        if self.array && self.trailing.text_at().is_none() && matches!(byte, b',' | b']') {
            self.trailing.pass(byte);
            self.array = byte == b',';
            return Step::Taken;
        }
        if self.waits() && !self.trailing.fenced {
            return self.after_arguments(byte, at, calls);
        }
        if self.open_ended {
            let fence = self.trailing.fenced && byte == b'`';
            let goes_on = self.array && byte == b'{' || fence || byte.is_ascii_whitespace();
            if !goes_on {
                self.over = true;
                return Step::Over;
            }
        }
        if self.bare && !byte.is_ascii_whitespace() {
            self.goes_on |= self.comma && (byte == b'"' || byte.is_ascii_alphabetic());
            self.comma = byte == b',' && self.trailing.is_empty();
        }
        match self.trailing.step(byte, at, self.repair || self.array && self.keys.array) {
            TrailingByte::Nothing => {}
            TrailingByte::Departure(kind, at) => {
                self.depart(kind, at, calls);
            }
            TrailingByte::NextCall(_) if self.bare => {
                self.depart(RepairKind::StrayText, at, calls);
            }
            TrailingByte::NextCall(text) => {
                if let Some(text) = text {
                    self.depart(RepairKind::StrayText, text, calls);
                }
                return Step::NextCall;
            }
        }
        Step::Taken
    }

    /// Returns whether the next byte shows if the arguments have ended: with a brace too many, they would be cut.
    fn waits(&self) -> bool {
        self.repair && self.bare && self.open_ended && !self.pause && !self.over && !self.array
    }

    /// A byte right after the arguments, in a format without end marker.
    fn after_arguments(&mut self, byte: u8, at: usize, calls: &mut Calls) -> Step {
        match (byte, self.comma_at) {
            (b'}', None) => {
                self.depart(RepairKind::StrayText, at, calls);
            }
            (b',', None) => self.comma_at = Some(at),
            (_, Some(_)) if byte.is_ascii_whitespace() => {}
            (b'"', Some(_)) => {
                (self.goes_on, self.over) = (true, true);
                return Step::Over;
            }
            (_, comma) => {
                self.over = true;
                return comma.map_or(Step::Over, Step::OverBefore);
            }
        }
        Step::Taken
    }

    fn end_object(&mut self, stops: &Stops, calls: &mut Calls) {
        self.level -= 1;
        self.state = if self.level == 0 { State::After } else { State::AfterValue };
        if self.level == 0 {
            self.use_held(stops, calls);
        }
    }
}

impl PayloadReader for JsonPayload {
    fn read(&mut self, input: &[u8], at: usize, stops: &Stops, markers: bool, calls: &mut Calls) -> (usize, Then) {
        let mut i = 0;
        while i < input.len() {
            if matches!(self.state, State::KeyText | State::Reading(_)) {
                let state = self.state;
                let taken = self.active_mut().feed(&input[i..], at + i, stops, markers);
                i += taken;
                self.at = at + i;
                let reported = self.settle(stops, calls);
                if taken == 0 && !reported && self.state == state {
                    break;
                }
                continue;
            }
            let byte = input[i];
            let in_string = matches!(self.state, State::Lost { string: true, .. });
            if markers && if in_string { stops.in_string(byte) } else { stops.in_structure(byte) } {
                break;
            }
            let after = matches!(self.state, State::After);
            if self.over || after && (markers && self.is_over(at + i) || self.is_closed() || self.is_paused()) {
                break;
            }
            self.at = at + i;
            let lost = matches!(self.state, State::Lost { .. });
            match self.step(byte, at + i, stops, calls) {
                // The byte may be a bracket or a quote.
                Step::Taken if !lost && matches!(self.state, State::Lost { .. }) => {}
                Step::Taken => i += 1,
                Step::Again => {}
                Step::NextCall if self.array && self.keys.array => return (i, Then::NextCall),
                Step::NextCall => return (i, Then::SeveralCalls),
                Step::Over => break,
                Step::OverBefore(at) => return (i, Then::Again(at)),
            }
        }
        (i, Then::More)
    }

    fn flush(&mut self, calls: &mut Calls) {
        if calls.has_name() && !self.undecided {
            let stable = self.arguments.stable();
            calls.delta(&stable[self.sent..]);
            self.sent = stable.len();
        }
    }

    fn context(&self) -> Context {
        let string = match self.state {
            State::KeyText | State::Reading(_) => self.active().in_string(),
            State::Lost { string, .. } => string,
            _ => false,
        };
        if string { Context::String } else { Context::Structure }
    }

    fn is_empty(&self) -> bool {
        self.state == State::Start && !self.junk && !self.trailing.fenced && !self.array
    }

    fn is_closed(&self) -> bool {
        self.open_ended
            && !self.pause
            && (self.over || self.state == State::After && !self.array && !self.trailing.fenced && !self.waits())
    }

    fn end(&mut self, by: Terminator, tail: &[u8], at: usize, stops: &Stops, calls: &mut Calls) -> Ending {
        self.end_string(tail, at - tail.len(), stops, calls);
        if by == Terminator::NextCall && self.context() == Context::String {
            calls.blame(CallProblem::UnclosedString);
        }
        self.at = at;
        let closed = self.state == State::After;
        match self.state {
            State::Reading(slot) => {
                if self.active().is_misquoted() {
                    calls.blame(CallProblem::UnclosedString);
                }
                let cut = self.active_mut().cut(at);
                if cut == Cut::Shortened
                    || !matches!(slot, Slot::Arguments | Slot::ArgumentsText | Slot::MaybeArguments)
                        && cut != Cut::Whole
                {
                    self.shortened = true;
                }
                if matches!(slot, Slot::Name | Slot::MaybeName | Slot::Id) && cut != Cut::Whole {
                    self.value = Transducer::new(self.repair);
                    self.state = State::AfterValue;
                }
                if self.settle(stops, calls) || cut != Cut::Broken {
                    self.note(RepairKind::MissingBrackets, at, calls);
                }
            }
            // A name alone is a call without arguments.
            State::Value(_) if self.bare => {}
            State::KeyText | State::KeyWord | State::Colon | State::Value(_) => {
                self.shortened = true;
                self.note(RepairKind::MissingBrackets, at, calls);
            }
            State::FirstKey | State::Key | State::AfterValue => {
                self.note(RepairKind::MissingBrackets, at, calls);
            }
            State::After if self.array && by != Terminator::NextCall => {
                self.note(RepairKind::MissingBrackets, at, calls);
            }
            _ => {}
        }
        self.use_held(stops, calls);
        if self.goes_on {
            let error = "an argument follows the closing brace".to_owned();
            calls.blame(CallProblem::ArgumentsNotJson { error });
        }
        let lost = self.lost || matches!(self.state, State::Lost { .. } | State::Start | State::Fence);
        self.flush(calls);
        if by == Terminator::End
            && let Some(text) = self.trailing.text_at()
        {
            self.depart(RepairKind::StrayText, text, calls);
        }
        if !self.open_ended && (by == Terminator::Start || by == Terminator::Text && closed) {
            self.note(RepairKind::MissingEndMarker, at, calls);
        }
        let complete = match by {
            Terminator::End => !(self.shortened || self.over && matches!(self.state, State::Lost { .. })),
            Terminator::NextCall => true,
            Terminator::Start | Terminator::Text => closed && self.repair,
        };
        if !complete {
            calls.diagnose(DiagnosticKind::CutOff, at..at);
        }
        let text = if !self.arguments.is_empty() {
            Some((self.arguments.take_text(std::mem::take(&mut calls.spare_text)), self.sent))
        } else if calls.has_name() && !lost {
            Some(("{}".to_owned(), 0))
        } else {
            None
        };
        Ending { complete, broken: lost, arguments: text }
    }

    fn before_end(&mut self, _at: usize, _stops: &Stops, _calls: &mut Calls) -> Option<usize> {
        let comma = self.comma_at.filter(|_| !self.over)?;
        self.over = true;
        Some(comma)
    }

    fn text_at(&self) -> Option<usize> {
        self.trailing.text_at()
    }

    fn forget_text(&mut self, from: usize, calls: &mut Calls) {
        if let Some(at) = self.trailing.forget_text(from) {
            self.depart(RepairKind::StrayText, at, calls);
        }
    }

    fn is_over(&self, at: usize) -> bool {
        self.trailing.is_over(at)
    }

    fn next_call(&mut self) {
        let (array, fenced) = (self.array, self.trailing.fenced);
        self.reset();
        (self.array, self.trailing.fenced) = (array, fenced);
    }

    fn reset(&mut self) {
        self.value.reset();
        self.arguments.reset();
        self.state = State::Start;
        self.level = 0;
        self.sent = 0;
        self.string_at = None;
        (self.wrapped, self.array, self.over, self.junk, self.lost) = (false, false, false, false, false);
        (self.comma, self.goes_on, self.comma_at) = (false, false, None);
        (self.bare, self.pause) = (false, false);
        (self.undecided, self.shortened, self.argued, self.long_key) = (false, false, false, false);
        self.arrow = false;
        (self.held_name, self.held_arguments) = (None, None);
        self.trailing = Trailing::default();
    }
}
