//! Measures how reliably a model calls tools: it asks many cases, keeps each answer and classifies it.
//!
//! 1. [`Suite`]: the cases, and the expected answer to each.
//! 2. [`Configuration`]: a model with a template, a format and options. A [`Plan`] has those to measure.
//! 3. [`run()`] asks the model, through an [`Answerer`] such as [`SessionAnswers`], and keeps each answer in a
//!    [`RunDirectory`].
//! 4. [`Summary`]: the outcome of each answer and the run's figures, with their intervals. [`Summary::write_reports`] writes them.
//! 5. `bench calibrate` finds the threshold of the decision to call, and `certify` compares files of one model.
//!
//! No answer is dropped: the raw text of each is kept, and a failure of the engine is an outcome. The reports print the
//! table that defines the outcomes.

pub(crate) mod ask;
pub(crate) mod bfcl;
pub(crate) mod calibrate;
pub(crate) mod certify;
pub(crate) mod compare;
pub(crate) mod configuration;
pub(crate) mod directory;
pub(crate) mod exact;
pub(crate) mod outcome;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod sample;
pub(crate) mod score;
pub(crate) mod shard;
pub(crate) mod stats;
pub(crate) mod suite;
pub(crate) mod summary;
#[cfg(test)]
mod tests;
pub(crate) mod verdict;

pub use self::{
    ask::SessionAnswers,
    configuration::Configuration,
    directory::{Plan, RunDirectory},
    run::{Answer, Answerer, Progress, run},
    sample::Timing,
    stats::Proportion,
    suite::{Case, Suite},
    summary::{ConfigurationSummary, ScoreDefinition, Scores, Summary},
};
