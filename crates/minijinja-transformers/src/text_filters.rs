//! Filters on text, as in Jinja2.

use crate::budget::scope;
use crate::methods::{self, Arguments};
use crate::operators::{Number, escaped};
use crate::python;
use minijinja::value::{Rest, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State};
use std::borrow::Cow;

pub(crate) fn register(env: &mut Environment<'_>) {
    env.add_filter("e", escape);
    env.add_filter("escape", escape);
    env.add_filter("forceescape", |state: &State, value: &Value| {
        Ok::<_, Error>(Value::from_safe_string(escaped(&text(state, value)?)))
    });
    env.add_filter("safe", |state: &State, value: &Value| Ok::<_, Error>(Value::from_safe_string(text(state, value)?)));
    env.add_filter("striptags", |state: &State, value: &Value| Ok::<_, Error>(strip_tags(&text(state, value)?)));
    env.add_filter("title", |state: &State, value: &Value| Ok::<_, Error>(title(&text(state, value)?)));
    env.add_filter("capitalize", |state: &State, value: &Value| {
        methods::call(state, &Value::from(text(state, value)?), "capitalize", &[])
    });
    env.add_filter("center", center);
    env.add_filter("wordcount", |state: &State, value: &Value| {
        let text = text(state, value)?;
        let words = text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
        Ok::<_, Error>(words.count())
    });
    env.add_filter("truncate", truncate);
    env.add_filter("wordwrap", wordwrap);
    env.add_filter("urlencode", urlencode);
    env.add_filter("filesizeformat", filesizeformat);
    env.add_filter("xmlattr", xmlattr);
    env.add_filter("pprint", pprint);
}

fn invalid(message: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

fn text(state: &State, value: &Value) -> Result<String, Error> {
    let scope = scope(state)?;
    let text = python::str(value, &scope.budget)?;
    scope.budget.copy(text.len())?;
    Ok(text)
}

/// Escapes HTML's characters, unless already escaped.
fn escape(state: &State, value: &Value) -> Result<Value, Error> {
    if value.is_safe() {
        return Ok(value.clone());
    }
    Ok(Value::from_safe_string(escaped(&text(state, value)?)))
}

/// Each word's first letter in upper case, the rest in lower case; `-` and brackets end a word, other punctuation does
/// not.
fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut start = true;
    for c in text.chars() {
        if c.is_whitespace() || "-({[<".contains(c) {
            out.push(c);
            start = true;
        } else if std::mem::take(&mut start) {
            out.extend(c.to_uppercase());
        } else {
            out.extend(c.to_lowercase());
        }
    }
    out
}

