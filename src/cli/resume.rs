//! `callwright resume`: goes on with a run that waits for approval, or that was interrupted.

use super::output::Output;
use super::run::{self, Resumed};
use super::{Command, parse_args};
use anyhow::Result;
use callwright::agent::exec::Approval;
use callwright::agent::journal::Journal;
use callwright::message::{ToolCall, open_calls};
use callwright::session::call_hash;
use callwright::{Error, ErrorKind};
use clap::Args;
use std::collections::HashMap;
use std::path::PathBuf;

/// Go on with a run of --execute that waits for approval, or that was interrupted
#[derive(Args)]
#[command(after_help = "Example:\n  \
    callwright run \"Delete the old logs\" --tools files.toml --execute --journal run.jsonl\n  \
    callwright resume run.jsonl --approve call00001")]
pub struct ResumeArgs {
    /// Go on with the run of this journal
    file: PathBuf,

    /// Execute this call; with a hash, only if the call still has it. May be repeated
    #[arg(long, value_name = "ID[=HASH]")]
    approve: Vec<String>,

    /// Do not execute this call. May be repeated
    #[arg(long, value_name = "ID[=HASH]")]
    deny: Vec<String>,

    /// Tell the model why a call is denied
    #[arg(long, value_name = "TEXT", requires = "deny")]
    reason: Option<String>,

    /// Execute all calls without asking
    #[arg(long, conflicts_with_all = ["approve", "deny"])]
    yes: bool,

    /// Choose what is printed to standard output [default: as the run was asked to]
    #[arg(long, value_name = "FORM")]
    output: Option<Output>,
}

/// The approvals of the command line, each bound to the call that it was given for.
#[derive(Default)]
pub struct Decisions {
    by_id: HashMap<String, (String, Approval)>,
    all: bool,
}

impl Decisions {
    /// Returns the decision about a call, if there is one.
    pub fn about(&self, call: &ToolCall) -> Option<Approval> {
        let decided = call.id.as_ref().and_then(|id| self.by_id.get(id)).filter(|(hash, _)| *hash == call_hash(call));
        decided.map(|(_, approval)| approval.clone()).or_else(|| self.all.then_some(Approval::Assumed))
    }
}

pub fn run(args: ResumeArgs) -> Result<u8> {
    let journal = Journal::read(&args.file)?;
    let decisions = decisions(&args, &journal)?;
    if journal.invocation.arguments.is_empty() {
        return Err(Error::new(ErrorKind::Replay, "the file says nothing of the command that began the run")
            .hint("a journal of `callwright run --execute` does; run --messages goes on with any conversation")
            .in_file(&args.file)
            .into());
    }
    if let Some(status) = journal.finished.as_ref().filter(|_| journal.messages.last().is_some_and(is_answer)) {
        return Err(Error::new(ErrorKind::Replay, format!("the run has ended: {status}"))
            .hint("there is nothing to go on with")
            .in_file(&args.file)
            .into());
    }
    let path = std::path::absolute(&args.file).map_err(|error| Error::io("read", &args.file, &error))?;
    let folder = &journal.invocation.folder;
    std::env::set_current_dir(folder).map_err(|error| Error::io("change to", folder, &error))?;
    let program = std::iter::once("callwright".to_owned());
    let parsed = parse_args(program.chain(journal.invocation.arguments.clone()).map(Into::into).collect());
    let Ok(Command::Run(mut run_args)) = parsed.map(|(cli, _)| cli.command) else {
        return Err(Error::new(ErrorKind::Replay, "the command that began the run is none that this version knows")
            .hint(format!("it was: callwright {}", journal.invocation.arguments.join(" ")))
            .in_file(&args.file)
            .into());
    };
    if let Some(output) = args.output {
        run_args.output = output;
    }
    run::go(*run_args, Some(Resumed { path, journal, decisions }))
}

/// Returns whether a message is an answer without calls.
fn is_answer(message: &callwright::message::Message) -> bool {
    message.role == callwright::message::Role::Assistant && message.tool_calls.is_empty()
}

fn decisions(args: &ResumeArgs, journal: &Journal) -> Result<Decisions> {
    let open = open_calls(&journal.messages).unwrap_or_default();
    let mut decisions = Decisions { all: args.yes, ..Decisions::default() };
    // The pause has found that the other calls of the answer need no approval.
    let waits =
        |id: &str| journal.pending.iter().any(|call| call.id == id) || journal.unknown.iter().any(|other| other == id);
    for call in open.iter().filter(|_| !journal.pending.is_empty()) {
        if let Some(id) = call.id.as_ref().filter(|id| !waits(id)) {
            decisions.by_id.insert(id.clone(), (call_hash(call), Approval::Assumed));
        }
    }
    let denied = Approval::Denied(args.reason.clone());
    let given = args.approve.iter().map(|id| (id, Approval::Given));
    for (given, approval) in given.chain(args.deny.iter().map(|id| (id, denied.clone()))) {
        let (id, hash) = given.split_once('=').map_or((given.as_str(), None), |(id, hash)| (id, Some(hash)));
        let Some(call) = open.iter().find(|call| call.id.as_deref() == Some(id)) else {
            let ids: Vec<&str> = open.iter().filter_map(|call| call.id.as_deref()).collect();
            let waiting =
                if ids.is_empty() { "no call waits".to_owned() } else { format!("these wait: {}", ids.join(", ")) };
            return Err(Error::new(ErrorKind::Config, format!("no call {id:?} waits for approval"))
                .hint(waiting)
                .in_file(&args.file)
                .into());
        };
        let found = call_hash(call);
        if let Some(hash) = hash.filter(|hash| *hash != found) {
            let message = format!(
                "the call {id} has the hash {found}, not {hash}: its arguments are {}",
                call.arguments.to_text()
            );
            return Err(Error::new(ErrorKind::Config, message).hint("nothing is executed").in_file(&args.file).into());
        }
        let before = decisions.by_id.insert(id.to_owned(), (found, approval));
        if before.is_some_and(|(_, before)| before != Approval::Assumed) {
            let message = format!("the call {id} is named twice in --approve and --deny");
            return Err(Error::new(ErrorKind::Config, message).hint("nothing is executed").into());
        }
    }
    Ok(decisions)
}
