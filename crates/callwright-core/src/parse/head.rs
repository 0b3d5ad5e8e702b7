//! The text before the arguments of a call that is not a JSON object: the tool's name, and an id in some formats.
//!
//! A head is at most one line, and its forms differ in their last part, so it is read as one unit when its end is
//! found.

use super::bytes::ByteSet;
use crate::format::{Head, history};
use std::ops::Range;
use std::sync::Arc;

/// Maximum length of a head. Longer text is not a head.
const LONGEST: usize = 512;

/// Whether a known tool has that name.
pub(crate) type IsTool<'a> = &'a dyn Fn(&str) -> bool;

/// The parsed forms of a head, shared by the calls of a format.
#[derive(Debug)]
pub(crate) struct HeadPlan {
    forms: Vec<Vec<Part>>,
    id: Option<Vec<Part>>,
    /// What may follow a head: the arguments' first bracket or tag, and what models write in its place. It ends a head
    /// whose last text is missing.
    stops: Vec<Vec<u8>>,
    /// The texts that end a head.
    lasts: Vec<Vec<u8>>,
    /// The last bytes of all these.
    ends: ByteSet,
    /// Whether a head is the end of a tag.
    in_tag: bool,
}

#[derive(Debug, Clone, PartialEq)]
enum Part {
    /// A text without the white space at its edges; empty if it is only white space.
    Text(String),
    Name,
    Id,
    Index,
    /// Like `Index`, counted from 1.
    Number,
    /// Any other text, such as the channel of a turn.
    Header,
}

/// A parsed head.
#[derive(Debug, PartialEq)]
pub(crate) struct HeadRead {
    pub name: String,
    /// The id that the model wrote, or that the format builds from the other parts.
    pub id: Option<String>,
    /// Whether it is written as declared.
    pub exact: bool,
    /// The last byte of the stop that ended it, which is not part of it.
    pub stopped: Option<u8>,
    /// Its range in the model's text.
    pub range: Range<usize>,
}

/// Progress of reading a head.
#[derive(Debug, PartialEq)]
pub(crate) enum HeadStep {
    /// More bytes are needed.
    More,
    /// It ended with this byte.
    Done(HeadRead),
    /// Not a head; there is no name.
    Lost,
}

/// Reads one head.
#[derive(Debug)]
pub(crate) struct HeadReader {
    plan: Arc<HeadPlan>,
    text: Vec<u8>,
    start: usize,
}

impl HeadPlan {
    /// `stops` are the beginnings of arguments.
    pub(crate) fn new(head: &Head, stops: &[&str]) -> HeadPlan {
        let mut forms: Vec<Vec<Part>> = head.forms.iter().map(|form| parse(form)).collect();
        // More specific forms first: `{name}[ARGS]` also matches what `{name}[ID]{id}[ARGS]` writes, and `{name}[B]`
        // what `{name}[A][B]` does.
        let text = |part: &Part| if let Part::Text(text) = part { text.len() } else { 0 };
        forms.sort_by_key(|form| std::cmp::Reverse((form.len(), form.iter().map(text).sum::<usize>())));
        let texts =
            || forms.iter().flatten().filter_map(|part| if let Part::Text(text) = part { Some(text) } else { None });
        let usable = |stop: &&str| !stop.is_empty() && !texts().any(|text| text.contains(stop));
        let stops: Vec<Vec<u8>> = stops.iter().copied().filter(usable).map(Into::into).collect();
        let mut lasts: Vec<Vec<u8>> = Vec::new();
        for form in &forms {
            if let Some(Part::Text(text)) = form.last()
                && !text.is_empty()
                && !lasts.iter().any(|last| last == text.as_bytes())
            {
                lasts.push(text.clone().into_bytes());
            }
        }
        let ends: Vec<u8> = stops.iter().chain(&lasts).filter_map(|text| text.last().copied()).collect();
        let ends = ByteSet::new(|byte| ends.contains(&byte));
        let in_tag = lasts.iter().any(|last| last.ends_with(b">"));
        HeadPlan { id: head.id.as_deref().map(parse), forms, stops, lasts, ends, in_tag }
    }

