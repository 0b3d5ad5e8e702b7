//! Values as Python prints them.
//!
//! Chat templates were written for Jinja2 in Python, and their output is part of the prompt that a model was trained
//! on: `True`, `None`, `1e-07`, `{'a': 1}`, and JSON with `", "` between its items.

use crate::budget::Budget;
use crate::sequences::{Range, Tuple, View};
use crate::template::Placeholders;
use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};
use std::fmt::Write;

/// `str(value)`.
pub(crate) fn str(value: &Value, budget: &Budget) -> Result<String, Error> {
    match value.as_str() {
        Some(text) => Ok(text.to_owned()),
        None => {
            let mut out = String::new();
            write_str(&mut out, value, budget)?;
            Ok(out)
        }
    }
}

/// Writes `str(value)`.
pub(crate) fn write_str(out: &mut String, value: &Value, budget: &Budget) -> Result<(), Error> {
    match value.kind() {
        ValueKind::Undefined => Ok(()),
        ValueKind::String => {
            out.push_str(value.as_str().unwrap_or_default());
            Ok(())
        }
        _ => write_repr(out, value, budget, 0),
    }
}

/// `repr(value)`.
pub(crate) fn repr(value: &Value, budget: &Budget) -> Result<String, Error> {
    let mut out = String::new();
    write_repr(&mut out, value, budget, 0)?;
    Ok(out)
}

/// `repr(value)` with sorted dict keys, as in `pprint`.
pub(crate) fn sorted_repr(value: &Value, budget: &Budget) -> Result<String, Error> {
    repr(&sorted(value, budget, 0)?, budget)
}

fn sorted(value: &Value, budget: &Budget, depth: usize) -> Result<Value, Error> {
    check_depth(depth)?;
    budget.on_time()?;
    let items =
        |value: &Value| value.try_iter()?.map(|item| sorted(&item, budget, depth + 1)).collect::<Result<Vec<_>, _>>();
    match value.kind() {
        ValueKind::Map => {
            let mut entries = Vec::new();
            for key in value.try_iter()? {
                entries.push((key.clone(), sorted(&value.get_item(&key)?, budget, depth + 1)?));
            }
            entries.sort_by(|(a, _), (b, _)| a.cmp(b));
            Ok(Value::from_iter(entries))
        }
        ValueKind::Seq if value.downcast_object_ref::<Tuple>().is_some() => Ok(Tuple::value(items(value)?)),
        ValueKind::Seq if value.downcast_object_ref::<Range>().is_none() => Ok(Value::from(items(value)?)),
        _ => Ok(value.clone()),
    }
}

/// Maximum nesting of a printed value; a namespace may contain itself.
const DEPTH: usize = 200;

fn check_depth(depth: usize) -> Result<(), Error> {
    if depth <= DEPTH {
        return Ok(());
    }
    Err(Error::new(ErrorKind::InvalidOperation, "a value is nested too deeply to be written"))
}

