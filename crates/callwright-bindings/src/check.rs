//! What a chat template can do.

use crate::source;
use callwright_core::check::Subject;
use callwright_core::choose::{Clues, Origin, Writes, format_for};
use callwright_core::message::Message;
use callwright_core::template::{ChatTemplate, RenderRequest};
use callwright_core::{Error, ErrorKind, Format, Result};
use serde::Deserialize;
use serde_json::{Map, Value, json};

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
    let (template, mut format) = carrier(given)?;
    let mut overlaid = format.is_some();
    let mut variables = Map::new();
    if let Some(name) = &options.format {
        let requested = source::format(name)?.ok_or_else(|| {
            Error::new(ErrorKind::Config, "the format `auto` detects that of a text")
                .hint("leave the option out: the check then finds the template's format")
        })?;
        let native = requested.native_in(&template)?;
        overlaid = native.is_none();
        variables = native.unwrap_or_default();
        format = Some(requested);
    }
    variables.extend(options.variables.clone());
    let (mut inferred, mut choice, mut calls_as_text) = (None, None, false);
    if format.is_none() {
        let chosen = format_for(&template, None, Clues::default())?;
        format = match chosen.origin {
            // The template without an overlay.
            Origin::Default => Format::infer(&template).format.clone(),
            _ => Some(chosen.format.clone()),
        };
        if matches!(chosen.origin, Origin::Inferred | Origin::Default) {
            inferred = Some(Format::infer(&template));
        }
        overlaid = chosen.origin == Origin::Family && chosen.writes == Writes::Section;
        calls_as_text = chosen.origin == Origin::Family && chosen.writes == Writes::Calls;
        choice = Some(chosen);
    }
    let section = match format.as_ref().filter(|_| overlaid) {
        Some(format) => Some(ChatTemplate::new(format!("{}.jinja", format.name), format.source())?),
        None => None,
    };
    let mut subject = Subject::new(&template, format.as_ref());
    subject.section = section.as_ref();
    subject.calls_as_text = calls_as_text;
    subject.variables = variables;
    let report = subject.check(None)?;
    let mut value = json!(report);
    value["template"] = json!(template.name());
    value["format"] = json!(format.as_ref().map(|format| &format.name));
    value["declaration"] = json!(format.as_ref().map(|format| format.to_toml()));
    value["inferred"] = json!(inferred.is_some());
    value["notes"] = json!(inferred.as_ref().map_or(&[][..], |inferred| &inferred.notes));
    value["why"] = json!(choice.as_ref().map(|choice| choice.describe()));
    value["laid_over"] = json!(section.is_some());
    value["model"] = Value::Null;
    value["sound"] = json!(report.sound());
    Ok(value)
}

/// The template; for a format, ChatML with the format as its overlay.
fn carrier(given: &str) -> Result<(ChatTemplate, Option<Format>)> {
    let chatml = || source::template(ChatTemplate::BUILTIN[0]);
    if let Some(format) = Format::builtin(given) {
        return Ok((chatml()?, Some(format.clone())));
    }
    let template = source::template(given)?;
    let declared = Format::parse_declaration(template.source()).map_err(|error| error.in_file(template.name()))?;
    let section_only = declared.is_some() && {
        let question = [Message::user("When does the ferry leave?")];
        let written = template.render(&RenderRequest::default().with(|set| set.messages = &question));
        written.is_ok_and(|prompt| !prompt.text().contains(&question[0].content))
    };
    Ok(match declared.filter(|_| section_only) {
        Some(format) => (chatml()?, Some(format)),
        None => (template, None),
    })
}
