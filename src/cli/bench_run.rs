//! Runs a benchmark: the matrix from the command line, progress, thresholds.

use super::bench::show;
use super::bench_goals::{Goals, baseline, check_baseline, judged};
use super::bench_resume::{resumed, with_options};
use super::generation::{mode, one_of, other_forms, probability};
use super::hardware::HardwareOptions;
use super::input::{ModelOptions, Shown, positive, shown};
use super::run::{Interrupts, PATIENCE};
use super::sampling::temperature;
use super::{DONE, INTERRUPTED, notice, say};
use anyhow::Result;
use callwright::constraint::Mode;
use callwright::engine::LoraAdapter;
use callwright::engine::llama::parallel::MAX_SEQUENCES;
use callwright::engine::sampler::Sampling;
use callwright::hash::{sha256, sha256_of};
use callwright::models::{Gguf, Hub, ModelEntry, Models, bundled};
use callwright::parse::OtherForms;
use callwright::session::ToolChoice;
use callwright::{Error, ErrorKind, Tools};
use callwright_bench::ask::SessionAnswers;
use callwright_bench::configuration::Configuration;
use callwright_bench::directory::{ModelFile, Plan, RunDirectory};
use callwright_bench::report::percent;
use callwright_bench::run::{Answerer, Progress, run as ask_all};
use callwright_bench::shard::Shard;
use callwright_bench::suite::{Case, Suite};
use callwright_bench::summary::Summary;
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use std::fmt::Debug;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// How often to log the progress where no bar is shown.
const LOG_EVERY: Duration = Duration::from_secs(30);

/// The options of a run.
#[derive(Args)]
pub struct RunArgs {
    /// Ask these cases: builtin, builtin-multi-turn, a file (`bench init` writes an example), or bfcl:DIR[:CATEGORY,…]
    #[arg(long, value_name = "SUITE", default_value = "builtin", help_heading = "Cases")]
    suite: String,

    /// Ask only N of the cases, with each category's share; the same ones every time
    #[arg(long, value_name = "N", value_parser = positive, help_heading = "Cases")]
    limit: Option<usize>,

    /// Add N tools of other cases to those of each case; the same ones every time
    #[arg(long, value_name = "N", value_parser = positive, help_heading = "Cases")]
    more_tools: Option<usize>,

    /// Ask each case N times, with other seeds
    #[arg(long, value_name = "N", value_parser = positive, default_value_t = 1, help_heading = "Cases")]
    repeat: usize,

    /// Ask only the cases of part I of N, so that N machines share a run; `bench merge` makes one run of the parts
    #[arg(long, value_name = "I/N", help_heading = "Cases")]
    shard: Option<Shard>,

    /// Ask up to N cases at a time: more answers per minute, each with a longer latency. The cases share a context, or,
    /// with a model so small that this is slower, each core has its own
    #[arg(long, value_name = "N", value_parser = sequences, default_value_t = 1, help_heading = "Cases")]
    pub parallel_cases: usize,

    /// Answer each case as if it were the only one: slower, and the same answers to the last bit in any order, shard or resumed run
    #[arg(long, conflicts_with = "parallel_cases", help_heading = "Cases")]
    exact: bool,

    /// Use a predefined matrix. formats: hermes and delimited, each unconstrained and constrained
    #[arg(long, value_name = "NAME", help_heading = "Matrix", conflicts_with_all = ["format", "constrain"])]
    preset: Option<Preset>,

    /// Use this model, as for run; this and the following options may be repeated [default: the bundled model]
    #[arg(short, long, value_name = "MODEL", help_heading = "Matrix")]
    model: Vec<String>,

    /// Use this chat template: a built-in name or a Jinja file [default: the model's own]
    #[arg(long, value_name = "NAME|FILE", help_heading = "Matrix")]
    template: Vec<String>,

    /// Use this tool-call format: a built-in name or a file [default: the template's own, or delimited]
    #[arg(long, value_name = "NAME|FILE", help_heading = "Matrix")]
    format: Vec<String>,

    /// Constrain calls to the format and the tools' schemas [default: auto]
    #[arg(long, value_name = "off|auto|strict", value_parser = mode(), help_heading = "Matrix")]
    constrain: Vec<Mode>,

    /// Let the model decide whether to call, or require a call in each case that has tools [default: auto]
    #[arg(long, value_name = "auto|required", value_parser = one_of::<ToolChoice>(["auto", "required"]), help_heading = "Matrix")]
    tool_choice: Vec<ToolChoice>,

