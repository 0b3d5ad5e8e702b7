//! Where a transducer is in its value.

use super::Stops;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// A value must follow: at the start, or after a colon.
    Value,
    /// An element must follow a comma.
    Element,
    /// After `[`.
    FirstElement,
    /// After `{`.
    FirstKey,
    /// A key must follow a comma.
    Key,
    /// After a key. A parameter's name in a call is still held.
    Colon,
    /// After an `=` instead of a colon, which may be the beginning of `=>`.
    Arrow,
    AfterValue,
    String(Quoted),
    /// After a held quote that closes a string unless more of the string follows.
    QuoteEnd(Quoted),
    /// After one or two held quotes that may begin a string in Python.
    Opening(Quoted),
    /// In the dialect's own quote before a string.
    OwnOpening(Quoted),
    /// An unquoted word, which is held: a key, or a value.
    Word {
        key: bool,
    },
    /// Beyond repair: everything passes unchanged, until the open brackets have closed.
    Loose {
        depth: usize,
        string: bool,
        escape: bool,
    },
    Done,
}

/// What kind of string it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Quoted {
    pub quote: Quote,
    /// Whether it is the key of an object.
    pub key: bool,
}

/// The kind of quotes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quote {
    Double,
    Single,
    /// Python's, perhaps three of them; a raw string has no escapes.
    Python {
        single: bool,
        triple: bool,
        raw: bool,
    },
    /// The dialect's own.
    Own,
}

impl Quote {
    /// Which bytes end a run of plain bytes.
    pub(super) fn stops(self) -> u8 {
        match self {
            Quote::Double | Quote::Python { single: false, .. } => Stops::DOUBLE,
            Quote::Single | Quote::Python { single: true, .. } => Stops::SINGLE,
            Quote::Own => Stops::DOUBLE | Stops::OWN,
        }
    }
}
