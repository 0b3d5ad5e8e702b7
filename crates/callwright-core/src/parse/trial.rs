//! Calls that may yet turn out to be a quotation, a draft or an example.
//!
//! Whether such a text is a call shows only in what follows it. Until then its events are held back. If it is no call,
//! the parser returns to the place before it and reads the same bytes again as text. Each byte is read again at most once
//! for each reason, so the time stays linear.

use super::Parser;
use super::calls;
use super::event::{Diagnostic, DiagnosticKind};
use super::evidence::{
    Doubt, Following, NoCall, closes_quote, ends_sentence, ends_turn, following, introduces_quotation, is_item,
    open_quote,
};
use super::machinery::Machinery;
use super::markers::START;
use super::other_calls;
use super::other_forms::look::TAIL;
use super::text::{self, Text};
use std::ops::Range;
use std::sync::Arc;

/// Bytes of the model's text to keep, so that a call's beginning can be read again: more than are held as a marker.
const RECENT: usize = 4 << 10;
/// Number of bytes from which on older ones are dropped.
const MOST_RECENT: usize = 8 << 10;

/// The state before a doubtful call.
#[derive(Debug)]
pub(super) struct Trial {
    doubt: Doubt,
    /// Offset from which to read again.
    at: usize,
    /// Offset of the call's first byte, which may come after text that was held with it.
    begins: usize,
    since: Since,
    /// What had come since the calls of the trials before it. It comes again when this one is read again.
    earlier: Vec<Since>,
    calls: calls::Mark,
    text: text::Mark,
    reasoning: text::Mark,
    hidden: text::Mark,
    thinking: bool,
    hiding: bool,
    pending: bool,
    named_reasoning: bool,
    opened: usize,
    refused: usize,
    section: Option<super::Section>,
    forms: other_calls::Mark,
    /// The markers may get another suffix after this.
    machinery: Arc<Machinery>,
}

/// What has come since the calls of a trial.
#[derive(Debug, Clone, Copy)]
struct Since {
    /// Whether the reasoning was closed right after the call.
    closed: bool,
    /// Length of the text up to which nothing but calls, punctuation and markup has come.
    calls_to: usize,
    /// Whether the turn has ended after the calls: nothing after that counts.
    turn_ended: bool,
}

/// A trial that ended as text.
#[derive(Debug)]
pub(super) struct Failed {
    /// Its index.
    trial: usize,
    /// Doubtful calls that begin before this offset are text.
    until: usize,
    why: NoCall,
}

/// What was read lately, so that it can be read again.
#[derive(Debug, Default)]
pub(super) struct Recent {
    bytes: Vec<u8>,
    /// The offset of the first one.
    from: usize,
}

impl Recent {
    /// Drops bytes that no trial needs, and adds others.
    pub(super) fn push(&mut self, bytes: &[u8], needed: Option<usize>) {
        if self.bytes.len() > MOST_RECENT {
            let end = self.from + self.bytes.len();
            let dropped = needed.unwrap_or(end).min(end - RECENT).saturating_sub(self.from);
            // Dropping few bytes at a time would take quadratic time.
            if dropped >= self.bytes.len() / 2 {
                self.bytes.drain(..dropped);
                self.from += dropped;
            }
        }
        self.bytes.extend_from_slice(bytes);
    }

    fn since(&self, at: usize) -> Vec<u8> {
        self.bytes.get(at.saturating_sub(self.from)..).unwrap_or_default().to_vec()
    }
}

impl Trial {
    /// The number of events before it that were not sent.
    pub(super) fn events(&self) -> usize {
        self.calls.events()
    }
}

impl Parser {
    /// How far a call between the format's own markers is meant, after the text and `before`.
    pub(super) fn weigh_marked(&self, before: &[u8]) -> Result<Option<Doubt>, NoCall> {
        if self.control.contains(&(self.at + before.len())) {
            return Ok(self.thinking.then_some(Doubt::Reasoning));
        }
        let prose = if self.thinking { &self.reasoning } else { &self.text };
        let before = prose.before(before, TAIL);
        let line = last_line(&before);
        if line.trim_start().starts_with("> ") {
            return Err(NoCall::InSentence);
        }
        match open_quote(line) {
            Some(quote) => Ok(Some(Doubt::Quoted(quote))),
            None if self.thinking => Ok(Some(Doubt::Reasoning)),
            None if self.forms.is_in_fence() => Ok(Some(Doubt::Form)),
            None => Ok(None),
        }
    }

