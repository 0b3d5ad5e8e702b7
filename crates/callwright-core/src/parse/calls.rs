//! The calls of one text while they are being read: ids, events, what is reported about them, and how they end.

use super::coerce::{Coercer, Coercion};
use super::duplicates;
use super::event::{Diagnostic, DiagnosticKind, Event, InvalidCall, Repair, RepairKind};
use super::names;
use crate::format::schema;
use crate::message::Arguments;
use crate::tool::{Tool, Tools};
use serde_json::{Map, Value};
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

/// How many diagnostics are kept; the rest is counted.
const DIAGNOSTICS: usize = 100;
/// Up to which size a buffer is kept for the next call.
const SPARE: usize = 16 << 10;
/// How much of a key is told.
const KEY: usize = 100;
/// How many values of one call are given another type. More than that are left as they are.
const CHANGES: usize = 512;
/// How many bytes of arguments wait for an id that the format writes after them.
const WAITING: usize = 1024;

/// One call as the parser read it.
#[derive(Debug, Clone, PartialEq)]
pub struct ParsedCall {
    /// The call's id: the model's own where it wrote one in time and no other call has it.
    pub id: String,
    /// The tool's name as the model wrote it; empty where none could be read.
    pub name: String,
    /// The arguments, corrected where that was possible.
    pub arguments: Arguments,
    /// What the model wrote for this call, markers included.
    pub raw: String,
    /// Where that stands in the model's text, in bytes.
    pub range: Range<usize>,
    /// Whether the model wrote all of it. An incomplete call must not be executed.
    pub complete: bool,
    /// Whether name and arguments are well-formed and, where the tools are known, fit the tool's schema.
    pub valid: bool,
    /// Why the call is not valid, each a sentence fit to be told to the model.
    pub problems: Vec<String>,
}

impl ParsedCall {
    /// Whether a program may be given the call: the model wrote all of it, and it names a tool. Whether it fits that
    /// tool is another question.
    pub fn is_whole(&self) -> bool {
        self.complete && !self.name.is_empty()
    }

    /// Whether the call may be executed: it is whole and fits its tool.
    pub fn is_runnable(&self) -> bool {
        self.is_whole() && self.valid
    }

    /// The call as it is reported where it is not whole.
    pub fn invalid(&self) -> InvalidCall {
        InvalidCall {
            id: self.id.clone(),
            name: self.name.clone(),
            arguments: self.arguments.to_text(),
            raw: self.raw.clone(),
            error: self.problems.join("; "),
            position: self.range.clone(),
        }
    }
}

/// The call being read.
#[derive(Debug)]
struct Open {
    start: usize,
    raw: Vec<u8>,
    /// Where in `raw` the payload begins.
    payload: usize,
    id: Option<String>,
    name: Option<String>,
    /// Whether the call's start was said.
    said: bool,
    /// Arguments that wait with the call's start for its id.
    waiting: String,
    /// Arguments that only showed when the text had ended.
    completed: String,
    seen: Vec<RepairKind>,
    /// Whether a departure was left alone, repairs being off.
    refused: bool,
    /// Where its arguments stand, if their reader reads a translation of them: places in that are no places in the text.
    translated: Option<Range<usize>>,
    /// What is wrong with the call, in sentences.
    blamed: Vec<String>,
    /// Where the arguments begin in the model's text, if they are passed on as they were written.
    arguments_at: Option<usize>,
    coercer: Option<Coercer>,
    /// What was changed in the arguments: where, how many bytes, and to what.
    changes: Vec<(usize, usize, String)>,
    /// The first value of each kind that should be another: where it stands in the arguments, and how.
    coerced: Vec<(RepairKind, usize, String)>,
    /// Keys that were left out.
    ignored: Vec<String>,
    /// Arguments that came again, and where, as far as the payload's reader knows.
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
    /// Whether its markup was beyond repair, whatever became of name and arguments.
    pub broken: bool,
    /// The arguments' text, and how much of it was sent; `None` where they cannot be told apart: all that stands between the markers.
    pub arguments: Option<(String, usize)>,
}

#[derive(Debug)]
pub(crate) struct Calls {
    pub events: Vec<Event>,
    pub done: Vec<ParsedCall>,
    pub repairs: Vec<Repair>,
    pub diagnostics: Vec<Diagnostic>,
    pub repair: bool,
    /// Whether, where departures are repaired, these are, too.
    pub coerce: bool,
    pub normalize_names: bool,
    /// Whether the format writes ids, so that a call's start waits for its id.
    pub ids: bool,
    /// Whether no call may be made.
    pub forbidden: bool,
    /// Whether numbers may be larger than can be kept exactly.
    pub any_number: bool,
    /// Whether a grammar closes what is open.
    pub closing: bool,
    /// Whether the text's end says nothing.
    pub cut_off: bool,
    /// Whether the text has ended. A name that only shows now may be cut off: it is said only if the call is whole. So are
    /// arguments that only show now: they complete what the model did not write, and a client that adds the deltas up must
    /// not find whole JSON in a call that was cut.
    text_ended: bool,
    tools: Option<Arc<Tools>>,
    first: usize,
    next: usize,
    /// Ids that were not minted here.
    taken: HashSet<String>,
    open: Option<Open>,
    /// The buffer of the last call's bytes, for the next one's.
    spare: Vec<u8>,
    /// The buffer of the last arguments' text, likewise.
    pub spare_text: String,
    /// Whether the last call's end marker was already reported as written twice.
    doubled: bool,
    /// Diagnostics that were left out, and where the last of them belongs.
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

