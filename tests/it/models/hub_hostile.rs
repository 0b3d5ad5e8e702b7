//! A hub that means harm, or somebody between it and this machine: nothing is written, linked or deleted outside of the cache, and
//! the token stays with the hub.

use crate::models::hub_server::{Answering, COMMIT, HubServer, REPO, sha256};
use crate::program::{callwright, run};
use callwright::models::{Hub, HubFile};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const FILE: &str = "model-q8_0.gguf";

/// A hub, a cache, and a file beside it that must not change.
struct Setup {
    server: HubServer,
    hub: Hub,
    content: Vec<u8>,
    folder: tempfile::TempDir,
}

impl Setup {
    fn new() -> Setup {
        let content = vec![7; 100_000];
        let server = HubServer::start(&[(FILE, &content)]);
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("victim"), "mine").unwrap();
        let mut hub = Hub::new(folder.path().join("hub"));
        (hub.endpoint, hub.retry_pause) = (server.endpoint.clone(), Duration::from_millis(1));
        hub.token = Some("hf_secret".into());
        Setup { server, hub, content, folder }
    }

    fn answering(
        &self,
        answering: impl FnMut(&str, &std::collections::HashMap<String, String>) -> Option<String> + Send + 'static,
    ) {
        let answering: Answering = Box::new(answering);
        self.server.change(|hub| hub.answering = Some(answering));
    }

    fn pull(&self) -> callwright::Result<PathBuf> {
        self.hub.pull(&HubFile::parse(&format!("{REPO}/{FILE}")).unwrap(), &mut ())
    }

    /// That the pull fails for this reason, and that it left nothing outside of the cache and no file inside.
    fn refuses(&self, why: &str) {
        let error = self.pull().unwrap_err().to_string();
        assert!(error.contains(why), "{why}\n{error}");
        self.is_unharmed();
        let blobs = self.hub.cache.join("models--org--model-GGUF/blobs");
        let written = std::fs::read_dir(blobs).into_iter().flatten().map(|entry| entry.unwrap().path());
        let whole: Vec<PathBuf> = written.filter(|path| path.extension().is_none()).collect();
        assert_eq!(whole, [""; 0].map(PathBuf::from), "{why}");
    }

    fn is_unharmed(&self) {
        let mut names: Vec<_> =
            std::fs::read_dir(self.folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert!(names.iter().all(|name| name == "hub" || name == "victim"), "{names:?}");
        assert_eq!(std::fs::read_to_string(self.victim()).unwrap(), "mine");
    }

    fn victim(&self) -> PathBuf {
        self.folder.path().join("victim")
    }
}

/// Describes the file, and redirects to its content.
fn described(endpoint: &str, commit: &str, etag: &str) -> String {
    format!(
        "HTTP/1.1 302 Found\r\nx-repo-commit: {commit}\r\nx-linked-etag: \"{etag}\"\r\nLocation: {endpoint}/content/{FILE}\r\n\
         Content-Length: 0\r\nConnection: close\r\n\r\n"
    )
}

fn redirect(to: &str) -> String {
    format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
}

fn is_resolve(path: &str) -> bool {
    path.contains("/resolve/")
}

#[test]
fn what_was_checked_is_what_is_downloaded() {
    // In the second answer, a file of the user, in two ways, and another name.
    for number in 0..3 {
        let setup = Setup::new();
        let (endpoint, mut asked) = (setup.server.endpoint.clone(), 0);
        let etag = match number {
            0 => setup.victim().display().to_string(),
            1 => "../../../victim".to_owned(),
            _ => "0".repeat(64),
        };
        setup.answering(move |path, _| {
            asked += usize::from(is_resolve(path));
            (is_resolve(path) && asked > 1).then(|| described(&endpoint, COMMIT, &etag))
        });
        setup.refuses("the file has changed since the download began");
    }
    // Another commit has the same content: the one that was checked counts.
    let setup = Setup::new();
    let (endpoint, etag, mut asked) = (setup.server.endpoint.clone(), sha256(&setup.content), 0);
    setup.answering(move |path, _| {
        asked += usize::from(is_resolve(path));
        (is_resolve(path) && asked > 1).then(|| described(&endpoint, "../../../../victim", &etag))
    });
    let path = setup.pull().unwrap();
    assert!(path.ends_with(Path::new(COMMIT).join(FILE)), "{}", path.display());
    setup.is_unharmed();
}