    /// Name and id of a whole head; if `rough`, it may differ from the declaration. `index` counts the calls.
    fn read(&self, text: &str, index: usize, rough: bool, is_tool: IsTool<'_>) -> Option<(String, Option<String>)> {
        if text.contains(' ') && self.id.is_none() {
            // Only a tool's name may have spaces in it.
            let named = self.forms.iter().filter_map(|form| fit(form, text, false)?.name);
            let before_markup = text.split('<').next().unwrap_or(text).trim().to_owned();
            let plain = |name: &String| name.contains(' ') && name.chars().all(|c| c == ' ' || in_word(c));
            if let Some(name) = named.chain([before_markup]).find(|name| plain(name) && is_tool(name)) {
                return Some((name, None));
            }
        }
        let mut fits = self.forms.iter().filter_map(|form| fit(form, text, rough)).peekable();
        let first = fits.peek().cloned();
        // Reject a form that takes another form's text for part of the name.
        let plain = |fit: &Fit| fit.name.as_ref().is_none_or(|name| bare_name(name).as_ref() == Some(name));
        // A damaged text of a form is no part of the name, even if another form has none there.
        let found = fits.find(plain).or(first.filter(|fit| fit.name.as_ref().is_none_or(|name| !name.contains('<'))))?;
        match (found.name, found.id) {
            (Some(name), Some(id)) => Some((name, Some(id))),
            (Some(name), None) => {
                let index = found.index.unwrap_or_else(|| index.to_string());
                let id = self.id.as_ref().map(|pattern| compose(pattern, &name, &index));
                Some((name, id))
            }
            (None, Some(id)) => match fit(self.id.as_ref()?, &id, false) {
                Some(parts) => Some((parts.name?, Some(id))),
                None if rough => Some((bare_name(&id)?, None)),
                None => None,
            },
            (None, None) => None,
        }
    }
}

impl HeadReader {
    pub(crate) fn new(plan: &Arc<HeadPlan>) -> HeadReader {
        HeadReader { plan: Arc::clone(plan), text: Vec::new(), start: 0 }
    }

    pub(crate) fn reset(&mut self) {
        self.text.clear();
    }

    /// Returns whether only white space was read.
    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Takes bytes that only continue the head, up to one that `stops`; returns how many.
    pub(crate) fn go_on(&mut self, bytes: &[u8], stops: impl Fn(u8) -> bool) -> usize {
        if self.text.is_empty() {
            return 0;
        }
        let room = LONGEST.saturating_sub(self.text.len());
        let count = bytes.iter().take(room).take_while(|&&byte| !self.plan.ends.has(byte) && !stops(byte)).count();
        self.text.extend_from_slice(&bytes[..count]);
        count
    }

    /// Takes one byte, at offset `at`; `index` counts the calls of the answer from 0. With `repair` off, the head ends
    /// only as declared, or at the stop.
    pub(crate) fn push(&mut self, byte: u8, at: usize, index: usize, is_tool: IsTool<'_>) -> HeadStep {
        if self.text.is_empty() {
            if byte.is_ascii_whitespace() {
                return HeadStep::More;
            }
            self.start = at;
        }
        self.text.push(byte);
        if !self.plan.ends.has(byte) {
            return if self.text.len() > LONGEST { HeadStep::Lost } else { HeadStep::More };
        }
        let ends = |last: &[u8]| last.last() == Some(&byte) && self.text.ends_with(last);
        if self.plan.lasts.iter().any(|last| ends(last)) {
            for rough in [false, true] {
                if let HeadStep::Done(read) = self.finish(at + 1, self.text.len(), index, rough, None, is_tool) {
                    return HeadStep::Done(read);
                }
            }
        }
        if let Some(stop) = self.plan.stops.iter().find(|stop| ends(stop)) {
            let length = self.text.len() - stop.len();
            return self.finish_roughly(at + 1 - stop.len(), length, index, Some(byte), is_tool);
        }
        if byte == b'>' && self.plan.in_tag && self.is_name_in_tag() {
            return self.finish_roughly(at + 1, self.text.len() - 1, index, None, is_tool);
        }
        if self.text.len() > LONGEST { HeadStep::Lost } else { HeadStep::More }
    }

    /// The payload ends before offset `at`, without arguments.
    pub(crate) fn end(&mut self, at: usize, index: usize, is_tool: IsTool<'_>) -> HeadStep {
        self.finish_roughly(at, self.text.len(), index, None, is_tool)
    }

    /// Returns whether the text is a name, the end of its quotes, and the end of a tag.
    fn is_name_in_tag(&self) -> bool {
        let text = String::from_utf8_lossy(&self.text);
        let name = text.trim_end_matches(['>', '/', '"', '\'', '`', ' ']);
        !name.is_empty() && name.chars().all(in_word)
    }

