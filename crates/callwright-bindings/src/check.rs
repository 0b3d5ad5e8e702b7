//! What a chat template can do.

use crate::source;
use callwright_core::check::Chosen;
use callwright_core::choose::Clues;
use callwright_core::template::ChatTemplate;
use callwright_core::{Error, ErrorKind, Format, Result};
use serde::Deserialize;
use serde_json::{Map, Value};

/// How to check a template.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct CheckOptions {
    /// The format in which calls are expected; without one, what the template declares or writes.
    pub format: Option<String>,
    /// More variables of the template, such as `enable_thinking`.
    pub variables: Map<String, Value>,
}

/// Renders conversations with a template, and reports what it can and cannot do: the object of
/// `callwright template check --json`.
///
/// # Errors
/// Of the template, its declaration or an option. What the template fails to render is part of the report.
pub fn check_template(given: &str, options: &CheckOptions) -> Result<Value> {
    let (template, overlaid) = carrier(given)?;
    let requested = match &options.format {
        Some(name) => Some(source::format(name)?.ok_or_else(|| {
            Error::new(ErrorKind::Config, "the format `auto` detects that of a text")
                .hint("leave the option out: the check then finds the template's format")
        })?),
        None => None,
    };
    let mut chosen = Chosen::new(&template, overlaid, requested, Clues::default())?;
    chosen.variables.extend(options.variables.clone());
    let report = chosen.subject(&template).check(None)?;
    Ok(chosen.to_json(&template, &report, None))
}

/// The template; for a format, ChatML with the format as its overlay.
fn carrier(given: &str) -> Result<(ChatTemplate, Option<Format>)> {
    let chatml = || source::template(ChatTemplate::BUILTIN[0]);
    if let Some(format) = Format::builtin(given) {
        return Ok((chatml()?, Some(format.clone())));
    }
    let template = source::template(given)?;
    Ok(match Chosen::section_only(&template)? {
        Some(format) => (chatml()?, Some(format)),
        None => (template, None),
    })
}
