//! Sets of bytes, and the number of bytes in a text before one from a set.
//!
//! Most of what a parser reads is text between markers and inside strings. It is scanned in blocks, with a few
//! comparisons per block that compilers vectorise; a branch per byte costs several times as much.

/// Number of bytes to compare together.
pub(super) const BLOCK: usize = 32;
/// Number of bytes to look at one by one first: keys, words and numbers are short.
const SHORT: usize = 8;
/// Maximum size of a set, without control characters, for scanning in blocks.
const FEW: usize = 8;

/// A set of bytes.
#[derive(Debug)]
pub(crate) struct ByteSet {
    table: Box<[bool; 256]>,
    /// All bytes below this are in the set.
    below: u8,
    /// The other bytes; `None` if there are too many.
    few: Option<[u8; FEW]>,
    /// The number of other bytes.
    count: usize,
}

impl ByteSet {
    pub(crate) fn new(is_in: impl Fn(u8) -> bool) -> ByteSet {
        let mut table = Box::new([false; 256]);
        for byte in 0..=255 {
            table[usize::from(byte)] = is_in(byte);
        }
        let below = (0..=255).take_while(|&byte| is_in(byte)).count().min(0x80) as u8;
        let rest: Vec<u8> = (below..=255).filter(|&byte| is_in(byte)).collect();
        // Fill unused places with a byte that is in the set anyway.
        let filler = rest.first().copied().or((below > 0).then_some(0));
        let few = filler.filter(|_| rest.len() <= FEW).map(|filler| {
            let mut few = [filler; FEW];
            few[..rest.len()].copy_from_slice(&rest);
            few
        });
        ByteSet { table, below, few, count: rest.len() }
    }

    pub(crate) fn has(&self, byte: u8) -> bool {
        self.table[usize::from(byte)]
    }

    /// Number of bytes at the beginning that are not in the set.
    pub(crate) fn run(&self, bytes: &[u8]) -> usize {
        let short = bytes.len().min(SHORT);
        if let Some(at) = bytes[..short].iter().position(|&byte| self.has(byte)) {
            return at;
        }
        let bytes = &bytes[short..];
        let (blocks, rest) = bytes.as_chunks::<BLOCK>();
        // One comparison per byte of the set, with the number known at compile time.
        let found = match (&self.few, self.below, self.count) {
            (Some(few), 0, ..=1) => first::<1>(blocks, 0, few),
            (Some(few), 0, 2) => first::<2>(blocks, 0, few),
            (Some(few), 0, 3) => first::<3>(blocks, 0, few),
            (Some(few), 0, 4) => first::<4>(blocks, 0, few),
            (Some(few), 0, 5..=6) => first::<6>(blocks, 0, few),
            (Some(few), below, ..=2) => first::<2>(blocks, below, few),
            (Some(few), below, ..=4) => first::<4>(blocks, below, few),
            (Some(few), below, 5) => first::<5>(blocks, below, few),
            (Some(few), below, 6) => first::<6>(blocks, below, few),
            (Some(few), below, _) => first::<FEW>(blocks, below, few),
            (None, ..) => blocks.as_flattened().iter().position(|&byte| self.has(byte)),
        };
        let rest = || blocks.len() * BLOCK + rest.iter().take_while(|&&byte| !self.has(byte)).count();
        short + found.unwrap_or_else(rest)
    }
}

/// Position of the first of the first `COUNT` bytes of `few`, or byte less than `below`.
fn first<const COUNT: usize>(blocks: &[[u8; BLOCK]], below: u8, few: &[u8; FEW]) -> Option<usize> {
    let mut bytes = [0; COUNT];
    bytes.copy_from_slice(&few[..COUNT]);
    let is_in = |byte: u8| bytes.iter().fold(u8::from(byte < below), |any, &one| any | u8::from(byte == one));
    for (index, block) in blocks.iter().enumerate() {
        if block.iter().fold(0, |any, &byte| any | is_in(byte)) != 0 {
            let mut flags = [0; BLOCK];
            for (flag, &byte) in flags.iter_mut().zip(block) {
                *flag = is_in(byte);
            }
            let (words, _) = flags.as_chunks::<8>();
            let mut words = words.iter().map(|word| u64::from_le_bytes(*word)).enumerate();
            let (at, word) = words.find(|(_, word)| *word != 0)?;
            return Some(index * BLOCK + at * 8 + word.trailing_zeros() as usize / 8);
        }
    }
    None
}

/// The sets of bytes that have any of some flags.
#[derive(Debug)]
pub(crate) struct FlagSets {
    flags: Box<[u8; 256]>,
    /// The set of each combination of flags.
    sets: Vec<ByteSet>,
}

impl FlagSets {
    /// `flags` uses the lowest `count` bits.
    pub(crate) fn new(flags: Box<[u8; 256]>, count: u32) -> FlagSets {
        let set = |mask: u8| ByteSet::new(|byte| flags[usize::from(byte)] & mask != 0);
        FlagSets { sets: (0..1 << count).map(set).collect(), flags }
    }

    /// Returns whether the byte has any of the flags.
    pub(crate) fn has(&self, byte: u8, mask: u8) -> bool {
        self.flags[usize::from(byte)] & mask != 0
    }

    /// Number of bytes at the beginning that have none of the flags.
    pub(crate) fn run(&self, bytes: &[u8], mask: u8) -> usize {
        self.sets[usize::from(mask)].run(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_ends_before_the_first_byte_of_the_set() {
        let sets: [&dyn Fn(u8) -> bool; 6] = [
            &|_| false,
            &|_| true,
            &|b| b == b'<',
            &|b| b < 0x20 || b == b'"' || b == b'\\',
            &|b| b.is_ascii_alphabetic(),
            &|b| b == 0 || b == 255,
        ];
        for is_in in sets {
            let set = ByteSet::new(is_in);
            let text: Vec<u8> = (0..300u32).map(|i| (i * 37 % 256) as u8).chain(*b"plain text without end").collect();
            for from in 0..text.len() {
                let expected = text[from..].iter().take_while(|&&b| !is_in(b)).count();
                assert_eq!(set.run(&text[from..]), expected);
            }
        }
    }
}
