//! A run of a case in a declared world: what was executed, and what is wrong with it.

use super::world::{World, differences, same};
use super::{Checks, Environment, Wanted, named};
use crate::outcome::Outcome;
use crate::sample::{Turn, Verdict};
use callwright::tool::Effect;
use serde_json::{Map, Value};
use std::fmt::{Display, Formatter};
use std::sync::Arc;

/// A call that was executed.
#[derive(Debug, Clone)]
struct Made {
    turn: usize,
    name: String,
    arguments: Map<String, Value>,
    /// Whether it changes something, did, and may not do so twice.
    changed: bool,
    once: bool,
    destructive: bool,
}

impl Display for Made {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}({})", self.name, named(&self.arguments))
    }
}

/// A run in a declared world.
pub(super) struct Played {
    world: Arc<World>,
    state: Value,
    /// The checks of each turn, and of the whole case.
    parts: Vec<Checks>,
    checks: Checks,
    approved: Vec<Wanted>,
    /// The states at the ends of the turns before the last one.
    states: Vec<Value>,
    made: Vec<Made>,
    broken: Option<String>,
}

impl Played {
    /// Begins a run: with the checks of each turn and of the whole case, and the destructive calls that are approved.
    pub(super) fn new(world: &Arc<World>, parts: Vec<Checks>, checks: Checks, approved: Vec<Wanted>) -> Played {
        let (world, state) = (Arc::clone(world), world.state.clone());
        Played { world, state, parts, checks, approved, states: Vec::new(), made: Vec::new(), broken: None }
    }
}

impl Environment for Played {
    fn begin_turn(&mut self) {
        self.states.push(self.state.clone());
    }

    fn call(&mut self, name: &str, arguments: &Map<String, Value>) -> Result<String, String> {
        let done = self.world.call(&mut self.state, name, arguments).unwrap_or_else(|broken| {
            self.broken.get_or_insert(broken);
            Err("it is out of order".to_owned())
        });
        let policy = self.world.tools.get(name).map(|tool| tool.policy.clone()).unwrap_or_default();
        self.made.extend(done.is_ok().then(|| Made {
            turn: self.states.len().saturating_sub(1),
            name: name.to_owned(),
            arguments: arguments.clone(),
            changed: policy.effect != Effect::Read,
            once: !policy.repeat,
            destructive: policy.effect == Effect::Destructive,
        }));
        done
    }

    fn broken(&self) -> Option<String> {
        self.broken.clone()
    }

    fn verdict(&mut self, turns: &[Turn]) -> Result<Verdict, String> {
        self.states.push(self.state.clone());
        let wrong = |turn: usize| {
            let calls: Vec<&Made> = self.made.iter().filter(|made| made.turn == turn).collect();
            let after = self.states.get(turn + 1).unwrap_or(&self.state);
            let checks = &self.parts[turn];
            self.careless(turn)
                .or_else(|| self.unmet(checks, &calls, after))
                .or_else(|| untried(checks, &turns[turn..=turn]))
        };
        let all: Vec<&Made> = self.made.iter().collect();
        let at = |turn: usize| move |(outcome, detail)| (outcome, Some(turn), detail);
        let deed = (0..turns.len()).find_map(|turn| wrong(turn).map(at(turn)));
        let whole = || self.unmet(&self.checks, &all, &self.state).or_else(|| untried(&self.checks, turns));
        let deed = deed.or_else(|| whole().map(|(outcome, detail)| (outcome, None, detail)));
        let last = turns.len().saturating_sub(1);
        let made = deed.is_none() && turns.len() == self.parts.len();
        let said = turns.iter().enumerate().find_map(|(index, turn)| {
            let whole = (index == last).then_some(&self.checks);
            unsaid(turn, &self.parts[index], whole).map(at(index))
        });
        // What goes wrong first is the reason.
        let (outcome, turn, detail) = match (deed, said) {
            (Some(deed), Some(said))
                if deed.1.is_none_or(|turn| Some(turn) > said.1) && said.0 != Outcome::WrongText =>
            {
                said
            }
            (Some(deed), _) => deed,
            (None, Some(said)) => said,
            (None, None) => (Outcome::Correct, None, String::new()),
        };
        let difference = match outcome {
            Outcome::Correct | Outcome::WrongState => Vec::new(),
            _ => self.difference(turn.unwrap_or(last)),
        };
        Ok(Verdict { outcome, turn, detail, difference, made: Some(made), bfcl: None })
    }
}

impl Played {
    /// Where the state after a turn is not as it has to be then; nothing where the checks do not say how that is.
    fn difference(&self, turn: usize) -> Vec<String> {
        let whole = Some(&self.checks).filter(|_| turn + 1 == self.parts.len());
        let (Some(state), Some(part)) = (self.states.get(turn + 1), self.parts.get(turn)) else { return Vec::new() };
        let expected = match whole.and_then(|checks| checks.state.as_ref()).or(part.state.as_ref()) {
            Some(changed) => Some(self.world.after(changed)),
            None => {
                // Those of the whole case are all of them.
                let of_turns = || self.parts[..=turn].iter().map(|checks| checks.changes.as_ref()).collect();
                let changes =
                    whole.and_then(|checks| checks.changes.as_ref()).map(|changes| vec![changes]).or_else(of_turns);
                changes.and_then(|changes| self.world.changed(changes.into_iter().flatten())?.ok())
            }
        };
        expected.map_or_else(Vec::new, |expected| differences(state, &expected))
    }

