//! The process groups of what runs now: tools, and servers that have tools.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Their ids, each of which is that of the group's first process.
static RUNNING: Mutex<Vec<u32>> = Mutex::new(Vec::new());

fn running() -> MutexGuard<'static, Vec<u32>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes note of a group that runs.
pub(crate) fn register(id: u32) {
    running().push(id);
}

/// Takes note of a group's end.
pub(crate) fn unregister(id: u32) {
    running().retain(|&other| other != id);
}

/// Kills every group that runs now, for a program that ends at once.
pub(crate) fn kill_running() {
    running().iter().for_each(|&id| kill(id));
}

/// Kills a group.
pub(crate) fn kill(id: u32) {
    signal(id, true);
}

/// Asks the processes of a group to end.
#[cfg(feature = "mcp")]
pub(crate) fn terminate(id: u32) {
    signal(id, false);
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

#[cfg(not(unix))]
fn signal(_id: u32, _kill: bool) {}
