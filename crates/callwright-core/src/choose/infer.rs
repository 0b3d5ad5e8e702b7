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

use crate::error::Result;
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

/// Returns what [`Inference::headers`] would be: for a format that is known, the rest need not be inferred.
pub(super) fn headers(template: &ChatTemplate) -> Arc<[String]> {
    remembered(&HEADERS, template, assemble::headers)
}

/// Returns what a process has made of a template before, or makes of it now.
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

/// Where the texts of a template end.
pub(super) struct Ends {
    /// What its prompts write of an answer.
    pub prompt: String,
    /// What ends the turn of an answer.
    pub answer: String,
    /// The tag that ends a turn with a call, or the call.
    pub calls: Option<String>,
}

pub(super) fn turn(template: &ChatTemplate) -> Ends {
    assemble::turn(template)
}

/// The format that a chat template declares, if it declares one.
pub(crate) fn declared_in(template: &ChatTemplate) -> Result<Option<Format>> {
    Format::parse_declaration(template.source()).map_err(|error| error.in_file(template.name()))
}

/// See [`Format::infer`].
pub(super) fn infer(template: &ChatTemplate) -> Arc<Inference> {
    remembered(&INFERRED, template, |template| Arc::new(assemble::infer(template)))
}
