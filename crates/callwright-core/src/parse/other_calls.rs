//! Calls in another form than the format's: what begins them, and what follows them.
//!
//! While such a call is open, the form's own machinery replaces the format's.

use super::Parser;
use crate::format::Payload;
use crate::parse::event::{DiagnosticKind, RepairKind};
use crate::parse::machinery::Machinery;
use crate::parse::markers::{Candidate, Context, Found, START};
use crate::parse::other_forms::bare::BareArguments;
use crate::parse::other_forms::look::{
    Before, Lines, Opener, TAIL, Tail, before_brace, before_parenthesis, may_follow_call, undecided,
};
use crate::parse::other_forms::{
    self, ACTION, CALL, FENCED, JSON, MARKED, OtherForms, PYTHON, PYTHON_LIST, REACT, SPELLED, json_name,
};
use crate::parse::payload::PayloadReader;
use crate::parse::payload::json::JsonPayload;
use crate::parse::repair::Dialect;
use crate::parse::spelling;
use std::ops::Range;
use std::sync::Arc;

/// State for calls in other forms.
#[derive(Debug, Default)]
pub(super) struct Forms {
    pub mode: OtherForms,
    /// The form of the open call, or of the last one.
    form: u8,
    /// The format's own reader and machinery, while a call in another form is open.
    own: Option<Own>,
    /// Texts after the payload that belong to the open or last call, in reverse order.
    trailers: Vec<&'static [u8]>,
    /// Matched bytes of the next trailer.
    matched: usize,
    /// Whether the text is inside a code fence.
    fence: bool,
    /// Length of the text at the end of the last call.
    ended_at: Option<usize>,
    /// The forms already reported as read.
    said: Vec<u8>,
    /// The automata for the format with other bars in its markers, as the last such call has them.
    spelled: Option<Arc<Machinery>>,
}

#[derive(Debug)]
struct Own {
    machinery: Arc<Machinery>,
    spare: Option<Box<dyn PayloadReader>>,
    open_ended: bool,
}

/// A state of the forms to return to; no call is open.
#[derive(Debug)]
pub(super) struct Mark {
    form: u8,
    trailers: Vec<&'static [u8]>,
    matched: usize,
    fence: bool,
    ended_at: Option<usize>,
    said: Vec<u8>,
}

/// The meaning of a bracket in text.
pub(super) enum Bracket {
    Text,
    /// A call in another form began before it.
    Begun,
    /// It may begin a marker.
    Unknown,
}

impl Forms {
    pub(super) fn new(mode: OtherForms) -> Forms {
        Forms { mode, ..Forms::default() }
    }

    /// The present state.
    pub(super) fn mark(&self) -> Mark {
        Mark {
            form: self.form,
            trailers: self.trailers.clone(),
            matched: self.matched,
            fence: self.fence,
            ended_at: self.ended_at,
            said: self.said.clone(),
        }
    }

    /// Returns to an earlier state.
    pub(super) fn rewind(&mut self, mark: Mark) {
        let Mark { form, trailers, matched, fence, ended_at, said } = mark;
        let spelled = self.spelled.take();
        *self = Forms { mode: self.mode, form, own: None, trailers, matched, fence, ended_at, said, spelled };
    }

    /// Returns whether the text is inside a code fence.
    pub(super) fn is_in_fence(&self) -> bool {
        self.fence
    }

    /// How the open call departs from the format, if another reader than the format's reads it.
    pub(super) fn departure(&self) -> Option<RepairKind> {
        let kind = if self.form == SPELLED { RepairKind::NearMissMarker } else { RepairKind::OtherForm };
        self.own.is_some().then_some(kind)
    }

    /// Returns whether the following bytes may belong to the last call.
    pub(super) fn expects(&self) -> bool {
        self.own.is_none() && !self.trailers.is_empty()
    }
}

impl Parser {
    /// Length of the text that may yet become a call.
    pub(super) fn undecided(&self) -> usize {
        if !self.reads_other_forms() || self.payload.is_some() {
            return 0;
        }
        let (text, whole) = self.text.tail(TAIL);
        let may_be = |name: &str| self.calls.may_become_tool(name);
        let waits = undecided(Tail { text, whole }, may_be, |name| self.calls.is_known_tool(name));
        // It is unknown what an unfinished character belongs to; white space before a call is not text.
        let blank = if self.text.blank().is_none() { text.len() - text.trim_end().len() } else { 0 };
        waits.max(blank)
    }

