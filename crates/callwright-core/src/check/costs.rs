//! Token cost of the parts of a prompt.

use super::script::{self, question, result, second_result};
use super::{CountTokens, Subject};
use crate::Result;
use crate::format::{Format, Payload};
use crate::message::{Message, ToolCall};
use crate::tool::Tools;
use serde::Serialize;

/// Token cost of one part of a prompt.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Cost {
    /// Which part.
    pub what: &'static str,
    /// In tokens; negative if the part replaces a longer one.
    pub tokens: i64,
}

/// One of a format's markers.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct MarkerTokens {
    /// The marker without white space at its edges.
    pub marker: String,
    /// Its length in tokens.
    pub tokens: usize,
}

pub(super) fn markers(format: &Format, count: CountTokens<'_>) -> Result<Vec<MarkerTokens>> {
    let mut texts: Vec<&str> = format.reserved().collect();
    if let Payload::Tagged(tagged) = &format.payload {
        let (key_end, tag_end) = tagged.around_type().unwrap_or((&tagged.key_end, ""));
        texts.extend([&*tagged.key_start, key_end, tag_end, &tagged.value_start, &tagged.value_end].map(str::trim));
    }
    let mut markers: Vec<MarkerTokens> = Vec::new();
    for text in texts {
        if !text.is_empty() && markers.iter().all(|known| known.marker != text) {
            markers.push(MarkerTokens { marker: text.to_owned(), tokens: count(text)? });
        }
    }
    Ok(markers)
}

/// Skips parts that the template refuses.
pub(super) fn costs(subject: &Subject<'_>, count: CountTokens<'_>) -> Result<Vec<Cost>> {
    let tokens = |text: &str| Ok::<i64, crate::Error>(i64::try_from(count(text)?).unwrap_or(i64::MAX));
    // `None` where the template fails.
    let prompt = |messages: &[Message], tools: &[&str], generation| -> Result<Option<i64>> {
        let all = [script::ferries(), script::trains()];
        let tools = Tools::new(all.into_iter().filter(|tool| tools.contains(&tool.name.as_str())))?;
        subject.prompt(messages, Some(&tools), generation).ok().map(|text| tokens(&text)).transpose()
    };
    let own = |calls: &[ToolCall]| -> Result<i64> {
        calls.iter().try_fold(0, |sum, call| Ok(sum + tokens(&call.name)? + tokens(&call.arguments.to_text())?))
    };
    let one = ["find_ferries"];
    let base = prompt(&[question()], &[], true)?;
    let with_tool = prompt(&[question()], &one, true)?;
    let with_tools = prompt(&[question()], &["find_ferries", "find_trains"], true)?;
    let each_tool = difference(with_tools, with_tool);

    let calls = vec![script::first_call(), script::second_call()];
    let called = [question(), Message::calls(calls[..1].to_vec()), result()];
    let called_twice = [question(), Message::calls(calls.clone()), result(), second_result()];
    let before = prompt(&called[..1], &one, false)?;
    let call = difference(prompt(&called[..2], &one, false)?, before);
    let answered = difference(prompt(&called, &one, false)?, prompt(&called[..2], &one, false)?);
    let both = difference(prompt(&called_twice[..2], &one, false)?, before);

    let section = match subject.section {
        Some(_) => "the overlay's tool section, without tools",
        None => "the tool section, without tools",
    };
    let costs = [
        ("a question, without its text", base.map(|all| Ok(all - tokens(script::QUESTION)?)).transpose()?),
        ("an empty system message", difference(prompt(&[Message::system(""), question()], &[], true)?, base)),
        (section, difference(difference(with_tool, base), each_tool)),
        ("a tool with two parameters", each_tool),
        ("of these, its JSON", Some(tokens(&script::trains().to_json()["function"].to_string())?)),
        ("a call, without name and arguments", call.map(|all| Ok(all - own(&calls[..1])?)).transpose()?),
        ("a further call, likewise", difference(both, call).map(|all| Ok(all - own(&calls[1..])?)).transpose()?),
        ("a result, without its text", answered.map(|all| Ok(all - tokens(script::RESULT)?)).transpose()?),
    ];
    Ok(costs.into_iter().filter_map(|(what, tokens)| Some(Cost { what, tokens: tokens? })).collect())
}

fn difference(more: Option<i64>, less: Option<i64>) -> Option<i64> {
    Some(more? - less?)
}
