//! How reliably a model calls tools: many cases, each answer kept and classified.
//!
//! 1. [`suite::Suite`]: the cases, and what is right for each.
//! 2. [`configuration::Configuration`]: a model with a template, a format and options.
//! 3. [`run::run`] asks, or [`parallel::run_parallel`] several at a time, and keeps each answer in a [`directory::RunDirectory`].
//! 4. [`score::score`]: what became of one answer, by the table of [`outcome::OUTCOMES`].
//! 5. [`summary::Summary`]: the run in figures, with the intervals of [`stats`]; [`report`] writes it for readers,
//!    [`compare::compare`] holds two runs against each other.
//!
//! Nothing is dropped: the raw text of every answer is kept, a failure of the engine is an outcome, and what counts as
//! what is one table that the reports print.

pub mod ask;
pub mod bfcl;
pub mod compare;
pub mod configuration;
pub mod directory;
pub mod exact;
pub mod outcome;
pub mod parallel;
pub mod report;
pub mod run;
pub mod sample;
pub mod score;
pub mod stats;
pub mod suite;
pub mod summary;
