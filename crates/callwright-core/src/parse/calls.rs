//! The calls of one text while they are being read: ids, events, reports, and how they end.

use super::coerce::{Coercer, Coercion};
use super::duplicates;
use super::event::{Diagnostic, DiagnosticKind, Event, InvalidCall, Repair, RepairKind};
use super::names;
use crate::format::schema;
use crate::message::Arguments;
use crate::tool::{CallProblem, Tool, Tools};
use serde_json::{Map, Value};
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

/// Number of diagnostics to keep; the rest is counted.
const DIAGNOSTICS: usize = 100;
/// Maximum size of a buffer to keep for the next call.
const SPARE: usize = 16 << 10;
/// Maximum length of a key in a report.
const KEY: usize = 100;
/// Maximum number of values per call to coerce. The others are unchanged.
const CHANGES: usize = 512;
/// Bytes of arguments to hold while waiting for an id that the format writes after them.
const WAITING: usize = 1024;

/// A parsed call.
#[derive(Debug, Clone, PartialEq)]
pub struct ParsedCall {
    /// The call's id: the model's own if it came in time and is unique.
    pub id: String,
    /// The tool's name as the model wrote it; empty if there was none.
    pub name: String,
    /// The arguments, repaired if possible.
    pub arguments: Arguments,
    /// What the model wrote for this call, markers included.
    pub raw: String,
    /// The byte range of `raw` in the model's text.
    pub range: Range<usize>,
    /// Whether the model wrote all of it. An incomplete call must not be executed.
    pub complete: bool,
    /// Whether name and arguments are well-formed and, if the tools are known, fit the tool's schema.
    pub valid: bool,
    /// Why the call is not valid.
    pub problems: Vec<CallProblem>,
}

impl ParsedCall {
    /// Whether the call may be handed to a program: it is complete and names a tool. It may still not fit that tool.
    pub fn is_whole(&self) -> bool {
        self.complete && !self.name.is_empty()
    }

    /// Whether the call may be executed: it is whole and fits its tool.
    pub fn is_runnable(&self) -> bool {
        self.is_whole() && self.valid
    }

    /// Why the call is not valid, in sentences for the model; empty if it is valid.
    pub fn error_text(&self) -> String {
        CallProblem::sentences(&self.problems)
    }

    /// The call as it is reported where it is not whole.
    pub fn invalid(&self) -> InvalidCall {
        InvalidCall {
            id: self.id.clone(),
            name: self.name.clone(),
            arguments: self.arguments.to_text(),
            raw: self.raw.clone(),
            problems: self.problems.clone(),
            position: self.range.clone(),
        }
    }
}

/// The call being read.
#[derive(Debug)]
struct Open {
    start: usize,
    raw: Vec<u8>,
    /// Start of the payload in `raw`.
    payload: usize,
    id: Option<String>,
    name: Option<String>,
    /// Whether the call's start was sent.
    said: bool,
    /// Arguments that wait, with the call's start, for the id.
    waiting: String,
    /// Arguments that were only found at the end of the text.
    completed: String,
    seen: Vec<RepairKind>,
    /// Whether a departure was not repaired because repairs are off.
    refused: bool,
    /// The range of the arguments if their reader reads a translation of them: places in it are not places in the text.
    translated: Option<Range<usize>>,
    /// Problems that the payload's reader found.
    blamed: Vec<CallProblem>,
    /// Start of the arguments in the model's text, if they are passed on unchanged.
    arguments_at: Option<usize>,
    coercer: Option<Coercer>,
    /// Changes to the arguments: position, number of bytes, replacement.
    changes: Vec<(usize, usize, String)>,
    /// The first coerced value of each kind: its position in the arguments, and its text.
    coerced: Vec<(RepairKind, usize, String)>,
    /// Keys that were dropped.
    ignored: Vec<String>,
    /// Duplicate arguments and their places, as far as the payload's reader knows.
    again: Vec<(String, Range<usize>)>,
}

impl Open {
    fn is_named(&self) -> bool {
        self.name.as_ref().is_some_and(|name| !name.is_empty())
    }
}

