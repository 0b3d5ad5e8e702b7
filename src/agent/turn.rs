//! What to do next in a run: generate, execute, retry, regenerate, fall back, answer, stop. It decides, and does
//! nothing else.
//!
//! Small models fail often enough that recovery is part of every run, and a loop with recovery in it is where runs go
//! on for ever. So the decisions are here, without a model, a tool or a clock, and every path through them is a test.
//!
//! A call that failed climbs a ladder. The model gets the error, until the same tool has failed
//! [`Limits::max_tool_failures`] times in a row; then the call alone is generated again under the grammar; then each
//! fallback model is asked for it; then it is given up, and the model answers without tools. Failures are counted for
//! each tool: once for an answer in which a call of the tool failed, and from nothing after one in which none did.
//!
//! What no other call can mend ([`Fault::Tool`]: a program that is not there, one that hangs, a person who says no) is
//! not the model's failure, and no model could do better. The model learns that once; where the model calls the tool again and it
//! fails so again, the call is given up.
//!
//! ```
//! use callwright::agent::turn::{FinishReason, Limits, Proposed, Ran, Status, Step, Turn};
//!
//! let mut turn = Turn::new(Limits::default());
//! let call = Proposed { tool: "clock".into(), arguments: "{}".into(), fault: None };
//! assert_eq!(turn.generated(FinishReason::ToolCalls, vec![call]), Step::Execute(vec![0]));
//! assert_eq!(turn.executed(vec![(0, Ran::Done("12:00".into()))]), Step::Generate);
//! assert_eq!(turn.generated(FinishReason::Stop, vec![]), Step::Stop(Status::Done));
//! ```

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FinishReason {
    /// The model had said all.
    Stop,
    /// The model waits for the results of its calls.
    ToolCalls,
    /// The token limit or the end of the context.
    Length,
    /// The caller ended it.
    Cancelled,
    /// There is none: generating it failed.
    Error,
}

/// What a run may do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// At most this many answers of the model.
    pub max_turns: usize,
    /// At most this many calls in one answer.
    pub max_calls: usize,
    /// After this many failures of a tool in a row the model no longer gets the error, but help.
    pub max_tool_failures: usize,
    /// Whether the model gets the error and tries again.
    pub tell: bool,
    /// Whether a call that the model cannot write is generated alone under the grammar.
    pub regenerate: bool,
    /// How many models there are to fall back to.
    pub fallback_models: usize,
    /// How often each of them is asked for one call.
    pub fallback_attempts: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_turns: 16,
            max_calls: 16,
            max_tool_failures: 3,
            tell: true,
            regenerate: true,
            fallback_models: 0,
            fallback_attempts: 2,
        }
    }
}

/// What is wrong with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Fault {
    /// It is not well-formed, or not written out.
    Format,
    /// There is no such tool.
    UnknownTool,
    /// Its arguments do not fit the tool's schema.
    Schema,
    /// The tool ran and failed; with other arguments it may not.
    Execution,
    /// The tool could not be run, did not end in time, or was not allowed to run: no other call of it would do better.
    Tool,
}

impl Fault {
    /// Whether it is how the model wrote the call that is at fault.
    pub(crate) fn is_the_models(self) -> bool {
        matches!(self, Fault::Format | Fault::UnknownTool | Fault::Schema)
    }

    /// Whether another call in its place may go well.
    pub(crate) fn is_recoverable(self) -> bool {
        self != Fault::Tool
    }
}

/// A call that a model wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Proposed {
    /// The tool's name as it was written.
    pub tool: String,
    /// The arguments' text.
    pub arguments: String,
    /// What is wrong with the call; such a call is not executed.
    pub fault: Option<Fault>,
}

/// What executing a call came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ran {
    /// This result.
    Done(String),
    /// No result.
    Failed(Fault),
}

/// What asking a fallback model came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fell {
    /// It wrote a call.
    Called(Proposed),
    /// It wrote none.
    Nothing,
    /// It cannot be loaded, or failed.
    Unavailable,
    /// The tokens or seconds for falling back are used up.
    Exhausted,
}

