//! Small models overlook results in the place that their template gives them, and make the same calls again. An answer that only repeats
//! the calls whose results have just come is not sent: the model gets the results once more, in words, and answers again.

use callwright::agent::restated;
use callwright::message::{Message, Role, ToolCall};
use callwright::parse::event::Event as Parsed;
use callwright::session::{AnswerRequest, Event, Note, NoteKind, Reply, Session, ToolChoice};
use callwright::tool::Tools;
use callwright::{ErrorKind, Result};
use serde_json::Value;

const RESTATED: &str = "the model made calls again whose results it had; it was given the results once more, in words (callwright.restate_results)";

/// Answers a request, as [`Session::answer`] does.
pub(super) fn answer(
    session: &mut Session,
    request: &AnswerRequest,
    on_event: &mut dyn FnMut(&Event),
) -> Result<Reply> {
    let known = just_made(&request.messages, &request.tools);
    if known.is_empty() || request.options.tool_choice != ToolChoice::Auto {
        return session.answer(request, on_event);
    }
    // Nothing is sent as long as the answer may be those calls alone.
    let mut held = Some(Vec::new());
    let reply = session.answer(request, &mut |event| {
        if let Some(events) = &mut held {
            events.push(event.clone());
        } else {
            on_event(event);
        }
        let has_text = |delta: &String| !delta.trim().is_empty();
        if let Event::Parsed(Parsed::Text { delta } | Parsed::Reasoning { delta }) = event
            && has_text(delta)
        {
            held.take().into_iter().flatten().for_each(|event| on_event(&event));
        }
    })?;
    let Some(events) = held else { return Ok(reply) };
    let calls = &reply.message.tool_calls;
    if !calls.is_empty() && calls.iter().all(|call| known.iter().any(|known| is_same(known, call))) {
        let mut messages = request.messages.to_vec();
        messages.push(restated(&messages));
        let mut again = AnswerRequest { messages: messages.into(), ..request.clone() };
        // They decide about first answers.
        (again.options.call_threshold, again.options.no_call_below) = (None, None);
        match session.answer(&again, on_event) {
            // There is no room for it, or the template cannot write it.
            Err(error) if matches!(error.kind(), ErrorKind::Template | ErrorKind::ContextOverflow) => {}
            answer => {
                return answer.map(|mut reply| {
                    reply.notes.push(Note::plain(NoteKind::AlreadyDone, RESTATED.to_owned()));
                    reply
                });
            }
        }
    }
    events.iter().for_each(on_event);
    Ok(reply)
}

/// The calls whose results end the conversation, where all of them succeeded and none may be repeated.
fn just_made<'m>(messages: &'m [Message], tools: &Tools) -> Vec<&'m ToolCall> {
    let Some(at) = messages.iter().rposition(|message| message.role != Role::Tool) else { return Vec::new() };
    let (calls, results) = (&messages[at].tool_calls, &messages[at + 1..]);
    let may_repeat = |call: &ToolCall| tools.get(&call.name).is_none_or(|tool| tool.policy.repeat);
    if results.is_empty() || results.iter().any(is_error) || calls.iter().any(may_repeat) {
        return Vec::new();
    }
    calls.iter().collect()
}

fn is_error(result: &Message) -> bool {
    let has_error = |value: Value| value.get("error").is_some_and(|error| !error.is_null());
    result.content.to_lowercase().starts_with("error") || serde_json::from_str(&result.content).is_ok_and(has_error)
}

fn is_same(one: &ToolCall, other: &ToolCall) -> bool {
    one.name == other.name && one.arguments == other.arguments
}
