//! The effects of markers: calls, reasoning and sections begin and end.

use super::{Parser, Section};
use crate::parse::event::{DiagnosticKind, RepairKind};
use crate::parse::markers::{Context, Found, Scanner, Side};
use crate::parse::other_forms::look::TAIL;
use crate::parse::payload::Terminator;
use serde_json::Value;
use std::ops::Range;

impl Parser {
    /// A marker outside calls; `at` is the offset of `held`. False if it is just text.
    pub(super) fn marker_in_prose(&mut self, held: &[u8], found: &mut Found) -> bool {
        let place = self.at + found.start..self.at + found.end;
        let acted = self.act_in_prose(held, found, place);
        if acted {
            self.opened = 0;
        }
        acted
    }

    fn act_in_prose(&mut self, held: &[u8], found: &mut Found, place: Range<usize>) -> bool {
        if let Some(suffix) = self.machinery.suffix.as_ref().filter(|_| found.sign.exact)
            && let Some(machinery) = suffix.machinery_for(&held[found.start..found.end])
        {
            self.spare = Some(machinery.plan.reader(self.calls.repair));
            self.machinery = machinery;
        }
        let before = &held[..found.start];
        // The text before another form may be part of its call.
        let is_other = matches!(found.sign.side, Side::Other(_) | Side::Fence);
        if !(is_other && before.trim_ascii().is_empty()) && self.marker_refutes(before) {
            return false;
        }
        match found.sign.side {
            Side::End => return self.end_marker_in_prose(held, *found, place),
            Side::Start | Side::Bare => return self.start_marker(held, *found, place),
            Side::ReasoningStart | Side::ReasoningEnd | Side::Hidden if !self.separate => return false,
            Side::ReasoningStart => {
                if !self.may_begin_reasoning(&held[..found.start]) {
                    return false;
                }
                self.reasoning_begins_again();
                self.begin_reasoning(&held[..found.start]);
            }
            Side::ReasoningEnd if !self.may_end_reasoning(&held[..found.start]) => return false,
            Side::ReasoningEnd if self.closing_refutes(before, place.start) => {}
            Side::SectionStart | Side::SectionEnd if !found.sign.exact && !self.is_near_section(found) => {
                return false;
            }
            Side::SectionEnd if place.start < self.quoted_to => return false,
            Side::SectionStart if !self.begins_section(&held[..found.start], place.clone()) => return false,
            Side::ReasoningEnd | Side::SectionStart | Side::SectionEnd => {
                self.leave_prose(&held[..found.start]);
                self.text.after_markup_here();
                self.markup_ended();
                if !found.sign.exact {
                    self.calls.depart(RepairKind::NearMissMarker, place.clone());
                }
                if found.sign.side != Side::ReasoningEnd {
                    self.end_section();
                }
                if found.sign.side == Side::SectionStart {
                    self.section = Some(Section { place, blank: true });
                }
            }
            Side::Hidden => {
                self.begin_reasoning(&held[..found.start]);
                self.hiding = true;
                self.calls.diagnose(DiagnosticKind::HiddenText, place);
            }
            Side::Stray => return self.stray(held, found, place),
            Side::EmptySection => {
                if !self.text.begins_line(&held[..found.start]) || !self.calls.repair {
                    return false;
                }
                self.leave_prose(&held[..found.start]);
                self.text.after_markup_here();
                self.calls.diagnose(DiagnosticKind::EmptySection, place);
            }
            Side::Other(form) => return self.other_call(form, held, found),
            Side::OtherEnd => return self.other_end(held, *found),
            Side::Fence => {
                self.fence(held, *found);
                return false;
            }
            Side::Markup => {
                let before = self.without_opened(&held[..found.start]);
                let prose = self.prose();
                prose.push(before);
                // A call without its own marker may follow.
                prose.begin_line();
                // An answer does not begin with the line break after its markup.
                if prose.is_empty() {
                    prose.after_markup_here();
                } else {
                    prose.markup_here();
                }
            }
        }
        true
    }

    /// Returns whether a section of calls begins here, which may be quoted as calls are.
    fn begins_section(&mut self, before: &[u8], place: Range<usize>) -> bool {
        let doubt = self.weigh_marked(before);
        self.begin_if_meant(doubt, place, "")
    }

