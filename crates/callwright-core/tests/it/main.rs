//! One test binary; the cases are files in tests/cases.

mod adapt;
mod calls;
mod choose;
mod data;
mod declaration;
mod error;
mod evidence;
mod formats;
mod fuzz;
#[cfg(feature = "grammar")]
mod grammar_limits;
mod headers;
mod infer;
mod lost_tags;
mod message;
mod parse;
mod parses;
mod payloads;
mod prose;
mod responses;
mod template;
mod tool;
