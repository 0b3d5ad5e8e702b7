//! The `callwright` program. Its code is the library's module `cli`, so that the library need not publish what only the
//! program uses.

use std::process::ExitCode;

fn main() -> ExitCode {
    callwright::program()
}
