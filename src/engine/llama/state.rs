//! A sequence's state as llama.cpp writes it, for another kind of context.
//!
//! With flash attention, llama.cpp stores the values of the KV cache token by token; without, element by element. A context of
//! several sequences also writes an empty part for each of the others. Nothing else differs, so a state can be turned into
//! what another context of the same model reads. After 8 bytes of a header, each part is:
//!
//! | bytes | |
//! |---|---|
//! | 4 | the number of sequences; then for each, 4 bytes with its number of tokens, and if that is not 0: |
//! | 12 a token | its position, the number 1, and its sequence |
//! | 16 | whether values are stored element by element, the number of layers, two numbers of rotations |
//! | 12 + keys a layer | the type, the size of a token's keys, the keys |
//! | 12 + values a layer | the type, the size of a token's values, the values; element by element: the type, the size of an element (4 bytes), the number of elements (4 bytes), the values |
//!
//! A model with sliding windows writes two such parts. What does not read like this is left as it is: recurrent models, and
//! positions with several dimensions.

use llama_cpp_sys_2 as sys;

/// A magic number, and the sequence that was written.
const HEADER: usize = 8;

/// What a context reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    pub sequences: usize,
    /// Whether values are stored element by element: without flash attention.
    pub transposed: bool,
}

/// The state for a context with this layout, if it is not for one already.
pub(super) fn convert_unless(state: &[u8], to: Layout) -> Option<Vec<u8>> {
    if layout(state)? == to { None } else { convert(state, to) }
}

/// The layout of a state.
fn layout(state: &[u8]) -> Option<Layout> {
    let mut from = Reader(state.get(HEADER..)?);
    let sequences = from.number()? as usize;
    for _ in 0..sequences {
        let tokens = from.number()? as usize;
        if tokens > 0 {
            from.bytes(tokens.checked_mul(12)?)?;
            return Some(Layout { sequences, transposed: from.number()? != 0 });
        }
    }
    None
}

/// The state for a context with another layout; `None` if it does not read like a state of plain attention.
pub(super) fn convert(state: &[u8], to: Layout) -> Option<Vec<u8>> {
    let mut from = Reader(state);
    let mut converted = Vec::with_capacity(state.len() + 8 * to.sequences);
    converted.extend_from_slice(from.bytes(HEADER)?);
    while !from.0.is_empty() {
        part(&mut from, to, &mut converted)?;
    }
    Some(converted)
}

struct Reader<'s>(&'s [u8]);

impl<'s> Reader<'s> {
    fn bytes(&mut self, count: usize) -> Option<&'s [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    fn number(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.bytes(4)?.try_into().ok()?))
    }

    fn size(&mut self) -> Option<usize> {
        usize::try_from(u64::from_le_bytes(self.bytes(8)?.try_into().ok()?)).ok()
    }
}

fn part(from: &mut Reader<'_>, to: Layout, into: &mut Vec<u8>) -> Option<()> {
    let put = |into: &mut Vec<u8>, number: u32| into.extend_from_slice(&number.to_le_bytes());
    let sequences = from.number()?;
    put(into, u32::try_from(to.sequences).ok()?);
    let mut found = false;
    for _ in 0..sequences {
        let tokens = from.number()?;
        if tokens == 0 {
            continue;
        }
        if std::mem::replace(&mut found, true) {
            return None;
        }
        put(into, tokens);
        let tokens = tokens as usize;
        for _ in 0..tokens {
            let cell = from.bytes(12)?;
            if cell[4..8] != 1u32.to_le_bytes() {
                return None;
            }
            into.extend_from_slice(cell);
        }
        let (transposed, layers) = (from.number()?, from.number()?);
        put(into, u32::from(to.transposed));
        put(into, layers);
        into.extend_from_slice(from.bytes(8)?);
        for _ in 0..layers {
            let head = from.bytes(4)?;
            let row = from.size()?;
            into.extend_from_slice(head);
            into.extend_from_slice(&(row as u64).to_le_bytes());
            into.extend_from_slice(from.bytes(row.checked_mul(tokens)?)?);
        }
        for _ in 0..layers {
            values(from, transposed != 0, to.transposed, tokens, into)?;
        }
    }
    // The other sequences of the context, or all if there are no tokens.
    let others = to.sequences.checked_sub(usize::from(found))?;
    (0..others).for_each(|_| put(into, 0));
    Some(())
}

