//! The payload that is a JSON object, `{"name": …, "arguments": {…}}`: reads the object around a call's parts and
//! hands the parts to a [`Transducer`] each, the arguments to one whose output is streamed.
//!
//! Models put the keys in either order, call them otherwise, wrap the object in another one, put it into an array or
//! a code fence, and send the arguments as a string. All of that is read in the one pass.

use super::JsonCall;
use super::behind::{Behind, Trailer};
use super::calls::{Calls, Ending};
use super::event::{DiagnosticKind, RepairKind};
use super::markers::Context;
use super::reader::{PayloadReader, Terminator, Then};
use super::repair::{Cut, Dialect, Stops, Transducer, closer};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

const NAME_ALIASES: [&str; 4] = ["name", "tool_name", "function_name", "tool"];
const ARGUMENT_ALIASES: [&str; 5] = ["arguments", "parameters", "params", "args", "input"];

/// How many bytes of arguments under another key wait for the proper one.
const WAITING: usize = 1024;

/// Reads the calls between one pair of markers.
#[derive(Debug)]
pub(crate) struct JsonPayload {
    keys: Arc<JsonCall>,
    /// Whether the format has no end marker: the call ends with the payload.
    open_ended: bool,
    repair: bool,
    state: State,
    /// Offset behind the last byte that was looked at.
    at: usize,
    /// Objects open around name and arguments: 1, or 2 in a wrapper.
    level: usize,
    wrapped: bool,
    array: bool,
    /// Whether something came that is no part of the payload, in a format without end marker.
    over: bool,
    /// Whether only the arguments are read here, not an object around them.
    bare: bool,
    /// Whether to stop behind the payload, for what the format writes there.
    pause: bool,
    junk: bool,
    key: String,
    key_at: usize,
    value: Transducer,
    arguments: Transducer,
    /// How much of the arguments was sent.
    sent: usize,
    /// Nothing of the arguments can be sent yet: they may turn out to be `null`, that is, none.
    undecided: bool,
    /// Where the value under the key began.
    value_at: usize,
    /// Where the string began that holds the arguments.
    string_at: Option<usize>,
    shortened: bool,
    /// Whether the proper key of the arguments was there.
    argued: bool,
    /// Where the key of the wrapper stood.
    wrapper_at: usize,
    /// What stands for the name, and for the arguments, unless their proper keys come.
    held_name: Option<Held>,
    held_arguments: Option<Held>,
    behind: Behind,
}

/// Where a value stands; the proper place is the least, and a lesser one is preferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    alias: bool,
    wrapped: bool,
}

/// A value under another key than the proper one, which may still come.
#[derive(Debug)]
struct Held {
    place: Place,
    key: String,
    key_at: usize,
    /// Where the value begins, and where it ends.
    at: usize,
    end: usize,
    /// The name, or the JSON of the arguments.
    text: String,
    broken: Option<usize>,
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
    /// Beyond repair: nothing is read any more.
    Lost {
        string: bool,
        escape: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slot {
    Name,
    Id,
    Arguments,
    /// The arguments, in a string.
    ArgumentsText,
    /// What may be the name, or the arguments, if their proper key does not come.
    MaybeName,
    MaybeArguments,
    /// An object around name and arguments, or the name itself under that key.
    Wrapper,
    Ignored,
    /// Left out without a word.
    Skipped,
}

/// What became of a byte.
enum Step {
    Taken,
    /// To be looked at again in the new state.
    Again,
    /// It begins another call.
    NextCall,
    /// It is no part of the payload, which has ended.
    Over,
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
            bare: false,
            pause: false,
            junk: false,
            key: String::new(),
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
            behind: Behind::default(),
        }
    }

    /// A machine for arguments without an object around them.
    pub(crate) fn arguments_only(dialect: &Dialect, open_ended: bool, repair: bool) -> JsonPayload {
        let arguments = Transducer::of(dialect.clone(), repair);
        JsonPayload { arguments, ..JsonPayload::new(&Arc::default(), open_ended, repair) }
    }

    /// The arguments begin here; with `pause` the machine stops behind them.
    pub(crate) fn expect_arguments(&mut self, pause: bool) {
        (self.bare, self.pause) = (true, pause);
        self.state = State::Value(Slot::Arguments);
    }

    /// A whole call begins here: the model writes JSON around name and arguments.
    pub(crate) fn expect_call(&mut self) {
        self.state = State::Start;
    }

