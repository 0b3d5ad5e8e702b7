//! A run split over machines, and merged.

use super::fake::{Fake, configuration};
use super::runs::make;
use super::scores::cases;
use crate::configuration::Configuration;
use crate::directory::{Plan, RunDirectory};
use crate::report::{html, json, junit, markdown};
use crate::run::{Answerer, Progress, run};
use crate::sample::{Sample, Timing};
use crate::shard::{Shard, merge};
use crate::suite::Suite;
use crate::summary::Summary;
use callwright::engine::sampler::Sampling;
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn plan(suite: &Suite, shard: &str) -> Plan {
    let configurations = [0.0, 0.5].map(|temperature| configuration("fake.gguf", temperature));
    let mut plan = Plan::new(suite, configurations.to_vec(), 2);
    plan.shard = Some(shard.parse().unwrap());
    plan.command = ["callwright", "bench", "--shard", shard].map(str::to_owned).to_vec();
    plan
}

/// Asks the shard's cases, or only some answers and then again with `stop`.
fn ask(path: &Path, plan: Plan, suite: &Suite, stop: Option<usize>) -> RunDirectory {
    let mut directory = RunDirectory::start(path, plan, suite, true).unwrap();
    let cancel = AtomicBool::new(false);
    let mut progress = |at: Progress| cancel.store(stop == Some(at.fresh), Ordering::Relaxed);
    let mut open = |_: usize, _: usize| {
        Ok(vec![Box::new(Fake { delay: Duration::ZERO, right: 6, seconds: 0.0 }) as Box<dyn Answerer>])
    };
    assert_eq!(run(&mut directory, &mut open, &mut progress, &cancel).unwrap(), stop.is_none());
    directory
}

fn shards(folder: &Path, suite: &Suite, count: usize) -> Vec<RunDirectory> {
    let one = |index| {
        let path = folder.join(format!("shard {index} of {count}"));
        ask(&path, plan(suite, &format!("{index}/{count}")), suite, None)
    };
    (1..=count).map(one).collect()
}

fn merged(runs: &[RunDirectory], out: &Path) -> callwright::Result<RunDirectory> {
    merge(runs, out, |command| command[..2].to_vec())
}

/// The reports, and the journals; only the timing of an answer depends on what the process has asked before.
fn files(run: &RunDirectory) -> HashMap<&'static str, String> {
    let summary = Summary::new(run).unwrap();
    let read = |name: &str| std::fs::read_to_string(run.path().join(name)).unwrap();
    let untimed = |line: &str| {
        let sample: Sample = serde_json::from_str(line).unwrap();
        serde_json::to_string(&Sample { timing: Timing::default(), ..sample }).unwrap() + "\n"
    };
    HashMap::from([
        ("samples.jsonl", read("samples.jsonl").lines().map(untimed).collect()),
        ("prompts.jsonl", read("prompts.jsonl")),
        ("suite.jsonl", read("suite.jsonl")),
        ("report.json", json::report(&summary)),
        ("outcomes.jsonl", json::outcomes(&summary)),
        ("report.md", markdown(&summary).unwrap()),
        ("junit.xml", junit(&summary)),
        ("report.html", html(&summary).unwrap()),
    ])
}

#[test]
fn merged_shards_are_the_run_of_one_process() {
    let folder = tempfile::tempdir().unwrap();
    let suite = Suite::builtin().unwrap().limited(50);
    let mut whole = make(&folder.path().join("whole"), &suite, &[0.0, 0.5], 2, 6, None);
    whole.plan.command = ["callwright", "bench"].map(str::to_owned).to_vec();
    let expected = files(&whole);
    for count in [1, 2, 3, 7, 50] {
        let mut runs = shards(folder.path(), &suite, count);
        let sizes: Vec<usize> = runs.iter().map(|run| run.samples.len()).collect();
        assert_eq!(sizes.iter().sum::<usize>(), 200);
        assert!(sizes.iter().all(|size| *size > 0 && size.abs_diff(sizes[0]) <= 4), "{sizes:?}");
        // In any order.
        runs.reverse();
        let merged = merged(&runs, &folder.path().join(format!("merged {count}"))).unwrap();
        let merged = RunDirectory::open(merged.path()).unwrap();
        assert_eq!((merged.plan.clone(), merged.lacking()), (whole.plan.clone(), 0));
        for (name, text) in files(&merged) {
            assert!(text == expected[name], "{count} shards: {name} differs");
        }
    }
}

