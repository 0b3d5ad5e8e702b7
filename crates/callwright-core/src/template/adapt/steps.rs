//! The steps that adapt a conversation. Each takes messages, and returns the adapted ones and what it did.

use crate::message::{Arguments, Message, Placed, Role, as_text};
use serde_json::{Map, Value, json};

/// The result of a step; it changed nothing if there are no notes.
type Stepped = (Vec<Placed>, Vec<String>);

/// The steps in order, smallest changes first.
pub(super) const STEPS: [fn(&[Placed]) -> Stepped; 11] =
    [arguments, reasoning, silent, split, instruct, merge_system, join, fill, separate_text, system_to_user, text];

/// Content of an inserted user or assistant message.
const BEGINNING: &str = "(The conversation begins.)";
const NO_ANSWER: &str = "(No answer.)";
/// Content of an inserted system message.
const INSTRUCTION: &str = "You can call tools.";
/// Maximum number of times that arguments may be encoded as a JSON string.
const MOST_ENCODED: usize = 4;

/// Converts arguments that are not a JSON object into one.
fn arguments(placed: &[Placed]) -> Stepped {
    let mut notes = Vec::new();
    let mut placed = placed.to_vec();
    for Placed { message, at, .. } in &mut placed {
        for call in &mut message.tool_calls {
            let Arguments::Raw(text) = &call.arguments else { continue };
            let (object, how) = object(text);
            notes.push(format!(
                "the arguments of the call of {} in messages[{at}] are not a JSON object; the prompt has them {how}",
                call.name
            ));
            call.arguments = Arguments::Object(object);
        }
    }
    (placed, notes)
}

/// Arguments as an object, and how it was made.
fn object(text: &str) -> (Map<String, Value>, &'static str) {
    let mut value = json!(text);
    for _ in 0..MOST_ENCODED {
        value = match value {
            Value::String(text) if text.trim().is_empty() => Value::Null,
            Value::String(text) => match serde_json::from_str(&text) {
                Ok(inner) => inner,
                Err(_) => {
                    value = Value::String(text);
                    break;
                }
            },
            other => {
                value = other;
                break;
            }
        };
    }
    match value {
        Value::Object(map) => (map, "decoded"),
        Value::Null => (Map::new(), "as {}"),
        other => (Map::from_iter([("arguments".to_owned(), other)]), "wrapped as {\"arguments\": …}"),
    }
}

/// Drops reasoning from messages with text or calls.
fn reasoning(placed: &[Placed]) -> Stepped {
    let mut notes = Vec::new();
    let mut placed = placed.to_vec();
    for Placed { message, at, .. } in &mut placed {
        if !message.content.is_empty() && !message.tool_calls.is_empty() && message.reasoning.take().is_some() {
            notes.push(format!(
                "the reasoning in messages[{at}] is left out: the template accepts none with text and calls"
            ));
        }
    }
    (placed, notes)
}

/// Gives the assistant's messages without text and calls a text.
fn silent(placed: &[Placed]) -> Stepped {
    let mut notes = Vec::new();
    let mut placed = placed.to_vec();
    for Placed { message, at, .. } in placed.iter_mut().filter(|placed| is_silent(&placed.message)) {
        NO_ANSWER.clone_into(&mut message.content);
        notes.push(format!(
            "messages[{at}], a message of role assistant, has neither text nor calls; the prompt has {NO_ANSWER:?} there"
        ));
    }
    (placed, notes)
}

/// Returns whether the model said nothing: its turn was interrupted.
pub(super) fn is_silent(message: &Message) -> bool {
    message.role == Role::Assistant && message.content.trim().is_empty() && message.tool_calls.is_empty()
}

/// Splits a turn with several calls into one turn per call, each with its result.
pub(super) fn split(placed: &[Placed]) -> Stepped {
    let mut notes = Vec::new();
    let mut out = Vec::with_capacity(placed.len());
    let mut rest = placed;
    while let [first, after @ ..] = rest {
        let end = after.iter().position(|placed| placed.message.role != Role::Tool).unwrap_or(after.len());
        let (results, others) = after.split_at(end);
        if first.message.tool_calls.len() < 2 {
            out.push(first.clone());
            rest = after;
            continue;
        }
        let mut results: Vec<&Placed> = results.iter().collect();
        for (position, call) in first.message.tool_calls.iter().enumerate() {
            let mut turn = Placed { message: Message::calls(vec![call.clone()]), ..first.clone() };
            if position == 0 {
                turn.message = Message { tool_calls: vec![call.clone()], ..first.message.clone() };
            }
            out.push(turn);
            let id = call.id.as_ref();
            let by_id = results.iter().position(|result| id.is_some() && result.message.tool_call_id.as_ref() == id);
            if !results.is_empty() {
                out.push(results.remove(by_id.unwrap_or(0)).clone());
            }
        }
        out.extend(results.into_iter().cloned());
        notes.push(format!(
            "the {} calls in messages[{}] are shown as one turn each: the template writes one call per turn",
            first.message.tool_calls.len(),
            first.at
        ));
        rest = others;
    }
    (out, notes)
}

/// Inserts a system message where there is none.
fn instruct(placed: &[Placed]) -> Stepped {
    if placed.iter().any(|placed| placed.message.role == Role::System) {
        return (placed.to_vec(), Vec::new());
    }
    let note =
        format!("a message of role system, {INSTRUCTION:?}, is inserted at the beginning: the template needs one");
    let first = Placed { inserted: true, ..Placed::new(0, Message::system(INSTRUCTION)) };
    (std::iter::once(first).chain(placed.iter().cloned()).collect(), vec![note])
}

