//! The streaming parser: bytes of a model's text in, events out.
//!
//! Parsing the whole text again at every token makes a long answer quadratic, and the differences between two such
//! parses are not always additions. This parser looks at each byte as it comes: text goes through at once, held back
//! only where it may become a marker; a call's payload streams through a machine of its own. It never fails: what
//! departs from the format ends as a call with its flags, repairs and diagnostics, or as text.

use super::calls::Calls;
use super::event::{Diagnostic, DiagnosticKind, Event, Repair, RepairKind};
use super::markers::{Context, Found, START, Side, State};
use super::reader::{PayloadReader, Terminator, Then};
use super::text::Text;
use super::{Format, Machinery};
use crate::error::Result;
use crate::message::{Message, Role, ToolCall};
use crate::tool::Tools;
use std::sync::Arc;

pub use super::calls::ParsedCall;

/// How many bytes are taken at a time, so that events do not pile up.
const BLOCK: usize = 8 << 10;

/// How to parse.
#[derive(Debug, Clone)]
pub struct ParserOptions {
    /// Whether departures from the format are repaired; otherwise they are only reported.
    pub repair: bool,
    /// The number of the first call: ids are minted from it, `call00001` for 1.
    pub first_call: usize,
    /// Ids that the conversation has already given to calls.
    pub taken_ids: Vec<String>,
}

impl Default for ParserOptions {
    fn default() -> ParserOptions {
        ParserOptions { repair: true, first_call: 1, taken_ids: Vec::new() }
    }
}

/// What a model's text came to.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Parsed {
    /// The text for the user.
    pub content: String,
    /// The reasoning, if the format knows any.
    pub reasoning: Option<String>,
    /// The calls, in the order in which they were written.
    pub calls: Vec<ParsedCall>,
    /// Departures that were understood.
    pub repairs: Vec<Repair>,
    /// What else is worth knowing.
    pub diagnostics: Vec<Diagnostic>,
}

impl Parsed {
    /// The assistant message that this text is.
    pub fn message(&self) -> Message {
        let call = |call: &ParsedCall| ToolCall {
            id: Some(call.id.clone()),
            name: call.name.clone(),
            arguments: call.arguments.clone(),
        };
        Message {
            role: Role::Assistant,
            content: self.content.clone(),
            reasoning: self.reasoning.clone(),
            tool_calls: self.calls.iter().map(call).collect(),
            tool_call_id: None,
            name: None,
        }
    }
}

/// Parses one answer of a model while it is being written.
///
/// The events are the same, with adjacent deltas joined, however the text is cut into pieces.
///
/// - Up to 32 bytes of white space right before a start marker and right after an end marker belong to the markup.
///   Where text goes on after a call, the white space before the call is kept, so that nothing runs together.
/// - A marker inside a JSON string is part of the string, unless a raw line break stands right before it or right
///   after it, or the text ends there: valid JSON has none of these, so a quote is missing.
/// - A near miss of a start marker counts only if `{`, `[{` or a code fence follows; otherwise it is text.
/// - What follows a call's JSON up to the end marker is no text for the user: it is kept in [`ParsedCall::raw`]. Where
///   no end marker comes for 256 bytes, what begins on a line of its own is text, and the call has ended before it.
/// - The format's own keys win over others by which models call them, whatever their order: a value under another
///   key is held back until the object has ended.
/// - With several calls between one pair of markers, each call's `raw` ends where the next one begins.
///
/// ```
/// use callwright::format::{Format, event::Event, parser::{Parser, ParserOptions}};
///
/// let format = Format::builtin("delimited").unwrap();
/// let mut parser = Parser::new(format, None, ParserOptions::default())?;
/// let mut names = Vec::new();
/// for piece in ["Let me see.\n### TOOL_", "CALL_START ###\n{\"name\": \"clock\"", "}\n### TOOL_CALL_END ###"] {
///     parser.push(piece.as_bytes(), &mut |event| {
///         if let Event::CallStart { name, .. } = event {
///             names.push(name);
///         }
///     });
/// }
/// let parsed = parser.finish(&mut |_| ());
/// assert_eq!(names, ["clock"]);
/// assert_eq!(parsed.content, "Let me see.");
/// assert!(parsed.calls[0].valid);
/// # Ok::<(), callwright::Error>(())
/// ```
#[derive(Debug)]
pub struct Parser {
    machinery: Arc<Machinery>,
    text: Text,
    calls: Calls,
    payload: Option<Box<dyn PayloadReader>>,
    /// The machine for the next call.
    spare: Option<Box<dyn PayloadReader>>,
    scan: State,
    /// Bytes that may be part of a marker, the last `held.len()` before `at`.
    held: Vec<u8>,
    /// A match that one with precedence may still replace: its pattern, and its end in `held`.
    candidate: Option<(u8, usize)>,
    /// Offset of the next byte.
    at: usize,
}