/// What the model gets before it writes again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Told {
    /// What was wrong with this call, the tool's n-th failure in a row.
    Failed {
        /// The call's place in the answer.
        call: usize,
        /// In which way.
        fault: Fault,
        /// How often the tool has failed in a row.
        failures: usize,
    },
    /// What became of this call, and that no other call of the tool would do better.
    Unavailable {
        /// The call's place in the answer.
        call: usize,
    },
    /// That this call was made before, with the same result.
    Repeated {
        /// The call's place in the answer.
        call: usize,
    },
}

/// Why the model is made to answer without tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reason {
    /// It makes the same call again and again.
    Loop,
    /// A call was given up.
    ToolFailed,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Status {
    /// The model has answered.
    Done,
    /// The answer was cut off at the token limit or the end of the context.
    Length,
    /// A tool failed, and nothing helped; the answer, if there is one, was given without it.
    ToolFailed,
    /// The model kept making the same call, despite the errors.
    Loop,
    /// There were as many answers as are allowed, and the last one still called tools.
    MaxTurns,
    /// There are calls that nothing runs; the caller answers them.
    ToolCalls,
    /// The caller ended it.
    Cancelled,
    /// An answer could not be generated.
    Error,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Status::Done => "done",
            Status::Length => "the answer was cut off by --max-tokens or the end of the context",
            Status::ToolFailed => "a tool failed, and nothing helped",
            Status::Loop => "the model makes the same call again and again",
            Status::MaxTurns => "the model still calls tools after --max-turns answers",
            Status::ToolCalls => "calls wait for their results",
            Status::Cancelled => "interrupted",
            Status::Error => "an answer could not be generated",
        })
    }
}

/// What to do next. Calls are named by their place in the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Let the model speak: [`Turn::generated`].
    Generate,
    /// Let it write after it got this: [`Turn::generated`].
    Retry(Vec<Told>),
    /// Execute these calls: [`Turn::executed`].
    Execute(Vec<usize>),
    /// Generate this call alone again, under the grammar: [`Turn::regenerated`].
    Regenerate(usize),
    /// Ask a fallback model for this call: [`Turn::fell_back`].
    FallBack {
        /// The call.
        call: usize,
        /// The model's place in the list.
        model: usize,
        /// How often that model was asked for this call before.
        attempt: usize,
    },
    /// Let the model answer without tools: [`Turn::generated`].
    Answer(Reason),
    /// The run is over.
    Stop(Status),
}

/// Where on the ladder a failed call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rung {
    Told,
    Regenerated,
    Model { model: usize, attempt: usize },
}

#[derive(Debug)]
struct Call {
    tool: String,
    arguments: String,
    came: Option<Ran>,
}

impl Call {
    fn fault(&self) -> Option<Fault> {
        match self.came {
            Some(Ran::Failed(fault)) => Some(fault),
            _ => None,
        }
    }
}

/// A run, from the question to its end. It starts with [`Step::Generate`].
#[derive(Debug)]
pub(crate) struct Turn {
    limits: Limits,
    turns: usize,
    /// Failures in a row that another call may mend, by tool.
    failures: BTreeMap<String, usize>,
    /// Failures in a row that no other call can mend, by tool.
    unavailable: BTreeMap<String, usize>,
    /// In how many answers a tool gave the same result to the same arguments.
    seen: HashMap<(String, String, String), usize>,
    /// The calls of the answer at hand.
    calls: Vec<Call>,
    /// The calls on the ladder; the first one is on `rung`.
    failed: VecDeque<usize>,
    rung: Rung,
    given_up: bool,
    answering: Option<Reason>,
}

/// Names that no tool has are counted together: a model that makes names up makes up another each time.
const UNKNOWN: &str = "";
/// At the second failure that no other call can mend, the model has ignored the answer to the first.
const MOST_UNAVAILABLE: usize = 2;

impl Turn {
    /// A run that may do this much.
    pub(crate) fn new(limits: Limits) -> Turn {
        Turn {
            limits,
            turns: 0,
            failures: BTreeMap::new(),
            unavailable: BTreeMap::new(),
            seen: HashMap::new(),
            calls: Vec::new(),
            failed: VecDeque::new(),
            rung: Rung::Told,
            given_up: false,
            answering: None,
        }
    }