    /// Keeps what the model wrote for the open call.
    pub(crate) fn keep(&mut self, bytes: &[u8]) {
        if let Some(open) = &mut self.open {
            open.raw.extend_from_slice(bytes);
        }
    }

    /// Takes back what was kept from offset `at` on: it is no part of the open call.
    pub(crate) fn take_back(&mut self, at: usize) -> Vec<u8> {
        let Some(open) = &mut self.open else { return Vec::new() };
        let index = at.saturating_sub(open.start).min(open.raw.len());
        open.raw.split_off(index)
    }

    /// The payload of the open call begins after what was kept so far.
    pub(crate) fn begin_payload(&mut self) {
        if let Some(open) = &mut self.open {
            open.payload = open.raw.len();
        }
    }

    /// Whether the open call has not reported this departure yet.
    pub(crate) fn is_news(&self, kind: RepairKind) -> bool {
        self.open.as_ref().is_none_or(|open| !open.seen.contains(&kind))
    }

    /// Notes a departure; false if it must not be repaired.
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

    /// The arguments of the open call stand at `place`, and their reader reads a translation of them.
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

    /// What looked like an end marker from offset `from` on was the beginning of a call.
    pub(crate) fn forget_end_markers(&mut self, from: usize) {
        self.diagnostics.retain(|said| said.kind != DiagnosticKind::StrayEndMarker || said.range.start < from);
    }

    /// The open call is not valid, for this reason.
    pub(crate) fn blame(&mut self, problem: String) {
        if let Some(open) = &mut self.open
            && !open.blamed.contains(&problem)
        {
            open.blamed.push(problem);
        }
    }

    /// An argument that the open call has already. That is reported where the call ends, for every payload alike.
    pub(crate) fn duplicate_key(&mut self, key: &str, place: Range<usize>) {
        if let Some(open) = self.open.as_mut().filter(|open| open.again.len() < DIAGNOSTICS) {
            open.again.push((key.to_owned(), place));
        }
    }

    /// Reports the keys that stand twice in the arguments.
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

    /// A key beside name and arguments.
    pub(crate) fn ignored_key(&mut self, key: &str, at: usize) {
        let key = shortened(key);
        if let Some(open) = self.open.as_mut().filter(|open| open.ignored.len() < DIAGNOSTICS) {
            open.ignored.push(key.clone());
        }
        self.diagnose(DiagnosticKind::IgnoredKey { key }, at..at + 1);
    }

    /// Says how many diagnostics were left out.
    pub(crate) fn end_diagnostics(&mut self) {
        let (count, range) = std::mem::replace(&mut self.left_out, (0, 0..0));
        if count > 0 {
            self.diagnostics.push(Diagnostic { kind: DiagnosticKind::LeftOut { count }, range });
        }
    }

    /// The tool that the open call names, where the tools are known and have it.
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

    /// Whether a call may well mean this name: one of the tools, or any where they are not known.
    pub(crate) fn is_tool(&self, name: &str) -> bool {
        self.tools.as_ref().is_none_or(|tools| tools.get(name).is_some() || tools.resembling(name).is_some())
    }

    /// Whether the tools are known, and one of them is meant by this name.
    pub(crate) fn is_known_tool(&self, name: &str) -> bool {
        self.tools.is_some() && self.is_tool(name)
    }

    /// Whether a known tool's name begins like this, other case and separators aside.
    pub(crate) fn may_become_tool(&self, begun: &str) -> bool {
        self.tools.as_ref().is_some_and(|tools| tools.may_begin(begun))
    }

    pub(crate) fn knows_tools(&self) -> bool {
        self.tools.as_ref().is_some_and(|tools| !tools.is_empty())
    }

    /// A record of calls for looking at the beginning of one.
    pub(crate) fn trial(&self) -> Calls {
        let mut calls = Calls::new(self.tools.clone(), true, 1, HashSet::new());
        calls.open(0);
        calls
    }

    /// The name of the open call.
    pub(crate) fn name(&self) -> Option<&str> {
        self.open.as_ref()?.name.as_deref()
    }

    /// How many calls the answer had before the open one.
    pub(crate) fn index(&self) -> usize {
        self.done.len()
    }

    /// The model gives the open call an id; false if it is too late or not its own.
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

    /// The text has ended, and all that the model wrote was read.
    pub(crate) fn end_text(&mut self) {
        self.text_ended = true;
    }

