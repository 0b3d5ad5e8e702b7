//! `callwright certify`: which files of a model call tools as well as a reference.

use super::bench_run::{Asked, asked};
use super::bench_table::wrapped;
use super::hardware::{HardwareOptions, cache_type};
use super::input::{ModelOptions, positive};
use super::run::{Interrupts, PATIENCE};
use super::{Cli, DONE, INTERRUPTED, THRESHOLD, notice, say, screen, template};
use anyhow::Result;
use callwright::engine::CacheType;
use callwright::files::{self as disk, Readers};
use callwright::machine::resident;
use callwright::models::Gguf;
use callwright::{Error, ErrorKind};
use callwright_bench::certify::{Figures, LEVEL, Measured, against, cases, check_tokenizer, further, measure};
use callwright_bench::compare::within;
use callwright_bench::configuration::short_names;
use callwright_bench::directory::{NOW, RunDirectory};
use callwright_bench::report::card::{Card, Row, files, verdict};
use callwright_bench::report::{bytes, percent};
use callwright_bench::stats::holm;
use callwright_bench::suite::{Case, Suite};
use callwright_bench::summary::Summary;
use callwright_bench::verdict::p_value;
use clap::{Args, CommandFactory, FromArgMatches};
use comfy_table::{CellAlignment, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often to log the progress where no bar is shown.
const LOG_EVERY: Duration = Duration::from_secs(30);

/// Find out which files of a model, such as quantizations, call tools as well as a reference
#[derive(Args)]
#[command(
    after_help = "Each file reads prompts and the right calls after them, and says how likely it finds each token. Then it answers the \
    cases, as with `callwright bench`; --quick leaves that out.\n\n\
    Examples:\n  callwright certify model-q4.gguf model-q2.gguf --against model-f16.gguf\n  \
    callwright certify model-q2.gguf --no-worse-than model-q4.gguf --quick\n  \
    callwright certify model.gguf --also-cache-type q8_0 --also-cache-type q4_0 --quick\n\n\
    Exit status: 0 done, 3 where a file is worse than --no-worse-than, or below --fail-under."
)]
pub struct CertifyArgs {
    /// Certify these models: names from `callwright model list`, paths, hf:ORG/REPO/FILE.gguf[@REVISION] or hf:ORG/REPO[:QUANT]
    #[arg(required = true, value_name = "MODEL")]
    model: Vec<String>,

    /// Compare with this model, which has the same tokenizer [default: the first MODEL]
    #[arg(long, value_name = "REFERENCE", help_heading = "Goals")]
    against: Option<String>,

    /// Compare with this model, and exit with 3 if a MODEL is worse
    #[arg(long, value_name = "REFERENCE", conflicts_with = "against", help_heading = "Goals")]
    no_worse_than: Option<String>,

    /// Exit with 3 if fewer than SHARE of a model's answers are correct; with --quick, of its right calls to the letter
    #[arg(long, value_name = "SHARE", value_parser = share, help_heading = "Goals")]
    fail_under: Option<f64>,

    /// Generate no answers
    #[arg(long, help_heading = "Cases")]
    quick: bool,

    /// Use these cases: builtin, a file, or bfcl:DIR[:CATEGORY,…]
    #[arg(long, value_name = "SUITE", default_value = "builtin", help_heading = "Cases")]
    suite: String,

    /// Use only N of the cases, with each category's share; the same ones every time
    #[arg(long, value_name = "N", value_parser = positive, default_value_t = 60, help_heading = "Cases")]
    limit: usize,

    /// Add this models.toml to the built-in one and to $XDG_CONFIG_HOME/callwright/models.toml
    #[arg(long, value_name = "FILE", help_heading = "Model")]
    models: Option<PathBuf>,

    /// Ignore the models' entries in models.toml
    #[arg(long, help_heading = "Model")]
    no_entry: bool,

    /// Use only local files; never access the network
    #[arg(long, help_heading = "Model")]
    offline: bool,

    /// Use this chat template: a built-in name or a Jinja file. May be repeated: each model is certified with each [default: each model's own]
    #[arg(long, value_name = "NAME|FILE", help_heading = "Model")]
    template: Vec<String>,

    /// Use this tool-call format for all: a built-in name or a file [default: each template's own]
    #[arg(long, value_name = "NAME|FILE", help_heading = "Model")]
    format: Option<String>,

    /// Certify each model also with the keys and values of the KV cache as this type, without answers. May be repeated
    #[arg(long, value_name = "TYPE", value_parser = cache_type(), help_heading = "Model")]
    also_cache_type: Vec<CacheType>,

    #[command(flatten)]
    hardware: HardwareOptions,

    /// Write the card, the answers and the reports to DIR; with the same command, answers that are there are kept [default: certify-DATE-TIME]
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    out: Option<PathBuf>,

