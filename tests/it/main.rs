//! The library and the program as their users see them: one test binary, one module for each stage. The cases are files in
//! tests/cases. Tests of what the library keeps to itself are in src/, as modules named `tests`.

mod bench_cli;
mod body;
mod bundled;
mod by_hand;
mod byte_tokens;
mod chat_cli;
mod check;
mod choose;
mod cli;
mod closing;
mod config;
mod constraint;
#[allow(dead_code, reason = "the tests of the core use all of it")]
#[path = "../../crates/callwright-core/tests/it/data.rs"]
mod data;
mod decision;
mod docs;
mod docs_commands;
mod doctor;
mod draft;
mod engine;
mod exec;
mod gbnf;
mod gguf_builder;
mod grammar;
mod headers;
#[cfg(feature = "hub")]
mod hub;
#[cfg(feature = "hub")]
mod hub_hostile;
#[cfg(feature = "hub")]
mod hub_server;
mod inferred;
mod llama_args;
mod lora;
#[cfg(feature = "mcp")]
mod mcp;
mod model;
#[cfg(feature = "remote")]
mod model_server;
mod models;
#[cfg(feature = "hub")]
mod models_cli;
mod no_call;
mod program;
mod prompt_cache;
mod reading;
#[cfg(feature = "llama")]
mod real;
#[cfg(feature = "remote")]
mod remote;
mod renders;
mod repeats;
mod run;
mod run_cli;
mod run_context;
mod run_limits;
mod sampling;
mod schemas;
#[cfg(all(feature = "serve", feature = "bundled-model"))]
mod serve;
#[cfg(all(feature = "serve", feature = "bundled-model", target_os = "linux"))]
mod serve_hostile;
#[cfg(all(feature = "serve", feature = "bundled-model"))]
mod serve_page;
mod session;
mod settings;
mod stdin;
mod terminal;
mod tolerance;
mod training;
