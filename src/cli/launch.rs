//! `callwright launch`: what an agent needs to use a server of this program.

mod agents;

use super::serve::KEY;
use super::{DONE, notice, screen};
use agents::{AGENTS, Agent, Values};
use anyhow::{Context, Result};
use callwright::{Error, ErrorKind};
use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::Value;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// Where a server is looked for.
const USUAL: &str = "http://127.0.0.1:8080";
/// How long a look at that address may take.
const LOOK: Duration = Duration::from_secs(1);

/// Start an agent with a model of this program, or print the settings that it needs
#[derive(Args)]
#[command(after_help = "Examples:\n  callwright launch codex -m qwen3-0.6b\n  callwright launch claude --print\n  \
    callwright launch opencode -- run \"What is in this folder?\"")]
pub struct LaunchArgs {
    /// Start or set up this agent
    #[arg(value_parser = PossibleValuesParser::new(AGENTS.iter().map(|agent| agent.name)))]
    agent: String,

    /// Use the server at this address [default: http://127.0.0.1:8080 if callwright serves there, or else a new server]
    #[arg(long, value_name = "URL")]
    url: Option<String>,

    /// Use this model: of a running server by its name there, of a new one as in callwright serve [default: the first, or the bundled model]
    #[arg(short, long, value_name = "MODEL")]
    model: Option<String>,

    /// Give each request to a new server a context of at most N tokens [default: what the model was trained for]
    #[arg(short, long, value_name = "N", value_parser = super::input::positive)]
    ctx: Option<usize>,

    /// Print what starts the agent, and do not start it
    #[arg(long)]
    print: bool,

    /// Pass these arguments to the agent, after --
    #[arg(last = true, value_name = "ARGUMENT")]
    arguments: Vec<OsString>,
}

pub fn run(args: LaunchArgs) -> Result<u8> {
    let agent = AGENTS.iter().find(|agent| agent.name == args.agent).context("the table has each agent")?;
    let starts = !agent.program.is_empty() && !args.print;
    let address = args.url.as_deref().map(|url| url.trim_end_matches('/').trim_end_matches("/v1").to_owned());
    let running = match address.or_else(usual) {
        Some(url) => Some((described(&url)?, url)),
        None => None,
    };
    let (models, url, mut server) = match running {
        Some((models, url)) => (models, url, None),
        None => {
            let (url, server) = serve(&args, starts)?;
            (described(&url)?, url, Some(server))
        }
    };
    // A new server has one model, whose name there is another one than what was given.
    let wanted = args.model.as_deref().filter(|_| server.is_none());
    let model = chosen(&models, wanted, &url)?;
    let values = Values {
        url,
        model: model["id"].as_str().unwrap_or_default().to_owned(),
        context: model["context_length"].as_u64().unwrap_or(agents::CONTEXT),
        key: if std::env::var_os(KEY).is_some() { format!("${KEY}") } else { "none".to_owned() },
    };
    if values.context < agent.prompt * 5 / 4 {
        notice(&format!(
            "a request of {} has {} tokens or more, and {} takes {}: give a model with a longer context with -m",
            agent.title, agent.prompt, values.model, values.context
        ));
    }
    if !starts {
        let mut out = screen::data();
        writeln!(out, "{}", agent.settings(&values)).and_then(|()| out.flush())?;
        if let Some(server) = &mut server {
            notice(&format!("the server at {} runs here until Ctrl-C", values.url));
            server.0.wait()?;
        }
        return Ok(DONE);
    }
    let status = start(agent, values, &args.arguments)?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(super::FAILED))
}

/// The usual address, if callwright serves there.
fn usual() -> Option<String> {
    let address = USUAL.trim_start_matches("http://").parse().ok()?;
    TcpStream::connect_timeout(&address, LOOK).ok()?;
    let models = described(USUAL).ok()?;
    models.iter().any(|model| model["owned_by"] == "callwright").then(|| USUAL.to_owned())
}

/// The models of the server at this address.
fn described(url: &str) -> Result<Vec<Value>> {
    let key = std::env::var_os(KEY).is_some().then_some(KEY);
    Ok(callwright::remote::described(&format!("{url}/v1"), key)?)
}

/// The model with this name, or the first.
fn chosen<'m>(models: &'m [Value], name: Option<&str>, url: &str) -> Result<&'m Value> {
    let found = models.iter().find(|model| name.is_none_or(|name| model["id"] == name));
    found.ok_or_else(|| {
        let names: Vec<&str> = models.iter().filter_map(|model| model["id"].as_str()).collect();
        let message = format!("the server at {url} has no model {:?}", name.unwrap_or_default());
        Error::new(ErrorKind::ModelNotFound, message).hint(format!("it has: {}", names.join(", "))).into()
    })
}

/// A server that ends with this value.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server, and returns its address. That for an agent in this terminal writes nothing there.
fn serve(args: &LaunchArgs, hidden: bool) -> Result<(String, Started)> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["serve", "--port", if hidden { "0" } else { "8080" }]).stdin(Stdio::null()).stdout(Stdio::piped());
    command.stderr(if hidden { Stdio::piped() } else { Stdio::inherit() });
    let context = args.ctx.map(|context| context.to_string());
    for (option, value) in [("-m", &args.model), ("--ctx", &context)] {
        command.args(value.iter().flat_map(|value| [option, value]));
    }
    let mut server = Started(command.spawn().context("callwright serve")?);
    let mut first = String::new();
    let mut out = BufReader::new(server.0.stdout.take().context("its output is read here")?);
    out.read_line(&mut first)?;
    let mut error = server.0.stderr.take();
    let Some((_, url)) = first.trim().rsplit_once(" at ") else {
        error.iter_mut().for_each(|error| drop(std::io::copy(error, &mut screen::stderr())));
        return Err(Error::new(ErrorKind::Config, "callwright serve did not start").into());
    };
    // A full pipe would stop it.
    std::thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
    std::thread::spawn(move || error.map(|mut error| std::io::copy(&mut error, &mut std::io::sink())));
    Ok((url.to_owned(), server))
}

/// Runs an agent to its end.
fn start(agent: &Agent, values: Values, arguments: &[OsString]) -> Result<ExitStatus> {
    let key = std::env::var(KEY).unwrap_or_else(|_| values.key.clone());
    let values = Values { key, ..values };
    let mut command = Command::new(agent.program);
    command.args(agent.args.iter().map(|text| values.put_into(text))).args(arguments);
    command.envs(agent.environment.iter().map(|(name, text)| (name, values.put_into(text))));
    command.status().map_err(|error| {
        let message = format!("{} cannot be started: {}: {error}", agent.title, agent.program);
        Error::new(ErrorKind::Config, message)
            .hint(format!("install it with: {}; --print shows what it needs", agent.install))
            .into()
    })
}