    /// Markup without a call, which is left out right after a call and at the end of the text.
    fn stray(&mut self, held: &[u8], found: &mut Found, place: Range<usize>) -> bool {
        let end = self.machinery.end.len();
        let is_end = end > 0 && held[found.start..].starts_with(&self.machinery.end);
        if is_end && (!self.calls.repair || found.start == 0 && self.text.right_after_call().is_some()) {
            found.end = found.start + end;
            return self.end_marker_in_prose(held, *found, place.start..place.start + end);
        }
        let after_call = found.start == 0 && self.text.only_blank_since_call().is_some();
        if !self.calls.repair || found.sign.exact && !after_call {
            return false;
        }
        let shown = if after_call { 0 } else { self.shown_tags(&held[found.start..found.end]) };
        let start = found.start + shown;
        if start == found.end {
            return false;
        }
        let place = place.start + shown..place.end;
        self.stray_markup(&held[start..found.end]);
        self.leave_prose(&held[..start]);
        self.text.after_markup_here();
        self.calls.diagnose(DiagnosticKind::StrayMarkup, place);
        true
    }

    /// Length of the closing tags at the beginning of `stray` whose opening tags are in the text: it shows how calls are
    /// written.
    fn shown_tags(&self, stray: &[u8]) -> usize {
        let Ok(stray) = std::str::from_utf8(stray) else { return 0 };
        let (text, _) = self.text.tail(TAIL);
        let mut shown = 0;
        while let Some(length) = stray[shown..].find('>').map(|at| at + 1) {
            let tag = stray[shown..shown + length].trim();
            let name = tag.strip_prefix("</").and_then(|tag| tag.strip_suffix('>'));
            if !name.is_some_and(|name| text.contains(&format!("<{name}"))) {
                break;
            }
            shown += length;
        }
        shown
    }

    /// An end marker without an open call: it may belong to a call in another form, or to the last call.
    fn end_marker_in_prose(&mut self, held: &[u8], found: Found, place: Range<usize>) -> bool {
        if self.other_end(held, found) {
            return true;
        }
        if found.start == 0
            && self.calls.repair
            && let Some(blank) = self.text.right_after_call()
        {
            let blank = std::mem::take(blank);
            return self.calls.extend_last(&blank, &held[found.start..found.end]);
        }
        self.calls.diagnose(DiagnosticKind::StrayEndMarker, place);
        false
    }

    /// The start of a call, with a marker or bare; false if it is just text.
    fn start_marker(&mut self, held: &[u8], found: Found, place: Range<usize>) -> bool {
        if !found.sign.exact && !self.calls.repair {
            let kind = DiagnosticKind::NotRepaired { repair: RepairKind::NearMissMarker };
            self.calls.diagnose(kind, place);
            return false;
        }
        if !self.names_a_tool(&held[found.end..], found) {
            return false;
        }
        let bare = found.sign.side == Side::Bare;
        let marked = bare && self.text.follows_markup(&held[..found.start]);
        let in_line = bare && !marked && self.is_list_in_line(held, found.start);
        if bare && !marked && !in_line && !self.is_bare_call(held, found.start) {
            return false;
        }
        // A code fence as a marker is no more evidence than one in another form.
        let fence = memchr::memmem::find(&held[found.start..found.end], b"```").is_some();
        let doubt = match bare && !marked || fence {
            true => self.weigh_own_form(&held[..found.start]),
            false => self.weigh_marked(&held[..found.start]),
        };
        if !self.begin_if_meant(doubt, place.clone(), "") {
            if fence {
                // Neither is the object inside of the fence a call.
                self.refuse_to(self.at + held.len());
            }
            return false;
        }
        if marked {
            self.text.keep_blank();
        }
        self.leave_prose(&held[..found.start]);
        self.begin_call(&held[found.start..found.end], found, place.start);
        true
    }

    /// Returns whether a start marker that may also be text is followed by a call. A name at the text's end must be a
    /// tool's, or the beginning of one; after what the prompt opened, it must be whole.
    fn names_a_tool(&self, after: &[u8], found: Found) -> bool {
        let name = String::from_utf8_lossy(after);
        if found.sign.needs_tool() {
            let name = name.split(|c: char| !(c.is_alphanumeric() || "_-.:/".contains(c))).next().unwrap_or_default();
            return self.calls.is_known_tool(name);
        }
        let name = name.trim();
        if !found.sign.is_head() || name.is_empty() || name.contains(['{', '`']) {
            return true;
        }
        let opened = self.opened > 0;
        self.calls.is_known_tool(name) || !opened && (!self.calls.knows_tools() || self.calls.may_become_tool(name))
    }

