//! Renderings that only find out what a template does: once one of them ends at a bound, the rest is not tried.
//!
//! A template of endless loops takes half a second to be stopped. Finding out what it can write takes dozens of small
//! conversations, which would all end the same way.

use super::ChatTemplate;
use super::jinja::budget::processor_time;
use super::jinja::failure;
use crate::error::{Error, ErrorKind, Result};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How much processor time all trials of a template may take; those that take no longer than this do not count, being quick enough.
const PATIENCE: Duration = Duration::from_millis(1000);
const QUICK: Duration = Duration::from_millis(50);

/// What the trials of one template came to so far.
#[derive(Debug, Default)]
pub(super) struct Trials {
    /// In microseconds.
    spent: AtomicU64,
    /// Why there are to be no more.
    over: OnceLock<String>,
}

impl ChatTemplate {
    /// Renders something in order to see what comes of it.
    ///
    /// # Errors
    /// Those of `render`; and, where trials have shown that the template is of no use, what was found then.
    pub(crate) fn trial<T>(&self, render: impl FnOnce() -> Result<T>) -> Result<T> {
        if let Some(why) = self.trials.over.get() {
            return Err(Error::new(ErrorKind::Template, format!("not tried: {why}")));
        }
        let start = processor_time();
        let result = render();
        let taken = Some(processor_time().saturating_sub(start)).filter(|taken| *taken > QUICK).unwrap_or_default();
        let taken = u64::try_from(taken.as_micros()).unwrap_or(u64::MAX);
        let spent = self.trials.spent.fetch_add(taken, Ordering::Relaxed).saturating_add(taken);
        let why = match &result {
            Err(error) if failure::is_bound(error) => {
                let error = error.to_string();
                format!("another conversation ended with: {}", error.lines().next().unwrap_or_default())
            }
            _ if Duration::from_micros(spent) > PATIENCE => "other conversations took too long already".to_owned(),
            _ => return result,
        };
        // The first reason stays.
        let _ = self.trials.over.set(why);
        result
    }
}
