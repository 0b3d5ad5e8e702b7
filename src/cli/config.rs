//! `callwright config`, and the defaults of options that a file or the environment sets.
//!
//! The defaults become clap's own, so that `--help` shows them, conflicts treat them as defaults, and each command reads
//! one set of options, whatever they come from.

use super::llama_args::meant;
use super::{Cli, DONE, screen};
use anstyle::Style;
use anyhow::Result;
use callwright::error::Location;
use callwright::{Error, ErrorKind, text_file};
use clap::{Arg, ArgAction, Command, CommandFactory, ValueEnum};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::ffi::OsString;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Names the file, in place of the usual one; an empty value is no file.
const VARIABLE: &str = "CALLWRIGHT_CONFIG";
/// What the variables of options begin with.
const PREFIX: &str = "CALLWRIGHT_";
/// Commands that must work with a file that is broken.
const WITHOUT: [&str; 5] = ["config", "doctor", "completions", "man", "help"];

/// Show the defaults of options, and where they come from
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  callwright config path\n  callwright config show run\n\n\
    The file has options without their dashes: `ctx = 8192`. A table such as [serve] has those of one command. \
    The variable CALLWRIGHT_CTX does the same for --ctx. The command line comes first, then the variable, then the \
    file. CALLWRIGHT_CONFIG names another file.")]
pub struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(clap::Subcommand)]
enum ConfigCommand {
    /// Show the defaults of a command's options, and where each comes from
    #[command(
        after_help = "Examples:\n  callwright config show\n  callwright config show bench calibrate --output json"
    )]
    Show {
        /// Show the options of this command
        #[arg(value_name = "COMMAND", default_value = "run")]
        command: Vec<String>,
        /// Print a table, or a JSON array
        #[arg(long, value_name = "FORM", default_value = "text")]
        output: Form,
    },
    /// Print the path of the file
    #[command(after_help = "Example:\n  callwright config path")]
    Path,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Form {
    Text,
    Json,
}

/// Runs `callwright config`.
pub fn run(args: ConfigArgs) -> Result<u8> {
    match args.command {
        ConfigCommand::Path => {
            let path = path().ok_or_else(no_folder)?;
            writeln!(screen::data(), "{}", path.display())?;
            Ok(DONE)
        }
        ConfigCommand::Show { command, output } => show(&command, output),
    }
}

fn no_folder() -> Error {
    if std::env::var_os(VARIABLE).is_some() {
        let error = Error::new(ErrorKind::Config, format!("no file of defaults is read: {VARIABLE} is empty"));
        return error.hint("unset it, or name a file with it");
    }
    let error = Error::new(ErrorKind::Config, "there is no folder for the configuration: no home folder is known");
    error.hint(format!("set HOME, or name a file with {VARIABLE}"))
}

/// The file that is read, whether or not it exists; `None` where there is none to read.
pub fn path() -> Option<PathBuf> {
    match std::env::var_os(VARIABLE) {
        Some(path) if path.is_empty() => None,
        Some(path) => Some(path.into()),
        None => Some(directories::ProjectDirs::from("", "", "callwright")?.config_dir().join("config.toml")),
    }
}

/// Defaults of options.
#[derive(Debug, Default)]
pub struct Settings {
    list: Vec<Setting>,
}

/// One default.
#[derive(Debug)]
struct Setting {
    /// The command whose option it is; empty for every command that has it.
    command: Vec<String>,
    /// The option, without its dashes.
    option: String,
    given: Given,
    origin: Origin,
}

/// A value as it was given.
#[derive(Debug)]
enum Given {
    /// Of an option without a value.
    Switch(bool),
    /// Of an option with a value, or several.
    Values(Vec<String>),
    /// A variable's, for either.
    Text(String),
}

impl Given {
    /// The values for an option, if it may have them as far as that can be listed. Commands may give one name to
    /// different options.
    fn for_option(&self, arg: &Arg) -> Option<Vec<String>> {
        let values = match (self, is_switch(arg)) {
            (Given::Switch(on), true) => return Some(vec![on.to_string()]),
            (Given::Text(text), true) => match text.as_str() {
                "1" | "true" => return Some(vec!["true".to_owned()]),
                "0" | "false" => return Some(vec!["false".to_owned()]),
                _ => return None,
            },
            (Given::Switch(_), false) | (Given::Values(_), true) => return None,
            (Given::Values(values), false) => values.clone(),
            (Given::Text(text), false) => vec![text.clone()],
        };
        let possible = arg.get_possible_values();
        let takes = |value: &String| possible.is_empty() || possible.iter().any(|one| one.matches(value, false));
        let several = values.len() == 1 || matches!(arg.get_action(), ArgAction::Append);
        (several && values.iter().all(takes)).then_some(values)
    }
}

