//! What the parser core needs of the machine that reads a call's payload: one for each kind of payload.
//!
//! The core finds the markers around a call and hands everything in between to such a machine, piece by piece. The
//! machine writes what it understands into [`Calls`]: name, id, deltas of the arguments, repairs, diagnostics.

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

/// What ends a call's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Terminator {
    /// The end marker, or the end of the payload where the format has no end marker.
    End,
    /// The start marker of the next call.
    Start,
    /// Another call between the same markers.
    NextCall,
    /// The end of the model's text.
    Text,
}

/// How a machine stopped taking bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// At the end of the input, or before a byte that may begin a marker in [`PayloadReader::context`], or where
    /// [`PayloadReader::is_over`] or [`PayloadReader::is_closed`].
    More,
    /// Before a byte that begins another call between the same markers, as the format has it.
    NextCall,
    /// The same, where the format wants markers around each call.
    SeveralCalls,
    /// What was taken from this offset on is to be looked at again, for markers, in the context that holds now. The
    /// machine has said nothing of it. At most a marker's length before the byte after the last one taken.
    Again(usize),
}

/// Reads the calls between one pair of markers.
///
/// What a machine says must not depend on how the text was cut into pieces: whatever it decides, it decides by the
/// byte. It must take every byte, whatever comes; it holds back boundedly; it never panics.
pub(crate) trait PayloadReader: Debug + Send {
    /// Takes bytes, the first of which has offset `at`; says how many, and why no more.
    ///
    /// With `markers` it stops before a byte that may begin a marker (`stops` knows them for either context; in
    /// [`Context::Raw`] there are none). Without, the core knows that these bytes are no marker: all are taken, up to
    /// another call.
    fn feed(&mut self, input: &[u8], at: usize, stops: &Stops, markers: bool, calls: &mut Calls) -> (usize, Then);

    /// Sends what is new of the arguments, if the call's name is known. Called where a piece of the model's text ends.
    fn flush(&mut self, calls: &mut Calls);

    /// Which markers the core looks for at the next byte.
    fn context(&self) -> Context;

    /// Whether nothing was written yet but white space.
    fn is_empty(&self) -> bool;

    /// Whether the payload is whole, in a format without end markers: the call ends here.
    fn is_closed(&self) -> bool;

    /// The payload ends before offset `at`. `tail` is what stood between an open string and the marker in
    /// [`Context::String`]: closing brackets and white space, at offset `at - tail.len()`.
    fn end(&mut self, by: Terminator, tail: &[u8], at: usize, stops: &Stops, calls: &mut Calls) -> Ending;

    /// Where text for the user began behind a whole payload, unless an end marker follows.
    fn text_at(&self) -> Option<usize> {
        None
    }

    /// What began at offset `from` or later is no text for the user.
    fn forget_text(&mut self, _from: usize, _calls: &mut Calls) {}

    /// Whether so much text came behind the payload that no end marker is to be expected before offset `at`.
    fn is_over(&self, _at: usize) -> bool {
        false
    }

    /// The text ends at offset `at`: says from where on to look at bytes again, where only what follows would have
    /// told what they are.
    fn before_end(&mut self, _at: usize, _stops: &Stops, _calls: &mut Calls) -> Option<usize> {
        None
    }

    /// Gets ready for another call between the same markers.
    fn next_call(&mut self);

    /// Gets ready for a call between other markers; the buffers stay.
    fn reset(&mut self);
}

/// What the machines of one format share: made once for a format.
#[derive(Debug)]
pub(crate) enum Plan {
    Json(Arc<JsonCall>, bool),
    Named(Arc<NamedPlan>),
    Tagged(Arc<TaggedPlan>),
    Python { list: bool, open_ended: bool },
}

impl Plan {
    pub(crate) fn new(declaration: &Declaration) -> Plan {
        let open_ended = declaration.end.is_none();
        match &declaration.payload {
            Payload::Json(keys) => Plan::Json(Arc::new(keys.clone()), open_ended),
            Payload::Named(named) => Plan::Named(Arc::new(NamedPlan::new(named, open_ended))),
            Payload::Tagged(tagged) => Plan::Tagged(Arc::new(TaggedPlan::new(declaration, tagged))),
            Payload::Python { list } => Plan::Python { list: *list, open_ended },
        }
    }

    /// Whether calls are written as Python does.
    pub(crate) fn is_python(&self) -> bool {
        matches!(self, Plan::Python { .. })
    }

    /// Whether calls are objects with the tool's name for their key.
    pub(crate) fn is_keyed(&self) -> bool {
        matches!(self, Plan::Json(keys, _) if keys.keyed)
    }

    /// A machine before its call.
    pub(crate) fn reader(&self, repair: bool) -> Box<dyn PayloadReader> {
        match self {
            Plan::Json(keys, open_ended) => Box::new(JsonPayload::new(keys, *open_ended, repair)),
            Plan::Named(plan) => Box::new(NamedPayload::new(plan, repair)),
            Plan::Tagged(plan) => Box::new(TaggedPayload::new(plan, repair)),
            Plan::Python { list, open_ended } => Box::new(PythonPayload::new(*list, *open_ended, repair)),
        }
    }
}
