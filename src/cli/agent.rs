//! The options that say how tools are executed, and what is done where that fails.

use super::input::{Input, ModelOptions, positive};
use super::lines::TypedAhead;
use super::say;
use anyhow::Result;
use callwright::fallback::{Limits as Spending, Rates};
use callwright::message::ToolCall;
use callwright::models::{ModelEntry, Models};
use callwright::session::{Agent, Fallbacks};
use callwright::tool::Tools;
use callwright::turn::Limits;
use callwright::{Error, ErrorKind};
use clap::Args;
use rustyline::error::ReadlineError;
use rustyline::{Behavior, Config, DefaultEditor};
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

    /// Run tools that want to be asked about (confirm = true) without asking
    #[arg(long, help_heading = "Execution")]
    yes: bool,

    /// End after N answers that call tools [default: 16]
    #[arg(long, value_name = "N", help_heading = "Execution", value_parser = positive, allow_negative_numbers = true)]
    max_turns: Option<usize>,

    /// After N failures of a tool in a row stop telling the model and help it [default: 3]
    #[arg(long, value_name = "N", help_heading = "Execution", value_parser = positive, allow_negative_numbers = true)]
    max_tool_failures: Option<usize>,

    /// Do not let the model try again: help it at the first failure
    #[arg(long, help_heading = "Execution")]
    no_retry: bool,

    /// Do not generate a failing call alone under the grammar
    #[arg(long, help_heading = "Execution")]
    no_regenerate: bool,

    /// Models that write a call which keeps failing, in this order, but those of the model's family first [default: the model's fallbacks in models.toml, as far as they are on this machine]
    #[arg(long, value_name = "MODEL,…", value_delimiter = ',', help_heading = "Execution")]
    fallback_tool_models: Vec<String>,

    /// Ask no other model
    #[arg(long, help_heading = "Execution", conflicts_with = "fallback_tool_models")]
    no_fallback_tool: bool,

    /// Ask each of them N times for one call [default: 2]
    #[arg(long, value_name = "N", help_heading = "Execution", value_parser = positive, allow_negative_numbers = true)]
    fallback_attempts: Option<usize>,

    /// Spend at most N tokens of theirs in a run [default: 32768]
    #[arg(long, value_name = "N", help_heading = "Execution", value_parser = positive, allow_negative_numbers = true)]
    fallback_tokens: Option<usize>,

    /// Spend at most N seconds on them in a run [default: 300]
    #[arg(long, value_name = "N", help_heading = "Execution", value_parser = positive, allow_negative_numbers = true)]
    fallback_seconds: Option<usize>,

    /// Keep at most N MiB of them loaded [default: 8192]
    #[arg(long, value_name = "N", help_heading = "Execution", value_parser = positive, allow_negative_numbers = true)]
    fallback_memory: Option<usize>,

    /// Remember which of them did well with which tool, and prefer those
    #[arg(long, help_heading = "Execution")]
    learn_fallbacks: bool,

    /// When a call is given up, write all that was tried into a new file in DIR
    #[arg(long, value_name = "DIR", help_heading = "Execution")]
    failure_log: Option<PathBuf>,
}

impl AgentOptions {
    /// The first of the options that was given: without execution they mean nothing.
    pub fn given(&self) -> Option<&'static str> {
        let given = [
            (self.tool_jobs.is_some(), "--tool-jobs"),
            (self.yes, "--yes"),
            (self.max_turns.is_some(), "--max-turns"),
            (self.max_tool_failures.is_some(), "--max-tool-failures"),
            (self.no_retry, "--no-retry"),
            (self.no_regenerate, "--no-regenerate"),
            (!self.fallback_tool_models.is_empty(), "--fallback-tool-models"),
            (self.no_fallback_tool, "--no-fallback-tool"),
            (self.fallback_attempts.is_some(), "--fallback-attempts"),
            (self.fallback_tokens.is_some(), "--fallback-tokens"),
            (self.fallback_seconds.is_some(), "--fallback-seconds"),
            (self.fallback_memory.is_some(), "--fallback-memory"),
            (self.learn_fallbacks, "--learn-fallbacks"),
            (self.failure_log.is_some(), "--failure-log"),
        ];
        given.into_iter().find(|(given, _)| *given).map(|(_, name)| name)
    }

    /// What a run has at its disposal; the executor is taken out of the input.
    pub fn agent(&self, input: &mut Input, model: &ModelOptions, tools_needed: bool) -> Result<Agent> {
        let mut executor = std::mem::take(&mut input.executor);
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
            max_tool_failures: self.max_tool_failures.unwrap_or(default.max_tool_failures),
            tell: !self.no_retry,
            regenerate: !self.no_regenerate,
            fallback_attempts: self.fallback_attempts.unwrap_or(default.fallback_attempts),
            ..default
        };
        Ok(Agent { executor, limits, fallbacks: self.fallbacks(model)?, failure_log: self.failure_log.clone() })
    }

    /// Who is asked about tools that want to be asked about; Ctrl-C instead of an answer raises `cancel`.
    pub fn confirm(&self, agent: &mut Agent, cancel: Arc<AtomicBool>, typed: TypedAhead) {
        if self.yes {
            agent.executor.confirm = Some(Box::new(|_| true));
        } else if std::io::stdin().is_terminal() && std::io::stderr().is_terminal() {
            agent.executor.confirm =
                Some(Box::new(move |call| !cancel.load(Ordering::Relaxed) && confirm(call, &cancel, &typed)));
        }
    }

    fn fallbacks(&self, model: &ModelOptions) -> Result<Option<Fallbacks>> {
        if self.no_fallback_tool {
            return Ok(None);
        }
        let models = Models::load(model.models.as_deref())?;
        let names = if self.fallback_tool_models.is_empty() {
            // Nobody asked for these: they are not fetched.
            let hub = model.hub();
            let here = |name: &String| models.resolve(name).is_ok_and(|entry: ModelEntry| entry.local(&hub).is_some());
            model.entry()?.fallbacks.into_iter().filter(here).collect()
        } else {
            // A name that means nothing should not come to light when it is needed.
            self.fallback_tool_models.iter().try_for_each(|name| models.resolve(name).map(|_| ()))?;
            self.fallback_tool_models.clone()
        };
        if names.is_empty() {
            return Ok(None);
        }
        let default = Spending::default();
        let limits = Spending {
            max_tokens: self.fallback_tokens.unwrap_or(default.max_tokens),
            max_time: self.fallback_seconds.map_or(default.max_time, |seconds| Duration::from_secs(seconds as u64)),
            memory: self.fallback_memory.map_or(default.memory, |mib| (mib as u64) << 20),
        };
        let fallbacks = Fallbacks::new(names, limits, model.opener()?);
        if !self.learn_fallbacks {
            return Ok(Some(fallbacks));
        }
        let folder = state_folder().ok_or_else(|| {
            Error::new(ErrorKind::Config, "--learn-fallbacks has nowhere to remember: there is no home directory")
        })?;
        Ok(Some(fallbacks.learning(Rates::open(folder.join("fallbacks.json"))?)))
    }
}

