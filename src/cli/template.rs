//! `callwright template`: lists built-in formats and templates, and checks templates.

use super::model::Bars;
use super::{DONE, notice, screen};
use anstyle::{AnsiColor, Style};
use anyhow::Result;
use callwright::check::{Chosen, Cost, Difference, MarkerTokens, Outcome, Report, RoundTrip, Turn};
use callwright::choose::infer::Inference;
use callwright::choose::{Clues, Origin, is_name};
use callwright::engine::Engine;
use callwright::engine::llama::LoadOptions;
use callwright::error::nearest;
use callwright::format::{Builtin, Format};
use callwright::models::{Gguf, Hub};
use callwright::template::{ChatTemplate, ChatTemplates, Piece};
use callwright::{Error, ErrorKind, Model, ModelBuilder};
use serde_json::{Map, Value};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A template lacks what tool calls need.
const LACKING: u8 = 3;

/// Show formats and chat templates, and check a template
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  callwright template check chat.jinja")]
pub struct TemplateArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List the built-in tool-call formats, each with an example of a call
    #[command(after_help = "Example:\n  callwright template list")]
    List {
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Print a built-in format or chat template, for example to start your own from
    #[command(after_help = "Examples:\n  callwright template show hermes > mine.jinja\n  \
            callwright template show path/to/model.gguf")]
    Show {
        /// Print this one: a name from `callwright template list`, chatml, plain, or a GGUF, whose chat template is printed
        name: String,
    },
    /// Render conversations with a template and report what it can and cannot do
    #[command(after_help = "Examples:\n  callwright template check chat.jinja\n  \
            callwright template check chat.jinja -m qwen3-0.6b\n  \
            callwright template check path/to/model.gguf --json\n\n\
            Exit status: 0 sound, 3 where the template lacks something that tool calls need, or a call that it writes is \
            not read back as it was. `run` adds what is missing with an overlay: --format NAME checks it with one.")]
    Check(CheckArgs),
}

#[derive(Debug, clap::Args)]
struct CheckArgs {
    /// Check this template: a Jinja file, the name of a built-in format or template, or a GGUF [default: --model's]
    #[arg(required_unless_present = "model")]
    name: Option<String>,

    /// Count tokens with this model: a name from `callwright model list`, a path, hf:ORG/REPO/FILE.gguf[@REVISION] or hf:ORG/REPO[:QUANT]
    #[arg(short, long, value_name = "MODEL")]
    model: Option<String>,

    /// Add this models.toml to the built-in one and to $XDG_CONFIG_HOME/callwright/models.toml
    #[arg(long, value_name = "FILE", requires = "model")]
    models: Option<PathBuf>,

    /// Use only local files; never access the network
    #[arg(long)]
    offline: bool,

    /// Expect calls in this format: a built-in name or a file [default: what the template declares]
    #[arg(long, value_name = "NAME|FILE")]
    format: Option<String>,

