//! A sequence's state as llama.cpp writes it, for another kind of context.
//!
//! With flash attention, llama.cpp stores the values of the KV cache token by token; without, element by element. A context of
//! several sequences also writes an empty part for each of the others. Nothing else differs, so a state can be turned into
//! what another context of the same model reads. After 8 bytes of a header, each part is:
//!
//! | bytes | |
//! |---|---|
//! | 4 | the number of sequences; then for each, 4 bytes with its number of tokens, and if that is not 0: |
//! | 12 or 24 a token | its position, the number 1, if the model knows such its place in two more dimensions and its token, and its sequence |
//! | 16 | whether values are stored element by element, the number of layers, two numbers of rotations |
//! | 12 + keys a layer | the type, the size of a token's keys, the keys |
//! | 12 + values a layer | the type, the size of a token's values, the values; element by element: the type, the size of an element (4 bytes), the number of elements (4 bytes), the values |
//!
//! A model with sliding windows writes two such parts. A hybrid writes what is recurrent after them, alike in every context. What does not read like
//! this is left as it is, such as the state of a recurrent model.
//!
//! The second part has the last tokens only, in any order. llama.cpp puts what it reads into the cells from the first one on, while it
//! decodes into one after the other, and begins again after the last. Sums over cells in another order are rounded differently. So
//! [`in_ring`] adds cells without content, until each token has the place that it would have been decoded into.

use llama_cpp_sys_2 as sys;
use std::ops::Range;

/// A magic number, and the sequence that was written.
const HEADER: usize = 8;

/// What a context reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    pub sequences: usize,
    /// Whether values are stored element by element: without flash attention.
    pub transposed: bool,
}

/// Returns whether a context with this layout reads the state as it is.
pub(super) fn is_for(state: &[u8], to: Layout) -> bool {
    let fits = |part: &Part| {
        let stored = part.values.iter().all(|values| values.transposed == to.transposed);
        part.flag.is_none() || part.sequences == to.sequences && stored
    };
    parts(state).is_none_or(|parts| parts.iter().all(fits))
}

/// The state for a context with another layout; the same state if it does not read like one of plain attention.
///
/// Values are moved within the state. It may have hundreds of megabytes, and the system needs longer to provide memory than it
/// takes to copy.
pub(super) fn convert(mut state: Vec<u8>, to: Layout) -> Vec<u8> {
    let movable = |part: &Part| part.values.iter().all(|values| values.can_be(to.transposed));
    let Some(mut parts) = parts(&state).filter(|parts| parts.iter().all(movable)) else { return state };
    if parts.iter().any(|part| part.sequences != to.sequences) {
        let Some(other) = with_sequences(&state, &parts, to.sequences) else { return state };
        let Some(places) = self::parts(&other) else { return state };
        (state, parts) = (other, places);
    }
    let mut other_way = Vec::new();
    for part in parts {
        let Some(flag) = part.flag else { continue };
        state[flag..flag + 4].copy_from_slice(&u32::from(to.transposed).to_le_bytes());
        for values in part.values {
            values.store(&mut state, to.transposed, &mut other_way);
        }
    }
    state
}

/// Where layers with a sliding window have the last tokens: each in the cell of its position, modulo the number of cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ring {
    /// How many tokens such a layer looks back, with the one that looks.
    pub window: usize,
    pub cells: usize,
}

/// Places the tokens of a state's last part in the ring. Returns the state, the first token that has content, and the number of tokens:
/// what is beyond, llama.cpp has to drop, which is where it then goes on. `None` if it does not read like a state of so many parts.
pub(super) fn in_ring(state: &[u8], ring: Ring, count: usize) -> Option<(Vec<u8>, usize, usize)> {
    let parts = parts(state).filter(|parts| parts.len() == count)?;
    let part = parts.last()?;
    let entries = part.sequence.start + 4..part.flag?;
    let tokens = Reader { state, at: part.sequence.start }.number()? as usize;
    let entry = entries.len() / tokens.max(1);
    let positions: Vec<usize> = state
        .get(entries.clone())?
        .chunks_exact(entry)
        .filter_map(|entry| Some(u32::from_le_bytes(*entry.first_chunk()?) as usize))
        .collect();
    let (first, end) = (*positions.iter().min()?, positions.iter().max()? + 1);
    let mut cells: Vec<Option<usize>> = vec![None; ring.cells.min(end)];
    for (index, position) in positions.iter().enumerate().filter(|(_, position)| *position + ring.cells >= end) {
        cells[position % ring.cells] = Some(index);
    }
    let next = end % ring.cells;
    let position = |(cell, token): (usize, &Option<usize>)| match token {
        Some(index) => positions[*index],
        // Dropped at once, so that the next token is decoded into the first of them.
        None if end >= ring.cells && cell >= next => end + cell - next,
        // Too far back for any token that comes.
        None => end - 1 - (end + ring.cells - 1 - cell) % ring.cells,
    };
    let mut into = Vec::with_capacity(state.len() / tokens * cells.len());
    into.extend_from_slice(&state[..part.sequence.start]);
    into.extend_from_slice(&u32::try_from(cells.len()).ok()?.to_le_bytes());
    for position in cells.iter().enumerate().map(position) {
        into.extend_from_slice(&u32::try_from(position).ok()?.to_le_bytes());
        into.extend_from_slice(&state[entries.start + 4..entries.start + entry]);
    }
    // Each piece has all tokens of a layer, or of an element of one.
    let mut end_of_last = part.flag?;
    for (bytes, pieces) in part.pieces() {
        into.extend_from_slice(&state[end_of_last..bytes.start]);
        for piece in state[bytes.clone()].chunks_exact((bytes.len() / pieces).max(1)) {
            place(piece, piece.len() / tokens, &cells, &mut into);
        }
        end_of_last = bytes.end;
    }
    into.extend_from_slice(&state[end_of_last..]);
    Some((into, first, end))
}

