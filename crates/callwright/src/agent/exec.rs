//! Runs tools: programs that a tools file names, and Rust functions.
//!
//! What a model asks for is done on somebody's machine, so a tool gets what its author wrote and no more: no shell, no
//! environment but `PATH` and what is listed, a time limit, a cap on its output, and an end for all of its processes.
//! Whatever goes wrong is a sentence that the model can act on.
//!
//! ```
//! use callwright::agent::exec::Executor;
//! use schemars::JsonSchema;
//! use serde::Deserialize;
//!
//! /// What `add` is called with; the model is shown these comments.
//! #[derive(Deserialize, JsonSchema)]
//! struct Sum {
//!     /// The first number
//!     a: f64,
//!     /// The second number
//!     b: f64,
//! }
//!
//! let mut executor = Executor::default();
//! let add = executor.function("add", "Adds two numbers", |sum: Sum| Ok::<_, String>(sum.a + sum.b));
//! assert_eq!(add.parameters.as_ref().unwrap()["required"], serde_json::json!(["a", "b"]));
//! let tools = callwright::Tools::new([add])?;
//!
//! let call = callwright::message::ToolCall {
//!     id: Some("call00001".into()),
//!     name: "add".into(),
//!     arguments: callwright::message::Arguments::from_text(r#"{"a": 1, "b": 2}"#),
//! };
//! let results = executor.run(&tools, &[call], &Default::default(), &mut |_, _| ());
//! assert_eq!(results[0].as_deref(), Ok("3.0"));
//! # Ok::<(), callwright::Error>(())
//! ```

mod builtin;
mod command;
mod function;

/// Public with the feature `unstable`.
#[path = "exec"]
mod unstable {
    pub mod remote;
}

#[cfg_attr(feature = "unstable", visibility::make(pub))]
pub(crate) use self::{builtin::BUILTIN, unstable::*};
#[cfg_attr(feature = "unstable", visibility::make(pub))]
pub(crate) use crate::groups::kill_running;
pub use function::Function;

use crate::message::{Arguments, ToolCall};
pub use crate::session::FailureKind;
use crate::session::Fault;
use crate::tool::{Effect, Tool, Tools};
use remote::Remote;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

/// Seconds that a tool may take, where it does not say.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of a tool's output that are kept, where it does not say.
pub(crate) const MAX_OUTPUT: usize = 1 << 20;

/// A tool that gave no result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Failure {
    /// Why.
    pub kind: FailureKind,
    /// In words for the model.
    pub message: String,
}

impl Failure {
    pub(crate) fn new(kind: FailureKind, message: impl Into<String>) -> Failure {
        Failure { kind, message: message.into() }
    }

