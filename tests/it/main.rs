//! What the library does, stage by stage; the cases are files under `tests/cases`.

mod declaration;
mod parse;