#[test]
fn cases_with_the_same_tools_are_together_unless_shards_would_differ_in_size() {
    let tools = |number: usize| format!("[{{\"name\": \"tool_{number}\"}}]");
    let suite = |groups: &[usize]| {
        let lines = groups.iter().enumerate().flat_map(|(group, count)| {
            (0..*count).map(move |_| format!("{{\"prompt\": \"x\", \"tools\": {}, \"expected\": []}}\n", tools(group)))
        });
        Suite::from_text("groups", &lines.collect::<String>(), Path::new("groups.jsonl")).unwrap()
    };
    let counts = |shard: &str, suite: &Suite| {
        let mut counts: Vec<(usize, usize)> = Vec::new();
        for (group, _) in shard.parse::<Shard>().unwrap().cases(&suite.cases) {
            match counts.last_mut() {
                Some((last, count)) if *last == group => *count += 1,
                _ => counts.push((group, 1)),
            }
        }
        counts
    };
    let small = suite(&[3; 8]);
    assert_eq!(counts("1/2", &small), [(0, 3), (2, 3), (4, 3), (6, 3)]);
    assert_eq!(counts("2/2", &small), [(1, 3), (3, 3), (5, 3), (7, 3)]);
    let one = suite(&[40]);
    assert_eq!((counts("1/2", &one), counts("2/2", &one)), (vec![(0, 20)], vec![(0, 20)]));
}

#[test]
fn an_interrupted_shard_goes_on_as_the_same_shard() {
    let folder = tempfile::tempdir().unwrap();
    let suite = cases();
    let path = folder.path().join("one");
    let there = ask(&path, plan(&suite, "1/2"), &suite, Some(3));
    assert_eq!((there.samples.len(), there.lacking()), (3, 9));
    drop(there);
    let other = RunDirectory::start(&path, plan(&suite, "2/2"), &suite, true).unwrap_err().to_string();
    assert!(other.contains("differs in the shard"), "{other}");
    let two = ask(&folder.path().join("two"), plan(&suite, "2/2"), &suite, None);
    let out = folder.path().join("out");
    let runs = [RunDirectory::open(&path).unwrap(), two];
    let error = merged(&runs, &out).unwrap_err().to_string();
    assert!(error.contains("one lacks 9 of its 12 answers") && error.contains("bench --resume"), "{error}");
    assert!(!out.exists());
    let [_, two] = runs;
    let one = ask(&path, plan(&suite, "1/2"), &suite, None);
    let report = markdown(&Summary::new(&one).unwrap()).unwrap();
    assert!(report.contains("This is shard 1 of 2: it has 3 of the cases."), "{report}");
    let report: serde_json::Value = serde_json::from_str(&json::report(&Summary::new(&one).unwrap())).unwrap();
    assert_eq!((&report["shard"], &report["missing"]), (&"1/2".into(), &0.into()));
    assert_eq!(merged(&[one, two], &out).unwrap().samples.len(), 24);
    let again = merged(&[], &folder.path().join("nothing")).unwrap_err().to_string();
    assert!(again.contains("there are no shards to merge"), "{again}");
    let taken = merged(&[RunDirectory::open(&path).unwrap()], &out).unwrap_err().to_string();
    assert!(taken.contains("there is a run in"), "{taken}");
}

#[test]
fn a_sample_of_another_shard_is_none_of_this_run() {
    let folder = tempfile::tempdir().unwrap();
    let suite = cases();
    let runs = shards(folder.path(), &suite, 2);
    let foreign = std::fs::read_to_string(runs[1].path().join("samples.jsonl")).unwrap();
    std::fs::write(runs[0].path().join("samples.jsonl"), foreign).unwrap();
    let error = RunDirectory::open(runs[0].path()).unwrap_err().to_string();
    assert!(error.contains("samples.jsonl:1: the sample of "), "{error}");
}

#[test]
fn shards_that_are_missing_or_there_twice_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let suite = cases();
    let runs = shards(folder.path(), &suite, 4);
    let merge_of = |indices: &[usize]| {
        let open = |index: &usize| RunDirectory::open(runs[*index].path()).unwrap();
        let runs: Vec<RunDirectory> = indices.iter().map(open).collect();
        merged(&runs, &folder.path().join("out")).unwrap_err().to_string()
    };
    assert!(merge_of(&[0, 1, 3]).contains("shard 3 of 4 is missing"), "{}", merge_of(&[0, 1, 3]));
    assert!(merge_of(&[1]).contains("the shards 1, 3, 4 of 4 are missing"), "{}", merge_of(&[1]));
    let twice = merge_of(&[0, 1, 1, 2, 3]);
    assert!(twice.contains("shard 2 of 4 is there 2 times: in ") && twice.contains("name each shard once"), "{twice}");
    let whole = make(&folder.path().join("whole"), &suite, &[0.0, 0.5], 2, 6, None);
    let [first, ..] = runs.as_slice() else { unreachable!("there are four") };
    for pair in [[first, &whole], [&whole, first]] {
        let pair = pair.map(|run| RunDirectory::open(run.path()).unwrap());
        let error = merged(&pair, &folder.path().join("out")).unwrap_err().to_string();
        assert!(error.contains("whole is no shard") && error.contains("--shard I/N"), "{error}");
    }
    assert!(!folder.path().join("out").exists());
}

