//! One test binary: linking llama.cpp once is enough.

mod conformance;
mod gguf;
mod gguf_builder;
mod hub_server;
mod models;
mod models_cli;
mod parse;