    /// Show the model only the N tools that fit the question best, or all of them [default: all]
    #[arg(long, value_name = "N|all", value_parser = shown, help_heading = "Matrix")]
    select_tools: Vec<Shown>,

    /// Sample with this temperature [default: the model's in models.toml, or 0]
    #[arg(long, value_name = "X", value_parser = temperature, help_heading = "Matrix", allow_negative_numbers = true)]
    temp: Vec<f32>,

    /// Require a call where the probability of one is at least P, as for run [default: the model's in models.toml]
    #[arg(long, value_name = "P", value_parser = probability, help_heading = "Sampling", allow_negative_numbers = true)]
    call_threshold: Option<f64>,

    /// Forbid calls where the probability of one is below P, as for run
    #[arg(long, value_name = "P", value_parser = probability, help_heading = "Sampling", allow_negative_numbers = true)]
    no_call_below: Option<f64>,

    /// Repair deviations from the format before scoring [default: on]
    #[arg(long, value_name = "on|off", help_heading = "Matrix")]
    repair: Vec<Repair>,

    /// Read calls in other forms than the format's, report them, or leave them as text, as for run
    #[arg(long, value_name = "read|report|off", default_value = "read", value_parser = other_forms(), help_heading = "Sampling")]
    other_forms: OtherForms,

    /// End an answer after N tokens
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = positive, help_heading = "Sampling")]
    max_tokens: usize,

    /// Derive each answer's seed from N and its case, configuration and repeat
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Sampling")]
    seed: u64,

    /// Add this models.toml to the built-in one and to $XDG_CONFIG_HOME/callwright/models.toml
    #[arg(long, value_name = "FILE", help_heading = "Model")]
    pub models: Option<PathBuf>,

    /// Ignore the model's entry in models.toml: its sampling, template, format, context, adapters, thresholds and fallbacks. An entry applies to its file also where that is named by a path
    #[arg(long, help_heading = "Model")]
    no_entry: bool,

    /// Use only local files; never access the network
    #[arg(long, help_heading = "Model")]
    pub offline: bool,

    /// Use a context of N tokens [default: what the prompt and --max-tokens need]
    #[arg(long, value_name = "N", value_parser = positive, help_heading = "Model")]
    ctx: Option<usize>,

    #[command(flatten)]
    pub hardware: HardwareOptions,

    /// Write the answers and reports to DIR [default: bench-DATE-TIME]
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub out: Option<PathBuf>,

    /// Resume the interrupted run in DIR, or in --out, with its original suite, models and options
    #[arg(long, value_name = "DIR", num_args = 0..=1, help_heading = "Output")]
    pub resume: Option<Option<PathBuf>>,

    /// Print report.json instead of a table
    #[arg(long, help_heading = "Output")]
    pub json: bool,

    #[command(flatten)]
    pub goals: Goals,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Preset {
    Formats,
}

#[derive(Debug, Clone, Copy, PartialEq, ValueEnum)]
enum Repair {
    On,
    Off,
}

fn sequences(text: &str) -> Result<usize, String> {
    let count = positive(text).ok().filter(|count| *count <= MAX_SEQUENCES);
    count.ok_or_else(|| format!("not a whole number from 1 to {MAX_SEQUENCES}"))
}

/// The options that name a model, its template and its format.
#[derive(Clone)]
struct Loaded {
    model: String,
    template: Option<String>,
    format: Option<String>,
    /// Its file, if it has one.
    file: Option<ModelFile>,
}

impl RunArgs {
    fn options(&self, loaded: &Loaded) -> ModelOptions {
        ModelOptions {
            model: Some(loaded.model.clone()),
            models: self.models.clone(),
            no_entry: self.no_entry,
            offline: self.offline,
            template: loaded.template.clone(),
            format: loaded.format.clone(),
            ctx: self.ctx,
            hardware: if self.exact { self.hardware.clone().without_caches() } else { self.hardware.clone() },
        }
    }

