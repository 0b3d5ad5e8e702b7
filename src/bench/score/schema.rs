//! Classifies the schema violations of a call's arguments.

use super::super::outcome::Outcome;
use super::ScoredCall;
use crate::bench::suite::to_value;
use crate::tool::Tools;
use jsonschema::error::ValidationErrorKind as Kind;
use serde_json::Value;

/// The violation that is first in the table of outcomes, with a description; `None` if the arguments fit.
pub(super) fn violation(tools: &Tools, call: &ScoredCall) -> Option<(Outcome, String)> {
    let tool = tools.get(&call.name)?;
    let schema = tool.schema()?;
    let arguments = to_value(call.exact.as_ref()?);
    let mut first: Option<(Outcome, String)> = unlisted(&schema, &arguments)
        .map(|name| (Outcome::UnknownArg, format!("{}: {name:?} is not a parameter", call.name)));
    // Compiling a schema takes longer than the rest, and the parser knows already which calls fit.
    if !call.valid
        && let Ok(validator) = jsonschema::validator_for(&schema)
    {
        for error in validator.iter_errors(&arguments) {
            let outcome = match error.kind() {
                Kind::Required { .. } => Outcome::MissingRequiredArg,
                Kind::AdditionalProperties { .. } | Kind::UnevaluatedProperties { .. } => Outcome::UnknownArg,
                Kind::Enum { .. } | Kind::Constant { .. } => Outcome::EnumViolation,
                _ => Outcome::WrongType,
            };
            if first.as_ref().is_none_or(|(known, _)| outcome < *known) {
                let told = call.problems.join("; ");
                let told = if told.is_empty() { error.to_string() } else { told };
                first = Some((outcome, format!("{}: {told}", call.name)));
            }
        }
    }
    first
}

/// An argument that is not among the properties of a schema that does not mention additional ones.
fn unlisted<'a>(schema: &Value, arguments: &'a Value) -> Option<&'a str> {
    let listed = schema.get("properties")?.as_object()?;
    let open =
        ["additionalProperties", "patternProperties", "unevaluatedProperties", "$ref", "allOf", "anyOf", "oneOf"];
    if open.iter().any(|key| schema.get(key).is_some_and(|value| *value != Value::Bool(false))) {
        return None;
    }
    arguments.as_object()?.keys().map(String::as_str).find(|name| !listed.contains_key(*name))
}
