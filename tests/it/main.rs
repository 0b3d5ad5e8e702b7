//! Integration tests, one module for each stage.

mod gguf;
mod gguf_builder;
#[cfg(feature = "hub")]
mod hub;
#[cfg(feature = "hub")]
mod hub_server;
mod models;
#[cfg(feature = "hub")]
mod models_cli;
