//! Finds the entry of models.toml that a file belongs to, by the file's content.

use super::hub::{blob_name, is_sha256};
use super::{Gguf, Hub, ModelEntry, Models, Progress, ProgressEvent, Source};
use crate::cache::{read_json, write_json};
use crate::error::Result;
use crate::hash::sha256_of;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The file of the cache with the sums that took long to compute.
const SUMS: &str = "model-sums.json";

/// The sum of a file, as long as neither its size nor its time changes.
#[derive(Serialize, Deserialize)]
struct Sum {
    size: u64,
    modified: SystemTime,
    sha256: String,
}

impl Models {
    /// Applies the settings of the entry whose file has this content. Of several, it is the one in the file of the user's that was
    /// read last, and in a file the first one.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) if the model's file cannot be read.
    pub fn recognize(&self, entry: &mut ModelEntry, gguf: &Gguf, hub: &Hub, progress: &mut dyn Progress) -> Result<()> {
        let mut content = Content { gguf, hub, fingerprint: gguf.fingerprint()?, sha256: None, progress };
        let mut known: Vec<&ModelEntry> = self.entries.iter().collect();
        known.sort_by_key(|known| Reverse(self.rank(known)));
        // The weights are hashed only where nothing else has said which model it is.
        let found = known.iter().find(|known| content.has_header_of(known));
        if let Some(known) = found.or_else(|| known.iter().find(|known| content.has_sum_of(known))) {
            *entry = ModelEntry { name: entry.name.clone(), source: entry.source.clone(), ..(*known).clone() };
        }
        Ok(())
    }

    /// Returns whether a file of the user's may say something of a model that no built-in entry describes.
    pub(crate) fn has_own(&self) -> bool {
        self.entries.iter().any(|entry| self.rank(entry).is_some())
    }

    /// Which of the user's files an entry is from; nothing for a built-in one.
    fn rank(&self, entry: &ModelEntry) -> Option<usize> {
        let file = entry.place.as_ref()?.file.as_ref()?;
        self.files.iter().position(|own| own == file)
    }
}

impl ModelEntry {
    /// Returns whether it is found by its own name, and not by its file.
    pub fn is_named(&self) -> bool {
        self.applied.as_ref() == Some(&self.name)
    }

    /// Its name and its file, without what models.toml sets.
    pub fn bare(&self) -> ModelEntry {
        ModelEntry { size: self.size, ..ModelEntry::new(&self.name, self.source.clone()) }
    }

    /// Returns whether it sets anything for its file.
    fn has_settings(&self) -> bool {
        let kept = ModelEntry {
            fingerprints: self.fingerprints.clone(),
            applied: self.applied.clone(),
            place: self.place.clone(),
            ..self.bare()
        };
        *self != kept
    }

    /// Which entry of which file these settings are from, for people; nothing without settings.
    pub fn about(&self) -> Option<String> {
        let name = self.applied.as_ref().filter(|_| self.has_settings())?;
        let file = self.place.as_ref().and_then(|place| place.file.as_ref());
        let file = file.map_or("models.toml".to_owned(), |file| file.display().to_string());
        Some(format!("the entry {name} of {file} applies"))
    }
}

/// A file that is compared with the entries.
struct Content<'a> {
    gguf: &'a Gguf,
    hub: &'a Hub,
    fingerprint: String,
    /// The hash of the whole file, once it was needed.
    sha256: Option<String>,
    progress: &'a mut dyn Progress,
}

impl Content<'_> {
    /// Compares the header with the entry's fingerprint, or with the header of its file if that is here.
    fn has_header_of(&self, known: &ModelEntry) -> bool {
        if !known.fingerprints.is_empty() {
            return known.fingerprints.contains(&self.fingerprint);
        }
        if let Source::Hub(file) = &known.source
            && let Some(sum) = file.sha256.first()
            && blob_name(self.gguf.path()).as_ref() == Some(sum)
        {
            // The hub's cache names content by its sum.
            return true;
        }
        let Some(path) = known.local(self.hub) else { return false };
        let size = |path: &Path| fs::metadata(path).map(|data| data.len()).ok();
        size(&path) == Some(self.gguf.file_size())
            && Gguf::open(&path).and_then(|other| other.fingerprint()).is_ok_and(|other| other == self.fingerprint)
    }

    /// Compares the hash of the whole file with the entry's, if it has no fingerprint and the sizes are equal.
    fn has_sum_of(&mut self, known: &ModelEntry) -> bool {
        let Source::Hub(file) = &known.source else { return false };
        let Some(expected) = file.sha256.first().filter(|_| known.fingerprints.is_empty()) else { return false };
        let sizes = self.gguf.files().into_iter().map(|path| fs::metadata(path).ok().map(|data| data.len()));
        if !known.has_settings() || known.size.is_none() || sizes.sum::<Option<u64>>() != known.size {
            return false;
        }
        if self.sha256.is_none() {
            self.sha256 = sum_of(self.gguf.path(), self.progress);
        }
        self.sha256.as_ref() == Some(expected)
    }
}

/// The hash of a file: its name in the hub's cache, or what was computed before, or now. Nothing if it cannot be read.
fn sum_of(path: &Path, progress: &mut dyn Progress) -> Option<String> {
    if let Some(name) = blob_name(path).filter(|name| is_sha256(name)) {
        return Some(name);
    }
    let path = fs::canonicalize(path).ok()?;
    let data = fs::metadata(&path).ok()?;
    let (size, modified) = (data.len(), data.modified().ok()?);
    let mut sums: BTreeMap<PathBuf, Sum> = read_json(SUMS).unwrap_or_default();
    if let Some(sum) = sums.get(&path).filter(|sum| (sum.size, sum.modified) == (size, modified)) {
        return Some(sum.sha256.clone());
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut hashed = |done| progress.event(ProgressEvent::Verify { file: &name, done, total: size });
    let sha256 = File::open(&path).and_then(|file| sha256_of(file, &mut hashed)).ok()?;
    progress.event(ProgressEvent::Done { file: &name });
    sums.retain(|path, _| path.exists());
    sums.insert(path, Sum { size, modified, sha256: sha256.clone() });
    write_json(SUMS, &sums);
    Some(sha256)
}