    pub(crate) fn has_name(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.name.is_some())
    }

    /// The open call's name is known; it stands at `place`.
    pub(crate) fn start(&mut self, name: String, place: Range<usize>) {
        let own = self.tools.as_ref().and_then(|tools| tools.own_name(&name)).map(str::to_owned);
        let name = own.unwrap_or(name);
        let name = match names::repaired(&name, self.tools.as_deref()) {
            Some(meant) if self.depart(RepairKind::ToolName, place) => meant,
            _ => name,
        };
        let Some(open) = &mut self.open else { return };
        open.coercer = self.tools.as_ref().and_then(|tools| Coercer::new(tools, &name));
        // White space names no tool.
        open.name = Some(if name.trim().is_empty() { String::new() } else { name });
        if (open.id.is_some() || !self.ids) && !self.text_ended {
            self.say_start();
        }
    }

    /// Says that the open call starts, and what waited for that. A call without a name is not said.
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

    /// The open call's id, minted if the model gave none.
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

    /// The arguments of the open call begin at offset `at`, and are passed on as they are written.
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

    /// A value should be another. That is reported where the call ends, when its place can be told.
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

    /// Reports the first value of each kind that was coerced.
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
            // Other repairs moved it, or its quotes were others.
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

    /// Says the arguments that only showed when the text had ended.
    fn say_completed(&mut self) {
        let Some(open) = &mut self.open else { return };
        let delta = std::mem::take(&mut open.completed);
        if let Some(id) = open.id.clone().filter(|_| open.said && !delta.is_empty()) {
            self.events.push(Event::CallArguments { id, delta });
        }
    }

    /// The arguments are whole; says what they came to.
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

    /// The open call ends; `marker` is the end marker, if one was written.
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
            self.blame(format!("the number {} is too large to be kept exactly", shortened(number)));
        }
        let inexact = inexact.is_some();
        // Without it the call would do something else than was meant.
        if let Some(Ok((object, _))) = &object
            && let Some(key) = self.misplaced_argument(object)
        {
            self.blame(format!("the argument {key:?} stands beside \"arguments\", not in it"));
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
            problems.push("the call was not written out".to_owned());
        } else if !complete {
            problems.push("the tokens ran out before its end, so its arguments may be cut off".to_owned());
        }
        if self.forbidden {
            problems.push("no tool may be called here".to_owned());
        }
        if open.refused {
            problems.push("the call departs from its format".to_owned());
        } else if empty {
            problems.push("there is nothing between the call's markers".to_owned());
        } else if ending.broken && open.blamed.is_empty() {
            problems.push("the call is not valid JSON".to_owned());
        }
        let blamed = !open.blamed.is_empty();
        problems.extend(open.blamed);
        let arguments = match object {
            // Without repairs nothing that was written is dropped.
            Some(Ok((_, seen))) if !seen.again.is_empty() && !self.repair => Arguments::Raw(text),
            // Nor is one put for another.
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
                    Ok(_) => "the arguments are not a JSON object".to_owned(),
                    Err(_) => format!("the arguments are not valid JSON: {error}"),
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
            problems.push("the call names no tool".to_owned());
        } else if let (Some(tools), Arguments::Object(object)) = (&self.tools, &arguments) {
            problems.extend(tools.problems(&name, object));
        }
        let valid = problems.is_empty();
        let range = open.start..open.start + open.raw.len();
        // The lossy way is several times slower, and hardly ever needed.
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

    /// A key beside the open call's arguments that its tool has a parameter for, and that is not among them.
    fn misplaced_argument(&self, arguments: &Map<String, Value>) -> Option<&String> {
        let schema = self.tool()?.parameters.as_ref()?;
        let ignored = self.open.as_ref()?.ignored.iter();
        ignored.into_iter().find(|key| !arguments.contains_key(*key) && schema::knows(schema, key))
    }

    /// Counts an end marker that was written twice to the call that ended last.
    pub(crate) fn extend_last(&mut self, blank: &[u8], marker: &[u8]) -> bool {
        let Some(end) = self.append_to_last(blank, marker) else { return false };
        std::mem::replace(&mut self.doubled, true) || self.depart(RepairKind::DoubledMarker, end - marker.len()..end)
    }

    /// Counts bytes that follow it to the call that ended last; says where they end.
    pub(crate) fn append_to_last(&mut self, blank: &[u8], marker: &[u8]) -> Option<usize> {
        let call = self.done.last_mut()?;
        for bytes in [blank, marker] {
            call.raw.push_str(&String::from_utf8_lossy(bytes));
            call.range.end += bytes.len();
        }
        Some(call.range.end)
    }
}

/// As much of a key as is told.
fn shortened(key: &str) -> String {
    if key.len() > KEY { key.chars().take(KEY).chain(['…']).collect() } else { key.to_owned() }
}

/// Nine letters and digits, the shape that the strictest chat templates demand.
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