    fn reads_other_forms(&self) -> bool {
        self.forms.mode == OtherForms::Read && self.calls.knows_tools() && self.calls.repair && !self.calls.forbidden
    }

    /// The role of a byte that may begin a call, judging by `before`, the text right before it.
    #[inline]
    pub(super) fn candidate(&self, byte: u8, before: &[u8], lines: &mut Lines) -> Candidate {
        if matches!(byte, b'(' | b'{') { self.bracket_candidate(byte, before, lines) } else { Candidate::Unknown }
    }

    fn bracket_candidate(&self, byte: u8, before: &[u8], lines: &mut Lines) -> Candidate {
        let named = self.calls.knows_tools()
            && match byte {
                b'(' => match Before::of(before) {
                    Before::Other => false,
                    Before::Name(name) => str::from_utf8(name).map_or(true, |name| self.calls.is_known_tool(name)),
                    Before::Unknown => true,
                },
                _ => may_follow_call(before) || lines.may_have_action(before),
            };
        match byte {
            _ if named => Candidate::Stop,
            b'(' if !self.machinery.markers.begins_own(byte) => Candidate::Text,
            _ => Candidate::Unknown,
        }
    }

    /// Checks the text before a bracket.
    pub(super) fn bracket(&mut self, byte: u8) -> Bracket {
        let own = self.machinery.markers.begins_own(byte);
        match (byte, self.opener(byte)) {
            (b'(', None) if !own => Bracket::Text,
            (b'{', Some(opener)) if self.begin_at(&opener) => Bracket::Begun,
            _ => Bracket::Unknown,
        }
    }

    /// The text before a bracket, if it begins a call.
    fn opener(&self, byte: u8) -> Option<Opener> {
        if !self.calls.knows_tools() || self.forms.mode == OtherForms::Off {
            return None;
        }
        let (text, whole) = self.text.tail(TAIL);
        let blank = self.text.blank()?;
        let is_tool = |name: &str| self.calls.is_known_tool(name);
        let tail = Tail { text, whole };
        if byte == b'(' {
            let is_tool = |name: &str, listed| if listed { is_tool(name) } else { self.calls.is_tool_in_code(name) };
            return before_parenthesis(tail, is_tool).filter(|_| blank.is_empty());
        }
        before_brace(tail, is_tool).filter(|opener| opener.form == REACT || blank.is_empty())
    }

    /// Begins a call whose name, and other text before the bracket, is at the end of the text. False if it stays text.
    fn begin_at(&mut self, opener: &Opener) -> bool {
        let (text, _) = self.text.tail(TAIL);
        if text[opener.start..].contains(char::REPLACEMENT_CHARACTER) {
            // It may replace bytes that are not text, so its place in the model's text is unknown.
            return false;
        }
        let from = self.text.len() - text.len();
        let name = text[opener.name.clone()].to_owned();
        let (start, call) = (from + opener.start, from + opener.call);
        // The white space before it may come from before another call in the model's text.
        let Some(start) = self.text.written_from(start) else { return false };
        let call = call.max(start);
        let blank = self.text.blank().map_or(0, <[u8]>::len);
        let offset = self.at - (self.text.len() + blank - start);
        let in_fence = self.forms.fence && !opener.fenced;
        if in_fence && !self.goes_on(start) || !self.text.is_unsent(start) && self.reads_other_forms() {
            return false;
        }
        if self.reads_tool(&name) {
            let before = text[..opener.start].to_owned();
            let doubt = self.weigh_after(&before, opener.form == CALL);
            if !self.begin_if_meant(doubt, offset..self.at, &name) {
                return false;
            }
        }
        if !self.accept(opener.form, &name, offset..self.at) {
            return false;
        }
        if in_fence || opener.fenced {
            self.forms.trailers.push(b"```");
        }
        self.forms.fence = false;
        let mut written = self.text.take_back(start);
        let payload = written.split_off(call - start);
        self.leave_prose(&[]);
        self.section = None;
        self.calls.forget_end_markers(offset);
        self.calls.open(offset);
        self.calls.keep(&written);
        self.enter(opener.form);
        let name_at = offset + written.len() + (from + opener.name.start - call);
        self.calls.depart(RepairKind::OtherForm, offset..self.at);
        match opener.form {
            PYTHON | PYTHON_LIST => {
                self.calls.begin_payload();
                self.payload = self.spare.take();
                self.feed(&payload, offset + written.len(), false);
            }
            form => {
                self.calls.keep(&payload);
                self.calls.begin_payload();
                self.calls.start(name.clone(), name_at..name_at + name.len());
                self.payload = Some(arguments(form));
            }
        }
        true
    }