fn write_repr(out: &mut String, value: &Value, budget: &Budget, depth: usize) -> Result<(), Error> {
    budget.check(out.len())?;
    budget.on_time()?;
    check_depth(depth)?;
    match value.kind() {
        ValueKind::Undefined => out.push_str("Undefined"),
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => write_number(out, value, "nan", "inf"),
        ValueKind::String if value.is_safe() => {
            out.push_str("Markup(");
            quote(out, value.as_str().unwrap_or_default());
            out.push(')');
        }
        ValueKind::String => quote(out, value.as_str().unwrap_or_default()),
        ValueKind::Seq | ValueKind::Iterable => {
            if let Some(Range { start, stop, step }) = value.downcast_object_ref() {
                let step = if *step == 1 { String::new() } else { format!(", {step}") };
                let _ = write!(out, "range({start}, {stop}{step})");
                return Ok(());
            }
            let view = value.downcast_object_ref().map(|View { name, .. }| *name);
            let tuple = value.downcast_object_ref::<Tuple>().map(|tuple| tuple.items.len());
            if let Some(name) = view {
                let _ = write!(out, "{name}(");
            }
            out.push(if tuple.is_some() { '(' } else { '[' });
            for (index, item) in value.try_iter()?.enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                write_repr(out, &item, budget, depth + 1)?;
            }
            out.push_str(match tuple {
                Some(1) => ",)",
                Some(_) => ")",
                None => "]",
            });
            if view.is_some() {
                out.push(')');
            }
        }
        ValueKind::Map if value.as_object().is_some_and(|object| object.type_name().ends_with("::Loop")) => {
            let (index, length) = (value.get_attr("index")?, value.get_attr("length")?);
            let _ = write!(out, "<LoopContext {index}/{length}>");
        }
        ValueKind::Map => {
            out.push('{');
            for (index, key) in value.try_iter()?.enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                write_repr(out, &key, budget, depth + 1)?;
                out.push_str(": ");
                write_repr(out, &value.get_item(&key)?, budget, depth + 1)?;
            }
            out.push('}');
        }
        _ => {
            let _ = write!(out, "{value}");
        }
    }
    Ok(())
}

fn quote(out: &mut String, text: &str) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            c if is_printable(c) => out.push(c),
            c => {
                let _ = match c as u32 {
                    code @ ..0x100 => write!(out, "\\x{code:02x}"),
                    code @ ..0x10000 => write!(out, "\\u{code:04x}"),
                    code => write!(out, "\\U{code:08x}"),
                };
            }
        }
    }
    out.push(quote);
}

/// Returns whether `text` looks different inside a JSON string.
pub fn json_escapes(text: &str) -> bool {
    text.chars().any(|c| matches!(c, '"' | '\\') || (c as u32) < 0x20)
}

/// `str.isprintable`. Rust's `escape_debug` uses the same categories, but escapes combining marks only at the
/// beginning.
pub(crate) fn is_printable(c: char) -> bool {
    // The last plane is for placeholders.
    if c.is_ascii() || c >= '\u{100000}' {
        return !c.is_ascii_control();
    }
    let mut buffer = [b'a'; 5];
    let length = c.encode_utf8(&mut buffer[1..]).len();
    std::str::from_utf8(&buffer[..=length]).is_ok_and(|text| text.escape_debug().nth(1) == Some(c))
}

fn write_number(out: &mut String, value: &Value, nan: &str, infinity: &str) {
    if value.is_integer() {
        let _ = write!(out, "{value}");
        return;
    }
    match f64::try_from(value.clone()) {
        Ok(number) if number.is_nan() => out.push_str(nan),
        Ok(number) if number.is_infinite() => {
            if number < 0.0 {
                out.push('-');
            }
            out.push_str(infinity);
        }
        Ok(number) => out.push_str(&float(number)),
        Err(_) => {
            let _ = write!(out, "{value}");
        }
    }
}

