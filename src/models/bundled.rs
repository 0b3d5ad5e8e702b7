//! The model that comes with the program, so that a first command works offline.

use crate::{Error, ErrorKind, Result};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Bytes that are read at a time.
const PIECE: usize = 64 << 10;

/// Its MODEL name.
pub(crate) const NAME: &str = "bundled";

#[cfg(feature = "bundled-model")]
const GGUF: Option<&[u8]> = Some(include_bytes!("../../models/callwright-tiny.gguf"));
#[cfg(not(feature = "bundled-model"))]
const GGUF: Option<&[u8]> = None;

/// Its size in bytes; `None` in a build without it.
pub(crate) fn size() -> Option<u64> {
    GGUF.and_then(|gguf| u64::try_from(gguf.len()).ok())
}

/// The bundled model as a file, as llama.cpp requires: unpacked to the cache directory on first use.
///
/// # Errors
/// [`ErrorKind::ModelNotFound`] in a build without the feature `bundled-model`, [`ErrorKind::Io`] if the cache
/// directory cannot be written.
pub(crate) fn path() -> Result<PathBuf> {
    let Some(gguf) = GGUF else {
        return Err(Error::new(ErrorKind::ModelNotFound, "this build has no bundled model")
            .hint("name a model with -m; `callwright model list` shows some"));
    };
    let cache = crate::cache::folder().unwrap_or_else(|| std::env::temp_dir().join("callwright"));
    let path = cache.join("callwright-tiny.gguf");
    // Comparing takes some milliseconds, and replaces a damaged or outdated file.
    if has(&path, gguf).unwrap_or(false) {
        return Ok(path);
    }
    let failed = |error: &std::io::Error| {
        Error::io("unpack the bundled model to", &path, error).hint("XDG_CACHE_HOME names another cache directory")
    };
    crate::cache::write(&path, gguf).map_err(|error| failed(&error))?;
    Ok(path)
}

/// Whether a file has these bytes. It is read in pieces: memory for all of it takes longer to get than the file to read.
fn has(path: &Path, bytes: &[u8]) -> std::io::Result<bool> {
    let mut file = File::open(path)?;
    if file.metadata()?.len() != bytes.len() as u64 {
        return Ok(false);
    }
    let mut piece = [0; PIECE];
    for expected in bytes.chunks(PIECE) {
        let there = &mut piece[..expected.len()];
        file.read_exact(there)?;
        if *there != *expected {
            return Ok(false);
        }
    }
    Ok(true)
}
