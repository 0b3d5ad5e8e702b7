//! The fallback models of a call that keeps failing: their order, their limits and their success rates.
//!
//! Fallback models are loaded when they are needed, and kept while the memory for them lasts. Models of the same family
//! come first and, if success rates are kept, those that did well with the tool before.

use crate::files::{self, Readers};
use crate::{Error, ErrorKind, Result, text_file};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What one run may spend on fallback models.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Tokens of prompts and answers together; an answer is ended where they are used up.
    pub max_tokens: usize,
    /// Time, including loading. Loading is not interrupted.
    pub max_time: Duration,
    /// What answers may cost, in the currency of the prices in models.toml; an answer that was begun is finished.
    pub max_cost: f64,
    /// Total size in bytes of the files of models that stay loaded.
    pub memory: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { max_tokens: 32_768, max_time: Duration::from_secs(300), max_cost: f64::INFINITY, memory: 8 << 30 }
    }
}

/// How often a model's call of a tool went well.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rate {
    /// Calls that went well.
    pub good: u32,
    /// All calls.
    pub all: u32,
}

impl Rate {
    /// The share of good calls, as if one good and one bad call had been seen before.
    fn expected(self) -> f64 {
        f64::from(self.good + 1) / f64::from(self.all + 2)
    }
}

/// Success rates by model and tool, in a file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rates {
    path: Option<PathBuf>,
    rates: BTreeMap<String, BTreeMap<String, Rate>>,
}

impl Rates {
    /// The rates in the file at `path`, which need not exist yet.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] or [`ErrorKind::Syntax`] when the file cannot be read.
    pub(crate) fn open(path: impl Into<PathBuf>) -> Result<Rates> {
        let path = path.into();
        if !path.exists() {
            return Ok(Rates { path: Some(path), rates: BTreeMap::new() });
        }
        let rates = serde_json::from_str(&text_file::read(&path)?).map_err(|error| {
            Error::new(ErrorKind::Syntax, format!("not the success rates of fallback models: {error}"))
                .in_file(&path)
                .hint("delete the file to start again")
        })?;
        Ok(Rates { path: Some(path), rates })
    }

    /// How `model` did with `tool`.
    pub(crate) fn get(&self, model: &str, tool: &str) -> Rate {
        self.rates.get(model).and_then(|tools| tools.get(tool)).copied().unwrap_or_default()
    }

    /// Counts one call and writes the file.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] when it cannot be written; the call is counted nevertheless.
    pub(crate) fn count(&mut self, model: &str, tool: &str, good: bool) -> Result<()> {
        let rate = self.rates.entry(model.to_owned()).or_default().entry(tool.to_owned()).or_default();
        rate.all += 1;
        rate.good += u32::from(good);
        let Some(path) = &self.path else { return Ok(()) };
        write(path, &json!(self.rates))
    }
}

/// The models that try a call of `tool`, in order: those of `own`'s family first, then those that did better, then as
/// they were given.
pub(crate) fn order(models: &[String], own: &str, tool: &str, rates: &Rates) -> Vec<String> {
    let mut order: Vec<&String> = models.iter().filter(|model| *model != own).collect();
    order.sort_by(|a, b| {
        let other_family = |model: &str| family(model) != family(own);
        let rate = |model: &str| rates.get(model, tool).expected();
        other_family(a).cmp(&other_family(b)).then(rate(b).total_cmp(&rate(a)))
    });
    order.into_iter().cloned().collect()
}

/// `qwen2.5` of `qwen2.5-1.5b-instruct` and of `models/Qwen2.5-7B.gguf`.
fn family(model: &str) -> String {
    let name = Path::new(model).file_name().and_then(|name| name.to_str()).unwrap_or(model);
    name.split(['-', '_', ' ']).next().unwrap_or_default().to_lowercase()
}

/// A cache of values that are expensive to make, within a budget: the one used longest ago is dropped first.
#[derive(Debug)]
pub(in crate::agent) struct Warm<T> {
    budget: u64,
    /// Used longest ago first.
    kept: Vec<(String, u64, T)>,
}

impl<T> Warm<T> {
    /// An empty cache of `budget` bytes.
    pub(in crate::agent) fn new(budget: u64) -> Warm<T> {
        Warm { budget, kept: Vec::new() }
    }

    /// The value of a name; `make` makes it, with its size, if it is not kept.
    ///
    /// # Errors
    /// Those of `make`.
    pub(crate) fn get(&mut self, name: &str, make: impl FnOnce() -> Result<(T, u64)>) -> Result<&mut T> {
        let entry = match self.kept.iter().position(|(kept, ..)| kept == name) {
            Some(at) => self.kept.remove(at),
            None => {
                let (made, size) = make()?;
                (name.to_owned(), size, made)
            }
        };
        self.release(self.budget.saturating_sub(entry.1));
        self.kept.push(entry);
        let last = self.kept.len() - 1;
        Ok(&mut self.kept[last].2)
    }

    /// Drops what is over the budget.
    pub(in crate::agent) fn rest(&mut self) {
        self.release(self.budget);
    }

    /// The names of what is kept, used longest ago first.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.kept.iter().map(|(name, ..)| name.as_str())
    }

    fn release(&mut self, budget: u64) {
        while self.kept.iter().map(|(_, size, _)| size).sum::<u64>() > budget {
            self.kept.remove(0);
        }
    }
}

/// Writes a file as a whole or not at all.
pub(in crate::agent) fn write(path: &Path, value: &serde_json::Value) -> Result<()> {
    let failed = |error: std::io::Error| Error::io("write", path, &error);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(failed)?;
    files::write(path, format!("{value:#}\n").as_bytes(), Readers::Owner).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_of_the_same_family_come_first() {
        let models = ["llama-3b", "qwen2.5-7b", "path/Qwen2.5-0.5B.gguf", "main"].map(str::to_owned);
        let first = order(&models, "main", "t", &Rates::default());
        assert_eq!(first, ["llama-3b", "qwen2.5-7b", "path/Qwen2.5-0.5B.gguf"]);
        let first = order(&models, "Qwen2.5 1.5B Instruct", "t", &Rates::default());
        assert_eq!(first, ["qwen2.5-7b", "path/Qwen2.5-0.5B.gguf", "llama-3b", "main"]);
    }
}
