//! What one rendering may use, and what it must know beside its variables.
//!
//! Templates come from strangers. minijinja counts instructions; what it does not see is text that grows inside one
//! instruction or a capture, so everything that makes text asks here first.

use super::failure;
use super::reserved::Table;
use jiff::civil::DateTime;
use minijinja::value::{Object, Value};
use minijinja::{Error, ErrorKind, State};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The name under which a rendering finds its [`Scope`]; templates have no reason to touch it.
pub(super) const SCOPE: &str = "__callwright";

/// How many bytes a value or the output may have.
#[derive(Debug)]
pub(super) struct Budget {
    limit: usize,
    levels: usize,
    captured: AtomicUsize,
    nested: AtomicUsize,
    copied: AtomicUsize,
}

/// How many bytes one rendering may copy from text and lists that it makes longer.
const COPIED: usize = 512 << 20;

/// How many levels one rendering may put around values in all; a thread of 2 MiB stack has to drop them.
const NESTING: usize = 1000;

impl Budget {
    /// `items`: how many messages and tools there are, each of which a template may put into a list a few times.
    pub(super) fn new(limit: usize, items: usize) -> Budget {
        Budget {
            limit,
            levels: NESTING + 4 * items,
            captured: AtomicUsize::new(0),
            nested: AtomicUsize::new(0),
            copied: AtomicUsize::new(0),
        }
    }

    /// Fails where a single text has become longer than a whole prompt may be.
    pub(super) fn check(&self, length: usize) -> Result<(), Error> {
        if length > self.limit { Err(self.exceeded()) } else { Ok(()) }
    }

    /// Counts `length` bytes of text made, whether or not they reach the output.
    pub(super) fn spend(&self, length: usize) -> Result<(), Error> {
        let before = self.captured.fetch_add(length, Ordering::Relaxed);
        // Text may pass through a few macros on its way out.
        if before.saturating_add(length) > self.limit.saturating_mul(4) { Err(self.exceeded()) } else { Ok(()) }
    }

    /// Counts bytes that were copied into a longer value.
    pub(super) fn copy(&self, length: usize) -> Result<(), Error> {
        if self.copied.fetch_add(length, Ordering::Relaxed) < COPIED {
            return Ok(());
        }
        Err(Error::new(ErrorKind::InvalidOperation, failure::COPIES))
    }

    /// Counts levels that were put around a value.
    pub(super) fn nest(&self, levels: usize) -> Result<(), Error> {
        if self.nested.fetch_add(levels, Ordering::Relaxed) < self.levels {
            return Ok(());
        }
        Err(Error::new(ErrorKind::InvalidOperation, failure::NESTING))
    }

    fn exceeded(&self) -> Error {
        Error::new(ErrorKind::WriteFailure, "").with_source(TooLong { limit: self.limit })
    }
}

/// Marks an error as the output limit's.
#[derive(Debug)]
pub(super) struct TooLong {
    pub limit: usize,
}

impl std::fmt::Display for TooLong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "more than {} bytes of text", self.limit)
    }
}

impl std::error::Error for TooLong {}

/// What filters and functions of one rendering share.
#[derive(Debug)]
pub(super) struct Scope {
    pub budget: Budget,
    pub now: Option<DateTime>,
    pub table: Table,
}

impl Object for Scope {}

/// The scope of the rendering that is under way.
pub(super) fn scope(state: &State) -> Result<Arc<Scope>, Error> {
    state
        .lookup(SCOPE)
        .as_ref()
        .and_then(Value::downcast_object::<Scope>)
        .ok_or_else(|| Error::new(ErrorKind::InvalidOperation, format!("the template overwrites {SCOPE}")))
}
