//! Python's two format notations: `"%05.1f" % x` and `"{:>8}".format(x)`.

use crate::budget::Budget;
use crate::operators::{Number, type_name};
use crate::python;
use crate::sequences::Tuple;
use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Error, ErrorKind};
use std::borrow::Cow;

/// Maximum reasonable width of a field.
const WIDEST: usize = 99_999;

fn error(message: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

/// Python's format specification for one value.
#[derive(Debug, Clone, Copy, Default)]
struct Spec {
    fill: Option<char>,
    align: Option<char>,
    sign: Option<char>,
    alternate: bool,
    zero: bool,
    width: usize,
    grouping: Option<char>,
    precision: Option<usize>,
    kind: Option<char>,
}

impl Spec {
    fn parse(text: &str) -> Result<Spec, Error> {
        let characters: Vec<char> = text.chars().collect();
        let mut spec = Spec::default();
        let mut rest = &characters[..];
        match rest {
            [fill, align @ ('<' | '>' | '^' | '='), ..] => {
                (spec.fill, spec.align) = (Some(*fill), Some(*align));
                rest = &rest[2..];
            }
            [align @ ('<' | '>' | '^' | '='), ..] => {
                spec.align = Some(*align);
                rest = &rest[1..];
            }
            _ => {}
        }
        let mut take = |wanted: &[char]| {
            let found = rest.first().copied().filter(|c| wanted.contains(c));
            rest = &rest[usize::from(found.is_some())..];
            found
        };
        spec.sign = take(&['+', '-', ' ']);
        spec.alternate = take(&['#']).is_some();
        spec.zero = take(&['0']).is_some();
        spec.width = number(&mut rest)?.unwrap_or(0);
        if let [sign @ (',' | '_'), ..] = rest {
            spec.grouping = Some(*sign);
            rest = &rest[1..];
        }
        if let ['.', ..] = rest {
            rest = &rest[1..];
            spec.precision = Some(number(&mut rest)?.ok_or_else(|| error("format specifier missing precision"))?);
        }
        match rest {
            [] => {}
            [kind] => spec.kind = Some(*kind),
            _ => return Err(error(format!("invalid format specifier {text:?}"))),
        }
        Ok(spec)
    }

    /// Pads the text to its field; `prefix` is the part of it before the padding inside a number.
    fn pad(&self, text: &str, prefix: usize, default: char) -> String {
        let missing = self.width.saturating_sub(text.chars().count());
        let fill = |count: usize| String::from(self.fill.unwrap_or(if self.zero { '0' } else { ' ' })).repeat(count);
        match self.align.unwrap_or(if self.zero && default == '>' { '=' } else { default }) {
            '<' => text.to_owned() + &fill(missing),
            '^' => fill(missing / 2) + text + &fill(missing - missing / 2),
            '=' => format!("{}{}{}", &text[..prefix], fill(missing), &text[prefix..]),
            _ => fill(missing) + text,
        }
    }

    fn text(&self, text: &str) -> String {
        match self.precision {
            Some(most) => self.pad(&text.chars().take(most).collect::<String>(), 0, '<'),
            None => self.pad(text, 0, '<'),
        }
    }

    /// Formats a number's digits with sign and base.
    fn signed(&self, negative: bool, base: &str, digits: &str) -> String {
        let sign = match self.sign {
            _ if negative => "-",
            Some('+') => "+",
            Some(' ') => " ",
            _ => "",
        };
        let every = if base.is_empty() { 3 } else { 4 };
        let digits = self.grouping.map_or_else(|| digits.to_owned(), |with| grouped(digits, with, every));
        let base = if self.alternate { base } else { "" };
        self.pad(&format!("{sign}{base}{digits}"), sign.len() + base.len(), '>')
    }

    fn integer(&self, value: i128) -> Result<String, Error> {
        let size = value.unsigned_abs();
        let (base, digits) = match self.kind {
            None | Some('d' | 'n') => ("", size.to_string()),
            Some('x') => ("0x", format!("{size:x}")),
            Some('X') => ("0X", format!("{size:X}")),
            Some('o') => ("0o", format!("{size:o}")),
            Some('b') => ("0b", format!("{size:b}")),
            Some('c') => {
                let character = u32::try_from(value).ok().and_then(char::from_u32);
                let character = character.ok_or_else(|| error("%c arg not in range(0x110000)"))?;
                return Ok(self.pad(&character.to_string(), 0, '<'));
            }
            Some('e' | 'E' | 'f' | 'F' | 'g' | 'G' | '%') => return self.float(value as f64),
            Some(kind) => return Err(error(format!("unknown format code '{kind}' for object of type 'int'"))),
        };
        Ok(self.signed(value < 0, base, &digits))
    }

    fn float(&self, value: f64) -> Result<String, Error> {
        let kind = self.kind.unwrap_or(' ');
        let size = value.abs();
        let precision = self.precision.unwrap_or(6);
        let digits = match kind {
            _ if size.is_nan() => "nan".to_owned(),
            _ if size.is_infinite() => "inf".to_owned(),
            'f' | 'F' => format!("{size:.precision$}"),
            '%' => format!("{:.precision$}%", size * 100.0),
            'e' | 'E' => exponential(size, precision),
            'g' | 'G' | 'n' => general(size, precision, self.alternate),
            ' ' if self.precision.is_none() => python::float(size),
            ' ' => {
                let digits = general(size, precision, false);
                if digits.contains(['.', 'e']) { digits } else { digits + ".0" }
            }
            kind => return Err(error(format!("unknown format code '{kind}' for object of type 'float'"))),
        };
        let digits = if kind.is_ascii_uppercase() { digits.to_uppercase() } else { digits };
        Ok(self.signed(value.is_sign_negative() && !value.is_nan(), "", &digits))
    }

    /// `format(value, spec)`.
    fn value(&self, value: &Value, budget: &Budget) -> Result<String, Error> {
        if value.kind() == ValueKind::String {
            return match self.kind {
                None | Some('s') => Ok(self.text(value.as_str().unwrap_or_default())),
                Some(kind) => Err(error(format!("unknown format code '{kind}' for object of type 'str'"))),
            };
        }
        match Number::of(value) {
            Some(Number::Integer(number)) => self.integer(number),
            Some(Number::Float(number)) => self.float(number),
            None if value.is_undefined() => Ok(self.text(&python::str(value, budget)?)),
            None => Err(error(format!("unsupported format string passed to {}.__format__", type_name(value)))),
        }
    }
}

/// The digits at the beginning.
fn number(rest: &mut &[char]) -> Result<Option<usize>, Error> {
    let count = rest.iter().take_while(|c| c.is_ascii_digit()).count();
    let digits: String = rest[..count].iter().collect();
    *rest = &rest[count..];
    match digits.parse() {
        Ok(number) if number <= WIDEST => Ok(Some(number)),
        _ if digits.is_empty() => Ok(None),
        _ => Err(error("a width in the format is too large")),
    }
}

fn grouped(digits: &str, with: char, every: usize) -> String {
    let whole = digits.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(digits.len());
    let mut out = String::new();
    for (index, digit) in digits[..whole].chars().enumerate() {
        if index > 0 && (whole - index).is_multiple_of(every) {
            out.push(with);
        }
        out.push(digit);
    }
    out + &digits[whole..]
}

/// C's `%e`.
fn exponential(value: f64, precision: usize) -> String {
    let text = format!("{value:.precision$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |digits| ('-', digits));
    format!("{mantissa}e{sign}{digits:0>2}")
}

/// C's `%g`.
fn general(value: f64, precision: usize, alternate: bool) -> String {
    let precision = precision.max(1);
    let text = format!("{value:.*e}", precision - 1);
    let exponent: i64 = text.split_once('e').and_then(|(_, exponent)| exponent.parse().ok()).unwrap_or(0);
    let trim = |text: &str| {
        let text =
            if text.contains('.') && !alternate { text.trim_end_matches('0').trim_end_matches('.') } else { text };
        text.to_owned()
    };
    if (-4..precision as i64).contains(&exponent) {
        let decimals = (precision as i64 - 1 - exponent).max(0) as usize;
        return trim(&format!("{value:.decimals$}"));
    }
    let text = exponential(value, precision - 1);
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "+00"));
    format!("{}e{exponent}", trim(mantissa))
}

