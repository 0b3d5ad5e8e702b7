//! Filters on lists, dicts and numbers, as in Jinja2.

use crate::budget::{scope, timely};
use crate::methods::Arguments;
use crate::operators::{Number, add, order, type_name};
use crate::sequences::{Generator, Tuple, pairs};
use minijinja::value::{Kwargs, Rest, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, filters};
use std::borrow::Cow;
use std::cmp::Ordering;

pub(crate) fn register(env: &mut Environment<'_>) {
    env.add_filter("items", items);
    env.add_filter("dictsort", dictsort);
    env.add_filter("groupby", groupby);
    env.add_filter("sort", sort);
    env.add_filter("min", |value: Value, arguments: Rest<Value>| extreme(value, arguments, Ordering::Less));
    env.add_filter("max", |value: Value, arguments: Rest<Value>| extreme(value, arguments, Ordering::Greater));
    env.add_filter("sum", sum);
    env.add_filter("round", round);
    env.add_filter("attr", attr);
    env.add_filter("first", first);
    env.add_filter("default", default);
    env.add_filter("d", default);
    env.add_filter("reverse", reverse);
    // Python creates these items lazily.
    env.add_filter("map", |state: &State, value: Value, rest: Rest<Value>| {
        lazy(filters::map(state, timely(state, value)?, rest)?)
    });
    env.add_filter("unique", |state: &State, value: Value, kwargs: Kwargs| {
        lazy(filters::unique(state, timely(state, value)?, kwargs)?.try_iter()?)
    });
    env.add_filter("select", |state: &State, value: Value, test: Option<Cow<'_, str>>, rest: Rest<Value>| {
        lazy(filters::select(state, timely(state, value)?, test, rest)?)
    });
    env.add_filter("reject", |state: &State, value: Value, test: Option<Cow<'_, str>>, rest: Rest<Value>| {
        lazy(filters::reject(state, timely(state, value)?, test, rest)?)
    });
    env.add_filter(
        "selectattr",
        |state: &State, value: Value, name: Cow<'_, str>, test: Option<Cow<'_, str>>, rest: Rest<Value>| {
            lazy(filters::selectattr(state, timely(state, value)?, name, test, rest)?)
        },
    );
    env.add_filter(
        "rejectattr",
        |state: &State, value: Value, name: Cow<'_, str>, test: Option<Cow<'_, str>>, rest: Rest<Value>| {
            lazy(filters::rejectattr(state, timely(state, value)?, name, test, rest)?)
        },
    );
}

fn lazy(items: impl IntoIterator<Item = Value>) -> Result<Value, Error> {
    Ok(Generator::value(items.into_iter().collect()))
}

fn invalid(message: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

fn items(value: &Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::Undefined => lazy([]),
        ValueKind::Map => lazy(pairs(value)?),
        _ => Err(invalid("can only get item pairs from a mapping")),
    }
}

/// The comparison key of a value: text in lower case, unless `case_sensitive`.
fn key(value: &Value, case_sensitive: bool) -> Value {
    match value.as_str() {
        Some(text) if !case_sensitive => Value::from(text.to_lowercase()),
        _ => value.clone(),
    }
}

/// The value under a path such as `function.name`.
pub(crate) fn path(value: &Value, path: &str) -> Result<Value, Error> {
    path.split('.').try_fold(value.clone(), |value, part| {
        part.parse::<usize>().map_or_else(|_| value.get_item(&Value::from(part)), |index| value.get_item(&index.into()))
    })
}

/// Sorts by keys; incomparable keys are an error.
fn sort_by<T>(items: &mut [(Vec<Value>, T)], reverse: bool) -> Result<(), Error> {
    let mut failed = None;
    items.sort_by(|(a, _), (b, _)| {
        let order = a.iter().zip(b).find_map(|(a, b)| match order(a, b, "<") {
            Ok(Some(Ordering::Equal) | None) => None,
            Ok(order) => order,
            Err(error) => {
                failed.get_or_insert(error);
                None
            }
        });
        let order = order.unwrap_or(Ordering::Equal);
        if reverse { order.reverse() } else { order }
    });
    failed.map_or(Ok(()), Err)
}

