//! What to do next in a run: generate, execute, retry, regenerate, fall back, answer, stop. It decides, and does
//! nothing else.
//!
//! Small models fail often enough that recovery is part of every run, and a loop with recovery in it is where runs go
//! on for ever. So the decisions are here, without a model, a tool or a clock, and every path through them is a test.
//!
//! A call that failed is recovered in steps. The model gets the error, until the same tool has failed
//! [`Limits::max_tool_failures`] times in a row; then the call alone is generated again under the grammar; then each
//! fallback model writes it; then it is given up, and the model answers without tools. Failures are counted for
//! each tool: once for an answer in which a call of the tool failed, and from nothing after one in which none did.
//!
//! A failure that no other call can repair ([`Fault::Tool`]: a program that is missing, one that hangs, a person who
//! says no) is not the model's, and no model could do better. The model learns that once; if it calls the tool again
//! and that fails in the same way, the call is given up.

use crate::agent::call::{CallOutcome, CallState};
use crate::session::FinishReason;
pub use crate::session::outcome::{Fault, Reason, Status};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// What a run may do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// At most this many answers of the model.
    pub max_turns: usize,
    /// At most this many calls in one answer.
    pub max_calls: usize,
    /// At most this many calls are executed in a run, whatever their tools allow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_calls_per_run: Option<usize>,
    /// After this many failures of a tool in a row the call is recovered in another way than by a retry.
    pub max_tool_failures: usize,
    /// Whether the model gets the error and tries again.
    #[serde(rename = "tell")]
    pub retry: bool,
    /// Whether a call that the model cannot write is generated alone under the grammar.
    pub regenerate: bool,
    /// The number of fallback models.
    pub fallback_models: usize,
    /// Maximum number of attempts of each of them at one call.
    pub fallback_attempts: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_turns: 16,
            max_calls: 16,
            max_calls_per_run: None,
            max_tool_failures: 3,
            retry: true,
            regenerate: true,
            fallback_models: 0,
            fallback_attempts: 2,
        }
    }
}

/// What a fallback model did.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum FallbackResult {
    /// It wrote a call.
    Called(Box<CallState>),
    /// It wrote none.
    NoCall,
    /// It cannot be loaded, or failed.
    Unavailable,
    /// The tokens or seconds for fallback models are used up.
    Exhausted,
}

/// What the model learns before it writes again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Advice {
    /// What was wrong with this call, the tool's n-th failure in a row.
    Failed {
        /// The call's place in the answer.
        call: usize,
        /// What is wrong.
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
    /// That this call had changed something before, and was not executed again.
    AlreadyDone {
        /// The call's place in the answer.
        call: usize,
    },
}

/// What to do next. Calls are named by their place in the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Let the model speak: [`Turn::generated`].
    Generate,
    /// Let it write after it learned this: [`Turn::generated`].
    Retry(Vec<Advice>),
    /// Drop the answer, which only repeats calls whose results are known, and let the model write another one after it got the results
    /// once more: [`Turn::generated`].
    Restate,
    /// Execute these calls: [`Turn::executed`].
    Execute(Vec<usize>),
    /// Generate this call alone again, under the grammar: [`Turn::regenerated`].
    Regenerate(usize),
    /// Let a fallback model write this call: [`Turn::fell_back`].
    FallBack {
        /// The call.
        call: usize,
        /// The model's place in the list.
        model: usize,
        /// The number of attempts of that model at this call before.
        attempt: usize,
    },
    /// Let the model answer without tools: [`Turn::generated`].
    Answer(Reason),
    /// The run is over.
    Stop(Status),
}

/// The last step of recovery of a failed call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Recovery {
    Retried,
    Regenerated,
    Model { model: usize, attempt: usize },
}