    /// Returns whether a near miss of a section's marker counts: the end of a section follows a call.
    fn is_near_section(&mut self, found: &Found) -> bool {
        let after_call = found.start == 0 && self.text.only_blank_since_call().is_some();
        self.calls.repair && (found.sign.side == Side::SectionStart || after_call)
    }

    /// Reasoning begins after the text, which ends with `last`.
    pub(super) fn begin_reasoning(&mut self, last: &[u8]) {
        self.leave_prose(last);
        self.text.after_markup_here();
        self.thinking = true;
        self.reasoning.separate();
    }

    /// Returns whether this is a call without a marker: it begins a line, and if it is just a name, it is the name of a
    /// tool, if the tools are known.
    pub(super) fn is_bare_call(&self, held: &[u8], start: usize) -> bool {
        if !self.text.begins_line(&held[..start]) {
            return false;
        }
        if self.machinery.plan.is_python() {
            let name = held[start..].split(|&byte| byte == b'(').next().unwrap_or_default();
            return self.calls.is_tool(String::from_utf8_lossy(name).trim_start_matches('[').trim());
        }
        if self.machinery.plan.is_keyed() {
            // Any object looks like such a call.
            let mut texts = held[start..].split(|&byte| byte == b'"');
            let name = String::from_utf8_lossy(texts.nth(1).unwrap_or_default());
            if texts.nth(1).is_none() {
                let listed = held.get(start) == Some(&b'[');
                return self.calls.is_tool(&name) && (listed || self.calls.has_tools());
            }
        }
        match serde_json::Deserializer::from_slice(&held[start..]).into_iter::<Value>().next() {
            Some(Ok(Value::Object(whole))) => {
                whole.values().filter_map(Value::as_str).any(|name| self.calls.is_tool(name))
            }
            _ => true,
        }
    }

    /// The text or reasoning is interrupted here; it ends with `last`.
    pub(super) fn leave_prose(&mut self, last: &[u8]) {
        let offset = self.at + last.len();
        let last = self.without_opened(last);
        self.prose().push(last);
        if !self.thinking {
            self.mark(offset);
        }
        self.prose().before_markup();
        self.send_text(0);
        if std::mem::take(&mut self.thinking) {
            self.reasoning.after_markup_here();
            self.hiding = false;
        }
    }

    /// Returns whether what looks like a marker inside a call is part of its payload.
    pub(super) fn is_payload(&self, held: &[u8], found: Found, context: Context) -> bool {
        if found.sign.needs_tool() && !self.names_a_tool(&held[found.end..], found) {
            return true;
        }
        let within = context == Context::String && (found.sign.is_head() || found.sign.side == Side::Bare);
        if !self.calls.repair {
            return within || !found.sign.exact;
        }
        let names_a_tool = || {
            let name = self.calls.name_in(&self.machinery, &held[found.end..]);
            name.is_some_and(|name| self.calls.is_known_tool(&name))
        };
        within && !self.machinery.plan.quotes_json() && !names_a_tool()
    }

    /// Reports a marker that would be repaired, and stays a part of the payload.
    pub(super) fn leave_in_payload(&mut self, held: &[u8], found: Found) {
        let names_no_tool = found.sign.needs_tool() && !self.names_a_tool(&held[found.end..], found);
        if !found.sign.exact && !self.calls.repair && !names_no_tool {
            let kind = DiagnosticKind::NotRepaired { repair: RepairKind::NearMissMarker };
            self.calls.diagnose(kind, self.at + found.start..self.at + found.end);
        }
    }