/// Where a default comes from.
#[derive(Debug, Clone)]
enum Origin {
    File(Location),
    Variable(String),
}

impl Origin {
    fn name(&self) -> &'static str {
        match self {
            Origin::File(_) => "file",
            Origin::Variable(_) => "environment",
        }
    }

    fn place(&self) -> String {
        match self {
            Origin::File(place) => place.to_string(),
            Origin::Variable(name) => name.clone(),
        }
    }
}

impl Settings {
    /// The defaults for a command line of the program `root`: none where a broken file must not be in the way.
    ///
    /// # Errors
    /// Those of [`Settings::read`].
    pub fn for_args(args: &[OsString], root: &Command) -> Result<Settings, Error> {
        let text = |arg: &OsString| arg.to_str().unwrap_or_default().to_owned();
        let words: Vec<String> = args.iter().skip(1).map(text).collect();
        let first = words.iter().find(|word| !word.starts_with('-'));
        let helps = |word: &String| matches!(word.as_str(), "-h" | "--help" | "-V" | "--version");
        let without = first.is_none_or(|command| WITHOUT.contains(&command.as_str()));
        match Settings::read(root) {
            Err(_) if without || words.iter().any(helps) => Ok(Settings::default()),
            Ok(_) if without => Ok(Settings::default()),
            read => read,
        }
    }

    /// The defaults of the file and the environment for the options of `root`.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if the file cannot be read, [`ErrorKind::Syntax`] if it is not TOML, and [`ErrorKind::Config`]
    /// for what is not an option.
    pub fn read(root: &Command) -> Result<Settings, Error> {
        let mut settings = Settings::default();
        if let Some(path) = path()
            && (path.exists() || std::env::var_os(VARIABLE).is_some())
        {
            let text = text_file::read(&path)?;
            let file = File { path: &path, text: &text };
            let table = DeTable::parse(&text).map_err(|error| {
                let message = format!("not TOML: {}", error.message().trim());
                file.error(ErrorKind::Syntax, message, error.span().unwrap_or(0..0)).caused_by(error)
            })?;
            file.table(table.get_ref(), root, &mut Vec::new(), &mut settings.list)?;
        }
        settings.list.extend(variables(root));
        Ok(settings)
    }

    /// The setting that decides about an option, if there is one: the environment's before the command's before that of
    /// all commands.
    fn of(&self, command: &[String], arg: &Arg) -> Option<&Setting> {
        let option = arg.get_long()?;
        let fits =
            |setting: &&Setting| setting.option == option && (setting.command.is_empty() || setting.command == command);
        let rank = |setting: &&Setting| match setting.origin {
            Origin::Variable(_) => 0,
            Origin::File(_) if !setting.command.is_empty() => 1,
            Origin::File(_) => 2,
        };
        self.list.iter().filter(fits).filter(|setting| setting.given.for_option(arg).is_some()).min_by_key(rank)
    }

    /// The command line with these defaults.
    pub fn apply(&self, root: Command) -> Command {
        if self.list.is_empty() { root } else { self.applied(root, &[]) }
    }

    fn applied(&self, command: Command, path: &[String]) -> Command {
        let command = command.mut_args(|arg| {
            let values = self.of(path, &arg).and_then(|setting| setting.given.for_option(&arg));
            values.map_or(arg.clone(), |values| with_default(arg, values))
        });
        command.mut_subcommands(|subcommand| {
            let path: Vec<String> = path.iter().cloned().chain([subcommand.get_name().to_owned()]).collect();
            self.applied(subcommand, &path)
        })
    }

    /// Where the value comes from that clap refused, if it is a default.
    pub fn source(&self, error: &clap::Error, args: &[OsString]) -> Option<String> {
        let clap::error::ContextValue::String(refused) = error.get(clap::error::ContextKind::InvalidArg)? else {
            return None;
        };
        let option = refused.split([' ', '=']).next()?;
        let typed = |arg: &OsString| {
            let arg = arg.to_str().unwrap_or_default();
            arg == option || arg.strip_prefix(option).is_some_and(|rest| rest.starts_with('='))
        };
        let setting = self.list.iter().find(|setting| option.strip_prefix("--") == Some(&setting.option))?;
        (!args.iter().any(typed)).then(|| format!("{option} has this default from {}", setting.origin.place()))
    }
}

