//! Tools of MCP servers (Model Context Protocol, <https://modelcontextprotocol.io>).
//!
//! A file names the servers, in the shape that MCP clients share. Their tools join the others: their schemas are read as
//! tolerantly, a call that is incomplete or does not fit is not sent, and a server that fails is reported to the model in
//! place of a result. No call is sent twice. A server's processes end with this process, however that ends.
//!
//! ```no_run
//! use callwright::agent::{Agent, exec::Approval};
//! use callwright::mcp::Servers;
//! use callwright::{Session, Tools};
//!
//! let mut servers = Servers::from_file("mcp.json")?;
//! let (mut agent, mut tools) = (Agent::default(), Tools::default());
//! servers.add_to(&mut tools, &mut agent.executor);
//! servers.notices().iter().for_each(|notice| eprintln!("{notice}"));
//! agent.executor.confirm = Some(Box::new(|question| match question.call.name.as_str() {
//!     "get_current_time" => Approval::Given,
//!     _ => Approval::Denied(None),
//! }));
//!
//! let mut session = Session::builder().tools(tools).build()?;
//! session.ask_and_run("What time is it in Oslo?", &mut agent)?.ok()?;
//! # Ok::<(), callwright::Error>(())
//! ```

mod config;
mod names;
mod offers;
mod process;
mod result;
mod server;
mod watch;

use crate::agent::exec::remote::{Look, Offer, Person, Remote};
use crate::agent::exec::{Executor, Failure, FailureKind};
use crate::session::event::ToolsChange;
use crate::tool::{Effect, Tool, Tools};
use crate::{Error, ErrorKind, Result, json};
use config::{Config, Start};
use names::{Listed, Names};
use serde_json::{Map, Value};
use server::Server;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

/// Servers that have started, and their tools.
///
/// They end when this and each executor that it was [added to](Servers::add_to) are dropped.
pub struct Servers {
    running: Arc<Running>,
    notices: Vec<String>,
}

/// A server that runs, or why it does not.
#[cfg_attr(feature = "unstable", visibility::make(pub))]
pub(crate) struct Report {
    /// Its name in the file.
    pub server: String,
    /// What starts it, or where it is.
    pub from: String,
    /// Its tools, by the names that the model reads.
    pub tools: Vec<String>,
    /// Why it does not run.
    pub failure: Option<String>,
}

struct Running {
    /// `None` once it is shut down.
    runtime: Option<Runtime>,
    servers: Vec<Server>,
    /// What was listed last, and which names that made.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    names: Names,
    listed: Vec<Listed>,
    failures: Vec<(String, String, String)>,
}

