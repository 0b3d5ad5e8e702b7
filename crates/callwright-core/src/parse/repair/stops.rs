//! The bytes at which a run of plain bytes ends.

use crate::parse::bytes::FlagSets;
use crate::parse::markers::{Context, Markers};
use std::sync::OnceLock;

/// The bytes that end a run of plain bytes, as flags per byte.
#[derive(Debug)]
pub(crate) struct Stops {
    flags: FlagSets,
    /// Whether the start of an argument neither contains nor begins a marker.
    pub key_start_is_clear: bool,
}

impl Stops {
    pub(super) const DOUBLE: u8 = 1;
    pub(super) const SINGLE: u8 = 2;
    const STRUCTURE_MARKER: u8 = 4;
    pub(super) const STRING_MARKER: u8 = 8;
    /// The first byte of a dialect's own quote.
    pub(super) const OWN: u8 = 16;

    /// `quote` is the quote of strings, and `key_start` the start of an argument, if they are not JSON's.
    pub(crate) fn new(markers: &Markers, quote: &str, key_start: &str) -> Stops {
        let begins = |context, byte| markers.scanner(context).begins.has(byte);
        let key_start_is_clear = markers.scanner(Context::Structure).is_clear_of(key_start.as_bytes());
        Stops::of(begins, quote, key_start_is_clear)
    }

    /// For a text without markers.
    pub(crate) fn plain() -> &'static Stops {
        static PLAIN: OnceLock<Stops> = OnceLock::new();
        PLAIN.get_or_init(|| Stops::of(|_, _| false, "", true))
    }

    fn of(begins: impl Fn(Context, u8) -> bool, quote: &str, key_start_is_clear: bool) -> Stops {
        let mut flags = Box::new([0; 256]);
        for byte in 0..=255u8 {
            let mut flag = 0;
            if byte < 0x20 || matches!(byte, b'"' | b'\\') {
                flag |= Stops::DOUBLE | Stops::SINGLE;
            }
            if byte == b'\'' {
                flag |= Stops::SINGLE;
            }
            if begins(Context::Structure, byte) {
                flag |= Stops::STRUCTURE_MARKER;
            }
            if begins(Context::String, byte) {
                flag |= Stops::STRING_MARKER;
            }
            if quote.as_bytes().first() == Some(&byte) {
                flag |= Stops::OWN;
            }
            flags[usize::from(byte)] = flag;
        }
        Stops { flags: FlagSets::new(flags, 5), key_start_is_clear }
    }

    /// Number of bytes at the beginning that have none of the flags in `mask`.
    pub(super) fn run(&self, bytes: &[u8], mask: u8) -> usize {
        self.flags.run(bytes, mask)
    }

    /// Returns whether the byte may begin a marker outside of strings.
    pub(crate) fn in_structure(&self, byte: u8) -> bool {
        self.flags.has(byte, Stops::STRUCTURE_MARKER)
    }

    /// Returns whether it may begin one inside a string.
    pub(crate) fn in_string(&self, byte: u8) -> bool {
        self.flags.has(byte, Stops::STRING_MARKER)
    }
}
