//! Downloads, from a hub that the test runs itself.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use callwright::ErrorKind;
use callwright::models::{Hub, HubFile, Progress, ProgressEvent};

use crate::gguf_builder::GgufBuilder;
use crate::models::hub_server::{COMMIT, HubServer, REPO, sha256};

const FILE: &str = "model-q8_0.gguf";

/// A server with one model, and an empty cache.
struct Setup {
    server: HubServer,
    hub: Hub,
    content: Vec<u8>,
    _cache: tempfile::TempDir,
}

impl Setup {
    fn new() -> Setup {
        let content: Vec<u8> = (0..300_000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        let server = HubServer::start(&[(FILE, &content)]);
        let cache = tempfile::tempdir().unwrap();
        let retry_pause = Duration::from_millis(5);
        let mut hub = Hub::new(cache.path().join("hub"));
        (hub.endpoint, hub.retry_pause) = (server.endpoint.clone(), retry_pause);
        Setup { server, hub, content, _cache: cache }
    }

    fn file(&self) -> HubFile {
        HubFile::parse(&format!("{REPO}/{FILE}")).unwrap()
    }

    fn pull(&self) -> callwright::Result<PathBuf> {
        self.hub.pull(&self.file(), &mut ())
    }

    fn repo_folder(&self) -> PathBuf {
        self.hub.cache.join("models--org--model-GGUF")
    }

    fn part(&self) -> PathBuf {
        self.repo_folder().join("blobs").join(sha256(&self.content)).with_extension("part")
    }

    /// An error's text, without what differs from run to run.
    fn shown(&self, error: &callwright::Error) -> String {
        let text = error.to_string().replace(&self.server.endpoint, "<hub>");
        text.replace(&self.hub.cache.display().to_string(), "<cache>")
    }
}

#[derive(Default)]
struct Log(Vec<String>);

impl Progress for Log {
    fn event(&mut self, event: ProgressEvent<'_>) {
        let line = match event {
            ProgressEvent::Download { done, total, .. } if done < total => "downloading".to_owned(),
            ProgressEvent::Download { done, .. } => format!("downloaded {done}"),
            ProgressEvent::Retry { .. } => "retry".to_owned(),
            ProgressEvent::Verify { done, total, .. } if done < total => "verifying".to_owned(),
            ProgressEvent::Verify { done, .. } => format!("verified {done}"),
            ProgressEvent::Done { file } => format!("done {file}"),
            _ => "another event".to_owned(),
        };
        if self.0.last() != Some(&line) {
            self.0.push(line);
        }
    }
}

#[test]
fn a_download_lands_in_the_standard_cache_and_is_not_repeated() {
    let setup = Setup::new();
    assert_eq!(setup.hub.cached(&setup.file()), None);
    let mut log = Log::default();
    let path = setup.hub.pull(&setup.file(), &mut log).unwrap();
    assert_eq!(path, setup.repo_folder().join("snapshots").join(COMMIT).join(FILE));
    assert_eq!(std::fs::read(&path).unwrap(), setup.content);
    assert_eq!(std::fs::read_to_string(setup.repo_folder().join("refs/main")).unwrap(), COMMIT);
    let done = format!("done {FILE}");
    let expected = ["downloading", "downloaded 1200000", "verifying", "verified 1200000", &done];
    assert_eq!(log.0, expected);

    // Once it is there, no server is asked: not to use it, and not to check it again.
    setup.server.take_requests();
    assert_eq!(setup.hub.cached(&setup.file()), Some(path.clone()));
    let mut log = Log::default();
    assert_eq!(setup.hub.pull(&setup.file(), &mut log).unwrap(), path);
    assert_eq!(log.0, ["verifying", "verified 1200000", &done]);
    let mut by_commit = setup.file();
    by_commit.revision = COMMIT.into();
    assert_eq!(setup.hub.cached(&by_commit), Some(path.clone()));
    assert_eq!(setup.server.take_requests(), [""; 0]);
}

#[test]
fn a_broken_connection_is_taken_up_where_it_broke() {
    let setup = Setup::new();
    setup.server.change(|hub| hub.cuts = vec![600_000]);
    let mut log = Log::default();
    let path = setup.hub.pull(&setup.file(), &mut log).unwrap();
    assert_eq!(std::fs::read(path).unwrap(), setup.content);
    assert_eq!(setup.server.take_ranges(), ["bytes=0-", "bytes=600000-"]);
    assert_eq!(log.0[..3], ["downloading", "retry", "downloading"]);
}

#[test]
fn a_broken_connection_before_the_first_byte_loses_nothing() {
    let setup = Setup::new();
    setup.server.change(|hub| hub.cuts = vec![700_000, 0]);
    let path = setup.pull().unwrap();
    assert_eq!(std::fs::read(path).unwrap(), setup.content);
    assert_eq!(setup.server.take_ranges(), ["bytes=0-", "bytes=700000-", "bytes=700000-"]);
}

#[test]
fn content_that_ends_early_is_not_taken_for_the_whole() {
    let setup = Setup::new();
    setup.server.change(|hub| (hub.cuts, hub.lie_about_length) = (vec![500_000], true));
    let path = setup.pull().unwrap();
    assert_eq!(std::fs::read(path).unwrap(), setup.content);
    assert_eq!(setup.server.take_ranges(), ["bytes=0-", "bytes=500000-"]);
}

#[test]
fn a_failed_download_is_kept_and_goes_on_the_next_time() {
    let setup = Setup::new();
    setup.server.change(|hub| hub.cuts = vec![900_000]);
    // The server breaks off, then refuses to go on.
    let server = setup.server.behaviour.clone();
    struct Refuse<'a>(&'a std::sync::Mutex<crate::models::hub_server::Behaviour>);
    impl Progress for Refuse<'_> {
        fn event(&mut self, event: ProgressEvent<'_>) {
            if matches!(event, ProgressEvent::Retry { .. }) {
                self.0.lock().unwrap().content_status = Some(403);
            }
        }
    }
    let error = setup.hub.pull(&setup.file(), &mut Refuse(&server)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Hub, "{error}");
    assert_eq!(setup.hub.cached(&setup.file()), None);
    assert_eq!(std::fs::metadata(setup.part()).unwrap().len(), 900_000);

    setup.server.change(|hub| hub.content_status = None);
    setup.server.take_requests();
    let path = setup.pull().unwrap();
    assert_eq!(std::fs::read(path).unwrap(), setup.content);
    assert_eq!(setup.server.take_ranges(), ["bytes=900000-"]);
}

