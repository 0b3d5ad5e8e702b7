//! The Hugging Face hub and its local cache, which is shared with other programs.
//!
//! Reading the cache needs no network and no feature. Downloading requires the feature `hub`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::gguf::shard_of;
use super::repo::HubRepo;
use crate::error::{Error, ErrorKind, Result};
use crate::setting::Setting;

const ENDPOINT: &str = "https://huggingface.co";
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// A file on the hub.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HubFile {
    /// The repository, `ORG/REPO`.
    pub repo: String,
    /// The file's path in the repository; for a sharded model, the first shard's.
    pub file: String,
    /// A branch, tag or commit.
    pub revision: String,
    /// Expected SHA-256 of the content, in lower case: empty, or a sum for each of [`HubFile::files`].
    pub sha256: Vec<String>,
}

impl HubFile {
    /// Reads `ORG/REPO/FILE.gguf[@REVISION]`; the error says what is wrong.
    pub fn parse(text: &str) -> Result<HubFile, String> {
        let (path, revision) = match text.rsplit_once('@') {
            Some((path, revision)) => (path, revision),
            None => (text, "main"),
        };
        let mut parts = path.splitn(3, '/');
        let (Some(org), Some(repo), Some(file)) = (parts.next(), parts.next(), parts.next()) else {
            return Err("it needs an organisation, a repository and a file".to_owned());
        };
        // These become parts of addresses and of paths in the cache.
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '+');
        for part in [org, repo].into_iter().chain(file.split('/')).chain(revision.split('/')) {
            if part.is_empty() || part.starts_with("..") || part == "." || !part.chars().all(plain) {
                return Err(format!("{part:?} is not a valid name on the hub"));
            }
        }
        if !file.ends_with(".gguf") {
            return Err(format!("{file:?} does not end in .gguf"));
        }
        let mut file = file.to_owned();
        let (folder, name) = file.rsplit_once('/').unwrap_or(("", &file));
        if let Some(shard) = shard_of(name) {
            let slash = if folder.is_empty() { "" } else { "/" };
            file = format!("{folder}{slash}{}", shard.file_name(1));
        }
        Ok(HubFile { repo: format!("{org}/{repo}"), file, revision: revision.to_owned(), sha256: Vec::new() })
    }

    /// The file of an address on the hub's site; `rest` is the text after `https://`.
    pub(super) fn from_url(rest: &str) -> Option<HubFile> {
        let (_, path) = rest.split_once('/')?;
        let path = path.split(['?', '#']).next()?;
        let mut parts = path.splitn(5, '/');
        let (org, repo, kind) = (parts.next()?, parts.next()?, parts.next()?);
        let (revision, file) = (parts.next()?, parts.next()?);
        let known = matches!(kind, "resolve" | "blob");
        known.then(|| HubFile::parse(&format!("{org}/{repo}/{file}@{revision}")).ok()).flatten()
    }

    /// All files of the model, with their expected sums: one, or the shards in order.
    pub fn files(&self) -> Vec<(String, Option<&str>)> {
        let (folder, name) = match self.file.rsplit_once('/') {
            Some((folder, name)) => (format!("{folder}/"), name),
            None => (String::new(), self.file.as_str()),
        };
        let names: Vec<String> = match shard_of(name) {
            Some(shard) => shard.file_names().map(|name| format!("{folder}{name}")).collect(),
            None => vec![self.file.clone()],
        };
        names.into_iter().enumerate().map(|(i, name)| (name, self.sha256.get(i).map(String::as_str))).collect()
    }

    /// Returns whether both name the same file; one of them may omit the commit.
    pub(super) fn same_file(&self, other: &HubFile) -> bool {
        let revision = self.revision == other.revision || other.revision == "main";
        self.repo == other.repo && self.file == other.file && revision
    }
}

impl fmt::Display for HubFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hf:{}/{}", self.repo, self.file)?;
        if self.revision != "main" {
            write!(f, "@{}", self.revision)?;
        }
        Ok(())
    }
}

