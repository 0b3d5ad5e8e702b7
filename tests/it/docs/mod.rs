//! The documentation.

mod commands;
mod imports;
mod pages;