/// A run, from the question to its end. It starts with [`Step::Generate`].
#[derive(Debug)]
pub(crate) struct Turn {
    limits: Limits,
    turns: usize,
    /// Failures in a row that another call may repair, by tool.
    failures: BTreeMap<String, usize>,
    /// Failures in a row that no other call can repair, by tool.
    unavailable: BTreeMap<String, usize>,
    /// Whether the last answer was dropped.
    restated: bool,
    /// The number of answers in a row that only repeat what was done.
    repeats: usize,
    /// In how many answers a tool gave the same result to the same arguments.
    seen: HashMap<(String, String, String), usize>,
    /// The calls of the last answer.
    calls: Vec<CallState>,
    /// The calls to recover; the first one is at the step `recovery`.
    failed: VecDeque<usize>,
    recovery: Recovery,
    given_up: bool,
    answering: Option<Reason>,
}

/// Names that no tool has are counted together: a model that makes names up makes up another each time.
const UNKNOWN: &str = "";
/// At the second failure that no other call can repair, the model has ignored the report of the first.
const MOST_UNAVAILABLE: usize = 2;
/// At the second answer in a row that only repeats what was done, the model has nothing else to do.
const MOST_REPEATS: usize = 2;

impl Turn {
    /// A run that may do this much.
    pub(crate) fn new(limits: Limits) -> Turn {
        Turn {
            limits,
            turns: 0,
            failures: BTreeMap::new(),
            unavailable: BTreeMap::new(),
            restated: false,
            repeats: 0,
            seen: HashMap::new(),
            calls: Vec::new(),
            failed: VecDeque::new(),
            recovery: Recovery::Retried,
            given_up: false,
            answering: None,
        }
    }

    /// How often the tool has failed in a row, in a way that another call may repair.
    pub(crate) fn failures(&self, tool: &str) -> usize {
        self.failures.get(tool).copied().unwrap_or(0)
    }

    /// The calls of the last answer.
    pub(crate) fn calls(&self) -> &[CallState] {
        &self.calls
    }

    pub(in crate::agent) fn call_mut(&mut self, index: usize) -> Option<&mut CallState> {
        self.calls.get_mut(index)
    }

    /// Takes the calls of the last answer, which joins the conversation.
    pub(in crate::agent) fn take_calls(&mut self) -> Vec<CallState> {
        std::mem::take(&mut self.calls)
    }

    /// The model has answered, after [`Step::Generate`], [`Step::Retry`] or [`Step::Answer`].
    pub(crate) fn generated(&mut self, finish: FinishReason, calls: Vec<CallState>) -> Step {
        self.turns = self.turns.wrapping_add(1);
        self.calls = calls;
        for call in &mut self.calls {
            call.counted_as = match call.fault() {
                Some(Fault::UnknownTool) => UNKNOWN.to_owned(),
                _ => call.call.name.clone(),
            };
        }
        if finish == FinishReason::Cancelled {
            return Step::Stop(Status::Cancelled);
        }
        match self.answering {
            Some(Reason::AlreadyDone) if finish != FinishReason::Length => return Step::Stop(Status::Done),
            Some(reason) if !self.calls.is_empty() => {
                return Step::Stop(match reason {
                    Reason::Loop => Status::Loop,
                    Reason::ToolFailed => Status::ToolFailed,
                    Reason::AlreadyDone => Status::Done,
                });
            }
            Some(Reason::ToolFailed) => return Step::Stop(Status::ToolFailed),
            _ if self.calls.is_empty() && finish == FinishReason::Length => return Step::Stop(Status::Length),
            _ if self.calls.is_empty() && finish == FinishReason::Loop => return Step::Stop(Status::Loop),
            _ if self.calls.is_empty() => return Step::Stop(Status::Done),
            _ => {}
        }
        let known = self.calls.iter().all(|call| call.known && call.fault().is_none());
        self.restated = known && !self.restated && self.turns < self.limits.max_turns;
        if self.restated {
            return Step::Restate;
        }
        let good: Vec<usize> = (0..self.calls.len()).filter(|&index| self.calls[index].fault().is_none()).collect();
        if good.is_empty() { self.count() } else { Step::Execute(good) }
    }

