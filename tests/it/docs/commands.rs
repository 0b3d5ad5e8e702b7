//! The documentation's commands, run as a reader runs them: with the bundled model, in a folder with the files that a page
//! talks about.

use crate::program::at_home;
use std::path::Path;
use std::process::{Command, Stdio};

/// Commands that are not run, by a part of them, and why.
const NOT_RUN: [(&str, &str); 9] = [
    ("…", "the reader's own text"),
    (" -m ", "another model"),
    ("plain adapted", "runs that another command would have made"),
    ("bfcl:", "the leaderboard's data"),
    ("suites/home", "a suite of the repository, and many answers"),
    ("mcp.json", "the reader's MCP servers"),
    ("last-week", "an earlier run"),
    ("part-3", "parts that GNU parallel would have made"),
    ("--upstream", "another server"),
];

/// Commands whose shown output depends on more than the files here, and why.
const OTHER_OUTPUT: [(&str, &str); 3] = [
    ("bench --limit 40 --out first", "times, and fewer cases here"),
    ("callwright doctor", "the machine"),
    ("config show grammar", "the reader's file of settings"),
];

/// A command of a page, with the lines that are shown as its output.
struct Shown {
    page: String,
    command: String,
    lines: Vec<String>,
}

impl Shown {
    /// What a person types in a chat: its commands and its questions.
    fn typed(&mut self) -> Vec<String> {
        let is_chat = self.command.starts_with("callwright chat");
        let is_typed = |line: &mut String| is_chat && (line.starts_with('/') || line.ends_with('?'));
        self.lines.extract_if(.., is_typed).collect()
    }
}