impl Parser {
    /// A parser of `format`; with `tools` it also says whether a call fits its tool.
    ///
    /// Fails if the format's markers cannot be searched for, which [`Format::parse_declaration`] would have found.
    pub fn new(format: &Format, tools: Option<Arc<Tools>>, options: ParserOptions) -> Result<Parser> {
        let machinery = format.machinery()?;
        let spare = Some(machinery.plan.reader(options.repair)?);
        Ok(Parser {
            machinery,
            text: Text::default(),
            calls: Calls::new(tools, options.repair, options.first_call, options.taken_ids.into_iter().collect()),
            payload: None,
            spare,
            scan: START,
            held: Vec::new(),
            candidate: None,
            at: 0,
        })
    }

    /// Takes the next bytes of the model's text and tells `emit` what they mean.
    pub fn push(&mut self, bytes: &[u8], emit: &mut impl FnMut(Event)) {
        for block in bytes.chunks(BLOCK) {
            self.consume(block);
            if let Some(payload) = &mut self.payload {
                payload.flush(&mut self.calls);
            }
            self.send_text();
            self.calls.events.drain(..).for_each(&mut *emit);
        }
    }

    /// The model's text ends here.
    pub fn finish(mut self, emit: &mut impl FnMut(Event)) -> Parsed {
        let unfinished = self.at - self.held.len();
        while !self.held.is_empty() {
            if let Some(pattern) = self.machinery.markers.scanner(self.context()).matched_at_end(self.scan) {
                self.candidate = Some((pattern, self.held.len()));
            }
            match self.candidate.take() {
                Some((pattern, end)) => self.resolve(pattern, end),
                None => self.release(self.held.len()),
            }
        }
        if let Some(payload) = &mut self.payload {
            // The beginning of a marker.
            payload.forget_text(unfinished, &mut self.calls);
            self.end_call(Terminator::Text, &[], &[]);
        }
        self.text.end();
        self.send_text();
        self.calls.events.drain(..).for_each(emit);
        Parsed {
            content: self.text.into_content(),
            reasoning: None,
            calls: self.calls.done,
            repairs: self.calls.repairs,
            diagnostics: self.calls.diagnostics,
        }
    }

    fn context(&self) -> Context {
        self.payload.as_ref().map_or(Context::Text, |payload| payload.context())
    }

    fn send_text(&mut self) {
        if let Some(delta) = self.text.news() {
            self.calls.events.push(Event::Text { delta: delta.to_owned() });
        }
    }

