//! Prevents text from outside from acting as markup.
//!
//! A user message, a schema or a tool result may contain `<|im_end|>` or a tool-call marker. Rendered unchanged, the
//! tokenizer would read it as the end of the turn. Escaping it would change what the model sees. So before rendering,
//! every *token* in such text is replaced by one private-use character, which templates copy, trim, split and write as
//! JSON like any letter. After rendering, the prompt is split there, and these pieces are tokenised as plain text. A
//! *marker* that is plain text has no token to separate: a word joiner (U+2060) after its first character breaks it up,
//! visible to the model but not to people.

use crate::error::{Error, ErrorKind, Result};
use crate::message::{Arguments, Message, Role, ToolCall};
use aho_corasick::{AhoCorasick, Input, MatchKind};
use minijinja_transformers::{Placeholders, json_escapes};
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::collections::HashMap;

/// The last plane of private-use characters, which nobody uses in text.
const PLANE: std::ops::RangeInclusive<char> = '\u{100000}'..='\u{10fffd}';

const WORD_JOINER: char = '\u{2060}';

/// The strings to which a model or a format gives a meaning.
#[derive(Debug, Clone, Default)]
pub struct Reserved {
    strings: Vec<(String, Class)>,
    automaton: Option<AhoCorasick>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Control,
    UserDefined,
    Marker,
}

/// Origin or destination of a text, which determines what is reserved in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// From a person or a tool.
    Outside,
    /// The model's own text: its markup, such as `</think>`, has to stay markup.
    Model,
    /// Inside a JSON string, whose escapes break up some reserved text.
    JsonString,
}

impl Reserved {
    /// `control`: the model's control tokens, separated in all text. `user_defined`: tokens that are markup by
    /// convention (`<think>`, `<tool_call>`), which the model's own earlier text may contain. `markers`: the tool-call
    /// format's markers that are plain text and not tokens.
    ///
    /// Strings shorter than two characters, or of white space only, are ignored.
    pub fn new<S: Into<String>>(
        control: impl IntoIterator<Item = S>,
        user_defined: impl IntoIterator<Item = S>,
        markers: impl IntoIterator<Item = S>,
    ) -> Result<Reserved> {
        let classed = |class| move |text: S| (text.into(), class);
        let mut seen = HashMap::new();
        let strings: Vec<(String, Class)> = (control.into_iter().map(classed(Class::Control)))
            .chain(user_defined.into_iter().map(classed(Class::UserDefined)))
            .chain(markers.into_iter().map(classed(Class::Marker)))
            .filter(|(text, _)| text.chars().nth(1).is_some() && !text.trim().is_empty())
            .filter(|(text, class)| seen.insert(text.clone(), *class).is_none())
            .collect();
        if strings.is_empty() {
            return Ok(Reserved::default());
        }
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(strings.iter().map(|(text, _)| text))
            .map_err(|error| {
                Error::new(ErrorKind::Template, format!("the reserved strings are too many: {error}")).caused_by(error)
            })?;
        Ok(Reserved { strings, automaton: Some(automaton) })
    }

    /// Returns whether nothing is reserved.
    pub fn is_empty(&self) -> bool {
        self.strings.is_empty()
    }
}

/// Splits rendered text at reserved text: `(text, literal)`.
pub(super) fn cut(rendered: String, placeholders: &Placeholders) -> Vec<(String, bool)> {
    if placeholders.originals.is_empty() {
        return vec![(rendered, false)];
    }
    let mut pieces: Vec<(String, bool)> = Vec::new();
    let mut start = 0;
    for (offset, c) in rendered.char_indices() {
        let Some(original) = placeholders.original(c) else { continue };
        if start < offset {
            pieces.push((rendered[start..offset].to_owned(), false));
        }
        pieces.push((original.to_owned(), true));
        start = offset + c.len_utf8();
    }
    if start < rendered.len() || pieces.is_empty() {
        pieces.push((rendered[start..].to_owned(), false));
    }
    pieces
}

/// Replaces reserved text in the input of one rendering.
pub(super) struct Neutraliser<'a> {
    reserved: &'a Reserved,
    indices: RefCell<HashMap<String, u32>>,
    placeholders: RefCell<Placeholders>,
}

