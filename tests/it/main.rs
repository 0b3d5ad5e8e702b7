//! Integration tests, one module for each stage.

mod gguf;
mod gguf_builder;
