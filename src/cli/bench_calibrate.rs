//! `callwright bench calibrate`: finds the threshold of the decision to call.

use super::generation::probability;
use super::input::{ModelOptions, positive};
use super::run::{Interrupts, PATIENCE};
use super::{DONE, INTERRUPTED, notice, say, screen};
use anyhow::Result;
use callwright::files::{self, Readers};
use callwright::models::{Gguf, ModelEntry, Models, Source, with_call_threshold};
use callwright::{Error, ErrorKind, Model};
use callwright_bench::calibrate::{Calibration, FOLDS, Goal, Measurement, Point, measure};
use callwright_bench::directory::NOW;
use callwright_bench::report::{curve, percent};
use callwright_bench::stats::Area;
use callwright_bench::suite::Suite;
use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

/// Find the probability of a call at which an answer should have to be one: the value for --call-threshold
#[derive(Args)]
#[command(
    after_help = "For each case the prompt is decoded, and no answer is generated. The cases need two kinds: those that need a call, \
    and those that need none.\n\n\
    Examples:\n  callwright bench calibrate -m qwen3-0.6b\n  \
    callwright bench calibrate -m qwen3-0.6b --suite builtin --suite my-cases.jsonl --write models.toml"
)]
pub struct CalibrateArgs {
    /// Measure these cases: builtin, a file, or bfcl:DIR[:CATEGORY,…]; may be repeated [default: builtin]
    #[arg(long, alias = "tools-suite", value_name = "SUITE", help_heading = "Cases")]
    suite: Vec<String>,

    /// Measure only N of each suite's cases, with each category's share; the same ones every time
    #[arg(long, value_name = "N", value_parser = positive, help_heading = "Cases")]
    limit: Option<usize>,

    #[command(flatten)]
    model: ModelOptions,

    /// Estimate what a threshold achieves with K parts of the cases: each is judged with the threshold of the others
    #[arg(long, value_name = "K", value_parser = folds, default_value_t = FOLDS, help_heading = "Threshold")]
    folds: usize,

    /// Choose the threshold with the greatest recall that has this specificity [default: the one with the greatest mean
    /// of recall and specificity]
    #[arg(long, value_name = "SHARE", value_parser = probability, help_heading = "Threshold")]
    min_specificity: Option<f64>,

    /// Write the threshold into the model's entry of this models.toml; the file and the entry are made where they are missing
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    write: Option<PathBuf>,

    /// Write the curve to an HTML page
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    html: Option<PathBuf>,

    /// Print one JSON object, with every case
    #[arg(long, help_heading = "Output")]
    json: bool,
}

fn folds(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|count| (2..=1000).contains(count))
        .ok_or_else(|| "not a whole number from 2 to 1000".to_owned())
}

pub fn run(args: CalibrateArgs) -> Result<u8> {
    let suite = suite(&args)?;
    let (mut session, mut model) = args.model.open_to_generate(false)?;
    if let Some(server) = model.entry().server() {
        let message =
            format!("{server}: the probability of a call needs the model's logits, which a server does not send");
        return Err(Error::new(ErrorKind::Config, message).hint("calibrate with the model's GGUF").into());
    }
    args.model.load_weights(&mut model, &mut session)?;
    let entry = model.entry().clone();
    let interrupts = Interrupts::listen(PATIENCE)?;
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} cases, {eta} left");
    let bar = if std::io::stderr().is_terminal() {
        ProgressBar::new(suite.cases.len() as u64)
    } else {
        ProgressBar::hidden()
    };
    bar.set_style(style.unwrap_or(ProgressStyle::default_bar()));
    let mut progress = |done: usize| bar.set_position(done as u64);
    let measurement = interrupts.during(|| measure(&mut session, &suite, NOW, &interrupts.flag(), &mut progress))?;
    bar.finish_and_clear();
    if measurement.interrupted {
        notice("interrupted: the cases that were measured are not enough to say anything");
        return Ok(INTERRUPTED);
    }
    tell_left_out(&measurement);
    let goal = args.min_specificity.map_or(Goal::Balanced, Goal::Specificity);
    let calibration = Calibration::new(&measurement.cases, args.folds, goal)?;
    let about = About {
        entry: &entry,
        format: &session.format().name,
        template: session.template().name(),
        suite: &suite.name,
    };
    let mut out = screen::data();
    match args.json {
        true => writeln!(out, "{:#}", about.json(&calibration, &measurement))?,
        false => write!(out, "{}", about.text(&calibration))?,
    }
    if let Some(path) = &args.html {
        let title = format!("{} with {}: the decision to call", entry.name, about.format);
        let page = curve::page(&title, &format!("{} cases of {}", measurement.cases.len(), suite.name), &calibration)?;
        files::write(path, page.as_bytes(), Readers::All).map_err(|error| Error::io("write", path, &error))?;
    }
    if let Some(path) = &args.write {
        write_entry(path, &args.model, &model, &calibration)?;
    }
    Ok(DONE)
}

