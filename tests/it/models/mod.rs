//! Where models come from: names, files, downloads; and the bundled one.

#[cfg(feature = "hub")]
mod command;
#[cfg(feature = "hub")]
mod content;
#[cfg(feature = "hub")]
mod hub;
#[cfg(feature = "hub")]
mod hub_hostile;
#[cfg(feature = "hub")]
mod hub_server;
mod names;
mod open;
mod training;
