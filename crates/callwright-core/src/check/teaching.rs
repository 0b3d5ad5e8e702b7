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

/// Reports a tool section that shows other markers than the format declares.
fn untaught(subject: &Subject<'_>, format: &Format) -> Result<Option<String>> {
    let tools = script::all()?;
    let prompt = |tools| subject.prompt(&[question()], tools, true);
    let (Ok(with), Ok(without)) = (prompt(Some(&tools)), prompt(None)) else { return Ok(None) };
    let section = &with[common(&without, &with)..];
    let around = format.section.iter().flat_map(|around| [&around.start, &around.end]);
    let declared = around.chain(&format.start).chain(&format.end).filter_map(Marker::text).map(str::trim);
    let missing = declared.filter(|marker| !marker.is_empty()).find(|marker| !section.contains(marker));
    // A template may omit the markers if its model was trained on them; our own sections always show them.
    let other = format.other_call_in(section).map(|(_, marker)| marker);
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
