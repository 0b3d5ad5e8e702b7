//! A real model that `make real-models` fetches. Its tests are ignored; toolchain/outside-tests.sh runs them where the
//! model is in the hub's cache.

use crate::program::{self, run};
use assert_cmd::Command;
use callwright::models::Hub;
use std::path::Path;

/// The program with this machine's cache of models, and nothing else of it.
fn callwright(home: &Path) -> Command {
    let mut command = program::callwright(home);
    command.env("HF_HUB_CACHE", Hub::from_env().cache);
    command
}

#[test]
#[ignore = "needs SmolLM2-135M: make real-models"]
fn a_real_model_is_found_by_its_name_and_answers() {
    let home = tempfile::tempdir().unwrap();
    let ran = run(callwright(home.path()).args(["run", "-m", "smollm2-135m", "--offline", "-n", "16", "Say hello."]));
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.to_lowercase().contains("hello"), "{}", ran.out);
}