/// How a call ended.
#[derive(Debug)]
pub(crate) struct Ending {
    pub complete: bool,
    /// Whether its markup was beyond repair, regardless of name and arguments.
    pub broken: bool,
    /// The arguments' text, and how much of it was sent; `None` if they cannot be separated from the rest between the
    /// markers.
    pub arguments: Option<(String, usize)>,
}

#[derive(Debug)]
pub(crate) struct Calls {
    pub events: Vec<Event>,
    pub done: Vec<ParsedCall>,
    pub repairs: Vec<Repair>,
    pub diagnostics: Vec<Diagnostic>,
    pub repair: bool,
    /// Whether values are coerced, if repairs are on.
    pub coerce: bool,
    pub normalize_names: bool,
    /// Whether the format writes ids, so that a call's start waits for its id.
    pub ids: bool,
    /// Whether calls are forbidden.
    pub forbidden: bool,
    /// Whether numbers may exceed what can be kept exactly.
    pub any_number: bool,
    /// Whether a grammar closes what is open.
    pub closing: bool,
    /// Whether the end of the text has no meaning.
    pub cut_off: bool,
    /// Whether the text has ended. A name found only now may be cut off, so it is sent only if the call is whole. The
    /// same applies to arguments found only now: they complete what the model did not write, and a client that joins
    /// the deltas must not get whole JSON from a cut call.
    text_ended: bool,
    tools: Option<Arc<Tools>>,
    first: usize,
    next: usize,
    /// Ids that were not minted here.
    taken: HashSet<String>,
    open: Option<Open>,
    /// The last call's byte buffer, for reuse.
    spare: Vec<u8>,
    /// The last arguments' text buffer, for reuse.
    pub spare_text: String,
    /// Whether the last call's end marker was already reported as doubled.
    doubled: bool,
    /// The number of dropped diagnostics, and the place of the last one.
    left_out: (usize, Range<usize>),
}

impl Calls {
    pub(crate) fn new(tools: Option<Arc<Tools>>, repair: bool, first: usize, taken: HashSet<String>) -> Calls {
        Calls {
            events: Vec::new(),
            done: Vec::new(),
            repairs: Vec::new(),
            diagnostics: Vec::new(),
            repair,
            coerce: true,
            normalize_names: true,
            ids: false,
            forbidden: false,
            any_number: false,
            closing: false,
            cut_off: false,
            text_ended: false,
            tools,
            first,
            next: first,
            taken,
            open: None,
            spare: Vec::new(),
            spare_text: String::new(),
            doubled: false,
            left_out: (0, 0..0),
        }
    }

    /// A call begins at offset `start`.
    pub(crate) fn open(&mut self, start: usize) {
        self.doubled = false;
        self.open = Some(Open {
            start,
            raw: std::mem::take(&mut self.spare),
            payload: 0,
            id: None,
            name: None,
            said: false,
            waiting: String::new(),
            completed: String::new(),
            seen: Vec::new(),
            refused: false,
            translated: None,
            blamed: Vec::new(),
            arguments_at: None,
            coercer: None,
            changes: Vec::new(),
            coerced: Vec::new(),
            ignored: Vec::new(),
            again: Vec::new(),
        });
    }

    /// Adds bytes to the open call's `raw`.
    pub(crate) fn keep(&mut self, bytes: &[u8]) {
        if let Some(open) = &mut self.open {
            open.raw.extend_from_slice(bytes);
        }
    }

    /// Removes the bytes from offset `at` on from `raw`: they are not part of the open call.
    pub(crate) fn take_back(&mut self, at: usize) -> Vec<u8> {
        let Some(open) = &mut self.open else { return Vec::new() };
        let index = at.saturating_sub(open.start).min(open.raw.len());
        open.raw.split_off(index)
    }

    /// The payload of the open call begins after the bytes kept so far.
    pub(crate) fn begin_payload(&mut self) {
        if let Some(open) = &mut self.open {
            open.payload = open.raw.len();
        }
    }

