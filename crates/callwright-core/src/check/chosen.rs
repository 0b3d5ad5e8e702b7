//! Which format a template is checked with, for all programs that check templates.

use super::{Report, Subject};
use crate::Result;
use crate::choose::infer::{Inference, declared_in};
use crate::choose::{Choice, Clues, Origin, Writes, format_for};
use crate::format::Format;
use crate::message::Message;
use crate::template::{ChatTemplate, RenderRequest};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// The format that a template is checked with, and how it is used.
#[derive(Debug)]
pub struct Chosen {
    /// The format, if there is one.
    pub format: Option<Format>,
    /// The format's tool section, where it is an overlay of the template.
    pub section: Option<ChatTemplate>,
    /// The template's variables with which it writes the format itself.
    pub variables: Map<String, Value>,
    /// The format that the template writes, inferred where none is declared.
    pub inferred: Option<Arc<Inference>>,
    /// The format of a conversation with the template, where none was requested.
    pub choice: Option<Choice>,
    /// Whether calls are text in the format, while the template writes the tools.
    calls_as_text: bool,
}

impl Chosen {
    /// The `requested` format; else the `overlaid` one, whose file was given in place of a template; else the one that
    /// a session would choose.
    ///
    /// # Errors
    /// If a declaration is invalid.
    pub fn new(
        template: &ChatTemplate,
        overlaid: Option<Format>,
        requested: Option<Format>,
        clues: Clues<'_>,
    ) -> Result<Chosen> {
        let (mut variables, mut inferred, mut choice, mut calls_as_text) = (Map::new(), None, None, false);
        let (format, is_overlay) = match (requested, overlaid) {
            (Some(requested), _) => {
                let native = requested.native_in(template)?;
                let is_overlay = native.is_none();
                variables = native.unwrap_or_default();
                (Some(requested), is_overlay)
            }
            (None, Some(overlaid)) => (Some(overlaid), true),
            (None, None) => {
                let chosen = format_for(template, None, clues)?;
                let format = match chosen.origin {
                    // The template without an overlay.
                    Origin::Default => Format::infer(template).format.clone(),
                    _ => Some(chosen.format.clone()),
                };
                if matches!(chosen.origin, Origin::Inferred | Origin::Default) {
                    inferred = Some(Format::infer(template));
                }
                let family = chosen.origin == Origin::Family;
                calls_as_text = family && chosen.writes == Writes::Calls;
                let is_overlay = family && chosen.writes == Writes::Section;
                choice = Some(chosen);
                (format, is_overlay)
            }
        };
        let section = match format.as_ref().filter(|_| is_overlay) {
            Some(format) => Some(ChatTemplate::new(format!("{}.jinja", format.name), format.source())?),
            None => None,
        };
        Ok(Chosen { format, section, variables, inferred, choice, calls_as_text })
    }

    /// The format that the template declares if the template is only its tool section, and no chat template.
    ///
    /// # Errors
    /// If the declaration is invalid.
    pub fn section_only(template: &ChatTemplate) -> Result<Option<Format>> {
        let declared = declared_in(template)?;
        let is_section = || {
            let question = [Message::user("When does the ferry leave?")];
            let written = template.render(&RenderRequest::default().with(|set| set.messages = &question));
            written.is_ok_and(|prompt| !prompt.text().contains(&question[0].content))
        };
        Ok(declared.filter(|_| is_section()))
    }

    /// Returns what to check.
    pub fn subject<'a>(&'a self, template: &'a ChatTemplate) -> Subject<'a> {
        let mut subject = Subject::new(template, self.format.as_ref());
        subject.section = self.section.as_ref();
        subject.calls_as_text = self.calls_as_text;
        subject.variables = self.variables.clone();
        subject
    }

    /// The report as JSON; `model` is the one that counted tokens.
    pub fn to_json(&self, template: &ChatTemplate, report: &Report, model: Option<&str>) -> Value {
        let mut value = json!(report);
        value["template"] = json!(template.name());
        value["format"] = json!(self.format.as_ref().map(|format| &format.name));
        value["declaration"] = json!(self.format.as_ref().map(|format| format.to_toml()));
        value["inferred"] = json!(self.inferred.is_some());
        value["notes"] = json!(self.inferred.as_ref().map_or(&[][..], |inferred| &inferred.notes));
        value["why"] = json!(self.choice.as_ref().map(Choice::describe));
        value["overlay"] = json!(self.section.is_some());
        value["model"] = json!(model);
        value["sound"] = json!(report.sound());
        value
    }
}