/// The values of one layer.
fn values(from: &mut Reader<'_>, transposed: bool, wanted: bool, tokens: usize, into: &mut Vec<u8>) -> Option<()> {
    let kind = from.number()?;
    let (element, elements, row) = if transposed {
        let (element, elements) = (from.number()? as usize, from.number()? as usize);
        (element, elements, element.checked_mul(elements)?)
    } else {
        let row = from.size()?;
        let element = element_size(kind).unwrap_or(row.max(1));
        (element, row / element, row)
    };
    let bytes = from.bytes(row.checked_mul(tokens)?)?;
    into.extend_from_slice(&kind.to_le_bytes());
    if wanted {
        // Several elements may be stored as one, which cannot be taken apart.
        element_size(kind).filter(|size| *size == element)?;
        into.extend_from_slice(&u32::try_from(element).ok()?.to_le_bytes());
        into.extend_from_slice(&u32::try_from(elements).ok()?.to_le_bytes());
    } else {
        into.extend_from_slice(&(row as u64).to_le_bytes());
    }
    match (transposed == wanted, element) {
        (true, _) => into.extend_from_slice(bytes),
        (false, 2) => transpose::<2>(bytes, if transposed { (elements, tokens) } else { (tokens, elements) }, into),
        (false, 4) => transpose::<4>(bytes, if transposed { (elements, tokens) } else { (tokens, elements) }, into),
        (false, _) => return None,
    }
    Some(())
}

/// The bytes of a number of a type that stores numbers one by one.
fn element_size(kind: u32) -> Option<usize> {
    match i64::from(kind) {
        kind if kind == i64::from(sys::GGML_TYPE_F32) => Some(4),
        kind if kind == i64::from(sys::GGML_TYPE_F16) || kind == i64::from(sys::GGML_TYPE_BF16) => Some(2),
        _ => None,
    }
}

/// Appends a matrix of elements of `N` bytes with its rows as columns.
fn transpose<const N: usize>(matrix: &[u8], (rows, columns): (usize, usize), into: &mut Vec<u8>) {
    // Squares that fit the first cache.
    const SIDE: usize = 32;
    let start = into.len();
    into.resize(start + matrix.len(), 0);
    let (from, to) = (matrix.as_chunks::<N>().0, into[start..].as_chunks_mut::<N>().0);
    for top in (0..rows).step_by(SIDE) {
        for left in (0..columns).step_by(SIDE) {
            for row in top..rows.min(top + SIDE) {
                for column in left..columns.min(left + SIDE) {
                    to[column * rows + row] = from[row * columns + column];
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// llama.cpp's number for the type, whatever its sign on this platform.
    const F32: u32 = 0;

    /// A state with one part, of two layers with 3 elements each.
    fn state(tokens: u32, sequences: u32, transposed: bool) -> Vec<u8> {
        let mut bytes = b"header 8".to_vec();
        let mut put = |number: u32| bytes.extend_from_slice(&number.to_le_bytes());
        put(sequences);
        put(tokens);
        for position in 0..tokens {
            [position, 1, 0].into_iter().for_each(&mut put);
        }
        [u32::from(transposed), 2, 0, 0].into_iter().for_each(&mut put);
        for layer in 0..2 {
            [F32, 12, 0].into_iter().for_each(&mut put);
            (0..3 * tokens).for_each(|i| put(1000 * layer + i));
        }
        for layer in 0..2 {
            put(F32);
            [if transposed { 4 } else { 12 }, if transposed { 3 } else { 0 }].into_iter().for_each(&mut put);
            let value = |token, element| 100_000 * layer + 100 * token + element;
            match transposed {
                true => (0..3).for_each(|element| (0..tokens).for_each(|token| put(value(token, element)))),
                false => (0..tokens).for_each(|token| (0..3).for_each(|element| put(value(token, element)))),
            }
        }
        (1..sequences).for_each(|_| put(0));
        bytes
    }

    #[test]
    fn each_layout_becomes_each_other() {
        let layouts = [(1, false), (1, true), (4, false), (4, true)];
        for (from, into) in layouts.into_iter().flat_map(|from| layouts.map(|into| (from, into))) {
            for tokens in [1, 2, 70] {
                let to = Layout { sequences: into.0 as usize, transposed: into.1 };
                let converted = convert(&state(tokens, from.0, from.1), to).unwrap();
                assert_eq!(converted, state(tokens, into.0, into.1), "{from:?} to {into:?}");
            }
        }
    }

    #[test]
    fn what_does_not_read_like_a_state_is_left() {
        let whole = state(3, 1, false);
        let to = Layout { sequences: 1, transposed: true };
        for length in HEADER + 1..whole.len() {
            assert_eq!(convert(&whole[..length], to), None, "{length}");
        }
        for place in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[place] ^= 0xff;
            // It must not panic, nor ask for memory without end.
            let _ = convert(&damaged, to);
        }
        assert_eq!(convert(&[], to), None);
    }
}
