//! Prompts on disk: a folder for each model and kind of context, a file for each entry.
//!
//! Several processes may share a folder. A file is written under another name and renamed, so that nobody sees a part of
//! one. It has a checksum: what is damaged is ignored. The file that was not used for the longest time goes first.

use super::{Checkpoint, Entry, Wanted, reach};
use crate::engine::{Token, common};
use crate::{Error, Result};
use serde::Serialize;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::SystemTime;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

/// The beginning of a file; its last character is the version.
const MAGIC: [u8; 8] = *b"CWPROMP3";
/// The magic, the number of tokens, how many of these were read with flash attention, the length of the state, the number of checkpoints,
/// and the checksum of all that follows: the tokens, the place and the length of each checkpoint, the state, the checkpoints.
const HEADER: usize = 6 * 8;
/// More tokens than any context has: a longer list is damage.
const MOST_TOKENS: u64 = 1 << 26;
/// More checkpoints than any sequence has.
const MOST_CHECKPOINTS: u64 = 1 << 10;
const EXTENSION: &str = "prompt";
/// What a folder's entries belong to, for `list`.
const LABEL: &str = "model.txt";

/// The prompts of one model in one kind of context.
pub struct Disk {
    root: PathBuf,
    folder: PathBuf,
    label: String,
    budget: u64,
    always: bool,
    /// The entries, as of the last look at the folder.
    index: Mutex<Index>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Index {
    /// When the folder last changed.
    changed: Option<SystemTime>,
    files: Vec<(PathBuf, Head)>,
}

/// What a file says before the state.
struct Head {
    tokens: Box<[Token]>,
    flash: usize,
    /// The length of the state.
    state: u64,
    /// The place of each checkpoint, and its length.
    checkpoints: Vec<(usize, u64)>,
    checksum: u64,
}

impl Head {
    fn reach(&self, len: usize) -> usize {
        reach(self.tokens.len(), self.checkpoints.iter().map(|(at, _)| *at), len)
    }
}

impl Disk {
    /// The prompts below `root` for the context that `key` identifies. Only `budget` bytes are kept in all of `root`; with
    /// `always`, also prompts that take little time.
    pub(crate) fn new(root: PathBuf, key: &str, label: &str, budget: u64, always: bool) -> Disk {
        let folder = root.join(key);
        let label = label.to_owned();
        Disk { root, folder, label, budget, always, index: Mutex::default(), writer: Mutex::default() }
    }

    pub(super) fn always(&self) -> bool {
        self.always
    }

    /// How much of a prompt the tokens of some entry begin with.
    pub(super) fn known(&self, prompt: &[Token]) -> usize {
        self.look(|files| files.iter().map(|(_, head)| common(&head.tokens, prompt)).max().unwrap_or_default())
    }

    /// The entry that saves the most of a prompt. A damaged one is removed, and the next one tried.
    pub(super) fn find(&self, wanted: &Wanted<'_>, can_truncate: bool) -> Option<(usize, Entry)> {
        let mut found: Vec<(usize, PathBuf)> = self.look(|files| {
            let gain = |head: &Head| {
                let reach = |len: usize| head.reach(len);
                wanted.gain(&head.tokens, head.flash, if can_truncate { None } else { Some(&reach) })
            };
            files.iter().filter_map(|(path, head)| Some((gain(head)?, path.clone()))).collect()
        });
        found.sort_unstable();
        while let Some((gain, path)) = found.pop() {
            match read(&path) {
                Ok(entry) => {
                    // When it was last used. Another process may have removed it.
                    let _ =
                        File::options().append(true).open(&path).and_then(|file| file.set_modified(SystemTime::now()));
                    return Some((gain, entry));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    tracing::warn!("{} is ignored and removed: {error}", path.display());
                    let _ = fs::remove_file(&path);
                }
            }
        }
        None
    }

    /// Writes an entry on a thread of its own. If it is still writing the last one, this one is left out.
    pub(super) fn write(&self, entry: Entry, can_truncate: bool) {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if writer.as_ref().is_some_and(|thread| !thread.is_finished()) || entry.size() > self.budget {
            return;
        }
        let (root, folder, label, budget) = (self.root.clone(), self.folder.clone(), self.label.clone(), self.budget);
        // The beginnings of what is written, which it replaces.
        let replaced = |known: &[Token]| entry.covers(known, can_truncate);
        let shorter: Vec<PathBuf> = self.look(|files| {
            files.iter().filter(|(_, head)| replaced(&head.tokens)).map(|(path, _)| path.clone()).collect()
        });
        let write = move || match save(&root, &folder, &label, &entry) {
            Ok(path) => {
                shorter.iter().filter(|old| **old != path).for_each(|old| drop(fs::remove_file(old)));
                shrink(&root, budget);
            }
            Err(error) => tracing::warn!("a prompt is not kept in {}: {error}", folder.display()),
        };
        *writer = std::thread::Builder::new().name("prompt-cache".to_owned()).spawn(write).ok();
    }

