//! `callwright serve`.

use super::generation::{mode, one_of};
use super::hardware::HardwareOptions;
use super::input::positive;
use super::{DONE, notice, say, screen, size};
use crate::serve::{OwnTools, ServeOptions, Server, StreamArguments};
use anyhow::Result;
use callwright::agent::exec::Executor;
use callwright::constraint::Mode;
use callwright::engine::LoadOptions;
use callwright::models::Hub;
use callwright::session::{ContextPolicy, Options};
use callwright::{Error, ErrorKind, Tools};
use clap::Args;
use std::io::Write;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The variable of the environment that has the key.
pub(super) const KEY: &str = "CALLWRIGHT_API_KEY";

/// Serve models over HTTP, as OpenAI's and Anthropic's APIs do
#[derive(Args)]
#[command(after_help = "Example:\n  callwright serve -m qwen3-0.6b --port 8080\n  \
    curl http://127.0.0.1:8080/v1/chat/completions -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}'")]
pub struct ServeArgs {
    /// Serve this model: a name from `callwright model list`, a path, or hf:ORG/REPO[:QUANT]; may be repeated, each is loaded when it is first requested [default: the bundled model]
    #[arg(short, long, value_name = "MODEL", help_heading = "Model")]
    model: Vec<String>,

    /// Add this models.toml to the built-in one and to $XDG_CONFIG_HOME/callwright/models.toml
    #[arg(long, value_name = "FILE", help_heading = "Model")]
    models: Option<PathBuf>,

    /// Ignore the models' entries in models.toml: their sampling, template, format, context, adapters, thresholds and fallbacks. An entry applies to its file also where that is named by a path
    #[arg(long, help_heading = "Model")]
    no_entry: bool,

    /// Use only local files; never access the network
    #[arg(long, help_heading = "Model")]
    offline: bool,

    #[command(flatten)]
    hardware: HardwareOptions,

    /// Start the MCP servers that FILE names, and let the page offer and run their tools
    #[arg(long, value_name = "FILE", help_heading = "Server")]
    mcp: Option<PathBuf>,

    /// Keep loaded models within this size, such as 8G; the one that was not used for the longest time is released
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = "Model")]
    memory_budget: Option<u64>,

    /// Answer up to N requests at the same time, for each model
    #[arg(long, alias = "np", value_name = "N", default_value = "4", help_heading = "Server", value_parser = positive)]
    parallel: usize,

    /// Require a call in an answer to the user where the probability of one is at least P, from 0 to 1 [default: the model's in models.toml, or never]
    #[arg(long, value_name = "P", value_parser = super::generation::probability, help_heading = "Answers")]
    call_threshold: Option<f64>,

    #[command(flatten)]
    server: ServerOptions,
}

/// The options of every server.
#[derive(Args)]
pub struct ServerOptions {
    /// Use this chat template: a built-in name or a Jinja file [default: each model's own]
    #[arg(long, value_name = "NAME|FILE", help_heading = "Model")]
    template: Option<String>,

    /// Use this tool-call format: a built-in name or a file [default: the template's own, or delimited]
    #[arg(long, value_name = "NAME|FILE", help_heading = "Model")]
    format: Option<String>,

    /// Give each request a context of at most N tokens [default: what the model was trained for]
    #[arg(short, long, alias = "ctx-size", value_name = "N", help_heading = "Model", value_parser = positive, allow_negative_numbers = true)]
    ctx: Option<usize>,

    /// Listen at this address, or at the address of this name
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", help_heading = "Server")]
    host: String,

    /// Listen at this port; 0 takes a free one
    #[arg(long, value_name = "N", default_value_t = 8080, help_heading = "Server")]
    port: u16,

    /// Let clients call the server by this name too, such as the name of a container; may be repeated
    #[arg(long, value_name = "NAME", help_heading = "Server")]
    allow_host: Vec<String>,

    /// Require the API key in this file; the environment variable CALLWRIGHT_API_KEY does the same
    #[arg(long, value_name = "FILE", help_heading = "Server")]
    api_key_file: Option<PathBuf>,

    /// Serve other machines without an API key
    #[arg(long, help_heading = "Server")]
    no_auth: bool,

    /// Let web pages of this origin use the server, such as http://localhost:3000; may be repeated
    #[arg(long, value_name = "ORIGIN", help_heading = "Server")]
    cors: Vec<String>,

    /// Answer with an error if a conversation does not fit the context, so that the client shortens it, or shorten old results and turns here
    #[arg(long, value_name = "shorten|error", default_value = "error", value_parser = one_of::<ContextPolicy>(["shorten", "error"]), help_heading = "Server")]
    context_policy: ContextPolicy,

    /// Let N more requests wait; further ones get status 429
    #[arg(long, value_name = "N", default_value_t = 64, help_heading = "Server")]
    queue: usize,

