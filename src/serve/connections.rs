//! Connections, and how the server ends.

use super::{Server, api};
use crate::{Error, ErrorKind, Result};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// How long a client may take for the headers of a request.
const HEADERS: Duration = Duration::from_secs(15);
/// The longest headers of a request, in bytes.
const HEADER_BYTES: usize = 64 * 1024;
/// So many headers are read at most; `guard` refuses fewer, with a message.
const HEADER_COUNT: usize = 8192;
/// How many connections there may be at a time; others wait.
const CONNECTIONS: usize = 1024;
/// How long answers that were ended have to reach their clients.
const LAST_WORDS: Duration = Duration::from_secs(2);

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
pub(super) async fn serve(server: Arc<Server>, listener: TcpListener) {
    let routes = api::routes(Arc::clone(&server));
    let mut builder = Builder::new(TokioExecutor::new());
    let mut http = builder.http1();
    http.timer(TokioTimer::new()).header_read_timeout(HEADERS).max_buf_size(HEADER_BYTES).max_headers(HEADER_COUNT);
    let open = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let mut ended = std::pin::pin!(signal());
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { break };
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Such as too many open files; it passes.
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
            () = &mut ended => break,
        };
        // Tokens go out one by one, as soon as they are there.
        let _ = stream.set_nodelay(true);
        let service = TowerToHyperService::new(routes.clone());
        let connection = open.watch(builder.serve_connection(TokioIo::new(stream), service).into_owned());
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection ended");
            }
            drop(place);
        });
    }
    drop(listener);
    server.ending.store(true, Ordering::Relaxed);
    (server.options.notice)(&format!(
        "ending: running answers have {} seconds; a second signal ends them at once",
        server.options.grace.as_secs_f32()
    ));
    let mut idle = std::pin::pin!(open.shutdown());
    let over = tokio::select! {
        () = &mut idle => true,
        () = tokio::time::sleep(server.options.grace) => false,
        () = signal() => false,
    };
    if !over {
        server.end_answers();
        let _ = tokio::time::timeout(LAST_WORDS, idle).await;
    }
}

/// Waits for Ctrl-C or SIGTERM.
async fn signal() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
            return;
        }
    }
    let _ = tokio::signal::ctrl_c().await;
}
