#![doc = include_str!("../README.md")]
#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod budget;
mod depth;
mod desugar;
mod environment;
mod error;
mod filters;
mod format;
mod lists;
mod methods;
mod operators;
mod provided;
mod python;
mod sequences;
mod template;
mod text_filters;

pub use budget::processor_time;
pub use environment::local_time;
pub use error::{Error, ErrorKind};
pub use python::json_escapes;
pub use template::{OUTPUT_LIMIT, Placeholders, RenderOptions, Template, variables};