    /// Set more of the template's variables: a JSON object, such as '{"enable_thinking": false}'
    #[arg(long, value_name = "JSON")]
    vars: Option<String>,

    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

/// Runs `callwright template`.
pub fn run(args: TemplateArgs) -> Result<u8> {
    match args.command {
        Command::List { json } => list(json),
        Command::Show { name } => show(&name),
        Command::Check(args) => check(&args),
    }
}

fn list(json: bool) -> Result<u8> {
    let mut out = screen::stdout();
    if json {
        let all: Vec<Value> = Format::builtins().iter().map(Builtin::to_json).collect();
        writeln!(out, "{:#}", Value::Array(all))?;
        return Ok(DONE);
    }
    let header = ["NAME", "PAYLOAD", "MODELS", "START … END"].map(str::to_owned);
    let rows = Format::builtins().iter().map(|builtin| {
        let format = builtin.format();
        [builtin.name.to_owned(), format.payload.kind().to_owned(), builtin.models.to_owned(), markers(format)]
    });
    let rows: Vec<[String; 4]> = std::iter::once(header).chain(rows).collect();
    let widths: [usize; 4] = std::array::from_fn(|column| width(rows.iter().map(|row| row[column].as_str())));
    let [w0, w1, w2, _] = widths;
    let line =
        |[name, payload, models, markers]: &[String; 4]| format!("{name:w0$}  {payload:w1$}  {models:w2$}  {markers}");
    writeln!(out, "{BOLD}{}{BOLD:#}", line(&rows[0]))?;
    for (row, builtin) in rows[1..].iter().zip(Format::builtins()) {
        writeln!(out, "{BOLD}{}{BOLD:#}", line(row))?;
        builtin.format().sample().lines().try_for_each(|line| writeln!(out, "    {line}"))?;
    }
    Ok(DONE)
}

/// The outermost markers.
fn markers(format: &Format) -> String {
    let section = format.section.as_ref();
    let start = section.map(|section| &section.start).or(format.start.as_ref());
    let end = section.map(|section| &section.end).or(format.end.as_ref());
    let text = |marker: Option<&callwright::format::Marker>| {
        marker.and_then(|marker| marker.text()).map_or_else(|| "–".to_owned(), |text| text.trim().to_owned())
    };
    format!("{} … {}", text(start), text(end))
}

/// The beginning of a long line.
fn cut(line: &str) -> String {
    let shown: String = line.chars().take(100).collect();
    if shown.len() < line.len() { shown + "…" } else { shown }
}

fn width<'a>(texts: impl Iterator<Item = &'a str>) -> usize {
    texts.map(|text| text.chars().count()).max().unwrap_or(0)
}

fn show(name: &str) -> Result<u8> {
    let text = match (Format::builtin(name), ChatTemplate::builtin(name)) {
        (Some(format), _) => format.source().to_owned(),
        (None, Some(template)) => template?.source().to_owned(),
        (None, None) if is_gguf(Path::new(name)) => {
            let gguf = Gguf::open(name)?;
            let source = gguf.chat_template(None).map(str::to_owned);
            source.ok_or_else(|| {
                Error::new(ErrorKind::Template, format!("{name} has no chat template"))
                    .hint("its prompts are written with a built-in one: callwright template show chatml, or plain for a base model")
            })?
        }
        // This error lists the names, and suggests the nearest.
        (None, None) => Format::load(name)?.source().to_owned(),
    };
    // Unfiltered: anstream would strip the file's control characters.
    screen::data().write_all(text.as_bytes())?;
    Ok(DONE)
}

/// Returns whether a file is a GGUF. A pipe is none, and can be read only once.
fn is_gguf(path: &Path) -> bool {
    if !path.is_file() {
        return false;
    }
    let mut magic = [0; 4];
    std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && &magic == b"GGUF"
}

/// A template to check, with its format.
struct Checked {
    template: Arc<ChatTemplate>,
    chosen: Chosen,
    /// Counts tokens.
    engine: Option<Box<dyn Engine>>,
}

impl Checked {
    fn load(args: &CheckArgs) -> Result<Checked> {
        let counting = args.model.as_deref().map(|model| vocabulary(model, args)).transpose()?;
        let name = args.name.as_deref().unwrap_or_default();
        let named = is_gguf(Path::new(name)).then(|| vocabulary(name, args)).transpose()?;
        let carrier = named.as_ref().or(counting.as_ref().filter(|_| args.name.is_none()));
        let (template, overlaid) = match carrier {
            Some(engine) => (own_template(&**engine)?, None),
            None => by_name(name)?,
        };
        let requested = args.format.as_deref().map(Format::load).transpose()?;
        let engine = counting.or(named);
        let mut chosen = choose(&template, overlaid, requested, engine.as_deref())?;
        if let Some(text) = &args.vars {
            let given: Map<String, Value> = serde_json::from_str(text)
                .map_err(|error| Error::new(ErrorKind::Syntax, format!("--vars is no JSON object: {error}")))?;
            chosen.variables.extend(given);
        }
        Ok(Checked { template, chosen, engine })
    }
}

