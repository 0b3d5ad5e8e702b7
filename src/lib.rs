//! Reliable tool calls from local models.
//!
//! Small models on one's own machine call tools well when the format is plain, the parser forgiving and every departure
//! visible. This crate loads a GGUF through llama.cpp, writes conversation and tools with a Jinja chat template, and
//! streams out tool calls while the model writes them.
//!
//! ```no_run
//! use callwright::{Session, Tools};
//!
//! let mut session = Session::open("model.gguf")?;
//! session.set_tools(Tools::from_file("tools.json")?);
//! let reply = session.ask("What's the weather in Beijing tomorrow?")?;
//! for call in reply.calls.iter().filter(|call| call.complete && call.valid) {
//!     println!("{} {}", call.name, call.arguments.to_text());
//! }
//! # Ok::<(), callwright::Error>(())
//! ```
//!
//! The four types to know:
//!
//! 1. [`Session`]: a conversation with one model. [`Session::ask`] takes a turn; [`Session::respond`] does too, and tells
//!    what is written while it is written.
//! 2. [`Tools`]: what the model may call, with JSON Schemas.
//! 3. [`message::Message`]: what was said, in OpenAI's form in and out.
//! 4. [`parse::ParsedCall`]: a call, whether it is complete, whether it fits its tool, and what is wrong if not.
//!
//! To have the calls executed and answered, give the session an [`Agent`](session::Agent) and let it
//! [run](Session::run): what fails is told to the model, mended, or given up with its error, and the conversation is
//! valid whatever happens.
//!
//! ```
//! use callwright::engine::{ModelInfo, scripted::ScriptedEngine};
//! use callwright::session::Agent;
//! use callwright::{Session, Tools};
//!
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! struct City {
//!     /// The city
//!     city: String,
//! }
//!
//! let mut agent = Agent::default();
//! let weather = agent.executor.function("get_weather", "Get the weather for a city", |asked: City| {
//!     Ok::<_, String>(format!("sunny in {}", asked.city))
//! });
//!
//! // A model that says this, then that.
//! let call = "### TOOL_CALL_START ###\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}}\n### TOOL_CALL_END ###";
//! let info = ModelInfo { context_train: 8192, ..Default::default() };
//! let engine = ScriptedEngine::from_texts(info, [call, "Rome is sunny."]);
//! let mut session = Session::new(Box::new(engine), None, None)?;
//! session.set_tools(Tools::new([weather])?);
//!
//! session.ask_and_run("What's the weather in Rome?", &mut agent)?.ok()?;
//! let said: Vec<&str> = session.messages().iter().map(|message| message.content.as_str()).collect();
//! assert_eq!(said, ["What's the weather in Rome?", "", "sunny in Rome", "Rome is sunny."]);
//! # Ok::<(), callwright::Error>(())
//! ```
//!
//! To execute calls yourself, add a result for each as a [`message::Message::tool`] with the call's id, and let the
//! model respond. Execute only what is complete and fits its tool; the result of any other call says what is wrong:
//!
//! ```no_run
//! # use callwright::{Session, message::Message};
//! # let mut session = Session::open("model.gguf")?;
//! # let reply = session.ask("What's the weather in Beijing tomorrow?")?;
//! let mut messages = session.messages().to_vec();
//! for call in &reply.calls {
//!     let result = match call.complete && call.valid {
//!         true => "21 °C, sunny".to_owned(),
//!         false => format!("error: {}", call.problems.join("; ")),
//!     };
//!     messages.push(Message::tool(call.id.as_str(), call.name.as_str(), result));
//! }
//! session.set_messages(messages)?;
//! println!("{}", session.respond(&mut |_| ())?.message.content);
//! # Ok::<(), callwright::Error>(())
//! ```
//!
//! Underneath, the stages can be used alone: [`template`] renders chat templates exactly as transformers does,
//! [`parse`] reads a model's text as a stream, [`models`] finds, checks and downloads GGUF files, [`engine`] runs
//! them.
#![deny(missing_docs)]

pub mod bench;
pub mod constraint;
pub mod engine;
pub mod exec;
pub mod fallback;
pub mod generate;
#[doc(hidden)]
pub mod hash;
pub mod models;
pub mod session;
pub mod turn;

use callwright_core::text_file;

pub use callwright_core::error::{self, Error, ErrorKind, Result};
pub use callwright_core::tool::{self, Tools};
pub use callwright_core::{check, choose, format, grammar, json, message, parse, template};
pub use session::Session;

/// Sessions, engines and agents can be handed to another thread.
const _: () = {
    const fn is_send<T: Send + ?Sized>() {}
    is_send::<Session>();
    is_send::<dyn engine::Engine>();
    is_send::<session::Agent>();
};
