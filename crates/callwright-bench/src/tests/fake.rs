//! Answers without a model: mostly right, and wrong in many ways.

use crate::configuration::Configuration;
use crate::run::{Answer, Answerer};
use crate::sample::{Finish, Sample, Timing};
use crate::suite::Case;
use callwright::Result;
use callwright::constraint::Mode;
use callwright::engine::sampler::Sampling;
use callwright::format::Format;
use callwright::parse::OtherForms;
use callwright::session::ToolChoice;
use std::time::Duration;

/// A sample whose tokens are its bytes.
pub(crate) fn sample(case: &str, raw: &str) -> Sample {
    Sample {
        case: case.to_owned(),
        config: "fake".to_owned(),
        repeat: 0,
        seed: 0,
        prompt_sha256: String::new(),
        prompt_tail: String::new(),
        raw: raw.to_owned(),
        closed_from: None,
        tokens: raw.bytes().map(i32::from).collect(),
        events: Vec::new(),
        finish: Finish::Stop,
        failure: None,
        prompt_tokens: 10,
        cached_tokens: 0,
        forced_tokens: 0,
        rewritten_tokens: 0,
        cost: 0.0,
        call_probability: None,
        decided: None,
        turns: Vec::new(),
        verdict: None,
        timing: Timing::default(),
    }
}

/// A configuration of no model.
pub(crate) fn configuration(model: &str, temperature: f32) -> Configuration {
    Configuration {
        id: String::new(),
        model: model.to_owned(),
        model_sha256: "0".repeat(64),
        template: "none".to_owned(),
        template_sha256: "1".repeat(64),
        format: "delimited".to_owned(),
        format_declaration: Format::delimited().to_toml(),
        constrain: Mode::Off,
        tool_choice: ToolChoice::Auto,
        select_tools: None,
        sampling: Sampling { temperature, ..Sampling::default() },
        repair: true,
        max_tokens: 512,
        lora: Vec::new(),
        context: None,
        call_threshold: None,
        no_call_below: None,
        other_forms: OtherForms::Read,
    }
    .identified()
}

/// Answers from the case's expectation; the seed decides what goes wrong.
pub(crate) struct Fake {
    pub delay: Duration,
    /// Of eleven answers about this many are right.
    pub right: u64,
    pub seconds: f64,
}

/// The calls that are expected, as the format writes them.
pub(crate) fn expected(case: &Case) -> String {
    let calls = case.expected_calls().unwrap_or_default().iter().map(|call| {
        let arguments: Vec<String> = call
            .arguments
            .iter()
            .map(|argument| format!("{}: {}", serde_json::json!(argument.name), argument.accepted[0]))
            .collect();
        let arguments = arguments.join(", ");
        format!(
            "### TOOL_CALL_START ###\n{{\"name\": \"{}\", \"arguments\": {{{arguments}}}}}\n### TOOL_CALL_END ###",
            call.name
        )
    });
    let text = calls.collect::<Vec<_>>().join("\n");
    if text.is_empty() { "There is nothing to call.".to_owned() } else { text }
}

impl Answerer for Fake {
    fn answer(&mut self, case: &Case, _: &Configuration, seed: u64) -> Result<Option<Answer>> {
        std::thread::sleep(self.delay);
        let right = expected(case);
        let pick = seed % 11;
        let raw = match pick {
            _ if pick < self.right => right,
            8 => "I cannot do that.".to_owned(),
            9 => right.replacen("\"arguments\"", "\"parameters\"", 1).replacen("}}", "},}", 1),
            10 => "well, well, well, well, well, ".repeat(3),
            _ => match right.split_once("\"arguments\"") {
                Some((name, arguments)) => {
                    format!("{name}\"arguments\"{}", arguments.replacen("\": \"", "\": \"not ", 1))
                }
                None => right,
            },
        };
        if seed % 97 == 5 {
            return Err(callwright::Error::new(
                callwright::ErrorKind::ContextOverflow,
                "the prompt has too many tokens",
            ));
        }
        let tokens: Vec<i32> = raw.bytes().map(i32::from).collect();
        let prompt = format!("{} <tools> & \"{}\"\n", case.id, case.messages[0].content);
        Ok(Some(Answer {
            prompt_tokens: prompt.len(),
            prompt,
            tokens,
            raw,
            timing: Timing {
                first_token: self.seconds,
                generation: self.seconds * (1.0 + (seed % 1000) as f64 / 100.0),
                warm_up: false,
                memory: 0,
            },
            ..Answer::default()
        }))
    }
}
