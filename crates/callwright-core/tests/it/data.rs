//! Test data that is not part of the repository. The tests that need it are ignored, and have "conformance" in their
//! names: `CALLWRIGHT_CONFORMANCE=/its/folder cargo test --workspace -- --ignored conformance` runs them.

use std::path::{Path, PathBuf};

/// Templates of other projects, and what they render and parse: the folder that `$CALLWRIGHT_CONFORMANCE` names, or the
/// one beside the repository.
pub fn conformance() -> PathBuf {
    let repository =
        Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().find(|folder| folder.join("models.toml").exists());
    let beside = || repository.map(|repository| repository.join("../shared/conformance"));
    let folder = std::env::var_os("CALLWRIGHT_CONFORMANCE").map(PathBuf::from).or_else(beside).unwrap_or_default();
    let there = folder.join("renders.jsonl").exists();
    assert!(there, "no conformance data in {}: set CALLWRIGHT_CONFORMANCE to its folder", folder.display());
    folder
}

/// That folder, and a second one of the same kind, if there is one: it has the same name with `-2` at its end.
pub fn all_conformance() -> Vec<PathBuf> {
    let first = conformance();
    let mut name = first.file_name().unwrap_or_default().to_owned();
    name.push("-2");
    let second = first.with_file_name(name);
    if !second.join("renders.jsonl").exists() {
        println!("skipped: the second part of the conformance data, {} is not there", second.display());
        return vec![first];
    }
    vec![first, second]
}

/// The rows of a file in all folders, each with its folder.
pub fn conformance_rows(file: &str) -> Vec<(PathBuf, serde_json::Value)> {
    let mut rows = Vec::new();
    for folder in all_conformance() {
        let text = std::fs::read_to_string(folder.join(file)).unwrap();
        rows.extend(text.lines().map(|line| (folder.clone(), serde_json::from_str(line).unwrap())));
    }
    rows
}

/// The chat template of that file name, in the folder that has it.
pub fn conformance_template(name: &str) -> Option<PathBuf> {
    all_conformance().iter().map(|folder| folder.join("templates").join(name)).find(|path| path.exists())
}

/// The chat templates of many models: names of files, and sources.
pub fn conformance_templates() -> Vec<(String, String)> {
    let files = std::fs::read_dir(conformance().join("templates")).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files.filter(|path| path.extension().is_some_and(|ext| ext == "jinja")).collect();
    files.sort();
    let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
    files.iter().map(|path| (name(path), std::fs::read_to_string(path).unwrap())).collect()
}
