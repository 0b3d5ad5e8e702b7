//! The end of a value between tags: its closing tag or, if that is missing, another argument or the end marker.
//!
//! Values are not escaped, so text may look like any of them; the following bytes decide.

use super::super::output::Output;
use super::super::{Around, DEPTH};
use super::{Sink, ValueEnd, ValueReader};
use crate::format::schema::{self, Step, Types};
use crate::parse::calls::Calls;

/// Maximum white space between tags that are distinguished from text by what follows.
const BLANK: usize = 32;
/// Maximum length of an argument's name that ends a value without closing tag.
const NAME: usize = 64;
const CDATA_START: &[u8] = b"<![CDATA[";

/// Maximum bytes to hold while it is undecided whether a value ended before them.
const DOUBT: usize = 1024;

/// A closing tag that ends the value unless the value is properly closed later.
///
/// A value may be text about calls and contain closing tags. Of two readings the longer one counts, if it results in a
/// whole call.
#[derive(Debug)]
pub(super) struct Doubt {
    /// The bytes from the closing tag on: part of the value if it continues.
    pub bytes: Vec<u8>,
    /// Start of `bytes`, and the end of the value if it does not continue.
    pub at: usize,
    pub end: usize,
    /// Whether the end marker also followed.
    pub marked: bool,
    /// Whether the layout shows that the tag is text, unless the value is not closed later.
    pub inline: bool,
}

/// The text after a closing tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    /// The call continues or ends: the value is closed.
    Structure,
    /// More bytes are needed.
    Wait,
    /// Text: the tag is part of the value.
    Text,
    /// Possibly text between two arguments or, if the call is `marked` as ended, after the call.
    Doubt { marked: bool },
}

/// The decision about the held bytes.
pub(super) enum Verdict {
    /// The first byte is part of the value.
    Part,
    /// More bytes are needed.
    Wait,
    Cdata,
    /// The tag before the value was written twice.
    Doubled,
    End(ValueEnd),
    /// They may be text after the value, which then ends at this offset.
    Doubt {
        end: usize,
        marked: bool,
    },
    /// The value ended at the doubt.
    Ended,
}

/// Whether some bytes match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Is {
    No,
    Perhaps,
    Yes,
}

impl ValueReader {
    /// Length of the closing tag, if all of it is in `bytes`, as it usually is, with the text that identifies it.
    pub(super) fn closed(&self, bytes: &[u8]) -> Option<usize> {
        if self.cdata || self.in_string() {
            return None;
        }
        let rest = bytes.strip_prefix(self.tail()).unwrap_or(bytes);
        let length = bytes.len() - rest.len();
        let line = length > 0 && self.plan.tail.ends_with(b"\n") || self.line_start;
        let after = rest.strip_prefix(&self.closing[..])?;
        (self.after_closing(after, line) == After::Structure).then_some(length + self.closing.len())
    }

    /// The same if text follows the tag, so that the value may continue: the length needed to know this, the length of
    /// the closing tag, and whether the end marker came.
    pub(super) fn doubted(&self, bytes: &[u8]) -> Option<(usize, usize, bool)> {
        let tail = self.tail();
        let lines = tail.is_empty() || tail.ends_with(b"\n");
        if self.doubt.is_some() || self.sink == Sink::Start || self.cdata || self.in_string() || !lines {
            return None;
        }
        let line = !tail.is_empty() || self.line_start;
        let after = bytes.strip_prefix(tail)?.strip_prefix(&self.closing[..]).filter(|_| !self.closing.is_empty())?;
        // The decision by the fewest bytes counts, because more of them may look different.
        let mut decision =
            (self.undecided(after)..=after.len()).map(|count| (count, self.after_closing(&after[..count], line)));
        let (count, decision) = decision.find(|(_, decision)| *decision != After::Wait)?;
        let After::Doubt { marked } = decision else { return None };
        let closing = bytes.len() - after.len();
        Some((closing + count, closing, marked))
    }

