//! Arguments as JSON.

use super::rules::Rules;
use super::{Builder, Grammar, Unenforced, schema};
use crate::error::{Error, ErrorKind, Result};
use crate::tool::Tool;
use serde_json::{Value, json};

/// White space is fixed: where a model may choose it, a weak one rambles in line breaks, and nothing is ever forced.
fn with_fixed_space(mut value: Value) -> Value {
    if let Value::Object(object) = &mut value {
        object.insert(
            "x-guidance".to_owned(),
            json!({"whitespace_flexible": false, "key_separator": ": ", "item_separator": ", "}),
        );
    }
    value
}

impl Builder<'_> {
    pub(super) fn json_arguments(&mut self, tool: &Tool) -> Result<String> {
        match tool.schema() {
            Some(parameters) => self.json_value(&as_object(parameters), &tool.name, "$"),
            None => Ok(super::literal("{}")),
        }
    }

    /// A JSON value that fits a part of a tool's schema; `path` says which.
    pub(super) fn json_value(&mut self, value: &Value, tool: &str, path: &str) -> Result<String> {
        let (mut prepared, mut unenforced) = schema::prepare(value);
        if self.check
            && let Err(complaint) = schema::compile(&prepared)
        {
            if schema::is_impossible(&complaint) {
                return Err(impossible(&format!("tool {tool:?}: "), &complaint));
            }
            schema::relax(&mut prepared, &mut unenforced);
        }
        self.unenforced.extend(
            unenforced.into_iter().map(|dropped| Unenforced { path: dropped.path.replacen('$', path, 1), ..dropped }),
        );
        Ok(self.rules.json(&with_fixed_space(prepared)))
    }
}

/// The schema of an arguments object, which need not say that it is one.
pub(super) fn as_object(mut parameters: Value) -> Value {
    if let Value::Object(object) = &mut parameters
        && !object.contains_key("type")
    {
        object.insert("type".to_owned(), "object".into());
    }
    parameters
}

fn impossible(place: &str, complaint: &str) -> Error {
    let reason = complaint.rsplit("Unsatisfiable schema: ").next().unwrap_or(complaint);
    let reason = reason.lines().next().unwrap_or(reason);
    Error::new(ErrorKind::Tools, format!("{place}no value fits the schema: {reason}"))
}

/// The grammar of a JSON value that fits `schema`.
///
/// With `flexible` white space is free wherever JSON allows it, and nothing is narrowed: for checking texts. Without,
/// it is what a model is held to: one way to write white space, numbers of a size that programs can read, and no keys
/// that the schema does not mention.
///
/// # Errors
/// [`ErrorKind::Tools`] when no value fits the schema, or it is none.
pub fn json_grammar(value: &Value, flexible: bool) -> Result<Grammar> {
    let (mut prepared, mut unenforced) = if flexible { schema::without_unknown(value) } else { schema::prepare(value) };
    if let Err(complaint) = schema::compile(&prepared) {
        if schema::is_impossible(&complaint) {
            return Err(impossible("", &complaint));
        }
        schema::relax(&mut prepared, &mut unenforced);
        if let Err(complaint) = schema::compile(&prepared) {
            let first = complaint.lines().next().unwrap_or_default();
            return Err(Error::new(ErrorKind::Tools, format!("the schema is not one that can be enforced: {first}")));
        }
    }
    let prepared = if flexible { prepared } else { with_fixed_space(prepared) };
    let mut rules = Rules::default();
    let start = rules.json(&prepared);
    Ok(Grammar { lark: rules.finish(&start), unenforced })
}
