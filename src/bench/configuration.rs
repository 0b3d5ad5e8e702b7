//! What is compared: a model with a template, a format and options.

use crate::constraint::Mode;
use crate::engine::sampler::Sampling;
use crate::hash::sha256;
use serde::{Deserialize, Serialize};

/// One way to ask the cases: all that decides the answers, so that an answer can be had again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Configuration {
    /// A hash of all the rest.
    #[serde(default)]
    pub id: String,
    /// The model, as it was asked for.
    pub model: String,
    /// The hash of its file.
    pub model_sha256: String,
    /// The chat template's name.
    pub template: String,
    /// The hash of its source.
    pub template_sha256: String,
    /// The tool-call format's name.
    pub format: String,
    /// The format as the block that declares it: all that is needed to read the answers.
    pub format_declaration: String,
    /// Whether the model was held to the format.
    pub constrain: Mode,
    /// How tokens were chosen; the seed is that of the run.
    pub sampling: Sampling,
    /// Whether departures from the format were repaired.
    pub repair: bool,
    /// The longest answer, in tokens.
    pub max_tokens: usize,
    /// The context's size in tokens, where one was asked for.
    pub context: Option<usize>,
}

/// The dimensions of the matrix, in the order in which labels name them.
pub const DIMENSIONS: [&str; 6] = ["model", "template", "format", "constrain", "temp", "repair"];

impl Configuration {
    /// The same, with its id.
    #[must_use]
    pub fn identified(mut self) -> Configuration {
        self.id = String::new();
        let text = serde_json::to_string(&self).unwrap_or_default();
        self.id = sha256(text)[..12].to_owned();
        self
    }

    /// Its value in each of the [`DIMENSIONS`].
    pub fn values(&self) -> [String; 6] {
        let mode = match self.constrain {
            Mode::Off => "off",
            Mode::Auto => "auto",
            Mode::Strict => "strict",
        };
        let model = self.model.rsplit('/').next().unwrap_or(&self.model);
        [
            model.to_owned(),
            self.template.rsplit('/').next().unwrap_or(&self.template).to_owned(),
            self.format.clone(),
            mode.to_owned(),
            self.sampling.temperature.to_string(),
            if self.repair { "on" } else { "off" }.to_owned(),
        ]
    }

    /// The seed of one answer.
    pub fn seed(&self, case: &str, repeat: usize) -> u64 {
        let text = format!("{}\n{case}\n{}\n{repeat}", self.sampling.seed, self.id);
        let digits = &sha256(text)[..13];
        // 52 bits: JSON's readers in other languages have doubles.
        u64::from_str_radix(digits, 16).unwrap_or(0)
    }

    /// Whether one loaded model with its template and format does for both.
    pub fn shares_session(&self, other: &Configuration) -> bool {
        let key = |one: &Configuration| {
            (one.model_sha256.clone(), one.model.clone(), one.template_sha256.clone(), one.format_declaration.clone())
        };
        key(self) == key(other) && self.context == other.context
    }
}

/// What tells the configurations of a run from each other: their values in the dimensions that vary, or the model's name
/// where none does.
pub fn labels(configurations: &[Configuration]) -> Vec<String> {
    let values: Vec<[String; 6]> = configurations.iter().map(Configuration::values).collect();
    let varies = |dimension: usize| values.iter().any(|row| row[dimension] != values[0][dimension]);
    let varying: Vec<usize> = (0..DIMENSIONS.len()).filter(|dimension| varies(*dimension)).collect();
    let label = |row: &[String; 6]| {
        let part = |dimension: &usize| match DIMENSIONS[*dimension] {
            "model" | "format" => row[*dimension].clone(),
            name => format!("{name} {}", row[*dimension]),
        };
        let parts: Vec<String> = varying.iter().map(part).collect();
        if parts.is_empty() { row[0].clone() } else { parts.join(", ") }
    };
    let labels: Vec<String> = values.iter().map(label).collect();
    // Two files of one name, or two templates called alike.
    let unique = |(label, configuration): (&String, &Configuration)| {
        let twin = labels.iter().filter(|other| *other == label).count() > 1;
        if twin { format!("{label} ({})", configuration.id) } else { label.clone() }
    };
    labels.iter().zip(configurations).map(unique).collect()
}
