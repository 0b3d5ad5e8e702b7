//! Python's methods on strings, lists and dicts.
//!
//! minijinja-contrib has most of them; those that templates lean on are here, because there they count bytes instead
//! of characters, or answer differently for an empty string.

use super::budget::{Budget, scope};
use super::environment::helper;
use super::lists;
use minijinja::value::{Kwargs, Value, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State};

/// Calls `value.method(arguments)`.
pub(super) fn call(state: &State, value: &Value, method: &str, arguments: &[Value]) -> Result<Value, Error> {
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
        (ValueKind::Map, "copy") => Ok(value.clone()),
        (ValueKind::Seq | ValueKind::Iterable, "copy") => Ok(value.clone()),
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
        _ => minijinja_contrib::pycompat::unknown_method_callback(state, value, method, arguments),
    }
}

fn string(text: &str, method: &str, arguments: &[Value], budget: &Budget) -> Result<Option<Value>, Error> {
    Ok(Some(match method {
        "strip" | "lstrip" | "rstrip" => {
            let (characters,): (Option<&str>,) = from_args(arguments)?;
            Value::from(strip(text, characters, method != "rstrip", method != "lstrip"))
        }
        "split" | "rsplit" => {
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
            parts.into_iter().map(Value::from).collect()
        }
        "partition" | "rpartition" => {
            let (separator,): (&str,) = from_args(arguments)?;
            if separator.is_empty() {
                return Err(invalid("empty separator"));
            }
            let parts = match method {
                "partition" => text.split_once(separator).map_or([text, "", ""], |(a, b)| [a, separator, b]),
                _ => text.rsplit_once(separator).map_or(["", "", text], |(a, b)| [a, separator, b]),
            };
            parts.into_iter().map(Value::from).collect()
        }
        "splitlines" => {
            let (keep, _, kwargs) = optional_kwargs(arguments)?;
            let keep = keep.or(kwargs.get("keepends")?).is_some_and(|keep| keep.is_true());
            split_lines(text, keep).into_iter().map(Value::from).collect()
        }
        "find" | "rfind" | "index" | "rindex" => {
            let (wanted,): (&str,) = from_args(arguments)?;
            let found = if method.starts_with('r') { text.rfind(wanted) } else { text.find(wanted) };
            match found {
                Some(offset) => Value::from(text[..offset].chars().count()),
                None if method.ends_with("find") => Value::from(-1),
                None => return Err(invalid("substring not found")),
            }
        }
        "count" => {
            let (wanted,): (&str,) = from_args(arguments)?;
            Value::from(match wanted {
                "" => text.chars().count() + 1,
                _ => text.matches(wanted).count(),
            })
        }
        "replace" => {
            let (old, new, count): (&str, &str, Option<i64>) = from_args(arguments)?;
            let count = count.and_then(|count| usize::try_from(count).ok());
            budget.check(text.len())?;
            let places = text.matches(old).take(count.unwrap_or(usize::MAX)).count();
            budget.check(text.len().saturating_add(places.saturating_mul(new.len())))?;
            Value::from(match count {
                Some(count) => text.replacen(old, new, count),
                None => text.replace(old, new),
            })
        }
        "join" => {
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
            Value::from(out)
        }
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(arguments)?;
            Value::from(text.strip_prefix(prefix).unwrap_or(text))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(arguments)?;
            Value::from(text.strip_suffix(suffix).unwrap_or(text))
        }
        "isdigit" | "isnumeric" | "isdecimal" => every(text, char::is_numeric),
        "isalpha" => every(text, char::is_alphabetic),
        "isalnum" => every(text, char::is_alphanumeric),
        "isspace" => every(text, white_space),
        "isupper" => Value::from(text.chars().any(char::is_uppercase) && !text.chars().any(char::is_lowercase)),
        "islower" => Value::from(text.chars().any(char::is_lowercase) && !text.chars().any(char::is_uppercase)),
        "casefold" => Value::from(text.to_lowercase().replace('ß', "ss")),
        "swapcase" => Value::from(
            text.chars()
                .flat_map(|c| {
                    if c.is_uppercase() { c.to_lowercase().collect::<Vec<_>>() } else { c.to_uppercase().collect() }
                })
                .collect::<String>(),
        ),
        "format" => {
            check_format(text, '{', arguments, budget)?;
            return Ok(None);
        }
        "zfill" | "ljust" | "rjust" | "center" => {
            let (width, fill): (i64, Option<char>) = from_args(arguments)?;
            let width = usize::try_from(width).unwrap_or(0);
            budget.check(width)?;
            Value::from(pad(text, method, width, fill))
        }
        _ => return Ok(None),
    }))
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

/// Python's idea of white space has four separators more than Unicode's.
fn white_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// `str.strip` and its one-sided forms.
pub(super) fn strip<'a>(text: &'a str, characters: Option<&str>, left: bool, right: bool) -> &'a str {
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

fn split_lines(text: &str, keep: bool) -> Vec<&str> {
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
pub(super) fn keywords(arguments: &[Value]) -> Result<(Kwargs, &[Value]), Error> {
    match arguments.split_last() {
        Some((last, positional)) if last.is_kwargs() => Ok((Kwargs::try_from(last.clone())?, positional)),
        _ => Ok((Kwargs::from_iter(std::iter::empty::<(&str, Value)>()), arguments)),
    }
}

/// Refuses a format that makes gigabytes of nothing, or repeats a long text many times.
pub(super) fn check_format(format: &str, sign: char, arguments: &[Value], budget: &Budget) -> Result<(), Error> {
    let widest = format.split(|c: char| !c.is_ascii_digit()).map(str::len).max().unwrap_or(0);
    if widest > 5 {
        return Err(invalid("a width in the format is too large"));
    }
    let longest = arguments.iter().filter_map(|value| value.as_str()).map(str::len).max().unwrap_or(0);
    budget.check(format.matches(sign).count().saturating_mul(longest).saturating_add(format.len()))
}
