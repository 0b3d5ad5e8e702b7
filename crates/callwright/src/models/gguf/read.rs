//! Reads the header of a GGUF without trusting its numbers.
//!
//! A GGUF is untrusted, and its counts and lengths determine what a reader allocates. Here every length is compared
//! with the remaining bytes of the file before anything is allocated, every loop consumes bytes, and a header is
//! limited to [`MAX_HEADER`].

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use super::tensor::{Tensor, tensor_type};
use super::value::{Array, Strings, Value, ValueType};
use super::{Gguf, looks_like};
use crate::error::{Error, ErrorKind, Result};

/// The largest vocabularies in use take about 20 MB.
const MAX_HEADER: u64 = 256 << 20;
/// The largest models have a few thousand tensors, and fewer metadata entries.
const MAX_ENTRIES: u64 = 1 << 16;
/// ggml's `GGML_MAX_NAME`, with its closing zero.
const MAX_TENSOR_NAME: usize = 64;
/// ggml's `GGML_MAX_DIMS`.
const MAX_DIMS: u32 = 4;
const DEFAULT_ALIGNMENT: u64 = 32;

struct Reader {
    inner: BufReader<File>,
    at: u64,
    file_size: u64,
}

fn damaged(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Gguf, message).hint("the file is damaged: fetch it again, or convert the model again")
}

