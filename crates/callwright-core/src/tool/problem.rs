//! What can be wrong with a call, as data. `Display` writes the sentence that a model reads.

use serde::Serialize;
use std::fmt;

/// Why a call is not valid.
///
/// `Display` writes a sentence for the model. Serialized, a problem is an object with its [kind](CallProblem::kind)
/// under `kind` and its fields beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum CallProblem {
    /// The text ended, or another call began, before the call was complete.
    Incomplete,
    /// A grammar closed the call because the tokens ran out, so its arguments may be cut off.
    OutOfTokens,
    /// Calls are forbidden in this answer.
    Forbidden,
    /// The call departs from its format, and repairs are off.
    NotRepaired,
    /// There is only white space between the call's markers.
    Empty,
    /// The call's JSON is broken beyond repair.
    NotJson,
    /// The call names no tool.
    Nameless,
    /// The text does not begin with a tool's name, as the format demands.
    NoToolName,
    /// The text does not begin with a tool's name and parentheses, as a format of Python calls demands.
    NoParentheses,
    /// There is no tool of that name.
    UnknownTool {
        /// The name that the model wrote.
        name: String,
        /// The tool that the model most likely meant.
        nearest: Option<String>,
        /// The names of the tools; of many, the first ones.
        tools: Vec<String>,
        /// How many names `tools` leaves out.
        more: usize,
    },
    /// The arguments are not JSON.
    ArgumentsNotJson {
        /// The JSON reader's message.
        error: String,
    },
    /// The arguments are JSON, but not an object.
    ArgumentsNotObject,
    /// The arguments nest deeper than the parser reads.
    ArgumentsTooDeep,
    /// The arguments are Python, but more than literals.
    NotLiterals,
    /// A string in the arguments is not closed.
    UnclosedString,
    /// A tag around an argument has a wrong character, and is now a part of the argument.
    DamagedTag,
    /// A number cannot be kept exactly.
    InexactNumber {
        /// The number as the model wrote it, shortened if it is long.
        number: String,
    },
    /// The call has a key twice.
    DuplicateKey {
        /// The key.
        key: String,
    },
    /// The call has two keys that cannot go together, such as two for its tool's name.
    ConflictingKey {
        /// The second of them.
        key: String,
    },
    /// An argument of the tool is next to the arguments instead of inside them.
    MisplacedArgument {
        /// The argument's name.
        name: String,
    },
    /// A closing bracket is missing, and this argument is inside another one.
    SwallowedArgument {
        /// The argument's name.
        name: String,
    },
    /// An argument has no name.
    UnnamedArgument,
    /// An argument of a Python call has no name, and the tool has no parameter in its position.
    PositionalArgument,
    /// A name that no argument can have.
    InvalidArgumentName {
        /// The name.
        name: String,
    },
    /// An argument has no value.
    MissingValue {
        /// The argument's name.
        name: String,
    },
    /// The schema requires an argument that is missing.
    MissingArgument {
        /// Its path from the arguments, such as `to[0].name`.
        path: String,
    },
    /// The schema does not allow arguments of these names.
    UnknownArguments {
        /// Their paths from the arguments.
        paths: Vec<String>,
    },
    /// A value does not fit the schema.
    WrongValue {
        /// The value's path from the arguments; empty for the arguments themselves.
        path: String,
        /// The value as JSON, shortened if it is long.
        value: String,
        /// The keyword of JSON Schema that it violates, such as `type`, `enum` or `anyOf`.
        keyword: String,
        /// What the schema expects, in words.
        expected: String,
    },
    /// A value violates a keyword whose expectation is not put into words here.
    OtherViolation {
        /// The value's path from the arguments; empty for the arguments themselves.
        path: String,
        /// The value as JSON, shortened if it is long.
        value: String,
        /// The keyword of JSON Schema.
        keyword: String,
        /// The schema validator's message.
        message: String,
    },
    /// Values that fit the schema nowhere, and nest too deeply to find out why.
    NoAlternative {
        /// The arguments' names; none if the arguments are no object.
        names: Vec<String>,
    },
}

impl CallProblem {
    /// The kind's name for programs, such as `missing_argument`.
    pub fn kind(&self) -> &'static str {
        match self {
            CallProblem::Incomplete => "incomplete",
            CallProblem::OutOfTokens => "out_of_tokens",
            CallProblem::Forbidden => "forbidden",
            CallProblem::NotRepaired => "not_repaired",
            CallProblem::Empty => "empty",
            CallProblem::NotJson => "not_json",
            CallProblem::Nameless => "nameless",
            CallProblem::NoToolName => "no_tool_name",
            CallProblem::NoParentheses => "no_parentheses",
            CallProblem::UnknownTool { .. } => "unknown_tool",
            CallProblem::ArgumentsNotJson { .. } => "arguments_not_json",
            CallProblem::ArgumentsNotObject => "arguments_not_object",
            CallProblem::ArgumentsTooDeep => "arguments_too_deep",
            CallProblem::NotLiterals => "not_literals",
            CallProblem::UnclosedString => "unclosed_string",
            CallProblem::DamagedTag => "damaged_tag",
            CallProblem::InexactNumber { .. } => "inexact_number",
            CallProblem::DuplicateKey { .. } => "duplicate_key",
            CallProblem::ConflictingKey { .. } => "conflicting_key",
            CallProblem::MisplacedArgument { .. } => "misplaced_argument",
            CallProblem::SwallowedArgument { .. } => "swallowed_argument",
            CallProblem::UnnamedArgument => "unnamed_argument",
            CallProblem::PositionalArgument => "positional_argument",
            CallProblem::InvalidArgumentName { .. } => "invalid_argument_name",
            CallProblem::MissingValue { .. } => "missing_value",
            CallProblem::MissingArgument { .. } => "missing_argument",
            CallProblem::UnknownArguments { .. } => "unknown_arguments",
            CallProblem::WrongValue { .. } => "wrong_value",
            CallProblem::OtherViolation { .. } => "other_violation",
            CallProblem::NoAlternative { .. } => "no_alternative",
        }
    }

    /// Returns whether the call's form is right, but its arguments violate the tool's schema.
    pub fn is_schema_violation(&self) -> bool {
        matches!(
            self,
            CallProblem::MissingArgument { .. }
                | CallProblem::UnknownArguments { .. }
                | CallProblem::WrongValue { .. }
                | CallProblem::OtherViolation { .. }
                | CallProblem::NoAlternative { .. }
        )
    }

    /// All problems of a call as one line of text for the model.
    pub fn sentences(problems: &[CallProblem]) -> String {
        let sentences: Vec<String> = problems.iter().map(CallProblem::to_string).collect();
        sentences.join("; ")
    }
}

