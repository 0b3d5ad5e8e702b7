//! `callwright chat`: a conversation at the terminal.

use super::agent::{AgentOptions, state_folder, unknown_tool};
use super::generation::GenerationOptions;
use super::input::{ConversationOptions, Input, ModelOptions};
use super::lines::{Completion, Lines, TypedAhead};
use super::offers;
use super::output::{Output, Printer};
use super::run::{Interrupts, PATIENCE, tell_run};
use super::trace::{Trace, TraceOptions, add, stats};
use super::{CALLS, DONE, complain, notice, reading, say};
use anyhow::Result;
use callwright::agent::Agent;
use callwright::agent::turn::Status;
use callwright::files::{self, Readers};
use callwright::message::{Conversation, Message, Role, adopt, messages_to_json, open_calls};
use callwright::session::{ModelUsage, Session, ToolChoice};
use callwright::{Error, ErrorKind};
use clap::Args;
use rustyline::error::ReadlineError;
use serde_json::json;
use std::io::IsTerminal;
use std::path::Path;
use std::sync::atomic::Ordering;

/// Chat with a model; it may call tools
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    callwright chat --tools builtin\n  \
    callwright chat -m qwen2.5-1.5b --tools tools.toml --messages earlier.json")]
pub struct ChatArgs {
    #[command(flatten)]
    conversation: ConversationOptions,

    #[command(flatten)]
    model: ModelOptions,

    #[command(flatten)]
    generation: GenerationOptions,

    /// As run has it; a chat executes its tools in any case
    #[arg(long = "execute", hide = true)]
    _execute: bool,

    #[command(flatten)]
    agent: AgentOptions,

    #[command(flatten)]
    trace: TraceOptions,

    /// Do not keep the lines that you type for later chats
    #[arg(long)]
    no_history: bool,
}

/// The commands, for completion; [`HELP`] explains them.
const COMMANDS: [&str; 15] = [
    "help",
    "tools",
    "tool",
    "resources",
    "prompt",
    "template",
    "stats",
    "system",
    "retry",
    "undo",
    "clear",
    "save",
    "save!",
    "load",
    "quit",
];

const HELP: &str = "\
/tools            what the model may call
/tool NAME        make the next answer call this tool; /tool alone takes that back
/resources        what MCP servers have to show; @SERVER/NAME in a message adds such a text to it
/prompt SERVER/NAME [ARGUMENT=VALUE …]   ask what a server's prompt says
/template         the format of the calls, and the prompt for the conversation so far
/stats            tokens, seconds and tokens per second so far
/system TEXT      set the system message; /system alone shows it
/retry            ask the last question again
/undo             forget the last question and all that came of it
/clear            begin a new conversation; the system message is kept
/save FILE        write the conversation as OpenAI's JSON; /save! FILE writes over a file that is there
/load FILE        go on with the conversation in a file
/quit             end; so does Ctrl-D
The Tab key completes commands, names of tools and files.
A line that ends with \\ goes on in the next one. Ctrl-C ends an answer and keeps the conversation.
";

/// How the calls of a chat get their results.
const ANSWER: &str = "or /save FILE writes the conversation: add a message with role tool, tool_call_id and content for \
    each call, and go on with callwright run --execute --messages FILE";

