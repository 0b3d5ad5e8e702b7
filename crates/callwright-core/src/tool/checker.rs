//! Whether a value fits a schema, and in words that help a small model: which argument, its value, what was expected.

use super::problem::{CallProblem, SHOWN};
use crate::error::{Error, ErrorKind, Result};
use crate::json::shown;
use crate::schema::Schema;
use jsonschema::error::{TypeKind, ValidationErrorKind as Kind};
use jsonschema::{ValidationError, Validator};
use serde_json::{Value, json};
use std::collections::HashSet;

/// A compiled schema that explains violations in bounded time.
///
/// Checking a value is fast. Explaining a violation tries each nested value with every alternative that accepts it, and
/// if these refer back to the schema, the steps multiply with each level: a filter of 30 levels, about 400 bytes, would
/// take hours. So violations that are nested too deeply to explain are only named.
#[derive(Debug)]
pub(super) struct Checker {
    validator: Validator,
    /// Maximum number of levels to explain; `None` if levels do not multiply.
    levels: Option<u32>,
}

impl Checker {
    /// Compiles a schema in its standard form.
    pub(super) fn new(standard: &Value, levels: Option<u32>) -> std::result::Result<Checker, Refusal> {
        Ok(Checker { validator: jsonschema::validator_for(standard).map_err(Refusal)?, levels })
    }

    /// The schema violations of `value`, each once.
    pub(super) fn problems(&self, value: &Value) -> Vec<CallProblem> {
        if self.validator.is_valid(value) {
            return Vec::new();
        }
        let too_deep = |value: &Value| self.levels.is_some_and(|levels| depth(value) > levels);
        if !too_deep(value) {
            return self.explain(value);
        }
        let Value::Object(arguments) = value else {
            return vec![CallProblem::NoAlternative { names: Vec::new() }];
        };
        // The arguments themselves are also a level.
        let (deep, rest): (Vec<_>, Vec<_>) = arguments
            .clone()
            .into_iter()
            .partition(|(_, value)| self.levels.is_some_and(|levels| depth(value) >= levels));
        let mut problems = self.explain(&Value::Object(rest.into_iter().collect()));
        problems.retain(|problem| match problem {
            CallProblem::MissingArgument { path } => !deep.iter().any(|(name, _)| name == path),
            _ => true,
        });
        if problems.is_empty() {
            problems.push(CallProblem::NoAlternative { names: deep.into_iter().map(|(name, _)| name).collect() });
        }
        problems
    }

    fn explain(&self, value: &Value) -> Vec<CallProblem> {
        let mut problems = Vec::new();
        // Two keywords may say the same.
        let mut sentences = HashSet::new();
        for error in self.validator.iter_errors(value) {
            let problem = problem(&error, "");
            if sentences.insert(problem.to_string()) {
                problems.push(problem);
            }
        }
        problems
    }
}

