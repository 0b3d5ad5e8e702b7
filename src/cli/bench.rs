//! `callwright bench`: how reliably a model calls tools.

use super::bench_score::{self, ScoreArgs};
use anyhow::Result;
use clap::{Args, Subcommand};

/// Measure how reliably models call tools
#[derive(Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Score(ScoreArgs),
}

pub fn run(args: BenchArgs) -> Result<u8> {
    match args.command {
        Command::Score(args) => bench_score::run(args),
    }
}
