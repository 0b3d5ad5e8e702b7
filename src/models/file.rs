//! Reads models.toml with the place of every value, so that errors point at the line.

use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::hub::{HubFile, is_sha256};
use super::{ModelEntry, Sampling, ServerModel, Source};
use crate::engine::LoraAdapter;
use crate::error::{Error, ErrorKind, Location, Result, nearest};
use crate::message::{DRY_MULTIPLIER, PENALTY, REPEAT_PENALTY};
use crate::text_file;

const MODEL_KEYS: [&str; 21] = [
    "name",
    "path",
    "repo",
    "file",
    "revision",
    "sha256",
    "url",
    "model",
    "mode",
    "api_key_env",
    "timeout",
    "cost",
    "size",
    "template",
    "format",
    "context",
    "sampling",
    "call_threshold",
    "no_call_below",
    "lora",
    "fallbacks",
];
const SAMPLING_KEYS: [&str; 9] = [
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repeat_penalty",
    "presence_penalty",
    "frequency_penalty",
    "repeat_last_n",
    "dry_multiplier",
];

/// Reads the file at `path`.
pub(super) fn read(path: &Path) -> Result<Vec<ModelEntry>> {
    let text = text_file::read(path)?;
    parse(&text, path, path.parent().unwrap_or(Path::new("")))
}

/// Reads `text`; its relative paths are relative to `folder`.
pub(super) fn parse(text: &str, path: &Path, folder: &Path) -> Result<Vec<ModelEntry>> {
    let file = File { text, path, folder };
    let table = DeTable::parse(text).map_err(|e| {
        let end = text.len();
        file.error(ErrorKind::Syntax, e.message().trim(), e.span().unwrap_or(end..end))
    })?;
    file.models(table.get_ref())
}

struct File<'a> {
    text: &'a str,
    path: &'a Path,
    folder: &'a Path,
}

type Field<'t, 'i> = (&'t Spanned<std::borrow::Cow<'i, str>>, &'t Spanned<DeValue<'i>>);