    /// Returns whether the text from that byte on follows the last call in the same code fence.
    fn goes_on(&self, start: usize) -> bool {
        let (text, _) = self.text.tail(TAIL);
        let first = self.text.len() - text.len();
        let ended = self.forms.ended_at.and_then(|at| at.checked_sub(first));
        ended.is_some_and(|ended| text.get(ended..start - first).is_some_and(|between| between.trim().is_empty()))
    }

    /// Handles what looks like the beginning of a call in another form. False if it is text.
    pub(super) fn other_call(&mut self, form: u8, held: &[u8], found: &mut Found) -> bool {
        if self.at + found.start < self.refused {
            return false;
        }
        if form == PYTHON {
            let opener = if found.start == 0 { self.opener(b'(') } else { None };
            return opener.is_some_and(|opener| self.begin_at(&opener));
        }
        let Some(beginning) = self.beginning(form, held, found.start) else { return false };
        let place = self.at + found.start..self.at + beginning.payload;
        if self.reads_tool(&beginning.name) {
            let led_in = form == MARKED || held[found.start..].starts_with(b"```");
            let doubt = self.weigh_other_form(&held[..found.start], led_in);
            if !self.begin_if_meant(doubt, place.clone(), &beginning.name) {
                // Neither is the object inside of a code fence a call.
                self.refuse_to(self.at + held.len());
                return false;
            }
        }
        if !self.accept(beginning.form, &beginning.name, place.clone()) {
            self.refused = self.refused.max(self.at + held.len());
            return false;
        }
        self.forms.trailers.extend(&beginning.trailers);
        self.forms.fence = false;
        let action = if held[found.start..].starts_with(b"```") { self.action_before() } else { None };
        let (begin, start) = match &action {
            Some((offset, _)) => (0, *offset),
            None => (found.start, place.start),
        };
        self.leave_prose(&held[..begin]);
        self.section = None;
        self.calls.open(start);
        self.calls.keep(&action.map_or_else(Vec::new, |(_, written)| written));
        self.calls.keep(&held[begin..beginning.payload]);
        self.calls.begin_payload();
        self.enter(beginning.form);
        self.calls.depart(RepairKind::OtherForm, place);
        self.payload = self.spare.take();
        found.end = beginning.payload;
        true
    }

    /// Takes `Action:` at the end of the text back, which introduces a code fence with calls; returns where it was.
    fn action_before(&mut self) -> Option<(usize, Vec<u8>)> {
        let (text, _) = self.text.tail(TAIL);
        let line = text.rfind('\n').map_or(0, |at| at + 1);
        let start = self.text.len() - text[line..].trim_start().len();
        if text[line..].trim() != "Action:" || !self.text.is_unsent(start) || self.text.written_from(start)? != start {
            return None;
        }
        let offset = self.at - (self.text.len() + self.text.blank()?.len() - start);
        Some((offset, self.text.take_back(start)))
    }

    /// Returns whether the held bytes are the beginning of a call with a long text as its first argument, which then
    /// begins.
    pub(super) fn begins_long_call(&mut self) -> bool {
        if self.context() != Context::AnyForm || self.held.first() != Some(&b'(') {
            return false;
        }
        let Some(opener) = self.opener(b'(') else { return false };
        let held = self.take_held();
        self.at -= held.len();
        let begins = self.begin_at(&opener);
        if begins {
            self.scan = START;
            self.consume(&held);
            self.give_held(held);
        } else {
            self.at += held.len();
            self.held = held;
        }
        begins
    }

