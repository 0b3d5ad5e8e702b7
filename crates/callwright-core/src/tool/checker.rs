//! Whether a value fits a schema, and in words that help a small model: which argument, its value, what was expected.

use super::problem::{CallProblem, SHOWN};
use crate::json::shown;
use jsonschema::error::{TypeKind, ValidationErrorKind as Kind};
use jsonschema::{ValidationError, Validator};
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};

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

/// Maximum number of steps of an explanation.
const STEPS: usize = 4096;

impl Checker {
    pub(super) fn new(validator: Validator, schema: &Value) -> Checker {
        let mut overlaps = Overlaps { root: schema, refers: false, most: 1, steps: 0 };
        overlaps.look(schema);
        let levels = (overlaps.refers && overlaps.most > 1).then(|| STEPS.ilog(overlaps.most));
        Checker { validator, levels }
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

/// Why a value cannot be checked by a schema in bounded time, if it cannot be.
///
/// Where references and alternatives multiply, forty definitions of two references each make 2^40 checks of the same value.
pub(super) fn multiplies(schema: &Value) -> Option<String> {
    const MOST: u64 = 1_000_000;
    let mut work = Work { root: schema, names: HashMap::new(), known: HashMap::new(), open: 0, most: 0 };
    work.named(schema);
    work.look(schema);
    (work.most > MOST).then(|| format!("its references multiply: more than {MOST} schemas apply to one value"))
}

/// Counts how many schemas apply to one value, as often as they are reached.
struct Work<'s> {
    root: &'s Value,
    /// What has an anchor or an id.
    names: HashMap<&'s str, &'s Value>,
    /// Schemas that were counted, by address; those that are being counted have 1.
    known: HashMap<*const Value, u64>,
    /// Number of schemas that are being counted.
    open: usize,
    most: u64,
}

impl<'s> Work<'s> {
    /// Deeper chains are not followed.
    const DEEPEST: usize = 4000;

    fn named(&mut self, schema: &'s Value) {
        match schema {
            Value::Object(members) => {
                for key in ["$anchor", "$dynamicAnchor", "$id"] {
                    if let Some(name) = members.get(key).and_then(Value::as_str) {
                        self.names.insert(name, schema);
                    }
                }
                members.values().for_each(|value| self.named(value));
            }
            Value::Array(items) => items.iter().for_each(|item| self.named(item)),
            _ => {}
        }
    }

    fn look(&mut self, schema: &'s Value) {
        match schema {
            Value::Object(members) => {
                self.most = self.most.max(self.of(schema));
                members.values().for_each(|value| self.look(value));
            }
            Value::Array(items) => items.iter().for_each(|item| self.look(item)),
            _ => {}
        }
    }

    /// How many schemas apply to a value that this one applies to.
    fn of(&mut self, schema: &'s Value) -> u64 {
        let Value::Object(members) = schema else { return 1 };
        let address = std::ptr::from_ref(schema);
        if let Some(known) = self.known.get(&address) {
            return *known;
        }
        if self.open > Work::DEEPEST {
            return u64::MAX;
        }
        self.known.insert(address, 1);
        self.open += 1;
        let mut sum: u64 = 1;
        for (key, value) in members {
            let parts: Vec<&Value> = match (key.as_str(), value) {
                ("allOf" | "anyOf" | "oneOf", Value::Array(parts)) => parts.iter().collect(),
                ("not" | "if" | "then" | "else", part) => vec![part],
                ("dependentSchemas" | "dependencies", Value::Object(parts)) => parts.values().collect(),
                ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(reference)) => {
                    self.referred(reference).into_iter().collect()
                }
                _ => continue,
            };
            sum = parts.into_iter().fold(sum, |sum, part| sum.saturating_add(self.of(part)));
        }
        self.open -= 1;
        self.known.insert(address, sum);
        sum
    }

    fn referred(&self, reference: &str) -> Option<&'s Value> {
        let fragment = reference.strip_prefix('#');
        let pointed = fragment.and_then(|pointer| self.root.pointer(pointer));
        pointed.or_else(|| self.names.get(fragment.unwrap_or(reference)).copied())
    }
}

/// Counts how many schemas apply to the same object or list.
struct Overlaps<'s> {
    root: &'s Value,
    /// Whether there is a reference; without one, levels do not repeat.
    refers: bool,
    most: usize,
    steps: usize,
}

impl Overlaps<'_> {
    fn look(&mut self, schema: &Value) {
        match schema {
            Value::Object(members) => {
                self.refers |= ["$ref", "$dynamicRef", "$recursiveRef"].iter().any(|key| members.contains_key(*key));
                for kind in ["object", "array"] {
                    self.steps = 0;
                    self.most = self.overlaps(schema, kind, 0).max(self.most);
                }
                members.values().for_each(|value| self.look(value));
            }
            Value::Array(items) => items.iter().for_each(|item| self.look(item)),
            _ => {}
        }
    }

    /// Number of subschemas that accept a value of that type.
    fn overlaps(&mut self, schema: &Value, kind: &str, followed: usize) -> usize {
        self.steps += 1;
        let Value::Object(members) = schema else { return usize::from(*schema == true) };
        if !takes(members, kind) {
            return 0;
        }
        if self.steps > STEPS || followed > 16 {
            return STEPS;
        }
        let several = ["anyOf", "oneOf", "allOf"].iter().filter_map(|key| members.get(*key)?.as_array()).flatten();
        let referred = members.get("$ref").and_then(Value::as_str).and_then(|reference| reference.strip_prefix('#'));
        let parts = several.chain(referred.and_then(|pointer| self.root.pointer(pointer)));
        let sum: usize = parts.map(|part| self.overlaps(part, kind, followed + 1)).fold(0, usize::saturating_add);
        let own = ["properties", "patternProperties", "additionalProperties", "items", "prefixItems"];
        sum.saturating_add(usize::from(sum == 0 || own.iter().any(|key| members.contains_key(*key)))).min(STEPS)
    }
}

/// Whether a value of that type may fit, judging by the schema's own keywords.
fn takes(schema: &Map<String, Value>, kind: &str) -> bool {
    let is = |value: &Value| match value {
        Value::Object(_) => kind == "object",
        Value::Array(_) => kind == "array",
        _ => false,
    };
    let typed = match schema.get("type") {
        Some(Value::String(name)) => name == kind,
        Some(Value::Array(names)) => names.iter().any(|name| name == kind),
        _ => true,
    };
    let listed = schema.get("enum").and_then(Value::as_array);
    typed && schema.get("const").is_none_or(is) && listed.is_none_or(|values| values.iter().any(is))
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

/// A sentence about a schema that cannot be compiled and is called `name`.
pub(super) fn schema_sentence(error: &ValidationError<'_>, name: &str) -> String {
    match error.kind() {
        Kind::Referencing(source) => format!("{name}: $ref: {source}"),
        _ => problem(error, name).to_string(),
    }
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

/// What the schema expects of a value, in words; `None` for a keyword that is better explained by the validator.
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
