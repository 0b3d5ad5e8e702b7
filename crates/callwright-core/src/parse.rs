//! The streaming parser: bytes of a model's text in, events out.
//!
//! Parsing the whole text again at every token takes quadratic time, and the differences between two such parses are
//! not always additions. This parser looks at each byte once. Text passes at once, and is held back only if it may
//! become a marker; a call's payload streams through its own reader. The parser never fails: a departure from the
//! format ends as a call with flags, repairs and diagnostics, or as text.

pub mod auto;
mod bytes;
mod calls;
mod coerce;
mod duplicates;
pub mod event;
mod evidence;
mod head;
pub(crate) mod machinery;
mod markers;
mod markup;
mod names;
mod nearly;
mod note;
mod other_calls;
mod other_forms;
mod parsed;
mod payload;
#[cfg(feature = "unstable")]
pub mod reader;
#[cfg(not(feature = "unstable"))]
pub(crate) mod reader;
mod repair;
mod shape;
mod spelling;
mod suffix;
mod tail;
mod text;
mod trailing;
mod trial;

use crate::error::Result;
use crate::format::{Format, Payload};
use crate::tool::Tools;
use calls::Calls;
use event::{Event, RepairKind};
use evidence::Sources;
use machinery::Machinery;
use markers::{Candidate, Context, START, Scanner, State};
use other_calls::{Bracket, Forms};
use other_forms::look::Lines;
use payload::{PayloadReader, Terminator, Then};
use std::ops::Range;
use std::sync::Arc;
use text::Text;
use trial::{Failed, Recent, Trial};

#[cfg_attr(feature = "unstable", visibility::make(pub))]
pub(crate) use self::{
    evidence::NoCall,
    note::{Note, NoteKind, notes},
    other_forms::opening::{Opening, Opens},
    parsed::{SessionFacts, message_to_json},
};
pub use other_forms::OtherForms;
pub use parsed::{Parsed, ParsedCall, ParserOptions, ReasoningOutput};

/// Bytes taken at a time, so that events do not accumulate.
const BLOCK: usize = 8 << 10;

/// Number of events to reserve space for.
const EVENTS: usize = 128;

/// Parses one answer of a model while it is being written.
///
/// The events do not depend on how the text is split into pieces, once adjacent deltas are joined.
///
/// - Up to 32 bytes of white space right before a start marker and right after an end marker belong to the markup, as
///   they do around reasoning and sections. If text follows a call, the white space before the call is kept as a
///   separator.
/// - A marker inside a JSON string is part of the string, unless a raw line break is right before or after it, or the
///   text ends there. Valid JSON has none of these, so a quote is missing.
/// - A near miss of a start marker counts only if `{`, `[{` or a code fence follows, or the first letter of a name in
///   formats that begin with one; otherwise it is text. The same applies to a start marker in reasoning: it ends the
///   reasoning only if a call follows.
/// - A start marker of punctuation only, such as `>>>`, counts only if a name and `{` follow, or a name at the text's
///   end: ordinary text contains such punctuation.
/// - In a format without start marker, a call is an object whose first keys are those of a call: the name, and the
///   arguments unless a known tool has that name. It must begin the answer or a line, or follow another call.
/// - Text between a call's JSON and the end marker is not for the user: it is kept in [`ParsedCall::raw`]. If no end
///   marker comes within 256 bytes, the call has ended, and text from the next line on is for the user. In a format
///   without end marker, the call ends with its last bracket.
/// - The format's own keys take precedence over aliases, in any order. A value under an alias is held back until the
///   object ends, or for 1 KiB (16 KiB before the name); longer arguments count as the call's. Names, ids and unknown
///   keys of more than 4 KiB are ignored.
/// - In a format that writes the id into a call's object, the call's start waits for the id, until the object ends or 1
///   KiB of arguments came. A later id is ignored, because events are never revised.
/// - With several calls between one pair of markers, each call's `raw` ends where the next one begins.
/// - If the format says that prompts open reasoning and the prompt is unknown, an answer begins inside reasoning unless
///   a marker comes first.
/// - JSON at the beginning of a section, in place of a call, is read as calls. A section without any is text, and is
///   reported.
///
/// ```
/// use callwright_core::parse::event::Event;
/// use callwright_core::{Format, Parser, ParserOptions};
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
/// # Ok::<(), callwright_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Parser {
    machinery: Arc<Machinery>,
    /// Whether a call ends with its payload.
    open_ended: bool,
    text: Text,
    reasoning: Text,
    /// Whether the position is inside reasoning.
    thinking: bool,
    /// Whether the position is inside hidden text, and that text.
    hiding: bool,
    hidden: Text,
    /// Whether prompts open the reasoning.
    opens: bool,
    /// Whether reasoning may begin after other text.
    interleaves: bool,
    /// Whether the answer is assumed to begin in reasoning, and neither text nor a marker came yet.
    pending: bool,
    /// Whether the text has the beginning of reasoning as a word.
    named_reasoning: bool,
    /// Whether reasoning is separated from text.
    separate: bool,
    /// Where the last control token is.
    control: Range<usize>,
    calls: Calls,
    forms: Forms,
    /// Calls that may be text, the outer ones first.
    trials: Vec<Trial>,
    /// The trial that turned out to be text.
    failed: Option<Failed>,
    /// Doubtful calls that begin before this offset are text.
    refused: usize,
    /// All calls that begin before this offset are text.
    quoted_to: usize,
    recent: Recent,
    sources: Sources,
    /// Whether all calls are meant.
    trusted: bool,
    /// Whether a grammar holds calls from their beginning on.
    constrained: bool,
    /// The open section, if it has no call yet.
    section: Option<Section>,
    payload: Option<Box<dyn PayloadReader>>,
    /// A reader to reuse for the next call.
    spare: Option<Box<dyn PayloadReader>>,
    scan: State,
    /// The context of the held bytes, in whose automaton the state is.
    scan_in: Context,
    /// Bytes that may be part of a marker: the last `held.len()` before `at`.
    held: Vec<u8>,
    /// A spare buffer for `held`.
    spare_held: Vec<u8>,
    /// A match that one with precedence may still replace: its pattern, and its end in `held`.
    candidate: Option<(u8, usize)>,
    /// Where the text was interrupted: its length, and the offset.
    marks: Vec<(usize, usize)>,
    /// The part of the answer that is in the prompt, until it is read.
    tail: Option<String>,
    /// Length of that part: internal offsets count from its beginning, public ones from its end.
    base: usize,
    /// Length of what prompts open of a call, while it may turn out to be no call. It is not part of the text then.
    opened: usize,
    /// Offset of the next byte.
    at: usize,
}

