//! Reliable tool calls from local models.

pub mod error;
pub mod format;
pub mod message;
pub mod tool;

pub use error::{Error, ErrorKind, Result};
