//! Merges the shards of a run of the benchmark.

use super::bench::{open, show};
use super::bench_goals::{Goals, baseline, check_baseline, judged};
use anyhow::Result;
use callwright_bench::shard;
use callwright_bench::summary::Summary;
use clap::Args;
use std::path::{Path, PathBuf};

/// Merge the shards of a run (`--shard I/N`) into one run, with the reports that a single machine would have made
#[derive(Args)]
#[command(after_help = "Example:\n  callwright bench merge shard-1 shard-2 shard-3 --out whole")]
pub struct MergeArgs {
    /// Merge the runs in these directories: each shard once
    #[arg(required = true, value_name = "DIR")]
    shards: Vec<PathBuf>,

    /// Write the run to DIR
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    out: PathBuf,

    /// Print report.json instead of a table
    #[arg(long, help_heading = "Output")]
    json: bool,

    #[command(flatten)]
    goals: Goals,
}

pub fn run(args: MergeArgs) -> Result<u8> {
    let MergeArgs { shards, out, json, goals } = args;
    let runs = shards.iter().map(|path| open(path)).collect::<Result<Vec<_>>>()?;
    // Fails before anything is written.
    let baseline = match (&goals.baseline, runs.first()) {
        (Some(path), Some(first)) => {
            let baseline = baseline(path, &first.suite)?;
            check_baseline(Some(&baseline), &first.plan)?;
            Some(baseline)
        }
        _ => None,
    };
    let run = shard::merge(&runs, &out, |command| whole_command(command, &out))?;
    let summary = Summary::new(&run)?;
    show(&summary, json)?;
    judged(&goals, baseline.as_ref(), &summary)
}

/// The command that makes the run in `out` without shards, from that of a shard.
fn whole_command(shard: &[String], out: &Path) -> Vec<String> {
    let mut command = Vec::new();
    let mut words = shard.iter().peekable();
    while let Some(word) = words.next() {
        let (option, value) =
            word.split_once('=').map_or((word.as_str(), None), |(option, value)| (option, Some(value)));
        if !["--shard", "--out", "--resume"].contains(&option) {
            command.push(word.clone());
            continue;
        }
        let has_value = value.is_some() || words.next_if(|next| !next.starts_with("--")).is_some();
        if option != "--shard" && has_value {
            command.extend(["--out".to_owned(), out.display().to_string()]);
        }
    }
    command
}

#[cfg(test)]
mod tests {
    use super::whole_command;
    use std::path::Path;

    #[test]
    fn a_command_without_shards_writes_to_the_merged_run() {
        for (shard, whole) in [
            ("bench --shard 1/4 --out a -m b", "bench --out all -m b"),
            ("bench --shard=1/4 --out=a --resume", "bench --out all"),
            ("bench --shard 1/4 --resume a --temp 1", "bench --out all --temp 1"),
            ("bench --resume --shard 1/4 -m b", "bench -m b"),
            ("bench -m b --shard 1/4", "bench -m b"),
        ] {
            let words: Vec<String> = shard.split(' ').map(str::to_owned).collect();
            assert_eq!(whole_command(&words, Path::new("all")).join(" "), whole, "{shard}");
        }
    }
}
