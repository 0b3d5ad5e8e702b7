//! Reliable tool calls from local models.
//!
//! Small models on one's own machine call tools well when the format is plain, the parser forgiving and every departure
//! visible. This crate loads a GGUF through llama.cpp, writes conversation and tools with a Jinja chat template, and
//! streams out tool calls while the model writes them.
//!
#![cfg_attr(feature = "llama", doc = "```")]
#![cfg_attr(not(feature = "llama"), doc = "```no_run")]
//! use callwright::{Session, Tools};
//!
//! let tools = Tools::from_file("examples/weather.json")?;
//! let mut session = Session::builder().model("bundled").tools(tools).build()?;
//! let reply = session.ask("What's the weather in Beijing tomorrow?")?;
//! for call in reply.runnable_calls() {
//!     println!("{} {}", call.name, call.arguments.to_text());
//! }
//! # Ok::<(), callwright::Error>(())
//! ```
//!
//! The types to know:
//!
//! 1. [`Model`]: a loaded model, by name, path or place on the hub. Sessions share its weights.
//! 2. [`Session`]: a conversation. [`Session::ask`] takes a turn; [`Session::respond`] also reports what is written while it is
//!    written.
//! 3. [`Tools`]: what the model may call, with JSON Schemas.
//! 4. [`message::Message`]: one message, in OpenAI's form in and out.
//! 5. [`parse::ParsedCall`]: a call, whether it is complete, whether it fits its tool, and what is wrong if not.
//!    [`Reply::runnable_calls`](session::Reply::runnable_calls) has those that may be executed.
//!
//! An [`Agent`](agent::Agent) executes the calls and returns their results to the model: see [`Session::run`]. A call that
//! fails is reported to the model, repaired, or given up with its error. The conversation is valid whatever happens.
//!
//! ```
//! use callwright::agent::Agent;
//! use callwright::model::ModelInfo;
//! use callwright::{ScriptedEngine, Session};
//!
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! struct City {
//!     /// The city
//!     city: String,
//! }
//!
//! let mut agent = Agent::default();
//! agent.function("get_weather", "Get the weather for a city", |asked: City| {
//!     Ok::<_, String>(format!("sunny in {}", asked.city))
//! });
//!
//! // A model that says this, then that.
//! let call = "### TOOL_CALL_START ###\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}}\n### TOOL_CALL_END ###";
//! let info = ModelInfo { context_train: 8192, ..Default::default() };
//! let engine = ScriptedEngine::from_texts(info, [call, "Rome is sunny."]);
//! let mut session = Session::builder().engine(engine).build()?;
//!
//! session.ask_and_run("What's the weather in Rome?", &mut agent)?.ok()?;
//! let said: Vec<&str> = session.messages().iter().map(|message| message.content.as_str()).collect();
//! assert_eq!(said, ["What's the weather in Rome?", "", "sunny in Rome", "Rome is sunny."]);
//! # Ok::<(), callwright::Error>(())
//! ```
//!
//! To execute calls yourself, add a result for each as a [`message::Message::tool`] with the call's id, and let the model
//! respond. Execute only what is runnable; the result of any other call says what is wrong:
//!
#![cfg_attr(feature = "llama", doc = "```")]
#![cfg_attr(not(feature = "llama"), doc = "```no_run")]
//! # use callwright::{Session, Tools, message::Message};
//! # let tools = Tools::from_file("examples/weather.json")?;
//! # let mut session = Session::builder().tools(tools).build()?;
//! let reply = session.ask("What's the weather in Beijing tomorrow?")?;
//! for call in &reply.calls {
//!     let result = match call.is_runnable() {
//!         true => "21 °C, sunny".to_owned(),
//!         false => format!("error: {}", call.error_text()),
//!     };
//!     session.push(Message::tool(call.id.as_str(), call.name.as_str(), result));
//! }
//! println!("{}", session.respond(&mut |_| ())?.message.content);
//! # Ok::<(), callwright::Error>(())
//! ```
//!
//! The stages can also be used alone. [`template`] renders chat templates exactly as transformers does, [`parse`] reads a
//! model's text as a stream. Both are in the crate `callwright-core`, which needs no C++.
//!
//! The feature `unstable` makes more public: engines, finding and checking GGUF files, the loop that generates, constraints, and
//! what the program needs besides. It may change with each version.
#![deny(missing_docs)]
#![warn(unreachable_pub)]
// What only the program uses is not used then.
#![cfg_attr(not(feature = "unstable"), allow(dead_code, unreachable_pub, unused_imports))]

pub mod agent;
mod answer;
mod groups;
#[cfg(feature = "mcp")]
pub mod mcp;
pub mod model;
pub mod session;

/// What the program and the benchmark use: public with the feature `unstable`.
#[path = "."]
mod unstable {
    pub mod cache;
    pub mod constraint;
    pub mod decision;
    pub mod engine;
    pub mod files;
    pub mod generate;
    pub mod hash;
    pub mod machine;
    pub mod models;
    #[cfg(feature = "remote")]
    pub mod remote;
}

pub use callwright_core::error::{self, Error, ErrorKind, Result};
pub use callwright_core::tool::{self, Tools};
pub use callwright_core::{format, message, parse, template};
pub use engine::scripted::ScriptedEngine;
pub use model::{Model, ModelBuilder};
pub use session::Session;
#[cfg_attr(feature = "unstable", visibility::make(pub))]
use {
    callwright_core::{check, choose, grammar, json, setting, text_file},
    engine::llama::Embedder,
    unstable::*,
};

/// Models can be shared among threads; sessions, engines and agents can be handed to another one.
const _: () = {
    const fn is_send<T: Send + ?Sized>() {}
    const fn is_sync<T: Send + Sync>() {}
    is_sync::<Model>();
    is_send::<Session>();
    is_send::<dyn engine::Engine>();
    is_send::<agent::Agent>();
    is_send::<Embedder>();
};
