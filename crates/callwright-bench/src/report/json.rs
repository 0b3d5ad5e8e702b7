//! The figures for programs.
//!
//! `report.json` is one object:
//!
//! - `callwright_report`: 1, the version of this description;
//! - `suite` (`name`, `sha256`, `cases`), `scorer`, `repeat`, `missing` (answers not made yet), and `shard` where the
//!   run is a part such as `2/4`;
//! - `verdict`: what the figures allow to say, in sentences;
//! - `outcomes`: the table, each with `name`, `stage`, `meaning`, in order; `scores`: each with `key`, `meaning`;
//! - `configurations`: a list of objects with
//!   - `id`, `label`, and the fields `model`, `model_sha256`, `template`, `template_sha256`, `format`, `constrain`,
//!     `tool_choice`, `repair`, `max_tokens`, `sampling`;
//!   - `samples`: how many answers;
//!   - `scores`: by key, `successes`, `trials`, `share`, and the 95% interval `low` and `high`; a score without
//!     trials is left out;
//!   - `categories`: by name, the same;
//!   - `outcomes`, `repairs`, `unknown_tools`: counts by name; `repaired`, `text_around`, `other_form`,
//!     `example_tools`: counts of answers;
//!   - `pass_hat`: pass^1, pass^2, … and `unstable`, where there are several answers to each case;
//!   - `tokens_per_correct`;
//!   - `advice`: sentences, where a figure suggests what may help;
//!   - `file_size` in bytes and `quantization`, where the model's file is known;
//!   - `cost`, where models.toml has prices: `total`, `per_answer`, `per_correct`;
//!   - `lora`: the adapters with their scales and hashes, where there are any;
//!   - `call_threshold`, `no_call_below` and `other_forms`, where they were given;
//!   - `decision`, where enough answers have the probability of a call: `auc` (`value`, `low`, `high`), the best
//!     `threshold`, and `recall` and `specificity` on cases that the threshold was not chosen on;
//!   - `timing`, where answers were timed: `samples`, `first_token_p50`, `first_token_p95`, `total_p50`, `total_p95`,
//!     `total_p99` in seconds, `prefill_rate` and `decode_rate` in tokens a second, and `memory`: the most bytes that the
//!     process had in memory after an answer, where that is known. Nothing else depends on the clock.
//!
//! `outcomes.jsonl` has a line for each answer: `case`, `category`, `config`, `repeat`, `outcome`, and `detail`,
//! `attempted`, `text_around`, `other_form` (where it is true), `repairs`, `unknown_tool`, `example_tool`, `delivered`,
//! `bfcl` (`valid`, `error_type`), `calls`.

use crate::directory::ModelFile;
use crate::outcome::OUTCOMES;
use crate::summary::{ConfigurationSummary, SCORES, Summary};
use crate::verdict::{advice, verdict};
use callwright::parse::OtherForms;
use serde_json::{Map, Value, json};

/// report.json
pub fn report(summary: &Summary<'_>) -> String {
    format!("{:#}\n", figures(summary))
}

/// The figures, from which the other reports are made, too.
pub(super) fn figures(summary: &Summary<'_>) -> Value {
    let plan = &summary.run.plan;
    let outcomes = OUTCOMES.iter().map(|row| json!({"name": row.name, "stage": row.stage, "meaning": row.meaning}));
    let mut report = json!({
        "callwright_report": 1,
        "suite": {"name": plan.suite, "sha256": plan.suite_sha256, "cases": plan.cases},
        "scorer": plan.scorer,
        "repeat": plan.repeat,
        "missing": summary.run.lacking(),
        "verdict": verdict(summary),
        "outcomes": outcomes.collect::<Vec<_>>(),
        "scores": SCORES.iter().map(|score| json!({"key": score.key, "meaning": score.meaning})).collect::<Vec<_>>(),
        "configurations":
            summary.configurations.iter().map(|one| {
                configuration(one, &summary.categories, plan.files.get(&one.configuration.model_sha256))
            }).collect::<Vec<_>>(),
    });
    if let Some(shard) = plan.shard {
        report["shard"] = json!(shard);
    }
    report
}