    /// Whether another call of the tool may go better.
    pub(crate) fn fault(&self) -> Fault {
        match self.kind {
            FailureKind::Reported | FailureKind::Crashed | FailureKind::NotJson => Fault::Execution,
            _ => Fault::Tool,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// What the calls of an answer came to, in their order.
pub(crate) type Results = Vec<Result<String, Failure>>;

/// For each call the place of the first call that is the same: one with the same name and equal arguments.
pub(crate) fn first_of_same(calls: &[ToolCall]) -> Vec<usize> {
    let same = |one: &ToolCall, other: &ToolCall| one.name == other.name && one.arguments == other.arguments;
    let first = |index: usize| calls[..index].iter().position(|before| same(before, &calls[index]));
    (0..calls.len()).map(|index| first(index).unwrap_or(index)).collect()
}

/// A call that needs approval.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Question<'a> {
    /// The call.
    pub call: &'a ToolCall,
    /// Its tool.
    pub tool: &'a Tool,
    /// What runs it: a program, or a server.
    pub runs: &'a str,
    /// Why it is asked.
    pub why: &'a str,
}

/// What became of the question whether a call may be executed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Approval {
    /// A person has allowed this call.
    Given,
    /// Nobody has looked at this call: all are allowed.
    Assumed,
    /// It must not be executed; the model gets the reason, where there is one.
    Denied(Option<String>),
    /// Nobody can be asked now: the run pauses.
    Undecided,
}

/// Decides whether a call may be executed; it is called for one call after the other.
pub(crate) type Confirm = Box<dyn Fn(&Question<'_>) -> Approval + Send + Sync>;

/// Gives the result of a call that nothing runs, a person's for example; it is called for one call after the other.
/// `None` leaves the call open: the run then ends, and its caller answers the call.
pub(crate) type ByHand = Box<dyn Fn(&ToolCall) -> Option<String> + Send + Sync>;

/// Runs tools, several at a time.
pub struct Executor {
    functions: HashMap<String, Arc<dyn Function>>,
    /// Results in place of running a tool, by tool.
    given: HashMap<String, String>,
    /// The results that are given in place of running anything.
    recorded: Option<Mutex<VecDeque<Results>>>,
    /// Runs tools in another place.
    pub remote: Option<Arc<dyn Remote>>,
    /// At most this many tools run at a time.
    pub jobs: usize,
    /// How long a tool may take that does not say.
    pub timeout: Duration,
    /// Bytes of output that are kept of a tool that does not say.
    pub max_output: usize,
    /// Decides about calls that need approval. Without it a run pauses before them, and [`Executor::run`] refuses them.
    pub confirm: Option<Confirm>,
    /// Gives the results of the tools that nothing runs; without it the model learns that they cannot be run.
    pub by_hand: Option<ByHand>,
}

impl Default for Executor {
    /// Runs the programs that tools files name.
    fn default() -> Executor {
        Executor {
            functions: HashMap::new(),
            given: HashMap::new(),
            recorded: None,
            remote: None,
            jobs: 4,
            timeout: TIMEOUT,
            max_output: MAX_OUTPUT,
            confirm: None,
            by_hand: None,
        }
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names: Vec<&String> = self.functions.keys().collect();
        names.sort();
        f.debug_struct("Executor").field("functions", &names).field("jobs", &self.jobs).finish_non_exhaustive()
    }
}

impl Executor {
    /// An executor that runs nothing: each time it gives the next of these results.
    pub(crate) fn repeating(results: Vec<Results>) -> Executor {
        Executor { recorded: Some(Mutex::new(results.into())), ..Executor::default() }
    }

    /// Runs `function` whenever the tool `name` is called, whatever its file says.
    pub fn add(&mut self, name: impl Into<String>, function: impl Function + 'static) {
        self.functions.insert(name.into(), Arc::new(function));
    }

    /// Gives each call of the tool `name` this result; the tool is not run, whatever its file says.
    pub fn give(&mut self, name: impl Into<String>, result: impl Into<String>) {
        self.given.insert(name.into(), result.into());
    }

    /// Returns whether it knows how to run a tool, or has its result.
    pub(crate) fn can_run(&self, tool: &Tool) -> bool {
        tool.exec.is_some()
            || self.functions.contains_key(&tool.name)
            || self.given.contains_key(&tool.name)
            || self.remote(&tool.name).is_some()
    }

    /// Returns whether a call of the tool does something: it is neither given its result nor left to a person.
    pub(crate) fn executes(&self, tool: &Tool) -> bool {
        !self.given.contains_key(&tool.name) && self.can_run(tool)
    }

    /// Returns the tools as they are now, where a server has changed its own.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn changed_tools(&self, tools: &Tools) -> Option<Tools> {
        self.remote.as_ref()?.look(0, tools).tools
    }

    /// Returns what runs the tool of that name in another place.
    fn remote(&self, name: &str) -> Option<&dyn Remote> {
        self.remote.as_deref().filter(|remote| remote.has(name))
    }

    /// The program that a tool is run by, where its path says where that is.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn program(&self, tool: &Tool) -> Option<PathBuf> {
        let replaced = self.functions.contains_key(&tool.name) || self.given.contains_key(&tool.name);
        let exec = tool.exec.as_ref().filter(|_| !replaced)?;
        command::path(exec)
    }

