//! What a prompt asks for: a built-in format that says more than the calls in the history do.
//!
//! Some templates ask for calls with a marker and write past ones without, or write the end of a turn into the last
//! call. The model does what it is asked for, so such a format is chosen if it also reads the history.

use super::infer::texts::tags;
use super::{infer, native};
use crate::format::{Builtin, Format, Marker, Payload};
use crate::template::ChatTemplate;
use crate::template::probe::prompt_with_tools;

/// Shorter markers occur in ordinary text.
const TELLING: usize = 6;

/// The built-in format to use in place of the inferred one, and why.
pub(super) fn better(template: &ChatTemplate, inferred: Option<&Format>) -> Option<(&'static Builtin, String)> {
    match inferred {
        Some(format) if format.start.is_none() && format.section.is_none() => marked(template),
        Some(format) => closed(template, format),
        None => listed(template),
    }
}

/// The format with a marker that the prompt asks for, where past calls have none.
fn marked(template: &ChatTemplate) -> Option<(&'static Builtin, String)> {
    let prompt = prompt_with_tools(template);
    let asks = |builtin: &&'static Builtin| {
        let Some(start) = builtin.format().start_of_calls().and_then(Marker::text).map(str::trim) else { return false };
        let calls = |(at, _): (usize, &str)| prompt[at + start.len()..].trim_start().starts_with(['[', '{']);
        start.len() >= TELLING && prompt.match_indices(start).any(calls)
    };
    let builtin =
        Format::builtins().iter().filter(asks).find(|builtin| native::reads(builtin.format(), template, false))?;
    let start = builtin.format().start.as_ref().and_then(Marker::text).unwrap_or_default();
    Some((builtin, format!("the prompt asks for calls that begin with {}", start.trim())))
}

/// The format with the same start marker, where the inferred end marker has the end of the turn in it.
fn closed(template: &ChatTemplate, inferred: &Format) -> Option<(&'static Builtin, String)> {
    let end = inferred.end.as_ref().and_then(Marker::text).filter(|end| !tags(end).is_empty())?;
    let ends = infer::turn(template);
    // Their turns may end in another way than those with text only.
    let last = tags(&ends.answer).pop().map(|tag| &ends.answer[tag]);
    let both = tags(end).len() > 1 && ends.calls.as_deref().is_some_and(|tag| end.trim_end().ends_with(tag));
    if !both && !last.is_some_and(|last| end.contains(last)) {
        return None;
    }
    let text = |format: &Format| format.start.as_ref().and_then(Marker::text).map(|text| text.trim().to_owned());
    let same = |builtin: &&'static Builtin| text(builtin.format()) == text(inferred);
    let builtin =
        Format::builtins().iter().filter(same).find(|builtin| native::reads(builtin.format(), template, true))?;
    Some((builtin, "the template writes calls in it".to_owned()))
}

/// The list of calls in Python that the prompt asks for, where the template writes calls that are not readable.
fn listed(template: &ChatTemplate) -> Option<(&'static Builtin, String)> {
    if !template.capabilities().tools || infer::infer(template).format.is_some() {
        return None;
    }
    let prompt = prompt_with_tools(template);
    let word = |text: &str| text.find(|c: char| !c.is_alphanumeric() && c != '_').filter(|length| *length > 0);
    let call = |list: &str| {
        let name = word(list)?;
        let argument = list[name..].strip_prefix('(')?;
        argument[word(argument)?..].starts_with('=').then(|| list[..name].to_owned())
    };
    let name = prompt.match_indices('[').find_map(|(at, _)| call(&prompt[at + 1..]))?;
    let is_list = |builtin: &&Builtin| {
        let format = builtin.format();
        format.start.is_none() && matches!(format.payload, Payload::Python { list: true, .. })
    };
    let builtin = Format::builtins().iter().find(is_list)?;
    Some((builtin, format!("the prompt asks for calls like [{name}(…)]")))
}
