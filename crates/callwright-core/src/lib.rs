#![doc = include_str!("../README.md")]
#![deny(missing_docs)]
#![forbid(unsafe_code)]
// What only the crates above use is not used then.
#![cfg_attr(not(feature = "unstable"), allow(dead_code, unused_imports))]

pub mod error;
pub mod format;
pub mod message;
pub mod parse;
pub mod template;
pub mod tool;

/// What the crates above use: public with the feature `unstable`.
#[path = "."]
mod unstable {
    pub mod check;
    pub mod choose;
    #[cfg(feature = "grammar")]
    pub mod grammar;
    pub mod json;
    pub mod schema;
    pub mod setting;
    pub mod text_file;
}

pub use error::{Error, ErrorKind, Result};
pub use format::Format;
pub use parse::{Parser, ParserOptions};
pub use tool::Tools;
#[cfg_attr(feature = "unstable", visibility::make(pub))]
use unstable::*;
