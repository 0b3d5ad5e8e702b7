//! A sign on the terminal that the model reads the prompt, where that takes long.

use super::say;
use callwright::session::Session;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// A prompt that is read in less time shows no sign.
const PATIENCE: Duration = Duration::from_millis(500);
/// How often the sign is drawn.
const TICK: Duration = Duration::from_millis(100);
/// Clears the line. indicatif fills the line with blanks: the ^C that a terminal shows would go to the next line, and the
/// sign would stay.
const CLEAR: &str = "\r\x1b[K";

/// Shows on standard error, where that is a terminal, how far the model has read a prompt.
pub fn show(session: &mut Session) {
    if !std::io::stderr().is_terminal() {
        return;
    }
    let mut sign: Option<Sign> = None;
    session.watch_prompt(move |read, total| {
        if read < total {
            sign.get_or_insert_with(|| Sign::begin(total)).read.store(read, Ordering::Relaxed);
        } else {
            // Before anything of the answer is written: dropping the sign clears it.
            sign = None;
        }
    });
}

/// The sign for one prompt; its thread draws it, as a batch of tokens may take seconds.
struct Sign {
    read: Arc<AtomicUsize>,
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Sign {
    fn begin(total: usize) -> Sign {
        let read = Arc::new(AtomicUsize::new(0));
        let (end, ended) = channel::<()>();
        let so_far = Arc::clone(&read);
        let draw = move || {
            if ended.recv_timeout(PATIENCE) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            for turn in ['|', '/', '-', '\\'].into_iter().cycle() {
                let read = so_far.load(Ordering::Relaxed);
                say(format_args!("{CLEAR}{turn} Reading the prompt: {read} of {total} tokens"));
                if ended.recv_timeout(TICK) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
            }
            say(format_args!("{CLEAR}"));
        };
        // A system that has no thread to spare shows no sign.
        Sign { read, end: Some(end), thread: std::thread::Builder::new().spawn(draw).ok() }
    }
}

impl Drop for Sign {
    fn drop(&mut self) {
        drop(self.end.take());
        // A panic of the thread would have been about drawing alone.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
