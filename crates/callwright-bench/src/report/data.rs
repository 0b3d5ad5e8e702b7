//! The data of the list of answers in report.html.

use crate::outcome::OUTCOMES;
use crate::run::read_format;
use crate::sample::Turn;
use crate::suite::{Case, Expected};
use crate::summary::{ScoredSample, Summary};
use callwright::message::Role;
use serde_json::{Value, json};
use std::collections::HashMap;

/// The most bytes of all raw texts, and of all prompts. samples.jsonl and prompts.jsonl have the full texts.
const RAW_BUDGET: usize = 4_500_000;
const PROMPT_BUDGET: usize = 3_500_000;

/// Repeated strings are indices, which the script resolves.
pub(super) fn data(summary: &Summary<'_>) -> Value {
    let run = summary.run;
    let places: HashMap<&str, usize> =
        run.suite.cases.iter().enumerate().map(|(index, case)| (case.id.as_str(), index)).collect();
    let mut prompts: Vec<&str> = Vec::new();
    let mut prompt_places: HashMap<&str, usize> = HashMap::new();
    let mut samples = Vec::new();
    let count = run.samples.len().max(1);
    let raw_limit = (RAW_BUDGET / count).clamp(200, 20_000);
    let configurations: Vec<Value> = summary
        .configurations
        .iter()
        .map(|one| {
            let format = read_format(one.configuration).ok();
            let markers: Vec<String> = format.iter().flat_map(|format| format.reserved()).map(str::to_owned).collect();
            json!({"label": one.label, "markers": markers})
        })
        .collect();
    for (configuration, one) in summary.configurations.iter().enumerate() {
        for sample in &one.samples {
            let hash = sample.sample.prompt_sha256.as_str();
            let prompt = run.prompts.get(hash).map(|text| {
                *prompt_places.entry(hash).or_insert_with(|| {
                    prompts.push(text);
                    prompts.len() - 1
                })
            });
            let case = places.get(sample.case.id.as_str());
            samples.push(row(sample, case, configuration, prompt, raw_limit));
        }
    }
    let prompt_limit = (PROMPT_BUDGET / prompts.len().max(1)).clamp(300, 50_000);
    json!({
        "outcomes": OUTCOMES.iter().map(|row| row.name).collect::<Vec<_>>(),
        "configurations": configurations,
        "cases": run.suite.cases.iter().map(|case| case_of(case, prompt_limit)).collect::<Vec<_>>(),
        "prompts": prompts.iter().map(|text| cut(text, prompt_limit)).collect::<Vec<_>>(),
        "samples": samples,
    })
}

fn row(
    one: &ScoredSample<'_>,
    case: Option<&usize>,
    configuration: usize,
    prompt: Option<usize>,
    limit: usize,
) -> Value {
    let (sample, scored) = (one.sample, &one.scored);
    // The script counts UTF-16 units.
    let utf16 = |byte: usize| sample.raw.get(..byte).map_or(0, |before| before.encode_utf16().count());
    let calls: Vec<Value> = scored
        .calls
        .iter()
        .take(8)
        .map(|call| {
            let problems: Vec<String> =
                call.problems.iter().take(3).map(|problem| cut(&problem.to_string(), 200)).collect();
            json!([
                utf16(call.range.0),
                utf16(call.range.1),
                call.name,
                cut(&call.arguments, limit / 2),
                call.valid,
                problems
            ])
        })
        .collect();
    let repairs: Vec<&str> = scored.repairs.iter().map(|kind| kind.describe()).collect();
    json!([
        case,
        configuration,
        sample.repeat,
        scored.outcome as usize,
        cut(&scored.detail, 300),
        cut(&sample.raw, limit),
        prompt,
        calls,
        repairs,
        sample.written(),
        turns(one, limit),
        sample.verdict.as_ref().map(|verdict| verdict.difference.join("\n")),
    ])
}

/// The turns as texts, each with whether the answers left the right path there.
fn turns(one: &ScoredSample<'_>, limit: usize) -> Vec<Value> {
    let left = one.sample.verdict.as_ref().and_then(|verdict| verdict.turn);
    let turns = one.sample.turns.iter().enumerate();
    turns.map(|(index, turn)| json!([turn.status, cut(&said(turn, limit / 4), limit), left == Some(index)])).collect()
}

/// The messages of a turn, each with at most `limit` bytes of text.
pub(crate) fn said(turn: &Turn, limit: usize) -> String {
    let message = |message: &Value| {
        let said = message["content"].as_str().unwrap_or_default();
        let calls = message["tool_calls"].as_array().into_iter().flatten().map(|call| {
            let function = &call["function"];
            let part = |key: &str| function[key].as_str().map_or_else(|| function[key].to_string(), str::to_owned);
            format!("→ {} {}", part("name"), part("arguments"))
        });
        let lead = match message["role"].as_str() {
            Some("tool") => "← ",
            Some("user") => "User: ",
            _ => "",
        };
        let said = (!said.is_empty()).then(|| format!("{lead}{}", cut(said, limit)));
        said.into_iter().chain(calls).collect::<Vec<_>>().join("\n")
    };
    turn.messages.as_array().into_iter().flatten().map(message).collect::<Vec<_>>().join("\n")
}

fn case_of(case: &Case, limit: usize) -> Value {
    let expected = match &case.expected {
        _ if case.task.is_some() => case.task.as_ref().map_or_else(String::new, |task| task.expected()),
        Expected::NoCall => "no call".to_owned(),
        Expected::AnyCall => "any call".to_owned(),
        Expected::Calls(calls) => {
            let lines: Vec<String> = calls
                .iter()
                .map(|call| {
                    let arguments: Vec<String> = call
                        .arguments
                        .iter()
                        .map(|argument| {
                            let values: Vec<String> = argument.accepted.iter().map(ToString::to_string).collect();
                            let mark = if argument.optional { "?" } else { "" };
                            format!("{}{mark} = {}", argument.name, values.join(" or "))
                        })
                        .collect();
                    format!("{}({})", call.name, arguments.join(", "))
                })
                .collect();
            lines.join("\n")
        }
    };
    let asked =
        case.messages.iter().rfind(|message| message.role == Role::User).map(|message| message.content.as_str());
    json!([case.id, case.category, cut(&expected, limit.min(2000)), cut(asked.unwrap_or_default(), limit.min(500))])
}

/// At most `limit` bytes: the beginning and the end of a longer text.
fn cut(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let start = (0..=limit * 2 / 3).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let end = (text.len() - limit / 3..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    format!("{} […{} bytes…] {}", &text[..start], end - start, &text[end..])
}
