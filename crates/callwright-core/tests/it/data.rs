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