    fn consume(&mut self, mut input: &[u8]) {
        let machinery = Arc::clone(&self.machinery);
        while !input.is_empty() {
            if self.scan == START {
                let (taken, again) = if self.payload.is_some() {
                    self.feed(input, self.at, true)
                } else {
                    let plain = machinery.markers.scanner(Context::Text).plain(input);
                    self.text.push(&input[..plain]);
                    (plain, None)
                };
                self.at += taken;
                input = &input[taken..];
                if let Some(from) = again {
                    self.look_again(from, &[]);
                    continue;
                }
                if self.payload.as_ref().is_some_and(|payload| payload.is_over(self.at)) {
                    self.end_call(Terminator::Text, &[], &[]);
                    continue;
                }
            }
            let Some((&byte, rest)) = input.split_first() else { return };
            input = rest;
            let scanner = machinery.markers.scanner(self.context());
            self.scan = scanner.step(self.scan, byte);
            self.held.push(byte);
            self.at += 1;
            if let Some(pattern) = scanner.matched(self.scan) {
                self.candidate = Some((pattern, self.held.len()));
            }
            match self.candidate {
                Some((pattern, end)) if !scanner.can_go_on(self.scan) => self.resolve(pattern, end),
                Some(_) => {}
                None if self.scan == START => self.release(self.held.len()),
                // Released by the block, so that a long run of what may begin a marker stays linear.
                None if self.held.len() >= 2 * scanner.longest => self.release_front(scanner.longest),
                None => {}
            }
        }
    }

    /// Feeds the open call's payload; says how many bytes it took, and from where on to look at them again.
    fn feed(&mut self, mut input: &[u8], mut at: usize, markers: bool) -> (usize, Option<usize>) {
        let mut total = 0;
        loop {
            let Some(payload) = &mut self.payload else { return (total, None) };
            let (taken, then) = payload.feed(input, at, &self.machinery.stops, markers, &mut self.calls);
            self.calls.keep(&input[..taken]);
            input = &input[taken..];
            total += taken;
            at += taken;
            match then {
                Then::More => return (total, None),
                Then::Again(from) => return (total, Some(from)),
                Then::NextCall => {}
            }
            let ending = payload.end(Terminator::NextCall, &[], at, &self.machinery.stops, &mut self.calls);
            self.calls.close(ending, &[]);
            payload.next_call();
            self.calls.open(at);
            self.calls.depart(RepairKind::SeveralCalls, at..at + 1);
        }
    }

    /// What was held back is no marker: the whole of it goes where it belongs, and the scan starts anew.
    fn release(&mut self, count: usize) {
        self.release_front(count);
        self.scan = START;
    }

    fn release_front(&mut self, count: usize) {
        let start = self.at - self.held.len();
        let mut held = std::mem::take(&mut self.held);
        if let Some((taken, from)) = self.pass(&held[..count], start) {
            self.look_again(from, &held[taken..]);
            return;
        }
        held.drain(..count);
        self.held = held;
    }

    /// Bytes at offset `at` that are no marker. Says how many were taken where some are to be looked at again, and
    /// from where on.
    fn pass(&mut self, bytes: &[u8], at: usize) -> Option<(usize, usize)> {
        if self.payload.is_some() {
            let (taken, again) = self.feed(bytes, at, false);
            return again.map(|from| (taken, from));
        }
        self.text.push(bytes);
        None
    }

    /// Takes back what the payload took from offset `from` on; it and the bytes that followed go through the scan.
    fn look_again(&mut self, from: usize, followed: &[u8]) {
        let mut bytes = self.calls.take_back(from);
        bytes.extend_from_slice(followed);
        self.scan = START;
        self.at = from;
        self.consume(&bytes);
    }

    /// The bytes held back hold a marker that ends at `end`: acts on it, and looks at the rest anew, at most a
    /// marker's length.
    fn resolve(&mut self, pattern: u8, end: usize) {
        let context = self.context();
        let held = std::mem::take(&mut self.held);
        let found = self.machinery.markers.scanner(context).locate(&held, pattern, end);
        self.candidate = None;
        self.scan = START;
        self.at -= held.len();
        let acted = match context {
            Context::Text => self.marker_in_text(&held, found),
            Context::Structure | Context::String | Context::Raw => self.marker_in_call(&held, found, context),
        };
        self.at += found.end;
        if !acted && let Some((taken, from)) = self.pass(&held[..found.end], self.at - found.end) {
            return self.look_again(from, &held[taken..]);
        }
        self.consume(&held[found.end..]);
    }

