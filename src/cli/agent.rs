//! The options that say how tools are executed, and what is done where that fails.

use super::ask;
use super::input::{Input, ModelOptions, find, positive, read_text};
use super::lines::TypedAhead;
use anyhow::Result;
use callwright::agent::exec::remote::Person;
use callwright::agent::exec::{Approval, Executor};
use callwright::agent::fallback::Limits as Spending;
use callwright::agent::turn::Limits;
use callwright::agent::{Agent, Fallbacks};
use callwright::message::{Message, Role};
use callwright::models::{ModelEntry, Models};
use callwright::tool::Tools;
use callwright::{Error, ErrorKind};
use clap::Args;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How tools are executed.
#[derive(Args)]
pub struct AgentOptions {
    /// Run at most N tools at a time [default: 4]
    #[arg(long, value_name = "N", help_heading = "Execution", value_parser = positive, allow_negative_numbers = true)]
    tool_jobs: Option<usize>,

    /// Run tools without asking: those with `confirm = true`, and those of MCP servers
    #[arg(long, help_heading = "Execution")]
    yes: bool,

    /// Answer each call of the tool NAME with TEXT, or with the content of FILE, instead of running it. May be repeated
    #[arg(long, value_name = "NAME=TEXT|NAME=@FILE", help_heading = "Execution", value_parser = named_result)]
    tool_result: Vec<(String, String)>,

    /// End after N answers that call tools [default: 16]
    #[arg(long, value_name = "N", help_heading = "Execution", value_parser = positive, allow_negative_numbers = true)]
    max_turns: Option<usize>,

    /// Execute at most N calls in a run [default: by tool: 8 of one that changes something, 1 of a destructive one]
    #[arg(long, value_name = "N", help_heading = "Execution", value_parser = positive, allow_negative_numbers = true)]
    max_calls_per_run: Option<usize>,

    /// Stop retrying after N failures of a tool in a row, and take the next step of recovery [default: 3]
    #[arg(long, value_name = "N", help_heading = "Execution", value_parser = positive, allow_negative_numbers = true)]
    max_tool_failures: Option<usize>,

    /// Do not let the model try again; take the next step of recovery at the first failure
    #[arg(long, help_heading = "Execution")]
    no_retry: bool,

    /// Do not generate a failing call alone under the grammar
    #[arg(long, help_heading = "Execution")]
    no_regenerate: bool,

    /// Let these models write a call that keeps failing: first those of the model's family, then in this order [default: the model's fallbacks in models.toml that are on this machine]
    #[arg(long, value_name = "MODEL,…", value_delimiter = ',', help_heading = "Execution")]
    fallback_tool_models: Vec<String>,

    /// Do not use fallback models
    #[arg(long, help_heading = "Execution", conflicts_with = "fallback_tool_models")]
    no_fallback_tool: bool,

    /// Let each fallback model try one call N times [default: 2]
    #[arg(long, value_name = "N", help_heading = "Execution", value_parser = positive, allow_negative_numbers = true)]
    fallback_attempts: Option<usize>,

    /// Spend at most N tokens of fallback models in a run [default: 32768]
    #[arg(long, value_name = "N", help_heading = "Execution", value_parser = positive, allow_negative_numbers = true)]
    fallback_tokens: Option<usize>,

    /// Spend at most N seconds on fallback models in a run [default: 300]
    #[arg(long, value_name = "N", help_heading = "Execution", value_parser = positive, allow_negative_numbers = true)]
    fallback_seconds: Option<usize>,

    /// Spend at most X on fallback models in a run, in the currency of `cost` in models.toml [default: no limit]
    #[arg(long, value_name = "X", help_heading = "Execution", value_parser = cost, allow_negative_numbers = true)]
    fallback_cost: Option<f64>,

    /// Keep at most N MiB of fallback models loaded [default: 8192]
    #[arg(long, value_name = "N", help_heading = "Execution", value_parser = positive, allow_negative_numbers = true)]
    fallback_memory: Option<usize>,

    /// Remember which fallback models did well with which tool, and prefer those
    #[arg(long, help_heading = "Execution")]
    learn_fallbacks: bool,

    /// Write all attempts of a call that was given up into a new file in DIR
    #[arg(long, value_name = "DIR", help_heading = "Execution")]
    failure_log: Option<PathBuf>,
}