impl fmt::Display for CallProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallProblem::Incomplete => f.write_str("the call was not written out"),
            CallProblem::OutOfTokens => {
                f.write_str("the tokens ran out before its end, so its arguments may be cut off")
            }
            CallProblem::Forbidden => f.write_str("no tool may be called here"),
            CallProblem::NotRepaired => f.write_str("the call departs from its format"),
            CallProblem::Empty => f.write_str("there is nothing between the call's markers"),
            CallProblem::NotJson => f.write_str("the call is not valid JSON"),
            CallProblem::Nameless => f.write_str("the call names no tool"),
            CallProblem::NoToolName => f.write_str("the call does not begin with a tool's name"),
            CallProblem::NoParentheses => f.write_str("the call does not begin with a tool's name and parentheses"),
            CallProblem::UnknownTool { name, nearest, tools, more } => {
                write!(f, "there is no tool named {name:?}; ")?;
                match nearest {
                    _ if tools.is_empty() => f.write_str("there are no tools"),
                    Some(nearest) => write!(f, "did you mean {nearest:?}?"),
                    None => {
                        let rest = if *more > 0 { ", …" } else { "" };
                        write!(f, "the tools are: {}{rest}", tools.join(", "))
                    }
                }
            }
            CallProblem::ArgumentsNotJson { error } => write!(f, "the arguments are not valid JSON: {error}"),
            CallProblem::ArgumentsNotObject => f.write_str("the arguments are not a JSON object"),
            CallProblem::ArgumentsTooDeep => f.write_str("the arguments nest too deep"),
            CallProblem::NotLiterals => f.write_str("the call's arguments are more than Python's literals"),
            CallProblem::UnclosedString => f.write_str("a string in the arguments is not closed"),
            CallProblem::DamagedTag => {
                f.write_str("a tag around an argument is damaged, so that the argument contains it")
            }
            CallProblem::InexactNumber { number } => {
                write!(f, "the number {number} is too large to be kept exactly")
            }
            CallProblem::DuplicateKey { key } => write!(f, "the call has the key {key:?} twice"),
            CallProblem::ConflictingKey { key } => {
                write!(f, "the call has the key {key:?} in addition to its tool's name")
            }
            CallProblem::MisplacedArgument { name } => {
                write!(f, "the argument {name:?} is next to \"arguments\", not inside it")
            }
            CallProblem::SwallowedArgument { name } => {
                write!(f, "a closing bracket is missing before the argument {name:?}")
            }
            CallProblem::UnnamedArgument => f.write_str("an argument has no name"),
            CallProblem::PositionalArgument => f.write_str("an argument has no name; write name=value"),
            CallProblem::InvalidArgumentName { name } => write!(f, "{name:?} cannot be the name of an argument"),
            CallProblem::MissingValue { name } => write!(f, "the argument {name:?} has no value"),
            CallProblem::MissingArgument { path } => write!(f, "\"{path}\" is missing; it is required"),
            CallProblem::UnknownArguments { paths } => match paths.as_slice() {
                [path] => write!(f, "\"{path}\" is not a known parameter; leave it out"),
                paths => write!(f, "{} are not known parameters; leave them out", quoted(paths, ", ")),
            },
            CallProblem::WrongValue { path, value, expected, .. } => {
                write!(f, "{} is {value}; expected {expected}", subject(path))
            }
            CallProblem::OtherViolation { path, value, message, .. } => {
                write!(f, "{} is {value}: {message}", subject(path))
            }
            CallProblem::NoAlternative { names } => {
                match names.as_slice() {
                    [] => f.write_str("the arguments fit")?,
                    [names @ .., _] if names.len() >= SHOWN => {
                        write!(f, "{} or … fits", quoted(&names[..SHOWN], " or "))?;
                    }
                    names => write!(f, "{} fits", quoted(names, " or "))?,
                }
                f.write_str(" none of the alternatives that the schema allows")
            }
        }
    }
}

fn subject(path: &str) -> String {
    if path.is_empty() { "the arguments".to_owned() } else { format!("\"{path}\"") }
}

/// Maximum number of alternatives to list; hundreds do not help a model.
pub(super) const SHOWN: usize = 20;

fn quoted(names: &[String], between: &str) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
    names.join(between)
}