    fn finish_roughly(
        &self,
        end: usize,
        length: usize,
        index: usize,
        stopped: Option<u8>,
        is_tool: IsTool<'_>,
    ) -> HeadStep {
        match self.finish(end, length, index, false, stopped, is_tool) {
            HeadStep::Done(read) => HeadStep::Done(read),
            _ => self.finish(end, length, index, true, stopped, is_tool),
        }
    }

    fn finish(
        &self,
        end: usize,
        length: usize,
        index: usize,
        rough: bool,
        stopped: Option<u8>,
        is_tool: IsTool<'_>,
    ) -> HeadStep {
        let text = String::from_utf8_lossy(&self.text[..length]);
        match self.plan.read(text.trim(), index, rough, is_tool) {
            Some((name, id)) => HeadStep::Done(HeadRead { name, id, exact: !rough, stopped, range: self.start..end }),
            None => HeadStep::Lost,
        }
    }
}

/// The parts of a text that matches a form.
#[derive(Default, Clone)]
struct Fit {
    name: Option<String>,
    id: Option<String>,
    index: Option<String>,
}

/// Matches `text` against `form`. If `rough`, texts of the form may be missing, and the text after the name is ignored.
fn fit(form: &[Part], text: &str, rough: bool) -> Option<Fit> {
    let mut found = Fit::default();
    let mut rest = text;
    let mut parts = form.iter().peekable();
    while let Some(part) = parts.next() {
        let (value, after) = match (part, parts.peek()) {
            (Part::Text(text), _) => {
                match rest.trim_start().strip_prefix(text.as_str()) {
                    Some(after) => rest = after,
                    None if rough => {}
                    None => return None,
                }
                continue;
            }
            (Part::Header, Some(Part::Text(next))) => {
                rest = &rest[rest.find(next.as_str()).or(rough.then_some(rest.len()))?..];
                continue;
            }
            (Part::Header, _) => {
                rest = "";
                continue;
            }
            (Part::Name, Some(Part::Header)) => rest.split_at(rest.find(|c| !in_word(c)).unwrap_or(rest.len())),
            (Part::Index | Part::Number, _) => {
                let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
                rest.split_at(digits)
            }
            // A name may contain the separator before an index.
            (_, Some(Part::Text(next))) if matches!(form.last(), Some(Part::Index | Part::Number)) => {
                match rest.rfind(next.as_str()) {
                    Some(at) => rest.split_at(at),
                    None => (rest, ""),
                }
            }
            (_, Some(Part::Text(next))) if next.is_empty() => {
                rest.split_at(rest.find(char::is_whitespace).unwrap_or(rest.len()))
            }
            (_, Some(Part::Text(next))) => match rest.find(next.as_str()) {
                Some(at) => rest.split_at(at),
                None if rough || rest.is_empty() => (rest, ""),
                None => return None,
            },
            _ => (rest, ""),
        };
        let mut value = value.trim().to_owned();
        if rough && *part == Part::Name {
            value = bare_name(&value)?;
        }
        if value.is_empty() {
            return None;
        }
        rest = after;
        match part {
            Part::Name => found.name = Some(value),
            Part::Id => found.id = Some(value),
            Part::Number => {}
            _ => found.index = Some(value),
        }
    }
    (rough || rest.trim().is_empty()).then_some(found)
}

/// The first word.
fn bare_name(text: &str) -> Option<String> {
    let word = text.split(|c: char| !in_word(c)).next()?;
    (!word.is_empty()).then(|| word.to_owned())
}

fn in_word(c: char) -> bool {
    c.is_alphanumeric() || "_-.:/".contains(c)
}

fn compose(pattern: &[Part], name: &str, index: &str) -> String {
    let text = |part: &Part| match part {
        Part::Text(text) => text.clone(),
        Part::Name => name.to_owned(),
        Part::Index => index.to_owned(),
        Part::Id | Part::Number | Part::Header => String::new(),
    };
    pattern.iter().map(text).collect()
}