/// An event of a download, for display.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProgressEvent<'a> {
    /// `done` of `total` bytes of the file are present; a resumed file starts above 0.
    Download {
        /// The file's path in its repository.
        file: &'a str,
        /// Bytes present.
        done: u64,
        /// Bytes of the whole file.
        total: u64,
    },
    /// The connection broke; the download resumes.
    Retry {
        /// The file's path in its repository.
        file: &'a str,
        /// The error.
        reason: &'a str,
    },
    /// `done` of `total` bytes are hashed.
    Verify {
        /// The file's path in its repository.
        file: &'a str,
        /// Bytes that are hashed.
        done: u64,
        /// Bytes of the whole file.
        total: u64,
    },
    /// The file is present and verified.
    Done {
        /// The file's path in its repository.
        file: &'a str,
    },
}

/// Receives a download's progress; `()` ignores it.
pub trait Progress {
    /// Called for each event.
    fn event(&mut self, event: ProgressEvent<'_>);
}

impl Progress for () {
    fn event(&mut self, _: ProgressEvent<'_>) {}
}

/// The hub's address, and its cache.
#[derive(Clone, PartialEq, Eq)]
pub struct Hub {
    /// The hub's address, without a slash at the end.
    pub endpoint: String,
    /// The folder of the cache, which contains a folder for each repository.
    pub cache: PathBuf,
    /// The token for private and gated repositories.
    pub token: Option<String>,
    /// Whether network access is forbidden.
    pub offline: bool,
    /// The pause before a broken download is resumed; it doubles as long as no byte comes.
    pub retry_pause: Duration,
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let token = self.token.as_ref().map(|_| "…");
        let mut shown = f.debug_struct("Hub");
        shown.field("endpoint", &self.endpoint).field("cache", &self.cache).field("token", &token);
        shown.field("offline", &self.offline).finish()
    }
}

impl Hub {
    /// The hub with this cache folder, without a token.
    pub fn new(cache: impl Into<PathBuf>) -> Hub {
        Hub {
            endpoint: ENDPOINT.to_owned(),
            cache: cache.into(),
            token: None,
            offline: false,
            retry_pause: RETRY_PAUSE,
        }
    }

    /// The environment's settings, as for every program that uses the hub: `HF_ENDPOINT`; `HF_HUB_CACHE`, or `hub` in
    /// `HF_HOME`; `HF_TOKEN`, or the token that `hf auth login` saved in `HF_HOME`; `HF_HUB_OFFLINE`.
    pub fn from_env() -> Hub {
        let var = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
        let home = var("HF_HOME").map(PathBuf::from).unwrap_or_else(|| {
            let cache = var("XDG_CACHE_HOME").map(PathBuf::from);
            let home = || Some(directories::BaseDirs::new()?.home_dir().join(".cache"));
            cache.or_else(home).unwrap_or_else(std::env::temp_dir).join("huggingface")
        });
        let token_file = var("HF_TOKEN_PATH").map_or_else(|| home.join("token"), PathBuf::from);
        let token = var("HF_TOKEN").or_else(|| std::fs::read_to_string(token_file).ok());
        let on = |value: String| matches!(value.to_lowercase().as_str(), "1" | "true" | "yes" | "on");
        Hub {
            endpoint: var("HF_ENDPOINT").map_or(ENDPOINT.to_owned(), |url| url.trim_end_matches('/').to_owned()),
            cache: var("HF_HUB_CACHE").map_or_else(|| home.join("hub"), PathBuf::from),
            token: token.map(|token| token.trim().to_owned()).filter(|token| !token.is_empty()),
            offline: var("HF_HUB_OFFLINE").is_some_and(on),
            retry_pause: RETRY_PAUSE,
        }
    }