/// The cases of all suites together.
fn suite(args: &CalibrateArgs) -> Result<Suite> {
    let names = if args.suite.is_empty() { vec!["builtin".to_owned()] } else { args.suite.clone() };
    let mut cases = Vec::new();
    for name in &names {
        let suite = Suite::open(name)?;
        cases.extend(args.limit.map_or(suite.clone(), |limit| suite.limited(limit)).cases);
    }
    let mut ids = HashSet::new();
    if let Some(twice) = cases.iter().find(|case| !ids.insert(case.id.as_str())) {
        return Err(Error::new(ErrorKind::Suite, format!("the suites have two cases with the id {:?}", twice.id))
            .hint("name each suite once")
            .into());
    }
    Ok(Suite { name: names.join(" and "), cases })
}

fn tell_left_out(measurement: &Measurement) {
    if measurement.undecided > 0 {
        let count = measurement.undecided;
        notice(&format!(
            "{count} cases are left out: they have no tools, they answer a tool's result, or the answer's beginning does not say whether it is a call"
        ));
    }
    if measurement.too_long > 0 {
        notice(&format!("{} cases are left out: their prompts do not fit the context", measurement.too_long));
    }
}

/// Returns the entry to write for a model: the one that applies to its file, or a new one, with the file's fingerprint. So the entry
/// applies in any folder.
fn entry_of(path: &Path, options: &ModelOptions, model: &Model) -> Result<ModelEntry> {
    let mut models = Models::load(options.models.as_deref())?;
    let mut entry = model.entry().clone();
    let fingerprint = Gguf::open(model.path())?.fingerprint()?;
    if let Some(known) = entry.applied.as_ref().and_then(|name| models.get(name)) {
        entry = known.clone();
    } else if let Source::File(file) = &entry.source
        && Path::new(&entry.name) == file
    {
        if path.exists() {
            models = models.with_file(path)?;
        }
        let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        // Another model may have this name.
        let taken = models.get(&stem).is_some_and(|other| !other.fingerprints.contains(&fingerprint));
        entry.name = if taken { format!("{stem}-{}", &fingerprint[..8]) } else { stem };
    }
    if !entry.fingerprints.contains(&fingerprint) {
        entry.fingerprints.push(fingerprint);
    }
    Ok(entry)
}

