//! Classifies the schema violations of a call's arguments.

use super::super::outcome::Outcome;
use super::ScoredCall;
use crate::suite::to_value;
use callwright::tool::{CallProblem, Tools};

/// The violation that is first in the table of outcomes, with a description; `None` if the arguments fit.
pub(super) fn violation(tools: &Tools, call: &ScoredCall) -> Option<(Outcome, String)> {
    let schema = tools.schema(&call.name)?;
    let arguments = to_value(call.exact.as_ref()?);
    let names = arguments.as_object().into_iter().flat_map(|arguments| arguments.keys().map(String::as_str));
    let unlisted =
        schema.unlisted(names).map(|name| (Outcome::UnknownArg, format!("{}: {name:?} is not a parameter", call.name)));
    let worst = call.problems.iter().filter(|problem| problem.is_schema_violation()).map(outcome).min();
    match (unlisted, worst) {
        (Some(unlisted), Some(worst)) if unlisted.0 <= worst => Some(unlisted),
        (_, Some(worst)) => Some((worst, format!("{}: {}", call.name, CallProblem::sentences(&call.problems)))),
        (unlisted, None) => unlisted,
    }
}

fn outcome(problem: &CallProblem) -> Outcome {
    match problem {
        CallProblem::MissingArgument { .. } => Outcome::MissingRequiredArg,
        CallProblem::UnknownArguments { .. } => Outcome::UnknownArg,
        CallProblem::WrongValue { keyword, .. } if keyword == "enum" || keyword == "const" => Outcome::EnumViolation,
        _ => Outcome::WrongType,
    }
}
