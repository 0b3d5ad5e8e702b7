//! Python's methods on strings, lists and dicts.
//!
//! minijinja-contrib has most of them too. There they count bytes instead of characters, or differ for an empty string.

use crate::budget::{Budget, scope};
use crate::environment::helper;
use crate::format;
use crate::lists;
use crate::operators::{ITEM, Number};
use crate::python;
use crate::sequences::{Tuple, View};
use minijinja::value::{Kwargs, Value, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State};

/// Calls `value.method(arguments)`.
pub(crate) fn call(state: &State, value: &Value, method: &str, arguments: &[Value]) -> Result<Value, Error> {
    if method == helper::SLICE {
        return lists::slice(value, arguments);
    }
    let scope = scope(state)?;
    if let Some(text) = value.as_str()
        && let Some(result) = string(text, method, arguments, &scope.budget)?
    {
        if let Some(text) = result.as_str() {
            scope.budget.check(text.len())?;
        }
        return Ok(result);
    }
    match (value.kind(), method) {
        (ValueKind::Map, "keys" | "values" | "items") => {
            from_args::<()>(arguments)?;
            View::value(value, method)
        }
        (ValueKind::Map, "copy") => Ok(value.clone()),
        (ValueKind::Seq | ValueKind::Iterable, "copy") => Ok(value.clone()),
        (ValueKind::Number | ValueKind::Bool, "is_integer" | "bit_length") => {
            from_args::<()>(arguments)?;
            match (Number::of(value), method) {
                (Some(Number::Float(number)), "is_integer") => Ok(Value::from(number.fract() == 0.0)),
                (Some(Number::Integer(_)), "is_integer") => Ok(Value::from(true)),
                (Some(Number::Integer(number)), _) => Ok(Value::from(128 - number.unsigned_abs().leading_zeros())),
                _ => Err(Error::from(ErrorKind::UnknownMethod)),
            }
        }
        (ValueKind::Seq, "index") => {
            let (wanted,): (&Value,) = from_args(arguments)?;
            let found = value.try_iter()?.position(|item| item == *wanted);
            found
                .map(Value::from)
                .ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "the value is not in the list"))
        }
        (
            ValueKind::Seq | ValueKind::Iterable | ValueKind::Map,
            "append" | "extend" | "insert" | "pop" | "remove" | "clear" | "reverse" | "sort" | "update" | "setdefault"
            | "popitem",
        ) => Err(Error::new(
            ErrorKind::InvalidOperation,
            format!("{method} would change a value, which the sandbox of chat templates does not allow"),
        )),
        (ValueKind::Map, "get") => {
            let (key, default): (&Value, Option<Value>) = from_args(arguments)?;
            let found = value.as_object().and_then(|object| object.get_value(key));
            Ok(found.or(default).unwrap_or_else(|| Value::from(())))
        }
        (ValueKind::Seq, "count") => {
            let (wanted,): (&Value,) = from_args(arguments)?;
            Ok(Value::from(value.try_iter()?.filter(|item| item == wanted).count()))
        }
        _ => Err(Error::from(ErrorKind::UnknownMethod)),
    }
}

