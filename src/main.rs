//! The `callwright` program: its commands (`cli`), and its server (`serve`).

use std::process::ExitCode;

mod cli;
#[cfg(feature = "serve")]
mod serve;

fn main() -> ExitCode {
    cli::main()
}