    /// Whether the open call has not yet reported this departure.
    pub(crate) fn is_news(&self, kind: RepairKind) -> bool {
        self.open.as_ref().is_none_or(|open| !open.seen.contains(&kind))
    }

    /// Records a departure; false if it must not be repaired.
    pub(crate) fn depart(&mut self, kind: RepairKind, range: Range<usize>) -> bool {
        let range = self.in_text(range);
        let fresh = self.is_news(kind);
        let repair = self.repairs(kind);
        if let Some(open) = &mut self.open {
            open.refused |= !repair;
            if fresh {
                open.seen.push(kind);
            }
        }
        if fresh && repair {
            let repair = Repair { kind, range };
            self.repairs.push(repair.clone());
            self.events.push(Event::Repair(repair));
        } else if fresh {
            self.diagnose(DiagnosticKind::NotRepaired { repair: kind }, range);
        }
        repair
    }

    /// The arguments of the open call are at `place`, and their reader reads a translation of them.
    pub(crate) fn translate(&mut self, place: Range<usize>) {
        if let Some(open) = &mut self.open {
            open.translated = Some(place);
        }
    }

    /// The place in the text, which ends before its translation does.
    fn in_text(&self, range: Range<usize>) -> Range<usize> {
        let Some(place) = self.open.as_ref().and_then(|open| open.translated.as_ref()) else { return range };
        range.start.min(place.end)..range.end.min(place.end)
    }

    fn repairs(&self, kind: RepairKind) -> bool {
        self.repair
            && match kind {
                RepairKind::ValueType | RepairKind::EmptyArgument => self.coerce,
                RepairKind::ToolName => self.normalize_names,
                _ => true,
            }
    }

    pub(crate) fn diagnose(&mut self, kind: DiagnosticKind, range: Range<usize>) {
        let range = self.in_text(range);
        if self.diagnostics.len() < DIAGNOSTICS {
            self.diagnostics.push(Diagnostic { kind, range });
        } else {
            self.left_out = (self.left_out.0 + 1, range);
        }
    }

    /// An end marker seen from offset `from` on was the beginning of a call.
    pub(crate) fn forget_end_markers(&mut self, from: usize) {
        self.diagnostics.retain(|said| said.kind != DiagnosticKind::StrayEndMarker || said.range.start < from);
    }

    /// Marks the open call as invalid for this reason.
    pub(crate) fn blame(&mut self, problem: CallProblem) {
        if let Some(open) = &mut self.open
            && !open.blamed.contains(&problem)
        {
            open.blamed.push(problem);
        }
    }

    /// A duplicate argument of the open call. It is reported when the call ends, as for every payload.
    pub(crate) fn duplicate_key(&mut self, key: &str, place: Range<usize>) {
        if let Some(open) = self.open.as_mut().filter(|open| open.again.len() < DIAGNOSTICS) {
            open.again.push((key.to_owned(), place));
        }
    }

    /// Reports the duplicate keys in the arguments.
    fn report_again(&mut self, keys: &[String]) {
        let Some(open) = self.open.as_mut().filter(|_| !keys.is_empty()) else { return };
        let mut again = std::mem::take(&mut open.again);
        let from = open.arguments_at.map_or(open.payload, |at| at.saturating_sub(open.start)).min(open.raw.len());
        let mut places = duplicates::places(&open.raw[from..]);
        let (from, whole) = (open.start + from, open.start..open.start + open.raw.len());
        for key in keys {
            let known = again.iter().position(|(name, _)| name == key).map(|index| again.remove(index).1);
            let place = known.or_else(|| {
                let place = places.get_mut(key)?.pop_front()?;
                Some(from + place.start..from + place.end)
            });
            let place = place.map_or_else(|| whole.clone(), |place| place.start..place.end.min(whole.end));
            self.depart(RepairKind::DuplicateKey, place.clone());
            self.diagnose(DiagnosticKind::DuplicateKey { key: shortened(key) }, place);
        }
    }

