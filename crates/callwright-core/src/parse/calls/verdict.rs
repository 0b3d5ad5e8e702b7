//! Whether a call that has ended is valid, and what its arguments are.

use super::shortened;
use crate::message::Arguments;
use crate::parse::duplicates::{self, Seen};
use crate::tool::{CallProblem, Tools};
use serde_json::{Map, Value};

/// The arguments of a call that has ended.
pub(super) struct Written {
    text: String,
    /// What they are as JSON; `None` if they cannot be separated from the rest between the markers.
    object: Option<serde_json::Result<(Map<String, Value>, Seen)>>,
    /// Whether they have a number that cannot be kept exactly.
    inexact: bool,
}

impl Written {
    /// Reads the text of the arguments, and reports a number that cannot be kept exactly. `apart` is whether the text
    /// has only the arguments.
    pub fn read(text: String, apart: bool, any_number: bool) -> (Written, Option<CallProblem>) {
        let object = apart.then(|| duplicates::read_object(&text));
        let double = matches!(&object, Some(Ok((_, seen))) if seen.double) && !any_number;
        let number = if double { duplicates::inexact_number(&text) } else { None };
        let problem = number.map(|number| CallProblem::InexactNumber { number: shortened(number) });
        (Written { text, object, inexact: problem.is_some() }, problem)
    }

    /// The arguments if they are an object.
    pub fn object(&self) -> Option<&Map<String, Value>> {
        self.object.as_ref()?.as_ref().ok().map(|(object, _)| object)
    }

    /// The keys that they have twice.
    pub fn again(&self) -> &[String] {
        match &self.object {
            Some(Ok((_, seen))) => &seen.again,
            _ => &[],
        }
    }

    /// The arguments as the call has them, the problem that they are no object, and the text if it is no longer needed.
    ///
    /// `repair` is whether repairs are on.
    pub fn arguments(self, repair: bool) -> (Arguments, Option<CallProblem>, Option<String>) {
        let Written { text, object, inexact } = self;
        match object {
            // Without repairs, nothing written is dropped.
            Some(Ok((_, seen))) if !seen.again.is_empty() && !repair => (Arguments::Raw(text), None, None),
            // Nor is a value replaced by another.
            Some(Ok(_)) if inexact => (Arguments::Raw(text), None, None),
            Some(Ok((object, _))) => (Arguments::Object(object), None, Some(text)),
            Some(Err(error)) => {
                let problem = match serde_json::from_str::<Value>(&text) {
                    Ok(_) => CallProblem::ArgumentsNotObject,
                    Err(_) => CallProblem::ArgumentsNotJson { error: error.to_string() },
                };
                (Arguments::Raw(text), Some(problem), None)
            }
            None => (Arguments::Raw(text), None, None),
        }
    }
}

/// How a call was written, apart from its name and arguments.
pub(super) struct Form {
    /// Whether the model wrote all of it.
    pub ended: bool,
    /// Whether a grammar closed it because the tokens ran out.
    pub closed: bool,
    /// Whether calls are forbidden.
    pub forbidden: bool,
    /// Whether it departs from the format, and repairs are off.
    pub refused: bool,
    /// Whether there is only white space between its markers.
    pub empty: bool,
    /// Whether its markup was beyond repair.
    pub broken: bool,
    /// What the payload's reader found.
    pub blamed: Vec<CallProblem>,
}

impl Form {
    /// The problems of the form.
    pub fn problems(self) -> Vec<CallProblem> {
        let mut problems = Vec::new();
        if !self.ended {
            problems.push(CallProblem::Incomplete);
        } else if self.closed {
            problems.push(CallProblem::OutOfTokens);
        }
        if self.forbidden {
            problems.push(CallProblem::Forbidden);
        }
        if self.refused {
            problems.push(CallProblem::NotRepaired);
        } else if self.empty {
            problems.push(CallProblem::Empty);
        } else if self.broken && self.blamed.is_empty() {
            problems.push(CallProblem::NotJson);
        }
        problems.extend(self.blamed);
        problems
    }
}

/// The problem of a name and arguments for the known tools. A call is validated here, and nowhere else.
pub(super) fn of_tools(name: &str, arguments: &Arguments, tools: Option<&Tools>) -> Vec<CallProblem> {
    match (tools, arguments) {
        _ if name.is_empty() => vec![CallProblem::Nameless],
        (Some(tools), Arguments::Object(object)) => tools.problems(name, object),
        _ => Vec::new(),
    }
}
