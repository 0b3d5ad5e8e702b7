//! The environment of transformers' `apply_chat_template`, on minijinja.
//!
//! Jinja2's immutable sandbox with `trim_blocks`, `lstrip_blocks` and loop controls, Python's methods on strings, lists
//! and dicts, `tojson` as `json.dumps`, `raise_exception` and `strftime_now`. Where minijinja is more lenient than
//! Jinja2, it also fails here: a template that tests whether something works must get the same answer.
//!
//! `tests/cases/python-differences.tsv` lists the known remaining differences: no bytes, no methods as
//! values, no `varargs`, `urlize` and `lipsum`; a generator prints its items, where Python prints its address.

use crate::budget::{scope, timely};
use crate::lists::MutableList;
use crate::methods::{self, Arguments};
use crate::python;
use crate::sequences::{Cycler, Range, Tuple};
use crate::{filters, operators, provided, text_filters};
use jiff::civil::DateTime;
use minijinja::value::{Kwargs, Rest, Value, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, State};

/// Maximum instructions of one rendering: a hundred tools take about ten thousand.
const FUEL: u64 = 5_000_000;

/// Maximum nesting of macros, each of which takes four levels. They must fit a 2 MiB stack.
const RECURSION: usize = 240;

/// The names that [`desugar`](crate::desugar) writes into a template.
pub(crate) mod helper {
    pub const ITERATE: &str = "__iterate";
    pub const SPEND: &str = "__spend";
    pub const POWER: &str = "__power";
    pub const PRODUCT: &str = "__product";
    pub const CONCATENATE: &str = "__concatenate";
    pub const SUM: &str = "__sum";
    pub const COMPARE: &str = "__compare";
    pub const TUPLE: &str = "__tuple";
    pub const STORED: &str = "__stored";
    pub const SLICE: &str = "__slice";
    pub const LIST: &str = "__list";
    pub const MADE: &str = "__made";
    pub const MEMBER: &str = "__member";
}

/// An environment without templates.
pub(crate) fn environment(uncounted: bool) -> Environment<'static> {
    let mut env = Environment::empty();
    env.set_trim_blocks(true);
    env.set_lstrip_blocks(true);
    env.set_auto_escape_callback(|_| AutoEscape::None);
    env.set_fuel(Some(if uncounted { FUEL / 50 } else { FUEL }));
    env.set_recursion_limit(RECURSION);
    env.set_formatter(emit);
    env.set_unknown_method_callback(methods::call);
    env.add_filter("tojson", tojson);
    env.add_filter("from_json", from_json);
    env.add_filter("string", |state: &State, value: &Value| text(state, value));
    env.add_filter("join", join);
    env.add_filter("length", length);
    env.add_filter("count", length);
    env.add_filter("list", list);
    env.add_filter("trim", trim);
    env.add_filter("upper", |state: &State, value: &Value| string(state, value).map(|text| text.to_uppercase()));
    env.add_filter("lower", |state: &State, value: &Value| string(state, value).map(|text| text.to_lowercase()));
    env.add_filter("replace", replace);
    env.add_filter("int", int);
    env.add_filter("float", float);
    env.add_filter("format", format_filter);
    env.add_filter("indent", indent);
    env.add_filter("batch", |state: &State, value: Value, count: usize, fill: Option<Value>| {
        made(state, minijinja::filters::batch(state, value, small(count)?, fill)?)
    });
    env.add_filter("slice", |state: &State, value: Value, count: usize, fill: Option<Value>| {
        made(state, minijinja::filters::slice(state, value, small(count)?, fill)?)
    });
    provided::register(&mut env);
    filters::register(&mut env);
    text_filters::register(&mut env);
    // Python's semantics: a string is a sequence, a boolean is a number, none is not iterable.
    env.add_test("iterable", |value: &Value| !value.is_none() && value.try_iter().is_ok());
    env.add_test("sequence", |value: &Value| {
        value.is_undefined() || value.kind() != ValueKind::Iterable && value.len().is_some()
    });
    env.add_test("number", |value: &Value| matches!(value.kind(), ValueKind::Number | ValueKind::Bool));
    env.add_test("callable", |value: &Value| value.is_undefined() || value.kind() == ValueKind::Plain);
    env.add_function("raise_exception", raise_exception);
    env.add_function("strftime_now", strftime_now);
    env.add_function("range", |arguments: Rest<Value>| Range::value(&arguments));
    env.add_function("dict", |state: &State, arguments: Rest<Value>| made(state, dict(arguments)?));
    env.add_function("namespace", |state: &State, members: Option<Value>| {
        members.iter().try_for_each(|members| scope(state)?.budget.weigh(members).map(drop))?;
        minijinja::functions::namespace(members)
    });
    env.add_function("cycler", |items: Rest<Value>| Cycler::value(items.0));
    env.add_function("joiner", minijinja_contrib::globals::joiner);
    env.add_function(helper::ITERATE, |state: &State, value: Value| timely(state, iterate(value)?));
    env.add_function(helper::SPEND, spend);
    env.add_function(helper::POWER, operators::power);
    env.add_function(helper::PRODUCT, operators::product);
    env.add_function(helper::CONCATENATE, operators::concatenate);
    env.add_function(helper::SUM, operators::sum);
    env.add_function(helper::COMPARE, operators::compare);
    env.add_function(helper::TUPLE, |state: &State, items: Value| made(state, Tuple::of(&items)?));
    env.add_function(helper::MADE, made);
    env.add_function(helper::MEMBER, member);
    env.add_function(helper::STORED, stored);
    env.add_function(helper::LIST, |state: &State, items: Value| MutableList::copy_of(&made(state, items)?));
    env
}

