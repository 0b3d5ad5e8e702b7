//! The places in a text at which a call may begin, found in blocks as in [`super::super::bytes`].
//!
//! Some bytes, such as those of a code fence, begin a call only three times in a row. Headings and inline code contain
//! them too, and are skipped together with all other text.

use crate::parse::bytes::{BLOCK, ByteSet};

/// Maximum number of bytes to search for in blocks.
const FEW: usize = 8;
/// A block, and the bytes needed after it.
const WINDOW: usize = BLOCK + 2;

/// The bytes that begin a call.
#[derive(Debug)]
pub(super) struct Begins {
    all: ByteSet,
    /// Those that do so alone, with their number; `None` if there are too many.
    once: Option<[u8; FEW]>,
    count: usize,
    /// Those that do so only three times in a row.
    thrice: Option<[u8; 2]>,
}

impl Begins {
    /// Of the bytes in `all`, those in `thrice` count only three times in a row.
    pub(super) fn new(all: impl Fn(u8) -> bool, thrice: &[u8]) -> Begins {
        let thrice: Vec<u8> = thrice.iter().copied().filter(|&byte| all(byte)).collect();
        let once: Vec<u8> = (0..=255).filter(|byte| all(*byte) && !thrice.contains(byte)).collect();
        // Filler for unused places.
        let filler = once.first().copied();
        let few = filler.filter(|_| once.len() <= FEW && thrice.len() <= 2).map(|filler| {
            let mut few = [filler; FEW];
            few[..once.len()].copy_from_slice(&once);
            few
        });
        let thrice = thrice.first().map(|&first| [first, thrice.get(1).copied().unwrap_or(first)]);
        Begins { all: ByteSet::new(all), once: few, count: once.len(), thrice: thrice.filter(|_| few.is_some()) }
    }

    /// Their places in a text.
    pub(super) fn places<'t>(&'t self, bytes: &'t [u8]) -> Places<'t> {
        Places { begins: self, bytes, known: None }
    }

    /// Returns whether the byte begins a call only three times in a row.
    pub(super) fn is_thrice(&self, byte: u8) -> bool {
        self.thrice.is_some_and(|thrice| thrice.contains(&byte))
    }

    /// Returns whether the byte at that place may begin a call. At the end of the text this is unknown for bytes that
    /// must occur three times.
    fn is_at(&self, bytes: &[u8], at: usize) -> bool {
        self.all.has(bytes[at])
            && (!self.is_thrice(bytes[at]) || bytes[at..].iter().take(3).all(|&next| next == bytes[at]))
    }

    /// The first block from `from` on with such bytes: its position, and a bit for each of its bytes, the first one
    /// lowest. If there is none, the position after the last block.
    fn first(&self, bytes: &[u8], from: usize) -> Result<(usize, u32), usize> {
        let Some(once) = &self.once else { return Err(from) };
        // One comparison per byte, with the number known at compile time.
        match (self.count, self.thrice) {
            (..=3, None) => first::<3>(bytes, from, once),
            (4, None) => first::<4>(bytes, from, once),
            (5, None) => first::<5>(bytes, from, once),
            (_, None) => first::<FEW>(bytes, from, once),
            (..=3, Some(thrice)) => first_of::<3>(bytes, from, once, thrice),
            (4, Some(thrice)) => first_of::<4>(bytes, from, once, thrice),
            (5, Some(thrice)) => first_of::<5>(bytes, from, once, thrice),
            (_, Some(thrice)) => first_of::<FEW>(bytes, from, once, thrice),
        }
    }
}

fn first<const COUNT: usize>(bytes: &[u8], from: usize, once: &[u8; FEW]) -> Result<(usize, u32), usize> {
    let mut few = [0; COUNT];
    few.copy_from_slice(&once[..COUNT]);
    let is_one = |byte: u8| few.iter().fold(false, |any, &one| any | (byte == one));
    search(bytes, from, is_one, |window, at| is_one(window[at]))
}