fn with_default(arg: Arg, values: Vec<String>) -> Arg {
    // clap keeps defaults as long as the program runs.
    arg.required(false).default_values(values.into_iter().map(|value| &*value.leak()))
}

/// Returns whether an option can have a default.
fn settable(arg: &Arg) -> bool {
    arg.get_long().is_some()
        && !arg.is_hide_set()
        && matches!(arg.get_action(), ArgAction::Set | ArgAction::Append | ArgAction::SetTrue | ArgAction::SetFalse)
}

fn is_switch(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::SetTrue | ArgAction::SetFalse)
}

/// All options of a command and its subcommands.
fn options(command: &Command) -> Vec<&Arg> {
    let own = command.get_arguments().filter(|arg| settable(arg));
    own.chain(command.get_subcommands().flat_map(options)).collect()
}

/// The defaults of the environment.
fn variables(root: &Command) -> Vec<Setting> {
    let options = options(root);
    let one = |(name, value): (OsString, OsString)| {
        let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
        let option = name.strip_prefix(PREFIX)?.to_ascii_lowercase().replace('_', "-");
        let known = options.iter().any(|arg| arg.get_long() == Some(&option));
        (known && !value.is_empty()).then(|| Setting {
            command: Vec::new(),
            option,
            given: Given::Text(value),
            origin: Origin::Variable(name),
        })
    };
    std::env::vars_os().filter_map(one).collect()
}

/// The file, while it is read.
struct File<'a> {
    path: &'a Path,
    text: &'a str,
}

impl File<'_> {
    /// An error at `span`, with the line and a caret.
    fn error(&self, kind: ErrorKind, message: impl Into<String>, span: Range<usize>) -> Error {
        Error::new(kind, message).marked(self.text, span).in_file(self.path)
    }

    /// Reads the table of `command`, which is at `path`.
    fn table(
        &self,
        table: &DeTable,
        command: &Command,
        path: &mut Vec<String>,
        list: &mut Vec<Setting>,
    ) -> Result<(), Error> {
        for (key, value) in table {
            let name = key.get_ref().replace('_', "-");
            if let Some(subcommand) = command.find_subcommand(&name).filter(|_| value.get_ref().is_table())
                && let DeValue::Table(inner) = value.get_ref()
            {
                path.push(name);
                self.table(inner, subcommand, path, list)?;
                path.pop();
                continue;
            }
            // The options of all commands are at the top.
            let known: Vec<&Arg> = match path.is_empty() {
                true => options(command),
                false => command.get_arguments().filter(|arg| settable(arg)).collect(),
            };
            let found: Vec<&&Arg> = known.iter().filter(|arg| arg.get_long() == Some(&name)).collect();
            let Some(arg) = found.first() else {
                return Err(self.unknown(key, &name, &known, command, path));
            };
            let given = self.given(key.get_ref(), value, &found)?;
            if !found.iter().any(|arg| given.for_option(arg).is_some()) {
                let possible = arg.get_possible_values();
                let possible: Vec<&str> = possible.iter().map(|one| one.get_name()).collect();
                let expected = match possible[..] {
                    [] => "one value".to_owned(),
                    _ => possible.join(", "),
                };
                let message = format!("{:?} cannot have this value; expected {expected}", key.get_ref());
                return Err(self.error(ErrorKind::Config, message, value.span()));
            }
            let place = Location { file: Some(self.path.to_owned()), ..self.line(key.span().start) };
            list.push(Setting { command: path.clone(), option: name, given, origin: Origin::File(place) });
        }
        Ok(())
    }

    fn line(&self, offset: usize) -> Location {
        Location { column: None, ..Location::of_offset(self.text, offset) }
    }

    fn unknown(
        &self,
        key: &Spanned<Cow<'_, str>>,
        name: &str,
        known: &[&Arg],
        command: &Command,
        path: &[String],
    ) -> Error {
        let who = match path {
            [] => "no command".to_owned(),
            path => format!("`callwright {}`", path.join(" ")),
        };
        let such = if path.is_empty() { "has such an option" } else { "has no such option" };
        let message = format!("unknown key {:?}: {who} {such}", key.get_ref());
        let error = self.error(ErrorKind::Config, message, key.span());
        let names: Vec<&str> = known.iter().filter_map(|arg| arg.get_long()).collect();
        let tables: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
        let synonym = meant(name).filter(|meant| names.contains(meant));
        let shown = if path.is_empty() { "run".to_owned() } else { path.join(" ") };
        let otherwise = format!("`callwright {shown} --help` lists options; the keys are their names without dashes");
        error.suggest(synonym.unwrap_or(name), names.into_iter().chain(tables), &otherwise)
    }

    /// The value of options with one name, as on the command line.
    fn given(&self, key: &str, value: &Spanned<DeValue>, found: &[&&Arg]) -> Result<Given, Error> {
        let switch = found.iter().any(|arg| is_switch(arg));
        Ok(match value.get_ref() {
            DeValue::Boolean(on) if switch => Given::Switch(*on),
            _ if found.iter().all(|arg| is_switch(arg)) => {
                let message = format!("{key:?} has the wrong type; expected true or false");
                return Err(self.error(ErrorKind::Config, message, value.span()));
            }
            DeValue::Array(items) => {
                Given::Values(items.iter().map(|item| self.value(key, item)).collect::<Result<_, _>>()?)
            }
            _ => Given::Values(vec![self.value(key, value)?]),
        })
    }

    fn value(&self, key: &str, value: &Spanned<DeValue>) -> Result<String, Error> {
        Ok(match value.get_ref() {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(number) => number.to_string(),
            DeValue::Float(number) => number.to_string(),
            DeValue::Boolean(on) => on.to_string(),
            DeValue::Datetime(time) => time.to_string(),
            DeValue::Array(_) | DeValue::Table(_) => {
                let message = format!("{key:?} has the wrong type; expected one value");
                return Err(self.error(ErrorKind::Config, message, value.span()));
            }
        })
    }
}