    /// Calls were executed, after [`Step::Execute`].
    pub(crate) fn executed(&mut self, results: Vec<(usize, CallOutcome)>) -> Step {
        self.set_outcomes(results);
        if self.calls.iter().any(|call| call.outcome == Some(CallOutcome::LeftOpen)) {
            return Step::Stop(Status::ToolCalls);
        }
        match self.failed.front().and_then(|&index| self.calls.get(index)) {
            None => self.count(),
            Some(call) => {
                if matches!(call.outcome, Some(CallOutcome::Done(_))) {
                    let tool = call.counted_as.clone();
                    self.failures.remove(&tool);
                    self.unavailable.remove(&tool);
                    self.next_failed();
                }
                self.recover()
            }
        }
    }

    /// Calls need approval, and nobody can be asked, after [`Step::Execute`].
    pub(crate) fn paused(&mut self, calls: &[usize]) -> Step {
        self.set_outcomes(calls.iter().map(|&index| (index, CallOutcome::LeftOpen)).collect());
        Step::Stop(Status::Pending)
    }

    /// The run goes on with calls of the conversation that have no results yet, instead of [`Step::Generate`].
    pub(crate) fn resumed(&mut self, calls: Vec<CallState>) -> Step {
        self.turns = self.turns.wrapping_sub(1);
        self.generated(FinishReason::ToolCalls, calls)
    }

    fn set_outcomes(&mut self, results: Vec<(usize, CallOutcome)>) {
        for (index, outcome) in results {
            if let Some(call) = self.calls.get_mut(index) {
                call.outcome = Some(outcome);
            }
        }
    }

    /// The call was generated again, after [`Step::Regenerate`]; `None` if no call was written.
    pub(crate) fn regenerated(&mut self, call: Option<CallState>) -> Step {
        self.replace(call)
    }

    /// A fallback model has answered, after [`Step::FallBack`].
    pub(crate) fn fell_back(&mut self, result: FallbackResult) -> Step {
        match result {
            FallbackResult::Called(call) => self.replace(Some(*call)),
            FallbackResult::NoCall => self.replace(None),
            FallbackResult::Unavailable => {
                if let Recovery::Model { model, .. } = self.recovery {
                    self.recovery = Recovery::Model { model: model + 1, attempt: 0 };
                }
                self.recover()
            }
            FallbackResult::Exhausted => {
                self.recovery = Recovery::Model { model: self.limits.fallback_models, attempt: 0 };
                self.recover()
            }
        }
    }

    /// The caller ended the run, perhaps while calls were executed.
    pub(crate) fn cancelled(&mut self, results: Vec<(usize, CallOutcome)>) -> Step {
        self.set_outcomes(results);
        Step::Stop(Status::Cancelled)
    }

    /// Puts a call in the place of the one that is recovered.
    fn replace(&mut self, other: Option<CallState>) -> Step {
        let Some(&index) = self.failed.front() else { return self.decide() };
        let Some((call, other)) = self.calls.get_mut(index).zip(other) else { return self.recover() };
        call.replace_with(other);
        if call.outcome.is_some() {
            return self.recover();
        }
        // The failures stay counted under the name that failed.
        if call.counted_as == UNKNOWN {
            self.failures.remove(UNKNOWN);
            call.counted_as.clone_from(&call.call.name);
        }
        Step::Execute(vec![index])
    }

