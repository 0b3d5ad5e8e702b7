//! Forms that begin with a word, searched backwards from the bracket that shows a call.
//!
//! No automaton holds text for them: every word could begin one, and text would be held back all the time. Only the end
//! of the text that may still become such a call is held back from the user.

use super::{CALL, PYTHON, PYTHON_LIST, REACT};

/// Length of the text to search, in bytes.
pub(crate) const TAIL: usize = 320;
/// Maximum length of a name.
const NAME: usize = 96;
/// Maximum number of lines in an opener.
const LINES: usize = 4;

/// The text before a call's arguments.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Opener {
    pub form: u8,
    /// Its start in the tail, including a code fence, and the start of the call itself.
    pub start: usize,
    pub call: usize,
    /// The name's range in the tail.
    pub name: std::ops::Range<usize>,
    /// Whether it opens a code fence.
    pub fenced: bool,
}

/// The end of a text, and whether it is the whole text.
#[derive(Clone, Copy)]
pub(crate) struct Tail<'t> {
    pub text: &'t str,
    pub whole: bool,
}

impl<'t> Tail<'t> {
    /// Starts of the lines, from the last one backwards.
    fn lines(self) -> impl Iterator<Item = usize> + 't {
        let text = self.text;
        let breaks = std::iter::successors(text.rfind('\n'), move |at| text[..*at].rfind('\n')).map(|at| at + 1);
        breaks.chain(self.whole.then_some(0)).take(LINES)
    }

    /// The code fence line right before the line at `at`.
    fn fence_before(self, at: usize) -> Option<usize> {
        let end = at.checked_sub(1)?;
        let start = self.text[..end].rfind('\n').map(|at| at + 1).or(self.whole.then_some(0))?;
        let info = self.text[start..end].trim().strip_prefix("```")?;
        info.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'_').then_some(start)
    }
}

fn in_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b':' | b'/' | b'-' | b'$') || byte >= 0x80
}

/// Starts of the list bracket (if any) and the name in a line that contains nothing else.
fn lone_name(line: &str) -> Option<(usize, usize)> {
    let begin = line.len() - line.trim_start_matches([' ', '\t']).len();
    let listed = line[begin..].strip_prefix('[').map(|rest| rest.trim_start_matches([' ', '\t']));
    let name = line.len() - listed.unwrap_or(&line[begin..]).len();
    (line.len() - name <= NAME && line.bytes().skip(name).all(in_name)).then_some((begin, name))
}

/// The opener before a `(` that may begin the arguments of a call in Python. `listed` is whether a list begins before the
/// name.
pub(crate) fn before_parenthesis(tail: Tail, is_tool: impl Fn(&str, bool) -> bool) -> Option<Opener> {
    if !tail.text.bytes().last().is_some_and(in_name) {
        return None;
    }
    let line = tail.lines().next()?;
    let (begin, name) = lone_name(&tail.text[line..])?;
    let fence = tail.fence_before(line);
    let listed = name > begin;
    let form = if listed { PYTHON_LIST } else { PYTHON };
    let (call, name) = (line + begin, line + name..tail.text.len());
    let start = fence.unwrap_or(call);
    is_tool(&tail.text[name.clone()], listed).then_some(Opener { form, start, call, name, fenced: fence.is_some() })
}

/// The opener before a `{` that may begin a call's arguments.
pub(crate) fn before_brace(tail: Tail, is_tool: impl Fn(&str) -> bool) -> Option<Opener> {
    if let Some((call, name)) = called(tail.text) {
        let name = name..tail.text.len();
        let named = is_tool(&tail.text[name.clone()]);
        return named.then_some(Opener { form: CALL, start: call, call, name, fenced: false });
    }
    tail.lines().find_map(|line| match action(&tail.text[line..], &is_tool)? {
        Action::Begun => None,
        Action::Whole { name, fenced } => {
            let name = line + name.start..line + name.end;
            Some(Opener { form: REACT, start: line, call: line, name, fenced })
        }
    })
}

/// The text right before a `(`, judging by a part of the text.
pub(crate) enum Before<'t> {
    /// No name on its own line: [`before_parenthesis`] finds none either.
    Other,
    /// A name on its own line.
    Name(&'t [u8]),
    /// More of the text is needed.
    Unknown,
}