/// The commands of all console blocks of a page that begin with the program's name.
fn commands(page: &str, text: &str) -> Vec<Shown> {
    let mut found: Vec<Shown> = Vec::new();
    let (mut inside, mut open) = (false, false);
    for line in text.lines() {
        if line.starts_with("```") {
            (inside, open) = (line == "```console", false);
        } else if let Some(command) = line.strip_prefix("$ ").filter(|_| inside) {
            open = command.starts_with("callwright ");
            let command = command.split("  #").next().unwrap_or_default().trim_end().to_owned();
            if open {
                found.push(Shown { page: page.to_owned(), command, lines: Vec::new() });
            }
        } else if let Some(last) = found.last_mut().filter(|_| inside && open) {
            match last.command.strip_suffix('\\').map(str::to_owned) {
                Some(begun) => last.command = begun + line.trim(),
                None => last.lines.push(line.to_owned()),
            }
        }
    }
    found
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// A folder with what a page's commands need.
fn prepare(page: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let at = |name: &str| folder.path().join(name);
    copy(&root.join("examples"), &at("examples"));
    copy(&root.join("benches/runs"), &at("benches/runs"));
    for name in ["before", "after", "formats"] {
        copy(&root.join("benches/runs/formats"), &at(name));
    }
    for name in
        [".zfunc", ".config/fish/completions", ".local/share/bash-completion/completions", ".local/share/man/man1"]
    {
        std::fs::create_dir_all(at(name)).unwrap();
    }
    let write = |name: &str, text: &str| std::fs::write(at(name), text).unwrap();
    let book = r#"[{"name": "find_book", "parameters": {"type": "object", "properties": {"title": {"type": "string"}, "year": {"type": "integer"}}}}]"#;
    let answer = "I'll look that up.\n```json\n{\"name\": \"find_book\", \"arguments\": {'title': 'Emma', \"year\": \"1815\",}}\n```\n";
    write("answer.txt", answer);
    let weather = std::fs::read_to_string(root.join("examples/weather.json")).unwrap();
    write("tools.json", if page == "reading.md" { book } else { &weather });
    write("bad.json", r#"[{"name": "f", "parameters": {"type": "objekt"}}]"#);
    write("response.json", r#"{"choices": [{"message": {"role": "assistant", "content": "It is warm."}}]}"#);
    write("jobs.jsonl", "{\"format\": \"hermes\", \"input\": \"Hello\"}\n");
    folder
}

/// Returns whether a shown line is one that was written. An ellipsis in it matches anything, also more lines.
fn is_written(shown: &str, text: &str) -> bool {
    if !shown.contains('…') {
        return text.lines().any(|line| line == shown);
    }
    let mut rest = text;
    shown.split('…').map(|part| part.trim().trim_end_matches(',')).all(|part| match rest.split_once(part) {
        Some((_, after)) => {
            rest = after;
            true
        }
        None => false,
    })
}

#[test]
#[cfg(unix)]
#[cfg_attr(
    not(all(feature = "llama", feature = "bundled-model", feature = "mcp", feature = "serve")),
    ignore = "needs the program's features"
)]
fn every_command_of_the_documentation_runs_and_writes_what_is_shown() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages: Vec<_> = std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path()).collect();
    pages.retain(|page| page.extension().is_some_and(|end| end == "md"));
    pages.push(root.join("README.md"));
    pages.sort();
    let program = assert_cmd::cargo::cargo_bin!("callwright");
    let path = format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let (mut ran, mut wrong, mut skipped) = (0, Vec::new(), Vec::new());
    for page in pages {
        let name = page.file_name().unwrap().to_string_lossy().into_owned();
        let shown = commands(&name, &std::fs::read_to_string(&page).unwrap());
        if shown.is_empty() {
            continue;
        }
        // The commands of a page build on one another.
        let folder = prepare(&name);
        for mut one in shown {
            let typed = one.typed().join("\n");
            let Shown { page, command, lines } = one;
            if let Some((part, _)) = NOT_RUN.iter().find(|(part, _)| command.contains(part)) {
                skipped.push(*part);
                continue;
            }
            // Few cases show as well that a command works.
            let short = ["40", "120"]
                .iter()
                .fold(command.clone(), |line, limit| line.replace(&format!("--limit {limit}"), "--limit 2"));
            let mut shell = Command::new("sh");
            at_home(&mut shell, folder.path());
            shell.env("PATH", &path).env("PROFILE", folder.path().join("profile")).env_remove("XDG_CACHE_HOME");
            let stdin = if typed.is_empty() {
                Stdio::null()
            } else {
                std::fs::write(folder.path().join("typed"), &typed).unwrap();
                Stdio::from(std::fs::File::open(folder.path().join("typed")).unwrap())
            };
            let output = shell.arg("-c").arg(&short).current_dir(folder.path()).stdin(stdin).output().unwrap();
            ran += 1;
            let text = [output.stdout, output.stderr].concat();
            let text = String::from_utf8_lossy(&text);
            if !output.status.success() {
                wrong.push(format!("{page}: {command}: {}\n{text}", output.status));
            }
            match OTHER_OUTPUT.iter().find(|(part, _)| command.contains(part)) {
                Some((part, _)) => skipped.push(*part),
                None => {
                    let missing: Vec<_> = lines.iter().filter(|line| !is_written(line, &text)).collect();
                    if !missing.is_empty() {
                        wrong.push(format!("{page}: {command} does not write {missing:#?} but\n{text}"));
                    }
                    // A block without an ellipsis has everything.
                    let is_whole = !lines.is_empty() && lines.iter().all(|line| !line.contains('…'));
                    let hidden = |line: &&str| is_whole && !line.is_empty() && !lines.iter().any(|shown| shown == line);
                    let hidden: Vec<&str> = text.lines().filter(hidden).collect();
                    if !hidden.is_empty() {
                        wrong.push(format!("{page}: {command} also writes {hidden:#?}"));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(ran > 30, "{ran} commands");
    let unused: Vec<_> = NOT_RUN.iter().chain(&OTHER_OUTPUT).filter(|(part, _)| !skipped.contains(part)).collect();
    assert!(unused.is_empty(), "no command has {unused:?}");
}
