//! `callwright run`: a question and tools in, text and tool calls out.

use super::agent::{AgentOptions, state_folder};
use super::generation::GenerationOptions;
use super::input::{ConversationOptions, Input, ModelOptions};
use super::lines::TypedAhead;
use super::output::{Output, Printer};
use super::resume::Decisions;
use super::screen::one_line;
use super::trace::{Trace, TraceOptions, stats};
use super::{CALLS, DONE, FAILED, INTERRUPTED, complain, notice, reading, say};
use anyhow::{Context, Result};
use callwright::agent::Agent;
use callwright::agent::exec::Approval;
use callwright::agent::journal::Journal;
use callwright::agent::turn::Status;
use callwright::engine::llama::{exit_now, leave};
use callwright::message::{Message, open_calls};
use callwright::session::Invocation;
use callwright::session::PendingCall;
use callwright::session::{Cut, Event, FinishReason, ModelUsage, NoteKind, Outcome, Reply, Session};
use callwright::{Error, ErrorKind};
use clap::{Arg, Args, Command, Id};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Ask a model a question; it may call tools
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    callwright run \"What's the weather in Beijing tomorrow?\" --tools tools.json\n  \
    callwright run \"Calculate 12 * 7\" --tools builtin --execute\n  \
    callwright run -m qwen2.5-1.5b --messages conversation.json --output json")]
pub struct RunArgs {
    #[command(flatten)]
    conversation: ConversationOptions,

    #[command(flatten)]
    model: ModelOptions,

    #[command(flatten)]
    generation: GenerationOptions,

    /// Run the tools that the model calls, until it has answered
    #[arg(long, help_heading = "Execution")]
    execute: bool,

    #[command(flatten)]
    agent: AgentOptions,

    /// Keep the journal of the run in FILE, from which `callwright resume` goes on; or none (off) [default: a file in the state folder, which is removed when the run ends with an answer]
    #[arg(long, visible_alias = "save", value_name = "FILE|off", help_heading = "Execution")]
    journal: Option<PathBuf>,

    /// If the model calls no tool, report in full what may be the reason
    #[arg(long, help_heading = "Output")]
    explain: bool,

    /// Choose what is printed to standard output
    #[arg(long, value_name = "FORM", default_value = "text", help_heading = "Output")]
    pub output: Output,

    #[command(flatten)]
    trace: TraceOptions,

    /// At the end, print tokens, seconds and tokens per second to standard error
    #[arg(long, help_heading = "Output")]
    stats: bool,

    /// Record the tokens of this run in FILE, and with --execute the tools' results; turns fallback models off
    #[arg(long, value_name = "FILE", help_heading = "Output", conflicts_with = "fallback_tool_models")]
    record: Option<PathBuf>,

    /// Repeat a recorded run, without its model and without executing its tools; only --output may be added
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    replay: Option<PathBuf>,
}

/// A recording has its question, model and options already: makes clap refuse others beside `--replay`.
pub fn replays_alone(root: Command) -> Command {
    root.mut_subcommand("run", |run| {
        let recorded = |id: &&Id| !["replay", "output", "verbose"].contains(&id.as_str());
        let others: Vec<Id> = run.get_arguments().map(Arg::get_id).filter(recorded).cloned().collect();
        run.mut_arg("replay", |replay| replay.conflicts_with_all(others))
    })
}

/// A run that goes on.
pub struct Resumed {
    /// Its journal's file.
    pub path: PathBuf,
    pub journal: Journal,
    pub decisions: Decisions,
}

pub fn run(args: RunArgs) -> Result<u8> {
    go(args, None)
}

