//! The declaration block of a template file: a Jinja comment that holds TOML.
//!
//! Other engines skip the comment, so a chat template that declares its format works everywhere. People write these
//! blocks by hand: every error names line and column of the file, and suggests what was probably meant.

use super::{
    Around, Declaration, Format, Head, History, JsonCall, Marker, NamedCall, Payload, TaggedCall, UNNAMED, history,
    typed,
};
use crate::error::{Error, ErrorKind, Location, Result};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

const OPENING: &str = "{#--- callwright";
const PAYLOADS: [&str; 4] = ["json", "named", "tagged", "python"];
/// Characters that make a text a regular expression.
const OPERATORS: [char; 14] = ['\\', '.', '+', '*', '?', '(', ')', '|', '[', ']', '{', '}', '^', '$'];
/// The parts that a head may contain.
const HEAD_PARTS: [&str; 5] = ["name", "id", "index", "number", "header"];

pub(super) fn parse(source: &str) -> Result<Option<Format>> {
    read(source)?.map(|declaration| Format::with_source(declaration, source.to_owned())).transpose()
}

/// Reads the declaration, without compiling its markers.
pub(super) fn read(source: &str) -> Result<Option<Declaration>> {
    let lead = source.len() - source.trim_start().len();
    let Some(rest) = source[lead..].strip_prefix(OPENING) else { return Ok(None) };
    let offset = lead + OPENING.len();
    let Some(end) = rest.find("#}") else {
        let error = Error::new(ErrorKind::Format, "the declaration block is not closed");
        return Err(error.at(Location::of_offset(source, lead)).hint("close it with `---#}`"));
    };
    let Some(block) = rest[..end].strip_suffix("---") else {
        let error = Error::new(ErrorKind::Format, "the declaration block ends at `#}`, which Jinja takes for its end");
        return Err(error
            .at(Location::of_offset(source, offset + end))
            .hint("close the block with `---#}`; inside it, write `#}` as \"#\\u007D\""));
    };
    let reader = Reader { source, offset };
    let table = DeTable::parse(block).map_err(|error| {
        let message = format!("not TOML: {}", error.message().trim());
        reader.error(error.span().unwrap_or(0..0), ErrorKind::Syntax, message).caused_by(error)
    })?;
    reader.format(table.get_ref()).map(Some)
}

/// Reads the tables of a block that begins at `offset` in the file.
struct Reader<'s> {
    source: &'s str,
    offset: usize,
}

type Table<'i> = DeTable<'i>;

