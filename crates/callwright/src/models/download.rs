//! Downloads from the hub with hf-hub, which knows its addresses, its token and its cache, and has the client that asks.
//!
//! A hub is not trusted, nor is a proxy before it: hf-hub 0.5 asks a second time when it downloads, and takes names of files from
//! that answer, wherever they lead. So what is asked, and what is written, is decided here: one answer is checked, and only what it
//! says is downloaded. Redirects are followed here too, because hf-hub sends the token along.
//!
//! A connection may break, and the process may end: the part that is there is kept, and the download goes on after it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use hf_hub::api::RepoInfo;
use hf_hub::api::sync::{ApiBuilder, ApiRepo};
use hf_hub::{Cache, CacheRepo, Repo, RepoType};
use ureq::Body;
use ureq::http::header::{AUTHORIZATION, CONTENT_RANGE, ETAG, LOCATION, RANGE};
use ureq::http::{HeaderMap, Response, Uri};

use super::hub::{Hub, HubFile, Progress, ProgressEvent, is_sha256, verify};
use super::repo::HubRepo;
use crate::error::{Error, ErrorKind, Result, nearest};
use crate::setting::Setting;

/// Maximum number of consecutive retries without a new byte.
const MAX_FAILURES: u32 = 4;
/// Maximum number of redirects of one request.
const REDIRECTS: usize = 10;
/// How long the hub may take for a connection, for an answer, and between two pieces of it.
const PATIENCE: Duration = Duration::from_secs(60);
/// The largest list of a repository's files.
const LIST: u64 = 10 << 20;

struct Download<'a> {
    hub: &'a Hub,
    file: &'a HubFile,
    name: &'a str,
    endpoint: Uri,
    repo: ApiRepo,
    cache: CacheRepo,
}

/// What the hub says of a file.
struct Metadata {
    commit: String,
    etag: String,
    size: u64,
}

/// An answer, after all redirects.
struct Answer {
    response: Response<Body>,
    /// The file's commit and tag, as the first answer has them that says so.
    file: Option<(String, String)>,
}

/// Why there is no answer.
enum Failed {
    Status(u16),
    /// It is not what a hub sends.
    Strange(String),
    Locked,
    Io(io::Error),
    Request(ureq::Error),
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Failed {
        Failed::Io(error)
    }
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
    download.files().map_err(|error| match error {
        Failed::Status(404) => {
            let HubFile { repo, revision, .. } = &file;
            Error::new(ErrorKind::ModelNotFound, format!("there is no {repo} at {revision} on {}", hub.endpoint))
                .hint("look for the repository's name on its page")
        }
        _ => download.explain(&error),
    })
}