fn emit(out: &mut Output, state: &State, value: &Value) -> Result<(), Error> {
    let scope = scope(state)?;
    // In a block of `autoescape`.
    if !matches!(state.auto_escape(), AutoEscape::None) && !value.is_safe() {
        let text = operators::escaped(&python::str(value, &scope.budget)?);
        scope.budget.spend(text.len())?;
        return out.write_str(&text).map_err(Error::from);
    }
    match value.as_str() {
        Some(text) => {
            scope.budget.spend(text.len())?;
            out.write_str(text).map_err(Error::from)
        }
        None => {
            let text = python::str(value, &scope.budget)?;
            scope.budget.spend(text.len())?;
            out.write_str(&text).map_err(Error::from)
        }
    }
}

/// An error raised by the template with `raise_exception`.
#[derive(Debug)]
pub(crate) struct Raised(pub String);

impl std::fmt::Display for Raised {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

fn raise_exception(state: &State, message: &Value) -> Result<Value, Error> {
    let message = python::str(message, &scope(state)?.budget)?;
    Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Raised(message)))
}

/// Returns the local time, or `None` where there is no clock: in WebAssembly outside WASI.
pub fn local_time() -> Option<DateTime> {
    if cfg!(all(target_family = "wasm", target_os = "unknown")) { None } else { Some(jiff::Zoned::now().datetime()) }
}

fn strftime_now(state: &State, format: &str) -> Result<String, Error> {
    let now = scope(state)?.options.now.or_else(local_time).ok_or_else(|| {
        let message = "strftime_now: there is no clock here; give the time with the request (`now`)";
        Error::new(ErrorKind::InvalidOperation, message)
    })?;
    let mut out = String::new();
    let mut rest = format;
    while let Some((before, after)) = rest.split_once('%') {
        out.push_str(before);
        let letter = after.trim_start_matches(['-', '_', '0', '^', '#']).chars().next();
        let length = letter.map_or(after.len(), |letter| after.find(letter).unwrap_or(0) + letter.len_utf8());
        let directive = &rest[before.len()..before.len() + 1 + length];
        rest = &after[length..];
        // As in the C locale, for a time without a zone; anything but a directive is unchanged.
        let directive = match letter {
            Some('c') => "%a %b %e %H:%M:%S %Y",
            Some('x') => "%m/%d/%y",
            Some('X') => "%H:%M:%S",
            Some('f') => "%6f",
            Some('Z' | 'z') => continue,
            Some('+' | ':' | '.' | 'q' | 'Q' | 'J' | 'K' | 'N' | 'L' | 'i' | 'o' | 'v') | None => {
                out.push_str(directive);
                continue;
            }
            Some(_) => directive,
        };
        // The time is whole, so that only the directive can be wrong. jiff's own texts are 60 kB of a WebAssembly module.
        let unknown = |_| {
            let message = format!("strftime_now({format:?}): there is no directive {directive:?}");
            Error::new(ErrorKind::InvalidOperation, message)
        };
        out.push_str(&jiff::fmt::strtime::format(directive, now).map_err(unknown)?);
    }
    out.push_str(rest);
    Ok(out)
}