fn show(words: &[String], output: Form) -> Result<u8> {
    let root = Cli::command();
    let settings = Settings::read(&root)?;
    let root = settings.apply(root);
    let mut command = &root;
    for word in words {
        command = command.find_subcommand(word).ok_or_else(|| {
            let error = Error::new(ErrorKind::Config, format!("there is no command `{}`", words.join(" ")));
            let names: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
            let otherwise = format!("the commands are {}", names.join(", "));
            error.suggest(word, names, &otherwise)
        })?;
    }
    check(&settings, &root, words)?;
    let rows: Vec<Row> = command
        .get_arguments()
        .filter(|arg| settable(arg))
        .filter_map(|arg| {
            let values: Vec<Cow<'_, str>> =
                arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
            let setting = settings.of(words, arg);
            // A switch that is off is no news, and neither is an empty text.
            let silent = values.iter().all(|value| value.is_empty()) || (is_switch(arg) && setting.is_none());
            (!silent).then(|| Row {
                option: arg.get_long().unwrap_or_default().to_owned(),
                value: values.join(" "),
                origin: setting.map(|setting| setting.origin.clone()),
            })
        })
        .collect();
    let mut out = screen::stdout();
    if output == Form::Json {
        writeln!(out, "{:#}", rows.iter().map(Row::json).collect::<Value>())?;
        return Ok(DONE);
    }
    let width = |of: fn(&Row) -> &str, least: usize| {
        rows.iter().map(|row| of(row).chars().count()).chain([least]).max().unwrap_or(least)
    };
    let (options, values) = (width(|row| &row.option, "OPTION".len()), width(|row| &row.value, "DEFAULT".len()));
    let bold = Style::new().bold();
    writeln!(out, "{bold}{:options$}  {:values$}  FROM{bold:#}", "OPTION", "DEFAULT")?;
    for row in &rows {
        let from = row.origin.as_ref().map_or_else(|| "built in".to_owned(), Origin::place);
        writeln!(out, "{:options$}  {:values$}  {from}", row.option, row.value)?;
    }
    Ok(DONE)
}

/// A line of `config show`.
struct Row {
    option: String,
    value: String,
    origin: Option<Origin>,
}

impl Row {
    fn json(&self) -> Value {
        json!({
            "option": self.option,
            "value": self.value,
            "from": self.origin.as_ref().map_or("built in", Origin::name),
            "place": self.origin.as_ref().map(Origin::place),
        })
    }
}

/// Tries the defaults of a command: clap reads them before it misses what has to be given.
fn check(settings: &Settings, root: &Command, words: &[String]) -> Result<()> {
    let args: Vec<OsString> =
        ["callwright"].into_iter().chain(words.iter().map(String::as_str)).map(Into::into).collect();
    let Err(error) = root.clone().try_get_matches_from(&args) else { return Ok(()) };
    let Some(source) = settings.source(&error, &args) else { return Ok(()) };
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default();
    let message = first.strip_prefix("error: ").unwrap_or(first).to_owned();
    Err(Error::new(ErrorKind::Config, message).hint(source).into())
}