fn configuration(one: &ConfigurationSummary<'_>, categories: &[&str], file: Option<&ModelFile>) -> Value {
    let c = one.configuration;
    // Through text, which has only the digits of a single-precision number.
    let sampling = serde_json::to_string(&c.sampling).and_then(|text| serde_json::from_str::<Value>(&text)).ok();
    let mut value = json!({
        "id": c.id, "label": one.label,
        "model": c.model, "model_sha256": c.model_sha256,
        "template": c.template, "template_sha256": c.template_sha256,
        "format": c.format, "constrain": c.constrain, "tool_choice": c.tool_choice, "repair": c.repair,
        "max_tokens": c.max_tokens,
        "sampling": sampling,
        "samples": one.samples.len(),
        "scores": one.scores,
        "categories": object(categories.iter().zip(&one.by_category).map(|(name, scores)| (*name, json!(scores)))),
        "outcomes": object(OUTCOMES.iter().map(|row| (row.name, json!(one.outcomes[row.outcome as usize])))),
        "repairs": one.repairs,
        "repaired": one.repaired,
        "text_around": one.text_around,
        "other_form": one.other_form,
        "example_tools": one.example_tools,
        "unknown_tools": one.unknown_tools,
        "tokens_per_correct": one.tokens_per_correct,
        "advice": advice(one).iter().map(|(figure, text)| format!("{figure}: {text}")).collect::<Vec<_>>(),
    });
    let decision = one.calibration().map(|calibration| {
        let (recall, specificity) = &calibration.held_out;
        let (auc, threshold) = (calibration.auc, calibration.best.threshold);
        json!({"auc": auc, "threshold": threshold, "recall": recall, "specificity": specificity})
    });
    let repeats = one.repeats.as_ref();
    let where_known = [
        ("cost", json!(one.cost)),
        ("pass_hat", json!(repeats.map(|repeats| &repeats.pass_hat))),
        ("unstable", json!(repeats.map(|repeats| repeats.unstable))),
        ("decision", json!(decision)),
        ("lora", json!(Some(&c.lora).filter(|lora| !lora.is_empty()))),
        ("call_threshold", json!(c.call_threshold)),
        ("no_call_below", json!(c.no_call_below)),
        ("other_forms", json!(Some(c.other_forms).filter(|forms| *forms != OtherForms::Read))),
        ("file_size", json!(file.map(|file| file.bytes))),
        ("quantization", json!(file.and_then(|file| file.quantization.as_deref()))),
        ("timing", json!(one.latency)),
    ];
    for (key, figure) in where_known.into_iter().filter(|(_, figure)| !figure.is_null()) {
        value[key] = figure;
    }
    value
}

fn object<'n>(members: impl Iterator<Item = (&'n str, Value)>) -> Value {
    members.map(|(name, value)| (name.to_owned(), value)).collect::<Map<_, _>>().into()
}

/// outcomes.jsonl
pub(crate) fn outcomes(summary: &Summary<'_>) -> String {
    let mut text = String::new();
    for one in summary.configurations.iter().flat_map(|one| &one.samples) {
        let mut line = Map::new();
        line.insert("case".into(), json!(one.case.id));
        line.insert("category".into(), json!(one.case.category));
        line.insert("config".into(), json!(one.sample.config));
        line.insert("repeat".into(), json!(one.sample.repeat));
        if let Ok(Value::Object(mut scored)) = serde_json::to_value(&one.scored) {
            if let Some(verdict) = one.scored.bfcl {
                scored.insert("bfcl".into(), json!({"valid": verdict.is_none(), "error_type": verdict}));
            }
            line.extend(scored);
        }
        text += &(Value::Object(line).to_string() + "\n");
    }
    text
}
