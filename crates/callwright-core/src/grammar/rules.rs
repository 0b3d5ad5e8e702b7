//! Writes the text of a Lark grammar, rule by rule.

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

    /// Optional white space.
    pub(super) fn white_space(&mut self) -> String {
        format!("{}?", self.terminal("/[ \\t\\r\\n]{1,8}/"))
    }

    /// Items in order with `separator` between them; optional ones may be omitted.
    pub(super) fn ordered(&mut self, items: &[(String, bool)], separator: &str) -> String {
        // From the end: what may follow if an item was written before, and if none was.
        let (mut following, mut first) = (String::new(), String::new());
        for (index, (item, required)) in items.iter().enumerate().rev() {
            let with = self.sequence(&[item.clone(), following.clone()]);
            if *required {
                first = with.clone();
            } else if items[..index].iter().all(|(_, required)| !required) {
                first = self.alternatives(&[with.clone(), first]);
            }
            if index > 0 {
                let continued = self.sequence(&[literal(separator), with]);
                following = if *required { continued } else { self.alternatives(&[continued, following]) };
            }
        }
        first
    }

    /// The grammar that begins with the rule `start`.
    pub(super) fn finish(self, start: &str) -> String {
        format!("start: {}\n{}", if start.is_empty() { "\"\"" } else { start }, self.text)
    }
}