    /// Counts what has failed in the answer, and starts the recovery of what has failed too often.
    fn count(&mut self) -> Step {
        let mut tools: BTreeMap<&str, Vec<Fault>> = BTreeMap::new();
        for call in &self.calls {
            let fault = call.fault();
            tools.entry(&call.counted_as).or_default().extend(fault);
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
        let most = if self.limits.retry { self.limits.max_tool_failures } else { 1 };
        let too_often = |call: &CallState| match call.fault() {
            None => false,
            Some(fault) if fault.is_recoverable() => self.failures(&call.counted_as) >= most,
            Some(_) => self.unavailable.get(&call.counted_as) >= Some(&most.min(MOST_UNAVAILABLE)),
        };
        let failed = self.calls.iter().enumerate().filter(|(_, call)| too_often(call));
        self.failed = failed.map(|(index, _)| index).collect();
        self.recovery = Recovery::Retried;
        self.given_up = false;
        self.recover()
    }

    /// The next step of recovery for the first of the failed calls.
    fn recover(&mut self) -> Step {
        while let Some(&index) = self.failed.front() {
            let Some(fault) = self.calls.get(index).and_then(CallState::fault) else {
                self.next_failed();
                continue;
            };
            match self.recovery {
                Recovery::Retried => {
                    self.recovery = Recovery::Regenerated;
                    if self.limits.regenerate && fault.is_the_models() {
                        return Step::Regenerate(index);
                    }
                }
                Recovery::Regenerated => self.recovery = Recovery::Model { model: 0, attempt: 0 },
                Recovery::Model { model, attempt } if attempt >= self.limits.fallback_attempts => {
                    self.recovery = Recovery::Model { model: model + 1, attempt: 0 };
                }
                Recovery::Model { model, attempt } if model < self.limits.fallback_models && fault.is_recoverable() => {
                    self.recovery = Recovery::Model { model, attempt: attempt + 1 };
                    return Step::FallBack { call: index, model, attempt };
                }
                Recovery::Model { .. } => {
                    self.given_up = true;
                    self.next_failed();
                }
            }
        }
        self.decide()
    }

    /// The first of the failed calls is recovered or given up.
    fn next_failed(&mut self) {
        self.failed.pop_front();
        self.recovery = Recovery::Retried;
    }

    /// All calls have an outcome: decides how to go on.
    fn decide(&mut self) -> Step {
        let mut advice = Vec::new();
        let mut looping = false;
        // The model insists on reading what it knows, and reads the same again.
        let mut unchanged = !self.calls.is_empty() && self.calls.iter().all(|call| call.known);
        // The same call several times in one answer was executed once.
        let mut here = HashMap::new();
        for (index, call) in self.calls.iter().enumerate() {
            match &call.outcome {
                Some(CallOutcome::Done(_)) if call.already_done => advice.push(Advice::AlreadyDone { call: index }),
                Some(CallOutcome::Done(result)) => {
                    let key = (call.counted_as.clone(), call.call.arguments.to_text(), result.clone());
                    let times = *here.entry(key).or_insert_with_key(|key| {
                        let times = self.seen.entry(key.clone()).or_insert(0);
                        *times += 1;
                        *times
                    });
                    looping |= times > 2;
                    unchanged &= times > 1;
                    if times > 1 {
                        advice.push(Advice::Repeated { call: index });
                    }
                }
                Some(CallOutcome::Failed { fault: Fault::Tool, .. }) => {
                    unchanged = false;
                    advice.push(Advice::Unavailable { call: index });
                }
                Some(CallOutcome::Failed { fault, .. }) => {
                    unchanged = false;
                    let failures = self.failures(&call.counted_as);
                    advice.push(Advice::Failed { call: index, fault: *fault, failures });
                }
                // Each call was executed or has a fault, and one that is left open ended the run.
                Some(CallOutcome::LeftOpen) | None => {}
            }
        }
        let repeats = self.calls.iter().all(|call| call.already_done);
        self.repeats = if repeats { self.repeats + 1 } else { 0 };
        let reason = match self.given_up {
            true => Some(Reason::ToolFailed),
            false if unchanged || self.repeats >= MOST_REPEATS => Some(Reason::AlreadyDone),
            false => looping.then_some(Reason::Loop),
        };
        match reason {
            _ if self.turns >= self.limits.max_turns => Step::Stop(match reason {
                Some(Reason::ToolFailed) => Status::ToolFailed,
                Some(Reason::Loop) => Status::Loop,
                Some(Reason::AlreadyDone) => Status::Done,
                None => Status::MaxTurns,
            }),
            Some(reason) => {
                self.answering = Some(reason);
                Step::Answer(reason)
            }
            None if advice.is_empty() => Step::Generate,
            None => Step::Retry(advice),
        }
    }
}

#[cfg(test)]
mod tests;
