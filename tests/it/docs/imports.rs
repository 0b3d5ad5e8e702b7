//! The order of imports that ARCHITECTURE.md promises: a row of its tables imports only from rows above it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Imports against the order: from a room, of another one.
const EXCEPTIONS: [(&str, &str); 1] = [("format", "parse")];
/// Names at the root of a crate, and the rooms that they come from.
const AT_THE_ROOT: [(&str, &str); 8] = [
    ("Error", "error"),
    ("ErrorKind", "error"),
    ("Result", "error"),
    ("Tools", "tool"),
    ("Session", "session"),
    ("SessionBuilder", "model"),
    ("Model", "model"),
    ("ModelBuilder", "model"),
];

/// The rooms of the table below a heading, each with the number of its row.
fn rooms(page: &str, heading: &str) -> HashMap<String, usize> {
    let table = page.split_once(heading).unwrap().1.split("|---|---|").nth(1).unwrap();
    let rows = table.trim_start().lines().take_while(|line| line.starts_with('|'));
    let names = rows.enumerate().flat_map(|(row, line)| {
        let cell = line.split('|').nth(1).unwrap();
        let names = cell.split('`').skip(1).step_by(2).map(|name| name.trim_end_matches(".rs").trim_end_matches('/'));
        names.map(move |name| (name.to_owned(), row)).collect::<Vec<_>>()
    });
    names.collect()
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        match path.is_dir() {
            true if name != "tests" => sources(&path, found),
            false if name.ends_with(".rs") && name != "tests.rs" => found.push(path),
            _ => {}
        }
    }
}

/// The names after `crate::` in a source without its tests and comments.
fn imported(text: &str) -> Vec<String> {
    let code = text.split("\n#[cfg(test)]\nmod tests").next().unwrap();
    let code: String = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    let word = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let paths = code.split("crate::").skip(1).filter(|after| !after.starts_with('{'));
    let mut names: Vec<String> = paths.map(word).collect();
    for group in code.split("use crate::{").skip(1) {
        // A group within a group names what is in a room.
        let (mut depth, mut name) = (0, String::new());
        for c in group.split(';').next().unwrap().chars() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => names.push(word(std::mem::take(&mut name).trim())),
                _ if depth == 0 => name.push(c),
                _ => {}
            }
        }
        names.push(word(name.trim()));
    }
    names
}

#[test]
fn a_room_imports_only_from_rooms_above_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    let core = rooms(&page, "## `crates/callwright-core/src`");
    for (folder, elsewhere) in [("crates/callwright-core/src", None), ("crates/callwright/src", Some(&core))] {
        let rooms = rooms(&page, &format!("## `{folder}`"));
        let mut files = Vec::new();
        sources(&root.join(folder), &mut files);
        assert!(files.len() > 50, "{folder}: {}", files.len());
        let mut wrong = Vec::new();
        for file in files {
            let path = file.strip_prefix(root.join(folder)).unwrap().to_string_lossy().into_owned();
            let room = path.split(['/', '.']).next().unwrap();
            if room == "lib" {
                continue;
            }
            let own = rooms.get(room).unwrap_or_else(|| panic!("ARCHITECTURE.md has no row for {folder}/{path}"));
            for name in imported(&std::fs::read_to_string(&file).unwrap()) {
                let from = AT_THE_ROOT.iter().find(|(root, _)| *root == name).map_or(name.as_str(), |(_, room)| room);
                let ok = match rooms.get(from) {
                    Some(row) => row <= own || EXCEPTIONS.contains(&(room, from)),
                    // What the core has is below all of the library.
                    None => elsewhere.is_some_and(|core| core.contains_key(from)),
                };
                if !ok {
                    wrong.push(format!("{path} imports {name}"));
                }
            }
        }
        assert!(wrong.is_empty(), "{folder}:\n{}", wrong.join("\n"));
    }
}
