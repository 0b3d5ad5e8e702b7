//! The calls of one text while they are being read: what is reported, and how they end.

mod ids;
mod marks;
mod open;
mod verdict;

use super::coerce::Coercer;
use super::duplicates;
use super::event::{Diagnostic, DiagnosticKind, Event, Repair, RepairKind};
use super::machinery::Machinery;
use super::names;
use super::parsed::ParsedCall;
use crate::message::Arguments;
use crate::schema::{self, Schema, Step};
use crate::tool::{CallProblem, Tool, Tools};
use ids::Ids;
use open::{Open, Out};
use serde_json::{Map, Value};
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

pub(crate) use marks::Marks;

/// Number of diagnostics to keep; the rest is counted.
const DIAGNOSTICS: usize = 100;
/// Maximum size of a buffer to keep for the next call.
const SPARE: usize = 16 << 10;
/// Number of bytes after a start marker to look at, to tell prose from a call.
const PROSE: usize = 96;
/// Maximum length of a key in a report.
const KEY: usize = 100;

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

/// A state of the calls to return to; none is open.
#[derive(Debug)]
pub(crate) struct Mark {
    events: usize,
    done: usize,
    repairs: usize,
    diagnostics: usize,
    next_id: usize,
    doubled: bool,
    left_out: (usize, Range<usize>),
}

impl Mark {
    /// The number of calls before it.
    pub(crate) fn done(&self) -> usize {
        self.done
    }

    /// The number of events before it that were not sent.
    pub(crate) fn events(&self) -> usize {
        self.events
    }