    /// The path of the file in the cache, if it is there with all its shards. Uses no network.
    pub fn cached(&self, file: &HubFile) -> Option<PathBuf> {
        let mut paths = file.files().into_iter().map(|(name, sum)| self.cached_file(file, &name, sum));
        let first = paths.next()??;
        // Shards must be in one folder for llama.cpp to find them.
        let folder = first.parent().map(Path::to_owned);
        let together = paths.all(|path| path.is_some_and(|path| path.parent().map(Path::to_owned) == folder));
        together.then_some(first)
    }

    /// One of its files.
    pub(super) fn cached_file(&self, file: &HubFile, name: &str, sha256: Option<&str>) -> Option<PathBuf> {
        let snapshots = self.repo_folder(&file.repo).join("snapshots");
        let at = |commit: &str| Some(snapshots.join(commit).join(name)).filter(|path| path.is_file());
        if let Some(path) = self.commit(&file.repo, &file.revision).as_deref().and_then(at) {
            return Some(path);
        }
        // Another commit may contain the same bytes: the cache names content by its sum.
        let sum = sha256?;
        let commits = std::fs::read_dir(&snapshots).ok()?.filter_map(|entry| entry.ok());
        let paths = commits.filter_map(|commit| at(&commit.file_name().to_string_lossy()));
        paths.into_iter().find(|path| blob_name(path).as_deref() == Some(sum))
    }

    /// The commit of a revision in the cache.
    fn commit(&self, repo: &str, revision: &str) -> Option<String> {
        let commit = if is_commit(revision) {
            Some(revision.to_owned())
        } else {
            let reference = self.repo_folder(repo).join("refs").join(revision);
            std::fs::read_to_string(reference).ok().map(|text| text.trim().to_owned())
        };
        commit.filter(|commit| !commit.is_empty() && commit.chars().all(|c| c.is_ascii_alphanumeric()))
    }

    /// The files of a repository in the cache, including its folders.
    pub(super) fn cached_files(&self, wanted: &HubRepo) -> Vec<String> {
        let Some(commit) = self.commit(&wanted.repo, &wanted.revision) else { return Vec::new() };
        let snapshot = self.repo_folder(&wanted.repo).join("snapshots").join(commit);
        let names = |folder: &Path| -> Vec<String> {
            let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(|entry| entry.ok());
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
        };
        let mut files = Vec::new();
        for name in names(&snapshot) {
            let inside = names(&snapshot.join(&name));
            files.extend(inside.iter().map(|file| format!("{name}/{file}")));
            files.push(name);
        }
        // All shards of a model must be there.
        let whole = |file: &String| {
            HubFile::parse(&format!("{}/{file}@{}", wanted.repo, wanted.revision))
                .is_ok_and(|file| self.cached(&file).is_some())
        };
        files.into_iter().filter(whole).collect()
    }

    pub(super) fn repo_folder(&self, repo: &str) -> PathBuf {
        self.cache.join(format!("models--{}", repo.replace('/', "--")))
    }

    /// The path of the file. Downloads it if it is not in the cache, and always checks it against the sums of
    /// models.toml and the hub.
    ///
    /// An interrupted download resumes where it stopped. A file with a wrong sum is removed.
    ///
    /// # Errors
    /// [`ErrorKind::ModelNotFound`] if the hub has no such file, or [`Hub::offline`] forbids the request;
    /// [`ErrorKind::Hub`] if the download fails, or the sum is wrong; [`ErrorKind::Io`] if the cache cannot be read or
    /// written.
    pub fn pull(&self, file: &HubFile, progress: &mut dyn Progress) -> Result<PathBuf> {
        let mut first = None;
        let files = file.files();
        // Shards must be in one folder: those of other commits, found by their sums, would not be.
        let whole = files.len() == 1;
        for (name, sum) in files {
            let path = match self.cached_file(file, &name, sum.filter(|_| whole)) {
                Some(path) => {
                    verify::cached(&path, &name, sum, progress)?;
                    path
                }
                None => self.fetch(file, &name, sum, progress)?,
            };
            progress.event(ProgressEvent::Done { file: &name });
            first.get_or_insert(path);
        }
        first.ok_or_else(|| Error::new(ErrorKind::ModelNotFound, format!("{file} names no file")))
    }