impl Servers {
    /// Starts the servers that a file names, `{"mcpServers": {"name": {"command": "…", "args": […]}}}` or with a `url`.
    ///
    /// A server that does not start is named in [`Servers::notices`]; the others go on.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] and [`ErrorKind::Config`] where the file cannot be read or names no servers.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Servers> {
        let path = path.as_ref();
        let folder = path.parent().unwrap_or(Path::new(""));
        let mut servers = Servers::from_value(&json::from_file(path)?, folder).map_err(|error| error.in_file(path))?;
        servers.notices.iter_mut().for_each(|notice| *notice = format!("{}: {notice}", path.display()));
        Ok(servers)
    }

    /// The same from what such a file says; paths in it are relative to `folder`.
    ///
    /// # Errors
    /// Those of [`Servers::from_file`].
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn from_value(value: &Value, folder: impl AsRef<Path>) -> Result<Servers> {
        let Config { servers, faulty, mut notices } = Config::read(value, folder.as_ref())?;
        // One thread, so that what servers send is handled in order; a flood of one server yields to the others.
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime =
            runtime.map_err(|error| Error::new(ErrorKind::Io, format!("MCP servers cannot be run: {error}")))?;
        let mut state = State::default();
        let mut started: Vec<(usize, Server, Vec<Value>)> = Vec::new();
        let starting = async {
            let mut tasks = JoinSet::new();
            for (index, config) in servers.into_iter().enumerate() {
                tasks.spawn(async move {
                    let (name, from) = (config.name.clone(), from(&config.start));
                    let server = Server::start(config).await;
                    let listed = match server {
                        Ok(server) => match server.tools().await {
                            Ok(tools) => Ok((server, tools)),
                            Err(why) => {
                                server.stop().await;
                                Err(why)
                            }
                        },
                        Err(why) => Err(why),
                    };
                    (index, name, from, listed)
                });
            }
            let mut failures = Vec::new();
            while let Some(ended) = tasks.join_next().await {
                match ended {
                    Ok((index, _, _, Ok((server, tools)))) => started.push((index, server, tools)),
                    Ok((index, name, from, Err(why))) => failures.push((index, (name, from, why))),
                    Err(error) => tracing::debug!(%error, "a server's start ended early"),
                }
            }
            failures.sort_by_key(|(index, _)| *index);
            failures.into_iter().map(|(_, failure)| failure).collect()
        };
        state.failures = runtime.block_on(starting);
        // In the file's order, whichever was faster.
        started.sort_by_key(|(index, ..)| *index);
        let (mut running, mut remarks) = (Vec::new(), Vec::new());
        for (_, server, tools) in started {
            remarks.extend(remark(&server));
            let names: Vec<&str> = tools.iter().filter_map(|tool| tool.get("name")?.as_str()).collect();
            remarks.extend(server.config.unknown_tools(&names));
            state.listed.push(Listed { server: server.config.name.clone(), tools });
            running.push(server);
        }
        notices.extend(state.failures.iter().map(|(name, from, why)| {
            format!(
                "the MCP server {name:?} did not start, and is left out: {why}; correct \"mcpServers\".{name:?} \
                         ({from}), or set its \"disabled\" to true"
            )
        }));
        notices.extend(remarks);
        let fault = "a fault in the file";
        state.failures.extend(faulty.into_iter().map(|(name, why)| (name, fault.to_owned(), why)));
        let running = Running { runtime: Some(runtime), servers: running, state: Mutex::new(state) };
        Ok(Servers { running: Arc::new(running), notices })
    }

    /// Returns what is worth knowing: servers that did not start, and what of the file was not used.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// Adds the tools of the servers to others, and has `executor` run them.
    ///
    /// A tool whose name another one has, of a server or of `tools`, gets its server's name and `_` before its own. Where a
    /// server says that its tools have changed, a run takes that over before the next answer. A call of a tool needs
    /// [`Executor::confirm`], unless the file has the tool in the server's `autoApprove`.
    pub fn add_to(&mut self, tools: &mut Tools, executor: &mut Executor) {
        let (own, unusable) = self.running.state().named(tools);
        self.notices.extend(unusable);
        tools.append(own);
        executor.remote = Some(Arc::clone(&self.running) as Arc<dyn Remote>);
    }

    /// Each server of the file, and what became of it; the tools have the names of the last [`Servers::add_to`].
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn reports(&self) -> Vec<Report> {
        let state = self.running.state();
        let running = self.running.servers.iter().enumerate().map(|(index, server)| Report {
            server: server.config.name.clone(),
            from: from(&server.config.start),
            tools: state.names.of_server(index),
            failure: None,
        });
        let failed = state.failures.iter().map(|(server, from, why)| Report {
            server: server.clone(),
            from: from.clone(),
            tools: Vec::new(),
            failure: Some(why.clone()),
        });
        running.chain(failed).collect()
    }
}

impl State {
    /// The tools of all servers, with names that no other tool has.
    fn named(&mut self, others: &Tools) -> (Tools, Vec<String>) {
        self.names.read(&self.listed, others)
    }
}

/// Returns what starts a server, or where it is, without secrets: arguments and headers may have some.
fn from(start: &Start) -> String {
    match start {
        Start::Program { command, .. } => command.clone(),
        Start::Address { url, .. } => url.split(['?', '#']).next().unwrap_or_default().to_owned(),
    }
}

/// Returns what is worth knowing about a server that runs.
fn remark(server: &Server) -> Option<String> {
    server.watch.report().map(|report| format!("the MCP server {:?} {report}", server.config.name))
}

impl Running {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server that has a tool, and the tool's name there.
    fn route(&self, tool: &str) -> Option<(&Server, String)> {
        let (index, name) = self.state().names.route(tool)?;
        Some((self.servers.get(index)?, name))
    }
}

impl Remote for Running {
    fn has(&self, tool: &str) -> bool {
        self.route(tool).is_some()
    }

    fn runs(&self, tool: &str) -> String {
        self.route(tool).map_or_else(String::new, |(server, _)| format!("the MCP server {:?}", server.config.name))
    }

