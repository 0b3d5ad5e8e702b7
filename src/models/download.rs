//! Downloads from the hub with hf-hub, with recovery from broken connections and processes.
//!
//! hf-hub 0.5 appends to a `.part` file, but alone has three problems. If a connection breaks before the first byte,
//! its own retries request from byte 0 and append the result. A complete `.part` requests a range that does not exist.
//! Content that the cache has under another commit is downloaded again.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

use hf_hub::api::sync::{Api, ApiBuilder, ApiError, ApiRepo, Metadata};
use hf_hub::{Cache, CacheRepo, Repo, RepoType};

use super::hub::{Hub, HubFile, Progress, ProgressEvent, is_sha256, verify};
use super::repo::HubRepo;
use crate::error::{Error, ErrorKind, Result, nearest};

/// Maximum number of consecutive retries without a new byte.
const MAX_FAILURES: u32 = 4;

struct Download<'a> {
    hub: &'a Hub,
    file: &'a HubFile,
    name: &'a str,
    api: Api,
    repo: ApiRepo,
    cache: CacheRepo,
}

/// Downloads the file `name` of the model, checks it, and returns its path in the cache.
pub(super) fn fetch(
    hub: &Hub,
    file: &HubFile,
    name: &str,
    sum: Option<&str>,
    progress: &mut dyn Progress,
) -> Result<PathBuf> {
    Download::new(hub, file, name)?.run(sum, progress)
}

/// The files of a repository.
pub(super) fn list(hub: &Hub, wanted: &HubRepo) -> Result<Vec<String>> {
    let HubRepo { repo, revision, .. } = wanted.clone();
    let file = HubFile { repo, file: String::new(), revision, sha256: Vec::new() };
    let download = Download::new(hub, &file, "the list of files")?;
    let info = download.repo.info().map_err(|error| match status(&error) {
        Some(404) => {
            let HubFile { repo, revision, .. } = &file;
            Error::new(ErrorKind::ModelNotFound, format!("there is no {repo} at {revision} on {}", hub.endpoint))
                .hint("look for the repository's name on its page")
        }
        _ => download.explain(&error),
    })?;
    Ok(info.siblings.into_iter().map(|file| file.rfilename).collect())
}

