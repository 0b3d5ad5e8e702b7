//! The benchmark: cases, scores, journal and reports.

mod bfcl;
mod browser;
mod cli;
mod fake;
mod kill;
mod runs;
mod scores;
mod suites;