impl<'a> Download<'a> {
    fn new(hub: &'a Hub, file: &'a HubFile, name: &'a str) -> Result<Download<'a>> {
        let cache = Cache::new(hub.cache.clone());
        let builder = ApiBuilder::from_cache(cache.clone())
            .with_endpoint(hub.endpoint.clone())
            .with_token(hub.token.clone())
            .with_user_agent("callwright", env!("CARGO_PKG_VERSION"));
        let cannot = |why: String| Error::new(ErrorKind::Hub, format!("cannot reach the hub: {why}"));
        let api = builder.build().map_err(|e| cannot(e.to_string()))?;
        let endpoint: Uri = hub.endpoint.parse().map_err(|e| cannot(format!("{}: {e}", hub.endpoint)))?;
        let repo = Repo::with_revision(file.repo.clone(), RepoType::Model, file.revision.clone());
        Ok(Download { hub, file, name, endpoint, repo: api.repo(repo.clone()), cache: cache.repo(repo) })
    }

    fn run(&self, sum: Option<&str>, progress: &mut dyn Progress) -> Result<PathBuf> {
        let metadata = self.metadata().map_err(|e| self.explain(&e))?;
        let published = Some(metadata.etag.as_str()).filter(|etag| is_sha256(etag));
        if let (Some(sum), Some(published)) = (sum, published)
            && sum != published
        {
            return Err(verify::wrong_sum(&format!("{} on the hub", self.name), published, sum)
                .hint("its makers replaced the file: update sha256 (and revision) in models.toml"));
        }
        let expected = sum.or(published);
        let blob = self.cache.blob_path(&metadata.etag);
        let pointer = self.cache.pointer_path(&metadata.commit).join(self.name);
        if length(&blob) == metadata.size {
            let path = self.link(&blob, &pointer, &metadata)?;
            if let Some(expected) = expected
                && let Err(e) = verify::check(&path, self.name, expected, progress)
            {
                // If the file is not a link to the blob, `check` could not find the blob.
                let _ = fs::remove_file(&blob);
                return Err(e);
            }
            return Ok(path);
        }
        let part = blob.with_extension("part");
        self.transfer(&part, &metadata, progress)?;
        if let Some(expected) = expected {
            verify::check(&part, self.name, expected, progress)?;
        }
        fs::rename(&part, &blob).map_err(|e| Error::io("rename", &part, &e))?;
        self.link(&blob, &pointer, &metadata)
    }

    /// Returns what the hub says of the file. Only what is said here is downloaded.
    fn metadata(&self) -> std::result::Result<Metadata, Failed> {
        let Answer { response, file } = self.get(&self.repo.url(self.name), Some("bytes=0-0"))?;
        let (commit, etag) = file.ok_or_else(|| Failed::Strange("the header x-repo-commit is missing".to_owned()))?;
        // Both become file names.
        let plain =
            |text: &str| (1..=128).contains(&text.len()) && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        if !plain(&etag) || !plain(&commit) {
            return Err(Failed::Strange("its headers are not the hub's".to_owned()));
        }
        Ok(Metadata { commit, etag, size: range(response.headers())?.1 })
    }

    /// The names of the files in the repository.
    fn files(&self) -> std::result::Result<Vec<String>, Failed> {
        let address = self.repo.info_request().uri_ref().map(Uri::to_string).unwrap_or_default();
        let mut body = self.get(&address, None)?.response.into_body();
        let info: RepoInfo = body.with_config().limit(LIST).read_json().map_err(Failed::Request)?;
        Ok(info.siblings.into_iter().map(|file| file.rfilename).collect())
    }

    /// Asks for an address, and follows redirects. The token goes to the hub itself and to nobody else.
    fn get(&self, address: &str, range: Option<&str>) -> std::result::Result<Answer, Failed> {
        let strange = |what: String| Err(Failed::Strange(what));
        let mut address: Uri = match address.parse() {
            Ok(address) => address,
            Err(error) => return strange(format!("{address} is no address: {error}")),
        };
        let mut file = None;
        for _ in 0..=REDIRECTS {
            let mut request = self
                .repo
                .info_request()
                .uri(address.clone())
                .config()
                .max_redirects(0)
                .max_redirects_will_error(false)
                .http_status_as_error(false)
                .timeout_connect(Some(PATIENCE))
                .timeout_recv_response(Some(PATIENCE))
                .timeout_per_read(Some(PATIENCE))
                .build();
            if let Some(headers) = request.headers_mut()
                && !is_same_host(&address, &self.endpoint)
            {
                headers.remove(AUTHORIZATION);
            }
            request = range.into_iter().fold(request, |request, range| request.header(RANGE, range));
            let response = request.call().map_err(Failed::Request)?;
            file = file.or_else(|| described(response.headers()));
            let status = response.status().as_u16();
            match response.headers().get(LOCATION).filter(|_| matches!(status, 301 | 302 | 303 | 307 | 308)) {
                None if (200..300).contains(&status) => return Ok(Answer { response, file }),
                None => return Err(Failed::Status(status)),
                Some(location) => {
                    let next = location.to_str().ok().and_then(|location| joined(&address, location));
                    let Some(next) = next else { return strange(format!("it redirects to {location:?}")) };
                    if address.scheme_str() == Some("https") && next.scheme_str() != Some("https") {
                        return strange(format!("it redirects from https to {next}"));
                    }
                    address = next;
                }
            }
        }
        strange(format!("it redirects more than {REDIRECTS} times"))
    }

    /// Downloads all of the content into a file.
    fn transfer(&self, part: &Path, metadata: &Metadata, progress: &mut dyn Progress) -> Result<()> {
        let folder = part.parent().unwrap_or(part);
        fs::create_dir_all(folder).map_err(|e| Error::io("create", folder, &e))?;
        // As hf-hub does, so that programs that use it wait for one another.
        let _lock = lock(&part.with_extension("lock")).map_err(|e| self.explain(&e))?;
        let mut failures = 0;
        loop {
            let before = length(part);
            self.prepare(part, metadata.size)?;
            let error = match self.go_on(part, metadata, progress) {
                Ok(()) if length(part) == metadata.size => return Ok(()),
                Ok(()) => "the connection closed early".to_owned(),
                Err(e) if is_transient(&e) => reason(&e),
                Err(e) => return Err(self.explain(&e)),
            };
            failures = if length(part) > before { 1 } else { failures + 1 };
            if failures > MAX_FAILURES {
                return Err(self.fail(&error).hint("the downloaded part is kept: run the same command to resume"));
            }
            progress.event(ProgressEvent::Retry { file: self.name, reason: &error });
            std::thread::sleep(self.hub.retry_pause * (1 << (failures - 1)));
        }
    }

    /// Appends what is left of the content.
    fn go_on(&self, part: &Path, metadata: &Metadata, progress: &mut dyn Progress) -> std::result::Result<(), Failed> {
        let mut out = OpenOptions::new().append(true).create(true).open(part)?;
        let mut done = out.metadata()?.len();
        let Answer { response, file } = self.get(&self.repo.url(self.name), Some(&format!("bytes={done}-")))?;
        if file.is_some_and(|(_, etag)| etag != metadata.etag) {
            return Err(Failed::Strange("the file has changed since the download began".to_owned()));
        }
        if range(response.headers())? != (done, metadata.size) {
            return Err(Failed::Strange("it sends another part of the file than the one asked for".to_owned()));
        }
        let mut content = response.into_body().into_reader();
        let mut buffer = vec![0; 64 << 10];
        loop {
            progress.event(ProgressEvent::Download { file: self.name, done, total: metadata.size });
            let read = match content.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            if done + read as u64 > metadata.size {
                return Err(Failed::Strange(format!("it sends more than the {} bytes of the file", metadata.size)));
            }
            out.write_all(&buffer[..read])?;
            done += read as u64;
        }
    }

    /// Prepares a `.part` after which the download can go on.
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
        self.cache.create_ref(&metadata.commit).map_err(|e| Error::io("write", &self.hub.cache, &e))?;
        Ok(pointer.to_owned())
    }