/// Writes the threshold into a models.toml, together with a template and a format that were given: it applies to those.
fn write_entry(path: &Path, options: &ModelOptions, model: &Model, calibration: &Calibration) -> Result<()> {
    let text = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        read => read.map_err(|error| Error::io("read", path, &error))?,
    };
    let mut entry = entry_of(path, options, model)?;
    entry.template = options.template.clone().or(entry.template);
    entry.format = options.format.clone().or(entry.format);
    if !options.hardware.lora.is_empty() {
        entry.lora.clone_from(&options.hardware.lora);
    }
    let threshold = calibration.best.threshold;
    let written = with_call_threshold(&text, &entry, threshold);
    files::write(path, written.as_bytes(), Readers::All).map_err(|error| Error::io("write", path, &error))?;
    say(format_args!("{}: call_threshold = {threshold:?} for {}\n", path.display(), entry.name));
    let named = [("template", &options.template), ("format", &options.format)];
    let named = named.map(|(option, given)| (option, given.clone(), given.as_ref().map(|given| format!("{given:?}"))));
    let adapters: Vec<String> = options.hardware.lora.iter().map(ToString::to_string).collect();
    let lora = (!adapters.is_empty()).then(|| (adapters.join(" --lora "), format!("{adapters:?}"))).unzip();
    for (option, given, value) in named.into_iter().chain([("lora", lora.0, lora.1)]) {
        if let (Some(given), Some(value)) = (given, value) {
            notice(&format!("the threshold was measured with --{option} {given}: the entry needs {option} = {value}"));
        }
    }
    Ok(())
}

/// What was calibrated.
struct About<'a> {
    entry: &'a ModelEntry,
    format: &'a str,
    template: &'a str,
    suite: &'a str,
}

impl About<'_> {
    fn text(&self, calibration: &Calibration) -> String {
        let (needs, none) = calibration.cases;
        let mut text = format!(
            "{}, format {}, {}: {needs} cases that need a call, {none} that need none\n\
             AUC {}\nAUC of the first token alone {}\n\n",
            self.entry.name,
            self.format,
            self.suite,
            shown(&calibration.auc),
            shown(&calibration.auc_first_token)
        );
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header(["threshold", "recall (95% interval)", "specificity (95% interval)"]);
        let mut points = calibration.outline();
        points.push(calibration.best);
        points.sort_by(|a, b| a.threshold.total_cmp(&b.threshold));
        points.dedup_by(|a, b| a.threshold == b.threshold);
        for point in &points {
            let mark = if point.threshold == calibration.best.threshold { " (best)" } else { "" };
            table.add_row([
                format!("{:.4e}{mark}", point.threshold),
                point.recall.to_string(),
                point.specificity.to_string(),
            ]);
        }
        for index in 1..3 {
            if let Some(column) = table.column_mut(index) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        text.extend(table.to_string().lines().map(|line| line.trim_end().to_owned() + "\n"));
        let (recall, specificity) = &calibration.held_out;
        text += &format!(
            "\nOn cases that the threshold was not chosen on ({} folds): recall {}, specificity {}, balanced accuracy {}\n\n\
             For the entry of {} in models.toml:\ncall_threshold = {:?}\n",
            calibration.folds,
            recall,
            specificity,
            percent((recall.share() + specificity.share()) / 2.0),
            self.entry.name,
            calibration.best.threshold
        );
        text
    }

    fn json(&self, calibration: &Calibration, measurement: &Measurement) -> Value {
        let (recall, specificity) = &calibration.held_out;
        json!({
            "callwright_calibration": 1,
            "model": self.entry.name,
            "template": self.template,
            "format": self.format,
            "suite": self.suite,
            "needs_call": calibration.cases.0,
            "needs_none": calibration.cases.1,
            "undecided": measurement.undecided,
            "too_long": measurement.too_long,
            "auc": calibration.auc,
            "auc_first_token": calibration.auc_first_token,
            "best": point_json(&calibration.best),
            "held_out": {
                "folds": calibration.folds,
                "thresholds": calibration.thresholds,
                "recall": recall,
                "specificity": specificity,
                "balanced_accuracy": (recall.share() + specificity.share()) / 2.0,
            },
            "curve": calibration.curve.iter().map(point_json).collect::<Vec<_>>(),
            "cases": measurement.cases,
        })
    }
}

fn shown(area: &Area) -> String {
    format!("{:.3} (95% interval {:.3}–{:.3})", area.value, area.low, area.high)
}

fn point_json(point: &Point) -> Value {
    json!({
        "threshold": point.threshold,
        "recall": point.recall,
        "specificity": point.specificity,
        "balanced_accuracy": point.balanced_accuracy(),
    })
}