#[test]
fn a_part_that_is_whole_or_too_long_does_no_harm() {
    for surplus in [0, 10] {
        let setup = Setup::new();
        std::fs::create_dir_all(setup.part().parent().unwrap()).unwrap();
        let part = [&setup.content[..], &vec![7; surplus]].concat();
        std::fs::write(setup.part(), part).unwrap();
        let path = setup.pull().unwrap();
        assert_eq!(std::fs::read(path).unwrap(), setup.content);
        let expected = if surplus == 0 { "bytes=1199999-" } else { "bytes=0-" };
        assert_eq!(setup.server.take_ranges(), [expected]);
    }
}

#[test]
fn content_of_another_commit_is_not_fetched_again() {
    let setup = Setup::new();
    let path = setup.pull().unwrap();
    let snapshots = setup.repo_folder().join("snapshots");
    let elsewhere = snapshots.join("f".repeat(40));
    std::fs::rename(snapshots.join(COMMIT), &elsewhere).unwrap();
    setup.server.take_requests();

    // With its sum, it is known to be the same file.
    let mut known = setup.file();
    known.sha256 = vec![sha256(&setup.content)];
    assert_eq!(setup.hub.cached(&known), Some(elsewhere.join(FILE)));
    // Without, the hub says so.
    assert_eq!(setup.pull().unwrap(), path);
    assert_eq!(std::fs::read(&path).unwrap(), setup.content);
    assert_eq!(setup.server.take_ranges(), [""; 0]);
}

