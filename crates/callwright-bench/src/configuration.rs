//! A configuration: a model with a template, a format and options.

use callwright::constraint::Mode;
use callwright::engine::sampler::Sampling;
use callwright::hash::sha256;
use callwright::parse::OtherForms;
use callwright::session::{Session, ToolChoice};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// One way to ask the cases: everything that determines the answers, so that they can be reproduced.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Configuration {
    /// A hash of the other fields.
    #[serde(default)]
    pub id: String,
    /// The model, as the user named it.
    pub model: String,
    /// The hash of its file.
    pub model_sha256: String,
    /// The chat template's name.
    pub template: String,
    /// The hash of its source.
    pub template_sha256: String,
    /// The tool-call format's name.
    pub format: String,
    /// The block that declares the format: enough to read the answers.
    pub format_declaration: String,
    /// Whether calls were constrained to the format.
    pub constrain: Mode,
    /// Whether an answer had to be a call. A case without tools is asked as with [`ToolChoice::Auto`].
    #[serde(default, skip_serializing_if = "is_auto")]
    pub tool_choice: ToolChoice,
    /// How many of the tools were in the prompt, if not all: see [`Options::select_tools`](callwright::session::Options::select_tools).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub select_tools: Option<usize>,
    /// The sampling options; the seed is the run's.
    pub sampling: Sampling,
    /// Whether departures from the format were repaired.
    pub repair: bool,
    /// The most tokens of an answer.
    pub max_tokens: usize,
    /// LoRA adapters: the file, the scale, and the hash of the file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lora: Vec<String>,
    /// The context's size in tokens, if it was given.
    pub context: Option<usize>,
    /// The probability of a call at or above which an answer had to be one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_threshold: Option<f64>,
    /// The probability of a call below which an answer had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_call_below: Option<f64>,
    /// What became of calls in another form than the format's.
    #[serde(default, skip_serializing_if = "is_read")]
    pub other_forms: OtherForms,
}

/// The dimensions of the matrix, in the order in which labels name them.
pub(crate) const DIMENSIONS: [&str; 8] =
    ["model", "template", "format", "constrain", "tool-choice", "temp", "repair", "select-tools"];

/// Earlier runs have no choice, and their ids are hashes without it.
fn is_auto(choice: &ToolChoice) -> bool {
    *choice == ToolChoice::Auto
}

/// Likewise.
fn is_read(other_forms: &OtherForms) -> bool {
    *other_forms == OtherForms::Read
}

impl Configuration {
    /// A model, which `session` runs, with the session's template, format, sampling and token limit. Calls are
    /// constrained and repaired. The hash of the model's file is left empty.
    pub fn new(model: impl Into<String>, session: &Session) -> Configuration {
        let (template, format, options) = (session.template(), session.format(), session.options());
        Configuration {
            id: String::new(),
            model: model.into(),
            model_sha256: String::new(),
            template: template.name().to_owned(),
            template_sha256: sha256(template.source()),
            format: format.name.clone(),
            format_declaration: format.to_toml(),
            constrain: Mode::Auto,
            tool_choice: ToolChoice::Auto,
            select_tools: None,
            sampling: options.sampling,
            repair: true,
            max_tokens: options.max_tokens,
            lora: Vec::new(),
            context: None,
            call_threshold: options.call_threshold,
            no_call_below: options.no_call_below,
            other_forms: options.other_forms,
        }
    }

    /// Sets the id.
    #[must_use]
    pub fn identified(mut self) -> Configuration {
        self.id = String::new();
        let text = serde_json::to_string(&self).unwrap_or_default();
        self.id = sha256(text)[..12].to_owned();
        self
    }

    /// The value in each of the `DIMENSIONS`.
    pub fn values(&self) -> [String; 8] {
        let mode = match self.constrain {
            Mode::Off => "off",
            Mode::Auto => "auto",
            Mode::Strict => "strict",
        };
        [
            name_of(&self.model),
            self.template.rsplit('/').next().unwrap_or(&self.template).to_owned(),
            self.format.clone(),
            mode.to_owned(),
            self.tool_choice.name().to_owned(),
            self.sampling.temperature.to_string(),
            if self.repair { "on" } else { "off" }.to_owned(),
            self.select_tools.map_or_else(|| "all".to_owned(), |most| most.to_string()),
        ]
    }

    /// The seed of one answer.
    pub(crate) fn seed(&self, case: &str, repeat: usize) -> u64 {
        // However the model is named: its file is the same.
        let unnamed = Configuration { model: String::new(), ..self.clone() }.identified();
        let text = format!("{}\n{case}\n{}\n{repeat}", self.sampling.seed, unnamed.id);
        let digits = &sha256(text)[..13];
        // 52 bits: JSON readers in other languages use doubles.
        u64::from_str_radix(digits, 16).unwrap_or(0)
    }

    /// Returns whether both can use one loaded model with its template and format.
    pub(crate) fn shares_session(&self, other: &Configuration) -> bool {
        let key = |one: &Configuration| {
            (one.model_sha256.clone(), one.model.clone(), one.template_sha256.clone(), one.format_declaration.clone())
        };
        key(self) == key(other) && self.context == other.context && self.lora == other.lora
    }
}