/// `repr` of a finite float: the shortest digits that round-trip, with an exponent outside 1e-4 to 1e16.
pub(crate) fn float(number: f64) -> String {
    let scientific = format!("{number:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let plain = format!("{number}");
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

/// Options of `json.dumps`.
#[derive(Debug, Clone)]
pub(crate) struct JsonStyle {
    pub ensure_ascii: bool,
    /// One level of indentation; `None` writes one line.
    pub indent: Option<String>,
    pub item_separator: String,
    pub key_separator: String,
    pub sort_keys: bool,
}

impl Default for JsonStyle {
    fn default() -> JsonStyle {
        JsonStyle {
            ensure_ascii: false,
            indent: None,
            item_separator: ", ".to_owned(),
            key_separator: ": ".to_owned(),
            sort_keys: false,
        }
    }
}

/// `json.dumps(value)`. A lazy sequence is written as a list; Python refuses it.
pub(crate) fn json(
    value: &Value,
    style: &JsonStyle,
    budget: &Budget,
    placeholders: &Placeholders,
) -> Result<String, Error> {
    let mut writer = JsonWriter { out: String::new(), style, budget, placeholders };
    writer.value(value, 0)?;
    Ok(writer.out)
}

struct JsonWriter<'a> {
    out: String,
    style: &'a JsonStyle,
    budget: &'a Budget,
    placeholders: &'a Placeholders,
}

impl JsonWriter<'_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.budget.check(self.out.len())?;
        self.budget.on_time()?;
        check_depth(depth)?;
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => write_number(&mut self.out, value, "NaN", "Infinity"),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable if value.downcast_object_ref::<View>().is_none() => {
                self.out.push('[');
                let mut any = false;
                for item in value.try_iter()? {
                    self.separate(any, depth + 1);
                    any = true;
                    self.value(&item, depth + 1)?;
                }
                self.close(any, depth, ']');
            }
            ValueKind::Map => self.map(value, depth)?,
            kind => {
                let message = format!("a value of type {kind} cannot be written as JSON");
                return Err(Error::new(ErrorKind::BadSerialization, message));
            }
        }
        Ok(())
    }

    fn map(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        let mut entries = Vec::new();
        for key in value.try_iter()? {
            let item = value.get_item(&key)?;
            entries.push((self.key(&key)?, item));
        }
        if self.style.sort_keys {
            entries.sort_by(|a, b| a.0.cmp(&b.0));
        }
        self.out.push('{');
        let any = !entries.is_empty();
        for (index, (key, item)) in entries.into_iter().enumerate() {
            self.separate(index > 0, depth + 1);
            self.string(&key);
            self.out.push_str(&self.style.key_separator);
            self.value(&item, depth + 1)?;
        }
        self.close(any, depth, '}');
        Ok(())
    }

    fn key(&self, key: &Value) -> Result<String, Error> {
        match key.kind() {
            ValueKind::String => Ok(key.as_str().unwrap_or_default().to_owned()),
            ValueKind::None | ValueKind::Bool | ValueKind::Number => {
                json(key, &JsonStyle::default(), self.budget, self.placeholders)
            }
            kind => Err(Error::new(ErrorKind::BadSerialization, format!("a key of type {kind} cannot be JSON"))),
        }
    }

    fn separate(&mut self, comma: bool, depth: usize) {
        if comma {
            self.out.push_str(&self.style.item_separator);
        }
        self.line(depth);
    }

    fn close(&mut self, any: bool, depth: usize, bracket: char) {
        if any {
            self.line(depth);
        }
        self.out.push(bracket);
    }

    fn line(&mut self, depth: usize) {
        if let Some(indent) = &self.style.indent {
            self.out.push('\n');
            for _ in 0..depth {
                self.out.push_str(indent);
            }
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match self.placeholders.original(c) {
                // Escaping breaks the original up, so that it is no markup.
                Some(original) if json_escapes(original) => {
                    original.chars().for_each(|c| self.character(c));
                }
                Some(_) => self.out.push(c),
                None => self.character(c),
            }
        }
        self.out.push('"');
    }

    fn character(&mut self, c: char) {
        match c {
            '"' => self.out.push_str("\\\""),
            '\\' => self.out.push_str("\\\\"),
            '\n' => self.out.push_str("\\n"),
            '\r' => self.out.push_str("\\r"),
            '\t' => self.out.push_str("\\t"),
            '\u{8}' => self.out.push_str("\\b"),
            '\u{c}' => self.out.push_str("\\f"),
            c if (c as u32) < 0x20 => {
                let _ = write!(self.out, "\\u{:04x}", c as u32);
            }
            c if self.style.ensure_ascii && !(' '..='~').contains(&c) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(self.out, "\\u{unit:04x}");
                }
            }
            c => self.out.push(c),
        }
    }
}
