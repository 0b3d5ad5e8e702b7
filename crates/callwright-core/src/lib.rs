#![doc = include_str!("../README.md")]
#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod check;
pub mod choose;
pub mod error;
pub mod format;
#[cfg(feature = "grammar")]
pub mod grammar;
#[doc(hidden)]
pub mod json;
pub mod message;
pub mod parse;
#[doc(hidden)]
pub mod schema;
#[doc(hidden)]
pub mod setting;
pub mod template;
#[doc(hidden)]
pub mod text_file;
pub mod tool;

pub use error::{Error, ErrorKind, Result};
pub use format::Format;
pub use parse::{Parser, ParserOptions};
pub use tool::Tools;