impl<'a> Download<'a> {
    fn new(hub: &'a Hub, file: &'a HubFile, name: &'a str) -> Result<Download<'a>> {
        let cache = Cache::new(hub.cache.clone());
        let builder = ApiBuilder::from_cache(cache.clone())
            .with_endpoint(hub.endpoint.clone())
            .with_token(hub.token.clone())
            .with_user_agent("callwright", env!("CARGO_PKG_VERSION"));
        let api = builder.build().map_err(|e| Error::new(ErrorKind::Hub, format!("cannot reach the hub: {e}")))?;
        let repo = Repo::with_revision(file.repo.clone(), RepoType::Model, file.revision.clone());
        Ok(Download { hub, file, name, repo: api.repo(repo.clone()), api, cache: cache.repo(repo) })
    }

    fn run(&self, sum: Option<&str>, progress: &mut dyn Progress) -> Result<PathBuf> {
        let metadata = self.api.metadata(&self.repo.url(self.name)).map_err(|e| self.explain(&e))?;
        // Both become file names.
        let plain = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        if !plain(metadata.etag()) || !plain(metadata.commit_hash()) {
            return Err(self.fail("it answers with headers that are not the hub's"));
        }
        let published = Some(metadata.etag()).filter(|etag| is_sha256(etag));
        if let (Some(sum), Some(published)) = (sum, published)
            && sum != published
        {
            return Err(verify::wrong_sum(&format!("{} on the hub", self.name), published, sum)
                .hint("its makers replaced the file: update sha256 (and revision) in models.toml"));
        }
        let path = self.transfer(&metadata, progress)?;
        if let Some(expected) = sum.or(published)
            && let Err(e) = verify::check(&path, self.name, expected, progress)
        {
            // If the file is not a link to the blob, `check` could not find the blob.
            let _ = fs::remove_file(self.cache.blob_path(metadata.etag()));
            return Err(e);
        }
        Ok(path)
    }

    fn transfer(&self, metadata: &Metadata, progress: &mut dyn Progress) -> Result<PathBuf> {
        let blob = self.cache.blob_path(metadata.etag());
        let part = blob.with_extension("part");
        let pointer = self.cache.pointer_path(metadata.commit_hash()).join(self.name);
        let size = metadata.size() as u64;
        if length(&blob) == size {
            return self.link(&blob, &pointer, metadata);
        }
        if !pointer.exists() {
            // A link to a missing blob makes hf-hub fail.
            let _ = fs::remove_file(&pointer);
        }
        let mut failures = 0;
        loop {
            let before = length(&part);
            self.prepare(&part, size)?;
            let mut events = Events { name: self.name, done: 0, total: size, progress: &mut *progress };
            let error = match self.repo.download_with_progress(self.name, &mut events) {
                Ok(path) if length(&path) == size => return Ok(path),
                Ok(path) => {
                    // The server closed the connection early without an error, and hf-hub took the part for the whole.
                    let _ = fs::remove_file(&path);
                    fs::rename(&blob, &part).map_err(|e| Error::io("rename", &blob, &e))?;
                    "the connection closed early".to_owned()
                }
                Err(e) if transient(&e) => reason(&e),
                Err(e) => return Err(self.explain(&e)),
            };
            failures = if length(&part) > before { 1 } else { failures + 1 };
            if failures > MAX_FAILURES {
                return Err(self.fail(&error).hint("the downloaded part is kept: run the same command to resume"));
            }
            progress.event(ProgressEvent::Retry { file: self.name, reason: &error });
            std::thread::sleep(self.hub.retry_pause * (1 << (failures - 1)));
        }
    }

    /// Prepares a `.part` from which hf-hub can resume.
    fn prepare(&self, part: &Path, size: u64) -> Result<()> {
        let length = length(part);
        if length < size || length == 0 {
            return Ok(());
        }
        // One byte less leaves a range to request; a longer file is not the beginning of this one.
        let keep = if length == size { size - 1 } else { 0 };
        let file = OpenOptions::new().write(true).open(part).map_err(|e| Error::io("open", part, &e))?;
        file.set_len(keep).map_err(|e| Error::io("write", part, &e))
    }

    /// Creates the file of this commit from content in the cache.
    fn link(&self, blob: &Path, pointer: &Path, metadata: &Metadata) -> Result<PathBuf> {
        let folder = pointer.parent().unwrap_or(pointer);
        fs::create_dir_all(folder).map_err(|e| Error::io("create", folder, &e))?;
        if !pointer.exists() {
            let _ = fs::remove_file(pointer);
            link_file(blob, pointer, self.name).map_err(|e| Error::io("create", pointer, &e))?;
        }
        self.cache.create_ref(metadata.commit_hash()).map_err(|e| Error::io("write", &self.hub.cache, &e))?;
        Ok(pointer.to_owned())
    }

    fn fail(&self, why: &str) -> Error {
        let HubFile { repo, .. } = self.file;
        let message = format!("cannot download {} of {repo} from {}: {why}", self.name, self.hub.endpoint);
        Error::new(ErrorKind::Hub, message)
    }

    fn explain(&self, error: &ApiError) -> Error {
        let (endpoint, repo, revision) = (&self.hub.endpoint, &self.file.repo, &self.file.revision);
        let page = format!("{endpoint}/{repo}");
        match status(error) {
            Some(401 | 403) if self.hub.token.is_some() => self
                .fail("the token has no access to this repository")
                .hint(format!("accept the model's terms at {page} with the account that HF_TOKEN belongs to")),
            Some(401 | 403) => self
                .fail("the repository is private, gated, or does not exist")
                .hint(format!("look at {page}; if it is gated, accept its terms there and set HF_TOKEN")),
            Some(404) => {
                let message = format!("there is no {} in {repo} at {revision} on {endpoint}", self.name);
                Error::new(ErrorKind::ModelNotFound, message).hint(self.others().unwrap_or(format!("look at {page}")))
            }
            Some(429) => self.fail("too many requests").hint("wait a while; a token in HF_TOKEN raises the limit"),
            Some(code) if code >= 500 => self.fail(&format!("the server failed ({code})")).hint("try again later"),
            Some(code) => self.fail(&format!("the server answered with status {code}")),
            None => match error {
                ApiError::LockAcquisition(_) => {
                    self.fail("another process is downloading it").hint("wait for that download to end")
                }
                ApiError::IoError(e) => self.fail(&e.to_string()),
                ApiError::MissingHeader(_) | ApiError::InvalidHeader(_) | ApiError::ParseIntError(_) => self
                    .fail(&format!("it does not answer as the hub does ({error})"))
                    .hint("check HF_ENDPOINT, and whether a proxy or login page answers instead"),
                _ => self
                    .fail(&reason(error))
                    .hint("check the connection and HF_ENDPOINT; `Hub::offline` uses only what is in the cache"),
            },
        }
    }

    /// What the repository has instead of the requested file.
    fn others(&self) -> Option<String> {
        let files: Vec<String> = self.repo.info().ok()?.siblings.into_iter().map(|file| file.rfilename).collect();
        let ggufs: Vec<&str> = files.iter().map(String::as_str).filter(|name| name.ends_with(".gguf")).collect();
        match nearest(self.name, ggufs.iter().copied()) {
            Some(name) => Some(format!("did you mean {name}?")),
            None if ggufs.is_empty() => Some("the repository has no .gguf file".to_owned()),
            None => {
                let more = if ggufs.len() > 8 { ", …" } else { "" };
                Some(format!("it has {}{more}", ggufs[..ggufs.len().min(8)].join(", ")))
            }
        }
    }
}

/// hf-hub reports how many bytes were received; ours report how many are present.
struct Events<'a> {
    name: &'a str,
    done: u64,
    total: u64,
    progress: &'a mut dyn Progress,
}