#[test]
fn shards_of_different_runs_are_refused_with_what_differs() {
    let folder = tempfile::tempdir().unwrap();
    let suite = cases();
    let first = ask(&folder.path().join("first"), plan(&suite, "1/2"), &suite, None);
    let mut number = 0;
    let mut refused = |plan: Plan, suite: &Suite| {
        number += 1;
        let path = folder.path().join(format!("other-{number}"));
        let other = RunDirectory::start(&path, plan, suite, false).unwrap();
        let runs = [RunDirectory::open(first.path()).unwrap(), other];
        merged(&runs, &folder.path().join("out")).unwrap_err().to_string()
    };
    let of = |changed: &dyn Fn(&mut Configuration)| {
        let mut plan = plan(&suite, "2/2");
        let change = |one: &Configuration| {
            let mut one = one.clone();
            changed(&mut one);
            one.identified()
        };
        plan.configurations = plan.configurations.iter().map(change).collect();
        plan
    };
    let with = |set: &dyn Fn(&mut Plan)| {
        let mut plan = plan(&suite, "2/2");
        set(&mut plan);
        plan
    };
    let expected = [
        (of(&|one| one.model = "a/fake.gguf".to_owned()), "model is fake.gguf in ", " and a/fake.gguf in "),
        (
            of(&|one| one.model_sha256 = "0123456789abcdef".to_owned()),
            "the model's SHA-256 is ",
            "and 0123456789ab in ",
        ),
        (of(&|one| one.template_sha256 = "0123".to_owned()), "the template's SHA-256 is ", " and 0123 in "),
        (of(&|one| one.max_tokens = 9), "max-tokens is 512 in ", " and 9 in "),
        (of(&|one| one.sampling = Sampling { seed: 4, ..one.sampling }), "seed is 0 in ", " and 4 in "),
        (
            of(&|one| one.sampling = Sampling { top_k: 3, ..one.sampling }),
            "the other sampling options is ",
            "\"top_k\":3",
        ),
        (with(&|plan| plan.repeat = 3), "repeat is 2 in ", " and 3 in "),
        (with(&|plan| plan.callwright = "0.0.1".to_owned()), "callwright's version is ", " and 0.0.1 in "),
        (with(&|plan| plan.scorer = 99), "the scorer's version is ", " and 99 in "),
        (with(&|plan| plan.shard = "2/3".parse().ok()), "there are 2 shards in ", " and 3 in "),
        (with(&|plan| plan.configurations.reverse()), "the configurations are in another order", ""),
    ];
    for (plan, what, values) in expected {
        let error = refused(plan, &suite);
        assert!(error.contains("are not shards of one run: ") && error.contains("the same options"), "{error}");
        assert!(error.contains(what) && error.contains(values), "{what}: {error}");
    }
    let fewer = suite.clone().limited(4);
    assert!(refused(plan(&fewer, "2/2"), &fewer).contains("one has 6 cases, the other 4"));
    let text = suite.to_text().replacen("\"prompt\"", " \"prompt\"", 1);
    let edited = Suite::from_text("edited", &text, Path::new("edited.jsonl")).unwrap();
    let error = refused(plan(&edited, "2/2"), &edited);
    assert!(error.contains("suite is ") && error.contains("and edited in ") && error.contains("is another"), "{error}");
}

#[test]
fn what_is_no_shard_says_so() {
    for text in ["", "3", "0/4", "1/0", "a/4", "1/4/2", "-1/4"] {
        assert!(text.parse::<Shard>().unwrap_err().starts_with("not I/N"), "{text}");
    }
    assert_eq!("5/4".parse::<Shard>().unwrap_err(), "there is no shard 5 of 4; the last one is 4/4");
    let error = "1/9".parse::<Shard>().unwrap().check(&cases()).unwrap_err().to_string();
    assert!(error.contains("6 cases are too few for 9 shards"), "{error}");
}
