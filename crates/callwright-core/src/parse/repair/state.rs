//! Where a transducer is in its value.

use super::Stops;
use super::number::Number;

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
    Colon,
    /// After an `=` instead of a colon, which may be the beginning of `=>`.
    Arrow,
    AfterValue,
    String(Quoted),
    Escape(Quoted),
    /// In `\uXXXX`, with the digits so far.
    Unicode(Quoted, u8, u16),
    /// After a quote that closes a single-quoted string unless more of the string follows.
    QuoteEnd(Quoted),
    /// After this number of quotes that may begin a string in Python.
    Opening(Quoted, u8),
    /// After this number of quotes that may end a triple-quoted string.
    Closing(Quoted, u8),
    /// In Python's `\123`, with the digits so far.
    Octal(Quoted, u8, u16),
    /// In Python's `\x41` or `\U00000041`: the number of missing digits, and the value so far.
    Hex(Quoted, u8, u32),
    /// After this many bytes of the dialect's own quote, before a string or key.
    OwnOpening(Quoted, usize),
    /// The same inside one.
    OwnClosing(Quoted, usize),
    /// With its length, up to the one from which on it is sent as it comes.
    Number(Number, u8),
    /// An unquoted word: a key, or a value.
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

impl State {
    #[inline]
    pub(super) fn in_string(&self) -> bool {
        matches!(
            self,
            State::String(_)
                | State::Escape(_)
                | State::Unicode(..)
                | State::Opening(_, 1)
                | State::Closing(..)
                | State::Octal(..)
                | State::Hex(..)
                | State::OwnClosing(..)
                | State::Loose { string: true, .. }
        )
    }

    /// Returns whether the position is in a string that is a value, past its quotes.
    pub(super) fn in_value_string(&self) -> bool {
        matches!(
            self,
            State::String(Quoted { key: false, .. })
                | State::Escape(Quoted { key: false, .. })
                | State::Unicode(Quoted { key: false, .. }, ..)
                | State::Opening(Quoted { key: false, .. }, _)
                | State::Closing(Quoted { key: false, .. }, _)
                | State::Octal(Quoted { key: false, .. }, ..)
                | State::Hex(Quoted { key: false, .. }, ..)
                | State::OwnClosing(Quoted { key: false, .. }, _)
        )
    }
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