/// Where the program keeps what it learns.
pub fn state_folder() -> Option<PathBuf> {
    let folders = directories::ProjectDirs::from("", "", "callwright")?;
    Some(folders.state_dir().unwrap_or(folders.data_local_dir()).to_owned())
}

/// Before the model is loaded: a tool that cannot be run should not come to light when it is called.
fn runnable(tools: &Tools, executor: &callwright::exec::Executor) -> Result<()> {
    if tools.is_empty() {
        return Err(Error::new(ErrorKind::Tools, "there are no tools to execute")
            .hint("give some with --tools FILE, or --tools builtin")
            .into());
    }
    for tool in tools.iter() {
        let name = &tool.name;
        if !executor.can_run(tool) {
            return Err(Error::new(ErrorKind::Tools, format!("nothing says how the tool {name:?} is run"))
                .hint("a tools file in TOML does, with command = [\"PROGRAM\", \"ARGUMENT\"]")
                .into());
        }
        if let Some(path) = executor.missing_program(tool) {
            let message = format!("the program of the tool {name:?} is not there: {}", path.display());
            return Err(Error::new(ErrorKind::Tools, message)
                .hint("a path in a tools file is relative to the file's folder")
                .into());
        }
    }
    Ok(())
}

/// Whether a file can be written into a folder, which is made where there is none.
fn writable(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(|error| Error::io("create", folder, &error))?;
    tempfile::tempfile_in(folder).map_err(|error| Error::io("write into", folder, &error))?;
    Ok(())
}

/// A call as it is asked about: nothing in it moves the cursor, or has what stands in it shown in another order.
fn shown(call: &ToolCall) -> String {
    let disguises = |c: char| {
        c.is_control()
            || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    format!("{} {}", call.name, call.arguments.to_text()).replace(disguises, " ")
}

/// Asks at the terminal whether a call may be executed.
fn confirm(call: &ToolCall, cancel: &AtomicBool, typed: &TypedAhead) -> bool {
    typed.take_in();
    let shown = shown(call);
    // The terminal itself: standard output may be a file.
    let config = Config::builder().behavior(Behavior::PreferTerm).build();
    let Ok(mut editor) = DefaultEditor::with_config(config) else { return false };
    loop {
        let answer = editor.readline(&format!("Run {shown}? [y/N] "));
        if matches!(answer, Err(ReadlineError::Interrupted)) {
            cancel.store(true, Ordering::Relaxed);
        }
        let Ok(answer) = answer else { return false };
        match answer.trim().to_lowercase().as_str() {
            "y" | "yes" => return true,
            "" | "n" | "no" => return false,
            // Something else was meant, to be said to the model perhaps.
            _ => say(format_args!("y runs it, n does not; the conversation goes on behind that\n")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use callwright::message::Arguments;

    #[test]
    fn what_is_asked_about_is_what_is_seen() {
        let arguments = Arguments::from_text("{\"path\": \"/tmp/\u{202e}fdp\u{2066}.\u{200f}sh\"}");
        let call = ToolCall { id: None, name: "open\u{1b}[2K".to_owned(), arguments };
        assert_eq!(shown(&call), "open [2K {\"path\":\"/tmp/ fdp . sh\"}");
    }
}
