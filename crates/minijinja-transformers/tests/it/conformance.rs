//! Chat templates of many model families, compared with the output of Python's own environment.
//!
//! The data is not part of the repository: see callwright-core/tests/it/data.rs.

use minijinja_transformers::{ErrorKind, RenderOptions, Template};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Known differences: `template<TAB>case<TAB>reason`. Any change, better or worse, must be recorded here.
const KNOWN: &str = include_str!("../cases/conformance-differences.tsv");

/// `None` if the row matches, else the difference.
fn difference(template: &Template, row: &Value) -> Option<String> {
    let options = RenderOptions { now: row["now"].as_str().unwrap().parse().ok(), ..RenderOptions::default() };
    let rendered = template.render_with(row["vars"].as_object().unwrap(), options);
    match (rendered, row.get("expected").and_then(Value::as_str)) {
        (Ok(text), Some(expected)) if text == expected => None,
        (Ok(text), Some(expected)) => {
            let at = text.bytes().zip(expected.bytes()).take_while(|(a, b)| a == b).count();
            let near = |text: &str| {
                String::from_utf8_lossy(&text.as_bytes()[at.saturating_sub(20)..text.len().min(at + 40)]).into_owned()
            };
            Some(format!("byte {at}: {:?} instead of {:?}", near(&text), near(expected)))
        }
        (Err(error), Some(_)) => Some(format!("fails: {error}")),
        (Ok(text), None) if row.get("lenient_expected").and_then(Value::as_str) == Some(&text) => None,
        (Ok(_), None) => Some(format!("renders, but should fail: {}", row["error"])),
        (Err(_), None) if row["error_kind"] != "raise_exception" => None,
        (Err(error), None) if error.kind == ErrorKind::Raised && row["error"] == error.message.as_str() => None,
        (Err(error), None) => Some(format!("fails with {:?} instead of {}", error.message, row["error"])),
    }
}

#[test]
#[ignore = "needs the conformance data: CALLWRIGHT_CONFORMANCE=… cargo test -- --ignored conformance"]
fn templates_render_as_transformers_renders_them() {
    let mut templates: HashMap<String, Template> = HashMap::new();
    let mut found = BTreeMap::new();
    let mut count = 0;
    for (folder, row) in crate::data::conformance_rows("renders.jsonl") {
        let name = row["template"].as_str().unwrap().to_owned();
        let template = templates.entry(name.clone()).or_insert_with(|| {
            Template::new(std::fs::read_to_string(folder.join("templates").join(&name)).unwrap()).unwrap()
        });
        count += 1;
        if let Some(difference) = difference(template, &row) {
            found.insert((name, row["case"].as_str().unwrap().to_owned()), difference);
        }
    }
    assert!(count > 1000, "only {count} rows");
    let known: BTreeSet<(String, String)> = KNOWN
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let fields: Vec<_> = line.split('\t').collect();
            assert!(fields.len() == 3 && !fields[2].trim().is_empty(), "not template, case and reason: {line}");
            (fields[0].to_owned(), fields[1].to_owned())
        })
        .collect();
    let mut report = String::new();
    for ((template, case), difference) in &found {
        if !known.contains(&(template.clone(), case.clone())) {
            report += &format!("{template} {case}: {difference}\n");
        }
    }
    for (template, case) in known.iter().filter(|row| !found.contains_key(row)) {
        report += &format!("{template} {case}: no longer differs, take it off the list\n");
    }
    let unexpected = report.lines().count();
    assert!(report.is_empty(), "{unexpected} rows of {count}:\n{report}");
}
