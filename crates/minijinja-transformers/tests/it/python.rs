//! Small templates and what Jinja2 in Python makes of them.

use minijinja_transformers::{RenderOptions, Template};
use serde_json::Value;

const NOW: &str = "2026-01-15T12:00:00";

/// Cases where Jinja2 in Python and this environment are meant to differ, and why.
const DIFFERENT: &str = include_str!("../cases/python-differences.tsv");

/// Small templates, compared with Jinja2's output.
#[test]
fn small_templates_render_as_in_python() {
    let mut different: Vec<(String, bool)> = DIFFERENT
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| (line.split_once('\t').expect("a template, a tab and the reason").0.replace("\\n", "\n"), false))
        .collect();
    let mut report = String::new();
    for file in [include_str!("../cases/python.jsonl"), include_str!("../cases/expressions.jsonl")] {
        let mut rows = file.lines();
        let first: Value = serde_json::from_str(rows.next().unwrap()).unwrap();
        let vars = first["vars"].as_object().unwrap();
        for row in rows {
            let row: Value = serde_json::from_str(row).unwrap();
            let template = row["template"].as_str().unwrap();
            let options = RenderOptions { now: NOW.parse().ok(), ..RenderOptions::default() };
            let result = Template::new(template).and_then(|template| template.render_with(vars, options));
            let same = match (&result, row["expected"].as_str()) {
                (Ok(text), Some(expected)) => text == expected,
                (Err(_), None) => true,
                _ => false,
            };
            let listed = different.iter_mut().find(|(listed, _)| *listed == template);
            match (same, listed) {
                (false, Some((_, seen))) => *seen = true,
                (false, None) => {
                    let result = result.map_err(|error| error.to_string());
                    report += &format!("{template}\n   ours {result:?}\n python {row}\n\n");
                }
                (true, Some(_)) => report += &format!("{template}\n   is the same now: take it off the list\n\n"),
                (true, None) => {}
            }
        }
    }
    for (template, _) in different.iter().filter(|(_, seen)| !seen) {
        report += &format!("{template}\n   is on the list, but no case\n\n");
    }
    assert!(report.is_empty(), "{report}");
}