    /// The matrix: each configuration with the model to load for it.
    fn configurations(&self, case: &Case) -> Result<Vec<(Configuration, Loaded)>> {
        let or_none = |list: &[String]| match list {
            [] => vec![None],
            list => list.iter().cloned().map(Some).collect(),
        };
        let formats: Vec<String> = match self.preset {
            Some(Preset::Formats) => ["hermes", "delimited"].map(str::to_owned).to_vec(),
            None => self.format.clone(),
        };
        let models: Vec<String> =
            if self.model.is_empty() { vec![bundled::NAME.to_owned()] } else { self.model.clone() };
        let mut configurations: Vec<(Configuration, Loaded)> = Vec::new();
        let mut hub = Hub::from_env();
        hub.offline |= self.offline;
        let known = Models::load(self.models.as_deref())?;
        let models = models.iter().map(|model| Ok(super::input::find(&known, model, &hub)?.name));
        let models = models.collect::<Result<Vec<_>>>()?;
        for model in &models {
            let (hash, file) = self.file(model)?;
            for template in or_none(&self.template) {
                for format in or_none(&formats) {
                    let loaded =
                        Loaded { model: model.clone(), template: template.clone(), format, file: file.clone() };
                    let (base, temperature) = self.described(&loaded, &hash, case)?;
                    configurations.extend(self.combined(&base, temperature).map(|one| (one, loaded.clone())));
                }
            }
        }
        for index in 1..configurations.len() {
            let id = &configurations[index].0.id;
            if configurations[..index].iter().any(|(other, _)| other.id == *id) {
                let values = configurations[index].0.values().join(", ");
                return Err(Error::new(ErrorKind::Config, format!("duplicate configuration: {values}"))
                    .hint(match self.given_twice() {
                        Some((option, value)) => format!("--{option} {value} was given twice"),
                        None => {
                            "two models are the same file, or a format is what the template writes anyway".to_owned()
                        }
                    })
                    .into());
            }
        }
        Ok(configurations)
    }

    /// All combinations of the options that need no other session.
    fn combined(&self, base: &Configuration, temperature: f32) -> impl Iterator<Item = Configuration> {
        let modes = match self.preset {
            Some(Preset::Formats) => vec![Mode::Off, Mode::Strict],
            None if self.constrain.is_empty() => vec![Mode::Auto],
            None => self.constrain.clone(),
        };
        let choices = if self.tool_choice.is_empty() { vec![ToolChoice::Auto] } else { self.tool_choice.clone() };
        let shown = if self.select_tools.is_empty() { vec![Shown(None)] } else { self.select_tools.clone() };
        let temperatures = if self.temp.is_empty() { vec![temperature] } else { self.temp.clone() };
        let repairs = if self.repair.is_empty() { vec![Repair::On] } else { self.repair.clone() };
        let mut combined = Vec::new();
        for constrain in modes {
            for tool_choice in &choices {
                for temperature in &temperatures {
                    for repair in &repairs {
                        let sampling = Sampling { temperature: *temperature, ..base.sampling };
                        let (tool_choice, repair) = (tool_choice.clone(), *repair == Repair::On);
                        let one = Configuration { constrain, tool_choice, repair, sampling, ..base.clone() };
                        let with = |shown: &Shown| Configuration { select_tools: shown.0, ..one.clone() }.identified();
                        combined.extend(shown.iter().map(with));
                    }
                }
            }
        }
        combined.into_iter()
    }

    /// The first option of the matrix with a repeated value, and the value.
    fn given_twice(&self) -> Option<(&'static str, String)> {
        fn named<V: Debug>(values: &[V]) -> Vec<String> {
            values.iter().map(|value| format!("{value:?}").to_lowercase()).collect()
        }
        let options = [
            ("model", self.model.clone()),
            ("template", self.template.clone()),
            ("format", self.format.clone()),
            ("constrain", named(&self.constrain)),
            ("tool-choice", named(&self.tool_choice)),
            ("temp", self.temp.iter().map(ToString::to_string).collect()),
            ("repair", named(&self.repair)),
            (
                "select-tools",
                self.select_tools
                    .iter()
                    .map(|Shown(most)| most.map_or("all".to_owned(), |most| most.to_string()))
                    .collect(),
            ),
        ];
        options.into_iter().find_map(|(option, values)| {
            let again = values.iter().enumerate().find(|(index, value)| values[..*index].contains(value));
            Some((option, again?.1.clone()))
        })
    }

    /// The configuration of a model with its template and format, and the temperature that its makers recommend.
    fn described(&self, loaded: &Loaded, hash: &str, case: &Case) -> Result<(Configuration, f32)> {
        let (mut session, model) = self.options(loaded).open()?;
        let mut tools = Tools::from_value(&case.tools.to_json())?;
        // What was changed in a suite's tools is the same for each model, and for other cases.
        tools.take_notices();
        session.set_tools(tools);
        session.notices().iter().for_each(|text| notice(text));
        let recommended = Sampling::from(model.entry().sampling);
        let sampling = Sampling { seed: self.seed, ..recommended };
        let configuration = Configuration {
            model_sha256: hash.to_owned(),
            sampling,
            max_tokens: self.max_tokens,
            lora: self.adapters(model.entry())?,
            context: self.ctx,
            call_threshold: self.call_threshold.or(model.entry().call_threshold),
            no_call_below: self.no_call_below.or(model.entry().no_call_below),
            other_forms: self.other_forms,
            ..Configuration::new(&loaded.model, &session)
        };
        Ok((configuration, sampling.temperature))
    }