    /// Print certify.json instead of a table
    #[arg(long, help_heading = "Output")]
    json: bool,
}

fn share(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|share| (0.0..=1.0).contains(share)).ok_or("not a number from 0 to 1".to_owned())
}

/// llama.cpp's name of how the KV cache stores a number.
fn name_of(cache_type: CacheType) -> String {
    serde_json::to_value(cache_type).ok().and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
}

/// A file with a chat template and a type of the KV cache.
struct Candidate {
    model: String,
    template: Option<String>,
    cache_type: Option<CacheType>,
    /// A short name, unique on the card.
    label: String,
}

impl CertifyArgs {
    /// The models, the reference first.
    fn named(&self) -> Vec<&str> {
        let reference = self.against.as_deref().or(self.no_worse_than.as_deref());
        let mut named: Vec<&str> = Vec::new();
        for model in reference.into_iter().chain(self.model.iter().map(String::as_str)) {
            if !named.contains(&model) {
                named.push(model);
            }
        }
        named
    }

    /// What is compared: first what answers the cases, too, in the order of `bench`.
    fn candidates(&self) -> Vec<Candidate> {
        let models = self.named();
        let templates: Vec<Option<&String>> =
            if self.template.is_empty() { vec![None] } else { self.template.iter().map(Some).collect() };
        let caches = std::iter::once(None).chain(self.also_cache_type.iter().copied().map(Some));
        let mut candidates = Vec::new();
        for cache_type in caches {
            for (model, name) in models.iter().zip(short_names(&models)) {
                for template in &templates {
                    let stem = |file: &String| file.rsplit('/').next().unwrap_or(file).replace(".jinja", "");
                    let template_name = template.filter(|_| templates.len() > 1).map(stem);
                    let cache_name = cache_type.map(|one| format!("KV {}", name_of(one)));
                    let parts: Vec<String> = template_name.into_iter().chain(cache_name).collect();
                    let label = if parts.is_empty() { name.clone() } else { format!("{name} ({})", parts.join(", ")) };
                    let (model, template) = ((*model).to_owned(), template.cloned());
                    candidates.push(Candidate { model, template, cache_type, label });
                }
            }
        }
        candidates
    }

    fn options(&self, candidate: &Candidate) -> ModelOptions {
        let hardware = self.hardware.clone();
        ModelOptions {
            model: Some(candidate.model.clone()),
            models: self.models.clone(),
            no_entry: self.no_entry,
            offline: self.offline,
            template: candidate.template.clone(),
            format: self.format.clone(),
            ctx: None,
            hardware: match candidate.cache_type {
                Some(cache_type) => hardware.with_cache_type(cache_type),
                None => hardware,
            },
        }
    }

    /// The command that answers the cases.
    fn bench(&self, models: &[&str], out: &Path) -> Vec<String> {
        let mut command: Vec<String> = ["callwright", "bench", "--temp", "0", "--suite"].map(str::to_owned).to_vec();
        command.extend([self.suite.clone(), "--limit".to_owned(), self.limit.to_string()]);
        command.extend(["--out".to_owned(), out.display().to_string()]);
        command.extend(out.join("run.json").exists().then(|| "--resume".to_owned()));
        for model in models {
            command.extend(["--model".to_owned(), (*model).to_owned()]);
        }
        let templates = self.template.iter().map(|value| ("--template", value));
        for (option, value) in templates.chain(self.format.iter().map(|value| ("--format", value))) {
            command.extend([option.to_owned(), value.clone()]);
        }
        for (option, given) in [("--no-entry", self.no_entry), ("--offline", self.offline)] {
            command.extend(given.then(|| option.to_owned()));
        }
        command.extend(self.models.iter().flat_map(|file| ["--models".to_owned(), file.display().to_string()]));
        command
    }
}