pub fn run(args: ChatArgs) -> Result<u8> {
    let mut input = args.conversation.read_files()?;
    let grammar = args.generation.grammar()?;
    let mut agent = args.agent.agent(&mut input, &args.model, false)?;
    agent.trust_other_forms = args.generation.trusts_other_forms();
    let Input { messages, tools, tool_choice, mut asked, .. } = input;
    let variables = std::mem::take(&mut asked.body.variables);
    let (mut session, mut model) = args.model.open_to_generate(!tools.is_empty())?;
    *session.options_mut() = args.generation.options(model.entry(), tool_choice, asked, grammar);
    session.options_mut().find_tools = true;
    session.set_variables(variables);
    session.set_tools(tools);
    args.conversation.select(&mut session);
    session.set_adopted_messages(messages);
    session.notices().iter().for_each(|text| notice(text));
    session.check()?;
    args.model.load_weights(&mut model, &mut session)?;
    // A person can press Ctrl-C again, and the conversation is not saved.
    let interrupts = Interrupts::listen(PATIENCE.filter(|_| !std::io::stdin().is_terminal()))?;
    session.options_mut().cancel = interrupts.flag();
    reading::show(&mut session);
    let typed = TypedAhead::default();
    args.agent.person(&mut agent, interrupts.flag(), typed.clone());

    let completion =
        Completion { commands: &COMMANDS, tools: session.tools().iter().map(|tool| tool.name.clone()).collect() };
    let mut lines = Lines::open(typed, completion).map_err(terminal_error)?;
    let history = state_folder().filter(|_| !args.no_history).map(|folder| folder.join("chat_history"));
    if let Some(path) = history.as_ref().filter(|path| path.exists()) {
        // A history that cannot be read is no reason not to talk.
        if let Err(error) = lines.load_history(path) {
            notice(&format!("{} cannot be read: {error}", path.display()));
        }
    }
    say(format_args!("{} · /help lists the commands\n", model.entry().name));
    let trace = args.trace.begin(&session, false)?;
    let mut chat = Chat { session, agent, interrupts, forced: None, waiting: false, spent: Vec::new(), trace };
    // `-` is standard input, which is read in any case.
    if let Some(prompt) = args.conversation.question().filter(|prompt| *prompt != "-") {
        chat.ask(prompt);
    }
    let status = chat.talk(&mut lines, std::io::stdin().is_terminal())?;
    if let Some(path) = history
        && let Err(error) = save_history(&mut lines, &path)
    {
        notice(&error.to_string());
    }
    Ok(status)
}

/// A conversation at the terminal.
struct Chat {
    session: Session,
    agent: Agent,
    interrupts: Interrupts,
    /// The tool that the next answer calls.
    forced: Option<ToolChoice>,
    /// Whether calls wait for their results.
    waiting: bool,
    /// What the models took.
    spent: Vec<ModelUsage>,
    trace: Option<Trace>,
}

