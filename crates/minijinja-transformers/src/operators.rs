//! Python's operators.
//!
//! minijinja's own cannot be replaced, and differ: they lack `"%d" % 5`, compare any types, divide by zero, and round
//! differently for negative numbers. [`desugar`](crate::desugar) therefore writes calls of the functions here, which
//! also count growing values in the budget.

use crate::budget::{Budget, scope};
use crate::format;
use crate::python;
use crate::sequences::{Range, Tuple};
use minijinja::value::{Rest, Value, ValueKind};
use minijinja::{Error, ErrorKind, State};
use std::borrow::Cow;
use std::cmp::Ordering;

/// Bytes of text that cost as much to copy as an item of a list.
pub(crate) const ITEM: usize = 128;

/// A Python number; `bool` is an `int`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Number {
    Integer(i128),
    Float(f64),
}

impl Number {
    pub(crate) fn of(value: &Value) -> Option<Number> {
        match value.kind() {
            ValueKind::Bool => Some(Number::Integer(i128::from(value.is_true()))),
            ValueKind::Number if value.is_integer() => i128::try_from(value.clone()).ok().map(Number::Integer),
            ValueKind::Number => f64::try_from(value.clone()).ok().map(Number::Float),
            _ => None,
        }
    }

    pub(crate) fn as_float(self) -> f64 {
        match self {
            Number::Integer(number) => number as f64,
            Number::Float(number) => number,
        }
    }
}

/// Python's name for the type of a value.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value.kind() {
        ValueKind::Undefined => "Undefined",
        ValueKind::None => "NoneType",
        ValueKind::Bool => "bool",
        ValueKind::Number if value.is_integer() => "int",
        ValueKind::Number => "float",
        ValueKind::String => "str",
        ValueKind::Bytes => "bytes",
        ValueKind::Map => "dict",
        _ if value.downcast_object_ref::<Tuple>().is_some() => "tuple",
        _ if value.downcast_object_ref::<Range>().is_some() => "range",
        ValueKind::Seq => "list",
        ValueKind::Iterable => "generator",
        _ => "object",
    }
}