pub fn run(args: CertifyArgs) -> Result<u8> {
    let began = Instant::now();
    let suite = Suite::open(&args.suite)?.limited(args.limit);
    let forced = cases(&suite);
    if forced.is_empty() {
        let message = format!("no case of {} says which call is right", suite.name);
        return Err(Error::new(ErrorKind::Suite, message).hint("an \"expected\" list of calls says it").into());
    }
    let out = args
        .out
        .clone()
        .unwrap_or_else(|| PathBuf::from(jiff::Zoned::now().strftime("certify-%Y%m%d-%H%M%S").to_string()));
    if !args.quick && !out.join("run.json").exists() {
        // Fails before a model is loaded.
        RunDirectory::check_free(&out)?;
    }
    let candidates = args.candidates();
    check_files(&args, &candidates)?;
    let interrupts = Interrupts::listen(PATIENCE)?;
    let mut progress = Bar::new(candidates.len() * forced.len());
    let (mut rows, mut measurements) = (Vec::new(), Vec::new());
    for candidate in &candidates {
        let done = measurements.len() * forced.len();
        let mut tell = |at| progress.at(&candidate.label, done + at);
        let (row, measured) = one(&args, candidate, &forced, &interrupts, &mut tell)?;
        if measured.interrupted {
            notice("interrupted: nothing was written");
            return Ok(INTERRUPTED);
        }
        rows.push(row);
        measurements.push(measured);
    }
    progress.bar.finish_and_clear();
    let answered = if args.quick { None } else { answers(&args, &args.named(), &out, &interrupts)? };
    if let Some(Asked { directory, finished: false, .. }) = &answered {
        notice(&format!("interrupted; the same command with --out {} goes on", directory.path().display()));
        return Ok(INTERRUPTED);
    }
    let summary = answered.as_ref().map(|asked| Summary::new(&asked.directory)).transpose()?;
    let comparisons = summary.as_ref().map(within).unwrap_or_default();
    if let Some((reference, others)) = measurements.split_first() {
        let compared = against(reference, &others.iter().collect::<Vec<_>>());
        for (index, against) in compared.into_iter().enumerate() {
            rows[index + 1].judge(&candidates[0].label, against, comparisons.get(index));
        }
    }
    for (row, scored) in rows.iter_mut().zip(summary.iter().flat_map(|summary| &summary.configurations)) {
        row.answered(scored);
    }
    let card = Card {
        callwright_certify: 1,
        callwright: env!("CARGO_PKG_VERSION").to_owned(),
        verdict: verdict(&rows, order(&rows, &measurements)),
        suite: suite.name.clone(),
        command: std::iter::once("callwright".to_owned()).chain(std::env::args().skip(1)).collect::<Vec<_>>().join(" "),
        date: jiff::Zoned::now().strftime("%Y-%m-%d").to_string(),
        seconds: began.elapsed().as_secs_f64(),
        files: rows,
    };
    if let Some(summary) = &summary {
        summary.write_reports()?;
    }
    let written = write(&card, &out)?;
    let mut text = screen::data();
    match args.json {
        true => write!(text, "{}", written[0].1)?,
        false => write!(text, "{}\nThe card: {}\n", table(&card), out.join("certify.html").display())?,
    }
    Ok(judged(&args, &card))
}

/// Checks, before anything takes long, that all files are there and have the tokenizer of the first.
fn check_files(args: &CertifyArgs, candidates: &[Candidate]) -> Result<()> {
    let mut reference: Option<Gguf> = None;
    for candidate in candidates {
        let (_, found) = args.options(candidate).open()?;
        if let Some(server) = found.entry().server() {
            let message =
                format!("{server}: the probability of a call needs the model's logits, which a server does not send");
            return Err(Error::new(ErrorKind::Config, message).hint("certify the model's GGUF").into());
        }
        let gguf = Gguf::open(found.path())?;
        match &reference {
            Some(reference) => check_tokenizer(reference, &gguf)?,
            None => reference = Some(gguf),
        }
    }
    Ok(())
}

/// Measures one file without generation.
fn one(
    args: &CertifyArgs,
    candidate: &Candidate,
    cases: &[(usize, Case)],
    interrupts: &Interrupts,
    progress: &mut dyn FnMut(usize),
) -> Result<(Row, Measured)> {
    // What earlier files left is not this one's.
    let before = resident();
    let options = args.options(candidate);
    let (mut session, mut loaded) = options.open_to_generate(true)?;
    options.load_weights(&mut loaded, &mut session)?;
    let gguf = Gguf::open(loaded.path())?;
    let measured = interrupts.during(|| measure(&mut session, cases, NOW, &interrupts.flag(), progress))?;
    if measured.left_out > 0 {
        notice(&format!("{}: {} cases are left out, whose prompts do not fit", candidate.label, measured.left_out));
    }
    let row = Row {
        label: candidate.label.clone(),
        model: candidate.model.clone(),
        cache_type: candidate.cache_type.map(name_of),
        file_size: gguf.file_size(),
        quantization: gguf.quantization().map(str::to_owned),
        memory: resident().zip(before).map(|(after, before)| after.saturating_sub(before)),
        template: session.template().name().to_owned(),
        format: session.format().name.clone(),
        faults: template::faults(session.template(), session.format(), &*loaded.engine())?,
        figures: Figures::of(&measured),
        against: None,
        correct: None,
        curve: None,
        answers: None,
        fewer_correct: false,
        word: "reference",
        sentence: String::new(),
    };
    Ok((row, measured))
}