fn string(text: &str, method: &str, arguments: &[Value], budget: &Budget) -> Result<Option<Value>, Error> {
    Ok(Some(match method {
        "strip" | "lstrip" | "rstrip" => {
            let (characters,): (Option<&str>,) = from_args(arguments)?;
            Value::from(strip(text, characters, method != "rstrip", method != "lstrip"))
        }
        "split" | "rsplit" => split(text, method, arguments, budget)?,
        "partition" | "rpartition" => partition(text, method, arguments)?,
        "splitlines" => {
            let (keep, _, kwargs) = optional_kwargs(arguments)?;
            let keep = keep.or(kwargs.get("keepends")?).is_some_and(|keep| keep.is_true());
            listed(split_lines(text, keep), budget)?
        }
        "find" | "rfind" | "index" | "rindex" => find(text, method, arguments)?,
        "count" => {
            let (wanted, from, to): (&str, Option<Value>, Option<Value>) = from_args(arguments)?;
            Value::from(match part(text, from, to)?.0 {
                None => 0,
                Some(part) if wanted.is_empty() => part.chars().count() + 1,
                Some(part) => part.matches(wanted).count(),
            })
        }
        "startswith" | "endswith" => has_affix(text, method, arguments)?,
        "replace" => replace(text, arguments, budget)?,
        "join" => join(text, arguments, budget)?,
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(arguments)?;
            Value::from(text.strip_prefix(prefix).unwrap_or(text))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(arguments)?;
            Value::from(text.strip_suffix(suffix).unwrap_or(text))
        }
        "upper" | "lower" | "capitalize" | "isascii" => {
            from_args::<()>(arguments)?;
            match method {
                "upper" => Value::from(text.to_uppercase()),
                "lower" => Value::from(text.to_lowercase()),
                "capitalize" => Value::from(capitalize(text)),
                _ => Value::from(text.is_ascii()),
            }
        }
        "title" => Value::from(title(text)),
        "expandtabs" => {
            let (size, named): (Option<i64>, Kwargs) = from_args(arguments)?;
            let size = size.or(named.get("tabsize")?).unwrap_or(8);
            named.assert_all_used()?;
            let size = usize::try_from(size).unwrap_or(0);
            budget.check(text.matches('\t').count().saturating_mul(size).saturating_add(text.len()))?;
            Value::from(expand_tabs(text, size))
        }
        "casefold" => Value::from(text.to_lowercase().replace('ß', "ss")),
        "swapcase" => Value::from(
            text.chars()
                .flat_map(|c| {
                    if c.is_uppercase() { c.to_lowercase().collect::<Vec<_>>() } else { c.to_uppercase().collect() }
                })
                .collect::<String>(),
        ),
        "format" => {
            let (named, positional) = keywords(arguments)?;
            Value::from(format::braces(text, positional, &named, budget)?)
        }
        "format_map" => {
            let (dict,): (&Value,) = from_args(arguments)?;
            let named = dict.try_iter()?.map(|key| Ok((key.to_string(), dict.get_item(&key)?)));
            let named = named.collect::<Result<Kwargs, Error>>()?;
            Value::from(format::braces(text, &[], &named, budget)?)
        }
        "zfill" | "ljust" | "rjust" | "center" => {
            let (width, fill): (i64, Option<char>) = from_args(arguments)?;
            let width = usize::try_from(width).unwrap_or(0);
            budget.check(width)?;
            Value::from(pad(text, method, width, fill))
        }
        _ => return Ok(is(text, method)),
    }))
}

/// The methods that say what a text consists of; `None` for any other.
fn is(text: &str, method: &str) -> Option<Value> {
    Some(match method {
        "isnumeric" => every(text, char::is_numeric),
        "isdigit" | "isdecimal" => {
            every(text, |c| c.is_numeric() && (is_decimal(c) || method == "isdigit" && is_digit(c)))
        }
        "istitle" => Value::from(is_title(text)),
        "isprintable" => Value::from(text.chars().all(python::is_printable)),
        "isidentifier" => {
            let begins = |c: char| c.is_alphabetic() || c == '_';
            let rest = |c: char| begins(c) || c.is_numeric();
            Value::from(text.starts_with(begins) && text.chars().all(rest))
        }
        "isalpha" => every(text, char::is_alphabetic),
        "isalnum" => every(text, char::is_alphanumeric),
        "isspace" => every(text, white_space),
        "isupper" => Value::from(text.chars().any(char::is_uppercase) && !text.chars().any(char::is_lowercase)),
        "islower" => Value::from(text.chars().any(char::is_lowercase) && !text.chars().any(char::is_uppercase)),
        _ => return None,
    })
}

/// `split` and `rsplit`.
fn split(text: &str, method: &str, arguments: &[Value], budget: &Budget) -> Result<Value, Error> {
    let (separator, limit, kwargs): (Option<Value>, Option<Value>, Kwargs) = optional_kwargs(arguments)?;
    let separator = separator.or(kwargs.get("sep")?).filter(|value| !value.is_none());
    let limit = limit.or(kwargs.get("maxsplit")?).map(i64::try_from).transpose()?;
    kwargs.assert_all_used()?;
    let limit = limit.and_then(|limit| usize::try_from(limit).ok());
    let parts = match &separator {
        None => split_white_space(text, limit, method == "rsplit"),
        Some(separator) => {
            let separator = separator.as_str().ok_or_else(|| invalid("the separator of split must be text"))?;
            if separator.is_empty() {
                return Err(invalid("empty separator"));
            }
            match (method, limit) {
                ("split", None) => text.split(separator).collect(),
                ("split", Some(limit)) => text.splitn(limit.saturating_add(1), separator).collect(),
                (_, limit) => {
                    let limit = limit.unwrap_or(usize::MAX).saturating_add(1);
                    let mut parts: Vec<_> = text.rsplitn(limit, separator).collect();
                    parts.reverse();
                    parts
                }
            }
        }
    };
    listed(parts, budget)
}

