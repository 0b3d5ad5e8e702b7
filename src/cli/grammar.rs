//! `callwright grammar`: shows the grammar of calls, and checks texts against it.

use super::input::{ToolsOptions, read_schema, read_text};
use super::stdin::{Source, batch};
use super::{DONE, notice, screen};
use anyhow::Result;
use callwright::agent::exec::Executor;
use callwright::constraint::Compiler;
use callwright::engine::vocabulary::Vocabulary;
use callwright::format::Format;
use callwright::grammar::{Begins, Grammar, Scope, json_grammar};
use callwright::session::ToolChoice;
use callwright::tool::Notice;
use callwright::{Error, ErrorKind};
use clap::Args;
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};

/// A text that `--check` rejected.
const REJECTED: u8 = 3;

/// Show the grammar that constrains calls, and what it does not enforce
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    callwright grammar --tools tools.json --tool-choice get_weather\n  \
    callwright grammar --json-schema person.json --check strings.txt")]
pub struct GrammarArgs {
    #[command(flatten)]
    tools: ToolsOptions,

    /// Use this tool-call format: a built-in name or a file
    #[arg(long, value_name = "NAME|FILE", default_value = "delimited")]
    format: String,

    /// Require a call: of any tool (required), or of the named one
    #[arg(long, value_name = "CHOICE", default_value = "required")]
    tool_choice: String,

    /// Allow at most N calls
    #[arg(long, value_name = "N", value_parser = super::input::positive, allow_negative_numbers = true)]
    max_calls: Option<usize>,

    /// Show the grammar of JSON that fits a schema instead of calls; any white space is allowed
    #[arg(long, value_name = "FILE", conflicts_with_all = ["tools", "tool_choice"])]
    json_schema: Option<PathBuf>,

    /// Use this grammar, in llguidance's Lark or in GBNF, instead of calls
    #[arg(long, value_name = "FILE", conflicts_with_all = ["tools", "tool_choice", "json_schema"])]
    grammar: Option<PathBuf>,

    /// Check the strings in FILE, one JSON string a line: print "accepted", or the byte where it fails
    #[arg(long, value_name = "FILE")]
    check: Option<PathBuf>,

    /// Read lines {"schema", "text"} and answer each with {"accepted"}, with "byte" where it is not
    #[arg(long, conflicts_with_all = ["tools", "tool_choice", "json_schema", "grammar", "check", "json"])]
    batch: bool,

    /// Print JSON: {"grammar", "unenforced", "notices"}; with --check a line for each string, like --batch
    #[arg(long)]
    json: bool,
}

/// A line of `--batch`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    schema: Value,
    text: String,
}

pub fn run(args: GrammarArgs) -> Result<u8> {
    if args.batch {
        let mut compiler = compiler(Format::delimited())?;
        return batch(Source::stdin(), |case: Case| {
            let grammar = json_grammar(&case.schema, true)?;
            Ok(answer(compiler.check(&grammar.lark, &case.text)?))
        });
    }
    let format = Format::load(&args.format)?;
    let (grammar, notices) = args.grammar(&format)?;
    match &args.check {
        Some(path) => check(&grammar, &mut compiler(&format)?, path, args.json),
        None => {
            let mut out = screen::data();
            if args.json {
                let whole = json!({"grammar": grammar.lark, "unenforced": grammar.unenforced, "notices": notices});
                writeln!(out, "{whole}")?;
            } else {
                grammar.unenforced.iter().for_each(|unenforced| notice(&unenforced.to_string()));
                write!(out, "{}", grammar.lark)?;
            }
            Ok(DONE)
        }
    }
}

fn compiler(format: &Format) -> Result<Compiler> {
    Ok(Compiler::for_format(Vocabulary::of_bytes(), format)?)
}

fn answer(failed: Option<usize>) -> Value {
    failed.map_or(json!({"accepted": true}), |byte| json!({"accepted": false, "byte": byte}))
}

fn check(grammar: &Grammar, compiler: &mut Compiler, path: &Path, json: bool) -> Result<u8> {
    let (mut out, mut status) = (screen::data(), DONE);
    for (index, line) in read_text(path)?.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let text: String = serde_json::from_str(line).map_err(|error| {
            Error::new(ErrorKind::Syntax, format!("line {} is no JSON string: {error}", index + 1)).in_file(path)
        })?;
        let failed = compiler.check(&grammar.lark, &text)?;
        if failed.is_some() {
            status = REJECTED;
        }
        match failed {
            _ if json => writeln!(out, "{}", answer(failed))?,
            None => writeln!(out, "accepted")?,
            Some(byte) if byte == text.len() => writeln!(out, "byte {byte}: it ends too early")?,
            Some(byte) => {
                let rest: String = text.get(byte..).unwrap_or_default().chars().take(20).collect();
                writeln!(out, "byte {byte}: {rest:?} does not fit")?;
            }
        }
    }
    Ok(status)
}

impl GrammarArgs {
    /// The grammar, and the changes that were made to its tools.
    fn grammar(&self, format: &Format) -> Result<(Grammar, Vec<Notice>)> {
        if let Some(path) = &self.grammar {
            return Ok((Grammar::from_file(path)?, Vec::new()));
        }
        if let Some(path) = &self.json_schema {
            let grammar = json_grammar(&read_schema(path)?, true).map_err(|error| error.in_file(path))?;
            return Ok((grammar, Vec::new()));
        }
        let tools = self.tools.unreported(&mut Executor::default())?;
        let notices = tools.notices().to_vec();
        let tools = self.tools.reported(tools)?;
        let only = match ToolChoice::from_name(&self.tool_choice, &tools)? {
            ToolChoice::Tool(name) => Some(name),
            ToolChoice::Required => None,
            _ => {
                let message = format!("--tool-choice {} holds an answer to no grammar", self.tool_choice);
                return Err(Error::new(ErrorKind::Config, message)
                    .hint("required, or a tool's name, does; with auto a call is held to the same from where it begins")
                    .into());
            }
        };
        let tools: Vec<_> = tools.iter().filter(|tool| only.as_ref().is_none_or(|name| *name == tool.name)).collect();
        let scope = Scope { begins: Begins::Answer, max_calls: self.max_calls, only_calls: true };
        Ok((format.grammar(&tools, scope)?, notices))
    }
}
