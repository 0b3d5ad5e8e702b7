//! Which tool-call format a conversation has.

use crate::Result;
use crate::format::Format;
use crate::template::ChatTemplate;
use serde_json::{Map, Value};

/// The tool-call format of a conversation.
pub(super) struct Chosen {
    pub format: Format,
    /// The variables with which the chat template writes it by itself, if it does.
    pub native: Option<Map<String, Value>>,
    /// What the user should know of it, once there are tools.
    pub notices: Vec<String>,
}

impl Chosen {
    /// What is asked for, or else what the template declares, or what it is seen to write, or what can be laid over it.
    pub fn new(template: &ChatTemplate, asked: Option<Format>) -> Result<Chosen> {
        if let Some(format) = asked {
            let native = format.native_in(template)?;
            return Ok(match native {
                Some(_) => Chosen { format, native, notices: Vec::new() },
                None => Chosen::overlay(template, format),
            });
        }
        if let Some(format) = Format::declared_in(template)? {
            return Ok(Chosen { format, native: Some(Map::new()), notices: Vec::new() });
        }
        let inference = Format::infer(template);
        let name = template.name();
        let written = inference.format.as_ref().filter(|_| template.capabilities().native_tools());
        if let Some(format) = written {
            let notices = inference.notes.iter().map(|note| format!("{name}: {note}")).collect();
            return Ok(Chosen { format: format.clone(), native: Some(Map::new()), notices });
        }
        let mut chosen = Chosen::overlay(template, Format::delimited().clone());
        let lacking = template.capabilities().lacking().join(" and ");
        let why = match (&inference.format, inference.notes.as_slice()) {
            // It could be laid over the template, if it has a name.
            (Some(format), _) => match format.known_as() {
                Some(known) => {
                    format!("it writes calls in the format {known}, but not {lacking}; --format {known} adds that")
                }
                None => format!("it writes calls in a format of its own, but not {lacking}"),
            },
            (None, []) => format!("it does not write {lacking}"),
            (None, notes) => notes.join("; "),
        };
        chosen.notices.push(format!(
            "{name}: {why}; tools and calls are written in the format {} (--format NAME|FILE gives another)",
            chosen.format.name
        ));
        Ok(chosen)
    }

    /// The format laid over the template, whose way of reasoning stays what it is.
    fn overlay(template: &ChatTemplate, format: Format) -> Chosen {
        let reasoning = match &format.reasoning {
            None => Format::infer(template).reasoning.clone(),
            Some(_) => None,
        };
        Chosen { format: format.with_reasoning(reasoning), native: None, notices: Vec::new() }
    }
}
