//! The declaration block of a template file: a Jinja comment that holds TOML.
//!
//! Other engines skip the comment, so a chat template that declares its format still works everywhere else. People
//! write these blocks by hand: every error names line and column of the file, and what was probably meant.

use super::{Format, History, JsonKeys, Marker, Payload, history};
use crate::error::{Error, ErrorKind, Location, Result, nearest};
use std::ops::Range;
use std::sync::OnceLock;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

const OPENING: &str = "{#--- callwright";
const PAYLOADS: [&str; 1] = ["json"];

pub(super) fn parse(source: &str) -> Result<Option<Format>> {
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
        reader.error(error.span().unwrap_or(0..0), ErrorKind::Syntax, format!("not TOML: {}", error.message().trim()))
    })?;
    reader.format(table.get_ref(), 0..block.len()).map(Some)
}

/// Reads the tables of a block that begins at `offset` of the file.
struct Reader<'s> {
    source: &'s str,
    offset: usize,
}

type Table<'i> = DeTable<'i>;

impl Reader<'_> {
    fn error(&self, span: Range<usize>, kind: ErrorKind, message: String) -> Error {
        let offset = self.offset + span.start;
        let at = Location::of_offset(self.source, offset);
        let start = self.source[..offset].rfind('\n').map_or(0, |newline| newline + 1);
        let line = self.source[start..].lines().next().unwrap_or_default();
        let column = at.column.unwrap_or(1) - 1;
        let length = self.source[offset..].chars().take(span.len().max(1)).take_while(|&c| c != '\n').count().max(1);
        let excerpt = format!("  {line}\n  {}{}", " ".repeat(column), "^".repeat(length));
        Error::new(kind, message).at(at).excerpt(excerpt)
    }

    fn format(&self, root: &Table, span: Range<usize>) -> Result<Format> {
        self.known(root, "the declaration", &["format", "keys", "history"])?;
        let Some(entry) = root.get("format") else {
            return Err(self.error(0..0, ErrorKind::Format, "the declaration has no table [format]".into()));
        };
        let format = self.table(entry, "format")?;
        self.known(format, "[format]", &["name", "start", "end", "literal", "payload"])?;
        let literal = match format.get("literal") {
            None => false,
            Some(value) => value.get_ref().as_bool().ok_or_else(|| self.wrong(value, "literal", "true or false"))?,
        };
        let marker = |key| {
            let (text, span) = self.required(format, key, entry.span())?;
            if text.is_empty() {
                return Err(self.error(span, ErrorKind::Format, format!("`{key}` is empty")));
            }
            // A pattern without operators is the text it matches.
            let plain =
                literal || !text.contains(['\\', '.', '+', '*', '?', '(', ')', '|', '[', ']', '{', '}', '^', '$']);
            Ok((if plain { Marker::Literal(text) } else { Marker::Pattern(text) }, span))
        };
        let (start, start_span) = marker("start")?;
        let (end, end_span) = marker("end")?;
        let written = [&start, &end].iter().all(|marker| matches!(marker, Marker::Literal(_)));
        let (payload, payload_span) = self.required(format, "payload", entry.span())?;
        if !PAYLOADS.contains(&&*payload) {
            let error = self.error(payload_span, ErrorKind::Format, format!("there is no payload kind {payload:?}"));
            return Err(error.hint(suggest(&payload, &PAYLOADS)));
        }
        let name = self.text(format, "name")?.map_or_else(|| "declared".to_owned(), |(name, _)| name);
        let declared = Format {
            name,
            start: start.clone(),
            end: end.clone(),
            payload: Payload::Json(self.keys(root)?),
            history: self.history(root, written, span)?,
            source: self.source.to_owned(),
            machinery: OnceLock::new(),
        };
        for (marker, span) in [(start, start_span), (end, end_span)] {
            marker.longest().map_err(|error| {
                let here = self.error(span, ErrorKind::Format, error.message().to_owned());
                here.hint("a marker is a regular expression of bounded length, or text with `literal = true`")
            })?;
        }
        declared.machinery()?;
        Ok(declared)
    }

    fn keys(&self, root: &Table) -> Result<JsonKeys> {
        let Some(entry) = root.get("keys") else { return Ok(JsonKeys::default()) };
        let table = self.table(entry, "keys")?;
        self.known(table, "[keys]", &["name", "arguments"])?;
        let default = JsonKeys::default();
        Ok(JsonKeys {
            name: self.text(table, "name")?.map_or(default.name, |(text, _)| text),
            arguments: self.text(table, "arguments")?.map_or(default.arguments, |(text, _)| text),
        })
    }

    fn history(&self, root: &Table, literal: bool, block: Range<usize>) -> Result<History> {
        let Some(entry) = root.get("history") else {
            if literal {
                return Ok(History::default());
            }
            let error = self.error(
                0..block.len().min(1),
                ErrorKind::Format,
                "the markers are patterns, and nothing says how a call is written".into(),
            );
            return Err(error.hint("add [history] with `call`, or set `literal = true`"));
        };
        let table = self.table(entry, "history")?;
        self.known(table, "[history]", &["call", "between", "result"])?;
        let default = History::default();
        let pattern = |key: &str, default: String, known: &[&str], needed: &str| -> Result<String> {
            let Some((text, span)) = self.text(table, key)? else { return Ok(default) };
            if let Some(part) = history::parts(&text).find(|part| !known.contains(part)) {
                let error = self.error(span, ErrorKind::Format, format!("`{key}` has no part {{{part}}}"));
                return Err(error.hint(suggest(part, known)));
            }
            if !needed.is_empty() && !history::parts(&text).any(|part| part == needed) {
                return Err(self.error(span, ErrorKind::Format, format!("`{key}` lacks the part {{{needed}}}")));
            }
            Ok(text)
        };
        let in_call: &[&str] = if literal { &["start", "call", "end"] } else { &["call"] };
        Ok(History {
            call: pattern("call", default.call, in_call, "call")?,
            between: pattern("between", default.between, &[], "")?,
            result: pattern("result", default.result, &["name", "id", "content"], "content")?,
        })
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

    fn required(&self, table: &Table, key: &str, span: Range<usize>) -> Result<(String, Range<usize>)> {
        let missing = || self.error(span, ErrorKind::Format, format!("[format] has no `{key}`"));
        self.text(table, key)?.ok_or_else(missing)
    }

    fn known(&self, table: &Table, place: &str, known: &[&str]) -> Result<()> {
        match table.keys().find(|key| !known.contains(&key.get_ref().as_ref())) {
            None => Ok(()),
            Some(key) => {
                let error =
                    self.error(key.span(), ErrorKind::Format, format!("{place} has no key `{}`", key.get_ref()));
                Err(error.hint(suggest(key.get_ref(), known)))
            }
        }
    }
}

fn suggest(word: &str, known: &[&str]) -> String {
    match nearest(word, known.iter().copied()) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None if known.is_empty() => "it takes no parts in braces".to_owned(),
        None => format!("known: {}", known.join(", ")),
    }
}