/// An open section of calls.
#[derive(Debug, Clone)]
struct Section {
    /// The range of its marker.
    place: Range<usize>,
    /// Whether only white space has followed.
    blank: bool,
}

impl Parser {
    /// A parser for `format`; with `tools` it also checks whether a call fits its tool.
    ///
    /// Fails if the format's markers are not searchable, which [`Format::parse_declaration`] would have reported.
    pub fn new(format: &Format, tools: Option<Arc<Tools>>, options: ParserOptions) -> Result<Parser> {
        let machinery = format.machinery()?;
        let spare = Some(machinery.plan.reader(options.repair));
        let session = options.session;
        let mut calls =
            Calls::new(tools, options.repair, session.earlier_calls + 1, session.taken_ids.into_iter().collect());
        (calls.coerce, calls.normalize_names) = (options.coerce, options.normalize_names);
        (calls.forbidden, calls.any_number) = (session.forbidden, session.any_number);
        calls.marks = calls::Marks::of(format);
        calls.writes_ids = matches!(&format.payload, Payload::Json(keys) if keys.id.is_some());
        let opened = format.opened.as_deref().unwrap_or_default();
        let tail = match options.prompt_tail.as_str() {
            // The end of what prompts write is enough to recognise it.
            tail if opened.trim_end().ends_with(tail.trim()) => opened,
            tail => tail::of_answer(tail, format),
        };
        let opened =
            format.opened.as_deref().map_or(0, |opened| if tail.starts_with(opened) { opened.len() } else { 0 });
        Ok(Parser {
            machinery,
            open_ended: format.end.is_none(),
            text: Text::new(format.start.is_none()),
            reasoning: Text::after_markup(),
            thinking: false,
            hiding: false,
            hidden: Text::after_markup(),
            opens: format.reasoning_open,
            interleaves: format.reasoning_interleaved,
            pending: format.reasoning_open && options.prompt_tail.is_empty(),
            named_reasoning: false,
            separate: true,
            control: 0..0,
            calls,
            forms: Forms::new(options.other_forms),
            trials: Vec::new(),
            failed: None,
            refused: 0,
            quoted_to: 0,
            recent: Recent::default(),
            sources: Sources::new(&session.sources),
            trusted: session.trusted,
            constrained: session.constrained,
            section: None,
            payload: None,
            spare,
            scan: START,
            scan_in: Context::Text,
            held: Vec::new(),
            spare_held: Vec::new(),
            candidate: None,
            marks: Vec::new(),
            base: tail.len(),
            opened,
            tail: Some(tail.to_owned()),
            at: 0,
        }
        .with_reasoning(options.reasoning, format))
    }

