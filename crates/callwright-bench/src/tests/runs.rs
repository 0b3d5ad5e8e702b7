//! Runs: asking, going on, reports, comparing.

use super::fake::{Fake, configuration};
use super::scores::cases;
use crate::compare::{Comparison, compare};
use crate::configuration::{Configuration, labels, short_names};
use crate::directory::{Plan, RunDirectory};
use crate::export::export;
use crate::report::matrix::write_matrix;
use crate::report::{html, json, junit, markdown};
use crate::run::{Answer, Answerer, Progress, run};
use crate::suite::{Case, Suite};
use crate::summary::{Summary, rescored};
use crate::verdict::{sentence, verdict};
use callwright::session::ToolChoice;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn fake(right: u64, seconds: f64) -> impl FnMut(usize, usize) -> callwright::Result<Vec<Box<dyn Answerer>>> {
    move |_, _| Ok(vec![Box::new(Fake { delay: Duration::ZERO, right, seconds })])
}

/// A run in `path`, ended after `stop` answers if that is given.
pub(crate) fn make(
    path: &Path,
    suite: &Suite,
    temperatures: &[f32],
    repeat: usize,
    right: u64,
    stop: Option<usize>,
) -> RunDirectory {
    let configurations = temperatures.iter().map(|temperature| configuration("fake.gguf", *temperature)).collect();
    make_with(path, suite, configurations, repeat, right, stop)
}

fn make_with(
    path: &Path,
    suite: &Suite,
    configurations: Vec<Configuration>,
    repeat: usize,
    right: u64,
    stop: Option<usize>,
) -> RunDirectory {
    let total = suite.cases.len() * configurations.len() * repeat;
    let plan = Plan::new(suite, configurations, repeat);
    let mut directory = RunDirectory::start(path, plan, suite, true).unwrap();
    let cancel = AtomicBool::new(false);
    let mut progress = |at: Progress| {
        assert_eq!(at.total, total);
        if stop == Some(at.fresh) {
            cancel.store(true, Ordering::Relaxed);
        }
    };
    let finished = run(&mut directory, &mut fake(right, 0.0), &mut progress, &cancel).unwrap();
    assert_eq!(finished, stop.is_none());
    directory
}

#[test]
fn an_interrupted_run_goes_on_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let suite = Suite::builtin().unwrap().limited(30);
    let (whole, parts) = (folder.path().join("whole"), folder.path().join("parts"));
    let whole = make(&whole, &suite, &[0.0, 0.5], 2, 6, None);
    for (stop, there) in [(1, 1), (7, 8), (40, 48)] {
        assert_eq!(make(&parts, &suite, &[0.0, 0.5], 2, 6, Some(stop)).samples.len(), there);
        // Killed in the middle of a line.
        let journal = parts.join("samples.jsonl");
        let text = std::fs::read_to_string(&journal).unwrap();
        std::fs::write(&journal, format!("{text}{{\"case\": \"simp")).unwrap();
        let read = RunDirectory::open(&parts).unwrap();
        assert!(
            read.notices[0].ends_with("samples.jsonl: the last line was damaged, and is dropped"),
            "{:?}",
            read.notices
        );
        assert_eq!(
            std::fs::metadata(&journal).unwrap().len(),
            text.len() as u64 + 14,
            "only a run that goes on cuts it off"
        );
    }
    let parts = make(&parts, &suite, &[0.0, 0.5], 2, 6, None);
    assert_eq!(parts.samples.len(), 120);
    let keys: BTreeSet<_> = parts.samples.iter().map(|sample| sample.key()).collect();
    assert_eq!(keys.len(), 120);
    let (a, b) = (Summary::new(&whole).unwrap(), Summary::new(&parts).unwrap());
    assert_eq!(json::report(&a), json::report(&b));
    assert_eq!(json::outcomes(&a), json::outcomes(&b));
    assert_eq!(markdown(&a).unwrap(), markdown(&b).unwrap());
    assert_eq!(junit(&a), junit(&b));
    assert_eq!(html(&a).unwrap(), html(&b).unwrap());
}

