//! Models here and on servers, their adapters, sampling and caches.

mod draft;
mod llama;
mod lora;
#[cfg(feature = "remote")]
pub mod model_server;
mod prompt_cache;
#[cfg(feature = "llama")]
mod real;
#[cfg(feature = "remote")]
mod remote;
mod sampling;
