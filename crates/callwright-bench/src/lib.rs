//! Measures how reliably a model calls tools: it asks many cases, keeps each answer and classifies it.
//!
//! 1. [`Suite`]: the cases, and the expected answer to each. A case of several turns has a `Task` in place of that.
//! 2. [`Configuration`]: a model with a template, a format and options. A [`Plan`] has those to measure.
//! 3. [`run()`] asks the model, through an [`Answerer`] such as [`SessionAnswers`], and keeps each answer in a
//!    [`RunDirectory`].
//! 4. [`Summary`]: the outcome of each answer and the run's figures, with their intervals. [`Summary::write_reports`] writes them.
//! 5. `bench calibrate` finds the threshold of the decision to call, and `certify` compares files of one model.
//!
//! No answer is dropped: the raw text of each is kept, and a failure of the engine is an outcome. The reports print the
//! table that defines the outcomes.

mod act;
pub mod ask;
pub mod bfcl;
pub mod calibrate;
pub mod certify;
pub mod compare;
pub mod configuration;
pub mod directory;
pub mod exact;
pub mod export;
pub mod outcome;
pub mod replay;
pub mod report;
pub mod run;
pub mod sample;
pub mod score;
pub mod shard;
pub mod stats;
pub mod suite;
pub mod summary;
mod task;
#[cfg(test)]
mod tests;
pub mod verdict;

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