/// `ascii(value)`.
fn ascii(value: &Value, budget: &Budget) -> Result<String, Error> {
    let mut out = String::new();
    for c in python::repr(value, budget)?.chars() {
        match u32::from(c) {
            0..0x80 => out.push(c),
            code @ 0x80..0x100 => out.push_str(&format!("\\x{code:02x}")),
            code @ 0x100..0x1_0000 => out.push_str(&format!("\\u{code:04x}")),
            code => out.push_str(&format!("\\U{code:08x}")),
        }
    }
    Ok(out)
}

fn converted(value: &Value, conversion: char, budget: &Budget) -> Result<String, Error> {
    match conversion {
        's' => python::str(value, budget),
        'r' => python::repr(value, budget),
        'a' => ascii(value, budget),
        other => Err(error(format!("unknown conversion specifier '{other}'"))),
    }
}

/// `format % values`: a tuple holds all values, a dict is used for lookups, anything else is the only value.
pub(crate) fn printf(format: &str, values: &Value, budget: &Budget) -> Result<String, Error> {
    let tuple = values.downcast_object_ref::<Tuple>();
    let mut left = match tuple {
        Some(tuple) => tuple.items.iter(),
        None => std::slice::from_ref(values).iter(),
    };
    let too_few = || error("not enough arguments for format string");
    let mut out = String::new();
    let mut used_key = false;
    let mut rest = format;
    while let Some((before, after)) = rest.split_once('%') {
        out.push_str(before);
        budget.check(out.len())?;
        rest = after;
        let mut keyed = None;
        if let Some(after) = rest.strip_prefix('(') {
            let (key, after) = after.split_once(')').ok_or_else(|| error("incomplete format key"))?;
            if values.kind() != ValueKind::Map {
                return Err(error("format requires a mapping"));
            }
            let value = values.get_item(&Value::from(key))?;
            if value.is_undefined() {
                return Err(error(format!("the format's key {key:?} is not there")));
            }
            (keyed, rest, used_key) = (Some(value), after, true);
        }
        let flags = rest.len() - rest.trim_start_matches(['-', '+', ' ', '#', '0']).len();
        let (flags, after) = rest.split_at(flags);
        let mut spec = Spec {
            align: Some(if flags.contains('-') { '<' } else { '>' }),
            sign: ['+', ' '].into_iter().find(|sign| flags.contains(*sign)),
            alternate: flags.contains('#'),
            zero: flags.contains('0') && !flags.contains('-'),
            ..Spec::default()
        };
        let mut characters: &[char] = &after.chars().take(20).collect::<Vec<char>>();
        let before = characters.len();
        let mut size = |characters: &mut &[char]| match characters {
            ['*', tail @ ..] => {
                *characters = tail;
                let size = left.next().ok_or_else(too_few)?;
                match usize::try_from(size.clone()) {
                    Ok(size) if size <= WIDEST => Ok(Some(size)),
                    _ => Err(error("* wants a width")),
                }
            }
            _ => number(characters),
        };
        spec.width = size(&mut characters)?.unwrap_or(0);
        if let ['.', tail @ ..] = characters {
            characters = tail;
            spec.precision = Some(size(&mut characters)?.unwrap_or(0));
        }
        while let ['h' | 'l' | 'L', tail @ ..] = characters {
            characters = tail;
        }
        let kind = *characters.first().ok_or_else(|| error("incomplete format"))?;
        let length: usize = after.chars().take(before - characters.len() + 1).map(char::len_utf8).sum();
        rest = &after[length..];
        if kind == '%' {
            out.push('%');
            continue;
        }
        let value = match keyed {
            Some(value) => value,
            None => left.next().cloned().ok_or_else(too_few)?,
        };
        out.push_str(&spec.printed(kind, &value, budget)?);
    }
    out.push_str(rest);
    budget.check(out.len())?;
    let lookup = used_key || tuple.is_none() && matches!(values.kind(), ValueKind::Map | ValueKind::Seq);
    if left.next().is_some() && !lookup {
        return Err(error("not all arguments converted during string formatting"));
    }
    Ok(out)
}

