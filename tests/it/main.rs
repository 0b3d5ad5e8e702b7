//! One test binary, one module for each stage: linking llama.cpp once is enough. The cases are files in tests/cases.

mod adapt;
mod bench;
mod body;
mod by_hand;
mod byte_tokens;
mod chat_cli;
mod check;
mod choose;
mod cli;
mod closing;
mod conformance;
mod constraint;
mod declaration;
mod draft;
mod engine;
mod exec;
mod formats;
mod fuzz;
mod gbnf;
mod gguf;
mod gguf_builder;
mod grammar;
mod headers;
#[cfg(feature = "hub")]
mod hub;
#[cfg(feature = "hub")]
mod hub_server;
mod infer;
mod llama_args;
mod message;
mod models;
#[cfg(feature = "hub")]
mod models_cli;
mod parallel;
mod parse;
mod parses;
mod payloads;
mod program;
mod prose;
mod readme;
mod run;
mod run_cli;
mod run_context;
mod run_limits;
mod sampling;
mod schemas;
mod session;
mod stdin;
mod template;
mod tolerance;
mod tool;
mod training;
mod turn;
