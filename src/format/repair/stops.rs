//! The bytes at which a run of plain bytes ends.

use crate::format::markers::{Context, Markers};

/// Which bytes end a run of plain bytes, as flags a byte.
#[derive(Debug)]
pub(crate) struct Stops(Box<[u8; 256]>);

impl Stops {
    pub(super) const DOUBLE: u8 = 1;
    pub(super) const SINGLE: u8 = 2;
    const STRUCTURE_MARKER: u8 = 4;
    pub(super) const STRING_MARKER: u8 = 8;
    /// What begins the quote of a dialect that has its own.
    pub(super) const OWN: u8 = 16;

    pub(crate) fn new(markers: &Markers) -> Stops {
        let mut flags = Box::new([0; 256]);
        for byte in 0..=255u8 {
            let index = usize::from(byte);
            let mut flag = 0;
            if byte < 0x20 || matches!(byte, b'"' | b'\\') {
                flag |= Stops::DOUBLE | Stops::SINGLE;
            }
            if byte == b'\'' {
                flag |= Stops::SINGLE;
            }
            if markers.scanner(Context::Structure).begins[index] {
                flag |= Stops::STRUCTURE_MARKER;
            }
            if markers.scanner(Context::String).begins[index] {
                flag |= Stops::STRING_MARKER;
            }
            flags[index] = flag;
        }
        Stops(flags)
    }

    /// Stops at the quotes of a dialect, too.
    pub(crate) fn with_quote(mut self, quote: &str) -> Stops {
        if let Some(&byte) = quote.as_bytes().first() {
            self.0[usize::from(byte)] |= Stops::OWN;
        }
        self
    }

    /// How many bytes at the beginning have none of the flags in `mask`.
    pub(super) fn run(&self, bytes: &[u8], mask: u8) -> usize {
        // By the block, because a branch a byte costs most of the time.
        let clear = |block: &&[u8]| block.iter().fold(0, |all, &b| all | self.0[usize::from(b)]) & mask == 0;
        let skipped = 16 * bytes.chunks_exact(16).take_while(clear).count();
        let rest = bytes[skipped..].iter().take_while(|&&b| self.0[usize::from(b)] & mask == 0).count();
        skipped + rest
    }

    /// Whether the byte may begin a marker outside of strings.
    pub(crate) fn in_structure(&self, byte: u8) -> bool {
        self.0[usize::from(byte)] & Stops::STRUCTURE_MARKER != 0
    }

    /// Whether it may begin one inside a string.
    pub(crate) fn in_string(&self, byte: u8) -> bool {
        self.0[usize::from(byte)] & Stops::STRING_MARKER != 0
    }
}
