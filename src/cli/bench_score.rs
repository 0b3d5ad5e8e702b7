//! `callwright bench score`: scores another system's answers with the leaderboard's checker.

use super::input::read_text;
use super::stdin::read_stdin;
use super::{DONE, notice, say, screen};
use anyhow::Result;
use callwright::error::Location;
use callwright::{Error, ErrorKind};
use callwright_bench::bfcl::{CRASH, check};
use callwright_bench::exact::Exact;
use callwright_bench::suite::{Case, Suite};
use clap::Args;
use serde_json::json;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Score another system's answers with BFCL's checker
#[derive(Args)]
#[command(
    after_help = "Each line of FILE is {\"id\": …, \"candidate\": [{NAME: {PARAMETER: VALUE}}]}, the decoded calls; null where \
    they could not be decoded. For each there is a line {\"id\", \"valid\", \"error_type\"}; counts by category go to \
    standard error.\n\n\
    Example:\n  callwright bench score --suite bfcl:gorilla/berkeley-function-call-leaderboard answers.jsonl"
)]
pub struct ScoreArgs {
    /// Score answers to these cases: bfcl:DIR[:CATEGORY,…]
    #[arg(long, value_name = "SUITE")]
    suite: String,

    /// Read the answers from this file; - reads standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Expect _ in place of . in the tools' names (the leaderboard's setting underscore_to_dot)
    #[arg(long)]
    underscore_to_dot: bool,
}

pub fn run(args: ScoreArgs) -> Result<u8> {
    let suite = Suite::open(&args.suite)?;
    let cases: HashMap<&str, &Case> = suite.cases.iter().map(|case| (case.id.as_str(), case)).collect();
    let standard_input = args.file.as_os_str() == "-";
    let text = match standard_input {
        true => read_stdin("what the models answered")?,
        false => read_text(&args.file)?,
    };
    let name = if standard_input { Path::new("<standard input>") } else { &args.file };
    let mut counts: BTreeMap<&str, (usize, usize, usize)> = BTreeMap::new();
    let (mut answered, mut again) = (HashSet::new(), 0);
    let mut out = std::io::BufWriter::new(screen::data());
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let at = |error: Error| {
            let column = error.location().and_then(|location| location.column);
            error.at(Location { file: Some(name.to_owned()), line: Some(index + 1), column })
        };
        let answer = Answer::read(line).map_err(at)?;
        let (case, verdict) = answer.verdict(&cases, args.underscore_to_dot).map_err(at)?;
        again += usize::from(!answered.insert(case.id.as_str()));
        writeln!(out, "{}", json!({"id": case.id, "valid": verdict.is_ok(), "error_type": verdict.err()}))?;
        let (valid, all, crashed) = counts.entry(&case.category).or_default();
        *valid += usize::from(verdict.is_ok());
        *all += 1;
        *crashed += usize::from(verdict == Err(CRASH));
    }
    out.flush()?;
    for (category, (valid, all, crashed)) in counts {
        let crashed =
            if crashed > 0 { format!(", {crashed} would crash the leaderboard's checker") } else { String::new() };
        say(format_args!("{category}: {valid} of {all} valid ({:.1}%{crashed})\n", 100.0 * valid as f64 / all as f64));
    }
    let unanswered = cases.len() - answered.len();
    if unanswered > 0 {
        notice(&format!("{unanswered} of {} cases have no answer; the counts leave them out", cases.len()));
    }
    if again > 0 {
        notice(&format!("{again} lines answer a case that an earlier line answers; each line counts"));
    }
    Ok(DONE)
}

/// A line of the file.
struct Answer {
    id: String,
    /// `None` if it could not be decoded.
    candidate: Option<Exact>,
    underscore_to_dot: Option<bool>,
}

impl Answer {
    fn read(line: &str) -> Result<Answer, Error> {
        let fields = Exact::parse(line)?;
        let flag = |key: &str| match fields.get(key) {
            Some(Exact::Bool(value)) => Some(*value),
            _ => None,
        };
        let id = fields.get("id").and_then(Exact::as_str);
        let (Some(id), Some(candidate)) = (id, fields.get("candidate")) else {
            return Err(Error::new(ErrorKind::Suite, "the line has no \"id\" or no \"candidate\"")
                .hint("{\"id\": …, \"candidate\": [{NAME: {PARAMETER: VALUE}}]}, the candidate null where nothing could be decoded"));
        };
        let decoded = !flag("decode_failed").unwrap_or(*candidate == Exact::Null);
        Ok(Answer {
            id: id.to_owned(),
            candidate: decoded.then(|| candidate.clone()),
            underscore_to_dot: flag("underscore_to_dot"),
        })
    }

    /// The answered case, and BFCL's verdict.
    fn verdict<'a>(
        &self,
        cases: &HashMap<&str, &'a Case>,
        underscore_to_dot: bool,
    ) -> Result<(&'a Case, Result<(), &'static str>), Error> {
        let id = &self.id;
        let case = cases.get(id.as_str()).ok_or_else(|| {
            Error::new(ErrorKind::Suite, format!("the suite has no case {id:?}"))
                .hint("--suite must name the cases that were answered: all categories, or those it lists")
        })?;
        let gold = case.bfcl.as_ref().ok_or_else(|| {
            Error::new(ErrorKind::Suite, format!("the case {id:?} is none of BFCL's"))
                .hint("--suite bfcl:DIR[:CATEGORY,…]; other suites are scored by the run itself")
        })?;
        let underscores = self.underscore_to_dot.unwrap_or(underscore_to_dot);
        Ok((case, check(&gold.category, &gold.tools, &gold.ground_truth, self.candidate.as_ref(), underscores)))
    }
}