/// Adds what the cells have of the tokens of a piece, of so many bytes each.
fn place(piece: &[u8], width: usize, cells: &[Option<usize>], into: &mut Vec<u8>) {
    let follow = |one: &Option<usize>, next: &Option<usize>| *next == one.map(|index| index + 1);
    for run in cells.chunk_by(follow) {
        match run[0] {
            Some(index) => into.extend_from_slice(&piece[index * width..(index + run.len()) * width]),
            None => into.resize(into.len() + run.len() * width, 0),
        }
    }
}

struct Reader<'s> {
    state: &'s [u8],
    at: usize,
}

impl<'s> Reader<'s> {
    /// After the header.
    fn new(state: &'s [u8]) -> Option<Reader<'s>> {
        (state.len() >= HEADER).then_some(Reader { state, at: HEADER })
    }

    fn bytes(&mut self, count: usize) -> Option<&'s [u8]> {
        let end = self.at.checked_add(count)?;
        let bytes = self.state.get(self.at..end)?;
        self.at = end;
        Some(bytes)
    }

    fn number(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.bytes(4)?.try_into().ok()?))
    }

    fn size(&mut self) -> Option<usize> {
        usize::try_from(u64::from_le_bytes(self.bytes(8)?.try_into().ok()?)).ok()
    }
}

/// Where things are in a part of a state.
struct Part {
    sequences: usize,
    /// The sequence with tokens, from their number to the end of its values.
    sequence: Range<usize>,
    /// Whether its values are stored element by element; `None` if there are no tokens.
    flag: Option<usize>,
    keys: Vec<Range<usize>>,
    values: Vec<Values>,
    /// After the last sequence.
    end: usize,
}

/// The values of one layer.
struct Values {
    /// The three numbers before the values.
    head: usize,
    bytes: Range<usize>,
    transposed: bool,
    kind: u32,
    /// The bytes of an element.
    element: usize,
    /// The elements of a token.
    elements: usize,
    tokens: usize,
}

fn parts(state: &[u8]) -> Option<Vec<Part>> {
    let mut from = Reader::new(state)?;
    let mut parts: Vec<Part> = Vec::new();
    while from.at < state.len() {
        if parts.iter().any(|part| part.flag.is_some()) && is_recurrent(&state[from.at..]) {
            break;
        }
        let start = from.at;
        let part = part(&mut from, 12).or_else(|| {
            from.at = start;
            part(&mut from, 24)
        })?;
        parts.push(part);
    }
    Some(parts)
}

/// Returns whether this is the recurrent part of a sequence's state: one state, its position, no list of sequences, and not stored element by
/// element.
fn is_recurrent(state: &[u8]) -> bool {
    let number = |place: usize| state.get(4 * place..4 * place + 4);
    number(0) == Some(&1u32.to_le_bytes()) && (2..4).all(|place| number(place) == Some(&[0; 4])) && number(4).is_some()
}