fn strip_tags(html: &str) -> String {
    let mut text = html.to_owned();
    for (open, close) in [("<!--", "-->"), ("<", ">")] {
        let mut kept = String::with_capacity(text.len());
        let mut rest = text.as_str();
        while let Some((before, after)) = rest.split_once(open) {
            let Some((_, after)) = after.split_once(close) else { break };
            kept.push_str(before);
            rest = after;
        }
        kept.push_str(rest);
        text = kept;
    }
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let entities =
        [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#34;", "\""), ("&#39;", "'"), ("&nbsp;", "\u{a0}")];
    entities.iter().fold(text, |text, (from, to)| text.replace(from, to)).replace("&amp;", "&")
}

fn center(state: &State, value: &Value, width: Option<i64>) -> Result<Value, Error> {
    let text = Value::from(text(state, value)?);
    methods::call(state, &text, "center", &[Value::from(width.unwrap_or(80))])
}

fn truncate(state: &State, value: &Value, arguments: Rest<Value>) -> Result<String, Error> {
    let text = text(state, value)?;
    let mut arguments = Arguments::new(&arguments)?;
    let length = arguments.size("length")?.unwrap_or(255);
    let killwords = arguments.flag("killwords")?;
    let end = arguments.text("end")?.unwrap_or_else(|| "...".to_owned());
    let leeway = arguments.size("leeway")?.unwrap_or(5);
    arguments.end()?;
    let room = length.checked_sub(end.chars().count());
    let room = room.ok_or_else(|| invalid(format!("expected length >= {}, got {length}", end.chars().count())))?;
    if text.chars().count() <= length.saturating_add(leeway) {
        return Ok(text);
    }
    let cut: String = text.chars().take(room).collect();
    let kept = if killwords { cut.as_str() } else { cut.rsplit_once(' ').map_or(cut.as_str(), |(kept, _)| kept) };
    Ok(kept.to_owned() + &end)
}

fn wordwrap(state: &State, value: &Value, arguments: Rest<Value>) -> Result<String, Error> {
    let text = text(state, value)?;
    let mut arguments = Arguments::new(&arguments)?;
    let width = arguments.size("width")?.unwrap_or(79);
    let break_words = arguments.take("break_long_words")?.is_none_or(|value| value.is_true());
    let between = arguments.text("wrapstring")?.unwrap_or_else(|| "\n".to_owned());
    let hyphens = arguments.take("break_on_hyphens")?.is_none_or(|value| value.is_true());
    arguments.end()?;
    if width == 0 {
        return Err(invalid("invalid width 0 (must be > 0)"));
    }
    let lines: Vec<String> = methods::split_lines(&text, false)
        .into_iter()
        .map(|line| wrapped(line, width, break_words, hyphens).join(&between))
        .collect();
    Ok(lines.join(&between))
}

/// The lines of a paragraph, wrapped as in Python's textwrap.
fn wrapped(text: &str, width: usize, break_words: bool, hyphens: bool) -> Vec<String> {
    let mut chunks: Vec<Vec<char>> = chunks(text, hyphens).into_iter().rev().collect();
    let mut lines = Vec::new();
    while !chunks.is_empty() {
        let blank = |chunk: &[char]| chunk.iter().all(|c| c.is_whitespace());
        if !lines.is_empty() && chunks.last().is_some_and(|chunk| blank(chunk)) {
            chunks.pop();
        }
        let mut line: Vec<char> = Vec::new();
        while let Some(chunk) = chunks.pop_if(|chunk| line.len() + chunk.len() <= width) {
            line.extend(chunk);
        }
        if let Some(long) = chunks.last_mut().filter(|chunk| chunk.len() > width) {
            let room = width.saturating_sub(line.len()).max(1);
            if break_words {
                let hyphen = long[..room].iter().rposition(|&c| c == '-');
                let hyphen = hyphen.filter(|&at| hyphens && at > 0 && long[..at].iter().any(|&c| c != '-'));
                let rest = long.split_off(hyphen.map_or(room, |at| at + 1));
                line.append(long);
                *long = rest;
            } else if line.is_empty() {
                line.append(long);
                chunks.pop();
            }
        }
        let end = line.iter().rposition(|c| !c.is_whitespace()).map_or(0, |at| at + 1);
        line.truncate(end);
        if !line.is_empty() {
            lines.push(line.into_iter().collect());
        }
    }
    lines
}

/// White space and words; hyphenated words are split if at least two letters are on each side.
fn chunks(text: &str, hyphens: bool) -> Vec<Vec<char>> {
    let mut chunks: Vec<Vec<char>> = Vec::new();
    let characters: Vec<char> = text.chars().collect();
    for (index, &c) in characters.iter().enumerate() {
        let before = index.checked_sub(1).map(|at| characters[at]);
        let letters = |range: &[char]| range.len() == 2 && range.iter().all(|c| c.is_alphanumeric() || *c == '_');
        let split = hyphens
            && before == Some('-')
            && letters(characters.get(index.saturating_sub(3)..index - 1).unwrap_or_default())
            && letters(characters.get(index..index + 2).unwrap_or_default());
        let same = before.is_some_and(|before| before.is_whitespace() == c.is_whitespace());
        match chunks.last_mut() {
            Some(chunk) if same && !split => chunk.push(c),
            _ => chunks.push(vec![c]),
        }
    }
    chunks
}

fn urlencode(state: &State, value: &Value) -> Result<String, Error> {
    let quoted = |value: &Value, query: bool| -> Result<String, Error> {
        let text = text(state, value)?;
        let mut out = String::with_capacity(text.len());
        for byte in text.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'.' | b'-' | b'~' => out.push(char::from(byte)),
                b'/' if !query => out.push('/'),
                b' ' if query => out.push('+'),
                _ => out.push_str(&format!("%{byte:02X}")),
            }
        }
        Ok(out)
    };
    let pairs = match value.kind() {
        ValueKind::Map => crate::sequences::pairs(value)?,
        ValueKind::Seq | ValueKind::Iterable => value.try_iter()?.collect(),
        _ => return quoted(value, false),
    };
    let pairs: Vec<String> = pairs
        .iter()
        .map(|pair| match pair.try_iter()?.collect::<Vec<_>>().as_slice() {
            [key, value] => Ok(format!("{}={}", quoted(key, true)?, quoted(value, true)?)),
            _ => Err(invalid("urlencode requires text or pairs")),
        })
        .collect::<Result<_, Error>>()?;
    Ok(pairs.join("&"))
}