    /// The payload stands in a code fence.
    pub(crate) fn in_fence(&mut self) {
        self.behind.fenced = true;
    }

    /// Whether the machine stopped behind the payload.
    pub(crate) fn is_paused(&self) -> bool {
        self.pause && self.state == State::After
    }

    /// What the format writes behind the payload is over.
    pub(crate) fn go_on(&mut self) {
        self.pause = false;
    }

    fn active(&self) -> &Transducer {
        if self.state == State::Reading(Slot::Arguments) { &self.arguments } else { &self.value }
    }

    fn active_mut(&mut self) -> &mut Transducer {
        if self.state == State::Reading(Slot::Arguments) { &mut self.arguments } else { &mut self.value }
    }

    /// Follows up on what the active transducer did: reports, a value that ended. True if there was a report.
    fn settle(&mut self, stops: &Stops, calls: &mut Calls) -> bool {
        if self.state == State::Reading(Slot::ArgumentsText) {
            self.pass_on(stops, calls);
        }
        let mut reported = false;
        while let Some((kind, place)) = self.active_mut().take_report() {
            reported = true;
            self.report(kind, place, calls);
        }
        if self.state == State::Reading(Slot::MaybeArguments) {
            self.commit(calls);
        }
        if self.active().is_done() {
            self.end_value(calls);
        } else if matches!(self.state, State::Reading(Slot::Ignored | Slot::Skipped)) {
            self.value.take_stable();
        }
        reported
    }

