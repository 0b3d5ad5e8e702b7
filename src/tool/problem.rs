//! Schema violations as sentences that a small model can act on: which argument, what it was, what was expected.

use crate::json::shown;
use jsonschema::error::{TypeKind, ValidationErrorKind as Kind};
use jsonschema::{ValidationError, Validator};
use serde_json::Value;

/// A compiled schema that says what is wrong with a value, in a time that the value cannot drive up.
///
/// Where several alternatives of a schema take the same object and refer back to it, each value inside is tried with
/// every one of them again: the steps multiply with each level. A filter of 30 levels, some 400 bytes, would take hours.
#[derive(Debug)]
pub(super) struct Checker {
    validator: Validator,
    /// The binary logarithm of how many times the steps multiply with each level; none where they do not.
    growth: Option<u32>,
}

/// How often the steps may double, and how many levels there may be in any case: to say whether a value fits, which is
/// over where one alternative does, and to say why it does not.
const WHETHER: (u32, u32) = (24, 16);
const WHY: (u32, u32) = (12, 8);

impl Checker {
    pub(super) fn new(validator: Validator, schema: &Value) -> Checker {
        let mut found = (false, 1);
        look(schema, schema, &mut found);
        let (refers, alternatives) = found;
        let growth = (refers && alternatives > 1).then(|| usize::next_power_of_two(alternatives).ilog2());
        Checker { validator, growth }
    }

    /// One sentence for each violation.
    pub(super) fn sentences(&self, value: &Value) -> Vec<String> {
        let levels = if self.growth.is_some() { depth(value) } else { 0 };
        let most =
            |(doublings, least): (u32, u32)| self.growth.map_or(u32::MAX, |growth| (doublings / growth).max(least));
        if levels > most(WHETHER) {
            return vec![format!("the arguments nest {levels} levels deep; expected at most {}", most(WHETHER))];
        }
        if self.validator.is_valid(value) {
            return Vec::new();
        }
        if levels > most(WHY) {
            return vec!["the arguments fit none of the alternatives that the schema allows".to_owned()];
        }
        let mut sentences = Vec::new();
        for error in self.validator.iter_errors(value) {
            let sentence = sentence(&error, "");
            if !sentences.contains(&sentence) {
                sentences.push(sentence);
            }
        }
        sentences
    }
}

/// Whether something in a schema is referred to, and how many alternatives of one place may take the same value.
fn look(root: &Value, schema: &Value, found: &mut (bool, usize)) {
    match schema {
        Value::Object(members) => {
            for (key, value) in members {
                found.0 |= matches!(key.as_str(), "$ref" | "$dynamicRef" | "$recursiveRef");
                if let ("anyOf" | "oneOf", Value::Array(alternatives)) = (key.as_str(), value) {
                    for kind in ["object", "array"] {
                        let taking = alternatives.iter().filter(|schema| takes(root, schema, kind, 0)).count();
                        found.1 = found.1.max(taking);
                    }
                }
                look(root, value, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| look(root, item, found)),
        _ => {}
    }
}

/// Whether a value of that type may fit the schema, as far as its own `type` says.
fn takes(root: &Value, schema: &Value, kind: &str, followed: usize) -> bool {
    let referred = schema.get("$ref").and_then(Value::as_str).and_then(|reference| reference.strip_prefix('#'));
    match (schema.get("type"), referred.and_then(|pointer| root.pointer(pointer))) {
        (Some(Value::String(name)), _) => name == kind,
        (Some(Value::Array(names)), _) => names.iter().any(|name| name == kind),
        (_, Some(referred)) if followed < 8 => takes(root, referred, kind, followed + 1),
        _ => !schema.is_boolean() || *schema == true,
    }
}

/// How many objects and lists stand inside of each other.
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