/// The format to check with: of those that are not given, the one that a session chooses.
fn choose(
    template: &ChatTemplate,
    overlaid: Option<Format>,
    requested: Option<Format>,
    engine: Option<&dyn Engine>,
) -> Result<Chosen> {
    let model = engine.map(Engine::model);
    let tokens = || model.into_iter().flat_map(|model| model.control_tokens.iter().chain(&model.user_defined_tokens));
    let is_token = |text: &str| tokens().any(|token| token == text);
    let clues = Clues { architecture: model.map_or("", |model| &model.architecture), is_token: Some(&is_token) };
    Ok(Chosen::new(template, overlaid, requested, clues)?)
}

/// The chat template with that name or file; for a format, ChatML with the format as its overlay.
fn by_name(name: &str) -> Result<(Arc<ChatTemplate>, Option<Format>)> {
    let plain = || ChatTemplates::built_in().map(|templates| templates.into_chosen(false));
    if let Some(template) = ChatTemplate::builtin(name) {
        return Ok((Arc::new(template?), None));
    }
    if let Some(format) = Format::builtin(name) {
        return Ok((plain()?, Some(format.clone())));
    }
    if let Some(meant) = nearest(name, Format::names()).filter(|_| is_name(name)) {
        let message = format!("there is no chat template {name:?}, and no such file");
        let error = Error::new(ErrorKind::Template, message).hint(format!("did you mean the built-in `{meant}`?"));
        return Err(error.into());
    }
    let template = ChatTemplate::load(name)?;
    Ok(match Chosen::section_only(&template)? {
        Some(format) => (plain()?, Some(format)),
        None => (Arc::new(template), None),
    })
}

/// A model with only its vocabulary and chat templates loaded.
fn vocabulary(name: &str, args: &CheckArgs) -> Result<Box<dyn Engine>> {
    let mut hub = Hub::from_env();
    hub.offline |= args.offline;
    let options = LoadOptions { vocabulary_only: true, ..LoadOptions::default() };
    let builder = Model::builder().hub(hub).on_download(Bars::new()).load_options(options);
    let model = args.models.iter().fold(builder, ModelBuilder::models_file).open(name)?;
    model.notices().iter().for_each(|text| notice(text));
    Ok(model.engine())
}

fn own_template(engine: &dyn Engine) -> Result<Arc<ChatTemplate>> {
    Ok(engine.model().chat_templates()?.into_chosen(true))
}

/// What a template with a format lacks of what tool calls need, in words; nothing where it is sound.
pub fn faults(template: &ChatTemplate, format: &Format, engine: &dyn Engine) -> Result<Vec<String>> {
    let chosen = choose(template, None, Some(format.clone()), Some(engine))?;
    let mut subject = chosen.subject(template);
    (subject.bos_token, subject.eos_token) = (&engine.model().bos, &engine.model().eos);
    let report = subject.check(None)?;
    let lacking = report.lacking().map(|render| format!("it does not write {}", render.what));
    let unread = report.round_trips.iter().filter(|trip| trip.problem.is_some());
    let unread = unread.map(|trip| format!("{} is not read back as it was", trip.what));
    Ok(lacking.chain(unread).chain(report.problems.iter().cloned()).collect())
}

fn check(args: &CheckArgs) -> Result<u8> {
    let checked = Checked::load(args)?;
    let count = |text: &str| {
        let Some(engine) = &checked.engine else { return Ok(0) };
        let count = |text: &str| engine.tokenize(&[Piece { text: text.to_owned(), literal: false }]);
        // A token that begins every sequence is not part of the text.
        Ok(count(text)?.len() - count("")?.len())
    };
    let mut subject = checked.chosen.subject(&checked.template);
    if let Some(engine) = &checked.engine {
        (subject.bos_token, subject.eos_token) = (&engine.model().bos, &engine.model().eos);
    }
    let report = subject.check(checked.engine.is_some().then_some(&count))?;
    if args.json {
        let model = checked.engine.as_ref().map(|engine| engine.model().name.as_str());
        let value = checked.chosen.to_json(&checked.template, &report, model);
        writeln!(screen::data(), "{value:#}")?;
    } else {
        print(&checked, &report)?;
    }
    Ok(if report.sound() { DONE } else { LACKING })
}

const BOLD: Style = Style::new().bold();
const GREEN: Style = AnsiColor::Green.on_default();
const YELLOW: Style = AnsiColor::Yellow.on_default();
const RED: Style = AnsiColor::Red.on_default().bold();