fn filesizeformat(value: &Value, binary: Option<Value>) -> Result<String, Error> {
    let binary = match binary {
        Some(value) if value.is_kwargs() => value.get_attr("binary")?.is_true(),
        binary => binary.is_some_and(|binary| binary.is_true()),
    };
    let size = match value.as_str() {
        Some(text) => text.trim().parse().ok(),
        None => Number::of(value).map(Number::as_float),
    };
    let size: f64 = size.ok_or_else(|| invalid("filesizeformat requires a number"))?;
    let base: f64 = if binary { 1024.0 } else { 1000.0 };
    if size == 1.0 {
        return Ok("1 Byte".to_owned());
    }
    if size < base {
        return Ok(format!("{} Bytes", size.trunc()));
    }
    let mut unit = base;
    let prefixes = if binary { "KMGTPEZY" } else { "kMGTPEZY" };
    let mut prefix = 'k';
    for next in prefixes.chars() {
        prefix = next;
        unit *= base;
        if size < unit {
            break;
        }
    }
    Ok(format!("{:.1} {prefix}{}", base * size / unit, if binary { "iB" } else { "B" }))
}

fn xmlattr(state: &State, value: &Value, autospace: Option<Value>) -> Result<Value, Error> {
    let space = match autospace {
        Some(value) if value.is_kwargs() => {
            value.get_attr("autospace").is_ok_and(|value| value.is_undefined() || value.is_true())
        }
        autospace => autospace.is_none_or(|value| value.is_true()),
    };
    if value.kind() != ValueKind::Map {
        return Err(invalid("xmlattr requires a mapping"));
    }
    let mut out = Vec::new();
    for key in value.try_iter()? {
        let item = value.get_item(&key)?;
        if item.is_none() || item.is_undefined() {
            continue;
        }
        let key = text(state, &key)?;
        if key.contains(|c: char| c.is_ascii_whitespace() || matches!(c, '/' | '>' | '=')) {
            return Err(invalid(format!("invalid character in attribute name: {key:?}")));
        }
        out.push(format!("{}=\"{}\"", escaped(&key), escaped(&text(state, &item)?)));
    }
    let space = if space && !out.is_empty() { " " } else { "" };
    Ok(Value::from_safe_string(format!("{space}{}", out.join(" "))))
}

/// `pprint` with sorted keys, for values that fit on a line. Python wraps longer ones by rules that are not emulated.
fn pprint(state: &State, value: &Value) -> Result<String, Error> {
    let text = python::sorted_repr(value, &scope(state)?.budget)?;
    if text.chars().count() > 80 {
        return Err(invalid("pprint: only values that fit a line of 80 characters can be printed"));
    }
    Ok(text)
}
