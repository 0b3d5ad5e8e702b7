//! The interface of payload readers: one for each kind of payload.
//!
//! The core finds the markers around a call and passes everything in between to a reader, piece by piece. The reader
//! writes what it understands to [`Calls`]: name, id, deltas of the arguments, repairs, diagnostics.

pub(in crate::parse) mod json;
mod named;
mod python;
mod tagged;

use super::calls::{Calls, Ending};
use super::markers::Context;
use super::repair::Stops;
use crate::format::{Declaration, JsonCall, Payload};
use json::JsonPayload;
use named::{NamedPayload, NamedPlan};
use python::PythonPayload;
use std::fmt::Debug;
use std::sync::Arc;
use tagged::{TaggedPayload, TaggedPlan};

/// What ended a call's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Terminator {
    /// The end marker, or the end of the payload if the format has no end marker.
    End,
    /// The start marker of the next call.
    Start,
    /// Another call between the same markers.
    NextCall,
    /// The end of the model's text.
    Text,
}

/// Why a reader stopped taking bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// At the end of the input, before a byte that may begin a marker in [`PayloadReader::context`], or because of
    /// [`PayloadReader::is_over`] or [`PayloadReader::is_closed`].
    More,
    /// Before a byte that begins another call between the same markers, as the format allows.
    NextCall,
    /// The same, but the format requires markers around each call.
    SeveralCalls,
    /// The bytes from this offset on have to be scanned again for markers, in the current context. The reader has
    /// reported nothing about them. The offset is at most a marker's length before the end of the bytes taken.
    Again(usize),
}

/// Reads the calls between one pair of markers.
///
/// The output of a reader must not depend on how the text was split, so it decides byte by byte. It must take every
/// byte, hold back a bounded amount, and never panic.
pub(crate) trait PayloadReader: Debug + Send {
    /// Takes bytes, the first of which has offset `at`; returns how many, and why it stopped.
    ///
    /// With `markers` it stops before a byte that may begin a marker (`stops` has them for each context; in
    /// [`Context::Raw`] there are none). Without, the core knows that these bytes are not a marker, and all are taken,
    /// up to another call.
    fn feed(&mut self, input: &[u8], at: usize, stops: &Stops, markers: bool, calls: &mut Calls) -> (usize, Then) {
        let mut taken = 0;
        loop {
            let rest = &input[taken..];
            if let Some(json) = self.as_json() {
                let (more, then) = json.read(rest, at + taken, stops, markers, calls);
                return (taken + more, then);
            }
            let (more, then) = self.read(rest, at + taken, stops, markers, calls);
            taken += more;
            if then != Then::More || self.as_json().is_none() {
                return (taken, then);
            }
        }
    }

    /// Like [`PayloadReader::feed`], in the reader's own notation. It stops where the call turns out to be JSON.
    fn read(&mut self, input: &[u8], at: usize, stops: &Stops, markers: bool, calls: &mut Calls) -> (usize, Then);

    /// The reader of a call that turned out to be JSON in a format of another notation.
    fn as_json(&mut self) -> Option<&mut JsonPayload> {
        None
    }

    /// Sends the new part of the arguments, if the call's name is known. Called at the end of each piece of the model's
    /// text.
    fn flush(&mut self, calls: &mut Calls);

    /// The context that determines the possible markers at the next byte.
    fn context(&self) -> Context;

    /// Returns whether only white space has come.
    fn is_empty(&self) -> bool;

    /// Returns whether the payload is complete in a format without end markers: the call ends here.
    fn is_closed(&self) -> bool;

    /// The payload ends before offset `at`. `tail` is the text between an open string and the marker in
    /// [`Context::String`]: closing brackets and white space, at offset `at - tail.len()`.
    fn end(&mut self, by: Terminator, tail: &[u8], at: usize, stops: &Stops, calls: &mut Calls) -> Ending;

    /// Start of text after a complete payload that is for the user unless an end marker follows.
    fn text_at(&self) -> Option<usize> {
        None
    }

    /// Text that began at offset `from` or later is not for the user.
    fn forget_text(&mut self, _from: usize, _calls: &mut Calls) {}

    /// Returns whether the text after the payload is too long to expect an end marker before offset `at`.
    fn is_over(&self, _at: usize) -> bool {
        false
    }

    /// The text ends at offset `at`. Returns from where on to scan bytes again, if only following text could have
    /// decided them.
    fn before_end(&mut self, _at: usize, _stops: &Stops, _calls: &mut Calls) -> Option<usize> {
        None
    }

    /// Prepares for another call between the same markers.
    fn next_call(&mut self);

    /// Prepares for a call between other markers; keeps the buffers.
    fn reset(&mut self);
}

/// State shared by the readers of one format.
#[derive(Debug)]
pub(crate) enum Plan {
    Json(Arc<JsonCall>, bool),
    Named(Arc<NamedPlan>),
    Tagged(Arc<TaggedPlan>),
    Python {
        list: bool,
        raw: bool,
        open_ended: bool,
        /// Whether a list of calls without a marker may follow text on its line.
        in_line: bool,
    },
}

impl Plan {
    pub(crate) fn new(declaration: &Declaration) -> Plan {
        let open_ended = declaration.end.is_none();
        match &declaration.payload {
            Payload::Json(keys) => Plan::Json(Arc::new(keys.clone()), open_ended),
            Payload::Named(named) => Plan::Named(Arc::new(NamedPlan::new(named, open_ended))),
            Payload::Tagged(tagged) => Plan::Tagged(Arc::new(TaggedPlan::new(declaration, tagged))),
            Payload::Python { list, raw } => {
                let in_line = declaration.start.is_none() && !declaration.history.between.contains('\n');
                Plan::Python { list: *list, raw: *raw, open_ended, in_line }
            }
        }
    }

    /// Returns whether calls are in Python notation.
    pub(crate) fn is_python(&self) -> bool {
        matches!(self, Plan::Python { .. })
    }

    /// Returns whether the format writes calls right after text.
    pub(crate) fn is_in_line(&self) -> bool {
        matches!(self, Plan::Python { in_line: true, .. })
    }

    /// Returns whether the strings in arguments are those of JSON.
    pub(crate) fn quotes_json(&self) -> bool {
        match self {
            Plan::Json(..) => true,
            Plan::Named(plan) => plan.quotes_json(),
            Plan::Tagged(_) | Plan::Python { .. } => false,
        }
    }

    /// Returns whether calls are objects whose key is the tool's name.
    pub(crate) fn is_keyed(&self) -> bool {
        matches!(self, Plan::Json(keys, _) if keys.keyed)
    }

    /// A new reader.
    pub(crate) fn reader(&self, repair: bool) -> Box<dyn PayloadReader> {
        match self {
            Plan::Json(keys, open_ended) => Box::new(JsonPayload::new(keys, *open_ended, repair)),
            Plan::Named(plan) => Box::new(NamedPayload::new(plan, repair)),
            Plan::Tagged(plan) => Box::new(TaggedPayload::new(plan, repair)),
            Plan::Python { list, raw, open_ended, .. } => {
                Box::new(PythonPayload::new(*list, *raw, *open_ended, repair))
            }
        }
    }
}
