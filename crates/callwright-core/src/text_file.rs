//! Reads text files in UTF-8; the error says where they are invalid.

use crate::error::{Error, ErrorKind, Result};
use std::io::{self, Read};
use std::path::Path;

/// The longest text, in bytes. An input may have no end, such as a device or a pipe.
pub const MOST: u64 = 256 << 20;

/// All that there is to read.
///
/// # Errors
/// Those of reading, and [`io::ErrorKind::FileTooLarge`] beyond [`MOST`] bytes.
pub fn read_all(input: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    input.take(MOST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST {
        return Err(too_large("it has"));
    }
    Ok(bytes)
}

/// The error that an input has more than [`MOST`] bytes.
pub fn too_large(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, format!("{what} more than {} MiB", MOST >> 20))
}

/// The text of the file at `path`.
///
/// # Errors
/// [`ErrorKind::Io`] if it cannot be read, [`ErrorKind::Syntax`] if it is not UTF-8.
pub fn read(path: &Path) -> Result<String> {
    in_utf8(std::fs::File::open(path).and_then(read_all).map_err(|error| Error::io("read", path, &error))?, path)
}

/// Returns the bytes of the file at `path` as text.
///
/// # Errors
/// [`ErrorKind::Syntax`] if they are not UTF-8.
pub fn in_utf8(bytes: Vec<u8>, path: &Path) -> Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        Error::new(ErrorKind::Syntax, format!("not valid UTF-8 at byte {valid}")).in_file(path).caused_by(error)
    })
}