    /// Returns whether another call begins with `bytes`, and with nothing that may also belong to this one.
    pub(super) fn starts_call(&self, bytes: &[u8]) -> bool {
        let inline = self.doubt.as_ref().is_some_and(|doubt| doubt.inline) && !self.line_start;
        let distinct = self.closing_is_distinct && !self.cdata && self.sink != Sink::Start && !inline;
        distinct && self.plan.starts.iter().any(|start| bytes.starts_with(start))
    }

    /// Returns whether these bytes are a line break in doubtful text, and then another call. Whose tool it is need not be known yet.
    pub(super) fn breaks_before_call(&self, bytes: &[u8]) -> bool {
        self.doubt.is_some() && bytes.strip_prefix(b"\n").is_some_and(|rest| self.starts_call(rest))
    }

    /// A number of bytes, fewer of which decide nothing about the closing tag before them: they are the end markers.
    fn undecided(&self, after: &[u8]) -> usize {
        if !self.closing_is_distinct || self.is_settled() {
            return 0;
        }
        let (end, section) = (&self.plan.end[..], &self.plan.section_end[..]);
        let after_blank = |bytes| skip_blank(bytes).filter(|rest| !rest.is_empty());
        let rest = after_blank(after).and_then(|rest| after_blank(rest.strip_prefix(end)?));
        let Some(rest) = rest else { return 0 };
        let last = rest.strip_prefix(section).and_then(after_blank);
        after.len() - last.unwrap_or(rest).len()
    }

    /// Returns whether `held` is a beginning of what usually ends a value: the closing tag, and another argument or the
    /// end markers. It decides nothing then.
    fn begins_usual_end(&self, held: &[u8]) -> bool {
        if !self.closing_is_distinct {
            return false;
        }
        let (plan, closing) = (&self.plan, &self.closing[..]);
        let rest = held.strip_prefix(self.tail()).unwrap_or(held);
        let Some(after) = rest.strip_prefix(closing) else { return begins(closing, rest) == Is::Perhaps };
        let Some(rest) = skip_blank(after).filter(|_| !self.is_settled()) else { return false };
        if rest.is_empty() || [&plan.key_start, &plan.end].into_iter().any(|tag| begins(tag, rest) == Is::Perhaps) {
            return true;
        }
        let Some(rest) = rest.strip_prefix(&plan.end[..]).and_then(skip_blank) else { return false };
        let after = rest.strip_prefix(&plan.section_end[..]).and_then(skip_blank);
        rest.is_empty() || begins(&plan.section_end, rest) == Is::Perhaps || after.is_some_and(<[u8]>::is_empty)
    }