    /// Hands the arguments on that stand in a string, their escapes undone.
    fn pass_on(&mut self, stops: &Stops, calls: &mut Calls) {
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

    /// Feeds arguments that stood in a string at offset `at`.
    fn feed_arguments(&mut self, mut rest: &[u8], at: usize, stops: &Stops, calls: &mut Calls) {
        while !rest.is_empty() && !self.arguments.is_done() {
            let taken = self.arguments.feed(rest, at, stops, false);
            rest = &rest[taken..];
            self.report_arguments(at, calls);
        }
        if self.arguments.is_done() && !rest.trim_ascii().is_empty() {
            self.report(RepairKind::StrayText, at..at + 1, calls);
        }
    }

    fn report_arguments(&mut self, at: usize, calls: &mut Calls) {
        while let Some((kind, _)) = self.arguments.take_report() {
            self.report(kind, at..at + 1, calls);
        }
    }

    /// The value being read, or a key, has ended.
    fn end_value(&mut self, calls: &mut Calls) {
        let State::Reading(slot) = self.state else {
            match self.value.string() {
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
            Slot::MaybeArguments if self.commit(calls) => return self.end_value(calls),
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
            Slot::Arguments | Slot::Wrapper | Slot::Skipped => {}
        }
        self.value.reset();
    }

    fn end_arguments_text(&mut self, calls: &mut Calls) {
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

    fn hold(&self, text: String) -> Held {
        let (key, key_at, at) = (self.key.clone(), self.key_at, self.value_at);
        Held { place: self.place(), key, key_at, at, end: self.at, text, broken: self.value.broken_at() }
    }

    /// The place of the value whose key was just read.
    fn place(&self) -> Place {
        Place { alias: self.key != self.keys.name && self.key != self.keys.arguments, wrapped: self.level > 1 }
    }

    /// The object has ended, or the text inside it: what stood under other keys counts where the proper ones are
    /// missing.
    fn use_held(&mut self, stops: &Stops, calls: &mut Calls) {
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
    fn admit(&mut self, held: &Held, calls: &mut Calls) -> bool {
        !matches!(self.state, State::Lost { .. })
            && (!held.place.wrapped || self.depart(RepairKind::ExtraWrapping, self.wrapper_at, calls))
            && (!held.place.alias || self.depart(RepairKind::KeyAlias, held.key_at, calls))
    }

    fn take_arguments(&mut self, held: Held, stops: &Stops, calls: &mut Calls) {
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
    /// stream from here on. False if it is too early for that.
    fn commit(&mut self, calls: &mut Calls) -> bool {
        let fits = self.value.stable().starts_with(['{', '[']) && self.value.stable().len() > WAITING;
        if !fits || !calls.has_name() || !self.arguments.is_empty() {
            return false;
        }
        let held = self.hold(String::new());
        if !self.admit(&held, calls) {
            return false;
        }
        std::mem::swap(&mut self.value, &mut self.arguments);
        self.state = State::Reading(Slot::Arguments);
        self.argued = true;
        calls.begin_arguments(held.at);
        true
    }

    fn ignore(&self, calls: &mut Calls) {
        calls.ignored_key(&self.key, self.key_at);
    }

    fn lose(&mut self, at: usize, calls: &mut Calls) {
        calls.diagnose(DiagnosticKind::BrokenJson, at..at + 1);
        self.state = State::Lost { string: false, escape: false };
    }

    /// Reports a departure, after what came before it.
    fn report(&mut self, kind: RepairKind, place: Range<usize>, calls: &mut Calls) -> bool {
        if calls.is_news(kind) {
            self.flush(calls);
        }
        calls.depart(kind, place)
    }

    /// A departure that shows where the payload ends.
    fn note(&mut self, kind: RepairKind, at: usize, calls: &mut Calls) {
        self.report(kind, at..at, calls);
    }

    /// A departure at one byte; without repairs the payload is lost with it.
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
            State::FirstKey | State::Key => match byte {
                _ if blank => {}
                b'"' | b'\'' => {
                    self.key_at = at;
                    self.state = State::KeyText;
                    return Step::Again;
                }
                b'}' if self.state == State::Key && !self.depart(RepairKind::TrailingComma, at, calls) => {}
                b'}' => self.end_object(stops, calls),
                b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'$' => {
                    self.key_at = at;
                    if self.depart(RepairKind::UnquotedKey, at, calls) {
                        self.key.clear();
                        self.state = State::KeyWord;
                        return Step::Again;
                    }
                }
                _ => self.lose(at, calls),
            },
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
                b':' => self.state = State::Value(self.slot(calls)),
                _ => self.lose(at, calls),
            },
            State::Value(_) if blank => {}
            State::Value(slot) => return self.begin_value(slot, byte, at, calls),
            State::AfterValue => match byte {
                _ if blank => {}
                b',' => self.state = State::Key,
                b'}' => self.end_object(stops, calls),
                b'"' | b'\'' => {
                    if self.depart(RepairKind::MissingComma, at, calls) {
                        self.state = State::Key;
                        return Step::Again;
                    }
                }
                _ if self.open_ended && self.repair => self.over = true,
                _ => {
                    self.depart(RepairKind::StrayText, at, calls);
                }
            },
            State::After => return self.after(byte, at, calls),
            // No line break in a string, as in the transducer.
            State::Lost { .. } if self.open_ended && byte == b'\n' => self.over = true,
            State::Lost { string, escape } => {
                self.state = State::Lost {
                    string: if string { byte != b'\n' && (escape || byte != b'"') } else { byte == b'"' },
                    escape: string && !escape && byte == b'\\',
                };
            }
            // The transducers have these; nothing of them comes here.
            State::KeyText | State::Reading(_) => {}
        }
        if self.over { Step::Over } else { Step::Taken }
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
                    self.behind.fenced = true;
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
        if self.array && self.behind.text_at().is_none() && matches!(byte, b',' | b']') {
            self.behind.pass(byte);
            self.array = byte == b',';
            return Step::Taken;
        }
        if self.open_ended {
            let fence = self.behind.fenced && byte == b'`';
            let goes_on = self.array && byte == b'{' || fence || byte.is_ascii_whitespace();
            if !goes_on {
                self.over = true;
                return Step::Over;
            }
        }
        match self.behind.step(byte, at, self.repair || self.array && self.keys.array) {
            Trailer::Nothing => {}
            Trailer::Departure(kind, at) => {
                self.depart(kind, at, calls);
            }
            Trailer::NextCall(_) if self.bare => {
                self.depart(RepairKind::StrayText, at, calls);
            }
            Trailer::NextCall(text) => {
                if let Some(text) = text {
                    self.depart(RepairKind::StrayText, text, calls);
                }
                return Step::NextCall;
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

    /// What the value of the key just read is for.
    fn slot(&self, calls: &Calls) -> Slot {
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
        } else if key == self.keys.arguments || place.alias && ARGUMENT_ALIASES.contains(&key) {
            match proper {
                true if !argued => Slot::Arguments,
                false if !self.argued && preferred(&self.held_arguments) => Slot::MaybeArguments,
                _ => Slot::Ignored,
            }
        } else {
            match key {
                "function" | "tool_call" if !self.wrapped && !named && !argued => Slot::Wrapper,
                _ if self.keys.id.as_deref().unwrap_or("id") == key => Slot::Id,
                "type" => Slot::Skipped,
                _ => Slot::Ignored,
            }
        }
    }

    /// The first byte of a value decides how it is read.
    fn begin_value(&mut self, slot: Slot, byte: u8, at: usize, calls: &mut Calls) -> Step {
        let string = matches!(byte, b'"' | b'\'');
        let slot = match slot {
            Slot::Wrapper if byte == b'{' => {
                (self.wrapped, self.wrapper_at) = (true, self.key_at);
                self.level += 1;
                self.state = State::FirstKey;
                return Step::Taken;
            }
            Slot::Wrapper if string => Slot::MaybeName,
            Slot::Name | Slot::MaybeName if string => slot,
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
                self.depart(RepairKind::ArgumentsAsString, at, calls);
                self.string_at = Some(at);
                self.undecided = true;
                self.state = State::Reading(Slot::ArgumentsText);
            }
        }
        Step::Again
    }

    /// Decides what the closing brackets are that stand between an open string and a marker.
    ///
    /// If they close just what is open, from the arguments outwards, only the quote is missing; otherwise they are
    /// part of the string.
    fn end_string(&mut self, tail: &[u8], at: usize, stops: &Stops, calls: &mut Calls) {
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
                self.active_mut().close_string();
                self.settle(stops, calls);
            }
        }
        self.feed(tail.trim_ascii_end(), at, stops, false, calls);
    }
}

impl PayloadReader for JsonPayload {
    fn feed(&mut self, input: &[u8], at: usize, stops: &Stops, markers: bool, calls: &mut Calls) -> (usize, Then) {
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
            let begins =
                if self.context() == Context::String { stops.in_string(byte) } else { stops.in_structure(byte) };
            if markers && begins {
                break;
            }
            if markers && self.is_over(at + i) || self.is_closed() || self.is_paused() {
                break;
            }
            self.at = at + i;
            match self.step(byte, at + i, stops, calls) {
                Step::Taken => i += 1,
                Step::Again => {}
                Step::NextCall if self.array && self.keys.array => return (i, Then::NextCall),
                Step::NextCall => return (i, Then::SeveralCalls),
                Step::Over => break,
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
        self.state == State::Start && !self.junk && !self.behind.fenced && !self.array
    }

    fn is_closed(&self) -> bool {
        self.open_ended
            && !self.pause
            && (self.over || self.state == State::After && !self.array && !self.behind.fenced)
    }

    fn end(&mut self, by: Terminator, tail: &[u8], at: usize, stops: &Stops, calls: &mut Calls) -> Ending {
        self.end_string(tail, at - tail.len(), stops, calls);
        self.at = at;
        let closed = self.state == State::After;
        match self.state {
            State::Reading(slot) => {
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
        let lost = matches!(self.state, State::Lost { .. } | State::Start | State::Fence);
        self.flush(calls);
        if by == Terminator::End
            && let Some(text) = self.behind.text_at()
        {
            self.depart(RepairKind::StrayText, text, calls);
        }
        if !self.open_ended && (by == Terminator::Start || by == Terminator::Text && closed) {
            self.note(RepairKind::MissingEndMarker, at, calls);
        }
        let complete = match by {
            Terminator::End => !self.shortened && !(self.over && matches!(self.state, State::Lost { .. })),
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

    fn text_at(&self) -> Option<usize> {
        self.behind.text_at()
    }

    fn forget_text(&mut self, from: usize, calls: &mut Calls) {
        if let Some(at) = self.behind.forget_text(from) {
            self.depart(RepairKind::StrayText, at, calls);
        }
    }

    fn is_over(&self, at: usize) -> bool {
        self.behind.is_over(at)
    }

    fn next_call(&mut self) {
        let (array, fenced) = (self.array, self.behind.fenced);
        self.reset();
        (self.array, self.behind.fenced) = (array, fenced);
    }

    fn reset(&mut self) {
        self.value.reset();
        self.arguments.reset();
        self.state = State::Start;
        self.level = 0;
        self.sent = 0;
        self.string_at = None;
        (self.wrapped, self.array, self.over, self.junk) = (false, false, false, false);
        (self.bare, self.pause) = (false, false);
        (self.undecided, self.shortened, self.argued) = (false, false, false);
        (self.held_name, self.held_arguments) = (None, None);
        self.behind = Behind::default();
    }
}

/// A value that was held back is not needed.
fn drop_held(held: Option<Held>, calls: &mut Calls) {
    if let Some(held) = held {
        calls.ignored_key(&held.key, held.key_at);
    }
}
