#![doc = include_str!("../README.md")]
#![deny(missing_docs)]
#![forbid(unsafe_code)]
// What only the crates above use is not used then.
#![cfg_attr(not(feature = "unstable"), allow(dead_code, unused_imports))]

#[cfg(feature = "unstable")]
pub mod check;
#[cfg(not(feature = "unstable"))]
mod check;
pub mod choose;
pub mod error;
pub mod format;
#[cfg(feature = "grammar")]
pub mod grammar;
#[cfg(feature = "unstable")]
pub mod json;
#[cfg(not(feature = "unstable"))]
mod json;
pub mod message;
pub mod parse;
#[cfg(feature = "unstable")]
pub mod schema;
#[cfg(not(feature = "unstable"))]
mod schema;
#[cfg(feature = "unstable")]
pub mod setting;
#[cfg(not(feature = "unstable"))]
mod setting;
pub mod template;
#[cfg(feature = "unstable")]
pub mod text_file;
#[cfg(not(feature = "unstable"))]
mod text_file;
pub mod tool;

pub use error::{Error, ErrorKind, Result};
pub use format::Format;
pub use parse::{Parser, ParserOptions};
pub use tool::Tools;
