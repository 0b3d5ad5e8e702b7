//! One server: started, asked for its tools, called, and stopped.

use super::config::{ServerConfig, Start};
use super::offers::Asking;
use super::process::{self, Process};
use super::result;
use super::watch::{Watch, Watched};
use crate::agent::exec::{Failure, FailureKind};
use http::{HeaderName, HeaderValue};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CancelledNotificationParam, ClientCapabilities, ClientConfig,
    ClientRequest, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationCapability, ErrorCode, ErrorData,
    Implementation, ListToolsRequest, PaginatedRequestParams, ProtocolVersion, ServerResult,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, ClientServiceExt, NotificationContext, PeerRequestOptions,
    RequestContext, RunningService, ServiceError,
};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{StreamableHttpClientTransport, Transport};
use rmcp::{ClientHandler, Peer, RoleClient};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long a server may take to start: a package may have to be downloaded first.
const START: Duration = Duration::from_secs(60);
/// How long a server may take to list its tools.
pub(super) const LIST: Duration = Duration::from_secs(30);
/// How often the flag that ends a call is looked at.
const LOOK: Duration = Duration::from_millis(10);
/// How many pages a list of tools may have.
pub(super) const PAGES: usize = 100;
/// How long the end of a connection may take.
const CLOSE: Duration = Duration::from_secs(2);

/// What a server tells its client.
struct Handler {
    /// Raised when the server's tools have changed.
    changed: Arc<AtomicBool>,
    /// The server's name, for the person whom it asks.
    server: String,
    asking: Asking,
}

impl ClientHandler for Handler {
    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.store(true, Ordering::Relaxed);
    }

    fn get_info(&self) -> ClientConfig {
        let client = Implementation::new("callwright", env!("CARGO_PKG_VERSION"));
        let mut capabilities = ClientCapabilities::default();
        capabilities.elicitation = Some(ElicitationCapability::new());
        ClientConfig::new(capabilities, client)
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        // An address for a browser is nothing to answer here.
        let ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } = request else {
            return Ok(ElicitResult::new(ElicitationAction::Decline));
        };
        let schema = serde_json::to_value(requested_schema).unwrap_or_default();
        Ok(match self.asking.ask(self.server.clone(), message, schema).await {
            Some(answer) => ElicitResult::new(ElicitationAction::Accept).with_content(Value::Object(answer)),
            None => ElicitResult::new(ElicitationAction::Decline),
        })
    }
}

/// A server that has started.
pub(super) struct Server {
    pub config: ServerConfig,
    pub peer: Peer<RoleClient>,
    service: Mutex<Option<RunningService<RoleClient, Handler>>>,
    process: tokio::sync::Mutex<Option<Process>>,
    changed: Arc<AtomicBool>,
    pub asking: Asking,
    pub watch: Watch,
}

impl Server {
    /// Starts a server. The error says why it cannot be used.
    pub(super) async fn start(config: ServerConfig) -> Result<Server, String> {
        let oldest = Server::start_with(&config, ClientLifecycleMode::Initialize).await;
        let (service, process, watch) = match oldest {
            // A server of the newest protocol may know no handshake any more.
            Err(Unusable { newer: true, why }) => {
                let preferred_versions = vec![ProtocolVersion::LATEST];
                let newer = ClientLifecycleMode::Discover { preferred_versions };
                Server::start_with(&config, newer).await.map_err(|_| why)?
            }
            Err(Unusable { why, .. }) => return Err(why),
            Ok(started) => started,
        };
        let (changed, asking) = (Arc::clone(&service.service().changed), service.service().asking.clone());
        Ok(Server {
            config,
            peer: service.peer().clone(),
            service: Mutex::new(Some(service)),
            process: tokio::sync::Mutex::new(process),
            changed,
            asking,
            watch,
        })
    }

