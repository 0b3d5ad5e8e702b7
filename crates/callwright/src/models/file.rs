//! Reads models.toml; errors point at the line.

use std::collections::HashSet;
use std::num::{NonZeroU32, NonZeroU64};
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error as _};
use toml::Spanned;

use super::hub::{HubFile, is_sha256};
use super::{ModelEntry, Sampling, ServerModel, Source};
use crate::error::{Error, ErrorKind, Location, Result, nearest};
use crate::message::{DRY_MULTIPLIER, PENALTY, REPEAT_PENALTY};
use crate::models::LoraAdapter;
use crate::text_file;

/// Reads the file at `path`.
pub(super) fn read(path: &Path) -> Result<Vec<ModelEntry>> {
    let text = text_file::read(path)?;
    parse(&text, path, path.parent().unwrap_or(Path::new("")))
}

/// Reads `text`; its relative paths are relative to `folder`.
pub(super) fn parse(text: &str, path: &Path, folder: &Path) -> Result<Vec<ModelEntry>> {
    File { text, path, folder }.models().map_err(|error| error.in_file(path))
}

struct File<'a> {
    text: &'a str,
    path: &'a Path,
    folder: &'a Path,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields, expecting = "models, each below [[model]]")]
struct Tables {
    #[serde(default)]
    model: Vec<Spanned<Table>>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields, expecting = "the table of a model, below [[model]]")]
struct Table {
    name: Spanned<Text>,
    path: Option<Spanned<Text>>,
    repo: Option<Spanned<Text>>,
    file: Option<Spanned<Text>>,
    revision: Option<Spanned<Text>>,
    sha256: Option<Spanned<Sums>>,
    fingerprint: Option<Spanned<Sums>>,
    url: Option<Spanned<Text>>,
    model: Option<Spanned<Text>>,
    mode: Option<Spanned<Mode>>,
    api_key_env: Option<Spanned<Text>>,
    timeout: Option<Spanned<NonZeroU32>>,
    cost: Option<Spanned<Cost>>,
    size: Option<NonZeroU64>,
    template: Option<Text>,
    format: Option<Text>,
    context: Option<NonZeroU32>,
    #[serde(default)]
    sampling: Sampling,
    #[serde(default, deserialize_with = "probability")]
    call_threshold: Option<f64>,
    #[serde(default, deserialize_with = "probability")]
    no_call_below: Option<f64>,
    #[serde(default)]
    ask_for_answers: bool,
    #[serde(default)]
    lora: Vec<Spanned<Text>>,
    #[serde(default)]
    fallbacks: Vec<Text>,
}

/// A text that is not empty.
#[derive(serde::Deserialize)]
#[serde(try_from = "String")]
struct Text(String);

impl TryFrom<String> for Text {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Text, &'static str> {
        if text.is_empty() { Err("this text is empty") } else { Ok(Text(text)) }
    }
}

/// The sums of a file, or of several.
#[derive(serde::Deserialize)]
#[serde(untagged, expecting = "expected a sha256, or a list of them")]
enum Sums {
    One(String),
    Each(Vec<String>),
}

/// Whether callwright writes the prompt and reads the calls, or the server does.
#[derive(serde::Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Mode {
    Raw,
    Chat,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table such as { prompt = 0.2, answer = 0.6 }, per million tokens")]
struct Cost {
    #[serde(deserialize_with = "price")]
    prompt: f64,
    #[serde(deserialize_with = "price")]
    answer: f64,
}

/// Reads a number in a range.
fn number<'de, D: Deserializer<'de>>(value: D, range: &RangeInclusive<f64>) -> Result<f64, D::Error> {
    let number = f64::deserialize(value)?;
    let expected = || match *range.end() < f64::MAX {
        true => D::Error::custom(format!("expected a number from {} to {}", range.start(), range.end())),
        false => D::Error::custom(format!("expected a number from {} up", range.start())),
    };
    range.contains(&number).then_some(number).ok_or_else(expected)
}

fn probability<'de, D: Deserializer<'de>>(value: D) -> Result<Option<f64>, D::Error> {
    number(value, &(0.0..=1.0)).map(Some)
}

fn price<'de, D: Deserializer<'de>>(value: D) -> Result<f64, D::Error> {
    number(value, &(0.0..=f64::MAX))
}

fn some_number<'de, D: Deserializer<'de>>(value: D, range: &RangeInclusive<f32>) -> Result<Option<f32>, D::Error> {
    number(value, &(f64::from(*range.start())..=f64::from(*range.end()))).map(|number| Some(number as f32))
}

pub(super) fn to_100<'de, D: Deserializer<'de>>(value: D) -> Result<Option<f32>, D::Error> {
    some_number(value, &DRY_MULTIPLIER)
}