    /// Reads the prompt's tail, if this is possible before the model's text.
    fn with_reasoning(mut self, output: ReasoningOutput, format: &Format) -> Parser {
        if output == ReasoningOutput::Separate {
            return self;
        }
        // Reasoning that the prompt closed is not the model's; reasoning that it opened begins the answer.
        let tail = self.tail.take().unwrap_or_default();
        (self.separate, self.pending) = (false, false);
        let opened = tail::open_reasoning(&tail, format);
        // What every prompt writes is not the model's either: without the prompt, the answer reads the same.
        let start = format.reasoning.as_ref().filter(|_| self.opens).and_then(|reasoning| reasoning.start.text());
        let own = start.and_then(|start| Some(opened.strip_prefix(start.trim())?.trim_start()));
        self.tail = Some(own.unwrap_or(opened).to_owned());
        self.base = self.tail.as_ref().map_or(0, String::len);
        self
    }

    /// Takes the next bytes of the model's text and passes their events to `emit`.
    pub fn push(&mut self, bytes: &[u8], emit: &mut impl FnMut(Event)) {
        self.read_tail();
        for block in bytes.chunks(BLOCK) {
            self.recent.push(block, self.needed());
            self.consume(block);
            self.settle();
            if let Some(payload) = &mut self.payload {
                payload.flush(&mut self.calls);
            }
            self.send_text(self.undecided());
            self.send(emit);
        }
    }

    /// Takes a control token of the model's vocabulary. A marker that is one is never a quotation.
    pub fn push_control(&mut self, token: &[u8], emit: &mut impl FnMut(Event)) {
        self.read_tail();
        self.control = self.at..self.at + token.len();
        self.push(token, emit);
    }

