//! Finds out whether a text begins with a call in another form, while it is generated.
//!
//! A model that begins a call in another form than the format's can be held to the format: what it wrote is dropped, and
//! the format's own marker is written instead. That may only happen where the text cannot be anything but a call.

use super::{BLANK, LISTS, WORD, json_call, json_name, python_arguments};
use crate::message::Message;
use crate::parse::evidence::Sources;
use crate::parse::markers::beginning;
use crate::parse::{ParserOptions, names};
use crate::tool::Tools;
use regex_automata::Anchored;
use regex_automata::dfa::Automaton as _;
use regex_automata::dfa::dense::DFA;
use regex_automata::util::primitives::StateID;
use regex_automata::util::start;
use std::sync::{Arc, OnceLock};

/// Bytes up to which a text may become a call.
const MOST: usize = 400;

/// Watches whether a text begins with a call of a known tool in any form.
#[derive(Debug, Clone)]
pub struct Opening {
    tools: Arc<Tools>,
    /// The conversation, whose results a model may copy a call from.
    messages: Arc<Vec<Message>>,
    text: Vec<u8>,
    state: Option<StateID>,
    found: Opens,
}

/// What a text so far begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opens {
    /// A call, if it goes on so.
    Perhaps,
    /// A call of a known tool, with the beginning of its arguments.
    Call,
    /// Something else.
    Text,
}

impl Opening {
    /// Watches an answer to this conversation from its beginning.
    #[must_use]
    pub fn new(tools: Arc<Tools>, messages: Arc<Vec<Message>>) -> Opening {
        let mut opening = Opening { tools, messages, text: Vec::new(), state: None, found: Opens::Text };
        opening.reset();
        opening
    }

    /// Builds the automaton, so that the first text does not wait for it.
    pub fn prepare() {
        automaton();
    }

    /// Returns what the text so far begins with.
    #[must_use]
    pub fn found(&self) -> Opens {
        self.found
    }

    /// Begins again with an empty text.
    pub fn reset(&mut self) {
        self.text.clear();
        let begin = |dfa: &DFA<Vec<u32>>| dfa.start_state(&start::Config::new().anchored(Anchored::Yes)).ok();
        self.state = automaton().and_then(begin);
        self.found = if self.state.is_some() { Opens::Perhaps } else { Opens::Text };
    }

    /// Takes more of the text.
    pub fn push(&mut self, bytes: &[u8]) {
        let (Some(dfa), Some(mut state), Opens::Perhaps) = (automaton(), self.state, self.found) else { return };
        for byte in bytes {
            state = dfa.next_state(state, *byte);
            self.text.push(*byte);
            // The automaton reports a match one byte late.
            if dfa.is_match_state(dfa.next_eoi_state(state)) {
                self.found = if self.names_tool() && !self.is_copy() { Opens::Call } else { Opens::Text };
                return;
            }
            if dfa.is_dead_state(state) || self.text.len() > MOST {
                self.found = Opens::Text;
                return;
            }
        }
        self.state = Some(state);
    }

    /// Returns whether a tool's result has the same beginning of a call: the parser judges it when it is whole.
    fn is_copy(&self) -> bool {
        let text = String::from_utf8_lossy(&self.text);
        let call = text.find(['{', '[']).map_or(&*text, |at| &text[at..]);
        Sources::new(&ParserOptions::default().answering(&self.messages).session.sources).have_text(call)
    }

    /// Returns whether the text names a known tool where a call has its name.
    fn names_tool(&self) -> bool {
        if let Some((name, _)) = json_name(&self.text) {
            return names::meant(name, &self.tools).is_some();
        }
        let text = String::from_utf8_lossy(&self.text);
        let in_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | ':' | '/' | '-');
        text.split(|c| !in_name(c)).any(|word| self.tools.get(word).is_some())
    }
}

/// The automaton for the beginnings of calls, built once.
fn automaton() -> Option<&'static DFA<Vec<u32>>> {
    static AUTOMATON: OnceLock<Option<DFA<Vec<u32>>>> = OnceLock::new();
    AUTOMATON.get_or_init(|| beginning(&pattern()).ok()).as_ref()
}