    /// How often the tool has failed in a row, in a way that another call may mend.
    pub(crate) fn failures(&self, tool: &str) -> usize {
        self.failures.get(tool).copied().unwrap_or(0)
    }

    /// The model has answered, after [`Step::Generate`], [`Step::Retry`] or [`Step::Answer`].
    pub(crate) fn generated(&mut self, finish: FinishReason, calls: Vec<Proposed>) -> Step {
        self.turns += 1;
        if finish == FinishReason::Cancelled {
            return Step::Stop(Status::Cancelled);
        }
        match self.answering {
            Some(reason) if !calls.is_empty() => {
                return Step::Stop(match reason {
                    Reason::Loop => Status::Loop,
                    Reason::ToolFailed => Status::ToolFailed,
                });
            }
            Some(Reason::ToolFailed) => return Step::Stop(Status::ToolFailed),
            _ if calls.is_empty() && finish == FinishReason::Length => return Step::Stop(Status::Length),
            _ if calls.is_empty() => return Step::Stop(Status::Done),
            _ => {}
        }
        let good: Vec<usize> = (0..calls.len()).filter(|&index| calls[index].fault.is_none()).collect();
        let taken = calls.into_iter().map(|call| Call {
            tool: if call.fault == Some(Fault::UnknownTool) { UNKNOWN.to_owned() } else { call.tool },
            arguments: call.arguments,
            came: call.fault.map(Ran::Failed),
        });
        self.calls = taken.collect();
        if good.is_empty() { self.count() } else { Step::Execute(good) }
    }

    /// Calls were executed, after [`Step::Execute`].
    pub(crate) fn executed(&mut self, results: Vec<(usize, Ran)>) -> Step {
        for (index, came) in results {
            if let Some(call) = self.calls.get_mut(index) {
                call.came = Some(came);
            }
        }
        match self.failed.front().and_then(|&index| self.calls.get(index)) {
            None => self.count(),
            Some(call) => {
                let rescued = matches!(call.came, Some(Ran::Done(_)));
                let tool = call.tool.clone();
                if rescued {
                    self.failures.remove(&tool);
                    self.unavailable.remove(&tool);
                    self.leave();
                }
                self.climb()
            }
        }
    }

    /// The call was generated again, after [`Step::Regenerate`]; `None` if nothing came of it.
    pub(crate) fn regenerated(&mut self, call: Option<Proposed>) -> Step {
        self.replace(call)
    }

    /// A fallback model was asked, after [`Step::FallBack`].
    pub(crate) fn fell_back(&mut self, came: Fell) -> Step {
        match came {
            Fell::Called(call) => self.replace(Some(call)),
            Fell::Nothing => self.replace(None),
            Fell::Unavailable => {
                if let Rung::Model { model, .. } = self.rung {
                    self.rung = Rung::Model { model: model + 1, attempt: 0 };
                }
                self.climb()
            }
            Fell::Exhausted => {
                self.rung = Rung::Model { model: self.limits.fallback_models, attempt: 0 };
                self.climb()
            }
        }
    }

    /// The caller ended the run.
    pub(crate) fn cancelled(&mut self) -> Step {
        Step::Stop(Status::Cancelled)
    }

    /// The caller answers calls of the answer at hand.
    pub(crate) fn left_open(&mut self) -> Step {
        Step::Stop(Status::ToolCalls)
    }

    /// A call in place of the one on the ladder.
    fn replace(&mut self, proposed: Option<Proposed>) -> Step {
        let Some(&index) = self.failed.front() else { return self.decide() };
        let Some((call, proposed)) = self.calls.get_mut(index).zip(proposed) else { return self.climb() };
        match proposed.fault {
            None => {
                // The failures stay counted under the name that failed.
                call.arguments = proposed.arguments;
                if call.tool == UNKNOWN {
                    self.failures.remove(UNKNOWN);
                    call.tool = proposed.tool;
                }
                Step::Execute(vec![index])
            }
            Some(fault) => {
                call.came = Some(Ran::Failed(fault));
                self.climb()
            }
        }
    }