/// Merges all system messages into one, at the beginning.
fn merge_system(placed: &[Placed]) -> Stepped {
    let is_system = |placed: &&Placed| placed.message.role == Role::System;
    let systems: Vec<&Placed> = placed.iter().filter(is_system).collect();
    let first_is_system = placed.first().is_some_and(|placed| placed.message.role == Role::System);
    let Some((first, more)) = systems.split_first() else { return (placed.to_vec(), Vec::new()) };
    let why = "the template takes one system message, at the beginning";
    let mut notes = Vec::new();
    if !first_is_system {
        notes.push(format!("messages[{}] is moved to the beginning: {why}", first.at));
    }
    let mut merged = (*first).clone();
    for system in more {
        append(&mut merged.message.content, &system.message.content);
        notes.push(format!("messages[{}] is merged into messages[{}]: {why}", system.at, first.at));
    }
    let others = placed.iter().filter(|placed| placed.message.role != Role::System).cloned();
    (std::iter::once(merged).chain(others).collect(), notes)
}

/// Merges consecutive messages of one role.
fn join(placed: &[Placed]) -> Stepped {
    let mut notes = Vec::new();
    let mut out: Vec<Placed> = Vec::with_capacity(placed.len());
    for next in placed {
        let joins = |last: &&mut Placed| {
            last.message.role == next.message.role
                && next.message.role != Role::Tool
                && last.message.tool_calls.is_empty()
        };
        let Some(last) = out.last_mut().filter(joins) else {
            out.push(next.clone());
            continue;
        };
        append(&mut last.message.content, &next.message.content);
        if let Some(reasoning) = &next.message.reasoning {
            append(last.message.reasoning.get_or_insert_default(), reasoning);
        }
        last.message.tool_calls.clone_from(&next.message.tool_calls);
        notes.push(format!(
            "messages[{}] is merged into messages[{}]: the template requires alternating roles",
            next.at, last.at
        ));
    }
    (out, notes)
}

/// Inserts a user message at the beginning, and an assistant message between a result and the user.
fn fill(placed: &[Placed]) -> Stepped {
    let mut notes = Vec::new();
    let mut out: Vec<Placed> = Vec::with_capacity(placed.len() + 1);
    for next in placed {
        let before = out.last().map(|last| last.message.role);
        let filler = match (before, next.message.role) {
            (None | Some(Role::System), Role::Assistant) => Some(Message::user(BEGINNING)),
            (Some(Role::Tool), Role::User) => Some(Message::assistant(NO_ANSWER)),
            _ => None,
        };
        if let Some(message) = filler {
            notes.push(format!(
                "a message of role {}, {:?}, is inserted before messages[{}]: the template requires alternating roles",
                message.role.as_str(),
                message.content,
                next.at
            ));
            out.push(Placed { message, at: next.at, inserted: true });
        }
        out.push(next.clone());
    }
    (out, notes)
}

/// Moves the text of a message with calls into a message of its own.
fn separate_text(placed: &[Placed]) -> Stepped {
    let mut notes = Vec::new();
    let mut out = Vec::with_capacity(placed.len() + 1);
    for next in placed {
        if next.message.content.is_empty() || next.message.tool_calls.is_empty() {
            out.push(next.clone());
            continue;
        }
        let calls = Message::calls(next.message.tool_calls.clone());
        let text = Message { tool_calls: Vec::new(), ..next.message.clone() };
        out.extend([text, calls].map(|message| Placed { message, ..next.clone() }));
        notes.push(format!(
            "the text in messages[{}] is shown in a separate message: the template accepts none with calls",
            next.at
        ));
    }
    (out, notes)
}

/// Moves the system message into the first user message.
fn system_to_user(placed: &[Placed]) -> Stepped {
    let mut notes = Vec::new();
    let mut instructions = String::new();
    let mut out = Vec::with_capacity(placed.len());
    let mut first = 0;
    for placed in placed {
        if placed.message.role != Role::System {
            out.push(placed.clone());
            continue;
        }
        if notes.is_empty() {
            first = placed.at;
        }
        append(&mut instructions, &placed.message.content);
        notes.push(format!(
            "messages[{}], a system message, is put before the first user message: the template leaves it out",
            placed.at
        ));
    }
    if notes.is_empty() {
        return (out, notes);
    }
    match out.iter_mut().find(|placed| placed.message.role == Role::User) {
        Some(user) => {
            append(&mut instructions, &user.message.content);
            user.message.content = instructions;
        }
        None => out.insert(0, Placed::new(first, Message::user(instructions))),
    }
    (out, notes)
}

/// Turns calls and results into text.
fn text(placed: &[Placed]) -> Stepped {
    let mut notes = Vec::new();
    let mut out = Vec::with_capacity(placed.len());
    for Placed { mut message, at, inserted } in placed.iter().cloned() {
        if message.role == Role::Tool {
            notes.push(format!("the result in messages[{at}] is shown as text: the template does not write it"));
            message = as_text(message);
        }
        for call in std::mem::take(&mut message.tool_calls) {
            let arguments = match &call.arguments {
                Arguments::Object(map) => Value::Object(map.clone()),
                Arguments::Raw(text) => json!(text),
            };
            let written = json!({"name": call.name, "arguments": arguments}).to_string();
            append(&mut message.content, &written);
            notes.push(format!(
                "the call of {} in messages[{at}] is shown as text: the template does not write it",
                call.name
            ));
        }
        out.push(Placed { message, at, inserted });
    }
    (out, notes)
}

fn append(text: &mut String, more: &str) {
    if !text.is_empty() && !more.is_empty() {
        text.push_str("\n\n");
    }
    text.push_str(more);
}
