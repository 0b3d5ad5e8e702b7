//! The agent loop: a model's calls are executed, their results go back to it, and what fails is recovered or given up.
//!
//! `turn` decides what comes next, without a model, a tool or a clock; the run does it. [`exec`] runs the tools. A call
//! that keeps failing is recovered in steps: the model gets the error, the call is generated alone under the grammar, and
//! other models try ([`Fallbacks`]). `CallState` is the state of a call on its way through all of them.

mod call;
pub mod exec;
mod execute;
mod failure_log;
#[cfg(feature = "unstable")]
pub mod fallback;
#[cfg(not(feature = "unstable"))]
pub(crate) mod fallback;
pub mod journal;
mod ledger;
pub(crate) mod messages;
mod other_models;
pub(crate) mod record;
mod recovery;
mod run;
#[cfg(feature = "unstable")]
pub mod turn;
#[cfg(not(feature = "unstable"))]
pub(crate) mod turn;

pub use other_models::Fallbacks;
pub use other_models::OpenModel;
pub use run::Agent;
