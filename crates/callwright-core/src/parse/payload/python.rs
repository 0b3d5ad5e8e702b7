//! The payload of calls in Python notation: `[f(a=1, b="x"), g()]`.
//!
//! The arguments, parentheses included, pass through a [`Transducer`] of that dialect and become a JSON object.

mod raw;

use super::json::JsonPayload;
use super::{PayloadReader, Terminator, Then};
use crate::format::schema::{self, Step, Types};
use crate::parse::calls::{Calls, Ending};
use crate::parse::event::{DiagnosticKind, RepairKind};
use crate::parse::markers::Context;
use crate::parse::repair::{Cut, Dialect, Stops, Transducer};
use crate::tool::CallProblem;
use raw::RawArguments;
use std::ops::Range;

/// Maximum length of a name.
const NAME: usize = 256;
/// Maximum text between the calls and the end marker. More than that is for the user.
const TEXT: usize = 256;

/// Reads the calls between one pair of markers.
#[derive(Debug)]
pub(crate) struct PythonPayload {
    /// Whether the format writes the calls in a list.
    list: bool,
    /// Whether values are written as they are, and the arguments of which the end is not known yet.
    raw_values: bool,
    raw: RawArguments,
    open_ended: bool,
    repair: bool,
    state: State,
    name: Vec<u8>,
    name_at: usize,
    arguments: Transducer,
    /// Length of the arguments already sent.
    sent: usize,
    /// Position of the list's bracket while it is open.
    array_at: Option<usize>,
    fenced: bool,
    /// Whether anything except white space came.
    started: bool,
    shortened: bool,
    /// The number of open parentheses of `print(…)` around the calls.
    printed: usize,
    /// Whether white space followed what may be the name of another call.
    spaced: bool,
    /// Whether a call begins at the next byte.
    next: bool,
    /// Whether a call came before, and whether a comma followed it.
    several: bool,
    comma: bool,
    /// The calls, if they are JSON objects instead.
    json: Option<Box<JsonPayload>>,
    text_at: Option<usize>,
    /// Whether only white space has followed the last line break after a call.
    line_start: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Start,
    /// In the first line of a code fence.
    Fence,
    /// After a `#`, until the end of the line.
    Comment,
    Name,
    /// After the name, before the parenthesis.
    Paren,
    Arguments,
    /// In arguments that are collected.
    Raw,
    After,
    /// In what may be the name of another call.
    NextName,
    /// Without a name; the rest is skipped.
    Lost,
}

/// What to do with a byte.
enum Did {
    Taken,
    /// Read it again in the new state.
    Look,
    /// Scan all bytes from this offset on again.
    Again(usize),
    NextCall,
}

impl PythonPayload {
    pub(crate) fn new(list: bool, raw_values: bool, open_ended: bool, repair: bool) -> PythonPayload {
        PythonPayload {
            list,
            raw_values,
            raw: RawArguments::default(),
            open_ended,
            repair,
            state: State::Start,
            name: Vec::new(),
            name_at: 0,
            arguments: Transducer::of(Dialect::PythonCall, repair),
            sent: 0,
            array_at: None,
            fenced: false,
            started: false,
            shortened: false,
            printed: 0,
            spaced: false,
            next: false,
            several: false,
            comma: false,
            json: None,
            text_at: None,
            line_start: false,
        }
    }

    /// Returns whether a comma in the list announces another call.
    fn is_listed(&self) -> bool {
        self.comma && self.array_at.is_some()
    }

    fn report(&mut self, kind: RepairKind, place: Range<usize>, calls: &mut Calls) -> bool {
        if calls.is_news(kind) {
            self.flush(calls);
        }
        calls.depart(kind, place)
    }

