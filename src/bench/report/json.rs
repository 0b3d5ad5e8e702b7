//! The figures for programs.
//!
//! `report.json` is one object:
//!
//! - `callwright_report`: 1, the version of this description;
//! - `suite` (`name`, `sha256`, `cases`), `scorer`, `repeat`, `missing` (answers not made yet), and `shard` where the
//!   run is a part such as `2/4`;
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
//!   - `cost`, where models.toml has prices: `total`, `per_answer`, `per_correct`;
//!   - `lora`: the adapters with their scales and hashes, where there are any;
//!   - `call_threshold` and `no_call_below`, where they were given;
//!   - `decision`, where enough answers have the probability of a call: `auc` (`value`, `low`, `high`), the best
//!     `threshold`, and `recall` and `specificity` on cases that the threshold was not chosen on;
//!   - `timing`, where answers were timed: `samples`, `first_token_p50`, `first_token_p95`, `total_p50`, `total_p95`,
//!     `total_p99` in seconds, `prefill_rate` and `decode_rate` in tokens a second. Nothing else depends on the clock.
//!
//! `outcomes.jsonl` has a line for each answer: `case`, `category`, `config`, `repeat`, `outcome`, and `detail`,
//! `attempted`, `text_around`, `other_form` (where it is true), `repairs`, `unknown_tool`, `example_tool`, `schema_valid`,
//! `bfcl` (`valid`, `error_type`), `calls`.

use crate::bench::outcome::OUTCOMES;
use crate::bench::stats::Proportion;
use crate::bench::summary::{ConfigurationSummary, SCORES, Scores, Summary};
use serde_json::{Map, Value, json};

/// report.json
pub(crate) fn report(summary: &Summary<'_>) -> String {
    let plan = &summary.run.plan;
    let outcomes = OUTCOMES.iter().map(|row| json!({"name": row.name, "stage": row.stage, "meaning": row.meaning}));
    let mut report = json!({
        "callwright_report": 1,
        "suite": {"name": plan.suite, "sha256": plan.suite_sha256, "cases": plan.cases},
        "scorer": plan.scorer,
        "repeat": plan.repeat,
        "missing": summary.run.lacking(),
        "outcomes": outcomes.collect::<Vec<_>>(),
        "scores": SCORES.iter().map(|score| json!({"key": score.key, "meaning": score.meaning})).collect::<Vec<_>>(),
        "configurations":
            summary.configurations.iter().map(|one| configuration(one, &summary.categories)).collect::<Vec<_>>(),
    });
    if let Some(shard) = plan.shard {
        report["shard"] = json!(shard);
    }
    format!("{report:#}\n")
}

fn proportion(score: &Proportion) -> Value {
    json!({
        "successes": score.successes, "trials": score.trials, "share": score.share(), "low": score.low, "high": score.high,
    })
}

fn scores(scores: &Scores) -> Value {
    let scores = scores.iter().filter_map(|(definition, score)| Some((definition.key.to_owned(), proportion(&score?))));
    Value::Object(scores.collect())
}

fn configuration(one: &ConfigurationSummary<'_>, categories: &[&str]) -> Value {
    let c = one.configuration;
    let counts = OUTCOMES.iter().map(|row| (row.name.to_owned(), json!(one.outcomes[row.outcome as usize])));
    let repairs = one
        .repairs
        .iter()
        .filter_map(|(kind, count)| Some((serde_json::to_value(kind).ok()?.as_str()?.to_owned(), json!(count))));
    let by_category = categories.iter().zip(&one.by_category).map(|(name, of)| ((*name).to_owned(), scores(of)));
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
        "scores": scores(&one.scores),
        "categories": by_category.collect::<Map<_, _>>(),
        "outcomes": counts.collect::<Map<_, _>>(),
        "repairs": repairs.collect::<Map<_, _>>(),
        "repaired": one.repaired,
        "text_around": one.text_around,
        "other_form": one.other_form,
        "example_tools": one.example_tools,
        "unknown_tools": one.unknown_tools,
        "tokens_per_correct": one.tokens_per_correct,
    });
    if let Some(cost) = &one.cost {
        value["cost"] = json!(cost);
    }
    if let Some(repeats) = &one.repeats {
        value["pass_hat"] = json!(repeats.pass_hat);
        value["unstable"] = proportion(&repeats.unstable);
    }
    if let Some(calibration) = one.calibration() {
        let (recall, specificity) = &calibration.held_out;
        let auc = calibration.auc;
        value["decision"] = json!({
            "auc": {"value": auc.value, "low": auc.low, "high": auc.high},
            "threshold": calibration.best.threshold,
            "recall": proportion(recall), "specificity": proportion(specificity),
        });
    }
    if !c.lora.is_empty() {
        value["lora"] = json!(c.lora);
    }
    if let Some(threshold) = c.call_threshold {
        value["call_threshold"] = json!(threshold);
    }
    if let Some(threshold) = c.no_call_below {
        value["no_call_below"] = json!(threshold);
    }
    if let Some(latency) = &one.latency {
        value["timing"] = json!({
            "samples": latency.samples,
            "first_token_p50": latency.first_token.0, "first_token_p95": latency.first_token.1,
            "total_p50": latency.total.0, "total_p95": latency.total.1, "total_p99": latency.p99,
            "prefill_rate": latency.prefill_rate, "decode_rate": latency.decode_rate,
        });
    }
    value
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