    pub(super) fn verdict(&self, output: &Output, around: &Around<'_>, calls: &Calls) -> Verdict {
        let held = &self.held[..];
        if self.cdata {
            return self.cdata_end(held);
        }
        if self.breaks_before_call(held) {
            return Verdict::Part;
        }
        if self.begins_usual_end(held) {
            return Verdict::Wait;
        }
        // A whole tag is counted.
        let mut wait = !self.in_string() && self.opening.len() > held.len() && self.opening.starts_with(held);
        if self.repair && self.sink == Sink::Start && self.raw.is_empty() && self.lead == 0 {
            for tag in [&self.before[..], self.plan.last_sign()].into_iter().filter(|tag| !tag.is_empty()) {
                if held == tag {
                    return Verdict::Doubled;
                }
                wait |= tag.starts_with(held);
            }
        }
        if self.doubt.as_ref().is_some_and(|doubt| !doubt.inline || self.line_start) {
            match self.begins_call(held) {
                Is::Yes => return Verdict::Ended,
                Is::Perhaps => wait = true,
                Is::No => {}
            }
        }
        if self.sink == Sink::Start
            && self.raw.is_empty()
            && self.plan.words.is_empty()
            && CDATA_START.starts_with(held)
        {
            if held == CDATA_START {
                return Verdict::Cdata;
            }
            wait = true;
        }
        if self.sink == Sink::Start && self.plan.nested && !self.types.has(Types::STRING) && self.depth < DEPTH {
            let key_start = &self.plan.key_start;
            let ends = self.ends_around(held, around);
            if ends == Is::Yes {
                return Verdict::End(ValueEnd::Marker(self.held_at));
            } else if key_start.starts_with(held) || ends == Is::Perhaps {
                wait = true;
            } else if held.starts_with(key_start) && !self.closing.starts_with(held) && !held.starts_with(&self.closing)
            {
                return Verdict::End(ValueEnd::Children(self.held_at + key_start.len()));
            }
        }
        for before in [self.tail(), b"\n", b""] {
            let declared = before.is_empty() || before == self.tail();
            if !declared && !self.repair {
                continue;
            }
            let Some(rest) = held.strip_prefix(before).filter(|rest| !rest.is_empty()) else {
                wait |= before.starts_with(held);
                continue;
            };
            let line = before.ends_with(b"\n") || before.is_empty() && self.line_start;
            let from = self.held_at + before.len();
            if declared {
                let (closes, length) = self.closes(rest, line);
                let after = match closes {
                    Is::Yes => self.after_closing(&rest[length..], line),
                    Is::Perhaps => After::Wait,
                    Is::No => After::Text,
                };
                match after {
                    After::Structure if length == rest.len() => return Verdict::End(ValueEnd::Closed),
                    After::Structure => return Verdict::End(ValueEnd::ClosedBefore(from + length)),
                    After::Doubt { marked } if self.doubt.is_none() => {
                        return Verdict::Doubt { end: from + length, marked };
                    }
                    After::Wait => wait = true,
                    After::Doubt { .. } | After::Text => {}
                }
            }
            if !self.repair || self.in_string() {
                continue;
            }
            match self.ends_around(rest, around) {
                Is::Yes => return Verdict::End(ValueEnd::Marker(from)),
                Is::Perhaps => wait = true,
                Is::No => {}
            }
            // In a layout of lines, what is inside a line is text, as is what is quoted.
            match if self.led && !line && !self.is_settled() { Is::No } else { self.another_call(rest, calls) } {
                Is::Yes if !self.is_quoted(output) => return Verdict::End(ValueEnd::Marker(from)),
                Is::Perhaps => wait = true,
                Is::Yes | Is::No => {}
            }
            let line = line || !self.plan.lines || self.is_settled();
            match self.is_marker(rest, line) {
                Is::Yes => return Verdict::End(ValueEnd::Marker(from)),
                Is::Perhaps => wait = true,
                Is::No => {}
            }
            match self.next_key(rest, line, around, calls) {
                (Is::Yes, key) => {
                    let at = from + self.plan.key_start.len();
                    let end = at + key.len() + self.plan.key_end.len();
                    return Verdict::End(ValueEnd::Key { key, at, end });
                }
                (Is::Perhaps, _) => wait = true,
                (Is::No, _) => {}
            }
        }
        if wait { Verdict::Wait } else { Verdict::Part }
    }

    fn cdata_end(&self, held: &[u8]) -> Verdict {
        let end = b"]]>";
        let Some(rest) = held.strip_prefix(end) else {
            return if end.starts_with(held) { Verdict::Wait } else { Verdict::Part };
        };
        let Some(rest) = skip_blank(rest) else { return Verdict::Part };
        let blank = &held[end.len()..held.len() - rest.len()];
        if !rest.is_empty() && !blank.is_empty() && !blank.contains(&b'\n') {
            return Verdict::Part;
        }
        match begins(&self.closing, rest) {
            Is::Yes => Verdict::End(ValueEnd::Closed),
            Is::Perhaps => Verdict::Wait,
            Is::No => Verdict::Part,
        }
    }

    /// Whether `rest` is the closing tag, and its length. In a JSON string it counts only if the text around it shows
    /// that a quote is missing.
    fn closes(&self, rest: &[u8], line: bool) -> (Is, usize) {
        let length = self.closing.len();
        match begins(&self.closing, rest) {
            Is::Yes if self.in_string() && !line => (self.goes_on(&rest[length..]), length),
            found => (found, length),
        }
    }

