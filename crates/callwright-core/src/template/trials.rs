//! Trial renderings, which probe a template. After one of them ends at a limit, the rest are skipped.
//!
//! Stopping a template with endless loops takes half a second. Probing it takes dozens of small conversations, which
//! would all end the same.

use super::is_bound;
use crate::error::{Error, ErrorKind, Result};
use minijinja_transformers::processor_time;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Processor time of all trials of a template. Trials shorter than this are not counted.
const PATIENCE: Duration = Duration::from_millis(1000);
const QUICK: Duration = Duration::from_millis(50);

/// The trials of one template so far.
#[derive(Debug, Default)]
pub(super) struct Trials {
    /// In microseconds.
    spent: AtomicU64,
    made: AtomicUsize,
    /// Why there will be no more.
    over: OnceLock<String>,
}

impl Trials {
    /// How many there were.
    pub(super) fn made(&self) -> usize {
        self.made.load(Ordering::Relaxed)
    }

    /// Renders something as a trial.
    ///
    /// # Errors
    /// Those of `render`; and, if earlier trials have shown that the template is unusable, their error.
    pub(super) fn run<T>(&self, render: impl FnOnce() -> Result<T>) -> Result<T> {
        if let Some(why) = self.over.get() {
            return Err(Error::new(ErrorKind::Template, format!("not tried: {why}")));
        }
        let start = processor_time();
        self.made.fetch_add(1, Ordering::Relaxed);
        let result = render();
        let taken = Some(processor_time().saturating_sub(start)).filter(|taken| *taken > QUICK).unwrap_or_default();
        let taken = u64::try_from(taken.as_micros()).unwrap_or(u64::MAX);
        let spent = self.spent.fetch_add(taken, Ordering::Relaxed).saturating_add(taken);
        let why = match &result {
            Err(error) if is_bound(error) => {
                let error = error.to_string();
                format!("another conversation ended with: {}", error.lines().next().unwrap_or_default())
            }
            _ if Duration::from_micros(spent) > PATIENCE => "other conversations took too long already".to_owned(),
            _ => return result,
        };
        // Keeps the first reason.
        let _ = self.over.set(why);
        result
    }
}
