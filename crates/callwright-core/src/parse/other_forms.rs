//! Calls in another form than the format's: a JSON object in a code fence, another format's markers, `f(a=1)`, and so
//! on.
//!
//! A model that was trained on one form sometimes writes it whatever the prompt says. Such a call would be text, and
//! the answer would seem to have none. The automaton that finds the format's own markers also finds these forms, so
//! they are held back by the same bounds. If a form begins with a word, the text is searched backwards from the bracket
//! after it (`look`). A call in another form counts only if it names a known tool.

pub(super) mod bare;
pub(super) mod look;
pub(super) mod opening;

use super::markers::patterns::escape;
use super::markers::{Lookahead, Side, Sign, beginning};
use crate::format::{BUILTIN, Declaration, Format, JsonCall, Marker, Payload};
use regex_automata::dfa::Automaton as _;
use regex_automata::dfa::dense::DFA;
use regex_automata::{Anchored, Input};
use serde::{Deserialize, Serialize};
use std::sync::OnceLock;

/// What to do with a call in another form than the format's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OtherForms {
    /// Read it, as a repair, if it names a known tool; otherwise report it.
    #[default]
    Read,
    /// Keep it as text, and report it.
    Report,
    /// Keep it as text.
    Off,
}

/// Numbers of the forms without a built-in format; those of the built-in formats follow.
pub(crate) const JSON: u8 = 0;
pub(crate) const ACTION: u8 = 1;
pub(crate) const PYTHON: u8 = 2;
pub(crate) const PYTHON_LIST: u8 = 3;
pub(crate) const REACT: u8 = 4;
pub(crate) const CALL: u8 = 5;
pub(crate) const FENCED: u8 = 6;
const TOOL_REQUEST: u8 = 7;
/// Any form with a start marker; the text shows which. No form has this number.
pub(crate) const MARKED: u8 = u8::MAX;
/// The format's own form, with other bars in its markers. No form has this number.
pub(crate) const SPELLED: u8 = u8::MAX - 1;
#[cfg(test)]
const FIRST_BUILTIN: u8 = 8;

/// The bytes that begin another form, or end its beginning.
pub(super) const BEGINS: [u8; 6] = *b"{[(<`#";

/// Those that do so only three times in a row.
pub(super) const THRICE: [u8; 2] = *b"`#";

/// Shorter markers occur in ordinary text.
const TELLING: usize = 6;

/// Another form of calls.
pub(crate) struct Form {
    /// Its description.
    pub words: &'static str,
    /// The built-in format that reads it.
    pub fits: Option<&'static str>,
    /// The kind of reader.
    format: Reads,
    /// An automaton for the beginning of a call, if the form has a start marker; built on first use.
    beginning: OnceLock<Option<DFA<Vec<u32>>>>,
}

enum Reads {
    Declared(Box<Format>),
    Builtin(&'static Format),
}

impl Form {
    pub(crate) fn format(&self) -> &Format {
        match &self.format {
            Reads::Declared(format) => format,
            Reads::Builtin(format) => format,
        }
    }

    /// The end of a section of calls, if the form has one.
    pub(crate) fn section_end(&self) -> Option<&str> {
        self.format().section.as_ref().and_then(|section| section.end.text()).map(str::trim)
    }

    /// The start marker, if the form has one.
    pub(crate) fn start(&self) -> Option<&str> {
        self.format().start.as_ref().and_then(Marker::text).map(str::trim)
    }

    /// The start marker as a regular expression, including a section's.
    fn opening(&self) -> String {
        let section = self.format().section.as_ref().and_then(|section| section.start.text());
        let section = section.map(|start| format!("(?:{}{BLANK})?", escaped(start.trim()))).unwrap_or_default();
        section + &escaped(self.start().unwrap_or_default())
    }

    /// Returns whether one of its calls begins with `text`.
    fn begins(&self, text: &[u8]) -> bool {
        let build = || {
            let pattern = format!("{}{BLANK}(?:{})", self.opening(), heads(self.format()).join("|"));
            beginning(&pattern).ok()
        };
        let automaton = self.beginning.get_or_init(build);
        let input = Input::new(text).anchored(Anchored::Yes);
        automaton.as_ref().is_some_and(|automaton| automaton.try_search_fwd(&input).is_ok_and(|found| found.is_some()))
    }
}

/// The form with that number.
pub(crate) fn form(number: u8) -> Option<&'static Form> {
    forms().get(usize::from(number))
}