impl Chat {
    /// Takes lines until they end or one of them ends the chat; returns the exit status.
    fn talk(&mut self, lines: &mut Lines, terminal: bool) -> Result<u8> {
        loop {
            let text = match lines.next() {
                Ok(text) => text,
                Err(ReadlineError::Interrupted) => {
                    say(format_args!("Ctrl-D ends the conversation\n"));
                    continue;
                }
                Err(ReadlineError::Eof) => break,
                // One line; those after it can be read.
                Err(ReadlineError::Io(error)) if error.kind() == std::io::ErrorKind::InvalidData => {
                    complain(&error.to_string());
                    continue;
                }
                Err(error) => return Err(terminal_error(error).into()),
            };
            let text = text.trim();
            if text.is_empty() {
                continue;
            }
            lines.remember(text);
            let prompt = text.strip_prefix("/prompt ").filter(|_| terminal || !self.waiting);
            if let Some(named) = prompt {
                match offers::prompt(named.trim(), &self.agent.executor) {
                    Ok(text) => self.ask(&text),
                    Err(error) => complain(&error.to_string()),
                }
            } else if text == "/retry" && (terminal || !self.waiting) {
                match last_question(&self.session).map(|at| self.session.messages()[at].content.clone()) {
                    Some(question) => {
                        undo(&mut self.session);
                        self.ask(&question);
                    }
                    None => say(format_args!("there is no question\n")),
                }
            } else if text == "/resources" {
                offers::list(&self.agent.executor);
            } else if let Some(pasted) = text.strip_prefix('/') {
                let (command, rest) = pasted.split_once('\n').unwrap_or((pasted, ""));
                lines.put_back(rest);
                let before = self.session.messages().len();
                let obeyed = obey(&mut self.session, command, &mut self.forced, &self.spent);
                self.waiting &= self.session.messages().len() == before;
                match obeyed {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) => complain(&error.to_string()),
                }
            } else if self.waiting && !terminal {
                // Whoever wrote it could not know of the calls; as a message it would take the place of their results.
                complain(&format!("the chat ends before {text:?}: the calls before it wait for their results"));
                break;
            } else {
                match offers::with_resources(text, &self.agent.executor) {
                    Ok(text) => self.ask(&text),
                    Err(error) => complain(&error.to_string()),
                }
            }
        }
        Ok(if self.waiting && !terminal { CALLS } else { DONE })
    }

    /// Asks the model; whatever comes of it, the conversation can go on. An answer calls the tool that is forced, if there
    /// is one, and ends that.
    fn ask(&mut self, prompt: &str) {
        let Chat { session, agent, interrupts, forced, waiting, spent, trace } = self;
        let usual = session.options().tool_choice.clone();
        if let Some(choice) = &*forced {
            session.options_mut().tool_choice = choice.clone();
        }
        let before = session.messages().len();
        let question = Message::user(prompt);
        if open_calls(session.messages()).is_ok_and(|open| open.is_empty()) {
            session.push(question);
        } else {
            // The line may be the result of a call that waits for it.
            let messages = [session.messages(), &[question]].concat();
            if let Err(error) = session.set_messages(messages) {
                complain(&error.to_string());
            }
        }
        let mut printer = Printer::new(Output::Text);
        let cancel = interrupts.flag();
        let outcome = interrupts.during(|| {
            session.run(agent, &mut |event| {
                trace.iter_mut().for_each(|trace| trace.event(event));
                if !printer.event(event) {
                    cancel.store(true, Ordering::Relaxed);
                }
            })
        });
        session.options_mut().tool_choice = usual;
        trace.iter_mut().for_each(Trace::end);
        *waiting = match outcome {
            Ok(outcome) => {
                *forced = None;
                add(spent, &outcome.models);
                tell_run(&outcome, session, ANSWER);
                matches!(outcome.status, Status::ToolCalls | Status::Pending)
            }
            Err(error) => {
                complain(&error.to_string());
                if session.messages().len() <= before + 1 {
                    // Nothing was answered: remove the question, too.
                    session.set_adopted_messages(session.messages()[..before].to_vec());
                }
                false
            }
        };
    }
}

/// Writes a file whole or not at all; one that is there only with `over`.
fn save(path: &Path, text: &str, over: bool) -> Result<(), Error> {
    let failed = |error: std::io::Error| Error::io("write", path, &error);
    // Of a link, what it points to.
    let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if target.exists() && !target.is_file() {
        return Err(Error::new(ErrorKind::Io, format!("{} is no regular file", path.display())));
    }
    if target.exists() && !over {
        return Err(Error::new(ErrorKind::Io, format!("there is a file {}", path.display()))
            .hint(format!("/save! {} writes over it", path.display())));
    }
    let write = if over { files::write } else { files::write_new };
    write(&target, text.as_bytes(), Readers::Owner).map_err(failed)
}

fn terminal_error(error: ReadlineError) -> Error {
    Error::new(ErrorKind::Io, format!("cannot read from the terminal: {error}"))
}

fn save_history(lines: &mut Lines, path: &Path) -> Result<(), Error> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(|error| Error::io("create", folder, &error))?;
    }
    lines
        .save_history(path)
        .map_err(|error| Error::new(ErrorKind::Io, format!("cannot write {}: {error}", path.display())))
}

/// Index of the last question.
fn last_question(session: &Session) -> Option<usize> {
    session.messages().iter().rposition(|message| message.role == Role::User)
}

