//! The log of a call that was given up: the original error, and all attempts.

use super::call::CallState;
use super::fallback::write;
use crate::message::{Message, messages_to_json};
use crate::{Error, Result};
use serde_json::json;
use std::path::{Path, PathBuf};

/// One attempt at a call that failed.
#[derive(Debug, Clone)]
pub(super) struct Attempt {
    /// The call as it was then.
    pub call: CallState,
    /// The error, in words.
    pub error: String,
    /// The model that wrote it.
    pub model: String,
    /// The step of recovery.
    pub step: &'static str,
    /// The conversation that the model saw.
    pub messages: Vec<Message>,
}

/// Writes the original error and the attempts of a run that failed into a new file in `folder`, and returns its path.
///
/// # Errors
/// [`ErrorKind::Io`](crate::ErrorKind::Io) when it cannot be written.
pub(super) fn log_failure(folder: &Path, error: &str, attempts: &[Attempt]) -> Result<PathBuf> {
    std::fs::create_dir_all(folder).map_err(|error| Error::io("create", folder, &error))?;
    let time = jiff::Zoned::now().strftime("%Y%m%dT%H%M%S%.3f").to_string();
    let tool: String = attempts.first().map_or("", |attempt| &attempt.call.call.name).chars().take(40).collect();
    let tool = tool.replace(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-', "_");
    let path = folder.join(format!("{time}-{tool}-{}.json", std::process::id()));
    let attempts: Vec<_> = attempts
        .iter()
        .map(|Attempt { call, error, model, step, messages }| {
            json!({
                "call": call.id(), "tool": call.call.name, "model": model, "step": step,
                "written": call.written, "fault": call.fault(), "error": error,
                "messages": messages_to_json(messages),
            })
        })
        .collect();
    write(&path, &json!({"error": error, "attempts": attempts}))?;
    Ok(path)
}
