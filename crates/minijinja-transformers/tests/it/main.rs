//! One test binary; the cases are files in tests/cases.

mod conformance;
#[allow(dead_code, reason = "the tests of the core use all of it")]
#[path = "../../../callwright-core/tests/it/data.rs"]
mod data;
mod limits;
mod python;
mod template;