    fn to_confirm(&self, tool: &str, effect: Effect) -> Option<&'static str> {
        let (server, name) = self.route(tool)?;
        match (server.config.approved.has(&name), effect) {
            (true, _) => None,
            (false, Effect::Destructive) => Some("it is destructive"),
            (false, _) => Some("the server's `autoApprove` does not have it"),
        }
    }

    fn call(
        &self,
        tool: &str,
        arguments: Map<String, Value>,
        timeout: Duration,
        cancel: &AtomicBool,
    ) -> Result<String, Failure> {
        let gone = || Failure::new(FailureKind::NotRunnable, format!("no MCP server has the tool {tool:?} any more"));
        let (server, name) = self.route(tool).ok_or_else(gone)?;
        let runtime = self.runtime.as_ref().ok_or_else(gone)?;
        runtime.handle().block_on(server.call(&name, tool, arguments, timeout, cancel))
    }

    fn offers(&self) -> (Vec<Offer>, Vec<String>) {
        let (mut offers, mut notes) = (Vec::new(), Vec::new());
        let Some(runtime) = &self.runtime else { return (offers, notes) };
        for server in &self.servers {
            match runtime.handle().block_on(server.offers()) {
                Ok(more) => offers.extend(more),
                Err(why) => {
                    notes
                        .push(format!("the resources of the MCP server {:?} are not known: {why}", server.config.name));
                }
            }
        }
        (offers, notes)
    }

    fn take(&self, offer: &Offer, arguments: Map<String, Value>) -> Result<String, String> {
        let server = self.servers.iter().find(|server| server.config.name == offer.server);
        let (Some(server), Some(runtime)) = (server, &self.runtime) else { return Err("it has ended".to_owned()) };
        runtime.handle().block_on(server.take(offer, arguments))
    }

    fn ask(&self, person: &Person) {
        self.servers.iter().for_each(|server| server.asking.set(Arc::clone(person)));
    }

    fn look(&self, _turn: usize, tools: &Tools) -> Look {
        let mut look = Look { notes: self.servers.iter().filter_map(remark).collect(), ..Look::default() };
        let Some(runtime) = &self.runtime else { return look };
        let mut listed = Vec::new();
        for (index, server) in self.servers.iter().enumerate().filter(|(_, server)| server.take_changed()) {
            match runtime.handle().block_on(server.tools()) {
                Ok(tools) => listed.push((index, tools)),
                Err(why) => look.notes.push(format!(
                    "the MCP server {:?} has other tools now, which cannot be read: {why}; those from before stay",
                    server.config.name
                )),
            }
        }
        if listed.is_empty() {
            return look;
        }
        let mut state = self.state();
        let others = tools.iter().filter(|tool| state.names.route(&tool.name).is_none()).cloned();
        let Ok(mut all) = Tools::new(others) else { return look };
        let before: Vec<(usize, Vec<Tool>)> =
            listed.iter().map(|(index, _)| (*index, state.tools_of(*index, tools))).collect();
        for (index, tools) in listed {
            if let Some(kept) = state.listed.get_mut(index) {
                kept.tools = tools;
            }
        }
        let (own, unusable) = state.named(&all);
        look.notes.extend(unusable);
        look.notes.extend(own.notices().iter().map(ToString::to_string));
        all.append(own);
        let _ = all.take_notices();
        for (index, before) in before {
            let after = state.tools_of(index, &all);
            look.changes.extend(change(&self.servers[index].config.name, &before, &after));
        }
        look.tools = Some(all);
        look
    }
}

impl State {
    /// The tools of one server among all.
    fn tools_of(&self, server: usize, all: &Tools) -> Vec<Tool> {
        let own = |tool: &&Tool| self.names.route(&tool.name).is_some_and(|(index, _)| index == server);
        all.iter().filter(own).cloned().collect()
    }
}

/// Returns what is different between two lists of a server's tools; `None` if nothing is.
fn change(server: &str, before: &[Tool], after: &[Tool]) -> Option<ToolsChange> {
    let named = |tools: &[Tool], name: &str| tools.iter().find(|tool| tool.name == name).cloned();
    let names = |tools: &[Tool], keep: &dyn Fn(&Tool) -> bool| {
        tools.iter().filter(|tool| keep(tool)).map(|tool| tool.name.clone()).collect::<Vec<String>>()
    };
    let change = ToolsChange {
        server: server.to_owned(),
        added: names(after, &|tool| named(before, &tool.name).is_none()),
        removed: names(before, &|tool| named(after, &tool.name).is_none()),
        changed: names(after, &|tool| named(before, &tool.name).is_some_and(|before| before != *tool)),
    };
    let nothing = change.added.is_empty() && change.removed.is_empty() && change.changed.is_empty();
    (!nothing).then_some(change)
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        let servers = std::mem::take(&mut self.servers);
        // In a thread of its own: a runtime cannot be waited for inside another one, in which this may be dropped.
        let stopping = std::thread::spawn(move || {
            runtime.block_on(async {
                let mut tasks = JoinSet::new();
                for server in servers {
                    tasks.spawn(async move { server.stop().await });
                }
                while tasks.join_next().await.is_some() {}
            });
            runtime.shutdown_timeout(Duration::from_secs(1));
        });
        let _ = stopping.join();
    }
}
