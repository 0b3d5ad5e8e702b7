//! The payload with the tool's name before the arguments: a head, then JSON, then the format's text after it.

use super::json::JsonPayload;
use super::{PayloadReader, Terminator, Then};
use crate::format::NamedCall;
use crate::parse::calls::{Calls, Ending};
use crate::parse::event::RepairKind;
use crate::parse::head::{HeadPlan, HeadReader, HeadStep};
use crate::parse::markers::Context;
use crate::parse::repair::{Dialect, Stops};
use crate::tool::CallProblem;
use std::sync::Arc;

/// State shared by the calls of a format.
#[derive(Debug)]
pub(crate) struct NamedPlan {
    head: Arc<HeadPlan>,
    tail: Vec<u8>,
    dialect: Dialect,
    open_ended: bool,
}

impl NamedPlan {
    pub(crate) fn new(call: &NamedCall, open_ended: bool) -> NamedPlan {
        let tail = call.tail.trim().as_bytes().to_vec();
        let dialect = if call.quote.is_some() || call.bare_keys {
            let quote = call.quote.as_deref().map(|quote| Arc::from(quote.as_bytes()));
            Dialect::Own { quote, bare_keys: call.bare_keys }
        } else {
            Dialect::Json
        };
        NamedPlan { head: Arc::new(HeadPlan::new(&call.head, &["{", "("])), tail, dialect, open_ended }
    }

    /// Returns whether the arguments have no quotes of their own.
    pub(super) fn quotes_json(&self) -> bool {
        !matches!(self.dialect, Dialect::Own { quote: Some(_), .. })
    }
}

/// Reads one such call.
#[derive(Debug)]
pub(crate) struct NamedPayload {
    plan: Arc<NamedPlan>,
    repair: bool,
    state: State,
    head: HeadReader,
    arguments: JsonPayload,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Head,
    /// Between head and arguments.
    Before,
    /// In the first line of a code fence.
    Fence,
    /// In the arguments, or in a call that is one JSON object instead of head and arguments.
    Arguments,
    /// After the arguments, at this position of the tail.
    Tail(usize),
    /// After the tail.
    AfterTail,
    /// Without a head; the rest is skipped.
    Lost,
    /// The same, after the end of the line, in a format without end marker.
    Over,
}

impl NamedPayload {
    pub(crate) fn new(plan: &Arc<NamedPlan>, repair: bool) -> NamedPayload {
        NamedPayload {
            plan: Arc::clone(plan),
            repair,
            state: State::Head,
            head: HeadReader::new(&plan.head),
            arguments: JsonPayload::arguments_only(&plan.dialect, plan.open_ended, repair),
        }
    }

    /// One byte outside of the arguments; false if it has to be read again.
    fn step(&mut self, byte: u8, at: usize, calls: &mut Calls) -> bool {
        match self.state {
            State::Head => {
                if self.head.is_empty() && self.repair && matches!(byte, b'{' | b'[') {
                    calls.depart(RepairKind::ExtraWrapping, at..at + 1);
                    self.arguments.expect_call();
                    self.state = State::Arguments;
                    return false;
                }
                let step = self.head.push(byte, at, calls.index(), &|name| calls.is_known_tool(name));
                return !self.head_ends(step, calls);
            }
            State::Before => match byte {
                b' ' | b'\t' | b'\r' | b'\n' => {}
                b'`' => {
                    self.state = State::Lost;
                    if calls.depart(RepairKind::CodeFence, at..at + 1) {
                        self.state = State::Fence;
                    }
                }
                _ => {
                    self.arguments.expect_arguments(!self.plan.tail.is_empty());
                    self.state = State::Arguments;
                    return false;
                }
            },
            State::Fence => match byte {
                b'{' | b'[' | b'\n' => {
                    self.arguments.in_fence();
                    self.state = State::Before;
                    return byte == b'\n';
                }
                _ => {}
            },
            State::Tail(count) => match byte {
                b' ' | b'\t' | b'\r' | b'\n' if count == 0 => {}
                _ if self.plan.tail.get(count) == Some(&byte) => {
                    self.state = State::Tail(count + 1);
                    if count + 1 == self.plan.tail.len() {
                        self.leave_tail();
                    }
                }
                _ => {
                    self.leave_tail();
                    return false;
                }
            },
            State::Lost if byte == b'\n' && self.plan.open_ended => {
                self.state = State::Over;
                return false;
            }
            State::Lost => {}
            State::Arguments | State::AfterTail | State::Over => return false,
        }
        true
    }