/// Has all models answer the cases.
fn answers(args: &CertifyArgs, models: &[&str], out: &Path, interrupts: &Interrupts) -> Result<Option<Asked>> {
    let command = args.bench(models, out);
    let matches = Cli::command().try_get_matches_from(&command)?;
    let Some(bench) = matches.subcommand_matches("bench") else { return Ok(None) };
    let mut run = super::bench_run::RunArgs::from_arg_matches(bench)?;
    run.hardware = args.hardware.clone();
    asked(run, command, interrupts)
}

/// The files in the order of how far they depart from the reference, with the p-value of each step.
fn order(rows: &[Row], measured: &[Measured]) -> Option<String> {
    let (reference, others) = measured.split_first()?;
    if others.len() < 2 {
        return None;
    }
    let mut order: Vec<usize> = (0..others.len()).collect();
    let departs = |index: &usize| rows[index + 1].against.as_ref().and_then(|one| one.divergence).unwrap_or(f64::MAX);
    order.sort_by(|a, b| departs(a).total_cmp(&departs(b)));
    let steps = order.windows(2).map(|pair| further(reference, &others[pair[0]], &others[pair[1]]));
    let steps: Vec<f64> = steps.map(|step| step.map_or(1.0, |step| step.p)).collect();
    let mut text = format!("By how far they depart from {}: {}", rows[0].label, rows[order[0] + 1].label);
    for (index, p) in order[1..].iter().zip(holm(&steps)) {
        let sign = if p < LEVEL { "<" } else { "≈" };
        text += &format!(" {sign} {} ({})", rows[*index + 1].label, p_value(p));
    }
    Some(text + ".")
}

/// Writes the card's files.
fn write(card: &Card, out: &Path) -> Result<[(&'static str, String); 4]> {
    std::fs::create_dir_all(out).map_err(|error| Error::io("create", out, &error))?;
    let written = files(card)?;
    for (name, text) in &written {
        let path = out.join(name);
        disk::write(&path, text.as_bytes(), Readers::All).map_err(|error| Error::io("write", &path, &error))?;
    }
    Ok(written)
}

/// What the figures allow to say, and the figures.
fn table(card: &Card) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header([
        "",
        "verdict",
        "right token",
        "to the letter",
        "divergence",
        "correct",
        "tokens/s",
        "memory",
        "file",
    ]);
    for row in &card.files {
        let known = |text: Option<String>| text.unwrap_or("–".to_owned());
        table.add_row([
            row.label.clone(),
            row.word.to_owned(),
            percent(row.figures.token_probability),
            percent(row.figures.exact.share()),
            known(row.against.as_ref().and_then(|one| one.divergence).map(|nats| format!("{nats:.4}"))),
            known(row.correct.map(|score| percent(score.share()))),
            known(row.figures.decode_rate.map(|rate| format!("{rate:.0}"))),
            known(row.memory.map(bytes)),
            bytes(row.file_size),
        ]);
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 1));
        if index > 1 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let sentences: String = card.verdict.iter().map(|sentence| wrapped(sentence, 2)).collect();
    let lines: String = table.to_string().lines().map(|line| line.trim_end().to_owned() + "\n").collect();
    sentences + "\n" + &lines
}

/// The exit status.
fn judged(args: &CertifyArgs, card: &Card) -> u8 {
    let worse = args.no_worse_than.is_some() && card.files.iter().any(Row::is_worse);
    let mut below = false;
    for (row, wanted) in card.files.iter().filter_map(|row| Some((row, args.fail_under?))) {
        let reached = row.correct.unwrap_or(row.figures.exact);
        if reached.share() < wanted {
            notice(&format!(
                "{}: below {}: {} ({} of {})",
                row.label,
                percent(wanted),
                percent(reached.share()),
                reached.successes,
                reached.trials
            ));
            below = true;
        }
    }
    if worse || below { THRESHOLD } else { DONE }
}

/// The progress, with an estimate of what is left.
struct Bar {
    bar: ProgressBar,
    terminal: bool,
    began: Instant,
    reported: Instant,
    total: usize,
}

impl Bar {
    fn new(total: usize) -> Bar {
        let terminal = std::io::stderr().is_terminal();
        let bar = if terminal { ProgressBar::new(total as u64) } else { ProgressBar::hidden() };
        let style = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} cases, {eta} left");
        bar.set_style(style.unwrap_or(ProgressStyle::default_bar()));
        Bar { bar, terminal, began: Instant::now(), reported: Instant::now(), total }
    }

    fn at(&mut self, label: &str, done: usize) {
        self.bar.set_message(label.to_owned());
        self.bar.set_position(done as u64);
        if !self.terminal && self.reported.elapsed() >= LOG_EVERY {
            let left = self.began.elapsed().as_secs_f64() / done.max(1) as f64 * (self.total - done) as f64;
            say(format_args!("{label}: {done} of {} cases without generation, about {left:.0} s left\n", self.total));
            self.reported = Instant::now();
        }
    }
}
