//! Tools that are programs.
//!
//! The arguments go to the program's standard input as JSON, its standard output is the result. A program that floods
//! is read to its end and mostly thrown away, never kept in memory; processes that a tool leaves running are killed.
//!
//! A tool is killed as a process group. A process that leaves its group (`setsid`, a daemon) is out of reach: it lives
//! on, whatever becomes of the tool, and is not waited for. Where it holds the tool's output open, what was read until
//! two seconds after the tool's end is the result, with a mark that it may not be all. Who runs tools that are not to
//! be trusted with that needs a container, or a cgroup, around the whole program.

use super::{Failure, FailureKind, cancelled, timed_out};
use crate::groups;
use crate::session::remarks::{CUT, HELD, REPLACED};
use crate::tool::{Exec, Output};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

/// How much of the end of standard error is kept, for the message.
const COMPLAINT: usize = 2 << 10;
/// How long output is waited for once the program has ended and its group is killed: a process that left the group may
/// hold the pipe for ever.
const GRACE: Duration = Duration::from_secs(2);
/// How long at most between two looks at whether the program has ended.
const LOOK: Duration = Duration::from_millis(20);

/// What a program may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub timeout: Duration,
    pub max_output: usize,
}

/// Where a program is that is named by a path: a folder to run in must not change which is meant.
pub(super) fn path(exec: &Exec) -> Option<PathBuf> {
    exec.command.first().filter(|program| program.contains('/')).and_then(|program| std::path::absolute(program).ok())
}

/// A program that runs; all of its processes end with this, and with the whole program.
struct Running {
    child: Child,
    /// The guard of its group. Where none can be started, the program has a group of its own.
    #[cfg(unix)]
    guard: Option<groups::Guard>,
}

impl Running {
    fn start(exec: &Exec, name: &str) -> Result<Running, Failure> {
        let (program, arguments) = exec
            .command
            .split_first()
            .ok_or_else(|| Failure::new(FailureKind::NotRunnable, format!("the command of {name} is empty")))?;
        let program = path(exec).unwrap_or_else(|| program.into());
        let mut command = Command::new(&program);
        command.args(arguments).env_clear();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let own = |name: &str| std::env::var_os(name).map(|value| (name.to_owned(), value));
        command.envs(own("PATH"));
        for (variable, value) in &exec.env {
            match value {
                Some(value) => drop(command.env(variable, value)),
                None => drop(command.envs(own(variable))),
            }
        }
        if let Some(folder) = &exec.cwd {
            command.current_dir(folder);
        }
        // A group of its own: the terminal's Ctrl-C does not reach it, and it can be killed as a whole.
        #[cfg(unix)]
        let guard = groups::Guard::start().ok();
        #[cfg(unix)]
        {
            let group = guard.as_ref().and_then(|guard| i32::try_from(guard.group()).ok());
            std::os::unix::process::CommandExt::process_group(&mut command, group.unwrap_or(0));
        }
        let child = command.spawn().map_err(|error| {
            let place = exec.cwd.as_ref().map_or(String::new(), |folder| format!(" in {}", folder.display()));
            let message = format!("{name} cannot be started: {}{place}: {error}", program.display());
            Failure::new(FailureKind::NotRunnable, message)
        })?;
        groups::register(&child);
        Ok(Running {
            child,
            #[cfg(unix)]
            guard,
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let id = self.child.id();
        groups::kill(id);
        #[cfg(unix)]
        drop(self.guard.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
        groups::unregister(id);
    }
}

/// What was read of a stream.
#[derive(Debug, Default)]
struct Captured {
    kept: Vec<u8>,
    total: usize,
}

/// Which part of a stream is kept.
#[derive(Clone, Copy)]
enum Keep {
    First(usize),
    Last(usize),
}

/// Reads a stream to its end; `done` hears of that when it is dropped.
fn capture(mut stream: impl Read + Send + 'static, keep: Keep, done: mpsc::Sender<()>) -> Arc<Mutex<Captured>> {
    let captured = Arc::new(Mutex::new(Captured::default()));
    let shared = Arc::clone(&captured);
    std::thread::spawn(move || {
        let _done = done;
        let mut buffer = vec![0; 64 << 10];
        loop {
            let read = match stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            let mut captured = shared.lock().unwrap_or_else(PoisonError::into_inner);
            captured.total += read;
            match keep {
                Keep::First(most) => {
                    let room = most.saturating_sub(captured.kept.len());
                    captured.kept.extend_from_slice(&buffer[..read.min(room)]);
                }
                Keep::Last(most) => {
                    captured.kept.extend_from_slice(&buffer[..read]);
                    let excess = captured.kept.len().saturating_sub(most);
                    captured.kept.drain(..excess);
                }
            }
        }
    });
    captured
}

/// Runs a program with `arguments` on its standard input.
pub(super) fn run(
    exec: &Exec,
    name: &str,
    arguments: &str,
    limits: Limits,
    cancel: &AtomicBool,
) -> Result<String, Failure> {
    let mut running = Running::start(exec, name)?;
    let (done, all_read) = mpsc::channel();
    if let Some(mut input) = running.child.stdin.take() {
        let arguments = arguments.to_owned();
        // Beside the rest: a program that does not read would block this. One that has ended does no harm.
        std::thread::spawn(move || {
            let _ = input.write_all(arguments.as_bytes());
        });
    }
    let stdout = running.child.stdout.take().map(|out| capture(out, Keep::First(limits.max_output), done.clone()));
    let stderr = running.child.stderr.take().map(|err| capture(err, Keep::Last(COMPLAINT), done.clone()));
    drop(done);

    let status = wait(&mut running.child, name, limits.timeout, cancel)?;
    drop(running);
    // All readers have ended when the channel is closed.
    let held = all_read.recv_timeout(GRACE) == Err(mpsc::RecvTimeoutError::Timeout);
    let take = |captured: Option<Arc<Mutex<Captured>>>| {
        captured.map_or_else(Captured::default, |captured| {
            std::mem::take(&mut *captured.lock().unwrap_or_else(PoisonError::into_inner))
        })
    };
    let (out, err) = (take(stdout), take(stderr));
    if !status.success() {
        return Err(unsuccessful(name, status, &out, &err));
    }
    match exec.output {
        Output::Json => json(name, &out, held),
        _ => Ok(cut(&out.kept, out.total, limits.max_output) + if held { HELD } else { "" }),
    }
}

fn wait(child: &mut Child, name: &str, timeout: Duration, cancel: &AtomicBool) -> Result<ExitStatus, Failure> {
    let started = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) => {}
            Err(error) => {
                return Err(Failure::new(FailureKind::NotRunnable, format!("{name} cannot be waited for: {error}")));
            }
        }
        if cancel.load(Ordering::Relaxed) {
            return Err(cancelled(name));
        }
        let left = timeout.saturating_sub(started.elapsed());
        if left.is_zero() {
            return Err(timed_out(name, timeout));
        }
        std::thread::sleep(pause.min(left));
        pause = (pause * 2).min(LOOK);
    }
}