impl hf_hub::api::Progress for &mut Events<'_> {
    fn init(&mut self, size: usize, _: &str) {
        self.total = size as u64;
        self.done = 0;
    }

    fn update(&mut self, size: usize) {
        self.done += size as u64;
        let event = ProgressEvent::Download { file: self.name, done: self.done, total: self.total };
        self.progress.event(event);
    }

    fn finish(&mut self) {}
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// The server's status. hf-hub returns ureq's error, whose type we cannot name.
fn status(error: &ApiError) -> Option<u16> {
    match error {
        ApiError::RequestError(e) => e.to_string().strip_prefix("http status: ")?.parse().ok(),
        ApiError::TooManyRetries(e) => status(e),
        _ => None,
    }
}

fn transient(error: &ApiError) -> bool {
    match error {
        ApiError::IoError(e) => !matches!(
            e.kind(),
            std::io::ErrorKind::StorageFull
                | std::io::ErrorKind::PermissionDenied
                | std::io::ErrorKind::ReadOnlyFilesystem
        ),
        ApiError::RequestError(_) => status(error).is_none_or(|code| code == 429 || code >= 500),
        _ => false,
    }
}

fn reason(error: &ApiError) -> String {
    match error {
        ApiError::RequestError(e) => e.to_string(),
        ApiError::IoError(e) => e.to_string(),
        error => error.to_string(),
    }
}

#[cfg(unix)]
fn link_file(blob: &Path, pointer: &Path, name: &str) -> std::io::Result<()> {
    // From snapshots/COMMIT/ up to the repository's folder, then down: relative, so that the cache can be moved as a
    // whole.
    let up = "../".repeat(2 + name.matches('/').count());
    let target = format!("{up}blobs/{}", blob.file_name().unwrap_or_default().to_string_lossy());
    std::os::unix::fs::symlink(target, pointer)
}

#[cfg(not(unix))]
fn link_file(blob: &Path, pointer: &Path, _: &str) -> std::io::Result<()> {
    fs::hard_link(blob, pointer).or_else(|_| fs::copy(blob, pointer).map(|_| ()))
}
