//! Measures how reliably a model calls tools: it asks many cases, keeps each answer and classifies it.
//!
//! 1. [`suite::Suite`]: the cases, and the expected answer to each.
//! 2. [`configuration::Configuration`]: a model with a template, a format and options.
//! 3. [`run::run`], or [`parallel::run_parallel`] with several cases at a time, asks the model and keeps each answer in
//!    a [`directory::RunDirectory`].
//! 4. [`score::score`]: the outcome of one answer, by the table [`outcome::OUTCOMES`].
//! 5. [`summary::Summary`]: the run's figures, with the intervals of [`stats`]; [`report`] writes them,
//!    [`compare::compare`] compares two runs.
//! 6. [`calibrate::Calibration`]: the threshold of the decision to call.
//!
//! No answer is dropped: the raw text of each is kept, and a failure of the engine is an outcome. The reports print the
//! table that defines the outcomes.

pub mod ask;
pub mod bfcl;
pub mod calibrate;
pub mod compare;
pub mod configuration;
pub mod directory;
pub mod exact;
mod logistic;
pub mod outcome;
pub mod parallel;
pub mod report;
pub mod run;
pub mod sample;
pub mod score;
pub mod stats;
pub mod suite;
pub mod summary;