    /// Executes calls, at most [`Executor::jobs`] at a time; the results are in the order of the calls. Calls with the
    /// same name and equal arguments are executed once, and have the same result.
    ///
    /// `on_end` is called for each, in that order too, as soon as it and all before it have ended. When `cancel` is
    /// raised what runs is killed, and what does not yet is not started. That a call suits its tool's schema is the
    /// caller's to see to.
    pub fn run(
        &self,
        tools: &Tools,
        calls: &[ToolCall],
        cancel: &AtomicBool,
        on_end: &mut dyn FnMut(usize, &Result<String, Failure>),
    ) -> Vec<Result<String, Failure>> {
        let first = first_of_same(calls);
        let asked = |(index, call)| {
            if first[index] == index { refusal(call, self.approval(tools, call, None).0) } else { None }
        };
        let refusals: Vec<Option<Failure>> = calls.iter().enumerate().map(asked).collect();
        self.run_approved(tools, calls, &refusals, cancel, on_end)
    }

    /// Returns whether it only gives the results of a recording.
    pub(crate) fn repeats(&self) -> bool {
        self.recorded.is_some()
    }

    /// Decides whether a call may be executed, and says why it needs approval, if it does. `doubt` is a reason in its text.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn approval(
        &self,
        tools: &Tools,
        call: &ToolCall,
        doubt: Option<&'static str>,
    ) -> (Approval, &'static str) {
        let Some(tool) = tools.get(&call.name) else { return (Approval::Assumed, "") };
        // What is not run changes nothing, and a recording has the decision in its results.
        if self.recorded.is_some() || !self.executes(tool) {
            return (Approval::Assumed, "");
        }
        let exec = tool.exec.as_ref();
        let (runs, why) = match self.remote(&tool.name) {
            Some(remote) => (remote.runs(&tool.name), remote.to_confirm(&tool.name, tool.policy.effect)),
            None => {
                let runs =
                    exec.and_then(|exec| exec.command.first().cloned()).unwrap_or_else(|| "this program".to_owned());
                let why = match tool.policy.effect {
                    _ if exec.is_some_and(|exec| exec.confirm) => Some("it has `confirm = true`"),
                    Effect::Destructive => Some("it is destructive"),
                    _ => None,
                };
                (runs, why)
            }
        };
        let doubt = doubt.filter(|_| tool.policy.effect != Effect::Read);
        match (why.or(doubt), &self.confirm) {
            (None, _) => (Approval::Assumed, ""),
            (Some(why), Some(confirm)) => (confirm(&Question { call, tool, runs: &runs, why }), why),
            (Some(why), None) => (Approval::Undecided, why),
        }
    }

    /// Returns whether the results of a recording have all been given.
    pub(crate) fn is_over(&self) -> bool {
        let results = self.recorded.as_ref().map(|recorded| recorded.lock().unwrap_or_else(PoisonError::into_inner));
        results.is_some_and(|results| results.is_empty())
    }

    /// Executes the calls that have no refusal, as [`Executor::run`] does.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn run_approved(
        &self,
        tools: &Tools,
        calls: &[ToolCall],
        refusals: &[Option<Failure>],
        cancel: &AtomicBool,
        on_end: &mut dyn FnMut(usize, &Result<String, Failure>),
    ) -> Vec<Result<String, Failure>> {
        if let Some(recorded) = &self.recorded {
            let next = recorded.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let other = || Failure::new(FailureKind::NotRunnable, "the recording has no result for this call");
            let results = next.filter(|next| next.len() == calls.len()).unwrap_or(vec![Err(other()); calls.len()]);
            results.iter().enumerate().for_each(|(index, result)| on_end(index, result));
            return results;
        }
        let first = first_of_same(calls);
        let is_first = |index: usize| first[index] == index;
        let mut results: Vec<Option<Result<String, Failure>>> = calls
            .iter()
            .enumerate()
            .map(
                |(index, call)| {
                    if is_first(index) { self.settled(tools, call, &refusals[index], cancel) } else { None }
                },
            )
            .collect();
        let waiting: Vec<usize> =
            (0..calls.len()).filter(|&index| is_first(index) && results[index].is_none()).collect();
        let next = AtomicUsize::new(0);
        let (sender, receiver) = mpsc::channel();
        let mut reported = 0;
        std::thread::scope(|scope| {
            for _ in 0..self.jobs.clamp(1, waiting.len().max(1)) {
                let (sender, next, waiting) = (sender.clone(), &next, &waiting);
                scope.spawn(move || {
                    while let Some(&index) = waiting.get(next.fetch_add(1, Ordering::Relaxed)) {
                        // The receiver outlives the threads.
                        let _ = sender.send((index, self.one(tools, &calls[index], cancel)));
                    }
                });
            }
            drop(sender);
            loop {
                while reported < results.len() {
                    if !is_first(reported) {
                        // The first one was reported before.
                        results[reported] = results[first[reported]].clone();
                    }
                    let Some(result) = &results[reported] else { break };
                    on_end(reported, result);
                    reported += 1;
                }
                let Ok((index, result)) = receiver.recv() else { break };
                results[index] = Some(result);
            }
        });
        let missing = || Err(Failure::new(FailureKind::Crashed, "the tool ended without a result"));
        results.into_iter().map(|result| result.unwrap_or_else(missing)).collect()
    }

    /// Returns what a call comes to without anything being run.
    fn settled(
        &self,
        tools: &Tools,
        call: &ToolCall,
        refusal: &Option<Failure>,
        cancel: &AtomicBool,
    ) -> Option<Result<String, Failure>> {
        let cut = |text: &str| command::cut(text.as_bytes(), text.len(), self.max_output);
        if let Some(text) = self.given.get(&call.name) {
            return Some(Ok(cut(text)));
        }
        let tool = tools.get(&call.name)?;
        let Some(by_hand) = self.by_hand.as_ref().filter(|_| !self.can_run(tool)) else {
            return refusal.clone().map(Err);
        };
        let name = &call.name;
        Some(by_hand(call).map(|text| cut(&text)).ok_or_else(|| match cancel.load(Ordering::Relaxed) {
            true => cancelled(name),
            false => Failure::new(FailureKind::LeftOpen, format!("nothing says how the tool {name} is run")),
        }))
    }

    fn one(&self, tools: &Tools, call: &ToolCall, cancel: &AtomicBool) -> Result<String, Failure> {
        let name = &call.name;
        if cancel.load(Ordering::Relaxed) {
            return Err(cancelled(name));
        }
        let Arguments::Object(arguments) = &call.arguments else {
            return Err(Failure::new(FailureKind::NotRunnable, format!("the arguments of {name} are no JSON object")));
        };
        if let Some(function) = self.functions.get(name) {
            let timeout = tools.get(name).and_then(|tool| tool.exec.as_ref()).and_then(|exec| exec.timeout());
            return function::run(function, name, arguments.clone(), timeout.unwrap_or(self.timeout), cancel)
                .map(|output| command::cut(output.as_bytes(), output.len(), self.max_output));
        }
        if let Some(remote) = self.remote(name) {
            let cut = |output: String| command::cut(output.as_bytes(), output.len(), self.max_output);
            let result = remote.call(name, arguments.clone(), self.timeout, cancel);
            return result.map(cut).map_err(|failure| Failure { message: cut(failure.message), ..failure });
        }
        match tools.get(name).map(|tool| &tool.exec) {
            Some(Some(exec)) => {
                let limits = command::Limits {
                    timeout: exec.timeout().unwrap_or(self.timeout),
                    max_output: exec.max_output_bytes.unwrap_or(self.max_output),
                };
                command::run(exec, name, &call.arguments.to_text(), limits, cancel)
            }
            Some(None) => {
                Err(Failure::new(FailureKind::NotRunnable, format!("nothing says how the tool {name} is run")))
            }
            None => Err(Failure::new(FailureKind::NotRunnable, format!("there is no tool named {name:?}"))),
        }
    }
}

/// The failure of a call that must not be executed.
pub(crate) fn refusal(call: &ToolCall, approval: Approval) -> Option<Failure> {
    let name = &call.name;
    let message = match approval {
        Approval::Given | Approval::Assumed => return None,
        Approval::Denied(None) => format!("the user did not allow {name} to run"),
        Approval::Denied(Some(reason)) => format!("the user did not allow {name} to run: {reason}"),
        Approval::Undecided => format!("{name} was not run: it needs the user's approval, and there is nobody to ask"),
    };
    Some(Failure::new(FailureKind::Refused, message))
}

fn cancelled(name: &str) -> Failure {
    Failure::new(FailureKind::Cancelled, format!("the user interrupted {name}"))
}

fn timed_out(name: &str, timeout: Duration) -> Failure {
    let message = format!("{name} did not end within {} s and was stopped", timeout.as_secs_f64());
    Failure::new(FailureKind::TimedOut, message)
}