    /// A marker inside a call, in this context; `at` is the offset of `held`.
    pub(super) fn marker_in_call(&mut self, held: &[u8], found: Found, context: Context) {
        let offset = self.at;
        let matched = &held[found.start..found.end];
        // In a string, the match includes the brackets and the line break before the marker.
        let before = match context {
            Context::String => matched.iter().take_while(|b| b"}] \t\r\n,;".contains(b)).count(),
            _ => 0,
        };
        let (tail, marker) = matched.split_at(before);
        let place = offset + found.start + before..offset + found.end;
        if !found.sign.exact && !self.is_prose(tail) {
            if let Some(payload) = &mut self.payload {
                payload.flush(&mut self.calls);
            }
            self.calls.depart(RepairKind::NearMissMarker, place.clone());
        }
        let empty = self.payload.as_ref().is_some_and(|payload| payload.is_empty());
        match found.sign.side {
            Side::End => {
                self.end_call_at(place.start, Terminator::End, tail, marker);
            }
            // Another call in the same list.
            Side::Bare => {
                let Some(payload) = &mut self.payload else { return };
                let ending =
                    payload.end(Terminator::NextCall, tail, place.start, self.machinery.stops(), &mut self.calls);
                self.calls.keep(tail);
                self.calls.close(ending, &[]);
                payload.next_call();
                self.calls.open(place.start);
            }
            Side::Start if self.calls.repair && empty => {
                self.calls.depart(RepairKind::DoubledMarker, place);
                self.calls.keep(marker);
                self.calls.begin_payload();
            }
            Side::Start => {
                let other = self.end_call_at(place.start, Terminator::Start, tail, &[]);
                self.text.before_markup();
                self.send_text(0);
                if let Some(form) = other {
                    self.enter(form);
                }
                self.begin_call(marker, found, place.start);
                if let Some(kind) = self.forms.departure() {
                    self.calls.depart(kind, place);
                }
            }
            _ => {
                self.end_call_at(place.start, Terminator::Start, tail, &[]);
                self.text.before_markup();
                self.text.after_markup_here();
            }
        }
        self.at = offset;
    }

    /// Ends a section. If it has no call, the intended call may be lost in the text, so this is reported.
    pub(super) fn end_section(&mut self) {
        if let Some(section) = self.section.take() {
            self.calls.diagnose(DiagnosticKind::EmptySection, section.place);
        }
    }

    /// Begins a call if a section begins with JSON instead of a call's marker: the model writes another format between
    /// the same markers. Returns the length of the white space before it.
    pub(super) fn before_json(&mut self, input: &[u8], scanner: &Scanner) -> Option<usize> {
        let section = self.section.as_mut().filter(|section| section.blank && self.calls.repair && !self.thinking)?;
        let blank = input.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        let byte = *input.get(blank)?;
        section.blank = false;
        if !matches!(byte, b'{' | b'[') || scanner.begins.has(byte) {
            return None;
        }
        self.section = None;
        self.leave_prose(&input[..blank]);
        self.calls.open(self.at + blank);
        self.calls.begin_payload();
        self.payload = self.spare.take();
        Some(blank)
    }

    pub(super) fn begin_call(&mut self, marker: &[u8], found: Found, start: usize) {
        self.section = None;
        self.calls.open(start);
        self.calls.keep(marker);
        self.calls.begin_payload();
        if !found.sign.exact {
            self.calls.depart(RepairKind::NearMissMarker, start..start + marker.len());
            self.enter_spelling(marker);
        }
        self.payload = self.spare.take();
    }

    pub(super) fn end_call_at(&mut self, at: usize, by: Terminator, tail: &[u8], marker: &[u8]) -> Option<u8> {
        let here = std::mem::replace(&mut self.at, at);
        let other = self.end_call(by, tail, marker);
        self.at = here;
        other
    }

    /// Returns whether what follows the open call's start marker is prose about the marker.
    fn is_prose(&self, tail: &[u8]) -> bool {
        self.calls.is_prose(tail, !self.text.begins_line(&[]))
    }

    /// Ends the open call at `at`, before its marker. Returns its form, if it was another form.
    pub(super) fn end_call(&mut self, by: Terminator, tail: &[u8], marker: &[u8]) -> Option<u8> {
        let mut payload = self.payload.take()?;
        if self.is_prose(tail) {
            self.named_marker_refutes();
            payload.reset();
            self.spare = Some(payload);
            let text = [&self.calls.abandon(), tail, marker].concat();
            self.text.after_markup_here();
            self.text.push(&text);
            return self.leave();
        }
        let text_at = payload.text_at().filter(|_| by != Terminator::End);
        // The bytes before the marker then also belong to the text.
        let (text, tail) = match text_at {
            Some(text_at) => ([&self.calls.take_back(text_at), tail].concat(), &[][..]),
            None => (Vec::new(), tail),
        };
        let at = text_at.unwrap_or(self.at);
        let ending = payload.end(by, tail, at, self.machinery.stops(), &mut self.calls);
        payload.reset();
        self.spare = Some(payload);
        self.calls.keep(tail);
        self.calls.close(ending, marker);
        self.text.after_call();
        self.markup_ended();
        let other = self.leave();
        self.text.push(&text);
        other
    }
}
