//! `callwright bench`: measures how reliably models call tools.

use super::bench_calibrate::{self, CalibrateArgs};
use super::bench_merge::{self, MergeArgs};
use super::bench_run::{self, RunArgs};
use super::bench_score::{self, ScoreArgs};
use super::bench_table::{comparison, table};
use super::{DONE, notice, screen};
use anyhow::Result;
use callwright::files::Readers;
use callwright::{Error, ErrorKind};
use callwright_bench::compare::{Comparison, compare, compare_within};
use callwright_bench::directory::RunDirectory;
use callwright_bench::export::{Export, export};
use callwright_bench::replay::replay;
use callwright_bench::report::{self, matrix::write_matrix};
use callwright_bench::suite::{EXAMPLE, EXAMPLE_TURNS};
use callwright_bench::summary::{Summary, rescored};
use callwright_bench::verdict::sentence;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Measure how reliably models call tools
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  \
    callwright bench -m qwen3-0.6b --limit 100 --out qwen3\n  \
    callwright bench -m qwen3-0.6b --format delimited --format hermes --constrain off --constrain strict --temp 0.7 --repeat 3\n  \
    callwright bench --preset formats -m qwen3-0.6b\n  \
    callwright bench --suite my-cases.jsonl --fail-under 0.95 --fail-under 0.99:delivered"
)]
pub struct BenchArgs {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    run: RunArgs,
}

#[derive(Subcommand)]
enum Command {
    /// Compare two runs of the same cases, or the first configuration of a run with its others: which cases changed,
    /// and whether chance explains it
    #[command(after_help = "Examples:\n  callwright bench compare before after\n  callwright bench compare formats")]
    Compare {
        /// Compare from this run; alone, compare its configurations
        a: PathBuf,
        /// Compare with this run
        b: Option<PathBuf>,
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Write the reports of runs again and print their tables; a run may still be in progress
    #[command(
        after_help = "Examples:\n  callwright bench report bench-20250101-120000\n  callwright bench report first second --matrix page"
    )]
    Report {
        /// Use the runs in these directories
        #[arg(required = true)]
        run: Vec<PathBuf>,
        /// Print report.json
        #[arg(long)]
        json: bool,
        /// Write one page of all runs to DIR instead, index.html, whose numbers open their answers
        #[arg(long, value_name = "DIR", conflicts_with = "json")]
        matrix: Option<PathBuf>,
    },
    /// Execute the calls of a case of several turns again, without a model: each turn, and what is different in the state
    #[command(after_help = "Example:\n  callwright bench replay bench-20250101-120000 home-already-done")]
    Replay {
        /// Use the run in this directory
        run: PathBuf,
        /// Repeat the answers to this case
        case: String,
    },
    /// Score a run's raw answers with this version's parser and outcomes, and write its reports
    #[command(after_help = "Example:\n  callwright bench rescore bench-20250101-120000")]
    Rescore {
        /// Use the run in this directory
        run: PathBuf,
        /// Print report.json
        #[arg(long)]
        json: bool,
    },
    /// Write a commented example of a suite
    #[command(after_help = "Example:\n  callwright bench init cases.jsonl && callwright bench --suite cases.jsonl")]
    Init {
        /// Write the suite to this file
        file: PathBuf,
        /// Write cases of several turns, and beside them a .toml file of what their tools do
        #[arg(long)]
        multi_turn: bool,
    },
    /// Write the failed answers of a run as training data, each with the right answer; one of five cases is kept for measuring
    #[command(after_help = "Example:\n  callwright bench export first --pairs pairs.jsonl --test test.jsonl")]
    Export {
        /// Use the run in this directory
        run: PathBuf,
        /// Write pairs of the right answer and the model's own, for DPO, to FILE
        #[arg(long, value_name = "FILE", required_unless_present_any = ["chat", "test"])]
        pairs: Option<PathBuf>,
        /// Write conversations that end in the right answer, for SFT, to FILE
        #[arg(long, value_name = "FILE")]
        chat: Option<PathBuf>,
        /// Write the cases that are kept for measuring to FILE, a suite
        #[arg(long, value_name = "FILE")]
        test: Option<PathBuf>,
    },
    Score(ScoreArgs),
    Calibrate(Box<CalibrateArgs>),
    Merge(MergeArgs),
}

