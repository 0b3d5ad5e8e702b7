//! What ends a value between tags: its closing tag, or where that is missing another argument or the end marker.
//!
//! Nothing is escaped there, so text may look like any of them: what follows tells.

use super::super::DEPTH;
use super::{Sink, ValueEnd, ValueReader};
use crate::format::schema::{self, Types};
use crate::parse::calls::Calls;

/// How much white space may stand between tags that are told apart from text by what follows.
const BLANK: usize = 32;
/// How long the name of an argument may be that ends a value without its closing tag.
const NAME: usize = 64;
const CDATA_START: &[u8] = b"<![CDATA[";

/// How many bytes are held back while it is not decided whether a value has ended before them.
const DOUBT: usize = 1024;

/// A closing tag that ends the value unless the value is closed properly later on.
///
/// A value may be text about calls, with closing tags of its own. Of two readings the longer one counts, if it comes
/// to a whole call.
#[derive(Debug)]
pub(super) struct Doubt {
    /// What came from the closing tag on: part of the value if it goes on.
    pub bytes: Vec<u8>,
    /// Where `bytes` begin, and where the value ends if it does not go on.
    pub at: usize,
    pub end: usize,
    /// Whether the end marker followed, too.
    marked: bool,
}

/// What follows a closing tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    /// The call goes on, or ends: the value is closed.
    Structure,
    /// More bytes will tell.
    Wait,
    /// Text: the tag is part of the value.
    Text,
    /// What may be text between two arguments, or, where the call is `marked` as ended, after the call.
    Doubt { marked: bool },
}

/// What the bytes held back are.
pub(super) enum Verdict {
    /// The first of them is part of the value.
    Part,
    /// More have to come.
    Wait,
    Cdata,
    End(ValueEnd),
    /// They may be text after the value, which ends at this offset then.
    Doubt {
        end: usize,
        marked: bool,
    },
    /// The value has ended where that was doubted.
    Ended,
}

/// Whether some bytes are what they may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Is {
    No,
    Perhaps,
    Yes,
}

impl ValueReader {
    /// The length of the closing tag that is here whole, as it mostly is, with what shows that it is one.
    pub(super) fn closed(&self, bytes: &[u8]) -> Option<usize> {
        if self.cdata || self.in_string() {
            return None;
        }
        let rest = bytes.strip_prefix(&self.plan.tail[..]).unwrap_or(bytes);
        let length = bytes.len() - rest.len();
        let line = length > 0 && self.plan.tail.ends_with(b"\n") || self.line_start;
        let after = rest.strip_prefix(&self.closing[..])?;
        (self.after_closing(after, line) == After::Structure).then_some(length + self.closing.len())
    }

    /// The same where what follows the tag is text, so that the value may go on: the length of all that has to be seen to
    /// know this, that of the closing tag, and whether the end marker came.
    pub(super) fn doubted(&self, bytes: &[u8]) -> Option<(usize, usize, bool)> {
        let tail = &self.plan.tail[..];
        let lines = tail.is_empty() || tail.ends_with(b"\n");
        if self.doubt.is_some() || self.sink == Sink::Start || self.cdata || self.in_string() || !lines {
            return None;
        }
        let line = !tail.is_empty() || self.line_start;
        let after = bytes.strip_prefix(tail)?.strip_prefix(&self.closing[..]).filter(|_| !self.closing.is_empty())?;
        // What the first bytes tell counts: more of them may look otherwise.
        let mut told = (0..=after.len()).map(|count| (count, self.after_closing(&after[..count], line)));
        let (count, told) = told.find(|(_, told)| *told != After::Wait)?;
        let After::Doubt { marked } = told else { return None };
        let closing = bytes.len() - after.len();
        Some((closing + count, closing, marked))
    }