#[test]
fn names_that_leave_the_cache_are_refused() {
    for (commit, etag) in [
        (COMMIT, "VICTIM"),
        (COMMIT, "../../../victim"),
        (COMMIT, "a/b"),
        (COMMIT, ""),
        ("..", "a"),
        ("../../../../victim", "a"),
        ("a\\b", "a"),
    ] {
        let setup = Setup::new();
        let (endpoint, etag) =
            (setup.server.endpoint.clone(), etag.replace("VICTIM", &setup.victim().display().to_string()));
        setup.answering(move |path, _| is_resolve(path).then(|| described(&endpoint, commit, &etag)));
        setup.refuses("its headers are not the hub's");
    }
    let setup = Setup::new();
    setup.answering(move |path, _| {
        let list = r#"{"siblings": [{"rfilename": "../../../victim.gguf"}], "sha": "x"}"#;
        let length = list.len();
        path.starts_with("/api/").then(|| {
            format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{list}")
        })
    });
    let mut command = callwright(setup.folder.path().join("hub").as_path());
    let ran = run(command.args(["model", "pull", &format!("hf:{REPO}")]).env("HF_ENDPOINT", &setup.server.endpoint));
    assert!(ran.code != 0 && ran.err.contains("cannot be used"), "{}", ran.err);
    setup.is_unharmed();
}

#[test]
fn redirects_end() {
    let setup = Setup::new();
    let mut asked = 0;
    setup.answering(move |path, _| {
        asked += 1;
        assert!(asked <= 11, "{asked} requests");
        is_resolve(path).then(|| redirect(&format!("/org/resolve/{asked}")))
    });
    setup.refuses("it redirects more than 10 times");
    for (to, why) in
        [("file:///etc/passwd", "it redirects to"), ("//[", "it redirects to"), ("next", "it redirects to")]
    {
        let setup = Setup::new();
        setup.answering(move |path, _| is_resolve(path).then(|| redirect(to)));
        setup.refuses(why);
    }
    let setup = Setup::new();
    setup.answering(|_, _| Some("HTTP/1.1 302 Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_owned()));
    setup.refuses("status 302");
}

#[test]
fn the_token_goes_to_the_hub_alone() {
    let setup = Setup::new();
    let elsewhere = HubServer::start(&[(FILE, &setup.content)]);
    let seen: Arc<Mutex<Vec<bool>>> = Arc::default();
    let log = Arc::clone(&seen);
    elsewhere.change(|hub| {
        let log: Answering = Box::new(move |_, headers| {
            log.lock().unwrap().push(headers.contains_key("authorization"));
            None
        });
        hub.answering = Some(log);
    });
    // The same machine by another name, and at another port.
    let other = elsewhere.endpoint.replace("127.0.0.1", "localhost");
    let etag = sha256(&setup.content);
    setup.answering(move |path, headers| {
        assert_eq!(headers.get("authorization").map(String::as_str), Some("Bearer hf_secret"));
        is_resolve(path).then(|| described(&other, COMMIT, &etag))
    });
    assert_eq!(std::fs::read(setup.pull().unwrap()).unwrap(), setup.content);
    assert_eq!(*seen.lock().unwrap(), [false, false]);
}

#[test]
fn no_more_is_written_than_was_announced() {
    let setup = Setup::new();
    setup.answering(|path, headers| {
        let probe = headers.get("range").is_some_and(|range| range == "bytes=0-0");
        (path.starts_with("/content/") && !probe).then(|| {
            let more = "x".repeat(150_000);
            format!("HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-99999/100000\r\nContent-Length: 150000\r\nConnection: close\r\n\r\n{more}")
        })
    });
    setup.refuses("it sends more than the 100000 bytes of the file");
    let part =
        setup.hub.cache.join("models--org--model-GGUF/blobs").join(sha256(&setup.content)).with_extension("part");
    assert!(part.metadata().unwrap().len() <= 100_000);

    for range in
        ["bytes 5-99999/100000", "bytes 0-99999/200000", "bytes 0-9/*", "0-9/10", "bytes 0-99999/100000000000000000000"]
    {
        let setup = Setup::new();
        setup.answering(move |path, headers| {
            let probe = headers.get("range").is_some_and(|range| range == "bytes=0-0");
            (path.starts_with("/content/") && !probe).then(|| {
                format!("HTTP/1.1 206 Partial Content\r\nContent-Range: {range}\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx")
            })
        });
        setup.refuses("it does not answer as the hub does");
    }
}

#[test]
#[cfg(unix)]
fn a_link_out_of_the_cache_is_removed_and_what_it_points_to_stays() {
    let setup = Setup::new();
    let path = setup.pull().unwrap();
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(setup.victim(), &path).unwrap();
    let mut file = HubFile::parse(&format!("{REPO}/{FILE}")).unwrap();
    file.sha256 = vec![sha256(&setup.content)];
    let error = setup.hub.pull(&file, &mut ()).unwrap_err().to_string();
    assert!(error.contains("does not have the sha256"), "{error}");
    assert!(path.symlink_metadata().is_err());
    setup.is_unharmed();
}
