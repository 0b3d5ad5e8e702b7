//! Server processes, none of which outlives this program.
//!
//! A server may start others (`npx` starts node), ignore the end of its input, or hang. So it runs in the process group of a
//! [`Guard`].

use crate::groups::{self, Guard};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// How long a server may take to end once its input has ended, and again after a signal.
const GRACE: Duration = Duration::from_secs(1);
/// How much of the end of standard error is kept, for messages.
const COMPLAINT: usize = 2 << 10;
/// What servers get of the environment in addition to what the file says: what the protocol's own libraries pass on.
const INHERITED: [&str; 6] = ["HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"];

/// A server's process; all of its group ends with this.
pub(super) struct Process {
    child: Child,
    guard: Option<Guard>,
    complaint: Arc<Mutex<Vec<u8>>>,
}

/// What a server writes, and what it reads.
pub(super) type Pipes = (ChildStdout, ChildStdin);

impl Process {
    /// Starts a server. It runs in the current runtime.
    pub(super) fn start(mut command: Command, server: &str) -> std::io::Result<(Process, Pipes)> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        #[cfg(not(windows))]
        let guard = if cfg!(unix) { Some(Guard::start()?) } else { None };
        #[cfg(unix)]
        if let Some(group) = guard.as_ref().and_then(|guard| i32::try_from(guard.group()).ok()) {
            command.process_group(group);
        }
        let mut child = command.spawn()?;
        #[cfg(windows)]
        let guard = groups::register_server(&child).map(Guard::of);
        let missing = || std::io::Error::other("it has no standard input and output");
        let pipes = child.stdout.take().zip(child.stdin.take()).ok_or_else(missing)?;
        let complaint = Arc::default();
        if let Some(stderr) = child.stderr.take() {
            tokio::spawn(keep_last(stderr, Arc::clone(&complaint), server.to_owned()));
        }
        Ok((Process { child, guard, complaint }, pipes))
    }

    /// How the server ended, if it has, and the last that it complained of.
    pub(super) async fn ending(&mut self) -> String {
        let status = tokio::time::timeout(GRACE, self.child.wait()).await;
        let status = match status {
            Ok(Ok(status)) => format!("it ended ({status})"),
            _ => "it closed its output".to_owned(),
        };
        let complaint = self.complaint.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let complaint = String::from_utf8_lossy(&complaint).trim().to_owned();
        if complaint.is_empty() { status } else { format!("{status}: {complaint}") }
    }

    /// Ends the server, whose input has ended: it may end by itself, then gets a signal, then is killed.
    pub(super) async fn stop(mut self) {
        if tokio::time::timeout(GRACE, self.child.wait()).await.is_err()
            && let Some(guard) = &self.guard
        {
            groups::terminate(guard.group());
            let _ = tokio::time::timeout(GRACE, self.child.wait()).await;
        }
        drop(self.guard.take());
        // It was killed with its group: this only takes note of its end.
        let _ = tokio::time::timeout(GRACE, self.child.kill()).await;
    }
}

/// A command with the environment that servers get.
pub(super) fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    if cfg!(unix) {
        command.env_clear();
        command.envs(INHERITED.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    }
    command
}

/// Reads a server's standard error to its end, and keeps the last of it.
async fn keep_last(mut stderr: impl AsyncRead + Unpin, complaint: Arc<Mutex<Vec<u8>>>, server: String) {
    let mut buffer = vec![0; 8 << 10];
    while let Ok(read) = stderr.read(&mut buffer).await
        && read > 0
    {
        tracing::debug!(server, "{}", String::from_utf8_lossy(&buffer[..read]).trim_end());
        let mut kept = complaint.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(&buffer[..read]);
        let excess = kept.len().saturating_sub(COMPLAINT);
        kept.drain(..excess);
    }
}