    /// The adapters of a model, with the hashes of their files.
    fn adapters(&self, entry: &ModelEntry) -> Result<Vec<String>> {
        let adapters = if self.hardware.lora.is_empty() { &entry.lora } else { &self.hardware.lora };
        let described = |adapter: &LoraAdapter| {
            let file = std::fs::File::open(&adapter.file);
            let hash = file.and_then(|file| sha256_of(file, &mut |_| ()));
            let hash = hash.map_err(|error| Error::io("read", &adapter.file, &error))?;
            Ok(format!("{adapter} ({hash})"))
        };
        adapters.iter().map(described).collect()
    }

    /// The hash of a model's file, and what is shown of it.
    fn file(&self, model: &str) -> Result<(String, Option<ModelFile>)> {
        let entry = Models::load(self.models.as_deref())?.resolve(model)?;
        let mut hub = Hub::from_env();
        hub.offline |= self.offline;
        if let Some(server) = entry.server() {
            // Nobody knows the file's hash: the address is what there is to compare.
            return Ok((sha256(server.to_string()), None));
        }
        let path = entry.ensure(&hub, &mut super::model::Bars::new())?;
        let failed = |error: std::io::Error| Error::io("read", &path, &error);
        let hash = std::fs::File::open(&path).and_then(|file| sha256_of(file, &mut |_| ())).map_err(failed)?;
        Ok((hash, Gguf::open(&path).ok().map(|gguf| ModelFile::of(&gguf))))
    }
}

pub fn run(args: RunArgs) -> Result<u8> {
    let command = std::iter::once("callwright".to_owned()).chain(std::env::args().skip(1)).collect();
    let interrupts = Interrupts::listen(PATIENCE)?;
    let Some(Asked { args, directory, baseline, finished }) = asked(args, command, &interrupts)? else {
        return Ok(DONE);
    };
    let summary = Summary::new(&directory)?;
    show(&summary, args.json)?;
    if !finished {
        notice(&format!("interrupted; `callwright bench --resume {}` goes on", directory.path().display()));
        return Ok(INTERRUPTED);
    }
    judged(&args.goals, baseline.as_ref(), &summary)
}

/// A run whose cases were asked, or as many of them as there was time for.
pub struct Asked {
    args: RunArgs,
    pub directory: RunDirectory,
    baseline: Option<RunDirectory>,
    pub finished: bool,
}

/// Asks the cases of a run that `command` begins or goes on with; `None` where there are none.
pub fn asked(args: RunArgs, command: Vec<String>, interrupts: &Interrupts) -> Result<Option<Asked>> {
    let (args, found) = resumed(args)?;
    let suite = match found {
        Some(suite) => suite,
        None => {
            let suite = Suite::open(&args.suite)?;
            // Before the limit: the tools of all cases are there to be added.
            let suite = args.more_tools.map_or(Ok(suite.clone()), |count| suite.with_more_tools(count))?;
            args.limit.map_or(suite.clone(), |limit| suite.limited(limit))
        }
    };
    if let Some(shard) = args.shard {
        shard.check(&suite)?;
    }
    let resume = args.resume.is_some();
    let baseline = args.goals.baseline.as_deref().map(|path| baseline(path, &suite)).transpose()?;
    let out = args.out.clone().unwrap_or_else(by_time);
    if !resume {
        // Fails before a model is loaded.
        RunDirectory::check_free(&out)?;
    }
    let Some(case) = suite.cases.first() else { return Ok(None) };
    let (configurations, loaded): (Vec<_>, Vec<_>) = args.configurations(case)?.into_iter().unzip();
    let mut plan = Plan::new(&suite, configurations, args.repeat);
    plan.command = command;
    plan.date = Some(jiff::Zoned::now().date().to_string());
    plan.parallel_cases = args.parallel_cases;
    plan.shard = args.shard;
    plan.exact = args.exact;
    let files = plan.configurations.iter().zip(&loaded);
    plan.files = files.filter_map(|(one, loaded)| Some((one.model_sha256.clone(), loaded.file.clone()?))).collect();
    check_baseline(baseline.as_ref(), &plan)?;
    let started = RunDirectory::start(&out, plan.clone(), &suite, resume);
    let mut directory =
        started.map_err(|error| if resume { with_options(error, &out, &plan, &suite) } else { error })?;
    directory.notices.iter().for_each(|text| notice(text));
    let finished = interrupts.during(|| ask(&args, &mut directory, &loaded, &interrupts.flag()))?;
    Ok(Some(Asked { args, directory, baseline, finished }))
}

