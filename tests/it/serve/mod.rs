//! `callwright serve`.

#[cfg(all(feature = "serve", feature = "bundled-model"))]
mod api;
#[cfg(all(feature = "serve", feature = "bundled-model", feature = "remote"))]
mod dialects;
#[cfg(all(feature = "serve", feature = "bundled-model"))]
mod embeddings;
#[cfg(all(feature = "serve", feature = "bundled-model", target_os = "linux"))]
mod hostile;
#[cfg(all(feature = "serve", feature = "bundled-model", feature = "remote", unix))]
mod launch;
#[cfg(all(feature = "serve", feature = "bundled-model"))]
mod page;
#[cfg(all(feature = "serve", feature = "bundled-model", feature = "remote"))]
mod streams;