    /// A marker outside of calls; `at` is the offset of `held`. False if it is just text.
    fn marker_in_text(&mut self, held: &[u8], found: Found) -> bool {
        let marker = &held[found.start..found.end];
        let place = self.at + found.start..self.at + found.end;
        if found.sign.side == Side::End {
            if found.start == 0
                && self.calls.repair
                && let Some(blank) = self.text.only_blank_since_call()
            {
                let blank = std::mem::take(blank);
                return self.calls.extend_last(&blank, marker);
            }
            self.calls.diagnose(DiagnosticKind::StrayEndMarker, place);
            return false;
        }
        if !found.sign.exact && !self.calls.repair {
            let kind = DiagnosticKind::NotRepaired { repair: RepairKind::NearMissMarker };
            self.calls.diagnose(kind, place);
            return false;
        }
        self.text.push(&held[..found.start]);
        self.text.before_call();
        self.send_text();
        self.begin_call(marker, found, place.start);
        true
    }

    /// A marker inside a call; `at` is the offset of `held`. False if it is part of the payload.
    fn marker_in_call(&mut self, held: &[u8], found: Found, context: Context) -> bool {
        let offset = self.at;
        if !found.sign.exact && !self.calls.repair {
            let kind = DiagnosticKind::NotRepaired { repair: RepairKind::NearMissMarker };
            self.calls.diagnose(kind, offset + found.start..offset + found.end);
            return false;
        }
        self.feed(&held[..found.start], offset, false);
        let matched = &held[found.start..found.end];
        // In a string the match takes in the brackets and the line break before the marker.
        let before = match context {
            Context::String => matched.iter().take_while(|b| b"}] \t\r\n".contains(b)).count(),
            _ => 0,
        };
        let (tail, marker) = matched.split_at(before);
        let place = offset + found.start + before..offset + found.end;
        if !found.sign.exact {
            if let Some(payload) = &mut self.payload {
                payload.flush(&mut self.calls);
            }
            self.calls.depart(RepairKind::NearMissMarker, place.clone());
        }
        self.at = place.start;
        if found.sign.side == Side::End {
            self.end_call(Terminator::End, tail, marker);
        } else if self.calls.repair && self.payload.as_ref().is_some_and(|payload| payload.is_empty()) {
            self.calls.depart(RepairKind::DoubledMarker, place);
            self.calls.keep(marker);
            self.calls.begin_payload();
        } else {
            self.end_call(Terminator::Start, tail, &[]);
            self.text.before_call();
            self.send_text();
            self.begin_call(marker, found, place.start);
        }
        self.at = offset;
        true
    }

    fn begin_call(&mut self, marker: &[u8], found: Found, start: usize) {
        self.calls.open(start);
        self.calls.keep(marker);
        self.calls.begin_payload();
        if !found.sign.exact {
            self.calls.depart(RepairKind::NearMissMarker, start..start + marker.len());
        }
        self.payload = self.spare.take();
    }

    /// The open call ends at `at`, before its marker.
    fn end_call(&mut self, by: Terminator, tail: &[u8], marker: &[u8]) {
        let Some(mut payload) = self.payload.take() else { return };
        let text_at = payload.text_at().filter(|_| by != Terminator::End);
        let text = text_at.map_or_else(Vec::new, |text_at| self.calls.take_back(text_at));
        let at = text_at.unwrap_or(self.at);
        let ending = payload.end(by, tail, at, &self.machinery.stops, &mut self.calls);
        payload.reset();
        self.spare = Some(payload);
        self.calls.keep(tail);
        self.calls.close(ending, marker);
        self.text.after_call();
        self.text.push(&text);
    }
}
