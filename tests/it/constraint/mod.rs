//! Grammars, and answers that are held to them.

mod answers;
mod closing;
mod gbnf;
mod grammar;
mod other_forms;
mod repeats;
mod schemas;
