//! One test binary: linking llama.cpp once is enough.

mod conformance;
mod parse;