impl Spec {
    /// One value of a format with `%`.
    fn printed(mut self, kind: char, value: &Value, budget: &Budget) -> Result<String, Error> {
        let numeric = |name: &str| error(format!("%{kind} format: {name} is required, not {}", type_name(value)));
        if self.zero {
            self.align = None;
        }
        match (kind, Number::of(value)) {
            ('s' | 'r' | 'a', _) => {
                let text = converted(value, kind, budget)?;
                (self.zero, self.align) = (false, Some(self.align.unwrap_or('>')));
                Ok(self.text(&text))
            }
            ('c', Some(Number::Integer(_))) | ('d' | 'i' | 'u' | 'o' | 'x' | 'X', Some(_)) => {
                let number = match Number::of(value) {
                    Some(Number::Integer(number)) => number,
                    Some(Number::Float(number)) if matches!(kind, 'd' | 'i' | 'u') && number.is_finite() => {
                        number as i128
                    }
                    _ => return Err(numeric("an integer")),
                };
                self.kind = Some(if matches!(kind, 'i' | 'u') { 'd' } else { kind });
                if let Some(least) = self.precision.take() {
                    let digits = Spec { kind: self.kind, ..Spec::default() }.integer(number.abs())?;
                    return Ok(self.signed(number < 0, "", &format!("{digits:0>least$}")));
                }
                self.integer(number)
            }
            ('c', None) => match value.as_str().filter(|text| text.chars().count() == 1) {
                Some(text) => Ok(self.text(text)),
                None => Err(error("%c requires int or char")),
            },
            ('e' | 'E' | 'f' | 'F' | 'g' | 'G', Some(number)) => {
                self.kind = Some(kind);
                self.float(number.as_float())
            }
            ('d' | 'i' | 'u' | 'o' | 'x' | 'X' | 'e' | 'E' | 'f' | 'F' | 'g' | 'G', None) => Err(numeric("a number")),
            _ => Err(error(format!("unsupported format character '{kind}'"))),
        }
    }
}

