//! Runs the cases of several turns, with the loop of `run --execute`.

use super::ask::{SessionAnswers, options};
use super::configuration::Configuration;
use super::run::Answer;
use super::sample::{Executed, Turn};
use super::suite::Case;
use super::task::{Environment, Task};
use callwright::agent::Agent;
use callwright::agent::exec::{Approval, Function};
use callwright::agent::turn::Status;
use callwright::error::{Error, ErrorKind, Result};
use callwright::message::{Message, messages_to_json};
use callwright::session::Outcome;
use callwright::tool::{Tool, Tools};
use serde_json::{Map, Value};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The answers that a turn may have: the leaderboard allows 20 with calls.
const ANSWERS: usize = 21;
/// Calls of a tool in a turn. The leaderboard has no limit; this is what fits into the answers.
const CALLS: usize = 400;

/// What the tools act on, and what was executed in a turn.
type Shared = Arc<Mutex<(Box<dyn Environment>, Vec<Executed>)>>;

fn locked(environment: &Shared) -> MutexGuard<'_, (Box<dyn Environment>, Vec<Executed>)> {
    environment.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A tool of the environment.
struct OfEnvironment {
    environment: Shared,
    name: String,
}

impl Function for OfEnvironment {
    fn call(&self, arguments: Map<String, Value>) -> std::result::Result<String, String> {
        let (environment, executed) = &mut *locked(&self.environment);
        let done = environment.call(&self.name, &arguments);
        let result = done.clone().unwrap_or_else(|error| error);
        executed.push(Executed { name: self.name.clone(), arguments, result });
        done
    }
}

impl SessionAnswers {
    /// Runs a case of several turns; `None` if it was interrupted.
    ///
    /// # Errors
    /// The environment cannot be started, or the tools cannot be offered.
    pub(super) fn act(
        &mut self,
        case: &Case,
        task: &Arc<Task>,
        configuration: &Configuration,
        seed: u64,
    ) -> Result<Option<Answer>> {
        let broken = |why: String| Error::new(ErrorKind::Engine, why);
        let environment: Shared = Arc::new(Mutex::new((task.begin().map_err(broken)?, Vec::new())));
        let mut agent = Agent::default();
        agent.limits.max_turns = ANSWERS;
        // In the order of the answer: each may depend on those before.
        agent.executor.jobs = 1;
        let person = Arc::clone(task);
        agent.executor.confirm = Some(Box::new(move |question| match person.approves(question.call, question.tool) {
            true => Approval::Given,
            false => Approval::Denied(None),
        }));
        let mut tools: Vec<Tool> = case.tools.iter().cloned().collect();
        self.forget_tools();
        self.session.set_messages(Vec::new())?;
        *self.session.options_mut() = options(case, configuration).with(|options| {
            options.sampling.seed = seed;
            options.now = self.now;
            options.cancel = Arc::clone(&self.cancel);
            options.find_tools = true;
        });
        let mut answer = Answer::default();
        for (index, part) in task.turns.iter().enumerate() {
            if index == 0 || !part.tools.is_empty() {
                tools.extend(part.tools.iter().cloned());
                for tool in &tools {
                    let name = tool.name.clone();
                    agent.executor.add(&tool.name, OfEnvironment { environment: Arc::clone(&environment), name });
                }
                let offered = tools.iter().cloned().map(|tool| if task.is_declared() { tool } else { unlimited(tool) });
                self.session.set_tools(Tools::new(offered)?);
            }
            locked(&environment).0.begin_turn();
            let from = self.session.messages().len();
            self.session.push(Message::user(part.user.clone()));
            let ended = self.session.run(&mut agent, &mut |_| ());
            let (status, (answers, tokens), failure) = match ended {
                Ok(outcome) => (Some(outcome.status), count(&mut answer, &outcome), outcome.error),
                Err(error) => (None, (0, 0), Some(error)),
            };
            if status == Some(Status::Cancelled) {
                return Ok(None);
            }
            let new = self.session.messages().get(from..).unwrap_or_default();
            answer.turns.push(Turn {
                messages: messages_to_json(new),
                status: status.map_or("error".to_owned(), name),
                answers,
                tokens,
                executed: std::mem::take(&mut locked(&environment).1),
            });
            let place = |what: &str| format!("turn {} of {}: {what}", index + 1, task.turns.len());
            let failed = failure.map(|error| Error::new(error.kind(), place(error.message())));
            let broken = locked(&environment).0.broken().map(|why| broken(place(&why)));
            if let Some(failure) = broken.or(failed) {
                answer.failure = Some(failure);
                break;
            }
            if status == Some(Status::MaxTurns) {
                break;
            }
        }
        if answer.failure.is_none() {
            match locked(&environment).0.verdict(&answer.turns) {
                Ok(verdict) => answer.verdict = Some(verdict),
                Err(why) => answer.failure = Some(broken(why)),
            }
        }
        answer.timing.memory = self.memory();
        self.forget_tools();
        Ok(Some(answer))
    }
}

/// A tool of the leaderboard, whose effects nobody knows: it may be called as often as there are answers.
fn unlimited(mut tool: Tool) -> Tool {
    tool.policy.repeat = true;
    tool.policy.max_calls = Some(CALLS);
    tool
}

fn name(status: Status) -> String {
    serde_json::to_value(status).ok().and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
}

/// Adds what a turn took; returns the number of its answers and of their tokens.
fn count(answer: &mut Answer, outcome: &Outcome) -> (usize, usize) {
    let mut counted = (0, 0);
    for spent in &outcome.models {
        counted.0 += spent.answers;
        counted.1 += spent.usage.completion_tokens;
        answer.spend(&spent.usage);
    }
    counted
}
