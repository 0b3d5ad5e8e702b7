//! Reliable tool calls from local models.

pub mod engine;
pub mod error;
pub mod format;
mod json;
pub mod message;
pub mod models;
pub mod session;
pub mod template;
pub mod tool;

pub use error::{Error, ErrorKind, Result};
pub use session::Session;
pub use tool::Tools;
