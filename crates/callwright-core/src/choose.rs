//! Chooses the tool-call format for a chat template, and says why.
//!
//! Sessions, `parse --template`, `template check` and `model inspect` all use this module, so that they never disagree.

mod asked;
mod family;
pub mod infer;
mod named;
mod native;

pub use family::special_tokens;
pub use named::is_name;

use crate::error::{Error, ErrorKind, Result};
use crate::format::{Builtin, Format};
use crate::template::ChatTemplate;
use crate::template::probe::written_with_tools;
use infer::Inference;
use serde_json::{Map, Value};
use std::sync::Arc;

/// What is known about a model besides its chat template.
#[derive(Clone, Copy, Default)]
pub struct Clues<'a> {
    /// The architecture that the GGUF names; empty if unknown.
    pub architecture: &'a str,
    /// Whether a text is one token of the vocabulary; `None` if the vocabulary is unknown.
    pub is_token: Option<&'a dyn Fn(&str) -> bool>,
}

/// Which parts of a conversation with tools the template writes, and which the format.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Writes {
    /// The template writes everything, given these variables.
    Template(Map<String, Value>),
    /// The template writes the tools; past calls are part of the assistant's text.
    Calls,
    /// The format's tool section joins the system message, and past calls are text.
    Section,
}

/// Where a format comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// The caller requested it.
    Requested,
    /// The template declares it.
    Declared,
    /// Inferred from what the template renders.
    Inferred,
    /// A built-in format whose markers appear in the template or the vocabulary.
    Family,
    /// Nothing is known about the model's own format.
    Default,
}

/// The format of a conversation.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Choice {
    /// The format.
    pub format: Format,
    /// Who writes tools and calls.
    pub writes: Writes,
    /// Where the format comes from.
    pub origin: Origin,
    /// Why it was chosen, in words; empty if it was requested, declared or inferred.
    pub why: String,
    /// What the user should know if there are tools.
    pub notices: Vec<String>,
}

impl Choice {
    /// The format and the reason for it, in a few words.
    pub fn describe(&self) -> String {
        let (name, why) = (&self.format.name, &self.why);
        match self.origin {
            Origin::Requested => format!("format {name}, as requested"),
            Origin::Declared => format!("format {name}, which the template declares"),
            Origin::Inferred => match Format::builtin(name).map(|_| name.as_str()).or(self.format.known_as()) {
                Some(known) => format!("format {known}, which the template writes"),
                None => "a format of the template's own, which it is seen to write".to_owned(),
            },
            Origin::Family => format!("format {name}, because {why}"),
            Origin::Default => format!("format {name}, added to the template, because {why}"),
        }
    }
}

