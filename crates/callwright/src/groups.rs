//! The groups of processes that run now: tools, and servers that have tools.
//!
//! On Unix it is a process group, on Windows a job object: its processes end when its last handle is closed, which is also
//! so where this program is killed. Elsewhere only the first process of a group ends.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A group, which has the id of its first process.
struct Group {
    id: u32,
    #[cfg(windows)]
    job: Option<win32job::Job>,
}

static RUNNING: Mutex<Vec<Group>> = Mutex::new(Vec::new());

fn running() -> MutexGuard<'static, Vec<Group>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes note of a group that runs: its first process has just been started.
pub(crate) fn register(process: &std::process::Child) {
    running().push(Group {
        id: process.id(),
        #[cfg(windows)]
        job: job(std::os::windows::io::AsRawHandle::as_raw_handle(process)),
    });
}

/// The same for a server; returns the group's id.
#[cfg(all(windows, feature = "mcp"))]
pub(crate) fn register_server(process: &tokio::process::Child) -> Option<u32> {
    let id = process.id()?;
    running().push(Group { id, job: job(process.raw_handle()?) });
    Some(id)
}

/// Takes note of a group's end.
pub(crate) fn unregister(id: u32) {
    running().retain(|group| group.id != id);
}

/// Kills every group that runs now, for a program that ends at once.
pub fn kill_running() {
    running().iter_mut().for_each(Group::kill);
}

/// Kills a group.
pub(crate) fn kill(id: u32) {
    running().iter_mut().filter(|group| group.id == id).for_each(Group::kill);
}

/// Asks the processes of a group to end, where the system has a way to ask.
#[cfg(feature = "mcp")]
pub(crate) fn terminate(id: u32) {
    #[cfg(unix)]
    signal(id, false);
    #[cfg(not(unix))]
    let _ = id;
}

/// What the guard runs: signals that are meant for the others in its group do not end it.
#[cfg(not(windows))]
const GUARD: &str = "trap '' HUP INT TERM; read -r line; kill -KILL 0";

/// Ends a group of processes with this process, however that ends: a shell in the same group waits for the end of its own input,
/// which this process holds open and never writes to. Then it kills the whole group, itself included. A signal at the parent's death
/// (`PR_SET_PDEATHSIG`) would reach only the first process, on Linux alone.
#[cfg(not(windows))]
pub(crate) struct Guard(std::process::Child);

#[cfg(not(windows))]
impl Guard {
    /// Starts a group of its own, which has nothing but the guard yet.
    pub(crate) fn start() -> std::io::Result<Guard> {
        use std::process::{Command, Stdio};
        let mut command = Command::new("sh");
        command.args(["-c", GUARD]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let shell = command.spawn()?;
        register(&shell);
        Ok(Guard(shell))
    }

    /// The group's id.
    pub(crate) fn group(&self) -> u32 {
        self.0.id()
    }
}

#[cfg(not(windows))]
impl Drop for Guard {
    fn drop(&mut self) {
        kill(self.group());
        let _ = self.0.kill();
        let _ = self.0.wait();
        unregister(self.group());
    }
}

/// The id of a job object, which ends with this process by itself.
#[cfg(windows)]
pub(crate) struct Guard(u32);

#[cfg(windows)]
impl Guard {
    /// The guard of a group that is registered.
    pub(crate) fn of(group: u32) -> Guard {
        Guard(group)
    }

    /// The group's id.
    pub(crate) fn group(&self) -> u32 {
        self.0
    }
}

#[cfg(windows)]
impl Drop for Guard {
    fn drop(&mut self) {
        kill(self.0);
        unregister(self.0);
    }
}

impl Group {
    #[cfg(unix)]
    fn kill(&mut self) {
        signal(self.id, true);
    }

    #[cfg(windows)]
    fn kill(&mut self) {
        self.job = None;
    }

    #[cfg(not(any(unix, windows)))]
    fn kill(&mut self) {}
}

#[cfg(unix)]
fn signal(id: u32, kill: bool) {
    use nix::sys::signal::{Signal, killpg};
    if let Ok(id) = i32::try_from(id) {
        let signal = if kill { Signal::SIGKILL } else { Signal::SIGTERM };
        // That there is nobody left is what is wanted.
        let _ = killpg(nix::unistd::Pid::from_raw(id), signal);
    }
}

/// A job with a process, and all that it starts from now on. What it has started before is not in it.
#[cfg(windows)]
fn job(process: std::os::windows::io::RawHandle) -> Option<win32job::Job> {
    let mut limits = win32job::ExtendedLimitInfo::new();
    limits.limit_kill_on_job_close();
    let job = win32job::Job::create_with_limit_info(&limits).ok()?;
    job.assign_process(process as isize).ok()?;
    Some(job)
}
