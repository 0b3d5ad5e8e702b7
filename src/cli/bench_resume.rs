//! Resumes an interrupted run with the options with which it was started.

use super::bench_run::RunArgs;
use super::{Cli, notice};
use anyhow::Result;
use callwright::models::bundled;
use callwright::{Error, ErrorKind};
use callwright_bench::directory::{Plan, RunDirectory};
use callwright_bench::shard::{Difference, differences, other_cases};
use callwright_bench::suite::Suite;
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The options that determine the run, with their defaults where clap does not know them.
const DECIDING: [(&str, Option<&str>); 23] = [
    ("suite", None),
    ("limit", None),
    ("repeat", None),
    ("shard", None),
    ("preset", None),
    ("model", Some(bundled::NAME)),
    ("no_entry", None),
    ("lora", None),
    ("template", None),
    ("format", None),
    ("constrain", Some("auto")),
    ("tool_choice", Some("auto")),
    ("temp", None),
    ("repair", Some("on")),
    ("select_tools", Some("all")),
    ("more_tools", None),
    ("call_threshold", None),
    ("no_call_below", None),
    ("other_forms", None),
    ("max_tokens", None),
    ("seed", None),
    ("ctx", None),
    ("exact", None),
];

/// The options and cases of a resumed run: those with which it was started. Options that would make it another run
/// cannot be changed. Without a run to resume, the options stay unchanged.
pub fn resumed(mut args: RunArgs) -> Result<(RunArgs, Option<Suite>)> {
    let Some(named) = args.resume.take() else { return Ok((args, None)) };
    args.resume = Some(None);
    let must_be_there = named.is_some();
    let folder = match (named, &args.out) {
        (Some(folder), Some(out)) if folder != *out => {
            return Err(wrong(format!("--resume {} and --out {} are two runs", folder.display(), out.display()))
                .hint("--resume DIR alone goes on with the run in DIR")
                .into());
        }
        (Some(folder), _) => folder,
        (None, Some(out)) => out.clone(),
        (None, None) => return Err(wrong("--resume needs a run".to_owned()).hint("--resume DIR, or --out DIR").into()),
    };
    if !must_be_there && !folder.join("run.json").exists() {
        return Ok((args, None));
    }
    let run = RunDirectory::open(&folder)?;
    args.out = Some(folder);
    let began = Cli::command().try_get_matches_from(&run.plan.command).ok();
    let began = began.as_ref().and_then(|matches| matches.subcommand_matches("bench"));
    let given = Cli::command().try_get_matches_from(std::env::args_os());
    let (Some(began), Ok(given)) = (began, given) else {
        notice("run.json has no command that this version can read: the suite and options have to be given again");
        return Ok((args, None));
    };
    let Some(given) = given.subcommand_matches("bench") else { return Ok((args, None)) };
    let other: Vec<String> = DECIDING.into_iter().filter_map(|option| contradiction(option, began, given)).collect();
    if !other.is_empty() {
        let run = run.path().display();
        return Err(wrong(format!("the run in {run} was begun with other options: {}", other.join("; ")))
            .hint(format!("`callwright bench --resume {run}` needs none of them"))
            .into());
    }
    let mut whole = RunArgs::from_arg_matches(began)?;
    whole.out = args.out;
    whole.resume = args.resume;
    whole.json |= args.json;
    whole.offline |= args.offline;
    whole.models = args.models.or(whole.models);
    whole.hardware.threads = args.hardware.threads.or(whole.hardware.threads);
    whole.hardware.gpu_layers = args.hardware.gpu_layers.or(whole.hardware.gpu_layers);
    whole.goals.baseline = args.goals.baseline.or(whole.goals.baseline);
    if !args.goals.fail_under.is_empty() {
        whole.goals.fail_under = args.goals.fail_under;
    }
    if is_given(given, "parallel_cases") {
        whole.parallel_cases = args.parallel_cases;
    }
    // A suite that is given again may have changed.
    let suite = (!is_given(given, "suite")).then_some(run.suite);
    Ok((whole, suite))
}

fn is_given(matches: &ArgMatches, id: &str) -> bool {
    matches.value_source(id) == Some(ValueSource::CommandLine)
}

/// The old and new values of an option that is given and has changed since the run's start.
fn contradiction((id, default): (&str, Option<&str>), began: &ArgMatches, given: &ArgMatches) -> Option<String> {
    if !is_given(given, id) {
        return None;
    }
    let values = |matches: &ArgMatches| -> Vec<OsString> {
        let raw = matches.get_raw(id).map(|values| values.map(OsStr::to_owned).collect());
        raw.or(default.map(|value| vec![value.into()])).unwrap_or_default()
    };
    let (was, is) = (values(began), values(given));
    let option = format!("--{}", id.replace('_', "-"));
    let shown = |values: &[OsString]| match values {
        [] => format!("no {option}"),
        values => values.iter().map(|value| format!("{option} {}", value.display())).collect::<Vec<_>>().join(" "),
    };
    (was != is).then(|| format!("{}, not {}", shown(&was), shown(&is)))
}

fn wrong(message: String) -> Error {
    Error::new(ErrorKind::Config, message)
}

/// Adds the changed options to the error that a run cannot be resumed.
pub fn with_options(error: Error, path: &Path, plan: &Plan, suite: &Suite) -> Error {
    let Ok(found) = RunDirectory::open(path) else { return error };
    if found.plan.difference(plan).is_none() {
        return error;
    }
    // Also options that were not given: a preset sets several.
    let mut changed: Vec<String> = differences([&found.plan, plan])
        .into_iter()
        .map(|Difference { name, values: [was, is] }| format!("{name} was {was}, and is {is}"))
        .collect();
    if found.plan.suite_sha256 != plan.suite_sha256 {
        changed.push(other_cases([&found.suite, suite]));
    }
    match changed.is_empty() {
        true => error,
        false => error.hint(format!("{}; --resume needs the command that began the run", changed.join("; "))),
    }
}