    /// One byte outside of arguments.
    fn step(&mut self, byte: u8, at: usize, stops: &Stops, calls: &mut Calls) -> Did {
        match self.state {
            State::Start => return self.before(byte, at, stops, calls),
            State::Fence => {
                if byte == b'\n' || byte == b'[' {
                    self.state = State::Start;
                    return if byte == b'[' { Did::Look } else { Did::Taken };
                }
            }
            State::Comment if byte == b'\n' => self.state = State::Start,
            State::Comment => {}
            State::Name | State::Paren => match byte {
                b'(' if self.repair && self.name == b"print" && !calls.is_tool("print") => {
                    self.report(RepairKind::ExtraWrapping, self.name_at..at + 1, calls);
                    self.name.clear();
                    self.printed += 1;
                    self.state = State::Start;
                }
                b'(' => self.begin_arguments(calls, at),
                b' ' | b'\t' | b'\r' | b'\n' => self.state = State::Paren,
                _ if self.state == State::Name && in_name(byte) && self.name.len() < NAME => self.name.push(byte),
                _ => self.state = State::Lost,
            },
            State::After => return self.after(byte, at, calls),
            State::NextName => {
                match byte {
                    b'(' => {
                        self.next = true;
                        self.end_text(calls);
                    }
                    _ if in_name(byte) && at - self.name_at < NAME && !self.spaced => return Did::Taken,
                    // Prose also has parentheses, but not in the list of calls.
                    b' ' | b'\t' | b'\r' | b'\n' if self.is_listed() && at - self.name_at < NAME => {
                        self.spaced = true;
                        return Did::Taken;
                    }
                    _ if self.text_at.is_some() => {}
                    b'=' if self.comma && self.repair => self.argument_after(at, calls),
                    _ if self.line_start && self.repair => self.text_at = Some(self.name_at),
                    _ => {
                        self.report(RepairKind::StrayText, self.name_at..at, calls);
                    }
                }
                self.state = State::After;
                self.line_start = false;
                return if self.next { Did::Again(self.name_at) } else { Did::Look };
            }
            State::Arguments => return Did::Look,
            State::Raw => {
                let Some(after) = self.raw.push(byte, self.array_at.is_some()) else { return Did::Taken };
                let from = at + 1 - after;
                self.read_raw(from, stops, calls);
                return Did::Again(from);
            }
            State::Lost => {}
        }
        if matches!(self.state, State::Arguments | State::Raw) { Did::Look } else { Did::Taken }
    }

    fn before(&mut self, byte: u8, at: usize, stops: &Stops, calls: &mut Calls) -> Did {
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => return Did::Taken,
            b'#' => self.state = State::Comment,
            b'[' if self.array_at.is_none() => {
                if self.list || self.report(RepairKind::ExtraWrapping, at..at + 1, calls) {
                    self.array_at = Some(at);
                } else {
                    self.state = State::Lost;
                }
            }
            b'{' if self.repair => {
                self.json = Some(JsonPayload::instead(self.array_at, self.open_ended, at, stops, calls));
                return Did::Look;
            }
            b'`' => {
                self.state = State::Lost;
                if self.report(RepairKind::CodeFence, at..at + 1, calls) {
                    self.fenced = true;
                    self.state = State::Fence;
                }
            }
            _ if begins_name(byte) => {
                self.next = false;
                self.name_at = at;
                self.name.push(byte);
                self.state = State::Name;
                if self.list && self.array_at.is_none() && !self.several {
                    self.report(RepairKind::MissingBrackets, at..at, calls);
                } else if self.several && self.array_at.is_some() && !self.comma {
                    self.report(RepairKind::MissingComma, at..at + 1, calls);
                }
            }
            _ => {
                self.report(RepairKind::StrayText, at..at + 1, calls);
            }
        }
        self.started = true;
        Did::Taken
    }

    /// The name ended before the parenthesis at offset `at`.
    fn begin_arguments(&mut self, calls: &mut Calls, at: usize) {
        let name = String::from_utf8_lossy(&self.name).into_owned();
        calls.start(name, self.name_at..at);
        if let Some(schema) = calls.schema() {
            let names = schema::names(schema);
            let first = names.first().map(|name| schema::types(schema, [&Step::Member(name.clone())]));
            let takes_object = first.is_some_and(|types| types.is_unknown() || types.has(Types::OBJECT));
            self.arguments.name_parameters(names, takes_object);
        }
        self.arguments.know_tools(calls.tools().filter(|_| calls.repair));
        self.state = if self.raw_values && self.repair { State::Raw } else { State::Arguments };
    }

    /// The collected arguments are whole, and end before the offset `end`.
    fn read_raw(&mut self, end: usize, stops: &Stops, calls: &mut Calls) {
        let schema = calls.schema();
        let text = self.raw.quoted(&schema.map(schema::names).unwrap_or_default());
        let start = end - self.raw.len();
        calls.translate(start..end);
        self.raw = RawArguments::default();
        self.state = State::Arguments;
        let mut taken = 0;
        while taken < text.len() && self.state == State::Arguments {
            taken += self.arguments.feed(&text.as_bytes()[taken..], start, stops, false);
            self.settle(calls);
        }
    }

    fn after(&mut self, byte: u8, at: usize, calls: &mut Calls) -> Did {
        if std::mem::take(&mut self.next) {
            return Did::NextCall;
        }
        match byte {
            b'\n' => self.line_start = true,
            b' ' | b'\t' | b'\r' => {}
            _ if begins_name(byte) && (self.text_at.is_none() || self.line_start) => {
                (self.name_at, self.spaced) = (at, false);
                self.state = State::NextName;
            }
            _ if self.text_at.is_some() => self.line_start = false,
            b',' | b';' => (self.comma, self.line_start) = (true, false),
            b']' if self.array_at.is_some() => (self.array_at, self.line_start) = (None, false),
            b')' if self.printed > 0 => (self.printed, self.line_start) = (self.printed - 1, false),
            b')' if self.arguments.is_wrapped() => self.line_start = false,
            b'`' if self.fenced => self.line_start = false,
            b'"' | b'\'' if self.comma && self.repair => self.argument_after(at, calls),
            _ if self.line_start && self.repair && !b"}])>,;'\"<`".contains(&byte) => {
                (self.text_at, self.line_start) = (Some(at), false);
            }
            _ => {
                self.line_start = false;
                let kind = if byte == b'`' { RepairKind::CodeFence } else { RepairKind::StrayText };
                self.report(kind, at..at + 1, calls);
            }
        }
        Did::Taken
    }

    /// An argument follows the closing parenthesis, which was one too many.
    fn argument_after(&mut self, at: usize, calls: &mut Calls) {
        self.report(RepairKind::StrayText, at..at + 1, calls);
        let error = "an argument follows the closing parenthesis".to_owned();
        calls.blame(CallProblem::ArgumentsNotJson { error });
        (self.comma, self.line_start) = (false, false);
    }

    /// Another call follows, so the text in between was not for the user.
    fn end_text(&mut self, calls: &mut Calls) {
        if let Some(at) = self.text_at.take().filter(|&at| at < self.name_at) {
            self.report(RepairKind::StrayText, at..at + 1, calls);
        }
    }

    /// Handles what the transducer did; true if there was a report.
    fn settle(&mut self, calls: &mut Calls) -> bool {
        let mut reported = false;
        while let Some((kind, place)) = self.arguments.take_report() {
            reported = true;
            self.report(kind, place, calls);
        }
        if self.arguments.is_done() && self.state == State::Arguments {
            self.state = State::After;
            if self.arguments.is_unnamed() {
                calls.blame(CallProblem::PositionalArgument);
            }
            if self.arguments.has_odd_quotes() {
                calls.blame(CallProblem::UnclosedString);
            }
            if let Some(at) = self.arguments.broken_at() {
                if !self.arguments.is_unnamed() {
                    calls.blame(CallProblem::NotLiterals);
                }
                calls.diagnose(DiagnosticKind::BrokenCall, at..at + 1);
            }
        }
        reported
    }
}

