//! The program, beyond what a stage does: its input, its output, its options.

mod body;
pub mod chat;
mod check;
mod commands;
mod config;
mod doctor;
mod llama_args;
mod stdin;
mod terminal;
