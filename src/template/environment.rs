//! The environment of transformers' `apply_chat_template`, on minijinja.
//!
//! Jinja2's immutable sandbox with `trim_blocks`, `lstrip_blocks` and loop controls, Python's methods on strings,
//! lists and dicts, `tojson` as `json.dumps`, `raise_exception` and `strftime_now`. Where minijinja is more lenient
//! than Jinja2, it is made to fail as well: a template that tests whether something works must get the same answer.

use super::budget::scope;
use super::lists::MutableList;
use super::methods;
use super::python;
use jiff::Zoned;
use minijinja::value::{Kwargs, Rest, Value, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, State};

/// Instructions that one rendering may take: a hundred tools take some ten thousand.
const FUEL: u64 = 5_000_000;

/// How deep macros may nest; each takes four levels. A thread of 2 MiB stack has to bear it.
const RECURSION: usize = 240;

/// The names that [`desugar`](super::desugar) writes into a template.
pub(super) mod helper {
    pub const ITERATE: &str = "__iterate";
    pub const TEXT: &str = "__text";
    pub const OPERAND: &str = "__operand";
    pub const SPEND: &str = "__spend";
    pub const FACTOR: &str = "__factor";
    pub const STORED: &str = "__stored";
    pub const SLICE: &str = "__slice";
    pub const LIST: &str = "__list";
}

/// An environment without templates.
pub(super) fn environment(uncounted: bool) -> Environment<'static> {
    let mut env = Environment::new();
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
    env.add_filter("safe", |value: Value| value);
    env.add_filter("upper", |state: &State, value: &Value| string(state, value).map(|text| text.to_uppercase()));
    env.add_filter("lower", |state: &State, value: &Value| string(state, value).map(|text| text.to_lowercase()));
    env.add_filter("replace", replace);
    env.add_filter("int", int);
    env.add_filter("float", float);
    env.add_filter("format", |state: &State, format: &str, values: Rest<Value>| {
        methods::check_format(format, '%', &values, &scope(state)?.budget)?;
        minijinja::format_filter(minijinja::FormatStyle::Printf, format, &values)
    });
    env.add_filter("indent", indent);
    env.add_filter("batch", |state: &State, value: Value, count: usize, fill: Option<Value>| {
        minijinja::filters::batch(state, value, small(count)?, fill)
    });
    env.add_filter("slice", |state: &State, value: Value, count: usize, fill: Option<Value>| {
        minijinja::filters::slice(state, value, small(count)?, fill)
    });
    // Python's notions: a string is a sequence, a boolean is a number, none is nothing to iterate over.
    env.add_test("iterable", |value: &Value| !value.is_none() && value.try_iter().is_ok());
    env.add_test("sequence", |value: &Value| value.is_undefined() || value.len().is_some());
    env.add_test("number", |value: &Value| matches!(value.kind(), ValueKind::Number | ValueKind::Bool));
    env.add_test("callable", |value: &Value| value.kind() == ValueKind::Plain);
    env.add_function("raise_exception", raise_exception);
    env.add_function("strftime_now", strftime_now);
    env.add_function(helper::ITERATE, iterate);
    env.add_function(helper::TEXT, text);
    env.add_function(helper::OPERAND, operand);
    env.add_function(helper::SPEND, spend);
    env.add_function(helper::FACTOR, factor);
    env.add_function(helper::STORED, stored);
    env.add_function(helper::LIST, MutableList::copy_of);
    env
}

fn emit(out: &mut Output, state: &State, value: &Value) -> Result<(), Error> {
    let scope = scope(state)?;
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

/// The template's own error, raised on purpose.
#[derive(Debug)]
pub(super) struct Raised(pub String);

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

fn strftime_now(state: &State, format: &str) -> Result<String, Error> {
    let formatted = match scope(state)?.now {
        Some(now) => jiff::fmt::strtime::format(format, now),
        None => jiff::fmt::strtime::format(format, &Zoned::now()),
    };
    formatted.map_err(|error| Error::new(ErrorKind::InvalidOperation, format!("strftime_now({format:?}): {error}")))
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

/// Python's `int`, which gives a default instead of failing.
fn int(value: Value, arguments: Rest<Value>) -> Result<Value, Error> {
    let (kwargs, positional) = methods::keywords(&arguments)?;
    let default = positional.first().cloned().or(kwargs.get("default")?).unwrap_or_else(|| Value::from(0));
    let base = positional.get(1).cloned().or(kwargs.get("base")?).map_or(Ok(10), u32::try_from)?;
    let number = match value.as_str() {
        Some(text) => {
            let text = text.trim().to_ascii_lowercase();
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

fn truncated(number: f64) -> Option<Value> {
    if number.is_finite() { Some(Value::from(number.trunc() as i128)) } else { None }
}

/// Python's `float`, which gives a default instead of failing.
fn float(value: Value, default: Option<Value>) -> Value {
    let number = match value.as_str() {
        Some(text) => text.trim().parse().ok(),
        None if value.kind() == ValueKind::Bool => Some(if value.is_true() { 1.0 } else { 0.0 }),
        None => f64::try_from(value).ok(),
    };
    number.map(Value::from).or(default).unwrap_or_else(|| Value::from(0.0))
}

/// A number of columns or of spaces that somebody may have meant.
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

fn replace(state: &State, value: &Value, old: &str, new: &str, count: Option<i64>) -> Result<Value, Error> {
    let text = Value::from(string(state, value)?);
    let count = Value::from(count.unwrap_or(-1));
    methods::call(state, &text, "replace", &[Value::from(old), Value::from(new), count])
}

/// An operand of `+`, or a product: text and lists may only become so long.
fn operand(state: &State, value: Value) -> Result<Value, Error> {
    if let Some(text) = value.as_str() {
        scope(state)?.budget.check(text.len())?;
    } else if matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable) {
        scope(state)?.budget.check(value.len().unwrap_or(0).saturating_mul(size_of::<Value>()))?;
    }
    Ok(value)
}

/// A factor; a list is repeated without a check for overflow.
fn factor(state: &State, value: Value) -> Result<Value, Error> {
    if value.is_integer() && i64::try_from(value.clone()).is_ok_and(|count| count > 1 << 31) {
        let message = format!("{value} is too large a factor");
        return Err(Error::new(ErrorKind::InvalidOperation, message));
    }
    operand(state, value)
}

/// A value that a variable is set to, written with `nesting` brackets. Dropping a value takes stack for each level.
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

fn spend(state: &State, length: usize) -> Result<Value, Error> {
    scope(state)?.budget.spend(length)?;
    Ok(Value::from(""))
}

/// minijinja loops over `none` as over nothing; Python does not.
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
    python::json(value, &style, &scope.budget, &scope.table)
}
