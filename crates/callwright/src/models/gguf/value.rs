//! The values in a GGUF's metadata.

use std::fmt;

/// The type of a value; the numbers are the file's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs)]
pub(crate) enum ValueType {
    U8 = 0,
    I8 = 1,
    U16 = 2,
    I16 = 3,
    U32 = 4,
    I32 = 5,
    F32 = 6,
    Bool = 7,
    String = 8,
    Array = 9,
    U64 = 10,
    I64 = 11,
    F64 = 12,
}

impl ValueType {
    pub(super) fn of(id: u32) -> Option<ValueType> {
        use ValueType::*;
        [U8, I8, U16, I16, U32, I32, F32, Bool, String, Array, U64, I64, F64].get(id as usize).copied()
    }

    /// Size of a number of this type in bytes; 0 for types with a length field.
    pub(super) fn size(self) -> u64 {
        use ValueType::*;
        match self {
            U8 | I8 | Bool => 1,
            U16 | I16 => 2,
            U32 | I32 | F32 => 4,
            U64 | I64 | F64 => 8,
            String | Array => 0,
        }
    }
}

/// A value of the metadata.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub(crate) enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(String),
    Array(Array),
    U64(u64),
    I64(i64),
    F64(f64),
}

impl Value {
    /// `bytes` has `kind.size()` bytes.
    pub(super) fn number(kind: ValueType, bytes: &[u8]) -> Value {
        let mut wide = [0; 8];
        wide[..bytes.len()].copy_from_slice(bytes);
        let n = u64::from_le_bytes(wide);
        match kind {
            ValueType::U8 => Value::U8(n as u8),
            ValueType::I8 => Value::I8(n as i8),
            ValueType::U16 => Value::U16(n as u16),
            ValueType::I16 => Value::I16(n as i16),
            ValueType::U32 => Value::U32(n as u32),
            ValueType::I32 => Value::I32(n as i32),
            ValueType::F32 => Value::F32(f32::from_bits(n as u32)),
            ValueType::Bool => Value::Bool(n != 0),
            ValueType::I64 => Value::I64(n as i64),
            ValueType::F64 => Value::F64(f64::from_bits(n)),
            ValueType::U64 | ValueType::String | ValueType::Array => Value::U64(n),
        }
    }

    /// The value as a non-negative integer.
    pub(crate) fn as_u64(&self) -> Option<u64> {
        match *self {
            Value::U8(n) => Some(n.into()),
            Value::U16(n) => Some(n.into()),
            Value::U32(n) => Some(n.into()),
            Value::U64(n) => Some(n),
            Value::I8(n) => n.try_into().ok(),
            Value::I16(n) => n.try_into().ok(),
            Value::I32(n) => n.try_into().ok(),
            Value::I64(n) => n.try_into().ok(),
            _ => None,
        }
    }

    /// The value as text.
    pub(crate) fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// The value as an array.
    pub(crate) fn as_array(&self) -> Option<&Array> {
        match self {
            Value::Array(array) => Some(array),
            _ => None,
        }
    }
}

/// An array in the metadata; numbers are decoded on access.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Array {
    /// Strings.
    Strings(Strings),
    /// Numbers of a type, little-endian.
    Numbers(ValueType, Vec<u8>),
}

impl Array {
    /// The number of elements.
    pub(crate) fn len(&self) -> usize {
        match self {
            Array::Strings(strings) => strings.len(),
            Array::Numbers(kind, bytes) => bytes.len() / (kind.size().max(1) as usize),
        }
    }

    /// The strings of an array of strings.
    pub(crate) fn strings(&self) -> Option<&Strings> {
        match self {
            Array::Strings(strings) => Some(strings),
            Array::Numbers(..) => None,
        }
    }

    /// The numbers of an array of numbers.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = Value> + '_ {
        let (kind, bytes): (_, &[u8]) = match self {
            Array::Numbers(kind, bytes) => (*kind, bytes),
            Array::Strings(_) => (ValueType::U8, &[]),
        };
        bytes.chunks_exact(kind.size().max(1) as usize).map(move |bytes| Value::number(kind, bytes))
    }
}

/// Many strings in one allocation: a vocabulary has hundreds of thousands. They are bytes, because a token may be part
/// of a character.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Strings {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Strings {
    pub(super) fn with_capacity(count: usize) -> Strings {
        Strings { bytes: Vec::with_capacity(count.saturating_mul(4)), ends: Vec::with_capacity(count) }
    }

    /// Adds a string of this length, to be filled by the caller.
    pub(super) fn push(&mut self, length: usize) -> &mut [u8] {
        let start = self.bytes.len();
        self.bytes.resize(start + length, 0);
        self.ends.push(start + length);
        &mut self.bytes[start..]
    }

    /// The number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether there are no strings.
    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The string at `index`.
    pub(crate) fn get(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)?;
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        Some(&self.bytes[start..end])
    }

    /// All strings in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> + '_ {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.bytes[start..end])
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::U8(n) => n.fmt(f),
            Value::I8(n) => n.fmt(f),
            Value::U16(n) => n.fmt(f),
            Value::I16(n) => n.fmt(f),
            Value::U32(n) => n.fmt(f),
            Value::I32(n) => n.fmt(f),
            Value::F32(n) => n.fmt(f),
            Value::Bool(b) => b.fmt(f),
            Value::String(text) => write!(f, "{text:?}"),
            Value::Array(array) => write!(f, "an array of {} elements", array.len()),
            Value::U64(n) => n.fmt(f),
            Value::I64(n) => n.fmt(f),
            Value::F64(n) => n.fmt(f),
        }
    }
}
