//! How reliably a model calls tools: many cases, each answer kept and classified.
//!
//! 1. [`suite::Suite`]: the cases, and what is right for each.
//! 2. [`score::score`]: what became of one answer, by the table of [`outcome::OUTCOMES`].
//! 3. [`stats`]: shares with intervals, paired tests.
//!
//! Nothing is dropped: the raw text of every answer is kept, a failure of the engine is an outcome, and what counts as
//! what is one table that the reports print.

pub mod bfcl;
pub mod exact;
pub mod outcome;
pub mod sample;
pub mod score;
pub mod stats;
pub mod suite;