    /// A key other than name and arguments.
    pub(crate) fn ignored_key(&mut self, key: &str, at: usize) {
        let key = shortened(key);
        if let Some(open) = self.open.as_mut().filter(|open| open.ignored.len() < DIAGNOSTICS) {
            open.ignored.push(key.clone());
        }
        self.diagnose(DiagnosticKind::IgnoredKey { key }, at..at + 1);
    }

    /// Reports how many diagnostics were dropped.
    pub(crate) fn end_diagnostics(&mut self) {
        let (count, range) = std::mem::replace(&mut self.left_out, (0, 0..0));
        if count > 0 {
            self.diagnostics.push(Diagnostic { kind: DiagnosticKind::LeftOut { count }, range });
        }
    }

    /// The open call's tool, if the tools are known and include it.
    pub(crate) fn tool(&self) -> Option<&Tool> {
        self.tools.as_ref()?.get(self.open.as_ref()?.name.as_ref()?)
    }

    /// Whether the tools are known.
    pub(crate) fn has_tools(&self) -> bool {
        self.tools.is_some()
    }

    /// Whether a tool has exactly this name.
    pub(crate) fn has_tool(&self, name: &str) -> bool {
        self.tools.as_ref().is_some_and(|tools| tools.get(name).is_some())
    }

    /// Whether this may be the name of a call: one of the tools, or any if they are unknown.
    pub(crate) fn is_tool(&self, name: &str) -> bool {
        self.tools.as_ref().is_none_or(|tools| tools.get(name).is_some() || tools.resembling(name).is_some())
    }

    /// Whether the tools are known and this name means one of them.
    pub(crate) fn is_known_tool(&self, name: &str) -> bool {
        self.tools.is_some() && self.is_tool(name)
    }

    /// Whether a known tool's name begins like this, ignoring case and separators.
    pub(crate) fn may_become_tool(&self, begun: &str) -> bool {
        self.tools.as_ref().is_some_and(|tools| tools.may_begin(begun))
    }

    pub(crate) fn knows_tools(&self) -> bool {
        self.tools.as_ref().is_some_and(|tools| !tools.is_empty())
    }

    /// A record of calls for trying the beginning of one.
    pub(crate) fn trial(&self) -> Calls {
        let mut calls = Calls::new(self.tools.clone(), true, 1, HashSet::new());
        calls.open(0);
        calls
    }

    /// The name of the open call.
    pub(crate) fn name(&self) -> Option<&str> {
        self.open.as_ref()?.name.as_deref()
    }

    /// Number of calls before the open one in the answer.
    pub(crate) fn index(&self) -> usize {
        self.done.len()
    }

    /// Sets the open call's id from the model; false if it is too late or not unique.
    pub(crate) fn give_id(&mut self, id: String) -> bool {
        let Some(open) = &mut self.open else { return false };
        let number = id.strip_prefix("call").and_then(|digits| digits.parse().ok());
        let minted = number.is_some_and(|number| (self.first..self.next).contains(&number));
        if minted || open.id.is_some() || id.is_empty() || !self.taken.insert(id.clone()) {
            return false;
        }
        open.id = Some(id);
        if open.name.is_some() && !self.text_ended {
            self.say_start();
        }
        true
    }

    /// The text has ended, and everything in it has been read.
    pub(crate) fn end_text(&mut self) {
        self.text_ended = true;
    }

