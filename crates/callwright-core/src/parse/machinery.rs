//! State shared by the parsers of one format: the automata that find its markers, and the plan of its payload's reader.

use super::markers::{Context, Markers};
use super::payload::Plan;
use super::repair::Stops;
use super::spelling;
use super::suffix::Suffix;
use crate::error::Result;
use crate::format::{Declaration, Marker, Payload};
use std::fmt;
use std::sync::OnceLock;

/// State shared by the parsers of one format.
pub(crate) struct Machinery {
    pub(super) markers: Markers,
    /// Built with the first call.
    stops: OnceLock<Stops>,
    /// The quote of strings, and the start of an argument, if they are not JSON's.
    quote: String,
    key_start: String,
    pub(super) plan: Plan,
    /// The end marker, if it is literal.
    pub(super) end: Vec<u8>,
    /// The format, if its markers can be written with other bars.
    pub(super) varied: Option<Box<Declaration>>,
    /// The suffix of the format's tags, if they have one.
    pub(super) suffix: Option<Suffix>,
}

impl Machinery {
    /// # Errors
    /// If a marker is not a valid regular expression, or its length is not bounded.
    pub(crate) fn new(declaration: &Declaration) -> Result<Machinery> {
        let markers = Markers::new(declaration)?;
        let (quote, key_start) = match &declaration.payload {
            Payload::Named(named) => (named.quote.clone().unwrap_or_default(), String::new()),
            Payload::Tagged(tagged) => (String::new(), tagged.key_start.trim().to_owned()),
            _ => (String::new(), String::new()),
        };
        let plan = Plan::new(declaration);
        let end = declaration.end.as_ref().and_then(Marker::text).unwrap_or_default().trim().as_bytes().to_vec();
        let varied = spelling::varies(declaration).then(|| Box::new(declaration.clone()));
        let suffix = Suffix::of(declaration);
        Ok(Machinery { markers, stops: OnceLock::new(), quote, key_start, plan, end, varied, suffix })
    }

    /// Returns whether it is known, without building anything, that [`Machinery::new`] does not fail.
    pub(crate) fn cannot_fail(declaration: &Declaration) -> bool {
        Markers::are_tame(declaration)
    }

    /// Builds what is otherwise built with the first call.
    pub(crate) fn prepare(&self) {
        self.markers.scanner(Context::AnyForm);
        self.stops();
    }

    pub(crate) fn stops(&self) -> &Stops {
        self.stops.get_or_init(|| Stops::new(&self.markers, &self.quote, &self.key_start))
    }
}

impl fmt::Debug for Machinery {
    /// Omits the automata, whose tables are megabytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machinery").finish_non_exhaustive()
    }
}
