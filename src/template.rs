//! stub
/// A piece of a prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct Piece {
    /// Its text.
    pub text: String,
    /// Plain text, never special tokens.
    pub literal: bool,
}