    /// Classifies the text after a closing tag.
    fn after_closing(&self, after: &[u8], line: bool) -> After {
        if self.is_settled() {
            return After::Structure;
        }
        let (mut rest, mut lines) = (after, false);
        loop {
            let Some(next) = skip_blank(rest) else { return After::Structure };
            lines |= rest[..rest.len() - next.len()].contains(&b'\n');
            rest = next;
            // A doubled closing tag, or one that closes a tag in the value.
            match next.strip_prefix(&self.closing[..]).filter(|_| !self.closing.is_empty()) {
                Some(_) if self.inner > 0 => return After::Text,
                Some(next) => rest = next,
                None => break,
            }
        }
        if rest.is_empty() {
            return After::Wait;
        }
        let plan = &self.plan;
        let tags = [&plan.key_start, &plan.section_end].into_iter().map(|tag| begins(tag, rest));
        let goes_on = any(tags.chain([self.begins_call(rest)]));
        let inline = self.led && !line && !lines;
        match (goes_on, begins(&plan.end, rest)) {
            (Is::Yes, _) if inline => After::Doubt { marked: false },
            (Is::Yes, _) => After::Structure,
            (_, Is::Yes) => match self.after_end_marker(&rest[plan.end.len()..]) {
                After::Structure if inline && self.begins_call_inline(rest) => After::Doubt { marked: false },
                after => after,
            },
            (Is::Perhaps, _) | (_, Is::Perhaps) => After::Wait,
            _ if begins(&self.closing, rest) == Is::Perhaps => After::Wait,
            _ if plan.end.is_empty() => After::Structure,
            // A tag-like text on its own line is a near miss of the next tag.
            _ if lines && line && plan.is_markup(rest[0]) => After::Structure,
            _ if lines || line && plan.lines || rest.len() == after.len() && plan.is_markup(rest[0]) => {
                After::Doubt { marked: false }
            }
            _ => After::Text,
        }
    }

    /// Classifies the text after a closing tag and the end marker.
    fn after_end_marker(&self, after: &[u8]) -> After {
        let doubt = After::Doubt { marked: true };
        let Some(mut rest) = skip_blank(after) else { return doubt };
        let section = &self.plan.section_end;
        match begins(section, rest) {
            Is::Yes => match skip_blank(&rest[section.len()..]) {
                Some(next) => rest = next,
                None => return doubt,
            },
            Is::Perhaps => return After::Wait,
            Is::No => {}
        }
        if rest.is_empty() {
            return After::Wait;
        }
        match self.begins_call(rest) {
            Is::Yes => After::Structure,
            Is::Perhaps => After::Wait,
            Is::No => doubt,
        }
    }

    /// Returns whether no line break precedes the call that begins in `rest`.
    fn begins_call_inline(&self, rest: &[u8]) -> bool {
        let calls = self.plan.starts.iter().filter_map(|start| memchr::memmem::find(rest, start));
        calls.min().is_some_and(|at| !rest[..at].contains(&b'\n'))
    }

    /// Begins a doubt about whether the value ended at `end`: the held bytes wait for the rest.
    pub(super) fn begin_doubt(&mut self, end: usize, marked: bool) {
        let inline = self.is_inline() && !self.held.starts_with(b"\n");
        self.count_closing();
        let bytes = std::mem::take(&mut self.held);
        self.doubt = Some(Doubt { bytes, at: self.held_at, end, marked, inline });
    }

    /// Decides a doubt for which no more bytes may be held: the end of the value if the end marker followed its closing
    /// tag, `Some(None)` if the tag is part of the value.
    pub(super) fn doubt_over(&self) -> Option<Option<usize>> {
        let doubt = self.doubt.as_ref().filter(|doubt| doubt.bytes.len() > DOUBT)?;
        Some((doubt.marked && !doubt.inline).then_some(doubt.end))
    }

    /// Number of further bytes to hold for a doubt.
    pub(super) fn most_doubted(&self) -> usize {
        self.doubt.as_ref().map_or(0, |doubt| (DOUBT + 1).saturating_sub(doubt.bytes.len()))
    }

