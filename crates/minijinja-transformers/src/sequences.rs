//! Python's sequences other than lists: tuples, ranges, a dict's views, generators, cyclers.
//!
//! In minijinja all of them are lists. They differ in how they are printed and in their truth value, and both affect
//! the prompt.

use crate::operators::{Number, type_name};
use minijinja::value::{Enumerator, Object, ObjectRepr, Value, from_args};
use minijinja::{Error, ErrorKind, State};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A tuple; its items may have names, as those of `groupby` do.
#[derive(Debug)]
pub(crate) struct Tuple {
    pub items: Vec<Value>,
    names: &'static [&'static str],
}

impl Tuple {
    pub(crate) fn value(items: Vec<Value>) -> Value {
        Value::from_object(Tuple { items, names: &[] })
    }

    /// One group of `groupby`.
    pub(crate) fn group(grouper: Value, list: Vec<Value>) -> Value {
        Value::from_object(Tuple { items: vec![grouper, Value::from(list)], names: &["grouper", "list"] })
    }

    /// The tuple of a literal's items.
    pub(crate) fn of(items: &Value) -> Result<Value, Error> {
        Ok(Tuple::value(items.try_iter()?.collect()))
    }
}

impl Object for Tuple {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let index = match key.as_str() {
            Some(name) => self.names.iter().position(|known| *known == name)?,
            None => key.as_usize()?,
        };
        self.items.get(index).cloned()
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(self.items.len())
    }
}

/// `range(start, stop, step)`.
#[derive(Debug)]
pub(crate) struct Range {
    pub start: i64,
    pub stop: i64,
    pub step: i64,
}

/// Maximum length of a range in Jinja2's sandbox.
const RANGE: usize = 100_000;

impl Range {
    pub(crate) fn value(arguments: &[Value]) -> Result<Value, Error> {
        let number = |value: &Value| match Number::of(value) {
            Some(Number::Integer(number)) => i64::try_from(number).map_err(|_| too_long()),
            _ => Err(invalid(format!("'{}' object cannot be interpreted as an integer", type_name(value)))),
        };
        let (start, stop, step) = match arguments {
            [stop] => (0, number(stop)?, 1),
            [start, stop] => (number(start)?, number(stop)?, 1),
            [start, stop, step] => (number(start)?, number(stop)?, number(step)?),
            _ => return Err(invalid("range takes one to three numbers")),
        };
        if step == 0 {
            return Err(invalid("range() arg 3 must not be zero"));
        }
        let range = Range { start, stop, step };
        if range.len() > RANGE {
            return Err(too_long());
        }
        Ok(Value::from_object(range))
    }

    pub(crate) fn len(&self) -> usize {
        let (start, stop, step) = (i128::from(self.start), i128::from(self.stop), i128::from(self.step));
        let count = if step > 0 { (stop - start + step - 1) / step } else { (start - stop - step - 1) / -step };
        usize::try_from(count.max(0)).unwrap_or(usize::MAX)
    }

    fn at(&self, index: usize) -> i64 {
        self.start.saturating_add((index as i64).saturating_mul(self.step))
    }

    /// The subrange for `indices`, which are `step` apart.
    pub(crate) fn cut(&self, mut indices: impl Iterator<Item = usize>, step: i64) -> Value {
        let first = indices.next();
        let count = indices.count() as i64 + i64::from(first.is_some());
        let start = self.at(first.unwrap_or(0));
        let step = self.step.saturating_mul(step);
        Value::from_object(Range { start, stop: start.saturating_add(count.saturating_mul(step)), step })
    }
}

impl Object for Range {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        key.as_usize().filter(|index| *index < self.len()).map(|index| Value::from(self.at(index)))
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(self.len())
    }
}

/// The result of a dict's `keys`, `values` and `items`.
#[derive(Debug)]
pub(crate) struct View {
    /// Its name in Python.
    pub name: &'static str,
    items: Vec<Value>,
}

impl View {
    pub(crate) fn value(dict: &Value, method: &str) -> Result<Value, Error> {
        let (name, items) = match method {
            "keys" => ("dict_keys", dict.try_iter()?.collect()),
            "values" => ("dict_values", dict.try_iter()?.map(|key| dict.get_item(&key)).collect::<Result<_, Error>>()?),
            _ => ("dict_items", pairs(dict)?),
        };
        Ok(Value::from_object(View { name, items }))
    }
}

/// The pairs of a dict, as tuples.
pub(crate) fn pairs(dict: &Value) -> Result<Vec<Value>, Error> {
    dict.try_iter()?.map(|key| Ok(Tuple::value(vec![key.clone(), dict.get_item(&key)?]))).collect()
}

impl Object for View {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Iterable
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.items.clone())
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.items.len())
    }
}

/// The result of filters that are lazy in Python. It is true even if it is empty.
#[derive(Debug)]
pub(crate) struct Generator(Vec<Value>);

impl Generator {
    pub(crate) fn value(items: Vec<Value>) -> Value {
        Value::from_object(Generator(items))
    }
}

impl Object for Generator {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Iterable
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.0.clone())
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.0.len())
    }

    fn is_true(self: &Arc<Self>) -> bool {
        true
    }
}

/// The result of `cycler`: its items in turn.
#[derive(Debug)]
pub(crate) struct Cycler {
    items: Vec<Value>,
    at: AtomicUsize,
}

impl Cycler {
    pub(crate) fn value(items: Vec<Value>) -> Result<Value, Error> {
        if items.is_empty() {
            return Err(invalid("cycler requires at least one item"));
        }
        Ok(Value::from_object(Cycler { items, at: AtomicUsize::new(0) }))
    }

    fn current(&self) -> Value {
        self.items[self.at.load(Ordering::Relaxed) % self.items.len()].clone()
    }
}

impl Object for Cycler {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        (key.as_str() == Some("current")).then(|| self.current())
    }

    fn call_method(self: &Arc<Self>, _: &State, method: &str, arguments: &[Value]) -> Result<Value, Error> {
        from_args::<()>(arguments)?;
        match method {
            "next" => {
                let current = self.current();
                self.at.fetch_add(1, Ordering::Relaxed);
                Ok(current)
            }
            "reset" => {
                self.at.store(0, Ordering::Relaxed);
                Ok(Value::from(()))
            }
            _ => Err(Error::from(ErrorKind::UnknownMethod)),
        }
    }
}

fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

fn too_long() -> Error {
    invalid(format!("a range may have {RANGE} numbers at most"))
}