pub fn run(args: BenchArgs) -> Result<u8> {
    match args.command {
        None => bench_run::run(args.run),
        Some(Command::Score(args)) => bench_score::run(args),
        Some(Command::Calibrate(args)) => bench_calibrate::run(*args),
        Some(Command::Merge(args)) => bench_merge::run(args),
        Some(Command::Init { file, multi_turn }) => init(&file, multi_turn),
        Some(Command::Export { run, pairs, chat, test }) => write_export(&run, [pairs, chat, test]),
        Some(Command::Compare { a, b, json }) => {
            let (a, b) = (open(&a)?, b.as_deref().map(open).transpose()?);
            let comparisons = b.as_ref().map_or_else(|| compare_within(&a), |b| compare(&a, b))?;
            [Some(&a), b.as_ref()].into_iter().flatten().for_each(tell_lacking);
            let mut out = screen::data();
            if json {
                writeln!(out, "{:#}", comparisons.iter().map(to_json).collect::<Value>())?;
            } else {
                comparisons.iter().try_for_each(|one| write!(out, "{}", comparison(one)))?;
            }
            Ok(DONE)
        }
        Some(Command::Report { run, json, matrix: None }) => {
            for run in &run {
                show(&Summary::new(&open(run)?)?, json)?;
            }
            Ok(DONE)
        }
        Some(Command::Report { run, matrix: Some(folder), .. }) => {
            let runs = run.iter().map(|run| open(run)).collect::<Result<Vec<_>>>()?;
            let summaries = runs.iter().map(Summary::new).collect::<callwright::Result<Vec<_>>>()?;
            writeln!(screen::data(), "{}", write_matrix(&summaries, &folder)?.display())?;
            Ok(DONE)
        }
        Some(Command::Replay { run, case }) => {
            write!(screen::data(), "{}", replay(&Summary::new(&open(&run)?)?, &case)?)?;
            Ok(DONE)
        }
        Some(Command::Rescore { run, json }) => {
            let mut run = open(&run)?;
            rescored(&mut run)?;
            show(&Summary::new(&run)?, json)?;
            Ok(DONE)
        }
    }
}

pub fn open(path: &Path) -> Result<RunDirectory> {
    let run = RunDirectory::open(path)?;
    run.notices.iter().for_each(|text| notice(text));
    Ok(run)
}

/// Reports that a run is incomplete: its answers may be to other cases than the missing ones.
pub fn tell_lacking(run: &RunDirectory) {
    let lacking = run.lacking();
    if lacking > 0 {
        let (name, there) = (run.path().display(), run.samples.len());
        notice(&format!("{name} lacks {lacking} of its {} answers: it is not finished", there + lacking));
    }
}

/// Prints the table, or report.json with `json`, and then writes the reports: if that fails, the figures were printed.
pub fn show(summary: &Summary<'_>, json: bool) -> Result<()> {
    let mut out = screen::data();
    write!(out, "{}", if json { report::json::report(summary) } else { table(summary) })?;
    let files = summary.write_reports()?;
    if let Some(page) = files.last().filter(|_| !json) {
        writeln!(out, "\nEvery answer, and why it failed: {}", page.display())?;
    }
    Ok(())
}

fn init(file: &Path, multi_turn: bool) -> Result<u8> {
    let write = |file: &Path, text: &str| {
        let made = std::fs::File::create_new(file).and_then(|mut made| made.write_all(text.as_bytes()));
        made.map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => {
                Error::new(ErrorKind::Suite, format!("{} exists already", file.display())).hint("name another file")
            }
            _ => Error::io("write", file, &error),
        })
    };
    if multi_turn {
        let (world, [example, text]) = (file.with_extension("toml"), EXAMPLE_TURNS);
        let cases = example.replace("WORLD", &world.file_name().unwrap_or_default().to_string_lossy());
        write(file, &cases)?;
        write(&world, text)?;
    } else {
        write(file, EXAMPLE)?;
    }
    writeln!(screen::data(), "{}: edit it, then callwright bench --suite {0}", file.display())?;
    Ok(DONE)
}

/// Writes training data to those of the files for pairs, conversations and kept cases that are named.
fn write_export(run: &Path, files: [Option<PathBuf>; 3]) -> Result<u8> {
    let run = open(run)?;
    tell_lacking(&run);
    let Export { pairs, chat, test, unknown } = export(&Summary::new(&run)?);
    let text = |lines: &[Value]| lines.iter().map(ToString::to_string).collect();
    let parts: [(&str, Vec<String>); 3] =
        [("pairs", text(&pairs)), ("conversations", text(&chat)), ("cases for measuring", test)];
    for (file, (what, lines)) in files.into_iter().zip(parts) {
        let Some(file) = file else { continue };
        let whole: String = lines.iter().map(|line| format!("{line}\n")).collect();
        callwright::files::write(&file, whole.as_bytes(), Readers::Owner)
            .map_err(|error| Error::io("write", &file, &error))?;
        writeln!(screen::data(), "{}: {} {what}", file.display(), lines.len())?;
    }
    if unknown > 0 {
        notice(&format!(
            "{unknown} failed answers are left out: neither the suite nor another answer has the right one"
        ));
    }
    Ok(DONE)
}

fn to_json(one: &Comparison) -> Value {
    let flips = |cases: &[(String, String)]| {
        cases.iter().map(|(case, outcome)| json!({"case": case, "outcome": outcome})).collect::<Vec<_>>()
    };
    let compared = (one.cases > 0).then_some(one);
    let figure = |of: fn(&Comparison) -> f64| compared.map(of);
    let alone = [&one.before, &one.after].into_iter().find_map(|side| side.as_ref().err().map(ToString::to_string));
    json!({
        "verdict": sentence(one),
        "before": one.before.as_ref().ok(), "after": one.after.as_ref().ok(), "alone": alone, "cases": one.cases,
        "difference": figure(|one| one.difference.0),
        "low": figure(|one| one.difference.1),
        "high": figure(|one| one.difference.2),
        "p": figure(|one| one.p),
        "p_holm": figure(|one| one.p_holm),
        "needed": one.needed,
        "lost": flips(&one.lost), "won": flips(&one.won),
    })
}
