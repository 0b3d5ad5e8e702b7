//! One value between tags.
//!
//! Its bytes go into one of several sinks: a string that streams, JSON that streams, or a buffer for what only the end
//! decides, such as whether `5` is the whole value or the beginning of `5 apples`. The buffer is bounded; a longer
//! value keeps the type that it had so far.

mod end;

use super::Around;
use super::output::Output;
use super::plan::{CDATA, CDATA_END, ENDS, ENDS_ROUGHLY, ESCAPED, STARTS, TaggedPlan};
use crate::format::schema::Types;
use crate::parse::calls::Calls;
use crate::parse::event::{DiagnosticKind, RepairKind};
use crate::parse::repair::{Cut, Stops, Transducer};
use crate::parse::text::Utf8;
use crate::tool::CallProblem;
use end::{Doubt, Verdict};
use serde_json::Value;
use std::ops::Range;
use std::sync::Arc;

/// Maximum bytes to hold of a value whose type is decided at its end.
const HELD: usize = 4096;
const LITERALS: [&[u8]; 6] = [b"true", b"false", b"null", b"True", b"False", b"None"];

#[derive(Debug)]
pub(super) struct ValueReader {
    plan: Arc<TaggedPlan>,
    repair: bool,
    /// Its closing tag, and the tag that it closes.
    closing: Vec<u8>,
    opening: Vec<u8>,
    /// Whether neither the closing tag nor another one can be taken for another one.
    closing_is_distinct: bool,
    /// The place of the first tag that was closed in the value but not opened in it, and whether one was opened after that:
    /// then it is the next argument, with a broken beginning.
    unopened: Option<usize>,
    mixed: bool,
    /// The place of the first such tag that was opened in it.
    opened: Option<usize>,
    /// Whether a tag before the value is missing, and whether the closing tag is.
    pub(super) unstarted: bool,
    open: bool,
    /// The tag right before the value.
    before: Vec<u8>,
    /// The number of such tags in the value that are not closed.
    inner: usize,
    types: Types,
    /// Number of open elements around it.
    depth: usize,
    /// Output before the value: brackets, a comma, the key.
    prefix: String,
    sink: Sink,
    /// Length of the skipped part of the declared white space before the value, and whether all of it came.
    lead: usize,
    led: bool,
    /// Whether the value is in a CDATA section.
    cdata: bool,
    /// Possible end of the value; the first byte has offset `held_at`.
    held: Vec<u8>,
    held_at: usize,
    /// Bytes that may be text after the value.
    doubt: Option<Doubt>,
    /// Whether an end marker became part of a value.
    pub(super) has_end: bool,
    /// Whether the last byte before that was a line break, and whether it was a quote.
    line_start: bool,
    after_quote: bool,
    /// The value so far, while none of it was written.
    raw: Vec<u8>,
    raw_at: usize,
    json: Transducer,
    /// Whether that reader repairs nothing.
    strict: bool,
    /// Whether a number came, followed by white space.
    ended: bool,
    reports: Vec<(RepairKind, Range<usize>)>,
    utf8: Utf8,
    /// Start of the text value in the output.
    text_from: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sink {
    /// Only white space came.
    Start,
    Text,
    Json,
    /// JSON, if it continues as it began; otherwise text.
    Maybe,
    /// A number or a word, if nothing follows; otherwise text.
    Scalar,
}

/// How a value ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ValueEnd {
    /// With its closing tag.
    Closed,
    /// The same, and the text from this offset on was already read.
    ClosedBefore(usize),
    /// It contains elements; the first one's name is at this offset.
    Children(usize),
    /// The closing tag is missing: another argument begins. Its name is at `at` and its tag ends at `end`.
    Key { key: String, at: usize, end: usize },
    /// The closing tag is missing: the end marker is at this offset.
    Marker(usize),
}