    /// From here on a grammar closes what the remaining tokens do not suffice for, so a call that ends now is
    /// incomplete.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn closing(&mut self) {
        self.calls.closing = true;
    }

    /// From here on calls are forbidden, as with [`SessionFacts::forbidden`](parsed::SessionFacts::forbidden).
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn forbid_calls(&mut self) {
        self.calls.forbidden = true;
    }

    /// The text will end at a token limit, or because the caller stops it. A call is then incomplete if only the text's
    /// end shows that it ended, for example with a missing quote before its last marker.
    pub fn cut_off(&mut self) {
        self.calls.cut_off = true;
    }

    /// Ends the model's text.
    pub fn finish(mut self, emit: &mut impl FnMut(Event)) -> Parsed {
        self.read_tail();
        self.end_calls();
        while self.failed.is_some() || self.end_trials() {
            self.settle();
            self.end_calls();
        }
        self.confirm_trials();
        self.text.end();
        self.reasoning.end();
        self.send_text(0);
        self.send(emit);
        self.end_section();
        self.report_shape();
        self.calls.end_diagnostics();
        let base = self.base;
        let Calls { mut done, mut repairs, mut diagnostics, .. } = self.calls;
        done.iter_mut().for_each(|call| shift(&mut call.range, base));
        repairs.iter_mut().for_each(|repair| shift(&mut repair.range, base));
        diagnostics.iter_mut().for_each(|diagnostic| shift(&mut diagnostic.range, base));
        let reasoning = self.reasoning.into_content();
        Parsed {
            content: self.text.into_content(),
            reasoning: (!reasoning.is_empty()).then_some(reasoning),
            calls: done,
            repairs,
            diagnostics,
            origin: None,
        }
    }

    /// The text has ended: decides on what is held back, and ends an open call.
    fn end_calls(&mut self) {
        if self.forms.expects() {
            self.refuse_trailer();
        }
        let mut unfinished = self.at - self.held.len();
        self.end_held();
        // Everything that the model wrote, however the text was split.
        if let Some(payload) = &mut self.payload {
            payload.flush(&mut self.calls);
        }
        while let Some(payload) = &mut self.payload
            && let Some(from) = payload.before_end(self.at, self.machinery.stops(), &mut self.calls)
        {
            self.look_again(from, &[]);
            unfinished = self.at - self.held.len();
            self.end_held();
        }
        if let Some(payload) = &mut self.payload {
            self.calls.end_text();
            // The prefix of a marker.
            payload.forget_text(unfinished, &mut self.calls);
            self.end_call(Terminator::Text, &[], &[]);
        }
    }

    /// Decides on the held bytes at the end of the text.
    fn end_held(&mut self) {
        while !self.held.is_empty() {
            // A string that quotes a marker and is cut right after it looks like a string with a missing quote.
            let undecided = self.calls.cut_off && self.context() == Context::String;
            let scanner = self.machinery.markers.scanner(self.context());
            if let Some(pattern) = scanner.walk().matched_at_end(self.scan).filter(|_| !undecided) {
                self.candidate = Some((pattern, self.held.len()));
            }
            match self.candidate.take() {
                Some((pattern, end)) => self.resolve(pattern, end),
                None => self.release(self.held.len()),
            }
        }
    }

    fn read_tail(&mut self) {
        if let Some(tail) = self.tail.take() {
            self.recent.push(tail.as_bytes(), None);
            self.consume(tail.as_bytes());
            self.settle();
            // The model may leave at once what the prompt opened.
            if self.opens && self.thinking && self.held.is_empty() && self.reasoning.is_empty() {
                (self.thinking, self.pending) = (false, true);
            }
        }
    }

    fn send(&mut self, emit: &mut impl FnMut(Event)) {
        let certain = self.certain_events();
        if let Some(trial) = self.trials.last() {
            // The trials know how many events came before them.
            self.calls.join_deltas(trial.events());
        }
        self.sent_events(certain);
        for mut event in self.calls.events.drain(..certain) {
            match &mut event {
                Event::Repair(repair) => shift(&mut repair.range, self.base),
                Event::InvalidCall(call) => shift(&mut call.position, self.base),
                _ => {}
            }
            emit(event);
        }
        if self.calls.events.is_empty() {
            self.calls.events.shrink_to(EVENTS);
        }
    }

    fn context(&self) -> Context {
        match &self.payload {
            Some(payload) => payload.context(),
            None if self.thinking => Context::Reasoning,
            None if self.forms.mode != OtherForms::Off => Context::AnyForm,
            None => Context::Text,
        }
    }

    /// Sends the text so far, except for the last `held` bytes.
    fn send_text(&mut self, held: usize) {
        if let Some(delta) = self.text.news(held) {
            self.calls.events.push(Event::Text { delta: delta.to_owned() });
        }
        if let Some(delta) = self.reasoning.news(0) {
            self.calls.events.push(Event::Reasoning { delta: delta.to_owned() });
        }
    }

    /// The destination of bytes outside calls.
    fn prose(&mut self) -> &mut Text {
        match (self.thinking, self.hiding) {
            (true, true) => &mut self.hidden,
            (true, false) => &mut self.reasoning,
            (false, _) => &mut self.text,
        }
    }

    /// Bytes outside calls that are not a marker.
    fn push_prose(&mut self, bytes: &[u8]) {
        let bytes = if self.opened == 0 { bytes } else { self.without_opened(bytes) };
        if self.pending && !bytes.trim_ascii().is_empty() {
            self.pending = false;
            self.begin_reasoning(&[]);
        }
        self.prose().push(bytes);
        if !self.trials.is_empty() {
            self.prose_refutes();
        }
    }

    /// The bytes without what the prompt opened of a call that is none.
    pub(super) fn without_opened<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let opened = self.opened.min(bytes.len());
        self.opened -= opened;
        &bytes[opened..]
    }

    fn consume(&mut self, mut input: &[u8]) {
        let mut machinery = Arc::clone(&self.machinery);
        while !input.is_empty() && self.failed.is_none() {
            if !Arc::ptr_eq(&machinery, &self.machinery) {
                machinery = Arc::clone(&self.machinery);
            }
            if self.forms.expects() && self.payload.is_none() && !self.thinking {
                let taken = self.trailer(input);
                input = &input[taken..];
                continue;
            }
            if self.scan == START {
                let any = self.payload.is_none() && self.context() == Context::AnyForm;
                let (taken, again) = if self.payload.is_some() {
                    self.feed(input, self.at, true)
                } else {
                    let markers = &machinery.markers;
                    if let Some(blank) = self.before_json(input, markers.scanner(Context::Text)) {
                        self.at += blank;
                        input = &input[blank..];
                        continue;
                    }
                    let mut lines = Lines::default();
                    let look = |byte, at: usize| match self.pending {
                        // Whether these bytes begin reasoning is not yet known.
                        true => Candidate::Stop,
                        false => self.candidate(byte, &input[..at], &mut lines),
                    };
                    let plain = match any {
                        true => markers.plain_in_any_form(input, look),
                        false => markers.scanner(self.context()).plain(input),
                    };
                    self.push_prose(&input[..plain]);
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
                let Some(&next) = input.first() else { break };
                // The bytes before it may have begun reasoning.
                if self.context() == Context::AnyForm && matches!(next, b'(' | b'{') {
                    match self.bracket(next) {
                        Bracket::Text => {
                            self.push_prose(&[next]);
                            self.at += 1;
                            input = &input[1..];
                            continue;
                        }
                        Bracket::Begun => continue,
                        Bracket::Unknown => {}
                    }
                }
            }
            let context = self.context();
            if self.scan != START && self.scan_in != context {
                // Text that was released has changed which markers may come: the rest of what was held is read as what it is now.
                let held = self.take_held();
                self.at -= held.len();
                (self.scan, self.candidate) = (START, None);
                self.consume(&held);
                self.give_held(held);
                continue;
            }
            let scanner = machinery.markers.scanner(context);
            let longest = self.longest(scanner, input);
            let before = self.held.len();
            let mut count = 0;
            let mut walk = scanner.walk();
            let (mut state, mut candidate) = (self.scan, self.candidate);
            let mut restarts = false;
            for &byte in input {
                let next = walk.step(state, byte);
                // In a whole text, fewer than three of these bytes are skipped before the marker.
                restarts = context == Context::AnyForm
                    && candidate.is_none()
                    && next != START
                    && machinery.markers.are_skipped(&self.held, &input[..=count]);
                if restarts {
                    break;
                }
                state = next;
                count += 1;
                if let Some(pattern) = walk.matched(state) {
                    candidate = Some((pattern, before + count));
                }
                let decided = match candidate {
                    Some((_, end)) => !walk.can_go_on(state) || before + count >= end + longest,
                    None => state == START || before + count >= 2 * longest,
                };
                if decided {
                    break;
                }
            }
            (self.scan, self.candidate, self.scan_in) = (state, candidate, context);
            self.held.extend_from_slice(&input[..count]);
            self.at += count;
            input = &input[count..];
            let can_go_on = self.candidate.is_some() && walk.can_go_on(self.scan);
            drop(walk);
            match self.candidate {
                _ if restarts => self.release(self.held.len()),
                Some((pattern, end)) if !can_go_on || self.held.len() >= end + longest => {
                    self.resolve(pattern, end);
                }
                Some(_) => {}
                None if self.scan == START => self.release(self.held.len()),
                // Release in blocks, so that a long run of possible markers takes linear time.
                None if self.held.len() >= 2 * longest => self.hold_no_more(longest),
                None => {}
            }
        }
    }

    /// Maximum length of a marker that begins with the first held byte, or with the first of `input`. Only calls in
    /// other forms are long; text that may be the format's own marker is not held back for them.
    fn longest(&self, scanner: &Scanner, input: &[u8]) -> usize {
        let text = self.machinery.markers.scanner(Context::Text);
        let first = self.held.first().or(input.first()).copied().unwrap_or_default();
        let own = text.begins.has(first) && !b"{[(<`".contains(&first);
        if own && self.context() == Context::AnyForm { text.longest.min(scanner.longest) } else { scanner.longest }
    }

    /// Feeds the open call's payload. Returns how many bytes it took, and from where on to scan bytes again because the
    /// call ended there or its context changed.
    fn feed(&mut self, mut input: &[u8], mut at: usize, markers: bool) -> (usize, Option<usize>) {
        let mut total = 0;
        loop {
            let Some(payload) = &mut self.payload else { return (total, None) };
            let (taken, then) = payload.feed(input, at, self.machinery.stops(), markers, &mut self.calls);
            self.calls.keep(&input[..taken]);
            input = &input[taken..];
            total += taken;
            at += taken;
            let several = match then {
                Then::More if self.open_ended && payload.is_closed() => {
                    self.at = at - total;
                    self.end_call_at(at, Terminator::End, &[], &[]);
                    return (total, Some(at));
                }
                Then::More => return (total, None),
                Then::Again(from) => return (total, Some(from)),
                Then::NextCall => false,
                Then::SeveralCalls => true,
            };
            let ending = payload.end(Terminator::NextCall, &[], at, self.machinery.stops(), &mut self.calls);
            self.calls.close(ending, &[]);
            payload.next_call();
            self.calls.open(at);
            if let Some(kind) = self.forms.departure() {
                self.calls.depart(kind, at..at + 1);
            }
            if several {
                self.calls.depart(RepairKind::SeveralCalls, at..at + 1);
            }
        }
    }

    /// The held bytes are not a marker: passes all of them on and restarts the scan.
    fn release(&mut self, count: usize) {
        self.scan = START;
        self.release_front(count);
    }

    fn release_front(&mut self, count: usize) {
        let start = self.at - self.held.len();
        let mut held = self.take_held();
        match self.pass(&held[..count], start) {
            Some((taken, from)) => {
                self.look_again(from, &held[taken..]);
                self.give_held(held);
            }
            None => {
                held.drain(..count);
                self.spare_held = std::mem::replace(&mut self.held, held);
            }
        }
    }

    /// The held bytes begin a call with a long argument, or the first `count` of them are not a marker.
    fn hold_no_more(&mut self, count: usize) {
        if !self.begins_long_call() {
            self.release_front(count);
        }
    }

    /// Takes the held bytes; the caller returns the buffer.
    fn take_held(&mut self) -> Vec<u8> {
        std::mem::replace(&mut self.held, std::mem::take(&mut self.spare_held))
    }

    fn give_held(&mut self, mut held: Vec<u8>) {
        held.clear();
        self.spare_held = held;
    }

    /// Bytes at offset `at` that are not a marker. If some have to be scanned again, returns how many were taken and
    /// from where on.
    fn pass(&mut self, bytes: &[u8], at: usize) -> Option<(usize, usize)> {
        if self.payload.is_some() {
            let (taken, again) = self.feed(bytes, at, false);
            return again.map(|from| (taken, from));
        }
        self.push_prose(bytes);
        None
    }

    /// Takes back the payload's bytes from offset `from` on, and scans them and the following bytes again.
    fn look_again(&mut self, from: usize, followed: &[u8]) {
        let mut bytes = self.calls.take_back(from);
        bytes.extend_from_slice(followed);
        self.scan = START;
        self.at = from;
        self.consume(&bytes);
    }

    /// The held bytes contain a marker that ends at `end`. Acts on it and scans the rest again, at most a marker's
    /// length.
    fn resolve(&mut self, pattern: u8, end: usize) {
        let context = self.context();
        let held = self.take_held();
        let found = self.machinery.markers.scanner(context).locate(&held, pattern, end);
        self.candidate = None;
        self.scan = START;
        self.at -= held.len();
        let Some(mut found) = found else {
            self.at += end;
            match self.pass(&held[..end], self.at - end) {
                Some((taken, from)) => self.look_again(from, &held[taken..]),
                None => self.consume(&held[end..]),
            }
            return self.give_held(held);
        };
        let is_payload = self.payload.is_some() && self.is_payload(&held, found, context);
        if self.payload.is_some() && !is_payload {
            let (taken, again) = self.feed(&held[..found.start], self.at, false);
            if let Some(from) = again {
                // The call ended before the marker, or its context changed.
                self.look_again(from, &held[taken..]);
                return self.give_held(held);
            }
        }
        if self.pending && !held[..found.start].trim_ascii().is_empty() {
            // Reasoning began before the marker, and has other markers.
            self.at += found.start;
            self.push_prose(&held[..found.start]);
            self.consume(&held[found.start..]);
            return self.give_held(held);
        }
        let pending = std::mem::take(&mut self.pending);
        let acted = match context {
            Context::Text | Context::AnyForm | Context::Reasoning => self.marker_in_prose(&held, &mut found),
            Context::Structure | Context::String | Context::Raw => {
                if is_payload {
                    self.leave_in_payload(&held, found);
                } else {
                    self.marker_in_call(&held, found, context);
                }
                !is_payload
            }
        };
        if !acted {
            self.pending = pending;
            // A match that is all payload has no length of its own.
            found.end = found.end.max(found.start + 1);
            self.at += found.end;
            if let Some((taken, from)) = self.pass(&held[..found.end], self.at - found.end) {
                self.look_again(from, &held[taken..]);
                return self.give_held(held);
            }
        } else {
            self.at += found.end;
        }
        self.consume(&held[found.end..]);
        self.give_held(held);
    }
}

/// Makes offsets relative to the end of the prompt.
fn shift(range: &mut Range<usize>, base: usize) {
    *range = range.start.saturating_sub(base)..range.end.saturating_sub(base);
}
