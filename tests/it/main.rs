//! Integration tests, one module for each stage: one binary links faster than many.

mod conformance;
mod message;
mod template;
mod tool;