impl PayloadReader for PythonPayload {
    fn as_json(&mut self) -> Option<&mut JsonPayload> {
        self.json.as_deref_mut()
    }

    fn read(&mut self, input: &[u8], at: usize, stops: &Stops, markers: bool, calls: &mut Calls) -> (usize, Then) {
        let mut i = 0;
        while i < input.len() && self.json.is_none() {
            if self.state == State::Arguments {
                let taken = self.arguments.feed(&input[i..], at + i, stops, markers);
                let reported = self.settle(calls);
                i += taken;
                if let Some(call) = self.arguments.called().filter(|_| self.state == State::After) {
                    return (i, Then::Again(call));
                }
                if taken == 0 && !reported && self.state == State::Arguments {
                    break;
                }
                continue;
            }
            if markers && (stops.in_structure(input[i]) || self.is_over(at + i)) || self.is_closed() {
                break;
            }
            match self.step(input[i], at + i, stops, calls) {
                Did::Taken => i += 1,
                Did::Look => {}
                Did::Again(from) => return (i, Then::Again(from)),
                Did::NextCall => return (i, Then::NextCall),
            }
        }
        (i, Then::More)
    }

    fn flush(&mut self, calls: &mut Calls) {
        if let Some(json) = &mut self.json {
            json.flush(calls);
        } else if calls.has_name() {
            let stable = self.arguments.stable();
            calls.delta(&stable[self.sent..]);
            self.sent = stable.len();
        }
    }

    fn context(&self) -> Context {
        match &self.json {
            Some(json) => json.context(),
            None if self.state == State::Arguments && self.arguments.in_string() => Context::String,
            None => Context::Structure,
        }
    }