/// The parts of a text as a list, which takes more memory than the text.
fn listed(parts: Vec<&str>, budget: &Budget) -> Result<Value, Error> {
    budget.check(parts.len().saturating_mul(size_of::<Value>()))?;
    budget.copy(parts.len().saturating_mul(ITEM))?;
    Ok(parts.into_iter().map(Value::from).collect())
}

/// `partition` and `rpartition`.
fn partition(text: &str, method: &str, arguments: &[Value]) -> Result<Value, Error> {
    let (separator,): (&str,) = from_args(arguments)?;
    if separator.is_empty() {
        return Err(invalid("empty separator"));
    }
    let parts = match method {
        "partition" => text.split_once(separator).map_or([text, "", ""], |(a, b)| [a, separator, b]),
        _ => text.rsplit_once(separator).map_or(["", "", text], |(a, b)| [a, separator, b]),
    };
    Ok(Tuple::value(parts.into_iter().map(Value::from).collect()))
}

/// `find`, `index`, and both from the right.
fn find(text: &str, method: &str, arguments: &[Value]) -> Result<Value, Error> {
    let (wanted, from, to): (&str, Option<Value>, Option<Value>) = from_args(arguments)?;
    let (part, before) = part(text, from, to)?;
    let found = part.and_then(|part| {
        let at = if method.starts_with('r') { part.rfind(wanted) } else { part.find(wanted) };
        at.map(|at| before + part[..at].chars().count())
    });
    match found {
        Some(index) => Ok(Value::from(index)),
        None if method.ends_with("find") => Ok(Value::from(-1)),
        None => Err(invalid("substring not found")),
    }
}

/// `startswith` and `endswith`.
fn has_affix(text: &str, method: &str, arguments: &[Value]) -> Result<Value, Error> {
    let (wanted, from, to): (Value, Option<Value>, Option<Value>) = from_args(arguments)?;
    let part = part(text, from, to)?.0;
    let fits = |wanted: &Value| -> Result<bool, Error> {
        let wanted =
            wanted.as_str().ok_or_else(|| invalid("startswith and endswith require text, or a tuple of it"))?;
        Ok(part.is_some_and(|part| match method {
            "startswith" => part.starts_with(wanted),
            _ => part.ends_with(wanted),
        }))
    };
    let fits = match wanted.kind() {
        // Other engines accept a list, which Python does not, as a tuple.
        ValueKind::Seq => {
            wanted.try_iter()?.map(|wanted| fits(&wanted)).collect::<Result<Vec<_>, _>>()?.contains(&true)
        }
        _ => fits(&wanted)?,
    };
    Ok(Value::from(fits))
}

/// `replace`.
fn replace(text: &str, arguments: &[Value], budget: &Budget) -> Result<Value, Error> {
    let (named, positional) = keywords(arguments)?;
    let (old, new, count): (&str, &str, Option<i64>) = from_args(positional)?;
    let count = count.or(named.get("count")?);
    named.assert_all_used()?;
    let count = count.and_then(|count| usize::try_from(count).ok());
    budget.check(text.len())?;
    let places = text.matches(old).take(count.unwrap_or(usize::MAX)).count();
    budget.check(text.len().saturating_add(places.saturating_mul(new.len())))?;
    Ok(Value::from(match count {
        Some(count) => text.replacen(old, new, count),
        None => text.replace(old, new),
    }))
}

/// `join`; `text` is the separator.
fn join(text: &str, arguments: &[Value], budget: &Budget) -> Result<Value, Error> {
    let (items,): (&Value,) = from_args(arguments)?;
    if items.is_none() {
        return Err(invalid("none is not iterable"));
    }
    let mut out = String::new();
    for (index, item) in items.try_iter()?.enumerate() {
        if index > 0 {
            out.push_str(text);
        }
        budget.check(out.len())?;
        out.push_str(item.as_str().ok_or_else(|| invalid("join: an item is not text"))?);
    }
    Ok(Value::from(out))
}

