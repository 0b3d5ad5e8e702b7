//! One line for each request, once it is answered or its client is gone.

use callwright::generate::Usage;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A longer path is no path of this server.
const PATH: usize = 100;
/// Paths that programs ask all the time.
const NOT_LOGGED: [&str; 3] = ["/health", "/v1/health", "/metrics"];

/// What is known of a request. It is written where the last one who works on the request drops it.
pub(super) struct Line {
    write: fn(&str),
    request: String,
    began: Instant,
    answer: Mutex<About>,
}

#[derive(Default)]
struct About {
    status: u16,
    model: Option<String>,
    /// Of the prompt, and of all answers to it.
    tokens: Option<(usize, usize)>,
}

impl Line {
    /// For a request that has just come; `None` for a path that is not logged.
    pub(super) fn new(write: fn(&str), method: &str, path: &str) -> Option<Line> {
        let shown: String = path.chars().take(PATH).collect();
        let request = format!("{method} {shown}");
        let line = || Line { write, request, began: Instant::now(), answer: Mutex::default() };
        (!NOT_LOGGED.contains(&path)).then(line)
    }

    fn about(&self) -> MutexGuard<'_, About> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn status(&self, status: u16) {
        self.about().status = status;
    }

    pub(super) fn model(&self, model: &str) {
        self.about().model = Some(model.to_owned());
    }

    /// Adds texts that were read, and not answered.
    pub(super) fn read(&self, tokens: usize) {
        self.about().tokens = Some((tokens, 0));
    }

    /// Adds an answer that is over.
    pub(super) fn answered(&self, usage: &Usage) {
        let mut about = self.about();
        let written = about.tokens.map_or(0, |(_, written)| written);
        about.tokens = Some((usage.prompt_tokens, written + usage.completion_tokens));
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let About { status, model, tokens } = &*self.about();
        let mut line = self.request.clone();
        if let Some(model) = model {
            line += &format!(" {model}");
        }
        // Where a client is gone before there is a response, there is no status.
        line += &if *status == 0 { " no response".to_owned() } else { format!(" {status}") };
        if let Some((prompt, written)) = tokens {
            line += &format!(", {prompt} + {written} tokens");
        }
        (self.write)(&format!("{line}, {:.2} s", self.began.elapsed().as_secs_f64()));
    }
}