fn print(checked: &Checked, report: &Report) -> Result<()> {
    let mut out = screen::stdout();
    let template = checked.template.name();
    let about = match (&checked.chosen.format, &checked.chosen.section, &checked.chosen.inferred) {
        (Some(format), Some(_), _) => format!(", with the overlay {}", format.name),
        (Some(_), None, Some(_)) => " declares no format; the one that it writes is at the end".to_owned(),
        (Some(format), None, None) => format!(", which writes the format {}", format.name),
        (None, _, _) => " declares no format, and none is seen in what it writes".to_owned(),
    };
    writeln!(out, "{BOLD}{template}{BOLD:#}{about}")?;
    if let Some(choice) = checked.chosen.choice.as_ref().filter(|choice| choice.origin != Origin::Declared) {
        writeln!(out, "Conversations with tools: {}.", choice.describe())?;
    }
    print_renders(&mut out, report)?;
    if checked.chosen.format.is_some() {
        print_round_trips(&mut out, &report.round_trips)?;
    }
    print_turns(&mut out, &report.turns)?;
    if let Some(engine) = &checked.engine {
        print_tokens(&mut out, &engine.model().name, &report.markers, &report.costs)?;
    }
    if let Some(inferred) = &checked.chosen.inferred {
        print_inferred(&mut out, inferred)?;
    }
    print_verdict(&mut out, checked, report)
}

fn print_inferred(out: &mut impl Write, inferred: &Inference) -> Result<()> {
    if let Some(format) = &inferred.format {
        writeln!(out, "\n{BOLD}The format it is seen to write{BOLD:#}, as a declaration for its beginning")?;
        format.to_toml().lines().try_for_each(|line| writeln!(out, "  {line}"))?;
    }
    if !inferred.notes.is_empty() {
        writeln!(out, "\n{BOLD}What is peculiar in what it writes{BOLD:#}")?;
    }
    inferred.notes.iter().try_for_each(|note| writeln!(out, "  {note}"))?;
    Ok(())
}

fn print_verdict(out: &mut impl Write, checked: &Checked, report: &Report) -> Result<()> {
    let lacking: Vec<&str> = report.lacking().map(|render| render.what).collect();
    writeln!(out)?;
    if !lacking.is_empty() {
        let lacking = lacking.join(", ");
        let added = checked.chosen.choice.as_ref().filter(|choice| choice.origin == Origin::Default);
        let adds = added.map_or_else(
            || "An overlay adds it: --format NAME.".to_owned(),
            |choice| {
                let name = &choice.format.name;
                format!("`run` adds it with the overlay {name}; `--format {name}` checks the template with it.")
            },
        );
        writeln!(out, "{RED}The template lacks what tool calls need:{RED:#} {lacking}. {adds}")?;
    }
    if report.round_trips.iter().any(|trip| trip.problem.is_some()) {
        writeln!(out, "{RED}Calls that it writes are not read back as they were.{RED:#}")?;
    }
    for problem in &report.problems {
        writeln!(out, "{RED}{}.{RED:#}", sentence(problem))?;
    }
    for remark in &report.remarks {
        writeln!(out, "{YELLOW}{}.{YELLOW:#}", sentence(remark))?;
    }
    if report.sound() {
        writeln!(out, "{GREEN}It has all that tool calls need.{GREEN:#}")?;
    }
    Ok(())
}

/// With a capital letter.
fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