    /// How far a call in the format's own form, which has no markers, is meant.
    pub(super) fn weigh_own_form(&self, before: &[u8]) -> Result<Option<Doubt>, NoCall> {
        if self.constrained && self.text.is_at_beginning(before) {
            return Ok(None);
        }
        if introduces_quotation(&self.text.before(before, TAIL)) {
            Err(NoCall::Introduced)
        } else {
            Ok(Some(Doubt::Form))
        }
    }

    /// How far a call in another form is meant. Where it is `led_in`, it may follow a sentence on its line.
    pub(super) fn weigh_other_form(&self, before: &[u8], led_in: bool) -> Result<Option<Doubt>, NoCall> {
        self.weigh_after(&self.text.before(before, TAIL), led_in)
    }

    /// The same after this text.
    pub(super) fn weigh_after(&self, text: &str, led_in: bool) -> Result<Option<Doubt>, NoCall> {
        let line = last_line(text);
        let lines = &text[..text.len() - line.len()];
        // Commas separate calls.
        let blank = line.trim_matches([' ', '\t', '\r', ',', ';']).is_empty();
        let in_list = blank && !line.is_empty() && lines.trim_end().lines().next_back().is_some_and(is_item);
        if in_list || !blank && (is_item(line) || !led_in || !ends_sentence(line)) {
            return Err(NoCall::InSentence);
        }
        if introduces_quotation(text) { Err(NoCall::Introduced) } else { Ok(Some(Doubt::Form)) }
    }

    /// Returns whether a call begins here, judging by its evidence. If it does not, this is reported.
    pub(super) fn begin_if_meant(
        &mut self,
        doubt: Result<Option<Doubt>, NoCall>,
        place: Range<usize>,
        name: &str,
    ) -> bool {
        if self.call_refutes() || self.prose_refutes() {
            return false;
        }
        match doubt {
            _ if place.start < self.quoted_to => false,
            Ok(None) => true,
            _ if self.trusted => true,
            _ if place.start < self.refused => false,
            Ok(Some(doubt)) => {
                if self.thinking {
                    self.try_call(Doubt::Reasoning, place.start);
                }
                self.try_call(doubt, place.start);
                true
            }
            Err(why) => {
                self.refuse_to(place.end);
                self.report_text(name, why, place);
                false
            }
        }
    }

    /// Doubtful calls that begin before this offset are text.
    pub(super) fn refuse_to(&mut self, end: usize) {
        if self.failed.is_none() {
            self.refused = self.refused.max(end);
        }
    }

    /// Reports that what looks like a call is text, once for each reason.
    fn report_text(&mut self, tool: &str, why: NoCall, place: Range<usize>) {
        let known = |said: &Diagnostic| matches!(said.kind, DiagnosticKind::NoCall { why: said, .. } if said == why);
        if !self.calls.diagnostics.iter().any(known) {
            self.calls.diagnose(DiagnosticKind::NoCall { tool: tool.to_owned(), why }, place);
        }
    }

    /// Returns whether reasoning may begin after the text and `before`: `<think>` in a sentence is text.
    pub(super) fn may_begin_reasoning(&mut self, before: &[u8]) -> bool {
        let begins = self.interleaves || self.thinking || self.text.is_at_beginning(before);
        self.named_reasoning = !begins;
        begins
    }

    /// Returns whether reasoning may end here. Where none is open, its beginning may be in a prompt that is unknown.
    pub(super) fn may_end_reasoning(&self, before: &[u8]) -> bool {
        if self.thinking || self.trials.iter().any(|trial| trial.doubt == Doubt::Reasoning) {
            return true;
        }
        if self.named_reasoning {
            return false;
        }
        let before = self.text.before(before, TAIL);
        let line = last_line(&before);
        let named = line.ends_with([' ', '\t', '`', '"', '\'', '(', '“', '„', '«', '‘']);
        !named || ends_sentence(line) || line.trim().is_empty()
    }