    fn fetch(&self, file: &HubFile, name: &str, sum: Option<&str>, progress: &mut dyn Progress) -> Result<PathBuf> {
        if self.offline {
            return Err(Error::new(
                ErrorKind::ModelNotFound,
                format!("{} of {} is not in the cache {}", name, file.repo, self.cache.display()),
            )
            .hint(format!("leave out {} (and HF_HUB_OFFLINE) to download it", Setting::Offline)));
        }
        #[cfg(feature = "hub")]
        return super::download::fetch(self, file, name, sum, progress);
        #[cfg(not(feature = "hub"))]
        {
            let _ = (sum, progress);
            Err(Error::new(ErrorKind::Hub, "this build cannot download: it was made without the feature \"hub\"").hint(
                format!("download {}/{}/resolve/{}/{name} and give its path", self.endpoint, file.repo, file.revision),
            ))
        }
    }
}

/// Returns whether `text` is a sha256 in lower-case hexadecimal.
pub(super) fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

fn is_commit(revision: &str) -> bool {
    revision.len() == 40 && revision.bytes().all(|b| b.is_ascii_hexdigit())
}

/// The name of the content of `path` in the cache.
pub(super) fn blob_name(path: &Path) -> Option<String> {
    let blob = std::fs::canonicalize(path).ok()?;
    Some(blob.file_name()?.to_string_lossy().into_owned())
}

pub(super) mod verify {
    //! Compares a file's content with its sum.

    use crate::hash::sha256_of;

    use super::*;

    /// Checks a cached file against `sum`, or else against the name of its blob.
    pub(super) fn cached(path: &Path, name: &str, sum: Option<&str>, progress: &mut dyn Progress) -> Result<()> {
        let blob = blob_name(path).filter(|blob| is_sha256(blob));
        match sum.map(str::to_owned).or(blob) {
            Some(expected) => check(path, name, &expected, progress),
            None => Ok(()),
        }
    }

    /// Fails if the file does not hash to `expected`, and removes the link and its blob.
    pub(in super::super) fn check(path: &Path, name: &str, expected: &str, progress: &mut dyn Progress) -> Result<()> {
        let found = sha256(path, name, progress).map_err(|e| Error::io("read", path, &e))?;
        if found == expected {
            return Ok(());
        }
        if let Ok(blob) = std::fs::canonicalize(path)
            && is_in_cache(path, &blob)
        {
            std::fs::remove_file(&blob).map_err(|e| Error::io("remove", &blob, &e))?;
        }
        if path.symlink_metadata().is_ok() {
            std::fs::remove_file(path).map_err(|e| Error::io("remove", path, &e))?;
        }
        Err(wrong_sum(name, &found, expected).hint(
            "the file was removed; pull it again. If its makers replaced it, the sha256 in models.toml is out of date",
        ))
    }

    /// Returns whether the content of a file in the cache is in the folder of the same repository. A link may lead
    /// anywhere.
    fn is_in_cache(path: &Path, blob: &Path) -> bool {
        let is_repository =
            |folder: &&Path| folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with("models--"));
        let repository = path.ancestors().filter(is_repository).last().and_then(|folder| folder.canonicalize().ok());
        repository.is_some_and(|repository| blob.starts_with(repository))
    }

    pub(in super::super) fn wrong_sum(name: &str, found: &str, expected: &str) -> Error {
        Error::new(
            ErrorKind::Hub,
            format!("{name} does not have the sha256 that it should have\n  expected {expected}\n  found    {found}"),
        )
    }

    fn sha256(path: &Path, name: &str, progress: &mut dyn Progress) -> std::io::Result<String> {
        let file = std::fs::File::open(path)?;
        let total = file.metadata()?.len();
        sha256_of(file, &mut |done| progress.event(ProgressEvent::Verify { file: name, done, total }))
    }
}