impl ValueReader {
    pub(super) fn new(plan: &Arc<TaggedPlan>, repair: bool) -> ValueReader {
        ValueReader {
            plan: Arc::clone(plan),
            repair,
            closing: Vec::new(),
            opening: Vec::new(),
            closing_is_distinct: false,
            before: Vec::new(),
            inner: 0,
            unopened: None,
            mixed: false,
            opened: None,
            unstarted: false,
            open: false,
            types: Types::default(),
            depth: 0,
            prefix: String::new(),
            sink: Sink::Start,
            lead: 0,
            led: false,
            cdata: false,
            held: Vec::new(),
            held_at: 0,
            doubt: None,
            has_end: false,
            line_start: false,
            after_quote: false,
            raw: Vec::new(),
            raw_at: 0,
            json: Transducer::new(repair),
            strict: !repair,
            ended: false,
            reports: Vec::new(),
            utf8: Utf8::default(),
            text_from: 0,
        }
    }

    pub(super) fn reset(&mut self) {
        if !self.json.is_empty() {
            self.json.reset();
        }
        self.sink = Sink::Start;
        (self.lead, self.cdata, self.line_start, self.ended) = (0, false, false, false);
        (self.led, self.after_quote) = (false, false);
        self.held.clear();
        (self.inner, self.unopened, self.mixed) = (0, None, false);
        (self.opened, self.unstarted, self.open, self.text_from) = (None, false, false, 0);
        self.doubt = None;
        self.raw.clear();
        self.reports.clear();
        self.utf8 = Utf8::default();
    }

    /// The value of the argument `key` begins after `tag`, inside `depth` open elements. `separator` and, if it is
    /// `named`, its key are written before it.
    pub(super) fn begin(&mut self, key: &str, tag: &[u8], types: Types, separator: &str, named: bool, depth: usize) {
        self.reset();
        self.plan.before(key, tag, &mut self.before);
        self.plan.around(key, &mut self.opening, &mut self.closing);
        self.closing_is_distinct = self.plan.is_distinct(&self.closing, &self.before);
        (self.types, self.depth) = (types, depth);
        self.prefix.clear();
        self.prefix.push_str(separator);
        if named {
            push_json(key, &mut self.prefix);
            self.prefix.push_str(": ");
        }
        // If the schema does not say, only exact JSON is not a string.
        let strict = !self.repair || types.is_unknown();
        if strict != self.strict {
            self.json = Transducer::new(!strict);
            self.strict = strict;
        }
    }

    pub(super) fn types(&self) -> Types {
        self.types
    }