    async fn start_with(config: &ServerConfig, mode: ClientLifecycleMode) -> Result<Started, Unusable> {
        let handler = Handler { changed: Arc::default(), server: config.name.clone(), asking: Asking::default() };
        let watch = Watch::default();
        let late = || format!("it did not answer within {} s", START.as_secs());
        match &config.start {
            Start::Program { command: program, arguments, env, cwd } => {
                let mut command = process::command(program);
                command.args(arguments).envs(env);
                if let Some(folder) = cwd {
                    command.current_dir(folder);
                }
                let place = cwd.as_ref().map_or_else(String::new, |folder| format!(" in {}", folder.display()));
                let (mut process, (stdout, stdin)) = Process::start(command, &config.name)
                    .map_err(|error| Unusable::new(format!("{program} cannot be started{place}: {error}")))?;
                let stdout = Watched::new(stdout, watch.clone());
                // The watch ends a line that is too long, and says so.
                let transport = AsyncRwTransport::new_client(stdout, stdin).with_max_line_length(usize::MAX);
                match tokio::time::timeout(START, handler.serve_with_lifecycle(transport, mode)).await {
                    Ok(Ok(service)) => Ok((service, Some(process), watch)),
                    Ok(Err(
                        ClientInitializeError::ConnectionClosed(_) | ClientInitializeError::TransportError { .. },
                    )) => {
                        let stray = watch.report().map_or_else(String::new, |stray| format!("; it {stray}"));
                        let why = match watch.cut() {
                            Some(why) => why,
                            None => process.ending().await,
                        };
                        process.stop().await;
                        Err(Unusable::new(why + &stray))
                    }
                    Ok(Err(error)) => {
                        process.stop().await;
                        Err(Unusable::from(error))
                    }
                    Err(_) => {
                        let stray = watch.report().map_or_else(String::new, |stray| format!("; it {stray}"));
                        process.stop().await;
                        Err(Unusable::new(late() + &stray))
                    }
                }
            }
            Start::Address { url, headers } => {
                let transport = transport(url, headers).map_err(Unusable::new)?;
                match tokio::time::timeout(START, handler.serve_with_lifecycle(transport, mode)).await {
                    Ok(Ok(service)) => Ok((service, None, watch)),
                    Ok(Err(error)) => Err(Unusable::from(error)),
                    Err(_) => Err(Unusable::new(late())),
                }
            }
        }
    }

    /// Takes note that the server's tools have changed since the last time, if they have.
    pub(super) fn take_changed(&self) -> bool {
        self.changed.swap(false, Ordering::Relaxed)
    }

    /// The tools that the server has, as it describes them.
    pub(super) async fn tools(&self) -> Result<Vec<Value>, String> {
        match tokio::time::timeout(LIST, self.pages()).await {
            Ok(tools) => tools,
            Err(_) => Err(format!("it did not list its tools within {} s", LIST.as_secs())),
        }
    }

    async fn pages(&self) -> Result<Vec<Value>, String> {
        let (mut tools, mut names) = (Vec::new(), HashSet::new());
        let mut cursor = None;
        for _ in 0..PAGES {
            let params = cursor.take().map(|cursor| PaginatedRequestParams::default().with_cursor(Some(cursor)));
            // Not `list_tools`: that refuses all of them if one is faulty.
            let request = ListToolsRequest { method: Default::default(), params, extensions: Default::default() };
            let page = match self.peer.send_request(ClientRequest::ListToolsRequest(request)).await {
                Ok(ServerResult::ListToolsResult(page)) => {
                    serde_json::to_value(page).map_err(|error| error.to_string())?
                }
                Ok(ServerResult::CustomResult(page)) => page.0,
                Ok(_) => return Err("what it answers to tools/list is no list of tools".to_owned()),
                Err(ServiceError::McpError(error)) if error.code == ErrorCode::METHOD_NOT_FOUND => return Ok(tools),
                Err(error) => return Err(self.why(error).await),
            };
            let Some(Value::Array(listed)) = page.get("tools") else {
                return Err("what it answers to tools/list has no list of tools".to_owned());
            };
            // Some servers ignore the cursor, and send the first page again and again.
            let name = |tool: &Value| tool.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
            if !names.is_empty() && listed.iter().all(|tool| names.contains(&name(tool))) {
                return Ok(tools);
            }
            names.extend(listed.iter().map(name));
            tools.extend(listed.iter().cloned().map(|tool| self.limited(tool)));
            match page.get("nextCursor").and_then(Value::as_str) {
                Some(next) if !next.is_empty() => cursor = Some(next.to_owned()),
                _ => return Ok(tools),
            }
        }
        Err(format!("its list of tools has more than {PAGES} pages"))
    }

