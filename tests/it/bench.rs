//! The benchmark: cases, scores, journal and reports.

mod bfcl;