#[test]
fn several_at_a_time_come_to_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let suite = Suite::builtin().unwrap().limited(40);
    let alone = make(&folder.path().join("alone"), &suite, &[0.0, 0.5], 2, 6, None);
    let plan = Plan::new(&suite, [0.0, 0.5].map(|temperature| configuration("fake.gguf", temperature)).to_vec(), 2);
    let path = folder.path().join("together");
    let mut together = RunDirectory::start(&path, plan.clone(), &suite, false).unwrap();
    let mut opened = 0;
    let mut open = |_: usize, questions: usize| {
        opened += 1;
        assert!((1..=160).contains(&questions));
        let answerer =
            |_| -> Box<dyn Answerer> { Box::new(Fake { delay: Duration::from_micros(300), right: 6, seconds: 0.0 }) };
        Ok((0..5).map(answerer).collect())
    };
    // Interrupted on the way, it goes on.
    let cancel = AtomicBool::new(false);
    let mut stop = |at: Progress| cancel.store(at.fresh > 20, Ordering::Relaxed);
    assert!(!run(&mut together, &mut open, &mut stop, &cancel).unwrap());
    drop(together);
    let mut together = RunDirectory::start(&path, plan, &suite, true).unwrap();
    assert!((21..160).contains(&together.samples.len()));
    let cancel = AtomicBool::new(false);
    assert!(run(&mut together, &mut open, &mut |_| (), &cancel).unwrap());
    assert_eq!(opened, 2);
    let (a, b) = (Summary::new(&alone).unwrap(), Summary::new(&together).unwrap());
    assert_eq!(json::report(&a), json::report(&b));
    assert_eq!(json::outcomes(&a), json::outcomes(&b));

    let mut broken = RunDirectory::start(&folder.path().join("broken"), together.plan.clone(), &suite, false).unwrap();
    let mut fails = |_: usize, _: usize| Err(callwright::Error::new(callwright::ErrorKind::Engine, "no memory"));
    let error = run(&mut broken, &mut fails, &mut |_| (), &cancel).unwrap_err();
    assert_eq!(error.message(), "no memory");
}

#[test]
fn each_configuration_is_opened_by_its_own_index() {
    let folder = tempfile::tempdir().unwrap();
    let suite = cases();
    let configurations =
        [("a", 0.0), ("b", 0.0), ("b", 1.0), ("c", 0.0)].map(|(model, temp)| configuration(model, temp));
    let plan = Plan::new(&suite, configurations.to_vec(), 1);
    let start = |name: &str| RunDirectory::start(&folder.path().join(name), plan.clone(), &suite, false).unwrap();
    let answerer = |_| -> Box<dyn Answerer> { Box::new(Fake { delay: Duration::ZERO, right: 11, seconds: 0.0 }) };
    let never = AtomicBool::new(false);
    let opened = |name: &str, count: usize| {
        let mut opened = Vec::new();
        let mut open = |index, questions| {
            opened.push((index, questions));
            Ok((0..count).map(answerer).collect())
        };
        assert!(run(&mut start(name), &mut open, &mut |_| (), &never).unwrap());
        opened
    };
    // The third shares the second's session.
    assert_eq!(opened("alone", 1), [(0, 6), (1, 12), (3, 6)]);
    assert_eq!(opened("together", 2), [(0, 6), (1, 12), (3, 6)]);
}

