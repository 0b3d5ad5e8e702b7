//! Faults that no single render shows: calls that the parser cannot read, and a tool section that shows other markers.

use super::script::{self, question};
use super::{Outcome, Render, RoundTrip, Subject, common};
use crate::Result;
use crate::format::{Format, Marker};

/// The problems, as sentences.
pub(super) fn problems(subject: &Subject<'_>, renders: &[Render], trips: &[RoundTrip]) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    let writes = renders.iter().any(|render| render.what == "call" && render.outcome == Outcome::Pass);
    if writes && trips.is_empty() {
        problems.push("none of the calls that it writes is read back".to_owned());
    }
    if let Some(format) = subject.format {
        problems.extend(untaught(subject, format)?);
    }
    Ok(problems)
}

/// Variables that every template gets; a name that is nearly one of them is a slip.
const GIVEN: [&str; 5] = ["messages", "tools", "add_generation_prompt", "bos_token", "eos_token"];

/// Returns what may be a mistake, as sentences.
pub(super) fn remarks(subject: &Subject<'_>) -> Result<Vec<String>> {
    let (slips, others): (Vec<String>, Vec<String>) =
        subject.template.unset(&subject.variables).into_iter().partition(|name| meant(name).is_some());
    let slip = |name: &String| {
        format!("nothing sets the variable `{name}`; did you mean `{}`?", meant(name).unwrap_or_default())
    };
    let mut remarks: Vec<String> = slips.iter().map(slip).collect();
    if !others.is_empty() {
        let names: Vec<String> = others.iter().map(|name| format!("`{name}`")).collect();
        remarks.push(format!("nothing sets {}, unless it is given with the variables", names.join(", ")));
    }
    let section = section(subject)?.unwrap_or_default();
    if let Some(at) = doubled(&section) {
        let line = section[at..].lines().next().unwrap_or_default();
        remarks.push(format!(
            "the prompt shows the model doubled braces, as for Python's format: {}",
            line.chars().take(60).collect::<String>()
        ));
    }
    Ok(remarks)
}

/// The variable that a name nearly is.
fn meant(name: &str) -> Option<&'static str> {
    GIVEN.into_iter().find(|given| *given != name && strsim::damerau_levenshtein(name, given) <= 1 + given.len() / 8)
}

/// Where an object begins with two braces, which are one in no notation.
fn doubled(section: &str) -> Option<usize> {
    let begins = |at: &usize| section[at + 2..].trim_start().starts_with(['"', '\'']);
    section.match_indices("{{").map(|(at, _)| at).find(begins)
}

/// Returns what the tools add to a prompt.
fn section(subject: &Subject<'_>) -> Result<Option<String>> {
    let tools = script::all()?;
    let prompt = |tools| subject.prompt(&[question()], tools, true);
    let (Ok(with), Ok(without)) = (prompt(Some(&tools)), prompt(None)) else { return Ok(None) };
    Ok(Some(with[common(&without, &with)..].to_owned()))
}

/// Reports a tool section that shows other markers than the format declares.
fn untaught(subject: &Subject<'_>, format: &Format) -> Result<Option<String>> {
    let Some(section) = section(subject)? else { return Ok(None) };
    let around = format.section.iter().flat_map(|around| [&around.start, &around.end]);
    let declared = around.chain(&format.start).chain(&format.end).filter_map(Marker::text).map(str::trim);
    let missing = declared.filter(|marker| !marker.is_empty()).find(|marker| !section.contains(marker));
    // A template may omit the markers if its model was trained on them; our own sections always show them.
    let other = format.other_call_in(&section).map(|(_, marker)| marker);
    Ok(match (missing, other) {
        (Some(missing), Some(other)) => {
            Some(format!("the tool section shows the model {other}, but not {missing}, which is declared"))
        }
        (Some(missing), None) if subject.section.is_some() => {
            Some(format!("the tool section does not show the model {missing}, which is declared"))
        }
        _ => None,
    })
}