fn print_renders(out: &mut impl Write, report: &Report) -> Result<()> {
    writeln!(out, "\n{BOLD}What it renders{BOLD:#}")?;
    let names = width(report.renders.iter().map(|render| render.what));
    let mut shown: Option<&str> = None;
    for render in &report.renders {
        let needed = if render.needed { "needed for tool calls" } else { "" };
        let bad = if render.needed { RED } else { YELLOW };
        let (style, word, more) = match &render.outcome {
            Outcome::Pass => (GREEN, "pass", ""),
            Outcome::Ignored => (bad, "ignored", needed),
            Outcome::Changed { how } => (YELLOW, "changed", how.as_str()),
            // One mistake often makes everything fail.
            Outcome::Fail { error } if shown == Some(error) => (bad, "fail", "as above"),
            Outcome::Fail { error } => (bad, "fail", error.lines().next().unwrap_or_default()),
            _ => (bad, "unknown", ""),
        };
        let gap = if more.is_empty() { 0 } else { 9 - word.len() };
        writeln!(out, "  {:names$}  {style}{word}{style:#}{:gap$}{more}", render.what, "")?;
        if let Outcome::Fail { error } = &render.outcome {
            if shown != Some(error) {
                error.lines().skip(1).try_for_each(|line| writeln!(out, "      {line}"))?;
            }
            shown = Some(error);
        }
    }
    Ok(())
}

fn print_round_trips(out: &mut impl Write, trips: &[RoundTrip]) -> Result<()> {
    writeln!(out, "\n{BOLD}Whether its calls are read back{BOLD:#}")?;
    let names = width(trips.iter().map(|trip| trip.what));
    // One example is sufficient.
    let mut shown = false;
    for trip in trips {
        let what = trip.what;
        if let (None, Some(repair)) = (&trip.problem, trip.repair) {
            writeln!(out, "  {what:names$}  {YELLOW}pass{YELLOW:#}     with a repair: {repair}")?;
            continue;
        }
        match (&trip.problem, &trip.declared) {
            (None, None) => writeln!(out, "  {what:names$}  {GREEN}pass{GREEN:#}")?,
            (None, Some(declared)) => {
                writeln!(out, "  {what:names$}  {GREEN}pass{GREEN:#}     but the format writes it differently")?;
                if !std::mem::replace(&mut shown, true) {
                    writeln!(out, "      the template: {:?}\n      the format:   {declared:?}", trip.written)?;
                }
            }
            (Some(problem), _) => {
                writeln!(out, "  {what:names$}  {RED}fail{RED:#}     {problem}")?;
                trip.written.trim_end().lines().try_for_each(|line| writeln!(out, "      {}", cut(line)))?;
            }
        }
    }
    if trips.is_empty() {
        writeln!(out, "  it writes no call that could be read")?;
    }
    Ok(())
}

fn print_turns(out: &mut impl Write, turns: &[Turn]) -> Result<()> {
    writeln!(out, "\n{BOLD}Whether each turn's prompt begins with the one before{BOLD:#}")?;
    let label = |turn: &Turn| format!("after {}{}", turn.after, if turn.reasoning { ", with reasoning" } else { "" });
    let labels: Vec<String> = turns.iter().map(label).collect();
    let names = width(labels.iter().map(String::as_str));
    for (turn, label) in turns.iter().zip(&labels) {
        let Some(Difference { at, tokens, lost, earlier, later, .. }) = &turn.differs else {
            writeln!(out, "  {label:names$}  {GREEN}pass{GREEN:#}")?;
            continue;
        };
        let place = match (tokens, lost) {
            (Some(tokens), Some(lost)) => format!("from token {tokens} on; {lost} are decoded again"),
            _ => format!("from byte {at} on"),
        };
        writeln!(out, "  {label:names$}  {YELLOW}differs{YELLOW:#}  {place}")?;
        writeln!(out, "      before: {earlier:?}\n      now:    {later:?}")?;
    }
    if turns.is_empty() {
        writeln!(out, "  it renders no two turns in a row")?;
    }
    Ok(())
}

fn print_tokens(out: &mut impl Write, model: &str, markers: &[MarkerTokens], costs: &[Cost]) -> Result<()> {
    if !markers.is_empty() {
        writeln!(out, "\n{BOLD}Its markers as tokens of {model}{BOLD:#}")?;
    }
    for MarkerTokens { marker, tokens, .. } in markers {
        let style = if *tokens == 1 { GREEN } else { YELLOW };
        writeln!(out, "  {style}{tokens:>3}{style:#}  {marker}")?;
    }
    writeln!(out, "\n{BOLD}What it costs in tokens of {model}{BOLD:#}")?;
    costs.iter().try_for_each(|Cost { what, tokens, .. }| writeln!(out, "  {tokens:>3}  {what}"))?;
    Ok(())
}
