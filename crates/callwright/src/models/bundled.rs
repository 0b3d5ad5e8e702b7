//! The model that comes with the program, so that a first command works offline.

use crate::{Error, ErrorKind, Result};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use xxhash_rust::xxh3::Xxh3Default;

/// Bytes that are read at a time.
const PIECE: usize = 64 << 10;

/// Its MODEL name.
pub const NAME: &str = "bundled";

#[cfg(feature = "bundled-model")]
const GGUF: Option<&[u8]> = Some(include_bytes!("../../models/callwright-tiny.gguf"));
#[cfg(not(feature = "bundled-model"))]
const GGUF: Option<&[u8]> = None;

/// Its size in bytes; `None` in a build without it.
pub fn size() -> Option<u64> {
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
    if has(&path, gguf).unwrap_or(false) {
        return Ok(path);
    }
    let failed = |error: &std::io::Error| {
        Error::io("unpack the bundled model to", &path, error).hint("XDG_CACHE_HOME names another cache directory")
    };
    crate::cache::write(&path, gguf).map_err(|error| failed(&error))?;
    // Without the time, the next run compares the file.
    let _ = File::open(&path).and_then(|file| file.set_modified(time_of(gguf)));
    Ok(path)
}

/// Whether a file has these bytes. It is compared once, which takes some milliseconds; as long as nobody writes to it, it then has
/// the time that says so.
fn has(path: &Path, bytes: &[u8]) -> io::Result<bool> {
    let file = File::open(path)?;
    let data = file.metadata()?;
    if data.len() != bytes.len() as u64 {
        return Ok(false);
    }
    let compared = time_of(bytes);
    if data.modified()? == compared {
        return Ok(true);
    }
    let same = compare(&file, bytes)?;
    if same {
        let _ = file.set_modified(compared);
    }
    Ok(same)
}

/// The time that a file with these bytes has: another one for other models, as a part of the bytes decides.
fn time_of(bytes: &[u8]) -> SystemTime {
    const YEARS: u64 = 10 * 365 * 86_400;
    let mut hash = Xxh3Default::new();
    bytes.chunks(PIECE).for_each(|piece| hash.update(&piece[..piece.len().min(512)]));
    UNIX_EPOCH + Duration::from_secs(2 * YEARS + hash.digest() % YEARS)
}

/// It is read in pieces: memory for all of it takes longer to get than the file to read.
fn compare(mut file: &File, bytes: &[u8]) -> io::Result<bool> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_compared_until_it_has_the_time_of_its_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model");
        let (bytes, other) = (vec![1; 3 * PIECE], [vec![1; 3 * PIECE - 1], vec![2]].concat());
        for written in [&bytes, &other, &bytes] {
            std::fs::write(&path, written).unwrap();
            assert_eq!(has(&path, &bytes).unwrap(), *written == bytes);
        }
        assert!(!has(&path, &bytes[1..]).unwrap(), "another length");
        let time = |bytes: &[u8]| time_of(bytes).duration_since(UNIX_EPOCH).unwrap();
        assert_eq!(path.metadata().unwrap().modified().unwrap(), UNIX_EPOCH + time(&bytes));
        assert_ne!(time(&bytes), time(&[vec![3; PIECE], vec![1; 2 * PIECE]].concat()), "of another model");
        std::fs::write(&path, &other).unwrap();
        assert!(!has(&path, &bytes).unwrap(), "it was written to");
    }
}
