//! The library and the program as their users see them: one test binary, one folder for each stage. The cases are files in
//! tests/cases. Tests of what the library keeps to itself are in src/, as modules named `tests`.

mod agent;
mod bench;
mod bundled;
mod byte_tokens;
mod cli;
mod constraint;
#[allow(dead_code, reason = "the tests of the core use all of it")]
#[path = "../../crates/callwright-core/tests/it/data.rs"]
mod data;
mod docs;
mod engine;
mod gguf_builder;
mod hooked;
mod models;
mod program;
mod serve;
mod session;
mod settings;
