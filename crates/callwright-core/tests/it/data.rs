//! Test data that is not part of the repository.

use std::io::Write;
use std::path::{Path, PathBuf};

/// The folder in `variable`, or the one next to the repository, if it contains `file`. Prints a line if it does not.
fn folder(variable: &str, name: &str, file: &str) -> Option<PathBuf> {
    let repository =
        Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().find(|folder| folder.join("models.toml").exists());
    let folder = std::env::var_os(variable)
        .map(PathBuf::from)
        .or_else(|| Some(repository?.join("../shared").join(name)))
        .unwrap_or_default();
    if folder.join(file).exists() {
        return Some(folder);
    }
    // Bypasses the test harness, which would capture the line.
    let _ = writeln!(std::io::stderr(), "skipped: no {name} data in {} (${variable})", folder.display());
    None
}

/// Templates of other projects, with their expected renders and parses.
pub fn conformance() -> Option<PathBuf> {
    folder("CALLWRIGHT_CONFORMANCE", "conformance", "renders.jsonl")
}