/// `text[from:to]`, if `from` is not past the end, and the number of characters before it.
fn part(text: &str, from: Option<Value>, to: Option<Value>) -> Result<(Option<&str>, usize), Error> {
    let bound = |value: Option<Value>| value.filter(|value| !value.is_none()).map(i64::try_from).transpose();
    let (from, to) = (bound(from)?, bound(to)?);
    if from.is_none() && to.is_none() {
        return Ok((Some(text), 0));
    }
    let length = text.chars().count();
    let index = |bound: i64| {
        let bound = if bound < 0 { bound.saturating_add(length as i64) } else { bound };
        usize::try_from(bound).unwrap_or(0)
    };
    let (from, to) = (from.map_or(0, index), to.map_or(length, index).min(length));
    if from > to {
        return Ok((None, 0));
    }
    let offset = |count: usize| text.char_indices().nth(count).map_or(text.len(), |(at, _)| at);
    Ok((Some(&text[offset(from)..offset(to)]), from))
}

/// Returns whether it is a decimal digit of some script; each script's digits are contiguous from zero to nine.
fn is_decimal(c: char) -> bool {
    c.is_ascii_digit()
        || !c.is_ascii()
            && !is_digit(c)
            && c.is_numeric()
            && !c.is_alphabetic()
            && DECIMAL_ZEROS.iter().any(|&zero| (zero..zero + 10).contains(&u32::from(c)))
}

/// The zeros of the scripts with ten digits.
const DECIMAL_ZEROS: [u32; 22] = [
    0x660, 0x6F0, 0x7C0, 0x966, 0x9E6, 0xA66, 0xAE6, 0xB66, 0xBE6, 0xC66, 0xCE6, 0xD66, 0xDE6, 0xE50, 0xED0, 0xF20,
    0x1040, 0x1090, 0x17E0, 0x1810, 0xA620, 0xFF10,
];

/// Returns whether it is a superscript, subscript or circled digit.
fn is_digit(c: char) -> bool {
    matches!(c, '²' | '³' | '¹' | '⁰' | '⁴'..='⁹' | '₀'..='₉' | '①'..='⑨' | '⑴'..='⑼' | '⒈'..='⒐')
}

/// Upper case at the beginning, lower case after it.
fn capitalize(text: &str) -> String {
    let mut rest = text.chars();
    let first = rest.next().into_iter().flat_map(char::to_uppercase).collect::<String>();
    first + &rest.as_str().to_lowercase()
}

/// Upper case at the beginning of a word, lower case inside; caseless characters begin a word.
fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut inside = false;
    for c in text.chars() {
        let cased = c.is_lowercase() || c.is_uppercase();
        if cased && !inside {
            let mut upper = c.to_uppercase();
            out.extend(upper.next());
            out.extend(upper.flat_map(char::to_lowercase));
        } else {
            out.extend(c.to_lowercase());
        }
        inside = cased;
    }
    out
}

fn is_title(text: &str) -> bool {
    let mut inside = false;
    let mut any = false;
    for c in text.chars() {
        let (upper, lower) = (c.is_uppercase(), c.is_lowercase());
        if upper && inside || lower && !inside {
            return false;
        }
        inside = upper || lower;
        any |= inside;
    }
    any
}

fn expand_tabs(text: &str, size: usize) -> String {
    let mut out = String::new();
    let mut column = 0;
    for c in text.chars() {
        match c {
            '\t' if size == 0 => {}
            '\t' => {
                let count = size - column % size;
                out.extend(std::iter::repeat_n(' ', count));
                column += count;
            }
            _ => {
                out.push(c);
                column = if matches!(c, '\n' | '\r') { 0 } else { column + 1 };
            }
        }
    }
    out
}

fn optional_kwargs(arguments: &[Value]) -> Result<(Option<Value>, Option<Value>, Kwargs), Error> {
    match keywords(arguments)? {
        (kwargs, []) => Ok((None, None, kwargs)),
        (kwargs, [first]) => Ok((Some(first.clone()), None, kwargs)),
        (kwargs, [first, second]) => Ok((Some(first.clone()), Some(second.clone()), kwargs)),
        _ => Err(Error::from(ErrorKind::TooManyArguments)),
    }
}

fn every(text: &str, test: impl Fn(char) -> bool) -> Value {
    Value::from(!text.is_empty() && text.chars().all(test))
}

/// Python's white space includes four separators that Unicode's does not.
fn white_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// `str.strip` and its one-sided forms.
pub(crate) fn strip<'a>(text: &'a str, characters: Option<&str>, left: bool, right: bool) -> &'a str {
    let matches = |c: char| characters.map_or_else(|| white_space(c), |set| set.contains(c));
    let text = if left { text.trim_start_matches(matches) } else { text };
    if right { text.trim_end_matches(matches) } else { text }
}

