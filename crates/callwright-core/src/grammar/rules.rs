//! Writes the text of a Lark grammar, rule by rule.

use super::limits::LIMITS;
use std::collections::HashMap;

/// Numbered rules and terminals; equal ones are written once.
#[derive(Debug, Clone, Default)]
pub(super) struct Rules {
    text: String,
    count: usize,
    known: HashMap<String, String>,
}

/// A text as a Lark literal; an empty text is nothing.
pub(super) fn literal(text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    // Lark's strings are JSON's, except for DEL.
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

impl Rules {
    fn define(&mut self, body: String, upper: bool) -> String {
        if let Some(name) = self.known.get(&body) {
            return name.clone();
        }
        if self.are_too_long() {
            return "r0".to_owned();
        }
        self.count += 1;
        let name = if upper { format!("T{}", self.count) } else { format!("r{}", self.count) };
        self.text.push_str(&format!("{name}: {body}\n"));
        self.known.insert(body, name.clone());
        name
    }

    /// A separate rule, unless the body is just a name.
    pub(super) fn rule(&mut self, body: String) -> String {
        let plain = !body.is_empty() && body.bytes().all(|b| b.is_ascii_alphanumeric());
        if plain { body } else { self.define(body, false) }
    }

    /// A terminal: text that the lexer reads in one piece.
    pub(super) fn terminal(&mut self, body: &str) -> String {
        self.define(body.to_owned(), true)
    }

    /// A name for a rule whose body refers to itself; [`Rules::complete`] gives the body.
    pub(super) fn reserve(&mut self) -> String {
        self.count += 1;
        format!("r{}", self.count)
    }

    pub(super) fn complete(&mut self, name: &str, body: &str) {
        self.text.push_str(&format!("{name}: {body}\n"));
    }

    /// A sequence; empty parts are omitted.
    pub(super) fn sequence(&mut self, parts: &[String]) -> String {
        let parts: Vec<&str> = parts.iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
        match parts.as_slice() {
            [] => String::new(),
            parts => self.rule(parts.join(" ")),
        }
    }

    /// One of several.
    pub(super) fn alternatives(&mut self, options: &[String]) -> String {
        let options: Vec<&str> = options.iter().map(|o| if o.is_empty() { "\"\"" } else { o.as_str() }).collect();
        self.rule(options.join(" | "))
    }

    /// A JSON value that fits a schema.
    pub(super) fn json(&mut self, schema: &serde_json::Value) -> String {
        self.rule(format!("%json {schema}"))
    }

    /// Returns whether there is a rule for such a value.
    pub(super) fn has_json(&self, schema: &serde_json::Value) -> bool {
        self.known.contains_key(&format!("%json {schema}"))
    }

    /// Optional white space.
    pub(super) fn white_space(&mut self) -> String {
        format!("{}?", self.terminal("/[ \\t\\r\\n]{1,8}/"))
    }

    /// Items in order with `separator` between them; optional ones may be omitted.
    ///
    /// The rules form a tree over the items, with two for each: a chain of a thousand rules, one inside the other,
    /// overflows the stack of what compiles them.
    pub(super) fn ordered(&mut self, items: &[(String, bool)], separator: &str) -> String {
        if items.is_empty() {
            return String::new();
        }
        let begun = self.begun(items, separator);
        if items.iter().any(|(_, required)| *required) { begun } else { format!("{begun}?") }
    }

    /// At least one of the items.
    fn begun(&mut self, items: &[(String, bool)], separator: &str) -> String {
        if let [(item, _)] = items {
            return item.clone();
        }
        let (left, right) = items.split_at(items.len().div_ceil(2));
        let begun = self.begun(left, separator);
        let following = self.following(right, separator);
        let with_left = self.sequence(&[begun, following]);
        if left.iter().any(|(_, required)| *required) {
            return with_left;
        }
        let without_left = self.begun(right, separator);
        self.alternatives(&[with_left, without_left])
    }

    /// The items after another one.
    fn following(&mut self, items: &[(String, bool)], separator: &str) -> String {
        if let [(item, required)] = items {
            let next = self.sequence(&[literal(separator), item.clone()]);
            return if *required { next } else { format!("{next}?") };
        }
        let (left, right) = items.split_at(items.len().div_ceil(2));
        let (left, right) = (self.following(left, separator), self.following(right, separator));
        self.sequence(&[left, right])
    }

    /// The place that [`Rules::reset`] goes back to.
    pub(super) fn mark(&self) -> (usize, usize) {
        (self.text.len(), self.count)
    }

    /// Discards the rules after a mark.
    pub(super) fn reset(&mut self, (length, count): (usize, usize)) {
        self.text.truncate(length);
        self.count = count;
        self.known.retain(|_, name| name[1..].parse::<usize>().is_ok_and(|number| number <= count));
    }

    /// Returns whether the rules are more text than a grammar may have; what comes then is not written any more.
    pub(super) fn are_too_long(&self) -> bool {
        self.text.len() > LIMITS.text
    }

    /// The grammar that begins with the rule `start`.
    pub(super) fn finish(self, start: &str) -> String {
        format!("start: {}\n{}", if start.is_empty() { "\"\"" } else { start }, self.text)
    }
}