    /// A doubtful call begins at the offset `begins`; its events are held back.
    fn try_call(&mut self, doubt: Doubt, begins: usize) {
        let doubt_is_open = |trial: &Trial| trial.doubt == doubt;
        if self.trials.iter().any(doubt_is_open) {
            return;
        }
        // What precedes it is certain.
        self.send_text(self.undecided());
        self.trials.push(Trial {
            doubt,
            at: self.at,
            begins,
            since: Since { closed: false, calls_to: self.text.len(), turn_ended: false },
            earlier: self.trials.iter().map(|trial| trial.since).collect(),
            calls: self.calls.mark(),
            text: self.text.mark(),
            reasoning: self.reasoning.mark(),
            hidden: self.hidden.mark(),
            thinking: self.thinking,
            hiding: self.hiding,
            pending: self.pending,
            named_reasoning: self.named_reasoning,
            opened: self.opened,
            refused: self.refused,
            section: self.section.clone(),
            forms: self.forms.mark(),
            machinery: Arc::clone(&self.machinery),
        });
    }

    /// The number of events that may be sent.
    pub(super) fn certain_events(&self) -> usize {
        self.trials.first().map_or(self.calls.events.len(), |trial| trial.calls.events())
    }

    /// The first `count` events were sent.
    pub(super) fn sent_events(&mut self, count: usize) {
        self.trials.iter_mut().for_each(|trial| trial.calls.sent(count));
    }

    /// The offset from which bytes may be read again.
    pub(super) fn needed(&self) -> Option<usize> {
        self.trials.first().map(|trial| trial.at)
    }

    /// Returns whether the text after the calls decides that they are text.
    pub(super) fn prose_refutes(&mut self) -> bool {
        self.text_refutes(self.text.len() - self.undecided().min(self.text.len()), "")
    }

    /// The same of all the text up to a marker after `before`. How much of it was held with the marker depends on how
    /// the text was split.
    pub(super) fn marker_refutes(&mut self, before: &[u8]) -> bool {
        let before = if self.thinking { &[] } else { before };
        !self.trials.is_empty() && self.text_refutes(self.text.len(), &self.text.unwritten(before))
    }

    /// The same of the first `certain` bytes of the text and of `more`.
    fn text_refutes(&mut self, certain: usize, more: &str) -> bool {
        let Some(last) = self.trials.last() else { return false };
        let (doubt, from) = (last.doubt, last.since.calls_to);
        let after = |text: &Text, from: usize| text.since(from, certain).to_owned() + more;
        if let Doubt::Quoted(mark) = doubt {
            match closes_quote(mark, &after(&self.text, from)) {
                Some(true) => self.refute(self.trials.len() - 1, NoCall::Quoted),
                Some(false) => drop(self.trials.pop()),
                None => {}
            }
        }
        let followed = |trial: &Trial| (trial.doubt == Doubt::Form || trial.since.closed) && !trial.since.turn_ended;
        let Some(index) = self.trials.iter().position(followed) else { return self.failed.is_some() };
        let trial = &mut self.trials[index];
        let from = trial.since.calls_to;
        match following(&after(&self.text, from)) {
            Following::Prose if trial.since.closed => self.refute(index, NoCall::Draft),
            Following::Prose => self.refute(index, NoCall::Followed),
            Following::TurnEnd => trial.since.turn_ended = true,
            Following::Nothing(to) if from <= certain => trial.since.calls_to = certain.min(from + to),
            Following::Nothing(_) => {}
        }
        self.failed.is_some()
    }

    /// A call or other markup has ended: what follows it begins here.
    pub(super) fn markup_ended(&mut self) {
        let end = self.text.len();
        self.trials.iter_mut().for_each(|trial| trial.since.calls_to = end);
    }

    /// Markup that belongs to no call came after the calls.
    pub(super) fn stray_markup(&mut self, marker: &[u8]) {
        if ends_turn(&String::from_utf8_lossy(marker)) {
            self.trials.iter_mut().for_each(|trial| trial.since.turn_ended = true);
        }
    }

    /// A call begins, which also decides about the calls before it.
    pub(super) fn call_refutes(&mut self) -> bool {
        let closed = self.trials.iter().position(|trial| trial.since.closed);
        closed.inspect(|&index| self.refute(index, NoCall::Draft)).is_some()
    }

    /// What looked like the beginning of a call only names the marker.
    pub(super) fn named_marker_refutes(&mut self) {
        let begun_here = |trial: &Trial| trial.calls.done() == self.calls.done.len();
        if let Some(index) = self.trials.iter().position(begun_here) {
            self.refute_until(index, self.calls.open_end().unwrap_or(self.at), NoCall::Quoted);
        }
    }

