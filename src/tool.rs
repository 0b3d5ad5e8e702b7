//! Tools: what the model may call, and whether a call's arguments fit.

use serde_json::{Map, Value};

/// One tool: a function with a JSON Schema for its parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// The name the model calls it by.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// JSON Schema of the arguments object; `None` for a tool without parameters.
    pub parameters: Option<Map<String, Value>>,
}

/// A set of tools with distinct names, their schemas compiled.
#[derive(Debug, Default)]
pub struct Tools {
    tools: Vec<Tool>,
    validators: Vec<Option<jsonschema::Validator>>,
}

impl Tools {
    /// What is wrong with calling `name` with `arguments`; empty when nothing is.
    ///
    /// Each problem is a sentence that names the place in the arguments and says what was expected, fit to be told
    /// to the model.
    pub fn problems(&self, name: &str, arguments: &Map<String, Value>) -> Vec<String> {
        let Some(index) = self.tools.iter().position(|tool| tool.name == name) else {
            return vec![format!("there is no tool named {name:?}")];
        };
        let Some(validator) = &self.validators[index] else { return Vec::new() };
        validator.iter_errors(&Value::Object(arguments.clone())).map(|error| error.to_string()).collect()
    }
}