/// A dict from another one, or from pairs, with more entries by name.
fn dict(arguments: Rest<Value>) -> Result<Value, Error> {
    let (named, positional) = methods::keywords(&arguments)?;
    let mut entries: Vec<(Value, Value)> = Vec::new();
    match positional {
        [] => {}
        [value] if value.kind() == ValueKind::Map => {
            for key in value.try_iter()? {
                let item = value.get_item(&key)?;
                entries.push((key, item));
            }
        }
        [value] => {
            for pair in iterate(value.clone())?.try_iter()? {
                match pair.try_iter()?.collect::<Vec<_>>().as_slice() {
                    [key, item] => entries.push((key.clone(), item.clone())),
                    _ => return Err(Error::new(ErrorKind::InvalidOperation, "dict requires pairs")),
                }
            }
        }
        _ => return Err(Error::from(ErrorKind::TooManyArguments)),
    }
    for name in named.args() {
        entries.push((Value::from(name), named.get(name)?));
    }
    Ok(Value::from_iter(entries))
}

/// `format % values`.
fn format_filter(state: &State, format: &Value, values: Rest<Value>) -> Result<String, Error> {
    let budget = &scope(state)?.budget;
    let format = python::str(format, budget)?;
    let (named, positional) = methods::keywords(&values)?;
    let mut entries: Vec<(Value, Value)> = Vec::new();
    for name in named.args() {
        entries.push((Value::from(name), named.get(name)?));
    }
    let values = match (entries.is_empty(), positional) {
        (true, positional) => Tuple::value(positional.to_vec()),
        (false, []) => Value::from_iter(entries),
        _ => {
            let message = "can't handle positional and keyword arguments at the same time";
            return Err(Error::new(ErrorKind::InvalidOperation, message));
        }
    };
    crate::format::printf(&format, &values, budget)
}

fn text(state: &State, value: &Value) -> Result<Value, Error> {
    if value.as_str().is_some() {
        scope(state)?.budget.check(value.as_str().map_or(0, str::len))?;
        return Ok(value.clone());
    }
    python::str(value, &scope(state)?.budget).map(Value::from)
}

fn string(state: &State, value: &Value) -> Result<String, Error> {
    python::str(value, &scope(state)?.budget)
}

/// Python's `int`, but with a default instead of an error.
fn int(value: Value, arguments: Rest<Value>) -> Result<Value, Error> {
    defined(&value)?;
    let (kwargs, positional) = methods::keywords(&arguments)?;
    let default = positional.first().cloned().or(kwargs.get("default")?).unwrap_or_else(|| Value::from(0));
    let base = positional.get(1).cloned().or(kwargs.get("base")?).map_or(Ok(10), u32::try_from)?;
    let number = match value.as_str() {
        Some(text) => {
            let text = digits(text).to_ascii_lowercase();
            let digits = match base {
                2 => text.strip_prefix("0b"),
                8 => text.strip_prefix("0o"),
                16 => text.strip_prefix("0x"),
                _ => None,
            };
            let integer =
                if (2..=36).contains(&base) { i128::from_str_radix(digits.unwrap_or(&text), base).ok() } else { None };
            integer.map(Value::from).or_else(|| text.parse::<f64>().ok().and_then(truncated))
        }
        None if value.kind() == ValueKind::Bool => Some(Value::from(i64::from(value.is_true()))),
        None if value.is_integer() => Some(value),
        None => f64::try_from(value).ok().and_then(truncated),
    };
    Ok(number.unwrap_or(default))
}

/// A number's text without the underscores that Python allows between two digits.
fn digits(text: &str) -> String {
    let text = text.trim();
    let bytes = text.as_bytes();
    let between = |at: usize| {
        let digit = |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_alphanumeric);
        digit(at.checked_sub(1)) && digit(Some(at + 1))
    };
    text.char_indices().filter(|(at, c)| *c != '_' || !between(*at)).map(|(_, c)| c).collect()
}

