//! Reliable tool calls from local models.

pub mod error;
pub mod message;
pub mod tool;
pub mod format;

pub use error::{Error, ErrorKind, Result};