    /// Splits the beginning of a call into its parts. `None` if it is quoted, or in a code fence with other text.
    fn beginning(&self, form: u8, held: &[u8], start: usize) -> Option<Beginning> {
        let text = &held[start..];
        let blank = held[..start].iter().all(u8::is_ascii_whitespace);
        let goes_on = blank && self.forms.ended_at == Some(self.text.len());
        if self.forms.fence && !goes_on {
            return None;
        }
        if form == MARKED {
            let form = self.machinery.markers.other_form(text)?;
            let marker = other_forms::form(form)?.start()?.as_bytes();
            let at = text.windows(marker.len()).position(|window| window == marker)? + marker.len();
            let name = self.named(form, &text[at..])?;
            return Some(Beginning { form, name, payload: start + at, trailers: Vec::new() });
        }
        let fenced = text.starts_with(b"```");
        let object = text.iter().position(|byte| matches!(byte, b'{' | b'['))?;
        let list = text.iter().position(|byte| *byte == b'[');
        let quote = text.iter().position(|byte| *byte == b'"')?;
        // The wrapper `{"tool_calls": [` is not read as part of the calls.
        let wrapped = list.filter(|list| quote < *list);
        let payload = wrapped.unwrap_or(object);
        let (name, argued) = json_name(&text[payload..])?;
        let begins_line = self.text.begins_line(&held[..start]);
        // A fence after other text on its line, as in `Action: ```json`, has lines of its own.
        let in_line = fenced && !begins_line && !text[..object].contains(&b'\n');
        if in_line || !argued && (!begins_line || !self.calls.is_known_tool(name)) {
            return None;
        }
        let action = text[payload..].windows(8).any(|window| window == b"\"action\"");
        let mut trailers: Vec<&'static [u8]> = Vec::new();
        if fenced || self.forms.fence {
            trailers.push(b"```");
        }
        if wrapped.is_some() {
            trailers.push(b"}");
        }
        let form = match (action, fenced) {
            (true, _) => ACTION,
            (false, true) => FENCED,
            (false, false) => JSON,
        };
        Some(Beginning { form, name: name.to_owned(), payload: start + payload, trailers })
    }

    /// The tool named at the beginning of a call.
    fn named(&self, form: u8, payload: &[u8]) -> Option<String> {
        let format = other_forms::form(form)?.format();
        if let Payload::Json(json) = &format.payload {
            if json.keyed {
                return std::str::from_utf8(payload).ok()?.split('"').nth(1).map(str::to_owned);
            }
            return json_name(payload).map(|(name, _)| name.to_owned());
        }
        self.calls.name_in(&*format.machinery().ok()?, payload)
    }

    /// Returns whether calls of that tool are read in other forms.
    fn reads_tool(&self, name: &str) -> bool {
        self.reads_other_forms() && self.calls.is_known_tool(name)
    }

    /// Returns whether to read a call of that tool. It is reported either way.
    fn accept(&mut self, form: u8, name: &str, place: Range<usize>) -> bool {
        let Some(found) = other_forms::form(form) else { return false };
        let read = self.reads_tool(name);
        if !read || !self.forms.said.contains(&form) {
            let tool = name.chars().take(100).collect();
            let kind = DiagnosticKind::OtherForm { form: found.words, format: found.fits, tool, read };
            self.calls.diagnose(kind, place);
        }
        if read && !self.forms.said.contains(&form) {
            self.forms.said.push(form);
        }
        read
    }

    /// Switches to that form's machinery for the next call.
    pub(super) fn enter(&mut self, form: u8) {
        let (machinery, open_ended) = match other_forms::form(form) {
            Some(found) => (found.format().machinery().ok(), found.format().end.is_none()),
            None => (self.forms.spelled.clone(), self.open_ended),
        };
        let Some(machinery) = machinery else { return };
        let reader = machinery.plan.reader(self.calls.repair);
        self.forms.form = form;
        self.forms.own = Some(Own {
            machinery: std::mem::replace(&mut self.machinery, machinery),
            spare: self.spare.replace(reader),
            open_ended: std::mem::replace(&mut self.open_ended, open_ended),
        });
    }

    /// Switches to the machinery for a start marker that is written with other bars.
    pub(super) fn enter_spelling(&mut self, marker: &[u8]) {
        let varied = self.machinery.varied.as_ref().filter(|_| self.calls.repair && self.forms.own.is_none());
        if let Some(machinery) = varied.and_then(|declaration| spelling::machinery(declaration, marker)) {
            self.forms.spelled = Some(machinery);
            self.enter(SPELLED);
        }
    }