fn split_white_space(text: &str, limit: Option<usize>, from_right: bool) -> Vec<&str> {
    let Some(limit) = limit else {
        return text.split(white_space).filter(|part| !part.is_empty()).collect();
    };
    let mut parts = Vec::new();
    let mut rest = text;
    if from_right {
        rest = rest.trim_end_matches(white_space);
        while parts.len() < limit
            && let Some(at) = rest.rfind(white_space)
        {
            let start = at + rest[at..].chars().next().map_or(1, char::len_utf8);
            parts.push(&rest[start..]);
            rest = rest[..at].trim_end_matches(white_space);
        }
        if !rest.is_empty() {
            parts.push(rest.trim_start_matches(white_space));
        }
        parts.retain(|part| !part.is_empty());
        parts.reverse();
    } else {
        rest = rest.trim_start_matches(white_space);
        while parts.len() < limit
            && let Some(at) = rest.find(white_space)
        {
            parts.push(&rest[..at]);
            rest = rest[at..].trim_start_matches(white_space);
        }
        if !rest.is_empty() {
            parts.push(rest);
        }
    }
    parts
}

pub(crate) fn split_lines(text: &str, keep: bool) -> Vec<&str> {
    let breaks = |c: char| {
        matches!(c, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}')
    };
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(breaks) {
        let width =
            if rest[at..].starts_with("\r\n") { 2 } else { rest[at..].chars().next().map_or(1, char::len_utf8) };
        lines.push(&rest[..if keep { at + width } else { at }]);
        rest = &rest[at + width..];
    }
    if !rest.is_empty() {
        lines.push(rest);
    }
    lines
}

fn pad(text: &str, method: &str, width: usize, fill: Option<char>) -> String {
    let missing = width.saturating_sub(text.chars().count());
    let fill = |count: usize, default: char| String::from(fill.unwrap_or(default)).repeat(count);
    match method {
        "zfill" => match text.strip_prefix(['+', '-']) {
            Some(digits) => format!("{}{}{digits}", &text[..1], fill(missing, '0')),
            None => format!("{}{text}", fill(missing, '0')),
        },
        "ljust" => format!("{text}{}", fill(missing, ' ')),
        "rjust" => format!("{}{text}", fill(missing, ' ')),
        _ => {
            let left = missing / 2 + (missing & width & 1);
            format!("{}{text}{}", fill(left, ' '), fill(missing - left, ' '))
        }
    }
}

fn invalid(message: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

/// Keyword and positional arguments of a call.
pub(crate) fn keywords(arguments: &[Value]) -> Result<(Kwargs, &[Value]), Error> {
    match arguments.split_last() {
        Some((last, positional)) if last.is_kwargs() => Ok((Kwargs::try_from(last.clone())?, positional)),
        _ => Ok((Kwargs::from_iter(std::iter::empty::<(&str, Value)>()), arguments)),
    }
}

/// The arguments of a filter, each by position or name.
pub(crate) struct Arguments<'a> {
    positional: &'a [Value],
    named: Kwargs,
}

impl<'a> Arguments<'a> {
    pub(crate) fn new(arguments: &'a [Value]) -> Result<Arguments<'a>, Error> {
        let (named, positional) = keywords(arguments)?;
        Ok(Arguments { positional, named })
    }

    /// The next argument.
    pub(crate) fn take(&mut self, name: &str) -> Result<Option<Value>, Error> {
        match self.positional.split_first() {
            Some((first, rest)) => {
                self.positional = rest;
                Ok(Some(first.clone()))
            }
            None if self.named.has(name) => self.named.get(name).map(Some),
            None => Ok(None),
        }
    }

    pub(crate) fn flag(&mut self, name: &str) -> Result<bool, Error> {
        Ok(self.take(name)?.is_some_and(|value| value.is_true()))
    }

    pub(crate) fn text(&mut self, name: &str) -> Result<Option<String>, Error> {
        Ok(self.take(name)?.filter(|value| !value.is_none()).map(|value| value.to_string()))
    }

    pub(crate) fn size(&mut self, name: &str) -> Result<Option<usize>, Error> {
        self.take(name)?.filter(|value| !value.is_none()).map(usize::try_from).transpose()
    }

    /// Fails if there are more arguments.
    pub(crate) fn end(self) -> Result<(), Error> {
        if self.positional.is_empty() {
            self.named.assert_all_used()
        } else {
            Err(Error::from(ErrorKind::TooManyArguments))
        }
    }
}