/// Distinct labels for the configurations of a run: their values in what differs, or the model's name where nothing does.
pub(crate) fn labels(configurations: &[Configuration]) -> Vec<String> {
    let models = short_names(&configurations.iter().map(|one| one.model.as_str()).collect::<Vec<_>>());
    let rows: Vec<[String; PARTS]> = configurations.iter().zip(&models).map(|(one, model)| parts(one, model)).collect();
    let mut labels = vec![Vec::new(); rows.len()];
    for part in 0..PARTS {
        // The template and the format of a model follow from it, unless several were given.
        let follows = matches!(part, 2 | 3);
        let tells = |a: usize| (0..a).any(|b| rows[a][part] != rows[b][part] && (!follows || labels[a] == labels[b]));
        if (0..rows.len()).any(tells) {
            labels.iter_mut().zip(&rows).for_each(|(label, row)| label.push(row[part].as_str()));
        }
    }
    let labels: Vec<String> = labels
        .iter()
        .zip(&models)
        .map(|(parts, model)| if parts.is_empty() { model.clone() } else { parts.join(", ") })
        .collect();
    // Two files or two templates may have the same name.
    let unique = |(label, configuration): (&String, &Configuration)| {
        let twin = labels.iter().filter(|other| *other == label).count() > 1;
        if twin { format!("{label} ({})", configuration.id) } else { label.clone() }
    };
    labels.iter().zip(configurations).map(unique).collect()
}

/// The number of values that a label may be made of.
const PARTS: usize = DIMENSIONS.len() + 1;

/// What a label may be made of: the model, its adapters, and the values in the other `DIMENSIONS`.
fn parts(one: &Configuration, model: &str) -> [String; PARTS] {
    let [_, template, format, constrain, choice, temperature, repair, tools] = one.values();
    let stem = |adapter: &String| {
        let file = adapter.split(".gguf").next().unwrap_or(adapter);
        file.rsplit('/').next().unwrap_or(file).to_owned()
    };
    let adapters: Vec<String> = one.lora.iter().map(stem).collect();
    let choice = if choice == "auto" { "optional" } else { &choice };
    [
        model.to_owned(),
        if adapters.is_empty() { "no adapter".to_owned() } else { adapters.join(" + ") },
        match template.ends_with("[chat_template.default]") {
            true => "own template".to_owned(),
            false => format!("template {}", template.trim_end_matches(".jinja")),
        },
        format,
        format!("constrain {constrain}"),
        format!("call {choice}"),
        format!("temp {temperature}"),
        format!("repair {repair}"),
        format!("{tools} tools"),
    ]
}

/// Names of models without what all of them begin or end with: `Q4_K_M` and `Q8_0` of two files of one model.
pub fn short_names(names: &[&str]) -> Vec<String> {
    let whole: Vec<String> = names.iter().map(|name| name_of(name)).collect();
    let distinct = |names: &[&str]| names.iter().collect::<BTreeSet<_>>().len();
    let whole_names: Vec<&str> = whole.iter().map(String::as_str).collect();
    // Files of one name differ in their folders.
    let names = if distinct(&whole_names) < distinct(names) { names.to_vec() } else { whole_names };
    let words: Vec<Vec<&str>> = names.iter().map(|name| words(name)).collect();
    let shared = |word: &dyn Fn(&[&str], usize) -> Option<String>| {
        let all_have = |at: &usize| {
            let first = word(&words[0], *at);
            first.is_some() && words.iter().all(|words| word(words, *at) == first)
        };
        (0..).take_while(all_have).count()
    };
    if distinct(&names) < 2 {
        return whole;
    }
    let from = shared(&|words, at| words.get(at).map(|word| (*word).to_owned()));
    let until = shared(&|words, at| words.iter().rev().nth(at).map(|word| (*word).to_owned()));
    let cut = |words: &Vec<&str>| {
        let end = words.len().saturating_sub(until);
        words.get(from..end).unwrap_or_default().concat().trim_matches(['-', '/', '.']).to_owned()
    };
    let cut: Vec<String> = words.iter().map(cut).collect();
    if cut.iter().any(String::is_empty) { names.iter().map(|name| (*name).to_owned()).collect() } else { cut }
}

/// What a model is called without its folder; of a server, what it calls the model, or its address.
fn name_of(model: &str) -> String {
    let model = match model.split_once("://") {
        Some((_, server)) => server.split_once('#').map_or(server, |(_, name)| name),
        None => model,
    };
    let model = if model.ends_with("/v1") { model } else { model.rsplit('/').next().unwrap_or(model) };
    model.trim_end_matches(".gguf").to_owned()
}

/// A name in pieces, each with the sign before it. A point inside of a number, such as `0.5b`, is no boundary.
fn words(name: &str) -> Vec<&str> {
    let bytes = name.as_bytes();
    let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let boundary = |at: &usize| match bytes[*at] {
        b'-' | b'/' => true,
        b'.' => !(*at > 0 && digit(at - 1) && digit(at + 1)),
        _ => false,
    };
    let mut at: Vec<usize> = (1..bytes.len()).filter(boundary).collect();
    at.insert(0, 0);
    at.push(bytes.len());
    at.windows(2).map(|pair| &name[pair[0]..pair[1]]).collect()
}