fn truncated(number: f64) -> Option<Value> {
    if number.is_finite() { Some(Value::from(number.trunc() as i128)) } else { None }
}

/// Python's `float`, but with a default instead of an error.
fn float(value: Value, default: Option<Value>) -> Result<Value, Error> {
    defined(&value)?;
    let number = match value.as_str() {
        Some(text) => digits(text).parse().ok(),
        None if value.kind() == ValueKind::Bool => Some(if value.is_true() { 1.0 } else { 0.0 }),
        None => f64::try_from(value).ok(),
    };
    Ok(number.map(Value::from).or(default).unwrap_or_else(|| Value::from(0.0)))
}

/// An undefined value is an error, not just an invalid number.
fn defined(value: &Value) -> Result<(), Error> {
    if value.is_undefined() {
        return Err(Error::new(ErrorKind::UndefinedError, "expected a number, but the value is undefined"));
    }
    Ok(())
}

/// Rejects unreasonable numbers of columns or spaces.
fn small(count: usize) -> Result<usize, Error> {
    if count <= 10_000 {
        return Ok(count);
    }
    Err(Error::new(ErrorKind::InvalidOperation, format!("{count} is too many")))
}

fn indent(state: &State, value: &Value, arguments: Rest<Value>) -> Result<String, Error> {
    let text = string(state, value)?;
    let (kwargs, arguments) = methods::keywords(&arguments)?;
    let flag = |index: usize, name: &str| match arguments.get(index) {
        Some(flag) => Ok(flag.is_true()),
        None => kwargs.get::<Option<bool>>(name).map(Option::unwrap_or_default),
    };
    let (first, blank) = (flag(1, "first")?, flag(2, "blank")?);
    let margin = match arguments.first().cloned().or(kwargs.get("width")?) {
        None => " ".repeat(4),
        Some(width) => match width.as_str() {
            Some(margin) => margin.to_owned(),
            None => " ".repeat(small(usize::try_from(width)?)?),
        },
    };
    kwargs.assert_all_used()?;
    let budget = &scope(state)?.budget;
    let mut out = String::with_capacity(text.len());
    for (index, line) in text.split('\n').enumerate() {
        budget.check(out.len())?;
        if index > 0 {
            out.push('\n');
        }
        if if index == 0 { first } else { blank || !line.is_empty() } {
            out.push_str(&margin);
        }
        out.push_str(line);
    }
    Ok(out)
}

fn replace(state: &State, value: &Value, arguments: Rest<Value>) -> Result<Value, Error> {
    let text = Value::from(string(state, value)?);
    let mut arguments = Arguments::new(&arguments)?;
    let mut part = |name: &str| -> Result<Value, Error> {
        let part = arguments.take(name)?.ok_or_else(|| Error::from(ErrorKind::MissingArgument))?;
        string(state, &part).map(Value::from)
    };
    let (old, new) = (part("old")?, part("new")?);
    let count = arguments.take("count")?.filter(|count| !count.is_none()).unwrap_or_else(|| Value::from(-1));
    arguments.end()?;
    methods::call(state, &text, "replace", &[old, new, count])
}

/// A value assigned to a variable, written with `nesting` brackets. Dropping a value uses stack for each level.
fn stored(state: &State, nesting: usize, value: Value) -> Result<Value, Error> {
    let nested = value.as_object().and_then(|object| {
        let mut pairs = object.try_iter_pairs()?;
        Some(pairs.any(|(_, item)| item.as_object().is_some()))
    });
    if nested == Some(true) {
        scope(state)?.budget.nest(nesting)?;
    }
    Ok(value)
}

/// A list or dict that the template made of other values.
fn made(state: &State, value: Value) -> Result<Value, Error> {
    scope(state)?.budget.weigh(&value)?;
    Ok(value)
}

/// A value assigned to a member of a namespace.
fn member(state: &State, namespace: &Value, value: Value) -> Result<Value, Error> {
    scope(state)?.budget.member(namespace, &value)?;
    Ok(value)
}

fn spend(state: &State, length: usize) -> Result<Value, Error> {
    scope(state)?.budget.spend(length)?;
    Ok(Value::from(""))
}