fn forms() -> &'static [Form] {
    static FORMS: OnceLock<Vec<Form>> = OnceLock::new();
    FORMS.get_or_init(|| {
        let literal = |text: &str| Some(Marker::Literal(text.to_owned()));
        let keys = |name: &str, arguments: &str| {
            let (name, arguments) = (name.to_owned(), arguments.to_owned());
            Payload::Json(JsonCall { name, arguments, array: true, ..JsonCall::default() })
        };
        let declared = |words, fits, declaration| {
            let format = Format::new(declaration).ok()?;
            Some(Form { words, fits, format: Reads::Declared(Box::new(format)), beginning: OnceLock::new() })
        };
        let payload = |payload| Declaration { payload, ..Declaration::default() };
        let json = || payload(keys("name", "arguments"));
        let [start, end] = ["[TOOL_REQUEST]", "[END_TOOL_REQUEST]"].map(literal);
        let own = [
            declared("JSON without the format's markers", Some("llama3"), json()),
            declared("JSON with action and action_input", None, payload(keys("action", "action_input"))),
            declared("a call as Python writes it", None, payload(Payload::Python { list: false, raw: false })),
            declared(
                "a list of calls as Python writes them",
                None,
                payload(Payload::Python { list: true, raw: false }),
            ),
            declared("Action and Action Input (ReAct)", None, json()),
            declared("call:NAME{…} without its special tokens", Some("gemma-4"), json()),
            declared("JSON in a code fence", None, json()),
            declared("[TOOL_REQUEST] and [END_TOOL_REQUEST]", None, Declaration { start, end, ..json() }),
        ];
        let builtin = BUILTIN.iter().map(|builtin| Form {
            words: builtin.name,
            fits: Some(builtin.name),
            format: Reads::Builtin(builtin.format()),
            beginning: OnceLock::new(),
        });
        own.into_iter().flatten().chain(builtin).collect()
    })
}

/// The format's own markers, which do not count as another form.
#[derive(Debug)]
pub(super) struct Own {
    reserved: Vec<String>,
    payload: Payload,
}

impl Own {
    pub(super) fn of(declaration: &Declaration) -> Own {
        let reserved = declaration.markers().filter_map(Marker::text).map(|text| text.trim().to_owned()).collect();
        Own { reserved, payload: declaration.payload.clone() }
    }

    /// Returns whether calls after this marker are the format's own, with or without mistakes.
    fn has(&self, start: &str, payload: &Payload) -> bool {
        let otherwise = match (&self.payload, payload) {
            (Payload::Json(_) | Payload::Named(_), Payload::Tagged(_)) => true,
            (Payload::Named(own), Payload::Named(other)) => {
                !other.head.forms.iter().any(|form| own.head.forms.contains(form))
            }
            _ => false,
        };
        self.reserved.iter().any(|own| own == start) && !otherwise
    }

    /// The other forms with a start marker, with their numbers.
    fn others(&self) -> impl Iterator<Item = (u8, &'static Form)> {
        forms().iter().enumerate().skip(usize::from(TOOL_REQUEST)).filter_map(|(number, form)| {
            let start = form.start().filter(|start| start.len() >= TELLING)?;
            (!self.has(start, &form.format().payload)).then_some((number as u8, form))
        })
    }

    /// The number of the form of the call that begins with `text`.
    pub(super) fn other(&self, text: &[u8]) -> Option<u8> {
        self.others().find(|(_, form)| form.begins(text)).map(|(number, _)| number)
    }
}