/// Chooses the format: the requested one, else the one that the template declares, else the one inferred from its
/// output, else the built-in one whose markers the template or the model has, else `delimited`.
///
/// ```
/// use callwright_core::choose::{Clues, Origin, format_for};
/// use callwright_core::template::ChatTemplate;
///
/// let template = ChatTemplate::new("chat.jinja", "Write <tool_call>{…}</tool_call>. {{ messages[0].content }}")?;
/// let choice = format_for(&template, None, Clues::default())?;
/// assert_eq!((choice.format.name.as_str(), choice.origin), ("hermes", Origin::Family));
/// # Ok::<(), callwright_core::Error>(())
/// ```
///
/// # Errors
/// [`ErrorKind::Format`] when the template's declaration is invalid.
pub fn format_for(template: &ChatTemplate, requested: Option<Format>, clues: Clues<'_>) -> Result<Choice> {
    let chosen = |format: Format, writes, origin| {
        let format = with_reasoning_of(format, &writes, template).with_headers(infer::headers(template));
        Choice { format, writes, origin, why: String::new(), notices: Vec::new() }
    };
    if let Some(format) = requested {
        let writes = format.native_in(template)?.map_or(Writes::Section, Writes::Template);
        return Ok(chosen(format, writes, Origin::Requested));
    }
    if let Some(format) = infer::declared_in(template)? {
        return Ok(chosen(format, Writes::Template(Map::new()), Origin::Declared));
    }
    let (inference, name) = (Format::infer(template), template.name());
    let family = inference.turns.then(|| by_text(template)).flatten();
    let inferred = inference.format.as_ref().filter(|_| template.capabilities().native_tools() && family.is_none());
    let asked = if family.is_none() { asked::better(template, inferred) } else { None };
    if let Some(format) = inferred.filter(|_| asked.is_none()) {
        let notices = inference.notes.iter().map(|note| format!("{name}: {note}")).collect();
        // A template may drop past reasoning; its markers are then those of the model's family.
        let known = format.known_as().filter(|_| format.reasoning.is_none()).and_then(Format::builtin);
        let format = match family_of(template, format) {
            Some(builtin) => builtin.format().clone(),
            None => format.clone().with_reasoning(known.and_then(|known| known.reasoning.clone())),
        };
        let choice = chosen(format, Writes::Template(Map::new()), Origin::Inferred);
        return Ok(Choice { notices, ..choice });
    }
    if let Some((builtin, why)) = asked.or_else(|| built_in(template, clues)) {
        let choice = chosen(builtin.format().clone(), who_writes(template), Origin::Family);
        let notices = vec![format!("{name}: format {}, because {why}", builtin.name)];
        return Ok(Choice { why, notices, ..choice });
    }
    let choice = chosen(Format::delimited().clone(), Writes::Section, Origin::Default);
    let lacking = template.capabilities().lacking().join(" and ");
    let why = match (&inference.format, inference.notes.as_slice()) {
        (Some(_), _) => format!("it writes calls in a format of its own, but not {lacking}"),
        (None, []) => format!("it does not write {lacking}"),
        (None, notes) => notes.join("; "),
    };
    let notices = vec![format!("{name}: {why}; tools and calls are written in the format {}", choice.format.name)];
    Ok(Choice { why, notices, ..choice })
}

/// The built-in format of the template's family, if it explains all of the inferred one: it also knows what no rendering
/// shows.
fn family_of(template: &ChatTemplate, inferred: &Format) -> Option<&'static Builtin> {
    let builtin = match inferred.known_as() {
        Some(known) => Format::builtins().iter().find(|builtin| builtin.name == known)?,
        None => by_text(template)?.0,
    };
    family::explains(builtin.format(), inferred).then_some(builtin)
}

/// How to read what a model wrote after a chat template's prompts, in a file that may also have the end of its turn.
#[derive(Debug)]
pub struct Reading {
    /// The format of [`Format::of_template`], with the end of a turn as markup.
    pub format: Format,
    /// What the template writes of the answer: see [`ParserOptions::prompt_tail`](crate::ParserOptions::prompt_tail).
    pub prompt_tail: String,
}

impl Reading {
    /// # Errors
    /// Those of [`Format::of_template`].
    pub fn of_template(template: &ChatTemplate) -> Result<Reading> {
        let format = Format::of_template(template)?;
        let ends = infer::turn(template);
        let sample = format.sample();
        let answer = infer::texts::tags(&ends.answer).into_iter().map(|tag| &ends.answer[tag]);
        let calls = ends.calls.as_deref().filter(|tag| !sample.contains(tag));
        let format = format.with_markup(answer.chain(calls));
        Ok(Reading { format, prompt_tail: ends.prompt })
    }
}

/// The built-in format of the model's family, and the evidence for it.
fn built_in(template: &ChatTemplate, clues: Clues<'_>) -> Option<(&'static Builtin, String)> {
    let known = Format::infer(template).format.as_ref().and_then(Format::known_as);
    if let Some(builtin) = known.and_then(|known| Format::builtins().iter().find(|builtin| builtin.name == known)) {
        return Some((builtin, "the template writes calls in it".to_owned()));
    }
    if let Some(found) = by_text(template) {
        return Some(found);
    }
    if template.capabilities().calls {
        // It writes calls in a format of its own, so the vocabulary says nothing.
        return None;
    }
    let by_token = clues.is_token.and_then(family::by_tokens);
    if let Some((builtin, markers)) = by_token {
        return Some((builtin, format!("the model's vocabulary has {markers}")));
    }
    let builtin = family::by_architecture(clues.architecture)?;
    Some((builtin, format!("the model's architecture is {}", clues.architecture)))
}