    /// Counts what has failed in the answer, and puts on the ladder what has failed too often.
    fn count(&mut self) -> Step {
        let mut tools: BTreeMap<&str, Vec<Fault>> = BTreeMap::new();
        for call in &self.calls {
            let fault = call.fault();
            tools.entry(&call.tool).or_default().extend(fault);
        }
        for (tool, faults) in tools {
            if faults.is_empty() {
                self.failures.remove(tool);
                self.unavailable.remove(tool);
            }
            if faults.iter().any(|fault| fault.is_recoverable()) {
                *self.failures.entry(tool.to_owned()).or_default() += 1;
            }
            if faults.iter().any(|fault| !fault.is_recoverable()) {
                *self.unavailable.entry(tool.to_owned()).or_default() += 1;
            }
        }
        let most = if self.limits.tell { self.limits.max_tool_failures } else { 1 };
        let too_often = |call: &Call| match call.fault() {
            None => false,
            Some(fault) if fault.is_recoverable() => self.failures(&call.tool) >= most,
            Some(_) => self.unavailable.get(&call.tool) >= Some(&most.min(MOST_UNAVAILABLE)),
        };
        let failed = self.calls.iter().enumerate().filter(|(_, call)| too_often(call));
        self.failed = failed.map(|(index, _)| index).collect();
        self.rung = Rung::Told;
        self.given_up = false;
        self.climb()
    }

    /// The next rung for the first call on the ladder.
    fn climb(&mut self) -> Step {
        while let Some(&index) = self.failed.front() {
            let Some(Ran::Failed(fault)) = self.calls.get(index).and_then(|call| call.came.clone()) else {
                self.leave();
                continue;
            };
            match self.rung {
                Rung::Told => {
                    self.rung = Rung::Regenerated;
                    if self.limits.regenerate && fault.is_the_models() {
                        return Step::Regenerate(index);
                    }
                }
                Rung::Regenerated => self.rung = Rung::Model { model: 0, attempt: 0 },
                Rung::Model { model, attempt } if attempt >= self.limits.fallback_attempts => {
                    self.rung = Rung::Model { model: model + 1, attempt: 0 };
                }
                Rung::Model { model, attempt } if model < self.limits.fallback_models && fault.is_recoverable() => {
                    self.rung = Rung::Model { model, attempt: attempt + 1 };
                    return Step::FallBack { call: index, model, attempt };
                }
                Rung::Model { .. } => {
                    self.given_up = true;
                    self.leave();
                }
            }
        }
        self.decide()
    }

    /// The first call leaves the ladder, rescued or given up.
    fn leave(&mut self) {
        self.failed.pop_front();
        self.rung = Rung::Told;
    }

    /// All calls have come to something: how to go on.
    fn decide(&mut self) -> Step {
        let mut told = Vec::new();
        let mut looping = false;
        // The same call several times in one answer was executed once.
        let mut here = HashMap::new();
        for (index, call) in self.calls.iter().enumerate() {
            match &call.came {
                Some(Ran::Done(result)) => {
                    let key = (call.tool.clone(), call.arguments.clone(), result.clone());
                    let times = *here.entry(key).or_insert_with_key(|key| {
                        let times = self.seen.entry(key.clone()).or_insert(0);
                        *times += 1;
                        *times
                    });
                    looping |= times > 2;
                    if times > 1 {
                        told.push(Told::Repeated { call: index });
                    }
                }
                Some(Ran::Failed(Fault::Tool)) => told.push(Told::Unavailable { call: index }),
                Some(Ran::Failed(fault)) => {
                    told.push(Told::Failed { call: index, fault: *fault, failures: self.failures(&call.tool) });
                }
                // Each call has come to something before this.
                None => {}
            }
        }
        self.calls.clear();
        let reason = match (self.given_up, looping) {
            (true, _) => Some(Reason::ToolFailed),
            (false, true) => Some(Reason::Loop),
            (false, false) => None,
        };
        match reason {
            _ if self.turns >= self.limits.max_turns => Step::Stop(match reason {
                Some(Reason::ToolFailed) => Status::ToolFailed,
                Some(Reason::Loop) => Status::Loop,
                None => Status::MaxTurns,
            }),
            Some(reason) => {
                self.answering = Some(reason);
                Step::Answer(reason)
            }
            None if told.is_empty() => Step::Generate,
            None => Step::Retry(told),
        }
    }
}

#[cfg(test)]
mod tests;