impl<'a> Neutraliser<'a> {
    /// Skips private-use characters that the `templates` themselves contain.
    pub(super) fn new(reserved: &'a Reserved, templates: &[&str]) -> Neutraliser<'a> {
        let highest = templates.iter().flat_map(|source| source.chars()).filter(|c| PLANE.contains(c)).max();
        let first = highest.map_or(*PLANE.start() as u32, |c| c as u32 + 1);
        let placeholders = Placeholders { first, originals: Vec::new() };
        Neutraliser { reserved, indices: RefCell::default(), placeholders: RefCell::new(placeholders) }
    }

    /// The meaning of all placeholders so far.
    pub(super) fn placeholders(&self) -> Placeholders {
        self.placeholders.borrow().clone()
    }

    /// Replaces reserved strings in a message. `calls_as_json`: its calls will be written as JSON.
    pub(super) fn message(&self, message: &Message, calls_as_json: bool) -> Message {
        let place = if message.role == Role::Assistant { Place::Model } else { Place::Outside };
        let in_calls = if calls_as_json { Place::JsonString } else { Place::Outside };
        let outside = |text: &String| self.text(text, Place::Outside);
        let call = |call: &ToolCall| ToolCall {
            id: call.id.as_ref().map(outside),
            name: self.text(&call.name, in_calls),
            arguments: match &call.arguments {
                Arguments::Object(map) => Arguments::Object(self.object(map, in_calls)),
                Arguments::Raw(text) => Arguments::Raw(self.text(text, Place::Outside)),
            },
        };
        Message {
            role: message.role,
            content: self.text(&message.content, place),
            parts: None,
            reasoning: message.reasoning.as_ref().map(|text| self.text(text, place)),
            tool_calls: message.tool_calls.iter().map(call).collect(),
            tool_call_id: message.tool_call_id.as_ref().map(outside),
            name: message.name.as_ref().map(outside),
        }
    }

    /// Replaces reserved strings in a JSON value from outside, including keys.
    pub(super) fn outside(&self, value: &Value) -> Value {
        self.value(value, Place::Outside)
    }

    fn text(&self, text: &str, place: Place) -> String {
        let text = self.private_use(text);
        let Some(automaton) = &self.reserved.automaton else { return text };
        let mut out = String::with_capacity(text.len());
        let mut end = 0;
        while let Some(found) = automaton.find(Input::new(&text).range(end..)) {
            let (string, class) = &self.reserved.strings[found.pattern().as_usize()];
            out.push_str(&text[end..found.start()]);
            end = found.end();
            match class {
                Class::UserDefined if place == Place::Model => out.push_str(string),
                Class::Control | Class::UserDefined if place == Place::JsonString && json_escapes(string) => {
                    out.push_str(string);
                }
                Class::Control | Class::UserDefined => self.push_placeholder(&mut out, string),
                Class::Marker => {
                    let first = string.chars().next();
                    out.extend(first);
                    out.push(WORD_JOINER);
                    // The remaining characters may begin another marker.
                    end = found.start() + first.map_or(0, char::len_utf8);
                }
            }
        }
        out.push_str(&text[end..]);
        out
    }

    /// Characters of the private plane in the input get placeholders too.
    fn private_use(&self, text: &str) -> String {
        if !text.chars().any(|c| PLANE.contains(&c)) {
            return text.to_owned();
        }
        let mut out = String::with_capacity(text.len());
        for c in text.chars() {
            if PLANE.contains(&c) {
                self.push_placeholder(&mut out, c.encode_utf8(&mut [0; 4]));
            } else {
                out.push(c);
            }
        }
        out
    }

    fn push_placeholder(&self, out: &mut String, original: &str) {
        let mut placeholders = self.placeholders.borrow_mut();
        let mut indices = self.indices.borrow_mut();
        let index = match indices.get(original) {
            Some(&index) => index,
            None => {
                let index = placeholders.originals.len() as u32;
                placeholders.originals.push(original.to_owned());
                indices.insert(original.to_owned(), index);
                index
            }
        };
        match char::from_u32(placeholders.first + index).filter(|c| PLANE.contains(c)) {
            Some(placeholder) => out.push(placeholder),
            // More than 65,000 different reserved strings in one prompt: the remaining ones are dropped.
            None => out.push(char::REPLACEMENT_CHARACTER),
        }
    }

    fn value(&self, value: &Value, place: Place) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(text, place)),
            Value::Array(items) => items.iter().map(|item| self.value(item, place)).collect(),
            Value::Object(map) => Value::Object(self.object(map, place)),
            other => other.clone(),
        }
    }

    fn object(&self, map: &Map<String, Value>, place: Place) -> Map<String, Value> {
        map.iter().map(|(key, value)| (self.text(key, place), self.value(value, place))).collect()
    }
}
