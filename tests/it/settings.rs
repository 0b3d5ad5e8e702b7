//! Messages name a setting as their reader knows it.

use crate::program::{callwright, run};
use callwright::setting::{Front, Setting};
use std::path::{Path, PathBuf};

/// The names of the program's options in a text.
fn options(text: &str) -> impl Iterator<Item = &str> {
    text.split([' ', '`']).filter(|word| word.starts_with("--"))
}

#[test]
#[cfg_attr(not(feature = "serve"), ignore = "needs the server's options")]
fn each_setting_has_a_name_that_each_front_end_knows() {
    let home = tempfile::tempdir().unwrap();
    let known = run(callwright(home.path()).args(["completions", "bash"])).out;
    let documented = ["docs/server.md", "docs/messages.md"].map(|page| std::fs::read_to_string(page).unwrap()).concat();
    for setting in Setting::ALL {
        let message = format!("before, {setting}: after");
        for front in [Front::Program, Front::Server] {
            let name = setting.name_in(front);
            assert_eq!(front.message(&message), format!("before, {name}: after"));
            for option in options(name) {
                assert!(known.split([' ', '"', '|', ')']).any(|word| word == option), "{option} is no option");
            }
            assert!(front == Front::Server || !name.contains("::"), "{setting:?} has no name in the program");
        }
        let field = setting.name_in(Front::Server).trim_start_matches("set ").trim_start_matches("callwright.");
        let field = field.split(' ').next().unwrap_or_default();
        if setting.name_in(Front::Server) != setting.name_in(Front::Program)
            && !field.starts_with("--")
            && field != "give"
            && field != "add"
        {
            assert!(documented.contains(&format!("`{field}`")), "{field} is in neither page");
        }
    }
}

#[test]
fn messages_name_the_settings_of_the_table_alone() {
    let mut named = Vec::new();
    for folder in ["src", "crates/callwright-core/src"] {
        sources(Path::new(folder), &mut |path, text| {
            for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
                let spans = line.split('`').skip(1).step_by(2);
                let paths = spans
                    .filter(|span| span.starts_with(|first: char| first.is_ascii_uppercase()) && span.contains("::"));
                named.extend(paths.map(|span| format!("{}: `{span}`", path.display())));
            }
        });
    }
    assert_eq!(named, [""; 0]);
}

/// Passes the sources in a folder on, without the table and tests.
fn sources(folder: &Path, on_source: &mut dyn FnMut(&Path, &str)) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path: PathBuf = entry.unwrap().path();
        if path.is_dir() {
            if !path.ends_with("tests") {
                sources(&path, on_source);
            }
        } else if path.extension().is_some_and(|end| end == "rs")
            && !path.ends_with("setting.rs")
            && !path.ends_with("tests.rs")
        {
            on_source(&path, &std::fs::read_to_string(&path).unwrap());
        }
    }
}
