//! Lists that minijinja does not have: Python's slices, and mutable lists.

use crate::sequences::{Range, Tuple};
use minijinja::value::{Enumerator, Object, ObjectRepr, Value, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// `value[start:stop:step]`.
pub(crate) fn slice(value: &Value, arguments: &[Value]) -> Result<Value, Error> {
    let (start, stop, step): (Value, Value, Option<Value>) = from_args(arguments)?;
    let bound = |value: Value| if value.is_none() { Ok(None) } else { i64::try_from(value).map(Some) };
    let (start, stop, step) = (bound(start)?, bound(stop)?, step.map_or(Ok(None), bound)?.unwrap_or(1));
    if step == 0 {
        return Err(Error::new(ErrorKind::InvalidOperation, "slice step cannot be zero"));
    }
    match value.kind() {
        ValueKind::String => {
            let text = value.as_str().unwrap_or_default();
            if text.is_ascii() {
                let bytes = text.as_bytes();
                let cut: Vec<u8> = indices(bytes.len(), start, stop, step).map(|index| bytes[index]).collect();
                return Ok(Value::from(String::from_utf8_lossy(&cut).into_owned()));
            }
            let characters: Vec<char> = text.chars().collect();
            Ok(indices(characters.len(), start, stop, step).map(|index| characters[index]).collect::<String>().into())
        }
        ValueKind::Seq | ValueKind::Iterable => {
            if let Some(range) = value.downcast_object_ref::<Range>() {
                return Ok(range.cut(indices(range.len(), start, stop, step), step));
            }
            let items: Vec<Value> = value.try_iter()?.collect();
            if value.downcast_object_ref::<Tuple>().is_some() {
                let cut = indices(items.len(), start, stop, step).map(|index| items[index].clone());
                return Ok(Tuple::value(cut.collect()));
            }
            Ok(indices(items.len(), start, stop, step).map(|index| items[index].clone()).collect())
        }
        ValueKind::Undefined => Err(Error::from(ErrorKind::UndefinedError)),
        kind => Err(Error::new(ErrorKind::InvalidOperation, format!("a value of type {kind} cannot be sliced"))),
    }
}

/// Python's `range(*slice(start, stop, step).indices(len))`.
fn indices(length: usize, start: Option<i64>, stop: Option<i64>, step: i64) -> impl Iterator<Item = usize> {
    let length = length as i64;
    let (lowest, highest) = if step > 0 { (0, length) } else { (-1, length - 1) };
    let clamp = |bound: i64| (if bound < 0 { bound.saturating_add(length) } else { bound }).clamp(lowest, highest);
    let start = start.map_or(if step > 0 { lowest } else { highest }, clamp);
    let stop = stop.map_or(if step > 0 { highest } else { lowest }, clamp);
    let mut next = start;
    std::iter::from_fn(move || {
        let current = next;
        next = next.saturating_add(step);
        if if step > 0 { current < stop } else { current > stop } { usize::try_from(current).ok() } else { None }
    })
}

/// A list that `append` and `pop` modify.
///
/// Python's sandbox refuses this, but some publishers' templates use it, because other engines allow it.
#[derive(Debug, Default)]
pub(crate) struct MutableList(Mutex<Vec<Value>>);

impl MutableList {
    pub(crate) fn copy_of(value: &Value) -> Result<Value, Error> {
        Ok(Value::from_object(MutableList(Mutex::new(value.try_iter()?.collect()))))
    }

    fn items(&self) -> MutexGuard<'_, Vec<Value>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Object for MutableList {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.items().get(key.as_usize()?).cloned()
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.items().clone())
    }

    fn call_method(self: &Arc<Self>, _: &State, method: &str, arguments: &[Value]) -> Result<Value, Error> {
        match method {
            "append" => {
                let (item,): (Value,) = from_args(arguments)?;
                if item.as_object().is_some() {
                    let message = "append: only text and numbers can be appended";
                    return Err(Error::new(ErrorKind::InvalidOperation, message));
                }
                self.items().push(item);
                Ok(Value::from(()))
            }
            "pop" => {
                let (index,): (Option<i64>,) = from_args(arguments)?;
                let index = index.unwrap_or(-1);
                let mut items = self.items();
                let index = if index < 0 { index.saturating_add(items.len() as i64) } else { index };
                match usize::try_from(index).ok().filter(|index| *index < items.len()) {
                    Some(index) => Ok(items.remove(index)),
                    None => Err(Error::new(ErrorKind::InvalidOperation, "pop: there is no such item")),
                }
            }
            _ => Err(Error::from(ErrorKind::UnknownMethod)),
        }
    }
}