#[test]
fn a_directory_that_is_not_in_order_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let suite = cases();
    let error = |result: callwright::Result<RunDirectory>| result.unwrap_err().to_string();
    assert!(error(RunDirectory::open(&path)).contains("there is no run in"));
    make(&path, &suite, &[0.0], 1, 11, None);

    let plan = |temperature, repeat| Plan::new(&suite, vec![configuration("fake.gguf", temperature)], repeat);
    let there = error(RunDirectory::start(&path, plan(0.0, 1), &suite, false));
    assert!(there.contains("there is a run in") && there.contains("it can be resumed"), "{there}");
    let other = error(RunDirectory::start(&path, plan(0.5, 1), &suite, true));
    assert!(other.contains("differs in models, templates, formats or options"), "{other}");
    assert!(error(RunDirectory::start(&path, plan(0.0, 2), &suite, true)).contains("differs in `Plan::repeat`"));
    let fewer = Plan::new(&suite.clone().limited(2), vec![configuration("fake.gguf", 0.0)], 1);
    assert!(error(RunDirectory::start(&path, fewer, &suite, true)).contains("differs in the cases"));

    let running = RunDirectory::start(&path, plan(0.0, 1), &suite, true).unwrap();
    let twice = error(RunDirectory::start(&path, plan(0.0, 1), &suite, true));
    assert!(
        twice.contains("another process is at work on the run in") && twice.contains("in another directory"),
        "{twice}"
    );
    assert!(RunDirectory::open(&path).is_ok(), "it may be looked at");
    drop(running);

    let journal = path.join("samples.jsonl");
    let text = std::fs::read_to_string(&journal).unwrap();
    let (first, rest) = text.split_once('\n').unwrap();
    std::fs::write(&journal, format!("{first}\n{first}\n{rest}")).unwrap();
    let twice = RunDirectory::open(&path).unwrap();
    assert_eq!(twice.samples.len(), 6);
    assert!(twice.notices[0].contains("twice; the first counts"), "{:?}", twice.notices);
    std::fs::write(&journal, format!("{}\n{rest}", &first[..20])).unwrap();
    let damaged = error(RunDirectory::open(&path));
    assert!(
        damaged.contains("samples.jsonl:1: the line is damaged") && damaged.contains("take this one out"),
        "{damaged}"
    );
    std::fs::write(&journal, text.replacen("\"case\":\"", "\"case\":\"other ", 1)).unwrap();
    assert!(error(RunDirectory::open(&path)).contains("samples.jsonl:1: the sample of \"other "));
    std::fs::write(path.join("suite.jsonl"), "{\"prompt\": \"x\", \"expected\": []}").unwrap();
    assert!(error(RunDirectory::open(&path)).contains("the cases are not those that the run began with"));
    std::fs::write(path.join("run.json"), "{}").unwrap();
    assert!(error(RunDirectory::open(&path)).contains("not a run that this version can read"));
}

#[test]
fn reports() {
    let folder = tempfile::tempdir().unwrap();
    let mut directory = make(&folder.path().join("run"), &cases(), &[0.0, 0.7], 3, 6, None);
    directory.plan.command = ["callwright", "bench", "--suite", "cases.jsonl"].map(str::to_owned).to_vec();
    let summary = Summary::new(&directory).unwrap();
    insta::with_settings!({ prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!("report.md", markdown(&summary).unwrap());
        insta::assert_snapshot!("report.json", json::report(&summary));
        insta::assert_snapshot!("junit.xml", junit(&summary));
    });
    let files = summary.write_reports().unwrap();
    assert!(files.iter().all(|file| file.metadata().unwrap().len() > 100));
    let lines = std::fs::read_to_string(directory.path().join("outcomes.jsonl")).unwrap();
    assert_eq!(lines.lines().count(), 36);
}

#[test]
fn a_page_of_ten_thousand_answers_is_small_and_whole() {
    let folder = tempfile::tempdir().unwrap();
    let suite = Suite::builtin().unwrap();
    let directory = make(&folder.path().join("run"), &suite, &[0.0, 0.5, 1.0, 1.5], 7, 6, None);
    assert!(directory.samples.len() > 10_000);
    let page = html(&Summary::new(&directory).unwrap()).unwrap();
    assert!(page.len() < 15_000_000, "{} bytes", page.len());
    let data = page.split("id=\"data\">").nth(1).unwrap().split("</script>").next().unwrap();
    let data: serde_json::Value = serde_json::from_str(data).unwrap();
    assert_eq!(data["samples"].as_array().unwrap().len(), directory.samples.len());
    assert!(!page.contains("http://") && !page.contains("https://"), "nothing is loaded from elsewhere");
    if let Some(to) = std::env::var_os("CALLWRIGHT_PAGE") {
        std::fs::write(to, page).unwrap();
    }
}