fn parse(form: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut rest = form;
    let mut text = String::new();
    for name in history::parts(form) {
        let marker = format!("{{{name}}}");
        let Some((before, after)) = rest.split_once(&marker) else { continue };
        rest = after;
        text.push_str(before);
        let part = match name {
            "name" => Part::Name,
            "id" => Part::Id,
            "index" => Part::Index,
            "number" => Part::Number,
            "header" => Part::Header,
            _ => {
                text.push_str(&marker);
                continue;
            }
        };
        if !text.is_empty() {
            parts.push(Part::Text(std::mem::take(&mut text).trim().to_owned()));
        }
        parts.push(part);
    }
    text.push_str(rest);
    if !text.trim().is_empty() {
        parts.push(Part::Text(text.trim().to_owned()));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(forms: &[&str], id: Option<&str>, stop: &str, text: &str) -> (HeadStep, String) {
        let head = Head { forms: forms.iter().map(|form| form.to_string()).collect(), id: id.map(str::to_owned) };
        let mut reader = HeadReader::new(&Arc::new(HeadPlan::new(&head, &[stop])));
        for (at, byte) in text.bytes().enumerate() {
            let step = reader.push(byte, at, 2, &|name| name == "my tool");
            if step != HeadStep::More {
                return (step, text[at + 1..].to_owned());
            }
        }
        (reader.end(text.len(), 2, &|_| false), String::new())
    }

    fn parts(step: (HeadStep, String)) -> (String, Option<String>, bool, String) {
        match step {
            (HeadStep::Done(read), rest) => (read.name, read.id, read.exact, rest),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn heads_of_every_shape() {
        let said = |name: &str, id: Option<&str>, exact, rest: &str| {
            (name.to_owned(), id.map(str::to_owned), exact, rest.to_owned())
        };
        let mistral = ["{name}[ID]{id}[ARGS]", "{name}[ARGS]"];
        assert_eq!(parts(read(&mistral, None, "{", "f[ID]123[ARGS]{}")), said("f", Some("123"), true, "{}"));
        assert_eq!(parts(read(&mistral, None, "{", "f[ARGS]{}")), said("f", None, true, "{}"));
        assert_eq!(parts(read(&mistral, None, "{", "f{}")), said("f", None, false, "}"));
        let fenced = ["function|sep|{name}\n```json\n"];
        assert_eq!(parts(read(&fenced, None, "{", "function|sep|f\n```json\n{}")), said("f", None, true, "\n{}"));
        assert_eq!(parts(read(&fenced, None, "{", "function|sep|f\n{}")), said("f", None, false, "}"));
        let composed = ["{id}|args|"];
        let id = Some("functions.{name}:{index}");
        let text = "functions.a:b:3|args|{}";
        assert_eq!(parts(read(&composed, id, "{", text)), said("a:b", Some("functions.a:b:3"), true, "{}"));
        assert_eq!(parts(read(&composed, id, "{", "f|args|{}")), said("f", None, false, "{}"));
        assert_eq!(parts(read(&["{name}:"], id, "", "f:")), said("f", Some("functions.f:2"), true, ""));
        let both = ["{id}|name|{name}|args|"];
        assert_eq!(parts(read(&both, None, "{", "x1|name|f|args|{}")), said("f", Some("x1"), true, "{}"));
        for text in ["my tool <|json|><|message|>", "my tool<|channel|>x <|json|><|message|>"] {
            let forms = ["{name} <|json|><|message|>", "{name}{header}<|message|>"];
            assert_eq!(parts(read(&forms, None, "{", text)), said("my tool", None, true, ""), "{text}");
        }
        assert_eq!(parts(read(&["{name}\">"], None, "{", "f>{}")), said("f", None, false, "{}"));
        let number = ["{name}\" index=\"{number}\">"];
        assert_eq!(parts(read(&number, None, "<key>", "f\" index=\"12\"><key>")), said("f", None, true, "<key>"));
        let turn = ["{name} <|json|><|message|>", "{name}{header}<|message|>"];
        for header in ["", " <|json|>", "<|channel|>analysis", "<|channel|>x <|json|>"] {
            let text = format!("a.b-c{header}<|message|>{{}}");
            assert_eq!(parts(read(&turn, None, "{", &text)), said("a.b-c", None, true, "{}"), "{header}");
        }
        let plain = ["{name}\n"];
        assert_eq!(parts(read(&plain, None, "<key>", "f\n<key>a")), said("f", None, true, "a"));
        assert_eq!(parts(read(&plain, None, "<key>", " f")), said("f", None, true, ""));
        assert_eq!(read(&plain, None, "<key>", "").0, HeadStep::Lost);
        assert_eq!(read(&plain, None, "<key>", &"x".repeat(1000)).0, HeadStep::Lost);
    }
}
