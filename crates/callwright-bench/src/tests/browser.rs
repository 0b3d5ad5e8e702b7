//! report.html in a real browser.

use super::runs::make;
use crate::outcome::Outcome;
use crate::report::html;
use crate::suite::Suite;
use crate::summary::{ScoredSample, Summary};
use assert_cmd::Command;
use std::path::{Path, PathBuf};
use std::time::Duration;

fn browser() -> Option<PathBuf> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).flat_map(|folder| names.map(|name| folder.join(name))).find(|file| file.is_file())
}

/// The page at an address as it is in the browser once its scripts have run.
fn shown(browser: &Path, page: &str) -> String {
    let profile = tempfile::tempdir().unwrap();
    let mut command = Command::new(browser);
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--dump-dom"]);
    command.arg(format!("--user-data-dir={}", profile.path().display()));
    command.arg(page).timeout(Duration::from_secs(300));
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

#[test]
#[ignore = "needs chromium or google-chrome: cargo test -- --ignored browser"]
fn a_browser_lists_the_answers_and_needs_no_script_for_the_figures() {
    let browser = browser().expect("chromium, chromium-browser or google-chrome is on the PATH");
    let folder = tempfile::tempdir().unwrap();
    let suite = Suite::builtin().unwrap().limited(150);
    let directory = make(&folder.path().join("run"), &suite, &[0.0, 1.0], 1, 3, None);
    let summary = Summary::new(&directory).unwrap();
    let page = folder.path().join("report.html");
    std::fs::write(&page, html(&summary).unwrap()).unwrap();
    let address = format!("file://{}", page.display());
    let rows = |text: &str| text.matches("<summary><span><i class=\"swatch\"").count();

    // What failed is shown first, a page of it.
    let right: usize = summary.configurations.iter().map(|one| one.outcomes[Outcome::Correct as usize]).sum();
    let (all, failed) = (directory.samples.len(), directory.samples.len() - right);
    assert!(failed > 100, "{failed}");
    let with_scripts = shown(&browser, &address);
    assert!(with_scripts.contains(&format!("<output>{failed} of {all}</output>")), "the list has no count");
    assert_eq!(rows(&with_scripts), 100, "the first page of the list");

    // A link opens one answer of a configuration, also a right one.
    let is_right = |one: &&ScoredSample<'_>| one.scored.outcome == Outcome::Correct;
    let case = &summary.configurations[1].samples.iter().find(is_right).unwrap().case.id;
    let linked = shown(&browser, &format!("{address}#configuration=1&outcome=&text={case}"));
    assert!(linked.contains(&format!("<output>1 of {all}</output>")) && rows(&linked) == 1, "{case}");
    assert!(linked.contains("What was read"), "the answer is open");

    // --dump-dom is a script itself, so scripts cannot be off: the page goes without its own.
    let text = std::fs::read_to_string(&page).unwrap();
    let (figures, _) = text.split_once("<script").unwrap();
    std::fs::write(&page, figures).unwrap();
    let without = shown(&browser, &address);
    for (heading, drawn) in
        [("Correct answers", "<svg"), ("By category", "<table"), ("Scores", "<table"), ("Outcomes", "class=\"bar\"")]
    {
        let section = without.split(&format!("<h2>{heading}</h2>")).nth(1).unwrap_or_default();
        let section = section.split("</section>").next().unwrap_or_default();
        assert!(section.contains(drawn), "{heading}: {section}");
    }
}