impl Before<'_> {
    pub(crate) fn of(text: &[u8]) -> Before<'_> {
        let back =
            |from: usize, is_in: fn(u8) -> bool| text[..from].iter().rposition(|&byte| !is_in(byte)).map(|at| at + 1);
        let blank = |byte| matches!(byte, b' ' | b'\t');
        if text.last().is_some_and(|&byte| !in_name(byte)) {
            return Before::Other;
        }
        let Some(name) = back(text.len(), in_name) else { return Before::Unknown };
        let Some(mut line) = back(name, blank) else { return Before::Unknown };
        if text[line - 1] == b'[' {
            let Some(begin) = back(line - 1, blank) else { return Before::Unknown };
            line = begin;
        }
        match text[line - 1] {
            // White space after a call is not text, so what follows it may begin a line.
            byte if byte != b'\n' && byte.is_ascii_control() || !text[name].is_ascii() => Before::Unknown,
            b'\n' => Before::Name(&text[name..]),
            _ => Before::Other,
        }
    }
}

/// Returns whether `call:NAME` may be right before a `{`, judging by `before`.
pub(crate) fn may_follow_call(before: &[u8]) -> bool {
    let name = before.iter().rev().take(NAME).take_while(|&&byte| in_name(byte)).count();
    let call = before[before.len() - name..].windows("call:".len()).any(|word| word == b"call:");
    call || name == before.len()
}

/// Searches for `Action Input:` before brackets, scanning each byte once.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    looked_at: usize,
    last: Option<usize>,
}

impl Lines {
    /// Returns whether it may be in the text that is searched backwards from a `{` after `before`.
    pub(crate) fn may_have_action(&mut self, before: &[u8]) -> bool {
        // White space is held back separately, and some is dropped after a call.
        const REACH: usize = TAIL + 64;
        const INPUT: &[u8] = b"Action Input:";
        let Some(reach) = before.len().checked_sub(REACH) else { return true };
        let from = reach.max(self.looked_at);
        let found = before[from..].windows(INPUT.len()).rposition(|text| text == INPUT);
        self.last = found.map(|at| from + at).or(self.last);
        self.looked_at = before.len().saturating_sub(INPUT.len());
        self.last.is_some_and(|last| last >= reach)
    }
}

/// Number of bytes at the end of the text that may become the beginning of a call. `may_be_tool` is about a name in code;
/// elsewhere any namespace may precede a tool's name.
pub(crate) fn undecided(tail: Tail, may_be_tool: impl Fn(&str) -> bool, is_tool: impl Fn(&str) -> bool) -> usize {
    let text = tail.text;
    let starts = [
        lone(tail, &may_be_tool),
        called(text).map(|(call, _)| call),
        begun_call(text),
        begun_fence(tail),
        // The first such line: the second one looks like another beginning.
        tail.lines().filter(|&line| action(&text[line..], &is_tool).is_some()).last(),
    ];
    // Of two possible calls, the longer one.
    let start = starts.into_iter().flatten().min();
    start.map_or(0, |start| {
        // White space before a call is not text.
        let blank = text[..start].bytes().rev().take_while(u8::is_ascii_whitespace).count();
        text.len() - start + blank
    })
}

/// Start of a name that is alone in the last line.
fn lone(tail: Tail, may_be_tool: impl Fn(&str) -> bool) -> Option<usize> {
    let line = tail.lines().next()?;
    let (begin, name) = lone_name(&tail.text[line..])?;
    let listed = name > begin;
    let name = &tail.text[line + name..];
    let possible = if listed { true } else { !name.is_empty() && may_be_tool(name) };
    possible.then(|| tail.fence_before(line).unwrap_or(line + begin))
}

/// Starts of `call:NAME` at the end of the text, and of its name.
fn called(text: &str) -> Option<(usize, usize)> {
    let from = text.len() - text.bytes().rev().take(NAME).take_while(|byte| in_name(*byte)).count();
    let call = text.get(from..)?.rfind("call:")? + from;
    is_apart(text, call).then_some((call, call + "call:".len()))
}

/// Start of a code fence of which only the first line, or part of it, has come.
fn begun_fence(tail: Tail) -> Option<usize> {
    let line = tail.lines().next()?;
    let last = tail.text[line..].trim();
    let info = last.strip_prefix("```").or_else(|| "```".starts_with(last).then_some(""))?;
    match last {
        "" => tail.fence_before(line),
        _ => info.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'_').then_some(line),
    }
}