/// Runs, from the question on, or from where a run ended before.
pub fn go(args: RunArgs, resumed: Option<Resumed>) -> Result<u8> {
    let (mut session, agent) = match &args.replay {
        Some(path) => Session::replay_run(path)?,
        None => open(&args, resumed.as_ref())?,
    };
    // Not before: while a model is fetched or loaded nothing is there to be kept, and Ctrl-C ends the process at once.
    let interrupts = Interrupts::listen(PATIENCE)?;
    session.options_mut().cancel = interrupts.flag();
    reading::show(&mut session);
    let mut printer = Printer::new(args.output);
    let stop = Arc::clone(&session.options().cancel);
    let mut trace = args.trace.begin(&session, resumed.is_some())?;
    let mut on_event = |event: &Event| {
        trace.iter_mut().for_each(|trace| trace.event(event));
        if !printer.event(event) {
            stop.store(true, Ordering::Relaxed);
        }
    };
    let Some(mut agent) = agent else {
        let reply = interrupts.during(|| session.respond(&mut on_event));
        trace.iter_mut().for_each(Trace::end);
        let reply = reply?;
        leave();
        // First: an answer that ended because nobody could read it was not interrupted.
        printer.finish(&session, &reply)?;
        tell(&reply, &session);
        if args.stats {
            let model = session.engine().model().name.clone();
            say(format_args!("{}\n", stats(&[ModelUsage { model, answers: 1, usage: reply.usage }])));
        }
        // A problem that is no call's is the answer's own: it does not fit its grammar or schema.
        let misfit = reply.notes.iter().any(|note| note.kind == NoteKind::Problem && note.call.is_none());
        return Ok(match reply.finish_reason {
            FinishReason::Cancelled => INTERRUPTED,
            FinishReason::Loop => FAILED,
            _ if misfit => FAILED,
            _ => DONE,
        });
    };
    args.agent.person(&mut agent, interrupts.flag(), TypedAhead::default());
    let journal = match resumed {
        Some(Resumed { path, journal, decisions }) => {
            agent.unknown = journal.unknown;
            for id in &agent.unknown {
                notice(&format!("the call {id} had begun when the program ended: it may have been executed"));
            }
            let ask = agent.executor.confirm.take();
            agent.executor.confirm = Some(Box::new(move |question| {
                let decided = decisions.about(question.call);
                decided.or_else(|| Some(ask.as_ref()?(question))).unwrap_or(Approval::Undecided)
            }));
            session.journal_on(&path, &journal.unjoined)?;
            let own = Kept::folder().and_then(|folder| std::fs::canonicalize(folder).ok());
            let always = own.is_none() || path.parent().and_then(|folder| std::fs::canonicalize(folder).ok()) != own;
            Some(Kept { path, always })
        }
        None if args.replay.is_some() => None,
        None => Kept::begin(args.journal.as_deref(), &mut session)?,
    };
    let outcome = interrupts.during(|| session.run(&mut agent, &mut on_event));
    trace.iter_mut().for_each(Trace::end);
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(error) => {
            // Nothing was answered.
            journal.iter().for_each(Kept::forget);
            return Err(error.into());
        }
    };
    leave();
    printer.finish_run(&session, &outcome)?;
    let status = tell_run(&outcome, &session, ANSWER);
    if args.stats {
        say(format_args!("{}\n", stats(&outcome.models)));
    }
    match (&journal, outcome.status) {
        // The model has answered, or the caller goes on with the messages.
        (Some(kept), Status::Done | Status::Length | Status::ToolCalls | Status::ToolFailed | Status::Loop) => {
            kept.forget();
        }
        (Some(kept), Status::Pending) => {
            let file = kept.path.display();
            hint(&format!("callwright resume {file} --approve ID executes a call, --deny ID does not"));
            hint("run --execute --yes executes such calls without asking");
        }
        (Some(kept), _) => hint(&format!("callwright resume {} goes on with the run", kept.path.display())),
        (None, Status::Pending) => hint(match args.replay {
            Some(_) => {
                "callwright resume goes on with the recorded run: --approve ID executes a call, --deny ID does not"
            }
            None => "run --execute --yes executes such calls without asking",
        }),
        (None, _) => {}
    }
    Ok(status)
}

fn hint(text: &str) {
    say(format_args!("hint: {text}\n"));
}

/// The journal of a run.
struct Kept {
    path: PathBuf,
    /// It stays, however the run ends.
    always: bool,
}

impl Kept {
    /// Begins a journal where one is wanted.
    fn begin(wanted: Option<&Path>, session: &mut Session) -> Result<Option<Kept>> {
        let kept = match wanted {
            Some(path) if path.as_os_str() == "off" => return Ok(None),
            Some(path) => Kept { path: path.to_owned(), always: true },
            None => {
                let Some(folder) = Kept::folder() else { return Ok(None) };
                if std::fs::create_dir_all(&folder).is_err() {
                    return Ok(None);
                }
                let now = jiff::Zoned::now().strftime("%Y%m%d-%H%M%S").to_string();
                Kept { path: folder.join(format!("{now}-{}.jsonl", std::process::id())), always: false }
            }
        };
        match session.journal(&kept.path) {
            Err(error) if kept.always => Err(error.into()),
            // Nobody asked for this one.
            Err(error) => {
                notice(&format!("no journal is kept of this run: {error}"));
                Ok(None)
            }
            Ok(()) => Ok(Some(kept)),
        }
    }