fn sort(value: Value, arguments: Rest<Value>) -> Result<Value, Error> {
    let mut arguments = Arguments::new(&arguments)?;
    let reverse = arguments.flag("reverse")?;
    let case_sensitive = arguments.flag("case_sensitive")?;
    let attribute = arguments.text("attribute")?;
    arguments.end()?;
    let mut keyed = Vec::new();
    for item in iterated(&value)? {
        let keys = match &attribute {
            Some(attribute) => attribute
                .split(',')
                .map(|part| Ok(key(&path(&item, part)?, case_sensitive)))
                .collect::<Result<_, Error>>()?,
            None => vec![key(&item, case_sensitive)],
        };
        keyed.push((keys, item));
    }
    sort_by(&mut keyed, reverse)?;
    Ok(keyed.into_iter().map(|(_, item)| item).collect())
}

fn iterated(value: &Value) -> Result<Vec<Value>, Error> {
    match value.kind() {
        ValueKind::None => Err(invalid("'NoneType' object is not iterable")),
        _ => Ok(value.try_iter()?.collect()),
    }
}

fn dictsort(value: &Value, arguments: Rest<Value>) -> Result<Value, Error> {
    let mut arguments = Arguments::new(&arguments)?;
    let case_sensitive = arguments.flag("case_sensitive")?;
    let by = arguments.text("by")?.unwrap_or_else(|| "key".to_owned());
    let reverse = arguments.flag("reverse")?;
    arguments.end()?;
    let index = match by.as_str() {
        "key" => 0,
        "value" => 1,
        _ => return Err(invalid("you can only sort by either \"key\" or \"value\"")),
    };
    if value.kind() != ValueKind::Map {
        return Err(invalid("dictsort requires a mapping"));
    }
    let mut keyed = Vec::new();
    for pair in pairs(value)? {
        keyed.push((vec![key(&pair.get_item_by_index(index)?, case_sensitive)], pair));
    }
    sort_by(&mut keyed, reverse)?;
    Ok(keyed.into_iter().map(|(_, item)| item).collect())
}

fn groupby(value: Value, arguments: Rest<Value>) -> Result<Value, Error> {
    let mut arguments = Arguments::new(&arguments)?;
    let attribute = arguments.text("attribute")?.ok_or_else(|| invalid("groupby requires an attribute"))?;
    let default = arguments.take("default")?;
    let case_sensitive = arguments.flag("case_sensitive")?;
    arguments.end()?;
    let mut keyed = Vec::new();
    for item in iterated(&value)? {
        let mut found = path(&item, &attribute)?;
        if found.is_undefined() {
            found = default.clone().ok_or_else(|| {
                Error::new(ErrorKind::UndefinedError, format!("an item has no attribute {attribute:?}"))
            })?;
        }
        keyed.push((vec![key(&found, case_sensitive)], (found, item)));
    }
    sort_by(&mut keyed, false)?;
    let mut groups: Vec<(Value, Value, Vec<Value>)> = Vec::new();
    for (keys, (found, item)) in keyed {
        match groups.last_mut() {
            Some((key, _, list)) if *key == keys[0] => list.push(item),
            _ => groups.push((keys[0].clone(), found, vec![item])),
        }
    }
    Ok(groups.into_iter().map(|(_, grouper, list)| Tuple::group(grouper, list)).collect())
}

/// The minimum or the maximum.
fn extreme(value: Value, arguments: Rest<Value>, wanted: Ordering) -> Result<Value, Error> {
    let mut arguments = Arguments::new(&arguments)?;
    let case_sensitive = arguments.flag("case_sensitive")?;
    let attribute = arguments.text("attribute")?;
    arguments.end()?;
    let mut best: Option<(Value, Value)> = None;
    for item in iterated(&value)? {
        let of = attribute.as_deref().map_or_else(|| Ok(item.clone()), |attribute| path(&item, attribute))?;
        let key = key(&of, case_sensitive);
        let better = match &best {
            Some((before, _)) => order(&key, before, "<")? == Some(wanted),
            None => true,
        };
        if better {
            best = Some((key, item));
        }
    }
    Ok(best.map_or(Value::UNDEFINED, |(_, item)| item))
}

