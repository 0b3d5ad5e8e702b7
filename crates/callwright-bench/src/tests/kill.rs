//! A run that is killed again and again loses nothing and asks nothing twice.

use super::fake::{Fake, configuration};
use super::runs::make;
use crate::directory::{Plan, RunDirectory};
use crate::run::{Answerer, run};
use crate::suite::Suite;
use crate::summary::Summary;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

const CASES: usize = 200;
const KILLS: usize = 50;
/// Names the directory to the process that is killed.
const DIRECTORY: &str = "CALLWRIGHT_KILLED_RUN";

fn suite() -> Suite {
    Suite::builtin().unwrap().limited(CASES)
}

/// Not a test by itself: what the test below starts and kills.
#[test]
#[ignore = "started by a_run_that_is_killed_loses_nothing"]
fn a_run_to_be_killed() {
    let Some(path) = std::env::var_os(DIRECTORY) else { return };
    let suite = suite();
    let plan = Plan::new(&suite, vec![configuration("fake.gguf", 0.0)], 1);
    let mut directory = RunDirectory::start(Path::new(&path), plan, &suite, true).unwrap();
    let mut open = |_: usize, _: usize| {
        let fake = Fake { delay: Duration::from_millis(4), right: 6, seconds: 0.0 };
        Ok(vec![Box::new(fake) as Box<dyn Answerer>])
    };
    assert!(run(&mut directory, &mut open, &mut |_| (), &AtomicBool::new(false)).unwrap());
    Summary::new(&directory).unwrap().write_reports().unwrap();
}

fn start(path: &Path) -> std::process::Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "tests::kill::a_run_to_be_killed"])
        .env(DIRECTORY, path)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn a_run_that_is_killed_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (killed, whole) = (folder.path().join("killed"), folder.path().join("whole"));
    let journal = killed.join("samples.jsonl");
    let size = || std::fs::metadata(&journal).map_or(0, |metadata| metadata.len());
    let mut random = 1u64;
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    let mut damaged = 0;
    for kill in 0..KILLS {
        let mut child = start(&killed);
        let before = size();
        // A few answers later, or before the first one, or while the directory is made.
        let (answers, delay) = (next(4), Duration::from_micros(next(9000)));
        let started = Instant::now();
        while size() < before + answers * 400 && child.try_wait().unwrap().is_none() {
            assert!(started.elapsed() < Duration::from_secs(60), "the run does not go on");
            std::thread::sleep(Duration::from_micros(200));
        }
        std::thread::sleep(delay);
        assert!(child.try_wait().unwrap().is_none(), "kill {kill}: the run was over after {} bytes", size());
        child.kill().unwrap();
        child.wait().unwrap();
        // A kernel does not stop in the middle of a short write; a disk that was full does.
        if kill % 5 == 4 && size() > 300 {
            let file = std::fs::OpenOptions::new().write(true).open(&journal).unwrap();
            let cut = 1 + next(200);
            file.set_len(size() - cut).unwrap();
            damaged += 1;
        }
    }
    assert!(damaged > 5);
    assert!(start(&killed).wait().unwrap().success());
    let read = RunDirectory::open(&killed).unwrap();
    assert_eq!(read.samples.len(), CASES);
    assert_eq!(read.samples.iter().map(|sample| sample.key()).collect::<BTreeSet<_>>().len(), CASES);
    assert_eq!(std::fs::read_to_string(&journal).unwrap().lines().count(), CASES);

    let directory = make(&whole, &suite(), &[0.0], 1, 6, None);
    Summary::new(&directory).unwrap().write_reports().unwrap();
    for file in ["report.md", "report.json", "outcomes.jsonl", "junit.xml", "report.html"] {
        let text = |folder: &Path| std::fs::read_to_string(folder.join(file)).unwrap();
        assert!(text(&killed) == text(&whole), "{file} differs");
    }
}