#[test]
fn a_page_has_latencies_and_escapes_names() {
    let folder = tempfile::tempdir().unwrap();
    let suite = Suite::builtin().unwrap().limited(30);
    let plan = Plan::new(&suite, vec![configuration("<b>&.gguf", 0.0)], 1);
    let mut directory = RunDirectory::start(&folder.path().join("run"), plan, &suite, false).unwrap();
    run(&mut directory, &mut fake(11, 0.02), &mut |_| (), &AtomicBool::new(false)).unwrap();
    let page = html(&Summary::new(&directory).unwrap()).unwrap();
    let (_, latency) = page.split_once("<h2>Latency</h2>").unwrap();
    let (latency, _) = latency.split_once("</section>").unwrap();
    assert!(latency.contains("<th>&lt;b&gt;&amp;</th>"), "{latency}");
    assert!(
        latency.contains("<rect x=\"156\"") && latency.contains("The distributions share an axis, from "),
        "{latency}"
    );
    assert!(!page.contains("<b>&"), "a name is not escaped");
}

#[test]
fn a_page_of_several_runs_opens_their_answers() {
    let folder = tempfile::tempdir().unwrap();
    let suite = Suite::builtin().unwrap();
    let (few, more) = (suite.clone().limited(20), suite.limited(30));
    let at = |name: &str| folder.path().join(name);
    let mut first = make(&at("first"), &few, &[0.0, 1.0], 1, 6, None);
    first.plan.date = Some("2026-01-31".to_owned());
    let other = make_with(&at("a peer #2"), &few, vec![configuration("peer", 0.0)], 1, 3, None);
    let third = make(&at("third"), &more, &[0.0], 1, 6, None);
    let summaries = [&first, &other, &third].map(|run| Summary::new(run).unwrap());
    let page = write_matrix(&summaries, &at("page")).unwrap();
    let text = std::fs::read_to_string(page).unwrap();
    let headings: Vec<&str> = text.split("<h2>").skip(1).filter_map(|part| part.split("</h2>").next()).collect();
    assert_eq!(headings, ["20 cases of builtin", "30 cases of builtin, fake", "What is counted"]);
    // Those that answered the same cases are beside each other, and told apart.
    for label in ["fake, temp 0", "fake, temp 1", "peer, temp 0"] {
        assert_eq!(text.matches(&format!("<tr><th>{label}</th>")).count(), 1, "{label}\n{text}");
    }
    assert!(text.contains("2026-01-31, callwright") && text.contains("no date, callwright"), "{text}");
    let links: BTreeSet<&str> = text
        .split("<a href=\"")
        .skip(1)
        .filter_map(|part| part.split('"').next()?.split_once('#'))
        .map(|(file, _)| file)
        .collect();
    assert_eq!(links, BTreeSet::from(["run-a%20peer%20%232.html", "run-first.html", "run-third.html"]));
    assert!(text.contains("run-first.html#configuration=1&amp;outcome="), "{text}");
    for name in ["run-a peer #2.html", "run-first.html", "run-third.html"] {
        assert!(std::fs::read_to_string(at("page").join(name)).unwrap().contains("id=\"samples\""), "{name}");
    }
    let error = write_matrix(&[Summary::new(&first).unwrap(), Summary::new(&first).unwrap()], &at("page")).unwrap_err();
    assert!(error.message().contains("two runs are called first"), "{error}");
}