    /// Reasoning is closed after `before`. Calls in it are drafts, unless it ends with them and nothing follows.
    pub(super) fn closing_refutes(&mut self, before: &[u8], at: usize) -> bool {
        let Some(index) = self.trials.iter().position(|trial| trial.doubt == Doubt::Reasoning) else { return false };
        if self.text.is_at_beginning(before) && !self.trials[index].since.closed {
            self.trials[index].since.closed = true;
            return false;
        }
        self.refute_until(index, at, NoCall::Draft);
        true
    }

    /// Reasoning begins again: it was not closed before, so the calls in it are meant.
    pub(super) fn reasoning_begins_again(&mut self) {
        if self.trials.iter().all(|trial| trial.doubt == Doubt::Reasoning && !trial.since.closed) {
            self.confirm_trials();
        }
    }

    /// The calls of a trial up to the last one are text.
    fn refute(&mut self, trial: usize, why: NoCall) {
        let end = self.calls.done.last().map_or(self.at, |call| call.range.end);
        self.refute_until(trial, end, why);
    }

    fn refute_until(&mut self, trial: usize, until: usize, why: NoCall) {
        self.failed.get_or_insert(Failed { trial, until, why });
    }

    /// The text has ended: decides about the calls that are still in doubt. Whether some are text.
    pub(super) fn end_trials(&mut self) -> bool {
        if self.marker_refutes(&[]) {
            return true;
        }
        let refuted = self.trials.iter().enumerate().rev().find_map(|(index, trial)| {
            let mut calls = self.calls.done.iter().skip(trial.calls.done());
            let why = match trial.doubt {
                Doubt::Form => calls.any(|call| self.sources.have(call)).then_some(NoCall::Copied),
                // A marker that is only named, as in `<tool_call>`.
                Doubt::Quoted(_) => calls.any(|call| !call.is_whole()).then_some(NoCall::Quoted),
                Doubt::Reasoning => None,
            };
            why.map(|why| (index, why))
        });
        refuted.inspect(|&(index, why)| self.refute_until(index, usize::MAX, why)).is_some()
    }

    /// All calls that are left count. Reports those in reasoning.
    pub(super) fn confirm_trials(&mut self) {
        for trial in std::mem::take(&mut self.trials) {
            if trial.doubt == Doubt::Reasoning
                && let Some(call) = self.calls.done.get(trial.calls.done())
            {
                let (tool, range) = (call.name.clone(), call.range.clone());
                self.calls.diagnose(DiagnosticKind::InReasoning { tool }, range);
            }
        }
    }

    /// Reads again what turned out to be text.
    pub(super) fn settle(&mut self) {
        while let Some(Failed { trial, until, why }) = self.failed.take() {
            let trial = self.trials.drain(trial..).next();
            let Some(trial) = trial else { return };
            let call = self.calls.done.get(trial.calls.done()).map(|call| (call.name.clone(), call.range.clone()));
            if let Some(mut payload) = self.payload.take() {
                payload.reset();
                self.spare = Some(payload);
                self.leave();
            }
            self.trials.iter_mut().zip(&trial.earlier).for_each(|(before, since)| before.since = *since);
            self.calls.rewind(trial.calls);
            self.text.rewind(trial.text);
            self.reasoning.rewind(trial.reasoning);
            self.hidden.rewind(trial.hidden);
            (self.thinking, self.hiding, self.pending) = (trial.thinking, trial.hiding, trial.pending);
            self.named_reasoning = trial.named_reasoning;
            (self.opened, self.section) = (trial.opened, trial.section);
            self.forms.rewind(trial.forms);
            if !Arc::ptr_eq(&self.machinery, &trial.machinery) {
                self.spare = Some(trial.machinery.plan.reader(self.calls.repair));
                self.machinery = trial.machinery;
            }
            (self.scan, self.candidate) = (START, None);
            self.held.clear();
            self.refused = trial.refused;
            // The same text must not begin the same call again.
            let until = until.max(trial.at.max(trial.begins) + 1);
            match trial.doubt {
                Doubt::Form => self.refused = until,
                Doubt::Reasoning | Doubt::Quoted(_) => self.quoted_to = until.max(self.quoted_to),
            }
            self.at = trial.at;
            self.marks.retain(|(_, offset)| *offset <= trial.at);
            let bytes = self.recent.since(trial.at);
            if let Some((name, place)) = call {
                self.report_text(&name, why, place);
            }
            self.consume(&bytes);
        }
    }
}

fn last_line(text: &str) -> &str {
    &text[text.rfind('\n').map_or(0, |at| at + 1)..]
}