// Unbounded, because bounds need a state for each number of bytes; the scanner bounds the whole. Names exclude
// characters that begin a marker, because a pattern that can restart inside itself needs many states.
const BLANK: &str = r"[ \t\r\n]*";
const STRING: &str = r#""[^"\\{}\[\]()\r\n<>`#|]+""#;
const WORD: &str = "[A-Za-z0-9_.:/-]+";
/// A first argument of a Python call without its name: a text, a number or a word.
const POSITIONAL: &str =
    r#"(?:"(?:[^"\\]|\\(?s-u:.))*"|'(?:[^'\\]|\\(?s-u:.))*'|-?[0-9][0-9.]*|[Tt]rue|[Ff]alse|None|null)"#;
/// The beginning of one that is not prose, whatever follows: a text over several lines, a list or an object.
const POSITIONAL_BEGUN: &str = r#"(?:"""|'''|[\[{][ \t\r\n]*["'0-9{\[-])"#;
/// What may follow a Python call that is not prose: `f("x") reads x` stays text.
const ENDS: &str = r"[ \t]*(?:[\r\n,;\]`]|\z)";
pub(crate) const NAME_KEYS: [&str; 8] =
    ["name", "tool_name", "function_name", "function", "tool", "action", "toolName", "func"];
pub(crate) const ARGUMENT_KEYS: [&str; 18] = [
    "arguments",
    "parameters",
    "params",
    "args",
    "input",
    "inputs",
    "kwargs",
    "action_input",
    "tool_input",
    "tool_args",
    "tool_arguments",
    "tool_parameters",
    "tool_params",
    "toolInput",
    "function_args",
    "function_arguments",
    "function_parameters",
    "function_input",
];
const LISTS: &str = "tool_calls|function_calls|calls|tools";