/// The built-in format whose markers the template has.
fn by_text(template: &ChatTemplate) -> Option<(&'static Builtin, String)> {
    let written = format!("{}\n{}", template.source(), written_with_tools(template));
    let (builtin, markers) = family::by_markers(&|marker| written.contains(marker))?;
    Some((builtin, format!("the template contains {markers}")))
}

/// Who writes tools and calls if the template belongs to the format but is not known to write it.
fn who_writes(template: &ChatTemplate) -> Writes {
    let can = template.capabilities();
    match (can.tools, can.native_tools()) {
        (_, true) => Writes::Template(Map::new()),
        (true, false) => Writes::Calls,
        (false, _) => Writes::Section,
    }
}

/// Adds the template's reasoning markers to a format that has none and is used on another template.
fn with_reasoning_of(format: Format, writes: &Writes, template: &ChatTemplate) -> Format {
    if format.reasoning.is_some() || matches!(writes, Writes::Template(_)) {
        return format;
    }
    format.with_reasoning(Format::infer(template).reasoning.clone())
}

impl Format {
    /// The built-in format of that name, or the one that a file declares.
    ///
    /// # Errors
    /// [`ErrorKind::Format`] when there is neither, with a hint at what was probably meant; those of
    /// [`Format::from_file`].
    pub fn load(name: &str) -> Result<Format> {
        named::format(name)
    }

    /// Infers the format in which a chat template writes calls by rendering some.
    ///
    /// This takes a few milliseconds the first time a process sees a template. A declaration block in the template is
    /// ignored: [`Format::parse_declaration`] reads it.
    ///
    /// ```
    /// use callwright_core::format::{Format, Marker};
    /// use callwright_core::template::ChatTemplate;
    ///
    /// let source = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% for call in m.tool_calls %}\
    ///               <call>{{ call.function | tojson }}</call>{% endfor %}{% endfor %}";
    /// let inference = Format::infer(&ChatTemplate::new("mine.jinja", source)?);
    /// let format = inference.format.as_ref().expect("it writes calls");
    /// assert_eq!(format.start, Some(Marker::Literal("<call>".into())));
    /// # Ok::<(), callwright_core::Error>(())
    /// ```
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn infer(template: &ChatTemplate) -> Arc<Inference> {
        infer::infer(template)
    }

    /// The variables with which `template` writes tools and calls in this format natively; `None` if the format has to
    /// be overlaid.
    ///
    /// The template may declare this format, or a style of that name. Otherwise one of its calls is rendered and read
    /// back.
    ///
    /// # Errors
    /// [`ErrorKind::Format`] when the template's declaration is invalid.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn native_in(&self, template: &ChatTemplate) -> Result<Option<Map<String, Value>>> {
        native::variables(self, template)
    }

    /// The format that a chat template declares, else the inferred one, else the built-in one whose markers it has.
    ///
    /// # Errors
    /// [`ErrorKind::Format`] when the declaration is invalid, or when there is none and the template writes no readable
    /// calls.
    pub fn of_template(template: &ChatTemplate) -> Result<Format> {
        let choice = format_for(template, None, Clues::default())?;
        if choice.origin != Origin::Default {
            return Ok(choice.format);
        }
        let inference = Format::infer(template);
        // It may write calls, but no tools.
        if let Some(format) = &inference.format {
            return Ok(format.clone());
        }
        let message = format!("no tool-call format can be read off the template: {}", inference.notes.join("; "));
        Err(Error::new(ErrorKind::Format, message)
            .in_file(template.name())
            .hint("declare one in a comment {#--- callwright … ---#} at its beginning, or choose one by name"))
    }
}
