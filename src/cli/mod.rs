//! The command line: all that concerns the terminal and not the library. It names the library as its users do.
#![allow(unreachable_pub)]

mod agent;
mod ask;
mod bench;
mod bench_calibrate;
mod bench_goals;
mod bench_merge;
mod bench_resume;
mod bench_run;
mod bench_score;
mod bench_table;
mod cache;
mod certify;
mod chat;
mod completions;
mod config;
mod doctor;
mod generation;
mod grammar;
mod hardware;
mod input;
#[cfg(all(feature = "serve", feature = "remote"))]
mod launch;
mod lines;
mod llama_args;
#[cfg(feature = "mcp")]
mod mcp;
mod model;
mod offers;
mod output;
mod parse;
mod reading;
mod render;
mod resume;
mod run;
mod sampling;
mod screen;
#[cfg(feature = "serve")]
mod serve;
mod stdin;
mod template;
mod trace;
mod unused_fields;

use callwright::Error;
use callwright::setting::Front;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

/// Success.
const DONE: u8 = 0;
/// The run failed.
const FAILED: u8 = 1;
/// Wrong usage, or input that cannot be read.
const USAGE: u8 = 2;
/// A requested threshold is not met.
const THRESHOLD: u8 = 3;
/// The run ended with calls that need results.
const CALLS: u8 = 4;
/// Ended by Ctrl-C: 128 + SIGINT, as in shells.
const INTERRUPTED: u8 = 130;

/// Reliable tool calls from local models.
#[derive(Parser)]
#[command(name = "callwright", version, max_term_width = 100, arg_required_else_help = true)]
#[command(after_help = "Example:\n  callwright run \"What's the weather in Beijing tomorrow?\" --tools tools.json\n\n\
Exit status:\n  0    done\n  1    failed\n  2    wrong usage, or input that cannot be read\n  3    a check failed\n  \
4    calls wait for results or for approval\n  130  interrupted")]
struct Cli {
    #[command(subcommand)]
    command: Command,

    /// Report more on standard error: -v decisions, -vv also llama.cpp's messages
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
}

#[derive(Subcommand)]
enum Command {
    Run(Box<run::RunArgs>),
    Resume(resume::ResumeArgs),
    Chat(Box<chat::ChatArgs>),
    #[cfg(feature = "serve")]
    Serve(Box<serve::ServeArgs>),
    #[cfg(all(feature = "serve", feature = "remote"))]
    Proxy(Box<serve::ProxyArgs>),
    #[cfg(all(feature = "serve", feature = "remote"))]
    Launch(launch::LaunchArgs),
    Render(Box<render::RenderArgs>),
    Parse(parse::ParseArgs),
    Grammar(grammar::GrammarArgs),
    Template(template::TemplateArgs),
    Model(model::ModelArgs),
    #[cfg(feature = "mcp")]
    Mcp(mcp::McpArgs),
    Bench(Box<bench::BenchArgs>),
    Certify(Box<certify::CertifyArgs>),
    Cache(cache::CacheArgs),
    Config(config::ConfigArgs),
    Doctor(doctor::DoctorArgs),
    Completions(completions::CompletionsArgs),
    Man(completions::ManArgs),
}