/// `format.format(*positional, **named)`.
pub(crate) fn braces(format: &str, positional: &[Value], named: &Kwargs, budget: &Budget) -> Result<String, Error> {
    let mut fields = Fields { positional, named, budget, next: 0, numbered: None };
    let text = fields.fill(format, 0)?;
    named.args().for_each(|name| drop(named.get::<Value>(name)));
    Ok(text)
}

struct Fields<'a> {
    positional: &'a [Value],
    named: &'a Kwargs,
    budget: &'a Budget,
    /// The next argument without a number.
    next: usize,
    numbered: Option<bool>,
}

impl Fields<'_> {
    fn fill(&mut self, format: &str, depth: usize) -> Result<String, Error> {
        let mut out = String::new();
        let mut rest = format;
        while let Some(at) = rest.find(['{', '}']) {
            out.push_str(&rest[..at]);
            self.budget.check(out.len())?;
            let sign = &rest[at..=at];
            rest = &rest[at + 1..];
            if depth == 0 && rest.starts_with(sign) {
                out.push_str(sign);
                rest = &rest[1..];
                continue;
            }
            if sign == "}" {
                return Err(error("single '}' encountered in format string"));
            }
            let end = closing(rest).ok_or_else(|| error("expected '}' before end of string"))?;
            let field = self.field(&rest[..end], depth)?;
            out.push_str(&field);
            rest = &rest[end + 1..];
        }
        out.push_str(rest);
        self.budget.check(out.len())?;
        Ok(out)
    }

    /// `name!conversion:spec`.
    fn field(&mut self, field: &str, depth: usize) -> Result<String, Error> {
        if depth > 1 {
            return Err(error("max string recursion exceeded"));
        }
        let bracket = field.find('[').map_or(0, |open| field[open..].rfind(']').map_or(0, |close| open + close));
        let at = field[bracket..].find(['!', ':']).map_or(field.len(), |at| bracket + at);
        let (name, rest) = field.split_at(at);
        let value = self.argument(name)?;
        let (conversion, spec) = match rest.strip_prefix('!') {
            Some(rest) => {
                let mut characters = rest.chars();
                let conversion =
                    characters.next().ok_or_else(|| error("end of string while looking for conversion"))?;
                match characters.as_str() {
                    "" => (Some(conversion), ""),
                    spec => match spec.strip_prefix(':') {
                        Some(spec) => (Some(conversion), spec),
                        None => return Err(error("expected ':' after conversion specifier")),
                    },
                }
            }
            None => (None, rest.strip_prefix(':').unwrap_or_default()),
        };
        let spec = if spec.contains('{') { self.fill(spec, depth + 1)? } else { spec.to_owned() };
        let value = match conversion {
            Some(conversion) => Value::from(converted(&value, conversion, self.budget)?),
            None => value,
        };
        if spec.is_empty() { python::str(&value, self.budget) } else { Spec::parse(&spec)?.value(&value, self.budget) }
    }

    fn argument(&mut self, name: &str) -> Result<Value, Error> {
        let end = name.find(['.', '[']).unwrap_or(name.len());
        let (first, mut path) = name.split_at(end);
        let mut value = match first.parse::<usize>() {
            Ok(index) => {
                self.number(true)?;
                self.positional.get(index).cloned()
            }
            Err(_) if first.is_empty() => {
                self.number(false)?;
                self.next += 1;
                self.positional.get(self.next - 1).cloned()
            }
            Err(_) if self.named.has(first) => Some(self.named.get(first)?),
            Err(_) => None,
        }
        .ok_or_else(|| error(format!("the format's argument {first:?} is not there")))?;
        while !path.is_empty() {
            if let Some(rest) = path.strip_prefix('.') {
                let end = rest.find(['.', '[']).unwrap_or(rest.len());
                value = value.get_attr(&rest[..end])?;
                path = &rest[end..];
            } else {
                let inner = path.strip_prefix('[').and_then(|rest| rest.split_once(']'));
                let (key, rest) = inner.ok_or_else(|| error("missing ']' in format string"))?;
                let key = key.parse::<usize>().map_or_else(|_| Value::from(key), Value::from);
                value = value.get_item(&key)?;
                path = rest;
            }
            if value.is_undefined() {
                return Err(error(format!("the format's argument {name:?} is not there")));
            }
        }
        Ok(value)
    }

    fn number(&mut self, numbered: bool) -> Result<(), Error> {
        if self.numbered.replace(numbered).is_some_and(|before| before != numbered) {
            return Err(error("cannot mix numbered fields and {} in a format"));
        }
        Ok(())
    }
}

/// Where the bracket that is open before `text` closes.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 0 => return Some(at),
            b'}' => depth -= 1,
            _ => {}
        }
    }
    None
}
