//! The program, run as a user runs it, away from what this machine has.

use assert_cmd::Command;
use std::path::Path;

/// How a run ended, and what it wrote.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

/// The program with `home` in place of everything it could find on this machine.
pub fn callwright(home: &Path) -> Command {
    let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin!("callwright"));
    at_home(&mut command, home);
    Command::from_std(command)
}

/// Puts `home` in place of everything that a program could find on this machine.
pub fn at_home(command: &mut std::process::Command, home: &Path) {
    for variable in
        ["HF_HUB_CACHE", "HF_TOKEN", "HF_TOKEN_PATH", "HF_ENDPOINT", "HF_HUB_OFFLINE", "RUST_LOG", "CALLWRIGHT_CONFIG"]
    {
        command.env_remove(variable);
    }
    command.env("HF_HOME", home.join("hf")).env("XDG_CONFIG_HOME", home.join("config")).env("HOME", home);
}

pub fn run(command: &mut Command) -> Ran {
    let output = command.output().unwrap();
    Ran {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}