#[test]
fn runs_are_compared_case_by_case() {
    let folder = tempfile::tempdir().unwrap();
    let suite = Suite::builtin().unwrap().limited(120);
    let better = make(&folder.path().join("better"), &suite, &[0.0], 1, 8, None);
    let worse = make(&folder.path().join("worse"), &suite, &[0.0], 1, 3, None);
    let [one] = compare(&better, &worse).unwrap().try_into().unwrap();
    assert_eq!(one.cases, 120);
    assert!(one.is_drop() && one.lost.len() > 30 && one.won.is_empty(), "{one:?}");
    assert!(one.difference.2 < 0.0);
    let [back] = compare(&worse, &better).unwrap().try_into().unwrap();
    assert!(!back.is_drop());
    assert_eq!((back.won.len(), back.difference.0), (one.lost.len(), -one.difference.0));

    let other = make(&folder.path().join("other"), &suite.clone().limited(100), &[0.0], 1, 8, None);
    assert!(compare(&better, &other).unwrap_err().to_string().contains("have other cases"));
    let mut old = make(&folder.path().join("old"), &suite, &[0.0], 1, 8, None);
    old.plan.scorer = 0;
    old.write_plan().unwrap();
    let error = compare(&old, &better).unwrap_err().to_string();
    assert!(error.contains("was scored by version 0") && error.contains("bench rescore"), "{error}");
    assert!(Summary::new(&old).unwrap_err().to_string().contains("bench rescore"));
    rescored(&mut old).unwrap();
    assert!(Summary::new(&RunDirectory::open(old.path()).unwrap()).is_ok());

    let many = make(&folder.path().join("many"), &suite, &[0.0, 1.0], 3, 8, None);
    let again = make(&folder.path().join("again"), &suite, &[1.0, 2.0], 3, 8, None);
    let comparisons = compare(&many, &again).unwrap();
    let reported = |comparisons: &[Comparison]| {
        comparisons
            .iter()
            .map(|one| {
                let same = one.lost.is_empty() && one.won.is_empty() && one.p == 1.0;
                let how = if same { "the same" } else { "changed" };
                format!("{}: {} cases {how}", one.sides().join(" → "), one.cases)
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(
        reported(&comparisons),
        [
            "temp 0 → not in the other run: 0 cases the same",
            "temp 1 → temp 1: 120 cases the same",
            "not in the other run → temp 2: 0 cases the same",
        ]
    );
    let apart = make(&folder.path().join("apart"), &suite, &[3.0, 4.0], 3, 8, None);
    assert!(compare(&many, &apart).unwrap_err().to_string().contains("no configurations that belong together"));

    // Two templates of one name: distinguished by what they are, as long as that is the same.
    let templates = |name: &str, hashes: [&str; 2], right| {
        let template = |hash: &str| {
            let template_sha256 = hash.to_owned();
            Configuration { template_sha256, ..configuration("fake.gguf", 0.0) }.identified()
        };
        make_with(&folder.path().join(name), &suite, hashes.map(template).to_vec(), 1, right, None)
    };
    let twins = templates("twins", ["a", "b"], 6);
    let ids = twins.plan.configurations.iter().map(|one| one.id.clone()).collect::<Vec<_>>();
    let line = |before: &str, after: &str, rest: &str| {
        let label = |text: &str| if text.len() == 12 { format!("fake ({text})") } else { text.to_owned() };
        format!("{} → {}: {rest}", label(before), label(after))
    };
    assert_eq!(
        reported(&compare(&twins, &twins).unwrap()),
        ids.iter().map(|id| line(id, id, "120 cases the same")).collect::<Vec<_>>()
    );
    let edited = templates("edited", ["c", "b"], 6);
    let new = edited.plan.configurations[0].id.as_str();
    assert_eq!(
        reported(&compare(&twins, &edited).unwrap()),
        [line(&ids[0], new, "120 cases changed"), line(&ids[1], &ids[1], "120 cases the same")]
    );
    let more = make_with(
        &folder.path().join("more"),
        &suite,
        [&twins.plan.configurations[..1], &templates("other two", ["d", "e"], 6).plan.configurations].concat(),
        1,
        6,
        None,
    );
    let [_, d, e] = [0, 1, 2].map(|index: usize| more.plan.configurations[index].id.as_str());
    assert_eq!(
        reported(&compare(&twins, &more).unwrap()),
        [
            line(&ids[0], &ids[0], "120 cases the same"),
            line(&ids[1], "several in the other run", "0 cases the same"),
            line("several in the other run", d, "0 cases the same"),
            line("several in the other run", e, "0 cases the same"),
        ]
    );
}

/// The first cases of the built-in suite, ten to a cluster.
fn clustered(count: usize) -> Suite {
    let lines = Suite::builtin().unwrap().limited(count).to_text();
    let lines = lines.lines().enumerate().map(|(index, line)| {
        let mut case: serde_json::Value = serde_json::from_str(line).unwrap();
        case["cluster"] = format!("c{}", index / 10).into();
        format!("{case}\n")
    });
    Suite::from_text("clustered", &lines.collect::<String>(), Path::new("cases.jsonl")).unwrap()
}

/// Ten cases that are variants of one are no ten times as much evidence.
#[test]
fn cases_of_one_cluster_count_as_fewer() {
    let folder = tempfile::tempdir().unwrap();
    let run =
        |name: &str, suite: &Suite, repeat, right| make(&folder.path().join(name), suite, &[0.0], repeat, right, None);
    let (apart, together) = (Suite::builtin().unwrap().limited(60), clustered(60));
    let comparison = |name: &str, suite: &Suite| {
        let [before, after] = [8, 3].map(|right| run(&format!("{name} {right}"), suite, 1, right));
        compare(&before, &after).unwrap().pop().unwrap()
    };
    let (alone, clustered) = (comparison("alone", &apart), comparison("clustered", &together));
    assert_eq!((&alone.lost, &alone.won), (&clustered.lost, &clustered.won));
    assert!(alone.lost.len() > 10 && alone.difference.0 == clustered.difference.0);
    assert!(alone.p < 0.001 && clustered.p > alone.p * 10.0, "{} {}", alone.p, clustered.p);
    let width = |one: &Comparison| one.difference.2 - one.difference.1;
    assert!(width(&clustered) > 1.2 * width(&alone), "{} {}", width(&clustered), width(&alone));

    let unstable = |name: &str, suite: &Suite, repeat: usize| {
        let run = run(&format!("{name} {repeat}"), suite, repeat, 8);
        let summary = Summary::new(&run).unwrap();
        summary.configurations[0].repeats.clone().unwrap().unstable
    };
    // Where the clusters differ by no more than chance, their cases count as single ones.
    let mut wider = 0;
    for repeat in 2..8 {
        let (alone, clustered) = (unstable("steady", &apart, repeat), unstable("steady clusters", &together, repeat));
        assert_eq!((alone.successes, alone.trials), (clustered.successes, clustered.trials));
        let [alone, clustered] = [alone, clustered].map(|one| one.high - one.low);
        assert!(clustered >= alone, "{clustered} {alone}");
        wider += usize::from(clustered > alone);
    }
    assert!(wider > 0);
}

/// Breaks at each third question.
struct Breaking(Fake, usize);

impl Answerer for Breaking {
    fn answer(&mut self, case: &Case, one: &Configuration, seed: u64) -> callwright::Result<Option<Answer>> {
        self.1 += 1;
        if self.1.is_multiple_of(3) {
            return Err(callwright::Error::new(callwright::ErrorKind::Engine, "no memory"));
        }
        self.0.answer(case, one, seed)
    }
}

#[test]
fn what_broke_is_asked_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let suite = cases();
    let plan = Plan::new(&suite, vec![configuration("fake.gguf", 0.0)], 1);
    let mut directory = RunDirectory::start(&path, plan.clone(), &suite, false).unwrap();
    let right = Fake { delay: Duration::ZERO, right: 11, seconds: 0.0 };
    let mut breaking = Some(Box::new(Breaking(right, 0)) as Box<dyn Answerer>);
    let mut open = |_: usize, _: usize| Ok(vec![breaking.take().unwrap()]);
    assert!(run(&mut directory, &mut open, &mut |_| (), &AtomicBool::new(false)).unwrap());
    drop(directory);
    let broke = RunDirectory::open(&path).unwrap();
    assert_eq!(broke.samples.iter().filter(|sample| sample.broke()).count(), 2);

    let mut again = RunDirectory::start(&path, plan, &suite, true).unwrap();
    assert_eq!(again.notices, ["2 answers that something broke at are asked for again"]);
    assert!(run(&mut again, &mut fake(11, 0.0), &mut |_| (), &AtomicBool::new(false)).unwrap());
    let read = RunDirectory::open(&path).unwrap();
    assert_eq!((read.samples.len(), read.notices.len()), (suite.cases.len(), 0));
    assert!(!read.samples.iter().any(|sample| sample.broke()));
    let whole = make(&folder.path().join("whole"), &suite, &[0.0], 1, 11, None);
    assert_eq!(json::report(&Summary::new(&read).unwrap()), json::report(&Summary::new(&whole).unwrap()));
}

#[test]
fn labels_say_what_varies() {
    let label = |configurations: &[Configuration]| labels(configurations);
    let hot = configuration("models/a.gguf", 1.0);
    assert_eq!(label(std::slice::from_ref(&hot)), ["a"]);
    assert_eq!(label(&[configuration("models/a.gguf", 0.0), hot.clone()]), ["temp 0", "temp 1"]);
    // A format that follows from the model says nothing new; one of several does.
    let hermes = |model: &str| Configuration { format: "hermes".to_owned(), ..configuration(model, 0.0) }.identified();
    assert_eq!(label(&[configuration("a.gguf", 0.0), hermes("b.gguf")]), ["a", "b"]);
    assert_eq!(
        label(&[configuration("a.gguf", 0.0), hermes("a.gguf"), hermes("b.gguf")]),
        ["a, delimited", "a, hermes", "b, hermes"]
    );
    let adapted = Configuration { lora: vec!["x/tools.gguf:1 (0123)".to_owned()], ..hot.clone() }.identified();
    assert_eq!(label(&[hot.clone(), adapted]), ["no adapter", "tools"]);
    let twin = configuration("elsewhere/a.gguf", 1.0);
    assert_eq!(label(&[hot.clone(), twin]), ["models", "elsewhere"]);
    let other = Configuration { max_tokens: 9, ..hot.clone() }.identified();
    let twins = [&hot, &other].map(|one| format!("a ({})", one.id));
    assert_eq!(label(&[hot.clone(), other]), twins);
    let required = Configuration { tool_choice: ToolChoice::Required, ..hot.clone() }.identified();
    assert_eq!(label(&[hot, required]), ["call optional", "call required"]);
}

#[test]
fn names_of_models_show_what_differs() {
    for (names, short) in [
        (["/m/qwen2.5-0.5b-Q4_K_M.gguf", "/m/qwen2.5-0.5b-Q8_0.gguf"], ["Q4_K_M", "Q8_0"]),
        (["SmolLM2-135M.Q4_1.gguf", "SmolLM2-135M.f16.gguf"], ["Q4_1", "f16"]),
        (["qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b"], ["0.5b", "1.5b"]),
        (["bundled", "smollm2-135m"], ["bundled", "smollm2-135m"]),
        (["model.gguf", "model-q2.gguf"], ["model", "model-q2"]),
        (
            ["hf:a/b/c.gguf", "openai:http://127.0.0.1:8080/v1#c"],
            ["hf:a/b/c.gguf", "openai:http://127.0.0.1:8080/v1#c"],
        ),
    ] {
        assert_eq!(short_names(&names), short);
    }
}

/// The sentences of a verdict, of runs that differ much, little, and not at all.
#[test]
fn a_verdict_says_what_the_figures_allow() {
    let folder = tempfile::tempdir().unwrap();
    let suite = Suite::builtin().unwrap().limited(40);
    let run = |name: &str, right| make(&folder.path().join(name), &suite, &[0.0], 1, right, None);
    let [good, bad, near] = [("good", 8), ("bad", 3), ("near", 7)].map(|(name, right)| run(name, right));
    let said = |a: &RunDirectory, b: &RunDirectory| sentence(&compare(a, b).unwrap()[0]);
    for (sentence, begins, ends) in [
        (said(&good, &bad), "fake in the second run is worse than the one in the first (", ", p = 0.0001)."),
        (said(&bad, &good), "fake in the second run is better than the one in the first (", ", p = 0.0001)."),
        (
            said(&good, &near),
            "fake in the second run may be as good as the one in the first: 40 cases are too few to say (",
            " are needed.",
        ),
        (
            said(&good, &good),
            "fake in the second run may be as good as the one in the first: ",
            ": each of 40 cases is right in both or wrong in both.",
        ),
    ] {
        assert!(sentence.starts_with(begins) && sentence.ends_with(ends), "{sentence}");
    }
    let said = |run: &RunDirectory| verdict(&Summary::new(run).unwrap());
    let alone = said(&good);
    assert!(alone.len() == 1 && alone[0].starts_with("fake, ") && alone[0].ends_with(" of 40 answers are correct."));
    let several = said(&make(&folder.path().join("several"), &suite, &[0.0, 0.5, 1.0, 1.5, 2.0], 1, 7, None));
    assert!(several[0].starts_with("Most right: temp "), "{several:?}");
    let together =
        "4 others may be as good as temp 0: 40 cases are too few to say. The largest difference is that of temp ";
    assert!(
        several[1].starts_with(together) && several[1].ends_with(" cases are needed to be sure of it."),
        "{several:?}"
    );
    let part = make(&folder.path().join("part"), &suite, &[0.0], 1, 7, Some(0));
    assert_eq!(said(&part), ["There is nothing to judge yet."]);
}

#[test]
fn a_configuration_from_before_there_was_a_tool_choice_is_the_same() {
    let auto = configuration("a.gguf", 0.0);
    let written = serde_json::to_value(&auto).unwrap();
    assert!(written.get("tool_choice").is_none(), "{written}");
    let read: Configuration = serde_json::from_value(written).unwrap();
    assert_eq!((read.identified(), auto.tool_choice.clone()), (auto.clone(), ToolChoice::Auto));
    let required = Configuration { tool_choice: ToolChoice::Required, ..auto.clone() }.identified();
    assert_ne!(required.id, auto.id);
    let written = serde_json::to_value(&required).unwrap();
    assert_eq!(written["tool_choice"], "required");
    assert_eq!(serde_json::from_value::<Configuration>(written).unwrap(), required);
}

#[test]
fn failed_answers_become_training_data_and_one_case_of_five_stays_for_measuring() {
    let folder = tempfile::tempdir().unwrap();
    let suite = Suite::builtin().unwrap().limited(60);
    let run = make(&folder.path().join("run"), &suite, &[0.0, 0.5], 2, 6, None);
    let summary = Summary::new(&run).unwrap();
    let made = export(&summary);
    let test = Suite::from_text("test", &made.test.join("\n"), Path::new("test.jsonl")).unwrap();
    let kept: BTreeSet<&str> = test.cases.iter().map(|case| case.id.as_str()).collect();
    assert!((4..30).contains(&kept.len()), "about one of five: {}", kept.len());
    assert!(made.pairs.len() > made.chat.len() && made.chat.len() > 10);
    let cases: BTreeSet<&str> = made.chat.iter().map(|line| line["case"].as_str().unwrap()).collect();
    assert_eq!(cases.len(), made.chat.len(), "each case once");
    for pair in &made.pairs {
        let id = pair["case"].as_str().unwrap();
        assert!(!kept.contains(id) && cases.contains(id));
        let case = suite.cases.iter().find(|case| case.id == id).unwrap();
        assert_eq!(pair["prompt"][0]["content"], case.messages[0].content.as_str());
        let (chosen, rejected) = (&pair["chosen"][0], &pair["rejected"][0]);
        let names = |message: &serde_json::Value| message["tool_calls"].as_array().map_or(0, Vec::len);
        // What is right has the expected calls, or none.
        assert_eq!(names(chosen), case.expected_calls().map_or(1, <[_]>::len), "{pair}");
        assert_ne!(chosen, rejected);
    }
}