fn sum(state: &State, value: Value, arguments: Rest<Value>) -> Result<Value, Error> {
    let mut arguments = Arguments::new(&arguments)?;
    let attribute = arguments.text("attribute")?;
    let start = arguments.take("start")?.unwrap_or_else(|| Value::from(0));
    arguments.end()?;
    if start.as_str().is_some() {
        return Err(invalid("sum() can't sum strings"));
    }
    let budget = &scope(state)?.budget;
    iterated(&value)?.into_iter().try_fold(start, |total, item| {
        let item = attribute.as_deref().map_or_else(|| Ok(item.clone()), |attribute| path(&item, attribute))?;
        add(&total, &item, budget)
    })
}

fn round(value: Value, arguments: Rest<Value>) -> Result<Value, Error> {
    let mut arguments = Arguments::new(&arguments)?;
    let precision = arguments.take("precision")?.map_or(Ok(0), i32::try_from)?.clamp(-300, 300);
    let method = arguments.text("method")?.unwrap_or_else(|| "common".to_owned());
    arguments.end()?;
    let number = Number::of(&value)
        .ok_or_else(|| invalid(format!("type {} doesn't define __round__ method", type_name(&value))))?;
    let scale = 10f64.powi(precision);
    match (method.as_str(), number) {
        ("common", Number::Integer(whole)) if precision >= 0 => Ok(Value::from(whole)),
        ("common", Number::Integer(whole)) => {
            let unit = 10i128.checked_pow(precision.unsigned_abs()).unwrap_or(i128::MAX);
            let (down, rest) = (whole.div_euclid(unit), whole.rem_euclid(unit));
            let up = match rest.cmp(&(unit - rest)) {
                Ordering::Less => 0,
                Ordering::Equal => down.rem_euclid(2),
                Ordering::Greater => 1,
            };
            Ok(Value::from((down + up).checked_mul(unit).unwrap_or(0)))
        }
        // Rounds the exact decimal digits, half to even.
        ("common", Number::Float(number)) if precision >= 0 && number.is_finite() => {
            let text = format!("{number:.*}", precision.unsigned_abs() as usize);
            Ok(Value::from(text.parse::<f64>().unwrap_or(number)))
        }
        ("common", Number::Float(number)) => Ok(Value::from((number * scale).round_ties_even() / scale)),
        ("ceil", number) => Ok(Value::from((number.as_float() * scale).ceil() / scale)),
        ("floor", number) => Ok(Value::from((number.as_float() * scale).floor() / scale)),
        _ => Err(invalid("method must be common, ceil or floor")),
    }
}

/// An attribute; the keys of a dict are not attributes.
fn attr(value: &Value, name: &str) -> Result<Value, Error> {
    let object = value.as_object().map_or("", |object| object.type_name());
    let has_attributes = ["Namespace", "Loop", "Tuple"].iter().any(|name| object.ends_with(name));
    if has_attributes { value.get_attr(name) } else { Ok(Value::UNDEFINED) }
}

fn first(value: &Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::Undefined => Ok(Value::UNDEFINED),
        ValueKind::None => Err(invalid("'NoneType' object is not iterable")),
        _ => Ok(value.try_iter()?.next().unwrap_or(Value::UNDEFINED)),
    }
}

fn default(value: Value, arguments: Rest<Value>) -> Result<Value, Error> {
    let mut arguments = Arguments::new(&arguments)?;
    let default = arguments.take("default_value")?.unwrap_or_else(|| Value::from(""));
    let falsy = arguments.flag("boolean")?;
    arguments.end()?;
    Ok(if value.is_undefined() || falsy && !value.is_true() { default } else { value })
}

fn reverse(state: &State, value: Value) -> Result<Value, Error> {
    if let Some(text) = value.as_str() {
        return Ok(Value::from(text.chars().rev().collect::<String>()));
    }
    if value.kind() == ValueKind::Undefined {
        return lazy([]);
    }
    let mut items = iterated(&value).map_err(|_| invalid("argument must be iterable"))?;
    scope(state)?.budget.check(items.len() * size_of::<Value>())?;
    items.reverse();
    lazy(items)
}
