//! The `callwright` program: parse, run, exit status.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
