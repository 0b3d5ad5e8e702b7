//! The format of a template that declares none: rendered with calls whose words are unlike any template's, and read
//! off what stands around them.
//!
//! Nothing here knows the name of a model or of a marker. What cannot be read off is said, not guessed.

mod assemble;
mod header;
mod reading;
mod reasoning;
mod renders;
pub(crate) mod texts;

use super::{Clues, Origin, format_for};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Around, Format};
use crate::template::ChatTemplate;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// What a chat template says of its format without declaring one.
#[derive(Debug, Clone)]
pub struct Inference {
    /// The format, if the template writes calls in one that can be read.
    pub format: Option<Format>,
    /// What stands around reasoning, whether or not the template writes calls.
    pub reasoning: Option<Around>,
    /// Whether it writes several calls in one answer.
    pub parallel: bool,
    /// What could not be read off, and what is peculiar.
    pub notes: Vec<String>,
    /// What the template writes between the user's message and an answer, however it is rendered.
    pub(crate) headers: Arc<[String]>,
}

/// How many templates are remembered.
const REMEMBERED: usize = 64;

static INFERRED: LazyLock<Mutex<HashMap<String, Arc<Inference>>>> = LazyLock::new(Mutex::default);

impl Format {
    /// The format in which a chat template writes calls, found out by rendering it with some.
    ///
    /// It takes a few milliseconds for a template that is new to the process. A declaration block in the template is
    /// not looked at: [`Format::parse_declaration`] reads it.
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
    pub fn infer(template: &ChatTemplate) -> Arc<Inference> {
        let inferred = || INFERRED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = inferred().get(template.source()) {
            return Arc::clone(known);
        }
        let inference = Arc::new(assemble::infer(template));
        let mut inferred = inferred();
        if inferred.len() >= REMEMBERED {
            inferred.clear();
        }
        inferred.insert(template.source().to_owned(), Arc::clone(&inference));
        inference
    }

    /// The format that a chat template declares, if it declares one.
    pub(crate) fn declared_in(template: &ChatTemplate) -> Result<Option<Format>> {
        Format::parse_declaration(template.source()).map_err(|error| error.in_file(template.name()))
    }

    /// The format that a chat template declares, or else the one that it is seen to write, or else the built-in one that
    /// it has the markers of: see [`format_for`].
    ///
    /// # Errors
    /// [`ErrorKind::Format`] when its declaration is not in order, or when it has none and writes no calls that could
    /// be read.
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
            .hint("declare one in a comment {#--- callwright … ---#} at its beginning, or name one with --format"))
    }
}