    /// The first `count` events were sent.
    pub(crate) fn sent(&mut self, count: usize) {
        self.events = self.events.saturating_sub(count);
    }
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
    pub writes_ids: bool,
    /// Whether calls are forbidden.
    pub forbidden: bool,
    /// The format's tags.
    pub marks: Marks,
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
    ids: Ids,
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
            writes_ids: false,
            forbidden: false,
            marks: Marks::default(),
            any_number: false,
            closing: false,
            cut_off: false,
            text_ended: false,
            tools,
            ids: Ids::new(first, taken),
            open: None,
            spare: Vec::new(),
            spare_text: String::new(),
            doubled: false,
            left_out: (0, 0..0),
        }
    }

    /// The present state.
    pub(crate) fn mark(&self) -> Mark {
        Mark {
            events: self.events.len(),
            done: self.done.len(),
            repairs: self.repairs.len(),
            diagnostics: self.diagnostics.len(),
            next_id: self.ids.next(),
            doubled: self.doubled,
            left_out: self.left_out.clone(),
        }
    }

    /// Returns to an earlier state: what came since was no call.
    pub(crate) fn rewind(&mut self, mark: Mark) {
        self.events.truncate(mark.events);
        self.ids.rewind(mark.next_id, self.done.drain(mark.done..).map(|call| call.id));
        self.repairs.truncate(mark.repairs);
        self.diagnostics.truncate(mark.diagnostics);
        (self.doubled, self.left_out) = (mark.doubled, mark.left_out);
        self.open = None;
    }

    /// Joins adjacent deltas of one kind from the event `from` on: they are held for long.
    pub(crate) fn join_deltas(&mut self, from: usize) {
        let mut held = self.events.split_off(from.min(self.events.len()));
        held.dedup_by(|next, last| match (next, last) {
            (Event::CallArguments { id: next, delta: more }, Event::CallArguments { id, delta }) if next == id => {
                delta.push_str(more);
                true
            }
            (Event::Text { delta: more }, Event::Text { delta })
            | (Event::Reasoning { delta: more }, Event::Reasoning { delta }) => {
                delta.push_str(more);
                true
            }
            _ => false,
        });
        self.events.append(&mut held);
    }

    /// A call begins at offset `start`.
    pub(crate) fn open(&mut self, start: usize) {
        self.doubled = false;
        self.open = Some(Open::new(start, std::mem::take(&mut self.spare)));
    }

    /// The end of the open call so far.
    pub(crate) fn open_end(&self) -> Option<usize> {
        self.open.as_ref().map(|open| open.range().end)
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

    /// The open call is none; returns its text.
    pub(crate) fn abandon(&mut self) -> Vec<u8> {
        self.open.take().map(|open| open.raw).unwrap_or_default()
    }

    /// Returns whether what follows the open call's start marker is prose, which is about the marker: words in the same
    /// line, without a name. `in_line` is whether there is text before the marker as well.
    pub(crate) fn is_prose(&self, tail: &[u8], in_line: bool) -> bool {
        let Some(open) = self.open.as_ref().filter(|open| open.name.is_none() && open.id.is_none() && self.repair)
        else {
            return false;
        };
        let payload = open.raw.get(open.payload..).unwrap_or_default();
        let beginning = [&payload[..payload.len().min(PROSE)], &tail[..tail.len().min(PROSE)]].concat();
        let text = String::from_utf8_lossy(&beginning);
        if !in_line && !text.starts_with(' ') || text.trim_start_matches([' ', '\t', '\r']).starts_with('\n') {
            return false;
        }
        let mut words = text.split_whitespace();
        let (Some(first), Some(second)) = (words.next(), words.next()) else { return false };
        let plain = |word: &str| {
            let word = word.trim_matches(['.', ',', ':', ';', '!', '?', '\'', '"', '`', '*', ')']);
            word.chars().all(|c| c.is_alphanumeric() || matches!(c, '\'' | '-' | '’'))
        };
        plain(first) && plain(second) && !self.is_known_tool(first) && !self.is_known_tool(&format!("{first} {second}"))
    }

    /// The payload of the open call begins after the bytes kept so far.
    pub(crate) fn begin_payload(&mut self) {
        if let Some(open) = &mut self.open {
            open.payload = open.raw.len();
        }
    }

    /// Returns whether the open call has not yet reported this departure.
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
        if let Some(open) = &mut self.open {
            open.broken |= matches!(kind, DiagnosticKind::BrokenJson | DiagnosticKind::BrokenCall);
        }
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
        let from = open.arguments_from();
        let mut places = duplicates::places(&open.raw[from..]);
        let (from, whole) = (open.start + from, open.range());
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

    /// The schema of the arguments of the tool that the open call names, if it is known.
    pub(crate) fn schema(&self) -> Option<&Schema> {
        self.tools.as_ref()?.schema(self.open.as_ref()?.name.as_ref()?)
    }

    /// The tools, if they are known.
    pub(crate) fn tools(&self) -> Option<Arc<Tools>> {
        self.tools.clone()
    }

    /// Returns whether the tools are known.
    pub(crate) fn has_tools(&self) -> bool {
        self.tools.is_some()
    }

    /// Returns whether a tool has exactly this name.
    pub(crate) fn has_tool(&self, name: &str) -> bool {
        self.tools.as_ref().is_some_and(|tools| tools.get(name).is_some())
    }

    /// Returns whether this may be the name of a call: it means one of the tools, or they are unknown.
    pub(crate) fn is_tool(&self, name: &str) -> bool {
        self.tools.as_ref().is_none_or(|tools| names::meant(name, tools).is_some())
    }

    /// Returns whether the tools are known and this name means one of them.
    pub(crate) fn is_known_tool(&self, name: &str) -> bool {
        self.tools.is_some() && self.is_tool(name)
    }

    /// The same for a name in front of a parenthesis, as in any code.
    pub(crate) fn is_tool_in_code(&self, name: &str) -> bool {
        self.tools.as_ref().is_some_and(|tools| names::meant_in_code(name, tools).is_some())
    }

    /// Returns whether a known tool's name in code begins like this, ignoring case and separators.
    pub(crate) fn may_become_tool(&self, begun: &str) -> bool {
        self.tools.as_ref().is_some_and(|tools| names::may_begin_in_code(begun, tools))
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

    /// The tool's name at the beginning of a payload.
    pub(crate) fn name_in(&self, machinery: &Machinery, payload: &[u8]) -> Option<String> {
        let mut calls = self.trial();
        machinery.plan.reader(true).feed(payload, 0, machinery.stops(), false, &mut calls);
        calls.name().map(str::to_owned)
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
        if open.id.is_some() || id.is_empty() || !self.ids.claim(&id) {
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
        if (open.id.is_some() || !self.writes_ids) && !self.text_ended {
            self.say_start();
        }
    }

    /// The open call, and what it needs to send its events.
    fn sending(&mut self) -> Option<(&mut Open, Out<'_>)> {
        let out = Out { events: &mut self.events, ids: &mut self.ids, text_ended: self.text_ended };
        Some((self.open.as_mut()?, out))
    }

    /// Sends the open call's start, and the arguments that waited for it.
    fn say_start(&mut self) {
        if let Some((open, mut out)) = self.sending() {
            open.say_start(&mut out);
        }
    }

    /// More of the arguments of the open call, whose name is known.
    pub(crate) fn delta(&mut self, delta: &str) {
        let coerce = self.repair && self.coerce;
        if let Some((open, mut out)) = self.sending() {
            open.delta(delta, coerce, &mut out);
        }
    }

    /// Reports the first coercion of each kind.
    fn report_coercions(&mut self) {
        let coerced = self.open.as_mut().map(|open| std::mem::take(&mut open.coerced)).unwrap_or_default();
        for (kind, start, written) in coerced {
            if let Some(open) = &self.open {
                let place = open.place_of(start, &written);
                self.depart(kind, place);
            }
        }
    }

    /// The arguments of the open call begin at offset `at`, and are passed on unchanged.
    pub(crate) fn begin_arguments(&mut self, at: usize) {
        if let Some(open) = &mut self.open {
            open.arguments_at = Some(at);
        }
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
            let kind = if empty { DiagnosticKind::EmptyCall } else { DiagnosticKind::MissingName };
            self.diagnose(kind, open.range());
            self.start(String::new(), 0..0);
        }
        let marked = self.marks.are_in(text.as_bytes());
        let Some(written) = self.end_arguments(text, sent, apart, complete) else { return };
        self.keep(marker);
        let Some(mut open) = self.open.take() else { return };
        let form = verdict::Form {
            ended: ending.complete,
            closed: self.closing,
            forbidden: self.forbidden,
            refused: open.refused,
            empty,
            broken: ending.broken,
            blamed: std::mem::take(&mut open.blamed),
        };
        let blamed = !form.blamed.is_empty();
        let mut problems = form.problems();
        let (arguments, problem, spare) = written.arguments(self.repair);
        problems.extend(problem.filter(|_| !blamed));
        if let Some(spare) = spare.filter(|spare| spare.capacity() <= SPARE) {
            self.spare_text = spare;
        }
        self.diagnose_arguments(&arguments, open.range());
        let name = open.name.take().unwrap_or_default();
        problems.extend(verdict::of_tools(&name, &arguments, self.tools.as_deref()));
        if problems.is_empty() && open.broken {
            // A coercion made JSON of what is none.
            problems.push(CallProblem::NotJson);
        }
        let (id, said, range) = (open.id.take().unwrap_or_default(), open.said, open.range());
        let valid = problems.is_empty();
        let raw = self.raw_text(open.raw);
        let tag_in_value = marked || open.seen.contains(&RepairKind::TagInValue);
        if valid && marked && !open.seen.contains(&RepairKind::TagInValue) {
            self.diagnose(DiagnosticKind::TagInValue, range.clone());
        }
        let other_form = open.seen.contains(&RepairKind::OtherForm);
        let call = ParsedCall { id, name, arguments, raw, range, complete, valid, problems, tag_in_value, other_form };
        self.events.push(match said {
            true => Event::CallEnd { id: call.id.clone(), complete, valid },
            false => Event::InvalidCall(call.invalid()),
        });
        self.done.push(call);
    }

    /// Sends and reads what remains of the open call's arguments, and reports what is wrong with them.
    fn end_arguments(&mut self, text: String, sent: usize, apart: bool, complete: bool) -> Option<verdict::Written> {
        let coerce = self.repair && self.coerce;
        let (open, mut out) = self.sending()?;
        let text = open.end_arguments(text, sent, coerce, &mut out);
        if complete || !out.text_ended {
            open.say_start(&mut out);
            open.say_completed(out.events);
        } else {
            open.settle_id(out.ids);
        }
        self.report_coercions();
        let (written, inexact) = verdict::Written::read(text, apart, self.any_number);
        if let Some(problem) = inexact {
            self.blame(problem);
        }
        // Without this argument the call would do something else than intended.
        if let Some(name) = written.object().and_then(|object| self.misplaced_argument(object)) {
            self.blame(CallProblem::MisplacedArgument { name: name.clone() });
        }
        if let Some(name) = written.object().and_then(|object| self.swallowed_argument(object)) {
            self.blame(CallProblem::SwallowedArgument { name });
        }
        self.report_again(written.again());
        Some(written)
    }

    /// Reports arguments that are not JSON, if nothing in the call at `range` was reported that explains it.
    fn diagnose_arguments(&mut self, arguments: &Arguments, range: Range<usize>) {
        let unread = |error: &serde_json::Error| !error.to_string().contains("number out of range");
        if let Arguments::Raw(text) = arguments
            && serde_json::from_str::<Value>(text).as_ref().is_err_and(unread)
            && !self.diagnostics.iter().any(|said| said.range.start >= range.start && said.kind.tells_of_arguments())
        {
            self.diagnose(DiagnosticKind::BrokenJson, range);
        }
    }

    /// The text of a call. Its buffer is kept for the next call, unless it is large.
    fn raw_text(&mut self, raw: Vec<u8>) -> String {
        // Lossy conversion is several times slower, and rarely needed.
        if raw.len() > SPARE {
            let mut raw = String::from_utf8(raw).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into());
            raw.shrink_to_fit();
            return raw;
        }
        let text = match std::str::from_utf8(&raw) {
            Ok(text) => text.to_owned(),
            Err(_) => String::from_utf8_lossy(&raw).into_owned(),
        };
        self.spare = raw;
        self.spare.clear();
        text
    }

    /// A key next to the open call's arguments that is one of its tool's parameters and is missing in them.
    fn misplaced_argument(&self, arguments: &Map<String, Value>) -> Option<&String> {
        let schema = self.schema()?;
        let ignored = self.open.as_ref()?.ignored.iter();
        ignored.into_iter().find(|key| !arguments.contains_key(*key) && schema::knows(schema, key))
    }

    /// An argument that is inside another one, or a key of the call that is among the arguments, because a bracket is
    /// missing.
    fn swallowed_argument(&self, arguments: &Map<String, Value>) -> Option<String> {
        let open = self.open.as_ref().filter(|open| open.seen.contains(&RepairKind::MissingBrackets))?;
        let schema = self.schema()?;
        // In other notations an argument's place shows where it belongs.
        let closed = schema.is_declared() && open.arguments_at.is_some();
        let beside = arguments.keys().find(|key| closed && !schema::knows(schema, key));
        let within = || {
            arguments.iter().find_map(|(key, value)| {
                let member = Step::Member(key.clone());
                let is_own = |inner: &String| {
                    let path = [member.clone(), Step::Member(inner.clone())];
                    schema::types(schema, &path).is_unknown()
                };
                let missing = |inner: &String| !arguments.contains_key(inner) && schema::knows(schema, inner);
                value.as_object()?.keys().find(|inner| missing(inner) && is_own(inner))
            })
        };
        let quoted = || {
            let names = schema::names(schema).into_iter().filter(|name| !arguments.contains_key(name));
            names.into_iter().find(|name| arguments.values().any(|value| mentions_argument(value, name)))
        };
        beside.or_else(within).cloned().or_else(quoted)
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

/// Returns whether a text in the value looks as if it had the argument `name` in it: `, name:` or `, name=`.
fn mentions_argument(value: &Value, name: &str) -> bool {
    match value {
        Value::String(text) => text.match_indices(name).any(|(at, _)| {
            let quoted = |c: char| c.is_whitespace() || matches!(c, '"' | '\'');
            text[..at].trim_end_matches(quoted).ends_with(',')
                && text[at + name.len()..].trim_start_matches(quoted).starts_with([':', '='])
        }),
        Value::Array(items) => items.iter().any(|item| mentions_argument(item, name)),
        Value::Object(object) => object.values().any(|value| mentions_argument(value, name)),
        _ => false,
    }
}

/// A key, shortened for a report.
fn shortened(key: &str) -> String {
    if key.len() > KEY { key.chars().take(KEY).chain(['…']).collect() } else { key.to_owned() }
}
