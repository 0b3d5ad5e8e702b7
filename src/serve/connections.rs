//! Connections, and how the server ends.
//!
//! Each state of a connection has a limit: reading headers and waiting for a request ([`HEADERS`]), reading a body (`api`), and
//! writing to a client that does not read ([`stream`]). Where all places are taken, the connection that has waited for its
//! client the longest is closed, so that clients that do nothing keep nobody out.

mod link;
mod signals;
mod stream;

use super::{Server, api};
use callwright::{Error, ErrorKind, Result};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use link::{Answering, Links};
pub(super) use signals::Signals;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use stream::Watched;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// How long a client may take for the headers of a request, and between two requests.
const HEADERS: Duration = Duration::from_secs(15);
/// The longest headers of a request, in bytes.
const HEADER_BYTES: usize = 64 * 1024;
/// So many headers are read at most; `guard` refuses fewer, with a message.
const HEADER_COUNT: usize = 8192;
/// How many connections there may be at a time.
const CONNECTIONS: usize = 1024;
/// File descriptors for everything else: models, tools, the next connection.
const OTHER_FILES: u64 = 256;
/// How long answers that were ended have to reach their clients.
const LAST_WORDS: Duration = Duration::from_millis(400);

/// Listens at an address.
///
/// # Errors
/// [`ErrorKind::Io`] if it cannot be used.
pub(super) async fn listen(address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| {
        let error_text = format!("cannot listen at {address}: {error}");
        let hint = match error.kind() {
            std::io::ErrorKind::AddrInUse => "another program uses the port: --port 0 takes a free one",
            std::io::ErrorKind::PermissionDenied => "ports below 1024 need rights; choose a higher one with --port",
            _ => "--host has to be an address of this machine",
        };
        Error::new(ErrorKind::Io, error_text).hint(hint)
    })
}

/// Serves connections until the process gets a signal to end, and ends gracefully.
pub(super) async fn serve(server: Arc<Server>, listener: TcpListener, mut signals: Signals) {
    let routes = TowerToHyperService::new(api::routes(Arc::clone(&server)));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADERS).max_buf_size(HEADER_BYTES).max_headers(HEADER_COUNT);
    let links = Arc::new(Links::new(places()));
    let (end, ending) = watch::channel(());
    loop {
        let stream = tokio::select! {
            biased;
            () = signals.next() => break,
            stream = accept(&listener, &links) => stream,
        };
        // Tokens go out one by one, as soon as they are there.
        let _ = stream.set_nodelay(true);
        let (routes, http, links, mut ending) = (routes.clone(), http.clone(), Arc::clone(&links), ending.clone());
        let link = links.add();
        tokio::spawn(async move {
            let service = service_fn(|request: hyper::Request<hyper::body::Incoming>| {
                // Now, and not when the answer is first asked for: hyper looks for the end of the stream before.
                let answering = Answering::begin(&link);
                let response = routes.call(request.map(|body| answering.reads(body)));
                async move { response.await.map(|response| response.map(|body| answering.writes(body))) }
            });
            let io = TokioIo::new(Watched::new(stream, Arc::clone(&link)));
            let mut connection = std::pin::pin!(http.serve_connection(io, service));
            loop {
                tokio::select! {
                    ended = connection.as_mut() => {
                        if let Err(error) = ended {
                            tracing::debug!(%error, "a connection ended");
                        }
                        break;
                    }
                    () = link.dismissed() => break,
                    Ok(()) = ending.changed() => {
                        if link.is_idle() {
                            break;
                        }
                        connection.as_mut().graceful_shutdown();
                    }
                }
            }
            links.remove(&link);
        });
    }
    drop(listener);
    server.ending.store(true, Ordering::Relaxed);
    (server.options.notice)(&format!(
        "ending: running answers have {} seconds; a second signal ends them at once",
        server.options.grace.as_secs_f32()
    ));
    let _ = end.send(());
    let over = tokio::select! {
        () = links.are_gone() => true,
        () = tokio::time::sleep(server.options.grace) => false,
        () = signals.next() => false,
    };
    if !over {
        server.end_answers();
        let _ = tokio::time::timeout(LAST_WORDS, links.are_gone()).await;
    }
}

/// The next connection, once there is a place for it.
async fn accept(listener: &TcpListener, links: &Links) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                links.make_room().await;
                return stream;
            }
            Err(error) => {
                // Such as too many open files; it passes, and sooner with a connection less.
                tracing::warn!(%error, "cannot accept a connection");
                links.dismiss_one();
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// How many connections the limit of open files leaves room for. It is raised as far as the system lets it.
#[cfg(unix)]
fn places() -> usize {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let Ok((mut soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return CONNECTIONS };
    let wanted = (CONNECTIONS as u64 + OTHER_FILES).min(hard);
    if soft < wanted && setrlimit(Resource::RLIMIT_NOFILE, wanted, hard).is_ok() {
        soft = wanted;
    }
    let left = soft - OTHER_FILES.min(soft / 2);
    usize::try_from(left).unwrap_or(CONNECTIONS).clamp(1, CONNECTIONS)
}

#[cfg(not(unix))]
fn places() -> usize {
    CONNECTIONS
}