fn first_of<const COUNT: usize>(
    bytes: &[u8],
    from: usize,
    once: &[u8; FEW],
    thrice: [u8; 2],
) -> Result<(usize, u32), usize> {
    let mut few = [0; COUNT];
    few.copy_from_slice(&once[..COUNT]);
    let is_one = |byte: u8| few.iter().fold(false, |any, &one| any | (byte == one));
    let is_thrice = |byte: u8| (byte == thrice[0]) | (byte == thrice[1]);
    search(
        bytes,
        from,
        |byte| is_one(byte) | is_thrice(byte),
        |window, at| {
            let byte = window[at];
            let row = (byte == window[at + 1]) & (byte == window[at + 2]);
            is_one(byte) | is_thrice(byte) & row
        },
    )
}

/// `may_be` is a quick test without the bytes after it, which most blocks do not pass.
#[inline(always)]
fn search(
    bytes: &[u8],
    mut from: usize,
    may_be: impl Fn(u8) -> bool,
    is_at: impl Fn(&[u8; WINDOW], usize) -> bool,
) -> Result<(usize, u32), usize> {
    while let Some(window) = bytes.get(from..).and_then(|rest| rest.first_chunk::<WINDOW>()) {
        if window[..BLOCK].iter().fold(0, |any, &byte| any | u8::from(may_be(byte))) != 0 {
            let mut flags = [0; BLOCK];
            for (at, flag) in flags.iter_mut().enumerate() {
                *flag = u8::from(is_at(window, at));
            }
            if flags.iter().fold(0, |any, flag| any | flag) != 0 {
                return Ok((from, mask(&flags)));
            }
        }
        from += BLOCK;
    }
    Err(from)
}

/// A bit for each byte (0 or 1); the first one is the lowest.
fn mask(flags: &[u8; BLOCK]) -> u32 {
    let (words, _) = flags.as_chunks::<8>();
    words.iter().rev().fold(0, |mask, word| {
        // The product collects the bits in its highest byte.
        let bits = u64::from_le_bytes(*word).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        mask << 8 | bits as u32
    })
}

/// The places in a text at which a call may begin.
pub(super) struct Places<'t> {
    begins: &'t Begins,
    bytes: &'t [u8],
    /// The last block searched, and which of its bytes may begin a call.
    known: Option<(usize, u32)>,
}

impl Places<'_> {
    /// The first place from `from` on.
    pub(super) fn next_from(&mut self, mut from: usize) -> Option<usize> {
        if let Some((start, mask)) = self.known.filter(|(start, _)| from < start + BLOCK) {
            let mask = mask & (u32::MAX << (from - start));
            if mask != 0 {
                return Some(start + mask.trailing_zeros() as usize);
            }
            from = start + BLOCK;
        }
        match self.begins.first(self.bytes, from) {
            Ok((start, mask)) => {
                self.known = Some((start, mask));
                Some(start + mask.trailing_zeros() as usize)
            }
            Err(from) => (from..self.bytes.len()).find(|&at| self.begins.is_at(self.bytes, at)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_is_found_and_no_other() {
        let text: Vec<u8> = (0..3000u32).map(|i| b"ab#`{<c"[(i * i / 7 % 97 % 7) as usize]).collect();
        for (once, thrice) in [("{<", "#`"), ("{", "#"), ("{<#", ""), ("{<abcde", "#`"), ("", "#"), ("abcdefghij", "#")]
        {
            let all = |byte: u8| once.bytes().chain(thrice.bytes()).any(|one| one == byte);
            let begins = Begins::new(all, thrice.as_bytes());
            let in_row = |at: usize| text[at..].iter().take(3).all(|&byte| byte == text[at]);
            let is_at = |at: &usize| all(text[*at]) && (once.as_bytes().contains(&text[*at]) || in_row(*at));
            let expected: Vec<usize> = (0..text.len()).filter(is_at).collect();
            let mut places = begins.places(&text);
            let mut found = Vec::new();
            while let Some(at) = places.next_from(found.last().map_or(0, |last| last + 1)) {
                found.push(at);
            }
            if once.is_empty() || once.len() > FEW {
                assert!(expected.iter().all(|at| found.contains(at)), "{once} {thrice}");
            } else {
                assert_eq!(found, expected, "{once} {thrice}");
            }
        }
    }
}