    /// Does something with the entries that are there now.
    fn look<T>(&self, with: impl FnOnce(&[(PathBuf, Head)]) -> T) -> T {
        let mut index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = fs::metadata(&self.folder).and_then(|folder| folder.modified()).ok();
        if index.changed != changed || changed.is_none() {
            let mut known = std::mem::take(&mut index.files);
            index.files = files(&self.folder)
                .filter_map(|path| match known.iter().position(|(there, _)| *there == path) {
                    Some(place) => Some(known.swap_remove(place)),
                    None => Some((path.clone(), read_head_of(&path).ok()?)),
                })
                .collect();
            index.changed = changed;
        }
        with(&index.files)
    }
}

impl Drop for Disk {
    /// Waits for what is being written.
    fn drop(&mut self) {
        if let Some(writer) = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = writer.join();
        }
    }
}

/// The files of entries in a folder.
fn files(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let paths = fs::read_dir(folder).into_iter().flatten().flatten().map(|file| file.path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == EXTENSION))
}

fn read_head(file: &mut impl Read) -> io::Result<Head> {
    let mut header = [0; HEADER];
    file.read_exact(&mut header)?;
    let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| header[at + i]));
    let (count, flash, state, checkpoints, checksum) = (number(8), number(16), number(24), number(32), number(40));
    if header[..8] != MAGIC || count > MOST_TOKENS || checkpoints > MOST_CHECKPOINTS {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is no prompt of this version"));
    }
    let mut bytes = Vec::new();
    file.take(4 * count + 16 * checkpoints).read_to_end(&mut bytes)?;
    if bytes.len() as u64 != 4 * count + 16 * checkpoints {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "its tokens are cut off"));
    }
    let (tokens, places) = bytes.split_at(4 * count as usize);
    let tokens: Box<[Token]> = tokens.as_chunks().0.iter().map(|four| Token(i32::from_le_bytes(*four))).collect();
    let numbers: Vec<u64> = places.as_chunks().0.iter().map(|eight| u64::from_le_bytes(*eight)).collect();
    let checkpoints: Vec<(usize, u64)> =
        numbers.as_chunks().0.iter().map(|[at, length]| (*at as usize, *length)).collect();
    let in_order = checkpoints.is_sorted_by_key(|(at, _)| *at) && checkpoints.iter().all(|(at, _)| *at <= tokens.len());
    if !in_order {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "its checkpoints are in no order"));
    }
    Ok(Head { tokens, flash: usize::try_from(flash).unwrap_or_default(), state, checkpoints, checksum })
}

fn read_head_of(path: &Path) -> io::Result<Head> {
    read_head(&mut io::BufReader::new(File::open(path)?))
}

fn read(path: &Path) -> io::Result<Entry> {
    let mut file = File::open(path)?;
    let head = read_head(&mut file)?;
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, "it is damaged");
    // No more than there is, whatever the header says.
    let most = file.metadata()?.len();
    let mut part = |length: u64| {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(usize::try_from(length.min(most)).unwrap_or(usize::MAX))?;
        (&mut file).take(length).read_to_end(&mut bytes)?;
        if bytes.len() as u64 == length { Ok(bytes) } else { Err(damaged()) }
    };
    let state = part(head.state)?;
    let checkpoint = |(at, length): &(usize, u64)| Ok(Checkpoint { at: *at, state: part(*length)?.into() });
    let checkpoints: Vec<Checkpoint> = head.checkpoints.iter().map(checkpoint).collect::<io::Result<_>>()?;
    let entry = Entry::new(&head.tokens, head.flash, &checkpoints, state);
    if file.read(&mut [0])? != 0 || checksum(&entry) != head.checksum {
        return Err(damaged());
    }
    Ok(entry)
}

fn checksum(entry: &Entry) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(&bytes(&entry.tokens));
    hash.update(&(entry.flash as u64).to_le_bytes());
    hash.update(&places(entry));
    hash.update(&entry.state);
    entry.checkpoints.iter().for_each(|checkpoint| hash.update(&checkpoint.state));
    hash.digest()
}

/// The place and the length of each checkpoint.
fn places(entry: &Entry) -> Vec<u8> {
    let numbers = entry.checkpoints.iter().flat_map(|checkpoint| [checkpoint.at as u64, checkpoint.state.len() as u64]);
    numbers.flat_map(u64::to_le_bytes).collect()
}

