//! The highest score of answers that fit the tools' schemas.
//!
//! A few of the leaderboard's cases accept only values that violate the tool's own schema: another type, or a value
//! outside of the enum. With constrained calls these cannot be right.

use super::{Gold, check};
use crate::exact::Exact;
use crate::suite::{Case, to_value};
use serde_json::Value;

/// Returns whether some answer passes the checker and fits the schemas of the case's tools.
///
/// It tries the accepted values and the members of an enum. A case without expected calls has such an answer.
pub(crate) fn reachable(case: &Case) -> bool {
    let Some(gold) = &case.bfcl else { return true };
    if gold.category.contains("relevance") {
        return true;
    }
    let Some(expected) = gold.ground_truth.elements() else { return false };
    let calls: Option<Vec<Exact>> = expected.iter().map(|call| fitting_call(case, gold, call)).collect();
    calls.is_some_and(|calls| gold.check(Some(&Exact::List(calls))).is_ok())
}

/// A call that is accepted and fits its schema.
fn fitting_call(case: &Case, gold: &Gold, expected: &Exact) -> Option<Exact> {
    let (name, accepted) = expected.members()?.first()?;
    let tool = match gold.category.contains("multiple") || gold.category.contains("parallel") {
        true => case.tools.get(name)?,
        false => case.tools.iter().next()?,
    };
    let mut schema = tool.schema()?;
    // The tool does not know undeclared arguments.
    if let Some(schema) = schema.as_object_mut().filter(|schema| schema.contains_key("properties")) {
        schema.insert("additionalProperties".to_owned(), Value::Bool(false));
    }
    let validator = jsonschema::validator_for(&schema).ok()?;
    let mut arguments = Vec::new();
    for (parameter, values) in accepted.members()? {
        let values = values.elements()?;
        let optional = values.iter().any(|value| value.as_str() == Some(""));
        let property = schema.get("properties").and_then(|properties| properties.get(parameter));
        let fits = |value: &Exact| match property.and_then(|property| jsonschema::validator_for(property).ok()) {
            Some(validator) => validator.is_valid(&to_value(value)),
            None => true,
        };
        let passes = |value: &Exact| {
            let only = |of: Exact| Exact::List(vec![of]);
            let one = |value: Exact| {
                Exact::Object(vec![(tool.name.clone(), Exact::Object(vec![(parameter.clone(), value)]))])
            };
            let asked = only(one(Exact::List(values.to_vec())));
            check(
                "simple_python",
                &only(alone(gold, &tool.name, parameter)),
                &asked,
                Some(&only(one(value.clone()))),
                false,
            )
            .is_ok()
        };
        let from_enum = property.and_then(|property| property.get("enum")).and_then(Value::as_array);
        let from_enum = from_enum.into_iter().flatten().filter_map(|value| Exact::parse(&value.to_string()).ok());
        let mut candidates = values.iter().flat_map(candidates).chain(from_enum);
        match candidates.find(|value| fits(value) && passes(value)) {
            Some(value) => arguments.push((parameter.clone(), value)),
            None if optional => {}
            None => return None,
        }
    }
    let arguments = Exact::Object(arguments);
    validator.is_valid(&to_value(&arguments)).then(|| Exact::Object(vec![(tool.name.clone(), arguments)]))
}

/// The tool with only this parameter, which is all that the checker reads.
fn alone(gold: &Gold, tool: &str, parameter: &str) -> Exact {
    let named = |one: &&Exact| one.get("name").and_then(Exact::as_str) == Some(tool);
    let tools = gold.tools.elements().unwrap_or_default();
    let properties =
        tools.iter().find(named).and_then(|tool| tool.get("parameters")?.get("properties")?.get(parameter));
    let object = |members: Vec<(&str, Exact)>| {
        Exact::Object(members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    };
    let properties = object(vec![(parameter, properties.cloned().unwrap_or(Exact::Null))]);
    let parameters = object(vec![("properties", properties), ("required", Exact::List(Vec::new()))]);
    object(vec![("name", Exact::Text(tool.to_owned())), ("parameters", parameters)])
}

/// The values that an accepted one means: in an object each key has its own list, and may be left out.
fn candidates(accepted: &Exact) -> Vec<Exact> {
    match accepted {
        Exact::Object(members) => {
            let with = |all: bool| {
                let members = members.iter().filter_map(|(key, values)| {
                    let values = values.elements()?;
                    let optional = values.iter().any(|value| value.as_str() == Some(""));
                    let value = values.iter().find(|value| value.as_str() != Some(""));
                    if optional && !all { None } else { Some((key.clone(), value.or(values.first())?.clone())) }
                });
                Exact::Object(members.collect())
            };
            vec![with(true), with(false), accepted.clone()]
        }
        Exact::List(elements) if elements.iter().any(|element| element.members().is_some()) => {
            let each: Vec<Vec<Exact>> = elements.iter().map(candidates).collect();
            let pick = |which: usize| {
                Exact::List(each.iter().filter_map(|options| options.get(which).or(options.last()).cloned()).collect())
            };
            vec![pick(0), pick(1), accepted.clone()]
        }
        Exact::Text(text) if text.is_empty() => Vec::new(),
        other => vec![other.clone()],
    }
}