/// minijinja iterates over `none` as an empty sequence; Python refuses it.
fn iterate(value: Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::None => Err(Error::new(ErrorKind::InvalidOperation, "none is not iterable")),
        _ => Ok(value),
    }
}

fn length(value: &Value) -> Result<usize, Error> {
    if value.is_undefined() {
        return Ok(0);
    }
    value.len().ok_or_else(|| {
        Error::new(ErrorKind::InvalidOperation, format!("a value of type {} has no length", value.kind()))
    })
}

fn list(state: &State, value: Value) -> Result<Value, Error> {
    let budget = &scope(state)?.budget;
    let mut items = Vec::new();
    for item in iterate(value)?.try_iter()? {
        budget.check(items.len() * size_of::<Value>())?;
        items.push(item);
    }
    Ok(Value::from(items))
}

fn join(state: &State, value: Value, separator: Option<Value>, attribute: Option<Value>) -> Result<String, Error> {
    let budget = &scope(state)?.budget;
    // The attribute may be the last positional argument or a keyword.
    let (separator, attribute) = match separator {
        Some(last) if last.is_kwargs() => {
            let kwargs = Kwargs::try_from(last)?;
            let found = (kwargs.get("d")?, kwargs.get("attribute")?);
            kwargs.assert_all_used()?;
            found
        }
        separator => match attribute {
            Some(last) if last.is_kwargs() => (separator, Kwargs::try_from(last)?.get("attribute")?),
            attribute => (separator, attribute),
        },
    };
    let separator = separator.map(|separator| python::str(&separator, budget)).transpose()?.unwrap_or_default();
    let mut out = String::new();
    for (index, item) in iterate(value)?.try_iter()?.enumerate() {
        budget.check(out.len())?;
        if index > 0 {
            out.push_str(&separator);
        }
        let item = match &attribute {
            Some(attribute) => item.get_item(attribute)?,
            None => item,
        };
        python::write_str(&mut out, &item, budget)?;
    }
    Ok(out)
}

fn trim(state: &State, value: &Value, characters: Option<&str>) -> Result<String, Error> {
    let text = python::str(value, &scope(state)?.budget)?;
    Ok(methods::strip(&text, characters, true, true).to_owned())
}

fn from_json(text: &str) -> Result<Value, Error> {
    let value: serde_json::Value = serde_json::from_str(text)
        .map_err(|error| Error::new(ErrorKind::InvalidOperation, format!("from_json: {error}")))?;
    Ok(Value::from_serialize(value))
}

fn tojson(state: &State, value: &Value, arguments: Rest<Value>) -> Result<String, Error> {
    let (kwargs, positional) = methods::keywords(&arguments)?;
    // transformers' order: ensure_ascii, indent, separators, sort_keys.
    let mut positional = positional.iter().cloned();
    let mut argument = |name: &str| -> Result<Option<Value>, Error> {
        let value = match positional.next() {
            Some(value) => Some(value),
            None => kwargs.get::<Option<Value>>(name)?,
        };
        Ok(value.filter(|value| !value.is_none() && !value.is_undefined()))
    };
    let mut style = python::JsonStyle::default();
    if let Some(ensure_ascii) = argument("ensure_ascii")? {
        style.ensure_ascii = ensure_ascii.is_true();
    }
    if let Some(indent) = argument("indent")? {
        style.item_separator = ",".to_owned();
        style.indent = Some(match indent.as_str() {
            Some(text) => text.to_owned(),
            None => " ".repeat(i64::try_from(indent)?.clamp(0, 64) as usize),
        });
    }
    if let Some(separators) = argument("separators")? {
        let mut parts = separators.try_iter()?.map(|part| part.as_str().map(str::to_owned));
        match (parts.next().flatten(), parts.next().flatten()) {
            (Some(item), Some(key)) => (style.item_separator, style.key_separator) = (item, key),
            _ => return Err(Error::new(ErrorKind::InvalidOperation, "tojson: separators is not a pair of strings")),
        }
    }
    if let Some(sort_keys) = argument("sort_keys")? {
        style.sort_keys = sort_keys.is_true();
    }
    kwargs.assert_all_used()?;
    let scope = scope(state)?;
    python::json(value, &style, &scope.budget, &scope.options.placeholders)
}