impl Reader {
    /// Checks that `length` more bytes exist before anything is allocated for them.
    fn claim(&self, length: u64, what: &str) -> Result<()> {
        let left = self.file_size - self.at;
        if length > left {
            let at = self.at;
            let message = format!(
                "the file is cut off or damaged: {what} at byte {at} would take {length} bytes, and {left} are left"
            );
            return Err(
                Error::new(ErrorKind::Gguf, message).hint("fetch the file again: a download was probably interrupted")
            );
        }
        if self.at + length > MAX_HEADER {
            let limit = MAX_HEADER >> 20;
            return Err(damaged(format!("the header is larger than {limit} MiB: {what} at byte {} says so", self.at)));
        }
        Ok(())
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        self.claim(N as u64, what)?;
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<()> {
        self.inner.read_exact(bytes).map_err(|e| Error::new(ErrorKind::Io, format!("cannot read it: {e}")))?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    fn bytes(&mut self, length: u64, what: &str) -> Result<Vec<u8>> {
        self.claim(length, what)?;
        // `claim` bounds the length by MAX_HEADER.
        let mut bytes = vec![0; length as usize];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn u32(&mut self, what: &str) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    fn u64(&mut self, what: &str) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    fn string(&mut self, what: &str) -> Result<Vec<u8>> {
        let length = self.u64(what)?;
        self.bytes(length, what)
    }

    fn value(&mut self, key: &str) -> Result<Value> {
        let what = format!("the value of {key}");
        match self.value_type(key, &what)? {
            ValueType::Array => {
                let element = self.value_type(key, &what)?;
                let count = self.u64(&what)?;
                Ok(Value::Array(self.elements(element, count, key, &what)?))
            }
            ValueType::String => Ok(Value::String(lossy(self.string(&what)?))),
            scalar => {
                let bytes = self.bytes(scalar.size(), &what)?;
                Ok(Value::number(scalar, &bytes))
            }
        }
    }

    fn value_type(&mut self, key: &str, what: &str) -> Result<ValueType> {
        let id = self.u32(what)?;
        ValueType::of(id).ok_or_else(|| damaged(format!("{key} has the unknown value type {id}")))
    }

    fn elements(&mut self, element: ValueType, count: u64, key: &str, what: &str) -> Result<Array> {
        match element {
            ValueType::Array => Err(damaged(format!("{key} is an array of arrays, which no GGUF has"))),
            ValueType::String => {
                // Every string takes at least its own length field.
                self.claim(count.saturating_mul(8), what)?;
                let mut strings = Strings::with_capacity(count as usize);
                for _ in 0..count {
                    let length = self.u64(what)?;
                    self.claim(length, what)?;
                    let room = strings.push(length as usize);
                    self.inner
                        .read_exact(room)
                        .map_err(|e| Error::new(ErrorKind::Io, format!("cannot read it: {e}")))?;
                    self.at += length;
                }
                Ok(Array::Strings(strings))
            }
            number => {
                let bytes = self.bytes(count.saturating_mul(number.size()), what)?;
                Ok(Array::Numbers(number, bytes))
            }
        }
    }

    fn tensor(&mut self, index: u64) -> Result<Tensor> {
        let what = format!("tensor {index}");
        let name = self.string(&what)?;
        if name.len() >= MAX_TENSOR_NAME {
            return Err(damaged(format!(
                "the name of {what} has {} bytes, more than {}",
                name.len(),
                MAX_TENSOR_NAME - 1
            )));
        }
        let name = lossy(name);
        let what = format!("tensor {name:?}");
        let dims = self.u32(&what)?;
        if dims > MAX_DIMS {
            return Err(damaged(format!("{what} has {dims} dimensions; ggml knows {MAX_DIMS}")));
        }
        let mut shape = Vec::with_capacity(dims as usize);
        let mut elements: i64 = 1;
        for _ in 0..dims {
            let length = self.u64(&what)?;
            let signed = i64::try_from(length).ok();
            elements = signed
                .and_then(|length| elements.checked_mul(length.max(1)))
                .ok_or_else(|| damaged(format!("the shape of {what} is absurd: a dimension of {length}")))?;
            shape.push(length);
        }
        let id = self.u32(&what)?;
        let Some(kind) = tensor_type(id) else {
            return Err(Error::new(ErrorKind::Gguf, format!("{what} has the unknown element type {id}"))
                .hint("the file is damaged, or its quantisation is newer or older than this build of llama.cpp"));
        };
        let row = shape.first().copied().unwrap_or(1);
        if row % kind.block != 0 {
            return Err(damaged(format!(
                "{what} has rows of {row} elements, but {} comes in blocks of {}",
                kind.name, kind.block
            )));
        }
        let blocks = shape.iter().skip(1).try_fold(row / kind.block, |n, &d| n.checked_mul(d));
        let bytes = blocks
            .and_then(|n| n.checked_mul(kind.bytes))
            .ok_or_else(|| damaged(format!("the shape of {what} is absurd: {shape:?}")))?;
        Ok(Tensor { name, shape, kind, offset: self.u64(&what)?, bytes })
    }
}

fn lossy(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
}

fn check_version(version: [u8; 4]) -> Result<()> {
    let little = u32::from_le_bytes(version);
    match little {
        2 | 3 => Ok(()),
        1 => Err(Error::new(ErrorKind::Gguf, "a GGUF of version 1, which llama.cpp no longer reads")
            .hint("convert the model again with a current llama.cpp")),
        _ if matches!(u32::from_be_bytes(version), 1..=16) => {
            Err(Error::new(ErrorKind::Gguf, "a big-endian GGUF, made for another kind of machine")
                .hint("fetch the ordinary, little-endian file of this model"))
        }
        _ => Err(Error::new(ErrorKind::Gguf, format!("a GGUF of version {little}; this build knows versions 2 and 3"))
            .hint("the file is damaged, or needs a newer callwright")),
    }
}

/// Reads the header of the file at `path`.
pub(super) fn read(path: &Path) -> Result<Gguf> {
    let file = File::open(path).map_err(|e| Error::io("read", path, &e))?;
    let metadata = file.metadata().map_err(|e| Error::io("read", path, &e))?;
    if !metadata.is_file() {
        let what = if metadata.is_dir() { "a folder" } else { "not a regular file" };
        return Err(Error::new(ErrorKind::Gguf, format!("{} is {what}, not a GGUF file", path.display())));
    }
    // Short strings take two reads; the buffer saves system calls.
    let reader = Reader { inner: BufReader::with_capacity(256 << 10, file), at: 0, file_size: metadata.len() };
    read_header(reader, path).map_err(|e| e.in_file(path))
}

fn read_header(mut reader: Reader, path: &Path) -> Result<Gguf> {
    let start = reader.file_size.min(256);
    let mut head = vec![0; start as usize];
    reader.fill(&mut head)?;
    if !head.starts_with(b"GGUF") {
        return Err(looks_like::error(&head, reader.file_size));
    }
    reader.inner.seek_relative(4 - start as i64).map_err(|e| Error::io("read", path, &e))?;
    reader.at = 4;

    check_version(reader.array("the version")?)?;
    let tensor_count = count(reader.u64("the number of tensors")?, "tensors")?;
    let entry_count = count(reader.u64("the number of metadata entries")?, "metadata entries")?;

    let mut seen = HashSet::new();
    let mut metadata = Vec::new();
    for index in 0..entry_count {
        let key = lossy(reader.string(&format!("metadata key {index}"))?);
        if key.is_empty() {
            return Err(damaged(format!("metadata key {index} is empty")));
        }
        if !seen.insert(key.clone()) {
            return Err(damaged(format!("the metadata key {key} occurs twice")));
        }
        let value = reader.value(&key)?;
        metadata.push((key, value));
    }

    let mut names = HashSet::new();
    let mut tensors = Vec::new();
    for index in 0..tensor_count {
        let tensor = reader.tensor(index)?;
        if !names.insert(tensor.name.clone()) {
            return Err(damaged(format!("there are two tensors named {:?}", tensor.name)));
        }
        tensors.push(tensor);
    }
    let alignment = alignment(&metadata)?;
    check_offsets(&tensors, alignment)?;
    Ok(Gguf {
        path: path.to_owned(),
        file_size: reader.file_size,
        header_size: reader.at,
        // MAX_HEADER bounds `at`, and `alignment` fits in 32 bits: no overflow.
        data_offset: reader.at.next_multiple_of(alignment),
        metadata,
        tensors,
    })
}

fn count(number: u64, what: &str) -> Result<u64> {
    if number > MAX_ENTRIES {
        return Err(damaged(format!("the header declares {number} {what}; no model has more than {MAX_ENTRIES}")));
    }
    Ok(number)
}

fn alignment(metadata: &[(String, Value)]) -> Result<u64> {
    let key = "general.alignment";
    match metadata.iter().find(|(k, _)| k == key) {
        None => Ok(DEFAULT_ALIGNMENT),
        Some((_, Value::U32(n))) if n.is_power_of_two() => Ok(u64::from(*n)),
        Some((_, value)) => Err(damaged(format!("{key} is {value}, not a power of two"))),
    }
}

/// ggml requires the tensors' data in the order of their names in the header, without gaps.
fn check_offsets(tensors: &[Tensor], alignment: u64) -> Result<()> {
    let mut expected: u64 = 0;
    for tensor in tensors {
        if tensor.offset != expected {
            return Err(damaged(format!(
                "tensor {:?} starts at {} where {expected} was expected",
                tensor.name, tensor.offset
            )));
        }
        expected = tensor
            .bytes
            .checked_next_multiple_of(alignment)
            .and_then(|bytes| expected.checked_add(bytes))
            .ok_or_else(|| damaged(format!("tensor {:?} is absurdly large", tensor.name)))?;
    }
    Ok(())
}
