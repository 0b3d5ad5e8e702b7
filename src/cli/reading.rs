//! Shows on the terminal that the model reads the prompt, if that takes long.

use callwright::session::Session;
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// No sign is shown for less time.
const PATIENCE: Duration = Duration::from_millis(500);
/// How often the sign is drawn.
const TICK: Duration = Duration::from_millis(100);
/// Clears the line. indicatif fills the line with blanks: the ^C that a terminal shows would go to the next line, and
/// the sign would stay.
const CLEAR: &str = "\r\x1b[K";

/// Shows the progress of reading a prompt on standard error, if that is a terminal.
pub fn show(session: &mut Session) {
    if !std::io::stderr().is_terminal() {
        return;
    }
    let mut sign: Option<Sign> = None;
    session.watch_prompt(move |read, total| {
        if read < total {
            sign.get_or_insert_with(|| Sign::begin(total)).read.store(read, Ordering::Relaxed);
        } else {
            // Dropping the sign clears it, before the answer is written.
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
                write(format_args!("{CLEAR}{turn} Reading the prompt: {read} of {total} tokens"));
                if ended.recv_timeout(TICK) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
            }
            write(format_args!("{CLEAR}"));
        };
        // Without a thread there is no sign.
        Sign { read, end: Some(end), thread: std::thread::Builder::new().spawn(draw).ok() }
    }
}

impl Drop for Sign {
    fn drop(&mut self) {
        drop(self.end.take());
        // The thread only draws, so its panic does not matter.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Writes as it is: all of it is the program's own, and what people read elsewhere has its control characters shown.
fn write(text: std::fmt::Arguments<'_>) {
    let mut err = std::io::stderr();
    let _ = err.write_fmt(text).and_then(|()| err.flush());
}
