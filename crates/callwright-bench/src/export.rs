//! Training data out of a run: what a model wrote where it failed, beside what is right.

use super::certify::right_calls;
use super::outcome::Outcome;
use super::summary::{ScoredSample, Summary};
use callwright::hash::sha256;
use callwright::message::{Message, messages_to_json};
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};

/// One of so many clusters of cases is kept for measuring.
const TEST: u8 = 5;

/// Lines of training data, and the cases that none is of.
#[derive(Debug, Default)]
pub struct Export {
    /// Preference pairs: a prompt with a right answer and the model's own, which is not right.
    pub pairs: Vec<Value>,
    /// Conversations that end in the right answer; each once.
    pub chat: Vec<Value>,
    /// The lines of the cases that are kept for measuring.
    pub test: Vec<String>,
    /// Failed answers whose right one is not known.
    pub unknown: usize,
}

/// Returns whether a case is kept for measuring: always the same ones, and all of a cluster.
fn is_kept(cluster: &str) -> bool {
    u8::from_str_radix(&sha256(format!("test\n{cluster}"))[..2], 16).unwrap_or(0) % TEST == 0
}

/// Makes training data of the failed answers of a run, and of those that had to be repaired.
///
/// The right answer is that of another configuration or repeat where one is right, or else what the suite expects.
/// Answers that broke, and cases of several turns, say nothing about one answer.
pub fn export(summary: &Summary<'_>) -> Export {
    let mut export = Export::default();
    let of_test = summary.run.suite.cases.iter().filter(|case| is_kept(&case.cluster));
    export.test = of_test.map(|case| case.line.clone()).collect();
    let all = || summary.configurations.iter().flat_map(|one| &one.samples).filter(|one| one.case.task.is_none());
    let mut right: HashMap<&str, Value> = HashMap::new();
    for one in all().filter(|one| one.scored.outcome == Outcome::Correct) {
        right.entry(&one.case.id).or_insert_with(|| read(one));
    }
    let mut shown = HashSet::new();
    for one in all().filter(|one| one.sample.failure.is_none() && !is_kept(&one.case.cluster)) {
        if one.scored.outcome == Outcome::Correct && one.scored.repairs.is_empty() {
            continue;
        }
        let expected = || {
            let calls = right_calls(one.case);
            (!calls.is_empty()).then(|| last(&[Message { tool_calls: calls, ..Message::assistant("") }]))
        };
        let Some(chosen) = right.get(one.case.id.as_str()).cloned().or_else(expected) else {
            export.unknown += 1;
            continue;
        };
        // What a call looked like before it was repaired is its text.
        let rejected = if one.scored.repairs.is_empty() { read(one) } else { written(one) };
        let (prompt, tools) = (messages_to_json(&one.case.messages), one.case.tools.to_json());
        if shown.insert(&one.case.id) {
            let mut messages = prompt.clone();
            messages.as_array_mut().into_iter().for_each(|messages| messages.push(chosen.clone()));
            export.chat.push(json!({"case": one.case.id, "messages": messages, "tools": tools}));
        }
        export.pairs.push(json!({
            "case": one.case.id, "outcome": one.scored.outcome, "prompt": prompt, "tools": tools,
            "chosen": [chosen], "rejected": [rejected],
        }));
    }
    export
}

fn last(messages: &[Message]) -> Value {
    messages_to_json(messages).as_array_mut().and_then(Vec::pop).unwrap_or_default()
}

/// An answer as it was read; its text where no call could be.
fn read(one: &ScoredSample<'_>) -> Value {
    if one.scored.calls.is_empty() {
        return written(one);
    }
    let calls = one.scored.calls.iter().enumerate().map(|(index, call)| {
        json!({"id": format!("call{index:05}"), "type": "function", "function": {"name": call.name, "arguments": call.arguments}})
    });
    json!({"role": "assistant", "content": one.scored.content, "tool_calls": calls.collect::<Vec<_>>()})
}

fn written(one: &ScoredSample<'_>) -> Value {
    json!({"role": "assistant", "content": one.sample.raw})
}