    fn fail(&self, why: &str) -> Error {
        let HubFile { repo, .. } = self.file;
        let message = format!("cannot download {} of {repo} from {}: {why}", self.name, self.hub.endpoint);
        Error::new(ErrorKind::Hub, message)
    }

    fn explain(&self, error: &Failed) -> Error {
        let (endpoint, repo, revision) = (&self.hub.endpoint, &self.file.repo, &self.file.revision);
        let page = format!("{endpoint}/{repo}");
        match error {
            Failed::Status(401 | 403) if self.hub.token.is_some() => self
                .fail("the token has no access to this repository")
                .hint(format!("accept the model's terms at {page} with the account that HF_TOKEN belongs to")),
            Failed::Status(401 | 403) => self
                .fail("the repository is private, gated, or does not exist")
                .hint(format!("look at {page}; if it is gated, accept its terms there and set HF_TOKEN")),
            Failed::Status(404) => {
                let message = format!("there is no {} in {repo} at {revision} on {endpoint}", self.name);
                Error::new(ErrorKind::ModelNotFound, message).hint(self.others().unwrap_or(format!("look at {page}")))
            }
            Failed::Status(429) => {
                self.fail("too many requests").hint("wait a while; a token in HF_TOKEN raises the limit")
            }
            Failed::Status(code) if *code >= 500 => {
                self.fail(&format!("the server failed ({code})")).hint("try again later")
            }
            Failed::Status(code) => self.fail(&format!("the server answered with status {code}")),
            Failed::Locked => self.fail("another process is downloading it").hint("wait for that download to end"),
            Failed::Io(error) => self.fail(&error.to_string()),
            Failed::Strange(what) => self
                .fail(&format!("it does not answer as the hub does ({what})"))
                .hint("check HF_ENDPOINT, and whether a proxy or login page answers instead"),
            Failed::Request(error) => self.fail(&error.to_string()).hint(format!(
                "check the connection and HF_ENDPOINT; {} uses only what is in the cache",
                Setting::Offline
            )),
        }
    }

