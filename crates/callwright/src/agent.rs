//! The agent loop: a model's calls are executed, their results go back to it, and what fails is recovered or given up.
//!
//! `turn` decides what comes next, without a model, a tool or a clock; the run does it. [`exec`] runs the tools. A call
//! that keeps failing is recovered in steps: the model gets the error, the call is generated alone under the grammar, and
//! other models try (`fallbacks`). `CallState` is the state of a call on its way through all of them.

mod call;
pub mod exec;
mod execute;
mod failure_log;
mod ledger;
pub(crate) mod messages;
mod other_models;
pub(crate) mod record;
mod recovery;
mod run;

/// Public with the feature `unstable`.
#[path = "agent"]
mod unstable {
    pub mod fallback;
    pub mod journal;
    pub mod turn;
}

#[cfg_attr(feature = "unstable", visibility::make(pub))]
pub(crate) use self::{
    other_models::{Fallbacks, OpenModel},
    unstable::*,
};
pub use run::Agent;