    fn is_empty(&self) -> bool {
        !self.started && self.json.is_none()
    }

    fn is_closed(&self) -> bool {
        match &self.json {
            Some(json) => json.is_closed(),
            None => self.open_ended && self.state == State::After && self.array_at.is_none() && self.printed == 0,
        }
    }

    fn end(&mut self, by: Terminator, tail: &[u8], at: usize, stops: &Stops, calls: &mut Calls) -> Ending {
        if let Some(json) = &mut self.json {
            return json.end(by, tail, at, stops, calls);
        }
        if matches!(self.state, State::Arguments | State::Raw) {
            let tail = tail.trim_ascii_end();
            self.feed(tail, at - tail.len(), stops, false, calls);
        }
        if self.state == State::Raw {
            self.raw.end();
            self.read_raw(at, stops, calls);
        }
        let mut closed = matches!(self.state, State::After | State::NextName);
        match self.state {
            State::Arguments => {
                // Parentheses inside an unclosed string look like part of its text.
                let string = self.arguments.in_string();
                let cut = self.arguments.cut(at);
                self.shortened |= string || cut == Cut::Shortened;
                closed = cut == Cut::Whole;
                if !self.settle(calls) && cut != Cut::Whole {
                    self.report(RepairKind::MissingBrackets, at..at, calls);
                }
            }
            State::NextName if by != Terminator::End && self.line_start && self.repair => {
                self.text_at = self.text_at.or(Some(self.name_at));
            }
            State::NextName => {
                self.report(RepairKind::StrayText, self.name_at..at, calls);
            }
            State::After if (self.array_at.is_some() || self.printed > 0) && by != Terminator::NextCall => {
                self.report(RepairKind::MissingBrackets, at..at, calls);
            }
            _ => {}
        }
        let lost = matches!(
            self.state,
            State::Lost | State::Start | State::Fence | State::Comment | State::Name | State::Paren
        );
        if lost {
            calls.blame(CallProblem::NoParentheses);
        }
        self.flush(calls);
        if by == Terminator::End
            && let Some(at) = self.text_at.take()
        {
            self.report(RepairKind::StrayText, at..at + 1, calls);
        }
        if by == Terminator::Start || by == Terminator::Text && closed && !self.open_ended {
            self.report(RepairKind::MissingEndMarker, at..at, calls);
        }
        let complete = match by {
            Terminator::End => !self.shortened && !matches!(self.state, State::Name | State::Paren),
            Terminator::NextCall => true,
            Terminator::Start | Terminator::Text => closed && self.repair,
        };
        if !complete {
            calls.diagnose(DiagnosticKind::CutOff, at..at);
        }
        let arguments = (calls.has_name() && !lost)
            .then(|| (self.arguments.take_text(std::mem::take(&mut calls.spare_text)), self.sent));
        Ending { complete, broken: lost, arguments }
    }

    fn text_at(&self) -> Option<usize> {
        self.json.as_ref().map_or(self.text_at, |json| json.text_at())
    }

    fn forget_text(&mut self, from: usize, calls: &mut Calls) {
        if let Some(json) = &mut self.json {
            json.forget_text(from, calls);
        } else if let Some(at) = self.text_at.take_if(|at| *at >= from) {
            self.report(RepairKind::StrayText, at..at + 1, calls);
        }
    }

    fn is_over(&self, at: usize) -> bool {
        match &self.json {
            Some(json) => json.is_over(at),
            None => self.text_at.is_some_and(|text| at >= text + TEXT),
        }
    }

    fn next_call(&mut self) {
        if let Some(json) = &mut self.json {
            json.next_call();
            return;
        }
        let (array_at, fenced, comma, printed) = (self.array_at, self.fenced, self.comma, self.printed);
        self.reset();
        (self.array_at, self.fenced, self.comma, self.printed) = (array_at, fenced, comma, printed);
        (self.started, self.several) = (true, true);
    }

    fn reset(&mut self) {
        self.state = State::Start;
        self.name.clear();
        self.arguments.reset();
        self.raw = RawArguments::default();
        self.sent = 0;
        (self.array_at, self.printed) = (None, 0);
        (self.fenced, self.started, self.shortened) = (false, false, false);
        (self.next, self.several, self.comma, self.line_start) = (false, false, false, false);
        self.json = None;
        self.text_at = None;
    }
}

fn begins_name(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_' || byte >= 0x80
}

fn in_name(byte: u8) -> bool {
    begins_name(byte) || byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b':' | b'/' | b'$')
}