pub(super) fn share<'de, D: Deserializer<'de>>(value: D) -> Result<Option<f32>, D::Error> {
    some_number(value, &(0.0..=1.0))
}

pub(super) fn repeat_penalty<'de, D: Deserializer<'de>>(value: D) -> Result<Option<f32>, D::Error> {
    some_number(value, &REPEAT_PENALTY)
}

pub(super) fn penalty<'de, D: Deserializer<'de>>(value: D) -> Result<Option<f32>, D::Error> {
    some_number(value, &PENALTY)
}

pub(super) fn positive<'de, D: Deserializer<'de>>(value: D) -> Result<Option<u32>, D::Error> {
    NonZeroU32::deserialize(value).map(|number| Some(number.get()))
}

pub(super) fn last_n<'de, D: Deserializer<'de>>(value: D) -> Result<Option<i32>, D::Error> {
    let number = i32::deserialize(value)?;
    if number < -1 { Err(D::Error::custom("expected a whole number from -1 (all) up")) } else { Ok(Some(number)) }
}

impl File<'_> {
    fn wrong(&self, span: Range<usize>, message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Config, message).marked(self.text, span)
    }

    fn models(&self) -> Result<Vec<ModelEntry>> {
        let document = toml::de::Deserializer::parse(self.text)
            .map_err(|error| Error::of_toml(ErrorKind::Syntax, self.text, error))?;
        let tables = Tables::deserialize(document).map_err(|error| self.of_field(error))?;
        let mut entries = Vec::new();
        let mut names = HashSet::new();
        for table in tables.model {
            let at = table.get_ref().name.span();
            let entry = self.model(table)?;
            if !names.insert(entry.name.clone()) {
                return Err(self.wrong(at, format!("two models are named {:?}", entry.name)));
            }
            entries.push(entry);
        }
        Ok(entries)
    }

    /// Returns what is wrong with a key or its value. A key of a model may belong into its `sampling`.
    fn of_field(&self, error: toml::de::Error) -> Error {
        let names = |message: &str| message.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
        let message = error.message().to_owned();
        let shown = Error::of_toml(ErrorKind::Config, self.text, error);
        if message.starts_with("invalid type: map, expected a sequence") {
            return shown.hint("write [[model]] with two pairs of brackets");
        }
        let of_model = names(&message);
        if !message.starts_with("unknown field") || !of_model.iter().any(|name| name == "sampling") {
            return shown;
        }
        // serde knows the names.
        let of_sampling =
            toml::from_str::<Sampling>("'' = 0").map_or_else(|error| names(error.message()), |_| Vec::new());
        let known = of_model.iter().chain(&of_sampling).skip(1).map(String::as_str);
        match nearest(&of_model[0], known).filter(|near| of_sampling.iter().any(|name| name == near)) {
            Some(near) => shown.hint(format!("{near:?} goes into sampling: sampling = {{ {near} = … }}")),
            None => shown,
        }
    }

    fn model(&self, table: Spanned<Table>) -> Result<ModelEntry> {
        let span = table.span();
        let table = table.into_inner();
        let place = Location::of_offset(self.text, table.name.span().start);
        let place = Location { file: Some(self.path.to_owned()), ..place };
        let adapter = |text: &Spanned<Text>| {
            LoraAdapter::parse(&text.get_ref().0, |file| self.absolute(file))
                .map_err(|why| self.wrong(text.span(), why))
        };
        let lora = table.lora.iter().map(adapter).collect::<Result<_>>()?;
        let source = self.source(&table, span)?;
        let fingerprints = table.fingerprint.as_ref().map(|sums| self.sums(sums)).transpose()?.unwrap_or_default();
        let name = &table.name.get_ref().0;
        Ok(ModelEntry {
            applied: Some(name.clone()),
            fingerprints,
            size: table.size.map(NonZeroU64::get),
            template: table.template.map(|template| self.relative(template.0)),
            format: table.format.map(|format| self.relative(format.0)),
            context: table.context.map(NonZeroU32::get),
            sampling: table.sampling,
            call_threshold: table.call_threshold,
            no_call_below: table.no_call_below,
            ask_for_answers: table.ask_for_answers,
            lora,
            fallbacks: table.fallbacks.into_iter().map(|name| name.0).collect(),
            place: Some(place),
            ..ModelEntry::new(name, source)
        })
    }

    fn source(&self, table: &Table, span: Range<usize>) -> Result<Source> {
        let name = &table.name.get_ref().0;
        let at = |key, text: &Option<Spanned<Text>>| text.as_ref().map(|text| (key, text.span()));
        let file = [at("path", &table.path), at("repo", &table.repo), at("file", &table.file)];
        if let Some(address) = &table.url {
            let fingerprint = table.fingerprint.as_ref().map(|sums| ("fingerprint", sums.span()));
            if let Some((key, span)) = file.into_iter().chain([fingerprint]).flatten().next() {
                return Err(self
                    .wrong(span, format!("the model {name:?} has both \"url\" and {key:?}"))
                    .hint("\"url\" is for a model that a server runs; the others are for a file"));
            }
            return self.server(table, address).map(Source::Server);
        }
        let of_server = [
            at("model", &table.model),
            table.mode.as_ref().map(|mode| ("mode", mode.span())),
            at("api_key_env", &table.api_key_env),
            table.timeout.as_ref().map(|timeout| ("timeout", timeout.span())),
            table.cost.as_ref().map(|cost| ("cost", cost.span())),
        ];
        if let Some((key, span)) = of_server.into_iter().flatten().next() {
            return Err(self
                .wrong(span, format!("the model {name:?} has {key:?}, and no \"url\""))
                .hint("it belongs to a model that a server runs: add url = \"http://HOST:PORT/v1\""));
        }
        if let Some(path) = &table.path {
            let sums = table.sha256.as_ref().map(|sums| ("sha256", sums.span()));
            let of_hub = [at("repo", &table.repo), at("file", &table.file), at("revision", &table.revision), sums];
            if let Some((key, span)) = of_hub.into_iter().flatten().next() {
                return Err(self
                    .wrong(span, format!("the model {name:?} has both \"path\" and {key:?}"))
                    .hint("\"path\" is for a file on this machine; \"repo\" and \"file\" are for one on the hub"));
            }
            return Ok(Source::File(self.absolute(&path.get_ref().0)));
        }
        let (Some(repo), Some(file)) = (&table.repo, &table.file) else {
            let at = table.repo.as_ref().or(table.file.as_ref()).map_or(span, Spanned::span);
            return Err(self
                .wrong(at, format!("the model {name:?} does not say where it comes from"))
                .hint("add \"path\", both \"repo\" and \"file\", or \"url\""));
        };
        self.on_hub(table, &repo.get_ref().0, file).map(Source::Hub)
    }

    fn server(&self, table: &Table, address: &Spanned<Text>) -> Result<ServerModel> {
        let text = |text: &Option<Spanned<Text>>| text.as_ref().map(|text| text.get_ref().0.clone());
        let chat = table.mode.as_ref().is_some_and(|mode| *mode.get_ref() == Mode::Chat);
        let model = text(&table.model).unwrap_or_default();
        let mut server =
            ServerModel::new(&address.get_ref().0, &model, chat).map_err(|why| self.wrong(address.span(), why))?;
        server.api_key_env = text(&table.api_key_env);
        if let Some(seconds) = &table.timeout {
            server.timeout = Duration::from_secs(seconds.get_ref().get().into());
        }
        server.cost = table.cost.as_ref().map(|cost| (cost.get_ref().prompt, cost.get_ref().answer));
        Ok(server)
    }

    fn on_hub(&self, table: &Table, repo: &str, file: &Spanned<Text>) -> Result<HubFile> {
        let revision = table.revision.as_ref().map_or_else(String::new, |text| format!("@{}", text.get_ref().0));
        let mut hub = HubFile::parse(&format!("{repo}/{}{revision}", file.get_ref().0))
            .map_err(|why| self.wrong(file.span(), why))?;
        if let Some(sums) = &table.sha256 {
            hub.sha256 = self.sums(sums)?;
            let (files, count) = (hub.files().len(), hub.sha256.len());
            if count != files {
                return Err(self
                    .wrong(sums.span(), format!("the model has {files} files, and {count} sha256"))
                    .hint("a sharded model has one sha256 for each shard, in order"));
            }
        }
        Ok(hub)
    }

    fn sums(&self, sums: &Spanned<Sums>) -> Result<Vec<String>> {
        let given = match sums.get_ref() {
            Sums::One(sum) => std::slice::from_ref(sum),
            Sums::Each(sums) => sums,
        };
        let given: Vec<String> = given.iter().map(|sum| sum.to_ascii_lowercase()).collect();
        match given.iter().all(|sum| is_sha256(sum)) {
            true => Ok(given),
            false => Err(self.wrong(sums.span(), "a sha256 has 64 hexadecimal digits")),
        }
    }

    /// A name is unchanged; a path is relative to the folder of models.toml.
    fn relative(&self, text: String) -> String {
        let is_path = text.contains(['/', '\\']) || text.ends_with(".jinja");
        if is_path { self.absolute(&text).to_string_lossy().into_owned() } else { text }
    }

    fn absolute(&self, path: &str) -> PathBuf {
        let home = directories::BaseDirs::new();
        match (path.strip_prefix("~/"), home) {
            (Some(rest), Some(home)) => home.home_dir().join(rest),
            _ => self.folder.join(path),
        }
    }
}