    /// A listed tool with what the file says of it. What only the user may say is taken out of the server's own list.
    fn limited(&self, mut tool: Value) -> Value {
        let Some(object) = tool.as_object_mut() else { return tool };
        ["x-effect", "x-repeat", "x-max-calls"].iter().for_each(|key| drop(object.remove(*key)));
        let most = object.get("name").and_then(Value::as_str).and_then(|name| self.config.max_calls.of(name));
        if let Some(most) = most {
            object.insert("x-max-calls".to_owned(), most.into());
        }
        tool
    }

    /// Calls a tool once. `name` is what the model calls it, for messages.
    pub(super) async fn call(
        &self,
        tool: &str,
        name: &str,
        arguments: Map<String, Value>,
        timeout: Duration,
        cancel: &AtomicBool,
    ) -> Result<String, Failure> {
        let server = &self.config.name;
        let failed = |kind, message: String| Failure::new(kind, message);
        if self.peer.is_transport_closed() {
            let why = self.ended().await;
            return Err(failed(
                FailureKind::NotRunnable,
                format!("{name} cannot be run: the MCP server {server:?}: {why}"),
            ));
        }
        let timeout = self.config.timeout.unwrap_or(timeout);
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        // Not `call_tool_once`: that refuses a result of which one part is of an unknown kind.
        let request = CallToolRequest::new(params);
        let request = ClientRequest::CallToolRequest(request);
        let sent = self.peer.send_request_with_option(request, PeerRequestOptions::no_options()).await;
        let (id, answer) = match sent {
            Ok(handle) => (Some(handle.id.clone()), Ok(handle)),
            Err(error) => (None, Err(error)),
        };
        let answer = async {
            match answer {
                Ok(handle) => handle.await_response().await,
                Err(error) => Err(error),
            }
        };
        let ended = tokio::select! {
            biased;
            answer = answer => Ok(answer),
            () = raised(cancel) => Err(failed(FailureKind::Cancelled, format!("the user interrupted {name}"))),
            () = over(timeout, &self.asking) => {
                let seconds = timeout.as_secs_f64();
                let message =
                    format!("{name} did not end within {seconds} s, and the MCP server {server:?} was told to stop it");
                Err(failed(FailureKind::TimedOut, message))
            }
        };
        let answer = match ended {
            Ok(answer) => answer,
            Err(failure) => {
                // Nobody waits for it any more.
                let _ = self.peer.notify_cancelled(CancelledNotificationParam::new(id, None)).await;
                return Err(failure);
            }
        };
        // A notification that came before the answer has a task of its own. The one worker runs it before this one, so that
        // tools that the call changed are known from here on.
        let _ = tokio::spawn(async {}).await;
        match answer {
            Ok(ServerResult::InputRequiredResult(_) | ServerResult::CreateTaskResult(_)) => {
                let message =
                    format!("{name} asks for more than a result takes: this client answers no questions of servers");
                Err(failed(FailureKind::NotRunnable, message))
            }
            Ok(answer) => match result::read(answer) {
                Some((text, true)) => Err(failed(FailureKind::Reported, format!("{name} failed: {text}"))),
                Some((text, false)) => Ok(text),
                None => {
                    let message =
                        format!("{name} cannot be read: what the MCP server {server:?} answers is no result of a call");
                    Err(failed(FailureKind::NotRunnable, message))
                }
            },
            Err(ServiceError::McpError(error)) => {
                Err(failed(FailureKind::Reported, format!("{name} failed: {}", error.message)))
            }
            Err(ServiceError::TransportClosed | ServiceError::Cancelled { .. }) => {
                let why = self.ended().await;
                let message = format!(
                    "{name} crashed: the MCP server {server:?}: {why}; whether the call was carried out is not known"
                );
                Err(failed(FailureKind::Crashed, message))
            }
            Err(error) => {
                let why = self.why(error).await;
                Err(failed(FailureKind::NotRunnable, format!("{name} cannot be run: the MCP server {server:?}: {why}")))
            }
        }
    }