/// Removes the last question and everything after it; returns whether there was one.
fn undo(session: &mut Session) -> bool {
    let Some(last) = last_question(session) else { return false };
    let kept = session.messages()[..last].to_vec();
    session.set_adopted_messages(kept);
    true
}

/// Does what a line with a slash says; false when that is to end.
fn obey(
    session: &mut Session,
    command: &str,
    forced: &mut Option<ToolChoice>,
    spent: &[ModelUsage],
) -> Result<bool, Error> {
    let (command, file) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
    let file = file.trim();
    match command {
        // What is meant with it may be something else: nothing is done that cannot be taken back.
        "help" | "tools" | "resources" | "template" | "stats" | "retry" | "undo" | "clear" | "quit" | "exit"
            if !file.is_empty() =>
        {
            say(format_args!("/{command} takes no argument: nothing is done; /help lists the commands\n"));
        }
        "help" => say(format_args!("{HELP}")),
        "tools" if session.tools().is_empty() => say(format_args!("none; --tools FILE gives some\n")),
        "tools" => {
            for tool in session.tools().iter() {
                say(format_args!("{}: {}\n", tool.name, tool.description));
            }
        }
        "tool" if file.is_empty() => {
            *forced = None;
            say(format_args!("the model chooses whether it calls a tool; /tool NAME forces one for the next answer\n"));
        }
        "tool" => {
            let Some(tool) = session.tools().get(file) else {
                return Err(unknown_tool(&format!("there is no tool {file:?}"), session.tools()));
            };
            *forced = Some(ToolChoice::Tool(tool.name.clone()));
            say(format_args!("the next answer calls {file}\n"));
        }
        "stats" => say(format_args!("{}\n", stats(spent))),
        "template" => {
            say(format_args!("{}, calls in the format {}\n", session.template().name(), session.format().name));
            if !session.messages().is_empty() {
                say(format_args!("{}\n", session.prompt()?.0.text().trim_end()));
            }
        }
        "system" if file.is_empty() => match session.messages().first().filter(|first| first.role == Role::System) {
            Some(message) => say(format_args!("{}\n", message.content)),
            None => say(format_args!("there is no system message; /system TEXT sets one\n")),
        },
        "system" => {
            let others = session.messages().iter().skip_while(|message| message.role == Role::System);
            let messages = std::iter::once(Message::system(file)).chain(others.cloned()).collect();
            session.set_adopted_messages(messages);
            say(format_args!("the system message is set\n"));
        }
        "undo" if undo(session) => say(format_args!("{} messages are left\n", session.messages().len())),
        "undo" => say(format_args!("there is no question\n")),
        "clear" => {
            let system = session.messages().iter().take_while(|message| message.role == Role::System);
            let kept: Vec<Message> = system.cloned().collect();
            let with = if kept.is_empty() { "" } else { ", with the system message" };
            session.set_adopted_messages(kept);
            *forced = None;
            say(format_args!("a new conversation{with}\n"));
        }
        "prompt" => say(format_args!("/prompt SERVER/NAME [ARGUMENT=VALUE …]; /resources lists them\n")),
        "save" | "save!" | "load" if file.is_empty() => say(format_args!("/{command} FILE\n")),
        "save" | "save!" => {
            let mut body = json!({"messages": messages_to_json(session.messages())});
            if !session.tools().is_empty() {
                body["tools"] = session.tools().to_json();
            }
            save(Path::new(file), &format!("{body:#}\n"), command == "save!")?;
            say(format_args!("{} messages are in {file}\n", session.messages().len()));
        }
        "load" => {
            let read = Conversation::from_file(file)?;
            let (messages, notices) = adopt(read.messages);
            session.set_adopted_messages(messages);
            read.notes.iter().chain(&notices).for_each(|text| notice(text));
            say(format_args!("{} messages\n", session.messages().len()));
        }
        "quit" | "exit" => return Ok(false),
        _ => say(format_args!("there is no /{command}; /help lists the commands\n")),
    }
    Ok(true)
}