/// Parses the command line, runs the command, and returns the exit status.
pub fn main() -> ExitCode {
    callwright::engine::llama::report_failures();
    let (cli, ignored) = match parse_args(std::env::args_os().collect()) {
        Ok(parsed) => parsed,
        Err(status) => return status,
    };
    log(cli.verbose);
    ignored.iter().for_each(|text| notice(text));
    let result = match cli.command {
        Command::Run(args) => run::run(*args),
        Command::Resume(args) => resume::run(args),
        Command::Chat(args) => chat::run(*args),
        #[cfg(feature = "serve")]
        Command::Serve(args) => serve::run(*args),
        #[cfg(all(feature = "serve", feature = "remote"))]
        Command::Proxy(args) => serve::proxy(*args),
        #[cfg(all(feature = "serve", feature = "remote"))]
        Command::Launch(args) => launch::run(args),
        Command::Render(args) => render::run(*args),
        Command::Parse(args) => parse::run(args),
        Command::Grammar(args) => grammar::run(args),
        Command::Template(args) => template::run(args),
        Command::Bench(args) => bench::run(*args),
        Command::Certify(args) => certify::run(*args),
        Command::Cache(args) => cache::run(args),
        Command::Config(args) => config::run(args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Completions(args) => completions::completions(&args),
        Command::Man(args) => completions::man(&args),
        #[cfg(feature = "mcp")]
        Command::Mcp(args) => mcp::run(args),
        Command::Model(args) => model::run(args, Some(&callwright::engine::llama::cpu_features())),
    };
    match result {
        Ok(status) => ExitCode::from(status),
        Err(error) => report(&error),
    }
}

/// Parses a command line, with defaults from files and the environment. Returns also a note about what was ignored.
fn parse_args(args: Vec<OsString>) -> Result<(Cli, Option<String>), ExitCode> {
    let rewritten = llama_args::rewrite(args.into_iter()).map_err(|error| report(&error.into()))?;
    let ignored = rewritten.note();
    let args = rewritten.args;
    let root = Cli::command();
    let settings = config::Settings::for_args(&args, &root).map_err(|error| report(&error.into()))?;
    let mut command = with_short_help(run::replays_alone(settings.apply(root)));
    let matches = command.try_get_matches_from_mut(&args);
    matches.and_then(|matches| Cli::from_arg_matches(&matches)).map(|cli| (cli, ignored)).map_err(|mut error| {
        llama_args::suggest(&mut error, &Cli::command(), &args);
        // clap writes help to standard output with status 0, and mistakes to standard error with status 2.
        let (text, code) = (error.render(), error.exit_code());
        let _ = match error.use_stderr() {
            true => screen::stderr().styled(&text),
            false => screen::stdout().styled(&text),
        };
        settings.source(&error, &args).iter().for_each(|text| notice(text));
        ExitCode::from(u8::try_from(code).unwrap_or(USAGE))
    })
}

/// The options in the help of `-h`: what most people use. `--help` has all.
const SHORT: [(&str, &[&str]); 3] = [
    (
        "run",
        &[
            "tools",
            "messages",
            "tool-choice",
            "model",
            "template",
            "format",
            "ctx",
            "temp",
            "max-tokens",
            "execute",
            "output",
        ],
    ),
    ("chat", &["tools", "messages", "system", "model", "template", "format", "ctx", "temp", "max-tokens", "yes"]),
    ("serve", &["model", "host", "port", "api-key-file", "mcp", "template", "format", "ctx", "parallel", "timeout"]),
];

fn with_short_help(command: clap::Command) -> clap::Command {
    SHORT.iter().fold(command, |command, (name, shown)| {
        if command.find_subcommand(name).is_none() {
            return command;
        }
        let hide = |arg: clap::Arg| {
            let hidden = arg.get_long().is_some_and(|long| !shown.contains(&long));
            arg.hide_short_help(hidden)
        };
        command.mut_subcommand(name, |command| command.mut_args(hide))
    })
}

/// Reports an error; the exit status tells wrong input from a failed run.
fn report(error: &anyhow::Error) -> ExitCode {
    if broken_pipe(error) {
        return ExitCode::from(DONE);
    }
    let style = anstyle::AnsiColor::Red.on_default().bold();
    // Reading and downloading fail with the library's errors, so this is an error of writing the output.
    let doing = if error.is::<std::io::Error>() { "cannot write to standard output: " } else { "" };
    say(format_args!("{style}error:{style:#} {doing}{}\n", Front::Program.message(&sentence(error))));
    let input = error.downcast_ref::<Error>().is_some_and(|error| error.kind().is_input());
    ExitCode::from(if input { USAGE } else { FAILED })
}

/// An error and its causes, down to the library's error, which says what its own causes say.
fn sentence(error: &anyhow::Error) -> String {
    let library = error.chain().position(|cause| cause.is::<Error>());
    let causes: Vec<String> =
        error.chain().take(library.map_or(usize::MAX, |at| at + 1)).map(ToString::to_string).collect();
    causes.join(": ")
}

/// Writes to standard error. `eprint!` would panic on a full disk; such an error cannot be reported anywhere.
fn say(text: std::fmt::Arguments<'_>) {
    let mut err = screen::stderr();
    let _ = err.write_fmt(text).and_then(|()| err.flush());
}

/// Returns whether the reader closed the output, which is not a failure.
fn broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
}

/// Reports a failure where the command continues to its exit status.
fn complain(text: &str) {
    let style = anstyle::AnsiColor::Red.on_default().bold();
    say(format_args!("{style}error:{style:#} {}\n", Front::Program.message(text)));
}

/// Reports what the user should know and is not a failure.
fn notice(text: &str) {
    let style = anstyle::AnsiColor::Yellow.on_default();
    say(format_args!("{style}note:{style:#} {}\n", Front::Program.message(text)));
}

/// Reports a fact that does not change while the program runs, only once.
fn notice_once(text: &str) {
    static REPORTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut reported = REPORTED.lock().unwrap_or_else(PoisonError::into_inner);
    if reported.insert(text.to_owned()) {
        notice(text);
    }
}

/// Writes the log to standard error. An option has the program's name in it, as in all other messages.
struct Log;

impl Write for Log {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        screen::stderr().write_all(Front::Program.message(&String::from_utf8_lossy(text)).as_bytes())?;
        Ok(text.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        screen::stderr().flush()
    }
}

fn log(verbose: u8) {
    use tracing_subscriber::EnvFilter;
    let default = match verbose {
        0 => "warn",
        1 => "callwright=info",
        _ => "debug",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| Log)
        // Its colours and what it quotes come in one text.
        .with_ansi(false)
        .without_time()
        .with_target(verbose > 1)
        .with_level(verbose > 1)
        // It would report errors of standard error to standard error, and panic.
        .log_internal_errors(false)
        .init();
}

/// A size in bytes, with or without a unit.
fn size(text: &str) -> Result<u64, String> {
    let wrong = || "not a size, such as 512M or 8G".to_owned();
    let number = text.trim_end_matches(['B', 'b']).trim_end_matches(['i']);
    let (number, unit) = match number.char_indices().last() {
        Some((at, unit)) if unit.is_ascii_alphabetic() => (&number[..at], unit.to_ascii_uppercase()),
        _ => (number, ' '),
    };
    let shift = match unit {
        ' ' => 0,
        'K' => 10,
        'M' => 20,
        'G' => 30,
        'T' => 40,
        _ => return Err(wrong()),
    };
    let number: f64 = number.trim().parse().map_err(|_| wrong())?;
    let bytes = number * (1u64 << shift) as f64;
    if bytes >= 1.0 && bytes < u64::MAX as f64 { Ok(bytes as u64) } else { Err(wrong()) }
}