    /// Ends the call and switches back to the format's own form. Returns the form of the call.
    pub(super) fn leave(&mut self) -> Option<u8> {
        let own = self.forms.own.take()?;
        (self.machinery, self.spare, self.open_ended) = (own.machinery, own.spare, own.open_ended);
        self.forms.matched = 0;
        self.forms.ended_at = Some(self.text.len());
        if self.forms.form != SPELLED {
            // Calls without the format's markers are separated as in a list.
            self.text.separate_calls();
        }
        Some(self.forms.form)
    }

    /// Takes bytes after the payload that belong to the last call; returns how many.
    pub(super) fn trailer(&mut self, input: &[u8]) -> usize {
        for (index, byte) in input.iter().enumerate() {
            let Some(&trailer) = self.forms.trailers.last() else { return index };
            let Some(blank) = self.text.only_blank_since_call() else {
                self.forms.trailers.clear();
                return index;
            };
            if self.forms.matched == 0 && byte.is_ascii_whitespace() && blank.len() < 32 {
                self.text.push(&[*byte]);
                self.at += 1;
            } else if trailer.get(self.forms.matched) == Some(byte) {
                self.forms.matched += 1;
                self.at += 1;
                if self.forms.matched == trailer.len() {
                    let blank = std::mem::take(blank);
                    self.calls.append_to_last(&blank, trailer);
                    self.forms.trailers.pop();
                    self.forms.matched = 0;
                }
            } else {
                self.refuse_trailer();
                return index;
            }
        }
        input.len()
    }

    /// The bytes began like a trailer but are not one.
    pub(super) fn refuse_trailer(&mut self) {
        let trailers = std::mem::take(&mut self.forms.trailers);
        let begun = std::mem::take(&mut self.forms.matched);
        self.forms.fence = trailers.first().is_some_and(|trailer| trailer.starts_with(b"`"));
        if let Some(trailer) = trailers.last().filter(|_| begun > 0) {
            self.at -= begun;
            self.consume(&trailer[..begun]);
        }
    }

    /// A marker that may end a section of the last call's form; it then belongs to that call.
    pub(super) fn other_end(&mut self, held: &[u8], found: Found) -> bool {
        let marker = &held[found.start..found.end];
        let end = other_forms::form(self.forms.form).and_then(|form| form.section_end());
        let follows = self.forms.ended_at.is_some() && end.is_some_and(|end| end.as_bytes() == marker);
        if found.start > 0 || !follows {
            return false;
        }
        let Some(blank) = self.text.right_after_call() else { return false };
        let blank = std::mem::take(blank);
        self.calls.append_to_last(&blank, marker).is_some()
    }

    /// A code fence in text: the following text is inside it, or after it.
    pub(super) fn fence(&mut self, held: &[u8], found: Found) {
        if self.text.begins_line(&held[..found.start]) {
            self.forms.fence = !self.forms.fence;
        }
    }

    /// Returns whether the format writes lists of calls right after text, and this one names a known tool and is not
    /// quoted.
    pub(super) fn is_list_in_line(&self, held: &[u8], start: usize) -> bool {
        let quoted = || self.text.before(&held[..start], 1).ends_with(['`', '"', '\'', '(', '[', '{', '=', '\\']);
        self.machinery.plan.is_in_line()
            && !self.forms.fence
            && !quoted()
            && python_name(&held[start..]).is_some_and(|name| self.calls.is_known_tool(name))
    }
}

/// The name of the first call of a list in Python.
fn python_name(list: &[u8]) -> Option<&str> {
    let name = list.split(|&byte| byte == b'(').next()?;
    Some(std::str::from_utf8(name).ok()?.trim_start_matches('[').trim())
}

/// The parsed beginning of a call in another form.
struct Beginning {
    form: u8,
    name: String,
    /// Start of the payload in the held bytes.
    payload: usize,
    /// Texts after the payload that belong to the call, in reverse order.
    trailers: Vec<&'static [u8]>,
}

/// A reader for the arguments of a call whose name is known.
fn arguments(form: u8) -> Box<dyn PayloadReader> {
    if form == CALL {
        return Box::new(BareArguments::new(true));
    }
    let mut json = JsonPayload::arguments_only(&Dialect::Json, true, true);
    json.expect_arguments(false);
    Box::new(json)
}
