//! Writes a declaration as a declaration block.

use super::{Around, Declaration, Head, History, JsonCall, Marker, Payload};
use serde_json::Value;

impl Declaration {
    /// The block that declares this format, for the beginning of a template or a format file.
    ///
    /// ```
    /// use callwright_core::format::{Declaration, Format, Marker};
    ///
    /// let declaration = Declaration { start: Some(Marker::Literal("<call>".into())), ..Declaration::default() };
    /// let read = Format::parse_declaration(&declaration.to_toml())?.expect("it is a block");
    /// assert_eq!(*read, declaration);
    /// # Ok::<(), callwright_core::Error>(())
    /// ```
    pub fn to_toml(&self) -> String {
        let mut lines = Lines(String::from("{#--- callwright\n[format]\n"));
        lines.text("name", &self.name);
        if let Some(suffix) = &self.suffix {
            lines.text("suffix", suffix);
        }
        lines.line("start", &self.start.as_ref().map_or_else(|| text(""), marker));
        lines.line("end", &self.end.as_ref().map_or_else(|| text(""), marker));
        lines.line("literal", "true");
        let kind = match self.payload {
            Payload::Json(_) => "json",
            Payload::Named(_) => "named",
            Payload::Tagged(_) => "tagged",
            Payload::Python { .. } => "python",
        };
        lines.text("payload", kind);
        if !self.markup.is_empty() {
            lines.line("markup", &list(self.markup.iter().map(marker)));
        }
        if let Some(opened) = &self.opened {
            lines.text("opened", opened);
        }
        if self.text_after_calls {
            lines.line("text_after_calls", "true");
        }
        lines.around("section", self.section.as_ref());
        lines.around("reasoning", self.reasoning.as_ref());
        if self.reasoning_open && self.reasoning.is_some() {
            lines.line("open", "true");
        }
        if self.reasoning_interleaved && self.reasoning.is_some() {
            lines.line("interleaved", "true");
        }
        if !self.hidden.is_empty() && self.reasoning.is_some() {
            lines.line("hidden", &list(self.hidden.iter().map(marker)));
        }
        lines.payload(&self.payload);
        lines.table("history");
        lines.text("between", &self.history.between);
        if self.history.result != History::default().result {
            lines.text("result", &self.history.result);
        }
        if !self.styles.is_empty() {
            lines.table("styles");
        }
        for (name, variables) in &self.styles {
            let variables: Vec<String> =
                variables.iter().map(|(name, value)| format!("{} = {}", text(name), escaped(value))).collect();
            lines.line(&text(name), &format!("{{ {} }}", variables.join(", ")));
        }
        lines.0 + "---#}\n"
    }

    /// The same format with another suffix in place of its own.
    pub(crate) fn with_suffix(&self, suffix: &str) -> Option<Declaration> {
        // The own suffix is plain text, so no other text of the block contains it by accident.
        let block = self.to_toml().replace(self.suffix.as_deref()?, suffix);
        super::declaration::read(&block).ok().flatten()
    }
}

struct Lines(String);

impl Lines {
    fn table(&mut self, name: &str) {
        self.0 += &format!("\n[{name}]\n");
    }

    fn line(&mut self, key: &str, value: &str) {
        self.0 += &format!("{key} = {value}\n");
    }

    fn text(&mut self, key: &str, value: &str) {
        self.line(key, &text(value));
    }

    fn around(&mut self, name: &str, around: Option<&Around>) {
        let Some(around) = around else { return };
        self.table(name);
        self.line("start", &marker(&around.start));
        self.line("end", &marker(&around.end));
    }

    fn head(&mut self, head: &Head) {
        self.table("call");
        match head.forms.as_slice() {
            [form] => self.text("head", form),
            forms => self.line("head", &list(forms.iter().map(|form| text(form)))),
        }
        head.id.iter().for_each(|id| self.text("id", id));
    }

    fn payload(&mut self, payload: &Payload) {
        match payload {
            Payload::Json(json) if *json == JsonCall::default() => {}
            Payload::Json(json) => {
                self.table("keys");
                if json.keyed {
                    self.line("keyed", "true");
                } else {
                    self.text("name", &json.name);
                    self.text("arguments", &json.arguments);
                }
                json.id.iter().for_each(|id| self.text("id", id));
                if json.array {
                    self.line("array", "true");
                }
            }
            Payload::Named(named) => {
                self.head(&named.head);
                if !named.tail.is_empty() {
                    self.text("tail", &named.tail);
                }
                named.quote.iter().for_each(|quote| self.text("quote", quote));
                if named.bare_keys {
                    self.line("bare_keys", "true");
                }
            }
            Payload::Tagged(tagged) => {
                self.head(&tagged.head);
                self.table("argument");
                self.text("key_start", &tagged.key_start);
                self.text("key_end", &tagged.key_end);
                if !tagged.types.is_empty() {
                    let words: Vec<String> =
                        tagged.types.iter().map(|(kind, word)| format!("{kind} = {}", text(word))).collect();
                    self.line("types", &format!("{{ {} }}", words.join(", ")));
                }
                if tagged.escaped_keys {
                    self.line("escaped_keys", "true");
                }
                if !tagged.value_start.is_empty() {
                    self.text("value_start", &tagged.value_start);
                }
                self.text("value_end", &tagged.value_end);
                if tagged.nested {
                    self.line("nested", "true");
                }
            }
            Payload::Python { list, raw } => {
                self.table("call");
                self.line("list", &list.to_string());
                if *raw {
                    self.line("raw", "true");
                }
            }
        }
    }
}

fn marker(marker: &Marker) -> String {
    match marker {
        Marker::Literal(literal) => text(literal),
        Marker::Pattern { pattern, text: None } => format!("{{ pattern = {} }}", text(pattern)),
        Marker::Pattern { pattern, text: Some(written) } => {
            format!("{{ pattern = {}, text = {} }}", text(pattern), text(written))
        }
    }
}

fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(", "))
}

fn text(text: &str) -> String {
    escaped(&Value::from(text))
}

/// JSON's escapes are also TOML's. In addition, escape the end of the block and the control characters that only TOML
/// forbids.
fn escaped(value: &Value) -> String {
    value.to_string().replace("#}", "#\\u007D").replace('\u{7f}', "\\u007F")
}