    /// An error in words.
    pub(super) async fn why(&self, error: ServiceError) -> String {
        match error {
            ServiceError::TransportClosed => self.ended().await,
            ServiceError::McpError(error) => error.message.into_owned(),
            // The protocol's library names its own types around the cause.
            ServiceError::TransportSend(error) => chain(&*error.error),
            ServiceError::UnexpectedResponse => "what it answers does not belong to what it was asked".to_owned(),
            ServiceError::Cancelled { .. } => "the request was given up".to_owned(),
            error => chain(&error),
        }
    }

    /// Why there is no connection any more.
    async fn ended(&self) -> String {
        if let Some(why) = self.watch.cut() {
            return why;
        }
        match &mut *self.process.lock().await {
            Some(process) => process.ending().await,
            None => "the connection ended".to_owned(),
        }
    }

    /// Ends the connection, and the server's processes.
    pub(super) async fn stop(&self) {
        let service = self.service.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut service) = service {
            let _ = service.close_with_timeout(CLOSE).await;
        }
        if let Some(process) = self.process.lock().await.take() {
            process.stop().await;
        }
    }
}

type Started = (RunningService<RoleClient, Handler>, Option<Process>, Watch);

/// Why a server cannot be used.
struct Unusable {
    why: String,
    /// Whether it may be one that knows no handshake.
    newer: bool,
}

impl Unusable {
    fn new(why: String) -> Unusable {
        Unusable { why, newer: false }
    }

    fn from(error: ClientInitializeError) -> Unusable {
        match error {
            ClientInitializeError::JsonRpcError(error) => {
                let codes = [ErrorCode::METHOD_NOT_FOUND, ErrorCode::UNSUPPORTED_PROTOCOL_VERSION];
                Unusable { newer: codes.contains(&error.code), why: format!("it refuses: {}", error.message) }
            }
            error => Unusable::new(match &error {
                // The library's words are values of its own types.
                ClientInitializeError::TransportError { error, .. } => chain(&*error.error),
                ClientInitializeError::ConnectionClosed(_) => {
                    "the connection ended before the server answered".to_owned()
                }
                ClientInitializeError::NoCompatibleProtocolVersion { server_supported, .. } => {
                    let versions: Vec<String> = server_supported.iter().map(ToString::to_string).collect();
                    format!("it speaks other versions of the protocol: {}", versions.join(", "))
                }
                ClientInitializeError::ExpectedInitResponse(_)
                | ClientInitializeError::ExpectedInitResult(_)
                | ClientInitializeError::ConflictInitResponseId(..)
                | ClientInitializeError::UncorrelatedErrorResponse { .. } => {
                    "what it answers is not what a server of this protocol begins with".to_owned()
                }
                error => chain(error),
            }),
        }
    }
}

/// An error with its causes, each once.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let more = next.to_string();
        if !text.contains(&more) {
            text += &format!(": {more}");
        }
        cause = next.source();
    }
    text
}

/// Returns when the time is over. It stands still while a person is asked.
async fn over(mut left: Duration, asking: &Asking) {
    while !left.is_zero() {
        tokio::time::sleep(LOOK.min(left)).await;
        if !asking.is_open() {
            left = left.saturating_sub(LOOK);
        }
    }
}

/// Returns once the flag is raised.
async fn raised(flag: &AtomicBool) {
    while !flag.load(Ordering::Relaxed) {
        tokio::time::sleep(LOOK).await;
    }
}

/// A connection over streamable HTTP.
fn transport(url: &str, headers: &BTreeMap<String, String>) -> Result<impl Transport<RoleClient> + 'static, String> {
    let mut custom = HashMap::new();
    for (name, value) in headers {
        let header = HeaderName::try_from(name).map_err(|_| format!("there is no header {name:?}"))?;
        let mut text = HeaderValue::try_from(value)
            .map_err(|_| format!("the value of the header {name:?} has characters that no header may have"))?;
        text.set_sensitive(true);
        custom.insert(header, text);
    }
    let mut config = StreamableHttpClientTransportConfig::with_uri(url);
    config.custom_headers = custom;
    // Another library may have chosen what encrypts before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Ok(StreamableHttpClientTransport::from_config(config))
}