    /// The text ends here: returns where the value ended, if it did, and whether the doubtful bytes are part of it.
    pub(super) fn end_of_text(&self) -> Option<(usize, bool)> {
        let closing = [self.tail(), b""].into_iter().find_map(|before| {
            let rest = self.held.strip_prefix(before).filter(|_| !self.cdata)?;
            let line = before.ends_with(b"\n") || self.line_start;
            let (closes, length) = self.closes(rest, line);
            (closes == Is::Yes).then(|| (self.held_at + before.len() + length, &rest[length..]))
        });
        let doubted = self.doubt.as_ref().map(|doubt| doubt.end);
        // Only a whole call shows that the value continued.
        let whole = closing.is_some_and(|(_, after)| after.trim_ascii_start().starts_with(&self.plan.end));
        match doubted {
            Some(end) if !whole => Some((end, false)),
            _ => closing.map(|(end, _)| (end, true)),
        }
    }

    /// Whether the call continues with `after`, following a closing tag.
    fn goes_on(&self, after: &[u8]) -> Is {
        let Some(rest) = skip_blank(after) else { return Is::No };
        if after[..after.len() - rest.len()].contains(&b'\n') {
            return Is::Yes;
        }
        any([&self.plan.key_start, &self.plan.end].into_iter().map(|tag| begins(tag, rest)))
    }

    /// Whether `rest` is the end marker rather than text, judging by what follows.
    fn is_marker(&self, rest: &[u8], line: bool) -> Is {
        let end = &self.plan.end;
        if end.is_empty() {
            return Is::No;
        }
        let Some(after) = rest.strip_prefix(&end[..]) else { return begins(end, rest) };
        if self.is_settled() {
            return Is::Yes;
        }
        let Some(after) = skip_blank(after) else { return Is::No };
        let section = &self.plan.section_end;
        match after.strip_prefix(&section[..]).filter(|_| !section.is_empty()) {
            Some(after) => match skip_blank(after) {
                Some(after) => self.is_start(after, line),
                None => Is::No,
            },
            None if begins(section, after) == Is::Perhaps => Is::Perhaps,
            None => self.is_start(after, line),
        }
    }

    /// Whether another call begins with `after`, or the text may end.
    fn is_start(&self, after: &[u8], line: bool) -> Is {
        if after.is_empty() {
            return Is::Perhaps;
        }
        if !line {
            return Is::No;
        }
        self.begins_call(after)
    }

    /// The white space before the closing tag that is not part of the value. Where none follows the opening tag, none
    /// precedes the closing one.
    fn tail(&self) -> &[u8] {
        let compact = !self.plan.lead.is_empty() && !self.led && self.sink != Sink::Start;
        if compact { &[] } else { &self.plan.tail }
    }

    /// Returns whether the next byte is inside of a line, in a value whose tags are on lines of their own.
    pub(super) fn is_inline(&self) -> bool {
        self.led && !self.line_start && self.sink == Sink::Text
    }

    /// Returns whether the next bytes are quoted: after a quote, or in a code fence.
    fn is_quoted(&self, output: &Output) -> bool {
        let text = output.text.get(self.text_from..).filter(|_| self.sink == Sink::Text).unwrap_or_default();
        self.after_quote || text.matches("```").count() % 2 == 1
    }

    /// Whether `rest` closes an element around the value.
    fn ends_around(&self, rest: &[u8], around: &Around<'_>) -> Is {
        let tags = around.frames.iter().map(|frame| &frame.closing[..]).filter(|tag| *tag != self.closing);
        any(tags.map(|tag| begins(tag, rest)))
    }

