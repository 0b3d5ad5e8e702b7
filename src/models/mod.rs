//! Which model: GGUF headers.

pub mod gguf;

pub use gguf::Gguf;