impl File<'_> {
    /// An error at `span`, with the line and a caret.
    fn error(&self, kind: ErrorKind, message: impl Into<String>, span: Range<usize>) -> Error {
        let place = self.place(&span);
        let mut start = span.start.min(self.text.len());
        while !self.text.is_char_boundary(start) {
            start -= 1;
        }
        let line_start = self.text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line = self.text[line_start..].lines().next().unwrap_or_default();
        let number = place.line.unwrap_or(1).to_string();
        let indent = " ".repeat(place.column.unwrap_or(1).saturating_sub(1));
        let marked = self.text.get(start..span.end.min(line_start + line.len())).unwrap_or_default();
        let carets = "^".repeat(marked.chars().count().max(1));
        let gutter = " ".repeat(number.len());
        let excerpt = format!("{number} | {line}\n{gutter} | {indent}{carets}");
        Error::new(kind, message).at(place).excerpt(excerpt)
    }

    fn place(&self, span: &Range<usize>) -> Location {
        Location { file: Some(self.path.to_owned()), ..Location::of_offset(self.text, span.start) }
    }

    fn wrong(&self, value: &Spanned<DeValue>, message: impl Into<String>) -> Error {
        self.error(ErrorKind::Config, message, value.span())
    }

    fn unknown(&self, key: &Spanned<std::borrow::Cow<str>>, known: &[&str], inside: &str) -> Error {
        let name: &str = key.get_ref();
        let error = self.error(ErrorKind::Config, format!("unknown key {name:?} in {inside}"), key.span());
        let closest = nearest(name, known.iter().chain(&SAMPLING_KEYS).copied());
        match closest {
            Some(near) if known.contains(&near) => error.hint(format!("did you mean {near:?}?")),
            Some(near) if known.contains(&"sampling") => {
                error.hint(format!("{near:?} goes into sampling: sampling = {{ {near} = … }}"))
            }
            _ => error.hint(format!("known keys: {}", known.join(", "))),
        }
    }

    fn models(&self, table: &DeTable) -> Result<Vec<ModelEntry>> {
        let mut entries = Vec::new();
        let mut names = HashSet::new();
        for (key, value) in table {
            if *key.get_ref() != "model" {
                return Err(self.unknown(key, &["model"], "models.toml"));
            }
            let Some(list) = value.get_ref().as_array() else {
                return Err(self
                    .error(ErrorKind::Config, "\"model\" is a list of tables", key.span())
                    .hint("write [[model]] with two pairs of brackets"));
            };
            for item in list.iter() {
                let Some(table) = item.get_ref().as_table() else {
                    return Err(self.wrong(item, "a model is a table").hint("write [[model]] above its keys"));
                };
                let entry = self.model(table, item.span())?;
                if !names.insert(entry.name.clone()) {
                    let at = field(table, "name").map_or(item.span(), |(_, value)| value.span());
                    return Err(self.error(ErrorKind::Config, format!("two models are named {:?}", entry.name), at));
                }
                entries.push(entry);
            }
        }
        Ok(entries)
    }

    fn model(&self, table: &DeTable, span: Range<usize>) -> Result<ModelEntry> {
        for (key, _) in table {
            if !MODEL_KEYS.contains(&key.get_ref().as_ref()) {
                return Err(self.unknown(key, &MODEL_KEYS, "a model"));
            }
        }
        let field = |name: &str| field(table, name);
        let text = |name: &str| field(name).map(|(_, value)| self.text(value, name)).transpose();
        let file_or_name = |name: &str| Ok::<_, Error>(text(name)?.map(|text| self.relative(&text)));
        let Some((_, name)) = field("name") else {
            return Err(self.error(ErrorKind::Config, "this model has no name", span).hint("add name = \"…\""));
        };
        let place = self.place(&name.span());
        let name = self.text(name, "name")?;
        let source = self.source(table, &name, span)?;
        Ok(ModelEntry {
            size: field("size").map(|(_, v)| self.whole(v, "size", u64::MAX)).transpose()?,
            template: file_or_name("template")?,
            format: file_or_name("format")?,
            context: field("context")
                .map(|(_, v)| self.whole(v, "context", u32::MAX.into()))
                .transpose()?
                .map(|n| n as u32),
            sampling: field("sampling").map(|(_, v)| self.sampling(v)).transpose()?.unwrap_or_default(),
            call_threshold: field("call_threshold").map(|(_, v)| self.probability(v, "call_threshold")).transpose()?,
            no_call_below: field("no_call_below").map(|(_, v)| self.probability(v, "no_call_below")).transpose()?,
            lora: field("lora").map(|(_, v)| self.adapters(v)).transpose()?.unwrap_or_default(),
            fallbacks: field("fallbacks").map(|(_, v)| self.texts(v, "fallbacks")).transpose()?.unwrap_or_default(),
            place: Some(place),
            ..ModelEntry::new(&name, source)
        })
    }

    /// The source, where it is a server.
    fn server(&self, table: &DeTable, name: &str) -> Result<Option<Source>> {
        let rest = ["model", "mode", "api_key_env", "timeout", "cost"].map(|key| field(table, key));
        let Some((_, address)) = field(table, "url") else {
            return match rest.into_iter().flatten().next() {
                None => Ok(None),
                Some((key, _)) => {
                    let message = format!("the model {name:?} has {:?}, and no \"url\"", key.get_ref());
                    Err(self
                        .error(ErrorKind::Config, message, key.span())
                        .hint("it belongs to a model that a server runs: add url = \"http://HOST:PORT/v1\""))
                }
            };
        };
        if let Some((key, _)) = ["path", "repo", "file"].into_iter().find_map(|key| field(table, key)) {
            let message = format!("the model {name:?} has both \"url\" and {:?}", key.get_ref());
            return Err(self
                .error(ErrorKind::Config, message, key.span())
                .hint("\"url\" is for a model that a server runs; the others are for a file"));
        }
        let [model, mode, api_key_env, timeout, cost] = rest;
        let text = |field: Option<Field<'_, '_>>, key: &str| field.map(|(_, value)| self.text(value, key)).transpose();
        let chat = match mode.map(|(_, value)| Ok((value, self.text(value, "mode")?))).transpose()? {
            None => false,
            Some((_, mode)) if mode == "raw" || mode == "chat" => mode == "chat",
            Some((value, _)) => {
                return Err(self
                    .wrong(value, "\"mode\" is \"raw\" or \"chat\"")
                    .hint("raw: callwright writes the prompt and reads the calls; chat: the server does"));
            }
        };
        let (url, model) = (self.text(address, "url")?, text(model, "model")?.unwrap_or_default());
        let mut server = ServerModel::new(&url, &model, chat).map_err(|why| self.wrong(address, why))?;
        server.api_key_env = text(api_key_env, "api_key_env")?;
        if let Some((_, seconds)) = timeout {
            server.timeout = Duration::from_secs(self.whole(seconds, "timeout", 86_400)?);
        }
        server.cost = cost.map(|(_, value)| self.cost(value)).transpose()?;
        Ok(Some(Source::Server(server)))
    }

    fn cost(&self, value: &Spanned<DeValue>) -> Result<(f64, f64)> {
        const SHAPE: &str = "write cost = { prompt = 0.2, answer = 0.6 }, per million tokens";
        let wrong = || self.wrong(value, "\"cost\" is a table of two numbers from 0 up").hint(SHAPE);
        let table = value.get_ref().as_table().ok_or_else(wrong)?;
        if let Some((key, _)) = table.iter().find(|(key, _)| !["prompt", "answer"].contains(&key.get_ref().as_ref())) {
            return Err(self.unknown(key, &["prompt", "answer"], "\"cost\""));
        }
        let number = |key: &str| {
            let number = field(table, key).and_then(|(_, value)| float(value));
            number.filter(|number| number.is_finite() && *number >= 0.0).ok_or_else(wrong)
        };
        Ok((number("prompt")?, number("answer")?))
    }

    fn source(&self, table: &DeTable, name: &str, span: Range<usize>) -> Result<Source> {
        if let Some(server) = self.server(table, name)? {
            return Ok(server);
        }
        let hub_keys = ["repo", "file", "revision", "sha256"].map(|key| field(table, key));
        let [repo, file, revision, sha256] = hub_keys;
        if let Some((_, path)) = field(table, "path") {
            if let Some((key, _)) = hub_keys.into_iter().flatten().next() {
                let message = format!("the model {name:?} has both \"path\" and {:?}", key.get_ref());
                return Err(self
                    .error(ErrorKind::Config, message, key.span())
                    .hint("\"path\" is for a file on this machine; \"repo\" and \"file\" are for one on the hub"));
            }
            let path = self.text(path, "path")?;
            return Ok(Source::File(self.absolute(&path)));
        }
        let (Some((_, repo)), Some((_, file))) = (repo, file) else {
            let at = repo.or(file).map_or(span, |(key, _)| key.span());
            return Err(self
                .error(ErrorKind::Config, format!("the model {name:?} does not say where it comes from"), at)
                .hint("add \"path\", both \"repo\" and \"file\", or \"url\""));
        };
        let revision = match revision {
            Some((_, value)) => format!("@{}", self.text(value, "revision")?),
            None => String::new(),
        };
        let written = format!("{}/{}{revision}", self.text(repo, "repo")?, self.text(file, "file")?);
        let mut hub = HubFile::parse(&written).map_err(|why| self.wrong(file, why))?;
        if let Some((_, value)) = sha256 {
            hub.sha256 = match value.get_ref() {
                DeValue::Array(_) => self.texts(value, "sha256")?,
                _ => vec![self.text(value, "sha256")?],
            };
            hub.sha256.iter_mut().for_each(|sum| sum.make_ascii_lowercase());
            if !hub.sha256.iter().all(|sum| is_sha256(sum)) {
                return Err(self.wrong(value, "a sha256 has 64 hexadecimal digits"));
            }
            let files = hub.files().len();
            if hub.sha256.len() != files {
                let message = format!("the model has {files} files, and {} sha256", hub.sha256.len());
                return Err(self.wrong(value, message).hint("a sharded model has one sha256 for each shard, in order"));
            }
        }
        Ok(Source::Hub(hub))
    }

    fn sampling(&self, value: &Spanned<DeValue>) -> Result<Sampling> {
        let Some(table) = value.get_ref().as_table() else {
            return Err(self.wrong(value, "\"sampling\" is a table").hint("write sampling = { temperature = 0.7 }"));
        };
        for (key, _) in table {
            if !SAMPLING_KEYS.contains(&key.get_ref().as_ref()) {
                return Err(self.unknown(key, &SAMPLING_KEYS, "\"sampling\""));
            }
        }
        let number = |name: &str, range: std::ops::RangeInclusive<f32>| -> Result<Option<f32>> {
            let Some((_, value)) = field(table, name) else { return Ok(None) };
            let parsed = match value.get_ref() {
                DeValue::Float(n) => n.as_str().parse::<f32>().ok(),
                DeValue::Integer(n) => n.as_str().parse::<f32>().ok().filter(|_| n.radix() == 10),
                _ => None,
            };
            match parsed.filter(|n| range.contains(n)) {
                Some(n) => Ok(Some(n)),
                None => {
                    Err(self.wrong(value, format!("{name:?} is a number from {} to {}", range.start(), range.end())))
                }
            }
        };
        let top_k = field(table, "top_k").map(|(_, v)| self.whole(v, "top_k", u32::MAX.into())).transpose()?;
        Ok(Sampling {
            temperature: number("temperature", 0.0..=100.0)?,
            top_k: top_k.map(|n| n as u32),
            top_p: number("top_p", 0.0..=1.0)?,
            min_p: number("min_p", 0.0..=1.0)?,
            repeat_penalty: number("repeat_penalty", REPEAT_PENALTY)?,
            presence_penalty: number("presence_penalty", PENALTY)?,
            frequency_penalty: number("frequency_penalty", PENALTY)?,
            repeat_last_n: field(table, "repeat_last_n").map(|(_, v)| self.last_n(v)).transpose()?,
            dry_multiplier: number("dry_multiplier", DRY_MULTIPLIER)?,
        })
    }

    fn probability(&self, value: &Spanned<DeValue>, name: &str) -> Result<f64> {
        float(value)
            .filter(|number| (0.0..=1.0).contains(number))
            .ok_or_else(|| self.wrong(value, format!("{name:?} is a probability from 0 to 1")))
    }

    fn last_n(&self, value: &Spanned<DeValue>) -> Result<i32> {
        let integer = value.get_ref().as_integer();
        let number = integer.and_then(|n| i32::from_str_radix(n.as_str(), n.radix()).ok()).filter(|n| *n >= -1);
        number.ok_or_else(|| self.wrong(value, "\"repeat_last_n\" is a whole number from -1 (all) up"))
    }

    fn text(&self, value: &Spanned<DeValue>, name: &str) -> Result<String> {
        match value.get_ref().as_str() {
            Some("") => Err(self.wrong(value, format!("{name:?} is empty"))),
            Some(text) => Ok(text.to_owned()),
            None => Err(self.wrong(value, format!("{name:?} is a string"))),
        }
    }

    fn texts(&self, value: &Spanned<DeValue>, name: &str) -> Result<Vec<String>> {
        match value.get_ref().as_array() {
            Some(items) => items.iter().map(|item| self.text(item, name)).collect(),
            None => Err(self.wrong(value, format!("{name:?} is a list of strings"))),
        }
    }

    fn adapters(&self, value: &Spanned<DeValue>) -> Result<Vec<LoraAdapter>> {
        let Some(items) = value.get_ref().as_array() else {
            return Err(self.wrong(value, "\"lora\" is a list of strings").hint("write lora = [\"adapter.gguf:0.5\"]"));
        };
        let adapter = |item: &Spanned<DeValue>| {
            let text = self.text(item, "lora")?;
            LoraAdapter::parse(&text, |file| self.absolute(file)).map_err(|why| self.wrong(item, why))
        };
        items.iter().map(adapter).collect()
    }

    fn whole(&self, value: &Spanned<DeValue>, name: &str, max: u64) -> Result<u64> {
        let integer = value.get_ref().as_integer();
        let number = integer.and_then(|n| u64::from_str_radix(n.as_str(), n.radix()).ok());
        match number.filter(|n| (1..=max).contains(n)) {
            Some(number) => Ok(number),
            None => Err(self.wrong(value, format!("{name:?} is a whole number above 0"))),
        }
    }

    /// A name is unchanged; a path is relative to the folder of models.toml.
    fn relative(&self, text: &str) -> String {
        let is_path = text.contains(['/', '\\']) || text.ends_with(".jinja");
        if is_path { self.absolute(text).to_string_lossy().into_owned() } else { text.to_owned() }
    }

    fn absolute(&self, path: &str) -> std::path::PathBuf {
        let home = directories::BaseDirs::new();
        match (path.strip_prefix("~/"), home) {
            (Some(rest), Some(home)) => home.home_dir().join(rest),
            _ => self.folder.join(path),
        }
    }
}

/// A number with or without a fraction.
fn float(value: &Spanned<DeValue>) -> Option<f64> {
    match value.get_ref() {
        DeValue::Float(number) => number.as_str().parse().ok(),
        DeValue::Integer(number) => number.as_str().parse().ok(),
        _ => None,
    }
}

fn field<'t, 'i>(table: &'t DeTable<'i>, name: &str) -> Option<Field<'t, 'i>> {
    table.iter().find(|(key, _)| *key.get_ref() == name)
}