    /// Whether another call of a known tool begins with `rest`, perhaps after the markers that end this one.
    fn another_call(&self, mut rest: &[u8], calls: &Calls) -> Is {
        let plan = &self.plan;
        if plan.start.is_empty() || !calls.knows_tools() {
            return Is::No;
        }
        let sections = plan.starts.iter().filter(|start| **start != plan.start);
        for tag in [&plan.end, &plan.section_end].into_iter().chain(sections) {
            match begins(tag, rest) {
                Is::Yes => rest = &rest[tag.len()..],
                Is::Perhaps => return Is::Perhaps,
                Is::No => continue,
            }
            let Some(next) = skip_blank(rest) else { return Is::No };
            rest = next;
            if rest.is_empty() {
                return Is::Perhaps;
            }
        }
        if begins(&plan.start, rest) != Is::Yes {
            return begins(&plan.start, rest);
        }
        let name = &rest[plan.start.len()..];
        let length = name.iter().take_while(|byte| byte.is_ascii_alphanumeric() || b"_-.:/".contains(byte)).count();
        match std::str::from_utf8(&name[..length]) {
            _ if length == name.len() && length <= NAME => Is::Perhaps,
            Ok(name) if calls.is_known_tool(name) => Is::Yes,
            _ => Is::No,
        }
    }

    /// Whether `bytes` begin another call, or the section around it.
    fn begins_call(&self, bytes: &[u8]) -> Is {
        any(self.plan.starts.iter().map(|start| begins(start, bytes)))
    }

    /// Whether `rest` begins another argument that the tool has and that did not come yet.
    fn next_key(&self, rest: &[u8], line: bool, around: &Around<'_>, calls: &Calls) -> (Is, String) {
        let no = (Is::No, String::new());
        if !line || self.depth > 0 && calls.tool().is_none() {
            return no;
        }
        let Some(after) = rest.strip_prefix(&self.plan.key_start[..]) else {
            return (begins(&self.plan.key_start, rest), String::new());
        };
        let plain = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte >= 0x80 || b"_-.$".contains(byte);
        let length = after.iter().take_while(plain).count();
        let Ok(key) = std::str::from_utf8(&after[..length]) else {
            let fits = length == after.len() && length <= NAME;
            return (if fits { Is::Perhaps } else { Is::No }, String::new());
        };
        match begins(&self.plan.key_end, &after[length..]) {
            Is::Yes if !key.is_empty() => {}
            Is::Perhaps if length <= NAME => return (Is::Perhaps, String::new()),
            _ => return no,
        }
        let known = match calls.schema() {
            Some(schema) if self.depth > 0 => match around.path.split_last() {
                Some((Step::Item, _)) => key == "item",
                Some((own, outer)) => {
                    let step = Step::Member(key.to_owned());
                    step != *own && !schema::types(schema, outer.iter().chain([&step])).is_unknown()
                }
                None => false,
            },
            Some(schema) => schema::knows(schema, key),
            None => !self.plan.nested,
        };
        if known && (self.depth > 0 || !around.given.iter().any(|given| given == key)) {
            (Is::Yes, key.to_owned())
        } else {
            no
        }
    }

    /// Whether the text ends with the end marker, with the closing tag before it missing.
    pub(in crate::parse::payload::tagged) fn ends_with_marker(&self) -> bool {
        let end = &self.plan.end;
        let starts = |before: &[u8]| self.held.strip_prefix(before).is_some_and(|rest| rest.starts_with(end));
        let befores = [&self.plan.tail[..], b"\n", b""];
        self.repair && !self.cdata && !end.is_empty() && !self.in_string() && befores.into_iter().any(starts)
    }
}

/// Whether `bytes` begin with `tag`, or may do so with more bytes.
fn begins(tag: &[u8], bytes: &[u8]) -> Is {
    if tag.is_empty() || bytes.first().is_some_and(|first| *first != tag[0]) {
        Is::No
    } else if bytes.starts_with(tag) {
        Is::Yes
    } else if tag.starts_with(bytes) {
        Is::Perhaps
    } else {
        Is::No
    }
}

fn any(found: impl Iterator<Item = Is>) -> Is {
    found.fold(Is::No, |all, one| match (all, one) {
        (Is::Yes, _) | (_, Is::Yes) => Is::Yes,
        (Is::Perhaps, _) | (_, Is::Perhaps) => Is::Perhaps,
        _ => Is::No,
    })
}

/// The bytes after the white space at the beginning; `None` if there is too much.
fn skip_blank(bytes: &[u8]) -> Option<&[u8]> {
    let blank = bytes.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    (blank <= BLANK).then(|| &bytes[blank..])
}