fn unsuccessful(name: &str, status: ExitStatus, out: &Captured, err: &Captured) -> Failure {
    let complaint = [err, out].into_iter().map(|stream| String::from_utf8_lossy(&stream.kept).trim().to_owned());
    let complaint = complaint.into_iter().find(|text| !text.is_empty()).unwrap_or_default();
    let complaint = if complaint.is_empty() { complaint } else { format!(": {}", last(&complaint, COMPLAINT)) };
    match status.code() {
        Some(code) => Failure::new(FailureKind::Reported, format!("{name} failed with exit status {code}{complaint}")),
        None => Failure::new(FailureKind::Crashed, format!("{name} crashed ({status}){complaint}")),
    }
}

/// The JSON that a tool printed, unchanged: a remark after it would make it invalid.
fn json(name: &str, out: &Captured, held: bool) -> Result<String, Failure> {
    let failed = |what: String| {
        let held = if held { HELD } else { "" };
        Err(Failure::new(FailureKind::NotJson, format!("{name} should print JSON, and {what}{held}")))
    };
    if out.total > out.kept.len() {
        return failed(format!(
            "printed {} bytes, of which {} can be kept: ask it for less",
            out.total,
            out.kept.len()
        ));
    }
    let Ok(text) = std::str::from_utf8(&out.kept) else { return failed("what it printed is not UTF-8".to_owned()) };
    match serde_json::from_str::<serde::de::IgnoredAny>(text) {
        Ok(_) => Ok(text.trim_end_matches(['\n', '\r']).to_owned()),
        Err(error) => {
            let shown: String = text.trim_end_matches(['\n', '\r']).chars().take(200).collect();
            failed(format!("did not ({error}): {shown}"))
        }
    }
}

/// The end of a text, of at most so many bytes.
fn last(text: &str, most: usize) -> &str {
    let mut at = text.len().saturating_sub(most);
    while !text.is_char_boundary(at) {
        at += 1;
    }
    &text[at..]
}

/// Output as text: marked where it was cut at `most` bytes, and where it is no UTF-8.
pub(super) fn cut(bytes: &[u8], total: usize, most: usize) -> String {
    let kept = &bytes[..bytes.len().min(most)];
    let whole = total <= kept.len();
    // A cut may go through a character.
    let kept = match std::str::from_utf8(kept) {
        Err(error) if !whole && error.error_len().is_none() => &kept[..error.valid_up_to()],
        _ => kept,
    };
    let text = String::from_utf8_lossy(kept);
    let mut text = text.trim_end_matches(['\n', '\r']).to_owned();
    if std::str::from_utf8(kept).is_err() {
        text += REPLACED;
    }
    if !whole {
        text += &format!("{CUT}{} of {total} bytes]", kept.len());
    }
    text
}
