//! The program's cache folder: what can be made again, but not at once.

use crate::files::{self, Readers};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;
use xxhash_rust::xxh3::Xxh3Default;

/// `$XDG_CACHE_HOME/callwright`, or the platform's equivalent.
pub fn folder() -> Option<PathBuf> {
    Some(directories::ProjectDirs::from("", "", "callwright")?.cache_dir().to_owned())
}

/// Writes a file of the cache: readers see the old one or the whole new one.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
    files::write(path, bytes, Readers::Owner)
}

/// Returns what a JSON file of the cache has; nothing if there is no such file, or another version wrote it.
pub(crate) fn read_json<T: DeserializeOwned>(name: &str) -> Option<T> {
    serde_json::from_slice(&fs::read(folder()?.join(name)).ok()?).ok()
}

/// Writes a JSON file of the cache. If that is impossible, the next run measures again.
pub(crate) fn write_json(name: &str, value: &impl Serialize) {
    let Some(path) = folder().map(|folder| folder.join(name)) else { return };
    let written = serde_json::to_vec_pretty(value).map_err(io::Error::from).and_then(|json| write(&path, &json));
    if let Err(error) = written {
        tracing::debug!("{} is not written: {error}", path.display());
    }
}

/// Returns what changes when a large file does: its size, its time, and a hash of some of its parts. Reading all of it
/// takes seconds.
pub fn fingerprint(path: &Path) -> io::Result<String> {
    const PARTS: u64 = 64;
    const PART: u64 = 4096;
    let mut file = File::open(path)?;
    let data = file.metadata()?;
    let changed = data.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let mut hash = Xxh3Default::new();
    // In pieces: memory for all of it takes longer to get than the parts to read.
    let mut add = |file: &mut File, bytes: u64| io::copy(&mut file.take(bytes), &mut hash);
    // The beginning has the header with all metadata.
    add(&mut file, 1 << 20)?;
    for part in 0..PARTS {
        file.seek(SeekFrom::Start(data.len().saturating_sub(PART) / (PARTS - 1) * part))?;
        add(&mut file, PART)?;
    }
    Ok(format!("{} {changed} {:032x}", data.len(), hash.digest128()))
}
