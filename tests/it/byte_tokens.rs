//! The tokenizer of engines whose tokens are single bytes, as those of `Vocabulary::of_bytes` are.

use callwright::engine::Token;
use callwright::template::Piece;

pub fn tokenize(prompt: &[Piece]) -> Vec<Token> {
    prompt.iter().flat_map(|piece| piece.text.bytes()).map(|byte| Token(i32::from(byte))).collect()
}

/// The byte of a token; none for the token that ends a turn.
pub fn bytes(token: Token) -> &'static [u8] {
    const BYTES: [u8; 256] = {
        let mut bytes = [0; 256];
        let mut i = 0;
        while i < 256 {
            bytes[i] = i as u8;
            i += 1;
        }
        bytes
    };
    usize::try_from(token.0).ok().and_then(|i| BYTES.get(i..i + 1)).unwrap_or_default()
}