    /// Returns what the repository has instead of the requested file.
    fn others(&self) -> Option<String> {
        let files = self.files().ok()?;
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

/// The commit and the tag of a file, in the headers of an answer that has them.
fn described(headers: &HeaderMap) -> Option<(String, String)> {
    let text = |value: Option<&ureq::http::HeaderValue>| value?.to_str().ok().map(|text| text.replace('"', ""));
    let etag = headers.get("x-linked-etag").or_else(|| headers.get(ETAG));
    Some((text(headers.get("x-repo-commit"))?, text(etag)?))
}

/// The first byte of an answer's content in the whole, and the size of that: `bytes 0-99/1000`.
fn range(headers: &HeaderMap) -> std::result::Result<(u64, u64), Failed> {
    let text = headers.get(CONTENT_RANGE).and_then(|value| value.to_str().ok());
    let text = text.ok_or_else(|| Failed::Strange("the header content-range is missing".to_owned()))?;
    let read = || {
        let (bytes, size) = text.strip_prefix("bytes ")?.split_once('/')?;
        Some((bytes.split_once('-')?.0.parse().ok()?, size.parse().ok()?))
    };
    read().ok_or_else(|| Failed::Strange(format!("the header content-range is {text:?}")))
}

/// Where a redirect leads to.
fn joined(from: &Uri, location: &str) -> Option<Uri> {
    let (scheme, authority) = (from.scheme_str()?, from.authority()?);
    let whole = match location {
        _ if location.starts_with("http://") || location.starts_with("https://") => location.to_owned(),
        _ if location.starts_with("//") => format!("{scheme}:{location}"),
        _ if location.starts_with('/') => format!("{scheme}://{authority}{location}"),
        _ => return None,
    };
    whole.parse().ok()
}

fn is_same_host(one: &Uri, other: &Uri) -> bool {
    let port = |uri: &Uri| uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
    let host = |uri: &Uri| uri.host().map(str::to_ascii_lowercase);
    (one.scheme_str(), host(one), port(one)) == (other.scheme_str(), host(other), port(other))
}

/// Keeps other processes from downloading the same file. The lock ends with the file.
fn lock(path: &Path) -> std::result::Result<File, Failed> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
    for _ in 0..5 {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(fs::TryLockError::WouldBlock) => std::thread::sleep(Duration::from_secs(1)),
            // Some file systems have no locks.
            Err(fs::TryLockError::Error(_)) => return Ok(file),
        }
    }
    Err(Failed::Locked)
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

fn is_transient(error: &Failed) -> bool {
    match error {
        Failed::Io(e) => !matches!(
            e.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
        ),
        Failed::Request(_) => true,
        Failed::Status(code) => *code == 429 || *code >= 500,
        Failed::Strange(_) | Failed::Locked => false,
    }
}

fn reason(error: &Failed) -> String {
    match error {
        Failed::Request(e) => e.to_string(),
        Failed::Io(e) => e.to_string(),
        Failed::Status(code) => format!("http status: {code}"),
        Failed::Strange(what) => what.clone(),
        Failed::Locked => "another process is downloading it".to_owned(),
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
