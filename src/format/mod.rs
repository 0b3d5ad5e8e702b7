//! Tool-call formats.

pub mod event;