fn part(from: &mut Reader<'_>, cell: usize) -> Option<Part> {
    let sequences = from.number()? as usize;
    let mut part =
        Part { sequences, sequence: from.at..from.at, flag: None, keys: Vec::new(), values: Vec::new(), end: from.at };
    for _ in 0..sequences {
        let start = from.at;
        let tokens = from.number()? as usize;
        if tokens == 0 {
            continue;
        }
        if part.flag.is_some() {
            return None;
        }
        let mut cells = from.bytes(tokens.checked_mul(cell)?)?.chunks_exact(cell);
        if cells.any(|cell| cell[4..8] != 1u32.to_le_bytes()) {
            return None;
        }
        part.flag = Some(from.at);
        let (transposed, layers) = (from.number()? != 0, from.number()?);
        from.bytes(8)?;
        for _ in 0..layers {
            from.bytes(4)?;
            let row = from.size()?;
            let start = from.at;
            from.bytes(row.checked_mul(tokens)?)?;
            part.keys.push(start..from.at);
        }
        for _ in 0..layers {
            part.values.push(values(from, transposed, tokens)?);
        }
        part.sequence = start..from.at;
    }
    part.end = from.at;
    Some(part)
}

fn values(from: &mut Reader<'_>, transposed: bool, tokens: usize) -> Option<Values> {
    let head = from.at;
    let kind = from.number()?;
    let (element, elements, row) = if transposed {
        let (element, elements) = (from.number()? as usize, from.number()? as usize);
        (element, elements, element.checked_mul(elements)?)
    } else {
        let row = from.size()?;
        let element = element_size(kind).unwrap_or(row.max(1));
        (element, row / element, row)
    };
    let start = from.at;
    from.bytes(row.checked_mul(tokens)?)?;
    Some(Values { head, bytes: start..from.at, transposed, kind, element, elements, tokens })
}

/// The state for a context of so many sequences.
fn with_sequences(state: &[u8], parts: &[Part], sequences: usize) -> Option<Vec<u8>> {
    let mut into = Vec::with_capacity(state.len() + 4 * sequences * parts.len());
    into.extend_from_slice(state.get(..HEADER)?);
    for part in parts {
        into.extend_from_slice(&u32::try_from(sequences).ok()?.to_le_bytes());
        into.extend_from_slice(state.get(part.sequence.clone())?);
        // The other sequences of the context, or all if there are no tokens.
        let others = sequences.checked_sub(usize::from(part.flag.is_some()))?;
        into.resize(into.len() + 4 * others, 0);
    }
    into.extend_from_slice(state.get(parts.last()?.end..)?);
    Some(into)
}

impl Part {
    /// Where keys and values are, in order, and in how many pieces.
    fn pieces(&self) -> impl Iterator<Item = (Range<usize>, usize)> {
        let values = self
            .values
            .iter()
            .map(|values| (values.bytes.clone(), if values.transposed { values.elements } else { 1 }));
        self.keys.iter().map(|keys| (keys.clone(), 1)).chain(values).filter(|(bytes, _)| !bytes.is_empty())
    }
}

impl Values {
    /// Returns whether the values can be stored element by element, or token by token.
    fn can_be(&self, transposed: bool) -> bool {
        // Several elements may be stored as one, which cannot be taken apart.
        self.transposed == transposed || element_size(self.kind) == Some(self.element)
    }

    /// Stores the values in the other way, if they are not in this one; `other_way` is space for that. They must be able to.
    fn store(&self, state: &mut [u8], transposed: bool, other_way: &mut Vec<u8>) {
        if self.transposed == transposed {
            return;
        }
        let head = &mut state[self.head + 4..self.head + 12];
        if transposed {
            head[..4].copy_from_slice(&(self.element as u32).to_le_bytes());
            head[4..].copy_from_slice(&(self.elements as u32).to_le_bytes());
        } else {
            head.copy_from_slice(&((self.element * self.elements) as u64).to_le_bytes());
        }
        let bytes = &mut state[self.bytes.clone()];
        other_way.resize(bytes.len(), 0);
        let shape = if transposed { (self.tokens, self.elements) } else { (self.elements, self.tokens) };
        match self.element {
            2 => transpose::<2>(bytes, shape, other_way),
            _ => transpose::<4>(bytes, shape, other_way),
        }
        bytes.copy_from_slice(other_way);
    }
}

/// The bytes of a number of a type that stores numbers one by one.
fn element_size(kind: u32) -> Option<usize> {
    match i64::from(kind) {
        kind if kind == i64::from(sys::GGML_TYPE_F32) => Some(4),
        kind if kind == i64::from(sys::GGML_TYPE_F16) || kind == i64::from(sys::GGML_TYPE_BF16) => Some(2),
        _ => None,
    }
}