impl AgentOptions {
    /// The first of the options that was given: without execution they mean nothing.
    pub fn given(&self) -> Option<&'static str> {
        let given = [
            (self.tool_jobs.is_some(), "--tool-jobs"),
            (self.yes, "--yes"),
            (!self.tool_result.is_empty(), "--tool-result"),
            (self.max_turns.is_some(), "--max-turns"),
            (self.max_calls_per_run.is_some(), "--max-calls-per-run"),
            (self.max_tool_failures.is_some(), "--max-tool-failures"),
            (self.no_retry, "--no-retry"),
            (self.no_regenerate, "--no-regenerate"),
            (!self.fallback_tool_models.is_empty(), "--fallback-tool-models"),
            (self.no_fallback_tool, "--no-fallback-tool"),
            (self.fallback_attempts.is_some(), "--fallback-attempts"),
            (self.fallback_tokens.is_some(), "--fallback-tokens"),
            (self.fallback_seconds.is_some(), "--fallback-seconds"),
            (self.fallback_cost.is_some(), "--fallback-cost"),
            (self.fallback_memory.is_some(), "--fallback-memory"),
            (self.learn_fallbacks, "--learn-fallbacks"),
            (self.failure_log.is_some(), "--failure-log"),
        ];
        given.into_iter().find(|(given, _)| *given).map(|(_, name)| name)
    }

    /// Returns what a run has at its disposal; the executor is taken out of the input.
    pub fn agent(&self, input: &mut Input, model: &ModelOptions, tools_needed: bool) -> Result<Agent> {
        let mut executor = std::mem::take(&mut input.executor);
        let given = self.results(&input.tools)?;
        answer_waiting(&mut input.messages, &given);
        given.into_iter().for_each(|(name, text)| executor.give(name, text));
        if tools_needed || !input.tools.is_empty() {
            runnable(&input.tools, &executor)?;
        }
        if let Some(folder) = &self.failure_log {
            writable(folder)?;
        }
        executor.jobs = self.tool_jobs.unwrap_or(executor.jobs);
        let default = Limits::default();
        let limits = Limits {
            max_turns: self.max_turns.unwrap_or(default.max_turns),
            max_calls_per_run: self.max_calls_per_run,
            max_tool_failures: self.max_tool_failures.unwrap_or(default.max_tool_failures),
            retry: !self.no_retry,
            regenerate: !self.no_regenerate,
            fallback_attempts: self.fallback_attempts.unwrap_or(default.fallback_attempts),
            ..default
        };
        let (fallbacks, failure_log) = (self.fallbacks(model)?, self.failure_log.clone());
        let mut agent = Agent::default();
        (agent.executor, agent.limits) = (executor, limits);
        (agent.fallbacks, agent.failure_log) = (fallbacks, failure_log);
        Ok(agent)
    }

    /// Who is asked whether a tool may run, and for the results of tools that nothing runs; Ctrl-C instead of an answer
    /// raises `cancel`.
    pub fn person(&self, agent: &mut Agent, cancel: Arc<AtomicBool>, typed: TypedAhead) {
        let executor = &mut agent.executor;
        executor.by_hand = Some(Box::new(|_| None));
        if std::io::stdin().is_terminal() && std::io::stderr().is_terminal() {
            let (cancelled, typed_ahead) = (Arc::clone(&cancel), typed.clone());
            executor.by_hand = Some(Box::new(move |call| {
                if cancelled.load(Ordering::Relaxed) { None } else { ask::result(call, &cancelled, &typed_ahead) }
            }));
            if let Some(remote) = &executor.remote {
                let (cancelled, typed_ahead) = (Arc::clone(&cancel), typed.clone());
                remote.ask(
                    &(Arc::new(move |server: &str, message: &str, schema: &serde_json::Value| {
                        ask::form(server, message, schema, &cancelled, &typed_ahead)
                    }) as Person),
                );
            }
            let asked = ask::Asked::default();
            executor.confirm = Some(Box::new(move |question| match cancel.load(Ordering::Relaxed) {
                true => Approval::Denied(None),
                false => asked.confirm(question, &cancel, &typed),
            }));
        }
        if self.yes {
            executor.confirm = Some(Box::new(|_| Approval::Assumed));
        }
    }

    /// The tools and results of --tool-result.
    fn results(&self, tools: &Tools) -> Result<Vec<(String, String)>> {
        let mut results = Vec::new();
        for (index, (name, text)) in self.tool_result.iter().enumerate() {
            if tools.get(name).is_none() {
                return Err(unknown_tool(&format!("--tool-result: there is no tool {name:?}"), tools).into());
            }
            if self.tool_result[..index].iter().any(|(before, _)| before == name) {
                let message = format!("--tool-result is given twice for the tool {name:?}");
                return Err(Error::new(ErrorKind::Config, message)
                    .hint("one result goes to all calls of a tool")
                    .into());
            }
            let text = match text.strip_prefix('@').map(Path::new) {
                Some(path) if path.as_os_str().is_empty() => {
                    let message = format!("--tool-result {name}=@ names no file after the @");
                    return Err(Error::new(ErrorKind::Config, message)
                        .hint(format!("write {name}=@FILE; {name}= gives an empty result"))
                        .into());
                }
                Some(path) => read_text(path)?,
                None => text.clone(),
            };
            results.push((name.clone(), text));
        }
        Ok(results)
    }

    fn fallbacks(&self, model: &ModelOptions) -> Result<Option<Fallbacks>> {
        if self.no_fallback_tool {
            return Ok(None);
        }
        let models = Models::load(model.models.as_deref())?;
        let names = if self.fallback_tool_models.is_empty() {
            // Nobody asked for these: they are not fetched.
            let hub = model.hub();
            let usable = |entry: ModelEntry| entry.local(&hub).is_some() || entry.server().is_some();
            let here = |name: &String| models.resolve(name).is_ok_and(usable);
            model.entry()?.fallbacks.into_iter().filter(here).collect()
        } else {
            let hub = model.hub();
            // An unknown name is an error now, not when the model is needed.
            let named = self.fallback_tool_models.iter().map(|name| Ok(find(&models, name, &hub)?.name));
            named.collect::<Result<Vec<_>>>()?
        };
        for name in &names {
            // A missing key is an error now, not when the model is needed.
            if let Some(server) = models.resolve(name)?.server() {
                server.key()?;
            }
        }
        if names.is_empty() {
            return Ok(None);
        }
        let default = Spending::default();
        let limits = Spending {
            max_tokens: self.fallback_tokens.unwrap_or(default.max_tokens),
            max_time: self.fallback_seconds.map_or(default.max_time, |seconds| Duration::from_secs(seconds as u64)),
            max_cost: self.fallback_cost.unwrap_or(default.max_cost),
            memory: self.fallback_memory.map_or(default.memory, |mib| (mib as u64) << 20),
        };
        let fallbacks = Fallbacks::new(names, limits, model.opener());
        if !self.learn_fallbacks {
            return Ok(Some(fallbacks));
        }
        let folder = state_folder().ok_or_else(|| {
            Error::new(ErrorKind::Config, "--learn-fallbacks has nowhere to remember: there is no home directory")
        })?;
        Ok(Some(fallbacks.learning(folder.join("fallbacks.json"))?))
    }
}