    pub(crate) fn has_name(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.name.is_some())
    }

    /// Sets the open call's name, which is at `place`.
    pub(crate) fn start(&mut self, name: String, place: Range<usize>) {
        let own = self.tools.as_ref().and_then(|tools| tools.own_name(&name)).map(str::to_owned);
        let name = own.unwrap_or(name);
        let name = match names::repaired(&name, self.tools.as_deref()) {
            Some(meant) if self.depart(RepairKind::ToolName, place) => meant,
            _ => name,
        };
        let Some(open) = &mut self.open else { return };
        open.coercer = self.tools.as_ref().and_then(|tools| Coercer::new(tools, &name));
        // White space is not a tool name.
        open.name = Some(if name.trim().is_empty() { String::new() } else { name });
        if (open.id.is_some() || !self.ids) && !self.text_ended {
            self.say_start();
        }
    }

    /// Sends the open call's start, and the arguments that waited for it. A call without a name is not sent.
    fn say_start(&mut self) {
        let id = self.settle_id();
        if let Some(open) = self.open.as_mut().filter(|open| !open.said && open.is_named()) {
            open.said = true;
            let name = open.name.clone().unwrap_or_default();
            let delta = std::mem::take(&mut open.waiting);
            self.events.push(Event::CallStart { id: id.clone(), name });
            if !delta.is_empty() {
                self.events.push(Event::CallArguments { id, delta });
            }
        }
    }

    /// The open call's id; a new one if the model gave none.
    fn settle_id(&mut self) -> String {
        let given = self.open.as_ref().and_then(|open| open.id.clone());
        let id = given.unwrap_or_else(|| self.mint());
        if let Some(open) = &mut self.open {
            open.id = Some(id.clone());
        }
        id
    }

    fn mint(&mut self) -> String {
        loop {
            let id = minted(self.next);
            self.next += 1;
            if self.taken.is_empty() || !self.taken.contains(&id) {
                return id;
            }
        }
    }

    /// The arguments of the open call begin at offset `at`, and are passed on unchanged.
    pub(crate) fn begin_arguments(&mut self, at: usize) {
        if let Some(open) = &mut self.open {
            open.arguments_at = Some(at);
        }
    }

    /// More of the arguments of the open call, whose name is known.
    pub(crate) fn delta(&mut self, delta: &str) {
        let Some(mut coercer) = self.open.as_mut().and_then(|open| open.coercer.take()) else {
            return self.say_delta(delta);
        };
        let mut rest = delta;
        while !rest.is_empty() {
            let mut known = String::new();
            let (taken, coercion) = coercer.push(rest, &mut known);
            rest = &rest[taken..];
            self.say_delta(&known);
            if let Some(coercion) = coercion {
                self.coerce(coercion);
            }
        }
        if let Some(open) = &mut self.open {
            open.coercer = Some(coercer);
        }
    }

    /// Records a coercion. It is reported when the call ends, when its place is known.
    fn coerce(&mut self, Coercion { kind, start, written, wanted }: Coercion) {
        let size = |open: &Open| open.changes.iter().map(|(.., wanted)| wanted.len()).sum::<usize>();
        let room = self.open.as_ref().is_some_and(|open| open.changes.len() < CHANGES && size(open) < SPARE);
        let repair = self.repairs(kind) && room;
        self.say_delta(if repair { &wanted } else { &written });
        let Some(open) = &mut self.open else { return };
        if repair {
            open.changes.push((start, written.len(), wanted));
        }
        if !open.coerced.iter().any(|(other, ..)| *other == kind) {
            open.coerced.push((kind, start, written));
        }
    }

    /// Reports the first coercion of each kind.
    fn report_coercions(&mut self) {
        let coerced = self.open.as_mut().map(|open| std::mem::take(&mut open.coerced)).unwrap_or_default();
        for (kind, start, written) in coerced {
            self.report_coercion(kind, start, &written);
        }
    }

    fn report_coercion(&mut self, kind: RepairKind, start: usize, written: &str) {
        let Some(open) = &mut self.open else { return };
        let from = open.arguments_at.map_or(open.payload, |at| at.saturating_sub(open.start)).min(open.raw.len());
        let find = |from: usize, text: &[u8]| {
            let found = open.raw[from..].windows(text.len().max(1)).position(|window| window == text);
            found.map(|at| from + at..from + at + text.len())
        };
        let as_written = open.raw[from..].get(start..).is_some_and(|rest| rest.starts_with(written.as_bytes()));
        let place = if as_written {
            Some(from + start..from + start + written.len())
        } else {
            // Other repairs moved it, or its quotes differed.
            find(from, written.as_bytes()).or_else(|| find(from, written.trim_matches('"').as_bytes()))
        };
        let place = place.unwrap_or(0..open.raw.len());
        let place = open.start + place.start..open.start + place.end;
        self.depart(kind, place);
    }

    fn say_delta(&mut self, delta: &str) {
        let Some(open) = self.open.as_mut().filter(|_| !delta.is_empty()) else { return };
        if self.text_ended {
            open.completed.push_str(delta);
        } else if !open.said && open.is_named() {
            open.waiting.push_str(delta);
            if open.waiting.len() > WAITING {
                self.say_start();
            }
        } else if let Some(id) = open.id.clone().filter(|_| open.said) {
            self.events.push(Event::CallArguments { id, delta: delta.to_owned() });
        }
    }

    /// Sends the arguments that were only found at the end of the text.
    fn say_completed(&mut self) {
        let Some(open) = &mut self.open else { return };
        let delta = std::mem::take(&mut open.completed);
        if let Some(id) = open.id.clone().filter(|_| open.said && !delta.is_empty()) {
            self.events.push(Event::CallArguments { id, delta });
        }
    }

    /// The arguments are complete; returns their final text.
    fn end_arguments(&mut self, text: String, sent: usize) -> String {
        self.delta(&text[sent..]);
        let mut rest = String::new();
        let Some(open) = &mut self.open else { return text };
        if let Some(coercer) = &mut open.coercer {
            coercer.finish(&mut rest);
        }
        let changes = std::mem::take(&mut open.changes);
        self.say_delta(&rest);
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

    /// Closes the open call; `marker` is the end marker, if there was one.
    pub(crate) fn close(&mut self, ending: Ending, marker: &[u8]) {
        let Some(open) = &self.open else { return };
        let complete = ending.complete && !self.closing;
        let payload = open.raw[open.payload..].trim_ascii();
        let empty = payload.is_empty();
        let (text, sent, apart) = match ending.arguments {
            Some((text, sent)) => (text, sent, true),
            None => (String::from_utf8_lossy(payload).into_owned(), 0, false),
        };
        if open.name.is_none() {
            let place = open.start..open.start + open.raw.len();
            let kind = if empty { DiagnosticKind::EmptyCall } else { DiagnosticKind::MissingName };
            self.diagnose(kind, place);
            self.start(String::new(), 0..0);
        }
        let text = self.end_arguments(text, sent);
        if complete || !self.text_ended {
            self.say_start();
            self.say_completed();
        } else {
            self.settle_id();
        }
        self.report_coercions();
        let object = apart.then(|| duplicates::read_object(&text));
        let double = matches!(&object, Some(Ok((_, seen))) if seen.double) && !self.any_number;
        let inexact = if double { duplicates::inexact_number(&text) } else { None };
        if let Some(number) = inexact {
            self.blame(CallProblem::InexactNumber { number: shortened(number) });
        }
        let inexact = inexact.is_some();
        // Without this argument the call would do something else than intended.
        if let Some(Ok((object, _))) = &object
            && let Some(key) = self.misplaced_argument(object)
        {
            self.blame(CallProblem::MisplacedArgument { name: key.clone() });
        }
        if let Some(Ok((_, seen))) = &object {
            self.report_again(&seen.again);
        }
        self.keep(marker);
        let Some(open) = self.open.take() else { return };
        let said = open.said;
        let (id, name) = (open.id.unwrap_or_default(), open.name.unwrap_or_default());

        let mut problems = Vec::new();
        if !ending.complete {
            problems.push(CallProblem::Incomplete);
        } else if !complete {
            problems.push(CallProblem::OutOfTokens);
        }
        if self.forbidden {
            problems.push(CallProblem::Forbidden);
        }
        if open.refused {
            problems.push(CallProblem::NotRepaired);
        } else if empty {
            problems.push(CallProblem::Empty);
        } else if ending.broken && open.blamed.is_empty() {
            problems.push(CallProblem::NotJson);
        }
        let blamed = !open.blamed.is_empty();
        problems.extend(open.blamed);
        let arguments = match object {
            // Without repairs, nothing written is dropped.
            Some(Ok((_, seen))) if !seen.again.is_empty() && !self.repair => Arguments::Raw(text),
            // Nor is a value replaced by another.
            Some(Ok(_)) if inexact => Arguments::Raw(text),
            Some(Ok((object, _))) => {
                if text.capacity() <= SPARE {
                    self.spare_text = text;
                }
                Arguments::Object(object)
            }
            Some(Err(_)) if blamed => Arguments::Raw(text),
            Some(Err(error)) => {
                problems.push(match serde_json::from_str::<Value>(&text) {
                    Ok(_) => CallProblem::ArgumentsNotObject,
                    Err(_) => CallProblem::ArgumentsNotJson { error: error.to_string() },
                });
                Arguments::Raw(text)
            }
            None => Arguments::Raw(text),
        };
        let unread = |error: &serde_json::Error| !error.to_string().contains("number out of range");
        if let Arguments::Raw(text) = &arguments
            && serde_json::from_str::<Value>(text).as_ref().is_err_and(unread)
            && !self.diagnostics.iter().any(|said| said.range.start >= open.start && said.kind.tells_of_arguments())
        {
            self.diagnose(DiagnosticKind::BrokenJson, open.start..open.start + open.raw.len());
        }
        if name.is_empty() {
            problems.push(CallProblem::Nameless);
        } else if let (Some(tools), Arguments::Object(object)) = (&self.tools, &arguments) {
            problems.extend(tools.problems(&name, object));
        }
        let valid = problems.is_empty();
        let range = open.start..open.start + open.raw.len();
        // Lossy conversion is several times slower, and rarely needed.
        let raw = if open.raw.len() > SPARE {
            let mut raw = String::from_utf8(open.raw).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into());
            raw.shrink_to_fit();
            raw
        } else {
            let raw = match std::str::from_utf8(&open.raw) {
                Ok(raw) => raw.to_owned(),
                Err(_) => String::from_utf8_lossy(&open.raw).into_owned(),
            };
            self.spare = open.raw;
            self.spare.clear();
            raw
        };
        let call = ParsedCall { id, name, arguments, raw, range, complete, valid, problems };
        self.events.push(match said {
            true => Event::CallEnd { id: call.id.clone(), complete, valid },
            false => Event::InvalidCall(call.invalid()),
        });
        self.done.push(call);
    }

    /// A key next to the open call's arguments that is one of its tool's parameters and is missing in them.
    fn misplaced_argument(&self, arguments: &Map<String, Value>) -> Option<&String> {
        let schema = self.tool()?.parameters.as_ref()?;
        let ignored = self.open.as_ref()?.ignored.iter();
        ignored.into_iter().find(|key| !arguments.contains_key(*key) && schema::knows(schema, key))
    }

    /// Adds a doubled end marker to the call that ended last.
    pub(crate) fn extend_last(&mut self, blank: &[u8], marker: &[u8]) -> bool {
        let Some(end) = self.append_to_last(blank, marker) else { return false };
        std::mem::replace(&mut self.doubled, true) || self.depart(RepairKind::DoubledMarker, end - marker.len()..end)
    }

    /// Adds the following bytes to the call that ended last; returns their end.
    pub(crate) fn append_to_last(&mut self, blank: &[u8], marker: &[u8]) -> Option<usize> {
        let call = self.done.last_mut()?;
        for bytes in [blank, marker] {
            call.raw.push_str(&String::from_utf8_lossy(bytes));
            call.range.end += bytes.len();
        }
        Some(call.range.end)
    }
}

/// A key, shortened for a report.
fn shortened(key: &str) -> String {
    if key.len() > KEY { key.chars().take(KEY).chain(['…']).collect() } else { key.to_owned() }
}

/// Nine letters and digits, the form that the strictest chat templates require.
fn minted(number: usize) -> String {
    let mut digits = [b'0'; 20];
    let mut rest = number;
    let mut first = digits.len();
    while rest > 0 || first > digits.len() - 5 {
        first -= 1;
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let mut id = String::with_capacity(4 + digits.len() - first);
    id.push_str("call");
    id.extend(digits[first..].iter().map(|&digit| char::from(digit)));
    id
}