    fn leave_tail(&mut self) {
        self.arguments.go_on();
        self.state = State::AfterTail;
    }

    /// Handles the end of the head; true if its last byte is not part of it.
    fn head_ends(&mut self, step: HeadStep, calls: &mut Calls) -> bool {
        let read = match step {
            HeadStep::More => return false,
            HeadStep::Done(read) => read,
            HeadStep::Lost => {
                self.state = State::Lost;
                return false;
            }
        };
        // Only a tool's name contains white space: this is prose.
        let prose = read.name.contains(char::is_whitespace) && !calls.is_known_tool(&read.name);
        if prose || !read.exact && !calls.depart(RepairKind::NearMissMarker, read.range.clone()) {
            self.state = State::Lost;
            return false;
        }
        if let Some(id) = read.id {
            calls.give_id(id);
        }
        calls.start(read.name, read.range);
        self.state = State::Before;
        read.stopped.is_some()
    }
}

impl PayloadReader for NamedPayload {
    fn read(&mut self, input: &[u8], at: usize, stops: &Stops, markers: bool, calls: &mut Calls) -> (usize, Then) {
        let mut i = 0;
        while i < input.len() {
            if matches!(self.state, State::Arguments | State::AfterTail) {
                let (taken, then) = self.arguments.feed(&input[i..], at + i, stops, markers, calls);
                i += taken;
                if self.state == State::Arguments && self.arguments.is_paused() {
                    self.state = State::Tail(0);
                    continue;
                }
                return (i, then);
            }
            if self.state == State::Head {
                i += self.head.go_on(&input[i..], |byte| markers && stops.in_structure(byte));
            }
            let Some(&byte) = input.get(i) else { break };
            if markers && stops.in_structure(byte) || self.is_closed() {
                break;
            }
            if self.step(byte, at + i, calls) {
                i += 1;
            }
        }
        (i, Then::More)
    }

    fn flush(&mut self, calls: &mut Calls) {
        self.arguments.flush(calls);
    }

    fn context(&self) -> Context {
        if self.state == State::Arguments { self.arguments.context() } else { Context::Structure }
    }

    fn is_empty(&self) -> bool {
        self.state == State::Head && self.head.is_empty()
    }

    fn is_closed(&self) -> bool {
        match self.state {
            State::Arguments | State::AfterTail => self.arguments.is_closed(),
            State::Over => true,
            _ => false,
        }
    }

    fn end(&mut self, by: Terminator, tail: &[u8], at: usize, stops: &Stops, calls: &mut Calls) -> Ending {
        let mut lost = matches!(self.state, State::Lost | State::Over);
        if self.state == State::Head && !self.head.is_empty() {
            let step = self.head.end(at, calls.index(), &|name| calls.is_known_tool(name));
            self.head_ends(step, calls);
            lost = self.state == State::Lost;
        }
        if matches!(self.state, State::Before | State::Fence) {
            self.arguments.expect_arguments(false);
        }
        let mut ending = self.arguments.end(by, tail, at, stops, calls);
        if lost {
            calls.blame(CallProblem::NoToolName);
            (ending.broken, ending.complete) = (true, ending.complete && self.state != State::Over);
            ending.arguments = None;
        }
        ending
    }

    fn before_end(&mut self, at: usize, stops: &Stops, calls: &mut Calls) -> Option<usize> {
        self.arguments.before_end(at, stops, calls)
    }

    fn text_at(&self) -> Option<usize> {
        self.arguments.text_at()
    }

    fn forget_text(&mut self, from: usize, calls: &mut Calls) {
        self.arguments.forget_text(from, calls);
    }

    fn is_over(&self, at: usize) -> bool {
        self.arguments.is_over(at)
    }

    fn next_call(&mut self) {
        self.arguments.next_call();
    }

    fn reset(&mut self) {
        self.state = State::Head;
        self.head.reset();
        self.arguments.reset();
    }
}
