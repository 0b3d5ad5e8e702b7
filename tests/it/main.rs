//! Integration tests, one module for each stage: one binary links faster than many.

mod conformance;
