//! A conversation with one model: its template, its format and what it reads.

mod choose;
mod decision;
mod inferred;
mod no_call;
mod reading;
mod renders;
mod tolerance;
mod turns;