impl Reader<'_> {
    fn error(&self, span: Range<usize>, kind: ErrorKind, message: String) -> Error {
        Error::new(kind, message).marked(self.source, self.offset + span.start..self.offset + span.end)
    }

    fn format(&self, root: &Table) -> Result<Declaration> {
        let tables = ["format", "section", "reasoning", "keys", "call", "argument", "history", "styles"];
        self.known(root, "the declaration", &tables)?;
        let Some(entry) = root.get("format") else {
            return Err(self.error(0..0, ErrorKind::Format, "the declaration has no table [format]".into()));
        };
        let format = self.table(entry, "format")?;
        let keys = ["name", "suffix", "start", "end", "literal", "payload", "markup", "opened", "text_after_calls"];
        self.known(format, "[format]", &keys)?;
        let literal = self.flag(format, "literal")?.unwrap_or(false);
        let (kind, kind_span) = self.required(format, "[format]", "payload", entry.span())?;
        let start = self.demanded_marker(format, "start", literal, entry.span())?;
        let end = self.demanded_marker(format, "end", literal, entry.span())?;
        let payload = self.payload(root, &kind, kind_span)?;
        if start.is_none() && !matches!(payload, Payload::Json(_) | Payload::Python { list: true, .. }) {
            let error = self.error(entry.span(), ErrorKind::Format, "`start` is empty".into());
            let hint = "only the payload \"json\", and calls of \"python\" in a list, are recognised without a marker";
            return Err(error.hint(hint));
        }
        Ok(Declaration {
            name: self.text(format, "name")?.map_or_else(|| UNNAMED.to_owned(), |(name, _)| name),
            suffix: self.suffix(format, start.as_ref())?,
            section: self.around(root, "section", literal)?,
            start,
            end,
            payload,
            reasoning: self.around(root, "reasoning", literal)?,
            reasoning_open: self.of_reasoning(root, "open")?,
            reasoning_interleaved: self.of_reasoning(root, "interleaved")?,
            hidden: match root.get("reasoning") {
                Some(entry) => self.markers(self.table(entry, "reasoning")?, "hidden", literal)?,
                None => Vec::new(),
            },
            markup: self.markers(format, "markup", literal)?,
            opened: self.text(format, "opened")?.map(|(text, _)| text).filter(|text| !text.trim().is_empty()),
            text_after_calls: self.flag(format, "text_after_calls")?.unwrap_or(false),
            history: self.history(root)?,
            styles: self.styles(root)?,
        })
    }

    /// The suffix of the tags, which is in the start marker; empty if this model has none.
    fn suffix(&self, format: &Table, start: Option<&Marker>) -> Result<Option<String>> {
        let Some((suffix, span)) = self.text(format, "suffix")?.filter(|(suffix, _)| !suffix.is_empty()) else {
            return Ok(None);
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
        let sound =
            suffix.starts_with(|c: char| c.is_ascii_punctuation() && !plain(c)) && suffix[1..].chars().all(plain);
        if !sound || suffix.len() < 2 {
            let error = self.error(span, ErrorKind::Format, "`suffix` is not a sign and a word".into());
            return Err(error.hint("as in suffix = ':preview', for tags such as <call:preview>"));
        }
        if !start.and_then(Marker::text).is_some_and(|start| start.contains(&suffix)) {
            let message = format!("`start` does not contain the suffix {suffix:?}");
            return Err(self.error(span, ErrorKind::Format, message).hint("write the tags with their suffix"));
        }
        Ok(Some(suffix))
    }

    fn payload(&self, root: &Table, kind: &str, span: Range<usize>) -> Result<Payload> {
        let suits = match kind {
            "json" => "keys",
            "named" | "python" => "call",
            "tagged" => "argument",
            _ => {
                let error = self.error(span, ErrorKind::Format, format!("unknown payload kind {kind:?}"));
                return Err(suggest(error, kind, &PAYLOADS));
            }
        };
        for table in ["keys", "call", "argument"] {
            let needless = table != suits && !(table == "call" && kind == "tagged");
            if let Some(entry) = root.get(table).filter(|_| needless) {
                let message = format!("[{table}] cannot be used with payload {kind:?}");
                return Err(self.error(entry.span(), ErrorKind::Format, message));
            }
        }
        Ok(match kind {
            "json" => Payload::Json(self.keys(root)?),
            "named" => self.named(root, span)?,
            "tagged" => self.tagged(root, span)?,
            _ => self.python(root)?,
        })
    }

    fn keys(&self, root: &Table) -> Result<JsonCall> {
        let Some(entry) = root.get("keys") else { return Ok(JsonCall::default()) };
        let table = self.table(entry, "keys")?;
        self.known(table, "[keys]", &["name", "arguments", "id", "array", "keyed"])?;
        let keyed = self.flag(table, "keyed")?.unwrap_or(false);
        let named = ["name", "arguments", "id"].into_iter().find_map(|key| Some((key, table.get(key)?)));
        if let Some((key, value)) = named.filter(|_| keyed) {
            let message = format!("`{key}` cannot be used with `keyed`");
            let error = self.error(value.span(), ErrorKind::Format, message);
            return Err(error.hint("a keyed call has one key, the tool's name: {\"NAME\": {…}}"));
        }
        let default = JsonCall::default();
        Ok(JsonCall {
            name: self.text(table, "name")?.map_or(default.name, |(text, _)| text),
            arguments: self.text(table, "arguments")?.map_or(default.arguments, |(text, _)| text),
            id: self.text(table, "id")?.map(|(text, _)| text),
            array: self.flag(table, "array")?.unwrap_or(default.array),
            keyed,
        })
    }

    fn named(&self, root: &Table, span: Range<usize>) -> Result<Payload> {
        let (table, span) = self.demanded(root, "call", span)?;
        self.known(table, "[call]", &["head", "id", "tail", "quote", "bare_keys"])?;
        Ok(Payload::Named(NamedCall {
            head: self.head(table, span)?,
            tail: self.text(table, "tail")?.map_or_else(String::new, |(text, _)| text),
            quote: self.text(table, "quote")?.map(|(text, _)| text).filter(|quote| !quote.is_empty()),
            bare_keys: self.flag(table, "bare_keys")?.unwrap_or(false),
        }))
    }

    fn tagged(&self, root: &Table, span: Range<usize>) -> Result<Payload> {
        let (call, call_span) = self.demanded(root, "call", span.clone())?;
        self.known(call, "[call]", &["head", "id"])?;
        let (table, span) = self.demanded(root, "argument", span)?;
        let keys = ["key_start", "key_end", "value_start", "value_end", "nested", "types", "escaped_keys"];
        self.known(table, "[argument]", &keys)?;
        let tag = |key| {
            let (text, place) = self.required(table, "[argument]", key, span.clone())?;
            if text.trim().is_empty() {
                return Err(self.error(place, ErrorKind::Format, format!("`{key}` is empty")));
            }
            Ok(text)
        };
        let key_end = tag("key_end")?;
        if let Some((_, after)) = key_end.split_once(typed::PART).filter(|(before, after)| {
            before.trim().is_empty() || after.trim().is_empty() || after.contains(typed::PART)
        }) {
            let place = table.get("key_end").map_or(span.clone(), Spanned::span);
            let what = if after.contains(typed::PART) { "twice" } else { "without text before and after it" };
            return Err(self.error(place, ErrorKind::Format, format!("`key_end` has the part {{type}} {what}")));
        }
        let call = TaggedCall {
            head: self.head(call, call_span)?,
            key_start: tag("key_start")?,
            types: self.types(table, &key_end)?,
            escaped_keys: self.flag(table, "escaped_keys")?.unwrap_or(false),
            key_end,
            value_start: self.text(table, "value_start")?.map_or_else(String::new, |(text, _)| text),
            value_end: tag("value_end")?,
            nested: self.flag(table, "nested")?.unwrap_or(false),
        };
        if let Some((place, kind)) = table.get("types").zip(call.untyped()) {
            let error = self.error(place.span(), ErrorKind::Format, format!("`types` has no word for {kind}"));
            return Err(error.hint("other = '…' is the word for all types that are not named"));
        }
        if let Some(place) = table.get("types").filter(|_| call.shares_text_word()) {
            let message = "`types` has one word for string and for another type".to_owned();
            return Err(self.error(place.span(), ErrorKind::Format, message));
        }
        if call.nested && !call.types.is_empty() {
            let message = "`nested` values have no {type}".to_owned();
            return Err(self.error(span, ErrorKind::Format, message));
        }
        Ok(Payload::Tagged(call))
    }

    /// The words for types.
    fn types(&self, table: &Table, key_end: &str) -> Result<Vec<(String, String)>> {
        let typed = key_end.contains(typed::PART);
        let Some(value) = table.get("types") else {
            let words = typed::DEFAULT.iter().filter(|_| typed);
            return Ok(words.map(|kind| ((*kind).to_owned(), (*kind).to_owned())).collect());
        };
        if !typed {
            let error = self.error(value.span(), ErrorKind::Format, "`types` cannot be used without {type}".into());
            return Err(error.hint("put {type} into `key_end`, where the word for the type is written"));
        }
        let words = self.table(value, "types")?;
        self.known(words, "`types`", &typed::KINDS)?;
        let word = |(kind, word): (&Spanned<Cow<str>>, &Spanned<DeValue>)| {
            let text = word.get_ref().as_str().filter(|text| !text.trim().is_empty());
            let text = text.ok_or_else(|| self.wrong(word, kind.get_ref(), "a word"))?;
            Ok((kind.get_ref().to_string(), text.to_owned()))
        };
        words.iter().map(word).collect()
    }

    fn python(&self, root: &Table) -> Result<Payload> {
        let Some(entry) = root.get("call") else { return Ok(Payload::Python { list: true, raw: false }) };
        let table = self.table(entry, "call")?;
        self.known(table, "[call]", &["list", "raw"])?;
        let (list, raw) = (self.flag(table, "list")?, self.flag(table, "raw")?);
        Ok(Payload::Python { list: list.unwrap_or(true), raw: raw.unwrap_or(false) })
    }

    fn head(&self, table: &Table, span: Range<usize>) -> Result<Head> {
        let Some(value) = table.get("head") else {
            return Err(self.error(span, ErrorKind::Format, "[call] has no `head`".into()));
        };
        let one = std::slice::from_ref(value);
        let forms = value.get_ref().as_array().map_or(one, |array| array);
        let mut head = Head { forms: Vec::new(), id: None };
        for form in forms {
            let text = form.get_ref().as_str().ok_or_else(|| self.wrong(form, "head", "text, or a list of texts"))?;
            self.parts(text, form.span(), "head", &HEAD_PARTS, "")?;
            head.forms.push(text.to_owned());
        }
        if let Some((id, span)) = self.text(table, "id")? {
            self.parts(&id, span, "id", &["name", "index"], "name")?;
            head.id = Some(id);
        }
        for (form, value) in head.forms.iter().zip(forms) {
            let composed = head.id.is_some() && history::parts(form).any(|part| part == "id");
            if !composed {
                self.parts(form, value.span(), "head", &HEAD_PARTS, "name")?;
            }
        }
        if let Some(value) = forms.first().filter(|_| head.forms[0].contains("{header}")) {
            let message = "the first form of `head` is how it is written, and {header} is any text".to_owned();
            let error = self.error(value.span(), ErrorKind::Format, message);
            return Err(error.hint("put a form without {header} before it"));
        }
        if head.forms.is_empty() {
            return Err(self.wrong(value, "head", "at least one text"));
        }
        Ok(head)
    }

    fn around(&self, root: &Table, key: &str, literal: bool) -> Result<Option<Around>> {
        let Some(entry) = root.get(key) else { return Ok(None) };
        let table = self.table(entry, key)?;
        let place = format!("[{key}]");
        let known: &[&str] =
            if key == "reasoning" { &["start", "end", "open", "interleaved", "hidden"] } else { &["start", "end"] };
        self.known(table, &place, known)?;
        let marker = |key| {
            let missing = || self.error(entry.span(), ErrorKind::Format, format!("{place} has no `{key}`"));
            self.marker(table, key, literal)?.ok_or_else(missing)
        };
        Ok(Some(Around { start: marker("start")?, end: marker("end")? }))
    }

    /// A flag of the reasoning.
    fn of_reasoning(&self, root: &Table, key: &str) -> Result<bool> {
        let Some(entry) = root.get("reasoning") else { return Ok(false) };
        Ok(self.flag(self.table(entry, "reasoning")?, key)?.unwrap_or(false))
    }

    /// A list of markers that are only read.
    fn markers(&self, table: &Table, key: &str, literal: bool) -> Result<Vec<Marker>> {
        let Some(value) = table.get(key) else { return Ok(Vec::new()) };
        let items = value.get_ref().as_array().ok_or_else(|| self.wrong(value, key, "a list"))?;
        items.iter().map(|item| self.read_marker(item, key, literal, false)).collect()
    }

    fn marker(&self, table: &Table, key: &str, literal: bool) -> Result<Option<Marker>> {
        table.get(key).map(|value| self.read_marker(value, key, literal, true)).transpose()
    }

    /// A marker of [format]; empty if the format has none.
    fn demanded_marker(&self, format: &Table, key: &str, literal: bool, span: Range<usize>) -> Result<Option<Marker>> {
        let Some(value) = format.get(key) else {
            let error = self.error(span, ErrorKind::Format, format!("[format] has no `{key}`"));
            return Err(error.hint(format!("{key} = '' where the format has none")));
        };
        if value.get_ref().as_str() == Some("") {
            return Ok(None);
        }
        self.read_marker(value, key, literal, true).map(Some)
    }

    /// A marker: text, or a table with `pattern` and `text`. A `written` marker needs a text.
    fn read_marker(&self, value: &Spanned<DeValue>, key: &str, literal: bool, written: bool) -> Result<Marker> {
        let span = value.span();
        let marker = match (value.get_ref().as_str(), value.get_ref().as_table()) {
            (Some(text), _) if text.trim().is_empty() => {
                return Err(self.error(span, ErrorKind::Format, format!("`{key}` is blank")));
            }
            // A pattern without operators is the text it matches.
            (Some(text), _) if literal || !text.contains(OPERATORS) => Marker::Literal(text.to_owned()),
            (Some(pattern), _) => Marker::Pattern { pattern: pattern.to_owned(), text: None },
            (None, Some(table)) => {
                self.known(table, &format!("`{key}`"), &["pattern", "text"])?;
                let (pattern, _) = self.required(table, &format!("`{key}`"), "pattern", span.clone())?;
                Marker::Pattern { pattern, text: self.text(table, "text")?.map(|(text, _)| text) }
            }
            _ => return Err(self.wrong(value, key, "text, or a table with `pattern` and `text`")),
        };
        marker.longest().map_err(|error| {
            let here = self.error(span.clone(), ErrorKind::Format, error.message().to_owned());
            here.hint("a marker is a regular expression of bounded length, or text with `literal = true`")
        })?;
        if written && marker.text().is_none() {
            let message = format!("`{key}` is a pattern, and nothing says how it is written");
            let error = self.error(span, ErrorKind::Format, message);
            return Err(error.hint(format!("{key} = {{ pattern = '…', text = '…' }}, or set `literal = true`")));
        }
        Ok(marker)
    }

    fn history(&self, root: &Table) -> Result<History> {
        let Some(entry) = root.get("history") else { return Ok(History::default()) };
        let table = self.table(entry, "history")?;
        self.known(table, "[history]", &["between", "result"])?;
        let default = History::default();
        let pattern = |key: &str, default: String, known: &[&str], needed: &str| -> Result<String> {
            let Some((text, span)) = self.text(table, key)? else { return Ok(default) };
            self.parts(&text, span, key, known, needed)?;
            Ok(text)
        };
        Ok(History {
            between: pattern("between", default.between, &[], "")?,
            result: pattern("result", default.result, &["name", "id", "content"], "content")?,
        })
    }

    fn styles(&self, root: &Table) -> Result<Vec<(String, Map<String, Value>)>> {
        let Some(entry) = root.get("styles") else { return Ok(Vec::new()) };
        let style = |(name, value): (&Spanned<Cow<str>>, &Spanned<DeValue>)| {
            let mut variables = Map::new();
            for (key, value) in self.table(value, name.get_ref())? {
                let text = value.get_ref().as_str().map(Value::from);
                let plain = text.or_else(|| value.get_ref().as_bool().map(Value::from));
                let plain = plain.ok_or_else(|| self.wrong(value, key.get_ref(), "text, true or false"))?;
                variables.insert(key.get_ref().to_string(), plain);
            }
            Ok((name.get_ref().to_string(), variables))
        };
        self.table(entry, "styles")?.iter().map(style).collect()
    }

    /// Whether the `{parts}` of a text are known, and the `needed` one is present.
    fn parts(&self, text: &str, span: Range<usize>, key: &str, known: &[&str], needed: &str) -> Result<()> {
        if let Some(part) = history::parts(text).find(|part| !known.contains(part)) {
            let error = self.error(span, ErrorKind::Format, format!("`{key}` has no part {{{part}}}"));
            return Err(suggest(error, part, known));
        }
        if !needed.is_empty() && !history::parts(text).any(|part| part == needed) {
            return Err(self.error(span, ErrorKind::Format, format!("`{key}` lacks the part {{{needed}}}")));
        }
        Ok(())
    }

    fn flag(&self, table: &Table, key: &str) -> Result<Option<bool>> {
        let read =
            |value: &Spanned<DeValue>| value.get_ref().as_bool().ok_or_else(|| self.wrong(value, key, "true or false"));
        table.get(key).map(read).transpose()
    }

    fn demanded<'t, 'i>(
        &self,
        root: &'t Table<'i>,
        key: &str,
        span: Range<usize>,
    ) -> Result<(&'t Table<'i>, Range<usize>)> {
        let Some(entry) = root.get(key) else {
            return Err(self.error(span, ErrorKind::Format, format!("this payload needs a table [{key}]")));
        };
        Ok((self.table(entry, key)?, entry.span()))
    }

    fn table<'t, 'i>(&self, value: &'t Spanned<DeValue<'i>>, key: &str) -> Result<&'t Table<'i>> {
        value.get_ref().as_table().ok_or_else(|| self.wrong(value, key, "a table"))
    }

    fn wrong(&self, value: &Spanned<DeValue>, key: &str, expected: &str) -> Error {
        let found = value.get_ref().type_str();
        self.error(value.span(), ErrorKind::Format, format!("`{key}` must be {expected}, not a TOML {found}"))
    }

    fn text(&self, table: &Table, key: &str) -> Result<Option<(String, Range<usize>)>> {
        let Some(value) = table.get(key) else { return Ok(None) };
        let text = value.get_ref().as_str().ok_or_else(|| self.wrong(value, key, "text"))?;
        Ok(Some((text.to_owned(), value.span())))
    }

    fn required(&self, table: &Table, place: &str, key: &str, span: Range<usize>) -> Result<(String, Range<usize>)> {
        let missing = || self.error(span, ErrorKind::Format, format!("{place} has no `{key}`"));
        self.text(table, key)?.ok_or_else(missing)
    }

    fn known(&self, table: &Table, place: &str, known: &[&str]) -> Result<()> {
        match table.keys().find(|key| !known.contains(&key.get_ref().as_ref())) {
            None => Ok(()),
            Some(key) => {
                let error =
                    self.error(key.span(), ErrorKind::Format, format!("{place} has no key `{}`", key.get_ref()));
                Err(suggest(error, key.get_ref(), known))
            }
        }
    }
}

fn suggest(error: Error, word: &str, known: &[&str]) -> Error {
    match known {
        [] => error.hint("it takes no parts in braces"),
        known => error.suggest(word, known.iter().copied(), &format!("known: {}", known.join(", "))),
    }
}