/// An object whose first keys are those of a call, or a list of such objects.
fn json_call() -> String {
    let (names, arguments) = (NAME_KEYS.join("|"), ARGUMENT_KEYS.join("|"));
    let others = format!(r#"(?:"(?:type|id|call_id|tool_call_id)"{BLANK}:{BLANK}{STRING}{BLANK},{BLANK})*"#);
    let wrapper = format!(r#"(?:"(?:function|tool_call|function_call|tool)"{BLANK}:{BLANK}\{{{BLANK}{others})?"#);
    let next = format!(r#"(?:\}}|,{BLANK}{others}"(?:{arguments})"{BLANK}:)"#);
    let call = format!(r#"{others}{wrapper}"(?:{names})"{BLANK}:{BLANK}{STRING}{BLANK}{next}"#);
    format!(r"(?:\[{BLANK})?\{{{BLANK}{call}")
}

/// The beginning of a Python call's arguments that is not prose; `ends` is what may follow a call of one argument or none.
fn python_arguments(ends: &str) -> String {
    format!(
        r"\({BLANK}(?:{POSITIONAL_BEGUN}|[A-Za-z_][A-Za-z0-9_]*[ ]*=[^=]|(?:{POSITIONAL}{BLANK})?\){ends}|{POSITIONAL}{BLANK},)"
    )
}

/// Patterns, each with the meaning of a match.
pub(super) type Signs = Vec<(Sign, String)>;

/// The patterns before the format's own, and after them.
pub(super) fn patterns(own: &Own) -> (Signs, Signs) {
    let sign = |side, lookahead| Sign { side, exact: true, lookahead };
    let mut before = Vec::new();
    let mut after = vec![
        (
            sign(Side::Other(JSON), Lookahead::All),
            format!(r#"(?:```[A-Za-z_]*{BLANK})?(?:\{{{BLANK}"(?:{LISTS})"{BLANK}:{BLANK})?{}"#, json_call()),
        ),
        (sign(Side::Other(PYTHON), Lookahead::All), python_arguments(ENDS)),
    ];
    // Forms whose calls begin alike share a pattern; otherwise the automaton would repeat the states of that beginning.
    let mut starts: Vec<(String, Vec<String>)> = Vec::new();
    let mut ends: Vec<String> = Vec::new();
    for (_, form) in own.others() {
        let declaration = &**form.format();
        let start = form.opening();
        for head in heads(declaration) {
            match starts.iter_mut().find(|(known, _)| *known == head) {
                Some((_, starts)) if starts.contains(&start) => {}
                Some((_, starts)) => starts.push(start.clone()),
                None => starts.push((head, vec![start.clone()])),
            }
        }
        ends.extend(form.section_end().filter(|end| !end.is_empty()).map(escaped));
    }
    for (head, starts) in starts {
        let pattern = format!("(?:{}){BLANK}{head}", starts.join("|"));
        before.push((sign(Side::Other(MARKED), Lookahead::All), pattern));
    }
    ends.sort();
    ends.dedup();
    if !ends.is_empty() {
        after.push((sign(Side::OtherEnd, Lookahead::None), ends.join("|")));
    }
    after.push((sign(Side::Fence, Lookahead::None), "```".to_owned()));
    (before, after)
}

/// Returns what must follow a start marker for a call: everything up to the name, and the text after it.
fn heads(declaration: &Declaration) -> Vec<String> {
    let head = |form: &str| {
        let mut pattern = String::new();
        let mut rest = form.trim();
        while let Some((text, after)) = rest.split_once('{') {
            let (part, following) = after.split_once('}').unwrap_or((after, ""));
            pattern += &loose(text);
            pattern += if part == "index" { "[0-9]+" } else { WORD };
            rest = following;
        }
        pattern + &loose(rest)
    };
    match &declaration.payload {
        Payload::Json(json) if json.keyed => vec![format!(r#"(?:\[{BLANK})?\{{{BLANK}"{WORD}"{BLANK}:{BLANK}\{{"#)],
        Payload::Json(_) => vec![json_call()],
        Payload::Named(named) => {
            let opening = format!(r"{BLANK}(?:```[a-z]*{BLANK})?\{{");
            // A fence may be missing.
            let open = |form: &String| head(form.split("```").next().unwrap_or(form));
            named.head.forms.iter().map(|form| open(form) + &opening).collect()
        }
        Payload::Tagged(tagged) => {
            let end = declaration.end.as_ref().and_then(Marker::text).unwrap_or_default();
            let next = format!("{BLANK}(?:{}|{})", escaped(tagged.key_start.trim()), escaped(end.trim()));
            tagged.head.forms.iter().map(|form| head(form) + &next).collect()
        }
        Payload::Python { .. } => vec![format!(r"\[?{BLANK}(?:print\({BLANK})?{WORD}{BLANK}\(")],
    }
}

fn escaped(text: &str) -> String {
    text.bytes().map(escape).collect()
}

/// The text with any white space in place of its own.
fn loose(text: &str) -> String {
    let words: Vec<String> = text.split_whitespace().map(escaped).collect();
    let edge = |blank: bool| if blank { BLANK } else { "" };
    if words.is_empty() {
        return edge(!text.is_empty()).to_owned();
    }
    let first = edge(text.starts_with(char::is_whitespace));
    let last = edge(text.ends_with(char::is_whitespace));
    format!("{first}{}{last}", words.join(BLANK))
}

/// The name at the beginning of a JSON call, and whether there is a key of arguments.
pub(crate) fn json_name(text: &[u8]) -> Option<(&str, bool)> {
    let text = std::str::from_utf8(text).ok()?;
    let parts: Vec<&str> = text.split('"').collect();
    // Every second part is a string.
    let at = (1..parts.len()).step_by(2).find(|&at| {
        let colon = parts.get(at + 1).is_some_and(|between| between.trim() == ":");
        NAME_KEYS.contains(&parts[at]) && colon && parts.len() > at + 2
    })?;
    let argued = parts[at + 3..].iter().any(|part| ARGUMENT_KEYS.contains(part));
    Some((parts[at + 2], argued))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_exists() {
        assert_eq!(forms().len(), usize::from(FIRST_BUILTIN) + BUILTIN.len());
    }

    #[test]
    fn the_name_is_found_in_the_beginning_of_a_call() {
        for (text, name) in [
            (r#"{"name": "f", "arguments":"#, Some(("f", true))),
            (r#"{"type": "function", "function": {"name": "f"}"#, Some(("f", false))),
            (r#"[{"tool": "f", "args":"#, Some(("f", true))),
            (r#"{"nam": "f"}"#, None),
            (r#"{"name": "#, None),
        ] {
            assert_eq!(json_name(text.as_bytes()), name, "{text}");
        }
    }
}