fn invalid(message: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

fn unsupported(operator: &str, left: &Value, right: &Value) -> Error {
    if left.is_undefined() || right.is_undefined() {
        return Error::new(ErrorKind::UndefinedError, format!("something undefined is an operand of {operator}"));
    }
    let (left, right) = (type_name(left), type_name(right));
    invalid(format!("unsupported operand types for {operator}: {left} and {right}"))
}

fn overflow(operator: &str) -> Error {
    invalid(format!("the result of {operator} is too large a number"))
}

fn zero() -> Error {
    invalid("division by zero")
}

/// The operands and operators of `a + b - c`, from left to right.
fn fold(
    operands: &[Value],
    mut apply: impl FnMut(Value, &str, &Value) -> Result<Value, Error>,
) -> Result<Value, Error> {
    let Some((first, rest)) = operands.split_first() else { return Ok(Value::UNDEFINED) };
    rest.chunks_exact(2)
        .try_fold(first.clone(), |left, step| apply(left, step[0].as_str().unwrap_or_default(), &step[1]))
}

/// `a + b - c`.
pub(crate) fn sum(state: &State, operands: Rest<Value>) -> Result<Value, Error> {
    let budget = &scope(state)?.budget;
    if let Some(text) = texts(&operands, budget)? {
        return Ok(text);
    }
    fold(&operands, |left, operator, right| match operator {
        "+" => add(&left, right, budget),
        _ => subtract(&left, right),
    })
}

/// A sum of texts only, in one pass.
fn texts(operands: &[Value], budget: &Budget) -> Result<Option<Value>, Error> {
    let plain = |value: &Value| value.as_str().filter(|_| !value.is_safe()).map(str::len);
    let mut length = 0usize;
    for (index, operand) in operands.iter().enumerate() {
        match plain(operand) {
            Some(_) if index % 2 == 1 && operand.as_str() != Some("+") => return Ok(None),
            Some(size) if index % 2 == 0 => length = length.saturating_add(size),
            Some(_) => {}
            None => return Ok(None),
        }
    }
    budget.check(length)?;
    budget.copy(length)?;
    Ok(Some(operands.iter().step_by(2).filter_map(Value::as_str).collect::<String>().into()))
}

pub(crate) fn add(left: &Value, right: &Value, budget: &Budget) -> Result<Value, Error> {
    if let (Some(a), Some(b)) = (left.as_str(), right.as_str()) {
        budget.check(a.len().saturating_add(b.len()))?;
        budget.copy(a.len() + b.len())?;
        // Escaped text stays escaped, and the other operand is escaped.
        return Ok(match (left.is_safe(), right.is_safe()) {
            (false, false) => Value::from([a, b].concat()),
            (true, true) => Value::from_safe_string([a, b].concat()),
            (true, false) => Value::from_safe_string(a.to_owned() + &escaped(b)),
            (false, true) => Value::from_safe_string(escaped(a) + b),
        });
    }
    if let (Some(a), Some(b)) = (Number::of(left), Number::of(right)) {
        return number("+", a, b, i128::checked_add, |a, b| a + b);
    }
    let (a, b) = (type_name(left), type_name(right));
    if a != b || !matches!(a, "list" | "tuple") {
        return Err(unsupported("+", left, right));
    }
    let length = left.len().unwrap_or(0).saturating_add(right.len().unwrap_or(0));
    budget.check(length.saturating_mul(size_of::<Value>()))?;
    budget.copy(length * ITEM)?;
    budget.weigh_sum(left, right)?;
    let items = left.try_iter()?.chain(right.try_iter()?).collect();
    Ok(if a == "tuple" { Tuple::value(items) } else { Value::from(items) })
}

fn subtract(left: &Value, right: &Value) -> Result<Value, Error> {
    match (Number::of(left), Number::of(right)) {
        (Some(a), Some(b)) => number("-", a, b, i128::checked_sub, |a, b| a - b),
        _ => Err(unsupported("-", left, right)),
    }
}

fn number(
    operator: &str,
    a: Number,
    b: Number,
    integers: impl FnOnce(i128, i128) -> Option<i128>,
    floats: impl FnOnce(f64, f64) -> f64,
) -> Result<Value, Error> {
    match (a, b) {
        (Number::Integer(a), Number::Integer(b)) => integers(a, b).map(Value::from).ok_or_else(|| overflow(operator)),
        (a, b) => Ok(Value::from(floats(a.as_float(), b.as_float()))),
    }
}

/// `a * b / c // d % e`.
pub(crate) fn product(state: &State, operands: Rest<Value>) -> Result<Value, Error> {
    let budget = &scope(state)?.budget;
    fold(&operands, |left, operator, right| match (operator, left.as_str()) {
        ("%", Some(text)) => {
            let text = format::printf(text, right, budget)?;
            budget.copy(text.len())?;
            Ok(Value::from(text))
        }
        ("*", _) if Number::of(&left).is_none() => repeat(&left, right, budget),
        ("*", _) if Number::of(right).is_none() => repeat(right, &left, budget),
        _ => divide(&left, operator, right),
    })
}

/// Repeats text or a list.
fn repeat(value: &Value, count: &Value, budget: &Budget) -> Result<Value, Error> {
    let name = type_name(value);
    let Some(Number::Integer(count)) = Number::of(count).filter(|_| matches!(name, "str" | "list" | "tuple")) else {
        return Err(unsupported("*", value, count));
    };
    let count = usize::try_from(count.max(0)).unwrap_or(usize::MAX);
    let unit = value.as_str().map_or(value.len().unwrap_or(0) * size_of::<Value>(), str::len);
    budget.check(unit.saturating_mul(count))?;
    budget.copy(if name == "str" { unit * count } else { unit / size_of::<Value>() * count * ITEM })?;
    if let Some(text) = value.as_str() {
        return Ok(Value::from(text.repeat(if unit == 0 { 0 } else { count })));
    }
    budget.weigh_product(value, count)?;
    let once: Vec<Value> = value.try_iter()?.collect();
    let times = if unit == 0 { 0 } else { count };
    let items: Vec<Value> = std::iter::repeat_n(once, times).flatten().collect();
    Ok(if name == "tuple" { Tuple::value(items) } else { Value::from(items) })
}

fn divide(left: &Value, operator: &str, right: &Value) -> Result<Value, Error> {
    let (Some(a), Some(b)) = (Number::of(left), Number::of(right)) else {
        return Err(unsupported(operator, left, right));
    };
    if operator != "*" && b.as_float() == 0.0 {
        return Err(zero());
    }
    match (operator, a, b) {
        ("*", ..) => number(operator, a, b, i128::checked_mul, |a, b| a * b),
        ("/", ..) => Ok(Value::from(a.as_float() / b.as_float())),
        ("//", ..) => number(operator, a, b, floor, |a, b| ((a - modulo(a, b)) / b).round()),
        _ => number(operator, a, b, |a, b| floor(a, b).map(|quotient| a - quotient * b), modulo),
    }
}

/// The quotient, rounded down as in Python.
fn floor(a: i128, b: i128) -> Option<i128> {
    let quotient = a.checked_div(b)?;
    Some(if a % b != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient })
}