/// The beginning of a call in any form, up to the beginning of its arguments.
///
/// Not from the markers of the built-in formats: an automaton of all of them takes as long to build as a short answer takes.
fn pattern() -> String {
    let fence = format!("(?:```[A-Za-z_]*{BLANK})?");
    // Any tag, because models invent some; what follows it tells.
    let tag = format!(r"(?:[<\[]\|?[A-Za-z_]{{2,24}}\|?[>\]]{BLANK})?");
    let listed = format!(r#"(?:\{{{BLANK}"(?:{LISTS})"{BLANK}:{BLANK})?"#);
    // Some chat templates show the example of a call with doubled braces.
    let doubled = r"(?:\{)?";
    let json = json_call();
    // The end of a text is not known while it is generated.
    let python = format!(r"(?:\[{BLANK})?{WORD}{}", python_arguments(r"[ \t]*[\r\n,;\]`]"));
    let element = format!(r#"<(?:function|invoke|tool)(?:=|[ ]name=)"?{WORD}"?>"#);
    format!("{BLANK}(?:{tag}{fence}{tag}(?:{listed}{doubled}{json}|{element})|{fence}{python})")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools() -> Arc<Tools> {
        let json = r#"[{"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}]"#;
        Arc::new(Tools::from_json(json, "tools").unwrap())
    }

    /// What a text begins with, and after how many of its bytes that is known; the same for every way to split it.
    fn found(text: &str) -> (Opens, usize) {
        let mut opening = Opening::new(tools(), Arc::default());
        let mut known = 0;
        for byte in text.bytes() {
            opening.push(&[byte]);
            known += 1;
            if opening.found() != Opens::Perhaps {
                break;
            }
        }
        for cut in 0..text.len() {
            let mut other = Opening::new(tools(), Arc::default());
            other.push(&text.as_bytes()[..cut]);
            other.push(&text.as_bytes()[cut..]);
            assert_eq!(other.found(), opening.found(), "{text} at {cut}");
        }
        (opening.found(), known)
    }

    #[test]
    fn calls_in_other_forms_are_found_and_other_text_is_not() {
        for text in [
            "```json\n{\n  \"name\": \"get_weather\",\n  \"arguments\": {",
            "{\"name\": \"get_weather\", \"arguments\": {}}",
            "\n[{\"name\": \"get_weather\", \"parameters\": {",
            "{{\"name\": \"get_weather\", \"arguments\": {",
            "{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"parameters\": {",
            "<tools>\n{\"name\": \"get_weather\", \"arguments\": {",
            "```xml\n<tools>\n{\"name\": \"get_weather\", \"arguments\": {",
            "{\"tool_calls\": [{\"name\": \"get_weather\", \"arguments\": {",
            "[get_weather(city=\"Oslo\")]",
            "```python\nget_weather(\"Oslo\", 2)",
            "<tool_call>\n<function=get_weather>\n<parameter=city>",
            "{\"name\": \"functions.get_weather\", \"arguments\": {",
        ] {
            assert_eq!(found(text).0, Opens::Call, "{text}");
        }
        for text in [
            "The weather in Oslo is fine.",
            "{\"name\": \"Ada\", \"arguments\": {",
            "{\"name\": \"get_weather\", \"description\": \"The weather\"}",
            "```json\n{\"name\": \"Ada\", \"age\": 36}",
            "get_weather reads the weather.",
            "get_weather() reads the weather.",
            "> {\"name\": \"get_weather\", \"arguments\": {",
            "- {\"name\": \"get_weather\", \"arguments\": {",
            "`{\"name\": \"get_weather\", \"arguments\": {",
            "1. [get_weather(city=\"Oslo\")]",
            "# get_weather",
        ] {
            assert_eq!(found(text).0, Opens::Text, "{text}");
        }
        assert_eq!(found("{\"name\": \"get_weather\"").0, Opens::Perhaps);
        assert!(found(&format!("{{\"name\": \"{}", "x".repeat(1000))).1 <= MOST + 1);
    }

    #[test]
    fn a_copy_of_a_result_is_not_found() {
        let page =
            serde_json::json!({"page": "Run {\"name\": \"get_weather\",\n \"arguments\": {\"city\": \"Oslo\"}}"});
        for (result, expected) in [(page.to_string(), Opens::Text), ("It is sunny.".to_owned(), Opens::Call)] {
            let messages = vec![Message::tool("call00001", "read_page", result)];
            let mut opening = Opening::new(tools(), Arc::new(messages));
            opening.push(b"```json\n{\"name\": \"get_weather\", \"arguments\": {");
            assert_eq!(opening.found(), expected);
        }
    }

    #[test]
    fn prose_is_known_after_its_first_word() {
        assert_eq!(found("The weather"), (Opens::Text, "The ".len()));
        assert_eq!(found("Über"), (Opens::Text, 1));
    }
}