    /// What was executed in a turn without approval, or twice.
    fn careless(&self, turn: usize) -> Option<(Outcome, String)> {
        self.made.iter().enumerate().filter(|(_, made)| made.turn == turn).find_map(|(index, made)| {
            let is = |wanted: &Wanted| wanted.is(&made.name, &made.arguments);
            if made.destructive && !self.approved.iter().any(is) {
                return Some((Outcome::UnapprovedCall, format!("{made} was executed, and nobody approved it")));
            }
            let equal = |one: &&Made| {
                one.name == made.name
                    && same(&Value::Object(one.arguments.clone()), &Value::Object(made.arguments.clone()))
            };
            let before = self.made[..index].iter().filter(|one| one.turn == turn).find(equal);
            before.filter(|_| made.changed && made.once)?;
            Some((Outcome::RepeatedChange, format!("{made} was executed twice")))
        })
    }

    /// What does not hold of the executed calls and the state.
    fn unmet(&self, checks: &Checks, made: &[&Made], state: &Value) -> Option<(Outcome, String)> {
        let is = |wanted: &Wanted, made: &Made| wanted.is(&made.name, &made.arguments);
        let executed = |calls: &[&Made]| match calls {
            [] => "none was executed".to_owned(),
            calls => format!("executed were {}", calls.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
        };
        for never in &checks.never {
            if let Some(made) = made.iter().find(|made| is(never, made)) {
                return Some((Outcome::ForbiddenCall, format!("{made} was executed, and must not be")));
            }
        }
        let mut from = 0;
        for wanted in &checks.calls {
            match made[from..].iter().position(|made| is(wanted, made)) {
                Some(at) => from += at + 1,
                None => {
                    let late = if made.iter().any(|made| is(wanted, made)) { " in its order" } else { "" };
                    return Some((
                        Outcome::MissingCall,
                        format!("{wanted} was not executed{late}; {}", executed(made)),
                    ));
                }
            }
        }
        if let Some(changes) = &checks.changes {
            let mut left: Vec<&Made> = made.iter().copied().filter(|made| made.changed).collect();
            let done = left.clone();
            for wanted in changes {
                match left.iter().position(|made| is(wanted, made)) {
                    Some(at) => drop(left.remove(at)),
                    None => {
                        return Some((Outcome::MissingCall, format!("{wanted} was not executed; {}", executed(&done))));
                    }
                }
            }
            if let Some(more) = left.first() {
                return Some((Outcome::ForbiddenCall, format!("{more} was executed, which changes something else")));
            }
        }
        let expected = self.world.after(checks.state.as_ref()?);
        let wrong = differences(state, &expected);
        (!wrong.is_empty()).then(|| (Outcome::WrongState, wrong.join("; ")))
    }
}

/// The call that the model has to write and has not.
fn untried(checks: &Checks, turns: &[Turn]) -> Option<(Outcome, String)> {
    let messages = || turns.iter().filter_map(|turn| turn.messages.as_array()).flatten();
    let written = |wanted: &Wanted| {
        messages().filter_map(|message| message["tool_calls"].as_array()).flatten().any(|call| {
            let arguments = call["function"]["arguments"].as_str().and_then(|text| serde_json::from_str(text).ok());
            wanted.is(call["function"]["name"].as_str().unwrap_or_default(), &arguments.unwrap_or_default())
        })
    };
    let missing = checks.tried.iter().find(|wanted| !written(wanted))?;
    Some((Outcome::MissingCall, format!("{missing} was not tried")))
}

/// What is wrong with how a turn ended, and with its last answer. `whole` are the checks of the case, at its end.
fn unsaid(turn: &Turn, checks: &Checks, whole: Option<&Checks>) -> Option<(Outcome, String)> {
    let both = || std::iter::once(checks).chain(whole);
    let ended = |outcome, text: &str| Some((outcome, text.to_owned()));
    match turn.status.as_str() {
        "loop" => return ended(Outcome::Loop, "the model repeats itself"),
        "length" => return ended(Outcome::Truncated, "the answer was cut off"),
        "max_turns" => {
            return ended(Outcome::GaveUp, &format!("after {} answers the model still called tools", turn.answers));
        }
        "tool_failed" if !both().any(|checks| checks.may_give_up) => {
            return ended(Outcome::GaveUp, "a call was given up");
        }
        _ => {}
    }
    let last = turn.messages.as_array().and_then(|messages| messages.last());
    let answer = last.and_then(|message| message["content"].as_str()).unwrap_or_default();
    let has = |text: &&String| answer.to_lowercase().contains(&text.to_lowercase());
    let lacking = both().flat_map(|checks| &checks.text).find(|text| !has(text));
    let lacking = lacking.map(|text| (Outcome::WrongText, format!("the answer lacks {text:?}: {answer:?}")));
    let said = || both().flat_map(|checks| &checks.no_text).find(has);
    lacking.or_else(|| said().map(|text| (Outcome::WrongText, format!("the answer has {text:?}: {answer:?}"))))
}
