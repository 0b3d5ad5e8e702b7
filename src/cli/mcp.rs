//! `callwright mcp`: what MCP servers offer.

use super::input::ModelOptions;
use super::screen::one_line;
use super::{DONE, FAILED, notice, screen};
use anstyle::Style;
use anyhow::Result;
use callwright::agent::exec::Executor;
use callwright::grammar::{Begins, Scope};
use callwright::mcp::Servers;
use callwright::message::Message;
use callwright::models::Gguf;
use callwright::session::Session;
use callwright::tool::{EffectSource, Policy, Tool};
use callwright::{Error, Tools};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};

/// List the tools of MCP servers
#[derive(Args)]
pub struct McpArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start the servers that FILE names, and list their tools, what each costs in a prompt, and what of its schema the grammar does not enforce
    #[command(after_help = "Example:\n  callwright mcp list mcp.json -m qwen3-0.6b")]
    List {
        /// Start the servers of this file: {"mcpServers": {"name": {"command", "args"} or {"url"}}}
        file: PathBuf,
        #[command(flatten)]
        model: Box<ModelOptions>,
        /// Print a JSON object
        #[arg(long)]
        json: bool,
    },
}

/// A tool in the list.
struct Row {
    name: String,
    description: String,
    policy: Policy,
    tokens: usize,
    unenforced: Vec<String>,
}

pub fn run(args: McpArgs) -> Result<u8> {
    let Command::List { file, model, json } = args.command;
    list(&file, &model, json)
}

fn list(file: &Path, model: &ModelOptions, json: bool) -> Result<u8> {
    // Before the model: what is wrong with the file should not take a model's loading to say.
    let mut servers = Servers::from_file(file)?;
    let mut tools = Tools::default();
    servers.add_to(&mut tools, &mut Executor::default());
    let (mut session, model) = model.open()?;
    session.notices().iter().for_each(|text| notice(text));
    servers.notices().iter().for_each(|text| notice(text));
    tools.take_notices().iter().for_each(|text| notice(&text.to_string()));
    let rows = tools.iter().map(|tool| row(tool, &mut session)).collect::<Result<Vec<_>, _>>()?;
    let total = tokens(&mut session, tools.iter())?.saturating_sub(tokens(&mut session, [].iter())?);
    let context = match model.entry().server() {
        Some(_) => Some(model.info().context_train as u64),
        // Without its weights, llama.cpp does not know it.
        None => Gguf::open(model.path())?.context_length(),
    };
    let reports = servers.reports();
    let failed = reports.iter().any(|report| report.failure.is_some());
    let mut out = screen::stdout();
    let of = |names: &[String]| {
        let names: Vec<String> = names.to_vec();
        rows.iter().filter(move |row| names.contains(&row.name))
    };
    if json {
        let servers: Vec<Value> = reports
            .iter()
            .map(|report| {
                let tools: Vec<Value> = of(&report.tools)
                    .map(|row| {
                        json!({"name": row.name, "description": row.description, "effect": row.policy.effect.as_str(),
                            "effect_from": row.policy.source.to_string(), "tokens": row.tokens,
                            "unenforced": row.unenforced})
                    })
                    .collect();
                json!({"name": report.server, "from": report.from, "failure": report.failure, "tools": tools})
            })
            .collect();
        let whole = json!({"servers": servers, "tokens": total, "context": context, "model": model.entry().name});
        writeln!(out, "{whole:#}")?;
    } else {
        let bold = Style::new().bold();
        for report in &reports {
            let state = match &report.failure {
                Some(_) => "did not start".to_owned(),
                None => count(report.tools.len(), "tool"),
            };
            writeln!(out, "{bold}{}{bold:#} ({}): {state}", one_line(&report.server), one_line(&report.from))?;
            let width = of(&report.tools).map(|row| row.name.chars().count()).max().unwrap_or(0);
            for row in of(&report.tools) {
                let about: String = row.description.lines().next().unwrap_or_default().chars().take(60).collect();
                let (name, effect) = (one_line(&row.name), row.policy.effect.as_str());
                // An effect that nothing says is in brackets.
                let effect =
                    if row.policy.source == EffectSource::Default { format!("({effect})") } else { effect.to_owned() };
                writeln!(out, "  {name:width$}  {:>5} tokens  {effect:11}  {}", row.tokens, one_line(&about))?;
                for unenforced in &row.unenforced {
                    writeln!(out, "  {:width$}  not enforced: {}", "", one_line(unenforced))?;
                }
            }
        }
        let share =
            context.map(|context| format!(", {}% of its context of {context}", 100 * total as u64 / context.max(1)));
        let (tools, model) = (count(rows.len(), "tool"), &model.entry().name);
        writeln!(out, "{tools}: {total} tokens in a prompt of {model}{}", share.unwrap_or_default())?;
    }
    out.flush()?;
    Ok(if failed { FAILED } else { DONE })
}

/// A tool, what it costs, and what of it is not enforced.
fn row(tool: &Tool, session: &mut Session) -> Result<Row, Error> {
    let other = Tool::new("x", "", None);
    // Next to another tool: the first one also pays for what is written around tools.
    let cost = tokens(session, [&other, tool].into_iter())?.saturating_sub(tokens(session, [&other].into_iter())?);
    let scope = Scope { begins: Begins::Answer, max_calls: None, only_calls: true };
    let unenforced = match session.format().grammar(&[tool], scope) {
        Ok(grammar) => grammar.unenforced.iter().map(ToString::to_string).collect(),
        Err(error) => vec![error.message().to_owned()],
    };
    let (name, description) = (tool.name.clone(), tool.description.clone());
    Ok(Row { name, description, policy: tool.policy.clone(), tokens: cost, unenforced })
}

/// How many tokens a prompt with these tools has.
fn tokens<'t>(session: &mut Session, tools: impl Iterator<Item = &'t Tool>) -> Result<usize, Error> {
    session.set_tools(Tools::new(tools.cloned())?);
    session.set_messages(vec![Message::user("?")])?;
    Ok(session.prompt()?.1.len())
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
