//! Reads text files in UTF-8; the error says where they are invalid.

use crate::error::{Error, ErrorKind, Result};
use std::path::Path;

/// The text of the file at `path`.
///
/// # Errors
/// [`ErrorKind::Io`] if it cannot be read, [`ErrorKind::Syntax`] if it is not UTF-8.
pub fn read(path: &Path) -> Result<String> {
    let bytes = std::fs::read(path).map_err(|error| Error::io("read", path, &error))?;
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        Error::new(ErrorKind::Syntax, format!("not valid UTF-8 at byte {valid}")).in_file(path).caused_by(error)
    })
}
