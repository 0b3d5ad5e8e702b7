//! BFCL's checker, against what the leaderboard's own says of thousands of answers.
//!
//! The data is not part of the repository: `CALLWRIGHT_BFCL=/its/folder cargo test -- --ignored bfcl` runs these tests.

use crate::bfcl::{check, reachable};
use crate::exact::Exact;
use crate::suite::{Case, Expected, Suite};
use callwright::session::fitting;
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

fn data() -> PathBuf {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/bfcl");
    let folder = std::env::var_os("CALLWRIGHT_BFCL").map_or_else(beside, PathBuf::from);
    let there = folder.join("verdicts.jsonl").exists();
    assert!(there, "no BFCL data in {}: set CALLWRIGHT_BFCL to its folder", folder.display());
    folder
}

fn rows(path: &Path) -> Vec<Exact> {
    std::fs::read_to_string(path).unwrap().lines().map(|line| Exact::parse(line).unwrap()).collect()
}

fn text<'a>(row: &'a Exact, key: &str) -> &'a str {
    row.get(key).and_then(Exact::as_str).unwrap()
}

/// What is wrong with our verdict on a row; `None` where it is the leaderboard's.
fn difference(row: &Exact, category: &str, tools: &Exact, ground_truth: &Exact) -> Option<String> {
    let flag = |key: &str| row.get(key) == Some(&Exact::Bool(true));
    let candidate = row.get("candidate").filter(|_| !flag("decode_failed"));
    let verdict = check(category, tools, ground_truth, candidate, flag("underscore_to_dot"));
    let expected = row.get("error_type").and_then(Exact::as_str);
    assert_eq!(flag("valid"), expected.is_none());
    (verdict.err() != expected).then(|| {
        let note = row.get("note").or(row.get("mutation")).map_or(String::new(), Exact::to_string);
        format!(
            "{} {note}: {:?} instead of {expected:?}\n  {}\n",
            text(row, "id"),
            verdict.err(),
            row.get("candidate").unwrap()
        )
    })
}

#[test]
#[ignore = "needs the BFCL data: CALLWRIGHT_BFCL=… cargo test -- --ignored bfcl"]
fn the_leaderboards_verdicts_are_ours() {
    let folder = data();
    let suite = Suite::open(&format!("bfcl:{}", folder.display())).unwrap();
    let cases: HashMap<&str, &Case> = suite.cases.iter().map(|case| (case.id.as_str(), case)).collect();
    let verdicts = rows(&folder.join("verdicts.jsonl"));
    assert!(verdicts.len() > 6000);
    let mut wrong: Vec<String> = Vec::new();
    for row in &verdicts {
        let gold = cases[text(row, "id")].bfcl.as_ref().unwrap();
        wrong.extend(difference(row, text(row, "category"), &gold.tools, &gold.ground_truth));
    }
    for row in &rows(&folder.join("quirks.jsonl")) {
        let part = |key| row.get(key).unwrap();
        wrong.extend(difference(row, text(row, "category"), part("function"), part("ground_truth")));
    }
    assert!(wrong.is_empty(), "{} rows:\n{}", wrong.len(), wrong.concat());
}

#[test]
#[ignore = "needs the BFCL data: CALLWRIGHT_BFCL=… cargo test -- --ignored bfcl"]
fn every_case_of_the_leaderboard_is_read() {
    let folder = data();
    let suite = Suite::open(&format!("bfcl:{}", folder.join("data").display())).unwrap();
    assert!(suite.cases.len() > 1600, "{}", suite.cases.len());
    for case in &suite.cases {
        assert!(!case.messages.is_empty() && !case.tools.is_empty(), "{}", case.id);
        assert_eq!(case.expected == Expected::NoCall, case.category.ends_with("irrelevance"), "{}", case.id);
    }
    // Cases share tools only where they are real users'.
    let clusters = |live: bool| {
        let cases = suite.cases.iter().filter(|case| case.category.starts_with("live_") == live);
        let all: Vec<&str> = cases.map(|case| case.cluster.as_str()).collect();
        all.len() - all.iter().collect::<std::collections::HashSet<_>>().len()
    };
    assert_eq!(clusters(false), 0);
    assert!(clusters(true) > 100);

    // What a run keeps of the suite is the suite.
    let again = Suite::from_text("kept", &suite.to_text(), Path::new("suite.jsonl")).unwrap();
    assert_eq!(again.sha256(), suite.sha256());
    for (case, kept) in suite.cases.iter().zip(&again.cases) {
        assert_eq!(
            (&case.bfcl, &case.cluster, &case.expected),
            (&kept.bfcl, &kept.cluster, &kept.expected),
            "{}",
            case.id
        );
        assert_eq!(case.messages, kept.messages);
    }

    let few = Suite::open(&format!("bfcl:{}:parallel,live_relevance", folder.display())).unwrap();
    let mut categories: Vec<&str> = few.cases.iter().map(|case| case.category.as_str()).collect();
    categories.dedup();
    assert_eq!(categories, ["parallel", "live_relevance"]);
}

#[test]
#[ignore = "needs the BFCL data: CALLWRIGHT_BFCL=… cargo test -- --ignored bfcl"]
fn what_no_answer_that_fits_the_schemas_can_reach_is_known() {
    let folder = data();
    let suite = Suite::open(&format!("bfcl:{}", folder.display())).unwrap();
    let defects = Exact::parse(&std::fs::read_to_string(folder.join("known_defects.json")).unwrap()).unwrap();
    let listed = |key: &str| defects.get(key).unwrap().elements().unwrap().iter().map(|row| text(row, "id").to_owned());
    let known: BTreeSet<String> = listed("no_valid_answer").chain(listed("no_schema_valid_answer")).collect();
    let found: BTreeSet<String> =
        suite.cases.iter().filter(|case| !reachable(case)).map(|case| case.id.clone()).collect();
    assert_eq!(found, known);
}

/// Berkeley's cases of real users with 200 tools each: how often the right ones are among the 8 that are shown.
#[test]
#[ignore = "takes minutes, and needs BFCL's data: see the head of this file"]
fn bfcl_the_right_tool_is_among_eight_of_two_hundred() {
    let suite = Suite::open(&format!("bfcl:{}", data().display())).unwrap();
    let suite = suite.with_more_tools(200).unwrap();
    let (mut right, mut all) = (0, 0);
    for case in suite.cases.iter().filter(|case| case.category == "live_multiple") {
        assert!(case.tools.len() > 200);
        let shown = fitting(&case.messages, &case.tools, 8);
        let expected = case.expected_calls().unwrap_or_default();
        all += 1;
        right += usize::from(expected.iter().all(|call| shown.contains(&call.name.as_str())));
    }
    println!("{right} of {all}");
    assert!(all > 100 && right * 100 >= all * 95, "{right} of {all}");
}