/// The nesting depth of objects and lists.
fn depth(value: &Value) -> u32 {
    match value {
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// A JSON pointer as a path: `/a/0/b` → `.a[0].b`.
pub(super) fn dotted(pointer: &str) -> String {
    let mut path = String::new();
    for segment in pointer.split('/').skip(1) {
        let segment = segment.replace("~1", "/").replace("~0", "~");
        if segment.bytes().all(|b| b.is_ascii_digit()) && !segment.is_empty() {
            path.push_str(&format!("[{segment}]"));
        } else {
            path.push_str(&format!(".{segment}"));
        }
    }
    path
}

/// Why a schema cannot be compiled.
pub(super) struct Refusal(ValidationError<'static>);

impl Refusal {
    /// The JSON pointer of the part that cannot be compiled.
    pub(super) fn at(&self) -> &str {
        self.0.instance_path().as_str()
    }

    /// A sentence about the schema, which is called `name`.
    pub(super) fn sentence(&self, name: &str) -> String {
        match self.0.kind() {
            Kind::Referencing(source) => format!("{name}: $ref: {source}"),
            _ => problem(&self.0, name).to_string(),
        }
    }

    /// The error of this message.
    pub(super) fn error(self, message: String) -> Error {
        Error::new(ErrorKind::Tools, message).caused_by(self.0)
    }
}

/// Returns whether the validator compiles a regular expression.
pub(super) fn is_pattern(text: &str) -> bool {
    jsonschema::validator_for(&json!({"pattern": text})).is_ok()
}

/// The problems of a value for a schema; empty if it fits.
///
/// # Errors
/// [`ErrorKind::Tools`] if the schema is invalid.
pub fn misfits(schema: &Value, value: &Value) -> Result<Vec<String>> {
    let read = Schema::read(schema);
    if let Some(why) = read.multiplies() {
        return Err(Error::new(ErrorKind::Tools, format!("the schema cannot be checked: {why}")));
    }
    // A schema that the newest draft rejects (a list of `items`) may be of an older draft.
    let validator =
        jsonschema::validator_for(schema).or_else(|error| jsonschema::draft7::new(schema).map_err(|_| error));
    let validator = validator.map_err(Refusal).map_err(|refusal| {
        let message = format!("the schema is not one: {}", refusal.sentence("$"));
        refusal.error(message)
    })?;
    // At the top level the message is about arguments.
    let of_value = |problem: CallProblem| match problem.to_string() {
        sentence if sentence.starts_with("the arguments") => sentence.replacen("the arguments", "the value", 1),
        sentence => sentence,
    };
    let checker = Checker { validator, levels: read.explained_levels() };
    Ok(checker.problems(value).into_iter().map(of_value).collect())
}

/// The path of the value at fault; starts with `root` if the value is not the arguments.
fn path(error: &ValidationError<'_>, root: &str) -> String {
    let path = format!("{root}{}", dotted(error.instance_path().as_str()));
    path.strip_prefix('.').map(str::to_owned).unwrap_or(path)
}

/// The path of a member of the value at fault: `b`, or `a.b` inside `a`.
fn member(error: &ValidationError<'_>, root: &str, name: &str) -> String {
    let path = path(error, root);
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// The violation as a problem of a call. Paths start with `root`.
fn problem(error: &ValidationError<'_>, root: &str) -> CallProblem {
    match error.kind() {
        Kind::Required { property } => {
            CallProblem::MissingArgument { path: member(error, root, property.as_str().unwrap_or_default()) }
        }
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            CallProblem::UnknownArguments { paths: unexpected.iter().map(|name| member(error, root, name)).collect() }
        }
        kind => {
            let (path, value) = (path(error, root), shown(error.instance()));
            let keyword = kind.keyword().to_owned();
            match expected(kind, root) {
                Some(expected) => CallProblem::WrongValue { path, value, keyword, expected },
                None => CallProblem::OtherViolation { path, value, keyword, message: error.to_string() },
            }
        }
    }
}

/// Returns what the schema expects of a value, in words; `None` for a keyword that is better explained by the
/// validator.
fn expected(kind: &Kind, root: &str) -> Option<String> {
    Some(match kind {
        Kind::Type { kind: TypeKind::Single(one) } => article(&one.to_string()),
        Kind::Type { kind: TypeKind::Multiple(set) } => join(set.iter().map(|one| article(&one.to_string()))),
        Kind::Enum { options } => listed(options),
        Kind::Constant { expected_value } => shown(expected_value),
        Kind::Minimum { limit } => format!("at least {limit}"),
        Kind::Maximum { limit } => format!("at most {limit}"),
        Kind::ExclusiveMinimum { limit } => format!("more than {limit}"),
        Kind::ExclusiveMaximum { limit } => format!("less than {limit}"),
        Kind::MultipleOf { multiple_of } => format!("a multiple of {multiple_of}"),
        Kind::MinLength { limit } => format!("at least {}", count(*limit, "character")),
        Kind::MaxLength { limit } => format!("at most {}", count(*limit, "character")),
        Kind::MinItems { limit } => format!("at least {}", count(*limit, "item")),
        Kind::MaxItems { limit } => format!("at most {}", count(*limit, "item")),
        Kind::UniqueItems => "items that are all different".to_owned(),
        Kind::Pattern { pattern } => format!("text that matches the pattern {pattern}"),
        Kind::Format { format } => format!("text in the format {format}"),
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => {
            // Most often a schema allows one of several types; then naming the types helps most.
            let mut options: Vec<String> = Vec::new();
            for error in context.iter().flatten() {
                let option = match error.kind() {
                    Kind::Type { kind: TypeKind::Single(one) } => article(&one.to_string()),
                    Kind::Enum { options } => listed(options),
                    Kind::Constant { expected_value } => shown(expected_value),
                    _ => problem(error, root).to_string(),
                };
                if !options.contains(&option) {
                    options.push(option);
                }
            }
            join(options.into_iter())
        }
        Kind::OneOfMultipleValid { .. } => "a value that fits only one of the alternatives".to_owned(),
        _ => return None,
    })
}

/// The values of an enum.
fn listed(options: &Value) -> String {
    match options.as_array() {
        Some(options) => join(options.iter().map(Value::to_string)),
        None => shown(options),
    }
}

fn article(kind: &str) -> String {
    match kind {
        "null" => "null".to_owned(),
        "object" | "integer" | "array" => format!("an {kind}"),
        _ => format!("a {kind}"),
    }
}

fn count(n: u64, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

/// Joins alternatives; hundreds do not help a model.
fn join(options: impl Iterator<Item = String>) -> String {
    let mut options: Vec<String> = options.collect();
    if options.len() > SHOWN {
        options.truncate(SHOWN);
        options.push("…".to_owned());
    }
    options.join(" or ")
}
