//! Schema violations as sentences that a small model can act on: which argument, what it was, what was expected.

use crate::json::shown;
use jsonschema::error::{TypeKind, ValidationErrorKind as Kind};
use jsonschema::{ValidationError, Validator};
use serde_json::Value;

/// One sentence for each violation.
pub(super) fn sentences(validator: &Validator, arguments: &Value) -> Vec<String> {
    let mut sentences = Vec::new();
    for error in validator.iter_errors(arguments) {
        let sentence = sentence(&error, "");
        if !sentences.contains(&sentence) {
            sentences.push(sentence);
        }
    }
    sentences
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

/// What is wrong with a schema that cannot be compiled, and is called `name`.
pub(super) fn schema_sentence(error: &ValidationError<'_>, name: &str) -> String {
    match error.kind() {
        Kind::Referencing(source) => format!("{name}: $ref: {source}"),
        _ => sentence(error, name),
    }
}

/// The path of the value at fault, under `root` where the value is not the arguments.
fn path(error: &ValidationError<'_>, root: &str) -> String {
    let path = format!("{root}{}", dotted(error.instance_path().as_str()));
    path.strip_prefix('.').unwrap_or(&path).to_owned()
}

fn subject(error: &ValidationError<'_>, root: &str) -> String {
    match path(error, root) {
        path if path.is_empty() => "the arguments".to_owned(),
        path => format!("\"{path}\""),
    }
}

/// The name of a member of the thing at fault: `"b"`, or `"a.b"` inside of `a`.
fn member(error: &ValidationError<'_>, root: &str, name: &str) -> String {
    let path = path(error, root);
    if path.is_empty() { format!("\"{name}\"") } else { format!("\"{path}.{name}\"") }
}

fn sentence(error: &ValidationError<'_>, root: &str) -> String {
    let subject = subject(error, root);
    let value = shown(error.instance());
    let expect = |what: String| format!("{subject} is {value}; expected {what}");
    match error.kind() {
        Kind::Type { kind } => expect(match kind {
            TypeKind::Single(one) => article(&one.to_string()),
            TypeKind::Multiple(set) => join(set.iter().map(|one| article(&one.to_string()))),
        }),
        Kind::Required { property } => {
            format!("{} is missing; it is required", member(error, root, property.as_str().unwrap_or_default()))
        }
        Kind::Enum { options } => match options.as_array() {
            Some(options) => expect(join(options.iter().map(|option| option.to_string()))),
            None => expect(shown(options)),
        },
        Kind::Constant { expected_value } => expect(shown(expected_value)),
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            let names: Vec<_> = unexpected.iter().map(|name| member(error, root, name)).collect();
            match names.as_slice() {
                [name] => format!("{name} is not a known parameter; leave it out"),
                names => format!("{} are not known parameters; leave them out", names.join(", ")),
            }
        }
        Kind::Minimum { limit } => expect(format!("at least {limit}")),
        Kind::Maximum { limit } => expect(format!("at most {limit}")),
        Kind::ExclusiveMinimum { limit } => expect(format!("more than {limit}")),
        Kind::ExclusiveMaximum { limit } => expect(format!("less than {limit}")),
        Kind::MultipleOf { multiple_of } => expect(format!("a multiple of {multiple_of}")),
        Kind::MinLength { limit } => expect(format!("at least {}", count(*limit, "character"))),
        Kind::MaxLength { limit } => expect(format!("at most {}", count(*limit, "character"))),
        Kind::MinItems { limit } => expect(format!("at least {}", count(*limit, "item"))),
        Kind::MaxItems { limit } => expect(format!("at most {}", count(*limit, "item"))),
        Kind::UniqueItems => expect("items that are all different".to_owned()),
        Kind::Pattern { pattern } => expect(format!("text that matches the pattern {pattern}")),
        Kind::Format { format } => expect(format!("text in the format {format}")),
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => {
            // A schema that allows one of several types is commonest; saying the types is what helps.
            let mut options: Vec<String> = Vec::new();
            for error in context.iter().flatten() {
                let option = match error.kind() {
                    Kind::Type { kind: TypeKind::Single(one) } => article(&one.to_string()),
                    Kind::Enum { options } => match options.as_array() {
                        Some(options) => join(options.iter().map(|option| option.to_string())),
                        None => shown(options),
                    },
                    Kind::Constant { expected_value } => shown(expected_value),
                    _ => sentence(error, root),
                };
                if !options.contains(&option) {
                    options.push(option);
                }
            }
            expect(join(options.into_iter()))
        }
        Kind::OneOfMultipleValid { .. } => expect("a value that fits only one of the alternatives".to_owned()),
        _ => format!("{subject} is {value}: {error}"),
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

/// Alternatives in a row; a model is not helped by hundreds.
fn join(options: impl Iterator<Item = String>) -> String {
    const SHOWN: usize = 20;
    let mut options: Vec<String> = options.collect();
    if options.len() > SHOWN {
        options.truncate(SHOWN);
        options.push("…".to_owned());
    }
    options.join(" or ")
}
