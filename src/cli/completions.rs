//! `callwright completions` and `callwright man`: what a shell and `man` know of the program.

use super::{Cli, DONE, screen};
use anyhow::Result;
use callwright::Error;
use clap::CommandFactory;
use clap_complete::Shell;
use std::io::Write;
use std::path::PathBuf;

/// Print the completions of options and commands for a shell
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    callwright completions bash > ~/.local/share/bash-completion/completions/callwright\n  \
    callwright completions fish > ~/.config/fish/completions/callwright.fish")]
pub struct CompletionsArgs {
    /// Write for this shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Write the manual pages of all commands
#[derive(clap::Args)]
#[command(after_help = "Example:\n  callwright man ~/.local/share/man/man1")]
pub struct ManArgs {
    /// Write into this folder, which is created
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Runs `callwright completions`.
pub fn completions(args: &CompletionsArgs) -> Result<u8> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "callwright", &mut text);
    screen::data().write_all(&text)?;
    Ok(DONE)
}

/// Runs `callwright man`.
pub fn man(args: &ManArgs) -> Result<u8> {
    std::fs::create_dir_all(&args.folder).map_err(|error| Error::io("create", &args.folder, &error))?;
    clap_mangen::generate_to(Cli::command(), &args.folder)
        .map_err(|error| Error::io("write to", &args.folder, &error))?;
    Ok(DONE)
}