    pub(super) fn take_closing(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.closing)
    }

    /// Writes the prefix of the value, if it was not written yet.
    pub(super) fn push_prefix(&mut self, output: &mut Output) {
        output.push(&self.prefix);
        self.prefix.clear();
    }

    /// Takes bytes, the first of which has offset `at`; returns how many, and how the value ended if it did.
    pub(super) fn feed(
        &mut self,
        input: &[u8],
        at: usize,
        stops: &Stops,
        output: &mut Output,
        around: &Around<'_>,
        calls: &mut Calls,
    ) -> (usize, Option<ValueEnd>) {
        let mut i = 0;
        while i < input.len() {
            if self.held.is_empty() {
                if let Some(end) = self.doubt_over() {
                    self.end_doubt(end.is_some(), stops, output, calls);
                    if let Some(end) = end {
                        return (i, Some(ValueEnd::ClosedBefore(end)));
                    }
                }
                let run = self.plain(&input[i..]);
                if run > 0 {
                    self.data(&input[i..i + run], at + i, stops, output, calls);
                    i += run;
                    continue;
                }
                if self.doubt.is_some() && self.starts_call(&input[i..]) {
                    return (i, self.ended_at_doubt(stops, output, calls));
                }
                if let Some(length) = self.closed(&input[i..]) {
                    self.end_doubt(false, stops, output, calls);
                    return (i + length, Some(ValueEnd::Closed));
                }
                self.held_at = at + i;
                if let Some((length, closing, marked)) = self.doubted(&input[i..]) {
                    self.held.extend_from_slice(&input[i..i + length]);
                    self.begin_doubt(at + i + closing, marked);
                    i += length;
                    continue;
                }
            }
            self.held.push(input[i]);
            i += 1;
            while !self.held.is_empty() {
                match self.verdict(output, around, calls) {
                    Verdict::Wait => break,
                    Verdict::End(end) => return (i, Some(self.end_of(end, stops, output, calls))),
                    Verdict::Ended => return (i, self.ended_at_doubt(stops, output, calls)),
                    Verdict::Doubt { end, marked } => self.begin_doubt(end, marked),
                    Verdict::Doubled => {
                        output.report(RepairKind::DoubledMarker, self.held_at..self.held_at + self.held.len(), calls);
                        self.held.clear();
                    }
                    Verdict::Cdata => {
                        self.cdata = true;
                        self.held.clear();
                    }
                    Verdict::Part => self.let_go(stops, output, calls),
                }
            }
        }
        (i, None)
    }

    /// How the value ends: after a doubt whether it continues, only its closing tag shows that it did.
    fn end_of(&mut self, end: ValueEnd, stops: &Stops, output: &mut Output, calls: &mut Calls) -> ValueEnd {
        let closed = matches!(end, ValueEnd::Closed | ValueEnd::ClosedBefore(_));
        let doubted = self.doubt.as_ref().filter(|_| !closed).map(|doubt| doubt.end);
        self.end_doubt(!closed, stops, output, calls);
        doubted.map_or(end, ValueEnd::ClosedBefore)
    }

    /// The value ended where the doubt about it began.
    fn ended_at_doubt(&mut self, stops: &Stops, output: &mut Output, calls: &mut Calls) -> Option<ValueEnd> {
        let end = self.doubt.as_ref().map(|doubt| doubt.end);
        self.end_doubt(true, stops, output, calls);
        end.map(ValueEnd::ClosedBefore)
    }

    /// The text ends here: returns where the value ended, if only following text would have shown it.
    pub(super) fn end_text(&mut self, stops: &Stops, output: &mut Output, calls: &mut Calls) -> Option<usize> {
        let (end, goes_on) = self.end_of_text()?;
        self.end_doubt(!goes_on, stops, output, calls);
        Some(end)
    }

    /// Returns whether only white space came.
    pub(super) fn is_blank(&self) -> bool {
        self.sink == Sink::Start
    }

    /// Decides a doubt: whether the value `ended` before the doubtful bytes.
    fn end_doubt(&mut self, ended: bool, stops: &Stops, output: &mut Output, calls: &mut Calls) {
        let Some(doubt) = self.doubt.take() else { return };
        if ended {
            self.unopened.take_if(|at| *at >= doubt.at);
            self.opened.take_if(|at| *at >= doubt.at);
        } else {
            self.has_end |= doubt.marked;
            self.data(&doubt.bytes, doubt.at, stops, output, calls);
        }
    }

    /// The first held byte is part of the value, and so are the following ones up to one that may end it.
    fn let_go(&mut self, stops: &Stops, output: &mut Output, calls: &mut Calls) {
        self.count_tag();
        let mut held = std::mem::take(&mut self.held);
        self.data(&held[..1], self.held_at, stops, output, calls);
        let count = if self.doubt.is_some() { 1 } else { 1 + self.plan.run(&held[1..], self.ends()) };
        if count > 1 {
            self.data(&held[1..count], self.held_at + 1, stops, output, calls);
        }
        held.drain(..count);
        self.held = held;
        self.held_at += count;
    }

    /// Counts the tag that the held bytes begin with, and that is part of the value.
    fn count_tag(&mut self) {
        let is = |tag: &[u8]| !tag.is_empty() && self.held.starts_with(tag);
        if self.in_string() {
            return;
        }
        if is(&self.opening) {
            self.opened.get_or_insert(self.held_at);
            self.inner += 1;
            // In a line, the layout shows that it is text.
            self.mixed |= self.unopened.is_some() && !self.is_inline();
        } else if is(&self.closing) {
            self.count_closing();
        }
    }

    /// Counts a closing tag that is part of the value.
    fn count_closing(&mut self) {
        if self.inner == 0 {
            self.unopened.get_or_insert(self.held_at);
        }
        self.inner = self.inner.saturating_sub(1);
    }

    /// Number of bytes at the beginning that cannot belong to the end of the value.
    fn plain(&self, bytes: &[u8]) -> usize {
        let (ends, bytes) = match self.doubt {
            Some(_) => (self.ends() | STARTS, &bytes[..bytes.len().min(self.most_doubted())]),
            None => (self.ends(), bytes),
        };
        let mut count = self.plan.run(bytes, ends);
        if self.sink == Sink::Start {
            return if count == 0 { self.plain_after_lead(bytes, ends) } else { count };
        }
        while !self.cdata && self.is_part(&bytes[count..]) {
            count += 1;
            count += self.plan.run(&bytes[count..], ends);
        }
        count
    }

    /// Returns whether the first of these bytes, which may begin the end of the value, is certainly part of it. The
    /// next one usually shows that.
    fn is_part(&self, bytes: &[u8]) -> bool {
        let [byte, next, ..] = *bytes else { return false };
        let doubt = self.doubt.is_some();
        let may_end = self.plan.may_end(byte, next) || doubt && self.plan.may_start(byte, next);
        !may_end || self.breaks_before_call(bytes)
    }

    /// The same at the beginning of the value, where a line break usually comes first.
    fn plain_after_lead(&self, bytes: &[u8], ends: u8) -> usize {
        let [lead] = self.plan.lead[..] else { return 0 };
        match bytes {
            [byte, rest @ ..] if *byte == lead && self.lead == 0 && self.raw.is_empty() && !self.cdata => {
                let count = self.plan.run(rest, ends);
                if count > 0 { 1 + count } else { 0 }
            }
            _ => 0,
        }
    }

    /// The bytes that have to be checked.
    fn ends(&self) -> u8 {
        let roughly = if self.repair { ENDS_ROUGHLY } else { 0 };
        match self.sink {
            _ if self.cdata => CDATA_END,
            Sink::Start => ENDS | roughly | CDATA,
            _ => ENDS | roughly,
        }
    }

    /// Returns whether the end of a value may occur in a JSON string.
    fn in_string(&self) -> bool {
        matches!(self.sink, Sink::Json | Sink::Maybe) && self.json.in_string()
    }

    /// Returns whether nothing else can belong to the value.
    fn is_settled(&self) -> bool {
        match self.sink {
            Sink::Json => self.json.is_done(),
            Sink::Start | Sink::Scalar => !self.types.is_unknown() && !self.types.has(Types::STRING),
            Sink::Text | Sink::Maybe => false,
        }
    }

    /// The text ends inside the value: drops the possible beginning of a tag.
    pub(super) fn cut(&mut self) {
        self.held.clear();
    }

    /// Reports that the closing tag is missing.
    pub(super) fn report_open(&mut self, at: usize, output: &mut Output, calls: &mut Calls) {
        let at = if self.held.is_empty() { at } else { self.held_at };
        self.open = true;
        output.report(RepairKind::MissingBrackets, at..at, calls);
    }

    /// Bytes of the value.
    fn data(&mut self, bytes: &[u8], at: usize, stops: &Stops, output: &mut Output, calls: &mut Calls) {
        if let Some(doubt) = &mut self.doubt {
            doubt.bytes.extend_from_slice(bytes);
            self.line_start = bytes.last() == Some(&b'\n');
            return;
        }
        let mut rest = bytes;
        while let Some((&byte, after)) = rest.split_first()
            && self.plan.lead.get(self.lead) == Some(&byte)
            && !self.cdata
        {
            self.lead += 1;
            self.led = self.lead == self.plan.lead.len();
            rest = after;
        }
        if !rest.is_empty() {
            self.lead = usize::MAX;
        }
        self.line_start = bytes.last() == Some(&b'\n');
        self.after_quote = matches!(bytes.last(), Some(b'"' | b'\'' | b'`'));
        let mut at = at + bytes.len() - rest.len();
        if self.raw.is_empty() {
            self.raw_at = at;
        }
        while !rest.is_empty() {
            let taken = match self.sink {
                Sink::Start => self.start(rest, output),
                Sink::Text => self.text(rest, output),
                Sink::Json => self.json(rest, at, stops, output, calls),
                Sink::Maybe | Sink::Scalar => self.hold(rest, at, stops, output, calls),
            };
            rest = &rest[taken..];
            at += taken;
        }
    }

    /// The first bytes decide the kind of value; returns how many of them it took.
    fn start(&mut self, bytes: &[u8], output: &mut Output) -> usize {
        if self.types == Types::STRING {
            self.begin_text(output);
            return 0;
        }
        let room = HELD - self.raw.len();
        let blank = bytes.iter().take(room).take_while(|byte| byte.is_ascii_whitespace()).count();
        self.raw.extend_from_slice(&bytes[..blank]);
        if self.raw.len() == HELD {
            self.begin_text(output);
        }
        let Some(&byte) = bytes.get(blank).filter(|_| self.sink == Sink::Start) else { return blank };
        let (unknown, string) = (self.types.is_unknown(), self.types.has(Types::STRING));
        let brackets = self.types.has(Types::OBJECT.or(Types::ARRAY));
        let number = unknown || self.types.has(Types::NUMBER.or(Types::INTEGER));
        let word = unknown || self.types.has(Types::BOOLEAN.or(Types::NULL));
        self.sink = match byte {
            b'{' | b'[' if brackets && !string => {
                self.push_prefix(output);
                Sink::Json
            }
            b'{' | b'[' if unknown || brackets || !string => Sink::Maybe,
            b'{' | b'[' => Sink::Text,
            _ if !unknown && !string => Sink::Scalar,
            b'0'..=b'9' | b'-' if number => Sink::Scalar,
            b'+' | b'.' if number && !unknown => Sink::Scalar,
            b't' | b'f' | b'n' | b'T' | b'F' | b'N' if word => Sink::Scalar,
            _ => Sink::Text,
        };
        if self.sink == Sink::Text {
            self.begin_text(output);
        }
        blank
    }

    /// The value is a string, and the held bytes are its beginning.
    fn begin_text(&mut self, output: &mut Output) {
        self.sink = Sink::Text;
        self.push_prefix(output);
        self.text_from = output.text.len();
        output.push("\"");
        let raw = std::mem::take(&mut self.raw);
        self.text(&raw, output);
    }

    fn text(&mut self, bytes: &[u8], output: &mut Output) -> usize {
        // Usually all of it is whole characters, which then need no further check.
        let text = std::str::from_utf8(bytes).ok().filter(|_| self.utf8.is_empty());
        let mut rest = bytes;
        loop {
            let run = self.plan.run(rest, ESCAPED);
            let from = bytes.len() - rest.len();
            match text.and_then(|text| text.get(from..from + run)) {
                Some(characters) => output.push(characters),
                None => self.utf8.push(&rest[..run], &mut output.text),
            }
            let Some(&byte) = rest.get(run) else { return bytes.len() };
            self.utf8.end(&mut output.text);
            match byte {
                b'"' => output.push("\\\""),
                b'\\' => output.push("\\\\"),
                b'\n' => output.push("\\n"),
                b'\r' => output.push("\\r"),
                b'\t' => output.push("\\t"),
                _ => output.push(&format!("\\u{byte:04x}")),
            }
            rest = &rest[run + 1..];
        }
    }

    /// Bytes of JSON that streams.
    fn json(&mut self, bytes: &[u8], at: usize, stops: &Stops, output: &mut Output, calls: &mut Calls) -> usize {
        if self.json.is_done() {
            let blank = bytes.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            if blank < bytes.len() {
                output.report(RepairKind::StrayText, at + blank..at + blank + 1, calls);
            }
            return bytes.len();
        }
        let taken = self.json.feed(bytes, at, stops, false);
        self.pass_json(output, calls);
        taken
    }

    fn pass_json(&mut self, output: &mut Output, calls: &mut Calls) {
        output.push(&self.json.take_stable());
        for (kind, place) in self.reports.drain(..) {
            output.report(kind, place, calls);
        }
        while let Some((kind, place)) = self.json.take_report() {
            output.report(kind, place, calls);
        }
    }

    /// Bytes of an undecided value; returns how many it took.
    fn hold(&mut self, bytes: &[u8], at: usize, stops: &Stops, output: &mut Output, calls: &mut Calls) -> usize {
        let taken = bytes.len().min(HELD - self.raw.len());
        let before = self.raw.len();
        self.raw.extend_from_slice(&bytes[..taken]);
        let fits = match self.sink {
            Sink::Maybe => self.try_json(&bytes[..taken], at, stops),
            _ => self.is_scalar(before),
        };
        if !fits {
            self.begin_text(output);
        } else if self.raw.len() == HELD {
            if self.sink == Sink::Maybe {
                self.sink = Sink::Json;
                self.raw.clear();
                self.push_prefix(output);
                self.pass_json(output, calls);
            } else {
                self.begin_text(output);
            }
        }
        taken
    }

    /// Returns whether the value is still JSON with these bytes.
    fn try_json(&mut self, mut bytes: &[u8], mut at: usize, stops: &Stops) -> bool {
        while !bytes.is_empty() && !self.json.is_done() {
            let taken = self.json.feed(bytes, at, stops, false);
            while let Some(report) = self.json.take_report() {
                self.reports.push(report);
            }
            let unquoted = self.reports.iter().any(|(kind, _)| *kind == RepairKind::UnquotedString);
            if self.json.broken_at().is_some() || unquoted && self.types.has(Types::STRING) {
                return false;
            }
            bytes = &bytes[taken..];
            at += taken;
        }
        bytes.trim_ascii().is_empty()
    }

    /// Returns whether the held bytes, with those from `from` on new, may be a JSON number or word. If the schema
    /// allows no string, everything is held, because it cannot be text.
    fn is_scalar(&mut self, from: usize) -> bool {
        if self.is_settled() {
            return true;
        }
        let trimmed = self.raw.trim_ascii();
        if trimmed.first().is_some_and(u8::is_ascii_alphabetic) {
            return LITERALS.iter().any(|literal| literal.starts_with(trimmed));
        }
        for byte in &self.raw[from..] {
            match byte {
                _ if byte.is_ascii_whitespace() => self.ended = true,
                b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E' | b'_' if !self.ended => {}
                _ => return false,
            }
        }
        true
    }

    /// Returns whether the text value at the end of the output ends with a part of its closing tag.
    pub(super) fn ends_broken(&self, output: &Output) -> bool {
        let tail = output.text.len().saturating_sub(2 * self.closing.len() + 16);
        let from = (tail..=output.text.len()).find(|&at| output.text.is_char_boundary(at)).unwrap_or_default();
        let value = output.text[from..].strip_suffix('"').unwrap_or_default();
        self.repair && self.plan.is_broken_closing(value, &String::from_utf8_lossy(&self.closing))
    }

    /// The value has ended.
    pub(super) fn finish(&mut self, at: usize, stops: &Stops, output: &mut Output, calls: &mut Calls) {
        self.held.clear();
        match self.sink {
            Sink::Start => {
                let text = match self.types {
                    Types::OBJECT => "{}",
                    Types::ARRAY => "[]",
                    types if types.has(Types::NULL) && !types.has(Types::STRING) => "null",
                    types => {
                        if !types.is_unknown() && !types.has(Types::STRING) {
                            self.raw.clear();
                        }
                        self.begin_text(output);
                        "\""
                    }
                };
                self.push_prefix(output);
                output.push(text);
            }
            Sink::Text => {
                self.text_ended(output, calls);
            }
            Sink::Json => {
                if self.json.in_string() {
                    // It is unknown how much of the following text is inside the string.
                    calls.blame(CallProblem::UnclosedString);
                }
                self.json.cut(at);
                self.pass_json(output, calls);
                if let Some(at) = self.json.broken_at() {
                    calls.diagnose(DiagnosticKind::BrokenJson, at..at + 1);
                }
            }
            Sink::Maybe if self.json.is_done() => {
                self.push_prefix(output);
                self.pass_json(output, calls);
            }
            Sink::Maybe => self.finish_text(output, calls),
            Sink::Scalar => match self.read_scalar(stops) {
                Some(text) => {
                    self.push_prefix(output);
                    for (kind, place) in self.reports.drain(..) {
                        output.report(kind, place, calls);
                    }
                    output.push(&text);
                }
                None => self.finish_text(output, calls),
            },
        }
        self.reset();
    }

    fn finish_text(&mut self, output: &mut Output, calls: &mut Calls) {
        self.begin_text(output);
        self.text_ended(output, calls);
    }

    /// The text value at the end of the output has ended.
    fn text_ended(&mut self, output: &mut Output, calls: &mut Calls) {
        self.utf8.end(&mut output.text);
        output.push("\"");
        if self.mixed || self.ends_broken(output) {
            calls.blame(CallProblem::UnclosedString);
        } else if self.is_damaged(output) {
            calls.blame(CallProblem::DamagedTag);
        } else if let Some((at, tag)) = self.tag_in_it().filter(|_| self.repair) {
            output.report(RepairKind::TagInValue, at..at + tag, calls);
        }
    }

    /// The place and the length of the first tag of the format in the value.
    fn tag_in_it(&self) -> Option<(usize, usize)> {
        let closing = self.unopened.map(|at| (at, self.closing.len()));
        let opening = self.opened.map(|at| (at, self.opening.len()));
        closing.into_iter().chain(opening).min()
    }

    /// Returns whether the text value at the end of the output contains a damaged tag.
    fn is_damaged(&self, output: &Output) -> bool {
        if !self.repair || !(self.unstarted || self.open || self.unopened.is_some() || self.opened.is_some()) {
            return false;
        }
        let text: String = serde_json::from_str(&output.text[self.text_from..]).unwrap_or_default();
        let (text, plan) = (text.as_bytes(), &self.plan);
        self.unstarted && plan.begins_with_damaged_opening(text)
            || self.open && plan.ends_with_damaged_closing(text, &self.closing)
            || self.opened.is_some() && plan.closes_before(text, &self.opening, &self.closing)
            || self.unopened.is_some() && plan.goes_on_after_damage(text, &self.closing)
    }

    /// The JSON of the held bytes, if it is a value that the schema allows.
    fn read_scalar(&mut self, stops: &Stops) -> Option<String> {
        let string = self.types.has(Types::STRING);
        let mut json = Transducer::new(!self.strict);
        let mut rest = self.raw.trim_ascii();
        let mut at = self.raw_at + self.raw.len() - self.raw.trim_ascii_start().len();
        while !rest.is_empty() && !json.is_done() {
            let taken = json.feed(rest, at, stops, false);
            rest = &rest[taken..];
            at += taken;
            while let Some(report) = json.take_report() {
                self.reports.push(report);
            }
        }
        let whole = rest.is_empty() && json.cut(at) == Cut::Whole;
        while let Some(report) = json.take_report() {
            self.reports.push(report);
        }
        let text = json.stable();
        let value = serde_json::from_str::<Value>(text).ok().filter(|_| whole);
        let fits = value.is_some_and(|value| !string || self.types.has(Types::of(&value)));
        if !fits {
            self.reports.clear();
        }
        fits.then(|| text.to_owned())
    }
}

/// Writes `text` as a JSON string.
fn push_json(text: &str, out: &mut String) {
    if text.bytes().all(|byte| byte >= b' ' && !matches!(byte, b'"' | b'\\')) {
        out.extend(["\"", text, "\""]);
    } else {
        out.push_str(&Value::from(text).to_string());
    }
}