    pub(super) fn verdict(&self, given: &[String], calls: &Calls) -> Verdict {
        let held = &self.held[..];
        if self.cdata {
            return self.cdata_end(held);
        }
        let mut wait = false;
        if self.doubt.is_some() {
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
            if key_start.starts_with(held) {
                wait = true;
            } else if held.starts_with(key_start) && !self.closing.starts_with(held) && !held.starts_with(&self.closing)
            {
                return Verdict::End(ValueEnd::Children(self.held_at + key_start.len()));
            }
        }
        for before in [&self.plan.tail[..], b"\n", b""] {
            let declared = before.is_empty() || before == self.plan.tail;
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
            let line = line || !self.plan.lines || self.is_settled();
            match self.is_marker(rest, line) {
                Is::Yes => return Verdict::End(ValueEnd::Marker(from)),
                Is::Perhaps => wait = true,
                Is::No => {}
            }
            match self.next_key(rest, line, given, calls) {
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

    /// Whether `rest` is the closing tag, and how long that is. In a JSON string it counts only where the text around
    /// it shows that a quote is missing.
    fn closes(&self, rest: &[u8], line: bool) -> (Is, usize) {
        let length = self.closing.len();
        match begins(&self.closing, rest) {
            Is::Yes if self.in_string() && !line => (self.goes_on(&rest[length..]), length),
            found => (found, length),
        }
    }

    /// What `after` is, which follows a closing tag.
    fn after_closing(&self, after: &[u8], line: bool) -> After {
        if self.is_settled() {
            return After::Structure;
        }
        let (mut rest, mut lines) = (after, false);
        loop {
            let Some(next) = skip_blank(rest) else { return After::Structure };
            lines |= rest[..rest.len() - next.len()].contains(&b'\n');
            rest = next;
            // A closing tag that is written twice.
            match next.strip_prefix(&self.closing[..]).filter(|_| !self.closing.is_empty()) {
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
        match (goes_on, begins(&plan.end, rest)) {
            (Is::Yes, _) => After::Structure,
            (_, Is::Yes) => self.after_end_marker(&rest[plan.end.len()..]),
            (Is::Perhaps, _) | (_, Is::Perhaps) => After::Wait,
            _ if begins(&self.closing, rest) == Is::Perhaps => After::Wait,
            _ if plan.end.is_empty() => After::Structure,
            // Something like a tag on a line of its own is a near miss of the next one.
            _ if lines && line && plan.is_markup(rest[0]) => After::Structure,
            _ if lines || line && plan.lines || rest.len() == after.len() && plan.is_markup(rest[0]) => {
                After::Doubt { marked: false }
            }
            _ => After::Text,
        }
    }

    /// What `after` is, which follows a closing tag and the end marker.
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

    /// Begins to doubt whether the value has ended at `end`: what was held back waits for the rest.
    pub(super) fn begin_doubt(&mut self, end: usize, marked: bool) {
        let bytes = std::mem::take(&mut self.held);
        self.doubt = Some(Doubt { bytes, at: self.held_at, end, marked });
    }

    /// Decides a doubt for which no more bytes may wait: the end of the value where the end marker followed its closing
    /// tag, `Some(None)` where the tag is part of the value.
    pub(super) fn doubt_over(&self) -> Option<Option<usize>> {
        let doubt = self.doubt.as_ref().filter(|doubt| doubt.bytes.len() > DOUBT)?;
        Some(doubt.marked.then_some(doubt.end))
    }

    /// How many more bytes may wait for what is doubted to be decided.
    pub(super) fn most_doubted(&self) -> usize {
        self.doubt.as_ref().map_or(0, |doubt| (DOUBT + 1).saturating_sub(doubt.bytes.len()))
    }

    /// The text ends here: says where the value has ended, if it has, and whether what was doubted is part of it.
    pub(super) fn end_of_text(&self) -> Option<(usize, bool)> {
        let closing = [&self.plan.tail[..], b""].into_iter().find_map(|before| {
            let rest = self.held.strip_prefix(before).filter(|_| !self.cdata)?;
            let line = before.ends_with(b"\n") || self.line_start;
            let (closes, length) = self.closes(rest, line);
            (closes == Is::Yes).then(|| (self.held_at + before.len() + length, &rest[length..]))
        });
        let doubted = self.doubt.as_ref().map(|doubt| doubt.end);
        // Only a whole call shows that the value went on.
        let whole = closing.is_some_and(|(_, after)| after.trim_ascii_start().starts_with(&self.plan.end));
        match doubted {
            Some(end) if !whole => Some((end, false)),
            _ => closing.map(|(end, _)| (end, true)),
        }
    }

    /// Whether the call goes on with `after`, behind a closing tag.
    fn goes_on(&self, after: &[u8]) -> Is {
        let Some(rest) = skip_blank(after) else { return Is::No };
        if after[..after.len() - rest.len()].contains(&b'\n') {
            return Is::Yes;
        }
        any([&self.plan.key_start, &self.plan.end].into_iter().map(|tag| begins(tag, rest)))
    }

    /// Whether `rest` is the end marker, and not text: what follows tells.
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

    /// Whether another call begins, or the text may end, with `after`.
    fn is_start(&self, after: &[u8], line: bool) -> Is {
        if after.is_empty() {
            return Is::Perhaps;
        }
        if !line {
            return Is::No;
        }
        self.begins_call(after)
    }

    /// Whether `bytes` begin another call, or the section around it.
    fn begins_call(&self, bytes: &[u8]) -> Is {
        any(self.plan.starts.iter().map(|start| begins(start, bytes)))
    }

    /// Whether `rest` begins another argument, one that the tool has and that did not come yet.
    fn next_key(&self, rest: &[u8], line: bool, given: &[String], calls: &Calls) -> (Is, String) {
        let no = (Is::No, String::new());
        if !line || self.depth > 0 {
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
        let known = match calls.tool().and_then(|tool| tool.parameters.as_ref()) {
            Some(schema) => schema::knows(schema, key),
            None => !self.plan.nested,
        };
        if known && !given.iter().any(|given| given == key) { (Is::Yes, key.to_owned()) } else { no }
    }

    /// Whether the text that ends here ends with the end marker, the closing tag before it being missing.
    pub(in crate::parse::payload::tagged) fn ends_with_marker(&self) -> bool {
        let end = &self.plan.end;
        let starts = |before: &[u8]| self.held.strip_prefix(before).is_some_and(|rest| rest.starts_with(end));
        let befores = [&self.plan.tail[..], b"\n", b""];
        self.repair && !self.cdata && !end.is_empty() && !self.in_string() && befores.into_iter().any(starts)
    }
}

/// Whether `bytes` begin with `tag`, or may do so once more of them come.
fn begins(tag: &[u8], bytes: &[u8]) -> Is {
    if tag.is_empty() {
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

/// What follows the white space at the beginning; `None` if that is too long to look past.
fn skip_blank(bytes: &[u8]) -> Option<&[u8]> {
    let blank = bytes.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    (blank <= BLANK).then(|| &bytes[blank..])
}
