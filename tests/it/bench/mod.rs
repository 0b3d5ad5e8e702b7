//! `callwright bench`.

mod command;