/// The remainder with the divisor's sign, as in Python.
fn modulo(a: f64, b: f64) -> f64 {
    let rest = a % b;
    if rest != 0.0 && (rest < 0.0) != (b < 0.0) {
        rest + b
    } else if rest == 0.0 {
        0f64.copysign(b)
    } else {
        rest
    }
}

/// `a ** b ** c`, which Jinja2 evaluates from left to right.
pub(crate) fn power(operands: Rest<Value>) -> Result<Value, Error> {
    fold(&operands, |left, _, right| {
        let (Some(a), Some(b)) = (Number::of(&left), Number::of(right)) else {
            return Err(unsupported("**", &left, right));
        };
        match (a, b) {
            (Number::Integer(a), Number::Integer(b)) if b >= 0 => {
                let power = u32::try_from(b).ok().and_then(|b| a.checked_pow(b));
                power.map(Value::from).ok_or_else(|| overflow("**"))
            }
            (a, b) if a.as_float() == 0.0 && b.as_float() < 0.0 => Err(zero()),
            (a, b) => {
                let power = a.as_float().powf(b.as_float());
                if power.is_nan() { Err(invalid("a root of a negative number")) } else { Ok(Value::from(power)) }
            }
        }
    })
}

/// `a ~ b`, as text.
pub(crate) fn concatenate(state: &State, operands: Rest<Value>) -> Result<Value, Error> {
    let budget = &scope(state)?.budget;
    let mut out = String::new();
    for operand in operands.iter() {
        python::write_str(&mut out, operand, budget)?;
        budget.check(out.len())?;
    }
    budget.copy(out.len())?;
    Ok(Value::from(out))
}

/// `a < b <= c`: every pair of neighbours must compare true.
pub(crate) fn compare(state: &State, operands: Rest<Value>) -> Result<bool, Error> {
    scope(state)?;
    for step in operands.windows(3).step_by(2) {
        let (left, operator, right) = (&step[0], step[1].as_str().unwrap_or_default(), &step[2]);
        let fits = match operator {
            "==" => left == right,
            "!=" => left != right,
            _ => {
                let order = order(left, right, operator)?;
                match operator {
                    "<" => order == Some(Ordering::Less),
                    "<=" => matches!(order, Some(Ordering::Less | Ordering::Equal)),
                    ">" => order == Some(Ordering::Greater),
                    _ => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
                }
            }
        };
        if !fits {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The order of two values; `None` if one is NaN.
pub(crate) fn order(left: &Value, right: &Value, operator: &str) -> Result<Option<Ordering>, Error> {
    if let (Some(a), Some(b)) = (left.as_str(), right.as_str()) {
        return Ok(Some(a.cmp(b)));
    }
    match (Number::of(left), Number::of(right)) {
        (Some(Number::Integer(a)), Some(Number::Integer(b))) => return Ok(Some(a.cmp(&b))),
        (Some(a), Some(b)) => return Ok(a.as_float().partial_cmp(&b.as_float())),
        _ => {}
    }
    let name = type_name(left);
    if name != type_name(right) || !matches!(name, "list" | "tuple") {
        return Err(unsupported(operator, left, right));
    }
    let (mut left, mut right) = (left.try_iter()?, right.try_iter()?);
    loop {
        match (left.next(), right.next()) {
            (Some(a), Some(b)) if a == b => {}
            (Some(a), Some(b)) => return order(&a, &b, operator),
            (a, b) => return Ok(Some(a.is_some().cmp(&b.is_some()))),
        }
    }
}

/// HTML's special characters, as markupsafe writes them.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\'' => out.push_str("&#39;"),
            '"' => out.push_str("&#34;"),
            c => out.push(c),
        }
    }
    out
}
