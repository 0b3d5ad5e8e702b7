//! In place of `checker` without the feature `validate`: arguments are not compared with their schemas.

use super::problem::CallProblem;
use crate::error::Error;
use serde_json::Value;
use std::convert::Infallible;

#[derive(Debug)]
pub(super) struct Checker;

impl Checker {
    pub(super) fn new(_: &Value, _: Option<u32>) -> Result<Checker, Refusal> {
        Ok(Checker)
    }

    pub(super) fn problems(&self, _: &Value) -> Vec<CallProblem> {
        Vec::new()
    }
}

/// No schema is refused.
pub(super) struct Refusal(Infallible);

impl Refusal {
    pub(super) fn at(&self) -> &str {
        match self.0 {}
    }

    pub(super) fn sentence(&self, _: &str) -> String {
        match self.0 {}
    }

    pub(super) fn error(self, _: String) -> Error {
        match self.0 {}
    }
}

pub(super) fn is_pattern(_: &str) -> bool {
    true
}