    /// End a request after this many seconds, waiting included; its client gets what was written
    #[arg(long, value_name = "SECONDS", default_value = "600", help_heading = "Server", value_parser = seconds)]
    timeout: Duration,

    /// After a signal to end, let running answers go on for this many seconds
    #[arg(long, value_name = "SECONDS", default_value = "10", help_heading = "Server", value_parser = seconds)]
    grace: Duration,

    /// Refuse request bodies larger than this
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = size, help_heading = "Server")]
    max_body: u64,

    /// Do not write a line to standard error for each request
    #[arg(long, help_heading = "Server")]
    quiet: bool,

    /// Log the bodies of requests, which have what users write
    #[arg(long, help_heading = "Server")]
    log_requests: bool,

    /// End an answer after N tokens where the request has no limit of its own
    #[arg(short = 'n', long, value_name = "N", default_value = "4096", help_heading = "Answers", value_parser = positive)]
    max_tokens: usize,

    /// Constrain calls to the format and the tools' schemas; strict: refuse a request for which that is impossible
    #[arg(long, value_name = "off|auto|strict", default_value = "auto", value_parser = mode(), help_heading = "Answers")]
    constrain: Mode,

    /// Stream a call once it is complete, so that no client gets one that is cut off, or its arguments as they are written
    #[arg(long, value_name = "complete|written", default_value = "complete", value_parser = one_of::<StreamArguments>(["complete", "written"]), help_heading = "Answers")]
    stream_arguments: StreamArguments,

    /// Seed the random numbers of requests without a seed with N [default: another seed for each, which is reported]
    #[arg(short, long, value_name = "N", help_heading = "Answers")]
    seed: Option<u64>,
}

/// Serve the models of another server, whose calls are read, checked and constrained here
#[cfg(feature = "remote")]
#[derive(Args)]
#[command(
    after_help = "Example:\n  callwright proxy --upstream http://127.0.0.1:11434/v1 --template chatml --port 8080"
)]
pub struct ProxyArgs {
    /// Complete prompts with the server at this address, the one of its OpenAI API. Its key is in the environment variable CALLWRIGHT_UPSTREAM_KEY
    #[arg(long, value_name = "URL", help_heading = "Model")]
    upstream: String,

    /// Serve this model of the server; may be repeated [default: all that it lists]
    #[arg(short, long, value_name = "MODEL", help_heading = "Model")]
    model: Vec<String>,

    /// Answer up to N requests at the same time, for each model
    #[arg(long, value_name = "N", default_value = "32", help_heading = "Server", value_parser = positive)]
    parallel: usize,

    #[command(flatten)]
    server: ServerOptions,
}

pub fn run(args: ServeArgs) -> Result<u8> {
    if args.model.len() > 1 && !args.hardware.lora.is_empty() {
        return Err(Error::new(ErrorKind::Config, "--lora is for one model, and several are served")
            .hint("name the adapters of each in models.toml: lora = [\"FILE\"]")
            .into());
    }
    let mut hub = Hub::from_env();
    hub.offline |= args.offline;
    let load = args.hardware.load_options().with(|load| load.context = args.server.ctx);
    let call_threshold = args.call_threshold;
    let tools = args.mcp.as_deref().map(own_tools).transpose()?;
    if tools.is_some() {
        args.server.warn_of_tools()?;
    }
    let options = args.server.options(args.model, args.models, hub, load, args.parallel)?;
    serve(ServeOptions {
        tools,
        no_entry: args.no_entry,
        memory_budget: args.memory_budget,
        defaults: Options { call_threshold, ..options.defaults },
        ..options
    })
}

#[cfg(feature = "remote")]
pub fn proxy(args: ProxyArgs) -> Result<u8> {
    let listed = || callwright::remote::models(&args.upstream);
    let models = if args.model.is_empty() { listed()? } else { args.model };
    let names = models.iter().map(|model| format!("openai:{}#{model}", args.upstream)).collect();
    let load = LoadOptions::default().with(|load| load.context = args.server.ctx);
    serve(args.server.options(names, None, Hub::from_env(), load, args.parallel)?)
}

/// The tools of the MCP servers that a file names.
fn own_tools(file: &Path) -> Result<OwnTools> {
    let (mut tools, mut executor) = (Tools::default(), Executor::default());
    super::input::add_servers(file, &mut tools, &mut executor)?;
    tools.take_notices().iter().for_each(|changed| notice(&changed.to_string()));
    Ok(OwnTools::new(tools, executor))
}

fn serve(options: ServeOptions) -> Result<u8> {
    let with_key = options.api_key.is_some();
    let token = options.tools.as_ref().map(|tools| tools.token().to_owned());
    Server::run(options, |address, models| ready(address, models, with_key, token.as_deref()))?;
    Ok(DONE)
}

