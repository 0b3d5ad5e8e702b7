//! Every path through a run's decisions, and random ones: each ends within its limits.

use crate::agent::call::{CallOutcome, CallState};
use crate::agent::turn::{Advice, FallbackResult, Fault, FinishReason, Limits, Reason, Status, Step, Turn};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
struct Cases {
    case: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    #[serde(default)]
    limits: CaseLimits,
    play: String,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct CaseLimits {
    max_turns: Option<usize>,
    max_tool_failures: Option<usize>,
    retry: Option<bool>,
    regenerate: Option<bool>,
    fallback_models: Option<usize>,
    fallback_attempts: Option<usize>,
}

impl CaseLimits {
    fn limits(&self) -> Limits {
        let default = Limits::default();
        Limits {
            max_turns: self.max_turns.unwrap_or(default.max_turns),
            max_tool_failures: self.max_tool_failures.unwrap_or(default.max_tool_failures),
            retry: self.retry.unwrap_or(default.retry),
            regenerate: self.regenerate.unwrap_or(default.regenerate),
            fallback_models: self.fallback_models.unwrap_or(default.fallback_models),
            fallback_attempts: self.fallback_attempts.unwrap_or(default.fallback_attempts),
            ..default
        }
    }
}

fn fault(name: &str) -> Fault {
    match name {
        "format" => Fault::Format,
        "unknown_tool" => Fault::UnknownTool,
        "schema" => Fault::Schema,
        "execution" => Fault::Execution,
        "tool" => Fault::Tool,
        other => panic!("no fault is called {other}"),
    }
}

/// `tool(arguments)` or `tool(arguments)!fault`; with a `*`, its result is known.
fn call(text: &str) -> CallState {
    if let Some(known) = text.strip_suffix('*') {
        let mut call = call(known);
        call.known = true;
        return call;
    }
    let (call, wrong) = text.split_once('!').map_or((text, None), |(call, wrong)| (call, Some(wrong)));
    let (tool, arguments) = call.split_once('(').unwrap();
    proposed(tool, arguments.trim_end_matches(')'), wrong.map(fault))
}

fn proposed(tool: &str, arguments: &str, fault: Option<Fault>) -> CallState {
    let call = CallState::named(tool, arguments);
    match fault {
        Some(fault) => call.failed(fault, "wrong"),
        None => call,
    }
}

fn ran(text: &str) -> (usize, CallOutcome) {
    match text.split_once('=') {
        Some((index, result)) => (index.parse().unwrap(), CallOutcome::Done(result.to_owned())),
        None => {
            let (index, wrong) = text.split_once('!').unwrap();
            (index.parse().unwrap(), CallOutcome::failed(fault(wrong), "failed"))
        }
    }
}

fn given(turn: &mut Turn, text: &str) -> Step {
    let mut words: Vec<&str> = text.split(' ').filter(|word| !word.is_empty()).collect();
    match words.remove(0) {
        "answer" => {
            let mut finish = if words.is_empty() { FinishReason::Stop } else { FinishReason::ToolCalls };
            for (word, reason) in [("length", FinishReason::Length), ("cancelled", FinishReason::Cancelled)] {
                if words.last() == Some(&word) {
                    words.pop();
                    finish = reason;
                }
            }
            turn.generated(finish, words.into_iter().map(call).collect())
        }
        "ran" => turn.executed(words.into_iter().map(ran).collect()),
        "regenerated" => {
            turn.regenerated(Some(words.join(" ")).filter(|text| text != "nothing").map(|text| call(&text)))
        }
        "fell" => turn.fell_back(match words.join(" ").as_str() {
            "nothing" => FallbackResult::NoCall,
            "unavailable" => FallbackResult::Unavailable,
            "exhausted" => FallbackResult::Exhausted,
            text => FallbackResult::Called(call(text).into()),
        }),
        other => panic!("nothing is called {other}"),
    }
}

fn shown(step: &Step) -> String {
    match step {
        Step::Generate => "generate".to_owned(),
        Step::Retry(advice) => advice.iter().fold("retry".to_owned(), |text, advice| match advice {
            Advice::Failed { call, failures, .. } => format!("{text} {call}:{failures}"),
            Advice::Unavailable { call } => format!("{text} u{call}"),
            Advice::Repeated { call } => format!("{text} r{call}"),
            Advice::AlreadyDone { call } => format!("{text} d{call}"),
        }),
        Step::Restate => "restate".to_owned(),
        Step::Execute(calls) => calls.iter().fold("execute".to_owned(), |text, call| format!("{text} {call}")),
        Step::Regenerate(call) => format!("regenerate {call}"),
        Step::FallBack { call, model, attempt } => format!("fall back {call} model {model} attempt {attempt}"),
        Step::Answer(reason) => format!("answer {}", name(reason)),
        Step::Stop(status) => format!("stop {}", name(status)),
    }
}

/// How a value is written in JSON.
fn name(value: &impl Serialize) -> String {
    serde_json::to_value(value).unwrap().as_str().unwrap().to_owned()
}

#[test]
fn every_path() {
    let cases: Cases = toml::from_str(include_str!("../../../../../tests/cases/turns/turns.toml")).unwrap();
    assert!(cases.case.len() > 30);
    for case in cases.case {
        let mut turn = Turn::new(case.limits.limits());
        for line in case.play.lines().filter(|line| !line.trim().is_empty()) {
            let (result, wanted) = line.split_once(" -> ").unwrap();
            assert_eq!(shown(&given(&mut turn, result)), wanted, "{}: after {result}", case.name);
        }
    }
}

/// A possible result of a step, chosen by these numbers.
fn result_of(turn: &mut Turn, step: &Step, choice: u32, executed: &mut usize) -> Step {
    let faults = [None, Some(Fault::Format), Some(Fault::UnknownTool), Some(Fault::Schema)];
    let one = |bits: u32| {
        let arguments = (bits >> 1 & 1).to_string();
        let mut call = proposed(["a", "b"][bits as usize & 1], &arguments, faults[(bits >> 2 & 3) as usize]);
        call.known = bits & 8 != 0;
        call
    };
    let result = |bits: u32| match bits & 3 {
        0 | 1 => CallOutcome::Done((bits & 1).to_string()),
        2 => CallOutcome::failed(Fault::Execution, "failed"),
        _ => CallOutcome::failed(Fault::Tool, "failed"),
    };
    match step {
        Step::Generate | Step::Retry(_) | Step::Restate | Step::Answer(_) => {
            let calls: Vec<CallState> = (0..choice & 3).map(|index| one(choice >> (2 + 4 * index))).collect();
            let finish = if calls.is_empty() { FinishReason::Stop } else { FinishReason::ToolCalls };
            turn.generated(finish, calls)
        }
        Step::Execute(calls) => {
            *executed += calls.len();
            turn.executed(calls.iter().map(|&call| (call, result(choice >> (2 * call)))).collect())
        }
        Step::Regenerate(_) => turn.regenerated((choice & 1 == 0).then(|| one(choice >> 1))),
        Step::FallBack { .. } => turn.fell_back(match choice & 7 {
            0 => FallbackResult::NoCall,
            1 => FallbackResult::Unavailable,
            2 => FallbackResult::Exhausted,
            _ => FallbackResult::Called(one(choice >> 3).into()),
        }),
        Step::Stop(_) => unreachable!("the run is over"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn whatever_comes_it_ends(
        choices in proptest::collection::vec(any::<u32>(), 512),
        (turns, failures, models, attempts) in (1usize..8, 1usize..5, 0usize..4, 1usize..4),
        (retry, regenerate) in any::<(bool, bool)>(),
    ) {
        let limits = Limits {
            max_turns: turns, max_tool_failures: failures, retry, regenerate,
            fallback_models: models, fallback_attempts: attempts, ..Limits::default()
        };
        let mut turn = Turn::new(limits);
        let (mut step, mut answers, mut executed, mut recoveries) = (Step::Generate, 0, 0, 0);
        for choice in choices {
            answers += usize::from(matches!(step, Step::Generate | Step::Retry(_) | Step::Restate));
            recoveries += usize::from(matches!(step, Step::Regenerate(_) | Step::FallBack { .. }));
            step = result_of(&mut turn, &step, choice, &mut executed);
            if matches!(step, Step::Stop(_)) {
                break;
            }
        }
        prop_assert!(matches!(step, Step::Stop(_)), "{step:?} after 512 steps");
        prop_assert!(answers <= turns);
        prop_assert!(recoveries <= answers * 3 * (1 + models * attempts), "{recoveries}");
        prop_assert!(executed <= answers * 3 * (2 + models * attempts), "{executed}");
    }
}

#[test]
fn statuses_have_words() {
    let statuses =
        [Status::Done, Status::Length, Status::ToolFailed, Status::Loop, Status::MaxTurns, Status::Cancelled];
    let words: Vec<String> = statuses.iter().map(ToString::to_string).collect();
    assert!(words.iter().all(|text| !text.is_empty()));
    assert_eq!(serde_json::to_value(Reason::ToolFailed).unwrap(), "tool_failed");
}
