//! The documentation: links lead somewhere, the book has all pages, and the README stays short.

use crate::program::{callwright, run};
use callwright::format::Format;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The Markdown files of docs/, sorted.
fn book() -> Vec<PathBuf> {
    let files = std::fs::read_dir(root().join("docs")).unwrap().map(|file| file.unwrap().path());
    let mut pages: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|end| end == "md")).collect();
    pages.sort();
    pages
}

/// The lines that are not inside a code fence.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut fence = None;
    text.lines().filter(move |line| {
        let marks = line.len() - line.trim_start_matches('`').len();
        match fence {
            None if marks >= 3 => fence = Some(marks),
            Some(open) if marks >= open => fence = None,
            _ => return fence.is_none(),
        }
        false
    })
}

/// The line without its code spans.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

/// The targets of all Markdown links in a text.
fn links(text: &str) -> Vec<String> {
    let lines = prose(text).map(without_code);
    lines
        .flat_map(|line| {
            let targets = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
            targets.map(|(target, _)| target.to_owned()).collect::<Vec<_>>()
        })
        .collect()
}

/// The anchors that GitHub and mdBook give to the headings of a text.
fn anchors(text: &str) -> Vec<String> {
    let headings = prose(text).filter(|line| line.starts_with('#'));
    headings
        .map(|heading| {
            let kept = heading.trim_start_matches('#').trim().to_lowercase();
            kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c)).collect::<String>().replace(' ', "-")
        })
        .collect()
}

#[test]
fn links_lead_to_files_and_headings() {
    let mut pages = book();
    let besides =
        ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "lab/README.md", "lab/figures.md", "lab/decision.md"];
    pages.extend(besides.map(|name| root().join(name)));
    let mut broken = Vec::new();
    for page in &pages {
        let text = read(page);
        for link in links(&text).iter().filter(|link| !link.contains("://")) {
            let (file, anchor) = link.split_once('#').map_or((link.as_str(), None), |(file, at)| (file, Some(at)));
            let target = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            let leads =
                target.exists() && anchor.is_none_or(|at| anchors(&read(&target)).iter().any(|name| name == at));
            if !leads {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn the_book_has_all_pages() {
    let summary = links(&read(&root().join("docs/SUMMARY.md")));
    let mut listed: Vec<PathBuf> = summary.iter().map(|link| root().join("docs").join(link)).collect();
    listed.push(root().join("docs/SUMMARY.md"));
    listed.sort();
    assert_eq!(listed, book());
}

#[test]
fn the_readme_is_short() {
    let lines = read(&root().join("README.md")).lines().count();
    assert!(lines <= 150, "README.md has {lines} lines");
}

/// The options that a text names: words that begin with two dashes, but those of other programs' commands.
fn options(text: &str) -> Vec<&str> {
    let other = ["#SBATCH ", "cargo ", "llama-server ", "canitoolcall ", "tool-eval-bench ", "codex ", "benches/"];
    let code = text.lines().filter(|line| !other.iter().any(|program| line.contains(program)));
    let words = code.flat_map(|line| line.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')));
    words.filter(|word| word.strip_prefix("--").is_some_and(|name| name.starts_with(char::is_alphabetic))).collect()
}

#[test]
#[cfg_attr(
    not(all(feature = "serve", feature = "mcp")),
    ignore = "needs serve and mcp: the documentation has their options"
)]
fn every_option_exists() {
    let home = tempfile::tempdir().unwrap();
    let commands = [
        "run",
        "resume",
        "chat",
        "serve",
        "proxy",
        "launch",
        "render",
        "parse",
        "grammar",
        "bench",
        "bench init",
        "bench export",
        "bench calibrate",
        "bench merge",
        "bench report",
        "certify",
        "template check",
        "model pull",
        "config show",
        "doctor",
        "cache list",
        "mcp list",
    ];
    let help: Vec<String> =
        commands.map(|command| run(callwright(home.path()).args(command.split(' ')).arg("--help")).out).to_vec();
    let known: Vec<&str> = help.iter().flat_map(|help| options(help)).collect();
    let mut pages = book();
    pages.push(root().join("README.md"));
    for page in pages {
        let text = read(&page);
        let unknown: Vec<&str> = options(&text).into_iter().filter(|option| !known.contains(option)).collect();
        assert!(unknown.is_empty(), "{}: {unknown:?}", page.display());
    }
}

#[test]
fn the_number_of_formats_is_right() {
    let count = Format::builtins().len();
    let python = "crates/callwright-python/README.md";
    for (page, text) in [
        ("README.md", format!("{count} built in")),
        (python, format!("{count} formats")),
        ("crates/callwright-wasm/npm/README.md", format!("{count} formats")),
    ] {
        assert!(read(&root().join(page)).contains(&text), "{page}: {text}");
    }
}

/// The blocks of a text in a language.
fn blocks<'t>(text: &'t str, language: &str) -> Vec<&'t str> {
    let begin = format!("\n```{language}\n");
    text.split(&begin).skip(1).filter_map(|rest| Some(rest.split_once("\n```")?.0)).collect()
}

/// Examples that a reader copies. What is in longer fences is shown as it is broken.
#[test]
fn examples_of_json_and_toml_can_be_read() {
    let mut pages = book();
    pages.push(root().join("README.md"));
    let (mut read_ones, mut wrong) = (0, Vec::new());
    for page in pages {
        let text: String = read(&page).split("````").step_by(2).collect();
        let json = blocks(&text, "json").into_iter().map(|block| {
            (block, serde_json::from_str::<serde_json::Value>(block).err().map(|error| error.to_string()))
        });
        let toml = blocks(&text, "toml")
            .into_iter()
            .map(|block| (block, toml::from_str::<toml::Table>(block).err().map(|error| error.to_string())));
        for (block, error) in json.chain(toml) {
            read_ones += 1;
            wrong.extend(error.map(|error| format!("{}: {error}\n{block}", page.display())));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(read_ones > 10, "{read_ones} blocks");
}