fn bytes(tokens: &[Token]) -> Vec<u8> {
    tokens.iter().flat_map(|token| token.0.to_le_bytes()).collect()
}

fn save(root: &Path, folder: &Path, label: &str, entry: &Entry) -> io::Result<PathBuf> {
    make_private(root)?;
    make_private(folder)?;
    let named = folder.join(LABEL);
    if !named.exists() {
        fs::write(&named, label)?;
    }
    let path = folder.join(format!("{:032x}.{EXTENSION}", xxh3_128(&bytes(&entry.tokens))));
    // Readable by its owner alone, as everything that tempfile makes.
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(&MAGIC)?;
    let (tokens, flash, checkpoints) = (entry.tokens.len(), entry.flash, entry.checkpoints.len());
    for number in [tokens as u64, flash as u64, entry.state.len() as u64, checkpoints as u64, checksum(entry)] {
        file.write_all(&number.to_le_bytes())?;
    }
    file.write_all(&bytes(&entry.tokens))?;
    file.write_all(&places(entry))?;
    file.write_all(&entry.state)?;
    entry.checkpoints.iter().try_for_each(|checkpoint| file.write_all(&checkpoint.state))?;
    file.persist(&path).map_err(|error| error.error)?;
    Ok(path)
}

/// Makes a folder that only its owner can read: it has what users wrote.
fn make_private(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(folder)
}

/// Removes the files that were not used for the longest time, until the rest fits the budget.
fn shrink(root: &Path, budget: u64) {
    // One process at a time, so that two do not remove twice as much as is needed.
    let lock = File::options().create(true).append(true).open(root.join("lock"));
    if lock.as_ref().map_or(true, |lock| lock.try_lock().is_err()) {
        return;
    }
    let folders = fs::read_dir(root).into_iter().flatten().flatten().map(|folder| folder.path());
    let data = |path: PathBuf| {
        let data = fs::metadata(&path).ok()?;
        Some((data.modified().ok()?, data.len(), path))
    };
    let mut all: Vec<(SystemTime, u64, PathBuf)> = folders.flat_map(|folder| files(&folder)).filter_map(data).collect();
    all.sort_unstable();
    let mut total: u64 = all.iter().map(|(_, size, _)| size).sum();
    for (_, size, path) in all {
        if total <= budget {
            break;
        }
        let _ = fs::remove_file(path);
        total -= size;
    }
}

/// The prompts that are kept for one model in one kind of context.
#[derive(Debug, Serialize)]
pub struct Kept {
    /// The model's name.
    pub model: String,
    /// Where they are.
    pub folder: PathBuf,
    /// The number of prompts.
    pub prompts: usize,
    /// Their size on disk.
    pub bytes: u64,
    /// Tokens of the longest.
    pub longest: usize,
    /// When one was last used.
    #[serde(skip)]
    pub used: Option<SystemTime>,
}

/// Returns what is kept below `root`, the last used first.
pub fn list(root: &Path) -> Vec<Kept> {
    let folders = fs::read_dir(root).into_iter().flatten().flatten().map(|folder| folder.path());
    let mut kept: Vec<Kept> = folders
        .filter(|folder| folder.join(LABEL).is_file())
        .map(|folder| {
            let files: Vec<(PathBuf, fs::Metadata)> =
                files(&folder).filter_map(|path| Some((path.clone(), fs::metadata(&path).ok()?))).collect();
            Kept {
                model: fs::read_to_string(folder.join(LABEL)).unwrap_or_default(),
                prompts: files.len(),
                bytes: files.iter().map(|(_, data)| data.len()).sum(),
                longest: files
                    .iter()
                    .filter_map(|(path, _)| Some(read_head_of(path).ok()?.tokens.len()))
                    .max()
                    .unwrap_or(0),
                used: files.iter().filter_map(|(_, data)| data.modified().ok()).max(),
                folder,
            }
        })
        .collect();
    kept.sort_by_key(|kept| std::cmp::Reverse(kept.used));
    kept
}

/// Removes what is kept below `root`: the entries and folders that this module has made, and nothing else.
///
/// # Errors
/// [`ErrorKind::Io`](crate::ErrorKind::Io) if a file cannot be removed.
pub fn clear(root: &Path) -> Result<(usize, u64)> {
    let (mut count, mut size) = (0, 0);
    for kept in list(root) {
        for path in files(&kept.folder) {
            fs::remove_file(&path).map_err(|error| Error::io("remove", &path, &error))?;
        }
        let _ = fs::remove_file(kept.folder.join(LABEL));
        // Another process may have written one meanwhile.
        let _ = fs::remove_dir(&kept.folder);
        count += kept.prompts;
        size += kept.bytes;
    }
    Ok((count, size))
}