impl ServerOptions {
    /// Says who can run the tools of --mcp, if that may be anybody.
    fn warn_of_tools(&self) -> Result<()> {
        if key(self.api_key_file.as_ref())?.is_some() {
            return Ok(());
        }
        let every_page = self.cors.iter().any(|origin| origin == "*");
        let given = [
            ("--cors '*'", every_page, "every web page"),
            ("--no-auth", self.no_auth, "every machine that reaches it"),
        ];
        for (option, _, who) in given.into_iter().filter(|(_, given, _)| *given) {
            notice(&format!(
                "{option} lets {who} run the tools of --mcp, and nobody is asked; --api-key-file FILE keeps out who does not have the key"
            ));
        }
        Ok(())
    }

    /// The options of a server of these models.
    fn options(
        self,
        models: Vec<String>,
        models_file: Option<PathBuf>,
        hub: Hub,
        load: LoadOptions,
        parallel: usize,
    ) -> Result<ServeOptions> {
        let (host, host_name) = address(&self.host)?;
        let api_key = key(self.api_key_file.as_ref())?;
        if !host.is_loopback() && api_key.is_none() && !self.no_auth {
            let message = format!("other machines could use the server at {host} without an API key");
            return Err(Error::new(ErrorKind::Config, message)
                .hint("give a key with --api-key-file FILE, or --no-auth if everybody may use it")
                .into());
        }
        Ok(ServeOptions {
            models,
            models_file,
            no_entry: false,
            hub,
            template: self.template,
            format: self.format,
            load,
            defaults: Options { context: self.context_policy, constrain: self.constrain, ..Options::default() },
            max_tokens: self.max_tokens,
            seed: self.seed,
            stream_arguments: self.stream_arguments,
            parallel,
            queue: self.queue,
            memory_budget: None,
            host,
            host_names: host_name.into_iter().chain(self.allow_host).collect(),
            port: self.port,
            api_key,
            cors: self.cors,
            max_body: usize::try_from(self.max_body).unwrap_or(usize::MAX),
            timeout: self.timeout,
            grace: self.grace,
            log_requests: self.log_requests,
            tools: None,
            notice,
            log: (!self.quiet).then_some(|line: &str| say(format_args!("{line}\n"))),
        })
    }
}

/// Says where the server is and how to try it.
fn ready(address: SocketAddr, models: &[String], with_key: bool, token: Option<&str>) {
    let key = if with_key { " -H \"Authorization: Bearer $KEY\"" } else { "" };
    let body = r#"{"messages": [{"role": "user", "content": "What time is it in Oslo?"}], "tools": [{"type": "function", "function": {"name": "get_time", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]}"#;
    let page = token.map_or_else(String::new, |token| {
        format!(
            "\nOnly the page at this address runs the tools of the MCP servers:\n  http://{address}/#token={token}\n"
        )
    });
    let mut out = screen::data();
    // Nobody may read it.
    let _ = writeln!(
        out,
        "callwright serves {} at http://{address}\n{page}\nTry it in a browser, or:\n  curl http://{address}/v1/chat/completions{key} -d '{body}'\n",
        models.join(", ")
    );
    let _ = out.flush();
}

/// An address, and the name that it was given by.
fn address(host: &str) -> Result<(IpAddr, Option<String>)> {
    if let Ok(address) = host.trim_matches(['[', ']']).parse() {
        return Ok((address, None));
    }
    let found = (host, 0).to_socket_addrs().ok().and_then(|mut found| found.next());
    let found = found.ok_or_else(|| {
        Error::new(ErrorKind::Config, format!("--host {host}: there is no such address"))
            .hint("127.0.0.1 serves this machine only, 0.0.0.0 all that reach it")
    })?;
    Ok((found.ip(), Some(host.to_owned())))
}

/// The key from the file, or else from the environment.
fn key(file: Option<&PathBuf>) -> Result<Option<String>> {
    let (key, place) = match file {
        Some(path) => (super::input::read_text(path)?, path.display().to_string()),
        None => match std::env::var(KEY) {
            Ok(key) => (key, KEY.to_owned()),
            Err(_) => return Ok(None),
        },
    };
    let key = key.trim();
    if key.is_empty() || key.contains(char::is_whitespace) {
        return Err(Error::new(ErrorKind::Config, format!("{place} has no API key"))
            .hint("a key is one word, such as what `openssl rand -hex 32` prints")
            .into());
    }
    Ok(Some(key.to_owned()))
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds: &f64| *seconds >= 0.0);
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration
        .filter(|duration| *duration <= Duration::from_secs(7 * 24 * 3600))
        .ok_or_else(|| "not a number of seconds".to_owned())
}