/// Start of a prefix of `call:` at the end of the text.
fn begun_call(text: &str) -> Option<usize> {
    (1.."call:".len()).rev().find_map(|length| {
        let at = text.len().checked_sub(length)?;
        (text.as_bytes()[at..] == "call:".as_bytes()[..length] && is_apart(text, at)).then_some(at)
    })
}

/// Returns whether `at` is at a word boundary.
fn is_apart(text: &str, at: usize) -> bool {
    !text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_')
}

enum Action {
    Begun,
    Whole { name: std::ops::Range<usize>, fenced: bool },
}

/// Reads `Action: NAME`, a line break, `Action Input:` and perhaps a code fence; `None` for other text.
fn action(line: &str, is_tool: impl Fn(&str) -> bool) -> Option<Action> {
    const AROUND: [char; 4] = [' ', '\t', '*', '`'];
    let rest = line.trim_start_matches([' ', '\t', '*']);
    let Some(rest) = rest.strip_prefix("Action:") else {
        let begun = !rest.is_empty() || line.contains('*');
        return (begun && "Action:".starts_with(rest)).then_some(Action::Begun);
    };
    let rest = rest.trim_start_matches(AROUND);
    let length = rest.bytes().take_while(|byte| in_name(*byte)).count();
    let name = rest.get(..length)?;
    let start = line.len() - rest.len();
    let rest = &rest[length..];
    if length > NAME {
        return None;
    }
    if rest.is_empty() {
        return Some(Action::Begun);
    }
    if !is_tool(name) {
        return None;
    }
    let rest = rest.trim_start_matches(AROUND).trim_start_matches(['\r', '\n', ' ', '\t', '*']);
    let Some(rest) = rest.strip_prefix("Action Input:") else {
        return "Action Input:".starts_with(rest).then_some(Action::Begun);
    };
    let rest = rest.trim_start_matches(['*', ' ', '\t', '\r', '\n']);
    let fence = rest.strip_prefix("```").map(|info| info.trim_end_matches(['\r', '\n', ' ', '\t']));
    let fenced = fence.is_some_and(|info| info.bytes().all(|byte| byte.is_ascii_alphabetic()));
    if !rest.is_empty() && !fenced {
        return (rest.len() < 3 && "```".starts_with(rest)).then_some(Action::Begun);
    }
    Some(Action::Whole { name: start..start + length, fenced })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail(text: &str) -> Tail<'_> {
        Tail { text, whole: true }
    }

    #[test]
    fn only_possible_calls_are_held_back() {
        let may = |name: &str| "get_weather".starts_with(name) || "tools.".starts_with(name);
        let held = |text| undecided(tail(text), may, |name| name == "get_weather");
        for (text, expected) in [
            ("Let me see", 0),
            ("get_wea", 7),
            ("Well:\nget_wea", 8),
            ("Well: get_wea", 0),
            ("[get_weather", 12),
            ("```python\nget", 13),
            ("Well:\n``", 3),
            ("Well:\n```pyth", 8),
            ("```python\n", 10),
            ("```python\nx", 0),
            ("The c", 2),
            ("The call", 5),
            ("The recall", 0),
            ("so.call:get_w", 10),
            ("so.call:any.get_w", 14),
            ("[any.get_w", 10),
            ("any.get_w", 0),
            ("too", 3),
            ("Thought: x\nAction: get_weather\nAction In", 30),
            ("Action: book\nAction In", 0),
            ("Action: cal", 11),
            ("Action: get_weather\nAction Input: rain", 0),
            ("Action: get_weather\nAction Input: ```json", 41),
            ("Well:\n**", 3),
            ("Well:\n* one", 0),
            ("", 0),
        ] {
            assert_eq!(held(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_bracket_reveals_the_opener_before_it() {
        let is_tool = |name: &str| name == "f";
        let form = |text| before_brace(tail(text), is_tool).map(|opener| opener.form);
        assert_eq!(form("call:f"), Some(CALL));
        assert_eq!(form("Action: f\nAction Input:"), Some(REACT));
        assert_eq!(form("Action: g\nAction Input:"), None);
        assert_eq!(form("f"), None);
        let is_tool = |name: &str, _| name == "f";
        let form = |text| before_parenthesis(tail(text), is_tool).map(|opener| opener.form);
        assert_eq!(form("f"), Some(PYTHON));
        assert_eq!(form("Now:\n[f"), Some(PYTHON_LIST));
        assert_eq!(form("Now f"), None);
        assert!(before_parenthesis(Tail { text: "f", whole: false }, is_tool).is_none());
    }
}