#[test]
fn a_wrong_checksum_is_reported_before_the_download_where_the_hub_publishes_one() {
    let setup = Setup::new();
    let mut file = setup.file();
    file.sha256 = vec!["0".repeat(64)];
    let error = setup.hub.pull(&file, &mut ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Hub);
    assert_eq!(setup.server.take_ranges(), [""; 0]);
    insta::assert_snapshot!(setup.shown(&error));
}

#[test]
fn content_with_a_wrong_sum_is_removed() {
    let setup = Setup::new();
    let git_tag = "00112233445566778899aabbccddeeff00112233";
    // Once against the sum that the hub publishes, once against that of models.toml.
    for (tag, sums) in [("1".repeat(64), vec![]), (git_tag.to_owned(), vec!["2".repeat(64)])] {
        setup.server.change(|hub| {
            hub.etags.insert(FILE.into(), tag.clone());
        });
        let mut file = setup.file();
        file.sha256 = sums.clone();
        let error = setup.hub.pull(&file, &mut ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Hub, "{error}");
        assert!(error.message().contains(&sha256(&setup.content)), "{error}");
        assert!(error.message().contains(sums.first().unwrap_or(&tag)), "{error}");
        assert_eq!(setup.hub.cached(&file), None);
        assert!(!setup.repo_folder().join("blobs").join(&tag).exists());
    }
    // What the server makes good is fetched without trouble.
    setup.server.change(|hub| hub.etags.clear());
    assert_eq!(std::fs::read(setup.pull().unwrap()).unwrap(), setup.content);
}

#[test]
fn pulling_again_finds_a_file_that_was_spoiled() {
    let setup = Setup::new();
    let path = setup.pull().unwrap();
    let mut spoiled = setup.content.clone();
    spoiled[1000] ^= 1;
    std::fs::write(&path, &spoiled).unwrap();
    let error = setup.pull().unwrap_err();
    assert!(error.message().contains(&sha256(&spoiled)), "{error}");
    assert_eq!(setup.hub.cached(&setup.file()), None);
    assert_eq!(std::fs::read(setup.pull().unwrap()).unwrap(), setup.content);
}

#[test]
fn a_model_in_shards_is_pulled_whole() {
    let first = GgufBuilder::tiny().build();
    let second = vec![3; 5000];
    let server = HubServer::start(&[("m-00001-of-00002.gguf", &first), ("m-00002-of-00002.gguf", &second)]);
    let cache = tempfile::tempdir().unwrap();
    let mut hub = Hub::new(cache.path());
    hub.endpoint = server.endpoint.clone();
    let file = HubFile::parse(&format!("{REPO}/m-00002-of-00002.gguf")).unwrap();
    let mut log = Log::default();
    let path = hub.pull(&file, &mut log).unwrap();
    assert!(path.ends_with("m-00001-of-00002.gguf"));
    let other = path.with_file_name("m-00002-of-00002.gguf");
    assert_eq!(std::fs::read(&other).unwrap(), second);
    assert_eq!(log.0.iter().filter(|line| line.starts_with("done")).count(), 2);
    assert_eq!(hub.cached(&file), Some(path));
    std::fs::remove_file(other).unwrap();
    assert_eq!(hub.cached(&file), None);
}

#[test]
fn a_gated_model_needs_the_token() {
    let mut setup = Setup::new();
    setup.server.change(|hub| hub.token = Some("hf_right".into()));
    let mut shown = setup.shown(&setup.pull().unwrap_err());
    setup.hub.token = Some("hf_wrong".into());
    write!(shown, "\n--- with another token\n{}", setup.shown(&setup.pull().unwrap_err())).unwrap();
    assert!(!format!("{:?}", setup.hub).contains("hf_wrong"));
    insta::assert_snapshot!(shown);
    setup.hub.token = Some("hf_right".into());
    assert_eq!(std::fs::read(setup.pull().unwrap()).unwrap(), setup.content);
}

