//! Models that a server runs, with the same interface as a GGUF.
//!
//! In *raw* mode callwright writes the prompt, the server completes it, and callwright reads the text, as it does with a
//! model of its own. A constraint works here, on any server: each byte that arrives is checked. Where only one text fits,
//! or one of the server's likeliest tokens, the answer goes on from it with another request. In *chat* mode the server writes the prompt and reads the calls.

mod chat;
mod engine;
mod feed;
mod http;
mod raw;
mod server;

pub use http::post;
pub use server::{Server, described, models};