    /// Returns the folder of the journals that nobody named.
    fn folder() -> Option<PathBuf> {
        Some(state_folder()?.join("runs"))
    }

    /// Removes the file, unless it is wanted.
    fn forget(&self) {
        if !self.always {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// How the calls of a run get their results.
const ANSWER: &str = "or, to the messages of --output json, add one with role tool, tool_call_id and content for each \
    call, and go on with --messages FILE";

fn open(args: &RunArgs, resumed: Option<&Resumed>) -> Result<(Session, Option<Agent>)> {
    if let Some(option) = args.agent.given().filter(|_| !args.execute) {
        return Err(Error::new(ErrorKind::Config, format!("{option} means something only where tools are executed"))
            .hint("--execute runs the tools that the model calls")
            .into());
    }
    if let Some(journal) = args.journal.as_ref().filter(|_| !args.execute) {
        let message = format!("--journal {} means something only where tools are executed", journal.display());
        return Err(Error::new(ErrorKind::Config, message)
            .hint("--execute runs the tools that the model calls")
            .into());
    }
    let with_tools = args.conversation.may_have_tools();
    let ((mut input, grammar, agent), (mut session, mut model)) = args.model.open_beside(with_tools, || {
        let mut input = match resumed {
            Some(resumed) => Input { messages: resumed.journal.messages.clone(), ..args.conversation.read_files()? },
            None => args.conversation.read()?,
        };
        let grammar = args.generation.grammar()?;
        let mut agent = args.execute.then(|| args.agent.agent(&mut input, &args.model, true)).transpose()?;
        if let Some(agent) = &mut agent {
            agent.trust_other_forms = args.generation.trusts_other_forms();
            agent.fallbacks = agent.fallbacks.take().filter(|_| args.record.is_none());
        }
        Ok((input, grammar, agent))
    })?;
    let variables = std::mem::take(&mut input.asked.body.variables);
    *session.options_mut() = args.generation.options(model.entry(), input.tool_choice, input.asked, grammar);
    session.options_mut().explain = args.explain;
    session.options_mut().find_tools = args.execute;
    session.set_variables(variables);
    for tool in input.tools.iter().filter(|_| args.execute) {
        let policy = &tool.policy;
        tracing::info!("tool {}: effect {}, from {}", tool.name, policy.effect.as_str(), policy.source);
    }
    session.set_tools(input.tools);
    args.conversation.select(&mut session);
    session.set_adopted_messages(input.messages);
    session.notices().iter().for_each(|text| notice(text));
    if model.is_whole() && agent.is_none() {
        // The answer comes next, and its error is the same. With an agent, it would be the outcome of a run.
        session.check_prompt()?;
    } else {
        session.check()?;
    }
    args.model.load_weights(&mut model, &mut session)?;
    let folder = std::env::current_dir().unwrap_or_default();
    let arguments = std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned()).collect();
    let invocation = resumed.map_or(Invocation { arguments, folder }, |resumed| resumed.journal.invocation.clone());
    session.record_invocation(args.execute.then_some(invocation));
    // A recording that is resumed is added to.
    let whole = |path: &&PathBuf| std::fs::canonicalize(path).ok();
    let resumes = |path: &&PathBuf| resumed.is_some_and(|resumed| whole(path) == whole(&&resumed.path));
    if let Some(path) = args.record.as_ref().filter(|path| !resumes(path)) {
        session.record(path)?;
    }
    Ok((session, agent))
}

/// Returns what the reader of a run's text should know about it; the exit status. `answer` says what to do with calls
/// that wait for their results.
pub fn tell_run(outcome: &Outcome, session: &Session, answer: &str) -> u8 {
    for note in &outcome.notes {
        notice(&note.message);
    }
    tell_cut(outcome.cut, session);
    match (outcome.status, &outcome.failure) {
        // What there is of an answer is there; that it was cut off has been said.
        (Status::Done | Status::Length, _) => return DONE,
        (Status::Cancelled, _) => {
            notice("interrupted");
            return INTERRUPTED;
        }
        (Status::ToolCalls, _) => {
            complain(&left_open(session.messages(), answer));
            return CALLS;
        }
        (Status::Pending, _) => {
            complain(&pending(&outcome.pending));
            return CALLS;
        }
        // A note has reported what was repeated.
        (Status::Loop, _) if outcome.finish_reason == FinishReason::Loop => {}
        (Status::Error, Some(failure)) => complain(failure),
        (status, Some(failure)) => complain(&format!("{status}: {failure}")),
        (status, None) => complain(&status.to_string()),
    }
    FAILED
}

/// Which calls wait for their results, and how they get them.
fn left_open(messages: &[Message], how: &str) -> String {
    let answer = messages.iter().rposition(|message| !message.tool_calls.is_empty()).unwrap_or(messages.len());
    let open = open_calls(&messages[answer..]).unwrap_or_default();
    let named: Vec<String> =
        open.iter().map(|call| format!("{} ({})", call.name, call.id.as_deref().unwrap_or_default())).collect();
    format!(
        "the run ended with calls that wait for their results: {}\nhint: --tool-result NAME=TEXT gives the result of a \
         tool; {how}",
        named.join(", ")
    )
}

/// Which calls wait for approval, and how they get it.
fn pending(calls: &[PendingCall]) -> String {
    let one = |call: &PendingCall| {
        let PendingCall { id, name, arguments, hash, why, .. } = call;
        format!("\n  {}", one_line(&format!("{id}  {name} {arguments}  (hash {hash}): {why}")))
    };
    let calls: String = calls.iter().map(one).collect();
    format!("the run paused before calls that need approval; nothing of this answer was executed:{calls}")
}

/// What the reader of the text should know about it.
fn tell(reply: &Reply, session: &Session) {
    for note in &reply.notes {
        notice(&note.message);
    }
    tell_cut(reply.cut, session);
    if reply.finish_reason == FinishReason::Cancelled {
        notice("interrupted");
    }
}

/// Which limit cut an answer off, and what raises it: in all commands a note, as what was written is there.
fn tell_cut(cut: Option<Cut>, session: &Session) {
    match cut {
        Some(Cut::MaxTokens) => {
            let most = session.options().max_tokens;
            notice(&format!("the answer was cut off by --max-tokens {most}; a larger number lets it go on"));
        }
        Some(Cut::Context) => {
            let (limit, more) = session.context_limit();
            let hint = match more {
                true => "a larger --ctx lets it go on",
                false => "the model was trained for no more; a shorter conversation leaves more room",
            };
            notice(&format!("the answer was cut off by the end of the context of {limit} tokens; {hint}"));
        }
        Some(Cut::Server) => {
            notice(
                "the answer was cut off by the server, or it gave no finish reason; a limit of the server may be too low",
            );
        }
        // A note has reported the constraint; no answer of the model that is asked is limited in time.
        _ => {}
    }
}

/// How long an answer may take to end after Ctrl-C, where nobody may be there to press it again.
pub const PATIENCE: Option<Duration> = Some(Duration::from_secs(5));

/// Ends the program and its tools, whatever it computes.
fn end_now() -> ! {
    callwright::agent::exec::kill_running();
    exit_now(i32::from(INTERRUPTED))
}

/// What Ctrl-C does: it ends an answer or a tool, and where there is none, or at the second time, the program.
pub struct Interrupts {
    cancel: Arc<AtomicBool>,
    busy: Arc<AtomicBool>,
}

impl Interrupts {
    /// Listens. What does not end within `patience` after the first Ctrl-C is ended with the program.
    pub fn listen(patience: Option<Duration>) -> Result<Interrupts> {
        let interrupts = Interrupts { cancel: Arc::default(), busy: Arc::default() };
        let (cancel, busy) = (interrupts.flag(), Arc::clone(&interrupts.busy));
        ctrlc::set_handler(move || {
            if cancel.swap(true, Ordering::Relaxed) || !busy.load(Ordering::Relaxed) {
                end_now();
            }
            if let Some(patience) = patience {
                let (cancel, busy) = (Arc::clone(&cancel), Arc::clone(&busy));
                std::thread::spawn(move || {
                    std::thread::sleep(patience);
                    if cancel.load(Ordering::Relaxed) && busy.load(Ordering::Relaxed) {
                        end_now();
                    }
                });
            }
        })
        .context("cannot listen for Ctrl-C")?;
        Ok(interrupts)
    }

    /// The flag that is raised.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.cancel)
    }

    /// Does what Ctrl-C is to end.
    pub fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        self.cancel.store(false, Ordering::Relaxed);
        self.busy.store(true, Ordering::Relaxed);
        let done = work();
        self.busy.store(false, Ordering::Relaxed);
        self.cancel.store(false, Ordering::Relaxed);
        done
    }
}