/// Asks the cases that have no answer yet; false if it was interrupted.
fn ask(args: &RunArgs, directory: &mut RunDirectory, loaded: &[Loaded], cancel: &Arc<AtomicBool>) -> Result<bool> {
    let terminal = std::io::stderr().is_terminal();
    let bar = if terminal { ProgressBar::new(0) } else { ProgressBar::hidden() };
    let mut reported = Instant::now();
    let style = "{wide_bar} {pos}/{len} {msg} {per_sec}, {eta} left";
    bar.set_style(ProgressStyle::with_template(style).unwrap_or(ProgressStyle::default_bar()));
    let now = directory.plan.now.clone();
    let mut open = |index: usize, questions: usize| {
        let loaded = at(loaded, index)?;
        let count = args.parallel_cases.min(questions);
        bar.suspend(|| answerers(args, loaded, count, &now, cancel)).map_err(as_error)
    };
    let mut progress = |at: Progress| {
        bar.set_length(at.total as u64);
        if at.fresh == 0 {
            // Answers of earlier runs do not count for the rate.
            bar.set_position(at.done as u64);
            bar.reset_eta();
        } else {
            bar.set_position(at.done as u64);
            let correct = percent(at.correct as f64 / at.fresh as f64);
            if !terminal && reported.elapsed() >= LOG_EVERY {
                say(format_args!(
                    "{} of {} answers, {correct} of those in this run correct, over all configurations\n",
                    at.done, at.total
                ));
                reported = Instant::now();
            }
            bar.set_message(format!("{correct} correct,"));
        }
    };
    let finished = ask_all(directory, &mut open, &mut progress, cancel)?;
    bar.finish_and_clear();
    Ok(finished)
}

/// A free name for a run's directory: the time, and a number where another run began in the same second.
fn by_time() -> PathBuf {
    let name = jiff::Zoned::now().strftime("bench-%Y%m%d-%H%M%S").to_string();
    let others = (2..).map(|number| PathBuf::from(format!("{name}-{number}")));
    let mut names = std::iter::once(PathBuf::from(&name)).chain(others);
    names.find(|place| !place.exists()).unwrap_or_default()
}

/// The model to load for the configuration with that index.
fn at<T>(loaded: &[T], index: usize) -> Result<&T, Error> {
    let count = loaded.len();
    loaded
        .get(index)
        .ok_or_else(|| Error::new(ErrorKind::Config, format!("the run has no configuration {index}, only {count}")))
}

/// Loads a model and makes at most `count` answerers with it.
fn answerers(
    args: &RunArgs,
    loaded: &Loaded,
    count: usize,
    now: &str,
    stop: &Arc<AtomicBool>,
) -> Result<Vec<Box<dyn Answerer>>> {
    let options = args.options(loaded);
    let answers = |session| SessionAnswers::new(session, now, Arc::clone(stop));
    if args.parallel_cases == 1 {
        let (mut session, mut model) = options.open_to_generate(true)?;
        options.load_weights(&mut model, &mut session)?;
        let answers = answers(session)?;
        return Ok(vec![Box::new(if args.exact { answers.one_by_one(model) } else { answers })]);
    }
    let model = options.load()?;
    let sequences = model.sequences(count)?;
    let one = |_| -> Result<Box<dyn Answerer>> {
        let (engine, end) = sequences.take()?;
        let answers = answers(model.session_on(engine)?)?;
        Ok(match end {
            Some(end) => Box::new(answers.with_after(move || end.end())),
            None => Box::new(answers),
        })
    };
    (0..count.min(sequences.at_a_time())).map(one).collect()
}

fn as_error(error: anyhow::Error) -> Error {
    error.downcast::<Error>().unwrap_or_else(|error| Error::new(ErrorKind::Engine, format!("{error:#}")))
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_unknown_configuration_is_an_error_and_not_the_first_model() {
        assert_eq!(super::at(&["a", "b"], 1).unwrap(), &"b");
        assert_eq!(super::at(&["a", "b"], 2).unwrap_err().message(), "the run has no configuration 2, only 2");
    }
}
