//! Compares calls with the expected ones.

use super::super::exact::Exact;
use super::super::outcome::Outcome;
use super::super::suite::{ExpectedCall, short};
use super::ScoredCall;

/// The result of comparing a call's arguments with the expected ones.
#[derive(Debug, PartialEq)]
pub(super) enum Difference {
    None,
    /// Only this argument is missing, which the schema does not require.
    Omitted(String),
    Wrong(String),
}

impl Difference {
    pub(super) fn is_match(&self) -> bool {
        *self == Difference::None
    }

    /// 0 for no difference; larger is worse.
    fn rank(&self) -> usize {
        match self {
            Difference::None => 0,
            Difference::Omitted(_) => 1,
            Difference::Wrong(_) => 2,
        }
    }
}

/// Compares one call's arguments.
pub(super) fn call(expected: &ExpectedCall, given: &Exact) -> Difference {
    let mut omitted = None;
    for argument in &expected.arguments {
        match given.get(&argument.name) {
            None if argument.optional => {}
            None => {
                omitted.get_or_insert_with(|| format!("{}: {:?} is missing", expected.name, argument.name));
            }
            Some(value) if argument.accepted.iter().any(|accepted| same(accepted, value)) => {}
            Some(value) => {
                let wanted = match argument.accepted.as_slice() {
                    [] => "that it is left out".to_owned(),
                    [one] => short(one),
                    [one, ..] => format!("{} or another of {}", short(one), argument.accepted.len()),
                };
                let name = &argument.name;
                return Difference::Wrong(format!(
                    "{}: {name:?} is {}; expected {wanted}",
                    expected.name,
                    short(value)
                ));
            }
        }
    }
    let known = |name: &str| expected.arguments.iter().any(|argument| argument.name == name);
    if let Some((name, value)) = given.members().unwrap_or_default().iter().find(|(name, _)| !known(name)) {
        let value = short(value);
        return Difference::Wrong(format!("{}: {name:?} is {value}, but nobody asked for it", expected.name));
    }
    omitted.map_or(Difference::None, Difference::Omitted)
}

/// Compares an equal number of calls, paired as well as possible.
pub(super) fn calls(expected: &[ExpectedCall], given: &[ScoredCall]) -> Option<(Outcome, String)> {
    let nothing = Exact::Object(Vec::new());
    let differences: Vec<Vec<Difference>> = expected
        .iter()
        .map(|wanted| {
            given
                .iter()
                .map(|given| match &given.exact {
                    _ if given.name != wanted.name => Difference::Wrong(format!("{} is not called", wanted.name)),
                    exact => call(wanted, exact.as_ref().unwrap_or(&nothing)),
                })
                .collect()
        })
        .collect();
    let (pairs, full) = matching(&differences, 0);
    if full {
        return None;
    }
    let (looser, full) = matching(&differences, 1);
    if full {
        let omitted = differences.iter().zip(&looser).find_map(|(row, place)| match &row[(*place)?] {
            Difference::Omitted(what) => Some(what.clone()),
            _ => None,
        });
        return Some((Outcome::OmittedExpectedOptional, omitted.unwrap_or_default()));
    }
    // The first expected call without a partner, and an unpaired call of that name.
    let unmatched = pairs.iter().position(Option::is_none)?;
    let free = |place: &usize| !pairs.contains(&Some(*place));
    let beside = (0..given.len())
        .filter(free)
        .find(|place| given[*place].name == expected[unmatched].name)
        .or_else(|| (0..given.len()).find(free))?;
    let detail = match &differences[unmatched][beside] {
        Difference::Wrong(what) | Difference::Omitted(what) => what.clone(),
        Difference::None => String::new(),
    };
    Some((Outcome::WrongValue, detail))
}

/// A largest matching of rows to columns with differences up to this rank, and whether it covers all rows.
fn matching(differences: &[Vec<Difference>], rank: usize) -> (Vec<Option<usize>>, bool) {
    let columns = differences.first().map_or(0, Vec::len);
    let mut row_of: Vec<Option<usize>> = vec![None; columns];
    for row in 0..differences.len() {
        augment(differences, rank, row, &mut vec![false; columns], &mut row_of);
    }
    let mut pairs = vec![None; differences.len()];
    for (column, row) in row_of.iter().enumerate() {
        if let Some(row) = row {
            pairs[*row] = Some(column);
        }
    }
    let full = pairs.iter().all(Option::is_some);
    (pairs, full)
}

/// Kuhn's algorithm: finds a column for `row`, and moves other rows where they have another choice.
fn augment(
    differences: &[Vec<Difference>],
    rank: usize,
    row: usize,
    seen: &mut [bool],
    row_of: &mut [Option<usize>],
) -> bool {
    for column in 0..row_of.len() {
        if seen[column] || differences[row][column].rank() > rank {
            continue;
        }
        seen[column] = true;
        if row_of[column].is_none_or(|other| augment(differences, rank, other, seen, row_of)) {
            row_of[column] = Some(row);
            return true;
        }
    }
    false
}

/// Equality of JSON values: numbers by value, strings exactly, objects in any order; a boolean is not a number.
fn same(a: &Exact, b: &Exact) -> bool {
    match (a, b) {
        (Exact::Bool(a), Exact::Bool(b)) => a == b,
        (Exact::Bool(_), _) | (_, Exact::Bool(_)) => false,
        (Exact::List(a), Exact::List(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Exact::Object(members), Exact::Object(others)) => {
            members.len() == others.len()
                && members.iter().all(|(key, value)| b.get(key).is_some_and(|other| same(value, other)))
        }
        _ => a.equals(b),
    }
}
