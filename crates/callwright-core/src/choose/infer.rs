//! Infers the format of a template that declares none. It renders calls with words that occur in no template, and reads
//! the format off the text around them.
//!
//! No model and no marker is named here. What cannot be inferred is reported, not guessed.

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

/// What a chat template's output shows about its format.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Inference {
    /// The format, if the template writes calls in a readable one.
    pub format: Option<Format>,
    /// The markers around reasoning, whether or not the template writes calls.
    pub reasoning: Option<Around>,
    /// Whether it writes several calls in one answer.
    pub parallel: bool,
    /// What could not be inferred, and peculiarities.
    pub notes: Vec<String>,
    /// Whether each call is a turn of its own. Such templates have parts that no rendering shows, which the built-in
    /// format of the family knows.
    pub(crate) turns: bool,
    /// What the template writes between the user's message and an answer, in each way of rendering it.
    pub(crate) headers: Arc<[String]>,
}

/// What [`Inference::headers`] would be: for a format that is known, the rest need not be inferred.
pub(super) fn headers(template: &ChatTemplate) -> Arc<[String]> {
    remembered(&HEADERS, template, assemble::headers)
}

/// What a process has made of a template before, or makes of it now.
fn remembered<T: Clone>(
    known: &Mutex<HashMap<String, T>>,
    template: &ChatTemplate,
    make: impl FnOnce(&ChatTemplate) -> T,
) -> T {
    let known = || known.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = known().get(template.source()) {
        return known.clone();
    }
    let made = make(template);
    let mut known = known();
    if known.len() >= REMEMBERED {
        known.clear();
    }
    known.insert(template.source().to_owned(), made.clone());
    made
}

/// How many templates are cached.
const REMEMBERED: usize = 64;

static HEADERS: LazyLock<Mutex<HashMap<String, Arc<[String]>>>> = LazyLock::new(Mutex::default);
static INFERRED: LazyLock<Mutex<HashMap<String, Arc<Inference>>>> = LazyLock::new(Mutex::default);

impl Format {
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
    pub fn infer(template: &ChatTemplate) -> Arc<Inference> {
        remembered(&INFERRED, template, |template| Arc::new(assemble::infer(template)))
    }

    /// The format that a chat template declares, if it declares one.
    pub(crate) fn declared_in(template: &ChatTemplate) -> Result<Option<Format>> {
        Format::parse_declaration(template.source()).map_err(|error| error.in_file(template.name()))
    }

    /// The format that a chat template declares, else the inferred one, else the built-in one whose markers it has: see
    /// [`format_for`].
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
