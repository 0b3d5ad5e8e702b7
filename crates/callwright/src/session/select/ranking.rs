//! How well tools fit words: BM25 over several fields (Robertson, Zaragoza, Taylor: Simple BM25 extension to multiple
//! weighted fields, 2004).
//!
//! A name says most of a tool, the descriptions of its arguments least. With one field for all, a tool with many arguments
//! would beat one whose name is the word. No library has the fields: they rank whole texts.

use super::words::Words;
use crate::tool::{Tool, Tools};
use serde_json::Value;
use std::collections::HashMap;

/// A tool's name, its description, the names of its arguments, and their descriptions and values.
const FIELDS: usize = 4;
/// How much a word counts in each field.
const WEIGHTS: [f64; FIELDS] = [3.0, 2.0, 1.0, 0.6];
/// How much a long field counts less.
const LENGTH: [f64; FIELDS] = [0.3, 0.6, 0.6, 0.7];
/// How soon a word that comes again counts no more.
const SATURATION: f64 = 1.2;
/// How deep the arguments of arguments are looked at.
const DEPTH: usize = 8;

/// Tools, ready to be ranked.
pub(crate) struct Ranking {
    words: Words,
    /// For each tool, how much each word counts in it.
    tools: Vec<HashMap<String, f64>>,
    /// In how many tools a word is.
    frequency: HashMap<String, usize>,
}

impl Ranking {
    pub(crate) fn new(tools: &Tools) -> Ranking {
        let words = Words::new();
        let fields: Vec<[Vec<String>; FIELDS]> = tools.iter().map(|tool| fields(tool, &words)).collect();
        let count = fields.len().max(1) as f64;
        let average: [f64; FIELDS] =
            std::array::from_fn(|field| fields.iter().map(|of| of[field].len()).sum::<usize>() as f64 / count);
        let mut frequency: HashMap<String, usize> = HashMap::new();
        let weigh = |fields: [Vec<String>; FIELDS]| {
            let mut weights: HashMap<String, f64> = HashMap::new();
            for (field, words) in fields.into_iter().enumerate() {
                let length = words.len() as f64 / average[field].max(f64::MIN_POSITIVE);
                let weight = WEIGHTS[field] / (1.0 - LENGTH[field] + LENGTH[field] * length);
                words.into_iter().for_each(|word| *weights.entry(word).or_default() += weight);
            }
            weights.keys().for_each(|word| *frequency.entry(word.clone()).or_default() += 1);
            weights
        };
        let tools = fields.into_iter().map(weigh).collect();
        Ranking { words, tools, frequency }
    }

    /// How well each tool fits a text.
    pub(crate) fn scores(&self, text: &str) -> Vec<f64> {
        let mut asked: Vec<(String, usize)> = Vec::new();
        for word in self.words.of(text) {
            match asked.iter_mut().find(|(other, _)| *other == word) {
                Some((_, times)) => *times += 1,
                None => asked.push((word, 1)),
            }
        }
        let rare = |word: &str| {
            let with = self.frequency.get(word).copied().unwrap_or(0) as f64;
            (1.0 + (self.tools.len() as f64 - with + 0.5) / (with + 0.5)).ln()
        };
        let score = |tool: &HashMap<String, f64>| {
            let of = |(word, times): &(String, usize)| {
                let weight = tool.get(word).copied().unwrap_or(0.0);
                // A word that a long question repeats does not count for each time.
                (1.0 + (*times as f64).ln()) * rare(word) * weight * (SATURATION + 1.0) / (weight + SATURATION)
            };
            asked.iter().map(of).sum()
        };
        self.tools.iter().map(score).collect()
    }

    /// The `most` tools with the highest scores above zero, the best first; among equals the first ones.
    pub(crate) fn best(scores: &[f64], most: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..scores.len()).filter(|&index| scores[index] > 0.0).collect();
        order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]).then(a.cmp(&b)));
        order.truncate(most);
        order
    }
}

fn fields(tool: &Tool, words: &Words) -> [Vec<String>; FIELDS] {
    let (mut names, mut descriptions) = (Vec::new(), Vec::new());
    if let Some(schema) = &tool.parameters {
        arguments(schema.get("properties"), words, &mut names, &mut descriptions, 0);
    }
    [words.of(&tool.name), words.of(&tool.description), names, descriptions]
}

/// The words of arguments, and of those inside them.
fn arguments(
    properties: Option<&Value>,
    words: &Words,
    names: &mut Vec<String>,
    descriptions: &mut Vec<String>,
    depth: usize,
) {
    let Some(properties) = properties.and_then(Value::as_object).filter(|_| depth < DEPTH) else { return };
    for (name, schema) in properties {
        names.extend(words.of(name));
        descriptions
            .extend(schema.get("description").and_then(Value::as_str).map(|text| words.of(text)).into_iter().flatten());
        let values = schema.get("enum").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        descriptions.extend(values.flat_map(|value| words.of(value)));
        arguments(schema.get("properties"), words, names, descriptions, depth + 1);
        let items = schema.get("items").and_then(|items| items.get("properties"));
        arguments(items, words, names, descriptions, depth + 1);
    }
}
