//! What ends a value between tags: its closing tag, or where that is missing another argument or the end marker.
//!
//! Nothing is escaped there, so text may look like any of them: what follows tells.

use super::super::DEPTH;
use super::{Sink, ValueEnd, ValueReader};
use crate::format::calls::Calls;
use crate::format::schema::{self, Types};

/// How much white space may stand between tags that are told apart from text by what follows.
const BLANK: usize = 32;
/// How long the name of an argument may be that ends a value without its closing tag.
const NAME: usize = 64;
const CDATA_START: &[u8] = b"<![CDATA[";

/// What the bytes held back are.
pub(super) enum Verdict {
    /// The first of them is part of the value.
    Part,
    /// More have to come.
    Wait,
    Cdata,
    End(ValueEnd),
}

/// Whether some bytes are what they may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Is {
    No,
    Perhaps,
    Yes,
}

impl ValueReader {
    pub(super) fn verdict(&self, given: &[String], calls: &Calls) -> Verdict {
        let held = &self.held[..];
        if self.cdata {
            return self.cdata_end(held);
        }
        let mut wait = false;
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
            } else if held.starts_with(key_start) && !self.closing.starts_with(held) && held != self.closing {
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
                match self.closes(rest, line) {
                    (Is::Yes, length) if length == rest.len() => return Verdict::End(ValueEnd::Closed),
                    (Is::Yes, length) => return Verdict::End(ValueEnd::ClosedBefore(from + length)),
                    (Is::Perhaps, _) => wait = true,
                    (Is::No, _) => {}
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
        any(self.plan.starts.iter().map(|start| begins(start, after)))
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
    pub(in crate::format::tagged) fn ends_with_marker(&self) -> bool {
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