#[test]
fn what_goes_wrong_with_a_hub() {
    let setup = Setup::new();
    let mut shown = String::new();
    let mut pull = |name: &str, hub: &Hub, file: &str| {
        let error = hub.pull(&HubFile::parse(file).unwrap(), &mut ()).unwrap_err();
        writeln!(shown, "--- {name} ({:?})\n{}", error.kind(), setup.shown(&error)).unwrap();
    };
    let right = format!("{REPO}/{FILE}");
    pull("no such file", &setup.hub, &format!("{REPO}/model-q4_0.gguf"));
    pull("nothing like it", &setup.hub, &format!("{REPO}/something-quite-different.gguf"));
    pull("no such repository", &setup.hub, &format!("org/other/{FILE}"));
    let mut offline = setup.hub.clone();
    offline.offline = true;
    setup.server.take_requests();
    pull("offline", &offline, &right);
    assert_eq!(setup.server.take_requests(), [""; 0]);
    for code in [429, 503, 418] {
        setup.server.change(|hub| hub.status = Some(code));
        pull(&format!("status {code}"), &setup.hub, &right);
    }
    setup.server.change(|hub| (hub.status, hub.page) = (None, Some("<html>Please log in</html>")));
    pull("a login page", &setup.hub, &right);
    setup.server.change(|hub| hub.page = None);
    setup.server.change(|hub| {
        hub.etags.insert(FILE.into(), "../../../escape".into());
    });
    pull("a name that leaves the cache", &setup.hub, &right);
    insta::assert_snapshot!(shown);
}

#[test]
fn a_connection_that_keeps_breaking_is_given_up() {
    let setup = Setup::new();
    setup.server.change(|hub| hub.cuts = vec![100_000, 0, 0, 0, 0]);
    let mut log = Log::default();
    let error = setup.hub.pull(&setup.file(), &mut log).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Hub);
    assert!(
        error.to_string().ends_with("\nhint: the downloaded part is kept: run the same command to resume"),
        "{error}"
    );
    assert_eq!(setup.server.take_ranges().len(), 5);
}

#[test]
fn a_hub_that_cannot_be_reached() {
    let setup = Setup::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let mut hub = setup.hub.clone();
    hub.endpoint = endpoint.clone();
    let error = hub.pull(&setup.file(), &mut ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Hub);
    // The rest of the sentence is the operating system's.
    let start = format!("cannot download {FILE} of {REPO} from {endpoint}: ");
    assert!(error.message().starts_with(&start), "{error}");
    assert!(error.to_string().contains("hint: check the connection and HF_ENDPOINT"), "{error}");
}

#[test]
fn shards_of_another_commit_are_put_together_without_a_download() {
    let setup = Setup::new();
    let names = ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"];
    let contents = [GgufBuilder::tiny().build(), vec![9; 3000]];
    setup.server.change(|hub| hub.files.extend(names.map(str::to_owned).into_iter().zip(contents.clone())));
    let mut file = HubFile::parse(&format!("{REPO}/{}", names[0])).unwrap();
    file.sha256 = contents.iter().map(|bytes| sha256(bytes)).collect();
    let path = setup.hub.pull(&file, &mut ()).unwrap();
    let elsewhere = setup.repo_folder().join("snapshots").join("e".repeat(40));
    std::fs::create_dir(&elsewhere).unwrap();
    std::fs::rename(path.with_file_name(names[1]), elsewhere.join(names[1])).unwrap();
    assert_eq!(setup.hub.cached(&file), None);
    setup.server.take_requests();
    assert_eq!(setup.hub.pull(&file, &mut ()).unwrap(), path);
    assert_eq!(setup.hub.cached(&file), Some(path));
    assert_eq!(setup.server.take_ranges(), [""; 0]);
}
