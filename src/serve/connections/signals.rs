//! Signals to end, and the end of the process when it is due.

use super::LAST_WORDS;
use std::time::Duration;
use tokio::sync::watch;

/// Counts the signals to end.
pub(in super::super) struct Signals(watch::Receiver<u32>);

impl Signals {
    /// Listens on a thread of its own, which no answer keeps busy.
    ///
    /// Once `grace` is over after the first signal, or at the second one, what the process does is not waited for: llama.cpp ends
    /// no step before it is computed.
    pub(in super::super) fn listen(grace: Duration) -> Signals {
        let (send, receive) = watch::channel(0);
        let (installed, is_installed) = std::sync::mpsc::channel();
        let listen = move || {
            let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_io().build() else { return };
            runtime.block_on(async {
                let Ok(mut signals) = Source::new() else { return };
                let _ = installed.send(());
                loop {
                    signals.next().await;
                    send.send_modify(|count| *count += 1);
                    let left = if *send.borrow() == 1 { grace + LAST_WORDS } else { LAST_WORDS };
                    end_after(left);
                }
            });
        };
        // Without the thread, a signal ends the process at once.
        let _ = std::thread::Builder::new().name("signals".to_owned()).spawn(listen);
        // Fails at once if the thread has ended, or was not started.
        let _ = is_installed.recv();
        Signals(receive)
    }

    /// Waits for the next signal.
    pub(super) async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending().await
        }
    }
}

/// Ends the process after this time, unless it ends by itself before.
fn end_after(left: Duration) {
    let end = move || {
        std::thread::sleep(left);
        callwright::agent::exec::kill_running();
        callwright::engine::llama::exit_now(0);
    };
    if std::thread::Builder::new().spawn(end).is_err() {
        callwright::engine::llama::exit_now(0);
    }
}

/// Ctrl-C and SIGTERM. None is missed between two of them.
struct Source {
    #[cfg(unix)]
    signals: [tokio::signal::unix::Signal; 2],
}

impl Source {
    #[cfg(unix)]
    fn new() -> std::io::Result<Source> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Source { signals: [signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?] })
    }

    #[cfg(unix)]
    async fn next(&mut self) {
        let [interrupt, terminate] = &mut self.signals;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }

    #[cfg(not(unix))]
    #[allow(clippy::unnecessary_wraps)]
    fn new() -> std::io::Result<Source> {
        Ok(Source {})
    }

    #[cfg(not(unix))]
    async fn next(&mut self) {
        let _ = tokio::signal::ctrl_c().await;
    }
}