/// Writes a matrix of elements of `N` bytes with its rows as columns.
fn transpose<const N: usize>(matrix: &[u8], (rows, columns): (usize, usize), into: &mut [u8]) {
    // Squares that fit the first cache.
    const SIDE: usize = 32;
    let (from, to) = (matrix.as_chunks::<N>().0, into.as_chunks_mut::<N>().0);
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
        hybrid(tokens, sequences, transposed, false)
    }

    /// The same, or one of a hybrid model with positions in several dimensions.
    fn hybrid(tokens: u32, sequences: u32, transposed: bool, is_hybrid: bool) -> Vec<u8> {
        let mut bytes = b"header 8".to_vec();
        let mut put = |number: u32| bytes.extend_from_slice(&number.to_le_bytes());
        put(sequences);
        put(tokens);
        for position in 0..tokens {
            [position, 1].into_iter().for_each(&mut put);
            (0..if is_hybrid { 4 } else { 1 }).for_each(|_| put(0));
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
        if is_hybrid {
            [1, tokens - 1, 0, 0, 2, F32, 8, 0, 77, 78].into_iter().for_each(put);
        }
        bytes
    }

    #[test]
    fn each_layout_becomes_each_other() {
        let layouts = [(1, false), (1, true), (4, false), (4, true)];
        for (from, into) in layouts.into_iter().flat_map(|from| layouts.map(|into| (from, into))) {
            for tokens in [1, 2, 70] {
                let to = Layout { sequences: into.0 as usize, transposed: into.1 };
                // One token does not tell how long its entry is; no state of one is kept.
                for is_hybrid in [false, tokens > 1] {
                    let converted = convert(hybrid(tokens, from.0, from.1, is_hybrid), to);
                    assert_eq!(converted, hybrid(tokens, into.0, into.1, is_hybrid), "{from:?} to {into:?}");
                }
            }
        }
    }

    #[test]
    fn each_token_has_the_cell_of_its_position() {
        let ring = Ring { window: 3, cells: 5 };
        // The last three of twelve tokens, in any order: 9 in the last cell, 10 and 11 in the first two.
        let with = |positions: [u32; 3]| {
            let mut bytes = state(3, 1, false);
            let place = |index: usize| HEADER + 8 + 12 * index;
            for (index, position) in positions.into_iter().enumerate() {
                bytes[place(index)..][..4].copy_from_slice(&position.to_le_bytes());
            }
            bytes
        };
        for transposed in [false, true] {
            let state = convert(with([10, 9, 11]), Layout { sequences: 1, transposed });
            let (placed, first, end) = in_ring(&state, ring, 1).unwrap();
            assert_eq!((first, end), (9, 12));
            let part = &parts(&placed).unwrap()[0];
            let entries = part.sequence.start + 4..part.flag.unwrap();
            let positions: Vec<u32> =
                placed[entries].chunks(12).map(|entry| u32::from_le_bytes(*entry.first_chunk().unwrap())).collect();
            // The two without content come after the end, where the next token is decoded into the first.
            assert_eq!(positions, [10, 11, 12, 13, 9]);
            let back = convert(placed, Layout { sequences: 1, transposed: false });
            let values = &parts(&back).unwrap()[0].values[1];
            let first_elements: Vec<u32> = back[values.bytes.clone()]
                .chunks(12)
                .map(|token| u32::from_le_bytes(*token.first_chunk().unwrap()))
                .collect();
            assert_eq!(first_elements, [100_000, 100_200, 0, 0, 100_100]);
        }
        // The one in the first cell is too far back for any token that comes.
        let (placed, ..) = in_ring(&with([11, 12, 13]), ring, 1).unwrap();
        let part = &parts(&placed).unwrap()[0];
        let position =
            |cell: usize| u32::from_le_bytes(*placed[part.sequence.start + 4 + 12 * cell..].first_chunk().unwrap());
        assert_eq!([0, 1, 2, 3, 4].map(position), [10, 11, 12, 13, 14]);
        // A sequence that is shorter than the ring.
        let (placed, first, end) = in_ring(&with([0, 1, 2]), ring, 1).unwrap();
        assert_eq!((placed, first, end), (with([0, 1, 2]), 0, 3));
        for length in 0..state(3, 1, false).len() {
            assert_eq!(in_ring(&state(3, 1, false)[..length], ring, 1), None, "{length}");
        }
        assert_eq!(in_ring(&state(3, 1, false), ring, 2), None);
    }

    #[test]
    fn what_does_not_read_like_a_state_is_left() {
        let whole = state(3, 1, false);
        let to = Layout { sequences: 1, transposed: true };
        for length in HEADER + 1..whole.len() {
            assert_eq!(convert(whole[..length].to_vec(), to), whole[..length], "{length}");
        }
        for place in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[place] ^= 0xff;
            // It must not panic, nor ask for memory without end.
            let _ = convert(damaged, to);
        }
        assert!(convert(Vec::new(), to).is_empty());
    }
}
