//! The agent loop: a model's calls are executed, their results go back to it, and what fails is recovered or given up.
//!
//! [`turn`] decides what comes next, without a model, a tool or a clock; the run does it. [`exec`] runs the tools; a call
//! that keeps failing climbs a ladder: the model gets the error, the call is generated alone under the grammar, and other models
//! try ([`fallback`]).

pub mod exec;
pub mod fallback;
mod ladder;
mod open;
mod rescue;
mod run;
pub(crate) mod tell;
pub mod turn;

pub use rescue::{Fallbacks, Open};
pub use run::Agent;