fn cost(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|cost: &f64| *cost >= 0.0).ok_or_else(|| "not a number from 0 up".to_owned())
}

/// NAME=TEXT.
fn named_result(text: &str) -> Result<(String, String), String> {
    let named = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let (name, text) = named.ok_or("not NAME=TEXT or NAME=@FILE")?;
    Ok((name.to_owned(), text.to_owned()))
}

/// The error about a name that no tool has.
pub fn unknown_tool(message: &str, tools: &Tools) -> Error {
    let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
    let hint = match &names[..] {
        [] => "there are no tools; --tools FILE gives some".to_owned(),
        names => format!("the tools are {}", names.join(", ")),
    };
    Error::new(ErrorKind::Config, message).hint(hint)
}

/// Where the program keeps what it learns.
pub fn state_folder() -> Option<PathBuf> {
    let folders = directories::ProjectDirs::from("", "", "callwright")?;
    Some(folders.state_dir().unwrap_or(folders.data_local_dir()).to_owned())
}

/// Gives the calls that wait for results at the end of a conversation those that there are.
fn answer_waiting(messages: &mut Vec<Message>, given: &[(String, String)]) {
    let calls = |message: &Message| message.role == Role::Assistant && !message.tool_calls.is_empty();
    let Some(last) = messages.iter().rposition(calls) else { return };
    let results = messages[last + 1..].iter().take_while(|message| message.role == Role::Tool).count();
    let end = last + 1 + results;
    let answered: Vec<Option<String>> =
        messages[last + 1..end].iter().map(|message| message.tool_call_id.clone()).collect();
    let waiting = messages[last].tool_calls.iter().filter(|call| call.id.is_some() && !answered.contains(&call.id));
    let answers: Vec<Message> = waiting
        .filter_map(|call| {
            let (name, text) = given.iter().find(|(name, _)| *name == call.name)?;
            Some(Message::tool(call.id.clone()?, name, text))
        })
        .collect();
    messages.splice(end..end, answers);
}

/// Before the model is loaded: a tool that cannot be run should not come to light when it is called.
fn runnable(tools: &Tools, executor: &Executor) -> Result<()> {
    if tools.is_empty() {
        return Err(Error::new(ErrorKind::Tools, "there are no tools to execute")
            .hint("give some with --tools FILE, --tools builtin or --mcp FILE")
            .into());
    }
    for tool in tools.iter() {
        let Some(path) = executor.program(tool) else { continue };
        let wrong = |what: &str| {
            let message = format!("the program of the tool {:?} {what}: {}", tool.name, path.display());
            Error::new(ErrorKind::Tools, message)
        };
        if !path.is_file() {
            return Err(wrong("is not there").hint("a path in a tools file is relative to the file's folder").into());
        }
        if !may_be_executed(&path) {
            return Err(wrong("may not be executed").hint(format!("chmod +x {}", path.display())).into());
        }
    }
    Ok(())
}

/// Returns whether the rights of a file let anybody execute it; what is right for whom, starting it says.
#[cfg(unix)]
fn may_be_executed(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|data| data.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn may_be_executed(_: &Path) -> bool {
    true
}

/// Whether a file can be written into a folder, which is made where there is none.
fn writable(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(|error| Error::io("create", folder, &error))?;
    tempfile::tempfile_in(folder).map_err(|error| Error::io("write into", folder, &error))?;
    Ok(())
}
