//! The documentation.

mod commands;
mod pages;
