//! Tools that run, and runs with them.

mod by_hand;
mod context;
mod effects;
mod exec;
mod execute;
#[cfg(feature = "remote")]
mod kill;
mod limits;
#[cfg(feature = "mcp")]
mod mcp_python;
mod results;
pub mod run;
